"""Base class of the estimators: input checks, attributes of the posterior, pickles without training rows.

A pickle (and a copy) of a fitted estimator has no training rows, unless ``keep_data=True``: it has coefficients,
covariances, calibration, the numbers of certificates and the report, and, of a Gaussian process, its pivots, which
*are* training rows. Only draws as ArviZ data import PyMC.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, check_non_negative

from pymc_pacauc.array_result import stats_of
from pymc_pacauc.certify.certificate import certificate
from pymc_pacauc.comparison.folds import comparison_folds
from pymc_pacauc.comparison.pairs import Pairs, label_codes
from pymc_pacauc.ep.plan import METHODS
from pymc_pacauc.estimator.posterior import Recipe, ScorePosterior
from pymc_pacauc.numerics import FloatArray, check_probability
from pymc_pacauc.problem.problem import check_gamma
from pymc_pacauc.problem.score_function import linear_scores, write_score

try:
    from sklearn.utils.validation import validate_data
except ImportError:  # scikit-learn 1.5

    def validate_data(estimator: Any, X: Any, y: Any = "no_validation", **options: Any) -> Any:
        return estimator._validate_data(X, y, **options)


FOLDS = 5  # of all cross-validation, where there are rows for as many; ten take twice as long for the same AUC
KEEP = "The training rows are not kept in a pickle or a copy: fit with keep_data=True, before pickling."
YES_OR_NO = (True, False)
CHOICES = {  # of the parameters of both estimators
    "prior": ("gaussian", "ridge", "spike_slab", "additive", "gp", "auto"),
    "method": (*METHODS, "smc"),
    "gamma": ("cv", "certificate", "coverage", "default"),
    "standardize": YES_OR_NO,
    "calibration": ("auto", "sigmoid", "isotonic", None),
    "multi_class": ("ovo", "ordered"),
    "weights": (None, "ipcw"),
    "keep_data": YES_OR_NO,
}


def inference_data_of(posterior: ScorePosterior, features: Sequence[str], draws: int, seed: int) -> Any:
    """Draw ``coef``, the coefficients of X (``theta`` of features of X), with what certificates need."""
    from pymc_pacauc.model.compat import dataset, inference_data

    theta = posterior.draw(draws, np.random.default_rng(seed))
    constants = {
        **stats_of(posterior.result),
        "converged": int(posterior.fit.converged),
        "run": 0,
    }
    stats = {"risk": posterior.fit.problem.risk(theta)[None]} if posterior.has_data else {"draw_number": [range(draws)]}
    stats = dataset(stats).assign({name: ((), value) for name, value in constants.items()})
    if posterior.features is None:
        coords = {"feature": list(features)}
        drawn = dataset({"coef": (theta / posterior.columns.scale)[None]}, coords=coords, dims={"coef": ["feature"]})
    else:
        drawn = dataset({"theta": theta[None]}, dims={"theta": ["score_feature"]})
    drawn = drawn.assign_coords(posterior.score_function(features).as_coords())
    return inference_data({"posterior": drawn, "sample_stats": stats})


def check_options(estimator: BaseEstimator) -> None:
    """Refuse parameters that are none of their ``CHOICES``."""
    for name, choices in CHOICES.items():
        value = getattr(estimator, name, choices[0])
        if name == "gamma" and not isinstance(value, str):
            check_gamma(value)
        elif not (isinstance(value, str | int | np.bool_ | None) and value in choices):
            allowed = "True or False" if choices is YES_OR_NO else f"one of {', '.join(map(repr, choices))}"
            number = ", or one finite number > 0" * (name == "gamma")
            raise ValueError(f"{name} must be {allowed}{number}; got {value!r}.")


def usable_folds(pairs: Pairs, groups: NDArray[np.intp] | None, needed: bool) -> int:
    """Return the number of folds: five, or fewer, with a warning, where one of five would have no pair.

    Where folds are not ``needed`` there is no warning, and the number may be 0.
    """
    for folds in range(FOLDS, 1, -1):
        try:
            comparison_folds(pairs, folds, np.random.default_rng(0), groups)
        except ValueError as error:
            reason = str(error)
        else:
            if folds < FOLDS and needed:
                warnings.warn(f"y has rows for {folds} folds only, not for {FOLDS}. ({reason})", stacklevel=6)
            return folds
    if needed:
        raise ValueError(
            "y must have at least two observations (or groups) of each class, or two events: one to fit, one to leave "
            f"out. {reason}"
        )
    return 0


def checked_rows(sample_weight: Any, strata: Any, groups: Any, first: FloatArray, *arrays: Any) -> tuple[Any, ...]:
    """Check weights and labels of the rows of ``first``, and leave out rows of weight zero, as scikit-learn does.

    Returns
    -------
    tuple
        Weights, strata and the number of each row's group (None where not given), ``first`` and ``arrays``.
    """
    labels: list[Any] = []
    for name, values in (("strata", strata), ("groups", groups)):
        labels.append(None if values is None else np.asarray(values))
        if values is not None and np.shape(values) != (len(first),):
            raise ValueError(f"{name} must have shape ({len(first)},), one label per sample; got {np.shape(values)}.")
    strata, groups = labels[0], None if groups is None else label_codes("groups", labels[1], len(first))
    if sample_weight is None:
        return None, strata, groups, first, *arrays
    weights = _check_sample_weight(sample_weight, first, dtype=np.float64)
    check_non_negative(weights, "`sample_weight`")
    if not weights.any():
        raise ValueError("sample_weight is zero for every row: no sample of any class is left.")
    columns = (weights, strata, groups, first, *arrays)
    return tuple(None if each is None else each[weights > 0.0] for each in columns)


class ScoreEstimator(BaseEstimator):
    """An estimator that holds ``scores_`` after the fit: one score with its posterior, or one for each class."""

    def predict_interval(self, X: Any, ci_prob: float = 0.9) -> FloatArray:
        """Compute the central interval of each row's score, with calibrated spread.

        Parameters
        ----------
        X : array_like, shape (rows, columns)
            Rows.
        ci_prob : float, default 0.9
            Probability of the interval.

        Returns
        -------
        ndarray, shape (rows, 2)
            Lower and upper end for each row.

        Raises
        ------
        ValueError
            If ``ci_prob`` is not in (0, 1), or there is a score for each class.

        See Also
        --------
        pymc_pacauc.predict_scores : Scores of new rows under the posterior of a PyMC model.

        Examples
        --------
        >>> import numpy as np, pymc_pacauc as pac
        >>> X = np.random.default_rng(1).normal(size=(60, 2))
        >>> pac.AUCClassifier(gamma=30).fit(X, X[:, 0] > 0.3).predict_interval(X[:3]).shape
        (3, 2)
        """
        check_probability("ci_prob", ci_prob)
        X = self._validate_rows(X)
        if len(self.scores_) > 1:
            raise ValueError("predict_interval() is for one score; use scores_[k].posterior.interval(X, ci_prob).")
        return self.scores_[0].posterior.interval(X, ci_prob) - self.scores_[0].origin

    @property
    def coef_sd_(self) -> FloatArray:
        """Calibrated standard deviations of the coefficients, the shape of ``coef_``, where scores are linear in X."""
        check_is_fitted(self)
        if self.scores_[0].posterior.features is not None:
            raise AttributeError(f"coef_sd_ is for scores that are linear in X, not for prior={self.prior!r}.")
        return self._shaped([each.posterior.coef_sd for each in self.scores_])

    @property
    def inclusion_probability_(self) -> FloatArray:
        """Probability that each coefficient is not zero, the shape of ``coef_``."""
        check_is_fitted(self)
        return self._shaped([each.posterior.fit.inclusion_probability for each in self.scores_])

    @property
    def approximation_(self) -> Any:
        """Fit on arrays, :class:`~pymc_pacauc.arrays.Fit`; a copy or a pickle has none without ``keep_data=True``."""
        check_is_fitted(self)
        if not self.scores_[0].posterior.has_data:
            raise AttributeError(KEEP)
        return self._each(lambda each: each.posterior.fit)

    @property
    def certificate_(self) -> Any:
        """Certified AUC with its conditions, at epsilon = 0.05."""
        return self._each(self._certificate)

    def _certificate(self, score: Any) -> Any:
        if score.posterior.record.tuned_prior:
            raise AttributeError(f"There is no certificate with prior={self.prior!r}. {score.posterior.uncertified}")
        try:
            return certificate(score.posterior.result, 0.05 / len(self.scores_))
        except ValueError as error:
            raise AttributeError(f"There is no certificate with prior={self.prior!r}. {error}") from error

    def report(self, path: str | os.PathLike[str] | None = None, title: str | None = None) -> Any:
        """Write the fit on one self-contained HTML page: what it ranks, how well, its coefficients, its certificate.

        Parameters
        ----------
        path : path-like, optional
            Where to write it, if anywhere.
        title : str, optional
            Title of the page; by default the name of the estimator.

        Returns
        -------
        path-like or str
            The path, where one is given; else the page.

        See Also
        --------
        pymc_pacauc.summary : The coefficients as a table.

        Examples
        --------
        >>> import numpy as np, pymc_pacauc as pac
        >>> X = np.random.default_rng(1).normal(size=(60, 2))
        >>> page = pac.AUCClassifier(gamma=30).fit(X, X[:, 0] > 0.3).report(title="My score")
        >>> "<title>My score</title>" in page
        True
        """
        from pymc_pacauc.estimator.report import report_page

        check_is_fitted(self)
        page = report_page(self, type(self).__name__ if title is None else title)
        if path is None:
            return page
        Path(path).write_text(page, encoding="utf-8")
        return path

    def export(self, path: str | os.PathLike[str] | None = None, *, covariance: bool = True) -> dict[str, Any]:
        """Write a score that is linear in X as JSON; see :func:`pymc_pacauc.export`.

        Parameters
        ----------
        path : path-like, optional
            Where to write it.
        covariance : bool, default True
            Whether to write the covariance of the weights; with d columns d^2 numbers.

        Returns
        -------
        dict
            Contents of the file, as in :func:`pymc_pacauc.export`.

        Raises
        ------
        ValueError
            If there is a score for each class, or the score is not linear in X.

        See Also
        --------
        pymc_pacauc.export : The same for any result.

        Examples
        --------
        >>> import numpy as np, pymc_pacauc as pac
        >>> X = np.random.default_rng(1).normal(size=(60, 2))
        >>> pac.AUCClassifier(gamma=30).fit(X, X[:, 0] > 0.3).export()["columns"]
        ['x0', 'x1']
        """
        check_is_fitted(self)
        if len(self.scores_) > 1:
            said = f"export() is for one score, and there is one for each of {len(self.scores_)} classes"
            raise ValueError(f"{said}: AUCClassifier().fit(X, y == label).export(path).")
        posterior, names = self.scores_[0].posterior, self._feature_names()
        function = posterior.score_function(names)
        if not function.refusal:  # of columns that are centred and scaled
            function = linear_scores("theta", (len(names),), names)
        columns = {"centre": posterior.columns.center, "scale": posterior.columns.scale}
        spread = posterior.spread.covariance if covariance else None
        fitted, intercept = posterior.result.fitted_to, -self.scores_[0].origin
        return write_score(function, posterior.mean, spread, fitted, path, intercept=intercept, **columns)

    @property
    def idata_(self) -> Any:
        """Draws of the coefficients of X from the Gibbs posterior, as ArviZ data."""
        check_is_fitted(self)
        names, posterior = self._feature_names(), self.scores_[0].posterior
        if not (posterior.has_data or posterior.result.gaussian or posterior.draws is not None):
            raise AttributeError(KEEP)
        return self._each(lambda each: inference_data_of(each.posterior, names, 1000, self._seed()))

    # -- for the estimators ------------------------------------------------------------------------------------------

    def _recipe(self) -> Recipe:
        """Return the checked parameters of the posterior."""
        check_options(self)
        rng, n_jobs = np.random.default_rng(self._seed()), effective_n_jobs(self.n_jobs)
        return Recipe(self.prior, self.method, self.gamma, self.standardize, n_jobs, self.verbose, rng)

    def _keep(self, scores: Sequence[Any]) -> None:
        """Set the fitted attributes."""
        posteriors = [each.posterior for each in scores]
        self.scores_ = tuple(scores)
        if posteriors[0].features is None:
            self.coef_ = self._shaped([each.coef for each in posteriors])
        self.gamma_ = self._each(lambda each: each.posterior.record.gamma)
        self.log_evidence_ = self._each(lambda each: each.posterior.result.evidence.estimate)

    def _shaped(self, rows: Sequence[FloatArray]) -> FloatArray:
        """Stack rows, one for each score."""
        return np.array(rows)

    def _each(self, read: Callable[[Any], Any]) -> Any:
        """Apply a function to the score, or to each of several, as a list."""
        check_is_fitted(self)
        found = [read(each) for each in self.scores_]
        return found[0] if len(found) == 1 else found

    def _validate_rows(self, *data: Any, fitting: bool = False) -> Any:
        """Return rows X, and labels where they are given, as scikit-learn checks them; X dense.

        Sparse rows are made dense, as centring would make them anyway.
        """
        if not fitting:
            check_is_fitted(self)
        least = 2 if fitting else 1
        options: dict[str, Any] = {"dtype": np.float64, "reset": fitting, "ensure_min_samples": least}
        found = validate_data(self, *data, accept_sparse="csr", **options)
        X, *y = found if isinstance(found, tuple) else (found,)
        X = X.toarray() if issparse(X) else X
        return (X, *y) if y else X

    def _decide(self, X: FloatArray, return_std: bool) -> Any:
        """Compute the decisions of the only score, and their standard deviations where asked for."""
        [score] = self.scores_
        return (score.decision(X), score.posterior.std(X)) if return_std else score.decision(X)

    def _seed(self) -> int:
        """Return ``random_state`` as a number; a RandomState moves on with every use, as everywhere in scikit-learn."""
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _feature_names(self) -> list[str]:
        return [str(name) for name in getattr(self, "feature_names_in_", [f"x{k}" for k in range(self.n_features_in_)])]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __getstate__(self) -> Any:
        state = super().__getstate__()
        if self.keep_data or "scores_" not in state:
            return state
        from pymc_pacauc.estimator.report import with_figures

        kept = tuple(with_figures(self, each).without_data() for each in self.scores_)
        return {**state, "scores_": kept}
