"""A posterior as the prior of the next batch."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.special import logsumexp

import pymc_pacauc as pac
from pymc_pacauc.model.prior import log_mixture_of_normals

rng = np.random.default_rng(5)
X = rng.normal(size=(120, 3))
y = (X @ [1.0, -0.5, 0.0] + rng.logistic(size=120) > 0).astype(int)
COORDS = {"covariate": ["a", "b", "c"]}


def fitted(rows, prior, gamma=40.0):
    with pm.Model(coords=COORDS) as model:
        pac.AUCPotential("auc", X[rows] @ prior(), y[rows], gamma=gamma)
        return model, pm.fit(method=pac.EP(tolerance=1e-9), progressbar=False)


@pytest.fixture(scope="module")
def yesterday():
    return fitted(slice(0, 60), lambda: pm.Normal("theta", dims="covariate"))[1]


def test_the_variable_has_the_moments_and_dims_of_q(yesterday):
    with pm.Model(coords=COORDS) as model:
        theta = pac.prior_from(yesterday, "theta")
    assert model.named_vars_to_dims["theta"] == ("covariate",)
    mean, covariance = (each.eval() for each in theta.owner.op.dist_params(theta.owner))
    np.testing.assert_allclose(mean, yesterday.q.mean)
    np.testing.assert_allclose(covariance, yesterday.q.covariance, atol=1e-12)
    with pm.Model() as bare:
        pac.prior_from(yesterday, "theta", as_name="b")
    assert [v.name for v in bare.free_RVs] == ["b"]


def test_two_batches_are_one_problem_with_a_stratum_each(yesterday):
    """EP on today's rows from yesterday's posterior is close to EP on the pairs within both batches at once."""
    _, today = fitted(slice(60, 120), lambda: pac.prior_from(yesterday, "theta"))
    with pm.Model():
        theta = pm.Normal("theta", shape=3)
        pac.AUCPotential("one", X[:60] @ theta, y[:60], gamma=40.0)
        pac.AUCPotential("two", X[60:] @ theta, y[60:], gamma=40.0)
        both = pm.fit(method=pac.EP(), progressbar=False)
    sd = np.sqrt(np.diagonal(both.q.covariance))
    directions = [each.q.mean / np.linalg.norm(each.q.mean) for each in (today, both)]
    assert np.abs(directions[0] - directions[1]).max() < 0.1 * sd.max()


def test_scalars_and_matrices():
    with pm.Model():
        level, theta = pm.Normal("level", 0.0, 2.0), pm.Normal("theta", shape=(3, 1))
        pac.AUCPotential("auc", (X @ theta)[:, 0] + level * X[:, 0], y, gamma=40.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    with pm.Model() as model:
        scalar, matrix = pac.prior_from(approx, "level"), pac.prior_from(approx, "theta")
    assert scalar.type.ndim == 0
    assert matrix.eval(mode="FAST_COMPILE").shape == (3, 1)
    assert [v.name for v in model.free_RVs] == ["level", "theta_flat"]


@pytest.fixture(scope="module")
def mixture():
    with pm.Model(coords=COORDS):
        s = pm.HalfNormal("s", 1.0)
        theta = pm.Normal("theta", 0.0, pm.math.stack([1.0, s, s]), dims="covariate")
        pac.AUCPotential("auc", X[:60] @ theta, y[:60], gamma=40.0)
        return pm.fit(method=pac.EP(), progressbar=False)


def test_where_hyper_parameters_were_integrated_the_prior_has_the_moments_of_their_mixture(mixture):
    part = mixture.source.parts["theta"]
    with pm.Model(coords=COORDS) as model:
        theta = pac.prior_from(mixture, "theta")
        pac.AUCPotential("auc", X[60:] @ theta, y[60:], gamma=40.0)
        today = pm.fit(method=pac.EP(), progressbar=False)
    assert model.named_vars_to_dims["theta"] == ("covariate",)
    mean, covariance = (each.eval() for each in theta.owner.op.dist_params(theta.owner))
    np.testing.assert_allclose(mean, mixture.q.mean[part])
    np.testing.assert_allclose(covariance, mixture.q.covariance[part, part], atol=1e-12)
    assert today.converged
    with pm.Model(), pytest.raises(ValueError, match=r"no coefficients 's'; it has theta\..*hyper_posterior"):
        pac.prior_from(mixture, "s")


def test_a_mixture_of_gaussians_is_refused_by_name():
    parts = [pm.MvNormal.dist(np.full(3, at), np.eye(3)) for at in (0.0, 1.0)]
    with pm.Model():
        theta = pm.Mixture("theta", w=[0.5, 0.5], comp_dists=parts)
        pac.AUCPotential("auc", X @ theta, y, gamma=40.0)
        with pytest.raises(pac.results.NotLinearGaussianError, match=r"prior of theta is not Gaussian.*TemperingSMC"):
            pm.fit(method=pac.EP(), progressbar=False)


def test_what_cannot_be_handed_on_is_refused(yesterday):
    with pm.Model(), pytest.raises(ValueError, match="has no coefficients 'beta'; it has theta"):
        pac.prior_from(yesterday, "beta")
    with pm.Model(), pytest.raises(TypeError, match=r"must be the result of pm\.fit"):
        pac.prior_from(yesterday.sample(10), "theta")
    _, signed = fitted(slice(0, 60), lambda: pm.HalfNormal("theta", dims="covariate"))
    with pm.Model(), pytest.raises(ValueError, match="a sign, a range, a spike"):
        pac.prior_from(signed, "theta")


def test_a_mixture_of_normals_is_scipys():
    rng = np.random.default_rng(1)
    x, sd, log_mass = rng.standard_cauchy(50), np.exp(rng.normal(size=30)), np.log(rng.dirichlet(np.ones(30)))
    expected = logsumexp(log_mass + stats.norm.logpdf(x[:, None], 0.0, sd), axis=1)
    np.testing.assert_allclose(log_mixture_of_normals(x, sd, log_mass), expected, rtol=1e-12)


def test_zero_sum_effects_are_drawn_summarised_predicted_and_exported_in_their_own_coordinates():
    rng = np.random.default_rng(2)
    X, group = rng.normal(size=(60, 3)), np.arange(60) % 4
    y = X[:, 0] + 0.8 * (group == 1) + rng.normal(size=60) > 0.5
    with pm.Model(coords={"group": list("abcd"), "column": list("xyz")}):
        columns, code = pm.Data("X", X, dims=(None, "column")), pm.Data("code", group)
        level = pm.ZeroSumNormal("level", dims="group")
        theta = pm.ZeroSumNormal("theta", dims="column")
        pac.AUCPotential("auc", columns @ theta + level[code], y, gamma=60.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    idata = approx.sample(4000, random_seed=1)
    drawn = idata["posterior"]
    assert drawn["level"].shape == (1, 4000, 4)
    new = {"X": X[:6], "code": np.array([0, 1, 2, 3, 3, 0])}
    scores = drawn["theta"].values[0] @ X[:6].T + drawn["level"].values[0][:, new["code"]]
    predicted = pac.predict_scores(approx, new, summary=True)
    np.testing.assert_allclose(predicted["mean"], scores.mean(axis=0), atol=0.15 * scores.std(axis=0).max())
    np.testing.assert_allclose(predicted["sd"], scores.std(axis=0), rtol=0.06)
    table = pac.summary(approx, var_names=["level", "theta"])
    np.testing.assert_allclose(
        table["mean"],
        np.append(drawn["level"].mean(("chain", "draw")), drawn["theta"].mean(("chain", "draw"))),
        atol=0.05,
    )
    with pm.Model(coords={"column": list("xyz")}):
        columns = pm.Data("X", X, dims=(None, "column"))
        pac.AUCPotential("auc", columns @ pm.ZeroSumNormal("theta", dims="column"), y, gamma=60.0)
        linear = pm.fit(method=pac.EP(), progressbar=False)
    weights = np.array(pac.export(linear)["weights"])
    mean = linear.sample(4000, random_seed=1)["posterior"]["theta"].mean(("chain", "draw")).values
    assert weights.shape == (3,)
    assert weights @ mean > 0.999 * np.linalg.norm(weights) * np.linalg.norm(mean)  # the same direction
    with pm.Model(), pytest.raises(ValueError, match="a sum of zero"):
        pac.prior_from(linear, "theta")
