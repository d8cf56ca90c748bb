"""Axes to draw on, and the colours of Okabe and Ito, which are safe for colour-blind readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

COLORS = BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, BLACK = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#E69F00",
    "#CC79A7",
    "#56B4E9",
    "#000000",
)
GREY = "#888888"
LINES = ("-", "--", "-.", ":")


def new_axes(
    ax: Any = None,
    *,
    rows: int = 1,
    columns: int = 1,
    figsize: tuple[float, float] = (6.0, 4.5),
    **options: Any,
) -> np.ndarray:
    """``rows * columns`` axes as a flat array: those given, or those of a new figure."""
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


def named_curves(curves: Any, name: str, function: str, variable: str) -> dict[str, xr.Dataset]:
    """Return curves by name; each must be a result of ``function``, with ``variable``."""
    named = dict(curves) if isinstance(curves, Mapping) and not isinstance(curves, xr.Dataset) else {name: curves}
    for each in named.values():
        if not isinstance(each, xr.Dataset) or variable not in each:
            raise TypeError(
                f"curves must be the result of pac.{function}(scores, y), or a dict of several; got "
                f"{type(each).__name__}."
            )
    if not named:
        raise ValueError("curves is an empty dict: there is nothing to draw.")
    return named
