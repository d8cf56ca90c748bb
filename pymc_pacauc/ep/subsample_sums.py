"""One sweep over sampled pairs: unbiased estimates of the sums of the sites of all pairs, given q.

Rows are in groups (:mod:`pymc_pacauc.comparison.subsample`), and pairs within a group are computed. Each has the site
of its own gamma', and the *sums* are multiplied by the number of groups: at any q the estimate is unbiased. (Sites at a
gamma' multiplied by the number of groups would not be: sites are not linear in gamma'.) A sweep is a map over *jobs*, a
few groups each, and a sum. It costs O(N k + n k^2) for N pairs, keeps nothing between sweeps, and jobs go through any
``map``, of threads or of other machines.

*Certain pairs.* Under q the score of row i has mean a_i and standard deviation |t_i|. A pair with
|a_i - a_j| > r (|t_i| + |t_j|), r = :func:`far_radius`, is right or wrong for certain: its site is flat (K and h below
1e-4 of the largest at worst, below 1e-9 for most) and its cost is 0 or 1. So rows are sorted by score and cut into
*runs* of 16, and for two runs whose intervals a -+ r |t| do not overlap only the weight of their pairs is added. The
more rows, the narrower is q, and the more pairs are certain.

*Thinning.* Most of |t_i| may be common to rows with neighbouring scores, because the uncertain length of the
coefficients changes no order. The rest is the *width* of a row; it is given with the subsample and fixed for all
sweeps, so that the sums are smooth functions of q. Runs further apart than 2.5 widths and yet not certain have small
and smooth sites: of them one in ``every`` is computed, with ``every`` times its weight. Rows much wider than the others
have runs of their own (:func:`band_order`).

Used by all sweeps of :mod:`pymc_pacauc.ep.subsample`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.comparison.pairs import Block
from pymc_pacauc.comparison.subsample import SampledBlock, SampledPairs
from pymc_pacauc.ep.posterior import NaturalGaussian
from pymc_pacauc.ep.sites import (
    CANCELLED,
    FAST,
    FINE_PER_UNIT,
    SiteTable,
    Tabulated,
    add_rows,
    fine_site_table,
    row_sites,
)
from pymc_pacauc.ep.sweep import ROWS_AT_ONCE, TILE_COLUMNS, SiteSums, _add_listed, sweep_sums
from pymc_pacauc.numerics import FloatArray, kernel
from pymc_pacauc.problem.problem import Problem
from pymc_pacauc.problem.scores import ReducedScores

FAR = 5.0  # standard deviations from which on sites of a small gamma' are flat: phi(5) is 1e-6; doubled, all are near
RUN = 16  # rows that are looked at together; doubled, a third more pairs are near
BROAD = 4.0  # times the average width from which on a row has a run apart; doubled, runs are up to twice as wide


def far_radius(gamma: float) -> float:
    """Return the number of standard deviations beyond which sites of pairs with up to this gamma' are flat.

    Sites of wrong pairs decrease like exp(gamma' - r^2 / 2): at gamma' = 50 the radius is 11.
    """
    return math.sqrt(FAR**2 + 2.0 * gamma)


def band_order(place: FloatArray, width: FloatArray) -> NDArray[np.intp] | None:
    """Return the order of rows by class of width, then by place; None where all are of the lowest class."""
    typical = float(width.mean())
    if not width.max() > BROAD * typical > 0.0:
        return None
    level = np.floor(np.log2(np.maximum(width / (BROAD * typical), 0.7)))
    return np.lexsort((place, level))


@kernel
def _runs(mean, spread, times, weight):
    """Compute for each run the smallest interval with all mean -+ times * spread, and the sum of weights; (runs,)."""
    count = (mean.size + RUN - 1) // RUN
    low, high, total = np.full(count, np.inf), np.full(count, -np.inf), np.zeros(count)
    for i in range(mean.size):
        k = i // RUN
        low[k] = min(low[k], mean[i] - times * spread[i])
        high[k] = max(high[k], mean[i] + times * spread[i])
        total[k] += weight[i]
    return low, high, total


@kernel(fastmath=FAST)
def _alike_sites(
    row, mean_i, square_i, mean_j, square_j, weight, table, lower, k_column, h_column, totals, inverse, position
):  # fmt: skip
    """Compute :func:`row_sites` for pairs of one ``weight``, by a ``fine_site_table``.

    Returns True, and changes nothing, where two rows nearly coincide; else False, sum_j K and sum_j h.
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
    every, first, radius, alike, fine,
    gamma, largest, middle, scale, table, wrong_table, lower, per_unit, tie_cost,
):  # fmt: skip
    """Sum K and h by row (n_i,) and by column (n_j,), and K z_j by row (n_i, size), over the pairs of a group.

    Also returns the totals (weight of wrong pairs, log constants, number of tied pairs) and two lists of pairs (i, j,
    variance, weight) that are in none of the sums, see :func:`row_sites`: pairs that count once, and pairs that count
    ``every`` times.

    Of the runs that are neither close to a row nor certain, one in ``every`` (a power of 2) is computed, starting from
    ``first``. Pairs are certain beyond ``radius`` standard deviations. If ``alike`` is not 0, all pairs have this
    weight, and the ``fine`` table.
    """
    n_i, n_j = mean_i.size, mean_j.size
    low_i, high_i, total_i = _runs(mean_i, np.sqrt(square_i), radius, weight_i)
    low_j, high_j, total_j = _runs(mean_j, np.sqrt(square_j), radius, weight_j)
    close_low_i, close_high_i, _ = _runs(place_i, width_i, 0.5 * FAR, weight_i)
    close_low, close_high, _ = _runs(place_j, width_j, 0.5 * FAR, weight_j)
    k_row, h_row, k_column, h_column = np.zeros(n_i), np.zeros(n_i), np.zeros((2, n_j)), np.zeros((2, n_j))
    by_row = np.zeros((n_i, z_j.shape[1]))
    most = min(n_j, ROWS_AT_ONCE)
    of_run = np.empty(RUN * most)
    weight, inverse, position = np.empty(most), np.empty(most), np.empty(most)
    totals = np.zeros((2, 3))  # row 0: close pairs; row 1: pairs of which one in every is computed
    listed_close, listed_far = [(0.0, 0.0, 0.0, 0.0)], [(0.0, 0.0, 0.0, 0.0)]
    certain = 0.0  # weight of far pairs in the wrong order, counted as certainly wrong
    some = np.empty(low_j.size, dtype=np.intp)  # runs of j to compute for the present run of i
    for a in range(low_i.size):
        count = 0
        for b in range(low_j.size):
            if close_low[b] > close_high_i[a] or close_high[b] < close_low_i[a]:
                wrong = total_i[a] * total_j[b] if close_low[b] > close_high_i[a] else 0.0
                certain += wrong
                if low_j[b] > high_i[a] or high_j[b] < low_i[a] or (a + b + first) & (every - 1):
                    continue
                totals[1, 0] -= wrong  # a run that is computed replaces its share of the count
                totals[1, 1] += gamma * wrong
            some[count] = b
            count += 1
        top, bottom = a * RUN, min(n_i, (a + 1) * RUN)
        c = 0
        while c < count:  # stretches of neighbouring runs
            begin = some[c]
            end = begin
            while c < count and some[c] == end and end - begin < ROWS_AT_ONCE // RUN:
                c += 1
                end += 1
            origin, width = begin * RUN, min(n_j, end * RUN) - begin * RUN
            block = of_run[: (bottom - top) * width].reshape((bottom - top, width))
            np.dot(root_i[top:bottom], root_j[origin : origin + width].T, block)
            for i in range(top, bottom):
                low, high = place_i[i] - 0.5 * FAR * width_i[i], place_i[i] + 0.5 * FAR * width_i[i]
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
                            row.fill(0.0)
                            continue
                        totals[1, 0] -= wrong
                        totals[1, 1] += gamma * wrong
                    times = every if far else 1
                    listed = listed_far if far else listed_close
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
                    for k in range(before, len(listed)):  # indices in the run become indices in the group
                        at, column, variance, of_pair = listed[k]
                        listed[k] = (at, column + left, variance, of_pair)
                    k_row[i] += times * k_sum
                    h_row[i] += times * h_sum
                    if far:
                        for j in range(row.size):
                            row[j] *= every
            add_rows(by_row, np.arange(top, bottom), np.dot(block, z_j[origin : origin + width]))
    for k in range(3):
        totals[0, k] += every * totals[1, k]
    totals[0, 0] += certain
    totals[0, 1] -= gamma * certain
    for j in range(n_j):
        k_column[0, j] += every * k_column[1, j]
        h_column[0, j] += every * h_column[1, j]
    return (
        k_row,
        h_row,
        k_column[0],
        h_column[0],
        by_row,
        totals[0],
        np.array(listed_close)[1:],
        np.array(listed_far)[1:],
    )


@dataclass(frozen=True, eq=False)
class Job:
    """Some groups of a block; or, of one large group, the positive rows ``part::parts``."""

    block: SampledBlock
    groups: range
    part: int = 0
    parts: int = 1


class Side(NamedTuple):
    """The positive or the negative rows of a group, in the order of their runs."""

    rows: FloatArray
    place: FloatArray
    width: FloatArray
    mean: FloatArray
    square: FloatArray
    root: FloatArray
    weights: FloatArray


def sampled_sums(
    problem: Problem, q: NaturalGaussian, subsample: SampledPairs, table: SiteTable, map_tiles: Callable[..., Any] = map
) -> SiteSums:
    """Estimate the sums of the sites of all pairs under q, a Gaussian of the problem's reduced coefficients."""
    space = problem.scores.reduced
    d, with_offset = space.dimension, bool(space.offset.any())
    side = partial(_side, space, with_offset, q, subsample)
    weights = {id(each): _ends(each.block) for each in subsample.sampled}

    def run(job: Job) -> tuple[FloatArray, FloatArray, FloatArray]:
        return _job_sums(job, side, d + with_offset, table, weights[id(job.block)], problem.tie_cost)

    precision, linear, totals = np.zeros((d + with_offset, d + with_offset)), np.zeros(d + with_offset), np.zeros(2)
    for sums in map_tiles(run, [job for block in subsample.sampled for job in _jobs(block)]):
        for total, each in zip((precision, linear, totals), sums, strict=True):
            total += each
    wrong, log_constant = map(float, totals)
    if with_offset:
        log_constant += float(linear[d] - 0.5 * precision[d, d])
        linear = linear[:d] - precision[:d, d]
        precision = precision[:d, :d]
    if subsample.whole.blocks:
        whole = sweep_sums(problem, q, subsample.whole, table, map_tiles)
        precision, linear = precision + whole.precision, linear + whole.shift
        wrong, log_constant = wrong + whole.wrong, log_constant + whole.log_constant
    return SiteSums(precision, linear, log_constant, wrong, problem.tied_pairs)


def _ends(block: Block) -> tuple[float, float]:
    """Return the least and the largest weight of a pair of a block."""
    rows, columns = block.row_weights, block.column_weights
    return float(rows.min() * columns.min()), float(rows.max() * columns.max())


def _fine(block: Block, table: SiteTable, weighted: Tabulated) -> tuple[float, FloatArray]:
    """Return the weight of all pairs of a block and a table for it, where they have one weight; else 0 and none."""
    gamma = table.gamma * block.weight
    if block.constant and gamma <= weighted.largest:
        return block.weight, fine_site_table(gamma, table.power)
    return 0.0, np.empty((0, 4, 3))


def _jobs(block: SampledBlock) -> list[Job]:
    """Divide a block into jobs of at least about ``TILE_COLUMNS`` rows, and large groups into parts."""
    groups = len(block.groups)
    rows = sum(group.positive.size + group.negative.size for group in block.groups) / groups
    together = max(1, int(TILE_COLUMNS // max(rows, 1)))
    parts = -(-block.n_pairs // (groups * ROWS_AT_ONCE * TILE_COLUMNS)) if together == 1 else 1
    return [
        Job(block, range(first, min(groups, first + together)), part, parts)
        for first in range(0, groups, together)
        for part in range(parts)
    ]


def _job_sums(
    job: Job, side: Callable[..., Side], size: int, table: SiteTable, weights: tuple[float, float], tie_cost: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sum the sites of a job; ``side`` returns the rows of a group, ``size`` is the number of columns.

    Returns the precision (size, size) and the shift (size,), in the coordinates of the design extended by the offset,
    if there is one, and the weight of wrong pairs with the sum of log constants, (2,).
    """
    precision, linear, all_totals = np.zeros((size, size)), np.zeros(size), np.zeros(2)
    block = job.block.block
    tabulated, radius = table.between(*weights), far_radius(table.gamma * table.power * weights[1])
    fine = _fine(block, table, tabulated)
    for g in job.groups:
        group = job.block.groups[g].take(slice(job.part, None, job.parts), slice(None))
        if not group.n_pairs:
            continue
        i = side(radius, group.positive, group.row_weights)
        j = side(radius, group.negative, group.column_weights)
        far = (job.block.every, int(job.block.turns[g]), radius)
        k_i, h_i, k_j, h_j, by_row, totals, *lists = band_sites(
            *i[1:], *j[1:], j.rows, *far, *fine, *tabulated, tie_cost
        )
        half = i.rows.T @ (0.5 * k_i[:, None] * i.rows - by_row) + j.rows.T @ (0.5 * k_j[:, None] * j.rows)
        precision += half + half.T
        linear += i.rows.T @ h_i - j.rows.T @ h_j
        all_totals += totals[:2]
        for times, listed in zip((1, job.block.every), lists, strict=True):
            if len(listed):
                at = listed[:, :2].astype(np.intp)
                pairs = (at[:, 0], i.mean.size + at[:, 1], listed[:, 2], listed[:, 3])
                both = np.concatenate([i.mean, j.mean]), np.concatenate([i.rows, j.rows])
                own, own_linear = np.zeros((size, size)), np.zeros(size)
                all_totals += times * np.array(_add_listed([pairs], *both, table, own, own_linear))
                precision += times * own
                linear += times * own_linear
    weight = float(len(job.block.groups))
    return weight * precision, weight * linear, weight * all_totals


def _side(
    space: ReducedScores,
    with_offset: bool,
    q: NaturalGaussian,
    subsample: SampledPairs,
    radius: float,
    index: NDArray[np.intp],
    weights: FloatArray,
) -> Side:
    """Compute the moments of some rows under q, in the order of their runs.

    Places and widths are those of the subsample where it has them, so that the sums are smooth functions of q.
    """
    rows = space.design.take(index, axis=0)
    mean = rows @ q.mean + space.offset[index]
    root = q.rooted(rows)
    square = np.einsum("ij,ij->i", root, root)
    if not (np.isfinite(mean).all() and np.isfinite(square).all()):
        raise FloatingPointError("The moments of the scores overflow: rescale X, the offset or the prior.")
    if with_offset:
        rows = np.column_stack([rows, space.offset[index]])
    place, width = mean, 2.0 * radius / FAR * np.sqrt(square)
    if subsample.spread is not None:
        place, width = subsample.score[index], subsample.spread[index]
    order: Any = band_order(place, width)
    if order is None:  # rows of a group are in the order of the subsample's scores already
        order = slice(None) if subsample.spread is not None else np.argsort(place, kind="stable")
    return Side(*(each[order] for each in (rows, place, width, mean, square, root, weights)))
