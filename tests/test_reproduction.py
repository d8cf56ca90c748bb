"""The script that reproduces the paper: its pieces on small data, and (slow) the data sets with a known split."""

import numpy as np
import pytest

from benchmarks.gamma_choice import cross_validate, gamma_grid
from benchmarks.paper_methods import kernel_features, squared_exponential
from examples.paper import digits
from examples.paper.cases import cases
from examples.paper.outcomes import run
from examples.paper.page import page


@pytest.fixture
def data():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(60, 3))
    return X, (X @ [1.0, -0.5, 0.0] + rng.normal(size=60) > 0.5).astype(int)


def test_kernel_features_reproduce_the_centred_kernel(data):
    X, _ = data
    new = np.random.default_rng(1).normal(size=(7, 3))
    features, new_features = kernel_features(X, new, 1.3)
    kernel = squared_exponential(np.vstack([X, new]), X, 1.3)
    # differences of scores between rows are what ranks; their covariances with the training scores must agree
    cross = np.vstack([features, new_features]) @ features.T
    differences = (cross - cross[0]) - (cross - cross[0]).mean(axis=1, keepdims=True)
    expected = (kernel - kernel[0]) - (kernel - kernel[0]).mean(axis=1, keepdims=True)
    np.testing.assert_allclose(differences, expected, atol=1e-5)


def test_gamma_grid_ends_where_a_wrong_pair_costs_a_nat():
    y = np.repeat([1, 0], [20, 60])
    grid = gamma_grid(y)
    assert grid[0] == pytest.approx(0.25 * 20 * 60 / 80)
    assert 20 * 60 / np.sqrt(2) < grid[-1] <= 20 * 60
    np.testing.assert_allclose(gamma_grid(y, every=2), grid[::2])


def test_cross_validation_is_worse_than_training_and_better_than_chance(data):
    X, y = data
    held_out = cross_validate(X, y, np.array([5.0, 50.0]), np.random.default_rng(0))
    assert held_out.of_mean.shape == held_out.expected.shape == (2,)
    assert (held_out.expected < held_out.of_mean).all()
    assert 0.6 < held_out.of_mean.max() < 1
    assert held_out.best("expected") == 50.0


def test_gammas_beyond_convergence_are_no_candidates(data, monkeypatch):
    X, y = data
    monkeypatch.setattr("benchmarks.gamma_choice.MOST_SWEEPS", 5)
    held_out = cross_validate(X, y, np.array([1.0, 5.0, 1000.0]), np.random.default_rng(0))
    assert 0 < held_out.gammas.size < 3


@pytest.mark.slow
def test_spect_is_within_a_hundredth_of_the_paper():
    outcome = run(cases()["spect"])
    assert outcome.auc("EP-AUC")[0] == pytest.approx(digits.AUC["spect"][0], abs=0.01)
    text = page({"spect": outcome}, "")
    assert "within 0.01 of the paper on spect: met" in text
