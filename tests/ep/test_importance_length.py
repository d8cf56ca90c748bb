"""The exact length of scale-free posteriors, against finite sums over the angle and against tempering SMC."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from pymc_pacauc import datasets
from pymc_pacauc.ep import spike_models
from pymc_pacauc.ep.importance import FreeLengthPosterior, free_length_moments, log_mean
from pymc_pacauc.ep.posterior import natural_gaussian
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem.problem import Tabulated, linear_gaussian_problem, spike_slab_problem, tabulate
from pymc_pacauc.smc.paths import prior_path
from pymc_pacauc.smc.tempering import Settings, run_tempering
from tests.oracles import exact_plane, plane_data


def random_gaussian(k, seed=1):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(k, k))
    covariance = 0.3 * root @ root.T / k + 0.1 * np.eye(k)
    mean = rng.normal(size=k)
    return natural_gaussian(np.linalg.inv(covariance), np.linalg.solve(covariance, mean)), mean, covariance


def test_moments_of_the_projected_gaussian_against_draws():
    q, mean, covariance = random_gaussian(5)
    rng = np.random.default_rng(2)
    u = rng.multivariate_normal(mean, covariance, size=400_000)
    draws = u / np.linalg.norm(u, axis=1, keepdims=True) * stats.chi(5).rvs((len(u), 1), random_state=rng)
    found, spread = free_length_moments(q)
    np.testing.assert_allclose(found, draws.mean(axis=0), atol=4 * draws.std(axis=0).max() / np.sqrt(len(u)))
    np.testing.assert_allclose(spread, np.cov(draws.T), atol=0.02)


@pytest.mark.parametrize("gamma", [1.0, 20.0, 60.0])
def test_two_coefficients_against_the_angles_finite_sums(gamma):
    X, y = plane_data()
    exact = exact_plane(X, y, gamma)
    low, high = exact.edges[:-1], exact.edges[1:]
    half = np.array([np.sin(2 * high) - np.sin(2 * low), np.cos(2 * low) - np.cos(2 * high)]) / (high - low) / 4
    mean, mass = exact.mean, exact.mass
    cos2, cos_sin = 0.5 + half[0] @ mass, half[1] @ mass
    covariance = 2.0 * np.array([[cos2, cos_sin], [cos_sin, 1.0 - cos2]]) - np.outer(mean, mean)
    posterior = fit(linear_gaussian_problem(X, y, gamma)).corrected
    sd = np.sqrt(np.diagonal(covariance))
    assert posterior.monte_carlo_error < 0.01
    assert np.abs((posterior.mean - mean) / sd).max() < 0.02
    np.testing.assert_allclose(posterior.covariance / np.outer(sd, sd), covariance / np.outer(sd, sd), atol=0.04)
    draws = posterior.draw(20_000, np.random.default_rng(3))
    assert np.abs((draws.mean(axis=0) - mean) / sd).max() < 0.02 + 4.0 / np.sqrt(len(draws))
    assert stats.kstest(np.linalg.norm(draws, axis=1), stats.chi(2).cdf).pvalue > 1e-3
    estimate, error = log_mean(posterior.log_weights)
    assert abs(estimate - exact.log_evidence) < 4 * error + 1e-3


def test_where_scores_have_an_offset_the_gaussian_is_used_as_it_is():
    X, y = plane_data()
    for options in ({"offset": X[:, 0]}, {"offset": X[:, 0], "prior_mean": [0.5, 0.0]}):
        found = fit(linear_gaussian_problem(X, y, 60.0, **options))
        assert found.corrected is found.posterior


def test_directions_that_reach_no_score_keep_their_prior():
    X, y = plane_data()
    widened = np.column_stack([X, np.ones(len(X)), X[:, 0] + X[:, 1]])  # an intercept, and a dependent column
    found = fit(linear_gaussian_problem(widened, y, 60.0)).corrected
    assert isinstance(found, FreeLengthPosterior)
    assert found.natural.mean.size == 2
    assert abs(found.variance[2] - 1.0) < 1e-8
    draws = found.draw(20_000, np.random.default_rng(4))
    np.testing.assert_allclose(draws.std(axis=0), np.sqrt(found.variance), rtol=0.05)


def test_the_deployed_mean_is_the_certified_one():
    X, y = plane_data()
    found = fit(linear_gaussian_problem(X, y, 60.0))
    np.testing.assert_array_equal(found.corrected.score_mean, found.posterior.mean)


def tempered_moments(problem, particles, runs):
    moments = []
    for seed in range(runs):
        rng, path = np.random.default_rng(seed), prior_path(problem)
        theta, _ = path.finish(run_tempering(path, Settings(particles=particles), rng).population, rng)
        moments.append((theta.mean(axis=0), theta.std(axis=0)))
    return np.mean(moments, axis=0)


def check_against_tempering(name, share, particles, runs):
    data = getattr(datasets, f"load_{name}")().standardized()
    problem = linear_gaussian_problem(data.X, data.y, share * data.n)
    mean, sd = tempered_moments(problem, particles, runs)
    posterior = fit(problem).corrected
    assert np.abs((posterior.mean - mean) / sd).max() < 0.04
    assert np.abs(np.sqrt(posterior.variance) / sd - 1.0).max() < 0.04


@pytest.mark.slow
@pytest.mark.parametrize("share", [1.0 / 3.0, 1.0])
@pytest.mark.parametrize("name", ["pima", "spect", "credit"])
def test_shipped_data_against_long_tempering(name, share):
    check_against_tempering(name, share, 20_000, 4)


def from_the_prior(problem, theta):
    """Posterior mean and standard deviation by prior draws, weighted, and their error in standard deviations."""
    log_weights = -problem.gamma * problem.risk(theta)
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    mean = weights @ theta
    return mean, np.sqrt(weights @ (theta - mean) ** 2), np.sqrt(np.sum(weights**2))


@pytest.mark.parametrize("centre", [1.0, [1.5, 0.0, -0.5]])
def test_a_prior_that_is_not_centred(centre):
    """Its length has a law too, given the direction: q alone has spreads of 0.83 of the exact ones here."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 3))
    y = X @ [1.0, -0.5, 0.2] + rng.logistic(size=60) > 0
    problem = linear_gaussian_problem(X, y, 40.0, prior_mean=centre, prior_covariance=0.49)
    found = fit(problem)
    theta = problem.prior.mean + 0.7 * rng.normal(size=(100_000, 3))
    mean, sd, error = from_the_prior(problem, theta)
    posterior = found.corrected
    assert np.sqrt(found.posterior.variance / sd**2).min() < 0.93
    assert np.abs((posterior.mean - mean) / sd).max() < 0.02 + 4 * error
    np.testing.assert_allclose(np.sqrt(posterior.variance), sd, rtol=0.02 + 4 * error)
    drawn = posterior.draw(10_000, rng)
    assert np.abs((drawn.mean(axis=0) - mean) / sd).max() < 0.02 + 4 * error + 4 / np.sqrt(10_000)
    np.testing.assert_allclose(drawn.std(axis=0), sd, rtol=0.02 + 4 * error + 4 / np.sqrt(10_000))
    np.testing.assert_array_equal(posterior.score_mean, found.posterior.mean)
    log_evidence, log_error = log_mean(posterior.log_weights)
    exact = log_mean(-40.0 * problem.risk(theta))
    assert log_evidence == pytest.approx(exact[0], abs=4 * np.hypot(log_error, exact[1]))


def test_evidence_under_a_laplace_prior_of_columns_that_are_correlated():
    """Coefficients are then correlated too, which the density of the proposal must know."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(80, 1)) + 0.3 * rng.normal(size=(80, 2))
    y = X @ [1.0, 0.5] + 0.5 * rng.logistic(size=80) > 0
    table = tabulate(lambda x: -np.abs(x) - np.log(2.0), centres=[0.0])
    sites = Tabulated((table,), which=np.zeros(2, dtype=int), scale=np.full(2, table.spread))
    problem = replace(linear_gaussian_problem(X, y, 80.0, prior_covariance=table.spread**2), sites=sites)
    found = fit(problem)
    assert abs(np.corrcoef(found.posterior.draw(2000, rng).T)[0, 1]) > 0.5
    log_evidence, error = log_mean(found.corrected.log_weights)
    exact = log_mean(-80.0 * problem.risk(rng.laplace(size=(200_000, 2))))
    assert log_evidence == pytest.approx(exact[0], abs=4 * np.hypot(error, exact[1]))


@pytest.mark.parametrize("listed", [True, False])
def test_dirac_spikes(listed, monkeypatch):
    """Given the model the length is chi-distributed; where models can be listed they are weighted too."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(60, 4))
    y = X @ [1.0, -0.5, 0.0, 0.0] + rng.logistic(size=60) > 0
    problem = spike_slab_problem(X, y, 40.0, inclusion_probability=0.5, v0=0.0)
    included = rng.random((200_000, 4)) < 0.5
    mean, sd, error = from_the_prior(problem, included * rng.normal(size=included.shape))
    if not listed:
        monkeypatch.setattr(spike_models, "MOST_SPARSE", 1)
    posterior = fit(problem).corrected
    off, ratio = (0.02, 0.02) if listed else (0.12, 0.12)  # EP's own error
    assert np.abs((posterior.mean - mean) / sd).max() < off + 4 * error + 4 * posterior.monte_carlo_error
    np.testing.assert_allclose(np.sqrt(posterior.variance), sd, rtol=ratio + 4 * error + 0.04)
    drawn = posterior.draw(10_000, rng)
    assert (drawn == 0.0).any(axis=0).all()
    np.testing.assert_allclose(drawn.std(axis=0), np.sqrt(posterior.variance), rtol=0.08)
    assert (posterior.log_weights is not None) == listed


@pytest.mark.parametrize("spread", [0.1, 0.2])
def test_directions_that_are_hardly_told_of_count_together(spread):
    """The evidence of groups that hardly differ, each direction of which tells next to nothing, against plain draws."""
    rng = np.random.default_rng(3)
    group = np.repeat(np.arange(10), 12)
    X = rng.normal(size=(120, 2))
    y = X @ [1.0, 0.5] + rng.logistic(size=120) > 0.3
    own = (X[:, None] * np.eye(10)[group][:, :, None]).reshape(120, 20)
    problem = linear_gaussian_problem(np.hstack([X, spread * own]), y, gamma=30.0)
    estimate, error = log_mean(fit(problem).importance(4000, rng).log_weights)
    plain, plain_error = log_mean(-30.0 * problem.risk(rng.standard_normal((40_000, 22))))
    assert error < 0.05
    assert abs(estimate - plain) < 4.0 * np.hypot(error, plain_error)
