"""Inclusion probabilities of a spike-and-slab variable from posterior draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray
from scipy.special import expit

from pymc_pacauc.core.problem import Problem
from pymc_pacauc.model.approximation import EPApproximation
from pymc_pacauc.model.extract import problem_of
from pymc_pacauc.model.idata import labelled
from pymc_pacauc.model.results import dataset_of

__all__ = ["inclusion_probability"]

FloatArray = NDArray[np.float64]


def inclusion_probability(result: Any, *, var_name: str | None = None, model: pm.Model | None = None) -> xr.DataArray:
    """Inclusion probabilities of a :func:`~pymc_pacauc.SpikeSlab` variable, with the indicators averaged out.

    Given everything else, the indicator of a coefficient is a Bernoulli variable whose probability is known: for v0 > 0
    from the coefficient alone, for v0 = 0 from the risks with and without the coefficient. Averaging these
    probabilities (Rao-Blackwell) has less variance than counting indicators.

    Parameters
    ----------
    result
        What ``pm.sample(step=pac.TemperingSMC())`` returned, fresh or read from a file; or an approximation, whose own
        ``inclusion_probability`` is returned. Without the model, indicators of draws are counted.
    var_name
        Name of the variable, when there is more than one.
    model
        The model; by default the one on the context stack.
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
        raise ValueError("The model has no pac.SpikeSlab variable.")
    if var_name is None and len(names) > 1:
        raise ValueError(f"There are several SpikeSlab variables; choose one of {names} with var_name=.")
    if var_name is not None and var_name not in names:
        raise ValueError(f"There is no SpikeSlab variable {var_name!r}; there are {names}.")
    return names[0] if var_name is None else var_name


def _counted(posterior: xr.Dataset, var_name: str | None) -> xr.DataArray:
    names = [str(name).removesuffix("_included") for name in posterior.data_vars if str(name).endswith("_included")]
    if not names:
        raise ValueError(
            "These draws have no indicators (of a SpikeSlab variable with v0 = 0) to count: pass model= as well."
        )
    name = _choose(names, var_name)
    return posterior[f"{name}_included"].mean(("chain", "draw")).rename(f"{name}_inclusion")


def _rows(variable: xr.DataArray, rows: int) -> FloatArray:
    return np.asarray(variable.transpose("chain", "draw", ...).values, dtype=float).reshape(rows, -1)


def _flip(problem: Problem, theta: FloatArray, slab: FloatArray, first: int, log_odds: FloatArray) -> FloatArray:
    """Mean over draws of P(z_k = 1 | slabs and other indicators), by the risks at z_k = 1 and 0."""
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
