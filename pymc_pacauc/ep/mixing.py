"""Anderson mixing: the step that would have annulled the residual to first order, judging by the last few steps."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

__all__ = ["AndersonMixing"]

FloatArray = NDArray[np.float64]


@dataclass
class AndersonMixing:
    """The last points that plain steps led to, and those steps, as ``memory`` differences of each."""

    memory: int
    last: tuple[FloatArray, FloatArray] | None = None
    moves: list[FloatArray] = field(default_factory=list)
    changes: list[FloatArray] = field(default_factory=list)

    def step(self, point: FloatArray, plain: FloatArray, weighted: FloatArray) -> FloatArray:
        """The accelerated step from ``point``, given the plain one, also in the metric of the least squares."""
        reached, before = point + plain, self.last
        self.last = reached, weighted
        if before is None:
            return plain
        for values, old, value in ((self.moves, before[0], reached), (self.changes, before[1], weighted)):
            values.append(value - old)
            del values[: -self.memory]
        mix = linalg.lstsq(np.array(self.changes).T, weighted, cond=1e-8, overwrite_a=True, check_finite=False)[0]
        step = plain.copy()
        for share, move in zip(mix, self.moves, strict=True):
            step -= share * move
        return step
