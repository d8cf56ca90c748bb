"""Finding EP's fixed point with a spike-and-slab prior.

q is the product of all sites (:mod:`~pymc_pacauc.ep.sparse.gaussian`). Two loops find the fixed point. The outer one
sums the pair sites given q, as for a Gaussian prior, with damped and then Anderson-mixed steps; after each step the
inner one (:mod:`~pymc_pacauc.ep.sparse.prior_sites`) brings the prior sites, and the scale of q, to their own fixed
point given the pair sites, which costs next to nothing. A step after which they do not get there is halved. Where
all this finds no fixed point, it is tried again with short steps of all sites at once, and at last with the negative
precisions of prior sites cut at zero, which is stabler but another fixed point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.core.problem import Problem
from pymc_pacauc.ep.mixing import AndersonMixing
from pymc_pacauc.ep.sites import SiteTable, site_table
from pymc_pacauc.ep.sparse.gaussian import SparseGaussian, sparse_gaussian
from pymc_pacauc.ep.sparse.mixture_site import MixtureSite, mixture_site
from pymc_pacauc.ep.sparse.prior_sites import settle_prior_sites
from pymc_pacauc.ep.sweep import ScoreMoments, SiteSums, sum_sites

__all__ = ["Ended", "SparseSearch", "SparseSweep", "pair_sums"]

FloatArray = NDArray[np.float64]

DAMPING = 0.5
SMALLEST_DAMPING = 0.05
SHORT = 0.25  # of steps that move pair and prior sites together
MEMORY = 6
PLAIN_STEPS = 3  # damped steps before mixing starts, and starts again
NEAR = 0.05  # change below which steps of all sites are mixed
GROWTH = 1.5  # a change that grows by more than this discards the mixing's history
MOST_HALVINGS = 4  # of a step
ALL_HALVINGS = 12
PATIENCE = 60  # sweeps in which the change must halve
ROUGHLY = 0.01  # tolerance of what only leads there
INNER_SHARE = 0.005  # tolerance of the prior sites, as a share of the change of the pair sites


@dataclass(frozen=True, eq=False)
class SparseSweep:
    """The sums of the pair sites given q, as steps from the old ones, and what is known of q."""

    precision_step: FloatArray
    shift_step: FloatArray
    change: float
    sites: MixtureSite
    log_evidence: float
    expected_risk: float
    tied: int


@dataclass(frozen=True, eq=False)
class Ended:
    """The last q, its sweep, where the next step leads, and whether q is a fixed point."""

    q: SparseGaussian
    last: SparseSweep
    following: SparseGaussian
    converged: bool


class SparseSearch:
    """The two loops; see the module docstring."""

    def __init__(
        self,
        problem: Problem,
        map_tiles: Callable[..., Any],
        max_sweeps: int,
        callback: Callable[[dict[str, float]], None] | None,
    ):
        assert problem.spikes is not None
        self.problem = problem
        self.spikes = problem.spikes
        self.space = problem.scores.reduced
        self.map_tiles = map_tiles
        self.max_sweeps = max_sweeps
        self.callback = callback
        self.table = site_table(problem.gamma_per_pair)
        self.limited = False
        self.history: list[dict[str, float]] = []
        self.halved_steps = 0
        self.restarts = 0

    def find(self, q: SparseGaussian, tolerance: float) -> Ended:
        """The fixed point by the first of the three ways that gets there, or where the best of them ended."""
        found = self.run(q, tolerance)
        for way in (self.run_together, partial(self.run, limited=True)):
            if not found.converged and len(self.history) < self.max_sweeps:
                other = way(q, tolerance)
                if other.converged or other.last.change < found.last.change:
                    found = other
        return found

    def run_together(self, q: SparseGaussian, tolerance: float) -> Ended:
        """Iterate with short steps of pair and prior sites at once, mixed near the fixed point."""
        self.limited = False
        mixing: AndersonMixing | None = None
        metric, previous, plain_until = q, np.inf, 0
        swept = q
        for count in range(self.max_sweeps - len(self.history)):
            new, swept = self.sweep(q), q
            self.record(new)
            steps = [
                new.precision_step,
                new.shift_step,
                new.sites.precision - q.site_precision,
                new.sites.shift - q.site_shift,
            ]
            change = np.linalg.norm(_in_units(q, *steps)) / np.sqrt(q.mean.size)
            if change < tolerance:
                return Ended(q, new, q, True)
            if mixing is not None and change > GROWTH * previous:
                mixing, plain_until = None, count + PLAIN_STEPS
                self.restarts += 1
            previous = change
            step = SHORT * np.concatenate([part.ravel() for part in steps])
            if count >= plain_until and change < NEAR:
                if mixing is None:
                    mixing, metric = AndersonMixing(MEMORY), q
                point = np.concatenate([q.precision.ravel(), q.shift, q.site_precision, q.site_shift])
                step = mixing.step(point, step, SHORT * _in_units(metric, *steps))
            for halvings in range(MOST_HALVINGS):
                moved = _moved(q, 0.5**halvings * step, self.space.rotation)
                if moved is not None and moved.proper.all():
                    break
                self.halved_steps += 1
            else:
                break
            q = moved
        return Ended(swept, new, q, False)

    def run(self, q: SparseGaussian, tolerance: float, *, limited: bool = False) -> Ended:
        """Iterate from q until a sweep changes it by less than ``tolerance``."""
        self.limited = limited
        most_halved = self.halved_steps + ALL_HALVINGS
        inner = ROUGHLY
        q = self.settle(q, inner) or q
        mixing: AndersonMixing | None = None
        metric = q
        damping, plain_until = DAMPING, PLAIN_STEPS
        swept = q
        changes: list[float] = []
        for count in range(self.max_sweeps - len(self.history)):
            new, swept = self.sweep(q), q
            self.record(new)
            if new.change < tolerance and inner <= tolerance:
                return Ended(q, new, q, True)
            if changes and new.change > GROWTH * changes[-1]:
                mixing, plain_until = None, count + PLAIN_STEPS
                damping = max(0.7 * damping, SMALLEST_DAMPING)
                self.restarts += 1
            changes.append(new.change)
            if len(changes) > PATIENCE and min(changes[-PATIENCE:]) > 0.5 * min(changes[:-PATIENCE]):
                break
            step = damping * np.concatenate([new.precision_step.ravel(), new.shift_step])
            if count >= plain_until:
                if mixing is None:
                    mixing, metric = AndersonMixing(MEMORY), q
                weighted = damping * _in_units(metric, new.precision_step, new.shift_step)
                step = mixing.step(np.concatenate([q.precision.ravel(), q.shift]), step, weighted)
            inner = INNER_SHARE * min(max(new.change, tolerance), 0.1)
            moved, halvings = self.step(q, step, inner)
            self.halved_steps += halvings
            if moved is None or self.halved_steps > most_halved:
                break
            if halvings:
                mixing, plain_until = None, count + PLAIN_STEPS
            q = moved
        return Ended(swept, new, q, False)

    def settle(self, q: SparseGaussian, tolerance: float) -> SparseGaussian | None:
        return settle_prior_sites(
            q,
            self.spikes.log_odds,
            self.spikes.ratio,
            self.space.rotation,
            tolerance,
            limited=self.limited,
            scaled=self.problem.scale_free,
        )

    def step(self, q: SparseGaussian, step: FloatArray, tolerance: float) -> tuple[SparseGaussian | None, int]:
        """q with its pair sites moved, by half as much until its prior sites settle; and how often it was halved."""
        for halvings in range(MOST_HALVINGS):
            moved = _moved(q, 0.5**halvings * step, self.space.rotation)
            settled = None if moved is None else self.settle(moved, tolerance)
            if settled is not None:
                return settled, halvings
        return None, MOST_HALVINGS

    def sweep(self, q: SparseGaussian) -> SparseSweep:
        problem = self.problem
        pairs = pair_sums(problem, q, self.table, self.map_tiles)
        sites = mixture_site(
            q.cavity_precision, q.cavity_shift, self.spikes.log_odds, self.spikes.ratio, limited=self.limited
        )
        precision, shift = pairs.precision - q.precision, pairs.shift - q.shift
        # The integral of the new sites' product, to first order from q's: at the fixed point they agree.
        integral = (
            q.log_partition()
            + shift @ q.reduced_mean
            - 0.5 * np.sum(q.reduced_root * (precision @ q.reduced_root))
            - 0.5 * q.reduced_mean @ precision @ q.reduced_mean
        )
        change = np.linalg.norm(_in_units(q, precision, shift)) / np.sqrt(problem.d)
        return SparseSweep(
            precision_step=precision,
            shift_step=shift,
            change=float(change),
            sites=sites,
            log_evidence=float(pairs.log_constant + sites.log_constant.sum() + integral),
            expected_risk=float(pairs.wrong / problem.pairs.n_pairs),
            tied=pairs.tied,
        )

    def record(self, new: SparseSweep) -> None:
        self.history.append(
            {
                "sweep": len(self.history) + 1,
                "change": new.change,
                "log_evidence": new.log_evidence,
                "expected_risk": new.expected_risk,
                "expected_model_size": float(new.sites.inclusion.sum()),
            }
        )
        if self.callback is not None:
            self.callback(self.history[-1])


def pair_sums(problem: Problem, q: SparseGaussian, table: SiteTable, map_tiles: Callable[..., Any]) -> SiteSums:
    """Sums of the sites of the problem's pairs under q."""
    space = problem.scores.reduced
    root = space.design @ q.reduced_root  # (n, k)
    moments = ScoreMoments(space.design @ q.reduced_mean + space.offset, root, np.einsum("ij,ij->i", root, root))
    return sum_sites(
        space.design, space.offset, moments, problem.pairs, table, tie_cost=problem.tie_cost, map_tiles=map_tiles
    )


def _moved(q: SparseGaussian, step: FloatArray, rotation: FloatArray | None) -> SparseGaussian | None:
    """q after a step of P, r and perhaps u, h, one after the other; None where that is no Gaussian."""
    k, d = q.shift.size, q.mean.size
    whole = np.zeros(k * k + k + 2 * d)
    whole[: step.size] = step
    flat, shift, u, h = np.split(whole, np.cumsum([k * k, k, d]))
    matrix = flat.reshape(k, k)
    precision = q.precision + 0.5 * (matrix + matrix.T)
    return sparse_gaussian(precision, q.shift + shift, q.site_precision + u, q.site_shift + h, rotation)


def _in_units(
    q: SparseGaussian,
    precision: FloatArray,
    shift: FloatArray,
    site_precision: FloatArray | None = None,
    site_shift: FloatArray | None = None,
) -> FloatArray:
    """Steps of P, r and perhaps u, h as changes of q's log-density seen from q itself."""
    root = q.reduced_root
    parts = [(root.T @ precision @ root).ravel() / np.sqrt(2.0), root.T @ shift]
    if site_precision is not None and site_shift is not None:
        parts += [site_precision * q.variance / np.sqrt(2.0), site_shift * np.sqrt(q.variance)]
    return np.concatenate(parts)
