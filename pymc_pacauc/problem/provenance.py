"""Provenance of a posterior: a record of data, comparison, gamma and method, made at fit time and carried by results.

Certificates need class sizes, summaries need gamma, and a model's ``pm.Data`` may have changed by then. So every result
holds a :class:`Provenance`, and every idata its fields as numeric variables ``fitted_*`` of ``sample_stats``, which
survive slicing, thinning, concatenation and files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_pacauc.comparison.pairs import KINDS, Pairs, label_codes
from pymc_pacauc.comparison.sizes import effective_size
from pymc_pacauc.problem.problem import Problem

PREFIX = "fitted_"
CODES: dict[str, tuple[str, ...]] = {  # fields that are stored as positions in these lists
    "method": ("EP", "GaussianVB", "TemperingSMC"),
    "ties": ("half", "strict"),
    "comparison": KINDS,
}
IN_WORDS = {  # fields whose differences make two fits differ
    **{name: name for name in ("gamma", "comparison", "coefficients", "ties", "terms", "only_auc")},
    "n_pos": "positives",
    "n_neg": "negatives",
    "m_eff": "weights or strata",
    "data": "labels, covariates or prior",
}


@dataclass(frozen=True)
class Provenance:
    """Record of what a posterior was fitted to: data, comparison, gamma and method.

    Attributes
    ----------
    method : {"EP", "GaussianVB", "TemperingSMC"}
        How the posterior was computed.
    gamma : float
        Inverse temperature; with several AUC terms the sum of theirs, ``risk`` being their mean by gamma.
    n_pos, n_neg : int
        Class sizes (of the first term, where there are several). For ordered classes, observations above the lowest
        class, and those in it; for censored times, events that are compared, and the others.
    comparison : str
        What is compared: ``"two classes"``, ``"ordered classes"``, ``"unordered classes"``, ``"censored times"``,
        ``"partial AUC"`` or ``"other pairs"``.
    m_eff : float
        Independent comparisons that a bound counts, see :mod:`pymc_pacauc.comparison.sizes`; 0 where there is none.
    coefficients : int
        Number of free parameters.
    ties : {"half", "strict"}
        Cost convention of tied pairs.
    terms : int
        Number of AUC terms.
    only_auc : bool
        Whether the AUC terms are all there is besides the prior.
    standardized : bool
        Whether the covariates look as if they had been standardised with this very sample.
    tuned_prior : bool
        Whether the prior was chosen on these data, by :func:`~pymc_pacauc.maximize_evidence`,
        :func:`~pymc_pacauc.choose_lengthscale` or an estimator.
    data : int
        Fingerprint of labels, covariates and prior.
    pairs_used : int
        Number of pairs of the subsample that was fitted; 0 where all pairs were.
    mean_error, log_evidence_error : float
        Error from using a subset of pairs: of the posterior mean, in posterior standard deviations, and of the log
        evidence, in nats.
    pairs : int
        Fingerprint of which rows are compared with which, and with what weights; 0 where it is not known.
    sample_features : bool
        Whether the scores are of kernel features that were made from rows of this very sample.
    groups : int
        Number of groups of observations that are the independent units; 0 where observations are.
    priors : int
        Number of priors, fixed beforehand, among which an estimator chose this one; certificates count them.
    own_scales : bool
        Whether an estimator took scales of the columns, or their correlations for the prior, from these rows.

    See Also
    --------
    pymc_pacauc.certificate : Reads the record to know what a bound needs.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> X = np.array([[0.0], [1.0], [2.0]])
    >>> with pm.Model():
    ...     theta = pm.Normal("theta", size=1)
    ...     auc = pac.AUCPotential("auc", X @ theta, [0, 0, 1], gamma=3.0)
    ...     approx = pm.fit(method=pac.EP(), progressbar=False)
    >>> record = approx.fitted_to
    >>> record.method, record.comparison, record.n_pos, record.n_neg
    ('EP', 'two classes', 1, 2)
    """

    method: str
    gamma: float
    n_pos: int
    n_neg: int
    comparison: str
    m_eff: float
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

    def with_groups(self, comparison: Pairs, groups: ArrayLike) -> Provenance:
        """Count groups of observations as the independent units.

        Parameters
        ----------
        comparison : Pairs
            The pairs compared.
        groups : array_like, shape (n,)
            Group of each observation, such as its patient.

        Returns
        -------
        Provenance
            The record with ``groups`` and ``m_eff`` counted in groups.

        Raises
        ------
        ValueError
            If ``groups`` does not have one label for each observation, or a label is missing.

        See Also
        --------
        pymc_pacauc.certificate : Takes ``groups=`` and does this.

        Examples
        --------
        >>> from pymc_pacauc import arrays
        >>> from pymc_pacauc.problem.provenance import fitted_to_problem
        >>> problem = arrays.linear_gaussian_problem([[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1], gamma=2.0)
        >>> fitted_to_problem(problem, "EP").with_groups(problem.pairs, [1, 1, 2, 2]).groups
        2
        """
        number = int(label_codes("groups", groups, comparison.n).max()) + 1
        return replace(self, m_eff=effective_size(comparison, groups), groups=number)

    @property
    def measure(self) -> str:
        """Name of ``1 - risk``: ``"AUC"``, ``"partial AUC"`` or ``"concordance"``."""
        return measure_of(self.comparison)

    def as_stats(self) -> dict[str, float | int]:
        """Convert the fields into numbers, for ``sample_stats``.

        Returns
        -------
        dict of str to float or int
            A number for each field.

        See Also
        --------
        Provenance.from_stats : Read the numbers back.

        Examples
        --------
        >>> import xarray as xr
        >>> from pymc_pacauc import arrays
        >>> from pymc_pacauc.problem.provenance import Provenance, fitted_to_problem
        >>> record = fitted_to_problem(arrays.linear_gaussian_problem([[0.0], [1.0]], [0, 1], gamma=2.0), "EP")
        >>> Provenance.from_stats(xr.Dataset(record.as_stats())) == record
        True
        """
        numbers = {name: CODES[name].index(value) if name in CODES else value for name, value in asdict(self).items()}
        return {PREFIX + name: int(v) if isinstance(v, bool) else v for name, v in numbers.items()}

    @classmethod
    def stats_dtypes(cls) -> dict[str, type]:
        """List the numbers of :meth:`as_stats` with their types.

        Returns
        -------
        dict of str to type
            Name and NumPy type of each.

        See Also
        --------
        Provenance.as_stats : The numbers.

        Examples
        --------
        >>> from pymc_pacauc.problem.provenance import Provenance
        >>> len(Provenance.stats_dtypes()) > 20
        True
        """
        return {PREFIX + f.name: np.float64 if f.type == "float" else np.int64 for f in fields(cls)}

    @classmethod
    def from_stats(cls, stats: Mapping[str, Any]) -> Provenance:
        """Read the record back from ``sample_stats``.

        Parameters
        ----------
        stats : xarray.Dataset
            ``sample_stats`` of draws.

        Returns
        -------
        Provenance
            The record of the fit that the draws came from.

        Raises
        ------
        ValueError
            If draws of different fits were mixed, or the stats are not from this package.

        See Also
        --------
        Provenance.as_stats : Write the record as numbers.

        Examples
        --------
        >>> import xarray as xr
        >>> from pymc_pacauc import arrays
        >>> from pymc_pacauc.problem.provenance import Provenance, fitted_to_problem
        >>> record = fitted_to_problem(arrays.linear_gaussian_problem([[0.0], [1.0]], [0, 1], gamma=2.0), "EP")
        >>> Provenance.from_stats(xr.Dataset(record.as_stats())).n_pos
        1
        """
        found: dict[str, Any] = {}
        for each in fields(cls):
            if PREFIX + each.name not in stats and each.default is not MISSING:
                continue  # of an older version
            values = np.unique(np.asarray(stats[PREFIX + each.name].values)).tolist()
            if each.name in CODES:
                values = [CODES[each.name][int(value)] for value in values]
            if len(values) != 1:
                shown = ", ".join(value if isinstance(value, str) else f"{value:g}" for value in values)
                raise ValueError(
                    f"These draws come from fits that differ in their {each.name.replace('_', ' ')} ({shown}): keep "
                    "one of them."
                )
            found[each.name] = bool(values[0]) if each.type == "bool" else values[0]
        return cls(**found)

    def differences(self, other: Provenance) -> list[str]:
        """Say in words what differs from another fit, besides the method.

        Parameters
        ----------
        other : Provenance
            Record of the other fit.

        Returns
        -------
        list of str
            A phrase for each difference; empty where there is none.

        See Also
        --------
        pymc_pacauc.compare : Refuses fits whose data or gamma differ.

        Examples
        --------
        >>> from dataclasses import replace
        >>> from pymc_pacauc import arrays
        >>> from pymc_pacauc.problem.provenance import fitted_to_problem
        >>> record = fitted_to_problem(arrays.linear_gaussian_problem([[0.0], [1.0]], [0, 1], gamma=2.0), "EP")
        >>> record.differences(replace(record, gamma=3.0))
        ['gamma (2.0 when fitted, 3.0 now)']
        """
        return [
            words if name == "data" else f"{words} ({mine} when fitted, {theirs} now)"
            for name, words, mine, theirs in differing(self, other, IN_WORDS)
        ]


def differing(one: Provenance, other: Provenance, words: Mapping[str, str]) -> list[tuple[str, str, Any, Any]]:
    """Return the fields among the keys of ``words`` that differ: name, words, and both values."""
    values = [(name, said, getattr(one, name), getattr(other, name)) for name, said in words.items()]
    return [
        each
        for each in values
        if not (np.isclose(*each[2:], rtol=1e-9) if isinstance(each[2], float) else each[2] == each[3])
    ]


def measure_of(comparison: str) -> str:
    """Return the name of 1 - risk of a comparison: ``"AUC"``, ``"partial AUC"``, ``"M"`` or ``"concordance"``."""
    named = {"two classes": "AUC", "partial AUC": "partial AUC", "unordered classes": "M"}
    return named.get(comparison, "concordance")


def fitted_to_problem(problem: Problem, method: str) -> Provenance:
    """Make the record of a fit to arrays."""
    return Provenance(
        method=method,
        gamma=problem.gamma,
        **of_comparisons([problem.pairs]),
        coefficients=problem.d,
        ties=problem.ties,
        terms=1,
        only_auc=True,
        standardized=looks_standardized(problem.X),
        tuned_prior=problem.tuned_prior,
        data=fingerprint([problem.X, problem.offset, problem.prior.mean, problem.prior.factor]),
    )


def of_comparisons(comparisons: Sequence[Pairs], *, classes: bool = False) -> dict[str, Any]:
    """Return the fields of the record that say what is compared; ``classes``: by a term for each of several classes."""
    n_pos, n_neg = sides(comparisons[0])
    return {
        "n_pos": n_pos,
        "n_neg": n_neg,
        "comparison": "unordered classes" if classes else comparisons[0].kind,
        "m_eff": min(effective_size(each) for each in (comparisons if classes else comparisons[:1])),
        "pairs": pair_fingerprint(comparisons),
    }


def pair_fingerprint(comparisons: Sequence[Pairs]) -> int:
    """Compute a fingerprint of the pairs and their weights."""
    arrays: list[NDArray[Any]] = []
    for each in comparisons:
        for block in each.blocks:
            order_a, order_b = np.argsort(block.positive), np.argsort(block.negative)
            arrays.append(np.concatenate([block.positive[order_a], [-1], block.negative[order_b]]))
            if not block.constant:
                arrays.append(np.concatenate([block.row_weights[order_a], block.column_weights[order_b]]))
    return fingerprint(arrays)


def sides(comparison: Pairs) -> tuple[int, int]:
    """Count the observations that should score higher than some other, and the remaining ones."""
    return int(comparison.higher.sum()), int((~comparison.higher).sum())


def looks_standardized(X: NDArray[np.float64]) -> bool:
    """Return whether most columns look centred, scaled or ranked with their own rows.

    Examples
    --------
    >>> X = np.random.default_rng(1).gamma(2.0, size=(50, 3))
    >>> [looks_standardized(x) for x in (X, X - X.mean(axis=0), X / X.std(axis=0, ddof=1), X / X.max(axis=0))]
    [False, True, True, True]
    """
    step = -(-X.shape[1] // 50)  # at most 50 columns, evenly spread: each takes a sort of the rows, 10 ms at 100 000
    some = np.asarray(X, dtype=float).T[::step] if X.size else X.T
    columns = [column for column in some if np.unique(column[:1000]).size > 3]
    if not columns or not np.isfinite(X).all():
        return False
    return float(np.mean([_standardized_column(column) for column in columns])) > 0.5


def _standardized_column(column: NDArray[np.float64]) -> bool:
    first, middle, third = np.quantile(column, [0.25, 0.5, 0.75])
    sd, size = column.std(), np.abs(column).max()
    close = 1e-6
    gaps = np.diff(np.unique(column))
    return bool(
        abs(column.mean()) < close * sd  # centred
        or min(abs(sd - 1.0), abs(column.std(ddof=1) - 1.0)) < close  # scaled
        or (abs(middle) < close * size and abs(third - first - 1.0) < close)  # centred and scaled by quantiles
        or abs(size - 1.0) < close  # by the largest value, or from 0 or -1 to 1
        or (gaps.size > 10 and np.ptp(gaps) < close * gaps.mean() and gaps.size > 0.9 * column.size)  # ranks
    )


def fingerprint(arrays: Sequence[NDArray[Any]]) -> int:
    """Compute a 48-bit hash of a set of arrays; a float can hold it exactly."""
    digests = sorted({hashlib.blake2b(np.ascontiguousarray(a + 0).tobytes(), digest_size=8).digest() for a in arrays})
    return int.from_bytes(hashlib.blake2b(b"".join(digests), digest_size=6).digest(), "big")
