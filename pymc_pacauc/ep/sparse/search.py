"""Finding EP's fixed point with a spike-and-slab prior.

q is the product of all sites (:mod:`~pymc_pacauc.ep.sparse.gaussian`). Two loops find the fixed point. The outer one
sums the pair sites given q, as for a Gaussian prior, with damped and then Anderson-mixed steps; after each step the
inner one (:mod:`~pymc_pacauc.ep.sparse.prior_sites`) brings the prior sites, and the scale of q, to their own fixed
point given the pair sites, which costs next to nothing. A step after which they do not get there is halved. Where
all this finds no fixed point, it is tried again with short steps of all sites at once, mixed late or early. All are the
one loop of :mod:`~pymc_pacauc.ep.fixed_point`; sweeps over the pairs are counted over all ways, and passes over the
prior sites are counted too, so that the cost of a search is bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.core.problem import Problem
from pymc_pacauc.ep.fixed_point import Interventions, Iteration, Pace, Policy, Solution, solve_fixed_point
from pymc_pacauc.ep.results import possible
from pymc_pacauc.ep.sites import SiteTable, site_table
from pymc_pacauc.ep.sparse.gaussian import SparseGaussian, sparse_gaussian
from pymc_pacauc.ep.sparse.mixture_site import MixtureSite, mixture_site
from pymc_pacauc.ep.sparse.prior_sites import settle_prior_sites
from pymc_pacauc.ep.sweep import ScoreMoments, SiteSums, sum_sites

__all__ = ["SparsePoint", "SparseSweep", "pair_sums", "settle", "solve_sparse"]

FloatArray = NDArray[np.float64]

SETTLING = Policy(  # steps of the pair sites, after which the prior sites settle
    damping=0.5,
    least_damping=0.05,
    plain_steps=3,
    patience=60,
    halvings=4,
    all_halvings=12,
    restarts_when_halved=True,
)
TOGETHER = Policy(  # short steps of all sites at once
    damping=0.25,
    least_damping=0.25,
    mixed_below=0.05,
    halvings=4,
)
EAGER = replace(TOGETHER, mixed_below=0.3)  # the same, mixed from farther away
ROUGHLY = 0.01  # tolerance of what only leads there
PASSES_PER_SWEEP = 10  # over the prior sites, on average, for each sweep over the pairs that is allowed
INNER_SHARE = 0.005  # tolerance of the prior sites, as a share of the change of the pair sites


@dataclass(frozen=True, eq=False)
class SparsePoint:
    """q, the tolerance to which its prior sites have settled, the passes that took, and what was done on the way."""

    q: SparseGaussian
    settled: float
    passes: int = 0
    acted: Interventions = field(default_factory=Interventions)


@dataclass(frozen=True, eq=False)
class SparseSweep:
    """The sums of the pair sites given q, as steps (k, k) and (k,) from the old ones, and what is known of q.

    ``change`` is the root mean square over coefficients, in q's own standard deviations.
    """

    precision_step: FloatArray
    shift_step: FloatArray
    sites: MixtureSite
    change: float
    final: bool
    log_evidence: float
    expected_risk: float
    tied: int

    bound = 0.0  # nothing here is known to be maximised

    @property
    def record(self) -> dict[str, float]:
        return {
            "log_evidence": possible(self.log_evidence),
            "expected_risk": self.expected_risk,
            "expected_model_size": float(self.sites.inclusion.sum()),
        }


SparseSolution = Solution[SparsePoint, SparseSweep]


def solve_sparse(
    problem: Problem,
    start: SparseGaussian,
    map_tiles: Callable[..., Any],
    *,
    tolerance: float,
    max_sweeps: int,
    callback: Callable[[dict[str, float]], None] | None = None,
    counted: int = 0,
) -> SparseSolution:
    """The fixed point by the first of the three ways that gets there, or where the best of them ended.

    ``counted`` sweeps were made before; records are numbered from there on.
    """
    history: tuple[dict[str, float], ...] = ()
    acted = Interventions()
    best: SparseSolution | None = None
    for policy in (SETTLING, TOGETHER, EAGER):
        together = policy is not SETTLING
        left = max_sweeps - len(history)
        if best is not None and (best.converged or best.interrupted or left < 1):
            break
        found = solve_fixed_point(
            _iteration(problem, map_tiles, tolerance, PASSES_PER_SWEEP * max_sweeps, together=together),
            SparsePoint(start, 0.0) if together else settle(problem, start, ROUGHLY) or SparsePoint(start, ROUGHLY),
            policy,
            tolerance=tolerance,
            max_sweeps=left,
            callback=callback,
            counted=counted + len(history),
        )
        history += found.history
        acted += found.interventions + found.following.acted
        if best is None or found.converged or found.seen.change < best.seen.change:
            best = found
    assert best is not None
    return replace(best, history=history, interventions=acted)


def settle(problem: Problem, q: SparseGaussian, tolerance: float) -> SparsePoint | None:
    """q with its prior sites at their fixed point given the pair sites; None where they do not get there."""
    assert problem.spikes is not None
    found = settle_prior_sites(
        q,
        problem.spikes.log_odds,
        problem.spikes.ratio,
        problem.scores.reduced.rotation,
        tolerance,
        scaled=problem.scale_free,
    )
    acted = Interventions(reset_sites=found.reset_sites, clipped_rescalings=found.clipped_rescalings)
    return None if found.q is None else SparsePoint(found.q, tolerance, found.passes, acted)


def _iteration(
    problem: Problem, map_tiles: Callable[..., Any], tolerance: float, most_passes: int, *, together: bool
) -> Iteration[SparsePoint, SparseSweep]:
    """EP's map of the pair sites, the prior sites settling after each step, or of all sites ``together``."""
    assert problem.spikes is not None
    spikes, rotation = problem.spikes, problem.scores.reduced.rotation
    table = site_table(problem.gamma_per_pair)

    def sweep(point: SparsePoint, pace: Pace) -> SparseSweep:
        q = point.q
        pairs = pair_sums(problem, q, table, map_tiles)
        sites = mixture_site(q.cavity_precision, q.cavity_shift, spikes.log_odds, spikes.ratio)
        precision, shift = pairs.precision - q.precision, pairs.shift - q.shift
        # The integral of the new sites' product, to first order from q's: at the fixed point they agree.
        integral = (
            q.log_partition()
            + shift @ q.reduced_mean
            - 0.5 * np.sum(q.reduced_root * (precision @ q.reduced_root))
            - 0.5 * q.reduced_mean @ precision @ q.reduced_mean
        )
        moved = _in_units(q, _step(q, precision, shift, sites, together=together))
        return SparseSweep(
            precision_step=precision,
            shift_step=shift,
            sites=sites,
            change=float(np.linalg.norm(moved) / np.sqrt(problem.d)),
            final=point.settled <= tolerance,
            log_evidence=float(pairs.log_constant + sites.log_constant.sum() + integral),
            expected_risk=float(pairs.wrong / problem.pairs.total_weight),
            tied=pairs.tied,
        )

    def plain(point: SparsePoint, seen: SparseSweep, damping: float) -> tuple[FloatArray, int]:
        return damping * _step(point.q, seen.precision_step, seen.shift_step, seen.sites, together=together), 0

    def flat(point: SparsePoint) -> FloatArray:
        q = point.q
        parts = [q.precision.ravel(), q.shift, *([q.site_precision, q.site_shift] if together else [])]
        return np.concatenate(parts)

    def move(point: SparsePoint, seen: SparseSweep, step: FloatArray) -> SparsePoint | None:
        moved = _moved(point.q, step, rotation)
        if moved is None:
            return None
        if together:
            return SparsePoint(moved, 0.0, acted=point.acted) if moved.proper.all() else None
        if point.passes > most_passes:
            return None
        inner = INNER_SHARE * min(max(seen.change, tolerance), 0.1)
        settled = settle(problem, moved, inner)
        if settled is None:
            return None
        return replace(settled, passes=point.passes + settled.passes, acted=point.acted + settled.acted)

    return Iteration(sweep, plain, flat, lambda point, seen: partial(_in_units, point.q), move)


def pair_sums(problem: Problem, q: SparseGaussian, table: SiteTable, map_tiles: Callable[..., Any]) -> SiteSums:
    """Sums of the sites of the problem's pairs under q."""
    space = problem.scores.reduced
    root = space.design @ q.reduced_root  # (n, k)
    moments = ScoreMoments(space.design @ q.reduced_mean + space.offset, root, np.einsum("ij,ij->i", root, root))
    return sum_sites(
        space.design, space.offset, moments, problem.pairs, table, tie_cost=problem.tie_cost, map_tiles=map_tiles
    )


def _step(
    q: SparseGaussian, precision: FloatArray, shift: FloatArray, sites: MixtureSite, *, together: bool
) -> FloatArray:
    """Steps of P (k, k) and r (k,), and perhaps of u and h (d,), one after the other."""
    parts = [precision.ravel(), shift]
    if together:
        parts += [sites.precision - q.site_precision, sites.shift - q.site_shift]
    return np.concatenate(parts)


def _parts(q: SparseGaussian, step: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Steps of P, r, u and h, the last two perhaps empty."""
    k, d = q.shift.size, q.mean.size
    matrix, shift, u, h = np.split(step, np.cumsum([k * k, k, d]))
    return matrix.reshape(k, k), shift, u, h


def _moved(q: SparseGaussian, step: FloatArray, rotation: FloatArray | None) -> SparseGaussian | None:
    """q after a step; None where that is no Gaussian."""
    matrix, shift, u, h = _parts(q, step)
    return sparse_gaussian(
        q.precision + 0.5 * (matrix + matrix.T),
        q.shift + shift,
        q.site_precision + u if u.size else q.site_precision,
        q.site_shift + h if h.size else q.site_shift,
        rotation,
    )


def _in_units(q: SparseGaussian, step: FloatArray) -> FloatArray:
    """A step as a change of q's log-density seen from q itself."""
    matrix, shift, u, h = _parts(q, step)
    root = q.reduced_root  # (k, k)
    parts = [(root.T @ matrix @ root).ravel() / np.sqrt(2.0), root.T @ shift]
    if u.size:
        parts += [u * q.variance / np.sqrt(2.0), h * np.sqrt(q.variance)]
    return np.concatenate(parts)
