"""Decisions with a score: what a rule is worth, with error bars, and who is among the highest.

Calling a row positive gains something if it is and costs something if it is not. Whoever is indifferent at a
probability p of being positive values a true positive at 1 and a false positive at -p / (1 - p), and the *net benefit*
of a rule, in true positives per row (Vickers and Elkin, 2006), is

    prevalence * TPR - (1 - prevalence) * FPR * p / (1 - p).

A score has no unit, so for every p the threshold is the one of the highest net benefit on labelled rows, given as
``chosen_with``; its net benefit is measured on others. Where both are the same rows, what is reported is too good, by
little where there are hundreds of them.

Bands are over rows, by the Bayesian bootstrap, thresholds held fixed; those of a draw over draws as well.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from pymc_pacauc.analysis.deployed import check_ci_prob, deployed_score, draws_first, labelled_draws
from pymc_pacauc.analysis.roc import BOOTSTRAP, row_weights
from pymc_pacauc.analysis.threshold import cheapest_threshold, check_prevalence

__all__ = ["decision_curve", "probability_in_top"]

FloatArray = NDArray[np.float64]
Mask = NDArray[np.bool_]

GRID = np.arange(1, 100) / 100.0


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
    """Net benefit of acting on the mean score, beside acting on every row and on none.

    Parameters
    ----------
    scores, y, mean, positive, random_seed
        As in :func:`~pymc_pacauc.roc`.
    chosen_with
        Scores and labels of other rows, on which thresholds are chosen; by default the same rows.
    probabilities
        The probabilities of being positive at which one is indifferent, each in (0, 1); by default 0.01 to 0.99.
    prevalence
        Share of positives where the rule is to be used; by default that of the rows.
    ci_prob
        Of the bands.

    Returns
    -------
    Dataset over ``probability``: ``net_benefit`` of the mean score with ``lower`` and ``upper`` over rows,
    ``threshold``, ``fpr`` and ``tpr``; ``net_benefit_of_draw`` with ``of_draw_lower`` and ``of_draw_upper``, over rows
    and draws, if a draw is compared with the threshold: the expected utility over the posterior; ``treat_all``.
    Attributes ``prevalence``, ``ci_prob``, ``n_pos``, ``n_neg``, ``draws``.

    Examples
    --------
    >>> import numpy as np, pymc_pacauc as pac
    >>> rng = np.random.default_rng(1)
    >>> y = np.arange(400) < 100
    >>> curve = pac.decision_curve(rng.normal(size=400) + 1.5 * y, y, probabilities=[0.1, 0.3])
    >>> bool((curve["net_benefit"] > curve["treat_all"]).all())
    True
    """
    check_ci_prob(ci_prob)
    draws, mask = labelled_draws(scores, y, positive)
    deployed = deployed_score(scores, draws, mean)
    share = float(mask.mean()) if prevalence is None else check_prevalence(prevalence)
    grid = GRID if probabilities is None else np.atleast_1d(np.asarray(probabilities, dtype=np.float64))
    if not ((grid > 0.0) & (grid < 1.0)).all():
        raise ValueError("probabilities must lie strictly between 0 and 1.")
    price = grid / (1.0 - grid)
    score_there, mask_there = deployed, mask
    if chosen_with is not None:
        there, mask_there = labelled_draws(*chosen_with, positive)
        score_there = deployed_score(chosen_with[0], there, None)
    thresholds = np.array([cheapest_threshold(score_there, mask_there, (each, 1.0), share)[0] for each in price])

    def benefit(score: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Net benefit, FPR and TPR at the thresholds, of weighted rows."""
        tpr, fpr = (_share_above(score[rows], thresholds, weights[rows]) for rows in (mask, ~mask))
        return share * tpr - (1.0 - share) * fpr * price, fpr, tpr

    rng = np.random.default_rng(random_seed)
    equal = np.ones(mask.size)
    weights = [row_weights(mask.size, rng) for _ in range(BOOTSTRAP)]
    value, fpr, tpr = benefit(deployed, equal)
    tails = [0.5 * (1.0 - ci_prob), 0.5 * (1.0 + ci_prob)]
    lower, upper = np.quantile([benefit(deployed, w)[0] for w in weights], tails, axis=0)
    order = rng.permutation(np.arange(BOOTSTRAP) % len(draws))
    of_draw = np.mean([benefit(row, equal)[0] for row in draws], axis=0)
    draw_lower, draw_upper = np.quantile(
        [benefit(draws[k], w)[0] for k, w in zip(order, weights, strict=True)], tails, axis=0
    )
    columns = {
        "net_benefit": value,
        "lower": lower,
        "upper": upper,
        "threshold": thresholds,
        "fpr": fpr,
        "tpr": tpr,
        "net_benefit_of_draw": of_draw,
        "of_draw_lower": draw_lower,
        "of_draw_upper": draw_upper,
        "treat_all": share - (1.0 - share) * price,
    }
    sizes = {"n_pos": int(mask.sum()), "n_neg": int((~mask).sum()), "draws": len(draws)}
    return xr.Dataset(
        {name: ("probability", column) for name, column in columns.items()},
        coords={"probability": grid},
        attrs={"prevalence": share, "ci_prob": ci_prob, **sizes},
    )


def probability_in_top(scores: Any, share: float, *, reference: Any = None) -> Any:
    """Posterior probability that each row is among the highest ``share`` of rows.

    Parameters
    ----------
    scores
        Draws of scores, shape (..., rows), as :func:`~pymc_pacauc.predict_scores` returns them.
    share
        For example 0.05 for the top five per cent.
    reference
        Draws of the scores of the rows among which to be: from the same posterior, draw by draw (predict both at once,
        or with the same ``random_seed``). A row is then in the top if it exceeds their quantile. By default the rows
        themselves, of which the highest ``share``, rounded to a whole number of at least one, are the top.

    Returns
    -------
    One probability per row, with the rows' labels where the scores have any. A tie at the border counts in part.

    Examples
    --------
    >>> draws = [[3.0, 2.0, 1.0, 0.0], [2.0, 3.0, 1.0, 0.0]]
    >>> probability_in_top(draws, 0.25)
    array([0.5, 0.5, 0. , 0. ])
    """
    if not 0.0 < share < 1.0:
        raise ValueError(f"share must lie strictly between 0 and 1; got {share!r}.")
    values = _draws_of("scores", scores)
    if reference is None:
        number = max(1, round(share * values.shape[1]))
        border = np.sort(values, axis=1)[:, -number][:, None]
        above, tied = values > border, values == border
        places = number - above.sum(axis=1, keepdims=True)
        inside = above + tied * (places / tied.sum(axis=1, keepdims=True))
    else:
        others = _draws_of("reference", reference)
        if len(others) != len(values):
            raise ValueError(f"reference has {len(others)} draws and scores {len(values)}: they must go together.")
        border = np.quantile(others, 1.0 - share, axis=1)[:, None]
        inside = 0.5 + 0.5 * np.sign(values - border)
    probability = inside.mean(axis=0)
    if isinstance(scores, xr.DataArray):
        row = draws_first(scores).dims[-1]
        coords = {row: scores[row].values} if row in scores.coords else {}
        return xr.DataArray(probability, dims=row, coords=coords, name="probability_in_top")
    return probability


def _share_above(score: FloatArray, thresholds: FloatArray, weights: FloatArray) -> FloatArray:
    order = np.argsort(score)
    below = np.append(0.0, np.cumsum(weights[order]))
    return np.asarray(1.0 - below[np.searchsorted(score[order], thresholds, side="right")] / below[-1])


def _draws_of(name: str, scores: Any) -> FloatArray:
    values = np.asarray(draws_first(scores), dtype=np.float64)
    if isinstance(scores, xr.Dataset) or values.ndim < 2 or values.size == 0:
        raise ValueError(f"{name} must be draws, as predict_scores returns them without summary=True.")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} has NaN or infinite values.")
    return values.reshape(-1, values.shape[-1])
