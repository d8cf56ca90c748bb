"""A sweep over dealt pairs: the sums of the sites of all pairs, estimated from those that meet in a group.

A sweep is a map over *jobs*, a few groups each, and a sum. A job needs the rows of its groups and q, and returns sums
of the size of q: nothing is kept between sweeps, and nothing of the size of the data is made but what one job needs at
a time. So jobs go through any ``map``, of threads or of other machines, and their sums are added in a fixed order.

Every site is that of its own pair, at the pair's own gamma', and the *sums* are multiplied by what a pair met stands
for: at any q the estimate has the sums over all pairs as its expectation. (Sites of G times gamma' would not: sites are
not linear in gamma'.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.core.deal import Deal, DealtBlock
from pymc_pacauc.core.pairs import Block
from pymc_pacauc.core.problem import Problem
from pymc_pacauc.core.scores import ReducedScores
from pymc_pacauc.ep.band import CLOSE, FAR, band_order, band_sites
from pymc_pacauc.ep.gaussian_iteration import sweep_sums
from pymc_pacauc.ep.natural import NaturalGaussian
from pymc_pacauc.ep.sites import SiteTable, WeightedSiteTable, fine_site_table, weighted_site_table
from pymc_pacauc.ep.sweep import SiteSums, _add_listed, _arguments

__all__ = ["dealt_sums"]

FloatArray = NDArray[np.float64]

JOBS = 32  # at most, of a block
ROWS_OF_A_JOB = 4096  # about, at least
PAIRS_OF_A_JOB = 2**22  # beyond which the rows of a single group are shared out


@dataclass(frozen=True, eq=False)
class Job:
    """Some groups of a block; or ``part`` of ``parts`` of the positive rows of one group."""

    block: DealtBlock
    groups: range
    part: int = 0
    parts: int = 1


class JobSums(NamedTuple):
    """Sums over the pairs of a job, in the coordinates of the design and, where there is one, the offset."""

    precision: FloatArray
    linear: FloatArray
    wrong: float
    log_constant: float


class Side(NamedTuple):
    """The positive or the negative rows of a group, in the order of the band."""

    rows: FloatArray
    place: FloatArray
    width: FloatArray
    mean: FloatArray
    square: FloatArray
    root: FloatArray
    weights: FloatArray


def dealt_sums(
    problem: Problem, q: NaturalGaussian, deal: Deal, table: SiteTable, map_tiles: Callable[..., Any] = map
) -> SiteSums:
    """Estimate the sums of the sites of all pairs under q, a Gaussian of the problem's reduced coefficients."""
    space = problem.scores.reduced
    d, with_offset = space.dimension, bool(space.offset.any())
    side = partial(_side, space, with_offset, q, deal)
    tables = {id(block): _table(block, table) for block in deal.dealt}

    def run(job: Job) -> JobSums:
        return _job_sums(job, side, d + with_offset, table, tables[id(job.block)], problem.tie_cost)

    precision, linear = np.zeros((d + with_offset, d + with_offset)), np.zeros(d + with_offset)
    wrong = log_constant = 0.0
    for sums in map_tiles(run, [job for block in deal.dealt for job in _jobs(block)]):
        precision += sums.precision
        linear += sums.linear
        wrong, log_constant = wrong + sums.wrong, log_constant + sums.log_constant
    if with_offset:
        log_constant += float(linear[d] - 0.5 * precision[d, d])
        linear = linear[:d] - precision[:d, d]
        precision = precision[:d, :d]
    if deal.whole.blocks:
        whole = sweep_sums(problem, q, deal.whole, table, map_tiles)
        precision, linear = precision + whole.precision, linear + whole.shift
        wrong, log_constant = wrong + whole.wrong, log_constant + whole.log_constant
    return SiteSums(precision, linear, log_constant, wrong, problem.tied_pairs)


def _table(dealt: DealtBlock, table: SiteTable) -> WeightedSiteTable:
    block = dealt.block
    ends = [table.gamma * f(block.row_weights) * f(block.column_weights) for f in (np.min, np.max)]
    return weighted_site_table(*ends, table.power)


def _fine(block: Block, table: SiteTable, weighted: WeightedSiteTable) -> tuple[float, FloatArray]:
    """The weight of all pairs of a block and their own table, where they weigh alike; 0 and none otherwise."""
    gamma = table.gamma * block.weight
    if block.constant and gamma <= weighted.largest:
        return block.weight, fine_site_table(gamma, table.power)
    return 0.0, np.empty((0, 4, 3))


def _jobs(block: DealtBlock) -> list[Job]:
    groups = block.groups
    if groups == 0:
        return []
    rows = (block.first_positive[-1] + block.first_negative[-1]) / groups
    together = max(1, -(-groups // JOBS), int(ROWS_OF_A_JOB // max(rows, 1)))
    parts = min(JOBS, -(-block.n_pairs // (groups * PAIRS_OF_A_JOB))) if together == 1 else 1
    return [
        Job(block, range(first, min(groups, first + together)), part, parts)
        for first in range(0, groups, together)
        for part in range(parts)
    ]


def _job_sums(
    job: Job,
    side: Callable[..., Side],
    size: int,
    table: SiteTable,
    weighted: WeightedSiteTable,
    tie_cost: float,
) -> JobSums:
    half, linear = np.zeros((size, size)), np.zeros(size)
    near, near_linear = np.zeros((size, size)), np.zeros(size)
    wrong = log_constant = 0.0
    fine = _fine(job.block.block, table, weighted)
    for g in job.groups:
        group = job.block.group(g)
        if job.parts > 1:
            group = group.take(slice(job.part, None, job.parts), slice(None))
        if not group.n_pairs:
            continue
        i, j = side(group.positive, group.row_weights), side(group.negative, group.column_weights)
        far = (job.block.every, int(job.block.turns[g]))
        k_i, h_i, k_j, h_j, by_row, totals, listed = band_sites(
            *i[1:], *j[1:], j.rows, *far, *fine, *_arguments(table.gamma, weighted), tie_cost
        )
        half += i.rows.T @ (0.5 * k_i[:, None] * i.rows - by_row) + j.rows.T @ (0.5 * k_j[:, None] * j.rows)
        linear += i.rows.T @ h_i - j.rows.T @ h_j
        wrong, log_constant = wrong + float(totals[0]), log_constant + float(totals[1])
        if len(listed):
            at = listed[:, :2].astype(np.intp)
            pairs = (at[:, 0], i.mean.size + at[:, 1], listed[:, 2], listed[:, 3])
            both = np.concatenate([i.mean, j.mean]), np.concatenate([i.rows, j.rows])
            of_listed = _add_listed([pairs], *both, table, near, near_linear)
            wrong, log_constant = wrong + of_listed[0], log_constant + of_listed[1]
    weight = job.block.stands_for
    return JobSums(
        weight * (half + half.T + near), weight * (linear + near_linear), weight * wrong, weight * log_constant
    )


def _side(
    space: ReducedScores,
    with_offset: bool,
    q: NaturalGaussian,
    deal: Deal,
    index: NDArray[np.intp],
    weights: FloatArray,
) -> Side:
    """The moments of some rows.

    Their order, and who is far from whom, is that of the deal, so that sums are smooth functions of q.
    """
    place = width = None
    if deal.spread is not None:
        order = band_order(deal.score[index], deal.spread[index])
        if order is not None:
            index, weights = index[order], weights[order]
        place, width = deal.score[index], deal.spread[index]
    rows = space.design.take(index, axis=0)
    mean = rows @ q.mean + space.offset[index]
    root = q.rooted(rows)
    square = np.einsum("ij,ij->i", root, root)
    if not (np.isfinite(mean).all() and np.isfinite(square).all()):
        raise FloatingPointError("The moments of the scores overflow: rescale X, the offset or the prior.")
    if with_offset:
        rows = np.column_stack([rows, space.offset[index]])
    if place is not None and width is not None:
        return Side(rows, place, width, mean, square, root, weights)
    width = FAR / CLOSE * np.sqrt(square)
    order = band_order(mean, width)
    if order is None:
        order = np.argsort(mean, kind="stable")
    return Side(*(each[order] for each in Side(rows, mean, width, mean, square, root, weights)))
