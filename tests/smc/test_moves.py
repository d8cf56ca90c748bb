"""EP's natural parameters as a Gaussian to move around, against the same by way of dense covariances."""

import numpy as np
import pytest

from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.smc import Settings, advance, prior_path, start
from pymc_pacauc.smc.coordinates import direction_fit, positive_factor
from pymc_pacauc.smc.moves import chart_fit, fit_stage, space_fit


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
    ep = fit_stage(path.problem, 10.0, None)
    return ep, path.whitened_moments(ep.posterior.mean, ep.posterior.covariance)


def test_in_space(fitted):
    ep, (mean, covariance) = fitted
    fit = space_fit(ep)
    w = np.random.default_rng(2).standard_normal((10, mean.size))
    z = fit.standardise(w)
    np.testing.assert_allclose(
        (z**2).sum(axis=1), ((w - mean) @ np.linalg.inv(covariance) * (w - mean)).sum(axis=1), rtol=1e-6
    )
    assert fit.log_scale == pytest.approx(0.5 * np.linalg.slogdet(covariance)[1], abs=1e-6)


def test_in_the_chart(fitted):
    ep, moments = fitted
    (chart, fit), (dense_chart, dense) = chart_fit(ep), direction_fit(*moments)
    np.testing.assert_allclose(chart.pole, dense_chart.pole, atol=1e-8)
    w = np.random.default_rng(3).standard_normal((10, chart.d - 1))
    np.testing.assert_allclose(
        (fit.standardise(w) ** 2).sum(axis=1), (dense.standardise(w) ** 2).sum(axis=1), rtol=1e-6
    )
    assert fit.log_scale == pytest.approx(dense.log_scale, abs=1e-6)


def test_jitter_is_the_least_that_helps():
    factor, jitter = positive_factor(np.diag([4.0, 1.0]))
    assert jitter == 0.0
    np.testing.assert_allclose(factor, np.diag([2.0, 1.0]))
    singular = np.ones((3, 3))
    factor, jitter = positive_factor(singular)
    assert 0.0 < jitter <= 1e-10
    np.testing.assert_allclose(factor @ factor.T, singular + jitter * np.eye(3), atol=1e-14)


def test_jitter_is_in_the_record():
    """Two particles, which start from eight draws, cannot have a covariance of eight dimensions."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((30, 8))
    problem = linear_gaussian_problem(X, X[:, 0] > 0, 5.0)
    path = prior_path(problem)
    for particles, move, repaired in ((2, "gaussian", True), (500, "gaussian", False), (2, "prior", False)):
        settings = Settings(particles=particles, move=move)
        first = start(path, settings, rng)
        second = advance(path, settings, first, rng)
        assert first.stages[-1].jitter == 0.0
        assert (second.stages[-1].jitter > 0.0) == repaired
