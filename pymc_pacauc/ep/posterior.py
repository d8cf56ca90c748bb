"""A Gaussian approximation of the posterior, kept in the coordinates it was computed in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from pymc_pacauc.core.scores import LinearScores
from pymc_pacauc.ep.natural import NaturalGaussian, draw_natural

__all__ = ["GaussianPosterior"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class GaussianPosterior:
    """A Gaussian over theta: ``natural`` for the reduced coefficients u, the prior for the directions beyond them."""

    scores: LinearScores
    natural: NaturalGaussian

    @cached_property
    def mean(self) -> FloatArray:
        u, rotation = self.natural.mean, self.scores.reduced.rotation
        return self.scores.prior.color(u if rotation is None else u @ rotation)

    @cached_property
    def covariance(self) -> FloatArray:
        covariance = self.moments_of(np.eye(self.scores.d))[1]
        return 0.5 * (covariance + covariance.T)

    @cached_property
    def variance(self) -> FloatArray:
        """The diagonal of ``covariance``."""
        return self.moments_of(np.eye(self.scores.d), variances=True)[1]

    def moments_of(self, theta_map: FloatArray, *, variances: bool = False) -> tuple[FloatArray, FloatArray]:
        """Mean and covariance of ``theta_map @ theta``; ``variances`` asks for the diagonal of the covariance only."""
        prior, rotation, q = self.scores.prior, self.scores.reduced.rotation, self.natural
        whitened = prior.whiten_rows(theta_map)
        reduced = whitened if rotation is None else whitened @ rotation.T
        mean = theta_map @ prior.mean + reduced @ q.mean
        root = linalg.solve_triangular(q.factor, reduced.T, lower=True, check_finite=False).T
        square = _row_squares if variances else _gram
        spread = square(root)
        return mean, spread if rotation is None else spread + (square(whitened) - square(reduced))

    @property
    def divergence_from_prior(self) -> float:
        """KL(posterior, prior)."""
        return self.natural.divergence

    def draw(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Independent draws of theta, shape (draws, d)."""
        return self.scores.complete(draw_natural(self.natural, draws, rng), rng)

    def __repr__(self) -> str:
        return f"GaussianPosterior(d={self.scores.d})"


def _gram(root: FloatArray) -> FloatArray:
    return root @ root.T


def _row_squares(root: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("ij,ij->i", root, root))
