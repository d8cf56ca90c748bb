"""The description of a posterior that all engines take: scores, pairs, prior and gamma.

    target(theta) = prior(theta) * exp(-gamma * risk(X theta + offset))

theta has shape (d,), X (n, d), offset (n,). The prior is Gaussian, or coefficients have independent priors of other
kinds (:class:`PriorSites`), among them *spike and slab*: a Gaussian, the slab, with a spike at zero. A :class:`Problem`
is cheap to vary: ``dataclasses.replace(problem, gamma=...)``, or other pairs or prior sites, share the scores and all
that was computed about them.

*Tabulated priors* (:func:`tabulate`). A density becomes nodes and masses, such that sums over the nodes are integrals:
the trapezoidal rule in log |x - centre| between modes, kinks and ends of the support, whose error falls exponentially.

To add a prior with independent coefficients, tabulate its log density:

    table = tabulate(log_density, centres=[0.0])
    sites = Tabulated((table,), which=np.zeros(d, dtype=int), scale=np.full(d, table.spread))
    problem = linear_gaussian_problem(X, y, gamma, prior_covariance=table.spread**2)
    fit(replace(problem, sites=sites))        # pymc_pacauc.ep.fit

(PyMC models do this for any independent variable with a density.) To add a kind of comparison, write a function that
returns :class:`~pymc_pacauc.comparison.pairs.Pairs`, in :mod:`pymc_pacauc.comparison.kinds`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.special import expit, log_expit, logsumexp

from pymc_pacauc.comparison.pairs import Block, Pairs, bipartite
from pymc_pacauc.comparison.risk import DistinctRows, LinearRisk, check_ties, pair_risk
from pymc_pacauc.numerics import FloatArray, Mask, checked_rows, finite_array, numeric_array
from pymc_pacauc.problem.scores import GaussianPrior, LinearScores


class PriorSites:
    """Independent priors of coefficients, each a mixture of normals and of points, in units of the Gaussian prior.

    A density is represented by the nodes of a quadrature (:func:`tabulate`): sums over them are its integrals.

    Attributes
    ----------
    log_weight, centre, variance : ndarray
        Log weights, means and variances of all components, one prior after the other, shape (K,); variance 0 for a
        point.
    first, last : ndarray of int
        Index of the first component of each coefficient, and of the one after its last, shape (d,). Coefficients may
        share components.
    floor : ndarray
        Least precision of a cavity whose product with the prior is a density, shape (d,).
    opened : ndarray of bool
        Whether the support is unbounded below and above, shape (d, 2).
    name : str
        Name of the prior in messages, and its key in ``pymc_pacauc.ep.fit.ENGINES``.
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
    tables : tuple of Table
        Tables of the densities of theta.
    which : ndarray of int
        Index of the table of each coefficient, -1 for a normal one, shape (d,).
    scale : ndarray
        Standard deviations of the Gaussian prior: theta = scale * w, shape (d,).
    """

    tables: tuple[Table, ...]
    which: NDArray[np.intp]
    scale: FloatArray

    def __post_init__(self) -> None:
        normal = Table(np.zeros(1), np.zeros(1), np.zeros(1), -1.0, (True, True))  # one component, of variance 1
        kinds, kind = np.unique([self.which, np.where(self.which < 0, 1.0, self.scale)], axis=1, return_inverse=True)
        held = [(normal if table < 0 else self.tables[int(table)], scale) for table, scale in kinds.T]
        ends = np.cumsum([0, *(table.nodes.size for table, _ in held)])
        vars(self).update(
            log_weight=np.concatenate([table.log_mass for table, _ in held]),
            centre=np.concatenate([table.nodes / scale for table, scale in held]),
            variance=np.concatenate([np.full(table.nodes.size, float(table is normal)) for table, _ in held]),
            first=ends[kind],
            last=ends[kind + 1],
            floor=np.array([table.floor * scale**2 for table, scale in held])[kind],
            opened=np.array([table.opened for table, _ in held])[kind],
        )

    @property
    def log_scale(self) -> float:
        """Sum of log(scale) over tabulated coefficients: log Jacobian from theta to w."""
        return float(np.log(self.scale[self.which >= 0]).sum())

    def log_density(self, w: FloatArray) -> FloatArray:
        """Compute the log prior of each coefficient at ``w[..., d]`` (of normal ones without the constant)."""
        found = -0.5 * w * w
        for k in np.flatnonzero(self.which >= 0):
            found[..., k] = self.tables[self.which[k]].log_density(w[..., k] * self.scale[k])
        return found


@dataclass(frozen=True, eq=False)
class Table:
    """A density by its values at nodes: the sum of f(node) exp(log_mass) is the expectation of f.

    Attributes
    ----------
    nodes, log_mass, log_values : ndarray
        Nodes in increasing order, their log quadrature masses, and the log density there, shape (N,).
    floor : float
        Least precision of a Gaussian whose product with the density can be normalised.
    opened : tuple of bool
        Whether its support is unbounded below, and above.
    """

    nodes: FloatArray
    log_mass: FloatArray
    log_values: FloatArray
    floor: float
    opened: tuple[bool, bool]

    @property
    def spread(self) -> float:
        """Root mean square of the distribution without the outermost 2 %, which heavy tails would dominate."""
        mass = np.exp(self.log_mass)
        inner = np.abs(np.cumsum(mass) - 0.5) <= 0.49
        return float(np.sqrt(np.sum(mass * inner * self.nodes**2) / np.sum(mass * inner)))

    def refined(self, parts: int) -> Table:
        """Divide each interval between nodes into ``parts``."""
        between = (np.arange(parts) + 0.5) / parts
        x = (self.nodes[:-1, None] + np.diff(self.nodes)[:, None] * between).ravel()
        log_values = self.log_density(x)
        log_mass = log_values + np.repeat(np.log(np.diff(self.nodes) / parts), parts)
        return Table(x, log_mass - logsumexp(log_mass), log_values, self.floor, self.opened)

    def log_density(self, x: FloatArray) -> FloatArray:
        """Interpolate the log density between the nodes; -inf beyond a finite end of the support."""
        inside = np.interp(x, self.nodes, self.log_values)
        low, high = self.nodes[[0, -1]]
        return np.where((x < low - 1e-9 * abs(low)) | (x > high + 1e-9 * abs(high)), -np.inf, inside)


# Step of nodes in the logarithm of the distance from a centre or an end: enough for a coefficient up to 25 posterior
# standard deviations from it; farther ones refine their table. Doubled, more of them do.
STEP = 0.04
DEEPEST = 700.0  # drop of the log density, nats, at which exp underflows; doubled, nodes of mass zero
FARTHEST = 27.0  # largest |log| of distances from a centre: 1e-12 to 1e12; doubled, twice the nodes of heavy tails


def tabulate(log_density: Callable[[FloatArray], FloatArray], centres: ArrayLike, name: str = "the prior") -> Table:
    """Tabulate a density for integrals, with nodes denser towards ``centres`` (modes, kinks) and ends of the support.

    Between two of these the nodes are those of the trapezoidal rule in the logarithm of the distance, or, on a bounded
    interval, of the odds of the distances, whose error falls exponentially.

    Parameters
    ----------
    log_density : callable
        Log density at an array of values, normalised.
    centres : array_like
        Modes and kinks.
    name : str, default "the prior"
        Name in messages.

    Returns
    -------
    Table
        Nodes and masses.

    Raises
    ------
    ValueError
        If the density does not integrate to one.
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
        raise ValueError(f"{name} integrates to {np.exp(total):.4g}, not to 1: it is improper, or too rough for EP")
    far = [(end, log_values[place]) for end, place in ((low, 0), (high, -1)) if np.isinf(end)]
    drop = [2.0 * (at - log_values.max() + 50.0) / x[0 if end < 0 else -1] ** 2 for end, at in far]
    floor = max([*(min(each, 0.0) for each in drop), -1e12])
    return Table(x, log_mass - total, log_values, floor, (bool(np.isinf(low)), bool(np.isinf(high))))


def _end(value: Callable[[FloatArray], FloatArray], centre: float, reach: FloatArray) -> float:
    """Find the end of the support on one side of a centre; infinite where there is none within reach."""
    outside = ~np.isfinite(value(centre + reach))
    if not outside.any():
        return float(np.copysign(np.inf, reach[0]))
    first = int(outside.argmax())
    near, far = centre + (reach[first - 1] if first else 0.0), centre + reach[first]
    if np.abs(value(np.array([near]))[0]) > 0.5 * DEEPEST:  # the density underflows there: not an end
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
    inclusion_probability : ndarray
        p, the probability of the slab, shape (d,); 1 for a coefficient whose prior is Gaussian.
    ratio : ndarray
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


class Part(NamedTuple):
    """An independent factor of a posterior: a problem of some ``rows`` and ``columns`` of another one."""

    rows: NDArray[np.intp]
    columns: NDArray[np.intp]
    problem: Problem


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
        Whether the prior was chosen with these data: then there is no certificate.
    absorbed : float
        Log density of the Gaussian observations that the prior was conditioned on beforehand; the evidence of the whole
        model is log Z plus this.

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
    absorbed: float = 0.0

    def __post_init__(self) -> None:
        # Features drop directions of small variance, which may be all that remains once most coefficients are zero.
        if self.sites is not None and self.scores.coordinates != "coefficients":
            object.__setattr__(self, "scores", self.scores.in_coordinates("coefficients"))

    def in_coordinates(self, coordinates: str) -> Problem:
        """Describe the same posterior in other coordinates.

        Parameters
        ----------
        coordinates : {"coefficients", "features"}
            Coordinates of the fit: the coefficients, or the leading features of a process.

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
        scores = replace(self.scores, X=self.X[rows], offset=self.offset[rows])
        return replace(self, scores=scores, pairs=self.pairs.on_rows(rows))

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """Independent factors of the posterior: pairs that share no coefficient, a priori independent; else itself.

        Unordered classes whose scores have their own coefficients are such, and potentials of unrelated scores.
        """
        blocks = self.pairs.blocks
        if self.sites is not None or self.pairs.kind != "other pairs" or len(blocks) < 2:
            return (Part(np.arange(self.n), np.arange(self.d), self),)
        rows = [np.union1d(block.positive, block.negative) for block in blocks]
        touched = sparse.csr_array(np.array([(self.X[each] != 0.0).any(axis=0) for each in rows], dtype=float))
        factor = sparse.eye_array(self.d) if self.prior.independent else sparse.csr_array(self.prior.factor)
        label = connected_components(sparse.block_array([[None, touched], [touched.T, factor]]), directed=False)[1]
        of_block, of_column = label[: len(blocks)], label[len(blocks) :]
        of_column = np.where(np.isin(of_column, of_block), of_column, of_block[0])  # also those that reach no score
        found = []
        for which in np.unique(of_block):
            chosen = np.flatnonzero(of_block == which)
            row, columns = np.unique(np.concatenate([rows[k] for k in chosen])), np.flatnonzero(of_column == which)
            pairs = replace(self.pairs, blocks=tuple(blocks[k] for k in chosen)).on_rows(row)
            square = columns if self.prior.independent else np.ix_(columns, columns)
            prior = GaussianPrior(self.prior.mean[columns], self.prior.factor[square])
            scores = LinearScores(self.X[np.ix_(row, columns)], self.offset[row], prior)
            gamma = self.gamma_per_pair * pairs.total_weight
            found.append(Part(row, columns, replace(self, scores=scores, pairs=pairs, gamma=gamma)))
        return tuple(found)

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
        alike = replace(self.pairs, blocks=tuple(Block(b.positive, b.negative) for b in self.pairs.blocks))
        return round(_tied_share(alike, self.scores.distinct) * self.pairs.n_pairs)

    @cached_property
    def tied_share(self) -> float:
        """Share of the weight of pairs that tie whatever theta."""
        return _tied_share(self.pairs, self.scores.distinct)

    @cached_property
    def risk(self) -> LinearRisk:
        """The map ``theta[N, d] -> risk[N]``."""
        offset = self.offset if self.offset.any() else None
        return LinearRisk(self.X, self.pairs, offset=offset, ties=self.ties, distinct=self.scores.distinct)

    def __repr__(self) -> str:
        prior = "Gaussian" if self.sites is None else self.sites.name
        return f"Problem(n={self.n}, d={self.d}, pairs={self.pairs.n_pairs}, gamma={self.gamma:g}, {prior} prior)"


def _tied_share(pairs: Pairs, distinct: DistinctRows) -> float:
    """Compute the share of the weight in pairs of equal rows: twice what ties cost a score that numbers the rows."""
    if distinct.none_repeat:
        return 0.0
    number = distinct.place[None].astype(np.float64)
    half, strict = (float(pair_risk(number, pairs, ties=ties)[0]) for ties in ("half", "strict"))
    return 2.0 * (half - strict)


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
    design = checked_rows(X).copy()
    pairs = y if isinstance(y, Pairs) else bipartite(y, positive)
    n, d = design.shape
    if n != pairs.n:
        what = "times" if pairs.kind == "censored times" else "labels"
        raise ValueError(f"X has {n} rows but there are {pairs.n} {what}.")
    if pairs.partial:
        raise ValueError("y is a partial AUC, not an average over fixed pairs: leave max_fpr out.")
    check_ties(ties)
    if prior_factor is None:
        prior_factor = _factor(1.0 if prior_covariance is None else prior_covariance, d)
    elif prior_covariance is not None:
        raise ValueError("prior_covariance and prior_factor exclude each other: give one of them.")
    prior = GaussianPrior(finite_array("prior_mean", prior_mean, (d,)), prior_factor)
    scores = LinearScores(design, finite_array("offset", offset, (n,)), prior)
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
        raise ValueError(f"v1 must be a number or one for each coefficient; got shape {np.shape(v1)}.")
    dense = linear_gaussian_problem(
        X, y, gamma, prior_mean=prior_mean, prior_covariance=v1, offset=offset, ties=ties, positive=positive
    )
    p = finite_array("inclusion_probability", inclusion_probability, (dense.d,))
    wrong = p[~((p > 0.0) & (p <= 1.0))]
    if wrong.size:
        raise ValueError(f"inclusion_probability must be in (0, 1]; got {wrong[0]:g}. Drop columns never included.")
    ratio = finite_array("v0", v0, (dense.d,)) / dense.prior.factor**2
    wrong = ratio[~((ratio >= 0.0) & (ratio <= 1.0 + 1e-12))]
    if wrong.size:
        raise ValueError(f"v0 must be at least 0 and at most v1, of the slab; got v0 / v1 = {wrong[0]:g}.")
    wrong = dense.prior.mean[(p < 1.0) & (dense.prior.mean != 0.0)]
    if wrong.size:
        raise ValueError(f"prior_mean must be 0 where inclusion_probability < 1; got {wrong[0]:g}.")
    return Problem(dense.scores, dense.pairs, dense.gamma, dense.ties, Spikes(p, np.minimum(ratio, 1.0)))


def default_inclusion_probability(d: int) -> float:
    """Return the default probability of the slab: Theorem 2.5's 1 - exp(-1 / d), but at least 0.1.

    With the theorem's value the expected number of coefficients is about one whatever d. With dozens of coefficients
    and gamma of the order of n, EP often has no fixed point that sparse: with 60 positives among 300 or 600
    observations, 81 coefficients and a Dirac spike it converged on 15 of 24 data sets, and with 0.1 on all.
    """
    return max(float(-np.expm1(-1.0 / d)), 0.1)


def check_gamma(gamma: Any) -> float:
    """Return gamma as a float; refuse what is not one finite, positive number."""
    try:
        value = float(gamma) if np.ndim(gamma) == 0 else np.nan
    except (TypeError, ValueError):
        value = np.nan
    if not 0.0 < value < np.inf:
        raise ValueError(f"gamma must be one finite number > 0 (it multiplies the pair risk); got {gamma!r}.")
    return value


def _factor(covariance: ArrayLike, d: int) -> FloatArray:
    """Return standard deviations (d,) of variances, or the Cholesky factor (d, d) of a covariance matrix."""
    matrix = numeric_array("prior_covariance", covariance)
    if matrix.ndim < 2:
        variances = finite_array("prior_covariance", matrix, (d,))
        bad = int((variances <= 0).sum())
        if bad:
            raise ValueError(f"prior_covariance has {bad} variance(s) <= 0: drop those coefficients or raise these.")
        return np.sqrt(variances)
    finite_array("prior_covariance", matrix, (d, d))
    if not np.allclose(matrix, matrix.T, rtol=1e-8, atol=1e-12 * np.abs(matrix).max()):
        apart = float(np.abs(matrix - matrix.T).max())
        raise ValueError(f"prior_covariance must be symmetric; it differs from its transpose by up to {apart:.3g}.")
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
    """Return the mask (n,) of the positive class, of two classes without weights; refuse other comparisons.

    Messages begin with ``what`` and end with ``instead``.
    """
    pairs = problem.pairs
    if pairs.kind != "two classes" or len(pairs.blocks) != 1 or pairs.weighted:
        raise ValueError(
            f"{what} for two classes with pairs of equal weight: without strata=, weights=, ordered classes or "
            f"censored times. {instead}"
        )
    if pairs.blocks[0].positive.size + pairs.blocks[0].negative.size != pairs.n:
        raise ValueError(
            f"{what} for fits in which every row belongs to a pair; this one was fitted to a part of the rows."
        )
    return pairs.higher
