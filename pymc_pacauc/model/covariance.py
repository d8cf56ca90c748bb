"""A covariance function of PyMC as a function of NumPy arrays, compiled once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.pytensorf import compile as compile_function

from pymc_pacauc.model.flat import MODE

__all__ = ["CompiledCovariance"]

FloatArray = NDArray[np.float64]


class CompiledCovariance:
    """``kernel(X, others)`` and ``kernel.diag(X)`` of a ``pm.gp.cov`` function.

    The parameters of the kernel are read when it is called, and must not be random.
    """

    def __init__(self, covariance: Any):
        X, others = pt.matrix("X"), pt.matrix("others")
        self.input_dim = int(covariance.input_dim)
        self._cross = compile_function([X, others], covariance(X, others), mode=MODE)
        self._diagonal = compile_function([X], covariance(X, diag=True), mode=MODE)

    def __call__(self, X: FloatArray, others: FloatArray) -> FloatArray:
        return np.asarray(self._cross(X, others), dtype=np.float64)

    def diag(self, X: FloatArray) -> FloatArray:
        values = np.asarray(self._diagonal(X), dtype=np.float64)
        return np.broadcast_to(values, (len(X),)).copy()
