"""Evaluate scores on labelled rows: ROC and precision-recall curves with bands, AUCs and their differences.

The score to deploy is the posterior *mean* of the score, a fixed function of a row. A draw from the posterior is a
*randomised* score, which ranks worse; certificates are about it. Both are reported, the mean score first.

*Bands* (:func:`roc`, :func:`precision_recall`). For the mean score only the rows are uncertain: the Bayesian bootstrap
gives the rows random weights, uniform on the simplex (:meth:`Labelled.bootstrap`). For the randomised score each
reweighting is combined with another draw. Reweighting cannot produce what no row shows (if all positives are above the
threshold, so they are in every reweighting), so a band is at least as wide as the Clopper-Pearson interval for the
rows that it is about: the positives of an ROC curve, the rows called positive of a precision.

*AUC intervals* (:func:`auc_interval`). ``over="rows"``: the AUC of a fixed score in the population; ``"posterior"``:
the AUCs of draws on these rows; ``"both"``: the AUC of a draw in the population. Over rows the variance is DeLong's. It
is converted to an effective number of independent pairs, and the interval is the binomial one for that many trials,
which has its coverage also where classes are nearly separated and the estimated variance is zero. The interval of an
average precision is the same, with the variance of the bootstrap.

*Differences* (:func:`compare_auc`). AUCs of two scores on the same rows are correlated, so their difference is known
better than either. Its DeLong variance is converted to an effective number of pairs, in each of which one score can be
right and the other wrong; the interval is that of Agresti and Min for matched pairs.

*Precision and recall.* Of the rows called positive at a threshold, the precision is the share that is positive; the
recall is the share of the positives that is called. Where positives are rare, false alarms are few compared with all
negatives (the ROC curve) but many compared with the calls (precision). Precision depends on the event rate, so rows
must be a random sample of future rows, not sampled by class. The curve is a step function: precision(r) is that of the
fewest calls that find the share r of the positives, so its area is scikit-learn's average precision, the sum over
thresholds of (R_k - R_{k-1}) P_k.

*Groups* (``groups=``, visits of one patient) are the independent units: the bootstrap weights whole groups, and the
contributions of a group's rows are summed before they are squared (Obuchowski). The AUC is that of all pairs, including
those within a group.

Scores are ranked as given, without rounding. Cost: O(n log n) per curve or AUC, of which a band takes about a thousand
and one per draw; O(n+ n-) for a difference over rows. To add a curve with a band, write its statistic of a
:class:`Ranking` and weights for :meth:`Labelled.bootstrap`.

References: DeLong, DeLong & Clarke-Pearson (1988), doi:10.2307/2531595; Rubin (1981), doi:10.1214/aos/1176345338;
Obuchowski (1997), doi:10.2307/2533958; Agresti & Min (2005), doi:10.1002/sim.1781; Boyd, Eng & Page (2013),
doi:10.1007/978-3-642-40994-3_29, whose intervals of an average precision have the number of positives as trials.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, ndtr, ndtri
from scipy.stats import rankdata

from pymc_pacauc.comparison.pairs import bipartite, label_codes
from pymc_pacauc.comparison.risk import empirical_risk
from pymc_pacauc.comparison.sizes import effective_size
from pymc_pacauc.model.deployed import deployed_score, labelled_draws
from pymc_pacauc.numerics import FloatArray, Mask, check_choice, check_probability, check_whole, slices, tails

GRID = 201  # rates from 0 to 1 at which curves are stored: steps of 0.005; doubled, Datasets are twice as large
BOOTSTRAP = 1000  # reweightings of rows: ends of a 90 % band to 0.07 standard deviations; of twice as many, to 0.05


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
    rows = Labelled.of(scores, y, ci_prob, positive, mean, groups)
    grid = np.linspace(0.0, 1.0, GRID)

    def curve(ranking: Ranking, weights: FloatArray) -> FloatArray:
        """Compute TPR at the FPRs of the grid (at a vertical step its top) and, last, the AUC."""
        false, true = ranking.points(weights)
        return np.append(np.interp(grid, false, true), area(false, true))

    found = rows.bootstrap(curve, random_seed)
    columns = found.bands("tpr", slice(GRID), ci_prob, rows.positives)
    limits = np.quantile(found.draws[:, :GRID], tails(ci_prob), axis=0)
    columns["tpr_posterior_lower"], columns["tpr_posterior_upper"] = limits
    auc, fixed = rows.aucs, delong(rows)
    attrs = {"auc": fixed.auc, "auc_lower": fixed.lower, "auc_upper": fixed.upper, "auc_se": fixed.se}
    attrs["auc_of_draw"] = float(auc.mean())
    attrs["auc_of_draw_lower"], attrs["auc_of_draw_upper"] = central_interval(found.both[:, GRID], ci_prob)
    return rows.dataset("fpr", grid, columns, attrs).assign(auc_of_draw=("sample", auc))


@dataclass(frozen=True, eq=False)
class Labelled:
    """Scores of labelled rows, and the independent units: the rows themselves, or groups of them.

    Attributes
    ----------
    draws : ndarray, shape (draws, n)
        Draws of the scores.
    score : ndarray, shape (n,)
        The score to deploy.
    mask : array of bool, shape (n,)
        Which rows are positive.
    code : array of int, shape (n,)
        The unit of each row, numbered from 0.
    grouped : bool
        Whether units are groups.
    ci_prob : float
        Probability of intervals and bands.
    """

    draws: FloatArray
    score: FloatArray
    mask: Mask
    code: NDArray[np.intp]
    grouped: bool
    ci_prob: float

    @classmethod
    def of(
        cls, scores: Any, y: ArrayLike, ci_prob: float = 0.9, positive: Any = None, mean: Any = None, groups: Any = None
    ) -> Labelled:
        """Read scores of any form with the labels of their rows; arguments are those of :func:`roc`."""
        check_probability("ci_prob", ci_prob)
        draws, mask = labelled_draws(scores, y, positive)
        code = np.arange(mask.size) if groups is None else label_codes("groups", groups, mask.size)
        return cls(draws, deployed_score(scores, draws, mean), mask, code, groups is not None, ci_prob)

    @property
    def aucs(self) -> FloatArray:
        """AUC of each draw."""
        return np.asarray(1.0 - empirical_risk(self.draws, self.mask))

    @property
    def sizes(self) -> dict[str, int]:
        """Numbers of positive and of negative rows."""
        return {"n_pos": int(self.mask.sum()), "n_neg": int((~self.mask).sum())}

    @property
    def words(self) -> str:
        """What the independent units are."""
        return "groups" if self.grouped else "rows"

    @property
    def smaller(self) -> float:
        """Independent pairs that the AUC is at least worth: the size of the smaller class, or m of a certificate."""
        return effective_size(bipartite(self.mask), self.code)

    @property
    def positives(self) -> float:
        """Number of positive units by Kish's formula, (sum n_g)^2 / sum n_g^2, with n_g positive rows in unit g."""
        sizes = np.bincount(self.code[self.mask])
        return float(sizes.sum() ** 2 / (sizes @ sizes))

    def dataset(self, dim: str, grid: FloatArray, columns: dict[str, FloatArray], attrs: dict[str, Any]) -> xr.Dataset:
        """Return curves over ``grid`` as a Dataset, with the numbers of draws, rows and groups (0: none) besides."""
        groups = int(self.code.max()) + 1 if self.grouped else 0
        known = {"draws": len(self.draws), "ci_prob": self.ci_prob, **self.sizes, "n_groups": groups}
        variables = {name: (dim, column) for name, column in columns.items()}
        return xr.Dataset(variables, coords={dim: grid}, attrs={**attrs, **known})

    def variance(self, above: FloatArray, below: FloatArray) -> float:
        """Compute the variance of the mean of ``above`` (positive rows), which is that of ``below`` (negative rows).

        DeLong's; for groups, Obuchowski's: the sums of the deviations within a group replace those of rows.
        """
        total = np.zeros(self.code.max() + 1)
        for values, rows, units in zip((above, below), (self.mask, ~self.mask), self.units(), strict=True):
            share = (values - values.mean()) / values.size
            total += np.bincount(self.code[rows], share, total.size) * np.sqrt(units / (units - 1))
        return float(total @ total)

    def units(self) -> list[int]:
        """Count the units with positive and with negative rows; refuse fewer than two of each, which have no spread."""
        found = [np.unique(self.code[rows]).size for rows in (self.mask, ~self.mask)]
        if min(found) < 2:
            kind = "groups with rows" if self.grouped else "rows"
            raise ValueError(f"y must have at least two {kind} of each class; there are {found[0]} and {found[1]}.")
        return found

    def random_weights(self, rng: np.random.Generator) -> FloatArray:
        """Draw weights of the rows, (BOOTSTRAP, n), by the Bayesian bootstrap of the units.

        Weights of units are uniform on the simplex, up to a factor; all rows of a unit have its weight.
        """
        return rng.standard_exponential((BOOTSTRAP, int(self.code.max()) + 1))[:, self.code]

    def bootstrap(self, statistic: Callable[[Ranking, FloatArray], FloatArray], random_seed: Any) -> Bootstrap:
        """Compute ``statistic(ranking, weights)``, (k,), of the score to deploy and of draws, on weighted rows."""
        rng = np.random.default_rng(random_seed)
        weights, equal = self.random_weights(rng), np.ones(self.mask.size)
        chosen = rng.permutation(np.arange(BOOTSTRAP) % len(self.draws))
        fixed = Ranking.of(self.score, self.mask)
        value, rows = statistic(fixed, equal), np.array([statistic(fixed, w) for w in weights])
        of_draws, both = np.empty((len(self.draws), value.size)), np.empty_like(rows)
        for k, draw in enumerate(self.draws):
            ranking = Ranking.of(draw, self.mask)
            of_draws[k] = statistic(ranking, equal)
            for b in np.flatnonzero(chosen == k):
                both[b] = statistic(ranking, weights[b])
        return Bootstrap(value, rows, of_draws, both)


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """A statistic of k numbers: of the score to deploy and of draws, on the rows as they are and reweighted.

    Attributes
    ----------
    value : ndarray, shape (k,)
        Of the score to deploy on the rows.
    rows : ndarray, shape (BOOTSTRAP, k)
        Of the same score on reweighted rows.
    draws : ndarray, shape (draws, k)
        Of draws on the rows.
    both : ndarray, shape (BOOTSTRAP, k)
        Of draws, each as often as the others, on reweighted rows.
    """

    value: FloatArray
    rows: FloatArray
    draws: FloatArray
    both: FloatArray

    def bands(self, name: str, part: slice, ci_prob: float, trials: Any = None) -> dict[str, FloatArray]:
        """Return a part of the statistic as ``name`` and ``name_of_draw``, each with ``_lower`` and ``_upper``.

        With ``trials`` limits are nowhere closer than those of a share observed in so many trials.
        """
        found: dict[str, FloatArray] = {}
        of_draw = self.draws.mean(axis=0)
        for label, values, samples in ((name, self.value, self.rows), (f"{name}_of_draw", of_draw, self.both)):
            lower, upper = np.quantile(samples[:, part], tails(ci_prob), axis=0)
            if trials is not None:
                least, most = binomial_interval(values[part], trials, ci_prob)
                lower, upper = np.minimum(lower, least), np.maximum(upper, most)
            found |= {label: values[part], f"{label}_lower": lower, f"{label}_upper": upper}
        return found


def delong(rows: Labelled, new_rows: int | None = None) -> AUCInterval:
    """Compute the interval of the AUC of the score to deploy, over rows (or groups), from DeLong's variance.

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
    >>> delong(Labelled.of([0.1, 0.4, 0.35, 0.8, 0.3, 0.9], [0, 0, 1, 1, 0, 1], 0.95))
    AUC 0.8889 (95% over rows: 0.2531 to 1.0000)
    """
    auc = 1.0 - float(empirical_risk(rows.score, rows.mask))
    variance = rows.variance(*placements(rows.score, rows.mask))
    comparisons = max(rows.smaller, effective_trials(auc * (1.0 - auc), variance, rows.smaller))
    wider = 1.0 if new_rows is None else 1.0 + rows.mask.size / new_rows
    lower, upper = binomial_interval(auc, comparisons / wider, rows.ci_prob).tolist()
    over = rows.words if new_rows is None else "new rows"
    return AUCInterval(auc, lower, upper, float(np.sqrt(variance * wider)), over, rows.ci_prob)


def effective_trials(spread: float, variance: float, least: float) -> float:
    """Return the number of trials of variance ``spread`` each whose mean has this variance: their ratio.

    Near 0 and 1 both vanish together, so the ratio is drawn towards ``least``, a number of trials known beforehand.
    """
    pull = 0.25 / least
    return (spread + pull) / (variance + pull / least)


def placements(score: FloatArray, mask: NDArray[np.bool_]) -> tuple[FloatArray, FloatArray]:
    """Compute the share of negatives below each positive row, and of positives above each negative row."""
    among_all = rankdata(score)
    above = (among_all[mask] - rankdata(score[mask])) / np.sum(~mask)
    return above, 1.0 - (among_all[~mask] - rankdata(score[~mask])) / np.sum(mask)


def binomial_interval(share: Any, trials: Any, ci_prob: float) -> FloatArray:
    """Compute Clopper-Pearson limits, (2, ...), of shares observed in (not necessarily whole) numbers of trials."""
    (low, high), successes, failures = tails(ci_prob), share * trials, (1.0 - share) * trials
    lower = np.where(successes > 0.0, betaincinv(successes, failures + 1.0, low), 0.0)
    upper = np.where(failures > 0.0, betaincinv(successes + 1.0, failures, high), 1.0)
    return np.array([lower, upper])


@dataclass(frozen=True, eq=False)
class Ranking:
    """Rows from the highest score down.

    Attributes
    ----------
    order : array of int, shape (n,)
        Rows by their scores.
    positive : array of bool, shape (n,)
        Which of them are positive, in this order.
    last : array of int, shape (k,)
        The last place of each run of equal scores.
    thresholds : ndarray, shape (k + 1,)
        Infinity, and the k distinct scores, from the highest down.
    """

    order: NDArray[np.intp]
    positive: Mask
    last: NDArray[np.intp]
    thresholds: FloatArray

    @classmethod
    def of(cls, score: FloatArray, mask: Mask) -> Ranking:
        """Sort rows by their scores, (n,); ``mask`` says which of them are positive."""
        order = np.argsort(-score, kind="stable")
        ordered = score[order]
        last = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), ordered.size - 1)
        return cls(order, mask[order], last, np.append(np.inf, ordered[last]))

    def counts(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Sum the weights of negative and of positive rows with scores of at least each of the thresholds, (k + 1,)."""
        ordered = weights[self.order]
        false, true = (np.cumsum(ordered * rows)[self.last] for rows in (~self.positive, self.positive))
        return np.append(0.0, false), np.append(0.0, true)

    def points(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Compute FPR and TPR of calling rows with a score of at least each of the thresholds positive, (k + 1,)."""
        false, true = self.counts(weights)
        return false / false[-1], true / true[-1]


def area(false: FloatArray, true: FloatArray) -> float:
    """Compute the area below the curve through these points."""
    return float(np.sum(np.diff(false) * 0.5 * (true[1:] + true[:-1])))


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
    >>> over = ("rows", "posterior", "both")
    >>> widths = [np.ptp([i.lower, i.upper]) for i in (pac.auc_interval(draws, y, over=o) for o in over)]
    >>> bool(2 * widths[1] < min(widths[0], widths[2]))
    True
    """
    rows = Labelled.of(scores, y, ci_prob, positive, mean, groups)
    if new_rows is not None:
        check_whole("new_rows", new_rows, 2)
        if over in ("posterior", "both"):
            raise ValueError(f'new_rows= is for the mean score, over="rows"; got over={over!r}.')
    _check_over(over, len(rows.draws))
    if over == "rows":
        return delong(rows, new_rows)
    aucs = rows.aucs
    values = aucs if over == "posterior" else _of_a_draw(aucs, rows, np.random.default_rng(random_seed))
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
    a = Labelled.of(scores_a, y, ci_prob, positive, groups=groups)
    b = Labelled.of(scores_b, y, ci_prob, positive, groups=groups)
    most = max(len(a.draws), len(b.draws))
    over = ("rows" if most == 1 else "both") if over is None else over
    _check_over(over, most)
    if over == "rows":
        return _over_rows(a, b)
    rng, aucs = np.random.default_rng(random_seed), [a.aucs, b.aucs]
    if over == "both":
        weights = a.random_weights(rng)
        values = [reweighted_aucs(rng.permutation(each.draws), a.mask, weights) for each in (a, b)]
    else:
        values = [rng.permutation(np.resize(rng.permutation(each), max(BOOTSTRAP, most))) for each in aucs]
    difference = values[0] - values[1]
    probability = float(np.mean(0.5 + 0.5 * np.sign(difference)))
    auc_a, auc_b = (float(each.mean()) for each in aucs)
    limits = central_interval(difference, ci_prob)
    return AUCComparison(auc_a, auc_b, auc_a - auc_b, *limits, probability, over, ci_prob, **a.sizes)


def _over_rows(a: Labelled, b: Labelled) -> AUCComparison:
    """Compare two scores over the sampling of units, by the interval of Agresti and Min for matched pairs."""
    mask, m = a.mask, a.smaller
    auc_a, auc_b = (1.0 - float(empirical_risk(each.score, mask)) for each in (a, b))
    (above_a, below_a), (above_b, below_b) = (placements(each.score, mask) for each in (a, b))
    variance = a.variance(above_a - above_b, below_a - below_b)
    difference = auc_a - auc_b
    square = _mean_square(a.score, b.score, mask)  # of a pair's difference: how often the two disagree about it
    pairs = max(m, effective_trials(square - difference**2, variance, m))
    trials = pairs + 2.0  # Agresti and Min: one half more in each cell of the table of matched pairs
    centre = pairs * difference / trials
    spread = float(np.sqrt(((pairs * square + 1.0) / trials - centre**2) / trials))
    lower, upper = np.clip(centre + ndtri(tails(a.ci_prob)) * spread, -1.0, 1.0).tolist()
    probability = float(ndtr(centre / spread))
    return AUCComparison(auc_a, auc_b, difference, lower, upper, probability, a.words, a.ci_prob, **a.sizes)


def _mean_square(a: FloatArray, b: FloatArray, mask: Mask) -> float:
    """Average the squared difference of the two scores' successes (1, 1/2 for a tie, 0) over pairs."""
    positive, total = np.flatnonzero(mask), 0.0
    for part in slices(positive.size, int((~mask).sum())):
        i = positive[part, None]
        success = [0.5 * np.sign(score[i] - score[~mask]) for score in (a, b)]
        total += float(np.sum((success[0] - success[1]) ** 2))
    return total / (positive.size * int((~mask).sum()))


def reweighted_aucs(draws: FloatArray, mask: Mask, weights: FloatArray) -> FloatArray:
    """Compute AUCs of reweighted rows, each with the next draw."""
    rankings = [Ranking.of(row, mask) for row in draws[: len(weights)]]
    return np.array([area(*rankings[k % len(rankings)].points(w)) for k, w in enumerate(weights)])


def _of_a_draw(aucs: FloatArray, rows: Labelled, rng: np.random.Generator) -> FloatArray:
    """Draw AUCs that posterior draws have in the population.

    Sampling of rows moves the AUCs of all draws alike, as that of the mean score. Differences between draws on these
    rows contain noise, of DeLong's variance of a draw's difference from the mean; they are shrunk accordingly.
    """
    mask, weights = rows.mask, rows.random_weights(rng)
    moved = reweighted_aucs(rows.score[None], mask, weights) - (1.0 - float(empirical_risk(rows.score, mask)))
    placed = [placements(draw, mask) for draw in rows.draws[: len(weights)]]
    above, below = (np.mean(side, axis=0) for side in zip(*placed, strict=True))
    noise = float(np.mean([rows.variance(each[0] - above, each[1] - below) for each in placed]))
    spread = float(aucs.var())
    left = np.sqrt(max(0.0, 1.0 - noise / spread)) if spread > 0.0 else 0.0
    return np.clip(aucs.mean() + moved + left * np.resize(aucs - aucs.mean(), len(weights)), 0.0, 1.0)


def central_interval(values: FloatArray, ci_prob: float) -> tuple[float, float]:
    """Return the quantiles of draws that enclose the central ``ci_prob`` of them."""
    low, high = np.quantile(values, tails(ci_prob))
    return float(low), float(high)


def _check_over(over: str, draws: int) -> None:
    """Check what is uncertain, and that there are draws where the posterior is."""
    check_choice("over", over, ("rows", "posterior", "both"))
    if over != "rows" and draws < 2:
        raise ValueError(
            f"scores must have draws, as predict_scores() returns them without summary=True; got {draws}. For one "
            'score per row use over="rows".'
        )


def _words(over: str) -> str:
    """Say in words what an interval is over."""
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
        If y does not have two classes, ``groups`` are fewer than two with rows of a class, scores have other shapes,
        or an option is out of its range.

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
    rows = Labelled.of(scores, y, ci_prob, positive, mean, groups)
    if rows.grouped:
        rows.units()
    n, n_pos = rows.mask.size, rows.sizes["n_pos"]
    if precision is not None and not (np.ndim(precision) == 0 and 0.0 < precision <= 1.0):
        raise ValueError(f"precision, the share of calls that are right, must be in (0, 1]; got {precision!r}.")
    if calls is not None and check_whole("calls", calls) > n:
        raise ValueError(f"calls, the number of rows called positive, must be from 1 to {n}; got {calls!r}.")
    grid = np.linspace(0.0, 1.0, GRID)

    def curve(ranking: Ranking, weights: FloatArray) -> FloatArray:
        """Compute precision and calls on the grid; average precision; recall at ``precision``; both at ``calls``."""
        false, true = ranking.counts(weights)
        called, recall = false + true, true / true[-1]
        right = true[1:] / called[1:]
        at = np.minimum(np.searchsorted(recall[1:], grid - 1e-12), right.size - 1)  # the fewest calls of this recall
        enough = right >= (1.0 if precision is None else precision) - 1e-12
        goal = called[-1] * (n if calls is None else calls) / n
        found = np.interp(goal, called, true)  # of ties at the limit, a part
        ends = [np.diff(recall) @ right, recall[1:].max(initial=0.0, where=enough), found / true[-1], found / goal]
        return np.concatenate([right[at], called[1:][at], ends])

    found = rows.bootstrap(curve, random_seed)
    positives, unit = rows.positives, rows.positives / n_pos  # units per row
    columns = found.bands("precision", slice(GRID), ci_prob, found.value[GRID : 2 * GRID] * unit)
    attrs: dict[str, Any] = {"average_precision_se": float(found.rows[:, 2 * GRID].std()), "event_rate": n_pos / n}
    trials = {"average_precision": positives, "recall_at_precision": None if precision is None else positives}
    trials |= {"recall_at_calls": calls and positives, "precision_at_calls": calls and calls * unit}
    for k, (name, number) in enumerate(trials.items(), start=2 * GRID):
        if number is None:  # was not asked for
            continue
        attrs[name] = value = float(found.value[k])
        effective = effective_trials(value * (1.0 - value), float(found.rows[:, k].var()), number)
        attrs[f"{name}_lower"], attrs[f"{name}_upper"] = binomial_interval(value, effective, ci_prob).tolist()
    curves = rows.dataset("recall", grid, columns, attrs)
    return curves.assign(average_precision_of_draw=("sample", found.draws[:, 2 * GRID]))
