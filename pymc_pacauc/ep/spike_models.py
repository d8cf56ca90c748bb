"""Exact inclusion probabilities of spike and slab by listing models, where these are few.

EP computes inclusion probabilities from a Gaussian, which cannot represent the distribution of the length of theta,
nor, with v0 > 0, the second mode with every coefficient in the spike. With at most ``MOST_SPARSE`` coefficients that
have a spike, the 2^m models z can be listed: draws of (z, direction) are weighted by the exact prior and exp(-gamma
risk), in O(draws n log n + 2^m d^3). Given z let theta = D x, x ~ N(0, I), D the prior's standard deviations. The risk
depends on the direction of x alone, which under EP's pair sites has the density of a projected Gaussian
(:mod:`~pymc_pacauc.ep.importance`), at a scale chosen for each z by evidence. Models are proposed in proportion to the
evidence of their sites, then by a pilot run.

Used by every fit with a spike-and-slab prior for ``model_average`` and ``corrected``. To propose models in another way,
replace ``ModelProposal.probability``: the weights correct for it.

References: Ridgway, Alquier, Chopin & Liang (2014), arXiv:1410.1771, sections 2.4 and 3.4; Hernández-Lobato,
Hernández-Lobato & Suárez (2015), doi:10.1007/s10994-014-5475-7.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from pymc_pacauc.ep.importance import log_direction_density, log_mean
from pymc_pacauc.ep.posterior import draw_natural, natural_gaussian
from pymc_pacauc.ep.prior_sites import SparseGaussian
from pymc_pacauc.numerics import FloatArray, Mask, systematic
from pymc_pacauc.problem.problem import Problem

# Coefficients whose 2^10 models are listed, and coefficients of any kind; one more doubles time and memory.
MOST_SPARSE, MOST_COEFFICIENTS = 10, 50
# Weighted draws: DIRECTIONS of a pilot run, or for moments; DRAWS of the estimate, and of a second one where the first
# is too noisy. Twice as many have 0.7 times the error.
DIRECTIONS, DRAWS = 2048, (4000, 16000)
DEFENCE = 0.2  # share of proposals from prior and uniform, which bounds the weights; doubled: half the bound
# Largest standard error of an inclusion probability: above it EP's own are returned; doubled, they are in fewer cases
WANTED_ERROR = 0.02


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
    proposal = ModelProposal(problem, q)
    by_pilot = proposal.improved(rng)
    for draws in DRAWS:
        numbers, _, log_weights = proposal.draw(by_pilot, draws, rng)
        weights = np.exp(log_weights - logsumexp(log_weights))
        slab = proposal.models[numbers]
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
        precision, shift = q.rotation.T @ q.precision @ q.rotation, q.rotation.T @ q.shift
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
