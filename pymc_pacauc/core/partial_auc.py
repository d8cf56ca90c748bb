"""The partial AUC: the area under the ROC curve left of a largest false positive rate.

    risk = 1 - (area under the curve up to max_fpr) / max_fpr

is 0 for a perfect score, and the AUC risk itself for ``max_fpr = 1``. Only the highest negatives count, those within
the fraction ``max_fpr`` of their weight; *which* they are depends on the scores, so this is an average over no fixed
set of pairs: there are no sites for EP, and no bound from matchings of pairs. Where several observations tie, the curve
is a straight line, which is cut where the line crosses ``max_fpr``. scikit-learn's
``roc_auc_score(y, scores, max_fpr=f)`` is the affine map of it that gives a random score 1/2 (McClish, 1989):

    (1 + (f (1 - risk) - f^2/2) / (f - f^2/2)) / 2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.core.kernels import kernel

__all__ = ["PartialAUC", "check_max_fpr"]

FloatArray = NDArray[np.float64]

TILE_SCORES = 2**18


@dataclass(frozen=True, eq=False)
class PartialAUC:
    """Two classes, compared up to a false positive rate; ``weights`` of observations, or None."""

    positive: NDArray[np.bool_]
    weights: FloatArray | None
    max_fpr: float

    kind = "partial AUC"
    skipped_strata = 0

    def __post_init__(self) -> None:
        check_max_fpr(self.max_fpr)

    @property
    def n(self) -> int:
        return self.positive.size

    @property
    def total_weight(self) -> float:
        weights = np.ones(self.n) if self.weights is None else self.weights
        return float(weights[self.positive].sum() * weights[~self.positive].sum())

    def among(self, chosen: NDArray[np.bool_]) -> PartialAUC:
        """The partial AUC of the observations chosen: the others weigh nothing."""
        weights = np.ones(self.n) if self.weights is None else self.weights
        return replace(self, weights=np.where(chosen, weights, 0.0))

    def risk(self, scores: FloatArray) -> FloatArray:
        """Risk of each row of ``scores[N, n]``; NaN where a score is NaN."""
        weights = np.ones(self.n) if self.weights is None else self.weights
        out = np.empty(len(scores))
        step = max(1, TILE_SCORES // self.n)
        for start in range(0, len(scores), step):
            part = scores[start : start + step]
            out[start : start + step] = _risks(part, np.argsort(part, axis=1), self.positive, weights, self.max_fpr)
        return out


def check_max_fpr(value: Any) -> None:
    if not (np.ndim(value) == 0 and isinstance(value, int | float | np.number) and 0.0 < value <= 1.0):
        raise ValueError(f"max_fpr is the largest false positive rate, in (0, 1]; got {value!r}.")


@kernel
def _risks(scores, order, positive, weights, max_fpr):
    n = scores.shape[1]
    out = np.empty(scores.shape[0])
    all_positive = all_negative = 0.0
    for i in range(n):
        if positive[i]:
            all_positive += weights[i]
        else:
            all_negative += weights[i]
    goal = max_fpr * all_negative
    for r in range(scores.shape[0]):
        row, ranked = scores[r], order[r]
        if np.isnan(row[ranked[n - 1]]):  # NaN sorts last
            out[r] = np.nan
            continue
        true = false = area = 0.0  # weight of the positives and negatives passed, from the highest score down
        k = n - 1
        while k >= 0 and false < goal:
            value = row[ranked[k]]
            more_true = more_false = 0.0
            while k >= 0 and row[ranked[k]] == value:
                if positive[ranked[k]]:
                    more_true += weights[ranked[k]]
                else:
                    more_false += weights[ranked[k]]
                k -= 1
            share = 1.0 if false + more_false <= goal else (goal - false) / more_false
            area += share * more_false * (true + 0.5 * share * more_true)
            true += more_true
            false += more_false
        out[r] = 1.0 - area / (goal * all_positive)
    return out
