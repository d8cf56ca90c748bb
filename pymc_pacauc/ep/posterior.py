"""Gaussians in natural parameters, and the approximate posterior of theta made of one.

    q(w) = N(m, V),    Q = V^-1  (k, k),    r = Q m  (k,)

Gaussian sites are multiplied by adding their (Q, r). :class:`NaturalGaussian` holds the sum with its Cholesky factor,
O(k^3), which exists if the sum is a density. :class:`GaussianPosterior` keeps it in the coordinates it was computed in,
the k whitened coefficients that reach the scores, and returns moments of ``theta_map @ theta`` for a ``theta_map`` of
shape (m, d) in O(m d k). Another posterior, such as one with weights, overrides ``moments_of`` and ``draw``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.scores import LinearScores


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
        return np.asarray(linalg.lapack.dtrtri(self.factor.T, lower=0)[0])

    def rooted(self, rows: FloatArray) -> FloatArray:
        """Compute ``rows @ root``, a root of the covariance of ``rows @ w``, by a triangular product."""
        return np.asarray(linalg.blas.dtrmm(1.0, self.root, rows.T, trans_a=1)).T

    @cached_property
    def lower_covariance(self) -> FloatArray:
        """The lower triangle of the covariance."""
        return np.asarray(linalg.lapack.dlauum(self.root, lower=0)[0]).T

    @cached_property
    def sd(self) -> FloatArray:
        return np.sqrt(np.diagonal(self.lower_covariance))

    def trace_of(self, matrix: FloatArray) -> float:
        """Compute tr(V M) for a symmetric M."""
        low = self.lower_covariance
        return float(2.0 * np.vdot(low, matrix) - np.diagonal(low) @ np.diagonal(matrix))

    def rescaled(self, c: float) -> NaturalGaussian:
        """Return the distribution of c w, where w has this one."""
        scaled = NaturalGaussian(self.precision / c**2, self.shift / c, self.factor / c, self.mean * c)
        if "root" in self.__dict__:  # cached: rescaling is cheaper than inverting again
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
        """Compute the log of the integral of exp(-w'Qw/2 + r'w), minus its value at Q = I, r = 0."""
        return float(0.5 * self.shift @ self.mean - np.log(np.diagonal(self.factor)).sum())


class Moments(NamedTuple):
    """Mean (k,) and a root of the covariance (k, k) of a Gaussian whose precision is of no use."""

    mean: FloatArray
    root: FloatArray

    def rooted(self, rows: FloatArray) -> FloatArray:
        """Compute a root of the covariance of ``rows @ w``."""
        return rows @ self.root

    def trace_of(self, matrix: FloatArray) -> float:
        """Compute tr(V M) for a symmetric M, V the covariance."""
        return float(np.sum(self.root * (matrix @ self.root)))


def natural_gaussian(precision: FloatArray, shift: FloatArray) -> NaturalGaussian | None:
    """Return the Gaussian with these natural parameters; None when the precision is not positive definite."""
    factor, failed = linalg.lapack.dpotrf(precision.T, lower=0)
    if failed:
        return None
    mean = linalg.cho_solve((factor, False), shift, check_finite=False)
    return NaturalGaussian(precision, shift, factor.T, mean) if np.isfinite(mean).all() else None


def standard_gaussian(k: int) -> NaturalGaussian:
    """Return N(0, I) of k coefficients."""
    return NaturalGaussian(np.eye(k), np.zeros(k), np.eye(k), np.zeros(k))


def padded(q: NaturalGaussian, k: int) -> NaturalGaussian:
    """Extend q to k coefficients, the further ones independent and N(0, 1)."""
    precision, shift = np.eye(k), np.zeros(k)
    precision[: q.mean.size, : q.mean.size], shift[: q.mean.size] = q.precision, q.shift
    return natural_gaussian(precision, shift) or standard_gaussian(k)


def at_gamma(q: NaturalGaussian, ratio: float) -> NaturalGaussian:
    """Approximate q at ``ratio`` times its gamma: sites are about proportional to gamma."""
    if ratio == 1.0:
        return q
    prior = np.eye(q.mean.size)
    return natural_gaussian(prior + ratio * (q.precision - prior), ratio * q.shift) or q


def draw_natural(q: NaturalGaussian, draws: int, rng: np.random.Generator) -> FloatArray:
    """Draw independently from q; shape (draws, k)."""
    noise = rng.standard_normal((q.mean.size, draws))
    return q.mean + linalg.solve_triangular(q.factor, noise, lower=True, trans="T").T


@dataclass(frozen=True, eq=False)
class GaussianPosterior:
    """A Gaussian of theta: ``natural`` for the reduced coefficients u, the prior for all other directions."""

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
        """Compute mean and covariance of ``theta_map @ theta``; with ``variances``, the diagonal of the covariance."""
        prior, rotation, q = self.scores.prior, self.scores.reduced.rotation, self.natural
        whitened = prior.whiten_rows(theta_map)
        reduced = whitened if rotation is None else whitened @ rotation.T
        mean = theta_map @ prior.mean + reduced @ q.mean
        root = linalg.solve_triangular(q.factor, reduced.T, lower=True, check_finite=False).T
        squares = partial(np.einsum, "ij,ij->i" if variances else "ik,jk->ij", optimize=True)
        spread = squares(root, root)
        return mean, spread if rotation is None else spread + squares(whitened, whitened) - squares(reduced, reduced)

    @property
    def divergence_from_prior(self) -> float:
        """KL(posterior, prior)."""
        return self.natural.divergence

    def draw(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw theta independently; shape (draws, d)."""
        return self.scores.complete(draw_natural(self.natural, draws, rng), rng)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(d={self.scores.d})"


class ByCovariance:
    """Moments of linear functions of theta, for posteriors that hold ``mean`` (d,) and ``covariance`` (d, d)."""

    mean: Any
    covariance: Any

    @property
    def variance(self) -> FloatArray:
        """The diagonal of ``covariance``."""
        return np.diagonal(self.covariance).copy()

    def moments_of(self, theta_map: FloatArray, *, variances: bool = False) -> tuple[FloatArray, FloatArray]:
        """Compute mean and covariance of ``theta_map @ theta``; with ``variances``, the diagonal of the covariance."""
        spread = theta_map @ self.covariance
        return theta_map @ self.mean, np.einsum("ij,ij->i", spread, theta_map) if variances else spread @ theta_map.T


def marginal(posterior: Any, scores: LinearScores, columns: NDArray[np.intp] | slice) -> NaturalGaussian | None:
    """Return the marginal of the coefficients at ``columns`` in the reduced coordinates of ``scores``, their scores."""
    rotation = scores.reduced.rotation
    to_u = scores.prior.unwhiten_rows(np.eye(scores.d) if rotation is None else rotation)
    of_all = np.zeros((len(to_u), posterior.mean.size))
    of_all[:, columns] = to_u
    mean, covariance = posterior.moments_of(of_all)
    precision = linalg.inv(0.5 * (covariance + covariance.T))
    return natural_gaussian(0.5 * (precision + precision.T), precision @ (mean - to_u @ scores.prior.mean))
