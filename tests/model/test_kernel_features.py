"""Kernel features in a model."""

import numpy as np
import pymc as pm
import pytest

import pymc_pacauc as pac
from tests.model.test_gp import fit, ring_data
from tests.model.test_read_low_rank import model_of


def test_features_in_a_model():
    X, y = ring_data(120)
    new = ring_data(9, seed=1)[0]
    for kernel in ("squared_exponential", pm.gp.cov.ExpQuad(2, ls=1.0)):
        features = pac.kernel_features(X, kernel, lengthscale=1.0, rank=25)
        with pm.Model() as model:
            rows = pm.Data("X", X)
            theta = pm.Normal("theta", shape=features.rank)
            pac.AUCPotential("auc", features(rows) @ theta, y, gamma=120.0)
            approx = pm.fit(method=pac.EP(), progressbar=False)
        expected = features.transform(new) @ approx.q.mean
        np.testing.assert_allclose(pac.predict_scores(approx, new, summary=True)["mean"], expected)
        np.testing.assert_allclose(features(X), features.transform(X))
        assert np.isfinite(model.compile_logp()(model.initial_point()))
    with pytest.raises(ValueError, match="X must be a matrix"):
        features(model["theta"])


@pytest.mark.slow
def test_smc_moves_the_features():
    model, gp = model_of(n=80)
    approx = fit(model)
    with model:
        idata = pm.sample(
            400,
            tune=20,
            step=pac.TemperingSMC(particles=400, start=approx),
            chains=2,
            cores=1,
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
        )
    found = pac.log_evidence(idata)
    weighted = approx.importance_sample(4000, random_seed=1)
    assert idata["posterior"]["scores"].shape[-1] == 80
    assert found.estimate == pytest.approx(weighted.log_evidence, abs=0.3)
    draws = pac.predict_scores(idata, [[0.1, 0.2]], gp=gp, model=model, summary=True)
    by_ep = pac.predict_scores(approx, [[0.1, 0.2]], gp=gp, summary=True)
    assert float(draws["mean"][0]) == pytest.approx(float(by_ep["mean"][0]), abs=0.3)


def test_additive_features_in_a_model():
    rng = np.random.default_rng(1)
    X, new = rng.normal(size=(80, 2)), rng.normal(size=(5, 2))
    features = pac.additive_features(X)
    with pm.Model():
        theta = pm.Normal("theta", sigma=features.prior_scale(bend=2.0), shape=features.rank)
        pac.AUCPotential("auc", features(pm.Data("X", X)) @ theta, X[:, 0] ** 2 > 0.5, gamma=80.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    expected = features.transform(new) @ approx.q.mean
    np.testing.assert_allclose(pac.predict_scores(approx, new, summary=True)["mean"], expected)
    assert any("features were made from these rows" in each for each in pac.certificate(approx).assumptions)
