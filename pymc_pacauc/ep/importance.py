"""Importance sampling from q: exact posterior moments, the evidence without EP's bias, and E_q[risk] from some pairs.

*Weighted directions.* Draws from q are weighted by target / q; their mean weight estimates the evidence. Where scores
have no offset (a *scale-free* problem), the radius of the whitened coefficients is chi-distributed under the posterior
and independent of the direction. No Gaussian has this property, so weights of whole vectors degenerate as the dimension
k grows. Therefore only the *direction* e of a draw is kept, whose density under q is an integral over the radius,

    p(e) = int_0^inf r^(k-1) N(r e; m, V) dr;

its weight is exp(-gamma risk(e)) / p(e) (up to the area of the sphere), and the radius is drawn from its exact
distribution. N draws cost O(N n (k + log n)): the risk of each.

*Moments* (:class:`FreeLengthPosterior`). q alone has standard deviations 5 to 25 % too small on Pima. With N = |u|^2,
u ~ q = N(m, V) and r ~ chi_k, the moments of r u / |u| are

    E[r] E[u / N^(1/2)]    and    k E[u u' / N],

one-dimensional integrals, because N^(-a) is the integral of s^(a-1) exp(-s N) / Gamma(a), and q exp(-s N) is a Gaussian
(:func:`free_length_moments`). To these is added the covariance of weight and direction over a fixed set of draws. With
a prior N(c, I) that is not centred the radius has the density r^(k-1) exp(-r^2/2 + r e'c) given the direction; moments
are then sums over these draws. A :class:`PartsPosterior` does the same for each independent part of the coefficients.

*E_q[risk] from some pairs* (:func:`sampled_expected_risk`), which a certificate of a fit on sampled pairs needs. Under
q the pair (i, j) is wrong with probability Phi(-rho_ij). The risk of the mean of q over all pairs takes O(n log n), and
most pairs are right or wrong for certain, so the difference of the two is small:

    E_q[risk] = risk(mean of q) + mean over all pairs of [Phi(-rho_ij) - 1{a_i < a_j}].

The second mean is estimated from pairs drawn independently, in proportion to their weight. Its terms lie in
[-1/2, 1/2], so its error has a bound that holds for any number of draws
(:func:`pymc_pacauc.certify.bounds.mean_bound`).

Every fit uses this module for ``corrected`` and ``importance``, whatever its plan. To correct another approximation,
give it ``propose``: draws with log(exact / proposal).

References: Ridgway, Alquier, Chopin & Liang (2014), arXiv:1410.1771; Hernandez-Stumpfhauser, Breidt & van der Woerd
(2017), The general projected normal distribution, doi:10.1214/15-BA989, for p(e).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.interpolate import CubicSpline
from scipy.special import gammaln, log_ndtr, logsumexp, ndtr, poch

from pymc_pacauc.comparison.pairs import Pairs
from pymc_pacauc.comparison.risk import LinearRisk, pair_risk
from pymc_pacauc.ep.posterior import GaussianPosterior, NaturalGaussian, draw_natural, marginal, natural_gaussian
from pymc_pacauc.ep.sites import TIED
from pymc_pacauc.numerics import FloatArray, slices
from pymc_pacauc.problem.problem import Problem

# Weighted directions that correct the moments: these leave errors of 0.005 (Pima) to 0.016 (Credit) posterior standard
# deviations in 0.1 s; twice as many 0.7 of that, in twice the time.
DIRECTIONS = 8192
# Most scores, of all rows and those directions, computed for a correction: about a second. Doubled, two; beyond, and
# where the effective share of the directions is below LEAST_SHARE, moments and draws are q's but for their length.
MOST_SCORES = 40_000_000
LEAST_SHARE = 0.25  # from here on the correction's own error of an sd is below 1.5 %; at half of it, below 2.3 %
TRIMMED = 0.002  # share of the largest weights, made equal against outliers; doubled, drawing takes 0.8 of the time


@dataclass(frozen=True, eq=False)
class WeightedDraws:
    """Draws of ``theta`` (draws, d), their ``risk`` and ``log_weights`` = log(target / proposal), (draws,).

    The mean weight estimates the evidence.
    """

    theta: FloatArray
    risk: FloatArray
    log_weights: FloatArray


def importance_draws(
    problem: Problem, posterior: GaussianPosterior, draws: int, rng: np.random.Generator
) -> WeightedDraws:
    """Draw from the approximation and weight by the exact posterior; see the module docstring."""
    if isinstance(posterior, PartsPosterior):
        found = [importance_draws(each.problem, each, draws, rng) for each in posterior.parts]
        theta = posterior.joined([each.theta for each in found])
        return WeightedDraws(theta, problem.risk(theta), np.sum([each.log_weights for each in found], axis=0))
    if isinstance(posterior, FreeLengthPosterior):
        _, u, risk, log_weights = posterior.propose(draws, rng)
        return WeightedDraws(posterior.scores.complete(u, rng), risk, log_weights)
    q = posterior.natural
    u = draw_natural(q, draws, rng)
    centred = (u - q.mean) @ q.factor
    log_proposal = 0.5 * (np.sum(u * u, axis=1) - np.sum(centred * centred, axis=1))
    theta = posterior.scores.complete(u, rng)
    risk = problem.risk(theta)
    log_weights = -problem.gamma * risk - log_proposal - np.log(np.diagonal(q.factor)).sum()
    return WeightedDraws(theta, risk, log_weights)


class FreeLengthPosterior(GaussianPosterior):
    """Directions of the Gaussian ``q``, weighted by the exact posterior, with the exact distribution of the length.

    ``natural``, ``divergence_from_prior`` and ``score_mean`` are those of q, because certificates are of its mean
    score. Moments and draws have the exact length, and directions corrected by importance weights where their effective
    sample size is large enough.
    """

    def __init__(self, q: GaussianPosterior, problem: Problem):
        super().__init__(q.scores, q.natural)
        vars(self)["problem"] = problem  # the class is frozen

    problem: Problem

    @cached_property
    def centre(self) -> FloatArray:
        """The prior's centre c, (m,), in the directions of ``told``; zero for a centred prior."""
        origin, basis = self.scores.origin, self.told[0]
        assert origin is not None
        return origin if basis is None else origin @ basis

    @cached_property
    def _fixed(self) -> tuple[FloatArray, FloatArray]:
        """Directions (DIRECTIONS, m) and log weights, with a fixed seed."""
        e, _, _, log_weights = self.propose(DIRECTIONS, np.random.default_rng(0))
        return e, log_weights

    @cached_property
    def log_weights(self) -> FloatArray | None:
        """log(exact / q) of the fixed directions; None where that would cost too much, or weights degenerate."""
        if self.problem.n * DIRECTIONS > MOST_SCORES:
            return None
        log_weights = self._fixed[1]
        return log_weights if trustworthy(log_weights) else None

    @cached_property
    def _correction(self) -> tuple[Any, Any, float]:
        """What weights add to E[e], (m,), and to E[e e'], (m, m); and the error of the mean, in sds."""
        if self.log_weights is None:
            return 0.0, 0.0, 0.0
        e, trimmed = self._fixed[0], trim(self.log_weights)
        weights = np.exp(trimmed - logsumexp(trimmed))
        excess = weights - 1.0 / DIRECTIONS
        mean = weights @ e
        noise = np.sqrt(excess**2 @ (e - mean) ** 2) / np.sqrt(weights @ (e - mean) ** 2)
        return excess @ e, (e * excess[:, None]).T @ e, float(noise.max())

    @property
    def monte_carlo_error(self) -> float:
        """Monte Carlo error of the mean, in posterior standard deviations; zero where no weights are used."""
        return (self._summed if self.centre.any() else self._correction)[2]

    @cached_property
    def told(self) -> tuple[FloatArray | None, NaturalGaussian]:
        """Basis (k, m) of the directions that the data inform, or None for all k; and u + c under q in this basis.

        Other directions, such as those of a process that hardly reach the scores, keep their prior, so that the length
        is that of the informed coefficients alone.
        """
        q, origin = self.natural, self.scores.origin
        assert origin is not None
        curvature, basis = np.linalg.eigh(q.precision)
        mean, centre = basis.T @ q.mean, basis.T @ origin
        # The square of the mean is compared with its own largest value: with many rows the precision along the mean,
        # which is that of the length, is negligible beside that of other directions.
        changes = (np.abs(curvature - 1.0) + np.abs(mean), mean**2, np.abs(centre))
        # A direction counts as informed from a thousandth of the largest change on. A hundredth: means of a hierarchy
        # whose groups hardly differ are 0.2 sd off (benchmarks/nested.py at a spread of 0.15); a ten-thousandth:
        # standard deviations of a process are 2 % off.
        told = np.logical_or.reduce([change > 0.001 * change.max() for change in changes])
        if not told.any() or (told.all() and not origin.any()):
            return None, q
        inside = natural_gaussian(np.diag(curvature[told]), curvature[told] * (mean + centre)[told])
        assert inside is not None  # eigenvalues of a positive definite matrix
        return basis[:, told], inside

    @cached_property
    def _summed(self) -> tuple[FloatArray, FloatArray, float]:
        """Mean and covariance in the basis ``told`` under a prior that is not centred, and the mean's error."""
        e, log_weights = self._fixed
        slope, k = e @ self.centre, e.shape[1]
        first = np.exp(_log_radial_integral(slope, k) - _log_radial_integral(slope, k - 1))
        second = np.sqrt(k + slope * first)  # E[r^2] = k + slope E[r], by parts
        return weighted_moments(e * first[:, None], e * second[:, None], log_weights, self.log_weights is not None)

    @cached_property
    def matched(self) -> GaussianPosterior:
        """The Gaussian with the same mean and covariance."""
        basis, inside = self.told
        for correction in (self._correction[:2], ()):
            found = self._summed[:2] if self.centre.any() else free_length_moments(inside, *correction)
            mean, covariance = found[0] - self.centre, found[1]
            if basis is not None:
                mean = basis @ mean
                covariance = np.eye(len(basis)) + basis @ (covariance - np.eye(len(covariance))) @ basis.T
            precision = linalg.inv(covariance, check_finite=False)
            matched = natural_gaussian(0.5 * (precision + precision.T), precision @ mean)
            if matched is not None:
                break
        assert matched is not None  # a covariance of full rank
        return GaussianPosterior(self.scores, matched)

    @property
    def mean(self) -> FloatArray:
        return self.matched.mean

    def moments_of(self, theta_map: FloatArray, *, variances: bool = False) -> tuple[FloatArray, FloatArray]:
        """Mean and covariance of ``theta_map @ theta``; ``variances`` asks for the diagonal of the covariance only."""
        return self.matched.moments_of(theta_map, variances=variances)

    def draw(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw theta independently, shape (draws, d); directions by rejection where there are weights."""
        if self.log_weights is None:
            u = self._with_lengths(self._directions(draws, rng), rng)
        else:
            u = accepted(lambda count: self.propose(count, rng)[1::2], draws, self.log_weights, rng)
        return self.scores.complete(u, rng)

    def _with_lengths(self, e: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Draw u (draws, k) given directions e (draws, m): their lengths, and the other directions from the prior."""
        k, basis = e.shape[1], self.told[0]
        slope = e @ self.centre
        length = _draw_radius(slope, k - 1, rng) if slope.any() else np.sqrt(rng.chisquare(k, size=len(e)))
        u = e * length[:, None] - self.centre
        if basis is not None:
            free = rng.standard_normal((len(e), len(basis)))
            u = free + (u - free @ basis) @ basis.T
        return u

    def propose(self, draws: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Draw unit vectors (draws, m) from q and coefficients (draws, k) along them, risks and log(exact / q)."""
        e, inside, origin = self._directions(draws, rng), self.told[1], self.scores.origin
        assert origin is not None
        u = self._with_lengths(e, rng)
        risk = self._risk(u + origin)
        log_weights = -self.problem.gamma * risk - log_direction_density(e, inside)
        if self.centre.any():
            prior = natural_gaussian(np.eye(self.centre.size), self.centre)
            assert prior is not None
            log_weights += log_direction_density(e, prior)
        return e, u, risk, log_weights

    def _directions(self, draws: int, rng: np.random.Generator) -> FloatArray:
        u = draw_natural(self.told[1], draws, rng)
        return u / np.linalg.norm(u, axis=1, keepdims=True)

    @cached_property
    def _risk(self) -> LinearRisk:
        """The map from reduced coefficients (draws, k) to the risk."""
        scores, problem = self.scores, self.problem
        return LinearRisk(scores.reduced.design, problem.pairs, ties=problem.ties, distinct=scores.distinct)


class PartsPosterior(GaussianPosterior):
    """Independent parts, such as the scores of unordered classes, each with the exact distribution of its length.

    ``natural``, ``score_mean`` and ``divergence_from_prior`` are those of q.
    """

    def __init__(self, q: GaussianPosterior, problem: Problem):
        super().__init__(q.scores, q.natural)
        found = [(part, marginal(q, part.problem.scores, part.columns)) for part in problem.parts]
        parts = [
            FreeLengthPosterior(GaussianPosterior(part.problem.scores, own), part.problem)
            for part, own in found
            if own is not None
        ]
        vars(self).update(parts=parts, columns=[part.columns for part in problem.parts])  # the class is frozen

    parts: list[FreeLengthPosterior]
    columns: list[NDArray[np.intp]]

    @cached_property
    def log_weights(self) -> FloatArray | None:
        """Log weights of all parts together; None where one has none."""
        found = [each.log_weights for each in self.parts if each.log_weights is not None]
        return np.sum(found, axis=0) if len(found) == len(self.parts) else None

    @property
    def monte_carlo_error(self) -> float:
        """Monte Carlo error of the mean, in posterior standard deviations; zero where no weights are used."""
        return max(each.monte_carlo_error for each in self.parts)

    @property
    def mean(self) -> FloatArray:
        return self.joined([each.mean[None] for each in self.parts])[0]

    def moments_of(self, theta_map: FloatArray, *, variances: bool = False) -> tuple[FloatArray, FloatArray]:
        """Mean and covariance of ``theta_map @ theta``; ``variances`` asks for the diagonal of the covariance only."""
        maps = [theta_map[:, columns] for columns in self.columns]
        found = [each.moments_of(part, variances=variances) for each, part in zip(self.parts, maps, strict=True)]
        return np.sum([mean for mean, _ in found], axis=0), np.sum([spread for _, spread in found], axis=0)

    def draw(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw theta independently, shape (draws, d)."""
        return self.joined([each.draw(draws, rng) for each in self.parts])

    def joined(self, parts: list[FloatArray]) -> FloatArray:
        """Assemble theta (draws, d) from the coefficients of each part."""
        theta = np.empty((len(parts[0]), self.scores.d))
        for columns, part in zip(self.columns, parts, strict=True):
            theta[:, columns] = part
        return theta


def free_lengths(q: GaussianPosterior, problem: Problem) -> GaussianPosterior:
    """Return q with the exact distribution of the length of each independent part of the coefficients."""
    return FreeLengthPosterior(q, problem) if len(problem.parts) == 1 else PartsPosterior(q, problem)


def trim(log_weights: FloatArray) -> FloatArray:
    """Truncate log weights at their quantile 1 - ``TRIMMED``."""
    return np.minimum(log_weights, np.quantile(log_weights, 1.0 - TRIMMED))


def trustworthy(log_weights: FloatArray) -> bool:
    """Return whether the effective share of weighted draws is at least ``LEAST_SHARE``, enough to correct moments."""
    trimmed = trim(log_weights)
    return bool(trimmed.size * LEAST_SHARE * np.exp(logsumexp(2.0 * trimmed) - 2.0 * logsumexp(trimmed)) <= 1.0)


def weighted_moments(
    first: FloatArray, second: FloatArray, log_weights: FloatArray, trusted: bool
) -> tuple[FloatArray, FloatArray, float]:
    """Mean (k,), covariance (k, k) and the largest error of the mean in sds, from directions (draws, k) times E[r]
    and times E[r^2]^(1/2), r the length given each; without weights, unless these are ``trusted``.
    """
    trimmed = trim(log_weights) if trusted else np.zeros(len(first))
    weights = np.exp(trimmed - logsumexp(trimmed))
    mean = weights @ first
    covariance = (second * weights[:, None]).T @ second - np.outer(mean, mean)
    error = np.sqrt(weights**2 @ (first - mean) ** 2 / np.diagonal(covariance)).max()
    return mean, covariance, float(error)


def accepted(
    propose: Callable[[int], tuple[FloatArray, FloatArray]],
    draws: int,
    log_weights: FloatArray | None,
    rng: np.random.Generator,
) -> FloatArray:
    """Draw independently by rejection: ``propose(count)`` returns proposals and their log weights.

    The bound of the weights is taken from ``log_weights`` of earlier proposals; None accepts every proposal.
    """
    if log_weights is None:
        return propose(draws)[0]
    bound = trim(log_weights).max()
    share = np.exp(trim(log_weights) - bound).mean()
    found, count = [], 0
    while count < draws:
        proposed, own = propose(1 + int((draws - count) / share))
        found.append(proposed[np.log(rng.random(len(proposed))) < own - bound])
        count += len(found[-1])
    return np.concatenate(found)[:draws]


@np.errstate(under="ignore")
def free_length_moments(q: NaturalGaussian, more: Any = 0.0, further: Any = 0.0) -> tuple[FloatArray, FloatArray]:
    """Compute mean (k,) and covariance (k, k) of r e, e = u / |u|, u ~ q and r ~ chi_k.

    ``more`` (k,) and ``further`` (k, k) are added to E[e] and E[e e'].
    """
    k, m = q.mean.size, q.mean
    length = np.sqrt(2.0) * poch(0.5 * k, 0.5)  # E[r]
    curvature, basis = np.linalg.eigh(q.precision)
    variance, m = 1.0 / curvature, basis.T @ m
    log_s = np.linspace(-60.0, 60.0, 400)  # the trapezoidal rule is accurate to 1e-12; to 1e-6 with half as many
    s, step = np.exp(log_s), log_s[1] - log_s[0]
    shrunk = 1.0 / (1.0 + 2.0 * np.multiply.outer(s, variance))  # (nodes, k)
    log_mass = 0.5 * np.log(shrunk).sum(axis=1) - (s[:, None] * m**2 * shrunk).sum(axis=1)
    tilted = m * shrunk  # mean of q exp(-s N)
    by_root, by_square = (step * np.exp(log_mass + power * log_s) / poch(1.0, power - 1.0) for power in (0.5, 1.0))
    centre = length * (basis @ (by_root @ tilted))
    second = (tilted * by_square[:, None]).T @ tilted + np.diag(by_square @ shrunk * variance)
    centre, second = centre + length * more, basis @ second @ basis.T + further
    return centre, k * second - np.outer(centre, centre)


def log_mean(log_weights: FloatArray) -> tuple[float, float]:
    """Compute the log of the mean weight, and its standard error by the delta method."""
    estimate = logsumexp(log_weights) - np.log(log_weights.size)
    relative = np.exp(log_weights - estimate)
    return float(estimate), float(relative.std(ddof=1) / np.sqrt(log_weights.size))


def log_direction_density(direction: FloatArray, q: NaturalGaussian) -> FloatArray:
    """Compute the log density of e = u / |u|, u ~ q, relative to the uniform distribution on the sphere; (draws,)."""
    k = q.mean.size
    along = direction @ q.factor
    curvature = np.sum(along * along, axis=1)  # e' Q e
    slope = (direction @ q.shift) / np.sqrt(curvature)
    log_normalizer = np.log(np.diagonal(q.factor)).sum() - 0.5 * k * math.log(2 * math.pi) - 0.5 * q.mean @ q.shift
    log_area = math.log(2.0) + 0.5 * k * math.log(math.pi) - gammaln(0.5 * k)
    return log_normalizer + log_area - 0.5 * k * np.log(curvature) + _log_radial_integral(slope, k - 1)


def _log_radial_integral(slope: FloatArray, power: int) -> FloatArray:
    """Compute log int_0^inf t^power exp(-t^2/2 + slope t) dt by the trapezoidal rule in x = log t; shape of slope."""
    if power == 0:
        return np.asarray(0.5 * slope * slope + 0.5 * math.log(2 * math.pi) + log_ndtr(slope))
    grid = np.arange(slope.min(), slope.max() + 0.05, 0.05)
    if 3 <= grid.size < slope.size:  # many slopes: interpolate between those of a grid, to 1e-8
        return np.asarray(CubicSpline(grid, _log_radial_integral(grid, power))(slope))
    x, exponent = _radial_nodes(slope, power)
    return np.asarray(logsumexp(exponent, axis=1) + np.log(x[:, 1] - x[:, 0]))


def _draw_radius(slope: FloatArray, power: int, rng: np.random.Generator) -> FloatArray:
    """Draw t with density proportional to t^power exp(-t^2/2 + slope t), one for each slope."""
    x, exponent = _radial_nodes(slope, power)
    below = np.cumsum(np.exp(exponent - exponent.max(axis=1, keepdims=True)), axis=1)
    place = (below < rng.random((len(x), 1)) * below[:, -1:]).sum(axis=1)
    return np.exp(x[np.arange(len(x)), place] + (x[:, 1] - x[:, 0]) * rng.uniform(-0.5, 0.5, len(x)))


def _radial_nodes(slope: FloatArray, power: int) -> tuple[FloatArray, FloatArray]:
    """Return nodes x = log t and the log of the integrand there, shape (N, nodes)."""
    n = power + 1.0
    mode = 0.5 * (slope + np.sqrt(slope * slope + 4.0 * n))[:, None]
    # Below the mode the integrand falls like t^n, and on both sides faster than exp(-(t - mode)^2 / 2): by 40 nats here
    low = np.maximum(mode - 9.0, mode * np.exp(-9.0 / np.sqrt(n) - 40.0 / n))
    x = np.linspace(np.log(low), np.log(mode + 9.0), 241, axis=1)[..., 0]
    t = np.exp(x)
    return x, n * x - 0.5 * t * t + slope[:, None] * t


def sampled_expected_risk(
    problem: Problem, q: NaturalGaussian, count: int, rng: np.random.Generator
) -> tuple[float, float]:
    """Estimate E_q[risk], every tie costing one half, from ``count`` independent pairs; and its standard error.

    ``q`` is a Gaussian of the problem's reduced coefficients.
    """
    space = problem.scores.reduced
    mean = space.design @ q.mean + space.offset
    total = square = 0.0
    for part in slices(count, space.dimension):
        i, j = draw_pairs(problem.pairs, len(range(count)[part]), rng)
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
    """Draw pairs (i, j) independently, with probabilities proportional to their weights; both of shape (count,)."""
    share = np.array([block.total_weight for block in pairs.blocks])
    in_block = rng.multinomial(count, share / share.sum())
    drawn: list[list[NDArray[np.intp]]] = [[], []]
    for block, size in zip(pairs.blocks, in_block, strict=True):
        sides = (block.positive, block.positive_weights), (block.negative, block.negative_weights)
        for found, (index, weights) in zip(drawn, sides, strict=True):
            found.append(rng.choice(index, size=size, p=None if weights is None else weights / weights.sum()))
    return np.concatenate(drawn[0]), np.concatenate(drawn[1])
