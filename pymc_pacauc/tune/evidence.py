"""Choose Gaussian priors, and lengthscales of kernel features, by EP's log evidence.

*Prior covariance* (:func:`choose_shrinkage`, estimators' ``prior="auto"``). With independent coefficients of equal
variance, the posterior mean at a small gamma is along the difference of the class means, whatever the correlation of
the columns. With prior covariance S^-1, S that of the columns (as in a g-prior), it is along S^-1 times that
difference, Fisher's discriminant: right where S is known well, and mostly noise where it is not. Between the two is

    prior covariance = ((1 - shrinkage) S + shrinkage I)^-1,

with independent coefficients at shrinkage 1. Evidences of different priors on the same pairs at the same gamma can be
compared, so four fits at one gamma choose. Because the choice uses the data, a certificate counts it
(``selected_from``).

*Lengthscales* (:func:`choose_lengthscale`). The log evidence is computed on a grid of multiples of the median distance,
then maximised from the best of them by L-BFGS in the logarithms, with one lengthscale for all covariates or one for
each (automatic relevance determination). The gradient is exact for given pivots
(:func:`~pymc_pacauc.ep.kernel.feature_slopes`) and costs about one sweep for any number of lengthscales. Each fit
starts from the sites of the one before. If pairs are subsampled (:mod:`pymc_pacauc.ep.subsample`), new pairs are drawn
for each lengthscale of the grid and for the final one, but the search between them uses the same pairs, so that the
objective is smooth.

References: Zellner (1986) for the g-prior; Rasmussen & Williams (2006), http://gaussianprocess.org/gpml, chapter 5.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from scipy.spatial.distance import cdist

from pymc_pacauc.comparison.pairs import Pairs, bipartite
from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.ep.fit import fit as fit_by_plan
from pymc_pacauc.ep.gaussian import EPFit, carried_over
from pymc_pacauc.ep.kernel import feature_slopes
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.ep.plan import Subsample, choose_plan
from pymc_pacauc.ep.results import Fit
from pymc_pacauc.fitting import fit
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
from pymc_pacauc.tune.nested import FARTHEST, climb

SHRINKAGES = (0.03, 0.1, 0.3, 1.0)
BENDS = (0.3, 1.0, 3.0)  # prior standard deviations of the bends of additive features, beside lines of 1


@dataclass(frozen=True, eq=False)
class PriorChoice:
    """Result of :func:`choose_shrinkage`: a log evidence for each shrinkage, at ``gamma``, and the chosen ``problem``.

    ``fit`` is the fit of the chosen prior at that gamma, to the rows that are compared; None where there was no choice,
    or it did not converge. ``number`` is the number of priors compared.
    """

    shrinkages: tuple[float, ...]
    log_evidences: FloatArray
    gamma: float
    problem: Problem
    fit: Fit | None
    number: int

    @property
    def shrinkage(self) -> float:
        return self.shrinkages[_best(self.log_evidences)]


def shrunk_prior(
    problem: Problem, shrinkage: float, weights: FloatArray | None = None, S: FloatArray | None = None
) -> Problem:
    """Return the problem with prior covariance ((1 - shrinkage) S + shrinkage I)^-1, S the covariance of its columns.

    ``weights`` are those of the rows in S, where S is not given.

    Examples
    --------
    >>> from pymc_pacauc.problem.problem import linear_gaussian_problem
    >>> X = np.random.default_rng(1).normal(size=(50, 2))
    >>> problem = linear_gaussian_problem(X, X[:, 0] > 0, gamma=10.0)
    >>> shrunk_prior(problem, 1.0).prior.covariance
    array([[1., 0.],
           [0., 1.]])
    """
    if not (np.ndim(shrinkage) == 0 and 0.0 < shrinkage <= 1.0):
        raise ValueError(f"shrinkage must be a number in (0, 1]; got {shrinkage!r}.")
    d = problem.d
    if shrinkage == 1.0:
        factor = np.ones(d)
    else:
        S = _column_covariance(problem, weights) if S is None else S
        upper = linalg.cholesky((1.0 - shrinkage) * S + shrinkage * np.eye(d))  # U'U, so that (U'U)^-1 = U^-1 U^-T
        root = linalg.solve_triangular(upper, np.eye(d))
        factor = linalg.cholesky(root @ root.T, lower=True)
    return _with_prior(problem, factor)


def choose_shrinkage(
    problem: Problem,
    shrinkages: Sequence[float] = SHRINKAGES,
    *,
    weights: FloatArray | None = None,
    n_jobs: int | None = None,
) -> PriorChoice:
    """Choose the shrinkage of highest evidence; with more columns than rows, where S is singular, 1.

    Examples
    --------
    Nine columns are equal up to noise, and the label depends on their differences.

    >>> from pymc_pacauc.problem.problem import linear_gaussian_problem
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(300, 1)) + 0.3 * rng.normal(size=(300, 9))
    >>> y = X[:, 0] - X[:, 1] + 0.2 * rng.normal(size=300) > 0
    >>> choose_shrinkage(linear_gaussian_problem(X, y, gamma=1.0)).shrinkage < 1
    True
    """
    gamma = CENTRE * row_shares(problem.pairs).size
    candidates = tuple(shrinkages) if problem.d <= problem.n else (1.0,)
    S = _column_covariance(problem, weights) if len(candidates) > 1 else None
    problems = [shrunk_prior(problem, each, weights, S) for each in candidates]
    if len(problems) == 1:
        return PriorChoice(candidates, np.zeros(1), gamma, problems[0], None, 1)
    evidence, chosen = _compare(problems, gamma, n_jobs)
    problem = replace(problems[_best(evidence)], tuned_prior=True)
    return PriorChoice(candidates, evidence, gamma, problem, chosen, len(problems))


def choose_bend(
    problem: Problem, lines: int, *, weights: FloatArray | None = None, n_jobs: int | None = None
) -> PriorChoice:
    """Choose the prior of additive features: shrinkage of the first ``lines`` columns, then the scale of the others.

    Examples
    --------
    >>> from pymc_pacauc.problem.additive_features import additive_features
    >>> from pymc_pacauc.problem.problem import linear_gaussian_problem
    >>> X = np.random.default_rng(1).normal(size=(100, 1))
    >>> F = additive_features(X).transform(X)
    >>> choice = choose_bend(linear_gaussian_problem(F, X[:, 0] ** 2 > 0.5, gamma=1.0), 1)
    >>> bool(choice.problem.prior.factor[-1, -1] == max(BENDS))
    True
    """
    line = choose_shrinkage(_with_prior(problem, np.ones(lines)), weights=weights, n_jobs=n_jobs)
    if lines == problem.d:  # no covariate has a nonlinear part
        return line
    factor = line.problem.prior.factor
    factor, rest = np.diag(factor) if factor.ndim == 1 else factor, np.eye(problem.d - lines)
    problems = [_with_prior(problem, linalg.block_diag(factor, bend * rest)) for bend in BENDS]
    evidence, chosen = _compare(problems, line.gamma, n_jobs)
    number = len(problems) * line.number
    tuned = replace(problems[_best(evidence)], tuned_prior=True)
    return replace(line, problem=tuned, fit=chosen, number=number)


def _compare(problems: Sequence[Problem], gamma: float, n_jobs: int | None) -> tuple[FloatArray, Fit | None]:
    """Compute log evidences at gamma, NaN where EP does not converge, and return the best fit, if it converged."""
    fits: list[Fit] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for each in problems:
            start = fits[-1] if fits and fits[-1].converged else None
            at = replace(each.of_compared_rows(), gamma=gamma)
            fits.append(fit(at, start=start, accuracy="path", n_jobs=n_jobs))
    evidence = np.array([each.log_evidence if each.converged else np.nan for each in fits])
    best = fits[_best(evidence)]
    return evidence, best if best.converged else None


def _with_prior(problem: Problem, factor: FloatArray) -> Problem:
    """Return the problem restricted to its first ``len(factor)`` columns, with prior N(0, factor factor')."""
    X = problem.X[:, : len(factor)]
    return replace(problem, scores=LinearScores(X, problem.offset, GaussianPrior(np.zeros(len(factor)), factor)))


def _column_covariance(problem: Problem, weights: FloatArray | None) -> FloatArray:
    return np.atleast_2d(np.cov(problem.X, rowvar=False, bias=True, aweights=weights))


def _best(log_evidences: FloatArray) -> int:
    """Return the index of the highest; where all are NaN, of the last (independent coefficients)."""
    known = np.where(np.isnan(log_evidences), -np.inf, log_evidences)
    return int(np.argmax(known)) if np.isfinite(known).any() else known.size - 1


# Largest lengthscale common to all covariates, in median distances: there 98 % of the process's variance is linear.
# Beyond, the rest has so little variance that a large gamma fits it to noise abruptly.
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
    fit: EPFit
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
    grid : sequence of float, optional
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
    evidence = _Evidence(rows, compared, gamma, kernel, rank, pairs, n_jobs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        values = [evidence.fit(base + np.log(multiple), "path", anew=True)[1].log_evidence for multiple in multiples]
        multiple = float(multiples[int(np.nanargmax(values))])
        start, farthest = base + np.log(multiple), FARTHEST if each else max(0.0, np.log(LONGEST / multiple))
        free = np.eye(base.size) if each else np.ones((base.size, 1))

        t, converged, message = np.zeros(free.shape[1]), True, "the best of the grid"
        if max_evaluations > 0:
            evidence.fit(start, "fit", anew=True)  # pairs of their own, for all of the search

            def objective(t: FloatArray) -> tuple[float, FloatArray]:
                value, gradient = evidence(start + free @ t)
                return value, gradient @ free

            ends = {"slope": 1e-2, "gain": 1e-7, "farthest": farthest}
            found = climb(objective, t.size, max_evaluations=max_evaluations, **ends)
            t, converged, message = found.x, bool(found.success), str(found.message)
    features, best = evidence.fit(start + free @ t, "fit", anew=True)
    return LengthscaleChoice(features, best, tuple(evidence.trace), converged and best.converged, message)


class _Evidence:
    """Log evidence and its gradient in the logarithms of the lengthscales, each fit from the sites of the last."""

    def __init__(
        self, rows: FloatArray, compared: Pairs, gamma: float, kernel: str, rank: int, pairs: Any, n_jobs: int | None
    ) -> None:
        self._rows, self._compared, self._gamma, self._n_jobs = rows, compared, gamma, n_jobs
        self._kernel, self._rank = kernel, rank
        self._last: EPFit | None = None
        self._used: Any = pairs  # replaced by the first plan's, so that all lengthscales use as many pairs
        self.trace: list[dict[str, Any]] = []

    def fit(self, log_scales: FloatArray, accuracy: str, *, anew: bool = False) -> tuple[KernelFeatures, EPFit]:
        """Fit features at given lengthscales; on the subsample of the last fit, unless it is to be drawn ``anew``."""
        features = kernel_features(self._rows, self._kernel, lengthscale=np.exp(log_scales), rank=self._rank)
        problem = linear_gaussian_problem(features.transform(self._rows), self._compared, self._gamma)
        problem = replace(problem, tuned_prior=True)
        start = None if self._last is None else carried_over(self._last, problem)
        if start is not None and anew:
            start = replace(start, subsample=None)
        plan = choose_plan(problem, start=start, pairs=self._used, accuracy=accuracy)
        if self._last is None:
            self._used = plan.pairs
        self._last = fit_by_plan(problem, plan, n_jobs=self._n_jobs)
        self.trace.append(
            {
                "lengthscale": features.lengthscale,
                "log_evidence": self._last.log_evidence,
                "sampling_error": self._last.sampling_error.log_evidence,
                "left_out": features.left_out,
            }
        )
        return features, self._last

    def __call__(self, log_scales: FloatArray) -> tuple[float, FloatArray]:
        features, fit = self.fit(log_scales, "fit")
        return fit.log_evidence, lengthscale_gradient(features, fit, self._rows)


def lengthscale_gradient(features: KernelFeatures, fit: EPFit, X: FloatArray) -> FloatArray:
    """Compute d log Z / d log lengthscale of each covariate, (d,), at a fit to ``features.transform(X)``."""
    kernel, rows, points = features.kernel, X / features.lengthscale, features.points
    assert isinstance(kernel, Covariance)
    in_cross, in_pivots = feature_slopes(fit, features.factor, fit.problem.scores.reduced.rotation)
    return _chained(kernel, in_cross, rows, points) + _chained(kernel, in_pivots, points, points)


def _chained(kernel: Covariance, slope: FloatArray, rows: FloatArray, points: FloatArray) -> FloatArray:
    """Compute sum(slope * dK / d log lengthscale), (d,), K the kernel between rows and points.

    K is a function of the squared differences of their scaled coordinates, whose derivative is -2 times themselves.
    """
    weights = slope * kernel.slope(cdist(rows, points, "sqeuclidean"))
    squares = weights.sum(axis=1) @ rows**2 + weights.sum(axis=0) @ points**2
    return -2.0 * (squares - 2.0 * np.einsum("ij,ij->j", rows, weights @ points))
