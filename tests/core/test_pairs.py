import enum

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymc_pacauc.core.pairs import Block, Pairs, bipartite, encode_labels

MASK = np.array([True, False, True, False, False])


@pytest.mark.parametrize(
    "y",
    [
        MASK,
        MASK.astype(int),
        MASK.astype(np.uint8),
        MASK.astype(float),
        2 * MASK.astype(int) - 1,
        MASK.astype(object),
        MASK.astype(int).astype(object),
        MASK.tolist(),
        pd.Series(MASK.astype(int)),
        pd.Series(MASK.astype(int), dtype="Int64"),
        pd.Series(MASK, dtype="boolean"),
    ],
    ids=["bool", "int", "uint8", "float", "signed", "object-bool", "object-int", "list", "series", "Int64", "boolean"],
)
def test_labels_understood_by_themselves(y):
    np.testing.assert_array_equal(encode_labels(y), MASK)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@pytest.mark.parametrize(
    ("yes", "no"),
    [("sick", "well"), (1, 2), (2, 1), (0, 1), (-1, 0), (0.5, 1.5), (False, True), (Colour.RED, Colour.BLUE)],
)
@pytest.mark.parametrize("make", [list, lambda y: np.array(y, dtype=object), pd.Categorical])
def test_positive_names_the_class(yes, no, make):
    y = make([yes if flag else no for flag in MASK])
    np.testing.assert_array_equal(encode_labels(y, positive=yes), MASK)


@pytest.mark.parametrize(
    ("y", "positive", "message"),
    [
        ([], None, "y is empty"),
        ([[0, 1]], None, r"y must be one-dimensional.*\(1, 2\)"),
        (1, None, r"y must be one-dimensional.*\(\)"),
        ([[0], [0, 1]], None, "y must be one-dimensional.*ragged"),
        ([0.0, 1.0, np.nan, np.nan], None, "y has 2 missing value.* out of 4: drop or impute"),
        (["a", None, "b"], "a", "y has 1 missing value"),
        (pd.array([0, 1, pd.NA], dtype="Int64"), None, "y has 1 missing value"),
        ([0, 1, 2], None, r"y has 3 distinct values \(0, 1, 2\).*Recode y"),
        (list(range(9)), None, r"y has 9 distinct values \(0, 1, 2, 3, 4, \.\.\.\)"),
        ([1, 1, 1], None, "y has one class only.*all 3 labels are 1.*at least one positive and one negative"),
        ([False, False], None, "y has one class only"),
        (["a", "a"], "a", "y has one class only"),
        (["a", "b"], None, "values .*'a', 'b'.*positive="),
        ([1, 2], None, "values .*1, 2.*positive="),
        ([-1, 0], None, "-1 and 0.*positive="),
        (["a", "b"], "c", "positive='c' does not occur in y.*'a', 'b'"),
        ([0, 1], 2, "positive=2 does not occur in y"),
    ],
)
def test_bad_labels(y, positive, message):
    with pytest.raises(ValueError, match=message):
        encode_labels(y, positive)


@given(st.lists(st.booleans(), min_size=2, max_size=30).filter(lambda y: 0 < sum(y) < len(y)))
def test_bipartite_is_every_positive_against_every_negative(y):
    pairs = bipartite(y)
    (block,) = pairs.blocks
    listed = {(i, j) for i in block.positive.tolist() for j in block.negative.tolist()}
    assert listed == {(i, j) for i in range(len(y)) for j in range(len(y)) if y[i] and not y[j]}
    assert pairs.n == len(y)
    assert pairs.n_pairs == block.n_pairs == len(listed)


def test_blocks_add_up_and_map():
    pairs = Pairs(4, (Block(np.array([3]), np.array([0, 1, 2])), Block(np.array([1, 2]), np.array([0]))))
    assert pairs.n_pairs == 5
    assert repr(pairs) == "Pairs(n=4, blocks=[1 x 3, 2 x 1])"
    mapped = pairs.map(np.array([2, 0, 0, 1]), 3)
    assert mapped.n == 3
    assert mapped.n_pairs == 5
    np.testing.assert_array_equal(mapped.blocks[0].negative, [2, 0, 0])
