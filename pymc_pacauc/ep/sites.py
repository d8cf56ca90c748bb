"""The EP site of one pair, in closed form: precision K, shift h and log constant as functions of one number, rho.

Under q, the score difference of a pair is s ~ N(mu, v). Its factor exp(-gamma' 1{s < 0}), gamma' = gamma * weight /
total weight, is approximated by the site C exp(-K s^2 / 2 + h s). EP asks that the *tilted* distribution, cavity times
factor, have the moments mu and v of q, the cavity being q without the site. Write the cavity as N(z sqrt(v_), v_); then
with

    Z(z) = e^-gamma' + (1 - e^-gamma') Phi(z),    g(z) = (1 - e^-gamma') phi(z) / Z(z),    b(z) = g (z + g)

the tilted mean and variance are sqrt(v_) (z + g) and v_ (1 - b), so that

    rho = mu / sqrt(v) = (z + g) / sqrt(1 - b)

depends on z alone, and increases with it. Given q the site is therefore unique and need not be stored between sweeps;
its parameters are functions of rho:

    K = b / v,     h = c / sqrt(v),   c = (g + z b) / sqrt(1 - b),
    log C = log Z - log(1 - b) / 2 - (rho^2 - z^2) / 2.

K is negative for most misranked pairs, because the factor is not log-concave. It is used as it is, without clipping.

*Power EP* with power alpha replaces the factor by its alpha-th power, and multiplies (K, h, log C) by 1 / alpha. In the
limit alpha -> 0 the sites are those of variational Bayes, the Gaussian that minimises KL(q, posterior):
b = gamma' rho phi(rho), c = gamma' (1 + rho^2) phi(rho).

*Tables.* b, c, Phi(-rho) and log C are smooth functions of rho. They are tabulated once per gamma' as piecewise
polynomials of degree 3 (error 2e-10; 1e-7 at the largest gamma'), so that a pair costs a square root, a division and
some multiplications, and no transcendental function.

*Weights.* Pairs of different weights have different gamma'. Divided by gamma', the functions b, c and log C are smooth
in (rho, gamma') down to gamma' = 0, where they are those of variational Bayes, and nearly polynomials in gamma'. So one
table of polynomials in both variables (:meth:`SiteTable.between`) serves all weights, of degree 3 or 4 in gamma'
where gamma' is some hundredths. Pairs with gamma' > 1/2 are computed one by one; as all gamma' add up to gamma there
are at most 2 gamma of them.

*Kernels.* :func:`row_sites` evaluates the table for one row against many, :func:`part_sites` for a tile of pairs, or
for thousands of small blocks (strata, censored times) in one compiled loop. Three kinds of pairs are treated
separately: pairs of *equal* rows, whose factor is constant; pairs of nearly equal rows, whose huge K would cancel the
digits of the sums; and pairs with gamma' beyond the table. The kernels return the last two as a list of (i, j,
variance, weight); :func:`pymc_pacauc.ep.sweep.listed_sites` computes them.

Every plan uses these sites; the kernels of this module those whose pairs have many different weights or blocks, and
:mod:`pymc_pacauc.ep.subsample_sums`. To add a loss of a pair, write its :class:`SiteFunctions` of rho (K v, h sqrt(v),
E_q[cost] and log C): all other code evaluates tables of these.

References: Minka (2001), arXiv:1301.2294; Minka (2004), Power EP, Microsoft Research TR-2004-149; Ridgway, Alquier,
Chopin & Liang (2014), arXiv:1410.1771, section 3.3 and appendix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from pymc_pacauc.comparison.pairs import Block
from pymc_pacauc.numerics import FloatArray, kernel

DEGREE = 3  # of the polynomials on an interval: errors of 2e-10; with 5, of 5e-12, a sweep takes a fifth longer
UPPER = 9.5  # standard deviations: phi(9.5) is 1e-20, sites beyond are flat; doubled, twice the table for nothing
LARGEST_GAMMA = 50.0  # per pair: exp(-50) is all but a constraint; larger ones have no table that is right to 1e-7
# Largest gamma' in a table for pairs of different weights; at most 2 gamma pairs are beyond, and computed one by one.
# Doubled, the table needs more degrees.
LARGEST_TABULATED = 0.5
# Largest number of tables, some milliseconds each, for blocks of one weight each; for more weights one table in two
# variables serves all. Doubled, tables take up to twice as long.
MOST_TABLES = 32


class SiteFunctions(NamedTuple):
    """Values at given rho: b = ``K v``, c = ``h sqrt(v)``, Phi(-rho) = P_q(pair is wrong), and ``log C``."""

    precision: FloatArray
    shift: FloatArray
    wrong: FloatArray
    log_constant: FloatArray


WRONG = SiteFunctions._fields.index("wrong")


class Tabulated(NamedTuple):
    """The site functions over gamma' for gamma' from ``middle - 1 / (2 scale)`` to ``largest``, as kernels take them.

    ``gamma`` is that of a pair of weight 1. ``coefficients[interval, degree, function, power]``: functions are those
    of :class:`SiteFunctions`, on intervals of length ``1 / per_unit`` from ``lower`` on, in powers of the position
    within the interval, from -1/2 to 1/2; ``degree`` counts powers of ``scale * (gamma' - middle)``, on which the
    function ``WRONG`` does not depend.
    """

    gamma: float
    largest: float
    middle: float
    scale: float
    coefficients: FloatArray
    lower: float
    per_unit: float


class SiteTable(NamedTuple):
    """The site functions of pairs, ``gamma`` being that of a pair of weight 1; tabulated for weights as asked for."""

    gamma: float
    power: float = 1.0

    def between(self, smallest: float, largest: float) -> Tabulated:
        """Tabulate :func:`site_functions` for pairs of these weights, or as many as there is a table for."""
        return _tabulated(self.gamma, self.power, smallest, largest)


def site_functions(rho: FloatArray, gamma: float | FloatArray, power: float = 1.0) -> SiteFunctions:
    """Compute the site of a pair at ``gamma`` per pair whose score difference has mean / sd = ``rho`` under q.

    ``power`` is that of power EP: 1 for EP, 0 for variational Bayes. ``gamma`` is one number, or one for each ``rho``.
    """
    wrong = ndtr(-rho)
    if power == 0.0:
        phi = np.exp(-0.5 * rho * rho) / math.sqrt(2.0 * math.pi)
        precision, shift = gamma * rho * phi, gamma * (1.0 + rho * rho) * phi
        log_constant = -gamma * wrong + 0.5 * precision * (1.0 + rho * rho) - shift * rho
        return SiteFunctions(precision, shift, wrong, log_constant)
    z = _cavity(rho, gamma * power)
    g, b, log_z = _tilt(z, gamma * power)
    root = np.sqrt(1.0 - b)
    log_constant = log_z - 0.5 * np.log1p(-b) - 0.5 * _excess(z, g, b) * (rho + z)
    return SiteFunctions(b / power, (g + z * b) / root / power, wrong, log_constant / power)


@lru_cache(maxsize=256)
def _tabulated(gamma: float, power: float, least_weight: float, largest_weight: float) -> Tabulated:
    smallest, largest = gamma * least_weight, gamma * largest_weight
    check_gamma_per_pair(largest, power)
    limit = float(np.finfo(float).max)  # pairs of one weight are all in the table
    if smallest < largest:
        limit = largest = min(largest, LARGEST_TABULATED / power) if power > 0.0 else largest
        smallest = min(smallest, largest)
    width, middle, degree = largest - smallest, 0.5 * (smallest + largest), 0
    if width * power > 0.0:
        # For a relative error of 3e-12: it falls with every degree by 16 over the width, measured
        degree = max(1, math.ceil(math.log(3e-12) / math.log(width * power / 16.0)) - 1)
    at, sharp = 0.5 * chebyshev.chebpts1(degree + 1), largest * power  # large sites are sharper, and there are few
    lower, per_unit = (
        lowest_rho(largest, power),
        64.0 if sharp <= LARGEST_TABULATED else 256.0 if sharp < 5.0 else 512.0,
    )
    rho, to_monomial = _nodes(lower, per_unit)
    values = np.array([np.array(site_functions(rho, each, power)) / each for each in (middle + width * at).tolist()])
    by_degree = np.tensordot(np.linalg.inv(np.vander(at, increasing=True)), values, axes=1)
    by_degree[0, WRONG] = ndtr(-rho)  # whatever gamma'
    coefficients = np.ascontiguousarray((by_degree @ to_monomial.T).transpose(2, 0, 1, 3))
    return Tabulated(gamma, limit, middle, 1.0 / width if width > 0.0 else 0.0, coefficients, lower, per_unit)


def check_gamma_per_pair(gamma: float, power: float = 1.0) -> None:
    """Refuse a gamma per pair beyond ``LARGEST_GAMMA / power``."""
    if gamma * power > LARGEST_GAMMA:
        raise ValueError(
            f"gamma is {gamma:.3g} per pair: beyond {LARGEST_GAMMA:g} a wrong pair is practically impossible, which no "
            "Gaussian can represent. Lower gamma (it is usually of the order of the number of observations), or "
            "the largest weights."
        )


def lowest_rho(gamma: float, power: float) -> float:
    """Return the rho below which a site is flat (K and h vanish), as above ``UPPER``."""
    return -float(math.ceil(math.sqrt(2.0 * gamma * power + UPPER**2)))


def _nodes(lower: float, per_unit: float) -> tuple[FloatArray, FloatArray]:
    """Return rho at the Chebyshev points of every interval, (intervals, degree + 1), and the matrix that maps values
    there to coefficients of powers.
    """
    intervals = math.ceil((UPPER - lower) * per_unit)
    nodes = 0.5 * chebyshev.chebpts1(DEGREE + 1)
    rho = lower + (np.arange(intervals)[:, None] + 0.5 + nodes) / per_unit
    return rho, np.asarray(np.linalg.inv(np.vander(nodes, increasing=True)), dtype=np.float64)


def _tilt(z: FloatArray, gamma: float | FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return g, b and log Z at a standardised cavity mean z; see the module docstring."""
    loss = -np.expm1(-gamma)  # 1 - e^-gamma
    if np.ndim(gamma):
        log_z = np.logaddexp(-gamma, np.log(loss) + log_ndtr(z))
        log_z = np.where(gamma < 1.0, np.log1p(-np.minimum(loss, 0.7) * ndtr(-z)), log_z)
    else:
        log_z = np.log1p(-loss * ndtr(-z)) if gamma < 1.0 else np.logaddexp(-gamma, math.log(loss) + log_ndtr(z))
    g = loss * np.exp(-0.5 * z * z - 0.5 * math.log(2.0 * math.pi) - log_z)
    return g, g * (z + g), log_z


def _excess(z: FloatArray, g: FloatArray, b: FloatArray) -> FloatArray:
    """Return rho - z without cancellation when gamma is tiny."""
    return z * np.expm1(-0.5 * np.log1p(-b)) + g / np.sqrt(1.0 - b)


def _cavity(rho: FloatArray, gamma: float | FloatArray) -> FloatArray:
    """Solve rho(z) = rho for z: by interpolation on a grid, or by bisection with a gamma for each, then by Newton."""
    if isinstance(gamma, np.ndarray):
        low, high = np.minimum(rho, -np.sqrt(2.0 * gamma + UPPER**2)) - 3.0, rho + 1.0
        for _ in range(30):
            z = 0.5 * (low + high)
            g, b, _ = _tilt(z, gamma)
            below = z + _excess(z, g, b) < rho
            low, high = np.where(below, z, low), np.where(below, high, z)
        z = 0.5 * (low + high)
    else:
        grid = np.linspace(min(rho.min(), lowest_rho(gamma, 1.0)) - 2.0, rho.max() + 1.0, 4096)
        g, b, _ = _tilt(grid, gamma)
        z = np.interp(rho, grid + _excess(grid, g, b), grid)
    for _ in range(5):
        g, b, _ = _tilt(z, gamma)
        slope_b = g * (1.0 - b) - b * (z + g)
        slope = np.sqrt(1.0 - b) + 0.5 * (z + g) * slope_b / (1.0 - b) ** 1.5
        z = z - (z + _excess(z, g, b) - rho) / slope
    return z


# Variances of differences as a share of |t_i|^2 + |t_j|^2: below the first they are recomputed without cancellation (it
# leaves ten digits), below the second the pair is added by itself (its K would swamp the digits of the others), below
# the third the two rows are equal, to rounding squared. Twice any of these: more pairs take the slower way.
CANCELLED, NEAR, TIED = 1e-6, 1e-10, 1e-22


# What a compiler may assume of sites: finite numbers, in any order of summation
FAST = {"contract", "reassoc", "nsz", "arcp", "nnan", "ninf"}


class Part(NamedTuple):
    """Several blocks, or a tile of one, of which a kernel sums the sites in one call.

    Block k has the positives ``positive[first_row[k]:first_row[k + 1]]`` and the negatives
    ``negative[first_column[k]:first_column[k + 1]]``. ``members`` are the observations of all blocks; ``positive`` and
    ``negative`` index into it. ``column_weights`` is None where all pairs have one weight. Pairs of block k count
    ``times[k]`` times.
    """

    members: NDArray[np.intp]
    positive: NDArray[np.intp]
    row_weights: FloatArray
    first_row: NDArray[np.intp]
    negative: NDArray[np.intp]
    column_weights: FloatArray | None
    first_column: NDArray[np.intp]
    times: FloatArray


def part_of(blocks: Sequence[Block], constant: bool = False) -> Part:
    """Concatenate blocks; if ``constant``, all their pairs have one weight."""
    rows, columns = np.concatenate([b.positive for b in blocks]), np.concatenate([b.negative for b in blocks])
    members, place = np.unique(np.concatenate([rows, columns]), return_inverse=True)
    return Part(
        members,
        place[: rows.size],
        np.concatenate([b.row_weights for b in blocks]),
        np.concatenate([[0], np.cumsum([b.positive.size for b in blocks])]),
        place[rows.size :],
        None if constant else np.concatenate([b.column_weights for b in blocks]),
        np.concatenate([[0], np.cumsum([b.negative.size for b in blocks])]),
        np.ones(len(blocks)),
    )


@kernel(fastmath=FAST, no_cpython_wrapper=True)
def _cubic(p, t):
    return p[0] + t * (p[1] + t * (p[2] + t * p[3]))


@kernel(fastmath=FAST, no_cpython_wrapper=True)
def row_sites(
    row, i, columns, root, mean_i, square_i, weight_i, mean_j, square_j, weight_j,
    gamma, largest, middle, scale, table, lower, per_unit, tie_cost,
    k_column, h_column, totals, listed, times, weight, inverse, position,
):  # fmt: skip
    """Overwrite ``row[j] = t_i . t_j``, j = ``columns``, (n_j,), by K_ij; return sum_j K_ij and sum_j h_ij.

    Adds to ``totals`` the weight of wrong pairs, log constants, and the numbers of tied and of listed pairs; these are
    in none of the sums, and entered in ``listed`` as (i, j, variance, weight, ``times``) while there is room.

    ``weight``, ``inverse`` and ``position`` are room to work in: a loop for each, without branches, is what a compiler
    can do several at a time. With ``weight_j`` None, which numba compiles apart, all pairs of the row have the weight
    ``weight_i``, and the table has degree 0. Pairs that go another way are left in where sites are flat.
    """
    last = table.shape[0] - 0.5
    degree = table.shape[1] - 1
    special = 0
    for j in range(row.size):
        size = square_i + square_j[j]
        inverse[j] = size - 2.0 * row[j]  # the variance |t_i - t_j|^2; replaced by 1 / sd below
        special += inverse[j] <= CANCELLED * size
        if weight_j is not None:
            weight[j] = weight_i * weight_j[j]
            special += gamma * weight[j] > largest
    if special:
        for j in range(row.size):
            size = square_i + square_j[j]
            variance, difference = inverse[j], mean_i - mean_j[j]
            of_pair = weight_i if weight_j is None else weight[j]
            if variance <= CANCELLED * size:
                variance = 0.0
                for k in range(root.shape[1]):
                    between = root[i, k] - root[columns[j], k]
                    variance += between * between
                inverse[j] = variance
            if variance <= TIED * size:  # equal rows: the difference of the scores is their offsets' alone
                cost = 1.0 if difference < 0.0 else 0.0
                if abs(difference) <= 1e-12 * (abs(mean_i) + abs(mean_j[j])):
                    totals[2] += 1.0
                    cost = tie_cost
                totals[0] += of_pair * cost
                totals[1] -= gamma * of_pair * cost
                inverse[j] = 1e300
            elif variance <= NEAR * size or gamma * of_pair > largest:
                if totals[3] < listed.shape[0]:
                    entry = listed[int(totals[3])]
                    entry[0], entry[1], entry[2], entry[3], entry[4] = i, columns[j], variance, of_pair, times
                totals[3] += 1.0
                inverse[j] = 1e300
    for j in range(row.size):
        inverse[j] = 1.0 / math.sqrt(inverse[j])
        position[j] = min(max(((mean_i - mean_j[j]) * inverse[j] - lower) * per_unit, 0.0), last)
    if special:
        for j in range(row.size):
            position[j] = last if inverse[j] < 1e-149 else position[j]
    k_sum = h_sum = wrong = log_constants = 0.0
    for j in range(row.size):
        interval = np.int32(position[j])
        t = position[j] - interval - 0.5
        of_pair = weight_i if weight_j is None else weight[j]
        pair_gamma = gamma * of_pair
        p = table[interval, degree]
        b, c, log_constant = _cubic(p[0], t), _cubic(p[1], t), _cubic(p[3], t)
        if weight_j is not None:
            u = (pair_gamma - middle) * scale
            for k in range(degree - 1, -1, -1):
                p = table[interval, k]
                b, c = b * u + _cubic(p[0], t), c * u + _cubic(p[1], t)
                log_constant = log_constant * u + _cubic(p[3], t)
        wrong += of_pair * _cubic(table[interval, 0, WRONG], t)
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


# numba compiles on first use, which a new user waits for. Most of that time goes into each function of NumPy, operation
# on whole arrays, list and layout of an array: so Python makes the arrays, and loops are written out.


@kernel(no_cpython_wrapper=True)
def _take_rows(values, rows, out):
    for place in range(rows.size):
        for k in range(values.shape[1]):
            out[place, k] = values[rows[place], k]


@kernel(no_cpython_wrapper=True)
def _add_rows(total, rows, values, times):
    for place in range(rows.size):
        for k in range(values.shape[1]):
            total[rows[place], k] += times * values[place, k]


@kernel(no_cpython_wrapper=True)
def _multiply(a, b, out):
    np.dot(a, b, out)


@kernel
def _add_part(
    positive, row_weights, first_row, negative, column_weights, first_column, times, mean, square, root, z, both,
    gamma, largest, middle, scale, table, lower, per_unit, tie_cost,
    k_point, h_point, kz, totals, listed, of_pair, root_i, root_j, z_i, z_j, of_column,
):  # fmt: skip
    """Add the sums of :func:`part_sites` to the arrays from ``k_point`` on; those after ``listed`` are room."""
    mean_j, square_j, k_column, h_column = of_column[0], of_column[1], of_column[2], of_column[3]
    for block in range(first_row.size - 1):
        rows = positive[first_row[block] : first_row[block + 1]]
        columns = negative[first_column[block] : first_column[block + 1]]
        weight_j = None if column_weights is None else column_weights[first_column[block] : first_column[block + 1]]
        height, width, count = rows.size, columns.size, times[block]
        cross = of_pair[0, : height * width].reshape((height, width))  # t_i . t_j, which is overwritten by K
        for j in range(width):
            mean_j[j], square_j[j], k_column[j], h_column[j] = mean[columns[j]], square[columns[j]], 0.0, 0.0
        _take_rows(root, rows, root_i)
        _take_rows(root, columns, root_j)
        np.dot(root_i[:height], root_j[:width].T, cross)
        totals[1, 0] = totals[1, 1] = totals[1, 2] = 0.0
        for place in range(height):
            i = rows[place]
            k_sum, h_sum = row_sites(
                cross[place], i, columns, root, mean[i], square[i], row_weights[first_row[block] + place],
                mean_j, square_j, weight_j,
                gamma, largest, middle, scale, table, lower, per_unit, tie_cost,
                k_column, h_column, totals[1], listed, count, of_column[4], of_column[5], of_column[6],
            )  # fmt: skip
            k_point[i] += count * k_sum
            h_point[i] += count * h_sum
        for k in range(3):
            totals[0, k] += count * totals[1, k]
        for j in range(width):
            k_point[columns[j]] += count * k_column[j]
            h_point[columns[j]] -= count * h_column[j]
        _take_rows(z, columns, z_j)
        _multiply(cross, z_j[:width], z_i[:height])
        _add_rows(kz, rows, z_i, count)
        if both:
            turned = of_pair[1, : height * width].reshape((width, height))
            for i in range(height):
                for j in range(width):
                    turned[j, i] = cross[i, j]
            _take_rows(z, rows, z_i)
            _multiply(turned, z_i[:height], z_j[:width])
            _add_rows(kz, columns, z_j, count)


def part_sites(
    part: Part, members: tuple[FloatArray, ...], both: bool, table: Tabulated, tie_cost: float
) -> tuple[FloatArray, ...]:
    """Sum K and h over the partners of each member, (members,), h with a minus for negatives, for all blocks of a part.

    ``members`` are the mean, square, root and z of each. Also returns the sums of K z, z (members, size), over the
    partners of each positive, or of ``both`` sides; the totals (weight of wrong pairs, log constants, number of tied
    pairs); and the pairs that are in none of these sums, as rows (i, j, variance, weight, times).
    """
    mean, _, root, z = members
    heights, widths = np.diff(part.first_row), np.diff(part.first_column)
    height, width, size = int(heights.max()), int(widths.max()), root.shape[1]
    room = [
        np.empty(shape)
        for shape in (
            (1 + both, int((heights * widths).max())),
            (height, size),
            (width, size),
            (height, z.shape[1]),
            (width, z.shape[1]),
            (7, width),
        )
    ]
    listed = np.empty((width, 5))
    while True:
        k, h, kz, totals = np.zeros(mean.size), np.zeros(mean.size), np.zeros(z.shape), np.zeros((2, 4))
        _add_part(*part[1:], *members, both, *table, tie_cost, k, h, kz, totals, listed, *room)
        found = int(totals[1, 3])
        if found <= len(listed):
            return k, h, kz, totals[0, :3], listed[:found]
        listed = np.empty((found, 5))  # again, with room for all
