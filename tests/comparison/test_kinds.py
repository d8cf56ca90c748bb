"""Ordered classes and strata, against loops over all pairs and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau
from sklearn.metrics import roc_auc_score

import pymc_pacauc as pac
from pymc_pacauc.comparison.kinds import label_comparison, ordered_classes, stratified
from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.comparison.risk import pair_risk
from tests.pair_lists import label_pairs, listed, listed_risk

TIES = pytest.mark.parametrize("ties", ["half", "strict"])


@TIES
@given(seed=st.integers(0, 10**6), n=st.integers(3, 40), classes=st.integers(2, 12), groups=st.integers(1, 15))
def test_ordered_stratified_weighted(seed, n, classes, groups, ties):
    rng = np.random.default_rng(seed)
    y, strata = rng.integers(0, classes, n), rng.integers(0, groups, n)
    y[:2], strata[:2] = (0, 1), 0
    weights = rng.gamma(1.0, size=n)
    scores = rng.integers(-3, 4, (2, n)).astype(float)
    for options in ({}, {"strata": strata}, {"weights": weights}, {"strata": strata, "weights": weights}):
        brute = label_pairs(y, **options)
        found = pac.empirical_risk(scores, y, ordered=True, ties=ties, **options)
        np.testing.assert_allclose(found, [listed_risk(row, brute, ties) for row in scores], atol=1e-13)
    alone = label_comparison(y, strata=strata, ordered=True)
    np.testing.assert_array_equal(listed(alone)[:2], label_pairs(y, strata=strata)[:2])
    has_pair = [np.unique(y[strata == g]).size > 1 for g in np.unique(strata)]
    assert alone.skipped_strata == has_pair.count(False)


def test_two_ordered_classes_are_the_auc():
    y = np.array([3, 3, 7, 7, 3])
    assert ordered_classes(y).kind == "two classes"
    np.testing.assert_array_equal(listed(ordered_classes(y)), listed(bipartite(y, positive=7)))


def test_strata_by_name():
    pairs = stratified(bipartite([0, 1, 1, 0, 0, 1]), ["a", "a", "b", "b", "c", "d"])
    assert pairs.n_pairs == 2
    assert pairs.skipped_strata == 2
    mixed = np.array([1, 1, "b", "b", None, 2.5], dtype=object)
    with pytest.raises(ValueError, match="strata has 1 missing"):
        stratified(bipartite([0, 1, 1, 0, 0, 1]), mixed)


@pytest.mark.parametrize("groups", [1, 5_000])
def test_as_many_classes_as_observations_in_little_memory(groups):
    """Against Kendall's tau, which counts the same pairs; two observations of a stratum are compared by hand."""
    n = 10_000
    rng = np.random.default_rng(0)
    y, strata = rng.standard_normal(n), np.arange(n) % groups
    scores = y + rng.standard_normal(n)
    pairs = label_comparison(y, ordered=True, strata=None if groups == 1 else strata)
    indices = sum(block.positive.size + block.negative.size for block in pairs.blocks)
    assert indices <= n * np.ceil(np.log2(n / groups))
    if groups == 1:
        expected = 0.5 - 0.5 * kendalltau(scores, y).statistic
    else:
        expected = np.mean((y[:groups] > y[groups:]) != (scores[:groups] > scores[groups:]))
    assert pairs.n_pairs == groups * (n // groups) * (n // groups - 1) // 2
    assert float(pair_risk(scores[None], pairs)[0]) == pytest.approx(expected, abs=1e-12)


def test_against_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    n = 120
    y, strata, weights = rng.integers(0, 4, n), rng.integers(0, 8, n), rng.gamma(2.0, size=n)
    scores = np.round(rng.standard_normal(n) + 0.4 * y, 1)
    two = y > 1
    assert pac.empirical_risk(scores, two, weights=weights) == pytest.approx(
        1 - metrics.roc_auc_score(two, scores, sample_weight=weights), abs=1e-12
    )
    by_stratum = [(strata == g) & np.isin(strata, strata[two]) for g in np.unique(strata)]
    kept = [m for m in by_stratum if two[m].any() and (~two[m]).any()]
    size = np.array([two[m].sum() * (~two[m]).sum() for m in kept])
    auc = np.array([metrics.roc_auc_score(two[m], scores[m]) for m in kept])
    assert 1 - pac.empirical_risk(scores, two, strata=strata) == pytest.approx(size @ auc / size.sum(), abs=1e-12)
    counts = np.bincount(y)
    between = [(a, b, (y == a) | (y == b)) for a in range(4) for b in range(a)]
    one_against_one = [metrics.roc_auc_score(y[both] == a, scores[both]) for a, b, both in between]
    expected = np.average(one_against_one, weights=[counts[a] * counts[b] for a, b, _ in between])
    assert 1 - pac.empirical_risk(scores, y, ordered=True) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("y", "options", "message"),
    [
        ([0, 1, 2, 1], {}, "pass ordered=True"),
        (["low", "mid", "high", "low"], {"ordered": True}, "rank of each class"),
        ([1, 1, 1, 1], {"ordered": True}, "one class only"),
        ([0, np.nan, 1, 1], {"ordered": True}, "y has 1 NaN"),
        ([0, 1, 2, 1], {"ordered": True, "positive": 1}, "positive= is for two classes"),
        ([0, 1, 2, 1], {"ordered": {(2, 1): 1.0}}, "ordered must be True or False; got {"),
        ([0, 1, 2, 1], {"ordered": "yes"}, "ordered must be True or False; got 'yes'"),
        ([0, 1, 0, 1], {"strata": [1, 1, 2]}, r"strata must have shape \(4,\)"),
        ([0, 1, 0, 1], {"strata": [0, 1, 2, 3]}, "strata leaves no pair"),
        ([0, 1, 0, 1], {"strata": [0.0, 1.0, np.nan, 3.0]}, "strata has 1 missing"),
    ],
)
def test_bad_input(y, options, message):
    with pytest.raises(ValueError, match=message):
        pac.empirical_risk([1.0, 2.0, 3.0, 4.0], y, **options)


@given(seed=st.integers(0, 10**6), n=st.integers(6, 40), weighted=st.booleans())
def test_hand_and_tills_m(seed, n, weighted):
    """The mean over ordered pairs of classes of the AUC between them, by scikit-learn two classes at a time."""
    rng = np.random.default_rng(seed)
    y = np.array(["b", "a", "c"])[np.r_[0, 1, 2, 0, 1, 2, rng.integers(0, 3, n - 6)]]
    scores, weights = rng.integers(0, 5, (2, n, 3)).astype(float), rng.gamma(1.0, size=n) + 0.01 if weighted else None
    for row, found in zip(scores, pac.empirical_risk(scores, y, weights=weights, multi_class="ovo"), strict=True):
        each = []
        for k, label in enumerate("abc"):
            for other in sorted(set("abc") - {label}):
                both = np.isin(y, (label, other))
                share = None if weights is None else weights[both]
                each.append(roc_auc_score(y[both] == label, row[both, k], sample_weight=share))
        assert found == pytest.approx(1.0 - np.mean(each), abs=1e-12)
    if not weighted:
        probability = rng.dirichlet([1.0, 1.0, 1.0], n)
        theirs = roc_auc_score(y, probability, multi_class="ovo")
        assert 1.0 - pac.empirical_risk(probability, y, multi_class="ovo") == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"multi_class": "ovr"}, 'multi_class must be "ovo" or None'),
        ({"ordered": True}, "goes with weights and strata"),
        ({"scores": np.zeros(4)}, r"scores must have shape \(..., 4 rows, 3 classes\).*got \(4,\)"),
        ({"scores": np.zeros((4, 2))}, r"scores must have shape \(..., 4 rows, 3 classes\)"),
        ({"y": [1, 1, 1, 1]}, "one class only"),
    ],
)
def test_bad_unordered_classes(options, message):
    given = {"scores": np.zeros((4, 3)), "y": [0, 1, 2, 0], "multi_class": "ovo", **options}
    with pytest.raises(ValueError, match=message):
        pac.empirical_risk(**given)
