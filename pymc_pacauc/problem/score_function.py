"""How a row becomes a score: carried by every result, so that new rows are scored as the fitted ones were, or refused.

A score is made of *inputs* (matrices or vectors with a row per observation) and of *variables* (the coefficients).
Where it is linear in the columns of the inputs and affine in the variables, :class:`ScoreFunction` holds the whole map:

    weights = matrix @ theta + constant,        score = row @ weights[:-1] + weights[-1],

theta the variables, flat, one after the other; the last weight is the intercept. ``matrix`` is sparse: of ``X @ theta``
it is the identity. That needs no model, so draws in a file can be applied to new rows. Where a score is a function of
one row but not linear, the object knows its inputs, and the model is needed to evaluate it
(:mod:`pymc_pacauc.model.score_function`). Where it is no function of one row, ``refusal`` says why, and what to do.

Labels of columns, where they are known, are matched with those of DataFrames, Series and DataArrays; arrays are taken
by position. Nothing here imports PyMC.
"""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pymc_pacauc.numerics import FloatArray, numeric_array

STAT = "score_function"  # the coordinate, or the statistic of draws, that holds the encoded object
PART, PARTS = f"{STAT}_part", f"{STAT}_parts"
PIECE = 4096  # bytes that one draw of a sampler carries; doubling it halves the draws needed, and doubles their memory


@dataclass(frozen=True, eq=False)
class Input:
    """An array with a row per observation that the scores are made of.

    Attributes
    ----------
    name : str
        Of the ``pm.Data``; empty for an array written into the model.
    shape : tuple of int
        Of one row: ``(columns,)`` of a matrix, ``()`` of a vector.
    labels : tuple or None
        Of the columns, where the model knows them.
    dims : tuple of str
        Names of its dimensions, where the model knows them.
    levels : tuple or None
        Of codes that index coefficients: the labels of the groups, or their numbers. None for covariates.
    same : tuple of float or None
        The row, where all rows are the same and not held in ``pm.Data``: new rows have it too.
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
        return f"{self.name or 'an array written into the model'} ({kind})"


@dataclass(frozen=True, eq=False)
class NewRows:
    """Values of all inputs at new rows, ``(rows, *shape)`` each, and the labels of the rows."""

    values: tuple[NDArray[Any], ...]
    labels: NDArray[Any]
    unknown: tuple[tuple[int, tuple[Any, ...]], ...] = ()  # (which input, labels of groups that the model has not)

    def beside(self, other: NewRows) -> NewRows:
        """These rows, and as many of the other ones below them; a single row as often as it takes."""
        count = max(len(self.labels), len(other.labels))
        if {len(self.labels), len(other.labels)} - {1, count}:
            raise ValueError(f"{len(self.labels)} rows cannot be compared with {len(other.labels)} row by row.")
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
        What a row consists of.
    variables : tuple of (str, tuple of int)
        Names and shapes of the coefficients.
    matrix : sparse array (columns + 1, coefficients) or None
        ``weights = matrix @ theta + constant``, the intercept last; None where the score is not linear.
    constant : ndarray (columns + 1,)
        The weights at theta = 0.
    name : str
        Of the scores, where they are a Deterministic.
    refusal : str
        Why new rows have no score; empty where they have.
    """

    inputs: tuple[Input, ...]
    variables: tuple[tuple[str, tuple[int, ...]], ...] = ()
    matrix: Any = None
    constant: FloatArray | None = None
    name: str = ""
    refusal: str = ""

    @property
    def linear(self) -> bool:
        return self.matrix is not None

    def names_agree(self, other: ScoreFunction) -> bool:
        """Whether inputs and their columns have the same names, where both know them."""
        pairs = zip(self.inputs, other.inputs, strict=False)
        return len(self.inputs) == len(other.inputs) and all(
            a.name == b.name and a.shape == b.shape and (None in (a.labels, b.labels) or a.labels == b.labels)
            for a, b in pairs
        )

    # -- new rows ----------------------------------------------------------------------------------------------------

    def rows(self, X_new: Any) -> NewRows:
        """Values of the inputs at new rows; a ValueError that says what is missing, unknown or ambiguous.

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
                f"{', '.join(map(str, unknown))} is no pm.Data that feeds the scores ({', '.join(named) or 'none'})."
            )
        if missing:
            raise ValueError(
                f"The scores depend on {', '.join(missing)} too: give a mapping with new values of all of them."
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
                f"The scores depend on {', '.join(n for n in named if n != fits[0])} too: give a mapping with new "
                f"values of all of them, {{{', '.join(f'{n!r}: ...' for n in named)}}}."
            )
        self._refuse_constants(list(named.values()))
        [each] = named.values()
        return {each: _values_of(each, X_new)}

    def _refuse_constants(self, known: Sequence[Input]) -> None:
        others = [each for each in self.inputs if each.same is None and each not in known]
        if others:
            raise ValueError(
                f"The scores depend on {', '.join(map(str, others))} too, for which new rows have no place: hold it in "
                "a pm.Data, and give new values of all pm.Data by name."
            )

    def _joined(self, X_new: Any, asked: list[Input]) -> dict[Input, Any]:
        """Arrays written into the model: the columns of X_new, in the order of the coefficients they multiply."""
        asked = self._in_order(asked)
        if len(asked) == 1:
            return {asked[0]: _values_of(asked[0], X_new)}
        if not self.linear or any(len(each.shape) > 1 for each in asked):
            raise ValueError(
                f"The scores are made of several arrays written into the model ({', '.join(map(str, asked))}): hold "
                "them in pm.Data, and give new values by name."
            )
        labels = [label for each in asked for label in each.labels or ()]
        known = all(each.labels is not None for each in asked) and len(set(labels)) == len(labels)
        whole = Input("", (sum(each.size for each in asked),), tuple(labels) if known else None)
        array, index, _ = _values_of(whole, X_new)
        cuts = np.cumsum([each.size for each in asked])[:-1]
        parts = np.split(array, cuts, axis=1)
        return {each: (part.reshape(-1, *each.shape), index, ()) for each, part in zip(asked, parts, strict=True)}

    def _in_order(self, asked: list[Input]) -> list[Input]:
        """Arrays written into the model in the order of the coefficients they multiply, of a linear score."""
        if not self.linear or len(asked) < 2:
            return asked
        loads = {each: self.matrix[self._columns(each)] for each in asked}
        if any(not each.nnz for each in loads.values()):
            raise ValueError(
                "The model's scores have a known offset besides X @ theta, so X_new alone does not give them: hold "
                "the covariates and the offset in pm.Data, so that new rows can take their place."
            )
        return sorted(asked, key=lambda each: loads[each].indices.min())

    def _columns(self, which: Input) -> list[int]:
        """Rows of ``matrix`` that are the weights of an input's columns."""
        start = sum(each.size for each in self.inputs[: self.inputs.index(which)])
        return list(range(start, start + which.size))

    # -- scores ------------------------------------------------------------------------------------------------------

    def of_new_columns(self) -> tuple[list[Input], Any, FloatArray]:
        """The inputs that a new row gives, in their order, with ``matrix`` and ``constant`` of their columns alone.

        Inputs that are the same in every row become part of the intercept. A ValueError where the score is not linear.
        """
        if self.refusal:
            raise ValueError(self.refusal)
        if not self.linear:
            raise ValueError(
                "The scores are a function of a row that is not linear in its columns, so no weights say it all: "
                "predict with pac.predict_scores(result, X_new), and model= for draws."
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
        """Flat coefficients ``(draws, coefficients)`` of the variables' values, ``(draws, *shape)`` each."""
        found = [np.zeros((draws, 0))]
        for name, shape in self.variables:
            if name not in values:
                raise ValueError(f"The posterior has no draws of {name}, which the scores depend on.")
            value = np.asarray(values[name], dtype=np.float64)
            if value.shape[1:] != shape:
                raise ValueError(
                    f"{name} has shape {value.shape[1:]} in these draws and {shape} in the score function: they are "
                    "not of the same model."
                )
            found.append(value.reshape(draws, -1))
        return np.concatenate(found, axis=1)

    def weights(self, theta: FloatArray) -> FloatArray:
        """Weights of the columns, the intercept last, of a linear score: (draws, columns + 1)."""
        return (self.matrix @ theta.T).T + self.constant

    def design(self, rows: NewRows) -> tuple[FloatArray, FloatArray]:
        """Scores of rows as ``design @ theta + offset``."""
        flat = np.column_stack([rows.flat, np.ones(len(rows.labels))])
        assert self.constant is not None
        return (self.matrix.T @ flat.T).T, flat @ self.constant

    def scores(self, theta: FloatArray, rows: NewRows) -> FloatArray:
        """Scores (draws, rows) of a linear score."""
        weights = self.weights(theta)
        return weights[:, :-1] @ rows.flat.T + weights[:, -1:]

    # -- storage -----------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Numbers, strings and lists only: what JSON can hold. See :meth:`from_dict`."""
        found: dict[str, Any] = {
            "inputs": [{name: plain(value) for name, value in vars(each).items()} for each in self.inputs],
            "variables": [[name, list(shape)] for name, shape in self.variables],
            "name": self.name,
            "refusal": self.refusal,
        }
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
        """What :meth:`to_dict` gave."""
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
        return cls(inputs, variables, matrix, constant, found["name"], found["refusal"])

    @cached_property
    def encoded(self) -> NDArray[np.uint8]:
        """The object as bytes, which survive files of any kind."""
        text = json.dumps(self.to_dict(), separators=(",", ":"))
        return np.frombuffer(zlib.compress(text.encode()), dtype=np.uint8)

    @property
    def digest(self) -> int:
        """48 bits that two different functions hardly share."""
        return int.from_bytes(hashlib.blake2b(self.encoded.tobytes(), digest_size=6).digest(), "big")

    def as_coords(self) -> dict[str, Any]:
        """A coordinate of a posterior's Dataset that holds the object; no variable has its dimension."""
        return {STAT: (f"{STAT}_dim_0", self.encoded)}

    def pieces(self) -> list[dict[str, Any]]:
        """Statistics for draws to carry in turn: the encoded object in pieces of one length."""
        encoded = self.encoded
        count = max(1, math.ceil(encoded.size / PIECE))
        width = math.ceil(encoded.size / count)
        padded = np.pad(encoded, (0, count * width - encoded.size)).reshape(count, width)
        return [{STAT: piece, PART: k, PARTS: count} for k, piece in enumerate(padded)]

    @classmethod
    def from_stats(cls, stats: Mapping[str, Any]) -> ScoreFunction | None:
        """Read back from whichever draws are left; None where some piece of it is on none of them."""
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
            raise ValueError("These draws come from fits whose scores differ: keep those of one of them.")
        if len(found) < counts[0]:
            return None
        whole = b"".join(found[k][0].tobytes() for k in range(counts[0]))
        return cls.from_dict(json.loads(zlib.decompressobj().decompress(whole)))


def linear_scores(name: str, shape: tuple[int, ...], labels: Sequence[Any] | None = None) -> ScoreFunction:
    """Scores ``X @ theta`` with ``theta`` the variable ``name``."""
    size = math.prod(shape)
    known = None if labels is None else tuple(labels)
    matrix = sparse.csr_array(sparse.eye_array(size + 1, size))
    return ScoreFunction((Input("", (size,), known),), ((name, shape),), matrix, np.zeros(size + 1))


# -- arrays and their labels -----------------------------------------------------------------------------------------


def _values_of(each: Input, values: Any) -> tuple[NDArray[Any], NDArray[Any] | None, tuple[Any, ...]]:
    """Values (rows, *shape) of one input, the rows' labels where they have any, and labels of unknown groups."""
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
            f"{what} has {array.shape[1]} columns; the scores of this model are made of {each.size}{known}. For those "
            "of a Gaussian process, pass gp=."
        )
    if not np.isfinite(array).all():
        raise ValueError(f"{what} has {int((~np.isfinite(array)).sum())} NaN or infinite value(s).")
    return array, index if index is not None and len(index) == len(array) else None, ()


def _taken_apart(each: Input, values: Any) -> tuple[list[Any] | None, NDArray[Any] | None, Any]:
    """Labels of the columns and of the rows, where they have any, and the values, rows first."""
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
    """The same of a DataArray, whose dimensions may be in any order if the model knows one of them."""
    whole = values.ndim > len(each.shape)
    if len(each.shape) != 1 or values.ndim > 2:
        index = values[values.dims[0]].values if whole and values.dims and values.dims[0] in values.coords else None
        return None, index, values.values
    if whole:
        values = values.transpose(..., _column_dim(each, values))
    columns, index, array = _taken_apart(each, values.reset_coords(drop=True).to_pandas())
    return columns, index if values.dims[0] in values.coords else None, array


def _column_dim(each: Input, values: Any) -> Any:
    """The dimension of a DataArray (rows, columns), in any order, that is the columns."""
    if each.dims[-1:] and each.dims[-1] in values.dims:
        return each.dims[-1]
    labels = {dim: values[dim].values.tolist() for dim in values.dims if dim in values.coords}
    if each.labels is None:
        raise _no_names(each.name or "X_new", labels.get(values.dims[-1], values.dims))
    return next((dim for dim, held in labels.items() if set(held) == set(each.labels)), values.dims[-1])


def _unnamed(labels: Any) -> bool:
    """Whether labels are the numbers that pandas gives where there are none."""
    return list(labels) == list(range(len(labels)))


def _places(each: Input, columns: list[Any], what: str) -> list[int]:
    """Where the input's columns are among labelled ones."""
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
        f"{what} has named columns ({shown}), and the model knows no names to match them with. Name them in the model, "
        'for example pm.Model(coords={"covariate": names}) and dims="covariate" of the coefficients or '
        'dims=("row", "covariate") of the pm.Data; or, for columns in the order of the model, pass a NumPy array, '
        "X.to_numpy()."
    )


def _codes_of(each: Input, values: Any) -> tuple[NDArray[Any], NDArray[Any] | None, tuple[Any, ...]]:
    """Codes of groups, given as codes or as labels; unknown labels get the codes after the last."""
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
                f"other {first[:3].tolist()}): bring them into one order, frame.loc[labels], or pass NumPy "
                "arrays."
            )
    return first


def _is_mapping(values: Any) -> bool:
    return isinstance(values, Mapping) and not hasattr(values, "columns")


def plain(value: Any) -> Any:
    """What JSON can hold; labels of other types as strings."""
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if isinstance(value, np.generic):
        return value.item()
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
