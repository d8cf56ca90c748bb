"""Markov moves that leave a tempered density invariant.

A move fits a proposal (:mod:`pymc_pacauc.smc.proposals`) to the weighted particles of a stage; :func:`metropolis`
evaluates, accepts and adapts, the same for all of them.

* ``random_walk``: the paper's (appendix Algorithm 2). Steps with kappa times the particles' covariance. Its mixing
  time grows with the dimension; kept for comparison.
* ``gaussian``: preconditioned Crank-Nicolson around the particles' fitted Gaussian N(m, C),
  ``x' = m + sqrt(1 - b^2) (x - m) + b s^(-1/2) L xi``, with a random precision s that makes it reversible with respect
  to a t distribution around the fit, with heavier tails than the target's. Only the *misfit* of that can reject, and
  b = 1 forgets where x was.
* ``prior``: the same around the base of the path. It needs no fit: for few particles and many dimensions, such as
  Gaussian-process priors with hundreds of latent scores.
* ``ep``: the same around the expectation-propagation fit *of the stage's own target*, for linear-Gaussian problems. The
  fit does not depend on the particles, so it works in hundreds of dimensions with few particles, where a covariance
  fitted to the particles would bias the evidence that they estimate.
* ``direction``: for scale-free linear scores. ``gaussian`` in the gnomonic chart of the mean direction once the
  directions are concentrated, before that ``gaussian`` on particles given their exact random length.

``auto`` is ``direction`` below 20 dimensions and ``ep`` from there on for linear-Gaussian problems; for other targets
``gaussian``, or ``prior`` above 100 dimensions or with fewer than ten particles per dimension.

*EP's fit* is of whitened coefficients w ~ N(0, I), cut to the k directions that reach the scores, by a Cholesky factor
C of the precision and a mean. In space the fit is used directly (:func:`space_fit`); in the gnomonic chart of its mean
direction (:func:`chart_fit`) the covariance across the pole is ``(C^-1 B)' (C^-1 B)``, so that a triangular solve and a
QR decomposition give its factor, without inverting C. Directions that do not reach the scores cost products with k
vectors only, where these are few.

To add a move, write a function from a :class:`Situation` to a proposal and enter it in :data:`MOVES` with what it needs
of a path; it is then an option of ``Settings(move=...)``, and ``tests/smc/test_paths.py`` runs it.

References: Ridgway, Alquier, Chopin and Liang (2014), arXiv:1410.1771; Cotter, Roberts, Stuart and White (2013),
doi:10.1214/13-STS421.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg

from pymc_pacauc.ep.fit import fit
from pymc_pacauc.ep.gaussian import EPFit
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.ep.plan import choose_plan
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.problem import Problem
from pymc_pacauc.smc.coordinates import (
    PARTICLES_PER_DIMENSION,
    Fit,
    GaussianFit,
    GnomonicChart,
    PrecisionFit,
    ReducedFit,
    fit_gaussian,
    near_pole,
    positive_factor,
)
from pymc_pacauc.smc.paths import Path, Population
from pymc_pacauc.smc.proposals import InChart, Proposal, RandomWalk, around

MOST_SWEEPS = 50  # of the fit for a proposal; a poor one shows in the moves it needs


def fit_stage(problem: Problem, gamma: float, previous: EPFit | None) -> EPFit:
    """Fit the problem at another gamma by EP, from the fit of the stage before."""
    target = replace(problem, gamma=gamma)
    plan = choose_plan(target, start=previous, accuracy="proposal", max_sweeps=MOST_SWEEPS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found: EPFit = fit(target, plan, n_jobs=1)
    return found


def space_fit(ep: EPFit) -> Fit:
    """Return EP's Gaussian of the whitened coefficients."""
    q, rotation = ep.posterior.natural, ep.problem.scores.reduced.rotation
    if rotation is None:
        return PrecisionFit(q.mean, q.factor)
    if _few(rotation):
        return ReducedFit(PrecisionFit(q.mean, q.factor), rotation, 1.0)
    root = rotation.T @ q.factor  # (d, k)
    precision = np.eye(rotation.shape[1]) + root @ root.T - rotation.T @ rotation
    return PrecisionFit(q.mean @ rotation, linalg.cholesky(precision, lower=True, check_finite=False))


def chart_fit(ep: EPFit) -> tuple[GnomonicChart, Fit]:
    """Return the chart at EP's mean direction, and a Gaussian for its coordinates by moments.

    The same as :func:`~pymc_pacauc.smc.coordinates.direction_fit` of the whitened moments.
    """
    q, rotation = ep.posterior.natural, ep.problem.scores.reduced.rotation
    k = q.mean.size
    e = q.mean / np.linalg.norm(q.mean)  # (k,)
    inner = GnomonicChart(e)
    along = float(np.sum(linalg.solve_triangular(q.factor, e, lower=True, check_finite=False) ** 2) + q.mean @ q.mean)
    scale = 1.0 / np.sqrt(along)
    chart = inner if rotation is None else GnomonicChart(e @ rotation)
    if k == 1:
        return chart, GaussianFit(np.zeros(chart.d - 1), np.full(chart.d - 1, scale))
    root = linalg.solve_triangular(q.factor, inner.basis, lower=True, check_finite=False)  # (k, k - 1)
    upper = linalg.qr(root, mode="r", check_finite=False)[0][: k - 1]  # (k - 1, k - 1)
    upper *= np.sign(np.diagonal(upper))[:, None]
    fit = GaussianFit(np.zeros(k - 1), scale * upper.T)
    if rotation is None:
        return chart, fit
    across = inner.basis.T @ chart.across(rotation)  # (k - 1, d - 1)
    if _few(rotation):
        return chart, ReducedFit(fit, across, scale)
    root = fit.factor.T @ across
    covariance = scale**2 * (np.eye(chart.d - 1) - across.T @ across) + root.T @ root
    return chart, GaussianFit(np.zeros(chart.d - 1), *positive_factor(covariance))


def _few(rotation: FloatArray) -> bool:
    """Return whether computing in the k directions costs less than in all d."""
    return 4 * rotation.shape[0] < rotation.shape[1]


LARGEST_FITTED_DIMENSION = 100
EP_DIMENSION = 20  # from here on a fit by EP pays for itself
ACCEPTANCE_TARGET = 0.3


@dataclass(frozen=True, eq=False)
class Situation:
    """What a move can be fitted to: Algorithm 1(c), where the paper takes S = kappa * Sigma_hat of the particles.

    Attributes
    ----------
    path
        The path.
    x, weights
        Particles, shape (N, D), and their normalised weights at the temperature of the stage, shape (N,).
    base
        The proposal around the base of the path.
    ep
        EP's fit of the stage's target, for the move that asks for it.
    rng
        A generator.
    """

    path: Path
    x: FloatArray
    weights: FloatArray
    base: Proposal
    ep: EPFit | None
    rng: np.random.Generator


def _random_walk(s: Situation) -> Proposal:
    return s.path.lower(RandomWalk(s.path.gaussian(s.x, s.weights, s.rng)))


def _gaussian(s: Situation) -> Proposal:
    return s.path.around(s.path.gaussian(s.x, s.weights, s.rng))


def _prior(s: Situation) -> Proposal:
    return s.base


def _direction(s: Situation) -> Proposal:
    chart = s.path.chart_of(s.x, s.weights)
    if chart is None:
        return _gaussian(s)
    w, _ = chart.to_plane(s.x)  # (N, D - 1)
    near = near_pole(w)
    return InChart(chart, around(fit_gaussian(w[near], s.weights[near] / s.weights[near].sum())))


def _ep(s: Situation) -> Proposal:
    assert s.ep is not None  # the engine fits it where the path has a problem to fit
    if s.path.chart_of(s.x, s.weights) is None or not s.ep.posterior.natural.mean.any():
        return s.path.around(space_fit(s.ep))
    chart, fit = chart_fit(s.ep)
    return InChart(chart, around(fit))


@dataclass(frozen=True)
class Move:
    """A function that fits a proposal, whether it is for a path, and what it ``needs``, for the message if not."""

    fit: Callable[[Situation], Proposal]
    suits: Callable[[Path], bool] = lambda path: True
    needs: str = ""


MOVES = {
    "direction": Move(
        _direction, lambda path: path.on_sphere, 'linear scores without an offset under a Gaussian prior; use "auto"'
    ),
    "ep": Move(
        _ep,
        lambda path: path.ep_problem is not None,
        "scores that are affine in Gaussian variables and a start from the prior",
    ),
    "gaussian": Move(_gaussian),
    "prior": Move(_prior),
    "random_walk": Move(_random_walk),
}


def check_move(move: str) -> None:
    """Refuse unknown moves."""
    if move not in ("auto", *MOVES):
        raise ValueError(f"move must be one of {', '.join(map(repr, ('auto', *MOVES)))}; got {move!r}.")


def choose_move(move: str, path: Path, particles: int) -> str:
    """Resolve ``"auto"``: see the module's docstring."""
    if move != "auto":
        if not MOVES[move].suits(path):
            raise ValueError(f'move="{move}" needs {MOVES[move].needs}.')
        return move
    few = particles < PARTICLES_PER_DIMENSION * path.dimension
    if MOVES["ep"].suits(path) and (few or path.dimension >= EP_DIMENSION):
        return "ep"
    if few or path.dimension > LARGEST_FITTED_DIMENSION:
        return "prior"
    return "direction" if MOVES["direction"].suits(path) else "gaussian"


def metropolis(
    path: Path, proposal: Proposal, population: Population, temperature: float, step: float, rng: np.random.Generator
) -> tuple[Population, float, int]:
    """Make one Metropolis-Hastings move of every particle; return population, acceptance rate, failed evaluations."""
    proposed, correction = proposal(population.x, step, rng)
    new, old = path.evaluate(proposed), population.energies
    usable = new.finite
    with np.errstate(invalid="ignore"):
        log_ratio = new.log_base - old.log_base + temperature * (new.log_tilt - old.log_tilt) + correction
    accepted = usable & (np.log(rng.random(population.size)) < log_ratio)
    return population.replace(accepted, proposed, new), float(accepted.mean()), int(np.sum(~usable))


def adapt(step: float, acceptance: float) -> float:
    """Increase the step if the acceptance rate is above the target, else reduce it; at most 1 (independent)."""
    return min(1.0, step * float(np.exp(acceptance - ACCEPTANCE_TARGET)))
