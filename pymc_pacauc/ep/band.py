"""The sites of one group of rows: only pairs near each other in score are looked at.

Under q the score of row i has mean a_i and standard deviation |t_i|, and the difference of two scores at most the sum
of theirs. A pair with |a_i - a_j| > ``FAR`` (|t_i| + |t_j|) is right or wrong for certain: its site is flat (K and h
below 1e-4 of the largest at worst, below 1e-9 for most, |t_i| + |t_j| being more than the standard deviation of their
difference), and its cost 0 or 1. The more observations there are, the narrower q is, and the more pairs are of that
kind. So rows are sorted by score and cut into short runs; runs whose intervals a -+ ``FAR`` |t| do not overlap cost
nothing but a count.

Most of |t_i| may be common to rows with neighbouring scores: the length of the coefficients, which changes no order.
What is left, the *width* of a row, and its place along the score are given with the deal, and so do not change from
sweep to sweep. Rows and runs further apart than ``CLOSE`` widths and yet not certain have small and smooth sites: one
in ``every`` is looked at, and stands for the others. Rows whose width is far above the others' would make the intervals
of their runs wide: they have runs of their own.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.core.kernels import kernel
from pymc_pacauc.ep.sites import FINE_PER_UNIT
from pymc_pacauc.ep.weighted_sites import CANCELLED, row_sites

__all__ = ["band_order", "band_sites"]

FloatArray = NDArray[np.float64]

FAR = 5.0
CLOSE = 2.5
RUN = 16  # rows
RUNS_AT_ONCE = 64
BROAD = 4.0  # times the average


def band_order(place: FloatArray, width: FloatArray) -> NDArray[np.intp] | None:
    """The order by width, then by place, of rows sorted by place; None where no row is broad."""
    typical = float(width.mean())
    if not width.max() > BROAD * typical > 0.0:
        return None
    level = np.floor(np.log2(np.maximum(width / (BROAD * typical), 0.7)))
    return np.lexsort((place, level))


@kernel
def _runs(mean, spread, weight):
    """The interval mean -+ spread of each run, and its weight."""
    count = (mean.size + RUN - 1) // RUN
    low, high, total = np.full(count, np.inf), np.full(count, -np.inf), np.zeros(count)
    for i in range(mean.size):
        k = i // RUN
        low[k] = min(low[k], mean[i] - spread[i])
        high[k] = max(high[k], mean[i] + spread[i])
        total[k] += weight[i]
    return low, high, total


@kernel(fastmath={"contract", "reassoc", "nsz", "arcp", "nnan", "ninf"})
def _alike_sites(
    row, mean_i, square_i, mean_j, square_j, weight, table, lower, k_column, h_column, totals, inverse, position
):  # fmt: skip
    """What ``row_sites`` does, for pairs of one ``weight``, by a ``fine_site_table``. Where two rows nearly coincide it
    does nothing, and says so first.
    """
    special = 0
    for j in range(row.size):
        size = square_i + square_j[j]
        variance = size - 2.0 * row[j]
        special += variance <= CANCELLED * size
        inverse[j] = variance
    if special:
        return True, 0.0, 0.0
    last = table.shape[0] - 0.5
    for j in range(row.size):
        inverse[j] = 1.0 / math.sqrt(inverse[j])
        position[j] = min(max(((mean_i - mean_j[j]) * inverse[j] - lower) * FINE_PER_UNIT, 0.0), last)
    k_sum = h_sum = wrong = log_constant = 0.0
    for j in range(row.size):
        interval = np.int32(position[j])
        t = position[j] - interval - 0.5
        p = table[interval]
        k_pair = (p[0, 0] + t * (p[0, 1] + t * p[0, 2])) * inverse[j] * inverse[j]
        h_pair = (p[1, 0] + t * (p[1, 1] + t * p[1, 2])) * inverse[j]
        wrong += p[2, 0] + t * (p[2, 1] + t * p[2, 2])
        log_constant += p[3, 0] + t * (p[3, 1] + t * p[3, 2])
        row[j] = k_pair
        k_sum += k_pair
        h_sum += h_pair
        k_column[j] += k_pair
        h_column[j] += h_pair
    totals[0] += weight * wrong
    totals[1] += log_constant
    return False, k_sum, h_sum


@kernel
def band_sites(
    place_i, width_i, mean_i, square_i, root_i, weight_i, place_j, width_j, mean_j, square_j, root_j, weight_j, z_j,
    every, first, alike, fine,
    gamma, largest, middle, scale, table, wrong_table, lower, per_unit, tie_cost,
):  # fmt: skip
    """Sums of K and h by row and by column and of K z_j by row, the totals (weight of wrong pairs, log constants,
    number of tied pairs met), and the listed pairs (i, j, variance, weight), which are in none: see ``row_sites``.

    Of a row and a run that are neither close to each other nor certain, one in ``every`` is looked at, from ``first``.
    Pairs that all weigh ``alike``, if that is not 0, have a ``fine`` table.
    """
    n_i, n_j = mean_i.size, mean_j.size
    low_i, high_i, total_i = _runs(mean_i, FAR * np.sqrt(square_i), weight_i)
    low_j, high_j, total_j = _runs(mean_j, FAR * np.sqrt(square_j), weight_j)
    close_low_i, close_high_i, _ = _runs(place_i, CLOSE * width_i, weight_i)
    close_low, close_high, _ = _runs(place_j, CLOSE * width_j, weight_j)
    k_row, h_row, k_column, h_column = np.zeros(n_i), np.zeros(n_i), np.zeros((2, n_j)), np.zeros((2, n_j))
    by_row = np.zeros((n_i, z_j.shape[1]))
    most = min(n_j, RUN * RUNS_AT_ONCE)
    of_run = np.empty(RUN * most)
    weight, inverse, position = np.empty(most), np.empty(most), np.empty(most)
    totals = np.zeros((2, 3))  # of close pairs, and of others
    listed = [(0.0, 0.0, 0.0, 0.0)]
    certain = 0.0  # weight of pairs that are wrong for certain, or almost
    some = np.empty(low_j.size, dtype=np.intp)  # runs that rows of a run have to look at
    for a in range(low_i.size):
        count = 0
        for b in range(low_j.size):
            if close_low[b] > close_high_i[a] or close_high[b] < close_low_i[a]:
                wrong = total_i[a] * total_j[b] if close_low[b] > close_high_i[a] else 0.0
                certain += wrong
                if low_j[b] > high_i[a] or high_j[b] < low_i[a] or (a + b + first) & (every - 1):
                    continue
                totals[1, 0] -= wrong  # what is looked at is how far from certain it is
                totals[1, 1] += gamma * wrong
            some[count] = b
            count += 1
        top, bottom = a * RUN, min(n_i, (a + 1) * RUN)
        c = 0
        while c < count:  # stretches of neighbouring runs
            begin = some[c]
            end = begin
            while c < count and some[c] == end and end - begin < RUNS_AT_ONCE:
                c += 1
                end += 1
            origin, width = begin * RUN, min(n_j, end * RUN) - begin * RUN
            block = of_run[: (bottom - top) * width].reshape((bottom - top, width))
            np.dot(root_i[top:bottom], root_j[origin : origin + width].T, block)
            for i in range(top, bottom):
                low, high = place_i[i] - CLOSE * width_i[i], place_i[i] + CLOSE * width_i[i]
                b = begin
                while b < end:
                    start = b
                    far = 0
                    while b < end and close_low[b] <= high and close_high[b] >= low:
                        b += 1
                    if b == start:
                        b += 1
                        far = 1
                    left, right = start * RUN, min(n_j, b * RUN)
                    row = block[i - top, left - origin : right - origin]
                    if far and close_low[start] <= close_high_i[a] and close_high[start] >= close_low_i[a]:
                        wrong = weight_i[i] * total_j[start] if close_low[start] > high else 0.0
                        certain += wrong
                        if (i + start + first) & (every - 1):
                            row[:] = 0.0
                            continue
                        totals[1, 0] -= wrong
                        totals[1, 1] += gamma * wrong
                    times = every if far else 1
                    before = len(listed)
                    special = True
                    if alike > 0.0:
                        special, k_sum, h_sum = _alike_sites(
                            row, mean_i[i], square_i[i], mean_j[left:right], square_j[left:right],
                            alike, fine, lower, k_column[far, left:right], h_column[far, left:right], totals[far],
                            inverse, position,
                        )  # fmt: skip
                    if special:
                        k_sum, h_sum = row_sites(
                            row, i, mean_i[i], square_i[i], root_i[i], weight_i[i],
                            mean_j[left:right], square_j[left:right], root_j[left:right], weight_j[left:right],
                            gamma, largest, middle, scale, table, wrong_table, lower, per_unit, tie_cost,
                            k_column[far, left:right], h_column[far, left:right], totals[far], listed,
                            weight, inverse, position,
                        )  # fmt: skip
                    for k in range(before, len(listed)):  # from places in the run to places in the group
                        at, column, variance, of_pair = listed[k]
                        listed[k] = (at, column + left, variance, of_pair)
                    k_row[i] += times * k_sum
                    h_row[i] += times * h_sum
                    if far:
                        row *= every
            by_row[top:bottom] += np.dot(block, z_j[origin : origin + width])
    totals[0] += every * totals[1]
    totals[0, 0] += certain
    totals[0, 1] -= gamma * certain
    k_column[0] += every * k_column[1]
    h_column[0] += every * h_column[1]
    return k_row, h_row, k_column[0], h_column[0], by_row, totals[0], np.array(listed)[1:]
