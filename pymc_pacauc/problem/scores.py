"""Scores that are affine in Gaussian coefficients, and the coordinates in which engines compute with them.

    scores(theta) = X theta + offset,    theta ~ N(mean, F F')

Linear scores, Gaussian-process scores (X = I, F F' = K), HSGP features and any PyMC model that is affine in Gaussian
variables have this form. Computed on first use, and kept:

* *distinct* rows: observations with the same covariates and offset tie exactly, before and after whitening;
* *whitened* coefficients w ~ N(0, I), (d,): scores = ``whitened_design @ w + whitened_offset``, up to a constant, which
  changes no comparison, so both are centred;
* *reduced* coordinates u, (k,), k <= min(n, d): w rotated and restricted to the directions that reach the scores (the
  dual, when there are more coefficients than observations); the other directions keep their prior.

*Features.* The scores of a smooth Gaussian process depend on far fewer than n directions, to any accuracy that matters.
Pivoted Cholesky of the scores' prior covariance finds the *features*, directions that leave every score at most 1e-4 of
the smallest prior variance of a score, in O(n k^2); at most 1e-2 where these would be more than 500. They are given by
the scores at some of the observations, the *pivots*, in order of the variance they explain. (The jitter of 1e-6 that
PyMC adds to a kernel matrix is smaller, and is left out.) The plan chooses the coordinates
(:mod:`pymc_pacauc.ep.plan`): "coefficients" or "features".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from pymc_pacauc.comparison.risk import DistinctRows, distinct_rows
from pymc_pacauc.numerics import FloatArray

# Coefficients up to which spectra and integrals are worked out that take longer than fits of more of them (0.1 s here,
# 60 s at 5000). Doubled, the first standard deviation of a process takes 0.6 s.
LARGEST_SPECTRUM = 500
# Largest variance of a score that features leave out, as a share of the smallest prior variance of a score. Ten times
# as much moves means of a smooth process at gamma = 5 n by 0.02 posterior sd; a twentieth takes up to twice as long.
FEATURE_TOLERANCE = 1e-4
ROUNDING = 1e-12  # relative, of singular values and offsets that are zero but for rounding; anything up to 1e-9 will do


@dataclass(frozen=True, eq=False)
class GaussianPrior:
    """theta ~ N(mean, F F').

    Attributes
    ----------
    mean : ndarray
        Shape (d,).
    factor : ndarray
        F: shape (d,) for independent coefficients (standard deviations), else lower triangular, shape (d, d).
    """

    mean: FloatArray
    factor: FloatArray

    @property
    def independent(self) -> bool:
        return self.factor.ndim == 1

    @cached_property
    def covariance(self) -> FloatArray:
        return np.diag(self.factor**2) if self.independent else self.factor @ self.factor.T

    @property
    def log_volume(self) -> float:
        """log det F."""
        return float(np.log(self.factor if self.independent else np.diagonal(self.factor)).sum())

    def color(self, w: FloatArray) -> FloatArray:
        """Return theta of whitened coefficients ``w[..., d]``."""
        return self.mean + (w * self.factor if self.independent else w @ self.factor.T)

    def whiten(self, theta: FloatArray) -> FloatArray:
        """Return whitened coefficients of ``theta[N, d]``, the inverse of :meth:`color`."""
        centred = theta - self.mean
        if self.independent:
            return centred / self.factor
        return np.asarray(linalg.solve_triangular(self.factor, centred.T, lower=True)).T

    def whiten_rows(self, rows: FloatArray) -> FloatArray:
        """Compute ``rows @ F``: linear functions of theta - mean as functions of w."""
        return rows * self.factor if self.independent else rows @ self.factor

    def unwhiten_rows(self, rows: FloatArray) -> FloatArray:
        """Compute ``rows @ F^-1``: linear functions of w as functions of theta - mean."""
        if self.independent:
            return rows / self.factor
        return np.asarray(linalg.solve_triangular(self.factor, rows.T, lower=True, trans="T")).T


@dataclass(frozen=True, eq=False)
class ReducedScores:
    """Scores = ``design @ u + offset`` with u ~ N(0, I_k) and u = ``rotation @ w``.

    ``rotation`` has orthonormal rows, shape (k, d); None stands for the identity. In features, ``pivots`` are the k
    observations that define them, ``design[pivots]`` is triangular, and ``of_pivots`` is the whitened design of these
    rows, from which the rotation is computed on first use.
    """

    design: FloatArray
    offset: FloatArray
    given_rotation: FloatArray | None
    pivots: NDArray[np.intp] | None = None
    of_pivots: FloatArray | None = None

    @cached_property
    def rotation(self) -> FloatArray | None:
        if self.pivots is None or self.of_pivots is None:
            return self.given_rotation
        return linalg.solve_triangular(self.design[self.pivots], self.of_pivots, lower=True, check_finite=False)

    @property
    def dimension(self) -> int:
        return self.design.shape[1]


@dataclass(frozen=True, eq=False)
class LinearScores:
    """Scores ``X @ theta + offset`` of n observations under a Gaussian prior of theta.

    Attributes
    ----------
    X : ndarray
        Design, shape (n, d).
    offset : ndarray
        Shape (n,).
    prior : GaussianPrior
        Prior of theta.
    coordinates : str
        Coordinates of :attr:`reduced`: ``"coefficients"``, all directions that reach the scores, or ``"features"``.
        Chosen by :func:`pymc_pacauc.ep.plan.choose_plan`; see :meth:`in_coordinates`.
    """

    X: FloatArray
    offset: FloatArray
    prior: GaussianPrior
    coordinates: str = "coefficients"

    @property
    def n(self) -> int:
        return self.X.shape[0]

    @property
    def d(self) -> int:
        return self.X.shape[1]

    @cached_property
    def distinct(self) -> DistinctRows:
        """Groups of observations that have the same score whatever theta."""
        return distinct_rows(np.column_stack([self.X, self.offset]) if self.offset.any() else self.X)

    @cached_property
    def whitened_design(self) -> FloatArray:
        """Z with scores = Z w + whitened_offset up to a common constant, w ~ N(0, I), shape (n, d); centred."""
        centred = self.X - self.X.mean(axis=0)
        if self.prior.independent:
            centred *= self.prior.factor  # in place: the largest array of a problem
            return centred
        # A matrix product may round equal rows differently: multiply each distinct row once.
        return self.distinct.for_all(self.prior.whiten_rows(self.distinct.of(centred)))

    @cached_property
    def whitened_offset(self) -> FloatArray:
        """Scores at the prior mean, centred, shape (n,); exactly zero where they are rounding errors.

        They count as rounding errors if they are tiny compared with the terms they are sums of, or with the prior
        standard deviations of the scores.
        """
        if not (self.prior.mean.any() or self.offset.any()):
            return np.zeros(self.n)
        X, offset = self.distinct.of(self.X), self.distinct.of(self.offset)
        scores = self.distinct.for_all(X @ self.prior.mean + offset)
        centred = scores - scores.mean()
        terms = float((np.abs(X) @ np.abs(self.prior.mean) + np.abs(offset)).max())
        spread = float(np.sqrt(np.einsum("ij,ij->i", self.whitened_design, self.whitened_design).max()))
        return np.where(np.abs(centred).max() > ROUNDING * max(terms, spread), centred, 0.0)

    @property
    def scale_free(self) -> bool:
        """True when rankings depend on the direction of w alone, so that its length stays chi-distributed."""
        return not self.whitened_offset.any()

    @cached_property
    def origin(self) -> FloatArray | None:
        """Vector c (k,) with scores ``reduced.design @ (u + c)`` up to a constant; None with an offset that varies.

        Rankings do not depend on the length of u + c, whose prior is N(c, I). c is zero where scores are scale-free.
        """
        if self.scale_free:
            return np.zeros(self.reduced.dimension)
        if np.ptp(self.offset) > 0.0:
            return None
        centre, rotation = -self.prior.whiten(np.zeros((1, self.d)))[0], self.reduced.rotation
        return centre if rotation is None else rotation @ centre

    def in_coordinates(self, coordinates: str) -> LinearScores:
        """Return the same scores in other coordinates; cached."""
        if coordinates not in self._known:
            other = replace(self, coordinates=coordinates)
            vars(other).update((k, v) for k, v in vars(self).items() if k not in ("coordinates", "reduced", "origin"))
            self._known[coordinates] = other
        return self._known[coordinates]

    @cached_property
    def _known(self) -> dict[str, LinearScores]:
        return {self.coordinates: self}

    @cached_property
    def reduced(self) -> ReducedScores:
        """The scores in the coordinates u of the engines; see ``coordinates``."""
        return self._features() if self.coordinates == "features" else self._coefficients()

    def _coefficients(self) -> ReducedScores:
        """Restrict whitened coefficients to the directions that reach the scores, where these are fewer.

        This is so with more coefficients than observations, and with intercepts or linearly dependent columns. (With
        more than ``LARGEST_SPECTRUM`` dimensions dependence is not looked for: these directions stay at their prior.)
        """
        design, offset = self.whitened_design, self.whitened_offset
        if self.d > self.n:
            q, r = linalg.qr(design.T, mode="economic", check_finite=False)
            return ReducedScores(np.ascontiguousarray(r.T), offset, q.T)
        if self.d <= LARGEST_SPECTRUM and not _independent_columns(design):
            triangle = linalg.qr(design, mode="r", check_finite=False)[0][: self.d]
            # gesdd, SciPy's default, does not converge on some such designs.
            _, singular, rotation = linalg.svd(triangle, check_finite=False, lapack_driver="gesvd")
            rank = max(1, int(np.sum(singular > ROUNDING * singular[0])))
            if rank < self.d:
                return ReducedScores(design @ rotation[:rank].T, offset, rotation[:rank])
        return ReducedScores(design, offset, None)

    @property
    def all_vary(self) -> bool:
        """Whether every centred score has positive prior variance."""
        return bool(np.einsum("ij,ij->i", self.whitened_design, self.whitened_design).all())

    def _features(self) -> ReducedScores:
        """Compute features by pivoted Cholesky of the covariance of the distinct scores; see the module docstring."""
        distinct = self.distinct
        design = distinct.of(self.whitened_design)
        covariance = design @ design.T
        least = float(np.diagonal(covariance).min())
        if least <= 0.0:
            raise ValueError('coordinates="features" needs scores that all have prior variance; one has none.')
        factor, order, rank, _ = linalg.lapack.dpstrf(covariance.T, tol=FEATURE_TOLERANCE * least, lower=1)
        if rank > LARGEST_SPECTRUM:
            # The square of a diagonal entry is the largest variance left out before it. With 1000 rows of ten columns
            # means move by 0.016 posterior sd, log Z by 1e-4 nats per row, AUC by 2e-4, in a quarter of the time;
            # at 2e-2 they move twice as far.
            rank = int((np.diagonal(factor)[:rank] ** 2 > 1e-2 * least).sum())
        order = order.astype(np.intp) - 1
        features = np.empty((order.size, rank))
        features[order] = np.tril(factor[:, :rank])
        pivots = distinct.first[order[:rank]]
        return ReducedScores(
            distinct.for_all(features), self.whitened_offset, None, pivots, self.whitened_design[pivots]
        )

    def complete(self, u: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return theta (draws, d) of reduced coefficients ``u[draws, k]``; other directions from the prior."""
        rotation = self.reduced.rotation
        if rotation is None:
            return self.prior.color(u)
        w = rng.standard_normal((len(u), self.d))
        return self.prior.color(w + (u - w @ rotation.T) @ rotation)


def _independent_columns(design: FloatArray) -> bool:
    """Return whether columns are clearly independent, by a cheap test on the Gram matrix."""
    with np.errstate(over="ignore", invalid="ignore"):
        gram = design.T @ design
    factor, _, rank, _ = linalg.lapack.dpstrf(gram, tol=0.0)
    diagonal = np.diagonal(factor)
    return bool(rank == design.shape[1] and diagonal.min() > np.sqrt(ROUNDING) * diagonal.max())
