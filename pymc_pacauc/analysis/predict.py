"""Scores of new observations, with their uncertainty.

A score has no unit: only the order it gives matters, and for linear scores not even the length of theta is identified.
What can be said about new rows is therefore relative: the probability that one scores above another, and the ranks a
row may have among others.

Nothing is guessed. New rows take the place of the model's ``pm.Data``, whatever the scores do with them. A model that
holds its covariates as constants can be predicted from only where its scores are X @ theta and nothing else. Columns of
a DataFrame are matched by name wherever the model has names to match.
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

from pymc_pacauc.analysis.roc import MEAN
from pymc_pacauc.core.risk import numeric_array
from pymc_pacauc.model.approximation import EPApproximation
from pymc_pacauc.model.auc_term import AUCTerm, auc_terms
from pymc_pacauc.model.draws import evaluate_at_draws
from pymc_pacauc.model.extract import affine_map
from pymc_pacauc.model.gp import conditional_draws, predict_gp
from pymc_pacauc.model.groups import GroupCoefficients, draw_groups, grouped_coefficients
from pymc_pacauc.model.held_data import temporarily
from pymc_pacauc.model.results import as_result, dataset_of

__all__ = ["predict_scores", "probability_above", "rank_uncertainty"]

FloatArray = NDArray[np.float64]


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
    :func:`~pymc_pacauc.choose_threshold` use.

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
    source = _source(result, model)
    if gp is not None:
        return _process(source, gp, X_new, summary, draws, random_seed)
    new = _new_rows(source, X_new, data, var_name)
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
        source = _source(source.approx.sample(draws, random_seed=random_seed), source.model, source.fitted_to)
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
    source = _source(result, options.get("model"))
    both, rows, single = _stacked(source, x, other)
    closed = source.approx is not None and options.get("gp") is None
    if closed:
        new = _new_rows(source, both, options.get("data"), options.get("var_name"))
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


def _stacked(source: _Source, x: Any, other: Any) -> tuple[Any, int, bool]:
    """Both sets of rows, one above the other, the number of the first, and whether it is one row against another.

    A single row is compared with every row of the other set.
    """
    if not isinstance(x, Mapping) or hasattr(x, "columns"):
        given = [_matrix(values, _names(source, None)) for values in (x, other)]
        first, second = np.broadcast_arrays(*map(np.atleast_2d, given))
        return np.concatenate([first, second]), len(first), all(not _has_rows(v) for v in (x, other))
    if not isinstance(other, Mapping) or set(x) != set(other):
        raise ValueError("x and other must be mappings with the same names.")
    matrices = {v.name: v for v in _feeding(source) if v.type.ndim == 2}
    parts: dict[str, list[NDArray[Any]]] = {}
    for name in x:
        values = [each[name] for each in (x, other)]
        if name in matrices:
            parts[name] = [np.atleast_2d(_matrix(v, _names(source, matrices[name]))) for v in values]
        else:
            parts[name] = [_vector(name, v) for v in values]
    rows = max(len(part) for both in parts.values() for part in both)
    stacked = {
        name: np.concatenate([np.broadcast_to(part, (rows, *part.shape[1:])) for part in both])
        for name, both in parts.items()
    }
    alone = [np.ndim(each[name]) == (1 if name in matrices else 0) for each in (x, other) for name in x]
    return stacked, rows, all(alone)


def _has_rows(values: Any) -> bool:
    return np.ndim(values) == 2


def rank_uncertainty(scores: xr.DataArray, ci_prob: float = 0.9) -> xr.Dataset:
    """The rank of every row among the others, over the draws; rank 1 scores highest, ties share the mean rank.

    Parameters
    ----------
    scores
        Draws from :func:`predict_scores`; the last dimension is the rows.
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

    if not isinstance(scores, xr.DataArray) or scores.ndim < 2:
        raise TypeError(
            "rank_uncertainty needs draws of scores, as predict_scores returns them without summary=True; got "
            f"{type(scores).__name__}."
        )
    if not 0.0 < ci_prob < 1.0:
        raise ValueError(f"ci_prob must lie strictly between 0 and 1; got {ci_prob!r}.")
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


# -- where scores come from ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Source:
    """A posterior to predict from: an approximation or draws, the model where there is one, what it was fitted to."""

    approx: EPApproximation | None
    posterior: xr.Dataset | None
    model: pm.Model | None
    term: AUCTerm | None
    fitted_to: Any
    exact: xr.Dataset | None = None  # the mean of the variables, where draws carry it


@dataclass(frozen=True, eq=False)
class _NewRows:
    """New rows: values of ``pm.Data``, or a matrix that multiplies the coefficients ``names``."""

    labels: NDArray[Any]
    data: dict[SharedVariable, NDArray[Any]] | None
    matrix: FloatArray | None
    names: tuple[str, ...]

    @property
    def size(self) -> int:
        return len(self.labels)


def _source(result: Any, model: pm.Model | None, fitted: Any = None) -> _Source:
    approx, posterior = None, None
    try:
        fit_result = as_result(result)
    except TypeError:
        fit_result = None
    if isinstance(fit_result, EPApproximation):
        approx, model, fitted = fit_result, fit_result.model, fit_result.fitted_to
    else:
        posterior = fit_result.posterior if fit_result is not None and hasattr(fit_result, "posterior") else None
        fitted = getattr(fit_result, "fitted_to", fitted)
        if posterior is None:
            posterior = result if isinstance(result, xr.Dataset) else dataset_of(result, "posterior")
        if posterior is None or not {"chain", "draw"} <= set(posterior.dims):
            raise TypeError(
                "result must be what pm.fit(method=pac.EP()) or pm.sample returned, or its posterior; "
                f"got {type(result).__name__}."
            )
        if model is None and pm.Model.get_context(error_if_none=False) is not None:
            model = pm.modelcontext(None)
    terms = auc_terms(model) if model is not None else []
    exact = getattr(fit_result, "exact_mean", None)
    return _Source(approx, posterior, model, terms[0] if terms else None, fitted, exact)


def _new_rows(source: _Source, X_new: Any, data: str | None, var_name: str | None) -> _NewRows:
    feeding = _feeding(source) if var_name is None else []
    if isinstance(X_new, Mapping) and not hasattr(X_new, "columns"):
        return _replaced(source, X_new, feeding)
    if data is not None and data not in {v.name for v in feeding}:
        raise ValueError(
            f"No pm.Data named {data!r} feeds the scores ({', '.join(v.name for v in feeding) or 'none'})."
        )
    ndim = max(1, np.ndim(X_new))
    fitting = [v for v in feeding if (v.name == data if data is not None else v.type.ndim in (2, ndim))]
    if not fitting:
        return _multiplied(source, X_new, var_name)
    widths = {v: v.get_value(borrow=True).shape[1:] for v in fitting}
    columns = np.shape(X_new)[-1:] if ndim == 2 or any(v.type.ndim == 2 for v in fitting) else ()
    matching = [v for v in fitting if widths[v] == columns]
    if len(matching) != 1:
        shapes = ", ".join(f"{v.name} {v.get_value(borrow=True).shape}" for v in fitting)
        found = "no" if not matching else "more than one"
        raise ValueError(
            f"X_new has shape {np.shape(X_new)}; {found} pm.Data that feeds the scores has as many columns ({shapes}). "
            "Name it with data=, or give a mapping from names to values."
        )
    return _replaced(source, {matching[0].name: X_new}, feeding)


def _feeding(source: _Source) -> list[SharedVariable]:
    """The ``pm.Data`` that the scores are made of and that have an entry, or a row, for each observation."""
    if source.model is None or source.term is None:
        return []
    used, n = set(ancestors([source.term.scores])), source.term.labels.size
    data = [v for v in source.model.data_vars if isinstance(v, SharedVariable) and v in used]
    return [v for v in data if v.type.ndim and v.get_value(borrow=True).shape[0] == n]


def _replaced(source: _Source, values: Mapping[str, Any], feeding: list[SharedVariable]) -> _NewRows:
    held = {v.name: v for v in feeding}
    unknown, missing = sorted(set(values) - set(held)), sorted(set(held) - set(values))
    if unknown:
        raise ValueError(f"{', '.join(unknown)} is no pm.Data that feeds the scores ({', '.join(held) or 'none'}).")
    if missing:
        raise ValueError(
            f"The scores depend on {', '.join(missing)} too: give a mapping with new values of all of them."
        )
    new, labels = {}, None
    for name, value in values.items():
        array = _matrix(value, _names(source, held[name])) if held[name].type.ndim == 2 else _vector(name, value)
        if held[name].type.ndim == 2 and array.ndim == 1:
            array = array[None]
        new[held[name]] = array
        labels = _index(value, len(array)) if labels is None or len(labels) == len(array) else labels
    sizes = {name: len(new[held[name]]) for name in values}
    if len(set(sizes.values())) != 1:
        raise ValueError(f"The new values have different numbers of rows: {sizes}.")
    assert labels is not None
    assert source.model is not None
    assert source.term is not None
    given = ancestors([source.term.scores], blockers=source.model.free_RVs)  # that is, given the random variables
    if not set(new) <= set(given):  # whose values at other rows are no function of these
        raise _not_by_rows(len(labels))
    return _NewRows(labels, new, None, ())


def _multiplied(source: _Source, X_new: Any, var_name: str | None) -> _NewRows:
    """For scores ``X @ theta`` of a model without data to replace, or without a model."""
    fitted = source.fitted_to
    if var_name is None and fitted is not None and fitted.scores != "linear":
        what = "have a known offset besides X @ theta" if fitted.scores == "affine" else "are not of the form X @ theta"
        raise ValueError(
            f"The model's scores {what}, so X_new alone does not give them: hold the covariates (and the offset) in "
            "pm.Data, so that new rows can take their place, and pass model= with draws."
        )
    names = _coefficients(source, X_new, var_name)
    matrix = np.atleast_2d(_matrix(X_new, _coordinate_names(source, names)))
    if source.posterior is not None:
        size = sum(source.posterior[name].size for name in names) // _draw_count(source.posterior)
    else:
        assert source.approx is not None
        parts = source.approx.source.parts
        size = sum(parts[name].stop - parts[name].start for name in names)
    if matrix.shape[1] != size:
        raise ValueError(
            f"X_new has {matrix.shape[1]} columns but the model has {size} coefficients. If its scores are not "
            "X @ theta, hold X in a pm.Data so that it can be replaced."
        )
    return _NewRows(_index(X_new, len(matrix)), None, matrix, names)


def _coefficients(source: _Source, X_new: Any, var_name: str | None) -> tuple[str, ...]:
    """The variables that the columns multiply; those that add the same to every score rank nothing and are left out."""
    width = np.shape(X_new)[-1]
    if source.approx is not None:
        approx = source.approx
        X, parts = approx.fit.problem.X, approx.source.parts
        ranking = [name for name, part in parts.items() if np.ptp(X[:, part], axis=0).any()]
        return approx.variable_names if width == X.shape[1] else tuple(ranking)
    posterior = source.posterior
    assert posterior is not None
    if var_name is not None:
        if var_name not in posterior:
            raise ValueError(f"There is no variable {var_name} in the posterior ({', '.join(posterior.data_vars)}).")
        return (var_name,)
    if source.model is not None and source.term is not None:
        used = set(ancestors([source.term.scores]))
        sparse = {f"{v.name}_{part}" for v in source.model.deterministics for part in ("slab", "latent") if v in used}
        names = [v.name for v in source.model.free_RVs if v in used and v.name not in sparse]
        names += [v.name for v in source.model.deterministics if v in used and f"{v.name}_slab" in posterior]
        if all(name in posterior for name in names):
            entries = {name: posterior[name].size // _draw_count(posterior) for name in names}
            if sum(entries.values()) != width:
                names = [name for name in names if entries[name] > 1 or width == 1]
            return tuple(names)
    return (_of_size(posterior, width),)


def _of_size(posterior: xr.Dataset, size: int) -> str:
    """The one variable with ``size`` entries a draw; the parts of a spike-and-slab variable do not count."""
    parts = {f"{name}_{part}" for name in posterior.data_vars for part in ("slab", "latent", "included")}
    found = [
        str(name)
        for name, variable in posterior.data_vars.items()
        if variable.size == size * _draw_count(posterior) and name not in parts
    ]
    if len(found) != 1:
        there = ", ".join(map(str, posterior.data_vars))
        raise ValueError(
            f"X_new has {size} columns; {'no' if not found else 'more than one'} variable in the posterior has {size} "
            f"entries ({there}). Name the coefficients with var_name=, or pass model=."
        )
    return found[0]


def _draw_count(posterior: xr.Dataset) -> int:
    count = posterior.sizes["chain"] * posterior.sizes["draw"]
    if count == 0:
        raise ValueError("The posterior has no draws.")
    return int(count)


# -- arrays and names ------------------------------------------------------------------------------------------------


def _names(source: _Source, variable: SharedVariable | None) -> list[str] | None:
    """Names of the columns of a ``pm.Data`` matrix (by default the only one), where its coords are names."""
    if variable is None:
        matrices = [v for v in _feeding(source) if v.type.ndim == 2]
        if len(matrices) != 1:
            return _coordinate_names(source, source.approx.variable_names) if source.approx is not None else None
        variable = matrices[0]
    assert source.model is not None
    dims = source.model.named_vars_to_dims.get(variable.name)
    return _strings(source.model.coords.get(dims[-1])) if dims else None


def _coordinate_names(source: _Source, names: tuple[str, ...]) -> list[str] | None:
    """Names of the coefficients: coords of the one variable there is."""
    if len(names) != 1:
        return None
    if source.posterior is not None:
        variable = source.posterior[names[0]]
        dims = [dim for dim in variable.dims if dim not in ("chain", "draw")]
        return _strings(variable[dims[0]].values) if len(dims) == 1 and dims[0] in variable.coords else None
    assert source.model is not None
    dims = source.model.named_vars_to_dims.get(names[0])
    return _strings(source.model.coords.get(dims[0])) if dims and len(dims) == 1 else None


def _strings(values: Any) -> list[str] | None:
    return [str(v) for v in values] if values is not None and all(isinstance(v, str) for v in values) else None


def _matrix(values: Any, names: list[str] | None) -> FloatArray:
    """Numbers, the columns of a frame in the order of ``names``."""
    columns = _strings(getattr(values, "columns", None))
    if columns is None and hasattr(values, "index") and hasattr(values, "to_frame"):  # a Series: one row of a frame
        columns = _strings(values.index)
        values = values.to_frame().T
    if columns is not None and names is not None:
        missing, extra = [n for n in names if n not in columns], [c for c in columns if c not in names]
        if missing or extra:
            parts = [f"missing: {', '.join(missing)}"] * bool(missing) + [f"unknown: {', '.join(extra)}"] * bool(extra)
            raise ValueError(f"The columns of X_new are not those of the model ({names}); {'; '.join(parts)}.")
        values = values[names]
    array = numeric_array("X_new", values)
    if array.ndim not in (1, 2) or 0 in array.shape:
        raise ValueError(f"X_new must be a matrix with a row per observation; got shape {array.shape}.")
    if not np.isfinite(array).all():
        raise ValueError(f"X_new has {int((~np.isfinite(array)).sum())} NaN or infinite value(s).")
    return array


def _vector(name: str, values: Any) -> NDArray[Any]:
    array = np.atleast_1d(np.asarray(values))
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{name} has {int((~np.isfinite(array)).sum())} NaN or infinite value(s).")
    return array


def _index(values: Any, size: int) -> NDArray[Any]:
    index = getattr(values, "index", None)  # of a DataFrame
    usable = index is not None and not callable(index) and len(index) == size
    return np.asarray(index) if usable else np.arange(size)


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


def _unknown_groups(source: _Source, new: _NewRows) -> list[_UnknownGroups]:
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


def _evaluate_groups(source: _Source, new: _NewRows, unknown: list[_UnknownGroups], random_seed: Any) -> FloatArray:
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


def _affine(approx: EPApproximation, new: _NewRows) -> tuple[FloatArray, FloatArray]:
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
        raise _not_by_rows(rows) from error
    if values.shape[-1] != rows:
        raise _not_by_rows(rows)
    return values


def _some_rows(new: _NewRows, term: AUCTerm) -> dict[SharedVariable, NDArray[Any]] | None:
    """Half of the new rows, where all of them are as many as the old ones: a wrong score would have the right shape."""
    if new.data is None or new.size != term.labels.size or new.size < 2:
        return None
    return {variable: values[: new.size // 2] for variable, values in new.data.items()}


def _check_same(some: FloatArray, expected: FloatArray, rows: int) -> None:
    if not np.allclose(some, expected, rtol=1e-6, atol=1e-9 * (1.0 + np.abs(expected).max())):
        raise _not_by_rows(rows)


def _not_by_rows(rows: int) -> ValueError:
    return ValueError(
        f"The model's scores are not a function of one row at a time, so {rows} new rows have no score by replacing "
        "the data alone. A Gaussian process needs its conditional distribution: say gp=. Trees of PyMC-BART keep their "
        "data to themselves: pm.set_data and pm.draw in their own model."
    )


def _evaluate(source: _Source, new: _NewRows) -> FloatArray:
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


def _exact_mean(source: _Source, new: _NewRows) -> FloatArray | None:
    """The mean of the scores of draws that carry the mean of their variables: scores are affine in these."""
    if source.exact is None:
        return None
    needed = new.names
    if new.data is not None:
        assert source.model is not None
        assert source.term is not None
        feeding = set(ancestors([source.term.scores]))
        needed = tuple(rv.name for rv in source.model.free_RVs if rv in feeding)
    if not set(needed) <= set(map(str, source.exact.data_vars)):
        return None
    return _evaluate(replace(source, posterior=source.exact), new)[0, 0]


def _process(source: _Source, gp: Any, X_new: Any, summary: bool, draws: int, random_seed: Any) -> Any:
    """Scores of a Gaussian process at new points."""
    points = np.atleast_2d(_matrix(X_new, None))
    labels = _index(X_new, len(points))
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
    values = conditional_draws(source.model, gp, source.posterior, points, np.random.default_rng(random_seed))
    scores = _labelled(source.posterior, values, labels)
    return _moments_of_draws(scores) if summary else scores
