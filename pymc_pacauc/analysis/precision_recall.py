"""Precision and recall of the score one deploys: what is found among those called positive, with bands.

Of the rows called positive at a threshold, the *precision* is the share that is positive; the *recall* is the share of
the positives that is called. Where positives are rare the ROC curve looks at false alarms by the negatives, of which
there are plenty; precision looks at them by the calls, which is what a clinic or an investigator pays for. It depends
on the event rate: rows must be drawn as those to come are, not class by class.

The curve is a staircase, precision(r) being that of the fewest calls that find the share r of the positives, so that
its area is scikit-learn's average precision, sum over thresholds of (R_k - R_{k-1}) P_k. Bands are those of
:func:`~pymc_pacauc.roc`: over rows (or whole groups) by the Bayesian bootstrap, at least as wide as Clopper and
Pearson's interval for the rows called; of a draw from the posterior, over rows and draws. The average precision has the
interval that an AUC has: its bootstrap variance says how many independent positives it is worth, and the interval is
the binomial one in that many trials (as Boyd, Eng and Page, 2013, with the positives themselves for trials).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from pymc_pacauc.analysis.evaluate import BOOTSTRAP, GRID, Ranking, Units, binomial_interval
from pymc_pacauc.model.deployed import check_ci_prob, deployed_score, labelled_draws
from pymc_pacauc.numerics import FloatArray


def precision_recall(
    scores: Any,
    y: ArrayLike,
    *,
    precision: float | None = None,
    calls: int | None = None,
    mean: ArrayLike | None = None,
    ci_prob: float = 0.9,
    positive: Any = None,
    groups: ArrayLike | None = None,
    random_seed: Any = 0,
) -> xr.Dataset:
    """Compute the precision-recall curve of the mean score on labelled rows, with a band over rows.

    Parameters
    ----------
    scores : Dataset, DataArray or array_like
        What :func:`~pymc_pacauc.predict_scores` returned, draws or ``summary=True``; or an array of draws, shape
        (..., rows); or one score per row.
    y : array_like, shape (rows,)
        Labels of the rows. For an honest curve, of rows that were not fitted.
    precision : float, default None
        Report the largest recall at which at least this share of the calls is right.
    calls : int, default None
        Report recall and precision when this many rows, those with the highest scores, are called positive.
    mean : array_like, shape (rows,), default None
        The score to deploy, as in :func:`~pymc_pacauc.roc`.
    ci_prob : float, default 0.9
        Probability of the pointwise bands and of the intervals.
    positive : object, default None
        Which of the two labels is the positive class.
    groups : array_like, shape (rows,), default None
        A label per row, such as its patient: groups, not rows, are then the independent units.
    random_seed : int or None, default 0
        Of the bootstrap.

    Returns
    -------
    Dataset
        Over ``recall``: ``precision`` of the mean score with ``precision_lower`` and ``precision_upper`` over rows;
        ``precision_of_draw``, the mean curve of draws, with ``precision_of_draw_lower`` and
        ``precision_of_draw_upper`` over rows and draws. Over ``sample``: ``average_precision_of_draw``. Attributes:
        ``average_precision`` with ``_lower``, ``_upper`` and ``_se``; ``event_rate``, what a random score has;
        ``recall_at_precision``, ``recall_at_calls`` and ``precision_at_calls``, each with its limits, where asked for;
        ``draws``, ``ci_prob``, ``n_pos``, ``n_neg`` and ``n_groups``.

    Raises
    ------
    ValueError
        Where y has not two classes, scores have other shapes, or an option is out of its range.

    See Also
    --------
    roc : True against false positive rates, and the AUC.

    References
    ----------
    K. Boyd, K. H. Eng, C. D. Page (2013), Area under the precision-recall curve, doi:10.1007/978-3-642-40994-3_29.

    Examples
    --------
    >>> curve = precision_recall([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], calls=2)
    >>> round(curve.attrs["average_precision"], 4), curve.attrs["recall_at_calls"], curve.attrs["precision_at_calls"]
    (0.8333, 0.5, 0.5)
    """
    check_ci_prob(ci_prob)
    draws, mask = labelled_draws(scores, y, positive)
    _check_options(precision, calls, mask.size)
    deployed, units = deployed_score(scores, draws, mean), Units.of(mask, groups)
    rng = np.random.default_rng(random_seed)
    weights = [units.random_weights(rng) for _ in range(BOOTSTRAP)]
    grid, tail = np.linspace(0.0, 1.0, GRID), np.array([0.5 * (1.0 - ci_prob), 0.5 * (1.0 + ci_prob)])

    ranking = Ranking.of(deployed, mask)
    curve, called = _staircase(ranking, grid)
    reweighted = [_staircase(ranking, grid, w)[0] for w in weights]
    lower, upper = _at_least_binomial(np.quantile(reweighted, tail, axis=0), curve, called, units, ci_prob)

    rankings = [Ranking.of(row, mask) for row in draws]
    of_draws = np.array([_staircase(each, grid)[0] for each in rankings])
    chosen = rng.permutation(np.arange(BOOTSTRAP) % len(draws))
    band = np.quantile(
        [_staircase(rankings[k], grid, w)[0] for k, w in zip(chosen, weights, strict=True)], tail, axis=0
    )
    draw_lower, draw_upper = _at_least_binomial(band, of_draws.mean(axis=0), called, units, ci_prob)

    average = average_precision(ranking)
    variance = float(np.var([average_precision(ranking, w) for w in weights]))
    attrs: dict[str, Any] = {"average_precision": average}
    limits = _interval(average, variance, units.positives, ci_prob)
    attrs |= dict(zip(("average_precision_lower", "average_precision_upper"), limits, strict=True))
    attrs |= {"average_precision_se": float(np.sqrt(variance)), "event_rate": float(mask.mean())}
    if precision is not None:
        found = [_recall_at(ranking, precision, w) for w in (None, *weights)]
        attrs |= _with_limits("recall_at_precision", found, units.positives, ci_prob)
    if calls is not None:
        found_calls = [_at_calls(ranking, calls, w) for w in (None, *weights)]
        for k, (name, trials) in enumerate((("recall_at_calls", units.positives), ("precision_at_calls", calls))):
            trials = min(trials, calls * units.positives / max(1, int(mask.sum()))) if k else trials
            attrs |= _with_limits(name, [each[k] for each in found_calls], trials, ci_prob)
    counts = {"n_pos": int(mask.sum()), "n_neg": int((~mask).sum()), "n_groups": units.number}
    return xr.Dataset(
        {
            "precision": ("recall", curve),
            "precision_lower": ("recall", lower),
            "precision_upper": ("recall", upper),
            "precision_of_draw": ("recall", of_draws.mean(axis=0)),
            "precision_of_draw_lower": ("recall", draw_lower),
            "precision_of_draw_upper": ("recall", draw_upper),
            "average_precision_of_draw": ("sample", [average_precision(each) for each in rankings]),
        },
        coords={"recall": grid},
        attrs={**attrs, "draws": len(draws), "ci_prob": ci_prob, **counts},
    )


def average_precision(ranking: Ranking, weights: FloatArray | None = None) -> float:
    """Area under the staircase, of weighted rows.

    Examples
    --------
    >>> ranking = Ranking.of(np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True]))
    >>> round(average_precision(ranking), 4)
    0.8333
    """
    recall, precision, _ = _steps(ranking, weights)
    return float(np.diff(recall, prepend=0.0) @ precision)


def _steps(ranking: Ranking, weights: FloatArray | None) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Recall, precision and weight of the calls, down to each distinct score."""
    w = np.ones(ranking.order.size) if weights is None else weights[ranking.order]
    true, called = np.cumsum(w * ranking.positive)[ranking.last], np.cumsum(w)[ranking.last]
    return true / true[-1], true / called, called


def _staircase(ranking: Ranking, grid: FloatArray, weights: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
    """Precision and calls at the smallest number of calls whose recall is at least that of the grid."""
    recall, precision, called = _steps(ranking, weights)
    place = np.minimum(np.searchsorted(recall, grid - 1e-12), recall.size - 1)
    return precision[place], called[place]


def _recall_at(ranking: Ranking, precision: float, weights: FloatArray | None) -> float:
    recall, found, _ = _steps(ranking, weights)
    enough = found >= precision - 1e-12
    return float(recall[enough].max()) if enough.any() else 0.0


def _at_calls(ranking: Ranking, calls: int, weights: FloatArray | None) -> tuple[float, float]:
    """Recall and precision of as large a share of the rows as ``calls`` are; ties at the limit are called in part."""
    w = np.ones(ranking.order.size) if weights is None else weights[ranking.order]
    true = np.append(0.0, np.cumsum(w * ranking.positive)[ranking.last])
    called = np.append(0.0, np.cumsum(w)[ranking.last])
    goal = called[-1] * calls / ranking.order.size
    right = float(np.interp(goal, called, true))
    return right / float(true[-1]), right / float(goal)


def _interval(value: float, variance: float, trials: float, ci_prob: float) -> tuple[float, float]:
    """The binomial interval of a share in as many trials as its variance says.

    As for an AUC: near 0 and 1 value and variance vanish together, so that their ratio is drawn towards ``trials``.
    """
    pull = 0.25 / trials
    effective = (value * (1.0 - value) + pull) / (variance + pull / trials)
    return binomial_interval(value, effective, ci_prob)


def _with_limits(name: str, found: list[float], trials: float, ci_prob: float) -> dict[str, float]:
    lower, upper = _interval(found[0], float(np.var(found[1:])), trials, ci_prob)
    return {name: found[0], f"{name}_lower": lower, f"{name}_upper": upper}


def _at_least_binomial(
    band: FloatArray, curve: FloatArray, called: FloatArray, units: Units, ci_prob: float
) -> tuple[FloatArray, FloatArray]:
    """The band, nowhere narrower than the interval of a share of those called (in units, where these are groups)."""
    share = units.positives / max(1, int(units.mask.sum()))
    exact = np.array([binomial_interval(p, n * share, ci_prob) for p, n in zip(curve, called, strict=True)]).T
    return np.minimum(band[0], exact[0]), np.maximum(band[1], exact[1])


def _check_options(precision: float | None, calls: int | None, rows: int) -> None:
    if precision is not None and not (np.ndim(precision) == 0 and 0.0 < precision <= 1.0):
        raise ValueError(f"precision is the share of calls that are right, in (0, 1]; got {precision!r}.")
    whole = isinstance(calls, int | np.integer) and not isinstance(calls, bool)
    if calls is not None and not (whole and 1 <= calls <= rows):
        raise ValueError(f"calls is how many of the {rows} rows are called positive, 1 to {rows}; got {calls!r}.")
