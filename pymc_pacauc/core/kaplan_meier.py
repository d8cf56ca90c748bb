"""Kaplan and Meier's product-limit estimate: the share without an event, from times some of which are censored.

Among those still followed at an event time, the share that has its event then is known whoever was censored before;
one minus these shares, multiplied up, is the estimate. Of an event and a censoring at one time the event came first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

__all__ = ["SurvivalCurve", "product_limit", "survival_curve"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SurvivalCurve:
    """The estimate at each distinct ``time``, from which on it holds, with the ``at_risk`` of that time.

    ``log_variance`` is Greenwood's variance of log ``survival``; infinite where nobody is left.
    """

    time: FloatArray
    survival: FloatArray
    at_risk: FloatArray
    log_variance: FloatArray

    def interval(self, ci_prob: float) -> tuple[FloatArray, FloatArray]:
        """Pointwise, symmetric on the scale of log(-log S), so that it stays within (0, 1).

        Before the first event it is 1 to 1, where nobody is left NaN: this formula has nothing to say there.
        """
        if not 0.0 < ci_prob < 1.0:
            raise ValueError(f"ci_prob must lie strictly between 0 and 1; got {ci_prob!r}.")
        with np.errstate(divide="ignore", invalid="ignore"):
            log = np.log(self.survival)
            half = ndtri(0.5 + 0.5 * ci_prob) * np.sqrt(self.log_variance) / -log
            lower, upper = np.exp(log * np.exp(half)), np.exp(log * np.exp(-half))
        none_yet = self.survival == 1.0
        return np.where(none_yet, 1.0, lower), np.where(none_yet, 1.0, upper)


def survival_curve(time: FloatArray, event: NDArray[np.bool_]) -> SurvivalCurve:
    """Share without event after each of the distinct times.

    Examples
    --------
    >>> survival_curve(np.array([1.0, 2.0, 2.0, 3.0]), np.array([True, True, False, True])).survival
    array([0.75, 0.5 , 0.  ])
    """
    at, place = np.unique(time, return_inverse=True)
    events, leaving = np.bincount(place, event), np.bincount(place)
    at_risk = time.size - np.concatenate([[0.0], np.cumsum(leaving)[:-1]])
    share = np.zeros(at.size)
    with np.errstate(divide="ignore"):
        np.divide(events, at_risk * (at_risk - events), out=share, where=events > 0)
    return SurvivalCurve(at, product_limit(at_risk, events), at_risk, np.cumsum(share))


def product_limit(at_risk: NDArray[Any], leaving: NDArray[Any]) -> FloatArray:
    """Running product of 1 - leaving / at_risk; a time at which nobody is at risk changes nothing."""
    step = np.ones(at_risk.size)
    np.divide(at_risk - leaving, at_risk, out=step, where=at_risk > 0)
    return np.asarray(np.cumprod(step))
