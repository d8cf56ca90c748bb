"""Kernel features: a Gaussian process of the scores as a linear model with r coefficients, by pivoted Cholesky.

A kernel matrix K of n rows is nearly F F' with F of few columns. Pivoted Cholesky finds them greedily: the *pivots* are
rows, each the one whose prior variance given those before is largest. With P the pivots and L L' = K_PP, the features
of any row x, (r,), are

    f(x) = L^-1 k(P, x),      f(x) . f(x') = k(x, P) K_PP^-1 k(P, x'),

so ``scores = features @ theta`` with theta ~ N(0, I) is the process projected on its values at the pivots, and new rows
have features by the same pivots. Columns of K are computed as needed: time O(n r^2), memory O(n r).

    features = kernel_features(X, lengthscale=1.0, rank=300)
    problem = linear_gaussian_problem(features.transform(X), y, gamma)
    scores = features.transform(X_new) @ fit(problem).posterior.mean

Stationary kernels (``COVARIANCES``) are functions of the squared scaled distance, with their derivative in it,

    s(x, x') = sum_j ((x_j - x'_j) / lengthscale_j)^2,

and have variance 1 at distance 0, because rescaling scores changes no ranking. To add one, add a :class:`Covariance`.

References: Fine & Scheinberg (2001), JMLR 2:243, for the partial factorisation; Harbrecht, Peters & Schneider (2012),
doi:10.1016/j.apnum.2011.10.001, for its error, the trace that is left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg
from scipy.spatial.distance import cdist, pdist

from pymc_pacauc.comparison.risk import distinct_rows
from pymc_pacauc.numerics import FloatArray, check_whole, checked_rows, finite_array, slices


@dataclass(frozen=True, eq=False)
class Covariance:
    """A stationary kernel: ``of(s)`` returns its value and its derivative in the squared scaled distance s."""

    of: Callable[[FloatArray], tuple[FloatArray, FloatArray]]

    @np.errstate(under="ignore")
    def __call__(self, X: FloatArray, others: FloatArray) -> FloatArray:
        """Compute the kernel between the rows of two matrices, already divided by the lengthscales."""
        return self.of(cdist(X, others, "sqeuclidean"))[0]


def _squared_exponential(s: FloatArray) -> tuple[FloatArray, FloatArray]:
    value = np.exp(-0.5 * s)
    return value, -0.5 * value


def _matern32(s: FloatArray) -> tuple[FloatArray, FloatArray]:
    a = np.sqrt(3.0 * s)
    fall = np.exp(-a)
    return (1.0 + a) * fall, -1.5 * fall


def _matern52(s: FloatArray) -> tuple[FloatArray, FloatArray]:
    a = np.sqrt(5.0 * s)
    fall = np.exp(-a)
    return (1.0 + a + a**2 / 3.0) * fall, -5.0 / 6.0 * (1.0 + a) * fall


COVARIANCES = {
    "squared_exponential": Covariance(_squared_exponential),
    "matern52": Covariance(_matern52),
    "matern32": Covariance(_matern32),
}


def median_distance(X: FloatArray) -> float:
    """Compute the median distance between different rows, of at most 1000 of them, evenly spread.

    >>> median_distance(np.array([[0.0], [1.0], [1.0], [4.0]]))
    3.0
    """
    some = X[np.unique(np.linspace(0, len(X) - 1, 1000).astype(int))]
    distances = pdist(some)
    apart = distances[distances > 0.0]
    if not apart.size:
        raise ValueError("X has equal rows only: there is no distance for a lengthscale. Pass lengthscale=.")
    return float(np.median(apart))


Kernel = Callable[[FloatArray, FloatArray], Any]


@dataclass(frozen=True, eq=False)
class KernelFeatures:
    """Features of rows by the kernel between them and the pivots; from :func:`kernel_features`.

    Attributes
    ----------
    kernel : callable
        Kernel between the rows of two matrices that are divided by ``lengthscale``.
    lengthscale : ndarray, shape (d,)
        Lengthscale of each covariate, in its unit.
    pivots : ndarray of int, shape (rank,)
        Rows of X that the features are made from, in the order they were chosen.
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

        Raises
        ------
        ValueError
            If X has another number of columns, or values that are not finite.

        See Also
        --------
        kernel_features : Make the features.

        Examples
        --------
        >>> X = np.random.default_rng(1).normal(size=(50, 2))
        >>> kernel_features(X, lengthscale=2.0, rank=10).transform([[0.0, 0.0]]).shape
        (1, 10)
        """
        rows = rows_like(X, self.lengthscale.size) / self.lengthscale
        distinct = distinct_rows(rows)
        rows = distinct.of(rows)
        features = np.empty((len(rows), self.rank))
        for part in slices(len(features), self.rank):
            cross = _evaluate(self.kernel, self.points, rows[part])
            features[part] = linalg.solve_triangular(self.factor, cross, lower=True, check_finite=False).T
        return distinct.for_all(features)

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
        Covariates, on comparable scales unless each has a lengthscale.
    kernel : str or callable, default "squared_exponential"
        ``"squared_exponential"``, ``"matern52"``, ``"matern32"``, or a function of two matrices that returns the
        kernel between their rows, such as those of ``sklearn.gaussian_process.kernels``.
    lengthscale : float or array_like, shape (d,), optional
        One, or one for each covariate: the kernel is applied to X divided by it. By default the median distance of
        rows, or 1 for a function. :func:`~pymc_pacauc.tune.evidence.choose_lengthscale` chooses it by the evidence.
    rank : int, default 300
        Largest number of features.
    tolerance : float, default 1e-08
        Stop where no row has more than this share of the largest prior variance left.

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
    scales = finite_array("lengthscale", lengthscale, rows.shape[1:])
    if not (scales > 0.0).all():
        raise ValueError(f"lengthscale must be > 0; got {lengthscale!r}.")
    check_whole("rank", rank)
    if not 0.0 <= tolerance < 1.0:
        raise ValueError(f"tolerance must be in [0, 1): a share of the largest prior variance; got {tolerance!r}.")
    scaled = rows / scales
    variances = _diagonal(function, scaled)
    pivots, factor, left = pivoted_cholesky(
        lambda p: _evaluate(function, scaled[p : p + 1], scaled)[0], variances, min(int(rank), len(rows)), tolerance
    )
    left_out = float(left.sum() / variances.sum())
    return KernelFeatures(function, scales, pivots, scaled[pivots], factor, left_out)


def pivoted_cholesky(
    row: Callable[[int], FloatArray], variances: FloatArray, rank: int, tolerance: float
) -> tuple[NDArray[np.intp], FloatArray, FloatArray]:
    """Factorise a matrix given by its rows and its diagonal ``variances``, (n,).

    Stops at ``rank``, or where at most ``tolerance`` times the largest variance is left. Returns the pivots, (r,), the
    lower Cholesky factor of their matrix, (r, r), and the diagonal of the remainder, (n,).
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
    chosen = np.array(pivots, dtype=np.intp)
    return chosen, np.ascontiguousarray(np.tril(found[: chosen.size, chosen].T)), left


def _kernel(kernel: Any) -> Kernel:
    found = COVARIANCES.get(kernel) if isinstance(kernel, str) else kernel
    if not callable(found):
        names = ", ".join(COVARIANCES)
        raise ValueError(f"kernel must be one of {names}, or a function of two matrices; got {kernel!r}.")
    return found


def _evaluate(kernel: Kernel, X: FloatArray, others: FloatArray) -> FloatArray:
    values = np.asarray(kernel(X, others), dtype=np.float64)
    if values.shape != (len(X), len(others)):
        raise ValueError(f"kernel must return shape {(len(X), len(others))} for these rows; got {values.shape}.")
    if not np.isfinite(values).all():
        raise ValueError(f"kernel returned {int((~np.isfinite(values)).sum())} NaN or infinite value(s).")
    return values


def _diagonal(kernel: Kernel, X: FloatArray) -> FloatArray:
    parts = [X[part] for part in slices(len(X), at_once=64)]
    values = np.concatenate([np.diagonal(_evaluate(kernel, part, part)) for part in parts])
    if values.min() < 0.0 or values.max() <= 0.0:
        raise ValueError(f"kernel(x, x) must be >= 0, and > 0 for some x; got {values.min():g} to {values.max():g}.")
    return values


def rows_like(X: ArrayLike, columns: int) -> FloatArray:
    """Check rows that must have as many columns as the ones that features were made from."""
    rows = checked_rows(X)
    if rows.shape[1] != columns:
        raise ValueError(f"X must have {columns} columns, like the rows of these features; got {rows.shape[1]}.")
    return rows
