"""Choose Gaussian priors, and lengthscales of kernel features, by EP's log evidence.

*Prior covariance* (:func:`choose_prior`, estimators' ``prior="gaussian"``). With independent coefficients of equal
variance, the posterior mean at a small gamma is along the difference of the class means, whatever the correlation of
the columns. With prior covariance S^-1, S that of the columns (as in a g-prior), it is along S^-1 times that
difference, Fisher's discriminant: right where S is known well, and mostly noise where it is not. Between the two is

    prior covariance = ((1 - shrinkage) S + shrinkage I)^-1,

with independent coefficients at shrinkage 1. Evidences of different priors on the same pairs at the same gamma can be
compared, so four fits at one gamma choose; of additive features four more, of the scale of the bends, given the prior
of the lines. Because the choice uses the data, a certificate counts it (``selected_from``).

*Lengthscales* (:func:`choose_lengthscale`). The log evidence is computed on a grid of multiples of the median distance,
then maximised from the best of them by L-BFGS in the logarithms, with one lengthscale for all covariates or one for
each (automatic relevance determination). It is the search of :mod:`pymc_pacauc.tune.nested` with a flat prior and a
gradient of its own, which is exact for given pivots (:func:`~pymc_pacauc.ep.kernel.feature_slopes`) and costs about one
sweep for any number of lengthscales. Each fit starts from the sites of one nearby. If pairs are subsampled
(:mod:`pymc_pacauc.ep.subsample`), new pairs are drawn for each lengthscale of the grid and for the final one, but the
search between them uses the same pairs, so that the objective is smooth.

References: Zellner (1986) for the g-prior; Rasmussen & Williams (2006), http://gaussianprocess.org/gpml, chapter 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from scipy.spatial.distance import cdist

from pymc_pacauc.comparison.pairs import Pairs, bipartite
from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.ep.gaussian import EPFit
from pymc_pacauc.ep.kernel import feature_slopes
from pymc_pacauc.ep.plan import Subsample
from pymc_pacauc.ep.results import Fit
from pymc_pacauc.fitting import fit, fits_along
from pymc_pacauc.interrupt import raises_interrupts
from pymc_pacauc.numerics import FloatArray, checked_rows
from pymc_pacauc.problem.kernel_features import (
    COVARIANCES,
    Covariance,
    KernelFeatures,
    kernel_features,
    median_distance,
)
from pymc_pacauc.problem.problem import Problem, linear_gaussian_problem
from pymc_pacauc.problem.scores import GaussianPrior, LinearScores
from pymc_pacauc.tune.gamma import CENTRE
from pymc_pacauc.tune.nested import DENSITY, FARTHEST, Conditional, Density, Point, find_mode

# Shrinkages that evidence compares, without unit: from nearly Fisher's discriminant to independent coefficients. Twice
# as many take twice as many fits, and each counts in the certificate.
SHRINKAGES = (0.03, 0.1, 0.3, 1.0)
# Prior sds of bends that are compared, lines having 1. Twice as many: as many more fits, which the certificate counts.
BENDS = (0.1, 0.3, 1.0, 3.0)


@dataclass(frozen=True, eq=False)
class PriorChoice:
    """A prior, chosen by :func:`choose_prior` among ``number`` of them, in a ``problem``.

    ``fit`` is the fit with it that was compared, to the rows that are compared; None where there was no choice, or it
    did not converge. ``shrinkage`` is that of the prior covariance, where it has one.
    """

    problem: Problem
    fit: Fit | None = None
    number: int = 1
    shrinkage: float | None = None


def shrunk_prior(problem: Problem, shrinkage: float, S: FloatArray) -> Problem:
    """Return the problem with prior covariance ((1 - shrinkage) S + shrinkage I)^-1, ``S`` of shape (d, d).

    Examples
    --------
    >>> from pymc_pacauc.problem.problem import linear_gaussian_problem
    >>> X = np.random.default_rng(1).normal(size=(50, 2))
    >>> problem = linear_gaussian_problem(X, X[:, 0] > 0, gamma=10.0)
    >>> shrunk_prior(problem, 1.0, np.cov(X.T)).prior.covariance
    array([[1., 0.],
           [0., 1.]])
    """
    if not (np.ndim(shrinkage) == 0 and 0.0 < shrinkage <= 1.0):
        raise ValueError(f"shrinkage must be a number in (0, 1]; got {shrinkage!r}.")
    if shrinkage == 1.0:
        return _with_prior(problem, np.ones(problem.d))
    upper = linalg.cholesky((1.0 - shrinkage) * S + shrinkage * np.eye(problem.d))  # U'U, and (U'U)^-1 = U^-1 U^-T
    root = linalg.solve_triangular(upper, np.eye(problem.d))
    return _with_prior(problem, linalg.cholesky(root @ root.T, lower=True))


def choose_prior(
    problem: Problem,
    lines: int | None = None,
    shrinkages: Sequence[float] = SHRINKAGES,
    *,
    weights: FloatArray | None = None,
    n_jobs: int | None = None,
) -> PriorChoice:
    """Choose the shrinkage of the first ``lines`` columns, by default all, then the scale of the others, bends.

    With more lines than rows, where S is singular, the shrinkage is 1. ``weights`` are those of the rows in S.

    Examples
    --------
    Nine columns are equal up to noise, and the label depends on their differences.

    >>> from pymc_pacauc.problem.problem import linear_gaussian_problem
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(300, 1)) + 0.3 * rng.normal(size=(300, 9))
    >>> y = X[:, 0] - X[:, 1] + 0.2 * rng.normal(size=300) > 0
    >>> choose_prior(linear_gaussian_problem(X, y, gamma=1.0)).shrinkage < 1
    True

    A label that no line separates:

    >>> from pymc_pacauc.problem.additive_features import additive_features
    >>> X = np.random.default_rng(1).normal(size=(100, 1))
    >>> F = additive_features(X).transform(X)
    >>> choice = choose_prior(linear_gaussian_problem(F, X[:, 0] ** 2 > 0.5, gamma=1.0), lines=1)
    >>> bool(choice.problem.prior.factor[-1, -1] == max(BENDS))
    True
    """
    lines = problem.d if lines is None else lines
    straight = _with_prior(problem, np.ones(lines))
    if lines > problem.n or len(shrinkages) == 1:
        line = PriorChoice(straight, shrinkage=1.0)
    else:
        S = np.atleast_2d(np.cov(straight.X, rowvar=False, bias=True, aweights=weights))
        line = _best({each: shrunk_prior(straight, each, S) for each in shrinkages}, n_jobs)
    if lines == problem.d:
        return line
    factor, rest = line.problem.prior.factor, np.eye(problem.d - lines)
    factor = np.diag(factor) if factor.ndim == 1 else factor
    found = _best({bend: _with_prior(problem, linalg.block_diag(factor, bend * rest)) for bend in BENDS}, n_jobs)
    return replace(found, number=found.number * line.number, shrinkage=line.shrinkage)


def _best(problems: dict[float, Problem], n_jobs: int | None) -> PriorChoice:
    """Choose the problem of highest evidence at one gamma, of those where EP converges; if nowhere, the last."""
    gamma = CENTRE * row_shares(next(iter(problems.values())).pairs).size
    compared = [replace(each.of_compared_rows(), gamma=gamma) for each in problems.values()]
    fits = dict(zip(problems, fits_along(compared, accuracy="path", n_jobs=n_jobs), strict=True))
    known = {value: each for value, each in fits.items() if each.converged}
    best = max(known, key=lambda value: known[value].log_evidence, default=[*problems][-1])
    return PriorChoice(replace(problems[best], tuned_prior=True), known.get(best), len(problems), best)


def _with_prior(problem: Problem, factor: FloatArray) -> Problem:
    """Return the problem restricted to its first ``len(factor)`` columns, with prior N(0, factor factor')."""
    X = problem.X[:, : len(factor)]
    return replace(problem, scores=LinearScores(X, problem.offset, GaussianPrior(np.zeros(len(factor)), factor)))


# Largest lengthscale common to all covariates, in median distances: there 98 % of the process's variance is linear.
# Beyond, the rest has so little variance that a large gamma fits it to noise abruptly. Doubled or halved, the choice is
# the same where the best lengthscale is shorter (benchmarks/constants.py).
LONGEST = 4.0


@dataclass(frozen=True, eq=False)
class LengthscaleChoice:
    """Lengthscales that :func:`choose_lengthscale` found, with the features and the fit.

    Attributes
    ----------
    features : KernelFeatures
        Features with the lengthscales chosen.
    fit : Fit
        EP's fit to them.
    trace : tuple of dict
        A record per evaluation: ``lengthscale``, ``log_evidence``, its ``sampling_error`` (0 where all pairs are used),
        ``left_out``.
    converged : bool
        Whether the search ended at a maximum.
    message : str
        How the search ended.

    See Also
    --------
    choose_lengthscale : Make the choice.

    Examples
    --------
    >>> X = np.random.default_rng(1).normal(size=(60, 2))
    >>> found = choose_lengthscale(X, X[:, 0] ** 2 > 0.5, gamma=60.0, rank=10, max_evaluations=0)
    >>> found.lengthscale.shape, found.features.rank
    ((2,), 10)
    """

    features: KernelFeatures
    fit: Fit
    trace: tuple[dict[str, Any], ...]
    converged: bool
    message: str

    @property
    def lengthscale(self) -> FloatArray:
        """Lengthscale of each covariate, shape (d,), in its unit."""
        return self.features.lengthscale

    @property
    def log_evidence(self) -> float:
        """Log evidence of ``fit``, in nats."""
        return self.fit.log_evidence

    def __repr__(self) -> str:
        scales = np.unique(self.lengthscale)
        shown = f"{scales[0]:.3g}" if scales.size == 1 else f"{scales[0]:.3g} to {scales[-1]:.3g}"
        return (
            f"LengthscaleChoice(lengthscale {shown}, log_evidence={self.log_evidence:.3f}, {self.features.rank} "
            f"features, {len(self.trace)} evaluations{'' if self.converged else ', NOT converged'})"
        )


@raises_interrupts
def choose_lengthscale(
    X: ArrayLike,
    y: ArrayLike | Pairs,
    gamma: float,
    kernel: str = "squared_exponential",
    *,
    each: bool = False,
    rank: int = 300,
    grid: Sequence[float] = (0.25, 0.5, 1.0, 2.0),
    max_evaluations: int = 30,
    pairs: str | int | Subsample = "auto",
    n_jobs: int | None = None,
) -> LengthscaleChoice:
    """Choose the lengthscale of kernel features by EP's log evidence.

    Parameters
    ----------
    X : array_like, shape (n, d)
        Covariates, on comparable scales unless ``each``.
    y : array_like, shape (n,), or Pairs
        Labels, or a ready :class:`~pymc_pacauc.comparison.pairs.Pairs`.
    gamma : float
        Inverse temperature, the same for all fits: gamma cannot be chosen by evidence.
    kernel : str or callable, default "squared_exponential"
        ``"squared_exponential"``, ``"matern52"`` or ``"matern32"``.
    each : bool, default False
        One lengthscale for each covariate instead of one for all; a covariate that does not matter gets a long one.
    rank : int, default 300
        Largest number of features.
    grid : sequence of float, default (0.25, 0.5, 1, 2)
        Multiples of the median distance to begin with; the search goes on from the best.
    max_evaluations : int, default 30
        Largest number of evaluations of the evidence and its gradient after the grid; 0 for the grid alone.
    pairs : str or int, default "auto"
        As in :func:`pymc_pacauc.arrays.fit`.
    n_jobs : int, optional
        Threads, by default one per core.

    Returns
    -------
    LengthscaleChoice
        The lengthscales, the features with them and EP's fit.

    Raises
    ------
    ValueError
        If ``kernel`` is unknown, ``grid`` is empty or not positive, or X and y do not match.

    Warns
    -----
    ConvergenceWarning
        If the final fit does not converge, or the error from using a subset of pairs is large.

    See Also
    --------
    kernel_features : Features with given lengthscales.
    maximize_evidence : Choose other hyper-parameters of the prior.

    Notes
    -----
    A prior chosen on the data has no certificate: :func:`~pymc_pacauc.certificate` refuses ``fit``. Features with
    lengthscales chosen on other rows have one.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(200, 2))
    >>> y = X[:, 0] ** 2 + 0.3 * rng.normal(size=200) > 0.5
    >>> found = choose_lengthscale(X, y, gamma=200, each=True)
    >>> bool(found.lengthscale[1] > 3 * found.lengthscale[0])  # the second covariate does not matter
    True
    """
    rows = checked_rows(X)
    if kernel not in COVARIANCES:
        raise ValueError(f"kernel must be one of {', '.join(COVARIANCES)}; got {kernel!r}.")
    multiples = np.atleast_1d(np.asarray(grid, dtype=np.float64))
    if multiples.ndim != 1 or not multiples.size or not (np.isfinite(multiples) & (multiples > 0.0)).all():
        raise ValueError(f"grid must hold positive multiples of the median distance; got {grid!r}.")
    compared = y if isinstance(y, Pairs) else bipartite(y)
    units = np.where(rows.std(axis=0) > 0.0, rows.std(axis=0), 1.0) if each else np.ones(rows.shape[1])
    base = np.log(units * median_distance(rows / units))
    known: dict[bytes, KernelFeatures] = {}  # by logarithms of the lengthscales

    def problem_at(phi: FloatArray) -> Problem:
        features = known[phi.tobytes()] = kernel_features(rows, kernel, lengthscale=np.exp(phi), rank=rank)
        return replace(linear_gaussian_problem(features.transform(rows), compared, gamma), tuned_prior=True)

    def gradient(point: Point) -> FloatArray:
        return lengthscale_gradient(known[point.phi.tobytes()], point.fit, rows)

    flat = Conditional(problem_at, lambda phi: np.zeros(len(phi)), base, np.ones(base.size), gradient=gradient)
    density = Density(flat, options={"pairs": pairs, "n_jobs": n_jobs, "accuracy": "path"}, tolerance=None)
    for multiple in multiples:
        density.at(base + np.log(multiple), anew=True)
        density.options["pairs"] = density.points[0].fit.plan.pairs  # as many for all lengthscales
    density.options["accuracy"] = "fit"
    best = max(density.points, key=DENSITY)
    converged, message = True, "the best of the grid"
    if max_evaluations > 0:
        density.conditional = replace(flat, centre=best.phi)
        free = np.eye(base.size) if each else np.ones((base.size, 1))
        farthest = FARTHEST if each else max(0.0, float(np.log(LONGEST) + base[0] - best.phi[0]))
        ends = {"slope": 1e-2, "gain": 1e-7, "farthest": farthest}
        search = find_mode(density, free=free, max_evaluations=max_evaluations, **ends)
        best, converged, message = search.best, search.converged, search.message
    assert isinstance(best.fit, EPFit)
    final = fit(best.fit.problem, start=replace(best.fit, subsample=None), **density.options)
    trace = tuple(
        {
            "lengthscale": known[phi.tobytes()].lengthscale,
            "log_evidence": found.log_evidence,
            "sampling_error": found.sampling_error.log_evidence,
            "left_out": known[phi.tobytes()].left_out,
        }
        for phi, found in [*((point.phi, point.fit) for point in density.points), (best.phi, final)]
    )
    return LengthscaleChoice(known[best.phi.tobytes()], final, trace, converged and final.converged, message)


def lengthscale_gradient(features: KernelFeatures, fit: Fit, X: FloatArray) -> FloatArray:
    """Compute d log Z / d log lengthscale of each covariate, (d,), at a fit to ``features.transform(X)``."""
    kernel, rows, points = features.kernel, X / features.lengthscale, features.points
    assert isinstance(kernel, Covariance)
    assert isinstance(fit, EPFit)
    in_cross, in_pivots = feature_slopes(fit, features.factor, fit.problem.scores.reduced.rotation)
    return _chained(kernel, in_cross, rows, points) + _chained(kernel, in_pivots, points, points)


def _chained(kernel: Covariance, slope: FloatArray, rows: FloatArray, points: FloatArray) -> FloatArray:
    """Compute sum(slope * dK / d log lengthscale), (d,), K the kernel between rows and points.

    K is a function of the squared differences of their scaled coordinates, whose derivative is -2 times themselves.
    """
    weights = slope * kernel.of(cdist(rows, points, "sqeuclidean"))[1]
    squares = weights.sum(axis=1) @ rows**2 + weights.sum(axis=0) @ points**2
    return -2.0 * (squares - 2.0 * np.einsum("ij,ij->j", rows, weights @ points))
