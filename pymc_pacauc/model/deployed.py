"""The score to deploy, of what :func:`~pymc_pacauc.predict_scores` returned or of arrays.

One number per row, the same every time: the posterior mean of the score, exact where the draws carry it.

Draws with named dimensions may be sliced, stacked and transposed: what is averaged over are the dimensions ``chain``,
``draw`` and ``sample``, or all but ``row``, wherever they stand. In arrays, rows are the last dimension.
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
# Share of a mean score by which draws may differ: EP's mean has another length than the posterior, of which draws have
# the exact law (by up to 8 % in tests/model/test_score_function.py). Doubled, scores halved by a user pass for it.
OTHER_LENGTH = 0.25
ENOUGH_DRAWS = 10  # whose spread is known well enough to say that a mean is not theirs


def draw_dims(scores: xr.DataArray) -> list[Any]:
    """The dimensions of draws, all but the rows'."""
    named = [dim for dim in scores.dims if dim in DRAW_DIMS]
    if named or scores.ndim < 2:
        return named
    if "row" in scores.dims:
        return [dim for dim in scores.dims if dim != "row"]
    raise ValueError(
        f"Which of the dimensions {scores.dims} of scores are draws, and which are rows? Name them: "
        f'scores.rename({scores.dims[-1]}="row"), or pass scores.values with rows last.'
    )


def draws_first(scores: Any) -> Any:
    """The same, rows last."""
    return scores.transpose(*draw_dims(scores), ...) if isinstance(scores, xr.DataArray) else scores


def mean_score(scores: Any) -> Any:
    """The mean score of each row: the exact one that draws carry or a summary holds, else the mean of the draws.

    One score per row, or a single number, is what it is.
    """
    if isinstance(scores, xr.Dataset):
        if "mean" not in scores:
            raise ValueError("scores is a Dataset without `mean`: pass what predict_scores returned.")
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
    return (draws / len(draws)).sum(axis=0)  # a sum of large numbers might overflow


def _check_carried(mean: xr.DataArray, scores: xr.DataArray, over: list[Any]) -> None:
    """Scores that are calculated with keep their coordinates: is this one still their mean?"""
    draws = np.prod([scores.sizes[dim] for dim in over])
    allowed = (0.5 + 10.0 / np.sqrt(draws)) * scores.std(over) + OTHER_LENGTH * np.abs(mean)
    if draws >= ENOUGH_DRAWS and bool((np.abs(scores.mean(over) - mean) > allowed).any()):
        raise ValueError(
            f"scores carry a coordinate `{MEAN}` that is not the mean of their draws, as if they had been calculated "
            f'with after predict_scores returned them: leave it out, scores.drop_vars("{MEAN}").'
        )


def deployed_score(scores: Any, draws: FloatArray, mean: ArrayLike | None) -> FloatArray:
    """The score to deploy, one per column of ``draws``."""
    if mean is None:
        carried = isinstance(scores, xr.DataArray | xr.Dataset)
        found = np.asarray(mean_score(scores if carried else draws)).reshape(-1)
        return draws[0] if len(draws) == 1 and not carried else found
    values = score_array(mean)
    if values.shape != draws.shape[1:] or not np.isfinite(values).all():
        raise ValueError(f"mean must be one finite score per row, {draws.shape[1]}; its shape is {values.shape}.")
    return values


def labelled_draws(scores: Any, y: ArrayLike, positive: Any) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Draws, one per row of a matrix, of the scores of labelled observations, and which of these are positive."""
    values = score_array(scores["mean"] if isinstance(scores, xr.Dataset) and "mean" in scores else draws_first(scores))
    distinct = len(distinct_labels("y", y)[0])
    if distinct > 2:
        raise ValueError(
            f"y has {distinct} distinct values; ROC curves, their AUCs and thresholds are of two classes: recode y, "
            "for example y >= value. Ordered classes are judged by 1 - pac.empirical_risk(scores, y, ordered=True), "
            "censored times by 1 - pac.concordance_risk(scores, time, event)."
        )
    mask = encode_labels(y, positive)
    if values.ndim == 0 or values.shape[-1] != mask.size:
        raise ValueError(f"scores must have one column per label, {mask.size}; their shape is {values.shape}.")
    if values.size == 0:
        raise ValueError(f"scores has no draws (its shape is {values.shape}); it needs at least one score vector.")
    values = values.reshape(-1, mask.size)
    if not np.isfinite(values).all():
        raise ValueError(f"scores has {int((~np.isfinite(values)).sum())} NaN or infinite value(s).")
    return values, mask


def check_ci_prob(ci_prob: float) -> None:
    if not 0.0 < ci_prob < 1.0:
        raise ValueError(f"ci_prob is a probability strictly between 0 and 1; got {ci_prob!r}.")
