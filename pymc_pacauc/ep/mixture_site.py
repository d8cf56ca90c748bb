"""The site of a spike-and-slab prior, one per coefficient (the paper's section 3.4 and its appendix).

The prior of a coefficient is t(w) = p N(w; 0, v1) + (1 - p) N(w; 0, v0); the indicator z of the slab appears nowhere
else, so a product of a Bernoulli site for z and a Gaussian site for w is a Gaussian site for w alone, and the
Bernoulli's parameter is read off at the end. The cavity is exp(-tau w^2 / 2 + nu w). With c_j = v_j / (1 + v_j tau)
the component j of cavity times prior has mean nu c_j, variance c_j and mass

    Z_j = (1 + v_j tau)^(-1/2) exp(nu^2 c_j / 2)     times p or 1 - p,

so that r = p Z_1 / (p Z_1 + (1 - p) Z_0) is the probability of the slab, and the moments to match are

    M = nu (r c_1 + (1 - r) c_0),     W = r c_1 + (1 - r) c_0 + r (1 - r) nu^2 (c_1 - c_0)^2.

The site exp(-u w^2 / 2 + h w) has u = 1 / W - tau and h = M / W - nu. Written in tau and nu all this holds for a Dirac
spike, v0 = 0, and for cavities that are not densities, as long as 1 + v1 tau > 0. u is negative where spike and slab
are both likely and far apart (the mixture is wider than the cavity), and stays so, down to -tau / 2: beyond, the sites
of correlated coefficients would chase each other out of the positive definite. Such a site still matches the mean, is
narrower than the mixture, and is marked as ``limited``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit

__all__ = ["MixtureSite", "mixture_site"]

FloatArray = NDArray[np.float64]

WIDENING = 0.5  # a site takes away at most this share of its cavity's precision


@dataclass(frozen=True, eq=False)
class MixtureSite:
    """Sites given their cavities.

    Attributes
    ----------
    precision, shift
        u and h.
    log_constant
        log C, such that C exp(-u w^2 / 2 + h w) has the prior's integral under the cavity, up to (2 pi)^(1/2).
    limited
        Where u was limited.
    inclusion
        r, the probability of the slab.
    slab_mean, slab_variance
        Moments of the slab's component.
    """

    precision: FloatArray
    shift: FloatArray
    log_constant: FloatArray
    limited: NDArray[np.bool_]
    inclusion: FloatArray
    slab_mean: FloatArray
    slab_variance: FloatArray


def mixture_site(tau: FloatArray, nu: FloatArray, log_odds: FloatArray, v0: FloatArray, v1: FloatArray) -> MixtureSite:
    """Match the moments of cavity times prior; ``log_odds`` is log(p / (1 - p)), infinite for a Gaussian N(0, v1)."""
    c0, c1 = v0 / (1.0 + v0 * tau), v1 / (1.0 + v1 * tau)
    log_z0 = 0.5 * (nu**2 * c0 - np.log1p(v0 * tau))
    log_z1 = 0.5 * (nu**2 * c1 - np.log1p(v1 * tau))
    slab = expit(log_odds + log_z1 - log_z0)
    within = slab * c1 + (1.0 - slab) * c0
    mean = nu * within
    variance = within + slab * (1.0 - slab) * (nu * (c1 - c0)) ** 2
    # log(p Z1 + (1 - p) Z0), p = expit(log_odds)
    log_z = np.logaddexp(log_expit(log_odds) + log_z1, log_expit(-log_odds) + log_z0)
    lowest = (1.0 - WIDENING) * tau
    limited = 1.0 / variance < lowest
    marginal = np.where(limited, lowest, 1.0 / variance)  # precision of cavity times site
    return MixtureSite(
        precision=marginal - tau,
        shift=mean * marginal - nu,
        log_constant=log_z + 0.5 * np.log(marginal) - 0.5 * mean**2 * marginal,
        limited=limited,
        inclusion=slab,
        slab_mean=nu * c1,
        slab_variance=c1,
    )
