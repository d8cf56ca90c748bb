"""Choosing gamma by cross-validation: one rule, for models, problems of arrays and estimators.

The held-out AUC of the posterior *mean*, the score one deploys, hardly depends on gamma: it lies on a plateau, and
which gamma is highest there is the noise of the folds. So none is picked. gamma is the geometric mean of a fixed grid,
each gamma weighing

    exp(-z^2) * exp(-(log(gamma / (2 size)) / 2)^2 / 2),

where z is how far it stays behind the best one, in standard errors of that difference, and ``size`` is what the
comparison is worth (n+ n- / n for two classes, :mod:`pymc_pacauc.comparison.sizes`). The second factor is a log-normal
prior: wide (four standard deviations are a factor of 3000), so that it decides only where the folds see no difference,
and then for a posterior that is neither the prior nor a point. The grid has the size times 1/4, 1, 4 and 16, and goes
on in steps of four while its last gamma is the best, up to the number of pairs, where a single wrong pair costs a nat.
(Larger gammas cost most: looking at them always takes half as long again, and the AUC of the choice is the same to
0.0005.)

Two gammas see the same folds, so their difference is known far better than either AUC, and the error to compare it with
is its own, *paired*: over the folds of one assignment of rows to folds, averaged over assignments. Another assignment
gives no new rows, so it does not shrink this error; it removes what the assignment itself added.

Folds are the same for the same rows, in whatever order these come: rows are put in an order of their own, by their
covariates, before they are assigned by a generator that always starts at the same number. Only where rows have no
covariates (scores of any form, by SMC), or where these depend on the order of the rows (a latent Gaussian process), is
it the order in which they come.

With many rows some are enough to choose on, picked the same way. In units of the comparison's size the choice on some
rows is about that on all of them, so gamma is multiplied by the ratio of the sizes to the power ``GROWTH``.

EP makes a fold cheap: its posterior is its own at a smaller gamma, rescaled, and a sweep or two
(:mod:`pymc_pacauc.ep.leave_out`); or, where that is not for the problem (pairs of many weights, many small blocks,
spikes, a cluster), a few sweeps from the prior.

All this is the same for any comparison: strata, weights, ordered classes, censored times. Held-out rows are judged by
the comparison itself, among them alone; what takes the place of class sizes is what each row weighs
(:mod:`pymc_pacauc.comparison.sizes`), and how rows are assigned to folds is the matter of
:mod:`pymc_pacauc.comparison.folds`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_pacauc.comparison.folds import comparison_folds
from pymc_pacauc.comparison.kinds import Comparison
from pymc_pacauc.comparison.pairs import Pairs
from pymc_pacauc.comparison.sizes import RowShares, row_shares
from pymc_pacauc.ep.leave_out import FoldPaths, Groups, split_groups
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.ep.plan import Plan, choose_plan
from pymc_pacauc.ep.results import Fit
from pymc_pacauc.fitting import fit
from pymc_pacauc.interrupt import raises_interrupts
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.problem import Problem, check_gamma
from pymc_pacauc.problem.provenance import measure_of

# Ratio of neighbouring gammas. Half of it doubles the cost; the AUC of the choice then changes by less than 0.001.
STEP = 4.0
# Centre of the prior of gamma, in units of the comparison's size. Where folds see no difference, gamma doubles with it.
CENTRE = 2.0
# Standard deviation of log(gamma) under the prior. Doubled, choices differ twice as much between assignments of folds.
SPREAD = 2.0
# Assignments of rows to folds: this over the comparison's size, within these bounds. Twice as many take twice as long,
# and halve the variance of log(gamma) over assignments; the AUC of the choice is the same to 0.0005.
ASSIGNED_SIZE, LEAST_ASSIGNMENTS, MOST_ASSIGNMENTS = 180, 2, 4
# Power of the comparison's size by which a choice on some rows is taken to all; see docs/develop/gamma.md.
GROWTH = 1.0
# Rows beyond which some choose, and about how many of them. More take longer; the gamma chosen is steadier.
MANY_ROWS, FEW_ROWS = 2500, 1000
# Rows taken of the side that has many, where the other one has few: at most so many times those asked for.
MOST = 4
# Relative change of a fold's natural parameters before its last step, after which it is below what a ranking notices.
FOLD_TOLERANCE = 0.3
# Sweeps of a fold at most; where they do not do, the change in the last one tells.
FOLD_SWEEPS = 20
# Relative change of a fold's natural parameters in its last sweep from which on its AUCs are not relied on.
SERIOUS_CHANGE = 0.5


# -- rows ------------------------------------------------------------------------------------------------------------


def content_order(rows: FloatArray) -> NDArray[np.intp]:
    """Rows of a matrix in an order that depends on what they are, not on where they are: along a fixed direction.

    Examples
    --------
    >>> rows = np.array([[3.0, 1.0], [0.0, 5.0], [2.0, 2.0]])
    >>> np.array_equal(rows[content_order(rows)], rows[::-1][content_order(rows[::-1])])
    True
    """
    return np.argsort(rows @ np.random.default_rng(0).normal(size=rows.shape[1]), kind="stable")


def pairs_of_few(pairs: Pairs, rows: int, order: NDArray[np.intp]) -> Pairs:
    """The pairs among about so many rows, half of each side; of a small side all, and more of the other for it.

    Which ones depends on their ``order`` alone.

    Examples
    --------
    >>> from pymc_pacauc.comparison.pairs import bipartite
    >>> few = pairs_of_few(bipartite([0] * 3000 + [1] * 1000), 200, np.arange(4000))
    >>> few.n, few.n_pairs
    (4000, 10000)
    """
    if pairs.n <= rows:
        return pairs
    rng = np.random.default_rng(0)
    higher = np.zeros(pairs.n, dtype=bool)
    for block in pairs.blocks:
        higher[block.positive] = True
    sides = [rng.permutation(order[side[order]]) for side in (higher, ~higher)]
    half = rows // 2
    few = min(half, *(max(side.size, 1) for side in sides))
    many = min(half**2 // few, MOST * rows)
    chosen = np.zeros(pairs.n, dtype=bool)
    for side in sides:
        chosen[side[: half if side.size <= half else many]] = True
    return pairs.among(chosen)


def assign_folds(
    comparison: Comparison, folds: int, groups: ArrayLike | None = None, order: NDArray[np.intp] | None = None
) -> NDArray[np.intp]:
    """The fold of every row in each of several assignments, shape (repeats, n); the same for the same ``order``.

    The larger the comparison, the less noisy the AUC of one assignment, whose variance is about 1 / size.
    """
    rng = np.random.default_rng(0)
    repeats = int(np.clip(np.ceil(ASSIGNED_SIZE / row_shares(comparison).size), LEAST_ASSIGNMENTS, MOST_ASSIGNMENTS))
    return np.array([comparison_folds(comparison, folds, rng, groups, order) for _ in range(repeats)])


# -- what is measured ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Candidate:
    """What folds tell of one gamma.

    Attributes
    ----------
    gamma : float
        The gamma.
    auc, expected_auc : array
        Held-out AUC in each fold, shape (repeats, folds): of the mean score, and of a draw averaged over draws.
    change : float
        Relative change of the natural parameters in the last sweep of the worst fold; 0 where folds were refitted.
    """

    gamma: float
    auc: FloatArray
    expected_auc: FloatArray
    change: float

    @property
    def reliable(self) -> bool:
        return self.change < SERIOUS_CHANGE


def leave_out_folds(problem: Problem, assigned: NDArray[np.intp], plan: Plan) -> Sequence[FoldPaths] | Sequence[Groups]:
    """How the folds of each assignment are left out: along paths of their own, or else by sweeps from the prior."""
    if plan.folds == "paths":
        placed = problem.in_coordinates(plan.coordinates)
        return [FoldPaths(placed, fold, plan.power) for fold in assigned]
    return [split_groups(problem.pairs, fold) for fold in assigned]


def held_out(
    fit: Fit | None,
    folds: Sequence[FoldPaths] | Sequence[Groups],
    *,
    gamma: float,
    sweeps: int = FOLD_SWEEPS,
    tolerance: float = FOLD_TOLERANCE,
    n_jobs: int | None = None,
    client: Any = None,
) -> Candidate:
    """Held-out AUCs at ``gamma`` over the folds of each assignment.

    Folds without paths of their own need a ``fit`` to all rows, at this or another gamma. Assignments go on threads, or
    to the workers of a cluster.
    """
    one = partial(_one_assignment, gamma=gamma, refine=sweeps, tolerance=tolerance)
    workers = min(len(folds), _cores() if n_jobs is None else n_jobs)
    if client is not None:
        from pymc_pacauc.cluster.rounds import map_with

        found = map_with(client, one, fit, folds)
    elif workers == 1:
        found = [one(fit, fold) for fold in folds]
    else:
        with ThreadPoolExecutor(workers) as pool:
            found = list(pool.map(partial(one, fit), folds))
    auc, expected, change = zip(*found, strict=True)
    return Candidate(gamma, np.array(auc), np.array(expected), max(change))


def _one_assignment(
    fit: Fit | None, fold: FoldPaths | Groups, *, gamma: float, **options: Any
) -> tuple[FloatArray, FloatArray, float]:
    if isinstance(fold, FoldPaths):
        left = fold.leave_out(gamma, **options)
    else:
        assert fit is not None
        left = fit.leave_out(fold, gamma=gamma, n_jobs=1, **options)
    return left.group_auc, left.group_expected_auc, float(left.change.max())


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, eq=False)
class PairedErrors:
    """How far each candidate stays behind the best one: ``loss``, its standard error, and who is ``within`` one."""

    best: int
    loss: FloatArray
    se: FloatArray

    @property
    def within(self) -> NDArray[np.bool_]:
        return self.loss <= self.se


def paired_errors(values: FloatArray) -> PairedErrors:
    """Of held-out AUCs ``values[candidate, repeat, fold]``; of candidates that tie the last one counts as the best.

    Examples
    --------
    >>> values = np.array([[[0.7, 0.8, 0.9]], [[0.71, 0.82, 0.93]]])  # always better, by 0.02 on average
    >>> errors = paired_errors(values)
    >>> errors.best, errors.loss.round(3), errors.se.round(4), errors.within
    (1, array([0.02, 0.  ]), array([0.0058, 0.    ]), array([False,  True]))
    """
    mean = values.mean(axis=(1, 2))
    best = int(np.flatnonzero(mean >= mean.max() - 1e-12)[-1])
    behind = values[best] - values  # (candidates, repeats, folds)
    se = np.sqrt(behind.var(axis=2, ddof=1).mean(axis=1) / values.shape[2])
    return PairedErrors(best, behind.mean(axis=(1, 2)), se)


# -- the rule --------------------------------------------------------------------------------------------------------


def gamma_grid(shares: RowShares, gammas: ArrayLike | None = None) -> FloatArray:
    """Given gammas, checked and in order; by default steps of four from a quarter of the comparison's size.

    Examples
    --------
    >>> from pymc_pacauc.comparison.pairs import bipartite
    >>> gamma_grid(row_shares(bipartite(np.arange(40) < 20)))  # 20 * 20 / 40 = 10, and 400 pairs
    array([  2.5,  10. ,  40. , 160. ])
    """
    if gammas is None:
        values = shares.size * STEP ** np.arange(-1.0, 3.0)
        return values[values <= shares.pairs]
    values = np.unique(np.atleast_1d(np.asarray(gammas, dtype=np.float64)))
    if values.size == 0:
        raise ValueError("gammas is empty.")
    return np.array([check_gamma(value) for value in values])


def weighted_gamma(candidates: Sequence[Candidate], size: float) -> float:
    """The geometric mean of the gammas whose folds can be relied on, weighted as the module's docstring says."""
    usable = [each for each in candidates if each.reliable] or list(candidates)
    errors = paired_errors(np.array([each.auc for each in usable]))
    z = np.divide(errors.loss, errors.se, out=np.where(errors.loss > 0.0, np.inf, 0.0), where=errors.se > 0.0)
    log_gamma = np.log([each.gamma for each in usable])
    log_weight = -(z**2) - 0.5 * ((log_gamma - np.log(CENTRE * size)) / SPREAD) ** 2
    return float(np.exp(np.average(log_gamma, weights=np.exp(log_weight - log_weight.max()))))


@dataclass(frozen=True, eq=False)
class GammaChoice:
    """Gamma that :func:`choose_gamma` found, with the cross-validation of each candidate.

    Attributes
    ----------
    candidates : tuple of Candidate
        Gammas, in order, for all rows, with their held-out AUC.
    chosen : int
        Which of them is the choice, :attr:`gamma`.
    folds : ndarray of int, shape (repeats, n)
        The fold of every row in each assignment, -1 where gamma was not chosen on it.
    measure : str
        What is measured: ``"AUC"``, or the concordance of what is compared.

    See Also
    --------
    choose_gamma : Make the choice.
    pymc_pacauc.select_gamma : The same for a PyMC model.

    Examples
    --------
    >>> from pymc_pacauc.problem.problem import linear_gaussian_problem
    >>> X = np.random.default_rng(1).normal(size=(60, 2))
    >>> choice = choose_gamma(linear_gaussian_problem(X, X[:, 0] > 0.3, gamma=1.0), gammas=[10.0, 100.0], folds=2)
    >>> choice.gamma in (10.0, 100.0), choice.measure
    (True, 'AUC')
    """

    candidates: tuple[Candidate, ...]
    chosen: int
    folds: NDArray[np.intp]
    measure: str

    @property
    def gamma(self) -> float:
        """Inverse temperature chosen, multiplying the pair risk."""
        return self.candidates[self.chosen].gamma

    @property
    def rows(self) -> int:
        """Number of rows that gamma was chosen on."""
        return int((self.folds[0] >= 0).sum())

    def __repr__(self) -> str:
        auc = self.candidates[self.chosen].auc.mean()
        return f"GammaChoice(gamma={self.gamma:.4g}, cross-validated {self.measure} {auc:.4f})"


def choose_among(
    evaluate: Callable[[float], Candidate], gammas: ArrayLike | None, comparison: Comparison
) -> tuple[list[Candidate], int]:
    """Candidates, by gamma, and the place of the choice: of given gammas the nearest to what the rule says."""
    shares = row_shares(comparison)
    found = [evaluate(float(gamma)) for gamma in gamma_grid(shares, gammas)]
    while gammas is None and found[-1].reliable and STEP * found[-1].gamma <= shares.pairs:
        if paired_errors(np.array([each.auc for each in found])).best < len(found) - 1:
            break
        found.append(evaluate(STEP * found[-1].gamma))
    value = weighted_gamma(found, shares.size)
    if gammas is None:
        found = sorted([*found, evaluate(value)], key=lambda each: each.gamma)
    return found, min(range(len(found)), key=lambda k: abs(np.log(found[k].gamma / value)))


@raises_interrupts
def choose_gamma(
    problem: Problem,
    gammas: ArrayLike | None = None,
    folds: int | NDArray[np.intp] = 5,
    *,
    method: str = "ep",
    groups: ArrayLike | None = None,
    tuning: Pairs | None = None,
    start: Fit | None = None,
    n_jobs: int | None = None,
    callback: Callable[[int], None] | None = None,
    client: Any = None,
) -> GammaChoice:
    """Choose gamma for a problem of arrays by cross-validation.

    Parameters
    ----------
    problem : Problem
        What is to be fitted; its own gamma is not used.
    gammas : array-like, optional
        Values to compare; by default the grid of :mod:`pymc_pacauc.tune.gamma`.
    folds : int or array of int, default 5
        Number of folds, or the fold of every row, in one assignment or in each of several.
    method : {"ep", "vb"}, default "ep"
        Of the folds' posteriors.
    groups : array-like, optional
        Group label of each observation; a group is never split between folds.
    tuning : Pairs, optional
        The pairs to choose by, of the same rows, for gammas that are not given. By default all up to 2500 rows, else
        those among about 1000.
    start : Fit, optional
        A fit to the rows in ``tuning``, at any gamma; saves one where folds have no paths of their own.
    n_jobs : int, optional
        Threads, by default one per core.
    callback : callable, optional
        Called with the number of gammas looked at so far.
    client : dask.distributed.Client, optional
        Whose workers share the assignments of folds.

    Returns
    -------
    GammaChoice
        Gamma and the held-out AUC of every candidate.

    Raises
    ------
    ValueError
        If ``gammas`` are not positive, ``folds`` cannot be made, or ``method`` is unknown.

    See Also
    --------
    pymc_pacauc.select_gamma : The same for a PyMC model, and how gamma is chosen.

    Examples
    --------
    >>> from pymc_pacauc.problem.problem import linear_gaussian_problem
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(150, 3))
    >>> problem = linear_gaussian_problem(X, X[:, 0] + rng.normal(size=150) > 0, gamma=1.0)
    >>> choice = choose_gamma(problem)
    >>> bool(10 < choice.gamma < 1000)
    True
    """
    order = content_order(problem.X)
    if gammas is not None:
        tuning = problem.pairs
    elif tuning is None:
        many = problem.compared_rows.size > MANY_ROWS
        tuning = pairs_of_few(problem.pairs, FEW_ROWS, order) if many else problem.pairs
    some = replace(problem, pairs=tuning)
    rows, some = some.compared_rows, some.of_compared_rows()
    groups = None if groups is None else np.asarray(groups)[rows]
    if isinstance(folds, np.ndarray):
        assigned = np.atleast_2d(folds)[:, rows]
    else:
        assigned = assign_folds(some.pairs, folds, groups, content_order(some.X))
    plan = choose_plan(some, method=method, pairs="all")
    if client is not None:
        plan = replace(plan, folds="removed sites")
    left_out = leave_out_folds(some, assigned, plan)
    if start is None and not isinstance(left_out[0], FoldPaths):
        at = replace(some, gamma=CENTRE * row_shares(some.pairs).size)
        [start] = fits_along_gamma(at, [at.gamma], method, accuracy="path", n_jobs=n_jobs, client=client)
    looked_at = 0

    def evaluate(gamma: float) -> Candidate:
        nonlocal looked_at
        found = held_out(start, left_out, gamma=gamma, n_jobs=n_jobs, client=client)
        looked_at += 1
        if callback is not None:
            callback(looked_at)
        return found

    candidates, chosen = choose_among(evaluate, gammas, some.pairs)
    grown = (row_shares(problem.pairs).size / row_shares(some.pairs).size) ** GROWTH
    of_all = np.full((len(assigned), problem.n), -1)
    of_all[:, rows] = assigned
    scaled = tuple(replace(each, gamma=grown * each.gamma) for each in candidates)
    return GammaChoice(scaled, chosen, of_all, measure_of(problem.pairs.kind))


def fits_along_gamma(
    problem: Problem,
    gammas: ArrayLike,
    method: str,
    *,
    accuracy: str = "fit",
    n_jobs: int | None = None,
    client: Any = None,
) -> Iterator[Fit]:
    """Fits at each gamma, from the last one that converged; that one did not is told by ``converged`` alone."""
    start = None
    for gamma in np.asarray(gammas, dtype=np.float64):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            at = replace(problem, gamma=float(gamma))
            found = fit(at, method, start=start, accuracy=accuracy, n_jobs=n_jobs, client=client)
        start = found if found.converged else start
        yield found


def certificate_gammas(shares: RowShares) -> FloatArray:
    """Fifteen values around that of Theorem 2.3, n+ n- / (4n) for two classes: from a quarter of it to 32 times it."""
    return 0.25 * shares.size * 2.0 ** np.linspace(-2, 5, 15)
