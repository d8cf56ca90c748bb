"""Posteriors that never saw a fold, along gamma: each begins at the fold's own posterior at another gamma.

For choosing gamma many folds are left out at many gammas, and only their rankings are looked at. A sweep of EP renews
mean and covariance together, at the cost of one step of either. But the mean is much cheaper than the covariance: given
the standard deviations of the score differences, EP's equations for the mean alone are those of a stationary point,

    m = sum_ij z_ij s(rho_ij) / sd_ij,    rho_ij = z_ij' m / sd_ij,    z_ij = z_i - z_j,    s = c - b rho,

with b and c of :mod:`pymc_pacauc.ep.sites`, of the function

    |m|^2 / 2 - sum_ij G(rho_ij),    G = log C + c rho - b (1 + rho^2) / 2,    G' = s

(for variational Bayes -G is gamma' Phi(-rho), the cost of a pair). Its value and gradient need the scores and one pass
over the pairs, no product of matrices, and its curvature is about the precision of q. So here a sweep finds the
standard deviations once, then the mean by a quasi-Newton method in coordinates in which q is standard, then the
precision at that mean; one or two of these do where EP's own take many. The fixed points are the same.

Nothing of the fit to all rows goes into a fold: its path starts at the prior. At a large gamma, where EP has many fixed
points, the one found is chosen by the rows that stay, and there is nothing to forget
(:mod:`pymc_pacauc.ep.leave_out`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, optimize

from pymc_pacauc.core.blas import single_threaded_blas
from pymc_pacauc.core.kernels import kernel
from pymc_pacauc.core.pairs import Block, Pairs
from pymc_pacauc.core.problem import Problem
from pymc_pacauc.core.row_shares import row_shares
from pymc_pacauc.ep.leave_out import Groups, LeaveOut, Split, WithoutGroup, dealt_pairs, leave_out_pairs, split_groups
from pymc_pacauc.ep.natural import NaturalGaussian, natural_gaussian, standard_gaussian
from pymc_pacauc.ep.sites import FINE_PER_UNIT, check_gamma_per_pair, fine_site_table, lowest_rho

__all__ = ["FoldPaths", "suit_fold_paths"]

FloatArray = NDArray[np.float64]

FIRST = 0.5  # gamma of the first sweeps, in units of the comparison's size,
STEP = 4.0  # and the largest ratio of the next one
MOST_BLOCKS, MOST_PAIRS = 8, 5_000_000
PAIRS_PER_ROW = 100  # of more pairs so many are looked at
EQUAL = 1e-15  # the 1 / sd of the scores of equal rows: as good as none
SINGLE = 1e-3  # tolerance from which on single precision will do
LEAST_SHARE = 0.1  # of a step, where steps do not become smaller
MEAN_ERROR = 0.02  # standard deviations of q, in each of its coordinates, to which a mean is found,
MOST_STEPS = 20  # in at most so many


def suit_fold_paths(problem: Problem) -> bool:
    """Whether a problem is one for :class:`FoldPaths`: a Gaussian prior, few blocks, whose pairs weigh the same."""
    blocks = problem.pairs.blocks
    few = len(blocks) <= MOST_BLOCKS and problem.pairs.n_pairs <= MOST_PAIRS
    return problem.spikes is None and few and all(block.constant for block in blocks)


class FoldPaths:
    """Held-out rankings of the folds of one deal, at any gamma; best asked for from small gammas to large ones.

    Parameters
    ----------
    problem
        The target; its gamma does not matter.
    folds
        The fold of each observation.
    power
        As in :func:`~pymc_pacauc.ep.gaussian.fit_ep`; 0 for variational Bayes.

    Examples
    --------
    >>> from pymc_pacauc.core.problem import linear_gaussian_problem
    >>> from pymc_pacauc.ep.gaussian import fit_ep
    >>> rng = np.random.default_rng(1)
    >>> X, fold = rng.normal(size=(90, 3)), np.arange(90) % 3
    >>> problem = linear_gaussian_problem(X, X[:, 0] + rng.normal(size=90) > 0, gamma=40.0)
    >>> left = FoldPaths(problem, fold).leave_out(40.0)
    >>> exact = fit_ep(problem).leave_out(fold, gamma=40.0)
    >>> bool(np.abs(left.group_auc - exact.group_auc).max() < 0.01)
    True
    """

    def __init__(self, problem: Problem, folds: ArrayLike, power: float = 1.0) -> None:
        self.problem = problem
        self.groups: Groups = split_groups(problem.pairs, folds)
        self.paths = {id(split): _Path(problem, split, power) for split in self.groups.splits}

    def leave_out(self, gamma: float, *, refine: int = 20, tolerance: float = 0.1) -> LeaveOut:
        """Scores of every observation under the posterior at ``gamma`` that never saw its fold.

        ``refine`` is the number of sweeps at most, ``tolerance`` the relative change of the natural parameters in the
        last one.
        """

        def own(split: Split, left: Problem, sweeps: int, tolerance: float) -> WithoutGroup:
            return self.paths[id(split)].at(left.gamma, sweeps, tolerance)

        with single_threaded_blas():
            return leave_out_pairs(self.problem, own, self.groups, gamma=gamma, refine=refine, tolerance=tolerance)

    def average(self, gamma: float) -> NaturalGaussian:
        """The natural parameters at a gamma that was asked for, averaged over folds: about those given all rows."""
        states = [path.known[gamma].state for path in self.paths.values()]
        q = natural_gaussian(*(np.mean([getattr(q, name) for q in states], axis=0) for name in ("precision", "shift")))
        assert q is not None  # a mean of positive definite matrices is one
        return q


@dataclass(frozen=True, eq=False)
class _Part:
    """A block of pairs of the rows that stay, and the site functions of its pairs."""

    rows: NDArray[np.intp]
    columns: NDArray[np.intp]
    table: FloatArray
    lower: float


class _Path:
    """The posteriors of the reduced coefficients given the pairs that a split keeps, by gamma."""

    def __init__(self, problem: Problem, split: Split, power: float) -> None:
        space = problem.scores.reduced
        stays = ~split.out
        unit = math.sqrt(np.mean(np.square(space.design))) or 1.0  # of scores, which does not matter to their ranking
        self.design, self.offset = space.design[stays] / unit, space.offset[stays] / unit
        self.single = self.design.astype(np.float32)
        pairs = split.kept.map(np.cumsum(stays) - 1, len(self.design))
        self.size = row_shares(pairs).size
        self.pairs = dealt_pairs(pairs, _first_scores(self.design, self.offset, pairs), PAIRS_PER_ROW * pairs.n)
        self.power, self.scale_free = power, problem.scale_free
        self.known: dict[float, WithoutGroup] = {}

    def at(self, gamma: float, sweeps: int, tolerance: float) -> WithoutGroup:
        """From the nearest gamma known, or the prior, in steps that are not too large."""
        if gamma in self.known:
            return self.known[gamma]
        if self.known:
            nearest = min(self.known, key=lambda each: abs(math.log(each / gamma)))
            q, last, way = self.known[nearest].state, nearest, []
        else:
            last = min(gamma, FIRST * self.size)
            q, way = standard_gaussian(self.design.shape[1]), [last]
        steps = math.ceil(abs(math.log(gamma / last)) / math.log(STEP) - 1e-9)
        for value in (*way, *(last * (gamma / last) ** (np.arange(1, steps + 1) / max(steps, 1)))):
            found = self._settled(_at_gamma(q, value / last), float(value), sweeps, tolerance)
            q, last = found.state, value
        self.known[gamma] = found
        return found

    def _settled(self, q: NaturalGaussian, gamma: float, sweeps: int, tolerance: float) -> WithoutGroup:
        parts = [self._part(block, gamma / self.pairs.total_weight * block.weight) for block in self.pairs.blocks]
        change, share = math.inf, 1.0
        for _ in range(max(sweeps, 1)):
            before = change
            following, change = self._sweep(q, parts, tolerance)
            if change < tolerance:
                q = following
                break
            if change >= before:  # sweeps that lead to and fro
                share = max(0.5 * share, LEAST_SHARE)
            q = _between(q, following, share)
        converged = change < tolerance
        return WithoutGroup(q.mean, q.root, state=q, gamma=gamma, change=change, converged=converged, rematched=False)

    def _part(self, block: Block, gamma_per_pair: float) -> _Part:
        table = _mean_table(gamma_per_pair, self.power)
        return _Part(block.positive, block.negative, table, lowest_rho(gamma_per_pair, self.power))

    def _sweep(self, q: NaturalGaussian, parts: list[_Part], tolerance: float) -> tuple[NaturalGaussian, float]:
        """New standard deviations, the mean given these, the precision given both; and the change of all."""
        Z = self.design if tolerance < SINGLE else self.single
        rounding = float(np.finfo(Z.dtype).eps)
        (multiply,) = linalg.get_blas_funcs(("trmm",), (Z,))
        root = multiply(1.0, q.root, Z.T, trans_a=1).T  # of the covariance of the scores
        square = np.einsum("ij,ij->i", root, root)
        inverse_sd = []
        for p in parts:
            rows, columns = root[p.rows], root[p.columns]
            cross = rows @ columns.T
            inverse_sd.append(_inverse_sd(cross, rows, square[p.rows], columns, square[p.columns], rounding))
        mean = self._mean(q, parts, inverse_sd, min(MEAN_ERROR, 0.1 * tolerance))
        scores = self.design @ mean + self.offset
        curvature, informed = np.zeros(len(Z), Z.dtype), 0.0
        for p, each in zip(parts, inverse_sd, strict=True):
            by_row, by_column, b = _curvatures(each, scores[p.rows], scores[p.columns], p.table, p.lower)  # K, in place
            curvature[p.rows] += by_row
            curvature[p.columns] += by_column
            informed += b
        weighed = (0.5 * curvature)[:, None] * Z
        for p, each in zip(parts, inverse_sd, strict=True):
            weighed[p.rows] -= each @ Z[p.columns]
        half = (Z.T @ weighed).astype(np.float64)
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

    def _mean(self, q: NaturalGaussian, parts: list[_Part], inverse_sd: list[FloatArray], error: float) -> FloatArray:
        """The mean at which the function above is least, given standard deviations."""

        def value(u: FloatArray) -> tuple[float, FloatArray]:
            mean = q.root @ u
            scores = self.design @ mean + self.offset
            force, gain = np.zeros(len(scores)), 0.0
            for p, each in zip(parts, inverse_sd, strict=True):
                by_row, by_column, more = _forces(each, scores[p.rows], scores[p.columns], p.table, p.lower)
                force[p.rows] += by_row
                force[p.columns] -= by_column
                gain += more
            return float(0.5 * mean @ mean - gain), (mean - force @ self.design) @ q.root

        options = {"gtol": error, "maxiter": MOST_STEPS}
        found = optimize.minimize(value, q.mean @ q.factor, jac=True, method="L-BFGS-B", options=options)
        return np.asarray(q.root @ found.x)


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
        force[block.positive] += block.weight * block.negative.size
        force[block.negative] -= block.weight * block.positive.size
    return design @ (force @ design) / pairs.total_weight + offset


def _at_gamma(q: NaturalGaussian, ratio: float) -> NaturalGaussian:
    """About what q would be at so many times its gamma, as sites are about proportional to gamma."""
    if ratio == 1.0:
        return q
    prior = np.eye(q.mean.size)
    return natural_gaussian(prior + ratio * (q.precision - prior), ratio * q.shift) or q


@lru_cache(maxsize=64)
def _mean_table(gamma_per_pair: float, power: float) -> FloatArray:
    """``table[interval, function, power]`` of s, G and b, in the intervals of a :func:`fine_site_table`."""
    check_gamma_per_pair(gamma_per_pair, power)
    fine = fine_site_table(gamma_per_pair, power)
    t = np.array([-0.5, 0.0, 0.5])  # ends and middle, so that neighbours agree where they meet
    at = np.vander(t, increasing=True)
    b, c, _, log_constant = (fine @ at.T).transpose(1, 0, 2)
    rho = lowest_rho(gamma_per_pair, power) + (np.arange(len(fine))[:, None] + 0.5 + t) / FINE_PER_UNIT
    values = np.stack([c - b * rho, log_constant + c * rho - 0.5 * b * (1.0 + rho * rho), b], axis=1)
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
def _forces(inverse_sd, mean_i, mean_j, table, lower):
    """Sums of s / sd along both axes, and the sum of G."""
    n_i, n_j = inverse_sd.shape
    by_row, by_column, position = np.zeros(n_i), np.zeros(n_j), np.empty(n_j)
    last = table.shape[0] - 0.5
    gain = 0.0
    for i in range(n_i):
        row = inverse_sd[i]
        for j in range(n_j):
            rho = (mean_i[i] - mean_j[j]) * row[j]
            position[j] = min(max((rho - lower) * FINE_PER_UNIT, 0.0), last)
        total = 0.0
        for j in range(n_j):
            interval = np.int32(position[j])
            t = position[j] - interval - 0.5
            p = table[interval]
            force = (p[0, 0] + t * (p[0, 1] + t * p[0, 2])) * row[j]
            gain += p[1, 0] + t * (p[1, 1] + t * p[1, 2])
            total += force
            by_column[j] += force
        by_row[i] = total
    return by_row, by_column, gain


@kernel(fastmath={"contract", "reassoc", "nsz", "arcp", "nnan", "ninf"})
def _curvatures(inverse_sd, mean_i, mean_j, table, lower):
    """Overwrite 1 / sd by K = b / sd^2; return its sums along both axes, and the sum of b."""
    n_i, n_j = inverse_sd.shape
    by_row, by_column, position = np.zeros(n_i), np.zeros(n_j), np.empty(n_j)
    last = table.shape[0] - 0.5
    informed = 0.0
    for i in range(n_i):
        row = inverse_sd[i]
        for j in range(n_j):
            rho = (mean_i[i] - mean_j[j]) * row[j]
            position[j] = min(max((rho - lower) * FINE_PER_UNIT, 0.0), last)
        total = 0.0
        for j in range(n_j):
            interval = np.int32(position[j])
            t = position[j] - interval - 0.5
            p = table[interval]
            b = p[2, 0] + t * (p[2, 1] + t * p[2, 2])
            informed += b if row[j] > 2 * EQUAL else 0.0
            row[j] *= b * row[j]
            total += row[j]
            by_column[j] += row[j]
        by_row[i] = total
    return by_row, by_column, informed
