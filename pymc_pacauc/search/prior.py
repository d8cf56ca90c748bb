"""Choosing among Gaussian priors by EP's evidence.

*How far should the prior follow the covariance of X?*

With independent coefficients of equal variance, the posterior mean at small gamma points along the difference of the
class means, whatever the correlation of the columns. With the prior covariance S^-1, S that of the columns (as in a
g-prior), it points along S^-1 times that difference, Fisher's discriminant: right where S is well known, all noise
where it is not. Between the two lies

    prior covariance = ((1 - shrinkage) S + shrinkage I)^-1,

at shrinkage 1 independent coefficients. Evidence compares priors on the same pairs at the same gamma, so four fits at
one gamma choose. It is a choice on the data: a certificate pays for it (``selected_from``).

*Which columns matter?* Independent coefficients may each have a variance of its own; those of highest evidence are
found by L-BFGS in their logarithms, with EP's gradient (automatic relevance determination). Their common scale has no
effect. After such a search there is no certificate.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize

from pymc_pacauc.core.problem import Problem
from pymc_pacauc.core.row_shares import row_shares
from pymc_pacauc.core.scores import GaussianPrior, LinearScores
from pymc_pacauc.fitting import ConvergenceWarning, Fit, fit

__all__ = ["SHRINKAGES", "PriorChoice", "choose_relevance", "choose_shrinkage", "shrunk_prior"]

FloatArray = NDArray[np.float64]

SHRINKAGES = (0.03, 0.1, 0.3, 1.0)
SIZES = 2.0  # gamma at which priors are compared, in units of the comparison's size (n+ n- / n for two classes)
TOLERANCE = 1e-2  # of these fits: differences of their evidence are of the order of a nat
GRADIENT_TOLERANCE = 1e-3  # of those whose gradient is followed
FARTHEST = 10.0  # logarithms of variances move at most so far
MOST_EVALUATIONS, SLOPE = 50, 1e-2  # of the search for relevance; nats per unit of a logarithm at which it ends


@dataclass(frozen=True, eq=False)
class PriorChoice:
    """What :func:`choose_shrinkage` found: a log evidence for each shrinkage, at ``gamma``, and the ``problem``.

    ``fit`` is the one at that gamma, to the rows that are compared; None where there was no choice, or it failed.
    """

    shrinkages: tuple[float, ...]
    log_evidences: FloatArray
    gamma: float
    problem: Problem
    fit: Fit | None

    @property
    def shrinkage(self) -> float:
        return self.shrinkages[_best(self.log_evidences)]


def shrunk_prior(
    problem: Problem, shrinkage: float, weights: FloatArray | None = None, S: FloatArray | None = None
) -> Problem:
    """The problem with prior covariance ((1 - shrinkage) S + shrinkage I)^-1, S the covariance of its columns.

    ``weights`` are those of the rows in S, if it is not given.

    Examples
    --------
    >>> from pymc_pacauc.core.problem import linear_gaussian_problem
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
    prior = GaussianPrior(np.zeros(d), factor)
    return replace(problem, scores=LinearScores(problem.X, problem.offset, prior))


def choose_shrinkage(
    problem: Problem,
    shrinkages: Sequence[float] = SHRINKAGES,
    *,
    weights: FloatArray | None = None,
    n_jobs: int | None = None,
) -> PriorChoice:
    """The shrinkage of highest evidence; with more columns than rows, where S is singular, 1 without looking.

    Examples
    --------
    Nine columns repeat one another up to noise; what tells is how they differ.

    >>> from pymc_pacauc.core.problem import linear_gaussian_problem
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(300, 1)) + 0.3 * rng.normal(size=(300, 9))
    >>> y = X[:, 0] - X[:, 1] + 0.2 * rng.normal(size=300) > 0
    >>> choose_shrinkage(linear_gaussian_problem(X, y, gamma=1.0)).shrinkage < 1
    True
    """
    gamma = SIZES * row_shares(problem.pairs).size
    candidates = tuple(shrinkages) if problem.d <= problem.n else (1.0,)
    S = _column_covariance(problem, weights) if len(candidates) > 1 else None
    problems = [shrunk_prior(problem, each, weights, S) for each in candidates]
    if len(problems) == 1:
        return PriorChoice(candidates, np.zeros(1), gamma, problems[0], None)
    fits: list[Fit] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # then its evidence is NaN, and another is chosen
        for each in problems:
            start = fits[-1] if fits and fits[-1].converged else None
            at = replace(each.of_compared_rows(), gamma=gamma)
            fits.append(fit(at, start=start, tolerance=TOLERANCE, n_jobs=n_jobs))
    evidence = np.array([each.log_evidence if each.converged else np.nan for each in fits])
    best = _best(evidence)
    chosen = fits[best] if fits[best].converged else None
    return PriorChoice(candidates, evidence, gamma, replace(problems[best], tuned_prior=True), chosen)


def choose_relevance(problem: Problem, *, n_jobs: int | None = None) -> Problem:
    """The problem with independent coefficients, each variance by evidence: small where a column does not matter.

    Examples
    --------
    >>> from pymc_pacauc.core.problem import linear_gaussian_problem
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(200, 3))
    >>> y = X[:, 0] + 0.5 * rng.normal(size=200) > 0
    >>> scale = choose_relevance(linear_gaussian_problem(X, y, gamma=1.0)).prior.factor
    >>> bool(scale[0] > 5 * scale[1:].max())
    True
    """
    at = replace(problem.of_compared_rows(), gamma=SIZES * row_shares(problem.pairs).size)
    last: Fit | None = None

    def scaled(log_variance: FloatArray) -> Problem:
        return replace(at, scores=replace(at.scores, prior=_independent(log_variance)))

    def objective(log_variance: FloatArray) -> tuple[float, FloatArray]:
        nonlocal last
        last = fit(scaled(log_variance), start=last, tolerance=GRADIENT_TOLERANCE, n_jobs=n_jobs)
        return -last.log_evidence, -last.evidence_gradient().variances * np.exp(log_variance)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = optimize.minimize(
            objective,
            np.zeros(problem.d),
            jac=True,
            method="L-BFGS-B",
            bounds=[(-FARTHEST, FARTHEST)] * problem.d,
            options={"maxfun": MOST_EVALUATIONS, "gtol": SLOPE},
        )
    return replace(problem, scores=replace(problem.scores, prior=_independent(found.x)), tuned_prior=True)


def _column_covariance(problem: Problem, weights: FloatArray | None) -> FloatArray:
    return np.atleast_2d(np.cov(problem.X, rowvar=False, bias=True, aweights=weights))


def _independent(log_variance: FloatArray) -> GaussianPrior:
    return GaussianPrior(np.zeros(log_variance.size), np.exp(0.5 * log_variance))


def _best(log_evidences: FloatArray) -> int:
    """The highest; the last, independent coefficients, where none is known."""
    known = np.where(np.isnan(log_evidences), -np.inf, log_evidences)
    return int(np.argmax(known)) if np.isfinite(known).any() else known.size - 1
