"""EP on a random subset of the pairs: a fit whose time grows with the number of rows, not of pairs.

    pilot -> single sweeps over all rows -> subsample -> fit -> its error

*Which pairs.* Pairs whose order is uncertain under q carry the information, so rows are put into groups along their
score and compared within them (:mod:`pymc_pacauc.comparison.subsample`). The score comes from a *pilot*: a fit to 1000
rows at their share of growing gammas (:class:`~pymc_pacauc.ep.start.GammaPath`). Single sweeps over 20 000 rows, and
over all, follow, with pairs sampled anew before each, because a subsample along a score that is off by one posterior
standard deviation has twice the error.

*Number of pairs.* The squared error of the mean, in posterior standard deviations (root mean square over directions),
is proportional to gamma^1.5 / N for N pairs (``docs/theory/subsampled_pairs.md``). A sweep costs O(N k + n k^2).

*Sampling error.* The sums of the sites over independent other subsamples, at the q of the fit, give to first order the
differences of their fits from it, which have twice the variance of one fit (:func:`error_of_sampling`). Above
``LINEAR_ERROR``, or where far pairs are not thinned, the fit is repeated on the other subsamples instead. If the error
of the mean is above ``TRUSTED_ERROR``, groups become larger. If that would save too little, or a fit does not converge
and all pairs are few enough, :class:`NeedsAllPairs` is raised and all pairs are fitted, from their own start: at a
gamma of many times n the fixed point next to that of a subsample may be a poor one.

The engine of plans whose ``pairs`` is a :class:`~pymc_pacauc.ep.plan.Subsample`: by default above 250 000 pairs. To
change which pairs are sampled, change :func:`pymc_pacauc.comparison.subsample.sample_pairs`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from pymc_pacauc.comparison.subsample import SampledPairs, most_groups, part_of, sample_pairs
from pymc_pacauc.ep import loop
from pymc_pacauc.ep.gaussian import Callback, EPFit, as_fit, start_of
from pymc_pacauc.ep.plan import FINE_TOLERANCE, GAMMA_STEP, LEAST_SAVED, MOST_PAIRS, Plan, Subsample
from pymc_pacauc.ep.posterior import NaturalGaussian, natural_gaussian
from pymc_pacauc.ep.results import EXACT, TRUSTED_ERROR, SamplingError
from pymc_pacauc.ep.sites import SiteTable
from pymc_pacauc.ep.start import CHANGE, SWEEPS, GammaPath
from pymc_pacauc.ep.subsample_sums import sampled_sums
from pymc_pacauc.ep.sweep import SiteSums, check_offset, tile_map
from pymc_pacauc.interrupt import StoppedEarly, check_interrupt
from pymc_pacauc.numerics import FloatArray, slices
from pymc_pacauc.problem.problem import Problem

# Rows of the pilot: of its first fit, and then. Doubled, fits of 60 000 rows take as long and 1.2 times as long, their
# error remains 0.03 to 0.04 sd; with half of the first 1.2 times as long (benchmarks/constants.py).
FEW_ROWS, MANY_ROWS = 1000, 20_000
PILOT_SIDE = 200  # rows at least, of the smaller side; doubled, 1.05 times as long (2 % positive, 60 000 rows)
ROUGH = 0.05  # relative change of q at which a fit ends of which only the score is used; doubled, no effect
# Relative change at which a thinned subsample's fit ends; with a step after it, the mean is off by a thousandth of a
# standard deviation, far below the sampling error. Doubled, no effect; halved, 1.1 times as long
LAST_TOLERANCE = 0.015
LINEAR_ERROR = 0.1  # posterior standard deviations, up to which errors to first order are right; twice: some are half


class NeedsAllPairs(Exception):
    """Raised if no subsample is accurate enough; ``converged`` and ``pairs_used`` are those of the last one."""

    def __init__(self, last: Stage) -> None:
        super().__init__(last)
        self.converged, self.pairs_used = last.found.converged, last.used.n_pairs


class Stage(NamedTuple):
    """A fit to one subsample: the pairs, the fixed point, q after the step that its last sweep suggests, its error."""

    used: SampledPairs
    found: loop.GaussianSolution
    q: NaturalGaussian
    error: SamplingError


def solve(problem: Problem, plan: Plan, *, n_jobs: int | None = None, callback: Callback | None = None) -> EPFit:
    """Fit a Gaussian to the AUC Gibbs posterior from a subsample of the pairs, as the plan says.

    Raises :class:`NeedsAllPairs` if the error is too large whatever the subsample, or if it does not converge and all
    pairs are at most ``MOST_PAIRS``. ``max_sweeps`` is for each stage. Except on pairs drawn before, the tolerance is
    at least ``LAST_TOLERANCE`` (thinned) or ``FINE_TOLERANCE``: the remaining change is far below the sampling error.
    """
    asked = plan.pairs
    assert isinstance(asked, Subsample)
    check_offset(problem)
    table = SiteTable(problem.gamma_per_pair, plan.power)
    with tile_map(problem.pairs.n_pairs, min(problem.n, problem.d), n_jobs) as map_tiles:
        rng = np.random.default_rng(asked.random_seed)
        run = _Run(problem, plan, asked, table, map_tiles, rng, callback, plan.max_sweeps, asked.groups)
        q, off = start_of(problem, None if isinstance(plan.start, str) else plan.start), 1.0
        try:
            if asked.along == "pilot":
                q, off = run.pilot()
            last = run.enlarged(run.last(q, off))
        except StoppedEarly:  # one more sweep over all rows, for the evidence and risk of the present q
            run.max_sweeps, run.callback = 1, None
            last = run.last(run.reached or q, 1.0)
    whole = replace(last.found, point=last.q, history=tuple(run.history), interventions=run.interventions)
    sweeps = len(last.found.history)
    return as_fit(problem, plan, table, whole, sweeps, subsample=last.used, sampling_error=last.error)


@dataclass(eq=False)
class _Run:
    """One fit: settings shared by all stages, and the history they append to."""

    problem: Problem
    plan: Plan
    asked: Subsample
    table: SiteTable
    map_tiles: Callable[..., Any]
    rng: np.random.Generator
    callback: Callback | None
    max_sweeps: int
    groups: float
    history: list[dict[str, float]] = field(default_factory=list)
    interventions: loop.Interventions = field(default_factory=loop.Interventions)
    reached: NaturalGaussian | None = None  # posterior of the last stage, returned on an interrupt

    def pilot(self) -> tuple[NaturalGaussian, float]:
        """Fit few rows at growing gammas, then go to many rows, and to all, for a q along whose scores to sample.

        Also returns how far its mean may be off, in standard deviations.
        """
        problem, power = self.problem, self.table.power
        share, many = (_share(problem, rows) for rows in (FEW_ROWS, MANY_ROWS))
        few = self.on_rows(share).problem
        self.reached = q = GammaPath(few, power).at(few.gamma, SWEEPS, CHANGE).q
        check_interrupt()
        if share < many < 1.0:
            some = self.on_rows(many)
            q, _ = some.near(scaled(q, many / share, problem.scale_free), math.sqrt(many / share))
            self.reached = q = some.stage(some.sample_along(q), q, 4.0 * ROUGH).point
            share = many
        return self.near(scaled(q, 1.0 / share, problem.scale_free), share**-0.5)

    def on_rows(self, share: float) -> _Run:
        """Return the run of a share of the rows, at their share of gamma, that keeps its history to itself."""
        if share == 1.0:
            return self
        pairs = part_of(self.problem.pairs, share, self.rng)
        problem = replace(self.problem, pairs=pairs, gamma=self.table.gamma * pairs.total_weight)
        own: dict[str, Any] = {"history": [], "interventions": loop.Interventions(), "callback": None}
        return replace(self, problem=problem, groups=max(1.0, share * self.groups), **own)

    def near(self, q: NaturalGaussian, off: float) -> tuple[NaturalGaussian, float]:
        """Make up to five sweeps, with pairs sampled anew before each, while the mean moves by more than 2.5 sd.

        Also returns how far the mean may be off now, in standard deviations.
        """
        last = math.inf
        for _ in range(5):
            seen = self.stage(self.sample_along(q, off), q, math.inf).seen
            move = newton_step(q, seen, self.problem.scale_free)
            step = float(np.sqrt(np.mean((q.factor.T @ move) ** 2)))
            check_interrupt()
            if not step < last:
                return q, step
            self.reached = q = moved(q, move, self.problem.scale_free)
            last, off = step, 0.2 * step  # how far off the mean may be after a step of this length
            if off < 0.5:
                break
        return q, off

    def last(self, q: NaturalGaussian, off: float) -> Stage:
        """Fit the final subsample (drawn before, or along the scores of q), and compute its sampling error."""
        drawn, plan = self.asked.drawn, self.plan
        used = drawn or self.sample_along(q, off)
        sampled, enough = used.n_pairs < self.problem.pairs.n_pairs, LAST_TOLERANCE if used.thinned else FINE_TOLERANCE
        found = self.stage(used, q, enough if sampled and drawn is None else plan.tolerance)
        self.reached = q = _after(self.iteration(used), found)
        if not sampled:
            return Stage(used, found, q, EXACT)
        others = [self.sums_of(self.sample_along(q)) for _ in range(other_samples(q.mean.size))]
        known = (self.problem, q, found.seen.log_evidence, others, plan.power)
        error = error_of_sampling(*known)
        if not ((used.thinned and error.mean <= LINEAR_ERROR) or found.interrupted):
            error = error_of_sampling(*known, tolerance=max(enough, plan.tolerance), max_sweeps=self.max_sweeps)
        return Stage(used, found, q, error)

    def enlarged(self, last: Stage) -> Stage:
        """Repeat with fewer, larger groups while the error of the mean is above ``TRUSTED_ERROR``."""
        affordable = self.problem.pairs.n_pairs <= MOST_PAIRS
        while not (last.found.interrupted or self.asked.drawn is not None):
            if affordable and not last.found.converged:
                raise NeedsAllPairs(last)
            if last.error.mean <= TRUSTED_ERROR:
                break
            self.groups = most_groups(self.problem.pairs, self.groups) / GAMMA_STEP  # which halves the error
            if self.groups < LEAST_SAVED:
                raise NeedsAllPairs(last)
            last = self.last(*self.near(last.q, GAMMA_STEP))
        return last

    def sample_along(self, q: NaturalGaussian, off: float = 1.0) -> SampledPairs:
        """Sample pairs along the scores of q, whose mean may be ``off`` by so many standard deviations."""
        space = self.problem.scores.reduced
        score = space.design @ q.mean + space.offset
        spread = max(1.0, off) * _spread(space.design, score, q) if self.asked.thin else None
        return sample_pairs(self.problem.pairs, score, self.groups, self.rng, spread)

    def sums_of(self, sampled: SampledPairs) -> loop.SumsAt:
        return lambda q: sampled_sums(self.problem, q, sampled, self.table, self.map_tiles)

    def iteration(self, sampled: SampledPairs) -> loop.GaussianMap:
        """Return the map whose fixed point is the posterior, estimated from the pairs ``sampled``."""
        return loop.gaussian_iteration(self.problem, self.table.power, self.sums_of(sampled))

    def stage(self, sampled: SampledPairs, q: NaturalGaussian, tolerance: float) -> loop.GaussianSolution:
        """Iterate to the fixed point of ``sampled``; with an infinite tolerance, make one sweep."""
        tolerance, counted = max(tolerance, self.plan.tolerance), len(self.history)
        found = _solve_near(self.iteration(sampled), q, tolerance, self.max_sweeps, self.callback, counted)
        self.history.extend(found.history)
        self.interventions += found.interventions
        return found


def _solve_near(
    iteration: loop.GaussianMap,
    q: NaturalGaussian,
    tolerance: float,
    max_sweeps: int,
    callback: Callback | None = None,
    counted: int = 0,
) -> loop.GaussianSolution:
    """Iterate from a q near the fixed point, without damping."""
    policy = loop.policy_for(q.mean.size, loop.WARM)
    options: dict[str, Any] = {"tolerance": tolerance, "max_sweeps": max_sweeps}
    return loop.solve_fixed_point(iteration, q, policy, **options, callback=callback, counted=counted)


def _after(iteration: loop.GaussianMap, found: loop.GaussianSolution) -> NaturalGaussian:
    """Return the end of an iteration, after the step that its last sweep suggests at no cost."""
    return loop.after_last_sweep(iteration, found) if found.converged else found.point


def newton_step(q: NaturalGaussian, seen: SiteSums | loop.GaussianSweep, scale_free: bool) -> FloatArray:
    """Compute V (r - Q m), (k,), with V and m of q, and Q and r of a sweep; orthogonal to m if ``scale_free``."""
    step = q.covariance @ (seen.shift - seen.precision @ q.mean)
    square = float(q.mean @ q.mean)
    return step - q.mean * (q.mean @ step) / square if scale_free and square > 0.0 else step


def scaled(q: NaturalGaussian, factor: float, scale_free: bool) -> NaturalGaussian:
    """Multiply the sites of q by a factor, with the same mean; if ``scale_free``, the variance of the length stays.

    Examples
    --------
    >>> q = natural_gaussian(np.diag([2.0, 50.0]), np.array([4.0, 0.0]))
    >>> np.diagonal(scaled(q, 3.0, True).precision), np.diagonal(scaled(q, 3.0, False).precision)
    (array([  2., 150.]), array([  4., 148.]))
    """
    length = float(q.mean @ q.shift)
    if scale_free and length > 0.0:
        precision = factor * q.precision - (factor - 1.0) / length * np.outer(q.shift, q.shift)
        return natural_gaussian(precision, q.shift) or q
    prior = np.eye(q.mean.size)
    precision = prior + factor * (q.precision - prior)
    return natural_gaussian(precision, precision @ q.mean) or q


def moved(q: NaturalGaussian, step: FloatArray, scale_free: bool) -> NaturalGaussian:
    """Move the mean of q by a step; if ``scale_free``, the variance along the old mean moves to the new one."""
    mean = q.mean + step
    precision, length, along = q.precision, float(q.mean @ q.shift), float(mean @ q.shift)
    if scale_free and length > 0.0 and along != 0.0:
        # The inverse of V + (m_ m_' - m m') / length, m_ the new mean.
        turned = precision @ mean
        turned -= 0.5 * (length + float(mean @ turned)) / along * q.shift
        precision = precision - (np.outer(turned, q.shift) + np.outer(q.shift, turned)) / along
    return natural_gaussian(precision, precision @ mean) or q


def error_of_sampling(
    problem: Problem, q: NaturalGaussian, log_evidence: float, others: Iterable[loop.SumsAt], power: float, **refit: Any
) -> SamplingError:
    """Estimate the standard errors of log Z and of the mean of a fit q to one subsample, from independent ``others``.

    To first order, or, given the ``tolerance`` and ``max_sweeps`` of a ``refit``, from fits to the others. Their
    differences to q (:func:`deviations`) have twice the variance of one subsample. A subsample along an older score has
    a larger error than these: then its own deviation from their average is returned (:func:`own_error`).
    """
    return SamplingError(*map(own_error, deviations(problem, q, log_evidence, others, power, **refit)))


def deviations(
    problem: Problem, q: NaturalGaussian, log_evidence: float, others: Iterable[loop.SumsAt], power: float, **refit: Any
) -> tuple[FloatArray, FloatArray]:
    """Compute by how much other sums change log Z, (K, 1), and the mean in standard deviations of q, (K, k).

    To first order the difference of log Z does not depend on q, and a difference of r - Q m moves the mean by V times
    as much. Given ``refit``, the options of :func:`_solve_near`, they are those of fits, which start at q.
    """
    steps, differences = [], []
    for sums_at in others:
        iteration = loop.gaussian_iteration(problem, power, sums_at)
        if refit:
            found = _solve_near(iteration, q, **refit)
            check_interrupt()
            seen, move = found.seen, _after(iteration, found).mean - q.mean
        else:
            seen = iteration.sweep(q, loop.Pace(1.0, 0))
            move = newton_step(q, seen, problem.scale_free)
        steps.append(q.factor.T @ move)
        differences.append([seen.log_evidence - log_evidence])
    return np.array(differences), np.array(steps)


def own_error(differences: FloatArray) -> float:
    """Estimate the standard error of one subsample from differences (K, m) of K others to it, RMS over m.

    The larger of two estimates: half the mean square of the differences; the square of their mean, minus its variance.
    """
    count = len(differences)
    alike = 0.5 * np.mean(differences**2)
    own = np.mean(differences.mean(axis=0) ** 2) - np.mean(differences.var(axis=0, ddof=1)) / count
    return float(np.sqrt(max(alike, own)))


def _spread(design: FloatArray, score: FloatArray, q: NaturalGaussian) -> FloatArray:
    """Compute standard deviations of the scores, (n,), without the part that is proportional to the mean score.

    Score i is m_i + t_i . e with e ~ N(0, I). The regression of t on m is removed: it is mostly the uncertain length of
    the coefficients, which does not change the order.
    """
    square = float(score @ score)
    slope = (score @ design) @ q.root / square if square > 0.0 else np.zeros(q.mean.size)
    found = np.empty(len(score))
    for rows in slices(len(score), q.mean.size):
        left = q.rooted(design[rows])
        left -= score[rows, None] * slope
        found[rows] = np.sqrt(np.einsum("ij,ij->i", left, left))
    return found


def other_samples(dimension: int) -> int:
    """Return the number of other subsamples for the sampling error: at least two, for a variance.

    Their means have at least eight coordinates: with four, one claim in ten is below half the error.
    """
    return max(2, math.ceil(8 / dimension))


def _share(problem: Problem, rows: int) -> float:
    """Return the share of rows for about ``rows`` of them, with at least ``PILOT_SIDE`` of the smaller side."""
    smaller = int((problem.pairs.side_weights > 0.0).sum(axis=1).min())
    return min(1.0, max(rows / problem.n, PILOT_SIDE / smaller))
