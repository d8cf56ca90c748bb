"""Figures of fits: coefficients, inclusion probabilities, models compared, and paths over gamma and spike variance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy.stats import gaussian_kde, norm

from pymc_pacauc.analysis.gamma_path import tempering_path
from pymc_pacauc.analysis.plots import canvas
from pymc_pacauc.analysis.plots.canvas import BLACK, BLUE, COLORS, GREEN, GREY, ORANGE, VERMILION, new_axes
from pymc_pacauc.analysis.plots.ranking import MOST_SHOWN
from pymc_pacauc.analysis.summary import inclusion_probability
from pymc_pacauc.model.approximation import EPApproximation
from pymc_pacauc.model.idata import coefficient_labels
from pymc_pacauc.model.results import as_result, dataset_of
from pymc_pacauc.numerics import DRAWS
from pymc_pacauc.problem.score_function import flat_draws


def plot_marginals(approx: Any, idata: Any = None, *, ax: Any = None) -> Any:
    """Draw the marginals of the coefficients: the approximation as a line over the density of draws.

    Parameters
    ----------
    approx : EPApproximation
        Result of ``pm.fit(method=pac.EP())``.
    idata : InferenceData or DataTree, optional
        Draws of the same model to compare with, for example by tempering SMC.
    ax : matplotlib Axes or sequence of them, optional
        One axes for each coefficient; by default a new figure.

    Returns
    -------
    ndarray of matplotlib Axes
        One for each coefficient, at most forty (the layout of the paper's Figure 1).

    Raises
    ------
    TypeError
        If ``approx`` is not an approximation, or ``idata`` are not draws.
    ValueError
        If ``idata`` are draws of another model, or ``ax`` has not one axes for each coefficient.
    ImportError
        If matplotlib is not installed.

    See Also
    --------
    pymc_pacauc.summary : The same coefficients as a table.

    References
    ----------
    J. Ridgway, P. Alquier, N. Chopin, F. Liang (2014), PAC-Bayesian AUC classification and scoring, NeurIPS 27.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> import matplotlib.pyplot as plt
    >>> X = np.random.default_rng(1).normal(size=(40, 2))
    >>> with pm.Model(coords={"column": ["a", "b"]}):
    ...     theta = pm.Normal("theta", dims="column")
    ...     auc = pac.AUCPotential("auc", X @ theta, X[:, 0] > 0.3, gamma=40)
    ...     approx = pm.fit(method=pac.EP(), progressbar=False)
    >>> fig, axes = plt.subplots(1, 2, figsize=(7, 3), layout="constrained")
    >>> axes = pac.plots.plot_marginals(approx, ax=axes)
    >>> [ax.get_title() for ax in axes]
    ['theta[a]', 'theta[b]']
    """
    if not hasattr(approx, "source"):
        raise TypeError(
            "approx must be the result of pm.fit(method=pac.EP()), and draws the second argument: "
            f"plot_marginals(approx, idata); got {type(approx).__name__}. For draws alone use az.plot_forest."
        )
    names = approx.source.names
    labels = coefficient_labels(approx.model, names)[:MOST_SHOWN]
    posterior = None if idata is None else dataset_of(idata, "posterior")
    if idata is not None and posterior is None:
        given = type(idata).__name__
        raise TypeError(f"idata must be draws, the result of pm.sample() or approx.sample(); got {given}.")
    draws = (
        None if posterior is None else flat_draws(posterior, list(zip(names, approx.source.layout.shapes, strict=True)))
    )
    axes = canvas.panels(ax, len(labels), 2.7, 2.4)
    mean, sd = approx.posterior.mean, np.sqrt(approx.posterior.variance)
    gaussian = approx.posterior is approx.fit.posterior
    own = None if gaussian else approx.posterior.draw(DRAWS, np.random.default_rng(0))
    for k, (axis, label) in enumerate(zip(axes, labels, strict=True)):
        ends = [mean[k] - 4 * sd[k], mean[k] + 4 * sd[k]]
        inside = np.array([]) if draws is None else draws[:, k]
        grid = np.linspace(min([*ends, *inside]), max([*ends, *inside]), 300)
        if draws is not None:
            axis.fill_between(grid, gaussian_kde(inside)(grid), color=BLUE, alpha=0.3, linewidth=0, label="draws")
        density = norm.pdf(grid, mean[k], sd[k]) if own is None else gaussian_kde(own[:, k])(grid)
        axis.plot(grid, density, color=VERMILION, label=getattr(approx, "method", "approximation"))
        axis.axvline(0.0, color=GREY, linewidth=0.8, linestyle=":")
        axis.set(title=label, yticks=[], ylim=(0, None))
        axis.title.set_fontsize("medium")
        axis.spines["left"].set_visible(False)
    if draws is not None:
        axes[0].legend(frameon=False, fontsize="small", loc="upper left")
    return axes


def plot_inclusion(result: Any, *, ax: Any = None) -> Any:
    """Draw the inclusion probabilities of a spike-and-slab fit, largest first.

    Parameters
    ----------
    result : approximation, draws or array_like
        An approximation or draws of a model with a :func:`~pymc_pacauc.SpikeSlab` variable, or the probabilities
        (array, DataArray, or Series with the names of the coefficients as index).
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes
        With a bar for each coefficient, at most forty.

    Raises
    ------
    ValueError
        If probabilities are not in [0, 1].
    ImportError
        If matplotlib is not installed.

    See Also
    --------
    pymc_pacauc.inclusion_probability : Compute the probabilities.
    plot_regularization_path : Coefficients against the spike's variance.

    Examples
    --------
    >>> import pymc_pacauc as pac
    >>> import matplotlib.pyplot as plt
    >>> fig, ax = plt.subplots(figsize=(5, 2.5), layout="constrained")
    >>> ax = pac.plots.plot_inclusion({"a": 0.1, "b": 0.9, "c": 0.4}, ax=ax)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['b', 'c', 'a']
    """
    found = _probabilities(result)
    shown = found.sort_values(ascending=False, kind="stable")[:MOST_SHOWN]
    [axes] = new_axes(ax, figsize=(5.5, 0.24 * shown.size + 1.0))
    rows, colors = np.arange(shown.size), np.where(shown >= 0.5, BLUE, GREY)
    axes.hlines(rows, 0, shown, color=colors, linewidth=2)
    axes.scatter(shown, rows, color=colors, s=28, zorder=3)
    axes.axvline(0.5, color=BLACK, linewidth=0.8, linestyle="--")
    axes.set(yticks=rows, yticklabels=shown.index.astype(str), xlim=(0, 1.02), xlabel="probability of inclusion")
    axes.invert_yaxis()
    if found.size > shown.size:
        axes.set_title(f"{shown.size} largest of {found.size}", fontsize="medium")
    return axes


def plot_regularization_path(path: Any, *, names: Sequence[str] | None = None, ax: Any = None) -> Any:
    """Draw coefficients against the spike's variance, circled where included (the paper's Figure 3).

    Parameters
    ----------
    path : Dataset
        Result of :func:`~pymc_pacauc.regularization_path`, or a Dataset with ``coefficient`` and
        ``inclusion_probability`` over (v0, coefficient).
    names : sequence of str, optional
        Names of the coefficients.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes
        With a line for each coefficient; at most seven of those included anywhere are named and coloured.

    Raises
    ------
    ValueError
        If no fit of the path converged.
    ImportError
        If matplotlib is not installed.

    See Also
    --------
    pymc_pacauc.regularization_path : Compute the path.
    plot_inclusion : Inclusion probabilities of one fit.

    Examples
    --------
    >>> import numpy as np, pymc_pacauc as pac
    >>> import matplotlib.pyplot as plt
    >>> X = np.random.default_rng(1).normal(size=(80, 4))
    >>> path = pac.regularization_path((X, X[:, 0] > 0.2), v0=[0.001, 0.01, 0.1, 1.0], gamma=80, p=0.2)
    >>> fig, ax = plt.subplots(layout="constrained")
    >>> ax = pac.plots.plot_regularization_path(path, ax=ax)
    >>> ax.get_xscale()
    'log'
    """
    v0, values, probabilities = (path[name].values for name in ("v0", "coefficient", "inclusion_probability"))
    across = path["coefficient"].dims[1]
    if np.isnan(values).all():
        raise ValueError("path has no fit that converged (all its coefficients are NaN): there is nothing to draw.")
    labels = np.asarray(path[across].values if names is None else list(names)).astype(str)
    [axes] = new_axes(ax, figsize=(7.0, 4.6))
    weight = np.nansum(probabilities, axis=0) + 1e-3 * np.nanmax(np.abs(values), axis=0)
    included = [k for k in np.argsort(-weight, kind="stable") if (probabilities[:, k] >= 0.5).any()]
    colors = dict(zip(included, COLORS, strict=False))
    for k in range(values.shape[1]):
        color, label, width, z = (colors[k], labels[k], 1.6, 2) if k in colors else (GREY, None, 0.6, 1)
        axes.plot(v0, values[:, k], color=color, linewidth=width, label=label, zorder=z)
        inside = probabilities[:, k] >= 0.5
        axes.scatter(v0[inside], values[inside, k], s=34, facecolors="none", edgecolors=color, zorder=z + 1)
    axes.scatter([], [], s=34, facecolors="none", edgecolors=BLACK, label="probability ≥ 0.5")
    axes.axhline(0.0, color=GREY, linewidth=0.8, linestyle=":")
    axes.set(xscale="log", xlabel=r"spike variance $v_0$", ylabel="posterior mean")
    canvas.legend_beside(axes, fontsize="small")
    return axes


def _probabilities(result: Any) -> pd.Series[float]:
    """Return inclusion probabilities by their names, or numbers where they have none."""
    of_model = isinstance(result, EPApproximation) or dataset_of(result, "posterior") is not None
    values = inclusion_probability(result) if of_model else getattr(result, "inclusion_probability", result)
    found = (values.to_series() if isinstance(values, xr.DataArray) else pd.Series(values)).astype(float)
    if found.empty or not found.between(0.0, 1.0).all():
        raise ValueError(f"result must have inclusion probabilities, numbers in [0, 1]; got {found[:5].tolist()}.")
    return found


def plot_compare(table: pd.DataFrame, *, ax: Any = None) -> Any:
    """Draw the log evidence of each model, the best on top, with two standard errors where they are known.

    Parameters
    ----------
    table : DataFrame
        Result of :func:`~pymc_pacauc.compare`.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes
        With a line for each model, labelled with its posterior probability.

    Raises
    ------
    ValueError
        If ``ax`` is more than one axes.
    ImportError
        If matplotlib is not installed.

    See Also
    --------
    pymc_pacauc.compare : Compute the table.

    Examples
    --------
    >>> import numpy as np, pymc_pacauc as pac
    >>> import matplotlib.pyplot as plt
    >>> X = np.random.default_rng(1).normal(size=(60, 2))
    >>> y = X[:, 0] > 0.3
    >>> fits = {f"{k} columns": pac.arrays.fit(pac.arrays.linear_gaussian_problem(X[:, :k], y, 60.0)) for k in (1, 2)}
    >>> fig, ax = plt.subplots(figsize=(5, 2.5), layout="constrained")
    >>> ax = pac.plots.plot_compare(pac.compare(fits, folds=0), ax=ax)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['1 columns', '2 columns']
    """
    [axes] = new_axes(ax, figsize=(6.4, 1.2 + 0.45 * len(table)))
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
    return axes


def plot_gamma_path(result: Any, *, ax: Any = None) -> Any:
    """Draw AUCs (or concordances) and log evidence against gamma.

    Parameters
    ----------
    result : GammaSelection, draws or Dataset
        Result of :func:`~pymc_pacauc.select_gamma` (held-out AUC of the mean score, with the standard error of its
        difference from the best, and of a draw; on training rows the AUC of a draw, the certified AUC and the log
        evidence; shaded, the gammas within one standard error of the best, unless all are), or an idata of
        :class:`~pymc_pacauc.TemperingSMC` (expected AUC and log evidence of each chain's stages).
    ax : sequence of two matplotlib Axes, optional
        Two axes, one above the other; by default a new figure.

    Returns
    -------
    ndarray of matplotlib Axes
        Two: AUCs above, log evidence below.

    Raises
    ------
    TypeError
        If ``result`` is not of a kind described above.
    ValueError
        If draws have no record of stages of tempering, or ``ax`` is not two axes.
    ImportError
        If matplotlib is not installed.

    Warns
    -----
    TemperingWarning
        If draws lack the record of some stages.

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
        path = tempering_path(result)
        path = path.assign(auc=1.0 - path["expected_risk"]).where(path["gamma"] > 0.0)
        _draw_chains(top, path, "gamma", "auc")
        _draw_chains(bottom, path, "gamma", "log_evidence")
    bottom.set(xlabel=r"$\gamma$ (multiplies the pair risk)", ylabel=r"$\log Z_\gamma$")
    top.set_ylabel(as_result(result).fitted_to.measure)
    for each in axes:
        each.set_xscale("log")
        low, high = each.get_xlim()
        subs = (1.0, 2.0, 5.0) if high < 1000.0 * low else (1.0,)  # over more decades labels would overlap
        each.xaxis.set_major_locator(LogLocator(subs=subs, numticks=8))
        each.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        each.xaxis.set_minor_locator(NullLocator())
    place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": 2 if hasattr(result, "table") else 4}
    top.legend(frameon=False, fontsize="small", **place)
    return axes


def _selection(result: Any, top: Any, bottom: Any) -> None:
    """Draw the table of a GammaSelection: AUCs above, log evidence below."""
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
        if gamma.between(low, high).all():  # a band over everything would say nothing
            top.plot([], [], " ", label="all within one s.e. of the best")
        else:
            for axis in (top, bottom):
                axis.axvspan(low, high, color=ORANGE, alpha=0.15, linewidth=0, zorder=0)
            top.fill_between([], [], color=ORANGE, alpha=0.15, linewidth=0, label="within one s.e. of the best")
    top.plot(gamma, table["training_auc"], color=GREY, marker=".", linestyle=":", label="a draw, training rows")
    if table["certified_auc"].notna().any():
        top.plot(gamma, table["certified_auc"], color=VERMILION, marker="s", markersize=4, label="certified")
    top.axvline(result.best, color=ORANGE, linewidth=1.5, zorder=0, label=rf"chosen, $\gamma$ = {result.best:.4g}")
    bottom.axvline(result.best, color=ORANGE, linewidth=1.5, zorder=0)
    bottom.plot(gamma, table["log_evidence"], color=GREEN, marker=".")


def _draw_chains(axes: Any, path: xr.Dataset, over: str, name: str) -> None:
    """Draw a variable of the stages against another one, a line per chain."""
    x, y = xr.broadcast(path[over], path[name])
    for k, chain in enumerate(path["chain"].values):
        line = {"color": COLORS[k % len(COLORS)], "marker": ".", "label": f"chain {chain}"}
        axes.plot(x.sel(chain=chain), y.sel(chain=chain), **line)


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

    Raises
    ------
    TypeError
        If ``idata`` is not of a kind described above.
    ValueError
        If draws have no record of stages of tempering, or ``ax`` is not three axes.
    ImportError
        If matplotlib is not installed.

    Warns
    -----
    TemperingWarning
        If draws lack the record of some stages.

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
        _draw_chains(axis, path, "stage", name)
        axis.set(xlabel="stage", ylabel=label)
        axis.xaxis.get_major_locator().set_params(integer=True)
    axes[2].set_ylim(0, 1)
    if not from_fit:
        axes[0].set_yscale("symlog", linthresh=1.0)
    axes[1].set_ylim(bottom=0)
    if path.sizes["chain"] <= len(COLORS):
        axes[0].legend(frameon=False, fontsize="small")
    return axes
