"""Censored times: against loops over all pairs, scikit-survival and lifelines."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pymc_pacauc as pac
from pymc_pacauc.comparison.censored import censoring_survival, concordance, survival_curve
from tests.pair_lists import censored_pairs, competing_pairs, horizon_pairs, listed, listed_risk

TIES = pytest.mark.parametrize("ties", ["half", "strict"])


def survival_data(seed, n=60, distinct=15):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n)
    time = np.ceil(rng.exponential(np.exp(-x)) * distinct)
    return np.round(x + 0.3 * rng.standard_normal(n), 1), time, rng.random(n) < 0.6


@TIES
@given(seed=st.integers(0, 10**6), n=st.integers(2, 40), distinct=st.integers(1, 40), groups=st.integers(1, 8))
def test_harrell(seed, n, distinct, groups, ties):
    rng = np.random.default_rng(seed)
    time, event = rng.integers(0, distinct, n).astype(float), rng.random(n) < 0.6
    time[:2], event[:2] = (0.0, distinct), True
    scores = rng.integers(-3, 4, (2, n)).astype(float)
    strata, weights = rng.integers(0, groups, n), rng.gamma(1.0, size=n)
    strata[:2] = 0
    tau = float(distinct) / 2 + 0.5
    for options in ({}, {"strata": strata}, {"weights": weights}, {"tau": tau}, {"strata": strata, "weights": weights}):
        brute = censored_pairs(time, event, **options)
        found = pac.concordance_risk(scores, time, event, ties=ties, **options)
        np.testing.assert_allclose(found, [listed_risk(row, brute, ties) for row in scores], atol=1e-13)
    i, j, _ = listed(concordance(time, event))
    np.testing.assert_array_equal(np.stack([i, j]), censored_pairs(time, event)[:2])  # each once


def test_a_high_score_means_an_early_event():
    assert pac.concordance_risk([3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [True, True, True]) == 0.0


def test_uno_by_hand():
    scores, time, event = survival_data(1)
    tau = float(np.quantile(time, 0.8))
    survival = []
    for t in time:  # the product over censoring times up to t, an event at the same time coming first
        value = 1.0
        for u in np.unique(time[time <= t]):
            at_risk = np.sum(time >= u) - np.sum((time == u) & event)
            if at_risk:
                value *= 1 - np.sum((time == u) & ~event) / at_risk
        survival.append(value)
    np.testing.assert_allclose(censoring_survival(time, event), survival, atol=1e-14)
    brute = censored_pairs(time, event, tau=tau, row_weights=np.maximum(survival, 1e-9) ** -2.0)
    found = pac.concordance_risk(scores, time, event, weights="ipcw", tau=tau)
    assert found == pytest.approx(listed_risk(scores, brute), abs=1e-13)
    assert concordance(time, event, weights="ipcw", tau=tau).estimated_weights


def test_uno_with_strata_has_a_censoring_distribution_in_each():
    scores, time, event = survival_data(3, n=120)
    strata = np.random.default_rng(1).integers(0, 3, time.size)
    event |= (strata == 0) & (time < 8)  # one stratum is followed for longer than the others
    tau = float(np.quantile(time, 0.7))
    survival = np.empty(time.size)
    for k in range(3):
        survival[strata == k] = censoring_survival(time[strata == k], event[strata == k])
    brute = censored_pairs(time, event, strata=strata, tau=tau, row_weights=np.maximum(survival, 1e-9) ** -2.0)
    found = pac.concordance_risk(scores, time, event, strata=strata, weights="ipcw", tau=tau)
    assert found == pytest.approx(listed_risk(scores, brute), abs=1e-13)
    pooled = np.maximum(censoring_survival(time, event), 1e-9) ** -2.0
    other = censored_pairs(time, event, strata=strata, tau=tau, row_weights=pooled)
    assert abs(found - listed_risk(scores, other)) > 1e-4


def test_weights_where_numbers_that_underflow_are_errors():
    scores, time, event = survival_data(3, n=120)
    for options in ({"horizon": float(np.median(time))}, {"weights": "ipcw", "tau": float(np.quantile(time, 0.7))}):
        plain = pac.concordance_risk(scores, time, event, **options)
        with np.errstate(all="raise"):
            assert pac.concordance_risk(scores, time, event, **options) == plain


@pytest.mark.parametrize("seed", range(5))
def test_against_scikit_survival(seed):
    metrics = pytest.importorskip("sksurv.metrics")
    scores, time, event = survival_data(seed, n=150)
    c, concordant, discordant, tied, _ = metrics.concordance_index_censored(event, time, scores)
    assert pac.concordance_risk(scores, time, event) == pytest.approx(1 - c, abs=1e-12)
    assert concordance(time, event).n_pairs == concordant + discordant + tied
    outcome = np.array(list(zip(event, time, strict=True)), dtype=[("event", bool), ("time", float)])
    tau = float(np.quantile(time, 0.85))
    uno = metrics.concordance_index_ipcw(outcome, outcome, scores, tau=tau)[0]
    assert pac.concordance_risk(scores, time, event, weights="ipcw", tau=tau) == pytest.approx(1 - uno, abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_against_lifelines(seed):
    lifelines = pytest.importorskip("lifelines.utils")
    scores, time, event = survival_data(seed, n=150)
    time = time + np.where(event, np.linspace(0, 0.5, time.size), 0.5)  # it compares events at equal times, too
    c = lifelines.concordance_index(time, -scores, event)
    assert pac.concordance_risk(scores, time, event) == pytest.approx(1 - c, abs=1e-12)


def competing_data(seed, n, distinct=12):
    rng = np.random.default_rng(seed)
    time, codes = rng.integers(1, distinct, n).astype(float), rng.integers(0, 4, n)
    time[:3], codes[:3] = (1.0, distinct, 2.0), (1, 0, 2)
    return rng.integers(-3, 4, (2, n)).astype(float), time, codes


@given(seed=st.integers(0, 10**6), n=st.integers(4, 40), ipcw=st.booleans())
def test_competing_risks_against_a_list_of_pairs(seed, n, ipcw):
    scores, time, codes = competing_data(seed, n)
    tau = 5.5
    brute = competing_pairs(time, codes, tau=tau, ipcw=ipcw)
    options = {"tau": tau, "weights": "ipcw" if ipcw else None}
    found = pac.concordance_risk(scores, time, codes, **options)
    np.testing.assert_allclose(found, [listed_risk(row, brute) for row in scores], atol=1e-13)
    i, j, _ = listed(concordance(time, codes, **options))
    np.testing.assert_array_equal(np.stack([i, j]), brute[:2])  # each once
    by_label = pac.concordance_risk(
        scores, time, np.where(codes == 1, 2, np.where(codes == 2, 1, codes)), cause=2, tau=tau
    )
    np.testing.assert_allclose(by_label, pac.concordance_risk(scores, time, codes, tau=tau), atol=1e-15)


def test_one_cause_is_harrells_c_and_unos():
    scores, time, event = survival_data(5)
    for options in ({}, {"weights": "ipcw", "tau": 8.0}):
        both = [pac.concordance_risk(scores, time, each, **options) for each in (event, 7 * event)[:1]]
        both.append(pac.concordance_risk(scores, time, 7 * event, cause=7, **options))
        assert both[0] == both[1]


@given(seed=st.integers(0, 10**6), n=st.integers(4, 40))
def test_horizons_against_a_list_of_pairs(seed, n):
    scores, time, codes = competing_data(seed, n)
    lists = [horizon_pairs(time, codes, horizon) for horizon in (2.5, 6.0)]
    for row in scores:
        risks = [listed_risk(row, brute) for brute in lists]
        assert pac.concordance_risk(row, time, codes, horizon=2.5) == pytest.approx(risks[0], abs=1e-13)
        assert pac.concordance_risk(row, time, codes, horizon=[6.0, 2.5]) == pytest.approx(np.mean(risks), abs=1e-13)


def test_horizons_and_strata():
    scores, time, codes = competing_data(3, 60)
    scores, strata = scores[0], np.arange(60) % 2
    parts = [horizon_pairs(time[strata == k], codes[strata == k], 6.0) for k in (0, 1)]
    wrong, total = 0.0, 0.0
    for k in (0, 1):
        total += parts[k][2].sum()
        wrong += listed_risk(scores[strata == k], parts[k]) * parts[k][2].sum()
    found = pac.concordance_risk(scores, time, codes, horizon=6.0, strata=strata)
    assert found == pytest.approx(wrong / total, abs=1e-13)


@pytest.mark.filterwarnings("ignore:.trapz. is deprecated:DeprecationWarning")  # in scikit-survival before 0.24
@pytest.mark.parametrize("seed", range(5))
def test_horizon_against_scikit_survival(seed):
    metrics = pytest.importorskip("sksurv.metrics")
    scores, time, event = survival_data(seed, n=150)
    outcome = np.array(list(zip(event, time, strict=True)), dtype=[("event", bool), ("time", float)])
    times = np.unique(np.quantile(time, [0.2, 0.5, 0.8]))
    auc, _ = metrics.cumulative_dynamic_auc(outcome, outcome, scores, times)
    ours = [pac.concordance_risk(scores, time, event, horizon=t) for t in times]
    np.testing.assert_allclose(ours, 1 - auc, atol=1e-12)


def test_cumulative_incidence():
    rng = np.random.default_rng(0)
    for _ in range(20):
        time, codes = rng.integers(1, 12, 40).astype(float), rng.integers(0, 3, 40)
        curves = [survival_curve(time, codes, cause) for cause in (1, 2)]
        free = survival_curve(time, codes > 0).survival
        np.testing.assert_allclose(curves[0].survival + curves[1].survival - 1.0, free, atol=1e-12)
        one, merged = survival_curve(time, codes > 0), np.where(codes > 0, 1, 0)
        merged[np.argmax(time)] = 2  # the last time of all: everything before it is of one cause
        both = survival_curve(time, merged)
        early = one.time < time.max()
        np.testing.assert_allclose(both.survival[early], one.survival[early], atol=1e-12)
        np.testing.assert_allclose(both.log_variance[early], one.log_variance[early], rtol=1e-8, atol=1e-12)


def test_cumulative_incidence_against_scikit_survival():
    nonparametric = pytest.importorskip("sksurv.nonparametric")
    if not hasattr(nonparametric, "cumulative_incidence_competing_risks"):
        pytest.skip("scikit-survival before 0.24 has no cumulative incidence")
    rng = np.random.default_rng(1)
    time, codes = rng.integers(1, 30, 200).astype(float), rng.integers(0, 3, 200)
    at, incidence, _ = nonparametric.cumulative_incidence_competing_risks(codes, time, conf_type="log-log")
    ours = survival_curve(time, codes)
    np.testing.assert_allclose(1.0 - ours.survival, incidence[1][np.searchsorted(at, ours.time)], atol=1e-12)


def test_many_observations_in_little_memory():
    n = 20_000
    rng = np.random.default_rng(0)
    time, event = rng.exponential(size=n), rng.random(n) < 0.5
    pairs = concordance(time, event)
    indices = sum(block.positive.size + block.negative.size for block in pairs.blocks)
    assert indices < n * np.log2(n)
    rank = np.argsort(np.argsort(time))
    assert pairs.n_pairs == np.sum((n - 1 - rank)[event])
    assert pac.concordance_risk(-time, time, event) == 0.0
    assert pac.concordance_risk(np.zeros(n), time, event) == 0.5


GOOD = {"time": [1.0, 2.0, 3.0, 4.0], "event": [True, True, False, True]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"event": [False] * 4}, "no event: all 4"),
        ({"event": [False, False, False, True]}, "no pair to compare"),
        ({"time": [1.0, 2.0, -3.0, 4.0]}, "time has 1 negative"),
        ({"time": [1.0, 2.0, np.nan, 4.0]}, "time has 1 NaN or infinite"),
        ({"time": [1.0, 2.0, np.inf, 4.0]}, "time has 1 NaN or infinite"),
        ({"time": [1.0, 2.0, 3.0]}, r"event must have shape \(3,\)"),
        ({"event": [True, True]}, r"event must have shape \(4,\)"),
        ({"event": [0, 1, 0.5, 1]}, "event must be boolean.* got 0.5"),
        ({"event": [0, 1, -1, 1]}, "event must be boolean.* got -1"),
        ({"event": [0, 2, 2, 0]}, "cause=1 does not occur in event, which has the codes 2"),
        ({"cause": 2}, "cause=2 does not occur in event, which has the codes 1"),
        ({"cause": "death"}, "cause must be a code of event.* got 'death'"),
        ({"cause": 0}, "cause must be a code of event.* got 0"),
        ({"horizon": 0.5}, "Nothing can be compared at horizon=0.5"),
        ({"horizon": 9.0}, "Nothing can be compared at horizon=9.*from 1 to 4"),
        ({"horizon": 9.0, "event": [2, 1, 0, 0]}, "horizon=9 is too late: less than 1%.*times go to 4"),
        ({"horizon": -1.0}, "horizon must be one finite time > 0; got"),
        ({"horizon": [[1.0]]}, "horizon must be a time or a list of times"),
        ({"horizon": 2.5, "tau": 2.5}, "tau and horizon exclude each other"),
        ({"event": ["yes", "no", "yes", "no"]}, "event must be a rectangular array of numbers"),
        ({"event": [0.0, np.nan, 1.0, 1.0]}, "event has 1 NaN"),
        ({"strata": [1, 2]}, r"strata must have shape \(4,\)"),
        ({"strata": [1, 2, 3, 4]}, "no pair to compare"),
        ({"weights": [1.0, 1.0, 0.0, 1.0]}, r"weights has 1 value\(s\) <= 0"),
        ({"weights": "uno"}, 'weights must be None, "ipcw"'),
        ({"tau": -1.0}, "tau must be one finite time > 0"),
        ({"tau": np.nan}, "tau must be one finite time > 0"),
        ({"tau": 0.5}, "tau=0.5 leaves no event"),
        (
            {"weights": "ipcw", "time": [1.0, 2.0, 3.0, 3.0, 4.0], "event": [True, True, False, False, True]},
            None,
        ),
        ({"scores": [1.0, 2.0]}, "scores has 2 observations .* but time has 4"),
    ],
)
def test_bad_input(changes, message):
    given_ = {"scores": np.arange(len(changes.get("time", GOOD["time"])), dtype=float), **GOOD, **changes}
    if message is None:
        assert np.isfinite(pac.concordance_risk(**given_))
        return
    with pytest.raises(ValueError, match=message):
        pac.concordance_risk(**given_)


def test_exploding_weights_say_tau():
    """Everyone still followed at time 3 is censored then, but an event is dated after it."""
    time, event = np.array([1.0, 2.0, 3.0, 3.0, 3.0, 4.0]), np.array([True, False, False, False, True, True])
    survival = censoring_survival(time, event)
    assert survival.min() > 0  # one is at risk beyond 3
    time, event = np.array([1.0, 2.0, 3.0, 3.0]), np.array([True, False, False, True])
    assert censoring_survival(time, event)[-1] == 0
    with pytest.raises(ValueError, match=r"explode for 1 event\(s\) from time 3 on.*tau=3"):
        concordance(time, event, weights="ipcw")
    assert concordance(time, event, weights="ipcw", tau=3.0).n_pairs == 3
    time, event = np.arange(1.0, 5001.0), np.arange(5000) % 10 == 5
    late = time[event & (censoring_survival(time, event) < 0.01)]
    assert late.size > 1
    with pytest.raises(
        ValueError, match=rf"explode for {late.size} event\(s\) from time {late[0]:g} on.*tau={late[0]:g}"
    ):
        concordance(time, event, weights="ipcw")
    assert concordance(time, event, weights="ipcw", tau=float(late[0])).n_pairs > 0
    time, event = np.arange(1.0, 203.0), np.arange(202) % 201 == 0  # the last event is in no pair: its weight is none
    assert censoring_survival(time, event)[-1] < 0.01
    assert concordance(time, event, weights="ipcw").n_pairs == 201


@given(seed=st.integers(0, 10**6), n=st.integers(4, 40), causes=st.booleans())
def test_entry_times(seed, n, causes):
    """Every pair looked at one by one: who had not entered at an event is not compared with it."""
    rng = np.random.default_rng(seed)
    time, entry = rng.integers(3, 12, n).astype(float), rng.integers(0, 12, n).astype(float)
    entry = np.minimum(entry, time - 1)
    code = rng.integers(0, 3, n) if causes else rng.integers(0, 2, n)
    both = [
        (i, j)
        for i in range(n)
        for j in range(n)
        if code[i] == 1
        and (time[j] > time[i] or (time[j] == time[i] and code[j] == 0) or (code[j] == 2 and time[j] <= time[i]))
        and entry[j] < time[i]
    ]
    if not both:
        return
    scores, weights = rng.integers(0, 6, n).astype(float), rng.gamma(1.0, size=n) + 0.1
    i, j = np.array(both).T
    w = weights[i] * weights[j]
    exact = np.sum(w * ((scores[i] < scores[j]) + 0.5 * (scores[i] == scores[j]))) / w.sum()
    assert pac.concordance_risk(scores, time, code, entry=entry, weights=weights) == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"entry": [0.0, 2.0, 0.0]}, "entry must be before time; for 1 of 3 observation"),
        ({"entry": [0.0, 1.0]}, r"entry must have shape \(3,\)"),
        ({"entry": [0.0, 0.0, 0.0], "weights": "ipcw"}, "leave weights=.ipcw. and horizon out"),
        ({"entry": [0.0, 0.0, 0.0], "horizon": 1.0}, "leave weights=.ipcw. and horizon out"),
        ({"entry": [0.0, 1.5, 2.5]}, "nobody had entered"),
    ],
)
def test_bad_entry_times(options, message):
    given = {"time": [1.0, 2.0, 3.0], "event": [1, 0, 0], **options}
    with pytest.raises(ValueError, match=message):
        pac.concordance_risk([1.0, 2.0, 3.0], **given)
