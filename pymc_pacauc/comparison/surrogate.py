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
    s_neg, pull = scores[negative], np.zeros(negative.size)
    # exp(-(s_i - s_j)) is a product of two factors: no exponential per pair, unless the factors overflow.
    centre = s_neg.mean()
    factors = np.exp(np.minimum(s_neg - centre, 300.0))
    safe = np.abs(s_neg - centre).max() < 300.0
    total = 0.0
    for k in range(positive.size):
        i, weight = positive[k], row_weights[k]
        margin = scores[i] - centre
        if safe and abs(margin) < 300.0:
            loss, push = _logistic_row(math.exp(-margin), factors, weight, column_weights, pull)
        else:
            loss, push = _logistic_row_careful(scores[i], s_neg, weight, column_weights, pull)
        total += weight * loss
        gradient[i] -= weight * push
    for k in range(negative.size):
        gradient[negative[k]] += column_weights[k] * pull[k]
    return total


@kernel(fastmath={"reassoc", "contract", "nsz", "arcp"})
def _logistic_row(factor, factors, weight, column_weights, pull):
    """Sum loss and gradient of one positive over all negatives, by products of exponentials."""
    loss = push = 0.0
    for j in range(factors.size):
        odds = factor * factors[j]
        wrong = odds / (1.0 + odds)
        loss += column_weights[j] * math.log1p(odds)
        push += column_weights[j] * wrong
        pull[j] += weight * wrong
    return loss, push


@kernel
def _logistic_row_careful(s, s_neg, weight, column_weights, pull):
    """Sum loss and gradient of one positive over all negatives by one exponential per pair, which cannot overflow."""
    loss = push = 0.0
    for j in range(s_neg.size):
        t = s - s_neg[j]
        small = math.exp(-abs(t))
        loss += column_weights[j] * (math.log1p(small) + max(-t, 0.0))
        wrong = (small if t > 0 else 1.0) / (1.0 + small)
        push += column_weights[j] * wrong
        pull[j] += weight * wrong
    return loss, push
