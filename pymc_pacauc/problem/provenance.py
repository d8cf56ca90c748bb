"""What a posterior was fitted to: written when it is computed, and carried by the result from then on.

A certificate needs the class sizes, a summary the gamma. None of this can be looked up later: a model's ``pm.Data``
change. So every result holds a :class:`Provenance`, and every idata its fields as variables ``fitted_*`` of
``sample_stats``, numbers all, which survive slicing, thinning, concatenation and files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_pacauc.comparison.kinds import Comparison
from pymc_pacauc.comparison.pairs import KINDS, Pairs
from pymc_pacauc.comparison.sizes import compared_share, effective_size, group_codes
from pymc_pacauc.problem.problem import Problem

METHODS = ("EP", "GaussianVB", "TemperingSMC")
TIES = ("half", "strict")
PREFIX = "fitted_"
COMPARISONS = (*KINDS, "partial AUC")
CODES: dict[str, tuple[str, ...]] = {"method": METHODS, "ties": TIES, "comparison": COMPARISONS}
FLOATS = ("gamma", "m_eff", "compared", "mean_error", "log_evidence_error")
NOT_COMPARED = (
    "method",
    "standardized",
    "tuned_prior",
    "pairs_used",
    "mean_error",
    "log_evidence_error",
    "pairs",
    "sample_features",
    "groups",
    "priors",
    "own_scales",
)


@dataclass(frozen=True)
class Provenance:
    """What a posterior was fitted to.

    Attributes
    ----------
    method
        ``"EP"``, ``"GaussianVB"`` or ``"TemperingSMC"``.
    gamma
        Inverse temperature; with several AUC terms the sum of theirs, ``risk`` being their mean by gamma.
    n_pos, n_neg
        Class sizes (of the first term, where there are several). For ordered classes, observations above the lowest
        class, and those in it; for censored times, events that are compared, and the others.
    comparison
        What is compared: ``"two classes"``, ``"ordered classes"``, ``"unordered classes"``, ``"censored times"``,
        ``"partial AUC"`` or ``"other pairs"``.
    m_eff
        Independent comparisons that a bound counts, see :mod:`pymc_pacauc.comparison.sizes`; 0 where there is none.
    compared
        The share of all pairs of observations that are compared, where all of these weigh the same; else 0.
    coefficients
        Number of free parameters.
    ties
        Cost convention of tied pairs.
    terms
        Number of AUC terms.
    only_auc
        Whether the AUC terms are all there is besides the prior.
    standardized
        Whether the covariates look as if they had been standardised with this very sample.
    tuned_prior
        Whether the prior was chosen on these data, by :func:`~pymc_pacauc.maximize_evidence`,
        :func:`~pymc_pacauc.choose_lengthscale` or an estimator.
    data
        A fingerprint of labels, covariates and prior.
    pairs_used
        How many pairs the fit looked at, where these were a subsample; 0 where it was all of them.
    mean_error, log_evidence_error
        What that does to the posterior mean, in posterior standard deviations, and to the log evidence.
    pairs
        A fingerprint of which rows are compared with which, and with what weights; 0 where it is not known.
    sample_features
        Whether the scores are of kernel features that were made from rows of this very sample.
    groups
        How many groups of observations are the independent units; 0 where observations are.
    priors
        Among how many priors, fixed beforehand, an estimator chose this one on these data: certificates pay for it.
    own_scales
        Whether an estimator took scales of the columns, or their correlations for the prior, from these rows.
    """

    method: str
    gamma: float
    n_pos: int
    n_neg: int
    comparison: str
    m_eff: float
    compared: float
    coefficients: int
    ties: str
    terms: int
    only_auc: bool
    standardized: bool
    tuned_prior: bool
    data: int
    pairs_used: int = 0
    mean_error: float = 0.0
    log_evidence_error: float = 0.0
    pairs: int = 0
    sample_features: bool = False
    groups: int = 0
    priors: int = 1
    own_scales: bool = False

    def with_groups(self, comparison: Comparison, groups: ArrayLike) -> Provenance:
        """The record with groups of observations as the independent units, one label per observation."""
        number = int(group_codes(groups, comparison.n).max()) + 1
        return replace(self, m_eff=effective_size(comparison, groups), compared=0.0, groups=number)

    @property
    def measure(self) -> str:
        """What 1 - risk is called."""
        return measure_of(self.comparison)

    def as_stats(self) -> dict[str, float | int]:
        """The fields as numbers, for ``sample_stats``."""
        numbers = {}
        for name, value in asdict(self).items():
            numbers[PREFIX + name] = CODES[name].index(value) if name in CODES else value
        return {name: int(v) if isinstance(v, bool) else v for name, v in numbers.items()}

    @classmethod
    def stats_dtypes(cls) -> dict[str, type]:
        return {PREFIX + f.name: np.float64 if f.name in FLOATS else np.int64 for f in fields(cls)}

    @classmethod
    def from_stats(cls, stats: Mapping[str, Any]) -> Provenance:
        """Read back; an error where draws of different fits were mixed."""
        found: dict[str, Any] = {}
        for each in fields(cls):
            if PREFIX + each.name not in stats and each.default is not MISSING:
                continue  # of an older version
            values = np.unique(np.asarray(stats[PREFIX + each.name].values))
            if values.size != 1:
                raise ValueError(
                    f"These draws come from fits that differ in their {each.name.replace('_', ' ')} "
                    f"({', '.join(_show(each.name, v) for v in values)}): keep one of them."
                )
            value = values[0].item()
            if each.name in CODES:
                value = CODES[each.name][int(value)]
            elif each.type == "bool":
                value = bool(value)
            found[each.name] = value
        return cls(**found)

    def differences(self, other: Provenance) -> list[str]:
        """In words, what differs from another fit, besides the method."""
        names = {
            "n_pos": "positives",
            "n_neg": "negatives",
            "m_eff": "weights or strata",
            "data": "labels, covariates or prior",
        }
        found = []
        for each in fields(self):
            mine, theirs = getattr(self, each.name), getattr(other, each.name)
            if each.name in NOT_COMPARED or mine == theirs:
                continue
            if each.name in FLOATS and np.isclose(mine, theirs, rtol=1e-9):
                continue
            label = names.get(each.name, each.name)
            found.append(label if each.name == "data" else f"{label} ({mine} when fitted, {theirs} now)")
        return found


def measure_of(comparison: str) -> str:
    """What 1 - risk of a comparison is called: ``"AUC"``, ``"partial AUC"``, ``"M"`` or ``"concordance"``."""
    named = {"two classes": "AUC", "partial AUC": "partial AUC", "unordered classes": "M"}
    return named.get(comparison, "concordance")


def fitted_to_problem(problem: Problem, method: str) -> Provenance:
    """The record of a fit to arrays."""
    n_pos, n_neg = sides(problem.pairs)
    return Provenance(
        method=method,
        gamma=problem.gamma,
        n_pos=n_pos,
        n_neg=n_neg,
        comparison=problem.pairs.kind,
        m_eff=effective_size(problem.pairs),
        compared=compared_share(problem.pairs),
        coefficients=problem.d,
        ties=problem.ties,
        terms=1,
        only_auc=True,
        standardized=looks_standardized(problem.X),
        tuned_prior=problem.tuned_prior,
        data=fingerprint([problem.X, problem.offset, problem.prior.mean, problem.prior.factor]),
        pairs=pair_fingerprint([problem.pairs]),
    )


def pair_fingerprint(comparisons: Sequence[Comparison]) -> int:
    """A fingerprint of which rows are compared with which, and with what weights."""
    arrays: list[NDArray[Any]] = []
    for each in comparisons:
        if not isinstance(each, Pairs):
            arrays.append(np.asarray(each.positive))
            continue
        for block in each.blocks:
            order_a, order_b = np.argsort(block.positive), np.argsort(block.negative)
            arrays.append(np.concatenate([block.positive[order_a], [-1], block.negative[order_b]]))
            if not block.constant:
                arrays.append(np.concatenate([block.row_weights[order_a], block.column_weights[order_b]]))
    return fingerprint(arrays)


def sides(comparison: Comparison) -> tuple[int, int]:
    """How many observations should ever score higher than another, and how many are left."""
    if isinstance(comparison, Pairs):
        higher = np.zeros(comparison.n, dtype=bool)
        for block in comparison.blocks:
            higher[block.positive] = True
    else:
        higher = comparison.positive
    return int(higher.sum()), int((~higher).sum())


def looks_standardized(X: NDArray[np.float64]) -> bool:
    """Whether most columns are centred, scaled or ranked with their own rows: no prior fixed beforehand does that.

    Examples
    --------
    >>> X = np.random.default_rng(1).gamma(2.0, size=(50, 3))
    >>> [looks_standardized(x) for x in (X, X - X.mean(axis=0), X / X.std(axis=0, ddof=1), X / X.max(axis=0))]
    [False, True, True, True]
    """
    columns = [column for column in np.asarray(X, dtype=float).T if np.unique(column[:1000]).size > 3]
    if not columns or not np.isfinite(X).all():
        return False
    return float(np.mean([_standardized_column(column) for column in columns])) > 0.5


def _standardized_column(column: NDArray[np.float64]) -> bool:
    low, first, middle, third, high = np.quantile(column, [0.0, 0.25, 0.5, 0.75, 1.0])
    sd, size = column.std(), np.abs(column).max()
    close = 1e-6
    gaps = np.diff(np.unique(column))
    return bool(
        abs(column.mean()) < close * sd  # centred
        or min(abs(sd - 1.0), abs(column.std(ddof=1) - 1.0)) < close  # scaled
        or (abs(middle) < close * size and abs(third - first - 1.0) < close)  # centred and scaled by quantiles
        or (abs(low) < close and abs(high - 1.0) < close)
        or (abs(low + 1.0) < close and abs(high - 1.0) < close)
        or abs(size - 1.0) < close  # by the largest value
        or (gaps.size > 10 and np.ptp(gaps) < close * gaps.mean() and gaps.size > 0.9 * column.size)  # ranks
    )


def fingerprint(arrays: Sequence[NDArray[Any]]) -> int:
    """48 bits that two different sets of arrays hardly share; a float holds them exactly."""
    digests = sorted({hashlib.blake2b(np.ascontiguousarray(a + 0).tobytes(), digest_size=8).digest() for a in arrays})
    return int.from_bytes(hashlib.blake2b(b"".join(digests), digest_size=6).digest(), "big")


def _show(name: str, value: Any) -> str:
    return CODES[name][int(value)] if name in CODES else f"{value:g}"
