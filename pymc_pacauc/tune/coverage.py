"""gamma at which credible sets cover as often as they say.

A Gibbs posterior is as wide as gamma makes it, and nothing in it says how far its mean is from the best score theta*,
the one of the smallest risk in the population. Sampling theory does. Near theta* the mean m of the posterior N(m, V)
solves  V^-1 (m - theta*) = -gamma g,  g the gradient at theta* of the empirical risk, smoothed by the posterior: the
posterior's own precision is prior + gamma times the Hessian, so the Hessian need not be known. Hence

    Cov(m) = gamma^2 V S V,    S = Cov(g),

the *sandwich*. The risk is a two-sample U-statistic; with G_i the mean gradient of the pairs of row i, its Hajek
projection gives S = Cov_+(G) / n+ + Cov_-(G) / n-. The gradient of a pair x = x_i - x_j whose score difference is
N(mu, v) under q is -phi(mu / sqrt(v)) x / sqrt(v): what EP's sites are made of, so that S costs one more pass over
them.

Only the direction of theta is identified. A credible set of directions is {theta: T(theta) <= t}, with

    T(theta) = min over c of (c theta - m)' V^-1 (c theta - m),

whose distribution under the posterior is found by drawing from it (about chi-squared with d - 1 degrees of freedom, but
less where the posterior is so wide that directions far apart have a share in it), while T(theta*) is
sum_k lambda_k chi^2_1, lambda the eigenvalues of gamma^2 V S V A, A the quadratic form of T. The set covers if the two
have the same quantile of the level asked for. Their ratio grows with gamma; where it is one, gamma is *calibrated*
(Syring and Martin, 2019; Lyddon, Holmes and Walker, 2019, who match traces of the same two matrices). As the smoothing
depends on gamma too, gamma is found by iteration: fit, divide gamma by the ratio, fit again.

*Calibrated spread* (:func:`calibrated_posterior`) keeps gamma and the mean, and puts the sandwich for the covariance,

    C = A^-1 S A^-1 + b b',    A = H + I / gamma,

in whitened coordinates, across the direction of the mean. H and S are the Hessian and the gradients' covariance of the
risk *smoothed by the covariance V + C*: by V, because that is what the mean minimises, and by C, because at a large
gamma V is too narrow to tell a slope (the induced smoothing of Brown and Wang, 2005). C is found by iteration, and
hardly depends on gamma. Rows of every comparison have their share in the gradient; given classes and strata the shares
of rows of one kind have one mean, which is taken away, and shares of one group of rows are added up first.

Two things are added. At a large gamma pairs near a tie count one by one, which the shares of rows do not show: the sum
of squares of the pairs' gradients, smoothed by V, less the one smoothed by V + C. At a small gamma the smoothing by V
moves the minimum: b is one Newton step from it towards that of the risk smoothed by C alone.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from pymc_pacauc.comparison.pairs import Pairs
from pymc_pacauc.comparison.sizes import group_codes, row_shares
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.ep.plan import ACCURACIES
from pymc_pacauc.ep.posterior import GaussianPosterior, NaturalGaussian, natural_gaussian
from pymc_pacauc.ep.results import Fit
from pymc_pacauc.fitting import fit
from pymc_pacauc.numerics import FloatArray, slices
from pymc_pacauc.problem.problem import Problem, two_class_mask
from pymc_pacauc.theorems import default_gamma
from pymc_pacauc.tune.gamma import content_order, pairs_of_few

TOLERANCE = 0.02  # of log(ratio)
MOST_FITS = 12
DRAWS = 4000
LARGEST_STEP = math.log(8.0)
# Passes over the pairs for the calibrated spread; twice as many change standard deviations by less than 1 %.
PASSES = 5
# Rows whose pairs are passed over, where there are more; twice as many take four times as long.
SPREAD_ROWS = 3000
# Smallest curvature of the smoothed risk, as a share of the largest: what noise makes of no curvature is negative. Ten
# times less makes intervals of directions that the data say nothing of three times as wide.
LEAST_CURVATURE = 0.01


@dataclass(frozen=True)
class Sandwich:
    """How wide a posterior is beside the sampling distribution of its mean.

    Attributes
    ----------
    gamma
        The gamma of the posterior.
    ratio
        Quantile of T(theta*) over that of T under the posterior: above one, credible sets are too small.
    eigenvalues
        lambda, one of each direction; one where the posterior is as wide as it should be.
    """

    gamma: float
    ratio: float
    eigenvalues: FloatArray


@dataclass(frozen=True, eq=False)
class CoverageChoice:
    """What :func:`coverage_gamma` found: the ``gamma``, its ``fit``, the ``path`` to it with its fits, and whether it
    ``settled``.
    """

    gamma: float
    level: float
    fit: Fit
    path: tuple[Sandwich, ...]
    fits: tuple[Fit, ...]
    settled: bool

    def __repr__(self) -> str:
        state = "" if self.settled else ", not settled"
        return f"CoverageChoice(gamma={self.gamma:.4g} for {self.level:.0%} sets, {len(self.path)} fits{state})"


def coverage_gamma(
    problem: Problem,
    level: float = 0.9,
    *,
    n_jobs: int | None = None,
    callback: Callable[[int], None] | None = None,
) -> CoverageChoice:
    """The gamma at which credible sets of the direction of theta cover with probability ``level``.

    For two classes all of whose pairs weigh the same, and a Gaussian prior centred at zero. ``problem.gamma`` is not
    used; ``callback`` is called with the number of fits so far.

    Examples
    --------
    >>> from pymc_pacauc.problem.problem import linear_gaussian_problem
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(300, 4))
    >>> y = X[:, 0] + rng.logistic(size=300) > 0
    >>> choice = coverage_gamma(linear_gaussian_problem(X, y, gamma=1.0))
    >>> choice.settled, bool(30 < choice.gamma < 3000)
    (True, True)
    """
    positive = _check(problem, level)
    gamma = default_gamma(int(positive.sum()), int((~positive).sum()))
    largest = float(problem.pairs.n_pairs)
    path: list[Sandwich] = []
    fits: list[Fit] = []
    settled = False
    while len(path) < MOST_FITS and not settled:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # of fits on the way; that of the last one is told
            start = fits[-1] if fits else None
            fits.append(
                fit(
                    replace(problem, gamma=gamma),
                    start=start,
                    tolerance=ACCURACIES["estimator"].tolerance,
                    n_jobs=n_jobs,
                )
            )
        path.append(sandwich(fits[-1], level))
        if callback is not None:
            callback(len(path))
        settled = abs(math.log(path[-1].ratio)) < TOLERANCE
        if not settled:
            gamma = min(largest, _next(path))
    final = fit(fits[-1].problem, start=fits[-1], n_jobs=n_jobs)
    if not settled:
        warnings.warn(
            f"gamma had not settled after {len(path)} fits: at gamma = {path[-1].gamma:.4g} credible sets are "
            f"{path[-1].ratio:.2f} times too small (in squared radius).",
            ConvergenceWarning,
            stacklevel=2,
        )
    return CoverageChoice(final.problem.gamma, level, final, tuple(path), (*fits[:-1], final), settled)


def sandwich(fitted: Fit, level: float = 0.9) -> Sandwich:
    """Compare a posterior's width with the sampling distribution of its mean."""
    problem = fitted.problem
    positive = _check(problem, level)
    q = fitted.posterior.natural
    if not q.mean.any():
        raise ValueError("All rows have the same score: X has no direction to calibrate.")
    scores = _row_gradients(problem, positive, q.mean, q.root)
    spread = [np.atleast_2d(np.cov(scores[rows], rowvar=False)) / rows.sum() for rows in (positive, ~positive)]
    toward = q.precision @ q.mean
    form = q.precision - np.outer(toward, toward) / float(q.mean @ toward)  # of T
    covariance = problem.gamma**2 * q.covariance @ (spread[0] + spread[1]) @ q.covariance
    root = linalg.cholesky(covariance + 1e-14 * np.trace(covariance) * np.eye(len(covariance)), lower=True)
    eigenvalues = linalg.eigvalsh(root.T @ form @ root)[1:]  # without the scale of theta, which T does not see
    rng = np.random.default_rng(0)
    of_best = rng.chisquare(1, size=(DRAWS, eigenvalues.size)) @ eigenvalues
    ratio = np.quantile(of_best, level) / np.quantile(_of_draws(q, rng), level)
    return Sandwich(problem.gamma, float(ratio), eigenvalues)


def calibrated_posterior(fitted: Fit, groups: ArrayLike | None = None) -> GaussianPosterior:
    """The posterior with its own mean, and with the covariance that the mean has over data sets.

    Across the direction of the mean, that is: the length of theta is not identified, and hardly varies.

    Parameters
    ----------
    fitted : Fit
        By EP or variational Bayes, to any pairs, under a Gaussian prior.
    groups : array-like of shape (n,), optional
        Group label of each observation: groups are the independent units, not observations.

    Returns
    -------
    GaussianPosterior

    Raises
    ------
    ValueError
        For priors that are not Gaussian, and where there are fewer than two units for each coefficient.

    Examples
    --------
    >>> from pymc_pacauc.problem.problem import linear_gaussian_problem
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(300, 4))
    >>> y = X[:, 0] + rng.logistic(size=300) > 0
    >>> fits = [fit(linear_gaussian_problem(X, y, gamma)) for gamma in (300.0, 3000.0)]
    >>> own, wide = (
    ...     [each.variance[1] ** 0.5 / np.linalg.norm(each.mean) for each in posteriors]
    ...     for posteriors in ([f.posterior for f in fits], [calibrated_posterior(f) for f in fits])
    ... )
    >>> bool(own[0] > 1.5 * own[1]), bool(0.9 < wide[0] / wide[1] < 1.1)
    (True, True)
    """
    problem = fitted.problem
    if problem.sites is not None:
        raise ValueError(
            "A spread is calibrated under Gaussian priors; this one has spikes, heavy tails, signs or another density."
        )
    q, pairs = fitted.posterior.natural, problem.pairs
    basis = linalg.null_space(q.mean[None]) if problem.scale_free else np.eye(q.mean.size)
    codes = None if groups is None else group_codes(groups, problem.n)
    units = problem.compared_rows.size if codes is None else int(np.unique(codes[problem.compared_rows]).size)
    if units < 2 * q.mean.size:
        raise ValueError(
            f"calibrated() needs two observations (or groups) for each coefficient at least; there are {units} for "
            f"{q.mean.size} coefficients."
        )
    if basis.shape[1] == 0:  # one coefficient has no direction but its sign
        return fitted.posterior
    few = pairs_of_few(pairs, SPREAD_ROWS, content_order(problem.X))
    grown = row_shares(pairs).size / row_shares(few).size
    space = problem.scores.reduced
    rows, score = space.design @ basis, space.design @ q.mean + space.offset
    own = grown * basis.T @ q.covariance @ basis
    smoothing = own
    for _ in range(PASSES):
        found = _smoothed(rows, score, few, smoothing)
        curvature, axes = linalg.eigh(found.hessian + grown / problem.gamma * np.eye(len(own)))
        inverse = (axes / np.maximum(curvature, LEAST_CURVATURE * curvature[-1])) @ axes.T
        moved = _unit_shares(found.share, few, codes) @ inverse
        spread = moved.T @ moved
        smoothing = own + spread
    at_own, alone = _smoothed(rows, score, few, own), _smoothed(rows, score, few, spread)
    bias = inverse @ (alone.share - at_own.share).sum(axis=0) / 2.0  # a pair has two rows
    copies = problem.compared_rows.size / units  # rows of a group count as copies of one
    spread = spread + inverse @ (at_own.squares - found.squares) @ inverse * copies**2 / math.sqrt(grown)
    spread = spread / grown + np.outer(bias, bias) / grown**2
    variance, axes = linalg.eigh(spread)
    variance = np.maximum(variance, 1e-9 * variance[-1])
    axes = basis @ axes
    precision = (axes / variance) @ axes.T
    if problem.scale_free:
        along = q.mean / np.linalg.norm(q.mean)
        precision = precision + np.outer(along, along) / variance[0]  # a length that hardly varies
    wide = natural_gaussian(precision, precision @ q.mean)
    assert wide is not None
    return GaussianPosterior(problem.scores, wide)


class _Smoothed(NamedTuple):
    """The risk smoothed by a covariance: sums over its pairs.

    Attributes
    ----------
    share : array of shape (n, k)
        Each row's share in minus the gradient; those of both rows of a pair are the pair's.
    leverage : array of shape (n,)
        Trace of the covariance times the Hessian of the pairs of each row.
    hessian, squares : array of shape (k, k)
        The Hessian, and the sum over pairs of the squares (outer products) of their gradients.
    """

    share: FloatArray
    leverage: FloatArray
    hessian: FloatArray
    squares: FloatArray


def _smoothed(rows: FloatArray, score: FloatArray, pairs: Pairs, covariance: FloatArray) -> _Smoothed:
    """Sums over all pairs, at the scores ``score[n]`` of the rows, theta having this covariance about its mean."""
    whitened = rows @ linalg.cholesky(covariance, lower=True)
    square = np.einsum("ij,ij->i", whitened, whitened)
    least = 1e-12 * square.max()
    share, leverage = np.zeros_like(rows), np.zeros(len(rows))
    hessian, squares = np.zeros_like(covariance), np.zeros_like(covariance)

    def products(weight: FloatArray, i: NDArray[np.intp], j: NDArray[np.intp]) -> FloatArray:
        """Sum over pairs of weight times the outer product of the difference of their rows."""
        across = rows[i].T @ weight @ rows[j]
        own = (rows[i].T * weight.sum(axis=1)) @ rows[i] + (rows[j].T * weight.sum(axis=0)) @ rows[j]
        return np.asarray(own - across - across.T)

    for block in pairs.blocks:
        j = block.negative
        for part in slices(block.positive.size, j.size):
            i = block.positive[part]
            variance = square[i][:, None] + square[j] - 2.0 * whitened[i] @ whitened[j].T
            sd = np.sqrt(np.maximum(variance, least))
            rho = (score[i][:, None] - score[j]) / sd
            slope = np.exp(-0.5 * rho**2) / (math.sqrt(2.0 * math.pi) * sd)
            slope *= block.row_weights[part, None] * block.column_weights
            share[i] += slope.sum(axis=1)[:, None] * rows[i] - slope @ rows[j]
            share[j] += slope.T @ rows[i] - slope.sum(axis=0)[:, None] * rows[j]
            traces = slope * rho * sd
            leverage[i] += traces.sum(axis=1)
            leverage[j] += traces.sum(axis=0)
            hessian += products(slope * rho / sd, i, j)
            squares += products(slope**2, i, j)
    total = pairs.total_weight
    return _Smoothed(share / total, leverage / total, hessian / total, squares / total**2)


def _unit_shares(share: FloatArray, pairs: Pairs, codes: NDArray[np.intp] | None) -> FloatArray:
    """Deviations of the rows' shares from what rows of their kind have, added up within groups.

    Rows on the same side of the same blocks are of one kind; a row that is one of its kind deviates from zero.
    """
    rng, mark = np.random.default_rng(0), np.zeros(pairs.n)
    for block in pairs.blocks:
        higher, lower = rng.random(2)
        mark[block.positive] += higher
        mark[block.negative] += lower
    kind = np.unique(mark, return_inverse=True)[1]
    members, weight = np.bincount(kind), pairs.observation_weight
    alone = members[kind] == 1
    total = np.array([np.bincount(kind, column) for column in share.T]).T
    expected = weight[:, None] * (total / np.maximum(np.bincount(kind, weight), 1e-300)[:, None])[kind]
    apart = share - np.where(alone[:, None], 0.0, expected)
    if codes is None:
        return apart * np.sqrt(members / np.maximum(members - 1, 1))[kind][:, None]
    summed = np.array([np.bincount(codes, column) for column in apart.T]).T
    return summed * np.sqrt(len(summed) / (len(summed) - 1.0))


def _of_draws(q: NaturalGaussian, rng: np.random.Generator) -> FloatArray:
    """T of draws from the posterior, in coordinates in which it is N(mean, I)."""
    mean = q.factor.T @ q.mean
    draws = mean + rng.standard_normal((DRAWS, mean.size))
    return np.asarray(mean @ mean - np.maximum(draws @ mean, 0.0) ** 2 / np.einsum("ij,ij->i", draws, draws))


def _row_gradients(problem: Problem, positive: NDArray[np.bool_], mean: FloatArray, root: FloatArray) -> FloatArray:
    """Minus the mean gradient, with respect to the reduced coefficients, of the pairs of each row.

    The mean has moved towards every row it was fitted to, so that gradients are smaller at it than at theta*: by the
    row's leverage h, the trace of V times what the row adds to the precision. So their squares are enlarged by
    1 / (1 - h) (HC2 of MacKinnon and White, 1985), to first order: 1 + h / 2.
    """
    space = problem.scores.reduced
    found = _smoothed(space.design, space.design @ mean + space.offset, problem.pairs, root @ root.T)
    count = np.where(positive, positive.sum(), (~positive).sum())
    return found.share * (count * (1.0 + 0.5 * problem.gamma * found.leverage))[:, None]


def _next(path: list[Sandwich]) -> float:
    """The next gamma: by the secant through the last two on logarithmic scales, else divided by the ratio."""
    last = path[-1]
    step = -math.log(last.ratio)
    if len(path) > 1:
        before = path[-2]
        rise, run = math.log(last.ratio / before.ratio), math.log(last.gamma / before.gamma)
        if run != 0.0 and 0.2 < rise / run < 5.0:
            step = -math.log(last.ratio) * run / rise
    return last.gamma * math.exp(float(np.clip(step, -LARGEST_STEP, LARGEST_STEP)))


def _check(problem: Problem, level: float) -> NDArray[np.bool_]:
    if not 0.0 < level < 1.0:
        raise ValueError(f"level is a probability strictly between 0 and 1; got {level!r}.")
    if problem.sites is not None or not problem.scale_free:
        raise ValueError(
            "gamma can be calibrated to coverage for scores X @ theta under a Gaussian prior centred at zero: without "
            "spikes, offsets or prior means."
        )
    if problem.d < 2:
        raise ValueError(
            "X must have two columns at least to calibrate: with one coefficient the direction is its sign."
        )
    return two_class_mask(problem, "gamma can be calibrated to coverage", "Choose it by cross-validation.")
