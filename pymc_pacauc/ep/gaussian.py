"""Expectation propagation with a Gaussian prior and all pairs: the fit, its evidence, and its gradient in the prior.

q is a Gaussian of the k <= min(n, d) whitened coefficients that reach the scores, w ~ N(0, I) under the prior; other
directions keep their prior. With the sites of all pairs (i, j), each a function of q (:mod:`pymc_pacauc.ep.sites`),

    q(w)  =  N(0, I) * prod_ij exp(-K_ij s_ij^2 / 2 + h_ij s_ij) / Z_q,      s_ij = (z_i - z_j)' w + o_i - o_j,
    log Z = sum_ij log C_ij + log Z_q,

z_i the rows of the (n, k) design and o the offset. :func:`solve` starts at the prior, at an earlier fit or by
:mod:`pymc_pacauc.ep.start`, and iterates sweeps (:mod:`pymc_pacauc.ep.sweep`) to the fixed point
(:mod:`pymc_pacauc.ep.loop`). A sweep costs O(n+ n- k + n k^2) in memory O(n k): no site is stored. It is the engine of
plans with ``prior="gaussian"`` and ``pairs="all"``; a Gaussian process is the same problem with a factor of its kernel
matrix as design.

    fit = solve(problem, choose_plan(problem))
    fit.posterior.mean, fit.log_evidence, fit.leave_out(groups).auc

*Gradient.* At a fixed point log Z is stationary in the sites, so for a prior N(mu, Sigma), S = Sigma^-1 and m, V the
moments of q in the coordinates of theta,

    d log Z / d Sigma = (S (V + (m - mu)(m - mu)') S - S) / 2,    d log Z / d mu = S (m - mu).

References: Ridgway, Alquier, Chopin & Liang (2014), arXiv:1410.1771, section 3.3 and appendix Algorithm 3; Minka
(2001), arXiv:1301.2294; Seeger (2005), EPFL-REPORT-161464, for the evidence and its gradient.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pymc_pacauc.comparison.pairs import Pairs
from pymc_pacauc.comparison.subsample import SampledPairs
from pymc_pacauc.ep import loop
from pymc_pacauc.ep.importance import WeightedDraws, free_lengths, importance_draws
from pymc_pacauc.ep.leave_out import Groups, LeaveOut, Split, leave_out_pairs, starts_anew
from pymc_pacauc.ep.plan import MAX_SWEEPS, MOST_PAIRS, Plan, several_fixed_points
from pymc_pacauc.ep.posterior import (
    GaussianPosterior,
    NaturalGaussian,
    at_gamma,
    marginal,
    natural_gaussian,
    padded,
    standard_gaussian,
)
from pymc_pacauc.ep.results import ADVICE, TRUSTED_ERROR, Fit, warn_of
from pymc_pacauc.ep.sites import SiteTable
from pymc_pacauc.ep.start import CHANGE, SWEEPS, Reached, continued_start
from pymc_pacauc.ep.subsample_sums import sampled_sums
from pymc_pacauc.ep.sweep import check_offset, cut_work, score_moments, sum_sites, sweep_sums, tile_map
from pymc_pacauc.interrupt import raises_interrupts
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.problem import Problem


@dataclass(frozen=True, eq=False)
class EvidenceGradient:
    """Derivatives of log Z with respect to the prior mean (d,) and covariance (d, d).

    ``covariance`` is the symmetric matrix G with d log Z = sum(G * d Sigma); ``variances`` is its diagonal, the
    derivative with respect to independent prior variances.
    """

    mean: FloatArray
    covariance: FloatArray

    @property
    def variances(self) -> FloatArray:
        return np.diagonal(self.covariance).copy()


def evidence_gradient(posterior: GaussianPosterior) -> EvidenceGradient:
    """Differentiate EP's log evidence in the prior, at the fixed point ``posterior``."""
    scores, q = posterior.scores, posterior.natural
    mean, half = q.mean, 0.5 * (q.covariance + np.outer(q.mean, q.mean) - np.eye(q.mean.size))
    rotation, unwhiten = scores.reduced.rotation, scores.prior.unwhiten_rows
    if rotation is not None:
        mean, half = mean @ rotation, rotation.T @ half @ rotation
    return EvidenceGradient(unwhiten(mean[None])[0], unwhiten(unwhiten(half).T))


Callback = Callable[[dict[str, float]], None]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class EPFit(Fit):
    """Result of :func:`~pymc_pacauc.ep.fit.fit` for a Gaussian prior; a :class:`~pymc_pacauc.ep.results.Fit`.

    Attributes
    ----------
    posterior : GaussianPosterior
        The Gaussian approximation q of the posterior of theta.
    corrected : GaussianPosterior
        The posterior with the exact distribution of the length of each independent part, where scores have no offset
        (:class:`~pymc_pacauc.ep.importance.FreeLengthPosterior`); else q.
    table : SiteTable
        Tables of the site functions, with gamma per pair and the power: 1 for EP, in (0, 1) for fractional EP, 0 for
        variational Bayes.
    log_evidence : float
        EP's approximation of log Z; for variational Bayes the lower bound ``-gamma E_q[risk] - KL(q, prior)``.
    expected_risk : float
        E_q[risk], in closed form.
    converged, interrupted, sweeps, history : bool, int, tuple of dict
        Whether the natural parameters change by less than the tolerance in a sweep from q, whether the fit was ended
        from the keyboard, the number of sweeps (without those of its first features), and per sweep its change, log
        evidence and expected risk.
    interventions : Interventions
        How often a step was halved to keep the precision positive definite, the acceleration restarted, a step taken
        back.
    tied_pairs : int
        Number of pairs that tie whatever theta.
    plan : Plan
        How it was fitted; ``print(fit.plan)`` says it in a sentence.
    subsample : SampledPairs or None
        The pairs that were used, of a fit on sampled pairs (:mod:`~pymc_pacauc.ep.subsample`); None where all were.
    pairs_used, sampling_error : int, SamplingError
        Their number, and the error from using a subset of pairs: zero where all pairs were used.
    other_fixed_points : tuple of float
        Log evidences of fixed points that were found and not returned, because theirs is lower. At a gamma far beyond
        the comparison's size there may be several (:mod:`~pymc_pacauc.ep.start`); else empty.
    """

    posterior: GaussianPosterior
    table: SiteTable
    subsample: SampledPairs | None = None
    other_fixed_points: tuple[float, ...] = ()

    model_average = None

    @property
    def pairs_used(self) -> int:
        return super().pairs_used if self.subsample is None else self.subsample.n_pairs

    @property
    def compared(self) -> list[tuple[Pairs, float]]:
        """The pairs that were used, each part with the number of times that its pairs count."""
        return [(self.problem.pairs, 1.0)] if self.subsample is None else self.subsample.parts()

    @property
    def log_evidence_error(self) -> float:
        """Standard error from sampling pairs; NaN where all were used, because EP has no error estimate of its own."""
        return float("nan") if self.subsample is None else self.sampling_error.log_evidence

    @property
    def power(self) -> float:
        return self.table.power

    @property
    def method(self) -> str:
        return "GaussianVB" if self.power == 0.0 else "EP"

    @cached_property
    def corrected(self) -> GaussianPosterior:
        """The posterior with the exact distribution of the length of theta where that is known, else q."""
        known = self.problem.scores.origin is not None
        return free_lengths(self.posterior, self.problem) if known else self.posterior

    @property
    def divergence(self) -> float:
        """KL(q, prior)."""
        return self.posterior.divergence_from_prior

    @property
    def inclusion_probability(self) -> FloatArray:
        return np.ones(self.problem.d)

    def evidence_gradient(self) -> EvidenceGradient:
        """Differentiate ``log_evidence`` in the prior mean and covariance; valid at a converged fit."""
        return evidence_gradient(self.posterior)

    def importance(self, draws: int, rng: np.random.Generator) -> WeightedDraws:
        """Draw theta and weight by exact posterior / approximation; see :mod:`pymc_pacauc.ep.importance`."""
        return importance_draws(self.problem, self.corrected, draws, rng)

    @raises_interrupts
    def leave_out(
        self, groups: ArrayLike | Groups | None = None, *, n_jobs: int | None = None, **options: Any
    ) -> LeaveOut:
        """Score every observation under the posterior without its group; see :mod:`pymc_pacauc.ep.leave_out`.

        ``options`` are those of :func:`~pymc_pacauc.ep.leave_out.leave_out_pairs`.
        """
        q = self.posterior.natural

        def without(split: Split, left: Problem, kept: SampledPairs | None) -> NaturalGaussian | None:
            weight = left.gamma_per_pair / self.problem.gamma_per_pair  # sites are about proportional to gamma
            prior = np.eye(q.mean.size)
            if kept is None:
                removed = sweep_sums(self.problem, q, split.touched, self.table, map_tiles)
                precision, shift = q.precision - prior - removed.precision, q.shift - removed.shift
            else:
                stay = sampled_sums(self.problem, q, kept, self.table, map_tiles)
                precision, shift = stay.precision, stay.shift
            return natural_gaussian(prior + weight * precision, weight * shift)

        def refit(split: Split, left: Problem, sweeps: int, tolerance: float) -> Reached:
            kept = None if self.subsample is None else self.subsample.among(~split.out)
            own = starts_anew(split, left, sweeps)
            start = continued_start(left, self.power) if own else without(split, left, kept)
            if start is None:
                sweeps = max(sweeps, 3)
            elif own and several_fixed_points(left):
                sweeps = max(sweeps, SWEEPS)
            table = SiteTable(left.gamma_per_pair, self.power)
            sums: Any = sampled_sums if kept else sweep_sums
            iteration = loop.gaussian_iteration(
                left, self.power, lambda q: sums(left, q, kept or left.pairs, table, map_tiles)
            )
            found = loop.solve_fixed_point(
                iteration, q if start is None else start, loop.POLICY, tolerance=tolerance, max_sweeps=max(sweeps, 1)
            )
            end = loop.after_last_sweep(iteration, found) if sweeps else found.point
            return Reached(end, found.seen.change, found.converged, restarted=start is None)

        with tile_map(self.problem.pairs.n_pairs, min(self.problem.n, self.problem.d), n_jobs) as map_tiles:
            most = math.inf if self.subsample is None else MOST_PAIRS
            return leave_out_pairs(self.problem, refit, groups, most_inside=most, **options)


def solve(problem: Problem, plan: Plan, *, n_jobs: int | None = None, callback: Callback | None = None) -> EPFit:
    """Fit a Gaussian to the AUC Gibbs posterior from all pairs, as the plan says."""
    check_offset(problem)
    table = SiteTable(problem.gamma_per_pair, plan.power)
    begin = None if isinstance(plan.start, str) else start_of(problem, plan.start)
    others: tuple[float, ...] = ()
    solution = _solve(problem, table, begin, plan, n_jobs, callback)
    if plan.continuation and not solution.interrupted:
        continued = _solve(problem, table, continued_start(problem, plan.power), plan, n_jobs, callback)
        solution, others = _better(solution, continued)
    elif _lost(solution, plan):
        continued = _solve(problem, table, continued_start(problem, plan.power), plan, n_jobs, callback)
        solution = continued if continued.converged or continued.interrupted else solution
    fit = as_fit(problem, plan, table, solution, other_fixed_points=others)
    if others:
        warnings.warn(
            f"{fit.method} has several fixed points at gamma = {problem.gamma:g}, as the posterior has several modes: "
            f"one with log evidence {fit.log_evidence:.2f}, which is returned, and one with {others[0]:.2f}, and there "
            f"may be more. {ADVICE.get() or 'Lower gamma, or check the result against tempering SMC.'}",
            loop.ConvergenceWarning,
            stacklevel=4,
        )
    return fit


def as_fit(
    problem: Problem, plan: Plan, table: SiteTable, found: loop.GaussianSolution, sweeps: int | None = None, **more: Any
) -> EPFit:
    """Make the result of a solution, and warn if it did not converge; ``sweeps``: how many the warning reports."""
    fit = EPFit(
        problem=problem,
        posterior=GaussianPosterior(problem.scores, found.point),
        table=table,
        log_evidence=loop.possible(found.seen.log_evidence),
        expected_risk=found.seen.expected_risk,
        converged=found.converged,
        history=found.history,
        interventions=found.interventions + dropped(problem),
        tied_pairs=found.seen.tied,
        plan=plan.done(len(found.history), more.get("subsample")),
        interrupted=found.interrupted,
        **more,
    )
    advice = "Lower gamma, or check the result against tempering SMC."
    warn_of(fit.method, found, sweeps or fit.sweeps, plan.tolerance, fit.log_evidence, advice, stacklevel=5)
    return fit


def _lost(found: loop.GaussianSolution, plan: Plan) -> bool:
    """Return whether sweeps from the prior did not converge, so that a path of growing gammas is worth trying.

    The path converges for 12 of 14 fits of this kind, such as those whose data contradict the prior mean.
    """
    begun = isinstance(plan.start, str) and plan.where == "threads"
    return begun and not (found.converged or found.interrupted) and len(found.history) >= MAX_SWEEPS


def _better(
    one: loop.GaussianSolution, other: loop.GaussianSolution
) -> tuple[loop.GaussianSolution, tuple[float, ...]]:
    """Return the solution with the higher log evidence; and the other's log evidence, if it is another fixed point.

    A solution that has not converged is judged by its variational bound, which is below log Z for any q.
    """

    def known(found: loop.GaussianSolution) -> float:
        value = loop.possible(found.seen.log_evidence) if found.converged else found.seen.bound
        return value if np.isfinite(value) else -np.inf

    worse, better = sorted((one, other), key=known)
    q = better.point
    apart = np.sqrt(np.mean((q.factor.T @ (worse.point.mean - q.mean)) ** 2))
    several = worse.converged and better.converged and apart > TRUSTED_ERROR
    if other.interrupted:
        better = replace(better, interrupted=True, converged=False)
    return better, (float(worse.seen.log_evidence),) if several else ()


def _solve(
    problem: Problem,
    table: SiteTable,
    start: NaturalGaussian | None,
    plan: Plan,
    n_jobs: int | None,
    callback: Callback | None,
) -> loop.GaussianSolution:
    """Solve for EP's fixed point in the problem's reduced coefficients, from ``start`` or as the plan says."""
    k = problem.scores.reduced.dimension
    sums_by = partial(_sums_here, n_jobs) if plan.where == "threads" else plan.where
    with sums_by(problem, table) as sums_at:
        iteration, policy = loop.gaussian_iteration(problem, table.power, sums_at), loop.POLICY
        if start is None and plan.start == "few features":
            few = standard_gaussian(max(1, k // 3))  # in order of the variance they explain
            found = loop.solve_fixed_point(iteration, few, loop.WARM, tolerance=CHANGE, max_sweeps=SWEEPS)
            start, policy = padded(found.point, k), replace(loop.POLICY, plain_steps=0)
        return loop.solve_fixed_point(
            iteration,
            start or standard_gaussian(k),
            loop.policy_for(k, policy),
            tolerance=plan.tolerance,
            max_sweeps=plan.max_sweeps,
            callback=callback,
        )


@contextmanager
def _sums_here(n_jobs: int | None, problem: Problem, table: SiteTable) -> Iterator[loop.SumsAt]:
    """Yield ``sums(q)``, computed on the threads of this machine."""
    with tile_map(problem.pairs.n_pairs, min(problem.n, problem.d), n_jobs) as map_tiles:
        yield lambda q: sweep_sums(problem, q, problem.pairs, table, map_tiles)


def dropped(problem: Problem) -> loop.Interventions:
    """Count directions of theta that reach no score, to the accuracy of :mod:`pymc_pacauc.problem.scores`."""
    cut = problem.d - problem.scores.reduced.dimension if problem.d <= problem.n else 0
    return loop.Interventions(dropped_directions=cut)


def start_of(problem: Problem, start: Fit | None) -> NaturalGaussian:
    """Return the prior, or an earlier fit in the present coordinates; with the same scores, scaled to this gamma."""
    scores = problem.scores
    k = scores.reduced.dimension
    prior = standard_gaussian(k)
    if start is None:
        return prior
    if start.problem.d != problem.d:
        raise ValueError(f"start has {start.problem.d} coefficients, the problem has {problem.d}.")
    if isinstance(start, EPFit) and start.problem.scores is scores:
        return at_gamma(start.posterior.natural, problem.gamma / start.problem.gamma)
    return marginal(start.posterior, scores, slice(None)) or prior


def carried_over(fit: EPFit, problem: Problem) -> EPFit | None:
    """Make a start for other scores of the same pairs: the prior of ``problem`` times the sites of ``fit``.

    Sites are functions of score differences, here of those of ``problem``. Where the product is not a density, the
    start is None, or, of a fit on sampled pairs, the prior with the same pairs.
    """
    old, space = fit.problem.scores.reduced, problem.scores.reduced
    moments = score_moments(old.design, old.offset, fit.posterior.natural)
    precision, shift = np.eye(space.dimension), np.zeros(space.dimension)
    for pairs, times in fit.compared:
        work = cut_work(pairs, space.dimension)
        sums = sum_sites(space.design, space.offset, moments, work, fit.table, tie_cost=problem.tie_cost)
        precision += times * sums.precision
        shift += times * sums.shift
    start = natural_gaussian(precision, shift)
    if start is None and fit.subsample is None:
        return None
    start = start or start_of(problem, None)
    return replace(fit, problem=problem, posterior=GaussianPosterior(problem.scores, start))
