"""Gaussian fits around which moves propose and from which bridges start, in space and in charts of the sphere.

A :class:`Fit` standardises points, (N, D), and restores them, in O(N D^2); it has a density, draws, and a move that is
reversible with respect to it:

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

Reference: Crank-Nicolson proposals, Cotter, Roberts, Stuart and White (2013), doi:10.1214/13-STS421.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, special

from pymc_pacauc.numerics import FloatArray

# Fewer, and a covariance fitted to the particles misleads the moves that it is fitted for. Doubled, 100 particles in 8
# dimensions move around the prior instead: twice the time, log Z with 1.1 times the sd (benchmarks/constants.py).
PARTICLES_PER_DIMENSION = 10


def squares(x: FloatArray) -> FloatArray:
    """Compute the squared length of each row."""
    return np.asarray(np.einsum("ij,ij->i", x, x))


def unit(x: FloatArray) -> FloatArray:
    """Scale the rows of x to length one."""
    return np.asarray(x / np.sqrt(squares(x))[:, None])


def stratified_radii(size: int, d: int, rng: np.random.Generator) -> FloatArray:
    """Draw lengths from the chi_d distribution, one in each of ``size`` equiprobable strata, in random order.

    Every length has the exact distribution, and averages over the particles have less noise from the lengths.
    """
    strata = (rng.permutation(size) + rng.random(size)) / size
    return np.asarray(np.sqrt(2.0 * special.gammaincinv(0.5 * d, strata)))  # quantiles of chi_d


@dataclass(frozen=True, eq=False)
class Fit:
    """The Gaussian N(mean, L L'), or with ``degrees`` of freedom the t distribution with the scale matrix L L'.

    Attributes
    ----------
    mean : ndarray
        Shape (d,).
    factor : ndarray
        L, lower triangular, or, for a diagonal covariance, a vector.
    degrees : float
        Degrees of freedom; infinity for a Gaussian.
    jitter : float
        Share of the mean variance that was added to the covariance's diagonal, to make it positive definite.
    """

    mean: FloatArray
    factor: FloatArray
    jitter: float = 0.0
    degrees: float = np.inf

    @property
    def dimension(self) -> int:
        return self.mean.size

    def around(self, degrees: float | None = None) -> Fit:
        """Return a fit of heavier tails, to move around.

        By default the tails are those of a Cauchy distribution up to four dimensions, then of d / 4 degrees of freedom:
        in many dimensions no particle is in the tails of all coordinates, and lighter tails are accepted more often.
        """
        return replace(self, degrees=max(1.0, self.dimension / 4) if degrees is None else degrees)

    def standardise(self, x: FloatArray) -> FloatArray:
        """Compute ``z[N, d]`` with x = m + L z."""
        if self.factor.ndim == 1:
            return (x - self.mean) / self.factor
        return np.asarray(linalg.solve_triangular(self.factor, (x - self.mean).T, lower=True, check_finite=False).T)

    def restore(self, z: FloatArray) -> FloatArray:
        """Compute ``x[N, d]`` = m + L z, the inverse of :meth:`standardise`."""
        return self.mean + (z * self.factor if self.factor.ndim == 1 else z @ self.factor.T)

    def draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Draw independently, shape (size, d)."""
        z = rng.standard_normal((size, self.dimension))
        if np.isfinite(self.degrees):
            z /= np.sqrt(rng.chisquare(self.degrees, size) / self.degrees)[:, None]
        return self.restore(z)

    def logp(self, x: FloatArray) -> FloatArray:
        """Compute the normalised log-density of ``x[N, d]``, shape (N,)."""
        nu, d = self.degrees, self.dimension
        constant = -0.5 * d * np.log(2 * np.pi)
        if np.isfinite(nu):
            constant = special.gammaln((nu + d) / 2) - special.gammaln(nu / 2) - d / 2 * np.log(nu * np.pi)
        log_scale = np.log(self.factor if self.factor.ndim == 1 else np.diag(self.factor)).sum()
        return np.asarray(constant - log_scale + self._log_kernel(squares(self.standardise(x))))

    def _log_kernel(self, squared_length: FloatArray) -> FloatArray:
        """Compute the log-density up to a constant, as a function of |z|^2."""
        if np.isinf(self.degrees):
            return -0.5 * squared_length
        return -0.5 * (self.degrees + self.dimension) * np.log1p(squared_length / self.degrees)

    def __call__(self, x: FloatArray, step: float, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Make a Crank-Nicolson move, reversible with respect to this distribution: z' = sqrt(1 - step^2) z + step xi.

        Of a t distribution xi is divided by the root of the mixing precision, drawn first given z, from Gamma((nu + d)
        / 2) with rate (nu + |z|^2) / 2. A particle in the tails draws a small precision, and so proposes large moves,
        which a Gaussian would reject.
        """
        z = self.standardise(x)  # (N, d)
        far, xi = squares(z), rng.standard_normal(z.shape)
        if np.isfinite(self.degrees):
            precision = rng.standard_gamma(0.5 * (self.degrees + self.dimension), len(z)) / (0.5 * (self.degrees + far))
            xi /= np.sqrt(precision)[:, None]
        proposed = np.sqrt(1.0 - step * step) * z + step * xi
        return self.restore(proposed), self._log_kernel(far) - self._log_kernel(squares(proposed))


def standard_fit(d: int) -> Fit:
    """Return N(0, I) in d dimensions as a fit."""
    return Fit(np.zeros(d), np.ones(d))


def fit_gaussian(x: FloatArray, weights: FloatArray) -> Fit:
    """Fit a Gaussian by the weighted mean and covariance of the particles ``x[N, d]``."""
    mean = weights @ x
    centred = x - mean
    covariance = (centred * weights[:, None]).T @ centred
    return Fit(mean, *positive_factor(covariance))


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


@dataclass(frozen=True, eq=False)
class GnomonicChart:
    """The plane tangent to the unit sphere at ``pole``; lines through the origin are its points."""

    pole: FloatArray

    @cached_property
    def _mirror(self) -> FloatArray:
        """Unit normal of the reflection that exchanges the pole with minus or plus the first axis."""
        normal = self.pole.copy()
        normal[0] += np.copysign(1.0, self.pole[0])
        return normal / np.linalg.norm(normal)

    def _reflect(self, x: FloatArray) -> FloatArray:
        return x - 2.0 * np.outer(x @ self._mirror, self._mirror)

    def across(self, rows: FloatArray) -> FloatArray:
        """Compute ``rows @ B`` for rows of d numbers, without forming B."""
        return self._reflect(rows)[:, 1:]

    def to_plane(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return chart coordinates w of the lines through x, (N, d - 1), and the sign that tells x from -x, (N,)."""
        height = x @ self.pole
        return self.across(x) / height[:, None], np.sign(height)

    def to_sphere(self, w: FloatArray, length: FloatArray | float = 1.0) -> FloatArray:
        """Return the points of the lines w that have a given length, negative below the equator."""
        lifted = np.empty((len(w), self.pole.size))
        lifted[:, 0] = -np.copysign(1.0, self.pole[0])  # the reflection sends this to the pole
        lifted[:, 1:] = w
        return np.asarray(self._reflect(lifted) * (length / np.sqrt(1.0 + squares(w)))[:, None])

    def log_uniform(self, w: FloatArray) -> FloatArray:
        """Compute the normalised log-density, in the plane, of a uniformly distributed line."""
        half = self.pole.size / 2
        return np.asarray(special.gammaln(half) - half * np.log(np.pi) - half * np.log1p(squares(w)))


def direction_fit(mean: FloatArray, covariance: FloatArray) -> tuple[GnomonicChart, Fit]:
    """Return the chart at the mean direction of N(mean, covariance) and, by moments, a Gaussian for its coordinates.

    w = B'theta / e'theta has about the covariance B'VB / E[(e'theta)^2], whatever the scale of theta: a Gaussian fit,
    which cannot have the right length of theta, can still have the right direction.
    """
    chart = GnomonicChart(mean / np.linalg.norm(mean))
    along = float(chart.pole @ covariance @ chart.pole + mean @ mean)
    across = chart.across(chart.across(covariance).T)
    return chart, Fit(np.zeros(mean.size - 1), *positive_factor(across / along))


def near_pole(w: FloatArray) -> NDArray[np.bool_]:
    """Return which points of a chart are within 60 degrees of its pole: |w| < tan(60 degrees)."""
    return squares(w) < 3.0


def fit_near_pole(w: FloatArray, weights: FloatArray) -> Fit:
    """Fit a Gaussian to the points of a chart that are near its pole.

    The uniform distribution is a Cauchy distribution in a chart, so that points near the equator have no covariance.
    """
    near = near_pole(w)
    return fit_gaussian(w[near], weights[near] / weights[near].sum())


def concentrated(u: FloatArray, weights: FloatArray) -> GnomonicChart | None:
    """Return the chart of the mean direction of ``u[N, d]`` if the particles are concentrated around it; else None.

    The chart is better than the space around from a mean resultant length of 0.9 on. Directions near the equator are
    far from the origin of the chart, where a Gaussian does not fit: none may be there.
    """
    resultant = weights @ u
    length = float(np.linalg.norm(resultant))
    if u.shape[1] == 1 or length <= 0.9:
        return None
    chart = GnomonicChart(resultant / length)
    far = ~near_pole(chart.to_plane(u)[0])
    return chart if float(weights[far].sum()) <= 1.0 / len(u) else None
