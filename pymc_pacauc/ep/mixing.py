"""Anderson mixing: the step that would have annulled the residual to first order, judging by the last few steps.

A fixed-point map sends a point x to x + f. From the last points reached, g = x + f, and their residuals, weighed by a
metric, the mixed step is f - sum_j c_j (change of g)_j with c the least-squares solution of (changes of f) c = f: the
"type II" method of Walker & Ni (2011, doi:10.1137/10078356X).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

__all__ = ["MixingHistory", "mixed_step"]

FloatArray = NDArray[np.float64]

SMALLEST_SINGULAR = 1e-8  # relative, in the least squares
LONG = 4096  # columns


@dataclass(frozen=True, eq=False)
class MixingHistory:
    """The point last reached and its weighed residual, and differences of such points and residuals, oldest first."""

    last: tuple[FloatArray, FloatArray] | None = None
    moves: tuple[FloatArray, ...] = ()
    changes: tuple[FloatArray, ...] = ()


def mixed_step(
    history: MixingHistory, point: FloatArray, plain: FloatArray, weighed: FloatArray, memory: int
) -> tuple[FloatArray, MixingHistory]:
    """The accelerated step from ``point``, given the plain one, also in the metric of the least squares; and with it
    the history, of at most ``memory`` differences.
    """
    reached = point + plain
    if history.last is None:
        return plain, MixingHistory((reached, weighed))
    moves = (*history.moves, reached - history.last[0])[-memory:]
    changes = (*history.changes, weighed - history.last[1])[-memory:]
    mix = _least_squares(changes, weighed)
    step = plain.copy()
    for share, move in zip(mix, moves, strict=True):
        step = linalg.blas.daxpy(move, step, a=-share)  # in place
    return step, MixingHistory((reached, weighed), moves, changes)


def _least_squares(columns: tuple[FloatArray, ...], target: FloatArray) -> FloatArray:
    """Of long columns by the normal equations, scaled to length one: half the digits, a tenth of the time."""
    if target.size < LONG:
        A = np.array(columns).T
        found = linalg.lstsq(A, target, cond=SMALLEST_SINGULAR, overwrite_a=True, check_finite=False)[0]
        return np.asarray(found)
    gram = np.zeros((len(columns), len(columns)))
    for i, a in enumerate(columns):
        for j in range(i + 1):
            gram[i, j] = gram[j, i] = a @ columns[j]
    right = np.array([a @ target for a in columns])
    lengths = np.sqrt(np.maximum(np.diagonal(gram), np.finfo(float).tiny))
    values, vectors = linalg.eigh(gram / np.outer(lengths, lengths), check_finite=False)
    kept = values > SMALLEST_SINGULAR * values[-1]
    vectors = vectors[:, kept] / lengths[:, None]
    return np.asarray(vectors @ ((vectors.T @ right) / values[kept]))
