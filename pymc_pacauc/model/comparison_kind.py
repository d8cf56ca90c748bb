"""What a potential compares, apart from the arrays: the part that is fixed when the model is written.

The arrays (labels, times, events, strata, weights) are inputs of the Ops and may be ``pm.Data``; a
:class:`ComparisonKind` says which of them there are and how to read them, and builds the pairs from their values. Pairs
of the arrays seen last are remembered, since a model is evaluated again and again with the same ones.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from pymc_pacauc.core.comparisons import Comparison, label_comparison
from pymc_pacauc.core.concordance import concordance

__all__ = ["TWO_CLASSES", "ComparisonKind"]

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
