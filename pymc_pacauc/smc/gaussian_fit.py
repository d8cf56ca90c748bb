"""Gaussians that stand for a target: what moves are built around and what bridges start from.

Three forms of one thing (:class:`Fit`), by what is known: a covariance (:class:`GaussianFit`), a precision, as
expectation propagation has it (:class:`PrecisionFit`), or either on a few directions and a plain scale on all others
(:class:`ReducedFit`). Users of a fit only standardise points, restore them, and ask for the log of the determinant:

>>> fit = fit_gaussian(np.array([[0.0, 1.0], [1.0, 3.0], [2.0, 2.0]]), np.full(3, 1 / 3))
>>> x = np.array([[0.5, -1.0]])
>>> bool(np.allclose(fit.restore(fit.standardise(x)), x))
True
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

__all__ = [
    "PARTICLES_PER_DIMENSION",
    "Fit",
    "GaussianFit",
    "PrecisionFit",
    "ReducedFit",
    "fit_gaussian",
    "positive_factor",
    "squares",
    "standard_fit",
]

FloatArray = NDArray[np.float64]

PARTICLES_PER_DIMENSION = 10  # fewer, and a covariance fitted to the particles misleads the moves it is fitted for


class Fit(Protocol):
    """A Gaussian N(m, L L') of d variables."""

    @property
    def dimension(self) -> int:
        """d."""

    @property
    def log_scale(self) -> float:
        """log of the determinant of L."""

    @property
    def jitter(self) -> float:
        """What had to be added to the covariance, as a share of its mean variance, to make it positive definite."""

    def standardise(self, x: FloatArray) -> FloatArray:
        """``z[N, d]`` with x = m + L z."""

    def restore(self, z: FloatArray) -> FloatArray:
        """Inverse of :meth:`standardise`."""


@dataclass(frozen=True, eq=False)
class GaussianFit:
    """N(mean, factor @ factor.T), ``factor`` lower triangular or, for a diagonal covariance, a vector."""

    mean: FloatArray
    factor: FloatArray
    jitter: float = 0.0

    @property
    def dimension(self) -> int:
        return self.mean.size

    @property
    def log_scale(self) -> float:
        return float(np.log(self.factor if self.factor.ndim == 1 else np.diag(self.factor)).sum())

    def standardise(self, x: FloatArray) -> FloatArray:
        if self.factor.ndim == 1:
            return (x - self.mean) / self.factor
        solved: FloatArray = linalg.solve_triangular(self.factor, (x - self.mean).T, lower=True, check_finite=False).T
        return solved

    def restore(self, z: FloatArray) -> FloatArray:
        return self.mean + (z * self.factor if self.factor.ndim == 1 else z @ self.factor.T)

    def logp(self, x: FloatArray) -> FloatArray:
        """Normalised log-density of ``x[N, d]``, shape (N,)."""
        constant = -self.log_scale - 0.5 * self.dimension * np.log(2 * np.pi)
        log_density: FloatArray = constant - 0.5 * squares(self.standardise(x))
        return log_density


@dataclass(frozen=True, eq=False)
class PrecisionFit:
    """The Gaussian whose *precision* is factor @ factor.T, ``factor`` lower triangular."""

    mean: FloatArray
    factor: FloatArray
    jitter: float = 0.0

    @property
    def dimension(self) -> int:
        return self.mean.size

    @property
    def log_scale(self) -> float:
        return -float(np.log(np.diag(self.factor)).sum())

    def standardise(self, x: FloatArray) -> FloatArray:
        return (x - self.mean) @ self.factor

    def restore(self, z: FloatArray) -> FloatArray:
        solved = linalg.solve_triangular(self.factor, z.T, lower=True, trans="T", check_finite=False)  # (d, N)
        restored: FloatArray = self.mean + solved.T
        return restored


@dataclass(frozen=True, eq=False)
class ReducedFit:
    """``inner`` for ``rotation @ x``, rotation[k, d] with orthonormal rows; N(0, scale^2) in every other direction."""

    inner: Fit
    rotation: FloatArray
    scale: float

    @property
    def dimension(self) -> int:
        return self.rotation.shape[1]

    @property
    def log_scale(self) -> float:
        return self.inner.log_scale + (self.dimension - self.inner.dimension) * float(np.log(self.scale))

    @property
    def jitter(self) -> float:
        return self.inner.jitter

    def standardise(self, x: FloatArray) -> FloatArray:
        u = x @ self.rotation.T  # (N, k)
        return x / self.scale + (self.inner.standardise(u) - u / self.scale) @ self.rotation

    def restore(self, z: FloatArray) -> FloatArray:
        v = z @ self.rotation.T
        return self.scale * z + (self.inner.restore(v) - self.scale * v) @ self.rotation


def squares(x: FloatArray) -> FloatArray:
    """Squared length of each row."""
    lengths: FloatArray = np.einsum("ij,ij->i", x, x)
    return lengths


def standard_fit(d: int) -> GaussianFit:
    """N(0, I)."""
    return GaussianFit(np.zeros(d), np.ones(d))


def fit_gaussian(x: FloatArray, weights: FloatArray) -> GaussianFit:
    """Weighted mean and covariance of the particles ``x[N, d]``."""
    mean = weights @ x
    centred = x - mean
    covariance = (centred * weights[:, None]).T @ centred
    return GaussianFit(mean, *positive_factor(covariance))


def positive_factor(covariance: FloatArray) -> tuple[FloatArray, float]:
    """Lower Cholesky factor, and the multiple of the mean variance that was added to the diagonal to make it exist.

    The smallest power of ten, times 1e-12, that does is added; 0 where nothing had to be.
    """
    d = len(covariance)
    scale = float(np.trace(covariance)) / d or 1.0
    jitter = 0.0
    while True:
        try:
            return np.asarray(np.linalg.cholesky(covariance + jitter * scale * np.eye(d)), dtype=np.float64), jitter
        except np.linalg.LinAlgError:
            if not np.isfinite(covariance).all():
                raise
            jitter = max(1e-12, 10.0 * jitter)
