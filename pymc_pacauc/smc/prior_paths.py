"""Paths that start from the prior: the temperature is gamma, and every stage is a posterior of its own.

:class:`WhitenedPath` is for scores that are affine in Gaussian variables, :class:`ModelPath` for any target given by
functions. A Laplace prior, say:

>>> from scipy import stats
>>> from pymc_pacauc.core.risk import linear_risk
>>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 1, 0, 1])
>>> path = ModelPath(
...     prior_logp=lambda theta: stats.laplace.logpdf(theta).sum(axis=1),
...     risk=lambda theta: linear_risk(theta, X, y),
...     prior_draw=lambda size, rng: rng.laplace(size=(size, 1)),
...     gamma=4.0,
...     dimension=1,
... )
>>> path.evaluate(np.array([[1.0], [-1.0]])).risk
array([0.25, 0.75])

To add one, subclass :class:`FromPrior`; :mod:`pymc_pacauc.smc.paths` says what to give it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.core.problem import Problem
from pymc_pacauc.core.risk import LinearRisk
from pymc_pacauc.smc.bridge import GaussianBridge
from pymc_pacauc.smc.gaussian_fit import GaussianFit, positive_factor, standard_fit
from pymc_pacauc.smc.paths import Energies, Path, PathDefaults, Population
from pymc_pacauc.smc.proposals import CrankNicolson, Proposal

__all__ = ["FromPrior", "LinearPath", "ModelPath", "WhitenedPath"]

FloatArray = NDArray[np.float64]


class FromPrior(PathDefaults):
    """Defaults of a path whose base is the prior and whose temperature is gamma."""

    @property
    def from_prior(self) -> bool:
        return True

    @property
    def end(self: Path) -> float:
        return self.gamma

    def log_density(self: Path, theta: FloatArray, risk: FloatArray) -> tuple[FloatArray, FloatArray]:
        energies = self.evaluate(theta)
        return energies.log_base + self.end * energies.log_tilt, energies.log_tilt

    def bridge(self: Path, mean: FloatArray, covariance: FloatArray) -> Path:
        return GaussianBridge(self, GaussianFit(mean, *positive_factor(covariance)))


@dataclass(frozen=True, eq=False)
class LinearPath(FromPrior):
    """What paths of a linear-Gaussian problem share."""

    problem: Problem

    @property
    def dimension(self) -> int:
        return self.problem.d

    @property
    def gamma(self) -> float:
        return self.problem.gamma

    @property
    def ep_problem(self) -> Problem | None:
        return self.problem

    @cached_property
    def risk(self) -> LinearRisk:
        """The risk as a function of whitened coefficients."""
        return self.problem.whitened_risk

    def log_density(self, theta: FloatArray, risk: FloatArray) -> tuple[FloatArray, FloatArray]:
        prior = self.problem.prior
        log_prior = standard_fit(self.dimension).logp(prior.whiten(theta)) - prior.log_volume
        return log_prior - self.gamma * risk, -risk

    def whitened_moments(self, mean: FloatArray, covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and covariance of theta in the coordinates whose prior is N(0, I)."""
        centre = self.problem.prior.whiten(mean[None])  # (1, d)
        rows = (
            self.problem.prior.whiten(mean + np.linalg.cholesky(covariance).T) - centre
        )  # (d, d): whitening is affine
        return centre[0], rows.T @ rows


@dataclass(frozen=True, eq=False)
class WhitenedPath(LinearPath):
    """Prior to posterior of a linear-Gaussian problem, in coordinates whose prior is N(0, I)."""

    def draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        return rng.standard_normal((size, self.dimension))

    def evaluate(self, x: FloatArray) -> Energies:
        risk = self.risk(x)
        return Energies(standard_fit(self.dimension).logp(x), -risk, risk)

    def finish(self, population: Population, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        return self.problem.prior.color(population.x), population.energies.risk

    def base_move(self, x: FloatArray) -> Proposal:
        return CrankNicolson(standard_fit(self.dimension))

    def bridge(self, mean: FloatArray, covariance: FloatArray) -> Path:
        m, V = self.whitened_moments(mean, covariance)
        return GaussianBridge(self, GaussianFit(m, *positive_factor(V)))


@dataclass(frozen=True, eq=False)
class ModelPath(FromPrior):
    """Prior to posterior of any target given by functions of ``theta[N, D]``.

    Attributes
    ----------
    prior_logp
        Normalised log prior density, shape (N,).
    risk
        The risk, shape (N,).
    prior_draw
        ``(size, rng) -> theta[size, D]``.
    gamma
        Inverse temperature of the target.
    data_logp
        What is tempered, at full strength, where it is more than ``-gamma * risk`` (other likelihoods, potentials).
    """

    prior_logp: Callable[[FloatArray], FloatArray]
    risk: Callable[[FloatArray], FloatArray]
    prior_draw: Callable[[int, np.random.Generator], FloatArray]
    gamma: float
    dimension: int
    data_logp: Callable[[FloatArray], FloatArray] | None = None

    def draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        return self.prior_draw(size, rng)

    def evaluate(self, x: FloatArray) -> Energies:
        risk = self.risk(x)
        tilt = -risk if self.data_logp is None else self.data_logp(x) / self.gamma
        return Energies(self.prior_logp(x), tilt, risk)
