"""Figures of coefficients (marginals, inclusion probabilities, regularisation paths), decision curves and models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy.stats import gaussian_kde, norm

from pymc_pacauc.analysis.plots.canvas import BLACK, BLUE, COLORS, GREY, LINES, VERMILION, named_curves, new_axes
from pymc_pacauc.analysis.plots.ranking import MOST_SHOWN
from pymc_pacauc.analysis.summary import inclusion_probability
from pymc_pacauc.model.approximation import EPApproximation
from pymc_pacauc.model.idata import coefficient_labels
from pymc_pacauc.model.results import dataset_of
from pymc_pacauc.numerics import DRAWS


def plot_marginals(
    approx: Any,
    idata: Any = None,
    *,
    coefficients: Sequence[str] | None = None,
    ax: Any = None,
) -> Any:
    """Draw the marginals of the coefficients: the approximation as a line over the density of draws.

    Parameters
    ----------
    approx : EPApproximation
        Result of ``pm.fit(method=pac.EP())``.
    idata : InferenceData or DataTree, optional
        Draws of the same model to compare with, for example by tempering SMC.
    coefficients : sequence of str, optional
        Which to show, by their labels, such as ``"theta[glu]"``; by default the first forty.
    ax : matplotlib Axes or sequence of them, optional
        One axes for each coefficient; by default a new figure.

    Returns
    -------
    ndarray of matplotlib Axes
        One for each coefficient (the layout of the paper's Figure 1).

    Raises
    ------
    TypeError
        If ``approx`` is not an approximation, or ``idata`` are not draws.
    ValueError
        If ``coefficients`` has an unknown name.

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
    if not hasattr(approx, "variable_names"):
        raise TypeError(
            "approx must be the result of pm.fit(method=pac.EP()), and draws the second argument: "
            f"plot_marginals(approx, idata); got {type(approx).__name__}. For draws alone use az.plot_forest."
        )
    names = approx.variable_names
    labels = coefficient_labels(approx.model, names)
    shown = labels[:MOST_SHOWN] if coefficients is None else list(coefficients)
    unknown = [label for label in shown if label not in labels]
    if unknown:
        raise ValueError(f"coefficients has unknown names, {', '.join(unknown)}; there are {', '.join(labels[:20])}.")
    draws = None if idata is None else _flat_draws(names, idata)
    columns = min(4, len(shown))
    rows = -(-len(shown) // columns)
    axes = new_axes(ax, rows=rows, columns=columns, figsize=(2.6 * columns + 0.4, 2.1 * rows + 0.5))
    mean, sd = approx.posterior.mean, np.sqrt(approx.posterior.variance)
    gaussian = approx.posterior is approx.fit.posterior
    own = None if gaussian else approx.posterior.draw(DRAWS, np.random.default_rng(0))
    for axis, label in zip(axes, shown, strict=False):
        k = labels.index(label)
        low, high = mean[k] - 4 * sd[k], mean[k] + 4 * sd[k]
        if draws is not None:
            low, high = min(low, draws[:, k].min()), max(high, draws[:, k].max())
        grid = np.linspace(low, high, 300)
        if draws is not None:
            density = gaussian_kde(draws[:, k])(grid)
            axis.fill_between(grid, density, color=BLUE, alpha=0.3, linewidth=0, label="draws")
        line = getattr(approx, "method", "approximation")
        density = norm.pdf(grid, mean[k], sd[k]) if own is None else gaussian_kde(own[:, k])(grid)
        axis.plot(grid, density, color=VERMILION, label=line)
        axis.axvline(0.0, color=GREY, linewidth=0.8, linestyle=":")
        axis.set(title=label, yticks=[], ylim=(0, None))
        axis.title.set_fontsize("medium")
        axis.spines["left"].set_visible(False)
    for axis in axes[len(shown) :]:
        axis.set_visible(ax is not None)
    if draws is not None:
        axes[0].legend(frameon=False, fontsize="small", loc="upper left")
    return axes[: len(shown)]


def plot_inclusion(result: Any, *, names: Sequence[str] | None = None, most: int = 30, ax: Any = None) -> Any:
    """Draw the inclusion probabilities of a spike-and-slab fit, largest first.

    Parameters
    ----------
    result : approximation, draws or array_like
        An approximation or draws of a model with a :func:`~pymc_pacauc.SpikeSlab` variable, or the probabilities
        (array, DataArray or Series).
    names : sequence of str, optional
        Names of the coefficients; by default their coordinates or numbers.
    most : int, default 30
        How many to show.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes
        With a bar for each coefficient.

    Raises
    ------
    ValueError
        If probabilities are not in [0, 1], or ``names`` are not as many.

    See Also
    --------
    pymc_pacauc.inclusion_probability : Compute the probabilities.
    plot_regularization_path : Coefficients against the spike's variance.

    Examples
    --------
    >>> import pymc_pacauc as pac
    >>> import matplotlib.pyplot as plt
    >>> fig, ax = plt.subplots(figsize=(5, 2.5), layout="constrained")
    >>> ax = pac.plots.plot_inclusion([0.1, 0.9, 0.4], names=["a", "b", "c"], ax=ax)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['b', 'c', 'a']
    """
    values, found = _probabilities(result)
    labels = np.asarray(found if names is None else list(names)).astype(str)
    if labels.size != values.size:
        raise ValueError(f"names must be {values.size}, one for each probability; got {labels.size}.")
    order = np.argsort(-values, kind="stable")[:most]
    [axes] = new_axes(ax, figsize=(5.5, 0.24 * order.size + 1.0))
    rows = np.arange(order.size)
    colors = [BLUE if values[k] >= 0.5 else GREY for k in order]
    axes.hlines(rows, 0, values[order], color=colors, linewidth=2)
    axes.scatter(values[order], rows, color=colors, s=28, zorder=3)
    axes.axvline(0.5, color=BLACK, linewidth=0.8, linestyle="--")
    axes.set(yticks=rows, yticklabels=labels[order], xlim=(0, 1.02), xlabel="probability of inclusion")
    axes.invert_yaxis()
    if values.size > order.size:
        axes.set_title(f"{order.size} largest of {values.size}", fontsize="medium")
    return axes


def plot_regularization_path(path: Any, *, names: Sequence[str] | None = None, most: int = 7, ax: Any = None) -> Any:
    """Draw coefficients against the spike's variance, circled where included (the paper's Figure 3).

    Parameters
    ----------
    path : Dataset
        Result of :func:`~pymc_pacauc.regularization_path`, or a Dataset with ``coefficient`` and
        ``inclusion_probability`` over (v0, coefficient).
    names : sequence of str, optional
        Names of the coefficients.
    most : int, default 7
        How many coefficients to name and colour at most: those included anywhere, for most of the path first.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes
        With a line for each coefficient.

    Raises
    ------
    ValueError
        If no fit of the path converged.

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
    v0, values, probabilities, found = _path_arrays(path)
    if np.isnan(values).all():
        raise ValueError("path has no fit that converged (all its coefficients are NaN): there is nothing to draw.")
    labels = np.asarray(found if names is None else list(names)).astype(str)
    [axes] = new_axes(ax, figsize=(7.0, 4.6))
    weight = np.nansum(probabilities, axis=0) + 1e-3 * np.nanmax(np.abs(values), axis=0)
    included = [k for k in np.argsort(-weight, kind="stable") if (probabilities[:, k] >= 0.5).any()]
    named = np.array(included[: min(most, len(COLORS))])
    for k in range(values.shape[1]):
        chosen = np.flatnonzero(named == k)
        color = COLORS[chosen[0]] if chosen.size else GREY
        label = labels[k] if chosen.size else None
        width, z = (1.6, 2) if chosen.size else (0.6, 1)
        axes.plot(v0, values[:, k], color=color, linewidth=width, label=label, zorder=z)
        inside = probabilities[:, k] >= 0.5
        axes.scatter(v0[inside], values[inside, k], s=34, facecolors="none", edgecolors=color, zorder=z + 1)
    axes.scatter([], [], s=34, facecolors="none", edgecolors=BLACK, label="probability ≥ 0.5")
    axes.axhline(0.0, color=GREY, linewidth=0.8, linestyle=":")
    axes.set(xscale="log", xlabel=r"spike variance $v_0$", ylabel="posterior mean")
    axes.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return axes


def _flat_draws(names: Sequence[str], idata: Any) -> np.ndarray:
    posterior = dataset_of(idata, "posterior")
    if posterior is None:
        raise TypeError(
            f"idata must be draws, the result of pm.sample() or approx.sample(); got {type(idata).__name__}."
        )
    columns = [posterior[name].transpose("chain", "draw", ...).values for name in names]
    return np.concatenate([c.reshape(c.shape[0] * c.shape[1], -1) for c in columns], axis=1)


def _probabilities(result: Any) -> tuple[np.ndarray, Any]:
    if isinstance(result, EPApproximation) or dataset_of(result, "posterior") is not None:
        result = inclusion_probability(result)
    values = getattr(result, "inclusion_probability", result)
    labels = getattr(values, "index", None)  # of a Series
    if isinstance(values, xr.DataArray):
        labels = values[values.dims[-1]].values if values.dims[-1] in values.coords else None
    array = np.asarray(values, dtype=float).ravel()
    if array.size == 0 or not ((array >= 0) & (array <= 1)).all():
        raise ValueError(f"result must have inclusion probabilities, numbers in [0, 1]; got {array[:5].tolist()}.")
    return array, np.arange(array.size) if labels is None or callable(labels) else np.asarray(labels)


def _path_arrays(path: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, Any]:
    data = path if isinstance(path, xr.Dataset) else path.to_dataset()
    names = data["coefficient"].dims
    found = data[names[1]].values if names[1] in data.coords else np.arange(data.sizes[names[1]])
    return data["v0"].values, data["coefficient"].values, data["inclusion_probability"].values, found


def plot_decision_curve(curves: xr.Dataset | Mapping[str, xr.Dataset], *, band: bool = True, ax: Any = None) -> Any:
    """Draw net benefit against the probability at which one is indifferent, beside acting on every row and on none.

    Parameters
    ----------
    curves : Dataset or mapping of str to Dataset
        Result of :func:`~pymc_pacauc.decision_curve`, or several of them by name.
    band : bool, default True
        Show the band over rows.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes
        With a line for each curve.

    Raises
    ------
    TypeError
        If ``curves`` are not results of :func:`~pymc_pacauc.decision_curve`.

    See Also
    --------
    pymc_pacauc.decision_curve : Compute the curve.

    Examples
    --------
    >>> import numpy as np, pymc_pacauc as pac
    >>> import matplotlib.pyplot as plt
    >>> y = np.arange(100) < 30
    >>> scores = np.random.default_rng(1).normal(size=100) + 1.5 * y
    >>> curve = pac.decision_curve(scores, y, probabilities=np.linspace(0.02, 0.6, 30))
    >>> fig, ax = plt.subplots(layout="constrained")
    >>> pac.plots.plot_decision_curve(curve, ax=ax).get_ylabel()
    'net benefit (true positives per row)'
    """
    named = named_curves(curves, "mean score", "decision_curve", "net_benefit")
    [axes] = new_axes(ax, figsize=(6.0, 4.2))
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
    axes.legend(frameon=False, title=f"{first.attrs['ci_prob']:.0%} over rows" if band else None)
    return axes


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
