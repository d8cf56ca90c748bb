"""A model of three coefficients and an intercept, and its approximation."""

import numpy as np
import pymc as pm
import pytest

import pymc_pacauc as pac


@pytest.fixture(scope="session")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    return X, (X[:, 0] + rng.standard_normal(60) > 0.3).astype(int)


@pytest.fixture(scope="session")
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


@pytest.fixture(scope="session")
def approx(model):
    with model:
        return pm.fit(method=pac.EP(), progressbar=False)
