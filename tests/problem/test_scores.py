"""Coordinates of linear scores."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import pymc_pacauc as pac
from pymc_pacauc.ep.fit import fit
from pymc_pacauc.ep.plan import choose_plan
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


def rough_process(n, seed=1):
    """Scores of a process of n rows of six covariates, with nearly as many directions; labels from a curved score."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, 6))
    kernel = np.exp(-0.5 * cdist(rows, rows, "sqeuclidean") / 3.0) + 1e-6 * np.eye(n)
    y = rows[:, 0] + rows[:, 1] ** 2 + rng.logistic(size=n) > 1.0
    return linear_gaussian_problem(np.linalg.cholesky(kernel), y, float(n))


@pytest.mark.parametrize("n", [300, 600])
def test_features_leave_little_variance_out(n):
    """A ten-thousandth of the smallest, and a hundredth where more than 500 features would be needed for that."""
    scores = rough_process(n).scores
    features = scores.in_coordinates("features").reduced
    variance = (scores.whitened_design**2).sum(axis=1)
    left = (variance - (features.design**2).sum(axis=1)) / variance.min()
    assert left.max() <= (1e-4 if n == 300 else 1e-2)
    if n == 600:
        assert left.max() > 1e-3  # no finer than it says
        assert features.dimension < 500
    np.testing.assert_allclose(features.design @ features.rotation, scores.whitened_design, atol=left.max() ** 0.5)


def test_a_process_of_many_features_ranks_as_in_all_directions():
    problem = rough_process(600)
    few, whole = (fit(problem, replace(choose_plan(problem), coordinates=c)) for c in ("features", "coefficients"))
    means = [problem.X @ each.posterior.mean for each in (few, whole)]
    spread = np.sqrt(np.einsum("ij,jk,ik->i", problem.X, whole.posterior.covariance, problem.X))
    assert np.sqrt(np.mean(((means[0] - means[1]) / spread) ** 2)) < 0.05
    assert abs(few.log_evidence - whole.log_evidence) < 0.001 * problem.n
    risks = [pac.empirical_risk(each, problem.pairs.higher) for each in means]
    assert abs(risks[0] - risks[1]) < 0.002
