"""The risk of a comparison, and its surrogate losses, as PyTensor Ops.

All are core Ops of signature ``(n),(n),... -> ...`` with the labels as *inputs* after the scores, so that labels in
``pm.Data`` can be replaced; ``Blockwise`` batches them. The exact risk is piecewise constant: its gradient is declared
*undefined*, not zero, so that PyMC does not assign a gradient-based sampler to it.

A :class:`ComparisonKind` says which arrays there are (labels, times, events, strata, weights) and how to read them, and
builds the pairs from their values. The pairs of the last arrays are cached, since a model is evaluated many times with
the same ones.

Exact risks call the array functions, whose kernels are compiled once and cached on disk, from any linker; so do the
surrogates of all comparisons except two classes, which compile to native code.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numba import objmode, types
from numpy.typing import NDArray
from pytensor.compile.mode import optdb
from pytensor.gradient import DisconnectedType, grad_not_implemented, grad_undefined
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.graph.traversal import ancestors
from pytensor.link.numba.dispatch.basic import (
    get_numba_type,
    numba_njit,
    register_funcify_default_op_cache_key,
)
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.math import Dot

from pymc_pacauc.comparison.censored import concordance
from pymc_pacauc.comparison.kinds import Comparison, label_comparison, unordered_classes
from pymc_pacauc.comparison.pairs import Pairs
from pymc_pacauc.comparison.risk import comparison_risk, two_class_risk
from pymc_pacauc.comparison.surrogate import LOSSES
from pymc_pacauc.comparison.surrogate import surrogate_risk as pairs_surrogate


@dataclass(frozen=True)
class ComparisonKind:
    """Names of the arrays in order, the first ``"y"`` or ``"time"``, and options that are no arrays.

    ``class_weights`` are those of ordered classes, as items of a mapping; ``of_class`` says that of so many unordered
    classes this one is compared with each other one, ``(which, how many)``.
    """

    arrays: tuple[str, ...]
    ordered: bool = False
    class_weights: tuple[tuple[tuple[float, float], float], ...] | None = None
    max_fpr: float | None = None
    ipcw: bool = False
    tau: float | None = None
    cause: int = 1
    horizon: tuple[float, ...] | None = None
    of_class: tuple[int, int] | None = None

    def comparison(self, *values: NDArray[Any]) -> Comparison:
        """The pairs of these arrays, or an error that says what is wrong with them."""
        return _comparison(self, *((v.dtype.str, v.shape, v.tobytes()) for v in values))

    def build(self, given: dict[str, NDArray[Any]]) -> Comparison:
        strata, weights = given.get("strata"), given.get("weights")
        if "time" in given:
            return concordance(
                given["time"],
                given["event"],
                strata=strata,
                weights="ipcw" if self.ipcw else weights,
                tau=self.tau,
                cause=self.cause,
                horizon=self.horizon,
                entry=given.get("entry"),
            )
        y = given["y"]
        if self.of_class is not None:
            which, number = self.of_class
            found = unordered_classes(y, weights)
            if len(found) != number:
                raise ValueError(
                    f"scores must have one column for each of the {len(found)} classes of y; got {number}."
                )
            return found[which]
        if not self.ordered:
            y = y > 0  # as it is in every graph
        ordered = dict(self.class_weights) if self.class_weights is not None else self.ordered
        return label_comparison(y, strata=strata, weights=weights, ordered=ordered, max_fpr=self.max_fpr)


@lru_cache(maxsize=8)
def _comparison(kind: ComparisonKind, *values: tuple[str, tuple[int, ...], bytes]) -> Comparison:
    """The comparison of arrays by their contents, which a sampler hands on unchanged thousands of times."""
    arrays = (np.frombuffer(data, dtype).reshape(shape) for dtype, shape, data in values)
    return kind.build(dict(zip(kind.arrays, arrays, strict=True)))


TWO_CLASSES = ComparisonKind(("y",))


NO_GRADIENT = (
    "The AUC risk is piecewise constant in the scores, so NUTS and ADVI have nothing to follow: sample with "
    "pm.sample(step=pac.TemperingSMC()) or fit with pm.fit(method=pac.EP()); or replace the risk by a smooth surrogate,"
    ' pac.AUCPotential(..., loss="logistic").'
)
KERNEL_VERSION = 5  # part of PyTensor's disk-cache key: bump with every change of a kernel of two classes' surrogates


def core_op(op):
    """The Op that ``Blockwise`` repeats, or the Op itself."""
    return op.core_op if isinstance(op, Blockwise) else op


class PairOp(Op):
    """Shared parts: input checks, and labels without a gradient."""

    def make_node(self, scores, *labels):
        tensors = [pt.as_tensor(each) for each in (scores, *labels)]
        if any(each.type.ndim != 1 for each in tensors):
            raise ValueError("scores and labels must be vectors; Blockwise adds batch dimensions.")
        inputs = [pt.cast(tensors[0], "float64"), *self.cast_labels(tensors[1:])]
        return Apply(self, inputs, self.output_types(inputs))

    def cast_labels(self, labels):
        return [pt.cast(each, "int8") for each in labels]

    def connection_pattern(self, node):
        return [[i == 0] * len(node.outputs) for i in range(len(node.inputs))]

    def L_op(self, inputs, outputs, output_grads):  # what PyTensor < 3 calls pullback
        return self.pullback(inputs, outputs, output_grads)

    def to_scores(self, inputs, gradient):
        """Gradients of all inputs, of which the scores alone have one."""
        return [gradient, *(DisconnectedType()() for _ in inputs[1:])]


class ExactOp(PairOp):
    """A risk without a gradient."""

    def output_types(self, inputs):
        return [pt.dscalar()]

    def pullback(self, inputs, outputs, cotangents):
        return self.to_scores(inputs, grad_undefined(self, 0, inputs[0], NO_GRADIENT))


class SurrogateOp(PairOp):
    """A mean convex loss, and its gradient as second output."""

    def output_types(self, inputs):
        return [pt.dscalar(), inputs[0].type()]

    def pullback(self, inputs, outputs, cotangents):
        if not isinstance(cotangents[1].type, DisconnectedType):
            return self.to_scores(inputs, grad_not_implemented(self, 0, inputs[0], "No second derivatives."))
        return self.to_scores(inputs, cotangents[0] * outputs[1])


class AUCRisk(ExactOp):
    """Exact pair risk of one score vector; see :func:`pymc_pacauc.empirical_risk`."""

    __props__ = ("ties",)
    gufunc_signature = "(n),(n)->()"

    def __init__(self, ties: str):
        self.ties = ties
        self.gufunc_spec = (f"{__name__}.risk_{ties}", 2, 1)  # what Blockwise calls for a whole batch

    @property
    def kind(self) -> ComparisonKind:
        return TWO_CLASSES

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = batch_risk(inputs[0], inputs[1], self.ties)


class SurrogateRisk(SurrogateOp):
    """A surrogate pair risk of one score vector, and its gradient as second output."""

    __props__ = ("loss",)
    gufunc_signature = "(n),(n)->(),(n)"

    def __init__(self, loss: str):
        self.loss = loss

    def perform(self, node, inputs, output_storage):
        value, gradient = LOSSES[self.loss](*inputs)
        output_storage[0][0] = np.asarray(value)
        output_storage[1][0] = gradient


class ComparisonRisk(ExactOp):
    """Exact risk of one score vector for any kind of comparison, whose arrays are further inputs."""

    __props__ = ("kind", "ties")

    def __init__(self, kind: ComparisonKind, ties: str):
        self.kind, self.ties = kind, ties
        self.gufunc_signature = f"{','.join(['(n)'] * (1 + len(kind.arrays)))}->()"

    def cast_labels(self, labels):
        return labels

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = self.evaluate(*inputs)

    def evaluate(self, scores, *arrays):
        comparison = self.kind.comparison(*arrays)
        return np.asarray(comparison_risk(np.ascontiguousarray(scores)[None], comparison, ties=self.ties)[0])


class ComparisonSurrogate(SurrogateOp):
    """A surrogate of :class:`ComparisonRisk`, and its gradient as second output."""

    __props__ = ("kind", "loss")

    def __init__(self, kind: ComparisonKind, loss: str):
        self.kind, self.loss = kind, loss
        self.gufunc_signature = f"{','.join(['(n)'] * (1 + len(kind.arrays)))}->(),(n)"

    def cast_labels(self, labels):
        return labels

    def perform(self, node, inputs, output_storage):
        output_storage[0][0], output_storage[1][0] = self.evaluate(*inputs)

    def evaluate(self, scores, *arrays):
        pairs = self.kind.comparison(*arrays)
        assert isinstance(pairs, Pairs)  # a partial AUC has no surrogate
        value, gradient = pairs_surrogate(np.ascontiguousarray(scores), pairs, self.loss)
        return np.asarray(value), gradient


def batch_risk(scores, labels, ties):
    """Risk of ``scores[..., n]`` for ``labels[..., n]``, which broadcast; NaN where a class is missing."""
    if scores.shape[-1] != labels.shape[-1]:
        raise ValueError("scores and labels have different lengths.")
    batch = np.broadcast_shapes(scores.shape[:-1], labels.shape[:-1])
    n = scores.shape[-1]
    if labels.size > n:  # labels differ along the batch: one row at a time
        rows = zip(*(np.broadcast_to(x, (*batch, n)).reshape(-1, n) for x in (scores, labels)), strict=True)
        return np.array([batch_risk(s, y, ties) for s, y in rows]).reshape(batch)
    found = two_class_risk(np.ascontiguousarray(scores).reshape(-1, n), labels.reshape(n) > 0, ties=ties)
    return np.broadcast_to(found.reshape(scores.shape[:-1]), batch)


risk_half = partial(batch_risk, ties="half")
risk_strict = partial(batch_risk, ties="strict")


class Product(Dot):
    """A matrix product that numba code leaves to NumPy; see :class:`ProductsOfScores`."""

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = np.dot(*inputs)


@register_funcify_default_op_cache_key(ExactOp)
@register_funcify_default_op_cache_key(ComparisonSurrogate)
@register_funcify_default_op_cache_key(Product)
def call_perform(op, node=None, **kwargs):
    """Call ``op.perform`` from numba code: 0.1 s to compile, 5 microseconds a call.

    Native code of a risk would be compiled anew for every model. What numba keeps on disk holds ``op``, not its code.
    """
    outputs = [get_numba_type(output.type) for output in node.outputs]
    single = len(outputs) == 1
    returned = outputs[0] if single else types.Tuple(outputs)

    def perform(inputs):
        storage = [[None]] if single else [[None], [None]]
        op.perform(None, inputs, storage)
        return storage[0][0] if single else (storage[0][0], storage[1][0])

    @numba_njit
    def perform_in_python(*inputs):
        with objmode(found=returned):
            found = perform(inputs)
        return found

    return perform_in_python, KERNEL_VERSION


@register_funcify_default_op_cache_key(SurrogateRisk)
def numba_funcify_surrogate_risk(op, node=None, **kwargs):
    kernel = LOSSES[op.loss]

    @numba_njit
    def surrogate_risk(scores, labels):
        value, gradient = kernel(np.ascontiguousarray(scores), labels)
        return np.asarray(value), gradient

    return surrogate_risk, KERNEL_VERSION


class ProductsOfScores(GraphRewriter):
    """Replaces the matrix products that make scores, such as ``X @ theta``, by :class:`Product` on numba's linker.

    PyTensor 3 compiles a product for 20 CPU seconds, on each machine and for each layout of the matrix. Products that
    feed no exact risk are left alone: gradients of surrogates are worth native code.
    """

    def apply(self, fgraph):
        scores = [node.inputs[0] for node in fgraph.apply_nodes if isinstance(core_op(node.op), ExactOp)]
        for variable in list(ancestors(scores)):
            if variable.owner is not None and type(variable.owner.op) is Dot:
                fgraph.replace(variable, Product()(*variable.owner.inputs), reason="products_of_scores")


optdb.register("pymc_pacauc_products_of_scores", ProductsOfScores(), "numba", position=60)  # no Dot appears later


class RegisterWithJax(GraphRewriter):
    """Register the Ops with JAX's linker when a graph is first compiled for it; rewrites nothing.

    PyTensor looks Ops up in a dispatcher that imports JAX. Importing JAX always would be slow, and its threads are
    incompatible with the forks of ``pm.sample(cores=...)``; rewrites tagged "jax" run for that linker only.
    """

    def apply(self, fgraph):
        import_module("pymc_pacauc.model.jax_dispatch")


optdb.register("pymc_pacauc_register_with_jax", RegisterWithJax(), "jax", position=0)
