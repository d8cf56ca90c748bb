"""Paths of tempering SMC: families of densities between one that can be drawn from and the target.

    log pi_t(x) = log_base(x) + t * log_tilt(x),    0 <= t <= end

Tempering from the prior has ``log_tilt = -risk`` and ``t = gamma`` (Ridgway, Alquier, Chopin and Liang, 2014,
arXiv:1410.1771); starting from a Gaussian fit q has ``log_base = log q``, ``log_tilt = log target - log q`` and
``end = 1``. The sampler uses no more than this. The coordinates x, (N, D), are the path's own; ``finish`` maps them to
theta, (N, d). Use: ``prior_path(problem)`` or a :class:`ModelPath`, then ``run_tempering(path, settings, rng)``.

*Bridges* start from a Gaussian fit q (expectation propagation, Laplace, variational) instead of the prior:

    q(x)^(1 - t) * target(x)^t,      0 <= t <= 1,

takes one to three stages where tempering from the prior takes dozens, and its evidence is as exact, because particles
are only drawn from the fit. A fit that is too narrow would lose the tails of the target at the first weighting, so
particles are drawn from a t distribution around it (:mod:`pymc_pacauc.smc.coordinates`), and a small share of them from
the prior (a *defensive mixture*), which bounds the weights. Use: ``bridge_path(prior_path(problem),
fit.posterior.mean, fit.posterior.covariance)``. Each path makes its own bridge (``Path.bridge``):
:class:`GaussianBridge` in its own coordinates by default; directions are bridged in a chart
(:class:`~pymc_pacauc.smc.direction.DirectionBridge`).

*Processes of low rank* (:class:`FeaturePath`). Where the scores of n observations are r features
(:mod:`pymc_pacauc.problem.scores`), the risk depends on their coefficients u ~ N(0, I_r) alone. Particles move in these
r dimensions, along the path ``inner``; other directions are drawn from their prior at the end.

*From the prior* the temperature is gamma, and every stage is a posterior. :class:`WhitenedPath` is for scores that are
affine in Gaussian variables, :class:`ModelPath` for any target given by functions, for example a Laplace prior:

>>> from scipy import stats
>>> from pymc_pacauc.comparison.risk import linear_risk
>>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 1, 0, 1])
>>> path = ModelPath(
...     prior_logp=lambda theta: stats.laplace.logpdf(theta).sum(axis=1),
...     risk=lambda theta: linear_risk(theta, X, y),
...     prior_draw=lambda size, rng: rng.laplace(size=(size, 1)),
...     gamma=4.0,
...     dimension=1,
... )
>>> path.evaluate(np.array([[1.0], [-1.0]])).risk
array([0.25, 0.75])

To add a path from a prior, subclass :class:`FromPrior` and give it ``dimension``, ``gamma``, ``draw`` and ``evaluate``;
everything else has a default for coordinates that are theta itself. Further abilities are attributes, not types:
``ep_problem`` for moves around EP's fit, ``gaussian``, ``lower``, ``around`` and ``chart_of`` for moves in other
coordinates than x. To add a bridge, subclass :class:`Bridge`, give it ``dimension``, ``prior_draw``, ``evaluate`` and
``finish``, and return it from ``bridge`` of its path. Enter both in ``tests/smc/test_paths.py``, whose tests every path
passes.

Reference: Del Moral, Doucet & Jasra (2006), doi:10.1111/j.1467-9868.2006.00553.x.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_pacauc.comparison.risk import LinearRisk
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.problem import Problem
from pymc_pacauc.problem.scores import GaussianPrior, LinearScores
from pymc_pacauc.smc.coordinates import (
    Fit,
    GaussianFit,
    GnomonicChart,
    StudentFit,
    fit_gaussian,
    positive_factor,
    standard_fit,
)
from pymc_pacauc.smc.proposals import CrankNicolson, Proposal, around


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

    def take(self, index: NDArray[np.intp], particles: int) -> Population:
        """The states at ``index``, each remembering which of so many particles it was a state of."""
        return Population(self.x[index], Energies(*(each[index] for each in self.energies)), index % particles)

    def first(self, size: int) -> Population:
        """The first ``size`` states."""
        return Population(self.x[:size], Energies(*(each[:size] for each in self.energies)), self.parent[:size])

    def replace(self, accepted: NDArray[np.bool_], x: FloatArray, energies: Energies) -> Population:
        """Overwrite the accepted ones."""
        both = zip(energies, self.energies, strict=True)
        kept = Energies(*(np.where(accepted, new, old) for new, old in both))
        return Population(np.where(accepted[:, None], x, self.x), kept, self.parent)


class Path(Protocol):
    """The protocol of targets of :func:`~pymc_pacauc.smc.tempering.run_tempering`."""

    @property
    def dimension(self) -> int:
        """Number D of coordinates of x."""

    @property
    def coefficients(self) -> int:
        """Number d of coefficients theta."""

    @property
    def end(self) -> float:
        """The temperature of the target."""

    @property
    def gamma(self) -> float:
        """Gamma of the target."""

    @property
    def from_prior(self) -> bool:
        """True when the temperature is gamma itself, so that every stage is a posterior of its own."""

    def draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Exact draws ``x[size, D]`` from the base."""

    def evaluate(self, x: FloatArray) -> Energies:
        """Energies of ``x[N, D]``, in one vectorised call."""

    def refresh(self, population: Population, temperature: float, rng: np.random.Generator) -> Population:
        """Resample whatever has a known conditional distribution, once a stage."""

    def finish(self, population: Population, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """theta of each particle, shape (N, d), and its risk, shape (N,)."""

    def log_density(self, theta: FloatArray, risk: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The target's log-density at ``theta[N, d]`` of the given risks, and its derivative in gamma, shapes (N,)."""

    def bridge(self, mean: FloatArray, covariance: FloatArray) -> Path:
        """The path from N(mean, covariance) of theta to the same target; see :mod:`pymc_pacauc.smc.paths`."""

    @property
    def absorbed(self) -> float:
        """Log density of observations that the base was conditioned on beforehand, part of the evidence."""

    # What moves ask for.

    @property
    def ep_problem(self) -> Problem | None:
        """The problem whose posterior at gamma = t is the stage at temperature t, in whitened coordinates, or None."""

    @property
    def on_sphere(self) -> bool:
        """True when x are directions, so that moves may take place in a chart."""

    def embed(self, x: FloatArray) -> FloatArray:
        """``x[N, D]`` in coordinates in which particles are compared, shape (N, any)."""

    def base_move(self, x: FloatArray) -> Proposal:
        """The proposal around the base, given draws ``x[N, D]`` from it."""

    def gaussian(self, x: FloatArray, weights: FloatArray, rng: np.random.Generator) -> GaussianFit:
        """A Gaussian fit of weighted particles, in the space in which they are moved."""

    def lower(self, move: Proposal) -> Proposal:
        """A move of that space as a move of x."""

    def around(self, fit: Fit) -> Proposal:
        """The heavy-tailed move around a Gaussian of that space, as a move of x."""

    def chart_of(self, x: FloatArray, weights: FloatArray) -> GnomonicChart | None:
        """The chart in which weighted directions are better moved than in space; None where there is none."""


class PathDefaults:
    """Coordinates that are theta itself, and moved as they are."""

    @property
    def absorbed(self) -> float:
        return 0.0

    @property
    def coefficients(self: Path) -> int:
        return self.dimension

    @property
    def ep_problem(self) -> Problem | None:
        return None

    @property
    def on_sphere(self) -> bool:
        return False

    def embed(self, x: FloatArray) -> FloatArray:
        return x

    def refresh(self, population: Population, temperature: float, rng: np.random.Generator) -> Population:
        return population

    def finish(self, population: Population, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        return population.x, population.energies.risk

    def base_move(self, x: FloatArray) -> Proposal:
        return self.around(GaussianFit(x.mean(axis=0), x.std(axis=0)))

    def gaussian(self, x: FloatArray, weights: FloatArray, rng: np.random.Generator) -> GaussianFit:
        return fit_gaussian(x, weights)

    def lower(self, move: Proposal) -> Proposal:
        return move

    def around(self, fit: Fit) -> Proposal:
        return self.lower(around(fit))

    def chart_of(self, x: FloatArray, weights: FloatArray) -> GnomonicChart | None:
        return None


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


@dataclass(frozen=True, eq=False)
class Bridge(PathDefaults):
    """From a Gaussian fit to the target of ``path``; ``fit`` is in the coordinates of the bridge."""

    path: Path
    fit: GaussianFit

    @property
    def end(self) -> float:
        return 1.0

    @property
    def gamma(self) -> float:
        return self.path.gamma

    @property
    def coefficients(self) -> int:
        return self.path.coefficients

    @property
    def absorbed(self) -> float:
        return self.path.absorbed

    @property
    def from_prior(self) -> bool:
        return False

    @cached_property
    def base(self) -> StudentFit:
        """Distribution of the first particles, except the defensive share: t with 5 + d degrees of freedom.

        In few dimensions its tails are heavy, at no cost. In many dimensions a fixed number of degrees of freedom would
        spread the length of the standardised coefficients far beyond the fit's; this one keeps half of the particles.
        """
        return StudentFit(self.fit, 5.0 + self.fit.dimension)

    def draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        x = self.base.draw(size, rng)  # (size, D)
        guard = rng.random(size) < DEFENSIVE_SHARE
        if guard.any():
            x[guard] = self.prior_draw(int(guard.sum()), rng)
        return x

    def prior_draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Draws from the prior in the coordinates of the bridge."""
        raise NotImplementedError

    def log_density(self, theta: FloatArray, risk: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self.path.log_density(theta, risk)

    def base_move(self, x: FloatArray) -> Proposal:
        return self.around(self.fit)

    def bridge(self, mean: FloatArray, covariance: FloatArray) -> Path:
        raise ValueError("path must start from the prior; got one that starts from a fit already.")


@dataclass(frozen=True, eq=False)
class GaussianBridge(Bridge):
    """From a Gaussian fit to the target, in the coordinates of ``path``."""

    @property
    def dimension(self) -> int:
        return self.path.dimension

    def prior_draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        return self.path.draw(size, rng)

    def evaluate(self, x: FloatArray) -> Energies:
        energies = self.path.evaluate(x)
        log_fit = defensive(self.base.logp(x), energies.log_base)
        target = energies.log_base + self.path.end * energies.log_tilt
        return Energies(log_fit, target - log_fit, energies.risk)

    def finish(self, population: Population, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        return self.path.finish(population, rng)


def defensive(log_fit: FloatArray, log_prior: FloatArray) -> FloatArray:
    """Compute the log density of the mixture that particles are drawn from."""
    mixture: FloatArray = np.logaddexp(np.log1p(-DEFENSIVE_SHARE) + log_fit, np.log(DEFENSIVE_SHARE) + log_prior)
    return mixture


class FromPrior(PathDefaults):
    """Defaults of a path whose base is the prior and whose temperature is gamma."""

    @property
    def from_prior(self) -> bool:
        return True

    @property
    def end(self: Path) -> float:
        return self.gamma

    def log_density(self: Path, theta: FloatArray, risk: FloatArray) -> tuple[FloatArray, FloatArray]:
        energies = self.evaluate(theta)
        return energies.log_base + self.end * energies.log_tilt, energies.log_tilt

    def bridge(self: Path, mean: FloatArray, covariance: FloatArray) -> Path:
        return GaussianBridge(self, GaussianFit(mean, *positive_factor(covariance)))


@dataclass(frozen=True, eq=False)
class LinearPath(FromPrior):
    """What paths of a linear-Gaussian problem share."""

    problem: Problem

    @property
    def dimension(self) -> int:
        return self.problem.d

    @property
    def gamma(self) -> float:
        return self.problem.gamma

    @property
    def absorbed(self) -> float:
        return self.problem.absorbed

    @property
    def ep_problem(self) -> Problem | None:
        return self.problem

    @cached_property
    def risk(self) -> LinearRisk:
        """The risk as a function of whitened coefficients."""
        return self.problem.whitened_risk

    def log_density(self, theta: FloatArray, risk: FloatArray) -> tuple[FloatArray, FloatArray]:
        prior = self.problem.prior
        log_prior = standard_fit(self.dimension).logp(prior.whiten(theta)) - prior.log_volume
        return log_prior + self.absorbed - self.gamma * risk, -risk

    def whitened_moments(self, mean: FloatArray, covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and covariance of theta in the coordinates whose prior is N(0, I)."""
        centre = self.problem.prior.whiten(mean[None])  # (1, d)
        rows = (
            self.problem.prior.whiten(mean + np.linalg.cholesky(covariance).T) - centre
        )  # (d, d): whitening is affine
        return centre[0], rows.T @ rows


@dataclass(frozen=True, eq=False)
class WhitenedPath(LinearPath):
    """Prior to posterior of a linear-Gaussian problem, in coordinates whose prior is N(0, I)."""

    def draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        return rng.standard_normal((size, self.dimension))

    def evaluate(self, x: FloatArray) -> Energies:
        risk = self.risk(x)
        return Energies(standard_fit(self.dimension).logp(x), -risk, risk)

    def finish(self, population: Population, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        return self.problem.prior.color(population.x), population.energies.risk

    def base_move(self, x: FloatArray) -> Proposal:
        return CrankNicolson(standard_fit(self.dimension))

    def bridge(self, mean: FloatArray, covariance: FloatArray) -> Path:
        m, V = self.whitened_moments(mean, covariance)
        return GaussianBridge(self, GaussianFit(m, *positive_factor(V)))


@dataclass(frozen=True, eq=False)
class ModelPath(FromPrior):
    """Prior to posterior of any target given by functions of ``theta[N, D]``.

    Attributes
    ----------
    prior_logp
        Normalised log prior density, shape (N,).
    risk
        The risk, shape (N,).
    prior_draw
        ``(size, rng) -> theta[size, D]``.
    gamma
        Inverse temperature of the target.
    data_logp
        What is tempered, at full strength, where it is more than ``-gamma * risk`` (other likelihoods, potentials).
    """

    prior_logp: Callable[[FloatArray], FloatArray]
    risk: Callable[[FloatArray], FloatArray]
    prior_draw: Callable[[int, np.random.Generator], FloatArray]
    gamma: float
    dimension: int
    data_logp: Callable[[FloatArray], FloatArray] | None = None

    def draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        return self.prior_draw(size, rng)

    def evaluate(self, x: FloatArray) -> Energies:
        risk = self.risk(x)
        tilt = -risk if self.data_logp is None else self.data_logp(x) / self.gamma
        return Energies(self.prior_logp(x), tilt, risk)


def feature_problem(problem: Problem) -> Problem:
    """The same posterior, of the reduced coefficients u ~ N(0, I_r)."""
    space = problem.scores.reduced
    r = space.dimension
    scores = LinearScores(space.design, space.offset, GaussianPrior(np.zeros(r), np.ones(r)))
    return replace(problem, scores=scores)


@dataclass(frozen=True, eq=False)
class FeaturePath:
    """``inner``, a path of the features' coefficients, as a path to the posterior of all coefficients."""

    problem: Problem
    inner: Path

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "inner":  # while it is being copied or unpickled
            raise AttributeError(name)
        return getattr(self.inner, name)

    @property
    def coefficients(self) -> int:
        return self.problem.d

    def finish(self, population: Population, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        u, risk = self.inner.finish(population, rng)
        return self.problem.scores.complete(u, rng), risk

    def log_density(self, theta: FloatArray, risk: FloatArray) -> tuple[FloatArray, FloatArray]:
        prior = self.problem.prior
        log_prior = standard_fit(self.problem.d).logp(prior.whiten(theta)) - prior.log_volume
        return log_prior + self.problem.absorbed - self.inner.gamma * risk, -risk

    def bridge(self, mean: FloatArray, covariance: FloatArray) -> Path:
        scores = self.problem.scores
        assert scores.reduced.rotation is not None
        to_u = scores.prior.unwhiten_rows(scores.reduced.rotation)
        inner = self.inner.bridge(to_u @ (mean - scores.prior.mean), to_u @ covariance @ to_u.T)
        return cast("Path", FeaturePath(self.problem, inner))
