"""How many independent comparisons some pairs are worth: the m of a certificate.

Given the labels (classes, times, strata, weights), the covariates of different observations are independent, and the
risk is a weighted mean over the edges of a graph: the observations are its vertices, the pairs its edges, with weights
that add up to 1. Let Delta be the largest total weight on one observation. Divided by Delta the weights are a
*fractional matching*: at every vertex they add up to 1 at most. Where the graph is bipartite, such weights are a mean
of matchings (Birkhoff and von Neumann); in any graph two thirds of them are (Edmonds). A matching is a set of pairs
without a common observation, hence of independent comparisons, and the mean number of its pairs is

    m = 1 / Delta,    or    m = 2 / (3 Delta)    in a graph that is not bipartite.

`docs/certificates.md` has the proof that the PAC-Bayesian bounds hold with this m. Two classes, all pairs weighing the
same, have Delta = 1 / min(n+, n-). A partial AUC is no such mean, and estimated weights are not given: there is no m.
"""

from __future__ import annotations

import numpy as np

from pymc_pacauc.core.comparisons import Comparison
from pymc_pacauc.core.pairs import Pairs

__all__ = ["compared_share", "effective_size"]


def effective_size(comparison: Comparison) -> float:
    """m, at least 1; 0 where there is no bound.

    Examples
    --------
    >>> from pymc_pacauc.core.pairs import bipartite
    >>> effective_size(bipartite([1, 1, 0, 0, 0]))
    2.0
    """
    if not isinstance(comparison, Pairs) or comparison.estimated_weights:
        return 0.0
    sides = np.zeros((2, comparison.n), dtype=bool)
    for block in comparison.blocks:
        sides[0, block.positive] = sides[1, block.negative] = True
    if len(comparison.blocks) == 1 and comparison.blocks[0].constant:
        [block] = comparison.blocks
        return float(min(block.positive.size, block.negative.size))
    share = float(comparison.observation_weight.max() / comparison.total_weight)
    bipartite = not (sides[0] & sides[1]).any()
    return max(1.0, 1.0 / share if bipartite else 2.0 / (3.0 * share))


def compared_share(comparison: Comparison) -> float:
    """The share of all n (n - 1) / 2 pairs that are compared, where these weigh the same; else 0.

    If observations are drawn independently, labels and all, the risk times this share is a U-statistic of floor(n / 2).

    Examples
    --------
    >>> from pymc_pacauc.core.pairs import bipartite
    >>> compared_share(bipartite([1, 1, 0, 0, 0]))
    0.6
    """
    if not isinstance(comparison, Pairs) or comparison.weighted:
        return 0.0
    return comparison.n_pairs / (comparison.n * (comparison.n - 1) / 2)
