"""What each observation weighs in a comparison, and the size that follows from it.

A risk is a weighted mean over pairs. Let ``a_i`` be the share of that weight in which observation i should score
higher, ``b_i`` the one in which it should score lower. To first order a mean over pairs is a sum over observations of
independent terms, each multiplied by its share (Hoeffding's projection), so its variance is of the order of

    sum a_i^2 + sum b_i^2 = 1 / size.

For two classes, all pairs weighing the same, the size is n+ n- / n, of which Theorem 2.3's gamma is a quarter and the
default gamma four times; for strata, weights, ordered classes and censored times it is what takes its place.

How many independent comparisons some pairs are worth: the m of a certificate.

Given the labels (classes, times, strata, weights), the covariates of different observations are independent, and the
risk is a weighted mean over the edges of a graph: the observations are its vertices, the pairs its edges, with weights
that add up to 1. Let Delta be the largest total weight on one observation. Divided by Delta the weights are a
*fractional matching*: at every vertex they add up to 1 at most. Where the graph is bipartite, such weights are a mean
of matchings (Birkhoff and von Neumann); in any graph two thirds of them are (Edmonds). A matching is a set of pairs
without a common observation, hence of independent comparisons, and the mean number of its pairs is

    m = 1 / Delta,    or    m = 2 / (3 Delta)    in a graph that is not bipartite.

Where observations come in *groups* (visits of one patient), only groups are independent, and they are the vertices:
Delta is the largest total weight of the pairs that touch one group, and the graph is bipartite where every group is
pure, on one side of its pairs only.

`docs/theory/certificates.md` proves that the PAC-Bayesian bounds hold with this m. Two classes, all pairs weighing the
same, have Delta = 1 / min(n+, n-). A partial AUC is no such mean, and estimated weights are not given: there is no m.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_pacauc.comparison.kinds import Comparison
from pymc_pacauc.comparison.pairs import Pairs, distinct_labels


@dataclass(frozen=True)
class RowShares:
    """Sums of squares of the shares in the weight of a comparison.

    Attributes
    ----------
    higher, lower
        Over observations, as the one that should score higher, and lower.
    pair
        Over pairs.
    """

    higher: float
    lower: float
    pair: float

    @property
    def size(self) -> float:
        """Observations that the comparison is worth: n+ n- / n for two classes."""
        return 1.0 / (self.higher + self.lower)

    @property
    def pairs(self) -> float:
        """Pairs that it is worth: their number, where all weigh the same."""
        return 1.0 / self.pair


def row_shares(comparison: Comparison) -> RowShares:
    """Of any comparison; in a partial AUC the highest negatives count, about ``max_fpr`` of them.

    Examples
    --------
    >>> from pymc_pacauc.comparison.pairs import bipartite
    >>> shares = row_shares(bipartite([1, 1, 0, 0, 0]))
    >>> round(shares.size, 3), round(shares.pairs, 3)  # 2 * 3 / 5 and 2 * 3
    (1.2, 6.0)
    """
    if not isinstance(comparison, Pairs):
        weights = np.ones(comparison.n) if comparison.weights is None else comparison.weights
        a, b = (weights[mask] / weights[mask].sum() for mask in (comparison.positive, ~comparison.positive))
        higher, lower = float(a @ a), float(b @ b) / comparison.max_fpr
        return RowShares(higher, lower, higher * lower)
    up, down, pair = np.zeros(comparison.n), np.zeros(comparison.n), 0.0
    for block in comparison.blocks:
        rows, columns = block.row_weights, block.column_weights
        np.add.at(up, block.positive, rows * columns.sum())
        np.add.at(down, block.negative, columns * rows.sum())
        pair += float((rows @ rows) * (columns @ columns))
    total = comparison.total_weight
    up, down = up / total, down / total
    return RowShares(float(up @ up), float(down @ down), pair / total**2)


def group_codes(groups: ArrayLike, n: int) -> NDArray[np.intp]:
    """Labels of groups, one per observation, as integers from 0 on."""
    if np.shape(groups) != (n,):
        raise ValueError(f"groups must have shape ({n},), one label per observation; got {np.shape(groups)}.")
    return distinct_labels("groups", groups)[1]


def effective_size(comparison: Comparison, groups: ArrayLike | None = None) -> float:
    """m, at least 1; 0 where there is no bound.

    Parameters
    ----------
    comparison : Pairs or PartialAUC
        What is compared.
    groups : array-like of shape (n,), optional
        Group label of each observation; groups are independent then, not observations.

    Examples
    --------
    >>> from pymc_pacauc.comparison.pairs import bipartite
    >>> effective_size(bipartite([1, 1, 0, 0, 0]))
    2.0
    >>> effective_size(bipartite([1, 1, 1, 1, 0, 0, 0, 0]), groups=[0, 0, 1, 1, 2, 2, 3, 3])
    2.0
    """
    if not isinstance(comparison, Pairs) or comparison.estimated_weights:
        return 0.0
    codes = np.arange(comparison.n) if groups is None else group_codes(groups, comparison.n)
    number = int(codes.max()) + 1
    if number == comparison.n and len(comparison.blocks) == 1 and comparison.blocks[0].constant:
        [block] = comparison.blocks
        return float(min(block.positive.size, block.negative.size))
    weight, sides = np.zeros(number), np.zeros((2, number), dtype=bool)
    for block in comparison.blocks:
        rows, columns = codes[block.positive], codes[block.negative]
        present, place = np.unique(np.concatenate([rows, columns]), return_inverse=True)
        higher = np.bincount(place[: rows.size], block.row_weights, present.size)
        lower = np.bincount(place[rows.size :], block.column_weights, present.size)
        within = higher * lower if groups is not None else 0.0  # pairs within a group, which count once
        weight[present] += higher * lower.sum() + lower * higher.sum() - within
        sides[0, rows] = sides[1, columns] = True
    share = float(weight.max() / comparison.total_weight)
    return max(1.0, (2.0 / 3.0 if (sides[0] & sides[1]).any() else 1.0) / share)


def compared_share(comparison: Comparison) -> float:
    """The share of all n (n - 1) / 2 pairs that are compared, where these weigh the same; else 0.

    If observations are drawn independently, labels and all, the risk times this share is a U-statistic of floor(n / 2).

    Examples
    --------
    >>> from pymc_pacauc.comparison.pairs import bipartite
    >>> compared_share(bipartite([1, 1, 0, 0, 0]))
    0.6
    """
    if not isinstance(comparison, Pairs) or comparison.weighted:
        return 0.0
    return comparison.n_pairs / (comparison.n * (comparison.n - 1) / 2)
