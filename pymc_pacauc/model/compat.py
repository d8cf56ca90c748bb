"""Differences between ArviZ 0.x (with PyMC 5) and ArviZ 1.x (with PyMC 6), and progress bars of long work.

No other module checks versions. ArviZ is imported when it is first needed, as in PyMC 6: it takes a second or two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

ARVIZ_1 = not version("arviz").startswith("0.")  # parts of 1.x can be installed beside 0.x, where PyMC 5 ignores them
CI_PROB = "ci_prob" if ARVIZ_1 else "hdi_prob"  # the argument of arviz.summary that says how wide its intervals are


def dataset(
    data: Mapping[str, Any],
    *,
    coords: Mapping[str, Any] | None = None,
    dims: Mapping[str, Sequence[str | None]] | None = None,
    sample_dims: Sequence[str] = ("chain", "draw"),
    attrs: Mapping[str, Any] | None = None,
) -> xr.Dataset:
    """Make a Dataset whose variables begin with ``sample_dims``; dims without names or coords are numbered."""
    variables: dict[str, Any] = {}
    labels: dict[str, Any] = {}
    for name, value in data.items():
        shape = np.shape(value)
        given = (dims or {}).get(name) or [None] * (len(shape) - len(sample_dims))
        axes = [*sample_dims, *(dim or f"{name}_dim_{i}" for i, dim in enumerate(given))]
        variables[name] = (axes, value)
        labels |= {dim: (coords or {}).get(dim, np.arange(size)) for dim, size in zip(axes, shape, strict=True)}
    made = {"created_at": datetime.now(UTC).isoformat(), "inference_library": "pymc"}
    made["inference_library_version"] = version("pymc")
    return xr.Dataset(variables, coords=labels, attrs={**made, **(attrs or {})})


def inference_data(groups: Mapping[str, xr.Dataset]) -> Any:
    """Make an InferenceData (ArviZ 0.x) or DataTree (ArviZ 1.x) of these groups."""
    if ARVIZ_1:
        return xr.DataTree.from_dict({f"/{name}": group for name, group in groups.items()})
    import arviz

    return arviz.InferenceData(**groups)


def pareto_smooth(log_weights: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Smooth log weights by PSIS; return them unnormalised, and k-hat (-inf for a constant tail)."""
    tail = np.sort(log_weights)[-max(5, log_weights.size // 10) :]
    if np.ptp(tail) < 1e-12 * (1.0 + np.abs(tail).max()):
        return log_weights, -np.inf
    # ArviZ 1.x takes log-likelihoods to leave out, the negative of log-weights
    if ARVIZ_1:
        from arviz_stats.base import array_stats

        normalised, shape = array_stats.psislw(-log_weights)
    else:
        import arviz

        normalised, shape = arviz.psislw(log_weights.copy())
    # Smoothing changes the largest weights only, up to normalisation: the smallest weight gives the constant.
    smallest = np.argmin(log_weights)
    return normalised + (log_weights[smallest] - normalised[smallest]), float(shape)


BAR_AFTER = 1.0  # seconds, about what people wait without asking; doubled, the bar comes later

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
    """Yield the items, with a progress bar once they have taken more than a second."""
    with LateBar(description, TimeRemainingColumn(), show=show) as bar:
        for done, item in enumerate(items, start=1):
            yield item
            bar.update(done, total)
