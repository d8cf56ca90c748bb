"""What a run of tempering SMC should make its user doubt.

Every threshold here is a symptom seen to come with a wrong evidence: moves that do not decorrelate, moves hardly ever
accepted, a proposal fitted to too few particles, log-densities that cannot be computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pymc_pacauc.smc.moves import PARTICLES_PER_DIMENSION
from pymc_pacauc.smc.paths import Path

if TYPE_CHECKING:
    from pymc_pacauc.smc.tempering import Settings, State

__all__ = ["TemperingWarning", "diagnose"]

COLLAPSED_ACCEPTANCE = 0.02


class TemperingWarning(UserWarning):
    """A run of tempering SMC may be wrong; the message says why and what to do."""


def diagnose(path: Path, settings: Settings, state: State) -> tuple[str, ...]:
    """Messages about a finished run, most serious first; none when nothing looks wrong."""
    messages = []
    first, *stages = state.stages
    if first.failed:
        messages.append(
            f"The log-density was NaN or infinite at {first.failed} of the {settings.particles} starting particles; "
            "they were given weight zero, as if the prior excluded them."
        )
    failed = sum(stage.failed for stage in stages)
    if failed:
        messages.append(
            f"The log-density was NaN or infinite at {failed} proposed points, which were rejected. "
            "If the model does not exclude such points on purpose, look for overflow or invalid operations in it."
        )
    stuck = [stage for stage in stages if stage.correlation > settings.decorrelation]
    if stuck:
        worst = max(stage.correlation for stage in stuck)
        limit = "waste_free chains" if settings.waste_free else f"max_moves={settings.max_moves} moves"
        messages.append(
            f"In {len(stuck)} of {len(stages)} stages the {limit} left particles correlated with where they started "
            f"(up to {worst:.2f}, more than {settings.decorrelation:g}): the draws depend on each other and the log "
            f"evidence can be wrong by many nats. Start from a fit (start=), allow more moves, use more "
            "particles, or reparametrise (a hierarchical prior: non-centred)."
        )
    collapsed = [stage for stage in stages if stage.acceptance_rate < COLLAPSED_ACCEPTANCE]
    if collapsed:
        messages.append(
            f"In {len(collapsed)} of {len(stages)} stages fewer than {COLLAPSED_ACCEPTANCE:.0%} of the proposed moves "
            f"were accepted (move={state.move!r}): use more particles, another move, or start from a fit (start=)."
        )
    if state.move not in ("ep", "prior") and settings.particles < PARTICLES_PER_DIMENSION * path.dimension:
        enough = PARTICLES_PER_DIMENSION * path.dimension
        messages.append(
            f"{settings.particles} particles are too few to fit the {state.move!r} move in {path.dimension} "
            f"dimensions: the log evidence is biased. Use at least {enough}, or move='auto'."
        )
    return tuple(messages)
