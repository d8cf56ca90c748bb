"""Newton's steps for the mean of q, its precision being known from elsewhere: how a fit gets near its fixed point.

With many observations q is so narrow that the expected risk is all but quadratic over several of its widths, and its
curvature is known from a share of the data. Then a sweep says how far the mean is off, V (r - Q m), to a tenth, and two
or three of them lead from several posterior standard deviations to some hundredths. The precision is left alone
meanwhile: far from the fixed point the sums of the sites are no density.

*Length.* Where rankings depend on the direction of w alone, pairs say nothing of its length, and by far the widest
direction of q is that of its mean: w = (1 + e) m + v, with e of variance 1 / m'Qm and v independent of it. So steps
keep the length of the mean, and what is uncertain about it goes along with the mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.ep.fixed_point import Pace
from pymc_pacauc.ep.gaussian_iteration import GaussianSweep
from pymc_pacauc.ep.natural import NaturalGaussian, natural_gaussian

__all__ = ["approach", "moved", "newton_step", "scaled"]

FloatArray = NDArray[np.float64]

MOST_STEPS = 6


class Natural(Protocol):
    """Natural parameters that a sweep finds, the prior's included."""

    @property
    def precision(self) -> FloatArray: ...
    @property
    def shift(self) -> FloatArray: ...


def approach(
    sweep: Callable[[NaturalGaussian, Pace], GaussianSweep],
    q: NaturalGaussian,
    near: float,
    scale_free: bool,
    most: int = MOST_STEPS,
) -> tuple[NaturalGaussian, list[GaussianSweep]]:
    """Move the mean of q until the next step is below ``near``, in standard deviations of q, or no step helps.

    There are at most so many sweeps. Returns where it got to, and what was seen on the way: at that point itself, last.
    """
    met: list[tuple[NaturalGaussian, GaussianSweep, float]] = []
    for _ in range(max(1, min(most, MOST_STEPS))):
        seen = sweep(q, Pace(1.0, 0))
        step = newton_step(q, seen, scale_free)
        met.append((q, seen, float(np.sqrt(np.mean((q.factor.T @ step) ** 2)))))
        if met[-1][2] < near or (len(met) > 1 and not met[-1][2] < met[-2][2]):
            break
        q = moved(q, step, scale_free)
    met.sort(key=lambda each: -each[2] if np.isfinite(each[2]) else -np.inf)
    return met[-1][0], [seen for _, seen, _ in met]


def newton_step(q: NaturalGaussian, seen: Natural, scale_free: bool) -> FloatArray:
    """V (r - Q m), V and m those of q and Q and r those of a sweep; the length of the mean stays if pairs ignore it."""
    step = q.covariance @ (seen.shift - seen.precision @ q.mean)
    square = float(q.mean @ q.mean)
    return step - q.mean * (q.mean @ step) / square if scale_free and square > 0.0 else step


def scaled(q: NaturalGaussian, factor: float, scale_free: bool) -> NaturalGaussian:
    """q with so many times its sites, about the same mean; the length, if pairs ignore it, as uncertain as it is.

    Examples
    --------
    >>> q = natural_gaussian(np.diag([2.0, 50.0]), np.array([4.0, 0.0]))
    >>> np.diagonal(scaled(q, 3.0, True).precision), np.diagonal(scaled(q, 3.0, False).precision)
    (array([  2., 150.]), array([  4., 148.]))
    """
    length = float(q.mean @ q.shift)
    if scale_free and length > 0.0:
        precision = factor * q.precision - (factor - 1.0) / length * np.outer(q.shift, q.shift)
        return natural_gaussian(precision, q.shift) or q
    prior = np.eye(q.mean.size)
    precision = prior + factor * (q.precision - prior)
    return natural_gaussian(precision, precision @ q.mean) or q


def moved(q: NaturalGaussian, step: FloatArray, scale_free: bool) -> NaturalGaussian:
    """q about another mean; what is uncertain about the length of the old one is so about that of the new one."""
    mean = q.mean + step
    precision, length, along = q.precision, float(q.mean @ q.shift), float(mean @ q.shift)
    if scale_free and length > 0.0 and along != 0.0:
        # The inverse of V + (m_ m_' - m m') / length, m_ the new mean.
        turned = precision @ mean
        turned -= 0.5 * (length + float(mean @ turned)) / along * q.shift
        precision = precision - (np.outer(turned, q.shift) + np.outer(q.shift, turned)) / along
    return natural_gaussian(precision, precision @ mean) or q
