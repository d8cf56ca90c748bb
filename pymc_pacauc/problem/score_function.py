"""How a row becomes a score, carried by every result, so that new rows are scored like the fitted ones, or refused.

A score is a function of *inputs* (matrices or vectors with a row per observation) and *variables* (the coefficients).
If it is linear in the columns of the inputs and affine in the variables, :class:`ScoreFunction` stores the map:

    weights = matrix @ theta + constant,        score = row @ weights[:-1] + weights[-1],

theta the concatenated variables, the last weight the intercept. ``matrix`` is sparse, (columns + 1, coefficients): for
``X @ theta`` it is the identity. No model is needed, so draws in a file can score new rows. If a score is a nonlinear
function of one row, the object lists its inputs, and the model is needed to evaluate it
(:mod:`pymc_pacauc.model.score_function`). If it is not a function of one row, ``refusal`` says why, and what to do.

Column labels, where they are known, are matched with those of DataFrames, Series and DataArrays; arrays are taken by
position. Nothing here imports PyMC.

Write a linear score as JSON: weights, their covariance, column names and provenance.

The entry ``how_to_score`` is NumPy code that computes scores from the file without this package. Nothing here imports
PyMC.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pymc_pacauc import __version__
from pymc_pacauc.numerics import FloatArray, numeric_array
from pymc_pacauc.problem.provenance import Provenance

STAT = "score_function"  # the coordinate, or the statistic of draws, that holds the encoded object
PART, PARTS = f"{STAT}_part", f"{STAT}_parts"
PIECE = 4096  # bytes that one draw of a sampler carries; doubling it halves the draws needed, and doubles their memory


@dataclass(frozen=True, eq=False)
class Input:
    """An array with a row per observation that the scores are made of.

    Attributes
    ----------
    name : str
        Name of the ``pm.Data``; empty for a constant array of the model.
    shape : tuple of int
        Shape of one row: ``(columns,)`` of a matrix, ``()`` of a vector.
    labels : tuple or None
        Labels of the columns, where the model has them.
    dims : tuple of str
        Names of its dimensions, where the model has them.
    levels : tuple or None
        For codes that index coefficients: the labels of the groups, or their numbers. None for covariates.
    same : tuple of float or None
        The row, where all rows are equal and not in ``pm.Data``: new rows have it too.
    """

    name: str
    shape: tuple[int, ...]
    labels: tuple[Any, ...] | None = None
    dims: tuple[str, ...] = ()
    levels: tuple[Any, ...] | None = None
    same: tuple[float, ...] | None = None

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __str__(self) -> str:
        kind = f"{self.size} columns" if self.shape else "one entry per row"
        return f"{self.name or 'a constant array of the model'} ({kind})"


@dataclass(frozen=True, eq=False)
class NewRows:
    """Values of all inputs at new rows, ``(rows, *shape)`` each, and the labels of the rows."""

    values: tuple[NDArray[Any], ...]
    labels: NDArray[Any]
    unknown: tuple[tuple[int, tuple[Any, ...]], ...] = ()  # (index of the input, labels of groups not in the model)

    def beside(self, other: NewRows) -> NewRows:
        """Stack these rows on as many other ones; a single row is repeated."""
        count = max(len(self.labels), len(other.labels))
        if {len(self.labels), len(other.labels)} - {1, count}:
            raise ValueError(
                f"X_new has {len(self.labels)} rows, which cannot be compared one by one with {len(other.labels)}: "
                "give as many, or a single row."
            )
        labels = self.labels if len(self.labels) == count else other.labels
        values = [
            np.concatenate([np.broadcast_to(v, (count, *v.shape[1:])) for v in pair])
            for pair in zip(self.values, other.values, strict=True)
        ]
        return NewRows(tuple(values), np.concatenate([labels, labels]), self.unknown + other.unknown)

    @property
    def flat(self) -> FloatArray:
        """All columns of all inputs, shape (rows, columns)."""
        return np.concatenate([v.reshape(len(self.labels), -1) for v in self.values], axis=1).astype(np.float64)


@dataclass(frozen=True, eq=False)
class ScoreFunction:
    """How a row becomes a score.

    Attributes
    ----------
    inputs : tuple of Input
        The arrays that a row consists of.
    variables : tuple of (str, tuple of int)
        Names and shapes of the coefficients.
    matrix : sparse array (columns + 1, coefficients) or None
        ``weights = matrix @ theta + constant``, the intercept last; None where the score is not linear.
    constant : ndarray (columns + 1,)
        The weights at theta = 0.
    name : str
        Name of the scores, where they are a Deterministic.
    refusal : str
        Why new rows have no score; empty where they have.
    classes : tuple of ScoreFunction
        With a score for each of several classes, each one's function; empty where there is one score.
    """

    inputs: tuple[Input, ...]
    variables: tuple[tuple[str, tuple[int, ...]], ...] = ()
    matrix: Any = None
    constant: FloatArray | None = None
    name: str = ""
    refusal: str = ""
    classes: tuple[ScoreFunction, ...] = ()

    @property
    def linear(self) -> bool:
        return self.matrix is not None

    def names_agree(self, other: ScoreFunction) -> bool:
        """Return whether inputs and their columns have the same names, where both have names."""
        pairs = zip(self.inputs, other.inputs, strict=False)
        return len(self.inputs) == len(other.inputs) and all(
            a.name == b.name and a.shape == b.shape and (None in (a.labels, b.labels) or a.labels == b.labels)
            for a, b in pairs
        )

    # -- new rows ----------------------------------------------------------------------------------------------------

    def rows(self, X_new: Any) -> NewRows:
        """Read the values of the inputs at new rows; refuse what is missing, unknown or ambiguous.

        Parameters
        ----------
        X_new : array-like, DataFrame, Series, DataArray, or mapping from names of inputs to these
            New rows; a single row may have one dimension.
        """
        if self.refusal:
            raise ValueError(self.refusal)
        named = {each.name: each for each in self.inputs if each.name}
        given = self._by_name(X_new, named) if _is_mapping(X_new) else self._by_shape(X_new, named)
        sizes = {each.name or "X_new": len(found[0]) for each, found in given.items()}
        if len(set(sizes.values())) != 1:
            raise ValueError(f"X_new has inputs with different numbers of rows: {sizes}.")
        size = next(iter(sizes.values()))
        labels = _same_index({each.name: found[1] for each, found in given.items()})
        values, unknown = [], []
        for k, each in enumerate(self.inputs):
            if each in given:
                values.append(given[each][0])
                unknown += [(k, given[each][2])] if given[each][2] else []
            else:
                values.append(np.broadcast_to(np.reshape(each.same or (), each.shape), (size, *each.shape)))
        return NewRows(tuple(values), np.arange(size) if labels is None else labels, tuple(unknown))

    def _by_name(self, X_new: Mapping[str, Any], named: Mapping[str, Input]) -> dict[Input, Any]:
        unknown, missing = [n for n in X_new if n not in named], [n for n in named if n not in X_new]
        if unknown:
            raise ValueError(
                f"X_new has the names {', '.join(map(str, unknown))}, which are no pm.Data of the scores; these are "
                f"{', '.join(named) or 'none'}."
            )
        if missing:
            raise ValueError(
                f"X_new lacks {', '.join(missing)}, which the scores depend on too: give new values of all of "
                f"{', '.join(named)}."
            )
        self._refuse_constants(list(named.values()))
        return {each: _values_of(each, X_new[name]) for name, each in named.items()}

    def _by_shape(self, X_new: Any, named: Mapping[str, Input]) -> dict[Input, Any]:
        asked = [each for each in self.inputs if each.same is None]
        if not named:
            return self._joined(X_new, asked)
        if len(named) > 1:
            shape = np.shape(X_new)
            fits = [name for name, each in named.items() if each.shape and shape[-1:] == each.shape[-1:]] or [""]
            raise ValueError(
                f"The scores depend on {', '.join(n for n in named if n != fits[0])} too: pass a mapping with new "
                f"values of all of them, {{{', '.join(f'{n!r}: ...' for n in named)}}}."
            )
        self._refuse_constants(list(named.values()))
        [each] = named.values()
        return {each: _values_of(each, X_new)}

    def _refuse_constants(self, known: Sequence[Input]) -> None:
        others = [each for each in self.inputs if each.same is None and each not in known]
        if others:
            raise ValueError(
                f"The scores depend on {', '.join(map(str, others))} too, for which X_new has no values: put it into "
                "a pm.Data, and pass new values of all pm.Data by name."
            )

    def _joined(self, X_new: Any, asked: list[Input]) -> dict[Input, Any]:
        """Split X_new among the constant arrays of the model, in the order of the coefficients they multiply."""
        asked = self._in_order(asked)
        if len(asked) == 1:
            return {asked[0]: _values_of(asked[0], X_new)}
        if not self.linear or any(len(each.shape) > 1 for each in asked):
            raise ValueError(
                f"The scores depend on several constant arrays ({', '.join(map(str, asked))}): put them into pm.Data, "
                "and pass new values by name."
            )
        labels = [label for each in asked for label in each.labels or ()]
        known = all(each.labels is not None for each in asked) and len(set(labels)) == len(labels)
        whole = Input("", (sum(each.size for each in asked),), tuple(labels) if known else None)
        array, index, _ = _values_of(whole, X_new)
        cuts = np.cumsum([each.size for each in asked])[:-1]
        parts = np.split(array, cuts, axis=1)
        return {each: (part.reshape(-1, *each.shape), index, ()) for each, part in zip(asked, parts, strict=True)}

    def _in_order(self, asked: list[Input]) -> list[Input]:
        """Sort the constant arrays of a linear score by the coefficients they multiply."""
        if not self.linear or len(asked) < 2:
            return asked
        loads = {each: self.matrix[self._columns(each)] for each in asked}
        if any(not each.nnz for each in loads.values()):
            raise ValueError(
                "The model's scores have a constant offset besides X @ theta, which X_new does not contain: put the "
                "covariates and the offset into pm.Data, and pass new values of both by name."
            )
        return sorted(asked, key=lambda each: loads[each].indices.min())

    def _columns(self, which: Input) -> list[int]:
        """Return the rows of ``matrix`` for an input's columns."""
        start = sum(each.size for each in self.inputs[: self.inputs.index(which)])
        return list(range(start, start + which.size))

    # -- scores ------------------------------------------------------------------------------------------------------

    def of_new_columns(self) -> tuple[list[Input], Any, FloatArray]:
        """Return the inputs that vary by row, in their order, with ``matrix`` and ``constant`` of their columns alone.

        Inputs that are equal in all rows become part of the intercept. Refuses scores that are not linear.
        """
        if self.refusal:
            raise ValueError(self.refusal)
        if self.classes:
            raise ValueError("The model has a score for each class: name one, a pm.Deterministic, by var_name=.")
        if not self.linear:
            raise ValueError(
                "The scores are not linear in the columns of X, so they have no weights: use "
                "pac.predict_scores(result, X_new), with model= for draws."
            )
        given = [each for each in self.inputs if each.name]
        if given:
            self._refuse_constants(given)
        else:
            given = self._in_order([each for each in self.inputs if each.same is None])
        assert self.constant is not None
        held = [np.zeros(each.size) if each in given else np.array(each.same or ()) for each in self.inputs]
        chosen = sparse.eye_array(self.constant.size, format="csr")[[k for each in given for k in self._columns(each)]]
        fold = sparse.vstack([chosen, sparse.csr_array(np.concatenate([*held, [1.0]])[None])], format="csr")
        return given, fold @ self.matrix, fold @ self.constant

    def theta(self, values: Mapping[str, Any], draws: int) -> FloatArray:
        """Concatenate the variables' values, ``(draws, *shape)`` each, to coefficients ``(draws, coefficients)``."""
        found = [np.zeros((draws, 0))]
        for name, shape in self.variables:
            if name not in values:
                raise ValueError(
                    f"The posterior has no draws of {name}, which the scores depend on: keep it among the var_names."
                )
            value = np.asarray(values[name], dtype=np.float64)
            if value.shape[1:] != shape:
                raise ValueError(
                    f"{name} has shape {value.shape[1:]} in these draws, and {shape} in the model that was fitted: the "
                    "draws are of another model."
                )
            found.append(value.reshape(draws, -1))
        return np.concatenate(found, axis=1)

    def weights(self, theta: FloatArray) -> FloatArray:
        """Compute the weights of the columns, the intercept last, of a linear score: (draws, columns + 1)."""
        return (self.matrix @ theta.T).T + self.constant

    def design(self, rows: NewRows) -> tuple[FloatArray, FloatArray]:
        """Return design (rows, coefficients) and offset (rows,) with scores ``design @ theta + offset``."""
        flat = np.column_stack([rows.flat, np.ones(len(rows.labels))])
        assert self.constant is not None
        return (self.matrix.T @ flat.T).T, flat @ self.constant

    def scores(self, theta: FloatArray, rows: NewRows) -> FloatArray:
        """Compute the scores (draws, rows) of a linear score."""
        weights = self.weights(theta)
        return weights[:, :-1] @ rows.flat.T + weights[:, -1:]

    # -- storage -----------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Convert to numbers, strings and lists, for JSON; see :meth:`from_dict`."""
        found: dict[str, Any] = {
            "inputs": [{name: plain(value) for name, value in vars(each).items()} for each in self.inputs],
            "variables": [[name, list(shape)] for name, shape in self.variables],
            "name": self.name,
            "refusal": self.refusal,
        }
        if self.classes:
            found["classes"] = [each.to_dict() for each in self.classes]
        if self.linear:
            assert self.constant is not None
            entries = sparse.coo_array(self.matrix)
            found["weights"] = {
                "shape": list(entries.shape),
                "row": entries.row.tolist(),
                "column": entries.col.tolist(),
                "value": entries.data.tolist(),
                "constant": self.constant.tolist(),
            }
        return found

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> ScoreFunction:
        """Make the object from the result of :meth:`to_dict`."""
        held_inputs: list[dict[str, Any]] = [
            {name: tuple(value) if isinstance(value, list) else value for name, value in each.items()}
            for each in found["inputs"]
        ]
        inputs = tuple(Input(**each) for each in held_inputs)
        variables = tuple((name, tuple(shape)) for name, shape in found["variables"])
        matrix = constant = None
        if "weights" in found:
            held = found["weights"]
            place = (np.array(held["row"], dtype=int), np.array(held["column"], dtype=int))
            matrix = sparse.csr_array((np.array(held["value"], dtype=float), place), shape=tuple(held["shape"]))
            constant = np.array(held["constant"], dtype=float)
        classes = tuple(cls.from_dict(each) for each in found.get("classes", ()))
        return cls(inputs, variables, matrix, constant, found["name"], found["refusal"], classes)

    @cached_property
    def encoded(self) -> NDArray[np.uint8]:
        """The object as bytes, which any file format can store."""
        text = json.dumps(self.to_dict(), separators=(",", ":"))
        return np.frombuffer(zlib.compress(text.encode()), dtype=np.uint8)

    @property
    def digest(self) -> int:
        """48-bit hash of the object."""
        return int.from_bytes(hashlib.blake2b(self.encoded.tobytes(), digest_size=6).digest(), "big")

    def as_coords(self) -> dict[str, Any]:
        """Return the object as a coordinate of a posterior's Dataset, with a dimension of its own."""
        return {STAT: (f"{STAT}_dim_0", self.encoded)}

    def pieces(self) -> list[dict[str, Any]]:
        """Return the encoded object in pieces of equal length, as sampler statistics of successive draws."""
        encoded = self.encoded
        count = max(1, math.ceil(encoded.size / PIECE))
        width = math.ceil(encoded.size / count)
        padded = np.pad(encoded, (0, count * width - encoded.size)).reshape(count, width)
        return [{STAT: piece, PART: k, PARTS: count} for k, piece in enumerate(padded)]

    @classmethod
    def from_stats(cls, stats: Mapping[str, Any]) -> ScoreFunction | None:
        """Read the object from the draws that are left; None where a piece of it is missing."""
        if STAT not in stats:
            return None
        byte = next(dim for dim in stats[STAT].dims if str(dim).startswith(STAT))
        held = stats[STAT].transpose(..., byte)
        part, counts = np.zeros(held[..., 0].size, dtype=int), np.ones(1, dtype=int)
        if PART in stats:
            part = stats[PART].broadcast_like(held[..., 0]).transpose(*held.dims[:-1]).values.astype(int).ravel()
            counts = np.unique(stats[PARTS].values.astype(int))
        held = held.values.astype(np.uint8).reshape(part.size, -1)
        found = {int(k): np.unique(held[part == k], axis=0) for k in np.unique(part)}
        if counts.size != 1 or any(len(each) != 1 for each in found.values()):
            raise ValueError("The draws in result come from fits with different scores: keep those of one fit.")
        if len(found) < counts[0]:
            return None
        whole = b"".join(found[k][0].tobytes() for k in range(counts[0]))
        return cls.from_dict(json.loads(zlib.decompressobj().decompress(whole)))


def linear_scores(name: str, shape: tuple[int, ...], labels: Sequence[Any] | None = None) -> ScoreFunction:
    """Return the function of scores ``X @ theta``, with ``theta`` the variable ``name``."""
    size = math.prod(shape)
    known = None if labels is None else tuple(labels)
    matrix = sparse.csr_array(sparse.eye_array(size + 1, size))
    return ScoreFunction((Input("", (size,), known),), ((name, shape),), matrix, np.zeros(size + 1))


# -- arrays and their labels -----------------------------------------------------------------------------------------


def _values_of(each: Input, values: Any) -> tuple[NDArray[Any], NDArray[Any] | None, tuple[Any, ...]]:
    """Return the values (rows, *shape) of one input, labels of the rows or None, and labels of unknown groups."""
    what = each.name or "X_new"
    if each.levels is not None:
        return _codes_of(each, values)
    columns, index, values = _taken_apart(each, values)
    if columns is not None:
        values = values[:, _places(each, columns, what)]
    array = numeric_array(what, values)
    if not each.shape and array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim == len(each.shape) and (each.shape or array.ndim == 0):
        array = array[None]
    if array.ndim != len(each.shape) + 1 or 0 in array.shape:
        expected = "a matrix with a row per observation" if each.shape else "one number per row"
        raise ValueError(f"{what} must be {expected}; got shape {array.shape}.")
    if array.shape[1:] != each.shape:
        known = "" if each.labels is None else f" ({', '.join(map(str, each.labels[:10]))})"
        raise ValueError(
            f"{what} has {array.shape[1]} columns; the scores of this model have {each.size}{known}. For those of a "
            "Gaussian process, pass gp=."
        )
    if not np.isfinite(array).all():
        raise ValueError(
            f"{what} has {int((~np.isfinite(array)).sum())} NaN or infinite value(s): impute or drop those rows."
        )
    return array, index if index is not None and len(index) == len(array) else None, ()


def _taken_apart(each: Input, values: Any) -> tuple[list[Any] | None, NDArray[Any] | None, Any]:
    """Return labels of the columns and of the rows, or None, and the values, rows first."""
    if hasattr(values, "dims") and hasattr(values, "coords"):
        return _taken_from_array(each, values)
    if hasattr(values, "columns"):
        index = np.asarray(values.index) if hasattr(values, "index") else None
        columns = None if _unnamed(values.columns) else list(values.columns)
        return columns if each.shape else None, index, values.to_numpy()
    if hasattr(values, "index") and hasattr(values, "to_numpy"):  # a Series
        if each.shape:
            return (None if _unnamed(values.index) else list(values.index)), None, values.to_numpy()[None]
        return None, np.asarray(values.index), values.to_numpy()
    return None, None, values


def _taken_from_array(each: Input, values: Any) -> tuple[list[Any] | None, NDArray[Any] | None, Any]:
    """Do the same for a DataArray, whose dimensions may be in any order if the model has one of them."""
    whole = values.ndim > len(each.shape)
    if len(each.shape) != 1 or values.ndim > 2:
        index = values[values.dims[0]].values if whole and values.dims and values.dims[0] in values.coords else None
        return None, index, values.values
    if whole:
        values = values.transpose(..., _column_dim(each, values))
    columns, index, array = _taken_apart(each, values.reset_coords(drop=True).to_pandas())
    return columns, index if values.dims[0] in values.coords else None, array


def _column_dim(each: Input, values: Any) -> Any:
    """Return the dimension of a DataArray that has the columns, whatever the order."""
    if each.dims[-1:] and each.dims[-1] in values.dims:
        return each.dims[-1]
    labels = {dim: values[dim].values.tolist() for dim in values.dims if dim in values.coords}
    if each.labels is None:
        raise _no_names(each.name or "X_new", labels.get(values.dims[-1], values.dims))
    return next((dim for dim, held in labels.items() if set(held) == set(each.labels)), values.dims[-1])


def _unnamed(labels: Any) -> bool:
    """Return whether labels are 0, 1, 2, ..., the default of pandas."""
    return list(labels) == list(range(len(labels)))


def _places(each: Input, columns: list[Any], what: str) -> list[int]:
    """Return the positions of the input's columns among labelled ones."""
    if each.labels is None:
        raise _no_names(what, columns)
    known = list(each.labels)
    if len(columns) == len(known) and not set(columns) & set(known) and set(map(str, columns)) == set(map(str, known)):
        columns, known = [str(c) for c in columns], [str(k) for k in known]
    missing, extra = [k for k in known if k not in columns], [c for c in columns if c not in known]
    if missing or extra or len(set(columns)) < len(columns):
        parts = [f"missing: {', '.join(map(str, missing))}"] * bool(missing)
        parts += [f"unknown: {', '.join(map(str, extra))}"] * bool(extra) or ["some of them occur twice"] * (not parts)
        raise ValueError(f"The columns of {what} are not those of the model ({known}); {'; '.join(parts)}.")
    place = {label: k for k, label in enumerate(columns)}
    return [place[label] for label in known]


def _no_names(what: str, names: Sequence[Any]) -> ValueError:
    shown = ", ".join(map(str, names[:5])) + (", ..." if len(names) > 5 else "")
    return ValueError(
        f"{what} has named columns ({shown}), and the model has no names to match them with. Name them in the model, "
        'for example by pm.Model(coords={"covariate": names}) and dims="covariate" of the coefficients or '
        'dims=("row", "covariate") of the pm.Data; or, if columns are in the order of the model, pass a NumPy array, '
        "X.to_numpy()."
    )


def _codes_of(each: Input, values: Any) -> tuple[NDArray[Any], NDArray[Any] | None, tuple[Any, ...]]:
    """Return codes of groups, given as codes or as labels; unknown labels get the codes after the last."""
    _, index, values = _taken_apart(each, values)
    array = np.asarray(values)
    array = array[None] if array.ndim == len(each.shape) else array
    assert each.levels is not None
    unknown: list[Any] = []
    if array.dtype.kind in "OUS":
        code = {label: k for k, label in enumerate(each.levels)}
        if not any(isinstance(label, str) for label in each.levels):
            raise ValueError(
                f"{each.name or 'X_new'} must be codes of groups, 0 to {len(each.levels) - 1}; got {values!r}. For "
                "labels, give the first dimension of the grouped coefficients coords that are these labels."
            )
        unknown = sorted({str(label) for label in array.ravel().tolist() if label not in code})
        code |= {label: len(each.levels) + k for k, label in enumerate(unknown)}
        array = np.array([code[str(label)] for label in array.ravel().tolist()]).reshape(array.shape)
    numbers = numeric_array(each.name, array)
    if numbers.ndim != len(each.shape) + 1 or not (numbers == np.round(numbers)).all():
        raise ValueError(f"{each.name} holds whole numbers in the model, such as the codes of groups; got {values!r}.")
    return numbers.astype(np.int64), index if index is not None and len(index) == len(numbers) else None, tuple(unknown)


def _same_index(found: Mapping[str, NDArray[Any] | None]) -> NDArray[Any] | None:
    labelled = {name: index for name, index in found.items() if index is not None}
    if not labelled:
        return None
    first = next(iter(labelled.values()))
    for name, index in labelled.items():
        if not np.array_equal(index, first):
            raise ValueError(
                f"The rows of {' and '.join(labelled)} have different labels ({name} begins {index[:3].tolist()}, the "
                f"other {first[:3].tolist()}): sort them alike, by frame.loc[labels], or pass NumPy arrays."
            )
    return first


def _is_mapping(values: Any) -> bool:
    return isinstance(values, Mapping) and not hasattr(values, "columns")


def plain(value: Any) -> Any:
    """Convert to a value that JSON can hold; labels of other types become strings."""
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if isinstance(value, np.generic):
        return value.item()
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


HOW_TO_SCORE = '''\
import numpy as np


def score(held, rows):
    """Mean and sd of each row's score; rows are a matrix with held["columns"] in order, or a frame that has them."""
    rows = rows[held["columns"]] if hasattr(rows, "columns") else np.atleast_2d(rows)
    rows = (np.asarray(rows, dtype=float) - held["centre"]) / held["scale"]
    one = np.column_stack([rows, np.ones(len(rows))])
    sd = held["covariance"] and np.sqrt(((one @ held["covariance"]) * one).sum(axis=1).clip(0))
    return rows @ held["weights"] + held["intercept"], sd
'''


def write_score(
    function: ScoreFunction,
    mean: FloatArray,
    covariance: FloatArray | None,
    fitted: Provenance | None,
    path: str | os.PathLike[str] | None = None,
    **known: Any,
) -> dict[str, Any]:
    """Return a linear score as a dictionary, and write it to ``path`` as JSON if that is given.

    Parameters
    ----------
    function : ScoreFunction
        How a row becomes a score.
    mean : ndarray, shape (coefficients,)
        Posterior mean of the function's variables.
    covariance : ndarray, shape (coefficients, coefficients), or None
        Posterior covariance of the function's variables.
    fitted : Provenance or None
        Record of what the variables were fitted to, where it is known.
    path : path-like, optional
        File to write.
    **known
        Entries that replace those computed here: ``centre``, ``scale``, ``intercept``.

    Returns
    -------
    dict
        The contents of the file.

    Raises
    ------
    ValueError
        If the score is not linear in the columns.
    """
    inputs, matrix, constant = function.of_new_columns()
    weights = matrix @ mean + constant
    labels = [_labels(each) for each in inputs]
    columns = [label for each in labels for label in each]
    if len(set(map(str, columns))) < len(columns):
        labels = [[f"{each.name}[{label}]" for label in found] for each, found in zip(inputs, labels, strict=True)]
        columns = [label for each in labels for label in each]
    fit = {} if fitted is None else {name: getattr(fitted, name) for name in ("method", "n_pos", "n_neg", "comparison")}
    held: dict[str, Any] = {
        "format": "pymc_pacauc linear score, version 1",
        "how_to_score": HOW_TO_SCORE.splitlines(),
        "columns": columns,
        "inputs": [{"name": each.name, "columns": found} for each, found in zip(inputs, labels, strict=True)],
        "centre": np.zeros(len(columns)),
        "scale": np.ones(len(columns)),
        "weights": weights[:-1],
        "intercept": float(weights[-1]),
        "covariance": None if covariance is None else matrix @ (matrix @ covariance).T,  # of [*weights, intercept]
        "gamma": None if fitted is None else fitted.gamma,
        "provenance": {
            **fit,
            "n": None if fitted is None else fitted.n_pos + fitted.n_neg,
            "package": f"pymc_pacauc {__version__}",
            "date": date.today().isoformat(),
        },
    }
    held = {
        name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in {**held, **known}.items()
    }
    text = json.dumps(held, allow_nan=False, ensure_ascii=False)
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return held


def _labels(each: Input) -> list[Any]:
    """Return labels of an input's columns; where the model has none, its name with numbers."""
    if each.labels is not None:
        return [plain(label) for label in each.labels]
    if not each.shape:
        return [each.name or "x"]
    return [f"{each.name}[{k}]" if each.name else f"x{k}" for k in range(each.size)]
