"""One sweep over all pairs: the sums of their sites, given q.

The scores under q = N(m, V) have means a_i and covariance T T', so the difference of a pair has variance
|t_i|^2 + |t_j|^2 - 2 t_i . t_j. A tile of pairs is two matrix products and one pass of the site functions between them:

    t_i . t_j  (GEMM)   ->   K_ij, h_ij  (pointwise)   ->   sum_j K_ij z_j  (GEMM)

and sum_ij K_ij (z_i - z_j)(z_i - z_j)' follows from the row and column sums of K and sum_ij K_ij z_i z_j'. A sweep
costs O(n+ n- d + n d^2), a factor d below the paper's, and keeps nothing but sums: memory O(n d + tiles under way). A
tile is computed from q alone, so tiles go through any ``map``: the built-in one, or that of a pool of threads. Their
sums are added in a fixed order: the result does not depend on the number of threads.

The K of a pair whose rows nearly coincide is huge, and rounding would leave nothing of it in those sums: such pairs are
added one by one, from the difference of their rows.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from pymc_pacauc.core.blas import single_threaded_blas
from pymc_pacauc.core.kernels import kernel
from pymc_pacauc.core.pairs import Pairs
from pymc_pacauc.core.problem import Problem
from pymc_pacauc.ep.sites import UPPER, SiteTable, site_functions

__all__ = ["ScoreMoments", "SiteSums", "check_offset", "score_moments", "sum_sites", "tile_map"]

FloatArray = NDArray[np.float64]

TILE_ROWS, TILE_COLUMNS = 512, 4096  # at most
PAIRS_WORTH_THREADS = 200_000
DIMENSION_WORTH_THREADS = 512
CANCELLED = 1e-6  # variances below this fraction of |t_i|^2 + |t_j|^2 are recomputed without cancellation,
NEAR = 1e-10  # below this one the pair is added by itself,
TIED = 1e-22  # and below this one the two rows are equal, to rounding
LARGEST_ROUNDING = 1e-3  # of log Z, in nats


@dataclass(frozen=True, eq=False)
class ScoreMoments:
    """Means and a covariance root of the scores under q: ``cov(scores) = root @ root.T``."""

    mean: FloatArray  # (n,)
    root: FloatArray  # (n, k)
    square: FloatArray  # (n,), the squared norms of the root's rows


@dataclass(frozen=True, eq=False)
class SiteSums:
    """Sums over pairs of the site parameters, in the natural parameters of q, and of two scalars.

    ``log_constant`` includes what the sites contribute at zero coefficients when there is an offset; ``wrong`` is the
    expected number of wrong pairs, ``tied`` the number of pairs that tie whatever the coefficients.
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

    def solve(rows: slice) -> FloatArray:
        return np.asarray(linalg.solve_triangular(precision_factor, design[rows].T, lower=True, check_finite=False)).T

    root = np.concatenate(list(map_tiles(solve, _slices(len(design)))))
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

    def tile_sums(tile: tuple[NDArray[np.intp], NDArray[np.intp]]) -> tuple[Any, ...]:
        rows, columns = (_of(moments, index) for index in tile)
        cross = rows[2] @ columns[2].T  # (rows, columns) of the tile: t_i . t_j, which becomes K
        sums = _tile_sites(cross, *rows, *columns, table.coefficients, table.lower, table.per_unit, tie_cost)
        return *sums, cross @ extended[tile[1]]  # the last: (rows, k)

    k_point, h_point, by_row = np.zeros(pairs.n), np.zeros(pairs.n), np.zeros((pairs.n, size))
    totals = np.zeros(5)
    near = []
    tiles = list(_tiles(pairs))
    for (rows, columns), sums in zip(tiles, map_tiles(tile_sums, tiles), strict=True):
        k_row, h_row, k_column, h_column, tile_totals, tile_near, weighted = sums
        if len(tile_near):
            at = tile_near[:, :2].astype(np.intp)
            near.append((rows[at[:, 0]], columns[at[:, 1]], tile_near[:, 2]))
        k_point[rows] += k_row
        h_point[rows] += h_row
        k_point[columns] += k_column
        h_point[columns] -= h_column
        by_row[rows] -= weighted
        totals += tile_totals
    precision = _symmetric_product(extended, 0.5 * k_point, by_row, map_tiles)  # (k, k), or (k + 1, k + 1)
    linear = extended.T @ h_point
    for i, j, variance in near:
        _add_near(i, j, variance, moments.mean, extended, table, precision, linear, totals)
    wrong, log_constant, equal, equal_wrong, tied = map(float, totals)
    # The kernel treats a pair of equal rows as rho = 0: put the constant factor in its place.
    wrong += equal_wrong - 0.5 * equal
    log_constant -= table.gamma * equal_wrong + equal * table.log_constant_at_zero
    if size > d:
        log_constant += float(linear[d] - 0.5 * precision[d, d])
        linear = linear[:d] - precision[:d, d]
        precision = precision[:d, :d]
    return SiteSums(precision, linear, log_constant, wrong, int(tied))


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


def _add_near(
    i: NDArray[np.intp],
    j: NDArray[np.intp],
    variance: FloatArray,
    mean: FloatArray,
    extended: FloatArray,
    table: SiteTable,
    precision: FloatArray,
    linear: FloatArray,
    totals: FloatArray,
) -> None:
    """Add the sites of pairs (i, j), counted so far as if their rho were 0, to the sums in place."""
    rho = np.clip((mean[i] - mean[j]) / np.sqrt(variance), table.lower, UPPER)
    site = site_functions(rho, table.gamma, table.power)
    totals[0] += np.sum(site.wrong - 0.5)
    totals[1] += np.sum(site.log_constant - table.log_constant_at_zero)
    for part in _slices(len(i)):
        difference = extended[i[part]] - extended[j[part]]
        precision += (difference.T * (site.precision[part] / variance[part])) @ difference
        linear += difference.T @ (site.shift[part] / np.sqrt(variance[part]))


@contextmanager
def tile_map(n_pairs: int, dimension: int, threads: int | None = None) -> Iterator[Callable[..., Any]]:
    """A ``map`` over tiles, on threads (by default one per core) where there is work for them.

    Within the context matrix algebra is single-threaded: BLAS's own threads wait for each other at every step of a
    factorization, which costs more than it saves wherever a core has other work to do.
    """
    if threads is None:
        threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with single_threaded_blas():
        if threads == 1 or (n_pairs < PAIRS_WORTH_THREADS and dimension < DIMENSION_WORTH_THREADS):
            yield map
        else:
            with ThreadPoolExecutor(threads) as pool:
                yield pool.map


def _tiles(pairs: Pairs) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Rows and columns of each tile: at least eight tiles where there is enough work for threads."""
    for block in pairs.blocks:
        rows = min(TILE_ROWS, max(64, -(-block.positive.size // 8)))
        for positive in _split(block.positive, rows):
            for negative in _split(block.negative, TILE_COLUMNS):
                yield positive, negative


def _slices(size: int) -> list[slice]:
    return [slice(start, start + TILE_ROWS) for start in range(0, size, TILE_ROWS)]


def _split(index: NDArray[np.intp], size: int) -> list[NDArray[np.intp]]:
    return [index[start : start + size] for start in range(0, index.size, size)]


def _of(moments: ScoreMoments, index: NDArray[np.intp]) -> tuple[FloatArray, FloatArray, FloatArray]:
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
