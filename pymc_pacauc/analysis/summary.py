"""Tables of results: one posterior (:func:`summary`), several models (:func:`compare`), and cross-validated scores.

*Comparing models.* The evidence of a Gibbs posterior is the prior expectation of exp(-gamma * risk). Evidences of two
models are comparable if only the *prior* of the scores differs: covariates, kernel, variances. With another gamma,
other rows or other pairs they are different quantities, and refused; so is comparing lower bounds of variational Bayes
with anything else. log Z differs from the log evidence of a likelihood in that exp(-gamma * risk) is not normalised
over data: posterior model probabilities are those of the Gibbs posterior over models *and* scores, at this gamma.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike
from scipy.special import expit, logit, ndtr, ndtri, softmax
from scipy.stats import rankdata

from pymc_pacauc.array_result import html_report
from pymc_pacauc.certify.certificate import certified, certified_auc
from pymc_pacauc.comparison.folds import comparison_folds
from pymc_pacauc.comparison.risk import pair_risk
from pymc_pacauc.ep.leave_out import LeaveOut
from pymc_pacauc.interrupt import raises_interrupts
from pymc_pacauc.model.approximation import EPApproximation
from pymc_pacauc.model.auc_term import auc_terms
from pymc_pacauc.model.compat import CI_PROB, inference_data
from pymc_pacauc.model.deployed import draw_dims, draws_first, mean_score
from pymc_pacauc.model.graph import evaluate_at_draws
from pymc_pacauc.model.idata import coefficient_labels
from pymc_pacauc.model.nested import NestedApproximation
from pymc_pacauc.model.read import problem_of
from pymc_pacauc.model.results import as_result, check_model, dataset_of
from pymc_pacauc.numerics import DRAWS, NUMBERS_AT_ONCE, FloatArray, check_probability, tails
from pymc_pacauc.problem.provenance import Provenance, differing
from pymc_pacauc.tune.gamma import paired_errors


def inclusion_probability(result: Any, *, var_name: str | None = None, model: pm.Model | None = None) -> xr.DataArray:
    """Compute inclusion probabilities of a :func:`~pymc_pacauc.SpikeSlab` variable.

    For draws with v0 = 0 the indicators are counted; with v0 > 0 the probability of the slab given the coefficient is
    averaged over draws.

    Parameters
    ----------
    result : approximation, draws or fit
        Result of ``pm.sample(step=pac.TemperingSMC())``, fresh or read from a file; or an approximation, whose own
        ``inclusion_probability`` is returned.
    var_name : str, optional
        Name of the variable, when there is more than one.
    model : pymc.Model, optional
        The model, which draws with v0 > 0 need; by default the one on the context stack.

    Returns
    -------
    xarray.DataArray
        Probability of the slab for each coefficient, with the variable's dims.

    Raises
    ------
    ValueError
        If there is no spike-and-slab variable, or several and ``var_name`` is not given.
    TypeError
        If ``result`` is not of a kind described above.

    See Also
    --------
    SpikeSlab : The prior.
    pymc_pacauc.plots.plot_inclusion : Draw the probabilities.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> X = np.random.default_rng(1).normal(size=(80, 4))
    >>> with pm.Model():
    ...     theta = pac.SpikeSlab("theta", p=0.2, shape=4)
    ...     auc = pac.AUCPotential("auc", X @ theta, X[:, 0] > 0.2, gamma=80)
    ...     approx = pm.fit(method=pac.EP(), progressbar=False)
    >>> pac.inclusion_probability(approx).round(1).values
    array([1., 0., 0., 0.])
    """
    if isinstance(result, EPApproximation):
        found = result.inclusion_probability
        return found if isinstance(found, xr.DataArray) else found[_choose(list(found), var_name)]
    posterior = dataset_of(result, "posterior")
    if posterior is None:
        raise TypeError(f"result must be an approximation or an idata with a posterior; got {type(result).__name__}.")
    if model is None and pm.Model.get_context(error_if_none=False) is None:
        return _counted(posterior, var_name)
    model = pm.modelcontext(model)
    sparse = {each.name: each for each in problem_of(model).sparse}
    name = _choose(list(sparse), var_name)
    if sparse[name].dirac:
        return _counted(posterior, name)
    p, v0, v1 = sparse[name].read()
    theta = posterior[name].transpose("chain", "draw", ...)
    p, v0, v1 = (np.reshape(each, theta.shape[2:]) for each in (p, v0, v1))
    odds = logit(p) + 0.5 * (np.log(v0 / v1) + theta**2 * (1.0 / v0 - 1.0 / v1))
    return odds.copy(data=expit(odds)).mean(("chain", "draw")).rename(f"{name}_inclusion")


def _choose(names: list[str], var_name: str | None) -> str:
    """Return the name of the spike-and-slab variable that is meant, among those there are."""
    if not names:
        raise ValueError("inclusion_probability needs a pac.SpikeSlab variable; without one all are included.")
    if var_name is None and len(names) > 1:
        raise ValueError(f"The model has several SpikeSlab variables; choose one of {names} by var_name=.")
    if var_name is not None and var_name not in names:
        raise ValueError(f"var_name={var_name!r} is no SpikeSlab variable; these are {names}.")
    return names[0] if var_name is None else var_name


def _counted(posterior: xr.Dataset, var_name: str | None) -> xr.DataArray:
    """Return the shares of draws in which each coefficient of a variable is included."""
    names = _sparse_names(posterior)
    if not names:
        raise ValueError("result has no draws of indicators (of a SpikeSlab variable with v0 = 0): pass model= too.")
    name = _choose(names, var_name)
    return posterior[f"{name}_included"].mean(("chain", "draw")).rename(f"{name}_inclusion")


def summary(
    result: Any,
    *,
    epsilon: float = 0.05,
    ci_prob: float = 0.9,
    var_names: Sequence[str] | None = None,
    model: pm.Model | None = None,
    top: float | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Summarise an approximation or draws: coefficients, AUC, evidence and certificate; or draws of scores.

    Parameters
    ----------
    result : EPApproximation, InferenceData, DataTree, Dataset or DataArray
        Result of ``pm.fit(method=pac.EP())`` or ``pm.sample(step=pac.TemperingSMC())``, or draws read from a file;
        a fitted estimator (its coefficients with calibrated spread); or draws of scores, as
        :func:`~pymc_pacauc.predict_scores` returns them.
    epsilon : float, default 0.05
        Probability with which the certificate may fail.
    ci_prob : float, default 0.9
        Probability of the intervals: central ones of an approximation, of scores and of ranks; ArviZ's of draws.
    var_names : sequence of str, optional
        Variables of the table; by default all but those with an entry for each observation or very many.
    model : pm.Model, optional
        The model that ``result`` was fitted to. Draws by TemperingSMC need it for the AUC of their mean score, nothing
        else does.
    top : float, optional
        For scores: a share of the rows, such as 0.1. The highest ``top`` of them, rounded to a whole number of at least
        one, are the top.
    **options : dict
        Passed to ``arviz.summary``.

    Returns
    -------
    DataFrame
        For draws of scores, a row per observation: ``mean`` and ``sd`` of the score with the interval ``lower`` to
        ``upper``; ``rank`` among these rows (posterior mean; 1 is the highest score, ties share the mean rank) with
        ``rank_lower`` to ``rank_upper``; and with ``top`` the probability ``in_top`` of being among the highest, to
        which a tie at the border counts in part.

        Else a row per coefficient: ArviZ's summary of draws, or, for an approximation, its mean, standard deviation,
        central interval and probability of being positive, in closed form; with the probability of inclusion of a
        :func:`~pymc_pacauc.SpikeSlab` variable. Its ``attrs`` hold ``method``, ``gamma``, ``measure`` (what 1 - risk is
        called: AUC, partial AUC or concordance; the entries called auc are of this), ``auc`` (of the mean score, the
        one to deploy, on the training pairs; NaN for draws by SMC without their model), ``expected_auc`` (of a draw
        from the posterior, a randomised score, on the same), ``log_evidence``, ``log_evidence_se``, ``certificate``
        (None with ``note`` saying why not), ``note``, and all this in words as ``report``. Of a fit on a subsample
        ``pairs_used`` is their number (else None) and ``sampling_error`` that of the mean, in posterior standard
        deviations.

    Raises
    ------
    ValueError
        If ``var_names`` names no variable of ``result``, or ``epsilon``, ``ci_prob`` or ``top`` is out of its range.
    TypeError
        If ``result`` is not of a kind described above, or an option is not one of a summary of scores.

    See Also
    --------
    predict_scores : Scores of new rows.
    certificate : The certified AUC alone.
    inclusion_probability : Inclusion probabilities alone.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> X = np.random.default_rng(1).normal(size=(60, 2))
    >>> with pm.Model(coords={"covariate": ["a", "b"]}):
    ...     theta = pm.Normal("theta", dims="covariate")
    ...     auc = pac.AUCPotential("auc", X @ theta, X[:, 0] > 0.3, gamma=40)
    ...     approx = pm.fit(method=pac.EP(), progressbar=False)
    >>> table = pac.summary(approx)
    >>> list(table.index), table.attrs["method"]
    (['theta[a]', 'theta[b]'], 'EP')
    >>> list(pac.summary(pac.predict_scores(approx, X[:5], random_seed=1), top=0.2))
    ['mean', 'sd', 'lower', 'upper', 'rank', 'rank_lower', 'rank_upper', 'in_top']
    """
    check_probability("ci_prob", ci_prob)
    if isinstance(result, xr.DataArray) or (isinstance(result, xr.Dataset) and {"mean", "sd"} <= set(result)):
        if options:
            raise TypeError(f"A summary of scores takes ci_prob= and top=; got {', '.join(options)}.")
        return _summary_of_scores(result, ci_prob, top)
    if top is not None:
        raise ValueError(
            f"top={top!r} is for draws of scores: pac.summary(pac.predict_scores(result, X_new), top={top!r})."
        )
    fit_result = as_result(result)
    fitted = fit_result.fitted_to
    if model is not None:
        check_model(fitted, model)
    certificate, refusal = certified(fit_result, epsilon)
    notes = [f"no certificate: {refusal}"] if refusal else []
    if hasattr(result, "scores_"):
        table = _of_estimator(result, ci_prob)
    elif isinstance(fit_result, EPApproximation) and not _by_draws(fit_result):
        table = _closed_form(fit_result, ci_prob, var_names)
    else:
        table, omitted = _of_draws(fit_result, result, var_names, {CI_PROB: ci_prob, **options})
        notes += [f"left out of the table for their size: {', '.join(omitted)}"] if omitted else []
    table.attrs.update(
        method=fitted.method,
        gamma=fitted.gamma,
        measure=fitted.measure,
        auc=_training_auc(fit_result, model),
        expected_auc=1.0 - fit_result.mean_risk.value,
        log_evidence=fit_result.evidence.estimate,
        log_evidence_se=fit_result.evidence.standard_error,
        certificate=certificate,
        note="; ".join(notes),
        estimator=hasattr(result, "scores_"),
        pairs_used=fitted.pairs_used or None,
        sampling_error=fitted.mean_error,
    )
    table.attrs["report"] = _report(table.attrs, fitted.terms)
    return Summary(table)


def _by_draws(approx: EPApproximation) -> bool:
    """Return whether draws are summarised: of a mixture, or of transformed variables, such as zero-sum ones."""
    return isinstance(approx, NestedApproximation) or bool(approx.source.transformed)


def _of_draws(
    drawn: Any, source: Any, var_names: Sequence[str] | None, options: dict[str, Any]
) -> tuple[pd.DataFrame, list[str]]:
    """Return ArviZ's table of the draws, with inclusion probabilities, and the variables that are too large for it."""
    if isinstance(drawn, EPApproximation):
        source, drawn = drawn, as_result(drawn.sample(DRAWS, random_seed=0))
        options = {"kind": "stats", **options}
    if drawn.posterior is None:
        raise TypeError("result has no posterior group to summarise.")
    names, omitted = _variables(drawn.posterior, var_names, drawn.fitted_to.n_pos + drawn.fitted_to.n_neg)
    table = az.summary(inference_data({"posterior": drawn.posterior}), var_names=names, **options)
    for name in _sparse_names(drawn.posterior):
        probability = inclusion_probability(source, var_name=name).values.ravel()
        rows = [label for label in table.index if label.partition("[")[0] == name]
        if len(rows) == probability.size:
            table.loc[rows, "inclusion"] = probability.round(3)
    return table, omitted


def _sparse_names(posterior: xr.Dataset) -> list[str]:
    """Return the names of the spike-and-slab variables whose indicators were drawn."""
    return [str(name).removesuffix("_included") for name in posterior.data_vars if str(name).endswith("_included")]


def _summary_of_scores(scores: Any, ci_prob: float, top: float | None) -> pd.DataFrame:
    """Summarise draws of scores: a row for each observation, with its rank."""
    if not isinstance(scores, xr.DataArray) or not draw_dims(scores):
        raise TypeError(
            "summary() needs draws of scores, as predict_scores() returns them without summary=True; got "
            f"{type(scores).__name__}{'' if isinstance(scores, xr.Dataset) else f' with dims {scores.dims}'}."
        )
    if top is not None:
        check_probability("top", top)
    scores = draws_first(scores)
    if len(draw_dims(scores)) == scores.ndim:
        raise ValueError(f"scores has one row only (dims {scores.dims}); ranks are among several rows.")
    row, values = scores.dims[-1], scores.values.reshape(-1, scores.shape[-1])
    if not values.size or not np.isfinite(values).all():
        raise ValueError(f"scores must be finite, with at least one draw and one row; got shape {scores.shape}.")
    ranks, tail = rankdata(-values, axis=1), tails(ci_prob)
    columns = {"mean": np.asarray(mean_score(scores)), "sd": values.std(axis=0)}
    columns["lower"], columns["upper"] = np.quantile(values, tail, axis=0)
    columns["rank"] = ranks.mean(axis=0)
    columns["rank_lower"], columns["rank_upper"] = np.quantile(ranks, tail, axis=0)
    if top is not None:
        number = max(1, round(top * values.shape[1]))
        border = np.sort(values, axis=1)[:, [-number]]
        above, tied = values > border, values == border
        places = number - above.sum(axis=1, keepdims=True)
        columns["in_top"] = (above + tied * (places / tied.sum(axis=1, keepdims=True))).mean(axis=0)
    return pd.DataFrame(columns, index=scores[row].to_index())


class Summary(pd.DataFrame):
    """A DataFrame with a report, which notebooks show above it; operations on it return ordinary DataFrames."""

    def __init__(self, table: pd.DataFrame):
        super().__init__(table)
        self.attrs = table.attrs

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    def _repr_html_(self) -> str | None:
        table = super()._repr_html_()  # None where pandas is told not to make any
        return table and html_report(self.attrs["report"]) + table


def _report(attrs: dict[str, Any], terms: int) -> str:
    """Write the numbers about the whole fit as lines of text, those above the table in notebooks."""
    error = "" if np.isnan(attrs["log_evidence_se"]) else f" ± {attrs['log_evidence_se']:.3f}"
    measure, given = attrs["measure"], attrs["certificate"]
    rows = {
        f"{measure} of a draw": f"{attrs['expected_auc']:.4f} on average: a randomised score (training rows)",
        "log evidence": f"{attrs['log_evidence']:.3f}{error}",
    }
    if not np.isnan(attrs["auc"]):
        rows = {measure: f"{attrs['auc']:.4f} of the mean score, the one to deploy (training rows)", **rows}
    elif terms == 1 and not attrs["estimator"]:
        rows = {measure: "of the mean score, the one to deploy: pass model=, the model of these draws", **rows}
    if given is not None:
        sure = f"with probability {1 - given.epsilon:g} ({given.bound}; under the assumptions in the certificate)"
        rows[f"certified {measure}"] = f"{given.auc:.4f} of the randomised score, {sure}"
    if attrs["pairs_used"]:
        rows["pairs used"] = f"{attrs['pairs_used']}, sampled: mean ± {attrs['sampling_error']:.2g} posterior sd"
    if attrs["note"]:
        rows["note"] = attrs["note"]
    width = max(map(len, rows)) + 2
    title = f"{measure[0].upper()}{measure[1:]} Gibbs posterior by {attrs['method']}, gamma = {attrs['gamma']:g}"
    return "\n".join([title, *(f"  {label:<{width}}{text}" for label, text in rows.items())])


def _training_auc(fit_result: Any, model: pm.Model | None) -> float:
    """Compute the AUC of the mean score on the training rows; NaN where these are not known."""
    known = float(getattr(fit_result, "training_auc", np.nan))
    terms = auc_terms(model) if model is not None and np.isnan(known) else []
    if len(terms) != 1:
        return known
    assert model is not None
    scores = evaluate_at_draws(model, terms[0].scores, fit_result.posterior).mean(axis=(0, 1))
    return 1.0 - float(pair_risk(scores[None], terms[0].comparison)[0])


def _closed_form(approx: EPApproximation, ci_prob: float, var_names: Sequence[str] | None) -> pd.DataFrame:
    """Summarise the coefficients of an approximation; with the exact length, intervals are quantiles of draws."""
    mean, sd = approx.posterior.mean, np.sqrt(approx.posterior.variance)
    inclusion = approx.fit.inclusion_probability if approx.source.sparse else None
    table = _intervals(mean, sd, coefficient_labels(approx.model, approx.source.names), ci_prob, inclusion).round(3)
    if approx.posterior is not approx.fit.posterior:  # with the exact length it is no Gaussian
        # Quantiles of 20 000 draws have an error of 0.02 posterior standard deviations; of twice as many, 0.014.
        number = int(np.clip(10 * NUMBERS_AT_ONCE // mean.size, 1000, 20_000))
        drawn = approx.posterior.draw(number, np.random.default_rng(0))
        low, high = np.quantile(drawn, tails(ci_prob), axis=0)
        for name, values in zip(table.columns[2:5], (low, high, np.mean(drawn > 0.0, axis=0)), strict=True):
            table[name] = values.round(3)
    if var_names is None:
        return table
    return table[[label.partition("[")[0] in set(var_names) for label in table.index]]


def _of_estimator(estimator: Any, ci_prob: float) -> pd.DataFrame:
    """Summarise the coefficients of X with calibrated spread, in the units of X."""
    posterior = estimator.scores_[0].posterior
    if posterior.features is not None:
        raise TypeError("summary() is for scores that are linear in X; for this estimator use report().")
    return coefficient_table(estimator, posterior, ci_prob).round(3)


def coefficient_table(estimator: Any, posterior: Any, ci_prob: float, scale: Any = 1.0) -> pd.DataFrame:
    """Summarise an estimator's coefficients of columns in units of ``scale``, with calibrated spread."""
    inclusion = posterior.fit.inclusion_probability
    included = inclusion if (inclusion < 1.0).any() else None
    return _intervals(posterior.coef * scale, posterior.coef_sd * scale, estimator._feature_names(), ci_prob, included)


@np.errstate(divide="ignore", invalid="ignore")  # a coefficient that is known exactly
def _intervals(
    mean: FloatArray, sd: FloatArray, names: Sequence[str], ci_prob: float, inclusion: FloatArray | None
) -> pd.DataFrame:
    """Make a table of Gaussian coefficients: mean, sd, ends of the central interval, P(> 0), inclusion."""
    tail = tails(ci_prob)[0]
    columns = {
        "mean": mean,
        "sd": sd,
        f"{tail:.1%}": mean + ndtri(tail) * sd,
        f"{1 - tail:.1%}": mean - ndtri(tail) * sd,
        "P(> 0)": ndtr(mean / sd),
    }
    if inclusion is not None:
        columns["inclusion"] = inclusion
    return pd.DataFrame(columns, index=names)


def _variables(posterior: Any, var_names: Sequence[str] | None, observations: int) -> tuple[list[str], list[str]]:
    """Return the variables to show, and those that are left out for their size."""
    if var_names is not None:
        return list(var_names), []
    draws = posterior.sizes["chain"] * posterior.sizes["draw"]
    size = {str(name): posterior[name].size // draws for name in posterior.data_vars}
    # 500 entries fill ten pages; doubled, twice as many.
    omitted = [name for name, n in size.items() if n > 500 or n == observations]
    parts = {f"{name}_{part}" for name in size for part in ("slab", "latent", "included")}  # of a SpikeSlab variable
    return [name for name in size if name not in omitted and name not in parts], omitted


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
def compare(results: Mapping[str, Any], *, folds: int = 5, epsilon: float = 0.05, random_seed: Any = 0) -> pd.DataFrame:
    """Compare models that were fitted to the same labels at the same gamma, and differ in their priors.

    Parameters
    ----------
    results : mapping of str to result
        Results of ``pm.fit(method=pac.EP())`` or ``pm.sample(step=pac.TemperingSMC())``, or fits of arrays, by name.
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
    TypeError
        If one of ``results`` is not of these kinds.

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
    _check_comparable({name: result.fitted_to for name, result in found.items()})
    log_evidence = np.array([result.evidence.estimate for result in found.values()])
    unknown = [name for name, value in zip(found, log_evidence, strict=True) if not np.isfinite(value)]
    if unknown:
        raise ValueError(
            f"results has models without a log evidence, {', '.join(unknown)}: their fits did not converge. Fit them "
            "with more sweeps (max_sweeps=), or at a smaller gamma."
        )
    held_out = _held_out(found, folds, random_seed)
    table = pd.DataFrame(
        {
            "log_evidence": log_evidence,
            "se": [result.evidence.standard_error for result in found.values()],
            "delta": log_evidence.max() - log_evidence,
            "probability": softmax(log_evidence),
            **held_out,
            "certified_auc": [certified_auc(result, epsilon, len(found)) for result in found.values()],
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


def _check_comparable(fitted: Mapping[str, Provenance]) -> None:
    """Refuse results whose evidences are not comparable."""
    (first, reference), *others = fitted.items()
    for name, other in others:
        different = [
            words if key == "pairs" else f"{words} ({mine} and {theirs})"
            for key, words, mine, theirs in differing(reference, other, WORDS)
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


def _held_out(found: Mapping[str, Any], folds: int, random_seed: Any) -> pd.DataFrame:
    """Compute held-out AUCs of the mean scores on the same folds, and their loss against the best."""
    fits = {name: result.fit for name, result in found.items() if folds and hasattr(result, "fit")}
    table = pd.DataFrame(np.nan, index=list(found), columns=["auc", "auc_loss", "auc_loss_se"])
    if fits:
        pairs = next(iter(fits.values())).problem.pairs  # those of all
        fold = comparison_folds(pairs, folds, np.random.default_rng(random_seed))
        aucs = np.array([each.leave_out(fold).group_auc for each in fits.values()])
        errors = paired_errors(aucs[:, None, :])
        table.loc[list(fits)] = np.column_stack([aucs.mean(axis=1), errors.loss, errors.se])
    return table


def _warning(result: Any) -> str:
    """Say what a reader must know to compare this result: its caveat, or a prior tuned on the same data."""
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
    if hasattr(found, "fit"):
        return (found if isinstance(found, EPApproximation) else found.fit).leave_out(groups, **options)
    if hasattr(result, "scores_"):
        raise TypeError("result has no training rows to leave out: fit the estimator with keep_data=True.")
    raise TypeError(
        f"result must be that of pm.fit(method=pac.EP()); got {type(result).__name__}: rows are left out of an "
        "approximation, not of draws. For tempering SMC, pac.select_gamma(model, [gamma], "
        'method="smc") cross-validates by refitting.'
    )
