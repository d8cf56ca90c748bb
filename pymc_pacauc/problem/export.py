"""Linear scores as JSON: weights, their covariance, names and provenance, with the lines that score rows by them.

A file holds all that scoring takes, and says how: ``how_to_score`` are lines of NumPy that need nothing of this
package. Nothing here imports PyMC.
"""

from __future__ import annotations

import json
import os
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from pymc_pacauc import __version__
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.provenance import Provenance
from pymc_pacauc.problem.score_function import Input, ScoreFunction, plain

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
    """The dictionary of a linear score, written to ``path`` as JSON where there is one.

    Parameters
    ----------
    function : ScoreFunction
        How a row becomes a score; a ValueError where it is not linear in the columns.
    mean : ndarray (coefficients,)
        Of the function's variables.
    covariance : ndarray (coefficients, coefficients) or None
        The same.
    fitted : Provenance or None
        What the variables were fitted to, where it is known.
    path : path-like, optional
        Of the file.
    **known : dict
        Entries that replace those found here: ``centre``, ``scale``, ``intercept``.
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
    """Of the columns, where the model knows them; else their numbers, behind the name of the input."""
    if each.labels is not None:
        return [plain(label) for label in each.labels]
    if not each.shape:
        return [each.name or "x"]
    return [f"{each.name}[{k}]" if each.name else f"x{k}" for k in range(each.size)]
