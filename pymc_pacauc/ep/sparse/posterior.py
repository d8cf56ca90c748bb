"""The approximate posterior under a spike-and-slab prior: a Gaussian over theta, and a Bernoulli for each slab."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from pymc_pacauc.core.problem import Problem
from pymc_pacauc.ep.sparse.gaussian import SparseGaussian
from pymc_pacauc.ep.sparse.mixture_site import MixtureSite

__all__ = ["SpikeSlabPosterior"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SpikeSlabPosterior:
    """A Gaussian over theta and, per coefficient, what its prior's site says of spike and slab.

    Draws have EP's marginals and the Gaussian's dependence: where the spike is a point mass, the marginal is a mixture
    of that point and a Gaussian, and a draw of the Gaussian is sent through its distribution function (a Gaussian
    copula), so that draws contain exact zeros.
    """

    problem: Problem
    gaussian: SparseGaussian
    sites: MixtureSite

    @cached_property
    def mean(self) -> FloatArray:
        return self.problem.prior.mean + self.gaussian.mean * self._unit

    @cached_property
    def covariance(self) -> FloatArray:
        return self.gaussian.covariance() * np.outer(self._unit, self._unit)

    @cached_property
    def variance(self) -> FloatArray:
        return self.gaussian.variance * self._unit**2

    def moments_of(self, theta_map: FloatArray, *, variances: bool = False) -> tuple[FloatArray, FloatArray]:
        """Mean and covariance of ``theta_map @ theta``; ``variances`` asks for the diagonal of the covariance only."""
        return theta_map @ self.mean, self.gaussian.spread_of(theta_map * self._unit, variances=variances)

    @property
    def inclusion_probability(self) -> FloatArray:
        """EP's probability that each coefficient comes from the slab."""
        return self.sites.inclusion

    def draw(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Independent draws of theta, shape (draws, d); see the class docstring."""
        w = self.gaussian.draw(draws, rng)  # (draws, d), in units of the slab
        dirac = self._dirac
        if dirac.any():
            w[:, dirac] = self._with_zeros(w[:, dirac], dirac)
        return self.problem.prior.mean + w * self._unit

    def slab_and_latent(self, theta: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Slab coefficients b and standard normal latents l with ``theta = b * 1{l < quantile of p}``, for draws.

        What a draw leaves free comes from the prior: b where theta is zero, and the rest of l.
        """
        assert self.problem.spikes is not None
        p, included = self.problem.spikes.inclusion_probability, theta != 0.0
        slab = np.where(included, theta, self._unit * rng.standard_normal(theta.shape))
        share = rng.uniform(size=theta.shape)
        return slab, ndtri(np.where(included, p * share, p + (1.0 - p) * share))

    def _with_zeros(self, w: FloatArray, among: NDArray[np.bool_]) -> FloatArray:
        """Send draws of the Gaussian's marginals to the mixtures of a point mass and a Gaussian."""
        q, sites = self.gaussian, self.sites
        r, mean, sd = sites.inclusion[among], sites.slab_mean[among], np.sqrt(sites.slab_variance[among])
        uniform = ndtr((w - q.mean[among]) / np.sqrt(q.variance[among]))
        below = r * ndtr(-mean / sd)  # mass of the slab below zero, where the point mass sits
        included = (uniform < below) | (uniform >= below + 1.0 - r)
        level = np.where(uniform < below, uniform, uniform - (1.0 - r)) / np.maximum(r, 1e-300)
        slab = mean + sd * ndtri(np.clip(level, 1e-16, 1.0 - 1e-16))
        return np.where(included, slab, 0.0)

    @property
    def _unit(self) -> FloatArray:
        return self.problem.prior.factor

    @property
    def _dirac(self) -> NDArray[np.bool_]:
        assert self.problem.spikes is not None
        return self.problem.spikes.sparse & (self.problem.spikes.ratio == 0.0)

    def __repr__(self) -> str:
        return f"SpikeSlabPosterior(d={self.problem.d}, expected model size {self.sites.inclusion.sum():.2f})"
