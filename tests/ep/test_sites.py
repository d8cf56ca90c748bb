"""A site is a function of one number: checked against the iterated update of the paper and against integrals."""

import numpy as np
import pytest
from scipy import integrate, special, stats

from pymc_pacauc.comparison.pairs import Block, Pairs
from pymc_pacauc.ep.posterior import natural_gaussian
from pymc_pacauc.ep.sites import LARGEST_GAMMA, SiteTable, Tabulated, site_functions
from pymc_pacauc.ep.sweep import sweep_sums
from pymc_pacauc.problem.problem import linear_gaussian_problem
from tests.reference_ep import site_update

GAMMAS = [1e-8, 1e-3, 0.1, 1.0, 3.0]


def iterated(mean, variance, gamma, power=1.0):
    K = h = 0.0
    for _ in range(2000):
        K_new, h_new, log_c = site_update(mean, variance, K, h, gamma, power)
        K, h = 0.5 * (K + K_new), 0.5 * (h + h_new)
    return K, h, log_c


@pytest.mark.parametrize("gamma", GAMMAS[1:])
@pytest.mark.parametrize("power", [1.0, 0.3])
@pytest.mark.parametrize(("mean", "variance"), [(0.3, 2.0), (-1.5, 0.7), (2.0, 1.0), (-3.0, 1.3)])
def test_fixed_point_of_the_papers_update(gamma, power, mean, variance):
    f = site_functions(np.array([mean / np.sqrt(variance)]), gamma, power)
    K, h, log_c = iterated(mean, variance, gamma, power)
    np.testing.assert_allclose(f.precision / variance, K, rtol=1e-10)
    np.testing.assert_allclose(f.shift / np.sqrt(variance), h, rtol=1e-10)
    np.testing.assert_allclose(f.log_constant, log_c, rtol=1e-8, atol=1e-13)


def _weighted(s, k, cavity):
    return s**k * cavity.pdf(s)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_tilted_moments_are_those_of_q(gamma):
    """By quadrature, without any formula of the module: cavity times factor has mean rho and variance one."""
    for rho in (-2.0, -0.4, 0.0, 1.1, 2.5):
        f = site_functions(np.array([rho]), gamma)
        tau = 1.0 - f.precision[0]
        cavity = stats.norm((rho - f.shift[0]) / tau, tau**-0.5)
        far = 12.0 + abs(rho)
        moments = [
            integrate.quad(_weighted, 0.0, far, (k, cavity), epsabs=0, epsrel=1e-11)[0]
            + np.exp(-gamma) * integrate.quad(_weighted, -far, 0.0, (k, cavity), epsabs=0, epsrel=1e-11)[0]
            for k in range(3)
        ]
        np.testing.assert_allclose(moments[1] / moments[0], rho, atol=1e-8)
        np.testing.assert_allclose(moments[2] / moments[0] - rho**2, 1.0, rtol=1e-8)


def quadrature(rho, gamma, f):
    """Mean and variance of cavity times factor, and log C, by panels of Gauss-Legendre, in logarithms."""
    tau = 1.0 - f.precision[0]
    mean, sd = (rho - f.shift[0]) / tau, tau**-0.5
    nodes, weights = np.polynomial.legendre.leggauss(30)
    s, log_mass = [], []
    for low, high, cost in ((0.0, max(0.0, mean) + 14 * sd, 0.0), (min(0.0, mean) - 14 * sd, 0.0, gamma)):
        edges = np.linspace(low, high, 61)
        half = 0.5 * np.diff(edges)[:, None]
        s.append((edges[:-1, None] + half * (1.0 + nodes)).ravel())
        log_mass.append(np.log(half * weights).ravel() + stats.norm.logpdf(s[-1], mean, sd) - cost)
    s, log_mass = np.concatenate(s), np.concatenate(log_mass)
    total = special.logsumexp(log_mass)
    share = np.exp(log_mass - total)
    # the site, a Gaussian, turns the cavity into C times N(rho, 1)
    log_site = 0.5 * np.log(tau) - 0.5 * tau * mean**2 + 0.5 * rho**2
    return share @ s, share @ (s - share @ s) ** 2, total - log_site


@pytest.mark.parametrize("gamma", [1e-4, 1e-2, 0.5, 3.0, 8.0, 10.0, 15.0, 20.0, 30.0, 41.5, 50.0, 100.0, 200.0, 500.0])
@pytest.mark.parametrize("many", [False, True])
def test_log_constants_of_single_rho_at_any_gamma(gamma, many):
    """A site asked for by itself, whose cavity is far below rho where gamma is large, is that of the integrals."""
    for rho in (-2.0, 0.0, 0.4) if gamma <= LARGEST_GAMMA else (0.0,):  # beyond it fits are refused
        f = site_functions(np.array([rho]), np.array([gamma]) if many else gamma)
        mean, variance, log_constant = quadrature(rho, gamma, f)
        assert mean == pytest.approx(rho, abs=1e-9)
        assert variance == pytest.approx(1.0, abs=1e-8)
        assert f.log_constant[0] == pytest.approx(log_constant, abs=1e-6)


def test_a_pair_of_equal_rows_is_a_constant_at_a_large_gamma():
    """Pairs of equal rows cost one half whatever theta: without them the log constant is higher by half of gamma'."""
    X = np.random.default_rng(5).normal(size=(7, 2))
    X[6] = X[0]
    tied = linear_gaussian_problem(X, [1, 1, 1, 0, 0, 0, 0], gamma=415.0)
    blocks = Block(np.array([0]), np.array([3, 4, 5])), Block(np.array([1, 2]), np.array([3, 4, 5, 6]))
    q = natural_gaussian(np.array([[2.0, 0.5], [0.5, 3.0]]), np.array([1.0, -2.0]))
    table = SiteTable(tied.gamma_per_pair)
    found, others = sweep_sums(tied, q, tied.pairs, table), sweep_sums(tied, q, Pairs(7, blocks), table)
    assert found.tied == 1
    assert found.log_constant == pytest.approx(others.log_constant - 0.5 * 415.0 / 12, abs=1e-4)


def test_rho_increases_with_the_cavity_so_that_the_site_is_unique():
    z = np.linspace(-30.0, 12.0, 20_001)
    for gamma in (1e-3, 0.1, 1.0, 3.0, 10.0):
        loss = -np.expm1(-gamma)
        log_tilt = -np.log1p(-loss * stats.norm.sf(z))
        g = loss * stats.norm.pdf(z) * np.exp(log_tilt)
        rho = (z + g) / np.sqrt(1 - g * (z + g))
        assert (np.diff(rho) > 0).all()


def test_misranked_pairs_have_negative_precision():
    f = site_functions(np.array([-2.0, -1.0, 1.0, 2.0]), 0.1)
    assert (f.precision[:2] < 0).all()
    assert (f.precision[2:] > 0).all()


def test_variational_bayes_is_the_limit_of_power_zero():
    rho = np.linspace(-4, 4, 41)
    limit, small = site_functions(rho, 0.5, 0.0), site_functions(rho, 0.5, 1e-6)
    for name in ("precision", "shift", "wrong", "log_constant"):
        np.testing.assert_allclose(getattr(small, name), getattr(limit, name), atol=1e-6)


def evaluate(table: Tabulated, rho):
    position = (rho - table.lower) * table.per_unit
    interval = position.astype(int)
    powers = (position - interval - 0.5)[:, None] ** np.arange(4)
    b, c, wrong, log_constant = np.einsum("kfp,kp->fk", table.coefficients[interval, 0], powers)
    return np.stack([table.gamma * b, table.gamma * c, wrong, table.gamma * log_constant])


@pytest.mark.parametrize("gamma", [*GAMMAS, 10.0, 45.0])
@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_table(gamma, power):
    table = SiteTable(gamma, power).between(1.0, 1.0)
    rho = np.random.default_rng(0).uniform(table.lower, 9.4, 5000)
    exact = site_functions(rho, gamma, power)
    expected = np.stack([exact.precision, exact.shift, exact.wrong, exact.log_constant])
    scale = np.abs(expected).max(axis=1, keepdims=True)
    np.testing.assert_allclose(
        evaluate(table, rho) / scale, expected / scale, rtol=0, atol=1e-7 if gamma > 20 else 3e-10
    )
    outside = site_functions(np.array([table.lower - 0.1, 9.6]), gamma, power)
    assert (np.abs(outside.precision) / scale[0] < 1e-15).all()
    assert (np.abs(outside.shift) / scale[1] < 1e-15).all()
