"""ROC curves of a posterior, its AUC on held-out rows, and the threshold that is chosen after scoring.

Every draw of the posterior ranks the rows in its own way and has its own ROC curve, AUC and threshold; their spread is
the uncertainty about the score. The rows are taken as given: DeLong's interval, next to it, is the other uncertainty,
about the rows of one fixed score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit, ndtri
from scipy.stats import rankdata

from pymc_pacauc.core.pairs import encode_labels
from pymc_pacauc.core.risk import empirical_risk, numeric_array

__all__ = ["DeLong", "Threshold", "choose_threshold", "delong", "roc", "standardized_mean"]

FloatArray = NDArray[np.float64]

GRID = 201


def roc(scores: ArrayLike, y: ArrayLike, *, probability: float = 0.9, positive: Any = None) -> xr.Dataset:
    """ROC curves of score draws on labelled rows, with a credible band.

    Parameters
    ----------
    scores
        Draws of scores, shape (..., rows), for example from :func:`~pymc_pacauc.predict_scores`; or one score vector.
    y
        Labels of the rows.
    probability
        Of the pointwise credible band and of the interval of the AUC.
    positive
        Which of the two labels is the positive class.

    Returns
    -------
    Dataset over ``fpr``: ``tpr`` (mean over draws), ``tpr_lower``, ``tpr_upper``, and ``tpr_of_mean_score``, the curve
    of ranking by the mean of the draws (each standardised first, as the scale of a score means nothing). Over
    ``sample``: ``auc`` of every draw. Attributes: ``auc_mean``, ``auc_lower``, ``auc_upper``, ``auc_of_mean_score``,
    ``probability``, ``n_pos``, ``n_neg``, and DeLong's ``delong_se``, ``delong_lower``, ``delong_upper`` for the mean
    score.

    Examples
    --------
    >>> curves = roc([[0.1, 0.4, 0.35, 0.8], [0.1, 0.2, 0.3, 0.4]], [0, 0, 1, 1])
    >>> curves["auc"].values, curves.attrs["auc_mean"]
    (array([0.75, 1.  ]), 0.875)
    """
    draws, mask = _draws(scores, y, positive)
    _check_probability(probability)
    auc = 1.0 - empirical_risk(draws, mask)
    mean_score = _standardize(draws).mean(axis=0)
    grid = np.linspace(0.0, 1.0, GRID)
    curves = np.stack([_curve(row, mask, grid) for row in draws])
    tail = 0.5 * (1.0 - probability)
    lower, upper = np.quantile(curves, [tail, 1.0 - tail], axis=0)
    auc_lower, auc_upper = np.quantile(auc, [tail, 1.0 - tail])
    fixed = delong(mean_score, mask, probability=probability)
    return xr.Dataset(
        {
            "tpr": ("fpr", curves.mean(axis=0)),
            "tpr_lower": ("fpr", lower),
            "tpr_upper": ("fpr", upper),
            "tpr_of_mean_score": ("fpr", _curve(mean_score, mask, grid)),
            "auc": ("sample", auc),
        },
        coords={"fpr": grid},
        attrs={
            "auc_mean": float(auc.mean()),
            "auc_lower": float(auc_lower),
            "auc_upper": float(auc_upper),
            "auc_of_mean_score": fixed.auc,
            "delong_se": fixed.se,
            "delong_lower": fixed.lower,
            "delong_upper": fixed.upper,
            "probability": probability,
            "n_pos": int(mask.sum()),
            "n_neg": int((~mask).sum()),
        },
    )


@dataclass(frozen=True)
class DeLong:
    """AUC of one fixed score, with DeLong's standard error and interval."""

    auc: float
    se: float
    lower: float
    upper: float
    probability: float

    def __repr__(self) -> str:
        return f"DeLong(auc={self.auc:.4f}, {self.probability:.0%} interval {self.lower:.4f} to {self.upper:.4f})"


def delong(scores: ArrayLike, y: ArrayLike, *, probability: float = 0.95, positive: Any = None) -> DeLong:
    """DeLong's interval of the AUC of one score vector, over the sampling of the rows.

    The variance is that of a two-sample U-statistic, from each row's share in it (DeLong, DeLong and Clarke-Pearson,
    1988; by ranks as in Sun and Xu, 2014). The interval is symmetric on the logit scale, which keeps it in (0, 1).

    Examples
    --------
    >>> delong([0.1, 0.4, 0.35, 0.8, 0.3, 0.9], [0, 0, 1, 1, 0, 1])
    DeLong(auc=0.8889, 95% interval 0.2614 to 0.9945)
    """
    values, mask = _draws(scores, y, positive)
    if len(values) != 1:
        raise ValueError(f"scores must be one score vector; got {len(values)} of them.")
    _check_probability(probability)
    score = values[0]
    n_pos, n_neg = int(mask.sum()), int((~mask).sum())
    if min(n_pos, n_neg) < 2:
        raise ValueError(f"DeLong's variance needs two rows of each class; there are {n_pos} and {n_neg}.")
    among_all = rankdata(score)
    above = (among_all[mask] - rankdata(score[mask])) / n_neg  # for each positive, the share of negatives below it
    below = 1.0 - (among_all[~mask] - rankdata(score[~mask])) / n_pos
    auc = float(above.mean())
    se = float(np.sqrt(above.var(ddof=1) / n_pos + below.var(ddof=1) / n_neg))
    if auc in (0.0, 1.0) or se == 0.0:
        return DeLong(auc, se, auc, auc, probability)
    half = ndtri(0.5 + 0.5 * probability) * se / (auc * (1.0 - auc))
    lower, upper = expit(logit(auc) - half), expit(logit(auc) + half)
    return DeLong(auc, se, float(lower), float(upper), probability)


@dataclass(frozen=True, eq=False)
class Threshold:
    """A threshold of the mean score, and what it would be and do under each draw.

    Attributes
    ----------
    value
        Threshold to use: rows whose mean score exceeds it are called positive.
    fpr, tpr
        Of the mean score at ``value``, on these rows.
    rule
        What was asked for.
    draws
        Dataset over ``sample``: ``threshold`` (in standard deviations of that draw's scores, as their scale means
        nothing), ``fpr`` and ``tpr`` there.
    probability
        Of the intervals printed.
    """

    value: float
    fpr: float
    tpr: float
    rule: str
    draws: xr.Dataset
    probability: float

    def interval(self, name: str) -> tuple[float, float]:
        """Credible interval of ``"threshold"``, ``"fpr"`` or ``"tpr"``."""
        tail = 0.5 * (1.0 - self.probability)
        lower, upper = np.quantile(self.draws[name], [tail, 1.0 - tail])
        return float(lower), float(upper)

    def __repr__(self) -> str:
        spread = {name: "{:.3f} to {:.3f}".format(*self.interval(name)) for name in ("threshold", "fpr", "tpr")}
        return (
            f"Threshold {self.value:.4g} of the mean score ({self.rule})\n"
            f"  FPR {self.fpr:.3f}, TPR {self.tpr:.3f} on these rows\n"
            f"  {self.probability:.0%} over draws: FPR {spread['fpr']}, TPR {spread['tpr']}, "
            f"threshold {spread['threshold']} standard deviations"
        )


def choose_threshold(
    scores: ArrayLike,
    y: ArrayLike,
    *,
    fpr: float | None = None,
    tpr: float | None = None,
    cost: tuple[float, float] | None = None,
    probability: float = 0.9,
    positive: Any = None,
) -> Threshold:
    """Choose the threshold after scoring, as the paper suggests, with its posterior uncertainty.

    Give exactly one of

    fpr
        the largest share of negatives that may be called positive (the lowest threshold that respects it),
    tpr
        the smallest share of positives that must be found (the highest threshold that reaches it),
    cost
        a pair (cost of a false positive, cost of a false negative); their sum over these rows is minimised.

    The mean score is the mean of the draws, each centred and divided by its standard deviation over the rows: apply
    the threshold to scores treated in the same way, or to a single score vector, which is left as it is.

    Examples
    --------
    >>> chosen = choose_threshold([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], tpr=1.0)
    >>> chosen.fpr, chosen.tpr, chosen.value < 0.35
    (0.5, 1.0, True)
    """
    if sum(value is not None for value in (fpr, tpr, cost)) != 1:
        raise ValueError("Give exactly one of fpr, tpr and cost.")
    for name, share in (("fpr", fpr), ("tpr", tpr)):
        if share is not None and not 0.0 <= share <= 1.0:
            raise ValueError(f"{name} must lie in [0, 1]; got {share!r}.")
    if cost is not None and (len(cost) != 2 or min(cost) < 0 or max(cost) <= 0):
        raise ValueError(f"cost must be two non-negative costs, not both zero; got {cost!r}.")
    draws, mask = _draws(scores, y, positive)
    _check_probability(probability)
    if len(draws) > 1:
        draws = _standardize(draws)
    value, at_fpr, at_tpr = _threshold(draws.mean(axis=0), mask, fpr, tpr, cost)
    columns = np.array([_threshold(row, mask, fpr, tpr, cost) for row in draws]).T
    names = ("threshold", "fpr", "tpr")
    if fpr is not None:
        rule = f"FPR at most {fpr:g}"
    elif tpr is not None:
        rule = f"TPR at least {tpr:g}"
    else:
        rule = "costs {:g} and {:g}".format(*cost or ())
    by_draw = xr.Dataset({name: ("sample", column) for name, column in zip(names, columns, strict=True)})
    return Threshold(value, at_fpr, at_tpr, rule, by_draw, probability)


def standardized_mean(scores: ArrayLike, y: ArrayLike) -> FloatArray:
    """The mean score that thresholds refer to: of draws, each standardised over the rows; one score vector as it is."""
    draws, _ = _draws(scores, y, None)
    return _standardize(draws).mean(axis=0) if len(draws) > 1 else draws[0]


def _draws(scores: ArrayLike, y: ArrayLike, positive: Any) -> tuple[FloatArray, NDArray[np.bool_]]:
    values = numeric_array("scores", scores)
    mask = encode_labels(y, positive)
    if values.ndim == 0 or values.shape[-1] != mask.size:
        raise ValueError(f"scores must have one column per label, {mask.size}; their shape is {values.shape}.")
    values = values.reshape(-1, mask.size)
    if not np.isfinite(values).all():
        raise ValueError(f"scores has {int((~np.isfinite(values)).sum())} NaN or infinite value(s).")
    return values, mask


def _check_probability(probability: float) -> None:
    if not 0.0 < probability < 1.0:
        raise ValueError(f"probability must lie strictly between 0 and 1; got {probability!r}.")


def _standardize(draws: FloatArray) -> FloatArray:
    centred = draws - draws.mean(axis=1, keepdims=True)
    spread = draws.std(axis=1, keepdims=True)
    return centred / np.where(spread > 0, spread, 1.0)


def _operating_points(score: FloatArray, mask: NDArray[np.bool_]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Thresholds from +inf down through every distinct score, and (FPR, TPR) of calling rows >= it positive."""
    order = np.argsort(-score, kind="stable")
    ordered, hits = score[order], mask[order]
    last = np.append(np.flatnonzero(np.diff(ordered)), ordered.size - 1)  # of each run of ties
    tpr = np.cumsum(hits)[last] / hits.sum()
    fpr = np.cumsum(~hits)[last] / (~hits).sum()
    return np.append(np.inf, ordered[last]), np.append(0.0, fpr), np.append(0.0, tpr)


def _curve(score: FloatArray, mask: NDArray[np.bool_], grid: FloatArray) -> FloatArray:
    """TPR at the FPRs of ``grid``; at a vertical step its top."""
    _, fpr, tpr = _operating_points(score, mask)
    return np.interp(grid, fpr, tpr)


def _threshold(
    score: FloatArray,
    mask: NDArray[np.bool_],
    fpr: float | None,
    tpr: float | None,
    cost: tuple[float, float] | None,
) -> tuple[float, float, float]:
    """The threshold that a rule chooses, halfway to the next lower score, and its FPR and TPR."""
    thresholds, false_rate, true_rate = _operating_points(score, mask)
    if fpr is not None:
        best = int(np.flatnonzero(false_rate <= fpr + 1e-12)[-1])
    elif tpr is not None:
        best = int(np.flatnonzero(true_rate >= tpr - 1e-12)[0])
    else:
        false_cost, missed_cost = cost or (1.0, 1.0)
        best = int(np.argmin(false_cost * false_rate * (~mask).sum() + missed_cost * (1.0 - true_rate) * mask.sum()))
    if best + 1 == thresholds.size:  # everything is positive
        spread = thresholds[1] - thresholds[-1] or 1.0
        value = thresholds[best] - 0.5 * spread / thresholds.size
    elif best == 0:  # nothing is
        spread = thresholds[1] - thresholds[-1] or 1.0
        value = thresholds[1] + 0.5 * spread / thresholds.size
    else:
        value = 0.5 * (thresholds[best] + thresholds[best + 1])
    return float(value), float(false_rate[best]), float(true_rate[best])
