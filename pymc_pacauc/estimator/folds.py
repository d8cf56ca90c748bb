"""An estimator's ``cv=``, as scikit-learn has it: a number of folds, a splitter, or splits.

Given a number of folds, rows are assigned to them where folds are needed, again and again where that takes away noise.
Splits are taken as they are, and must leave out every row once: then they are one label per row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import check_cv

from pymc_pacauc.comparison.folds import has_pairs
from pymc_pacauc.comparison.pairs import Pairs

Folds = int | NDArray[np.intp]


def check_folds(cv: Any, X: Any, y: Any, groups: Any) -> Folds:
    """The number of folds, or the fold of each row.

    Examples
    --------
    >>> from sklearn.model_selection import KFold
    >>> check_folds(5, np.zeros((4, 1)), None, None)
    5
    >>> check_folds(KFold(2), np.zeros((4, 1)), None, None)
    array([0, 0, 1, 1])
    """
    if isinstance(cv, int | np.integer) and not isinstance(cv, bool) and cv >= 2:
        return int(cv)
    if isinstance(cv, str) or not (hasattr(cv, "split") or isinstance(cv, Iterable)):
        raise ValueError(
            f"Expected cv as an integer of at least 2, a cross-validation object, or an iterable of splits; got {cv!r}."
        )
    times, fold = np.zeros(len(X), dtype=np.intp), np.zeros(len(X), dtype=np.intp)
    for k, (_, out) in enumerate(check_cv(cv).split(X, y, groups)):
        fold[out] = k
        times[out] += 1
    if (times != 1).any():
        raise ValueError(
            f"cv must leave out every sample once; {int((times == 0).sum())} are never left out and "
            f"{int((times > 1).sum())} more than once. To choose gamma by repeated folds pass their number."
        )
    return fold


def check_pairs_in_folds(pairs: Pairs, fold: NDArray[np.intp]) -> None:
    """Every fold has something to compare, and leaves something to learn from."""
    for k in np.unique(fold):
        for rows, what in ((fold == k, "Test"), (fold != k, "Training")):
            if not has_pairs(pairs, rows):
                raise ValueError(
                    f"{what} fold {k} of cv has nothing to compare, such as samples of one class only: "
                    'the AUC is not defined. Use fewer folds, or stratified ones, or another gamma than "cv".'
                )
