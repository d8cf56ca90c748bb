"""Load the paper's data sets: one function for each, and the record that all of them return.

Five are tables shipped as ``data/*.csv.gz``, with a header, a column ``y`` and, where a split is known, a column
``train``. To add one, write such a file by ``benchmarks/pack_dataset.py``, a function that loads it, whose docstring
becomes its description, and its source in ``DATA.md``.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass, replace
from importlib import resources
from inspect import cleandoc
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.numerics import FloatArray

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, eq=False)
class Dataset:
    """Covariates and labels of a data set with two classes.

    Attributes
    ----------
    name : str
        Short name.
    X : ndarray, shape (n, d)
        Covariates.
    y : ndarray of int, shape (n,)
        Labels, 1 for the minority class and 0 for the other.
    feature_names : tuple of str
        Names of the d columns of X.
    train : ndarray of bool, shape (n,), or None
        Mask of the training rows, or None where no split is known.
    description : str
        What the rows are, where they come from, and what is known of the split.

    See Also
    --------
    load_pima : Data on diabetes, with a split into training and test rows.
    load_credit : Credit risks, a larger set without a split.

    Examples
    --------
    >>> import pymc_pacauc as pac
    >>> pima = pac.datasets.load_pima()
    >>> pima
    Dataset('pima', n=532, d=7, positive=177 (33.3%), train=200)
    >>> pima.X[pima.train].shape, pima.X[~pima.train].shape
    ((200, 7), (332, 7))
    """

    name: str
    X: NDArray[np.float64]
    y: NDArray[np.int64]
    feature_names: tuple[str, ...]
    train: NDArray[np.bool_] | None
    description: str

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.X.shape[0]

    @property
    def d(self) -> int:
        """Number of covariates."""
        return self.X.shape[1]

    @property
    def frame(self) -> DataFrame:
        """X as a pandas DataFrame with the columns ``feature_names`` and, last, ``y``."""
        from pandas import DataFrame

        return DataFrame(self.X, columns=list(self.feature_names)).assign(y=self.y)

    def standardized(self) -> Dataset:
        """Scale each covariate to mean 0 and standard deviation 1 over the training rows.

        Without a split all rows count as training rows. A covariate that is constant over them is centred only.

        Returns
        -------
        Dataset
            The same rows, labels and split with scaled X.

        See Also
        --------
        Dataset : The fields of a data set.

        Examples
        --------
        >>> import pymc_pacauc as pac
        >>> pima = pac.datasets.load_pima().standardized()
        >>> bool(abs(pima.X[pima.train].mean(axis=0)).max() < 1e-12)
        True
        """
        reference = self.X if self.train is None else self.X[self.train]
        scale = reference.std(axis=0)
        constant = reference.min(axis=0) == reference.max(axis=0)
        return replace(self, X=(self.X - reference.mean(axis=0)) / np.where(constant, 1.0, scale))

    def __repr__(self) -> str:
        positive = int(self.y.sum())
        split = "" if self.train is None else f", train={int(self.train.sum())}"
        share = f"{positive} ({positive / self.n:.1%})"
        return f"Dataset({self.name!r}, n={self.n}, d={self.d}, positive={share}{split})"


COLON_SHAPE = (62, 2000)
MISSING = {"", "na", "n/a", "nan", "null", "none", "?"}


def load_pima() -> Dataset:
    """Load data on diabetes among women of the Pima people (532 rows, 7 covariates, 33.3 % diabetic).

    The complete cases of the study, as in the R package MASS: its ``Pima.tr`` (200 rows) are the training rows,
    its ``Pima.te`` (332 rows) the others. The class balance of the training rows, 34 %, is the one the paper prints.

    Returns
    -------
    Dataset
        532 rows, of which 200 are training rows; the positive class is "diabetic".

    See Also
    --------
    load_spect : Another small data set with a split.

    Examples
    --------
    >>> load_pima().feature_names
    ('npreg', 'glu', 'bp', 'skin', 'bmi', 'ped', 'age')
    """
    return _shipped("pima", load_pima.__doc__)


def load_spect() -> Dataset:
    """Load features of cardiac SPECT images (267 rows, 22 binary covariates, 20.6 % normal).

    UCI's SPECT heart data with its own split: 80 training rows, half of them normal, and 187 test rows. The positive
    class is "normal", the minority. The paper calls the data SPECTF, but its 22 covariates and 50 % are SPECT's.

    Returns
    -------
    Dataset
        267 rows, of which 80 are training rows; the positive class is "normal".

    See Also
    --------
    load_pima : Another small data set with a split.

    Examples
    --------
    >>> load_spect()
    Dataset('spect', n=267, d=22, positive=55 (20.6%), train=80)
    """
    return _shipped("spect", load_spect.__doc__)


def load_glass() -> Dataset:
    """Load the composition of glass fragments, tableware against the rest (214 rows, 9 covariates, 4.2 % tableware).

    UCI's glass identification without its ``Id`` column, which is sorted by class and so gives the answer away. The
    paper's row ("silicon class, 1 %, 10 covariates") matches no class of these data. No split is known.

    Returns
    -------
    Dataset
        214 rows without a split; the positive class is "tableware".

    See Also
    --------
    load_pima : A small data set with a split and more positives.

    Examples
    --------
    >>> load_glass()
    Dataset('glass', n=214, d=9, positive=9 (4.2%))
    """
    return _shipped("glass", load_glass.__doc__)


def load_credit() -> Dataset:
    """Load German credit data, bad risks against good ones (1000 rows, 60 covariates, 30 % bad).

    UCI's Statlog German credit data: 7 numeric covariates and 53 indicators, one for every level of the 13
    categorical ones but ``foreign_A202``. The paper has the same number of covariates; its 28 % of positives is
    unexplained. No split is known.

    Returns
    -------
    Dataset
        1000 rows without a split; the positive class is "bad risk".

    See Also
    --------
    load_dna : A larger data set.

    Examples
    --------
    >>> load_credit()
    Dataset('credit', n=1000, d=60, positive=300 (30.0%))
    """
    return _shipped("credit", load_credit.__doc__)


def load_dna() -> Dataset:
    """Load splice junctions, intron-exon boundaries against the rest (3186 rows, 180 binary covariates, 24 % positive).

    Statlog's DNA data: 60 bases in three bits each. The first 400 rows are marked as training rows. That split is a
    guess: the class balance the paper prints fits its first 300 to 400 rows.

    Returns
    -------
    Dataset
        3186 rows, of which 400 are marked as training rows; the positive class is "intron-exon boundary".

    See Also
    --------
    load_credit : A smaller data set.

    Examples
    --------
    >>> load_dna()
    Dataset('dna', n=3186, d=180, positive=765 (24.0%), train=400)
    """
    return _shipped("dna", load_dna.__doc__)


def load_colon(path: str | PathLike[str] | None = None, *, openml: str | int = "colon-cancer") -> Dataset:
    r"""Load gene expression in colon tissue, normal against tumour (62 rows, 2000 covariates, 35.5 % normal).

    The data of Alon et al. (1999). They are not shipped with this package.

    The published covariates are raw intensities with long right tails: take logs before anything else,
    ``np.log(load_colon(path).X)``. Copies that are already transformed have values below zero; leave those as they
    are. The paper trained on 40 rows and does not say which. ``y`` is 1 for the rarer label, and of two labels equally
    frequent for the one that sorts first.

    Parameters
    ----------
    path : str or pathlib.Path, optional
        A CSV file with a header, a column ``y`` holding two labels, and one column per gene: cells between commas, with
        or without double quotes, no comments, nothing missing, in UTF-8. Without a path the data are fetched from
        OpenML, which needs scikit-learn and the network.
    openml : str, default "colon-cancer"
        Name or number of the OpenML data set to fetch.

    Returns
    -------
    Dataset
        The rows of the file, or of the OpenML data set, without a split; the positive class is the rarer label.

    Raises
    ------
    ValueError
        If the file has no column ``y``, more or fewer than two labels, or cells that are not finite numbers.
    ImportError
        If ``path`` is not given and scikit-learn is not installed.

    See Also
    --------
    load_pima : Data that are shipped with the package.

    References
    ----------
    U. Alon et al. (1999), Broad patterns of gene expression revealed by clustering analysis of tumor and normal colon
    tissues probed by oligonucleotide arrays, PNAS 96(12), doi:10.1073/pnas.96.12.6745.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "colon.csv")
    ...     _ = path.write_text("gene1,gene2,y\n5.1,80.2,tumour\n3.3,71.9,normal\n4.0,90.5,tumour\n")
    ...     load_colon(path)
    Dataset('colon', n=3, d=2, positive=1 (33.3%))
    """
    if path is None:
        X, y, names = _fetch_colon(openml)
    else:
        X, y, names = _read_csv(Path(path))
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


def _read_csv(path: Path) -> tuple[FloatArray, NDArray[Any], list[str]]:
    """Read covariates (n, d), labels (n,) and names; refuse a cell that is not what it should be, and say where."""
    import pandas as pd

    try:
        cells = pd.read_csv(path, header=None, dtype=str, keep_default_na=False, skipinitialspace=True)
    except (UnicodeError, pd.errors.EmptyDataError, pd.errors.ParserError) as error:
        raise ValueError(f"{path} is not a table of comma-separated values in UTF-8: {error}.") from error
    cells = cells.fillna("").apply(lambda column: column.str.strip())
    header, table = cells.iloc[0].tolist(), cells.iloc[1:]
    if header.count("y") != 1 or not len(set(header) - {""}) == len(header) > 1 or table.empty:
        raise ValueError(
            f"{path} needs a header, its first line, of distinct names with commas between them, one of which is 'y', "
            f"and rows below it; it has {len(table)} rows, and its columns are {header[:5]}."
        )
    table = table.set_axis(header, axis=1)
    labels = table.pop("y")
    unknown = int(labels.str.lower().isin(MISSING).sum())
    if unknown:
        raise ValueError(f"{path} has {unknown} rows without a label in column 'y'.")
    for name, column in table.items():
        known = np.isfinite(pd.to_numeric(column, errors="coerce"))
        if not known.all():
            raise ValueError(f"{path}, column {name!r}: {column[~known].iloc[0]!r} is not a finite number.")
    return table.to_numpy().astype(np.float64), labels.to_numpy(dtype=str), list(table.columns)


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
    """Return 1 for the rarer of the two labels, and 0 for the other, (n,)."""
    classes, counts = np.unique(labels, return_counts=True)
    if classes.size != 2:
        raise ValueError(f"the column y must hold two labels; it has {classes.size}: {classes[:5].tolist()}.")
    return (labels == classes[np.argmin(counts)]).astype(np.int64)
