"""Exact inclusion probabilities for a few coefficients: importance sampling over models and directions.

EP's inclusion probabilities are read off a Gaussian, which cannot hold the length of theta; nor can it describe, with
v0 > 0, the mode in which every coefficient is in the spike beside that of the slab. With few enough coefficients to
list the models z, EP's *pair sites* give a proposal that has neither fault. Given z let theta = D x with x ~ N(0, I), D
the prior's standard deviations (zero for what a Dirac spike holds): the risk depends on the direction of x alone, and
under the sites that direction has the density of a projected Gaussian (:mod:`~pymc_pacauc.ep.importance`). The sites,
too, are known up to a scale, chosen for each z by the evidence they give it. Draws of (z, direction) are weighted by
the exact prior and exp(-gamma risk).

Models are proposed by the evidence of their sites first, and then by what a pilot run found. With v0 > 0 theta's
direction says more about z than the one z it was drawn with: the inclusion probabilities given the direction are an
integral over the length, and their average is used (Rao-Blackwell).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from pymc_pacauc.core.problem import Problem
from pymc_pacauc.core.weights import systematic
from pymc_pacauc.ep.importance import WeightedDraws, log_direction_density, log_mean
from pymc_pacauc.ep.natural import draw_natural, natural_gaussian
from pymc_pacauc.ep.sparse.gaussian import SparseGaussian

__all__ = ["ModelAverage", "average_models", "draw_models", "models_can_be_listed"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

MOST_SPARSE = 10  # coefficients whose models are listed
MOST_COEFFICIENTS = 50
PILOT = 2000
DRAWS = (4000, 16000)
DEFENCE = 0.2  # share of the proposals that do not trust the sites
WANTED_ERROR = 0.02
CHUNK = 2_000_000  # numbers at a time


@dataclass(frozen=True, eq=False)
class ModelAverage:
    """Inclusion probabilities and evidence with standard errors, and the number of equally weighted draws."""

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


def average_models(problem: Problem, q: SparseGaussian, rng: np.random.Generator) -> ModelAverage | None:
    """Weigh models and directions, from the pair sites of q; None where that is not possible, or not accurate."""
    if not models_can_be_listed(problem):
        return None
    assert problem.spikes is not None
    sparse = problem.spikes.sparse
    proposal = _Proposal(problem, q)
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


def draw_models(problem: Problem, q: SparseGaussian, draws: int, rng: np.random.Generator) -> WeightedDraws:
    """Draws of theta weighted by the exact posterior, from the pair sites of q.

    Given model and direction the length of x is free: its law is that of the prior, chi with d degrees of freedom.
    """
    proposal = _Proposal(problem, q)
    _, w, log_weights = proposal.draw(proposal.improved(rng), draws, rng)
    theta = problem.prior.color(w * np.sqrt(rng.chisquare(problem.d, size=(draws, 1))))
    return WeightedDraws(theta, problem.risk(theta), log_weights)


def models_can_be_listed(problem: Problem) -> bool:
    """Whether there are few enough coefficients, and no offset that would make the length matter."""
    assert problem.spikes is not None
    few = np.count_nonzero(problem.spikes.sparse) <= MOST_SPARSE and problem.d <= MOST_COEFFICIENTS
    return bool(few and problem.scale_free)


def _slab_given_direction(problem: Problem, w: FloatArray) -> FloatArray:
    """Probability of each slab given the direction of w, by the trapezoidal rule in the log of its length."""
    assert problem.spikes is not None
    p = problem.spikes.inclusion_probability
    variance = np.where(p < 1.0, problem.spikes.ratio, 1.0)  # a Gaussian coefficient has no spike
    log_length = np.arange(0.5 * np.log(variance.min()) - 6.0, np.log(problem.d) + 3.0, 0.05)
    log_p = np.log(p)
    with np.errstate(divide="ignore"):
        log_spike = np.log1p(-p) - 0.5 * np.log(variance)
    slab = np.empty_like(w)
    for rows in np.array_split(np.arange(len(w)), max(1, w.size * log_length.size // CHUNK)):
        direction = w[rows] / np.linalg.norm(w[rows], axis=1, keepdims=True)
        squared = (np.exp(log_length)[:, None] * direction[:, None, :]) ** 2
        log_slab = log_p - 0.5 * squared
        log_both = np.logaddexp(log_slab, log_spike - 0.5 * squared / variance)
        log_density = problem.d * log_length + log_both.sum(axis=2)
        density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
        slab[rows] = np.einsum("ij,ijk->ik", density, np.exp(log_slab - log_both)) / density.sum(axis=1)[:, None]
    return slab


class _Proposal:
    """Models z, and for each the Gaussian of x that the pair sites imply."""

    def __init__(self, problem: Problem, q: SparseGaussian):
        self.problem = problem
        assert problem.spikes is not None
        spike, sparse = problem.spikes.ratio, np.flatnonzero(problem.spikes.sparse)
        self.risk = problem.risk
        self.models: BoolArray = np.ones((2**sparse.size, problem.d), dtype=bool)
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
        """Probabilities of the models by a pilot run, from which some defence is left."""
        numbers, _, log_weights = self.draw(self.by_sites, PILOT, rng)
        found = np.bincount(numbers, np.exp(log_weights - log_weights.max()), len(self.models))
        return np.asarray((1.0 - DEFENCE) * found / found.sum() + DEFENCE * self.by_sites)

    def draw(
        self, probability: FloatArray, draws: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.intp], FloatArray, FloatArray]:
        """Numbers of models, theta in units of the slab, and log weights; z is drawn with ``probability``."""
        numbers = systematic(probability, draws, rng)
        x = np.empty((draws, self.problem.d))
        log_direction = np.empty(draws)
        for number in np.unique(numbers):
            rows = numbers == number
            x[rows], log_direction[rows] = self.directions(number, int(rows.sum()), rng)
        w = x * self.sd[numbers]
        log_target = self.log_prior[numbers] - self.problem.gamma * self.risk(w * self.problem.prior.factor)
        return numbers, w, log_target - np.log(probability[numbers]) - log_direction

    def directions(self, number: int, draws: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Unit vectors x, and their log density relative to the uniform one; a few come from the latter."""
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
