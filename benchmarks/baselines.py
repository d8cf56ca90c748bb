"""The two methods the paper compares with: RankBoost and Bayesian logistic regression.

RankBoost (Freund, Iyer, Schapire and Singer 2003) minimises the exponential loss of wrong pairs,

    sum over pairs of exp(H(x_j) - H(x_i)),    i positive, j negative,    H = sum of alpha_t h_t,

one stump h_t(x) = 1{x_f > threshold} at a time. In the bipartite case the weight of a pair factorises into one weight
per observation (their Figure 3), so a round looks at n weights instead of n+ n-: with every column sorted once, one
cumulative sum per column finds the best stump, O(n d) per round.

Bayesian logistic regression with theta ~ N(0, s^2 I) and a flat intercept, by Laplace's approximation; s maximises its
evidence. A logistic likelihood sees the length of theta, so here, unlike for the AUC, evidence does choose s.
"""

from dataclasses import dataclass

import numpy as np
from scipy import linalg, optimize
from scipy.special import expit

# -- RankBoost -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RankBoost:
    """Stumps ``1{x[feature] > threshold}`` and their weights; ``loss[t]`` is the mean loss of pairs after t rounds."""

    feature: np.ndarray
    threshold: np.ndarray
    alpha: np.ndarray
    loss: np.ndarray

    def staged_scores(self, X):
        """Scores after 1, 2, ... rounds, shape (rounds, n)."""
        return np.cumsum((X[:, self.feature] > self.threshold).T * self.alpha[:, None], axis=0)

    def scores(self, X, rounds=None):
        kept = slice(rounds)
        return (X[:, self.feature[kept]] > self.threshold[kept]) @ self.alpha[kept]


def fit_rankboost(X, y, rounds=200):
    """RankBoost.B with decision stumps, stopping early when no stump helps or one ranks every pair correctly."""
    positive = np.asarray(y) > 0
    X = np.asarray(X, dtype=float)
    order = np.argsort(X, axis=0)
    ordered = np.take_along_axis(X, order, axis=0)
    cut = ordered[1:] > ordered[:-1]  # a threshold fits between these neighbours
    weight = np.where(positive, 1 / positive.sum(), 1 / (~positive).sum())  # sums to one in each class
    stumps, loss = [], [1.0]
    for _ in range(rounds):
        signed = np.where(positive, weight, -weight)
        below = np.where(cut, np.cumsum(signed[order], axis=0)[:-1], 0.0)
        best = np.unravel_index(np.argmax(np.abs(below)), below.shape)
        edge = -below[best]  # weight of correct minus weight of wrong pairs: r in the paper
        if abs(edge) < 1e-12:
            break
        row, feature = best
        threshold = 0.5 * (ordered[row, feature] + ordered[row + 1, feature])
        edge = np.clip(edge, -1 + 1e-12, 1 - 1e-12)
        alpha = 0.5 * np.log((1 + edge) / (1 - edge))
        weight = weight * np.exp(np.where(positive, -alpha, alpha) * (X[:, feature] > threshold))
        sums = weight[positive].sum(), weight[~positive].sum()
        loss.append(loss[-1] * sums[0] * sums[1])
        weight /= np.where(positive, *sums)
        stumps.append((feature, threshold, alpha))
        if abs(edge) >= 1 - 1e-12:
            break
    feature, threshold, alpha = (
        (np.array(column) for column in zip(*stumps, strict=True)) if stumps else [np.empty(0)] * 3
    )
    return RankBoost(feature.astype(int), threshold, alpha, np.array(loss))


# -- Bayesian logistic regression ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BayesianLogit:
    """N(mean, covariance) approximates the posterior of the coefficients, the intercept last."""

    mean: np.ndarray
    covariance: np.ndarray
    rotation: np.ndarray | None
    prior_scale: float
    log_evidence: float

    def moments(self, X):
        """Mean and variance of the linear predictor."""
        Z = _with_intercept(X if self.rotation is None else X @ self.rotation)
        variance = np.einsum("ij,jk,ik->i", Z, self.covariance, Z)
        if self.rotation is not None:  # directions the training rows do not reach keep their prior
            variance += self.prior_scale**2 * np.maximum(np.sum(X**2, axis=1) - np.sum(Z[:, :-1] ** 2, axis=1), 0.0)
        return Z @ self.mean, variance

    def scores(self, X):
        """Predictive log-odds, by MacKay's approximation of the integral over the posterior."""
        mean, variance = self.moments(X)
        return mean / np.sqrt(1 + np.pi * variance / 8)


def fit_bayesian_logit(X, y, prior_scale=None):
    """Laplace's approximation at ``prior_scale``, or at the scale in [1e-3, 1e2] of largest evidence."""
    X, y = np.asarray(X, dtype=float), (np.asarray(y) > 0).astype(float)
    rotation = None
    if X.shape[1] > len(X):  # an isotropic prior is the same in any orthogonal basis: keep the n that the rows span
        rotation = linalg.qr(X.T, mode="economic")[0]
        X = X @ rotation
    Z = _with_intercept(X)
    if prior_scale is None:
        found = optimize.minimize_scalar(
            lambda log_scale: -_laplace(Z, y, np.exp(log_scale))[2],
            bounds=np.log([1e-3, 1e2]),
            method="bounded",
            options={"xatol": 1e-2},
        )
        prior_scale = float(np.exp(found.x))
    mean, covariance, log_evidence = _laplace(Z, y, prior_scale)
    return BayesianLogit(mean, covariance, rotation, prior_scale, log_evidence)


def _laplace(Z, y, prior_scale):
    """Newton's method to the mode; the evidence leaves out the constant of the flat intercept."""
    d = Z.shape[1] - 1
    precision = np.append(np.full(d, prior_scale**-2.0), 0.0)
    theta, value = np.zeros(d + 1), np.inf
    for _ in range(100):
        probability = expit(Z @ theta)
        gradient = Z.T @ (probability - y) + precision * theta
        hessian = (Z.T * (probability * (1 - probability))) @ Z + np.diag(precision)
        step = linalg.solve(hessian, gradient, assume_a="pos")
        length = 1.0
        while (new := _negative_log_posterior(Z, y, precision, theta - length * step)) > value and length > 1e-6:
            length /= 2
        theta, decrease, value = theta - length * step, value - new, new
        if decrease < 1e-10 * (1 + abs(value)):
            break
    probability = expit(Z @ theta)
    hessian = (Z.T * (probability * (1 - probability))) @ Z + np.diag(precision)
    log_evidence = -value - d * np.log(prior_scale) - 0.5 * np.linalg.slogdet(hessian)[1]
    return theta, linalg.inv(hessian), log_evidence


def _negative_log_posterior(Z, y, precision, theta):
    score = Z @ theta
    return np.sum(np.logaddexp(0.0, score) - y * score) + 0.5 * theta @ (precision * theta)


def _with_intercept(X):
    return np.column_stack([X, np.ones(len(X))])
