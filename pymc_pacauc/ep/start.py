"""Sweeps of EP that find the mean first: how a posterior is reached from far away, at little cost.

A sweep of EP renews mean and covariance together, and takes many turns where the first is far off. But the mean is much
cheaper than the covariance. Given the standard deviations of the score differences, EP's equations for the mean alone
are those of a stationary point,

    m = sum_ij z_ij s(rho_ij) / sd_ij,    rho_ij = z_ij' m / sd_ij,    z_ij = z_i - z_j,    s = c - b rho,

with b and c of :mod:`pymc_pacauc.ep.sites`, of the function

    |m|^2 / 2 - sum_ij G(rho_ij),    G = log C + c rho - b (1 + rho^2) / 2,    G' = s

(for variational Bayes -G is gamma' Phi(-rho), the cost of a pair). Its value and gradient need the scores and one pass
over the pairs, no product of matrices, and its curvature is about the precision of q. So a sweep here finds the
standard deviations once, then the mean by a quasi-Newton method in coordinates in which q is standard, then the
precision at that mean; one or two of these do where EP's own take many. The fixed points are the same.

Where pairs of a block weigh differently, all have the sites of their average weight, times their own: good enough for
a place to go on from. So have those of blocks that weigh about alike, where there are many: strata with weights, and
censored times, whose blocks are thousands.

Continuation along gamma: the posterior at one gamma is the start for the next, from the prior up.

Up to about ``MANY_MODES`` times the comparison's size (n+ n- / n for two classes) EP has one fixed point. Far beyond,
the Gibbs posterior itself has several modes, EP has a fixed point for each, and the one found depends on the start:
from the prior it may be 50 nats below the best (8 indicator columns, 75 of 1500 rows positive, gamma = 4 n), and from a
fit that has seen the rows to be left out, one that these rows chose. A path from the prior through the gammas at which
there is one fixed point sees nothing but its own pairs, and mostly ends at one of the better ones.

:class:`GammaPath` is that path, by sweeps that find the mean first (:class:`MeanFirst`) over a subsample
of the pairs. Fits at a large gamma compare where its end leads with where the prior leads
(:mod:`pymc_pacauc.ep.gaussian`), and posteriors without a group of rows start at its end
(:mod:`pymc_pacauc.ep.leave_out`). Folds for choosing gamma are left out along it at every gamma
(:mod:`pymc_pacauc.ep.leave_out`).
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
from pymc_pacauc.ep.sites import FINE_PER_UNIT, MOST_TABLES, check_gamma_per_pair, fine_site_table, lowest_rho
from pymc_pacauc.numerics import FloatArray, kernel, single_threaded_blas
from pymc_pacauc.problem.problem import Problem

EQUAL = 1e-15  # 1 / sd of the scores of equal rows: as good as none; any number far below those of others will do
FIRST_GAMMA = 0.5  # to go to from the prior, in units of the comparison's size; doubled, a step fewer at some gammas
LEAST_SHARE = 0.1  # of a step, where steps do not become smaller; doubled, some paths at a large gamma go to and fro
CHANGE = 0.1  # relative, of natural parameters, at which to go on: the sweeps of a fit itself make good what is left
FEW = 3  # one in so many directions of a process come first, then so many sweeps of all; doubled: more sweeps later
SWEEPS = 20  # at most, at each gamma, and steps to a mean; 3 sweeps lose 0.14 nats more on average at a large gamma
PAIRS_PER_ROW = 100  # of more pairs so many are sampled; twice as many moves held-out AUCs by less than 0.002


@dataclass(frozen=True, eq=False)
class _Part:
    """The pairs of a block, each of which stands for ``times`` as many; weights relative to their mean, or nearly."""

    i: NDArray[np.intp]
    j: NDArray[np.intp]
    weight_i: FloatArray
    weight_j: FloatArray
    mean_weight: float
    times: float


class MeanFirst:
    """Sweeps over blocks of pairs.

    Parameters
    ----------
    design : ndarray, shape (n, k)
        The scores are ``design @ w + offset``, w ~ N(0, I).
    offset : ndarray, shape (n,)
        The scores are ``design @ w + offset``, w ~ N(0, I).
    blocks : sequence of (Block, float), default ()
        Of pairs of these rows, and how many pairs each pair of a block stands for.
    power : float
        As in :class:`~pymc_pacauc.ep.plan.Plan`; 0 for variational Bayes.
    scale_free : bool
        Whether rankings depend on the direction of w alone.
    single : bool, default True
        Whether single precision will do.
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
        unit = float(np.linalg.norm(design)) / math.sqrt(design.size) or 1.0  # of scores: it ranks nothing
        self.design: NDArray[Any] = np.divide(design, unit, dtype=np.float32 if single else np.float64)
        self.offset = offset / unit
        self.parts = _parts(blocks)
        self.power, self.scale_free = power, scale_free

    def over(self, blocks: Sequence[tuple[Block, float]]) -> MeanFirst:
        """The same rows, and other pairs of them."""
        other = copy(self)
        other.parts = _parts(blocks)
        return other

    def scores(self, mean: FloatArray) -> FloatArray:
        """Of all rows, in units of their own."""
        scores = self.design @ mean.astype(self.design.dtype) + self.offset
        if not np.isfinite(scores).all():  # kernels look sites up by them
            raise FloatingPointError("The moments of the scores overflow: rescale X, the offset or the prior.")
        return scores

    def sweep(self, q: NaturalGaussian, gamma_per_pair: float, error: float) -> tuple[NaturalGaussian, float]:
        """New standard deviations, the mean given these, the precision given both; and the relative change of all.

        ``gamma_per_pair`` is that of a pair of weight one, ``error`` that of the mean, in standard deviations of q, in
        each of its coordinates.
        """
        sds = self.inverse_sd(q)
        mean = self.mean(q, sds, gamma_per_pair, error)
        scores = self.scores(mean)
        curvature, informed = np.zeros(len(scores), self.design.dtype), 0.0
        for p, inverse in zip(self.parts, sds, strict=True):  # which hold K from here on
            by_row, by_column, b = _curvatures(inverse, *self.sites(p, scores, gamma_per_pair))
            curvature[p.i] += by_row
            curvature[p.j] += by_column
            informed += b
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
        """1 / sd of the differences of the scores under q, for each block a matrix."""
        (multiply,) = linalg.get_blas_funcs(("trmm",), (self.design,))
        root = multiply(1.0, q.root, self.design.T, trans_a=1).T  # of the covariance of the scores
        square = np.einsum("ij,ij->i", root, root)
        rounding = float(np.finfo(root.dtype).eps)
        found = []
        for p in self.parts:
            root_i, root_j = root[p.i], root[p.j]
            found.append(_inverse_sd(root_i @ root_j.T, root_i, square[p.i], root_j, square[p.j], rounding))
        return found

    def mean(
        self, q: NaturalGaussian, inverse_sd: list[NDArray[Any]], gamma_per_pair: float, error: float
    ) -> FloatArray:
        """The mean at which the function above is least, from that of q."""

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
        """``sum_ij z_ij s(rho_ij) / sd_ij``, and ``sum_ij G(rho_ij)``."""
        scores = self.scores(mean)
        by_observation, gain = np.zeros(len(scores), self.design.dtype), 0.0
        for p, each in zip(self.parts, inverse_sd, strict=True):
            by_row, by_column, more = _forces(each, *self.sites(p, scores, gamma_per_pair))
            by_observation[p.i] += by_row
            by_observation[p.j] -= by_column
            gain += more
        return (by_observation @ self.design).astype(np.float64), gain

    def sites(self, part: _Part, scores: FloatArray, gamma_per_pair: float) -> tuple[Any, ...]:
        """What the sites of a part depend on, but for the standard deviations."""
        gamma = gamma_per_pair * part.mean_weight
        table, lower = _mean_table(gamma, self.power), lowest_rho(gamma, self.power)
        return scores[part.i], scores[part.j], part.weight_i, part.weight_j, part.times, table, lower


def mean_first_start(problem: Problem, power: float) -> NaturalGaussian:
    """From the prior to near EP's fixed point, of the problem's reduced coefficients, at growing gammas.

    The directions are those of a smooth process, in the order of what they explain: up to the last gamma the first ones
    do.
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
    """The gamma to go to from the prior, on the way to ``gamma``."""
    return min(gamma, FIRST_GAMMA * row_shares(pairs).size)


def _padded(q: NaturalGaussian, k: int) -> NaturalGaussian:
    """With further coefficients that are as they were in the prior."""
    precision, shift = np.eye(k), np.zeros(k)
    known = q.mean.size
    precision[:known, :known], shift[:known] = q.precision, q.shift
    padded = natural_gaussian(precision, shift)
    assert padded is not None
    return padded


def gamma_steps(first: float, last: float, ratio: float) -> list[float]:
    """From the first gamma to the last, both included, by steps of at most this ratio.

    Examples
    --------
    >>> gamma_steps(1.0, 16.0, 4.0), gamma_steps(3.0, 1.0, 4.0), gamma_steps(2.0, 2.0, 4.0)
    ([1.0, 4.0, 16.0], [3.0, 1.0], [2.0])
    """
    steps = math.ceil(abs(math.log(last / first, ratio)) - 1e-9)
    return np.geomspace(first, last, steps + 1).tolist()


def _parts(blocks: Sequence[tuple[Block, float]]) -> list[_Part]:
    """Of all blocks, with ``MOST_TABLES`` different mean weights at most: others are those next to them."""
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
    """``table[function, interval, power]`` of s, G and b, in the intervals of a :func:`fine_site_table`."""
    check_gamma_per_pair(gamma_per_pair, power)
    fine = fine_site_table(gamma_per_pair, power)
    t = np.array([-0.5, 0.0, 0.5])  # ends and middle, so that neighbours agree where they meet
    at = np.vander(t, increasing=True)
    b, c, _, log_constant = (fine @ at.T).transpose(1, 0, 2)
    rho = lowest_rho(gamma_per_pair, power) + (np.arange(len(fine))[:, None] + 0.5 + t) / FINE_PER_UNIT
    values = np.stack([c - b * rho, log_constant + c * rho - 0.5 * b * (1.0 + rho * rho), b])
    return np.ascontiguousarray(values @ np.linalg.inv(at).T)


@kernel(fastmath={"contract", "reassoc", "nsz", "arcp", "nnan", "ninf"})
def _inverse_sd(cross, root_i, square_i, root_j, square_j, rounding):
    """Overwrite ``cross[i, j] = t_i . t_j`` by 1 / sd of the difference of the scores.

    Where rounding would leave little of the difference, it is found from t_i - t_j; where little of that, the rows
    count as equal.
    """
    cancelled_below, equal_below = np.sqrt(rounding), rounding
    for i in range(cross.shape[0]):
        row = cross[i]
        cancelled = 0
        for j in range(cross.shape[1]):
            scale = square_i[i] + square_j[j]
            row[j] = scale - 2 * row[j]
            cancelled += row[j] <= cancelled_below * scale
        if cancelled:
            for j in range(cross.shape[1]):
                scale = square_i[i] + square_j[j]
                if row[j] <= cancelled_below * scale:
                    variance = 0.0
                    for k in range(root_i.shape[1]):
                        variance += (root_i[i, k] - root_j[j, k]) ** 2
                    row[j] = variance if variance > equal_below * scale else 1 / EQUAL**2
        for j in range(cross.shape[1]):
            row[j] = 1 / math.sqrt(row[j])
    return cross


@kernel(fastmath={"contract", "reassoc", "nsz", "arcp", "nnan", "ninf"})
def _place(inverse_sd, mean, mean_j, lower, intervals, position):
    """Where in the table the rho of each pair of a row is: in which interval, and how far from its beginning."""
    last = intervals - 0.5
    for j in range(inverse_sd.size):
        rho = (mean - mean_j[j]) * inverse_sd[j]
        position[j] = min(max((rho - lower) * FINE_PER_UNIT, 0.0), last)


@kernel(fastmath={"contract", "reassoc", "nsz", "arcp", "nnan", "ninf"})
def _forces(inverse_sd, mean_i, mean_j, weight_i, weight_j, times, table, lower):
    """Sums of s / sd along both axes, and the sum of G."""
    n_i, n_j = inverse_sd.shape
    by_row, by_column, position = np.zeros(n_i), np.zeros(n_j), np.empty(n_j)
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
    return by_row, by_column, gain


@kernel(fastmath={"contract", "reassoc", "nsz", "arcp", "nnan", "ninf"})
def _curvatures(inverse_sd, mean_i, mean_j, weight_i, weight_j, times, table, lower):
    """Overwrite 1 / sd by K = b / sd^2; return its sums along both axes, and the sum of b."""
    n_i, n_j = inverse_sd.shape
    by_row, by_column, position = np.zeros(n_i), np.zeros(n_j), np.empty(n_j)
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
    return by_row, by_column, informed


def continued_start(problem: Problem, power: float) -> NaturalGaussian:
    """A start for EP at the problem's gamma, of its reduced coefficients: the end of a path from the prior.

    Where there may be several fixed points the steps are half as long, which halves what the end of the path loses
    against the best fixed point known (0.7 nats on average).
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
    """Posteriors of the reduced coefficients of a problem, by gamma; best asked for from small gammas to large ones.

    Parameters
    ----------
    problem : Problem
        The target; rows that are in no pair are not looked at, and its gamma does not matter.
    power : float
        As in :class:`~pymc_pacauc.ep.plan.Plan`; 0 for variational Bayes.
    step : float, default 4
        Largest ratio of neighbouring gammas.
    pairs_per_row : float, default 100
        Of more pairs, so many are sampled.

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
        place = np.zeros(problem.n, dtype=np.intp)
        place[rows] = np.arange(rows.size)
        design, offset, pairs = space.design[rows], space.offset[rows], problem.pairs.map(place, rows.size)
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
        """From the nearest gamma known, or the prior, in steps that are not too large."""
        if gamma in self.known:
            return self.known[gamma]
        if self.known:
            nearest = min(self.known, key=lambda each: abs(math.log(each / gamma)))
            q, last = self.known[nearest].q, nearest
            way = gamma_steps(nearest, gamma, self.step)[1:]
        else:
            one = gamma <= MANY_MODES * row_shares(self.pairs).size  # fixed point: no need to go by smaller gammas
            q, last = standard_gaussian(self.dimension), gamma if one else first_gamma(gamma, self.pairs)
            way = gamma_steps(last, gamma, self.step)
        for value in way:
            found = self._settled(at_gamma(q, value / last), value, sweeps, tolerance)
            q, last = found.q, value
        self.known[gamma] = found
        return found

    def _settled(self, q: NaturalGaussian, gamma: float, sweeps: int, tolerance: float) -> Reached:
        precise = self.double if tolerance < math.sqrt(np.finfo(np.float32).eps) else self.single
        error = 0.1 * tolerance
        change, share = math.inf, 1.0
        for _ in range(max(sweeps, 1)):
            before = change
            following, change = precise.sweep(q, gamma / self.pairs.total_weight, error)
            if change < tolerance:
                q = following
                break
            if change >= before:  # sweeps that lead to and fro
                share = max(0.5 * share, LEAST_SHARE)
            q = _between(q, following, share)
        return Reached(q, change, change < tolerance)


def _between(q: NaturalGaussian, other: NaturalGaussian, share: float) -> NaturalGaussian:
    """A share of the way from one Gaussian to another."""
    if share == 1.0:
        return other
    precision = q.precision + share * (other.precision - q.precision)
    return natural_gaussian(precision, q.shift + share * (other.shift - q.shift)) or q


def _first_scores(design: FloatArray, offset: FloatArray, pairs: Pairs) -> FloatArray:
    """Scores along the first step from the prior, for two classes the difference of their means."""
    force = np.zeros(pairs.n)
    for block in pairs.blocks:
        force[block.positive] += block.row_weights * block.column_weights.sum()
        force[block.negative] -= block.column_weights * block.row_weights.sum()
    return design @ (force @ design) / pairs.total_weight + offset
