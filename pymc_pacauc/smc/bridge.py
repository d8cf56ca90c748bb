"""Start from a Gaussian fit instead of the prior.

A fit q (expectation propagation, Laplace, variational) is close to the target, so the path

    q(x)^(1 - t) * target(x)^t,      0 <= t <= 1

needs one to three stages where tempering from the prior needs dozens, and its evidence is as exact: the fit is only
where particles come from. Because a fit that is too narrow would lose the tails of the target at the first weighting,
particles are drawn from the t distribution around it (:mod:`pymc_pacauc.smc.student`), and a small share of them from
the prior (a *defensive mixture*), which bounds the weights whatever the fit is worth.

For scale-free linear scores the fit is first brought to the direction. A Gaussian cannot hold a chi-distributed
length, so in theta-space even the best q wastes most of its draws; in the gnomonic chart of its mean direction the
length is gone. The chart does not tell u from -u: the target's density of a *line* is the sum over both signs, and
the sign is drawn at the end from its exact conditional distribution, so nothing is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from pymc_pacauc.smc.direction import DirectionPath, GnomonicChart, direction_fit, stratified_radii
from pymc_pacauc.smc.gaussian_fit import GaussianFit, positive_factor, whitened_moments
from pymc_pacauc.smc.paths import Energies, Path, Population, WhitenedPath
from pymc_pacauc.smc.student import StudentFit

__all__ = ["DirectionBridge", "GaussianBridge", "bridge_path"]

FloatArray = NDArray[np.float64]

DEFENSIVE_SHARE = 0.05


def bridge_path(path: Path, mean: ArrayLike, covariance: ArrayLike) -> Path:
    """The path from N(mean, covariance) of theta to the target of ``path`` (a path that starts from the prior)."""
    m, V = np.asarray(mean, dtype=np.float64), np.asarray(covariance, dtype=np.float64)
    d = path.dimension
    if m.shape != (d,) or V.shape != (d, d):
        raise ValueError(f"the fit has shapes {m.shape} and {V.shape}; the target has {d} coefficients.")
    if not (np.isfinite(m).all() and np.isfinite(V).all()):
        raise ValueError("the fit to start from has NaN or infinite values; did it converge?")
    try:
        np.linalg.cholesky(V)
    except np.linalg.LinAlgError:
        raise ValueError("the covariance of the fit to start from is not positive definite.") from None
    if not path.from_prior:
        raise ValueError("start from a fit to a path from the prior, not to one that starts from a fit already.")
    if isinstance(path, DirectionPath | WhitenedPath):
        m, V = whitened_moments(path.problem, m, V)
    if isinstance(path, DirectionPath) and d > 1 and m.any():
        return DirectionBridge(path, *direction_fit(m, V))
    if isinstance(path, DirectionPath):
        path = WhitenedPath(path.problem)
    return GaussianBridge(path, GaussianFit(m, positive_factor(V)))


@dataclass(frozen=True, eq=False)
class GaussianBridge:
    """From a Gaussian fit to the target, in the coordinates of ``path``."""

    path: Path
    fit: GaussianFit

    @property
    def dimension(self) -> int:
        return self.path.dimension

    @property
    def end(self) -> float:
        return 1.0

    @property
    def gamma(self) -> float:
        return self.path.gamma

    @property
    def from_prior(self) -> bool:
        return False

    @property
    def reference(self) -> GaussianFit:
        return self.fit

    @cached_property
    def base(self) -> StudentFit:
        return heavy_tailed(self.fit)

    def embed(self, x: FloatArray) -> FloatArray:
        return x

    def draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        x = self.base.draw(size, rng)
        guard = rng.random(size) < DEFENSIVE_SHARE
        if guard.any():
            x[guard] = self.path.draw(int(guard.sum()), rng)
        return x

    def evaluate(self, x: FloatArray) -> Energies:
        energies = self.path.evaluate(x)
        log_fit = defensive(self.base.logp(x), energies.log_base)
        target = energies.log_base + self.path.end * energies.log_tilt
        return Energies(log_fit, target - log_fit, energies.risk)

    def refresh(self, population: Population, temperature: float, rng: np.random.Generator) -> Population:
        return population

    def finish(self, population: Population, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        return self.path.finish(population, rng)


@dataclass(frozen=True, eq=False)
class DirectionBridge:
    """From a Gaussian fit of the line through theta, in a gnomonic chart, to the posterior of the direction."""

    path: DirectionPath
    chart: GnomonicChart
    fit: GaussianFit

    @property
    def dimension(self) -> int:
        return self.path.dimension - 1

    @property
    def end(self) -> float:
        return 1.0

    @property
    def gamma(self) -> float:
        return self.path.gamma

    @property
    def from_prior(self) -> bool:
        return False

    @property
    def reference(self) -> GaussianFit:
        return self.fit

    @cached_property
    def base(self) -> StudentFit:
        return heavy_tailed(self.fit)

    def embed(self, x: FloatArray) -> FloatArray:
        return self.chart.to_sphere(x)

    @cached_property
    def _both(self) -> float:
        return self.path.antipodal_sum

    def draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        w = self.base.draw(size, rng)
        guard = rng.random(size) < DEFENSIVE_SHARE
        if guard.any():
            w[guard], _ = self.chart.to_plane(self.path.draw(int(guard.sum()), rng))
        return w

    def evaluate(self, x: FloatArray) -> Energies:
        risk = self.path.risk(self.chart.to_sphere(x))
        log_prior = self.chart.log_uniform(x)
        log_fit = defensive(self.base.logp(x), log_prior)
        both_signs = np.logaddexp(-self.gamma * risk, -self.gamma * (self._both - risk)) - np.log(2.0)
        keep = self._positive(risk)
        expected = keep * risk + (1.0 - keep) * (self._both - risk)
        return Energies(log_fit, log_prior + both_signs - log_fit, expected)

    def refresh(self, population: Population, temperature: float, rng: np.random.Generator) -> Population:
        return population

    def finish(self, population: Population, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        u = self.chart.to_sphere(population.x)
        risk = self.path.risk(u)
        flip = rng.random(len(u)) >= self._positive(risk)
        risk = np.where(flip, self._both - risk, risk)
        radii = stratified_radii(len(u), self.path.dimension, rng)
        return self.path.problem.prior.color(np.where(flip, -radii, radii)[:, None] * u), risk

    def _positive(self, risk: FloatArray) -> FloatArray:
        """Probability of +u given the line through u."""
        probability: FloatArray = special.expit(self.gamma * (self._both - 2.0 * risk))
        return probability


def heavy_tailed(fit: GaussianFit) -> StudentFit:
    """Where the particles of a bridge come from: 5 + d degrees of freedom.

    In few dimensions the tails are heavy, at no cost. In many, a fixed number of degrees of freedom would spread the
    length of the standardised coefficients far beyond the fit's and waste most particles; this one keeps half of them.
    """
    return StudentFit(fit, 5.0 + fit.mean.size)


def defensive(log_fit: FloatArray, log_prior: FloatArray) -> FloatArray:
    """log density of the mixture that particles are drawn from."""
    mixture: FloatArray = np.logaddexp(np.log1p(-DEFENSIVE_SHARE) + log_fit, np.log(DEFENSIVE_SHARE) + log_prior)
    return mixture
