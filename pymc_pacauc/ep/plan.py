"""Decide how a problem is fitted by EP, in one place, and record the decision.

    plan = choose_plan(problem)        # coordinates, pairs, start, tolerance
    fitted = fit(problem, plan)        # pymc_pacauc.ep.fit
    print(fitted.plan)                 # all 600 pairs, coefficients, from the prior: 12 sweeps

The table in the docstring of :func:`choose_plan` says which combination is used when, and what it saves. To force
another one, change the plan: ``fit(problem, replace(plan, coordinates="coefficients"))``. To add a strategy, add a row
to the table with a measured ratio (``docs/develop/what_each_part_buys.md``), a value of one of the axes of
:class:`Plan`, and the code that carries it out in :mod:`pymc_pacauc.ep.fit` or an engine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.comparison.subsample import LEAST_ROWS, SampledPairs, most_groups, number_of_groups
from pymc_pacauc.ep.loop import UnsupportedError
from pymc_pacauc.problem.problem import Problem

if TYPE_CHECKING:
    from pymc_pacauc.ep.results import Fit

METHODS = {"ep": "EP", "vb": "GaussianVB"}  # value of method= and the name of its PyMC class


class Accuracy(NamedTuple):
    """Accuracy of a fit.

    ``tolerance``: relative change at which it stops. ``pairs_per_row``: pairs of a subsample, per row. ``rough``:
    whether a subsample of 250 000 to 5 million pairs is accurate enough with up to 3 columns and at a large gamma too.
    """

    tolerance: float
    pairs_per_row: int
    rough: bool = False


# A final result; an estimator's; an intermediate fit; the proposal of a move of SMC. Doubled tolerances
# save a sweep at most. Twice the pairs take twice as long, for an error smaller by a third.
ACCURACIES = {
    "fit": Accuracy(1e-6, 160),
    "estimator": Accuracy(1e-3, 64, rough=True),
    "path": Accuracy(1e-2, 160),
    "proposal": Accuracy(2e-2, 160),
}
# Pairs up to which all are used: a tenth of a second, as much as a subsample of 10 000 rows takes. Doubled, a fit of
# 1400 rows takes twice as long as one of 1500.
FEW_PAIRS = 250_000
# The same where far pairs are not left out, fixed points are several, or a subsample is not good enough: a second of
# work; doubled, two.
MOST_PAIRS = 5_000_000
MAX_SWEEPS = 200  # most fits take 10 to 30, at a gamma of many times n a hundred; doubled, failures take twice as long
# Least ratio of all pairs to those of a subsample, for it to be worth its error. Doubled: fewer fits are subsampled.
LEAST_SAVED = 4
# Coefficients up to which no far pair is left out: q's radius is too uncertain for any order to be certain. Doubled, a
# fit of four to 20 000 rows takes 4.5 times as long, and is no better (benchmarks/constants.py).
LENGTH_MATTERS = 3
# Largest ratio of neighbouring gammas on a path, and of shares of the rows: within it the fit at one is a good start at
# the other, and its score good enough to sample pairs along. Halved: twice as many steps.
GAMMA_STEP = 4.0
# gamma over the comparison's size beyond which EP may have several fixed points. Measured on labels that are noise
# (n = 60, d = 20): from there on rows left out of a fit show in the fixed point next to it. Doubled, they would.
MANY_MODES = 11.0
FEWEST_ROWS = 64  # below which a process is fitted in a few hundredths of a second anyway
# Relative change at which a fit stops that is an approximation itself, in features or on a subsample: means are right
# to some thousandths of a standard deviation. Doubled, one sweep in ten less, and twice the error.
FINE_TOLERANCE = 3e-4
# Blocks up to which folds have their own paths: 9, of ten classes, are 3.3 times as fast as removing sites (digits of
# `benchmarks/multi_class.py`); with twice as many, removing sites is quicker
MOST_BLOCKS = 9


@dataclass(frozen=True, eq=False)
class Subsample:
    """A random subset of the pairs: rows are put into groups, and compared within (:mod:`~pymc_pacauc.ep.subsample`).

    Attributes
    ----------
    groups : float
        Number of groups; one pair in so many is used.
    thin : bool, default True
        Whether of pairs far apart in score only one in several is computed, with a larger weight.
    random_seed : default 0
        Seed of the assignment to groups.
    along : {"pilot", "start"}, default "pilot"
        Scores along which rows are put into groups: those of a fit to some rows, or of the start.
    drawn : SampledPairs, optional
        Pairs to use as they are, those of the start: log evidences of fits with different priors are comparable then.
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
    coordinates : {"coefficients", "features"}
        Coordinates of the Gaussian: the coefficients that reach the scores; or, for a process, the leading features of
        its kernel matrix, few of them where it is smooth.
    pairs : "all" or Subsample
        Which pairs are used.
    start : {"prior", "few features", "slab", "parts"} or Fit
        Where the iteration begins: at the prior; at a rough fit of the leading third of the features; for spikes, at a
        rough fit with every coefficient in the slab; at fits of the problem's independent parts; or at an earlier fit.
    continuation : bool, default False
        Whether a second start, the end of a path of growing gammas, is tried too, and the fixed point of larger
        evidence kept; elsewhere it is tried only where sweeps from the prior do not converge.
    accuracy : {"fit", "estimator", "path", "proposal"}, default "fit"
        Purpose of the fit, which sets its tolerance and number of pairs.
    tolerance : float
        Relative change of the natural parameters in a sweep over all pairs at which to stop.
    max_sweeps : int
        Sweeps after which to give up.
    where : "threads" or callable
        ``"threads"``, or a factory ``(problem, table)`` of a context manager that yields ``sums(q)``; replaces the
        local thread pool.
    folds : {"paths", "removed sites"}
        How cross-validation leaves out folds: each fold has a path of its own over gamma, or its pairs are removed from
        the fit to all rows, followed by sweeps.
    sweeps : int, optional
        Number of sweeps that were made, once the plan is carried out.

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
        >>> Plan(n_pairs=2, power=2.0).check(problem)
        Traceback (most recent call last):
            ...
        ValueError: power must be in (0, 1], or 0 for variational Bayes; got 2.0.
        """
        if not 0.0 <= self.power <= 1.0:
            raise ValueError(f"power must be in (0, 1], or 0 for variational Bayes; got {self.power!r}.")
        if problem.sites is None:
            if self.where != "threads" and isinstance(self.pairs, Subsample):
                raise UnsupportedError(
                    "With client= all pairs are used; a subsample of them is quick on one machine: leave client or "
                    "pairs out. For rows that do not fit on one machine there is pac.cluster.fit_rows."
                )
            return
        asked = {
            "client= is": (self.where != "threads", "leave client out"),
            "Variational Bayes is": (self.power == 0.0, 'use method="ep"'),
            "Fractional EP is": (self.power != 1.0, f"use power=1, not {self.power:g}"),
            "A subsample of pairs is": (isinstance(self.pairs, Subsample), "leave pairs= out"),
            f"coordinates={self.coordinates!r} are": (self.coordinates != "coefficients", 'use "coefficients"'),
        }
        for what, (refused, instead) in asked.items():
            if refused:
                raise UnsupportedError(
                    f"{what} for Gaussian priors; that of this problem is {problem.sites.name}: {instead}."
                )

    def done(self, sweeps: int, pairs: SampledPairs | None = None) -> Plan:
        """Record what was done, for the result: without the earlier fit, the drawn pairs and the cluster.

        Parameters
        ----------
        sweeps : int
            Number of sweeps that were made.
        pairs : SampledPairs, optional
            The subsample of pairs that was used.

        Returns
        -------
        Plan
            The plan that a fit keeps.

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
        start = {"prior": "the prior", "few features": "its leading features", "slab": "a fit with the Gaussian prior"}
        start["parts"] = "fits of its independent parts"
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
    problem                                 coordinates   pairs        start         CPU seconds without it / with it
    ======================================  ============  ===========  ============  ===================================
    up to 250 000 pairs, or fewer than      coefficients  all          prior
    four times what a subsample has
    more pairs                              coefficients  subsample    some rows     16 at 5000 rows, 44 at 10 000
    .. with more than 3 columns             ..            .. thinned   ..            2 to 3; 4 to 16 below 4500 rows
    (up to 3: from 5 million pairs on)
    gamma beyond 11 times the comparison's  ..            all          prior, and    fixed points up to 50 nats better
    size                                                               growing gamma
    process (as many coefficients as rows   features      all          few features  2 to 18; the start up to 1.9
    or more), of at least 64 rows
    spikes                                  coefficients  all          slab          a wrong mode avoided
    classes with coefficients of their own  coefficients  all          parts         1.2 with six, 2.7 with ten
    ======================================  ============  ===========  ============  ===================================

    A start given replaces the one in the table. Folds have paths of their own ("paths"; 3.8 to 4.7 times as fast) where
    the prior is Gaussian, the work is on one machine, and the pairs are at most 9 blocks, of one weight each, and at
    most 5 million. The ratios are measured in ``docs/develop/what_each_part_buys.md``.

    Parameters
    ----------
    problem : Problem
        The problem to fit.
    method : {"ep", "vb"}, default "ep"
        Expectation propagation, or Gaussian variational Bayes.
    power : float, default 1
        Power of EP, in (0, 1].
    pairs : "auto", "all", int or Subsample, default "auto"
        Which pairs to use: as the table says, all, those within groups of so many rows, or those of a subsample.
    start : Fit, optional
        An earlier fit to begin from.
    accuracy : {"fit", "estimator", "path", "proposal"}, default "fit"
        Purpose of the fit; see ``ACCURACIES``.
    tolerance : float, optional
        Relative change at which to stop, by default that of ``accuracy``.
    max_sweeps : int, default 200
        Sweeps after which to give up.
    random_seed : default 0
        Seed of the subsample.
    where : "threads" or callable, default "threads"
        Where sites are summed; see :class:`Plan`.

    Returns
    -------
    Plan
        The plan, which :func:`~pymc_pacauc.ep.fit.fit` carries out.

    Raises
    ------
    ValueError
        If an option has no such value.
    UnsupportedError
        If the prior has no such method.

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
            f'power={power!r} is for method="ep"; "vb" is its limit of power zero: leave power out, or use method="ep".'
        )
    if not 0.0 < power <= 1.0:
        raise ValueError(f"power must be in (0, 1]; got {power!r}.")
    local = where == "threads"
    coordinates = choose_coordinates(problem)
    placed = problem.in_coordinates(coordinates)
    used = _choose_pairs(placed, pairs, ACCURACIES[accuracy], local, random_seed)
    if tolerance is None:
        tolerance = ACCURACIES["fit" if accuracy == "estimator" and used == "all" else accuracy].tolerance
        tolerance = max(tolerance, FINE_TOLERANCE) if coordinates == "features" else tolerance
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
    return plan if start is not None else replace(plan, **_without_start(problem, placed, local))


def _without_start(problem: Problem, placed: Problem, local: bool) -> dict[str, Any]:
    """Choose where to begin, ``placed`` in its coordinates, and whether to follow gamma from a second start too."""
    if problem.sites is not None:
        return {"start": "slab"}
    features = placed.scores.coordinates == "features"
    if not features and local and len(problem.parts) > 1:
        return {"start": "parts"}  # each part tries two starts where it should
    return {"start": "few features" if features else "prior", "continuation": several_fixed_points(problem)}


def several_fixed_points(problem: Problem) -> bool:
    """Return whether EP may have several fixed points: at a gamma of many times the comparison's size.

    Examples
    --------
    >>> from pymc_pacauc.problem.problem import linear_gaussian_problem
    >>> X, y = np.arange(40.0)[:, None], np.arange(40) % 2  # size 10
    >>> [several_fixed_points(linear_gaussian_problem(X, y, gamma)) for gamma in (100.0, 120.0)]
    [False, True]
    """
    return problem.gamma > MANY_MODES * row_shares(problem.pairs).size


def choose_coordinates(problem: Problem) -> str:
    """Return the coordinates of q, "coefficients" or "features"; see :func:`choose_plan`."""
    scores = problem.scores
    process = problem.sites is None and scores.d >= problem.n >= FEWEST_ROWS and scores.all_vary
    return "features" if process else "coefficients"


def pairs_for(problem: Problem) -> int:
    """Return the number of pairs of a subsample whose mean has an error of about 0.05 posterior standard deviations.

    It was measured with up to ten columns (``docs/theory/subsampled_pairs.md``), and falls in proportion with more.
    """
    return math.ceil(0.76 * min(1.0, 10 / problem.scores.reduced.dimension) * problem.gamma**1.5)


def check_count(pairs: Any, least: float, unit: str, others: str, instead: str) -> None:
    """Refuse a number of rows per group, or of pairs, that is not an integer or leaves groups too small."""
    if isinstance(pairs, bool) or not isinstance(pairs, int | np.integer):
        raise ValueError(f"pairs must be {others} a whole number of {unit}; got {pairs!r}.")
    if pairs < least:
        raise ValueError(
            f"pairs={pairs} {unit} are too few: a group needs {LEAST_ROWS} rows of each side, {2 * LEAST_ROWS} in all, "
            f"and hundreds for a small error. Ask for more, or {instead}."
        )


def _choose_pairs(problem: Problem, pairs: Any, accuracy: Accuracy, local: bool, seed: Any) -> str | Subsample:
    """Turn the option ``pairs`` ("auto", "all", rows per group or a subsample) into "all" or a subsample."""
    thin = not problem.scale_free or problem.scores.reduced.dimension > LENGTH_MATTERS
    if isinstance(pairs, Subsample):
        return replace(pairs, thin=pairs.thin and thin, along="pilot", drawn=None)
    if isinstance(pairs, str):
        if pairs not in ("auto", "all"):
            raise ValueError(f'pairs must be "auto", "all" or a number of rows per group; got {pairs!r}.')
        n_pairs = problem.pairs.n_pairs
        enough = max(min(accuracy.pairs_per_row * problem.n, n_pairs // LEAST_SAVED), pairs_for(problem))
        soon = accuracy.rough or (thin and not several_fixed_points(problem))
        few = n_pairs <= (FEW_PAIRS if soon else MOST_PAIRS) or n_pairs // LEAST_SAVED < enough
        if pairs == "all" or few or not local or problem.sites is not None:
            return "all"
        return Subsample(number_of_groups(problem.pairs, enough), thin, seed)
    check_count(pairs, 2 * LEAST_ROWS, "rows per group", '"auto", "all" or', 'for "auto"')
    groups = float(problem.n / pairs)
    worth = most_groups(problem.pairs, groups) >= LEAST_SAVED
    return Subsample(groups, thin, seed, rows_asked=int(pairs)) if worth else "all"


def _after_start(problem: Problem, pairs: Subsample, start: Fit | None) -> dict[str, Any]:
    """Return the fields of the plan that an earlier fit changes: the start, and along which scores pairs are sampled.

    The earlier fit's own subsample is used again where gamma is the same and it has enough pairs; its scores, where
    gamma is near. Fits to other pairs, or at another gamma, may be too far off.
    """
    drawn = getattr(start, "subsample", None)
    if start is None or drawn is None or start.problem.pairs is not problem.pairs:
        return {"start": "prior"}
    ratio = max(problem.gamma / start.problem.gamma, start.problem.gamma / problem.gamma)
    if ratio > GAMMA_STEP:
        return {"start": "prior"}
    again = ratio == 1.0 and drawn.groups <= pairs.groups
    return {"pairs": replace(pairs, along="start", drawn=drawn if again else None)}


def _short_folds(problem: Problem) -> bool:
    """Return whether folds have paths of their own; see :func:`choose_plan`."""
    blocks = problem.pairs.blocks
    few = len(blocks) <= MOST_BLOCKS and problem.pairs.n_pairs <= MOST_PAIRS
    return problem.sites is None and few and all(block.constant for block in blocks)


def _thousands(number: int) -> str:
    return f"{number:,}".replace(",", " ")
