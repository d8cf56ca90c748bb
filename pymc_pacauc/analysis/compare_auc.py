"""How sure one can be of an AUC, and of the difference of two, on labelled rows.

Two things are uncertain, and they are different. Other *rows* would give another AUC: that is what a confidence
interval says, of any fixed score, the mean score among them. The *posterior* leaves open which score is the right one:
its draws have different AUCs on the same rows. ``over`` says which is meant, or both: every draw with the rows weighed
anew (the Bayesian bootstrap of Rubin, 1981), which is what the AUC of a *draw* in the population may be.

Scores compared on the same rows err together, so their difference is known better than either AUC. Its variance is
DeLong's, of a difference of two-sample U-statistics. As for one AUC (:func:`~pymc_pacauc.delong`), this variance is
turned into an effective number of independent pairs, in each of which one score can be right and the other wrong, and
the interval is Agresti and Min's (2005) for matched pairs in that many trials: it covers, also where both classes are
nearly separated and the estimated variance is zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from pymc_pacauc.analysis.deployed import check_ci_prob, deployed_score, labelled_draws
from pymc_pacauc.analysis.roc import BOOTSTRAP, Ranking, area, delong, placements, row_weights
from pymc_pacauc.core.risk import empirical_risk

__all__ = ["AUCComparison", "AUCInterval", "auc_interval", "compare_auc"]

FloatArray = NDArray[np.float64]
Mask = NDArray[np.bool_]

OVER = ("rows", "posterior", "both")
CELLS_AT_ONCE = 2**22  # of the table of all pairs


@dataclass(frozen=True)
class AUCInterval:
    """An AUC, and an interval over rows, over the posterior, or over both."""

    auc: float
    lower: float
    upper: float
    over: str
    ci_prob: float

    def __repr__(self) -> str:
        return f"AUC {self.auc:.4f} ({self.ci_prob:.0%} over {_words(self.over)}: {self.lower:.4f} to {self.upper:.4f})"


@dataclass(frozen=True)
class AUCComparison:
    """Two AUCs on the same rows.

    Attributes
    ----------
    auc_a, auc_b, difference
        On these rows; A minus B. Of mean scores over ``"rows"``, else of draws, on average.
    lower, upper
        Interval of the difference.
    probability
        That the AUC of A is the larger one.
    over, ci_prob
        What is uncertain, and the probability of the interval.
    n_pos, n_neg
        Rows.
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
    method: str = "delong",
    mean: ArrayLike | None = None,
    ci_prob: float = 0.95,
    positive: Any = None,
    random_seed: Any = 0,
) -> AUCInterval:
    """AUC of a score on labelled rows, with an interval.

    Parameters
    ----------
    scores
        What :func:`~pymc_pacauc.predict_scores` returned; an array of draws, shape (..., rows); or one score per row.
    y
        Labels of rows that were not fitted.
    over
        ``"rows"``: what other rows would say of the mean score, the one to deploy. ``"posterior"``: what the draws say
        on these rows. ``"both"``: what the AUC of a draw may be in the population.
    method
        For ``over="rows"``: ``"delong"`` (:func:`~pymc_pacauc.delong`) or ``"bootstrap"``, the Bayesian one, which is
        too narrow where classes are nearly separated.
    mean, positive, random_seed
        As in :func:`~pymc_pacauc.roc`.
    ci_prob
        Probability of the interval.

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
    check_ci_prob(ci_prob)
    if method not in ("delong", "bootstrap"):
        raise ValueError(f'method must be "delong" or "bootstrap"; got {method!r}.')
    draws, mask = labelled_draws(scores, y, positive)
    deployed = deployed_score(scores, draws, mean)
    if over == "rows":
        if method == "delong":
            found = delong(deployed, mask, ci_prob=ci_prob)
            return AUCInterval(found.auc, found.lower, found.upper, over, ci_prob)
        values = _reweighted(deployed[None], mask, _weights(mask, np.random.default_rng(random_seed)))
        auc = 1.0 - float(empirical_risk(deployed, mask))
    else:
        _check_draws(len(draws))
        aucs = 1.0 - empirical_risk(draws, mask)
        auc = float(aucs.mean())
        values = aucs
        if over == "both":
            values = _of_a_draw(aucs, draws, deployed, mask, np.random.default_rng(random_seed))
    return AUCInterval(auc, *_quantiles(values, ci_prob), over, ci_prob)


def compare_auc(
    scores_a: Any,
    scores_b: Any,
    y: ArrayLike,
    *,
    over: str | None = None,
    ci_prob: float = 0.95,
    positive: Any = None,
    random_seed: Any = 0,
) -> AUCComparison:
    """Compare the AUCs of two scores on the same labelled rows.

    Parameters
    ----------
    scores_a, scores_b
        Each as in :func:`auc_interval`: draws of a posterior, or scores of any classifier, one per row.
    y
        Labels of rows that neither was fitted to.
    over
        As in :func:`auc_interval`; ``"rows"`` compares mean scores, the others draws, those of a score that has none
        being always the same. By default ``"rows"`` for two vectors, and ``"both"`` where there are draws.
    ci_prob
        Probability of the interval of the difference.
    positive, random_seed
        As in :func:`~pymc_pacauc.roc`.

    Returns
    -------
    AUCComparison

    Notes
    -----
    Over rows, the probability is the one at which the interval's limit would be zero; over draws, the share of draws
    (with rows weighed anew, over both) in which A has the larger AUC, ties counting one half.

    Examples
    --------
    >>> import numpy as np, pymc_pacauc as pac
    >>> rng = np.random.default_rng(1)
    >>> y = np.arange(300) < 100
    >>> a = rng.normal(size=300) + 1.5 * y
    >>> pac.compare_auc(a, a + 0.5 * rng.normal(size=300), y)
    AUC 0.8849 against 0.8453: difference +0.0396 (95% over rows: +0.0155 to +0.0634), P(A > B) = 0.999
    """
    check_ci_prob(ci_prob)
    both = [labelled_draws(scores, y, positive) for scores in (scores_a, scores_b)]
    mask = both[0][1]
    a, b = (draws for draws, _ in both)
    over = ("rows" if len(a) == len(b) == 1 else "both") if over is None else over
    _check_over(over)
    sizes = {"n_pos": int(mask.sum()), "n_neg": int((~mask).sum())}
    if over == "rows":
        first, second = deployed_score(scores_a, a, None), deployed_score(scores_b, b, None)
        return _over_rows(first, second, mask, ci_prob, sizes)
    _check_draws(max(len(a), len(b)))
    aucs = [1.0 - empirical_risk(draws, mask) for draws in (a, b)]
    rng = np.random.default_rng(random_seed)
    if over == "both":
        weights = _weights(mask, rng)
        values = [_reweighted(rng.permutation(draws), mask, weights) for draws in (a, b)]
    else:
        number = max(BOOTSTRAP, len(a), len(b))
        values = [rng.permutation(np.resize(rng.permutation(each), number)) for each in aucs]
    difference = values[0] - values[1]
    probability = float(np.mean(0.5 + 0.5 * np.sign(difference)))
    auc_a, auc_b = (float(each.mean()) for each in aucs)
    limits = _quantiles(difference, ci_prob)
    return AUCComparison(auc_a, auc_b, auc_a - auc_b, *limits, probability, over, ci_prob, **sizes)


def _over_rows(a: FloatArray, b: FloatArray, mask: Mask, ci_prob: float, sizes: dict[str, int]) -> AUCComparison:
    n_pos, n_neg = sizes["n_pos"], sizes["n_neg"]
    m = min(n_pos, n_neg)
    if m < 2:
        raise ValueError(f"DeLong's variance needs two rows of each class; there are {n_pos} and {n_neg}.")
    auc_a, auc_b = (1.0 - float(empirical_risk(score, mask)) for score in (a, b))
    (above_a, below_a), (above_b, below_b) = placements(a, mask), placements(b, mask)
    variance = float(np.var(above_a - above_b, ddof=1) / n_pos + np.var(below_a - below_b, ddof=1) / n_neg)
    difference = auc_a - auc_b
    square = _mean_square(a, b, mask)  # of a pair's difference: how often the two scores disagree about it
    pull = 0.25 / m
    pairs = max(float(m), (square - difference**2 + pull) / (variance + pull / m))
    trials = pairs + 2.0  # Agresti and Min: one half more in each cell of the table of matched pairs
    centre = pairs * difference / trials
    spread = np.sqrt(((pairs * square + 1.0) / trials - centre**2) / trials)
    half = float(ndtri(0.5 + 0.5 * ci_prob) * spread)
    limits = max(-1.0, float(centre) - half), min(1.0, float(centre) + half)
    return AUCComparison(auc_a, auc_b, difference, *limits, float(ndtr(centre / spread)), "rows", ci_prob, **sizes)


def _mean_square(a: FloatArray, b: FloatArray, mask: Mask) -> float:
    """Mean over pairs of the squared difference of the two scores' successes (1, 1/2 for a tie, 0)."""
    rows, total = max(1, CELLS_AT_ONCE // int((~mask).sum())), 0.0
    positive = np.flatnonzero(mask)
    for start in range(0, positive.size, rows):
        i = positive[start : start + rows, None]
        success = [0.5 * np.sign(score[i] - score[~mask]) for score in (a, b)]
        total += float(np.sum((success[0] - success[1]) ** 2))
    return total / (positive.size * int((~mask).sum()))


def _weights(mask: Mask, rng: np.random.Generator) -> FloatArray:
    return np.array([row_weights(mask.size, rng) for _ in range(BOOTSTRAP)])


def _reweighted(draws: FloatArray, mask: Mask, weights: FloatArray) -> FloatArray:
    """AUCs of rows weighed anew, every weighting with the next draw."""
    rankings = [Ranking.of(row, mask) for row in draws[: len(weights)]]
    return np.array([area(*rankings[k % len(rankings)].points(w)) for k, w in enumerate(weights)])


def _of_a_draw(
    aucs: FloatArray, draws: FloatArray, deployed: FloatArray, mask: Mask, rng: np.random.Generator
) -> FloatArray:
    """AUCs that draws may have in the population: other rows move all of them alike, as they move the mean score.

    How draws differ from each other is seen on these rows, and some of it is their noise: DeLong's variance of a draw's
    difference from the mean over draws. Differences are shrunk to what is left of their variance.
    """
    weights = _weights(mask, rng)
    rows = _reweighted(deployed[None], mask, weights) - (1.0 - float(empirical_risk(deployed, mask)))
    noise = 0.0
    for placed in zip(*(placements(draw, mask) for draw in draws[: len(weights)]), strict=True):
        apart = np.array(placed) - np.mean(placed, axis=0)
        noise += float(apart.var(axis=1).mean()) / apart.shape[1]
    spread = float(aucs.var())
    left = np.sqrt(max(0.0, 1.0 - noise / spread)) if spread > 0.0 else 0.0
    return np.clip(aucs.mean() + rows + left * np.resize(aucs - aucs.mean(), len(weights)), 0.0, 1.0)


def _quantiles(values: FloatArray, ci_prob: float) -> tuple[float, float]:
    low, high = np.quantile(values, [0.5 * (1.0 - ci_prob), 0.5 * (1.0 + ci_prob)])
    return float(low), float(high)


def _check_over(over: str) -> None:
    if over not in OVER:
        raise ValueError(f'over must be "rows", "posterior" or "both"; got {over!r}.')


def _check_draws(number: int) -> None:
    if number < 2:
        raise ValueError(
            "Over the posterior there must be draws of scores, as predict_scores returns them without summary=True; "
            'one score per row has over="rows".'
        )


def _words(over: str) -> str:
    return {"rows": "rows", "posterior": "the posterior", "both": "rows and the posterior"}[over]
