"""A Gaussian by its natural parameters, and with it the approximate posterior of theta.

    q(w) = N(m, V),    Q = V^-1  (k, k),    r = Q m  (k,)

A product of Gaussian sites adds up in (Q, r), the :class:`NaturalGaussian` that every plan iterates; whether the sum is
a density at all is what its Cholesky factor says, O(k^3). :class:`GaussianPosterior` keeps it in the coordinates it was
computed in, the k whitened coefficients that reach the scores, and answers in those of theta: moments of ``theta_map @
theta``, (m, d), in O(m d k).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import linalg

from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.scores import LinearScores

SMALLEST_HALF = 64  # rows of a triangle below which a plain product or LAPACK's inverse is as fast; measured


@dataclass(frozen=True, eq=False)
class NaturalGaussian:
    """A Gaussian by its natural parameters ``precision`` and ``shift``, with the Cholesky factor of the precision."""

    precision: FloatArray
    shift: FloatArray
    factor: FloatArray
    mean: FloatArray

    @cached_property
    def root(self) -> FloatArray:
        """A root of the covariance, ``root @ root.T``: the inverse of the transposed factor, upper triangular."""
        return inverse_triangle(self.factor.T)

    def rooted(self, rows: FloatArray) -> FloatArray:
        """``rows @ root``, a root of the covariance of the scores of some rows: a product with a triangle."""
        if self.mean.size < SMALLEST_HALF:
            return rows @ self.root
        return np.asarray(linalg.blas.dtrmm(1.0, self.root, rows.T, trans_a=1)).T

    @cached_property
    def lower_covariance(self) -> FloatArray:
        """The lower triangle of the covariance."""
        return np.asarray(linalg.lapack.dlauum(self.root, lower=0)[0]).T

    @cached_property
    def sd(self) -> FloatArray:
        return np.sqrt(np.diagonal(self.lower_covariance))

    def trace_of(self, matrix: FloatArray) -> float:
        """tr(V M), for a symmetric M."""
        low = self.lower_covariance
        return float(2.0 * np.vdot(low, matrix) - np.diagonal(low) @ np.diagonal(matrix))

    def rescaled(self, c: float) -> NaturalGaussian:
        """The Gaussian of c w, w ~ this one."""
        scaled = NaturalGaussian(self.precision / c**2, self.shift / c, self.factor / c, self.mean * c)
        if "root" in self.__dict__:  # found already
            scaled.__dict__["root"] = self.root * c
        return scaled

    @property
    def covariance(self) -> FloatArray:
        return self.lower_covariance + np.tril(self.lower_covariance, -1).T

    @cached_property
    def second_moment(self) -> float:
        """E |w|^2."""
        return float(np.linalg.norm(self.root) ** 2 + self.mean @ self.mean)

    @property
    def divergence(self) -> float:
        """KL divergence from N(0, I)."""
        return 0.5 * (self.second_moment - self.mean.size) + float(np.log(np.diagonal(self.factor)).sum())

    def log_partition(self) -> float:
        """log of the integral of exp(-w'Qw/2 + r'w), relative to Q = I, r = 0."""
        return float(0.5 * self.shift @ self.mean - np.log(np.diagonal(self.factor)).sum())


def inverse_triangle(upper: FloatArray) -> FloatArray:
    """By halves, where that is faster than LAPACK: most of it is then a product of triangles.

    The triangle below is zero in the result, and not looked at.
    """
    k = len(upper)
    if k < 2 * SMALLEST_HALF:
        return np.asarray(linalg.lapack.dtrtri(upper, lower=0)[0])
    half = k // 2
    inverse = np.zeros((k, k), order="F")
    first = inverse[:half, :half] = inverse_triangle(upper[:half, :half])
    last = inverse[half:, half:] = inverse_triangle(upper[half:, half:])
    corner = linalg.blas.dtrmm(-1.0, first, upper[:half, half:])
    inverse[:half, half:] = linalg.blas.dtrmm(1.0, last, corner, side=1, overwrite_b=1)
    return inverse


def natural_gaussian(precision: FloatArray, shift: FloatArray) -> NaturalGaussian | None:
    """The Gaussian with these natural parameters; None when the precision is not positive definite."""
    factor, failed = linalg.lapack.dpotrf(precision.T, lower=0)
    if failed:
        return None
    mean = linalg.cho_solve((factor, False), shift, check_finite=False)
    return NaturalGaussian(precision, shift, factor.T, mean) if np.isfinite(mean).all() else None


def standard_gaussian(k: int) -> NaturalGaussian:
    """N(0, I)."""
    return NaturalGaussian(np.eye(k), np.zeros(k), np.eye(k), np.zeros(k))


def at_gamma(q: NaturalGaussian, ratio: float) -> NaturalGaussian:
    """About what q would be at so many times its gamma, as sites are about proportional to gamma."""
    if ratio == 1.0:
        return q
    prior = np.eye(q.mean.size)
    return natural_gaussian(prior + ratio * (q.precision - prior), ratio * q.shift) or q


def draw_natural(q: NaturalGaussian, draws: int, rng: np.random.Generator) -> FloatArray:
    """Independent draws from q, shape (draws, k)."""
    noise = rng.standard_normal((q.mean.size, draws))
    return q.mean + linalg.solve_triangular(q.factor, noise, lower=True, trans="T").T


@dataclass(frozen=True, eq=False)
class GaussianPosterior:
    """A Gaussian over theta: ``natural`` for the reduced coefficients u, the prior for the directions beyond them."""

    scores: LinearScores
    natural: NaturalGaussian

    @cached_property
    def score_mean(self) -> FloatArray:
        """Coefficients of the mean score, the one that is deployed and certified: the mean of the Gaussian."""
        u, rotation = self.natural.mean, self.scores.reduced.rotation
        return self.scores.prior.color(u if rotation is None else u @ rotation)

    @property
    def mean(self) -> FloatArray:
        return self.score_mean

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
        return f"{type(self).__name__}(d={self.scores.d})"


def _gram(root: FloatArray) -> FloatArray:
    return root @ root.T


def _row_squares(root: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("ij,ij->i", root, root))
