"""All matchings at once: bounds on an AUC that know both samples' share in its variance.

Match every row of the smaller class, of m, with another row of the larger class, of N, at random. The pairs of one
matching are independent, so that the number W of wrong ones is binomial with parameters m and R = 1 - AUC, and for
every beta > 0

    E exp(-beta W) = (1 - (1 - exp(-beta)) R)^m.

The *mean over all matchings* of exp(-beta W) has the same expectation. Hoeffding's decomposition, on which the bounds
of :mod:`pymc_pacauc.core.bounds` rest, puts exp(-beta m R_n) in its place, which by Jensen's inequality is smaller.
What is lost there is the variance of W over matchings of the same rows: nearly all of what makes a mean over matchings
less variable than one matching. Keeping it makes the bound behave like a normal interval with the true variance of the
AUC, zeta_+ / n+ + zeta_- / n-, instead of R (1 - R) / m, which is more than twice as large; yet it holds for every m
and whatever the distributions. ``docs/certificates.md`` has the proof.

The mean over matchings is a permanent, but one of zeros and ones in the shape of a staircase once both classes are
sorted: the row with the i-th lowest score is right with the first b_i columns. For such boards it is a sum of positive
terms. With H = m - W right pairs and z = exp(beta),

    mean z^H = sum_k c_k (z - 1)^k,    c_k = mean over matchings of binomial(H, k),

and c_k, the number of ways to place k rooks on the staircase (Goldman, Joichi and White, 1975) over that of placing
them anywhere, builds up row by row: c_k <- c_k + c_(k-1) (b_i - k + 1) / (N - k + 1).

More than a thousand rows are dealt into groups, within which they are matched. Tied scores are ordered at random: then
a tie is right with probability one half. Deals and orders look at no data, and are the same every time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, owens_t

from pymc_pacauc.core.kernels import kernel

__all__ = ["MatchingDeal", "Matchings", "deal_matchings", "holdout_bound", "matching_bound", "matching_rate"]

FloatArray = NDArray[np.float64]
Mask = NDArray[np.bool_]

LARGEST_GROUP = 1000  # binomial(1000, 500) is just below the largest float
TIE_BREAKS = 16
LARGEST_BETA = 8.0
SKEW = 1.2  # times the best beta of a normal variable: wrong pairs are few, and their number is skewed
SEED = 2014
CELLS = np.concatenate([[0.0], 1.0 - 0.5 * np.geomspace(1.0, 1e-5, 100), [1.0]])  # of the AUC


@dataclass(frozen=True, eq=False)
class Matchings:
    """How the pairs of some scores do over all matchings.

    Attributes
    ----------
    m
        Pairs of a matching.
    log_coefficients
        log c_k of every group, for each random order of the ties.
    """

    m: int
    log_coefficients: tuple[tuple[FloatArray, ...], ...]

    def log_moment(self, beta: float) -> float:
        """log of the mean over matchings of exp(-beta W), W the number of wrong pairs."""
        step = math.log(math.expm1(beta))
        orders = [sum(_log_sum(c + step * np.arange(c.size)) for c in one) for one in self.log_coefficients]
        return _log_sum(np.array(orders)) - math.log(len(orders)) - beta * self.m


@dataclass(frozen=True, eq=False)
class MatchingDeal:
    """Which rows are matched with which, and how ties are ordered: ``of`` any scores of the same rows."""

    positive: Mask
    groups: tuple[NDArray[np.intp], ...]
    jitter: FloatArray

    def of(self, scores: FloatArray) -> Matchings:
        """The matchings of ``scores[n]``."""
        orders = self.jitter if self._tied(scores) else self.jitter[:1]
        return Matchings(
            int(min(self.positive.sum(), (~self.positive).sum())),
            tuple(tuple(self._coefficients(scores[g], self.positive[g], u[g]) for g in self.groups) for u in orders),
        )

    def _tied(self, scores: FloatArray) -> bool:
        return bool(np.isin(scores[self.positive], scores[~self.positive]).any())

    @staticmethod
    def _coefficients(scores: FloatArray, positive: Mask, jitter: FloatArray) -> FloatArray:
        ordered = positive[np.lexsort((jitter, scores))]
        n_pos = int(ordered.sum())
        n_neg = ordered.size - n_pos
        below = np.cumsum(~ordered)[ordered]  # negatives below each positive, from the lowest positive up
        above = (n_pos - np.cumsum(ordered)[~ordered])[::-1]  # positives above each negative, from the highest down
        counts = (below if n_pos <= n_neg else above).astype(np.int64)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(_mean_binomials(counts, max(n_pos, n_neg))))


def deal_matchings(positive: Mask) -> MatchingDeal:
    """The deal for rows of these classes."""
    rng = np.random.default_rng(SEED)
    classes = [np.flatnonzero(positive), np.flatnonzero(~positive)]
    number = math.ceil(min(map(len, classes)) / LARGEST_GROUP)
    if number == 0:
        raise ValueError("A matching needs rows of both classes.")
    parts = [np.array_split(rng.permutation(rows) if number > 1 else rows, number) for rows in classes]
    groups = tuple(np.concatenate(both) for both in zip(*parts, strict=True))
    return MatchingDeal(positive, groups, rng.random((TIE_BREAKS, positive.size)))


def matching_bound(
    log_moment: float, divergence: float, m: float, epsilon: float = 0.05, *, rate: float, selected_from: int = 1
) -> float:
    """Upper bound on rho(R) from rho's mean of :meth:`Matchings.log_moment` at ``beta = rate / m``.

    With ``log_moment = -beta m R_n``, its lower bound, this is :func:`~pymc_pacauc.core.bounds.catoni_bound`, whose
    other parameters it has. The rate is fixed in advance.
    """
    budget = divergence + math.log(selected_from) - math.log(epsilon)
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
    is where the first cell begins that is not, or within it, where its own beta says. See ``docs/certificates.md``.
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


@kernel
def _mean_binomials(counts, columns):
    """c_k for a staircase of rows with ``counts`` (ascending) right columns each, out of ``columns``."""
    m = counts.size
    c = np.zeros(m + 1)
    c[0] = 1.0
    inverse = np.empty(m + 1)
    for k in range(1, m + 1):
        inverse[k] = 1.0 / (columns - k + 1)
    for i in range(m):
        for k in range(min(i + 1, counts[i]), 0, -1):
            c[k] += c[k - 1] * (counts[i] - k + 1) * inverse[k]
    return c
