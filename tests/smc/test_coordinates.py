"""Charts of the sphere, and radii."""

import numpy as np
import pytest
from scipy import stats

from pymc_pacauc.smc.coordinates import GnomonicChart, stratified_radii, unit


@pytest.mark.parametrize("d", [2, 3, 7])
def test_chart_round_trip(d):
    rng = np.random.default_rng(d)
    chart = GnomonicChart(unit(rng.standard_normal((1, d)))[0])
    u = unit(rng.standard_normal((50, d)))
    w, sign = chart.to_plane(u)
    assert w.shape == (50, d - 1)
    np.testing.assert_allclose(chart.to_sphere(w, sign), u, atol=1e-12)
    basis = chart.across(np.eye(d))
    np.testing.assert_allclose(basis.T @ basis, np.eye(d - 1), atol=1e-12)
    np.testing.assert_allclose(basis.T @ chart.pole, 0.0, atol=1e-12)
    np.testing.assert_allclose(chart.to_sphere(np.zeros((1, d - 1)))[0], chart.pole, atol=1e-12)


def test_uniform_lines_have_the_density_of_the_chart():
    chart = GnomonicChart(np.array([0.6, -0.8]))
    w, _ = chart.to_plane(unit(np.random.default_rng(0).standard_normal((4000, 2))))
    assert stats.kstest(w[:, 0], stats.cauchy.cdf).pvalue > 0.001  # d = 2: a Cauchy variable
    np.testing.assert_allclose(chart.log_uniform(w)[:5], stats.cauchy.logpdf(w[:5, 0]))


def test_radii_are_chi_distributed_and_stratified():
    radii = stratified_radii(1000, 5, np.random.default_rng(0))
    assert stats.kstest(radii, stats.chi(5).cdf).statistic < 1 / 1000
    assert abs(radii.mean() - stats.chi(5).mean()) < 0.1 * stats.chi(5).std() / np.sqrt(1000)
