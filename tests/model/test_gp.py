"""Gaussian-process scores: extraction, prediction, kernel gradients, HSGP, SMC."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pymc as pm
import pytest

import pymc_pacauc as pac
from pymc_pacauc import fitting
from pymc_pacauc.model.gp import predict_gp
from pymc_pacauc.model.read import problem_of
from pymc_pacauc.model.score_function import predictive_model
from pymc_pacauc.problem.problem import linear_gaussian_problem
from tests.quadrature import exact_orders


def ring_data(n, seed=0):
    """Classes that no linear score separates."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 2))
    y = (np.sin(2 * X[:, 0]) + X[:, 1] ** 2 - 1 + 0.5 * rng.logistic(size=n) > 0).astype(int)
    return X, y


def gp_model(X, y, *, cov=None, gamma=None, reparameterize=True, jitter=1e-6):
    with pm.Model() as model:
        gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(X.shape[1], ls=1.0) if cov is None else cov)
        scores = gp.prior("scores", X=X, reparameterize=reparameterize, jitter=jitter)
        pac.AUCPotential("auc", scores, y, gamma=float(len(y)) if gamma is None else gamma)
    return model, gp


def fit(model, **options):
    with model:
        return pm.fit(method=pac.EP(**options), progressbar=False)


def test_three_latent_scores_against_quadrature():
    X, y = np.array([[0.0], [0.7], [1.5]]), [1, 0, 1]
    K = np.exp(-0.5 * (X - X.T) ** 2)
    log_z, mean = exact_orders(K, y, 3.0)
    found = fitting.fit(linear_gaussian_problem(np.eye(3), y, 3.0, prior_covariance=K))
    assert found.log_evidence == pytest.approx(log_z, abs=0.05)
    np.testing.assert_allclose(found.posterior.mean, mean, atol=0.06)


def test_all_ways_to_write_a_gaussian_process_agree():
    X, y = ring_data(60)
    K = pm.gp.cov.ExpQuad(2, ls=1.0)(X).eval() + 1e-6 * np.eye(60)
    with pm.Model() as plain:
        scores = pm.MvNormal("scores", mu=np.zeros(60), cov=K)
        pac.AUCPotential("auc", scores, y, gamma=60.0)
    fits = [fit(gp_model(X, y)[0]), fit(gp_model(X, y, reparameterize=False)[0]), fit(plain)]
    for other in fits[1:]:
        assert other.log_evidence == pytest.approx(fits[0].log_evidence, abs=1e-6)
    np.testing.assert_allclose(fits[1].posterior.mean, fits[2].posterior.mean, atol=1e-6)


def test_the_covariance_of_an_mvnormal_is_read_not_inverted():
    X, y = ring_data(80)
    K = pm.gp.cov.ExpQuad(2, ls=2.0)(X).eval() + 1e-12 * np.eye(80)
    with pm.Model() as model:
        scale = pm.Normal("scale", 1.0, 2.0)
        scores = pm.MvNormal("scores", mu=np.full(80, 0.3), cov=K)
        pac.AUCPotential("auc", scores + scale * X[:, 0], y, gamma=10.0)
    problem = problem_of(model).problem
    np.testing.assert_allclose(problem.prior.covariance[1:, 1:], K, atol=1e-13)
    np.testing.assert_allclose(problem.prior.mean, [1.0, *np.full(80, 0.3)])
    assert problem.prior.covariance[0, 0] == pytest.approx(4.0)
    assert not problem.prior.covariance[0, 1:].any()


def test_a_jitter_is_reported():
    X, y = ring_data(40)
    K = X @ X.T  # of rank two
    with pm.Model() as model:
        scores = pm.MvNormal("scores", mu=np.zeros(40), cov=K)
        pac.AUCPotential("auc", scores, y, gamma=10.0)
    with pytest.warns(UserWarning, match="added to its diagonal"):
        problem_of(model)


def test_a_linear_kernel_is_the_linear_model():
    rng = np.random.default_rng(4)
    X = rng.standard_normal((50, 3))
    y = (X @ [1.0, -1.0, 0.5] + rng.logistic(size=50) > 0).astype(int)
    new = rng.standard_normal((6, 3))
    jitter = 1e-9
    model, gp = gp_model(X, y, cov=pm.gp.cov.Linear(3, c=np.zeros(3)), gamma=50.0, jitter=jitter)
    process = fit(model, tolerance=1e-9)
    linear = fitting.fit(linear_gaussian_problem(X, y, 50.0), tolerance=1e-9)
    assert process.log_evidence == pytest.approx(linear.log_evidence, abs=1e-5)
    mean, variance = predict_gp(process, gp, new, jitter=jitter)
    np.testing.assert_allclose(mean, new @ linear.posterior.mean, atol=1e-6)
    closed = np.diagonal(new @ linear.corrected.covariance @ new.T)  # each by its own weighted directions
    np.testing.assert_allclose(variance, closed, atol=0.03 * closed.max())


def test_prediction_at_training_points_and_far_away():
    X, y = ring_data(60)
    model, gp = gp_model(X, y)
    approx = fit(model)
    draws = approx.sample(4000, random_seed=1)["posterior"]["scores"]
    at = pac.predict_scores(approx, X[:5], gp=gp, summary=True)
    np.testing.assert_allclose(at["mean"], draws.mean(("chain", "draw"))[:5], atol=0.06)
    np.testing.assert_allclose(at["sd"], draws.std(("chain", "draw"))[:5], atol=0.05)
    far = pac.predict_scores(approx, [[50.0, 50.0]], gp=gp, summary=True)
    assert far["mean"].item() == pytest.approx(0.0, abs=1e-8)
    assert far["sd"].item() == pytest.approx(1.0, abs=1e-8)
    with pytest.raises(ValueError, match="columns"):
        pac.predict_scores(approx, [[1.0]], gp=gp, summary=True)


def test_prediction_by_the_textbook_formula():
    """Of a process beside a linear term: the scores are not the process alone, and are correlated with the term."""
    X, y = ring_data(30)
    cov, new = pm.gp.cov.Matern32(2, ls=1.3), X[:3] + 0.2
    with pm.Model() as model:
        gp = pm.gp.Latent(mean_func=pm.gp.mean.Constant(0.7), cov_func=cov)
        scores = gp.prior("scores", X=X, reparameterize=False)
        pac.AUCPotential("auc", scores + X @ pm.Normal("b", size=2), y, gamma=30.0)
    approx = fit(model)
    part = approx.source.parts["scores"]
    V, m = approx.posterior.covariance[part, part], approx.posterior.score_mean[part]
    K, cross = cov(X).eval() + 1e-6 * np.eye(30), cov(X, new).eval()
    inverse = np.linalg.inv(K)
    found = pac.predict_scores(approx, new, gp=gp, summary=True)
    np.testing.assert_allclose(found["mean"], 0.7 + cross.T @ inverse @ (m - 0.7), rtol=1e-6)
    variance = cov(new).eval() - cross.T @ (inverse - inverse @ V @ inverse) @ cross
    np.testing.assert_allclose(found["sd"] ** 2, np.diagonal(variance), rtol=1e-6)
    draws = pac.predict_scores(approx, new, gp=gp, draws=4000, random_seed=1)
    np.testing.assert_allclose(draws.var(("chain", "draw")), np.diagonal(variance), rtol=0.15)
    np.testing.assert_allclose(draws["mean_score"], found["mean"], rtol=1e-6)


def test_an_approximation_outlives_changes_of_its_model():
    X, y = ring_data(40)
    with pm.Model(coords={"row": range(40)}) as model:
        ls, rows = pm.Data("ls", 1.0), pm.Data("X", X, dims=("row", "covariate"))
        gp = pm.gp.Latent(cov_func=pm.gp.cov.Matern52(2, ls=ls))
        scores = gp.prior("scores", X=rows, dims="row")
        pac.AUCPotential("auc", scores, y, gamma=40.0)
    approx = fit(model)

    def results():
        predicted = pac.predict_scores(approx, X[:3] + 0.1, gp=gp, summary=True)
        idata = approx.sample(20, random_seed=1)
        weighted = approx.importance_sample(400, random_seed=1).idata
        assert idata["constant_data"]["X"].shape == X.shape
        assert set(idata["posterior"].data_vars) == {"scores_rotated_", "scores", "auc_risk"}
        return [predicted["mean"], predicted["sd"]] + [
            draws["posterior"]["scores"].values for draws in (idata, weighted)
        ]

    before = results()
    with model:
        new = gp.conditional("new", Xnew=X[:3] + 0.1)
        pm.Deterministic("twice", 2.0 * new)
    for value, expected in zip(results(), before, strict=True):
        np.testing.assert_allclose(value, expected)
    with model:
        pm.set_data({"ls": 0.2, "X": X[:7]}, coords={"row": range(7)})
    for value, expected in zip(results(), before, strict=True):
        np.testing.assert_allclose(value, expected)
    assert model["X"].get_value().shape == (7, 2)
    assert model.coords["row"] == tuple(range(7))
    assert approx.source.names == ("scores_rotated_",)
    with approx.as_fitted():
        assert approx.source.function(gp.f)(approx.posterior.mean[None])[0].shape == (1, 40)
    with pytest.raises(ValueError, match="depends on new, which the model did not have"):
        approx.source.function(new)


def test_hsgp_goes_through_the_linear_engine_without_large_arrays():
    X, y = ring_data(20_000)
    with pm.Model() as model:
        gp = pm.gp.HSGP(m=[6, 6], c=1.5, cov_func=pm.gp.cov.ExpQuad(2, ls=1.0))
        scores = gp.prior("scores", X=X)
        pac.AUCPotential("auc", scores, y, gamma=500.0)
    tracemalloc.start()
    problem = problem_of(model).problem
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (problem.n, problem.d) == (20_000, 36)
    assert peak < 40 * problem.X.nbytes  # n x n would be 555 times X


def test_predictions_of_an_hsgp_are_those_of_its_conditional():
    X, y = ring_data(80)
    with pm.Model():
        gp = pm.gp.HSGP(m=[5, 5], c=1.5, cov_func=pm.gp.cov.ExpQuad(2, ls=1.0))
        pac.AUCPotential("auc", gp.prior("scores", X=X), y, gamma=80.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
        mean, variance = predict_gp(approx, gp, X[:4] + 0.1)
        gp.conditional("new", Xnew=X[:4] + 0.1)
    draws = approx.sample(4000, random_seed=1)["posterior"]["new"].values[0]
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.05)
    np.testing.assert_allclose(draws.var(axis=0), variance, atol=0.05)
    sd = pac.predict_scores(approx, X[:4] + 0.1, gp=gp, summary=True)["sd"]
    np.testing.assert_allclose(variance, sd**2)


def test_a_gaussian_process_beats_the_linear_score_where_it_should():
    X, y = ring_data(150)
    new, labels = ring_data(1000, seed=1)
    model, gp = gp_model(X, y)
    linear = fitting.fit(linear_gaussian_problem(X, y, 150.0))
    by_process = 1 - pac.empirical_risk(pac.predict_scores(fit(model), new, gp=gp, summary=True)["mean"].values, labels)
    by_line = 1 - pac.empirical_risk(new @ linear.posterior.mean, labels)
    assert by_process > by_line + 0.1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Detected variables likely created by GP objects")  # gp is not used on the copy
def test_smc_agrees_with_ep_on_a_gaussian_process():
    X, y = ring_data(60)
    model, gp = gp_model(X, y)
    approx = fit(model)
    predicted = pac.predict_scores(approx, X[:3] + 0.1, gp=gp, summary=True)
    with model:
        idata = pm.sample(
            1000,
            tune=50,
            step=pac.TemperingSMC(particles=2000),
            chains=2,
            cores=1,
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
        )
        gp.conditional("new", Xnew=X[:3] + 0.1)
    found = pac.log_evidence(idata)
    assert approx.log_evidence == pytest.approx(found.estimate, abs=1.0)
    with predictive_model(model):
        drawn = pm.sample_posterior_predictive(idata, var_names=["new"], random_seed=1, progressbar=False)
    mean = drawn["posterior_predictive"]["new"].mean(("chain", "draw"))
    np.testing.assert_allclose(mean, predicted["mean"], atol=0.25)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Detected variables likely created by GP objects")  # gp is not used on the copy
def test_smc_draws_of_a_linear_kernel_are_those_of_the_linear_model():
    rng = np.random.default_rng(4)
    X, new = rng.standard_normal((40, 2)), rng.standard_normal((4, 2))
    y = (X @ [1.0, -1.0] + rng.logistic(size=40) > 0).astype(int)
    options = {"chains": 2, "cores": 1, "random_seed": 1, "progressbar": False, "compute_convergence_checks": False}
    model, gp = gp_model(X, y, cov=pm.gp.cov.Linear(2, c=np.zeros(2)), gamma=40.0)
    with model:
        idata = pm.sample(2000, step=pac.TemperingSMC(particles=2000), **options)
        gp.conditional("new", Xnew=new)
    with predictive_model(model):
        drawn = pm.sample_posterior_predictive(idata, var_names=["new"], random_seed=1, progressbar=False)
    by_process = drawn["posterior_predictive"]["new"].values.reshape(-1, 4)
    with pm.Model():
        theta = pm.Normal("theta", size=2)
        pac.AUCPotential("auc", X @ theta, y, gamma=40.0)
        direct = pm.sample(2000, step=pac.TemperingSMC(particles=2000), **options)
    by_line = direct["posterior"]["theta"].values.reshape(-1, 2) @ new.T
    sd = by_line.std(axis=0)
    np.testing.assert_allclose(by_process.mean(axis=0) / sd, by_line.mean(axis=0) / sd, atol=0.12)
    np.testing.assert_allclose(by_process.std(axis=0), sd, rtol=0.08)
