"""EP's fit as a Gaussian to move around, and jitter."""

import numpy as np
import pytest

from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.smc.coordinates import direction_fit, positive_factor
from pymc_pacauc.smc.moves import MOVES, InChart, Situation, fit_stage
from pymc_pacauc.smc.paths import prior_path
from pymc_pacauc.smc.tempering import Settings, advance, start


def problems():
    rng = np.random.default_rng(0)
    square = rng.standard_normal((5, 5))
    tall, wide = rng.standard_normal((30, 5)), rng.standard_normal((12, 40))
    dependent = tall.copy()
    dependent[:, 4] = dependent[:, 0] - 2 * dependent[:, 1]
    line = np.outer(rng.standard_normal(20), [1.0, 2.0, 0.5])
    return {
        "more rows than columns": (tall, {"prior_covariance": square @ square.T + np.eye(5)}),
        "more columns than rows": (wide, {"prior_covariance": 0.5}),
        "many more columns": (np.column_stack([wide, rng.standard_normal((12, 40))]), {}),
        "dependent columns": (dependent, {}),
        "one direction": (line, {}),
    }


@pytest.fixture(params=problems())
def fitted(request):
    X, prior = problems()[request.param]
    y = (X[:, 0] + np.random.default_rng(1).standard_normal(len(X)) > 0).astype(int)
    path = prior_path(linear_gaussian_problem(X, y, 10.0, **prior))
    return path, fit_stage(path.problem, 10.0, None)


def test_moves_around_the_fit_of_the_coefficients_that_reach_the_scores(fitted):
    """In space, and in the chart of its mean direction; the moments are those of EP's posterior of theta."""
    path, ep = fitted
    assert path.dimension <= min(path.problem.X.shape)
    mean, covariance = path.reduced_moments(ep.posterior.mean, ep.posterior.covariance)
    weights = np.full(500, 1 / 500)
    x = path.draw(500, np.random.default_rng(2))
    space = MOVES["ep"].fit(Situation(path, x, weights, path.base, ep)).heavy
    np.testing.assert_allclose(space.mean, mean, atol=1e-8)
    np.testing.assert_allclose(space.factor @ space.factor.T, covariance, atol=1e-6)
    if path.dimension > 1:
        near = mean + 0.05 * np.linalg.norm(mean) / np.sqrt(path.dimension) * x
        chart = MOVES["ep"].fit(Situation(path, near, weights, path.base, ep))
        assert isinstance(chart, InChart)
        np.testing.assert_allclose(chart.chart.pole, mean / np.linalg.norm(mean), atol=1e-8)


def test_a_fit_in_a_chart_has_the_moments_of_its_lines():
    """Of a narrow Gaussian, where w = B'theta / e'theta is close to its linearisation."""
    rng = np.random.default_rng(3)
    root = 0.02 * rng.standard_normal((4, 4))
    mean, covariance = np.array([1.0, -2.0, 0.5, 0.3]), root @ root.T
    chart, fit = direction_fit(mean, covariance)
    w, _ = chart.to_plane(rng.multivariate_normal(mean, covariance, 20_000))
    np.testing.assert_allclose(fit.factor @ fit.factor.T, np.cov(w.T), atol=0.05 * np.trace(covariance))


def test_jitter_is_the_least_that_helps():
    factor, jitter = positive_factor(np.diag([4.0, 1.0]))
    assert jitter == 0.0
    np.testing.assert_allclose(factor, np.diag([2.0, 1.0]))
    singular = np.ones((3, 3))
    factor, jitter = positive_factor(singular)
    assert 0.0 < jitter <= 1e-10
    np.testing.assert_allclose(factor @ factor.T, singular + jitter * np.eye(3), atol=1e-14)


def test_jitter_is_in_the_record():
    """Two particles, which start from eight draws, cannot have a covariance of twelve dimensions."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((30, 12))
    problem = linear_gaussian_problem(X, X[:, 0] > 0, 5.0)
    path = prior_path(problem)
    for particles, move, repaired in ((2, "gaussian", True), (500, "gaussian", False), (2, "prior", False)):
        settings = Settings(particles=particles, move=move)
        first = start(path, settings, rng)
        second = advance(path, settings, first, rng)
        assert first.stages[-1].jitter == 0.0
        assert (second.stages[-1].jitter > 0.0) == repaired
