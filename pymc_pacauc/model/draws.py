"""Expressions of a model at every draw of its posterior."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray
from pymc.pytensorf import compile as compile_function
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors

from pymc_pacauc.model.flat import MODE

__all__ = ["evaluate_at_draws"]


def evaluate_at_draws(model: pm.Model, graph: Variable, posterior: xr.Dataset) -> NDArray[Any]:
    """``graph`` at each draw, shape (chain, draw, ...), with the ``pm.Data`` that the model has now."""
    used = set(ancestors([graph]))
    variables = [rv for rv in model.free_RVs if rv in used]
    missing = [rv.name for rv in variables if rv.name not in posterior]
    if missing:
        raise ValueError(f"The posterior has no draws of {', '.join(missing)}, which the expression depends on.")
    values = [posterior[rv.name].transpose("chain", "draw", ...).values for rv in variables]
    batched = [rv.type.clone(shape=(None, *rv.type.shape))(f"{rv.name}_draws") for rv in variables]
    output = vectorize_graph(graph, dict(zip(variables, batched, strict=True)))
    function = compile_function(batched, output, mode=MODE, on_unused_input="ignore")
    points = [v.reshape(-1, *v.shape[2:]).astype(rv.dtype) for v, rv in zip(values, variables, strict=True)]
    found = np.asarray(function(*points))
    return found.reshape(posterior.sizes["chain"], posterior.sizes["draw"], *found.shape[1:])
