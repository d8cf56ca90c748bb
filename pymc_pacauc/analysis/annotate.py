"""What a run of tempering SMC says of itself, written into the idata that ``pm.sample`` returned.

``pm.sample`` gives a step method no opportunity to attach anything to its result, and the labels and the model are not
in it. :func:`annotate` adds them, so that a file of draws can be summarised and certified in another process.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pytensor.graph.traversal import ancestors

from pymc_pacauc.analysis.gamma_path import log_evidence
from pymc_pacauc.model.compat import add_groups
from pymc_pacauc.model.extract import auc_term
from pymc_pacauc.model.idata import attributes, data_groups

__all__ = ["annotate", "group", "tempering_attributes"]


def annotate(idata: Any, model: pm.Model | None = None) -> Any:
    """Add gamma, method, versions, evidence, class sizes and labels to an idata of
    ``pm.sample(step=pac.TemperingSMC())``.

    Attributes named ``pacauc_*`` go to the posterior and sample_stats groups; labels go to observed_data, where the
    model has no observed variables. Draws of an approximation have all this already.

    Parameters
    ----------
    idata
        Changed in place.
    model
        The model; by default the one on the context stack.

    Returns
    -------
    The same idata.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), [0, 1, 0, 1]
    >>> with pm.Model() as model:
    ...     theta = pm.Normal("theta", size=1)
    ...     auc = pac.AUCPotential("auc", X @ theta, y, gamma=4.0)
    ...     idata = pm.sample(100, step=pac.TemperingSMC(), chains=2, cores=1, progressbar=False, quiet=True)
    >>> pac.annotate(idata, model)["posterior"].attrs["pacauc_method"]
    'TemperingSMC'
    """
    model = pm.modelcontext(model)
    stated = tempering_attributes(idata, model)
    missing = {
        name: data
        for name, data in data_groups(model).items()
        if not getattr(group(idata, name), "data_vars", ())  # PyMC 6 adds empty groups
    }
    add_groups(idata, missing)
    for name in ("posterior", "sample_stats"):
        idata[name].attrs.update(stated)
    return idata


def tempering_attributes(idata: Any, model: pm.Model | None) -> dict[str, Any]:
    """The attributes of a tempering run, computed with its model or read from an annotated idata."""
    stats = group(idata, "sample_stats")
    if stats is None or "path_log_evidence" not in stats:
        raise TypeError(
            "This needs what pm.fit(method=pac.EP()) or pac.GaussianVB() returned, draws of it, or what "
            f"pm.sample(step=pac.TemperingSMC()) returned; got {type(idata).__name__} without a tempering path."
        )
    if "pacauc_n_pos" in stats.attrs:
        return dict(stats.attrs)
    try:
        model = pm.modelcontext(model)
    except TypeError:
        raise ValueError(
            "An idata from pm.sample does not hold the labels: pass model=, call inside `with model:`, or annotate it "
            "once with pac.annotate(idata, model)."
        ) from None
    term = auc_term(model)
    gamma, risk = float(stats["gamma"].values[0, 0]), stats["risk"].values
    others = [v for v in model.potentials if term.risk not in set(ancestors([v]))]
    if not (model.observed_RVs or others) and not math.isclose(gamma, term.gamma, rel_tol=1e-9):
        raise ValueError(f"The idata was sampled at gamma = {gamma:g}, the model now has gamma = {term.gamma:g}.")
    log_z = log_evidence(idata)
    positive = int(np.sum(term.labels > 0))
    return attributes(
        "TemperingSMC",
        term.gamma,
        log_evidence=log_z.estimate,
        log_evidence_se=log_z.standard_error,
        expected_risk=float(risk.mean()),
        expected_risk_se=standard_error(risk),
        n_pos=positive,
        n_neg=int(term.labels.size) - positive,
        d=sum(value.size for value in model.initial_point().values()),
        ties=term.ties,
        only_auc=not (model.observed_RVs or others),
    )


def standard_error(values: NDArray[np.float64]) -> float:
    """Of the mean over chains and draws: as if independent, or from the chains' disagreement where that is larger."""
    chains = values.shape[0]
    independent = values.std(ddof=1) / math.sqrt(values.size)
    between = values.mean(axis=1).std(ddof=1) / math.sqrt(chains) if chains > 1 else 0.0
    return float(max(independent, between))


def group(idata: Any, name: str) -> Any:
    """A group of an InferenceData or DataTree, or None."""
    try:
        return idata[name]
    except (KeyError, TypeError, AttributeError, ValueError):
        return None
