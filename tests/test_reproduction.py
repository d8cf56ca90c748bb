"""The script that reproduces the paper: its pieces on small data, and (slow) the data sets with a known split."""

import sys
from pathlib import Path

import numpy as np
import pytest

from pymc_pacauc import empirical_risk, load_spect

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
reproduce_paper = pytest.importorskip("reproduce_paper", exc_type=ImportError)  # needs matplotlib


@pytest.fixture
def data():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(60, 3))
    return X, (X @ [1.0, -0.5, 0.0] + rng.normal(size=60) > 0.5).astype(int)


def test_kernel_features_reproduce_the_centred_kernel(data):
    X, _ = data
    new = np.random.default_rng(1).normal(size=(7, 3))
    features, new_features = reproduce_paper.kernel_features(X, new, 1.3)
    kernel = reproduce_paper.squared_exponential(np.vstack([X, new]), X, 1.3)
    # differences of scores between rows are what ranks; their covariances with the training scores must agree
    cross = np.vstack([features, new_features]) @ features.T
    differences = (cross - cross[0]) - (cross - cross[0]).mean(axis=1, keepdims=True)
    expected = (kernel - kernel[0]) - (kernel - kernel[0]).mean(axis=1, keepdims=True)
    np.testing.assert_allclose(differences, expected, atol=1e-5)


def test_expected_auc_is_that_of_draws(data):
    X, y = data
    posterior = reproduce_paper.fit(X, y, 30.0).posterior
    draws = posterior.draw(20_000, np.random.default_rng(0))
    assert reproduce_paper.expected_auc(posterior, X, y) == pytest.approx(
        1 - empirical_risk(draws @ X.T, y).mean(), abs=5e-3
    )


def test_cross_validation_is_worse_than_training_and_better_than_chance(data):
    X, y = data
    of_mean, expected = reproduce_paper.cross_validate(X, y, np.array([5.0, 50.0]), np.random.default_rng(0))
    assert of_mean.shape == expected.shape == (2,)
    assert (expected < of_mean).all()
    assert 0.6 < of_mean.max() < 1


@pytest.mark.slow
def test_spect_is_within_a_hundredth_of_the_paper():
    case = reproduce_paper.Case(load_spect(), 1, 80, "")
    outcome = reproduce_paper.run(case)
    assert outcome.auc("EP-AUC")[0] == pytest.approx(reproduce_paper.PAPER_AUC["spect"][0], abs=0.01)
