"""The site of a spike-and-slab prior, one per coefficient (the paper's section 3.4 and its appendix).

In units of the slab the prior of a coefficient is t(w) = p N(w; 0, 1) + (1 - p) N(w; 0, v0); the indicator z of the
slab appears nowhere else, so a product of a Bernoulli site for z and a Gaussian site for w is a Gaussian site for w
alone, and the Bernoulli's parameter is read off at the end. The cavity is exp(-tau w^2 / 2 + nu w). With c_j = v_j /
(1 + v_j tau) the component j of cavity times prior has mean nu c_j, variance c_j and mass

    Z_j = (1 + v_j tau)^(-1/2) exp(nu^2 c_j / 2)     times p or 1 - p,

so that r = p Z_1 / (p Z_1 + (1 - p) Z_0) is the probability of the slab, and the moments to match are

    M = nu (r c_1 + (1 - r) c_0),     W = r c_1 + (1 - r) c_0 + r (1 - r) nu^2 (c_1 - c_0)^2.

The site exp(-u w^2 / 2 + h w) has u = 1 / W - tau and h = M / W - nu. Written in tau and nu all this holds for a Dirac
spike, v0 = 0, and for cavities that are not densities, as long as 1 + tau > 0. u is negative where spike and slab are
both likely and far apart (the mixture is wider than the cavity), and stays so: cutting it at zero would be stabler,
but another fixed point, with an evidence that means nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log1p

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit

from pymc_pacauc.core.kernels import kernel

__all__ = ["MixtureSite", "match_mixture", "mixture_site"]

FloatArray = NDArray[np.float64]

NARROWEST = 1e-10  # variance of a coefficient that is certainly at a Dirac spike


@dataclass(frozen=True, eq=False)
class MixtureSite:
    """Sites given their cavities.

    Attributes
    ----------
    precision, shift
        u and h.
    log_constant
        log C, such that C exp(-u w^2 / 2 + h w) has the prior's integral under the cavity, up to (2 pi)^(1/2).
    narrowest
        Where W is held at ``NARROWEST``: the coefficient is certainly at a Dirac spike.
    inclusion
        r, the probability of the slab.
    slab_mean, slab_variance
        Moments of the slab's component.
    """

    precision: FloatArray
    shift: FloatArray
    log_constant: FloatArray
    narrowest: NDArray[np.bool_]
    inclusion: FloatArray
    slab_mean: FloatArray
    slab_variance: FloatArray


def mixture_site(tau: FloatArray, nu: FloatArray, log_odds: FloatArray, spike: FloatArray) -> MixtureSite:
    """Match the moments of cavity times prior; ``log_odds`` is log(p / (1 - p)), infinite for a Gaussian N(0, 1)."""
    inclusion, mean, precision = _match_all(tau, nu, log_odds, spike)
    slab_variance, spike_variance = 1.0 / (1.0 + tau), spike / (1.0 + spike * tau)
    log_z = np.logaddexp(
        log_expit(log_odds) + 0.5 * (nu**2 * slab_variance - np.log1p(tau)),
        log_expit(-log_odds) + 0.5 * (nu**2 * spike_variance - np.log1p(spike * tau)),
    )
    return MixtureSite(
        precision=precision - tau,
        shift=mean * precision - nu,
        log_constant=log_z + 0.5 * np.log(precision) - 0.5 * mean**2 * precision,
        narrowest=precision >= 1.0 / NARROWEST,
        inclusion=inclusion,
        slab_mean=nu * slab_variance,
        slab_variance=slab_variance,
    )


@kernel
def match_mixture(tau, nu, log_odds, spike):
    """r, M and 1 / W of one coefficient; see the module docstring."""
    slab_variance, spike_variance = 1.0 / (1.0 + tau), spike / (1.0 + spike * tau)
    apart = slab_variance - spike_variance
    log_ratio = log_odds + 0.5 * (nu * nu * apart - log1p(tau) + log1p(spike * tau))
    slab = 1.0 / (1.0 + exp(-log_ratio))
    within = slab * slab_variance + (1.0 - slab) * spike_variance
    variance = within + slab * (1.0 - slab) * (nu * apart) ** 2
    precision = 1.0 / max(variance, NARROWEST)
    return slab, nu * within, precision


@kernel
def _match_all(tau, nu, log_odds, spike):
    inclusion, mean, precision = np.empty_like(tau), np.empty_like(tau), np.empty_like(tau)
    for k in range(tau.size):
        inclusion[k], mean[k], precision[k] = match_mixture(tau[k], nu[k], log_odds[k], spike[k])
    return inclusion, mean, precision
