import datetime
import enum
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymc_pacauc.comparison.pairs import Block, Pairs, bipartite, encode_labels

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
        ([[0], [0, 1]], None, "y must be one-dimensional.*unhashable type: 'list'"),
        ([0.0, 1.0, np.nan, np.nan], None, "y has 2 missing value.* out of 4: drop or impute"),
        (["a", None, "b"], "a", "y has 1 missing value"),
        (pd.array([0, 1, pd.NA], dtype="Int64"), None, "y has 1 missing value"),
        ([0, 1, 2], None, r"y has 3 distinct values \(0, 1, 2\).*Recode y"),
        (list(range(9)), None, r"y has 9 distinct values \(0, 1, 2, 3, 4, \.\.\.\)"),
        ([1, 1, 1], None, "y has one class only.*all 3 labels are 1.*there is no pair"),
        ([False, False], None, "y has one class only"),
        (["a", "a"], "a", "y has one class only"),
        (["a", "b"], None, "values .*'a', 'b'.*positive="),
        ([1, 2], None, "values .*1, 2.*positive="),
        ([-1, 0], None, "-1 and 0.*positive="),
        (["a", "b"], "c", "positive='c' does not occur in y.*'a', 'b'"),
        ([0, 1], 2, "positive=2 does not occur in y"),
        (["0", "1"], 1, "positive=1 does not occur in y.*'0', '1'"),
        ([0, 1, 1], [1], "positive must be one of the two labels.*list"),
        ([0, 1, 1], np.array([0, 1, 1]), "positive must be one of the two labels.*ndarray"),
        (["a", "b"], pd.Series(["a", "b"]), "positive must be one of the two labels.*Series"),
        ([0, 1], pd.NA, "positive=<NA> does not occur"),
        (np.ma.array([0, 1, 1, 0], mask=[0, 0, 1, 0]), None, "y has 1 missing value"),
        (np.ma.array([0, 1, 99, 0], mask=[0, 0, 1, 0]), None, "y has 1 missing value"),
        ([0, 1, np.ma.masked], None, "unhashable type: 'MaskedConstant'"),
        (["a", np.nan, "b"], "a", "y has 1 missing value"),
        (["2020-01-01", pd.NaT], "2020-01-01", "y has 1 missing value"),
        (np.array(["2020-01-01", "NaT", "2020-01-02"], "M8[D]"), "2020-01-01", "y has 1 missing value"),
        (np.array([1, 2, "NaT"], "m8[D]"), np.timedelta64(1, "D"), "y has 1 missing value"),
        (np.array([1j, np.nan]), 1j, "y has 1 missing value"),
        ([2**53, 2**53 + 1, 2**53 + 2], 2**53, "y has 3 distinct values"),
        ([2**63 + 2, 2**63, -1], -1, "y has 3 distinct values"),
        (
            np.array(["2020-01-01", "2020-01-02"], "M8[D]"),
            "yesterday",
            "positive='yesterday' does not occur.*2020-01-02",
        ),
        ([Decimal(0), Decimal(1)], None, r"values \[Decimal\('0'\), Decimal\('1'\)\].*positive="),
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


DAYS = np.array(["2020-03-01", "2020-03-02"], dtype="M8[D]")


@pytest.mark.parametrize(
    ("yes", "no", "named"),
    [
        (2**53 + 1, 2**53, 2**53 + 1),
        (2**53, 2**53 + 1, float(2**53)),  # equal to the first alone; as float64 both are
        (2**53, 2**53 + 1, np.float64(2**53)),
        (2**70, 2**70 + 1, 2**70),
        (2**63, -1, 2**63),
        (1, "1", 1),
        ("1", 1, "1"),
        (0, 1, np.array(0)),
        (Decimal("0.1"), 0.1, Decimal("0.1")),
        ((1, 2), "pair", (1, 2)),
    ],
)
def test_labels_are_compared_exactly(yes, no, named):
    y = np.empty(MASK.size, dtype=object)
    y[:] = [yes if flag else no for flag in MASK]
    np.testing.assert_array_equal(encode_labels(y, positive=named), MASK)
    np.testing.assert_array_equal(encode_labels(y[::-1], positive=named), MASK[::-1])
    np.testing.assert_array_equal(encode_labels(pd.Series(y), positive=named), MASK)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_neighbouring_integers_that_are_one_float(dtype):
    y = np.where(MASK, dtype(2**53 + 1), dtype(2**53))
    np.testing.assert_array_equal(encode_labels(y, positive=2**53 + 1), MASK)
    np.testing.assert_array_equal(encode_labels(y, positive=float(2**53)), ~MASK)


@pytest.mark.parametrize("unit", ["D", "s", "ns"])
@pytest.mark.parametrize(
    "named",
    ["2020-03-01", datetime.date(2020, 3, 1), pd.Timestamp("2020-03-01"), DAYS[0]],
    ids=lambda v: type(v).__name__,
)
def test_dates(unit, named):
    y = DAYS.astype(f"M8[{unit}]")[np.where(MASK, 0, 1)]
    np.testing.assert_array_equal(encode_labels(y, positive=named), MASK)
    np.testing.assert_array_equal(encode_labels(pd.Series(y), positive=named), MASK)


@pytest.mark.parametrize("dtype", ["Int64", "Float64", "boolean", "category", "string", "object", "int64[pyarrow]"])
def test_pandas_types_with_and_without_missing_values(dtype):
    if "pyarrow" in dtype:
        pytest.importorskip("pyarrow")
    texts = dtype in ("string", "category", "object")
    yes, no = ("a", "b") if texts else (1, 0)
    y = pd.Series([yes if flag else no for flag in MASK], dtype=dtype)
    np.testing.assert_array_equal(encode_labels(y, positive=yes), MASK)
    np.testing.assert_array_equal(encode_labels(pd.Index(y), positive=yes), MASK)
    with pytest.raises(ValueError, match="y has 1 missing value"):
        encode_labels(pd.Series([yes, no, None], dtype=dtype), positive=yes)


class Column:
    """A column of another library, which says its values when it is asked for an array."""

    def __init__(self, *values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype=dtype)


def test_columns_of_other_libraries():
    np.testing.assert_array_equal(encode_labels(Column("a", "b", "a"), positive="a"), [True, False, True])
    np.testing.assert_array_equal(encode_labels(Column(0, 1)), [False, True])
    with pytest.raises(ValueError, match="y has 1 missing value"):
        encode_labels(Column(0.0, 1.0, np.nan))


def test_structured_labels():
    y = np.array([(1, 2), (2, 3), (1, 2)], dtype="i4,i4")
    np.testing.assert_array_equal(encode_labels(y, positive=(1, 2)), [True, False, True])
