"""The sites of one group of rows: only pairs near each other in score are looked at.

Under q the score of row i has mean a_i and standard deviation |t_i|, and the difference of two scores at most the sum
of theirs. A pair with |a_i - a_j| > ``FAR`` (|t_i| + |t_j|) is right or wrong for certain: its site is flat (K and h
below 1e-4 of the largest at worst, below 1e-9 for most, |t_i| + |t_j| being more than the standard deviation of their
difference), and its cost 0 or 1. The more observations there are, the narrower q is, and the more pairs are of that
kind. So rows are sorted by score and cut into short runs; runs whose intervals a -+ ``FAR`` |t| do not overlap cost
nothing but a count. Rows whose |t| is far above the others' would make the intervals of their runs wide: they have runs
of their own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.core.kernels import kernel
from pymc_pacauc.ep.weighted_sites import row_sites

__all__ = ["band_order", "band_sites"]

FloatArray = NDArray[np.float64]

FAR = 5.0
RUN = 32  # rows
RUNS_AT_ONCE = 32
BROAD = 4.0  # times the median


def band_order(mean: FloatArray, square: FloatArray) -> NDArray[np.intp] | None:
    """The order by breadth, then by score, of rows sorted by score; None where no row is broad."""
    typical = float(np.median(square))
    if not square.max() > BROAD**2 * typical > 0.0:
        return None
    level = np.floor(0.5 * np.log2(np.maximum(square / (BROAD**2 * typical), 0.5)))
    return np.lexsort((mean, level))


@kernel
def _runs(mean, square, weight):
    """The interval of the scores of each run, and its weight."""
    count = (mean.size + RUN - 1) // RUN
    low, high, total = np.full(count, np.inf), np.full(count, -np.inf), np.zeros(count)
    for i in range(mean.size):
        k = i // RUN
        spread = FAR * np.sqrt(square[i])
        low[k] = min(low[k], mean[i] - spread)
        high[k] = max(high[k], mean[i] + spread)
        total[k] += weight[i]
    return low, high, total


@kernel
def band_sites(
    mean_i, square_i, root_i, weight_i, mean_j, square_j, root_j, weight_j, z_j,
    gamma, largest, middle, scale, table, wrong_table, lower, per_unit, tie_cost,
):  # fmt: skip
    """Sums of K and h by row and by column and of K z_j by row, the totals (weight of wrong pairs, log constants,
    number of tied pairs met), and the listed pairs (i, j, variance, weight), which are in none: see ``row_sites``.
    """
    n_i, n_j = mean_i.size, mean_j.size
    low_i, high_i, total_i = _runs(mean_i, square_i, weight_i)
    low_j, high_j, total_j = _runs(mean_j, square_j, weight_j)
    k_row, h_row, k_column, h_column = np.zeros(n_i), np.zeros(n_i), np.zeros(n_j), np.zeros(n_j)
    by_row = np.zeros((n_i, z_j.shape[1]))
    most = min(n_j, RUN * RUNS_AT_ONCE)
    weight, inverse, position = np.empty(most), np.empty(most), np.empty(most)
    totals = np.zeros(3)
    listed = [(0.0, 0.0, 0.0, 0.0)]
    certain = 0.0  # weight of pairs that are wrong for certain
    for a in range(low_i.size):
        top, bottom = a * RUN, min(n_i, (a + 1) * RUN)
        b = 0
        while b < low_j.size:
            first = b
            while b < low_j.size and b - first < RUNS_AT_ONCE and low_j[b] <= high_i[a] and high_j[b] >= low_i[a]:
                b += 1
            if b == first:
                if low_j[b] > high_i[a]:
                    certain += total_i[a] * total_j[b]
                b += 1
                continue
            left, right = first * RUN, min(n_j, b * RUN)
            cross = np.dot(root_i[top:bottom], root_j[left:right].T)
            for i in range(top, bottom):
                before = len(listed)
                k_sum, h_sum = row_sites(
                    cross[i - top], i, mean_i[i], square_i[i], root_i[i], weight_i[i],
                    mean_j[left:right], square_j[left:right], root_j[left:right], weight_j[left:right],
                    gamma, largest, middle, scale, table, wrong_table, lower, per_unit, tie_cost,
                    k_column[left:right], h_column[left:right], totals, listed, weight, inverse, position,
                )  # fmt: skip
                for k in range(before, len(listed)):  # from places in the run to places in the group
                    row, column, variance, of_pair = listed[k]
                    listed[k] = (row, column + left, variance, of_pair)
                k_row[i] += k_sum
                h_row[i] += h_sum
            by_row[top:bottom] += np.dot(cross, z_j[left:right])
    totals[0] += certain
    totals[1] -= gamma * certain
    return k_row, h_row, k_column, h_column, by_row, totals, np.array(listed)[1:]
