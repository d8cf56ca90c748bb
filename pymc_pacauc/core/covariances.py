"""Stationary covariance functions by name, with their slope, as functions of the squared scaled distance

    s(x, x') = sum_j ((x_j - x'_j) / lengthscale_j)^2.

All have variance 1 at distance 0: a ranking does not see the scale of the scores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist, pdist

__all__ = ["COVARIANCES", "Covariance", "median_distance"]

FloatArray = NDArray[np.float64]

MEDIAN_ROWS = 1000


@dataclass(frozen=True, eq=False)
class Covariance:
    """``value(s)`` and its derivative ``slope(s)`` in the squared scaled distance."""

    value: Callable[[FloatArray], FloatArray]
    slope: Callable[[FloatArray], FloatArray]

    def __call__(self, X: FloatArray, others: FloatArray) -> FloatArray:
        """Between the rows of two matrices, already divided by the lengthscales."""
        return self.value(cdist(X, others, "sqeuclidean"))

    def diag(self, X: FloatArray) -> FloatArray:
        return np.ones(len(X))


def _squared_exponential(s: FloatArray) -> FloatArray:
    return np.exp(-0.5 * s)


def _slope_of_squared_exponential(s: FloatArray) -> FloatArray:
    return -0.5 * np.exp(-0.5 * s)


def _matern32(s: FloatArray) -> FloatArray:
    a = np.sqrt(3.0 * s)
    return (1.0 + a) * np.exp(-a)


def _slope_of_matern32(s: FloatArray) -> FloatArray:
    return -1.5 * np.exp(-np.sqrt(3.0 * s))


def _matern52(s: FloatArray) -> FloatArray:
    a = np.sqrt(5.0 * s)
    return (1.0 + a + a**2 / 3.0) * np.exp(-a)


def _slope_of_matern52(s: FloatArray) -> FloatArray:
    a = np.sqrt(5.0 * s)
    return -5.0 / 6.0 * (1.0 + a) * np.exp(-a)


COVARIANCES = {
    "squared_exponential": Covariance(_squared_exponential, _slope_of_squared_exponential),
    "matern52": Covariance(_matern52, _slope_of_matern52),
    "matern32": Covariance(_matern32, _slope_of_matern32),
}


def median_distance(X: FloatArray) -> float:
    """The median distance between different rows, of at most ``MEDIAN_ROWS`` of them, evenly spread.

    >>> median_distance(np.array([[0.0], [1.0], [1.0], [4.0]]))
    3.0
    """
    some = X[np.unique(np.linspace(0, len(X) - 1, MEDIAN_ROWS).astype(int))]
    distances = pdist(some)
    apart = distances[distances > 0.0]
    if not apart.size:
        raise ValueError("All rows of X are equal: there is no distance to take a lengthscale from.")
    return float(np.median(apart))
