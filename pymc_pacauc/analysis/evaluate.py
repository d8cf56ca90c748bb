"""ROC curves with bands, and intervals of an AUC and of the difference of two AUCs, on labelled rows.

The score to deploy is the posterior *mean* of the score, a fixed function of a row. A draw from the posterior is a
*randomised* score, which ranks worse; certificates are about it. Both are reported, the mean score first.

*ROC bands* (:func:`roc`). For the mean score only the rows are uncertain: the Bayesian bootstrap gives the rows of each
class random weights, uniform on the simplex. For the randomised score each reweighting is combined with another draw.
Reweighting cannot produce what no row shows (if all positives are above the threshold, so they are in every
reweighting), so a band is at least as wide as the Clopper-Pearson interval for the positives at that threshold.

*AUC intervals* (:func:`auc_interval`). ``over="rows"``: the AUC of a fixed score in the population; ``"posterior"``:
the AUCs of draws on these rows; ``"both"``: the AUC of a draw in the population. Over rows the variance is DeLong's. It
is converted to an effective number of independent pairs, and the interval is the binomial one for that many trials,
which has its coverage also where classes are nearly separated and the estimated variance is zero.

*Differences* (:func:`compare_auc`). AUCs of two scores on the same rows are correlated, so their difference is known
better than either. Its DeLong variance is converted to an effective number of pairs, in each of which one score can be
right and the other wrong; the interval is that of Agresti and Min for matched pairs.

*Groups* (``groups=``, visits of one patient) are the independent units: the bootstrap weights whole groups, and the
contributions of a group's rows are summed before they are squared (Obuchowski). The AUC is that of all pairs, including
those within a group. Scores are ranked as given, without rounding. Cost: O(n log n) per curve or AUC; O(n+ n-) for a
difference over rows.

References: DeLong, DeLong & Clarke-Pearson (1988), doi:10.2307/2531595; Rubin (1981), doi:10.1214/aos/1176345338;
Obuchowski (1997), doi:10.2307/2533958; Agresti & Min (2005), doi:10.1002/sim.1781.

Precision-recall curve and average precision of a score, with bands.

Of the rows called positive at a threshold, the *precision* is the share that is positive; the *recall* is the share of
the positives that is called. Where positives are rare, false alarms are few compared with all negatives (the ROC curve)
but many compared with the calls (precision). Precision depends on the event rate, so rows must be a random sample of
future rows, not sampled by class.

The curve is a step function: precision(r) is that of the fewest calls that find the share r of the positives, so its
area is scikit-learn's average precision, sum over thresholds of (R_k - R_{k-1}) P_k. Bands are those of
:func:`~pymc_pacauc.roc`: over rows (or whole groups) by the Bayesian bootstrap, at least as wide as the Clopper-Pearson
interval for the rows called; for a draw from the posterior, over rows and draws. The interval of the average precision
is binomial, with the number of trials that matches its bootstrap variance.

Reference: Boyd, Eng & Page (2013), doi:10.1007/978-3-642-40994-3_29, who use the number of positives as trials.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, ndtr, ndtri
from scipy.stats import rankdata

from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.comparison.risk import empirical_risk
from pymc_pacauc.comparison.sizes import effective_size, group_codes
from pymc_pacauc.model.deployed import deployed_score, labelled_draws
from pymc_pacauc.numerics import FloatArray, Mask, check_probability, check_whole, slices, tails

GRID = 201
BOOTSTRAP = 1000


def roc(
    scores: Any,
    y: ArrayLike,
    *,
    mean: ArrayLike | None = None,
    ci_prob: float = 0.9,
    positive: Any = None,
    groups: ArrayLike | None = None,
    random_seed: Any = 0,
) -> xr.Dataset:
    """Compute the ROC curve of the mean score on labelled rows, with a band over rows.

    Parameters
    ----------
    scores : array_like or DataArray, shape (..., n)
        Result of :func:`~pymc_pacauc.predict_scores`, draws or ``summary=True``; or an array of draws, shape
        (..., rows); or one score per row.
    y : array_like, shape (n,)
        Labels of the rows, which should not be those that were fitted.
    mean : array_like, shape (n,), optional
        The score to deploy, one per row. By default the exact mean if ``scores`` have it as a coordinate, else the mean
        of the draws.
    ci_prob : float, default 0.9
        Probability of the pointwise bands and of the intervals.
    positive : label, optional
        Which of the two labels is the positive class.
    groups : array_like, shape (n,), optional
        A label per row, such as its patient: groups, not rows, are then the independent units. In
        :func:`~pymc_pacauc.leave_out`, by contrast, groups are what is left out together.
    random_seed : int, Generator or None, default 0
        Seed of the bootstrap.

    Returns
    -------
    xarray.Dataset
        Over ``fpr``: ``tpr`` of the mean score with ``tpr_lower`` and ``tpr_upper``, over rows; ``tpr_of_draw``, the
        mean curve of draws (a randomised score), with ``tpr_posterior_lower`` and ``tpr_posterior_upper`` over draws on
        these rows, and ``tpr_of_draw_lower`` and ``tpr_of_draw_upper`` over rows and draws. Over ``sample``:
        ``auc_of_draw``. Attributes: ``auc`` of the mean score, ``auc_lower`` and ``auc_upper`` (:func:`auc_interval`,
        over rows) and ``auc_se``; ``auc_of_draw`` (mean), ``auc_of_draw_lower`` and ``auc_of_draw_upper`` (over rows
        and draws); ``draws``, ``ci_prob``, ``n_pos``, ``n_neg`` and ``n_groups`` (0 where rows are the units).

    Raises
    ------
    ValueError
        If y does not have two classes, ``scores`` has another number of rows or NaN, or ``ci_prob`` is not in (0, 1).

    See Also
    --------
    precision_recall : Precision against recall, for rare positives.
    auc_interval : The AUC alone.
    pymc_pacauc.plots.plot_roc : Draw the curve.

    Examples
    --------
    >>> curves = roc([[0.1, 0.4, 0.35, 0.8], [0.1, 0.2, 0.3, 0.4]], [0, 0, 1, 1])
    >>> curves.attrs["auc"], curves["auc_of_draw"].values, curves.attrs["auc_of_draw"]
    (1.0, array([0.75, 1.  ]), 0.875)
    """
    tail = tails(ci_prob)
    draws, mask = labelled_draws(scores, y, positive)
    units = Units.of(mask, groups)
    deployed = deployed_score(scores, draws, mean)
    auc = 1.0 - empirical_risk(draws, mask)
    grid = np.linspace(0.0, 1.0, GRID)
    rng = np.random.default_rng(random_seed)
    weights = [units.random_weights(rng) for _ in range(BOOTSTRAP)]

    def bands(rows: list[FloatArray]) -> tuple[FloatArray, FloatArray]:
        """Quantiles over reweighted rows of the curves on the grid and of their AUCs; row b goes with score b."""
        order = Ranking.of(rows[0], mask) if len({id(row) for row in rows}) == 1 else None
        points = [(order or Ranking.of(row, mask)).points(w) for row, w in zip(rows, weights, strict=True)]
        curves = np.array([np.interp(grid, false, true) for false, true in points])
        aucs = [area(false, true) for false, true in points]
        return np.quantile(curves, tail, axis=0), np.quantile(aucs, tail)

    curve = _curve(deployed, mask, grid)
    lower, upper = _at_least_binomial(bands([deployed] * BOOTSTRAP)[0], curve, units.positives, ci_prob)
    of_draws = np.array([_curve(row, mask, grid) for row in draws])
    posterior_lower, posterior_upper = np.quantile(of_draws, tail, axis=0)
    chosen = rng.permutation(np.arange(BOOTSTRAP) % len(draws))
    band, (draw_auc_lower, draw_auc_upper) = bands([draws[k] for k in chosen])
    draw_lower, draw_upper = _at_least_binomial(band, of_draws.mean(axis=0), units.positives, ci_prob)
    fixed = delong(deployed, mask, ci_prob, groups)
    return xr.Dataset(
        {
            "tpr": ("fpr", curve),
            "tpr_lower": ("fpr", lower),
            "tpr_upper": ("fpr", upper),
            "tpr_of_draw": ("fpr", of_draws.mean(axis=0)),
            "tpr_posterior_lower": ("fpr", posterior_lower),
            "tpr_posterior_upper": ("fpr", posterior_upper),
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
            "n_groups": units.number,
        },
    )


@dataclass(frozen=True, eq=False)
class Units:
    """The independent units among labelled rows: the rows (``code`` None), or groups of them.

    Attributes
    ----------
    mask : array of bool
        Which rows are positive.
    code : array of int or None
        The group of each row.
    number : int
        Number of groups; 0 where rows are the units.
    smaller : float
        Independent pairs that the AUC is at least worth: the size of the smaller class, or m of a certificate.
    positives : float
        Positive units: rows, or groups by Kish's formula, (sum n_g)^2 / sum n_g^2 of their positive rows.
    """

    mask: Mask
    code: NDArray[np.intp] | None
    number: int
    smaller: float
    positives: float

    @classmethod
    def of(cls, mask: Mask, groups: ArrayLike | None) -> Units:
        n_pos, n_neg = int(mask.sum()), int((~mask).sum())
        if groups is None:
            return cls(mask, None, 0, min(n_pos, n_neg), n_pos)
        code = group_codes(groups, mask.size)
        sizes = np.bincount(code[mask])
        kish = n_pos**2 / float(sizes @ sizes)
        return cls(mask, code, int(code.max()) + 1, effective_size(bipartite(mask), code), kish)

    @property
    def words(self) -> str:
        return "rows" if self.code is None else "groups"

    def check(self) -> None:
        """Refuse fewer than two units of a class, which have no variance."""
        kind = "rows" if self.code is None else "groups with rows"
        units = np.arange(self.mask.size) if self.code is None else self.code
        n_pos, n_neg = (np.unique(units[rows]).size for rows in (self.mask, ~self.mask))
        if min(n_pos, n_neg) < 2:
            raise ValueError(f"y must have at least two {kind} of each class; there are {n_pos} and {n_neg}.")

    def variance(self, above: FloatArray, below: FloatArray) -> float:
        """Variance of the mean of ``above`` (of positive rows) and of ``below`` (of negative ones), which are equal.

        DeLong's; for groups, Obuchowski's: the sums of the deviations within a group replace those of rows.
        """
        parts = []
        for values, rows in ((above, self.mask), (below, ~self.mask)):
            share = (values - values.mean()) / values.size
            if self.code is None:
                parts.append(share * np.sqrt(values.size / max(values.size - 1, 1)))
            else:
                present = np.unique(self.code[rows]).size
                parts.append(np.bincount(self.code[rows], share, self.number) * np.sqrt(present / max(present - 1, 1)))
        if self.code is None:
            return float(parts[0] @ parts[0] + parts[1] @ parts[1])
        return float(np.sum((parts[0] + parts[1]) ** 2))

    def random_weights(self, rng: np.random.Generator) -> FloatArray:
        """Weights of the rows, uniform on the simplex up to a factor: the Bayesian bootstrap, of rows or of groups."""
        return rng.standard_exponential(self.mask.size if self.code is None else self.number)[
            slice(None) if self.code is None else self.code
        ]


def delong(
    score: FloatArray, mask: Mask, ci_prob: float, groups: ArrayLike | None = None, new_rows: int | None = None
) -> AUCInterval:
    """Interval of the AUC of one score vector, over the sampling of the rows (or groups), from DeLong's variance.

    The variance is that of a two-sample U-statistic, from each row's share in it (DeLong, DeLong and Clarke-Pearson,
    1988; by ranks as in Sun and Xu, 2014). It says how many independent pairs the AUC is worth, and the interval is
    Clopper and Pearson's for a share observed in that many trials. See Notes.

    Notes
    -----
    A mean of k independent comparisons has variance AUC (1 - AUC) / k, so k = AUC (1 - AUC) / variance is the effective
    number of comparisons. It is at least m, the size of the smaller class, because the AUC is an average over matchings
    of m independent pairs each; with groups, m is that of a certificate. Near 0 and 1 the estimates of AUC (1 - AUC)
    and of the variance vanish together (both are 0 when the classes are separated), so k is drawn towards m by as much
    as AUC (1 - AUC) is uncertain, 1 / (4 m):

        1 / k = [variance + 1 / (4 m^2)] / [AUC (1 - AUC) + 1 / (4 m)].

    Another sample of ``new_rows`` rows has an AUC of its own, of variance n / new_rows times this one's: their sum is
    that of k / (1 + n / new_rows) comparisons.

    With separated classes the interval is the exact binomial one of m successes in m trials, down to
    ((1 - ci_prob) / 2)^(1 / m); in large samples it is DeLong's. ``benchmarks/coverage_auc.py`` measures its coverage.

    Examples
    --------
    >>> delong(np.array([0.1, 0.4, 0.35, 0.8, 0.3, 0.9]), np.array([0, 0, 1, 1, 0, 1]) == 1, 0.95)
    AUC 0.8889 (95% over rows: 0.2531 to 1.0000)
    """
    units = Units.of(mask, groups)
    units.check()
    auc = 1.0 - float(empirical_risk(score, mask))
    variance = units.variance(*placements(score, mask))
    pull = 0.25 / units.smaller
    comparisons = max(units.smaller, (auc * (1.0 - auc) + pull) / (variance + pull / units.smaller))
    wider = 1.0 if new_rows is None else 1.0 + mask.size / new_rows
    lower, upper = binomial_interval(auc, comparisons / wider, ci_prob)
    over = units.words if new_rows is None else "new rows"
    return AUCInterval(auc, lower, upper, float(np.sqrt(variance * wider)), over, ci_prob)


def placements(score: FloatArray, mask: NDArray[np.bool_]) -> tuple[FloatArray, FloatArray]:
    """Compute the share of negatives below each positive row, and of positives above each negative row."""
    among_all = rankdata(score)
    above = (among_all[mask] - rankdata(score[mask])) / np.sum(~mask)
    return above, 1.0 - (among_all[~mask] - rankdata(score[~mask])) / np.sum(mask)


def binomial_interval(share: float, trials: float, ci_prob: float) -> tuple[float, float]:
    """Compute the Clopper-Pearson interval for a share observed in a (not necessarily whole) number of trials."""
    (low, high), successes, failures = tails(ci_prob), share * trials, (1.0 - share) * trials
    lower = float(betaincinv(successes, failures + 1.0, low)) if successes > 0.0 else 0.0
    upper = float(betaincinv(successes + 1.0, failures, high)) if failures > 0.0 else 1.0
    return lower, upper


@dataclass(frozen=True, eq=False)
class Ranking:
    """Rows from the highest score down: ``order``, mask of positives, and the ``last`` row of each run of ties."""

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


def area(false: FloatArray, true: FloatArray) -> float:
    """Compute the area below the curve through these points."""
    return float(np.sum(np.diff(false) * 0.5 * (true[1:] + true[:-1])))


def _curve(score: FloatArray, mask: NDArray[np.bool_], grid: FloatArray) -> FloatArray:
    """Interpolate the TPR at the FPRs of ``grid``; at a vertical step its top."""
    return np.interp(grid, *Ranking.of(score, mask).points())


OVER = ("rows", "posterior", "both")


@dataclass(frozen=True)
class AUCInterval:
    """AUC with an interval over rows, over the posterior, or over both.

    Attributes
    ----------
    auc : float
        AUC on these rows.
    lower, upper : float
        Ends of the interval.
    se : float
        Standard error: DeLong's over rows, else the standard deviation of the AUC.
    over : {"rows", "groups", "posterior", "both", "new rows"}
        What is uncertain; ``"groups"`` where these, not rows, are the units; ``"new rows"`` of a predictive interval.
    ci_prob : float
        Probability of the interval.

    See Also
    --------
    auc_interval : Compute it.

    Examples
    --------
    >>> import pymc_pacauc as pac
    >>> found = pac.auc_interval([0.1, 0.4, 0.35, 0.8, 0.7, 0.2], [0, 0, 1, 1, 1, 0])
    >>> round(found.auc, 4), found.over
    (0.8889, 'rows')
    """

    auc: float
    lower: float
    upper: float
    se: float
    over: str
    ci_prob: float

    def __repr__(self) -> str:
        return f"AUC {self.auc:.4f} ({self.ci_prob:.0%} over {_words(self.over)}: {self.lower:.4f} to {self.upper:.4f})"


@dataclass(frozen=True)
class AUCComparison:
    """Difference of two AUCs on the same rows, with an interval.

    Attributes
    ----------
    auc_a, auc_b : float
        AUCs on these rows: of mean scores over ``"rows"``, else of draws, on average.
    difference : float
        A minus B.
    lower, upper : float
        Ends of the interval of the difference.
    probability : float
        Probability that the AUC of A is the larger one.
    over : {"rows", "groups", "posterior", "both"}
        What is uncertain.
    ci_prob : float
        Probability of the interval.
    n_pos, n_neg : int
        Numbers of positive and negative rows.

    See Also
    --------
    compare_auc : Compute it.

    Examples
    --------
    >>> import pymc_pacauc as pac
    >>> y = [0, 0, 0, 1, 1, 1]
    >>> found = pac.compare_auc([0.1, 0.4, 0.2, 0.35, 0.8, 0.7], [0.3, 0.4, 0.2, 0.5, 0.1, 0.7], y)
    >>> round(found.difference, 4)
    0.2222
    """

    auc_a: float
    auc_b: float
    difference: float
    lower: float
    upper: float
    probability: float
    over: str
    ci_prob: float
    n_pos: int
    n_neg: int

    def __repr__(self) -> str:
        return (
            f"AUC {self.auc_a:.4f} against {self.auc_b:.4f}: difference {self.difference:+.4f} ({self.ci_prob:.0%} "
            f"over {_words(self.over)}: {self.lower:+.4f} to {self.upper:+.4f}), P(A > B) = {self.probability:.3f}"
        )


def auc_interval(
    scores: Any,
    y: ArrayLike,
    *,
    over: str = "rows",
    mean: ArrayLike | None = None,
    ci_prob: float = 0.9,
    positive: Any = None,
    groups: ArrayLike | None = None,
    new_rows: int | None = None,
    random_seed: Any = 0,
) -> AUCInterval:
    """Compute the AUC of a score on labelled rows, with an interval.

    Parameters
    ----------
    scores : array_like or DataArray, shape (..., n)
        Result of :func:`~pymc_pacauc.predict_scores`; an array of draws, shape (..., rows); or one score per row.
    y : array_like, shape (n,)
        Labels of rows that were not fitted.
    over : {"rows", "posterior", "both"}, default "rows"
        What is uncertain. ``"rows"``: the AUC of the mean score, the one to deploy, in the population.
        ``"posterior"``: the AUC of a draw on these rows. ``"both"``: the AUC of a draw in the population.
    mean : array_like, shape (n,), optional
        The score to deploy, as in :func:`~pymc_pacauc.roc`.
    ci_prob : float, default 0.9
        Probability of the interval.
    positive : label, optional
        Which of the two labels is the positive class.
    groups : array_like, shape (n,), optional
        A label per row, such as its patient: groups, not rows, are then the independent units.
    new_rows : int, optional
        A *predictive* interval: of the AUC that the mean score has on another sample of this many rows, with about the
        same shares of classes (and, with ``groups``, as many rows in each). Without it, of the AUC in the population.
    random_seed : int, Generator or None, default 0
        Seed of the bootstrap.

    Returns
    -------
    AUCInterval
        AUC, ends of the interval and standard error.

    Raises
    ------
    ValueError
        If y does not have two rows (or groups) of each of two classes, ``over`` needs draws that ``scores`` lacks, or
        ``new_rows`` is no number of rows, or goes with another ``over`` than rows.

    See Also
    --------
    roc : The whole curve.
    compare_auc : Difference of two AUCs.
    pymc_pacauc.certify.holdout : A lower bound that holds for every distribution.

    References
    ----------
    E. R. DeLong, D. M. DeLong, D. L. Clarke-Pearson (1988), Comparing the areas under two or more correlated receiver
    operating characteristic curves: a nonparametric approach, Biometrics 44(3), doi:10.2307/2531595.

    Examples
    --------
    >>> import numpy as np, pymc_pacauc as pac
    >>> rng = np.random.default_rng(1)
    >>> y = np.arange(200) < 80
    >>> draws = rng.normal(size=200) + 1.5 * y + 0.3 * rng.normal(size=(500, 200))
    >>> widths = [np.ptp([i.lower, i.upper]) for i in (pac.auc_interval(draws, y, over=o) for o in OVER)]
    >>> bool(2 * widths[1] < min(widths[0], widths[2]))
    True
    """
    _check_over(over)
    check_probability("ci_prob", ci_prob)
    draws, mask = labelled_draws(scores, y, positive)
    deployed = deployed_score(scores, draws, mean)
    if new_rows is not None:
        check_whole("new_rows", new_rows, 2)
    if over == "rows":
        return delong(deployed, mask, ci_prob, groups, new_rows)
    if new_rows is not None:
        raise ValueError(f'new_rows= is for the mean score, over="rows"; got over={over!r}.')
    _check_draws(len(draws))
    aucs, units = 1.0 - empirical_risk(draws, mask), Units.of(mask, groups)
    values = (
        aucs if over == "posterior" else _of_a_draw(aucs, draws, deployed, units, np.random.default_rng(random_seed))
    )
    return AUCInterval(float(aucs.mean()), *central_interval(values, ci_prob), float(values.std()), over, ci_prob)


def compare_auc(
    scores_a: Any,
    scores_b: Any,
    y: ArrayLike,
    *,
    over: str | None = None,
    ci_prob: float = 0.9,
    positive: Any = None,
    groups: ArrayLike | None = None,
    random_seed: Any = 0,
) -> AUCComparison:
    """Compare the AUCs of two scores on the same labelled rows.

    Parameters
    ----------
    scores_a, scores_b : array_like or DataArray, shape (..., n)
        Each as in :func:`auc_interval`: draws of a posterior, or scores of any classifier, one per row.
    y : array_like, shape (n,)
        Labels of rows that neither was fitted to.
    over : {"rows", "posterior", "both"}, optional
        As in :func:`auc_interval`; ``"rows"`` compares mean scores, the others draws, those of a score that has none
        being always the same. By default ``"rows"`` for two vectors, and ``"both"`` where there are draws.
    ci_prob : float, default 0.9
        Probability of the interval of the difference.
    positive : label, optional
        As in :func:`~pymc_pacauc.roc`.
    groups : array_like, shape (n,), optional
        As in :func:`~pymc_pacauc.roc`.
    random_seed : int, Generator or None, default 0
        As in :func:`~pymc_pacauc.roc`.

    Returns
    -------
    AUCComparison
        Both AUCs, their difference with its interval, and the probability that A has the larger AUC.

    Raises
    ------
    ValueError
        If y does not have two rows (or groups) of each of two classes, or the scores have other numbers of rows.

    See Also
    --------
    auc_interval : One AUC with its interval.
    compare : Compare fitted models by their evidence.

    Notes
    -----
    Over rows, the probability is the one at which the interval's limit would be zero; over draws, the share of draws
    (with rows weighed anew, over both) in which A has the larger AUC, ties counting one half.

    References
    ----------
    E. R. DeLong, D. M. DeLong, D. L. Clarke-Pearson (1988), Comparing the areas under two or more correlated receiver
    operating characteristic curves: a nonparametric approach, Biometrics 44(3), doi:10.2307/2531595.

    Examples
    --------
    >>> import numpy as np, pymc_pacauc as pac
    >>> rng = np.random.default_rng(1)
    >>> y = np.arange(300) < 100
    >>> a = rng.normal(size=300) + 1.5 * y
    >>> pac.compare_auc(a, a + 0.5 * rng.normal(size=300), y)
    AUC 0.8849 against 0.8453: difference +0.0396 (90% over rows: +0.0194 to +0.0595), P(A > B) = 0.999
    """
    check_probability("ci_prob", ci_prob)
    both = [labelled_draws(scores, y, positive) for scores in (scores_a, scores_b)]
    mask = both[0][1]
    a, b = (draws for draws, _ in both)
    over = ("rows" if len(a) == len(b) == 1 else "both") if over is None else over
    _check_over(over)
    sizes = {"n_pos": int(mask.sum()), "n_neg": int((~mask).sum())}
    units = Units.of(mask, groups)
    if over == "rows":
        first, second = deployed_score(scores_a, a, None), deployed_score(scores_b, b, None)
        return _over_rows(first, second, units, ci_prob, sizes)
    _check_draws(max(len(a), len(b)))
    aucs = [1.0 - empirical_risk(draws, mask) for draws in (a, b)]
    rng = np.random.default_rng(random_seed)
    if over == "both":
        weights = _weights(units, rng)
        values = [_reweighted(rng.permutation(draws), mask, weights) for draws in (a, b)]
    else:
        number = max(BOOTSTRAP, len(a), len(b))
        values = [rng.permutation(np.resize(rng.permutation(each), number)) for each in aucs]
    difference = values[0] - values[1]
    probability = float(np.mean(0.5 + 0.5 * np.sign(difference)))
    auc_a, auc_b = (float(each.mean()) for each in aucs)
    limits = central_interval(difference, ci_prob)
    return AUCComparison(auc_a, auc_b, auc_a - auc_b, *limits, probability, over, ci_prob, **sizes)


def _over_rows(a: FloatArray, b: FloatArray, units: Units, ci_prob: float, sizes: dict[str, int]) -> AUCComparison:
    mask, m = units.mask, units.smaller
    units.check()
    auc_a, auc_b = (1.0 - float(empirical_risk(score, mask)) for score in (a, b))
    (above_a, below_a), (above_b, below_b) = placements(a, mask), placements(b, mask)
    variance = units.variance(above_a - above_b, below_a - below_b)
    difference = auc_a - auc_b
    square = _mean_square(a, b, mask)  # of a pair's difference: how often the two scores disagree about it
    pull = 0.25 / m
    pairs = max(m, (square - difference**2 + pull) / (variance + pull / m))
    trials = pairs + 2.0  # Agresti and Min: one half more in each cell of the table of matched pairs
    centre = pairs * difference / trials
    spread = np.sqrt(((pairs * square + 1.0) / trials - centre**2) / trials)
    half = float(ndtri(tails(ci_prob)[1]) * spread)
    limits = max(-1.0, float(centre) - half), min(1.0, float(centre) + half)
    return AUCComparison(auc_a, auc_b, difference, *limits, float(ndtr(centre / spread)), units.words, ci_prob, **sizes)


def _mean_square(a: FloatArray, b: FloatArray, mask: Mask) -> float:
    """Average the squared difference of the two scores' successes (1, 1/2 for a tie, 0) over pairs."""
    positive, total = np.flatnonzero(mask), 0.0
    for part in slices(positive.size, int((~mask).sum())):
        i = positive[part, None]
        success = [0.5 * np.sign(score[i] - score[~mask]) for score in (a, b)]
        total += float(np.sum((success[0] - success[1]) ** 2))
    return total / (positive.size * int((~mask).sum()))


def _weights(units: Units, rng: np.random.Generator) -> FloatArray:
    return np.array([units.random_weights(rng) for _ in range(BOOTSTRAP)])


def _reweighted(draws: FloatArray, mask: Mask, weights: FloatArray) -> FloatArray:
    """Compute AUCs of reweighted rows, each with the next draw."""
    rankings = [Ranking.of(row, mask) for row in draws[: len(weights)]]
    return np.array([area(*rankings[k % len(rankings)].points(w)) for k, w in enumerate(weights)])


def _of_a_draw(
    aucs: FloatArray, draws: FloatArray, deployed: FloatArray, units: Units, rng: np.random.Generator
) -> FloatArray:
    """Draw AUCs that posterior draws have in the population.

    Sampling of rows moves the AUCs of all draws alike, as that of the mean score. Differences between draws on these
    rows contain noise, of DeLong's variance of a draw's difference from the mean; they are shrunk accordingly.
    """
    mask, weights = units.mask, _weights(units, rng)
    rows = _reweighted(deployed[None], mask, weights) - (1.0 - float(empirical_risk(deployed, mask)))
    placed = [placements(draw, mask) for draw in draws[: len(weights)]]
    above, below = (np.mean(side, axis=0) for side in zip(*placed, strict=True))
    noise = float(np.mean([units.variance(each[0] - above, each[1] - below) for each in placed]))
    spread = float(aucs.var())
    left = np.sqrt(max(0.0, 1.0 - noise / spread)) if spread > 0.0 else 0.0
    return np.clip(aucs.mean() + rows + left * np.resize(aucs - aucs.mean(), len(weights)), 0.0, 1.0)


def central_interval(values: FloatArray, ci_prob: float) -> tuple[float, float]:
    """Quantiles of draws that enclose the central ``ci_prob`` of them."""
    low, high = np.quantile(values, tails(ci_prob))
    return float(low), float(high)


def _check_over(over: str) -> None:
    if over not in OVER:
        raise ValueError(f'over must be "rows", "posterior" or "both"; got {over!r}.')


def _check_draws(number: int) -> None:
    if number < 2:
        raise ValueError(
            f"scores must have draws, as predict_scores() returns them without summary=True; got {number}. For one "
            'score per row use over="rows".'
        )


def _words(over: str) -> str:
    return {"posterior": "the posterior", "both": "rows and the posterior"}.get(over, over)


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
        Result of :func:`~pymc_pacauc.predict_scores`, draws or ``summary=True``; or an array of draws, shape
        (..., rows); or one score per row.
    y : array_like, shape (rows,)
        Labels of the rows, which should not be those that were fitted.
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
        Seed of the bootstrap.

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
        If y does not have two classes, scores have other shapes, or an option is out of its range.

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
    tail = tails(ci_prob)
    draws, mask = labelled_draws(scores, y, positive)
    _check_options(precision, calls, mask.size)
    deployed, units = deployed_score(scores, draws, mean), Units.of(mask, groups)
    rng = np.random.default_rng(random_seed)
    weights = [units.random_weights(rng) for _ in range(BOOTSTRAP)]
    grid = np.linspace(0.0, 1.0, GRID)

    ranking = Ranking.of(deployed, mask)
    curve, called = _staircase(ranking, grid)
    called = called * units.positives / max(1, int(mask.sum()))  # in units, where these are groups
    reweighted = [_staircase(ranking, grid, w)[0] for w in weights]
    lower, upper = _at_least_binomial(np.quantile(reweighted, tail, axis=0), curve, called, ci_prob)

    rankings = [Ranking.of(row, mask) for row in draws]
    of_draws = np.array([_staircase(each, grid)[0] for each in rankings])
    chosen = rng.permutation(np.arange(BOOTSTRAP) % len(draws))
    band = np.quantile(
        [_staircase(rankings[k], grid, w)[0] for k, w in zip(chosen, weights, strict=True)], tail, axis=0
    )
    draw_lower, draw_upper = _at_least_binomial(band, of_draws.mean(axis=0), called, ci_prob)

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
    """Compute recall, precision and weight of the calls down to each distinct score."""
    w = np.ones(ranking.order.size) if weights is None else weights[ranking.order]
    true, called = np.cumsum(w * ranking.positive)[ranking.last], np.cumsum(w)[ranking.last]
    return true / true[-1], true / called, called


def _staircase(ranking: Ranking, grid: FloatArray, weights: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
    """Compute precision and calls at the smallest number of calls whose recall is at least that of the grid."""
    recall, precision, called = _steps(ranking, weights)
    place = np.minimum(np.searchsorted(recall, grid - 1e-12), recall.size - 1)
    return precision[place], called[place]


def _recall_at(ranking: Ranking, precision: float, weights: FloatArray | None) -> float:
    recall, found, _ = _steps(ranking, weights)
    enough = found >= precision - 1e-12
    return float(recall[enough].max()) if enough.any() else 0.0


def _at_calls(ranking: Ranking, calls: int, weights: FloatArray | None) -> tuple[float, float]:
    """Compute recall and precision when the share ``calls`` of the rows is called; of ties at the limit, a part."""
    w = np.ones(ranking.order.size) if weights is None else weights[ranking.order]
    true = np.append(0.0, np.cumsum(w * ranking.positive)[ranking.last])
    called = np.append(0.0, np.cumsum(w)[ranking.last])
    goal = called[-1] * calls / ranking.order.size
    right = float(np.interp(goal, called, true))
    return right / float(true[-1]), right / float(goal)


def _interval(value: float, variance: float, trials: float, ci_prob: float) -> tuple[float, float]:
    """Compute the binomial interval of a share, with the number of trials that matches its variance.

    Near 0 and 1 value and variance vanish together, so that their ratio is shrunk towards ``trials``, as for an AUC.
    """
    pull = 0.25 / trials
    effective = (value * (1.0 - value) + pull) / (variance + pull / trials)
    return binomial_interval(value, effective, ci_prob)


def _with_limits(name: str, found: list[float], trials: float, ci_prob: float) -> dict[str, float]:
    lower, upper = _interval(found[0], float(np.var(found[1:])), trials, ci_prob)
    return {name: found[0], f"{name}_lower": lower, f"{name}_upper": upper}


def _at_least_binomial(
    band: FloatArray, curve: FloatArray, trials: Any, ci_prob: float
) -> tuple[FloatArray, FloatArray]:
    """The band of a curve of shares, nowhere narrower than the interval of a share in so many trials."""
    trials = np.broadcast_to(trials, curve.shape)
    exact = np.array([binomial_interval(p, n, ci_prob) for p, n in zip(curve, trials, strict=True)]).T
    return np.minimum(band[0], exact[0]), np.maximum(band[1], exact[1])


def _check_options(precision: float | None, calls: int | None, rows: int) -> None:
    if precision is not None and not (np.ndim(precision) == 0 and 0.0 < precision <= 1.0):
        raise ValueError(f"precision, the share of calls that are right, must be in (0, 1]; got {precision!r}.")
    if calls is not None and check_whole("calls", calls) > rows:
        raise ValueError(f"calls, the number of rows called positive, must be from 1 to {rows}; got {calls!r}.")
