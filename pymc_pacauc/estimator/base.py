"""Draws of an estimator's posterior as ArviZ data. This imports PyMC and ArviZ, which nothing else here does.

What the estimators have in common: input as scikit-learn checks it, attributes of the posterior, all or nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from pymc_pacauc.certify.certificate import certificate
from pymc_pacauc.estimator.posterior import Recipe, ScorePosterior
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.export import write_score
from pymc_pacauc.problem.score_function import linear_scores


def inference_data_of(posterior: ScorePosterior, features: Sequence[str], draws: int, seed: int) -> Any:
    """Draws of ``coef``, the coefficients of X (``theta`` of kernel features), and what certificates need."""
    from pymc_pacauc.model.compat import dataset, inference_data

    rng = np.random.default_rng(seed)
    result = posterior.result
    fitted = posterior.fitted_to
    theta = posterior.draw(draws, rng)
    risk = posterior.fit.problem.risk(theta)
    evidence, mean_risk = result.evidence, result.mean_risk
    constants = {
        **fitted.as_stats(),
        "gamma": fitted.gamma,
        "log_evidence": evidence.estimate,
        "log_evidence_variance": evidence.standard_error**2,
        "expected_risk": mean_risk.value,
        "expected_risk_variance": mean_risk.error**2,
        "expected_risk_error": mean_risk.error,
        "expected_risk_terms": mean_risk.terms,
        "divergence": result.divergence.value,
        "converged": int(posterior.fit.converged),
        "run": 0,
    }
    stats = dataset({"risk": risk[None]}).assign({name: ((), value) for name, value in constants.items()})
    if posterior.features is None:
        coords = {"feature": list(features)}
        drawn = dataset({"coef": (theta / posterior.columns.scale)[None]}, coords=coords, dims={"coef": ["feature"]})
    else:
        drawn = dataset({"theta": theta[None]}, dims={"theta": ["kernel_feature"]})
    drawn = drawn.assign_coords(posterior.score_function(features).as_coords())
    return inference_data({"posterior": drawn, "sample_stats": stats})


try:
    from sklearn.utils.validation import validate_data
except ImportError:  # scikit-learn 1.5

    def validate_data(estimator: Any, X: Any, y: Any = "no_validation", **options: Any) -> Any:
        return estimator._validate_data(X, y, **options)


DRAWS = 1000  # of ``idata_``


@contextmanager
def all_or_nothing(estimator: BaseEstimator) -> Iterator[None]:
    """A fit begins with nothing of the last one; if it fails, the estimator is as it was, unfitted or with that fit."""
    before = dict(vars(estimator))
    for name in [name for name in before if name.endswith("_")]:
        del vars(estimator)[name]
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def check_weights(sample_weight: Any, X: FloatArray) -> FloatArray | None:
    """One weight >= 0 per row, or None where all are equal."""
    if sample_weight is None:
        return None
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64)
    if (weights < 0.0).any():
        raise ValueError("Negative values in data passed to `sample_weight`.")
    if not weights.any():
        raise ValueError("sample_weight is zero for every row: no sample of any class is left.")
    return weights


def check_rows(name: str, values: Any, n: int) -> NDArray[Any] | None:
    """One label per row, or None."""
    if values is None:
        return None
    labels = np.asarray(values)
    if labels.shape != (n,):
        raise ValueError(f"{name} must have shape ({n},), one label per sample; got {labels.shape}.")
    return labels


def recipe_of(estimator: Any) -> Recipe:
    """The parameters of an estimator that make its posterior."""
    return Recipe(
        prior=estimator.prior,
        method=estimator.method,
        gamma=estimator.gamma,
        shrinkage=estimator.shrinkage,
        relevance=estimator.relevance,
        inclusion_probability=estimator.inclusion_probability,
        standardize=estimator.standardize,
        epsilon=estimator.epsilon,
        tuning_rows=estimator.tuning_rows,
        particles=estimator.particles,
        n_jobs=effective_n_jobs(estimator.n_jobs),
    )


class PosteriorMixin:
    """Attributes and methods of an estimator that holds ``scores_``: one score, or one for each class."""

    scores_: tuple[Any, ...]

    def predict_interval(self, X: Any, ci_prob: float = 0.9) -> FloatArray:
        """Central posterior interval of each row's score, shape (rows, 2)."""
        if not 0.0 < ci_prob < 1.0:
            raise ValueError(f"ci_prob must lie strictly between 0 and 1; got {ci_prob!r}.")
        X = self._validate_rows(X)
        if len(self.scores_) > 1:
            raise ValueError("An interval is for one score; one-vs-rest see scores_[k].posterior.interval(X, ci_prob).")
        return self.scores_[0].posterior.interval(X, ci_prob) - self.scores_[0].origin

    @property
    def inclusion_probability_(self) -> FloatArray:
        check_is_fitted(self)
        return np.array([each.posterior.fit.inclusion_probability for each in self.scores_])

    @property
    def certificate_(self) -> Any:
        return self._each(self._certificate)

    def _certificate(self, score: Any) -> Any:
        posterior = score.posterior
        if posterior.tuned:
            raise AttributeError(
                "There is no certificate: the prior was tuned on the data it would be certified with (lengthscale or "
                "relevance by evidence)."
            )
        try:
            epsilon, priors = self.epsilon, posterior.priors  # type: ignore[attr-defined]
            tuned_prior = "charge" if priors > 1 else "refuse"
            return certificate(posterior.result, epsilon, selected_from=priors, tuned_prior=tuned_prior)
        except ValueError as error:
            raise AttributeError(f"There is no certificate. {error}") from error

    def report(self, path: str | os.PathLike[str] | None = None, title: str | None = None) -> str:
        """The fit on one self-contained HTML page: summary, ROC curve, gamma, coefficients, certificate, convergence.

        Parameters
        ----------
        path
            Where to write it, if anywhere.
        title
            Of the page; by default the name of the estimator.

        Returns
        -------
        The page.
        """
        from pymc_pacauc.estimator.report import report_page

        check_is_fitted(self)
        page = report_page(self, type(self).__name__ if title is None else title)
        if path is not None:
            Path(path).write_text(page, encoding="utf-8")
        return page

    def export(self, path: str | os.PathLike[str] | None = None, *, covariance: bool = True) -> dict[str, Any]:
        """Write a score that is linear in X as JSON: :func:`pymc_pacauc.export`."""
        check_is_fitted(self)
        if len(self.scores_) > 1:
            raise ValueError(
                "One-vs-rest scores are log-odds of calibrated probabilities, not linear in X: export the score of "
                "each class against the others, AUCClassifier().fit(X, y == label).export(path)."
            )
        [score] = self.scores_
        posterior, names = score.posterior, self._feature_names()
        function = posterior.score_function(names)
        if not function.refusal:
            function = linear_scores("theta", (len(names),), names)
        columns = {"centre": posterior.columns.center, "scale": posterior.columns.scale, "intercept": -score.origin}
        spread = posterior.covariance if covariance else None
        return write_score(function, posterior.mean, spread, posterior.fitted_to, path, **columns)

    @property
    def idata_(self) -> Any:
        from pymc_pacauc.estimator.base import inference_data_of

        check_is_fitted(self)
        names = self._feature_names()
        return self._each(lambda each: inference_data_of(each.posterior, names, DRAWS, self._seed()))

    # -- for the estimators ------------------------------------------------------------------------------------------

    def _keep(self, scores: Sequence[Any]) -> None:
        """Set what is known of the fit."""
        posteriors = [each.posterior for each in scores]
        self.scores_ = tuple(scores)
        if posteriors[0].features is None:
            self.coef_ = np.array([each.coef for each in posteriors])
            self.coef_sd_ = np.array([each.coef_sd for each in posteriors])
        self.gamma_ = self._each(lambda each: each.posterior.fit.problem.gamma)
        self.log_evidence_ = self._each(lambda each: each.posterior.log_evidence)
        self.approximation_ = self._each(lambda each: each.posterior.fit)

    def _each(self, read: Callable[[Any], Any]) -> Any:
        """What is read of the score, or of each of several, as a list."""
        check_is_fitted(self)
        found = [read(each) for each in self.scores_]
        return found[0] if len(found) == 1 else found

    def _validate_training(self, X: Any, y: Any = "no_validation") -> Any:
        return validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)

    def _validate_rows(self, X: Any) -> FloatArray:
        check_is_fitted(self)
        return validate_data(self, X, dtype=np.float64, reset=False)

    def _seed(self) -> int:
        """``random_state`` as a number; a RandomState moves on with every use, as everywhere in scikit-learn."""
        return int(check_random_state(self.random_state).randint(2**31 - 1))  # type: ignore[attr-defined]

    def _feature_names(self) -> list[str]:
        return [str(name) for name in getattr(self, "feature_names_in_", [f"x{k}" for k in range(self.n_features_in_)])]  # type: ignore[attr-defined]
