"""One sweep over all pairs: the sums of their sites, given q.

The scores under q = N(m, V) have means a_i and covariance T T', so the difference of a pair has variance
|t_i|^2 + |t_j|^2 - 2 t_i . t_j. A tile of pairs is two matrix products and one pass of the site functions between them:

    t_i . t_j  (GEMM)   ->   K_ij, h_ij  (pointwise)   ->   sum_j K_ij z_j  (GEMM)

and sum_ij K_ij (z_i - z_j)(z_i - z_j)' follows from the row and column sums of K and sum_ij K_ij z_i z_j'. A sweep
costs O(n+ n- d + n d^2), a factor d below the paper's, and keeps nothing but sums: memory O(n d + tiles under way). A
tile is computed from q alone, so tiles go through any ``map``: the built-in one, or that of a pool of threads. Their
sums are added in a fixed order: the result does not depend on the number of threads.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import linalg
from threadpoolctl import ThreadpoolController

from pymc_pacauc.ep.sites import SiteTable
from pymc_pacauc.pairs import Pairs

__all__ = ["ScoreMoments", "SiteSums", "score_moments", "sum_sites", "tile_map"]

FloatArray = NDArray[np.float64]

TILE_ROWS, TILE_COLUMNS = 512, 4096  # at most
PAIRS_WORTH_THREADS = 200_000
DIMENSION_WORTH_THREADS = 512
CANCELLED = 1e-6  # variances below this fraction of |t_i|^2 + |t_j|^2 are recomputed without cancellation
TIED = 1e-26  # and below this one the two rows are equal


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
    expected number of wrong pairs, ``tied`` the number of pairs with equal rows (constant factors).
    """

    precision: FloatArray
    shift: FloatArray
    log_constant: float
    wrong: float
    tied: int


def score_moments(
    design: FloatArray, offset: FloatArray, mean: FloatArray, precision_factor: FloatArray
) -> ScoreMoments:
    """Moments of ``design @ w + offset`` for w ~ N(mean, (L L')^-1), L the lower ``precision_factor``."""
    root = linalg.solve_triangular(precision_factor, design.T, lower=True, check_finite=False).T
    root = np.ascontiguousarray(root)
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
        cross = rows[2] @ columns[2].T  # becomes K
        sums = _tile_sites(cross, *rows, *columns, table.coefficients, table.lower, table.per_unit, tie_cost)
        return *sums, cross @ extended[tile[1]]

    k_point, h_point, by_row = np.zeros(pairs.n), np.zeros(pairs.n), np.zeros((pairs.n, size))
    totals = np.zeros(4)
    tiles = list(_tiles(pairs))
    for (rows, columns), sums in zip(tiles, map_tiles(tile_sums, tiles), strict=True):
        k_row, h_row, k_column, h_column, tile_totals, weighted = sums
        k_point[rows] += k_row
        h_point[rows] += h_row
        k_point[columns] += k_column
        h_point[columns] -= h_column
        by_row[rows] += weighted
        totals += tile_totals
    product = extended.T @ by_row
    precision = (extended.T * k_point) @ extended - product - product.T
    linear = extended.T @ h_point
    wrong, log_constant, tied, tied_wrong = map(float, totals)
    # The kernel treats a tied pair as rho = 0: put the constant factor in its place.
    wrong += tied_wrong - 0.5 * tied
    log_constant -= table.gamma * tied_wrong + tied * table.log_constant_at_zero
    if size > d:
        log_constant += float(linear[d] - 0.5 * precision[d, d])
        linear = linear[:d] - precision[:d, d]
        precision = precision[:d, :d]
    return SiteSums(precision, linear, log_constant, wrong, int(tied))


@contextmanager
def tile_map(n_pairs: int, dimension: int, threads: int | None = None) -> Iterator[Callable[..., Any]]:
    """A ``map`` over tiles: threads (by default one per core), each with its own single-threaded matrix products.

    Within the context, matrix algebra in less than ``DIMENSION_WORTH_THREADS`` dimensions is single-threaded too:
    waking BLAS's threads would cost more than they save.
    """
    if threads is None:
        threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with nullcontext() if dimension >= DIMENSION_WORTH_THREADS else _single_threaded_blas():
        if threads == 1 or n_pairs < PAIRS_WORTH_THREADS:
            yield map
        else:
            with ThreadPoolExecutor(threads) as pool:

                def map_tiles(*args: Any) -> Iterator[Any]:
                    with _single_threaded_blas():
                        yield from pool.map(*args)

                yield map_tiles


def _single_threaded_blas() -> Any:
    return _blas().limit(limits=1, user_api="blas")


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def _tiles(pairs: Pairs) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Rows and columns of each tile: at least eight tiles where there is enough work for threads."""
    for block in pairs.blocks:
        rows = min(TILE_ROWS, max(64, -(-block.positive.size // 8)))
        for positive in _split(block.positive, rows):
            for negative in _split(block.negative, TILE_COLUMNS):
                yield positive, negative


def _split(index: NDArray[np.intp], size: int) -> list[NDArray[np.intp]]:
    return [index[start : start + size] for start in range(0, index.size, size)]


def _of(moments: ScoreMoments, index: NDArray[np.intp]) -> tuple[FloatArray, FloatArray, FloatArray]:
    return moments.mean[index], moments.square[index], moments.root[index]


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz", "arcp", "nnan", "ninf"})
def _tile_sites(cross, mean_i, square_i, root_i, mean_j, square_j, root_j, table, lower, per_unit, tie_cost):
    """Overwrite ``cross[i, j] = t_i . t_j`` by K_ij; return the sums of K and h along both axes, and the totals."""
    n_i, n_j = cross.shape
    k_row, h_row, k_column, h_column = np.zeros(n_i), np.zeros(n_i), np.zeros(n_j), np.zeros(n_j)
    variance, position = np.empty(n_j), np.empty(n_j)
    last = table.shape[0] - 0.5
    wrong = log_constant = tied = tied_wrong = 0.0
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
                        tied += 1.0
                        if abs(difference) <= 1e-12 * (abs(mean_i[i]) + abs(mean_j[j])):
                            tied_wrong += tie_cost
                        elif difference < 0.0:
                            tied_wrong += 1.0
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
    return k_row, h_row, k_column, h_column, np.array([wrong, log_constant, tied, tied_wrong])
