"""Derivatives of EP's log evidence with respect to a spike-and-slab prior.

At a fixed point log Z is stationary in all sites, so a parameter of the prior of coefficient k acts through log Z_k
alone, the integral of that prior under its cavity. In units of theta the cavity is exp(-T theta^2 / 2 + N theta), and
with r the probability of the slab

    d log Z / d p  = r / p - (1 - r) / (1 - p),
    d log Z / d v1 = r / 2 (N^2 / (1 + v1 T)^2 - T / (1 + v1 T)),

and for v0 the same with 1 - r. All three hold at v0 = 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.core.problem import Problem
from pymc_pacauc.ep.sparse.gaussian import SparseGaussian
from pymc_pacauc.ep.sparse.mixture_site import MixtureSite

__all__ = ["SpikeSlabGradient", "spike_slab_gradient"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SpikeSlabGradient:
    """Derivatives of log Z with respect to p, v0 and v1 of every coefficient, each of shape (d,).

    Those of a coefficient without a spike are zero but for ``v1``, its prior variance.
    """

    inclusion_probability: FloatArray
    v0: FloatArray
    v1: FloatArray


def spike_slab_gradient(problem: Problem, q: SparseGaussian, sites: MixtureSite) -> SpikeSlabGradient:
    """The gradient at a fixed point of EP."""
    assert problem.spikes is not None
    p, sparse, slab_variance = problem.spikes.inclusion_probability, problem.spikes.sparse, problem.prior.factor**2
    r, tau, nu = sites.inclusion, q.cavity_precision, q.cavity_shift

    def in_variance(ratio: FloatArray) -> FloatArray:  # of log Z_k, in units of the slab
        width = 1.0 + ratio * tau
        return 0.5 * ((nu / width) ** 2 - tau / width)

    absent = np.where(sparse, 1.0 - p, 1.0)
    return SpikeSlabGradient(
        inclusion_probability=np.where(sparse, r / p - (1.0 - r) / absent, 0.0),
        v0=np.where(sparse, (1.0 - r) * in_variance(problem.spikes.ratio), 0.0) / slab_variance,
        v1=np.where(sparse, r, 1.0) * in_variance(np.ones_like(p)) / slab_variance,
    )
