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

*Power EP* (Minka 2004) with power alpha replaces the factor by its alpha-th power, and site and log C by 1/alpha of
what comes out. In the limit alpha -> 0 the sites are those of the best Gaussian in the sense of KL(q, posterior),
variational Bayes: b = gamma' rho phi(rho), c = gamma' (1 + rho^2) phi(rho).

As b, c, log C and Phi(-rho) are smooth functions on a line, they are tabulated once per fit as piecewise polynomials
(to 1e-11; to 1e-7 at the largest gamma'), and a pair costs a square root, a division and a few multiplications: no
transcendental function at all.

To add a kind of site, write its :class:`SiteFunctions` of rho (K v, h sqrt(v), E_q[cost] and log C) and tabulate them:
the sweep evaluates tables, and knows nothing else about sites.

*Weights.* Pairs that weigh differently have different gamma'. Divided by gamma', b, c and log C are smooth functions of
(rho, gamma'), down to gamma' = 0, where they are those of variational Bayes; and nearly polynomials in gamma', since
their nearest singularity is far away. So they are tabulated as polynomials in both (:func:`weighted_site_table`), of as
low a degree in gamma' as 1e-12 allows: 3 or 4 where gamma' is some hundredths, as it is for hundreds of observations. A
pair with gamma' above 1/2, of which there are at most 2 gamma because all gamma' add up to gamma, has no table and is
computed by itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

__all__ = [
    "SiteFunctions",
    "SiteTable",
    "WeightedSiteTable",
    "check_gamma_per_pair",
    "fine_site_table",
    "lowest_rho",
    "site_functions",
    "site_table",
    "weighted_site_table",
]

FloatArray = NDArray[np.float64]

DEGREE = 5
FINE_DEGREE, FINE_PER_UNIT = 2, 64.0
UPPER = 9.5  # phi(9.5) is 1e-20
LARGEST_GAMMA = 50.0
LARGEST_TABULATED = 0.5  # of pairs with weights
RATE = 16.0  # by which the error of interpolating in gamma' falls with every degree, at gamma' = 1
WEIGHTED_ERROR = 3e-12


@dataclass(frozen=True, eq=False)
class SiteFunctions:
    """Values at given rho: ``K v``, ``h sqrt(v)``, the probability under q that the pair is wrong, and ``log C``."""

    precision: FloatArray
    shift: FloatArray
    wrong: FloatArray
    log_constant: FloatArray


@dataclass(frozen=True, eq=False)
class SiteTable:
    """The site functions of one gamma, on intervals of length ``1 / per_unit`` from ``lower`` on.

    It is worked out when it is first looked at: pairs that all have other weights never do.
    """

    gamma: float
    power: float

    @property
    def lower(self) -> float:
        return lowest_rho(self.gamma, self.power)

    @property
    def per_unit(self) -> float:
        sharp = self.gamma * self.power  # large sites are sharper, and then there are few of them
        return 16.0 if sharp < 0.5 else 64.0 if sharp < 5.0 else 256.0

    @cached_property
    def coefficients(self) -> FloatArray:
        """``coefficients[interval, function, power]``, functions in the order of :class:`SiteFunctions`, in powers of
        the position within the interval, from -1/2 to 1/2.
        """
        check_gamma_per_pair(self.gamma, self.power)
        rho, to_monomial = _nodes(self.lower, self.per_unit)
        f = site_functions(rho.ravel(), self.gamma, self.power)
        values = np.stack([f.precision, f.shift, f.wrong, f.log_constant]).reshape(4, *rho.shape)
        return np.ascontiguousarray((values @ to_monomial.T).transpose(1, 0, 2))

    @cached_property
    def log_constant_at_zero(self) -> float:
        """log C at rho = 0."""
        return float(site_functions(np.zeros(1), self.gamma, self.power).log_constant[0])

    def times(self, weight: float) -> SiteTable:
        """The table of pairs with this weight."""
        return self if weight == 1.0 else site_table(self.gamma * weight, self.power)


@dataclass(frozen=True, eq=False)
class WeightedSiteTable:
    """The site functions over gamma' for gamma' from ``middle - 1 / (2 scale)`` to ``largest``.

    ``coefficients[interval, degree, function, power]``: functions are precision, shift and log constant, ``degree``
    counts powers of ``scale * (gamma' - middle)``; ``wrong[interval, power]`` does not depend on gamma'.
    """

    largest: float
    middle: float
    scale: float
    lower: float
    per_unit: float
    coefficients: FloatArray
    wrong: FloatArray


def site_functions(rho: FloatArray, gamma: float | FloatArray, power: float = 1.0) -> SiteFunctions:
    """Site of a pair of inverse temperature ``gamma`` whose score difference has mean / sd = ``rho`` under q.

    ``power`` is that of power EP: 1 for EP, 0 for variational Bayes. ``gamma`` is one number, or one for each ``rho``.
    """
    wrong = ndtr(-rho)
    if power == 0.0:
        phi = _phi(rho)
        precision, shift = gamma * rho * phi, gamma * (1.0 + rho * rho) * phi
        log_constant = -gamma * wrong + 0.5 * precision * (1.0 + rho * rho) - shift * rho
        return SiteFunctions(precision, shift, wrong, log_constant)
    z = _cavities(rho, gamma * power) if isinstance(gamma, np.ndarray) else _cavity(rho, gamma * power)
    g, b, log_z = _tilt(z, gamma * power)
    root = np.sqrt(1.0 - b)
    log_constant = log_z - 0.5 * np.log1p(-b) - 0.5 * _excess(z, g, b) * (rho + z)
    return SiteFunctions(b / power, (g + z * b) / root / power, wrong, log_constant / power)


@lru_cache(maxsize=256)
def site_table(gamma: float, power: float = 1.0) -> SiteTable:
    """Tabulate :func:`site_functions` by Chebyshev interpolation on small intervals."""
    return SiteTable(gamma, power)


@lru_cache(maxsize=16)
def weighted_site_table(smallest: float, largest: float, power: float = 1.0) -> WeightedSiteTable:
    """Tabulate :func:`site_functions` for all gamma' in [smallest, largest], or as many as there is a table for."""
    check_gamma_per_pair(largest, power)
    if power > 0.0:
        largest = min(largest, LARGEST_TABULATED / power)
    smallest = min(smallest, largest)
    width = largest - smallest
    middle = 0.5 * (smallest + largest)
    degree = 0
    if width * power > 0.0:
        degree = max(1, math.ceil(math.log(WEIGHTED_ERROR) / math.log(width * power / RATE)) - 1)
    at = 0.5 * chebyshev.chebpts1(degree + 1)
    lower, per_unit = lowest_rho(largest, power), 16.0
    rho, to_monomial = _nodes(lower, per_unit)
    values = np.empty((degree + 1, 3, *rho.shape))
    for k, gamma in enumerate(middle + width * at):
        f = site_functions(rho.ravel(), float(gamma), power)
        values[k] = np.stack([f.precision, f.shift, f.log_constant]).reshape(3, *rho.shape) / gamma
    by_degree = np.tensordot(np.linalg.inv(np.vander(at, increasing=True)), values, axes=1)
    return WeightedSiteTable(
        largest=largest,
        middle=middle,
        scale=1.0 / width if width > 0.0 else 0.0,
        lower=lower,
        per_unit=per_unit,
        coefficients=np.ascontiguousarray((by_degree @ to_monomial.T).transpose(2, 0, 1, 3)),
        wrong=np.ascontiguousarray(ndtr(-rho) @ to_monomial.T),
    )


@lru_cache(maxsize=16)
def fine_site_table(gamma: float, power: float = 1.0) -> FloatArray:
    """The site functions of one gamma to 1e-7, ``table[interval, function, power]``, in the intervals of
    ``FINE_PER_UNIT`` to the unit from :func:`lowest_rho` on: a pair costs half of what it does by the others.
    """
    rho, to_monomial = _nodes(lowest_rho(gamma, power), FINE_PER_UNIT, FINE_DEGREE)
    f = site_functions(rho.ravel(), gamma, power)
    values = np.stack([f.precision, f.shift, f.wrong, f.log_constant]).reshape(4, *rho.shape)
    return np.ascontiguousarray((values @ to_monomial.T).transpose(1, 0, 2))


def check_gamma_per_pair(gamma: float, power: float = 1.0) -> None:
    if gamma * power > LARGEST_GAMMA:
        raise ValueError(
            f"gamma is {gamma:.3g} per pair: beyond {LARGEST_GAMMA:g} a wrong pair is all but forbidden, which no "
            "Gaussian site can represent. Lower gamma (it is usually of the order of the number of observations), or "
            "the largest weights."
        )


def lowest_rho(gamma: float, power: float) -> float:
    """Below this rho, as above ``UPPER``, a site is flat."""
    return -float(math.ceil(math.sqrt(2.0 * gamma * power + UPPER**2)))


def _nodes(lower: float, per_unit: float, degree: int = DEGREE) -> tuple[FloatArray, FloatArray]:
    """rho at Chebyshev's points of every interval, and the map from values there to coefficients of powers."""
    intervals = math.ceil((UPPER - lower) * per_unit)
    nodes = 0.5 * chebyshev.chebpts1(degree + 1)
    rho = lower + (np.arange(intervals)[:, None] + 0.5 + nodes) / per_unit
    return rho, np.asarray(np.linalg.inv(np.vander(nodes, increasing=True)), dtype=np.float64)


def _phi(z: FloatArray) -> FloatArray:
    return np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)


def _tilt(z: FloatArray, gamma: float | FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """g, b and log Z of a standardised cavity."""
    loss = -np.expm1(-gamma)  # 1 - e^-gamma
    if np.ndim(gamma):
        log_z = np.logaddexp(-gamma, np.log(loss) + log_ndtr(z))
        log_z = np.where(gamma < 1.0, np.log1p(-np.minimum(loss, 0.7) * ndtr(-z)), log_z)
    else:
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
    return _polish(z, rho, gamma)


def _cavities(rho: FloatArray, gamma: FloatArray) -> FloatArray:
    """Solve rho(z) = rho, each for a gamma of its own: bisection, then Newton."""
    low, high = np.minimum(rho, -np.sqrt(2.0 * gamma + UPPER**2)) - 3.0, rho + 1.0
    for _ in range(30):
        z = 0.5 * (low + high)
        g, b, _ = _tilt(z, gamma)
        below = z + _excess(z, g, b) < rho
        low, high = np.where(below, z, low), np.where(below, high, z)
    return _polish(0.5 * (low + high), rho, gamma)


def _polish(z: FloatArray, rho: FloatArray, gamma: float | FloatArray) -> FloatArray:
    for _ in range(5):
        g, b, _ = _tilt(z, gamma)
        slope_b = g * (1.0 - b) - b * (z + g)
        slope = np.sqrt(1.0 - b) + 0.5 * (z + g) * slope_b / (1.0 - b) ** 1.5
        z = z - (z + _excess(z, g, b) - rho) / slope
    return z
