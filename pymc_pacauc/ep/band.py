"""The sites of one group of rows: only pairs near each other in score are looked at.

Under q the score of row i has mean a_i and standard deviation |t_i|, and the difference of two scores at most the sum
of theirs. A pair with |a_i - a_j| > ``FAR`` (|t_i| + |t_j|) is right or wrong for certain: its site is flat (K and h
below 1e-6 of the largest), and its cost 0 or 1. The more observations there are, the narrower q is, and the more pairs
are of that kind. So rows are sorted by score and cut into short runs; runs whose intervals a -+ ``FAR`` |t| do not
overlap cost nothing but a count. Rows whose |t| is far above the others' would make the intervals of their runs wide:
they have runs of their own.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.core.kernels import kernel
from pymc_pacauc.ep.weighted_sites import CANCELLED, _row_sites

FloatArray = NDArray[np.float64]

FAR = 5.0
RUN = 32  # rows
BROAD = 4.0


def band_order(mean: FloatArray, square: FloatArray) -> NDArray[np.intp]:
    """By breadth first, then by score."""
    breadth = np.sqrt(square)
    typical = np.median(breadth)
    level = np.floor(np.log2(np.maximum(breadth / (BROAD * typical), 0.5))) if typical > 0 else np.zeros(mean.size)
    return np.lexsort((mean, level)) if level.max() > level.min() else np.argsort(mean, kind="stable")


@kernel
def runs(mean, square, weight, length):
    n = mean.size
    count = (n + length - 1) // length
    low, high, total = np.full(count, np.inf), np.full(count, -np.inf), np.zeros(count)
    for i in range(n):
        k = i // length
        spread = FAR * np.sqrt(square[i])
        low[k] = min(low[k], mean[i] - spread)
        high[k] = max(high[k], mean[i] + spread)
        total[k] += weight[i]
    return low, high, total


@kernel(fastmath={"contract", "reassoc", "nsz", "arcp", "nnan", "ninf"})
def _clean_row(
    row, mean_i, square_i, weight_i, mean_j, square_j, weight_j, inverse, position,
    gamma, middle, scale, table, wrong_table, lower, per_unit, k_column, h_column, totals,
):  # fmt: skip
    last = table.shape[0] - 0.5
    degree = table.shape[1] - 1
    k_sum = h_sum = wrong = log_constant = 0.0
    for j in range(row.size):
        inverse[j] = 1.0 / math.sqrt(square_i + square_j[j] - 2.0 * row[j])
        position[j] = min(max(((mean_i - mean_j[j]) * inverse[j] - lower) * per_unit, 0.0), last)
    for j in range(row.size):
        weight = weight_i * weight_j[j]
        interval = np.int32(position[j])
        t = position[j] - interval - 0.5
        u = (gamma * weight - middle) * scale
        b = c = log_c = 0.0
        for k in range(degree, -1, -1):
            p = table[interval, k]
            b = b * u + p[0, 0] + t * (p[0, 1] + t * (p[0, 2] + t * (p[0, 3] + t * (p[0, 4] + t * p[0, 5]))))
            c = c * u + p[1, 0] + t * (p[1, 1] + t * (p[1, 2] + t * (p[1, 3] + t * (p[1, 4] + t * p[1, 5]))))
            log_c = log_c * u + p[2, 0] + t * (p[2, 1] + t * (p[2, 2] + t * (p[2, 3] + t * (p[2, 4] + t * p[2, 5]))))
        w = wrong_table[interval]
        wrong += weight * (w[0] + t * (w[1] + t * (w[2] + t * (w[3] + t * (w[4] + t * w[5])))))
        log_constant += weight * log_c
        h = gamma * weight * c * inverse[j]
        k = gamma * weight * b * inverse[j] * inverse[j]
        row[j] = k
        k_sum += k
        h_sum += h
        k_column[j] += k
        h_column[j] += h
    totals[0] += wrong
    totals[1] += gamma * log_constant
    return k_sum, h_sum


@kernel(fastmath=True)
def _cancelled(row, square_i, square_j):
    count = 0
    for j in range(row.size):
        size = square_i + square_j[j]
        count += size - 2.0 * row[j] <= CANCELLED * size
    return count


@kernel
def band_sites(
    mean_i, square_i, root_i, weight_i, mean_j, square_j, root_j, weight_j, z_j,
    gamma, largest, middle, scale, table, wrong_table, lower, per_unit, tie_cost,
):  # fmt: skip
    n_i, n_j = mean_i.size, mean_j.size
    low_i, high_i, total_i = runs(mean_i, square_i, weight_i, RUN)
    low_j, high_j, total_j = runs(mean_j, square_j, weight_j, RUN)
    k_row, h_row, k_column, h_column = np.zeros(n_i), np.zeros(n_i), np.zeros(n_j), np.zeros(n_j)
    by_row = np.zeros((n_i, z_j.shape[1]))
    totals = np.zeros(3)
    listed = [(0.0, 0.0, 0.0, 0.0)]
    far_wrong = 0.0
    clean = gamma * weight_i.max() * weight_j.max() <= largest
    inverse, position, pair_weight = np.empty(RUN * 32), np.empty(RUN * 32), np.empty(RUN * 32)
    for a in range(low_i.size):
        top, bottom = a * RUN, min(n_i, (a + 1) * RUN)
        b = 0
        while b < low_j.size:
            if low_j[b] > high_i[a]:
                far_wrong += total_i[a] * total_j[b]
                b += 1
                continue
            if high_j[b] < low_i[a]:
                b += 1
                continue
            first = b
            while b < low_j.size and low_j[b] <= high_i[a] and high_j[b] >= low_i[a] and b - first < 32:
                b += 1
            left, right = first * RUN, min(n_j, b * RUN)
            cross = np.dot(root_i[top:bottom], root_j[left:right].T)
            for i in range(top, bottom):
                if clean and not _cancelled(cross[i - top], square_i[i], square_j[left:right]):
                    k_sum, h_sum = _clean_row(
                        cross[i - top], mean_i[i], square_i[i], weight_i[i],
                        mean_j[left:right], square_j[left:right], weight_j[left:right], inverse, position,
                        gamma, middle, scale, table, wrong_table, lower, per_unit,
                        k_column[left:right], h_column[left:right], totals,
                    )  # fmt: skip
                    k_row[i] += k_sum
                    h_row[i] += h_sum
                    continue
                before = len(listed)
                k_sum, h_sum = _row_sites(
                    cross[i - top], i, mean_i[i], square_i[i], root_i[i], weight_i[i],
                    mean_j[left:right], square_j[left:right], root_j[left:right], weight_j[left:right],
                    gamma, largest, middle, scale, table, wrong_table, lower, per_unit, tie_cost,
                    k_column[left:right], h_column[left:right], totals, listed, pair_weight, inverse, position,
                )  # fmt: skip
                for k in range(before, len(listed)):
                    r, column, variance, weight = listed[k]
                    listed[k] = (r, column + left, variance, weight)
                k_row[i] += k_sum
                h_row[i] += h_sum
            by_row[top:bottom] += np.dot(cross, z_j[left:right])
    totals[0] += far_wrong
    totals[1] -= gamma * far_wrong
    return k_row, h_row, k_column, h_column, by_row, totals, np.array(listed)[1:]
