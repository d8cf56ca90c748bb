"""Exact inclusion probabilities and evidence where models can be listed."""

import numpy as np
import pytest

from pymc_pacauc import fitting
from pymc_pacauc.problem.problem import spike_slab_problem
from tests.oracles import plane_data, sparse_data
from tests.quadrature import exact_spike_slab_plane


@pytest.mark.parametrize("slope", [(1.0, -0.6), (1.0, 0.0), (0.6, 0.2)])
@pytest.mark.parametrize("gamma", [20.0, 200.0])
@pytest.mark.parametrize(("p", "v0"), [(0.5, 0.0), (0.1, 0.0), (0.5, 0.2), (0.1, 0.2), (0.5, 0.01), (0.1, 0.001)])
def test_inclusion_against_the_exact_plane(slope, gamma, p, v0):
    X, y = plane_data(slope=slope)
    exact = exact_spike_slab_plane(X, y, gamma, p, v0, 1.0)
    fit = fitting.fit(spike_slab_problem(X, y, gamma, inclusion_probability=p, v0=v0))
    assert fit.converged
    np.testing.assert_allclose(fit.inclusion_probability, exact.inclusion, atol=0.05)
    average = fit.model_average
    assert (np.abs(average.inclusion - exact.inclusion) < 4 * average.standard_error + 1e-3).all()
    assert abs(average.log_evidence - exact.log_evidence) < 4 * average.log_evidence_se


def test_the_average_of_models_leaves_gaussian_coefficients_alone_and_knows_its_limits():
    X, y, _ = sparse_data(100, 4, active=(1.5, -1.0))
    p = np.array([0.3, 0.3, 0.3, 1.0])
    average = fitting.fit(spike_slab_problem(X, y, 50.0, inclusion_probability=p, v0=0.0)).model_average
    assert average.inclusion[3] == pytest.approx(1.0)
    assert average.standard_error[3] == pytest.approx(0.0, abs=1e-12)
    v0 = np.array([0.1, 0.1, 0.1, 0.0])  # that of a Gaussian coefficient means nothing
    average = fitting.fit(spike_slab_problem(X, y, 50.0, inclusion_probability=p, v0=v0)).model_average
    other = fitting.fit(spike_slab_problem(X, y, 50.0, inclusion_probability=p, v0=0.1)).model_average
    np.testing.assert_allclose(average.inclusion, other.inclusion, atol=0.01)
    X, y, _ = sparse_data(100, 12, active=(1.5, -1.0))
    many = fitting.fit(spike_slab_problem(X, y, 50.0, inclusion_probability=0.5, v0=0.0))
    assert many.model_average is None
    np.testing.assert_array_equal(many.inclusion_probability, many.posterior.inclusion_probability)
    moved = spike_slab_problem(X[:, :2], y, 50.0, inclusion_probability=0.5, v0=0.0, offset=X[:, 2])
    assert fitting.fit(moved).model_average is None
