"""The bound of :mod:`pymc_pacauc.core.matchings` for draws from a Gaussian.

It needs E[L], L = log mean over matchings of exp(-beta W), for scores drawn from a Gaussian; that has no closed form.
But by Jensen's inequality

    L = -beta W_mean + D,    D >= 0,    W_mean the mean over matchings of the number of wrong pairs,

and E[W_mean] has one: every pair is wrong with a probability that is known. Only E[D] is left to draws. As D is
positive, min(D, limit) can take its place, for any limit fixed in advance, and the mean of such bounded terms has a
bound that is a theorem (:func:`pymc_pacauc.core.bounds.mean_bound`). It fails with probability delta over the draws,
whatever the data, and delta is a part of epsilon.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from pymc_pacauc.core.bounds import mean_bound
from pymc_pacauc.core.matchings import MatchingDeal, matching_bound, matching_rate
from pymc_pacauc.core.pairs import Block, Pairs
from pymc_pacauc.core.problem import Problem
from pymc_pacauc.ep.leave_out import expected_pair_auc
from pymc_pacauc.ep.natural import NaturalGaussian

__all__ = ["DrawsBound", "GaussianScores", "bound_of_draws", "mean_log_moment", "scores_under"]

FloatArray = NDArray[np.float64]

MOST_DRAWS, FEWEST_DRAWS, ROWS_DRAWN = 1000, 200, 2_000_000
CELLS_AT_ONCE = 2**21
FOR_THE_DRAWS = 0.1  # delta, as a share of epsilon
LIMIT = 4.0  # of D, in units of the nats that the bound is tuned for


@dataclass(frozen=True, eq=False)
class GaussianScores:
    """Scores ``mean[n] + (root @ z)[kind]``, z ~ N(0, I): rows of one ``kind`` always differ by the same number."""

    mean: FloatArray
    root: FloatArray
    kind: NDArray[np.intp]

    def draw(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Shape (draws, n)."""
        return np.asarray(self.mean + (rng.standard_normal((draws, self.root.shape[1])) @ self.root.T)[:, self.kind])


@dataclass(frozen=True)
class DrawsBound:
    """An upper bound on the expected ``risk`` of a draw.

    Attributes
    ----------
    risk
        The bound.
    rate
        At which it was computed.
    margin
        Nats by which E[L] was taken lower than ``draws`` draws make it.
    draws
        How many.
    """

    risk: float
    rate: float
    margin: float
    draws: int


def scores_under(problem: Problem, q: NaturalGaussian, rows: NDArray[np.bool_]) -> GaussianScores:
    """Scores of some of the problem's rows, its reduced coefficients drawn from ``q``."""
    space, distinct = problem.scores.reduced, problem.scores.distinct
    design, kind = space.design[distinct.first], distinct.place[rows]
    mean = (design @ q.mean)[kind] + space.offset[rows]
    root = linalg.solve_triangular(q.factor, design.T, lower=True, check_finite=False).T
    return GaussianScores(mean, root, kind)


def bound_of_draws(
    scores: GaussianScores,
    divergence: float,
    deal: MatchingDeal,
    typical: float,
    epsilon: float = 0.05,
    *,
    rng: np.random.Generator,
    rate: float | None = None,
    compared: int = 1,
) -> DrawsBound:
    """Bound the risk of a draw of ``scores``, from a Gaussian of that ``divergence`` from a prior fixed in advance.

    ``typical`` is a divergence guessed before looking, by which the rate (if none is given) and the limit are chosen.
    PAC-Bayes holds for all posteriors at once, but draws say something of one: if it may be the best of several, of
    which each has its bound, ``compared`` says of how many.
    """
    n_pos = int(deal.positive.sum())
    if rate is None:
        rate = matching_rate(n_pos, deal.positive.size - n_pos, typical, epsilon)
    limit, delta = LIMIT * (typical - math.log(epsilon)), FOR_THE_DRAWS * epsilon
    estimate, safe, draws = mean_log_moment(scores, deal, rate / deal.m, limit=limit, delta=delta / compared, rng=rng)
    risk = matching_bound(safe, divergence, deal.m, epsilon - delta, rate=rate)
    return DrawsBound(risk, rate, estimate - safe, draws)


def mean_log_moment(
    scores: GaussianScores, deal: MatchingDeal, beta: float, *, limit: float, delta: float, rng: np.random.Generator
) -> tuple[float, float, int]:
    """E[L] from draws; what it is at least, except with probability ``delta``; and the number of draws."""
    pairs = _matched_pairs(deal)
    expected = deal.m * (1.0 - expected_pair_auc(scores.mean, scores.root[scores.kind], pairs))
    draws = int(np.clip(ROWS_DRAWN // deal.m, FEWEST_DRAWS, MOST_DRAWS))
    at_once = max(1, CELLS_AT_ONCE // scores.mean.size)
    excess: list[float] = []
    while len(excess) < draws:
        for one in scores.draw(min(at_once, draws - len(excess)), rng):
            found = deal.of(one)
            excess.append(found.log_moment(beta) + beta * found.mean_wrong)
    share = np.clip(np.array(excess) / limit, 0.0, 1.0)
    error = float(share.std(ddof=1) / np.sqrt(draws))
    least = max(0.0, 1.0 - mean_bound(1.0 - float(share.mean()), error, draws, delta))
    return float(np.mean(excess)) - beta * expected, limit * least - beta * expected, draws


def _matched_pairs(deal: MatchingDeal) -> Pairs:
    """The pairs that can be matched, each with its share of the matchings."""
    blocks = []
    for group in deal.groups:
        positive, negative = group[deal.positive[group]], group[~deal.positive[group]]
        weight = 1.0 / max(positive.size, negative.size)
        columns = max(1, CELLS_AT_ONCE // positive.size)
        for start in range(0, negative.size, columns):
            blocks.append(Block(positive, negative[start : start + columns], weight=weight))
    return Pairs(deal.positive.size, tuple(blocks))
