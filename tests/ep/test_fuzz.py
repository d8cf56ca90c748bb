"""Fits of data nobody chose: what must not matter does not, and what must hold holds."""

import warnings

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

import pymc_pacauc as pac
from pymc_pacauc import arrays
from tests.fuzzing import fuzz
from tests.oracles import exact_line

KERNELS = st.sampled_from(["squared_exponential", "matern52", "matern32"])


@st.composite
def small(draw, columns=3):
    """Covariates with ties, labels of both classes, and a gamma."""
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    n, d = draw(st.integers(6, 14)), draw(st.integers(1, columns))
    X = rng.integers(-3, 4, size=(n, d)).astype(float)
    y = rng.random(n) < 0.5
    assume(1 < y.sum() < n - 1 and (X.std(axis=0) > 0).all())
    return X, y, draw(st.floats(0.5, 10.0)), rng


def quietly(problem, method, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pac.results.ConvergenceWarning)
        return arrays.fit(problem, method, n_jobs=1, **options)


METHOD = st.sampled_from(["ep", "vb"])


@fuzz("arrays.fit", "arrays.Fit", "results.Plan", fast=15, data=small(), method=METHOD, power=st.integers(-8, 8))
def test_what_a_fit_does_not_depend_on(data, method, power):
    """The order of rows, the unit of X, the signs of columns, and which class is called positive (theta turns)."""
    X, y, gamma, rng = data
    first = quietly(arrays.linear_gaussian_problem(X, y, gamma), method, tolerance=1e-9)
    assume(first.converged)
    order, signs = rng.permutation(len(y)), rng.choice([-1.0, 1.0], X.shape[1])
    for other, turned in (
        (arrays.linear_gaussian_problem(X[order], y[order], gamma), 1.0),
        (arrays.linear_gaussian_problem(10.0**power * X, y, gamma), 1.0),
        (arrays.linear_gaussian_problem(X * signs, y, gamma), signs),
        (arrays.linear_gaussian_problem(X, ~y, gamma), -1.0),
    ):
        second = quietly(other, method, tolerance=1e-9)
        assert second.log_evidence == pytest.approx(first.log_evidence, abs=1e-5)
        np.testing.assert_allclose(second.posterior.mean, turned * first.posterior.mean, atol=1e-4)
        assert second.expected_risk == pytest.approx(first.expected_risk, abs=1e-4)
        assert str(second.plan).split(":")[0] == str(first.plan).split(":")[0]


@fuzz("arrays.fit", fast=15, data=small(columns=1), method=st.sampled_from(["ep", "vb"]), shift=st.floats(-2, 2))
def test_evidence_of_one_coefficient(data, method, shift):
    """Against the exact one: the variational bound is below it, EP's is near it."""
    X, y, gamma, _ = data
    exact = exact_line(X[:, 0], y, gamma, prior_mean=shift)
    found = quietly(arrays.linear_gaussian_problem(X, y, gamma, prior_mean=shift), method)
    assume(found.converged)
    if method == "vb":
        assert found.log_evidence <= exact.log_evidence + 1e-6
    else:
        assert abs(found.log_evidence - exact.log_evidence) < 0.05 + 0.1 * gamma


@fuzz("results.UnsupportedError", "arrays.spike_slab_problem", fast=6, data=small(columns=2), p=st.floats(0.05, 0.95))
def test_sparse_fits(data, p):
    """Possible numbers or no convergence; a slab alone is the Gaussian prior; methods that it has not are refused."""
    X, y, gamma, _ = data
    problem = arrays.spike_slab_problem(X, y, gamma, inclusion_probability=p, v0=0.0)
    found = quietly(problem, "ep", max_sweeps=30)
    assert ((found.inclusion_probability >= 0) & (found.inclusion_probability <= 1)).all()
    if found.converged:
        assert -gamma - 1e-6 <= found.log_evidence <= 1e-9
        assert 0 <= found.expected_risk <= 1
    with pytest.raises(pac.results.UnsupportedError, match='use method="ep"'):
        arrays.fit(problem, "vb")
    with pytest.raises(pac.results.UnsupportedError, match="use power=1"):
        arrays.fit(problem, "ep", power=p)


@fuzz("choose_lengthscale", "results.LengthscaleChoice", fast=5, data=small(columns=2), kernel=KERNELS)
def test_choices_of_a_lengthscale(data, kernel):
    """The best of those looked at; twice the unit of X is twice the lengthscale."""
    X, y, gamma, rng = data
    X = X + rng.normal(size=X.shape)
    options = {"rank": 8, "grid": (0.5, 2.0), "max_evaluations": 0, "n_jobs": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pac.results.ConvergenceWarning)
        found, other = (pac.choose_lengthscale(each, y, gamma, kernel, **options) for each in (X, 2.0 * X))
    best = max(found.trace, key=lambda record: record["log_evidence"])
    np.testing.assert_allclose(found.lengthscale, best["lengthscale"])
    assert found.fit.log_evidence == pytest.approx(best["log_evidence"], abs=1e-3)
    np.testing.assert_allclose(other.lengthscale, 2.0 * found.lengthscale)
    assert other.fit.log_evidence == pytest.approx(found.fit.log_evidence, abs=1e-3)
