"""Cross-validation by tempering SMC, against refits."""

import numpy as np
import pymc as pm
import pytest

import pymc_pacauc as pac
from pymc_pacauc import fitting
from pymc_pacauc.analysis.select_gamma import choose_tempered, tempered_model
from pymc_pacauc.problem.problem import linear_gaussian_problem
from tests.analysis.test_select_gamma import X, expected_aucs, y


def test_smc_is_cross_validated_as_refits_would_be():
    with pm.Model() as model:
        theta = pm.Normal("theta", size=4)
        pac.AUCPotential("auc", X @ theta, y, gamma=1.0)
    gammas, rng = [5.0, 40.0], np.random.default_rng(3)
    choice, _ = choose_tempered(tempered_model(model), gammas, 4, particles=8000, rng=rng)
    mean, drawn = expected_aucs(choice.folds, gammas)
    found = np.array([each.auc for each in choice.candidates])
    np.testing.assert_allclose(found.mean(axis=(1, 2)), mean.mean(axis=(1, 2)), atol=0.01)
    found = np.array([each.expected_auc for each in choice.candidates])
    np.testing.assert_allclose(found.mean(axis=(1, 2)), drawn.mean(axis=(1, 2)), atol=0.01)


def test_smc_takes_any_model():
    """The same scores, written so that they are not affine in Gaussian variables."""
    with pm.Model() as nonlinear:
        scale = pm.HalfNormal("scale")
        theta = pm.Normal("theta", size=4)
        pac.AUCPotential("auc", pm.math.tanh(0.1 * scale * (X @ theta)), y, gamma=1.0)
    with pytest.raises(ValueError, match="not linear-Gaussian"):
        pac.select_gamma(nonlinear, [5.0, 20.0])
    options = {"folds": 2, "method": "smc", "random_seed": 1, "groups": np.arange(120)}
    found = pac.select_gamma(nonlinear, [5.0, 20.0], **options)
    with pm.Model() as linear:
        theta = pm.Normal("theta", size=4)
        pac.AUCPotential("auc", X @ theta, y, gamma=1.0)
    for k in range(2):  # the same folds
        out = found.fold[0] == k
        q = fitting.fit(linear_gaussian_problem(X[~out], y[~out], 20.0)).posterior
        by_hand = 1 - pac.empirical_risk(X[out] @ q.mean, y[out])
        assert found.fold_auc[1, 0, k] == pytest.approx(by_hand, abs=0.03)
    expected = pac.select_gamma(linear, [5.0, 20.0], **options)
    np.testing.assert_allclose(found.table["log_evidence"], expected.table["log_evidence"], atol=0.5)
    assert found.refit["posterior"]["scale"].shape == (1, 1000)
