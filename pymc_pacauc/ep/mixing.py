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
    """History of points and of the plain steps from them; ``memory`` differences are used."""

    memory: int
    points: list[FloatArray] = field(default_factory=list)
    steps: list[FloatArray] = field(default_factory=list)
    weighted: list[FloatArray] = field(default_factory=list)

    def step(self, point: FloatArray, plain: FloatArray, weighted: FloatArray) -> FloatArray:
        """The accelerated step from ``point``, given the plain one, also in the metric of the least squares."""
        for values, value in ((self.points, point), (self.steps, plain), (self.weighted, weighted)):
            values.append(value)
            del values[: -self.memory - 1]
        if len(self.points) == 1:
            return plain
        differences = np.diff(self.weighted, axis=0).T
        mix = linalg.lstsq(differences, weighted, cond=1e-8, check_finite=False)[0]
        return np.asarray(plain - mix @ (np.diff(self.points, axis=0) + np.diff(self.steps, axis=0)))
