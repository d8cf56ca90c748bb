"""From scores to probabilities and classes, by scores of rows that the posterior has not seen.

A Gibbs posterior ranks; it has no opinion on probabilities. They are read off the data: every row is scored by a
posterior that has not seen its fold (*cross-fitting*), scores of different folds are brought to one scale, and an
isotonic regression of the labels on them says how often rows with about this score are positive. That is calibrated on
rows like the training rows, whatever the scores mean. An isotonic regression is a staircase, flat between steps and
exactly 0 or 1 at the ends, as if a few rows made a certainty; so one more row is counted at every score, which is
positive with probability Phi(score). Probabilities then lie strictly between 0 and 1 and rank rows just as scores do.

Classes come from a threshold: of the probability, or of the score, put between two cross-fitted ones.

More than two ordered classes have one score: then there is one regression, and one threshold, for each boundary between
classes, of "above it" against "not above it". Isotonic regression keeps the order of what it is given, so that their
differences are probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import ndtr
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import roc_curve
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from pymc_pacauc.ep.leave_out import FoldPaths
from pymc_pacauc.estimator.folds import Folds, check_folds
from pymc_pacauc.estimator.posterior import ScorePosterior
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.tune.gamma import FOLD_SWEEPS

TOLERANCE = 0.2  # relative change of the folds' natural parameters in their last sweep
THRESHOLDS = ("youden", "prior")
FAR = 40.0  # in standard deviations of the scores: where Phi is 0 or 1


@dataclass(frozen=True, eq=False)
class Shares:
    """Probability of a positive given the score: ``rows`` rows by isotonic regression, and one by Phi."""

    steps: IsotonicRegression
    rows: int

    def __call__(self, scores: FloatArray) -> FloatArray:
        return (self.rows * self.steps.predict(scores) + ndtr(scores)) / (self.rows + 1.0)

    def crossing(self, probability: float) -> float:
        """The score of this probability; far beyond all scores where none has it."""
        low, high = min(float(self.steps.X_min_), 0.0) - FAR, max(float(self.steps.X_max_), 0.0) + FAR
        at_low, at_high = self(np.array([low, high]))
        if at_low >= probability:
            return low
        if at_high <= probability:
            return high
        return brentq(lambda s: self(np.array([s]))[0] - probability, low, high, maxiter=1000)


@dataclass(frozen=True, eq=False)
class CalibratedScore:
    """A score, the probabilities that it stands for, and where classes begin.

    Attributes
    ----------
    posterior
        Of the score.
    center, spread
        Of the scores of the training rows: calibration sees ``(score - center) / spread``.
    maps
        For each boundary between classes, the probability of being above it, given the score.
    cuts
        For each boundary, the score above which a row is called so.
    held_out, place
        The cross-fitted score of each training row, in units of the score, and its class.
    """

    posterior: ScorePosterior
    center: float
    spread: float
    maps: tuple[Shares, ...]
    cuts: FloatArray
    held_out: FloatArray
    place: NDArray[np.intp]

    def probability(self, X: FloatArray) -> FloatArray:
        """Of each class, shape (rows, classes)."""
        scores = (self.posterior.score(X) - self.center) / self.spread
        above = np.column_stack([np.ones(len(X)), *(each(scores) for each in self.maps), np.zeros(len(X))])
        return above[:, :-1] - above[:, 1:]

    def decision(self, X: FloatArray) -> FloatArray:
        """The score, above zero where a row is called positive; with more than two classes, above the lowest one."""
        return self.posterior.score(X) - self.origin

    @property
    def origin(self) -> float:
        """The posterior's score at which :meth:`decision` is zero."""
        return float(self.cuts[0])

    @property
    def intercept(self) -> float:
        """What :meth:`decision` adds to ``X @ coef``."""
        return float(-(self.posterior.columns.center @ self.posterior.coef) - self.origin)

    def predict(self, X: FloatArray) -> NDArray[np.intp]:
        """The place of each row's class."""
        return (self.posterior.score(X)[:, None] > self.cuts).sum(axis=1)


def calibrate(
    posterior: ScorePosterior,
    place: NDArray[np.intp],
    *,
    sample_weight: FloatArray | None,
    groups: ArrayLike | None,
    threshold: str | float,
    folds: Folds,
    seed: int,
) -> CalibratedScore:
    """Calibrate a posterior on its own rows, of which ``place`` is the class, 0, 1, ..., by leaving out folds."""
    problem = posterior.fit.problem
    if isinstance(folds, int):
        deal = StratifiedKFold if groups is None else StratifiedGroupKFold
        fold: Any = check_folds(deal(folds, shuffle=True, random_state=seed), problem.X, place, groups)
    else:
        fold = folds
    options: dict[str, Any] = {"refine": FOLD_SWEEPS, "tolerance": TOLERANCE, "of_draws": False}
    if posterior.fit.plan.folds == "paths":
        paths = FoldPaths(problem, fold, 0.0 if posterior.fit.method == "GaussianVB" else 1.0)
        held_out = paths.leave_out(problem.gamma, **options).scores
    else:
        held_out = posterior.fit.leave_out(fold, gamma=problem.gamma, n_jobs=1, **options).scores
    score = problem.X @ posterior.mean
    center, spread = float(score.mean()), float(score.std()) or 1.0
    maps, cuts = [], []
    for boundary in range(1, int(place.max()) + 1):
        above = (place >= boundary).astype(float)
        steps = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
        maps.append(Shares(steps.fit(held_out, above, sample_weight=sample_weight), problem.n))
        if isinstance(threshold, str):
            cuts.append(_cut(held_out, above, sample_weight, threshold))
        else:
            cuts.append(maps[-1].crossing(threshold))
    ordered = center + spread * np.maximum.accumulate(cuts)
    return CalibratedScore(posterior, center, spread, tuple(maps), ordered, center + spread * held_out, place)


def check_threshold(threshold: Any) -> None:
    if isinstance(threshold, str) and threshold in THRESHOLDS:
        return
    if not (isinstance(threshold, int | float | np.number) and 0.0 < threshold < 1.0):
        names = ", ".join(map(repr, THRESHOLDS))
        raise ValueError(f"threshold must be one of {names}, or a probability in (0, 1); got {threshold!r}.")


def _cut(scores: FloatArray, above: FloatArray, sample_weight: FloatArray | None, threshold: str) -> float:
    """Half-way between the lowest score that is called positive and the highest one that is not."""
    false, true, at = roc_curve(above, scores, sample_weight=sample_weight, drop_intermediate=False)
    if threshold == "youden":
        best = int(np.argmax(true - false))
    else:
        share = np.average(above, weights=sample_weight)
        best = int(np.argmin(np.abs(true * share + false * (1.0 - share) - share)))
    lowest = scores.max() + 1.0 if best == 0 else at[best]
    highest = scores.min() - 1.0 if best == at.size - 1 else at[best + 1]
    return 0.5 * (lowest + highest)
