"""A classifier for scikit-learn whose score maximises the AUC, with its posterior."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from pymc_pacauc.comparison.kinds import ordered_classes, stratified
from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.comparison.risk import empirical_risk
from pymc_pacauc.estimator.base import PosteriorMixin, all_or_nothing, check_rows, check_weights, recipe_of
from pymc_pacauc.estimator.calibration import CalibratedScore, calibrate, check_threshold
from pymc_pacauc.estimator.folds import Folds, check_folds
from pymc_pacauc.estimator.posterior import fit_scores
from pymc_pacauc.interrupt import raises_interrupts
from pymc_pacauc.numerics import FloatArray

MULTI_CLASS = ("ovr", "ordered")


class AUCClassifier(PosteriorMixin, ClassifierMixin, BaseEstimator):
    """A linear score with the AUC Gibbs posterior, prior(theta) exp(-gamma (1 - AUC(theta))), of its coefficients.

    Parameters
    ----------
    prior
        Of the coefficients: ``"gaussian"``, or ``"spike_slab"`` with a point mass at zero. Or ``"gp"``: the score is a
        Gaussian process of X, its lengthscale by evidence; then there is no ``coef_``.
    method
        ``"ep"`` (expectation propagation), ``"vb"`` (Gaussian variational Bayes), or ``"smc"``: draws of the exact
        posterior by tempering SMC. Folds are EP's also with SMC.
    gamma
        How much the AUC counts against the prior: ``"cv"``, by the held-out AUC of the mean score; ``"certificate"``,
        the highest certified AUC; ``"coverage"``, where credible sets cover as often as they say; ``"default"``, four
        times n+ n- / n; ``"MA1"`` or ``"MAinf"``, a theorem's; or a number.
    shrinkage
        Of a Gaussian prior: its covariance is ((1 - shrinkage) S + shrinkage I)^-1, S the covariance of the columns, so
        that 1 means independent coefficients. A number in (0, 1], or ``"evidence"``: the best of four by evidence
        (:mod:`pymc_pacauc.tune.evidence`), for which the certificate pays.
    relevance
        ``"evidence"``: a prior variance, or a lengthscale of the Gaussian process, for each column by evidence. There
        is no certificate then.
    inclusion_probability
        Of the spike-and-slab prior, by default 1 - exp(-1 / d), at least 0.1.
    standardize
        Whether columns are brought to one scale before the prior is put on their coefficients. ``coef_`` is in the
        units of X in any case.
    threshold
        When a row is called positive. A number in (0, 1): if its probability exceeds that; with 0.5, and few positives,
        hardly ever. ``"youden"``: where the true positive rate exceeds the false positive rate most. ``"prior"``: so
        that as many rows are called positive as are.
    multi_class
        With more than two classes ``"ovr"``: one score for each class against the rest; ``"ordered"``: one score that
        ranks the classes in their order.
    cv
        Of all cross-validation: a number of folds, at most as many as the smallest class has rows; or, as everywhere in
        scikit-learn, a splitter or an iterable of splits, which must leave out every row once. To choose gamma,
        rows are assigned to a number of folds two to four times, the more often the fewer there are; the same rows, in
        any order, get the same folds.
    epsilon
        Probability with which ``certificate_`` may fail.
    tuning_rows
        Prior and ``gamma="cv"`` are chosen by the pairs among so many rows, half of each class. Of a class that has
        fewer all are taken, and of the other so many more that there are as many pairs, up to four times these rows.
        gamma then grows with n+ n- / n. The fit itself is to all rows.
    particles
        Of SMC.
    n_jobs
        Threads; None is one, -1 all cores.
    random_state
        Of the folds that probabilities are calibrated by, and of draws; gamma does not depend on it.

    Attributes
    ----------
    classes_
        Labels, sorted; with two of them the score is that of ``classes_[1]``.
    coef_, coef_sd_
        Posterior mean and standard deviation of the coefficients of X, shape (1, d), or (classes, d) one-vs-rest.
    intercept_
        Such that ``X @ coef_.T + intercept_`` is the mean score, above zero where a row is called positive.
    inclusion_probability_
        Probability that a coefficient is not zero, the same shape; one where the prior is Gaussian.
    gamma_, log_evidence_
        Of the fit; arrays one-vs-rest, like all that follows, which are lists then.
    certificate_
        Certified AUC, a :class:`~pymc_pacauc.results.Certificate`, with its conditions.
    approximation_
        The fit on arrays (:class:`~pymc_pacauc.arrays.Fit`).
    idata_
        1000 draws of the coefficients of X as ArviZ data (this imports PyMC).
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Examples
    --------
    >>> import pymc_pacauc as pac
    >>> X, y = pac.datasets.load_pima().X, pac.datasets.load_pima().y
    >>> classifier = pac.AUCClassifier().fit(X, y)
    >>> bool(0.8 < classifier.score(X, y) < 0.9), classifier.coef_.shape
    (True, (1, 7))
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
        threshold: Any = 0.5,
        multi_class: str = "ovr",
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
        self.threshold = threshold
        self.multi_class = multi_class
        self.cv = cv
        self.epsilon = epsilon
        self.tuning_rows = tuning_rows
        self.particles = particles
        self.n_jobs = n_jobs
        self.random_state = random_state

    @raises_interrupts
    def fit(self, X: Any, y: ArrayLike, sample_weight: Any = None, *, strata: Any = None, groups: Any = None) -> Any:
        """Fit.

        Parameters
        ----------
        X
            Matrix or DataFrame (rows, columns) of numbers.
        y
            Labels, numbers or strings.
        sample_weight
            A weight >= 0 per row: a pair of rows weighs the product of theirs.
        strata
            A label per row: only rows of one stratum are compared (patients of one hospital).
        groups
            A label per row: rows of a group are never split between folds.
        """
        with all_or_nothing(self):
            self._fit(X, y, sample_weight, strata, groups)
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any, strata: Any, groups: Any) -> None:
        check_threshold(self.threshold)
        if self.multi_class not in MULTI_CLASS:
            raise ValueError(
                f"multi_class must be one of {', '.join(map(repr, MULTI_CLASS))}; got {self.multi_class!r}."
            )
        recipe = recipe_of(self)
        X, y = self._validate_training(X, y)
        check_classification_targets(y)
        weights = check_weights(sample_weight, X)
        strata, groups = check_rows("strata", strata, len(y)), check_rows("groups", groups, len(y))
        folds = check_folds(self.cv, X, y, groups)
        if weights is not None:
            seen = weights > 0.0  # to scikit-learn a row of weight zero is not there
            X, y, weights = X[seen], y[seen], weights[seen]
            strata, groups = (None if rows is None else rows[seen] for rows in (strata, groups))
            folds = folds if isinstance(folds, int) else folds[seen]
        classes, place = np.unique(y, return_inverse=True)
        folds = _enough(folds, classes, place)
        rng = np.random.default_rng(self._seed())

        def score(place: NDArray[np.intp]) -> CalibratedScore:
            pairs = bipartite(place) if place.max() == 1 else ordered_classes(place)
            pairs = pairs if strata is None else stratified(pairs, strata)
            pairs = pairs if weights is None else pairs.times(weights / weights.mean())
            posterior = fit_scores(X, pairs, recipe, sample_weight=weights, folds=folds, groups=groups, rng=rng)
            return calibrate(
                posterior,
                place,
                sample_weight=weights,
                groups=groups,
                threshold=self.threshold,
                folds=folds,
                seed=int(rng.integers(2**31)),
            )

        one_score = classes.size == 2 or self.multi_class == "ordered"
        parts = [place] if one_score else [(place == k).astype(np.intp) for k in range(classes.size)]
        self._keep([score(part) for part in parts])
        self.classes_ = classes
        if hasattr(self, "coef_"):
            self.intercept_ = np.array([each.intercept for each in self.scores_])

    def decision_function(self, X: Any, return_std: bool = False) -> Any:
        """Mean score of each row, above zero where it is called positive.

        Parameters
        ----------
        X
            Rows.
        return_std
            Return the posterior standard deviation of each score too. It is that of the difference from the score of
            the average training row: a score has no origin of its own.

        Returns
        -------
        Array of shape (rows,), or a tuple of two. One-vs-rest, where scores have no common unit, the log-odds of each
        class, shape (rows, classes), which rank the rows as its score does.
        """
        X = self._validate_rows(X)
        if len(self.scores_) > 1:
            if return_std:
                raise ValueError("return_std=True is for one score; one-vs-rest see scores_[k].posterior.std(X).")
            return logit(self._one_vs_rest(X))
        [score] = self.scores_
        return (score.decision(X), score.posterior.std(X)) if return_std else score.decision(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of each row, by ``threshold``; one-vs-rest, the most probable one."""
        X = self._validate_rows(X)
        place = self.scores_[0].predict(X) if len(self.scores_) == 1 else self._one_vs_rest(X).argmax(axis=1)
        return self.classes_[place]

    def predict_proba(self, X: Any) -> FloatArray:
        """Probability of each class: how often training rows with such a score, left out of the fit, were of it.

        By isotonic regression on cross-fitted scores, see :mod:`pymc_pacauc.estimator.calibration`; one-vs-rest, scaled
        to sum to one.
        """
        X = self._validate_rows(X)
        if len(self.scores_) == 1:
            return self.scores_[0].probability(X)
        each = self._one_vs_rest(X)
        return each / each.sum(axis=1, keepdims=True)

    def _one_vs_rest(self, X: FloatArray) -> FloatArray:
        """Probability of each class against the rest, shape (rows, classes)."""
        return np.column_stack([each.probability(X)[:, 1] for each in self.scores_])

    def score(self, X: Any, y: ArrayLike, sample_weight: Any = None) -> float:
        """AUC of the mean score; one-vs-rest the mean over classes, with ordered classes the share of ordered pairs."""
        check_is_fitted(self)
        weights = check_weights(sample_weight, self._validate_rows(X))
        scores, y = self.decision_function(X), column_or_1d(y)
        check_consistent_length(scores, y)
        if not np.isin(y, self.classes_).all():
            raise ValueError(f"y has labels that were not seen in fit: {np.setdiff1d(y, self.classes_)}.")
        place = np.searchsorted(self.classes_, y)
        if weights is not None:
            seen = weights > 0.0
            scores, place, weights = scores[seen], place[seen], weights[seen]
        if np.unique(place).size < 2:
            raise ValueError("Only one class is present in y_true. The AUC is not defined in that case.")
        if scores.ndim == 1:
            ordered = self.classes_.size > 2
            return 1.0 - float(empirical_risk(scores, place, weights=weights, ordered=ordered))
        present = np.unique(place)
        return float(np.mean([1.0 - empirical_risk(scores[:, k], place == k, weights=weights) for k in present]))


def _enough(folds: Folds, classes: NDArray[Any], place: NDArray[np.intp]) -> Folds:
    """The folds; where only their number is given, at most as many as the smallest class has rows."""
    if classes.size < 2:
        raise ValueError(
            f"This classifier needs samples of at least 2 classes in the data, but the data contains only one class: "
            f"{classes[0]!r}."
        )
    least = int(np.bincount(place).min())
    if least < 2:
        raise ValueError(
            "The least populated class in y has only 1 member, which is too few. The minimum number of members of any "
            "class cannot be less than 2: one to fit, one to leave out."
        )
    if not isinstance(folds, int):
        return folds
    if least < folds:
        warnings.warn(
            f"The least populated class in y has only {least} members, which is less than cv={folds}: "
            f"there will be {least} folds.",
            stacklevel=6,
        )
    return min(folds, least)
