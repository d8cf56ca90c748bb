"""Importance weights over draws from a fit, against exact sums and quadrature."""

import numpy as np
import pytest
from scipy import integrate, stats

import pymc_pacauc as pac
from pymc_pacauc import fitting
from pymc_pacauc.ep.importance import FreeLengthPosterior, _log_radial_integral, log_mean
from pymc_pacauc.ep.posterior import GaussianPosterior, natural_gaussian
from pymc_pacauc.model.compat import pareto_smooth
from pymc_pacauc.problem.problem import linear_gaussian_problem
from tests.ep.test_leave_out import data
from tests.oracles import exact_line, exact_plane, line_data, plane_data


class TestImportance:
    @pytest.mark.parametrize("power", [0, 1, 6, 100])
    def test_radial_integral(self, power):
        for slope in (-30.0, -3.0, 0.0, 2.0, 40.0):
            mode = 0.5 * (slope + np.sqrt(slope**2 + 4 * max(power, 1)))
            top = power * np.log(mode) - 0.5 * mode**2 + slope * mode

            def integrand(t, slope=slope, top=top):
                return (
                    np.exp(power * np.log(t) - 0.5 * t * t + slope * t - top)
                    if t > 0
                    else float(power == 0) / np.exp(top)
                )

            total = (
                integrate.quad(integrand, 0, mode, limit=500)[0]
                + integrate.quad(integrand, mode, mode + 30, limit=500)[0]
            )
            assert _log_radial_integral(np.array([slope]), power)[0] == pytest.approx(top + np.log(total), abs=1e-7)

    @pytest.mark.parametrize("gamma", [40.0, 300.0, 600.0])
    def test_exact_evidence_in_the_plane(self, gamma):
        X, y = plane_data(300)
        fit = fitting.fit(linear_gaussian_problem(X, y, gamma, prior_covariance=2.0))
        draws = fit.importance(4000, np.random.default_rng(1))
        log_weights, k = pareto_smooth(draws.log_weights)
        estimate, error = log_mean(log_weights)
        exact = exact_plane(X, y, gamma)
        assert k < 0.5
        assert error < 0.01
        assert abs(estimate - exact.log_evidence) < 3 * error
        weights = np.exp(log_weights - np.logaddexp.reduce(log_weights))
        mean = weights @ draws.theta / np.sqrt(2.0)
        spread = np.sqrt(np.sum(weights[:, None] ** 2 * (draws.theta / np.sqrt(2.0) - mean) ** 2, axis=0))
        assert (np.abs(mean - exact.mean) < 4 * spread).all()

    def test_exact_evidence_with_an_offset(self):
        x, offset, y = line_data()
        fit = fitting.fit(
            linear_gaussian_problem(x[:, None], y, 100.0, offset=offset, prior_mean=0.3, prior_covariance=0.8)
        )
        draws = fit.importance(20_000, np.random.default_rng(2))
        estimate, error = log_mean(draws.log_weights)
        exact = exact_line(x, y, 100.0, offset=offset, prior_mean=0.3, prior_sd=np.sqrt(0.8))
        assert abs(estimate - exact.log_evidence) < 3 * error < 0.1

    def test_more_coefficients_than_observations(self):
        """Only the directions that reach the scores are weighted: 40 coefficients are no harder than 10."""
        X, y = data(n=10, d=40)
        fit = fitting.fit(linear_gaussian_problem(X, y, 10.0))
        log_weights, k = pareto_smooth(fit.importance(4000, np.random.default_rng(3)).log_weights)
        estimate, error = log_mean(log_weights)
        assert k < 0.7
        prior_draws = np.random.default_rng(4).standard_normal((200_000, 40))
        plain, plain_error = log_mean(-10.0 * pac.arrays.linear_risk(prior_draws, X, y))
        assert abs(estimate - plain) < 3 * np.hypot(error, plain_error)

    def test_constant_weights(self):
        smoothed, k = pareto_smooth(np.full(100, -3.0))
        assert k == -np.inf
        assert log_mean(smoothed) == (pytest.approx(-3.0), pytest.approx(0.0))


def test_the_length_is_kept_however_certain_the_direction_is():
    """With many rows the direction of the mean has a precision that is nothing beside the others', and counts."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((60, 4))
    problem = linear_gaussian_problem(X, X[:, 0] > 0.0, gamma=60.0)
    natural = natural_gaussian(np.diag([2.5, 1e7, 1e7, 1e7]), np.array([2.5 * 2.0, 0.0, 0.0, 0.0]))
    posterior = FreeLengthPosterior(GaussianPosterior(problem.scores, natural), problem)
    theta = posterior.draw(4000, np.random.default_rng(2))
    length = stats.chi(4)
    for mean, sd in ((posterior.mean, np.sqrt(np.diag(posterior.covariance))), (theta.mean(axis=0), theta.std(axis=0))):
        np.testing.assert_allclose(mean, [length.mean(), 0.0, 0.0, 0.0], atol=5 * length.std() / np.sqrt(4000))
        assert sd[0] == pytest.approx(length.std(), rel=0.05)
        assert max(sd[1:]) < 0.01
