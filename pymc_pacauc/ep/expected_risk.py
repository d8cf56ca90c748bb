"""E_q[risk] over all pairs without visiting them: what a certificate needs of a fit on dealt pairs.

Under q the pair (i, j) is wrong with probability Phi(-rho_ij), which has a closed form; its mean over all pairs is the
matter. Ranking by the mean of q gets pairs wrong that can be counted, all of them, in O(n log n), and most pairs are
right or wrong for certain, so that the two hardly differ:

    E_q[risk] = risk(mean of q) + mean over all pairs of [Phi(-rho_ij) - 1{a_i < a_j}].

The second mean is estimated from pairs drawn independently, each in proportion to its weight. Its terms lie in
[-1/2, 1/2], so that its error has a bound that is a theorem, not an approximation
(:func:`pymc_pacauc.core.bounds.mean_bound`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.special import ndtr

from pymc_pacauc.core.pairs import Block, Pairs
from pymc_pacauc.core.problem import Problem
from pymc_pacauc.core.risk import pair_risk
from pymc_pacauc.ep.natural import NaturalGaussian
from pymc_pacauc.ep.weighted_sites import TIED

__all__ = ["sampled_expected_risk"]

FloatArray = NDArray[np.float64]

AT_ONCE = 2**16  # pairs


def sampled_expected_risk(
    problem: Problem, q: NaturalGaussian, count: int, rng: np.random.Generator
) -> tuple[float, float]:
    """E_q[risk], every tie costing one half, from ``count`` independent pairs; and its standard error.

    ``q`` is a Gaussian of the problem's reduced coefficients.
    """
    space = problem.scores.reduced
    mean = space.design @ q.mean + space.offset
    total = square = 0.0
    for start in range(0, count, AT_ONCE):
        i, j = draw_pairs(problem.pairs, min(AT_ONCE, count - start), rng)
        rows = space.design[i] - space.design[j]
        root = linalg.solve_triangular(q.factor, rows.T, lower=True, check_finite=False)
        variance = np.einsum("ij,ij->j", root, root)
        size = np.einsum("ij,ij->i", rows, rows)
        difference = mean[i] - mean[j]
        counted = 0.5 - 0.5 * np.sign(difference)
        equal = size <= TIED * np.einsum("ij,ij->i", space.design[i], space.design[i])
        wrong = ndtr(-difference / np.sqrt(np.where(equal, 1.0, variance)))
        apart = space.offset[i] - space.offset[j]
        terms = np.where(equal, 0.5 - 0.5 * np.sign(apart), wrong) - counted
        total += float(terms.sum())
        square += float(terms @ terms)
    average = total / count
    error = np.sqrt(max(square / count - average**2, 0.0) / (count - 1))
    return float(pair_risk(mean[None], problem.pairs)[0]) + average, float(error)


def draw_pairs(pairs: Pairs, count: int, rng: np.random.Generator) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Independent pairs, each with a probability in proportion to its weight."""
    share = np.array([block.total_weight for block in pairs.blocks])
    in_block = rng.multinomial(count, share / share.sum())
    drawn = [_draw_from(block, size, rng) for block, size in zip(pairs.blocks, in_block, strict=True) if size]
    return np.concatenate([i for i, _ in drawn]), np.concatenate([j for _, j in drawn])


def _draw_from(block: Block, size: int, rng: np.random.Generator) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    return (
        _draw_side(block.positive, block.positive_weights, size, rng),
        _draw_side(block.negative, block.negative_weights, size, rng),
    )


def _draw_side(
    index: NDArray[np.intp], weights: FloatArray | None, size: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    if weights is None:
        return index[rng.integers(index.size, size=size)]
    return rng.choice(index, size=size, p=weights / weights.sum())
