from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

import pymc_pacauc as pac
from pymc_pacauc.comparison.pairs import Block, Pairs, bipartite
from pymc_pacauc.comparison.risk import LinearRisk, distinct_rows, pair_risk

anything = st.one_of(
    st.integers(-3, 3).map(float), st.floats(allow_nan=False), st.sampled_from([-np.inf, np.inf, -0.0])
)
TIES = pytest.mark.parametrize("ties", ["half", "strict"])


def count(scores, positive, negative, ties="half"):
    """Wrong pairs of one score vector, by comparing each."""
    above, below = scores[positive][:, None], scores[negative][None, :]
    return np.sum(above < below) + (0.5 * np.sum(above == below) if ties == "half" else 0)


def brute_force(scores, y, ties="half"):
    positive, negative = np.flatnonzero(np.asarray(y)), np.flatnonzero(~np.asarray(y, dtype=bool))
    rows = np.atleast_2d(scores)
    return np.array([count(row, positive, negative, ties) for row in rows]) / (positive.size * negative.size)


@st.composite
def scored(draw, values=anything):
    """Scores and labels with both classes; many ties, all scales."""
    y = draw(st.lists(st.booleans(), min_size=2, max_size=60).filter(lambda y: 0 < sum(y) < len(y)))
    scores = draw(st.lists(values, min_size=len(y), max_size=len(y)))
    return np.array(scores), np.array(y)


# --- against brute force ---------------------------------------------------------------------------------------------


@TIES
@given(data=scored())
def test_equals_brute_force(data, ties):
    scores, y = data
    assert pac.empirical_risk(scores, y, ties=ties) == pytest.approx(brute_force(scores, y, ties)[0], abs=1e-15)


ADVERSARIAL = {
    "normal": lambda r, s: r.standard_normal(s),
    "shifted": lambda r, s: 1e6 + r.standard_normal(s),
    "far away": lambda r, s: 1e12 + r.standard_normal(s),
    "lognormal": lambda r, s: np.exp(3 * r.standard_normal(s)),
    "cauchy": lambda r, s: r.standard_cauchy(s),
    "one outlier": lambda r, s: np.where(np.arange(s[1]) == 5, 1e9, r.standard_normal(s)),
    "squares overflow": lambda r, s: np.where(np.arange(s[1]) == 5, 1.4e154, r.standard_normal(s)),
    "symmetric huge": lambda r, s: 1e200 * r.choice([-1.0, 1.0], s),
    "largest floats": lambda r, s: r.uniform(-1, 1, s) * np.finfo(float).max,
    "huge": lambda r, s: 1e150 * r.standard_normal(s),
    "tiny": lambda r, s: 1e-150 * r.standard_normal(s),
    "subnormal": lambda r, s: 5e-324 * r.integers(0, 50, s),
    "three values": lambda r, s: r.integers(0, 3, s).astype(float),
    "constant": lambda r, s: np.full(s, 0.1),
    "clusters": lambda r, s: r.choice([0.0, 1.0, 50.0], s) + 1e-6 * r.standard_normal(s),
    "half tied": lambda r, s: np.maximum(r.standard_normal(s), 0.0),
    "one ulp apart": lambda r, s: np.nextafter(1.0, np.where(r.random(s) < 0.5, 0.0, 2.0)),
    "infinite": lambda r, s: np.where(
        r.random(s) < 0.1, np.inf, np.where(r.random(s) < 0.1, -np.inf, r.normal(size=s))
    ),
    "all infinite": lambda r, s: r.choice([-np.inf, np.inf], s),
}


@TIES
@pytest.mark.parametrize("share", [0.02, 0.3, 0.5, 0.9], ids="{:.0%} positive".format)
@pytest.mark.parametrize("kind", ADVERSARIAL)
def test_equals_brute_force_on_adversarial_scores(kind, share, ties):
    rng = np.random.default_rng(1)
    n = 300
    y = np.zeros(n, dtype=bool)
    y[rng.permutation(n)[: max(1, round(share * n))]] = True
    scores = ADVERSARIAL[kind](rng, (8, n))
    np.testing.assert_allclose(
        pac.empirical_risk(scores, y, ties=ties), brute_force(scores, y, ties), rtol=0, atol=1e-15
    )


def test_risk_is_nan_without_a_ranking():
    scores = np.array([[1.0, np.nan, 0.0], [1.0, 2.0, 3.0]])
    np.testing.assert_array_equal(pair_risk(scores, bipartite([1, 0, 0])), [np.nan, 1.0])


# --- invariances -----------------------------------------------------------------------------------------------------


@given(data=scored(), seed=st.integers(0, 99))
def test_order_of_observations_does_not_matter(data, seed):
    scores, y = data
    order = np.random.default_rng(seed).permutation(y.size)
    assert pac.empirical_risk(scores[order], y[order]) == pac.empirical_risk(scores, y)


@TIES
@given(data=scored(st.integers(-20, 20).map(float)))
def test_increasing_maps_do_not_matter(data, ties):
    scores, y = data
    maps = np.stack([scores, 3 * scores - 7, scores**3, np.exp(scores), np.arctan(scores), 1e300 * scores])
    risks = pac.empirical_risk(maps, y, ties=ties)
    assert (risks == risks[0]).all()


@given(data=scored())
def test_swapping_labels_or_signs_complements(data):
    scores, y = data
    risk = pac.empirical_risk(scores, y)
    assert pac.empirical_risk(scores, ~y) == pytest.approx(1 - risk, abs=1e-15)
    assert pac.empirical_risk(-scores, y) == pytest.approx(1 - risk, abs=1e-15)
    assert pac.empirical_risk(scores, y, positive=False) == pytest.approx(1 - risk, abs=1e-15)


@given(data=scored())
def test_strict_forgives_ties(data):
    scores, y = data
    half, strict = (pac.empirical_risk(scores, y, ties=ties) for ties in ("half", "strict"))
    tied = (scores[y][:, None] == scores[~y][None, :]).mean()
    assert half == pytest.approx(strict + tied / 2, abs=1e-15)


# --- shapes, NaN, blocks ---------------------------------------------------------------------------------------------


def test_batch_shapes():
    rng = np.random.default_rng(0)
    scores, y = rng.standard_normal((2, 3, 40)), rng.random(40) < 0.4
    risk = pac.empirical_risk(scores, y)
    assert risk.shape == (2, 3)
    np.testing.assert_array_equal(risk.ravel(), brute_force(scores.reshape(6, 40), y))
    assert np.shape(pac.empirical_risk(scores[0, 0], y)) == ()
    assert pac.empirical_risk(scores[:0], y).shape == (0, 3)
    np.testing.assert_array_equal(pac.empirical_risk(np.asfortranarray(scores), y), risk)
    np.testing.assert_array_equal(pac.empirical_risk(scores[:, ::-1], y), risk[:, ::-1])
    frozen = scores.copy()
    frozen.setflags(write=False)
    np.testing.assert_array_equal(pac.empirical_risk(frozen, y), risk)
    single = scores.astype(np.float32)
    np.testing.assert_array_equal(pac.empirical_risk(single, y), pac.empirical_risk(single.astype(float), y))


@TIES
@given(data=scored(), where=st.integers(0, 10**6))
def test_nan_spoils_its_own_row_only(data, where, ties):
    scores, y = data
    spoiled = scores.copy()
    spoiled[where % y.size] = np.nan
    risk = pac.empirical_risk(np.stack([scores, spoiled, -scores]), y, ties=ties)
    assert np.isnan(risk[1])
    assert risk[0] == pac.empirical_risk(scores, y, ties=ties)
    assert risk[2] == pac.empirical_risk(-scores, y, ties=ties)


@TIES
@given(data=st.data())
def test_several_blocks(data, ties):
    n = data.draw(st.integers(2, 25))
    index = st.lists(st.integers(0, n - 1), min_size=1, max_size=20).map(lambda v: np.array(v, dtype=np.intp))
    blocks = tuple(data.draw(st.lists(st.builds(Block, index, index), min_size=1, max_size=4)))
    scores = np.array(data.draw(st.lists(st.integers(-4, 4).map(float), min_size=n, max_size=n)))
    expected = sum(count(scores, b.positive, b.negative, ties) for b in blocks) / sum(b.n_pairs for b in blocks)
    assert pair_risk(scores[None], Pairs(n, blocks), ties=ties)[0] == pytest.approx(expected, abs=1e-14)


# --- linear scores ---------------------------------------------------------------------------------------------------


@TIES
@given(data=scored(st.integers(-3, 3).map(float)), d=st.integers(1, 4), seed=st.integers(0, 10**6))
def test_linear_risk_equals_empirical_risk(data, d, seed, ties):
    _, y = data
    rng = np.random.default_rng(seed)
    X = rng.integers(-2, 3, (y.size, d)).astype(float)  # duplicate rows, and scores without rounding
    theta = rng.integers(-3, 4, (5, 2, d)).astype(float)
    risk = pac.arrays.linear_risk(theta, X, y, ties=ties)
    assert risk.shape == (5, 2)
    np.testing.assert_array_equal(risk, pac.empirical_risk(theta @ X.T, y, ties=ties))


def test_linear_risk_in_several_tiles():
    rng = np.random.default_rng(0)
    X, theta, y = rng.standard_normal((500, 6)), rng.standard_normal((1000, 6)), rng.random(500) < 0.3
    np.testing.assert_array_equal(pac.arrays.linear_risk(theta, X, y), pac.empirical_risk(theta @ X.T, y))


@pytest.mark.parametrize("n", [7, 64, 301])
def test_duplicate_rows_tie_exactly(n):
    rng = np.random.default_rng(n)
    X = np.repeat(rng.standard_normal((n, 11)), 2, axis=0)
    y = np.tile([True, False], n)  # every observation has a twin in the other class
    theta = rng.standard_normal((50, 11))
    tied = pac.arrays.linear_risk(theta, X, y, ties="half") - pac.arrays.linear_risk(theta, X, y, ties="strict")
    np.testing.assert_allclose(tied, 0.5 * n / n**2, rtol=1e-12)


def test_zero_coefficients_tie_everything():
    data = pac.datasets.load_pima()
    assert pac.arrays.linear_risk(np.zeros(7), data.X, data.y) == 0.5
    assert pac.arrays.linear_risk(np.zeros(7), data.X, data.y, ties="strict") == 0.0


def test_offset_is_added_to_the_scores():
    rng = np.random.default_rng(3)
    X, theta, y = (
        rng.integers(0, 3, (60, 2)).astype(float),
        rng.integers(-2, 3, (20, 2)).astype(float),
        rng.random(60) < 0.5,
    )
    offset = rng.integers(0, 4, 60).astype(float)
    risk = LinearRisk(X, bipartite(y), offset=offset)
    np.testing.assert_array_equal(risk(theta), pac.empirical_risk(theta @ X.T + offset, y))


# --- scikit-learn ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pima", "spect", "glass", "credit", "dna"])
def test_one_minus_risk_is_the_auc_of_sklearn(name):
    data = getattr(pac.datasets, f"load_{name}")()
    rng = np.random.default_rng(0)
    theta = np.vstack([rng.standard_normal((5, data.d)), rng.integers(-2, 3, (5, data.d))])  # without and with ties
    scores = np.vstack([theta @ data.X.T, data.X.T[:5]])
    auc = [roc_auc_score(data.y, row) for row in scores]
    np.testing.assert_allclose(1 - pac.empirical_risk(scores, data.y), auc, rtol=0, atol=1e-12)


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "y", "options", "message"),
    [
        (1.0, [0, 1], {}, "scores is a single number"),
        ([[1.0, 2.0], [1.0]], [0, 1], {}, "scores must be a rectangular array of numbers"),
        (["a", "b"], [0, 1], {}, "scores must be a rectangular array of numbers"),
        (
            [1.0, 2.0, 3.0],
            [0, 1],
            {},
            "scores has 3 observations along its last axis but y has 2",
        ),
        ([], [0, 1], {}, "scores has 0 observations"),
        ([], [], {}, "y is empty"),
        ([1.0, 2.0], [1, 1], {}, "y has one class only"),
        ([1.0, 2.0, 3.0], [0, 1, 2], {}, "y has 3 distinct values"),
        ([1.0, 2.0], [0, 1], {"ties": "whole"}, 'ties must be "half" or "strict"; got \'whole\''),
        ([1.0, 2.0], ["a", "b"], {"positive": "c"}, "positive='c' does not occur"),
        (np.ma.array([1.0, 2.0], mask=[True, False]), [0, 1], {}, "scores has 1 masked value"),
        (np.array([1j, 2.0]), [0, 1], {}, "scores must be .* numbers: its type is complex128"),
        (np.array(["2020-01-01", "NaT"], "M8[D]"), [0, 1], {}, "scores must be .* numbers: its type is datetime64"),
        (["1", "2"], [0, 1], {}, "scores must be .* numbers: its type is <U1"),
        (np.array([1, "2"], dtype=object), [0, 1], {}, "scores must be .* numbers: its type is a string"),
        ([2**53, 2**53 + 1], [0, 1], {}, "different values equal as float64.*ranks"),
        (np.array([2**64 - 1, 2**64 - 2], np.uint64), [0, 1], {}, "different values equal as float64"),
        ([2**80, 2**80 + 1], [0, 1], {}, "different values equal as float64"),
        ([10**400, 1], [0, 1], {}, "scores must be .* numbers: int too large"),
    ],
)
def test_bad_scores(scores, y, options, message):
    with pytest.raises(ValueError, match=message):
        pac.empirical_risk(scores, y, **options)


@pytest.mark.parametrize(
    ("theta", "X", "message"),
    [
        ([1.0, 2.0], [[0.0], [1.0]], r"theta must have 1 coefficients along its last axis; got shape \(2,\)"),
        (1.0, [[0.0], [1.0]], "theta must have 1 coefficients"),
        (["a"], [[0.0], [1.0]], "theta must be a rectangular array of numbers"),
        ([1.0], [0.0, 1.0], r"X must have shape \(n, d\) with n = 2, the number of labels; got \(2,\)"),
        ([1.0], [[0.0], [1.0], [2.0]], r"X must have shape \(n, d\) with n = 2.*got \(3, 1\)"),
        ([1.0], [[np.nan], [np.inf]], "X has 2 NaN or infinite value.*impute or drop"),
        ([1.0], [[1.0], [1.0, 2.0]], "X must be a rectangular array of numbers"),
        ([1.0], np.ma.array([[1.0], [2.0]], mask=[[True], [False]]), "X has 1 masked value"),
        ([np.inf], [[0.0], [1.0]], "theta has 1 NaN or infinite value"),
        ([[1.0], [np.nan]], [[0.0], [1.0]], "theta has 1 NaN or infinite value"),
        ([[1.0], [1e308]], [[0.0], [100.0]], "overflow for 1 of 2 coefficient vectors; divide theta or X"),
        ([1e308, -1e308], [[10.0, 10.0], [20.0, 20.0]], "overflow for 1 of 1"),
    ],
)
def test_bad_linear_scores(theta, X, message):
    with pytest.raises(ValueError, match=message):
        pac.arrays.linear_risk(theta, X, [0, 1])


def test_numbers_of_other_kinds_rank_exactly():
    y = [0, 1, 1]
    for scores in (
        np.array([2**62, 2**62 + 2**10, 2**62 + 2**11]),  # beyond 2^53, but still apart
        [2**70, 2**71, 2**72],
        np.array([1, 2, 3], np.longdouble),
        pd.Series([1, 2, 3], dtype="Int64"),
        np.array([Fraction(1, 3), 0.5, 2], dtype=object),
        [False, True, True],
        np.ma.array([1.0, 2.0, 3.0], mask=False),
    ):
        assert pac.empirical_risk(scores, y) == 0
    assert np.isnan(pac.empirical_risk(pd.Series([1, 2, None], dtype="Int64"), y))
    if np.finfo(np.longdouble).eps < np.finfo(float).eps:
        with pytest.raises(ValueError, match="equal as float64"):
            pac.empirical_risk(np.array([1, 1 + np.finfo(np.longdouble).eps, 2]), y)


def test_no_draws_and_no_covariates():
    X, y = np.ones((4, 2)), [0, 1, 1, 0]
    assert pac.empirical_risk(np.empty((0, 4)), y).shape == (0,)
    assert pac.arrays.linear_risk(np.empty((0, 2)), X, y).shape == (0,)
    assert pac.arrays.linear_risk(np.empty((2, 0, 2)), X, y).shape == (2, 0)
    np.testing.assert_array_equal(pac.arrays.linear_risk(np.empty((3, 0)), np.empty((4, 0)), y), 0.5)
    assert pac.arrays.linear_risk(np.empty((0, 0)), np.empty((4, 0)), y).shape == (0,)


@pytest.mark.parametrize("offset", [None, np.array([0.0, 1.0, 2.0, 1e308])])
def test_the_samplers_risk_is_nan_where_the_scores_are_not_finite(offset):
    X = np.array([[1.0, 0.0], [2.0, 1.0], [3.0, 1.0], [30.0, 1.0]])
    risk = LinearRisk(X, bipartite([0, 1, 1, 0]), offset=offset)
    theta = np.array([[1.0, 0.0], [np.inf, 0.0], [1.7e308, 0.0], [np.nan, 1.0], [-1.0, 2.0], [5e306, 0.0]])
    found = risk(theta)
    np.testing.assert_array_equal(np.isnan(found), [False, True, True, True, False, offset is not None])
    assert np.isnan(risk(np.array([[-1.7e308, 0.0]])))
    for row in (0, 4):
        assert found[row] == risk(theta[row : row + 1])[0]


def test_an_offset_alone_can_make_the_scores_overflow():
    risk = LinearRisk(np.array([[1.0], [2.0], [3.0]]), bipartite([0, 1, 0]), offset=np.full(3, np.finfo(float).max))
    np.testing.assert_array_equal(np.isnan(risk(np.array([[3e299], [-3e299]]))), [True, False])


def test_linear_scores_next_to_the_largest_float_are_ranked():
    X = np.array([[0.0], [1.0], [1.5], [1.2]])
    assert pac.arrays.linear_risk([1e308], X, [0, 1, 1, 0]) == 0.25


def test_the_columns_of_a_tile_are_the_distinct_rows():
    """Duplicates tie exactly because they are one column, not because a matrix product happens to repeat itself."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3, 13))[rng.integers(0, 3, 40)]
    pairs = LinearRisk(X, bipartite(np.arange(40) < 9)).pairs
    assert (pairs.n, pairs.n_pairs) == (3, 9 * 31)
    offset = np.arange(40) % 2.0
    assert LinearRisk(X, bipartite(np.arange(40) < 9), offset=offset).pairs.n == len(
        np.unique(np.column_stack([X, offset]), axis=0)
    )


@pytest.mark.parametrize("n_pos", [300_000, 1_000_000])
def test_a_million_million_pairs_are_counted_exactly(n_pos):
    n = 2_000_000
    order = np.random.default_rng(1).permutation(n)
    y = order < n_pos  # ranks 0 .. n_pos - 1 are positive, before half of the rows are shuffled
    scores = order.astype(float)
    half = np.arange(n) < n // 2
    scores[half] = np.random.default_rng(2).permutation(scores[half])
    positions = np.flatnonzero(y[np.argsort(scores)])
    right = int(positions.sum()) - n_pos * (n_pos - 1) // 2  # negatives below each positive, in integers
    total = n_pos * (n - n_pos)
    assert pac.empirical_risk(scores, y) * total == pytest.approx(total - right, abs=0.25)
    tied = pac.empirical_risk(np.zeros(n), y, ties="half"), pac.empirical_risk(np.zeros(n), y, ties="strict")
    assert tied == (0.5, 0.0)


def test_rows_that_differ_late_and_rows_that_are_equal():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((30, 21))
    assert distinct_rows(rows).none_repeat
    rows[10, :16] = rows[4, :16]  # they differ in the last columns alone
    assert distinct_rows(rows).none_repeat
    rows[20] = rows[7]
    found = distinct_rows(rows)
    assert found.first.size == 29
    assert found.place[20] == found.place[7]
    np.testing.assert_array_equal(rows[found.first][found.place], rows)
