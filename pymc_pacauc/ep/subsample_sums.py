"""One sweep over sampled pairs: unbiased estimates of the sums of the sites of all pairs, given q.

Rows are in groups (:mod:`pymc_pacauc.comparison.subsample`), and pairs within a group are computed. Each has the site
of its own gamma', and the *sums* are multiplied by the number of groups: at any q the estimate is unbiased. (Sites at a
gamma' multiplied by the number of groups would not be: sites are not linear in gamma'.) A sweep is a map over groups,
each summed like a tile of all pairs (:mod:`pymc_pacauc.ep.sweep`), and a sum. It costs O(N k + n k^2) for N pairs,
keeps nothing between sweeps, and groups go through any ``map``, of threads or of other machines.

*Certain pairs.* Under q the score of row i has mean a_i and standard deviation |t_i|. A pair with
|a_i - a_j| > r (|t_i| + |t_j|), r = :func:`far_radius`, is right or wrong for certain: its site is flat (K and h below
1e-4 of the largest at worst, below 1e-9 for most) and its cost is 0 or 1. So rows are sorted by score and cut into
*runs* of 8, and for two runs whose intervals a -+ r |t| do not overlap only the weight of their pairs is added. The
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
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.comparison.pairs import Block
from pymc_pacauc.comparison.subsample import SampledBlock, SampledPairs
from pymc_pacauc.ep.posterior import NaturalGaussian
from pymc_pacauc.ep.sites import Part, SiteTable
from pymc_pacauc.ep.sweep import SiteSums, Work, add_up, score_moments, sum_sites, sweep_sums
from pymc_pacauc.numerics import FloatArray, kernel
from pymc_pacauc.problem.problem import Problem

FAR = 5.0  # standard deviations from which on sites of a small gamma' are flat: phi(5) is 1e-6; doubled, all are near
RUN, COLUMNS = 16, 4  # rows, and columns, that are looked at together; doubled, a third more pairs are near
BROAD = 4.0  # times the average width, from which on rows have runs apart; doubled, runs are up to twice as wide


def far_radius(gamma: float) -> float:
    """Return the number of standard deviations beyond which sites of pairs with up to this gamma' are flat.

    Sites of wrong pairs decrease like exp(gamma' - r^2 / 2): at gamma' = 50 the radius is 11.
    """
    return math.sqrt(FAR**2 + 2.0 * gamma)


def band_order(place: FloatArray, width: FloatArray) -> NDArray[np.intp]:
    """Return the order of rows by place, with those of more than ``BROAD`` times the average width at the end."""
    return np.lexsort((place, width > BROAD / width.size * width.sum()))


@kernel(no_cpython_wrapper=True)
def _runs(mean, spread, times, weight, length):
    """Compute for each run the smallest interval with all mean -+ times * spread, and the sum of weights; (runs,)."""
    count = (mean.size + length - 1) // length
    low, high, total = np.full(count, np.inf), np.full(count, -np.inf), np.zeros(count)
    for i in range(mean.size):
        k = i // length
        low[k] = min(low[k], mean[i] - times * spread[i])
        high[k] = max(high[k], mean[i] + times * spread[i])
        total[k] += weight[i]
    return low, high, total


@kernel
def near_and_far(
    place_i, width_i, mean_i, sd_i, weight_i, place_j, width_j, mean_j, sd_j, weight_j, every, first, radius
):  # fmt: skip
    """List the columns j to compute with each run of rows i: first the near ones of all runs, then some far ones.

    Returns the columns, the place where those of each run begin, (2 runs + 1,), and the weight of wrong far pairs, by
    their places, minus ``every`` times that of the far pairs listed. Of the runs that are neither near nor certain one
    in ``every`` (a power of 2) is listed, starting from ``first``. Pairs are certain beyond ``radius`` standard
    deviations.
    """
    low_i, high_i, sum_i = _runs(mean_i, sd_i, radius, weight_i, RUN)
    low_j, high_j, sum_j = _runs(mean_j, sd_j, radius, weight_j, COLUMNS)
    bottom_i, top_i, _ = _runs(place_i, width_i, 0.5 * FAR, weight_i, RUN)
    bottom_j, top_j, _ = _runs(place_j, width_j, 0.5 * FAR, weight_j, COLUMNS)
    runs, most = low_i.size, low_i.size * mean_j.size
    columns, ends = np.empty(2 * most, dtype=np.intp), np.zeros(2 * runs + 1, dtype=np.intp)
    count, wrong = 0, 0.0
    for far in range(2):
        for a in range(runs):
            for b in range(low_j.size):
                apart = bottom_j[b] > top_i[a] or top_j[b] < bottom_i[a]
                skipped = apart and (low_j[b] > high_i[a] or high_j[b] < low_i[a] or (a + b + first) & (every - 1))
                if far and bottom_j[b] > top_i[a]:
                    wrong += (1.0 if skipped else 1.0 - every) * sum_i[a] * sum_j[b]
                if apart == far and not skipped:
                    for j in range(b * COLUMNS, min(mean_j.size, (b + 1) * COLUMNS)):
                        columns[count] = j
                        count += 1
            ends[far * runs + a + 1] = count
    return columns[:count], ends, wrong


def sampled_sums(
    problem: Problem, q: NaturalGaussian, subsample: SampledPairs, table: SiteTable, map_tiles: Callable[..., Any] = map
) -> SiteSums:
    """Estimate the sums of the sites of all pairs under q, a Gaussian of the problem's reduced coefficients."""
    _ = q.root  # computed once, before threads ask for it

    def of_group(job: tuple[SampledBlock, tuple[float, float], int]) -> SiteSums:
        return _group_sums(problem, q, subsample, table, *job).times(len(job[0].groups))

    found = [sweep_sums(problem, q, subsample.whole, table, map_tiles)] if subsample.whole.blocks else []
    for block in subsample.sampled:
        ends, groups = _ends(block.block), range(len(block.groups))
        found += map_tiles(of_group, [(block, ends, g) for g in groups if block.groups[g].n_pairs])
    return replace(add_up(found), tied=problem.tied_pairs)


def _ends(block: Block) -> tuple[float, float]:
    """Return the least and the largest weight of a pair of a block."""
    rows, columns = block.row_weights, block.column_weights
    return float(rows.min() * columns.min()), float(rows.max() * columns.max())


def _group_sums(
    problem: Problem,
    q: NaturalGaussian,
    subsample: SampledPairs,
    table: SiteTable,
    block: SampledBlock,
    ends: tuple[float, float],
    g: int,
) -> SiteSums:
    """Estimate the sums over all pairs of group g, whose weights are between the ``ends``.

    Places and widths are those of the subsample where it has them, so that the sums are smooth functions of q.
    """
    group, space, radius = block.groups[g], problem.scores.reduced, far_radius(table.gamma * table.power * ends[1])
    rows, size = np.concatenate([group.positive, group.negative]), group.positive.size
    design, offset = space.design.take(rows, axis=0), space.offset[rows]
    moments, weight = score_moments(design, offset, q), np.concatenate([group.row_weights, group.column_weights])
    place, sd = moments.mean, np.sqrt(moments.square)
    width = 2.0 * radius / FAR * sd
    if subsample.spread is not None:
        place, width = subsample.score[rows], subsample.spread[rows]
    i, j = band_order(place[:size], width[:size]), size + band_order(place[size:], width[size:])
    sides = [(place[k], width[k], moments.mean[k], sd[k], weight[k]) for k in (i, j)]
    columns, first_column, wrong = near_and_far(*sides[0], *sides[1], block.every, int(block.turns[g]), radius)
    runs = first_column.size // 2  # each with its near columns, and then each with its far ones
    first_row = np.minimum(RUN * np.arange(runs + 1), size)
    part = Part(
        np.arange(rows.size),
        np.concatenate([i, i]),
        np.concatenate([weight[i], weight[i]]),
        np.concatenate([first_row, size + first_row[1:]]),
        j[columns],
        None if group.constant else weight[j[columns]],
        first_column,
        np.repeat([1.0, block.every], runs),
    )
    found = sum_sites(design, offset, moments, [Work(part, ends)], table, tie_cost=problem.tie_cost)
    return replace(found, wrong=found.wrong + wrong, log_constant=found.log_constant - table.gamma * wrong)
