"""ROC curve and AUC of the score one deploys, and the threshold that is chosen after scoring.

The score to deploy is the posterior *mean* of the score: one number per row, the same every time. A draw from the
posterior ranks the rows in its own way; deploying one would be a *randomised* score, which ranks worse, and which is
what certificates speak of. Both are reported here, the mean score first.

Given the fit, the mean score is a fixed function of a row, so what is uncertain about its AUC is what other rows would
say: DeLong's interval, and for the curve the Bayesian bootstrap (Rubin, 1981), which weighs the rows of each class by a
uniform random share. For the randomised score the draw is uncertain too, and every reweighting of the rows goes with
another draw.

Curves, AUCs and rates are those of the scores as they are given: nothing is rounded, centred or scaled before it is
ranked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv
from scipy.stats import rankdata

from pymc_pacauc.core.pairs import encode_labels
from pymc_pacauc.core.risk import empirical_risk, score_array

__all__ = ["MEAN", "DeLong", "Threshold", "choose_threshold", "delong", "mean_score", "roc"]

FloatArray = NDArray[np.float64]

GRID = 201
BOOTSTRAP = 1000
MEAN = "mean_score"  # the coordinate by which draws of scores carry their exact mean


def roc(
    scores: Any,
    y: ArrayLike,
    *,
    mean: ArrayLike | None = None,
    ci_prob: float = 0.9,
    positive: Any = None,
    random_seed: Any = 0,
) -> xr.Dataset:
    """ROC curve of the mean score on labelled rows, with a band over rows; beside it, that of a randomised score.

    Parameters
    ----------
    scores
        What :func:`~pymc_pacauc.predict_scores` returned, draws or ``summary=True``; or an array of draws, shape
        (..., rows); or one score per row.
    y
        Labels of the rows. For an honest curve, of rows that were not fitted.
    mean
        The score to deploy, one per row. By default what ``scores`` carry: the exact mean where predict_scores knew it,
        else the mean of the draws.
    ci_prob
        Probability of the pointwise bands and of the intervals.
    positive
        Which of the two labels is the positive class.
    random_seed
        Of the bootstrap.

    Returns
    -------
    Dataset over ``fpr``: ``tpr`` of the mean score with ``tpr_lower`` and ``tpr_upper``, over rows; ``tpr_of_draw``,
    the mean curve of draws, with ``tpr_of_draw_lower`` and ``tpr_of_draw_upper``, over rows and draws. Over ``sample``:
    ``auc_of_draw``. Attributes: ``auc`` of the mean score, ``auc_lower`` and ``auc_upper`` (:func:`delong`, over rows)
    and ``auc_se``; ``auc_of_draw`` (mean), ``auc_of_draw_lower`` and ``auc_of_draw_upper`` (over rows and draws);
    ``draws``, ``ci_prob``, ``n_pos`` and ``n_neg``.

    Examples
    --------
    >>> curves = roc([[0.1, 0.4, 0.35, 0.8], [0.1, 0.2, 0.3, 0.4]], [0, 0, 1, 1])
    >>> curves.attrs["auc"], curves["auc_of_draw"].values, curves.attrs["auc_of_draw"]
    (1.0, array([0.75, 1.  ]), 0.875)
    """
    _check_ci_prob(ci_prob)
    draws, mask = _draws(scores, y, positive)
    deployed = _deployed(scores, draws, mean)
    auc = 1.0 - empirical_risk(draws, mask)
    grid = np.linspace(0.0, 1.0, GRID)
    rng = np.random.default_rng(random_seed)
    weights = [_row_weights(mask.size, rng) for _ in range(BOOTSTRAP)]
    tail = np.array([0.5 * (1.0 - ci_prob), 0.5 * (1.0 + ci_prob)])

    def bands(rows: list[FloatArray]) -> tuple[FloatArray, FloatArray]:
        """Quantiles over reweighted rows of the curves on the grid and of their AUCs; row b goes with score b."""
        order = Ranking.of(rows[0], mask) if len({id(row) for row in rows}) == 1 else None
        points = [(order or Ranking.of(row, mask)).points(w) for row, w in zip(rows, weights, strict=True)]
        curves = np.array([np.interp(grid, false, true) for false, true in points])
        aucs = [float(np.sum(np.diff(false) * 0.5 * (true[1:] + true[:-1]))) for false, true in points]
        return np.quantile(curves, tail, axis=0), np.quantile(aucs, tail)

    (lower, upper), _ = bands([deployed] * BOOTSTRAP)
    of_draw = np.mean([_curve(row, mask, grid) for row in draws], axis=0)
    chosen = rng.permutation(np.arange(BOOTSTRAP) % len(draws))
    (draw_lower, draw_upper), (draw_auc_lower, draw_auc_upper) = bands([draws[k] for k in chosen])
    fixed = delong(deployed, mask, ci_prob=ci_prob)
    return xr.Dataset(
        {
            "tpr": ("fpr", _curve(deployed, mask, grid)),
            "tpr_lower": ("fpr", lower),
            "tpr_upper": ("fpr", upper),
            "tpr_of_draw": ("fpr", of_draw),
            "tpr_of_draw_lower": ("fpr", draw_lower),
            "tpr_of_draw_upper": ("fpr", draw_upper),
            "auc_of_draw": ("sample", auc),
        },
        coords={"fpr": grid},
        attrs={
            "auc": fixed.auc,
            "auc_lower": fixed.lower,
            "auc_upper": fixed.upper,
            "auc_se": fixed.se,
            "auc_of_draw": float(auc.mean()),
            "auc_of_draw_lower": float(draw_auc_lower),
            "auc_of_draw_upper": float(draw_auc_upper),
            "draws": len(draws),
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


@dataclass(frozen=True)
class Threshold:
    """A threshold of the mean score, to be applied to any row's score, with what it does.

    Attributes
    ----------
    value
        Rows whose mean score exceeds it are called positive; in the units of
        :func:`~pymc_pacauc.predict_scores`.
    fpr, tpr
        Shares of negatives and positives called positive, on the rows it was chosen with.
    fpr_interval, tpr_interval
        What they may be on other rows like these (Clopper and Pearson's intervals).
    fpr_of_draw_interval, tpr_of_draw_interval
        The same if a draw of the posterior were compared with the threshold instead of the mean score: over rows and
        draws. As wide as the others where there was one score per row.
    rule
        What was asked for.
    ci_prob
        Probability of the intervals.
    n_pos, n_neg
        Rows it was chosen with.
    """

    value: float
    fpr: float
    tpr: float
    fpr_interval: tuple[float, float]
    tpr_interval: tuple[float, float]
    fpr_of_draw_interval: tuple[float, float]
    tpr_of_draw_interval: tuple[float, float]
    rule: str
    ci_prob: float
    n_pos: int
    n_neg: int

    def apply(self, scores: Any) -> Any:
        """Which rows are called positive.

        Parameters
        ----------
        scores
            What :func:`~pymc_pacauc.predict_scores` returned, draws or ``summary=True``, for any number of rows, of a
            model in memory or read from a file; or an array of draws, shape (..., rows); or scores, one per row; or one
            number.

        Returns
        -------
        True or False for each row, with the rows' labels where the scores have any; for one number, one of the two.
        """
        score = mean_score(scores)
        called = score > self.value
        return bool(called) if np.ndim(called) == 0 else called

    def probability(self, scores: Any) -> Any:
        """Share of the draws of each row's score that exceed the threshold; draws equal to it count one half."""
        if isinstance(scores, xr.Dataset) or np.ndim(scores) < 2:
            raise ValueError("probability needs draws of scores, as predict_scores returns them without summary=True.")
        above = 0.5 + 0.5 * np.sign(scores - self.value)
        axes = tuple(range(np.ndim(above) - 1))
        return above.mean(above.dims[:-1]) if isinstance(above, xr.DataArray) else np.mean(above, axis=axes)

    def to_dict(self) -> dict[str, Any]:
        """Numbers, strings and lists only: what JSON can hold."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Threshold:
        """What :meth:`to_dict` gave."""
        found: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
        return cls(**found)

    def __repr__(self) -> str:
        def both(name: str) -> str:
            low, high = getattr(self, f"{name}_interval")
            return f"{getattr(self, name):.3f} ({low:.3f} to {high:.3f})"

        return (
            f"Threshold(mean score > {self.value:.6g}: {self.rule})\n"
            f"  FPR {both('fpr')}, TPR {both('tpr')}; {self.ci_prob:.0%} on other rows, "
            f"from {self.n_neg} negatives and {self.n_pos} positives"
        )


def choose_threshold(
    scores: Any,
    y: ArrayLike,
    *,
    fpr: float | None = None,
    tpr: float | None = None,
    cost: tuple[float, float] | None = None,
    mean: ArrayLike | None = None,
    ci_prob: float = 0.9,
    positive: Any = None,
    random_seed: Any = 0,
) -> Threshold:
    """Choose the threshold of the mean score after scoring, as the paper suggests.

    Give exactly one of

    fpr
        the largest share of negatives that may be called positive (the lowest threshold that respects it),
    tpr
        the smallest share of positives that must be found (the highest threshold that reaches it),
    cost
        a pair (cost of a false positive, cost of a false negative); their sum over these rows is minimised.

    The other parameters are those of :func:`roc`. Choose it with rows that were not fitted: a posterior separates the
    rows it has seen better than others.

    Notes
    -----
    The false positive rate that a threshold has on other rows, when it was put just above the (k+1)-th highest of n
    negatives, lies between two beta variables whatever the distribution of the scores: Clopper and Pearson's interval
    of k in n covers it although the rows chose the threshold. The positives had no say in that threshold, so theirs is
    the ordinary one (and the other way round for ``tpr``).

    Examples
    --------
    >>> chosen = choose_threshold([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], tpr=1.0)
    >>> chosen.fpr, chosen.tpr, chosen.value < 0.35
    (0.5, 1.0, True)
    >>> chosen.apply([0.3, 0.9]), chosen.apply(0.3)
    (array([ True,  True]), True)
    >>> Threshold.from_dict(chosen.to_dict()) == chosen
    True
    """
    if sum(value is not None for value in (fpr, tpr, cost)) != 1:
        raise ValueError("Give exactly one of fpr, tpr and cost.")
    for name, share in (("fpr", fpr), ("tpr", tpr)):
        if share is not None and not 0.0 <= share <= 1.0:
            raise ValueError(f"{name} must lie in [0, 1]; got {share!r}.")
    if cost is not None and (len(cost) != 2 or min(cost) < 0 or max(cost) <= 0):
        raise ValueError(f"cost must be two non-negative costs, not both zero; got {cost!r}.")
    _check_ci_prob(ci_prob)
    draws, mask = _draws(scores, y, positive)
    value, at_fpr, at_tpr = _threshold(_deployed(scores, draws, mean), mask, fpr, tpr, cost)
    if fpr is not None:
        rule = f"FPR at most {fpr:g}"
    elif tpr is not None:
        rule = f"TPR at least {tpr:g}"
    else:
        rule = "costs {:g} and {:g}".format(*cost or ())
    n_pos, n_neg = int(mask.sum()), int((~mask).sum())
    fpr_interval = _binomial_interval(at_fpr, n_neg, ci_prob)
    tpr_interval = _binomial_interval(at_tpr, n_pos, ci_prob)
    of_draw = fpr_interval, tpr_interval
    if len(draws) > 1:
        of_draw = _rates_of_draws(draws > value, mask, ci_prob, np.random.default_rng(random_seed))
    return Threshold(
        value, at_fpr, at_tpr, fpr_interval, tpr_interval, *of_draw, rule, ci_prob, n_pos=n_pos, n_neg=n_neg
    )


def _rates_of_draws(
    called: NDArray[np.bool_], mask: NDArray[np.bool_], ci_prob: float, rng: np.random.Generator
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Intervals of FPR and TPR over draws and over rows, of which the rate of each draw is a beta variable."""
    found = []
    for rows in (called[:, ~mask], called[:, mask]):
        hits = rng.permutation(np.resize(rows.sum(axis=1), max(BOOTSTRAP, len(rows))))
        rates = rng.beta(hits + 0.5, rows.shape[1] - hits + 0.5)
        low, high = np.quantile(rates, [0.5 * (1.0 - ci_prob), 0.5 * (1.0 + ci_prob)])
        found.append((float(low), float(high)))
    return found[0], found[1]


def mean_score(scores: Any) -> Any:
    """The mean score of each row: the exact one that draws carry or a summary holds, else the mean of the draws.

    One score per row, or a single number, is what it is.
    """
    if isinstance(scores, xr.Dataset):
        if "mean" not in scores:
            raise ValueError("scores is a Dataset without `mean`: pass what predict_scores returned.")
        return scores["mean"]
    if isinstance(scores, xr.DataArray):
        if MEAN in scores.coords:
            return scores[MEAN].reset_coords(drop=True)
        return scores if scores.ndim < 2 else scores.mean(scores.dims[:-1])
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim < 2:
        return values
    draws = values.reshape(-1, values.shape[-1])
    return (draws / len(draws)).sum(axis=0)  # a sum of large numbers might overflow


def _deployed(scores: Any, draws: FloatArray, mean: ArrayLike | None) -> FloatArray:
    """The score to deploy, one per column of ``draws``."""
    if mean is None:
        carried = isinstance(scores, xr.DataArray | xr.Dataset)
        found = np.asarray(mean_score(scores if carried else draws)).reshape(-1)
        return draws[0] if len(draws) == 1 and not carried else found
    values = score_array(mean)
    if values.shape != draws.shape[1:] or not np.isfinite(values).all():
        raise ValueError(f"mean must be one finite score per row, {draws.shape[1]}; its shape is {values.shape}.")
    return values


def _draws(scores: Any, y: ArrayLike, positive: Any) -> tuple[FloatArray, NDArray[np.bool_]]:
    values = score_array(scores["mean"] if isinstance(scores, xr.Dataset) and "mean" in scores else scores)
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


@dataclass(frozen=True, eq=False)
class Ranking:
    """Rows from the highest score down: their ``order``, which are positive, and the ``last`` of each run of ties."""

    order: NDArray[np.intp]
    positive: NDArray[np.bool_]
    last: NDArray[np.intp]

    @classmethod
    def of(cls, score: FloatArray, mask: NDArray[np.bool_]) -> Ranking:
        order = np.argsort(-score, kind="stable")
        ordered = score[order]
        last = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), ordered.size - 1)
        return cls(order, mask[order], last)

    def points(self, weights: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
        """(FPR, TPR) of calling the rows down to each distinct score positive, from none to all; of weighted rows."""
        weights = np.ones(self.order.size) if weights is None else weights[self.order]
        true, false = np.cumsum(weights * self.positive)[self.last], np.cumsum(weights * ~self.positive)[self.last]
        return np.append(0.0, false / false[-1]), np.append(0.0, true / true[-1])


def _row_weights(rows: int, rng: np.random.Generator) -> FloatArray:
    """Shares of the rows of each class, uniform on the simplex up to a factor: the Bayesian bootstrap."""
    return rng.standard_exponential(rows)


def _operating_points(score: FloatArray, mask: NDArray[np.bool_]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Thresholds from +inf down through every distinct score, and (FPR, TPR) of calling rows >= it positive."""
    ranking = Ranking.of(score, mask)
    return np.append(np.inf, score[ranking.order][ranking.last]), *ranking.points()


def _curve(score: FloatArray, mask: NDArray[np.bool_], grid: FloatArray) -> FloatArray:
    """TPR at the FPRs of ``grid``; at a vertical step its top."""
    return np.interp(grid, *Ranking.of(score, mask).points())


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
