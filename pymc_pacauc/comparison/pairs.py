"""The pairs of observations that are compared, with their weights, as complete bipartite blocks.

The AUC risk is an average over pairs (i, j), i positive and j negative: the pair is wrong when i scores below j,

    risk = sum w_ij 1{s_i < s_j} / sum w_ij,    a tie counting one half.

The set of all such pairs is a *complete bipartite block*: every positive with every negative. Other comparisons are
several blocks: strata, one per stratum; ordered classes, the upper half of the classes against the lower half, then
the same within each half; censored times, the earlier half of the events against all who were followed longer, then the
same within each half. All engines loop over the blocks of a :class:`Pairs` and do not use the labels, so a new kind of
comparison is a function that returns blocks (:mod:`pymc_pacauc.comparison.kinds`,
:mod:`pymc_pacauc.comparison.censored`) and nothing else.

Within a block weights are a product, ``w_ij = weight * a_i * b_j``, stored as two vectors.

*Staircases* (:func:`staircase`). Many kinds compare i with j where a number of i is below a number of j: i is in a
higher class than j, or the event of i is before the end of j. All such pairs are blocks: with a threshold in the
middle, every i up to it is compared with every j above it, and what is left are the same two problems on either side of
the threshold. An observation is in one block per level, so O(n log n) indices represent up to n^2 / 2 pairs, whatever
the ties.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_pacauc.numerics import FloatArray, ranked

KINDS = ("two classes", "ordered classes", "unordered classes", "censored times", "other pairs", "partial AUC")


@dataclass(frozen=True, eq=False)
class Block:
    """A complete bipartite block: every ``positive`` index is compared with every ``negative`` index.

    Attributes
    ----------
    positive, negative : ndarray of int
        Indices of the observations that should score higher, and of those that should score lower.
    positive_weights, negative_weights : ndarray or None
        a_i and b_j, in the order of the indices; None where all are 1.
    weight : float
        Factor of the weight of every pair of the block.
    """

    positive: NDArray[np.intp]
    negative: NDArray[np.intp]
    positive_weights: FloatArray | None = None
    negative_weights: FloatArray | None = None
    weight: float = 1.0

    @property
    def n_pairs(self) -> int:
        return self.positive.size * self.negative.size

    @property
    def constant(self) -> bool:
        """Whether all pairs of the block have the same weight."""
        return self.positive_weights is None and self.negative_weights is None

    @property
    def row_weights(self) -> FloatArray:
        """``weight * a_i``, one for each positive."""
        return np.full(self.positive.size, self.weight) * (
            1.0 if self.positive_weights is None else self.positive_weights
        )

    @property
    def column_weights(self) -> FloatArray:
        """b_j, one for each negative."""
        return np.ones(self.negative.size) if self.negative_weights is None else self.negative_weights

    @property
    def total_weight(self) -> float:
        sides = ((self.positive, self.positive_weights), (self.negative, self.negative_weights))
        return float(self.weight * np.prod([rows.size if own is None else own.sum() for rows, own in sides]))

    def take(self, rows: NDArray[Any] | slice, columns: NDArray[Any] | slice) -> Block:
        """Return the block of some of the positives and negatives, by position or by mask."""
        weights = (self.positive_weights, rows), (self.negative_weights, columns)
        a, b = (None if each is None else each[some] for each, some in weights)
        return Block(self.positive[rows], self.negative[columns], a, b, self.weight)

    def times(self, weights: FloatArray) -> Block:
        """Multiply the weight of every pair by those of its two observations, ``weights[n]``."""
        a, row_scale = _without_scale(self.positive_weights, weights[self.positive])
        b, column_scale = _without_scale(self.negative_weights, weights[self.negative])
        return replace(self, positive_weights=a, negative_weights=b, weight=self.weight * row_scale * column_scale)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of observations that a risk averages over, as blocks of (positive, negative) indices.

    In each pair the first observation should score higher. Build pairs with :func:`bipartite`,
    :func:`~pymc_pacauc.arrays.ordered_classes`, :func:`~pymc_pacauc.arrays.concordance` or
    :func:`~pymc_pacauc.arrays.label_comparison`.

    Parameters
    ----------
    n : int
        Number of observations.
    blocks : tuple of Block
        Each compares every observation in ``positive`` with every one in ``negative``, indices below n.
    kind : str, default "other pairs"
        Kind of comparison, one of ``KINDS``, for messages and records.
    skipped_strata : int, default 0
        Number of strata without a pair to compare, which do not enter the risk.
    estimated_weights : bool, default False
        Whether the weights depend on the outcomes of other observations, as inverse censoring probabilities do.
    max_fpr : float, default 1.0
        Of a partial AUC, the largest false positive rate: of the negatives of its one block only the highest count,
        this share of their weight. Which they are depends on the scores, so that only the risk is defined: engines that
        need fixed pairs refuse it.

    Attributes
    ----------
    n_pairs : int
        Number of pairs.
    total_weight : float
        The sum of the weights of all pairs; their number where there are no weights.

    See Also
    --------
    bipartite : The pairs of two classes.
    pymc_pacauc.arrays.pair_risk : The share of pairs that scores get wrong.

    Examples
    --------
    >>> pairs = bipartite([0, 1, 1, 0, 0])
    >>> pairs, pairs.n_pairs
    (Pairs(n=5, blocks=[2 x 3]), 6)
    """

    n: int
    blocks: tuple[Block, ...]
    kind: str = "other pairs"
    skipped_strata: int = 0
    estimated_weights: bool = False
    max_fpr: float = 1.0

    @property
    def n_pairs(self) -> int:
        """Number of pairs."""
        return sum(block.n_pairs for block in self.blocks)

    @cached_property
    def total_weight(self) -> float:
        """The sum of the weights of all pairs; their number where there are no weights."""
        return float(sum(block.total_weight for block in self.blocks))

    @property
    def partial(self) -> bool:
        """Whether it is a partial AUC, which is not an average over fixed pairs."""
        return self.kind == "partial AUC"

    @property
    def weighted(self) -> bool:
        """Whether pairs have different weights."""
        return any(not block.constant or block.weight != self.blocks[0].weight for block in self.blocks)

    @cached_property
    def side_weights(self) -> FloatArray:
        """Weight of the pairs in which each observation should score higher, and of those in which lower, (2, n)."""
        total = np.zeros((2, self.n))
        for block in self.blocks:
            rows, columns = block.row_weights, block.column_weights
            np.add.at(total[0], block.positive, rows * columns.sum())
            np.add.at(total[1], block.negative, columns * rows.sum())
        return total

    @property
    def observation_weight(self) -> FloatArray:
        """The total weight of the pairs of each observation, shape (n,)."""
        return self.side_weights.sum(axis=0)

    @cached_property
    def higher(self) -> NDArray[np.bool_]:
        """Mask of the observations that should score higher than another one, shape (n,)."""
        return self.side_weights[0] > 0.0

    @cached_property
    def memberships(self) -> tuple[NDArray[Any], ...]:
        """The blocks that each observation is in: three arrays for positives, three for negatives.

        Observation i is in ``block[start[i]:start[i + 1]]``, with ``weight`` at the same places.
        """
        rows = [(block.positive, block.row_weights) for block in self.blocks]
        columns = [(block.negative, block.column_weights) for block in self.blocks]
        return *_memberships(self.n, rows), *_memberships(self.n, columns)

    def map(self, index: NDArray[np.intp], n: int) -> Pairs:
        """Move every observation to another position.

        Parameters
        ----------
        index : ndarray of int, shape (old n,)
            New position of each observation.
        n : int
            Length of the new array of observations.

        Returns
        -------
        Pairs
            The same pairs, with observation ``i`` at position ``index[i]``.

        See Also
        --------
        Pairs.among : Keep the pairs of chosen observations.

        Examples
        --------
        >>> bipartite([0, 1, 1]).map(np.array([5, 3, 4]), 6)
        Pairs(n=6, blocks=[2 x 1])
        """
        blocks = (replace(b, positive=index[b.positive], negative=index[b.negative]) for b in self.blocks)
        return replace(self, n=n, blocks=tuple(blocks))

    def on_rows(self, rows: NDArray[np.intp]) -> Pairs:
        """Number observations by their place among ``rows``, which hold every one that is in a pair.

        Parameters
        ----------
        rows : ndarray of int, shape (m,)
            Distinct indices of observations.

        Returns
        -------
        Pairs
            The same pairs, of m observations.

        See Also
        --------
        Pairs.map : Move observations to other positions.

        Examples
        --------
        >>> bipartite([0, 1, 1, 0]).on_rows(np.array([3, 2, 1, 0])).blocks[0].positive
        array([2, 1])
        """
        place = np.zeros(self.n, dtype=np.intp)
        place[rows] = np.arange(rows.size)
        return self.map(place, rows.size)

    def among(self, chosen: NDArray[np.bool_]) -> Pairs:
        """Keep the pairs of which both observations are chosen.

        Parameters
        ----------
        chosen : ndarray of bool, shape (n,)
            Which observations.

        Returns
        -------
        Pairs
            Indices are into all n observations still.

        See Also
        --------
        Pairs.map : Move observations to other positions.

        Examples
        --------
        >>> bipartite([0, 1, 1, 0]).among(np.array([True, True, True, False])).n_pairs
        2
        """
        blocks = (block.take(chosen[block.positive], chosen[block.negative]) for block in self.blocks)
        return replace(self, blocks=tuple(block for block in blocks if block.n_pairs))

    def times(self, weights: FloatArray) -> Pairs:
        """Multiply the weight of every pair by the weights of its two observations.

        Parameters
        ----------
        weights : ndarray, shape (n,)
            A positive number for each observation.

        Returns
        -------
        Pairs
            The same pairs with the new weights.

        See Also
        --------
        Pairs.total_weight : Sum of the weights of all pairs.

        Examples
        --------
        >>> bipartite([0, 1, 1]).times(np.array([2.0, 1.0, 3.0])).total_weight
        8.0
        """
        return replace(self, blocks=tuple(block.times(weights) for block in self.blocks))

    def __repr__(self) -> str:
        shown = [f"{b.positive.size} x {b.negative.size}" for b in self.blocks[:5]]
        more = f", {len(self.blocks) - 5} more" if len(self.blocks) > 5 else ""
        return f"Pairs(n={self.n}, blocks=[{', '.join(shown)}{more}])"


def staircase(block: Block, at: NDArray[Any], until: NDArray[Any]) -> Iterator[Block]:
    """Yield blocks of those pairs (i, j) of a block that have ``at[i] < until[j]``; both have shape (n,).

    Positives with ``at`` up to a threshold, the middle one of its distinct values, are compared with all negatives
    whose ``until`` is above it. Left are pairs with both numbers up to the threshold, or both above it.

    Examples
    --------
    >>> values, everyone = np.array([3, 1, 2]), np.arange(3)
    >>> [(b.positive.tolist(), b.negative.tolist()) for b in staircase(Block(everyone, everyone), values, values)]
    [([1, 2], [0]), ([1], [2])]
    """
    segments = [block]
    while segments:
        block = segments.pop()
        if not block.n_pairs:
            continue
        before, after = at[block.positive], until[block.negative]
        compared = before < after.max()
        if not compared.any():
            continue
        levels = np.unique(before[compared])
        threshold = levels[levels.size // 2]
        low, high = compared & (before <= threshold), after > threshold
        yield block.take(low, high)
        segments += [block.take(compared & ~low, high), block.take(low, ~high)]


def _without_scale(old: FloatArray | None, new: FloatArray) -> tuple[FloatArray | None, float]:
    """Return ``old * new`` as an array and a factor; None for the array where the product is constant."""
    product = new if old is None else old * new
    if (product == product[0]).all():
        return None, float(product[0])
    return product, 1.0


def encode_labels(y: ArrayLike, positive: Any = None) -> NDArray[np.bool_]:
    """Return the boolean mask of the positive class.

    Labels may be booleans, {0, 1}, {-1, 1}, or any two values when ``positive`` names the positive one: strings,
    numbers, dates, enumerations, categories. They are compared exactly, as Python compares values: the label ``1`` is
    neither ``"1"`` nor, among integers above 2^53, its neighbour. Of an ordered ``pd.Categorical`` the
    higher one is positive.

    Examples
    --------
    >>> encode_labels([-1, 1, 1])
    array([False,  True,  True])
    >>> encode_labels(["sick", "well", "sick"], positive="sick")
    array([ True, False,  True])
    """
    classes, place = distinct_labels("y", y)
    if len(classes) > 2:
        shown = ", ".join(map(str, classes[:5])) + (", ..." if len(classes) > 5 else "")
        raise ValueError(
            f"y has {len(classes)} distinct values ({shown}); the AUC compares two classes. Recode y, for example "
            "y == value for one class against the rest; or, if a larger value should score higher, pass ordered=True."
        )
    rank = ranked(y) if positive is None else y
    if rank is not y and len(classes) == 2:
        rank = np.asarray(rank)
        return np.asarray(rank == rank.max())
    chosen = _understood(classes) if positive is None else _named(classes, positive)
    if len(classes) < 2:
        raise ValueError(f"y has one class only (all {place.size} labels are {classes[0]!s}): there is no pair.")
    return place == chosen


def bipartite(y: ArrayLike, positive: Any = None) -> Pairs:
    """Find all pairs of one positive and one negative observation, those of the AUC.

    Parameters
    ----------
    y : array_like, shape (n,)
        Labels: bool, {0, 1}, {-1, 1}, or any two values with ``positive``.
    positive : label, optional
        Which of the two labels is the positive class.

    Returns
    -------
    Pairs
        One block: the positive observations against the negative ones.

    Raises
    ------
    ValueError
        If y has one class, more than two, missing values, or two labels of which neither is known to be positive.

    See Also
    --------
    pymc_pacauc.arrays.label_comparison : Pairs with strata, weights, ordered classes.

    Examples
    --------
    >>> bipartite(["sick", "well", "sick"], positive="sick")
    Pairs(n=3, blocks=[2 x 1])
    """
    mask = encode_labels(y, positive)
    return Pairs(mask.size, (Block(np.flatnonzero(mask), np.flatnonzero(~mask)),), kind="two classes")


def distinct_labels(name: str, values: ArrayLike) -> tuple[list[Any], NDArray[np.intp]]:
    """Return the distinct values, compared exactly, and the index of each value among them, (n,).

    Refuses missing values; ``name`` is the argument in messages.
    """
    labels = _label_array(name, values)
    if labels.dtype == object:
        import pandas

        try:
            place, distinct = pandas.factorize(labels)
        except TypeError as error:
            raise ValueError(f"{name} must be one-dimensional, one label a row; it has an {error}.") from error
        missing = place < 0
    else:
        distinct, missing = np.unique(labels), labels != labels  # NaN and NaT differ from themselves
        place = np.searchsorted(distinct, labels) if distinct.size > 2 else (labels != distinct[0]).astype(np.intp)
    missing = np.ma.getmaskarray(np.ma.asarray(values)) if np.ma.is_masked(values) else missing
    if missing.any():
        raise ValueError(f"{name} has {missing.sum()} missing value(s) out of {labels.size}: drop or impute those.")
    if labels.dtype.kind in "mM":
        return list(distinct), place
    return [value.item() if isinstance(value, np.generic) else value for value in distinct.tolist()], place


def label_codes(name: str, values: ArrayLike, n: int) -> NDArray[np.intp]:
    """Return labels, such as groups or strata, as integers from 0 on, (n,); ``name`` is the argument in messages."""
    if np.shape(values) != (n,):
        raise ValueError(f"{name} must have shape ({n},), one label per observation; got {np.shape(values)}.")
    return distinct_labels(name, values)[1]


def _label_array(name: str, values: ArrayLike) -> NDArray[Any]:
    """Return labels as a one-dimensional array: an array keeps its type, other sequences become arrays of objects."""
    labels = np.asarray(values, dtype=None if hasattr(values, "__array__") else object)
    if labels.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, one label per observation; got shape {labels.shape}.")
    if labels.size == 0:
        raise ValueError(f"{name} is empty: it must have one label per observation.")
    return labels if labels.dtype.kind in "biufcmMUS" else labels.astype(object)


def _understood(classes: list[Any]) -> int:
    """Return the index of the positive class where ``positive`` is not given."""
    numbers = all(isinstance(value, (bool, int, float)) and value in (-1, 0, 1) for value in classes)
    if not numbers:
        raise ValueError(
            f"y has the values {_shown(classes)}; only of bool, {{0, 1}} and {{-1, 1}} is the positive class known. "
            f"Name it, for example positive={classes[-1]!r}."
        )
    if {-1, 0} <= set(classes):
        raise ValueError("y has the values -1 and 0; name the positive class, for example positive=0.")
    return int(np.argmax(classes))


def _named(classes: list[Any], positive: Any) -> int:
    """Return the index of the class that equals ``positive``."""
    if isinstance(positive, (list, set, dict)) or getattr(positive, "ndim", 0) > 0:
        raise ValueError(
            f"positive must be one of the two labels, {_shown(classes)}; got a {type(positive).__name__}. "
            "To call several labels positive, recode y first, for example np.isin(y, [...])."
        )
    value = positive.item() if isinstance(positive, np.ndarray) else positive
    for place, label in enumerate(classes):
        if _equal(label, value):
            return place
    raise ValueError(f"positive={positive!r} does not occur in y; its values are {_shown(classes)}.")


def _equal(label: Any, value: Any) -> bool:
    try:
        if isinstance(label, (np.datetime64, np.timedelta64)):
            value = type(label)(value)  # a string, a date or a pandas time stamp
        elif isinstance(value, np.generic):
            value = value.item()  # Python compares an integer with a float exactly, NumPy does not
        return bool(label == value)
    except (TypeError, ValueError, OverflowError):
        return False


def _shown(classes: list[Any]) -> str:
    return f"[{', '.join(str(value) if isinstance(value, np.generic) else repr(value) for value in classes)}]"


def _memberships(n: int, members: list[tuple[NDArray[np.intp], FloatArray]]) -> tuple[NDArray[Any], ...]:
    """List the blocks of every observation; ``members`` has indices and weights of each block."""
    index, weight = (np.concatenate(each) for each in zip(*members, strict=True))
    block = np.repeat(np.arange(len(members), dtype=np.int32), [m.size for m, _ in members])
    order = np.argsort(index, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(index, minlength=n))]).astype(np.int64)
    return start, block[order], weight[order]
