import pickle

import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pymc_pacauc as pac
from pymc_pacauc import fitting
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.model.auc_term import NotLinearGaussianError
from pymc_pacauc.problem.problem import linear_gaussian_problem


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    return X, (X[:, 0] + rng.standard_normal(60) > 0.3).astype(int)


@pytest.fixture(scope="module")
def model(data):
    X, y = data
    coords = {"feature": ["a", "b", "c"], "obs": np.arange(60)}
    with pm.Model(coords=coords) as model:
        rows = pm.Data("X", X, dims=("obs", "feature"))
        alpha = pm.Normal("alpha", 1.0, 2.0)
        theta = pm.Normal("theta", 0.0, 1.5, dims="feature")
        scores = pm.Deterministic("scores", alpha + rows @ theta, dims="obs")
        pac.AUCPotential("auc", scores, y, 60.0)
    return model


@pytest.fixture(scope="module")
def approx(model):
    with model:
        return pm.fit(method=pac.EP(), progressbar=False)


def test_is_the_engines_fit(data, approx):
    fit = fitting.fit(linear_gaussian_problem(*data, 60.0, prior_covariance=1.5**2))
    np.testing.assert_allclose(approx.q.mean, [1.0, *fit.posterior.mean], atol=1e-5)
    assert approx.posterior.covariance[0, 0] == pytest.approx(4.0, rel=1e-6)
    np.testing.assert_allclose(approx.q.covariance[1:, 1:], fit.posterior.covariance, atol=1e-5)
    assert approx.q.log_evidence == approx.log_evidence
    assert approx.log_evidence == pytest.approx(fit.log_evidence, abs=1e-6)
    assert approx.expected_risk == pytest.approx(fit.expected_risk, abs=1e-6)
    assert approx.converged
    assert approx.sweeps == len(approx.history) == len(approx.hist)
    assert approx.history["log_evidence"].iloc[-1] == approx.log_evidence


def test_sample_has_names_dims_and_deterministics(data, approx):
    idata = approx.sample(4000, random_seed=1)
    posterior = idata["posterior"]
    assert posterior["theta"].dims == ("chain", "draw", "feature")
    assert list(posterior["feature"].values) == ["a", "b", "c"]
    theta = posterior["theta"].values[0]
    np.testing.assert_allclose(posterior["scores"].values[0], posterior["alpha"].values[0][:, None] + theta @ data[0].T)
    np.testing.assert_allclose(posterior["auc_risk"].values[0], pac.arrays.linear_risk(theta, *data), atol=1e-12)
    error = theta.std(axis=0) / np.sqrt(len(theta))
    assert (np.abs(theta.mean(axis=0) - approx.posterior.mean[1:]) < 4 * error).all()
    assert idata["constant_data"]["X"].dims == ("obs", "feature")
    assert posterior.attrs["pacauc_method"] == "EP"
    assert approx.fitted_to.gamma == 60.0


def test_same_seed_same_draws(approx):
    first, second = (approx.sample(10, random_seed=3)["posterior"]["theta"].values for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_no_draws_are_no_sample(approx):
    with pytest.raises(ValueError, match="draws must be at least 1"):
        approx.sample(0)


def test_pymcs_own_parameters_are_set(approx):
    np.testing.assert_allclose(approx.mean.eval(mode="FAST_COMPILE"), approx.posterior.mean)
    np.testing.assert_allclose(approx.cov.eval(mode="FAST_COMPILE"), approx.posterior.covariance)


def test_variational_bayes_and_warm_start(model, approx):
    with model:
        vb = pm.fit(method=pac.GaussianVB(start=approx), progressbar=False)
        again = pm.fit(method=pac.EP(start=approx), progressbar=False)
        fractional = pm.fit(method=pac.EP(power=0.5), progressbar=False)
    bound = -60.0 * vb.expected_risk - vb.posterior.divergence_from_prior
    assert vb.log_evidence == pytest.approx(bound, abs=1e-6)
    assert again.sweeps <= 2
    assert vb.log_evidence < fractional.log_evidence < approx.log_evidence


def test_importance_sample(data, approx):
    sample = approx.importance_sample(4000, random_seed=1)
    assert sample.pareto_k < 0.5
    prior = np.random.default_rng(2).standard_normal((400_000, 3))
    weights = np.exp(-60.0 * pac.arrays.linear_risk(prior, *data))
    plain, error = np.log(weights.mean()), weights.std() / weights.mean() / np.sqrt(len(weights))
    assert abs(sample.log_evidence - plain) < 3 * np.hypot(error, sample.log_evidence_se)
    assert np.exp(sample.idata["sample_stats"]["log_weight"].values).mean() == pytest.approx(1.0)
    exact = sample.resample(2000, random_seed=1)
    assert exact["theta"].shape == (1, 2000, 3)
    expected = weights @ pac.arrays.linear_risk(prior, *data) / weights.sum()
    assert float(exact["auc_risk"].mean()) == pytest.approx(expected, abs=0.002)


def test_poor_importance_weights_are_said(data):
    X, y = data
    with pm.Model():
        theta = pm.Normal("theta", 0.0, 1.0)
        pac.AUCPotential("auc", X[:, 0] * theta + X[:, 1], y, 3.0)  # the offset keeps theta from being scale-free
        approx = pm.fit(method=pac.EP(), progressbar=False)
    with pytest.warns(UserWarning, match="Pareto k"):
        approx.importance_sample(1000, random_seed=1)


def test_leave_out(data, approx):
    result = pac.leave_out(approx, np.arange(60) % 4)
    assert result.scores.shape == (60,)
    assert result.group_auc.shape == (4,)
    assert 0.5 < result.auc < 1 - approx.expected_risk + 0.05


def test_evidence_gradient_is_flat_in_the_intercept(approx):
    gradient = approx.evidence_gradient()
    assert gradient.mean[0] == pytest.approx(0.0, abs=1e-6)
    assert gradient.variances[0] == pytest.approx(0.0, abs=1e-6)


def test_reads_well(approx):
    text = str(approx)
    assert "EP approximation of an AUC Gibbs posterior" in text
    assert f"log evidence   {approx.log_evidence:.4f}" in text
    assert "converged in" in text


def test_number_of_sweeps_is_bounded_by_n(model):
    with model, pytest.warns(ConvergenceWarning):
        approx = pm.fit(2, method=pac.EP(), progressbar=False)
    assert approx.sweeps == 2
    assert "NOT CONVERGED" in str(approx)


def test_refine_goes_on(model):
    with model:
        inference = pac.EP()
        with pytest.warns(ConvergenceWarning):
            inference.fit(3, progressbar=False)
        assert inference.refine(100, progressbar=False).converged


def test_model_argument(model):
    assert pac.EP(model=model).fit(progressbar=False).converged


def test_refusal_through_fit(data):
    with pm.Model():
        scale = pm.HalfNormal("scale")
        pac.AUCPotential("auc", data[0] @ pm.Laplace("theta", 0, scale, size=3), data[1], 1.0)
        with pytest.raises(NotLinearGaussianError, match="scale is not Gaussian"):
            pm.fit(method=pac.EP())


def test_callbacks_and_progress_bar(model, capsys, monkeypatch):
    monkeypatch.setattr("pymc_pacauc.model.compat.BAR_AFTER", 0.0)
    seen = []
    with model:
        pm.fit(method=pac.EP(), callbacks=[lambda approx, losses, i: seen.append(i)])
    assert seen[0] > 1
    assert "EP sweeps" in capsys.readouterr().out


@pytest.mark.parametrize("engine", ["ep", "smc"])
def test_draws_without_data(engine, tmp_path):
    """No number of X, no entry per row, and the same predictions, certificate and summary, after a file too."""
    rng = np.random.default_rng(9)
    X = rng.normal(size=(61, 3))
    names = [f"patient {k}" for k in range(61)]
    with pm.Model(coords={"patient": names, "column": list("abc")}):
        rows = pm.Data("X", X, dims=("patient", "column"))
        scores = pm.Deterministic("scores", rows @ pm.Normal("theta", dims="column"), dims="patient")
        pac.AUCPotential("auc", scores, X[:, 0] + rng.normal(size=61) > 0, gamma=30.0)
        if engine == "ep":
            approx = pm.fit(method=pac.EP(), progressbar=False)
            draws = approx.sample(61, random_seed=1)
            with pytest.raises(TypeError, match=r"pass approx.sample\(\)"):
                pac.results.without_data(approx)
        else:
            draws = pm.sample(61, step=pac.TemperingSMC(), chains=1, random_seed=1, progressbar=False)
    kept = pac.results.without_data(draws)
    assert b"patient 7" in pickle.dumps(draws)
    found = pickle.dumps(kept)
    assert b"patient" not in found
    assert not any(value.tobytes() in found for value in X.ravel())
    assert set(kept["posterior"].data_vars) == {"theta", "auc_risk"}
    new = rng.normal(size=(5, 3))
    np.testing.assert_array_equal(pac.predict_scores(kept, new), pac.predict_scores(draws, new))
    assert pac.certificate(kept).auc == pac.certificate(draws).auc
    pd.testing.assert_frame_equal(pac.summary(kept), pac.summary(draws))
    kept.to_netcdf(tmp_path / "draws.nc")
