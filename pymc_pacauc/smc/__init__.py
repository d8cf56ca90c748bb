"""Tempering SMC on arrays; see :mod:`pymc_pacauc.smc.tempering` for the algorithm."""

from typing import cast

from pymc_pacauc.ep.plan import choose_coordinates
from pymc_pacauc.problem.problem import Problem
from pymc_pacauc.smc.direction import DirectionPath
from pymc_pacauc.smc.log_evidence import LogEvidence, combine
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
    """Build the path of distributions from the prior to the posterior of a problem.

    On the sphere of directions where the length of theta does not matter, else on all coefficients.

    Parameters
    ----------
    problem : Problem
        Linear scores with a Gaussian prior.

    Returns
    -------
    Path
        What :func:`run_tempering` moves particles along: ``prior * exp(-temperature * gamma * risk)``.

    See Also
    --------
    run_tempering : Sample along the path.
    bridge_path : Start from a Gaussian fit instead of the prior.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_pacauc import arrays
    >>> problem = arrays.linear_gaussian_problem([[0.0], [1.0], [2.0]], [0, 1, 1], gamma=2.0)
    >>> arrays.prior_path(problem).draw(5, np.random.default_rng(1)).shape
    (5, 1)
    """
    problem = problem.in_coordinates(choose_coordinates(problem))
    if problem.scores.coordinates == "features":
        return cast("Path", FeaturePath(problem, prior_path(feature_problem(problem))))
    return DirectionPath(problem) if problem.scale_free else WhitenedPath(problem)
