"""Sites of pairs that weigh differently, and of many small blocks: the pointwise part of a sweep, in two variables.

A pair of weight w has gamma' = gamma_1 w, gamma_1 that of weight one, and its site is a polynomial in rho and gamma'
(see :mod:`pymc_pacauc.ep.sites`). Three kinds of pairs are set apart: of *equal* rows, whose factor is a constant; of
rows that nearly coincide, whose K is too large to be added to sums; and of a gamma' beyond the table. The last two are
listed, and computed one by one by whoever asked.

Blocks of a few pairs each, as strata and censored times have them by the thousand, would spend their time in Python
and in matrix products too small to be worth calling. They go through one compiled loop together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.core.kernels import kernel
from pymc_pacauc.core.pairs import Block

__all__ = [
    "CANCELLED",
    "NEAR",
    "TIED",
    "SmallBlocks",
    "row_sites",
    "small_block_sites",
    "small_blocks",
    "tile_sites_weighted",
]

FloatArray = NDArray[np.float64]

CANCELLED = 1e-6  # variances below this fraction of |t_i|^2 + |t_j|^2 are recomputed without cancellation,
NEAR = 1e-10  # below this one the pair is added by itself,
TIED = 1e-22  # and below this one the two rows are equal, to rounding


@dataclass(frozen=True, eq=False)
class SmallBlocks:
    """Some blocks one after the other: block k has the rows ``positive[first[k]:first[k + 1]]``, and so its columns.

    ``members`` are the observations concerned; ``positive`` and ``negative`` are places among them.
    """

    members: NDArray[np.intp]
    positive: NDArray[np.intp]
    row_weights: FloatArray
    first_row: NDArray[np.intp]
    negative: NDArray[np.intp]
    column_weights: FloatArray
    first_column: NDArray[np.intp]


def small_blocks(blocks: Sequence[Block]) -> SmallBlocks:
    """Put blocks one after the other."""
    rows, columns = np.concatenate([b.positive for b in blocks]), np.concatenate([b.negative for b in blocks])
    members, place = np.unique(np.concatenate([rows, columns]), return_inverse=True)
    return SmallBlocks(
        members,
        place[: rows.size],
        np.concatenate([b.row_weights for b in blocks]),
        np.concatenate([[0], np.cumsum([b.positive.size for b in blocks])]),
        place[rows.size :],
        np.concatenate([b.column_weights for b in blocks]),
        np.concatenate([[0], np.cumsum([b.negative.size for b in blocks])]),
    )


@kernel(fastmath={"contract", "reassoc", "nsz", "arcp", "nnan", "ninf"})
def row_sites(
    row, i, mean_i, square_i, root_i, weight_i, mean_j, square_j, root_j, weight_j,
    gamma, largest, middle, scale, table, wrong_table, lower, per_unit, tie_cost,
    k_column, h_column, totals, listed, weight, inverse, position,
):  # fmt: skip
    """Overwrite ``row[j] = t_i . t_j`` by K_ij; add to the sums over rows and to the totals; return sum_j K and h.

    ``weight``, ``inverse`` and ``position`` are room to work in: a loop for each, without branches, is what a compiler
    can do several at a time. Pairs that go another way are left in with weight 0.
    """
    last = table.shape[0] - 0.5
    degree = table.shape[1] - 1
    special = 0
    for j in range(row.size):
        weight[j] = weight_i * weight_j[j]
        size = square_i + square_j[j]
        inverse[j] = size - 2.0 * row[j]  # the variance, for now
        special += inverse[j] <= CANCELLED * size
        special += gamma * weight[j] > largest
    if special:
        for j in range(row.size):
            size = square_i + square_j[j]
            variance, difference = inverse[j], mean_i - mean_j[j]
            if variance <= CANCELLED * size:
                variance = 0.0
                for k in range(root_i.size):
                    variance += (root_i[k] - root_j[j, k]) ** 2
                inverse[j] = variance
            if variance <= TIED * size:  # equal rows: the difference of the scores is their offsets' alone
                cost = 1.0 if difference < 0.0 else 0.0
                if abs(difference) <= 1e-12 * (abs(mean_i) + abs(mean_j[j])):
                    totals[2] += 1.0
                    cost = tie_cost
                totals[0] += weight[j] * cost
                totals[1] -= gamma * weight[j] * cost
                weight[j], inverse[j] = 0.0, 1e300
            elif variance <= NEAR * size or gamma * weight[j] > largest:
                listed.append((float(i), float(j), variance, weight[j]))
                weight[j], inverse[j] = 0.0, 1e300
    for j in range(row.size):
        inverse[j] = 1.0 / math.sqrt(inverse[j])
        position[j] = min(max(((mean_i - mean_j[j]) * inverse[j] - lower) * per_unit, 0.0), last)
    k_sum = h_sum = wrong = log_constants = 0.0
    for j in range(row.size):
        interval = np.int32(position[j])
        t = position[j] - interval - 0.5
        pair_gamma = gamma * weight[j]
        u = (pair_gamma - middle) * scale
        b = c = log_constant = 0.0
        for k in range(degree, -1, -1):
            p = table[interval, k]
            b = b * u + p[0, 0] + t * (p[0, 1] + t * (p[0, 2] + t * (p[0, 3] + t * (p[0, 4] + t * p[0, 5]))))
            c = c * u + p[1, 0] + t * (p[1, 1] + t * (p[1, 2] + t * (p[1, 3] + t * (p[1, 4] + t * p[1, 5]))))
            log_constant = (
                log_constant * u
                + p[2, 0] + t * (p[2, 1] + t * (p[2, 2] + t * (p[2, 3] + t * (p[2, 4] + t * p[2, 5]))))
            )  # fmt: skip
        w = wrong_table[interval]
        wrong += weight[j] * (w[0] + t * (w[1] + t * (w[2] + t * (w[3] + t * (w[4] + t * w[5])))))
        log_constants += pair_gamma * log_constant
        k_pair = pair_gamma * b * inverse[j] * inverse[j]
        h_pair = pair_gamma * c * inverse[j]
        row[j] = k_pair
        k_sum += k_pair
        h_sum += h_pair
        k_column[j] += k_pair
        h_column[j] += h_pair
    totals[0] += wrong
    totals[1] += log_constants
    return k_sum, h_sum


@kernel
def tile_sites_weighted(
    cross, mean_i, square_i, root_i, weight_i, mean_j, square_j, root_j, weight_j,
    gamma, largest, middle, scale, table, wrong_table, lower, per_unit, tie_cost,
):  # fmt: skip
    """Overwrite ``cross[i, j] = t_i . t_j`` by K_ij; return the sums of K and h along both axes, the totals (weight of
    wrong pairs, log constants, number of tied pairs), and the listed pairs (i, j, variance, weight), which are in none.
    """
    n_i, n_j = cross.shape
    k_row, h_row, k_column, h_column = np.zeros(n_i), np.zeros(n_i), np.zeros(n_j), np.zeros(n_j)
    weight, inverse, position = np.empty(n_j), np.empty(n_j), np.empty(n_j)
    totals = np.zeros(3)
    listed = [(0.0, 0.0, 0.0, 0.0)]
    for i in range(n_i):
        k_row[i], h_row[i] = row_sites(
            cross[i], i, mean_i[i], square_i[i], root_i[i], weight_i[i], mean_j, square_j, root_j, weight_j,
            gamma, largest, middle, scale, table, wrong_table, lower, per_unit, tie_cost,
            k_column, h_column, totals, listed, weight, inverse, position,
        )  # fmt: skip
    return k_row, h_row, k_column, h_column, totals, np.array(listed)[1:]


@kernel
def small_block_sites(
    positive, row_weights, first_row, negative, column_weights, first_column, mean, square, root, extended,
    gamma, largest, middle, scale, table, wrong_table, lower, per_unit, tie_cost,
):  # fmt: skip
    """Sums of K and h and of K z over the partners of each member, the totals and the listed pairs, of all blocks."""
    members, size = extended.shape
    k_point, h_point, by_row = np.zeros(members), np.zeros(members), np.zeros((members, size))
    totals = np.zeros(3)
    listed = [(0.0, 0.0, 0.0, 0.0)]
    for block in range(first_row.size - 1):
        columns = negative[first_column[block] : first_column[block + 1]]
        weight_j = column_weights[first_column[block] : first_column[block + 1]]
        mean_j, square_j, root_j = mean[columns], square[columns], root[columns]
        k_column, h_column = np.zeros(columns.size), np.zeros(columns.size)
        row, weight = np.empty(columns.size), np.empty(columns.size)
        inverse, position = np.empty(columns.size), np.empty(columns.size)
        for place in range(first_row[block], first_row[block + 1]):
            i = positive[place]
            root_i = root[i]
            for j in range(columns.size):
                product = 0.0
                for k in range(root_i.size):
                    product += root_i[k] * root_j[j, k]
                row[j] = product
            before = len(listed)
            k_sum, h_sum = row_sites(
                row, i, mean[i], square[i], root_i, row_weights[place], mean_j, square_j, root_j, weight_j,
                gamma, largest, middle, scale, table, wrong_table, lower, per_unit, tie_cost,
                k_column, h_column, totals, listed, weight, inverse, position,
            )  # fmt: skip
            for k in range(before, len(listed)):  # from places among the columns to places among the members
                _, column, variance, of_pair = listed[k]
                listed[k] = (float(i), float(columns[int(column)]), variance, of_pair)
            k_point[i] += k_sum
            h_point[i] += h_sum
            for j in range(columns.size):
                for k in range(size):
                    by_row[i, k] += row[j] * extended[columns[j], k]
        for j in range(columns.size):
            k_point[columns[j]] += k_column[j]
            h_point[columns[j]] -= h_column[j]
    return k_point, h_point, by_row, totals, np.array(listed)[1:]
