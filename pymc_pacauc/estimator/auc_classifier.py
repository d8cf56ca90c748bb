"""A classifier for scikit-learn whose score maximises the AUC, with its posterior."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from pymc_pacauc.comparison.kinds import label_comparison, unordered_classes
from pymc_pacauc.comparison.risk import empirical_risk
from pymc_pacauc.estimator import all_or_nothing, base
from pymc_pacauc.estimator.calibration import FittedScore, calibrate, fit_softmax
from pymc_pacauc.estimator.posterior import Rows, fit_scores
from pymc_pacauc.numerics import FloatArray


def _calibrated(estimator: Any) -> bool:
    if estimator.calibration is None:
        raise AttributeError('calibration=None gives scores without probabilities: use calibration="auto".')
    return True


@dataclass(eq=False, repr=False)
class AUCClassifier(ClassifierMixin, base.ScoreEstimator):
    """Classify and rank rows by a linear score with the AUC Gibbs posterior of its coefficients.

    Parameters
    ----------
    prior : {"gaussian", "ridge", "spike_slab", "additive", "gp", "auto"}, default "gaussian"
        Prior of the coefficients. ``"gaussian"``: covariance ((1 - shrinkage) S + shrinkage I)^-1, S the covariance of
        the columns, with the best of four shrinkages by evidence, which the certificate counts. ``"ridge"``:
        independent with variance one; with more columns than rows ``"gaussian"`` is the same, and where these are many
        times more, of which few matter, it ranks hardly better than chance, as an L2 penalty does. ``"spike_slab"``:
        with a point mass at zero; it ranks better than these if few of many columns matter. ``"additive"``: the score
        is a sum of smooth functions, one for each column (:func:`~pymc_pacauc.additive_features`), with smoothness by
        evidence; :func:`~pymc_pacauc.plots.plot_shapes` draws them. ``"gp"``: the score is a Gaussian process of the
        columns' robust scores, with lengthscale by evidence; it has no certificate. Neither has ``coef_``. ``"auto"``:
        a weighted mean of the scores of ``"gaussian"``, the same of robust scores of the columns, ``"additive"`` and
        ``"gp"``, with weights by their ranking of rows left out: the best ranking on most data, at several times the
        cost; ``coef_``, ``gamma_``, ``log_evidence_``, ``approximation_`` and ``idata_`` are those of its linear part,
        and it has no certificate and no ``intercept_``.
    method : {"ep", "vb", "smc"}, default "ep"
        Expectation propagation, Gaussian variational Bayes, or draws of the exact posterior by tempering SMC (folds are
        by EP then too).
    gamma : {"cv", "certificate", "coverage", "default"} or float, default "cv"
        Inverse temperature, which sets how strongly ranking errors outweigh the prior: ``"cv"``, by the held-out AUC of
        the mean score; ``"certificate"``, by the certified AUC; ``"coverage"``, by the coverage of credible sets;
        ``"default"``, four times n+ n- / n; or a number.
    standardize : bool, default True
        Whether columns are scaled before the prior is put on their coefficients: by their standard deviation without
        far-out values (beyond three interquartile ranges from the quartiles), and at least by a fifth of the distance
        from the mean to the farthest other value. ``coef_`` is in the units of X in any case.
    calibration : {"auto", "sigmoid", "isotonic"} or None, default "auto"
        How scores of rows left out become probabilities: by a sigmoid, or by isotonic regression, which ``"auto"``
        takes from 2500 rows of the smaller class on. None: no probabilities, and no fits to leave rows out for them.
    random_state : int, RandomState or None, default 0
        Seed of draws: gamma, probabilities and classes do not depend on it, nor on the order of the rows.
    n_jobs : int or None, default None
        Threads; None is one, -1 all cores.
    verbose : int or bool, default False
        Whether to print what the fit is doing.
    class_weight : "balanced", dict of label: weight, or None, default None
        Weights of classes, multiplied with those of rows, for the probabilities and hence for :meth:`predict`, if
        classes are more or less frequent where the score is used. The ranking does not depend on them: every pair has
        a row of each class.
    multi_class : {"ovo", "ordered"}, default "ovo"
        With more than two classes ``"ovo"``: one score for each class, evaluated by Hand and Till's M, the mean AUC
        between its rows and those of each other class; ``"ordered"``: one score that ranks the classes in their order.
    keep_data : bool, default False
        Whether pickles and copies keep the training rows. Without them ``approximation_`` and ``pac.leave_out`` are not
        available in a copy. A Gaussian process keeps its pivots in any case, which are training rows.

    Attributes
    ----------
    classes_ : array of shape (classes,)
        Labels, sorted; with two of them the score is that of ``classes_[1]``.
    coef_ : array of shape (1, d), or (classes, d) with a score for each class
        Posterior mean of the coefficients of X.
    coef_sd_ : array, the same shape
        Their standard deviations, *calibrated* (:func:`~pymc_pacauc.tune.coverage.calibrated_posterior`): intervals of
        the direction of the coefficients have about their nominal coverage, whatever gamma is. With a spike-and-slab
        prior, and with fewer than two rows (or groups) for each column, those of the posterior.
    intercept_ : array of shape (1,) or (classes,)
        Constant of the mean score ``X @ coef_.T + intercept_``, which is above zero where a row is called positive.
    inclusion_probability_ : array
        Probability that a coefficient is not zero, as ``coef_``; one where the prior is Gaussian.
    gamma_, log_evidence_ : float
        Inverse temperature and log evidence of the fit; for several scores lists, like all that follows.
    certificate_ : Certificate
        Certified AUC with its conditions, at epsilon = 0.05; for another one ``pac.certificate(classifier, epsilon)``.
        With K scores each is certified at 0.05 / K; the mean of the K certified AUCs, ``pac.certificate(classifier)``,
        is a certified M of these linear scores. ``decision_function``, which combines them, is not certified.
    approximation_ : Fit
        The fit on arrays (:class:`~pymc_pacauc.arrays.Fit`).
    idata_ : InferenceData or DataTree
        1000 draws of the coefficients of X from the Gibbs posterior (this imports PyMC).
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : array of str
        Names of the columns of X, where it had any.

    See Also
    --------
    ConcordanceEstimator : The same for censored times.
    EP : The same posterior in a PyMC model of your own.
    pymc_pacauc.certificate : Certified AUC at another epsilon.

    Notes
    -----
    Sparse X is accepted, and made dense: 8 bytes for each cell. For another threshold than a probability of 1/2 use
    scikit-learn's ``TunedThresholdClassifierCV`` or ``FixedThresholdClassifier``.

    Examples
    --------
    >>> import pymc_pacauc as pac
    >>> X, y = pac.datasets.load_pima().X, pac.datasets.load_pima().y
    >>> classifier = pac.AUCClassifier().fit(X, y)
    >>> bool(0.8 < classifier.score(X, y) < 0.9), classifier.coef_.shape
    (True, (1, 7))
    """

    prior: str = "gaussian"
    _: KW_ONLY
    method: str = "ep"
    gamma: Any = "cv"
    standardize: Any = True
    calibration: str | None = "auto"
    random_state: Any = 0
    n_jobs: int | None = None
    verbose: Any = False
    class_weight: Any = None
    multi_class: str = "ovo"
    keep_data: Any = False

    @all_or_nothing
    def fit(self, X: Any, y: ArrayLike, sample_weight: Any = None, *, strata: Any = None, groups: Any = None) -> Any:
        """Fit the posterior of the coefficients, choose gamma and calibrate probabilities.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, columns)
            Numbers.
        y : array-like of shape (rows,)
            Labels, numbers or strings.
        sample_weight : array-like of shape (rows,), optional
            A weight >= 0 per row: a pair of rows weighs the product of theirs.
        strata : array-like of shape (rows,), optional
            A label per row: only rows of one stratum are compared (patients of one hospital).
        groups : array-like of shape (rows,), optional
            A label per row, such as its patient: groups, not rows, are the independent units of certificates and
            standard deviations, and a group is never split between folds.

        Returns
        -------
        AUCClassifier
            The classifier itself.

        Raises
        ------
        ValueError
            If y has fewer than two classes or one with a single row, X has NaN or infinite values, or an option is
            unknown.

        Warns
        -----
        ConvergenceWarning
            If a fit does not converge.

        See Also
        --------
        AUCClassifier.decision_function : Scores of rows.
        AUCClassifier.predict : Classes of rows.

        Examples
        --------
        >>> import numpy as np, pymc_pacauc as pac
        >>> X = np.random.default_rng(1).normal(size=(60, 2))
        >>> pac.AUCClassifier(gamma=30).fit(X, X[:, 0] > 0.3).classes_
        array([False,  True])
        """
        if self.class_weight is not None and self.calibration is None:
            raise ValueError('class_weight= is for probabilities, and calibration=None has none: use "auto".')
        recipe = self._recipe()
        X, y = self._validate_rows(X, y, fitting=True)
        check_classification_targets(y)
        weights, strata, groups, X, y = base.checked_rows(sample_weight, strata, groups, X, y)
        classes, place = np.unique(y, return_inverse=True)
        leaves_out = self.calibration is not None or recipe.gamma == "cv"
        if classes.size < 2:
            raise ValueError(f"y must have at least two classes; got only one class, {classes[0]}.")
        if leaves_out and np.bincount(place).min() < 2:
            rare = classes[np.bincount(place).argmin()]
            raise ValueError(f"y has only 1 member of class {rare}, and needs one to fit and one to leave out.")
        if self.multi_class == "ordered" and classes.size > 2 and classes.dtype.kind not in "biuf":
            raise ValueError(
                f'multi_class="ordered" needs numbers as labels, not {" < ".join(map(str, classes))} of the alphabet: '
                "pass the codes of an ordered pandas column, y.cat.codes."
            )
        counted = weights
        if self.class_weight is not None:
            counted = compute_sample_weight(self.class_weight, y) * (1.0 if weights is None else weights)

        def score(part: NDArray[np.intp], pairs: Any) -> FittedScore:
            folds = base.usable_folds(pairs, groups, leaves_out)
            posterior = fit_scores(recipe, Rows(X, pairs, weights, groups, folds))
            recipe.tell("calibrating")
            return calibrate(posterior, part, sample_weight=counted, calibration=self.calibration, folds=folds)

        if classes.size == 2 or self.multi_class == "ordered":
            fitted = [score(place, label_comparison(place, strata=strata, weights=weights, ordered=True))]
        else:
            rest = unordered_classes(place, weights, strata)
            fitted = [score((place == k).astype(np.intp), pairs) for k, pairs in enumerate(rest)]
            if self.calibration is not None:
                held_out = np.column_stack([np.asarray(each.held_out) for each in fitted])
                self.softmax_ = fit_softmax(held_out, place, counted)
        self._keep(fitted)
        self.classes_ = classes
        if hasattr(self, "coef_") and self.prior != "auto":
            self.intercept_ = np.array([each.intercept for each in self.scores_])

    def decision_function(self, X: Any, return_std: bool = False) -> Any:
        """Compute the mean score of each row, above zero where it is called positive.

        Parameters
        ----------
        X : array-like of shape (rows, columns)
            Rows.
        return_std : bool, default False
            Return the calibrated standard deviation of each score too. It is that of the difference from the score of
            the average training row: a score has no origin of its own.

        Returns
        -------
        scores : ndarray, shape (rows,) or (rows, classes)
            With a score for each class, logarithms of the probabilities plus a constant for each row, such that a
            column ranks rows as the probability of its class does if all classes were equally frequent, which is what
            M judges. Without calibration the scores in standard units.
        std : ndarray, shape (rows,)
            Only with ``return_std=True``.

        Raises
        ------
        ValueError
            If X has other columns than in ``fit``, or ``return_std=True`` with a score for each class.

        See Also
        --------
        AUCClassifier.predict_proba : Probabilities of the classes.

        Examples
        --------
        >>> import numpy as np, pymc_pacauc as pac
        >>> X = np.random.default_rng(1).normal(size=(60, 2))
        >>> classifier = pac.AUCClassifier(gamma=30).fit(X, X[:, 0] > 0.3)
        >>> classifier.decision_function([[2.0, 0.0], [-2.0, 0.0]]) > 0
        array([ True, False])
        """
        X = self._validate_rows(X)
        if len(self.scores_) > 1:
            if return_std:
                raise ValueError("return_std=True is for one score; for several use scores_[k].posterior.std(X).")
            standard = np.column_stack([each.standard(X) for each in self.scores_])
            return standard if self.calibration is None else self.softmax_.decision(standard)
        return self._decide(X, return_std)

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the most probable class of each row; of two, the one whose probability exceeds 1/2.

        Parameters
        ----------
        X : array_like, shape (rows, columns)
            Rows.

        Returns
        -------
        ndarray, shape (rows,)
            A label of ``classes_`` for each row.

        Raises
        ------
        ValueError
            If X has other columns than in ``fit``, or values that are not finite.

        See Also
        --------
        AUCClassifier.predict_proba : Probabilities of the classes.

        Examples
        --------
        >>> import numpy as np, pymc_pacauc as pac
        >>> X = np.random.default_rng(1).normal(size=(60, 2))
        >>> pac.AUCClassifier(gamma=30).fit(X, X[:, 0] > 0.3).predict([[2.0, 0.0], [-2.0, 0.0]])
        array([ True, False])
        """
        found = self._validate_rows(X)
        place = self.scores_[0].predict(found) if len(self.scores_) == 1 else self.decision_function(X).argmax(axis=1)
        return self.classes_[place]

    @available_if(_calibrated)
    def predict_proba(self, X: Any) -> FloatArray:
        """Estimate the probability of each class.

        The share of that class among training rows with such a score, each left out of the fit when it was scored.

        Parameters
        ----------
        X : array_like, shape (rows, columns)
            Rows.

        Returns
        -------
        ndarray, shape (rows, classes)
            Probabilities, in the order of ``classes_``; see :mod:`pymc_pacauc.estimator.calibration`.

        Raises
        ------
        ValueError
            If X has other columns than in ``fit``, or values that are not finite.

        See Also
        --------
        AUCClassifier.decision_function : Scores, which need no calibration.

        Examples
        --------
        >>> import numpy as np, pymc_pacauc as pac
        >>> X = np.random.default_rng(1).normal(size=(60, 2))
        >>> bool(pac.AUCClassifier(gamma=30).fit(X, X[:, 0] > 0.3).predict_proba([[2.0, 0.0]])[0, 1] > 0.5)
        True
        """
        check_is_fitted(self)
        if len(self.scores_) > 1:
            return np.asarray(softmax(self.decision_function(X), axis=1))
        return self.scores_[0].probability(self._validate_rows(X))

    @available_if(_calibrated)
    def predict_log_proba(self, X: Any) -> FloatArray:
        """Estimate the logarithm of the probability of each class.

        Parameters
        ----------
        X : array_like, shape (rows, columns)
            Rows.

        Returns
        -------
        ndarray, shape (rows, classes)
            Logarithms of :meth:`predict_proba`.

        Raises
        ------
        ValueError
            If X has other columns than in ``fit``, or values that are not finite.

        See Also
        --------
        AUCClassifier.predict_proba : The probabilities.

        Examples
        --------
        >>> import numpy as np, pymc_pacauc as pac
        >>> X = np.random.default_rng(1).normal(size=(60, 2))
        >>> pac.AUCClassifier(gamma=30).fit(X, X[:, 0] > 0.3).predict_log_proba([[2.0, 0.0]]).shape
        (1, 2)
        """
        return np.log(self.predict_proba(X))

    def score(self, X: Any, y: ArrayLike, sample_weight: Any = None, *, strata: Any = None) -> float:
        """Compute the AUC of the mean score on labelled rows.

        Of unordered classes Hand and Till's M, of ordered ones the share of ordered pairs.

        Parameters
        ----------
        X : array-like of shape (rows, columns)
            Rows.
        y : array-like of shape (rows,)
            Labels.
        sample_weight : array-like of shape (rows,), optional
            A weight >= 0 per row.
        strata : array-like of shape (rows,), optional
            A label per row: only rows of one stratum are compared, as in :meth:`fit`. In a search, ask for them by
            ``set_score_request(strata=True)``.

        Returns
        -------
        float
            AUC, M or concordance, in [0, 1].

        Raises
        ------
        ValueError
            If y has one class only, or labels that were not seen in ``fit``.

        See Also
        --------
        pymc_pacauc.auc_interval : AUC with an interval.

        Examples
        --------
        >>> import numpy as np, pymc_pacauc as pac
        >>> X = np.random.default_rng(1).normal(size=(60, 2))
        >>> y = X[:, 0] > 0.3
        >>> pac.AUCClassifier(gamma=30).fit(X, y).score(X, y) > 0.9
        True
        """
        check_is_fitted(self)
        scores, labels = self.decision_function(X), column_or_1d(y)
        check_consistent_length(scores, labels)
        if not np.isin(labels, self.classes_).all():
            raise ValueError(f"y has labels that were not seen in fit: {np.setdiff1d(labels, self.classes_)}.")
        weights, strata, _, scores, labels = base.checked_rows(sample_weight, strata, None, scores, labels)
        place = np.searchsorted(self.classes_, labels)
        present = np.unique(place)
        if present.size < 2:
            raise ValueError("Only one class is present in y_true. The AUC is not defined in that case.")
        if scores.ndim == 1:
            return 1.0 - float(empirical_risk(scores, place, strata=strata, weights=weights, ordered=True))
        return 1.0 - float(empirical_risk(scores[:, present], place, strata=strata, weights=weights, multi_class="ovo"))
