"""Posterior prediction the PyMC way."""

import numpy as np
import pymc as pm

import pymc_pacauc as pac
from pymc_pacauc.model.score_function import predictive_model
from tests.analysis.test_predict import X_new, build


def test_the_pymc_way():
    """pm.Data, pm.set_data, pm.sample_posterior_predictive, without warnings; the model is untouched."""
    model = build()
    with model:
        idata = pm.fit(method=pac.EP(), progressbar=False).sample(400, random_seed=1)
    with predictive_model(model) as predictive:
        pm.set_data({"X": X_new}, coords={"row": np.arange(7)})
        predicted = pm.sample_posterior_predictive(idata, var_names=["scores"], progressbar=False)
    scores = predicted["posterior_predictive"]["scores"]
    np.testing.assert_allclose(scores, idata["posterior"]["theta"].values @ X_new.T)
    assert model["X"].get_value().shape == (80, 3)
    assert set(predictive.named_vars) == {"X", "theta", "scores"}
