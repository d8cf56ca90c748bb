"""Assign observations to cross-validation folds: stratified by class, groups kept together, pairs in every fold.

Folds are stratified by class (two, or any number of ordered ones), for censored times by whether the event was
observed, and by stratum. Strata are the connected components of the graph whose edges are the pairs. Where most pairs
are in strata too small to be divided (a few documents for each query), whole strata are assigned, so that
cross-validation is about a new stratum. Assignments with a fold that has no pair, or leaves none, are drawn again, up
to 20 times; then folds are refused.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from pymc_pacauc.comparison.kinds import members_of
from pymc_pacauc.comparison.pairs import Pairs, label_codes


def comparison_folds(
    pairs: Pairs,
    folds: int,
    rng: np.random.Generator,
    groups: ArrayLike | None = None,
    order: NDArray[np.intp] | None = None,
) -> NDArray[np.intp]:
    """Assign every observation to a fold, 0 to folds - 1; shape (n,).

    Without groups each class of each stratum is divided evenly. With groups, whole groups are assigned one by one,
    large ones first, each to the fold where it brings the classes closest to their shares.

    Given the state of ``rng`` the fold of an observation depends on its place in ``order``, by default the order of the
    rows.
    """
    if not (folds >= 2 and folds % 1 == 0):
        raise ValueError(f"folds must be an integer of at least 2; got {folds!r}.")
    folds = int(folds)
    order = np.arange(pairs.n) if order is None else order
    classes, strata = _classes(pairs), _renumber(strata_of(pairs), order)
    if groups is not None:
        index = _renumber(label_codes("groups", groups, pairs.n), order)
        if index.max() + 1 < folds:
            raise ValueError(f"groups has {index.max() + 1} values, fewer than folds={folds}: use fewer folds.")
    elif _too_small(pairs, classes, strata, folds):
        index = strata
    else:
        index = None
    for _ in range(20):
        fold = _assigned(classes, strata, order, folds, rng) if index is None else _grouped(classes, index, folds, rng)
        empty = [k for k in range(folds) if not (has_pairs(pairs, fold == k) and has_pairs(pairs, fold != k))]
        if not empty:
            return fold
    higher = classes > 0
    raise ValueError(
        f"folds={folds} is too many: a fold has no pair to compare, or leaves none to the others "
        f"({int(higher.sum())} observations should score higher than others, {int((~higher).sum())} should not"
        f"{'' if index is None else ', in groups'}). Use fewer folds."
    )


def has_pairs(pairs: Pairs, chosen: NDArray[np.bool_]) -> bool:
    """Return whether there is a pair among the observations ``chosen``."""
    return any(chosen[block.positive].any() and chosen[block.negative].any() for block in pairs.blocks)


def strata_of(pairs: Pairs) -> NDArray[np.intp]:
    """Number the strata and return that of each observation, (n,): observations connected by a chain of pairs.

    Examples
    --------
    >>> from pymc_pacauc.comparison.kinds import label_comparison
    >>> strata_of(label_comparison([0, 1, 0, 1, 1], strata=["a", "a", "b", "b", "b"])).tolist()
    [0, 0, 1, 1, 1]
    """
    if len(pairs.blocks) == 1:
        return np.zeros(pairs.n, dtype=np.intp)
    members = [np.concatenate([block.positive, block.negative]) for block in pairs.blocks]
    rows = np.concatenate(members)
    block = pairs.n + np.repeat(np.arange(len(members)), [each.size for each in members])  # a vertex for each
    size = pairs.n + len(members)
    found = connected_components(coo_array((np.ones(rows.size), (rows, block)), shape=(size, size)), directed=False)[1]
    return np.unique(found[: pairs.n], return_inverse=True)[1].astype(np.intp)


def _classes(pairs: Pairs) -> NDArray[np.intp]:
    """Return the class of each observation, 0 for those that should not score higher than any other.

    Ordered classes are numbered by how many observations of the stratum they should score higher than; other
    comparisons have two classes.
    """
    above = np.zeros(pairs.n)
    for block in pairs.blocks:
        np.add.at(above, block.positive, block.negative.size)
    if pairs.kind != "ordered classes":
        return (above > 0).astype(np.intp)
    codes = np.zeros(pairs.n, dtype=np.intp)
    for inside in members_of(strata_of(pairs)):
        codes[inside] = np.unique(np.append(above[inside], 0.0), return_inverse=True)[1][:-1]
    return codes


def _too_small(pairs: Pairs, classes: NDArray[np.intp], strata: NDArray[np.intp], folds: int) -> bool:
    """Return whether most of the weight is in strata with fewer observations of one side than there are folds."""
    if strata.max() == 0:
        return False
    higher, lower = (np.bincount(strata[mask], minlength=strata.max() + 1) for mask in (classes > 0, classes == 0))
    weight = np.bincount(strata, pairs.observation_weight)
    used = weight > 0
    small = used & (np.minimum(higher, lower) < folds)
    return bool(used.sum() >= folds and weight[small].sum() > 0.5 * weight.sum())


def _renumber(index: NDArray[np.intp], order: NDArray[np.intp]) -> NDArray[np.intp]:
    """Renumber codes by their first appearance along ``order``."""
    _, first, place = np.unique(index[order], return_index=True, return_inverse=True)
    found = np.empty(index.size, dtype=np.intp)
    found[order] = np.argsort(np.argsort(first))[place]
    return found


def _assigned(
    classes: NDArray[np.intp],
    strata: NDArray[np.intp],
    order: NDArray[np.intp],
    folds: int,
    rng: np.random.Generator,
) -> NDArray[np.intp]:
    """Assign rows in random order, class by class (higher ones first) and stratum by stratum, to folds in rotation.

    The rotation continues from one part to the next, so that all fold sizes are even.
    """
    order = order[np.lexsort((strata[order], -classes[order]))]  # before the permutation: independent of the row order
    order = order[rng.permutation(classes.size)]
    order = order[np.lexsort((strata[order], -classes[order]))]
    fold = np.empty(classes.size, dtype=np.intp)
    fold[order] = np.arange(classes.size) % folds
    return fold


def _grouped(
    classes: NDArray[np.intp], index: NDArray[np.intp], folds: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    """Assign whole groups; ``index`` is the group of each observation."""
    count = int(classes.max()) + 1
    classes = classes * min(20, count) // count  # groups are balanced by at most 20 classes, neighbours merged
    members = np.stack([np.bincount(index, classes == k) for k in range(classes.max() + 1)], axis=1)
    members = members[:, members.any(axis=0)]
    share = members.sum(axis=0) / folds
    order = rng.permutation(len(members))
    order = order[np.argsort(-members[order].max(axis=1), kind="stable")]
    filled, place = np.zeros((folds, share.size)), np.empty(len(members), dtype=np.intp)
    for g in order:
        after = (filled + members[g]) / share
        place[g] = int(np.argmin(np.sum(after**2, axis=1) - np.sum((filled / share) ** 2, axis=1)))
        filled[place[g]] += members[g]
    return place[index]
