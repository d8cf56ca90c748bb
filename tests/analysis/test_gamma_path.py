"""The path of tempering SMC, read out of its draws."""

import numpy as np
import pytest
import xarray as xr

from pymc_pacauc.analysis.gamma_path import at_gamma, log_evidence, tempering_path
from pymc_pacauc.smc.tempering import TemperingWarning
from tests.model.test_step import GAMMA, plane_model, sample
from tests.oracles import exact_plane, plane_data

pytestmark = pytest.mark.usefixtures("quick_compilation")


def test_posterior_at_gamma_without_kept_particles():
    exact = exact_plane(*plane_data(), GAMMA)
    idata = sample(plane_model())
    posterior = at_gamma(idata, 50.0, random_seed=0)  # needs no model
    error = np.sqrt(exact.at(50.0).risk_variance / posterior["particle_ess"].values.sum())
    assert abs(float(posterior["auc_risk"].mean()) - exact.at(50.0).expected_risk) < 4 * error
    with pytest.warns(TemperingWarning, match="keep_particles=True"):
        at_gamma(idata, 1.0)
    with pytest.raises(ValueError, match="between 0 and the gamma sampled, 60"):
        at_gamma(idata, 61.0)


def test_fewer_draws_than_stages():
    idata = sample(plane_model(), draws=2)
    with pytest.warns(TemperingWarning, match=r"no record of [0-9]+ stage\(s\) \(0 of chain 0"):
        path = tempering_path(idata)
    assert np.isnan(path["gamma"].values[0, 0])
    assert path["gamma"].values[0, -1] == GAMMA
    assert np.isfinite(log_evidence(idata).estimate)


def test_no_path_in_other_samplers():
    with pytest.raises(TypeError, match="idata must come from"):
        tempering_path({"sample_stats": xr.Dataset()})
