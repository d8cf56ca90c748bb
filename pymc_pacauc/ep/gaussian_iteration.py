"""The fixed point of parallel EP with a Gaussian prior, as an iteration of natural parameters.

A sweep maps the natural parameters (Q, r) of q to new ones, the prior's plus the sums of the sites. Plain iteration
oscillates when gamma is of the order of n, and damped iteration crawls, for one reason mostly: when the scores have no
offset, the risk ignores the length of the (whitened) coefficients, so nothing but the prior fixes the scale of q.
That scale is known. At a fixed point Q V = I and Q m = r, and taking traces

    tr V + m'm = k - sum (b (1 + rho^2) - c rho),

where the sum over pairs depends on rho alone, hence not on the scale. So every damped step is followed by the
rescaling of q that makes this hold; the fixed points stay the same. What is left converges fast under Anderson mixing,
its least squares in the metric of q: a step (P, h) of the natural parameters weighs tr (V P)^2 / 2 + h'V h, the second
order of the divergence; with many coefficients the diagonal of V stands for V.

The bound -gamma E_q[risk] - KL(q, prior), which the sweep knows and the fixed point nearly maximises, is the loop's
safeguard against steps that lead away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from pymc_pacauc.core.pairs import Pairs
from pymc_pacauc.core.problem import Problem
from pymc_pacauc.ep.fixed_point import Iteration, Pace, Policy, halved_move
from pymc_pacauc.ep.natural import NaturalGaussian, natural_gaussian
from pymc_pacauc.ep.results import possible
from pymc_pacauc.ep.sites import SiteTable
from pymc_pacauc.ep.sweep import SiteSums, score_moments, sum_sites

__all__ = ["POLICY", "GaussianSweep", "gaussian_iteration", "policy_for", "sweep_sums"]

FloatArray = NDArray[np.float64]

LARGEST_TURNED = 100  # coefficients, for whose steps all of V counts

POLICY = Policy(
    damping=0.7,
    least_damping=0.05,
    recovered_damping=0.3,
    plain_steps=5,
    plain_after_restart=2,
    loss=1.0,  # nat
)


def policy_for(dimension: int, policy: Policy = POLICY) -> Policy:
    """With one coefficient, all of whose pairs say the same, damped steps lead to and fro if damping recovers."""
    return policy if dimension > 1 else replace(policy, recovered_damping=0.0)


@dataclass(frozen=True, eq=False)
class GaussianSweep:
    """What a sweep finds at q: the new natural parameters (k, k) and (k,), and what is known of q.

    ``change`` is that of the natural parameters, relative to them; ``bound`` the variational one, at q.
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


def gaussian_iteration(
    problem: Problem, power: float, sums_at: Callable[[NaturalGaussian], SiteSums]
) -> Iteration[NaturalGaussian, GaussianSweep]:
    """EP's map of q, a Gaussian of the problem's reduced coefficients u, given the sums of the sites at q."""

    def sweep(q: NaturalGaussian, pace: Pace) -> GaussianSweep:
        sums = sums_at(q)
        precision = sums.precision
        precision[np.diag_indices(q.mean.size)] += 1.0  # the prior N(0, I)
        risk = float(sums.wrong / problem.pairs.total_weight)
        bound = -problem.gamma * risk - q.divergence
        more, further = precision - q.precision, sums.shift - q.shift
        log_evidence = bound
        if power > 0.0:  # that of the new sites, to first order in what they change
            gain = q.mean @ further - 0.5 * (q.trace_of(more) + q.mean @ more @ q.mean)
            log_evidence = float(sums.log_constant + q.log_partition() + gain)
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


def sweep_sums(
    problem: Problem, q: NaturalGaussian, pairs: Pairs, table: SiteTable, map_tiles: Callable[..., Any] = map
) -> SiteSums:
    """Sums of the sites of ``pairs`` under q, a Gaussian of the problem's reduced coefficients."""
    space = problem.scores.reduced
    moments = score_moments(space.design, space.offset, q.mean, q.factor, map_tiles)
    return sum_sites(space.design, space.offset, moments, pairs, table, tie_cost=problem.tie_cost, map_tiles=map_tiles)


def _flat(precision: FloatArray, shift: FloatArray) -> FloatArray:
    """The upper triangle of the precision, row by row, then the shift: shape (k (k + 3) / 2,)."""
    return np.concatenate([linalg.lapack.dtrttp(precision.T, uplo="L")[0], shift])


def _unflat(step: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
    upper = linalg.lapack.dtpttr(k, step[:-k], uplo="L")[0].T
    return upper + np.triu(upper, 1).T, step[-k:]


def _move(q: NaturalGaussian, seen: GaussianSweep, step: FloatArray) -> NaturalGaussian | None:
    precision, shift = _unflat(step, q.mean.size)
    return natural_gaussian(q.precision + precision, q.shift + shift)


def _metric(q: NaturalGaussian, seen: GaussianSweep) -> Callable[[FloatArray], FloatArray]:
    """A step as a change of the log-density seen from q itself, with L L' = Q: L^-1 P L^-T and L^-1 h. Or, of many
    coefficients, for which that costs as much as the rest of a sweep, in units of q's standard deviations.
    """
    k, factor = q.mean.size, q.factor
    if k > LARGEST_TURNED:
        weights = np.outer(q.sd, q.sd)
        weights[np.diag_indices(k)] /= np.sqrt(2.0)
        return partial(np.multiply, _flat(weights, q.sd))

    def turned(step: FloatArray) -> FloatArray:
        precision, shift = _unflat(step, k)
        inner = linalg.lapack.dsygst(precision, factor.T, itype=1, lower=0)[0]  # the upper triangle of L^-1 P L^-T
        inner[np.diag_indices(k)] /= np.sqrt(2.0)  # the others count twice, so that half the square of the norm is left
        return _flat(inner, linalg.solve_triangular(factor, shift, lower=True, check_finite=False))

    return turned


def _scale_target(q: NaturalGaussian, seen: GaussianSweep) -> float:
    """The value of tr V + m'm at a fixed point; see the module docstring."""
    m = q.mean
    sum_b = q.trace_of(seen.precision) - float(np.diagonal(q.lower_covariance).sum())
    sum_rest = m @ seen.shift - m @ (seen.precision @ m) + m @ m  # of c rho - b rho^2
    return float(m.size - sum_b + sum_rest)
