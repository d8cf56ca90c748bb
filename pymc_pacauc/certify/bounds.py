"""PAC-Bayesian bounds on the risk of a randomised score, for any sample size and any distribution of the data.

A *randomised score* draws theta from a distribution rho (the posterior) and ranks by theta; rho(R) is its expected
risk, rho(R_n) the same on the sample. Given the labels, the pair risk R_n(theta) is a two-sample U-statistic: an
average over matchings of means of m = min(n+, n-) independent terms in [0, 1]. The binary divergence

    kl(q || p) = q log(q/p) + (1-q) log((1-q)/(1-p))

is convex, so Hoeffding's decomposition carries the moment bound of m independent terms over to the U-statistic:
E exp(m kl(R_n, R)) <= xi(m), where xi(m) = sum_k binomial(k; m, k/m) <= 2 sqrt(m) (Maurer, 2004). With the change of
measure of Donsker and Varadhan this gives PAC-Bayes-kl: for a prior fixed before the data are seen, with probability at
least 1 - epsilon, *for all rho at once*,

    kl(rho(R_n) || rho(R)) <= [KL(rho, prior) + log(xi(m) / epsilon)] / m.

In the same way the moment of m Bernoulli terms gives, for a rate lambda fixed in advance and beta = lambda / m
(Catoni, 2007),

    rho(R) <= (1 - exp(-beta rho(R_n) - [KL(rho, prior) + log(1 / epsilon)] / m)) / (1 - exp(-beta)),

which at its best lambda equals PAC-Bayes-kl without the term log xi(m), and is never worse than what Hoeffding's lemma
gives: a bound that is linear in the divergence, whose minimiser over rho is the Gibbs posterior at gamma = lambda.

Every term can be computed, unlike those of the paper's own theorems, which contain unknown constants (C, c). Other
comparisons (weights, strata, ordered classes, censored times) are means of matchings of different sizes, whose mean m
is not an integer
(:mod:`pymc_pacauc.comparison.sizes`): the bounds hold with that m, and with 2 sqrt(m) in place of xi(m).

Used by :func:`pymc_pacauc.certificate` with ``bound="kl"`` and ``"catoni"``. They take risk,
divergence, m and epsilon, which are checked by the public functions; a choice among G priors is paid for by epsilon /
G. Each takes O(1), but for the moment xi(m), O(m) once. To add a bound, write it with these arguments, name it in
``BOUNDS`` of :mod:`pymc_pacauc.certify.certificate` and call it there. Proofs: ``docs/theory/certificates.md``.

References: Maurer (2004), A note on the PAC-Bayesian theorem, arXiv:cs/0411099; Catoni (2007),
doi:10.1214/074921707000000391; Maurer & Pontil (2009), arXiv:0907.3740, for :func:`mean_bound`; Hoeffding (1963),
doi:10.1080/01621459.1963.10500830.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln, xlogy


def binary_kl(q: float, p: float) -> float:
    """Compute the divergence kl(q || p) of two Bernoulli distributions.

    Examples
    --------
    >>> round(binary_kl(0.1, 0.3), 4)
    0.1163
    """
    if p in (0.0, 1.0) and p != q:
        return math.inf
    step = p - q
    if abs(step) < 0.5 * min(q, 1.0 - q):  # the two logarithms nearly cancel: log1p is accurate
        return max(0.0, -q * math.log1p(step / q) - (1.0 - q) * math.log1p(-step / (1.0 - q)))
    first = q * (math.log(q) - math.log(p)) if q > 0.0 else 0.0
    second = (1.0 - q) * (math.log1p(-q) - math.log1p(-p)) if q < 1.0 else 0.0
    return first + second


def kl_upper(q: float, bound: float) -> float:
    """Compute the largest p with kl(q || p) <= bound: an upper bound on a mean whose estimate is q.

    Examples
    --------
    >>> round(kl_upper(0.1, 0.05), 4), round(kl_upper(0.0, 0.05), 4)
    (0.2201, 0.0488)
    """
    if q == 0.0:
        return -math.expm1(-bound)
    top = 1.0 - 2.0**-53
    if q == 1.0 or binary_kl(q, top) <= bound:
        return 1.0
    root = brentq(lambda p: binary_kl(q, p) - bound, q, top, xtol=1e-14, rtol=1e-14)
    return min(1.0, float(root) + 2e-14)  # plus the tolerance of the root: never below the exact value


def mean_bound(mean: float, error: float, count: int, epsilon: float) -> float:
    """Compute an upper bound on an expectation, with probability 1 - epsilon, from a sample mean.

    The empirical Bernstein bound of Maurer and Pontil (2009), for ``count`` (two or more) independent terms in an
    interval of length 1, with the standard ``error`` of their mean.

    Examples
    --------
    >>> round(mean_bound(0.2, 1e-4, 1_000_000, 0.005), 5)
    0.20036
    """
    log_term = math.log(2.0 / epsilon)
    return mean + error * math.sqrt(2.0 * log_term) + 7.0 * log_term / (3.0 * (count - 1))


@lru_cache(maxsize=128)
def log_moment(m: float, equal_matchings: bool = True) -> float:
    """Compute log xi(m), the moment of PAC-Bayes-kl: exactly, or its upper bound log(2 sqrt(m)) for m above a million.

    The upper bound is used also where matchings are of different sizes, with mean m, which need not be whole.

    Examples
    --------
    >>> round(log_moment(177), 4), round(math.log(2 * math.sqrt(177)), 4)
    (2.8535, 3.2812)
    """
    if m > 10**6 or m % 1 or not equal_matchings:
        return math.log(2.0 * math.sqrt(m))
    k = np.arange(m + 1.0)
    terms = gammaln(m + 1.0) - gammaln(k + 1.0) - gammaln(m - k + 1.0) + xlogy(k, k / m) + xlogy(m - k, 1.0 - k / m)
    return float(np.log(np.exp(terms).sum()))


def pac_bayes_kl(
    risk: float, divergence: float, m: float, epsilon: float = 0.05, *, equal_matchings: bool = True
) -> float:
    """Compute an upper bound on rho(R) by PAC-Bayes-kl.

    Parameters
    ----------
    risk : float
        rho(R_n), the mean empirical pair risk under rho.
    divergence : float
        KL(rho, prior), or an upper bound on it.
    m : float
        Size of the smaller class; for other comparisons see :func:`~pymc_pacauc.comparison.sizes.effective_size`.
    epsilon : float, default 0.05
        Probability with which the bound may fail.
    equal_matchings : bool, default True
        Whether the pairs are a mean of matchings of m pairs each, as those of two classes are.

    Returns
    -------
    float
        The bound, in [0, 1].

    Examples
    --------
    >>> round(pac_bayes_kl(risk=0.15, divergence=6.0, m=177), 4)
    0.3081
    """
    return kl_upper(risk, (divergence + log_moment(m, equal_matchings) - math.log(epsilon)) / m)


def catoni_bound(risk: float, divergence: float, m: float, epsilon: float = 0.05, *, rate: float) -> float:
    """Compute Catoni's upper bound on rho(R) at a ``rate`` (lambda) fixed in advance.

    The other parameters are those of :func:`pac_bayes_kl`.

    Examples
    --------
    >>> round(catoni_bound(risk=0.15, divergence=6.0, m=177, rate=catoni_rate(177, 7)), 4)
    0.2865
    """
    return matching_bound(-rate * risk, divergence, m, epsilon, rate=rate)


def matching_bound(log_moment: float, divergence: float, m: float, epsilon: float = 0.05, *, rate: float) -> float:
    """Compute an upper bound on rho(R) from rho's mean of the log of the mean of exp(-beta W) over matchings.

    W is the number of wrong pairs of a matching of m pairs (:mod:`pymc_pacauc.certify.matchings`), and ``beta = rate /
    m``, fixed in advance. With ``log_moment = -beta m R_n``, its lower bound, this is :func:`catoni_bound`.
    """
    whole = math.expm1(-rate / m)
    return min(1.0, math.expm1((log_moment - divergence + math.log(epsilon)) / m) / whole) if whole else 1.0


def catoni_rate(m: float, d: int, epsilon: float = 0.05, auc: float = 0.85) -> float:
    """Return a rate for :func:`catoni_bound` that does not depend on the data: near the best for divergence d, AUC."""
    return math.sqrt(2.0 * m * (d + math.log(1.0 / epsilon)) / (auc * (1.0 - auc)))
