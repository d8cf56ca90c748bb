"""Exact AUC risk of many score vectors at once.

``risk = #{(i, j): i positive, j negative, s_i < s_j} / (n+ n-)``, a tie counting one half: ``1 - risk`` is the AUC.

Sorting takes O(n log n) per score vector; counting by buckets takes O(n). The smaller class is put into about four
times as many equal buckets as it has members (over mean +/- 3 sd of the scores), so that few members share a bucket.
For a member of the larger class, those in lower buckets score lower, those in higher buckets score higher, and only
its own bucket needs comparisons. The result is exact whatever the buckets. Rows whose buckets fill unevenly (many ties,
outliers, infinities) are computed by sorting, so the worst case is O(n log n).

Weighted pairs, many blocks (strata, censored times) and the partial AUC are computed by one pass over the sorted scores
(:func:`_scan`), from the highest down. It keeps, for every block, the total weight of its negatives so far. A positive
of the block adds its own weight times that total: the weight of the wrong pairs it belongs to. A score vector costs
O(n log n) for the sort and one addition for every membership of an observation in a block: O(n) for weighted classes
and strata, O(n log n) for censored times. Of a partial AUC negatives count until a share ``max_fpr`` of their weight is
reached; tied scores make a straight piece of the ROC curve, which is cut there.

:func:`empirical_risk` checks labels and scores of users; :func:`pair_risk` and :class:`LinearRisk` are called by the
engines, (N, n) scores or (N, d) coefficients at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_pacauc.comparison.kinds import label_comparison, unordered_classes
from pymc_pacauc.comparison.pairs import Block, Pairs, bipartite
from pymc_pacauc.numerics import FloatArray, check_choice, kernel, numeric_array, slices

BUCKETS_PER_MEMBER = 4  # of the smaller class; half as many take 1.3 times as long, twice as many change nothing
COLLISIONS_PER_MEMBER = 8  # a row with more same-bucket pairs than this per member is sorted; doubled, nothing changes
# Scores computed before they are counted: about what a core's cache holds; twice as many change nothing measurable
TILE_SCORES = 2**18


@dataclass(frozen=True, eq=False)
class DistinctRows:
    """The distinct rows of a matrix.

    Attributes
    ----------
    first : ndarray of int
        Index of the first occurrence of each distinct row, shape (m,).
    place : ndarray of int
        For every row, the index of the distinct row that it equals, shape (n,).
    """

    first: NDArray[np.intp]
    place: NDArray[np.intp]

    @property
    def none_repeat(self) -> bool:
        return self.first.size == self.place.size

    def of(self, values: FloatArray) -> FloatArray:
        """Select the distinct rows, (m, ...), of ``values`` that have one entry per row, (n, ...)."""
        return values if self.none_repeat else values[self.first]

    def for_all(self, values: FloatArray) -> FloatArray:
        """Copy ``values`` of the distinct rows, (m, ...), to all rows that equal them, (n, ...)."""
        return values if self.none_repeat else values[self.place]


def distinct_rows(matrix: NDArray[np.float64]) -> DistinctRows:
    """Group equal rows of a finite ``matrix[n, d]``, in the order in which they first occur.

    Examples
    --------
    >>> distinct_rows(np.array([[1.0, 2.0], [0.0, 0.0], [1.0, 2.0], [-0.0, 0.0]])).place
    array([0, 1, 0, 1])
    """
    if matrix.shape[1] == 0:
        return DistinctRows(np.zeros(min(1, len(matrix)), dtype=np.intp), np.zeros(len(matrix), dtype=np.intp))
    rows = np.ascontiguousarray(matrix) + 0.0  # turns -0.0 into 0.0, so that equal rows have equal bytes
    mixed = np.zeros(len(rows))  # summed column by column: a matrix product may round equal rows differently
    with np.errstate(over="ignore", invalid="ignore"):
        for k, column in enumerate(rows.T):
            mixed += math.cos(k + 1.0) * column
    ordered = np.sort(mixed)
    if np.isfinite(ordered[[0, -1]]).all() and (ordered[1:] != ordered[:-1]).all():
        every = np.arange(len(rows), dtype=np.intp)
        return DistinctRows(every, every)
    as_bytes = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    _, first, place = np.unique(as_bytes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(order.size, dtype=np.intp)
    rank[order] = np.arange(order.size)
    return DistinctRows(first[order], rank[place.reshape(-1)])


def empirical_risk(
    scores: ArrayLike,
    y: ArrayLike,
    *,
    ties: str = "half",
    positive: Any = None,
    strata: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    ordered: bool = False,
    max_fpr: float | None = None,
    multi_class: str | None = None,
) -> Any:
    """Compute the exact pair risk of each score vector in a batch; ``1 - risk`` is the AUC.

    Parameters
    ----------
    scores : array_like or DataArray, shape (..., n)
        Array of shape ``(..., n)``: one score per observation, any number of leading batch dimensions. Infinities
        are ordered like any number; a vector with a NaN has risk NaN.
    y : array_like, shape (n,)
        Labels of length n: bool, {0, 1}, {-1, 1}, or any two values with ``positive``.
    ties : {"half", "strict"}, default "half"
        What a tied pair costs: ``"half"`` (the AUC's own convention) or ``"strict"`` (nothing, as the paper writes).
    positive : label, optional
        Which of the two labels is the positive class.
    strata : array_like, shape (n,), optional
        Compare within these groups only: one label per observation.
    weights : array_like, shape (n,), optional
        One positive number per observation; a pair weighs their product.
    ordered : bool, default False
        True for y with any number of values, the larger of which should score higher.
    max_fpr : float, optional
        Area under the ROC curve up to this false positive rate only, divided by it: a partial AUC; see
        :mod:`pymc_pacauc.comparison.kinds`.
    multi_class : {"ovo"}, optional
        ``"ovo"`` for K unordered classes with a score for each, ``scores[..., n, K]`` in the order of sorted labels:
        one minus Hand and Till's M, the mean over pairs of classes (k, l) of the AUC of score k between their rows;
        it goes with ``weights`` and ``strata``.

    Returns
    -------
    float or ndarray, shape (...)
        Share of the weight of wrongly ordered pairs, in [0, 1], of each score vector: shape ``scores.shape[:-1]``, or
        ``scores.shape[:-2]`` with ``multi_class="ovo"``.

    Raises
    ------
    ValueError
        If y does not have the classes asked for, shapes do not match, or options exclude each other.

    See Also
    --------
    auc_risk : The same as a PyTensor expression.
    concordance_risk : The same for censored times.
    auc_interval : AUC with an interval over rows.

    Examples
    --------
    >>> float(empirical_risk([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]))
    0.25
    >>> float(empirical_risk([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], weights=[1, 2, 1, 1]).round(4))
    0.3333
    """
    if multi_class is not None:
        if multi_class != "ovo":
            raise ValueError(f'multi_class must be "ovo" or None; got {multi_class!r}.')
        if positive is not None or ordered is not False or max_fpr is not None:
            raise ValueError('multi_class="ovo" goes with weights and strata, not with positive, ordered or max_fpr.')
        classes = unordered_classes(y, weights, strata)
        values, shape = score_array(scores), (classes[0].n, len(classes))
        if values.shape[-2:] != shape:
            raise ValueError(f"scores must have shape (..., {shape[0]} rows, {shape[1]} classes); got {values.shape}.")
        return np.mean([checked_risk(values[..., k], each, ties, "y") for k, each in enumerate(classes)], axis=0)
    comparison = label_comparison(
        y, positive=positive, strata=strata, weights=weights, ordered=ordered, max_fpr=max_fpr
    )
    return checked_risk(scores, comparison, ties, "y")


def checked_risk(scores: ArrayLike, comparison: Pairs, ties: str, labels: str) -> Any:
    """Check ``scores[..., n]`` and compute their risk; ``labels`` is the name of the labels' argument, for messages."""
    check_ties(ties)
    values = score_array(scores)
    if values.ndim == 0:
        raise ValueError("scores is a single number; it needs one score per observation along its last axis.")
    if values.shape[-1] != comparison.n:
        size = values.shape[-1]
        raise ValueError(f"scores has {size} observations along its last axis but {labels} has {comparison.n}.")
    rows = np.ascontiguousarray(values.reshape(-1, comparison.n))
    return pair_risk(rows, comparison, ties=ties).reshape(values.shape[:-1])[()]


def linear_risk(theta: ArrayLike, X: ArrayLike, y: ArrayLike, *, ties: str = "half", positive: Any = None) -> Any:
    """Compute the pair risk of the linear scores ``X @ theta`` for each coefficient vector ``theta[..., d]``.

    Equal to ``empirical_risk(theta @ X.T, y)``, in tiles: the scores of all vectors are never in memory together.
    Identical rows of X get identical scores, which a matrix product alone does not promise.

    Parameters
    ----------
    theta : array_like, shape (..., d)
        Coefficients; any number of leading batch dimensions.
    X : array_like, shape (n, d)
        Covariates, finite numbers.
    y : array_like, shape (n,)
        Labels: bool, {0, 1}, {-1, 1}, or any two values with ``positive``.
    ties : {"half", "strict"}, default "half"
        What a tied pair costs: one half, or nothing.
    positive : label, optional
        Which of the two labels is the positive class.

    Returns
    -------
    float or ndarray, shape (...)
        Risk of each coefficient vector, in [0, 1].

    Raises
    ------
    ValueError
        If a coefficient or covariate is NaN or infinite, scores overflow (they have no order then), or shapes differ.

    See Also
    --------
    empirical_risk : The same for scores.
    LinearRisk : The same for many calls on one X.

    Examples
    --------
    >>> linear_risk([[1.0], [-1.0]], [[0.0], [1.0], [2.0]], [0, 0, 1])
    array([0., 1.])
    """
    coefficients = numeric_array("theta", theta)
    risk = LinearRisk(numeric_array("X", X), bipartite(y, positive), ties=ties)
    if coefficients.ndim == 0 or coefficients.shape[-1] != risk.d:
        raise ValueError(f"theta must have {risk.d} coefficients along its last axis; got shape {coefficients.shape}.")
    bad = int(coefficients.size - np.isfinite(coefficients).sum())
    if bad:
        raise ValueError(f"theta has {bad} NaN or infinite value(s): the scores X @ theta would have no order.")
    batch = coefficients.shape[:-1]
    found = risk(coefficients.reshape(math.prod(batch), risk.d))
    overflowed = int(np.isnan(found).sum())
    if overflowed:
        raise ValueError(
            f"The scores X @ theta overflow for {overflowed} of {found.size} coefficient vectors; "
            "divide theta or X by a constant, which leaves the ranking as it is."
        )
    return found.reshape(batch)[()]


class LinearRisk:
    """Map coefficients ``theta[N, d]`` to the risks of the scores ``X @ theta + offset``, shape (N,).

    The samplers call it for every move. The columns of every tile of scores are the *distinct* rows of X, so duplicates
    tie exactly. A theta whose scores are not all finite (it is itself NaN or infinite, or they overflow) has risk NaN,
    which a sampler counts as a failed point, without weight.

    Parameters
    ----------
    X : ndarray, shape (n, d)
        Covariates, finite numbers.
    pairs : Pairs
        Pairs of the n rows.
    offset : ndarray, shape (n,), optional
        Added to the scores; by default zero.
    ties : {"half", "strict"}, default "half"
        What a tied pair costs: one half, or nothing.
    distinct : DistinctRows, optional
        The distinct rows of X, where they are known already.

    Raises
    ------
    ValueError
        If X is not a matrix of finite numbers with one row per observation of ``pairs``.

    See Also
    --------
    linear_risk : The same as a function of X and labels.

    Examples
    --------
    >>> from pymc_pacauc import arrays
    >>> risk = arrays.LinearRisk(np.array([[0.0], [1.0], [2.0]]), arrays.bipartite([0, 0, 1]))
    >>> risk(np.array([[1.0], [-1.0]]))
    array([0., 1.])
    """

    def __init__(
        self,
        X: FloatArray,
        pairs: Pairs,
        *,
        offset: FloatArray | None = None,
        ties: str = "half",
        distinct: DistinctRows | None = None,
    ):
        check_ties(ties)
        if X.ndim != 2 or X.shape[0] != pairs.n:
            raise ValueError(f"X must have shape (n, d) with n = {pairs.n}, the number of labels; got {X.shape}.")
        bad = int(X.size - np.isfinite(X).sum())
        if bad:
            raise ValueError(f"X has {bad} NaN or infinite value(s); impute or drop them first.")
        self.d = X.shape[1]
        self.ties = ties
        if distinct is None:
            distinct = distinct_rows(X if offset is None else np.column_stack([X, offset]))
        self.pairs = pairs.map(distinct.place, distinct.first.size)
        self._design = np.ascontiguousarray(X[distinct.first].T)
        self._offset = None if offset is None else offset[distinct.first]

    def __call__(self, theta: FloatArray) -> FloatArray:
        out = np.empty(len(theta))
        columns = self._design.shape[1]
        tile = int(np.clip(TILE_SCORES // columns, 4, 256))
        for start in range(0, len(theta), tile):
            some = theta[start : start + tile]
            with np.errstate(over="ignore", invalid="ignore"):
                scores = some @ self._design
                if self._offset is not None:
                    scores += self._offset
            risks = pair_risk(scores, self.pairs, ties=self.ties)
            out[start : start + tile] = np.where(np.isfinite(scores).all(axis=1), risks, np.nan)
        return out


def pair_risk(scores: FloatArray, pairs: Pairs, *, ties: str = "half") -> FloatArray:
    """Compute the risk of each row of ``scores[N, n]`` over given pairs.

    Parameters
    ----------
    scores : ndarray, shape (N, n)
        One score per observation, in N vectors.
    pairs : Pairs
        Pairs of the n observations.
    ties : {"half", "strict"}, default "half"
        What a tied pair costs: one half, or nothing.

    Returns
    -------
    ndarray, shape (N,)
        Share of the weight of wrongly ordered pairs, in [0, 1]; NaN for a vector with a NaN.

    Raises
    ------
    ValueError
        If lengths differ, or ``ties`` is not defined for the pairs.

    See Also
    --------
    empirical_risk : The same from labels, with checks.

    Examples
    --------
    >>> from pymc_pacauc import arrays
    >>> arrays.pair_risk(np.array([[0.1, 0.4, 0.35, 0.8]]), arrays.bipartite([0, 0, 1, 1]))
    array([0.25])
    """
    if pairs.partial and ties != "half":
        raise ValueError(f'ties={ties!r} is not defined for a partial AUC (max_fpr=), an area: use ties="half".')
    tie_cost = 0.5 if ties == "half" else 0.0
    # Up to eight blocks are counted one by one, more by one pass over the sorted scores. With sixteen, a thousand score
    # vectors of 9 to 16 strata take 0.3 (200 rows each) to 0.9 of the time (6 rows), a single vector 9 times as long.
    if pairs.partial or len(pairs.blocks) > 8 or not all(block.constant for block in pairs.blocks):
        return _scanned_risk(scores, pairs, tie_cost)
    wrong = np.zeros(len(scores))
    for block in pairs.blocks:
        wrong += block.weight * _count_block(scores, block, tie_cost)
    risks, uncounted = wrong / pairs.total_weight, np.isnan(wrong)
    if uncounted.any():
        risks[uncounted] = _scanned_risk(scores[uncounted], pairs, tie_cost)
    return risks


def _scanned_risk(scores: FloatArray, pairs: Pairs, tie_cost: float) -> FloatArray:
    """Compute the risk of any pairs by sorting, in tiles of score vectors."""
    counted = np.inf
    if pairs.partial:
        counted = pairs.max_fpr * float(pairs.blocks[0].column_weights.sum())
    out = np.empty(len(scores))
    for rows in slices(len(scores), scores.shape[1], TILE_SCORES):
        order = np.argsort(scores[rows], axis=1)
        out[rows] = _scan(scores[rows], order, *pairs.memberships, len(pairs.blocks), tie_cost, counted)
    return out / (pairs.max_fpr * pairs.total_weight)


@kernel
def _scan(scores, order, p_start, p_block, p_weight, n_start, n_block, n_weight, blocks, tie_cost, counted):
    """Sum the weights of the wrong pairs for each row of ``scores[N, n]``, sorted by ``order``; NaN where one is NaN.

    Of observations with equal scores, the negatives first add ``tie_cost`` of their weight, the rest afterwards. If
    ``counted`` is finite there is one block, and only the highest negatives, of this total weight, count.
    """
    n = scores.shape[1]
    out = np.empty(scores.shape[0])
    above = np.empty(blocks)  # weight of the negatives so far, for each block
    for r in range(scores.shape[0]):
        row, ranked = scores[r], order[r]
        if np.isnan(row[ranked[n - 1]]):  # NaN sorts last
            out[r] = np.nan
            continue
        for k in range(blocks):
            above[k] = 0.0
        wrong = 0.0
        end = n
        while end > 0:
            first = end - 1
            while first > 0 and row[ranked[first - 1]] == row[ranked[first]]:
                first -= 1
            tied = ranked[first:end]
            share = 1.0  # of these negatives, which counts
            if counted < np.inf:
                weight = 0.0
                for i in tied:
                    for t in range(n_start[i], n_start[i + 1]):
                        weight += n_weight[t]
                share = max(0.0, min(1.0, (counted - above[0]) / weight)) if weight > 0.0 else 0.0
            later = share * share * (1.0 - tie_cost)
            for i in tied:
                for t in range(n_start[i], n_start[i + 1]):
                    above[n_block[t]] += (share - later) * n_weight[t]
            for i in tied:
                for t in range(p_start[i], p_start[i + 1]):
                    wrong += p_weight[t] * above[p_block[t]]
            for i in tied:
                for t in range(n_start[i], n_start[i + 1]):
                    above[n_block[t]] += later * n_weight[t]
            end = first
        out[r] = wrong
    return out


def check_ties(ties: str) -> None:
    check_choice("ties", ties, ("half", "strict"))


def score_array(scores: ArrayLike) -> FloatArray:
    """Return scores as an array of float64 with the same ranking.

    Integers from 2^53 on, and numbers of other types, may differ although their float64 do not: such are refused.
    """
    values = numeric_array("scores", scores)
    given = np.asarray(scores)
    doubtful = given.dtype.kind == "O" or given.dtype.itemsize > 8
    if doubtful or (given.dtype.kind in "iu" and (np.abs(values) >= 2.0**53).any()):
        known = ~np.isnan(values)
        if len(set(given[known].tolist())) != len(set(values[known].tolist())):
            raise ValueError("scores has different values equal as float64: pass their ranks, scipy.stats.rankdata.")
    return values


def _count_block(scores: FloatArray, block: Block, tie_cost: float) -> FloatArray:
    """Count for each row the pairs with s_i < s_j, and those with s_i = s_j times ``tie_cost``; NaN if not counted."""
    swapped = block.positive.size > block.negative.size
    small, large = (block.negative, block.positive) if swapped else (block.positive, block.negative)
    buckets, p, m = BUCKETS_PER_MEMBER * small.size, small.size, large.size
    # Made here: numba takes a tenth of a second to compile each way of making an array.
    below, at_most = np.full((2, len(scores)), np.nan)  # pairs with small < large, and with small <= large
    room = (
        np.empty(p),
        np.empty(m),
        np.empty(p + 1),
        np.empty(buckets + 2, np.int32),
        *np.empty((2, max(p, m)), np.int32),
    )
    _bucket_rows(scores, small, large, below, at_most, *room)
    return (block.n_pairs - at_most if swapped else below) + tie_cost * (at_most - below)


@kernel
def _bucket_rows(scores, small, large, below, at_most, a, b, bucketed, start, index_a, index_b):
    """Count #{a_i < b_j} and #{a_i <= b_j} of every row by buckets, (N,) each, except where these fill unevenly."""
    p, m, buckets = small.size, large.size, start.size - 2
    for r in range(scores.shape[0]):
        row = scores[r]
        for i in range(p):
            a[i] = row[small[i]]
        for j in range(m):
            b[j] = row[large[j]]
        sum_a, square_a = _moments(a)
        sum_b, square_b = _moments(b)
        mean = (sum_a + sum_b) / (p + m)
        sd = np.sqrt((square_a + square_b) / (p + m) - mean * mean)
        scale = buckets / (6.0 * sd)
        # NaN, infinity, squares that overflow, or no spread
        if not (np.isfinite(mean) and np.isfinite(sd) and np.isfinite(scale) and sd > 1e-7 * abs(mean)):
            continue
        low = mean - 3.0 * sd
        _bucket_index(a, low, scale, buckets - 1.0, index_a)
        _bucket_index(b, low, scale, buckets - 1.0, index_b)
        for k in range(start.size):
            start[k] = 0
        for i in range(p):
            start[index_a[i] + 2] += 1
        total = np.int32(0)
        collisions = 0
        for k in range(2, buckets + 2):
            count = start[k]
            collisions += count * count
            total += count
            start[k] = total
        if collisions > COLLISIONS_PER_MEMBER * p:
            continue
        for i in range(p):  # counting sort: afterwards bucket k is bucketed[start[k]:start[k + 1]]
            k = index_a[i] + 1
            slot = start[k]
            bucketed[slot] = a[i]
            start[k] = slot + np.int32(1)
        bucketed[p] = np.inf
        less = less_equal = 0
        for j in range(m):
            x = b[j]
            first, end = start[index_b[j]], start[index_b[j] + 1]
            # The first comparison needs no branch: if the bucket is empty, bucketed[first] is in a higher one, and > x.
            less += first + (bucketed[first] < x)
            less_equal += first + (bucketed[first] <= x)
            for t in range(first + 1, end):
                less += bucketed[t] < x
                less_equal += bucketed[t] <= x
        below[r] = less
        at_most[r] = less_equal


@kernel(fastmath={"reassoc", "contract", "nsz"}, no_cpython_wrapper=True)
def _moments(values):
    total = square = 0.0
    for i in range(values.size):
        total += values[i]
        square += values[i] * values[i]
    return total, square


@kernel(fastmath={"nnan", "ninf", "nsz"}, no_cpython_wrapper=True)
def _bucket_index(values, low, scale, last, index):
    """Map scores to buckets, without changing their order: subtraction, multiplication and truncation are monotone."""
    for i in range(values.size):
        index[i] = np.int32(min(max((values[i] - low) * scale, 0.0), last))
