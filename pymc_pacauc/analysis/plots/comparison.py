"""What a rule is worth, and which model: decision curves, and models by evidence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pymc_pacauc.analysis.plots.canvas import BLACK, BLUE, COLORS, GREY, LINES, named_curves, new_axes

__all__ = ["plot_compare", "plot_decision_curve"]


def plot_decision_curve(
    curves: xr.Dataset | Mapping[str, xr.Dataset], *, band: bool = True, ax: Any = None, backend: str | None = None
) -> Any:
    """Net benefit against the probability at which one is indifferent, beside acting on every row and on none.

    Parameters
    ----------
    curves
        What :func:`~pymc_pacauc.decision_curve` returned, or several of them by name.
    band
        Show the band over rows.
    ax, backend
        Where to draw; ``"matplotlib"`` is the only backend.

    Returns
    -------
    The axes.
    """
    named = named_curves(curves, "mean score", "decision_curve", "net_benefit")
    [axes] = new_axes(ax, backend, figsize=(6.0, 4.2))
    first = next(iter(named.values()))
    at = first["probability"]
    axes.axhline(0.0, color=BLACK, linewidth=0.9, label="nobody")
    axes.plot(at, first["treat_all"], color=GREY, linewidth=0.9, label="everybody")
    for k, (name, curve) in enumerate(named.items()):
        color, line = COLORS[k % len(COLORS)], LINES[k % len(LINES)]
        if band:
            axes.fill_between(curve["probability"], curve["lower"], curve["upper"], color=color, alpha=0.2, linewidth=0)
        axes.plot(curve["probability"], curve["net_benefit"], color=color, linestyle=line, label=name)
    top = max(float(curve["upper" if band else "net_benefit"].max()) for curve in named.values())
    axes.set(xlabel="probability at which one is indifferent", ylabel="net benefit (true positives per row)")
    axes.set_xlim(0, 1)
    if top > 0.0:  # elsewhere no rule is better than nobody: all that there is, is shown
        axes.set_ylim(-0.15 * top, 1.05 * top)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, title=f"{first.attrs['ci_prob']:.0%} over rows" if band else None)
    return axes


def plot_compare(table: pd.DataFrame, *, ax: Any = None, backend: str | None = None) -> Any:
    """Log evidence of each model, the best on top, with two standard errors where they are known; its probability.

    Parameters
    ----------
    table
        What :func:`~pymc_pacauc.compare` returned.
    ax, backend
        Where to draw.

    Returns
    -------
    The axes.
    """
    [axes] = new_axes(ax, backend, figsize=(6.4, 1.2 + 0.45 * len(table)))
    place = np.arange(len(table))[::-1]
    error = 2.0 * table["se"].fillna(0.0)
    axes.axvline(table["log_evidence"].max(), color=GREY, linewidth=0.8, linestyle=":")
    axes.errorbar(table["log_evidence"], place, xerr=error, fmt="o", color=BLUE, capsize=3)
    for y, (value, probability) in zip(place, table[["log_evidence", "probability"]].to_numpy(), strict=True):
        axes.annotate(f"{probability:.3f}", (value, y), xytext=(0, 7), textcoords="offset points", ha="center")
    axes.set_yticks(place, [str(name) for name in table.index])
    axes.set(xlabel=f"log evidence at gamma = {table.attrs.get('gamma', np.nan):g} (above: posterior probability)")
    axes.set_ylim(-0.5, len(table) - 0.3)
    axes.margins(x=0.12)
    axes.spines[["top", "right"]].set_visible(False)
    return axes
