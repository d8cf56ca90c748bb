"""The only place that looks at versions: ArviZ 0.x (with PyMC 5) and ArviZ 1.x (with PyMC 6)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray

ARVIZ_1 = not version("arviz").startswith("0.")  # parts of 1.x can be installed beside 0.x, where PyMC 5 ignores them

if ARVIZ_1:
    import arviz_base
    from arviz_stats.base import array_stats
else:
    import arviz

__all__ = ["add_groups", "dataset", "inference_data", "pareto_smooth"]


def dataset(
    data: Mapping[str, Any],
    *,
    coords: Mapping[str, Any] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    sample_dims: Sequence[str] = ("chain", "draw"),
    attrs: Mapping[str, Any] | None = None,
) -> xr.Dataset:
    """A Dataset whose variables begin with ``sample_dims``."""
    coords = dict(coords or {})
    named: dict[Hashable, Sequence[Hashable]] = {
        name: list(values) for name, values in (dims or {}).items() if name in data
    }
    if ARVIZ_1:
        return arviz_base.dict_to_dataset(
            dict(data), coords=coords, dims=named, attrs=attrs, inference_library=pm, sample_dims=list(sample_dims)
        )
    whole = {
        name: [*sample_dims, *named.get(name, [f"{name}_dim_{i}" for i in range(np.ndim(value) - len(sample_dims))])]
        for name, value in data.items()
    }
    return arviz.dict_to_dataset(dict(data), coords=coords, dims=whole, attrs=attrs, library=pm, default_dims=[])


def inference_data(groups: Mapping[str, xr.Dataset]) -> Any:
    """An InferenceData (ArviZ 0.x) or DataTree (ArviZ 1.x) of these groups."""
    if ARVIZ_1:
        return xr.DataTree.from_dict({f"/{name}": group for name, group in groups.items()})
    return arviz.InferenceData(**groups)


def add_groups(idata: Any, groups: Mapping[str, xr.Dataset]) -> None:
    """Add or replace groups in place."""
    for name, group in groups.items():
        if ARVIZ_1:
            idata[name] = xr.DataTree(group)
        else:
            if name in idata.groups():
                del idata[name]
            idata.add_groups({name: group})


def pareto_smooth(log_weights: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Pareto-smoothed importance sampling: unnormalised smoothed log-weights, and k-hat (-inf for a constant tail)."""
    tail = np.sort(log_weights)[-max(5, log_weights.size // 10) :]
    if np.ptp(tail) < 1e-12 * (1.0 + np.abs(tail).max()):
        return log_weights, -np.inf
    # ArviZ 1.x takes log-likelihoods to leave out, the negative of log-weights
    normalised, shape = array_stats.psislw(-log_weights) if ARVIZ_1 else arviz.psislw(log_weights.copy())
    # Smoothing leaves the body of the weights alone, up to normalisation: the smallest weight tells the constant.
    smallest = np.argmin(log_weights)
    return normalised + (log_weights[smallest] - normalised[smallest]), float(shape)
