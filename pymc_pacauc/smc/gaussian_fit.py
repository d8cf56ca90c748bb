"""Gaussians that stand for a target: what moves are built around and what bridges start from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from pymc_pacauc.core.problem import Problem

__all__ = ["GaussianFit", "fit_gaussian", "positive_factor", "squares", "whitened_moments"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class GaussianFit:
    """N(mean, factor @ factor.T), ``factor`` lower triangular or, for a diagonal covariance, a vector."""

    mean: FloatArray
    factor: FloatArray

    def standardise(self, x: FloatArray) -> FloatArray:
        if self.factor.ndim == 1:
            return (x - self.mean) / self.factor
        solved: FloatArray = linalg.solve_triangular(self.factor, (x - self.mean).T, lower=True, check_finite=False).T
        return solved

    def restore(self, z: FloatArray) -> FloatArray:
        return self.mean + (z * self.factor if self.factor.ndim == 1 else z @ self.factor.T)

    @property
    def log_scale(self) -> float:
        """log of the determinant of the factor."""
        return float(np.log(self.factor if self.factor.ndim == 1 else np.diag(self.factor)).sum())

    def logp(self, x: FloatArray) -> FloatArray:
        constant = -self.log_scale - 0.5 * self.mean.size * np.log(2 * np.pi)
        log_density: FloatArray = constant - 0.5 * squares(self.standardise(x))
        return log_density


def squares(x: FloatArray) -> FloatArray:
    """Squared length of each row."""
    lengths: FloatArray = np.einsum("ij,ij->i", x, x)
    return lengths


def fit_gaussian(x: FloatArray, weights: FloatArray) -> GaussianFit:
    """Weighted mean and covariance of the particles."""
    mean = weights @ x
    centred = x - mean
    covariance = (centred * weights[:, None]).T @ centred
    return GaussianFit(mean, positive_factor(covariance))


def positive_factor(covariance: FloatArray) -> FloatArray:
    """Lower Cholesky factor; the smallest multiple of the identity that makes it exist is added."""
    d = len(covariance)
    scale = float(np.trace(covariance)) / d or 1.0
    jitter = 0.0
    while True:
        try:
            return np.asarray(np.linalg.cholesky(covariance + jitter * scale * np.eye(d)), dtype=np.float64)
        except np.linalg.LinAlgError:
            if not np.isfinite(covariance).all():
                raise
            jitter = max(1e-12, 10.0 * jitter)


def whitened_moments(problem: Problem, mean: FloatArray, covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and covariance of theta in the coordinates whose prior is N(0, I)."""
    rows = problem.prior.whiten(np.linalg.cholesky(covariance).T + problem.prior.mean)
    return problem.prior.whiten(mean[None])[0], rows.T @ rows
