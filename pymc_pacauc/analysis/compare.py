"""Compare models by evidence, posterior probability, cross-validated AUC and certificate; cross-validate a result.

The evidence of a Gibbs posterior is the prior expectation of exp(-gamma * risk). Evidences of two models are comparable
if only the *prior* of the scores differs: covariates, kernel, variances. With another gamma, other rows or other pairs
they are different quantities, and refused; so is comparing lower bounds of variational Bayes with anything else.

log Z differs from the log evidence of a likelihood in that exp(-gamma * risk) is not normalised over data: posterior
model probabilities are those of the Gibbs posterior over models *and* scores, at this gamma.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import softmax

from pymc_pacauc.certify.certificate import certified_auc
from pymc_pacauc.comparison.folds import comparison_folds
from pymc_pacauc.ep.leave_out import LeaveOut
from pymc_pacauc.interrupt import raises_interrupts
from pymc_pacauc.model.approximation import EPApproximation
from pymc_pacauc.model.results import as_result
from pymc_pacauc.problem.provenance import Provenance
from pymc_pacauc.tune.gamma import paired_errors

WORDS = {
    "gamma": "gamma",
    "comparison": "what is compared",
    "n_pos": "the number of positive rows",
    "n_neg": "the number of negative rows",
    "m_eff": "weights or strata",
    "ties": "the cost of ties",
    "terms": "the number of AUC terms",
    "only_auc": "whether there is a likelihood besides",
    "pairs": "the labels of the rows, or which pairs are compared",
}


@raises_interrupts
def compare(
    results: Mapping[str, Any],
    *,
    prior: ArrayLike | None = None,
    folds: int = 5,
    epsilon: float = 0.05,
    random_seed: Any = 0,
) -> pd.DataFrame:
    """Compare models that were fitted to the same labels at the same gamma, and differ in their priors.

    Parameters
    ----------
    results : mapping of str to result
        Results of ``pm.fit(method=pac.EP())`` or ``pm.sample(step=pac.TemperingSMC())``, or fits of arrays, by name.
    prior : array_like, shape (models,), optional
        Prior probability of each model, in their order; by default equal.
    folds : int, default 5
        Number of folds of the cross-validated AUC, the same for all models; 0 for none.
    epsilon : float, default 0.05
        Probability with which certificates may fail, shared between the models, so that all of them hold at once.
    random_seed : int, Generator or None, default 0
        Seed of the folds.

    Returns
    -------
    DataFrame
        A row per model, the highest evidence first: ``rank``, ``log_evidence`` (nats) and its standard error ``se``
        (NaN: not known; expectation propagation gives none), ``delta`` from the best, posterior ``probability``,
        held-out ``auc`` of the mean score, how far it stays behind the best one (``auc_loss``) with the paired standard
        error of that over folds (``auc_loss_se``), ``certified_auc``, ``expected_auc`` of a draw on the training rows,
        ``coefficients``, ``method``, and ``warning``. The held-out AUC is NaN for draws, a certificate is NaN where
        there is none.

    Raises
    ------
    ValueError
        If there are fewer than two results, they were fitted to different labels or at different gammas, or a log
        evidence is not known.

    See Also
    --------
    compare_auc : Compare two scores on labelled rows.
    maximize_evidence : Choose hyper-parameters by the evidence.
    pymc_pacauc.plots.plot_compare : Draw the table.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_pacauc import arrays, compare
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(200, 4))
    >>> y = X[:, 0] + 0.5 * X[:, 1] + rng.normal(size=200) > 0
    >>> fits = {f"first {k}": arrays.fit(arrays.linear_gaussian_problem(X[:, :k], y, 200.0)) for k in (1, 2, 4)}
    >>> compare(fits)["rank"].to_dict()
    {'first 2': 0, 'first 4': 1, 'first 1': 2}
    """
    if len(results) < 2:
        raise ValueError(f"results must hold at least two models to compare; got {len(results)}.")
    found = {name: as_result(result) for name, result in results.items()}
    _check({name: result.fitted_to for name, result in found.items()})
    weights = np.ones(len(found)) if prior is None else np.asarray(prior, dtype=np.float64)
    if weights.shape != (len(found),) or not (weights > 0.0).all():
        raise ValueError(f"prior must be {len(found)} positive numbers, one for each model; got {prior!r}.")
    log_evidence = np.array([result.evidence.estimate for result in found.values()])
    unknown = [name for name, value in zip(found, log_evidence, strict=True) if not np.isfinite(value)]
    if unknown:
        raise ValueError(
            f"results has models without a log evidence, {', '.join(unknown)}: their fits did not converge. Fit them "
            "with more sweeps (max_sweeps=), or at a smaller gamma."
        )
    held_out = _held_out(results, found, folds, random_seed)
    table = pd.DataFrame(
        {
            "log_evidence": log_evidence,
            "se": [result.evidence.standard_error for result in found.values()],
            "delta": log_evidence.max() - log_evidence,
            "probability": softmax(log_evidence + np.log(weights)),
            **held_out,
            "certified_auc": [certified_auc(result, len(found), epsilon) for result in found.values()],
            "expected_auc": [1.0 - result.mean_risk.value for result in found.values()],
            "coefficients": [result.fitted_to.coefficients for result in found.values()],
            "method": [result.fitted_to.method for result in found.values()],
            "warning": [_warning(result) for result in found.values()],
        },
        index=pd.Index(found, name="model"),
    ).sort_values("log_evidence", ascending=False)
    table.insert(0, "rank", np.arange(len(table)))
    table.attrs["gamma"] = next(iter(found.values())).fitted_to.gamma
    return table


def _check(fitted: Mapping[str, Provenance]) -> None:
    """Refuse results whose evidences are not comparable."""
    (first, reference), *others = fitted.items()
    for name, other in others:
        different = [
            f"{words} ({getattr(reference, key)} and {getattr(other, key)})" if key != "pairs" else words
            for key, words in WORDS.items()
            if not _same(getattr(reference, key), getattr(other, key))
        ]
        if different:
            raise ValueError(
                f"The log evidences of {first!r} and {name!r} are not comparable; these differ: "
                f"{'; '.join(different)}. Fit both to the same rows and pairs at the same gamma."
            )
    methods = {each.method for each in fitted.values()}
    if "GaussianVB" in methods and len(methods) > 1:
        raise ValueError(
            "results has fits by variational Bayes, whose evidence is a lower bound and not comparable with that of "
            "other methods: fit all models by EP or SMC (or all by variational Bayes)."
        )
    if not reference.only_auc:
        raise ValueError(
            "results has a model with a likelihood besides the AUC term, so that log Z is not that of the AUC alone: "
            "compare models whose only terms are AUC potentials."
        )


def _same(a: Any, b: Any) -> bool:
    return bool(np.isclose(a, b, rtol=1e-9)) if isinstance(a, float) else a == b


def _held_out(
    results: Mapping[str, Any], found: Mapping[str, Any], folds: int, random_seed: Any
) -> dict[str, list[float]]:
    """Compute held-out AUCs of the mean scores on the same folds, and their loss against the best."""
    aucs: dict[str, Any] = {}
    for name, result in results.items():
        fit = getattr(as_result(result), "fit", None)
        if fit is not None and folds:
            fold = comparison_folds(fit.problem.pairs, folds, np.random.default_rng(random_seed))
            aucs[name] = fit.leave_out(fold).group_auc
    columns = {name: dict.fromkeys(found, np.nan) for name in ("auc", "auc_loss", "auc_loss_se")}
    if aucs:
        errors = paired_errors(np.array(list(aucs.values()))[:, None, :])
        for k, (name, values) in enumerate(aucs.items()):
            columns["auc"][name] = float(values.mean())
            columns["auc_loss"][name], columns["auc_loss_se"][name] = float(errors.loss[k]), float(errors.se[k])
    return {name: list(column.values()) for name, column in columns.items()}


def _warning(result: Any) -> str:
    tuned = "prior tuned on these data" if result.fitted_to.tuned_prior else ""
    return "; ".join(each for each in (result.caveat, tuned) if each)


@raises_interrupts
def leave_out(result: Any, groups: ArrayLike | None = None, **options: Any) -> LeaveOut:
    """Compute cross-validated scores of every observation.

    Each observation (or group) is removed from the fit, without a new fit from scratch.

    Parameters
    ----------
    result : approximation, draws or fit
        Result of ``pm.fit(method=pac.EP())`` or ``pac.GaussianVB()``, something that contains it, or an estimator.
    groups : array_like, shape (n,), optional
        Group label of each observation for k-fold or grouped cross-validation, left out together. By default
        each is left out alone; in certificates and intervals, by contrast, groups are the independent units.
    **options : dict
        ``refine``, ``n_jobs`` and ``progressbar``, as in :meth:`pymc_pacauc.results.EPApproximation.leave_out`.

    Returns
    -------
    LeaveOut
        Scores, shape (n,), with their variances and the cross-validated AUC.

    Raises
    ------
    TypeError
        If ``result`` does not contain a fit, such as draws by SMC.

    See Also
    --------
    select_gamma : Choose gamma by cross-validation.
    auc_interval : AUC on rows that were not fitted, with an interval.

    Examples
    --------
    >>> import numpy as np, pymc_pacauc as pac
    >>> X = np.random.default_rng(1).normal(size=(60, 2))
    >>> fit = pac.arrays.fit(pac.arrays.linear_gaussian_problem(X, X[:, 0] > 0.3, gamma=60.0))
    >>> pac.leave_out(fit, groups=np.arange(60) % 3).group_auc.shape
    (3,)
    """
    found = as_result(result)
    if isinstance(found, EPApproximation):
        return found.leave_out(groups, **options)
    if hasattr(found, "fit"):
        return found.fit.leave_out(groups, **options)
    if hasattr(result, "scores_"):
        raise TypeError("result has no training rows to leave out: fit the estimator with keep_data=True.")
    raise TypeError(
        f"result must be that of pm.fit(method=pac.EP()); got {type(result).__name__}: rows are left out of an "
        "approximation, not of draws. For tempering SMC, pac.select_gamma(model, [gamma], "
        'method="smc") cross-validates by refitting.'
    )
