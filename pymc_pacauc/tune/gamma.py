"""Some of many rows, enough to choose by.

Choosing gamma on arrays: held-out AUCs along gamma, which gammas to look at, and which to choose.

Two AUCs are measured on held-out rows. That of the posterior *mean*, the score one deploys, hardly depends on gamma and
stays high down to the prior, where the posterior says nothing (as gamma goes to zero the mean points along the
difference of the class means, often a good direction); its highest value is somewhere on a plateau, and the deal of the
folds decides where. That of a *draw*, which the theorems bound and every interval is made of, rises steeply from one
half and comes close to the first where the posterior is concentrated. The gap between the two falls along gamma, and
where it passes a given size is easy to locate. So the *stable* rule chooses the smallest gamma at which a draw ranks as
well as the mean score, to within the standard error that its AUC has anyway, over rows: draws then say what the mean
says, as far as these rows can tell. (Where they can tell next to nothing, draws must still have half of what the mean
score gains over chance. Never beyond the gamma at which draws rank best, which with little data may come first. And
where the mean score still improves along gamma, it must have come within one paired standard error of its best, or so
close that nobody would notice: a quarter of the standard error over rows.)

Folds are dealt several times and all held-out AUCs averaged. EP makes a fold cheap: its posterior is its own at a
smaller gamma, rescaled, and a sweep or two (:mod:`pymc_pacauc.ep.leave_out`); or, where that is not for the problem
(pairs of many weights, many small blocks, spikes, a cluster), the fit to all rows minus the sites of the pairs that go,
and a few sweeps.

Leaving out one row at a time is the limit in which nothing is dealt. It gives nearly the same curves, with the same
plateau, so it does not spare the rule; it needs n posteriors where a few deals need five each, and it compares scores
of different posteriors, whose scales have to be matched. So folds it is.

Two gammas see the same folds, so their difference is known far better than either AUC, and the error to compare it with
is its own, *paired*: over the folds of one deal, averaged over deals. Dealing again gives no new rows, so it does not
shrink this error; it only removes what the dealing itself added.

With many rows some are enough to choose on. The gap in question falls about like 1 / gamma, whatever the number of
rows, and the standard error it is held against like the root of the comparison's size: what the rule chooses grows
about like a power of it a little above one half, by which the choice on some rows is taken to all.

The gammas looked at are a coarse grid, then finer steps beside the choice; upwards the grid goes on while its end is
best by the criterion, or chosen, up to gamma = n+ n-, where a single wrong pair costs a nat.

All this is the same for any comparison: strata, weights, ordered classes, censored times. Held-out rows are judged by
the comparison itself, among them alone; what takes the place of class sizes is what each row weighs
(:mod:`pymc_pacauc.comparison.sizes`), and how folds are dealt is the matter of :mod:`pymc_pacauc.comparison.folds`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_pacauc.comparison.folds import comparison_folds
from pymc_pacauc.comparison.kinds import Comparison
from pymc_pacauc.comparison.pairs import Pairs
from pymc_pacauc.comparison.sizes import RowShares, auc_error, row_shares
from pymc_pacauc.ep.gaussian import fit_ep, fit_vb
from pymc_pacauc.ep.leave_out import FoldPaths, Groups, split_groups, suit_fold_paths
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.ep.results import Fit
from pymc_pacauc.fitting import fit
from pymc_pacauc.interrupt import raises_interrupts
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.problem import Problem, check_gamma
from pymc_pacauc.problem.provenance import measure_of

MOST = 4  # times as many rows as asked for, where one side has few


def pairs_of_few(pairs: Pairs, rows: int, rng: np.random.Generator) -> Pairs:
    """The pairs among about so many rows, half of each side; of a small side all, and more of the other for it.

    Examples
    --------
    >>> from pymc_pacauc.comparison.pairs import bipartite
    >>> few = pairs_of_few(bipartite([0] * 3000 + [1] * 1000), 200, np.random.default_rng(1))
    >>> few.n, few.n_pairs
    (4000, 10000)
    """
    if pairs.n <= rows:
        return pairs
    higher = np.zeros(pairs.n, dtype=bool)
    for block in pairs.blocks:
        higher[block.positive] = True
    sides = [rng.permutation(np.flatnonzero(side)) for side in (higher, ~higher)]
    half = rows // 2
    few = min(half, *(max(side.size, 1) for side in sides))
    many = min(half**2 // few, MOST * rows)
    chosen = np.zeros(pairs.n, dtype=bool)
    for side in sides:
        chosen[side[: half if side.size <= half else many]] = True
    return pairs.among(chosen)


CRITERIA = ("auc", "expected_auc")
RULES = ("stable", "best", "one_se")

ROUNDING = 1e-9
FINEST = 2.0**0.5  # ratio of neighbouring gammas at the choice
NOTICED = 0.25  # standard errors over rows: what the mean score may always lose
AIM, CLOSE = 0.9, 0.75  # the gap of draws behind the mean score that is looked for, and that will do
FASTER = 1.1  # than the power of gamma seen so far the gap falls beyond, at least
LEAST_SHARE = 0.1  # of the way between two gammas, by which the next one differs from either
FOLD_TOLERANCE = 0.3  # of the natural parameters, before the last step: after it, below what a ranking notices
FOLD_SWEEPS = 20  # at most
ROUGH = 0.05  # tolerance below which sweeps that find the mean first take many more than EP's own
PATH_TOLERANCE = 3e-2  # of the fits along gamma; the one chosen is fitted to the end
SIZE_DEALT, MOST_DEALS = 400, 20  # size of the comparison times the number of deals; 800 positives and as many others
MANY_ROWS, FEW_ROWS = 2500, 1000  # of more than these, gamma is chosen on about so many,
GROWTH = 0.6  # and grows like this power of the comparison's size: measured, see docs/gamma.md
SERIOUS_CHANGE = 0.5  # of a fold's natural parameters in its last sweep: its AUCs are not to be relied on


# -- what is measured ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Candidate:
    """What is known of one gamma.

    Attributes
    ----------
    gamma
        The gamma.
    posterior
        The posterior given all rows: a :class:`~pymc_pacauc.fitting.Fit`, or weighted draws. Where gamma is chosen on
        some rows, the one given these, and that of the gamma chosen for all candidates.
    auc, expected_auc
        Held-out AUC in each fold, shape (repeats, folds): of the mean score, and of a draw averaged over draws.
    change
        Relative change of the natural parameters in the last sweep of the worst fold; 0 where folds were refitted.
    """

    gamma: float
    posterior: Any
    auc: FloatArray
    expected_auc: FloatArray
    change: float

    @property
    def reliable(self) -> bool:
        return getattr(self.posterior, "converged", True) and self.change < SERIOUS_CHANGE


def leave_out_folds(
    problem: Problem,
    dealt: NDArray[np.intp],
    method: str,
    *,
    tolerance: float = FOLD_TOLERANCE,
    client: Any = None,
) -> Sequence[FoldPaths] | Sequence[Groups]:
    """How the folds of each deal are left out: along paths of their own, to a ``tolerance`` that a ranking needs, or
    else from fits to all rows.
    """
    if client is None and tolerance >= ROUGH and suit_fold_paths(problem):
        return [FoldPaths(problem, fold, 0.0 if method == "vb" else 1.0) for fold in dealt]
    return [split_groups(problem.pairs, fold) for fold in dealt]


def held_out(
    fit: Fit | None,
    folds: Sequence[FoldPaths] | Sequence[Groups],
    *,
    gamma: float,
    refine: int = FOLD_SWEEPS,
    tolerance: float = FOLD_TOLERANCE,
    n_jobs: int | None = None,
    client: Any = None,
) -> Candidate:
    """Held-out AUCs at ``gamma`` over the folds of each deal.

    Folds without paths of their own begin at ``fit``, at this or another gamma. Deals go on threads, or to the workers
    of a cluster.
    """
    one_deal = partial(_one_deal, gamma=gamma, refine=refine, tolerance=tolerance)
    workers = min(len(folds), _cores() if n_jobs is None else n_jobs)
    if client is not None:
        from pymc_pacauc.cluster.rounds import map_with

        deals = map_with(client, one_deal, fit, folds)
    elif workers == 1:
        deals = [one_deal(fit, fold) for fold in folds]
    else:
        with ThreadPoolExecutor(workers) as pool:
            deals = list(pool.map(partial(one_deal, fit), folds))
    auc, expected, change = zip(*deals, strict=True)
    return Candidate(gamma, fit, np.array(auc), np.array(expected), max(change))


def deal_folds(
    comparison: Comparison, folds: int, repeats: int, rng: np.random.Generator, groups: ArrayLike | None = None
) -> NDArray[np.intp]:
    """The fold of every row in each of ``repeats`` deals, shape (repeats, n)."""
    if repeats != int(repeats) or repeats < 1:
        raise ValueError(f"repeats must be an integer of at least 1; got {repeats!r}.")
    return np.array([comparison_folds(comparison, folds, rng, groups) for _ in range(int(repeats))])


def default_repeats(shares: RowShares) -> int:
    """How often folds are dealt: the less, the less noisy the AUC of one deal, whose variance is about 1 / size."""
    return int(np.clip(np.ceil(SIZE_DEALT / shares.size), 1, MOST_DEALS))


# -- which gammas ----------------------------------------------------------------------------------------------------


def coarse_gammas(shares: RowShares) -> FloatArray:
    """Twice, 8 and 32 times the value of Theorem 2.3: a quarter of the comparison's size, n+ n- / n for two classes."""
    return 0.25 * shares.size * np.array([2.0, 8.0, 32.0])


def search_gammas(
    evaluate: Callable[[Sequence[float]], list[Candidate]],
    criterion: str,
    rule: str,
    shares: RowShares,
    *,
    quickly: bool = False,
) -> list[Candidate]:
    """Candidates at the coarse gammas, further up while the best or the choice is at the end, then beside the choice.

    The stable rule chooses the first gamma to meet a condition. Where that is the gap between draws and the mean score,
    which falls steadily along gamma, the next one to look at is where it would be just small enough; else steps are
    halved below the choice, and for other rules on both sides of it. ``quickly`` does the same beyond the last gamma,
    which spares one, but leaves the grid, on which choices by different folds are often the same.
    """
    grid = coarse_gammas(shares)
    step = grid[-1] / grid[-2]
    found = evaluate(grid.tolist())
    while True:
        place, best = choose(found, criterion, rule, shares), choose(found, criterion, "best", shares)
        gamma, last = found[place].gamma, len(found) - 1
        sides = (place - 1,) if rule == "stable" else (place - 1, place + 1)
        beside = [found[k].gamma for k in sides if 0 <= k <= last]
        coarse = max((max(gamma / other, other / gamma) for other in beside), default=1.0) > FINEST * (1 + ROUNDING)
        further = found[last].reliable and found[last].gamma * step <= shares.pairs * (1 + ROUNDING)
        gaps = draw_gaps(found, shares)
        crossed = rule == "stable" and place > 0 and gaps[place] <= 1.0 < gaps[place - 1]
        if further and (best == last or (place == last and not crossed)):
            ahead = _steps_ahead(found, gaps, step) if quickly and rule == "stable" else step
            more = [float(found[last].gamma * ahead)]
        elif crossed and coarse and gaps[place] < CLOSE:
            more = [_crossing(beside[0], gamma, float(gaps[place - 1]), float(gaps[place]))]
        elif coarse and not crossed:
            more = [float(np.sqrt(gamma * other)) for other in beside]
        else:
            return found
        found = sorted(found + evaluate(more), key=lambda each: each.gamma)


def draw_gaps(candidates: Sequence[Candidate], shares: RowShares) -> FloatArray:
    """How far draws rank behind the mean score, at most 1 where they have arrived.

    In standard errors of its AUC over rows; or in halves of what it gains over chance, where that is less.
    """
    gaps = []
    for each in candidates:
        of_mean, of_draw = float(each.auc.mean()), float(each.expected_auc.mean())
        allowed = min(auc_error(of_mean, shares), 0.5 * (of_mean - 0.5))
        gaps.append((of_mean - of_draw) / allowed if allowed > 0.0 else np.inf)
    return np.array(gaps)


def _crossing(low: float, high: float, gap_low: float, gap_high: float) -> float:
    """The gamma at which the gap, about a power of gamma, is a little below 1; at least a tenth from either end."""
    share = np.log(gap_low / AIM) / np.log(gap_low / max(gap_high, 0.1 * AIM))
    return float(low * (high / low) ** np.clip(share, LEAST_SHARE, 1.0 - LEAST_SHARE))


def _steps_ahead(found: Sequence[Candidate], gaps: FloatArray, step: float) -> float:
    """How many times the last gamma is the one at which the gap, about a power of gamma, would be 1; at most a step."""
    before, now = gaps[-2:]
    if not np.inf > before > now > 1.0:
        return step
    share = np.log(now) / (FASTER * np.log(before / now))  # of the way from the gamma before
    way = max(share, LEAST_SHARE) * np.log(found[-1].gamma / found[-2].gamma)
    return float(np.exp(min(way, np.log(step))))


# -- which to choose -------------------------------------------------------------------------------------------------


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


def choose(candidates: Sequence[Candidate], criterion: str, rule: str, shares: RowShares) -> int:
    """The candidate that a rule chooses, among those whose folds can be relied on; ``shares`` are of all rows.

    ``"stable"``: the smallest gamma at which a draw is within one standard error, over rows, of the mean score (or at
    which draws rank best, if that comes first), and the criterion within one paired standard error of its best, or
    within a quarter of the one over rows.
    ``"best"``: the highest criterion. ``"one_se"``: the largest gamma within one paired standard error of it.
    """
    reliable = np.array([each.reliable for each in candidates])
    usable = np.flatnonzero(reliable if reliable.any() else ~reliable)
    auc, expected = (np.array([getattr(candidates[int(i)], name) for i in usable]) for name in CRITERIA)
    values = auc if criterion == "auc" else expected
    errors = paired_errors(values)
    if rule == "best":
        return int(usable[errors.best])
    if rule == "one_se":
        return int(usable[np.flatnonzero(errors.within)[-1]])
    unnoticed = NOTICED * auc_error(float(values[errors.best].mean()), shares)
    within = np.flatnonzero(errors.within | (errors.loss <= unnoticed))
    of_draw = expected.mean(axis=(1, 2))
    there = np.flatnonzero(draw_gaps([candidates[int(i)] for i in usable], shares) <= 1.0)
    settled = min(there[0], np.argmax(of_draw)) if there.size else np.argmax(of_draw)
    return int(usable[max(settled, within[0])])


# -- all of it -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class GammaChoice:
    """What :func:`choose_gamma` found: all ``candidates``, by gamma, which of them was ``chosen``, and its ``fit``.

    ``folds`` has the fold of every row in each deal, -1 where gamma was not chosen on it. Where it was chosen on some
    rows only, candidates have gammas for all rows, and posteriors given those.
    """

    candidates: tuple[Candidate, ...]
    chosen: int
    fit: Fit
    folds: NDArray[np.intp]

    @property
    def gamma(self) -> float:
        return self.candidates[self.chosen].gamma

    @property
    def on_few_rows(self) -> bool:
        return bool((self.folds < 0).any())

    def __repr__(self) -> str:
        auc = self.candidates[self.chosen].auc.mean()
        measure = measure_of(self.fit.problem.pairs.kind)
        return f"GammaChoice(gamma={self.gamma:.4g} of {len(self.candidates)}, cross-validated {measure} {auc:.4f})"


@raises_interrupts
def choose_gamma(
    problem: Problem,
    gammas: ArrayLike | None = None,
    folds: int = 5,
    *,
    repeats: int | None = None,
    method: str = "ep",
    criterion: str = "auc",
    rule: str = "stable",
    groups: ArrayLike | None = None,
    rows: int | None = None,
    refine: int = FOLD_SWEEPS,
    fold_tolerance: float = FOLD_TOLERANCE,
    n_jobs: int | None = None,
    rng: np.random.Generator | None = None,
    callback: Callable[[int], None] | None = None,
    client: Any = None,
) -> GammaChoice:
    """Choose gamma for a problem of arrays by cross-validation; see :func:`~pymc_pacauc.select_gamma`.

    ``rows`` is about how many rows to choose on, the gamma then being taken to all rows; by default all up to 2500,
    and 1000 of more, for the stable rule among gammas that are looked for.
    ``fold_tolerance`` is the change of a fold's natural parameters at which a sweep is its last; ``callback`` is called
    with the number of gammas looked at so far. The workers of ``client``, a Dask client, share the pairs of
    each fit, and the deals of the folds.

    Examples
    --------
    >>> from pymc_pacauc.problem.problem import linear_gaussian_problem
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(150, 3))
    >>> problem = linear_gaussian_problem(X, X[:, 0] + rng.normal(size=150) > 0, gamma=1.0)
    >>> choice = choose_gamma(problem, rng=np.random.default_rng(1))
    >>> bool(10 < choice.gamma < 1000), choice.fit.converged
    (True, True)
    """
    rng = np.random.default_rng() if rng is None else rng
    some = _some_rows(problem, gammas, rule, rows, rng)
    shares = row_shares(some.pairs)
    if some is not problem:
        compared = some.compared_rows
        some = some.of_compared_rows()
        groups = None if groups is None else np.asarray(groups)[compared]
    if repeats is None:  # which of many rows choose is left to chance as well, and matters more than their folds
        repeats = default_repeats(shares) if some is problem else 1
    dealt = deal_folds(some.pairs, folds, repeats, rng, groups)
    left_out = leave_out_folds(some, dealt, method, tolerance=fold_tolerance, client=client)
    first = left_out[0]
    fitted = some is problem or not isinstance(first, FoldPaths)  # whether a fit along gamma is for anything
    fits: list[Fit] = []
    looked_at = 0

    def evaluate(values: Sequence[float]) -> list[Candidate]:
        nonlocal looked_at
        found = []
        for gamma in values:
            if fitted:
                fits.append(_along_gamma(some, gamma, method, fits, client))
            options = {"refine": refine, "tolerance": fold_tolerance, "n_jobs": n_jobs, "client": client}
            found.append(held_out(fits[-1] if fitted else None, left_out, gamma=gamma, **options))
            looked_at += 1
            if callback is not None:
                callback(looked_at)
        return found

    if gammas is None:
        candidates = search_gammas(evaluate, criterion, rule, shares, quickly=some is not problem)
    else:
        candidates = evaluate(gamma_grid(gammas).tolist())
    chosen = choose(candidates, criterion, rule, shares)
    best = candidates[chosen].posterior
    if some is problem:
        return GammaChoice(tuple(candidates), chosen, fit(best.problem, method, start=best, client=client), dealt)
    if isinstance(first, FoldPaths):
        gamma = candidates[chosen].gamma
        fit_near = fit_vb if method == "vb" else fit_ep
        best = fit_near(replace(some, gamma=gamma), start=first.average(gamma), tolerance=SERIOUS_CHANGE, n_jobs=n_jobs)
        candidates = [replace(each, posterior=best) for each in candidates]
    grown = (row_shares(problem.pairs).size / shares.size) ** GROWTH
    start = best if problem.spikes is None else None  # sites of spikes belong to their rows
    final = fit(replace(problem, gamma=grown * best.problem.gamma), method, start=start, client=client)
    of_all = np.full((len(dealt), problem.n), -1)
    of_all[:, compared] = dealt
    return GammaChoice(tuple(replace(each, gamma=grown * each.gamma) for each in candidates), chosen, final, of_all)


def _some_rows(
    problem: Problem, gammas: ArrayLike | None, rule: str, rows: int | None, rng: np.random.Generator
) -> Problem:
    """The problem of the rows to choose on: all, where they are not many, or gammas are given for them."""
    if rows is None:
        if gammas is not None or rule != "stable" or problem.compared_rows.size <= MANY_ROWS:
            return problem
        rows = FEW_ROWS
    if rows != int(rows) or rows < 100:
        raise ValueError(f"rows must be an integer of at least 100; got {rows!r}.")
    if gammas is not None:
        raise ValueError("rows is for gammas that are looked for: those in gammas are compared on all rows.")
    pairs = pairs_of_few(problem.pairs, int(rows), rng)
    return problem if pairs is problem.pairs else replace(problem, pairs=pairs)


def gamma_grid(gammas: ArrayLike) -> FloatArray:
    """Given gammas, checked and in order."""
    values = np.unique(np.atleast_1d(np.asarray(gammas, dtype=np.float64)))
    if values.size == 0:
        raise ValueError("gammas is empty.")
    return np.array([check_gamma(value) for value in values])


def _along_gamma(problem: Problem, gamma: float, method: str, before: Sequence[Fit], client: Any) -> Fit:
    """The fit at a gamma from the nearest one that converged; that it did not is told by ``converged``."""
    usable = [each for each in before if each.converged]
    start = min(usable, key=lambda each: abs(np.log(each.problem.gamma / gamma)), default=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fit(replace(problem, gamma=float(gamma)), method, start=start, tolerance=PATH_TOLERANCE, client=client)


def _one_deal(
    fit: Fit | None, fold: FoldPaths | Groups, *, gamma: float, refine: int, tolerance: float
) -> tuple[FloatArray, FloatArray, float]:
    if isinstance(fold, FoldPaths):
        left = fold.leave_out(gamma, refine=refine, tolerance=tolerance)
    else:
        assert fit is not None
        left = fit.leave_out(fold, gamma=gamma, refine=refine, tolerance=tolerance, n_jobs=1)
    return left.group_auc, left.group_expected_auc, float(left.change.max())


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
