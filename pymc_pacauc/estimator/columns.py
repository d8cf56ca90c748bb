"""Columns of X as the prior sees them: centred at the training rows and, where asked for, on one scale.

A prior that gives every coefficient the same variance means something only where the columns have the same scale. The
centre is taken away in any case: a constant in all scores changes no ranking, and with it the spread of a score is that
of its difference from the average training row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler

__all__ = ["Columns", "learn_columns"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Columns:
    """``(X - center) / scale``."""

    center: FloatArray
    scale: FloatArray

    def apply(self, X: FloatArray) -> FloatArray:
        return (X - self.center) / self.scale


def learn_columns(X: FloatArray, sample_weight: FloatArray | None, standardize: Any) -> Columns:
    """Centre and scale of these rows, a row of weight 2 counting as two; that of a constant column is its size."""
    size = np.maximum(X.max(axis=0), -X.min(axis=0))
    unit = np.ldexp(1.0, np.frexp(size)[1] - 1)  # a power of two, which changes no digit: no square overflows
    scaler = StandardScaler(with_std=bool(standardize)).fit(X / unit, sample_weight=sample_weight)
    return Columns(unit * scaler.mean_, np.ones(X.shape[1]) if scaler.scale_ is None else unit * scaler.scale_)
