"""An affine graph read off: its value at zero and its slopes, node by node, without compiling or probing.

Each value on the way is a constant, or :class:`Affine` in some of the inputs. The rules below are exact, and cover what
linear scores are written with: products with matrices and numbers, sums, indexing, reshaping, stacking. Any other node
that an input reaches makes the graph :class:`~pymc_pacauc.model.interpret.Unreadable`, which says nothing about it: it
may be affine all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort
from pytensor.scalar import basic as scalar
from pytensor.tensor.basic import Join, MakeVector
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_pacauc.model.interpret import Unreadable, leaf_value, perform

__all__ = ["Affine", "read_affine"]

FloatArray = NDArray[np.float64]

# Linear in their first input, the others being indices and shapes
STRUCTURAL = (Subtensor, AdvancedSubtensor, Reshape, SpecifyShape, Sum)
JOINING = (Join, MakeVector)


@dataclass(frozen=True, eq=False)
class Affine:
    """``offset + sum_i u_i . slopes[i]`` with u_i the flattened i-th input: slopes ``[size of u_i, *shape]``.

    ``unit`` says that the value is an input itself, but for its shape: slopes are then the identity.
    """

    offset: FloatArray
    slopes: dict[int, FloatArray]
    unit: bool = False


def read_affine(
    graph: Variable, inputs: Sequence[Variable], shapes: Sequence[tuple[int, ...]]
) -> tuple[FloatArray, FloatArray]:
    """The value at zero, and its change towards each unit vector of the flat inputs, a row each."""
    sizes = [int(np.prod(shape)) for shape in shapes]
    values: dict[Variable, Any] = {
        variable: Affine(np.zeros(shape), {i: np.eye(size).reshape(size, *shape)}, unit=True)
        for i, (variable, shape, size) in enumerate(zip(inputs, shapes, sizes, strict=True))
    }
    if any(v.type.dtype != "float64" for v in inputs):
        raise Unreadable("the inputs are not float64")
    for node in toposort([graph], blockers=values):
        operands = [values[v] if v in values else leaf_value(v) for v in node.inputs]
        if any(isinstance(each, Affine) for each in operands):
            values[_only_output(node)] = _apply(node, operands)
        else:
            values.update(zip(node.outputs, perform(node, operands), strict=True))
    found = values[graph] if graph in values else leaf_value(graph)
    if not isinstance(found, Affine):
        found = Affine(np.asarray(found), {})
    shape = found.offset.shape
    slopes = [np.broadcast_to(found.slopes.get(i, 0.0), (size, *shape)) for i, size in enumerate(sizes)]
    return np.array(found.offset), np.concatenate(slopes)


def _only_output(node: Apply) -> Variable:
    if len(node.outputs) != 1:
        raise Unreadable(f"{node} has {len(node.outputs)} outputs")
    return node.outputs[0]


def _apply(node: Apply, operands: list[Any]) -> Any:
    op, affine = node.op, [isinstance(each, Affine) for each in operands]
    if isinstance(op, Shape | Shape_i):
        return perform(node, [operands[0].offset])[0]
    if node.outputs[0].type.dtype != "float64":
        raise Unreadable(f"{node} is not float64")
    if isinstance(op, Elemwise):
        return _elemwise(node, operands, affine)
    if isinstance(op, ViewOp):
        return operands[0]
    if isinstance(op, DimShuffle):
        return _dimshuffle(node, operands[0])
    if isinstance(op.core_op if isinstance(op, Blockwise) else op, Dot) and sum(affine) == 1:
        return _dot(operands, affine)
    if isinstance(op, JOINING) or (isinstance(op, STRUCTURAL) and affine == [True] + [False] * (len(affine) - 1)):
        return _one_by_one(node, operands, keep=isinstance(op, STRUCTURAL))
    raise Unreadable(f"no rule for {node}")


def _elemwise(node: Apply, operands: list[Any], affine: list[bool]) -> Affine:
    op = node.op.scalar_op
    linear = isinstance(op, scalar.Add | scalar.Sub | scalar.Neg | scalar.Identity | scalar.Cast)
    product = isinstance(op, scalar.Mul) and sum(affine) == 1
    quotient = isinstance(op, scalar.TrueDiv) and affine == [True, False]
    if not (linear or product or quotient):
        raise Unreadable(f"no rule for {node}")
    [offset] = perform(node, [each.offset if isinstance(each, Affine) else each for each in operands])
    shape = np.shape(offset)
    slopes: dict[int, FloatArray] = {}
    for position, each in enumerate(operands):
        if not isinstance(each, Affine):
            continue
        for i, slope in each.slopes.items():
            if product:
                for factor in operands[:position] + operands[position + 1 :]:
                    slope = slope * factor
            elif quotient:
                slope = slope / operands[1]
            elif isinstance(op, scalar.Neg) or (isinstance(op, scalar.Sub) and position == 1):
                slope = -slope
            slope = np.broadcast_to(slope, (len(slope), *shape))
            slopes[i] = slopes[i] + slope if i in slopes else slope
    return Affine(offset, slopes, unit=False)


def _dimshuffle(node: Apply, operand: Affine) -> Affine:
    [offset] = perform(node, [operand.offset])
    kept = [axis + 1 for axis in node.op.new_order if axis != "x"]

    def shuffled(slope: FloatArray) -> FloatArray:
        dropped = tuple(axis for axis in range(1, slope.ndim) if axis not in kept)
        return slope.transpose(0, *kept, *dropped).reshape(len(slope), *offset.shape)

    same_order = kept == sorted(kept)
    return Affine(offset, {i: shuffled(slope) for i, slope in operand.slopes.items()}, unit=operand.unit and same_order)


def _dot(operands: list[Any], affine: list[bool]) -> Affine:
    """One product of a constant matrix or vector and an affine one."""
    left = affine[0]
    value, matrix = (operands[0], operands[1]) if left else (operands[1], operands[0])
    matrix = np.asarray(matrix)
    if max(matrix.ndim, value.offset.ndim) > 2:
        raise Unreadable("a batch of products")

    def product(array: FloatArray) -> FloatArray:
        return array @ matrix if left else matrix @ array

    def slope_of(slope: FloatArray) -> FloatArray:
        rows = len(slope)
        if value.unit and not left and slope.shape == (rows, rows, 1) and matrix.ndim == 2:
            return matrix.T[:, :, None]
        axis = value.offset.ndim if left else 1  # of the slope: what is summed over
        along = np.tensordot(slope, matrix, axes=(axis, 0 if left else matrix.ndim - 1))
        if not left and slope.ndim == 3 and matrix.ndim == 2:
            along = along.transpose(0, 2, 1)
        return along

    return Affine(product(value.offset), {i: slope_of(slope) for i, slope in value.slopes.items()})


def _one_by_one(node: Apply, operands: list[Any], *, keep: bool) -> Affine:
    """A node that is linear in its affine inputs; constants among them count for the offset alone, unless ``keep``."""
    [offset] = perform(node, [each.offset if isinstance(each, Affine) else each for each in operands])

    def part(each: Any, position: int, i: int, k: int) -> Any:
        if isinstance(each, Affine):
            return np.asarray(each.slopes[i][k]) if i in each.slopes else np.zeros_like(each.offset)
        is_axis = isinstance(node.op, Join) and position == 0 and np.ndim(each) == 0  # before PyTensor 3
        return each if keep or is_axis else np.zeros_like(each)

    sizes = {i: len(slope) for each in operands if isinstance(each, Affine) for i, slope in each.slopes.items()}
    slopes = {}
    for i, size in sizes.items():
        rows = [perform(node, [part(each, p, i, k) for p, each in enumerate(operands)])[0] for k in range(size)]
        slopes[i] = np.array(rows)
    return Affine(offset, slopes)
