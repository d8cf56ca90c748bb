"""The score to deploy, from the result of :func:`~pymc_pacauc.predict_scores` or from arrays.

It is the posterior mean of the score, one number per row; exact where the draws contain it as a coordinate.

Draws with named dimensions may be sliced, stacked and transposed: the mean is over the dimensions ``chain``, ``draw``
and ``sample``, or all but ``row``. In arrays, rows are the last dimension.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from pymc_pacauc.comparison.pairs import distinct_labels, encode_labels
from pymc_pacauc.comparison.risk import score_array
from pymc_pacauc.numerics import FloatArray

FIT = "fit"  # the coordinate that says which fit scores are of
MEAN = "mean_score"  # the coordinate by which draws of scores carry their exact mean
DRAW_DIMS = ("chain", "draw", "sample")


def draw_dims(scores: xr.DataArray) -> list[Any]:
    """Return the dimensions of draws: all but that of the rows."""
    named = [dim for dim in scores.dims if dim in DRAW_DIMS]
    if named or scores.ndim < 2:
        return named
    if "row" in scores.dims:
        return [dim for dim in scores.dims if dim != "row"]
    raise ValueError(
        f"scores has the dimensions {scores.dims}, and none is known to be that of draws or of rows. Name the rows, "
        f'scores.rename({scores.dims[-1]}="row"), or pass scores.values with rows last.'
    )


def draws_first(scores: Any) -> Any:
    """Return scores with rows as the last dimension."""
    return scores.transpose(*draw_dims(scores), ...) if isinstance(scores, xr.DataArray) else scores


def mean_score(scores: Any) -> Any:
    """Return the mean score of each row: the exact one of draws or of a summary, else the mean of the draws.

    One score per row, or a single number, is returned unchanged.
    """
    if isinstance(scores, xr.Dataset):
        if "mean" not in scores:
            raise ValueError("scores is a Dataset without `mean`: pass the result of predict_scores().")
        return scores["mean"]
    if isinstance(scores, xr.DataArray):
        over = draw_dims(scores)
        if MEAN in scores.coords:
            carried = scores[MEAN].reset_coords(drop=True)
            _check_carried(carried, scores, over)
            return carried
        return scores.mean(over) if over else scores
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim < 2:
        return values
    draws = values.reshape(-1, values.shape[-1])
    return (draws / len(draws)).sum(axis=0)  # divided first: a sum of large numbers might overflow


def _check_carried(mean: xr.DataArray, scores: xr.DataArray, over: list[Any]) -> None:
    """Check that the coordinate of the mean still is the mean: arithmetic on scores keeps their coordinates."""
    draws = np.prod([scores.sizes[dim] for dim in over])
    # EP's mean has another length than the posterior, whose exact length draws have: up to 8 % in
    # tests/model/test_score_function.py. With twice the share of 0.25, scores that a user halved would pass too.
    allowed = (0.5 + 10.0 / np.sqrt(draws)) * scores.std(over) + 0.25 * np.abs(mean)
    if draws >= 10 and bool((np.abs(scores.mean(over) - mean) > allowed).any()):  # of fewer, the spread is not known
        raise ValueError(
            f"scores has a coordinate `{MEAN}` that is not the mean of its draws, which were probably changed after "
            f'predict_scores(): drop it, scores.drop_vars("{MEAN}").'
        )


def deployed_score(scores: Any, draws: FloatArray, mean: ArrayLike | None) -> FloatArray:
    """Return the score to deploy, one per column of ``draws``; (rows,)."""
    if mean is None:
        carried = isinstance(scores, xr.DataArray | xr.Dataset)
        found = np.asarray(mean_score(scores if carried else draws)).reshape(-1)
        return draws[0] if len(draws) == 1 and not carried else found
    values = score_array(mean)
    if values.shape != draws.shape[1:] or not np.isfinite(values).all():
        raise ValueError(f"mean must be one finite score per row, {draws.shape[1]}; got shape {values.shape}.")
    return values


def labelled_draws(scores: Any, y: ArrayLike, positive: Any) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return draws of the scores of labelled observations, (draws, n), and the mask of the positive ones, (n,)."""
    values = score_array(scores["mean"] if isinstance(scores, xr.Dataset) and "mean" in scores else draws_first(scores))
    distinct = len(distinct_labels("y", y)[0])
    if distinct > 2:
        raise ValueError(
            f"y has {distinct} distinct values; ROC curves, their AUCs and thresholds are for two classes: recode y, "
            "for example y >= value. For ordered classes use 1 - pac.empirical_risk(scores, y, ordered=True), for "
            "censored times 1 - pac.concordance_risk(scores, time, event)."
        )
    mask = encode_labels(y, positive)
    if values.ndim == 0 or values.shape[-1] != mask.size or values.size == 0:
        raise ValueError(
            f"scores must have one column per label, {mask.size}, and at least one draw; got shape {values.shape}."
        )
    values = values.reshape(-1, mask.size)
    if not np.isfinite(values).all():
        raise ValueError(f"scores has {int((~np.isfinite(values)).sum())} NaN or infinite value(s).")
    return values, mask
