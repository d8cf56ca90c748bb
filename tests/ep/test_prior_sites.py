"""Priors of single coefficients by their densities: tables, sites, fits against quadrature, and what is refused."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from scipy import integrate, special, stats

import pymc_pacauc as pac
from pymc_pacauc import fitting
from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.comparison.risk import LinearRisk
from pymc_pacauc.ep import prior_sites
from pymc_pacauc.ep.loop import UnsupportedError
from pymc_pacauc.ep.prior_sites import _others, _pass, components, matched_sites, settle, sparse_gaussian
from pymc_pacauc.ep.spike_slab import with_finer_tables
from pymc_pacauc.model.auc_term import NotLinearGaussianError
from pymc_pacauc.model.read import problem_of
from pymc_pacauc.problem.problem import Tabulated, linear_gaussian_problem, spike_slab_problem, tabulate
from tests.oracles import plane_data, sparse_data

DENSITIES = {
    "Laplace": stats.laplace(0.3, 0.7),
    "Student-t": stats.t(3.0),
    "Cauchy": stats.cauchy(),
    "half-normal": stats.halfnorm(scale=2.0),
    "exponential": stats.expon(),
    "uniform": stats.uniform(-1.0, 3.0),
    "truncated": stats.truncnorm(-0.5, 2.0, loc=0.5),
}


@pytest.mark.parametrize("name", DENSITIES)
def test_a_site_matches_moments_by_quadrature(name):
    prior = DENSITIES[name]
    table = tabulate(prior.logpdf, [prior.median()])
    sites = Tabulated((table,), np.zeros(1, dtype=np.intp), np.ones(1))
    low, high = (float(np.clip(end, -60.0, 60.0)) for end in prior.support())
    for tau, nu in ((0.5, 0.4), (4.0, 6.0), (30.0, -25.0)):

        def moment(k, tau=tau, nu=nu):
            def tilted(w):
                return w**k * prior.pdf(w) * np.exp(-0.5 * tau * w**2 + nu * w)

            points = sorted({float(np.clip(x, low, high)) for x in (prior.median(), nu / tau)})
            return integrate.quad(tilted, low, high, points=points, epsabs=0.0, epsrel=1e-10, limit=500)[0]

        z, first, second = (moment(k) for k in range(3))
        site = matched_sites(np.array([tau]), np.array([nu]), sites)
        precision = tau + site.precision[0]
        mean = (nu + site.shift[0]) / precision
        assert mean == pytest.approx(first / z, rel=1e-5, abs=1e-6)
        assert 1.0 / precision == pytest.approx(second / z - (first / z) ** 2, rel=1e-4)
        log_z = site.log_constant[0] + 0.5 * mean**2 * precision - 0.5 * np.log(precision)
        assert log_z == pytest.approx(np.log(z), abs=1e-5)


def test_a_density_that_does_not_integrate_to_one_is_refused():
    with pytest.raises(ValueError, match=r"integrates to 2\b"):
        tabulate(lambda x: stats.norm.logpdf(x) + np.log(2.0), [0.0])


PRIORS = {
    "Laplace": (lambda: pm.Laplace("theta", 0.0, 1.0, shape=2), stats.laplace()),
    "Student-t": (lambda: pm.StudentT("theta", nu=4.0, mu=0.0, sigma=1.0, shape=2), stats.t(4.0)),
    "half-normal": (lambda: pm.HalfNormal("theta", 1.0, shape=2), stats.halfnorm()),
    "exponential": (lambda: pm.Exponential("theta", 1.0, shape=2), stats.expon()),
    "uniform": (lambda: pm.Uniform("theta", -1.0, 1.0, shape=2), stats.uniform(-1.0, 2.0)),
    "truncated": (
        lambda: pm.TruncatedNormal("theta", mu=0.5, sigma=1.0, lower=0.0, upper=3.0, shape=2),
        stats.truncnorm(-0.5, 2.5, loc=0.5),
    ),
}


def exact_moments(X, y, gamma, log_prior):
    """log Z, mean and sd of two coefficients under independent priors, by a sum over angles and lengths."""
    angle = (np.arange(1440) + 0.5) * (2 * np.pi / 1440)
    log_length = np.arange(-9.0, 5.0, 0.02)
    e = np.column_stack([np.cos(angle), np.sin(angle)])
    theta = e[:, None, :] * np.exp(log_length)[None, :, None]
    risk = LinearRisk(X, bipartite(y))(e)
    with np.errstate(divide="ignore"):
        log_mass = log_prior(theta).sum(axis=2) + 2.0 * log_length - gamma * risk[:, None]
    log_mass = log_mass + np.log(0.02 * 2 * np.pi / 1440)
    top = log_mass.max()
    mass = np.exp(log_mass - top)
    total = mass.sum()
    mean = np.einsum("ij,ijk->k", mass, theta) / total
    second = np.einsum("ij,ijk->k", mass, theta**2) / total
    return top + np.log(total), mean, np.sqrt(second - mean**2)


@pytest.mark.parametrize("name", PRIORS)
def test_two_coefficients_against_quadrature(name):
    write, density = PRIORS[name]
    X, y = plane_data(slope=(1.0, 0.6))
    with pm.Model() as model:
        pac.AUCPotential("auc", X @ write(), y, gamma=30.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    log_z, mean, sd = exact_moments(X, y, 30.0, density.logpdf)
    assert approx.converged
    assert np.abs((approx.posterior.mean - mean) / sd).max() < 0.1
    assert np.abs(np.sqrt(approx.posterior.variance) / sd - 1.0).max() < 0.1
    assert approx.evidence.estimate == pytest.approx(log_z, abs=4 * approx.evidence.standard_error + 0.01)
    draws = approx.sample(2000, random_seed=1)["posterior"]["theta"].values[0]
    assert np.abs((draws.mean(axis=0) - mean) / sd).max() < 0.15
    low, high = density.support()
    assert draws.min() >= low
    assert draws.max() <= high
    assert np.isfinite(model.compile_logp()(model.initial_point()))


@pytest.fixture(scope="module")
def mixed():
    """Some Gaussian, some not, one with a sign."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(80, 4))
    y = (X @ [1.0, 0.5, -0.5, 0.0] + rng.logistic(size=80) > 0).astype(int)
    with pm.Model() as model:
        rows = pm.Data("X", X)
        a, b, c = pm.Laplace("a", 0.0, [1.0, 0.5]), pm.HalfNormal("b", 1.0), pm.Normal("c", 0.0, 2.0)
        pac.AUCPotential("auc", rows[:, :2] @ a - rows[:, 2] * b + rows[:, 3] * c, y, gamma=40.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    return X, y, model, approx


def test_what_follows_a_fit_of_mixed_priors(mixed):
    X, _, _, approx = mixed
    assert approx.converged
    assert [table.nodes.size > 100 for table in approx.fit.problem.sites.tables] == [True] * 3
    scores = pac.predict_scores(approx, X[:5], summary=True)
    expected = X[:5] * [1.0, 1.0, -1.0, 1.0] @ approx.q.mean
    np.testing.assert_allclose(scores["mean"], expected)
    held_out = approx.leave_out(np.arange(80) % 4)
    assert 0.5 < held_out.auc < 1.0
    idata = approx.sample(300, random_seed=1)
    assert (idata["posterior"]["b"].values > 0.0).all()
    np.testing.assert_allclose(pac.predict_scores(idata, X[:5], summary=True)["mean"], expected)
    table = pac.summary(approx)
    assert list(table.index) == ["a[0]", "a[1]", "b", "c"]
    drawn = approx.sample(20, random_seed=1, return_inferencedata=False)
    assert (drawn["b"] > 0.0).all()
    weighted = approx.importance_sample(500, random_seed=1)
    assert weighted.pareto_k < 0.7
    assert weighted.log_evidence == pytest.approx(approx.evidence.estimate, abs=0.1)


def test_what_is_refused_says_so(mixed):
    X, y, model, approx = mixed
    with pytest.raises(ValueError, match="some coefficients a sign or a range"):
        pac.certificate(approx)
    with pytest.raises(UnsupportedError, match="evidence_gradient"):
        approx.evidence_gradient()
    with model, pytest.raises(UnsupportedError, match="Variational Bayes is for Gaussian priors"):
        pm.fit(method=pac.GaussianVB(), progressbar=False)
    with model, pytest.raises(UnsupportedError, match="Fractional EP is for Gaussian priors"):
        pm.fit(method=pac.EP(power=0.5), progressbar=False)
    with model, pytest.raises(TypeError, match=r"transformed.*leave start out"):
        pac.TemperingSMC(start=approx)
    with pytest.raises(ValueError, match=r"coefficients b are functions: use approx\.posterior\.mean"):
        approx.mean.eval()
    with pm.Model() as correlated:
        a, b = pm.Laplace("a", 0.0, 1.0, size=2), pm.MvNormal("b", np.zeros(2), np.array([[1.0, 0.5], [0.5, 1.0]]))
        pac.AUCPotential("auc", X @ pm.math.concatenate([a, b]), y, gamma=40.0)
    with pytest.raises(NotLinearGaussianError, match="are not independent"):
        problem_of(correlated)


def test_scores_with_an_offset_use_the_marginals_as_they_are():
    X, y = plane_data()
    with pm.Model():
        pac.AUCPotential("auc", X[:, 0] + X @ pm.Laplace("theta", 0.0, 1.0, size=2), y, gamma=30.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    assert approx.posterior is approx.fit.posterior
    with pytest.raises(UnsupportedError, match="scores without an offset"):
        approx.importance_sample(200)


def test_the_certificate_of_a_laplace_prior_has_its_divergence():
    X, y = plane_data()
    with pm.Model():
        pac.AUCPotential("auc", X @ pm.Laplace("theta", 0.0, 1.0, size=2), y, gamma=30.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    q = stats.multivariate_normal(approx.q.mean, approx.q.covariance)
    theta = q.rvs(200_000, random_state=1)
    log_ratio = q.logpdf(theta) - stats.laplace.logpdf(theta).sum(axis=1)
    certified = pac.certificate(approx)
    assert certified.divergence == pytest.approx(log_ratio.mean(), abs=4 * log_ratio.std() / np.sqrt(len(theta)))
    assert 0.0 <= certified.mean_score_auc < certified.auc < 1.0
    assert pac.certificate(approx.sample(50, random_seed=1)).auc == pytest.approx(certified.auc)


@pytest.mark.parametrize("offset", [False, True])
def test_a_tabulated_gaussian_is_the_gaussian(offset):
    """A mixture of three that are the same is tabulated: its fit is that of the Gaussian."""
    X, y = plane_data()
    found, one = {}, np.ones(3)
    priors = {
        "t": lambda: pm.NormalMixture("b", w=one / 3.0, mu=0.0 * one, sigma=one, shape=2),
        "z": lambda: pm.Normal("b", shape=2),
    }
    for name, prior in priors.items():
        with pm.Model():
            scores = X @ prior() - 2.0 * X[:, 0] if offset else X @ prior()
            pac.AUCPotential("auc", scores, y, gamma=30.0)
            found[name] = pm.fit(method=pac.EP(), progressbar=False)
    for each in found.values():
        assert each.converged
    assert found["t"].log_evidence == pytest.approx(found["z"].log_evidence, abs=2e-3)
    sd = np.sqrt(np.diagonal(found["z"].q.covariance))
    assert np.abs((found["t"].q.mean - found["z"].q.mean) / sd).max() < 2e-3
    np.testing.assert_allclose(np.sqrt(np.diagonal(found["t"].q.covariance)) / sd, 1.0, atol=2e-3)


def test_narrow_marginals_get_finer_tables():
    prior = stats.laplace()
    sites = Tabulated((tabulate(prior.logpdf, [0.0]),), np.zeros(1, dtype=np.intp), np.ones(1))
    rows, y = np.linspace(-1.0, 1.0, 30)[:, None], np.arange(30) > 14
    problem = replace(linear_gaussian_problem(rows, y, 10.0), sites=sites)
    q = sparse_gaussian(np.array([[1e6]]), np.array([5e6]), np.zeros(1), np.zeros(1), None)
    finer = with_finer_tables(problem, q)
    nodes = finer.sites.tables[0].nodes
    assert np.diff(nodes)[np.searchsorted(nodes, 5.0)] < 1e-3
    site = matched_sites(np.array([1e6]), np.array([5e6]), finer.sites)
    mean = (5e6 + site.shift[0]) / (1e6 + site.precision[0])
    assert mean == pytest.approx(5.0 - 1e-6, abs=1e-7)  # the prior's slope there, by the variance
    assert with_finer_tables(finer, q) is None


def test_a_horseshoe_is_its_marginal_density():
    """exp(z) E1(z) / (tau (2 pi^3)^(1/2)), z = theta^2 / (2 tau^2); local scales are drawn given the coefficients."""
    X, y = plane_data()
    tau = 0.5
    with pm.Model():
        scale = pm.HalfCauchy("scale", 1.0, shape=2)
        theta = pm.Normal("theta", 0.0, tau * scale)
        pac.AUCPotential("auc", X @ theta, y, gamma=30.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    assert approx.converged
    [table] = approx.fit.problem.sites.tables
    x = np.array([-3.0, -0.2, 0.01, 0.7, 10.0])
    z = x**2 / (2.0 * tau**2)
    exact = np.log(special.exp1(z)) + z - np.log(tau * np.sqrt(2.0 * np.pi**3))
    np.testing.assert_allclose(table.log_density(x), exact, atol=1e-3)
    drawn = approx.sample(300, random_seed=1)["posterior"]
    assert (drawn["scale"].values > 0.0).all()
    large = np.abs(drawn["theta"].values) > 2.0
    assert np.median(drawn["scale"].values[large]) > 2 * np.median(drawn["scale"].values[~large])
    with pm.Model() as used_twice:
        scale = pm.HalfCauchy("scale", 1.0, shape=2)
        pac.AUCPotential("auc", X @ (pm.Normal("theta", 0.0, scale) + scale), y, gamma=30.0)
    with pytest.raises(NotLinearGaussianError):
        problem_of(used_twice)


def test_a_prior_without_a_density_is_refused_and_left_to_smc():
    X, y = plane_data()
    with pm.Model() as model:
        theta = pm.CustomDist("theta", dist=lambda size: pm.math.maximum(pm.Normal.dist(size=size), 0.0), shape=2)
        pac.AUCPotential("auc", X @ theta, y, gamma=30.0)
    with pytest.raises(NotLinearGaussianError, match="theta"):
        problem_of(model)


@pytest.mark.parametrize("damping", [1.0, 0.5])
def test_changes_of_sites_are_in_units_of_q_and_without_damping(damping):
    """One coefficient, whose cavity is the rest of q: changes of its precision and of its shift, of N(0, 1 / 2.7)."""
    prior = spike_slab_problem([[0.0], [1.0]], [0, 1], 1.0, inclusion_probability=0.4, v0=0.01).sites
    tau = np.empty(1)
    u, h, precision, shift = np.array([0.7]), np.array([0.2]), np.array([[2.0]]), np.array([1.5])
    H, c = _others(precision, shift, u, h, None)
    before = u[0], h[0]
    found = _pass(H, c, shift, np.eye(1), u, h, tau, components(prior), np.arange(1), damping, 0.0)
    by_precision, by_shift = ((after[0] - old) / damping for after, old in zip((u, h), before, strict=True))
    assert tau == pytest.approx(2.0)
    assert found[0] == pytest.approx(0.5 * (by_precision / 2.7) ** 2 + by_shift**2 / 2.7)
    assert abs(by_shift) > 0.1
    precision, target = 2.7 + by_precision, 0.2 + by_shift  # of the site times its cavity, N(1.5 / 2, 1 / 2)
    mean, target_precision = (1.5 + target) / precision, precision - 2.0
    excess = target_precision * (1.0 / precision + mean**2) - target * mean - 1.0
    assert found[2] == pytest.approx(0.5 * excess / (1e-3 + min(1.0, 1.0 / precision + mean**2)))


def test_passes_over_the_prior_sites_are_bounded(monkeypatch):
    X, y, _ = sparse_data(60, 5)
    problem = spike_slab_problem(X, y, 60.0, inclusion_probability=0.2, v0=0.01)
    made = []

    def counted(*arguments):
        found = settle(*arguments)
        made.append(found)
        return found

    monkeypatch.setattr(prior_sites, "settle", counted)
    assert fitting.fit(problem).converged
    assert len(made) > 5
    made.clear()
    monkeypatch.setattr(prior_sites, "PASSES_PER_SWEEP", 0)
    fitting.fit(problem)  # by the other way, which needs none
    assert len(made) == 1


@pytest.mark.parametrize(("tau", "open_end"), [(-0.5, True), (-0.5, False), (0.5, True)])
def test_cavities_without_a_proper_marginal_are_not_matched(tau, open_end):
    """A cavity of negative precision times a Laplace density grows without bound; times a uniform one it does not."""
    prior = stats.laplace() if open_end else stats.uniform(-1.0, 2.0)
    sites = Tabulated((tabulate(prior.logpdf, [0.0]),), np.zeros(1, dtype=np.intp), np.ones(1))
    found = matched_sites(np.array([tau]), np.array([0.1]), sites)
    assert np.isfinite(found.log_constant[0]) == (tau > 0.0 or not open_end)
    spikes = spike_slab_problem([[0.0], [1.0]], [0, 1], 1.0, inclusion_probability=0.4, v0=0.01).sites
    for precision, proper in ((-0.5, True), (-1.5, False)):
        assert np.isfinite(matched_sites(np.array([precision]), np.zeros(1), spikes).log_constant[0]) == proper
