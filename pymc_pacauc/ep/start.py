"""Starting points for EP: cheap sweeps that find the mean first, and paths of growing gamma.

*Mean first.* A sweep of EP updates mean and covariance together; when the mean is far off, it takes many. But the mean
is much cheaper than the covariance. Given the standard deviations sd_ij of the score differences, EP's equation for the
mean alone,

    m = sum_ij z_ij s(rho_ij) / sd_ij,    rho_ij = z_ij' m / sd_ij,    z_ij = z_i - z_j,    s = c - b rho,

with b and c of :mod:`pymc_pacauc.ep.sites`, says that m is a stationary point of the function

    |m|^2 / 2 - sum_ij G(rho_ij),    G = log C + c rho - b (1 + rho^2) / 2,    G' = s

(for variational Bayes -G is gamma' Phi(-rho), the expected cost of a pair). Value and gradient need the scores and one
pass over the pairs, O(n k + n+ n-), without a matrix product over pairs; the curvature is about the precision of q. So
:meth:`MeanFirst.sweep` computes the standard deviations once, then the mean by L-BFGS in coordinates in which q is
standard, then the precision at that mean. One or two such sweeps replace many of EP's own; the fixed points are the
same. Pairs of a block whose weights differ are given the site of their mean weight, times their own relative weight:
accurate enough for a start. Blocks of similar mean weights share a table.

*Continuation.* Up to about ``MANY_MODES`` times the comparison's size (n+ n- / n for two classes) EP has one fixed
point. Far beyond, the Gibbs posterior itself has several modes, EP has a fixed point for each, and the start decides
which is found. From the prior it may be 50 nats below the best (8 indicator columns, 75 of 1500 rows positive, gamma =
4 n); from a fit to all rows it is one that was chosen with the rows to be left out. :class:`GammaPath` follows the
fixed point from the prior through growing gammas, by mean-first sweeps over a subsample of the pairs: it uses no rows
but its own, and mostly ends at one of the better fixed points.

Used by plans with ``start="mean first"`` (:func:`mean_first_start`, for processes) or ``continuation=True``
(:func:`continued_start`, at a large gamma), by the pilot of :mod:`pymc_pacauc.ep.subsample`, and by
:mod:`pymc_pacauc.ep.leave_out` for posteriors without a group of rows.

References: Minka (2001), arXiv:1301.2294, for EP's equations; Nocedal & Wright (2006), doi:10.1007/978-0-387-40065-5,
for L-BFGS (chapter 7) and continuation (chapter 11).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize

from pymc_pacauc.comparison.pairs import Block, Pairs
from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.comparison.subsample import number_of_groups, sample_pairs
from pymc_pacauc.ep.plan import GAMMA_STEP, MANY_MODES, several_fixed_points
from pymc_pacauc.ep.posterior import NaturalGaussian, at_gamma, natural_gaussian, standard_gaussian
from pymc_pacauc.ep.sites import FAST, FINE_PER_UNIT, MOST_TABLES, check_gamma_per_pair, fine_site_table, lowest_rho
from pymc_pacauc.numerics import FloatArray, kernel, single_threaded_blas
from pymc_pacauc.problem.problem import Problem

EQUAL = 1e-15  # 1 / sd given to pairs of equal rows, so that they have no force; any number far below others works
FIRST_GAMMA = 0.5  # to go to from the prior, in units of the comparison's size; doubled, a step fewer at some gammas
LEAST_SHARE = 0.1  # of a step, where steps do not become smaller; doubled, some paths at a large gamma go to and fro
CHANGE = 0.1  # relative change of natural parameters at which a stage ends: the fit that follows corrects the rest
FEW = 3  # first a third of the features of a process, then three sweeps of all; doubled: more sweeps later
SWEEPS = 20  # at most, at each gamma, and steps to a mean; 3 sweeps lose 0.14 nats more on average at a large gamma
PAIRS_PER_ROW = 100  # pairs of a subsample; twice as many change held-out AUCs by less than 0.002


@dataclass(frozen=True, eq=False)
class _Part:
    """The pairs of a block, positives ``i`` and negatives ``j``; each pair counts ``times``.

    ``weight_i`` and ``weight_j`` are relative to their means, whose product is ``mean_weight`` or, where many blocks
    share tables, is near it.
    """

    i: NDArray[np.intp]
    j: NDArray[np.intp]
    weight_i: FloatArray
    weight_j: FloatArray
    mean_weight: float
    times: float


class MeanFirst:
    """Mean-first sweeps over blocks of pairs; see the module docstring.

    Parameters
    ----------
    design : ndarray, shape (n, k)
        The scores are ``design @ w + offset``, w ~ N(0, I).
    offset : ndarray, shape (n,)
        Known part of each score.
    blocks : sequence of (Block, float), default ()
        Blocks of pairs of these rows, and the factor that each pair of a block is counted with.
    power : float
        As in :class:`~pymc_pacauc.ep.plan.Plan`; 0 for variational Bayes.
    scale_free : bool
        Whether rankings depend on the direction of w alone.
    single : bool, default True
        Whether to compute in single precision.
    """

    def __init__(
        self,
        design: FloatArray,
        offset: FloatArray,
        blocks: Sequence[tuple[Block, float]] = (),
        *,
        power: float,
        scale_free: bool,
        single: bool = True,
    ) -> None:
        unit = float(np.linalg.norm(design)) / math.sqrt(design.size) or 1.0  # rescaling scores changes no ranking
        self.design: NDArray[Any] = np.divide(design, unit, dtype=np.float32 if single else np.float64)
        self.offset = offset / unit
        self.parts = _parts(blocks)
        self.power, self.scale_free = power, scale_free

    def over(self, blocks: Sequence[tuple[Block, float]]) -> MeanFirst:
        """Return the same for other pairs of the same rows."""
        other = copy(self)
        other.parts = _parts(blocks)
        return other

    def scores(self, mean: FloatArray) -> FloatArray:
        """Compute the scores of all rows, (n,), in the unit of ``design``."""
        scores = self.design @ mean.astype(self.design.dtype) + self.offset
        if not np.isfinite(scores).all():  # else the kernels would index their tables by NaN
            raise FloatingPointError("The moments of the scores overflow: rescale X, the offset or the prior.")
        return scores

    def sweep(self, q: NaturalGaussian, gamma_per_pair: float, error: float) -> tuple[NaturalGaussian, float]:
        """Compute standard deviations at q, the mean given these, the precision given both.

        Returns the new Gaussian and the relative change of its natural parameters. ``gamma_per_pair`` is that of a pair
        of weight one, ``error`` the tolerance of the mean, in standard deviations of q in each coordinate.
        """
        sds = self.inverse_sd(q)
        mean = self.mean(q, sds, gamma_per_pair, error)
        scores = self.scores(mean)
        curvature, informed = np.zeros(len(scores), self.design.dtype), 0.0
        for p, inverse in zip(self.parts, sds, strict=True):  # 1 / sd is overwritten by K, (rows, columns)
            sites = self.sites(p, scores, gamma_per_pair)
            informed += _curvatures(inverse, *sites)
            curvature[p.i] += sites[-3]
            curvature[p.j] += sites[-2]
        weighed = (0.5 * curvature)[:, None] * self.design
        for p, K in zip(self.parts, sds, strict=True):
            weighed[p.i] -= K @ self.design[p.j]
        half = (self.design.T @ weighed).astype(np.float64)
        precision = half + half.T
        precision[np.diag_indices(len(precision))] += 1.0
        following = natural_gaussian(precision, precision @ mean)
        while following is None:
            precision = 0.5 * (precision + q.precision)
            following = natural_gaussian(precision, precision @ mean)
        more, further = following.precision - q.precision, following.shift - q.shift
        change = math.hypot(np.linalg.norm(more), np.linalg.norm(further))
        change /= math.hypot(np.linalg.norm(q.precision), np.linalg.norm(q.shift))
        target = mean.size - informed + mean @ mean
        if self.scale_free and target > 0.0:
            following = following.rescaled(math.sqrt(target / following.second_moment))
        return following, change

    def inverse_sd(self, q: NaturalGaussian) -> list[NDArray[Any]]:
        """Compute 1 / sd of the score differences under q: a matrix (rows, columns) for each block."""
        (multiply,) = linalg.get_blas_funcs(("trmm",), (self.design,))
        root = multiply(1.0, q.root, self.design.T, trans_a=1).T  # (n, k): covariance of the scores is root root'
        square = np.einsum("ij,ij->i", root, root)
        return [_inverse_sd(root[p.i], square[p.i], root[p.j], square[p.j]) for p in self.parts]

    def mean(
        self, q: NaturalGaussian, inverse_sd: list[NDArray[Any]], gamma_per_pair: float, error: float
    ) -> FloatArray:
        """Minimise the function of the module docstring over the mean, from the mean of q."""

        def value(u: FloatArray) -> tuple[float, FloatArray]:
            mean = q.root @ u
            force, gain = self.force(mean, inverse_sd, gamma_per_pair)
            return float(0.5 * mean @ mean - gain), (mean - force) @ q.root

        options = {"gtol": error, "maxiter": SWEEPS}
        found = optimize.minimize(value, q.mean @ q.factor, jac=True, method="L-BFGS-B", options=options)
        return np.asarray(q.root @ found.x)

    def force(
        self, mean: FloatArray, inverse_sd: list[NDArray[Any]], gamma_per_pair: float
    ) -> tuple[FloatArray, float]:
        """Compute ``sum_ij z_ij s(rho_ij) / sd_ij``, (k,), and ``sum_ij G(rho_ij)``."""
        scores = self.scores(mean)
        by_observation, gain = np.zeros(len(scores), self.design.dtype), 0.0
        for p, each in zip(self.parts, inverse_sd, strict=True):
            sites = self.sites(p, scores, gamma_per_pair)
            gain += _forces(each, *sites)
            by_observation[p.i] += sites[-3]
            by_observation[p.j] -= sites[-2]
        return (by_observation @ self.design).astype(np.float64), gain

    def sites(self, part: _Part, scores: FloatArray, gamma_per_pair: float) -> tuple[Any, ...]:
        """Return the arguments of the kernels for a part, except the standard deviations.

        The last three are arrays for the sums along both axes, and scratch space: kernels allocate none themselves,
        because that would take longer to compile than the rest of them.
        """
        gamma = gamma_per_pair * part.mean_weight
        table, lower = _mean_table(gamma, self.power), lowest_rho(gamma, self.power)
        given = (scores[part.i], scores[part.j], part.weight_i, part.weight_j, part.times, table, lower)
        return *given, np.zeros(part.i.size), np.zeros(part.j.size), np.empty(part.j.size)


def mean_first_start(problem: Problem, power: float) -> NaturalGaussian:
    """Go from the prior to near EP's fixed point of a process, through growing gammas.

    The reduced coefficients are features of the process in order of the variance they explain: up to the last gamma a
    third of them suffices, then all are used.
    """
    space = problem.scores.reduced
    blocks = [(block, 1.0) for block in problem.pairs.blocks]
    last, few = first_gamma(problem.gamma, problem.pairs), max(1, space.dimension // FEW)
    q = standard_gaussian(few)
    for k, gammas in ((few, gamma_steps(last, problem.gamma, GAMMA_STEP)), (space.dimension, [problem.gamma])):
        q = _padded(q, k)
        sweeps = MeanFirst(space.design[:, :k], space.offset, blocks, power=power, scale_free=problem.scale_free)
        for gamma in gammas:
            q = at_gamma(q, gamma / last)
            for _ in range(1 if k == few else FEW):
                q, change = sweeps.sweep(q, gamma / problem.pairs.total_weight, 0.5 * CHANGE)
                if change < CHANGE:
                    break
            last = gamma
    return q


def first_gamma(gamma: float, pairs: Pairs) -> float:
    """Return the first gamma after the prior, on a path to ``gamma``."""
    return min(gamma, FIRST_GAMMA * row_shares(pairs).size)


def _padded(q: NaturalGaussian, k: int) -> NaturalGaussian:
    """Extend q to k coefficients, the further ones with their prior N(0, 1)."""
    precision, shift = np.eye(k), np.zeros(k)
    known = q.mean.size
    precision[:known, :known], shift[:known] = q.precision, q.shift
    padded = natural_gaussian(precision, shift)
    assert padded is not None
    return padded


def gamma_steps(first: float, last: float, ratio: float) -> list[float]:
    """Return gammas from the first to the last, both included, with ratios of at most ``ratio``.

    Examples
    --------
    >>> gamma_steps(1.0, 16.0, 4.0), gamma_steps(3.0, 1.0, 4.0), gamma_steps(2.0, 2.0, 4.0)
    ([1.0, 4.0, 16.0], [3.0, 1.0], [2.0])
    """
    steps = math.ceil(abs(math.log(last / first, ratio)) - 1e-9)
    return np.geomspace(first, last, steps + 1).tolist()


def _parts(blocks: Sequence[tuple[Block, float]]) -> list[_Part]:
    """Turn blocks into parts, with mean weights rounded to at most ``MOST_TABLES`` different values."""
    parts = [_part(block, times) for block, times in blocks]
    weights = np.array([p.mean_weight for p in parts])
    if np.unique(weights).size <= MOST_TABLES:
        return parts
    steps = np.geomspace(weights.min(), weights.max(), MOST_TABLES)
    near = steps[np.searchsorted(np.sqrt(steps[1:] * steps[:-1]), weights)]
    return [
        replace(p, weight_i=p.weight_i * (p.mean_weight / weight), mean_weight=float(weight))
        for p, weight in zip(parts, near, strict=True)
    ]


def _part(block: Block, times: float) -> _Part:
    weight_i, weight_j = block.row_weights, block.column_weights
    mean_i, mean_j = float(weight_i.mean()), float(weight_j.mean())
    return _Part(block.positive, block.negative, weight_i / mean_i, weight_j / mean_j, mean_i * mean_j, times)


@lru_cache(maxsize=64)
def _mean_table(gamma_per_pair: float, power: float) -> FloatArray:
    """Tabulate s, G and b: ``table[function, interval, power]``, in the intervals of :func:`fine_site_table`."""
    check_gamma_per_pair(gamma_per_pair, power)
    fine = fine_site_table(gamma_per_pair, power)
    t = np.array([-0.5, 0.0, 0.5])  # ends and middle, so that the piecewise polynomials are continuous
    at = np.vander(t, increasing=True)
    b, c, _, log_constant = (fine @ at.T).transpose(1, 0, 2)
    rho = lowest_rho(gamma_per_pair, power) + (np.arange(len(fine))[:, None] + 0.5 + t) / FINE_PER_UNIT
    values = np.stack([c - b * rho, log_constant + c * rho - 0.5 * b * (1.0 + rho * rho), b])
    return np.ascontiguousarray(values @ np.linalg.inv(at).T)


def _inverse_sd(
    root_i: NDArray[Any], square_i: NDArray[Any], root_j: NDArray[Any], square_j: NDArray[Any]
) -> NDArray[Any]:
    """Compute 1 / sd of the score differences, (n_i, n_j), from covariance roots t_i, t_j and their squared lengths.

    Variances with few correct digits are recomputed as |t_i - t_j|^2; rows for which that is below rounding error are
    treated as equal.
    """
    equal_below = float(np.finfo(root_i.dtype).eps)
    cancelled_below = math.sqrt(equal_below)
    found = (-2 * root_i) @ root_j.T
    found += square_i[:, None]
    found += square_j
    for i in np.flatnonzero(found.min(axis=1) <= cancelled_below * (square_i + square_j.max())):
        scale = square_i[i] + square_j
        j = np.flatnonzero(found[i] <= cancelled_below * scale)
        difference = root_j[j] - root_i[i]
        variance = np.einsum("jk,jk->j", difference, difference)
        found[i, j] = np.where(variance > equal_below * scale[j], variance, EQUAL**-2)
    np.sqrt(found, out=found)
    return np.reciprocal(found, out=found)


@kernel(fastmath=FAST, no_cpython_wrapper=True)
def _place(inverse_sd, mean, mean_j, lower, intervals, position):
    """Compute the position of the rho of each pair of a row in the table, in units of intervals."""
    last = intervals - 0.5
    for j in range(inverse_sd.size):
        rho = (mean - mean_j[j]) * inverse_sd[j]
        position[j] = min(max((rho - lower) * FINE_PER_UNIT, 0.0), last)


@kernel(fastmath=FAST)
def _forces(inverse_sd, mean_i, mean_j, weight_i, weight_j, times, table, lower, by_row, by_column, position):
    """Sum s / sd along both axes into ``by_row``, (n_i,), and ``by_column``, (n_j,), zeros; return the sum of G."""
    n_i, n_j = inverse_sd.shape
    gain = 0.0
    for i in range(n_i):
        row = inverse_sd[i]
        weight = times * weight_i[i]
        _place(row, mean_i[i], mean_j, lower, table.shape[1], position)
        total = gained = 0.0
        for j in range(n_j):
            interval = np.int32(position[j])
            t = position[j] - interval - 0.5
            s = table[0, interval]
            force = (s[0] + t * (s[1] + t * s[2])) * row[j] * weight_j[j]
            total += force
            by_column[j] += weight * force
        for j in range(n_j):
            interval = np.int32(position[j])
            t = position[j] - interval - 0.5
            G = table[1, interval]
            gained += (G[0] + t * (G[1] + t * G[2])) * weight_j[j]
        by_row[i] = weight * total
        gain += weight * gained
    return gain


@kernel(fastmath=FAST)
def _curvatures(inverse_sd, mean_i, mean_j, weight_i, weight_j, times, table, lower, by_row, by_column, position):
    """Overwrite 1 / sd, (n_i, n_j), by K = b / sd^2; sum K along both axes into zeros; return the sum of b."""
    n_i, n_j = inverse_sd.shape
    informed = 0.0
    for i in range(n_i):
        row = inverse_sd[i]
        _place(row, mean_i[i], mean_j, lower, table.shape[1], position)
        total = 0.0
        for j in range(n_j):
            interval = np.int32(position[j])
            t = position[j] - interval - 0.5
            p = table[2, interval]
            b = (p[0] + t * (p[1] + t * p[2])) * times * weight_i[i] * weight_j[j]
            informed += b if row[j] > 2 * EQUAL else 0.0
            row[j] *= b * row[j]
            total += row[j]
            by_column[j] += row[j]
        by_row[i] = total
    return informed


def continued_start(problem: Problem, power: float) -> NaturalGaussian:
    """Compute a start for EP at the problem's gamma: the end of a path from the prior.

    Where there may be several fixed points the steps in log gamma are half as long, which halves the loss of log
    evidence against the best fixed point known (0.7 nats on average).
    """
    step = math.sqrt(GAMMA_STEP) if several_fixed_points(problem) else GAMMA_STEP
    with single_threaded_blas():
        return GammaPath(problem, power, step).at(problem.gamma, SWEEPS, CHANGE).q


@dataclass(frozen=True, eq=False)
class Reached:
    """The posterior ``q`` of the reduced coefficients at a gamma, and the relative change in its last sweep."""

    q: NaturalGaussian
    change: float
    converged: bool


class GammaPath:
    """Posteriors of the reduced coefficients of a problem at any gamma; cheapest in the order of growing gamma.

    Parameters
    ----------
    problem : Problem
        The target; rows that are in no pair are ignored, and so is its gamma.
    power : float
        As in :class:`~pymc_pacauc.ep.plan.Plan`; 0 for variational Bayes.
    step : float, default 4
        Largest ratio of neighbouring gammas.
    pairs_per_row : float, default 100
        Largest number of pairs per row; more are subsampled.

    Examples
    --------
    >>> from pymc_pacauc.problem.problem import linear_gaussian_problem
    >>> from pymc_pacauc.ep.fit import fit
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(90, 3))
    >>> problem = linear_gaussian_problem(X, X[:, 0] + rng.normal(size=90) > 0, gamma=40.0)
    >>> path = GammaPath(problem, 1.0)
    >>> end = path.at(40.0, 100, 1e-6)
    >>> bool(np.abs(end.q.mean - fit(problem).posterior.natural.mean).max() < 1e-3)
    True
    """

    def __init__(
        self, problem: Problem, power: float, step: float = GAMMA_STEP, pairs_per_row: float = PAIRS_PER_ROW
    ) -> None:
        space, rows = problem.scores.reduced, problem.compared_rows
        design, offset, pairs = space.design[rows], space.offset[rows], problem.pairs.on_rows(rows)
        self.dimension, self.pairs, self.step = space.dimension, pairs, step
        groups = number_of_groups(pairs, pairs_per_row * pairs.n)
        self.used = sample_pairs(pairs, _first_scores(design, offset, pairs), groups, np.random.default_rng(0))
        self.sweeps = partial(MeanFirst, design, offset, self.used.parts(), power=power, scale_free=problem.scale_free)
        self.known: dict[float, Reached] = {}

    @cached_property
    def single(self) -> MeanFirst:
        return self.sweeps(single=True)

    @cached_property
    def double(self) -> MeanFirst:
        return self.sweeps(single=False)

    def at(self, gamma: float, sweeps: int, tolerance: float) -> Reached:
        """Return the posterior at ``gamma``, by steps from the nearest gamma known, or from the prior."""
        if gamma in self.known:
            return self.known[gamma]
        if self.known:
            nearest = min(self.known, key=lambda each: abs(math.log(each / gamma)))
            q, last = self.known[nearest].q, nearest
            way = gamma_steps(nearest, gamma, self.step)[1:]
        else:
            one = gamma <= MANY_MODES * row_shares(self.pairs).size  # one fixed point: no smaller gammas needed
            q, last = standard_gaussian(self.dimension), gamma if one else first_gamma(gamma, self.pairs)
            way = gamma_steps(last, gamma, self.step)
        for value in way:
            found = self._settled(at_gamma(q, value / last), value, sweeps, tolerance)
            q, last = found.q, value
        self.known[gamma] = found
        return found

    def _settled(self, q: NaturalGaussian, gamma: float, sweeps: int, tolerance: float) -> Reached:
        """Sweep at one gamma until the change is below the tolerance."""
        precise = self.double if tolerance < math.sqrt(np.finfo(np.float32).eps) else self.single
        error = 0.1 * tolerance
        change, share = math.inf, 1.0
        for _ in range(max(sweeps, 1)):
            before = change
            following, change = precise.sweep(q, gamma / self.pairs.total_weight, error)
            if change < tolerance:
                q = following
                break
            if change >= before:  # the iteration oscillates: take a part of each step
                share = max(0.5 * share, LEAST_SHARE)
            q = _between(q, following, share)
        return Reached(q, change, change < tolerance)


def _between(q: NaturalGaussian, other: NaturalGaussian, share: float) -> NaturalGaussian:
    """Interpolate the natural parameters: ``share`` of the way from ``q`` to ``other``; q where that is no density."""
    if share == 1.0:
        return other
    precision = q.precision + share * (other.precision - q.precision)
    return natural_gaussian(precision, q.shift + share * (other.shift - q.shift)) or q


def _first_scores(design: FloatArray, offset: FloatArray, pairs: Pairs) -> FloatArray:
    """Compute scores along the first step from the prior: for two classes, along the difference of their means."""
    force = np.zeros(pairs.n)
    for block in pairs.blocks:
        force[block.positive] += block.row_weights * block.column_weights.sum()
        force[block.negative] -= block.column_weights * block.row_weights.sum()
    return design @ (force @ design) / pairs.total_weight + offset
