"""One sweep over all pairs: the sums of their sites, given q.

The scores under q = N(m, V) have means a_i and covariance T T', T of shape (n, k), so the difference of a pair has
variance |t_i|^2 + |t_j|^2 - 2 t_i . t_j. A tile of pairs is two matrix products and one pass of the site functions
(:mod:`pymc_pacauc.ep.sites`) between them:

    t_i . t_j  (GEMM)   ->   K_ij, h_ij  (pointwise)   ->   sum_j K_ij z_j  (GEMM)

and sum_ij K_ij (z_i - z_j)(z_i - z_j)' follows from the row and column sums of K and sum_ij K_ij z_i z_j'. A sweep
costs O(n+ n- k + n k^2), a factor k below the paper's, in memory O(n k + tiles under way). Every plan of
``pairs="all"`` sweeps so. Tiles go through any ``map``, of threads or other machines, and are added in a fixed order:
the result does not depend on the number of threads. Blocks whose weights take few values become blocks of one weight,
which need one variable less (4 times as fast); many small blocks are one part together (2.5 to 4 times as fast). The K
of a pair whose rows nearly coincide is huge, and would leave nothing of the rest in those sums: such pairs are listed,
and added one by one.

The paper (Ridgway et al. 2014, arXiv:1410.1771), appendix Algorithm 3, stores every site and adds them one by one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from pymc_pacauc.comparison.pairs import Block, Pairs
from pymc_pacauc.ep.posterior import inverse_triangle
from pymc_pacauc.ep.sites import (
    CANCELLED,
    MOST_TABLES,
    NEAR,
    TIED,
    UPPER,
    SiteTable,
    SmallBlocks,
    WeightedSiteTable,
    check_gamma_per_pair,
    lowest_rho,
    site_functions,
    small_block_sites,
    small_blocks,
    tile_sites_weighted,
    weighted_site_table,
)
from pymc_pacauc.numerics import FloatArray, kernel, single_threaded_blas
from pymc_pacauc.problem.problem import Problem

# Of a tile, at most, and rows of other matrices worked on at a time: 16 MB. Doubled, as fast in twice the memory.
ROWS_AT_ONCE, TILE_COLUMNS = 512, 4096
# Pairs times coefficients below which a block is not worth a matrix product (tens of microseconds), if there are more
# than FEW of these; and so many pairs of them go through one call.
SMALL_BLOCK, FEW = 2**15, 8
WORTH_A_TILE = (
    64  # pairs of one weight, on average, for a block to be cut by its weights, and rows of a tile; doubled: fewer cuts
)


@dataclass(frozen=True, eq=False)
class Tile:
    """A part of a block: its rows and columns, and their weights where they differ (the block's is in the rows')."""

    rows: NDArray[np.intp]
    columns: NDArray[np.intp]
    weight: float
    row_weights: FloatArray | None
    column_weights: FloatArray | None


@dataclass(frozen=True, eq=False)
class Work:
    """What a sweep over some pairs consists of: ``weights`` are the least and largest of pairs that need them."""

    parts: list[Tile | SmallBlocks]
    constant_weights: set[float]
    weights: tuple[float, float] | None


_known_work: WeakKeyDictionary[Pairs, dict[int, Work]] = WeakKeyDictionary()


def cut_work(
    pairs: Pairs,
    d: int,
    *,
    small_block: int = SMALL_BLOCK,
    most_weights: int = MOST_TABLES,
    most_tables: int = MOST_TABLES,
) -> Work:
    """Cut pairs into parts; remembered, as every sweep over the same pairs has the same."""
    known = _known_work.setdefault(pairs, {})
    if d not in known:
        known[d] = _cut(pairs, d, small_block, most_weights, most_tables)
    return known[d]


def _cut(pairs: Pairs, d: int, small_block: int, most_weights: int, most_tables: int) -> Work:
    small = [block for block in pairs.blocks if block.n_pairs * d <= small_block]
    if len(small) <= FEW:
        small = []
    together = set(map(id, small))
    large = [part for block in pairs.blocks if id(block) not in together for part in _by_weight(block, most_weights)]
    tables = {block.weight for block in large if block.constant}
    if len(tables) > most_tables:
        tables = set()
    alone = [block.constant and block.weight in tables for block in large]
    parts: list[Tile | SmallBlocks] = []
    for block, constant in zip(large, alone, strict=True):
        parts += _tiles(block, constant)
    parts += map(small_blocks, _shares(small))
    varying = [block for block, constant in zip(large, alone, strict=True) if not constant] + small
    ends = [f(b.row_weights) * f(b.column_weights) for b in varying for f in (np.min, np.max)]
    return Work(parts, tables, (float(min(ends)), float(max(ends))) if ends else None)


def _by_weight(block: Block, most: int) -> list[Block]:
    """A block whose weights take few values (counts, say) as blocks of one weight each: one variable less."""
    if block.constant:
        return [block]
    rows, row = np.unique(block.row_weights, return_inverse=True)
    columns, column = np.unique(block.column_weights, return_inverse=True)
    if rows.size * columns.size > min(most, block.n_pairs / WORTH_A_TILE):
        return [block]
    return [
        Block(block.positive[row == i], block.negative[column == j], weight=float(a * b))
        for i, a in enumerate(rows)
        for j, b in enumerate(columns)
    ]


def _tiles(block: Block, constant: bool) -> Iterator[Tile]:
    """Eight tiles at least, if they have 64 rows then: work for threads; with weights unless ``constant``."""
    height = min(ROWS_AT_ONCE, max(64, -(-block.positive.size // 8)))
    row_weights = None if constant else block.row_weights
    column_weights = None if constant else block.column_weights
    for top in range(0, block.positive.size, height):
        rows = slice(top, top + height)
        for left in range(0, block.negative.size, TILE_COLUMNS):
            columns = slice(left, left + TILE_COLUMNS)
            yield Tile(
                block.positive[rows],
                block.negative[columns],
                block.weight,
                None if row_weights is None else row_weights[rows],
                None if column_weights is None else column_weights[columns],
            )


def _shares(blocks: list[Block]) -> Iterator[list[Block]]:
    """Consecutive blocks with at most an eighth of all pairs, or ``SMALL_BLOCK``, whichever is more."""
    most = max(SMALL_BLOCK, sum(block.n_pairs for block in blocks) // 8)
    share, pairs = [], 0
    for block in blocks:
        share.append(block)
        pairs += block.n_pairs
        if pairs >= most:
            yield share
            share, pairs = [], 0
    if share:
        yield share


@contextmanager
def tile_map(n_pairs: int, dimension: int, n_jobs: int | None = None) -> Iterator[Callable[..., Any]]:
    """A ``map`` over tiles, on threads (by default one per core) where there is work for them: a millisecond.

    Within the context matrix algebra is single-threaded: BLAS's own threads wait for each other at every step of a
    factorization, which costs more than it saves wherever a core has other work to do.
    """
    if n_jobs is None:
        n_jobs = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with single_threaded_blas():
        if n_jobs == 1 or (n_pairs < ROWS_AT_ONCE**2 and dimension < ROWS_AT_ONCE):
            yield map
        else:
            with ThreadPoolExecutor(n_jobs) as pool:
                yield pool.map


Listed = tuple[NDArray[np.intp], NDArray[np.intp], FloatArray, FloatArray]
OfScores = tuple[FloatArray, FloatArray, FloatArray]

LARGEST_ROUNDING = 1e-3  # nats, of log Z: what models may differ by; twice as much is refused half as often


@dataclass(frozen=True, eq=False)
class ScoreMoments:
    """Means and a covariance root of the scores under q: ``cov(scores) = root @ root.T``."""

    mean: FloatArray
    root: FloatArray
    square: FloatArray


@dataclass(frozen=True, eq=False)
class SiteSums:
    """Sums over pairs of the site parameters, in the natural parameters of q, and of two scalars.

    ``log_constant`` includes what the sites contribute at zero coefficients when there is an offset; ``wrong`` is the
    expected weight of the wrong pairs, ``tied`` the number of pairs that tie whatever the coefficients.
    """

    precision: FloatArray
    shift: FloatArray
    log_constant: float
    wrong: float
    tied: int


def check_offset(problem: Problem) -> None:
    """Refuse offsets so far apart that double precision cannot hold the evidence.

    The sites' constants are sums over pairs of K o_i^2 and the like, with K about gamma / (n+ n- v), v the prior
    variance of a score: rounding leaves an error of about eps gamma max(o)^2 / v in log Z.
    """
    space = problem.scores.reduced
    spread = float(np.abs(space.offset).max())
    sd = float(np.sqrt(np.mean(np.einsum("ij,ij->i", space.design, space.design))))
    rounding = np.finfo(float).eps * problem.gamma * (spread / sd) ** 2 if sd > 0.0 else 0.0
    if rounding > LARGEST_ROUNDING:
        raise ValueError(
            f"The scores at the prior mean (offset included) are up to {spread:.2g} from their average, "
            f"{spread / sd:.2g} times the prior standard deviation of a score: in double precision EP's log evidence "
            f"would be wrong by about {rounding:.1g}. Where an offset ranks so firmly, coefficients matter for near "
            "ties alone: rescale it, widen the prior, or use pm.sample(step=pac.TemperingSMC())."
        )


def score_moments(
    design: FloatArray,
    offset: FloatArray,
    mean: FloatArray,
    precision_factor: FloatArray,
    map_tiles: Callable[..., Any] = map,
) -> ScoreMoments:
    """Moments of ``design @ w + offset`` for w ~ N(mean, (L L')^-1), L the lower ``precision_factor``."""
    inverse = inverse_triangle(precision_factor.T)

    def times(rows: slice) -> FloatArray:
        return np.asarray(linalg.blas.dtrmm(1.0, inverse, design[rows].T, trans_a=1)).T

    root = np.concatenate(list(map_tiles(times, _slices(len(design)))))
    return ScoreMoments(design @ mean + offset, root, np.einsum("ij,ij->i", root, root))


def sum_sites(
    design: FloatArray,
    offset: FloatArray,
    moments: ScoreMoments,
    pairs: Pairs,
    table: SiteTable,
    *,
    tie_cost: float = 0.5,
    map_tiles: Callable[..., Any] = map,
) -> SiteSums:
    """Add up the sites of all ``pairs``; see the module docstring."""
    if not (np.isfinite(moments.mean).all() and np.isfinite(moments.square).all()):
        raise FloatingPointError("The moments of the scores overflow: rescale X, the offset or the prior.")
    # With an offset, s = [z, o] . [w, 1]: the sums over the extended rows contain all that is needed.
    extended = np.column_stack([design, offset]) if offset.any() else design
    d, size = design.shape[1], extended.shape[1]
    work = cut_work(pairs, d)
    sites = tables_for(work, table)

    def job(part: Tile | SmallBlocks) -> PartSums:
        if isinstance(part, SmallBlocks):
            return _small_block_sums(part, moments, extended, sites, tie_cost)
        return _tile_sums(part, moments, extended, sites, tie_cost)

    k_point, h_point, by_row = np.zeros(pairs.n), np.zeros(pairs.n), np.zeros((pairs.n, size))
    wrong = log_constant = tied = 0.0
    listed: list[Listed] = []
    for sums in map_tiles(job, work.parts):
        for index, k_sum, h_sum in sums.points:
            k_point[index] += k_sum
            h_point[index] += h_sum
        by_row[sums.rows] -= sums.by_row
        wrong, log_constant, tied = wrong + sums.wrong, log_constant + sums.log_constant, tied + sums.tied
        if sums.listed is not None:
            listed.append(sums.listed)
    precision = _symmetric_product(extended, 0.5 * k_point, by_row, map_tiles)
    linear = extended.T @ h_point
    if listed:
        site_wrong, site_log_constant = _add_listed(listed, moments.mean, extended, table, precision, linear)
        wrong, log_constant = wrong + site_wrong, log_constant + site_log_constant
    if size > d:
        log_constant += float(linear[d] - 0.5 * precision[d, d])
        linear = linear[:d] - precision[:d, d]
        precision = precision[:d, :d]
    return SiteSums(precision, linear, float(log_constant), float(wrong), int(tied))


class PartSums(NamedTuple):
    """Sums over one part: K and h by observation, K z by ``rows``; and the pairs that are in none of these, listed as
    (i, j, variance, weight), arrays each, or None where there are none.
    """

    points: tuple[tuple[NDArray[np.intp], FloatArray, FloatArray], ...]
    rows: NDArray[np.intp]
    by_row: FloatArray
    wrong: float
    log_constant: float
    tied: float
    listed: Listed | None


class Tables(NamedTuple):
    """The site functions, tabulated for every weight of whole tiles, and for weights between two."""

    gamma: float
    by_weight: dict[float, SiteTable]
    weighted: WeightedSiteTable | None


def tables_for(work: Work, table: SiteTable) -> Tables:
    by_weight = {weight: table.times(weight) for weight in work.constant_weights}
    for each in by_weight.values():
        each.coefficients  # noqa: B018  # worked out here, once, and not by every thread
    weighted = None
    if work.weights is not None:
        weighted = weighted_site_table(table.gamma * work.weights[0], table.gamma * work.weights[1], table.power)
    return Tables(table.gamma, by_weight, weighted)


def _tile_sums(tile: Tile, moments: ScoreMoments, extended: FloatArray, sites: Tables, tie_cost: float) -> PartSums:
    rows, columns = _of(moments, tile.rows), _of(moments, tile.columns)
    cross = rows[2] @ columns[2].T  # becomes K
    if tile.row_weights is not None:
        assert sites.weighted is not None
        k_row, h_row, k_column, h_column, totals, far = tile_sites_weighted(
            cross,
            *rows,
            tile.row_weights,
            *columns,
            tile.column_weights,
            *_arguments(sites.gamma, sites.weighted),
            tie_cost,
        )
        at, weights = far[:, :2].astype(np.intp), far[:, 3]
        wrong, log_constant, tied = map(float, totals)
    else:
        table = sites.by_weight[tile.weight]
        k_row, h_row, k_column, h_column, totals, far = _tile_sites(
            cross, *rows, *columns, table.coefficients, table.lower, table.per_unit, tie_cost
        )
        wrong, log_constant, equal, equal_wrong, tied = map(float, totals)
        # The kernel takes pairs of equal rows, and near ones, for rho = 0: put the constant factor there, or none.
        wrong = tile.weight * (wrong + equal_wrong - 0.5 * (equal + len(far)))
        log_constant -= table.gamma * equal_wrong + (equal + len(far)) * table.log_constant_at_zero
        at, weights = far[:, :2].astype(np.intp), np.full(len(far), tile.weight)
    listed = (tile.rows[at[:, 0]], tile.columns[at[:, 1]], far[:, 2], weights) if len(far) else None
    points = ((tile.rows, k_row, h_row), (tile.columns, k_column, -h_column))
    return PartSums(points, tile.rows, cross @ extended[tile.columns], wrong, log_constant, tied, listed)


def _small_block_sums(
    part: SmallBlocks, moments: ScoreMoments, extended: FloatArray, sites: Tables, tie_cost: float
) -> PartSums:
    assert sites.weighted is not None
    k_point, h_point, by_row, totals, far = small_block_sites(
        part.positive,
        part.row_weights,
        part.first_row,
        part.negative,
        part.column_weights,
        part.first_column,
        *_of(moments, part.members),
        extended[part.members],
        *_arguments(sites.gamma, sites.weighted),
        tie_cost,
    )
    at = part.members[far[:, :2].astype(np.intp)]
    listed = (at[:, 0], at[:, 1], far[:, 2], far[:, 3]) if len(far) else None
    wrong, log_constant, tied = map(float, totals)
    return PartSums(((part.members, k_point, h_point),), part.members, by_row, wrong, log_constant, tied, listed)


def _arguments(gamma: float, table: WeightedSiteTable) -> tuple[Any, ...]:
    return (
        gamma,
        table.largest,
        table.middle,
        table.scale,
        table.coefficients,
        table.wrong,
        table.lower,
        table.per_unit,
    )


def _symmetric_product(Z: FloatArray, weights: FloatArray, W: FloatArray, map_tiles: Callable[..., Any]) -> FloatArray:
    """H + H' with H = Z' (diag(weights) Z + W); W is overwritten."""
    for rows in _slices(len(Z)):
        W[rows] += weights[rows, None] * Z[rows]
    parts = _slices(Z.shape[1])
    product = np.empty((Z.shape[1], Z.shape[1]))
    for part, rows in zip(parts, map_tiles(lambda part: Z[:, part].T @ W, parts), strict=True):
        product[part] = rows
    for k, part in enumerate(parts):
        for other in parts[: k + 1]:
            block = product[part, other] + product[other, part].T
            product[part, other], product[other, part] = block, block.T
    return product


def _add_listed(
    listed: list[Listed],
    mean: FloatArray,
    extended: FloatArray,
    table: SiteTable,
    precision: FloatArray,
    linear: FloatArray,
) -> tuple[float, float]:
    """Add the sites of pairs (i, j, variance, weight), one by one, to the sums in place.

    Returns the expected weight of the wrong ones, and the sum of their log constants.
    """
    i, j, k, h, wrong, log_constant = listed_sites(listed, mean, table)
    for part in _slices(len(i)):
        difference = extended[i[part]] - extended[j[part]]
        precision += (difference.T * k[part]) @ difference
        linear += difference.T @ h[part]
    return wrong, log_constant


def listed_sites(
    listed: list[Listed], mean: FloatArray, table: SiteTable
) -> tuple[NDArray[np.intp], NDArray[np.intp], FloatArray, FloatArray, float, float]:
    """i, j, K and h of pairs (i, j, variance, weight), the expected weight of the wrong ones, and their constant."""
    i, j, variance, weight = (np.concatenate(columns) for columns in zip(*listed, strict=True))
    gamma = table.gamma * weight
    check_gamma_per_pair(float(gamma.max()), table.power)
    rho = np.clip((mean[i] - mean[j]) / np.sqrt(variance), lowest_rho(float(gamma.max()), table.power), UPPER)
    same = bool((gamma == gamma[0]).all())
    site = site_functions(rho, float(gamma[0]) if same else gamma, table.power)
    h = site.shift / np.sqrt(variance)
    return i, j, site.precision / variance, h, float(weight @ site.wrong), float(site.log_constant.sum())


def _slices(size: int) -> list[slice]:
    return [slice(start, start + ROWS_AT_ONCE) for start in range(0, size, ROWS_AT_ONCE)]


def _of(moments: ScoreMoments, index: NDArray[np.intp]) -> OfScores:
    return moments.mean[index], moments.square[index], moments.root[index]


@kernel(fastmath={"contract", "reassoc", "nsz", "arcp", "nnan", "ninf"})
def _tile_sites(cross, mean_i, square_i, root_i, mean_j, square_j, root_j, table, lower, per_unit, tie_cost):
    """Overwrite ``cross[i, j] = t_i . t_j`` by K_ij; return the sums of K and h along both axes, the totals, and the
    near pairs (i, j, variance), which are counted as if their rho were 0.
    """
    n_i, n_j = cross.shape
    k_row, h_row, k_column, h_column = np.zeros(n_i), np.zeros(n_i), np.zeros(n_j), np.zeros(n_j)
    variance, position = np.empty(n_j), np.empty(n_j)
    last = table.shape[0] - 0.5
    wrong = log_constant = equal = equal_wrong = tied = 0.0
    near = [(0.0, 0.0, 0.0)]
    for i in range(n_i):
        row = cross[i]
        cancelled = 0
        for j in range(n_j):
            scale = square_i[i] + square_j[j]
            variance[j] = scale - 2.0 * row[j]
            cancelled += variance[j] <= CANCELLED * scale
        if cancelled:
            for j in range(n_j):
                scale = square_i[i] + square_j[j]
                if variance[j] <= CANCELLED * scale:
                    exact = 0.0
                    for k in range(root_i.shape[1]):
                        exact += (root_i[i, k] - root_j[j, k]) ** 2
                    variance[j] = exact
                    if exact <= TIED * scale:  # equal rows: the difference of the scores is their offsets' alone
                        variance[j] = 1e300
                        difference = mean_i[i] - mean_j[j]
                        equal += 1.0
                        if abs(difference) <= 1e-12 * (abs(mean_i[i]) + abs(mean_j[j])):
                            tied += 1.0
                            equal_wrong += tie_cost
                        elif difference < 0.0:
                            equal_wrong += 1.0
                    elif exact <= NEAR * scale:
                        variance[j] = 1e300
                        near.append((float(i), float(j), exact))
        for j in range(n_j):
            variance[j] = 1.0 / math.sqrt(variance[j])  # from here on 1 / sd
            rho = (mean_i[i] - mean_j[j]) * variance[j]
            position[j] = min(max((rho - lower) * per_unit, 0.0), last)
        k_sum = h_sum = 0.0
        for j in range(n_j):
            interval = np.int32(position[j])
            t = position[j] - interval - 0.5
            p = table[interval]
            b = p[0, 0] + t * (p[0, 1] + t * (p[0, 2] + t * (p[0, 3] + t * (p[0, 4] + t * p[0, 5]))))
            c = p[1, 0] + t * (p[1, 1] + t * (p[1, 2] + t * (p[1, 3] + t * (p[1, 4] + t * p[1, 5]))))
            wrong += p[2, 0] + t * (p[2, 1] + t * (p[2, 2] + t * (p[2, 3] + t * (p[2, 4] + t * p[2, 5]))))
            log_constant += p[3, 0] + t * (p[3, 1] + t * (p[3, 2] + t * (p[3, 3] + t * (p[3, 4] + t * p[3, 5]))))
            k = b * variance[j] * variance[j]
            h = c * variance[j]
            row[j] = k
            k_sum += k
            h_sum += h
            k_column[j] += k
            h_column[j] += h
        k_row[i] = k_sum
        h_row[i] = h_sum
    totals = np.array([wrong, log_constant, equal, equal_wrong, tied])
    return k_row, h_row, k_column, h_column, totals, np.array(near)[1:]
