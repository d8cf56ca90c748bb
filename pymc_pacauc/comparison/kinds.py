"""Kinds of comparison between labelled observations: ordered or unordered classes, strata, weights, the partial AUC.

Each function returns the pairs as complete bipartite blocks (:mod:`pymc_pacauc.comparison.pairs`), so that engines need
no code for a kind; censored times are in :mod:`pymc_pacauc.comparison.censored`. To add a kind, write a function that
returns a ``Pairs``, and add an argument to :func:`label_comparison`. For records to name it, enter a name
in ``KINDS`` (:mod:`pymc_pacauc.comparison.pairs`) and pass it as ``Pairs(kind=...)``; else it is "other pairs".

*Partial AUC* (``max_fpr``): the area under the ROC curve up to a largest false positive rate,

    risk = 1 - (area under the curve up to max_fpr) / max_fpr,

0 for a perfect score, and the AUC risk for ``max_fpr = 1``. Only the highest negatives count, a fraction ``max_fpr`` of
their weight. Which they are depends on the scores, so it is not an average over fixed pairs: EP has no sites for it,
and there is no bound. scikit-learn's ``roc_auc_score(y, scores, max_fpr=f)`` is the affine map of it that gives a
random score 1/2:

    (1 + (f (1 - risk) - f^2/2) / (f - f^2/2)) / 2.

References: McClish (1989), doi:10.1177/0272989X8900900307, for the partial AUC; Hand & Till (2001),
doi:10.1023/A:1010920819831, for unordered classes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_pacauc.comparison.pairs import Block, Pairs, bipartite, distinct_labels, label_codes, staircase
from pymc_pacauc.numerics import FloatArray, number_vector, ranked

SIDES: tuple[Literal["left"], Literal["right"]] = ("left", "right")


def label_comparison(
    y: ArrayLike,
    *,
    positive: Any = None,
    strata: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    ordered: bool = False,
    max_fpr: float | None = None,
) -> Pairs:
    """Find the pairs that labels compare, from the arguments of :func:`~pymc_pacauc.empirical_risk`.

    Parameters
    ----------
    y : array_like, shape (n,)
        Labels: bool, {0, 1}, {-1, 1}, or any two values with ``positive``; numbers with ``ordered``.
    positive : label, optional
        Which of the two labels is the positive class.
    strata : array_like, shape (n,), optional
        Compare within these groups only: one label per observation.
    weights : array_like, shape (n,), optional
        One positive number per observation; a pair weighs their product.
    ordered : bool, default False
        True for y with any number of values, the larger of which should score higher.
    max_fpr : float, optional
        Largest false positive rate, in (0, 1], of a partial AUC.

    Returns
    -------
    Pairs
        The pairs, with their weights; with ``max_fpr`` of the kind ``"partial AUC"``.

    Raises
    ------
    ValueError
        If there is nothing to compare, or options exclude each other.

    See Also
    --------
    bipartite : The pairs of two classes.
    ordered_classes : The pairs of ordered classes.
    concordance : The pairs of censored times.

    Examples
    --------
    >>> label_comparison([0, 1, 1, 0], strata=["a", "a", "b", "b"])
    Pairs(n=4, blocks=[1 x 1, 1 x 1])
    """
    if not isinstance(ordered, bool):
        raise ValueError(f"ordered must be True or False; got {ordered!r}.")
    if max_fpr is not None:
        if strata is not None or ordered:
            raise ValueError("max_fpr is for two classes without strata=: a partial AUC is that of one ROC curve.")
        check_max_fpr(max_fpr)
    if ordered and positive is not None:
        raise ValueError("positive= is for two classes; with ordered=True the larger value of y should score higher.")
    pairs = ordered_classes(y) if ordered else bipartite(y, positive)
    if max_fpr is not None:
        pairs = replace(pairs, kind="partial AUC", max_fpr=float(max_fpr))
    if strata is not None:
        pairs = stratified(pairs, strata)
    return pairs if weights is None else pairs.times(observation_weights(weights, pairs.n))


def check_max_fpr(value: Any) -> None:
    """Refuse a largest false positive rate that is not a number in (0, 1]."""
    if not (np.ndim(value) == 0 and isinstance(value, int | float | np.number) and 0.0 < value <= 1.0):
        raise ValueError(f"max_fpr, the largest false positive rate, must be a number in (0, 1]; got {value!r}.")


def ordered_classes(y: ArrayLike) -> Pairs:
    """Find all pairs with y_i > y_j, of which i should score higher.

    Parameters
    ----------
    y : array_like, shape (n,)
        Numbers, the larger the higher the class, or an ordered ``pd.Categorical``; from two classes on.

    Returns
    -------
    Pairs
        Blocks of a class, or of several neighbouring ones, against lower ones.

    Raises
    ------
    ValueError
        If y has fewer than two classes, or is not numeric or ordered.

    See Also
    --------
    bipartite : The pairs of two classes.
    stratified : Keep the pairs within strata.

    Examples
    --------
    >>> ordered_classes([0, 2, 1, 2])
    Pairs(n=4, blocks=[3 x 1, 2 x 1])
    """
    values = number_vector(
        "y", ranked(y), "with ordered=True it holds the rank of each class, such as 0, 1, 2 (pandas: y.cat.codes)"
    )
    classes, place = np.unique(values, return_inverse=True)
    if classes.size < 2:
        raise ValueError(f"y has one class only (all {values.size} labels are {classes[0]:g}): there is no pair.")
    kind = "two classes" if classes.size == 2 else "ordered classes"
    everyone = np.arange(values.size)
    return Pairs(values.size, tuple(staircase(Block(everyone, everyone), -place, -place)), kind)


def sorted_classes(y: ArrayLike) -> NDArray[np.intp]:
    """Number the classes from 0 on in the order of sorted labels, as scikit-learn does; return each row's, (n,).

    Examples
    --------
    >>> sorted_classes(["pear", "apple", "pear"])
    array([1, 0, 1])
    """
    classes, place = distinct_labels("y", y)
    if len(classes) < 2:
        raise ValueError(f"y has one class only (all {place.size} labels are equal): there is no pair.")
    try:
        order = sorted(range(len(classes)), key=classes.__getitem__)
    except TypeError as error:
        raise ValueError(f"y has labels that cannot be sorted ({error}): recode them, as strings.") from None
    return np.argsort(order)[place]


def unordered_classes(y: ArrayLike, weights: ArrayLike | None = None, strata: ArrayLike | None = None) -> list[Pairs]:
    """Return Hand and Till's pairs: for each class, in the order of sorted labels, the pairs that its score ranks.

    M is the mean over ordered pairs of classes (k, l) of A(k|l), the AUC of the k-th score between rows of class k and
    of class l: the mean over k of one minus the risk of the k-th score. So of the pairs that a score ranks, those with
    each other class have the same total weight.

    Examples
    --------
    >>> unordered_classes(["a", "b", "c", "a"])
    [Pairs(n=4, blocks=[2 x 1, 2 x 1]), Pairs(n=4, blocks=[1 x 2, 1 x 1]), Pairs(n=4, blocks=[1 x 2, 1 x 1])]
    """
    place = sorted_classes(y)
    own = None if weights is None else observation_weights(weights, place.size)
    members, found = members_of(place), []
    for k, mine in enumerate(members):
        blocks = [Block(mine, rows) for other, rows in enumerate(members) if other != k]
        if own is not None:  # without weights all pairs of a block have one weight, which makes sweeps faster
            blocks = [block.times(own) for block in blocks]
        even = tuple(replace(block, weight=block.weight / block.total_weight) for block in blocks)
        found.append(Pairs(place.size, even, "two classes"))
    return found if strata is None else [stratified(each, strata) for each in found]


def stratified(pairs: Pairs, strata: ArrayLike) -> Pairs:
    """Keep the pairs within strata, such as two patients of one hospital or two documents of one query.

    A stratum without such a pair (one class only) is skipped, and counted in ``skipped_strata``.

    Parameters
    ----------
    pairs : Pairs
        Pairs of n observations.
    strata : array_like, shape (n,)
        Stratum of each observation: labels of any kind.

    Returns
    -------
    Pairs
        Those of ``pairs`` whose observations have the same stratum.

    Raises
    ------
    ValueError
        If no stratum has a pair, or ``strata`` has another length or missing values.

    See Also
    --------
    label_comparison : Pairs from labels, strata and weights at once.

    Examples
    --------
    >>> stratified(bipartite([0, 1, 1, 0, 0]), ["a", "a", "b", "b", "c"])
    Pairs(n=5, blocks=[1 x 1, 1 x 1])
    """
    codes = label_codes("strata", strata, pairs.n)
    blocks = [part for block in pairs.blocks for part in by_stratum(block, codes)]
    if not blocks:
        raise ValueError("strata leaves no pair to compare: each stratum has one class only.")
    used = np.unique(np.concatenate([codes[block.positive[:1]] for block in blocks])).size
    return replace(pairs, blocks=tuple(blocks), skipped_strata=int(codes.max()) + 1 - used)


def by_stratum(block: Block, codes: NDArray[np.intp]) -> list[Block]:
    """Split a block into those of its pairs within each stratum."""
    rows, columns = codes[block.positive], codes[block.negative]
    row_order, column_order = np.argsort(rows, kind="stable"), np.argsort(columns, kind="stable")
    both = np.intersect1d(rows, columns)
    ends = [np.searchsorted(each, both, side) for each in (rows[row_order], columns[column_order]) for side in SIDES]
    return [block.take(row_order[a:b], column_order[c:d]) for a, b, c, d in zip(*ends, strict=True)]


def members_of(codes: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """List the observations with each of the codes 0, 1, ..., all of which occur.

    Examples
    --------
    >>> members_of(np.array([1, 0, 1]))
    [array([1]), array([0, 2])]
    """
    return np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])


def observation_weights(weights: ArrayLike, n: int) -> FloatArray:
    """Check positive weights, and scale them to mean 1: only their ratios matter."""
    values = number_vector("weights", weights, "one positive number per observation")
    if values.shape != (n,):
        raise ValueError(f"weights must have shape ({n},), one per observation; got {values.shape}.")
    bad = int(np.sum(~(values > 0.0)))
    if bad:
        raise ValueError(f"weights has {bad} value(s) <= 0: drop those observations instead.")
    return np.asarray(values / values.mean())
