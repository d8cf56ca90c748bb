"""What tempering SMC moves along: a family of densities between one that can be drawn and the target.

    log pi_t(x) = log_base(x) + t * log_tilt(x),    0 <= t <= end

Tempering from the prior has ``log_tilt = -risk`` and ``t = gamma`` (the paper's path); starting from a Gaussian fit q
has ``log_base = log q``, ``log_tilt = log target - log q`` and ``end = 1`` (:mod:`pymc_pacauc.smc.bridge`). The
engine knows no more than this. The coordinates x are the path's own; ``finish`` maps them to theta.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.core.problem import Problem
from pymc_pacauc.core.risk import LinearRisk
from pymc_pacauc.smc.gaussian_fit import GaussianFit

__all__ = ["Energies", "LinearPath", "ModelPath", "Path", "Population", "WhitenedPath"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Energies:
    """Values of one batch of points, each of shape (N,)."""

    log_base: FloatArray
    log_tilt: FloatArray
    risk: FloatArray

    @property
    def finite(self) -> NDArray[np.bool_]:
        return np.isfinite(self.log_base) & np.isfinite(self.log_tilt)


@dataclass(frozen=True, eq=False)
class Population:
    """Particles ``x[N, D]``, their energies, and the index of the parent each descends from."""

    x: FloatArray
    energies: Energies
    parent: NDArray[np.intp]

    @property
    def size(self) -> int:
        return len(self.x)

    def take(self, index: NDArray[np.intp]) -> Population:
        """The particles at ``index``, each remembering which one it came from."""
        e = self.energies
        return Population(self.x[index], Energies(e.log_base[index], e.log_tilt[index], e.risk[index]), index)

    def replace(self, accepted: NDArray[np.bool_], x: FloatArray, energies: Energies) -> Population:
        """Overwrite the accepted ones."""
        old = self.energies
        return Population(
            np.where(accepted[:, None], x, self.x),
            Energies(
                np.where(accepted, energies.log_base, old.log_base),
                np.where(accepted, energies.log_tilt, old.log_tilt),
                np.where(accepted, energies.risk, old.risk),
            ),
            self.parent,
        )


class Path(Protocol):
    """The contract between targets and the engine."""

    @property
    def dimension(self) -> int:
        """Number of coordinates of x."""

    @property
    def end(self) -> float:
        """The temperature of the target."""

    @property
    def gamma(self) -> float:
        """Gamma of the target."""

    @property
    def from_prior(self) -> bool:
        """True when the temperature is gamma itself, so that every stage is a posterior of its own."""

    @property
    def reference(self) -> GaussianFit | None:
        """A Gaussian that stands for the base in prior-reversible moves; None to fit one to the first particles."""

    def draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Exact draws ``x[size, D]`` from the base."""

    def evaluate(self, x: FloatArray) -> Energies:
        """Energies of ``x[N, D]``, in one vectorised call."""

    def embed(self, x: FloatArray) -> FloatArray:
        """``x[N, D]`` in coordinates in which particles are compared, shape (N, any)."""

    def refresh(self, population: Population, temperature: float, rng: np.random.Generator) -> Population:
        """Resample whatever has a known conditional distribution, once a stage."""

    def finish(self, population: Population, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """theta of each particle, and its risk."""


@dataclass(frozen=True, eq=False)
class LinearPath:
    """What the paths from the prior of a linear-Gaussian problem share: gamma is the temperature, N(0, I) the prior."""

    problem: Problem

    @property
    def dimension(self) -> int:
        return self.problem.d

    @property
    def end(self) -> float:
        return self.problem.gamma

    @property
    def gamma(self) -> float:
        return self.problem.gamma

    @property
    def from_prior(self) -> bool:
        return True

    @property
    def reference(self) -> GaussianFit:
        return GaussianFit(np.zeros(self.dimension), np.ones(self.dimension))

    def embed(self, x: FloatArray) -> FloatArray:
        return x

    @cached_property
    def risk(self) -> LinearRisk:
        return self.problem.whitened_risk


@dataclass(frozen=True, eq=False)
class WhitenedPath(LinearPath):
    """Prior to posterior of a linear-Gaussian problem, in coordinates whose prior is N(0, I)."""

    def draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        return rng.standard_normal((size, self.dimension))

    def evaluate(self, x: FloatArray) -> Energies:
        risk = self.risk(x)
        return Energies(self.reference.logp(x), -risk, risk)

    def refresh(self, population: Population, temperature: float, rng: np.random.Generator) -> Population:
        return population

    def finish(self, population: Population, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        return self.problem.prior.color(population.x), population.energies.risk


@dataclass(frozen=True, eq=False)
class ModelPath:
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

    @property
    def reference(self) -> None:
        return None

    @property
    def end(self) -> float:
        return self.gamma

    @property
    def from_prior(self) -> bool:
        return True

    def draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        return self.prior_draw(size, rng)

    def evaluate(self, x: FloatArray) -> Energies:
        risk = self.risk(x)
        tilt = -risk if self.data_logp is None else self.data_logp(x) / self.gamma
        return Energies(self.prior_logp(x), tilt, risk)

    def embed(self, x: FloatArray) -> FloatArray:
        return x

    def refresh(self, population: Population, temperature: float, rng: np.random.Generator) -> Population:
        return population

    def finish(self, population: Population, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        return population.x, population.energies.risk
