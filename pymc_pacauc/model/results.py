"""The provenance of a model's fit, and one protocol for all results of PyMC models.

:func:`fitted_to` makes the record of a model as it is now (:class:`~pymc_pacauc.problem.provenance.Provenance`).

A *result* is an approximation (``pm.fit(method=pac.EP())``), draws (of ``pm.sample(step=pac.TemperingSMC())`` or of an
approximation; fresh, sliced, or read from a file), or an object that contains one of these (a choice of gamma, a
maximum of the evidence). :func:`as_result` turns any of them into an object with the attributes of
:class:`~pymc_pacauc.array_result.Result`, which is all that functions of :mod:`pymc_pacauc.analysis` use.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_pacauc.array_result import ArrayResult, Estimate, gibbs_divergence
from pymc_pacauc.ep.importance import log_mean
from pymc_pacauc.model.auc_term import AUCTerm, arrays_of, auc_terms, has_classes
from pymc_pacauc.model.graph import flat_variables
from pymc_pacauc.model.kernel_features import TransformRows
from pymc_pacauc.problem.problem import Problem
from pymc_pacauc.problem.provenance import Provenance, fingerprint, looks_standardized, of_comparisons
from pymc_pacauc.problem.score_function import ScoreFunction
from pymc_pacauc.smc.log_evidence import LogEvidence, combine


def fitted_to(
    model: pm.Model, method: str, problem: Problem | None = None, terms: list[AUCTerm] | None = None
) -> Provenance:
    """Make the record of a model as it is now; ``problem`` is that of the model, where it has one."""
    terms = auc_terms(model) if terms is None else terms
    size = flat_variables(model).dimension
    if not terms:
        return Provenance(method, 1.0, 0, 0, "other pairs", 0.0, size, "half", 0, False, False, False, 0)
    arrays, of_terms = arrays_of(terms), {term.risk for term in terms}
    matrices = [a for a in arrays if a.ndim == 2 and len(a) == terms[0].comparison.n]
    return Provenance(
        method=method,
        gamma=float(sum(term.gamma for term in terms)) if problem is None else problem.gamma,
        **of_comparisons([term.comparison for term in terms], classes=has_classes(model)),
        coefficients=size,
        ties=terms[0].ties,
        terms=len(terms),
        only_auc=not model.observed_RVs and all(of_terms & set(ancestors([v])) for v in model.potentials),
        standardized=any(map(looks_standardized, matrices or ([problem.X] if problem is not None else []))),
        tuned_prior=any(_is_tuned(v) for v in model.data_vars),
        data=fingerprint([*(array for term in terms for array in term.read()[0]), *arrays]),
        sample_features=_features_of_sample(terms, arrays),
    )


def check_model(fitted: Provenance, model: pm.Model) -> None:
    """Refuse a ``model`` that is not the one a result was fitted to, with what differs."""
    if different := fitted.differences(fitted_to(model, fitted.method)):
        raise ValueError(
            "model is not what this result was fitted to; these differ: " + "; ".join(different) + ". Leave model= "
            "out (the result has a record of what it was fitted to), or set the model's data back."
        )


def mark_tuned(variable: SharedVariable) -> None:
    """Mark the present value of a ``pm.Data`` as chosen on the data."""
    variable.tag.pacauc_tuned = np.array(variable.get_value())


def _is_tuned(variable: Variable) -> bool:
    tuned = getattr(variable.tag, "pacauc_tuned", None)
    return tuned is not None and np.array_equal(tuned, variable.get_value())


def _features_of_sample(terms: list[AUCTerm], arrays: list[NDArray[Any]]) -> bool:
    """Return whether features in the scores were made from the rows that they are applied to."""
    ops = [v.owner.op for v in ancestors([term.scores for term in terms]) if v.owner is not None]
    made = [op.features for op in ops if isinstance(op, TransformRows)]
    return any(each.made_from(table) for each in made for table in arrays if table.ndim == 2)


EXACT_MEAN = "exact_mean_"  # before the name of a variable: the mean that draws of an approximation come from
DEPLOYED = "training_auc"  # of the mean score


@dataclass(frozen=True, eq=False)
class Draws:
    """Draws as a :class:`Result`: everything is read from the variables of ``sample_stats``, never from a model."""

    posterior: xr.Dataset | None
    stats: xr.Dataset

    @cached_property
    def fitted_to(self) -> Provenance:
        return Provenance.from_stats(self.stats)

    @property
    def gaussian(self) -> bool:
        return self.fitted_to.method != "TemperingSMC"

    @property
    def caveat(self) -> str:
        converged = not self.gaussian or bool(np.all(self.stats["converged"].values))
        return "" if converged else "the fit did not converge"

    @cached_property
    def evidence(self) -> LogEvidence:
        return combine(self._by_run("log_evidence"), self._by_run("log_evidence_variance"))

    @cached_property
    def mean_risk(self) -> Estimate:
        """Mean risk of the final populations, from any draws; the error is that of runs, or their spread if larger."""
        risks, variances = self._by_run("expected_risk"), self._by_run("expected_risk_variance")
        within = float(np.sqrt(variances.sum()) / risks.size)
        between = float(risks.std(ddof=1) / np.sqrt(risks.size)) if risks.size > 1 else 0.0
        return Estimate(float(risks.mean()), max(within, between), int(self._constant("expected_risk_terms", 0)))

    @property
    def divergence(self) -> Estimate:
        if self.gaussian:
            return Estimate(self._constant("divergence"))
        return gibbs_divergence(self.fitted_to.gamma, self.mean_risk, self.evidence)

    @property
    def training_auc(self) -> float:
        """AUC of the mean score on the training pairs; NaN where the draws do not contain it."""
        return self._constant(DEPLOYED, float("nan"))

    @cached_property
    def exact_mean(self) -> xr.Dataset | None:
        """The mean of each variable as if it were a draw, where the draws carry it; None elsewhere."""
        found = {}
        for key, held in self.stats.data_vars.items():
            if str(key).startswith(EXACT_MEAN):
                first = held.isel({dim: 0 for dim in ("sample", "chain", "draw") if dim in held.dims}, drop=True)
                if not np.allclose(held, first):
                    return None  # of several fits
                found[str(key).removeprefix(EXACT_MEAN)] = first
        return xr.Dataset(found).expand_dims(chain=[0], draw=[0]) if found else None

    @cached_property
    def score_function(self) -> ScoreFunction | None:
        """The function from a row to its score; None where the draws that are left do not contain it."""
        carried = None if self.posterior is None else ScoreFunction.from_stats(self.posterior)
        return ScoreFunction.from_stats(self.stats) if carried is None else carried

    def runs(self) -> list[dict[str, NDArray[Any]]]:
        """Yield the stats of each independent run, one row per draw, however the draws were combined."""
        dims = [dim for dim in ("sample", "chain", "draw") if dim in self.stats.dims]
        flat = {
            str(name): variable.values.reshape(-1, *variable.shape[len(dims) :])
            for name, variable in self.stats.transpose(*dims, ...).data_vars.items()
            if set(dims) <= set(variable.dims)
        }
        number = flat["run"] if dims else np.atleast_1d(self.stats["run"].values)
        _, first = np.unique(number, return_index=True)
        return [{name: values[number == run] for name, values in flat.items()} for run in number[np.sort(first)]]

    def _constant(self, name: str, default: float | None = None) -> float:
        if default is not None and name not in self.stats:
            return default
        return float(np.asarray(self.stats[name].values).reshape(-1)[0])

    def _by_run(self, name: str) -> NDArray[np.float64]:
        """Return one value per independent run, from any of its draws; draws of a Gaussian are of one run."""
        if "run" not in self.stats or not self.stats[name].dims:
            return np.array([self._constant(name)])
        return np.array([float(run[name][0]) for run in self.runs()])


LARGEST_K = 0.7  # Pareto shape beyond which weighted averages are unreliable: Vehtari et al. (2024), arXiv:1507.02646


def corrected_evidence(log_weights: NDArray[np.float64]) -> LogEvidence | None:
    """Compute log Z by importance weights, with its error; None where these are not reliable."""
    from pymc_pacauc.model.compat import pareto_smooth  # ArviZ, which need not be imported with every model

    log_weights, pareto_k = pareto_smooth(log_weights)
    if pareto_k > LARGEST_K:
        return None
    estimate, error = log_mean(log_weights)
    return combine(estimate, error**2)


def evidence_of_fit(fit: Any, posterior: Any) -> LogEvidence:
    """Compute log Z by the importance weights of ``posterior``, with its error; EP's own if they are not reliable."""
    log_weights = getattr(posterior, "log_weights", None)
    found = None if log_weights is None or not fit.converged else corrected_evidence(log_weights)
    return ArrayResult(fit).evidence if found is None else found


class CorrectedResult(ArrayResult):
    """A fit on arrays whose evidence is that of the same model's approximation: two of them can be compared."""

    @cached_property
    def evidence(self) -> LogEvidence:
        return evidence_of_fit(self.fit, self.fit.corrected)


def opened(result: Any) -> Any:
    """Return the posterior that a choice of gamma or a maximum of the evidence contains; or the object itself."""
    return getattr(result, "approx", getattr(result, "refit", result))


def as_results(result: Any) -> list[Any]:
    """Return the :class:`Result` of ``result``, of an estimator with a score for each class those of all."""
    posteriors = [each.posterior for each in getattr(result, "scores_", ())]
    if any(hasattr(each, "parts") for each in posteriors):
        raise TypeError(
            'result averages posteriors (prior="auto"): pass estimator.scores_[0].posterior.parts[k].result.'
        )
    return [each.result for each in posteriors] or [as_result(result)]


def as_result(result: Any, name: str = "result") -> Any:
    """Return the :class:`Result` of ``result``; refuse other objects, by the ``name`` of the caller's argument."""
    result = opened(result)
    if hasattr(result, "scores_"):  # a fitted estimator
        result, *others = as_results(result)
        if others:
            raise TypeError(f"{name} has a score for each class: pass estimator.scores_[k].posterior.result.")
    if hasattr(result, "fitted_to") and hasattr(result, "divergence"):
        return result
    if hasattr(result, "problem") and hasattr(result, "log_evidence"):
        return CorrectedResult(result)
    result = group_of(result)
    stats = dataset_of(result, "sample_stats")
    if stats is None and isinstance(result, xr.Dataset) and "fitted_gamma" in result:
        stats = result
    if stats is None or "fitted_gamma" not in stats:
        alone = isinstance(result, xr.Dataset) or dataset_of(result, "posterior") is not None
        held = " without its sample_stats: pass the whole idata" if alone else ""
        raise TypeError(
            f"{name} must come from pm.fit(method=pac.EP()) or pac.GaussianVB(), be draws of it, or come from "
            f"pm.sample(step=pac.TemperingSMC()); got {type(result).__name__}{held}."
        )
    posterior = dataset_of(result, "posterior")
    return Draws(None if posterior is None else by_chain_and_draw(posterior), stats)


def without_data(idata: Any) -> Any:
    """Drop from draws everything that has a value for each training row, before they are shared.

    Observed and constant data are dropped, and every variable with one entry for each row, such as a Deterministic of
    the scores, from which rows could be reconstructed. The coefficients that score new rows are kept, and what
    certificates and summaries need.

    Parameters
    ----------
    idata : InferenceData or DataTree
        Draws of an approximation, ``approx.sample()``, or of ``pm.sample(step=pac.TemperingSMC())``.

    Returns
    -------
    InferenceData or DataTree
        With the groups ``posterior`` and ``sample_stats``.

    Raises
    ------
    TypeError
        For an approximation, or draws that this package has not made.

    See Also
    --------
    pymc_pacauc.export : Write a linear score as JSON.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(50, 2))
    >>> with pm.Model():
    ...     scores = pm.Deterministic("scores", X @ pm.Normal("theta", size=2))
    ...     auc = pac.AUCPotential("auc", scores, X[:, 0] > 0, gamma=20)
    ...     draws = pm.fit(method=pac.EP(), progressbar=False).sample(100, random_seed=1)
    >>> kept = pac.results.without_data(draws)
    >>> sorted(kept["posterior"].data_vars), bool(pac.certificate(kept).auc == pac.certificate(draws).auc)
    (['auc_risk', 'theta'], True)
    """
    from pymc_pacauc.model.compat import inference_data  # ArviZ, which need not be imported with every model

    found, posterior = as_result(idata, "idata"), dataset_of(idata, "posterior")
    if not isinstance(found, Draws) or posterior is None:
        raise TypeError("without_data() is for draws: pass approx.sample(), or the result of pm.sample().")
    rows = {found.fitted_to.n_pos + found.fitted_to.n_neg} | _row_numbers(idata)
    function = found.score_function
    scoring = set() if function is None else {name for name, _ in function.variables}

    def kept(group: xr.Dataset) -> xr.Dataset:
        def of_rows(name: Any) -> bool:
            sizes = {group.sizes[dim] for dim in group[name].dims if dim not in ("chain", "draw", "sample")}
            return str(name).removeprefix(EXACT_MEAN) not in scoring and bool(rows & sizes)

        group = group.drop_vars([name for name in group.data_vars if of_rows(name)])
        used = {dim for each in group.data_vars.values() for dim in each.dims}
        idle = [name for name, each in group.coords.items() if not str(name).startswith("score_function")]
        return group.drop_vars([name for name in idle if group[name].dims and not set(group[name].dims) <= used])

    return inference_data({"posterior": kept(posterior), "sample_stats": kept(found.stats)})


def _row_numbers(idata: Any) -> set[int]:
    """Return the lengths of observed data and of constant matrices."""
    held = ((dataset_of(idata, group), fewest) for group, fewest in (("observed_data", 1), ("constant_data", 2)))
    return {v.shape[0] for data, fewest in held if data is not None for v in data.values() if v.ndim >= fewest}


def by_chain_and_draw(posterior: xr.Dataset) -> xr.Dataset | None:
    """Restore the dimensions chain and draw, which slicing or stacking may have removed; None without draws."""
    if not {"chain", "draw", "sample"} & (set(posterior.dims) | set(posterior.coords)):
        return None
    if "sample" in posterior.dims:
        posterior = posterior.drop_vars(["sample", "chain", "draw"], errors="ignore").rename(sample="draw")
        posterior = posterior.assign_coords(draw=np.arange(posterior.sizes["draw"]))
    for dim in {"chain", "draw"} - set(posterior.dims):
        posterior = posterior.expand_dims(dim if dim in posterior.coords else {dim: [0]})
    return posterior


def group_of(result: Any) -> Any:
    """Return a single group, ``idata["posterior"]`` (a Dataset in ArviZ 0.x, a node in 1.x), as a Dataset."""
    tree = getattr(xr, "DataTree", None)
    return result.to_dataset() if tree is not None and isinstance(result, tree) and not result.children else result


def dataset_of(idata: Any, group: str) -> xr.Dataset | None:
    """Return a group of an InferenceData or DataTree as a Dataset; None if there is none."""
    if isinstance(idata, xr.Dataset | xr.DataArray):
        return None
    try:
        found = idata[group]
    except (KeyError, TypeError, AttributeError, ValueError, IndexError):
        return None
    found = found.to_dataset() if hasattr(found, "to_dataset") and not isinstance(found, xr.Dataset) else found
    return found if isinstance(found, xr.Dataset) else None
