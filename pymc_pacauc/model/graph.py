"""Evaluate graphs of a PyMC model: without compilation, at many points, at draws, and as affine maps.

*Flat variables* (:class:`FlatVariables`). Engines take theta[N, D]: one row per point, the model's value variables
(unconstrained) concatenated in the model's order. Graphs are vectorised over such rows.

*Without compilation* (:func:`evaluate`). A compilation of PyTensor takes 10 to 50 ms, more than a fit to a few hundred
observations. Labels, gamma, parameters of priors and covariates are a few nodes above constants and ``pm.Data``: the
nodes are evaluated one by one by their Python implementations, in less than a millisecond, and again at every reading,
so that no value is stale. ``MODE`` compiles functions that are called a few times.

*Affine graphs* (:func:`read_affine`): value at zero and slopes, node by node, without compiling or probing. Each
intermediate value is a constant, or :class:`Affine` in some of the inputs. :func:`linear_inputs` is the table of the
operations that are linear: products with known matrices and numbers, sums, indexing, reshaping, stacking. To add one,
add it there; any other that depends on an input makes the graph :class:`NotAffine`.

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
from pymc.initial_point import make_initial_point_expression
from pymc.pytensorf import compile as compile_function
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import get_mode
from pytensor.compile.ops import ViewOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.basic import in2out, node_rewriter
from pytensor.graph.traversal import ancestors, toposort
from pytensor.scalar.basic import Add, Cast, Clip, Identity, Mul, Neg, Second, Sub, Switch, TrueDiv
from pytensor.tensor.basic import Alloc, AllocDiag, ExtractDiag, Join, MakeVector
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor
from pytensor.tensor.type import TensorType

from pymc_pacauc.numerics import FloatArray, slices
from pymc_pacauc.problem.score_function import flat_draws


def affine_map(evaluate: Callable[[FloatArray], list[FloatArray]], d: int) -> tuple[FloatArray, FloatArray]:
    """Return the value at zero, and the change towards each unit vector, one row each."""
    values = evaluate(np.eye(d + 1, d, k=-1))[0]
    return values[0], values[1:] - values[0]


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


class Unreadable(ValueError):
    """Raised if a graph has no value without its inputs, or is random."""

    inputs: Sequence[int] = ()  # places of those that it is not affine in


class NotAffine(Unreadable):
    """Raised for an operation that is not known to be linear in the inputs at the places ``inputs``."""

    def __init__(self, node: Apply, inputs: Iterable[int]):
        super().__init__(f"no rule for {node}")
        self.inputs = sorted(inputs)


def is_known(variables: Iterable[Variable]) -> bool:
    """Return whether variables depend on constants and shared variables only."""
    return not any(
        is_random(v.owner) if v.owner is not None else not isinstance(v, Constant | SharedVariable)
        for v in ancestors(variables)
    )


def evaluate(outputs: Iterable[Variable], given: Mapping[Variable, Any] | None = None) -> list[Any]:
    """Return copies of the values of ``outputs``, ``given`` those of other variables; :class:`Unreadable` if random."""
    return [np.array(value) for value in _propagated(list(outputs), dict(given or {}))]


def leaf_value(variable: Variable) -> Any:
    """Return the value of a constant or a shared variable, not a copy."""
    if isinstance(variable, Constant):
        return variable.data
    if isinstance(variable, SharedVariable):
        return variable.get_value(borrow=True)
    raise Unreadable(f"{variable} has no value")


# What PyTensor evaluates number by number
IN_NUMPY: dict[type, Callable[..., Any]] = {
    Add: lambda *terms: reduce(np.add, terms),
    Mul: lambda *factors: reduce(np.multiply, factors),
    Cast: np.asarray,
    Identity: np.asarray,
    Second: lambda shape, value: np.broadcast_arrays(shape, value)[1],
    Clip: lambda value, lower, upper: np.minimum(np.maximum(value, lower), upper),
}


def performer(node: Apply) -> Callable[[list[Any]], list[Any]]:
    """Return the function of one node: values of its inputs -> values of its outputs."""
    if is_random(node):
        raise Unreadable(f"{node.outputs[-1]} is random")
    if node.op.destroy_map:
        raise Unreadable(f"{node} overwrites its inputs")
    in_numpy = IN_NUMPY.get(type(node.op.scalar_op)) if isinstance(node.op, Elemwise) else None
    if in_numpy is not None:
        return lambda inputs: [np.asarray(in_numpy(*inputs)).astype(node.outputs[0].type.dtype)]
    storage: dict[Variable, list[Any]] = {v: [None] for v in (*node.inputs, *node.outputs)}
    thunk = node.op.make_thunk(node, storage, {v: [v in node.inputs] for v in storage}, [], impl="py")

    def perform(inputs: list[Any]) -> list[Any]:
        for variable, value in zip(node.inputs, inputs, strict=True):
            storage[variable][0] = value
        for variable in node.outputs:
            storage[variable][0] = None  # not to be written over
        thunk()
        return [storage[v][0] for v in node.outputs]

    return perform


def is_random(node: Apply | None) -> bool:
    """Return whether a node draws random numbers."""
    return node is not None and isinstance(node.op, RandomVariable | SymbolicRandomVariable)


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
        """Return the value of each variable by name, as PyMC has them, for each row of ``theta[N, D]``."""
        parts = zip(self.values, self.shapes, self.slices, strict=True)
        columns = [theta[:, part].reshape((len(theta), *shape)).astype(v.dtype) for v, shape, part in parts]
        return [dict(zip(self.names, map(np.asarray, row), strict=True)) for row in zip(*columns, strict=True)]

    def part(self, chosen: Sequence[int]) -> FlatVariables:
        """Return the layout of some of the variables."""
        return FlatVariables(tuple(self.values[i] for i in chosen), tuple(self.shapes[i] for i in chosen))

    def places(self, chosen: Sequence[int]) -> NDArray[np.intp]:
        """Return the positions of some of the variables in the flat vector."""
        everything, slices = np.arange(self.dimension), self.slices
        return np.concatenate([everything[:0], *(everything[slices[i]] for i in chosen)])

    def vectorize(self, outputs: Sequence[Variable]) -> tuple[Variable, list[Variable]]:
        """Return a matrix variable ``theta``, and the outputs as functions of the values in each of its rows."""
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
        """Return f(theta[N, D]) -> the batched outputs, evaluated in pieces that fit in memory."""
        theta, batched = self.vectorize(outputs)
        compiled = compile_function([theta], batched, mode=mode, on_unused_input="ignore")
        width = 0  # numbers for each point, known after the first

        def evaluate(points: FloatArray) -> list[NDArray[Any]]:
            nonlocal width
            width = width or max(self.dimension, *(value.size for value in compiled(points[:1])))
            pieces = [compiled(points[rows]) for rows in slices(len(points), width) or [slice(0)]]
            return [np.concatenate(values) for values in zip(*pieces, strict=True)]

        return evaluate


def entry_labels(names: Iterable[str], shapes: Iterable[tuple[int, ...]]) -> list[str]:
    """Return a label for each entry of some arrays, ``theta[0, 1]``, or the name alone for a scalar."""
    entries = ((name, at) for name, shape in zip(names, shapes, strict=True) for at in np.ndindex(*shape))
    return [f"{name}[{', '.join(map(str, at))}]" if at else name for name, at in entries]


def flat_variables(model: pm.Model) -> FlatVariables:
    """Return the layout of the model's value variables, with the shapes they have now."""
    if not model.value_vars:
        raise ValueError(
            'model has no free variables: add the coefficients of its scores, such as pm.Normal("theta", shape=d).'
        )
    pairs = [(value, model.values_to_rvs[value]) for value in model.value_vars]
    known = [_known_shape(rv if model.rvs_to_transforms[rv] is None else value) for value, rv in pairs]
    shapes = [shape for shape in known if shape is not None]
    if len(shapes) < len(known):
        start = model.initial_point()
        shapes = [start[value.name].shape for value in model.value_vars]
    return FlatVariables(tuple(model.value_vars), tuple(shapes))


def draws_from_prior(model: pm.Model, rvs: Iterable[Variable]) -> list[Variable]:
    """Make graphs of draws from the prior of some variables, transformed to their unconstrained values."""
    return make_initial_point_expression(
        free_rvs=list(rvs),
        rvs_to_transforms=model.rvs_to_transforms,
        initval_strategies={},  # a user's initval is a place to start, not the prior
        default_strategy="prior",
        return_transformed=True,
    )


def shape_now(variable: Variable) -> tuple[int, ...]:
    """Return the shape of a variable of a model, with the data it holds now."""
    shape = _known_shape(variable)
    return tuple(int(size) for size in variable.shape.eval()) if shape is None else shape


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
    """Evaluate ``graph`` at each draw, shape (chain, draw, ...), with the ``pm.Data`` that the model has now."""
    used = set(ancestors([graph]))
    variables = tuple(rv for rv in model.free_RVs if rv in used)
    shapes = tuple(shape_now(rv) for rv in variables)
    theta = flat_draws(posterior, [(rv.name, shape) for rv, shape in zip(variables, shapes, strict=True)])
    [found] = FlatVariables(variables, shapes).function([graph])(theta)
    return found.reshape(posterior.sizes["chain"], posterior.sizes["draw"], *found.shape[1:])


@dataclass(frozen=True, eq=False)
class Affine:
    """``offset + sum_i u_i . slopes[i]`` with u_i the flattened i-th input: slopes ``[size of u_i, *shape]``."""

    offset: FloatArray
    slopes: dict[int, FloatArray]


JOINTLY = (Add, Sub, Neg, Identity, Cast, Second, Join, MakeVector)  # linear in all inputs together
PRODUCTS = (Mul, Dot)  # linear in one input, given the others
RESHAPING = (ViewOp, DimShuffle, Reshape, SpecifyShape, Subtensor, AdvancedSubtensor, Alloc, AllocDiag, ExtractDiag)
IN_FIRST = (*RESHAPING, Sum, CumOp, TrueDiv)  # linear in the first input, given the others


def _core(node: Apply) -> Any:
    op = node.op.core_op if isinstance(node.op, Blockwise) else node.op
    return op.scalar_op if isinstance(op, Elemwise) else op


def linear_inputs(node: Apply, varying: list[int]) -> list[int]:
    """List the inputs, by position, that a node is jointly linear in given the others; ``varying`` are not known."""
    op = _core(node)
    if isinstance(op, JOINTLY):  # but for the axis of a Join, an input before PyTensor 3
        return [k for k, v in enumerate(node.inputs) if v.type.ndim or not isinstance(op, Join)]
    if isinstance(op, PRODUCTS):
        return varying[:1]
    if isinstance(op, IncSubtensor | AdvancedIncSubtensor):
        return [0, 1]
    if isinstance(op, Switch):
        return [1, 2]
    return [0] if isinstance(op, IN_FIRST) else []


def read_affine(
    graph: Variable, inputs: Sequence[Variable], shapes: Sequence[tuple[int, ...]]
) -> tuple[FloatArray, FloatArray]:
    """Return the value at zero, and the change towards each unit vector of the flat inputs, one row each.

    Raises :class:`NotAffine`, or :class:`Unreadable` where the graph depends on other random variables.
    """
    sizes = [int(np.prod(shape)) for shape in shapes]
    starts = zip(inputs, shapes, sizes, strict=True)
    values = {v: Affine(np.zeros(s), {i: np.eye(n).reshape(n, *s)}) for i, (v, s, n) in enumerate(starts)}
    found = _propagated([graph], values)[0]
    if not isinstance(found, Affine):
        found = Affine(np.asarray(found), {})
    shape = found.offset.shape
    slopes = [np.broadcast_to(found.slopes.get(i, 0.0), (size, *shape)) for i, size in enumerate(sizes)]
    return np.array(found.offset, dtype=np.float64), np.concatenate([np.zeros((0, *shape)), *slopes])


def _propagated(outputs: Sequence[Variable], values: dict[Variable, Any]) -> list[Any]:
    """Compute the values of the outputs, arrays or :class:`Affine`, from those of some variables."""
    for node in toposort(outputs, blockers=dict(values)):
        operands = [values[v] if v in values else leaf_value(v) for v in node.inputs]
        varying = [k for k, each in enumerate(operands) if isinstance(each, Affine)]
        if not varying:
            found = performer(node)(operands)
        elif isinstance(node.op, Shape | Shape_i):
            found = performer(node)([operands[0].offset])
        elif isinstance(node.op, OpFromGraph) and not is_random(node):
            found = _propagated(node.op.inner_outputs, dict(zip(node.op.inner_inputs, operands, strict=True)))
        else:
            found = [_linear(node, operands, varying)]
        values.update(zip(node.outputs, found, strict=True))
    return [values[v] if v in values else leaf_value(v) for v in outputs]


def _linear(node: Apply, operands: list[Any], varying: list[int]) -> Affine:
    """Apply a linear node to each slope in turn; constants that are added enter the offset only."""
    linear, perform = linear_inputs(node, varying), performer(node)
    if not set(varying) <= set(linear) or not node.outputs[0].type.dtype.startswith("float") or len(node.outputs) > 1:
        raise NotAffine(node, {i for k in varying for i in operands[k].slopes})
    values = [each.offset if isinstance(each, Affine) else each for each in operands]
    slopes = {}
    for i in dict.fromkeys(i for k in varying for i in operands[k].slopes):
        if isinstance(_core(node), Dot) and all(np.ndim(value) == 2 for value in values):
            slopes[i] = _product(operands[varying[0]].slopes[i], values[1 - varying[0]], left=varying == [0])
            continue
        parts = list(values)
        rows = []
        for j in range(len(next(operands[k].slopes[i] for k in varying if i in operands[k].slopes))):
            for k in linear:
                known = isinstance(operands[k], Affine) and i in operands[k].slopes
                parts[k] = np.asarray(operands[k].slopes[i][j]) if known else np.zeros_like(values[k])
            rows.append(perform(parts)[0])
        slopes[i] = np.array(rows)
    return Affine(perform(values)[0], slopes)


def _product(slope: FloatArray, matrix: FloatArray, *, left: bool) -> FloatArray:
    """Multiply all slopes ``[size, rows, columns]`` by a matrix at once."""
    size = len(slope)
    vector = slope.size == size**2 and slope.shape[1 if left else 2] == 1
    if vector and np.array_equal(slope.reshape(size, size), np.eye(size)):
        found = matrix if left else matrix.T  # an input itself
    elif left:
        found = slope.reshape(-1, slope.shape[2]) @ matrix
    else:
        found = np.tensordot(slope, matrix, axes=(1, 1)).swapaxes(1, 2)
    return found.reshape(size, *((slope.shape[1], -1) if left else (-1, slope.shape[2])))


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
        """Set the model's data to the stored values for the duration of the block."""
        now = HeldData.of(model)
        self.write(model)
        try:
            yield
        finally:
            now.write(model)
