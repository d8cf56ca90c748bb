"""Every kind of comparison by brute force: a list of pairs (i, j, weight), i should score higher than j.

Two loops over observations and the definition of each kind; shares no code with the package.
"""

import numpy as np


def label_pairs(y, strata=None, weights=None, class_weights=None):
    n = len(y)
    strata = np.zeros(n) if strata is None else strata
    weights = np.ones(n) if weights is None else weights
    found = [
        (i, j, weights[i] * weights[j] * (class_weights or {}).get((y[i], y[j]), 1.0))
        for i in range(n)
        for j in range(n)
        if y[i] > y[j] and strata[i] == strata[j]
    ]
    return tuple(np.array(column) for column in zip(*found, strict=True))


def censored_pairs(time, event, strata=None, weights=None, tau=np.inf, row_weights=None):
    n = len(time)
    strata = np.zeros(n) if strata is None else strata
    weights = np.ones(n) if weights is None else weights
    row_weights = np.ones(n) if row_weights is None else row_weights
    found = [
        (i, j, weights[i] * weights[j] * row_weights[i])
        for i in range(n)
        for j in range(n)
        if event[i]
        and time[i] < tau
        and (time[j] > time[i] or (time[j] == time[i] and not event[j]))
        and strata[i] == strata[j]
    ]
    return tuple(np.array(column) for column in zip(*found, strict=True))


def listed_risk(scores, listed, ties="half"):
    i, j, w = listed
    cost = (scores[i] < scores[j]) + (0.5 if ties == "half" else 0.0) * (scores[i] == scores[j])
    return np.sum(w * cost) / np.sum(w)


def listed(pairs):
    """What blocks stand for, sorted."""
    found = [
        (i, j, block.weight * a * b)
        for block in pairs.blocks
        for i, a in zip(block.positive, block.row_weights / block.weight, strict=True)
        for j, b in zip(block.negative, block.column_weights, strict=True)
    ]
    return tuple(np.array(column) for column in zip(*sorted(found), strict=True))
