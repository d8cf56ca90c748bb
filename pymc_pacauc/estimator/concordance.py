"""Risk scores for censored times, for scikit-learn: **a high score means an early event**."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_pacauc.comparison.censored import concordance, event_codes
from pymc_pacauc.comparison.pairs import Pairs
from pymc_pacauc.comparison.risk import pair_risk
from pymc_pacauc.estimator import all_or_nothing, base
from pymc_pacauc.estimator.calibration import FittedScore
from pymc_pacauc.estimator.posterior import Rows, fit_scores
from pymc_pacauc.numerics import FloatArray, numeric_array

Observed = tuple[NDArray[np.intp], FloatArray, FloatArray | None]  # events, times, entry times


@dataclass(eq=False, repr=False)
class ConcordanceEstimator(base.ScoreEstimator):
    """Rank rows by a linear risk score with the concordance Gibbs posterior of its coefficients.

    C is the concordance with censored times, Harrell's or Uno's.

    Parameters
    ----------
    prior : str, default "gaussian"
        As in :class:`~pymc_pacauc.AUCClassifier`.
    method : {"ep", "vb", "smc"}, default "ep"
        As in :class:`~pymc_pacauc.AUCClassifier`.
    gamma : float or str, default "cv"
        As in :class:`~pymc_pacauc.AUCClassifier`.
    standardize : bool, default True
        As in :class:`~pymc_pacauc.AUCClassifier`.
    weights : {None, "ipcw"}, default None
        None for Harrell's C, ``"ipcw"`` for Uno's, with inverse probabilities of censoring as weights.
    tau : float, optional
        Compare events before this time only.
    cause : int, default 1
        The code of the events of interest in y; those of other causes count as never having it (Wolbers' C).
    horizon : float or sequence of floats, optional
        Use the cumulative/dynamic AUC at this time (or its mean over several) instead of C.
    random_state : int, RandomState or None, default 0
        As in :class:`~pymc_pacauc.AUCClassifier`.
    n_jobs : int, optional
        As in :class:`~pymc_pacauc.AUCClassifier`.
    verbose, keep_data : bool, default False
        As in :class:`~pymc_pacauc.AUCClassifier`.

    Attributes
    ----------
    coef_, coef_sd_ : array of shape (d,)
        Posterior mean, and calibrated standard deviation, of the coefficients of X.
    inclusion_probability_ : array of shape (d,)
        Probability that a coefficient is not zero.
    gamma_, log_evidence_ : float
        Inverse temperature and log evidence of the fit.
    certificate_ : Certificate
        Certified concordance with its conditions, at epsilon = 0.05.
    approximation_ : Fit
        The fit on arrays (:class:`~pymc_pacauc.arrays.Fit`).
    idata_ : InferenceData or DataTree
        1000 draws of the coefficients of X from the Gibbs posterior (this imports PyMC).

    See Also
    --------
    AUCClassifier : The same for classes.
    ConcordancePotential : The same posterior in a PyMC model of your own.
    concordance_risk : One minus the concordance of any scores.

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

    prior: str = "gaussian"
    _: KW_ONLY
    method: str = "ep"
    gamma: Any = "cv"
    standardize: Any = True
    weights: str | None = None
    tau: float | None = None
    cause: int = 1
    horizon: Any = None
    random_state: Any = 0
    n_jobs: int | None = None
    verbose: Any = False
    keep_data: Any = False

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, strata: Any = None, groups: Any = None) -> Any:
        """Fit the posterior of the coefficients and choose gamma.

        Parameters
        ----------
        X : array_like or sparse matrix, shape (rows, columns)
            Covariates, finite numbers.
        y : structured array, shape (rows,), or array_like, shape (rows, 2)
            Event (or its cause, 0 where it was censored) and time of each row: scikit-survival's structured array, or
            two columns in this order. A third one holds entry times, before which a row was not under observation.
        sample_weight, strata, groups : array_like, shape (rows,), optional
            As in :meth:`AUCClassifier.fit`.

        Returns
        -------
        ConcordanceEstimator
            The estimator itself.

        Raises
        ------
        ValueError
            If no pair of times can be compared, X or y has other values than these, or an option is unknown.

        Warns
        -----
        ConvergenceWarning
            If a fit does not converge.

        See Also
        --------
        ConcordanceEstimator.predict : Risk scores of rows.

        Examples
        --------
        >>> import numpy as np, pymc_pacauc as pac
        >>> X = np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]])
        >>> y = np.array([[1, 6.0], [0, 5.5], [1, 4.0], [1, 3.5], [1, 2.0], [1, 1.0]])
        >>> pac.ConcordanceEstimator("ridge", gamma=5.0).fit(X, y).coef_ > 0
        array([ True])
        """
        recipe = self._recipe()
        X = self._validate_rows(X, fitting=True)
        weights, strata, groups, X, *observed = base.checked_rows(
            sample_weight, strata, groups, X, *event_and_time(y, len(X))
        )
        pairs = self._pairs(observed, strata, weights)
        folds = base.usable_folds(pairs, groups, recipe.gamma == "cv")
        posterior = fit_scores(recipe, Rows(X, pairs, weights, groups, folds))
        event, time, _ = observed
        mine = np.where(event == self.cause, 1, np.where(event > 0, 2, 0))
        self._keep([FittedScore(posterior, mine, time=time, folds=folds)])

    def _shaped(self, rows: Sequence[FloatArray]) -> FloatArray:
        return rows[0]

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Compute the mean risk score of each row, the higher the earlier the event.

        Parameters
        ----------
        X : array_like, shape (rows, columns)
            Rows.
        return_std : bool, default False
            Return the calibrated standard deviation of each score too.

        Returns
        -------
        scores : ndarray, shape (rows,)
            Mean risk scores.
        std : ndarray, shape (rows,)
            Only with ``return_std=True``.

        See Also
        --------
        ConcordanceEstimator.score : Concordance of the scores.

        Examples
        --------
        >>> import numpy as np, pymc_pacauc as pac
        >>> X = np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]])
        >>> y = np.array([[1, 6.0], [0, 5.5], [1, 4.0], [1, 3.5], [1, 2.0], [1, 1.0]])
        >>> int(pac.ConcordanceEstimator("ridge", gamma=5.0).fit(X, y).predict(X).argmax())
        5
        """
        return self._decide(self._validate_rows(X), return_std)

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, strata: Any = None) -> float:
        """Compute the concordance of the mean risk score with times, Harrell's or Uno's as in the fit.

        Parameters
        ----------
        X : array_like, shape (rows, columns)
            Rows.
        y : structured array, shape (rows,), or array_like, shape (rows, 2)
            Event and time of each row, as in :meth:`fit`.
        sample_weight : array_like, shape (rows,), optional
            A weight >= 0 per row.
        strata : array_like, shape (rows,), optional
            A label per row: only rows of one stratum are compared.

        Returns
        -------
        float
            Concordance, in [0, 1].

        Raises
        ------
        ValueError
            If X has other columns than in ``fit``, y has not an event and a time for each row, or no pair of times can
            be compared.

        See Also
        --------
        pymc_pacauc.concordance_risk : One minus the concordance of any scores.

        Examples
        --------
        >>> import numpy as np, pymc_pacauc as pac
        >>> X = np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]])
        >>> y = np.array([[1, 6.0], [0, 5.5], [1, 4.0], [1, 3.5], [1, 2.0], [1, 1.0]])
        >>> pac.ConcordanceEstimator("ridge", gamma=5.0).fit(X, y).score(X, y)
        1.0
        """
        scores = self.predict(X)
        observed: Sequence[Any] = event_and_time(y, len(scores))
        weights, strata, _, scores, *observed = base.checked_rows(sample_weight, strata, None, scores, *observed)
        return 1.0 - float(pair_risk(scores[None], self._pairs(observed, strata, weights))[0])

    def _pairs(self, observed: Sequence[Any], strata: Any, weights: FloatArray | None) -> Pairs:
        event, time, entry = observed
        options = {name: getattr(self, name) for name in ("weights", "tau", "cause", "horizon")}
        pairs = concordance(time, event, strata=strata, entry=entry, **options)
        return pairs if weights is None else pairs.times(weights / weights.mean())


def event_and_time(y: ArrayLike, n: int) -> Observed:
    """Read event, time and, if there is a third column, entry time of each row, from a structured array or columns.

    Examples
    --------
    >>> event_and_time([[1, 2.5], [0, 3.0]], 2)
    (array([1, 0]), array([2.5, 3. ]), None)
    """
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    rows = np.asarray(y)
    if rows.dtype.names is not None:
        columns = [rows[name] for name in rows.dtype.names]
    else:
        columns = list(rows.T) if rows.ndim == 2 else []
    if len(columns) not in (2, 3):
        raise ValueError(
            "y must have the event and the time of each sample: a structured array of two fields, as in "
            f"scikit-survival, or two columns in this order (and a third one of entry times, if any); got {rows.shape}."
        )
    event, time, entry = *columns[:2], numeric_array("entry", columns[2]) if len(columns) == 3 else None
    if event.shape != (n,):
        raise ValueError(f"Found input variables with inconsistent numbers of samples: [{n}, {event.size}]")
    event, time = numeric_array("event", event), numeric_array("time", time)
    codes, times = set(event[np.isfinite(event)].tolist()), set(time.tolist())
    if times <= {0, 1} < codes | {0, 1} or (0 in times and (time == np.floor(time)).all() and len(codes) > len(times)):
        raise ValueError(
            "y must have the event in its first column and the time in its second; got a second column that looks like "
            f"codes of events, {min(times):g} to {max(times):g}: exchange them."
        )
    return event_codes(event, n), time, entry
