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

Sites of pairs that weigh differently, and of many small blocks: the pointwise part of a sweep, in two variables.

A pair of weight w has gamma' = gamma_1 w, gamma_1 that of weight one, and its site is a polynomial in rho and gamma'
(see :mod:`pymc_pacauc.ep.sites`). Three kinds of pairs are set apart: of *equal* rows, whose factor is a constant; of
rows that nearly coincide, whose K is too large to be added to sums; and of a gamma' beyond the table. The last two are
listed, and computed one by one by whoever asked.

Blocks of a few pairs each, as strata and censored times have them by the thousand, would spend their time in Python
and in matrix products too small to be worth calling. They go through one compiled loop together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from pymc_pacauc.comparison.pairs import Block
from pymc_pacauc.numerics import FloatArray, kernel

DEGREE = 5  # of the polynomials on an interval: errors of 1e-11, near rounding, so that a higher one buys nothing
# The same for errors of 1e-7, far below that of a subsample, at half the time; and intervals to a unit of rho, of which
# twice as many have an eighth of the error, and twice the memory.
FINE_DEGREE, FINE_PER_UNIT = 2, 64.0
UPPER = 9.5  # standard deviations: phi(9.5) is 1e-20, sites beyond are flat; doubled, twice the table for nothing
LARGEST_GAMMA = 50.0  # per pair: exp(-50) is all but a constraint; larger ones have no table that is right to 1e-7
# Of gamma', for pairs with weights: there are at most 2 gamma beyond, computed one by one. Doubled, more degrees.
LARGEST_TABULATED = 0.5
RATE = 16.0  # by which the error of interpolating in gamma' falls with every degree, at gamma' = 1: measured
# For blocks, or parts of blocks, of different weights, of some milliseconds each: beyond, one in two variables serves
# all. Twice as many, up to twice the time for tables.
MOST_TABLES = 32
WEIGHTED_ERROR = 3e-12  # of that, relative, to which the degree is chosen; doubled, it is the same for most weights


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
            "Gaussian can represent. Lower gamma (it is usually of the order of the number of observations), or "
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
    """Solve rho(z) = rho: interpolation on a grid that reaches from far below the step of rho(z), then Newton."""
    grid = np.linspace(min(rho.min(), lowest_rho(gamma, 1.0)) - 2.0, rho.max() + 1.0, 4096)
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


# Variances of differences as a share of |t_i|^2 + |t_j|^2: below the first they are recomputed without cancellation (it
# leaves ten digits), below the second the pair is added by itself (its K would swallow the others' digits), below the
# third the two rows are equal, to rounding squared. Twice any of these: more pairs take the slower way.
CANCELLED, NEAR, TIED = 1e-6, 1e-10, 1e-22


@dataclass(frozen=True, eq=False)
class SmallBlocks:
    """Some blocks one after the other: block k has the rows ``positive[first[k]:first[k + 1]]``, and so its columns.

    ``members`` are the observations concerned; ``positive`` and ``negative`` are places among them.
    """

    members: NDArray[np.intp]
    positive: NDArray[np.intp]
    row_weights: FloatArray
    first_row: NDArray[np.intp]
    negative: NDArray[np.intp]
    column_weights: FloatArray
    first_column: NDArray[np.intp]


def small_blocks(blocks: Sequence[Block]) -> SmallBlocks:
    """Put blocks one after the other."""
    rows, columns = np.concatenate([b.positive for b in blocks]), np.concatenate([b.negative for b in blocks])
    members, place = np.unique(np.concatenate([rows, columns]), return_inverse=True)
    return SmallBlocks(
        members,
        place[: rows.size],
        np.concatenate([b.row_weights for b in blocks]),
        np.concatenate([[0], np.cumsum([b.positive.size for b in blocks])]),
        place[rows.size :],
        np.concatenate([b.column_weights for b in blocks]),
        np.concatenate([[0], np.cumsum([b.negative.size for b in blocks])]),
    )


@kernel(fastmath={"contract", "reassoc", "nsz", "arcp", "nnan", "ninf"})
def row_sites(
    row, i, mean_i, square_i, root_i, weight_i, mean_j, square_j, root_j, weight_j,
    gamma, largest, middle, scale, table, wrong_table, lower, per_unit, tie_cost,
    k_column, h_column, totals, listed, weight, inverse, position,
):  # fmt: skip
    """Overwrite ``row[j] = t_i . t_j`` by K_ij; add to the sums over rows and to the totals; return sum_j K and h.

    ``weight``, ``inverse`` and ``position`` are room to work in: a loop for each, without branches, is what a compiler
    can do several at a time. Pairs that go another way are left in with weight 0.
    """
    last = table.shape[0] - 0.5
    degree = table.shape[1] - 1
    special = 0
    for j in range(row.size):
        weight[j] = weight_i * weight_j[j]
        size = square_i + square_j[j]
        inverse[j] = size - 2.0 * row[j]  # the variance, for now
        special += inverse[j] <= CANCELLED * size
        special += gamma * weight[j] > largest
    if special:
        for j in range(row.size):
            size = square_i + square_j[j]
            variance, difference = inverse[j], mean_i - mean_j[j]
            if variance <= CANCELLED * size:
                variance = 0.0
                for k in range(root_i.size):
                    variance += (root_i[k] - root_j[j, k]) ** 2
                inverse[j] = variance
            if variance <= TIED * size:  # equal rows: the difference of the scores is their offsets' alone
                cost = 1.0 if difference < 0.0 else 0.0
                if abs(difference) <= 1e-12 * (abs(mean_i) + abs(mean_j[j])):
                    totals[2] += 1.0
                    cost = tie_cost
                totals[0] += weight[j] * cost
                totals[1] -= gamma * weight[j] * cost
                weight[j], inverse[j] = 0.0, 1e300
            elif variance <= NEAR * size or gamma * weight[j] > largest:
                listed.append((float(i), float(j), variance, weight[j]))
                weight[j], inverse[j] = 0.0, 1e300
    for j in range(row.size):
        inverse[j] = 1.0 / math.sqrt(inverse[j])
        position[j] = min(max(((mean_i - mean_j[j]) * inverse[j] - lower) * per_unit, 0.0), last)
    k_sum = h_sum = wrong = log_constants = 0.0
    for j in range(row.size):
        interval = np.int32(position[j])
        t = position[j] - interval - 0.5
        pair_gamma = gamma * weight[j]
        u = (pair_gamma - middle) * scale
        b = c = log_constant = 0.0
        for k in range(degree, -1, -1):
            p = table[interval, k]
            b = b * u + p[0, 0] + t * (p[0, 1] + t * (p[0, 2] + t * (p[0, 3] + t * (p[0, 4] + t * p[0, 5]))))
            c = c * u + p[1, 0] + t * (p[1, 1] + t * (p[1, 2] + t * (p[1, 3] + t * (p[1, 4] + t * p[1, 5]))))
            log_constant = (
                log_constant * u
                + p[2, 0] + t * (p[2, 1] + t * (p[2, 2] + t * (p[2, 3] + t * (p[2, 4] + t * p[2, 5]))))
            )  # fmt: skip
        w = wrong_table[interval]
        wrong += weight[j] * (w[0] + t * (w[1] + t * (w[2] + t * (w[3] + t * (w[4] + t * w[5])))))
        log_constants += pair_gamma * log_constant
        k_pair = pair_gamma * b * inverse[j] * inverse[j]
        h_pair = pair_gamma * c * inverse[j]
        row[j] = k_pair
        k_sum += k_pair
        h_sum += h_pair
        k_column[j] += k_pair
        h_column[j] += h_pair
    totals[0] += wrong
    totals[1] += log_constants
    return k_sum, h_sum


@kernel
def tile_sites_weighted(
    cross, mean_i, square_i, root_i, weight_i, mean_j, square_j, root_j, weight_j,
    gamma, largest, middle, scale, table, wrong_table, lower, per_unit, tie_cost,
):  # fmt: skip
    """Overwrite ``cross[i, j] = t_i . t_j`` by K_ij; return the sums of K and h along both axes, the totals (weight of
    wrong pairs, log constants, number of tied pairs), and the listed pairs (i, j, variance, weight), which are in none.
    """
    n_i, n_j = cross.shape
    k_row, h_row, k_column, h_column = np.zeros(n_i), np.zeros(n_i), np.zeros(n_j), np.zeros(n_j)
    weight, inverse, position = np.empty(n_j), np.empty(n_j), np.empty(n_j)
    totals = np.zeros(3)
    listed = [(0.0, 0.0, 0.0, 0.0)]
    for i in range(n_i):
        k_row[i], h_row[i] = row_sites(
            cross[i], i, mean_i[i], square_i[i], root_i[i], weight_i[i], mean_j, square_j, root_j, weight_j,
            gamma, largest, middle, scale, table, wrong_table, lower, per_unit, tie_cost,
            k_column, h_column, totals, listed, weight, inverse, position,
        )  # fmt: skip
    return k_row, h_row, k_column, h_column, totals, np.array(listed)[1:]


@kernel
def small_block_sites(
    positive, row_weights, first_row, negative, column_weights, first_column, mean, square, root, extended,
    gamma, largest, middle, scale, table, wrong_table, lower, per_unit, tie_cost,
):  # fmt: skip
    """Sums of K and h and of K z over the partners of each member, the totals and the listed pairs, of all blocks."""
    members, size = extended.shape
    k_point, h_point, by_row = np.zeros(members), np.zeros(members), np.zeros((members, size))
    totals = np.zeros(3)
    listed = [(0.0, 0.0, 0.0, 0.0)]
    for block in range(first_row.size - 1):
        columns = negative[first_column[block] : first_column[block + 1]]
        weight_j = column_weights[first_column[block] : first_column[block + 1]]
        mean_j, square_j, root_j = mean[columns], square[columns], root[columns]
        k_column, h_column = np.zeros(columns.size), np.zeros(columns.size)
        row, weight = np.empty(columns.size), np.empty(columns.size)
        inverse, position = np.empty(columns.size), np.empty(columns.size)
        for place in range(first_row[block], first_row[block + 1]):
            i = positive[place]
            root_i = root[i]
            for j in range(columns.size):
                product = 0.0
                for k in range(root_i.size):
                    product += root_i[k] * root_j[j, k]
                row[j] = product
            before = len(listed)
            k_sum, h_sum = row_sites(
                row, i, mean[i], square[i], root_i, row_weights[place], mean_j, square_j, root_j, weight_j,
                gamma, largest, middle, scale, table, wrong_table, lower, per_unit, tie_cost,
                k_column, h_column, totals, listed, weight, inverse, position,
            )  # fmt: skip
            for k in range(before, len(listed)):  # from places among the columns to places among the members
                _, column, variance, of_pair = listed[k]
                listed[k] = (float(i), float(columns[int(column)]), variance, of_pair)
            k_point[i] += k_sum
            h_point[i] += h_sum
            for j in range(columns.size):
                for k in range(size):
                    by_row[i, k] += row[j] * extended[columns[j], k]
        for j in range(columns.size):
            k_point[columns[j]] += k_column[j]
            h_point[columns[j]] -= h_column[j]
    return k_point, h_point, by_row, totals, np.array(listed)[1:]
