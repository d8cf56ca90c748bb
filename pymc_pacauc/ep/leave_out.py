"""Cross-validation by removing sites (the paper's section 3.3, "Third").

Leaving observations out of an EP fit means leaving out the sites of all pairs they belong to: subtract those sites from
the natural parameters of q, and what remains approximates the posterior without these observations, at the price of
one pass over the pairs that go, instead of a new fit. Every pair that stays keeps its weight in the exponent, so the
posterior approximated is the one a refit would find at gamma times the share of the pairs that stay; or, given a
``gamma``, every group's posterior is trained at that gamma on the pairs it has.

The sites that stay were matched to the full q, not to the new one, and what they keep of the observations left out
flatters the scores of these: on labels that are noise, five folds of 60 rows rank too well by up to 0.007 after sweeps
to a change of 0.2. So where sweeps over the remaining pairs follow (``refine``), the posterior without a group starts
at the end of a path from the prior that never saw the group (:mod:`pymc_pacauc.ep.start`). It costs about as
much as ten sweeps; for single observations, of which there are many, ten sweeps after the removal do. ``change`` says
how far the last sweep still moved the natural parameters.

At a large gamma single observations take the path too: where a ranking can be fitted to the noise in many ways, EP has
many fixed points, and the one next to the full q was chosen by the observations that are left out, however many sweeps
follow.

How to remove sites and how to sweep is the matter of the fit, of any prior, which hands in ``refit``; what is done with
its answers is the same for all.

Posteriors that never saw a fold, along gamma: each begins at the fold's own posterior at another gamma.

For choosing gamma many folds are left out at many gammas, and only their rankings are looked at: every fold has a path
of its own from the prior (:mod:`pymc_pacauc.ep.start`). Nothing of the fit to all rows goes into it, so that at
a large gamma, where EP has many fixed points, the one found is chosen by the rows that stay.
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
from pymc_pacauc.ep.start import CHANGE, SWEEPS, GammaPath
from pymc_pacauc.numerics import FloatArray, single_threaded_blas
from pymc_pacauc.problem.problem import Problem, check_gamma

# Sweeps after a single row was removed. On labels that are noise (40 rows, 10 columns, gamma twice and 8 times the
# comparison's size) the AUC of rows left out is too high by 0.004 and 0.017 after one, 0.0004 and 0.0002 after ten.
SINGLE_SWEEPS = 10


@dataclass(frozen=True, eq=False)
class WithoutGroup:
    """The posterior of the reduced coefficients u that has not seen a group, and how well it is known.

    ``mean`` has shape (k,) and ``root @ root.T`` is the covariance (k, k). ``change`` is the relative change of the
    natural parameters in the last sweep, ``converged`` whether that is less than the tolerance; ``restarted`` says that
    the sites that stay did not make a Gaussian.
    """

    mean: FloatArray
    root: FloatArray
    change: float
    converged: bool
    restarted: bool


@dataclass(frozen=True, eq=False)
class Split:
    """What leaving ``out`` some observations does to the pairs: those that go, those that stay, those among them."""

    out: NDArray[np.bool_]
    touched: Pairs
    kept: Pairs
    inside: Pairs


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of observations with the pairs of each already split, for fits that leave out the same ones again."""

    labels: NDArray[Any]
    index: NDArray[np.intp]
    splits: Sequence[Split]


# Given what goes, the problem that stays, sweeps and a tolerance.
Refit = Callable[[Split, Problem, int, float], WithoutGroup]


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
        What was fitted.
    refit : Fit
        Gives the posterior without the pairs that go.
    groups : array_like, shape (n,), optional
        Group label of each observation, for k-fold or grouped cross-validation; or what :func:`split_groups` made of
        them.
    gamma : float, optional
        By default every pair that stays keeps its weight. With a number, every group's posterior is the one at this
        gamma, of its own pairs.
    refine : int, optional
        At most this many sweeps over the remaining pairs; 0 for the removal of sites alone. By default 3 for groups and
        10 for single observations; given ``gamma``, as many as it takes, with a warning where 200 do not do. At a large
        gamma, and with spikes, at least 20.
    tolerance : float, default 1e-06
        Change in a sweep after which there is none.
    callback : callable, optional
        Called with the number of groups done and their total.
    most_inside : float, default math.inf
        Pairs of a group beyond which ``group_expected_auc`` is estimated from about so many of them.
    of_draws : bool, default True
        Whether to find ``group_expected_auc`` (NaN otherwise).
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
        everyone = space.design @ left.mean + space.offset
        spread = np.full((problem.n, left.root.shape[1]), np.nan)  # of those left out
        spread[out] = space.design[out] @ left.root
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
    """Whether sweeps for the posterior without a group start at the prior, not at the fit that has seen the group."""
    return sweeps > 0 and (int(split.out.sum()) > 1 or several_fixed_points(left))


def subsampled_pairs(pairs: Pairs, scores: FloatArray, most: float) -> Pairs:
    """The pairs, or about ``most`` of them, sampled along the scores, which stand for all.

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
    groups = [
        replace(block.group(g), weight=block.block.weight * block.stands_for)
        for block in sampled.sampled
        for g in range(block.groups)
    ]
    return replace(pairs, blocks=(*sampled.whole.blocks, *_without_empty(groups)))


def expected_pair_auc(mean: FloatArray, root: FloatArray, pairs: Pairs) -> float:
    """AUC on ``pairs`` of scores drawn from N(mean, root root'), averaged over the draws in closed form.

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
        near = np.nonzero(variance <= CANCELLED * scale)  # of which the subtraction leaves little
        variance[near] = np.sum((root[i[near[0]]] - root[j[near[1]]]) ** 2, axis=1)
        difference = mean[i][:, None] - mean[j]
        with np.errstate(divide="ignore", invalid="ignore"):
            ordered = ndtr(difference / np.sqrt(variance))
        ordered = np.where(variance > TIED * scale, ordered, 0.5 + 0.5 * np.sign(difference))
        right += float(block.row_weights @ ordered @ block.column_weights)
    return right / pairs.total_weight


def _encode(groups: ArrayLike | None, n: int) -> tuple[NDArray[Any], NDArray[np.intp]]:
    if groups is None:
        return np.arange(n), np.arange(n)
    values = np.asarray(groups)
    if values.shape != (n,):
        raise ValueError(f"groups must have shape ({n},), one label per observation; got {values.shape}.")
    labels, index = np.unique(values, return_inverse=True)
    if labels.size < 2:
        raise ValueError("groups has one value only: leaving it out leaves nothing.")
    return labels, index.reshape(-1).astype(np.intp)


def split_groups(pairs: Pairs, groups: ArrayLike) -> Groups:
    """Split the pairs of all groups beforehand: worth it where several fits leave out the same ones."""
    labels, index = _encode(groups, pairs.n)
    return Groups(labels, index, tuple(_splits(pairs, labels, index)))


def _splits(pairs: Pairs, labels: NDArray[Any], index: NDArray[np.intp]) -> Iterator[Split]:
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
    """Held-out rankings of the folds of one subsample, at any gamma; best asked for from small gammas to large ones.

    Parameters
    ----------
    problem : Problem
        The target; its gamma does not matter.
    folds : array_like, shape (n,)
        The fold of each observation.
    power : float, default 1.0
        As in :class:`~pymc_pacauc.ep.plan.Plan`; 0 for variational Bayes.
    options : dict
        Of :class:`~pymc_pacauc.ep.start.GammaPath`.

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
        """Scores of every observation under the posterior at ``gamma`` that never saw its fold.

        ``refine`` is the number of sweeps at most, ``tolerance`` the relative change of the natural parameters in the
        last one, ``of_draws`` whether to find ``group_expected_auc``.
        """
        options: dict[str, Any] = {"gamma": gamma, "refine": refine, "tolerance": tolerance, "of_draws": of_draws}

        def own(split: Split, left: Problem, sweeps: int, tolerance: float) -> WithoutGroup:
            found = self.paths[id(split)].at(left.gamma, sweeps, tolerance)
            return WithoutGroup(found.q.mean, found.q.root, found.change, found.converged, restarted=False)

        with single_threaded_blas():
            return leave_out_pairs(self.problem, own, self.groups, **options)
