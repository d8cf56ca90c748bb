"""Sample pairs: put rows into G random groups along a score, and compare within groups only, one pair in G.

Rows of each side of a block are sorted by score; of every G consecutive rows one goes to each group, in random order.
So each group is a systematic sample along the score: the partners of a row are spread evenly over all scores, and only
which of its neighbours in score it is compared with is random.

Every pair is compared with the same probability 1 / G, whatever the sizes of its block and of the groups. So

    sum over all pairs of f(i, j)  is estimated without bias by  G * sum over compared pairs of f(i, j),

the Horvitz-Thompson estimate. Blocks (:mod:`pymc_pacauc.comparison.pairs`) are sampled one by one; small blocks are
kept whole. Cost: O(n log n) for the sort. Used by :mod:`pymc_pacauc.ep.subsample`, by the paths of
:mod:`pymc_pacauc.ep.start`, and for expected AUCs of large folds.

Reference: Horvitz & Thompson (1952), doi:10.1080/01621459.1952.10483446.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.comparison.pairs import Block, Pairs
from pymc_pacauc.numerics import FloatArray

# Rows of each side that a group has at least: the fewest that a caller may ask for. Groups of the default are larger,
# so that doubling and halving change nothing (benchmarks/constants.py).
LEAST_ROWS = 8
# Pairs up to which a block is used whole. Doubled, nothing changes; halved, fits of many blocks take 1.4 times as long.
WHOLE = 2**14
# Of the far pairs of a group of R rows with different scores one in min(R / ROWS_FOR_SHARE, FAR_SHARE) is computed; of
# a group of up to ROWS_FOR_SHARE rows all. Doubled, twice as many are computed, and errors are a tenth smaller.
ROWS_FOR_SHARE = 64
FAR_SHARE = 32


@dataclass(frozen=True, eq=False)
class SampledBlock:
    """A block of which only pairs within ``groups`` of its rows are compared, and count once for each of the groups.

    Of pairs far apart in score one in ``every`` is computed, in group g starting from the ``turns[g]``-th.
    """

    block: Block
    groups: tuple[Block, ...]
    every: int
    turns: NDArray[np.intp]

    @property
    def n_pairs(self) -> int:
        return sum(group.n_pairs for group in self.groups)

    def among(self, chosen: NDArray[np.bool_]) -> SampledBlock:
        """Return the same groups restricted to chosen observations."""
        return replace(self, groups=tuple(g.take(chosen[g.positive], chosen[g.negative]) for g in self.groups))


@dataclass(frozen=True, eq=False)
class SampledPairs:
    """A subsample of pairs: blocks that are used ``whole``, and blocks ``sampled`` within up to ``groups`` groups.

    ``score`` and ``spread``, (n,), decide which pairs are far apart; see :func:`sample_pairs`.
    """

    whole: Pairs
    sampled: tuple[SampledBlock, ...]
    groups: float
    score: FloatArray
    spread: FloatArray | None

    @cached_property
    def n_pairs(self) -> int:
        """Number of compared pairs."""
        return self.whole.n_pairs + sum(block.n_pairs for block in self.sampled)

    @property
    def thinned(self) -> bool:
        """Whether of pairs far apart in score only one in several is computed."""
        return any(block.every > 1 for block in self.sampled)

    def parts(self) -> list[tuple[Pairs, float]]:
        """List the compared pairs, each part with the number of times that its pairs count."""
        parts = [(self.whole, 1.0)]
        for each in self.sampled:
            groups = tuple(group for group in each.groups if group.n_pairs)
            parts.append((replace(self.whole, blocks=groups), float(len(each.groups))))
        return [(pairs, times) for pairs, times in parts if pairs.blocks]

    def among(self, chosen: NDArray[np.bool_]) -> SampledPairs:
        """Return the compared pairs of which both observations are chosen."""
        sampled = tuple(block.among(chosen) for block in self.sampled)
        return replace(self, whole=self.whole.among(chosen), sampled=sampled)


def part_of(pairs: Pairs, share: float, rng: np.random.Generator) -> Pairs:
    """Sample a share of the rows of each block, and of the small blocks; weights add up to that share of all.

    Examples
    --------
    >>> from pymc_pacauc.comparison.pairs import bipartite
    >>> found = part_of(bipartite([0] * 3000 + [1] * 1000), 0.1, np.random.default_rng(1))
    >>> found.n_pairs, found.total_weight
    (30000, 300000.0)
    """
    large = [block for block in pairs.blocks if block.n_pairs > WHOLE]
    small = [block for block in pairs.blocks if block.n_pairs <= WHOLE][:: max(1, round(1.0 / share))]
    wanted = pairs.total_weight - sum(block.total_weight for block in large)
    taken = [
        (block, block.take(*(_some(side.size, share, rng) for side in (block.positive, block.negative))))
        for block in large
    ]
    blocks = [_weighing(each, share * block.total_weight) for block, each in taken]
    found = sum(block.total_weight for block in small)
    blocks += [_weighing(block, share * wanted / found * block.total_weight) for block in small]
    return replace(pairs, blocks=tuple(blocks))


def number_of_groups(pairs: Pairs, wanted: float) -> float:
    """Return the number of groups for about ``wanted`` pairs, small blocks being kept whole; at least one.

    Examples
    --------
    >>> from pymc_pacauc.comparison.pairs import bipartite
    >>> number_of_groups(bipartite([0] * 3000 + [1] * 1000), 300_000)
    10.0
    """
    sizes = np.array([block.n_pairs for block in pairs.blocks], dtype=float)
    whole = float(sizes[sizes <= WHOLE].sum())
    sampled = float(sizes[sizes > WHOLE].sum())
    return max(1.0, sampled / max(wanted - whole, 1.0))


def _groups_of(block: Block, groups: float) -> int:
    """Return the number of groups of a block, where ``groups`` are asked for: at least ``LEAST_ROWS`` a side."""
    most = min(block.positive.size, block.negative.size) // LEAST_ROWS
    return max(1, min(math.ceil(groups - 0.5), most))


def most_groups(pairs: Pairs, groups: float) -> int:
    """Return the largest number of groups of any block, where ``groups`` are asked for; 1 where all pairs are used."""
    large = (block for block in pairs.blocks if block.n_pairs > WHOLE)
    return max((_groups_of(block, groups) for block in large), default=1)


def sample_pairs(
    pairs: Pairs, score: FloatArray, groups: float, rng: np.random.Generator, spread: FloatArray | None = None
) -> SampledPairs:
    """Put the rows of every block into ``groups`` along ``score[n]``, or fewer if a side has under ``LEAST_ROWS``.

    Given the ``spread[n]`` of the scores, of pairs far apart only one in ``every`` is to be computed. Not so where few
    scores are different: then all pairs of two scores would be computed, or none.

    Examples
    --------
    >>> from pymc_pacauc.comparison.pairs import bipartite
    >>> rng = np.random.default_rng(1)
    >>> found = sample_pairs(bipartite([0] * 3000 + [1] * 1000), rng.normal(size=4000), 10, rng)
    >>> found.n_pairs, len(found.sampled[0].groups)
    (300000, 10)
    """
    whole, sampled = [], []
    for block in pairs.blocks:
        if block.n_pairs <= WHOLE:
            whole.append(block)
            continue
        count = _groups_of(block, groups)
        sides = [_grouped_side(score[index], count, rng) for index in (block.positive, block.negative)]
        made = tuple(block.take(*rows) for rows in zip(*sides, strict=True))
        every = 1
        if spread is not None and count > 1:
            rows = (block.positive.size + block.negative.size) / count
            rows = min(rows, _different(score[block.positive]) + _different(score[block.negative]))
            every = 1 << max(0, int(math.log2(min(rows / ROWS_FOR_SHARE, FAR_SHARE))))
        turns = rng.integers(every, size=count)
        sampled.append(SampledBlock(block, made, every, turns))
    return SampledPairs(replace(pairs, blocks=tuple(whole)), tuple(sampled), groups, score, spread)


def _some(size: int, share: float, rng: np.random.Generator) -> NDArray[np.intp]:
    return rng.choice(size, min(size, max(LEAST_ROWS, round(share * size))), replace=False, shuffle=False)


def _weighing(block: Block, total: float) -> Block:
    return replace(block, weight=block.weight * total / block.total_weight)


def _different(score: FloatArray) -> int:
    """Count the different scores among at most about ``WHOLE`` of them."""
    ordered = np.sort(score[:: max(1, score.size // WHOLE)])
    rounding = np.sqrt(np.finfo(float).eps) * (ordered[-1] - ordered[0])
    return 1 + int(np.count_nonzero(np.diff(ordered) > rounding))


def _grouped_side(score: FloatArray, groups: int, rng: np.random.Generator) -> list[NDArray[np.intp]]:
    """Put rows into groups; return the indices of each, in the order of their scores."""
    order = np.argsort(score)
    if groups == 1:
        return [order]
    rounds = -(-order.size // groups)
    drawn = rng.permuted(np.broadcast_to(np.arange(groups, dtype=np.min_scalar_type(groups)), (rounds, groups)), axis=1)
    group = drawn.ravel()[: order.size]
    ends = np.cumsum(np.bincount(group, minlength=groups))[:-1]
    return np.split(order[np.argsort(group, kind="stable")], ends)
