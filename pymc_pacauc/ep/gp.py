"""Gaussian-process scores: new points, and the evidence's derivative in the kernel matrix (the paper's section 4).

A GP prior over the n training scores is the linear problem with the kernel matrix K = L L' as prior covariance; EP
works in the whitened scores w = L^-1 s, and K is never inverted. At a new point s* given s is the GP's conditional, so
with c = L^-1 k*, k* the kernel between training points and x*,

    E s* = c' E[w],     var s* = k** - c'c + c' cov(w) c,

and for any parameter of the kernel, at EP's fixed point, d log Z = sum(G * dK) with

    G = L^-T (cov(w) + E[w] E[w]' - I) L^-1 / 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

__all__ = ["WhitenedScores", "kernel_gradient", "predict_scores_at", "whiten_scores"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class WhitenedScores:
    """``factor`` is L; ``mean`` and ``covariance`` are those of w = L^-1 (s - prior mean) under the approximation."""

    factor: FloatArray
    mean: FloatArray
    covariance: FloatArray


def whiten_scores(kernel: FloatArray, mean: FloatArray, covariance_root: FloatArray) -> WhitenedScores:
    """Whiten scores with ``mean`` (the prior's taken off) and covariance ``covariance_root @ covariance_root.T``."""
    factor = np.asarray(np.linalg.cholesky(kernel), dtype=np.float64)
    root = linalg.solve_triangular(factor, covariance_root, lower=True, check_finite=False)
    return WhitenedScores(factor, linalg.solve_triangular(factor, mean, lower=True, check_finite=False), root @ root.T)


def predict_scores_at(scores: WhitenedScores, cross: FloatArray, new: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and covariance of the scores at m new points.

    ``cross`` is the kernel between training and new points, (n, m); ``new`` that among new points, (m, m), or its
    diagonal (m,), for which variances are returned in place of the covariance.
    """
    c = linalg.solve_triangular(scores.factor, cross, lower=True, check_finite=False)
    mean = c.T @ scores.mean
    if new.ndim == 1:
        return mean, new - np.einsum("ij,ij->j", c, c) + np.einsum("ij,ij->j", c, scores.covariance @ c)
    return mean, new + c.T @ (scores.covariance - np.eye(len(c))) @ c


def kernel_gradient(scores: WhitenedScores) -> FloatArray:
    """G, the derivative of EP's log evidence in the kernel matrix; see the module docstring."""
    inner = 0.5 * (scores.covariance + np.outer(scores.mean, scores.mean) - np.eye(len(scores.mean)))
    left = linalg.solve_triangular(scores.factor, inner, lower=True, trans="T", check_finite=False)
    return np.asarray(linalg.solve_triangular(scores.factor, left.T, lower=True, trans="T", check_finite=False))
