"""Additive features: the score as a sum of smooth functions, one for each column, as a linear model.

    score(x) = sum_j f_j(x_j),    f_j = line + bend

*Line.* The effect of a column is seldom linear in its unit, so every column is replaced by its *robust score*: half its
normal score z = Phi^-1(share of rows below), which does not change under increasing transformations of the column, and
half its standard score, truncated at 3 standard deviations against outliers. The line is linear in the robust score.

*Bend.* A Gaussian process of z with variance 1 and lengthscale 1, projected orthogonally to the line, by its few
leading eigenfunctions under the distribution of the rows. A column with at most 8 distinct values (codes, counts,
booleans) has a free value at each of them instead of a smooth function.

    features = additive_features(X)
    problem = linear_gaussian_problem(features.transform(X), y, gamma)
    scores = features.transform(X_new) @ fit(problem).posterior.mean

Functions are stored as tables of 64 points and interpolated linearly; beyond the first and the last point they are
constant. O(n log n) per column. With priors N(0, 1) for coefficients of lines and N(0, bend^2) for those of bends, the
score is linear at ``bend = 0``; :func:`pymc_pacauc.tune.evidence.choose_prior` chooses it. Used by estimators with
``prior="additive"``.

Reference: Wood (2017), Generalized Additive Models, doi:10.1201/9781315370279, section 5.8, for smooth terms as
Gaussian random effects.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg
from scipy.special import ndtri

from pymc_pacauc.comparison.kinds import observation_weights
from pymc_pacauc.numerics import FloatArray, checked_rows
from pymc_pacauc.problem.kernel_features import rows_like

POINTS = 64  # of a table, at quantiles; twice as many make it twice as large and follow steeper functions
LEVELS = 8  # distinct values up to which each has a coefficient; doubled, counts up to 15 are not smoothed either
# Eigenfunctions of a bend, at most: they leave out less than 2 % of its variance. Twice as many: a fit takes four times
# as long.
FUNCTIONS = 4


@dataclass(frozen=True, eq=False)
class AdditiveFeatures:
    """Features of rows, a line and a few bends for each column; from :func:`additive_features`.

    Attributes
    ----------
    points : tuple of ndarray, shape (points,)
        Values of each column, increasing, at which its functions are tabulated.
    tables : tuple of ndarray, shape (points, functions)
        Its functions there: the line, then the bends.
    column : ndarray of int, shape (rank,)
        The column that each feature is of: first the line of every column, then all bends.

    See Also
    --------
    additive_features : Make the features.

    Examples
    --------
    >>> X = np.column_stack([np.arange(20.0), np.arange(20) % 2])
    >>> features = additive_features(X)
    >>> features.rank, features.column
    (6, array([0, 1, 0, 0, 0, 0]))
    """

    points: tuple[FloatArray, ...]
    tables: tuple[FloatArray, ...]

    @property
    def column(self) -> NDArray[np.intp]:
        """The column that each feature is of, shape (rank,)."""
        numbers = np.arange(len(self.tables))
        return np.concatenate([numbers, np.repeat(numbers, [table.shape[1] - 1 for table in self.tables])])

    @property
    def lines(self) -> AdditiveFeatures:
        """The lines alone."""
        return AdditiveFeatures(self.points, tuple(table[:, :1] for table in self.tables))

    @property
    def rank(self) -> int:
        """Number of features."""
        return sum(table.shape[1] for table in self.tables)

    def transform(self, X: ArrayLike) -> FloatArray:
        """Compute the features of the rows of X.

        Parameters
        ----------
        X : array_like, shape (rows, d)
            Covariates in the units of the training rows.

        Returns
        -------
        ndarray, shape (rows, rank)
            The line of every column, then the bends of all.

        Raises
        ------
        ValueError
            If X has another number of columns, or values that are not finite.

        See Also
        --------
        additive_features : Make the features.

        Examples
        --------
        >>> X = np.random.default_rng(1).normal(size=(50, 2))
        >>> additive_features(X).transform([[0.0, 0.0]]).shape
        (1, 10)
        """
        rows = rows_like(X, len(self.points))
        parts = [_between(*each) for each in zip(rows.T, self.points, self.tables, strict=True)]
        return np.hstack([part[:, :1] for part in parts] + [part[:, 1:] for part in parts])

    def made_from(self, X: FloatArray) -> bool:
        """Check whether the tables are of values of this X.

        Parameters
        ----------
        X : ndarray, shape (n, d)
            Covariates.

        Returns
        -------
        bool
            True where each column's points are values of that column of X.

        See Also
        --------
        AdditiveFeatures.transform : Compute the features of any rows.

        Examples
        --------
        >>> X = np.random.default_rng(1).normal(size=(50, 2))
        >>> additive_features(X).made_from(X), additive_features(X).made_from(X + 1.0)
        (True, False)
        """
        same = X.shape[1] == len(self.points)
        return same and all(np.isin(points, x).all() for x, points in zip(X.T, self.points, strict=True))

    def prior_scale(self, bend: float) -> FloatArray:
        """Compute the prior standard deviation of each coefficient.

        Parameters
        ----------
        bend : float
            Prior standard deviation of bends; lines have 1.

        Returns
        -------
        ndarray, shape (rank,)
            Standard deviations.

        See Also
        --------
        additive_features : Make the features.

        Examples
        --------
        >>> additive_features(np.arange(3.0)[:, None]).prior_scale(0.5)
        array([1. , 0.5])
        """
        return np.where(np.arange(self.rank) < len(self.points), 1.0, bend)

    def __repr__(self) -> str:
        return f"AdditiveFeatures(rank={self.rank}, covariates={len(self.points)})"


def additive_features(X: ArrayLike, weights: ArrayLike | None = None) -> AdditiveFeatures:
    """Make features whose linear scores are sums of smooth functions, one for each column.

    Parameters
    ----------
    X : array_like, shape (n, d)
        Covariates in any units.
    weights : array_like, shape (n,), optional
        A weight > 0 per row: a row of weight 2 counts as two.

    Returns
    -------
    AdditiveFeatures
        With ``transform``, for these and for other rows, and ``column``, which each feature is of.

    Raises
    ------
    ValueError
        If X is no matrix of finite numbers, or ``weights`` are not one positive number per row.

    See Also
    --------
    kernel_features : Features of a Gaussian process of all columns together.

    Examples
    --------
    The most an outlier can do is to be the largest value:

    >>> x = np.append(np.arange(30.0), 1e9)
    >>> bool(np.abs(additive_features(x[:, None]).transform(x[:, None])).max() < 6)
    True
    """
    rows = checked_rows(X)
    each = np.ones(len(rows)) if weights is None else observation_weights(weights, len(rows))
    found = [_functions(column, each) for column in rows.T]
    return AdditiveFeatures(tuple(points for points, _ in found), tuple(table for _, table in found))


def _functions(x: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Compute the points of a column, (points,), and the table of its functions there, (points, functions).

    Functions have mean 0 over these rows, and the line has standard deviation 1.
    """
    values, place = np.unique(x, return_inverse=True)
    if values.size == 1:
        return values, np.zeros((1, 1))
    mass = np.bincount(place, weights) / weights.sum()
    below = np.cumsum(mass) - 0.5 * mass
    kept = np.unique(np.searchsorted(below, np.linspace(below[0], below[-1], POINTS)))  # including first and last
    points, z = values[kept], ndtri(below[kept])
    share = np.bincount(np.searchsorted(0.5 * (points[1:] + points[:-1]), values), mass)  # of rows nearest each point
    sd = np.sqrt(mass @ (values - mass @ values) ** 2)
    line = _centred(z + np.clip((points - mass @ values) / sd, -3.0, 3.0), x, points, weights)
    line /= np.sqrt(np.average(_between(x, points, line)[:, 0] ** 2, weights=weights))
    kernel = np.eye(z.size) if values.size <= LEVELS else np.exp(-0.5 * (z[:, None] - z) ** 2)
    root = np.sqrt(share)[:, None]
    straight = linalg.orth(root * np.column_stack([np.ones(z.size), line]))
    bent = np.eye(z.size) - straight @ straight.T
    variance, functions = linalg.eigh(bent @ (root * kernel * root.T) @ bent)
    leading = [k for k in range(z.size - 1, -1, -1) if variance[k] > 1e-6 * share.sum()][
        : LEVELS if values.size <= LEVELS else FUNCTIONS
    ]
    upwards = np.where(functions[-1, leading] < 0.0, -1.0, 1.0)  # at the largest value: rounding would choose a sign
    bends = functions[:, leading] * upwards * np.sqrt(variance[leading]) / root
    return points, np.hstack([line, _centred(bends, x, points, weights)])


def _centred(table: FloatArray, x: FloatArray, points: FloatArray, weights: FloatArray) -> FloatArray:
    table = table.reshape(points.size, -1)
    return table - np.average(_between(x, points, table), axis=0, weights=weights)


def _between(x: FloatArray, points: FloatArray, table: FloatArray) -> FloatArray:
    """Interpolate a table of functions linearly at x, constant beyond its ends; shape (rows, functions)."""
    if points.size == 1:
        return np.repeat(table, x.size, axis=0)
    left = np.clip(np.searchsorted(points, x, side="right") - 1, 0, points.size - 2)
    share = np.clip((x - points[left]) / (points[left + 1] - points[left]), 0.0, 1.0)[:, None]
    return (1.0 - share) * table[left] + share * table[left + 1]
