"""Figures over gamma: its choice by cross-validation, and the path of tempering SMC."""

from __future__ import annotations

from typing import Any

import numpy as np

from pymc_pacauc.analysis.gamma_path import tempering_path
from pymc_pacauc.analysis.plots.canvas import BLUE, COLORS, GREEN, GREY, ORANGE, VERMILION, new_axes
from pymc_pacauc.model.results import as_result


def plot_gamma_path(result: Any, *, ax: Any = None) -> Any:
    """Draw AUCs (or concordances) and log evidence against gamma.

    Parameters
    ----------
    result : GammaSelection, draws or Dataset
        Result of :func:`~pymc_pacauc.select_gamma` (held-out AUC of the mean score, with the standard error of its
        difference from the best, and of a draw; on training rows the AUC of a draw, the certified AUC and the log
        evidence; shaded, the gammas within one standard error of the best), or an idata of
        :class:`~pymc_pacauc.TemperingSMC` (expected AUC and log evidence of each chain's stages).
    ax : sequence of two matplotlib Axes, optional
        Two axes, one above the other; by default a new figure.

    Returns
    -------
    ndarray of matplotlib Axes
        Two: AUCs above, log evidence below.

    See Also
    --------
    pymc_pacauc.select_gamma : Choose gamma.
    plot_tempering : Gamma, effective sample size and acceptance rate of each stage.

    Examples
    --------
    >>> import numpy as np, pymc_pacauc as pac
    >>> import matplotlib.pyplot as plt
    >>> X = np.random.default_rng(1).normal(size=(60, 2))
    >>> problem = pac.arrays.linear_gaussian_problem(X, X[:, 0] > 0.3, gamma=1.0)
    >>> selection = pac.select_gamma(problem, gammas=np.geomspace(1, 300, 9), folds=2, progressbar=False)
    >>> fig, axes = plt.subplots(2, figsize=(6, 6), layout="constrained")
    >>> above, below = pac.plots.plot_gamma_path(selection, ax=axes)
    >>> above.get_ylabel(), len(below.lines) > 0
    ('AUC', True)
    """
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    options: Any = {"sharex": True, "gridspec_kw": {"height_ratios": (3, 1.4)}} if ax is None else {}
    top, bottom = axes = new_axes(ax, rows=2, figsize=(6.2, 5.2), **options)[:2]
    if hasattr(result, "table"):
        _selection(result, top, bottom)
    else:
        _tempering(result, top, bottom)
    bottom.set(xlabel=r"$\gamma$ (multiplies the pair risk)", ylabel=r"$\log Z_\gamma$")
    top.set_ylabel(as_result(result).fitted_to.measure)
    for each in axes:
        each.set_xscale("log")
        each.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
        each.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        each.xaxis.set_minor_locator(NullLocator())
    place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": 2 if hasattr(result, "table") else 4}
    top.legend(frameon=False, fontsize="small", **place)
    return axes


def _selection(result: Any, top: Any, bottom: Any) -> None:
    table = result.table
    gamma = table["gamma"]
    if table["auc"].notna().any():
        # The error that matters between two gammas is that of their difference on the same folds.
        paired = result.criterion == "auc"
        label = "mean score, held out" + (" (± s.e. of the loss)" if paired else "")
        error = table["loss_se"] if paired else None
        top.errorbar(gamma, table["auc"], yerr=error, color=BLUE, marker="o", markersize=4, capsize=2, label=label)
        top.plot(gamma, table["expected_auc"], color=BLUE, marker=".", linestyle="--", label="a draw, held out")
        low, high = result.range
        for axis in (top, bottom):
            axis.axvspan(low, high, color=ORANGE, alpha=0.15, linewidth=0, zorder=0)
        top.fill_between([], [], color=ORANGE, alpha=0.15, linewidth=0, label="within one s.e. of the best")
    top.plot(gamma, table["training_auc"], color=GREY, marker=".", linestyle=":", label="a draw, training rows")
    if table["certified_auc"].notna().any():
        top.plot(gamma, table["certified_auc"], color=VERMILION, marker="s", markersize=4, label="certified")
    top.axvline(result.best, color=ORANGE, linewidth=1.5, zorder=0, label=rf"chosen, $\gamma$ = {result.best:.4g}")
    bottom.axvline(result.best, color=ORANGE, linewidth=1.5, zorder=0)
    bottom.plot(gamma, table["log_evidence"], color=GREEN, marker=".")


def _tempering(idata: Any, top: Any, bottom: Any) -> None:
    path = tempering_path(idata)
    for k, chain in enumerate(path["chain"].values):
        stages = path.sel(chain=chain)
        stages = stages.isel(stage=np.flatnonzero(stages["gamma"].values > 0))
        color = COLORS[k % len(COLORS)]
        top.plot(stages["gamma"], 1.0 - stages["expected_risk"], color=color, marker=".", label=f"chain {chain}")
        bottom.plot(stages["gamma"], stages["log_evidence"], color=color, marker=".")


def plot_tempering(idata: Any, *, ax: Any = None) -> Any:
    """Draw the stages of tempering SMC: gamma, effective sample size and acceptance rate, a line per chain.

    Parameters
    ----------
    idata : InferenceData or DataTree
        Result of ``pm.sample(step=pac.TemperingSMC())``.
    ax : sequence of three matplotlib Axes, optional
        Three axes; by default a new figure.

    Returns
    -------
    ndarray of matplotlib Axes
        Three: gamma, effective sample size, acceptance rate.

    See Also
    --------
    pymc_pacauc.tempering_path : The same numbers as a Dataset.
    plot_gamma_path : AUC and log evidence against gamma.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> import matplotlib.pyplot as plt
    >>> with pm.Model():
    ...     theta = pm.Normal("theta", size=1)
    ...     auc = pac.AUCPotential("auc", np.array([[0.0], [1.0], [2.0]]) @ theta, [0, 0, 1], gamma=4.0)
    ...     step = pac.TemperingSMC(particles=100)
    ...     idata = pm.sample(100, step=step, chains=1, cores=1, random_seed=1, progressbar=False)
    >>> fig, axes = plt.subplots(3, figsize=(6, 7), layout="constrained")
    >>> axes = pac.plots.plot_tempering(idata, ax=axes)
    >>> len(axes)
    3
    """
    path = tempering_path(idata)
    axes = new_axes(ax, columns=3, figsize=(10.0, 3.2))[:3]
    from_fit = bool(np.isnan(path["gamma"].values[:, 0]).all())
    panels = (
        ("temperature", "fraction of the way from the fit" if from_fit else r"$\gamma$"),
        ("ess", "effective sample size"),
        ("acceptance_rate", "acceptance rate"),
    )
    for axis, (name, label) in zip(axes, panels, strict=True):
        for k, chain in enumerate(path["chain"].values):
            color = COLORS[k % len(COLORS)]
            axis.plot(path["stage"], path[name].sel(chain=chain), color=color, marker=".", label=f"chain {chain}")
        axis.set(xlabel="stage", ylabel=label)
        axis.xaxis.get_major_locator().set_params(integer=True)
    axes[2].set_ylim(0, 1)
    if not from_fit:
        axes[0].set_yscale("symlog", linthresh=1.0)
    axes[1].set_ylim(bottom=0)
    if path.sizes["chain"] <= len(COLORS):
        axes[0].legend(frameon=False, fontsize="small")
    return axes
