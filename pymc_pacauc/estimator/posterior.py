"""The posterior of an estimator's score: from rows and pairs to coefficients in the units of X.

:func:`fit_scores` turns an estimator's parameters (:class:`Recipe`) into a
:class:`~pymc_pacauc.problem.problem.Problem` and its fit, a :class:`ScorePosterior`; the estimators check their input
and return its attributes.

*Columns* (:func:`learn_columns`) are centred at the training rows and, with ``standardize=True``, scaled: equal prior
variances mean something only for columns on one scale. Centring changes no ranking, and makes the standard deviation of
a score that of its difference from the average training row.

*Draws* (:func:`temper`) with ``method="smc"`` come from tempering SMC that starts at the fit.

*Gamma* (:func:`fit_at_gamma`) is a number, or a choice by folds, bound or coverage.

*Rows left out* (:func:`cross_fit`) are scored by posteriors without their fold, for probabilities, weights of parts and
the report.

*Average* (:class:`AveragedPosterior`), ``prior="auto"``. No prior is best for all data: a linear score where rows are
few or effects are linear, one that is linear in robust scores where columns have outliers, a sum of functions where
effects bend, a Gaussian process where columns interact. Their errors differ, so that the average is better than
choosing one. Each *part* is a posterior with its own gamma, whose score is standardised over the training rows; one
that folds rank far behind an earlier one is not fitted. Weights are by *stacking*: the cross-fitted scores of the parts
are the columns of another ranking problem, whose coefficients have the prior N(m, 0.5^2), m = 1 for the linear part
and size / (size + 60) for the others, which are noise where a class has few rows. The positive part of its posterior
mean, at gamma = twice the comparison's size, normalised to sum 1, gives the weights. Cross-fitted scores of the average
use weights computed without the fold.

References: Wolpert (1992), doi:10.1016/S0893-6080(05)80023-1, and Breiman (1996), doi:10.1007/BF00117832, for stacking.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextvars import copy_context
from dataclasses import dataclass, fields, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtri
from sklearn.preprocessing import StandardScaler

from pymc_pacauc.array_result import ArrayResult, Estimate, KnownResult, Result, gibbs_result
from pymc_pacauc.certify.certificate import certificate
from pymc_pacauc.comparison.pairs import Pairs
from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.ep.loop import ConvergenceWarning, UnsupportedError
from pymc_pacauc.ep.posterior import ByCovariance
from pymc_pacauc.ep.results import ADVICE, Fit
from pymc_pacauc.ep.start import SWEEPS
from pymc_pacauc.fitting import fit, fits_along
from pymc_pacauc.numerics import FloatArray, tails
from pymc_pacauc.problem import problem as problems
from pymc_pacauc.problem.additive_features import AdditiveFeatures, additive_features
from pymc_pacauc.problem.kernel_features import KernelFeatures, kernel_features
from pymc_pacauc.problem.provenance import Provenance, fitted_to_problem, sides
from pymc_pacauc.problem.score_function import ScoreFunction, linear_scores
from pymc_pacauc.smc.log_evidence import combine
from pymc_pacauc.smc.paths import bridge_path, prior_path
from pymc_pacauc.smc.tempering import Settings, TemperingWarning, diagnose, run_tempering
from pymc_pacauc.tune import gamma as gammas
from pymc_pacauc.tune.coverage import calibrated_posterior, coverage_gamma
from pymc_pacauc.tune.evidence import PriorChoice, choose_lengthscale, choose_prior

PARTS = ("gaussian", "robust", "additive", "gp")  # of an average
# Comparison's size, n+ n- / n, at which another part than the linear one weighs half as much a priori. Halved, the AUC
# on unseen data is the same to 0.001.
HALF_WEIGHT = 60.0
# Standard deviations of a column, at most, from its mean to its farthest value. With no limit digits lose 0.003 in M
# (benchmarks/multi_class.py): some pixels are blank but in a row or two. Doubled, they lose 0.0003.
FARTHEST = 5.0
TUNING_ROWS = 500  # whose pairs choose prior and gamma; twice as many: four times as long, see docs/develop/gamma.md
# Features of a process, at most. At 100 000 rows of 50 columns 60 and 120 rank alike (AUC 0.706), and 300 take five
# times as long; doubled, fits take twice as long.
MOST_FEATURES = 100
# Rows of the smaller class from which on two folds are left out, not five, where there are also 25 for each
# coefficient: a half ranks as the whole does, and fits take half as long (50 000 rows of 10 columns).
MANY_OF_A_CLASS = 5000
# Paired standard errors of folds by which a part that stays behind the best one is left out. Doubled, fewer are: only
# stacking then keeps their weight small.
BEHIND = 3.0


@dataclass(frozen=True, eq=False)
class Columns:
    """``(X - center) / scale``, or robust scores of these."""

    center: FloatArray
    scale: FloatArray
    robust: AdditiveFeatures | None = None

    def apply(self, X: FloatArray) -> FloatArray:
        columns = (X - self.center) / self.scale
        return columns if self.robust is None else self.robust.transform(columns)


def learn_columns(X: FloatArray, sample_weight: FloatArray | None, standardize: Any) -> Columns:
    """Compute centre and scale of the columns of these rows, a row of weight 2 counting as two.

    The scale is the standard deviation of values cut at Tukey's far fences (three interquartile ranges from the
    quartiles, 4.7 standard deviations of a Gaussian), which a few gross errors do not stretch, and at least a fifth of
    the largest distance from their mean: in a column that is nearly constant a prior of unit variance per standard
    deviation would let one row decide. A column whose quartiles agree is not cut, a constant one is scaled by its size.
    """
    size = np.maximum(X.max(axis=0), -X.min(axis=0))
    unit = np.ldexp(1.0, np.frexp(size)[1] - 1)  # a power of two, which changes no digit: no square overflows
    rows = X / unit
    center = unit * np.average(rows, axis=0, weights=sample_weight)
    if not standardize:
        return Columns(center, np.ones(X.shape[1]))
    lower, upper = np.quantile(rows, [0.25, 0.75], axis=0, weights=sample_weight, method="inverted_cdf")
    away = 3.0 * (upper - lower)
    cut = np.where(away > 0.0, np.clip(rows, lower - away, upper + away), rows)
    scaler = StandardScaler().fit(cut, sample_weight=sample_weight)
    return Columns(center, unit * np.maximum(scaler.scale_, np.abs(cut - scaler.mean_).max(axis=0) / FARTHEST))


CHOSEN = ("gaussian", "robust", "additive")  # priors whose covariance is chosen
# Priors for which there is EP alone, and what to do for another method.
ONLY_EP = {
    "spike_slab": "For exact draws write the model in PyMC with pac.SpikeSlab and sample it with pac.TemperingSMC.",
    "auto": "Use one of the other priors for other methods.",
}


@dataclass(frozen=True)
class Recipe:
    """An estimator's parameters: how to fit scores to rows and pairs; ``rng`` is for draws."""

    prior: str
    method: str
    gamma: Any
    standardize: Any
    n_jobs: int
    verbose: Any
    rng: np.random.Generator

    def __post_init__(self) -> None:
        if self.prior in ONLY_EP and self.method != "ep":
            raise UnsupportedError(
                f'prior="{self.prior}" needs method="ep"; got {self.method!r}. {ONLY_EP[self.prior]}'
            )

    @property
    def advice(self) -> str:
        """Advice for a fit that does not converge, in terms of the estimator's options."""
        no_other = self.method == "smc" or self.prior in ONLY_EP
        return "Lower gamma." if no_other else 'Lower gamma, or use method="smc".'

    def tell(self, sentence: str) -> None:
        """Print what is done next, with ``verbose``."""
        if self.verbose:
            print(f"[pymc_pacauc] {sentence}", flush=True)


@dataclass(frozen=True, eq=False)
class Rows:
    """Training rows.

    Attributes
    ----------
    X : array of shape (n, d)
        Covariates.
    pairs : Pairs
        Which rows are compared, with their weights.
    weights : array of shape (n,) or None
        Weights of rows in the centre and the scale of the columns.
    groups : array of int, shape (n,), or None
        Group of each row, where groups are the independent units.
    folds : int or array of int
        Number of folds, 0 where there are too few rows, or the fold of every row in each assignment.
    """

    X: FloatArray
    pairs: Pairs
    weights: FloatArray | None
    groups: NDArray[np.intp] | None
    folds: Any


@dataclass(frozen=True, eq=False)
class StoredGaussian(ByCovariance):
    """A Gaussian by its ``mean`` and ``covariance``: what is kept of a posterior without its rows."""

    mean: FloatArray
    covariance: FloatArray

    def draw(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw independently, shape (draws, d)."""
        return rng.multivariate_normal(self.mean, self.covariance, size=draws, method="eigh")


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
    fit : Fit or SimpleNamespace
        The approximation, with SMC the one it started from; without data, some of its attributes.
    mean : array
        Coefficients of the mean score: of a fit the mean of q, which is certified; else the posterior mean.
    choice : GammaChoice or None
        How folds chose gamma; None where they did not, or it is not kept.
    draws : array or None
        Draws of theta, with SMC.
    known : KnownResult or None
        The :attr:`result`, of draws and without data.
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
    mean: FloatArray
    choice: gammas.GammaChoice | None = None
    draws: NDArray[np.floating] | None = None
    known: KnownResult | None = None
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
        return hasattr(self.fit, "problem")

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
        return self.spread is not self.fit.posterior

    @property
    def coef(self) -> FloatArray:
        """Posterior mean of the coefficients of X, shape (d,), of linear scores."""
        return self.mean / self.columns.scale

    @property
    def coef_sd(self) -> FloatArray:
        """Standard deviations of the coefficients of X, calibrated, shape (d,)."""
        return np.sqrt(self.spread.variance) / self.columns.scale

    def score(self, X: FloatArray) -> FloatArray:
        """Compute the mean score of each row; of linear scores, zero for the average training row."""
        return self.covariates(X) @ self.mean

    @cached_property
    def training_scores(self) -> FloatArray:
        """Compute the mean scores of the rows it was fitted to."""
        return self.fit.problem.X @ self.mean

    def std(self, X: FloatArray) -> FloatArray:
        """Compute the calibrated standard deviation of each row's score about :meth:`score`."""
        return np.sqrt(self.spread.moments_of(self.covariates(X), variances=True)[1])

    def interval(self, X: FloatArray, ci_prob: float) -> FloatArray:
        """Compute the central interval of each row's score, shape (rows, 2)."""
        return self.score(X)[:, None] + np.outer(self.std(X), ndtri(tails(ci_prob)))

    def shapes(self) -> list[FloatArray]:
        """Compute the function of each column of an additive score: points, mean and calibrated sd there.

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
        """Draw theta from the Gibbs posterior, shape (draws, d)."""
        if self.draws is None:
            return self.fit.posterior.draw(draws, rng)
        return self.draws[rng.integers(len(self.draws), size=draws)].astype(np.float64)

    def score_function(self, features: Sequence[str]) -> ScoreFunction:
        """Return the function from a row of X to a score, given its coefficients ``coef``; a refusal for features."""
        if self.features is not None:
            refusal = "The scores are not linear in X but in features of it: use the estimator's decision_function(X)."
            return ScoreFunction((), refusal=refusal)
        linear = linear_scores("coef", self.columns.center.shape, features)
        centre = sparse.vstack([linear.matrix[:-1], sparse.csr_array(-self.columns.center[None])], format="csr")
        return replace(linear, matrix=centre)

    @cached_property
    def result(self) -> Result:
        """The posterior as a :class:`~pymc_pacauc.array_result.Result`."""
        return ArrayResult(self.fit, self.record) if self.known is None else self.known

    def without_data(self) -> Self:
        """Return the same posterior as moments and numbers, without arrays that have an entry for each training row."""
        if not self.has_data:
            return self
        numbers = ("fitted_to", "evidence", "mean_risk", "divergence", "gaussian", "caveat")
        known = KnownResult(*(getattr(self.result, name) for name in numbers))
        own = StoredGaussian(self.mean, self.fit.posterior.covariance)
        spread = StoredGaussian(self.mean, self.spread.covariance) if self.calibrated else own
        names = ("method", "converged", "sweeps", "interventions", "inclusion_probability")
        kept = SimpleNamespace(posterior=own, spread=spread, **{name: getattr(self.fit, name) for name in names})
        draws = None if self.draws is None else self.draws.astype(np.float32)  # half the size, 7 digits
        return replace(
            self, fit=kept, record=known.fitted_to, known=known, draws=draws, choice=None, groups=None, held=None
        )


def fit_scores(recipe: Recipe, rows: Rows) -> ScorePosterior:
    """Fit the scores of these rows."""
    context = copy_context()
    context.run(ADVICE.set, recipe.advice)
    found = context.run(_fit_average if recipe.prior == "auto" else _fit_part, recipe, rows)
    assert found is not None
    return found


def _fit_part(recipe: Recipe, rows: Rows, ahead: Sequence[gammas.GammaChoice] = ()) -> ScorePosterior | None:
    """Fit the scores of these rows under one prior; None where folds rank by it far worse than by one ``ahead``."""
    columns = learn_columns(rows.X, rows.weights, recipe.standardize)
    design = columns.apply(rows.X)
    order = gammas.content_order(design)  # the same rows choose under every prior
    tuning = gammas.pairs_of_few(rows.pairs, TUNING_ROWS, order)
    features: KernelFeatures | AdditiveFeatures | None = None
    if recipe.prior == "gp":
        columns = replace(columns, robust=additive_features(design, rows.weights).lines)
        design = columns.apply(rows.X)
        features = _process_features(recipe, design, tuning, order)
    elif recipe.prior in ("robust", "additive"):
        features = additive_features(design, rows.weights)
        features = features if recipe.prior == "additive" else features.lines
    design = design if features is None else features.transform(design)
    if recipe.prior == "spike_slab":
        p = problems.default_inclusion_probability(design.shape[1])
        problem = problems.spike_slab_problem(design, tuning, gamma=1.0, inclusion_probability=p, v0=0.0)
    else:
        problem = problems.linear_gaussian_problem(design, tuning, gamma=1.0)
        problem = replace(problem, tuned_prior=recipe.prior == "gp")
    prior = PriorChoice(problem)
    if recipe.prior in CHOSEN:
        recipe.tell(f"choosing the prior's {'smoothness' if recipe.prior == 'additive' else 'covariance'}")
        prior = choose_prior(problem, rows.X.shape[1], weights=rows.weights, n_jobs=recipe.n_jobs)
    found, choice = fit_at_gamma(recipe, rows, prior, tuning, ahead)
    if found is None:
        return None
    record = replace(
        fitted_to_problem(found.problem, "TemperingSMC" if recipe.method == "smc" else found.method),
        tuned_prior=recipe.prior == "gp",
        priors=prior.number,
        own_scales=bool(recipe.standardize) or recipe.prior in CHOSEN,
    )
    record = record if rows.groups is None else record.with_groups(rows.pairs, rows.groups)
    mean, draws, known = found.posterior.mean, None, None
    if recipe.method == "smc":
        recipe.tell("tempering")
        draws, known = temper(found, record, recipe.rng)
        mean = draws.mean(axis=0)
    return ScorePosterior(columns, features, prior.shrinkage, record, found, mean, choice, draws, known, rows.groups)


def _process_features(recipe: Recipe, design: FloatArray, tuning: Pairs, order: NDArray[np.intp]) -> KernelFeatures:
    """Make features of a Gaussian process whose lengthscale is chosen by the pairs ``tuning``."""
    recipe.tell("choosing the lengthscale")
    gamma = gammas.CENTRE * row_shares(tuning).size
    few = problems.linear_gaussian_problem(design, tuning, gamma=gamma).of_compared_rows()
    # the most evaluations of the evidence, 30, take twice as long as 8
    options: dict[str, Any] = {"rank": MOST_FEATURES, "max_evaluations": 8, "n_jobs": recipe.n_jobs}
    features = choose_lengthscale(few.X, few.pairs, few.gamma, **options).features
    if few.n == len(design):
        return features
    some = design[order[:: -(-len(design) // gammas.MANY_ROWS)]]  # pivots from more rows than chose the lengthscale
    share = min(1.0, np.sqrt(1e5 / len(design)))  # the same work for more than 100 000 rows
    return kernel_features(some, lengthscale=features.lengthscale, rank=max(1, int(MOST_FEATURES * share)))


def fit_at_gamma(
    recipe: Recipe, rows: Rows, prior: PriorChoice, tuning: Pairs, ahead: Sequence[gammas.GammaChoice] = ()
) -> tuple[Fit | None, gammas.GammaChoice | None]:
    """Fit at the given or chosen gamma; return the fit, and the choice if folds made it.

    Folds choose gamma by the pairs ``tuning``; the fit to these that chose the prior saves one. There is no fit if the
    choice is far behind one of those ``ahead``.
    """
    problem, pilot = replace(prior.problem, pairs=rows.pairs), None if recipe.method == "vb" else prior.fit
    gamma, shares, n_jobs = recipe.gamma, row_shares(problem.pairs), recipe.n_jobs
    method = "ep" if recipe.method == "smc" else recipe.method
    choice, start = None, None
    if gamma == "coverage":
        return coverage_gamma(problem, n_jobs=n_jobs).fit, None
    if gamma == "certificate":  # which holds for any choice of gamma; where the prior was tuned, a criterion still
        along = [replace(problem, gamma=float(each)) for each in gammas.certificate_gammas(shares)]
        fits = list(fits_along(along, method, n_jobs=n_jobs))
        fits = [each for each in fits if each.converged] or fits
        options: dict[str, Any] = {"selected_from": prior.number, "tuned_prior": "accept", "groups": rows.groups}
        return max(fits, key=lambda each: certificate(ArrayResult(each), **options).auc), None
    if gamma == "cv":
        number_of_folds = rows.folds if isinstance(rows.folds, int) else int(rows.folds.max()) + 1
        words = f"choosing gamma by {number_of_folds} folds: "
        options = {"method": method, "groups": rows.groups, "n_jobs": n_jobs, "tuning": tuning, "start": pilot}
        options["callback"] = lambda number: recipe.tell(f"{words}{number} values done")
        choice = gammas.choose_gamma(problem, folds=rows.folds, **options)
        if any(_is_behind(choice, each) for each in ahead):
            return None, choice
        gamma, start = choice.gamma, pilot if tuning is problem.pairs else None
    elif gamma == "default":
        gamma = 4.0 * shares.size
    recipe.tell(f"fitting at gamma = {gamma:.4g}")
    at = replace(problem, gamma=float(gamma))
    return fit(at, method, accuracy="estimator", start=start, n_jobs=n_jobs), choice


def temper(start: Fit, record: Provenance, rng: np.random.Generator) -> tuple[FloatArray, KnownResult]:
    """Draw from the posterior that ``start`` approximates, by tempering SMC; return draws (draws, d) and the result."""
    path = bridge_path(prior_path(start.problem), start.posterior.mean, start.posterior.covariance)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TemperingWarning)  # by options that estimators do not have
        state = run_tempering(path, settings := Settings(), rng)
    if diagnose(path, settings, state):
        warnings.warn(
            f"Draws of {settings.particles} particles may depend on each other, or miss a part of the posterior. Lower "
            "gamma, or write the model in PyMC and sample it by pac.TemperingSMC, which has options for that.",
            TemperingWarning,
            stacklevel=4,
        )
    theta, risk = path.finish(state.population, rng)
    excess = np.bincount(state.population.parent, risk - risk.mean()) / risk.size  # draws of one parent are dependent
    mean_risk = Estimate(float(risk.mean()), float(np.sqrt(excess @ excess)))
    evidence = combine(state.stages[-1].log_evidence, state.stages[-1].log_evidence_variance)
    return theta, gibbs_result(record, mean_risk, evidence)


def calibration_folds(posterior: ScorePosterior, folds: int) -> NDArray[np.intp]:
    """Assign rows to folds, shape (assignments, rows); very many rows to halves, once."""
    problem = posterior.fit.problem
    if min(sides(problem.pairs)) >= max(MANY_OF_A_CLASS, 25 * problem.d):
        folds = 2
    assigned = gammas.assign_folds(problem.pairs, folds, posterior.groups, gammas.content_order(problem.X))
    return assigned[: 1 if problem.n > gammas.MANY_ROWS else gammas.most_assignments(problem)]


def cross_fit(posterior: ScorePosterior, folds: int, assigned: NDArray[np.intp] | None = None) -> FloatArray:
    """Compute standardised scores of the training rows by posteriors without their fold.

    Returns
    -------
    ndarray, shape (assignments of rows to folds, rows)
        Cross-fitted scores.
    """
    if posterior.held is not None and assigned is None:
        return posterior.held
    found, choice = posterior.fit, posterior.choice
    assigned = calibration_folds(posterior, folds) if assigned is None else assigned
    if choice is not None and np.array_equal(choice.folds, assigned):  # gamma was chosen by these folds of all rows
        chosen = choice.candidates[choice.chosen].scores
        assert chosen is not None
        return chosen
    options: Any = {"gamma": found.problem.gamma, "refine": SWEEPS, "tolerance": gammas.FOLD_TOLERANCE}
    left_out = gammas.leave_out_folds(found.problem, assigned, found.plan, found)
    return np.array([leave_out(of_draws=False, **options).scores for leave_out in left_out])


# -- averages --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class AveragedPosterior(ScorePosterior):
    """Posterior of the mean of the parts' standardised scores; whatever else it has is that of the linear part.

    Attributes
    ----------
    parts : tuple of ScorePosterior
        The linear one first.
    names : tuple of str
        Their priors.
    weights : array of shape (parts,)
        Not negative; they sum to one.
    center, unit : array of shape (parts,)
        Mean and standard deviation of each part's scores of the training rows.
    """

    parts: tuple[ScorePosterior, ...]
    names: tuple[str, ...]
    weights: FloatArray
    center: FloatArray
    unit: FloatArray

    uncertified = (
        'The score of prior="auto" averages parts by weights that were chosen on the rows it would be certified with, '
        'and one part has a tuned prior. Certified is a score drawn from a posterior alone: fit with prior="gaussian" '
        'or "additive"; or certify any score on rows it has not seen, by pac.certify.holdout.'
    )

    def score(self, X: FloatArray) -> FloatArray:
        return self._averaged([part.score(X) for part in self.parts], self.center)

    @cached_property
    def training_scores(self) -> FloatArray:
        return self._averaged([part.training_scores for part in self.parts], self.center)

    def std(self, X: FloatArray) -> FloatArray:
        """Return an upper bound on the standard deviation, as if errors of the parts were perfectly correlated."""
        return self._averaged([part.std(X) for part in self.parts], np.zeros(len(self.parts)))

    def _averaged(self, scores: Sequence[FloatArray], center: FloatArray) -> FloatArray:
        return (np.column_stack(scores) - center) @ (self.weights / self.unit)

    def shapes(self) -> list[FloatArray]:
        return dict(zip(self.names, self.parts, strict=True)).get("additive", self.parts[0]).shapes()

    def score_function(self, features: Sequence[str]) -> ScoreFunction:
        refusal = 'The score of prior="auto" is not linear in X: use the estimator\'s decision_function(X).'
        return ScoreFunction((), refusal=refusal)

    def without_data(self) -> Self:
        return replace(super().without_data(), parts=tuple(part.without_data() for part in self.parts))


def _fit_average(recipe: Recipe, rows: Rows) -> AveragedPosterior:
    """Fit the parts and weight them by their scores of rows left out, where there are folds."""
    names = PARTS if np.ptp(rows.X, axis=0).any() and rows.X.shape[1] <= len(rows.X) else PARTS[:1]
    fitted: dict[str, ScorePosterior] = {}
    for name in names:
        recipe.tell(f'part "{name}"')
        ahead = [each.choice for each in fitted.values() if each.choice is not None]
        part = _fit_part(replace(recipe, prior=name), replace(rows, folds=ahead[0].folds) if ahead else rows, ahead)
        fitted |= {} if part is None else {name: part}
    parts = tuple(fitted.values())
    recipe.tell("weighting the parts by rows left out")
    scores = np.array([part.training_scores for part in parts])
    unit = scores.std(axis=1)
    unit = np.where(unit > 0.0, unit, 1.0)
    weights, held = np.full(len(parts), 1.0 / len(parts)), None
    if rows.folds != 0:
        assigned = calibration_folds(parts[0], rows.folds)
        held = np.array([cross_fit(part, rows.folds, assigned) for part in parts])  # (parts, assignments, rows)
        tuning = gammas.pairs_of_few(rows.pairs, TUNING_ROWS, np.argsort(scores[0], kind="stable"))
        weights = stacked_weights(held.mean(axis=1).T, tuning)
        held = stacked_scores(held, assigned, tuning) / (np.std((weights / unit) @ scores) or 1.0)
    linear = {field.name: getattr(parts[0], field.name) for field in fields(ScorePosterior)}
    linear.update(record=replace(parts[0].record, tuned_prior=True), held=held)
    return AveragedPosterior(
        **linear, parts=parts, names=tuple(fitted), weights=weights, center=scores.mean(axis=1), unit=unit
    )


def _is_behind(choice: gammas.GammaChoice, other: gammas.GammaChoice) -> bool:
    """Check whether folds rank ``BEHIND`` standard errors worse by this choice than by the other."""
    errors = gammas.paired_errors(np.array([each.candidates[each.chosen].auc for each in (choice, other)]))
    return bool(errors.loss[0] > BEHIND * errors.se[0])


def stacked_scores(held: FloatArray, assigned: NDArray[np.intp], pairs: Pairs) -> FloatArray:
    """Average held-out scores (parts, assignments, rows), each fold by weights computed without it.

    Returns
    -------
    ndarray, shape (assignments, rows)
        Averaged scores.
    """
    mean, found = held.mean(axis=1).T, np.empty(held.shape[1:])
    for scores, fold, row in zip(held.swapaxes(0, 1), assigned, found, strict=True):
        for k in np.unique(fold):
            row[fold == k] = stacked_weights(mean, pairs.among(fold != k)) @ scores[:, fold == k]
    return found


def stacked_weights(scores: FloatArray, pairs: Pairs) -> FloatArray:
    """Compute weights of columns of scores, the linear part's first, by which ``scores @ weights`` ranks the pairs.

    They are shrunk to 1 for the linear part and less for the others, as in the module docstring. The prior standard
    deviation of a weight, 0.5, doubled changes the AUC on unseen data by less than 0.001.

    Examples
    --------
    >>> from pymc_pacauc.comparison.pairs import bipartite
    >>> y = np.arange(60) % 2
    >>> scores = np.random.default_rng(1).normal(size=(60, 2)) + np.column_stack([2 * y, 0 * y])
    >>> weights = stacked_weights(scores, bipartite(y))
    >>> bool(weights[0] > 0.8), float(weights.sum().round(12))
    (True, 1.0)
    """
    parts = scores.shape[1]
    if parts > 1 and pairs.n_pairs > 0:
        size = row_shares(pairs).size
        mean = np.where(np.arange(parts) == 0, 1.0, size / (size + HALF_WEIGHT))
        gamma = gammas.CENTRE * size
        problem = problems.linear_gaussian_problem(scores, pairs, gamma, prior_mean=mean, prior_covariance=0.5**2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # then weights are those of the prior
            found = fit(problem.of_compared_rows(), accuracy="path", n_jobs=1)
        weights = np.maximum(found.posterior.mean, 0.0)
        weights = weights if found.converged and weights.any() else mean
        return weights / weights.sum()
    return np.full(parts, 1.0 / parts)
