"""Summary table of a posterior, and inclusion probabilities of a spike-and-slab variable from draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from scipy.special import expit, ndtr, ndtri
from scipy.stats import rankdata

from pymc_pacauc.array_result import html_report
from pymc_pacauc.certify.certificate import Certificate, certificate
from pymc_pacauc.comparison.risk import comparison_risk
from pymc_pacauc.model.approximation import EPApproximation
from pymc_pacauc.model.auc_term import auc_terms
from pymc_pacauc.model.compat import inference_data
from pymc_pacauc.model.deployed import draw_dims, draws_first, mean_score
from pymc_pacauc.model.graph import evaluate_at_draws
from pymc_pacauc.model.idata import coefficient_labels, labelled
from pymc_pacauc.model.nested import NestedApproximation
from pymc_pacauc.model.read import problem_of
from pymc_pacauc.model.results import as_result, check_model, dataset_of
from pymc_pacauc.numerics import DRAWS, NUMBERS_AT_ONCE, FloatArray, check_probability, tails
from pymc_pacauc.problem.problem import Problem

# Draws for quantiles of an approximation: their error is 0.02 posterior standard deviations; doubled, 0.014.
QUANTILE_DRAWS = 20_000


def inclusion_probability(result: Any, *, var_name: str | None = None, model: pm.Model | None = None) -> xr.DataArray:
    """Compute inclusion probabilities of a :func:`~pymc_pacauc.SpikeSlab` variable, with the indicators averaged out.

    Given everything else, the indicator of a coefficient is a Bernoulli variable whose probability is known: for v0 > 0
    from the coefficient alone, for v0 = 0 from the risks with and without the coefficient. Averaging these
    probabilities (Rao-Blackwell) has less variance than counting indicators.

    Parameters
    ----------
    result : approximation, draws or fit
        Result of ``pm.sample(step=pac.TemperingSMC())``, fresh or read from a file; or an approximation, whose own
        ``inclusion_probability`` is returned. Without the model, indicators of draws are counted.
    var_name : str, optional
        Name of the variable, when there is more than one.
    model : pymc.Model, optional
        The model; by default the one on the context stack.

    Returns
    -------
    xarray.DataArray
        Probability of the slab for each coefficient, with the variable's dims.

    Raises
    ------
    ValueError
        If there is no spike-and-slab variable, or several and ``var_name`` is not given.

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
    source = problem_of(model)
    sparse = {each.variable.name: each for each in source.sparse}
    name = _choose(list(sparse), var_name)
    part = source.parts[name]
    p, v0, v1 = sparse[name].hyperparameters()
    log_odds = np.log(p) - np.log1p(-p)
    rows = posterior.sizes["chain"] * posterior.sizes["draw"]
    theta = np.concatenate([_rows(posterior[each], rows) for each in source.names], axis=1)
    if not sparse[name].dirac:
        ratio = 0.5 * (np.log(v0 / v1) + theta[:, part] ** 2 * (1.0 / v0 - 1.0 / v1))
        values = expit(log_odds + ratio).mean(axis=0)
    elif f"{name}_slab" in posterior:
        slab = _rows(posterior[f"{name}_slab"], rows)
        values = _flip(source.problem, theta, slab, part.start, log_odds)
    else:
        return _counted(posterior, name)
    return labelled(model, sparse[name].variable, values).rename(f"{name}_inclusion")


def _choose(names: list[str], var_name: str | None) -> str:
    if not names:
        raise ValueError("The model has no pac.SpikeSlab variable: every coefficient is included.")
    if var_name is None and len(names) > 1:
        raise ValueError(f"The model has several SpikeSlab variables; choose one of {names} by var_name=.")
    if var_name is not None and var_name not in names:
        raise ValueError(f"var_name={var_name!r} is no SpikeSlab variable; these are {names}.")
    return names[0] if var_name is None else var_name


def _counted(posterior: xr.Dataset, var_name: str | None) -> xr.DataArray:
    names = [str(name).removesuffix("_included") for name in posterior.data_vars if str(name).endswith("_included")]
    if not names:
        raise ValueError(
            "result has no draws of indicators (those of a SpikeSlab variable with v0 = 0): pass model= too."
        )
    name = _choose(names, var_name)
    return posterior[f"{name}_included"].mean(("chain", "draw")).rename(f"{name}_inclusion")


def _rows(variable: xr.DataArray, rows: int) -> FloatArray:
    return np.asarray(variable.transpose("chain", "draw", ...).values, dtype=float).reshape(rows, -1)


def _flip(problem: Problem, theta: FloatArray, slab: FloatArray, first: int, log_odds: FloatArray) -> FloatArray:
    """Average P(z_k = 1 | slabs and other indicators) over draws, from the risks at z_k = 1 and 0."""
    at = problem.risk(theta)
    probabilities = np.empty(slab.shape[1])
    for k in range(slab.shape[1]):
        flipped = theta.copy()
        included = theta[:, first + k] != 0.0
        flipped[:, first + k] = np.where(included, 0.0, slab[:, k])
        other = problem.risk(flipped)
        gain = np.where(included, other - at, at - other)  # risk without minus risk with
        probabilities[k] = expit(log_odds[k] + problem.gamma * gain).mean()
    return probabilities


MOST_ENTRIES = 500  # variables with more entries than this are left out of the table, unless they are named


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
        Probability of central intervals of an approximation, and of scores and ranks.
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
    certified, note = _certificate(fit_result, epsilon)
    whole = fit_result
    if isinstance(fit_result, NestedApproximation):  # no Gaussian: its draws are summarised
        fit_result = as_result(fit_result.sample(DRAWS, random_seed=0))
        options = {"kind": "stats", **options}
    if hasattr(result, "scores_"):
        table = _of_estimator(result, ci_prob)
    elif isinstance(fit_result, EPApproximation):
        table = _closed_form(fit_result, ci_prob, var_names)
    else:
        source = whole if isinstance(whole, NestedApproximation) else result
        table, omitted = _of_draws(fit_result, source, var_names, options)
        if omitted:
            note = "; ".join(filter(None, [note, f"left out of the table for their size: {', '.join(omitted)}"]))
    evidence = whole.evidence
    table.attrs.update(
        method=fitted.method,
        gamma=fitted.gamma,
        measure=fitted.measure,
        auc=_training_auc(whole, model),
        expected_auc=1.0 - whole.mean_risk.value,
        log_evidence=evidence.estimate,
        log_evidence_se=evidence.standard_error,
        certificate=certified,
        note=note,
        estimator=hasattr(result, "scores_"),
        pairs_used=fitted.pairs_used or None,
        sampling_error=fitted.mean_error,
    )
    table.attrs["report"] = _report(table.attrs, fitted.terms)
    return Summary(table)


def _of_draws(
    drawn: Any, source: Any, var_names: Sequence[str] | None, options: dict[str, Any]
) -> tuple[pd.DataFrame, list[str]]:
    """ArviZ's table of the draws, with the inclusion probabilities of ``source`` and what is too large for it."""
    if drawn.posterior is None:
        raise TypeError("result has no posterior group to summarise.")
    names, omitted = _variables(drawn.posterior, var_names, drawn.fitted_to.n_pos + drawn.fitted_to.n_neg)
    table = az.summary(inference_data({"posterior": drawn.posterior}), var_names=names, **options)
    for included in (str(name) for name in drawn.posterior.data_vars if str(name).endswith("_included")):
        name = included.removesuffix("_included")
        probability = inclusion_probability(source, var_name=name).values.ravel()
        rows = [label for label in table.index if label.partition("[")[0] == name]
        if len(rows) == probability.size:
            table.loc[rows, "inclusion"] = probability.round(3)
    return table, omitted


def _summary_of_scores(scores: Any, ci_prob: float, top: float | None) -> pd.DataFrame:
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
    error = "" if np.isnan(attrs["log_evidence_se"]) else f" ± {attrs['log_evidence_se']:.3f}"
    certified, measure = attrs["certificate"], attrs["measure"]
    rows = []
    if np.isnan(attrs["auc"]) and terms == 1 and not attrs["estimator"]:
        rows.append((measure, "of the mean score, the one to deploy: pass model=, the model of these draws"))
    elif not np.isnan(attrs["auc"]):
        rows.append((measure, f"{attrs['auc']:.4f} of the mean score, the one to deploy (training rows)"))
    rows += [
        (f"{measure} of a draw", f"{attrs['expected_auc']:.4f} on average: a randomised score (training rows)"),
        ("log evidence", f"{attrs['log_evidence']:.3f}{error}"),
    ]
    if certified is not None:
        sure = f"with probability {1 - certified.epsilon:g} ({certified.bound}; under the assumptions that"
        rows.append(
            (f"certified {measure}", f"{certified.auc:.4f} of the randomised score, {sure} the certificate lists)")
        )
    if attrs["pairs_used"]:
        rows.append(
            ("pairs used", f"{attrs['pairs_used']}, sampled: mean ± {attrs['sampling_error']:.2g} posterior sd")
        )
    if attrs["note"]:
        rows.append(("note", attrs["note"]))
    width = max(len(label) for label, _ in rows) + 2
    title = f"{measure[0].upper()}{measure[1:]} Gibbs posterior by {attrs['method']}, gamma = {attrs['gamma']:g}"
    return "\n".join([title, *(f"  {label:<{width}}{text}" for label, text in rows)])


def _training_auc(fit_result: Any, model: pm.Model | None) -> float:
    """Compute the AUC of the mean score on the training rows; NaN where these are not known."""
    known = float(getattr(fit_result, "training_auc", np.nan))
    terms = auc_terms(model) if model is not None and np.isnan(known) else []
    if len(terms) != 1:
        return known
    assert model is not None
    scores = evaluate_at_draws(model, terms[0].scores, fit_result.posterior).mean(axis=(0, 1))
    return 1.0 - float(comparison_risk(scores[None], terms[0].comparison)[0])


def _closed_form(approx: EPApproximation, ci_prob: float, var_names: Sequence[str] | None) -> pd.DataFrame:
    mean, sd = approx.posterior.mean, np.sqrt(approx.posterior.variance)
    inclusion = approx.fit.inclusion_probability if approx.source.sparse else None
    table = _intervals(mean, sd, coefficient_labels(approx.model, approx.variable_names), ci_prob, inclusion)
    if approx.posterior is not approx.fit.posterior:  # with the exact length it is no Gaussian
        number = int(np.clip(10 * NUMBERS_AT_ONCE // mean.size, 1000, QUANTILE_DRAWS))
        drawn = approx.posterior.draw(number, np.random.default_rng(0))
        low, high = np.quantile(drawn, tails(ci_prob), axis=0)
        for name, values in zip(table.columns[2:5], (low, high, np.mean(drawn > 0.0, axis=0)), strict=True):
            table[name] = values.round(3)
    if var_names is None:
        return table
    return table[[label.partition("[")[0] in set(var_names) for label in table.index]]


def _of_estimator(estimator: Any, ci_prob: float) -> pd.DataFrame:
    """Coefficients of X with calibrated spread, in the units of X."""
    posterior = estimator.scores_[0].posterior
    if posterior.features is not None:
        raise TypeError("summary() is for scores that are linear in X; for this estimator use report().")
    inclusion = posterior.fit.inclusion_probability
    included = inclusion if (inclusion < 1.0).any() else None
    return _intervals(posterior.coef, posterior.coef_sd, estimator._feature_names(), ci_prob, included)


def _intervals(
    mean: FloatArray, sd: FloatArray, names: Sequence[str], ci_prob: float, inclusion: FloatArray | None
) -> pd.DataFrame:
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
    return pd.DataFrame(columns, index=names).round(3)


def _certificate(result: Any, epsilon: float) -> tuple[Certificate | None, str]:
    try:
        return certificate(result, epsilon), ""
    except ValueError as error:
        if "epsilon" in str(error):
            raise
        return None, f"no certificate: {error}"


def _variables(posterior: Any, var_names: Sequence[str] | None, observations: int) -> tuple[list[str], list[str]]:
    if var_names is not None:
        return list(var_names), []
    draws = posterior.sizes["chain"] * posterior.sizes["draw"]
    size = {str(name): posterior[name].size // draws for name in posterior.data_vars}
    omitted = [name for name, n in size.items() if n > MOST_ENTRIES or n == observations]
    parts = {f"{name}_{part}" for name in size for part in ("slab", "latent", "included")}  # of a SpikeSlab variable
    return [name for name in size if name not in omitted and name not in parts], omitted
