"""Coefficients by group, ``theta[group]``: found in the graph of the scores, and drawn for groups nobody has seen.

A hierarchy's scores index coefficients by a ``pm.Data`` of codes. Which variables those are is read off the graph: the
free variables below an indexing operation whose index comes from that data, and whose first axis is as long as what is
indexed. (So ``theta[group]`` and ``(mu + tau * z)[group]`` are both understood.) A new group is exchangeable with the
known ones given the parameters of their prior: its coefficients are a draw from that prior, for every posterior draw of
the parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pymc as pm
import xarray as xr
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor import subtensor
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_pacauc.model.predictive import predictive_model

VECTOR_INDEX = getattr(subtensor, "AdvancedSubtensor1", ())  # PyTensor before 3: indexing the first axis by a vector


@dataclass(frozen=True, eq=False)
class GroupCoefficients:
    """The free variables ``names`` whose first axis is that of the ``size`` groups which ``data`` holds codes of."""

    data: SharedVariable
    names: tuple[str, ...]
    size: int


def grouped_coefficients(model: pm.Model, scores: Variable, data: SharedVariable) -> GroupCoefficients | None:
    """The coefficients whose first axis the scores index by ``data``; None where there are none."""
    indexed = [
        variable.owner.inputs[0]
        for variable in ancestors([scores])
        if variable.owner is not None and _indexes_first_axis(variable.owner) and _comes_from(variable.owner, data)
    ]
    sizes = {int(source.shape[0].eval()) for source in indexed}
    if len(sizes) != 1:
        return None
    [size] = sizes
    used = set(ancestors(indexed))
    names = [rv.name for rv in model.free_RVs if rv in used and rv.type.ndim and int(rv.shape[0].eval()) == size]
    return GroupCoefficients(data, tuple(names), size) if names else None


def _indexes_first_axis(node: Apply) -> bool:
    if isinstance(node.op, VECTOR_INDEX):
        return True
    if not isinstance(node.op, AdvancedSubtensor):
        return False
    pattern = getattr(node.op, "idx_list", None)  # of newer versions; older ones have slices among the inputs
    return not pattern or isinstance(pattern[0], int)


def _comes_from(node: Apply, data: SharedVariable) -> bool:
    return data in set(ancestors([node.inputs[1]]))


def draw_groups(
    model: pm.Model, groups: GroupCoefficients, posterior: xr.Dataset, rng: np.random.Generator
) -> xr.Dataset:
    """The posterior with as many new groups in the place of the known ones, drawn from the population.

    PyMC draws from its prior what a posterior does not hold, given what it holds: so the known groups are left out.
    """
    with predictive_model(model):
        drawn = pm.sample_posterior_predictive(
            posterior.drop_vars(list(groups.names)),
            var_names=list(groups.names),
            random_seed=int(rng.integers(2**31)),
            progressbar=False,
        )
    found = drawn["posterior_predictive"]
    return posterior.assign({name: posterior[name].copy(data=found[name].values) for name in groups.names})
