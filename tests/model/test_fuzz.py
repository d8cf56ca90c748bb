"""What people write in a model, on data nobody chose: compiled once, other data each time."""

import warnings
from functools import cache
from unittest import mock

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import assume
from hypothesis import strategies as st
from scipy import stats
from scipy.special import ndtri

import pymc_pacauc as pac
from pymc_pacauc.arrays import kernel_features
from pymc_pacauc.fitting import fit
from pymc_pacauc.model.inference import MOST
from pymc_pacauc.model.read import ProblemReader
from pymc_pacauc.model.score_function import predictive_model
from pymc_pacauc.problem.problem import linear_gaussian_problem
from tests import pair_lists
from tests.comparison.test_fuzz import ties
from tests.comparison.test_risk import brute_force, scored
from tests.ep.test_fuzz import small
from tests.fuzzing import fuzz

pytestmark = pytest.mark.usefixtures("quick_compilation")

seeds = st.integers(0, 2**20)


# --- risks and potentials ---------------------------------------------------------------------------------------------


@cache
def risk_function(ties):
    scores, labels = pt.dvector("scores"), pytensor.shared(np.array([0, 1]))
    return pytensor.function([scores], pac.auc_risk(scores, labels, ties=ties)), labels


@fuzz("auc_risk", data=scored(st.one_of(st.integers(-3, 3).map(float), st.floats(-1e300, 1e300))), ties=ties)
def test_auc_risk_in_a_graph(data, ties):
    """Against brute force, for any number of rows."""
    scores, y = data
    risk, labels = risk_function(ties)
    labels.set_value(y.astype(np.int64))
    assert risk(scores) == pytest.approx(brute_force(scores, y, ties)[0], abs=1e-12)
    labels.set_value(2 * y.astype(np.int64) - 1)
    assert risk(scores) == pytest.approx(brute_force(scores, y, ties)[0], abs=1e-12)


def of_values(model, *graphs):
    """A function of the values of the model's free variables."""
    return pytensor.function(model.value_vars, model.replace_rvs_by_values(graphs))


@cache
def potential_model(loss):
    with pm.Model() as model:
        X, y, gamma = pm.Data("X", np.eye(2)), pm.Data("y", [0, 1]), pm.Data("gamma", 1.0)
        theta = pm.Normal("theta", 0.5, 2.0, shape=2)
        pac.AUCPotential("auc", X @ theta, y, gamma=gamma, loss=loss)
    return model, model.compile_logp(), of_values(model, model["auc_risk"])


@fuzz(
    "AUCPotential",
    data=small(columns=2),
    loss=st.sampled_from(["exact", "logistic"]),
    theta=st.tuples(st.integers(-3, 3), st.integers(-3, 3)),
)
def test_the_density_of_a_model(data, loss, theta):
    """The prior's times exp(-gamma * risk), whatever the data are now; a surrogate loss is never below the risk."""
    X, y, gamma, _ = data
    X, theta = np.column_stack([X, X])[:, :2], np.array(theta, dtype=float)
    model, logp, risk = potential_model(loss)
    with model:
        pm.set_data({"X": X, "y": y.astype(int), "gamma": gamma})
    exact = pac.empirical_risk(X @ theta, y)
    prior = stats.norm.logpdf(theta, 0.5, 2.0).sum()
    assert risk(theta)[0] == pytest.approx(exact, abs=1e-12)
    if loss == "exact":
        assert logp({"theta": theta}) == pytest.approx(prior - gamma * exact)
    else:
        assert logp({"theta": theta}) <= prior - gamma * exact + 1e-9


@cache
def concordance_model():
    with pm.Model() as model:
        X, time, event = pm.Data("X", np.ones((2, 1))), pm.Data("time", [1.0, 2.0]), pm.Data("event", [1, 0])
        strata, gamma = pm.Data("strata", [0, 0]), pm.Data("gamma", 1.0)
        theta = pm.Normal("theta", shape=1)
        pac.ConcordancePotential("c", X @ theta, time, event, gamma=gamma, strata=strata)
    return model, model.compile_logp()


@fuzz("ConcordancePotential", n=st.integers(2, 12), times=st.integers(1, 8), gamma=st.floats(0.1, 50), seed=seeds)
def test_the_density_of_a_model_of_times(n, times, gamma, seed):
    """Against a list of the pairs that can be compared."""
    rng = np.random.default_rng(seed)
    time, event, strata = rng.integers(0, times, n), rng.random(n) < 0.6, rng.integers(0, 2, n)
    X, theta = rng.integers(-2, 3, (n, 1)).astype(float), np.array([1.5])
    listed = pair_lists.censored_pairs(time, event, strata)
    assume(len(listed) > 0)
    model, logp = concordance_model()
    with model:
        values = {"X": X, "time": time.astype(float), "event": event.astype(int), "strata": strata, "gamma": gamma}
        pm.set_data(values)
    expected = stats.norm.logpdf(1.5) - gamma * pair_lists.listed_risk(X[:, 0] * 1.5, listed)
    assert logp({"theta": theta}) == pytest.approx(expected)
    assert pac.concordance_risk(X[:, 0] * 1.5, time, event, strata=strata) == pytest.approx(
        pair_lists.listed_risk(X[:, 0], listed)
    )


# --- features ---------------------------------------------------------------------------------------------------------


@cache
def covariance_of_pymc(columns):
    return pm.gp.cov.ExpQuad(columns, ls=1.0)


@fuzz(
    "kernel_features",
    fast=5,
    n=st.integers(2, 10),
    columns=st.integers(1, 2),
    rank=st.integers(1, 10),
    lengthscale=st.floats(0.3, 5.0),
    seed=seeds,
)
def test_kernel_features_in_a_graph(n, columns, rank, lengthscale, seed):
    """Those of the arrays, of rows that a graph holds and of new ones; a covariance of PyMC is the kernel it is."""
    rng = np.random.default_rng(seed)
    X, new = rng.normal(size=(n, columns)), rng.normal(size=(3, columns))
    of_arrays = kernel_features(X, lengthscale=lengthscale, rank=rank)
    features = pac.kernel_features(X, lengthscale=lengthscale, rank=rank)
    rows = pytensor.shared(X)
    scores = pytensor.function([], features(rows), mode="FAST_COMPILE")
    np.testing.assert_array_equal(scores(), of_arrays.transform(X))
    rows.set_value(new)
    np.testing.assert_array_equal(scores(), of_arrays.transform(new))
    np.testing.assert_array_equal(features(new), of_arrays.transform(new))
    by_pymc = pac.kernel_features(X, covariance_of_pymc(columns), lengthscale=lengthscale, rank=rank)
    np.testing.assert_allclose(by_pymc(X) @ by_pymc(X).T, features(X) @ features(X).T, atol=1e-5)


@fuzz(
    "additive_features",
    "arrays.AdditiveFeatures",
    fast=5,
    n=st.integers(1, 80),
    columns=st.integers(1, 3),
    digits=st.integers(0, 3),
    seed=seeds,
)
def test_additive_features_in_a_graph(n, columns, digits, seed):
    """Those of the arrays; centred, the lines increase, and beyond the data all is constant."""
    rng = np.random.default_rng(seed)
    X = rng.standard_t(2, size=(n, columns)).round(digits)
    features = pac.additive_features(X)
    assert isinstance(features, pac.arrays.AdditiveFeatures)
    rows = pytensor.shared(X)
    F = pytensor.function([], features(rows), mode="FAST_COMPILE")()
    np.testing.assert_array_equal(F, pac.arrays.additive_features(X).transform(X))
    np.testing.assert_allclose(F.mean(axis=0), 0.0, atol=1e-9)
    order = np.argsort(X, axis=0)
    assert (np.diff(np.take_along_axis(F[:, :columns], order, axis=0), axis=0) >= -1e-12).all()
    ends = np.array([X.min(axis=0), X.max(axis=0)])
    np.testing.assert_array_equal(features(np.array([ends[0] - 9.0, ends[1] + 9.0])), features(ends))


# --- sparse variables -------------------------------------------------------------------------------------------------


@cache
def sparse_model(point_mass):
    with pm.Model() as model:
        p, v0, v1 = pm.Data("p", 0.5), 0.0 if point_mass else pm.Data("v0", 0.1), pm.Data("v1", 1.0)
        theta = pac.SpikeSlab("theta", p=p, v0=v0, v1=v1, shape=3)
    values = of_values(model, theta, model["theta_included"]) if point_mass else None
    return model, model.compile_logp(), values


@fuzz("SpikeSlab", fast=10, p=st.floats(0.01, 0.99), ratio=st.floats(1e-4, 1.0), v1=st.floats(0.01, 100), seed=seeds)
def test_spike_and_slab(p, ratio, v1, seed):
    """The mixture's density; with a point mass, the slab where the latent says so, and its probability is p."""
    theta = np.random.default_rng(seed).normal(size=3) * np.sqrt(v1)
    model, logp, _ = sparse_model(False)
    with model:
        pm.set_data({"p": p, "v0": ratio * v1, "v1": v1})
    parts = [np.log(w) + stats.norm.logpdf(theta, 0, np.sqrt(v)) for w, v in ((p, v1), (1 - p, ratio * v1))]
    assert logp({"theta": theta}) == pytest.approx(np.logaddexp(*parts).sum())
    model, logp, values = sparse_model(True)
    with model:
        pm.set_data({"p": p, "v1": v1})
    latent = np.random.default_rng(seed + 1).normal(size=3)
    point = {"theta_slab": theta, "theta_latent": latent}
    found, included = values(*point.values())
    np.testing.assert_array_equal(included, latent < ndtri(p))
    np.testing.assert_array_equal(found, np.where(latent < ndtri(p), theta, 0.0))
    expected = stats.norm.logpdf(theta, 0, np.sqrt(v1)).sum() + stats.norm.logpdf(latent).sum()
    assert logp(point) == pytest.approx(expected)


# --- fits of a model --------------------------------------------------------------------------------------------------


@cache
def fitted_model():
    with pm.Model() as model:
        X, y, gamma = pm.Data("X", np.eye(2)), pm.Data("y", [0, 1]), pm.Data("gamma", 1.0)
        theta = pm.Normal("theta", 0.0, 1.0, shape=2)
        pm.Deterministic("scores", X @ theta)
        pac.AUCPotential("auc", X @ theta, y, gamma=gamma)
    return model, ProblemReader(model).read


@fuzz(
    "EP",
    "GaussianVB",
    "results.EPApproximation",
    "results.ScaleWarning",
    fast=10,
    data=small(columns=2),
    method=st.sampled_from([pac.EP, pac.GaussianVB]),
    power=st.integers(-5, 5),
)
def test_fits_of_a_model_are_those_of_its_arrays(data, method, power):
    """And a covariate of another scale is pointed out from a factor of a thousand on, not below."""
    X, y, gamma, _ = data
    X = np.column_stack([X, 10.0**power * X[::-1]])[:, [0, -1]]
    model, reader = fitted_model()
    with model:
        pm.set_data({"X": X, "y": y.astype(int), "gamma": gamma})
    with (
        mock.patch("pymc_pacauc.model.nested.problem_of", side_effect=lambda _: reader()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        with model:
            found = pm.fit(method=method(n_jobs=1), progressbar=False)
        expected = fit(linear_gaussian_problem(X, y, gamma), method.method, n_jobs=1)
        warnings.simplefilter("error", pac.results.ScaleWarning)
        sd = X.std(axis=0)
        if 1 / (MOST * (1 - 1e-9)) < sd[0] / sd[1] < MOST * (1 - 1e-9):
            with model:
                pm.fit(method=pac.EP(max_sweeps=1), progressbar=False)
        elif not 1 / (MOST * (1 + 1e-9)) < sd[0] / sd[1] < MOST * (1 + 1e-9):
            with pytest.raises(pac.results.ScaleWarning, match="very different scales"), model:
                pm.fit(method=pac.EP(max_sweeps=1), progressbar=False)
    assert isinstance(found, pac.results.EPApproximation)
    assert (found.log_evidence, found.expected_risk) == (expected.log_evidence, expected.expected_risk)
    np.testing.assert_array_equal(found.q.mean, expected.posterior.mean)
    assert found.fitted_to.gamma == gamma
    assert (found.fitted_to.n_pos, found.fitted_to.n_neg) == (y.sum(), (~y).sum())
    draws = found.sample(3, random_seed=1)
    theta = draws["posterior"]["theta"].values[0]
    np.testing.assert_allclose(draws["sample_stats"]["risk"].values[0], pac.arrays.linear_risk(theta, X, y))


@cache
def hierarchical_model():
    with pm.Model() as model:
        X, y, gamma = pm.Data("X", np.eye(2)), pm.Data("y", [0, 1]), pm.Data("gamma", 1.0)
        theta = pm.Normal("theta", 0.0, pm.math.stack([1.0, pm.HalfNormal("s", 1.0)]), shape=2)
        pac.AUCPotential("auc", X @ theta, y, gamma=gamma)
    return model


@fuzz("results.NestedApproximation", fast=3, data=small(columns=2))
def test_a_mixture_over_a_scale_lies_among_its_fits(data):
    """Evidence is the mean of those given the scale, which are at most one, and so is every other mean."""
    X, y, gamma, _ = data
    X = np.column_stack([X, X[::-1]])[:, [0, -1]]
    with hierarchical_model(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pm.set_data({"X": X, "y": y.astype(int), "gamma": gamma})
        found = pm.fit(method=pac.EP(n_jobs=1), progressbar=False)
    assert isinstance(found, pac.results.NestedApproximation)
    hyper = found.hyper_posterior
    assert float(hyper["weight"].sum()) == pytest.approx(1.0)
    assert (hyper["s"] > 0.0).all()
    assert -gamma <= found.log_evidence <= 0.01  # the sum over the lattice is one to this error
    risks = [each.expected_risk for each in found.nested.fits]
    assert min(risks) - 1e-12 <= found.expected_risk <= max(risks) + 1e-12
    drawn = found.sample(3, random_seed=1)
    theta = drawn["posterior"]["theta"].values[0]
    np.testing.assert_allclose(drawn["sample_stats"]["risk"].values[0], pac.arrays.linear_risk(theta, X, y))


REFUSED = {
    "a likelihood": lambda theta: pm.Laplace("seen", theta[0], 1.0, observed=1.0),
    "another potential": lambda theta: pm.Potential("other", -(theta[0] ** 2)),
    "a discrete variable": lambda theta: pm.Bernoulli("coin", 0.5),
    "an improper prior": lambda theta: pm.Flat("flat"),
}


@fuzz("results.NotLinearGaussianError", fast=10, data=small(columns=2), what=st.sampled_from(sorted(REFUSED)))
def test_models_that_are_not_linear_and_gaussian_are_refused(data, what):
    X, y, gamma, _ = data
    with pm.Model() as model:
        theta = pm.Normal("theta", shape=X.shape[1])
        pac.AUCPotential("auc", X @ theta, y, gamma=gamma)
        REFUSED[what](theta)
        for method in (pac.EP(), pac.GaussianVB()):
            with pytest.raises(pac.results.NotLinearGaussianError):
                pm.fit(method=method, progressbar=False)
    with pytest.raises(pac.results.NotLinearGaussianError):
        pac.select_gamma(model, [1.0], folds=2, progressbar=False)


@cache
def predictive():
    model, _ = fitted_model()
    copy = predictive_model(model)
    return copy, pytensor.function([copy["theta"]], copy["scores"])


@fuzz(rows=st.integers(1, 9), scale=st.integers(-30, 30), seed=seeds)
def test_a_predictive_model_scores_new_rows_and_leaves_the_model_alone(rows, scale, seed):
    rng = np.random.default_rng(seed)
    X, theta = 10.0**scale * rng.normal(size=(rows, 2)), rng.normal(size=2)
    model, _ = fitted_model()
    before = model["X"].get_value()
    copy, scores = predictive()
    with copy:
        pm.set_data({"X": X})
    np.testing.assert_allclose(scores(theta), X @ theta, rtol=1e-12, atol=1e-14 * 10.0**scale)
    np.testing.assert_array_equal(model["X"].get_value(), before)
    fresh = predictive_model(model)
    assert not fresh.potentials
    assert {v.name for v in fresh.data_vars} == {"X"}
    assert fresh.deterministics[0].name == "scores"


# --- draws ------------------------------------------------------------------------------------------------------------

ROWS = np.random.default_rng(4).normal(size=(24, 2))
LABELS = ROWS[:, 0] + np.random.default_rng(5).normal(size=24) > 0
STEPS = (
    {},
    {"move": "gaussian", "keep_particles": True},
    {"move": "prior", "ess_threshold": 0.8},
    {"move": "random_walk", "max_moves": 7},
    {"start": (np.array([1.0, 0.0]), np.eye(2))},
)


@cache
def step(number):
    with pm.Model() as model:
        theta = pm.Normal("theta", shape=2)
        pac.AUCPotential("auc", ROWS @ theta, LABELS, gamma=12.0)
        return model, pac.TemperingSMC(particles=60, **STEPS[number])


@fuzz("TemperingSMC", number=st.integers(0, len(STEPS) - 1), draws=st.integers(1, 130), seed=seeds)
def test_steps_of_tempering(number, draws, seed):
    """Every draw carries its risk, its log-density and its run's evidence; a seed gives the same draws again."""
    model, sampler = step(number)
    found = []
    for _ in range(2):
        sampler.set_rng(np.random.default_rng(seed))
        sampler.tune = False
        point, run = model.initial_point(), []
        for _ in range(draws):
            point, [record] = sampler.step(point)
            run.append((point["theta"], record))
        found.append(run)
    theta, again = (np.array([t for t, _ in run]) for run in found)
    np.testing.assert_array_equal(theta, again)
    records = [record for _, record in found[0]]
    np.testing.assert_allclose([r["risk"] for r in records], pac.arrays.linear_risk(theta, ROWS, LABELS), atol=1e-12)
    prior = stats.norm.logpdf(theta).sum(axis=1)
    np.testing.assert_allclose(
        [r["model_logp"] for r in records], prior - 12.0 * np.array([r["risk"] for r in records])
    )
    evidence = {r["log_evidence"] for r in records}
    assert len(evidence) == 1
    assert -12.0 <= evidence.pop() <= 0.0 or "start" in STEPS[number]
    assert {r["gamma"] for r in records} == {12.0}
    stages = records[0]["stage"] + 1
    assert [r["path_stage"] for r in records] == [stages - 1 - k % stages for k in range(draws)]


@cache
def approximation():
    with pm.Model():
        theta = pm.Normal("theta", shape=2)
        pac.AUCPotential("auc", ROWS @ theta, LABELS, gamma=12.0)
        return pm.fit(method=pac.EP(), progressbar=False)


@fuzz("prior_from", fast=5, gamma=st.floats(0.5, 20.0), seed=seeds)
def test_a_posterior_as_the_next_prior(gamma, seed):
    """The fit of today's rows is that of arrays whose prior is yesterday's q."""
    rng = np.random.default_rng(seed)
    X, y, yesterday = rng.normal(size=(8, 2)), np.arange(8) % 2 == 0, approximation()
    with warnings.catch_warnings(), pm.Model():
        warnings.simplefilter("ignore", pac.results.ConvergenceWarning)  # one in 200, where rows contradict the prior
        theta = pac.prior_from(yesterday, "theta")
        pac.AUCPotential("auc", X @ theta, y, gamma=gamma)
        today = pm.fit(method=pac.EP(), progressbar=False)
        q = yesterday.q
        found = fit(linear_gaussian_problem(X, y, gamma, prior_mean=q.mean, prior_covariance=q.covariance))
    assert today.converged == found.converged
    if found.converged:
        np.testing.assert_allclose(today.q.mean, found.posterior.mean, atol=1e-5)


@fuzz("results.ImportanceSample", fast=20, draws=st.integers(1, 60), seed=seeds)
def test_importance_samples(draws, seed):
    """Weights of mean one, a possible effective size, an evidence between the least and the largest weight."""
    if draws < 25:
        with pytest.raises(ValueError, match="draws must be at least 25"):
            approximation().importance_sample(draws)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # heavy tails of few draws
        sample = approximation().importance_sample(draws, random_seed=seed)
    posterior, stats_ = sample.idata["posterior"]["theta"].values[0], sample.idata["sample_stats"]
    weight = np.exp(stats_["log_weight"].values[0])
    assert weight.mean() == pytest.approx(1.0)
    assert sample.effective_draws * (1 + 1e-12) >= 1.0
    assert sample.effective_draws <= draws * (1 + 1e-12)
    assert sample.effective_draws == pytest.approx(weight.sum() ** 2 / np.sum(weight**2))
    assert -12.0 < sample.log_evidence < 0.5
    np.testing.assert_allclose(stats_["risk"].values[0], pac.arrays.linear_risk(posterior, ROWS, LABELS), atol=1e-12)
