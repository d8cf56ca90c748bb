"""Scores of new observations, with their uncertainty.

A score has no unit: only the order it gives matters, and for linear scores not even the length of theta is identified.
What can be said about new rows is therefore relative: the probability that one scores above another, and the ranks a
row may have among others.

Which place of the model new rows take is found in :mod:`~pymc_pacauc.analysis.new_rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors
from scipy.special import ndtr

from pymc_pacauc.analysis.new_rows import (
    NewRows,
    Source,
    matrix_of,
    new_rows,
    not_by_rows,
    row_labels,
    source_of,
    stacked_rows,
)
from pymc_pacauc.model.approximation import EPApproximation
from pymc_pacauc.model.auc_term import AUCTerm, auc_terms
from pymc_pacauc.model.deployed import MEAN, draw_dims, draws_first
from pymc_pacauc.model.gp import conditional_draws, predict_gp
from pymc_pacauc.model.graph import affine_map, evaluate_at_draws
from pymc_pacauc.model.groups import GroupCoefficients, draw_groups, grouped_coefficients
from pymc_pacauc.model.held_data import temporarily
from pymc_pacauc.numerics import FloatArray


def predict_scores(
    result: Any,
    X_new: ArrayLike | Mapping[str, ArrayLike],
    *,
    summary: bool = False,
    draws: int = 1000,
    gp: Any = None,
    data: str | None = None,
    var_name: str | None = None,
    new_groups: str = "refuse",
    model: pm.Model | None = None,
    random_seed: Any = None,
) -> Any:
    """Scores of new rows under the posterior.

    Parameters
    ----------
    result
        What ``pm.fit(method=pac.EP())`` or ``pm.sample`` returned, or draws read from a file.
    X_new
        Matrix or DataFrame (rows, columns), or a single row. If the model's scores depend on a ``pm.Data`` matrix,
        ``X_new`` takes its place, whatever the scores do with it; for several ``pm.Data`` give a mapping from their
        names to their new values. Otherwise scores must be ``X @ theta``, theta the coefficients in the model's order.
        Columns of a DataFrame are matched by name with the model's coords, where these are names.
    summary
        Return mean and standard deviation of each row instead of draws; in closed form for an approximation.
    draws
        Number of draws, for an approximation.
    gp
        The ``pm.gp.Latent`` or ``pm.gp.HSGP`` whose prior the scores are: ``X_new`` are then new points.
    data
        Name of the ``pm.Data`` to replace, where more than one would fit.
    var_name
        Name of the coefficients in an idata without a model, where more than one variable would fit.
    new_groups
        For scores with coefficients by group, such as ``theta[group]`` with ``group`` a ``pm.Data`` of codes: what is
        done with codes that the model has no coefficients for. ``"refuse"`` them, or ``"draw"`` coefficients of each
        such group from the population, that is from their prior given each draw of its parameters.
    model
        The model of an idata; not needed for scores ``X @ theta``.
    random_seed
        For the draws of an approximation, of a Gaussian process, and of new groups.

    Returns
    -------
    DataArray ``scores`` with dims (chain, draw, row), or a Dataset of ``mean`` and ``sd`` with dim row. Rows of a
    DataFrame keep their index. Draws of an approximation, reloaded ones too, carry the exact mean of each row's score,
    the one to deploy, as the coordinate ``mean_score``, which :func:`~pymc_pacauc.roc` and
    :func:`~pymc_pacauc.choose_threshold` use; so do those of a Gaussian process, that of its mean given each draw.

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
    if new_groups not in ("refuse", "draw"):
        raise ValueError(f'new_groups must be "refuse" or "draw"; got {new_groups!r}.')
    source = source_of(result, model)
    if gp is not None:
        return _process(source, gp, X_new, summary, draws, random_seed)
    new = new_rows(source, X_new, data, var_name)
    groups = _unknown_groups(source, new)
    if groups and new_groups == "refuse":
        raise ValueError("; ".join(map(str, groups)) + '. new_groups="draw" draws theirs from the population.')
    mean = None
    if source.approx is not None and not groups:
        design, offset = _affine(source.approx, new)
        mean, variance = source.approx.posterior.moments_of(design, variances=True)
        mean = mean + offset
        if summary:
            return _moments(mean, np.sqrt(variance), new.labels)
    if source.approx is not None:
        source = source_of(source.approx.sample(draws, random_seed=random_seed), source.model, source.fitted_to)
    assert source.posterior is not None
    values = _evaluate_groups(source, new, groups, random_seed) if groups else _evaluate(source, new)
    if mean is None and not groups:
        mean = _exact_mean(source, new)
    scores = _labelled(source.posterior, values, new.labels, mean)
    return _moments_of_draws(scores) if summary else scores


def probability_above(result: Any, x: ArrayLike, other: ArrayLike, **options: Any) -> Any:
    """Posterior probability that row ``x`` scores above row ``other``.

    ``x`` and ``other`` are rows, or matrices compared row by row, or, for several ``pm.Data``, mappings from their
    names to these. In closed form for an approximation; a tie of two draws counts one half. ``options`` are those of
    :func:`predict_scores`.

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
    source = source_of(result, options.get("model"))
    both, rows, single = stacked_rows(source, x, other)
    closed = source.approx is not None and options.get("gp") is None
    if closed:
        new = new_rows(source, both, options.get("data"), options.get("var_name"))
        closed = not _unknown_groups(source, new)
    if closed:
        assert source.approx is not None
        design, offset = _affine(source.approx, new)
        design, offset = (part[:rows] - part[rows:] for part in (design, offset))
        mean, variance = source.approx.posterior.moments_of(design, variances=True)
        sd, mean = np.sqrt(variance), mean + offset
        with np.errstate(divide="ignore", invalid="ignore"):
            probability = np.where(sd > 0, ndtr(mean / sd), 0.5 + 0.5 * np.sign(mean))
    else:
        scores = predict_scores(result, both, **options).values
        difference = scores[..., :rows] - scores[..., rows:]
        probability = (0.5 + 0.5 * np.sign(difference)).mean(axis=(0, 1))
    return float(probability[0]) if single else probability


def rank_uncertainty(scores: xr.DataArray, ci_prob: float = 0.9) -> xr.Dataset:
    """The rank of every row among the others, over the draws; rank 1 scores highest, ties share the mean rank.

    Parameters
    ----------
    scores
        Draws from :func:`predict_scores`.
    ci_prob
        Of the interval ``lower`` to ``upper``.

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

    if not isinstance(scores, xr.DataArray) or not draw_dims(scores):
        raise TypeError(
            "rank_uncertainty needs draws of scores, as predict_scores returns them without summary=True; got "
            f"{type(scores).__name__}."
        )
    if not 0.0 < ci_prob < 1.0:
        raise ValueError(f"ci_prob must lie strictly between 0 and 1; got {ci_prob!r}.")
    scores = draws_first(scores)
    if len(draw_dims(scores)) == scores.ndim:
        raise ValueError(f"scores are those of one row, dims {scores.dims}; ranks are among several.")
    row = scores.dims[-1]
    flat = scores.values.reshape(-1, scores.shape[-1])
    if not len(flat):
        raise ValueError("scores has no draws.")
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


def _labelled(posterior: Any, values: FloatArray, labels: NDArray[Any], mean: FloatArray | None = None) -> xr.DataArray:
    coords = {"chain": posterior["chain"], "draw": posterior["draw"], "row": labels}
    if mean is not None:
        coords[MEAN] = ("row", mean)
    return xr.DataArray(values, dims=("chain", "draw", "row"), coords=coords, name="scores")


def _moments(mean: FloatArray, sd: FloatArray, labels: NDArray[Any]) -> xr.Dataset:
    return xr.Dataset({"mean": ("row", mean), "sd": ("row", sd)}, coords={"row": labels})


def _moments_of_draws(scores: xr.DataArray) -> xr.Dataset:
    mean = scores[MEAN] if MEAN in scores.coords else scores.mean(("chain", "draw"))
    sd = scores.std(("chain", "draw"))
    return xr.Dataset({"mean": ("row", mean.values), "sd": ("row", sd.values)}, coords={"row": scores["row"]})


# -- groups ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _UnknownGroups:
    """Rows of codes that the model has no coefficients for."""

    coefficients: GroupCoefficients
    rows: NDArray[np.bool_]
    codes: NDArray[Any]

    def __str__(self) -> str:
        shown = ", ".join(map(str, np.unique(self.codes[self.rows])[:5]))
        names, size = ", ".join(self.coefficients.names), self.coefficients.size
        return (
            f"{self.coefficients.data.name} has codes that the model has no coefficients for ({shown}): {names} has "
            f"those of {size} groups, 0 to {size - 1}"
        )


def _unknown_groups(source: Source, new: NewRows) -> list[_UnknownGroups]:
    if new.data is None or source.model is None or source.term is None:
        return []
    found = []
    for data, values in new.data.items():
        if values.ndim == 1 and np.issubdtype(data.type.numpy_dtype, np.integer):
            coefficients = grouped_coefficients(source.model, source.term.scores, data)
            if coefficients is not None:
                outside = (values < 0) | (values >= coefficients.size)
                found += [_UnknownGroups(coefficients, outside, values)] if outside.any() else []
    return found


def _evaluate_groups(source: Source, new: NewRows, unknown: list[_UnknownGroups], random_seed: Any) -> FloatArray:
    """Scores of rows of which some belong to new groups: these borrow the places of known ones, as many at a time."""
    if len(unknown) > 1:
        names = " and ".join(str(each.coefficients.data.name) for each in unknown)
        raise ValueError(f"New groups of {names} at once cannot be drawn: predict them one after the other.")
    [groups] = unknown
    posterior, data, model = source.posterior, new.data, source.model
    assert posterior is not None
    assert data is not None
    assert model is not None
    rng = np.random.default_rng(random_seed)
    size, codes = groups.coefficients.size, np.unique(groups.codes[groups.rows])

    def part(chosen: NDArray[np.bool_], places: NDArray[np.intp], drawn: xr.Dataset) -> FloatArray:
        values = {v: np.asarray(array)[chosen] for v, array in data.items()} | {groups.coefficients.data: places}
        return _evaluate(replace(source, posterior=drawn), replace(new, labels=new.labels[chosen], data=values))

    scores = np.empty((posterior.sizes["chain"], posterior.sizes["draw"], new.size))
    if not groups.rows.all():
        scores[..., ~groups.rows] = part(~groups.rows, groups.codes[~groups.rows], posterior)
    for start in range(0, codes.size, size):
        some = codes[start : start + size]
        chosen = groups.rows & np.isin(groups.codes, some)
        drawn = draw_groups(model, groups.coefficients, posterior, rng)
        scores[..., chosen] = part(chosen, np.searchsorted(some, groups.codes[chosen]), drawn)
    return scores


# -- evaluation ------------------------------------------------------------------------------------------------------


def _affine(approx: EPApproximation, new: NewRows) -> tuple[FloatArray, FloatArray]:
    """Scores of the rows as ``design @ theta + offset`` in the flat coefficients of an approximation."""
    d = approx.fit.problem.d
    if new.data is None:
        assert new.matrix is not None
        design = np.zeros((new.size, d))
        places = np.concatenate([np.arange(d)[approx.source.parts[name]] for name in new.names])
        design[:, places] = new.matrix
        return design, np.zeros(new.size)
    terms = auc_terms(approx.model)
    evaluate = approx.function(terms[0].scores)
    with approx.as_fitted(), temporarily(new.data):
        offset, change = affine_map(lambda theta: [_as_rows(evaluate, theta, new.size)], d)
    if some := _some_rows(new, terms[0]):
        with approx.as_fitted(), temporarily(some):
            rows = len(next(iter(some.values())))
            again = _as_rows(evaluate, np.ones((1, d)), rows)[0]
        _check_same(again, (offset + change.sum(axis=0))[:rows], new.size)
    return change.T, offset


def _as_rows(evaluate: Callable[[FloatArray], list[Any]], points: FloatArray, rows: int) -> FloatArray:
    try:
        values = evaluate(points)[0]
    except (ValueError, IndexError) as error:
        raise not_by_rows(rows) from error
    if values.shape[-1] != rows:
        raise not_by_rows(rows)
    return values


def _some_rows(new: NewRows, term: AUCTerm) -> dict[SharedVariable, NDArray[Any]] | None:
    """Half of the new rows, where all of them are as many as the old ones: a wrong score would have the right shape."""
    if new.data is None or new.size != term.labels.size or new.size < 2:
        return None
    return {variable: values[: new.size // 2] for variable, values in new.data.items()}


def _check_same(some: FloatArray, expected: FloatArray, rows: int) -> None:
    if not np.allclose(some, expected, rtol=1e-6, atol=1e-9 * (1.0 + np.abs(expected).max())):
        raise not_by_rows(rows)


def _evaluate(source: Source, new: NewRows) -> FloatArray:
    posterior = source.posterior
    assert posterior is not None
    if new.data is not None:
        model, term = source.model, source.term
        assert model is not None
        assert term is not None
        with temporarily(new.data):
            found = _as_rows(lambda _: [evaluate_at_draws(model, term.scores, posterior)], np.empty(0), new.size)
        if some := _some_rows(new, term):
            one, rows = posterior.isel(chain=[0], draw=[0]), len(next(iter(some.values())))
            with temporarily(some):
                again = _as_rows(lambda _: [evaluate_at_draws(model, term.scores, one)], np.empty(0), rows)
            _check_same(again[0, 0], found[0, 0, :rows], new.size)
        return found
    assert new.matrix is not None
    columns = [posterior[name].transpose("chain", "draw", ...).values for name in new.names]
    theta = np.concatenate([c.reshape(*c.shape[:2], -1) for c in columns], axis=-1)
    return theta @ new.matrix.T


def _exact_mean(source: Source, new: NewRows) -> FloatArray | None:
    """The mean of the scores of draws that carry the mean of their variables: scores are affine in these."""
    if source.exact is None:
        return None
    needed = new.names
    if new.data is not None:
        assert source.term is not None
        needed = _variables_of(source, source.term.scores)
    if not set(needed) <= set(map(str, source.exact.data_vars)):
        return None
    return _evaluate(replace(source, posterior=source.exact), new)[0, 0]


def _variables_of(source: Source, graph: Any) -> tuple[str, ...]:
    """The random variables that an expression of the model depends on."""
    assert source.model is not None
    feeding = set(ancestors([graph]))
    return tuple(rv.name for rv in source.model.free_RVs if rv in feeding)


def _process(source: Source, gp: Any, X_new: Any, summary: bool, draws: int, random_seed: Any) -> Any:
    """Scores of a Gaussian process at new points."""
    points = np.atleast_2d(matrix_of(X_new, None))
    labels = row_labels(X_new, len(points))
    if source.approx is not None:
        mean, spread = predict_gp(source.approx, gp, points, covariance=not summary)
        if summary:
            return _moments(mean, np.sqrt(spread), labels)
        rng = np.random.default_rng(random_seed)
        values = rng.multivariate_normal(mean, spread, size=draws, method="eigh")
        return _labelled({"chain": [0], "draw": np.arange(draws)}, values[None], labels, mean)
    assert source.posterior is not None
    if source.model is None:
        raise ValueError("Draws of a Gaussian process need their model to be predicted from: pass model=.")
    rng = np.random.default_rng(random_seed)
    values, means = conditional_draws(source.model, gp, source.posterior, points, rng)
    if source.exact is not None and set(_variables_of(source, gp.f)) <= set(map(str, source.exact.data_vars)):
        means = conditional_draws(source.model, gp, source.exact, points, rng)[1]
    scores = _labelled(source.posterior, values, labels, means.mean(axis=(0, 1)))
    return _moments_of_draws(scores) if summary else scores
