"""The fixed point of parallel EP: damped steps, the exact scale, and safeguarded Anderson mixing.

A sweep maps the natural parameters (Q, r) of q to new ones, the prior's plus the sums of the sites. Plain iteration
oscillates when gamma is of the order of n, and damped iteration crawls, for one reason mostly: when the scores have no
offset, the risk ignores the length of the (whitened) coefficients, so nothing but the prior fixes the scale of q.
That scale is known. At a fixed point Q V = I and Q m = r, and taking traces

    tr V + m'm = k - sum (b (1 + rho^2) - c rho),

where the sum over pairs depends on rho alone, hence not on the scale. So every damped step is followed by the
rescaling of q that makes this hold; the fixed points stay the same. What is left converges fast under Anderson mixing:
the step that would have annulled the residual to first order, judging by the last few steps, its least squares in the
metric of q.

The safeguards, each counted: a step is halved until Q is positive definite; a residual that grows discards the history;
and a step that loses more than a little of the variational bound -gamma E_q[risk] - KL(q, prior), which the sweep
knows and the fixed point nearly maximises, is taken back and damped more, until there is progress again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from pymc_pacauc.ep.mixing import AndersonMixing
from pymc_pacauc.ep.natural import NaturalGaussian, natural_gaussian

__all__ = [
    "Interventions",
    "Solution",
    "Sweep",
    "relative_change",
    "solve_fixed_point",
]

FloatArray = NDArray[np.float64]

DAMPING = 0.7
RECOVERED = 0.3  # to which a smaller damping grows again while the change falls
PLAIN_STEPS = 5  # damped, rescaled steps before mixing starts
MEMORY = 6
GROWTH = 1.5  # a residual that grows by more than this discards the history
LOSS = 1.0  # nats of the bound that a step may lose
SMALLEST_STEP = 2.0**-40


@dataclass(frozen=True, eq=False)
class Sweep:
    """What a sweep returns: new natural parameters, the variational bound at q, and what is recorded of q."""

    precision: FloatArray
    shift: FloatArray
    bound: float
    record: dict[str, float]
    tied: int = 0


@dataclass(frozen=True)
class Interventions:
    """How often each safeguard acted."""

    halved_steps: int = 0
    restarts: int = 0
    rejected_steps: int = 0
    limited_sites: int = 0


@dataclass(frozen=True, eq=False)
class Solution:
    """The last q, its sweep, where the next step leads, whether q is a fixed point, all records, the interventions."""

    q: NaturalGaussian
    last: Sweep
    following: NaturalGaussian
    converged: bool
    history: tuple[dict[str, float], ...]
    interventions: Interventions


def solve_fixed_point(
    sweep: Callable[[NaturalGaussian], Sweep],
    start: NaturalGaussian,
    *,
    scale_free: bool,
    tolerance: float,
    max_sweeps: int,
    callback: Callable[[dict[str, float]], None] | None = None,
) -> Solution:
    """Iterate ``sweep`` from ``start`` until (Q, r) changes by less than ``tolerance``, relatively.

    ``scale_free`` says that sweeps do not depend on the scale of q, which allows the exact rescaling.
    """
    q = kept_q = start
    kept = Sweep(start.precision, start.shift, -np.inf, {})
    mixing = _Mixing()
    history: list[dict[str, float]] = []
    damping, last_change, plain_until = DAMPING, np.inf, PLAIN_STEPS
    halved = restarts = rejected = 0
    converged = False
    for count in range(max_sweeps):
        new = sweep(q)
        change = relative_change(q, new)
        history.append({"sweep": count + 1, "change": change, **new.record})
        if callback is not None:
            callback(history[-1])
        if change < tolerance:
            converged = True
            kept_q, kept = q, new
            break
        lost = not new.bound > kept.bound - LOSS
        if lost or not change < GROWTH * last_change:
            mixing = _Mixing()
            damping = max(0.7 * damping, 0.05)
            plain_until = max(plain_until, count + 2)
            rejected += lost
            restarts += not lost
        if lost:
            q, new = kept_q, kept
        else:
            if change < last_change and damping < RECOVERED:
                damping = min(2.0 * damping, RECOVERED)
            last_change = change
            kept_q, kept = q, new
        damped, times = _step(q, new.precision - q.precision, new.shift - q.shift, damping)
        halved += times
        if scale_free:
            damped = _rescale(damped, _scale_target(q, new))
        if count < plain_until:
            q = damped
        else:
            q, times = _step(q, *mixing.step(q, damped), 1.0)
            halved += times
    return Solution(kept_q, kept, q, converged, tuple(history), Interventions(halved, restarts, rejected))


def relative_change(q: NaturalGaussian, new: Sweep) -> float:
    change = np.hypot(np.linalg.norm(new.precision - q.precision), np.linalg.norm(new.shift - q.shift))
    return float(change / np.hypot(np.linalg.norm(q.precision), np.linalg.norm(q.shift)))


def _step(q: NaturalGaussian, precision: FloatArray, shift: FloatArray, size: float) -> tuple[NaturalGaussian, int]:
    """q moved by ``size`` times a direction, halved until the precision is positive definite; and how often it was."""
    times = 0
    while True:
        moved = natural_gaussian(q.precision + size * precision, q.shift + size * shift)
        if moved is not None:
            return moved, times
        size /= 2.0
        times += 1
        if size < SMALLEST_STEP:
            return q, times


def _scale_target(q: NaturalGaussian, new: Sweep) -> float:
    """The value of tr V + m'm at a fixed point; see the module docstring."""
    low, m = q.lower_covariance, q.mean
    diagonal = np.diagonal(low)
    sum_b = 2.0 * np.vdot(low, new.precision) - diagonal @ np.diagonal(new.precision) - diagonal.sum()
    sum_rest = m @ new.shift - m @ (new.precision @ m) + m @ m  # of c rho - b rho^2
    return float(m.size - sum_b + sum_rest)


def _rescale(q: NaturalGaussian, target: float) -> NaturalGaussian:
    """The Gaussian of c w, w ~ q, with c such that tr V + m'm = target."""
    if target <= 0.0:
        return q
    c = np.sqrt(target / q.second_moment)
    return NaturalGaussian(q.precision / c**2, q.shift / c, q.factor / c, q.mean * c)


class _Mixing:
    """Anderson mixing of natural parameters, residuals weighed as by the q at which it begins."""

    def __init__(self) -> None:
        self.history = AndersonMixing(MEMORY)
        self.factor: FloatArray | None = None

    def step(self, q: NaturalGaussian, mapped: NaturalGaussian) -> tuple[FloatArray, FloatArray]:
        """Direction from q, given the plain step's result."""
        precision, shift = mapped.precision - q.precision, mapped.shift - q.shift
        if self.factor is None:
            self.factor = q.factor
        L, d = self.factor, q.mean.size
        seen = linalg.lapack.dsygst(precision, L.T, itype=1, lower=0)[0]  # the upper triangle of L^-1 P L^-T
        seen[np.diag_indices(d)] /= np.sqrt(2.0)  # the others count twice, so that half the square of the norm is left
        upper = np.triu_indices(d)
        step = self.history.step(
            np.concatenate([q.precision[upper], q.shift]),
            np.concatenate([precision[upper], shift]),
            np.concatenate([seen[upper], linalg.solve_triangular(L, shift, lower=True, check_finite=False)]),
        )
        direction = np.zeros((d, d))
        direction[upper] = step[:-d]
        return direction + np.triu(direction, 1).T, step[-d:]
