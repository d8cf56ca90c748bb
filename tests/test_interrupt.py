"""Ctrl-C at random times: a KeyboardInterrupt, or from the two outermost fits a result marked ``interrupted``.

The signal comes from a timer, at a random share of the time that the call takes when left alone. What the machine does
meanwhile changes where the signal falls, never what is allowed to follow. A call that ends before its signal says
nothing, and is made again.
"""

import signal
import sys
import time
import warnings
from functools import cache

import numpy as np
import pymc as pm
import pytest
from numba import njit
from sklearn.model_selection import cross_val_score

import pymc_pacauc as pac
from pymc_pacauc import arrays
from pymc_pacauc.interrupt import CarefulHandler, raises_interrupts

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no interval timers")

FEW, MANY = 3, 100  # signals for each call: by default, and in the slow test


def data(n=160, d=4, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X[:, 0] + 0.5 * X[:, 1] + rng.normal(size=n) > 0.3


@cache
def model(gamma=160.0):
    X, y = data()
    with pm.Model() as built:
        theta = pm.Normal("theta", sigma=pm.Data("scale", 1.0), size=X.shape[1])
        pac.AUCPotential("auc", X @ theta, y, gamma=gamma)
    return built


def fit_model():
    with model():
        return pm.fit(method=pac.EP(n_jobs=1), progressbar=False)


def fit_arrays():
    X, y = data(n=600)
    return arrays.fit(arrays.linear_gaussian_problem(X, y, gamma=600.0), tolerance=1e-10, n_jobs=1)


def fit_spikes():
    X, y = data(d=12)
    problem = arrays.spike_slab_problem(X, y, gamma=160.0, inclusion_probability=0.2, v0=0.0)
    return arrays.fit(problem, n_jobs=1)


def fit_subsample():
    X, y = data(n=3000)
    return arrays.fit(arrays.linear_gaussian_problem(X, y, gamma=3000.0), pairs=250, n_jobs=1)


DRAWS = 200


@cache
def tempering():
    with model(gamma=40.0) as built:
        return pac.TemperingSMC(particles=200), built.initial_point()


def chain():
    """The draws of a chain, as ``pm.sample`` makes them."""
    step, point = tempering()
    step.set_rng(np.random.default_rng(1))
    step.stop_tuning()
    return [step.step(point)[0] for _ in range(DRAWS)]


def classify(**options):
    return pac.AUCClassifier(**options).fit(*data(n=400))


def order():
    X, event = data(n=60)
    time = np.random.default_rng(2).exponential(np.exp(-X[:, 0]))
    return pac.ConcordanceEstimator().fit(X, np.column_stack([event, time]))


@cache
def fitted():
    return arrays.fit(arrays.linear_gaussian_problem(*data(), gamma=160.0), n_jobs=1)


def lengthscale():
    X, y = data(n=60, d=2)
    return pac.choose_lengthscale(X, y, 30.0, n_jobs=1)


MAY_RETURN = {
    "pm.fit": fit_model,
    "arrays.fit": fit_arrays,
    "arrays.fit of spikes": fit_spikes,
    "arrays.fit of a subsample": fit_subsample,
}
MUST_RAISE = {
    "TemperingSMC": chain,
    "select_gamma": lambda: pac.select_gamma(model(), [20.0, 80.0, 320.0], folds=3, progressbar=False),
    "AUCClassifier": classify,
    "AUCClassifier by coverage": lambda: classify(gamma="coverage"),
    "ConcordanceEstimator": order,
    "split_certificate": lambda: pac.certify.split(model()),
    "certificate": lambda: pac.certificate(fitted(), bound="matchings"),
    "leave_out": lambda: pac.leave_out(fitted(), np.arange(160) % 20, n_jobs=1),
    "choose_gamma": lambda: arrays.choose_gamma(fitted().problem, [40.0, 160.0], 3, n_jobs=1),
    "choose_lengthscale": lengthscale,
    "cross_val_score": lambda: cross_val_score(pac.AUCClassifier(), *data(n=400), cv=3),  # no fold that failed
    "maximize_evidence": lambda: pac.maximize_evidence(model(), "scale", max_evaluations=3, progressbar=False),
}
CALLS = MAY_RETURN | MUST_RAISE


def signalled(call, after):
    """What comes of a call that a SIGINT meets ``after`` so many seconds; None where it ended before."""
    fired = []

    def fire(number, frame):
        fired.append(True)
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGALRM, fire)
    try:
        signal.setitimer(signal.ITIMER_REAL, after)
        try:
            found = call()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
    except BaseException as error:
        found = error
    finally:
        signal.signal(signal.SIGALRM, before)
    return found if fired else None


def outcomes(call, times, seed):
    """What follows ``times`` signals at random shares of the time that the call takes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call()
        start = time.perf_counter()
        call()
        takes = time.perf_counter() - start
        rng = np.random.default_rng(seed)
        found = []
        while len(found) < times:
            what = signalled(call, max(rng.random() * takes, 1e-6))
            if what is None:
                takes *= 0.9
            else:
                found.append(what)
    return found


def check(name, times, seed):
    for what in outcomes(CALLS[name], times, seed):
        assert type(what) is KeyboardInterrupt or (name in MAY_RETURN and what.interrupted), repr(what)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.fixture(autouse=True)
def as_in_a_terminal():
    """Shells start what runs in the background with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def unraisable(monkeypatch):
    """What Python ignores: signals that fall into destructors and callbacks of the garbage collector (JAX has one)."""
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", seen.append)
    yield seen
    assert all(isinstance(each.exc_value, KeyboardInterrupt) for each in seen)


@pytest.mark.parametrize("name", CALLS)
def test_signals_at_random_times(name):
    check(name, FEW, seed=1)


class Dying:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)


class AfterDraws(pac.TemperingSMC):
    """Gets SIGINT within a step, after so many draws."""

    after = 0

    def _stats(self, draw):
        if draw == self.after:
            signal.raise_signal(signal.SIGINT)
        return super()._stats(draw)


class IgnoredAfterDraws(AfterDraws):
    """Gets it where Python ignores the exception, as in callbacks of the garbage collector."""

    def _stats(self, draw):
        if draw == self.after:
            Dying()
        return pac.TemperingSMC._stats(self, draw)


@pytest.mark.parametrize("draws", [0, 3])
def test_pm_sample_keeps_the_draws_there_are(draws, monkeypatch, caplog):
    """PyMC catches the KeyboardInterrupt of a step: it returns the draws before, or says that there are none."""
    monkeypatch.setattr(AfterDraws, "after", draws)
    options = {"chains": 1, "tune": 5, "random_seed": 1, "progressbar": False, "compute_convergence_checks": False}
    with model(gamma=40.0):
        if draws:
            assert pm.sample(DRAWS, step=AfterDraws(), **options)["posterior"].sizes["draw"] == draws
            assert f"interrupted after {draws} draws" in caplog.text
        else:
            with pytest.raises(ValueError, match="Not enough samples"):
                pm.sample(DRAWS, step=AfterDraws(), **options)
            assert "interrupted after 0 draws" in caplog.text


OF_A_RUN = ("run", "gamma", "log_evidence", "log_evidence_variance", "expected_risk")


@cache
def sampled():
    """Two chains, when left alone."""
    options = {"chains": 2, "cores": 1, "tune": 5, "random_seed": 1, "progressbar": False}
    with model(gamma=40.0):
        return pm.sample(DRAWS, step=pac.TemperingSMC(particles=200), compute_convergence_checks=False, **options)


def check_sampled(times, seed, caplog):
    """PyMC catches the KeyboardInterrupt of a chain, goes on to the next one, and builds a result of what there is.

    A step has no say in that, least of all where the signal falls between two steps. So the result, if there is one, is
    shorter or has one chain, and is a part of what comes of the same seed without the signal: every draw is of the
    posterior, with the evidence of a run that was not cut short; PyMC's last line says how many chains and draws there
    are. (It may be all of it: a signal after the last draw, or inside a destructor of PyTensor's.) Where no chain has a
    draw, PyMC says so.
    """
    whole = sampled()
    caplog.set_level("INFO")

    def sampled_and_said():
        caplog.clear()
        return sampled.__wrapped__(), caplog.text

    for what in outcomes(sampled_and_said, times, seed):
        if isinstance(what, BaseException):
            assert type(what) is KeyboardInterrupt or "Not enough samples" in str(what), repr(what)
            continue
        part, said = what
        assert (part["sample_stats"]["progress"] == 1.0).all()
        runs, kept = (each["sample_stats"]["run"].values[:, 0].tolist() for each in (whole, part))
        chains, draws = [runs.index(run) for run in kept], part["posterior"].sizes["draw"]
        assert f"Sampling {len(kept)} chain{'s' * (len(kept) > 1)} for 5 tune and {draws} draw iterations" in said
        for group, name in [("posterior", "theta"), *(("sample_stats", each) for each in OF_A_RUN)]:
            expected = whole[group][name].isel(chain=chains, draw=slice(draws))
            np.testing.assert_array_equal(part[group][name], expected)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_no_signal_raises_while_numba_makes_arrays_of_results():
    """PyMC 6 does so for each draw, not in the step; Python's own handler causes a SystemError there, or a crash."""

    @njit
    def compiled(values):
        return values, values

    def record():
        for _ in range(1_000_000):
            compiled(values)

    values = np.zeros(2)
    compiled(values)
    after = np.random.default_rng(1).uniform(1e-4, 1e-3, size=50)
    handler = CarefulHandler()
    assert {type(signalled(record, seconds)) for seconds in after} == {KeyboardInterrupt}
    del handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_pm_sample_returns_is_of_the_posterior(caplog):
    check_sampled(FEW, seed=4, caplog=caplog)


def test_one_that_a_destructor_ignores_is_raised_again(unraisable):
    """Python ignores what a destructor raises, a KeyboardInterrupt too: the function does not end as if done."""

    def search():
        Dying()
        return "done"

    with pytest.raises(KeyboardInterrupt):
        raises_interrupts(search)()
    assert [type(each.exc_value) for each in unraisable] == [KeyboardInterrupt]


def test_a_draw_raises_what_a_destructor_ignored(unraisable):
    with model(gamma=40.0) as built:
        step = IgnoredAfterDraws(particles=200)
    step.set_rng(np.random.default_rng(1))
    step.stop_tuning()
    with pytest.raises(KeyboardInterrupt):
        step.step(built.initial_point())
    assert [type(each.exc_value) for each in unraisable] == [KeyboardInterrupt]


def test_a_signal_while_a_step_is_built(monkeypatch):
    """Compiled code turns a KeyboardInterrupt into a SystemError, in ``TemperingSMC()`` too."""

    def compiled(*args):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise SystemError("<function dot> returned a result with an exception set") from None

    monkeypatch.setattr("pymc_pacauc.model.step.choose_move", compiled)
    with model(gamma=40.0), pytest.raises(KeyboardInterrupt):
        pac.TemperingSMC(particles=200)


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_many_signals_at_random_times(name):
    check(name, MANY, seed=2)


@pytest.mark.slow
def test_many_signals_to_pm_sample(caplog):
    check_sampled(MANY, seed=5, caplog=caplog)
