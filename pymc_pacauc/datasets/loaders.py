"""One function per data set."""

from __future__ import annotations

import gzip
from importlib import resources
from inspect import cleandoc
from os import PathLike
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.datasets.dataset import Dataset

__all__ = ["load_colon", "load_credit", "load_dna", "load_glass", "load_pima", "load_spect"]

FloatArray = NDArray[np.float64]

COLON_SHAPE = (62, 2000)


def load_pima() -> Dataset:
    """Diabetes among women of the Pima people (532 rows, 7 covariates, 33.3 % diabetic).

    The complete cases of the study, as in the R package MASS: its ``Pima.tr`` (200 rows) are the training rows,
    its ``Pima.te`` (332 rows) the others. The class balance of the training rows, 34 %, is the one the paper prints.

    Examples
    --------
    >>> load_pima().feature_names
    ('npreg', 'glu', 'bp', 'skin', 'bmi', 'ped', 'age')
    """
    return _shipped("pima", load_pima.__doc__)


def load_spect() -> Dataset:
    """Cardiac SPECT images (267 rows, 22 binary covariates, 20.6 % normal).

    UCI's SPECT heart data with its own split: 80 training rows, half of them normal, and 187 test rows. The positive
    class is "normal", the minority. The paper calls the data SPECTF, but its 22 covariates and 50 % are SPECT's.

    Examples
    --------
    >>> load_spect()
    Dataset('spect', n=267, d=22, positive=55 (20.6%), train=80)
    """
    return _shipped("spect", load_spect.__doc__)


def load_glass() -> Dataset:
    """Glass fragments: tableware against the rest (214 rows, 9 covariates, 4.2 % tableware).

    UCI's glass identification without its ``Id`` column, which is sorted by class and so gives the answer away. The
    paper's row ("silicon class, 1 %, 10 covariates") matches no class of these data. No split is known.

    Examples
    --------
    >>> load_glass()
    Dataset('glass', n=214, d=9, positive=9 (4.2%))
    """
    return _shipped("glass", load_glass.__doc__)


def load_credit() -> Dataset:
    """German credit: bad risks against good ones (1000 rows, 60 covariates, 30 % bad).

    UCI's Statlog German credit data: 7 numeric covariates and 53 indicators, one for every level of the 13
    categorical ones but ``foreign_A202``. The paper has the same number of covariates; its 28 % of positives is
    unexplained. No split is known.

    Examples
    --------
    >>> load_credit()
    Dataset('credit', n=1000, d=60, positive=300 (30.0%))
    """
    return _shipped("credit", load_credit.__doc__)


def load_dna() -> Dataset:
    """Splice junctions: intron-exon boundaries against the rest (3186 rows, 180 binary covariates, 24.0 % positive).

    Statlog's DNA data: 60 bases in three bits each. The first 400 rows are marked as training rows. That split is a
    guess: the class balance the paper prints fits its first 300 to 400 rows.

    Examples
    --------
    >>> load_dna()
    Dataset('dna', n=3186, d=180, positive=765 (24.0%), train=400)
    """
    return _shipped("dna", load_dna.__doc__)


def load_colon(path: str | PathLike[str] | None = None, *, openml: str | int = "colon-cancer") -> Dataset:
    """Gene expression in colon tissue, normal against tumour (62 rows, 2000 covariates, 35.5 % normal).

    The data of Alon et al. (1999). They are not shipped with this package.

    The published covariates are raw intensities with long right tails: take logs before anything else,
    ``np.log(load_colon(path).X)``. Copies that are already transformed have values below zero; leave those as they
    are. The paper trained on 40 rows and does not say which.

    Parameters
    ----------
    path
        A CSV file with a header, a column ``y`` holding two labels, and one column per gene. Without it the data are
        fetched from OpenML, which needs scikit-learn and the network.
    openml
        Name or number of the OpenML data set to fetch.
    """
    if path is None:
        X, y, names = _fetch_colon(openml)
    else:
        with Path(path).open() as file:
            X, y, names = _read_csv(file, str(path))
    return Dataset("colon", X, _minority(y), tuple(names), None, cleandoc(load_colon.__doc__ or ""))


def _shipped(name: str, description: str | None) -> Dataset:
    resource = resources.files("pymc_pacauc.datasets") / "data" / f"{name}.csv.gz"
    with resource.open("rb") as raw, gzip.open(raw, "rt", encoding="ascii") as file:
        header = file.readline().rstrip("\n").split(",")
        table = np.loadtxt(file, delimiter=",", ndmin=2)
    columns = dict(zip(header, table.T, strict=True))
    train = columns.pop("train").astype(bool) if "train" in columns else None
    y = columns.pop("y").astype(np.int64)
    about = cleandoc((description or "").partition("Examples\n")[0]).rstrip()
    return Dataset(name, np.ascontiguousarray(table[:, : len(columns)]), y, tuple(columns), train, about)


def _read_csv(file: TextIO, source: str) -> tuple[FloatArray, NDArray[Any], list[str]]:
    header = [name.strip().strip('"') for name in file.readline().split(",")]
    if header.count("y") != 1:
        raise ValueError(f"{source} needs a header with exactly one column named 'y'; its columns are {header[:5]}...")
    label = header.index("y")
    try:
        table = np.loadtxt(file, delimiter=",", dtype=str, ndmin=2)
        if table.shape[1] != len(header):
            raise ValueError(f"{len(header)} names in the header but {table.shape[1]} columns")
        X = np.delete(table, label, axis=1).astype(np.float64)
    except ValueError as error:
        raise ValueError(f"{source} must be a rectangular table of numbers, apart from the labels: {error}.") from error
    return X, np.char.strip(table[:, label], ' "'), header[:label] + header[label + 1 :]


def _fetch_colon(identifier: str | int) -> tuple[FloatArray, NDArray[Any], list[str]]:
    try:
        from sklearn.datasets import fetch_openml
    except ImportError as error:
        raise ImportError(
            "fetching the colon data needs scikit-learn (pip install 'pymc-pacauc[sklearn]'); "
            "or give the path of a CSV file, load_colon(path)."
        ) from error
    which = {"data_id": identifier} if isinstance(identifier, int) else {"name": identifier, "version": 1}
    bunch = fetch_openml(**which, as_frame=False, parser="liac-arff")
    X = bunch.data.toarray() if hasattr(bunch.data, "toarray") else np.asarray(bunch.data)
    if X.shape != COLON_SHAPE:
        raise ValueError(
            f"OpenML's {identifier!r} has shape {X.shape}, but the colon data are {COLON_SHAPE}; "
            "name another copy with openml=, or give the path of a CSV file."
        )
    return X.astype(np.float64), np.asarray(bunch.target), [str(name) for name in bunch.feature_names]


def _minority(labels: NDArray[Any]) -> NDArray[np.int64]:
    """1 for the rarer of the two labels."""
    classes, counts = np.unique(labels, return_counts=True)
    if classes.size != 2:
        raise ValueError(f"the column y must hold two labels; it has {classes.size}: {classes[:5].tolist()}.")
    return (labels == classes[np.argmin(counts)]).astype(np.int64)
