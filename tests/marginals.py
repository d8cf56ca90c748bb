"""Exact marginal distributions of one or two coefficients, for priors and offsets that no symmetry helps with.

Given one coefficient t, the scores are affine in the other, so the risk is constant between the points at which a pair
changes its order and the other coefficient integrates out by its prior's cumulative distribution function: the density
of t is exact, point by point. It is smooth but for a jump at zero (pairs that differ in t's covariate alone), so sums
over a fine grid with an edge there give its moments and quantiles. Sharing no code with the package.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Marginal:
    """A density on the cells of a grid: moments, and the masses beyond given points."""

    points: np.ndarray
    mass: np.ndarray
    log_evidence: float

    @property
    def mean(self):
        return float(self.mass @ self.points)

    @property
    def second_moment(self):
        return float(self.mass @ self.points**2)

    @property
    def sd(self):
        return float(np.sqrt(self.second_moment - self.mean**2))

    def quantile(self, p):
        return float(np.interp(p, np.cumsum(self.mass), self.points + 0.5 * np.gradient(self.points)))


def _grid(low, high, cells):
    """Midpoints and widths of cells, with an edge at zero."""
    edges = np.union1d(np.linspace(low, high, cells + 1), [0.0])
    return (edges[1:] + edges[:-1]) / 2, np.diff(edges)


def _marginal(t, width, density):
    total = float(density @ width)
    return Marginal(t, density * width / total, float(np.log(total)))


def _pair_differences(columns, y):
    positive = np.asarray(y) > 0
    return [(c[positive][:, None] - c[~positive][None]).ravel() for c in columns]


def exact_marginal(X, y, gamma, k, *, prior_pdf, other_cdf, low, high, offset=0.0, cells=4000):
    """The marginal of coefficient k of two; ``other_cdf(s, t)`` is the prior CDF of the other one given theta_k = t."""
    X = np.asarray(X, dtype=float)
    offset = np.broadcast_to(np.asarray(offset, dtype=float), len(X))
    along, other, shift = _pair_differences([X[:, k], X[:, 1 - k], offset], y)
    t, width = _grid(low, high, cells)
    never = other == 0.0  # pairs whose order does not depend on the other coefficient
    here = np.outer(t, along) + shift  # (T, pairs)
    fixed = np.sum(here[:, never] < 0, axis=1) + 0.5 * np.sum(here[:, never] == 0, axis=1)
    crossing = -here[:, ~never] / other[~never]
    order = np.argsort(crossing, axis=1)
    crossing = np.take_along_axis(crossing, order, axis=1)
    change = -np.sign(other[~never])[order]  # a pair with a positive slope is right above its crossing, wrong below
    wrong = fixed[:, None] + np.sum(other[~never] > 0) + np.cumsum(change, axis=1)
    wrong = np.column_stack([fixed + np.sum(other[~never] > 0), wrong])  # (T, cells of the other coefficient)
    cumulated = np.column_stack([np.zeros(len(t)), other_cdf(crossing, t[:, None]), np.ones(len(t))])
    inner = np.sum(np.diff(cumulated, axis=1) * np.exp(-gamma * wrong / len(along)), axis=1)
    return _marginal(t, width, prior_pdf(t) * inner)


def exact_single(x, y, gamma, *, prior_pdf, low, high, offset=0.0, cells=100_000):
    """The posterior of the only coefficient."""
    x = np.asarray(x, dtype=float).reshape(-1)
    along, shift = _pair_differences([x, np.broadcast_to(np.asarray(offset, dtype=float), x.shape)], y)
    t, width = _grid(low, high, cells)
    crossing = np.sort(-shift / along)
    edges = np.concatenate([[crossing[0] - 1.0], (crossing[1:] + crossing[:-1]) / 2, [crossing[-1] + 1.0]])
    wrong = np.sum(np.outer(edges, along) + shift < 0, axis=1)
    density = prior_pdf(t) * np.exp(-gamma * wrong[np.searchsorted(crossing, t)] / along.size)
    return _marginal(t, width, density)
