"""Equal rows of a design."""

import numpy as np

from pymc_pacauc.comparison import risk as core_rows
from pymc_pacauc.comparison.risk import distinct_rows


def test_rows_that_differ_late_and_rows_that_are_equal():
    rng = np.random.default_rng(0)
    columns = core_rows.FEW + 5
    rows = rng.standard_normal((30, columns))
    assert distinct_rows(rows).none_repeat
    rows[10, : core_rows.FEW] = rows[4, : core_rows.FEW]  # they differ in the last columns alone
    assert distinct_rows(rows).none_repeat
    rows[20] = rows[7]
    found = distinct_rows(rows)
    assert found.first.size == 29
    assert found.place[20] == found.place[7]
    np.testing.assert_array_equal(rows[found.first][found.place], rows)
