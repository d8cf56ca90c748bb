"""Scorecards: whole points, the best of all small cards, and losses as another AUC function counts them."""

import itertools

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

import pymc_pacauc as pac

RNG = np.random.default_rng(0)
X = RNG.normal(size=(150, 5)) * [1.0, 10.0, 1.0, 0.02, 1.0]
X[:, 2] = X[:, 2] > 0
Y = (X / [1.0, 10.0, 1.0, 0.02, 1.0]) @ [1.0, -0.6, 0.8, 0.2, 0.0] + RNG.logistic(size=150) > 0.4


@pytest.fixture(scope="module")
def fitted():
    return pac.AUCClassifier(gamma="default").fit(X, Y)


def test_points_and_their_auc(fitted):
    card = pac.scorecard(fitted, X, Y, points=5, max_terms=3)
    assert len(card.columns) <= 3
    assert np.abs(card.points).max() <= 5
    assert card.points.dtype.kind == "i"
    places = [int(name[1:]) for name in card.columns]
    total = card.score(X[:, places])
    np.testing.assert_allclose(total, X[:, places] @ (card.points / card.steps))
    assert card.auc == pytest.approx(roc_auc_score(Y, total), abs=1e-12)
    assert card.auc_of_score == pytest.approx(roc_auc_score(Y, fitted.decision_function(X)), abs=1e-12)
    assert card.loss == card.auc_of_score - card.auc
    assert card.lower < card.loss < card.upper
    assert 0.0 <= card.probability <= 1.0
    assert all(name in repr(card) for name in card.columns)
    assert "P(loss > 0.01)" in repr(card)


def test_near_the_best_of_all_cards(fitted):
    """Of the 7^3 cards on the three columns chosen, none ranks these rows better by more than a hair."""
    card = pac.scorecard(fitted, X, Y, points=3, max_terms=3)
    places = [int(name[1:]) for name in card.columns]
    counts = X[:, places] / card.steps
    best = max(
        roc_auc_score(Y, counts @ points)
        for points in itertools.product(range(-3, 4), repeat=len(places))
        if any(points)
    )
    assert best - card.auc < 0.002


def test_steps_are_round_numbers(fitted):
    card = pac.scorecard(fitted, X, Y)
    step = dict(zip(card.columns, card.steps, strict=True))
    assert step["x1"] == 10.0
    assert step["x2"] == 1.0
    assert card.auc > card.auc_of_score - 0.01


def test_frames_and_models():
    frame = pd.DataFrame(X, columns=list("abcde"))
    fitted = pac.AUCClassifier(gamma="default").fit(frame, Y)
    card = pac.scorecard(fitted, frame, Y, max_terms=2)
    assert set(card.columns) <= set("abcde")
    shuffled = frame[list("edcba")]
    np.testing.assert_array_equal(card.score(shuffled), card.score(frame))
    assert repr(pac.scorecard(fitted, shuffled, Y, max_terms=2)) == repr(card)


def test_a_copy_of_a_column_takes_no_term():
    doubled = np.column_stack([X, X[:, 0]])
    fitted = pac.AUCClassifier(gamma="default").fit(doubled, Y)
    card = pac.scorecard(fitted, doubled, Y, max_terms=2)
    assert not {"x0", "x5"} <= set(card.columns)
    assert card.auc == pytest.approx(pac.scorecard(pac.AUCClassifier(gamma="default").fit(X, Y), X, Y, max_terms=2).auc)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"points": 0}, "points must be a whole number, at least 1; got 0"),
        ({"points": 2.5}, "points must be a whole number"),
        ({"max_terms": 0}, "max_terms must be a whole number"),
        ({"X": X[:, :3]}, r"X must have the 5 columns of the fit; got shape \(150, 3\)"),
        ({"X": pd.DataFrame(X, columns=list("abcde"))}, "X has no column x0, x1, x2, x3, x4: rename"),
        ({"X": np.where(np.arange(5) == 2, np.nan, X)}, "X has 150 NaN"),
        ({"X": np.ones((150, 5))}, "the same mean score in every row"),
        ({"y": Y[:9]}, "y must have one label per row of X, 150; it has 9"),
        ({"y": np.ones(150)}, "one class only"),
    ],
)
def test_bad_input(fitted, changes, message):
    with pytest.raises(ValueError, match=message):
        pac.scorecard(fitted, **{"X": X, "y": Y, **changes})
