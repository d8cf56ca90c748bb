"""Cross-validation along gamma by tempering SMC: one run per fold passes through all temperatures.

A fold changes only which pairs are compared. So any model will do, linear or not: its scores are computed for all
rows, the risk of the training pairs is tempered, and the held-out pairs judge the mean score and draws at every gamma.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray

from pymc_pacauc.core.fitted_to import FittedTo
from pymc_pacauc.core.pairs import Pairs
from pymc_pacauc.core.problem import Problem
from pymc_pacauc.core.risk import pair_risk
from pymc_pacauc.core.weights import effective_sample_size, log_mean_exp, normalise
from pymc_pacauc.model.auc_term import auc_term
from pymc_pacauc.model.extract import NotLinearGaussianError, problem_of
from pymc_pacauc.model.fitted_to import fitted_to
from pymc_pacauc.model.graph_path import PyMCPath
from pymc_pacauc.model.idata import draws_to_inference_data
from pymc_pacauc.smc import Settings, Stage, State, prior_path, run_tempering
from pymc_pacauc.smc.evidence import stage_variance

__all__ = ["Tempered", "TemperedModel", "temper", "tempered_model"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TemperedModel:
    """An AUC term that can be given other pairs and another gamma: a ``problem`` of arrays, or a PyMC ``model``."""

    pairs: Pairs
    ties: str
    fitted_to: FittedTo
    problem: Problem | None = None
    model: pm.Model | None = None

    def path(self, pairs: Pairs, gamma: float) -> Any:
        if self.problem is not None:
            return prior_path(replace(self.problem, pairs=pairs, gamma=gamma))
        assert self.model is not None
        return PyMCPath(self.model, pairs=pairs, gamma=gamma)

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

    def held_out_auc(self, pairs: Pairs) -> tuple[float, float]:
        """AUC on ``pairs`` of the mean score, and of a draw averaged over draws.

        A tie counts one half, whatever the model says.
        """
        scores = self.scores(self.theta)
        mean = 1.0 - float(pair_risk((self.weights @ scores)[None], pairs)[0])
        return mean, 1.0 - float(self.weights @ pair_risk(scores, pairs))

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
        )


def tempered_model(model: pm.Model) -> TemperedModel:
    """The model on arrays where its scores are affine in Gaussian variables, else as a graph."""
    try:
        problem = problem_of(model).problem
    except NotLinearGaussianError:
        if model.observed_RVs or len(model.potentials) > 1:
            raise
        problem = None
    term = auc_term(model)  # refuses a model without one
    record = fitted_to(model, "TemperingSMC", problem)
    if problem is not None and problem.spikes is None:
        return TemperedModel(problem.pairs, term.ties, record, problem=problem)
    return TemperedModel(term.pairs, term.ties, record, model=model)


def temper(
    target: TemperedModel, pairs: Pairs, gammas: FloatArray, settings: Settings, rng: np.random.Generator
) -> list[Tempered]:
    """The posterior given ``pairs`` at every gamma, each reweighted from the nearest stage of one run."""
    path = target.path(pairs, float(gammas.max()))
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
