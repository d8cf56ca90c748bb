"""The tightest bounds on an AUC of two classes: exponential moments averaged over all matchings of the rows.

*The bound.* Match every row of the smaller class, of size m, with a different row of the larger class, of size N, at
random. The pairs of one matching are independent, so the number W of wrong ones is binomial with parameters m and
R = 1 - AUC, and for every beta > 0

    E exp(-beta W) = (1 - (1 - exp(-beta)) R)^m.

The *mean over all matchings* of exp(-beta W) has the same expectation, and Markov's inequality bounds R
(:func:`~pymc_pacauc.certify.bounds.matching_bound`). The other bounds of that module use exp(-beta m R_n) instead,
which is smaller by Jensen's inequality: they lose the variance of W over matchings of the same rows. With it the bound
behaves like a normal interval with the true variance of the AUC, zeta_+ / n+ + zeta_- / n-, instead of R (1 - R) / m,
which is more than twice as large; yet it holds for every m and all distributions. Proof:
``docs/theory/certificates.md``.

*Computing the mean.* It is a permanent, of a matrix of zeros and ones that is a staircase when both classes are sorted:
the row with the i-th lowest score is right with the first b_i columns. With H = m - W right pairs and z = exp(beta),

    mean z^H = sum_k c_k (z - 1)^k,    c_k = mean over matchings of binomial(H, k),

a sum of positive terms. c_k is the number of ways to place k rooks on the staircase, divided by that for the full
board; row by row, c_k <- c_k + c_(k-1) (b_i - k + 1) / (N - k + 1): O(m^2) for distinct scores
(:func:`_mean_binomials`). A tied pair is decided by a fair coin, and the mean is over coins too: a rook on a tied pair
counts one half. p rows and q columns of one score, with b columns below, have s rooks among themselves in
binomial(p, s) q! / (q - s)! ways; the other p - s rows have theirs below, as before. If the smaller class has more than
a thousand rows, rows are put into groups and matched within them, by a fixed seed that does not depend on the data.

*Draws from a Gaussian* (:func:`bound_of_draws`). The bound for a posterior needs E[L], L the log of that mean, for
scores drawn from a Gaussian; it has no closed form. But by Jensen's inequality

    L = -beta W_mean + D,    D >= 0,    W_mean the mean over matchings of the number of wrong pairs,

and E[W_mean] has one, because the probability that a pair is wrong is known. Only E[D] is estimated, by the mean of
min(D, limit) over draws, for a limit fixed in advance; :func:`pymc_pacauc.certify.bounds.mean_bound` bounds its error.
This bound may fail with probability delta over the draws, whatever the data, and delta is a part of epsilon.

Used by ``certificate(bound="matchings")``, ``certify.split`` and ``certify.holdout``, for two classes whose pairs all
have the same weight. For another statistic of a matching, replace :func:`_mean_binomials`, its mean over all of them.

Reference: Goldman, Joichi & White (1975), Rook theory I, doi:10.1090/S0002-9939-1975-0429578-4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.special import ndtri, owens_t

from pymc_pacauc.certify.bounds import matching_bound, mean_bound
from pymc_pacauc.comparison.pairs import Block, Pairs
from pymc_pacauc.ep.leave_out import expected_pair_auc
from pymc_pacauc.ep.posterior import NaturalGaussian
from pymc_pacauc.numerics import FloatArray, Mask, kernel, slices
from pymc_pacauc.problem.problem import Problem

LARGEST_GROUP = 1000  # rows; binomial(1000, 500) is just below the largest float: doubled, numbers overflow
# Limits of the cells that the AUC is divided into; twice as many certify the same to 0.0001.
CELLS = np.concatenate([[0.0], 1.0 - 0.5 * np.geomspace(1.0, 1e-5, 100), [1.0]])


@dataclass(frozen=True, eq=False)
class Matchings:
    """Distribution of the number of wrong pairs of some scores over all matchings.

    Attributes
    ----------
    m : int
        Number of pairs of a matching.
    log_coefficients : tuple of ndarray
        log c_k of every group, each of shape (rows of the smaller class + 1,).
    """

    m: int
    log_coefficients: tuple[FloatArray, ...]

    @property
    def mean_wrong(self) -> float:
        """Mean over matchings of the number W of wrong pairs."""
        return self.m - sum(math.exp(c[1]) for c in self.log_coefficients)

    def log_moment(self, beta: float) -> float:
        """Compute the log of the mean over matchings of exp(-beta W), W the number of wrong pairs."""
        step = math.log(math.expm1(beta))
        return sum(_log_sum(c + step * np.arange(c.size)) for c in self.log_coefficients) - beta * self.m


@dataclass(frozen=True, eq=False)
class MatchingGroups:
    """Groups of rows within which rows of both classes are matched; ``of`` applies them to scores of these rows."""

    positive: Mask
    groups: tuple[NDArray[np.intp], ...]

    @property
    def m(self) -> int:
        return int(min(self.positive.sum(), (~self.positive).sum()))

    def of(self, scores: FloatArray) -> Matchings:
        """Return the matchings of ``scores[n]``."""
        with np.errstate(divide="ignore"):
            found = (np.log(_mean_binomials(*_staircase(scores[g], self.positive[g]))) for g in self.groups)
            return Matchings(self.m, tuple(found))


def matching_groups(positive: Mask) -> MatchingGroups:
    """Put rows into groups within which they are matched, given the mask of the positive class, (n,)."""
    classes = [np.flatnonzero(positive), np.flatnonzero(~positive)]
    number = math.ceil(min(map(len, classes)) / LARGEST_GROUP)
    if number == 0:
        sizes = f"{len(classes[0])} positive, {len(classes[1])} negative"
        raise ValueError(f"y must have rows of both classes; got {sizes}.")
    rng = np.random.default_rng(0)
    parts = [np.array_split(rng.permutation(rows) if number > 1 else rows, number) for rows in classes]
    return MatchingGroups(positive, tuple(np.concatenate(both) for both in zip(*parts, strict=True)))


def matching_rate(n_pos: int, n_neg: int, divergence: float, epsilon: float = 0.05, auc: float = 0.85) -> float:
    """Return a rate near the best for this divergence and AUC if both classes are normal; it uses no data."""
    m, larger = sorted((n_pos, n_neg))
    variance = float(_row_variance(np.array(auc))) * (1.0 + m / larger)
    # The best beta of a normal variable, times 1.2 as the number of wrong pairs is skewed. Of 100 and 200 rows with
    # an AUC of 0.88 this factor certifies 0.755 for a draw, 0.819 for a fixed score; doubled 0.716 and 0.817, halved
    # 0.736 and 0.803.
    beta = 1.2 * math.sqrt(2.0 * (divergence + math.log(1.0 / epsilon)) / (m * variance))
    return m * min(8.0, beta)  # a larger beta changes exp(-beta) by less than 0.0004


def holdout_bound(matchings: Matchings, n_pos: int, n_neg: int, epsilon: float = 0.05) -> float:
    """Compute a lower bound on the AUC of a score that was fixed before these rows were seen.

    Possible AUCs are divided into ``CELLS``, each with its own fixed beta; a cell is excluded if its upper end is. The
    bound is the lower end of the first cell that is not excluded, or the bound by its beta, if that is larger. See
    ``docs/theory/certificates.md``.
    """
    for lower, upper in pairwise(CELLS):
        rate = matching_rate(n_pos, n_neg, 0.0, epsilon, auc=max(0.5, 0.5 * (lower + upper)))
        bound = 1.0 - matching_bound(matchings.log_moment(rate / matchings.m), 0.0, matchings.m, epsilon, rate=rate)
        if bound < upper:  # of the last cell at the latest
            break
    return float(max(lower, bound))


@np.errstate(under="ignore")
def _log_sum(logs: FloatArray) -> float:
    """Compute the log of the sum of exp(logs); for a few hundred terms much faster than SciPy's logsumexp."""
    top = logs.max()
    return float(top + math.log(np.exp(logs - top).sum()))


def _row_variance(auc: FloatArray) -> FloatArray:
    """Compute zeta, the variance of a row's share of right pairs, if both classes are normal with equal variances."""
    return np.asarray(auc * (1.0 - auc) - 2.0 * owens_t(ndtri(auc), 1.0 / math.sqrt(3.0)))


def _staircase(scores: FloatArray, positive: Mask) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Count the rows (smaller class) and columns (larger class) with each distinct score, in staircase order.

    A row is in a right pair with the columns of earlier steps.
    """
    order = np.argsort(scores)
    ordered, positives = scores[order], np.cumsum(positive[order])
    last = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), ordered.size - 1)
    n_pos = np.diff(positives[last], prepend=0)
    n_neg = np.diff(last, prepend=-1) - n_pos
    return (n_pos, n_neg) if 2 * positives[-1] <= ordered.size else (n_neg[::-1], n_pos[::-1])


@kernel
def _mean_binomials(rows, columns):
    """Compute c_k, (m + 1,), of a staircase whose steps have ``rows`` and ``columns``; those of one step are tied."""
    m, n = rows.sum(), columns.sum()
    c = np.zeros(m + 1)
    c[0] = 1.0
    inverse = 1.0 / (n + 1.0 - np.arange(m + 1))
    below = done = 0
    for step in range(rows.size):
        p, q = rows[step], columns[step]
        tied = min(p, q)
        kept = np.empty((tied, done + p + 1))  # c before the last s rows of the step, for s tied rooks: kept[s - 1]
        for i in range(p):
            if p - i <= tied:
                kept[p - i - 1] = c[: done + p + 1]
            for k in range(min(done + i + 1, below), 0, -1):
                c[k] += c[k - 1] * (below - k + 1) * inverse[k]
        factor = np.ones(done + p + 1)
        for s in range(1, tied + 1):
            for k in range(min(done + p - s, below) + 1):
                factor[k] *= 0.5 * (p - s + 1) * (q - s + 1) / s * inverse[k + s]
                c[k + s] += factor[k] * kept[s - 1, k]
        below += q
        done += p
    return c


# Draws of scores, for a bound on the mean over draws; of more than 2000 pairs a matching fewer. Twice as many take
# twice as long and certify 0.004 more (100 and 200 rows).
MOST_DRAWS = 1000
# Share of epsilon that pays for Monte Carlo error: of draws, or of pairs drawn for a risk; doubled, 0.0006 less is
# certified.
FOR_THE_DRAWS = 0.1


@dataclass(frozen=True, eq=False)
class GaussianScores:
    """Scores ``mean[n] + (root @ z)[kind]``, z ~ N(0, I); ``kind[n]`` numbers the distinct rows of the design."""

    mean: FloatArray
    root: FloatArray
    kind: NDArray[np.intp]

    def draw(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw scores, shape (draws, n)."""
        return np.asarray(self.mean + (rng.standard_normal((draws, self.root.shape[1])) @ self.root.T)[:, self.kind])

    def risk(self, pairs: Pairs) -> float:
        """Compute the expected risk of a draw in closed form, a tie costing one half."""
        return 1.0 - expected_pair_auc(self.mean, self.root[self.kind], pairs)


@dataclass(frozen=True)
class DrawsBound:
    """An upper bound on the expected ``risk`` of a draw.

    Attributes
    ----------
    risk : float
        The bound.
    rate : float
        Rate at which it was computed.
    margin : float
        Difference of the estimate of E[L] and the lower bound that was used, in nats.
    draws : int
        Number of draws.
    """

    risk: float
    rate: float
    margin: float
    draws: int


def scores_under(problem: Problem, q: NaturalGaussian, rows: NDArray[np.bool_]) -> GaussianScores:
    """Return the Gaussian of the scores of some ``rows`` (mask, (n,)), with reduced coefficients drawn from ``q``."""
    space, distinct = problem.scores.reduced, problem.scores.distinct
    design, kind = space.design[distinct.first], distinct.place[rows]
    mean = (design @ q.mean)[kind] + space.offset[rows]
    root = linalg.solve_triangular(q.factor, design.T, lower=True, check_finite=False).T
    return GaussianScores(mean, root, kind)


def bound_of_draws(
    scores: GaussianScores,
    divergence: float,
    grouping: MatchingGroups,
    typical: float,
    epsilon: float = 0.05,
    *,
    rng: np.random.Generator,
    compared: int = 1,
) -> DrawsBound:
    """Bound the expected risk of a draw of ``scores``, a Gaussian of this ``divergence`` from a prior fixed in advance.

    ``typical`` is a divergence guessed without the data, by which the rate and the limit are chosen.
    PAC-Bayesian bounds hold for all posteriors at once, but the Monte Carlo bound holds for one: ``compared`` is the
    number of posteriors among which this one may be chosen by its bound.
    """
    n_pos = int(grouping.positive.sum())
    rate = matching_rate(n_pos, grouping.positive.size - n_pos, typical, epsilon)
    delta = FOR_THE_DRAWS * epsilon
    limit = 4.0 * (typical - math.log(epsilon))  # of D: four times what the bound pays for divergence and epsilon
    estimate, safe, draws = mean_log_moment(
        scores, grouping, rate / grouping.m, limit=limit, delta=delta / compared, rng=rng
    )
    risk = matching_bound(safe, divergence, grouping.m, epsilon - delta, rate=rate)
    return DrawsBound(risk, rate, estimate - safe, draws)


def mean_log_moment(
    scores: GaussianScores, grouping: MatchingGroups, beta: float, limit: float, delta: float, rng: np.random.Generator
) -> tuple[float, float, int]:
    """Estimate E[L] from draws; return it, a lower bound that fails with probability ``delta``, and the draws."""
    expected = grouping.m * scores.risk(_matched_pairs(grouping))
    draws = int(np.clip(2_000_000 // grouping.m, 200, MOST_DRAWS))
    excess: list[float] = []
    for part in slices(draws, scores.mean.size):
        for one in scores.draw(len(range(draws)[part]), rng):
            found = grouping.of(one)
            excess.append(found.log_moment(beta) + beta * found.mean_wrong)
    share = np.clip(np.array(excess) / limit, 0.0, 1.0)
    error = float(share.std(ddof=1) / np.sqrt(draws))
    least = max(0.0, 1.0 - mean_bound(1.0 - float(share.mean()), error, draws, delta))
    return float(np.mean(excess)) - beta * expected, limit * least - beta * expected, draws


def _matched_pairs(grouping: MatchingGroups) -> Pairs:
    """Return the pairs that can be matched, weighted by their share of the matchings."""
    blocks = []
    for group in grouping.groups:
        positive, negative = group[grouping.positive[group]], group[~grouping.positive[group]]
        weight = 1.0 / max(positive.size, negative.size)
        blocks += [Block(positive, negative[part], weight=weight) for part in slices(negative.size, positive.size)]
    return Pairs(grouping.positive.size, tuple(blocks))
