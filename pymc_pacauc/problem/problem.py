"""The one description an engine needs: which pairs, what scores, under which prior, at which gamma.

    target(theta) = prior(theta) * exp(-gamma * risk(X theta + offset))

The prior is Gaussian, or coefficients have independent priors of other kinds (:class:`PriorSites`), among them the
*spike and slab*: the same Gaussian, its slab, with a spike at zero. A :class:`Problem` is cheap to vary:
``dataclasses.replace(problem, gamma=...)`` or other pairs, or other spikes, share the scores and all that was worked
out about them.

To add a kind of prior, give its components or a :func:`tabulate` of its density as :class:`PriorSites`; to add a kind
of comparison, add a function to :mod:`pymc_pacauc.comparison.pairs`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_expit, logsumexp

from pymc_pacauc.comparison.pairs import Pairs, bipartite
from pymc_pacauc.comparison.risk import DistinctRows, LinearRisk, check_ties
from pymc_pacauc.numerics import FloatArray, Mask, numeric_array
from pymc_pacauc.problem.scores import GaussianPrior, LinearScores

Members = tuple[NDArray[np.intp], FloatArray]  # one side of a block: observations, and what each weighs

LEAST_INCLUSION = 0.1


class PriorSites:
    """Independent priors of coefficients, each a mixture of normals and of points, in units of the Gaussian prior.

    A density is as many points as its quadrature takes (:func:`tabulate`): sums over them are its integrals.

    Attributes
    ----------
    log_weight, centre, variance
        Of all components, one prior after the other, shape (K,); variance 0 for a point.
    first, last
        Where the components of each coefficient begin and end, shape (d,). Coefficients may share them.
    floor
        Least precision of a cavity whose product with the prior is a density, shape (d,).
    opened
        Whether the support is unbounded below and above, shape (d, 2).
    name
        What the prior is called in messages.
    """

    name = "independent"
    log_weight: FloatArray
    centre: FloatArray
    variance: FloatArray
    first: NDArray[np.intp]
    last: NDArray[np.intp]
    floor: FloatArray
    opened: Mask


@dataclass(frozen=True, eq=False)
class Tabulated(PriorSites):
    """Priors given by tables of their densities, or normal, N(0, 1) in units of the Gaussian prior.

    Attributes
    ----------
    tables
        Nodes of the densities.
    which
        The table of each coefficient, -1 for a normal one, shape (d,).
    scale
        Units of the nodes: theta = scale * w, shape (d,).
    """

    tables: tuple[Table, ...]
    which: NDArray[np.intp]
    scale: FloatArray

    def __post_init__(self) -> None:
        points, log_weight, variance, floor = [np.zeros(1)], [np.zeros(1)], [np.ones(1)], np.full(self.which.size, -1.0)
        first, last, size = np.zeros_like(self.which), np.ones_like(self.which), 1
        known: dict[tuple[int, float], int] = {}
        opened = np.ones((self.which.size, 2), dtype=bool)
        for k, (table, scale) in enumerate(zip(self.which, self.scale, strict=True)):
            if table < 0:
                continue
            held = self.tables[table]
            if (int(table), scale) not in known:
                known[int(table), scale] = size
                points.append(held.nodes / scale)
                log_weight.append(held.log_mass)
                variance.append(np.zeros(held.nodes.size))
                size += held.nodes.size
            first[k] = known[int(table), scale]
            last[k] = first[k] + held.nodes.size
            floor[k] = held.floor * scale**2
            opened[k] = held.opened
        vars(self).update(
            log_weight=np.concatenate(log_weight),
            centre=np.concatenate(points),
            variance=np.concatenate(variance),
            first=first,
            last=last,
            floor=floor,
            opened=opened,
        )

    @property
    def log_scale(self) -> float:
        """Sum of log(scale) over tabulated coefficients: from densities of theta to those of w."""
        return float(np.log(self.scale[self.which >= 0]).sum())

    def log_density(self, w: FloatArray) -> FloatArray:
        """log prior of theta (of normal ones without the constant), one by one, at ``w[..., d]`` in its units."""
        found = -0.5 * w * w
        for k in np.flatnonzero(self.which >= 0):
            found[..., k] = self.tables[self.which[k]].log_density(w[..., k] * self.scale[k])
        return found


@dataclass(frozen=True, eq=False)
class Table:
    """A density by its values at nodes: the sum of f(node) exp(log_mass) is the expectation of f.

    Attributes
    ----------
    nodes, log_mass, log_values
        In increasing order, shape (N,).
    floor
        Least precision of a Gaussian whose product with the density can be normalised.
    opened
        Whether its support is unbounded below, and above.
    """

    nodes: FloatArray
    log_mass: FloatArray
    log_values: FloatArray
    floor: float
    opened: tuple[bool, bool]

    @property
    def spread(self) -> float:
        """Root of the mean square, or of heavy tails, of what is left without the outermost 2 %."""
        mass = np.exp(self.log_mass)
        inner = np.abs(np.cumsum(mass) - 0.5) <= 0.49
        return float(np.sqrt(np.sum(mass * inner * self.nodes**2) / np.sum(mass * inner)))

    def refined(self, parts: int) -> Table:
        """The same with each interval divided into so many parts."""
        between = (np.arange(parts) + 0.5) / parts
        x = (self.nodes[:-1, None] + np.diff(self.nodes)[:, None] * between).ravel()
        log_values = self.log_density(x)
        log_mass = log_values + np.repeat(np.log(np.diff(self.nodes) / parts), parts)
        return Table(x, log_mass - logsumexp(log_mass), log_values, self.floor, self.opened)

    def log_density(self, x: FloatArray) -> FloatArray:
        """log density between the nodes; -inf beyond a finite end of the support."""
        inside = np.interp(x, self.nodes, self.log_values)
        low, high = self.nodes[[0, -1]]
        return np.where((x < low - 1e-9 * abs(low)) | (x > high + 1e-9 * abs(high)), -np.inf, inside)


# Of the logarithm of the distance from a centre or an end, between nodes: a coefficient may be 25 posterior standard
# deviations from it; others refine their table. Doubled, more of them do.
STEP = 0.04
DEEPEST = 700.0  # drop of the log density, nats, beyond which there are no nodes: exp underflows
FARTHEST = 27.0  # logarithm of distances over which a density is looked at, either way: 1e-12 to 1e12


def tabulate(log_density: Callable[[FloatArray], FloatArray], centres: ArrayLike, name: str = "the prior") -> Table:
    """Nodes for integrals of a density, finer towards ``centres`` (modes, kinks) and the ends of its support.

    Between two of these a the nodes are those of the trapezoidal rule in the logarithm of the distance, or of the odds
    of the distances, whose accuracy is spectral. Raises ValueError where the density does not integrate to one.
    """

    def value(x: FloatArray) -> FloatArray:
        with np.errstate(all="ignore"):
            found = np.asarray(log_density(x), dtype=np.float64)
        return np.where(np.isnan(found), -np.inf, found)

    inner = np.unique(np.asarray(centres, dtype=np.float64))
    inner = inner[np.isfinite(inner)]
    reach = np.exp(np.arange(-FARTHEST, FARTHEST, STEP))
    low, high = _end(value, inner[0], -reach), _end(value, inner[-1], reach)
    stops = np.unique([low, *inner, high])
    nodes, log_step = [], []
    odds = np.arange(-FARTHEST, FARTHEST, STEP)
    for left, right in pairwise(stops):
        if np.isinf(left) or np.isinf(right):
            nodes.append(right - reach[::-1] if np.isinf(left) else left + reach)
            log_step.append(np.log(STEP) + (odds[::-1] if np.isinf(left) else odds))
        else:
            nodes.append(left + (right - left) * expit(odds))
            log_step.append(np.log(STEP * (right - left)) + log_expit(odds) + log_expit(-odds))
    x, order = np.unique(np.concatenate(nodes), return_index=True)
    log_values = value(x)
    log_mass = np.concatenate(log_step)[order] + log_values
    top, height = log_mass.max(), log_values.max()
    kept = (log_mass > top - DEEPEST) & ((log_mass > top - 20.0) | (log_values < height - 20.0))
    x, log_mass, log_values = x[kept], log_mass[kept], log_values[kept]
    total = logsumexp(log_mass)
    if not abs(total) < 1e-3:
        raise ValueError(f"{name} integrates to {np.exp(total):.4g}, not to 1: it is improper, or too uneven for EP")
    far = [(end, log_values[place]) for end, place in ((low, 0), (high, -1)) if np.isinf(end)]
    drop = [2.0 * (at - log_values.max() + 50.0) / x[0 if end < 0 else -1] ** 2 for end, at in far]
    floor = max([*(min(each, 0.0) for each in drop), -1e12])
    return Table(x, log_mass - total, log_values, floor, (bool(np.isinf(low)), bool(np.isinf(high))))


def _end(value: Callable[[FloatArray], FloatArray], centre: float, reach: FloatArray) -> float:
    """The end of the support on one side of a centre, infinite where there is none within reach."""
    outside = ~np.isfinite(value(centre + reach))
    if not outside.any():
        return float(np.copysign(np.inf, reach[0]))
    first = int(outside.argmax())
    near, far = centre + (reach[first - 1] if first else 0.0), centre + reach[first]
    if np.abs(value(np.array([near]))[0]) > 0.5 * DEEPEST:  # it has just fallen below what numbers can say
        return float(np.copysign(np.inf, reach[0]))
    for _ in range(100):
        middle = 0.5 * (near + far)
        near, far = (middle, far) if np.isfinite(value(np.array([middle]))[0]) else (near, middle)
    return near


@dataclass(frozen=True, eq=False)
class Spikes(PriorSites):
    """Independent ``theta_k ~ p N(0, v1) + (1 - p) N(0, v0)``, v1 the variance that the Gaussian prior gives.

    Attributes
    ----------
    inclusion_probability
        p, the probability of the slab, shape (d,); 1 for a coefficient whose prior is Gaussian.
    ratio
        v0 / v1, shape (d,); 0 for a point mass at zero.
    """

    inclusion_probability: FloatArray
    ratio: FloatArray
    name = "spike and slab"

    def __post_init__(self) -> None:
        p = self.inclusion_probability
        with np.errstate(divide="ignore"):
            log_weight = np.column_stack([np.log1p(-p), np.log(p)]).ravel()
        first = 2 * np.arange(p.size)
        vars(self).update(
            log_weight=log_weight,
            centre=np.zeros(2 * p.size),
            variance=np.column_stack([self.ratio, np.ones(p.size)]).ravel(),
            first=first,
            last=first + 2,
            floor=np.full(p.size, -1.0),
            opened=np.ones((p.size, 2), dtype=bool),
        )

    @property
    def sparse(self) -> NDArray[np.bool_]:
        """Which coefficients have a spike."""
        return self.inclusion_probability < 1.0


@dataclass(frozen=True, eq=False)
class Problem:
    """AUC Gibbs posterior of linear scores: rows, pairs, gamma and prior.

    Build one with :func:`linear_gaussian_problem` or :func:`spike_slab_problem`.

    Attributes
    ----------
    scores : LinearScores
        The scores and the Gaussian prior of their coefficients.
    pairs : Pairs
        The pairs compared.
    gamma : float
        Inverse temperature, multiplying the pair risk.
    ties : {"half", "strict"}
        Cost convention of tied pairs.
    sites : PriorSites or None
        Priors of single coefficients that are not Gaussian; None for a Gaussian prior.
    tuned_prior : bool
        Whether the prior was chosen with these very data, which a certificate has to know.

    See Also
    --------
    linear_gaussian_problem : Make one with a Gaussian prior.
    spike_slab_problem : Make one with a spike-and-slab prior.
    pymc_pacauc.arrays.fit : Approximate the posterior.

    Examples
    --------
    >>> problem = linear_gaussian_problem([[0.0], [1.0], [2.0]], [0, 1, 1], gamma=2.0)
    >>> problem.n, problem.d, problem.pairs.n_pairs
    (3, 1, 2)
    """

    scores: LinearScores
    pairs: Pairs
    gamma: float
    ties: str = "half"
    sites: PriorSites | None = None
    tuned_prior: bool = False

    def __post_init__(self) -> None:
        # A direction that is nothing among all coefficients may be all there is once spikes have taken most of them.
        if self.sites is not None and self.scores.coordinates != "coefficients":
            object.__setattr__(self, "scores", self.scores.in_coordinates("coefficients"))

    def in_coordinates(self, coordinates: str) -> Problem:
        """Describe the same posterior in other coordinates.

        Parameters
        ----------
        coordinates : {"coefficients", "features"}
            What theta is while it is fitted: coefficients, or the directions of a process that matter.

        Returns
        -------
        Problem
            The problem itself where it is in these coordinates already.

        See Also
        --------
        Problem.of_compared_rows : Leave out rows that no pair compares.

        Examples
        --------
        >>> problem = linear_gaussian_problem([[0.0], [1.0], [2.0]], [0, 1, 1], gamma=2.0)
        >>> problem.in_coordinates("coefficients") is problem
        True
        """
        scores = self.scores.in_coordinates(coordinates)
        return self if scores is self.scores else replace(self, scores=scores)

    @property
    def spikes(self) -> Spikes | None:
        """The spike-and-slab prior, where it is one."""
        return self.sites if isinstance(self.sites, Spikes) else None

    @property
    def X(self) -> FloatArray:
        """Covariates, shape (n, d)."""
        return self.scores.X

    @property
    def offset(self) -> FloatArray:
        """Known part of each score, shape (n,)."""
        return self.scores.offset

    @property
    def prior(self) -> GaussianPrior:
        """The Gaussian prior, or the slab."""
        return self.scores.prior

    @property
    def n(self) -> int:
        """Number of observations."""
        return self.scores.n

    @property
    def d(self) -> int:
        """Number of coefficients."""
        return self.scores.d

    @cached_property
    def compared_rows(self) -> NDArray[np.intp]:
        """The observations that are in a pair."""
        return np.flatnonzero(self.pairs.observation_weight > 0.0)

    def of_compared_rows(self) -> Problem:
        """Leave out the rows that no pair compares; the posterior stays the same.

        Returns
        -------
        Problem
            The problem itself where all rows are compared.

        See Also
        --------
        Problem.compared_rows : Which rows these are.

        Examples
        --------
        >>> problem = linear_gaussian_problem([[0.0], [1.0], [2.0]], [0, 1, 1], gamma=2.0)
        >>> problem.of_compared_rows() is problem
        True
        """
        rows = self.compared_rows
        if rows.size == self.n:
            return self
        place = np.zeros(self.n, dtype=np.intp)
        place[rows] = np.arange(rows.size)
        scores = replace(self.scores, X=self.X[rows], offset=self.offset[rows])
        return replace(self, scores=scores, pairs=self.pairs.map(place, rows.size))

    @property
    def scale_free(self) -> bool:
        """True when the risk depends on the direction of whitened theta alone, so its radius stays chi-distributed."""
        return self.scores.scale_free

    @property
    def gamma_per_pair(self) -> float:
        """Factor of a wrongly ordered pair of weight 1 in the exponent: gamma divided by the total weight."""
        return self.gamma / self.pairs.total_weight

    @property
    def tie_cost(self) -> float:
        """Cost of a tied pair: one half, or zero for ``ties="strict"``."""
        return 0.5 if self.ties == "half" else 0.0

    @cached_property
    def tied_pairs(self) -> int:
        """Number of pairs that tie whatever theta: equal rows and equal offsets."""
        rows = [(b.positive, np.ones(b.positive.size)) for b in self.pairs.blocks]
        columns = [(b.negative, np.ones(b.negative.size)) for b in self.pairs.blocks]
        return round(self._tied_weight(rows, columns))

    @cached_property
    def tied_share(self) -> float:
        """The share of those pairs in the weight of all."""
        rows = [(b.positive, b.row_weights) for b in self.pairs.blocks]
        columns = [(b.negative, b.column_weights) for b in self.pairs.blocks]
        return self._tied_weight(rows, columns) / self.pairs.total_weight

    def _tied_weight(self, rows: list[Members], columns: list[Members]) -> float:
        if self.scores.distinct.none_repeat:
            return 0.0
        (row, row_weight), (column, column_weight) = (
            _weight_by_place(each, self.scores.distinct) for each in (rows, columns)
        )
        _, i, j = np.intersect1d(row, column, assume_unique=True, return_indices=True)
        return float(row_weight[i] @ column_weight[j])

    @cached_property
    def risk(self) -> LinearRisk:
        """The map ``theta[N, d] -> risk[N]``."""
        return LinearRisk(
            self.X, self.pairs, offset=self._ranking(self.offset), ties=self.ties, distinct=self.scores.distinct
        )

    @cached_property
    def whitened_risk(self) -> LinearRisk:
        """The map from whitened coefficients ``w[N, d]`` to the risk."""
        scores = self.scores
        return LinearRisk(
            scores.whitened_design,
            self.pairs,
            offset=self._ranking(scores.whitened_offset),
            ties=self.ties,
            distinct=scores.distinct,
        )

    @staticmethod
    def _ranking(offset: FloatArray) -> FloatArray | None:
        return offset if offset.any() else None

    def __repr__(self) -> str:
        prior = "Gaussian" if self.sites is None else self.sites.name
        return f"Problem(n={self.n}, d={self.d}, pairs={self.pairs.n_pairs}, gamma={self.gamma:g}, {prior} prior)"


def _weight_by_place(blocks: list[Members], distinct: DistinctRows) -> tuple[NDArray[np.intp], FloatArray]:
    """The distinct rows of each block, numbered over all blocks, and the weight of the members that are equal to it."""
    m = distinct.first.size
    where, place = np.unique(
        np.concatenate([distinct.place[index] + m * k for k, (index, _) in enumerate(blocks)]), return_inverse=True
    )
    weight = np.bincount(place, np.concatenate([weights for _, weights in blocks]))
    return where, np.asarray(weight, dtype=np.float64)


def linear_gaussian_problem(
    X: ArrayLike,
    y: ArrayLike | Pairs,
    gamma: float,
    *,
    prior_mean: ArrayLike = 0.0,
    prior_covariance: ArrayLike | None = None,
    prior_factor: FloatArray | None = None,
    offset: ArrayLike = 0.0,
    ties: str = "half",
    positive: Any = None,
) -> Problem:
    """Check arrays and build a :class:`Problem` with a Gaussian prior.

    Parameters
    ----------
    X : array_like, shape (n, d)
        Covariates, finite numbers.
    y : array_like, shape (n,), or Pairs
        Labels (bool, {0, 1}, {-1, 1}, or any two values with ``positive``), or the pairs to compare.
    gamma : float
        Inverse temperature, multiplying the pair risk.
    prior_mean : float or array_like, shape (d,), default 0.0
        Mean of the coefficients.
    prior_covariance : float or array_like, shape (d,) or (d, d), optional
        Variance of all coefficients, of each, or their covariance matrix; by default 1.
    prior_factor : ndarray, shape (d, d), optional
        Lower Cholesky factor of the covariance, in place of ``prior_covariance``.
    offset : float or array_like, shape (n,), default 0.0
        Known part of each score.
    ties : {"half", "strict"}, default "half"
        What a tied pair costs: one half, or nothing.
    positive : label, optional
        Which of the two labels is the positive class.

    Returns
    -------
    Problem
        To be fitted by :func:`~pymc_pacauc.arrays.fit` or sampled along :func:`~pymc_pacauc.arrays.prior_path`.

    Raises
    ------
    ValueError
        If shapes do not match, a number is not finite, gamma is not positive, or a covariance is not positive definite.

    See Also
    --------
    spike_slab_problem : The same with a spike-and-slab prior.

    Examples
    --------
    >>> from pymc_pacauc import arrays
    >>> problem = arrays.linear_gaussian_problem([[0.0], [1.0], [2.0]], [0, 1, 1], gamma=2.0, prior_covariance=4.0)
    >>> arrays.fit(problem).converged
    True
    """
    design = numeric_array("X", X).copy()
    if design.ndim != 2 or 0 in design.shape:
        raise ValueError(f"X must be a matrix of shape (n, d) with n, d >= 1; got shape {design.shape}.")
    pairs = y if isinstance(y, Pairs) else bipartite(y, positive)
    n, d = design.shape
    if n != pairs.n:
        what = "times" if pairs.kind == "censored times" else "labels"
        raise ValueError(f"X has {n} rows but there are {pairs.n} {what}.")
    bad = int(design.size - np.isfinite(design).sum())
    if bad:
        columns = np.flatnonzero(~np.isfinite(design).all(axis=0))[:5].tolist()
        raise ValueError(f"X has {bad} NaN or infinite value(s), in columns {columns}; impute or drop them first.")
    check_ties(ties)
    if prior_factor is None:
        prior_factor = _factor(1.0 if prior_covariance is None else prior_covariance, d)
    elif prior_covariance is not None:
        raise ValueError("Give prior_covariance or its factor, not both.")
    prior = GaussianPrior(_finite("prior_mean", prior_mean, (d,)), prior_factor)
    scores = LinearScores(design, _finite("offset", offset, (n,)), prior)
    return Problem(scores, pairs, check_gamma(gamma), ties)


def spike_slab_problem(
    X: ArrayLike,
    y: ArrayLike | Pairs,
    gamma: float,
    *,
    inclusion_probability: ArrayLike,
    v0: ArrayLike,
    v1: ArrayLike = 1.0,
    prior_mean: ArrayLike = 0.0,
    offset: ArrayLike = 0.0,
    ties: str = "half",
    positive: Any = None,
) -> Problem:
    """Check arrays and build a :class:`Problem` with a spike-and-slab prior.

    Parameters
    ----------
    X : array_like, shape (n, d)
        Covariates, finite numbers.
    y : array_like, shape (n,), or Pairs
        Labels (bool, {0, 1}, {-1, 1}, or any two values with ``positive``), or the pairs to compare.
    gamma : float
        Inverse temperature, multiplying the pair risk.
    inclusion_probability : float or array_like, shape (d,)
        Prior probability of the slab, in (0, 1]; 1 makes a coefficient Gaussian.
    v0 : float or array_like, shape (d,)
        Variance of the spike, 0 for a point mass at zero.
    v1 : float or array_like, shape (d,), default 1.0
        Variance of the slab.
    prior_mean : float or array_like, shape (d,), default 0.0
        Mean of Gaussian coefficients, those with inclusion probability 1; spike and slab are centred at zero.
    offset : float or array_like, shape (n,), default 0.0
        Known part of each score.
    ties : {"half", "strict"}, default "half"
        What a tied pair costs: one half, or nothing.
    positive : label, optional
        Which of the two labels is the positive class.

    Returns
    -------
    Problem
        To be fitted by :func:`~pymc_pacauc.arrays.fit`.

    Raises
    ------
    ValueError
        If shapes do not match, a number is not finite or out of its range, or a spike is wider than its slab.

    See Also
    --------
    linear_gaussian_problem : The same with a Gaussian prior.
    pymc_pacauc.SpikeSlab : The prior as a PyMC variable.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_pacauc import arrays
    >>> X = np.random.default_rng(1).normal(size=(80, 4))
    >>> problem = arrays.spike_slab_problem(X, X[:, 0] > 0.2, gamma=80.0, inclusion_probability=0.2, v0=0.0)
    >>> arrays.fit(problem).inclusion_probability.round(1)
    array([1., 0., 0., 0.])
    """
    if numeric_array("v1", v1).ndim > 1:
        raise ValueError("v1 must be a scalar or a vector: the slabs are independent.")
    dense = linear_gaussian_problem(
        X, y, gamma, prior_mean=prior_mean, prior_covariance=v1, offset=offset, ties=ties, positive=positive
    )
    p = _finite("inclusion_probability", inclusion_probability, (dense.d,))
    if not ((p > 0.0) & (p <= 1.0)).all():
        raise ValueError("inclusion_probability must be in (0, 1]: drop a coefficient that is never included.")
    ratio = _finite("v0", v0, (dense.d,)) / dense.prior.factor**2
    if not ((ratio >= 0.0) & (ratio <= 1.0 + 1e-12)).all():
        raise ValueError("v0, the variance of the spike, must be at least 0 and at most v1, that of the slab.")
    if (dense.prior.mean[p < 1.0] != 0.0).any():
        raise ValueError("prior_mean must be 0 where inclusion_probability < 1.")
    return Problem(dense.scores, dense.pairs, dense.gamma, dense.ties, Spikes(p, np.minimum(ratio, 1.0)))


def default_inclusion_probability(d: int) -> float:
    """Probability of the slab where none is given: Theorem 2.5's 1 - exp(-1 / d), but at least 0.1.

    The theorem's leads to an expected model of one coefficient whatever d. With dozens of coefficients and gamma of
    the order of n that is more sparseness than expectation propagation has a fixed point for: with 60 positive ones
    among 600 or 300 observations, 81 coefficients and a Dirac spike it converged on 15 of 24 data sets, and with 0.1
    on all.
    """
    return max(float(-np.expm1(-1.0 / d)), LEAST_INCLUSION)


def check_gamma(gamma: Any) -> float:
    """A finite, positive float, or a ValueError that says so."""
    try:
        value = float(gamma) if np.ndim(gamma) == 0 else np.nan
    except (TypeError, ValueError):
        value = np.nan
    if not 0.0 < value < np.inf:
        raise ValueError(f"gamma must be one finite number > 0 (it multiplies the pair risk); got {gamma!r}.")
    return value


def _finite(name: str, value: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    array = numeric_array(name, value)
    if array.ndim and array.shape != shape:
        raise ValueError(f"{name} must be a scalar or have shape {shape}; got {array.shape}.")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite.")
    return np.broadcast_to(array, shape).copy()


def _factor(covariance: ArrayLike, d: int) -> FloatArray:
    matrix = numeric_array("prior_covariance", covariance)
    if matrix.ndim < 2:
        variances = _finite("prior_covariance", matrix, (d,))
        if (variances <= 0).any():
            raise ValueError(
                f"prior_covariance has {int((variances <= 0).sum())} variance(s) <= 0: the prior is singular. "
                "Drop those coefficients or give them a positive variance."
            )
        return np.sqrt(variances)
    _finite("prior_covariance", matrix, (d, d))
    if not np.allclose(matrix, matrix.T, rtol=1e-8, atol=1e-12 * np.abs(matrix).max()):
        raise ValueError("prior_covariance must be symmetric.")
    try:
        return np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)
    except np.linalg.LinAlgError:
        smallest = np.linalg.eigvalsh(matrix)[0]
        raise ValueError(
            f"prior_covariance is singular (smallest eigenvalue {smallest:.3g}); add a small multiple of the identity."
        ) from None


def two_class_mask(
    problem: Problem,
    what: str = "This certificate is",
    instead: str = 'Those have pac.certificate(result, bound="kl").',
) -> Mask:
    """Which rows are positive, of two classes all of whose pairs weigh the same; else ``what`` that is for, and what
    to do ``instead``.
    """
    pairs = problem.pairs
    if pairs.kind != "two classes" or len(pairs.blocks) != 1 or pairs.weighted:
        raise ValueError(
            f"{what} for two classes all of whose pairs weigh the same: without strata, weights, ordered classes or "
            f"censored times. {instead}"
        )
    if pairs.blocks[0].positive.size + pairs.blocks[0].negative.size != pairs.n:
        raise ValueError(
            f"{what} for fits in which every row belongs to a pair; this one was fitted to a part of the rows."
        )
    mask = np.zeros(pairs.n, dtype=bool)
    mask[pairs.blocks[0].positive] = True
    return mask
