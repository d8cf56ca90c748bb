"""Choose gamma by cross-validation: one rule, for PyMC models, problems of arrays and estimators.

*Rule* (:func:`weighted_gamma`). The held-out AUC of the posterior mean, the score that is deployed, hardly depends on
gamma over a wide range, where the maximum is noise of the folds. So gamma is not the maximum, but the geometric mean of
a fixed grid with weights

    exp(-z^2) * exp(-(log(gamma / (2 size)) / 2)^2 / 2),

where z is the loss of AUC against the best gamma, in standard errors of that difference, and ``size`` is the
comparison's size (n+ n- / n for two classes, :mod:`pymc_pacauc.comparison.sizes`). The second factor is a log-normal
prior, so wide (four standard deviations are a factor of 3000) that it matters only where folds show no difference. The
grid is the size times 1/4, 1, 4 and 16, and is extended in steps of four while its last gamma is the best, up to the
number of pairs, where a single wrong pair costs one nat. (Always computing larger gammas takes half as long again, and
changes the AUC of the choice by less than 0.0005.)

*Standard errors* (:func:`paired_errors`). Two gammas have the same folds, so their difference is known better than
either AUC. Its error is *paired*: over the folds of one assignment of rows to folds, averaged over assignments. Further
assignments have no new rows, so they do not reduce this error; they remove the noise of the assignment itself.

*Folds* (:func:`assign_folds`) do not depend on the order of the rows: rows are sorted by a fixed projection of their
covariates before they are assigned with a fixed seed. Only where rows have no covariates (scores of any form, by SMC),
or these depend on the order of the rows (a latent Gaussian process), the order of the rows matters.

*Many rows* (:func:`pairs_of_few`). Above 2500 rows gamma is chosen on about 1000, selected in the same way, and
multiplied by the ratio of the comparison's sizes to the power ``GROWTH``.

*Cost.* The posterior without a fold at one gamma starts at its own at a smaller gamma and takes one or two sweeps
(``Plan.folds == "paths"``); for pairs of many weights, many small blocks, spikes, or on a cluster, it takes a few
sweeps from the prior.

The rule is for any comparison (strata, weights, ordered classes, censored times): held-out AUCs are of the comparison
restricted to the fold. ``docs/develop/gamma.md`` has the measurements behind the constants. Another criterion
replaces the AUCs of a :class:`Candidate`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from operator import methodcaller
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_pacauc.comparison.folds import comparison_folds
from pymc_pacauc.comparison.pairs import Pairs
from pymc_pacauc.comparison.sizes import RowShares, row_shares
from pymc_pacauc.ep.leave_out import FoldPaths, LeaveOut, split_groups
from pymc_pacauc.ep.plan import GAMMA_STEP, Plan, choose_plan
from pymc_pacauc.ep.results import Fit
from pymc_pacauc.ep.start import SWEEPS
from pymc_pacauc.ep.subsample import FEW_ROWS
from pymc_pacauc.fitting import fits_along
from pymc_pacauc.interrupt import raises_interrupts
from pymc_pacauc.numerics import FloatArray, cores
from pymc_pacauc.problem.problem import Problem, check_gamma
from pymc_pacauc.problem.provenance import measure_of

# Centre of the prior of gamma, in units of the comparison's size (n+ n- / n for two classes); priors are compared
# there. Where folds see no difference, gamma doubles with it.
CENTRE = 2.0
# Standard deviation of log(gamma) under the prior. Doubled, choices differ twice as much between assignments of folds.
SPREAD = 2.0
# Assignments of rows to folds: this over the comparison's size, from 2 to 4. Twice as many take twice as long, and
# halve the variance of log(gamma) over assignments; the AUC of the choice is the same to 0.0005.
ASSIGNED_SIZE = 180
# Rows beyond which about FEW_ROWS of them choose. Both doubled, the choice takes four times as long, and is as good
# (docs/develop/gamma.md).
MANY_ROWS = 2500
# Relative change of a fold's natural parameters before its last step, after which it is below what a ranking notices.
# Doubled, gamma moves by 2 %, in 0.8 of the time (benchmarks/constants.py).
FOLD_TOLERANCE = 0.3

# -- rows ------------------------------------------------------------------------------------------------------------


def content_order(rows: FloatArray) -> NDArray[np.intp]:
    """Sort the rows of a matrix by their projection on a fixed direction: an order that depends on content only; (n,).

    Examples
    --------
    >>> rows = np.array([[3.0, 1.0], [0.0, 5.0], [2.0, 2.0]])
    >>> np.array_equal(rows[content_order(rows)], rows[::-1][content_order(rows[::-1])])
    True
    """
    return np.argsort(rows @ np.random.default_rng(0).normal(size=rows.shape[1]), kind="stable")


def pairs_of_few(pairs: Pairs, rows: int, order: NDArray[np.intp]) -> Pairs:
    """Keep the pairs among about ``rows`` rows, half of each side; of a small side all, with more of the other side.

    The selection depends on the ``order`` of the rows alone.

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
    sides = [rng.permutation(order[side[order]]) for side in (pairs.higher, ~pairs.higher)]
    half = rows // 2
    few = min(half, *(max(side.size, 1) for side in sides))
    many = min(half**2 // few, 4 * rows)
    chosen = np.zeros(pairs.n, dtype=bool)
    for side in sides:
        chosen[side[: half if side.size <= half else many]] = True
    return pairs.among(chosen)


def assign_folds(
    comparison: Pairs, folds: int, groups: ArrayLike | None = None, order: NDArray[np.intp] | None = None
) -> NDArray[np.intp]:
    """Assign every row to a fold, several times: shape (repeats, n); the same for the same ``order``.

    The number of assignments falls with the comparison's size, because the variance of an AUC is about 1 / size.
    """
    rng = np.random.default_rng(0)
    repeats = int(np.clip(np.ceil(ASSIGNED_SIZE / row_shares(comparison).size), 2, 4))
    return np.array([comparison_folds(comparison, folds, rng, groups, order) for _ in range(repeats)])


def most_assignments(problem: Problem) -> int:
    """Return one where fits take long (spikes on more columns than rows: 500 x 2000, 10 s for each fold), else four."""
    return 1 if problem.sites is not None and problem.d > problem.n else 4


# -- what is measured ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Candidate:
    """Cross-validation of one gamma.

    Attributes
    ----------
    gamma : float
        The gamma.
    auc, expected_auc : array
        Held-out AUC in each fold, shape (repeats, folds): of the mean score, and of a draw averaged over draws.
    change : float
        Relative change of the natural parameters in the last sweep of the worst fold; 0 where folds were refitted.
    scores : array or None
        Standardised scores of the rows by posteriors without their fold, shape (repeats, rows), where they are kept.
    """

    gamma: float
    auc: FloatArray
    expected_auc: FloatArray
    change: float
    scores: FloatArray | None = None

    @property
    def reliable(self) -> bool:
        """Whether its AUCs can be relied on: no fold still changed by half in its last sweep."""
        return self.change < 0.5


def leave_out_folds(
    problem: Problem, assigned: NDArray[np.intp], plan: Plan, whole: Fit | None = None
) -> list[Callable[..., LeaveOut]]:
    """Make a function for each assignment that leaves out its folds, given ``gamma``, ``refine`` and ``tolerance``.

    Folds go along paths of their own, or start from ``whole``, a fit to all rows at any gamma.
    """
    if plan.folds == "paths":
        placed = problem.in_coordinates(plan.coordinates)
        return [FoldPaths(placed, fold, plan.power).leave_out for fold in assigned]
    assert whole is not None
    return [partial(whole.leave_out, split_groups(problem.pairs, fold), n_jobs=1) for fold in assigned]


def held_out(
    left_out: Sequence[Callable[..., LeaveOut]],
    gamma: float,
    *,
    sweeps: int = SWEEPS,
    tolerance: float = FOLD_TOLERANCE,
    n_jobs: int | None = None,
    client: Any = None,
) -> Candidate:
    """Compute held-out AUCs at ``gamma`` for the folds of each assignment, on threads or the workers of a cluster."""
    one = methodcaller("__call__", gamma=gamma, refine=sweeps, tolerance=tolerance)
    if client is not None:
        from pymc_pacauc.cluster.rounds import gather, submit

        found = gather(client, submit(client, one, left_out))
    else:
        with ThreadPoolExecutor(min(len(left_out), cores() if n_jobs is None else n_jobs)) as pool:
            found = list(pool.map(one, left_out))
    names = ("group_auc", "group_expected_auc", "scores")
    auc, expected, scores = (np.array([getattr(each, name) for each in found]) for name in names)
    return Candidate(gamma, auc, expected, max(float(each.change.max()) for each in found), scores)


@dataclass(frozen=True, eq=False)
class PairedErrors:
    """Mean AUC lost by each candidate against the best one (``loss``), and its standard error ``se``; (candidates,)."""

    best: int
    loss: FloatArray
    se: FloatArray

    @property
    def within(self) -> NDArray[np.bool_]:
        return self.loss <= self.se


def paired_errors(values: FloatArray) -> PairedErrors:
    """Compute paired errors of held-out AUCs ``values[candidate, repeat, fold]``; of ties the last one is the best.

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
    """Check and sort given gammas; by default, steps of four from a quarter of the comparison's size.

    Examples
    --------
    >>> from pymc_pacauc.comparison.pairs import bipartite
    >>> gamma_grid(row_shares(bipartite(np.arange(40) < 20)))  # 20 * 20 / 40 = 10, and 400 pairs
    array([  2.5,  10. ,  40. , 160. ])
    """
    if gammas is None:
        values = shares.size * GAMMA_STEP ** np.arange(-1.0, 3.0)
        return values[values <= shares.pairs]
    values = np.unique(np.atleast_1d(np.asarray(gammas, dtype=np.float64)))
    if values.size == 0:
        raise ValueError("gammas is empty: give at least one number > 0, or None for the default grid.")
    return np.array([check_gamma(value) for value in values])


@np.errstate(under="ignore")
def weighted_gamma(candidates: Sequence[Candidate], size: float) -> float:
    """Compute the weighted geometric mean of the module docstring, over the gammas whose folds converged."""
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
        Index of the choice, :attr:`gamma`.
    folds : ndarray of int, shape (repeats, n)
        The fold of every row in each assignment, -1 where gamma was not chosen on it.
    measure : str
        Name of the measure: ``"AUC"``, or the concordance of what is compared.

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

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """Held-out AUC of every candidate, (candidates,) each.

        ``gamma``; ``auc`` of the mean score with its standard error ``se``; ``expected_auc`` of a draw; the ``loss``
        against the best with its paired error ``loss_se``, and whether it is ``within`` one of these; ``fold_change``.
        """
        auc = np.array([each.auc for each in self.candidates])
        errors = paired_errors(auc)
        return {
            "gamma": np.array([each.gamma for each in self.candidates]),
            "auc": auc.mean(axis=(1, 2)),
            "se": np.sqrt(auc.var(axis=2, ddof=1).mean(axis=1) / auc.shape[2]),
            "expected_auc": np.array([each.expected_auc.mean() for each in self.candidates]),
            "loss": errors.loss,
            "loss_se": errors.se,
            "within": errors.within,
            "fold_change": np.array([each.change for each in self.candidates]),
        }

    def __repr__(self) -> str:
        auc = self.candidates[self.chosen].auc.mean()
        return f"GammaChoice(gamma={self.gamma:.4g}, cross-validated {self.measure} {auc:.4f})"


def choose_among(
    evaluate: Callable[[float], Candidate], gammas: ArrayLike | None, comparison: Pairs
) -> tuple[list[Candidate], int]:
    """Evaluate candidates; return them in order of gamma, and the index of the choice.

    If ``gammas`` are given, the choice is the one nearest to the rule's.
    """
    shares = row_shares(comparison)
    found = [evaluate(float(gamma)) for gamma in gamma_grid(shares, gammas)]
    while gammas is None and found[-1].reliable and GAMMA_STEP * found[-1].gamma <= shares.pairs:
        if paired_errors(np.array([each.auc for each in found])).best < len(found) - 1:
            break
        found.append(evaluate(GAMMA_STEP * found[-1].gamma))
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
        The problem to fit; its own gamma is not used.
    gammas : array-like, optional
        Values to compare; by default the grid of :mod:`pymc_pacauc.tune.gamma`.
    folds : int or array of int, default 5
        Number of folds, or the fold of every row, in one assignment or in each of several.
    method : {"ep", "vb"}, default "ep"
        Method of the folds' posteriors.
    groups : array-like, optional
        Group label of each observation; a group is never split between folds.
    tuning : Pairs, optional
        Pairs of the same rows by which to choose, where ``gammas`` are not given. By default all up to 2500 rows, else
        those among about 1000.
    start : Fit, optional
        A fit to the rows in ``tuning``, at any gamma; saves one fit where folds have no paths of their own.
    n_jobs : int, optional
        Threads, by default one per core.
    callback : callable, optional
        Called with the number of gammas evaluated so far.
    client : dask.distributed.Client, optional
        Client of a cluster whose workers compute the assignments of folds.

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
        assigned = assign_folds(some.pairs, folds, groups, content_order(some.X))[: most_assignments(some)]
    plan = choose_plan(some, method=method, pairs="all")
    if client is not None:
        plan = replace(plan, folds="removed sites")
    if start is None and plan.folds != "paths":
        # Folds under other than Gaussian priors start anew: the fit is at the gamma where it is the fastest.
        times = CENTRE if some.sites is None else 1.0 / GAMMA_STEP
        at = replace(some, gamma=times * row_shares(some.pairs).size)
        [start] = fits_along([at], method, accuracy="path", n_jobs=n_jobs, client=client)
    left_out: Sequence[Any] = leave_out_folds(some, assigned, plan, start)
    if client is not None:
        from pymc_pacauc.cluster.rounds import hold

        left_out = hold(client, left_out)
    number = count(1)

    def evaluate(gamma: float) -> Candidate:
        found = held_out(left_out, gamma, n_jobs=n_jobs, client=client)
        if callback is not None:
            callback(next(number))
        return found

    candidates, chosen = choose_among(evaluate, gammas, some.pairs)
    grown = row_shares(problem.pairs).size / row_shares(some.pairs).size  # see docs/develop/gamma.md
    of_all = np.full((len(assigned), problem.n), -1)
    of_all[:, rows] = assigned
    scaled = tuple(replace(each, gamma=grown * each.gamma) for each in candidates)
    return GammaChoice(scaled, chosen, of_all, measure_of(problem.pairs.kind))


def certificate_gammas(shares: RowShares) -> FloatArray:
    """Return fifteen gammas around that of Theorem 2.3, a quarter of the size: from 1/4 of it to 32 times it."""
    return 0.25 * shares.size * 2.0 ** np.linspace(-2, 5, 15)
