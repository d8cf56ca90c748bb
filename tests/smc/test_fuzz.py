"""Runs of tempering SMC on data and settings nobody chose."""

import warnings

import numpy as np
import pytest
from hypothesis import strategies as st

import pymc_pacauc as pac
from pymc_pacauc import arrays
from tests.ep.test_fuzz import small
from tests.fuzzing import fuzz
from tests.oracles import exact_line

OPTIONS = {
    "particles": st.integers(60, 120),
    "ess_threshold": st.floats(0.2, 0.9),
    "decorrelation": st.floats(0.05, 0.5),
    "max_moves": st.integers(1, 30),
}


def run(path, settings, seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pac.results.TemperingWarning)  # few particles, few moves: that is what it says
        return arrays.run_tempering(path, settings, np.random.default_rng(seed))


@fuzz(
    "arrays.run_tempering",
    "arrays.prior_path",
    "arrays.Settings",
    "results.TemperingWarning",
    data=small(),
    options=st.fixed_dictionaries(OPTIONS),
    seed=st.integers(0, 2**20),
)
def test_runs_from_the_prior(data, options, seed):
    """gamma rises from 0 to the target's, the evidence falls from 1 to no less than exp(-gamma), risks are risks."""
    X, y, gamma, _ = data
    problem = arrays.linear_gaussian_problem(X, y, gamma)
    path, settings = arrays.prior_path(problem), arrays.Settings(**options)
    state = run(path, settings, seed)
    gammas = np.array([stage.gamma for stage in state.stages])
    evidence = np.array([stage.log_evidence for stage in state.stages])
    assert gammas[0] == 0.0 == evidence[0]
    assert gammas[-1] == pytest.approx(gamma)
    assert (np.diff(gammas) > 0).all()
    assert (np.diff(evidence) <= 1e-12).all()
    assert (-gammas - 1e-9 <= evidence).all()
    theta, risk = path.finish(state.population, np.random.default_rng(seed))
    np.testing.assert_allclose(risk, pac.arrays.linear_risk(theta, X, y), atol=1e-12)
    assert all(0 <= stage.expected_risk <= 1 for stage in state.stages)
    assert all(stage.log_evidence_variance >= 0 for stage in state.stages)
    again = run(path, settings, seed)
    assert again.log_evidence == state.log_evidence
    np.testing.assert_array_equal(again.population.x, state.population.x)


@fuzz(
    "arrays.bridge_path", data=small(columns=1), shift=st.floats(-2, 2), spread=st.floats(0.3, 3), seed=st.integers(0)
)
def test_runs_from_anywhere_end_at_the_target(data, shift, spread, seed):
    """The evidence of one coefficient from a start that knows nothing: within ten standard errors of the exact one."""
    X, y, gamma, _ = data
    problem = arrays.linear_gaussian_problem(X, y, gamma)
    path = arrays.bridge_path(arrays.prior_path(problem), np.array([shift]), np.array([[spread**2]]))
    state = run(path, arrays.Settings(particles=200), seed)
    error = 10 * np.sqrt(state.stages[-1].log_evidence_variance) + 0.3
    assert abs(state.log_evidence - exact_line(X[:, 0], y, gamma).log_evidence) < error
    theta, risk = path.finish(state.population, np.random.default_rng(seed))
    np.testing.assert_allclose(risk, pac.arrays.linear_risk(theta, X, y), atol=1e-12)


WRONG = {
    "particles": st.one_of(st.integers(-5, 1), st.floats(1.1, 1.9)),
    "ess_threshold": st.sampled_from([-1.0, 0.0, 1.0, 2.0, float("nan")]),
    "decorrelation": st.sampled_from([-1.0, 0.0, 1.0, 2.0, float("nan")]),
    "max_moves": st.one_of(st.integers(-5, 0), st.floats(2.1, 2.9), st.booleans()),
    "move": st.text(max_size=5),
}


@fuzz("arrays.Settings", data=st.sampled_from(sorted(WRONG)).flatmap(lambda k: st.tuples(st.just(k), WRONG[k])))
def test_settings_that_cannot_be_are_refused_by_name(data):
    name, value = data
    with pytest.raises((ValueError, TypeError), match=name):
        arrays.Settings(**{name: value})
