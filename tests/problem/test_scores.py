"""Coordinates of linear scores."""

import numpy as np
import pytest

import pymc_pacauc as pac
from pymc_pacauc.problem.problem import linear_gaussian_problem
from tests.problem.test_problem import COVARIANCES, FULL, RNG, X, Y, whitened_risk


def test_dependent_columns_among_many_rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5000, 7))
    X[:, 4] = X[:, 1] - X[:, 2]
    whole, parts = (linear_gaussian_problem(rows, rows[:, 0] > 0, 50.0).scores.reduced for rows in (X[:4000], X))
    assert whole.dimension == parts.dimension == 6
    centred = X - X.mean(axis=0)
    np.testing.assert_allclose(parts.design @ parts.rotation, centred, atol=1e-10)


@COVARIANCES
def test_whitening(covariance):
    problem = linear_gaussian_problem(
        X, Y, 10.0, prior_covariance=covariance, prior_mean=[1.0, 0.0, -1.0], offset=X[:, 0]
    )
    expected = FULL if np.ndim(covariance) == 2 else np.diag(np.broadcast_to(covariance, 3))
    np.testing.assert_allclose(problem.prior.covariance, expected, atol=1e-15)
    w = RNG.standard_normal((7, 3))
    theta = problem.prior.color(w)
    np.testing.assert_allclose(problem.prior.whiten(theta), w)
    np.testing.assert_allclose(problem.prior.whiten(theta[0]), w[0])
    np.testing.assert_allclose(problem.prior.color(w[0]), theta[0])
    scores = theta @ X.T + X[:, 0]
    whitened = w @ problem.scores.whitened_design.T + problem.scores.whitened_offset
    np.testing.assert_allclose(np.diff(whitened), np.diff(scores), atol=1e-12)  # equal but for a constant
    assert not problem.scale_free


@pytest.mark.parametrize("seed", range(5))
def test_equal_rows_tie_after_whitening_by_a_full_covariance(seed):
    """A matrix product alone does not give equal rows equal scores."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(3, 13))[[0, 1, 2, 0, 1, 2, 0]]
    y = np.array([1, 0, 1, 0, 1, 0, 0])
    root = rng.normal(size=(13, 13))
    problem = linear_gaussian_problem(rows, y, 5.0, prior_mean=rng.normal(size=13), prior_covariance=root @ root.T)
    w = rng.standard_normal((200, 13))
    values = problem.prior.color(w) @ rows[:3].T
    exact = pac.empirical_risk(values[:, [0, 1, 2, 0, 1, 2, 0]], y)
    np.testing.assert_allclose(whitened_risk(problem)(w), exact, atol=1e-12)
    np.testing.assert_allclose(problem.risk(problem.prior.color(w)), exact, atol=1e-12)
