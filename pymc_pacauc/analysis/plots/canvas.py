"""Axes to draw on, curves with bands, and the colours of Okabe and Ito, which are safe for colour-blind readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

COLORS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#000000")
BLUE, VERMILION, GREEN, ORANGE, *_, BLACK = COLORS
GREY = "#888888"
LINES = ("-", "--", "-.", ":")


def new_axes(
    ax: Any = None, *, rows: int = 1, columns: int = 1, figsize: tuple[float, float] = (6.0, 4.5), **options: Any
) -> np.ndarray:
    """Return ``rows * columns`` axes as a flat array: those given, or those of a new figure."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("Figures need matplotlib: pip install 'pymc-pacauc[plots]'.") from None
    if ax is None:
        ax = plt.subplots(rows, columns, figsize=figsize, layout="constrained", squeeze=False, **options)[1]
    axes = np.atleast_1d(np.asarray(ax, dtype=object)).ravel()
    if axes.size < rows * columns:
        raise ValueError(f"ax must have {rows * columns} axes, one for each panel; it has {axes.size}.")
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
    return axes


def panels(ax: Any, number: int, width: float, height: float, **options: Any) -> np.ndarray:
    """Return axes for ``number`` small figures, at most four side by side; the rest of a new figure is hidden."""
    columns = max(1, min(4, number))
    rows = -(-number // columns)
    shape = {"rows": 1, "columns": number} if ax is not None else {"rows": rows, "columns": columns}
    axes = new_axes(ax, figsize=(width * columns, height * rows), **shape, **options)
    for each in axes[number:]:
        each.set_visible(ax is not None)
    return axes[:number]


def named_curves(curves: Any, name: str, function: str, variable: str) -> dict[str, xr.Dataset]:
    """Return curves by name; each must be a result of ``function``, with ``variable``."""
    named = dict(curves) if isinstance(curves, Mapping) and not isinstance(curves, xr.Dataset) else {name: curves}
    for each in named.values():
        if not isinstance(each, xr.Dataset) or variable not in each:
            got = type(each).__name__
            raise TypeError(f"curves must be the result of pac.{function}(scores, y), or a dict of several; got {got}.")
    if not named:
        raise ValueError("curves is an empty dict: there is nothing to draw.")
    return named


def draw_curves(
    axes: Any,
    named: Mapping[str, xr.Dataset],
    variable: str,
    limits: tuple[str, str],
    *,
    measure: str = "",
    step: str | None = None,
) -> None:
    """Draw a ``variable`` of each dataset over its coordinate, with the band between two others, the ``limits``.

    Curves are labelled with their names and, of a ``measure`` among their attributes, its value and interval.
    """
    for k, (name, curve) in enumerate(named.items()):
        if measure:
            value, lower, upper = (curve.attrs[f"{measure}{end}"] for end in ("", "_lower", "_upper"))
            name = f"{name}{': ' if name else ''}{value:.3f} ({lower:.3f} to {upper:.3f})"
        at = curve[curve[variable].dims[0]]
        line = {"color": COLORS[k % len(COLORS)], "linestyle": LINES[k % len(LINES)], "label": name}
        draw_band(axes, at, curve[variable], [curve[each] for each in limits], step=step, **line)


def draw_band(
    axes: Any, x: Any, middle: Any, limits: Any, *, color: str = BLUE, step: str | None = None, **line: Any
) -> None:
    """Draw a line and the band between ``limits``; with ``step``, as staircases."""
    axes.fill_between(x, *limits, step=step, color=color, alpha=0.15, linewidth=0)
    axes.plot(x, middle, drawstyle=f"steps-{step}" if step else "default", color=color, **line)


def legend_beside(axes: Any, **options: Any) -> None:
    """Put the legend to the right of the axes."""
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), **options)
