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

__all__ = ["Block", "Pairs", "bipartite", "encode_labels"]


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

    Labels may be booleans, {0, 1}, {-1, 1}, or any two values when ``positive`` names the positive one.

    Examples
    --------
    >>> encode_labels([-1, 1, 1])
    array([False,  True,  True])
    >>> encode_labels(["sick", "well", "sick"], positive="sick")
    array([ True, False,  True])
    """
    try:
        labels = np.asarray(y)
    except ValueError as error:
        raise ValueError("y must be one-dimensional, one label per observation; it is ragged.") from error
    if labels.ndim != 1:
        raise ValueError(f"y must be one-dimensional, one label per observation; got shape {labels.shape}.")
    if labels.size == 0:
        raise ValueError("y is empty: there is nothing to rank.")
    missing = _count_missing(labels)
    if missing:
        raise ValueError(f"y has {missing} missing value(s) out of {labels.size}: drop or impute those observations.")
    if labels.dtype == object:
        inferred = np.array(labels.tolist())
        labels = inferred if inferred.ndim == 1 and inferred.dtype != object else labels.astype(str)
    classes = np.unique(labels)
    if classes.size > 2:
        shown = ", ".join(map(str, classes[:5])) + (", ..." if classes.size > 5 else "")
        raise ValueError(
            f"y has {classes.size} distinct values ({shown}); the AUC compares two classes. "
            "Recode y, for example y == value for one class against the rest."
        )
    if positive is not None:
        mask = np.asarray(labels == (str(positive) if labels.dtype.kind == "U" else positive), dtype=bool)
        if mask.shape != labels.shape or not mask.any():
            raise ValueError(f"positive={positive!r} does not occur in y; its values are {classes.tolist()}.")
    elif labels.dtype == np.bool_ or (labels.dtype.kind in "iuf" and set(classes.tolist()) <= {-1, 0, 1}):
        if labels.dtype != np.bool_ and {-1, 0} <= set(classes.tolist()):
            raise ValueError("y has the values -1 and 0; say which is positive with positive=.")
        mask = labels > 0 if labels.dtype != np.bool_ else labels
    else:
        raise ValueError(
            f"y has the values {classes.tolist()}; only bool, {{0, 1}} and {{-1, 1}} are understood by themselves. "
            "Say which value is the positive class with positive=."
        )
    if classes.size < 2:
        raise ValueError(
            f"y has one class only (all {labels.size} labels are {classes[0]!s}); "
            "the AUC needs at least one positive and one negative observation."
        )
    return mask


def bipartite(y: ArrayLike, positive: Any = None) -> Pairs:
    """All pairs of one positive and one negative observation: the AUC's own."""
    mask = encode_labels(y, positive)
    return Pairs(mask.size, (Block(np.flatnonzero(mask), np.flatnonzero(~mask)),))


def _count_missing(labels: NDArray[Any]) -> int:
    if labels.dtype.kind == "f":
        return int(np.isnan(labels).sum())
    if labels.dtype == object:
        return sum(value is None or _differs_from_itself(value) for value in labels.tolist())
    return 0


def _differs_from_itself(value: Any) -> bool:
    """As NaN does; a comparison without an answer (pandas' NA) counts too."""
    try:
        return bool(value != value)
    except TypeError:
        return True
