"""The unit sphere and its gnomonic charts.

Around a pole e the chart ``u = +-(e + B w) / |e + B w|`` (B orthonormal, perpendicular to e) turns lines through the
origin into points w of a plane of d - 1 dimensions, where the uniform distribution has density proportional to
``(1 + |w|^2)^(-d/2)``, a multivariate Cauchy distribution, and a concentrated posterior is close to Gaussian.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from pymc_pacauc.smc.gaussian_fit import GaussianFit, positive_factor, squares

__all__ = ["GnomonicChart", "concentrated", "direction_fit", "near_pole", "stratified_radii", "unit"]

FloatArray = NDArray[np.float64]

CONCENTRATED = 0.9  # mean resultant length from which the gnomonic chart is better than the ambient space
NEAR = 0.5  # height above the equator from which a direction is near the pole


def unit(x: FloatArray) -> FloatArray:
    """Rows of x scaled to length one."""
    scaled: FloatArray = x / np.sqrt(squares(x))[:, None]
    return scaled


def stratified_radii(size: int, d: int, rng: np.random.Generator) -> FloatArray:
    """Lengths with exactly the chi_d distribution, one in each of ``size`` equiprobable strata, in random order.

    Stratifying keeps every length exact and takes the noise of the lengths out of averages over the particles.
    """
    strata = (rng.permutation(size) + rng.random(size)) / size
    return np.asarray(stats.chi.ppf(strata, d), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class GnomonicChart:
    """The plane tangent to the unit sphere at ``pole``; lines through the origin are its points."""

    pole: FloatArray

    @property
    def d(self) -> int:
        return self.pole.size

    @cached_property
    def _mirror(self) -> FloatArray:
        """The unit normal of the reflection that exchanges the pole with minus or plus the first axis."""
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
        """``rows @ B`` for rows of d numbers, without B."""
        return self._reflect(rows)[:, 1:]

    def to_plane(self, u: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Chart coordinates w, and the sign that tells u from -u."""
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
        """Normalised log-density in the plane of a uniformly distributed line."""
        constant = special.gammaln(self.d / 2) - self.d / 2 * np.log(np.pi)
        log_density: FloatArray = constant - self.d / 2 * np.log1p(squares(w))
        return log_density


def direction_fit(mean: FloatArray, covariance: FloatArray) -> tuple[GnomonicChart, GaussianFit]:
    """The chart at the mean direction of N(mean, covariance) and, by moments, a Gaussian for its coordinates.

    w = B'theta / e'theta has about the covariance B'VB / E[(e'theta)^2], whatever the scale of theta: a Gaussian fit
    that gets the length of theta wrong, as every one does, still gets the direction right.
    """
    chart = GnomonicChart(mean / np.linalg.norm(mean))
    along = float(chart.pole @ covariance @ chart.pole + mean @ mean)
    across = chart.basis.T @ covariance @ chart.basis
    return chart, GaussianFit(np.zeros(chart.d - 1), *positive_factor(across / along))


def near_pole(w: FloatArray) -> NDArray[np.bool_]:
    """Which points of a chart are within 60 degrees of its pole.

    The uniform distribution is a Cauchy distribution in a chart, so that points near the equator have no covariance: a
    Gaussian is fitted to those near the pole.
    """
    return squares(w) < 1.0 / NEAR**2 - 1.0


def concentrated(x: FloatArray, weights: FloatArray) -> GnomonicChart | None:
    """The chart of the mean direction of ``x[N, d]``, where lines through the particles are close enough to it.

    Directions near the equator are far out in the chart, where a Gaussian says nothing: none may be there.
    """
    resultant = weights @ x
    length = float(np.linalg.norm(resultant))
    if x.shape[1] == 1 or length <= CONCENTRATED:
        return None
    far = np.abs(x @ resultant) <= NEAR * length
    return GnomonicChart(resultant / length) if float(weights[far].sum()) <= 1.0 / len(x) else None
