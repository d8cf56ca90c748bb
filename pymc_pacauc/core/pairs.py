"""Which pairs of observations are compared.

The AUC risk is an average over pairs (i, j), i positive and j negative: the pair is wrong when i scores below j.
The set of all such pairs is a *complete bipartite block*, and so are the pieces of its relatives (ordered classes:
one block per class against all lower ones; strata: one block per stratum). Every engine of this package
loops over the blocks of a :class:`Pairs` and never looks at labels again, so a new kind of comparison is a new
function here and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Block", "Pairs", "bipartite", "distinct_labels", "encode_labels"]


@dataclass(frozen=True, eq=False)
class Block:
    """A complete bipartite block: every ``positive`` index is compared with every ``negative`` index."""

    positive: NDArray[np.intp]
    negative: NDArray[np.intp]

    @property
    def n_pairs(self) -> int:
        return self.positive.size * self.negative.size


@dataclass(frozen=True, eq=False)
class Pairs:
    """The pairs a risk averages over: ``blocks`` of indices into ``n`` observations."""

    n: int
    blocks: tuple[Block, ...]

    @property
    def n_pairs(self) -> int:
        return sum(block.n_pairs for block in self.blocks)

    def map(self, index: NDArray[np.intp], n: int) -> Pairs:
        """The same pairs, with observation ``i`` found at position ``index[i]`` of an array of length ``n``."""
        return Pairs(n, tuple(Block(index[b.positive], index[b.negative]) for b in self.blocks))

    def among(self, chosen: NDArray[np.bool_]) -> Pairs:
        """The pairs of which both observations are chosen."""
        blocks = (Block(b.positive[chosen[b.positive]], b.negative[chosen[b.negative]]) for b in self.blocks)
        return Pairs(self.n, tuple(block for block in blocks if block.n_pairs))

    def __repr__(self) -> str:
        sizes = ", ".join(f"{b.positive.size} x {b.negative.size}" for b in self.blocks)
        return f"Pairs(n={self.n}, blocks=[{sizes}])"


def encode_labels(y: ArrayLike, positive: Any = None) -> NDArray[np.bool_]:
    """Return the boolean mask of the positive class.

    Labels may be booleans, {0, 1}, {-1, 1}, or any two values when ``positive`` names the positive one: strings,
    numbers, dates, enumerations, categories. They are compared exactly, as Python compares values: the label ``1`` is
    neither ``"1"`` nor, among integers above 2^53, its neighbour.

    Examples
    --------
    >>> encode_labels([-1, 1, 1])
    array([False,  True,  True])
    >>> encode_labels(["sick", "well", "sick"], positive="sick")
    array([ True, False,  True])
    """
    classes, place = distinct_labels("y", y)
    if len(classes) > 2:
        shown = ", ".join(map(str, classes[:5])) + (", ..." if len(classes) > 5 else "")
        raise ValueError(
            f"y has {len(classes)} distinct values ({shown}); the AUC compares two classes. "
            "Recode y, for example y == value for one class against the rest."
        )
    chosen = _understood(classes) if positive is None else _named(classes, positive)
    if len(classes) < 2:
        raise ValueError(
            f"y has one class only (all {place.size} labels are {classes[0]!s}); "
            "the AUC needs at least one positive and one negative observation."
        )
    return place == chosen


def bipartite(y: ArrayLike, positive: Any = None) -> Pairs:
    """All pairs of one positive and one negative observation: the AUC's own."""
    mask = encode_labels(y, positive)
    return Pairs(mask.size, (Block(np.flatnonzero(mask), np.flatnonzero(~mask)),))


def distinct_labels(name: str, values: ArrayLike) -> tuple[list[Any], NDArray[np.intp]]:
    """The distinct ``values``, compared exactly, and which of them each value is; nothing may be missing."""
    labels = _label_array(name, values)
    missing = _count_missing(values, labels)
    if missing:
        raise ValueError(
            f"{name} has {missing} missing value(s) out of {labels.size}: drop or impute those observations."
        )
    if labels.dtype != object:
        distinct = np.unique(labels)
        place = np.searchsorted(distinct, labels)
        return list(distinct) if labels.dtype.kind in "mM" else distinct.tolist(), place
    seen: dict[Any, int] = {}
    try:
        place = np.array([seen.setdefault(value, len(seen)) for value in labels.tolist()], dtype=np.intp)
    except TypeError as error:
        raise ValueError(f"{name} must be one-dimensional, one label per observation; it has an {error}.") from error
    return [value.item() if isinstance(value, np.generic) else value for value in seen], place


def _label_array(name: str, values: ArrayLike) -> NDArray[Any]:
    """One-dimensional labels: an array keeps its type, anything else keeps its values, as objects."""
    labels = np.asarray(values, dtype=None if hasattr(values, "__array__") else object)
    if labels.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, one label per observation; got shape {labels.shape}.")
    if labels.size == 0:
        raise ValueError(f"{name} is empty: there is nothing to rank.")
    return labels if labels.dtype.kind in "biufcmMUS" else labels.astype(object)


def _count_missing(values: ArrayLike, labels: NDArray[Any]) -> int:
    if np.ma.is_masked(values):
        return int(np.ma.count_masked(values))
    if labels.dtype.kind in "fc":
        return int(np.isnan(labels).sum())
    if labels.dtype.kind in "mM":
        return int(np.isnat(labels).sum())
    if labels.dtype == object:
        return sum(value is None or value is np.ma.masked or _differs_from_itself(value) for value in labels.tolist())
    return 0


def _differs_from_itself(value: Any) -> bool:
    """As NaN does; a comparison without an answer (pandas' NA) counts too."""
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        return True


def _understood(classes: list[Any]) -> int:
    """Which of the classes is positive when nobody said."""
    numbers = all(isinstance(value, (bool, int, float)) and value in (-1, 0, 1) for value in classes)
    if not numbers:
        raise ValueError(
            f"y has the values {_shown(classes)}; only bool, {{0, 1}} and {{-1, 1}} are understood by themselves. "
            "Say which value is the positive class with positive=."
        )
    if {-1, 0} <= set(classes):
        raise ValueError("y has the values -1 and 0; say which is positive with positive=.")
    return int(np.argmax(classes))


def _named(classes: list[Any], positive: Any) -> int:
    """Which of the classes equals ``positive``."""
    if isinstance(positive, (list, set, dict)) or getattr(positive, "ndim", 0) > 0:
        raise ValueError(
            f"positive must be one of the two labels, {_shown(classes)}; got a {type(positive).__name__}. "
            "To call several labels positive, recode y first, for example np.isin(y, [...])."
        )
    value = positive.item() if isinstance(positive, np.ndarray) else positive
    for place, label in enumerate(classes):
        if _equal(label, value):
            return place
    raise ValueError(f"positive={positive!r} does not occur in y; its values are {_shown(classes)}.")


def _equal(label: Any, value: Any) -> bool:
    try:
        if isinstance(label, (np.datetime64, np.timedelta64)):
            value = type(label)(value)  # a string, a date or a pandas time stamp
        elif isinstance(value, np.generic):
            value = value.item()  # Python compares an integer with a float exactly, NumPy does not
        return bool(label == value)
    except (TypeError, ValueError, OverflowError):
        return False


def _shown(classes: list[Any]) -> str:
    return f"[{', '.join(str(value) if isinstance(value, np.generic) else repr(value) for value in classes)}]"
