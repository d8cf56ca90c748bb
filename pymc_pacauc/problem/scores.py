"""Equal rows of a matrix, found once: observations with equal covariates must tie exactly, whatever is done to them.

Scores that are affine in Gaussian coefficients, and the coordinates in which engines work with them.

    scores(theta) = X theta + offset,    theta ~ N(mean, F F')

Linear scores, Gaussian-process scores (X = I, F F' = K), HSGP features and any PyMC model that is affine in Gaussian
variables have this form. Three things about it are worked out here, once, when they are first asked for:

* equal rows: observations with the same covariates and offset tie exactly, before and after whitening;
* *whitened* coefficients w ~ N(0, I): scores = ``whitened_design @ w + whitened_offset``, up to a common constant,
  which no comparison sees, so both are centred;
* *reduced* coordinates u: w rotated and cut to the at most n directions that reach the scores (the dual, when there are
  more coefficients than observations); the other directions keep their prior.

Smooth Gaussian processes reach the scores in far fewer directions than n, to any accuracy that matters: those that
leave every score but 1e-4 of the smallest prior variance of a score, the *features*, are found by pivoted Cholesky of
the scores' prior covariance. In these the scores are those at some of the observations, the *pivots*; the scores of the
others follow. (The jitter of 1e-6 that PyMC adds to a kernel matrix is below that, and is left out with it.) They come
in the order of what they explain. Which coordinates a problem is fitted in is for the plan to say
(:mod:`pymc_pacauc.ep.plan`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from pymc_pacauc.comparison.risk import DistinctRows, distinct_rows
from pymc_pacauc.numerics import FloatArray

LARGEST_RANKED = 512
RANK_TOLERANCE, INDEPENDENT = 1e-12, 1e-5
# Of the smallest prior variance of a score: what features leave of any. Ten times as much moves means of a smooth
# process at gamma = 5 n by 0.02 posterior standard deviations; a twentieth of it takes up to twice as long.
FEATURE_TOLERANCE = 1e-4
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class GaussianPrior:
    """theta ~ N(mean, F F').

    Attributes
    ----------
    mean
        Shape (d,).
    factor
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
        """theta of whitened coefficients ``w[..., d]``."""
        return self.mean + (w * self.factor if self.independent else w @ self.factor.T)

    def whiten(self, theta: FloatArray) -> FloatArray:
        """Inverse of :meth:`color`, for ``theta[N, d]``."""
        centred = theta - self.mean
        if self.independent:
            return centred / self.factor
        return np.asarray(linalg.solve_triangular(self.factor, centred.T, lower=True)).T

    def whiten_rows(self, rows: FloatArray) -> FloatArray:
        """``rows @ F``: linear functions of theta - mean as functions of w."""
        return rows * self.factor if self.independent else rows @ self.factor

    def unwhiten_rows(self, rows: FloatArray) -> FloatArray:
        """``rows @ F^-1``: linear functions of w as functions of theta - mean."""
        if self.independent:
            return rows / self.factor
        return np.asarray(linalg.solve_triangular(self.factor, rows.T, lower=True, trans="T")).T


@dataclass(frozen=True, eq=False)
class ReducedScores:
    """Scores = ``design @ u + offset`` with u ~ N(0, I_k) and u = ``rotation @ w``.

    ``rotation`` has orthonormal rows, shape (k, d); None stands for the identity. ``pivots`` are k observations whose
    scores are the directions, where only the most important directions are kept: ``design[pivots]`` is triangular, and
    ``of_pivots`` the whitened design of these, from which the rotation follows when it is asked for.
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
    X
        Design, shape (n, d).
    offset
        Shape (n,).
    prior
        Of theta.
    coordinates
        What :attr:`reduced` is: ``"coefficients"``, every direction that reaches the scores; or ``"features"``, those
        that matter. Chosen by :func:`pymc_pacauc.ep.plan.choose_plan`; see :meth:`in_coordinates`.
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
        """Observations that have the same score whatever theta."""
        return distinct_rows(np.column_stack([self.X, self.offset]) if self.offset.any() else self.X)

    @cached_property
    def whitened_design(self) -> FloatArray:
        """Z with scores = Z w + whitened_offset up to a common constant, w ~ N(0, I), shape (n, d); centred."""
        centred = self.X - self.X.mean(axis=0)
        if self.prior.independent:
            centred *= self.prior.factor  # in place: this is the largest array of all
            return centred
        if self.distinct.none_repeat:
            return self.prior.whiten_rows(centred)
        # A matrix product need not give equal rows equal results: multiply each distinct row once.
        return self.prior.whiten_rows(centred[self.distinct.first])[self.distinct.place]

    @cached_property
    def whitened_offset(self) -> FloatArray:
        """Scores at the prior mean, centred, shape (n,); exactly zero where only rounding would be left.

        What is left counts as rounding next to the terms it is the sum of, or next to the scores' own prior standard
        deviations: a ranking cannot see it.
        """
        X, offset = self.X, self.offset
        if not (self.prior.mean.any() or offset.any()):
            return np.zeros(self.n)
        if not self.distinct.none_repeat:
            X, offset = X[self.distinct.first], offset[self.distinct.first]
        scores = X @ self.prior.mean + offset
        if not self.distinct.none_repeat:
            scores = scores[self.distinct.place]
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
        """c (k,): scores are ``reduced.design @ (u + c)`` up to a constant, so that rankings ignore the length of
        u + c, whose prior is N(c, I). Zero where scores are scale-free; None with an offset that is not constant.
        """
        if self.scale_free:
            return np.zeros(self.reduced.dimension)
        if np.ptp(self.offset) > 0.0:
            return None
        centre, rotation = -self.prior.whiten(np.zeros((1, self.d)))[0], self.reduced.rotation
        return centre if rotation is None else rotation @ centre

    def in_coordinates(self, coordinates: str) -> LinearScores:
        """The same scores in other coordinates, made once."""
        known = self._known
        if coordinates == self.coordinates:
            return self
        if coordinates not in known:
            other = replace(self, coordinates=coordinates)
            vars(other).update((k, v) for k, v in vars(self).items() if k not in ("coordinates", "reduced", "origin"))
            known[coordinates] = other
        return known[coordinates]

    @cached_property
    def _known(self) -> dict[str, LinearScores]:
        return {self.coordinates: self}

    @cached_property
    def reduced(self) -> ReducedScores:
        """The coordinates u in which engines work; see ``coordinates``."""
        return self._features() if self.coordinates == "features" else self._coefficients()

    def _coefficients(self) -> ReducedScores:
        """Whitened coefficients, cut to the directions that reach the scores where there are fewer of these.

        That is so with more coefficients than observations, and with intercepts or linearly dependent columns. (In more
        than ``LARGEST_RANKED`` dimensions dependence is not looked for: those directions just stay at their prior.)
        """
        design, offset = self.whitened_design, self.whitened_offset
        if self.d > self.n:
            q, r = linalg.qr(design.T, mode="economic", check_finite=False)
            return ReducedScores(np.ascontiguousarray(r.T), offset, q.T)
        if self.d <= LARGEST_RANKED and not _independent_columns(design):
            factor, order = _pivoted_triangle(design)
            diagonal = np.abs(np.diagonal(factor))
            if diagonal.min() <= RANK_TOLERANCE * diagonal.max():
                # Not by LAPACK's gesdd, SciPy's default, which fails on some designs of this kind.
                _, singular, permuted = linalg.svd(factor[: self.d], check_finite=False, lapack_driver="gesvd")
                rotation = permuted[:, np.argsort(order)]
                rank = max(1, int(np.sum(singular > RANK_TOLERANCE * singular[0])))
                return ReducedScores(design @ rotation[:rank].T, offset, rotation[:rank])
        return ReducedScores(design, offset, None)

    @property
    def all_vary(self) -> bool:
        """Whether every score has some prior variance of its own, beside what all have in common."""
        return bool(np.einsum("ij,ij->i", self.whitened_design, self.whitened_design).all())

    def _features(self) -> ReducedScores:
        """The directions that leave no score more variance than ``FEATURE_TOLERANCE``, by what they explain.

        By pivoted Cholesky of the covariance of the distinct scores.
        """
        design, distinct = self.whitened_design, self.distinct
        if not distinct.none_repeat:
            design = design[distinct.first]
        covariance = design @ design.T
        least = float(np.diagonal(covariance).min())
        if least <= 0.0:
            raise ValueError("A score has no variance: there are no features that explain it.")
        factor, order, rank, _ = linalg.lapack.dpstrf(covariance.T, tol=FEATURE_TOLERANCE * least, lower=1)
        order = order.astype(np.intp) - 1
        features = np.empty((order.size, rank))
        features[order] = np.tril(factor[:, :rank])
        if not distinct.none_repeat:
            features = features[distinct.place]
        pivots = distinct.first[order[:rank]]
        return ReducedScores(features, self.whitened_offset, None, pivots, self.whitened_design[pivots])

    def complete(self, u: FloatArray, rng: np.random.Generator) -> FloatArray:
        """theta for reduced coefficients ``u[draws, k]``; other directions come from the prior."""
        rotation = self.reduced.rotation
        if rotation is None:
            return self.prior.color(u)
        w = rng.standard_normal((len(u), self.d))
        return self.prior.color(w + (u - w @ rotation.T) @ rotation)


def _independent_columns(design: FloatArray) -> bool:
    """Whether columns are independent beyond doubt: squares of singular values are known to rounding only."""
    with np.errstate(over="ignore", invalid="ignore"):
        gram = design.T @ design
    factor, _, rank, _ = linalg.lapack.dpstrf(gram, tol=0.0)
    diagonal = np.diagonal(factor)
    return bool(rank == design.shape[1] and diagonal.min() > INDEPENDENT * diagonal.max())


def _pivoted_triangle(design: FloatArray) -> tuple[FloatArray, NDArray[np.intp]]:
    """R and the order of the columns, of a QR factorization with pivoting; of many rows, of their R."""
    d = design.shape[1]
    if len(design) > 2 * d:
        design = linalg.qr(design, mode="r", check_finite=False)[0][:d]
    factor, order = linalg.qr(design, mode="r", pivoting=True, check_finite=False)
    return factor, order
