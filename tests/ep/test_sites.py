"""A site is a function of one number: checked against the iterated update of the paper and against integrals."""

import numpy as np
import pytest
from scipy import integrate, stats

from pymc_pacauc.ep.sites import SiteTable, site_functions, site_table
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


def evaluate(table: SiteTable, rho):
    position = (rho - table.lower) * table.per_unit
    interval = position.astype(int)
    powers = (position - interval - 0.5)[:, None] ** np.arange(table.coefficients.shape[2])
    return np.einsum("kfp,kp->fk", table.coefficients[interval], powers)


@pytest.mark.parametrize("gamma", [*GAMMAS, 10.0, 45.0])
@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_table(gamma, power):
    table = site_table(gamma, power)
    rho = np.random.default_rng(0).uniform(table.lower, 9.4, 5000)
    exact = site_functions(rho, gamma, power)
    expected = np.stack([exact.precision, exact.shift, exact.wrong, exact.log_constant])
    scale = np.abs(expected).max(axis=1, keepdims=True)
    np.testing.assert_allclose(
        evaluate(table, rho) / scale, expected / scale, rtol=0, atol=1e-7 if gamma > 20 else 2e-11
    )
    outside = site_functions(np.array([table.lower - 0.1, 9.6]), gamma, power)
    assert (np.abs(outside.precision) / scale[0] < 1e-15).all()
    assert (np.abs(outside.shift) / scale[1] < 1e-15).all()
