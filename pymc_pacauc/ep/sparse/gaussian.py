"""A Gaussian over d coefficients whose precision is a diagonal, of either sign, plus what k directions carry.

    Q = diag(u) + A' P A,     Q m = h + A' r

The diagonal holds the sites of the coefficients' priors, (P, r) the sums of the pair sites in the k <= n combinations
A w that reach the scores (A has orthonormal rows; None stands for the identity, when d <= n). Site precisions u range
from slightly negative to huge (a Dirac spike's grows without bound), so nothing here divides by what may vanish, or
subtracts two huge numbers. Precisions below a floor are split, u = 1 + (u - 1), the second part joining P, its
coefficients joining the rows of A. What is left, S = diag(1 / base), is positive; with S^(1/2) A' = E F' (QR),

    B = I + F' P F = L L',      Q^-1 = S^(1/2) (I + E (B^-1 - I) E') S^(1/2),

in O(k^2 d + k^3). The cavity of a site is q without it: its precision tau follows from H = (P^-1 + A S A')^-1, seen by
one coefficient, as tau = H / (1 - H / base), and its shift from the residual e = A'(r - P A m) as nu = e + tau m. Both
keep their digits when u dwarfs them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

__all__ = ["SparseGaussian", "sparse_gaussian"]

FloatArray = NDArray[np.float64]

FLOOR = 0.1  # site precisions below this join the pair sites; the slab's is 1


@dataclass(frozen=True, eq=False)
class SparseGaussian:
    """The Gaussian, in coefficients whose slab has variance one.

    Attributes
    ----------
    precision, shift
        P and r.
    site_precision, site_shift
        u and h.
    mean
        m, shape (d,).
    reduced_mean, reduced_root
        Mean of A w, and a root of its covariance.
    cavity_precision, cavity_shift
        tau and nu of every coefficient.
    scale, basis, factor
        S^(1/2), E (None for the identity) and L.
    """

    precision: FloatArray
    shift: FloatArray
    site_precision: FloatArray
    site_shift: FloatArray
    mean: FloatArray
    reduced_mean: FloatArray
    reduced_root: FloatArray
    cavity_precision: FloatArray
    cavity_shift: FloatArray
    scale: FloatArray
    basis: FloatArray | None
    factor: FloatArray

    @property
    def variance(self) -> FloatArray:
        """Marginal variances."""
        return 1.0 / (self.cavity_precision + self.site_precision)

    @property
    def proper(self) -> NDArray[np.bool_]:
        """Where cavity times slab, of precision one, can be normalised."""
        return 1.0 + self.cavity_precision > 0.0

    def covariance(self) -> FloatArray:
        inner = linalg.cho_solve((self.factor, True), np.eye(len(self.factor)))
        if self.basis is not None:
            inner = np.eye(self.mean.size) + self.basis @ (inner - np.eye(len(inner))) @ self.basis.T
        return inner * np.outer(self.scale, self.scale)

    def spread_of(self, rows: FloatArray, *, variances: bool = False) -> FloatArray:
        """Covariance (or variances) of ``rows @ w``, rows[m, d], without the covariance of w."""
        scaled = rows * self.scale
        inside = scaled if self.basis is None else scaled @ self.basis
        root = linalg.solve_triangular(self.factor, inside.T, lower=True, check_finite=False).T

        def square(a: FloatArray) -> FloatArray:
            return np.asarray(np.einsum("ij,ij->i", a, a) if variances else a @ a.T)

        return square(root) if self.basis is None else square(root) + (square(scaled) - square(inside))

    def draw(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Independent draws, shape (draws, d)."""
        noise = rng.standard_normal((len(self.factor), draws))
        inside = linalg.solve_triangular(self.factor, noise, lower=True, trans="T").T
        if self.basis is not None:
            free = rng.standard_normal((draws, self.mean.size))
            inside = free + (inside - free @ self.basis) @ self.basis.T
        return self.mean + inside * self.scale

    def log_partition(self) -> float:
        """log of the integral of exp(-w'Qw/2 + (h + A'r)'w), up to (2 pi)^(d/2)."""
        half_log_det = np.log(np.diagonal(self.factor)).sum() - np.log(self.scale).sum()
        return float(0.5 * (self.site_shift @ self.mean + self.shift @ self.reduced_mean) - half_log_det)


def sparse_gaussian(
    precision: FloatArray,
    shift: FloatArray,
    site_precision: FloatArray,
    site_shift: FloatArray,
    rotation: FloatArray | None,
) -> SparseGaussian | None:
    """Factorise; None when the precision is not positive definite, or too nearly so to have marginal variances."""
    u, h = site_precision, site_shift
    low = u < FLOOR
    base = np.where(low, 1.0, u)
    scale = base**-0.5
    deficit = np.where(low, u - 1.0, 0.0)
    if rotation is None:
        rows, basis = None, None
        weights, r = precision + np.diag(deficit), shift
        left = scale[:, None] * weights  # F' P
        inner = np.eye(u.size) + left * scale
        into_factor = scale * (h + r)
    else:
        rows = np.vstack([rotation, np.eye(u.size)[low]])
        weights, r = linalg.block_diag(precision, np.diag(deficit[low])), np.append(shift, np.zeros(low.sum()))
        basis, upper = linalg.qr(scale[:, None] * rows.T, mode="economic", check_finite=False)
        left = upper @ weights
        inner = np.eye(len(upper)) + left @ upper.T
        into_factor = basis.T @ (scale * h) + upper @ r
    try:
        factor = np.linalg.cholesky(0.5 * (inner + inner.T))
    except np.linalg.LinAlgError:
        return None
    whitened = linalg.solve_triangular(factor, left, lower=True, check_finite=False)
    solved = linalg.cho_solve((factor, True), into_factor, check_finite=False)
    root = linalg.solve_triangular(factor, np.eye(len(factor)), lower=True, check_finite=False).T
    if rows is None:
        reduced_mean = scale * solved
        seen = np.diagonal(weights) - np.einsum("ij,ij->j", whitened, whitened)
        residual = r - weights @ reduced_mean
        root = scale[:, None] * root
    else:
        reduced_mean = upper.T @ solved
        seen = np.einsum("ij,ij->j", rows, (weights - whitened.T @ whitened) @ rows)
        residual = rows.T @ (r - weights @ reduced_mean)
        root = upper.T @ root
    mean = (h + residual) / base
    with np.errstate(divide="ignore", invalid="ignore"):
        cavity_precision = seen / (1.0 - seen / base) - deficit
    if not (np.isfinite(mean).all() and np.isfinite(cavity_precision).all() and (cavity_precision + u > 0.0).all()):
        return None
    k = len(shift)
    return SparseGaussian(
        precision=precision,
        shift=shift,
        site_precision=u,
        site_shift=h,
        mean=mean,
        reduced_mean=reduced_mean[:k],
        reduced_root=np.ascontiguousarray(root[:k]),
        cavity_precision=cavity_precision,
        cavity_shift=residual + deficit * mean + cavity_precision * mean,
        scale=scale,
        basis=basis,
        factor=np.asarray(factor, dtype=np.float64),
    )
