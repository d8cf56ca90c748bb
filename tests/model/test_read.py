import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.model.transform.optimization import freeze_dims_and_data

import pymc_pacauc as pac
from pymc_pacauc.model.auc_term import NotLinearGaussianError
from pymc_pacauc.model.read import problem_of

RNG = np.random.default_rng(0)
X = RNG.standard_normal((30, 3))
Y = (X[:, 0] + RNG.standard_normal(30) > 0.3).astype(int)


def potential(scores, gamma=7.0, **kwargs):
    return pac.AUCPotential("auc", scores, Y, gamma, **kwargs)


def normal():
    potential(pm.Data("X", X) @ pm.Normal("theta", 0.5, [1.0, 2.0, 3.0], size=3), pm.Data("gamma", 7.0))


def correlated():
    potential(X @ pm.MvNormal("theta", np.ones(3), np.eye(3) + 0.5))


def intercept_and_deterministic():
    slope = pm.Deterministic("slope", 0.3 * pm.Normal("theta", size=3) + 2.0)
    potential(pm.Normal("alpha", 3.0, 2.0) + X @ slope)


def latent_process():
    potential(pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(3, ls=2.0)).prior("f", X=X))


def hilbert_space_process():
    potential(pm.gp.HSGP(m=[3, 3, 3], c=1.5, cov_func=pm.gp.cov.ExpQuad(3, ls=2.0)).prior("f", X=X))


@pytest.mark.parametrize(
    "build", [normal, correlated, intercept_and_deterministic, latent_process, hilbert_space_process]
)
def test_arrays_reproduce_the_model(build):
    with pm.Model() as model:
        build()
    extracted = problem_of(model)
    problem, variables = extracted.problem, extracted.layout
    assert problem.gamma == 7.0
    theta = np.random.default_rng(1).standard_normal((2, problem.d))
    prior, term = variables.function([model.varlogp, model.potentiallogp])(theta)
    for row, log_term in zip(theta, term, strict=True):
        risk = pac.empirical_risk(problem.X @ row + problem.offset, Y)
        assert log_term == pytest.approx(-7.0 * risk, abs=1e-10)
    w = problem.prior.whiten(theta)
    assert prior[0] - prior[1] == pytest.approx(-0.5 * (w[0] @ w[0] - w[1] @ w[1]), rel=1e-6)


def hierarchy():
    potential(X @ pm.Normal("theta", 0.0, pm.HalfNormal("tau"), size=3))


def population():
    mu, tau = pm.Normal("mu", size=3), pm.HalfNormal("tau")
    potential((X * pm.Normal("theta", mu, tau, shape=(2, 3))[np.arange(len(Y)) % 2]).sum(axis=1))


def saturated():
    potential(pt.tanh(X @ pm.Normal("theta", size=3)))


def product():
    potential(pm.Normal("alpha") * (X @ pm.Normal("theta", size=3)))


def likelihood():
    theta = pm.Normal("theta", size=3)
    potential(X @ theta)
    pm.Poisson("seen", pm.math.exp(theta.sum()), observed=2)


def other_potential():
    theta = pm.Normal("theta", size=3)
    potential(X @ theta)
    pm.Potential("other", theta.sum())


def switch():
    potential(X @ pm.Normal("theta", size=3) * pm.Bernoulli("z", 0.5))


def nothing():
    pm.Normal("theta")


def surrogate():
    potential(X @ pm.Normal("theta", size=3), loss="logistic", track_risk=False)


def shifted():
    pm.Potential("auc", 1.0 - pac.auc_risk(X @ pm.Normal("theta", size=3), Y))


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (hierarchy, "prior of tau is not Gaussian"),
        (population, "prior of tau is not Gaussian"),
        (saturated, "not affine in theta"),
        (product, "not affine in the combination of alpha, theta"),
        (likelihood, r"likelihood besides the AUC term that is not Gaussian \(seen\)"),
        (other_potential, r"other potentials \(other\)"),
        (switch, r"\bz are discrete"),
        (nothing, "it has no AUC term"),
        (surrogate, "smooth surrogate"),
        (shifted, "not of the form -gamma"),
    ],
)
def test_refusals_name_the_reason_and_the_way_out(build, reason):
    with pm.Model() as model:
        build()
    with pytest.raises(NotLinearGaussianError, match=reason) as caught:
        problem_of(model)
    assert "TemperingSMC" in str(caught.value)


def test_a_nan_in_the_covariates_is_named_by_its_row():
    holed = X.copy()
    holed[4, 1] = np.nan
    with pm.Model():
        pac.AUCPotential("auc", holed @ pm.Normal("theta", size=3), Y, gamma=5.0)
        for use in (lambda: pm.fit(method=pac.EP(), progressbar=False), pac.TemperingSMC):
            with pytest.raises(ValueError, match=r"scores of 1 observation\(s\) are NaN or infinite \(rows 4\)"):
                use()


@pytest.mark.parametrize("v0", [0.0, 0.05])
def test_frozen_models_are_fitted_as_they_are(v0):
    with pm.Model(coords={"covariate": list("abc"), "row": range(len(Y))}) as model:
        rows, labels = pm.Data("X", X, dims=("row", "covariate")), pm.Data("y", Y, dims="row")
        gamma = pm.Data("gamma", 20.0)
        theta = pm.Normal("theta", dims="covariate") if v0 else pac.SpikeSlab("theta", p=0.3, dims="covariate")
        pac.AUCPotential("auc", rows @ theta, labels, gamma=gamma)
    frozen = freeze_dims_and_data(model)
    fits = []
    for each in (model, frozen):
        with each:
            fits.append(pm.fit(method=pac.EP(), progressbar=False))
    np.testing.assert_allclose(fits[0].posterior.mean, fits[1].posterior.mean)
    assert fits[0].log_evidence == fits[1].log_evidence
    assert fits[1].sample(5)["posterior"]["theta"].dims == ("chain", "draw", "covariate")
    found = pac.select_gamma(frozen, [5.0, 20.0], folds=2, progressbar=False)
    assert found.best in (5.0, 20.0)
