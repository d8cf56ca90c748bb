"""The risk of weighted pairs, and of many blocks: one walk through the sorted scores.

Sort the n scores. Walk upwards, and keep for every block the weight of its positives passed so far. A negative of the
block then adds its own weight times that number: exactly the pairs it belongs to that are wrong. All blocks share the
one walk, so that a score vector costs O(n log n) for the sort and one addition for every membership of an observation
in a block: O(n) for weighted classes and for strata, O(n log n) for censored times, whatever the number of pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.core.kernels import kernel

if TYPE_CHECKING:
    from pymc_pacauc.core.pairs import Pairs

__all__ = ["ScanPlan", "scan_plan", "scan_rows"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Memberships:
    """Which blocks each observation is in: observation i is in ``block[start[i]:start[i + 1]]`` with those weights."""

    start: NDArray[np.int64]
    block: NDArray[np.int32]
    weight: FloatArray


@dataclass(frozen=True, eq=False)
class ScanPlan:
    """Both sides of all blocks, by observation; ``overlapping`` where an observation is on both sides of a block."""

    positive: Memberships
    negative: Memberships
    blocks: int
    total_weight: float
    overlapping: bool


def scan_plan(pairs: Pairs) -> ScanPlan:
    """Turn blocks of observations into memberships of observations."""
    rows = [(b.positive, b.row_weights) for b in pairs.blocks]
    columns = [(b.negative, b.column_weights) for b in pairs.blocks]
    overlapping = any(np.intersect1d(b.positive, b.negative).size > 0 for b in pairs.blocks)
    return ScanPlan(
        memberships(pairs.n, rows), memberships(pairs.n, columns), len(rows), pairs.total_weight, overlapping
    )


def memberships(n: int, members: list[tuple[NDArray[np.intp], FloatArray]]) -> Memberships:
    """Transpose lists of members, one of indices and weights for each block."""
    index = np.concatenate([m for m, _ in members])
    weight = np.concatenate([w for _, w in members])
    block = np.repeat(np.arange(len(members), dtype=np.int32), [m.size for m, _ in members])
    order = np.argsort(index, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(index, minlength=n))]).astype(np.int64)
    return Memberships(start, block[order], weight[order])


def scan_rows(scores: FloatArray, plan: ScanPlan, tie_cost: float) -> FloatArray:
    """Weight of the wrong pairs of each row of ``scores[N, n]``; NaN where a score is NaN."""
    order = np.argsort(scores, axis=1)
    positive, negative = plan.positive, plan.negative
    return np.asarray(
        _scan(
            scores,
            order,
            positive.start,
            positive.block,
            positive.weight,
            negative.start,
            negative.block,
            negative.weight,
            plan.blocks,
            plan.overlapping,
            tie_cost,
        )
    )


@kernel
def _scan(scores, order, p_start, p_block, p_weight, n_start, n_block, n_weight, blocks, overlapping, tie_cost):
    n = scores.shape[1]
    out = np.empty(scores.shape[0])
    below = np.empty(blocks)  # the weight of the positives passed, of each block
    for r in range(scores.shape[0]):
        row, ranked = scores[r], order[r]
        if np.isnan(row[ranked[n - 1]]):  # NaN sorts last
            out[r] = np.nan
            continue
        below[:] = 0.0
        wrong = 0.0
        first = 0
        while first < n:
            value = row[ranked[first]]
            end = first + 1
            while end < n and row[ranked[end]] == value:
                end += 1
            shared = tie_cost if overlapping or end > first + 1 else 0.0  # what a positive of this very score costs
            for k in range(first, end):
                i = ranked[k]
                for t in range(n_start[i], n_start[i + 1]):
                    wrong += (1.0 - shared) * n_weight[t] * below[n_block[t]]
            for k in range(first, end):
                i = ranked[k]
                for t in range(p_start[i], p_start[i + 1]):
                    below[p_block[t]] += p_weight[t]
            if shared > 0.0:
                for k in range(first, end):
                    i = ranked[k]
                    for t in range(n_start[i], n_start[i + 1]):
                        wrong += shared * n_weight[t] * below[n_block[t]]
            first = end
        out[r] = wrong
    return out
