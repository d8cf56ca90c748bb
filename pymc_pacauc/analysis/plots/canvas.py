"""Axes to draw on, and the colours: those of Okabe and Ito, which the colour-blind can tell apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, BLACK = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#E69F00",
    "#CC79A7",
    "#56B4E9",
    "#000000",
)
GREY = "#888888"
COLORS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, BLACK)
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
        _, created = plt.subplots(rows, columns, figsize=figsize, layout="constrained", squeeze=False, **options)
        return created.ravel()
    given = np.atleast_1d(np.asarray(ax, dtype=object)).ravel()
    if given.size < rows * columns:
        raise ValueError(f"This figure has {rows * columns} panels; ax holds {given.size}.")
    return given


def named_curves(curves: Any, name: str, function: str, variable: str) -> dict[str, xr.Dataset]:
    """Curves by name, each what ``function`` returned, which has ``variable``."""
    named = dict(curves) if isinstance(curves, Mapping) and not isinstance(curves, xr.Dataset) else {name: curves}
    for each in named.values():
        if not isinstance(each, xr.Dataset) or variable not in each:
            raise TypeError(
                f"This draws what pac.{function}(scores, y) returned, or a dict of several; got {type(each).__name__}."
            )
    if not named:
        raise ValueError("There are no curves to draw.")
    return named
