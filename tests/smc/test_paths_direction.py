"""Paths over directions."""

import numpy as np
import pytest
from scipy import stats

from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.smc.paths import bridge_path, prior_path
from pymc_pacauc.smc.tempering import Settings
from tests.oracles import exact_plane, plane_data
from tests.smc.test_tempering import assert_evidence, runs


@pytest.mark.slow
def test_bridge_keeps_the_other_hemisphere():
    """At a small gamma a fifth of the posterior lies opposite the fit; a one-sided bridge would miss it."""
    X, y = plane_data()
    exact = exact_plane(X, y, 4.0)
    problem = linear_gaussian_problem(X, y, 4.0)
    path = bridge_path(prior_path(problem), exact.mean, np.eye(2))
    states = runs(path, Settings(particles=500), 24)
    assert_evidence(states, exact.log_evidence)
    theta = np.concatenate([path.finish(s.population, np.random.default_rng(i))[0] for i, s in enumerate(states[:8])])
    angle = np.mod(np.arctan2(theta[:, 1], theta[:, 0]), 2 * np.pi)
    assert stats.kstest(angle, exact.cdf).pvalue > 0.001
    away = np.mean(theta @ exact.mean < 0)
    assert away > 0.1
