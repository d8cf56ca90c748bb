"""Equal rows of a matrix, found once: observations with equal covariates must tie exactly, whatever is done to them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["DistinctRows", "distinct_rows"]

FEW = 16  # columns, which mostly tell rows apart


@dataclass(frozen=True, eq=False)
class DistinctRows:
    """The distinct rows of a matrix.

    Attributes
    ----------
    first
        Index of the first occurrence of each distinct row, shape (m,).
    place
        For every row, which of the distinct ones it is, shape (n,).
    """

    first: NDArray[np.intp]
    place: NDArray[np.intp]

    @property
    def none_repeat(self) -> bool:
        return self.first.size == self.place.size


def distinct_rows(matrix: NDArray[np.float64]) -> DistinctRows:
    """Group equal rows of a finite ``matrix[n, d]``, in the order in which they first occur.

    Examples
    --------
    >>> distinct_rows(np.array([[1.0, 2.0], [0.0, 0.0], [1.0, 2.0], [-0.0, 0.0]])).place
    array([0, 1, 0, 1])
    """
    if matrix.shape[1] == 0:
        return DistinctRows(np.zeros(min(1, len(matrix)), dtype=np.intp), np.zeros(len(matrix), dtype=np.intp))
    rows = np.ascontiguousarray(matrix) + 0.0  # a negative zero becomes a zero, so that equal rows have equal bytes
    mixed = np.zeros(len(rows))  # equal rows have equal sums, to the bit: column by column, not by a matrix product
    columns = rows.shape[1]
    for part in (range(min(FEW, columns)), range(FEW, columns)):
        with np.errstate(over="ignore", invalid="ignore"):
            for k in part:
                mixed += math.cos(k + 1.0) * rows[:, k]
        ordered = np.sort(mixed)
        if np.isfinite(ordered[[0, -1]]).all() and (ordered[1:] != ordered[:-1]).all():
            every = np.arange(len(rows), dtype=np.intp)
            return DistinctRows(every, every)
    as_bytes = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    _, first, place = np.unique(as_bytes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(order.size, dtype=np.intp)
    rank[order] = np.arange(order.size)
    return DistinctRows(first[order], rank[place.reshape(-1)])
