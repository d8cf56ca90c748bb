"""Weights that undo censoring (Uno, Cai, Pencina, D'Agostino and Wei, 2011).

Harrell's concordance compares an event with whoever is still followed then, and so estimates a quantity that depends
on the censoring. Weighting every event at time t by 1 / G(t)^2, G(t) = P(censored after t), estimates
P(score_i > score_j | t_i < t_j, t_i < tau) instead, if censoring is independent of times and scores. G is estimated by
Kaplan and Meier with the roles of event and censoring exchanged; of an event and a censoring at one time, the event
came first.

With strata, every stratum has a G of its own. Pairs are within strata, so independence within strata is then enough:
hospitals may follow their patients for different times. (R's ``survival::concordance`` does the same; scikit-survival
and lifelines have no Uno's C with strata.) It needs strata with more than a handful of observations; for many small
ones, say matched pairs, compare by Harrell's C.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.core.kaplan_meier import product_limit

__all__ = ["censoring_survival", "ipcw"]

FloatArray = NDArray[np.float64]

LEAST_FOLLOWED = 0.01  # the smallest G: what Uno's C says of later times rests on a handful of events


def censoring_survival(time: FloatArray, event: NDArray[np.bool_]) -> FloatArray:
    """Kaplan and Meier's estimate of P(C > t) at each of the times given.

    Examples
    --------
    >>> censoring_survival(np.array([1.0, 2.0, 2.0, 3.0]), np.array([True, True, False, True]))
    array([1. , 0.5, 0.5, 0.5])
    """
    _, place = np.unique(time, return_inverse=True)
    events, censored = np.bincount(place, event), np.bincount(place, ~event)
    at_risk = time.size - np.concatenate([[0], np.cumsum(events + censored)[:-1]]) - events
    return product_limit(at_risk, censored)[place.reshape(-1)]


def ipcw(time: FloatArray, event: NDArray[np.bool_], used: NDArray[np.bool_]) -> FloatArray:
    """1 / G(t)^2 of the events ``used``, and 0 for everyone else; an error where that explodes."""
    survival = censoring_survival(time, event)
    lost = used & (survival < LEAST_FOLLOWED)
    if lost.any():
        raise ValueError(
            f"Inverse censoring weights explode for {int(lost.sum())} event(s) from time {time[lost].min():g} on: less "
            f"than {LEAST_FOLLOWED:.0%} would be followed longer than that, so that one event weighs as much as "
            f"{LEAST_FOLLOWED**-2:g} or more others. Compare earlier events only, for example tau={time[lost].min():g}."
        )
    weights = np.zeros(time.size)
    weights[used] = survival[used] ** -2.0
    return weights
