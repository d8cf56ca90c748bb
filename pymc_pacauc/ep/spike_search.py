"""EP's fixed point under priors that are not Gaussian, and exact inclusion probabilities of spike and slab.

*Search* (:func:`solve_sparse`). q is the product of pair and prior sites (:mod:`~pymc_pacauc.ep.prior_sites`). An outer
iteration sums the pair sites given q, (k, k) and (k,), with damped and then mixed steps; after each step an inner one
brings the d prior sites, and the scale of q, to their fixed point given the pair sites, which needs no pass over pairs.
If the inner iteration does not converge, the step is halved. If the outer one does not, two other policies are tried:
short steps of all sites together, with mixing from a small or from a larger change on. All use the loop of
:mod:`~pymc_pacauc.ep.loop`; the limit on sweeps and passes is for all policies together. A sweep costs
O(n+ n- k + n k^2), a pass over the prior sites O(d k^2) or a little more. For plans whose ``prior`` is not "gaussian".

*Model averages* (:func:`average_models`). EP computes inclusion probabilities from a Gaussian, which cannot represent
the distribution of the length of theta, nor, with v0 > 0, the second mode with every coefficient in the spike. With at
most ``MOST_SPARSE`` coefficients that have a spike, the 2^m models z can be listed: draws of (z, direction) are
weighted by the exact prior and exp(-gamma risk). Given z let theta = D x, x ~ N(0, I), D the prior's standard
deviations. The risk depends on the direction of x alone, which under EP's pair sites has the density of a projected
Gaussian (:mod:`~pymc_pacauc.ep.importance`), at a scale chosen for each z by evidence. Models are proposed in
proportion to the evidence of their sites, then by a pilot run. With v0 > 0 the inclusion probability given the
direction is an integral over the length; it replaces the drawn z (Rao-Blackwell).

References: Ridgway, Alquier, Chopin & Liang (2014), arXiv:1410.1771, sections 2.4 and 3.4; Hernández-Lobato,
Hernández-Lobato & Suárez (2015), doi:10.1007/s10994-014-5475-7.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from pymc_pacauc.ep.importance import log_direction_density, log_mean
from pymc_pacauc.ep.loop import Interventions, Iteration, Pace, Policy, Solution, possible, solve_fixed_point
from pymc_pacauc.ep.plan import ACCURACIES
from pymc_pacauc.ep.posterior import draw_natural, natural_gaussian
from pymc_pacauc.ep.prior_sites import MatchedSites, SparseGaussian, matched_sites, settle_prior_sites, sparse_gaussian
from pymc_pacauc.ep.sites import SiteTable
from pymc_pacauc.ep.sweep import ScoreMoments, SiteSums, sum_sites
from pymc_pacauc.numerics import FloatArray, Mask, slices, systematic
from pymc_pacauc.problem.problem import Problem

# Coefficients whose 2^10 models are listed, and coefficients of any kind; one more doubles time and memory.
MOST_SPARSE, MOST_COEFFICIENTS = 10, 50
# Weighted draws: of a pilot, or for moments; then; and where that is too noisy. Twice as many: errors / 1.4.
DIRECTIONS, DRAWS = 2048, (4000, 16000)
DEFENCE = 0.2  # share of proposals from prior and uniform, which bounds the weights; doubled: half the bound
WANTED_ERROR = 0.02  # standard error of an inclusion probability, the largest; above it EP's own are returned


@dataclass(frozen=True, eq=False)
class ModelAverage:
    """Inclusion probabilities (d,) and log evidence with standard errors, and the effective number of draws."""

    inclusion: FloatArray
    standard_error: FloatArray
    log_evidence: float
    log_evidence_se: float
    effective_draws: float

    def __repr__(self) -> str:
        return (
            f"ModelAverage(log_evidence={self.log_evidence:.3f} ± {self.log_evidence_se:.3f}, "
            f"effective_draws={self.effective_draws:.0f}, largest_error={self.standard_error.max():.3f})"
        )


@np.errstate(under="ignore")
def average_models(problem: Problem, q: SparseGaussian, rng: np.random.Generator) -> ModelAverage | None:
    """Compute inclusion probabilities and evidence by weighted draws of models and directions.

    None where models cannot be listed, or the error is above ``WANTED_ERROR``.
    """
    if not models_can_be_listed(problem):
        return None
    assert problem.spikes is not None
    sparse = problem.spikes.sparse
    proposal = ModelProposal(problem, q)
    by_pilot = proposal.improved(rng)
    for draws in DRAWS:
        numbers, w, log_weights = proposal.draw(by_pilot, draws, rng)
        weights = np.exp(log_weights - logsumexp(log_weights))
        slab = proposal.models[numbers].astype(float)
        if (problem.spikes.ratio[sparse] > 0.0).all():
            slab[:, sparse] = _slab_given_direction(problem, w)[:, sparse]
        inclusion = weights @ slab
        error = np.sqrt(weights**2 @ (slab - inclusion) ** 2)
        if error.max() < WANTED_ERROR:
            return ModelAverage(inclusion, error, *log_mean(log_weights), float(1.0 / np.sum(weights**2)))
    return None


def models_can_be_listed(problem: Problem) -> bool:
    """Return whether there are few enough coefficients, and no offset (with one, the length of theta would matter)."""
    assert problem.spikes is not None
    few = np.count_nonzero(problem.spikes.sparse) <= MOST_SPARSE and problem.d <= MOST_COEFFICIENTS
    return bool(few and problem.scale_free)


def _slab_given_direction(problem: Problem, w: FloatArray) -> FloatArray:
    """Compute the probability of each slab given the direction of w, (draws, d), by the trapezoidal rule in log |w|."""
    assert problem.spikes is not None
    p = problem.spikes.inclusion_probability
    variance = np.where(p < 1.0, problem.spikes.ratio, 1.0)  # a Gaussian coefficient has no spike
    log_length = np.arange(0.5 * np.log(variance.min()) - 6.0, np.log(problem.d) + 3.0, 0.05)
    log_p = np.log(p)
    with np.errstate(divide="ignore"):
        log_spike = np.log1p(-p) - 0.5 * np.log(variance)
    slab = np.empty_like(w)
    for rows in slices(len(w), problem.d * log_length.size):
        direction = w[rows] / np.linalg.norm(w[rows], axis=1, keepdims=True)
        squared = (np.exp(log_length)[:, None] * direction[:, None, :]) ** 2
        log_slab = log_p - 0.5 * squared
        log_both = np.logaddexp(log_slab, log_spike - 0.5 * squared / variance)
        log_density = problem.d * log_length + log_both.sum(axis=2)
        density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
        slab[rows] = np.einsum("ij,ijk->ik", density, np.exp(log_slab - log_both)) / density.sum(axis=1)[:, None]
    return slab


class ModelProposal:
    """Proposal of models z, (2^m, d), and directions: for each model the Gaussian of x that the pair sites imply."""

    def __init__(self, problem: Problem, q: SparseGaussian):
        self.problem = problem
        assert problem.spikes is not None
        spike, sparse = problem.spikes.ratio, np.flatnonzero(problem.spikes.sparse)
        self.risk = problem.risk
        self.models: Mask = np.ones((2**sparse.size, problem.d), dtype=bool)
        self.models[:, sparse] = list(itertools.product([False, True], repeat=sparse.size))
        p = problem.spikes.inclusion_probability[sparse]
        chosen = self.models[:, sparse]
        self.log_prior = np.where(chosen, np.log(p), np.log1p(-p)).sum(axis=1)
        self.sd = np.where(self.models, 1.0, np.sqrt(spike))
        rotation = problem.scores.reduced.rotation
        A = np.eye(problem.d) if rotation is None else rotation
        precision, shift = A.T @ q.precision @ A, A.T @ q.shift
        self.values, self.vectors = np.linalg.eigh(precision * self.sd[:, :, None] * self.sd[:, None, :])
        self.values = np.maximum(self.values, 0.0)
        along = np.einsum("mij,mi->mj", self.vectors, self.sd * shift)
        scales = np.geomspace(0.1, 10.0 / np.sqrt(spike[spike > 0].min(initial=1.0)), 60)
        curvature = 1.0 + scales[:, None, None] ** 2 * self.values
        evidence = 0.5 * np.sum((scales[:, None, None] * along) ** 2 / curvature - np.log(curvature), axis=2)
        self.scale = scales[evidence.argmax(axis=0)]
        self.shift = along * self.scale[:, None]
        log_posterior = self.log_prior + evidence.max(axis=0)
        self.by_sites = (1.0 - DEFENCE) * np.exp(log_posterior - logsumexp(log_posterior))
        self.by_sites += 0.5 * DEFENCE * (np.exp(self.log_prior) + 1.0 / len(self.models))

    def improved(self, rng: np.random.Generator) -> FloatArray:
        """Estimate probabilities of the models by a pilot run, mixed with ``DEFENCE`` of the earlier proposal."""
        numbers, _, log_weights = self.draw(self.by_sites, DIRECTIONS, rng)
        found = np.bincount(numbers, np.exp(log_weights - log_weights.max()), len(self.models))
        return np.asarray((1.0 - DEFENCE) * found / found.sum() + DEFENCE * self.by_sites)

    def draw(
        self, probability: FloatArray, draws: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.intp], FloatArray, FloatArray]:
        """Draw models with ``probability``: their numbers, theta in units of the slab (draws, d), and log weights."""
        numbers = rng.permutation(systematic(probability, draws, rng))  # in order, the first would be of some models
        x = np.empty((draws, self.problem.d))
        log_direction = np.empty(draws)
        for number in np.unique(numbers):
            rows = numbers == number
            x[rows], log_direction[rows] = self.directions(number, int(rows.sum()), rng)
        w = x * self.sd[numbers]
        log_target = self.log_prior[numbers] - self.problem.gamma * self.risk(w * self.problem.prior.factor)
        return numbers, w, log_target - np.log(probability[numbers]) - log_direction

    def directions(self, number: int, draws: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Draw unit vectors x, a share ``DEFENCE`` uniformly; and their log density relative to the uniform one."""
        vectors = self.vectors[number]
        precision = (vectors * (1.0 + self.scale[number] ** 2 * self.values[number])) @ vectors.T
        gaussian = natural_gaussian(precision, vectors @ self.shift[number])
        assert gaussian is not None  # its eigenvalues are at least one
        x = np.where(
            rng.random((draws, 1)) < DEFENCE,
            rng.standard_normal((draws, len(vectors))),
            draw_natural(gaussian, draws, rng),
        )
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        return x, np.logaddexp(np.log1p(-DEFENCE) + log_direction_density(x, gaussian), np.log(DEFENCE))


SETTLING = Policy(  # steps of the pair sites, after which the prior sites settle
    damping=0.5,
    least_damping=0.05,
    plain_steps=3,
    patience=60,
    halvings=4,
    all_halvings=12,
    restarts_when_halved=True,
)
TOGETHER = Policy(  # short steps of all sites at once
    damping=0.25,
    least_damping=0.25,
    mixed_below=0.05,
    halvings=4,
)
EAGER = replace(TOGETHER, mixed_below=0.3)  # the same, mixed from farther away
ROUGHLY = ACCURACIES["path"].tolerance  # to which prior sites settle at the start, which only leads there
PASSES_PER_SWEEP = 10  # over the prior sites, on average, for each sweep that is allowed: bounds the time of a search
INNER_SHARE = 0.005  # tolerance of the prior sites, as a share of the change of the pair sites: noise to the mixing


@dataclass(frozen=True, eq=False)
class SparsePoint:
    """q, the tolerance to which its prior sites have converged, the passes this took, and counted interventions."""

    q: SparseGaussian
    settled: float
    passes: int = 0
    acted: Interventions = field(default_factory=Interventions)


@dataclass(frozen=True, eq=False)
class SparseSweep:
    """The sums of the pair sites given q, as steps (k, k) and (k,) from the old ones, and quantities of q.

    ``change`` is the root mean square over coefficients, in q's own standard deviations.
    """

    precision_step: FloatArray
    shift_step: FloatArray
    sites: MatchedSites
    change: float
    final: bool
    log_evidence: float
    expected_risk: float
    tied: int

    bound = 0.0  # no bound is known for these priors

    @property
    def record(self) -> dict[str, float]:
        return {
            "log_evidence": possible(self.log_evidence),
            "expected_risk": self.expected_risk,
            "expected_model_size": float(self.sites.inclusion.sum()),
        }


SparseSolution = Solution[SparsePoint, SparseSweep]


def solve_sparse(
    problem: Problem,
    start: SparseGaussian,
    map_tiles: Callable[..., Any],
    *,
    tolerance: float,
    max_sweeps: int,
    callback: Callable[[dict[str, float]], None] | None = None,
    counted: int = 0,
) -> SparseSolution:
    """Solve by the first of three policies that converges; else return the solution with the smallest change.

    ``counted`` is the number of sweeps made before, from which records are numbered on.
    """
    history: tuple[dict[str, float], ...] = ()
    acted = Interventions()
    best: SparseSolution | None = None
    for policy in (SETTLING, TOGETHER, EAGER):
        together = policy is not SETTLING
        left = max_sweeps - len(history)
        if best is not None and (best.converged or best.interrupted or left < 1):
            break
        found = solve_fixed_point(
            _iteration(problem, map_tiles, tolerance, PASSES_PER_SWEEP * max_sweeps, together=together),
            SparsePoint(start, 0.0) if together else settle(problem, start, ROUGHLY) or SparsePoint(start, ROUGHLY),
            policy,
            tolerance=tolerance,
            max_sweeps=left,
            callback=callback,
            counted=counted + len(history),
        )
        history += found.history
        acted += found.interventions + found.following.acted
        if best is None or found.converged or found.seen.change < best.seen.change:
            best = found
    assert best is not None
    return replace(best, history=history, interventions=acted)


def settle(problem: Problem, q: SparseGaussian, tolerance: float) -> SparsePoint | None:
    """Bring the prior sites of q to their fixed point given the pair sites; None where they do not converge."""
    assert problem.sites is not None
    rotation = problem.scores.reduced.rotation
    found = settle_prior_sites(q, problem.sites, rotation, tolerance, scaled=problem.scale_free)
    acted = Interventions(reset_sites=found.reset_sites, clipped_rescalings=found.clipped_rescalings)
    return None if found.q is None else SparsePoint(found.q, tolerance, found.passes, acted)


def _iteration(
    problem: Problem, map_tiles: Callable[..., Any], tolerance: float, most_passes: int, *, together: bool
) -> Iteration[SparsePoint, SparseSweep]:
    """Return EP's map of the pair sites, with prior sites at their fixed point, or of all sites ``together``."""
    assert problem.sites is not None
    prior, rotation = problem.sites, problem.scores.reduced.rotation
    table = SiteTable(problem.gamma_per_pair)

    def sweep(point: SparsePoint, pace: Pace) -> SparseSweep:
        q = point.q
        pairs = pair_sums(problem, q, table, map_tiles)
        sites = matched_sites(q.cavity_precision, q.cavity_shift, prior)
        precision, shift = pairs.precision - q.precision, pairs.shift - q.shift
        # Log integral of the product of the new sites, to first order about q; exact at the fixed point.
        integral = (
            q.log_partition()
            + shift @ q.reduced_mean
            - 0.5 * np.sum(q.reduced_root * (precision @ q.reduced_root))
            - 0.5 * q.reduced_mean @ precision @ q.reduced_mean
        )
        moved = _in_units(q, _step(q, precision, shift, sites, together=together))
        return SparseSweep(
            precision_step=precision,
            shift_step=shift,
            sites=sites,
            change=float(np.linalg.norm(moved) / np.sqrt(problem.d)),
            final=point.settled <= tolerance,
            log_evidence=float(pairs.log_constant + sites.log_constant.sum() + integral),
            expected_risk=float(pairs.wrong / problem.pairs.total_weight),
            tied=pairs.tied,
        )

    def plain(point: SparsePoint, seen: SparseSweep, damping: float) -> tuple[FloatArray, int]:
        return damping * _step(point.q, seen.precision_step, seen.shift_step, seen.sites, together=together), 0

    def flat(point: SparsePoint) -> FloatArray:
        q = point.q
        parts = [q.precision.ravel(), q.shift, *([q.site_precision, q.site_shift] if together else [])]
        return np.concatenate(parts)

    def move(point: SparsePoint, seen: SparseSweep, step: FloatArray) -> SparsePoint | None:
        moved = _moved(point.q, step, rotation)
        if moved is None:
            return None
        if together:
            return SparsePoint(moved, 0.0, acted=point.acted) if moved.proper(prior) else None
        if point.passes > most_passes:
            return None
        inner = INNER_SHARE * min(max(seen.change, tolerance), 0.1)
        settled = settle(problem, moved, inner)
        if settled is None:
            return None
        return replace(settled, passes=point.passes + settled.passes, acted=point.acted + settled.acted)

    return Iteration(sweep, plain, flat, lambda point, seen: partial(_in_units, point.q), move)


def pair_sums(problem: Problem, q: SparseGaussian, table: SiteTable, map_tiles: Callable[..., Any]) -> SiteSums:
    """Sum the sites of the problem's pairs under q."""
    space = problem.scores.reduced
    root = space.design @ q.reduced_root  # (n, k)
    moments = ScoreMoments(space.design @ q.reduced_mean + space.offset, root, np.einsum("ij,ij->i", root, root))
    return sum_sites(
        space.design, space.offset, moments, problem.pairs, table, tie_cost=problem.tie_cost, map_tiles=map_tiles
    )


def _step(
    q: SparseGaussian, precision: FloatArray, shift: FloatArray, sites: MatchedSites, *, together: bool
) -> FloatArray:
    """Concatenate the steps of P (k, k) and r (k,), and if ``together`` of u and h (d,)."""
    parts = [precision.ravel(), shift]
    if together:
        parts += [sites.precision - q.site_precision, sites.shift - q.site_shift]
    return np.concatenate(parts)


def _parts(q: SparseGaussian, step: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Split a step into those of P, r, u and h; the last two are empty unless all sites move together."""
    k, d = q.shift.size, q.mean.size
    matrix, shift, u, h = np.split(step, np.cumsum([k * k, k, d]))
    return matrix.reshape(k, k), shift, u, h


def _moved(q: SparseGaussian, step: FloatArray, rotation: FloatArray | None) -> SparseGaussian | None:
    """Return q after a step; None where that is not a Gaussian."""
    matrix, shift, u, h = _parts(q, step)
    return sparse_gaussian(
        q.precision + 0.5 * (matrix + matrix.T),
        q.shift + shift,
        q.site_precision + u if u.size else q.site_precision,
        q.site_shift + h if h.size else q.site_shift,
        rotation,
    )


def _in_units(q: SparseGaussian, step: FloatArray) -> FloatArray:
    """Return a step in units of q: the square of its norm is that of the metric of :mod:`pymc_pacauc.ep.loop`."""
    matrix, shift, u, h = _parts(q, step)
    root = q.reduced_root  # (k, k)
    parts = [(root.T @ matrix @ root).ravel() / np.sqrt(2.0), root.T @ shift]
    if u.size:
        parts += [u * q.variance / np.sqrt(2.0), h * np.sqrt(q.variance)]
    return np.concatenate(parts)
