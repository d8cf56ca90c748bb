"""Estimators of data nobody chose."""

import warnings

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

import pymc_pacauc as pac
from tests import pair_lists
from tests.ep.test_fuzz import small
from tests.fuzzing import fuzz


@fuzz(
    "AUCClassifier",
    fast=5,
    data=small(columns=2),
    method=st.sampled_from(["ep", "vb"]),
    calibration=st.sampled_from(["auto", "isotonic"]),
    names=st.sampled_from([(0, 1), (-1, 1), ("a", "b"), (False, True)]),
)
def test_a_classifier_is_its_score(data, method, calibration, names):
    """Its score is linear, its AUC that of the score, its probabilities rise with it; names and units do not matter."""
    X, y, gamma, _ = data
    options = {"method": method, "gamma": gamma, "calibration": calibration}
    assume(min(y.sum(), (~y).sum()) > 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pac.results.ConvergenceWarning)
        warnings.filterwarnings("ignore", "y has rows for . folds")
        first = pac.AUCClassifier(**options).fit(X, np.array(names)[y.astype(int)])
        other = pac.AUCClassifier(**options).fit(4.0 * X, y.astype(int))
    score = first.decision_function(X)
    np.testing.assert_allclose(score, X @ first.coef_[0] + first.intercept_[0], rtol=1e-9, atol=1e-9)
    assert first.score(X, np.array(names)[y.astype(int)]) == pytest.approx(1.0 - pac.empirical_risk(score, y))
    probability = first.predict_proba(X)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0)
    assert ((probability >= 0) & (probability <= 1)).all()
    assert (np.diff(probability[np.argsort(score), 1]) >= -1e-9).all()
    called = first.predict(X)
    assert set(called.tolist()) <= set(names)
    np.testing.assert_array_equal(called == names[1], score > 0)
    np.testing.assert_allclose(4.0 * other.coef_, first.coef_, atol=1e-9)


@fuzz(
    "ConcordanceEstimator",
    fast=5,
    data=small(columns=2),
    times=st.integers(2, 8),
    method=st.sampled_from(["ep", "vb"]),
    unit=st.sampled_from([0.25, 3.0, 100.0]),
)
def test_an_estimator_of_times_is_its_score(data, times, method, unit):
    """Its score is linear, its concordance counted over a list of pairs; units of time and of X do not matter."""
    X, _, gamma, rng = data
    time, event = rng.integers(1, times + 1, len(X)).astype(float), rng.random(len(X)) < 0.7
    listed = pair_lists.censored_pairs(time, event, np.zeros(len(X), dtype=int))
    assume(len(listed) > 0)
    options = {"method": method, "gamma": gamma, "prior": "ridge"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pac.results.ConvergenceWarning)
        first = pac.ConcordanceEstimator(**options).fit(X, np.column_stack([event, time]))
        other = pac.ConcordanceEstimator(**options).fit(4.0 * X, np.column_stack([event, unit * time**3]))
    score, sd = first.predict(X, return_std=True)
    np.testing.assert_allclose(score, (X - X.mean(axis=0)) @ first.coef_, atol=1e-9)
    assert (sd >= 0).all()
    counted = 1.0 - pair_lists.listed_risk(score, listed)
    assert first.score(X, np.column_stack([event, time])) == pytest.approx(counted, abs=1e-12)
    np.testing.assert_allclose(4.0 * other.coef_, first.coef_, atol=1e-9)
    assert other.log_evidence_ == pytest.approx(first.log_evidence_, abs=1e-9)
