"""From the arguments of a potential to the inputs of its Op: arrays as they are given, or ``pm.Data`` of them.

Whatever has a value already is checked here, before any work; ``pm.Data`` are checked again when they are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.distribution import SymbolicRandomVariable
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_pacauc.core.comparisons import Comparison, label_comparison
from pymc_pacauc.core.concordance import concordance
from pymc_pacauc.core.pairs import distinct_labels, encode_labels
from pymc_pacauc.core.partial_auc import check_max_fpr
from pymc_pacauc.core.risk import check_ties
from pymc_pacauc.core.surrogate import LOSSES
from pymc_pacauc.model.comparison_kind import TWO_CLASSES, ComparisonKind
from pymc_pacauc.model.op import AUCRisk, ComparisonRisk, ComparisonSurrogate, SurrogateRisk

__all__ = ["Compared", "compared_labels", "compared_times", "score_tensor"]


@dataclass(frozen=True, eq=False)
class Compared:
    """What scores are compared by: the kind, its arrays as tensors, and the pairs where all have a value."""

    kind: ComparisonKind
    tensors: tuple[TensorVariable, ...]
    comparison: Comparison | None

    def risk(self, scores: TensorVariable, ties: str) -> TensorVariable:
        """The exact risk of ``scores[..., n]``."""
        check_ties(ties)
        if self.kind.max_fpr is not None and ties != "half":
            raise ValueError('A partial AUC is an area: ties="half" is the only convention it has.')
        self._check_lengths(scores)
        for variable in ancestors([scores]):  # PyMC asks step methods about one variable at a time: let them know
            if variable.owner is not None and isinstance(variable.owner.op, RandomVariable | SymbolicRandomVariable):
                variable.tag.feeds_auc_risk = True
        op = AUCRisk(ties) if self.kind == TWO_CLASSES else ComparisonRisk(self.kind, ties)
        return Blockwise(op)(scores, *self.tensors)

    def surrogate(self, scores: TensorVariable, loss: str) -> TensorVariable:
        """A mean convex loss, never below the risk."""
        if loss not in LOSSES:
            raise ValueError(f"loss must be {' or '.join(map(repr, LOSSES))}; got {loss!r}.")
        if self.kind.max_fpr is not None:
            raise ValueError("A partial AUC is an average over no fixed set of pairs, so it has no surrogate.")
        self._check_lengths(scores)
        op = SurrogateRisk(loss) if self.kind == TWO_CLASSES else ComparisonSurrogate(self.kind, loss)
        return Blockwise(op)(scores, *self.tensors)[0]

    def _check_lengths(self, scores: TensorVariable) -> None:
        n = scores.type.shape[-1]
        for name, tensor in zip(self.kind.arrays, self.tensors, strict=True):
            if None not in (n, tensor.type.shape[-1]) and n != tensor.type.shape[-1]:
                raise ValueError(
                    f"scores has {n} observations along its last axis but {name} has {tensor.type.shape[-1]}."
                )


def compared_labels(
    y: Any,
    *,
    positive: Any = None,
    strata: Any = None,
    weights: Any = None,
    ordered: bool | Mapping[tuple[float, float], float] = False,
    max_fpr: float | None = None,
) -> Compared:
    """Labels, with the options of :func:`~pymc_pacauc.empirical_risk`."""
    if max_fpr is not None:
        check_max_fpr(max_fpr)
    values = {"y": _value(y), "strata": _value(strata), "weights": _value(weights)}
    given = {"y": y, "strata": strata, "weights": weights}
    options: dict[str, Any] = {"positive": positive, "ordered": ordered, "max_fpr": max_fpr}
    comparison = None
    if all(values[name] is not None for name in given if given[name] is not None):
        comparison = label_comparison(values["y"], strata=values["strata"], weights=values["weights"], **options)
    kind = ComparisonKind(
        tuple(name for name in given if given[name] is not None),
        ordered=ordered is not False,
        class_weights=tuple(ordered.items()) if isinstance(ordered, Mapping) else None,
        max_fpr=max_fpr,
    )
    labels = _numbers("y", y) if kind.ordered else _mask(y, positive)
    return Compared(kind, (labels, *_further(given)), comparison)


def compared_times(
    time: Any, event: Any, *, strata: Any = None, weights: Any = None, tau: float | None = None
) -> Compared:
    """Censored times, with the options of :func:`~pymc_pacauc.concordance_risk`."""
    ipcw = isinstance(weights, str)
    given = {"time": time, "event": event, "strata": strata, "weights": None if ipcw else weights}
    values = {name: _value(each) for name, each in given.items()}
    comparison = None
    if all(values[name] is not None for name in given if given[name] is not None):
        comparison = concordance(
            values["time"],
            values["event"],
            strata=values["strata"],
            weights=weights if ipcw else values["weights"],
            tau=tau,
        )
    kind = ComparisonKind(tuple(name for name in given if given[name] is not None), ipcw=ipcw, tau=tau)
    return Compared(kind, (_numbers("time", time), _numbers("event", event), *_further(given)), comparison)


def score_tensor(scores: Any) -> TensorVariable:
    """Scores as a tensor of float64 with at least one dimension."""
    try:
        tensor = pt.as_tensor(scores)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise TypeError(
            f"scores must be a numeric PyTensor expression or array; got {type(scores).__name__}."
        ) from error
    if tensor.type.ndim == 0:
        raise ValueError("scores is a single number; it needs one score per observation along its last axis.")
    if tensor.type.dtype.startswith("complex"):
        raise TypeError(f"scores must be real numbers; their dtype is {tensor.type.dtype}.")
    return pt.cast(tensor, "float64")


def _value(given: Any) -> Any:
    """What is known of an argument now; None for expressions without a value, and for what was not given."""
    if isinstance(given, SharedVariable):
        return given.get_value()
    return None if isinstance(given, Variable) else given


def _mask(y: Any, positive: Any) -> TensorVariable:
    """The positive class, as int8."""
    if not isinstance(y, Variable):
        return pt.as_tensor(encode_labels(y, positive).astype(np.int8))
    _check_vector("y", y)
    return pt.cast(y > 0 if positive is None else pt.eq(y, positive), "int8")


def _numbers(name: str, given: Any) -> TensorVariable:
    if isinstance(given, Variable):
        _check_vector(name, given)
        return given
    array: NDArray[Any] = np.asarray(given)
    return pt.as_tensor(array if array.dtype.kind == "b" else array.astype(np.float64))


def _further(given: Mapping[str, Any]) -> list[TensorVariable]:
    found = []
    if given["strata"] is not None:
        strata = given["strata"]
        known = isinstance(strata, Variable)
        found.append(_numbers("strata", strata) if known else pt.as_tensor(distinct_labels("strata", strata)[1]))
    if given["weights"] is not None:
        found.append(_numbers("weights", given["weights"]))
    return found


def _check_vector(name: str, given: Variable) -> None:
    if given.type.ndim != 1:
        what = "label" if name == "y" else "value"
        raise ValueError(
            f"{name} must be one-dimensional, one {what} per observation; it has {given.type.ndim} dimensions."
        )
