"""Some of many rows, enough to choose by."""

from __future__ import annotations

import numpy as np

from pymc_pacauc.core.pairs import Pairs

__all__ = ["pairs_of_few"]

MOST = 4  # times as many rows as asked for, where one side has few


def pairs_of_few(pairs: Pairs, rows: int, rng: np.random.Generator) -> Pairs:
    """The pairs among about so many rows, half of each side; of a small side all, and more of the other for it.

    Examples
    --------
    >>> from pymc_pacauc.core.pairs import bipartite
    >>> few = pairs_of_few(bipartite([0] * 3000 + [1] * 1000), 200, np.random.default_rng(1))
    >>> few.n, few.n_pairs
    (4000, 10000)
    """
    if pairs.n <= rows:
        return pairs
    higher = np.zeros(pairs.n, dtype=bool)
    for block in pairs.blocks:
        higher[block.positive] = True
    sides = [rng.permutation(np.flatnonzero(side)) for side in (higher, ~higher)]
    half = rows // 2
    few = min(half, *(max(side.size, 1) for side in sides))
    many = min(half**2 // few, MOST * rows)
    chosen = np.zeros(pairs.n, dtype=bool)
    for side in sides:
        chosen[side[: half if side.size <= half else many]] = True
    return pairs.among(chosen)
