"""Cross-validation of an EP fit: posteriors without a group of observations, and the AUC of their scores on the group.

*Removal.* To leave observations out, subtract the sites of all pairs they belong to from the natural parameters of q:

    Q_without = Q - sum over removed pairs of K_ij (z_i - z_j)(z_i - z_j)',    r_without = r - sum of h_ij (z_i - z_j).

This costs one pass over the removed pairs instead of a new fit. Every pair that stays keeps its gamma per pair, so the
posterior is that of a refit at gamma times the share of pairs that stay; with ``gamma=``, it is trained at that gamma.

*Refinement.* The sites that stay were matched to the full q and still depend on the observations left out, whose AUC is
therefore too high: on labels that are noise, with five folds of 60 rows, by up to 0.007 after sweeps to a change of
0.2. So where sweeps over the remaining pairs follow (``refine``), the posterior without a group starts at the end of a
path from the prior that uses the remaining rows only (:class:`pymc_pacauc.ep.start.GammaPath`), at the cost of about
ten sweeps. Single observations, of which there are many, start at the removal, followed by ten sweeps; at a large
gamma, where EP has several fixed points and the one next to the full q depends on all rows, they take the path too.
``LeaveOut.change`` is the relative change of the natural parameters in the last sweep.

*Choosing gamma* (:class:`FoldPaths`) leaves out the same folds at many gammas: every fold has one path from the prior,
which is continued from gamma to gamma. It is used by plans with ``folds="paths"``, the removal by all others.

:func:`leave_out_pairs` is the same for all priors; an engine passes it ``refit``, which computes the posterior without
a group. To cross-validate another engine, write its ``refit`` (type ``Refit``).

Reference: Ridgway, Alquier, Chopin & Liang (2014), arXiv:1410.1771, section 3.3, third remark.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from pymc_pacauc.comparison.pairs import Block, Pairs
from pymc_pacauc.comparison.risk import pair_risk
from pymc_pacauc.comparison.subsample import number_of_groups, sample_pairs
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.ep.plan import MAX_SWEEPS, several_fixed_points
from pymc_pacauc.ep.sites import CANCELLED, TIED
from pymc_pacauc.ep.start import CHANGE, SWEEPS, GammaPath, Reached
from pymc_pacauc.numerics import FloatArray, single_threaded_blas
from pymc_pacauc.problem.problem import Problem, check_gamma

# Sweeps after a single row was removed. On labels that are noise (40 rows, 10 columns, gamma twice and 8 times the
# comparison's size) the AUC of rows left out is too high by 0.004 and 0.017 after one, 0.0004 and 0.0002 after ten.
SINGLE_SWEEPS = 10


@dataclass(frozen=True, eq=False)
class Split:
    """Pairs when the observations ``out`` (mask, (n,)) are left out: pairs ``touched`` by them, pairs ``kept``, and
    pairs ``inside``, both of whose observations are out.
    """

    out: NDArray[np.bool_]
    touched: Pairs
    kept: Pairs
    inside: Pairs


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of observations and the pairs of each, computed once for several fits that leave out the same groups."""

    labels: NDArray[Any]
    index: NDArray[np.intp]
    splits: Sequence[Split]


# refit(split, remaining problem, sweeps at most, tolerance): the posterior without the group
Refit = Callable[[Split, Problem, int, float], Reached]


@dataclass(frozen=True, eq=False)
class LeaveOut:
    """Scores of every observation under the posterior that has not seen it.

    Attributes
    ----------
    scores, variance : ndarray, shape (n,)
        Mean and variance of each observation's score. Scores of one group are comparable with each other; between
        groups they are standardised to a common scale, as each posterior has its own.
    groups : ndarray of int, shape (n,)
        The group each observation was left out with.
    auc : float
        AUC of ``scores``. For leave-one-out, of the standardised scores of all observations.
    group_auc : ndarray, shape (groups,)
        AUC within each group that has both classes (NaN otherwise); empty for leave-one-out.
    group_expected_auc : ndarray, shape (groups,)
        The same of a score drawn from the posterior without the group, averaged over its draws in closed form.
    change : ndarray, shape (groups,)
        Relative change of the natural parameters in the last iteration: zero means an exact refit.
    restarted : int
        Number of groups whose removal left no Gaussian, so that their fit started anew from the full approximation.
        Zero where fits of groups start at the prior.

    See Also
    --------
    pymc_pacauc.leave_out : Compute it.

    Examples
    --------
    >>> import numpy as np, pymc_pacauc as pac
    >>> X = np.random.default_rng(1).normal(size=(60, 2))
    >>> fit = pac.arrays.fit(pac.arrays.linear_gaussian_problem(X, X[:, 0] > 0.3, gamma=60.0))
    >>> left = pac.leave_out(fit, groups=np.arange(60) % 3)
    >>> left.scores.shape, bool(left.auc > 0.9)
    ((60,), True)
    """

    scores: FloatArray
    variance: FloatArray
    groups: NDArray[np.intp]
    auc: float
    group_auc: FloatArray
    group_expected_auc: FloatArray
    change: FloatArray
    restarted: int

    def __repr__(self) -> str:
        return f"LeaveOut(auc={self.auc:.4f}, groups={self.change.size}, largest change={self.change.max():.2g})"


def leave_out_pairs(
    problem: Problem,
    refit: Refit,
    groups: ArrayLike | Groups | None = None,
    *,
    gamma: float | None = None,
    refine: int | None = None,
    tolerance: float = 1e-6,
    callback: Callable[[int, int], None] | None = None,
    most_inside: float = math.inf,
    of_draws: bool = True,
) -> LeaveOut:
    """Leave out each group of observations in turn (by default each observation).

    Parameters
    ----------
    problem : Problem
        The problem that was fitted.
    refit : callable
        Returns the posterior without a group, a :class:`~pymc_pacauc.ep.start.Reached`.
    groups : array_like, shape (n,), or Groups, optional
        Group label of each observation, for k-fold or grouped cross-validation; or the result of :func:`split_groups`.
    gamma : float, optional
        Gamma of every group's posterior; by default every pair that stays keeps its gamma per pair.
    refine : int, optional
        At most this many sweeps over the remaining pairs; 0 for the removal of sites alone. By default 3 for groups and
        10 for single observations; with ``gamma``, until the tolerance is reached, at most 200. At a large gamma, and
        with spikes, at least 20.
    tolerance : float, default 1e-06
        Relative change of the natural parameters at which sweeps stop.
    callback : callable, optional
        Called with the number of groups done and their total.
    most_inside : float, default math.inf
        Number of pairs within a group beyond which ``group_expected_auc`` is estimated from about so many of them.
    of_draws : bool, default True
        Whether to compute ``group_expected_auc`` (NaN otherwise).

    Returns
    -------
    LeaveOut
        Scores of all observations, and AUCs.

    Raises
    ------
    ValueError
        If ``groups`` has the wrong shape or one value only, or a group holds a whole class.

    Warns
    -----
    ConvergenceWarning
        If sweeps at a given ``gamma`` did not converge for some groups.
    """
    to_the_end = refine is None and gamma is not None
    if refine is None:
        refine = MAX_SWEEPS if to_the_end else SINGLE_SWEEPS if groups is None else 3
    space = problem.scores.reduced
    if isinstance(groups, Groups):
        labels, index, splits = groups.labels, groups.index, iter(groups.splits)
    else:
        labels, index = _encode(groups, problem.n)
        splits = _splits(problem.pairs, labels, index)
    scores, variance = np.full((2, problem.n), np.nan)  # until a row's group has had its turn
    change, group_auc, expected_auc = np.full((3, labels.size), np.nan)
    restarted = unconverged = 0
    for g, split in enumerate(splits):
        out, inside = split.out, split.inside
        at = problem.gamma_per_pair * split.kept.total_weight if gamma is None else check_gamma(gamma)
        stays = replace(problem, pairs=split.kept, gamma=at)
        left = refit(split, stays, refine, tolerance)
        change[g] = left.change
        restarted += left.restarted
        unconverged += not left.converged
        everyone = space.design @ left.q.mean + space.offset
        spread = np.full((problem.n, left.q.root.shape[1]), np.nan)  # of those left out
        spread[out] = space.design[out] @ left.q.root
        scores[out] = (everyone[out] - everyone.mean()) / (everyone.std() or 1.0)
        variance[out] = np.einsum("ij,ij->i", spread[out], spread[out]) / (everyone.var() or 1.0)
        if groups is not None and inside.n_pairs:
            group_auc[g] = 1.0 - float(pair_risk(everyone[None], inside)[0])
            if of_draws:
                expected_auc[g] = expected_pair_auc(everyone, spread, subsampled_pairs(inside, everyone, most_inside))
        if callback is not None:
            callback(g + 1, labels.size)
    if to_the_end and unconverged:
        warnings.warn(
            f"{unconverged} of {labels.size} groups left out did not converge in refine={refine} iterations (largest "
            f"change {change.max():.2g}): their posteriors are not quite those at gamma = {gamma:g}.",
            ConvergenceWarning,
            stacklevel=4,
        )
    return LeaveOut(
        scores=scores,
        variance=variance,
        groups=index,
        auc=1.0 - float(pair_risk(scores[None], problem.pairs)[0]),
        group_auc=np.empty(0) if groups is None else group_auc,
        group_expected_auc=np.empty(0) if groups is None else expected_auc,
        change=change,
        restarted=restarted,
    )


def starts_anew(split: Split, left: Problem, sweeps: int) -> bool:
    """Return whether sweeps for the posterior without a group start on a path from the prior, not at the removal."""
    return sweeps > 0 and (int(split.out.sum()) > 1 or several_fixed_points(left))


def subsampled_pairs(pairs: Pairs, scores: FloatArray, most: float) -> Pairs:
    """Return the pairs, or about ``most`` of them sampled along the scores, weighted such that sums are unbiased.

    Examples
    --------
    >>> from pymc_pacauc.comparison.pairs import bipartite
    >>> some = subsampled_pairs(bipartite(np.arange(800) % 2), np.arange(800.0), 40_000)
    >>> some.n_pairs, some.total_weight
    (40000, 160000.0)
    """
    if pairs.n_pairs <= most:
        return pairs
    sampled = sample_pairs(pairs, scores, number_of_groups(pairs, int(most)), np.random.default_rng(0))
    blocks = [replace(block, weight=block.weight * times) for part, times in sampled.parts() for block in part.blocks]
    return replace(pairs, blocks=tuple(blocks))


def expected_pair_auc(mean: FloatArray, root: FloatArray, pairs: Pairs) -> float:
    """Compute the expected AUC on ``pairs`` of scores drawn from N(mean, root root'), in closed form.

    The pair (i, j) is in order with probability Phi((m_i - m_j) / sd), sd that of the difference of the two scores;
    rows that have the same score whatever the draw count one half.

    Examples
    --------
    >>> from pymc_pacauc.comparison.pairs import bipartite
    >>> round(expected_pair_auc(np.array([0.0, 1.0]), np.eye(2), bipartite([0, 1])), 4)  # Phi(1 / sqrt(2))
    0.7602
    """
    right = 0.0
    for block in pairs.blocks:
        i, j = block.positive, block.negative
        square_i, square_j = (np.einsum("ij,ij->i", root[index], root[index]) for index in (i, j))
        scale = square_i[:, None] + square_j
        variance = scale - 2.0 * (root[i] @ root[j].T)
        near = np.nonzero(variance <= CANCELLED * scale)  # cancellation: recompute from the difference of the rows
        variance[near] = np.sum((root[i[near[0]]] - root[j[near[1]]]) ** 2, axis=1)
        difference = mean[i][:, None] - mean[j]
        with np.errstate(divide="ignore", invalid="ignore"):
            ordered = ndtr(difference / np.sqrt(variance))
        ordered = np.where(variance > TIED * scale, ordered, 0.5 + 0.5 * np.sign(difference))
        right += float(block.row_weights @ ordered @ block.column_weights)
    return right / pairs.total_weight


def _encode(groups: ArrayLike | None, n: int) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the distinct labels, and the index of each observation's label, (n,)."""
    if groups is None:
        return np.arange(n), np.arange(n)
    values = np.asarray(groups)
    if values.shape != (n,):
        raise ValueError(f"groups must have shape ({n},), one label per observation; got {values.shape}.")
    labels, index = np.unique(values, return_inverse=True)
    if labels.size < 2:
        raise ValueError(f"groups must have two values or more; got {labels[0]!r} for every row.")
    return labels, index.reshape(-1).astype(np.intp)


def split_groups(pairs: Pairs, groups: ArrayLike) -> Groups:
    """Split the pairs by group once, for several fits that leave out the same groups."""
    labels, index = _encode(groups, pairs.n)
    return Groups(labels, index, tuple(_splits(pairs, labels, index)))


def _splits(pairs: Pairs, labels: NDArray[Any], index: NDArray[np.intp]) -> Iterator[Split]:
    """Yield the split of the pairs for each group."""
    for g in range(labels.size):
        out = index == g
        touched, kept = [], []
        for block in pairs.blocks:
            rows, columns = out[block.positive], out[block.negative]
            touched += [block.take(rows, slice(None)), block.take(~rows, columns)]
            kept.append(block.take(~rows, ~columns))
        stays = replace(pairs, blocks=_without_empty(kept))
        if stays.n_pairs == 0:
            raise ValueError(f"groups must leave a pair without each of them; group {labels[g]!r} holds a whole class.")
        yield Split(out, replace(pairs, blocks=_without_empty(touched)), stays, pairs.among(out))


def _without_empty(blocks: list[Block]) -> tuple[Block, ...]:
    return tuple(block for block in blocks if block.n_pairs)


class FoldPaths:
    """Posteriors without each fold at any gamma; cheapest in the order of growing gamma.

    Parameters
    ----------
    problem : Problem
        The target; its gamma is ignored.
    folds : array_like, shape (n,)
        The fold of each observation.
    power : float, default 1.0
        As in :class:`~pymc_pacauc.ep.plan.Plan`; 0 for variational Bayes.
    **options : Any
        Options of :class:`~pymc_pacauc.ep.start.GammaPath`.

    Examples
    --------
    >>> from pymc_pacauc.problem.problem import linear_gaussian_problem
    >>> from pymc_pacauc.ep.fit import fit
    >>> rng = np.random.default_rng(1)
    >>> X, fold = rng.normal(size=(90, 3)), np.arange(90) % 3
    >>> problem = linear_gaussian_problem(X, X[:, 0] + rng.normal(size=90) > 0, gamma=40.0)
    >>> left = FoldPaths(problem, fold).leave_out(40.0)
    >>> exact = fit(problem).leave_out(fold, gamma=40.0)
    >>> bool(np.abs(left.group_auc - exact.group_auc).max() < 0.01)
    True
    """

    def __init__(self, problem: Problem, folds: ArrayLike, power: float = 1.0, **options: Any) -> None:
        self.problem = problem
        self.groups: Groups = split_groups(problem.pairs, folds)
        self.paths = {
            id(split): GammaPath(replace(problem, pairs=split.kept), power, **options) for split in self.groups.splits
        }

    def leave_out(
        self, gamma: float, *, refine: int = SWEEPS, tolerance: float = CHANGE, of_draws: bool = True
    ) -> LeaveOut:
        """Compute scores of every observation under the posterior at ``gamma`` without its fold.

        ``refine`` is the largest number of sweeps, ``tolerance`` the relative change of the natural parameters at which
        they stop, ``of_draws`` whether to compute ``group_expected_auc``.
        """
        options: dict[str, Any] = {"gamma": gamma, "refine": refine, "tolerance": tolerance, "of_draws": of_draws}

        def own(split: Split, left: Problem, sweeps: int, tolerance: float) -> Reached:
            return self.paths[id(split)].at(left.gamma, sweeps, tolerance)

        with single_threaded_blas():
            return leave_out_pairs(self.problem, own, self.groups, **options)
