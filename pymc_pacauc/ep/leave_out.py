"""Cross-validation by removing sites (the paper's section 3.3, "Third").

Leaving observations out of an EP fit means leaving out the sites of all pairs they belong to: subtract those sites from
the natural parameters of q, and what remains approximates the posterior without these observations, at the price of
one pass over the pairs that go, instead of a new fit. Every pair that stays keeps its weight gamma / (n+ n-), so the
posterior approximated is the one a refit would find at gamma times the fraction of pairs that stay.

The sites that stay were matched to the full q, not to the new one; sweeping over the remaining pairs a few times
(``refine``) removes that error. ``change`` says how far the last sweep still moved the natural parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_pacauc.core.pairs import Block, Pairs
from pymc_pacauc.core.risk import pair_risk
from pymc_pacauc.ep.fixed_point import NaturalGaussian, Sweep, natural_gaussian, relative_change, solve_fixed_point
from pymc_pacauc.ep.gaussian import EPFit, sweep_sums
from pymc_pacauc.ep.sweep import tile_map

__all__ = ["LeaveOut", "leave_out_sites"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LeaveOut:
    """Scores of every observation under the posterior that has not seen it.

    Attributes
    ----------
    scores, variance
        Mean and variance of each observation's score. Scores of one group are comparable with each other; between
        groups they are standardised to a common scale, as each posterior has its own.
    groups
        The group each observation was left out with.
    auc
        AUC of ``scores``. For leave-one-out, of the standardised scores of all observations.
    group_auc
        AUC within each group that has both classes (NaN otherwise); empty for leave-one-out.
    change
        Per group, the relative change of the natural parameters in the last sweep: zero means an exact refit.
    rematched
        Number of groups without which the remaining sites, as they were, did not make a Gaussian: there the sweeps over
        the remaining pairs (at least three) started from the full q.
    """

    scores: FloatArray
    variance: FloatArray
    groups: NDArray[np.intp]
    auc: float
    group_auc: FloatArray
    change: FloatArray
    rematched: int

    def __repr__(self) -> str:
        return f"LeaveOut(auc={self.auc:.4f}, groups={self.change.size}, largest change={self.change.max():.2g})"


def leave_out_sites(
    fit: EPFit,
    groups: ArrayLike | None = None,
    *,
    refine: int | None = None,
    tolerance: float = 1e-6,
    threads: int | None = None,
    callback: Callable[[int, int], None] | None = None,
) -> LeaveOut:
    """Leave out each group of observations in turn (by default each observation).

    Parameters
    ----------
    fit
        A converged fit.
    groups
        Group label of each observation, for k-fold or grouped cross-validation.
    refine
        At most this many sweeps over the remaining pairs after the removal; by default 3 for groups and 1 for single
        observations, which change less.
    tolerance
        Relative change of the natural parameters at which sweeping stops earlier.
    threads
        Threads, by default one per core.
    callback
        Called with the number of groups done and their total.
    """
    if refine is None:
        refine = 1 if groups is None else 3
    problem, q = fit.problem, fit.posterior.natural
    space = problem.scores.reduced
    labels, index = _encode(groups, problem.n)
    scores, variance, change = np.empty(problem.n), np.empty(problem.n), np.empty(labels.size)
    group_auc = np.full(labels.size, np.nan)
    identity = np.eye(space.dimension)
    rematched = 0
    with tile_map(problem.pairs.n_pairs // labels.size, space.dimension, threads) as map_tiles:
        for g in range(labels.size):
            out = index == g
            touched, kept = _split(problem.pairs, out)
            if kept.n_pairs == 0:
                raise ValueError(f"Without group {labels[g]!r} there is no pair left: it holds a whole class.")
            removed = sweep_sums(problem, q, touched, fit.table, map_tiles)
            left = natural_gaussian(q.precision - removed.precision, q.shift - removed.shift)
            sweeps = refine
            if left is None:
                left, sweeps = q, max(refine, 3)
                rematched += 1

            def sweep(q: NaturalGaussian, kept: Pairs = kept) -> Sweep:
                sums = sweep_sums(problem, q, kept, fit.table, map_tiles)
                bound = -fit.table.gamma * sums.wrong - q.divergence
                return Sweep(identity + sums.precision, sums.shift, bound, {})

            if sweeps:
                solution = solve_fixed_point(
                    sweep, left, scale_free=problem.scale_free, tolerance=tolerance, max_sweeps=sweeps
                )
                left, change[g] = solution.q, solution.history[-1]["change"]
            else:
                change[g] = relative_change(left, sweep(left))
            design = space.design[out]
            mean = design @ left.mean + space.offset[out]
            everyone = space.design @ left.mean + space.offset
            scores[out] = (mean - everyone.mean()) / (everyone.std() or 1.0)
            variance[out] = np.einsum("ij,jk,ik->i", design, left.covariance, design) / (everyone.var() or 1.0)
            group_auc[g] = _auc(scores, problem.pairs, out)
            if callback is not None:
                callback(g + 1, labels.size)
    return LeaveOut(
        scores=scores,
        variance=variance,
        groups=index,
        auc=_auc(scores, problem.pairs, np.ones(problem.n, dtype=bool)),
        group_auc=np.empty(0) if groups is None else group_auc,
        change=change,
        rematched=rematched,
    )


def _encode(groups: ArrayLike | None, n: int) -> tuple[NDArray[Any], NDArray[np.intp]]:
    if groups is None:
        return np.arange(n), np.arange(n)
    values = np.asarray(groups)
    if values.shape != (n,):
        raise ValueError(f"groups must have shape ({n},), one label per observation; got {values.shape}.")
    labels, index = np.unique(values, return_inverse=True)
    if labels.size < 2:
        raise ValueError("groups has one value only: leaving it out leaves nothing.")
    return labels, index.reshape(-1).astype(np.intp)


def _split(pairs: Pairs, out: NDArray[np.bool_]) -> tuple[Pairs, Pairs]:
    """The pairs that touch an observation in ``out``, and those that do not, as blocks."""
    touched, kept = [], []
    for block in pairs.blocks:
        p_out, p_in = block.positive[out[block.positive]], block.positive[~out[block.positive]]
        n_out, n_in = block.negative[out[block.negative]], block.negative[~out[block.negative]]
        touched += [Block(p_out, block.negative), Block(p_in, n_out)]
        kept.append(Block(p_in, n_in))
    return Pairs(pairs.n, _without_empty(touched)), Pairs(pairs.n, _without_empty(kept))


def _without_empty(blocks: list[Block]) -> tuple[Block, ...]:
    return tuple(block for block in blocks if block.n_pairs)


def _auc(scores: FloatArray, pairs: Pairs, among: NDArray[np.bool_]) -> float:
    inside = Pairs(
        pairs.n,
        _without_empty([Block(b.positive[among[b.positive]], b.negative[among[b.negative]]) for b in pairs.blocks]),
    )
    return float(1.0 - pair_risk(scores[None], inside)[0]) if inside.n_pairs else float("nan")
