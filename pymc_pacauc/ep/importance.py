"""Importance sampling from the Gaussian approximation: how good it is, and what the exact answers are.

Draws from q are weighted by target / q; their mean weight estimates the evidence without EP's bias. In the whitened
coefficients of a scale-free problem the posterior's radius is chi-distributed and independent of the direction, which
no Gaussian can represent, so weights of whole vectors degenerate with the dimension. Only the *direction* of a draw
is kept, whose density under q is an integral over the radius,

    p(e) = int_0^inf r^(k-1) N(r e; m, V) dr,

its weight is exp(-gamma risk(e)) / p(e) (up to the area of the sphere), and the radius is drawn from its exact law.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, log_ndtr, logsumexp

from pymc_pacauc.core.problem import Problem
from pymc_pacauc.ep.natural import NaturalGaussian, draw_natural
from pymc_pacauc.ep.posterior import GaussianPosterior

__all__ = ["WeightedDraws", "importance_draws", "log_direction_density", "log_mean"]

FloatArray = NDArray[np.float64]

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
