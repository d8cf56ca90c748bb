"""EP in the scores themselves, for processes that have as many directions as scores.

With n scores s ~ N(0, C) and C of full rank, coefficients are a detour. The sites of pairs add up to

    A = diag(sum_j K_ij) - K   (n, n),

a matrix that is pointwise what a sweep computes, and q has the precision C^-1 + A. So a sweep is one Cholesky factor
and its inverse, O(n^3) operations with the constant of the two, where coefficients take six times as many: no matrix
product before the site functions, which read the covariance of the scores, and none after them. The common constant
of the scores, which no pair sees, has a prior here that is as good as any.

C^-1 costs digits. Where C is so badly conditioned that they would be missed, the sites are found with scores that have
a little noise of their own, 3e-10 of the largest variance of a sum of scores; what q is with these sites is computed in
the coefficients, without it.

EP in the leading directions of a smooth process; what that says about the others.

The directions of a smooth process (:mod:`pymc_pacauc.problem.scores`) come in the order of the prior variance that they
explain: u first, which leave no score more than a thousandth of it, and then the rest v, whose posterior is nearly
their prior. The sites hardly depend on v. So EP iterates with the scores that depend on u alone, and then takes the
sites it has found as those of all directions: q(u, v) is the prior with these sites. At EP's fixed point log Z does not
depend on the sites to first order, so what v adds to it is right to second order,

    log Z(u, v) = log Z(u) - log det(S) / 2 + b'S^-1 b / 2,

the sites' integral over v given u. The number of leading directions grows with the digits that are asked for: at a
tolerance below 1e-8 they are all. Nor is EP iterated further there than v would change what is found: 300 times the
tolerance is a third of what v has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from pymc_pacauc.ep.loop import POLICY, Iteration, Pace, Solution, possible, solve_fixed_point
from pymc_pacauc.ep.posterior import NaturalGaussian, natural_gaussian
from pymc_pacauc.ep.sites import CANCELLED, SiteTable
from pymc_pacauc.ep.sweep import (
    ScoreMoments,
    SiteSums,
    Tile,
    TileSums,
    cut_work,
    listed_sites,
    score_moments,
    sum_sites,
    tables_for,
    tile_sites,
)
from pymc_pacauc.numerics import FloatArray, kernel
from pymc_pacauc.problem.problem import Problem

Span = slice | NDArray[np.intp]
SumsOf = Callable[[FloatArray, FloatArray, FloatArray, FloatArray | None], SiteSums]

LEAST_CONDITION = 1e-10
NEAR = replace(POLICY, damping=0.9, plain_steps=0, patience=12)


@dataclass(frozen=True, eq=False)
class ScorePoint:
    """q with precision ``scale`` C^-1 + ``sites``; ``energy`` is E[s' C^-1 s]. Matrices are lower triangles, here and
    below; ``flat`` is all that moves.
    """

    flat: FloatArray
    scale: float
    sites: FloatArray
    q: NaturalGaussian
    energy: float


@dataclass(frozen=True, eq=False)
class ScoreSweep:
    """What a sweep finds at q: the new sites with the prior, flat, and what is known of q; ``rescaling`` is that of its
    scores.
    """

    flat: FloatArray
    rescaling: float
    change: float
    bound: float
    log_partition: float
    log_evidence: float
    expected_risk: float
    tied: int

    final = True

    @property
    def record(self) -> dict[str, float]:
        return {"log_evidence": possible(self.log_evidence), "expected_risk": self.expected_risk}


def score_fixed_point(
    problem: Problem,
    table: SiteTable,
    start: ScoreMoments,
    tolerance: float,
    max_sweeps: int,
    callback: Callable[[dict[str, float]], None] | None = None,
    map_tiles: Callable[..., Any] = map,
) -> Solution[NaturalGaussian, ScoreSweep] | None:
    """EP's fixed point, in the problem's reduced coefficients, from the sites at some moments of the scores.

    None where C cannot be inverted.
    """
    order = _order(problem)
    place = np.argsort(order)
    space = problem.scores.reduced
    assert space.covariance is not None
    prior = _inverse(space.covariance[np.ix_(order, order)])
    if prior is None:
        return None
    offset = space.offset[order]
    sums_of = _sums(problem, table, place, offset, map_tiles)
    first = sums_of(start.mean[order], start.root[order], start.square[order], None)
    begin = _point(prior[0], _flat(np.sqrt(problem.n), first.precision, first.shift))
    if begin is None:
        return None
    found = solve_fixed_point(
        _iteration(problem, table.power, prior, offset, sums_of),
        begin,
        NEAR,
        tolerance=tolerance,
        max_sweeps=max_sweeps,
        callback=callback,
    )
    q = _of_coefficients(problem, found.point, order)
    if q is None:
        return None
    gained = q.log_partition() - found.seen.log_partition  # digits: it is the same number
    if table.power == 0.0:
        gained = -q.divergence - (found.seen.bound + problem.gamma * found.seen.expected_risk)
    seen = replace(found.seen, log_evidence=found.seen.log_evidence + gained)
    return Solution(q, seen, q, found.converged, found.interrupted, found.history, interventions=found.interventions)


def _of_coefficients(problem: Problem, point: ScorePoint, order: NDArray[np.intp]) -> NaturalGaussian | None:
    """q as a Gaussian of the coefficients, u ~ N(0, I) and scores Z u: precision ``scale`` I + Z'A Z.

    No pair sees a constant, so that Z need not be centred: it is a triangle, for the coefficients of a process.
    """
    scores, place = problem.scores, np.argsort(order)
    sites = (point.sites + np.tril(point.sites, -1).T)[np.ix_(place, place)]
    lower = scores.triangle
    if lower is None:
        design = scores.reduced.design
        precision = design.T @ (sites @ design)
    else:
        product = linalg.blas.dtrmm(1.0, lower.T, sites.T, side=1, trans_a=1, overwrite_b=1)
        precision = linalg.blas.dtrmm(1.0, lower.T, product, overwrite_b=1)
    precision = 0.5 * (precision + precision.T)
    precision[np.diag_indices(len(precision))] += point.scale
    return natural_gaussian(precision, scores.reduced.design.T @ point.q.shift[place])


def _iteration(
    problem: Problem, power: float, prior: tuple[FloatArray, float], offset: FloatArray, sums_of: SumsOf
) -> Iteration[ScorePoint, ScoreSweep]:
    """That of :mod:`~pymc_pacauc.ep.loop`, near the fixed point, in other coordinates.

    A step is one of the scale, times the root of n, as it moves whitened scores; of the sites; and of their shift.
    """
    inverse, log_volume = prior
    n = problem.n

    def sweep(point: ScorePoint, pace: Pace) -> ScoreSweep:
        q, m = point.q, point.q.mean
        variances = q.sd**2
        sums = sums_of(m + offset, q.root, variances, q.lower_covariance)
        new, old = (q.trace_of(A) + _form(A, m) for A in (sums.precision, point.sites))  # E[s'A s]
        volume = float(np.log(np.diagonal(q.factor)).sum()) + log_volume
        risk = float(sums.wrong / problem.pairs.total_weight)
        bound = -problem.gamma * risk - 0.5 * (point.energy - n) - volume
        log_partition = 0.5 * float(q.shift @ m) - volume
        log_evidence = bound
        if power > 0.0:  # that of the new sites, to first order in what they change
            gain = float(m @ (sums.shift - q.shift)) - 0.5 * (new - old + (1.0 - point.scale) * point.energy)
            log_evidence = sums.log_constant + log_partition + gain
        flat = _flat(np.sqrt(n), sums.precision, sums.shift)
        squares = _square(sums.precision, point.sites, variances) + variances @ np.square(sums.shift - q.shift)
        change = float(np.sqrt(squares / n + (1.0 - point.scale) ** 2))
        target = n - new + float(m @ sums.shift) if problem.scale_free else 0.0
        rescaling = float(np.sqrt(target / point.energy)) if target > 0.0 else 1.0
        return ScoreSweep(flat, rescaling, change, bound, log_partition, log_evidence, risk, sums.tied)

    def plain(point: ScorePoint, seen: ScoreSweep, damping: float) -> tuple[FloatArray, int]:
        c = seen.rescaling ** (damping / NEAR.damping)
        step = damping * seen.flat
        for part, power in ((slice(0, 1), c**-2.0), (slice(1, n + 1), 1.0 / c), (slice(n + 1, None), c**-2.0)):
            if part.start:  # the prior is not rescaled
                step[part] *= power
            step[part] += ((1.0 - damping) * power - 1.0) * point.flat[part]
        return step, 0

    def move(point: ScorePoint, seen: ScoreSweep, step: FloatArray) -> ScorePoint | None:
        return _point(inverse, point.flat + step)

    def metric(point: ScorePoint, seen: ScoreSweep) -> Callable[[FloatArray], FloatArray]:
        """In standard deviations of the scores."""
        weights = np.outer(point.q.sd, point.q.sd)
        weights[np.diag_indices(n)] /= np.sqrt(2.0)
        return partial(np.multiply, _flat(np.sqrt(0.5), weights, point.q.sd))

    return Iteration(sweep, plain, lambda point: point.flat, metric, move)


def _point(inverse: FloatArray, flat: FloatArray) -> ScorePoint | None:
    n = len(inverse)
    scale, shift = float(flat[0] / np.sqrt(n)), flat[1 : n + 1]
    sites = linalg.lapack.dtpttr(n, flat[n + 1 :], uplo="U")[0].T
    q = natural_gaussian(scale * inverse + sites, shift)
    if q is None:
        return None
    return ScorePoint(flat, scale, sites, q, q.trace_of(inverse) + _form(inverse, q.mean))


def _flat(scale: float, sites: FloatArray, shift: FloatArray) -> FloatArray:
    return np.concatenate([[scale], shift, linalg.lapack.dtrttp(sites.T, uplo="U")[0]])


@kernel
def _square(a, b, v):
    """tr (V (A - B))^2 of lower triangles, V = diag(v)."""
    total = 0.0
    for i in range(v.size):
        row = 0.0
        for j in range(i):
            row += v[j] * (a[i, j] - b[i, j]) ** 2
        total += v[i] * (2.0 * row + v[i] * (a[i, i] - b[i, i]) ** 2)
    return total


@kernel
def _cancels(cross, square_i, square_j):
    """Whether the variance of a pair is a difference of numbers so close that it is to be had from roots."""
    for i in range(square_i.size):
        for j in range(square_j.size):
            scale = square_i[i] + square_j[j]
            if scale - 2.0 * cross[i, j] <= CANCELLED * scale:
                return True
    return False


def _form(low: FloatArray, m: FloatArray) -> float:
    """m'A m, A by its lower triangle."""
    return float(m @ linalg.blas.dsymv(1.0, low.T, m, lower=0))


def _order(problem: Problem) -> NDArray[np.intp]:
    """The scores, those that a block compares side by side: its columns, then its rows."""
    parts = [part for block in problem.pairs.blocks for part in (block.negative, block.positive)]
    listed = np.concatenate([*parts, np.arange(problem.n)])
    _, first = np.unique(listed, return_index=True)
    return listed[np.sort(first)]


def _inverse(covariance: FloatArray) -> tuple[FloatArray, float] | None:
    """C^-1 and half the log determinant of C, the scores' covariance with a constant added; it is overwritten.

    Where the inverse would have too few digits, scores have noise of their own, as little as leaves enough; None where
    that does not help.
    """
    covariance += np.mean(np.diagonal(covariance))
    largest = float(np.abs(covariance).sum(axis=0).max())
    for noise in (0.0, 3.0 * LEAST_CONDITION * largest):
        matrix = covariance.T.copy(order="F")
        matrix[np.diag_indices(len(matrix))] += noise
        factor, failed = linalg.lapack.dpotrf(matrix, lower=0, overwrite_a=1)
        if not failed and linalg.lapack.dpocon(factor, largest, uplo="U")[0] >= LEAST_CONDITION:
            log_volume = float(np.log(np.diagonal(factor)).sum())
            return np.asarray(linalg.lapack.dpotri(factor, lower=0, overwrite_c=1)[0]).T, log_volume
    return None


def _sums(
    problem: Problem, table: SiteTable, place: NDArray[np.intp], offset: FloatArray, map_tiles: Callable[..., Any]
) -> SumsOf:
    """A, and what else a sweep finds, given mean, root, square and lower covariance of the scores in their order."""
    n, work = problem.n, cut_work(problem.pairs, problem.n)
    sites = tables_for(work, table)
    tiles = [
        (part, _span(place[part.rows]), _span(place[part.columns])) for part in work.parts if isinstance(part, Tile)
    ]

    def sums(mean: FloatArray, root: FloatArray, square: FloatArray, low: FloatArray | None) -> SiteSums:
        def job(tile: tuple[Tile, Span, Span]) -> tuple[Span, Span, FloatArray, TileSums]:
            part, rows, columns = tile
            K = root[rows] @ root[columns].T if low is None else np.array(low[_below(rows, columns)])
            width = None if _cancels(K, square[rows], square[columns]) else 0  # of the roots that are looked at
            of_rows, of_columns = (
                (mean[at], square[at], np.ascontiguousarray(root[at, :width])) for at in (rows, columns)
            )
            return rows, columns, K, tile_sites(part, of_rows, of_columns, K, sites, problem.tie_cost)

        A, k, h = np.zeros((n, n)), np.zeros(n), np.zeros(n)
        wrong = log_constant = tied = 0.0
        listed = []
        for rows, columns, K, found in map_tiles(job, tiles):
            A[_below(rows, columns)] -= K
            k[rows] += found.k_row
            k[columns] += found.k_column
            h[rows] += found.h_row
            h[columns] -= found.h_column
            wrong, log_constant, tied = wrong + found.wrong, log_constant + found.log_constant, tied + found.tied
            if found.listed is not None:
                listed.append((place[found.listed[0]], place[found.listed[1]], *found.listed[2:]))
        A[np.diag_indices(n)] += k
        if listed:
            i, j, k_pair, h_pair, more_wrong, more_constant = listed_sites(listed, mean, table)
            np.add.at(A, (np.maximum(i, j), np.minimum(i, j)), -k_pair)
            for at, sign in ((i, 1.0), (j, -1.0)):
                np.add.at(A, (at, at), k_pair)
                np.add.at(h, at, sign * h_pair)
            wrong, log_constant = wrong + more_wrong, log_constant + more_constant
        if offset.any():  # the sites are of s + offset
            from_offset = linalg.blas.dsymv(1.0, A.T, offset, lower=0)
            log_constant += float(h @ offset - 0.5 * offset @ from_offset)
            h = h - from_offset
        return SiteSums(A, h, float(log_constant), float(wrong), int(tied))

    return sums


def _span(index: NDArray[np.intp]) -> Span:
    """As a slice, where it is one."""
    whole = slice(int(index[0]), int(index[0]) + index.size)
    return whole if np.array_equal(index, np.arange(whole.start, whole.stop)) else index


def _below(rows: Span, columns: Span) -> tuple[Any, Any]:
    """Where the lower triangle of a symmetric matrix has these rows and columns."""
    if isinstance(rows, slice) and isinstance(columns, slice) and rows.start >= columns.stop:
        return rows, columns
    i, j = (np.arange(at.start, at.stop) if isinstance(at, slice) else at for at in (rows, columns))
    return np.maximum(i[:, None], j), np.minimum(i[:, None], j)


Found = Solution[NaturalGaussian, Any]

LEADING_TIMES = 300.0  # the tolerance, in the leading directions: the others would take further digits away


def leading_problem(problem: Problem, k: int) -> Problem:
    """The problem in its first k features."""
    return replace(problem, scores=problem.scores.leading(k))


def all_directions(
    problem: Problem,
    leading: Problem,
    found: Found,
    table: SiteTable,
    map_tiles: Callable[..., Any] = map,
) -> Found | None:
    """A solution in the leading directions, completed; None where its sites are no density together with the prior."""
    space, part, q = problem.scores.reduced, leading.scores.reduced, found.point
    options: dict[str, Any] = {"tie_cost": problem.tie_cost, "map_tiles": map_tiles}
    moments = score_moments(part.design, part.offset, q.mean, q.factor, map_tiles)
    sums = sum_sites(space.design, space.offset, moments, problem.pairs, table, **options)
    precision = sums.precision
    precision[np.diag_indices(space.dimension)] += 1.0
    whole = natural_gaussian(precision, sums.shift)
    if whole is None:
        return None
    moments = score_moments(space.design, space.offset, whole.mean, whole.factor, map_tiles)
    seen = sum_sites(space.design[:, :1], space.offset, moments, problem.pairs, table, **options)  # for the risk alone
    risk = float(seen.wrong / problem.pairs.total_weight)
    bound = -problem.gamma * risk - whole.divergence
    log_evidence = bound
    if table.power > 0.0:
        log_evidence = sums.log_constant + whole.log_partition()
    known = replace(found.seen, log_evidence=log_evidence, expected_risk=risk, bound=bound)
    return replace(found, point=whole, seen=known, following=whole)
