"""AUC terms of a model."""

import numpy as np
import pymc as pm
import pytest

import pymc_pacauc as pac
from pymc_pacauc.analysis.gamma_path import log_evidence
from pymc_pacauc.certify.certificate import certificate
from pymc_pacauc.model.potential import AUCPotential, auc_risk
from pymc_pacauc.model.step import TemperingSMC
from tests.model.test_read import X, Y
from tests.model.test_step import sample
from tests.oracles import exact_plane, plane_data

pytestmark = pytest.mark.usefixtures("quick_compilation")


def test_a_random_gamma_is_refused():
    """exp(-gamma * risk) is not normalised in gamma: its posterior would collapse."""
    with pm.Model():
        theta, gamma = pm.Normal("theta", size=3), pm.HalfNormal("gamma")
        with pytest.raises(ValueError, match=r"gamma of auc is random \(gamma\).*select_gamma"):
            pac.AUCPotential("auc", X @ theta, Y, gamma=gamma)
        pm.Potential("by_hand", -gamma * pac.auc_risk(X @ theta, Y))
        for use in (lambda: pm.fit(method=pac.EP(), progressbar=False), pac.TemperingSMC):
            with pytest.raises(ValueError, match=r"gamma of by_hand is random"):
                use()


def test_risk_expression_alone_does_not_count():
    with pm.Model():
        theta = pm.Normal("theta", size=2)
        pm.Deterministic("risk", auc_risk(plane_data()[0] @ theta, plane_data()[1]))
        assert not TemperingSMC.competence(theta, True)


def test_two_auc_terms_have_the_sum_of_their_gammas_and_the_mean_of_their_risks():
    X, y = plane_data()
    with pm.Model() as model:
        theta = pm.Normal("theta", size=2)
        AUCPotential("first", X @ theta, y, gamma=12.0)
        AUCPotential("second", X @ theta, 1 - y, gamma=4.0)
    idata = sample(model, draws=200, particles=200)
    stats_, posterior = idata["sample_stats"], idata["posterior"]
    assert (stats_["gamma"].values == 16.0).all()
    mean = (12.0 * posterior["first_risk"] + 4.0 * posterior["second_risk"]) / 16.0
    np.testing.assert_allclose(stats_["risk"], mean)
    np.testing.assert_allclose(stats_["log_tilt"], -stats_["risk"])
    with pytest.raises(ValueError, match="result has 2 AUC terms"):
        certificate(idata)
    exact = exact_plane(X, y, 8.0)  # the second term takes a third of the first one back: exp(-12 R - 4 (1 - R))
    result = log_evidence(idata)
    assert abs(result.estimate - (exact.log_evidence - 4.0)) < 4 * result.standard_error
