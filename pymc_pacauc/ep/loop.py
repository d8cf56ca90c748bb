"""The fixed-point iteration of EP: damped sweeps first, then Anderson mixing, with safeguards.

A *sweep* maps a point x to another: the natural parameters (Q, r), shapes (k, k) and (k,), of q to the prior's plus the
sums of the sites at q (:func:`gaussian_iteration`); pair and prior sites together or the prior sites alone
(:mod:`~pymc_pacauc.ep.prior_sites`). The residual f(x) is what a damped sweep adds to x. A step costs a sweep and
O(k^3). All plans are solved by :func:`solve_fixed_point`.

*Mixing.* From the last points g = x + f and their residuals f, in the norm given by a metric, the step is
f - sum_j c_j (change of g)_j with c the least-squares solution of (changes of f) c = f ("type II" of Walker & Ni 2011).
The metric is that of q: a step (P, h) has the squared norm tr (V P)^2 / 2 + h'V h, with the diagonal of V for V.

*Scale.* Where scores have no offset the risk does not depend on the length of the coefficients, and damped iteration
converges slowly along it. But at a fixed point tr V + m'm = k - sum (b (1 + rho^2) - c rho), a sum over pairs of
functions of rho alone, which do not depend on the scale of q. So every damped step is followed by the rescaling of q
for which this equation holds.

*Safeguards*, each counted in :class:`Interventions`: a step to natural parameters that are no density is halved; a
change that grows discards the mixing history and reduces the damping factor; a step that lowers the variational bound
-gamma E_q[risk] - KL(q, prior) by more than one nat is taken back (the fixed point nearly maximises it); a change that
has not halved for ``patience`` sweeps ends the loop. A SIGINT ends it too, in fits that may return early.

To solve another fixed point, describe it by an :class:`Iteration` (five functions) and a :class:`Policy`.

Reference: Walker & Ni (2011), Anderson acceleration for fixed-point iterations, doi:10.1137/10078356X.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
from scipy import linalg

from pymc_pacauc.ep.posterior import Moments, NaturalGaussian, natural_gaussian
from pymc_pacauc.ep.sweep import SiteSums
from pymc_pacauc.interrupt import interrupt_requested
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.problem import Problem


@dataclass(frozen=True, eq=False)
class MixingHistory:
    """The last point g = x + f and its weighed residual; differences of such points and residuals, oldest first."""

    last: tuple[FloatArray, FloatArray] | None = None
    moves: tuple[FloatArray, ...] = ()
    changes: tuple[FloatArray, ...] = ()


def mixed_step(
    history: MixingHistory, point: FloatArray, plain: FloatArray, weighed: FloatArray, memory: int
) -> tuple[FloatArray, MixingHistory]:
    """Compute the accelerated step from ``point`` and the new history, of at most ``memory`` differences.

    ``plain`` is the damped step f, ``weighed`` the same in the metric of the least squares.
    """
    reached = point + plain
    if history.last is None:
        return plain, MixingHistory((reached, weighed))
    moves = (*history.moves, reached - history.last[0])[-memory:]
    changes = (*history.changes, weighed - history.last[1])[-memory:]
    # Smallest singular value, relative: with 1e-4 some spike-and-slab fits do not converge
    mix = linalg.lstsq(np.array(changes).T, weighed, cond=1e-8, overwrite_a=True, check_finite=False)[0]
    step = plain.copy()
    for share, move in zip(mix, moves, strict=True):
        step = linalg.blas.daxpy(move, step, a=-share)  # in place
    return step, MixingHistory((reached, weighed), moves, changes)


ROUNDING = 1e-6  # nats by which a log evidence may exceed zero; doubled or halved, no effect


def possible(log_evidence: float) -> float:
    """Return the log evidence, or NaN if it exceeds zero: a mean of exp(-gamma risk) is at most 1."""
    return log_evidence if log_evidence <= ROUNDING else np.nan


class UnsupportedError(ValueError):
    """Raised where a method or quantity does not exist for a kind of prior; the message names what to use instead.

    See Also
    --------
    NotLinearGaussianError : The model's scores are not affine in Gaussian variables.

    Examples
    --------
    >>> import pymc_pacauc as pac
    >>> problem = pac.arrays.spike_slab_problem([[0.0], [1.0]], [0, 1], 2.0, inclusion_probability=0.5, v0=0.0)
    >>> try:
    ...     pac.arrays.fit(problem, method="vb")
    ... except pac.results.UnsupportedError:
    ...     print("variational Bayes is for Gaussian priors")
    variational Bayes is for Gaussian priors
    """


class ConvergenceWarning(UserWarning):
    """Warning that a fit stopped before its fixed point, or rests on too few pairs for what was asked of it.

    See Also
    --------
    pymc_pacauc.EP : Has ``max_sweeps``, ``tolerance`` and ``pairs``.

    Examples
    --------
    >>> import warnings
    >>> from pymc_pacauc import arrays, results
    >>> problem = arrays.linear_gaussian_problem([[0.0], [1.0], [3.0]], [0, 1, 1], gamma=2.0)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", results.ConvergenceWarning)  # stop instead of warning
    ...     arrays.fit(problem, max_sweeps=1)
    Traceback (most recent call last):
        ...
    pymc_pacauc.ep.loop.ConvergenceWarning: EP did not converge in 1 sweeps...
    """


Point = TypeVar("Point")
Sight = TypeVar("Sight", bound=Any)  # the result of a sweep at a point


@dataclass(frozen=True)
class Pace:
    """Present state of the loop: the damping factor, and the number of the last sweep without mixing."""

    damping: float
    turn: int


@dataclass(frozen=True)
class Iteration(Generic[Point, Sight]):
    """A fixed-point map.

    Attributes
    ----------
    sweep : callable
        Applies the map to a point. (Maps that damp their own parts use the :class:`Pace`.) The result has ``change``,
        how far the map moves the point; ``final``, whether a small change means a fixed point; ``bound``, which must
        not fall by more than ``Policy.loss``; and ``record``, entries of the history.
    plain : callable
        Returns the damped step from a point as a flat vector, given its sweep and the damping factor (NaN where there
        is none), and how often it was halved.
    flat : callable
        Returns a point as a flat vector, in the coordinates of steps.
    metric : callable
        Returns a function of steps whose Euclidean norm is that of the least squares, at a point with its sweep.
    move : callable
        Returns the point that a step leads to; None outside of the domain.
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
    damping : float
        Fraction of a plain step that is taken at first (1: no damping).
    least_damping : float
        Smallest such fraction.
    damping_factor : float
        Factor of the fraction each time the change grows.
    recovered_damping : float
        Value up to which the fraction is doubled again, each time the change falls.
    plain_steps, plain_after_restart : int
        Number of sweeps before steps are mixed: at first, and after the history was discarded.
    mixed_below : float
        Change below which steps are mixed.
    memory : int
        Number of differences that the mixing uses.
    growth : float
        Factor by which the change may grow from one sweep to the next.
    loss : float
        Largest fall of the bound in one step, nats.
    patience : int or None
        Number of sweeps within which the change must halve.
    halvings, all_halvings : int, float
        How often a step may be halved, and all steps together.
    restarts_when_halved : bool
        Whether a halved step discards the mixing history.
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
    """How often each safeguard acted.

    Attributes
    ----------
    halved_steps, restarts, rejected_steps : int
        Steps halved to stay in the domain, mixing histories discarded, steps taken back.
    narrowest_sites : int
        Prior sites at a Dirac spike whose variance is at its lower limit, at the q returned.
    reset_sites, clipped_rescalings : int
        Prior sites put back to the slab, and changes of scale limited, during the iteration.
    dropped_directions : int
        Directions of the coefficients that reach no score, to the accuracy of :mod:`pymc_pacauc.problem.scores`; they
        keep their prior.
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
    """Result of the loop.

    Attributes
    ----------
    point, seen : Point, Sight
        The last point that was kept, and the sweep at this very point, converged or not.
    following : Point
        The point that would have been swept next.
    converged, interrupted : bool
        Whether ``point`` is a fixed point to the tolerance; whether the loop was ended from the keyboard.
    history : tuple of dict
        The records of all sweeps.
    interventions : Interventions
        How often the loop's own safeguards acted.
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

    ``counted`` is the number of sweeps made before, from which records are numbered on.
    """
    state: _State[Point, Sight] = _State(start, policy)
    del start  # points may be large: let this one be freed
    history: list[dict[str, float]] = []
    converged = False
    for count in range(max(max_sweeps, 1)):
        seen = state.look(iteration, count)
        history.append({"sweep": counted + count + 1, "change": seen.change, **seen.record})
        if callback is not None:
            callback(history[-1])
        lost = state.keep(seen)
        if interrupt_requested():
            break
        if seen.change < tolerance and seen.final:
            state.kept, state.kept_seen, converged = state.point, seen, True
            break
        seen = state.judge(seen, lost, count)
        if _stalled(state.changes, policy.patience) or not state.step(iteration, seen, count):
            break
    assert state.kept_seen is not None
    acted = Interventions(halved_steps=state.halved, restarts=state.restarts, rejected_steps=state.rejected)
    interrupted = not converged and interrupt_requested()
    return Solution(state.kept, state.kept_seen, state.point, converged, interrupted, tuple(history), acted)


class _State(Generic[Point, Sight]):
    """State of the loop: present point, last point kept with its sweep, mixing history, damping, and counts."""

    def __init__(self, start: Point, policy: Policy) -> None:
        self.policy = policy
        self.point, self.kept = start, start
        self.kept_seen: Sight | None = None
        self.mixing: MixingHistory | None = None
        self.weigh: Callable[[FloatArray], FloatArray] | None = None
        self.damping, self.plain_until, self.turn = policy.damping, policy.plain_steps, 0
        self.changes: list[float] = []
        self.last_change = math.inf
        self.halved = self.restarts = self.rejected = 0

    def look(self, iteration: Iteration[Point, Sight], count: int) -> Sight:
        """Sweep at the present point."""
        if self.mixing is None:
            self.turn = count
        return iteration.sweep(self.point, Pace(self.damping, self.turn))

    def keep(self, seen: Sight) -> bool:
        """Keep the point unless the bound fell by more than ``loss``; return whether it did."""
        self.last_change = self.changes[-1] if self.changes else math.inf
        lost = self.kept_seen is not None and not seen.bound > self.kept_seen.bound - self.policy.loss
        if not lost:
            self.kept, self.kept_seen = self.point, seen
            self.changes.append(seen.change)
        return lost

    def judge(self, seen: Sight, lost: bool, count: int) -> Sight:
        """Damp more if the change grew or the bound fell, else less; return the sweep to step from."""
        policy = self.policy
        if lost or not seen.change < policy.growth * self.last_change:
            self.mixing = None
            self.damping = max(policy.damping_factor * self.damping, policy.least_damping)
            self.plain_until = max(self.plain_until, count + policy.plain_after_restart)
            self.rejected += lost
            self.restarts += not lost
        if lost:
            assert self.kept_seen is not None
            self.point = self.kept
            return self.kept_seen
        if seen.change < self.last_change and self.damping < policy.recovered_damping:
            self.damping = min(2.0 * self.damping, policy.recovered_damping)
        return seen

    def step(self, iteration: Iteration[Point, Sight], seen: Sight, count: int) -> bool:
        """Move to the next point by a damped or a mixed step; return whether that was possible."""
        policy = self.policy
        step, times = iteration.plain(self.point, seen, self.damping)
        self.halved += times
        if not np.isfinite(step).all():
            return False
        if count >= self.plain_until and seen.change < policy.mixed_below:
            if self.mixing is None or self.weigh is None:
                self.mixing, self.weigh = MixingHistory(), iteration.metric(self.point, seen)
            flat = iteration.flat(self.point)
            step, self.mixing = mixed_step(self.mixing, flat, step, self.weigh(step), policy.memory)
        moved, times = halved_move(partial(iteration.move, self.point, seen), step, policy.halvings)
        self.halved += times
        if moved is None or self.halved > policy.all_halvings:
            return False
        if times and policy.restarts_when_halved:
            self.mixing, self.plain_until = None, count + policy.plain_after_restart
        self.point = moved
        return True


def halved_move(move: Callable[[FloatArray], Point | None], step: FloatArray, most: int) -> tuple[Point | None, int]:
    """Halve a step until it stays in the domain; return the point it leads to, and the number of halvings."""
    for times in range(most):
        moved = move(step)
        if moved is not None:
            return moved, times
        step = 0.5 * step
    return None, most


def _stalled(changes: list[float], patience: int | None) -> bool:
    """Return whether the change has not halved in the last ``patience`` sweeps."""
    if patience is None or len(changes) <= patience:
        return False
    return min(changes[-patience:]) > 0.5 * min(changes[:-patience])


# 24 fits, some of them hard, make 488 sweeps (benchmarks/constants.py --policies). With a value doubled (or 1) and
# halved: damping 523, 594; damping_factor 763, 482; recovered_damping 488, 537; plain_steps 517, 507;
# plain_after_restart 464, 457; memory 474, 470; growth 466, 1644; the others 488 or 489.
POLICY = Policy(
    damping=0.7,
    least_damping=0.05,
    recovered_damping=0.3,
    plain_steps=5,
    plain_after_restart=2,
    loss=1.0,  # nat
)


WARM = replace(POLICY, damping=1.0, plain_steps=0)  # from a point near the fixed point


def policy_for(dimension: int, policy: Policy = POLICY) -> Policy:
    """Return the policy; in one dimension damping stays fixed, because recovering it makes the iteration oscillate."""
    return policy if dimension > 1 else replace(policy, recovered_damping=0.0)


@dataclass(frozen=True, eq=False)
class GaussianSweep:
    """Result of a sweep at q: the new natural parameters (k, k) and (k,), and quantities of q.

    ``change`` is the relative change of the natural parameters; ``bound`` the variational bound at q, nats.
    """

    precision: FloatArray
    shift: FloatArray
    change: float
    bound: float
    log_evidence: float
    expected_risk: float
    tied: int

    final = True

    @property
    def record(self) -> dict[str, float]:
        return {"log_evidence": possible(self.log_evidence), "expected_risk": self.expected_risk}


SumsAt = Callable[[NaturalGaussian], SiteSums]
GaussianMap = Iteration[NaturalGaussian, GaussianSweep]
GaussianSolution = Solution[NaturalGaussian, GaussianSweep]


def gaussian_iteration(problem: Problem, power: float, sums_at: SumsAt) -> GaussianMap:
    """Return EP's fixed-point map of q, a Gaussian of the problem's reduced coefficients.

    ``sums_at(q)`` returns the sums of the sites at q.
    """

    def sweep(q: NaturalGaussian, pace: Pace) -> GaussianSweep:
        sums = sums_at(q)
        precision = sums.precision
        precision[np.diag_indices(q.mean.size)] += 1.0  # the prior N(0, I)
        risk = float(sums.wrong / problem.pairs.total_weight)
        bound = -problem.gamma * risk - q.divergence
        more, further = precision - q.precision, sums.shift - q.shift
        log_evidence = bound
        if power > 0.0:  # evidence of the new sites, to first order in their change
            log_evidence = float(sums.log_constant + q.log_partition() + gain(q, more, further))
        change = np.hypot(np.linalg.norm(more), np.linalg.norm(further))
        change /= np.hypot(np.linalg.norm(q.precision), np.linalg.norm(q.shift))
        return GaussianSweep(precision, sums.shift, float(change), bound, log_evidence, risk, sums.tied)

    def plain(q: NaturalGaussian, seen: GaussianSweep, damping: float) -> tuple[FloatArray, int]:
        target = _scale_target(q, seen) if problem.scale_free else 0.0
        step = damping * _flat(seen.precision - q.precision, seen.shift - q.shift)
        damped, times = halved_move(partial(_move, q, seen), step, POLICY.halvings)
        if damped is None:
            return np.full_like(step, np.nan), times
        if target > 0.0:
            damped = damped.rescaled(np.sqrt(target / damped.second_moment))
        return _flat(damped.precision - q.precision, damped.shift - q.shift), times

    return Iteration(sweep, plain, lambda q: _flat(q.precision, q.shift), _metric, _move)


def gain(q: NaturalGaussian | Moments, precision: FloatArray, shift: FloatArray) -> float:
    """Compute to first order by how much steps of its natural parameters change the log partition function of q."""
    return float(q.mean @ shift - 0.5 * (q.trace_of(precision) + q.mean @ precision @ q.mean))


def after_last_sweep(iteration: GaussianMap, found: GaussianSolution) -> NaturalGaussian:
    """Return the point that the last sweep leads to, at no further cost."""
    if not found.converged:
        return found.following
    step, _ = iteration.plain(found.point, found.seen, 1.0)
    return iteration.move(found.point, found.seen, step) or found.point


def _flat(precision: FloatArray, shift: FloatArray) -> FloatArray:
    """Return the upper triangle of the precision, row by row, then the shift: shape (k (k + 3) / 2,)."""
    return np.concatenate([linalg.lapack.dtrttp(precision.T, uplo="L")[0], shift])


def _unflat(step: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
    upper = linalg.lapack.dtpttr(k, step[:-k], uplo="L")[0].T
    return upper + np.triu(upper, 1).T, step[-k:]


def _move(q: NaturalGaussian, seen: GaussianSweep, step: FloatArray) -> NaturalGaussian | None:
    precision, shift = _unflat(step, q.mean.size)
    return natural_gaussian(q.precision + precision, q.shift + shift)


def _metric(q: NaturalGaussian, seen: GaussianSweep) -> Callable[[FloatArray], FloatArray]:
    """Return the map of a step to units of q's standard deviations: the metric of the module docstring."""
    weights = np.outer(q.sd, q.sd)
    weights[np.diag_indices(q.mean.size)] /= np.sqrt(2.0)  # entries off the diagonal occur twice in tr (V P)^2 / 2
    return partial(np.multiply, _flat(weights, q.sd))


def _scale_target(q: NaturalGaussian, seen: GaussianSweep) -> float:
    """Return tr V + m'm at a fixed point, from the sums at q; see the module docstring."""
    m = q.mean
    sum_b = q.trace_of(seen.precision) - float(np.diagonal(q.lower_covariance).sum())
    sum_rest = m @ seen.shift - m @ (seen.precision @ m) + m @ m  # of c rho - b rho^2
    return float(m.size - sum_b + sum_rest)
