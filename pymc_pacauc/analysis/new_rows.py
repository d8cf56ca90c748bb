"""The rows that scores are predicted for: which place of the model they take, and under which names.

New rows take the place of the model's ``pm.Data``, whatever the scores do with them. A model that holds its covariates
as constants can be predicted from only where its scores are X @ theta and nothing else. Columns of a DataFrame are
matched by name wherever the model has names to match. Nothing is guessed: what fits no place, or several, is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors

from pymc_pacauc.model.approximation import EPApproximation
from pymc_pacauc.model.auc_term import AUCTerm, auc_terms
from pymc_pacauc.model.results import as_result, by_chain_and_draw, dataset_of, group_of
from pymc_pacauc.numerics import FloatArray, numeric_array


@dataclass(frozen=True, eq=False)
class Source:
    """A posterior to predict from: an approximation or draws, the model where there is one, what it was fitted to."""

    approx: EPApproximation | None
    posterior: xr.Dataset | None
    model: pm.Model | None
    term: AUCTerm | None
    fitted_to: Any
    exact: xr.Dataset | None = None  # the mean of the variables, where draws carry it


@dataclass(frozen=True, eq=False)
class NewRows:
    """New rows: values of ``pm.Data``, or a matrix that multiplies the coefficients ``names``."""

    labels: NDArray[Any]
    data: dict[SharedVariable, NDArray[Any]] | None
    matrix: FloatArray | None
    names: tuple[str, ...]

    @property
    def size(self) -> int:
        return len(self.labels)


def source_of(result: Any, model: pm.Model | None, fitted: Any = None) -> Source:
    """What a result is, and the model it is of: its own, the one given, or that of the context."""
    approx, posterior, result = None, None, group_of(result)
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
        posterior = None if posterior is None else by_chain_and_draw(posterior)
        if posterior is None:
            raise TypeError(
                "result must be what pm.fit(method=pac.EP()) or pm.sample returned, or its posterior; "
                f"got {type(result).__name__}."
            )
        if model is None and pm.Model.get_context(error_if_none=False) is not None:
            model = pm.modelcontext(None)
    terms = auc_terms(model) if model is not None else []
    exact = getattr(fit_result, "exact_mean", None)
    return Source(approx, posterior, model, terms[0] if terms else None, fitted, exact)


def new_rows(source: Source, X_new: Any, data: str | None, var_name: str | None) -> NewRows:
    """The one place that the values fit; :func:`~pymc_pacauc.predict_scores` has the parameters."""
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


def _feeding(source: Source) -> list[SharedVariable]:
    """The ``pm.Data`` that the scores are made of and that have an entry, or a row, for each observation."""
    if source.model is None or source.term is None:
        return []
    used, n = set(ancestors([source.term.scores])), source.term.labels.size
    data = [v for v in source.model.data_vars if isinstance(v, SharedVariable) and v in used]
    return [v for v in data if v.type.ndim and v.get_value(borrow=True).shape[0] == n]


def _replaced(source: Source, values: Mapping[str, Any], feeding: list[SharedVariable]) -> NewRows:
    if source.model is None:
        raise ValueError(f"New values of {', '.join(values)} go into the model of these draws: pass model=.")
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
        array = matrix_of(value, _names(source, held[name])) if held[name].type.ndim == 2 else _vector(name, value)
        if held[name].type.ndim == 2 and array.ndim == 1:
            array = array[None]
        if held[name].type.dtype.startswith("int") and (array != np.round(array)).any():
            raise ValueError(f"{name} holds whole numbers in the model, such as the codes of groups; got {value!r}.")
        new[held[name]] = array
        labels = _index(value, len(array)) if labels is None else labels
    sizes = {name: len(new[held[name]]) for name in values}
    if len(set(sizes.values())) != 1:
        raise ValueError(f"The new values have different numbers of rows: {sizes}.")
    labels = np.arange(next(iter(sizes.values()))) if labels is None else labels
    assert source.model is not None
    assert source.term is not None
    given = ancestors([source.term.scores], blockers=source.model.free_RVs)  # that is, given the random variables
    if not set(new) <= set(given):  # whose values at other rows are no function of these
        raise not_by_rows(len(labels))
    return NewRows(labels, new, None, ())


def _multiplied(source: Source, X_new: Any, var_name: str | None) -> NewRows:
    """For scores ``X @ theta`` of a model without data to replace, or without a model."""
    fitted = source.fitted_to
    if var_name is None and fitted is not None and fitted.scores != "linear":
        what = "have a known offset besides X @ theta" if fitted.scores == "affine" else "are not of the form X @ theta"
        raise ValueError(
            f"The model's scores {what}, so X_new alone does not give them: hold the covariates (and the offset) in "
            "pm.Data, so that new rows can take their place, and pass model= with draws."
        )
    names = _coefficients(source, X_new, var_name)
    matrix = np.atleast_2d(matrix_of(X_new, _coordinate_names(source, names)))
    if source.posterior is not None:
        size = sum(source.posterior[name].size for name in names) // _draw_count(source.posterior)
    else:
        assert source.approx is not None
        parts = source.approx.source.parts
        size = sum(parts[name].stop - parts[name].start for name in names)
    if matrix.shape[1] != size:
        raise ValueError(
            f"X_new has {matrix.shape[1]} columns but the model has {size} coefficients. If its scores are not "
            "X @ theta, hold X in a pm.Data so that it can be replaced; for those of a Gaussian process, pass gp=."
        )
    return NewRows(row_labels(X_new, len(matrix)), None, matrix, names)


def _coefficients(source: Source, X_new: Any, var_name: str | None) -> tuple[str, ...]:
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


def stacked_rows(source: Source, x: Any, other: Any) -> tuple[Any, int, bool]:
    """Both sets of rows, one above the other, the number of the first, and whether it is one row against another.

    A single row is compared with every row of the other set.
    """
    if not isinstance(x, Mapping) or hasattr(x, "columns"):
        given = [matrix_of(values, _names(source, None)) for values in (x, other)]
        first, second = np.broadcast_arrays(*map(np.atleast_2d, given))
        return np.concatenate([first, second]), len(first), all(not _has_rows(v) for v in (x, other))
    if not isinstance(other, Mapping) or set(x) != set(other):
        raise ValueError("x and other must be mappings with the same names.")
    matrices = {v.name: v for v in _feeding(source) if v.type.ndim == 2}
    parts: dict[str, list[NDArray[Any]]] = {}
    for name in x:
        values = [each[name] for each in (x, other)]
        if name in matrices:
            parts[name] = [np.atleast_2d(matrix_of(v, _names(source, matrices[name]))) for v in values]
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


# -- arrays and names ------------------------------------------------------------------------------------------------


def _names(source: Source, variable: SharedVariable | None) -> list[str] | None:
    """Names of the columns of a ``pm.Data`` matrix (by default the only one), where its coords are names."""
    if variable is None:
        matrices = [v for v in _feeding(source) if v.type.ndim == 2]
        if len(matrices) != 1:
            return _coordinate_names(source, source.approx.variable_names) if source.approx is not None else None
        variable = matrices[0]
    assert source.model is not None
    dims = source.model.named_vars_to_dims.get(variable.name)
    return _strings(source.model.coords.get(dims[-1])) if dims else None


def _coordinate_names(source: Source, names: tuple[str, ...]) -> list[str] | None:
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


def matrix_of(values: Any, names: list[str] | None) -> FloatArray:
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
    numbers = np.atleast_1d(numeric_array(name, values))
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name} has {int((~np.isfinite(numbers)).sum())} NaN or infinite value(s).")
    array = np.atleast_1d(np.asarray(values))
    return array if array.dtype.kind in "biu" else numbers


def row_labels(values: Any, size: int) -> NDArray[Any]:
    """The index of a DataFrame, or numbers."""
    index = _index(values, size)
    return np.arange(size) if index is None else index


def _index(values: Any, size: int) -> NDArray[Any] | None:
    index = getattr(values, "index", None)
    usable = index is not None and not callable(index) and len(index) == size
    return np.asarray(index) if usable else None


def not_by_rows(rows: int) -> ValueError:
    """What is said where new data do not make new scores."""
    return ValueError(
        f"The model's scores are not a function of one row at a time, so {rows} new rows have no score by replacing "
        "the data alone. A Gaussian process needs its conditional distribution: say gp=. Trees of PyMC-BART keep their "
        "data to themselves: pm.set_data and pm.draw in their own model."
    )
