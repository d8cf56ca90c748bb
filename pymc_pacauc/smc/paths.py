"""Paths of tempering SMC: families of densities between one that can be drawn from and the target.

    log pi_t(x) = log_base(x) + t * log_tilt(x),    0 <= t <= end

Tempering from the prior has ``log_tilt = -risk`` and ``t = gamma`` (Ridgway, Alquier, Chopin and Liang, 2014,
arXiv:1410.1771); starting from a Gaussian fit q has ``log_base = log q``, ``log_tilt = log target - log q`` and
``end = 1``. The sampler uses no more than this. The coordinates x, (N, D), are the path's own; ``finish`` maps them to
theta, (N, d). Use: ``prior_path(problem)``, then ``run_tempering(path, settings, rng)``.

*Scores that are affine in Gaussian variables* (:class:`LinearPath`). Particles are the reduced coefficients u ~ N(0, I)
of :mod:`pymc_pacauc.problem.scores`, which are all that the risk depends on; other directions are drawn from their
prior at the end.

*Directions* (:class:`DirectionPath`). Without an offset the risk does not depend on the length of u, so the posterior
factorises exactly: a length with the chi distribution of D degrees of freedom, whatever the data, and a direction with
density proportional to ``exp(-gamma * risk)`` on the unit sphere. As ``risk(-u) = 1 - risk(u)``, up to pairs that
always tie, length and sign are drawn exactly after every move.

*Bridges* (:class:`Bridge`) start from a Gaussian fit q (expectation propagation, Laplace, variational) instead of the
prior:

    q(x)^(1 - t) * target(x)^t,      0 <= t <= 1,

takes one to three stages where tempering from the prior takes dozens, and its evidence is as exact, because particles
are only drawn from the fit. A fit that is too narrow would lose the tails of the target at the first weighting, so
particles are drawn from a t distribution around it (:mod:`pymc_pacauc.smc.coordinates`), and a small share of them from
the prior (a *defensive mixture*), which bounds the weights. Use: ``bridge_path(prior_path(problem),
fit.posterior.mean, fit.posterior.covariance)``. Each path makes its own bridge (``Path.bridge``), in its own
coordinates by default. Directions are bridged in a chart of the sphere (:class:`ChartBridge`): a Gaussian cannot
represent a chi-distributed length, so that in space most draws of even the best fit have small weights.

*Any other target* is a subclass of :class:`Path` with ``draw`` and ``evaluate``, for example of a Laplace prior:

>>> from scipy import stats
>>> from pymc_pacauc.comparison.risk import linear_risk
>>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 1, 0, 1])
>>> class LaplacePath(Path):
...     def draw(self, size, rng):
...         return rng.laplace(size=(size, self.dimension))
...
...     def evaluate(self, x):
...         risk = linear_risk(x, X, y)
...         return Energies(stats.laplace.logpdf(x).sum(axis=1), -risk, risk)
>>> LaplacePath(dimension=1, gamma=4.0).evaluate(np.array([[1.0], [-1.0]])).risk
array([0.25, 0.75])

Everything else has a default for a path from the prior whose coordinates are theta itself. Further abilities are
attributes, not types: ``ep_problem`` for moves around EP's fit, ``chart_of`` for moves in a chart. Enter a new path in
``tests/smc/test_paths.py``, whose tests every path passes.

Reference: Del Moral, Doucet & Jasra (2006), doi:10.1111/j.1467-9868.2006.00553.x.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from pymc_pacauc.comparison.risk import LinearRisk
from pymc_pacauc.ep.plan import choose_coordinates
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.problem import Problem
from pymc_pacauc.smc import coordinates
from pymc_pacauc.smc.coordinates import Fit, GnomonicChart, positive_factor, squares, standard_fit, unit


class Energies(NamedTuple):
    """Values of one batch of points, each of shape (N,)."""

    log_base: FloatArray
    log_tilt: FloatArray
    risk: FloatArray

    @property
    def finite(self) -> NDArray[np.bool_]:
        return np.isfinite(self.log_base) & np.isfinite(self.log_tilt)


@dataclass(frozen=True, eq=False)
class Population:
    """Particles ``x[N, D]``, their energies, and which particle of the stage before each descends from."""

    x: FloatArray
    energies: Energies
    parent: NDArray[np.intp]

    @property
    def size(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: NDArray[np.intp] | slice) -> Population:
        return Population(self.x[rows], Energies(*(each[rows] for each in self.energies)), self.parent[rows])

    def where(self, accepted: NDArray[np.bool_], x: FloatArray, energies: Energies) -> Population:
        """Return the population with accepted particles replaced by the rows of ``x`` and their energies."""
        both = zip(energies, self.energies, strict=True)
        kept = Energies(*(np.where(accepted, new, old) for new, old in both))
        return Population(np.where(accepted[:, None], x, self.x), kept, self.parent)


class Path:
    """A target of :func:`~pymc_pacauc.smc.tempering.run_tempering`; defaults are those of a path from the prior.

    Attributes
    ----------
    dimension, coefficients : int
        Numbers D of coordinates of x, and d of coefficients theta.
    gamma, end : float
        Gamma and temperature of the target.
    from_prior : bool
        True when the temperature is gamma itself, so that every stage is a posterior of its own.
    absorbed : float
        Log density of observations that the base was conditioned on beforehand, part of the evidence.
    ep_problem : Problem or None
        The problem whose posterior at gamma = t, of reduced coefficients, is the stage at temperature t; or None.
    on_sphere : bool
        True when the length of x does not matter, so that moves may take place in a chart.
    """

    from_prior = True
    on_sphere = False
    ep_problem: Problem | None = None

    def __init__(self, dimension: int, gamma: float, *, coefficients: int | None = None, absorbed: float = 0.0):
        self.dimension, self.gamma, self.absorbed = dimension, gamma, absorbed
        self.coefficients = dimension if coefficients is None else coefficients
        self.end = gamma if self.from_prior else 1.0

    def draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Draw ``x[size, D]`` exactly from the base."""
        raise NotImplementedError

    def evaluate(self, x: FloatArray) -> Energies:
        """Compute the energies of ``x[N, D]`` in one vectorised call."""
        raise NotImplementedError

    def refresh(self, population: Population, temperature: float, rng: np.random.Generator) -> Population:
        """Resample whatever has a known conditional distribution; called after every move."""
        return population

    def finish(self, population: Population, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Return theta of each particle, shape (N, d), and its risk, shape (N,)."""
        return population.x, population.energies.risk

    def log_density(self, theta: FloatArray, risk: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Compute the target's log-density at ``theta[N, d]``, of these risks, and its derivative in gamma, (N,)."""
        energies = self.evaluate(theta)
        return energies.log_base + self.end * energies.log_tilt, energies.log_tilt

    def bridge(self, mean: FloatArray, covariance: FloatArray) -> Path:
        """Return the path from N(mean, covariance) of theta to the same target."""
        return Bridge(self, Fit(mean, *positive_factor(covariance)))

    # What moves ask for.

    def embed(self, x: FloatArray) -> FloatArray:
        """Return ``x[N, D]`` in the coordinates in which particles are compared, shape (N, any)."""
        return x

    def base_move(self, x: FloatArray) -> Fit:
        """Return the proposal around the base, given draws ``x[N, D]`` from it."""
        return self.around(Fit(x.mean(axis=0), x.std(axis=0)))

    def gaussian(self, x: FloatArray, weights: FloatArray) -> Fit:
        """Fit a Gaussian to weighted particles."""
        return coordinates.fit_gaussian(x, weights)

    def around(self, fit: Fit) -> Fit:
        """Return the move around a Gaussian, with heavier tails than it has."""
        return fit.around()

    def chart_of(self, x: FloatArray, weights: FloatArray) -> GnomonicChart | None:
        """Return the chart in which weighted particles move better than in space; None where there is none."""
        return None


# -- from a fit --------------------------------------------------------------------------------------------------------

# Share of the particles of a bridge that start from the prior: weights are at most 1 / DEFENSIVE_SHARE times those from
# the prior. Doubled, log Z has 1.3 times the standard deviation (500 rows, benchmarks/constants.py); halved, the same.
DEFENSIVE_SHARE = 0.05


def bridge_path(path: Path, mean: ArrayLike, covariance: ArrayLike) -> Path:
    """Build the path from N(mean, covariance) of theta to the target of a path that starts from the prior.

    Parameters
    ----------
    path : Path
        Result of :func:`~pymc_pacauc.arrays.prior_path`.
    mean : array_like, shape (d,)
        Mean of the Gaussian to start from, such as a fit's.
    covariance : array_like, shape (d, d)
        Its covariance matrix.

    Returns
    -------
    Path
        Path with the same target; a good start takes one to three stages.

    Raises
    ------
    ValueError
        If mean or covariance have another shape, are not finite or not positive definite, or ``path`` does not start
        from the prior.

    See Also
    --------
    pymc_pacauc.arrays.prior_path : Start from the prior, which gives the posterior at every smaller gamma too.

    Examples
    --------
    >>> from pymc_pacauc import arrays
    >>> problem = arrays.linear_gaussian_problem([[0.0], [1.0], [2.0]], [0, 1, 1], gamma=2.0)
    >>> path = arrays.bridge_path(arrays.prior_path(problem), [0.8], [[0.4]])
    >>> path.draw(5, np.random.default_rng(1)).shape
    (5, 1)
    """
    m, V = np.asarray(mean, dtype=np.float64), np.asarray(covariance, dtype=np.float64)
    d = path.coefficients
    if m.shape != (d,) or V.shape != (d, d):
        raise ValueError(
            f"mean and covariance must have shapes ({d},) and ({d}, {d}), for {d} coefficients; got {m.shape} and "
            f"{V.shape}."
        )
    if not (np.isfinite(m).all() and np.isfinite(V).all()):
        raise ValueError("mean and covariance have NaN or infinite values: check that the fit converged.")
    try:
        np.linalg.cholesky(V)
    except np.linalg.LinAlgError:
        smallest = np.linalg.eigvalsh(V)[0]
        raise ValueError(f"covariance must be positive definite; its smallest eigenvalue is {smallest:.3g}.") from None
    return path.bridge(m, V)


class Bridge(Path):
    """Path from a Gaussian ``fit`` to the target of ``path``, in the coordinates of that path.

    The first particles, except the defensive share, have a t distribution with 5 + d degrees of freedom (``base``). In
    few dimensions its tails are heavy, at no cost. In many dimensions a fixed number of degrees of freedom would spread
    the length of the standardised coefficients far beyond the fit's; this one keeps half of the particles.
    """

    from_prior = False

    def __init__(self, path: Path, fit: Fit):
        super().__init__(fit.dimension, path.gamma, coefficients=path.coefficients, absorbed=path.absorbed)
        self.path, self.fit, self.base = path, fit, fit.around(5.0 + fit.dimension)

    def draw_prior(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Draw ``x[size, D]`` exactly from the prior."""
        return self.path.draw(size, rng)

    def from_the_prior(self, x: FloatArray) -> Energies:
        """Compute the energies of ``x[N, D]`` on the path from the prior."""
        return self.path.evaluate(x)

    def draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        x = self.base.draw(size, rng)  # (size, D)
        guard = rng.random(size) < DEFENSIVE_SHARE
        if guard.any():
            x[guard] = self.draw_prior(int(guard.sum()), rng)
        return x

    @np.errstate(under="ignore")
    def evaluate(self, x: FloatArray) -> Energies:
        log_prior, log_tilt, risk = self.from_the_prior(x)
        log_mixture = np.logaddexp(np.log1p(-DEFENSIVE_SHARE) + self.base.logp(x), np.log(DEFENSIVE_SHARE) + log_prior)
        return Energies(log_mixture, log_prior + self.path.end * log_tilt - log_mixture, risk)

    def bridge(self, mean: FloatArray, covariance: FloatArray) -> Path:
        raise ValueError("path must start from the prior; got one that starts from a fit already.")

    def base_move(self, x: FloatArray) -> Fit:
        return self.around(self.fit)

    def finish(self, population: Population, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        return self.path.finish(population, rng)

    def log_density(self, theta: FloatArray, risk: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self.path.log_density(theta, risk)


# -- scores that are affine in Gaussian variables ----------------------------------------------------------------------


def prior_path(problem: Problem) -> Path:
    """Build the path of distributions from the prior to the posterior of a problem.

    Parameters
    ----------
    problem : Problem
        Linear scores with a Gaussian prior.

    Returns
    -------
    Path
        What :func:`run_tempering` moves particles along: ``prior * exp(-temperature * gamma * risk)``. Where the length
        of theta does not matter, it is not sampled but drawn from its known distribution.

    See Also
    --------
    run_tempering : Sample along the path.
    bridge_path : Start from a Gaussian fit instead of the prior.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_pacauc import arrays
    >>> problem = arrays.linear_gaussian_problem([[0.0], [1.0], [2.0]], [0, 1, 1], gamma=2.0)
    >>> arrays.prior_path(problem).draw(5, np.random.default_rng(1)).shape
    (5, 1)
    """
    problem = problem.in_coordinates(choose_coordinates(problem))
    return DirectionPath(problem) if problem.scale_free else LinearPath(problem)


class LinearPath(Path):
    """Path from prior to posterior of a linear-Gaussian problem, in reduced coefficients u, whose prior is N(0, I)."""

    def __init__(self, problem: Problem):
        dimension = problem.scores.reduced.dimension
        super().__init__(dimension, problem.gamma, coefficients=problem.d, absorbed=problem.absorbed)
        self.problem, self.ep_problem, self.base = problem, problem, standard_fit(dimension)

    @cached_property
    def risk(self) -> LinearRisk:
        """The risk as a function of u."""
        problem, space = self.problem, self.problem.scores.reduced
        offset = space.offset if space.offset.any() else None
        distinct = problem.scores.distinct
        return LinearRisk(space.design, problem.pairs, offset=offset, ties=problem.ties, distinct=distinct)

    def draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        return rng.standard_normal((size, self.dimension))

    def evaluate(self, x: FloatArray) -> Energies:
        risk = self.risk(x)
        return Energies(self.base.logp(x), -risk, risk)

    def finish(self, population: Population, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        return self.problem.scores.complete(population.x, rng), population.energies.risk

    def log_density(self, theta: FloatArray, risk: FloatArray) -> tuple[FloatArray, FloatArray]:
        prior = self.problem.prior
        log_prior = standard_fit(self.coefficients).logp(prior.whiten(theta)) - prior.log_volume
        return log_prior + self.absorbed - self.gamma * risk, -risk

    def base_move(self, x: FloatArray) -> Fit:
        return self.base

    def reduced_moments(self, mean: FloatArray, covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Convert the mean and covariance of theta to those of u."""
        prior, rotation = self.problem.prior, self.problem.scores.reduced.rotation
        to_u = prior.unwhiten_rows(np.eye(self.coefficients) if rotation is None else rotation)  # (k, d)
        spread = to_u @ covariance @ to_u.T
        return to_u @ (mean - prior.mean), 0.5 * (spread + spread.T)

    def bridge(self, mean: FloatArray, covariance: FloatArray) -> Path:
        return super().bridge(*self.reduced_moments(mean, covariance))


class DirectionPath(LinearPath):
    """A :class:`LinearPath` of scores without an offset: length and sign of u are refreshed exactly."""

    on_sphere = True

    @cached_property
    def antipodal_sum(self) -> float:
        """risk(u) + risk(-u), the same for almost every u: 1, less the always-tied pairs when ties cost nothing."""
        u = np.random.default_rng(0).standard_normal((1, self.dimension))
        return float(self.risk(u)[0] + self.risk(-u)[0])

    def positive(self, risk: FloatArray, temperature: float) -> FloatArray:
        """Compute the probability of +u, of the given risk, given the line through u."""
        return np.asarray(special.expit(temperature * (self.antipodal_sum - 2.0 * risk)))

    def refresh(self, population: Population, temperature: float, rng: np.random.Generator) -> Population:
        risk = population.energies.risk
        flip = rng.random(population.size) >= self.positive(risk, temperature)
        risk = np.where(flip, self.antipodal_sum - risk, risk)
        squared = rng.chisquare(self.dimension, population.size)
        scale = np.where(flip, -1.0, 1.0) * np.sqrt(squared / squares(population.x))
        log_base = -0.5 * squared - 0.5 * self.dimension * np.log(2.0 * np.pi)
        return Population(population.x * scale[:, None], Energies(log_base, -risk, risk), population.parent)

    def finish(self, population: Population, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        radii = coordinates.stratified_radii(population.size, self.dimension, rng)
        return super().finish(replace(population, x=unit(population.x) * radii[:, None]), rng)

    def embed(self, x: FloatArray) -> FloatArray:
        return unit(x)

    def chart_of(self, x: FloatArray, weights: FloatArray) -> GnomonicChart | None:
        return coordinates.concentrated(unit(x), weights)

    def bridge(self, mean: FloatArray, covariance: FloatArray) -> Path:
        m, V = self.reduced_moments(mean, covariance)
        if self.dimension == 1 or not m.any():  # there is no chart
            return Bridge(LinearPath(self.problem), Fit(m, *positive_factor(V)))
        return ChartBridge(self, *coordinates.direction_fit(m, V))


class ChartBridge(Bridge):
    """Path from a ``fit`` of the line through u to its posterior, in a gnomonic chart.

    A point of the chart is the line through u and -u, uniformly distributed under the prior: the target's density is
    the sum over both signs, and the sign is drawn at the end from its exact conditional distribution.
    """

    path: DirectionPath

    def __init__(self, path: DirectionPath, chart: GnomonicChart, fit: Fit):
        super().__init__(path, fit)
        self.chart = chart

    def draw_prior(self, size: int, rng: np.random.Generator) -> FloatArray:
        return self.chart.to_plane(self.path.draw(size, rng))[0]

    def from_the_prior(self, x: FloatArray) -> Energies:
        """Compute the energies of lines; the tilt, not linear in the temperature, is that of the target."""
        risk = self.path.risk(self.chart.to_sphere(x))
        opposite = self.path.antipodal_sum - risk
        both_signs = np.logaddexp(-self.gamma * risk, -self.gamma * opposite) - np.log(2.0)
        keep = self.path.positive(risk, self.gamma)
        return Energies(self.chart.log_uniform(x), both_signs / self.gamma, keep * risk + (1.0 - keep) * opposite)

    def finish(self, population: Population, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        u = self.chart.to_sphere(population.x)
        chosen = self.path.refresh(replace(population, x=u, energies=self.path.evaluate(u)), self.gamma, rng)
        return self.path.finish(chosen, rng)

    def embed(self, x: FloatArray) -> FloatArray:
        """Return directions: chart coordinates far from the pole vary by orders of magnitude for similar directions."""
        return self.chart.to_sphere(x)

    def gaussian(self, x: FloatArray, weights: FloatArray) -> Fit:
        """Fit the particles near the pole; return the fit of the start where these are few."""
        if coordinates.near_pole(x).sum() < coordinates.PARTICLES_PER_DIMENSION * self.dimension:
            return self.fit
        return coordinates.fit_near_pole(x, weights)

    def around(self, fit: Fit) -> Fit:
        """Return the move around a fit, with the tails of the prior, a Cauchy distribution in a chart."""
        return fit.around(1.0)
