import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymc_pacauc.comparison.folds import comparison_folds
from pymc_pacauc.comparison.pairs import Block, Pairs
from tests.analysis.test_select_gamma import y

SEEDS = range(20)


def stratified_folds(positive, folds, rng, groups=None):
    block = Block(np.flatnonzero(positive), np.flatnonzero(~positive))
    return comparison_folds(Pairs(positive.size, (block,), "two classes"), folds, rng, groups)


def test_every_observation_can_go_to_every_fold():
    y = np.arange(30) < 9
    drawn = np.array([stratified_folds(y, 3, np.random.default_rng(seed)) for seed in range(60)])
    assert all(set(column) == {0, 1, 2} for column in drawn.T.tolist())


@pytest.mark.parametrize("seed", SEEDS)
def test_large_groups_are_placed_first(seed):
    """One group as large as all others together: they go to the other fold, whatever the order of the names."""
    y = np.tile([True, False], 20)
    group = np.where(np.arange(40) < 20, 0, np.arange(40) // 2)
    fold = stratified_folds(y, 2, np.random.default_rng(seed), group)
    assert np.bincount(fold).tolist() == [20, 20]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_group_goes_where_its_own_class_is_missing(seed):
    """Negatives in two unequal groups, positives one by one: the positives are shared evenly all the same."""
    y = np.arange(20) < 10
    group = np.where(y, np.arange(20), np.where(np.arange(20) < 16, 100, 101))
    fold = stratified_folds(y, 2, np.random.default_rng(seed), group)
    assert np.bincount(fold[y]).tolist() == [5, 5]
    assert sorted(np.bincount(fold[~y]).tolist()) == [4, 6]


@pytest.mark.parametrize("folds", [1, 0, 2.5, np.nan, np.inf])
def test_a_number_of_folds_that_is_none(folds):
    with pytest.raises(ValueError, match="folds must be an integer of at least 2"):
        stratified_folds(np.arange(10) < 5, folds, np.random.default_rng(0))


@pytest.mark.parametrize("groups", [np.array([np.nan] * 10), np.array([None] * 10, dtype=object), np.ma.masked_all(10)])
def test_missing_groups_are_refused(groups):
    groups = groups.copy()
    groups[:9] = np.arange(9)
    with pytest.raises(ValueError, match="groups has 1 missing value"):
        stratified_folds(np.arange(10) < 5, 2, np.random.default_rng(0), groups)


def test_groups_of_any_kind():
    y = np.arange(8) < 4
    names = np.array(["a", 1, "b", (1, 2), "a", 1, "b", (1, 2)], dtype=object)
    fold = stratified_folds(y, 2, np.random.default_rng(0), names)
    np.testing.assert_array_equal(fold[:4], fold[4:])


@given(st.integers(2, 6), st.integers(6, 40), st.integers(6, 40), st.integers(0, 1000))
def test_folds_are_even_in_both_classes(folds, n_pos, n_neg, seed):
    rng = np.random.default_rng(seed)
    positive = rng.permutation(np.arange(n_pos + n_neg) < n_pos)
    fold = stratified_folds(positive, folds, rng)
    for mask in (positive, ~positive, np.ones_like(positive)):
        sizes = np.bincount(fold[mask], minlength=folds)
        assert np.ptp(sizes) <= 1


def test_groups_stay_together():
    rng = np.random.default_rng(1)
    groups = rng.integers(0, 30, size=200)
    positive = rng.random(200) < 0.4
    fold = stratified_folds(positive, 5, rng, groups)
    assert all(np.unique(fold[groups == g]).size == 1 for g in np.unique(groups))
    shares = np.array([[positive[fold == k].sum(), (~positive[fold == k]).sum()] for k in range(5)])
    assert (np.ptp(shares, axis=0) < 0.5 * shares.mean(axis=0)).all()


def test_impossible_folds_are_refused():
    rng = np.random.default_rng(1)
    with pytest.raises(ValueError, match="at least 2"):
        stratified_folds(y, 1, rng)
    with pytest.raises(ValueError, match="a fold has no pair to compare"):
        stratified_folds(np.arange(10) < 2, 5, rng)
    with pytest.raises(ValueError, match="groups has 2 values, fewer than folds=5"):
        stratified_folds(y, 5, rng, np.arange(120) % 2)
    with pytest.raises(ValueError, match="groups must have shape"):
        stratified_folds(y, 5, rng, np.arange(3))
