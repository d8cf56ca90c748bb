"""A model's free variables as one flat vector, and its graphs over many such vectors at once.

The engines see theta[N, D]: one row per point, the model's value variables (in their unconstrained space) one after the
other, in the model's order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.pytensorf import compile as compile_function
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.type import TensorType

from pymc_pacauc.model.interpret import MODE, Unreadable, evaluate

__all__ = ["FlatVariables", "flat_variables", "shape_now"]

FloatArray = NDArray[np.float64]


NUMBERS_AT_ONCE = 2**24


@dataclass(frozen=True, eq=False)
class FlatVariables:
    """Layout of a model's value variables in a flat vector of length ``dimension``."""

    values: tuple[Variable, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(value.name for value in self.values)

    @property
    def slices(self) -> list[slice]:
        stops = np.cumsum([int(np.prod(shape)) for shape in self.shapes])
        return [slice(int(a), int(b)) for a, b in zip([0, *stops[:-1]], stops, strict=True)]

    @property
    def dimension(self) -> int:
        return self.slices[-1].stop

    def part(self, chosen: Sequence[int]) -> FlatVariables:
        """The layout of some of the variables."""
        return FlatVariables(tuple(self.values[i] for i in chosen), tuple(self.shapes[i] for i in chosen))

    def places(self, chosen: Sequence[int]) -> NDArray[np.intp]:
        """Where some of the variables are in the flat vector."""
        everything, slices = np.arange(self.dimension), self.slices
        return np.concatenate([everything[:0], *(everything[slices[i]] for i in chosen)])

    def vectorize(self, outputs: Sequence[Variable]) -> tuple[Variable, list[Variable]]:
        """The matrix ``theta`` and the outputs, functions of the value variables, batched over its rows."""
        theta = pt.matrix("theta", shape=(None, self.dimension), dtype="float64")
        rows = theta.shape[0]
        replace = {
            value: theta[:, part].reshape((rows, *shape)).astype(value.dtype)
            for value, shape, part in zip(self.values, self.shapes, self.slices, strict=True)
        }
        batched = vectorize_graph(list(outputs), replace)
        for i, (old, new) in enumerate(zip(outputs, batched, strict=True)):
            if new.type.ndim == old.type.ndim:  # does not depend on any free variable
                batched[i] = pt.broadcast_to(new, (rows, *(new.shape[axis] for axis in range(new.type.ndim))))
        return theta, batched

    def function(self, outputs: Sequence[Variable], mode: Any = MODE) -> Callable[[FloatArray], list[NDArray[Any]]]:
        """f(theta[N, D]) -> the batched outputs, evaluated in pieces that fit in memory."""
        theta, batched = self.vectorize(outputs)
        compiled = compile_function([theta], batched, mode=mode, on_unused_input="ignore")

        def evaluate(points: FloatArray) -> list[NDArray[Any]]:
            pieces = [compiled(points[:1])]
            step = max(1, NUMBERS_AT_ONCE // max(self.dimension, *(value.size for value in pieces[0])))
            pieces += [compiled(points[i : i + step]) for i in range(1, len(points), step)]
            return [np.concatenate(values) for values in zip(*pieces, strict=True)]

        return evaluate


def flat_variables(model: pm.Model) -> FlatVariables:
    """Layout of the model's value variables, with the shapes they have now."""
    if not model.value_vars:
        raise ValueError("The model has no free variables.")
    known = [_value_shape(model, value) for value in model.value_vars]
    shapes = [shape for shape in known if shape is not None]
    if len(shapes) < len(known):
        start = model.initial_point()
        shapes = [start[value.name].shape for value in model.value_vars]
    return FlatVariables(tuple(model.value_vars), tuple(shapes))


def shape_now(variable: Variable) -> tuple[int, ...]:
    """The shape of a variable of a model, with the data it holds now."""
    shape = _known_shape(variable)
    return tuple(int(size) for size in variable.shape.eval()) if shape is None else shape


def _value_shape(model: pm.Model, value: Variable) -> tuple[int, ...] | None:
    if None not in value.type.shape:
        return tuple(value.type.shape)
    rv = model.values_to_rvs[value]
    return _known_shape(rv) if model.rvs_to_transforms[rv] is None else None


def _known_shape(variable: Variable) -> tuple[int, ...] | None:
    """What the type says, or the size that a vector of independent variables is given; None if it takes more."""
    if None not in variable.type.shape:
        return tuple(variable.type.shape)
    op = getattr(variable.owner, "op", None)
    if not isinstance(op, RandomVariable) or op.ndim_supp:
        return None
    size = op.size_param(variable.owner)
    if not isinstance(size.type, TensorType):
        return None
    try:
        return tuple(int(length) for length in evaluate([size])[0])
    except Unreadable:
        return None
