"""Evaluate graphs of a PyMC model: without compilation, at many points, at draws, and as affine maps.

*Flat variables* (:class:`FlatVariables`). Engines take theta[N, D]: one row per point, the model's value variables
(unconstrained) concatenated in the model's order. Graphs are vectorised over such rows.

*Without compilation* (:func:`evaluate`). A compilation of PyTensor takes 10 to 50 ms, more than a fit to a few hundred
observations. Labels, gamma, parameters of priors and covariates are a few nodes above constants and ``pm.Data``: the
nodes are evaluated one by one by their Python implementations, in less than a millisecond, and again at every reading,
so that no value is stale. ``MODE`` compiles functions that are called a few times.

*Affine graphs* (:func:`read_affine`): value at zero and slopes, node by node, without compiling or probing. Each
intermediate value is a constant, or :class:`Affine` in some of the inputs. The rules are exact, and cover products with
matrices and numbers, sums, indexing, reshaping and stacking. Any other node that depends on an input makes the graph
:class:`Unreadable`; it may still be affine, and :func:`affine_map` finds the map from values at zero and the unit
vectors, which :func:`first_departure` verifies at random points.

:class:`HeldData` restores the values that ``pm.Data`` had at the fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from numpy.typing import NDArray
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.pytensorf import compile as compile_function
from pytensor.compile.mode import get_mode
from pytensor.compile.ops import ViewOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.basic import in2out, node_rewriter
from pytensor.graph.traversal import ancestors, toposort
from pytensor.scalar import basic as scalar
from pytensor.scalar.basic import Add, Cast, Clip, Identity, Mul, Second
from pytensor.tensor.basic import Join, MakeVector
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor
from pytensor.tensor.type import TensorType

from pymc_pacauc.numerics import FloatArray, slices

Evaluate = Callable[[FloatArray], list[FloatArray]]

PROBES = (0.1, 1.0, 7.0)


def affine_map(evaluate: Evaluate, d: int) -> tuple[FloatArray, FloatArray]:
    """Return the value at zero, and the change towards each unit vector, one row each."""
    values = evaluate(np.eye(d + 1, d, k=-1))[0]
    return values[0], values[1:] - values[0]


def first_departure(
    names: Sequence[str], layout: FlatVariables, departs: Callable[[FloatArray], bool], suspects: Sequence[str] = ()
) -> str | None:
    """Probe all variables together; if the form fails, return the first variable, or combination, where it fails.

    ``suspects`` are probed first, because others may fail because of them.
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


NUMBERS_WORTH_COMPILING = 10_000  # of an operation that NumPy does not have


@node_rewriter([Elemwise])
def numpy_equivalents(fgraph: Any, node: Any) -> Any:
    """Evaluate sums and products of many arrays two by two, and clip, for which NumPy has no ufunc."""
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


class Unreadable(Exception):
    """Raised if a graph has no value without its inputs, is random, or must be compiled."""


class _WorthCompiling(Unreadable):
    """Raised for an operation on many numbers without a NumPy equivalent, which would be a Python loop."""


def is_known(variables: Iterable[Variable], given: Iterable[Variable] = ()) -> bool:
    """Return whether variables depend on constants, shared variables and the ``given`` ones only."""
    given = set(given)
    return not any(
        _is_random(v.owner) if v.owner is not None else not isinstance(v, Constant | SharedVariable)
        for v in ancestors(variables, blockers=given)
        if v not in given
    )


def evaluate(outputs: Iterable[Variable], given: Mapping[Variable, Any] | None = None) -> list[Any]:
    """Return copies of the values of ``outputs``, ``given`` those of other variables; :class:`Unreadable` if random."""
    outputs, given = list(outputs), dict(given or {})
    values: dict[Variable, Any] = dict(given)
    try:
        for node in toposort(outputs, blockers=given):
            inputs = [values[v] if v in values else leaf_value(v) for v in node.inputs]
            values.update(zip(node.outputs, perform(node, inputs), strict=True))
    except _WorthCompiling:
        if not is_known(outputs, given):
            raise
        return list(compile_function(list(given), outputs, mode=MODE, on_unused_input="ignore")(*given.values()))
    return [np.array(values[v] if v in values else leaf_value(v)) for v in outputs]


def leaf_value(variable: Variable) -> Any:
    """Return the value of a constant or a shared variable, not a copy."""
    if isinstance(variable, Constant):
        return variable.data
    if isinstance(variable, SharedVariable):
        return variable.get_value(borrow=True)
    raise Unreadable(f"{variable} has no value")


def perform(node: Apply, inputs: list[Any]) -> list[Any]:
    """The outputs of one node."""
    if _is_random(node):
        raise Unreadable(f"{node.outputs[-1]} is random")
    if node.op.destroy_map:
        raise Unreadable(f"{node} overwrites its inputs")
    if isinstance(node.op, Elemwise) and not _in_numpy(node):
        dtype, op = node.outputs[0].type.dtype, node.op.scalar_op
        if isinstance(op, Add | Mul):
            return [np.asarray(reduce(np.add if isinstance(op, Add) else np.multiply, inputs)).astype(dtype)]
        if isinstance(op, Cast | Identity):
            return [np.asarray(inputs[0]).astype(dtype)]
        if isinstance(op, Second):
            return [np.broadcast_arrays(*inputs)[1].astype(dtype)]
        if isinstance(op, Clip):
            return [np.asarray(np.minimum(np.maximum(inputs[0], inputs[1]), inputs[2])).astype(dtype)]
        if max(np.size(each) for each in inputs) > NUMBERS_WORTH_COMPILING:
            raise _WorthCompiling(f"{node} is not in NumPy")
    storage = {v: [None] for v in node.outputs} | {v: [value] for v, value in zip(node.inputs, inputs, strict=True)}
    computed = {v: [v in node.inputs] for v in storage}
    node.op.make_thunk(node, storage, computed, [], impl="py")()
    return [storage[v][0] for v in node.outputs]


def _is_random(node: Apply) -> bool:
    return isinstance(node.op, RandomVariable | SymbolicRandomVariable)


def _in_numpy(node: Apply) -> bool:
    return node.op.nfunc_spec is not None and node.op.nfunc_spec[1] == len(node.inputs)


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
        return [slice(int(a), int(b)) for a, b in zip([0, *stops][:-1], stops, strict=True)]

    @property
    def dimension(self) -> int:
        return self.slices[-1].stop if self.values else 0

    def points(self, theta: FloatArray) -> list[dict[str, NDArray[Any]]]:
        """A value for each variable by name, as PyMC has them, for each row of ``theta[N, D]``."""
        parts = zip(self.values, self.shapes, self.slices, strict=True)
        columns = [theta[:, part].reshape((len(theta), *shape)).astype(v.dtype) for v, shape, part in parts]
        return [dict(zip(self.names, map(np.asarray, row), strict=True)) for row in zip(*columns, strict=True)]

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
            width = max(self.dimension, *(value.size for value in pieces[0]))
            pieces += [compiled(points[1:][rows]) for rows in slices(len(points) - 1, width)]
            return [np.concatenate(values) for values in zip(*pieces, strict=True)]

        return evaluate


def entry_labels(names: Iterable[str], shapes: Iterable[tuple[int, ...]]) -> list[str]:
    """A label for each entry of some arrays, ``theta[0, 1]``, or the name alone for a scalar."""
    entries = ((name, at) for name, shape in zip(names, shapes, strict=True) for at in np.ndindex(*shape))
    return [f"{name}[{', '.join(map(str, at))}]" if at else name for name, at in entries]


def flat_variables(model: pm.Model) -> FlatVariables:
    """Layout of the model's value variables, with the shapes they have now."""
    if not model.value_vars:
        raise ValueError(
            'model has no free variables: add the coefficients of its scores, such as pm.Normal("theta", shape=d).'
        )
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
    """Return the shape by type, or by the size argument of a vector of independent variables; None if not known."""
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


def evaluate_at_draws(model: pm.Model, graph: Variable, posterior: xr.Dataset) -> NDArray[Any]:
    """``graph`` at each draw, shape (chain, draw, ...), with the ``pm.Data`` that the model has now."""
    used = set(ancestors([graph]))
    variables = [rv for rv in model.free_RVs if rv in used]
    missing = [rv.name for rv in variables if rv.name not in posterior]
    if missing:
        raise ValueError(f"result has no draws of {', '.join(missing)}, which the scores depend on: keep them.")
    values = [posterior[rv.name].transpose("chain", "draw", ...).values for rv in variables]
    batched = [rv.type.clone(shape=(None, *rv.type.shape))(f"{rv.name}_draws") for rv in variables]
    output = vectorize_graph(graph, dict(zip(variables, batched, strict=True)))
    function = compile_function(batched, output, mode=MODE, on_unused_input="ignore")
    points = [v.reshape(-1, *v.shape[2:]).astype(rv.dtype) for v, rv in zip(values, variables, strict=True)]
    found = np.asarray(function(*points))
    return found.reshape(posterior.sizes["chain"], posterior.sizes["draw"], *found.shape[1:])


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
    """Return the value at zero, and the change towards each unit vector of the flat inputs, one row each."""
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
    """Apply a node that is linear in its affine inputs; constants enter the offset only, unless ``keep``."""
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


@dataclass(frozen=True, eq=False)
class HeldData:
    """Values of a model's ``pm.Data``, mutable dimensions and coords at some time; frozen data are not stored."""

    values: dict[SharedVariable, NDArray[Any]]
    coords: dict[str, Any]

    @classmethod
    def of(cls, model: pm.Model) -> HeldData:
        held = [v for v in (*model.data_vars, *model.dim_lengths.values()) if isinstance(v, SharedVariable)]
        return cls({v: v.get_value(borrow=True) for v in held}, dict(model.coords))

    def write(self, model: pm.Model) -> None:
        for variable, value in self.values.items():
            variable.set_value(value, borrow=True)
        model._coords.update({name: self.coords[name] for name in self.coords if name in model.coords})

    @contextmanager
    def held_by(self, model: pm.Model) -> Iterator[None]:
        """Give the model the stored values for the duration of the block."""
        now = HeldData.of(model)
        self.write(model)
        try:
            yield
        finally:
            now.write(model)
