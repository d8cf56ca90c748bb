"""One table and a few numbers that say what a posterior is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
from scipy.special import ndtr, ndtri

from pymc_pacauc.analysis.annotate import group, tempering_attributes
from pymc_pacauc.analysis.certify import Certificate, certificate
from pymc_pacauc.model.approximation import EPApproximation
from pymc_pacauc.model.idata import coefficient_labels

__all__ = ["Summary", "summary"]

MOST_ENTRIES = 500  # variables with more entries than this are left out of the table, unless they are named


@dataclass(frozen=True, eq=False)
class Summary:
    """What :func:`summary` returns.

    Attributes
    ----------
    table
        A row per coefficient: ArviZ's summary of draws, or, for an approximation, its mean, standard deviation, central
        interval and probability of being positive, in closed form.
    method, gamma
        Where the posterior came from.
    expected_auc
        Posterior mean of the training AUC.
    log_evidence, log_evidence_se
        Log evidence and its standard error (NaN where there is none).
    certificate
        The certified AUC, or None with ``note`` saying why not.
    note
        What was left out.
    """

    table: pd.DataFrame
    method: str
    gamma: float
    expected_auc: float
    log_evidence: float
    log_evidence_se: float
    certificate: Certificate | None
    note: str = ""

    def __repr__(self) -> str:
        error = "" if np.isnan(self.log_evidence_se) else f" ± {self.log_evidence_se:.3f}"
        certified = self.certificate
        lines = [
            f"AUC Gibbs posterior by {self.method}, gamma = {self.gamma:g}",
            f"  expected AUC   {self.expected_auc:.4f} (training)",
            f"  log evidence   {self.log_evidence:.3f}{error}",
        ]
        if certified is not None:
            lines.append(
                f"  certified AUC  {certified.auc:.4f} (epsilon = {certified.epsilon:g}, {certified.bound}; "
                "see .certificate for its assumptions)"
            )
        if self.note:
            lines.append(f"  note           {self.note}")
        return "\n".join([*lines, "", self.table.to_string()])


def summary(
    result: Any,
    *,
    epsilon: float = 0.05,
    ci_prob: float = 0.9,
    var_names: Sequence[str] | None = None,
    model: pm.Model | None = None,
    **options: Any,
) -> Summary:
    """Summarise an approximation or draws: coefficients, AUC, log evidence, certificate.

    Parameters
    ----------
    result
        What ``pm.fit(method=pac.EP())`` or ``pm.sample(step=pac.TemperingSMC())`` returned, or draws read from a file.
    epsilon
        Of the certificate.
    ci_prob
        Probability of the central intervals of an approximation.
    var_names
        Variables of the table; by default all but those with an entry for each observation or very many.
    model
        The model of an idata from ``pm.sample``; not needed inside ``with model:``, or after
        :func:`~pymc_pacauc.annotate`.
    **options
        Passed to ``arviz.summary``.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> X = np.random.default_rng(1).normal(size=(60, 2))
    >>> with pm.Model(coords={"covariate": ["a", "b"]}):
    ...     theta = pm.Normal("theta", dims="covariate")
    ...     auc = pac.AUCPotential("auc", X @ theta, X[:, 0] > 0.3, gamma=40)
    ...     approx = pm.fit(method=pac.EP(), progressbar=False)
    >>> list(pac.summary(approx).table.index)
    ['theta[a]', 'theta[b]']
    """
    if isinstance(result, EPApproximation):
        table = _closed_form(result, ci_prob, var_names)
        certified, note = _certificate(result, epsilon, model)
        said = {"log_evidence": result.log_evidence, "expected_risk": result.expected_risk}
        return _summary(table, result.method, result.fit.problem.gamma, said, certified, note)
    posterior = group(result, "posterior")
    if posterior is None:
        raise TypeError(f"result must be an approximation or an idata with a posterior; got {type(result).__name__}.")
    attrs = posterior.attrs
    if "pacauc_method" not in attrs:
        attrs = tempering_attributes(result, model)
    said = {name.removeprefix("pacauc_"): value for name, value in attrs.items() if name.startswith("pacauc_")}
    observations = int(said.get("n_pos", 0)) + int(said.get("n_neg", 0))
    names, omitted = _variables(posterior, var_names, observations)
    certified, note = _certificate(result, epsilon, model)
    if omitted:
        note = "; ".join(filter(None, [note, f"left out of the table for their size: {', '.join(omitted)}"]))
    table = az.summary(result, var_names=names, **options)
    return _summary(table, str(said["method"]), float(said["gamma"]), said, certified, note)


def _summary(
    table: pd.DataFrame, method: str, gamma: float, said: dict[str, Any], certified: Certificate | None, note: str
) -> Summary:
    return Summary(
        table=table,
        method=method,
        gamma=gamma,
        expected_auc=1.0 - float(said.get("expected_risk", np.nan)),
        log_evidence=float(said.get("log_evidence", np.nan)),
        log_evidence_se=float(said.get("log_evidence_se", np.nan)),
        certificate=certified,
        note=note,
    )


def _closed_form(approx: EPApproximation, ci_prob: float, var_names: Sequence[str] | None) -> pd.DataFrame:
    if not 0.0 < ci_prob < 1.0:
        raise ValueError(f"ci_prob is a probability strictly between 0 and 1; got {ci_prob!r}.")
    mean, sd = approx.posterior.mean, np.sqrt(np.diagonal(approx.posterior.covariance))
    tail = 0.5 * (1.0 - ci_prob)
    columns = {
        "mean": mean,
        "sd": sd,
        f"{tail:.1%}": mean + ndtri(tail) * sd,
        f"{1 - tail:.1%}": mean - ndtri(tail) * sd,
        "P(> 0)": ndtr(mean / sd),
    }
    if hasattr(approx, "inclusion_probability"):
        columns["inclusion"] = np.asarray(getattr(approx.fit, "inclusion_probability"))  # noqa: B009
    table = pd.DataFrame(columns, index=coefficient_labels(approx.model, approx.variable_names)).round(3)
    if var_names is None:
        return table
    return table[[label.partition("[")[0] in set(var_names) for label in table.index]]


def _certificate(result: Any, epsilon: float, model: pm.Model | None) -> tuple[Certificate | None, str]:
    try:
        return certificate(result, epsilon, model=model), ""
    except (TypeError, ValueError) as error:
        if "epsilon" in str(error):
            raise
        return None, f"no certificate: {error}"


def _variables(posterior: Any, var_names: Sequence[str] | None, observations: int) -> tuple[list[str], list[str]]:
    if var_names is not None:
        return list(var_names), []
    draws = posterior.sizes["chain"] * posterior.sizes["draw"]
    size = {str(name): posterior[name].size // draws for name in posterior.data_vars}
    omitted = [name for name, n in size.items() if n > MOST_ENTRIES or n == observations]
    return [name for name in size if name not in omitted], omitted
