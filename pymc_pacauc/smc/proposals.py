"""Proposals of Metropolis moves: a new point for every particle, and the log correction of the acceptance ratio.

A proposal does not depend on the target. It maps ``x[N, D]`` to ``x'[N, D]`` and the log correction
``log K(x', x) - log K(x, x')``, K its transition density in the coordinates of the path; the move is accepted with
probability
``min(1, pi(x') / pi(x) * exp(correction))``. Use: ``proposed, correction = proposal(x, step, rng)`` with ``step`` in
(0, 1], the size of the move.

To add a proposal, write a frozen dataclass with ``__call__``, ``keeps_sign`` and ``jitter``, say in its docstring what
it is reversible with respect to (the correction is minus the log of that density's ratio), and enter it in
``tests/smc/test_proposals.py``, which checks by Monte Carlo that it leaves a known density invariant.

References: Crank-Nicolson proposals, Cotter, Roberts, Stuart and White (2013), doi:10.1214/13-STS421; the random walk
is that of Ridgway, Alquier, Chopin and Liang (2014), arXiv:1410.1771, appendix Algorithm 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.smc.coordinates import Fit, GaussianFit, GnomonicChart, StudentFit, squares, unit


class Proposal(Protocol):
    """``x -> (x', log correction)`` for a whole population; ``step`` in (0, 1] is the size of the move."""

    @property
    def keeps_sign(self) -> bool:
        """True when x' is on the side of the origin that x is on, so that the path should refresh signs itself."""

    @property
    def jitter(self) -> float:
        """That of the fit, see :class:`~pymc_pacauc.smc.coordinates.Fit`."""

    def __call__(self, x: FloatArray, step: float, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]: ...


@dataclass(frozen=True, eq=False)
class RandomWalk:
    """x' = x + step * sqrt(kappa) L xi, kappa = 2.38^2 / d: symmetric."""

    fit: GaussianFit
    keeps_sign = False

    @property
    def jitter(self) -> float:
        return self.fit.jitter

    def __call__(self, x: FloatArray, step: float, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        noise = self.fit.restore(rng.standard_normal(x.shape)) - self.fit.mean  # (N, d)
        return x + step * 2.38 / np.sqrt(x.shape[1]) * noise, np.zeros(len(x))


@dataclass(frozen=True, eq=False)
class CrankNicolson:
    """Reversible with respect to ``fit``: z' = sqrt(1 - step^2) z + step xi in its standardised coordinates."""

    fit: Fit
    keeps_sign = False

    @property
    def jitter(self) -> float:
        return self.fit.jitter

    def __call__(self, x: FloatArray, step: float, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        z = self.fit.standardise(x)  # (N, d)
        proposed = np.sqrt(1.0 - step * step) * z + step * rng.standard_normal(z.shape)
        return self.fit.restore(proposed), 0.5 * (squares(proposed) - squares(z))


@dataclass(frozen=True, eq=False)
class StudentCrankNicolson:
    """Reversible with respect to a t distribution: Crank-Nicolson given the mixing precision, which is drawn first.

    A particle in the tails draws a small precision, and so proposes large moves, which a Gaussian would reject.
    """

    fit: StudentFit
    keeps_sign = False

    @property
    def jitter(self) -> float:
        return self.fit.centre.jitter

    def __call__(self, x: FloatArray, step: float, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        z = self.fit.centre.standardise(x)  # (N, d)
        far = squares(z)  # (N,)
        spread = step / np.sqrt(self.fit.precision_given(far, rng))  # (N,)
        proposed = np.sqrt(1.0 - step * step) * z + spread[:, None] * rng.standard_normal(z.shape)
        return self.fit.centre.restore(proposed), self.fit.log_kernel(far) - self.fit.log_kernel(squares(proposed))


def around(fit: Fit, degrees: float | None = None) -> StudentCrankNicolson:
    """Return the move around a Gaussian fit, with heavier tails than the fit.

    By default those of a Cauchy distribution up to four dimensions, then d / 4 degrees of freedom: in many dimensions
    no particle is in the tails of all coordinates, and lighter tails accept more.
    """
    return StudentCrankNicolson(StudentFit(fit, max(1.0, fit.dimension / 4) if degrees is None else degrees))


@dataclass(frozen=True, eq=False)
class Lifted:
    """A move of the whole space as a move of directions: draw the length, move, discard the length.

    Drawing the length from its conditional distribution (chi) and discarding it are exact; in between the density in
    space is N(0, I) times the tilt, hence the correction.
    """

    move: Proposal
    keeps_sign = False

    @property
    def jitter(self) -> float:
        return self.move.jitter

    def __call__(self, x: FloatArray, step: float, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        lifted = x * np.sqrt(rng.chisquare(x.shape[1], size=(len(x), 1)))  # (N, d)
        proposed, correction = self.move(lifted, step, rng)
        return unit(proposed), correction - 0.5 * (squares(proposed) - squares(lifted))


@dataclass(frozen=True, eq=False)
class InChart:
    """A move in the gnomonic plane, which keeps the hemisphere; the path draws signs exactly."""

    chart: GnomonicChart
    move: Proposal
    keeps_sign = True

    @property
    def jitter(self) -> float:
        return self.move.jitter

    def __call__(self, x: FloatArray, step: float, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        w, sign = self.chart.to_plane(x)  # (N, d - 1), (N,)
        proposed, correction = self.move(w, step, rng)
        correction = correction + self.chart.log_uniform(proposed) - self.chart.log_uniform(w)
        return self.chart.to_sphere(proposed, sign), correction
