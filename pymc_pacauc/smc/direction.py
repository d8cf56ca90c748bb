"""Path of directions, for linear scores without an offset: the risk does not depend on the length of theta.

In whitened coordinates the prior is N(0, I), so the posterior factorises exactly: a length with the chi distribution of
d degrees of freedom, whatever the data, and a direction u on the unit sphere with density proportional to
``exp(-gamma * risk(u))``. A particle is therefore a unit vector, (d,); its length is drawn at the end (``finish``). As
``risk(-u) = 1 - risk(u)``, up to pairs that always tie, the sign of u given its line is drawn exactly.

:func:`~pymc_pacauc.smc.prior_path` returns a :class:`DirectionPath` if the problem is scale-free; its bridge from a fit
is a :class:`DirectionBridge`, in a chart of the sphere (:class:`~pymc_pacauc.smc.coordinates.GnomonicChart`).

Reference: Ridgway, Alquier, Chopin & Liang (2014), arXiv:1410.1771, Algorithm 1, which samples theta itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.smc.coordinates import (
    PARTICLES_PER_DIMENSION,
    Fit,
    GaussianFit,
    GnomonicChart,
    concentrated,
    direction_fit,
    fit_gaussian,
    near_pole,
    standard_fit,
    stratified_radii,
    unit,
)
from pymc_pacauc.smc.paths import Bridge, Energies, LinearPath, Path, Population, WhitenedPath, defensive
from pymc_pacauc.smc.proposals import CrankNicolson, Lifted, Proposal, around


@dataclass(frozen=True, eq=False)
class DirectionPath(LinearPath):
    """Uniform directions to the posterior of the direction, for a scale-free linear-Gaussian problem.

    Directions are moved in space, given a length at random, where the prior is N(0, I); or in a chart.
    """

    def __post_init__(self) -> None:
        if not self.problem.scale_free:
            most = float(np.abs(self.problem.scores.whitened_offset).max())
            raise ValueError(f"problem must have scores without an offset; got up to {most:.3g} at the prior mean.")

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

    @property
    def on_sphere(self) -> bool:
        return True

    def base_move(self, x: FloatArray) -> Proposal:
        return self.lower(CrankNicolson(standard_fit(self.dimension)))

    def gaussian(self, x: FloatArray, weights: FloatArray, rng: np.random.Generator) -> GaussianFit:
        return fit_gaussian(x * np.sqrt(rng.chisquare(self.dimension, size=(len(x), 1))), weights)

    def lower(self, move: Proposal) -> Proposal:
        return Lifted(move)

    def chart_of(self, x: FloatArray, weights: FloatArray) -> GnomonicChart | None:
        return concentrated(x, weights)

    def bridge(self, mean: FloatArray, covariance: FloatArray) -> Path:
        m, V = self.whitened_moments(mean, covariance)
        if self.dimension == 1 or not m.any():  # there is no chart
            return WhitenedPath(self.problem).bridge(mean, covariance)
        chart, fit = direction_fit(m, V)
        return DirectionBridge(self, fit, chart)


@dataclass(frozen=True, eq=False)
class DirectionBridge(Bridge):
    """From a Gaussian fit of the line through theta, in a gnomonic chart, to the posterior of the direction.

    A Gaussian cannot represent a chi-distributed length, so that in theta-space most draws of even the best fit have
    small weights; the chart of its mean direction has no length. A point of the chart is the line through u and -u: the
    target's density is the sum over both signs, and the sign is drawn at the end from its exact conditional
    distribution.
    """

    path: DirectionPath
    fit: GaussianFit
    chart: GnomonicChart

    @property
    def dimension(self) -> int:
        return self.path.dimension - 1

    def prior_draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        return self.chart.to_plane(self.path.draw(size, rng))[0]

    @np.errstate(under="ignore")
    def evaluate(self, x: FloatArray) -> Energies:
        both = self.path.antipodal_sum
        risk = self.path.risk(self.chart.to_sphere(x))
        log_prior = self.chart.log_uniform(x)
        log_fit = defensive(self.base.logp(x), log_prior)
        both_signs = np.logaddexp(-self.gamma * risk, -self.gamma * (both - risk)) - np.log(2.0)
        keep = self._positive(risk)
        expected = keep * risk + (1.0 - keep) * (both - risk)
        return Energies(log_fit, log_prior + both_signs - log_fit, expected)

    def embed(self, x: FloatArray) -> FloatArray:
        """Return directions: chart coordinates far from the pole vary by orders of magnitude for similar directions."""
        return self.chart.to_sphere(x)

    def gaussian(self, x: FloatArray, weights: FloatArray, rng: np.random.Generator) -> GaussianFit:
        """Fit the particles near the pole; return the fit of the start where these are few."""
        near = near_pole(x)
        if near.sum() < PARTICLES_PER_DIMENSION * self.dimension:
            return self.fit
        return fit_gaussian(x[near], weights[near] / weights[near].sum())

    def around(self, fit: Fit) -> Proposal:
        """Return the move around a fit, with the tails of the prior, a Cauchy distribution in a chart."""
        return around(fit, 1.0)

    def finish(self, population: Population, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        u = self.chart.to_sphere(population.x)
        risk = self.path.risk(u)
        flip = rng.random(len(u)) >= self._positive(risk)
        risk = np.where(flip, self.path.antipodal_sum - risk, risk)
        radii = stratified_radii(len(u), self.path.dimension, rng)
        return self.path.problem.prior.color(np.where(flip, -radii, radii)[:, None] * u), risk

    def _positive(self, risk: FloatArray) -> FloatArray:
        """Compute the probability of +u given the line through u."""
        probability: FloatArray = special.expit(self.gamma * (self.path.antipodal_sum - 2.0 * risk))
        return probability
