"""EP on sampled pairs: a fit whose time grows like the number of rows, not of pairs.

    pilot -> growing shares of the rows -> steps with all of them -> subsample along the score found -> fit

For plans with a :class:`~pymc_pacauc.ep.plan.Subsample`: more than 250 000 pairs. A sweep costs
O(N k + n k^2) for N pairs used. The pairs that matter are those whose order q is not sure of, so pairs are sampled
along the score of q (:mod:`pymc_pacauc.comparison.subsample`), which a *pilot* finds: a fit to some rows at their share
of gamma, by sweeps that find the mean first (:mod:`pymc_pacauc.ep.start`); then to growing shares, each from the one
before. Pairs are sampled anew before each step, as those along a score that is off by a standard deviation have twice
the error.

*Steps of the mean.* With many rows q is narrow and its precision Q known from a share of the data: a sweep then says
how far the mean is off, V (r - Q m), to a tenth. Where pairs say nothing of the length of w the step keeps it, and what
is uncertain about the length goes along with the mean.

*How many pairs.* The error of the mean in posterior standard deviations (root mean square over directions) has a square
proportional to gamma^1.5 / N. *Sampling error*: sums over other subsamples, at the fit's q, say to first order how far
their fits are from it, with twice the variance of one; beyond ``LINEAR_ERROR``, or where far pairs are not thinned, the
fit is repeated on them. Where the error of the mean is beyond ``TRUSTED_ERROR``, the rows go into fewer, larger
groups. Where that would save too little, or a fit does not converge while all pairs are few enough, all are fitted
instead (:class:`NeedsAllPairs`), from their own starts: at a gamma of many times n the fixed point next to that of a
subsample may be a poor one, or none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from pymc_pacauc.comparison.pairs import Pairs
from pymc_pacauc.comparison.subsample import SampledPairs, most_groups, number_of_groups, part_of, sample_pairs
from pymc_pacauc.ep.gaussian import Callback, EPFit, as_fit, start_of
from pymc_pacauc.ep.loop import (
    POLICY,
    GaussianSweep,
    Interventions,
    Iteration,
    Pace,
    Solution,
    gaussian_iteration,
    policy_for,
    solve_fixed_point,
)
from pymc_pacauc.ep.plan import FINE_TOLERANCE, GAMMA_STEP, LEAST_SAVED, MOST_PAIRS, Plan, Subsample
from pymc_pacauc.ep.posterior import NaturalGaussian, natural_gaussian
from pymc_pacauc.ep.results import EXACT, TRUSTED_ERROR, SamplingError
from pymc_pacauc.ep.sites import SiteTable, site_table
from pymc_pacauc.ep.start import FEW, MeanFirst, first_gamma, gamma_steps
from pymc_pacauc.ep.subsample_sums import sampled_sums
from pymc_pacauc.ep.sweep import SiteSums, check_offset, tile_map
from pymc_pacauc.interrupt import StoppedEarly, check_interrupt
from pymc_pacauc.numerics import FloatArray, slices
from pymc_pacauc.problem.problem import Problem


class Natural(Protocol):
    """Natural parameters that a sweep finds, the prior's included."""

    @property
    def precision(self) -> FloatArray: ...
    @property
    def shift(self) -> FloatArray: ...


def newton_step(q: NaturalGaussian, seen: Natural, scale_free: bool) -> FloatArray:
    """V (r - Q m), V and m those of q and Q and r those of a sweep; the length of the mean stays if pairs ignore it."""
    step = q.covariance @ (seen.shift - seen.precision @ q.mean)
    square = float(q.mean @ q.mean)
    return step - q.mean * (q.mean @ step) / square if scale_free and square > 0.0 else step


def scaled(q: NaturalGaussian, factor: float, scale_free: bool) -> NaturalGaussian:
    """q with so many times its sites, about the same mean; the length, if pairs ignore it, as uncertain as it is.

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
    """q about another mean; what is uncertain about the length of the old one is so about that of the new one."""
    mean = q.mean + step
    precision, length, along = q.precision, float(q.mean @ q.shift), float(mean @ q.shift)
    if scale_free and length > 0.0 and along != 0.0:
        # The inverse of V + (m_ m_' - m m') / length, m_ the new mean.
        turned = precision @ mean
        turned -= 0.5 * (length + float(mean @ turned)) / along * q.shift
        precision = precision - (np.outer(turned, q.shift) + np.outer(q.shift, turned)) / along
    return natural_gaussian(precision, precision @ mean) or q


Found = Solution[NaturalGaussian, GaussianSweep]

FEW_ROWS, PILOT_PER_ROW = 1000, 64  # of the pilot at first, and pairs per row;
MANY_ROWS, ROWS_PER_COLUMN, MOST_ROWS = 20_000, 500, 50_000  # then, at least, by columns, and at most
PILOT_SIDE = 200  # rows at least, of the smaller side
ROUGH = 0.05  # error of its mean, in standard deviations, and change of q at the end of a stage: some hundredths of one
ROUGH_CHANGE = 0.2  # of q
GROWTH = 5.0  # of gamma, or of the share, from stage to stage, at most
LAST_TOLERANCE = 0.015  # with a step after it, changes the mean by a thousandth, far below the sampling error
WARM = replace(POLICY, damping=1.0, plain_steps=0)
LEFT = 0.2  # of the length of a step is how far off the mean may be thereafter
MOST_STEPS = 5
NEAR = 0.5  # standard deviations of q, from where on its precision is worth knowing
OTHER_NUMBERS = 8  # coordinates, at least, of the means of these: with 4, one claim in ten is below half the error
LINEAR_ERROR = 0.1  # posterior standard deviations, up to which errors to first order are right; twice: some are half


class NeedsAllPairs(Exception):
    """No subsample is good enough for this fit; ``converged`` is that of the last one."""

    def __init__(self, last: Stage) -> None:
        super().__init__(last)
        self.converged, self.pairs_used = last.found.converged, last.used.n_pairs


class Stage(NamedTuple):
    """Pairs, their fixed point, the posterior after the step that its last sweep suggests, and its sampling error."""

    used: SampledPairs
    found: Found
    q: NaturalGaussian
    error: SamplingError


def solve(problem: Problem, plan: Plan, *, n_jobs: int | None = None, callback: Callback | None = None) -> EPFit:
    """Fit a Gaussian to the AUC Gibbs posterior from a subsample of the pairs, as the plan says.

    Raises :class:`NeedsAllPairs` where its error is too large whatever the subsample, or where it does not converge and
    all pairs are as few as those that ``"auto"`` fits without a subsample.
    ``max_sweeps`` is for each stage. Except on pairs drawn before, sweeping ends at a change of ``LAST_TOLERANCE`` (or
    ``FINE_TOLERANCE``), if not before: what is left is far below the sampling error.
    """
    asked = plan.pairs
    assert isinstance(asked, Subsample)
    check_offset(problem)
    table = site_table(problem.gamma_per_pair, plan.power)
    with tile_map(problem.pairs.n_pairs, min(problem.n, problem.d), n_jobs) as map_tiles:
        run = _Run(problem, plan, asked, table, map_tiles, callback, np.random.default_rng(asked.random_seed))
        q = run.first()
        try:
            q, off = run.approach(q)
            last = run.enlarged(run.last(q, off))
        except StoppedEarly:  # one sweep more, of all rows, says what there is
            run.max_sweeps, run.callback = 1, None
            last = run.last(run.reached or q, 1.0)
    whole = replace(last.found, point=last.q, history=tuple(run.history), interventions=run.interventions)
    sweeps = len(last.found.history)
    return as_fit(problem, plan, table, whole, sweeps, subsample=last.used, sampling_error=last.error)


@dataclass(eq=False)
class _Run:
    """One fit: what all its stages share, and what they leave behind."""

    problem: Problem
    plan: Plan
    asked: Subsample
    table: SiteTable
    map_tiles: Callable[..., Any]
    callback: Callback | None
    rng: np.random.Generator
    history: list[dict[str, float]] = field(default_factory=list)
    interventions: Interventions = field(default_factory=Interventions)
    reached: NaturalGaussian | None = None  # the posterior of some stage

    def __post_init__(self) -> None:
        self.groups, self.max_sweeps = self.asked.groups, self.plan.max_sweeps

    def first(self) -> NaturalGaussian:
        """The prior, or the start, at this gamma."""
        start, problem = self.plan.start, self.problem
        if isinstance(start, str):
            return start_of(problem, None)
        if isinstance(start, EPFit) and start.problem.scores is problem.scores:
            return scaled(start.posterior.natural, problem.gamma / start.problem.gamma, problem.scale_free)
        return start_of(problem, start)

    def approach(self, q: NaturalGaussian) -> tuple[NaturalGaussian, float]:
        """From the prior or the start to a q along whose scores to sample; and by how much it may be off."""
        if self.asked.along == "pilot":
            return self.grow(*self.pilot(q))
        if self.asked.along == "refined start":
            q = self.passed(self.sample_along(q, self.groups), q)
        return q, 1.0

    def last(self, q: NaturalGaussian, off: float) -> Stage:
        """The fit itself, with the pairs of the start or along the scores of q, and its sampling error."""
        drawn, plan = self.asked.drawn, self.plan
        used = self.sample_along(q, self.groups, off=off) if drawn is None else drawn
        sampled, enough = used.n_pairs < self.problem.pairs.n_pairs, LAST_TOLERANCE if used.thinned else FINE_TOLERANCE
        found = self.stage(used, q, enough if sampled and drawn is None else plan.tolerance)
        self.reached = q = self.after(used, found)
        if not sampled:
            return Stage(used, found, q, EXACT)
        others = self.samples_along(q, self.groups, other_samples(q.mean.size))
        sums = (sampled_sums(self.problem, q, other, self.table, self.map_tiles) for other in others)
        error = sampling_error(self.problem, q, found.seen.log_evidence, sums, plan.power)
        if not ((used.thinned and error.mean <= LINEAR_ERROR) or found.interrupted):
            error = self.repeated(q, found.seen.log_evidence, others, enough)
        return Stage(used, found, q, error)

    def enlarged(self, last: Stage) -> Stage:
        """The same with fewer, larger groups while the error of the mean is too large."""
        affordable = self.problem.pairs.n_pairs <= MOST_PAIRS
        while not (last.found.interrupted or self.asked.drawn is not None):
            if affordable and not last.found.converged:
                raise NeedsAllPairs(last)
            if last.error.mean <= TRUSTED_ERROR:
                break
            self.groups = most_groups(self.problem.pairs, self.groups) / GAMMA_STEP  # which halves the error
            if self.groups < LEAST_SAVED:
                raise NeedsAllPairs(last)
            q, _, off = self.near(last.q, GAMMA_STEP, self.groups)
            last = self.last(q, off)
        return last

    def sample_along(
        self, q: NaturalGaussian, groups: float, pairs: Pairs | None = None, off: float = 1.0
    ) -> SampledPairs:
        """The rows in groups along their scores under q, whose mean may be ``off`` by so many standard deviations."""
        return self.samples_along(q, groups, 1, pairs, off)[0]

    def samples_along(
        self,
        q: NaturalGaussian,
        groups: float,
        times: int,
        pairs: Pairs | None = None,
        off: float = 1.0,
    ) -> list[SampledPairs]:
        """Several independent subsamples."""
        space, n = self.problem.scores.reduced, self.problem.n
        score = np.zeros(n)
        rows = slice(None) if pairs is None else np.flatnonzero(pairs.observation_weight)
        design = space.design[rows]
        score[rows] = design @ q.mean + space.offset[rows]
        pairs = self.problem.pairs if pairs is None else pairs
        if not self.asked.thin:
            return [sample_pairs(pairs, score, groups, self.rng) for _ in range(times)]
        spread = np.zeros(n)
        spread[rows] = max(1.0, off) * _spread(design, score[rows], q)
        return [sample_pairs(pairs, score, groups, self.rng, spread) for _ in range(times)]

    def pilot(self, q: NaturalGaussian) -> tuple[NaturalGaussian, float]:
        """From the prior to the posterior given many rows, or all, and their share: through few, at growing gammas."""
        problem = self.problem
        many_rows = int(np.clip(ROWS_PER_COLUMN * q.mean.size, MANY_ROWS, MOST_ROWS))
        few, many = _share(problem, FEW_ROWS), _share(problem, many_rows)
        gammas = gamma_steps(first_gamma(problem.gamma, problem.pairs), problem.gamma, GROWTH)
        q = self.roughly(q, self.some_rows(few), gammas, ROUGH)
        q, rows = scaled(q, many / few, problem.scale_free), self.some_rows(many)
        for error in (TRUSTED_ERROR, ROUGH):  # sampled along the score of the first, the second is nearer
            q = self.roughly(q, rows, [problem.gamma], error)
        return q, many

    def some_rows(self, share: float) -> tuple[Pairs, MeanFirst]:
        """The pairs of a share of the rows, by their place among them, and what will sweep over them."""
        problem, space = self.problem, self.problem.scores.reduced
        sweeping = partial(MeanFirst, power=self.table.power, scale_free=problem.scale_free)
        if share == 1.0:
            return problem.pairs, sweeping(space.design, space.offset)
        pairs = part_of(problem.pairs, share, self.rng)
        rows = np.flatnonzero(pairs.observation_weight)
        place = np.zeros(problem.n, dtype=np.intp)
        place[rows] = np.arange(rows.size)
        return pairs.map(place, rows.size), sweeping(space.design[rows], space.offset[rows])

    def roughly(
        self,
        q: NaturalGaussian,
        rows: tuple[Pairs, MeanFirst],
        gammas: Sequence[float],
        error: float,
    ) -> NaturalGaussian:
        """Find the mean first, given some rows, at some gammas of all."""
        pairs, sweeps = rows
        score = sweeps.scores(q.mean) if q.mean.any() else self.rng.random(pairs.n)
        groups = number_of_groups(pairs, PILOT_PER_ROW * pairs.n)
        sweeps = sweeps.over(sample_pairs(pairs, score, groups, self.rng).parts())
        last, most = gammas[0], FEW if len(gammas) > 1 else 1
        for gamma in gammas:
            q = scaled(q, gamma / last, self.problem.scale_free)
            for _ in range(most):
                q, change = sweeps.sweep(q, gamma / self.problem.pairs.total_weight, error)
                if change < ROUGH_CHANGE:
                    break
            self.reached, last = q, gamma
            check_interrupt()
        return q

    def grow(self, q: NaturalGaussian, share: float) -> tuple[NaturalGaussian, float]:
        """From the posterior given a share of the rows through growing ones to all; and how far q may be off."""
        problem = self.problem
        if share == 1.0:
            return q, 1.0
        stages = math.ceil(math.log(1.0 / share, GROWTH))
        growth = share ** (-1.0 / stages)
        off = GAMMA_STEP  # standard deviations, when the first share is sampled
        for _ in range(stages - 1):
            share *= growth
            pairs, some = part_of(problem.pairs, share, self.rng), max(1.0, share * self.groups)
            q, off, left = self.near(scaled(q, growth, problem.scale_free), off, some, pairs)
            q = self.passed(self.sample_along(q, some, pairs, left), q, pairs=pairs)
        q, _, left = self.near(scaled(q, 1.0 / share, problem.scale_free), off, self.groups)
        return q, left

    def near(
        self, q: NaturalGaussian, off: float, groups: float, pairs: Pairs | None = None
    ) -> tuple[NaturalGaussian, float, float]:
        """Steps of the mean, pairs sampled anew before each; the length of the first, and how far q may be off now."""
        lengths: list[float] = []
        for _ in range(MOST_STEPS):
            left = lengths[-1] * LEFT if lengths else off
            last, sampled = q, self.sample_along(q, groups, pairs, left)
            seen = self.iteration(sampled, pairs).sweep(q, Pace(1.0, 0))
            self.note([seen])
            step = newton_step(q, seen, self.problem.scale_free)
            lengths.append(float(np.sqrt(np.mean((q.factor.T @ step) ** 2))))
            if len(lengths) > 1 and not lengths[-1] < lengths[-2]:
                return last, lengths[0], lengths[-1]
            q = moved(q, step, self.problem.scale_free)
            check_interrupt()
            if LEFT * lengths[-1] < NEAR:
                break
        return q, lengths[0], LEFT * lengths[-1]

    def passed(self, sampled: SampledPairs, q: NaturalGaussian, **options: Any) -> NaturalGaussian:
        """Where a stage ends, if it was not interrupted."""
        found = self.stage(sampled, q, **options)
        self.reached = found.point
        check_interrupt()
        return found.point

    def stage(
        self,
        sampled: SampledPairs,
        q: NaturalGaussian,
        tolerance: float = ROUGH,
        pairs: Pairs | None = None,
    ) -> Found:
        """Fit all pairs, or some of them at their share of gamma."""
        found = solve_fixed_point(
            self.iteration(sampled, pairs),
            q,
            policy_for(q.mean.size, WARM),
            tolerance=max(tolerance, self.plan.tolerance),
            max_sweeps=self.max_sweeps,
            callback=self.callback,
            counted=len(self.history),
        )
        self.history.extend(found.history)
        self.interventions += found.interventions
        return found

    def after(self, sampled: SampledPairs, found: Found) -> NaturalGaussian:
        """Where a stage ends: the step that its last sweep suggests is free."""
        if not found.converged or found.seen.change <= self.plan.tolerance:
            return found.point
        iteration = self.iteration(sampled)
        step, _ = iteration.plain(found.point, found.seen, 1.0)
        return iteration.move(found.point, found.seen, step) or found.point

    def repeated(
        self, q: NaturalGaussian, log_evidence: float, others: list[SampledPairs], tolerance: float
    ) -> SamplingError:
        """The error of a fit q to a subsample, from fits to others, which begin at q."""
        aside = replace(self, history=[], interventions=Interventions(), callback=None)
        moved, differences = [], []
        for other in others:
            found = aside.stage(other, q, tolerance)
            check_interrupt()
            moved.append(q.factor.T @ (aside.after(other, found).mean - q.mean))
            differences.append([found.seen.log_evidence - log_evidence])
        return SamplingError(own_error(np.array(differences)), own_error(np.array(moved)))

    def iteration(self, sampled: SampledPairs, pairs: Pairs | None = None) -> Iteration[NaturalGaussian, GaussianSweep]:
        """The iteration whose fixed point is the posterior given pairs, estimated from those that are sampled."""
        problem = self.problem
        if pairs is not None:
            share = pairs.total_weight / problem.pairs.total_weight
            problem = replace(problem, pairs=pairs, gamma=share * problem.gamma)

        def sums_at(q: NaturalGaussian) -> SiteSums:
            return sampled_sums(problem, q, sampled, self.table, self.map_tiles)

        return gaussian_iteration(problem, self.table.power, sums_at)

    def note(self, seen: list[GaussianSweep]) -> None:
        for each in seen:
            self.history.append({"sweep": len(self.history) + 1, "change": each.change, **each.record})
            if self.callback is not None:
                self.callback(self.history[-1])


def sampling_error(
    problem: Problem, q: NaturalGaussian, log_evidence: float, others: Iterable[SiteSums], power: float
) -> SamplingError:
    """What one subsample does to log Z and to the mean of a fit q, to first order, from sums at q over other ones.

    The sums over other subsamples differ from those over its own as two of them differ from each other. The difference
    of the log evidence is that of log Z, which to first order does not depend on q; that of the gradient, r - Q m,
    moves the mean by V times as much. Both have twice the variance of one.

    A subsample along an older score is worse than these: then its own deviation from their average is what is reported.
    """
    return SamplingError(*map(own_error, deviations(problem, q, log_evidence, others, power)))


def deviations(
    problem: Problem, q: NaturalGaussian, log_evidence: float, others: Iterable[SiteSums], power: float
) -> tuple[FloatArray, FloatArray]:
    """By how much other sums at q change log Z, and the mean, in standard deviations of q: both to first order."""
    steps, differences, second = [], [], q.covariance + np.outer(q.mean, q.mean)
    for sums in others:
        sums = replace(sums, precision=sums.precision + np.eye(q.mean.size))
        steps.append(q.factor.T @ newton_step(q, sums, problem.scale_free))
        if power == 0.0:
            found = -problem.gamma * sums.wrong / problem.pairs.total_weight - q.divergence
        else:
            change = (sums.shift - q.shift) @ q.mean - 0.5 * np.sum((sums.precision - q.precision) * second)
            found = sums.log_constant + q.log_partition() + float(change)
        differences.append([found - log_evidence])
    return np.array(differences), np.array(steps)


def own_error(differences: FloatArray) -> float:
    """Standard error of one subsample from the differences[k, m] of K others to it, root mean square over m."""
    count = len(differences)
    alike = 0.5 * np.mean(differences**2)
    own = np.mean(differences.mean(axis=0) ** 2) - np.mean(differences.var(axis=0, ddof=1)) / count
    return float(np.sqrt(max(alike, own)))


def _spread(design: FloatArray, score: FloatArray, q: NaturalGaussian) -> FloatArray:
    """Standard deviations of the scores, without what neighbours have in common.

    Of score i = m_i + t_i . e, with e ~ N(0, I), that is the slope of t over m: mostly the length of the coefficients,
    which does not change the order.
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
    """Subsamples for the sampling error: two at least, of which there is a variance."""
    return max(2, math.ceil(OTHER_NUMBERS / dimension))


def _share(problem: Problem, rows: int) -> float:
    """About so many rows, of the smaller side not too few."""
    higher, lower = np.zeros(problem.n, dtype=bool), np.zeros(problem.n, dtype=bool)
    for block in problem.pairs.blocks:
        higher[block.positive] = True
        lower[block.negative] = True
    return min(1.0, max(rows / problem.n, PILOT_SIDE / min(higher.sum(), lower.sum())))
