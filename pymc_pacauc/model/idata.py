"""Flat draws of the free variables as ArviZ data: named, untransformed, with dims, coords and Deterministics."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray
from pymc.backends.arviz import coords_and_dims_for_inferencedata, find_constants, find_observations
from pymc.util import get_default_varnames
from pytensor.graph.traversal import ancestors

from pymc_pacauc import __version__
from pymc_pacauc.model.auc_term import AUCTerm, auc_terms
from pymc_pacauc.model.compat import dataset, inference_data
from pymc_pacauc.model.graph import FlatVariables, flat_variables, shape_now
from pymc_pacauc.problem.score_function import ScoreFunction


def draws_to_inference_data(
    model: pm.Model,
    theta: NDArray[np.float64],
    *,
    variables: FlatVariables | None = None,
    sample_stats: dict[str, NDArray[Any]] | None = None,
    constants: dict[str, Any] | None = None,
    method: str = "",
    score_function: ScoreFunction | None = None,
) -> Any:
    """InferenceData of ``theta[chain, draw, D]``, with the model's data and statistics.

    ``variables`` is the layout of theta, where the model has got other variables since; ``constants`` are statistics
    that do not depend on the draw, ``score_function`` a coordinate of the posterior.
    """
    attrs = {"pacauc_method": method, "pacauc_version": __version__, "pymc_version": version("pymc")}
    stats = dataset(sample_stats or {}, attrs=attrs)
    stats = stats.assign(
        {name: value if isinstance(value, xr.DataArray) else ((), value) for name, value in (constants or {}).items()}
    )
    posterior = posterior_dataset(model, theta, variables=variables, attrs=attrs)
    if score_function is not None:
        posterior = posterior.assign_coords(score_function.as_coords())
    groups = {"posterior": posterior, "sample_stats": stats}
    return inference_data({**groups, **data_groups(model)})


def posterior_dataset(
    model: pm.Model,
    theta: NDArray[np.float64],
    *,
    variables: FlatVariables | None = None,
    attrs: dict[str, Any] | None = None,
) -> xr.Dataset:
    """Dataset of the model's variables and Deterministics at ``theta[chain, draw, D]``, in value space."""
    variables = flat_variables(model) if variables is None else variables
    unknown = set(model.value_vars) - set(variables.values)
    outputs = [
        output
        for output in get_default_varnames(model.unobserved_value_vars, include_transformed=False)
        if not unknown & set(ancestors([output]))
    ]
    values = variables.function(outputs)(theta.reshape(-1, theta.shape[-1]))
    coords, dims = coords_and_dims_for_inferencedata(model)
    data = {
        output.name: value.reshape(*theta.shape[:2], *value.shape[1:])
        for output, value in zip(outputs, values, strict=True)
    }
    return dataset(data, coords=coords, dims=dims, attrs=attrs)


def data_groups(model: pm.Model) -> dict[str, xr.Dataset]:
    """The constant_data and observed_data groups of a model, those that are not empty; at least the labels."""
    coords, dims = coords_and_dims_for_inferencedata(model)
    terms = auc_terms(model)
    observed = find_observations(model) or (_compared(terms[0]) if len(terms) == 1 else {})
    groups = {"constant_data": find_constants(model), "observed_data": observed}
    return {name: dataset(data, coords=coords, dims=dims, sample_dims=()) for name, data in groups.items() if data}


def _compared(term: AUCTerm) -> dict[str, NDArray[Any]]:
    """Labels, or times, events and the like, by name."""
    arrays = term.arrays
    return {"labels" if name == "y" else name: values for name, values in arrays.items()}


def labelled(model: pm.Model, variable: Any, values: NDArray[np.float64]) -> xr.DataArray:
    """Values of a variable's entries, with the model's dims and coords."""
    shape = shape_now(variable)
    dims = model.named_vars_to_dims.get(variable.name) or [f"{variable.name}_dim_{i}" for i in range(len(shape))]
    held = {dim: model.coords.get(dim) for dim in dims}
    coords = {
        dim: list(range(size)) if held[dim] is None else list(held[dim]) for dim, size in zip(dims, shape, strict=True)
    }
    return xr.DataArray(values.reshape(shape), dims=list(dims), coords=coords, name=variable.name)


def coefficient_labels(model: pm.Model, names: Sequence[str] | None = None) -> list[str]:
    """A label for each entry of the named variables, ``theta[glu]``, or the name alone for a scalar.

    By default those of the flat free variables, in their order.
    """
    coords, dims = coords_and_dims_for_inferencedata(model)
    free = flat_variables(model)
    shapes = dict(zip(free.names, free.shapes, strict=True))
    labels = []
    for name in free.names if names is None else names:
        shape = shapes[name] if name in shapes else shape_now(model[name])
        own = dims.get(name) or [None] * len(shape)
        axes = [
            [str(value) for value in coords[dim]] if dim in coords else [str(i) for i in range(size)]
            for dim, size in zip(own, shape, strict=True)
        ]
        index = np.ndindex(*(int(size) for size in shape))
        labels += [f"{name}[{', '.join(a[i] for a, i in zip(axes, at, strict=True))}]" if at else name for at in index]
    return labels
