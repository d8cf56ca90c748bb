"""What a run of tempering SMC should make its user doubt.

Every threshold here is a symptom seen to come with wrong results: moves that do not decorrelate, moves hardly ever
accepted, a proposal fitted to too few particles, log-densities that cannot be computed. A message says what follows
from it and no more: moves of the last stage serve the draws, the log evidence is complete before them. And it advises
only what the caller has not done. Use: ``diagnose(path, settings, state)`` after the last stage, as ``run_tempering``
does.

To add a symptom, write a function ``(path, settings, state) -> str | None``, enter it in :data:`SYMPTOMS`, and test it
both ways: silent on a run that is right, loud on one that is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pymc_pacauc.smc.gaussian_fit import PARTICLES_PER_DIMENSION
from pymc_pacauc.smc.paths import Path

if TYPE_CHECKING:
    from pymc_pacauc.smc.tempering import Settings, State

__all__ = ["TemperingWarning", "diagnose"]

COLLAPSED_ACCEPTANCE = 0.02
NOISE = 3.0  # standard errors by which a correlation of independent particles may exceed the one asked for


class TemperingWarning(UserWarning):
    """A run of tempering SMC may be wrong; the message says why and what to do."""


def diagnose(path: Path, settings: Settings, state: State) -> tuple[str, ...]:
    """Messages about a finished run, most serious first; none when nothing looks wrong."""
    found = (symptom(path, settings, state) for symptom in SYMPTOMS)
    return tuple(message for message in found if message is not None)


def failed_start(path: Path, settings: Settings, state: State) -> str | None:
    failed = state.stages[0].failed
    if not failed:
        return None
    return (
        f"The log-density was NaN or infinite at {failed} of the {settings.particles} starting particles; "
        "they were given weight zero, as if the prior excluded them."
    )


def failed_moves(path: Path, settings: Settings, state: State) -> str | None:
    failed = sum(stage.failed for stage in state.stages[1:])
    if not failed:
        return None
    return (
        f"The log-density was NaN or infinite at {failed} proposed points, which were rejected. "
        "If the model does not exclude such points on purpose, look for overflow or invalid operations in it."
    )


def remembering_moves(path: Path, settings: Settings, state: State) -> str | None:
    """Particles that still resemble where a stage found them, by more than chance.

    The correlation of C independent pairs has a standard error of about C^(-1/2).
    """
    stages = state.stages[1:]
    chains = settings.particles // (settings.waste_free or 1)
    tolerated = settings.decorrelation + NOISE / float(np.sqrt(chains))
    stuck = [stage for stage in stages if stage.correlation > tolerated]
    if not stuck:
        return None
    worst = max(stage.correlation for stage in stuck)
    limit = f"chains of waste_free={settings.waste_free}" if settings.waste_free else f"max_moves={settings.max_moves}"
    consequences = []
    if stuck[0] is not stages[-1]:
        consequences.append("the log evidence can be wrong by many times its standard error")
    if stuck[-1] is stages[-1]:
        consequences.append("the draws depend on each other")
    longer = "longer chains (waste_free=)" if settings.waste_free else "more moves (max_moves=)"
    return (
        f"In {len(stuck)} of {len(stages)} stages the moves ({limit}) left particles correlated with where they "
        f"started (up to {worst:.2f}; independent ones stay below {tolerated:.2f}): {' and '.join(consequences)}. "
        f"Allow {longer}, use more particles{_start_advice(path)}, or reparametrise (a hierarchical prior: "
        "non-centred)."
    )


def rejected_moves(path: Path, settings: Settings, state: State) -> str | None:
    stages = state.stages[1:]
    collapsed = [stage for stage in stages if stage.acceptance_rate < COLLAPSED_ACCEPTANCE]
    if not collapsed:
        return None
    return (
        f"In {len(collapsed)} of {len(stages)} stages fewer than {COLLAPSED_ACCEPTANCE:.0%} of the proposed moves "
        f"were accepted (move={state.move!r}): use more particles or another move{_start_advice(path)}."
    )


def few_particles(path: Path, settings: Settings, state: State) -> str | None:
    enough = PARTICLES_PER_DIMENSION * path.dimension
    if state.move in ("ep", "prior") or settings.particles >= enough:
        return None
    return (
        f"{settings.particles} particles are too few to fit the {state.move!r} move in {path.dimension} "
        f"dimensions: the log evidence is biased. Use at least {enough}, or move='auto'."
    )


def _start_advice(path: Path) -> str:
    return ", start from a fit (start=)" if path.from_prior else ""


SYMPTOMS = (failed_start, failed_moves, remembering_moves, rejected_moves, few_particles)
