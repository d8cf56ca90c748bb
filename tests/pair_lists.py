"""Every kind of comparison by brute force: a list of pairs (i, j, weight), i should score higher than j.

Two loops over observations and the definition of each kind; shares no code with the package.
"""

import numpy as np


def label_pairs(y, strata=None, weights=None):
    n = len(y)
    strata = np.zeros(n) if strata is None else strata
    weights = np.ones(n) if weights is None else weights
    found = [
        (i, j, weights[i] * weights[j]) for i in range(n) for j in range(n) if y[i] > y[j] and strata[i] == strata[j]
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


def _uncensored(time, codes, t, before=False):
    """P(censored after t), or not before t: the product over censoring times; of ties the event comes first."""
    value = 1.0
    for u in np.unique(time[(time < t) if before else (time <= t)]):
        at_risk = np.sum(time >= u) - np.sum((time == u) & (codes > 0))
        if at_risk:
            value *= 1 - np.sum((time == u) & (codes == 0)) / at_risk
    return value


def competing_pairs(time, codes, cause=1, tau=np.inf, ipcw=False):
    """Wolbers' pairs: of a competing event, earlier or later, the score should be lower."""
    found = []
    for i in np.flatnonzero((codes == cause) & (time < tau)):
        g, g_before = _uncensored(time, codes, time[i]), _uncensored(time, codes, time[i], before=True)
        for j in range(len(time)):
            other = codes[j] not in (0, cause)
            if time[j] > time[i] or (time[j] == time[i] and codes[j] == 0):
                found.append((i, j, 1 / (g_before * g) if ipcw else 1.0))
            elif other:
                found.append((i, j, 1 / (g_before * _uncensored(time, codes, time[j], before=True)) if ipcw else 1.0))
    return tuple(np.array(column) for column in zip(*sorted(found), strict=True))


def horizon_pairs(time, codes, horizon, cause=1):
    """Cumulative/dynamic: events of the cause until the horizon, against those free of it then."""
    found = []
    for i in np.flatnonzero((codes == cause) & (time <= horizon)):
        for j in range(len(time)):
            if time[j] > horizon:
                weight = 1 / _uncensored(time, codes, horizon)
            elif codes[j] not in (0, cause):
                weight = 1 / _uncensored(time, codes, time[j], before=True)
            else:
                continue
            found.append((i, j, weight / _uncensored(time, codes, time[i])))
    return tuple(np.array(column) for column in zip(*found, strict=True))


def under_observation(pairs, time, entry):
    """Those of the pairs whose second observation had entered when the event of the first one came."""
    i, j, w = pairs
    kept = entry[j] < time[i]
    return i[kept], j[kept], w[kept]


def class_pairs(y):
    """Hand and Till's pairs of K classes, of n K scores: that of class k and row i is number k n + i."""
    n, sizes = len(y), np.bincount(y)
    found = [
        (y[i] * n + i, y[i] * n + j, 1.0 / (sizes[y[i]] * sizes[y[j]]))
        for i in range(n)
        for j in range(n)
        if y[i] != y[j]
    ]
    return tuple(np.array(column) for column in zip(*found, strict=True))
