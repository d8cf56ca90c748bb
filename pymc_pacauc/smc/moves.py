"""Markov moves that leave a tempered density invariant.

A move proposes a point for every particle at once and says by how much the proposal's own asymmetry corrects the
Metropolis ratio; :func:`metropolis` evaluates, accepts and adapts, the same for all of them.

* ``random_walk``: the paper's (appendix Algorithm 2). Steps with kappa times the particles' covariance. Its mixing
  time grows with the dimension; kept for comparison.
* ``gaussian``: preconditioned Crank-Nicolson around the particles' fitted Gaussian N(m, C),
  ``x' = m + sqrt(1 - b^2) (x - m) + b L xi``. It is reversible with respect to N(m, C), so only the *misfit* of the
  Gaussian can reject, and b = 1 is an independent draw from the fit.
* ``prior``: the same around the base of the path. It needs no fit, so it cannot be misled by one: the choice when the
  particles are too few for the dimension, Gaussian-process priors with hundreds of latent scores among them.
* ``ep``: the same around the expectation-propagation fit *of the stage's own target*, for linear-Gaussian problems. The
  fit owes nothing to the particles, so it is as good in hundreds of dimensions with few particles, where a covariance
  fitted to the particles biases the evidence that they estimate.
* ``direction``: for scale-free linear scores. ``gaussian`` in the gnomonic chart of the mean direction once the
  directions are concentrated, before that ``gaussian`` on particles given their exact random length.

Paths on the sphere (:class:`~pymc_pacauc.smc.direction.DirectionPath`) take all of them, ``ep`` in the chart as well.
``auto`` is ``direction`` below 20 dimensions and ``ep`` from there on for linear-Gaussian problems; for other targets
``gaussian``, or ``prior`` above 100 dimensions or with fewer than ten particles per dimension.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.ep.gaussian import ConvergenceWarning, EPFit, fit_ep
from pymc_pacauc.smc.bridge import DirectionBridge
from pymc_pacauc.smc.direction import DirectionPath, GnomonicChart, direction_fit, unit
from pymc_pacauc.smc.gaussian_fit import GaussianFit, fit_gaussian, positive_factor, squares, whitened_moments
from pymc_pacauc.smc.paths import Path, Population, WhitenedPath
from pymc_pacauc.smc.student import StudentFit

__all__ = ["MOVES", "Proposal", "calibrate", "choose_move", "fit_stage", "metropolis"]

FloatArray = NDArray[np.float64]

MOVES = ("auto", "direction", "ep", "gaussian", "prior", "random_walk")
PARTICLES_PER_DIMENSION = 10  # fewer, and a covariance fitted to the particles misleads the moves it is fitted for
LARGEST_FITTED_DIMENSION = 100
EP_DIMENSION = 20  # from here on a fit by EP pays for itself
EP_TOLERANCE = 0.02  # it only has to be a good proposal
CONCENTRATED = 0.9  # mean resultant length from which the gnomonic chart is better than the ambient space
NEAR = 0.5  # height above the equator from which a direction is near the pole
ACCEPTANCE_TARGET = 0.3
DEGREES_OF_FREEDOM = 1.0  # of the moves around a fit


class Proposal(Protocol):
    """``x -> (x', log correction)`` for a whole population; ``step`` in (0, 1] is the size of the move."""

    def __call__(self, x: FloatArray, step: float, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]: ...


@dataclass(frozen=True, eq=False)
class RandomWalk:
    """x' = x + step * L xi, L a factor of kappa times the particles' covariance."""

    factor: FloatArray

    def __call__(self, x: FloatArray, step: float, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        return x + step * rng.standard_normal(x.shape) @ self.factor.T, np.zeros(len(x))


@dataclass(frozen=True, eq=False)
class CrankNicolson:
    """Reversible with respect to ``fit``: the correction is its density ratio."""

    fit: GaussianFit

    def __call__(self, x: FloatArray, step: float, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        z = self.fit.standardise(x)
        proposed = np.sqrt(1.0 - step * step) * z + step * rng.standard_normal(z.shape)
        return self.fit.restore(proposed), 0.5 * (squares(proposed) - squares(z))


@dataclass(frozen=True, eq=False)
class StudentCrankNicolson:
    """Reversible with respect to a t distribution: Crank-Nicolson given the mixing precision, which is drawn first.

    A particle far out has a small precision, so it proposes as far: it does not wait for the bulk to release it.
    """

    fit: StudentFit

    def __call__(self, x: FloatArray, step: float, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        z = self.fit.centre.standardise(x)  # (N, d)
        far = squares(z)  # (N,)
        spread = step / np.sqrt(self.fit.precision_given(far, rng))
        proposed = np.sqrt(1.0 - step * step) * z + spread[:, None] * rng.standard_normal(z.shape)
        return self.fit.centre.restore(proposed), self.fit.log_kernel(far) - self.fit.log_kernel(squares(proposed))


@dataclass(frozen=True, eq=False)
class Lifted:
    """A move of the whole space brought to the sphere: draw the length, move, forget the length.

    Drawing the length from its conditional distribution (chi) and dropping it again are exact; between the two the
    density in space is N(0, I) times the tilt, whence the correction.
    """

    move: Proposal

    def __call__(self, x: FloatArray, step: float, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        lifted = x * np.sqrt(rng.chisquare(x.shape[1], size=(len(x), 1)))
        proposed, correction = self.move(lifted, step, rng)
        return unit(proposed), correction - 0.5 * (squares(proposed) - squares(lifted))


@dataclass(frozen=True, eq=False)
class InChart:
    """A move of the gnomonic plane; the hemisphere stays (the path refreshes signs exactly)."""

    chart: GnomonicChart
    move: Proposal

    def __call__(self, x: FloatArray, step: float, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        w, sign = self.chart.to_plane(x)
        proposed, correction = self.move(w, step, rng)
        correction = correction + self.chart.log_uniform(proposed) - self.chart.log_uniform(w)
        return self.chart.to_sphere(proposed, sign), correction


def choose_move(move: str, path: Path, particles: int) -> str:
    """Resolve ``"auto"``: see the module's docstring."""
    if move not in MOVES:
        raise ValueError(f"move must be one of {', '.join(map(repr, MOVES))}; got {move!r}.")
    spherical = isinstance(path, DirectionPath)
    if move == "direction" and not spherical:
        raise ValueError('move="direction" needs linear scores without an offset under a Gaussian prior; use "auto".')
    if move == "ep" and not isinstance(path, DirectionPath | WhitenedPath):
        raise ValueError('move="ep" needs scores that are affine in Gaussian variables and a start from the prior.')
    if move != "auto":
        return move
    few = particles < PARTICLES_PER_DIMENSION * path.dimension
    if isinstance(path, DirectionPath | WhitenedPath) and (few or path.dimension >= EP_DIMENSION):
        return "ep"
    if few or path.dimension > LARGEST_FITTED_DIMENSION:
        return "prior"
    return "direction" if spherical else "gaussian"


def calibrate(
    move: str,
    path: Path,
    population: Population,
    weights: FloatArray,
    base: GaussianFit,
    ep: EPFit | None,
    rng: np.random.Generator,
) -> Proposal:
    """Fit a move to a weighted population: Algorithm 1(c), where the paper takes S = kappa * Sigma_hat."""
    x = population.x
    if ep is not None:
        return _around_ep(path, ep, x, weights)
    if not isinstance(path, DirectionPath):
        if move == "random_walk":
            return _random_walk(x, weights)
        if isinstance(path, DirectionBridge):
            return around(base if move == "prior" else _near_fit(path, x, weights))
        if move == "prior" and not path.from_prior:
            return around(base)
        return CrankNicolson(base) if move == "prior" else around(fit_gaussian(x, weights))
    if move == "prior":
        return Lifted(CrankNicolson(base))
    if move == "direction" and _fits_a_chart(x, weights):
        chart = GnomonicChart(unit((weights @ x)[None])[0])
        near = np.abs(x @ chart.pole) > NEAR
        w, _ = chart.to_plane(x[near])
        return _in_chart(chart, fit_gaussian(w, weights[near] / weights[near].sum()))
    lifted = x * np.sqrt(rng.chisquare(path.dimension, size=(len(x), 1)))
    if move == "random_walk":
        return Lifted(_random_walk(lifted, weights))
    return Lifted(around(fit_gaussian(lifted, weights)))


def _near_fit(path: DirectionBridge, x: FloatArray, weights: FloatArray) -> GaussianFit:
    """A Gaussian fit of the particles of a chart that are near its pole, the one it started from if they are few.

    The uniform distribution is a Cauchy distribution in a chart: particles near the equator have no covariance.
    """
    near = squares(x) < 1.0 / NEAR**2 - 1.0
    if near.sum() < PARTICLES_PER_DIMENSION * path.dimension:
        return path.fit
    return fit_gaussian(x[near], weights[near] / weights[near].sum())


def around(fit: GaussianFit) -> StudentCrankNicolson:
    """The move around a Gaussian fit: with heavier tails than it."""
    return StudentCrankNicolson(StudentFit(fit, DEGREES_OF_FREEDOM))


def _in_chart(chart: GnomonicChart, fit: GaussianFit) -> InChart:
    """With the tails of the uniform distribution, which is a Cauchy distribution in the chart."""
    return InChart(chart, around(fit))


def _fits_a_chart(x: FloatArray, weights: FloatArray) -> bool:
    """Whether lines through the particles are close enough to their mean line for its chart to be nearly Gaussian.

    Directions near the equator are far out in the chart, where its tails are heavier than a Gaussian's and particles
    get stuck: none may be there.
    """
    resultant = weights @ x
    length = float(np.linalg.norm(resultant))
    if x.shape[1] == 1 or length <= CONCENTRATED:
        return False
    far = np.abs(x @ resultant) <= NEAR * length
    return float(weights[far].sum()) <= 1.0 / len(x)


def fit_stage(path: Path, temperature: float, previous: EPFit | None) -> EPFit:
    """EP's fit of the target at a temperature, from the fit of the stage before."""
    assert isinstance(path, DirectionPath | WhitenedPath)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a poor proposal shows in the moves it needs
        problem = replace(path.problem, gamma=temperature)
        return fit_ep(problem, start=previous, tolerance=EP_TOLERANCE, max_sweeps=50, threads=1)


def _around_ep(path: Path, ep: EPFit, x: FloatArray, weights: FloatArray) -> Proposal:
    assert isinstance(path, DirectionPath | WhitenedPath)
    mean, covariance = whitened_moments(path.problem, ep.posterior.mean, ep.posterior.covariance)
    if isinstance(path, WhitenedPath):
        return around(GaussianFit(mean, positive_factor(covariance)))
    if _fits_a_chart(x, weights):
        return _in_chart(*direction_fit(mean, covariance))
    return Lifted(around(GaussianFit(mean, positive_factor(covariance))))


def metropolis(
    path: Path, proposal: Proposal, population: Population, temperature: float, step: float, rng: np.random.Generator
) -> tuple[Population, float, int]:
    """One Metropolis-Hastings move of every particle: the new population, the acceptance rate, failed evaluations."""
    proposed, correction = proposal(population.x, step, rng)
    new, old = path.evaluate(proposed), population.energies
    usable = new.finite
    with np.errstate(invalid="ignore"):
        log_ratio = new.log_base - old.log_base + temperature * (new.log_tilt - old.log_tilt) + correction
    accepted = usable & (np.log(rng.random(population.size)) < log_ratio)
    return population.replace(accepted, proposed, new), float(accepted.mean()), int(np.sum(~usable))


def adapt(step: float, acceptance: float) -> float:
    """A larger step where more was accepted than the target, never above 1 (an independent proposal)."""
    return min(1.0, step * float(np.exp(acceptance - ACCEPTANCE_TARGET)))


def _random_walk(x: FloatArray, weights: FloatArray) -> RandomWalk:
    kappa = 2.38**2 / x.shape[1]
    return RandomWalk(np.sqrt(kappa) * fit_gaussian(x, weights).factor)
