"""Every kind of comparison in PyMC: expressions on every linker, pm.Data, EP, tempering SMC, several potentials."""

import importlib.util
import subprocess
import sys
import textwrap
import warnings
from functools import cache

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.pytensorf import compile as compile_function

import pymc_pacauc as pac
from pymc_pacauc import fitting
from pymc_pacauc.comparison.censored import concordance
from pymc_pacauc.comparison.kinds import label_comparison
from pymc_pacauc.comparison.risk import pair_risk
from pymc_pacauc.comparison.surrogate import surrogate_risk
from pymc_pacauc.model.potential import compared_labels, compared_times
from pymc_pacauc.model.read import problem_of
from pymc_pacauc.problem.problem import linear_gaussian_problem
from tests.pair_lists import listed
from tests.reference_ep import reference_ep

pytestmark = pytest.mark.usefixtures("quick_compilation")

N = 40
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, 2))
SIGNAL = X[:, 0] - 0.5 * X[:, 1] + RNG.logistic(size=N)
Y = SIGNAL > 0.3
CLASSES = np.digitize(SIGNAL, [-1.0, 0.5, 2.0])
STRATA = RNG.integers(0, 5, N)
WEIGHTS = RNG.gamma(2.0, size=N)
TIME = np.ceil(10 * np.exp(-SIGNAL))
EVENT = RNG.random(N) < 0.7
CAUSE = np.where(EVENT, 1 + (RNG.random(N) < 0.3), 0)
TAU = float(np.quantile(TIME, 0.8))

LABELS = {
    "strata": (Y, {"strata": STRATA}),
    "named strata": (Y, {"strata": np.array(list("abcde"))[STRATA]}),
    "weights": (Y, {"weights": WEIGHTS}),
    "ordered": (CLASSES, {"ordered": True}),
    "ordered classes of strata": (CLASSES, {"ordered": True, "strata": STRATA, "weights": WEIGHTS}),
}
TIMES = {
    "harrell": {},
    "uno": {"weights": "ipcw", "tau": TAU},
    "strata": {"strata": STRATA},
    "weights": {"weights": WEIGHTS, "tau": TAU},
    "competing": {"event": CAUSE, "cause": 2, "weights": "ipcw", "tau": TAU},
    "entry": {"event": CAUSE, "entry": TIME * np.random.default_rng(9).random(N)},
    "horizon": {"event": CAUSE, "horizon": [TAU / 2, TAU], "weights": WEIGHTS},
}
KINDS = [*((True, name) for name in LABELS), *((False, name) for name in TIMES)]


def kind(labels, name):
    """What is compared, as tensors, and by the array functions."""
    if labels:
        y, options = LABELS[name]
        return compared_labels(y, **options), label_comparison(y, **options)
    given = {"time": TIME, "event": EVENT, **TIMES[name]}
    return compared_times(**given), concordance(**given)


def add(labels, name, scores, gamma, **options):
    if labels:
        y, own = LABELS[name]
        return pac.AUCPotential("risk", scores, y, gamma, **own, **options)
    given = {"time": TIME, "event": EVENT, **TIMES[name]}
    return pac.ConcordancePotential("risk", scores, gamma=gamma, **given, **options)


def check_expressions(mode, labels, name):
    """Risk, surrogate and its gradient, against the array functions."""
    compared, pairs = kind(labels, name)
    scores = np.random.default_rng(1).standard_normal((3, N)).round(1)
    given = pt.dmatrix()
    surrogate = compared.surrogate(given)
    outputs = [compared.risk(given, "half"), surrogate, pytensor.grad(surrogate.sum(), given)]
    function = pytensor.function([given], outputs, mode=mode)
    risk, value, gradient = (np.asarray(each) for each in function(scores))
    for k, row in enumerate(scores):
        assert risk[k] == pytest.approx(float(pair_risk(row[None], pairs)[0]))
        expected = surrogate_risk(row, pairs)
        assert value[k] == pytest.approx(expected[0])
        np.testing.assert_allclose(gradient[k], expected[1], atol=1e-12)


@pytest.mark.parametrize(("labels", "name"), KINDS)
def test_expressions_and_gradients(labels, name):
    check_expressions("FAST_COMPILE", labels, name)


@pytest.mark.parametrize(
    ("labels", "name"),
    [
        kind if kind in ((True, "weights"), (False, "uno")) else pytest.param(*kind, marks=pytest.mark.slow)
        for kind in KINDS
    ],
)
def test_expressions_and_gradients_in_numba_code(labels, name):
    """One kind of each constructor; all others go through the same call, and are compiled for half a minute."""
    check_expressions("NUMBA", labels, name)


@pytest.mark.slow
def test_expressions_and_gradients_on_jax():
    """In a process of its own: JAX's threads do not mix with the forks of other tests."""
    if importlib.util.find_spec("jax") is None:
        pytest.skip("could not find jax")
    code = """
        from tests.model.test_potential_comparisons import KINDS, check_expressions
        for labels, name in KINDS:
            check_expressions("JAX", labels, name)
        print("checked", len(KINDS))
    """
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert ran.stdout.strip() == f"checked {len(KINDS)}", ran.stderr


@pytest.mark.parametrize(("labels", "name"), KINDS)
def test_ep_is_that_of_the_arrays(labels, name):
    with pm.Model() as model:
        theta = pm.Normal("theta", size=2)
        add(labels, name, X @ theta, 30.0)
        approx = pm.fit(method=pac.EP(tolerance=1e-9), progressbar=False)
    expected = fitting.fit(linear_gaussian_problem(X, kind(labels, name)[1], 30.0), tolerance=1e-9)
    np.testing.assert_allclose(approx.q.mean, expected.posterior.mean, atol=1e-8)
    np.testing.assert_allclose(approx.q.covariance, expected.posterior.covariance, atol=1e-8)
    assert approx.log_evidence == pytest.approx(expected.log_evidence, abs=1e-8)
    assert approx.fitted_to.comparison == problem_of(model).problem.pairs.kind


def prior_answer(gamma, risk, size=200_000):
    """log Z and E[risk] by draws from the prior, with their standard errors."""
    values = risk(np.random.default_rng(7).standard_normal((size, 2)))
    weights = np.exp(-gamma * values)
    z, mean = weights.mean(), np.average(values, weights=weights)
    return (np.log(z), weights.std() / z / np.sqrt(size)), (mean, np.std(weights / z * (values - mean)) / np.sqrt(size))


def close(found, expected, *errors):
    return abs(found - expected) < 4.0 * np.hypot.reduce(errors) + 1e-12


@pytest.mark.parametrize(("labels", "name"), [(True, "ordered classes of strata"), (False, "uno")])
def test_smc_is_right(labels, name):
    with pm.Model():
        theta = pm.Normal("theta", size=2)
        add(labels, name, X @ theta, 15.0)
        idata = pm.sample(step=pac.TemperingSMC(particles=2000), chains=2, cores=1, random_seed=1, progressbar=False)
    (log_z, z_error), (mean, mean_error) = prior_answer(
        15.0, linear_gaussian_problem(X, kind(labels, name)[1], 15.0).risk
    )
    evidence = pac.log_evidence(idata)
    assert close(evidence.estimate, log_z, z_error, evidence.standard_error)
    risks = idata["posterior"]["risk_risk"].values
    assert close(risks.mean(), mean, mean_error, risks.std() / np.sqrt(1000))


@cache
def partial_answer():
    def risk(theta):
        return np.concatenate([pac.empirical_risk(p @ X.T, Y, max_fpr=0.3) for p in np.array_split(theta, 50)])

    return prior_answer(15.0, risk)


def check_partial(idata):
    (log_z, z_error), (mean, mean_error) = partial_answer()
    evidence = pac.log_evidence(idata)
    assert close(evidence.estimate, log_z, z_error, evidence.standard_error)
    risks = idata["posterior"]["partial_risk"].values
    assert close(risks.mean(), mean, mean_error, risks.std() / np.sqrt(1000))


def test_partial_auc_by_smc_and_not_by_ep():
    with pm.Model():
        theta = pm.Normal("theta", size=2)
        pac.AUCPotential("partial", X @ theta, Y, 15.0, max_fpr=0.3)
        with pytest.raises(
            pac.results.NotLinearGaussianError,
            match=r"partial AUC of partial.*not an average over fixed pairs.*start=approx",
        ):
            pm.fit(method=pac.EP(), progressbar=False)
        idata = pm.sample(step=pac.TemperingSMC(particles=2000), chains=2, cores=1, random_seed=1, progressbar=False)
    check_partial(idata)
    with pytest.raises(ValueError, match="no certificate for a partial AUC"):
        pac.certificate(idata)


def test_ep_of_the_auc_is_a_start_for_the_partial_auc():
    """Exact all the same: the fit of another target is only where particles come from."""
    with pm.Model():
        theta = pm.Normal("theta", size=2)
        pac.AUCPotential("auc", X @ theta, Y, 15.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    with pm.Model():
        theta = pm.Normal("theta", size=2)
        pac.AUCPotential("partial", X @ theta, Y, 15.0, max_fpr=0.3)
        step = pac.TemperingSMC(particles=2000, start=approx)
        idata = pm.sample(step=step, chains=2, cores=1, random_seed=1, progressbar=False)
    check_partial(idata)
    assert int(idata["sample_stats"]["stage"].max()) <= 3


def test_data_may_be_replaced():
    with pm.Model() as model:
        time, event = pm.Data("time", TIME), pm.Data("event", EVENT)
        strata, weights = pm.Data("strata", STRATA), pm.Data("weights", WEIGHTS)
        y, covariates = pm.Data("y", CLASSES.astype(float)), pm.Data("X", X)
        theta = pm.Normal("theta", size=2)
        c = pac.ConcordancePotential("c", covariates @ theta, time, event, 2.0, strata=strata, weights=weights)
        o = pac.AUCPotential("o", covariates @ theta, y, 3.0, ordered=True, strata=strata)
    at = compile_function(model.value_vars, model.replace_rvs_by_values([c, o]), on_unused_input="ignore")
    for keep in (slice(None), slice(0, 30)):
        new = {"time": TIME, "event": EVENT, "strata": STRATA, "weights": WEIGHTS, "y": CLASSES.astype(float), "X": X}
        with model:
            pm.set_data({name: value[keep] for name, value in new.items()})
        scores = X[keep] @ [1.0, 0.5]
        expected = [
            -2.0 * pac.concordance_risk(scores, TIME[keep], EVENT[keep], strata=STRATA[keep], weights=WEIGHTS[keep]),
            -3.0 * pac.empirical_risk(scores, CLASSES[keep], ordered=True, strata=STRATA[keep]),
        ]
        np.testing.assert_allclose(at(np.array([1.0, 0.5])), expected)
        pairs = problem_of(model).problem.pairs
        assert pairs.n == 2 * len(X[keep])
    with model:
        pm.set_data({"event": np.zeros(30, dtype=bool)})
    with pytest.raises(ValueError, match="no event"):
        at(np.array([1.0, 0.5]))


@pytest.mark.parametrize("positive", [None, 1])
def test_labels_set_to_three_classes_are_refused(positive):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(30, 2))
    with pm.Model() as model:
        y = pm.Data("y", (X[:, 0] > 0).astype(int))
        theta = pm.Normal("theta", size=2)
        pac.AUCPotential("auc", X @ theta, y, gamma=20.0, positive=positive)
        pm.set_data({"y": np.arange(30) % 3})
        with pytest.raises(ValueError, match="y has 3 distinct values"):
            pm.fit(method=pac.EP(), progressbar=False)
        with pytest.raises(ValueError, match="y has 3 distinct values"):
            pac.TemperingSMC()
    with pytest.raises(ValueError, match="y has 3 distinct values"):
        pac.select_gamma(model, progressbar=False)


def test_several_potentials_by_ep_and_by_smc():
    """A product of factors: EP's evidence is that of one problem, SMC's is exact."""
    covariates = np.random.default_rng(3).standard_normal((25, 2))
    other = covariates[:, 0] + np.random.default_rng(4).logistic(size=25) > 0
    with pm.Model() as model:
        theta = pm.Normal("theta", size=2)
        pac.AUCPotential("auc", X @ theta, Y, 12.0)
        pac.AUCPotential("other", covariates @ theta, other, 4.0)
        pac.ConcordancePotential("c", X @ theta, TIME, EVENT, 8.0)
        approx = pm.fit(method=pac.EP(tolerance=1e-9), progressbar=False)
        idata = pm.sample(step=pac.TemperingSMC(particles=2000), chains=2, cores=1, random_seed=1, progressbar=False)
    problem = problem_of(model).problem
    assert (problem.gamma, problem.n) == (24.0, 105)
    draws = np.random.default_rng(5).standard_normal((50, 2))
    expected = (
        12.0 * pac.empirical_risk(draws @ X.T, Y)
        + 4.0 * pac.empirical_risk(draws @ covariates.T, other)
        + 8.0 * pac.concordance_risk(draws @ X.T, TIME, EVENT)
    ) / 24.0
    np.testing.assert_allclose(problem.risk(draws), expected, atol=1e-13)
    (log_z, z_error), _ = prior_answer(24.0, problem.risk)
    evidence = pac.log_evidence(idata)
    assert close(evidence.estimate, log_z, z_error, evidence.standard_error)
    mean, covariance, by_ep = reference_ep(problem.X, None, 24.0, weighted_pairs=listed(problem.pairs))
    np.testing.assert_allclose(approx.q.mean, mean, atol=1e-7)
    np.testing.assert_allclose(approx.q.covariance, covariance, atol=1e-7)
    assert approx.log_evidence == pytest.approx(by_ep, abs=1e-7)
    assert approx.fitted_to.terms == 3
    with pytest.raises(ValueError, match="3 AUC terms, and a certificate is for one"):
        pac.certificate(approx)


def test_weights_of_one_potential_do_not_change_its_share_among_several():
    """gamma multiplies a mean over pairs, whatever their weights add up to."""
    weights = np.random.default_rng(6).uniform(1.0, 9.0, len(Y))
    with pm.Model() as model:
        theta = pm.Normal("theta", size=2)
        pac.AUCPotential("auc", X @ theta, Y, 12.0, weights=weights)
        pac.ConcordancePotential("c", X @ theta, TIME, EVENT, 8.0)
    draws = np.random.default_rng(5).standard_normal((50, 2))
    expected = 12.0 * pac.empirical_risk(draws @ X.T, Y, weights=weights)
    expected += 8.0 * pac.concordance_risk(draws @ X.T, TIME, EVENT)
    np.testing.assert_allclose(20.0 * problem_of(model).problem.risk(draws), expected, atol=1e-12)


def test_potentials_with_different_costs_of_ties_are_not_for_ep():
    with pm.Model():
        theta = pm.Normal("theta", size=2)
        pac.AUCPotential("auc", X @ theta, Y, 12.0)
        pac.AUCPotential("other", X @ theta, Y, 12.0, ties="strict")
        with pytest.raises(pac.results.NotLinearGaussianError, match="have different ties="):
            pm.fit(method=pac.EP(), progressbar=False)


def test_surrogates_are_for_nuts():
    with pm.Model() as model:
        theta = pm.Normal("theta", size=2)
        pac.ConcordancePotential("c", X @ theta, TIME, EVENT, 40.0, loss="logistic")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            idata = pm.sample(draws=200, tune=200, chains=1, cores=1, random_seed=1, progressbar=False)
    assert idata["posterior"]["theta"].values.mean(axis=(0, 1))[0] > 0.2
    assert model.deterministics[0].name == "c_risk"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strata": STRATA[:-1]}, r"strata must have shape \(40,\)"),
        ({"weights": -WEIGHTS}, r"weights has 40 value\(s\) <= 0"),
        ({"max_fpr": 2.0}, "max_fpr, the largest"),
        ({"max_fpr": 0.1, "ties": "strict"}, "not defined for a partial AUC"),
        ({"max_fpr": 0.1, "loss": "logistic"}, "has no surrogate"),
        ({"ordered": True, "positive": 1}, "positive= is for two classes"),
        ({"gamma": "MA1", "weights": WEIGHTS}, 'a number, pm.Data or "default"'),
    ],
)
def test_bad_labels(options, message):
    given = {"gamma": 1.0, **options}
    with pm.Model():
        theta = pm.Normal("theta", size=2)
        with pytest.raises(ValueError, match=message):
            pac.AUCPotential("auc", X @ theta, Y, **given)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"event": np.zeros(N, dtype=bool)}, "no event"),
        ({"event": np.full(N, 2)}, "cause=1 does not occur in event"),
        ({"event": EVENT[:-1]}, r"event must have shape \(40,\)"),
        ({"time": -TIME}, "negative"),
        ({"time": pm.math.stack([np.ones(N)] * 2)}, "time must be one-dimensional"),
        ({"time": TIME[:-1], "event": EVENT[:-1]}, "scores has 40 observations along its last axis but time has 39"),
        ({"weights": "uno"}, "weights must be None"),
        ({"tau": 0.0}, "tau must be one finite time"),
        ({"gamma": -1.0}, "gamma must be one finite number > 0"),
    ],
)
def test_bad_times(changes, message):
    given = {"time": TIME, "event": EVENT, "gamma": 1.0, **changes}
    with pm.Model():
        theta = pm.Normal("theta", size=2)
        with pytest.raises(ValueError, match=message):
            pac.ConcordancePotential("c", X @ theta, **given)
