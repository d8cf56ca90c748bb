"""Start from a Gaussian fit instead of the prior.

A fit q (expectation propagation, Laplace, variational) is close to the target, so the path

    q(x)^(1 - t) * target(x)^t,      0 <= t <= 1

needs one to three stages where tempering from the prior needs dozens, and its evidence is as exact: the fit is only
where particles come from. Because a fit that is too narrow would lose the tails of the target at the first weighting,
particles are drawn from the t distribution around it (:mod:`pymc_pacauc.smc.student`), and a small share of them from
the prior (a *defensive mixture*), which bounds the weights whatever the fit is worth.

Use: ``bridge_path(prior_path(problem), fit.posterior.mean, fit.posterior.covariance)``, a path like any other. Each
path makes its own bridge (``Path.bridge``): :class:`GaussianBridge` in its own coordinates by default; directions are
bridged in a chart (:class:`~pymc_pacauc.smc.direction.DirectionBridge`). To add a bridge, subclass :class:`Bridge`,
give it ``dimension``, ``prior_draw``, ``evaluate`` and ``finish``, and return it from the ``bridge`` of the path it
serves.

References: sequential Monte Carlo along any path of densities, Del Moral, Doucet and Jasra (2006),
doi:10.1111/j.1467-9868.2006.00553.x.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_pacauc.smc.gaussian_fit import GaussianFit
from pymc_pacauc.smc.paths import Energies, Path, PathDefaults, Population
from pymc_pacauc.smc.proposals import Proposal
from pymc_pacauc.smc.student import StudentFit

__all__ = ["Bridge", "GaussianBridge", "bridge_path", "defensive"]

FloatArray = NDArray[np.float64]

DEFENSIVE_SHARE = 0.05


def bridge_path(path: Path, mean: ArrayLike, covariance: ArrayLike) -> Path:
    """The path from N(mean, covariance) of theta to the target of ``path`` (a path that starts from the prior)."""
    m, V = np.asarray(mean, dtype=np.float64), np.asarray(covariance, dtype=np.float64)
    d = path.coefficients
    if m.shape != (d,) or V.shape != (d, d):
        raise ValueError(f"the fit has shapes {m.shape} and {V.shape}; the target has {d} coefficients.")
    if not (np.isfinite(m).all() and np.isfinite(V).all()):
        raise ValueError("the fit to start from has NaN or infinite values; did it converge?")
    try:
        np.linalg.cholesky(V)
    except np.linalg.LinAlgError:
        raise ValueError("the covariance of the fit to start from is not positive definite.") from None
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
    def from_prior(self) -> bool:
        return False

    @cached_property
    def base(self) -> StudentFit:
        """Where particles come from, but for the defensive share: 5 + d degrees of freedom.

        In few dimensions the tails are heavy, at no cost. In many, a fixed number of degrees of freedom would spread
        the length of the standardised coefficients far beyond the fit's; this one keeps half of the particles.
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
        raise ValueError("start from a fit to a path from the prior, not to one that starts from a fit already.")


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
    """log density of the mixture that particles are drawn from."""
    mixture: FloatArray = np.logaddexp(np.log1p(-DEFENSIVE_SHARE) + log_fit, np.log(DEFENSIVE_SHARE) + log_prior)
    return mixture
