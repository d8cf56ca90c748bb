"""Stationary covariance functions by name, with their slope, as functions of the squared scaled distance

    s(x, x') = sum_j ((x_j - x'_j) / lengthscale_j)^2.

All have variance 1 at distance 0: a ranking does not see the scale of the scores.

Kernel features: a Gaussian process of the scores as a linear model with few coefficients.

A kernel matrix K of n rows is nearly F F' with F of few columns. Pivoted Cholesky finds them greedily: the *pivots* are
rows chosen one after the other, each the one whose prior variance given those before is largest. With P the pivots
and L L' = K_PP, the features of any row x are

    f(x) = L^-1 k(P, x),      f(x) . f(x') = k(x, P) K_PP^-1 k(P, x'),

so ``scores = features @ theta`` with theta ~ N(0, I) is the process projected on its values at the pivots, and new rows
have features by the same pivots. Columns of K are computed as they are needed: time O(n r^2), memory O(n r), and K is
never formed.

    features = kernel_features(X, lengthscale=1.0, rank=300)
    problem = linear_gaussian_problem(features.transform(X), y, gamma)
    scores = features.transform(X_new) @ fit(problem).posterior.mean

Fine & Scheinberg (2001, JMLR 2:243), for the partial factorisation; Harbrecht, Peters & Schneider (2012,
doi:10.1016/j.apnum.2011.10.001), for its error, the trace that is left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg
from scipy.spatial.distance import cdist, pdist

from pymc_pacauc.comparison.risk import distinct_rows
from pymc_pacauc.numerics import FloatArray, numeric_array, slices

MEDIAN_ROWS = 1000


@dataclass(frozen=True, eq=False)
class Covariance:
    """``value(s)`` and its derivative ``slope(s)`` in the squared scaled distance."""

    value: Callable[[FloatArray], FloatArray]
    slope: Callable[[FloatArray], FloatArray]

    @np.errstate(under="ignore")
    def __call__(self, X: FloatArray, others: FloatArray) -> FloatArray:
        """Between the rows of two matrices, already divided by the lengthscales."""
        return self.value(cdist(X, others, "sqeuclidean"))

    def diag(self, X: FloatArray) -> FloatArray:
        return np.ones(len(X))


def _squared_exponential(s: FloatArray) -> FloatArray:
    return np.exp(-0.5 * s)


def _slope_of_squared_exponential(s: FloatArray) -> FloatArray:
    return -0.5 * np.exp(-0.5 * s)


def _matern32(s: FloatArray) -> FloatArray:
    a = np.sqrt(3.0 * s)
    return (1.0 + a) * np.exp(-a)


def _slope_of_matern32(s: FloatArray) -> FloatArray:
    return -1.5 * np.exp(-np.sqrt(3.0 * s))


def _matern52(s: FloatArray) -> FloatArray:
    a = np.sqrt(5.0 * s)
    return (1.0 + a + a**2 / 3.0) * np.exp(-a)


def _slope_of_matern52(s: FloatArray) -> FloatArray:
    a = np.sqrt(5.0 * s)
    return -5.0 / 6.0 * (1.0 + a) * np.exp(-a)


COVARIANCES = {
    "squared_exponential": Covariance(_squared_exponential, _slope_of_squared_exponential),
    "matern52": Covariance(_matern52, _slope_of_matern52),
    "matern32": Covariance(_matern32, _slope_of_matern32),
}


def median_distance(X: FloatArray) -> float:
    """The median distance between different rows, of at most ``MEDIAN_ROWS`` of them, evenly spread.

    >>> median_distance(np.array([[0.0], [1.0], [1.0], [4.0]]))
    3.0
    """
    some = X[np.unique(np.linspace(0, len(X) - 1, MEDIAN_ROWS).astype(int))]
    distances = pdist(some)
    apart = distances[distances > 0.0]
    if not apart.size:
        raise ValueError("All rows of X are equal: there is no distance to take a lengthscale from.")
    return float(np.median(apart))


Kernel = Callable[[FloatArray, FloatArray], Any]

DIAGONAL_ROWS = 64  # of a kernel that gives matrices alone


@dataclass(frozen=True, eq=False)
class KernelFeatures:
    """Features of rows by the kernel between them and the pivots; from :func:`kernel_features`.

    Attributes
    ----------
    kernel : callable
        Between the rows of two matrices that are divided by ``lengthscale``.
    lengthscale : ndarray, shape (d,)
        One for each covariate, in its unit.
    pivots : ndarray of int, shape (rank,)
        Which rows of X the features are made from, in the order they were chosen.
    points : ndarray, shape (rank, d)
        Those rows, divided by ``lengthscale``.
    factor : ndarray, shape (rank, rank)
        L, lower triangular: the Cholesky factor of the kernel matrix of the pivots.
    left_out : float
        Share of the prior variance of the training scores that the features leave out, between 0 and 1.

    See Also
    --------
    kernel_features : Make the features.

    Examples
    --------
    >>> X = np.random.default_rng(1).normal(size=(50, 2))
    >>> features = kernel_features(X, lengthscale=2.0, rank=10)
    >>> features.rank, features.transform(X[:3]).shape
    (10, (3, 10))
    """

    kernel: Kernel
    lengthscale: FloatArray
    pivots: NDArray[np.intp]
    points: FloatArray
    factor: FloatArray
    left_out: float

    @property
    def rank(self) -> int:
        """Number of features."""
        return len(self.pivots)

    def transform(self, X: ArrayLike) -> FloatArray:
        """Compute the features of the rows of X.

        Parameters
        ----------
        X : array_like, shape (rows, d)
            Covariates in the units of the training rows.

        Returns
        -------
        ndarray, shape (rows, rank)
            Features; equal rows have equal features, to the last bit.

        See Also
        --------
        kernel_features : Make the features.

        Examples
        --------
        >>> X = np.random.default_rng(1).normal(size=(50, 2))
        >>> kernel_features(X, lengthscale=2.0, rank=10).transform([[0.0, 0.0]]).shape
        (1, 10)
        """
        rows = checked_rows(X, self.lengthscale.size) / self.lengthscale
        distinct = distinct_rows(rows)
        features = np.empty((distinct.first.size, self.rank))
        for part in slices(len(features), self.rank):
            cross = _evaluate(self.kernel, self.points, rows[distinct.first[part]])
            features[part] = linalg.solve_triangular(self.factor, cross, lower=True, check_finite=False).T
        return features if distinct.none_repeat else features[distinct.place]

    def made_from(self, X: FloatArray) -> bool:
        """Check whether the pivots are rows of this X.

        Parameters
        ----------
        X : ndarray, shape (n, d)
            Covariates.

        Returns
        -------
        bool
            True where each pivot's row of X is the point the features were made from.

        See Also
        --------
        KernelFeatures.transform : Compute the features of any rows.

        Examples
        --------
        >>> X = np.random.default_rng(1).normal(size=(50, 2))
        >>> features = kernel_features(X, lengthscale=2.0, rank=10)
        >>> features.made_from(X), features.made_from(X + 1.0)
        (True, False)
        """
        if X.shape[1:] != self.lengthscale.shape or len(X) <= self.pivots.max():
            return False
        return np.array_equal(X[self.pivots] / self.lengthscale, self.points)

    def __repr__(self) -> str:
        return f"KernelFeatures(rank={self.rank}, covariates={self.lengthscale.size}, left_out={self.left_out:.2g})"


def kernel_features(
    X: ArrayLike,
    kernel: str | Kernel = "squared_exponential",
    *,
    lengthscale: ArrayLike | None = None,
    rank: int = 300,
    tolerance: float = 1e-8,
) -> KernelFeatures:
    """Make features whose linear scores are those of a Gaussian process, as nearly as ``rank`` of them can be.

    Parameters
    ----------
    X : array_like, shape (n, d)
        Covariates, shape (n, d); on comparable scales, unless each has a lengthscale.
    kernel : str or callable, default "squared_exponential"
        ``"squared_exponential"``, ``"matern52"``, ``"matern32"``, or a function of two matrices that returns the
        kernel between their rows, such as those of ``sklearn.gaussian_process.kernels``.
    lengthscale : float or array_like, shape (d,), optional
        One, or one for each covariate: a kernel sees X divided by it. By default the median distance of rows, or 1
        for a function. :func:`~pymc_pacauc.tune.evidence.choose_lengthscale` chooses it by the evidence.
    rank : int, default 300
        At most so many features.
    tolerance : float, default 1e-08
        Fewer are taken where no row has more than this share of the largest prior variance left.

    Returns
    -------
    KernelFeatures
        With ``transform``, for these and for other rows, and ``left_out``.

    Raises
    ------
    ValueError
        If ``kernel`` is unknown, X or ``lengthscale`` has other shapes or values, or ``rank`` is below 1.

    See Also
    --------
    choose_lengthscale : Choose the lengthscale by the evidence.

    Examples
    --------
    >>> X = np.random.default_rng(1).uniform(-1, 1, size=(500, 2))
    >>> features = kernel_features(X, lengthscale=1.0)
    >>> F = features.transform(X)
    >>> K = np.exp(-0.5 * np.sum((X[:, None] - X) ** 2, axis=-1))
    >>> features.rank < 60, bool(np.abs(F @ F.T - K).max() < 1e-7)
    (True, True)
    """
    rows = checked_rows(X)
    function = _kernel(kernel)
    if lengthscale is None:
        lengthscale = median_distance(rows) if isinstance(function, Covariance) else 1.0
    scales = _checked_lengthscale(lengthscale, rows.shape[1])
    if isinstance(rank, bool) or not isinstance(rank, int | np.integer) or rank < 1:
        raise ValueError(f"rank must be a whole number of features, at least 1; got {rank!r}.")
    if not 0.0 <= tolerance < 1.0:
        raise ValueError(f"tolerance must be in [0, 1): a share of the largest prior variance; got {tolerance!r}.")
    scaled = rows / scales
    variances = _diagonal(function, scaled)
    found = pivoted_cholesky(
        lambda p: _evaluate(function, scaled[p : p + 1], scaled)[0], variances, min(int(rank), len(rows)), tolerance
    )
    left_out = float(found.left.sum() / variances.sum())
    return KernelFeatures(function, scales, found.pivots, scaled[found.pivots], found.factor, left_out)


class Pivoted(NamedTuple):
    """A partial Cholesky factorization: ``columns.T @ columns`` is the matrix but for the diagonal ``left``, and more.

    ``columns`` has a row for each of ``pivots``, shape (rank, n).
    """

    pivots: NDArray[np.intp]
    columns: FloatArray
    left: FloatArray

    @property
    def factor(self) -> FloatArray:
        """The Cholesky factor of the matrix of the pivots, lower triangular."""
        return np.ascontiguousarray(np.tril(self.columns[:, self.pivots].T))


def pivoted_cholesky(row: Callable[[int], FloatArray], variances: FloatArray, rank: int, tolerance: float) -> Pivoted:
    """Of a matrix by its rows, with diagonal ``variances``; of at most ``rank``, less where no more than ``tolerance``
    of the largest variance is left.
    """
    n = variances.size
    least = max(tolerance, n * np.finfo(float).eps) * variances.max()
    left = variances.copy()
    pivots: list[int] = []
    found = np.empty((rank, n))  # the features found so far, a row each
    while len(pivots) < rank:
        p = int(np.argmax(left))
        if left[p] <= least:
            break
        k = len(pivots)
        found[k] = (row(p) - found[:k, p] @ found[:k]) / np.sqrt(left[p])
        pivots.append(p)
        left -= found[k] ** 2
        left[pivots] = 0.0
        np.maximum(left, 0.0, out=left)
    return Pivoted(np.array(pivots, dtype=np.intp), found[: len(pivots)], left)


def _kernel(kernel: Any) -> Kernel:
    if isinstance(kernel, str):
        if kernel not in COVARIANCES:
            raise ValueError(f"kernel must be one of {', '.join(COVARIANCES)}, or a function; got {kernel!r}.")
        return COVARIANCES[kernel]
    if not callable(kernel):
        raise ValueError(f"kernel must be a name ({', '.join(COVARIANCES)}) or a function of two matrices.")
    return kernel


def _evaluate(kernel: Kernel, X: FloatArray, others: FloatArray) -> FloatArray:
    values = np.asarray(kernel(X, others), dtype=np.float64)
    if values.shape != (len(X), len(others)):
        raise ValueError(f"kernel gave shape {values.shape} for {len(X)} and {len(others)} rows.")
    if not np.isfinite(values).all():
        raise ValueError("kernel gave NaN or infinite values.")
    return values


def _diagonal(kernel: Kernel, X: FloatArray) -> FloatArray:
    if hasattr(kernel, "diag"):
        values = np.array(kernel.diag(X), dtype=np.float64)
    else:
        parts = np.split(X, range(DIAGONAL_ROWS, len(X), DIAGONAL_ROWS))
        values = np.concatenate([np.diagonal(_evaluate(kernel, part, part)) for part in parts])
    if not np.isfinite(values).all() or values.min() < 0.0 or values.max() <= 0.0:
        raise ValueError("kernel must have finite variances, none negative and some positive.")
    return values


def checked_rows(X: ArrayLike, columns: int | None = None) -> FloatArray:
    rows = numeric_array("X", X)
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"X must be a matrix of shape (n, d) with n, d >= 1; got shape {rows.shape}.")
    if columns is not None and rows.shape[1] != columns:
        raise ValueError(f"X has {rows.shape[1]} columns, the features were made from {columns}.")
    if not np.isfinite(rows).all():
        at = np.flatnonzero(~np.isfinite(rows).all(axis=0))[:5].tolist()
        raise ValueError(f"X has NaN or infinite values, in columns {at}; impute or drop them first.")
    return rows


def _checked_lengthscale(lengthscale: ArrayLike, d: int) -> FloatArray:
    scales = numeric_array("lengthscale", lengthscale)
    if scales.ndim and scales.shape != (d,):
        raise ValueError(f"lengthscale must be one number or one for each of {d} covariates; got shape {scales.shape}.")
    if not (np.isfinite(scales) & (scales > 0.0)).all():
        raise ValueError(f"lengthscale must be finite and > 0; got {lengthscale!r}.")
    return np.broadcast_to(scales, (d,)).copy()
