"""Exact answers for spike-and-slab and Gaussian-process targets that are small enough to integrate.

* Two coefficients, spike and slab (:func:`exact_spike_slab_plane`). Given the indicators z the prior is a centred
  Gaussian with diagonal covariance. The risk depends on the angle of theta alone, is constant between the angles at
  which a pair changes its order, and the angle's prior mass in such a cell is in closed form: z is enumerated and
  everything is a finite sum. With a Dirac spike theta sits on an axis, or at zero, where all pairs tie.
* Latent scores (:func:`exact_orders`). The risk depends on the order of three scores, integrated over by Gauss-Hermite
  sums.

Sharing no code with the package.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from scipy import special

from tests.oracles import exact_plane


@dataclass(frozen=True, eq=False)
class ExactSpikeSlab:
    """Log evidence, inclusion probabilities and posterior mean of theta for d = 2."""

    log_evidence: float
    inclusion: np.ndarray
    mean: np.ndarray
    expected_risk: float


def exact_spike_slab_plane(X, y, gamma, p, v0, v1, *, ties="half"):
    plane = exact_plane(X, y, gamma, ties=ties)
    log_masses, inclusions, means, risks = [], [], [], []
    for z in itertools.product([0, 1], repeat=2):
        variance = np.where(np.array(z) == 1, v1, v0).astype(float)
        log_prior = sum(np.log(p) if k else np.log1p(-p) for k in z)
        mass, mean, risk = _given_z(X, y, plane, variance, ties)
        log_z = special.logsumexp(-gamma * risk, b=mass)
        weights = mass * np.exp(-gamma * risk - log_z)
        log_masses.append(log_prior + log_z)
        inclusions.append(z)
        means.append(weights @ mean)
        risks.append(weights @ risk)
    log_evidence = special.logsumexp(log_masses)
    posterior = np.exp(np.array(log_masses) - log_evidence)
    return ExactSpikeSlab(
        float(log_evidence),
        posterior @ np.array(inclusions, dtype=float),
        posterior @ np.array(means),
        float(posterior @ np.array(risks)),
    )


def _given_z(X, y, plane, variance, ties):
    """Prior mass, mean of theta and risk on each cell, given the indicators."""
    if (variance > 0).all():
        s1, s2 = np.sqrt(variance)
        # theta = (s1 a, s2 b) with (a, b) isotropic: the angle of (a, b) is uniform, its length independent of it.
        turned = _unwrap(np.arctan2(np.sin(plane.edges) / s2, np.cos(plane.edges) / s1))
        low, high = turned[:-1], turned[1:]
        mean = np.sqrt(np.pi / 2) * np.column_stack(
            [s1 * (np.sin(high) - np.sin(low)), s2 * (np.cos(low) - np.cos(high))]
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where((high > low)[:, None], mean / (high - low)[:, None], 0.0)
        return (high - low) / (2 * np.pi), mean, plane.risk
    positive = np.asarray(y) > 0
    cost = 0.5 if ties == "half" else 0.0
    if (variance == 0).all():
        return np.ones(1), np.zeros((1, 2)), np.array([cost])
    axis = int(np.argmax(variance))
    difference = (X[positive, axis][:, None] - X[~positive, axis][None]).ravel()
    below, tied = np.mean(difference < 0), np.mean(difference == 0)
    length = np.sqrt(variance[axis] * 2 / np.pi)
    mean = np.zeros((2, 2))
    mean[:, axis] = [length, -length]
    return np.array([0.5, 0.5]), mean, np.array([below + cost * tied, 1 - below - tied + cost * tied])


def _unwrap(angle):
    """Angles of increasing arguments in [0, 2 pi], as increasing numbers from 0 to 2 pi."""
    turned = np.mod(angle, 2 * np.pi)
    turned[-1] = 2 * np.pi
    return turned


def exact_orders(covariance, y, gamma, nodes=80):
    """Log evidence and posterior mean of three latent scores under N(0, covariance), by Gauss-Hermite sums.

    The risk jumps, so this is accurate to about 1 / nodes only after averaging over rotations of the nodes.
    """
    root = np.linalg.cholesky(covariance)
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    weights = weights / weights.sum()
    grid = np.stack(np.meshgrid(points, points, points, indexing="ij"), axis=-1).reshape(-1, 3)
    mass = (weights[:, None, None] * weights[None, :, None] * weights[None, None, :]).ravel()
    positive = np.asarray(y) > 0
    estimates = []
    rng = np.random.default_rng(0)
    for _ in range(30):
        rotation = np.linalg.qr(rng.standard_normal((3, 3)))[0]
        scores = grid @ rotation.T @ root.T
        difference = scores[:, positive][:, :, None] - scores[:, ~positive][:, None, :]
        risk = ((difference < 0) + 0.5 * (difference == 0)).mean(axis=(1, 2))
        tilt = mass * np.exp(-gamma * risk)
        estimates.append(np.concatenate([[tilt.sum()], tilt @ scores]))
    z, *mean = np.mean(estimates, axis=0)
    return float(np.log(z)), np.array(mean) / z
