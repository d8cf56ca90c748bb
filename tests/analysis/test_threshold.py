import json
import pickle

import numpy as np
import pytest
import xarray as xr
from hypothesis import strategies as st
from scipy.special import ndtr

import pymc_pacauc as pac
from tests.analysis.test_evaluate import finite
from tests.fuzzing import fuzz


@pytest.mark.parametrize(
    "score",
    [
        [1.0, np.nextafter(1.0, 2.0), 3.0, 4.0],
        [1e17, 1e17, 1e17, 1e17],
        [0.0, 5e-324, 1e-323, 1.5e-323],
        [-1.7e308, 1.7e308, -1.7e308, 1.7e308],
        [0.1, 0.4, 0.35, 0.8],
    ],
)
@pytest.mark.parametrize("rule", [{"fpr": f} for f in (0, 0.5, 1)] + [{"tpr": t} for t in (0, 0.5, 1)])
def test_calling_rows_above_the_threshold_gives_its_rates(score, rule):
    score, y = np.array(score), np.array([False, True, False, True])
    chosen = pac.choose_threshold(score, y, **rule)
    called = score > chosen.value
    assert (called[~y].mean(), called[y].mean()) == (chosen.fpr, chosen.tpr)


@pytest.mark.parametrize("target", [0.0, 0.05, 0.3, 1.0])
def test_threshold_at_a_false_positive_rate(rows, target):
    score, y = rows[0][0, 0], rows[1]
    chosen = pac.choose_threshold(score, y, fpr=target)
    called = score > chosen.value
    assert called[~y].mean() == pytest.approx(chosen.fpr)
    assert called[y].mean() == pytest.approx(chosen.tpr)
    assert chosen.fpr <= target
    lower = np.sort(score)[np.searchsorted(np.sort(score), chosen.value) - 1] - 1e-9 if target < 1 else -np.inf
    assert target == 1 or (score > lower)[~y].mean() > target or (score > lower)[y].mean() > chosen.tpr


@pytest.mark.parametrize("target", [0.0, 0.5, 0.95, 1.0])
def test_threshold_at_a_true_positive_rate(rows, target):
    score, y = rows[0][0, 0], rows[1]
    chosen = pac.choose_threshold(score, y, tpr=target)
    called = score > chosen.value
    assert chosen.tpr == pytest.approx(called[y].mean())
    assert chosen.tpr >= target
    assert chosen.fpr == pytest.approx(called[~y].mean())


def test_threshold_minimises_the_cost(rows):
    score, y = rows[0][0, 0], rows[1]
    chosen = pac.choose_threshold(score, y, cost=(1.0, 5.0))

    def cost(t):
        called = score > t
        return called[~y].sum() + 5.0 * (~called[y]).sum()

    assert cost(chosen.value) == min(cost(t) for t in [-np.inf, *score])


def test_a_threshold_for_the_next_row(rows):
    """Chosen with draws, it is applied to draws, to summaries, to one score, now or after a file."""
    draws, y = rows
    labelled = xr.DataArray(draws, dims=("chain", "draw", "row"), coords={"row": np.arange(120) + 7})
    chosen = pac.choose_threshold(labelled, y, fpr=0.1)
    mean = draws.mean(axis=(0, 1))
    called = mean > chosen.value
    assert (called[~y].mean(), called[y].mean()) == (chosen.fpr, chosen.tpr)
    applied = chosen.apply(labelled)
    np.testing.assert_array_equal(applied, called)
    np.testing.assert_array_equal(applied["row"], labelled["row"])
    np.testing.assert_array_equal(chosen.apply(draws), called)
    np.testing.assert_array_equal(chosen.apply(mean), called)
    for k in (0, 5):
        one = labelled.isel(row=[k])
        assert chosen.apply(one).values == [called[k]]
        assert chosen.apply(float(mean[k])) is bool(called[k])
        np.testing.assert_allclose(chosen.probability(one), [(draws[..., k] > chosen.value).mean()])
    summary = xr.Dataset({"mean": ("row", mean), "sd": ("row", mean)})
    np.testing.assert_array_equal(chosen.apply(summary), called)
    with pytest.raises(ValueError, match="needs draws"):
        chosen.probability(mean)
    for copy in (
        pickle.loads(pickle.dumps(chosen)),
        pac.results.Threshold.from_dict(json.loads(json.dumps(chosen.to_dict()))),
    ):
        assert copy == chosen
        np.testing.assert_array_equal(copy.apply(labelled), called)
    assert "FPR at most 0.1" in repr(chosen)


RESHAPED = {
    "stacked": lambda d: d.stack(sample=("chain", "draw")),
    "stacked, rows last": lambda d: d.stack(sample=("chain", "draw")).transpose("sample", "row"),
    "rows first": lambda d: d.transpose("row", "draw", "chain"),
    "one chain": lambda d: d.isel(chain=0),
}


@pytest.mark.parametrize("name", RESHAPED)
def test_draws_are_known_by_their_names(rows, name):
    draws, y = rows
    labelled = xr.DataArray(draws, dims=("chain", "draw", "row"), coords={"row": np.arange(120) + 7})
    reshaped = RESHAPED[name](labelled)
    whole = labelled.isel(chain=[0]) if name == "one chain" else labelled
    chosen = pac.choose_threshold(reshaped, y, fpr=0.1)
    assert chosen.value == pytest.approx(pac.choose_threshold(whole, y, fpr=0.1).value)
    assert pac.roc(reshaped, y).attrs["auc"] == pytest.approx(pac.roc(whole, y).attrs["auc"])
    called, share = whole.values.mean(axis=(0, 1)) > chosen.value, (whole.values > chosen.value).mean(axis=(0, 1))
    np.testing.assert_array_equal(chosen.apply(reshaped), called)
    np.testing.assert_allclose(chosen.probability(reshaped), share)
    table = pac.summary(reshaped, top=0.1)
    np.testing.assert_allclose(table, pac.summary(whole, top=0.1))
    np.testing.assert_array_equal(table.index, labelled["row"])
    for k in (0, 5):
        one = reshaped.isel(row=k)  # its dims are those of the draws alone
        assert chosen.apply(one) is bool(called[k])
        assert chosen.probability(one) == pytest.approx(share[k])
        with pytest.raises(ValueError, match="one row only"):
            pac.summary(one)


def test_a_mean_that_is_no_longer_theirs(rows):
    """xarray keeps coordinates when scores are calculated with; the exact mean of others is not used for them."""
    draws, y = rows
    mean = draws.mean(axis=(0, 1))
    carried = xr.DataArray(draws, dims=("chain", "draw", "row"), coords={"mean_score": ("row", mean)})
    chosen = pac.choose_threshold(carried, y, fpr=0.1)
    np.testing.assert_array_equal(chosen.apply(carried.isel(draw=slice(None, None, 3))), mean > chosen.value)
    for changed in (-carried, 10 * carried, carried + 5, np.exp(carried)):
        for call in (chosen.apply, lambda s: pac.roc(s, y), lambda s: pac.choose_threshold(s, y, fpr=0.1)):
            with pytest.raises(ValueError, match=r'scores.drop_vars\("mean_score"\)'):
                call(changed)
    assert pac.roc((-carried).drop_vars("mean_score"), y).attrs["auc"] == pytest.approx(
        1 - pac.roc(carried, y).attrs["auc"]
    )


def test_what_a_threshold_does_on_other_rows():
    """The intervals of FPR and TPR contain the population's, although these rows chose the threshold."""
    rng = np.random.default_rng(7)
    y = np.arange(120) < 40
    covered = np.zeros((2, 2))
    for _ in range(400):
        for k, rule in enumerate(({"fpr": 0.1}, {"tpr": 0.9})):
            chosen = pac.choose_threshold(rng.normal(size=120) + 1.5 * y, y, ci_prob=0.9, **rule)
            truth = ndtr(-chosen.value), ndtr(1.5 - chosen.value)
            intervals = chosen.fpr_interval, chosen.tpr_interval
            covered[k] += [low <= true <= high for (low, high), true in zip(intervals, truth, strict=True)]
    assert (covered / 400 > 0.88).all()


def test_bad_rules_are_refused(rows):
    draws, y = rows
    for wrong in ({}, {"fpr": 0.1, "tpr": 0.9}):
        with pytest.raises(ValueError, match="exactly one"):
            pac.choose_threshold(draws, y, **wrong)
    with pytest.raises(ValueError, match="must lie in"):
        pac.choose_threshold(draws, y, fpr=1.2)
    with pytest.raises(ValueError, match="cost must be"):
        pac.choose_threshold(draws, y, cost=(-1.0, 1.0))


def test_a_row_without_a_score_is_not_called_negative(rows):
    draws, y = rows
    chosen = pac.choose_threshold(draws, y, fpr=0.1)
    for scores in (np.nan, [0.0, np.nan], np.full((3, 2), np.nan)):
        with pytest.raises(ValueError, match="neither positive nor negative"):
            chosen.apply(scores)


@fuzz(
    "choose_threshold",
    data=finite,
    rule=st.sampled_from(["fpr", "tpr", "cost"]),
    at=st.floats(0, 1),
    cost=st.floats(0.1, 10),
)
def test_threshold_of_any_score(data, rule, at, cost):
    score, y = data
    chosen = pac.choose_threshold(score, y, **{rule: (1.0, cost) if rule == "cost" else at})
    called = score > chosen.value
    fpr, tpr = called[~y].mean(), called[y].mean()
    assert (chosen.fpr, chosen.tpr) == pytest.approx((fpr, tpr), abs=1e-12)
    others = [score > value for value in (-np.inf, *score)]
    rates = [(other[~y].mean(), other[y].mean()) for other in others]
    if rule == "fpr":
        assert fpr <= at + 1e-12
        assert tpr >= max((t for f, t in rates if f <= at - 1e-12), default=0.0)
    elif rule == "tpr":
        assert tpr >= at - 1e-12
        assert fpr <= min(f for f, t in rates if t >= at)
    else:
        costs = [f * (~y).sum() + cost * (1 - t) * y.sum() for f, t in rates]
        assert fpr * (~y).sum() + cost * (1 - tpr) * y.sum() <= min(costs) + 1e-9
