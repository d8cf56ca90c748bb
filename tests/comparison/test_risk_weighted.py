"""Weighted pairs: against loops over all pairs, and against repeated observations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pymc_pacauc as pac
from pymc_pacauc.comparison.pairs import Block, Pairs, bipartite
from pymc_pacauc.comparison.risk import LinearRisk, pair_risk
from pymc_pacauc.comparison.surrogate import surrogate_risk
from tests.pair_lists import label_pairs, listed, listed_risk

TIES = pytest.mark.parametrize("ties", ["half", "strict"])


def data(seed, n=40):
    rng = np.random.default_rng(seed)
    y = (np.arange(n) % 3 == 0).astype(int)
    return rng.integers(-4, 5, n) + 1.5 * y, y, rng.integers(1, 5, n)


@TIES
@given(seed=st.integers(0, 10**6), blocks=st.integers(1, 12), n=st.integers(2, 30))
def test_blocks_with_rank_one_weights(seed, blocks, n, ties):
    rng = np.random.default_rng(seed)

    def side():
        index = rng.integers(0, n, rng.integers(1, 12))
        return index, rng.gamma(1.0, size=index.size) if rng.random() < 0.7 else None

    made = []
    for _ in range(blocks):
        (positive, a), (negative, b) = side(), side()
        made.append(Block(positive, negative, a, b, float(rng.gamma(2.0))))
    pairs = Pairs(n, tuple(made))
    scores = rng.integers(-3, 4, (3, n)).astype(float)
    i, j, w = listed(pairs)
    assert pairs.n_pairs == i.size
    assert pairs.total_weight == pytest.approx(w.sum())
    expected = [listed_risk(row, (i, j, w), ties) for row in scores]
    np.testing.assert_allclose(pair_risk(scores, pairs, ties=ties), expected, atol=1e-13)
    total = np.bincount(i, w, minlength=n) + np.bincount(j, w, minlength=n)
    np.testing.assert_allclose(pairs.observation_weight, total, atol=1e-12)
    chosen = rng.random(n) < 0.6
    kept = pairs.among(chosen)
    inside = chosen[i] & chosen[j]
    assert kept.total_weight == pytest.approx(w[inside].sum())


@TIES
def test_integer_weights_are_repeated_observations(ties):
    scores, y, weights = data(1)
    repeated = np.repeat(np.arange(y.size), weights)
    found = pac.empirical_risk(scores, y, weights=weights, ties=ties)
    assert found == pytest.approx(pac.empirical_risk(scores[repeated], y[repeated], ties=ties), abs=1e-14)
    assert found == pytest.approx(listed_risk(scores, label_pairs(y, weights=weights), ties), abs=1e-14)


def test_weights_that_are_constant_within_classes_change_nothing():
    scores, y, _ = data(2)
    pairs = bipartite(y).times(np.where(y, 3.0, 0.2))
    assert pairs.blocks[0].constant
    assert pair_risk(scores[None], pairs)[0] == pytest.approx(pac.empirical_risk(scores, y), abs=1e-15)


def test_linear_risk_keeps_weights_of_equal_rows():
    rng = np.random.default_rng(3)
    _, y, weights = data(3)
    X, theta = rng.integers(-1, 2, (y.size, 2)).astype(float), rng.integers(-2, 3, (9, 2)).astype(float)
    risk = LinearRisk(X, bipartite(y).times(weights.astype(float)))
    np.testing.assert_allclose(risk(theta), pac.empirical_risk(theta @ X.T, y, weights=weights), atol=1e-14)


def test_surrogates():
    rng = np.random.default_rng(4)
    _, y, weights = data(4)
    scores = rng.standard_normal(y.size)
    repeated = np.repeat(np.arange(y.size), weights)
    value, gradient = surrogate_risk(scores, bipartite(y).times(weights.astype(float)))
    expected, by_row = surrogate_risk(scores[repeated], bipartite(y[repeated]))
    assert value == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(gradient, np.bincount(repeated, by_row), atol=1e-13)
    assert np.isnan(surrogate_risk(np.full(y.size, np.inf), bipartite(y))[0])


def test_surrogates_over_blocks_that_share_observations():
    rng = np.random.default_rng(5)
    pairs = Pairs(6, (Block(np.array([0, 1]), np.array([2, 3, 4])), Block(np.array([2, 4]), np.array([5]), weight=2.0)))
    scores = 30.0 * rng.standard_normal(6)
    i, j, w = listed(pairs)
    margin = scores[i] - scores[j]
    cost = np.logaddexp(0, -margin) / np.log(2)
    value, gradient = surrogate_risk(scores, pairs)
    assert value == pytest.approx(w @ cost / w.sum(), rel=1e-12)
    for k in range(6):
        move = 1e-6 * (np.arange(6) == k)
        slope = surrogate_risk(scores + move, pairs)[0] - surrogate_risk(scores - move, pairs)[0]
        assert gradient[k] == pytest.approx(slope / 2e-6, abs=1e-7)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, 1.0, 0.0, 1.0], r"weights has 1 value\(s\) <= 0"),
        ([1.0, -1.0, 0.0, 1.0], r"weights has 2 value\(s\) <= 0"),
        ([1.0, np.nan, 1.0, 1.0], r"weights has 1 NaN or infinite"),
        ([1.0, np.inf, 1.0, 1.0], r"weights has 1 NaN or infinite"),
        ([1.0, 1.0, 1.0], r"weights must have shape \(4,\)"),
        (["a", "b", "c", "d"], "weights must be a rectangular array of numbers"),
        (2.0, "weights must be a vector"),
    ],
)
def test_bad_weights(weights, message):
    with pytest.raises(ValueError, match=message):
        pac.empirical_risk([1.0, 2.0, 3.0, 4.0], [0, 1, 0, 1], weights=weights)
