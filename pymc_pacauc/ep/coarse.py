"""A start for EP with many coefficients, from a fit to the few directions in which the scores vary most.

Far from its fixed point EP needs a direction, not digits, and with k coefficients of n scores a sweep costs k^2 n. So
the scores are first approximated by k / 8 features, from a pivoted Cholesky factorization of their prior covariance, or
by the first k / 3, where coefficients are such features already; what these leave out of a score's variance counts as
noise of its own, independent of the other scores'. The sites found there are those with which the fit to all directions
begins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.core.kernel_features import pivoted_cholesky
from pymc_pacauc.core.problem import Problem
from pymc_pacauc.ep.fixed_point import solve_fixed_point
from pymc_pacauc.ep.gaussian_iteration import POLICY, gaussian_iteration
from pymc_pacauc.ep.natural import NaturalGaussian, standard_gaussian
from pymc_pacauc.ep.sites import SiteTable
from pymc_pacauc.ep.sweep import ScoreMoments, SiteSums, score_moments, sum_sites

__all__ = ["MANY", "coarse_moments"]

FloatArray = NDArray[np.float64]

MANY = 48  # coefficients, for which it pays
SHARE, SHARE_OF_PIVOTS = 8, 3  # of the coefficients, one in so many
TOLERANCE, SWEEPS = 0.2, 20


def coarse_moments(problem: Problem, table: SiteTable, map_tiles: Callable[..., Any] = map) -> ScoreMoments:
    """Moments of the scores under EP's fit to an eighth or a third of the directions."""
    space = problem.scores.reduced
    design, offset = space.design, space.offset
    variances = np.einsum("ij,ij->i", design, design)
    rank = max(1, space.dimension // (SHARE if space.pivots is None else SHARE_OF_PIVOTS))
    if space.pivots is None:
        covariance = space.covariance
        found = pivoted_cholesky(
            lambda p: design @ design[p] if covariance is None else covariance[p], variances, rank, 0.0
        )
        features, left = np.ascontiguousarray(found.columns.T), found.left
    else:  # the directions are those of pivots, in their order
        features = np.ascontiguousarray(design[:, :rank])
        left = np.maximum(variances - np.einsum("ij,ij->i", features, features), 0.0)

    def moments(q: NaturalGaussian) -> ScoreMoments:
        seen = score_moments(features, offset, q.mean, q.factor, map_tiles)
        return replace(seen, square=seen.square + left)

    def sums_at(q: NaturalGaussian) -> SiteSums:
        return sum_sites(
            features, offset, moments(q), problem.pairs, table, tie_cost=problem.tie_cost, map_tiles=map_tiles
        )

    iteration = gaussian_iteration(problem, table.power, sums_at)
    start = standard_gaussian(features.shape[1])
    return moments(solve_fixed_point(iteration, start, POLICY, tolerance=TOLERANCE, max_sweeps=SWEEPS).point)
