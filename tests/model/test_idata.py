"""Draws as ArviZ data."""

import numpy as np

import pymc_pacauc as pac


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
