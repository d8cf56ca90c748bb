"""Posteriors that never saw a fold, along gamma: each begins at the fold's own posterior at another gamma.

For choosing gamma many folds are left out at many gammas, and only their rankings are looked at: sweeps find the mean
first (:mod:`pymc_pacauc.ep.mean_first`).

Nothing of the fit to all rows goes into a fold: its path starts at the prior. At a large gamma, where EP has many fixed
points, the one found is chosen by the rows that stay, and there is nothing to forget
(:mod:`pymc_pacauc.ep.leave_out`).
"""

from __future__ import annotations

import math
from functools import cached_property, partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_pacauc.core.blas import single_threaded_blas
from pymc_pacauc.core.deal import deal, number_of_groups
from pymc_pacauc.core.pairs import Pairs
from pymc_pacauc.core.problem import Problem
from pymc_pacauc.ep.leave_out import Groups, LeaveOut, Split, WithoutGroup, leave_out_pairs, split_groups
from pymc_pacauc.ep.mean_first import MeanFirst, first_gamma, gamma_steps
from pymc_pacauc.ep.natural import NaturalGaussian, at_gamma, natural_gaussian, standard_gaussian

__all__ = ["FoldPaths", "suit_fold_paths"]

FloatArray = NDArray[np.float64]

STEP = 4.0  # from gamma to gamma, at most
MOST_BLOCKS, MOST_PAIRS = 8, 5_000_000
PAIRS_PER_ROW = 100  # of more pairs so many are looked at
SINGLE = 1e-3  # tolerance from which on single precision will do
LEAST_SHARE = 0.1  # of a step, where steps do not become smaller
MEAN_ERROR = 0.02  # standard deviations of q, in each of its coordinates, to which a mean is found


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


class _Path:
    """The posteriors of the reduced coefficients given the pairs that a split keeps, by gamma."""

    def __init__(self, problem: Problem, split: Split, power: float) -> None:
        space = problem.scores.reduced
        stays = ~split.out
        design, offset = space.design[stays], space.offset[stays]
        pairs = split.kept.map(np.cumsum(stays) - 1, len(design))
        self.dimension, self.pairs = space.dimension, pairs
        groups = number_of_groups(pairs, PAIRS_PER_ROW * pairs.n)
        self.dealt = deal(pairs, _first_scores(design, offset, pairs), groups, np.random.default_rng(0))
        self.sweeps = partial(MeanFirst, design, offset, self.dealt.parts(), power=power, scale_free=problem.scale_free)
        self.known: dict[float, WithoutGroup] = {}

    @cached_property
    def single(self) -> MeanFirst:
        return self.sweeps(single=True)

    @cached_property
    def double(self) -> MeanFirst:
        return self.sweeps(single=False)

    def at(self, gamma: float, sweeps: int, tolerance: float) -> WithoutGroup:
        """From the nearest gamma known, or the prior, in steps that are not too large."""
        if gamma in self.known:
            return self.known[gamma]
        if self.known:
            nearest = min(self.known, key=lambda each: abs(math.log(each / gamma)))
            q, last = self.known[nearest].state, nearest
            way = gamma_steps(nearest, gamma, STEP)[1:]
        else:
            q, last = standard_gaussian(self.dimension), first_gamma(gamma, self.pairs)
            way = gamma_steps(last, gamma, STEP)
        for value in way:
            found = self._settled(at_gamma(q, value / last), value, sweeps, tolerance)
            q, last = found.state, value
        self.known[gamma] = found
        return found

    def _settled(self, q: NaturalGaussian, gamma: float, sweeps: int, tolerance: float) -> WithoutGroup:
        precise = self.double if tolerance < SINGLE else self.single
        error = min(MEAN_ERROR, 0.1 * tolerance)
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
        converged = change < tolerance
        return WithoutGroup(q.mean, q.root, state=q, gamma=gamma, change=change, converged=converged, rematched=False)


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
