"""Exact answers: AUC Gibbs posteriors whose every integral is a finite sum.

* One coefficient (:func:`exact_line`). A pair changes its order where its score difference crosses zero, at one value
  of theta; between two crossings the risk is constant, so the posterior is a piecewise reweighted Gaussian. With an
  offset this is a genuinely Gaussian-times-steps target (nothing is scale free); without one, two half-lines.
* Two coefficients with a N(0, c I) prior and no offset (:func:`exact_plane`). The risk depends on the angle alone
  and is constant between the angles at which a pair changes its order; the prior angle is uniform.

Both keep pairs that tie everywhere (identical rows) at one half, or zero when ``ties="strict"``. Written by direct
enumeration of pairs and sharing no code with the package.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special, stats


@dataclass(frozen=True, eq=False)
class PiecewiseAnswer:
    """A posterior that reweights a known prior on each of finitely many cells.

    Attributes
    ----------
    edges
        Cell boundaries, increasing; the first and last may be infinite.
    risk
        The risk on each cell.
    prior_mass
        Prior probability of each cell.
    gamma
        Inverse temperature.
    prior_cdf
        CDF of the prior coordinate (theta, or the angle in [0, 2 pi)).
    """

    edges: np.ndarray
    risk: np.ndarray
    prior_mass: np.ndarray
    gamma: float
    prior_cdf: object

    @property
    def log_evidence(self):
        return float(special.logsumexp(-self.gamma * self.risk, b=self.prior_mass))

    @property
    def mass(self):
        """Posterior probability of each cell."""
        return self.prior_mass * np.exp(-self.gamma * self.risk - self.log_evidence)

    @property
    def expected_risk(self):
        return float(self.mass @ self.risk)

    @property
    def risk_variance(self):
        return float(self.mass @ (self.risk - self.expected_risk) ** 2)

    def cdf(self, x):
        """Posterior CDF of the coordinate."""
        x = np.asarray(x, dtype=float)
        cell = np.clip(np.searchsorted(self.edges, x, side="right") - 1, 0, self.risk.size - 1)
        before = np.concatenate([[0.0], np.cumsum(self.mass)])[cell]
        start = self.prior_cdf(self.edges[:-1])[cell]
        tilt = np.exp(-self.gamma * self.risk - self.log_evidence)[cell]
        return np.clip(before + tilt * (self.prior_cdf(x) - start), 0.0, 1.0)

    def at(self, gamma):
        """The same problem at another inverse temperature."""
        return type(self)(self.edges, self.risk, self.prior_mass, float(gamma), self.prior_cdf)


class ExactPlane(PiecewiseAnswer):
    """Adds the moments of the direction u = (cos, sin) of whitened theta."""

    @property
    def mean_direction(self):
        low, high = self.edges[:-1], self.edges[1:]
        width = high - low
        cosine = (np.sin(high) - np.sin(low)) / width
        sine = (np.cos(low) - np.cos(high)) / width
        return np.array([self.mass @ cosine, self.mass @ sine])

    @property
    def mean(self):
        """Posterior mean of whitened theta: E[chi_2] E[u]."""
        return np.sqrt(np.pi / 2) * self.mean_direction


class ExactLine(PiecewiseAnswer):
    """Adds the moments of theta; ``loc`` and ``scale`` are the prior's."""

    @property
    def mean(self):
        loc, scale = self.prior_cdf.__self__.mean(), self.prior_cdf.__self__.std()
        low, high = (self.edges[:-1] - loc) / scale, (self.edges[1:] - loc) / scale
        first = stats.norm.pdf(low) - stats.norm.pdf(high)  # integral of t phi(t) over the cell
        tilt = np.exp(-self.gamma * self.risk - self.log_evidence)
        return float(loc + scale * (tilt @ first))


def _differences(X, y):
    positive = np.asarray(y) > 0
    return (X[positive][:, None] - X[~positive][None]).reshape(-1, X.shape[1])


def exact_plane(X, y, gamma, *, ties="half"):
    """Exact posterior of the angle of theta in [0, 2 pi), for d = 2 and the prior N(0, c I), any c."""
    D = _differences(np.asarray(X, dtype=float), y)
    null = ~D.any(axis=1)
    phi = np.arctan2(D[~null, 1], D[~null, 0])
    right_from, right_to = np.mod(phi - np.pi / 2, 2 * np.pi), np.mod(phi + np.pi / 2, 2 * np.pi)
    edges = np.unique(np.concatenate([[0.0, 2 * np.pi], right_from, right_to]))
    middle = (edges[1:] + edges[:-1]) / 2
    right = (
        np.searchsorted(np.sort(right_from), middle)
        - np.searchsorted(np.sort(right_to), middle)
        + np.sum(right_from > right_to)
    )
    tie_cost = 0.5 if ties == "half" else 0.0
    risk = (np.sum(~null) - right + tie_cost * np.sum(null)) / len(D)
    uniform = stats.uniform(0.0, 2 * np.pi)
    return ExactPlane(edges, risk, np.diff(edges) / (2 * np.pi), float(gamma), uniform.cdf)


def exact_line(x, y, gamma, *, offset=0.0, prior_mean=0.0, prior_sd=1.0, ties="half"):
    """Exact posterior of theta for the scores ``x * theta + offset``, theta ~ N(prior_mean, prior_sd**2)."""
    x = np.asarray(x, dtype=float).reshape(-1)
    offset = np.broadcast_to(np.asarray(offset, dtype=float), x.shape)
    D = _differences(np.column_stack([x, offset]), y)  # score difference = D[:, 0] * theta + D[:, 1]
    slope, intercept = D.T
    crossing = -intercept[slope != 0] / slope[slope != 0]
    edges = np.concatenate([[-np.inf], np.unique(crossing), [np.inf]])
    inner = edges[1:-1]
    if inner.size:
        middle = np.concatenate([[inner[0] - 1.0], (inner[1:] + inner[:-1]) / 2, [inner[-1] + 1.0]])
    else:
        middle = np.zeros(1)
    tie_cost = 0.5 if ties == "half" else 0.0
    risk = np.empty(middle.size)
    for k, theta in enumerate(middle):
        difference = slope * theta + intercept
        risk[k] = np.mean(difference < 0) + tie_cost * np.mean(difference == 0)
    prior = stats.norm(prior_mean, prior_sd)
    return ExactLine(edges, risk, np.diff(prior.cdf(edges)), float(gamma), prior.cdf)


def plane_data(n=60, seed=11, slope=(1.0, -0.6)):
    """A small two-coefficient data set whose classes overlap."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    y = (X @ np.asarray(slope) + rng.logistic(size=n) > 0.4).astype(int)
    return X, y


def line_data(n=40, seed=5):
    """One coefficient plus an offset that ranks by itself: a target with no scale freedom."""
    rng = np.random.default_rng(seed)
    x, offset = rng.standard_normal(n), 0.7 * rng.standard_normal(n)
    y = (1.2 * x + offset + rng.logistic(size=n) > 0.3).astype(int)
    return x, offset, y


def sparse_data(n, d, active=(2.0, -2.0, 1.5, 1.5, -1.0), seed=0):
    """A few active coefficients, labels by their logistic scores: X, y and the coefficients."""
    rng = np.random.default_rng(seed)
    theta = np.zeros(d)
    theta[: len(active)] = active
    X = rng.standard_normal((n, d))
    return X, (X @ theta + rng.logistic(size=n) > 0).astype(int), theta
