"""Importance sampling from the Gaussian approximation: how good it is, and what the exact answers are.

Draws from q are weighted by target / q; their mean weight estimates the evidence without EP's bias. In the whitened
coefficients of a scale-free problem the posterior's radius is chi-distributed and independent of the direction, which
no Gaussian can represent, so weights of whole vectors degenerate with the dimension. Only the *direction* of a draw
is kept, whose density under q is an integral over the radius,

    p(e) = int_0^inf r^(k-1) N(r e; m, V) dr,

its weight is exp(-gamma risk(e)) / p(e) (up to the area of the sphere), and the radius is drawn from its exact law.

E_q[risk] over all pairs without visiting them: what a certificate needs of a fit on sampled pairs.

Under q the pair (i, j) is wrong with probability Phi(-rho_ij), which has a closed form; its mean over all pairs is the
matter. Ranking by the mean of q gets pairs wrong that can be counted, all of them, in O(n log n), and most pairs are
right or wrong for certain, so that the two hardly differ:

    E_q[risk] = risk(mean of q) + mean over all pairs of [Phi(-rho_ij) - 1{a_i < a_j}].

The second mean is estimated from pairs drawn independently, each in proportion to its weight. Its terms lie in
[-1/2, 1/2], so that its error has a bound that is a theorem, not an approximation
(:func:`pymc_pacauc.certify.bounds.mean_bound`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.special import gammaln, log_ndtr, logsumexp, ndtr

from pymc_pacauc.comparison.pairs import Block, Pairs
from pymc_pacauc.comparison.risk import pair_risk
from pymc_pacauc.ep.posterior import GaussianPosterior, NaturalGaussian, draw_natural
from pymc_pacauc.ep.sites import TIED
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.problem import Problem

RADIAL_NODES = np.linspace(0.0, 1.0, 241)


@dataclass(frozen=True, eq=False)
class WeightedDraws:
    """Draws of theta, their risk, and log(target / proposal): the mean weight estimates the evidence."""

    theta: FloatArray
    risk: FloatArray
    log_weights: FloatArray


def importance_draws(
    problem: Problem, posterior: GaussianPosterior, draws: int, rng: np.random.Generator
) -> WeightedDraws:
    """Draw from the approximation and weight by the exact posterior; see the module docstring."""
    q = posterior.natural
    u = draw_natural(q, draws, rng)
    if problem.scale_free:
        direction = u / np.linalg.norm(u, axis=1, keepdims=True)
        log_proposal = log_direction_density(direction, q)
        u = direction * np.sqrt(rng.chisquare(q.mean.size, size=(draws, 1)))
    else:
        centred = (u - q.mean) @ q.factor
        log_proposal = (
            0.5 * (np.sum(u * u, axis=1) - np.sum(centred * centred, axis=1)) + np.log(np.diagonal(q.factor)).sum()
        )
    theta = posterior.scores.complete(u, rng)
    risk = problem.risk(theta)
    return WeightedDraws(theta, risk, -problem.gamma * risk - log_proposal)


def log_mean(log_weights: FloatArray) -> tuple[float, float]:
    """log of the mean weight, and its standard error by the delta method."""
    estimate = logsumexp(log_weights) - np.log(log_weights.size)
    relative = np.exp(log_weights - estimate)
    return float(estimate), float(relative.std(ddof=1) / np.sqrt(log_weights.size))


def log_direction_density(direction: FloatArray, q: NaturalGaussian) -> FloatArray:
    """log density of e = u / |u|, u ~ q, relative to the uniform distribution on the sphere."""
    k = q.mean.size
    along = direction @ q.factor
    curvature = np.sum(along * along, axis=1)  # e' Q e
    slope = (direction @ q.shift) / np.sqrt(curvature)
    log_normalizer = np.log(np.diagonal(q.factor)).sum() - 0.5 * k * math.log(2 * math.pi) - 0.5 * q.mean @ q.shift
    log_area = math.log(2.0) + 0.5 * k * math.log(math.pi) - gammaln(0.5 * k)
    return log_normalizer + log_area - 0.5 * k * np.log(curvature) + _log_radial_integral(slope, k - 1)


def _log_radial_integral(slope: FloatArray, power: int) -> FloatArray:
    """log int_0^inf t^power exp(-t^2/2 + slope t) dt, by the trapezoidal rule in x = log t."""
    if power == 0:
        return np.asarray(0.5 * slope * slope + 0.5 * math.log(2 * math.pi) + log_ndtr(slope))
    n = power + 1.0
    mode = np.log(0.5 * (slope + np.sqrt(slope * slope + 4.0 * n)))

    def exponent(x: FloatArray) -> FloatArray:
        t = np.exp(x)
        return n * x - 0.5 * t * t + slope[:, None] * t

    top = exponent(mode[:, None])
    edges = []
    for far in (mode - 60.0 / n - 8.0, mode + 60.0 / n + 8.0):  # bisect for where the integrand has dropped by e^-40
        near, far = mode[:, None], far[:, None]
        for _ in range(25):
            middle = 0.5 * (near + far)
            beyond = exponent(middle) < top - 40.0
            near, far = np.where(beyond, near, middle), np.where(beyond, middle, far)
        edges.append(far)
    low, high = edges
    x = low + (high - low) * RADIAL_NODES
    step = (high - low)[:, 0] * RADIAL_NODES[1]
    return np.asarray(top[:, 0] + np.log(np.exp(exponent(x) - top).sum(axis=1) * step))


AT_ONCE = 2**16  # pairs


def sampled_expected_risk(
    problem: Problem, q: NaturalGaussian, count: int, rng: np.random.Generator
) -> tuple[float, float]:
    """E_q[risk], every tie costing one half, from ``count`` independent pairs; and its standard error.

    ``q`` is a Gaussian of the problem's reduced coefficients.
    """
    space = problem.scores.reduced
    mean = space.design @ q.mean + space.offset
    total = square = 0.0
    for start in range(0, count, AT_ONCE):
        i, j = draw_pairs(problem.pairs, min(AT_ONCE, count - start), rng)
        rows = space.design[i] - space.design[j]
        root = linalg.solve_triangular(q.factor, rows.T, lower=True, check_finite=False)
        variance = np.einsum("ij,ij->j", root, root)
        size = np.einsum("ij,ij->i", rows, rows)
        difference = mean[i] - mean[j]
        counted = 0.5 - 0.5 * np.sign(difference)
        equal = size <= TIED * np.einsum("ij,ij->i", space.design[i], space.design[i])
        wrong = ndtr(-difference / np.sqrt(np.where(equal, 1.0, variance)))
        apart = space.offset[i] - space.offset[j]
        terms = np.where(equal, 0.5 - 0.5 * np.sign(apart), wrong) - counted
        total += float(terms.sum())
        square += float(terms @ terms)
    average = total / count
    error = np.sqrt(max(square / count - average**2, 0.0) / (count - 1))
    return float(pair_risk(mean[None], problem.pairs)[0]) + average, float(error)


def draw_pairs(pairs: Pairs, count: int, rng: np.random.Generator) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Independent pairs, each with a probability in proportion to its weight."""
    share = np.array([block.total_weight for block in pairs.blocks])
    in_block = rng.multinomial(count, share / share.sum())
    drawn = [_draw_from(block, size, rng) for block, size in zip(pairs.blocks, in_block, strict=True) if size]
    return np.concatenate([i for i, _ in drawn]), np.concatenate([j for _, j in drawn])


def _draw_from(block: Block, size: int, rng: np.random.Generator) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    return (
        _draw_side(block.positive, block.positive_weights, size, rng),
        _draw_side(block.negative, block.negative_weights, size, rng),
    )


def _draw_side(
    index: NDArray[np.intp], weights: FloatArray | None, size: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    if weights is None:
        return index[rng.integers(index.size, size=size)]
    return rng.choice(index, size=size, p=weights / weights.sum())
