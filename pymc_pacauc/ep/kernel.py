"""Derivatives of EP's log evidence in the scores and in a kernel matrix, and predictions of a Gaussian process.

*Derivative in the design* (:func:`design_gradient`), shape (n, k): one entry for each observation and coefficient. At a
fixed point log Z is stationary in the sites (K_ij, h_ij), so they are held fixed. With P the Laplacian of the K_ij
(s'P s = sum K_ij (s_i - s_j)^2), h_i the sum of the h_ij over the partners of i (negative where i is the lower one), Z
the design, a = Z m + offset the mean scores and m, V the moments of q,

    d log Z / d Z = (h - P a) m' - P Z V.

Any parameter that changes the scores, such as the lengthscale of kernel features, follows by the chain rule. The cost
is that of one sweep, O(n+ n- k), or less over sampled pairs. The same holds for the bound of variational Bayes.

*Gaussian processes.* A GP prior of the n training scores s is the linear problem with the kernel matrix K = L L' as
prior covariance; K is never inverted. s = A theta + a is an affine function of the problem's coefficients, whose
posterior q is known. At a new point x*, with k* the kernel between training points and x* and c = L^-1 k*, the GP's
conditional is s* = c' L^-1 s plus noise of variance k** - c'c (:func:`predict_scores_at`), so

    var s* = k** - c'c + var(c' L^-1 A theta).

*Derivative in the kernel matrix* (:func:`kernel_gradient`), shape (n, n): d log Z = sum(G * dK) with

    G = L^-T (cov(w) + E[w] E[w]' - I) L^-1 / 2,    w = L^-1 s.

Where the scores are few features (:mod:`pymc_pacauc.problem.scores`), s = F u with F = K_nP L_P^-T, P the pivots, K the
centred kernel matrix and L_P L_P' = K_PP, then exactly for the evidence of these features (:func:`pivoted_gradient`),
with H = d log Z / d F,

    d log Z = sum(H L_P^-1 * dK_nP) - sum(L_P^-T (cov(u) + E[u] E[u]' - I) L_P^-1 * dK_PP) / 2.

Used by ``maximize_evidence`` and by predictions of models with a GP, of plans in either coordinates.

References: Ridgway, Alquier, Chopin & Liang (2014), arXiv:1410.1771, section 4; Rasmussen & Williams (2006),
http://gaussianprocess.org/gpml, sections 2.2, 3.6 and 5.5; Seeger (2005), EPFL-REPORT-161464.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg

from pymc_pacauc.ep.gaussian import EPFit
from pymc_pacauc.ep.sweep import ROWS_AT_ONCE, cut_work, listed_sites, score_moments, sum_by_row, tile_map
from pymc_pacauc.numerics import FloatArray


def design_gradient(fit: EPFit) -> FloatArray:
    """Compute d log Z / d design of the problem's reduced scores, shape (n, k), at a converged fit."""
    q = fit.posterior.natural
    h, products = _laplacian(fit)
    of_mean = products @ np.append(q.mean, 1.0)  # P a
    of_design = linalg.cho_solve((q.factor, True), products[:, :-1].T, check_finite=False).T  # P Z V
    return np.outer(h - of_mean, q.mean) - of_design


def _laplacian(fit: EPFit) -> tuple[FloatArray, FloatArray]:
    """Compute h, (n,), and P times the columns of the design and the offset, (n, k + 1); see the module docstring."""
    problem, space = fit.problem, fit.problem.scores.reduced
    moments = score_moments(space.design, space.offset, fit.posterior.natural)
    z = np.column_stack([space.design, space.offset])
    h, products = np.zeros(problem.n), np.zeros_like(z)
    for pairs, times in fit.compared:
        sums = sum_by_row(z, moments, cut_work(pairs, z.shape[1]), fit.table, tie_cost=problem.tie_cost, both=True)
        h += times * sums.h
        products += times * (sums.k[:, None] * z - sums.kz)
        if sums.listed:  # pairs of nearly equal rows, or of large weight
            i, j, k, h_pair, _, _ = listed_sites(sums.listed, moments.mean, fit.table)
            product = k[:, None] * (z[i] - z[j])
            for place, sign in ((i, times), (j, -times)):
                np.add.at(h, place, sign * h_pair)
                np.add.at(products, place, sign * product)
    return h, products


@dataclass(frozen=True, eq=False)
class TrainingScores:
    """Scores of the training points minus their prior mean: ``design @ theta + offset``, theta ~ ``posterior``.

    ``factor`` is L, the Cholesky factor of the kernel matrix. The posterior has ``score_mean``
    and ``moments_of``.
    """

    factor: FloatArray
    design: FloatArray
    offset: FloatArray
    posterior: Any

    def moments_of(self, rows: FloatArray, *, variances: bool = False) -> tuple[FloatArray, FloatArray]:
        """Compute mean and covariance (or variances) of ``rows @ scores``."""
        mean, spread = moments(self.posterior, rows @ self.design, variances=variances)
        return mean + rows @ self.offset, spread


def moments(posterior: Any, theta_map: FloatArray, *, variances: bool = False) -> tuple[FloatArray, FloatArray]:
    """Return the mean score (the one certified) and the covariance (or variances) of ``theta_map @ theta``."""
    return theta_map @ posterior.score_mean, posterior.moments_of(theta_map, variances=variances)[1]


def predict_scores_at(scores: TrainingScores, cross: FloatArray, new: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Compute mean and variance of the scores at m new points.

    ``cross`` is the kernel between training and new points, (n, m); ``new`` that of each new point, (m,).
    """
    parts = [slice(start, start + ROWS_AT_ONCE) for start in range(0, max(new.size, 1), ROWS_AT_ONCE)]
    with tile_map(0, len(scores.factor)) as map_parts:
        found = list(map_parts(lambda part: _predict(scores, cross[:, part], new[part]), parts))
    mean, variance = (np.concatenate(pieces) for pieces in zip(*found, strict=True))
    return mean, variance


def _predict(scores: TrainingScores, cross: FloatArray, new: FloatArray) -> tuple[FloatArray, FloatArray]:
    c = linalg.solve_triangular(scores.factor, cross, lower=True, check_finite=False)
    rows = linalg.solve_triangular(scores.factor, c, lower=True, trans="T", check_finite=False).T
    mean, variance = scores.moments_of(rows, variances=True)
    return mean, variance + (new - np.einsum("ij,ij->j", c, c))


def kernel_gradient(scores: TrainingScores) -> FloatArray:
    """Compute G, the derivative of EP's log evidence in the kernel matrix, shape (n, n); see the module docstring."""
    identity = np.eye(len(scores.factor))
    inverse = linalg.solve_triangular(scores.factor, identity, lower=True, check_finite=False)
    mean, covariance = scores.moments_of(inverse)
    inner = 0.5 * (covariance + np.outer(mean, mean) - identity)
    return np.asarray(inverse.T @ inner @ inverse)


def feature_slopes(fit: EPFit, factor: FloatArray, rotation: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
    """Compute d log Z / d K_nP, shape (n, r), and d log Z / d K_PP, shape (r, r); ``factor`` is L_P.

    ``rotation`` maps the features' coefficients to the reduced ones of the fit, where these differ.
    """
    q = fit.posterior.natural
    slope, inner = design_gradient(fit), q.covariance + np.outer(q.mean, q.mean) - np.eye(q.mean.size)
    if rotation is not None:
        slope, inner = slope @ rotation, rotation.T @ inner @ rotation

    def solved(matrix: FloatArray) -> FloatArray:
        """Compute ``matrix @ L_P^-1``."""
        return np.asarray(linalg.solve_triangular(factor, matrix.T, lower=True, trans="T", check_finite=False)).T

    return solved(slope), -0.5 * solved(solved(inner).T)


def pivoted_gradient(fit: EPFit) -> FloatArray:
    """Compute d log Z / d K, shape (n, n), for scores that are few features of the process."""
    space = fit.problem.scores.reduced
    assert space.pivots is not None
    in_cross, in_pivots = feature_slopes(fit, np.tril(space.design[space.pivots]))
    slope = np.zeros((len(space.design), len(space.design)))
    slope[:, space.pivots] = in_cross
    slope[np.ix_(space.pivots, space.pivots)] += in_pivots
    slope -= slope.mean(axis=0)  # the scores are centred, and so is their kernel
    return slope - slope.mean(axis=1, keepdims=True)
