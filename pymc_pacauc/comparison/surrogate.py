"""A smooth surrogate of the AUC risk with its gradient, for NUTS and other gradient-based samplers.

A pair with margin ``t = s_i - s_j`` costs 1{t < 0} in the AUC risk, whose gradient is zero. Here it costs

    log2(1 + exp(-t)),

which is convex, equals 1 at t = 0 and is at least the AUC risk. :func:`surrogate_risk` returns the weighted mean over
pairs and its gradient in the scores, (n,), in O(n+ n-) time and O(n) memory.

Used by potentials with ``loss="logistic"``. To add a loss, write its sum over a block of pairs and the gradient of that
(``docs/how_to/extend.md``).

Reference: Clémençon, Lugosi & Vayatis (2008), doi:10.1214/009052607000000910, for convex losses of pairs.
"""

from __future__ import annotations

import math

import numpy as np

from pymc_pacauc.comparison.pairs import Pairs
from pymc_pacauc.numerics import FloatArray, kernel


def surrogate_risk(scores: FloatArray, pairs: Pairs) -> tuple[float, FloatArray]:
    """Compute the weighted mean loss of ``scores[n]`` over ``pairs``, and its gradient; NaN unless all are finite."""
    gradient = np.zeros(scores.size)
    if not np.isfinite(scores).all():
        return float("nan"), np.full(scores.size, np.nan)
    total = 0.0
    for block in pairs.blocks:
        rows, columns = block.row_weights, block.column_weights
        total += _logistic_block(scores, block.positive, block.negative, rows, columns, gradient)
    scale = pairs.total_weight * math.log(2.0)
    return total / scale, gradient / scale


@kernel
def _logistic_block(scores, positive, negative, row_weights, column_weights, gradient):
    """Sum w_ij log(1 + exp(-(s_i - s_j))) over a block; its gradient is added to ``gradient``, (n,)."""
    total = 0.0
    for k in range(positive.size):
        i, weight = positive[k], row_weights[k]
        loss = push = 0.0
        for m in range(negative.size):
            j = negative[m]
            margin = scores[i] - scores[j]
            small = math.exp(-abs(margin))  # of the negative absolute value, which cannot overflow
            wrong = column_weights[m] * (small if margin > 0 else 1.0) / (1.0 + small)
            loss += column_weights[m] * (math.log1p(small) + max(-margin, 0.0))
            push += wrong
            gradient[j] += weight * wrong
        total += weight * loss
        gradient[i] -= weight * push
    return total
