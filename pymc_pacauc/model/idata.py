"""Flat draws of the free variables as ArviZ data: named, untransformed, with dims, coords and Deterministics."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from itertools import product
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray
from pymc.backends.arviz import coords_and_dims_for_inferencedata, find_constants, find_observations
from pymc.util import get_default_varnames
from pytensor.graph.traversal import ancestors

from pymc_pacauc import __version__
from pymc_pacauc.model.auc_term import auc_terms
from pymc_pacauc.model.compat import dataset, inference_data
from pymc_pacauc.model.graph import FlatVariables, flat_variables, shape_now
from pymc_pacauc.problem.score_function import ScoreFunction


def draws_to_inference_data(
    model: pm.Model,
    theta: NDArray[np.float64],
    *,
    variables: FlatVariables | None = None,
    sample_stats: dict[str, NDArray[Any]],
    constants: dict[str, Any],
    method: str,
    score_function: ScoreFunction,
) -> Any:
    """Make InferenceData of ``theta[chain, draw, D]``, with the model's data and statistics.

    ``variables`` is the layout of theta, where the model has got other variables since; ``constants`` are statistics
    that do not depend on the draw, ``score_function`` a coordinate of the posterior.
    """
    attrs = {"pacauc_method": method, "pacauc_version": __version__, "pymc_version": version("pymc")}
    stats = dataset(sample_stats, attrs=attrs).assign(
        {name: value if isinstance(value, xr.DataArray) else ((), value) for name, value in constants.items()}
    )
    posterior = posterior_dataset(model, theta, variables=variables, attrs=attrs)
    posterior = posterior.assign_coords(score_function.as_coords())
    return inference_data({"posterior": posterior, "sample_stats": stats, **data_groups(model)})


def posterior_dataset(
    model: pm.Model,
    theta: NDArray[np.float64],
    *,
    variables: FlatVariables | None = None,
    attrs: dict[str, Any] | None = None,
) -> xr.Dataset:
    """Make a Dataset of the model's variables and Deterministics at ``theta[chain, draw, D]``, in value space."""
    variables = flat_variables(model) if variables is None else variables
    unknown = set(model.value_vars) - set(variables.values)
    named = get_default_varnames(model.unobserved_value_vars, include_transformed=False)
    outputs = [output for output in named if not unknown & set(ancestors([output]))]
    values = variables.function(outputs)(theta.reshape(-1, theta.shape[-1]))
    coords, dims = coords_and_dims_for_inferencedata(model)
    data = {
        output.name: value.reshape(*theta.shape[:2], *value.shape[1:])
        for output, value in zip(outputs, values, strict=True)
    }
    return dataset(data, coords=coords, dims=dims, attrs=attrs)


def data_groups(model: pm.Model) -> dict[str, xr.Dataset]:
    """Return the constant_data and observed_data groups of a model that are not empty; at least the labels."""
    coords, dims = coords_and_dims_for_inferencedata(model)
    observed, terms = find_observations(model), auc_terms(model)
    if not observed and len(terms) == 1:  # labels, or times, events and the like
        observed = {"labels" if name == "y" else name: values for name, values in terms[0].arrays.items()}
    groups = {"constant_data": find_constants(model), "observed_data": observed}
    return {name: dataset(data, coords=coords, dims=dims, sample_dims=()) for name, data in groups.items() if data}


def _axes(model: pm.Model, variable: Any) -> list[tuple[str, list[Any]]]:
    """Name each dimension of a variable and list its labels, as the model has them; numbers where it has none."""
    shape = shape_now(variable)
    dims = model.named_vars_to_dims.get(variable.name) or [None] * len(shape)
    held = [model.coords.get(dim) for dim in dims]
    return [
        (dim or f"{variable.name}_dim_{i}", list(range(size) if labels is None else labels))
        for i, (dim, labels, size) in enumerate(zip(dims, held, shape, strict=True))
    ]


def labelled(model: pm.Model, variable: Any, values: NDArray[np.float64]) -> xr.DataArray:
    """Label values of a variable's entries with the model's dims and coords."""
    axes = _axes(model, variable)
    return xr.DataArray(values.reshape([len(labels) for _, labels in axes]), coords=axes, name=variable.name)


def coefficient_labels(model: pm.Model, names: Sequence[str]) -> list[str]:
    """Return a label for each entry of the named variables, ``theta[glu]``, or the name alone for a scalar."""
    entries = ((name, at) for name in names for at in product(*(labels for _, labels in _axes(model, model[name]))))
    return [f"{name}[{', '.join(map(str, at))}]" if at else name for name, at in entries]
