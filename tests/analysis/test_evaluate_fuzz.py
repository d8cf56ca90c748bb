"""Intervals, comparisons and hold-out certificates of AUCs, of scores nobody chose."""

import warnings

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st
from scipy.stats import rankdata

import pymc_pacauc as pac
from pymc_pacauc.problem.problem import linear_gaussian_problem
from tests.analysis.test_evaluate import finite
from tests.ep.test_fuzz import small
from tests.fuzzing import fuzz


@fuzz(
    "auc_interval",
    "results.AUCInterval",
    "compare_auc",
    "results.AUCComparison",
    fast=15,
    data=finite,
    seed=st.integers(0, 10**6),
)
def test_intervals_and_comparisons(data, seed):
    """Around the AUC, within [0, 1]; a comparison the other way round has the other sign."""
    score, y = data
    assume(min(y.sum(), (~y).sum()) > 1)
    found = pac.auc_interval(score, y)
    assert found.auc == pytest.approx(1.0 - pac.empirical_risk(score, y))
    assert 0.0 <= found.lower <= found.auc <= found.upper <= 1.0
    other = np.random.default_rng(seed).normal(size=y.size)
    one, two = pac.compare_auc(score, other, y), pac.compare_auc(other, score, y)
    assert one.difference == pytest.approx(found.auc - (1.0 - pac.empirical_risk(other, y)))
    assert (two.lower, two.upper) == pytest.approx((-one.upper, -one.lower), abs=1e-9)
    assert one.probability + two.probability == pytest.approx(1.0)
    assert one.lower <= one.difference <= one.upper
    ranked = pac.compare_auc(rankdata(score), other, y)
    assert (ranked.lower, ranked.upper) == pytest.approx((one.lower, one.upper), abs=1e-9)


@fuzz("precision_recall", fast=5, data=finite, seed=st.integers(0, 10**6))
def test_precision_and_recall(data, seed):
    """Within [0, 1] and around the curve; only the ranking counts; a useless score has the event rate on average."""
    score, y = data
    found = pac.precision_recall(score, y, calls=y.size, random_seed=seed)
    said = found.attrs
    assert 0.0 <= said["average_precision_lower"] <= said["average_precision"] <= said["average_precision_upper"] <= 1.0
    assert bool(((found["precision_lower"] >= 0.0) & (found["precision_upper"] <= 1.0)).all())
    assert (said["recall_at_calls"], said["precision_at_calls"]) == pytest.approx((1.0, y.mean()))
    ranked = pac.precision_recall(rankdata(score), y, random_seed=seed)
    assert ranked.attrs["average_precision"] == pytest.approx(said["average_precision"])
    assert pac.precision_recall(np.zeros(y.size), y).attrs["average_precision"] == pytest.approx(y.mean())


@fuzz(
    "scorecard", "results.Scorecard", fast=5, data=small(columns=3), points=st.integers(1, 9), terms=st.integers(1, 3)
)
def test_scorecards(data, points, terms):
    """Whole points within their limits, whose total has the AUC that is said."""
    X, y, gamma, _ = data
    assume(min(y.sum(), (~y).sum()) > 1)
    assume((X.std(axis=0) > 1e-3).any())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = pac.AUCClassifier(gamma=max(gamma, 0.1), calibration=None).fit(X, y)
        assume((fitted.coef_ != 0.0).any())
        card = pac.scorecard(fitted, X, y, points=points, max_terms=terms)
    assert 1 <= len(card.columns) <= terms
    assert 1 <= np.abs(card.points).max() <= points
    total = card.score(X[:, [int(name[1:]) for name in card.columns]])
    assert card.auc == pytest.approx(1.0 - pac.empirical_risk(total, y))
    assert card.loss == pytest.approx(card.auc_of_score - card.auc)


@fuzz("certify.holdout", "results.HoldOutCertificate", fast=15, data=finite, epsilon=st.floats(1e-4, 0.5))
def test_certificates_of_a_fixed_score(data, epsilon):
    """Below the AUC it certifies, and the lower the surer; only the ranking counts."""
    score, y = data
    found = pac.certify.holdout(score, y, epsilon)
    assert found.empirical_auc == pytest.approx(1.0 - pac.empirical_risk(score, y))
    assert 0.0 <= found.auc <= found.empirical_auc + 1e-9
    assert pac.certify.holdout(score, y, 0.5 * epsilon).auc <= found.auc + 1e-9
    assert pac.certify.holdout(score, y, epsilon, selected_from=3).auc <= found.auc + 1e-9
    assert pac.certify.holdout(rankdata(score), y, epsilon).auc == pytest.approx(found.auc, abs=1e-9)


@fuzz("certify.split", "results.SplitCertificate", fast=5, data=small(columns=2), epsilon=st.floats(0.01, 0.4))
def test_certificates_of_a_split(data, epsilon):
    """Possible numbers, the same for X in another unit, the lower the surer."""
    X, y, gamma, _ = data
    assume(min(y.sum(), (~y).sum()) > 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pac.results.ConvergenceWarning)
        found, scaled, surer = (
            pac.certify.split(linear_gaussian_problem(unit * X, y, gamma), epsilon=share * epsilon, n_jobs=1)
            for unit, share in ((1.0, 1.0), (4.0, 1.0), (1.0, 0.5))
        )
    for name in ("auc", "draw_auc", "mean_score_auc", "empirical_auc"):
        value = getattr(found, name)
        assert 0.0 <= value <= 1.0
        assert getattr(scaled, name) == pytest.approx(value, abs=1e-6)
        assert getattr(surer, name) <= value + 1e-9
    assert found.auc <= found.empirical_auc + 1e-9
    assert found.divergence >= -1e-9
