"""Numbers as they are given, turned into arrays of float64 or refused in words."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["number_vector", "numeric_array"]

FloatArray = NDArray[np.float64]


def numeric_array(name: str, values: ArrayLike) -> FloatArray:
    """``values`` as an array of float64, or a ValueError that names the argument.

    Masked values, complex numbers, dates and strings have no place among float64, and are refused. Missing values of
    pandas (NA, None) are NaN.
    """
    if np.ma.is_masked(values):
        raise ValueError(f"{name} has {np.ma.count_masked(values)} masked value(s); impute or drop them first.")
    try:
        given = np.asarray(values)
        strings = given.dtype == object and any(isinstance(value, (str, bytes)) for value in given.flat)
        if strings or given.dtype.kind not in "biufO":
            raise TypeError(f"its type is {'a string' if strings else given.dtype}")
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must be a rectangular array of numbers: {error}") from error


def number_vector(name: str, values: ArrayLike, what: str) -> FloatArray:
    """A vector of finite numbers, or a ValueError that says ``what`` was expected."""
    try:
        array = numeric_array(name, values)
    except ValueError as error:
        raise ValueError(f"{error} ({what}).") from error
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must be a vector, {what}; got shape {array.shape}.")
    bad = int(np.sum(~np.isfinite(array)))
    if bad:
        raise ValueError(f"{name} has {bad} NaN or infinite value(s) out of {array.size}: {what}.")
    return array
