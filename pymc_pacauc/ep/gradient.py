"""Derivatives of EP's log evidence with respect to the prior.

At a fixed point log Z is stationary in the sites, so they may be held fixed, and for a prior N(mu, Sigma)

    d log Z / d Sigma = (S (V + (m - mu)(m - mu)') S - S) / 2,   S = Sigma^-1,
    d log Z / d mu    = S (m - mu),

with m, V the moments of q. For a parameter xi of Sigma the chain rule gives tr(dlogZ/dSigma dSigma/dxi). Along a common
scale of the prior the derivative vanishes when scores have no offset: the risk ignores the length of theta.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.ep.posterior import GaussianPosterior

__all__ = ["EvidenceGradient", "evidence_gradient"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class EvidenceGradient:
    """Derivatives of log Z with respect to the prior mean (d,) and covariance (d, d).

    ``covariance`` is the symmetric matrix G with d log Z = sum(G * d Sigma); ``variances`` is its diagonal, the
    derivative with respect to independent prior variances.
    """

    mean: FloatArray
    covariance: FloatArray

    @property
    def variances(self) -> FloatArray:
        return np.diagonal(self.covariance).copy()

    def along(self, direction: FloatArray) -> float:
        """Derivative when the prior covariance moves along ``direction`` = dSigma/dxi."""
        return float(np.sum(self.covariance * direction))


def evidence_gradient(posterior: GaussianPosterior) -> EvidenceGradient:
    """Gradient of EP's log evidence at its fixed point, which ``posterior`` is."""
    scores, q = posterior.scores, posterior.natural
    mean, half = q.mean, 0.5 * (q.covariance + np.outer(q.mean, q.mean) - np.eye(q.mean.size))
    rotation, unwhiten = scores.reduced.rotation, scores.prior.unwhiten_rows
    if rotation is not None:
        mean, half = mean @ rotation, rotation.T @ half @ rotation
    return EvidenceGradient(unwhiten(mean[None])[0], unwhiten(unwhiten(half).T))
