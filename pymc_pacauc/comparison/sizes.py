"""Sizes of a comparison: the number of observations for the default gamma, and of independent pairs for certificates.

*Size* (:func:`row_shares`). A risk is a weighted mean over pairs. Let ``a_i`` be the share of the weight in pairs where
observation i should score higher, ``b_i`` the share where it should score lower. To first order (Hoeffding's
projection) the mean is a sum of independent terms over observations, each multiplied by its share, so its variance is
of the order of

    sum a_i^2 + sum b_i^2 = 1 / size.

For two classes without weights the size is n+ n- / n; Theorem 2.3's gamma is a quarter of it, the default gamma four
times it. The formula extends both to strata, weights, ordered classes and censored times.

*Number of independent pairs* m (:func:`effective_size`), in the bounds of :mod:`pymc_pacauc.certify`. Given the labels
(classes, times, strata, weights), the covariates of different observations are independent, and the risk is a
weighted mean over the edges of a graph: observations are vertices, pairs are edges, weights add up to 1. Let Delta be
the largest total weight at one vertex. The weights divided by Delta are a *fractional matching*: at every vertex they
add up to at most 1. In a bipartite graph such weights are a mean of matchings (Birkhoff and von Neumann); in any graph
two thirds of them are (Edmonds). A matching is a set of pairs without a common observation, hence of independent
comparisons, and its mean number of pairs is

    m = 1 / Delta,    or    m = 2 / (3 Delta)    in a graph that is not bipartite.

Where observations come in *groups* (visits of one patient), only groups are independent, and they are the vertices:
Delta is the largest total weight of the pairs that touch one group, and the graph is bipartite if every group is on one
side of its pairs only. Two classes without weights have m = min(n+, n-). A partial AUC is not a mean over fixed pairs,
and estimated weights are not fixed given the labels: then there is no m. ``docs/theory/certificates.md`` has the proof
that PAC-Bayesian bounds hold with this m. Both sizes take sums over the sides of all blocks, O(n log n) at most.

References: Hoeffding (1948), doi:10.1214/aoms/1177730196; Edmonds (1965), doi:10.6028/jres.069B.013; Ridgway, Alquier,
Chopin & Liang (2014), arXiv:1410.1771, Theorem 2.3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pymc_pacauc.comparison.pairs import Pairs, label_codes


@dataclass(frozen=True)
class RowShares:
    """Sums of squares of the shares that observations and pairs have in the weight of all pairs.

    Attributes
    ----------
    higher, lower : float
        Sums of a_i^2 and of b_i^2 over observations, see the module docstring.
    pair : float
        Sum of the squared shares of single pairs.
    """

    higher: float
    lower: float
    pair: float

    @property
    def size(self) -> float:
        """Effective number of observations: n+ n- / n for two classes without weights."""
        return 1.0 / (self.higher + self.lower)

    @property
    def pairs(self) -> float:
        """Effective number of pairs: their number, where all have the same weight."""
        return 1.0 / self.pair


def row_shares(pairs: Pairs) -> RowShares:
    """Compute the shares of any pairs; of a partial AUC, for the highest ``max_fpr`` of the negatives.

    Examples
    --------
    >>> from pymc_pacauc.comparison.pairs import bipartite
    >>> shares = row_shares(bipartite([1, 1, 0, 0, 0]))
    >>> round(shares.size, 3), round(shares.pairs, 3)  # 2 * 3 / 5 and 2 * 3
    (1.2, 6.0)
    """
    sides, total = [(b.row_weights, b.column_weights) for b in pairs.blocks], pairs.total_weight
    pair = sum(float((rows @ rows) * (columns @ columns)) for rows, columns in sides)
    up, down = pairs.side_weights / total
    return RowShares(float(up @ up), float(down @ down) / pairs.max_fpr, pair / total**2 / pairs.max_fpr)


def effective_size(pairs: Pairs, groups: ArrayLike | None = None) -> float:
    """Compute m, the effective number of independent pairs: at least 1; 0 where there is no bound.

    Parameters
    ----------
    pairs : Pairs
        The pairs compared.
    groups : array_like, shape (n,), optional
        Group label of each observation; then groups are independent, not observations.

    Returns
    -------
    float
        m; see the module docstring.

    Examples
    --------
    >>> from pymc_pacauc.comparison.pairs import bipartite
    >>> effective_size(bipartite([1, 1, 0, 0, 0]))
    2.0
    >>> effective_size(bipartite([1, 1, 1, 1, 0, 0, 0, 0]), groups=[0, 0, 1, 1, 2, 2, 3, 3])
    2.0
    """
    if pairs.partial or pairs.estimated_weights:
        return 0.0
    codes = np.arange(pairs.n) if groups is None else label_codes("groups", groups, pairs.n)
    number = int(codes.max()) + 1
    if number == pairs.n and len(pairs.blocks) == 1 and pairs.blocks[0].constant:
        [block] = pairs.blocks  # the same without rounding, which would hide that all matchings have one size
        return float(min(block.positive.size, block.negative.size))
    weight, sides = np.zeros(number), np.zeros((2, number), dtype=bool)
    for block in pairs.blocks:
        rows, columns = codes[block.positive], codes[block.negative]
        present, place = np.unique(np.concatenate([rows, columns]), return_inverse=True)
        higher = np.bincount(place[: rows.size], block.row_weights, present.size)
        lower = np.bincount(place[rows.size :], block.column_weights, present.size)
        within = higher * lower if groups is not None else 0.0  # pairs within a group, which count once
        weight[present] += higher * lower.sum() + lower * higher.sum() - within
        sides[0, rows] = sides[1, columns] = True
    share = float(weight.max() / pairs.total_weight)
    return max(1.0, (2.0 / 3.0 if (sides[0] & sides[1]).any() else 1.0) / share)
