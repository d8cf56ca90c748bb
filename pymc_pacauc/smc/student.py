"""Gaussian fits with heavy tails: a fit is trusted in its bulk, never in its tails.

A Gaussian fit that is a little too narrow is harmless in the middle and ruinous outside. As a base to weight from, it
gives the few particles beyond its reach unbounded weights, and most runs have none there; as a proposal, it hardly ever
visits the tails and hardly ever leaves them. Either way draws are under-dispersed by an amount that shrinks with the
number of particles only, and no correlation of the bulk shows it. The multivariate t distribution around the same mean
with the same factor,

    z = L^-1 (x - m),   density proportional to (1 + |z|^2 / nu)^(-(nu + d) / 2),

costs little in the bulk and has heavier tails than any Gaussian or exponential target. It is a mixture of Gaussians
N(m, L L' / s) over the precision s ~ Gamma(nu / 2, nu / 2), which is how it is drawn, and how a Crank-Nicolson move is
made reversible with respect to it (:class:`~pymc_pacauc.smc.proposals.StudentCrankNicolson`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pymc_pacauc.smc.gaussian_fit import Fit, squares

__all__ = ["StudentFit"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StudentFit:
    """The t distribution with ``degrees`` of freedom around a Gaussian, the covariance of which is its scale matrix."""

    centre: Fit
    degrees: float

    @property
    def dimension(self) -> int:
        return self.centre.dimension

    def draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Independent draws, shape (size, d)."""
        z = rng.standard_normal((size, self.dimension))
        precision = rng.chisquare(self.degrees, size) / self.degrees
        return self.centre.restore(z / np.sqrt(precision)[:, None])

    def logp(self, x: FloatArray) -> FloatArray:
        """Normalised log-density of ``x[N, d]``, shape (N,)."""
        nu, d = self.degrees, self.dimension
        constant = special.gammaln((nu + d) / 2) - special.gammaln(nu / 2) - d / 2 * np.log(nu * np.pi)
        kernel = self.log_kernel(squares(self.centre.standardise(x)))
        log_density: FloatArray = constant - self.centre.log_scale + kernel
        return log_density

    def log_kernel(self, squared_length: FloatArray) -> FloatArray:
        """Log-density up to a constant, as a function of |z|^2."""
        return -0.5 * (self.degrees + self.dimension) * np.log1p(squared_length / self.degrees)

    def precision_given(self, squared_length: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Draws of the mixing precision s given |z|^2: Gamma((nu + d) / 2) with rate (nu + |z|^2) / 2."""
        shape = 0.5 * (self.degrees + self.dimension)
        return rng.standard_gamma(shape, squared_length.size) / (0.5 * (self.degrees + squared_length))
