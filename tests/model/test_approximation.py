import pickle

import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pymc_pacauc as pac
from pymc_pacauc import fitting
from pymc_pacauc.problem.problem import linear_gaussian_problem


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
    expected = weights @ pac.arrays.linear_risk(prior, *data) / weights.sum()
    weight = np.exp(sample.idata["sample_stats"]["log_weight"])
    risk = (weight * sample.idata["posterior"]["auc_risk"]).mean()
    assert float(risk) == pytest.approx(expected, abs=0.002)


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
