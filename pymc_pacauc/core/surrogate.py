"""Smooth stand-ins for the AUC risk, with their gradients.

A pair with margin ``t = s_i - s_j`` costs 1{t < 0} in the AUC risk, which has no useful gradient. Here it costs

    logistic : log2(1 + exp(-t))      smooth; every pair is visited, in O(n) memory
    hinge    : max(0, 1 - t)          piecewise linear; O(n log n) by sorting

Both are convex, equal 1 at t = 0 and never below the AUC risk. The hinge is the loss of PACVB (Alquier, Ridgway and
Chopin 2016). Each function returns the mean over pairs and its gradient with respect to the scores.
"""

from __future__ import annotations

import math

import numpy as np

from pymc_pacauc.core.kernels import kernel

__all__ = ["LOSSES", "hinge_risk", "logistic_risk"]

LOG2 = math.log(2.0)


@kernel
def logistic_risk(scores, labels):
    """Mean of log2(1 + exp(-(s_i - s_j))) over positive i and negative j, and its gradient; labels > 0 are positive."""
    if labels.size != scores.size:
        raise ValueError("scores and labels have different lengths.")
    positive, negative = np.flatnonzero(labels > 0), np.flatnonzero(labels <= 0)
    gradient = np.zeros(scores.size)
    pairs = positive.size * negative.size
    if pairs == 0 or not np.isfinite(scores).all():
        return np.nan, np.full(scores.size, np.nan)
    s_neg, pull = scores[negative], np.zeros(negative.size)
    # exp(-(s_i - s_j)) is a product of two factors, so a pair needs no exponential of its own, unless they overflow.
    centre = s_neg.mean()
    factors = np.exp(np.minimum(s_neg - centre, 300.0))
    safe = np.abs(s_neg - centre).max() < 300.0
    total = 0.0
    for i in positive:
        margin = scores[i] - centre
        if safe and abs(margin) < 300.0:
            loss, push = _logistic_row(math.exp(-margin), factors, pull)
        else:
            loss, push = _logistic_row_careful(scores[i], s_neg, pull)
        total += loss
        gradient[i] = -push
    gradient[negative] = pull
    return total / (LOG2 * pairs), gradient / (LOG2 * pairs)


@kernel(fastmath={"reassoc", "contract", "nsz", "arcp"})
def _logistic_row(factor, factors, pull):
    loss = push = 0.0
    for j in range(factors.size):
        odds = factor * factors[j]
        wrong = odds / (1.0 + odds)
        loss += math.log1p(odds)
        push += wrong
        pull[j] += wrong
    return loss, push


@kernel
def _logistic_row_careful(s, s_neg, pull):
    loss = push = 0.0
    for j in range(s_neg.size):
        t = s - s_neg[j]
        small = math.exp(-abs(t))
        loss += math.log1p(small) + max(-t, 0.0)
        wrong = (small if t > 0 else 1.0) / (1.0 + small)
        push += wrong
        pull[j] += wrong
    return loss, push


@kernel
def hinge_risk(scores, labels):
    """Mean of max(0, 1 - (s_i - s_j)) over positive i and negative j, and its gradient; labels > 0 are positive."""
    if labels.size != scores.size:
        raise ValueError("scores and labels have different lengths.")
    positive, negative = np.flatnonzero(labels > 0), np.flatnonzero(labels <= 0)
    gradient = np.zeros(scores.size)
    p, m = positive.size, negative.size
    if p * m == 0 or not np.isfinite(scores).all():
        return np.nan, np.full(scores.size, np.nan)
    positive = positive[np.argsort(scores[positive])]
    negative = negative[np.argsort(scores[negative])]
    total = 0.0
    active, above = 0, 0.0  # negatives with s_j > s_i - 1, and the sum of their scores
    for k in range(p - 1, -1, -1):  # the highest positive has the fewest active negatives: walk downwards
        s = scores[positive[k]]
        while active < m and scores[negative[m - 1 - active]] > s - 1.0:
            above += scores[negative[m - 1 - active]]
            active += 1
        total += active * (1.0 - s) + above
        gradient[positive[k]] = -active
    active = 0
    for k in range(m):  # positives with s_i < s_j + 1
        s = scores[negative[k]]
        while active < p and scores[positive[active]] < s + 1.0:
            active += 1
        gradient[negative[k]] = active
    return total / (p * m), gradient / (p * m)


LOSSES = {"logistic": logistic_risk, "hinge": hinge_risk}
