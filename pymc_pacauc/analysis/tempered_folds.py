"""Cross-validation along gamma by tempering SMC: one run per fold passes through all temperatures.

A fold changes only which observations are compared. So any model will do, linear or not, and any comparison: scores
are computed for all rows, the risk among the training rows is tempered, and the comparison among the held-out rows
judges the mean score and draws at every gamma.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike
from pytensor.graph.traversal import ancestors

from pymc_pacauc.comparison.kinds import Comparison
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
from pymc_pacauc.numerics import FloatArray, effective_sample_size, log_mean_exp, normalise
from pymc_pacauc.problem.problem import Problem
from pymc_pacauc.problem.provenance import Provenance
from pymc_pacauc.smc import Settings, Stage, State, prior_path, run_tempering
from pymc_pacauc.smc.log_evidence import stage_variance
from pymc_pacauc.tune.gamma import Candidate, GammaChoice, assign_folds, choose_among, content_order, gamma_grid


@dataclass(frozen=True, eq=False)
class TemperedModel:
    """AUC terms that can be given other pairs and another gamma: a ``problem`` of arrays, or a PyMC ``model``.

    Where there are several terms, ``comparison`` is one of the scores of all of them, one after the other, and gamma
    the sum of theirs.
    """

    comparison: Comparison
    fitted_to: Provenance
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

    def draws(self, model: pm.Model, fitted: Provenance, rng: np.random.Generator) -> Any:
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
    if problem is not None and problem.sites is None:
        return TemperedModel(problem.pairs, record, problem=problem)
    comparison = terms[0].comparison if len(terms) == 1 else joined_pairs(terms)[0]
    return TemperedModel(comparison, record, model=model)


def temper(
    target: TemperedModel, comparison: Comparison, gamma: float, settings: Settings, rng: np.random.Generator
) -> Callable[[float], Tempered]:
    """The posterior given ``comparison`` at every gamma up to this one, each reweighted from the nearest stage."""
    path = target.path(comparison, gamma)
    stages: list[tuple[Stage, FloatArray, FloatArray]] = []

    def keep(state: State) -> None:
        theta, risk = path.finish(state.population, rng)
        stages.append((state.stages[-1], theta, risk))

    def at(gamma: float) -> Tempered:
        options = [(-(gamma - stage.gamma) * risk, stage, theta, risk) for stage, theta, risk in stages]
        log_weights, stage, theta, risk = max(options, key=lambda option: effective_sample_size(option[0]))
        weights = normalise(log_weights)
        log_z = stage.log_evidence + log_mean_exp(log_weights)
        variance = stage.log_evidence_variance + stage_variance(weights, np.arange(weights.size))
        return Tempered(gamma, theta, risk, weights, log_z, variance, partial(target.scores, path))

    run_tempering(path, settings, rng, keep)
    return at


def choose_tempered(
    target: TemperedModel,
    gammas: ArrayLike | None = None,
    folds: int = 5,
    *,
    groups: ArrayLike | None = None,
    particles: int = 1000,
    rng: np.random.Generator,
    progressbar: bool = False,
) -> tuple[GammaChoice, Callable[[float], Tempered]]:
    """:func:`~pymc_pacauc.tune.gamma.choose_gamma` by SMC, and the posterior given all rows at any of its gammas.

    Each fold, and all rows, have a run of their own, so rows are assigned to folds once.
    """
    settings = Settings(particles=particles)
    compared = target.comparison
    largest = float(gamma_grid(row_shares(compared), gammas)[-1])
    order = None if target.problem is None else content_order(target.problem.X)
    fold = assign_folds(compared, folds, groups, order)[0]
    runs = [
        (temper(target, compared.among(fold != k), largest, settings, rng), compared.among(fold == k))
        for k in track(range(folds), "SMC runs", folds, progressbar)
    ]

    def evaluate(gamma: float) -> Candidate:
        aucs = np.array([at(gamma).held_out_auc(out) for at, out in runs])  # (folds, 2)
        return Candidate(gamma, aucs[None, :, 0], aucs[None, :, 1], 0.0)

    candidates, chosen = choose_among(evaluate, gammas, compared)
    choice = GammaChoice(tuple(candidates), chosen, fold[None], target.fitted_to.measure)
    return choice, temper(target, compared, largest, settings, rng)
