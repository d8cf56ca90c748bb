"""Precision and recall: scikit-learn's curve and average precision, and bands that cover."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, precision_recall_curve

import pymc_pacauc as pac


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), n=st.integers(4, 60), levels=st.integers(1, 30))
def test_against_scikit_learn(seed, n, levels):
    rng = np.random.default_rng(seed)
    y, score = rng.random(n) < 0.4, rng.integers(0, levels, n).astype(float)
    y[:2] = True, False
    curve = pac.precision_recall(score, y)
    assert curve.attrs["average_precision"] == pytest.approx(average_precision_score(y, score), abs=1e-12)
    precision, recall, _ = precision_recall_curve(y, score)
    fewest = [precision[recall >= r - 1e-12][-1] for r in curve["recall"].values[1:]]
    np.testing.assert_allclose(curve["precision"][1:], fewest, atol=1e-12)
    assert curve.attrs["event_rate"] == y.mean()


def test_one_group_has_no_spread():
    """Rows of one patient say nothing about others: refused, as by roc; the bootstrap would find an error of 0."""
    y, score = np.arange(20) < 8, np.random.default_rng(1).normal(size=20)
    for groups in (np.zeros(20), y, np.where(y, 0, np.arange(20))):
        for curve in (pac.precision_recall, pac.roc):
            with pytest.raises(
                ValueError, match="y must have at least two groups with rows of each class; there are 1"
            ):
                curve(score, y, groups=groups)


def test_calls_and_recall_at_a_precision():
    y = np.array([1, 1, 0, 1, 0, 0, 0, 1, 0, 0]) == 1
    score = np.arange(10.0, 0.0, -1.0)
    said = pac.precision_recall(score, y, calls=4, precision=0.75).attrs
    assert (said["recall_at_calls"], said["precision_at_calls"]) == (0.75, 0.75)
    assert said["recall_at_precision"] == 0.75
    for name in ("recall_at_calls", "precision_at_calls", "recall_at_precision"):
        assert said[f"{name}_lower"] < said[name] < said[f"{name}_upper"]
    tied = pac.precision_recall(np.ones(10), y, calls=5).attrs
    assert tied["recall_at_calls"] == pytest.approx(0.5)
    assert tied["precision_at_calls"] == pytest.approx(0.4)
    assert pac.precision_recall(-score, y, precision=0.9).attrs["recall_at_precision"] == 0.0


def test_separated_classes_are_not_certain():
    y = np.arange(40) < 20
    said = pac.precision_recall(y + np.linspace(0.0, 0.5, 40), y).attrs
    assert said["average_precision"] == 1.0
    assert 0.7 < said["average_precision_lower"] < 0.95
    assert said["average_precision_upper"] == 1.0


def test_draws_and_groups():
    rng = np.random.default_rng(0)
    y = rng.random(120) < 0.3
    draws = rng.normal(size=120) + 1.5 * y + 0.5 * rng.normal(size=(2, 50, 120))
    curve = pac.precision_recall(xr.DataArray(draws, dims=("chain", "draw", "row")), y)
    flat = draws.reshape(-1, 120)
    np.testing.assert_allclose(
        curve["average_precision_of_draw"], [average_precision_score(y, each) for each in flat], atol=1e-12
    )
    assert curve.attrs["average_precision"] == pytest.approx(average_precision_score(y, flat.mean(axis=0)))
    # every row five times over, as one group: what is uncertain is as without the copies
    mean = flat.mean(axis=0)
    once = pac.precision_recall(mean, y).attrs
    copies = pac.precision_recall(np.repeat(mean, 5), np.repeat(y, 5), groups=np.repeat(np.arange(120), 5)).attrs
    assert copies["average_precision"] == pytest.approx(once["average_precision"], abs=1e-12)
    for end in ("lower", "upper"):
        assert copies[f"average_precision_{end}"] == pytest.approx(once[f"average_precision_{end}"], abs=0.02)
    rows = pac.precision_recall(np.repeat(mean, 5), np.repeat(y, 5)).attrs
    assert np.ptp([rows["average_precision_lower"], rows["average_precision_upper"]]) < 0.6 * np.ptp(
        [once["average_precision_lower"], once["average_precision_upper"]]
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": 0.0}, r"precision, the share of calls that are right, must be in \(0, 1\]; got 0.0"),
        ({"calls": 0}, "calls must be a whole number, at least 1; got 0"),
        ({"calls": 5}, "1 to 4; got 5"),
        ({"calls": 1.5}, "got 1.5"),
        ({"ci_prob": 1.0}, "ci_prob"),
        ({"y": [0, 1, 2, 1]}, "3 distinct values"),
    ],
)
def test_bad_input(options, message):
    given = {"scores": [1.0, 2.0, 3.0, 4.0], "y": [0, 1, 0, 1], **options}
    with pytest.raises(ValueError, match=message):
        pac.precision_recall(**given)
