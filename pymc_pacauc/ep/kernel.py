"""Derivatives of EP's log evidence in the scores, and in the kernel that their features approximate.

*Derivative in the design* (:func:`design_gradient`), shape (n, k): one entry for each observation and coefficient. At a
fixed point log Z is stationary in the sites (K_ij, h_ij), so they are held fixed. With P the Laplacian of the K_ij
(s'P s = sum K_ij (s_i - s_j)^2), h_i the sum of the h_ij over the partners of i (negative where i is the lower one), Z
the design, a = Z m + offset the mean scores and m, V the moments of q,

    d log Z / d Z = (h - P a) m' - P Z V.

Any parameter that changes the scores, such as the lengthscale of kernel features, follows by the chain rule. The cost
is that of one sweep, O(n+ n- k), or less over sampled pairs. The same holds for the bound of variational Bayes.

*Derivative in a kernel* (:func:`feature_slopes`). Where the scores are few features of a Gaussian process, s = F u with
F = K_nP L_P^-T, P the pivots, K the kernel matrix and L_P L_P' = K_PP, then exactly for the evidence of these features,
with H = d log Z / d F,

    d log Z = sum(H L_P^-1 * dK_nP) - sum(L_P^-T (cov(u) + E[u] E[u]' - I) L_P^-1 * dK_PP) / 2.

Used by ``choose_lengthscale``. For a parameter of other features, multiply H by the derivative of the features.

References: Ridgway, Alquier, Chopin & Liang (2014), arXiv:1410.1771, section 4; Rasmussen & Williams (2006),
http://gaussianprocess.org/gpml, section 5.5; Seeger (2005), EPFL-REPORT-161464.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg

from pymc_pacauc.ep.gaussian import EPFit
from pymc_pacauc.ep.sweep import cut_work, listed_sites, score_moments, sum_by_row
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
