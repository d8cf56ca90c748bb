"""The risk of a comparison, and its surrogate losses, as PyTensor Ops.

All are core Ops of signature ``(n),(n),... -> ...`` with the labels as *inputs* after the scores, so that labels in
``pm.Data`` can be replaced; ``Blockwise`` batches them. The exact risk is piecewise constant: its gradient is declared
*undefined*, not zero, so that PyMC does not assign a gradient-based sampler to it.

A :class:`ComparisonKind` says which arrays there are (labels, times, events, strata, weights) and how to read them, and
builds the pairs from their values. The pairs of the last arrays are cached, since a model is evaluated many times with
the same ones.

All call the array functions, whose kernels are compiled once and cached on disk, from any linker. (Native code for the
surrogates of two classes would save 10 microseconds an evaluation, at any number of rows.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
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
from pymc_pacauc.comparison.kinds import label_comparison, unordered_classes
from pymc_pacauc.comparison.pairs import Pairs
from pymc_pacauc.comparison.risk import pair_risk
from pymc_pacauc.comparison.surrogate import surrogate_risk


@dataclass(frozen=True)
class ComparisonKind:
    """Names of the arrays in order, the first ``"y"`` or ``"time"``, and options that are no arrays.

    ``options`` are items of those of :func:`~pymc_pacauc.comparison.kinds.label_comparison` or
    :func:`~pymc_pacauc.comparison.censored.concordance`; a mapping as its items. ``of_class`` says that of so many
    unordered classes this one is compared with each other one, ``(which, how many)``.
    """

    arrays: tuple[str, ...]
    options: tuple[tuple[str, Any], ...] = ()
    of_class: tuple[int, int] | None = None

    def comparison(self, *values: NDArray[Any]) -> Pairs:
        """Return the pairs of these arrays; refuse arrays that cannot be compared, and say why."""
        return _comparison(self, *((v.dtype.str, v.shape, v.tobytes()) for v in values))

    def build(self, given: dict[str, Any]) -> Pairs:
        options = dict(self.options)
        if "time" in given:
            return concordance(**given, **options)
        if self.of_class is not None:
            which, number = self.of_class
            found = unordered_classes(**given)
            if len(found) != number:
                raise ValueError(
                    f"scores must have one column for each of the {len(found)} classes of y; got {number}."
                )
            return found[which]
        if "ordered" not in options:
            given["y"] = given["y"] > 0  # as it is in every graph
        return label_comparison(**given, **options)


@lru_cache(maxsize=8)
def _comparison(kind: ComparisonKind, *values: tuple[str, tuple[int, ...], bytes]) -> Pairs:
    """Build the comparison of arrays, cached by their contents: a sampler passes the same ones thousands of times."""
    arrays = (np.frombuffer(data, dtype).reshape(shape) for dtype, shape, data in values)
    return kind.build(dict(zip(kind.arrays, arrays, strict=True)))


TWO_CLASSES = ComparisonKind(("y",))


NO_GRADIENT = (
    "The AUC risk is piecewise constant in the scores, so NUTS and ADVI have nothing to follow: sample with "
    "pm.sample(step=pac.TemperingSMC()) or fit with pm.fit(method=pac.EP()); or replace the risk by a smooth surrogate,"
    ' pac.AUCPotential(..., loss="logistic").'
)


def core_op(op):
    """Return the Op that ``Blockwise`` repeats, or the Op itself."""
    return op.core_op if isinstance(op, Blockwise) else op


class PairOp(Op):
    """A function of one score vector and of the arrays of a comparison of some ``kind``, which have no gradient."""

    gradient = False  # whether the gradient in the scores is a second output

    def __init__(self, kind: ComparisonKind):
        self.kind = kind
        arrays = ",".join(["(n)"] * (1 + len(kind.arrays)))
        self.gufunc_signature = f"{arrays}->(),(n)" if self.gradient else f"{arrays}->()"

    def make_node(self, scores, *labels):
        tensors = [pt.as_tensor(each) for each in (scores, *labels)]
        if any(each.type.ndim != 1 for each in tensors):
            raise ValueError("scores and labels must be vectors; Blockwise adds batch dimensions.")
        tensors[0] = pt.cast(tensors[0], "float64")
        if self.kind == TWO_CLASSES:
            tensors[1] = pt.cast(tensors[1], "int8")
        return Apply(self, tensors, [pt.dscalar(), tensors[0].type()] if self.gradient else [pt.dscalar()])

    def evaluate(self, scores, *arrays):
        """Compute the outputs for one score vector, NaN where there is only one of two classes."""
        if self.kind == TWO_CLASSES:
            if scores.size != arrays[0].size:
                raise ValueError("scores and labels have different lengths.")
            if (arrays[0] > 0).all() or not (arrays[0] > 0).any():
                return [np.nan, np.full(scores.size, np.nan)] if self.gradient else [np.nan]
        return self.compare(np.ascontiguousarray(scores), self.kind.comparison(*arrays))

    def perform(self, node, inputs, output_storage):
        for storage, value in zip(output_storage, self.evaluate(*inputs), strict=True):
            storage[0] = np.asarray(value)

    def connection_pattern(self, node):
        return [[i == 0] * len(node.outputs) for i in range(len(node.inputs))]

    def pullback(self, inputs, outputs, cotangents):
        return [self.to_scores(inputs[0], outputs, cotangents), *(DisconnectedType()() for _ in inputs[1:])]

    L_op = pullback  # what PyTensor < 3 calls it


class AUCRisk(PairOp):
    """Exact risk of one score vector, without a gradient; see :func:`pymc_pacauc.empirical_risk`."""

    __props__ = ("ties", "kind")

    def __init__(self, ties: str, kind: ComparisonKind = TWO_CLASSES):
        super().__init__(kind)
        self.ties = ties

    def compare(self, scores, comparison):
        return pair_risk(scores[None], comparison, ties=self.ties)

    def to_scores(self, scores, outputs, cotangents):
        return grad_undefined(self, 0, scores, NO_GRADIENT)


class SurrogateRisk(PairOp):
    """The mean logistic loss of one score vector, and its gradient as second output."""

    __props__ = ("kind",)
    gradient = True

    def compare(self, scores, comparison):
        return surrogate_risk(scores, comparison)

    def to_scores(self, scores, outputs, cotangents):
        if not isinstance(cotangents[1].type, DisconnectedType):
            return grad_not_implemented(self, 0, scores, "No second derivatives.")
        return cotangents[0] * outputs[1]


class Product(Dot):
    """A matrix product that numba code leaves to NumPy; see :class:`ProductsOfScores`."""

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = np.dot(*inputs)


@register_funcify_default_op_cache_key(AUCRisk)
@register_funcify_default_op_cache_key(SurrogateRisk)
@register_funcify_default_op_cache_key(Product)
def call_perform(op, node=None, **kwargs):
    """Call ``op.perform`` from numba code: 0.1 s to compile, 5 microseconds a call.

    Native code of a risk would be compiled anew for every model. What numba keeps on disk holds ``op``, not its code,
    so that the version in the key of that cache never changes.
    """
    outputs = [get_numba_type(output.type) for output in node.outputs]
    returned = outputs[0] if len(outputs) == 1 else types.Tuple(outputs)

    def perform(inputs):
        storage = [[None] for _ in outputs]
        op.perform(None, inputs, storage)
        return storage[0][0] if len(outputs) == 1 else tuple(each[0] for each in storage)

    @numba_njit
    def perform_in_python(*inputs):
        with objmode(found=returned):
            found = perform(inputs)
        return found

    return perform_in_python, 7


class ProductsOfScores(GraphRewriter):
    """Replaces the matrix products that make scores, such as ``X @ theta``, by :class:`Product` on numba's linker.

    PyTensor 3 compiles a product for 20 CPU seconds, on each machine and for each layout of the matrix. Products that
    feed no exact risk are left alone: gradients of surrogates are worth native code.
    """

    def apply(self, fgraph):
        scores = [node.inputs[0] for node in fgraph.apply_nodes if isinstance(core_op(node.op), AUCRisk)]
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
