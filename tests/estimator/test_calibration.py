"""Probabilities from cross-fitted scores: each map against its definition, with the weights of the rows."""

import numpy as np
import pytest
import sklearn.utils
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, logit, ndtr, softmax
from sklearn.isotonic import IsotonicRegression

import pymc_pacauc as pac
from pymc_pacauc.estimator.calibration import CROSS_SD, FAR, Sigmoid, Steps, fit_sigmoid, fit_softmax
from pymc_pacauc.estimator.posterior import cross_fit


def data(n=90, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, X[:, 0] + rng.logistic(size=n) > 0.2, rng.integers(1, 7, size=n).astype(float)


@pytest.mark.parametrize("calibration", ["isotonic", "sigmoid"])
def test_maps_are_of_weighted_rows_that_were_left_out(calibration):
    X, y, weights = data()
    found = pac.AUCClassifier("ridge", gamma=30.0, calibration=calibration).fit(X, y, sample_weight=weights)
    [score] = found.scores_
    held_out = cross_fit(score.posterior, 5)
    above = np.tile(y.astype(float), len(held_out))
    each = np.tile(weights / weights.mean(), len(held_out)) / len(held_out)
    if calibration == "isotonic":
        steps = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
        expected = Steps(steps.fit(held_out.ravel(), above, sample_weight=each), 90)
    else:
        expected = fit_sigmoid(held_out.ravel(), above, each)
    at = score.standard(X)
    np.testing.assert_allclose(found.predict_proba(X)[:, 1], expected(at), atol=1e-12)
    np.testing.assert_allclose(score.held_out, held_out.mean(axis=0), atol=1e-12)
    assert expected(np.array([(score.origin - score.center) / score.spread]))[0] == pytest.approx(0.5, abs=1e-6)


def test_steps_and_one_row_by_phi():
    steps = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit([-1.0, 0.0, 2.0], [0.0, 0.25, 1.0])
    found = Steps(steps, 3)
    at = np.array([-5.0, 0.0, 1.0, 7.0])
    np.testing.assert_allclose(found(at), (3.0 * np.array([0.0, 0.25, 0.625, 1.0]) + ndtr(at)) / 4.0)
    assert found(np.array([found.crossing(0.5)]))[0] == pytest.approx(0.5)
    flat = Steps(IsotonicRegression(out_of_bounds="clip").fit([1.0, 3.0], [0.75, 0.75]), 3)  # from 0.5625 to 0.8125
    assert flat.crossing(0.5) == -FAR
    assert flat.crossing(0.9) == 3.0 + FAR


def test_the_sigmoid_is_the_most_likely_but_for_its_slope():
    """With Platt's targets: (N + 1) / (N + 2) for a class of N rows, by weight; then the slope times 1 - 1 / chi2."""
    rng = np.random.default_rng(2)
    scores, weights = rng.normal(size=80), rng.gamma(2.0, size=80)
    above = (scores + 2.0 * rng.logistic(size=80) > 0.5).astype(float)
    high, low = weights @ above, weights @ (1.0 - above)
    target = np.where(above > 0.0, (high + 1.0) / (high + 2.0), 1.0 / (low + 2.0))

    def loss(parameters):
        p = expit(parameters[0] * scores + parameters[1])
        return -weights @ (target * np.log(p) + (1.0 - target) * np.log1p(-p))

    best = minimize(loss, [0.5, 0.0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-12})
    none = minimize(lambda shift: loss([0.0, shift[0]]), [0.0], method="Nelder-Mead", options={"xatol": 1e-8})
    found = fit_sigmoid(scores, above, weights)
    assert found.slope == pytest.approx(best.x[0] * (1.0 - 1.0 / (2.0 * (none.fun - best.fun))), rel=1e-3)
    shift = minimize(lambda shift: loss([found.slope, shift[0]]), [0.0], method="Nelder-Mead", options={"xatol": 1e-8})
    assert found.shift == pytest.approx(shift.x[0], rel=1e-3)
    assert Sigmoid(2.0, -1.0).crossing(0.8) == pytest.approx((logit(0.8) + 1.0) / 2.0)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_softmax_is_the_most_probable(weighted):
    rng = np.random.default_rng(3)
    scores, place = rng.normal(size=(60, 3)), rng.integers(0, 3, size=60)
    scores[np.arange(60), place] += 1.0
    weights = rng.gamma(2.0, size=60) if weighted else None
    each = np.ones(60) if weights is None else weights / weights.mean()

    shares = np.bincount(place, each) / 60

    def loss(parameters):
        matrix, shifts = parameters[:9].reshape(3, 3), parameters[9:]
        fitted = -each @ log_softmax(scores @ matrix.T + shifts, axis=1)[np.arange(60), place]
        spread = np.where(np.eye(3) > 0, 1.0, CROSS_SD)
        return (
            fitted + 0.5 * np.sum(((matrix - np.eye(3)) / spread) ** 2) + 0.5 * np.sum((shifts - np.log(shares)) ** 2)
        )

    best = minimize(loss, np.ones(12), method="BFGS", options={"gtol": 1e-7}).x
    found = fit_softmax(scores, place, weights)
    np.testing.assert_allclose(found.matrix, best[:9].reshape(3, 3), atol=1e-4)
    np.testing.assert_allclose(found.shifts, best[9:], atol=1e-4)
    np.testing.assert_allclose(found.shares, shares)


def test_decisions_rank_by_probabilities_of_equally_frequent_classes():
    """Their softmax is that of the log-odds, their largest the most probable class; Bayes' rule moves the shares."""
    rng = np.random.default_rng(4)
    scores, place = rng.normal(size=(80, 3)), rng.choice(3, p=[0.7, 0.2, 0.1], size=80)
    scores[np.arange(80), place] += 1.0
    found = fit_softmax(scores, place, None)
    decision, probability = found.decision(scores), softmax(scores @ found.matrix.T + found.shifts, axis=1)
    np.testing.assert_allclose(softmax(decision, axis=1), probability)
    even = probability / found.shares
    even /= even.sum(axis=1, keepdims=True)
    np.testing.assert_array_equal(decision.argsort(axis=0), even.argsort(axis=0))


def test_without_calibration_classes_are_as_frequent_as_in_training():
    """Two: above the average score. Three: as many training rows above each boundary, by weight, as there are."""
    X, y, weights = data()
    two = pac.AUCClassifier("ridge", gamma=30.0, calibration=None).fit(X, y)
    score = two.decision_function(X)
    assert score.mean() == pytest.approx(0.0, abs=1e-9)
    classes = np.digitize(X[:, 0], [-0.5, 0.7])
    three = pac.AUCClassifier("ridge", gamma=30.0, calibration=None).fit(X, classes, sample_weight=weights)
    assert set(three.predict(X)) == {0, 1, 2}


def test_what_is_done_is_printed_where_asked_for(capsys):
    X, y, _ = data()
    pac.AUCClassifier(verbose=True).fit(X, y)
    said = capsys.readouterr().out
    for words in ("choosing the prior's covariance", "choosing gamma by 5 folds: 1 values done", "fitting at gamma = "):
        assert f"[pymc_pacauc] {words}" in said
    pac.AUCClassifier().fit(X, y)
    assert capsys.readouterr().out == ""


@pytest.mark.skipif(not hasattr(sklearn.utils, "get_tags"), reason="scikit-learn 1.5 has other tags")
def test_sparse_rows_are_welcome():
    for estimator in (pac.AUCClassifier(), pac.ConcordanceEstimator()):
        assert sklearn.utils.get_tags(estimator).input_tags.sparse
