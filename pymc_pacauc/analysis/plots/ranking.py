"""Figures of a ranking: ROC and precision-recall curves, scores by class, survival by score, additive functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy.special import ndtri
from scipy.stats import gaussian_kde

from pymc_pacauc.analysis.plots import canvas
from pymc_pacauc.analysis.plots.canvas import BLACK, BLUE, COLORS, GREY, LINES, VERMILION, draw_curves, named_curves
from pymc_pacauc.analysis.threshold import Threshold
from pymc_pacauc.comparison.censored import concordance_risk, event_codes, survival_curve
from pymc_pacauc.comparison.pairs import encode_labels
from pymc_pacauc.comparison.risk import empirical_risk
from pymc_pacauc.model.deployed import mean_score
from pymc_pacauc.numerics import FloatArray, check_probability, tails
from pymc_pacauc.problem.additive_features import LEVELS

MOST_SHOWN = 40  # columns or coefficients, the largest, in figures and tables: what fits on a page; doubled, two pages


def plot_roc(curves: xr.Dataset | Mapping[str, xr.Dataset], *, ax: Any = None) -> Any:
    """Draw ROC curves of mean scores, with their bands over rows.

    Parameters
    ----------
    curves : Dataset or mapping of str to Dataset
        Result of :func:`~pymc_pacauc.roc`, or several of them by name.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes
        With a line for each curve and its AUC in the legend.

    Raises
    ------
    TypeError
        If ``curves`` are not results of :func:`~pymc_pacauc.roc`.
    ValueError
        If ``curves`` is an empty mapping, or ``ax`` is more than one axes.
    ImportError
        If matplotlib is not installed.

    See Also
    --------
    pymc_pacauc.roc : Compute the curve.
    plot_precision_recall : Precision against recall, for rare positives.

    Examples
    --------
    >>> import numpy as np, pymc_pacauc as pac
    >>> import matplotlib.pyplot as plt
    >>> y = np.arange(150) < 50
    >>> scores = np.random.default_rng(1).normal(size=150) + 1.5 * y
    >>> fig, ax = plt.subplots(layout="constrained")
    >>> ax = pac.plots.plot_roc({"my score": pac.roc(scores, y)}, ax=ax)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('false positive rate', 'true positive rate')
    """
    named = named_curves(curves, "", "roc", "tpr")
    [axes] = canvas.new_axes(ax, figsize=(5.2, 5.2))
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle=":")
    draw_curves(axes, named, "tpr", ("tpr_lower", "tpr_upper"), measure="auc")
    axes.set(xlabel="false positive rate", ylabel="true positive rate", xlim=(0, 1), ylim=(0, 1.005), aspect="equal")
    axes.legend(loc="lower right", frameon=False, title=f"AUC of the mean score\n({_uncertain(named)})")
    return axes


def _uncertain(named: Mapping[str, xr.Dataset]) -> str:
    """Say of what probability bands and intervals are, and whether rows or groups are the units."""
    attrs = next(iter(named.values())).attrs
    return f"{attrs['ci_prob']:.0%} over {'groups' if attrs['n_groups'] else 'rows'}"


def plot_precision_recall(curves: xr.Dataset | Mapping[str, xr.Dataset], *, ax: Any = None) -> Any:
    """Draw precision-recall curves of mean scores, with their bands over rows.

    Parameters
    ----------
    curves : Dataset or mapping of str to Dataset
        Result of :func:`~pymc_pacauc.precision_recall`, or several of them by name.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes
        With the event rate, which is the precision of a random score, as a dotted line.

    Raises
    ------
    TypeError
        If ``curves`` are not results of :func:`~pymc_pacauc.precision_recall`.
    ValueError
        If ``curves`` is an empty mapping, or ``ax`` is more than one axes.
    ImportError
        If matplotlib is not installed.

    See Also
    --------
    pymc_pacauc.precision_recall : Compute the curve.
    plot_roc : True against false positive rates.

    Examples
    --------
    >>> import numpy as np, pymc_pacauc as pac
    >>> import matplotlib.pyplot as plt
    >>> y = np.arange(150) < 50
    >>> scores = np.random.default_rng(1).normal(size=150) + 1.5 * y
    >>> fig, ax = plt.subplots(layout="constrained")
    >>> ax = pac.plots.plot_precision_recall(pac.precision_recall(scores, y), ax=ax)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('recall', 'precision')
    """
    named = named_curves(curves, "", "precision_recall", "precision")
    [axes] = canvas.new_axes(ax, figsize=(7.6, 4.6))
    limits = ("precision_lower", "precision_upper")
    draw_curves(axes, named, "precision", limits, measure="average_precision", step="pre")
    for curve in named.values():
        axes.axhline(curve.attrs["event_rate"], color=GREY, linewidth=0.8, linestyle=":")
    axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.005), aspect="equal")
    title = f"average precision of the mean score\n({_uncertain(named)}; dotted: event rate)"
    canvas.legend_beside(axes, title=title, alignment="left")
    return axes


def plot_decision_curve(curves: xr.Dataset | Mapping[str, xr.Dataset], *, ax: Any = None) -> Any:
    """Draw net benefit against the probability at which one is indifferent, beside acting on every row and on none.

    Parameters
    ----------
    curves : Dataset or mapping of str to Dataset
        Result of :func:`~pymc_pacauc.decision_curve`, or several of them by name.
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
    ValueError
        If ``curves`` is an empty mapping, or ``ax`` is more than one axes.
    ImportError
        If matplotlib is not installed.

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
    [axes] = canvas.new_axes(ax, figsize=(6.0, 4.2))
    first = next(iter(named.values()))
    at = first["probability"]
    axes.axhline(0.0, color=BLACK, linewidth=0.9, label="nobody")
    axes.plot(at, first["treat_all"], color=GREY, linewidth=0.9, label="everybody")
    draw_curves(axes, named, "net_benefit", ("lower", "upper"))
    top = max(float(curve["upper"].max()) for curve in named.values())
    axes.set(xlabel="probability at which one is indifferent", ylabel="net benefit (true positives per row)")
    axes.set_xlim(0, 1)
    if top > 0.0:  # elsewhere no rule is better than nobody: all that there is, is shown
        axes.set_ylim(-0.15 * top, 1.05 * top)
    axes.legend(frameon=False, title=_uncertain(named))
    return axes


def plot_scores(
    scores: Any,
    y: ArrayLike,
    *,
    threshold: Threshold | float | None = None,
    positive: Any = None,
    ordered: bool = False,
    ax: Any = None,
) -> Any:
    """Draw the density of the mean score in each class, one above the other, with a threshold.

    Parameters
    ----------
    scores : array_like or DataArray, shape (..., n)
        Result of :func:`~pymc_pacauc.predict_scores`, draws or ``summary=True``; an array of draws, shape
        (..., rows); or one score per row.
    y : array_like, shape (n,)
        Labels.
    threshold : Threshold or float, optional
        Result of :func:`~pymc_pacauc.choose_threshold`, or a number.
    positive : label, optional
        Which of the two labels is the positive class.
    ordered : bool, default False
        True for y with more than two values, of which the larger should score higher: the title is then the
        concordance of the scores with the classes.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes
        With a filled curve for each class.

    Raises
    ------
    ValueError
        If scores and y have different numbers of rows, or options exclude each other.
    ImportError
        If matplotlib is not installed.

    See Also
    --------
    pymc_pacauc.choose_threshold : Choose the threshold.
    plot_roc : True and false positive rates of all thresholds.

    Examples
    --------
    >>> import numpy as np, pymc_pacauc as pac
    >>> import matplotlib.pyplot as plt
    >>> y = np.arange(60) < 20
    >>> scores = np.random.default_rng(1).normal(size=60) + 1.5 * y
    >>> fig, ax = plt.subplots(layout="constrained")
    >>> pac.plots.plot_scores(scores, y, threshold=1.0, ax=ax).get_xlabel()
    'score'
    """
    score, title = np.asarray(mean_score(scores)), ""
    if ordered:
        if positive is not None:
            raise ValueError("positive= is for two classes; with ordered=True the larger value of y scores higher.")
        title = f"concordance {1.0 - float(empirical_risk(score, y, ordered=True)):.3f}"  # also checks the two
        members = {f"{label:g}": score[np.asarray(y) == label] for label in np.unique(y)}
    else:
        mask = encode_labels(y, positive)
        if score.shape != mask.shape:
            raise ValueError(f"scores must have one column per label, {mask.size}; their mean has shape {score.shape}.")
        members = {"negative": score[~mask], "positive": score[mask]}
    [axes] = canvas.new_axes(ax, figsize=(6.4, 1.6 + 0.7 * len(members)))
    _ridges(axes, score, list(members.values()))
    labels = [f"{name} ({inside.size} rows)" for name, inside in members.items()]
    axes.set(yticks=np.arange(len(members)), yticklabels=labels, ylim=(-0.2, len(members)))
    axes.set(xlabel=_what(scores), ylabel="class", title=title)
    if threshold is not None:
        value, rates = threshold, ""
        if isinstance(threshold, Threshold):
            value = threshold.value
            rates = f"\n({threshold.rule};\nFPR {threshold.fpr:.2f}, TPR {threshold.tpr:.2f})"
        axes.axvline(value, color=BLACK, linewidth=1.2, zorder=99, label=f"threshold {value:.3g}{rates}")
    canvas.legend_beside(axes)
    return axes


def _what(scores: Any) -> str:
    """Name what is drawn of the scores."""
    return "mean score" if isinstance(scores, xr.Dataset) or np.ndim(scores) > 1 else "score"


def _ridges(axes: Any, score: np.ndarray, members: Sequence[np.ndarray]) -> None:
    """Draw a density for each class, higher classes further up, on a common scale; none where a class has no spread."""
    spread = np.ptp(score)
    grid = np.linspace(score.min() - 0.15 * spread, score.max() + 0.15 * spread, 400)
    visible = [np.ptp(each) > max(1e-9 * spread, 1e-150) for each in members]
    densities = [gaussian_kde(each)(grid) if seen else 0.0 * grid for each, seen in zip(members, visible, strict=True)]
    highest = np.max(densities) or 1.0
    for k, (density, inside) in enumerate(zip(densities, members, strict=True)):
        front = 2 * (len(members) - k)  # the lower classes in front
        axes.fill_between(grid, k, k + 0.9 * density / highest, color=BLUE, alpha=0.3, linewidth=0, zorder=front)
        axes.plot(grid, k + 0.9 * density / highest, color=BLUE, linewidth=1.2, zorder=front)
        axes.plot(inside, np.full(inside.size, k - 0.06), "|", color=BLUE, alpha=0.4, markersize=5, zorder=front)
        axes.plot(np.median(inside), k, "o", color=VERMILION, markersize=5, zorder=100, label=None if k else "median")


def plot_survival(
    scores: Any,
    time: ArrayLike,
    event: ArrayLike,
    *,
    cause: int = 1,
    groups: int = 3,
    ci_prob: float = 0.9,
    ax: Any = None,
) -> Any:
    """Draw the share without event over time in groups of equal size by their mean score (Kaplan-Meier estimate).

    Where there are competing events: the share that has had one of the ``cause`` (Aalen and Johansen's estimate). A
    high score means an early event: the curve of the highest scores should move first. On rows that were fitted the
    curves are further apart than on others.

    Parameters
    ----------
    scores : array_like or DataArray, shape (..., n)
        Result of :func:`~pymc_pacauc.predict_scores`, draws or ``summary=True``; an array of draws, shape
        (..., rows); or one score per row.
    time, event : array_like, shape (n,)
        When each row had its event or was last seen, and whether it was an event, or its cause (0: censored).
    cause : int, default 1
        The code in ``event`` of the events of interest.
    groups : int, default 3
        Number of groups, cut at quantiles of the score; rows with equal scores stay together.
    ci_prob : float, default 0.9
        Probability of the pointwise bands, Greenwood's on the scale of log(-log S).
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes
        With a step curve for each group; censored rows are ticks on the curves.

    Raises
    ------
    ValueError
        If ``groups`` is out of its range, or some of them would be empty.
    ImportError
        If matplotlib is not installed.

    See Also
    --------
    pymc_pacauc.concordance_risk : One minus the concordance of the same scores and times.

    Examples
    --------
    >>> import numpy as np, pymc_pacauc as pac
    >>> import matplotlib.pyplot as plt
    >>> rng = np.random.default_rng(1)
    >>> scores = rng.normal(size=60)
    >>> time, event = rng.exponential(np.exp(-scores)), rng.random(60) < 0.7
    >>> fig, ax = plt.subplots(layout="constrained")
    >>> ax = pac.plots.plot_survival(scores, time, event, groups=2, ax=ax)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('time', 'share without event')
    """
    score = np.asarray(mean_score(scores), dtype=np.float64)
    if not (isinstance(groups, int | np.integer) and 2 <= groups <= len(COLORS)):
        raise ValueError(f"groups must be an integer from 2 to {len(COLORS)}; got {groups!r}.")
    c = 1.0 - float(concordance_risk(score, time, event, cause=cause))  # also checks the three
    times = np.asarray(time, dtype=np.float64)
    codes = event_codes(event, times.size)
    events, competing = codes == cause, bool((codes[codes > 0] != cause).any())
    group = np.searchsorted(np.quantile(score, np.arange(1, groups) / groups), score, side="left")
    empty = groups - np.unique(group).size
    if empty:
        raise ValueError(f"groups={groups} is too many: {empty} would be empty, because many scores are equal.")
    [axes] = canvas.new_axes(ax, figsize=(7.2, 4.2))
    for k in range(groups):
        inside = group == k
        curve = survival_curve(times[inside], codes[inside], cause)
        at, share = np.concatenate([[0.0], curve.time]), np.concatenate([[1.0], curve.survival])
        lower, upper = (np.concatenate([[1.0], bound]) for bound in curve.interval(ci_prob))
        if competing:
            lower, share, upper = 1.0 - upper, 1.0 - share, 1.0 - lower
        end = {0: " (lowest)", groups - 1: " (highest)"}.get(k, "")
        label = f"group {k + 1}{end}: {int(events[inside].sum())} events, {int(inside.sum())} rows"
        line = {"color": COLORS[k], "linestyle": LINES[k % len(LINES)], "label": label}
        canvas.draw_band(axes, at, share, (lower, upper), step="post", **line)
        censored = np.unique(times[inside & (codes == 0)])
        axes.plot(censored, share[np.searchsorted(at, censored, side="right") - 1], "|", color=COLORS[k], markersize=6)
    what_share = f"share with an event of cause {cause}" if competing else "share without event"
    axes.set(xlabel="time", ylabel=what_share, xlim=(0.0, None), ylim=(0.0, 1.02))
    canvas.legend_beside(axes, title=f"by {_what(scores)}\n(concordance {c:.3f})", alignment="left")
    return axes


def plot_shapes(estimator: Any, *, columns: Sequence[str] | None = None, ci_prob: float = 0.9, ax: Any = None) -> Any:
    """Draw the function of each column of an additive score, with its band.

    Parameters
    ----------
    estimator : AUCClassifier or ConcordanceEstimator
        Fitted with ``prior="additive"``, or ``"auto"``, of which its additive part is drawn.
    columns : sequence of str, optional
        Which to show, by their names; by default the forty whose functions vary most over their points.
    ci_prob : float, default 0.9
        Probability of the pointwise band, of calibrated spread.
    ax : matplotlib Axes or sequence of them, optional
        One axes for each column; by default a new figure.

    Returns
    -------
    ndarray of matplotlib Axes
        One for each column, with what it adds to the score.

    Raises
    ------
    ValueError
        If the estimator is not additive, a column is unknown, or ``ci_prob`` is not in (0, 1).
    ImportError
        If matplotlib is not installed.

    See Also
    --------
    pymc_pacauc.additive_features : The features that these functions are made of.

    Examples
    --------
    >>> import numpy as np, pymc_pacauc as pac
    >>> import matplotlib.pyplot as plt
    >>> X = np.random.default_rng(1).normal(size=(80, 2))
    >>> classifier = pac.AUCClassifier("additive", gamma=80).fit(X, X[:, 0] ** 2 > 0.5)
    >>> fig, axes = plt.subplots(1, 2, figsize=(7, 3), layout="constrained")
    >>> [ax.get_xlabel() for ax in pac.plots.plot_shapes(classifier, ax=axes)]
    ['x0', 'x1']
    """
    from sklearn.utils.validation import check_is_fitted  # an estimator brings scikit-learn; other figures need none

    check_is_fitted(estimator)
    check_probability("ci_prob", ci_prob)
    shapes = dict(zip(estimator._feature_names(), estimator.scores_[0].posterior.shapes(), strict=True))
    shown = sorted(shapes, key=lambda name: -np.ptp(shapes[name][1]))[:MOST_SHOWN] if columns is None else columns
    if unknown := [name for name in shown if name not in shapes]:
        raise ValueError(f"columns has {unknown[0]!r}, which is no column of X; these are {', '.join(shapes)}.")
    axes = canvas.panels(ax, len(shown), 3.2, 2.6, sharey=True)
    for each, name in zip(axes, shown, strict=True):
        draw_shape(each, name, shapes[name], ci_prob)
    return axes


def draw_shape(axes: Any, name: str, shape: FloatArray, ci_prob: float) -> None:
    """Draw one of :meth:`~pymc_pacauc.estimator.posterior.ScorePosterior.shapes`."""
    x, mean, sd = shape
    half = ndtri(tails(ci_prob)[1]) * sd
    axes.axhline(0.0, color=GREY, linewidth=0.8, linestyle=":")
    canvas.draw_band(axes, x, mean, (mean - half, mean + half), marker="o" if x.size <= LEVELS else None)
    axes.set(xlabel=name, ylabel="adds to the score")
