"""The evidence's derivative in the scores: d log Z / d design, an entry for every observation and coefficient.

At a fixed point log Z is stationary in the sites (K_ij, h_ij), so they may be held fixed. With P the Laplacian of the
K_ij (so that s'P s = sum K_ij (s_i - s_j)^2), h the signed row sums of the h_ij, Z the design, a = Z m + offset the
mean scores and m, V the moments of q,

    d log Z / d Z = (h - P a) m' - P Z V.

A parameter that moves the scores in any way, the lengthscale of kernel features say, follows by the chain rule. One
pass over the pairs, like a sweep: O(n+ n- k), or over those dealt. The same holds for the bound of variational Bayes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from pymc_pacauc.core.pairs import Block
from pymc_pacauc.ep.gaussian import EPFit
from pymc_pacauc.ep.sites import UPPER, lowest_rho, site_functions, weighted_site_table
from pymc_pacauc.ep.sweep import score_moments
from pymc_pacauc.ep.weighted_sites import tile_sites_weighted

__all__ = ["design_gradient"]

FloatArray = NDArray[np.float64]

TILE = 1024


def design_gradient(fit: EPFit) -> FloatArray:
    """d log Z / d design of the problem's reduced scores, shape (n, k), at a converged fit."""
    space, q = fit.problem.scores.reduced, fit.posterior.natural
    a = space.design @ q.mean + space.offset
    spread = linalg.cho_solve((q.factor, True), space.design.T, check_finite=False).T  # Z V
    pulled, products = _laplacian(fit, np.column_stack([spread, a]))
    return np.outer(pulled - products[:, -1], q.mean) - products[:, :-1]


def _laplacian(fit: EPFit, columns: FloatArray) -> tuple[FloatArray, FloatArray]:
    """h, and P @ columns."""
    problem, q, power = fit.problem, fit.posterior.natural, fit.power
    space, gamma = problem.scores.reduced, problem.gamma_per_pair
    moments = score_moments(space.design, space.offset, q.mean, q.factor)
    weights = [f(b.row_weights) * f(b.column_weights) for b in problem.pairs.blocks for f in (np.min, np.max)]
    table = weighted_site_table(gamma * float(min(weights)), gamma * float(max(weights)), power)
    h, products = np.zeros(problem.n), np.zeros_like(columns)
    blocks = [(block, 1.0) for block in problem.pairs.blocks] if fit.deal is None else fit.deal.parts()
    for tile, times in ((part, times) for block, times in blocks for part in _tiles(block)):
        i, j = tile.positive, tile.negative
        K = moments.root[i] @ moments.root[j].T  # once the kernel has run
        k_row, h_row, k_column, h_column, _, listed = tile_sites_weighted(
            K,
            *(moments.mean[i], moments.square[i], moments.root[i], tile.row_weights),
            *(moments.mean[j], moments.square[j], moments.root[j], tile.column_weights),
            *(gamma, table.largest, table.middle, table.scale),
            *(table.coefficients, table.wrong, table.lower, table.per_unit, problem.tie_cost),
        )
        h[i] += times * h_row
        h[j] -= times * h_column
        products[i] += times * (k_row[:, None] * columns[i] - K @ columns[j])
        products[j] += times * (k_column[:, None] * columns[j] - K.T @ columns[i])
        if len(listed):
            at = listed[:, :2].astype(np.intp)
            pair = i[at[:, 0]], j[at[:, 1]], listed[:, 2], gamma * listed[:, 3]
            _add_listed(*pair, times, fit, moments.mean, columns, h, products)
    return h, products


def _add_listed(
    i: NDArray[np.intp],
    j: NDArray[np.intp],
    variance: FloatArray,
    gamma: FloatArray,
    times: float,
    fit: EPFit,
    mean: FloatArray,
    columns: FloatArray,
    h: FloatArray,
    products: FloatArray,
) -> None:
    """Pairs with nearly equal rows, or of large weight, one by one."""
    rho = np.clip((mean[i] - mean[j]) / np.sqrt(variance), lowest_rho(float(gamma.max()), fit.power), UPPER)
    site = site_functions(rho, gamma, fit.power)
    shift = site.shift / np.sqrt(variance)
    product = (site.precision / variance)[:, None] * (columns[i] - columns[j])
    for at, sign in ((i, times), (j, -times)):
        np.add.at(h, at, sign * shift)
        np.add.at(products, at, sign * product)


def _tiles(block: Block) -> Iterator[Block]:
    for top in range(0, block.positive.size, TILE):
        for left in range(0, block.negative.size, TILE):
            yield block.take(slice(top, top + TILE), slice(left, left + TILE))
