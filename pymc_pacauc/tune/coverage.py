"""Calibration of a Gibbs posterior: the gamma, or the covariance, for which credible sets have their nominal coverage.

*Sandwich* (:func:`sandwich`). The width of a Gibbs posterior depends on gamma, and not on how far its mean is from the
best score theta*, that of the smallest risk in the population. Sampling theory gives this distance. Near theta* the
mean m of the posterior N(m, V) solves  V^-1 (m - theta*) = -gamma g,  g the gradient at theta* of the empirical risk
smoothed by the posterior, because V^-1 is prior + gamma times the Hessian. Hence

    Cov(m) = gamma^2 V S V,    S = Cov(g),

The risk is a two-sample U-statistic; with G_i the mean gradient of the pairs of row i, its Hajek projection gives
S = Cov_+(G) / n+ + Cov_-(G) / n-. The gradient of a pair x = x_i - x_j whose score difference is N(mu, v) under q is
-phi(mu / sqrt(v)) x / sqrt(v), so S costs one pass over the pairs, O(n+ n- d).

*Gamma by coverage* (:func:`coverage_gamma`). Only the direction of theta is identified. A credible set of directions is
{theta: T(theta) <= t} with

    T(theta) = min over c of (c theta - m)' V^-1 (c theta - m).

Its distribution under the posterior is found by drawing (about chi-squared with d - 1 degrees of freedom, smaller for
very wide posteriors), while T(theta*) is distributed as sum_k lambda_k chi^2_1, lambda the eigenvalues of
gamma^2 V S V A, A the matrix of the quadratic form T. The set has the nominal coverage if the quantiles of the two at
the level are equal. Their ratio grows with gamma. As the smoothing depends on gamma too, gamma is found by iteration:
fit, divide gamma by the ratio, fit again.

*Calibrated spread* (:func:`calibrated_posterior`) keeps gamma and the mean, and replaces the covariance by

    C = A^-1 S A^-1 + b b',    A = H + I / gamma,

in whitened coordinates, orthogonal to the mean. H and S are the Hessian and the gradients' covariance of the risk
*smoothed by the covariance V + C*: by V, because the mean minimises that risk, and by C, because at a large gamma V is
too narrow to estimate a slope (induced smoothing). C is found by iteration, and hardly depends on gamma. It is for any
comparison: given classes and strata, rows on the same side of the same blocks have one mean gradient, which is
subtracted, and gradients of one group of rows are summed first. Two terms are added. At a large gamma pairs near a tie
matter one by one, which sums by row do not show: the sum of squares of the pairs' gradients smoothed by V, minus that
smoothed by V + C. At a small gamma the smoothing by V shifts the minimum: b is one Newton step towards the minimum of
the risk smoothed by C alone.

Used by ``select_gamma(criterion="coverage")`` and by ``calibrated()`` of results; both need EP's Gaussian q. Where rows
depend on each other in another way than by groups, change :func:`_unit_shares`, the gradients of independent units.

References: Syring & Martin (2019), doi:10.1093/biomet/asy054; Lyddon, Holmes & Walker (2019),
doi:10.1093/biomet/asz006, who match traces of the same two matrices; Brown & Wang (2005), doi:10.1093/biomet/92.1.149,
for induced smoothing; MacKinnon & White (1985), doi:10.1016/0304-4076(85)90158-7, for HC2.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from pymc_pacauc.comparison.pairs import Pairs, label_codes
from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.ep.plan import ACCURACIES, GAMMA_STEP
from pymc_pacauc.ep.posterior import GaussianPosterior, NaturalGaussian, natural_gaussian
from pymc_pacauc.ep.results import Fit
from pymc_pacauc.fitting import fit, fits_along
from pymc_pacauc.numerics import DRAWS, FloatArray, check_probability, slices
from pymc_pacauc.problem.problem import Problem, two_class_mask
from pymc_pacauc.tune.gamma import MANY_ROWS, content_order, pairs_of_few

MOST_FITS = 12  # of the search for gamma; it takes about five: doubled or halved, no effect
# Passes over the pairs for the calibrated spread; twice as many change standard deviations by less than 1 %.
PASSES = 5


@dataclass(frozen=True)
class Sandwich:
    """Width of a posterior compared with the sampling distribution of its mean.

    Attributes
    ----------
    gamma : float
        The gamma of the posterior.
    ratio : float
        Quantile of T(theta*) over that of T under the posterior: above one, credible sets are too small.
    eigenvalues : ndarray
        lambda, one for each direction; 1 where the posterior has the right width.
    """

    gamma: float
    ratio: float
    eigenvalues: FloatArray


@dataclass(frozen=True, eq=False)
class CoverageChoice:
    """Result of :func:`coverage_gamma`: the ``path`` of iterations with their ``fits``, and whether it ``settled``."""

    path: tuple[Sandwich, ...]
    fits: tuple[Fit, ...]
    settled: bool

    @property
    def fit(self) -> Fit:
        """The fit at the gamma chosen, the last one."""
        return self.fits[-1]


def coverage_gamma(
    problem: Problem,
    level: float = 0.9,
    *,
    n_jobs: int | None = None,
    callback: Callable[[int], None] | None = None,
) -> CoverageChoice:
    """Choose the gamma at which credible sets of the direction of theta have coverage ``level``.

    For two classes all of whose pairs weigh the same, and a Gaussian prior centred at zero. ``problem.gamma`` is not
    used; ``callback`` is called with the number of fits so far.

    Examples
    --------
    >>> from pymc_pacauc.problem.problem import linear_gaussian_problem
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(300, 4))
    >>> y = X[:, 0] + rng.logistic(size=300) > 0
    >>> choice = coverage_gamma(linear_gaussian_problem(X, y, gamma=1.0))
    >>> choice.settled, bool(30 < choice.fit.problem.gamma < 3000)
    (True, True)
    """
    _check(problem, level)
    path: list[Sandwich] = []
    fits: list[Fit] = []

    def problems() -> Iterator[Problem]:
        """Yield the problem at the first gamma, and at the next one after each fit that was compared."""
        yield replace(problem, gamma=4.0 * row_shares(problem.pairs).size)  # theorems.default_gamma
        while len(path) < MOST_FITS:
            yield replace(problem, gamma=min(float(problem.pairs.n_pairs), _next(path)))

    settled = False
    for found in fits_along(problems(), tolerance=ACCURACIES["estimator"].tolerance, n_jobs=n_jobs):
        fits.append(found)
        path.append(sandwich(found, level))
        if callback is not None:
            callback(len(path))
        if settled := abs(math.log(path[-1].ratio)) < 0.02:
            break
    final = fit(fits[-1].problem, start=fits[-1], n_jobs=n_jobs)
    if not settled:
        warnings.warn(
            f"gamma did not converge in {len(path)} fits: at gamma = {path[-1].gamma:.4g} the squared radius of "
            f"credible sets should be {path[-1].ratio:.2f} times as large.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return CoverageChoice(tuple(path), (*fits[:-1], final), settled)


def sandwich(fitted: Fit, level: float = 0.9) -> Sandwich:
    """Compare a posterior's width with the sampling distribution of its mean."""
    problem = fitted.problem
    _check(problem, level)
    q = fitted.posterior.natural
    if not q.mean.any():
        raise ValueError("X gives all rows the same score: there is no direction to calibrate.")
    moved = problem.gamma * _unit_shares(_row_shares(problem, q.mean, q.root), problem.pairs, None) @ q.covariance
    form = q.precision - np.outer(q.shift, q.shift) / float(q.mean @ q.shift)  # of T
    covariance = moved.T @ moved
    root = linalg.cholesky(covariance + 1e-14 * np.trace(covariance) * np.eye(len(covariance)), lower=True)
    eigenvalues = linalg.eigvalsh(root.T @ form @ root)[1:]  # without that of the scale of theta, which is 0
    rng = np.random.default_rng(0)
    of_best = rng.chisquare(1, size=(DRAWS, eigenvalues.size)) @ eigenvalues
    ratio = np.quantile(of_best, level) / np.quantile(_of_draws(q, rng), level)
    return Sandwich(problem.gamma, float(ratio), eigenvalues)


def calibrated_posterior(fitted: Fit, groups: ArrayLike | None = None) -> GaussianPosterior:
    """Return a Gaussian with the posterior's mean, and with the sampling covariance of that mean.

    Orthogonal to the mean, that is: the length of theta is not identified, and is given a small variance.

    Parameters
    ----------
    fitted : Fit
        Fit by EP or variational Bayes, of any pairs, under a Gaussian prior.
    groups : array_like, shape (n,), optional
        Group label of each observation: groups are the independent units, not observations.

    Returns
    -------
    GaussianPosterior
        The calibrated posterior.

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
        raise ValueError(f"calibrated() is for Gaussian priors; that of this fit is {problem.sites.name}.")
    q, pairs = fitted.posterior.natural, problem.pairs
    basis = linalg.null_space(q.mean[None]) if problem.scale_free else np.eye(q.mean.size)
    codes = None if groups is None else label_codes("groups", groups, problem.n)
    units = problem.compared_rows.size if codes is None else int(np.unique(codes[problem.compared_rows]).size)
    if units < 2 * q.mean.size:
        raise ValueError(
            f"calibrated() needs at least two observations (or groups) for each coefficient; there are {units} for "
            f"{q.mean.size} coefficients."
        )
    if basis.shape[1] == 0:  # the direction of one coefficient is its sign
        return fitted.posterior
    few = pairs_of_few(pairs, MANY_ROWS, content_order(problem.X))
    grown = row_shares(pairs).size / row_shares(few).size
    space = problem.scores.reduced
    rows, score = space.design @ basis, space.design @ q.mean + space.offset
    own = grown * basis.T @ q.covariance @ basis
    smoothing = own
    for _ in range(PASSES):
        found = _smoothed(rows, score, few, smoothing)
        curvature, axes = linalg.eigh(found.hessian + grown / problem.gamma * np.eye(len(own)))
        # At least a hundredth of the largest curvature: noise can make a vanishing one negative. A thousandth makes
        # intervals of directions without information three times as wide.
        inverse = (axes / np.maximum(curvature, 0.01 * curvature[-1])) @ axes.T
        moved = _unit_shares(found.share, few, codes) @ inverse
        spread = moved.T @ moved
        smoothing = own + spread
    at_own, alone = _smoothed(rows, score, few, own), _smoothed(rows, score, few, spread)
    bias = inverse @ (alone.share - at_own.share).sum(axis=0) / 2.0  # a pair has two rows
    copies = problem.compared_rows.size / units  # rows of a group are treated as copies of one row
    spread = spread + inverse @ (at_own.squares - found.squares) @ inverse * copies**2 / math.sqrt(grown)
    spread = spread / grown + np.outer(bias, bias) / grown**2
    variance, axes = linalg.eigh(spread)
    variance = np.maximum(variance, 1e-9 * variance[-1])
    axes = basis @ axes
    precision = (axes / variance) @ axes.T
    if problem.scale_free:
        along = q.mean / np.linalg.norm(q.mean)
        precision = precision + np.outer(along, along) / variance[0]  # the smallest variance, for the length
    wide = natural_gaussian(precision, precision @ q.mean)
    assert wide is not None
    return GaussianPosterior(problem.scores, wide)


class _Smoothed(NamedTuple):
    """Sums over pairs of derivatives of the risk smoothed by a covariance.

    Attributes
    ----------
    share : ndarray, shape (n, k)
        Minus the gradient summed over the pairs of each row; a pair counts for both of its rows.
    leverage : ndarray, shape (n,)
        Trace of the covariance times the Hessian of the pairs of each row.
    hessian, squares : ndarray, shape (k, k)
        The Hessian, and the sum over pairs of the outer products of their gradients.
    """

    share: FloatArray
    leverage: FloatArray
    hessian: FloatArray
    squares: FloatArray


@np.errstate(under="ignore")
def _smoothed(rows: FloatArray, score: FloatArray, pairs: Pairs, covariance: FloatArray) -> _Smoothed:
    """Sum over all pairs, at mean scores ``score[n]``, with theta of this covariance (k, k); ``rows`` is (n, k)."""
    whitened = rows @ linalg.cholesky(covariance, lower=True)
    square = np.einsum("ij,ij->i", whitened, whitened)
    least = 1e-12 * square.max()
    share, leverage = np.zeros_like(rows), np.zeros(len(rows))
    hessian, squares = np.zeros_like(covariance), np.zeros_like(covariance)

    def products(weight: FloatArray, i: NDArray[np.intp], j: NDArray[np.intp]) -> FloatArray:
        """Sum weight times the outer product of the difference of the two rows over pairs; (k, k)."""
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
    """Subtract from each row's share the mean of rows of its kind, and sum within groups; (units, k).

    Rows on the same side of the same blocks are of one kind; nothing is subtracted from a row alone of its kind.
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
    """Compute T of draws from the posterior, in coordinates in which it is N(mean, I); (DRAWS,)."""
    mean = q.factor.T @ q.mean
    draws = mean + rng.standard_normal((DRAWS, mean.size))
    return np.asarray(mean @ mean - np.maximum(draws @ mean, 0.0) ** 2 / np.einsum("ij,ij->i", draws, draws))


def _row_shares(problem: Problem, mean: FloatArray, root: FloatArray) -> FloatArray:
    """Compute minus the gradient of the risk in the reduced coefficients, summed over the pairs of each row, (n, k).

    The mean was fitted to every row, so gradients at it are smaller than at theta*, by the row's leverage h, the trace
    of V times the row's part of the precision. Squares are therefore divided by 1 - h (HC2 of MacKinnon and White,
    1985): to first order, gradients are multiplied by 1 + h / 2.
    """
    space = problem.scores.reduced
    found = _smoothed(space.design, space.design @ mean + space.offset, problem.pairs, root @ root.T)
    return found.share * (1.0 + 0.5 * problem.gamma * found.leverage)[:, None]


def _next(path: list[Sandwich]) -> float:
    """Return the next gamma: by the secant through the last two on logarithmic scales, else divided by the ratio."""
    last = path[-1]
    step = -math.log(last.ratio)
    if len(path) > 1:
        before = path[-2]
        rise, run = math.log(last.ratio / before.ratio), math.log(last.gamma / before.gamma)
        if run != 0.0 and 0.2 < rise / run < 5.0:
            step = -math.log(last.ratio) * run / rise
    return last.gamma * float(np.clip(math.exp(step), 1.0 / GAMMA_STEP, GAMMA_STEP))


def _check(problem: Problem, level: float) -> None:
    """Refuse problems that cannot be calibrated."""
    check_probability("level", level)
    if problem.sites is not None or not problem.scale_free:
        raise ValueError(
            "gamma can be calibrated to coverage for scores X @ theta under a Gaussian prior centred at zero: without "
            "spikes, offsets or prior means."
        )
    if problem.d < 2:
        raise ValueError(
            f"X must have at least two columns, to calibrate gamma; got {problem.d}: the direction of one coefficient "
            "is its sign."
        )
    two_class_mask(problem, "gamma can be calibrated to coverage", "Choose it by cross-validation.")
