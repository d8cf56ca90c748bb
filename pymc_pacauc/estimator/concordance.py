"""Risk scores for censored times, for scikit-learn: **a high score means an early event**."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from pymc_pacauc.comparison.censored import concordance, event_mask
from pymc_pacauc.comparison.pairs import Pairs
from pymc_pacauc.comparison.risk import pair_risk
from pymc_pacauc.estimator.base import PosteriorMixin, all_or_nothing, check_rows, check_weights, recipe_of
from pymc_pacauc.estimator.folds import check_folds
from pymc_pacauc.estimator.posterior import ScorePosterior, fit_scores
from pymc_pacauc.interrupt import raises_interrupts
from pymc_pacauc.numerics import FloatArray, numeric_array

WEIGHTS = (None, "ipcw")


@dataclass(frozen=True, eq=False)
class RiskScore:
    """A score of censored times: no classes, so no threshold; zero is the average training row."""

    posterior: ScorePosterior

    origin = 0.0


class ConcordanceEstimator(PosteriorMixin, BaseEstimator):
    """A linear risk score with the Gibbs posterior prior(theta) exp(-gamma (1 - C(theta))) of its coefficients.

    C is the concordance with censored times, Harrell's or Uno's.

    Parameters
    ----------
    prior, method, gamma, shrinkage, relevance, inclusion_probability, standardize
        As in :class:`~pymc_pacauc.AUCClassifier`.
    cv, epsilon, tuning_rows, particles, n_jobs, random_state
        As in :class:`~pymc_pacauc.AUCClassifier`.
    weights
        None for Harrell's C, ``"ipcw"`` for Uno's, which makes up for those lost to censoring.
    tau
        Compare events before this time only.

    Attributes
    ----------
    coef_, coef_sd_
        Posterior mean and standard deviation of the coefficients of X, shape (d,).
    inclusion_probability_, gamma_, log_evidence_, certificate_, approximation_, idata_
        As in :class:`~pymc_pacauc.AUCClassifier`.

    Examples
    --------
    >>> import numpy as np, pymc_pacauc as pac
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(100, 2))
    >>> time, censored = rng.exponential(np.exp(-X[:, 0])), rng.exponential(2.0, size=100)
    >>> y = np.column_stack([time <= censored, np.minimum(time, censored)])
    >>> estimator = pac.ConcordanceEstimator(gamma="default").fit(X, y)
    >>> bool(estimator.coef_[0] > 0), bool(0.6 < estimator.score(X, y) < 0.9)
    (True, True)
    """

    def __init__(
        self,
        prior: str = "gaussian",
        *,
        method: str = "ep",
        gamma: Any = "cv",
        shrinkage: Any = "evidence",
        relevance: str | None = None,
        inclusion_probability: float | None = None,
        standardize: Any = True,
        weights: str | None = None,
        tau: float | None = None,
        cv: Any = 5,
        epsilon: float = 0.05,
        tuning_rows: int = 500,
        particles: int = 1000,
        n_jobs: int | None = None,
        random_state: Any = 0,
    ):
        self.prior = prior
        self.method = method
        self.gamma = gamma
        self.shrinkage = shrinkage
        self.relevance = relevance
        self.inclusion_probability = inclusion_probability
        self.standardize = standardize
        self.weights = weights
        self.tau = tau
        self.cv = cv
        self.epsilon = epsilon
        self.tuning_rows = tuning_rows
        self.particles = particles
        self.n_jobs = n_jobs
        self.random_state = random_state

    @raises_interrupts
    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, strata: Any = None, groups: Any = None) -> Any:
        """Fit.

        Parameters
        ----------
        X
            Matrix or DataFrame (rows, columns) of numbers.
        y
            Event and time of each row: scikit-survival's structured array, or two columns in this order.
        sample_weight, strata, groups
            As in :meth:`AUCClassifier.fit`.
        """
        with all_or_nothing(self):
            self._fit(X, y, sample_weight, strata, groups)
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any, strata: Any, groups: Any) -> None:
        if self.weights not in WEIGHTS:
            raise ValueError(f'weights must be None or "ipcw"; got {self.weights!r}.')
        recipe = recipe_of(self)
        X = self._validate_training(X)
        event, time = event_and_time(y, len(X))
        weights = check_weights(sample_weight, X)
        groups = check_rows("groups", groups, len(X))
        folds = check_folds(self.cv, X, event, groups)
        pairs = self._pairs(event, time, strata, weights)
        if weights is not None:
            seen = weights > 0.0
            X, weights, groups = X[seen], weights[seen], None if groups is None else groups[seen]
            folds = folds if isinstance(folds, int) else folds[seen]
        rng = np.random.default_rng(self._seed())
        posterior = fit_scores(X, pairs, recipe, sample_weight=weights, folds=folds, groups=groups, rng=rng)
        self._keep([RiskScore(posterior)])
        if hasattr(self, "coef_"):
            self.coef_, self.coef_sd_ = self.coef_[0], self.coef_sd_[0]

    @property
    def inclusion_probability_(self) -> FloatArray:
        return super().inclusion_probability_[0]

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Mean risk score of each row, the higher the earlier the event; with its posterior standard deviation."""
        X = self._validate_rows(X)
        posterior = self.scores_[0].posterior
        return (posterior.score(X), posterior.std(X)) if return_std else posterior.score(X)

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, strata: Any = None) -> float:
        """Concordance of the mean risk score, Harrell's or Uno's as in the fit; within ``strata`` if given."""
        scores = self.predict(X)
        event, time = event_and_time(y, len(scores))
        weights = check_weights(sample_weight, scores)
        pairs = self._pairs(event, time, strata, weights)
        seen = scores if weights is None else scores[weights > 0.0]
        return 1.0 - float(pair_risk(seen[None], pairs)[0])

    def _pairs(self, event: NDArray[np.bool_], time: FloatArray, strata: Any, weights: FloatArray | None) -> Pairs:
        """What is compared among the rows of positive weight."""
        strata = check_rows("strata", strata, len(time))
        if weights is None:
            return concordance(time, event, strata=strata, weights=self.weights, tau=self.tau)
        seen = weights > 0.0
        strata = None if strata is None else strata[seen]
        pairs = concordance(time[seen], event[seen], strata=strata, weights=self.weights, tau=self.tau)
        return pairs.times(weights[seen] / weights[seen].mean())


def event_and_time(y: ArrayLike, n: int) -> tuple[NDArray[np.bool_], FloatArray]:
    """Event and time of each row, from a structured array or two columns.

    Examples
    --------
    >>> event_and_time([[1, 2.5], [0, 3.0]], 2)
    (array([ True, False]), array([2.5, 3. ]))
    """
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    rows = np.asarray(y)
    if rows.dtype.names is not None:
        columns = [rows[name] for name in rows.dtype.names]
    else:
        columns = list(rows.T) if rows.ndim == 2 else []
    if len(columns) != 2:
        raise ValueError(
            "y must hold the event and the time of each sample: a structured array of two fields, as scikit-survival "
            f"has it, or two columns in this order; got shape {rows.shape}."
        )
    event, time = columns
    if event.shape != (n,):
        raise ValueError(f"Found input variables with inconsistent numbers of samples: [{n}, {event.size}]")
    event, time = numeric_array("event", event), numeric_array("time", time)
    if not np.isin(event[np.isfinite(event)], (0, 1)).all():
        swapped = " (the second column is: is their order reversed?)" * bool(np.isin(time, (0, 1)).all())
        raise ValueError(f"The first column of y, whether the event was seen, is not 0 and 1{swapped}.")
    return event_mask(event, n), time
