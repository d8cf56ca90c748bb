"""Scores of new observations, with their uncertainty.

A score has no unit: only the order it gives matters, and for linear scores not even the length of theta is identified.
What can be said about new rows is therefore relative: the probability that one scores above another, and the ranks a
row may have among others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from pymc.pytensorf import compile as compile_function
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors
from scipy.special import ndtr

from pymc_pacauc.core.risk import numeric_array
from pymc_pacauc.model.extract import NotLinearGaussian, auc_term
from pymc_pacauc.model.flat import MODE
from pymc_pacauc.model.predictive import data_of_scores, temporarily

__all__ = ["predict_scores", "probability_above", "rank_uncertainty"]

FloatArray = NDArray[np.float64]


def predict_scores(
    result: Any,
    X_new: ArrayLike,
    *,
    summary: bool = False,
    draws: int = 1000,
    data: str | None = None,
    var_name: str | None = None,
    model: pm.Model | None = None,
    random_seed: Any = None,
) -> Any:
    """Scores of new rows under the posterior.

    Parameters
    ----------
    result
        What ``pm.fit(method=pac.EP())`` or ``pm.sample`` returned, or draws read from a file.
    X_new
        Matrix (rows, columns). If the model's scores depend on a ``pm.Data`` matrix, ``X_new`` takes its place,
        whatever the scores do with it. Otherwise scores are taken to be ``X_new @ theta``, theta the coefficients in
        the model's order.
    summary
        Return mean and standard deviation of each row instead of draws; in closed form for an approximation.
    draws
        Number of draws, for an approximation.
    data
        Name of the ``pm.Data`` to replace, where more than one would fit.
    var_name
        Name of the coefficients in an idata without a model, where more than one variable would fit.
    model
        The model of an idata; not needed for scores ``X_new @ theta``.
    random_seed
        For the draws of an approximation.

    Returns
    -------
    DataArray ``scores`` with dims (chain, draw, row), or a Dataset of ``mean`` and ``sd`` with dim row. Rows of a
    DataFrame keep their index.

    See Also
    --------
    predictive_model : for ``pm.set_data`` and ``pm.sample_posterior_predictive``.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> X = np.random.default_rng(1).normal(size=(40, 2))
    >>> with pm.Model():
    ...     theta = pm.Normal("theta", size=2)
    ...     auc = pac.AUCPotential("auc", X @ theta, X[:, 0] > 0.3, gamma=40)
    ...     approx = pm.fit(method=pac.EP(), progressbar=False)
    >>> pac.predict_scores(approx, [[1.0, 0.0], [0.0, 1.0]], draws=500, random_seed=1).shape
    (1, 500, 2)
    >>> predicted = pac.predict_scores(approx, [[1.0, 0.0], [0.0, 1.0]], summary=True)
    >>> bool(predicted["mean"][0] > predicted["mean"][1])
    True
    """
    rows, labels = _rows(X_new)
    if _is_approximation(result):
        if summary:
            design, offset = _affine(result, rows, data)
            mean, covariance = result.posterior.mean, result.posterior.covariance
            sd = np.sqrt(np.einsum("ij,jk,ik->i", design, covariance, design))
            return xr.Dataset({"mean": ("row", design @ mean + offset), "sd": ("row", sd)}, coords={"row": labels})
        result, model = result.sample(draws, random_seed=random_seed), result.model
    posterior = _posterior(result)
    values = _evaluate(posterior, rows, data, var_name, model)
    scores = xr.DataArray(
        values,
        dims=("chain", "draw", "row"),
        coords={"chain": posterior["chain"], "draw": posterior["draw"], "row": labels},
        name="scores",
    )
    if not summary:
        return scores
    return xr.Dataset({"mean": scores.mean(("chain", "draw")), "sd": scores.std(("chain", "draw"))})


def probability_above(result: Any, x: ArrayLike, other: ArrayLike, **options: Any) -> Any:
    """Posterior probability that row ``x`` scores above row ``other``.

    ``x`` and ``other`` are rows, or matrices compared row by row. In closed form for an approximation; a tie of
    two draws counts one half. ``options`` are those of :func:`predict_scores`.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> X = np.random.default_rng(1).normal(size=(40, 2))
    >>> with pm.Model():
    ...     theta = pm.Normal("theta", size=2)
    ...     auc = pac.AUCPotential("auc", X @ theta, X[:, 0] > 0.3, gamma=40)
    ...     approx = pm.fit(method=pac.EP(), progressbar=False)
    >>> bool(pac.probability_above(approx, [1.0, 0.0], [0.0, 0.5]) > 0.9)
    True
    """
    first, second = np.atleast_2d(_rows(x)[0]), np.atleast_2d(_rows(other)[0])
    first, second = np.broadcast_arrays(first, second)
    both = np.concatenate([first, second])
    if _is_approximation(result):
        design, offset = _affine(result, both, options.get("data"))
        design, offset = (part[: len(first)] - part[len(first) :] for part in (design, offset))
        sd = np.sqrt(np.einsum("ij,jk,ik->i", design, result.posterior.covariance, design))
        mean = design @ result.posterior.mean + offset
        with np.errstate(divide="ignore", invalid="ignore"):
            probability = np.where(sd > 0, ndtr(mean / sd), 0.5 + 0.5 * np.sign(mean))
    else:
        scores = predict_scores(result, both, **options).values
        difference = scores[..., : len(first)] - scores[..., len(first) :]
        probability = (0.5 + 0.5 * np.sign(difference)).mean(axis=(0, 1))
    return float(probability[0]) if np.ndim(x) == 1 and np.ndim(other) == 1 else probability


def rank_uncertainty(scores: xr.DataArray, ci_prob: float = 0.9) -> xr.Dataset:
    """The rank of every row among the others, over the draws; rank 1 scores highest, ties share the mean rank.

    Parameters
    ----------
    scores
        Draws from :func:`predict_scores`; the last dimension is the rows.
    ci_prob
        Probability of the interval ``lower`` to ``upper``.

    Returns
    -------
    Dataset with ``rank`` (posterior mean), ``sd``, ``lower``, ``upper`` and ``top`` (probability of rank 1).

    Examples
    --------
    >>> import xarray as xr
    >>> scores = xr.DataArray([[[3.0, 2.0, 1.0], [3.0, 1.0, 2.0]]], dims=("chain", "draw", "row"))
    >>> rank_uncertainty(scores)["rank"].values
    array([1. , 2.5, 2.5])
    """
    from scipy.stats import rankdata

    if not 0.0 < ci_prob < 1.0:
        raise ValueError(f"ci_prob is a probability strictly between 0 and 1; got {ci_prob!r}.")
    row = scores.dims[-1]
    flat = scores.values.reshape(-1, scores.shape[-1])
    ranks = rankdata(-flat, axis=1)
    tail = 0.5 * (1.0 - ci_prob)
    lower, upper = np.quantile(ranks, [tail, 1.0 - tail], axis=0)
    best = ranks == ranks.min(axis=1, keepdims=True)
    columns = {
        "rank": ranks.mean(axis=0),
        "sd": ranks.std(axis=0),
        "lower": lower,
        "upper": upper,
        "top": (best / best.sum(axis=1, keepdims=True)).mean(axis=0),
    }
    coords = {row: scores[row].values} if row in scores.coords else {}
    return xr.Dataset({name: (row, value) for name, value in columns.items()}, coords=coords)


def _rows(X_new: Any) -> tuple[FloatArray, NDArray[Any]]:
    values = numeric_array("X_new", X_new)
    if values.ndim not in (1, 2) or 0 in values.shape:
        raise ValueError(f"X_new must be a matrix with a row per observation; got shape {values.shape}.")
    if not np.isfinite(values).all():
        raise ValueError(f"X_new has {int((~np.isfinite(values)).sum())} NaN or infinite value(s).")
    index = getattr(X_new, "index", None)  # of a DataFrame
    return values, np.arange(len(values)) if index is None or callable(index) else np.asarray(index)


def _is_approximation(result: Any) -> bool:
    return hasattr(result, "posterior") and hasattr(result.posterior, "covariance") and hasattr(result, "sample")


def _posterior(idata: Any) -> xr.Dataset:
    try:
        group = idata["posterior"]
    except (KeyError, TypeError):
        group = idata
    group = group.to_dataset() if hasattr(group, "to_dataset") and not isinstance(group, xr.Dataset) else group
    if not isinstance(group, xr.Dataset) or not {"chain", "draw"} <= set(group.dims):
        raise TypeError(
            "result must be what pm.fit(method=pac.EP()) or pm.sample returned, or its posterior; "
            f"got {type(idata).__name__}."
        )
    return group


def _affine(approx: Any, rows: FloatArray, data: str | None) -> tuple[FloatArray, FloatArray]:
    """Scores of the rows as ``design @ theta + offset`` in the flat coefficients of an approximation."""
    d = approx.posterior.mean.size
    variable = data_of_scores(approx.model, rows, data)
    if variable is None:
        _check_columns(rows, d)
        return rows, np.zeros(len(rows))
    evaluate = approx.function(auc_term(approx.model).scores)
    with temporarily(variable, rows):
        points = _as_rows(evaluate, np.concatenate([np.zeros((1, d)), np.eye(d)]), len(rows))
    return (points[1:] - points[0]).T, points[0]


def _as_rows(evaluate: Callable[[FloatArray], list[Any]], points: FloatArray, rows: int) -> FloatArray:
    try:
        values = evaluate(points)[0]
    except ValueError as error:
        raise _not_by_rows(rows) from error
    if values.shape[-1] != rows:
        raise _not_by_rows(rows)
    return values


def _not_by_rows(rows: int) -> ValueError:
    return ValueError(
        f"The model's scores are not a function of one row at a time, so {rows} new rows have no score by replacing "
        "the data alone (a Gaussian process needs its conditional distribution)."
    )


def _evaluate(
    posterior: xr.Dataset, rows: FloatArray, data: str | None, var_name: str | None, model: pm.Model | None
) -> FloatArray:
    model = pm.modelcontext(model) if model is not None or pm.Model.get_context(error_if_none=False) else None
    if model is not None and var_name is None:
        try:
            variable = data_of_scores(model, rows, data)
        except NotLinearGaussian:
            variable = None
        if variable is not None:
            with temporarily(variable, rows):
                return _evaluate_model(model, posterior, len(rows))
        names = [rv.name for rv in model.free_RVs]
    else:
        names = [_coefficients(posterior, rows.shape[1])] if var_name is None else [var_name]
    missing = [name for name in names if name not in posterior]
    if missing:
        raise ValueError(
            f"There is no variable {', '.join(missing)} in the posterior ({', '.join(posterior.data_vars)})."
        )
    columns = [posterior[name].transpose("chain", "draw", ...).values for name in names]
    theta = np.concatenate([c.reshape(*c.shape[:2], -1) for c in columns], axis=-1)
    _check_columns(rows, theta.shape[-1])
    return theta @ rows.T


def _evaluate_model(model: pm.Model, posterior: xr.Dataset, rows: int) -> FloatArray:
    scores = auc_term(model).scores
    used = set(ancestors([scores]))
    variables = [rv for rv in model.free_RVs if rv in used]
    draws = [posterior[rv.name].transpose("chain", "draw", ...).values for rv in variables]
    shape = draws[0].shape[:2]
    batched = [rv.type.clone(shape=(None, *rv.type.shape))(f"{rv.name}_draws") for rv in variables]
    output = vectorize_graph(scores, dict(zip(variables, batched, strict=True)))
    function = compile_function(batched, output, mode=MODE, on_unused_input="ignore")
    points = [v.reshape(-1, *v.shape[2:]).astype(rv.dtype) for v, rv in zip(draws, variables, strict=True)]
    return _as_rows(lambda _: [function(*points)], np.empty(0), rows).reshape(*shape, rows)


def _coefficients(posterior: xr.Dataset, size: int) -> str:
    """The one variable with ``size`` entries a draw."""
    draws = posterior.sizes["chain"] * posterior.sizes["draw"]
    found = [str(name) for name, variable in posterior.data_vars.items() if variable.size == size * draws]
    if len(found) != 1:
        there = ", ".join(map(str, posterior.data_vars))
        raise ValueError(
            f"X_new has {size} columns; {'no' if not found else 'more than one'} variable in the posterior has {size} "
            f"entries ({there}). Name the coefficients with var_name=, or pass model=."
        )
    return found[0]


def _check_columns(rows: FloatArray, d: int) -> None:
    if rows.shape[-1] != d:
        raise ValueError(
            f"X_new has {rows.shape[-1]} columns but the model has {d} coefficients. If its scores are not X @ theta, "
            "hold X in a pm.Data so that it can be replaced."
        )
