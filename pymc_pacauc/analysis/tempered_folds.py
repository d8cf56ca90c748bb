"""Cross-validation along gamma by tempering SMC: one run per fold passes through all temperatures.

A fold changes only which pairs are compared. So any model will do, linear or not: its scores are computed for all
rows, the risk of the training pairs is tempered, and the held-out pairs judge the mean score at every gamma.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray

from pymc_pacauc.core.pairs import Pairs, bipartite
from pymc_pacauc.core.problem import Problem
from pymc_pacauc.core.risk import pair_risk
from pymc_pacauc.core.weights import effective_sample_size, log_mean_exp, normalise
from pymc_pacauc.model.extract import NotLinearGaussian, auc_term, extract
from pymc_pacauc.model.graph_path import PyMCPath
from pymc_pacauc.model.idata import attributes, draws_to_inference_data
from pymc_pacauc.smc import Settings, State, prior_path, run_tempering

__all__ = ["Tempered", "TemperedModel", "held_out_auc", "temper", "tempered_model"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TemperedModel:
    """An AUC term that can be given other pairs and another gamma: a ``problem`` of arrays, or a PyMC ``model``."""

    pairs: Pairs
    ties: str
    problem: Problem | None = None
    model: pm.Model | None = None

    def path(self, pairs: Pairs, gamma: float) -> Any:
        if self.problem is not None:
            return prior_path(replace(self.problem, pairs=pairs, gamma=gamma))
        assert self.model is not None
        return PyMCPath(self.model, pairs=pairs, gamma=gamma)

    def mean_scores(self, path: Any, theta: FloatArray, weights: FloatArray) -> FloatArray:
        if self.problem is None:
            return weights @ path.scores(theta)
        return self.problem.X @ (weights @ theta) + self.problem.offset


@dataclass(frozen=True, eq=False)
class Tempered:
    """Weighted particles at one gamma."""

    gamma: float
    theta: FloatArray
    risk: FloatArray
    weights: FloatArray
    log_evidence: float
    mean_scores: FloatArray

    @property
    def expected_risk(self) -> float:
        return float(self.weights @ self.risk)

    def draws(self, model: pm.Model, rng: np.random.Generator) -> Any:
        """Equally weighted draws, as ArviZ data."""
        index = rng.choice(len(self.theta), size=len(self.theta), p=self.weights)
        said = {"log_evidence": self.log_evidence, "expected_risk": self.expected_risk}
        stats = {"risk": self.risk[index][None]}
        attrs = attributes("TemperingSMC", self.gamma, **said)
        return draws_to_inference_data(model, self.theta[index][None], sample_stats=stats, attrs=attrs)


def tempered_model(model: pm.Model) -> TemperedModel:
    """The model on arrays where its scores are affine in Gaussian variables, else as a graph."""
    try:
        problem = extract(model).problem
    except NotLinearGaussian:
        term = auc_term(model)  # refuses a model without one
        if model.observed_RVs or len(model.potentials) > 1:
            raise
        return TemperedModel(bipartite(term.labels), term.ties, model=model)
    return TemperedModel(problem.pairs, problem.ties, problem=problem)


def temper(
    target: TemperedModel, pairs: Pairs, gammas: FloatArray, settings: Settings, rng: np.random.Generator
) -> list[Tempered]:
    """The posterior given ``pairs`` at every gamma, each reweighted from the nearest stage of one run."""
    path = target.path(pairs, float(gammas.max()))
    stages: list[tuple[float, float, FloatArray, FloatArray]] = []

    def keep(state: State) -> None:
        theta, risk = path.finish(state.population, rng)
        stages.append((state.stages[-1].gamma, state.log_evidence, theta, risk))

    run_tempering(path, settings, rng, keep)
    found = []
    for gamma in gammas:
        options = [(-(gamma - at) * risk, log_z, theta, risk) for at, log_z, theta, risk in stages]
        log_weights, log_z, theta, risk = max(options, key=lambda option: effective_sample_size(option[0]))
        weights = normalise(log_weights)
        scores = target.mean_scores(path, theta, weights)
        found.append(Tempered(float(gamma), theta, risk, weights, log_z + log_mean_exp(log_weights), scores))
    return found


def held_out_auc(target: TemperedModel, pairs: Pairs, tempered: list[Tempered]) -> FloatArray:
    """AUC of the mean score on ``pairs``, at every gamma."""
    scores = np.stack([at.mean_scores for at in tempered])
    return np.asarray(1.0 - pair_risk(scores, pairs, ties=target.ties))
