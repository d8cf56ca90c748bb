"""All matchings at once: bounds on an AUC that know both samples' share in its variance.

Match every row of the smaller class, of m, with another row of the larger class, of N, at random. The pairs of one
matching are independent, so that the number W of wrong ones is binomial with parameters m and R = 1 - AUC, and for
every beta > 0

    E exp(-beta W) = (1 - (1 - exp(-beta)) R)^m.

The *mean over all matchings* of exp(-beta W) has the same expectation. Hoeffding's decomposition, on which the bounds
of :mod:`pymc_pacauc.certify.bounds` rest, puts exp(-beta m R_n) in its place, which by Jensen's inequality is smaller.
What is lost there is the variance of W over matchings of the same rows: nearly all of what makes a mean over matchings
less variable than one matching. Keeping it makes the bound behave like a normal interval with the true variance of the
AUC, zeta_+ / n+ + zeta_- / n-, instead of R (1 - R) / m, which is more than twice as large; yet it holds for every m
and whatever the distributions. ``docs/theory/certificates.md`` has the proof.

The mean over matchings is a permanent, but one of zeros and ones in the shape of a staircase once both classes are
sorted: the row with the i-th lowest score is right with the first b_i columns. For such boards it is a sum of positive
terms. With H = m - W right pairs and z = exp(beta),

    mean z^H = sum_k c_k (z - 1)^k,    c_k = mean over matchings of binomial(H, k),

and c_k, the number of ways to place k rooks on the staircase (Goldman, Joichi and White, 1975) over that of placing
them anywhere, builds up row by row: c_k <- c_k + c_(k-1) (b_i - k + 1) / (N - k + 1).

A tie is decided by tossing a coin for the pair, and the mean is over coins, too: a rook among tied scores counts one
half. The p rows and q columns of one score, with b columns below, have s rooks among themselves in
binomial(p, s) q! / (q - s)! ways, and then the other p - s rows have theirs below, as before.

More than a thousand rows are put into groups, within which they are matched. The grouping looks at no data, and is the
same every time.

The bound of :mod:`pymc_pacauc.certify.matchings` for draws from a Gaussian.

It needs E[L], L = log mean over matchings of exp(-beta W), for scores drawn from a Gaussian; that has no closed form.
But by Jensen's inequality

    L = -beta W_mean + D,    D >= 0,    W_mean the mean over matchings of the number of wrong pairs,

and E[W_mean] has one: every pair is wrong with a probability that is known. Only E[D] is left to draws. As D is
positive, min(D, limit) can take its place, for any limit fixed in advance, and the mean of such bounded terms has a
bound that is a theorem (:func:`pymc_pacauc.certify.bounds.mean_bound`). It fails with probability delta over the draws,
whatever the data, and delta is a part of epsilon.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.special import ndtri, owens_t

from pymc_pacauc.certify.bounds import mean_bound
from pymc_pacauc.comparison.pairs import Block, Pairs
from pymc_pacauc.ep.leave_out import expected_pair_auc
from pymc_pacauc.ep.posterior import NaturalGaussian
from pymc_pacauc.numerics import FloatArray, Mask, kernel, slices
from pymc_pacauc.problem.problem import Problem

LARGEST_GROUP = 1000  # binomial(1000, 500) is just below the largest float
LARGEST_BETA = 8.0
SKEW = 1.2  # times the best beta of a normal variable: wrong pairs are few, and their number is skewed
CELLS = np.concatenate([[0.0], 1.0 - 0.5 * np.geomspace(1.0, 1e-5, 100), [1.0]])  # of the AUC


@dataclass(frozen=True, eq=False)
class Matchings:
    """How the pairs of some scores do over all matchings.

    Attributes
    ----------
    m
        Pairs of a matching.
    log_coefficients
        log c_k of every group.
    """

    m: int
    log_coefficients: tuple[FloatArray, ...]

    @property
    def mean_wrong(self) -> float:
        """The mean over matchings of W."""
        return self.m - sum(math.exp(c[1]) for c in self.log_coefficients)

    def log_moment(self, beta: float) -> float:
        """log of the mean over matchings of exp(-beta W), W the number of wrong pairs."""
        step = math.log(math.expm1(beta))
        return sum(_log_sum(c + step * np.arange(c.size)) for c in self.log_coefficients) - beta * self.m


@dataclass(frozen=True, eq=False)
class MatchingGroups:
    """Which rows are matched with which: ``of`` any scores of the same rows."""

    positive: Mask
    groups: tuple[NDArray[np.intp], ...]

    @property
    def m(self) -> int:
        return int(min(self.positive.sum(), (~self.positive).sum()))

    def of(self, scores: FloatArray) -> Matchings:
        """The matchings of ``scores[n]``."""
        with np.errstate(divide="ignore"):
            found = (np.log(_mean_binomials(*_staircase(scores[g], self.positive[g]))) for g in self.groups)
            return Matchings(self.m, tuple(found))


def matching_groups(positive: Mask) -> MatchingGroups:
    """The groups for rows of these classes."""
    classes = [np.flatnonzero(positive), np.flatnonzero(~positive)]
    number = math.ceil(min(map(len, classes)) / LARGEST_GROUP)
    if number == 0:
        raise ValueError('bound="matchings" needs rows of both classes.')
    rng = np.random.default_rng(0)
    parts = [np.array_split(rng.permutation(rows) if number > 1 else rows, number) for rows in classes]
    return MatchingGroups(positive, tuple(np.concatenate(both) for both in zip(*parts, strict=True)))


def matching_bound(log_moment: float, divergence: float, m: float, epsilon: float = 0.05, *, rate: float) -> float:
    """Upper bound on rho(R) from rho's mean of :meth:`Matchings.log_moment` at ``beta = rate / m``.

    With ``log_moment = -beta m R_n``, its lower bound, this is :func:`~pymc_pacauc.certify.bounds.catoni_bound`, whose
    other parameters it has. The rate is fixed in advance.
    """
    budget = divergence - math.log(epsilon)
    return min(1.0, math.expm1((log_moment - budget) / m) / math.expm1(-rate / m))


def matching_rate(n_pos: int, n_neg: int, divergence: float, epsilon: float = 0.05, auc: float = 0.85) -> float:
    """About the best rate for such a divergence and AUC, were both classes normal; it looks at no data."""
    m, larger = sorted((n_pos, n_neg))
    variance = float(_row_variance(np.array(auc))) * (1.0 + m / larger)
    beta = SKEW * math.sqrt(2.0 * (divergence + math.log(1.0 / epsilon)) / (m * variance))
    return m * min(LARGEST_BETA, beta)


def holdout_bound(matchings: Matchings, n_pos: int, n_neg: int, epsilon: float = 0.05) -> float:
    """Lower bound on the AUC of a score that was fixed before these rows were seen.

    For each cell of possible AUCs a beta is fixed that suits it; the cell is ruled out if its upper end is. The bound
    is where the first cell begins that is not, or within it, where its beta says. See ``docs/theory/certificates.md``.
    """
    for lower, upper in pairwise(CELLS):
        rate = matching_rate(n_pos, n_neg, 0.0, epsilon, auc=max(0.5, 0.5 * (lower + upper)))
        bound = 1.0 - matching_bound(matchings.log_moment(rate / matchings.m), 0.0, matchings.m, epsilon, rate=rate)
        if bound < upper:
            return float(max(lower, bound))
    return 1.0


def _log_sum(logs: FloatArray) -> float:
    """log of the sum of exp(logs); SciPy's own takes longer than all the rest for a few hundred terms."""
    top = logs.max()
    return float(top + math.log(np.exp(logs - top).sum()))


def _row_variance(auc: FloatArray) -> FloatArray:
    """zeta, the variance of a row's share of pairs that are right, if both classes are normal with equal variances."""
    return np.asarray(auc * (1.0 - auc) - 2.0 * owens_t(ndtri(auc), 1.0 / math.sqrt(3.0)))


def _staircase(scores: FloatArray, positive: Mask) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """How many rows (of the smaller class) and columns have each distinct score: a row is right with those before."""
    order = np.argsort(scores)
    ordered, positives = scores[order], np.cumsum(positive[order])
    last = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), ordered.size - 1)
    n_pos = np.diff(positives[last], prepend=0)
    n_neg = np.diff(last, prepend=-1) - n_pos
    return (n_pos, n_neg) if 2 * positives[-1] <= ordered.size else (n_neg[::-1], n_pos[::-1])


@kernel
def _mean_binomials(rows, columns):
    """c_k for a staircase whose steps have ``rows`` and ``columns``; those of the same step are tied."""
    m, n = rows.sum(), columns.sum()
    c = np.zeros(m + 1)
    c[0] = 1.0
    inverse = 1.0 / (n + 1.0 - np.arange(m + 1))
    below = done = 0
    for step in range(rows.size):
        p, q = rows[step], columns[step]
        tied = min(p, q)
        kept = np.empty((tied, done + p + 1))  # with the last rows of the step still to be placed, or tied
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


MOST_DRAWS, FEWEST_DRAWS, ROWS_DRAWN = 1000, 200, 2_000_000
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
    grouping: MatchingGroups,
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
    n_pos = int(grouping.positive.sum())
    if rate is None:
        rate = matching_rate(n_pos, grouping.positive.size - n_pos, typical, epsilon)
    limit, delta = LIMIT * (typical - math.log(epsilon)), FOR_THE_DRAWS * epsilon
    estimate, safe, draws = mean_log_moment(
        scores, grouping, rate / grouping.m, limit=limit, delta=delta / compared, rng=rng
    )
    risk = matching_bound(safe, divergence, grouping.m, epsilon - delta, rate=rate)
    return DrawsBound(risk, rate, estimate - safe, draws)


def mean_log_moment(
    scores: GaussianScores,
    grouping: MatchingGroups,
    beta: float,
    *,
    limit: float,
    delta: float,
    rng: np.random.Generator,
) -> tuple[float, float, int]:
    """E[L] from draws; what it is at least, except with probability ``delta``; and the number of draws."""
    pairs = _matched_pairs(grouping)
    expected = grouping.m * (1.0 - expected_pair_auc(scores.mean, scores.root[scores.kind], pairs))
    draws = int(np.clip(ROWS_DRAWN // grouping.m, FEWEST_DRAWS, MOST_DRAWS))
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
    """The pairs that can be matched, each with its share of the matchings."""
    blocks = []
    for group in grouping.groups:
        positive, negative = group[grouping.positive[group]], group[~grouping.positive[group]]
        weight = 1.0 / max(positive.size, negative.size)
        blocks += [Block(positive, negative[part], weight=weight) for part in slices(negative.size, positive.size)]
    return Pairs(grouping.positive.size, tuple(blocks))
