"""Slips that no other test would see: each of these fails when the one line that it is about is left out."""

from types import SimpleNamespace

import numpy as np
import pytest

import pymc_pacauc as pac
from pymc_pacauc.ep.subsample import own_error
from pymc_pacauc.tune.gamma import weighted_gamma


def test_a_holdout_bound_pays_for_the_scores_compared():
    rng = np.random.default_rng(1)
    y = np.arange(200) < 80
    scores = rng.normal(size=200) + y
    shared = pac.certify.holdout(scores, y, 0.1, selected_from=5)
    assert shared.auc == pytest.approx(pac.certify.holdout(scores, y, 0.02).auc, abs=1e-12)
    assert shared.auc < pac.certify.holdout(scores, y, 0.1).auc


def test_the_mean_gamma_goes_by_how_far_candidates_stay_behind():
    noise = 0.001 * np.random.default_rng(1).normal(size=(5, 10))
    best, worse = (
        SimpleNamespace(gamma=gamma, auc=auc, reliable=True)
        for gamma, auc in ((10.0, 0.9 + noise), (1000.0, 0.6 - noise))
    )
    assert weighted_gamma([best, worse], 5.0) == pytest.approx(10.0, rel=1e-6)


def test_a_subsample_that_is_worse_than_others_says_so():
    """Two others agree, three units from it: its own error is 3, not 3 / sqrt(2)."""
    assert own_error(np.array([[3.0], [3.0]])) == pytest.approx(3.0)
