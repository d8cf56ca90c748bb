"""Paths of models that are evaluated as one vectorised graph."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

from pymc_pacauc.analysis.gamma_path import at_gamma, log_evidence
from pymc_pacauc.model.graph_path import PyMCPath
from pymc_pacauc.model.potential import AUCPotential
from pymc_pacauc.smc.paths import Population
from tests.model.test_step import GAMMA, sample
from tests.oracles import exact_line, exact_plane, line_data, plane_data

pytestmark = pytest.mark.usefixtures("quick_compilation")


def test_transformed_variables_and_hierarchies():
    """The evidence of a scale-free score does not depend on a hierarchical scale, however it is written."""
    exact = exact_plane(*plane_data(), GAMMA)
    X, y = plane_data()
    with pm.Model() as model:
        scale = pm.Gamma("scale", 3.0, 1.0)
        direction = pm.Normal("direction", size=2)
        AUCPotential("auc", pm.math.tanh(X @ (scale * direction)), y, gamma=GAMMA)
    idata = sample(model, draws=1000)
    result = log_evidence(idata)
    assert abs(result.estimate - exact.log_evidence) < 3 * result.standard_error
    scale = idata["posterior"]["scale"].values.ravel()
    assert stats.kstest(scale, stats.gamma(3.0).cdf).pvalue > 0.001  # the data say nothing about it
    logp = model.compile_logp()
    point = {"scale_log__": np.log(scale[0]), "direction": idata["posterior"]["direction"].values[0, 0]}
    assert idata["sample_stats"]["lp"].values[0, 0] == pytest.approx(float(logp(point)))


@pytest.mark.parametrize("absorbed", [True, False])
def test_other_data_terms(absorbed):
    """An observed Normal is a part of the prior; other terms, here the same one as a potential, are tempered along.

    The evidence of both is the AUC's under the conjugate posterior.
    """
    x, _, y = line_data()
    with pm.Model() as model:
        theta = pm.Normal("theta")
        if absorbed:
            pm.Normal("z", theta, 0.8, observed=0.9)
        else:
            pm.Potential("z", pm.logp(pm.Normal.dist(theta, 0.8), 0.9))
        AUCPotential("auc", x * theta, y, gamma=10.0)
    idata = sample(model, draws=500, chains=4, keep_particles=True)
    result = log_evidence(idata)
    marginal = stats.norm(0, np.sqrt(1 + 0.8**2)).logpdf(0.9)

    def given(gamma, power):
        """The AUC's posterior given the observation, raised to the power."""
        precision = power / 0.8**2
        variance = 1 / (1 + precision)
        return exact_line(x, y, gamma, prior_mean=variance * 0.9 * precision, prior_sd=np.sqrt(variance))

    assert abs(result.estimate - marginal - given(10.0, 1.0).log_evidence) < 3 * result.standard_error
    with model:
        half = at_gamma(idata, 5.0, random_seed=0)
    theta, effective = half["theta"].values, half["particle_ess"].values.sum()
    error = theta.std() / np.sqrt(effective)
    assert abs(theta.mean() - given(5.0, 1.0 if absorbed else 0.5).mean) < 3 * error


def test_start_from_a_fit_of_a_nonlinear_model():
    x, _, y = line_data()
    with pm.Model() as model:
        theta = pm.Normal("theta")
        AUCPotential("auc", pm.math.tanh(x * theta), y, gamma=10.0)
    result = log_evidence(sample(model, chains=4, start=([0.8], [[0.6]])))
    assert abs(result.estimate - exact_line(x, y, 10.0).log_evidence) < 3 * result.standard_error


def test_models_without_one_gamma_temper_all_data():
    """No AUC term at all: plain tempering of the likelihood, whose evidence is known."""
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Normal("z", mu, observed=[0.3, 1.2])
    idata = sample(model, chains=4)
    result = log_evidence(idata)
    exact = stats.multivariate_normal(np.zeros(2), np.eye(2) + 1).logpdf([0.3, 1.2])
    assert abs(result.estimate - exact) < 3 * result.standard_error
    assert (idata["sample_stats"]["gamma"].values == 1.0).all()


def test_rows_of_a_matrix_with_learned_correlations():
    """Whitened coordinates are inverted, and densities differ by the factor's determinant for each row."""
    rng = np.random.default_rng(3)
    X, group = rng.normal(size=(30, 2)), np.arange(30) % 3
    with pm.Model() as model:
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.HalfNormal.dist(1.0), compute_corr=True)
        b = pm.MvNormal("b", pm.Normal("mu", shape=2), chol=chol, shape=(3, 2))
        AUCPotential("auc", (X * b[group]).sum(axis=1), X[:, 0] > 0.2, gamma=GAMMA)
    path = PyMCPath(model)
    x = path.draw(20, rng)
    energies = path.evaluate(x)
    theta, risk = path.finish(Population(x, energies, np.arange(20)), rng)
    np.testing.assert_allclose(path.x_of(theta), x, atol=1e-8)
    log_determinant = theta[:, 0] + theta[:, 2]  # logarithms of the factor's diagonal
    moved = energies.log_base + path.end * energies.log_tilt - 3.0 * log_determinant
    np.testing.assert_allclose(path.log_density(theta, risk)[0], moved, rtol=1e-8)
