"""Spike-and-slab priors in PyMC: the variable, EP and SMC through PyMC, the path."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_pacauc as pac
from pymc_pacauc import fitting
from pymc_pacauc.model.prior import sparse_variables
from pymc_pacauc.model.read import problem_of
from pymc_pacauc.problem.problem import spike_slab_problem
from tests.oracles import plane_data, sparse_data
from tests.quadrature import exact_spike_slab_plane

# -- PyMC --------------------------------------------------------------------------------------------------------------


def sparse_model(v0, p=0.2, n=120):
    X, y, _ = sparse_data(n, 4, active=(1.5, -1.0))
    with pm.Model(coords={"feature": list("abcd")}) as model:
        data = pm.Data("X", X)
        theta = pac.SpikeSlab("theta", p=p, v0=v0, dims="feature")
        pac.AUCPotential("auc", data @ theta, y, gamma=float(n))
    return model, X, y


@pytest.mark.parametrize("v0", [0.0, 0.05])
def test_the_variable_in_a_model(v0):
    model, _, _ = sparse_model(v0)
    point = model.initial_point()
    assert np.isfinite(model.compile_logp(mode="FAST_COMPILE")(point))
    with model:
        theta = pm.draw(model["theta"], draws=4000, random_seed=1, mode="FAST_COMPILE")
    expected = 0.2 + 0.8 * v0
    assert theta.shape == (4000, 4)
    assert theta.var() == pytest.approx(expected, rel=0.1)
    assert np.mean(theta == 0) == pytest.approx(0.8 if v0 == 0 else 0.0, abs=0.02)


def test_the_mixture_has_the_density_of_the_paper():
    model, _, _ = sparse_model(0.05)
    x = np.array([0.3, -1.0, 0.0, 2.0])
    logp = model.compile_logp(vars=[model["theta"]], mode="FAST_COMPILE")({"theta": x})
    density = 0.2 * stats.norm.pdf(x, 0, 1) + 0.8 * stats.norm.pdf(x, 0, np.sqrt(0.05))
    assert logp == pytest.approx(np.log(density).sum())


def test_theorem_defaults_are_used():
    with pm.Model() as model:
        pac.SpikeSlab("a", shape=7)
        pac.SpikeSlab("c", shape=81)
    dirac, many = sparse_variables(model)
    np.testing.assert_allclose(dirac.read(), [[1 - np.exp(-1 / 7)] * 7, [0.0] * 7, [1.0] * 7])
    assert dirac.dirac
    np.testing.assert_allclose(many.read()[0], 0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": 3, "p": 1.0}, "p, the probability"),
        ({"shape": 3, "v0": 2.0}, "at most v1"),
        ({"shape": 3, "v0": [0.0, 0.1, 0.1]}, "for none"),
        ({}, "shape= or dims="),
        ({"dims": "nowhere"}, "unknown to the model"),
    ],
)
def test_bad_variables_are_refused(options, message):
    with pm.Model(), pytest.raises(ValueError, match=message):
        pac.SpikeSlab("theta", **options)


@pytest.mark.parametrize("v0", [0.0, 0.05])
def test_fit_through_pymc(v0):
    model, X, y = sparse_model(v0)
    with model:
        approx = pm.fit(method=pac.EP(), progressbar=False)
    direct = fitting.fit(spike_slab_problem(X, y, 120.0, inclusion_probability=0.2, v0=v0), tolerance=1e-6)
    np.testing.assert_allclose(approx.q.mean, direct.posterior.mean, atol=1e-5)
    assert approx.inclusion_probability.dims == ("feature",)
    assert approx.inclusion_probability.sel(feature="a") > (0.8 if v0 == 0 else 0.4)  # v0 > 0: all may be spikes
    assert approx.inclusion_probability.sel(feature="c") < 0.1
    assert approx.model_average.standard_error.max() < 0.02
    assert approx.expected_model_size == pytest.approx(float(approx.inclusion_probability.sum()))
    draws = approx.sample(4000, random_seed=1)["posterior"]
    sd = np.sqrt(np.diagonal(approx.posterior.covariance))
    np.testing.assert_allclose(draws["theta"].mean(("chain", "draw")), approx.posterior.mean, atol=0.06)
    np.testing.assert_allclose(draws["theta"].std(("chain", "draw")), sd, rtol=0.1, atol=0.01)
    if v0 == 0:
        included = draws["theta_included"].mean(("chain", "draw"))
        np.testing.assert_allclose(included, approx.inclusion_probability, atol=0.015)  # of rare models, too
        np.testing.assert_array_equal(draws["theta"].values != 0, draws["theta_included"].values)
    predicted = pac.predict_scores(approx, X[:5], summary=True)
    np.testing.assert_allclose(predicted["mean"], X[:5] @ approx.q.mean, atol=1e-10)


def test_gaussian_variables_beside_a_spike_slab():
    X, y, _ = sparse_data(80, 5, active=(1.5, -1.0))
    with pm.Model() as model:
        before = pm.Normal("before", 0.5, 2.0, shape=2)
        theta = pac.SpikeSlab("theta", p=0.2, v0=0.1, shape=3)
        pac.AUCPotential("auc", X[:, :2] @ before + X[:, 2:] @ theta, y, gamma=40.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    problem = problem_of(model).problem
    np.testing.assert_allclose(problem.prior.mean, [0.5, 0.5, 0, 0, 0])
    np.testing.assert_allclose(problem.spikes.inclusion_probability, [1, 1, 0.2, 0.2, 0.2])
    draws = approx.sample(3000, random_seed=1)["posterior"]
    np.testing.assert_allclose(draws["before"].mean(("chain", "draw")), approx.posterior.mean[:2], atol=0.15)
    np.testing.assert_allclose(draws["theta"].mean(("chain", "draw")), approx.posterior.mean[2:], atol=0.05)


def test_variational_bayes_is_refused():
    model, _, _ = sparse_model(0.05)
    with model, pytest.raises(ValueError, match="for Gaussian priors"):
        pm.fit(method=pac.GaussianVB(), progressbar=False)


def tempered(**options):
    options |= {"chains": 4, "cores": 1, "progressbar": False, "compute_convergence_checks": False}
    return pm.sample(1000, step=pac.TemperingSMC(particles=1000), **options)


@pytest.mark.parametrize("v0", [0.0, 0.2])
def test_smc_against_the_exact_plane(v0):
    X, y = plane_data()
    exact = exact_spike_slab_plane(X, y, 20.0, 0.5, v0, 1.0)
    with pm.Model():
        theta = pac.SpikeSlab("theta", p=0.5, v0=v0, shape=2)
        pac.AUCPotential("auc", X @ theta, y, gamma=20.0)
        idata = tempered(tune=20, random_seed=3)
        by_chain = [
            pac.inclusion_probability({"posterior": idata["posterior"].isel(chain=[c])}).values for c in range(4)
        ]
    error = np.std(by_chain, axis=0, ddof=1) / 2
    assert np.max(error) < 0.02
    np.testing.assert_array_less(np.abs(np.mean(by_chain, axis=0) - exact.inclusion), 3 * np.maximum(error, 0.005))
    found = pac.log_evidence(idata)
    assert abs(found.estimate - exact.log_evidence) < 3 * max(found.standard_error, 0.02)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*TemperingSMC:UserWarning")
@pytest.mark.parametrize("v0", [0.0, 0.05])
def test_smc_and_the_average_over_models_agree_for_six_coefficients(v0):
    """Two exact methods that share the risk alone: tempering from the prior, importance weights from EP's sites."""
    X, y, _ = sparse_data(150, 6, active=(1.5, -1.0, 0.4))
    with pm.Model() as model:
        theta = pac.SpikeSlab("theta", p=0.3, v0=v0, shape=6)
        pac.AUCPotential("auc", X @ theta, y, gamma=60.0)
        average = pm.fit(method=pac.EP(), progressbar=False).model_average
        idata = tempered(random_seed=1)
    by_chain = [
        pac.inclusion_probability({"posterior": idata["posterior"].isel(chain=[c])}, model=model).values
        for c in range(4)
    ]
    error = np.hypot(np.std(by_chain, axis=0, ddof=1) / 2, average.standard_error)
    assert error.max() < 0.02
    np.testing.assert_array_less(np.abs(np.mean(by_chain, axis=0) - average.inclusion), 3.5 * np.maximum(error, 0.004))
    found = pac.log_evidence(idata)
    assert abs(found.estimate - average.log_evidence) < 3.5 * np.hypot(found.standard_error, average.log_evidence_se)


# -- the path ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_path_agrees_with_single_fits():
    X, y, _ = sparse_data(150, 6, active=(1.5, -1.0))
    path = pac.regularization_path((X, y), v0=[1e-4, 1e-2, 1e-1], gamma=150.0, p=0.2, tolerance=1e-6)
    assert path["coefficient"].dims == ("v0", "feature")
    assert path["converged"].all()
    single = fitting.fit(spike_slab_problem(X, y, 150.0, inclusion_probability=0.2, v0=1e-2), tolerance=1e-6)
    np.testing.assert_allclose(path["coefficient"].sel(v0=1e-2), single.posterior.mean, atol=1e-3)
    assert path["log_evidence"].sel(v0=1e-2) == pytest.approx(single.log_evidence, abs=1e-3)


def test_the_path_of_a_model_has_its_coordinates():
    model, _, _ = sparse_model(0.05)
    path = pac.regularization_path(model, v0=[1e-2, 1e-1])
    assert path["feature"].values.tolist() == list("abcd")
    with pm.Model() as plain:
        pac.AUCPotential("auc", np.eye(2) @ pm.Normal("theta", size=2), [0, 1], gamma=1.0)
    with pytest.raises(ValueError, match="SpikeSlab"):
        pac.regularization_path(plain)


@pytest.mark.slow
def test_dna_converges():
    data = pac.datasets.load_dna()
    path = pac.regularization_path(data, v0=[1e-3, 1e-2, 1e-1], gamma=float(len(data.y)))
    assert path["converged"].all()
