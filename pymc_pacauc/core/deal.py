"""Rows dealt into groups along a score, so that comparing within groups is as good as comparing everybody.

Comparing rows of matching groups only, G of them, visits one pair in G. Dealt like cards, every run of G consecutive
rows giving one row to each group in random order, each group is a systematic sample along the score: a row meets
opponents from all over the score, evenly, and what is left to chance is which of its neighbours in score it meets.

Every pair has the same chance 1 / G of being met, whatever the sizes of its block and of the groups. So G times the sum
over the pairs met has the sum over all pairs as its expectation, exactly: *Horvitz and Thompson's estimate*. Blocks
(classes, strata, halves of the times, see :mod:`pymc_pacauc.core.pairs`) are dealt one by one; one that is too small to
be dealt is kept whole, and estimated without error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.core.pairs import Block, Pairs

__all__ = ["Deal", "DealtBlock", "deal", "number_of_groups"]

FloatArray = NDArray[np.float64]

LEAST_ROWS = 8  # of a side of a block, in a group
WHOLE = 2**14  # pairs up to which a block is not dealt


@dataclass(frozen=True, eq=False)
class DealtBlock:
    """A block in groups: group g compares ``positive[first_positive[g]:first_positive[g + 1]]``, places in the block's
    ``positive``, with the same of ``negative``. A pair that is met ``stands_for`` so many.
    """

    block: Block
    positive: NDArray[np.intp]
    first_positive: NDArray[np.intp]
    negative: NDArray[np.intp]
    first_negative: NDArray[np.intp]
    stands_for: float

    @property
    def groups(self) -> int:
        return self.first_positive.size - 1

    @property
    def n_pairs(self) -> int:
        return int(np.diff(self.first_positive) @ np.diff(self.first_negative))

    def group(self, g: int) -> Block:
        """The pairs that meet in a group."""
        return self.block.take(
            self.positive[self.first_positive[g] : self.first_positive[g + 1]],
            self.negative[self.first_negative[g] : self.first_negative[g + 1]],
        )

    def among(self, chosen: NDArray[np.bool_]) -> DealtBlock:
        """The same groups, of the chosen observations only."""
        positive, first_positive = _keep(self.positive, self.first_positive, chosen[self.block.positive])
        negative, first_negative = _keep(self.negative, self.first_negative, chosen[self.block.negative])
        return replace(
            self,
            positive=positive,
            first_positive=first_positive,
            negative=negative,
            first_negative=first_negative,
        )

    def some(self, share: float) -> DealtBlock:
        """The first of the groups, which stand for that share of all pairs."""
        taken = max(1, round(share * self.groups))
        return replace(
            self,
            first_positive=self.first_positive[: taken + 1],
            first_negative=self.first_negative[: taken + 1],
            stands_for=self.stands_for * share * self.groups / taken,
        )


@dataclass(frozen=True, eq=False)
class Deal:
    """Pairs of which a sum is estimated: ``whole`` blocks, and blocks ``dealt`` into ``groups``, or fewer."""

    whole: Pairs
    dealt: tuple[DealtBlock, ...]
    groups: float

    @cached_property
    def n_pairs(self) -> int:
        """The pairs that are met."""
        return self.whole.n_pairs + sum(block.n_pairs for block in self.dealt)

    def among(self, chosen: NDArray[np.bool_]) -> Deal:
        """The pairs met of which both observations are chosen."""
        dealt = tuple(block.among(chosen) for block in self.dealt)
        return replace(self, whole=self.whole.among(chosen), dealt=dealt)

    def some(self, share: float) -> Deal:
        """A part of the groups and of the whole blocks, whose sums are about that share of the sums over all."""
        if share >= 1.0:
            return self
        every = max(1, round(1.0 / share))
        blocks = self.whole.blocks[::every]
        kept = sum(block.total_weight for block in blocks) or 1.0
        scale = share * self.whole.total_weight / kept
        return replace(
            self,
            whole=replace(self.whole, blocks=tuple(replace(b, weight=b.weight * scale) for b in blocks)),
            dealt=tuple(block.some(share) for block in self.dealt),
        )


def number_of_groups(pairs: Pairs, wanted: int) -> float:
    """How many groups leave about ``wanted`` pairs, small blocks being kept whole; at least one.

    Examples
    --------
    >>> from pymc_pacauc.core.pairs import bipartite
    >>> number_of_groups(bipartite([0] * 3000 + [1] * 1000), 300_000)
    10.0
    """
    sizes = np.array([block.n_pairs for block in pairs.blocks], dtype=float)
    whole = float(sizes[sizes <= WHOLE].sum())
    dealt = float(sizes[sizes > WHOLE].sum())
    return max(1.0, dealt / max(wanted - whole, 1.0))


def deal(pairs: Pairs, score: FloatArray, groups: float, rng: np.random.Generator) -> Deal:
    """Deal the rows of every block along ``score[n]`` into so many groups, or as many as leave ``LEAST_ROWS`` a side.

    Examples
    --------
    >>> from pymc_pacauc.core.pairs import bipartite
    >>> rng = np.random.default_rng(1)
    >>> found = deal(bipartite([0] * 3000 + [1] * 1000), rng.normal(size=4000), 10, rng)
    >>> found.n_pairs, found.dealt[0].groups
    (300000, 10)
    """
    whole, dealt = [], []
    for block in pairs.blocks:
        if block.n_pairs <= WHOLE:
            whole.append(block)
            continue
        most = min(block.positive.size, block.negative.size) // LEAST_ROWS
        count = max(1, min(math.ceil(groups - 0.5), most))
        sides = (_deal_side(score[index], count, rng) for index in (block.positive, block.negative))
        (positive, first_positive), (negative, first_negative) = sides
        dealt.append(DealtBlock(block, positive, first_positive, negative, first_negative, float(count)))
    return Deal(replace(pairs, blocks=tuple(whole)), tuple(dealt), groups)


def _deal_side(score: FloatArray, groups: int, rng: np.random.Generator) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Places in the order of their groups, within these by score, and where each group begins."""
    order = np.argsort(score, kind="stable")
    if groups == 1:
        return order, np.array([0, order.size])
    rounds = -(-order.size // groups)
    cards = rng.permuted(np.broadcast_to(np.arange(groups, dtype=np.int32), (rounds, groups)), axis=1)
    group = cards.ravel()[: order.size]
    first = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=groups))])
    return order[np.argsort(group, kind="stable")], first


def _keep(
    places: NDArray[np.intp], first: NDArray[np.intp], chosen: NDArray[np.bool_]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    kept = chosen[places]
    return places[kept], np.concatenate([[0], np.cumsum(kept)])[first]
