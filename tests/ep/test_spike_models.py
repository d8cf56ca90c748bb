"""Exact inclusion probabilities by listing models; against the exact plane they are in ``test_spike_slab.py``."""

import numpy as np
import pytest

from pymc_pacauc import fitting
from pymc_pacauc.ep.spike_models import DRAWS, ModelProposal
from pymc_pacauc.problem.problem import spike_slab_problem
from tests.oracles import sparse_data


def test_the_average_of_models_leaves_gaussian_coefficients_alone_and_knows_its_limits():
    X, y, _ = sparse_data(100, 4, active=(1.5, -1.0))
    p = np.array([0.3, 0.3, 0.3, 1.0])
    average = fitting.fit(spike_slab_problem(X, y, 50.0, inclusion_probability=p, v0=0.0)).model_average
    assert average.inclusion[3] == pytest.approx(1.0)
    assert average.standard_error[3] == pytest.approx(0.0, abs=1e-12)
    squares = [(average.log_evidence_se**2 * (draws - 1) + 1.0) / draws for draws in DRAWS]  # of the weights
    assert min(abs(average.effective_draws * each - 1.0) for each in squares) < 1e-9
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


def test_directions_of_a_model_are_drawn_near_its_posterior():
    """At a large gamma every second draw counts; with other scales than the best, fewer do."""
    X, y, _ = sparse_data(300, 4, active=(1.5, -1.0))
    fitted = fitting.fit(spike_slab_problem(X, y, 1000.0, inclusion_probability=0.3, v0=0.01))
    proposal = ModelProposal(fitted.problem, fitted.posterior.gaussian)
    _, _, log_weights = proposal.draw(proposal.by_sites, 4000, np.random.default_rng(0))
    weights = np.exp(log_weights - log_weights.max())
    assert weights.sum() ** 2 / (weights**2).sum() > 0.5 * 4000
