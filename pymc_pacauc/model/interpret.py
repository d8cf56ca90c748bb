"""Values of a graph without compiling it: its nodes one after the other, each by its own Python implementation.

A compilation of PyTensor costs 10 to 50 ms, more than a fit to a few hundred observations. What is read from a model
(labels, gamma, parameters of priors, matrices of covariates) is a handful of nodes above constants and ``pm.Data``,
which are evaluated here in less than a millisecond, and read anew every time: nothing is kept that could be stale.
Where a graph must be compiled after all, ``MODE`` is for functions that are called a few times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.pytensorf import compile as compile_function
from pytensor.compile.mode import get_mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.rewriting.basic import in2out, node_rewriter
from pytensor.graph.traversal import ancestors, toposort
from pytensor.scalar.basic import Add, Cast, Clip, Identity, Mul, Second
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.op import RandomVariable

__all__ = ["MODE", "Unreadable", "evaluate", "is_known", "leaf_value", "perform"]

NUMBERS_WORTH_COMPILING = 10_000  # of an operation that NumPy does not have


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


class Unreadable(Exception):
    """A graph has no value without its inputs, or none that is not random; or it takes a compilation."""


class _WorthCompiling(Unreadable):
    """An operation on many numbers that NumPy does not have: Python would loop over them."""


def is_known(variables: Iterable[Variable], given: Iterable[Variable] = ()) -> bool:
    """Whether variables are made of constants, shared variables and what is given alone."""
    given = set(given)
    return not any(
        _is_random(v.owner) if v.owner is not None else not isinstance(v, Constant | SharedVariable)
        for v in ancestors(variables, blockers=given)
        if v not in given
    )


def evaluate(outputs: Iterable[Variable], given: Mapping[Variable, Any] | None = None) -> list[Any]:
    """Copies of the values of ``outputs``, ``given`` those of other variables; :class:`Unreadable` if random."""
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
    """What a constant or a shared variable holds, not a copy."""
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
