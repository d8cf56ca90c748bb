"""Survival by score: Kaplan and Meier's curves of groups with low, middle and high scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from pymc_pacauc.analysis.deployed import mean_score
from pymc_pacauc.analysis.plots.canvas import COLORS, LINES, new_axes
from pymc_pacauc.core.concordance import concordance_risk, event_mask
from pymc_pacauc.core.kaplan_meier import survival_curve

__all__ = ["plot_survival"]

PARTS = {2: "half", 3: "third", 4: "quarter", 5: "fifth"}


def plot_survival(
    scores: Any,
    time: ArrayLike,
    event: ArrayLike,
    *,
    groups: int = 3,
    ci_prob: float = 0.9,
    ax: Any = None,
    backend: str | None = None,
) -> Any:
    """Share without event over time, in groups of equal size by their mean score (Kaplan and Meier's estimate).

    A high score means an early event: the curve of the highest scores should fall first. On rows that were fitted the
    curves are further apart than on others.

    Parameters
    ----------
    scores
        What :func:`~pymc_pacauc.predict_scores` returned, draws or ``summary=True``; an array of draws, shape
        (..., rows); or one score per row.
    time, event
        When each row had its event or was last seen, and whether it was an event.
    groups
        Number of groups, cut at quantiles of the score; rows with equal scores stay together.
    ci_prob
        Probability of the pointwise bands, Greenwood's on the scale of log(-log S).
    ax, backend
        Where to draw; ``"matplotlib"`` is the only backend.

    Returns
    -------
    The axes. Censored rows are ticks on the curves.
    """
    score = np.asarray(mean_score(scores), dtype=np.float64)
    if not (isinstance(groups, int | np.integer) and 2 <= groups <= len(COLORS)):
        raise ValueError(f"groups must be an integer from 2 to {len(COLORS)}; got {groups!r}.")
    c = 1.0 - float(concordance_risk(score, time, event))  # also checks the three
    times = np.asarray(time, dtype=np.float64)
    events = event_mask(event, times.size)
    group = np.searchsorted(np.quantile(score, np.arange(1, groups) / groups), score, side="left")
    empty = groups - np.unique(group).size
    if empty:
        raise ValueError(f"{empty} of {groups} groups would be empty: many scores are equal. Use fewer groups.")
    [axes] = new_axes(ax, backend, figsize=(7.2, 4.2))
    for k in range(groups):
        inside = group == k
        curve = survival_curve(times[inside], events[inside])
        at, share = np.concatenate([[0.0], curve.time]), np.concatenate([[1.0], curve.survival])
        lower, upper = (np.concatenate([[1.0], bound]) for bound in curve.interval(ci_prob))
        color = COLORS[k]
        axes.fill_between(at, lower, upper, step="post", color=color, alpha=0.15, linewidth=0)
        label = f"{_name(k, groups)}: {int(events[inside].sum())} events, {int(inside.sum())} rows"
        axes.step(at, share, where="post", color=color, linestyle=LINES[k % len(LINES)], label=label)
        censored = np.unique(times[inside & ~events])
        axes.plot(censored, share[np.searchsorted(at, censored, side="right") - 1], "|", color=color, markersize=6)
    axes.set(xlabel="time", ylabel="share without event", xlim=(0.0, None), ylim=(0.0, 1.02))
    axes.spines[["top", "right"]].set_visible(False)
    what = "mean score" if isinstance(scores, xr.Dataset) or np.ndim(scores) > 1 else "score"
    title = f"by {what}\n(concordance {c:.3f})"
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), title=title, alignment="left")
    return axes


def _name(k: int, groups: int) -> str:
    """Of the k-th group from the lowest scores up."""
    part = PARTS.get(groups, f"{groups}th part")
    if k in (0, groups - 1):
        return f"{'lowest' if k == 0 else 'highest'} {part}"
    return f"middle {part}" if groups == 3 else f"{part} {k + 1} of {groups}"
