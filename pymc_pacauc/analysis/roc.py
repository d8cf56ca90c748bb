"""ROC curves of a posterior, its AUC on held-out rows, and the threshold that is chosen after scoring.

Every draw of the posterior ranks the rows in its own way and has its own ROC curve, AUC and threshold; their spread is
the uncertainty about the score. The rows are taken as given: DeLong's interval, next to it, is the other uncertainty,
about the rows of one fixed score.

Curves, AUCs and rates are those of the scores as they are given: nothing is rounded, centred or scaled before it is
ranked. Only the mean score of several draws is a mean of standardised draws: the scale of a draw means nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv
from scipy.stats import rankdata

from pymc_pacauc.core.pairs import encode_labels
from pymc_pacauc.core.risk import empirical_risk, score_array

__all__ = ["DeLong", "Threshold", "choose_threshold", "delong", "roc", "standardized_mean"]

FloatArray = NDArray[np.float64]

GRID = 201


def roc(scores: ArrayLike, y: ArrayLike, *, ci_prob: float = 0.9, positive: Any = None) -> xr.Dataset:
    """ROC curves of score draws on labelled rows, with a credible band.

    Parameters
    ----------
    scores
        Draws of scores, shape (..., rows), for example from :func:`~pymc_pacauc.predict_scores`; or one score vector.
    y
        Labels of the rows.
    ci_prob
        Probability of the pointwise credible band and of the interval of the AUC.
    positive
        Which of the two labels is the positive class.

    Returns
    -------
    Dataset over ``fpr``: ``tpr`` (mean over draws), ``tpr_lower``, ``tpr_upper``, and ``tpr_of_mean_score``, the curve
    of ranking by the mean of the draws (each standardised first, as the scale of a score means nothing; a single score
    vector is left as it is). Over ``sample``: ``auc`` of every draw. Attributes: ``auc_mean``, ``auc_lower``,
    ``auc_upper``, ``auc_of_mean_score``, ``ci_prob``, ``n_pos``, ``n_neg``, and from :func:`delong` for the mean score
    ``delong_se``, ``delong_lower``, ``delong_upper``.

    Examples
    --------
    >>> curves = roc([[0.1, 0.4, 0.35, 0.8], [0.1, 0.2, 0.3, 0.4]], [0, 0, 1, 1])
    >>> curves["auc"].values, curves.attrs["auc_mean"]
    (array([0.75, 1.  ]), 0.875)
    """
    draws, mask = _draws(scores, y, positive)
    _check_ci_prob(ci_prob)
    auc = 1.0 - empirical_risk(draws, mask)
    mean_score = _mean_score(draws)
    grid = np.linspace(0.0, 1.0, GRID)
    curves = np.stack([_curve(row, mask, grid) for row in draws])
    tail = 0.5 * (1.0 - ci_prob)
    lower, upper = np.quantile(curves, [tail, 1.0 - tail], axis=0)
    auc_lower, auc_upper = np.quantile(auc, [tail, 1.0 - tail])
    fixed = delong(mean_score, mask, ci_prob=ci_prob)
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
            "ci_prob": ci_prob,
            "n_pos": int(mask.sum()),
            "n_neg": int((~mask).sum()),
        },
    )


@dataclass(frozen=True)
class DeLong:
    """AUC of one fixed score, with DeLong's standard error and an interval that covers up to the boundary."""

    auc: float
    se: float
    lower: float
    upper: float
    ci_prob: float

    def __repr__(self) -> str:
        return f"DeLong(auc={self.auc:.4f}, {self.ci_prob:.0%} interval {self.lower:.4f} to {self.upper:.4f})"


def delong(scores: ArrayLike, y: ArrayLike, *, ci_prob: float = 0.95, positive: Any = None) -> DeLong:
    """Interval of the AUC of one score vector, over the sampling of the rows, from DeLong's variance.

    The variance is that of a two-sample U-statistic, from each row's share in it (DeLong, DeLong and Clarke-Pearson,
    1988; by ranks as in Sun and Xu, 2014). It says how many independent pairs the AUC is worth, and the interval is
    Clopper and Pearson's for a share observed in that many trials. See Notes.

    Parameters
    ----------
    scores
        One score per row.
    y
        Labels of the rows.
    ci_prob
        Probability with which the interval covers.
    positive
        Which of the two labels is the positive class.

    Notes
    -----
    A mean of k independent comparisons has variance AUC (1 - AUC) / k, so k = AUC (1 - AUC) / variance is the effective
    number of comparisons. It is at least m, the size of the smaller class, because the AUC is an average over matchings
    of m independent pairs each. Near 0 and 1 the estimates of AUC (1 - AUC) and of the variance vanish together (both
    are 0 when the classes are separated), so k is drawn towards m by as much as AUC (1 - AUC) is uncertain, 1 / (4 m):

        1 / k = [variance + 1 / (4 m^2)] / [AUC (1 - AUC) + 1 / (4 m)].

    With separated classes the interval is the exact binomial one of m successes in m trials, down to
    ((1 - ci_prob) / 2)^(1 / m); in large samples it is DeLong's. ``benchmarks/coverage_auc.py`` measures its coverage.

    Examples
    --------
    >>> delong([0.1, 0.4, 0.35, 0.8, 0.3, 0.9], [0, 0, 1, 1, 0, 1])
    DeLong(auc=0.8889, 95% interval 0.2531 to 1.0000)
    """
    values, mask = _draws(scores, y, positive)
    if len(values) != 1:
        raise ValueError(f"scores must be one score vector; got {len(values)} of them.")
    _check_ci_prob(ci_prob)
    score = values[0]
    n_pos, n_neg = int(mask.sum()), int((~mask).sum())
    smaller = min(n_pos, n_neg)
    if smaller < 2:
        raise ValueError(f"DeLong's variance needs two rows of each class; there are {n_pos} and {n_neg}.")
    among_all = rankdata(score)
    above = (among_all[mask] - rankdata(score[mask])) / n_neg  # for each positive, the share of negatives below it
    below = 1.0 - (among_all[~mask] - rankdata(score[~mask])) / n_pos
    auc = 1.0 - float(empirical_risk(score, mask))
    variance = above.var(ddof=1) / n_pos + below.var(ddof=1) / n_neg
    pull = 0.25 / smaller
    comparisons = max(smaller, (auc * (1.0 - auc) + pull) / (variance + pull / smaller))
    lower, upper = _binomial_interval(auc, comparisons, ci_prob)
    return DeLong(auc, float(np.sqrt(variance)), lower, upper, ci_prob)


def _binomial_interval(share: float, trials: float, ci_prob: float) -> tuple[float, float]:
    """Clopper and Pearson's interval for a share observed in a (not necessarily whole) number of trials."""
    tail, successes, failures = 0.5 * (1.0 - ci_prob), share * trials, (1.0 - share) * trials
    lower = float(betaincinv(successes, failures + 1.0, tail)) if successes > 0.0 else 0.0
    upper = float(betaincinv(successes + 1.0, failures, 1.0 - tail)) if failures > 0.0 else 1.0
    return lower, upper


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
    ci_prob
        Probability of the intervals printed.
    """

    value: float
    fpr: float
    tpr: float
    rule: str
    draws: xr.Dataset
    ci_prob: float

    def interval(self, name: str) -> tuple[float, float]:
        """Credible interval of ``"threshold"``, ``"fpr"`` or ``"tpr"``."""
        tail = 0.5 * (1.0 - self.ci_prob)
        lower, upper = np.quantile(self.draws[name], [tail, 1.0 - tail])
        return float(lower), float(upper)

    def __repr__(self) -> str:
        spread = {name: "{:.3f} to {:.3f}".format(*self.interval(name)) for name in ("threshold", "fpr", "tpr")}
        return (
            f"Threshold {self.value:.4g} of the mean score ({self.rule})\n"
            f"  FPR {self.fpr:.3f}, TPR {self.tpr:.3f} on these rows\n"
            f"  {self.ci_prob:.0%} over draws: FPR {spread['fpr']}, TPR {spread['tpr']}, "
            f"threshold {spread['threshold']} standard deviations"
        )


def choose_threshold(
    scores: ArrayLike,
    y: ArrayLike,
    *,
    fpr: float | None = None,
    tpr: float | None = None,
    cost: tuple[float, float] | None = None,
    ci_prob: float = 0.9,
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
    _check_ci_prob(ci_prob)
    value, at_fpr, at_tpr = _threshold(_mean_score(draws), mask, fpr, tpr, cost)
    columns = np.array([_threshold(row, mask, fpr, tpr, cost) for row in draws]).T
    if len(draws) > 1:
        columns[0] = _standardize(columns[0][:, None], draws)[:, 0]
    names = ("threshold", "fpr", "tpr")
    if fpr is not None:
        rule = f"FPR at most {fpr:g}"
    elif tpr is not None:
        rule = f"TPR at least {tpr:g}"
    else:
        rule = "costs {:g} and {:g}".format(*cost or ())
    by_draw = xr.Dataset({name: ("sample", column) for name, column in zip(names, columns, strict=True)})
    return Threshold(value, at_fpr, at_tpr, rule, by_draw, ci_prob)


def standardized_mean(scores: ArrayLike, y: ArrayLike) -> FloatArray:
    """The mean score that thresholds refer to: of draws, each standardised over the rows; one score vector as it is."""
    draws, _ = _draws(scores, y, None)
    return _mean_score(draws)


def _draws(scores: ArrayLike, y: ArrayLike, positive: Any) -> tuple[FloatArray, NDArray[np.bool_]]:
    values = score_array(scores)
    mask = encode_labels(y, positive)
    if values.ndim == 0 or values.shape[-1] != mask.size:
        raise ValueError(f"scores must have one column per label, {mask.size}; their shape is {values.shape}.")
    if values.size == 0:
        raise ValueError(f"scores has no draws (its shape is {values.shape}); it needs at least one score vector.")
    values = values.reshape(-1, mask.size)
    if not np.isfinite(values).all():
        raise ValueError(f"scores has {int((~np.isfinite(values)).sum())} NaN or infinite value(s).")
    return values, mask


def _check_ci_prob(ci_prob: float) -> None:
    if not 0.0 < ci_prob < 1.0:
        raise ValueError(f"ci_prob is a probability strictly between 0 and 1; got {ci_prob!r}.")


def _mean_score(draws: FloatArray) -> FloatArray:
    """The mean of the standardised draws; one score vector as it is."""
    return draws[0] if len(draws) == 1 else _standardize(draws, draws).mean(axis=0)


def _standardize(values: FloatArray, draws: FloatArray) -> FloatArray:
    """``values[sample, ...]`` in standard deviations from the mean of each of ``draws[sample, rows]``.

    A power of two first brings each draw into [-1, 1], so that no square overflows. A constant draw is centred only.
    """
    _, exponent = np.frexp(np.abs(draws).max(axis=1, keepdims=True))
    scaled = np.ldexp(draws, -exponent)
    spread = np.where(np.ptp(scaled, axis=1, keepdims=True) > 0.0, scaled.std(axis=1, keepdims=True), 1.0)
    return (np.ldexp(values, -exponent) - scaled.mean(axis=1, keepdims=True)) / spread


def _operating_points(score: FloatArray, mask: NDArray[np.bool_]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Thresholds from +inf down through every distinct score, and (FPR, TPR) of calling rows >= it positive."""
    order = np.argsort(-score, kind="stable")
    ordered, hits = score[order], mask[order]
    last = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), ordered.size - 1)  # of each run of ties
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
    return _between(thresholds, best), float(false_rate[best]), float(true_rate[best])


def _between(thresholds: FloatArray, best: int) -> float:
    """A value that the scores from ``thresholds[best]`` up exceed, and no lower score does."""
    highest, lowest = float(thresholds[1]), float(thresholds[-1])
    margin = 0.5 * (highest / thresholds.size - lowest / thresholds.size) or 0.5
    if best + 1 == thresholds.size:  # everything is positive
        return min(lowest - margin, math.nextafter(lowest, -math.inf))
    if best == 0:  # nothing is
        return highest + margin
    above, below = float(thresholds[best]), float(thresholds[best + 1])
    middle = 0.5 * above + 0.5 * below
    return middle if middle < above else below  # neighbouring floats have no middle
