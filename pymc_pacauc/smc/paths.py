"""What tempering SMC moves along: a family of densities between one that can be drawn and the target.

    log pi_t(x) = log_base(x) + t * log_tilt(x),    0 <= t <= end

Tempering from the prior has ``log_tilt = -risk`` and ``t = gamma`` (Ridgway, Alquier, Chopin and Liang, 2014,
arXiv:1410.1771); starting from a Gaussian fit q has ``log_base = log q``, ``log_tilt = log target - log q`` and
``end = 1`` (:mod:`pymc_pacauc.smc.bridge`). The engine knows no more than this. The coordinates x are the path's own;
``finish`` maps them to theta. Use: ``prior_path(problem)`` or a :class:`~pymc_pacauc.smc.prior_paths.ModelPath`, then
``run_tempering(path, settings, rng)``.

To add a path from a prior, subclass :class:`~pymc_pacauc.smc.prior_paths.FromPrior` and give it ``dimension``,
``gamma``, ``draw`` and ``evaluate``; everything else has a default that suits coordinates that are theta itself. What
a path can do beyond that it says by what it offers, not by its type: ``ep_problem`` for moves around EP's fit,
``gaussian``, ``lower``, ``around`` and ``chart_of`` for moves in other coordinates than x. Then enter it in
``tests/smc/test_contract.py``, whose tests every path passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.core.problem import Problem
from pymc_pacauc.smc.chart import GnomonicChart
from pymc_pacauc.smc.gaussian_fit import Fit, GaussianFit, fit_gaussian
from pymc_pacauc.smc.proposals import Proposal, around

__all__ = ["Energies", "Path", "PathDefaults", "Population"]

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
        """Number D of coordinates of x."""

    @property
    def coefficients(self) -> int:
        """Number d of coefficients theta."""

    @property
    def end(self) -> float:
        """The temperature of the target."""

    @property
    def gamma(self) -> float:
        """Gamma of the target."""

    @property
    def from_prior(self) -> bool:
        """True when the temperature is gamma itself, so that every stage is a posterior of its own."""

    def draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Exact draws ``x[size, D]`` from the base."""

    def evaluate(self, x: FloatArray) -> Energies:
        """Energies of ``x[N, D]``, in one vectorised call."""

    def refresh(self, population: Population, temperature: float, rng: np.random.Generator) -> Population:
        """Resample whatever has a known conditional distribution, once a stage."""

    def finish(self, population: Population, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """theta of each particle, shape (N, d), and its risk, shape (N,)."""

    def log_density(self, theta: FloatArray, risk: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The target's log-density at ``theta[N, d]`` of the given risks, and its derivative in gamma, shapes (N,)."""

    def bridge(self, mean: FloatArray, covariance: FloatArray) -> Path:
        """The path from N(mean, covariance) of theta to the same target; see :mod:`pymc_pacauc.smc.bridge`."""

    # What moves ask for.

    @property
    def ep_problem(self) -> Problem | None:
        """The problem whose posterior at gamma = t is the stage at temperature t, in whitened coordinates, or None."""

    @property
    def on_sphere(self) -> bool:
        """True when x are directions, so that moves may take place in a chart."""

    def embed(self, x: FloatArray) -> FloatArray:
        """``x[N, D]`` in coordinates in which particles are compared, shape (N, any)."""

    def base_move(self, x: FloatArray) -> Proposal:
        """The proposal around the base, given draws ``x[N, D]`` from it."""

    def gaussian(self, x: FloatArray, weights: FloatArray, rng: np.random.Generator) -> GaussianFit:
        """A Gaussian fit of weighted particles, in the space in which they are moved."""

    def lower(self, move: Proposal) -> Proposal:
        """A move of that space as a move of x."""

    def around(self, fit: Fit) -> Proposal:
        """The heavy-tailed move around a Gaussian of that space, as a move of x."""

    def chart_of(self, x: FloatArray, weights: FloatArray) -> GnomonicChart | None:
        """The chart in which weighted directions are better moved than in space; None where there is none."""


class PathDefaults:
    """Coordinates that are theta itself, and moved as they are."""

    @property
    def coefficients(self: Path) -> int:
        return self.dimension

    @property
    def ep_problem(self) -> Problem | None:
        return None

    @property
    def on_sphere(self) -> bool:
        return False

    def embed(self, x: FloatArray) -> FloatArray:
        return x

    def refresh(self, population: Population, temperature: float, rng: np.random.Generator) -> Population:
        return population

    def finish(self, population: Population, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        return population.x, population.energies.risk

    def base_move(self, x: FloatArray) -> Proposal:
        return self.around(GaussianFit(x.mean(axis=0), x.std(axis=0)))

    def gaussian(self, x: FloatArray, weights: FloatArray, rng: np.random.Generator) -> GaussianFit:
        return fit_gaussian(x, weights)

    def lower(self, move: Proposal) -> Proposal:
        return move

    def around(self, fit: Fit) -> Proposal:
        return self.lower(around(fit))

    def chart_of(self, x: FloatArray, weights: FloatArray) -> GnomonicChart | None:
        return None
