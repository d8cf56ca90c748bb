"""Maps known by their values alone: the affine map through a few of them, and whether others are on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.model.flat import FlatVariables

__all__ = ["Evaluate", "affine_map", "first_departure"]

FloatArray = NDArray[np.float64]
Evaluate = Callable[[FloatArray], list[FloatArray]]

PROBES = (0.1, 1.0, 7.0)


def affine_map(evaluate: Evaluate, d: int) -> tuple[FloatArray, FloatArray]:
    """The value at zero, and its change towards each unit vector, a row each."""
    values = evaluate(np.eye(d + 1, d, k=-1))[0]
    return values[0], values[1:] - values[0]


def first_departure(
    names: Sequence[str], layout: FlatVariables, departs: Callable[[FloatArray], bool], suspects: Sequence[str] = ()
) -> str | None:
    """Probe all variables together; if the form fails, find the first variable, or the combination, it fails in:
    ``suspects`` before others, which may fail for their sake.
    """
    probes = np.random.default_rng(0).standard_normal((len(PROBES), layout.dimension)) * np.array(PROBES)[:, None]
    if not departs(probes):
        return None
    for name, part in sorted(zip(names, layout.slices, strict=True), key=lambda each: each[0] not in suspects):
        alone = np.zeros_like(probes)
        alone[:, part] = probes[:, part]
        if departs(alone):
            return name
    return "the combination of " + ", ".join(names)
