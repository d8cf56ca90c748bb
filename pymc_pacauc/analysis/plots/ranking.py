"""How well a score ranks: ROC curves, and the scores of the two classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy.stats import gaussian_kde

from pymc_pacauc.analysis.plots.canvas import BLACK, BLUE, COLORS, GREY, LINES, VERMILION, new_axes
from pymc_pacauc.analysis.roc import Threshold, standardized_mean
from pymc_pacauc.core.pairs import encode_labels

__all__ = ["plot_roc", "plot_scores"]


def plot_roc(
    curves: xr.Dataset | Mapping[str, xr.Dataset],
    *,
    band: bool = True,
    mean_score: bool = False,
    ax: Any = None,
    backend: str | None = None,
) -> Any:
    """ROC curves with their credible bands.

    Parameters
    ----------
    curves
        What :func:`~pymc_pacauc.roc` returned, or several of them by name.
    band
        Show the pointwise credible band.
    mean_score
        Show the curve of the mean score instead of the mean of the curves.
    ax, backend
        Where to draw; ``"matplotlib"`` is the only backend.

    Returns
    -------
    The axes.
    """
    [axes] = new_axes(ax, backend, figsize=(5.2, 5.2))
    named = {"": curves} if isinstance(curves, xr.Dataset) else dict(curves)
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle=":")
    for k, (name, curve) in enumerate(named.items()):
        color, line = COLORS[k % len(COLORS)], LINES[k % len(LINES)]
        if band and curve.sizes["sample"] > 1:
            axes.fill_between(curve["fpr"], curve["tpr_lower"], curve["tpr_upper"], color=color, alpha=0.2, linewidth=0)
        tpr = curve["tpr_of_mean_score" if mean_score else "tpr"]
        axes.plot(curve["fpr"], tpr, color=color, linestyle=line, label=_label(name, curve, mean_score))
    axes.set(xlabel="false positive rate", ylabel="true positive rate", xlim=(0, 1), ylim=(0, 1.005), aspect="equal")
    axes.legend(loc="lower right", frameon=False)
    return axes


def _label(name: str, curve: xr.Dataset, mean_score: bool) -> str:
    said = curve.attrs
    if mean_score:
        auc = f"AUC {said['auc_of_mean_score']:.3f}"
    else:
        auc = f"AUC {said['auc_mean']:.3f}"
        if curve.sizes["sample"] > 1:
            auc += f" ({said['auc_lower']:.3f} to {said['auc_upper']:.3f})"
    return f"{name}: {auc}" if name else auc


def plot_scores(
    scores: ArrayLike,
    y: ArrayLike,
    *,
    threshold: Threshold | float | None = None,
    positive: Any = None,
    ax: Any = None,
    backend: str | None = None,
) -> Any:
    """Densities of the score in the two classes, with a threshold.

    Parameters
    ----------
    scores
        Draws (..., rows), whose standardised mean is shown, or one score vector.
    y
        Labels.
    threshold
        What :func:`~pymc_pacauc.choose_threshold` returned for the same scores, or a number.
    positive
        Which of the two labels is the positive class.
    ax, backend
        Where to draw.
    """
    [axes] = new_axes(ax, backend, figsize=(6.4, 3.8))
    mask = encode_labels(y, positive)
    score = standardized_mean(scores, mask)
    grid = np.linspace(score.min() - 0.15 * np.ptp(score), score.max() + 0.15 * np.ptp(score), 400)
    for group, color, name, line in ((~mask, BLUE, "negative", "--"), (mask, VERMILION, "positive", "-")):
        density = gaussian_kde(score[group])(grid) if np.ptp(score[group]) > 0 else np.zeros_like(grid)
        axes.fill_between(grid, density, color=color, alpha=0.2, linewidth=0)
        axes.plot(grid, density, color=color, linestyle=line, label=f"{name} ({group.sum()} rows)")
        axes.plot(score[group], np.full(group.sum(), -0.02 if group is mask else -0.045), "|", color=color, alpha=0.6)
    if threshold is not None:
        value = threshold.value if isinstance(threshold, Threshold) else float(threshold)
        text = f"threshold {value:.2f}"
        if isinstance(threshold, Threshold):
            text += f"\n(FPR {threshold.fpr:.2f}, TPR {threshold.tpr:.2f})"
        axes.axvline(value, color=BLACK, linewidth=1.2, label=text)
    axes.set(xlabel="score (in standard deviations)" if np.ndim(scores) > 1 else "score", ylabel="density")
    axes.set_ylim(top=axes.get_ylim()[1] * 1.05)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return axes
