"""Thresholds of the mean score, their error rates on other rows, and decision curves.

*Net benefit.* Someone who is indifferent about a row with probability p of being positive values a true positive at 1
and a false positive at -p / (1 - p). The *net benefit* of a rule, in true positives per row, is

    prevalence * TPR - (1 - prevalence) * FPR * p / (1 - p).

A score has no unit, so for every p the threshold is that of the highest net benefit on labelled rows, ``chosen_with``,
and its net benefit is measured on others. If both are the same rows, the result is optimistic, by little with hundreds
of them. Bands are over rows, by the Bayesian bootstrap with fixed thresholds; for a draw, over draws too.

Reference: Vickers & Elkin (2006), doi:10.1177/0272989X06295361.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from pymc_pacauc.analysis.evaluate import GRID, Labelled, Ranking, binomial_interval
from pymc_pacauc.array_result import HTMLReport
from pymc_pacauc.model.deployed import FIT, draw_dims, mean_score
from pymc_pacauc.numerics import FloatArray, Mask, check_probability

RULES = {"fpr": "FPR at most {:g}", "tpr": "TPR at least {:g}", "cost": "costs {:g} and {:g}"}


@dataclass(frozen=True)
class Threshold(HTMLReport):
    """Threshold of the mean score, to be applied to any row's score, with its error rates.

    Attributes
    ----------
    value : float
        Rows whose mean score exceeds it are called positive; in the units of
        :func:`~pymc_pacauc.predict_scores`.
    fpr, tpr : float
        Shares of negatives and positives called positive, on the rows it was chosen with.
    fpr_interval, tpr_interval : tuple of float
        Clopper-Pearson intervals of the rates on other rows of the same distribution.
    rule : str
        The rule that chose it.
    ci_prob : float
        Probability of the intervals.
    n_pos, n_neg : int
        Rows it was chosen with.
    fit : int or None
        A number of the fit whose scores it was chosen with, where these say so; scores of other fits are refused.

    See Also
    --------
    choose_threshold : Choose it.

    Examples
    --------
    >>> chosen = choose_threshold([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], tpr=1.0)
    >>> chosen.fpr, chosen.tpr
    (0.5, 1.0)
    """

    value: float
    fpr: float
    tpr: float
    fpr_interval: tuple[float, float]
    tpr_interval: tuple[float, float]
    rule: str
    ci_prob: float
    n_pos: int
    n_neg: int
    fit: int | None = None

    def apply(self, scores: Any) -> Any:
        """Decide which rows are called positive.

        Parameters
        ----------
        scores : array_like or DataArray, shape (..., n)
            Result of :func:`~pymc_pacauc.predict_scores`, draws or ``summary=True``, for any number of rows, of a
            model in memory or read from a file, sliced or stacked; or an array of draws, shape (..., rows); or scores,
            one per row; or one number.

        Returns
        -------
        bool, ndarray or xarray.DataArray, shape (n,)
            True or False for each row, with the rows' labels where the scores have any; for one number, one of the two.

        Raises
        ------
        ValueError
            If a score is NaN, or the scores are of another fit than the threshold.
        TypeError
            If ``scores`` is a table of covariates.

        See Also
        --------
        Threshold.probability : Share of the draws above the threshold.

        Examples
        --------
        >>> choose_threshold([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], tpr=1.0).apply([0.3, 0.9])
        array([ True,  True])
        """
        self._check(scores)
        score = mean_score(scores)
        if bool(np.isnan(score).any()):
            raise ValueError("scores has NaN: a row without a score is neither positive nor negative.")
        called = score > self.value
        return bool(called) if np.ndim(called) == 0 else called

    def _check(self, scores: Any) -> None:
        """Refuse tables of covariates, and scores of another fit."""
        if hasattr(scores, "columns"):
            raise TypeError(
                f"scores must not be a table of covariates; got a {type(scores).__name__}: pass "
                "pac.predict_scores(result, table)."
            )
        of = getattr(scores, "coords", {}).get(FIT)
        if self.fit is not None and of is not None and int(of) != self.fit:
            raise ValueError(
                "scores are of another fit than those the threshold was chosen with, and scores of two fits have no "
                "common unit: choose a threshold with scores of this fit."
            )

    def probability(self, scores: Any) -> Any:
        """Compute the share of draws of each row's score above the threshold; draws equal to it count one half.

        Parameters
        ----------
        scores : array_like or DataArray, shape (draws, n)
            Draws of scores, as :func:`~pymc_pacauc.predict_scores` returns them.

        Returns
        -------
        ndarray or xarray.DataArray, shape (n,)
            A probability for each row.

        Raises
        ------
        ValueError
            If ``scores`` are no draws, or of another fit than the threshold.
        TypeError
            If ``scores`` is a table of covariates.

        See Also
        --------
        Threshold.apply : Call rows positive or negative.

        Examples
        --------
        >>> chosen = choose_threshold([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], tpr=1.0)
        >>> chosen.probability([[0.1, 0.9], [0.4, 0.8]])
        array([0.5, 1. ])
        """
        self._check(scores)
        named = isinstance(scores, xr.DataArray)
        over = draw_dims(scores) if named else list(range(np.ndim(scores) - 1))
        if isinstance(scores, xr.Dataset) or not over:
            raise ValueError(
                "probability() needs draws of scores, as predict_scores() returns them without summary=True."
            )
        above: Any = 0.5 + 0.5 * np.sign((scores if named else np.asarray(scores)) - self.value)
        share = above.mean(over).reset_coords(drop=True) if named else above.mean(axis=tuple(over))
        return share if np.ndim(share) else float(share)

    def to_dict(self) -> dict[str, Any]:
        """Write the threshold as numbers, strings and lists, which JSON can hold.

        Returns
        -------
        dict
            The fields by name.

        See Also
        --------
        Threshold.from_dict : Read it back.

        Examples
        --------
        >>> choose_threshold([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], tpr=1.0).to_dict()["tpr"]
        1.0
        """
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Threshold:
        """Read a threshold back.

        Parameters
        ----------
        values : mapping of str to object
            Result of :meth:`to_dict`.

        Returns
        -------
        Threshold
            The same threshold.

        See Also
        --------
        Threshold.to_dict : Write it.

        Examples
        --------
        >>> chosen = choose_threshold([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], tpr=1.0)
        >>> Threshold.from_dict(chosen.to_dict()) == chosen
        True
        """
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
    prevalence: float | None = None,
    mean: ArrayLike | None = None,
    ci_prob: float = 0.9,
    positive: Any = None,
) -> Threshold:
    """Choose the threshold of the mean score after scoring, as the paper suggests.

    Give exactly one of ``fpr``, ``tpr`` and ``cost``. Choose with rows that were not fitted: a posterior separates the
    rows it has seen better than others.

    Parameters
    ----------
    scores : array_like or DataArray, shape (..., n)
        Result of :func:`~pymc_pacauc.predict_scores`; an array of draws, shape (..., rows); or one score per row.
    y : array_like, shape (n,)
        Labels of the rows.
    fpr : float, optional
        Largest share of negatives that may be called positive: the lowest threshold that respects it.
    tpr : float, optional
        Smallest share of positives that must be found: the highest threshold that reaches it.
    cost : tuple of two floats, optional
        Cost of a false positive and of a false negative; the mean cost is minimised, at the ``prevalence``.
    prevalence : float, optional
        With ``cost``: share of positives where the threshold is to be used; by default that of these rows.
    mean : array_like, shape (n,), optional
        The score to deploy, as in :func:`~pymc_pacauc.roc`.
    ci_prob : float, default 0.9
        Probability of the intervals.
    positive : label, optional
        Which of the two labels is the positive class.

    Returns
    -------
    Threshold
        The threshold with its error rates and their intervals; ``apply(scores)`` uses it.

    Raises
    ------
    ValueError
        If not exactly one of ``fpr``, ``tpr`` and ``cost`` is given, or one is out of its range.

    See Also
    --------
    roc : Error rates of all thresholds.
    decision_curve : Net benefit of all thresholds.
    pymc_pacauc.plots.plot_scores : Draw scores with the threshold.

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
    >>> import json
    >>> Threshold.from_dict(json.loads(json.dumps(chosen.to_dict()))) == chosen
    True
    """
    rules = (("fpr", fpr), ("tpr", tpr), ("cost", cost))
    given: dict[str, Any] = {name: limit for name, limit in rules if limit is not None}
    if len(given) != 1:
        raise ValueError(f"fpr, tpr and cost: give exactly one of them; got {', '.join(given) or 'none'}.")
    [(name, limit)] = given.items()
    if cost is None:
        if not 0.0 <= limit <= 1.0:
            raise ValueError(f"{name} must lie in [0, 1]; got {limit!r}.")
        if prevalence is not None:
            raise ValueError("prevalence is for cost=: rates within classes (fpr=, tpr=) do not depend on it.")
    elif len(cost) != 2 or min(cost) < 0 or max(cost) <= 0:
        raise ValueError(f"cost must be two non-negative costs, not both zero; got {cost!r}.")
    rows = Labelled.of(scores, y, ci_prob, positive, mean)
    sizes = rows.sizes
    share = float(rows.mask.mean()) if prevalence is None else check_probability("prevalence", prevalence)
    value, at_fpr, at_tpr = _threshold(rows.score, rows.mask, name, limit, share)
    rates = ((at_fpr, sizes["n_neg"]), (at_tpr, sizes["n_pos"]))
    of_fpr, of_tpr = (tuple(binomial_interval(rate, number, ci_prob).tolist()) for rate, number in rates)
    rule = RULES[name].format(*np.atleast_1d(limit)) + ("" if prevalence is None else f" at prevalence {prevalence:g}")
    of = getattr(scores, "coords", {}).get(FIT)
    return Threshold(value, at_fpr, at_tpr, of_fpr, of_tpr, rule, ci_prob, **sizes, fit=None if of is None else int(of))


def _threshold(score: FloatArray, mask: Mask, rule: str, limit: Any, prevalence: float) -> tuple[float, float, float]:
    """Return the threshold that a rule chooses, halfway to the next lower score, and its FPR and TPR."""
    ranking = Ranking.of(score, mask)
    false_rate, true_rate = ranking.points(np.ones(mask.size))
    if rule == "fpr":
        best = int(np.flatnonzero(false_rate <= limit + 1e-12)[-1])
    elif rule == "tpr":
        best = int(np.flatnonzero(true_rate >= limit - 1e-12)[0])
    else:  # costs of a false positive and of a false negative
        best = int(np.argmin(limit[0] * (1.0 - prevalence) * false_rate + limit[1] * prevalence * (1.0 - true_rate)))
    return _between(ranking.thresholds, best), float(false_rate[best]), float(true_rate[best])


def _between(thresholds: FloatArray, best: int) -> float:
    """Return a value that scores from ``thresholds[best]`` up exceed, and lower scores do not."""
    highest, lowest = float(thresholds[1]), float(thresholds[-1])
    margin = highest / thresholds.size - lowest / thresholds.size or 1.0
    levels = [highest + margin, *thresholds[1:], min(lowest - margin, math.nextafter(lowest, -math.inf))]
    above, below = levels[best : best + 2]
    middle = float(0.5 * above + 0.5 * below)
    return middle if middle < above else float(below)  # neighbouring floats have no middle


def decision_curve(
    scores: Any,
    y: ArrayLike,
    *,
    chosen_with: tuple[Any, ArrayLike] | None = None,
    probabilities: ArrayLike | None = None,
    prevalence: float | None = None,
    mean: ArrayLike | None = None,
    ci_prob: float = 0.9,
    positive: Any = None,
    random_seed: Any = 0,
) -> xr.Dataset:
    """Compute the net benefit of acting on the mean score, beside acting on every row and on none.

    Parameters
    ----------
    scores : array_like or DataArray, shape (..., n)
        As in :func:`~pymc_pacauc.roc`.
    y : array_like, shape (n,)
        As in :func:`~pymc_pacauc.roc`.
    chosen_with : tuple of scores and labels, optional
        Scores and labels of other rows, on which thresholds are chosen; by default the same rows.
    probabilities : array_like, optional
        The probabilities of being positive at which one is indifferent, each in (0, 1); by default 0.005 to 0.995.
    prevalence : float, optional
        Share of positives where the rule is to be used; by default that of the rows.
    mean : array_like, shape (n,), optional
        As in :func:`~pymc_pacauc.roc`.
    ci_prob : float, default 0.9
        Probability of the bands.
    positive : label, optional
        As in :func:`~pymc_pacauc.roc`.
    random_seed : int, Generator or None, default 0
        Seed of the bootstrap.

    Returns
    -------
    xarray.Dataset
        Over ``probability``: ``net_benefit`` (true positives per row) of the mean score with ``lower`` and ``upper``
        over rows, ``threshold``, ``fpr`` and ``tpr``; ``net_benefit_of_draw`` with ``of_draw_lower`` and
        ``of_draw_upper``, over rows and draws, if a draw is compared with the threshold: the expected utility over the
        posterior; ``treat_all``. Attributes ``prevalence``, ``ci_prob``, ``n_pos``, ``n_neg``,
        ``n_groups`` (0), ``draws``.

    Raises
    ------
    ValueError
        If ``probabilities`` or ``prevalence`` are not in (0, 1), or y does not have two classes.

    See Also
    --------
    choose_threshold : One threshold, by its error rates or costs.
    pymc_pacauc.plots.plot_decision_curve : Draw the curve.

    Examples
    --------
    >>> import numpy as np, pymc_pacauc as pac
    >>> rng = np.random.default_rng(1)
    >>> y = np.arange(400) < 100
    >>> curve = pac.decision_curve(rng.normal(size=400) + 1.5 * y, y, probabilities=[0.1, 0.3])
    >>> bool((curve["net_benefit"] > curve["treat_all"]).all())
    True
    """
    rows = Labelled.of(scores, y, ci_prob, positive, mean)
    share = float(rows.mask.mean()) if prevalence is None else check_probability("prevalence", prevalence)
    given = np.linspace(0.0, 1.0, GRID)[1:-1] if probabilities is None else probabilities
    grid = np.atleast_1d(np.asarray(given, dtype=np.float64))
    if not ((grid > 0.0) & (grid < 1.0)).all():
        raise ValueError(f"probabilities must lie strictly between 0 and 1; got {grid.min():g} to {grid.max():g}.")
    price = grid / (1.0 - grid)
    chooser = rows if chosen_with is None else Labelled.of(*chosen_with, positive=positive)
    thresholds = np.array([_threshold(chooser.score, chooser.mask, "cost", (each, 1.0), share)[0] for each in price])

    def benefit(ranking: Ranking, weights: FloatArray) -> FloatArray:
        """Compute net benefit at the thresholds, then FPR and TPR, of weighted rows."""
        above = np.searchsorted(-ranking.thresholds[1:], -thresholds)  # distinct scores above each
        fpr, tpr = (rate[above] for rate in ranking.points(weights))
        return np.concatenate([share * tpr - (1.0 - share) * fpr * price, fpr, tpr])

    found = rows.bootstrap(benefit, random_seed)
    _, fpr, tpr = np.split(found.value, 3)
    columns = found.bands("net_benefit", slice(grid.size), ci_prob)
    columns |= {"threshold": thresholds, "fpr": fpr, "tpr": tpr, "treat_all": share - (1.0 - share) * price}
    limits = [name for name in columns if name.endswith(("_lower", "_upper"))]
    curve = rows.dataset("probability", grid, columns, {"prevalence": share})
    return curve.rename({name: name.removeprefix("net_benefit_") for name in limits})
