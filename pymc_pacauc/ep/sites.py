"""The site of one pair, as a function of a single number.

Under q, the score difference of a pair is s ~ N(mu, v). Its factor exp(-gamma' 1{s < 0}) is approximated by the site
exp(-K s^2 / 2 + h s). EP asks that the *tilted* distribution, cavity times factor, have the moments mu and v of q, the
cavity being q without the site. Write the cavity as N(z sqrt(v_), v_); then with

    Z(z) = e^-gamma' + (1 - e^-gamma') Phi(z),    g(z) = (1 - e^-gamma') phi(z) / Z(z),    b(z) = g (z + g)

the tilted mean and variance are sqrt(v_) (z + g) and v_ (1 - b), so that

    rho = mu / sqrt(v) = (z + g) / sqrt(1 - b)

depends on z alone, and increases with it. Given q the site is therefore unique, needs no memory of its past, and its
parameters are functions of rho:

    K = b / v,     h = c / sqrt(v),   c = (g + z b) / sqrt(1 - b),
    log C = log Z - log(1 - b) / 2 - (rho^2 - z^2) / 2.

K is negative for most misranked pairs (the factor is not log-concave) and stays so: nothing is clipped.

*Power EP* with power alpha replaces the factor by its alpha-th power, and site and log C by 1/alpha of what comes out.
In the limit alpha -> 0 the sites are those of the best Gaussian in the sense of KL(q, posterior), variational Bayes:
b = gamma' rho phi(rho), c = gamma' (1 + rho^2) phi(rho).

As b, c, log C and Phi(-rho) are smooth functions on a line, they are tabulated once per fit as piecewise polynomials
(to 1e-12), and a pair costs a square root, a division and a few multiplications: no transcendental function at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

__all__ = ["SiteFunctions", "SiteTable", "site_functions", "site_table"]

FloatArray = NDArray[np.float64]

DEGREE = 5
UPPER = 9.5  # phi(9.5) is 1e-20
LARGEST_GAMMA = 50.0


@dataclass(frozen=True, eq=False)
class SiteFunctions:
    """Values at given rho: ``K v``, ``h sqrt(v)``, the probability under q that the pair is wrong, and ``log C``."""

    precision: FloatArray
    shift: FloatArray
    wrong: FloatArray
    log_constant: FloatArray


@dataclass(frozen=True, eq=False)
class SiteTable:
    """The site functions on intervals of length ``1 / per_unit`` from ``lower`` on.

    ``coefficients[interval, function, power]``, functions in the order of :class:`SiteFunctions`, in powers of the
    position within the interval, from -1/2 to 1/2. ``log_constant_at_zero`` is log C at rho = 0.
    """

    gamma: float
    power: float
    lower: float
    per_unit: float
    coefficients: FloatArray
    log_constant_at_zero: float


def site_functions(rho: FloatArray, gamma: float, power: float = 1.0) -> SiteFunctions:
    """Site of a pair of inverse temperature ``gamma`` whose score difference has mean / sd = ``rho`` under q.

    ``power`` is that of power EP: 1 for EP, 0 for variational Bayes.
    """
    wrong = ndtr(-rho)
    if power == 0.0:
        phi = _phi(rho)
        precision, shift = gamma * rho * phi, gamma * (1.0 + rho * rho) * phi
        log_constant = -gamma * wrong + 0.5 * precision * (1.0 + rho * rho) - shift * rho
        return SiteFunctions(precision, shift, wrong, log_constant)
    z = _cavity(rho, gamma * power)
    g, b, log_z = _tilt(z, gamma * power)
    root = np.sqrt(1.0 - b)
    log_constant = log_z - 0.5 * np.log1p(-b) - 0.5 * _excess(z, g, b) * (rho + z)
    return SiteFunctions(b / power, (g + z * b) / root / power, wrong, log_constant / power)


@lru_cache(maxsize=64)
def site_table(gamma: float, power: float = 1.0) -> SiteTable:
    """Tabulate :func:`site_functions` by Chebyshev interpolation on small intervals."""
    if gamma * power > LARGEST_GAMMA:
        raise ValueError(
            f"gamma is {gamma:.3g} per pair: beyond {LARGEST_GAMMA:g} a wrong pair is all but forbidden, which no "
            "Gaussian site can represent. Lower gamma (it is usually of the order of the number of observations)."
        )
    per_unit = 16 if gamma * power < 0.5 else 64  # large sites are sharper, and then there are few of them
    lower = -math.ceil(math.sqrt(2.0 * gamma * power + UPPER**2))
    intervals = math.ceil((UPPER - lower) * per_unit)
    nodes = 0.5 * chebyshev.chebpts1(DEGREE + 1)
    rho = lower + (np.arange(intervals)[:, None] + 0.5 + nodes) / per_unit
    functions = site_functions(rho.ravel(), gamma, power)
    values = np.stack([functions.precision, functions.shift, functions.wrong, functions.log_constant])
    to_monomial = np.linalg.inv(np.vander(nodes, increasing=True))
    fitted = values.reshape(4, intervals, DEGREE + 1) @ to_monomial.T
    return SiteTable(
        gamma=gamma,
        power=power,
        lower=float(lower),
        per_unit=float(per_unit),
        coefficients=np.ascontiguousarray(fitted.transpose(1, 0, 2)),
        log_constant_at_zero=float(site_functions(np.zeros(1), gamma, power).log_constant[0]),
    )


def _phi(z: FloatArray) -> FloatArray:
    return np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)


def _tilt(z: FloatArray, gamma: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """g, b and log Z of a standardised cavity."""
    loss = -math.expm1(-gamma)  # 1 - e^-gamma
    log_z = np.log1p(-loss * ndtr(-z)) if gamma < 1.0 else np.logaddexp(-gamma, math.log(loss) + log_ndtr(z))
    g = loss * np.exp(-0.5 * z * z - 0.5 * math.log(2.0 * math.pi) - log_z)
    return g, g * (z + g), log_z


def _excess(z: FloatArray, g: FloatArray, b: FloatArray) -> FloatArray:
    """rho - z, without the cancellation when gamma is tiny."""
    return z * np.expm1(-0.5 * np.log1p(-b)) + g / np.sqrt(1.0 - b)


def _cavity(rho: FloatArray, gamma: float) -> FloatArray:
    """Solve rho(z) = rho: interpolation on a grid, then Newton."""
    grid = np.linspace(rho.min() - 2.0, rho.max() + 1.0, 4096)
    g, b, _ = _tilt(grid, gamma)
    z = np.interp(rho, grid + _excess(grid, g, b), grid)
    for _ in range(5):
        g, b, _ = _tilt(z, gamma)
        slope_b = g * (1.0 - b) - b * (z + g)
        slope = np.sqrt(1.0 - b) + 0.5 * (z + g) * slope_b / (1.0 - b) ** 1.5
        z = z - (z + _excess(z, g, b) - rho) / slope
    return z
