"""What a loader returns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Dataset"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A two-class data set.

    Attributes
    ----------
    name
        Short name.
    X
        Covariates, shape (n, d).
    y
        Labels, 1 for the minority class and 0 for the other, shape (n,).
    feature_names
        Names of the d columns of X.
    train
        Mask of the training rows, or None where no split is known.
    description
        What the rows are, where they come from, and what is known of the split.

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
        return self.X.shape[0]

    @property
    def d(self) -> int:
        return self.X.shape[1]

    @property
    def frame(self) -> DataFrame:
        """X as a pandas DataFrame, with ``y`` as its last column."""
        from pandas import DataFrame

        return DataFrame(self.X, columns=list(self.feature_names)).assign(y=self.y)

    def standardized(self) -> Dataset:
        """The same data, each covariate with mean 0 and standard deviation 1 over the training rows.

        Without a split all rows count as training rows. A covariate that is constant over them is centred only.

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
