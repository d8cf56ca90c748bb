"""Draws of the exact posterior on arrays, by tempering SMC from a fit on: a result like any other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.core.fitted_to import FittedTo, fitted_to_problem
from pymc_pacauc.core.problem import Problem
from pymc_pacauc.fitting import Fit
from pymc_pacauc.results import Estimate
from pymc_pacauc.smc import LogEvidence, Settings, Stage, bridge_path, combine, prior_path, run_tempering

__all__ = ["Tempered", "temper"]

FloatArray = NDArray[np.float64]


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
    def fitted_to(self) -> FittedTo:
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
