"""Gaussian processes that become few features, beside the same with nothing left out."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest

import pymc_pacauc as pac
from pymc_pacauc import fitting
from pymc_pacauc.ep.plan import choose_plan
from pymc_pacauc.model.inference import approximate
from pymc_pacauc.model.read import problem_of
from pymc_pacauc.problem.problem import linear_gaussian_problem, spike_slab_problem
from tests.model.test_gp import ring_data

N = 150


def model_of(covariance=pm.gp.cov.ExpQuad, n=N, reparameterize=True):
    X, y = ring_data(n)
    with pm.Model() as model:
        ls = pm.Data("ls", [1.2, 1.6])
        gp = pm.gp.Latent(cov_func=covariance(2, ls=ls))
        scores = gp.prior("scores", X=X, reparameterize=reparameterize)
        pac.AUCPotential("auc", scores, y, gamma=float(n))
    return model, gp


def whole(model, **options):
    """A fit with nothing left out."""
    source = problem_of(model)
    plan = choose_plan(source.problem, **options)
    return approximate(source, replace(plan, coordinates="coefficients"), progressbar=False)


@pytest.mark.parametrize("reparameterize", [True, False])
@pytest.mark.parametrize("method", [pac.EP, pac.GaussianVB])
def test_few_features_are_the_process(method, reparameterize):
    model, gp = model_of(reparameterize=reparameterize)
    new = ring_data(20, seed=1)[0]
    with model:
        few = pm.fit(method=method(), progressbar=False)
    full = whole(model, method=method.method)
    few_scores, full_scores = (pac.predict_scores(each, new, gp=gp, summary=True) for each in (few, full))
    assert few.fit.problem.scores.reduced.dimension < 0.7 * N
    assert full.fit.problem.scores.reduced.dimension >= N - 1
    assert few.log_evidence == pytest.approx(full.log_evidence, abs=1e-3)
    spread = float(full_scores["mean"].std())
    np.testing.assert_allclose(few_scores["mean"], full_scores["mean"], atol=2e-3 * spread)
    np.testing.assert_allclose(np.diagonal(few.q.covariance), np.diagonal(full.q.covariance), atol=5e-3)
    error = few.posterior.monte_carlo_error + full.posterior.monte_carlo_error  # each by its own weighted directions
    np.testing.assert_allclose(few_scores["sd"], full_scores["sd"], atol=2e-3 + error)


@pytest.mark.slow
def test_evidence_is_maximised_the_same_way():
    """At the maximum found with few features the evidence of all directions has no slope either."""
    model, _ = model_of(n=100)
    few = pac.maximize_evidence(model, over=["ls"], progressbar=False)
    model["ls"].set_value(few.values["ls"])
    full = whole(model, tolerance=1e-10)
    assert few.log_evidence == pytest.approx(full.log_evidence, abs=2e-3)
    for factor in (0.95, 1.05):
        model["ls"].set_value(factor * few.values["ls"])
        assert whole(model, tolerance=1e-10).log_evidence < full.log_evidence + 1e-3


def test_rough_kernels_and_linear_models_keep_all_directions():
    model, _ = model_of(pm.gp.cov.Exponential)
    assert problem_of(model).problem.in_coordinates("features").scores.reduced.dimension == N - 1
    rng = np.random.default_rng(0)
    heavy = rng.standard_t(1.5, size=(70, 90))  # rows of very different size
    problem = linear_gaussian_problem(heavy, rng.random(70) < 0.4, 70.0)
    assert problem.in_coordinates("features").scores.reduced.dimension == 69
    same = np.repeat(heavy[:40], 2, axis=0)  # half of the rows are copies: exactly 40 directions
    problem = linear_gaussian_problem(same, np.tile([True, True, False, False], 20), 80.0)
    found = fitting.fit(problem)
    assert found.problem.scores.reduced.dimension == 39
    assert found.tied_pairs == problem.tied_pairs == 0


def test_spikes_keep_all_directions():
    X, y = ring_data(N)
    K = np.exp(-0.5 * np.sum((X[:, None] - X) ** 2, axis=-1)) + 1e-6 * np.eye(N)
    design = np.linalg.cholesky(K)
    assert choose_plan(linear_gaussian_problem(design, y, float(N))).coordinates == "features"
    sparse = spike_slab_problem(design, y, float(N), inclusion_probability=0.5, v0=0.0)
    assert choose_plan(sparse).coordinates == "coefficients"


def test_equal_rows_stay_equal():
    X, y = ring_data(100)
    X[50:55] = X[:5]
    K = np.exp(-0.5 * np.sum((X[:, None] - X) ** 2, axis=-1))
    problem = linear_gaussian_problem(np.linalg.cholesky(K + 1e-6 * np.eye(100)), y, 100.0)
    assert choose_plan(problem).coordinates == "features"  # rows of a Cholesky factor differ by the jitter
    features = pac.kernel_features(X, lengthscale=1.0).transform(X)
    tied = linear_gaussian_problem(features, y, 100.0)
    assert tied.tied_pairs == int(np.sum(y[50:55] != y[:5]))
