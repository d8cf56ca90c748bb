"""Calibrate scores to probabilities and classes, by cross-fitted scores.

Scores of a Gibbs posterior are not probabilities. *Cross-fitting*: every row is scored by a posterior without its fold,
scores of different folds are standardised, and the labels are regressed on them. Folds are assigned several times,
always the same for the same rows, so that probabilities depend neither on a seed nor on the order of the rows.

*Regressions.* For few rows a *sigmoid* with two parameters (Platt scaling, with his targets between 0 and 1); for many
rows *isotonic* regression, which assumes monotonicity only. The latter is a step function, exactly 0 or 1 at the ends;
so one pseudo-row is added at every score, positive with probability Phi(score). Probabilities are then strictly between
0 and 1 and rank rows like the scores.

*Classes.* A row is called positive if its probability exceeds 1/2. Ordered classes have one score, and one regression
for each boundary between classes; class probabilities are differences, at least zero. Unordered classes have a score
each; their probabilities are the softmax of linear maps of all scores (:class:`Softmax`), because the score of class 1
is informative about class 2 against class 3 too.

References: Platt (1999), Probabilistic outputs for support vector machines; Zadrozny & Elkan (2002),
doi:10.1145/775047.775151, for isotonic calibration.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, brentq, minimize
from scipy.special import expit, log_expit, log_softmax, logit, logsumexp, ndtr
from sklearn.isotonic import IsotonicRegression

from pymc_pacauc.estimator.posterior import ScorePosterior, cross_fit
from pymc_pacauc.numerics import FloatArray

# Rows of the smaller class from which on "auto" is isotonic. On logistic data its log-loss is worse than a sigmoid's by
# 0.028, 0.012, 0.010 with 300, 1000, 2500 rows (benchmarks/probabilities.py); doubled, scores that are not logistic in
# log-odds wait longer for it.
ISOTONIC_ROWS = 2500
FAR = 40.0  # standard deviations of the scores at which Phi is 0 or 1 in double precision; doubled, the same
# Least slope of a sigmoid, per standard deviation of the score: where rows left out rank worse than chance, the
# probabilities are the base rate, and rank as scores do. Doubled, they differ from it by 0.0005 more.
LEAST_SLOPE = 1e-3
# Prior sd of how much the (standardised) score of another class enters the log-odds of a class. With 0 M of the
# probabilities is 0.007 smaller on rare classes (benchmarks/multi_class.py); doubled, the same within 0.001.
CROSS_SD = 0.5


@dataclass(frozen=True, eq=False)
class Steps:
    """Probability of a positive given the score: ``rows`` rows by isotonic regression, and one by Phi."""

    steps: IsotonicRegression
    rows: int

    def __call__(self, scores: FloatArray) -> FloatArray:
        return (self.rows * self.steps.predict(scores) + ndtr(scores)) / (self.rows + 1.0)

    def crossing(self, probability: float) -> float:
        """Return the score with this probability; far beyond all scores where none has it."""
        low, high = min(float(self.steps.X_min_), 0.0) - FAR, max(float(self.steps.X_max_), 0.0) + FAR
        there_is = np.clip(probability, *self(np.array([low, high])))
        return brentq(lambda s: self(np.array([s]))[0] - there_is, low, high, maxiter=1000)


@dataclass(frozen=True)
class Sigmoid:
    """Probability of a positive given the score, 1 / (1 + exp(-slope * score - shift))."""

    slope: float
    shift: float

    def __call__(self, scores: FloatArray) -> FloatArray:
        return np.asarray(expit(self.slope * scores + self.shift))

    def crossing(self, probability: float) -> float:
        """Return the score with this probability."""
        return float((logit(probability) - self.shift) / self.slope)


def fit_sigmoid(scores: FloatArray, above: FloatArray, weights: FloatArray) -> Sigmoid:
    """Fit Platt's sigmoid by maximum likelihood; a class of N rows has (N + 1) / (N + 2) as its target.

    The slope is multiplied by 1 - 1 / chi2, chi2 the likelihood ratio's against slope 0, or 0 where that is negative
    (van Houwelingen and le Cessie, 1990): where scores hardly rank, probabilities are the base rate. Without it the
    log-loss of 100 rows was up to 0.015 above that of the base rate, with it up to 0.005.

    Examples
    --------
    >>> scores, above = np.tile([-1.0, 0.0, 1.0, 2.0], 10), np.tile([0.0, 1.0, 0.0, 1.0], 10)
    >>> found = fit_sigmoid(scores, above, np.ones(40))
    >>> bool(0.1 < found.slope < 1.0), bool(found(np.array([0.5]))[0].round(6) == 0.5)
    (True, True)
    """
    n_pos, n_neg = float(weights @ above), float(weights @ (1.0 - above))
    target = np.where(above > 0.0, (n_pos + 1.0) / (n_pos + 2.0), 1.0 / (n_neg + 2.0))
    total = weights.sum()

    def loss(parameters: FloatArray) -> tuple[float, FloatArray]:
        at = parameters[0] * scores + parameters[1]
        value = -weights @ (target * log_expit(at) + (1.0 - target) * log_expit(-at))
        slope = weights * (expit(at) - target)
        return value / total, np.array([slope @ scores, slope.sum()]) / total

    start = np.array([1.0, logit(weights @ target / total)])
    bounds = [(LEAST_SLOPE, None), (None, None)]
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"gtol": 1e-9, "ftol": 1e-14})
    share = float(weights @ target / total)
    gained = 2.0 * total * (loss(np.array([0.0, logit(share)]))[0] - found.fun)  # chi2 with one degree of freedom
    slope = max(LEAST_SLOPE, float(found.x[0]) * (1.0 - 1.0 / gained if gained > 1.0 else 0.0))
    ends = [logit(share) - slope * end for end in (scores.max(), scores.min())]
    shift = brentq(lambda at: weights @ (expit(slope * scores + at) - target), ends[0] - 1e-6, ends[1] + 1e-6)
    return Sigmoid(slope, float(shift))


@dataclass(frozen=True, eq=False)
class Softmax:
    """Probabilities of K classes from a score for each, the softmax of ``scores @ matrix.T + shifts``.

    ``shares`` are those of the classes among the rows that it was fitted to. Hand and Till's M weighs all classes
    alike, so of all functions of a row the one with the largest M is the probability of a class *if all were equally
    frequent* (Neyman and Pearson); :meth:`decision` ranks by that.
    """

    matrix: FloatArray
    shifts: FloatArray
    shares: FloatArray

    def decision(self, scores: FloatArray) -> FloatArray:
        """Compute logarithms of the probabilities plus a constant for each row, shape (rows, K).

        Their softmax are the probabilities, the largest of a row is that of its most probable class, and a column ranks
        rows as the probability of its class does if all classes were equally frequent.
        """
        log_odds = scores @ self.matrix.T + self.shifts
        return log_odds - logsumexp(log_odds - np.log(self.shares), axis=1, keepdims=True)


@np.errstate(under="ignore")
def fit_softmax(scores: FloatArray, place: NDArray[np.intp], weights: FloatArray | None) -> Softmax:
    """Fit probabilities of K classes by multinomial regression on their scores, the matrix shrunk to the identity.

    By penalised maximum likelihood: entries of the matrix are Gaussian a priori about the identity, shifts about the
    logarithms of the classes' shares. A class's own score enters with a slope > 0.

    Examples
    --------
    >>> scores = np.array([[2.0, 0.0, 0.0], [0.0, 2.0, 0.5], [0.0, 0.5, 2.0], [1.0, 1.5, 0.0], [0.5, 1.0, 1.5]])
    >>> found = fit_softmax(scores, np.array([0, 1, 2, 0, 2]), None)
    >>> bool((found.matrix.diagonal() > 0.5).all()), found.decision(scores).argmax(axis=1)
    (True, array([0, 1, 2, 0, 2]))
    """
    rows, number = scores.shape
    each = np.ones(rows) if weights is None else weights / weights.mean()
    shares = np.bincount(place, each) / rows
    centre = np.column_stack([np.eye(number), np.log(shares)])
    precision = np.where(np.eye(number, number + 1) > 0.0, 1.0, CROSS_SD**-2)
    precision[:, -1] = 1.0
    design = np.column_stack([scores, np.ones(rows)])

    def loss(parameters: FloatArray) -> tuple[float, FloatArray]:
        away = parameters.reshape(centre.shape) - centre
        log_probability = log_softmax(design @ (centre + away).T, axis=1)
        value = -each @ log_probability[np.arange(rows), place] + 0.5 * np.sum(precision * away**2)
        excess = np.exp(log_probability)
        excess[np.arange(rows), place] -= 1.0
        return value / rows, ((excess * each[:, None]).T @ design + precision * away).ravel() / rows

    least = np.where(np.eye(number, number + 1) > 0.0, LEAST_SLOPE, -np.inf).ravel()
    options = {"gtol": 1e-9, "ftol": 1e-14}
    found = minimize(loss, centre.ravel(), jac=True, method="L-BFGS-B", bounds=Bounds(least), options=options)
    matrix = found.x.reshape(centre.shape)
    return Softmax(matrix[:, :-1], matrix[:, -1], shares)


@dataclass(frozen=True, eq=False)
class FittedScore:
    """A score, the probabilities that it stands for, and where classes begin.

    A score of censored times has no classes, so no probabilities; its zero is the average training row.

    Attributes
    ----------
    posterior : ScorePosterior
        Posterior of the score.
    outcome : array or None
        The class of each training row; for censored times 1 for an event of the cause of interest, 2 for others, 0
        where it was censored. None where it is not kept, as the next two.
    weights : array or None
        Weight of each training row in the probabilities.
    time : array or None
        Time of each training row, if it is a censored one.
    folds : int
        Number of folds that rows are left out by; 0 where they are not.
    center, spread : float
        Mean and standard deviation of the training rows' scores: calibration uses ``(score - center) / spread``.
    maps : tuple
        For each boundary between classes, the probability of being above it, given the score; empty where scores are
        not calibrated.
    cuts : array
        For each boundary, the score above which a row is called so.
    figures : Figures or None
        Numbers of the report, where the rows that they are computed from are not kept.
    """

    posterior: ScorePosterior
    outcome: NDArray[np.intp] | None
    weights: FloatArray | None = None
    time: FloatArray | None = None
    folds: int = 0
    center: float = 0.0
    spread: float = 1.0
    maps: tuple[Any, ...] = ()
    cuts: FloatArray = field(default_factory=lambda: np.zeros(1))
    figures: Any = None

    @cached_property
    def held_out(self) -> FloatArray | None:
        """The cross-fitted score of each training row, in standard units; None where there is none."""
        return None if self.folds == 0 else cross_fit(self.posterior, self.folds).mean(axis=0)

    def standard(self, X: FloatArray) -> FloatArray:
        """Compute scores in standard units."""
        return (self.posterior.score(X) - self.center) / self.spread

    def probability(self, X: FloatArray) -> FloatArray:
        """Compute the probability of each class, shape (rows, classes)."""
        scores = self.standard(X)
        above = np.array([np.ones(len(X)), *(each(scores) for each in self.maps), np.zeros(len(X))])
        above = np.minimum.accumulate(above)  # boundaries are in order
        return (above[:-1] - above[1:]).T

    def decision(self, X: FloatArray) -> FloatArray:
        """Compute the score, above zero where a row is called positive; of more than two classes, above the lowest."""
        return self.posterior.score(X) - self.origin

    @property
    def origin(self) -> float:
        """The posterior's score at which :meth:`decision` is zero."""
        return float(self.cuts[0])

    @property
    def intercept(self) -> float:
        """Constant that :meth:`decision` adds to ``X @ coef``."""
        return float(-(self.posterior.columns.center @ self.posterior.coef) - self.origin)

    def predict(self, X: FloatArray) -> NDArray[np.intp]:
        """Return the index of each row's class."""
        return (self.posterior.score(X)[:, None] > self.cuts).sum(axis=1)

    def without_data(self) -> FittedScore:
        """Return the same without any array that has an entry for each training row."""
        return replace(self, posterior=self.posterior.without_data(), outcome=None, weights=None, time=None)


def calibrate(
    posterior: ScorePosterior,
    place: NDArray[np.intp],
    *,
    sample_weight: FloatArray | None,
    calibration: str | None,
    folds: int,
) -> FittedScore:
    """Calibrate a posterior on its own rows, of which ``place`` is the class, 0, 1, ..., by leaving out folds.

    Without calibration a row is called positive where its score is above that of the average training row, and of
    ordered classes, where so many training rows are above it as are of higher classes.
    """
    score = posterior.training_scores
    weights = np.ones(place.size) if sample_weight is None else sample_weight / sample_weight.mean()
    each = weights if calibration is None else np.ones(place.size)  # scores of rows left out are in units of all alike
    center = float(np.average(score, weights=each))
    spread = float(np.sqrt(np.average((score - center) ** 2, weights=each))) or 1.0
    boundaries = range(1, int(place.max()) + 1)
    if calibration is None:
        cuts = np.array([center])
        if len(boundaries) > 1:
            below = np.average(place[:, None] < np.array(boundaries), axis=0, weights=weights)
            cuts = np.quantile(score, below - 1e-9, weights=weights, method="inverted_cdf")
        return FittedScore(posterior, place, center=center, spread=spread, cuts=cuts)
    scores = cross_fit(posterior, folds)
    maps: list[Any] = []
    for boundary in boundaries:
        above = np.tile((place >= boundary).astype(float), len(scores))
        each = np.tile(weights, len(scores)) / len(scores)
        smaller = min((place >= boundary).sum(), (place < boundary).sum())
        if calibration == "isotonic" or (calibration == "auto" and smaller >= ISOTONIC_ROWS):
            steps = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
            maps.append(Steps(steps.fit(scores.ravel(), above, sample_weight=each), place.size))
        else:
            maps.append(fit_sigmoid(scores.ravel(), above, each))
    cuts = center + spread * np.maximum.accumulate([each.crossing(0.5) for each in maps])
    calibrated: dict[str, Any] = {"center": center, "spread": spread, "maps": tuple(maps), "cuts": cuts}
    return FittedScore(replace(posterior, held=scores), place, weights, folds=folds, **calibrated)
