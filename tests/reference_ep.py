"""EP as the paper writes it, in plain NumPy and SciPy, sharing no code with the package.

Sites are stored, moments are updated in O(d^2) or O(d^3), nothing is tiled or accelerated. ``sequential`` updates the
sites one after the other, otherwise all of them in parallel with damping (the paper's appendix, Algorithm 3). Scores
are X theta + offset; a power below one gives fractional EP.
"""

import numpy as np
from scipy.special import ndtr


def site_update(mean, variance, precision, shift, gamma, power=1.0):
    """One update of a site from the moments of q on its score difference: new (K, h) and log C."""
    tau = 1 / variance - power * precision
    v = 1 / tau
    m = v * (mean / variance - power * shift)
    loss = -np.expm1(-power * gamma)
    z = m / np.sqrt(v)
    Z = 1 - loss * ndtr(-z)
    g = loss * np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi * v) / Z
    beta = g * (m / v + g)
    K, h = beta / (1 - v * beta), (g + m * beta) / (1 - v * beta)
    log_c = np.log(Z) + 0.5 * np.log((tau + K) / tau) - 0.5 * ((tau * m + h) ** 2 / (tau + K) - tau * m * m)
    return K / power, h / power, log_c / power


def reference_ep(
    X,
    y,
    gamma,
    *,
    prior_mean=0.0,
    prior_covariance=None,
    offset=0.0,
    power=1.0,
    sequential=False,
    damping=0.5,
    iterations=2000,
    weighted_pairs=None,
):
    """Mean and covariance of q, log evidence; ``weighted_pairs`` (i, j, w) take the place of those of ``y``."""
    if weighted_pairs is None:
        i, j = (v.ravel() for v in np.meshgrid(np.flatnonzero(np.asarray(y) > 0), np.flatnonzero(np.asarray(y) <= 0)))
        w = np.ones(i.size)
    else:
        i, j, w = weighted_pairs
    n, d = X.shape
    prior_covariance = np.eye(d) if prior_covariance is None else prior_covariance
    prior_mean = np.broadcast_to(np.asarray(prior_mean, dtype=float), (d,))
    o = np.broadcast_to(np.asarray(offset, dtype=float), (n,)) + X @ prior_mean
    D, delta = X[i] - X[j], o[i] - o[j]
    gamma_pair = gamma * w / w.sum()
    P = np.linalg.inv(prior_covariance)
    K, h, log_c = np.zeros(len(D)), np.zeros(len(D)), np.zeros(len(D))

    def gaussian():
        Q = P + (D.T * K) @ D
        V = np.linalg.inv(Q)
        r = D.T @ (h - K * delta)
        return V, V @ r, r

    for _ in range(iterations):
        before = np.concatenate([K, h])
        if sequential:
            for i in range(len(D)):
                V, m, _r = gaussian()
                mean, variance = D[i] @ m + delta[i], D[i] @ V @ D[i]
                K[i], h[i], log_c[i] = site_update(mean, variance, K[i], h[i], gamma_pair[i], power)
        else:
            V, m, _r = gaussian()
            mean, variance = D @ m + delta, np.einsum("ij,jk,ik->i", D, V, D)
            K_new, h_new, log_c = site_update(mean, variance, K, h, gamma_pair, power)
            K, h = K + damping * (K_new - K), h + damping * (h_new - h)
        if np.abs(np.concatenate([K, h]) - before).max() < 1e-14:
            break
    else:
        raise RuntimeError("the reference did not converge")
    V, m, r = gaussian()
    log_evidence = (
        log_c.sum()
        + np.sum(h * delta - 0.5 * K * delta**2)
        + 0.5 * (np.linalg.slogdet(V)[1] - np.linalg.slogdet(prior_covariance)[1])
        + 0.5 * r @ m
    )
    return prior_mean + m, V, log_evidence
