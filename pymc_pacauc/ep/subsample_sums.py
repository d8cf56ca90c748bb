"""One sweep over sampled pairs: unbiased estimates of the sums of the sites of all pairs, given q.

Rows are in groups (:mod:`pymc_pacauc.comparison.subsample`), and pairs within a group are computed. Each has the site
of its own gamma', and the *sums* are multiplied by the number of groups: at any q the estimate is unbiased. (Sites at a
gamma' multiplied by the number of groups would not be: sites are not linear in gamma'.) A sweep is a map over groups,
each summed like a tile of all pairs (:mod:`pymc_pacauc.ep.sweep`), and a sum. It costs O(N k + n k^2) for N pairs,
keeps nothing between sweeps, and groups go through any ``map``, of threads or of other machines.

*Certain pairs.* Under q the score of row i has mean a_i and standard deviation |t_i|. A pair with
|a_i - a_j| > r (|t_i| + |t_j|), r = :func:`far_radius`, is right or wrong for certain: its site is flat (K and h below
1e-4 of the largest at worst, below 1e-9 for most) and its cost is 0 or 1. So rows are sorted by score and cut into
*runs* (of ``RUN``, on the other side of ``COLUMNS``), and for two runs whose intervals a -+ r |t| do not overlap only
the weight of their pairs is added. The more rows, the narrower is q, and the more pairs are certain.

*Thinning.* Most of |t_i| may be common to rows with neighbouring scores, because the uncertain length of the
coefficients changes no order. The rest is the *width* of a row; it is given with the subsample and fixed for all
sweeps, so that the sums are smooth functions of q. Runs further apart than 2.5 widths and yet not certain have small
and smooth sites: of them one in ``every`` is computed, with ``every`` times its weight. Rows much wider than the others
have runs of their own (:func:`band_order`).

Used by all sweeps of :mod:`pymc_pacauc.ep.subsample`. To leave other pairs out, change :func:`near_and_far`, which
lists those to compute; the estimate must stay unbiased at a given q (``tests/ep/test_subsample_sums.py``).

Reference: Horvitz & Thompson (1952), doi:10.1080/01621459.1952.10483446.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

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


class Side(NamedTuple):
    """The positive or the negative rows of a group, in the order of their runs: arrays, (rows,) each."""

    place: FloatArray
    width: FloatArray
    mean: FloatArray
    sd: FloatArray
    weight: FloatArray


@kernel
def _runs(place, width, mean, sd, weight, radius, length, ends, total):
    """Enter for each run the intervals of its places and of its scores, ``ends[k]`` (4,), and the sum of weights."""
    for i in range(mean.size):
        run, k = ends[i // length], i // length
        if i % length == 0:
            run[0], run[1], run[2], run[3], total[k] = np.inf, -np.inf, np.inf, -np.inf, 0.0
        run[0] = min(run[0], place[i] - 0.5 * FAR * width[i])
        run[1] = max(run[1], place[i] + 0.5 * FAR * width[i])
        run[2] = min(run[2], mean[i] - radius * sd[i])
        run[3] = max(run[3], mean[i] + radius * sd[i])
        total[k] += weight[i]


@kernel
def _list_columns(ends_i, sum_i, ends_j, sum_j, every, first, size, columns, begin):
    """Enter :func:`near_and_far`'s columns and where those of each run begin; return its weight of wrong pairs."""
    runs, count, wrong = sum_i.size, 0, 0.0
    for far in range(2):
        for a in range(runs):
            for b in range(sum_j.size):
                i, j = ends_i[a], ends_j[b]
                apart = j[0] > i[1] or j[1] < i[0]
                skipped = apart and (j[2] > i[3] or j[3] < i[2] or (a + b + first) & (every - 1))
                if far and j[0] > i[1]:
                    wrong += (1.0 if skipped else 1.0 - every) * sum_i[a] * sum_j[b]
                if apart == far and not skipped:
                    for k in range(b * COLUMNS, min(size, (b + 1) * COLUMNS)):
                        columns[count] = k
                        count += 1
            begin[far * runs + a + 1] = count
    return wrong


def near_and_far(
    i: Side, j: Side, every: int, first: int, radius: float
) -> tuple[NDArray[np.intp], NDArray[np.intp], float]:
    """List the columns j to compute with each run of rows i: first the near ones of all runs, then some far ones.

    Returns the columns, the place where those of each run begin, (2 runs + 1,), and the weight of wrong far pairs, by
    their places, minus ``every`` times that of the far pairs listed. Of the runs that are neither near nor certain one
    in ``every`` (a power of 2) is listed, starting from ``first``. Pairs are certain beyond ``radius`` standard
    deviations.
    """
    of_runs: list[FloatArray] = []
    for side, length in ((i, RUN), (j, COLUMNS)):
        runs = -(-side.mean.size // length)
        of_runs += [np.empty((runs, 4)), np.empty(runs)]
        _runs(*side, radius, length, *of_runs[-2:])
    runs, size = of_runs[1].size, j.mean.size
    columns, begin = np.empty(2 * runs * size, dtype=np.intp), np.zeros(2 * runs + 1, dtype=np.intp)
    wrong = _list_columns(*of_runs, every, first, size, columns, begin)
    return columns[: begin[-1]], begin, wrong


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
    above, below = (Side(place[k], width[k], moments.mean[k], sd[k], weight[k]) for k in (i, j))
    columns, first_column, wrong = near_and_far(above, below, block.every, int(block.turns[g]), radius)
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
