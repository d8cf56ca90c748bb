"""Folds for cross-validating an AUC: both classes in every fold, groups kept together."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_pacauc.core.pairs import distinct_labels

__all__ = ["stratified_folds"]


def stratified_folds(
    positive: NDArray[np.bool_], folds: int, rng: np.random.Generator, groups: ArrayLike | None = None
) -> NDArray[np.intp]:
    """Fold of every observation, 0 to folds - 1.

    Without groups each class is dealt out evenly. With groups, they are placed one by one, large ones first, each into
    the fold that is then furthest from its share of both classes.

    Examples
    --------
    >>> y = np.arange(10) < 4
    >>> fold = stratified_folds(y, 2, np.random.default_rng(1))
    >>> [(int(y[fold == k].sum()), int((~y[fold == k]).sum())) for k in (0, 1)]
    [(2, 3), (2, 3)]
    """
    if not (folds >= 2 and folds % 1 == 0):
        raise ValueError(f"folds must be an integer of at least 2; got {folds!r}.")
    if groups is None:
        fold = _dealt(positive, folds, rng)
    else:
        fold = _grouped(positive, folds, rng, groups)
    for k in range(folds):
        inside = fold == k
        if not (positive[inside].any() and (~positive[inside]).any()):
            raise ValueError(
                f"With {folds} folds, one has no observation of one class ({int(positive.sum())} positive, "
                f"{int((~positive).sum())} negative{'' if groups is None else ', in groups'}). Use fewer folds."
            )
    return fold


def _dealt(positive: NDArray[np.bool_], folds: int, rng: np.random.Generator) -> NDArray[np.intp]:
    fold = np.empty(positive.size, dtype=np.intp)
    start = 0
    for mask in (positive, ~positive):
        members = rng.permutation(np.flatnonzero(mask))
        fold[members] = (start + np.arange(members.size)) % folds
        start += members.size  # the next class begins where this one stopped, so that sizes stay even
    return fold


def _grouped(positive: NDArray[np.bool_], folds: int, rng: np.random.Generator, groups: ArrayLike) -> NDArray[np.intp]:
    if np.shape(groups) != positive.shape:
        raise ValueError(f"groups must have shape {positive.shape}, one label per observation; got {np.shape(groups)}.")
    labels, index = distinct_labels("groups", groups)
    if len(labels) < folds:
        raise ValueError(f"There are {len(labels)} groups for {folds} folds.")
    classes = np.stack([np.bincount(index, positive), np.bincount(index, ~positive)], axis=1)
    share = classes.sum(axis=0) / folds
    order = rng.permutation(len(labels))
    order = order[np.argsort(-classes[order].max(axis=1), kind="stable")]
    filled, place = np.zeros((folds, 2)), np.empty(len(labels), dtype=np.intp)
    for g in order:
        after = (filled + classes[g]) / share
        place[g] = int(np.argmin(np.sum(after**2, axis=1) - np.sum((filled / share) ** 2, axis=1)))
        filled[place[g]] += classes[g]
    return place[index]
