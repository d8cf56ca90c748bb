"""One safeguarded loop for every fixed point of EP: damped steps, Anderson mixing, and what to do when they fail.

A *sweep* looks at a point and says where the map sends it; what comes of that is the same whether the point is a
Gaussian (:mod:`~pymc_pacauc.ep.gaussian`), the product of pair and prior sites
(:mod:`~pymc_pacauc.ep.sparse.search`) or the prior sites alone (:mod:`~pymc_pacauc.ep.sparse.prior_sites`). Steps are
damped first, then mixed (:mod:`~pymc_pacauc.ep.mixing`). The safeguards, each counted:

* a step that leaves the domain (a precision that is not positive definite) is halved until it does not;
* a change that grows discards the history of the mixing, and damps more;
* a step that loses more than a little of ``bound``, which the fixed point nearly maximises, is taken back and damped
  more, until there is progress again;
* a change that has not halved for too long, or too many halvings, end the loop: it would not get there.

To solve another fixed point, describe it by an :class:`Iteration` (five functions) and a :class:`Policy`.
A KeyboardInterrupt ends the loop, which then returns where it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.ep.mixing import MixingHistory, mixed_step

__all__ = [
    "ConvergenceWarning",
    "Interventions",
    "Iteration",
    "Pace",
    "Policy",
    "Seen",
    "Solution",
    "halved_move",
    "solve_fixed_point",
]

FloatArray = NDArray[np.float64]


class ConvergenceWarning(UserWarning):
    """A fit stopped before its fixed point."""


class Seen(Protocol):
    """What a sweep finds at a point.

    ``change``: how far the map moves the point. ``final``: whether a small change means a fixed point. ``bound``: what
    must not fall by much. ``record``: what is kept of it in the history.
    """

    @property
    def change(self) -> float: ...
    @property
    def final(self) -> bool: ...
    @property
    def bound(self) -> float: ...
    @property
    def record(self) -> dict[str, float]: ...


Point = TypeVar("Point")
Sight = TypeVar("Sight", bound=Seen)


@dataclass(frozen=True)
class Pace:
    """How the loop goes at the moment: the damping, and the number of the last sweep that was not mixed."""

    damping: float
    turn: int


@dataclass(frozen=True)
class Iteration(Generic[Point, Sight]):
    """A fixed-point map.

    Attributes
    ----------
    sweep
        What the map does to a point. (Maps whose own parts are damped look at the pace.)
    plain
        The damped step from a point, flat, given its sweep and the damping (NaN where there is none), and how often it
        had to be halved.
    flat
        A point as a flat vector, in which steps are added up.
    metric
        How steps are weighed at a point with its sweep: a function of steps, which need not keep the point.
    move
        The point that a step leads to from a point with its sweep; None outside of the domain.
    """

    sweep: Callable[[Point, Pace], Sight]
    plain: Callable[[Point, Sight, float], tuple[FloatArray, int]]
    flat: Callable[[Point], FloatArray]
    metric: Callable[[Point, Sight], Callable[[FloatArray], FloatArray]]
    move: Callable[[Point, Sight, FloatArray], Point | None]


@dataclass(frozen=True)
class Policy:
    """The constants of the loop.

    Attributes
    ----------
    damping, least_damping, damping_factor, recovered_damping
        Share of a plain step that is taken at first, at least, by how much it falls where the change grows, and up to
        what it grows again, twofold, while the change falls.
    plain_steps, plain_after_restart
        Sweeps before steps are mixed, at first and after the history was discarded.
    mixed_below
        Change below which steps are mixed.
    memory
        Differences that the mixing remembers.
    growth
        Factor by which the change may grow.
    loss
        How much of the bound a step may lose.
    patience
        Sweeps in which the change must halve.
    halvings, all_halvings
        How often a step is halved at most, and all steps together.
    restarts_when_halved
        Whether a halved step discards the history of the mixing.
    """

    damping: float
    least_damping: float
    damping_factor: float = 0.7
    recovered_damping: float = 0.0
    plain_steps: int = 0
    plain_after_restart: int = 3
    mixed_below: float = math.inf
    memory: int = 6
    growth: float = 1.5
    loss: float = math.inf
    patience: int | None = None
    halvings: int = 40
    all_halvings: float = math.inf
    restarts_when_halved: bool = False


@dataclass(frozen=True)
class Interventions:
    """How often each safeguard acted, in the loop or in what it iterates.

    Attributes
    ----------
    halved_steps, restarts, rejected_steps
        Steps halved to stay in the domain, histories of the mixing discarded, steps taken back.
    narrowest_sites
        Prior sites at a Dirac spike whose variance is held at a smallest number, at the q returned.
    reset_sites, clipped_rescalings
        Prior sites put back into the slab, and changes of scale cut to a largest one, on the way.
    dropped_directions
        Directions of the coefficients that reach no score, to the accuracy of :mod:`pymc_pacauc.core.scores`, and were
        left at their prior.
    """

    halved_steps: int = 0
    restarts: int = 0
    rejected_steps: int = 0
    narrowest_sites: int = 0
    reset_sites: int = 0
    clipped_rescalings: int = 0
    dropped_directions: int = 0

    def __add__(self, other: Interventions) -> Interventions:
        return Interventions(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True, eq=False)
class Solution(Generic[Point, Sight]):
    """Where the loop ended.

    Attributes
    ----------
    point, seen
        The last point that was kept, and what its sweep found: they belong together, converged or not.
    following
        The point that would have been swept next.
    converged, interrupted
        Whether ``point`` is a fixed point to the tolerance; whether the loop was ended from the keyboard.
    history
        The records of all sweeps.
    interventions
        What the loop's own safeguards did.
    """

    point: Point
    seen: Sight
    following: Point
    converged: bool
    interrupted: bool
    history: tuple[dict[str, float], ...]
    interventions: Interventions


def solve_fixed_point(
    iteration: Iteration[Point, Sight],
    start: Point,
    policy: Policy,
    *,
    tolerance: float,
    max_sweeps: int,
    callback: Callable[[dict[str, float]], None] | None = None,
    counted: int = 0,
) -> Solution[Point, Sight]:
    """Iterate from ``start`` until a sweep changes the point by less than ``tolerance``; see the module docstring.

    Records are numbered from ``counted`` on, the sweeps made before.
    """
    point, kept = start, start
    del start  # points may be large
    kept_seen: Sight | None = None
    mixing: MixingHistory | None = None
    weigh: Callable[[FloatArray], FloatArray] | None = None
    damping, plain_until, turn = policy.damping, policy.plain_steps, 0
    history: list[dict[str, float]] = []
    changes: list[float] = []
    halved = restarts = rejected = 0
    converged = interrupted = False
    for count in range(max(max_sweeps, 1)):
        if mixing is None:
            turn = count
        try:
            seen = iteration.sweep(point, Pace(damping, turn))
            history.append({"sweep": counted + count + 1, "change": seen.change, **seen.record})
            if callback is not None:
                callback(history[-1])
        except KeyboardInterrupt:
            interrupted = True
            if len(history) == count:  # during the sweep
                if kept_seen is not None:
                    break
                seen = iteration.sweep(point, Pace(damping, turn))  # something must be known of what is returned
                history.append({"sweep": counted + count + 1, "change": seen.change, **seen.record})
        last_change = changes[-1] if changes else math.inf
        lost = kept_seen is not None and not seen.bound > kept_seen.bound - policy.loss
        if not lost:
            kept, kept_seen = point, seen
            changes.append(seen.change)
        if interrupted:
            break
        if seen.change < tolerance and seen.final:
            kept, kept_seen, converged = point, seen, True
            break
        if lost or not seen.change < policy.growth * last_change:
            mixing = None
            damping = max(policy.damping_factor * damping, policy.least_damping)
            plain_until = max(plain_until, count + policy.plain_after_restart)
            rejected += lost
            restarts += not lost
        if lost:
            assert kept_seen is not None
            point, seen = kept, kept_seen
        elif seen.change < last_change and damping < policy.recovered_damping:
            damping = min(2.0 * damping, policy.recovered_damping)
        if _stalled(changes, policy.patience):
            break
        step, times = iteration.plain(point, seen, damping)
        halved += times
        if not np.isfinite(step).all():
            break
        if count >= plain_until and seen.change < policy.mixed_below:
            if mixing is None or weigh is None:
                mixing, weigh = MixingHistory(), iteration.metric(point, seen)
            step, mixing = mixed_step(mixing, iteration.flat(point), step, weigh(step), policy.memory)
        moved, times = halved_move(partial(iteration.move, point, seen), step, policy.halvings)
        halved += times
        if moved is None or halved > policy.all_halvings:
            break
        if times and policy.restarts_when_halved:
            mixing, plain_until = None, count + policy.plain_after_restart
        point = moved
    assert kept_seen is not None
    acted = Interventions(halved_steps=halved, restarts=restarts, rejected_steps=rejected)
    return Solution(kept, kept_seen, point, converged, interrupted, tuple(history), acted)


def halved_move(move: Callable[[FloatArray], Point | None], step: FloatArray, most: int) -> tuple[Point | None, int]:
    """The point that a step leads to, the step halved until it stays in the domain; and how often it was."""
    for times in range(most):
        moved = move(step)
        if moved is not None:
            return moved, times
        step = 0.5 * step
    return None, most


def _stalled(changes: list[float], patience: int | None) -> bool:
    """Whether the change has not halved for ``patience`` sweeps."""
    if patience is None or len(changes) <= patience:
        return False
    return min(changes[-patience:]) > 0.5 * min(changes[:-patience])
