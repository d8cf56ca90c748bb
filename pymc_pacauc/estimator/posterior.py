"""The posterior of an estimator's score: from rows and pairs to coefficients in the units of X.

:class:`Recipe` turns an estimator's parameters (``prior=``, ``method=``, ``gamma=``) into a
:class:`~pymc_pacauc.problem.problem.Problem` and its fit, a :class:`ScorePosterior`; the estimators check their input
and return its attributes.

*Columns* (:func:`learn_columns`) are centred at the training rows and, with ``standardize=True``, scaled: equal prior
variances mean something only for columns on one scale. Centring changes no ranking, and makes the standard deviation of
a score that of its difference from the average training row.

*Draws* (:func:`temper`) with ``method="smc"`` come from tempering SMC that starts at the fit.

The options of an estimator's ``gamma=``: a number, that of a theorem, or a choice by folds, bound or coverage.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import ndtri
from sklearn.preprocessing import StandardScaler

from pymc_pacauc.array_result import ArrayResult, Estimate, KnownResult, Result, gibbs_divergence
from pymc_pacauc.certify.certificate import Certificate, certificate
from pymc_pacauc.comparison.pairs import Pairs
from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.ep.loop import UnsupportedError
from pymc_pacauc.ep.plan import METHODS
from pymc_pacauc.ep.posterior import ByCovariance
from pymc_pacauc.ep.results import Fit
from pymc_pacauc.fitting import fit
from pymc_pacauc.numerics import FloatArray, tails
from pymc_pacauc.problem.additive_features import AdditiveFeatures, additive_features, robust_scores
from pymc_pacauc.problem.kernel_features import KernelFeatures, kernel_features
from pymc_pacauc.problem.problem import (
    Problem,
    check_gamma,
    default_inclusion_probability,
    linear_gaussian_problem,
    spike_slab_problem,
)
from pymc_pacauc.problem.provenance import Provenance, fitted_to_problem, sides
from pymc_pacauc.problem.score_function import ScoreFunction, linear_scores
from pymc_pacauc.smc import LogEvidence, Settings, Stage, bridge_path, combine, prior_path, run_tempering
from pymc_pacauc.smc.tempering import TemperingWarning, diagnose
from pymc_pacauc.theorems import theorem_defaults
from pymc_pacauc.tune.coverage import CoverageChoice, calibrated_posterior, coverage_gamma
from pymc_pacauc.tune.evidence import PriorChoice, choose_bend, choose_lengthscale, choose_shrinkage
from pymc_pacauc.tune.gamma import (
    CENTRE,
    MANY_ROWS,
    GammaChoice,
    certificate_gammas,
    choose_gamma,
    content_order,
    fits_along_gamma,
    pairs_of_few,
)

FENCE = 3.0  # interquartile ranges from the quartiles to Tukey's far fences, 4.7 sd of a Gaussian; doubled, 8.8
# Standard deviations of a column, at most, from its mean to its farthest value. With no limit digits lose 0.003 in M
# (benchmarks/multi_class.py): some pixels are blank but in a row or two. Doubled, they lose 0.0003.
FARTHEST = 5.0


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
    """Centre and scale of these rows, a row of weight 2 counting as two; that of a constant column is its size.

    The scale is the standard deviation of values cut at Tukey's fences, which a few gross errors do not stretch, and at
    least a fifth of the largest distance from their mean: in a column that is nearly constant a prior of unit variance
    per standard deviation would let one row decide.
    """
    size = np.maximum(X.max(axis=0), -X.min(axis=0))
    unit = np.ldexp(1.0, np.frexp(size)[1] - 1)  # a power of two, which changes no digit: no square overflows
    rows = X / unit
    center = unit * np.average(rows, axis=0, weights=sample_weight)
    if not standardize:
        return Columns(center, np.ones(X.shape[1]))
    cut = np.column_stack([_cut_at_fences(x, sample_weight) for x in rows.T])
    scaler = StandardScaler().fit(cut, sample_weight=sample_weight)
    return Columns(center, unit * np.maximum(scaler.scale_, np.abs(cut - scaler.mean_).max(axis=0) / FARTHEST))


def _cut_at_fences(x: FloatArray, weights: FloatArray | None) -> FloatArray:
    """Values of a column, those beyond Tukey's far fences replaced by the fence; as they are if its quartiles agree.

    Examples
    --------
    >>> float(_cut_at_fences(np.array([1.0, 2.0, 3.0, 4.0, 900.0]), None).max())
    10.0
    """
    if weights is None:  # sorting takes a fifth of the time of np.quantile
        lower, upper = np.sort(x)[[(x.size - 1) // 4, (3 * x.size - 1) // 4]]
    else:
        lower, upper = np.quantile(x, [0.25, 0.75], weights=weights, method="inverted_cdf")
    away = FENCE * (upper - lower)
    return np.clip(x, lower - away, upper + away) if away > 0.0 else x


@dataclass(frozen=True, eq=False)
class Tempered:
    """Draws of a problem of arrays as a :class:`~pymc_pacauc.array_result.Result`.

    Attributes
    ----------
    problem
        The problem that was sampled.
    theta, risk
        Draws, shape (draws, d), and the risk of each.
    parent
        The particle that each draw was resampled from: draws of different ones are independent.
    stages
        The stages of the run.
    record
        Provenance, where it is known already.
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
        return gibbs_divergence(self.problem.gamma, self.mean_risk, self.evidence)


def temper(start: Fit, rng: np.random.Generator) -> Tempered:
    """Draw from the posterior that ``start`` approximates, by tempering SMC."""
    path = bridge_path(prior_path(start.problem), start.posterior.mean, start.posterior.covariance)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TemperingWarning)  # by options that estimators do not have
        state = run_tempering(path, settings := Settings(), rng)
    if diagnose(path, settings, state):
        warnings.warn(
            f"Draws of {settings.particles} particles may depend on each other, or miss a part of the posterior. Lower "
            "gamma, or write the model in PyMC and sample it by pac.TemperingSMC, which has options for that and says "
            "more.",
            TemperingWarning,
            stacklevel=4,
        )
    theta, risk = path.finish(state.population, rng)
    return Tempered(start.problem, theta, risk, state.population.parent, state.stages)


PRIORS = ("gaussian", "ridge", "spike_slab", "additive", "gp", "auto")
TUNING_ROWS = 500  # whose pairs choose prior and gamma; twice as many: four times as long, see docs/develop/gamma.md
# Features of a process, at most, and rows times their square: above 100 000 rows there are fewer. At 100 000 rows of 50
# columns 60 and 120 rank alike (AUC 0.706), and 300 take five times as long; doubled, fits take twice as long.
MOST_FEATURES, FEATURE_WORK = 100, 1e9
EVALUATIONS = 8  # of the evidence, to choose a lengthscale; the most, 30, take twice as long


@dataclass(frozen=True)
class Recipe:
    """An estimator's checked parameters; fits rows and pairs."""

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
                f'prior="spike_slab" needs method="ep"; got {self.method!r}. For exact draws write the model in PyMC '
                "with pac.SpikeSlab and sample it with pac.TemperingSMC."
            )
        if self.prior == "auto" and self.method != "ep":
            raise UnsupportedError(
                f'prior="auto" needs method="ep"; got {self.method!r}. Use one of the other priors for other methods.'
            )

    @property
    def advice(self) -> str:
        """Advice for a fit that does not converge, in terms of the estimator's options."""
        no_other = self.method == "smc" or self.prior in ("spike_slab", "auto")
        return "Lower gamma." if no_other else 'Lower gamma, or use method="smc".'

    def tell(self, sentence: str) -> None:
        """Print what is done next, with ``verbose``."""
        if self.verbose:
            print(f"[pymc_pacauc] {sentence}", flush=True)


@dataclass(frozen=True, eq=False)
class StoredGaussian(ByCovariance):
    """A Gaussian by its ``mean`` and ``covariance``: what is kept of a posterior without its rows."""

    mean: FloatArray
    covariance: FloatArray

    def draw(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Independent draws, shape (draws, d)."""
        return rng.multivariate_normal(self.mean, self.covariance, size=draws, method="eigh")


@dataclass(frozen=True, eq=False)
class StoredFit:
    """A fit without its rows: its posterior and the calibrated one as moments, and whether it converged."""

    posterior: StoredGaussian
    spread: StoredGaussian
    calibrated: bool
    result: KnownResult
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
        Shrinkage of a Gaussian prior, chosen by evidence; None where there was no choice.
    record : Provenance
        Provenance of the fit.
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
        """Return the columns that theta multiplies, for rows of X; (rows, coefficients)."""
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
        half = ndtri(tails(ci_prob)[1]) * self.std(X)
        return self.score(X)[:, None] + np.column_stack([-half, half])

    def shapes(self) -> list[FloatArray]:
        """The function of each column, of an additive score: its points, mean and calibrated standard deviation there.

        Arrays of shape (3, points), in the units of X and of the score; less the function's mean over training rows.
        """
        if not isinstance(self.features, AdditiveFeatures):
            raise ValueError('prior="additive" has a function of each column; this estimator has another prior.')
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
        """The posterior as a :class:`~pymc_pacauc.array_result.Result`."""
        if not self.has_data:
            return self.fit.result
        return (
            ArrayResult(self.fit, self.record) if self.tempered is None else replace(self.tempered, record=self.record)
        )

    @property
    def log_evidence(self) -> float:
        return self.result.evidence.estimate

    def without_data(self) -> Self:
        """The same posterior as moments and numbers, without anything that has a row for each training row."""
        if not self.has_data:
            return self
        result, fit = self.result, self.fit
        stored = KnownResult(
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
        few = linear_gaussian_problem(design, tuning, gamma=CENTRE * row_shares(tuning).size).of_compared_rows()
        options: dict[str, Any] = {"rank": MOST_FEATURES, "max_evaluations": EVALUATIONS, "n_jobs": recipe.n_jobs}
        features = choose_lengthscale(few.X, few.pairs, few.gamma, **options).features
        if few.n < len(design):  # pivots from more rows than the lengthscale was chosen by
            some = design[order[:: -(-len(design) // MANY_ROWS)]]
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
        tempered = temper(found, rng)
    shrinkage = None if prior is None else prior.shrinkage
    return ScorePosterior(columns, features, shrinkage, record, found, choice, tempered, groups)


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if not (isinstance(value, str) and value in choices):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}.")


GAMMAS = ("cv", "certificate", "coverage", "default", "MA1", "MAinf")


@dataclass(frozen=True, eq=False)
class CertifiedGamma:
    """Fits along gamma with their certificates; ``fit`` has the highest."""

    fits: tuple[Fit, ...]
    certificates: tuple[Certificate, ...]

    @property
    def chosen(self) -> int:
        return int(np.argmax([each.auc for each in self.certificates]))

    @property
    def fit(self) -> Fit:
        return self.fits[self.chosen]


Choice = GammaChoice | CertifiedGamma | CoverageChoice


def check_gamma_choice(gamma: Any) -> None:
    """Refuse what is neither one of the names nor a positive number."""
    if not isinstance(gamma, str):
        check_gamma(gamma)
    elif gamma not in GAMMAS:
        names = ", ".join(map(repr, GAMMAS))
        raise ValueError(f"gamma must be one of {names}, or one finite number > 0; got {gamma!r}.")


def fit_at_gamma(
    problem: Problem,
    tuning: Pairs,
    gamma: Any,
    *,
    method: str,
    folds: Any,
    groups: ArrayLike | None,
    priors: int,
    pilot: Fit | None,
    n_jobs: int | None,
    tell: Callable[[str], None],
) -> tuple[Fit, Choice | None]:
    """Fit at the given or chosen gamma; return the fit, and the choice if there was one.

    Folds choose gamma by the pairs ``tuning``. A ``pilot``, a fit to these at any gamma, saves a fit.
    """
    if isinstance(gamma, str) and gamma == "cv":
        options: dict[str, Any] = {"method": method, "groups": groups, "n_jobs": n_jobs}
        number_of_folds = folds if isinstance(folds, int) else int(folds.max()) + 1
        words = f"choosing gamma by {number_of_folds} folds: "
        options["callback"] = lambda number: tell(f"{words}{number} values done")
        choice = choose_gamma(problem, folds=folds, tuning=tuning, start=pilot, **options)
        start = pilot if tuning is problem.pairs else None
        tell(f"fitting at gamma = {choice.gamma:.4g}")
        at = replace(problem, gamma=choice.gamma)
        return fit(at, method, accuracy="estimator", start=start, n_jobs=n_jobs), choice
    if isinstance(gamma, str) and gamma == "certificate":
        certified = _by_certificate(problem, method, priors, groups, n_jobs)
        return certified.fit, certified
    if isinstance(gamma, str) and gamma == "coverage":
        covering = coverage_gamma(problem, n_jobs=n_jobs)
        return covering.fit, covering
    at = replace(problem, gamma=_number(gamma, problem))
    return fit(at, method, accuracy="estimator", n_jobs=n_jobs), None


def _number(gamma: Any, problem: Problem) -> float:
    if not isinstance(gamma, str):
        return check_gamma(gamma)
    if gamma == "default":
        return 4.0 * row_shares(problem.pairs).size
    if problem.pairs.kind != "two classes":
        raise ValueError(f'gamma={gamma!r} is for two classes; for {problem.pairs.kind} use "default" or "cv".')
    n_pos, n_neg = sides(problem.pairs)
    return theorem_defaults(n_pos, n_neg, problem.d, assumption=gamma).gamma


def _by_certificate(
    problem: Problem, method: str, priors: int, groups: ArrayLike | None, n_jobs: int | None
) -> CertifiedGamma:
    """Choose gamma by the certificate, on a grid around Theorem 2.3's; certificates hold for any choice of gamma."""
    grid = certificate_gammas(row_shares(problem.pairs))
    fits = list(fits_along_gamma(problem, grid, method, n_jobs=n_jobs))
    fits = [each for each in fits if each.converged] or fits
    # where the prior was tuned it is no certificate, but a criterion still
    options: dict[str, Any] = {"selected_from": priors, "tuned_prior": "accept", "groups": groups}
    return CertifiedGamma(tuple(fits), tuple(certificate(ArrayResult(each), **options) for each in fits))
