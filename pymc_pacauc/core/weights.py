"""Weights and resampling: the paper's appendix Algorithm 1, and the bisection of Algorithm 1(a).

A weighted population is carried by log-weights. ``-inf`` is a dead particle: it has weight zero, counts in the mean
that estimates the evidence, and is never resampled.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["effective_sample_size", "log_mean_exp", "next_temperature", "normalise", "systematic"]

FloatArray = NDArray[np.float64]


def log_mean_exp(log_weights: FloatArray) -> float:
    """log of the mean of the weights, without overflow."""
    top = float(log_weights.max())
    return top + float(np.log(np.mean(np.exp(log_weights - top))))


def normalise(log_weights: FloatArray) -> FloatArray:
    """Weights that sum to one."""
    weights = np.exp(log_weights - log_weights.max())
    total: FloatArray = weights / weights.sum()
    return total


def effective_sample_size(log_weights: FloatArray) -> float:
    """(sum w)^2 / sum w^2, between 1 and the number of particles.

    Examples
    --------
    >>> round(effective_sample_size(np.log([0.5, 0.5, 1e-300])), 6)
    2.0
    """
    weights = np.exp(log_weights - log_weights.max())
    return float(weights.sum() ** 2 / (weights @ weights))


def incremental_log_weights(log_tilt: FloatArray, increment: float) -> FloatArray:
    """``increment * log_tilt``, a dead particle staying dead even at increment zero."""
    alive = ~np.isneginf(log_tilt)
    return np.multiply(increment, log_tilt, where=alive, out=np.full_like(log_tilt, -np.inf))


def next_temperature(log_tilt: FloatArray, current: float, end: float, threshold: float) -> float:
    """Algorithm 1(a): the temperature at which the ESS falls to ``threshold`` times the living particles, or ``end``.

    The ESS falls as the temperature rises, so the root is bracketed by [current, end] and found by bisection.
    """
    goal = threshold * float(np.sum(~np.isneginf(log_tilt)))
    if effective_sample_size(incremental_log_weights(log_tilt, end - current)) >= goal:
        return end
    low, high = 0.0, end - current
    while high - low > 1e-9 * (end - current) and (middle := 0.5 * (low + high)) not in (low, high):
        if effective_sample_size(incremental_log_weights(log_tilt, middle)) >= goal:
            low = middle
        else:
            high = middle
    return current + (low if low > 0.0 else high)


def systematic(weights: FloatArray, size: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Ancestor indices: one uniform, ``size`` equally spaced pointers into the cumulated weights.

    Each particle is chosen ``size * weight`` times on average, rounded up or down.
    """
    cumulated = np.cumsum(weights)
    pointers = (rng.random() + np.arange(size)) * (cumulated[-1] / size)
    index = np.searchsorted(cumulated, pointers, side="right")
    last_alive = int(np.flatnonzero(weights)[-1])
    ancestors: NDArray[np.intp] = np.minimum(index, last_alive).astype(np.intp)
    return ancestors
