"""Points scorecard: the mean score rounded to integer points that can be added by hand, and the loss of AUC.

1. The mean score is approximated by at most ``max_terms`` columns, by least squares with backward elimination: each
   time the column is removed that changes the score least.
2. The coefficients are multiplied by a grid of factors and rounded; from the best of these, single points are added and
   removed while the AUC on the given rows increases.

Continuous columns count in steps of a round number close to their standard deviation ("1 point per 10 years"). A trial
of points costs one AUC, O(n log n).

Reference: Liu, Zhong, Li, Seltzer & Rudin (2022), FasterRisk, arXiv:2210.05846, which searches points by likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pymc_pacauc.analysis.evaluate import Labelled, central_interval, reweighted_aucs
from pymc_pacauc.analysis.predict import export
from pymc_pacauc.comparison.pairs import encode_labels
from pymc_pacauc.comparison.risk import empirical_risk
from pymc_pacauc.numerics import FloatArray, Mask, check_whole, checked_rows, numeric_array

TOLERATED = 0.01  # AUC: the report says how probable a larger loss is; doubled, it says so of 0.02


@dataclass(frozen=True, eq=False)
class Scorecard:
    """Points of each column, and what rounding costs.

    Attributes
    ----------
    columns : list of str
        The terms of the card.
    points : ndarray of int
        Points for each step of a column.
    steps : ndarray
        The size of a step, in the column's own unit; 1 for columns with two values.
    auc, auc_of_score : float
        AUC on the given rows, of the card and of the mean score.
    loss, lower, upper : float
        ``auc_of_score - auc``, with a 90 % interval over rows.
    probability : float
        Probability that the loss exceeds 0.01, over rows.

    See Also
    --------
    scorecard : Make the card.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_pacauc.results import Scorecard
    >>> nan = float("nan")
    >>> card = Scorecard(["age", "smoker"], np.array([1, 3]), np.array([10.0, 1.0]), 0.8, 0.81, 0.01, nan, nan, nan)
    >>> card.score([[50.0, 1.0], [30.0, 0.0]])
    array([8., 3.])
    """

    columns: list[Any]
    points: np.ndarray
    steps: FloatArray
    auc: float
    auc_of_score: float
    loss: float
    lower: float
    upper: float
    probability: float

    def score(self, X: Any) -> FloatArray:
        """Add up the points of rows.

        Parameters
        ----------
        X : DataFrame or array_like, shape (rows, columns)
            A frame with the card's columns, or a matrix of these in order.

        Returns
        -------
        ndarray, shape (rows,)
            Total points of each row.

        Raises
        ------
        ValueError
            If X lacks a column of the card.

        See Also
        --------
        scorecard : Make the card.

        Examples
        --------
        >>> import numpy as np
        >>> from pymc_pacauc.results import Scorecard
        >>> nan = float("nan")
        >>> card = Scorecard(["age"], np.array([2]), np.array([10.0]), 0.8, 0.81, 0.01, nan, nan, nan)
        >>> card.score([[50.0], [30.0]])
        array([10.,  6.])
        """
        rows = X[self.columns] if hasattr(X, "columns") else X
        values = numeric_array("X", rows)
        if values.ndim != 2 or values.shape[1] != len(self.columns):
            raise ValueError(f"X must have the card's {len(self.columns)} columns; got shape {values.shape}.")
        return _total(values / self.steps, self.points)

    def __repr__(self) -> str:
        width = max(6, *(len(str(name)) for name in self.columns))
        lines = [
            f"{name!s:<{width}}  {point:+4d} per {step:g}"
            for name, point, step in zip(self.columns, self.points, self.steps, strict=True)
        ]
        cost = (
            f"AUC {self.auc:.4f}, of the mean score {self.auc_of_score:.4f}: loss {self.loss:+.4f} (90% over rows: "
            f"{self.lower:+.4f} to {self.upper:+.4f}), P(loss > {TOLERATED:g}) = {self.probability:.3f}"
        )
        return "\n".join([*lines, cost])


def scorecard(
    result: Any,
    X: Any,
    y: ArrayLike,
    *,
    points: int = 10,
    max_terms: int | None = None,
    positive: Any = None,
    random_seed: Any = 0,
) -> Scorecard:
    """Round the mean score to whole points with the smallest loss of AUC.

    Parameters
    ----------
    result : EPApproximation, InferenceData, DataTree, GammaSelection or estimator
        A result with scores linear in the columns (as for :func:`~pymc_pacauc.export`).
    X : DataFrame or array_like, shape (rows, columns)
        Rows to compute AUCs on, with the columns of the fit. Points are chosen on them: evaluate a card on other rows.
    y : array_like, shape (rows,)
        Their labels.
    points : int, default 10
        The most points, up or down, that a step may have.
    max_terms : int, default None
        The most columns; by default all.
    positive : object, default None
        Which of the two labels is the positive class.
    random_seed : int or None, default 0
        Seed of the Bayesian bootstrap of the rows.

    Returns
    -------
    Scorecard
        Its columns, points and steps; AUCs, the loss with its interval, and the probability that it exceeds 0.01.

    Raises
    ------
    ValueError
        If scores are not linear in the columns, X lacks some of them, or an option is out of its range.
    TypeError
        If ``result`` has no linear score.

    See Also
    --------
    export : The unrounded score as JSON.
    choose_threshold : A threshold for the points or the score.

    Examples
    --------
    >>> import numpy as np, pymc_pacauc as pac
    >>> X = np.random.default_rng(1).normal(size=(200, 3))
    >>> y = X @ [2.0, 1.0, 0.0] + np.random.default_rng(2).normal(size=200) > 0
    >>> card = pac.scorecard(pac.AUCClassifier(gamma=100).fit(X, y), X, y, points=3, max_terms=2)
    >>> card.columns, card.points.tolist()
    (['x0', 'x1'], [2, 1])
    """
    check_whole("points", points)
    check_whole("max_terms", 1 if max_terms is None else max_terms)
    held = export(result, covariance=False)
    columns = held["columns"]
    if hasattr(X, "columns") and not set(columns) <= set(X.columns):
        absent = ", ".join(str(name) for name in columns if name not in set(X.columns))
        raise ValueError(f"X has no column {absent}: rename its columns to those of the fit, or pass X.to_numpy().")
    rows = checked_rows(X[columns] if hasattr(X, "columns") else X)
    if rows.shape[1] != len(columns):
        raise ValueError(f"X must have the {len(columns)} columns of the fit; got shape {rows.shape}.")
    mask = encode_labels(y, positive)
    if mask.size != len(rows):
        raise ValueError(f"y must have one label per row of X, {len(rows)}; it has {mask.size}.")
    steps = np.array([_step(column) for column in rows.T])
    slopes = np.asarray(held["weights"]) / np.asarray(held["scale"])
    counts = rows / steps
    score = counts @ (slopes * steps)
    centred = counts - counts.mean(axis=0)
    kept = _terms(centred, slopes * steps, len(columns) if max_terms is None else int(max_terms))
    if not kept:
        raise ValueError("X has the same mean score in every row: a card would give no points.")
    coefficients = np.linalg.lstsq(centred[:, kept], score - score.mean(), rcond=None)[0]
    found = _round(counts[:, kept], coefficients, mask, int(points))
    used = found != 0
    card = _total(counts[:, kept], found)
    both = Labelled.of([score, card], mask)
    weights = both.random_weights(np.random.default_rng(random_seed))
    losses = np.subtract(*(reweighted_aucs(each[None], mask, weights) for each in both.draws))
    full, rounded = both.aucs.tolist()
    limits = central_interval(losses, 0.9)
    names = [columns[k] for k, use in zip(kept, used, strict=True) if use]
    over = float(np.mean(losses > TOLERATED))
    return Scorecard(names, found[used], steps[kept][used], rounded, full, full - rounded, *limits, over)


def _total(counts: FloatArray, points: np.ndarray) -> FloatArray:
    """Add up the points of each row, rounded to nine digits so that equal sums tie."""
    return np.asarray(np.round(points @ counts.T, 9))


def _step(column: FloatArray) -> float:
    """Return the step of a column: 1 for two values; else 1, 2 or 5 times a power of ten, nearest to its sd."""
    spread = float(column.std())
    if spread == 0.0 or np.unique(column).size <= 2:
        return 1.0
    power = 10.0 ** np.floor(np.log10(spread))
    return float(min((power, 2 * power, 5 * power, 10 * power), key=lambda step: abs(np.log(step / spread))))


def _terms(counts: FloatArray, coefficients: FloatArray, number: int) -> list[int]:
    """Choose the columns that approximate the score best, by backward elimination."""
    kept = [int(k) for k in np.flatnonzero((coefficients != 0.0) & (counts.std(axis=0) > 0.0))]
    gram = counts.T @ counts
    gram += 1e-9 * np.diag(np.diag(gram))  # so that of columns that say the same one leaves at no cost
    target = gram @ coefficients
    while len(kept) > number:
        inverse = np.linalg.inv(gram[np.ix_(kept, kept)])
        change = (inverse @ target[kept]) ** 2 / np.diag(inverse)  # in the sum of squares, if this column leaves
        del kept[int(np.argmin(change))]
    return kept


def _round(counts: FloatArray, coefficients: FloatArray, mask: Mask, points: int) -> np.ndarray:
    """Round the coefficients to whole numbers of at most ``points`` whose score has a large AUC."""

    def aucs(candidates: np.ndarray) -> FloatArray:
        return 1.0 - np.asarray(empirical_risk(_total(counts, candidates), mask))

    # Twice as many multiples find cards that are better by less than 0.0005 in AUC. The best three are improved.
    factors = np.geomspace(0.5, points, 60) / np.abs(coefficients).max()
    candidates = np.unique(np.rint(factors[:, None] * coefficients).astype(int), axis=0)
    candidates = candidates[candidates.any(axis=1)]
    best, best_auc = candidates[0], -1.0
    for current in candidates[np.argsort(-aucs(candidates))[:3]]:
        auc = aucs(current[None])[0]
        while True:
            moves = np.concatenate([current + step * np.eye(current.size, dtype=int) for step in (-2, -1, 1, 2)])
            moves = moves[(np.abs(moves) <= points).all(axis=1) & moves.any(axis=1)]
            tried = aucs(moves)
            if tried.max() <= auc + 1e-12:
                break
            current, auc = moves[int(np.argmax(tried))], tried.max()
        if auc > best_auc:
            best, best_auc = current, auc
    return best
