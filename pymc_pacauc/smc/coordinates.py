"""Gaussian fits around which moves propose and from which bridges start, in space and in charts of the sphere.

Three representations (:class:`Fit`): by the covariance (:class:`GaussianFit`), by the precision, as in expectation
propagation (:class:`PrecisionFit`), or by either in a few directions and one variance in all others
(:class:`ReducedFit`). A fit standardises points, (N, D), and restores them, in O(N D^2), and has a log determinant:

>>> fit = fit_gaussian(np.array([[0.0, 1.0], [1.0, 3.0], [2.0, 2.0]]), np.full(3, 1 / 3))
>>> x = np.array([[0.5, -1.0]])
>>> bool(np.allclose(fit.restore(fit.standardise(x)), x))
True

*Tails.* A Gaussian that is a little too narrow fails in the tails: as a base it gives particles there unbounded
weights, as a proposal it rarely enters or leaves the tails, and correlations of most particles do not show it. The t
distribution around the same mean, density proportional to (1 + |z|^2 / nu)^(-(nu + d) / 2) of z = L^-1 (x - m), costs
little elsewhere. It is a mixture of N(m, L L' / s) over s ~ Gamma(nu / 2, nu / 2), by which it is drawn, and by which a
Crank-Nicolson move is made reversible with respect to it.

*Charts.* Around a pole e of the unit sphere the gnomonic chart ``u = +-(e + B w) / |e + B w|`` (B orthonormal,
perpendicular to e) turns lines through the origin into points w of a plane of d - 1 dimensions, where the uniform
distribution has density proportional to ``(1 + |w|^2)^(-d/2)`` and a concentrated posterior is close to Gaussian.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, special

from pymc_pacauc.numerics import FloatArray

# Mean resultant length from which on the gnomonic chart is better than the space around; and height above the equator,
# a share of the radius, from which on a direction is near the pole: 60 degrees.
CONCENTRATED, NEAR = 0.9, 0.5


def unit(x: FloatArray) -> FloatArray:
    """Rows of x scaled to length one."""
    scaled: FloatArray = x / np.sqrt(squares(x))[:, None]
    return scaled


def stratified_radii(size: int, d: int, rng: np.random.Generator) -> FloatArray:
    """Draw lengths from the chi_d distribution, one in each of ``size`` equiprobable strata, in random order.

    Every length has the exact distribution, and averages over the particles have less noise from the lengths.
    """
    strata = (rng.permutation(size) + rng.random(size)) / size
    radii: FloatArray = np.sqrt(2.0 * special.gammaincinv(0.5 * d, strata))  # quantiles of chi_d
    return radii


@dataclass(frozen=True, eq=False)
class GnomonicChart:
    """The plane tangent to the unit sphere at ``pole``; lines through the origin are its points."""

    pole: FloatArray

    @property
    def d(self) -> int:
        return self.pole.size

    @cached_property
    def _mirror(self) -> FloatArray:
        """Unit normal of the reflection that exchanges the pole with minus or plus the first axis."""
        normal = self.pole.copy()
        normal[0] += np.copysign(1.0, self.pole[0])
        return normal / np.linalg.norm(normal)

    def _reflect(self, x: FloatArray) -> FloatArray:
        return x - 2.0 * np.outer(x @ self._mirror, self._mirror)

    @property
    def basis(self) -> FloatArray:
        """B, shape (d, d - 1)."""
        return self.across(np.eye(self.d))

    def across(self, rows: FloatArray) -> FloatArray:
        """Compute ``rows @ B`` for rows of d numbers, without forming B."""
        return self._reflect(rows)[:, 1:]

    def to_plane(self, u: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return chart coordinates w, (N, d - 1), and the sign that distinguishes u from -u, (N,)."""
        height = u @ self.pole
        return self.across(u) / height[:, None], np.sign(height)

    def to_sphere(self, w: FloatArray, sign: FloatArray | float = 1.0) -> FloatArray:
        """Inverse of :meth:`to_plane`."""
        lifted = np.empty((len(w), self.d))
        lifted[:, 0] = -np.copysign(1.0, self.pole[0])  # the reflection sends this to the pole
        lifted[:, 1:] = w
        length = np.sqrt(1.0 + squares(w))
        sphere: FloatArray = self._reflect(lifted) * (sign / length)[:, None]
        return sphere

    def log_uniform(self, w: FloatArray) -> FloatArray:
        """Compute the normalised log-density, in the plane, of a uniformly distributed line."""
        constant = special.gammaln(self.d / 2) - self.d / 2 * np.log(np.pi)
        log_density: FloatArray = constant - self.d / 2 * np.log1p(squares(w))
        return log_density


def direction_fit(mean: FloatArray, covariance: FloatArray) -> tuple[GnomonicChart, GaussianFit]:
    """Return the chart at the mean direction of N(mean, covariance) and, by moments, a Gaussian for its coordinates.

    w = B'theta / e'theta has about the covariance B'VB / E[(e'theta)^2], whatever the scale of theta: a Gaussian fit,
    which cannot have the right length of theta, can still have the right direction.
    """
    chart = GnomonicChart(mean / np.linalg.norm(mean))
    along = float(chart.pole @ covariance @ chart.pole + mean @ mean)
    across = chart.basis.T @ covariance @ chart.basis
    return chart, GaussianFit(np.zeros(chart.d - 1), *positive_factor(across / along))


def near_pole(w: FloatArray) -> NDArray[np.bool_]:
    """Return which points of a chart are within 60 degrees of its pole.

    The uniform distribution is a Cauchy distribution in a chart, so that points near the equator have no covariance: a
    Gaussian is fitted to those near the pole.
    """
    return squares(w) < 1.0 / NEAR**2 - 1.0


def concentrated(x: FloatArray, weights: FloatArray) -> GnomonicChart | None:
    """Return the chart of the mean direction of ``x[N, d]`` if the particles are concentrated around it; else None.

    Directions near the equator are far from the origin of the chart, where a Gaussian does not fit: none may be there.
    """
    resultant = weights @ x
    length = float(np.linalg.norm(resultant))
    if x.shape[1] == 1 or length <= CONCENTRATED:
        return None
    far = np.abs(x @ resultant) <= NEAR * length
    return GnomonicChart(resultant / length) if float(weights[far].sum()) <= 1.0 / len(x) else None


@dataclass(frozen=True, eq=False)
class StudentFit:
    """The t distribution with ``degrees`` of freedom around a Gaussian, the covariance of which is its scale matrix."""

    centre: Fit
    degrees: float

    @property
    def dimension(self) -> int:
        return self.centre.dimension

    def draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Independent draws, shape (size, d)."""
        z = rng.standard_normal((size, self.dimension))
        precision = rng.chisquare(self.degrees, size) / self.degrees
        return self.centre.restore(z / np.sqrt(precision)[:, None])

    def logp(self, x: FloatArray) -> FloatArray:
        """Normalised log-density of ``x[N, d]``, shape (N,)."""
        nu, d = self.degrees, self.dimension
        constant = special.gammaln((nu + d) / 2) - special.gammaln(nu / 2) - d / 2 * np.log(nu * np.pi)
        kernel = self.log_kernel(squares(self.centre.standardise(x)))
        log_density: FloatArray = constant - self.centre.log_scale + kernel
        return log_density

    def log_kernel(self, squared_length: FloatArray) -> FloatArray:
        """Log-density up to a constant, as a function of |z|^2."""
        return -0.5 * (self.degrees + self.dimension) * np.log1p(squared_length / self.degrees)

    def precision_given(self, squared_length: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Draws of the mixing precision s given |z|^2: Gamma((nu + d) / 2) with rate (nu + |z|^2) / 2."""
        shape = 0.5 * (self.degrees + self.dimension)
        return rng.standard_gamma(shape, squared_length.size) / (0.5 * (self.degrees + squared_length))


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
        """Share of the mean variance that was added to the covariance's diagonal, to make it positive definite."""

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
    """Compute the squared length of each row."""
    lengths: FloatArray = np.einsum("ij,ij->i", x, x)
    return lengths


def standard_fit(d: int) -> GaussianFit:
    """N(0, I)."""
    return GaussianFit(np.zeros(d), np.ones(d))


def fit_gaussian(x: FloatArray, weights: FloatArray) -> GaussianFit:
    """Fit a Gaussian by the weighted mean and covariance of the particles ``x[N, d]``."""
    mean = weights @ x
    centred = x - mean
    covariance = (centred * weights[:, None]).T @ centred
    return GaussianFit(mean, *positive_factor(covariance))


def positive_factor(covariance: FloatArray) -> tuple[FloatArray, float]:
    """Compute the lower Cholesky factor, with a jitter on the diagonal if needed; return it and the jitter.

    The jitter is the smallest power of ten, from 1e-12 on, times the mean variance, for which the factor exists; or 0.
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
