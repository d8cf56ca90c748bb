"""Cross-validation along gamma by tempering SMC: one run per fold passes through all temperatures.

A fold changes only which observations are compared. So any model will do, linear or not, and any comparison: scores
are computed for all rows, the risk among the training rows is tempered, and the comparison among the held-out rows
judges the mean score and draws at every gamma.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike, NDArray
from pytensor.graph.traversal import ancestors

from pymc_pacauc.comparison.kinds import Comparison, effective_sample_size, log_mean_exp, normalise
from pymc_pacauc.comparison.pairs import Pairs
from pymc_pacauc.comparison.risk import comparison_risk
from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.model.auc_term import NotLinearGaussianError, names_of
from pymc_pacauc.model.compat import track
from pymc_pacauc.model.graph_path import PyMCPath
from pymc_pacauc.model.idata import draws_to_inference_data
from pymc_pacauc.model.read import joined_pairs, linear_terms, problem_of
from pymc_pacauc.model.results import fitted_to
from pymc_pacauc.model.score_function import read_scores
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.problem import Problem
from pymc_pacauc.problem.provenance import FittedTo
from pymc_pacauc.smc import Settings, Stage, State, prior_path, run_tempering
from pymc_pacauc.smc.evidence import stage_variance
from pymc_pacauc.tune.gamma import Candidate, GammaChoice, choose, deal_folds, gamma_grid, search_gammas

REPEATS = 1  # a fold is a run of its own


@dataclass(frozen=True, eq=False)
class TemperedModel:
    """AUC terms that can be given other pairs and another gamma: a ``problem`` of arrays, or a PyMC ``model``.

    Where there are several terms, ``comparison`` is one of the scores of all of them, one after the other, and gamma
    the sum of theirs.
    """

    comparison: Comparison
    fitted_to: FittedTo
    problem: Problem | None = None
    model: pm.Model | None = None

    def path(self, comparison: Comparison, gamma: float) -> Any:
        if self.problem is not None:
            assert isinstance(comparison, Pairs)
            return prior_path(replace(self.problem, pairs=comparison, gamma=gamma))
        assert self.model is not None
        return PyMCPath(self.model, compared=comparison, gamma=gamma)

    def scores(self, path: Any, theta: FloatArray) -> FloatArray:
        """Scores of all rows at ``theta[N, d]``, shape (N, n)."""
        if self.problem is None:
            return np.asarray(path.scores(theta))
        return theta @ self.problem.X.T + self.problem.offset


@dataclass(frozen=True, eq=False)
class Tempered:
    """Weighted particles at one gamma."""

    gamma: float
    theta: FloatArray
    risk: FloatArray
    weights: FloatArray
    log_evidence: float
    log_evidence_variance: float
    scores: Callable[[FloatArray], FloatArray]

    @property
    def expected_risk(self) -> float:
        return float(self.weights @ self.risk)

    def held_out_auc(self, comparison: Comparison) -> tuple[float, float]:
        """AUC by ``comparison`` of the mean score, and of a draw averaged over draws.

        A tie counts one half, whatever the model says.
        """
        scores = self.scores(self.theta)
        mean = 1.0 - float(comparison_risk((self.weights @ scores)[None], comparison)[0])
        return mean, 1.0 - float(self.weights @ comparison_risk(scores, comparison))

    def draws(self, model: pm.Model, fitted: FittedTo, rng: np.random.Generator) -> Any:
        """Equally weighted draws, as ArviZ data that knows what it was fitted to."""
        index = rng.choice(len(self.theta), size=len(self.theta), p=self.weights)
        excess = self.weights * (self.risk - self.expected_risk)
        constants = {
            **replace(fitted, gamma=self.gamma).as_stats(),
            "run": int(rng.integers(2**52)),
            "gamma": self.gamma,
            "log_evidence": self.log_evidence,
            "log_evidence_variance": self.log_evidence_variance,
            "expected_risk": self.expected_risk,
            "expected_risk_variance": float(excess @ excess),
        }
        return draws_to_inference_data(
            model,
            self.theta[index][None],
            sample_stats={"risk": self.risk[index][None]},
            constants=constants,
            method="TemperingSMC",
            score_function=read_scores(model).function,
        )


def tempered_model(model: pm.Model) -> TemperedModel:
    """The model on arrays where its scores are affine in Gaussian variables, else as a graph."""
    terms = linear_terms(model)  # refuses a model without one
    risks = {term.risk for term in terms}
    others = [*model.observed_RVs, *(v for v in model.potentials if not risks & set(ancestors([v])))]
    if others:
        raise ValueError(
            f"Choosing gamma by held-out rows is for models with nothing but AUC terms besides the prior; this one has "
            f"{names_of(others)}, of which a fold would have to leave rows out too."
        )
    try:
        problem = problem_of(model).problem
    except NotLinearGaussianError:
        problem = None
    record = fitted_to(model, "TemperingSMC", problem)
    if problem is not None and problem.spikes is None:
        return TemperedModel(problem.pairs, record, problem=problem)
    comparison = terms[0].comparison if len(terms) == 1 else joined_pairs(terms)[0]
    return TemperedModel(comparison, record, model=model)


def temper(
    target: TemperedModel, comparison: Comparison, gammas: FloatArray, settings: Settings, rng: np.random.Generator
) -> list[Tempered]:
    """The posterior given ``comparison`` at every gamma, each reweighted from the nearest stage of one run."""
    path = target.path(comparison, float(gammas.max()))
    stages: list[tuple[Stage, FloatArray, FloatArray]] = []

    def keep(state: State) -> None:
        theta, risk = path.finish(state.population, rng)
        stages.append((state.stages[-1], theta, risk))

    run_tempering(path, settings, rng, keep)
    found = []
    for gamma in gammas:
        options = [(-(gamma - stage.gamma) * risk, stage, theta, risk) for stage, theta, risk in stages]
        log_weights, stage, theta, risk = max(options, key=lambda option: effective_sample_size(option[0]))
        weights = normalise(log_weights)
        log_z = stage.log_evidence + log_mean_exp(log_weights)
        variance = stage.log_evidence_variance + stage_variance(weights, np.arange(weights.size))
        scores = partial(target.scores, path)
        found.append(Tempered(float(gamma), theta, risk, weights, log_z, variance, scores))
    return found


def choose_tempered(
    target: TemperedModel,
    gammas: ArrayLike | None,
    folds: int,
    repeats: int | None,
    criterion: str,
    rule: str,
    groups: ArrayLike | None,
    particles: int,
    n_jobs: int,
    rng: np.random.Generator,
    progressbar: bool,
) -> GammaChoice:
    """:func:`~pymc_pacauc.tune.gamma.choose_gamma` by SMC: a run for each fold of each deal, and one for all rows."""
    if target.problem is None and n_jobs != 1:
        raise ValueError("Processes need scores that are affine in Gaussian variables; other models stay in one.")
    settings = Settings(particles=particles)
    dealt = deal_folds(target.comparison, folds, REPEATS if repeats is None else repeats, rng, groups)
    shape = (len(dealt), int(dealt.max()) + 1)

    def evaluate(values: Sequence[float]) -> list[Candidate]:
        grid = np.asarray(values, dtype=np.float64)

        def one_fold(task: tuple[NDArray[np.intp], int, np.random.Generator]) -> FloatArray:
            fold, k, child = task
            training, held_out = target.comparison.among(fold != k), target.comparison.among(fold == k)
            return np.array([at.held_out_auc(held_out) for at in temper(target, training, grid, settings, child)])

        children = rng.spawn(shape[0] * shape[1])
        tasks = [(dealt[r], k, child) for (r, k), child in zip(np.ndindex(shape), children, strict=True)]
        aucs = np.array(_map(one_fold, tasks, n_jobs, "SMC runs", progressbar))  # (deals x folds, gammas, 2)
        aucs = aucs.reshape(*shape, grid.size, 2)
        whole = temper(target, target.comparison, grid, settings, rng)
        return [Candidate(at.gamma, at, aucs[:, :, i, 0], aucs[:, :, i, 1], 0.0) for i, at in enumerate(whole)]

    shares = row_shares(target.comparison)
    if gammas is None:
        candidates = search_gammas(evaluate, criterion, rule, shares)
    else:
        candidates = evaluate(gamma_grid(gammas).tolist())
    chosen = choose(candidates, criterion, rule, shares)
    return GammaChoice(tuple(candidates), chosen, candidates[chosen].posterior, dealt)


def _map(function: Any, items: Sequence[Any], n_jobs: int, description: str, show: bool) -> list[Any]:
    if n_jobs == 1:
        return [function(item) for item in track(items, description, len(items), show)]
    try:
        from joblib import Parallel, delayed
    except ImportError:
        raise ImportError("n_jobs other than 1 needs joblib: pip install joblib.") from None
    results = Parallel(n_jobs=n_jobs, return_as="generator")(delayed(function)(item) for item in items)
    return list(track(results, description, len(items), show))
