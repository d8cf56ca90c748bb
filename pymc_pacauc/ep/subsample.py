"""EP on a random subset of the pairs: a fit whose time grows with the number of rows, not of pairs.

    pilot -> growing shares of the rows -> Newton steps of the mean with all rows -> subsample -> fit -> its error

*Which pairs.* Pairs whose order is uncertain under q carry the information, so rows are put into groups along their
score and compared within them (:mod:`pymc_pacauc.comparison.subsample`). The score comes from a *pilot*: a fit to a
share of the rows, at the same share of gamma, by mean-first sweeps (:mod:`pymc_pacauc.ep.start`); then fits to growing
shares, each from the one before. Pairs are sampled anew before each step, because a subsample along a score that is off
by one posterior standard deviation has twice the error.

*Newton steps.* With many rows q is narrow, and its precision Q is known well from a share of the rows: the step of the
mean V (r - Q m), with Q and r from one sweep, is right to a tenth. Where the risk does not depend on the length of w,
the step keeps the length, and the variance along the mean is rotated to the new mean (:func:`moved`).

*Number of pairs.* The squared error of the mean, in posterior standard deviations (root mean square over directions),
is proportional to gamma^1.5 / N for N pairs (``docs/theory/subsampled_pairs.md``). A sweep costs O(N k + n k^2).

*Sampling error* (:func:`sampling_error`). The sums of the sites over independent other subsamples, at the q of the fit,
give to first order the differences of their fits from it, which have twice the variance of one fit. Above
``LINEAR_ERROR``, or where far pairs are not thinned, the fit is repeated on the other subsamples instead. If the error
of the mean is above ``TRUSTED_ERROR``, groups become larger. If that would save too little, or a fit does not converge
and all pairs are few enough, :class:`NeedsAllPairs` is raised and all pairs are fitted, from their own start: at a
gamma of many times n the fixed point next to that of a subsample may be a poor one.

The engine of plans whose ``pairs`` is a :class:`~pymc_pacauc.ep.plan.Subsample`: by default above 250 000 pairs. To
change which pairs are sampled, change :func:`pymc_pacauc.comparison.subsample.sample_pairs`.
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
from pymc_pacauc.ep.plan import ACCURACIES, FINE_TOLERANCE, GAMMA_STEP, LEAST_SAVED, MOST_PAIRS, Plan, Subsample
from pymc_pacauc.ep.posterior import NaturalGaussian, natural_gaussian
from pymc_pacauc.ep.results import EXACT, TRUSTED_ERROR, SamplingError
from pymc_pacauc.ep.sites import SiteTable
from pymc_pacauc.ep.start import FEW, MeanFirst, first_gamma, gamma_steps
from pymc_pacauc.ep.subsample_sums import sampled_sums
from pymc_pacauc.ep.sweep import SiteSums, check_offset, tile_map
from pymc_pacauc.interrupt import StoppedEarly, check_interrupt
from pymc_pacauc.numerics import FloatArray, slices
from pymc_pacauc.problem.problem import Problem


class Natural(Protocol):
    """Natural parameters after a sweep, the prior's included."""

    @property
    def precision(self) -> FloatArray: ...
    @property
    def shift(self) -> FloatArray: ...


def newton_step(q: NaturalGaussian, seen: Natural, scale_free: bool) -> FloatArray:
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


Found = Solution[NaturalGaussian, GaussianSweep]

FEW_ROWS = 1000  # of the pilot at first;
MANY_ROWS, ROWS_PER_COLUMN, MOST_ROWS = 20_000, 500, 50_000  # then, at least, by columns, and at most
PILOT_SIDE = 200  # rows at least, of the smaller side
ROUGH = 0.05  # error of its mean, in standard deviations, and change of q at the end of a stage: some hundredths of one
ROUGH_CHANGE = 0.2  # of q
# Largest ratio of gammas, or of shares of the rows, from stage to stage; with 4, a fit of 100 000 rows takes 1.17 times
# as long.
GROWTH = 5.0
LAST_TOLERANCE = 0.015  # with a step after it, changes the mean by a thousandth, far below the sampling error
WARM = replace(POLICY, damping=1.0, plain_steps=0)
LEFT = 0.2  # of the length of a step is how far off the mean may be thereafter
MOST_STEPS = 5
NEAR = 0.5  # standard deviations of q, from where on its precision is worth knowing
OTHER_NUMBERS = 8  # coordinates, at least, of the means of these: with 4, one claim in ten is below half the error
LINEAR_ERROR = 0.1  # posterior standard deviations, up to which errors to first order are right; twice: some are half


class NeedsAllPairs(Exception):
    """Raised if no subsample is accurate enough; ``converged`` and ``pairs_used`` are those of the last one."""

    def __init__(self, last: Stage) -> None:
        super().__init__(last)
        self.converged, self.pairs_used = last.found.converged, last.used.n_pairs


class Stage(NamedTuple):
    """A fit to one subsample: the pairs, the fixed point, q after the step that its last sweep suggests, its error."""

    used: SampledPairs
    found: Found
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
        run = _Run(problem, plan, asked, table, map_tiles, callback, np.random.default_rng(asked.random_seed))
        q = run.first()
        try:
            q, off = run.approach(q)
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
    callback: Callback | None
    rng: np.random.Generator
    history: list[dict[str, float]] = field(default_factory=list)
    interventions: Interventions = field(default_factory=Interventions)
    reached: NaturalGaussian | None = None  # posterior of the last stage, returned on an interrupt

    def __post_init__(self) -> None:
        self.groups, self.max_sweeps = self.asked.groups, self.plan.max_sweeps

    def first(self) -> NaturalGaussian:
        """Return the prior, or the start scaled to this gamma."""
        start, problem = self.plan.start, self.problem
        if isinstance(start, str):
            return start_of(problem, None)
        if isinstance(start, EPFit) and start.problem.scores is problem.scores:
            return scaled(start.posterior.natural, problem.gamma / start.problem.gamma, problem.scale_free)
        return start_of(problem, start)

    def approach(self, q: NaturalGaussian) -> tuple[NaturalGaussian, float]:
        """Find a q along whose scores to sample; also return how far its mean may be off, in standard deviations."""
        if self.asked.along == "pilot":
            return self.grow(*self.pilot(q))
        if self.asked.along == "refined start":
            q = self.passed(self.sample_along(q, self.groups), q)
        return q, 1.0

    def last(self, q: NaturalGaussian, off: float) -> Stage:
        """Fit the final subsample (drawn before, or along the scores of q), and compute its sampling error."""
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
            q, _, off = self.near(last.q, GAMMA_STEP, self.groups)
            last = self.last(q, off)
        return last

    def sample_along(
        self, q: NaturalGaussian, groups: float, pairs: Pairs | None = None, off: float = 1.0
    ) -> SampledPairs:
        """Sample pairs along the scores of q, whose mean may be ``off`` by so many standard deviations."""
        return self.samples_along(q, groups, 1, pairs, off)[0]

    def samples_along(
        self,
        q: NaturalGaussian,
        groups: float,
        times: int,
        pairs: Pairs | None = None,
        off: float = 1.0,
    ) -> list[SampledPairs]:
        """Draw ``times`` independent subsamples; see :meth:`sample_along`."""
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
        """Fit few rows at growing gammas, then many rows (or all); return q and the share of rows it was fitted to."""
        problem = self.problem
        many_rows = int(np.clip(ROWS_PER_COLUMN * q.mean.size, MANY_ROWS, MOST_ROWS))
        few, many = _share(problem, FEW_ROWS), _share(problem, many_rows)
        gammas = gamma_steps(first_gamma(problem.gamma, problem.pairs), problem.gamma, GROWTH)
        q = self.roughly(q, self.some_rows(few), gammas, ROUGH)
        q, rows = scaled(q, many / few, problem.scale_free), self.some_rows(many)
        for error in (TRUSTED_ERROR, ROUGH):  # the second samples along the score of the first, which is better
            q = self.roughly(q, rows, [problem.gamma], error)
        return q, many

    def some_rows(self, share: float) -> tuple[Pairs, MeanFirst]:
        """Sample a share of the rows; return their pairs, indexed within the sample, and mean-first sweeps of them."""
        problem, space = self.problem, self.problem.scores.reduced
        sweeping = partial(MeanFirst, power=self.table.power, scale_free=problem.scale_free)
        if share == 1.0:
            return problem.pairs, sweeping(space.design, space.offset)
        pairs = part_of(problem.pairs, share, self.rng)
        rows = np.flatnonzero(pairs.observation_weight)
        return pairs.on_rows(rows), sweeping(space.design[rows], space.offset[rows])

    def roughly(
        self,
        q: NaturalGaussian,
        rows: tuple[Pairs, MeanFirst],
        gammas: Sequence[float],
        error: float,
    ) -> NaturalGaussian:
        """Run mean-first sweeps on some rows, at growing gammas (of all rows)."""
        pairs, sweeps = rows
        score = sweeps.scores(q.mean) if q.mean.any() else self.rng.random(pairs.n)
        groups = number_of_groups(pairs, ACCURACIES["estimator"].pairs_per_row * pairs.n)
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
        """Go from the posterior of a share of the rows through larger shares to all; return q and how far it is off."""
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
        """Take Newton steps of the mean, with pairs sampled anew before each.

        Returns q, the length of the first step, and how far q may be off now, both in standard deviations.
        """
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
        """Run a stage and return its q; raise if it was interrupted."""
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
        """Iterate to the fixed point of ``sampled``, of all pairs or of some ``pairs`` at their share of gamma."""
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
        """Return the end of a stage, after the step that its last sweep suggests at no cost."""
        if not found.converged or found.seen.change <= self.plan.tolerance:
            return found.point
        iteration = self.iteration(sampled)
        step, _ = iteration.plain(found.point, found.seen, 1.0)
        return iteration.move(found.point, found.seen, step) or found.point

    def repeated(
        self, q: NaturalGaussian, log_evidence: float, others: list[SampledPairs], tolerance: float
    ) -> SamplingError:
        """Compute the error of a fit q from fits to other subsamples, which start at q."""
        aside = replace(self, history=[], interventions=Interventions(), callback=None)
        moved, differences = [], []
        for other in others:
            found = aside.stage(other, q, tolerance)
            check_interrupt()
            moved.append(q.factor.T @ (aside.after(other, found).mean - q.mean))
            differences.append([found.seen.log_evidence - log_evidence])
        return SamplingError(own_error(np.array(differences)), own_error(np.array(moved)))

    def iteration(self, sampled: SampledPairs, pairs: Pairs | None = None) -> Iteration[NaturalGaussian, GaussianSweep]:
        """Return the map whose fixed point is the posterior given ``pairs`` (all), estimated from those ``sampled``."""
        problem = self.problem
        if pairs is not None:
            share = pairs.total_weight / problem.pairs.total_weight
            problem = replace(problem, pairs=pairs, gamma=share * problem.gamma)

        def sums_at(q: NaturalGaussian) -> SiteSums:
            return sampled_sums(problem, q, sampled, self.table, self.map_tiles)

        return gaussian_iteration(problem, self.table.power, sums_at)

    def note(self, seen: list[GaussianSweep]) -> None:
        """Append sweeps to the history."""
        for each in seen:
            self.history.append({"sweep": len(self.history) + 1, "change": each.change, **each.record})
            if self.callback is not None:
                self.callback(self.history[-1])


def sampling_error(
    problem: Problem, q: NaturalGaussian, log_evidence: float, others: Iterable[SiteSums], power: float
) -> SamplingError:
    """Estimate the standard errors of log Z and of the mean of a fit q to one subsample, to first order.

    ``others`` are sums of sites at q over independent other subsamples. To first order the difference of log Z does not
    depend on q, and a difference of r - Q m moves the mean by V times as much. Both differences have twice the variance
    of one subsample. A subsample along an older score has a larger error than these: then its own deviation from their
    average is returned (:func:`own_error`).
    """
    return SamplingError(*map(own_error, deviations(problem, q, log_evidence, others, power)))


def deviations(
    problem: Problem, q: NaturalGaussian, log_evidence: float, others: Iterable[SiteSums], power: float
) -> tuple[FloatArray, FloatArray]:
    """Compute by how much other sums at q change log Z, (K, 1), and the mean in standard deviations of q, (K, k)."""
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
    """Return the number of other subsamples for the sampling error: at least two, for a variance."""
    return max(2, math.ceil(OTHER_NUMBERS / dimension))


def _share(problem: Problem, rows: int) -> float:
    """Return the share of rows for about ``rows`` of them, with at least ``PILOT_SIDE`` of the smaller side."""
    sides = zip(*((block.positive, block.negative) for block in problem.pairs.blocks), strict=True)
    smaller = min(np.unique(np.concatenate(side)).size for side in sides)
    return min(1.0, max(rows / problem.n, PILOT_SIDE / smaller))
