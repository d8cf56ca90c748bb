"""A model's free variables as one flat vector, and its graphs over many such vectors at once.

The engines see theta[N, D]: one row per point, the model's value variables (in their unconstrained space) one after the
other, in the model's order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.pytensorf import compile as compile_function
from pytensor.compile.mode import get_mode
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.basic import in2out, node_rewriter
from pytensor.scalar.basic import Add, Clip, Mul
from pytensor.tensor.elemwise import Elemwise

__all__ = ["FlatVariables", "flat_variables"]

FloatArray = NDArray[np.float64]


@node_rewriter([Elemwise])
def numpy_equivalents(fgraph: Any, node: Any) -> Any:
    """Sums and products of many arrays two by two, and clip: NumPy has no such ufuncs, Python loops would run."""
    op = node.op.scalar_op
    if isinstance(op, Add | Mul) and len(node.inputs) > 2:
        return [reduce(node.op, node.inputs)]
    if isinstance(op, Clip):
        value, lower, upper = node.inputs
        return [pt.minimum(pt.maximum(value, lower), upper).astype(node.outputs[0].dtype)]
    return None


# A handful of calls: compilation would cost more than it saves. Constants are folded between the two passes; the
# canonizers would merge sums and products before.
MODE = (
    get_mode("FAST_COMPILE")
    .excluding("local_mul_canonizer", "local_add_canonizer")
    .register((in2out(numpy_equivalents, name="numpy_equivalents_first"), 0.01))
    .register((in2out(numpy_equivalents, name="numpy_equivalents_last"), 100))
)
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
    start = model.initial_point()
    if not model.value_vars:
        raise ValueError("The model has no free variables.")
    return FlatVariables(tuple(model.value_vars), tuple(start[value.name].shape for value in model.value_vars))
