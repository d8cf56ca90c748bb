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
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtri
from sklearn.preprocessing import StandardScaler

from pymc_pacauc.array_result import ArrayResult, Estimate, Result
from pymc_pacauc.comparison.pairs import Pairs
from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.ep.loop import UnsupportedError
from pymc_pacauc.ep.plan import METHODS
from pymc_pacauc.ep.results import ADVICE, Fit
from pymc_pacauc.estimator.gamma import Choice, check_gamma_choice, fit_at_gamma
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.additive_features import AdditiveFeatures, additive_features, robust_scores
from pymc_pacauc.problem.kernel_features import KernelFeatures, kernel_features
from pymc_pacauc.problem.problem import (
    Problem,
    default_inclusion_probability,
    linear_gaussian_problem,
    spike_slab_problem,
)
from pymc_pacauc.problem.provenance import Provenance, fitted_to_problem
from pymc_pacauc.problem.score_function import ScoreFunction, linear_scores
from pymc_pacauc.smc import LogEvidence, Settings, Stage, bridge_path, combine, prior_path, run_tempering
from pymc_pacauc.tune.coverage import calibrated_posterior
from pymc_pacauc.tune.evidence import SIZES, PriorChoice, choose_bend, choose_lengthscale, choose_shrinkage
from pymc_pacauc.tune.gamma import content_order, pairs_of_few


@dataclass(frozen=True, eq=False)
class Columns:
    """``(X - center) / scale``, or robust scores of these."""

    center: FloatArray
    scale: FloatArray
    robust: AdditiveFeatures | None = None

    def apply(self, X: FloatArray) -> FloatArray:
        columns = (X - self.center) / self.scale
        return columns if self.robust is None else robust_scores(self.robust, columns)


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
        The stages of the run.
    record
        What was sampled, where that is known already.
    """

    problem: Problem
    theta: FloatArray
    risk: FloatArray
    parent: NDArray[np.intp]
    stages: tuple[Stage, ...]
    record: Provenance | None = None

    gaussian = False
    caveat = ""

    @cached_property
    def fitted_to(self) -> Provenance:
        return fitted_to_problem(self.problem, "TemperingSMC") if self.record is None else self.record

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


PRIORS = ("gaussian", "ridge", "spike_slab", "additive", "gp", "auto")
TUNING_ROWS = 500  # whose pairs choose prior and gamma; twice as many: four times as long, see docs/develop/gamma.md
# Rows among which the pivots of a process are chosen; twice as many take twice as long.
PIVOT_ROWS = 5000
# Features of a process, at most, and rows times their square: above 100 000 rows there are fewer. At 100 000 rows of 50
# columns 60 and 120 rank alike (AUC 0.706), and 300 take five times as long; doubled, fits take twice as long.
MOST_FEATURES, FEATURE_WORK = 100, 1e9
EVALUATIONS = 8  # of the evidence, to choose a lengthscale; the most, 30, take twice as long
PARTICLES = 1000  # of SMC; the Monte Carlo error of the mean is 1 / sqrt(1000) posterior standard deviations


@dataclass(frozen=True)
class Recipe:
    """How to get from rows to a posterior: an estimator's parameters, checked."""

    prior: str
    method: str
    gamma: Any
    standardize: Any
    n_jobs: int
    verbose: Any

    def __post_init__(self) -> None:
        _check_choice("prior", self.prior, PRIORS)
        _check_choice("method", self.method, (*METHODS, "smc"))
        if not (isinstance(self.standardize, int | np.bool_) and self.standardize in (False, True)):
            raise ValueError(f"standardize must be True or False; got {self.standardize!r}.")
        check_gamma_choice(self.gamma)
        if self.prior == "spike_slab" and self.method != "ep":
            raise UnsupportedError(
                f'prior="spike_slab" has method="ep"; got {self.method!r}. For exact draws write the model in PyMC '
                "with pac.SpikeSlab and sample it with pac.TemperingSMC."
            )
        if self.prior == "auto" and self.method != "ep":
            raise UnsupportedError(f'prior="auto" has method="ep"; got {self.method!r}. Each of its priors has others.')

    @property
    def advice(self) -> str:
        """What to do about a fit that does not converge."""
        return "Lower gamma." if self.prior == "spike_slab" else 'Lower gamma, or use method="smc".'

    def tell(self, sentence: str) -> None:
        """Print what is done next, where ``verbose`` asks for it."""
        if self.verbose:
            print(f"[pymc_pacauc] {sentence}", flush=True)


@dataclass(frozen=True, eq=False)
class StoredGaussian:
    """A Gaussian by its ``mean`` and ``covariance``: what is kept of a posterior without its rows."""

    mean: FloatArray
    covariance: FloatArray

    @property
    def variance(self) -> FloatArray:
        return np.diagonal(self.covariance)

    def moments_of(self, theta_map: FloatArray, *, variances: bool = False) -> tuple[FloatArray, FloatArray]:
        """Mean and covariance (or ``variances``) of ``theta_map @ theta``."""
        moved = theta_map @ self.covariance
        spread = np.einsum("ij,ij->i", moved, theta_map) if variances else moved @ theta_map.T
        return theta_map @ self.mean, spread

    def draw(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Independent draws, shape (draws, d)."""
        return rng.multivariate_normal(self.mean, self.covariance, size=draws, method="eigh")


@dataclass(frozen=True, eq=False)
class StoredResult:
    """A :class:`~pymc_pacauc.array_result.Result` as numbers, without the rows they were computed from."""

    fitted_to: Provenance
    evidence: LogEvidence
    mean_risk: Estimate
    divergence: Estimate
    gaussian: bool
    caveat: str


@dataclass(frozen=True, eq=False)
class StoredFit:
    """What is kept of a fit without its rows: its posterior as moments, the calibrated one, and how it went."""

    posterior: StoredGaussian
    spread: StoredGaussian
    calibrated: bool
    result: StoredResult
    method: str
    converged: bool
    sweeps: int
    interventions: Any
    inclusion_probability: FloatArray
    draws: FloatArray | None


@dataclass(frozen=True, eq=False)
class ScorePosterior:
    """Posterior of the scores ``covariates(X) @ theta``.

    Attributes
    ----------
    columns : Columns
        Centre and scale of the columns of X.
    features : KernelFeatures, AdditiveFeatures or None
        Made from these columns; None for scores that are linear in X.
    shrinkage : float or None
        Of a Gaussian prior, chosen by evidence; None where there was no choice.
    record : Provenance
        What was fitted to.
    fit : Fit or StoredFit
        The approximation; with SMC the one it started from.
    choice : GammaChoice, CertifiedGamma, CoverageChoice or None
        How gamma was chosen; None where it was given, or is not kept.
    tempered : Tempered or None
        Draws, with SMC.
    groups : array or None
        Group of each row, where groups are the independent units.
    held : array or None
        Cross-fitted scores, (assignments, rows), where they are known already.
    """

    columns: Columns
    features: KernelFeatures | AdditiveFeatures | None
    shrinkage: float | None
    record: Provenance
    fit: Any
    choice: Choice | None = None
    tempered: Tempered | None = None
    groups: NDArray[np.intp] | None = None
    held: FloatArray | None = None

    uncertified = "The prior (its lengthscale) was tuned on the data it would be certified with."

    def covariates(self, X: FloatArray) -> FloatArray:
        """What theta are the coefficients of, for rows of X."""
        columns = self.columns.apply(X)
        return columns if self.features is None else self.features.transform(columns)

    @property
    def has_data(self) -> bool:
        """Whether the rows it was fitted to are kept."""
        return not isinstance(self.fit, StoredFit)

    @cached_property
    def mean(self) -> FloatArray:
        """Coefficients of the mean score: of a fit the mean of q, which is certified; else the posterior mean."""
        return self.fit.posterior.mean if self.tempered is None else self.tempered.theta.mean(axis=0)

    @cached_property
    def spread(self) -> Any:
        """The Gaussian whose covariance is reported: calibrated, or the posterior's own where that cannot be."""
        if not self.has_data:
            return self.fit.spread
        if isinstance(self.features, KernelFeatures):
            return self.fit.posterior
        try:
            return calibrated_posterior(self.fit, self.groups)
        except ValueError:
            return self.fit.posterior

    @property
    def calibrated(self) -> bool:
        """Whether standard deviations are those that cover."""
        return self.spread is not self.fit.posterior if self.has_data else self.fit.calibrated

    @property
    def coef(self) -> FloatArray:
        """Posterior mean of the coefficients of X, shape (d,), of linear scores."""
        return self.mean / self.columns.scale

    @property
    def coef_sd(self) -> FloatArray:
        """Standard deviations of the coefficients of X, calibrated, shape (d,)."""
        return np.sqrt(self.spread.variance) / self.columns.scale

    def score(self, X: FloatArray) -> FloatArray:
        """Mean score of each row; of linear scores, zero for the average training row."""
        return self.covariates(X) @ self.mean

    @cached_property
    def training_scores(self) -> FloatArray:
        """Mean scores of the rows it was fitted to."""
        return self.fit.problem.X @ self.mean

    def std(self, X: FloatArray) -> FloatArray:
        """Calibrated standard deviation of each row's score about :meth:`score`."""
        return np.sqrt(self.spread.moments_of(self.covariates(X), variances=True)[1])

    def interval(self, X: FloatArray, ci_prob: float) -> FloatArray:
        """Central interval of each row's score, shape (rows, 2)."""
        half = -ndtri(0.5 * (1.0 - ci_prob)) * self.std(X)
        return self.score(X)[:, None] + np.column_stack([-half, half])

    def shapes(self) -> list[FloatArray]:
        """The function of each column, of an additive score: its points, mean and calibrated standard deviation there.

        Arrays of shape (3, points), in the units of X and of the score; less the function's mean over training rows.
        """
        if not isinstance(self.features, AdditiveFeatures):
            raise ValueError('Only an additive score has a function for each column: fit with prior="additive".')
        found = []
        for j, (points, table) in enumerate(zip(self.features.points, self.features.tables, strict=True)):
            design = np.zeros((points.size, self.features.rank))
            design[:, self.features.column == j] = table
            variance = self.spread.moments_of(design, variances=True)[1]
            x = self.columns.center[j] + self.columns.scale[j] * points
            found.append(np.array([x, design @ self.mean, np.sqrt(variance)]))
        return found

    def draw(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Draws of theta from the Gibbs posterior, shape (draws, d)."""
        drawn = self.fit.draws if not self.has_data else None if self.tempered is None else self.tempered.theta
        if drawn is None:
            return self.fit.posterior.draw(draws, rng)
        return drawn[rng.integers(len(drawn), size=draws)].astype(np.float64)

    def score_function(self, features: Sequence[str]) -> ScoreFunction:
        """How a row of X becomes a score, given the coefficients ``coef`` of X; a refusal for features of X."""
        if self.features is not None:
            refusal = "The scores are not linear in X but in features of it: use the estimator's decision_function(X)."
            return ScoreFunction((), refusal=refusal)
        linear = linear_scores("coef", self.columns.center.shape, features)
        centre = sparse.vstack([linear.matrix[:-1], sparse.csr_array(-self.columns.center[None])], format="csr")
        return replace(linear, matrix=centre)

    @cached_property
    def result(self) -> Result:
        """What certificates and summaries ask for."""
        if not self.has_data:
            return self.fit.result
        return (
            ArrayResult(self.fit, self.record) if self.tempered is None else replace(self.tempered, record=self.record)
        )

    @property
    def log_evidence(self) -> float:
        return self.result.evidence.estimate

    def without_data(self) -> ScorePosterior:
        """The same posterior as moments and numbers, without anything that has a row for each training row."""
        if not self.has_data:
            return self
        result, fit = self.result, self.fit
        stored = StoredResult(
            result.fitted_to, result.evidence, result.mean_risk, result.divergence, result.gaussian, result.caveat
        )
        own, spread = (StoredGaussian(self.mean, each.covariance) for each in (fit.posterior, self.spread))
        kept = StoredFit(
            own,
            spread,
            self.calibrated,
            stored,
            fit.method,
            fit.converged,
            fit.sweeps,
            fit.interventions,
            fit.inclusion_probability,
            None if self.tempered is None else self.tempered.theta.astype(np.float32),  # half the size, 7 digits
        )
        return replace(self, fit=kept, record=stored.fitted_to, choice=None, tempered=None, groups=None)


def fit_part(
    X: FloatArray,
    pairs: Pairs,
    recipe: Recipe,
    *,
    sample_weight: FloatArray | None,
    folds: int | NDArray[np.intp],
    groups: NDArray[np.intp] | None,
    rng: np.random.Generator,
) -> ScorePosterior:
    """Fit the scores of these rows under one prior; ``folds`` is their number, or the fold of every row."""
    context = copy_context()
    context.run(ADVICE.set, recipe.advice)
    return context.run(_fit_part, X, pairs, recipe, sample_weight, folds, groups, rng)


def _fit_part(
    X: FloatArray,
    pairs: Pairs,
    recipe: Recipe,
    sample_weight: FloatArray | None,
    folds: int | NDArray[np.intp],
    groups: NDArray[np.intp] | None,
    rng: np.random.Generator,
) -> ScorePosterior:
    columns = learn_columns(X, sample_weight, recipe.standardize)
    design = columns.apply(X)
    order = content_order(design)  # the same rows choose under every prior
    if recipe.prior == "gp":
        columns = replace(columns, robust=additive_features(design, sample_weight))
        design = columns.apply(X)
    prior: PriorChoice | None = None
    features: KernelFeatures | AdditiveFeatures | None = None
    tuning = pairs_of_few(pairs, TUNING_ROWS, order)
    if recipe.prior == "gp":
        recipe.tell("choosing the lengthscale")
        few = linear_gaussian_problem(design, tuning, gamma=SIZES * row_shares(tuning).size).of_compared_rows()
        options: dict[str, Any] = {"rank": MOST_FEATURES, "max_evaluations": EVALUATIONS, "n_jobs": recipe.n_jobs}
        features = choose_lengthscale(few.X, few.pairs, few.gamma, **options).features
        if few.n < len(design):  # pivots from more rows than the lengthscale was chosen by
            some = design[order[:: -(-len(design) // PIVOT_ROWS)]]
            rank = int(np.clip(np.sqrt(FEATURE_WORK / len(design)), 1, MOST_FEATURES))
            features = kernel_features(some, lengthscale=features.lengthscale, rank=rank)
    elif recipe.prior == "additive":
        features = additive_features(design, sample_weight)
    design = design if features is None else features.transform(design)
    if recipe.prior == "spike_slab":
        p = default_inclusion_probability(design.shape[1])
        problem = spike_slab_problem(design, tuning, gamma=1.0, inclusion_probability=p, v0=0.0)
    else:
        problem = replace(linear_gaussian_problem(design, tuning, gamma=1.0), tuned_prior=recipe.prior == "gp")
    if recipe.prior == "gaussian":
        recipe.tell("choosing the prior's covariance")
        prior = choose_shrinkage(problem, weights=sample_weight, n_jobs=recipe.n_jobs)
    elif recipe.prior == "additive":
        recipe.tell("choosing the prior's smoothness")
        prior = choose_bend(problem, X.shape[1], weights=sample_weight, n_jobs=recipe.n_jobs)
    priors = 1 if prior is None else prior.number
    problem = replace(problem if prior is None else prior.problem, pairs=pairs)
    found, choice = fit_at_gamma(
        problem,
        tuning,
        recipe.gamma,
        method="ep" if recipe.method == "smc" else recipe.method,
        folds=folds,
        groups=groups,
        priors=priors,
        pilot=None if prior is None or recipe.method == "vb" else prior.fit,
        n_jobs=recipe.n_jobs,
        tell=recipe.tell,
    )
    method = "TemperingSMC" if recipe.method == "smc" else found.method
    record = fitted_to_problem(found.problem, method)
    own_scales = bool(recipe.standardize) or recipe.prior in ("gaussian", "additive")
    record = replace(record, tuned_prior=recipe.prior == "gp", priors=priors, own_scales=own_scales)
    record = record if groups is None else record.with_groups(pairs, groups)
    tempered = None
    if recipe.method == "smc":
        recipe.tell("tempering")
        tempered = temper(found, PARTICLES, rng)
    shrinkage = None if prior is None else prior.shrinkage
    return ScorePosterior(columns, features, shrinkage, record, found, choice, tempered, groups)


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if not (isinstance(value, str) and value in choices):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}.")
