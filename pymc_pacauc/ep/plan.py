"""How a problem is fitted: the one place that decides, and a record of what was decided.

    plan = choose_plan(problem)        # coordinates, pairs, start, tolerance
    fitted = fit(problem, plan)        # pymc_pacauc.ep.fit
    print(fitted.plan)                 # all 600 pairs, coefficients, from the prior: 12 sweeps

To force another way, change the plan: ``fit(problem, replace(plan, coordinates="coefficients"))``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.comparison.subsample import LEAST_ROWS, SampledPairs, most_groups, number_of_groups
from pymc_pacauc.ep.loop import UnsupportedError
from pymc_pacauc.ep.sweep import Tile, cut_work
from pymc_pacauc.problem.problem import Problem

if TYPE_CHECKING:
    from pymc_pacauc.ep.results import Fit

METHODS = {"ep": "EP", "vb": "GaussianVB"}  # by what the results call them


class Accuracy(NamedTuple):
    """What a fit is for: the relative change at which it stops, the pairs per row of its subsample, and the number of
    pairs up to which all are used.
    """

    tolerance: float
    pairs_per_row: int
    most_pairs: int


# A result of its own; an estimator's, which subsamples sooner (2 to 2.8 times as fast at 3000 to 4400 rows), and then
# stops sooner; a fit on the way to another; the proposal of a move of SMC. Doubled tolerances save a sweep at most.
# Twice the pairs take twice as long, for an error smaller by a third. 5 million pairs take a second.
ACCURACIES = {
    "fit": Accuracy(1e-6, 160, 5_000_000),
    "estimator": Accuracy(1e-3, 64, 0),
    "path": Accuracy(1e-2, 160, 5_000_000),
    "proposal": Accuracy(2e-2, 160, 5_000_000),
}
MAX_SWEEPS = 200  # most fits take 10 to 30; at a gamma of many times n, a hundred
LEAST_SAVED = 4  # pairs per pair that is used, at least, for a subsample to be worth its error; 8: fewer subsamples
TARGET_ERROR = (
    0.05  # of a subsample's mean, posterior standard deviations; docs/large_data.md. Twice: a quarter of pairs
)
ERROR_CONSTANT = 1.9e-3  # square of that error, times pairs, over gamma^1.5, for up to ten columns; docs/large_data.md
COLUMNS_MEASURED = 10  # with more columns the error is smaller in proportion
# Coefficients up to which no far pair is left out: q's radius is too uncertain for any order to be certain.
LENGTH_MATTERS = 3
NEAR_GAMMA = 4.0  # ratio of gammas up to which the score of a start is one to sample pairs along; twice: larger errors
# gamma over the comparison's size beyond which EP may have several fixed points. Measured on labels that are noise
# (n = 60, d = 20): from there on rows left out of a fit show in the fixed point next to it. Doubled, they would.
MANY_MODES = 11.0
FEWEST_ROWS = 64  # below which a process is fitted in a few hundredths of a second anyway
# Of a smooth process. Features are used where they are so much fewer than rows and, from MANY_ROWS on, where those that
# leave a thousandth of the variance are at most half: else EP in the scores is quicker. Twice WORTH_LEADING: never.
WORTH_FEATURES, MANY_ROWS, WORTH_LEADING, LEADING_LEFT = 0.8, 160, 0.5, 1e-3
LEADING_TIMES, FEW_LEADING = 1000.0, 0.9  # tolerances of variance that leading directions leave; worth it if fewer
MOST_AT_ONCE = 20_000_000  # pairs whose standard deviations fit in memory (80 MB), where the mean is found first
MOST_BLOCKS, MOST_FOLD_PAIRS = 8, 5_000_000  # of folds along paths of their own; more blocks: removed sites are quicker


@dataclass(frozen=True, eq=False)
class Subsample:
    """Some of the pairs: rows compared within random groups along their score (:mod:`~pymc_pacauc.ep.subsample`).

    Attributes
    ----------
    groups : float
        How many; one pair in so many is used.
    thin : bool, default True
        Whether pairs that are far from each other are looked at now and then only.
    random_seed : default 0
        Of the groups.
    along : {"pilot", "start", "refined start"}, default "pilot"
        Whose scores they follow: those of a fit to some rows, of the start, or of the start after a few sweeps.
    drawn : SampledPairs, optional
        Pairs to use as they are, those of the start: fits that differ in the prior alone are comparable then.
    rows_asked : int, optional
        Rows per group that the caller asked for.
    """

    groups: float
    thin: bool = True
    random_seed: Any = 0
    along: str = "pilot"
    drawn: SampledPairs | None = None
    rows_asked: int | None = None


@dataclass(frozen=True, eq=False)
class Plan:
    """How a problem is fitted: coordinates, pairs, start and tolerance.

    ``print(approx.plan)`` says it in a sentence.

    Attributes
    ----------
    n_pairs : int
        Number of pairs of the problem.
    prior : {"gaussian", "spike and slab", "independent"}
        Kind of prior.
    power : float, default 1
        1 for EP, in (0, 1) for fractional EP, 0 for variational Bayes.
    coordinates : {"coefficients", "features", "scores"}
        What the approximation is a Gaussian of while it is iterated: the coefficients that reach the scores; the few
        directions of a smooth process; or the scores of a process themselves.
    leading : int, default 0
        Of features: how many of them are iterated alone before the rest follows; 0 for all at once.
    pairs : "all" or Subsample
        Which pairs are used.
    start : {"prior", "mean first", "slab"} or Fit
        Where the iteration begins: at the prior; where iterations that find the mean first lead; for spikes, at a rough
        fit with every coefficient in the slab; or at an earlier fit.
    continuation : bool, default False
        Whether a second start, along growing gammas, is tried too, and the better fixed point kept.
    accuracy : {"fit", "estimator", "path", "proposal"}, default "fit"
        What the fit is for.
    tolerance : float
        Relative change of the natural parameters in a sweep over all pairs at which to stop.
    max_sweeps : int
        Sweeps after which to give up.
    where : "threads" or callable
        ``"threads"``, or a factory ``(problem, table)`` of a context manager that yields ``sums(q)``; replaces the
        local thread pool.
    folds : {"paths", "removed sites"}
        How folds are left out: along paths of their own over gamma, or by removing their pairs and iterating.
    sweeps : int, optional
        Number of sweeps that were made, once it is carried out.

    See Also
    --------
    pymc_pacauc.EP : Fit by such a plan.

    Examples
    --------
    >>> import pymc_pacauc as pac
    >>> fit = pac.arrays.fit(pac.arrays.linear_gaussian_problem([[0.0], [1.0], [2.0]], [0, 1, 1], gamma=2.0))
    >>> fit.plan.prior, fit.plan.pairs
    ('gaussian', 'all')
    """

    n_pairs: int
    prior: str = "gaussian"
    power: float = 1.0
    coordinates: str = "coefficients"
    leading: int = 0
    pairs: str | Subsample = "all"
    start: str | Fit = "prior"
    continuation: bool = False
    accuracy: str = "fit"
    tolerance: float = ACCURACIES["fit"].tolerance
    max_sweeps: int = MAX_SWEEPS
    where: Any = "threads"
    folds: str = "removed sites"
    sweeps: int | None = None

    def check(self, problem: Problem) -> None:
        """Refuse a plan that cannot be carried out, and say what to do instead.

        Parameters
        ----------
        problem : Problem
            The problem to fit.

        Raises
        ------
        ValueError
            If ``power`` is not in [0, 1].
        UnsupportedError
            If the prior has no such method, or the work cannot be done on a cluster.

        See Also
        --------
        Plan : The fields of a plan.

        Examples
        --------
        >>> from pymc_pacauc import arrays
        >>> problem = arrays.linear_gaussian_problem([[0.0], [1.0], [2.0]], [0, 1, 1], gamma=2.0)
        >>> Plan(n_pairs=2).check(problem)
        """
        if not 0.0 <= self.power <= 1.0:
            raise ValueError(f"power must be in (0, 1], or 0 for variational Bayes; got {self.power!r}.")
        if self.coordinates == "scores" and (self.where != "threads" or not _in_tiles(problem)):
            raise UnsupportedError(
                'coordinates="scores" are for large classes or strata on one machine: use "coefficients".'
            )
        if problem.sites is None:
            if self.where != "threads" and isinstance(self.pairs, Subsample):
                raise UnsupportedError(
                    "A cluster compares all pairs of a problem; a subsample is quick on one machine: leave client or "
                    "pairs away. For rows that no machine holds alone there is pymc_pacauc.cluster.fit_rows."
                )
            return
        refused = f'that of this problem is {problem.sites.name}: use method="ep"'
        if self.where != "threads":
            raise UnsupportedError(f"A prior that is {problem.sites.name} is fitted on one machine: leave client away.")
        if self.power == 0.0:
            raise UnsupportedError(f"Variational Bayes is for Gaussian priors; {refused}.")
        if self.power != 1.0:
            raise UnsupportedError(
                f"Fractional EP is for Gaussian priors; that of this problem is {problem.sites.name}: use power=1, "
                f"not {self.power:g}."
            )
        if isinstance(self.pairs, Subsample):
            raise UnsupportedError(
                f"Pairs are subsampled for Gaussian priors; that of this problem is {problem.sites.name}: leave pairs "
                "away."
            )
        if self.coordinates != "coefficients":
            raise UnsupportedError(f'coordinates={self.coordinates!r} are for Gaussian priors: use "coefficients".')

    def done(self, sweeps: int, pairs: SampledPairs | None = None) -> Plan:
        """Record what was used, without the earlier fit, the pairs and the cluster.

        Parameters
        ----------
        sweeps : int
            Number of sweeps that were made.
        pairs : SampledPairs, optional
            The subsample of pairs that was used.

        Returns
        -------
        Plan
            What a fit keeps of its plan.

        See Also
        --------
        Plan : The fields of a plan.

        Examples
        --------
        >>> Plan(n_pairs=2).done(7).sweeps
        7
        """
        used = self.pairs
        if isinstance(used, Subsample) and pairs is not None:
            used = replace(used, groups=self.n_pairs / pairs.n_pairs, drawn=None)
        start = self.start if isinstance(self.start, str) else "an earlier fit"
        where = "threads" if self.where == "threads" else "a cluster"
        return replace(self, pairs=used, start=start, where=where, sweeps=sweeps)

    def __str__(self) -> str:
        pairs = f"all {_thousands(self.n_pairs)} pairs"
        if isinstance(self.pairs, Subsample):
            pairs = f"{_thousands(round(self.n_pairs / self.pairs.groups))} of {_thousands(self.n_pairs)} pairs"
        where = "" if self.where == "threads" else " on a cluster"
        start = {"prior": "the prior", "mean first": "the mean found first", "slab": "a fit without spikes"}
        if isinstance(self.pairs, Subsample) and self.pairs.along == "pilot":
            begin = "a fit to some rows"
        else:
            begin = start.get(self.start, "an earlier fit") if isinstance(self.start, str) else "an earlier fit"
        also = " and along growing gammas" if self.continuation else ""
        end = "" if self.sweeps is None else f": {self.sweeps} sweep{'s' * (self.sweeps != 1)}"
        return f"{pairs}{where}, {self.coordinates}, from {begin}{also}{end}"

    __repr__ = __str__


def choose_plan(
    problem: Problem,
    *,
    method: str = "ep",
    power: float = 1.0,
    pairs: str | int | Subsample = "auto",
    start: Fit | None = None,
    accuracy: str = "fit",
    tolerance: float | None = None,
    max_sweeps: int = MAX_SWEEPS,
    random_seed: Any = 0,
    where: Any = "threads",
) -> Plan:
    """Decide how a problem is fitted.

    ======================================  ============  ===========  ============  ===================================
    problem                                 coordinates   pairs        start         why (CPU seconds without / with it)
    ======================================  ============  ===========  ============  ===================================
    up to 5 million pairs, or fewer than    coefficients  all          prior
    four times what a subsample has
    more pairs                              coefficients  subsample    some rows     16 at 5000 rows, 44 at 10 000
    .. with more than 3 columns             ..            .. thinned   ..            2.1 to 3.3
    gamma beyond 11 times the comparison's  ..            all          prior, and    fixed points up to 50 nats better
    size                                                               growing gamma
    process of few directions (at most 0.8  features      all          mean first    5 to 7
    n), of these the leading ones first
    other process, of at least 64 rows      scores        all          mean first    2.2 to 3; the start up to 2.4
    .. in many small strata                 coefficients  all          mean first
    spikes                                  coefficients  all          slab          an error: the slab's mode is meant
    ======================================  ============  ===========  ============  ===================================

    A start given replaces the one in the table. Folds go along paths of their own ("paths") where there is a Gaussian
    prior, one machine, at most 8 blocks, of one weight each, and 5 million pairs: 2.4 at 2000 rows and 100 columns. The
    ratios are of ``docs/what_each_part_buys.md``.

    Parameters
    ----------
    problem : Problem
        What is to be fitted.
    method : {"ep", "vb"}, default "ep"
        Expectation propagation, or Gaussian variational Bayes.
    power : float, default 1
        Of EP, in (0, 1].
    pairs : "auto", "all", int or Subsample, default "auto"
        Which pairs to use: those of the table, all, those within groups of so many rows, or those of a subsample.
    start : Fit, optional
        An earlier fit to begin from.
    accuracy : {"fit", "estimator", "path", "proposal"}, default "fit"
        What the fit is for; see ``ACCURACIES``.
    tolerance : float, optional
        Relative change at which to stop, by default that of ``accuracy``.
    max_sweeps : int, default 200
        Sweeps after which to give up.
    random_seed : default 0
        Of the subsample.
    where : "threads" or callable, default "threads"
        Who adds up the sites; see :class:`Plan`.

    Returns
    -------
    Plan

    Examples
    --------
    >>> from pymc_pacauc.problem.problem import linear_gaussian_problem
    >>> X = np.random.default_rng(1).normal(size=(50, 2))
    >>> choose_plan(linear_gaussian_problem(X, np.arange(50) % 2, gamma=50.0))
    all 625 pairs, coefficients, from the prior
    >>> choose_plan(linear_gaussian_problem(np.tile(X, (200, 1)), np.arange(10_000) % 2, gamma=1e4))
    1 600 000 of 25 000 000 pairs, coefficients, from a fit to some rows
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}; got {method!r}.")
    if method == "vb" and power != 1.0:
        raise UnsupportedError(
            f'power={power!r} is of method="ep"; "vb" is its limit of power zero: leave power away, or use method="ep".'
        )
    if not 0.0 < power <= 1.0:
        raise ValueError(f"power must be in (0, 1]; got {power!r}.")
    local = where == "threads"
    coordinates = choose_coordinates(problem, local)
    placed = problem.in_coordinates(coordinates)
    used = _choose_pairs(placed, pairs, ACCURACIES[accuracy], local, random_seed)
    if tolerance is None:
        tolerance = ACCURACIES["fit" if accuracy == "estimator" and used == "all" else accuracy].tolerance
    plan = Plan(
        n_pairs=problem.pairs.n_pairs,
        prior="gaussian" if problem.sites is None else problem.sites.name,
        power=0.0 if method == "vb" else power,
        coordinates=coordinates,
        pairs=used,
        start="prior" if start is None else start,
        accuracy=accuracy,
        tolerance=tolerance,
        max_sweeps=max_sweeps,
        where=where,
        folds="paths" if local and _short_folds(problem) else "removed sites",
    )
    plan.check(problem)
    if isinstance(plan.pairs, Subsample):
        return replace(plan, **_after_start(placed, plan.pairs, start))
    if start is None:
        several = problem.sites is None and several_fixed_points(problem)
        plan = replace(plan, start=_choose_start(placed), continuation=several)
    return replace(plan, leading=_leading(placed, tolerance) if local else 0)


def several_fixed_points(problem: Problem) -> bool:
    """Whether EP may have several fixed points: at a gamma of many times the comparison's size.

    Examples
    --------
    >>> from pymc_pacauc.problem.problem import linear_gaussian_problem
    >>> X, y = np.arange(40.0)[:, None], np.arange(40) % 2  # size 10
    >>> [several_fixed_points(linear_gaussian_problem(X, y, gamma)) for gamma in (100.0, 120.0)]
    [False, True]
    """
    return problem.gamma > MANY_MODES * row_shares(problem.pairs).size


def choose_coordinates(problem: Problem, local: bool = True) -> str:
    """What q is a Gaussian of; see :func:`choose_plan`. Scores need the threads of this machine, ``local``."""
    kind = _kind(problem)
    if kind == "rough process" and local and _in_tiles(problem):
        return "scores"
    return "features" if kind == "smooth process" else "coefficients"


def _kind(problem: Problem) -> str:
    """A process, with about as many directions as rows or fewer, or scores that are linear in few coefficients."""
    scores, n = problem.scores, problem.n
    if problem.sites is not None or not scores.d >= n >= FEWEST_ROWS or scores.directions is None:
        return "linear"
    many = n >= MANY_ROWS and scores.directions.beyond(LEADING_LEFT) > WORTH_LEADING * n
    if scores.directions.rank <= WORTH_FEATURES * n and not many:
        return "smooth process"
    return "rough process" if scores.distinct.none_repeat else "linear"


def pairs_for(problem: Problem) -> int:
    """About as many pairs as a subsample needs for ``TARGET_ERROR``."""
    constant = ERROR_CONSTANT * min(1.0, COLUMNS_MEASURED / problem.scores.reduced.dimension)
    return math.ceil(constant / TARGET_ERROR**2 * problem.gamma**1.5)


def check_count(pairs: Any, least: float, unit: str, others: str, instead: str) -> None:
    """Refuse what is no whole number of rows per group, or of pairs; or one that leaves groups too small."""
    if isinstance(pairs, bool) or not isinstance(pairs, int | np.integer):
        raise ValueError(f"pairs must be {others} a whole number of {unit}; got {pairs!r}.")
    if pairs < least:
        raise ValueError(
            f"pairs={pairs} {unit} are too few: a group needs {LEAST_ROWS} rows of a side, {2 * LEAST_ROWS} in all, "
            f"and hundreds for a small error. Ask for more, or {instead}."
        )


def _choose_pairs(problem: Problem, pairs: Any, accuracy: Accuracy, local: bool, seed: Any) -> str | Subsample:
    """All, or a subsample, given ``"auto"``, ``"all"``, rows per group or a subsample."""
    thin = not problem.scale_free or problem.scores.reduced.dimension > LENGTH_MATTERS
    if isinstance(pairs, Subsample):
        return replace(pairs, thin=pairs.thin and thin, along="pilot", drawn=None)
    if isinstance(pairs, str):
        if pairs not in ("auto", "all"):
            raise ValueError(f'pairs must be "auto", "all" or a number of rows per group; got {pairs!r}.')
        enough = max(accuracy.pairs_per_row * problem.n, pairs_for(problem))
        few = problem.pairs.n_pairs <= max(accuracy.most_pairs, LEAST_SAVED * enough)
        if pairs == "all" or few or not local or problem.sites is not None:
            return "all"
        return Subsample(number_of_groups(problem.pairs, enough), thin, seed)
    check_count(pairs, 2 * LEAST_ROWS, "rows per group", '"auto", "all" or', 'for "auto"')
    groups = float(problem.n / pairs)
    worth = most_groups(problem.pairs, groups) >= LEAST_SAVED
    return Subsample(groups, thin, seed, rows_asked=int(pairs)) if worth else "all"


def _after_start(problem: Problem, pairs: Subsample, start: Fit | None) -> dict[str, Any]:
    """The start of a subsample, if it was fitted to the same pairs, and what its own subsample is good for."""
    if start is None or start.problem.pairs is not problem.pairs:  # one fitted to others may be too far off
        return {"start": "prior"}
    drawn = getattr(start, "subsample", None)
    ratio = max(problem.gamma / start.problem.gamma, start.problem.gamma / problem.gamma)
    if drawn is not None and ratio == 1.0 and drawn.groups <= pairs.groups:
        return {"pairs": replace(pairs, along="start", drawn=drawn)}
    near = drawn is not None and ratio <= NEAR_GAMMA
    return {"pairs": replace(pairs, along="start" if near else "refined start")}


def _choose_start(problem: Problem) -> str:
    if problem.sites is not None:
        return "slab"
    process = _kind(problem) != "linear"
    return "mean first" if process and problem.pairs.n_pairs <= MOST_AT_ONCE else "prior"


def _in_tiles(problem: Problem) -> bool:
    """Whether all pairs are in blocks large enough for a matrix product."""
    return all(isinstance(part, Tile) for part in cut_work(problem.pairs, problem.n).parts)


def _leading(problem: Problem, tolerance: float) -> int:
    """Of how many features to find the posterior before that of the rest; 0 where they are nearly all."""
    space = problem.scores.reduced
    if space.pivots is None:
        return 0
    explained = np.diagonal(space.design[space.pivots]) ** 2  # the most that a score had left
    least = float(np.einsum("ij,ij->i", space.design, space.design).min())
    k = int(np.sum(explained > min(LEADING_TIMES * tolerance, LEADING_LEFT) * least))
    return 0 if k > FEW_LEADING * space.dimension else k


def _short_folds(problem: Problem) -> bool:
    blocks = problem.pairs.blocks
    few = len(blocks) <= MOST_BLOCKS and problem.pairs.n_pairs <= MOST_FOLD_PAIRS
    return problem.sites is None and few and all(block.constant for block in blocks)


def _thousands(number: int) -> str:
    return f"{number:,}".replace(",", " ")
