"""The only place that looks at versions: ArviZ 0.x (with PyMC 5) and ArviZ 1.x (with PyMC 6).

Progress bars that appear only when the work turns out to take a while.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

ARVIZ_1 = not version("arviz").startswith("0.")  # parts of 1.x can be installed beside 0.x, where PyMC 5 ignores them

if ARVIZ_1:
    import arviz_base
    from arviz_stats.base import array_stats
else:
    import arviz


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


BAR_AFTER = 1.0  # seconds

Item = TypeVar("Item")


class LateBar:
    """A context whose :meth:`update` shows a bar once a second has passed; ``columns`` follow the bar itself.

    Totals may be guesses: work that ends before, ends with a full bar.
    """

    def __init__(self, description: str, *columns: Any, show: bool = True):
        self._show, self._description, self._columns, self._started = show, description, columns, perf_counter()
        self._bar: Progress | None = None

    def __enter__(self) -> LateBar:
        return self

    def update(self, done: int, total: int, **fields: Any) -> None:
        if self._show and self._bar is None and done < total and perf_counter() - self._started > BAR_AFTER:
            text = TextColumn("{task.description}", markup=False)
            self._bar = Progress(text, BarColumn(), MofNCompleteColumn(), *self._columns, TimeElapsedColumn())
            self._bar.start()
            self._task = self._bar.add_task(self._description, total=total, **fields)
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, **fields)

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            if exception[0] is None:
                self._bar.update(self._task, total=self._bar.tasks[0].completed)
            self._bar.stop()


def track(items: Iterable[Item], description: str, total: int, show: bool = True) -> Iterator[Item]:
    """The items, with a bar once they have taken more than a second."""
    with LateBar(description, TimeRemainingColumn(), show=show) as bar:
        for done, item in enumerate(items, start=1):
            yield item
            bar.update(done, total)
