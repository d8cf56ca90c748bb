"""Tempering SMC on arrays; see :mod:`pymc_pacauc.smc.tempering` for the algorithm."""

from pymc_pacauc.smc.log_evidence import LogEvidence, combine
from pymc_pacauc.smc.paths import DirectionPath, LinearPath, ModelPath, Path, bridge_path, prior_path
from pymc_pacauc.smc.tempering import Settings, Stage, State, advance, move_on, run_tempering, start

__all__ = [
    "DirectionPath",
    "LinearPath",
    "LogEvidence",
    "ModelPath",
    "Path",
    "Settings",
    "Stage",
    "State",
    "advance",
    "bridge_path",
    "combine",
    "move_on",
    "prior_path",
    "run_tempering",
    "start",
]
