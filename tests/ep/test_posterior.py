"""The Gaussian posterior."""

import numpy as np

from pymc_pacauc import fitting
from pymc_pacauc.problem.problem import linear_gaussian_problem
from tests.ep.test_gaussian import spd


def test_draws_have_the_moments_of_the_posterior():
    rng = np.random.default_rng(6)
    X = rng.standard_normal((8, 12))
    fit = fitting.fit(linear_gaussian_problem(X, np.arange(8) % 2, 8.0, prior_covariance=spd(12)))
    theta = fit.posterior.draw(40_000, rng)
    error = np.sqrt(np.diagonal(fit.posterior.covariance) / len(theta))
    assert (np.abs(theta.mean(axis=0) - fit.posterior.mean) < 4 * error).all()
    np.testing.assert_allclose(np.cov(theta.T), fit.posterior.covariance, atol=0.06)
