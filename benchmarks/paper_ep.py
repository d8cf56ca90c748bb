"""The paper's EP as it is written (appendix, Algorithm 3): every site stored, O(n+ n- d^2) a sweep, damping.

Vectorised over the pairs of a few positive rows at a time, so that only the sites need O(n+ n-) memory.
"""

import numpy as np
from scipy.special import ndtr

ROWS = 4


def fit_paper_ep(X, y, gamma, damping=0.5, tolerance=1e-6, most_sweeps=500):
    """Mean, covariance and number of sweeps until the natural parameters change by less than the tolerance."""
    K = np.zeros((np.sum(y > 0), np.sum(y == 0)))
    h = np.zeros_like(K)
    before = np.full(X.shape[1] * (X.shape[1] + 1), np.inf)
    for sweep in range(most_sweeps):
        Q, r = paper_sweep(X, y, gamma, K, h, damping)
        now = np.append(Q, r)
        if np.linalg.norm(now - before) < damping * tolerance * np.linalg.norm(now):
            return np.linalg.solve(Q, r), np.linalg.inv(Q), sweep + 1
        before = now
    raise RuntimeError(f"No convergence in {most_sweeps} sweeps.")


def paper_sweep(X, y, gamma, K, h, damping=0.5):
    """One sweep over the stored sites K, h, which are changed; returns q's natural parameters before it."""
    Q, r = natural_parameters(X, y, K, h)
    V = np.linalg.inv(Q)
    update_sites(X, y, gamma, V @ r, V, K, h, damping)
    return Q, r


def differences(X, y):
    """Slices of the sites and the covariate differences of their pairs."""
    positive, negative = X[y > 0], X[y == 0]
    for start in range(0, len(positive), ROWS):
        few = slice(start, start + ROWS)
        yield few, (positive[few, None] - negative[None]).reshape(-1, X.shape[1])


def natural_parameters(X, y, K, h):
    """Precision and shift of q: prior N(0, I) times all sites."""
    Q, r = np.eye(X.shape[1]), np.zeros(X.shape[1])
    for few, D in differences(X, y):
        Q += (D.T * K[few].ravel()) @ D
        r += D.T @ h[few].ravel()
    return Q, r


def update_sites(X, y, gamma, m, V, K, h, damping):
    """Cavity, moments of the tilted distribution, new site, for every pair."""
    loss = -np.expm1(-gamma / K.size)
    for few, D in differences(X, y):
        mean, variance = D @ m, np.maximum(np.einsum("ij,ij->i", D @ V, D), 1e-12)  # equal rows
        v = 1 / (1 / variance - K[few].ravel())
        mu = v * (mean / variance - h[few].ravel())
        z = mu / np.sqrt(v)
        Z = 1 - loss * ndtr(-z)
        g = loss * np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi * v) / Z
        beta = g * (mu / v + g)
        for stored, new in ((K, beta / (1 - v * beta)), (h, (g + mu * beta) / (1 - v * beta))):
            stored[few] += damping * (new.reshape(-1, K.shape[1]) - stored[few])
