"""Tempering SMC on arrays; see :mod:`pymc_pacauc.smc.tempering` for the algorithm."""

from typing import cast

from pymc_pacauc.ep.plan import choose_coordinates
from pymc_pacauc.problem.problem import Problem
from pymc_pacauc.smc.direction import DirectionPath
from pymc_pacauc.smc.evidence import LogEvidence, combine
from pymc_pacauc.smc.paths import FeaturePath, ModelPath, Path, WhitenedPath, bridge_path, feature_problem
from pymc_pacauc.smc.tempering import Settings, Stage, State, advance, move_on, run_tempering, start

__all__ = [
    "DirectionPath",
    "FeaturePath",
    "LogEvidence",
    "ModelPath",
    "Path",
    "Settings",
    "Stage",
    "State",
    "WhitenedPath",
    "advance",
    "bridge_path",
    "combine",
    "move_on",
    "prior_path",
    "run_tempering",
    "start",
]


def prior_path(problem: Problem) -> Path:
    """From the prior to the posterior of a linear-Gaussian problem, on the sphere where the radius does not matter."""
    problem = problem.in_coordinates(choose_coordinates(problem))
    if problem.scores.coordinates == "features":
        return cast("Path", FeaturePath(problem, prior_path(feature_problem(problem))))
    return DirectionPath(problem) if problem.scale_free else WhitenedPath(problem)
