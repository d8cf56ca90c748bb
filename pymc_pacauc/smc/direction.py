"""Linear scores without an offset: only the direction of theta matters.

The risk of ``X @ theta`` ignores the length of theta. In whitened coordinates the prior is N(0, I), so the posterior
factorises exactly: a length with the chi distribution of d degrees of freedom, untouched by the data, times a
direction u on the unit sphere with density proportional to ``exp(-gamma * risk(u))``. A particle is therefore a unit
vector; its length is drawn when theta is asked for. Two more things are exact:

* ``risk(-u) = 1 - risk(u)`` up to pairs that always tie, so the sign of u given its line is a coin with a known bias;
* around a pole e the *gnomonic chart* ``u = +-(e + B w) / |e + B w|`` (B orthonormal, perpendicular to e) turns lines
  into points w of a plane, where the uniform distribution has density proportional to ``(1 + |w|^2)^(-d/2)`` and a
  concentrated posterior is close to Gaussian.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from pymc_pacauc.smc.gaussian_fit import GaussianFit, positive_factor, squares
from pymc_pacauc.smc.paths import Energies, LinearPath, Population

__all__ = ["DirectionPath", "GnomonicChart", "direction_fit", "stratified_radii", "unit"]

FloatArray = NDArray[np.float64]


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
        return self._reflect(np.eye(self.d))[:, 1:]

    def to_plane(self, u: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Chart coordinates w, and the sign that tells u from -u."""
        height = u @ self.pole
        return self._reflect(u)[:, 1:] / height[:, None], np.sign(height)

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
    return chart, GaussianFit(np.zeros(chart.d - 1), positive_factor(across / along))


@dataclass(frozen=True, eq=False)
class DirectionPath(LinearPath):
    """Uniform directions to the posterior of the direction, for a scale-free linear-Gaussian problem.

    ``reference`` is that of the directions given a length, where the prior is N(0, I).
    """

    def __post_init__(self) -> None:
        if not self.problem.scale_free:
            raise ValueError("this problem has an offset or a prior mean that ranks: its risk depends on the radius.")

    @cached_property
    def antipodal_sum(self) -> float:
        """risk(u) + risk(-u), the same for almost every u: 1, less the always-tied pairs when ties cost nothing."""
        u = unit(np.random.default_rng(0).standard_normal((1, self.dimension)))
        return float(self.risk(u)[0] + self.risk(-u)[0])

    def draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        return unit(rng.standard_normal((size, self.dimension)))

    def evaluate(self, x: FloatArray) -> Energies:
        risk = self.risk(x)
        return Energies(np.zeros(len(x)), -risk, risk)

    def refresh(self, population: Population, temperature: float, rng: np.random.Generator) -> Population:
        """Draw the sign of each direction from its exact conditional distribution, for free."""
        opposite = self.antipodal_sum - population.energies.risk
        flip = rng.random(population.size) < special.expit(-temperature * (opposite - population.energies.risk))
        energies = Energies(population.energies.log_base, -opposite, opposite)
        return population.replace(flip, -population.x, energies)

    def finish(self, population: Population, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        radii = stratified_radii(population.size, self.dimension, rng)
        return self.problem.prior.color(population.x * radii[:, None]), population.energies.risk
