"""Columns of X as the prior sees them: centred at the training rows and, where asked for, on one scale.

A prior that gives every coefficient the same variance means something only where the columns have the same scale. The
centre is taken away in any case: a constant in all scores changes no ranking, and with it the spread of a score is that
of its difference from the average training row.

Draws of the exact posterior on arrays, by tempering SMC from a fit on: a result like any other.

A score with its posterior: from rows and pairs to coefficients, in the units of X.

This is where an estimator's words (``prior=``, ``method=``, ``gamma=``) become a
:class:`~pymc_pacauc.problem.problem.Problem` and its fit; the estimators themselves only check their input and hand out
what is found here.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import ndtri
from sklearn.preprocessing import StandardScaler

from pymc_pacauc.array_result import ArrayResult, Estimate, Result
from pymc_pacauc.certify.bounds import check_epsilon
from pymc_pacauc.comparison.pairs import Pairs
from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.ep.loop import UnsupportedError
from pymc_pacauc.ep.plan import METHODS
from pymc_pacauc.ep.results import ADVICE, Fit
from pymc_pacauc.estimator.folds import Folds
from pymc_pacauc.estimator.gamma import Choice, check_gamma_choice, fit_at_gamma
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.kernel_features import KernelFeatures
from pymc_pacauc.problem.problem import (
    Problem,
    default_inclusion_probability,
    linear_gaussian_problem,
    spike_slab_problem,
)
from pymc_pacauc.problem.provenance import Provenance, fitted_to_problem
from pymc_pacauc.problem.score_function import ScoreFunction, linear_scores
from pymc_pacauc.smc import LogEvidence, Settings, Stage, bridge_path, combine, prior_path, run_tempering
from pymc_pacauc.tune.evidence import (
    SIZES,
    PriorChoice,
    choose_lengthscale,
    choose_relevance,
    choose_shrinkage,
    shrunk_prior,
)
from pymc_pacauc.tune.gamma import content_order, pairs_of_few


@dataclass(frozen=True, eq=False)
class Columns:
    """``(X - center) / scale``."""

    center: FloatArray
    scale: FloatArray

    def apply(self, X: FloatArray) -> FloatArray:
        return (X - self.center) / self.scale


def learn_columns(X: FloatArray, sample_weight: FloatArray | None, standardize: Any) -> Columns:
    """Centre and scale of these rows, a row of weight 2 counting as two; that of a constant column is its size."""
    size = np.maximum(X.max(axis=0), -X.min(axis=0))
    unit = np.ldexp(1.0, np.frexp(size)[1] - 1)  # a power of two, which changes no digit: no square overflows
    scaler = StandardScaler(with_std=bool(standardize)).fit(X / unit, sample_weight=sample_weight)
    return Columns(unit * scaler.mean_, np.ones(X.shape[1]) if scaler.scale_ is None else unit * scaler.scale_)


@dataclass(frozen=True, eq=False)
class Tempered:
    """What :func:`~pymc_pacauc.model.results.as_result` asks of a posterior, for draws of a problem of arrays.

    Attributes
    ----------
    problem
        What was sampled.
    theta, risk
        Draws, shape (draws, d), and the risk of each.
    parent
        The particle that each draw was resampled from: draws of different ones are independent.
    stages
        The record of the run.
    """

    problem: Problem
    theta: FloatArray
    risk: FloatArray
    parent: NDArray[np.intp]
    stages: tuple[Stage, ...]

    gaussian = False
    caveat = ""

    @cached_property
    def fitted_to(self) -> Provenance:
        return fitted_to_problem(self.problem, "TemperingSMC")

    @property
    def evidence(self) -> LogEvidence:
        return combine(self.stages[-1].log_evidence, self.stages[-1].log_evidence_variance)

    @property
    def mean_risk(self) -> Estimate:
        excess = np.bincount(self.parent, self.risk - self.risk.mean()) / self.risk.size
        return Estimate(float(self.risk.mean()), float(np.sqrt(excess @ excess)))

    @property
    def divergence(self) -> Estimate:
        """-gamma E[risk] - log Z."""
        gamma, risk, evidence = self.problem.gamma, self.mean_risk, self.evidence
        value = max(0.0, -gamma * risk.value - evidence.estimate)
        return Estimate(value, gamma * risk.error + evidence.standard_error)


def temper(start: Fit, particles: int, rng: np.random.Generator) -> Tempered:
    """Draws of the posterior that ``start`` approximates."""
    path = bridge_path(prior_path(start.problem), start.posterior.mean, start.posterior.covariance)
    state = run_tempering(path, Settings(particles=particles), rng)
    theta, risk = path.finish(state.population, rng)
    return Tempered(start.problem, theta, risk, state.population.parent, state.stages)


PRIORS = ("gaussian", "spike_slab", "gp")


@dataclass(frozen=True)
class Recipe:
    """How to get from rows to a posterior: an estimator's parameters, checked."""

    prior: str
    method: str
    gamma: Any
    shrinkage: Any
    relevance: str | None
    inclusion_probability: float | None
    standardize: Any
    epsilon: float
    tuning_rows: int
    particles: int
    n_jobs: int

    def __post_init__(self) -> None:
        _check_choice("prior", self.prior, PRIORS)
        _check_choice("method", self.method, (*METHODS, "smc"))
        number = isinstance(self.shrinkage, int | float | np.number) and 0.0 < self.shrinkage <= 1.0
        if not (number or (isinstance(self.shrinkage, str) and self.shrinkage == "evidence")):
            raise ValueError(f'shrinkage must be "evidence" or a number in (0, 1]; got {self.shrinkage!r}.')
        if not (isinstance(self.standardize, int | np.bool_) and self.standardize in (False, True)):
            raise ValueError(f"standardize must be True or False; got {self.standardize!r}.")
        if self.inclusion_probability is not None and self.prior != "spike_slab":
            raise UnsupportedError(
                f"inclusion_probability={self.inclusion_probability!r} is of spikes: use it with "
                f'prior="spike_slab", or leave it away; got prior={self.prior!r}.'
            )
        if number and (self.prior != "gaussian" or self.relevance is not None):
            raise UnsupportedError(
                f"shrinkage={self.shrinkage!r} is of a Gaussian prior with one variance: leave it away; got "
                f"prior={self.prior!r}, relevance={self.relevance!r}."
            )
        check_gamma_choice(self.gamma)
        check_epsilon(self.epsilon)
        Settings(particles=self.particles)
        if not (isinstance(self.tuning_rows, int | np.integer) and self.tuning_rows >= 100):
            raise ValueError(f"tuning_rows must be an integer of at least 100; got {self.tuning_rows!r}.")
        if self.relevance is not None:
            _check_choice("relevance", self.relevance, ("evidence",))
            if self.prior == "spike_slab":
                raise UnsupportedError('relevance="evidence" is for a Gaussian prior or a GP; spikes do its work here.')
        if self.prior == "spike_slab" and self.method != "ep":
            raise UnsupportedError(
                f'prior="spike_slab" has method="ep"; got {self.method!r}. For exact draws write the model in PyMC '
                "with pac.SpikeSlab and sample it with pac.TemperingSMC."
            )

    @property
    def advice(self) -> str:
        """What to do about a fit that does not converge."""
        if self.prior == "spike_slab":
            return "Lower gamma, or raise inclusion_probability."
        return 'Lower gamma, or use method="smc".'


@dataclass(frozen=True, eq=False)
class ScorePosterior:
    """Posterior of the scores ``covariates(X) @ theta``.

    Attributes
    ----------
    columns
        Centre and scale of the columns of X.
    features
        Of a Gaussian process, made from these columns; None for linear scores.
    prior
        The choice among shrinkages; None where there was none.
    tuned
        Whether the prior was tuned on the data beyond that.
    fit
        The approximation; with SMC the one it started from.
    choice
        How gamma was chosen; None where it was given.
    tempered
        Draws, with SMC.
    """

    columns: Columns
    features: KernelFeatures | None
    prior: PriorChoice | None
    tuned: bool
    fit: Fit
    choice: Choice | None
    tempered: Tempered | None

    def covariates(self, X: FloatArray) -> FloatArray:
        """What theta are the coefficients of, for rows of X."""
        columns = self.columns.apply(X)
        return columns if self.features is None else self.features.transform(columns)

    @cached_property
    def mean(self) -> FloatArray:
        """Posterior mean of theta."""
        return self.fit.posterior.mean if self.tempered is None else self.tempered.theta.mean(axis=0)

    @property
    def covariance(self) -> FloatArray:
        """Posterior covariance of theta."""
        if self.tempered is None:
            return self.fit.posterior.covariance
        return np.atleast_2d(np.cov(self.tempered.theta.T, bias=True))

    @property
    def coef(self) -> FloatArray:
        """Posterior mean of the coefficients of X, shape (d,), of linear scores."""
        return self.mean / self.columns.scale

    @property
    def coef_sd(self) -> FloatArray:
        variance = self.fit.posterior.variance if self.tempered is None else self.tempered.theta.var(axis=0)
        return np.sqrt(variance) / self.columns.scale

    def score(self, X: FloatArray) -> FloatArray:
        """Mean score of each row; of linear scores, zero for the average training row."""
        return self.covariates(X) @ self.mean

    def std(self, X: FloatArray) -> FloatArray:
        """Standard deviation of each row's score about :meth:`score`."""
        rows = self.covariates(X)
        if self.tempered is not None:
            return (rows @ self.tempered.theta.T).std(axis=1)
        return np.sqrt(self.fit.posterior.moments_of(rows, variances=True)[1])

    def interval(self, X: FloatArray, ci_prob: float) -> FloatArray:
        """Central interval of each row's score, shape (rows, 2)."""
        tail = 0.5 * (1.0 - ci_prob)
        if self.tempered is not None:
            drawn = self.covariates(X) @ self.tempered.theta.T
            return np.quantile(drawn, [tail, 1.0 - tail], axis=1).T
        half = -ndtri(tail) * self.std(X)
        return self.score(X)[:, None] + np.column_stack([-half, half])

    def draw(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Draws of theta, shape (draws, d)."""
        if self.tempered is None:
            return self.fit.posterior.draw(draws, rng)
        return self.tempered.theta[rng.integers(len(self.tempered.theta), size=draws)]

    def score_function(self, features: Sequence[str]) -> ScoreFunction:
        """How a row of X becomes a score, given the coefficients ``coef`` of X; a refusal for kernel features."""
        if self.features is not None:
            refusal = "The scores are of kernel features of X: use the estimator's decision_function(X)."
            return ScoreFunction((), refusal=refusal)
        linear = linear_scores("coef", self.columns.center.shape, features)
        centre = sparse.vstack([linear.matrix[:-1], sparse.csr_array(-self.columns.center[None])], format="csr")
        return replace(linear, matrix=centre)

    @cached_property
    def result(self) -> Result:
        """What certificates and summaries ask for."""
        return ArrayResult(self.fit) if self.tempered is None else self.tempered

    @property
    def fitted_to(self) -> Provenance:
        """What was fitted to, with the prior's history."""
        return replace(self.result.fitted_to, tuned_prior=self.tuned or self.priors > 1)

    @property
    def priors(self) -> int:
        """Among how many priors this one was chosen: what a certificate pays for."""
        return 1 if self.prior is None else len(self.prior.shrinkages)

    @property
    def log_evidence(self) -> float:
        return self.result.evidence.estimate


def fit_scores(
    X: FloatArray,
    pairs: Pairs,
    recipe: Recipe,
    *,
    sample_weight: FloatArray | None,
    folds: Folds,
    groups: ArrayLike | None,
    rng: np.random.Generator,
) -> ScorePosterior:
    """Fit the scores of these rows; ``sample_weight`` is for the scale of the columns, ``pairs`` hold their own."""
    context = copy_context()
    context.run(ADVICE.set, recipe.advice)
    return context.run(_fit_scores, X, pairs, recipe, sample_weight, folds, groups, rng)


def _fit_scores(
    X: FloatArray,
    pairs: Pairs,
    recipe: Recipe,
    sample_weight: FloatArray | None,
    folds: Folds,
    groups: ArrayLike | None,
    rng: np.random.Generator,
) -> ScorePosterior:
    columns = learn_columns(X, sample_weight, recipe.standardize)
    design, features, prior = columns.apply(X), None, None
    tuning = pairs_of_few(pairs, recipe.tuning_rows, content_order(design))
    if recipe.prior == "gp":
        features = _kernel(design, tuning, recipe)
        design = features.transform(design)
    problem = replace(_problem(design, tuning, recipe), tuned_prior=recipe.prior == "gp")
    if recipe.prior == "gaussian" and recipe.relevance is not None:
        problem = choose_relevance(problem, n_jobs=recipe.n_jobs)
    elif recipe.prior == "gaussian" and recipe.shrinkage == "evidence":
        prior = choose_shrinkage(problem, weights=sample_weight, n_jobs=recipe.n_jobs)
        problem = prior.problem
    elif recipe.prior == "gaussian":
        problem = shrunk_prior(problem, recipe.shrinkage, sample_weight)
    found, choice = fit_at_gamma(
        replace(problem, pairs=pairs),
        tuning,
        recipe.gamma,
        method="ep" if recipe.method == "smc" else recipe.method,
        folds=folds,
        groups=groups,
        epsilon=recipe.epsilon,
        priors=1 if prior is None else len(prior.shrinkages),
        pilot=None if prior is None or recipe.method == "vb" else prior.fit,
        n_jobs=recipe.n_jobs,
    )
    tempered = temper(found, recipe.particles, rng) if recipe.method == "smc" else None
    tuned = recipe.prior == "gp" or recipe.relevance is not None
    return ScorePosterior(columns, features, prior, tuned, found, choice, tempered)


def _problem(Z: FloatArray, pairs: Pairs, recipe: Recipe) -> Problem:
    if recipe.prior != "spike_slab":
        return linear_gaussian_problem(Z, pairs, gamma=1.0)
    given = recipe.inclusion_probability
    p = default_inclusion_probability(Z.shape[1]) if given is None else given
    return spike_slab_problem(Z, pairs, gamma=1.0, inclusion_probability=p, v0=0.0)


def _kernel(rows: FloatArray, pairs: Pairs, recipe: Recipe) -> KernelFeatures:
    """Features of a Gaussian process, their lengthscale (or one for each column) by evidence."""
    gamma = SIZES * row_shares(pairs).size
    each = recipe.relevance is not None
    return choose_lengthscale(rows, pairs, gamma, each=each, n_jobs=recipe.n_jobs).features


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if not (isinstance(value, str) and value in choices):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}.")
