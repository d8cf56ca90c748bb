"""Score functions, from a row to its score: each result has one, which scores new rows as fitted ones, or refuses them.

A score is a function of *inputs* (matrices or vectors with a row per observation) and *variables* (the coefficients).
If it is linear in the columns of the inputs and affine in the variables, :class:`ScoreFunction` stores the map:

    weights = matrix @ theta + constant,        score = row @ weights[:-1] + weights[-1],

theta the concatenated variables, the last weight the intercept. ``matrix`` is sparse, (columns + 1, coefficients): for
``X @ theta`` it is the identity. No model is needed, so draws in a file can score new rows, and :func:`write_score` can
write the score as JSON, with NumPy code that computes it without this package. If a score is a nonlinear function of
one row, the object lists its inputs, and the model is needed to evaluate it
(:class:`pymc_pacauc.model.score_function.GraphScores`). If it is not a function of one row, ``refusal`` says why, and
what to do.

Column labels, where they are known, are matched with those of DataFrames, Series and DataArrays; arrays are taken by
position. Nothing here imports PyMC.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
PART: str = f"{STAT}_part"
PARTS: str = f"{STAT}_parts"
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

    @property
    def flat(self) -> FloatArray:
        """All columns of all inputs, shape (rows, columns)."""
        return np.concatenate([v.reshape(len(self.labels), -1) for v in self.values], axis=1).astype(np.float64)


@dataclass(frozen=True, eq=False)
class ScoreFunction:
    """Function from a row and the coefficients to a score.

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

    inputs: tuple[Input, ...] = ()
    variables: tuple[tuple[str, tuple[int, ...]], ...] = ()
    matrix: Any = None
    constant: FloatArray = field(default_factory=lambda: np.zeros(0))
    name: str = ""
    refusal: str = ""
    classes: tuple[ScoreFunction, ...] = ()

    @property
    def linear(self) -> bool:
        return self.matrix is not None

    # -- new rows ----------------------------------------------------------------------------------------------------

    def rows(self, X_new: Any) -> NewRows:
        """Read the values of the inputs at new rows; refuse what is missing, unknown or ambiguous.

        Parameters
        ----------
        X_new : array-like, DataFrame, Series, DataArray, or mapping from names of inputs to these
            New rows; a single row may have one dimension.
        """
        given = self._given(X_new)
        sizes = {each.name or "X_new": len(found) for each, (found, _) in given.items()}
        if len(set(sizes.values())) != 1:
            raise ValueError(f"X_new has inputs with different numbers of rows: {sizes}.")
        size = next(iter(sizes.values()))
        constant = {
            each: np.broadcast_to(np.reshape(each.same or (), each.shape), (size, *each.shape))
            for each in self.inputs
            if each not in given
        }
        values = tuple(constant[each] if each in constant else given[each][0] for each in self.inputs)
        labels = _same_index({each.name: index for each, (_, index) in given.items() if index is not None})
        return NewRows(values, np.arange(size) if labels is None else labels)

    def _given(self, X_new: Any) -> dict[Input, Values]:
        """Return values and index of every input that new rows must have."""
        asked = self._asked()
        named = [each.name for each in asked if each.name]
        if not isinstance(X_new, Mapping):
            if len(asked) == 1:
                return {asked[0]: _read_values(asked[0], X_new)}
            fits = next((each.name for each in asked if np.shape(X_new)[-1:] == each.shape[-1:]), "")
            raise ValueError(
                f"The scores depend on {', '.join(name for name in named if name != fits)} too: pass a mapping with "
                f"new values of all of them, {{{', '.join(f'{name!r}: ...' for name in named)}}}."
            )
        known = ", ".join(named) or "none"
        if unknown := [str(name) for name in X_new if name not in named]:
            raise ValueError(f"X_new has the names {', '.join(unknown)}; the pm.Data of the scores are {known}.")
        if missing := [name for name in named if name not in X_new]:
            raise ValueError(f"X_new lacks {', '.join(missing)}: give new values of all of {known}.")
        return {each: _read_values(each, X_new[each.name]) for each in asked if each.name}

    def _asked(self) -> list[Input]:
        """Return the inputs that new rows must have: all ``pm.Data``, or else the one array written into the model.

        Arrays that are equal in all rows are not asked for.
        """
        if self.refusal:
            raise ValueError(self.refusal)
        named = [each for each in self.inputs if each.name]
        written = [each for each in self.inputs if not each.name and each.same is None]
        if len(written) > (0 if named else 1):
            raise ValueError(
                f"The scores depend on {' and '.join(map(str, written))}{' too' * bool(named)}, for which X_new has no "
                "values: put covariates and known offsets into pm.Data, and pass new values of all of them by name."
            )
        return named or written

    # -- scores ------------------------------------------------------------------------------------------------------

    def of_new_columns(self) -> tuple[list[Input], Any, FloatArray]:
        """Return the inputs that vary by row, with ``matrix`` and ``constant`` of their columns alone.

        Inputs that are equal in all rows become part of the intercept. Refuses scores that are not linear.
        """
        if self.classes:
            raise ValueError("The model has a score for each class: name one, a pm.Deterministic, by var_name=.")
        if not self.linear and not self.refusal:
            raise ValueError("Scores not linear in the columns of X have no weights: use pac.predict_scores.")
        asked = self._asked()
        varies = np.concatenate([*(np.full(each.size, each in asked) for each in self.inputs), [False]])
        held = [np.zeros(each.size) if each in asked else np.array(each.same or ()) for each in self.inputs]
        chosen = sparse.eye_array(varies.size, format="csr")[varies]
        fold = sparse.vstack([chosen, sparse.csr_array(np.concatenate([*held, [1.0]])[None])], format="csr")
        return asked, fold @ self.matrix, fold @ self.constant

    def theta(self, posterior: Any) -> FloatArray:
        """Concatenate the variables' draws, in a Dataset, to coefficients ``(chain * draw, coefficients)``."""
        return flat_draws(posterior, self.variables)

    def agrees(self, other: ScoreFunction) -> bool:
        """Return whether two linear score functions have the same inputs, and the same weights of their columns."""
        if not (self.linear and other.linear and self.variables == other.variables):
            return False
        inputs = [[(each.name, each.shape) for each in function.inputs] for function in (self, other)]
        labels = zip(self.inputs, other.inputs, strict=False)
        if inputs[0] != inputs[1] or any(None not in (a.labels, b.labels) and a.labels != b.labels for a, b in labels):
            return False
        scale = 1e-8 * max(abs(self.matrix).max(), np.abs(self.constant).max())
        return abs(self.matrix - other.matrix).max() <= scale and np.abs(self.constant - other.constant).max() <= scale

    def design(self, rows: NewRows) -> tuple[FloatArray, FloatArray] | None:
        """Return design (rows, coefficients) and offset (rows,) with scores ``design @ theta + offset``.

        None where it is not known that the scores of a model are affine.
        """
        if not self.linear:
            return None
        flat = np.column_stack([rows.flat, np.ones(len(rows.labels))])
        return (self.matrix.T @ flat.T).T, flat @ self.constant

    def scores(self, theta: FloatArray, rows: NewRows) -> FloatArray:
        """Compute the scores (draws, rows) of a linear score."""
        if not self.linear:
            names = ", ".join(each.name for each in self.inputs if each.name)
            raise ValueError(f"Scores not linear in {names or 'X_new'} need the model of the draws: pass model=.")
        weights = (self.matrix @ theta.T).T + self.constant
        return weights[:, :-1] @ rows.flat.T + weights[:, -1:]

    # -- storage -----------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Convert to a dictionary for JSON; see :meth:`from_dict`."""
        weights = None
        if self.linear:
            entries = sparse.coo_array(self.matrix)
            weights = {"shape": entries.shape, "row": entries.row, "column": entries.col, "value": entries.data}
        return {
            "inputs": [vars(each) for each in self.inputs],
            "variables": self.variables,
            "weights": weights,
            "constant": self.constant,
            "name": self.name,
            "refusal": self.refusal,
            "classes": [each.to_dict() for each in self.classes],
        }

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> ScoreFunction:
        """Make the object from the result of :meth:`to_dict`, read from JSON."""
        listed: list[dict[str, Any]] = [
            {name: tuple(value) if isinstance(value, list) else value for name, value in each.items()}
            for each in found["inputs"]
        ]
        held, matrix = found["weights"], None
        if held is not None:
            value, place = np.array(held["value"], dtype=float), (held["row"], held["column"])
            matrix = sparse.csr_array((value, place), shape=tuple(held["shape"]))
        return cls(
            tuple(Input(**each) for each in listed),
            tuple((name, tuple(shape)) for name, shape in found["variables"]),
            matrix,
            np.array(found["constant"], dtype=float),
            found["name"],
            found["refusal"],
            tuple(cls.from_dict(each) for each in found["classes"]),
        )

    @cached_property
    def encoded(self) -> NDArray[np.uint8]:
        """The object as bytes, which any file format can store."""
        text = json.dumps(self.to_dict(), separators=(",", ":"), default=_plain)
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
        count = math.ceil(self.encoded.size / PIECE)
        width = math.ceil(self.encoded.size / count)
        padded = np.pad(self.encoded, (0, count * width - self.encoded.size)).reshape(count, width)
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
        found = [np.unique(held[part == k], axis=0) for k in range(counts[0])]
        if counts.size != 1 or any(len(each) > 1 for each in found):
            raise ValueError("The draws in result come from fits with different scores: keep those of one fit.")
        whole = np.concatenate(found)
        if len(whole) < counts[0]:
            return None
        return cls.from_dict(json.loads(zlib.decompressobj().decompress(whole.tobytes())))


def flat_draws(posterior: Any, variables: Sequence[tuple[str, tuple[int, ...]]]) -> FloatArray:
    """Concatenate the draws of variables, by name and shape, to a matrix ``(chain * draw, entries)``."""
    draws = posterior.sizes["chain"] * posterior.sizes["draw"]
    found = [np.zeros((draws, 0))]
    for name, shape in variables:
        if name not in posterior:
            raise ValueError(f"The posterior has no draws of {name}, of which scores are made: keep it in var_names.")
        value = posterior[name].transpose("chain", "draw", ...).values
        if value.shape[2:] != shape:
            raise ValueError(
                f"{name} has shape {value.shape[2:]} in these draws, and {shape} in the model that was fitted: the "
                "draws are of another model."
            )
        found.append(value.reshape(draws, -1).astype(np.float64))
    return np.concatenate(found, axis=1)


def linear_scores(name: str, shape: tuple[int, ...], labels: Sequence[Any] | None = None) -> ScoreFunction:
    """Return the function of scores ``X @ theta``, with ``theta`` the variable ``name``."""
    size = math.prod(shape)
    known = None if labels is None else tuple(labels)
    matrix = sparse.csr_array(sparse.eye_array(size + 1, size))
    return ScoreFunction((Input("", (size,), known),), ((name, shape),), matrix, np.zeros(size + 1))


# -- arrays and their labels -----------------------------------------------------------------------------------------


Values = tuple[NDArray[Any], NDArray[Any] | None]  # (rows, *shape) of an input, and labels of the rows or None


def _read_values(each: Input, values: Any) -> Values:
    """Read the values of one input, in whatever form they are given."""
    what = each.name or "X_new"
    columns, index, array = _take_apart(each, values)
    if each.levels is not None:
        array = _codes(each, array)
    elif columns is not None and columns != list(range(len(columns))):  # the default of pandas
        array = array[..., _places(each, columns, what)]
    array = numeric_array(what, array)
    if not each.shape and array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim == len(each.shape):
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
    if bad := array.size - int(np.isfinite(array).sum()):
        raise ValueError(f"{what} has {bad} NaN or infinite value(s): impute or drop those rows.")
    if each.levels is not None:
        if (array != np.round(array)).any():
            raise ValueError(f"{what} holds whole numbers in the model, such as the codes of groups; got {values!r}.")
        array = array.astype(np.int64)
        if outside := np.unique(array[(array < 0) | (array >= len(each.levels))]).tolist():
            raise _no_such_groups(each, "codes", outside, f"0 to {len(each.levels) - 1}")
    return array, index if index is not None and len(index) == len(array) else None


def _take_apart(each: Input, values: Any) -> tuple[list[Any] | None, NDArray[Any] | None, Any]:
    """Return labels of the columns and of the rows, None where there are none, and the values, rows first."""
    columns = index = None
    if hasattr(values, "dims") and hasattr(values, "coords"):  # a DataArray
        if len(each.shape) == 1 and values.ndim == 2:
            values = values.transpose(..., _column_dim(each, values))
        held = [values[dim].values if dim in values.coords else None for dim in values.dims]
        columns = held[-1] if held and len(each.shape) == 1 else None
        index = held[0] if values.ndim > len(each.shape) else None
        values = values.values
    elif hasattr(values, "to_numpy"):  # a DataFrame or a Series, which is a row of a matrix, or a vector
        index = getattr(values, "index", None)
        if hasattr(values, "columns"):
            columns = values.columns if each.shape else None
        elif each.shape:
            columns, index = index, None
        values = values.to_numpy()
    return None if columns is None else list(columns), None if index is None else np.asarray(index), values


def _column_dim(each: Input, values: Any) -> Any:
    """Return the dimension of a DataArray that has the columns, whatever the order."""
    if each.dims[-1:] and each.dims[-1] in values.dims:
        return each.dims[-1]
    labels = {dim: values[dim].values.tolist() for dim in values.dims if dim in values.coords}
    if each.labels is None:
        raise _no_names(each.name or "X_new", labels.get(values.dims[-1], values.dims))
    return next((dim for dim, held in labels.items() if set(held) == set(each.labels)), values.dims[-1])


def _places(each: Input, columns: list[Any], what: str) -> list[int]:
    """Return the positions of the input's columns among labelled ones."""
    if each.labels is None:
        raise _no_names(what, columns)
    known = list(each.labels)
    if not set(columns) & set(known):  # labels that a file holds as strings
        columns, known = [str(c) for c in columns], [str(k) for k in known]
    place = {label: k for k, label in enumerate(columns)}
    missing, extra = [k for k in known if k not in place], [c for c in place if c not in set(known)]
    if missing or extra or len(place) < len(columns):
        parts = [f"missing: {', '.join(map(str, missing))}"] * bool(missing)
        parts += [f"unknown: {', '.join(map(str, extra))}"] * bool(extra)
        said = "; ".join(parts) or "some of them occur twice"
        raise ValueError(f"The columns of {what} are not those of the model ({known}); {said}.")
    return [place[label] for label in known]


def _no_names(what: str, names: Sequence[Any]) -> ValueError:
    shown = ", ".join(map(str, names[:5])) + (", ..." if len(names) > 5 else "")
    return ValueError(
        f"{what} has named columns ({shown}), and the model has no names to match them with. Name them in the model, "
        'for example by pm.Model(coords={"covariate": names}) and dims="covariate" of the coefficients or '
        'dims=("row", "covariate") of the pm.Data; or, if columns are in the order of the model, pass a NumPy array, '
        "X.to_numpy()."
    )


def _codes(each: Input, values: Any) -> NDArray[Any]:
    """Return codes of groups, given as codes or as labels."""
    array = np.asarray(values)
    if array.dtype.kind not in "OUS":
        return array
    levels = each.levels or ()
    if not any(isinstance(label, str) for label in levels):
        raise ValueError(
            f"{each.name or 'X_new'} must be codes of groups, 0 to {len(levels) - 1}; got {values!r}. For "
            "labels, give the first dimension of the grouped coefficients coords that are these labels."
        )
    code = {str(label): k for k, label in enumerate(levels)}
    given = [str(label) for label in array.ravel().tolist()]
    if unknown := sorted(set(given) - set(code)):
        raise _no_such_groups(each, "labels", unknown, ", ".join(map(str, levels[:5])))
    return np.array([code[label] for label in given]).reshape(array.shape)


def _no_such_groups(each: Input, what: str, unknown: list[Any], known: str) -> ValueError:
    shown = ", ".join(map(str, unknown[:5]))
    return ValueError(
        f"{each.name or 'X_new'} has {what} that the model has no coefficients for ({shown}): "
        f"it has {len(each.levels or ())} groups, {known}. Give X_new only rows of these; for others draw coefficients "
        "from their prior, by pm.sample_posterior_predictive."
    )


def _same_index(labelled: Mapping[str, NDArray[Any]]) -> NDArray[Any] | None:
    """Return the labels of the rows, which all inputs that have labels must agree on; None where none has."""
    first: Any = next(iter(labelled.values()), None)
    for name, index in labelled.items():
        if not np.array_equal(index, first):
            raise ValueError(
                f"The rows of {' and '.join(labelled)} have different labels ({name} begins {index[:3].tolist()}, the "
                f"other {first[:3].tolist()}): sort them alike, by frame.loc[labels], or pass NumPy arrays."
            )
    return first


def _plain(value: Any) -> Any:
    """Convert what JSON does not know: arrays and numbers of NumPy; labels of other types become strings."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)


# -- export ----------------------------------------------------------------------------------------------------------

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
        The function from a row to its score.
    mean : ndarray, shape (coefficients,)
        Posterior mean of the function's variables.
    covariance : ndarray, shape (coefficients, coefficients), or None
        Posterior covariance of the function's variables.
    fitted : Provenance or None
        Record of what the variables were fitted to, where it is known.
    path : path-like, optional
        File to write.
    **known : Any
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
    columns = [label for found in labels for label in found]
    if len(set(map(str, columns))) < len(columns):
        labels = [[f"{each.name}[{label}]" for label in found] for each, found in zip(inputs, labels, strict=True)]
        columns = [label for found in labels for label in found]
    fit: dict[str, Any] = {"n": None}
    if fitted is not None:
        fit = {name: getattr(fitted, name) for name in ("method", "n_pos", "n_neg", "comparison")}
        fit["n"] = fitted.n_pos + fitted.n_neg
    held: dict[str, Any] = {
        "format": "pymc_pacauc linear score, version 1",
        "how_to_score": HOW_TO_SCORE.splitlines(),
        "columns": columns,
        "inputs": [{"name": each.name, "columns": found} for each, found in zip(inputs, labels, strict=True)],
        "centre": np.zeros(len(columns)),
        "scale": np.ones(len(columns)),
        "weights": weights[:-1],
        "intercept": weights[-1],
        "covariance": None if covariance is None else matrix @ (matrix @ covariance).T,  # of [*weights, intercept]
        "gamma": None if fitted is None else fitted.gamma,
        "provenance": {**fit, "package": f"pymc_pacauc {__version__}", "date": date.today().isoformat()},
    }
    text = json.dumps({**held, **known}, allow_nan=False, ensure_ascii=False, default=_plain)
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    contents: dict[str, Any] = json.loads(text)
    return contents


def _labels(each: Input) -> list[Any]:
    """Return labels of an input's columns; where the model has none, its name with numbers."""
    if each.labels is not None:
        return list(each.labels)
    if not each.shape:
        return [each.name or "x"]
    return [f"{each.name}[{k}]" if each.name else f"x{k}" for k in range(each.size)]
