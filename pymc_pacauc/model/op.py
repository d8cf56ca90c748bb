"""What a potential compares, apart from the arrays: the part that is fixed when the model is written.

The arrays (labels, times, events, strata, weights) are inputs of the Ops and may be ``pm.Data``; a
:class:`ComparisonKind` says which of them there are and how to read them, and builds the pairs from their values. Pairs
of the arrays seen last are remembered, since a model is evaluated again and again with the same ones.

The AUC risk, its relatives and their surrogates as PyTensor Ops.

All are core Ops of signature ``(n),(n),... -> ...`` with the labels as *inputs* after the scores, so that labels held
in ``pm.Data`` can be replaced; ``Blockwise`` batches them. The exact risk is piecewise constant: its gradient is
declared *undefined* rather than zero, so that PyMC never assigns a gradient-based sampler to it.

Two classes have Ops that compile to native code on every linker. Every other comparison (strata, weights, ordered
classes, censored times, partial AUC) has two more, which call the array functions from whatever linker there is.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numba import objmode
from numpy.typing import NDArray
from pytensor.compile.mode import optdb
from pytensor.gradient import DisconnectedType, grad_not_implemented, grad_undefined
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key

from pymc_pacauc.comparison.censored import concordance
from pymc_pacauc.comparison.kinds import Comparison, label_comparison
from pymc_pacauc.comparison.pairs import Pairs
from pymc_pacauc.comparison.risk import comparison_risk, empirical_risk, vector_risk
from pymc_pacauc.comparison.surrogate import LOSSES
from pymc_pacauc.comparison.surrogate import surrogate_risk as pairs_surrogate

REMEMBERED = 8

_seen: OrderedDict[tuple[Any, ...], Comparison] = OrderedDict()


@dataclass(frozen=True)
class ComparisonKind:
    """Names of the arrays in order, the first ``"y"`` or ``"time"``, and options that are no arrays.

    ``class_weights`` are those of ordered classes, as items of a mapping.
    """

    arrays: tuple[str, ...]
    ordered: bool = False
    class_weights: tuple[tuple[tuple[float, float], float], ...] | None = None
    max_fpr: float | None = None
    ipcw: bool = False
    tau: float | None = None

    def comparison(self, *values: NDArray[Any]) -> Comparison:
        """The pairs of these arrays, or an error that says what is wrong with them."""
        key = (self, *((v.dtype.str, v.shape, v.tobytes()) for v in values))
        if key not in _seen:
            _seen[key] = self._build(dict(zip(self.arrays, values, strict=True)))
            while len(_seen) > REMEMBERED:
                _seen.popitem(last=False)
        _seen.move_to_end(key)
        return _seen[key]

    def _build(self, given: dict[str, NDArray[Any]]) -> Comparison:
        strata, weights = given.get("strata"), given.get("weights")
        if "time" in given:
            return concordance(
                given["time"], given["event"], strata=strata, weights="ipcw" if self.ipcw else weights, tau=self.tau
            )
        y = given["y"]
        if not self.ordered:
            y = y > 0  # as it is in every graph
        ordered = dict(self.class_weights) if self.class_weights is not None else self.ordered
        return label_comparison(y, strata=strata, weights=weights, ordered=ordered, max_fpr=self.max_fpr)


TWO_CLASSES = ComparisonKind(("y",))


NO_GRADIENT = (
    "The AUC risk is piecewise constant in the scores, so NUTS and ADVI have nothing to follow: sample with "
    "pm.sample(step=pac.TemperingSMC()) or fit with pm.fit(method=pac.EP()); or replace the risk by a smooth surrogate,"
    ' pac.AUCPotential(..., loss="logistic").'
)
KERNEL_VERSION = 3  # part of PyTensor's disk-cache key: bump with every change of a kernel


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
        scores, labels = map(np.ascontiguousarray, inputs)
        output_storage[0][0] = np.asarray(vector_risk(scores, labels, self.ties == "half"))


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
    positive = labels.reshape(n) > 0
    if positive.all() or not positive.any():
        return np.full(batch, np.nan)
    return empirical_risk(np.broadcast_to(scores, (*batch, n)), positive, ties=ties)


risk_half = partial(batch_risk, ties="half")
risk_strict = partial(batch_risk, ties="strict")


@register_funcify_default_op_cache_key(AUCRisk)
def numba_funcify_auc_risk(op, node=None, **kwargs):
    half = op.ties == "half"

    @numba_njit
    def auc_risk(scores, labels):
        return np.asarray(vector_risk(np.ascontiguousarray(scores), labels, half))

    return auc_risk, KERNEL_VERSION


@register_funcify_default_op_cache_key(SurrogateRisk)
def numba_funcify_surrogate_risk(op, node=None, **kwargs):
    kernel = LOSSES[op.loss]

    @numba_njit
    def surrogate_risk(scores, labels):
        value, gradient = kernel(np.ascontiguousarray(scores), labels)
        return np.asarray(value), gradient

    return surrogate_risk, KERNEL_VERSION


@register_funcify_default_op_cache_key(ComparisonRisk)
def numba_funcify_comparison_risk(op, node=None, **kwargs):
    def evaluate(inputs):
        return np.atleast_1d(op.evaluate(*inputs))

    @numba_njit
    def comparison_risk(*inputs):
        with objmode(value="float64[::1]"):
            value = evaluate(inputs)
        return np.asarray(value[0])

    return comparison_risk, KERNEL_VERSION


@register_funcify_default_op_cache_key(ComparisonSurrogate)
def numba_funcify_comparison_surrogate(op, node=None, **kwargs):
    def evaluate(inputs):
        value, gradient = op.evaluate(*inputs)
        return np.append(gradient, value)

    @numba_njit
    def comparison_surrogate(*inputs):
        with objmode(both="float64[::1]"):
            both = evaluate(inputs)
        return np.asarray(both[-1]), both[:-1].copy()

    return comparison_surrogate, KERNEL_VERSION


class RegisterWithJax(GraphRewriter):
    """Rewrites nothing: registers the Ops with JAX's linker when a graph is first compiled for it.

    PyTensor looks Ops up in a dispatcher that imports JAX. Importing JAX for everyone who has it would be slow, and its
    threads do not mix with the forks of ``pm.sample(cores=...)``; but rewrites tagged "jax" run for that linker alone.
    """

    def apply(self, fgraph):
        import_module("pymc_pacauc.model.jax_dispatch")


optdb.register("pymc_pacauc_register_with_jax", RegisterWithJax(), "jax", position=0)
