"""How the pairs of a sweep are cut into parts, and the ``map`` that these go through.

A block is cut into tiles, of which one is a matrix product; many small blocks are one part together; and a block whose
weights take few values becomes blocks of one weight each, whose sites need one variable less.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.core.blas import single_threaded_blas
from pymc_pacauc.core.pairs import Block, Pairs
from pymc_pacauc.ep.weighted_sites import SmallBlocks, small_blocks

__all__ = ["Tile", "Work", "cut_work", "tile_map"]

FloatArray = NDArray[np.float64]

TILE_ROWS, TILE_COLUMNS = 512, 4096  # at most
PAIRS_WORTH_THREADS, PAIRS_WORTH_EIGHT = 200_000, 500_000  # threads, and eight tiles for them
DIMENSION_WORTH_THREADS = 512
SMALL_BLOCK = 2**15  # pairs times coefficients below which a block is not worth a matrix product,
PAIRS_TOGETHER = 20_000  # of small blocks that go through one call
MOST_WEIGHTS = 25  # different ones in a block that have a table each, if there are
WORTH_A_TILE = 64  # so many pairs of each;
MOST_TABLES = 100  # of all blocks together
FEW = 8  # if there are more than this many of them


@dataclass(frozen=True, eq=False)
class Tile:
    """A part of a block: its rows and columns, and their weights where they differ (the block's is in the rows')."""

    rows: NDArray[np.intp]
    columns: NDArray[np.intp]
    weight: float
    row_weights: FloatArray | None
    column_weights: FloatArray | None


@dataclass(frozen=True, eq=False)
class Work:
    """What a sweep over some pairs consists of: ``weights`` are the least and largest of pairs that need them."""

    parts: list[Tile | SmallBlocks]
    constant_weights: set[float]
    weights: tuple[float, float] | None


_known_work: WeakKeyDictionary[Pairs, dict[int, Work]] = WeakKeyDictionary()


def cut_work(pairs: Pairs, d: int) -> Work:
    """Cut pairs into parts; remembered, as every sweep over the same pairs has the same."""
    known = _known_work.setdefault(pairs, {})
    if d not in known:
        known[d] = _cut(pairs, d)
    return known[d]


def _cut(pairs: Pairs, d: int) -> Work:
    small = [block for block in pairs.blocks if block.n_pairs * d <= SMALL_BLOCK]
    if len(small) <= FEW:
        small = []
    together = set(map(id, small))
    large = [part for block in pairs.blocks if id(block) not in together for part in _by_weight(block)]
    tables = {block.weight for block in large if block.constant}
    if len(tables) > MOST_TABLES:
        tables = set()
    alone = [block.constant and block.weight in tables for block in large]
    parts: list[Tile | SmallBlocks] = []
    for block, constant in zip(large, alone, strict=True):
        parts += _tiles(block, constant)
    parts += map(small_blocks, _shares(small))
    varying = [block for block, constant in zip(large, alone, strict=True) if not constant] + small
    ends = [f(b.row_weights) * f(b.column_weights) for b in varying for f in (np.min, np.max)]
    return Work(parts, tables, (float(min(ends)), float(max(ends))) if ends else None)


def _by_weight(block: Block) -> list[Block]:
    """A block whose weights take few values (counts, say) as blocks of one weight each: one variable less."""
    if block.constant:
        return [block]
    rows, row = np.unique(block.row_weights, return_inverse=True)
    columns, column = np.unique(block.column_weights, return_inverse=True)
    if rows.size * columns.size > min(MOST_WEIGHTS, block.n_pairs / WORTH_A_TILE):
        return [block]
    return [
        Block(block.positive[row == i], block.negative[column == j], weight=float(a * b))
        for i, a in enumerate(rows)
        for j, b in enumerate(columns)
    ]


def _tiles(block: Block, constant: bool) -> Iterator[Tile]:
    """Four tiles at least, or eight where there is work for many threads; with weights unless ``constant``."""
    tiles = 8 if block.n_pairs >= PAIRS_WORTH_EIGHT else 4
    height = min(TILE_ROWS, max(64, -(-block.positive.size // tiles)))
    row_weights = None if constant else block.row_weights
    column_weights = None if constant else block.column_weights
    for top in range(0, block.positive.size, height):
        rows = slice(top, top + height)
        for left in range(0, block.negative.size, TILE_COLUMNS):
            columns = slice(left, left + TILE_COLUMNS)
            yield Tile(
                block.positive[rows],
                block.negative[columns],
                block.weight,
                None if row_weights is None else row_weights[rows],
                None if column_weights is None else column_weights[columns],
            )


def _shares(blocks: list[Block]) -> Iterator[list[Block]]:
    """Consecutive blocks with at most an eighth of all pairs, or ``PAIRS_TOGETHER``, whichever is more."""
    most = max(PAIRS_TOGETHER, sum(block.n_pairs for block in blocks) // 8)
    share, pairs = [], 0
    for block in blocks:
        share.append(block)
        pairs += block.n_pairs
        if pairs >= most:
            yield share
            share, pairs = [], 0
    if share:
        yield share


@contextmanager
def tile_map(n_pairs: int, dimension: int, n_jobs: int | None = None) -> Iterator[Callable[..., Any]]:
    """A ``map`` over tiles, on threads (by default one per core) where there is work for them.

    Within the context matrix algebra is single-threaded: BLAS's own threads wait for each other at every step of a
    factorization, which costs more than it saves wherever a core has other work to do.
    """
    if n_jobs is None:
        n_jobs = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with single_threaded_blas():
        if n_jobs == 1 or (n_pairs < PAIRS_WORTH_THREADS and dimension < DIMENSION_WORTH_THREADS):
            yield map
        else:
            with ThreadPoolExecutor(n_jobs) as pool:
                yield pool.map
