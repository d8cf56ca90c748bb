"""Markov moves that leave a tempered density invariant.

A move fits a :class:`Proposal` to the weighted particles of a stage; :func:`metropolis` evaluates and accepts, the same
for all of them.

* ``random_walk``: the paper's (appendix Algorithm 2). Steps with kappa times the particles' covariance. Its mixing
  time grows with the dimension; kept for comparison.
* ``gaussian``: preconditioned Crank-Nicolson around the particles' fitted Gaussian N(m, C),
  ``x' = m + sqrt(1 - b^2) (x - m) + b s^(-1/2) L xi``, with a random precision s that makes it reversible with respect
  to a t distribution around the fit. Only the *misfit* of that can reject, and b = 1 forgets where x was. One move in
  four has heavier tails than the target's, so that no particle stays in the tails (:class:`TwoTails`).
* ``prior``: the same around the base of the path. It needs no fit: for few particles and many dimensions, such as
  Gaussian-process priors with hundreds of latent scores.
* ``ep``: the same around the expectation-propagation fit *of the stage's own target*, for linear-Gaussian problems. The
  fit does not depend on the particles, so it works in hundreds of dimensions with few particles, where a covariance
  fitted to the particles would bias the evidence that they estimate.
* ``direction``: for scale-free linear scores. ``gaussian`` in the gnomonic chart of the mean direction once the
  directions are concentrated, before that ``gaussian``.

``auto`` is ``direction`` below 20 dimensions and ``ep`` from there on for linear-Gaussian problems; for other targets
``gaussian``, or ``prior`` above 100 dimensions or with fewer than ten particles per dimension.

To add a move, write a function from a :class:`Situation` to a proposal and enter it in :data:`MOVES` with what it needs
of a path; it is then an option of ``Settings(move=...)``, and ``tests/smc/test_paths.py`` runs it. A new proposal says
in its docstring what it is reversible with respect to (the correction is minus the log of that density's ratio), and is
entered in ``tests/smc/test_moves_proposals.py``, which checks it by Monte Carlo.

References: Ridgway, Alquier, Chopin and Liang (2014), arXiv:1410.1771; Cotter, Roberts, Stuart and White (2013),
doi:10.1214/13-STS421.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from pymc_pacauc.ep.fit import fit
from pymc_pacauc.ep.gaussian import EPFit
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.ep.plan import choose_plan
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.problem import Problem
from pymc_pacauc.smc import coordinates
from pymc_pacauc.smc.coordinates import Fit, GnomonicChart
from pymc_pacauc.smc.paths import Path, Population


class Proposal(Protocol):
    """A new point for every particle of ``x[N, D]``, and the log correction of the acceptance ratio, (N,).

    The correction is ``log K(x', x) - log K(x, x')``, K the transition density; the move is accepted with probability
    ``min(1, pi(x') / pi(x) * exp(correction))``. A proposal does not depend on the target; ``step`` in (0, 1] is the
    size of the move. A :class:`~pymc_pacauc.smc.coordinates.Fit` is a proposal, reversible with respect to itself.
    """

    @property
    def jitter(self) -> float:
        """Jitter of the fitted covariance, see :class:`~pymc_pacauc.smc.coordinates.Fit`."""

    def __call__(self, x: FloatArray, step: float, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]: ...


class RandomWalk(Fit):
    """x' = x + step * sqrt(kappa) L xi, kappa = 2.38^2 / d: symmetric."""

    def __call__(self, x: FloatArray, step: float, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        noise = self.restore(rng.standard_normal(x.shape)) - self.mean  # (N, d)
        return x + step * 2.38 / np.sqrt(x.shape[1]) * noise, np.zeros(len(x))


@dataclass(frozen=True, eq=False)
class TwoTails:
    """A move around one of two t distributions with the same mean and scale, drawn for each particle.

    One in four is around the ``heavy`` one, which brings particles into the tails and out of them, but is rejected
    elsewhere; the others are around one of 20 + 2 d degrees of freedom, nearly Gaussian. Each is reversible with
    respect to its own, and so is accepted with a correction of its own.
    """

    heavy: Fit

    @property
    def jitter(self) -> float:
        return self.heavy.jitter

    def __call__(self, x: FloatArray, step: float, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        # If all moves have heavy tails, d = 50 takes 1.5 times as long from EP; a third of them: as long as a quarter.
        far = rng.random(len(x)) < 0.25
        proposed, correction = np.empty_like(x), np.empty(len(x))
        for some, move in ((far, self.heavy), (~far, self.heavy.around(20.0 + 2.0 * self.heavy.dimension))):
            proposed[some], correction[some] = move(x[some], step, rng)
        return proposed, correction


@dataclass(frozen=True, eq=False)
class InChart:
    """The move around a fit in the gnomonic plane, which keeps length and hemisphere; the path draws these exactly.

    Reversible with respect to what ``move`` is, divided by the density of uniform lines.
    """

    chart: GnomonicChart
    move: Proposal

    @property
    def jitter(self) -> float:
        return self.move.jitter

    def __call__(self, x: FloatArray, step: float, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        w, sign = self.chart.to_plane(x)  # (N, d - 1), (N,)
        proposed, correction = self.move(w, step, rng)
        correction = correction + self.chart.log_uniform(proposed) - self.chart.log_uniform(w)
        return self.chart.to_sphere(proposed, sign * np.sqrt(coordinates.squares(x))), correction


@dataclass(frozen=True, eq=False)
class Situation:
    """State of a stage that a move is fitted to: Algorithm 1(c), where the paper takes S = kappa * Sigma_hat.

    Attributes
    ----------
    path : Path
        The path.
    x, weights : ndarray
        Particles, shape (N, D), and their normalised weights at the temperature of the stage, shape (N,).
    base : Fit
        The proposal around the base of the path.
    ep : EPFit or None
        EP's fit of the stage's target, for the move that asks for it.
    """

    path: Path
    x: FloatArray
    weights: FloatArray
    base: Fit
    ep: EPFit | None

    @property
    def gaussian(self) -> Fit:
        return self.path.gaussian(self.x, self.weights)


def fit_stage(problem: Problem, gamma: float, previous: EPFit | None) -> EPFit:
    """Fit the problem at another gamma by EP, from the fit of the stage before.

    Fifty sweeps are enough for a proposal; a poor one shows in the moves it needs.
    """
    target = replace(problem, gamma=gamma)
    plan = choose_plan(target, start=previous, accuracy="proposal", max_sweeps=50)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found: EPFit = fit(target, plan, n_jobs=1)
    return found


def _gaussian(s: Situation) -> Proposal:
    return TwoTails(s.path.around(s.gaussian))


def _direction(s: Situation) -> Proposal:
    chart = s.path.chart_of(s.x, s.weights)
    if chart is None:
        return _gaussian(s)
    return InChart(chart, TwoTails(coordinates.fit_near_pole(chart.to_plane(s.x)[0], s.weights).around()))


def _ep(s: Situation) -> Proposal:
    assert s.ep is not None  # the engine fits it where the path has a problem to fit
    q = s.ep.posterior.natural
    if s.path.chart_of(s.x, s.weights) is None or not q.mean.any():
        return TwoTails(s.path.around(Fit(q.mean, *coordinates.positive_factor(q.covariance))))
    chart, fit = coordinates.direction_fit(q.mean, q.covariance)
    return InChart(chart, TwoTails(fit.around()))


@dataclass(frozen=True)
class Move:
    """A function that fits a proposal, whether it is for a path, and what it ``needs``, for the message if not."""

    fit: Callable[[Situation], Proposal]
    suits: Callable[[Path], bool] = lambda path: True
    needs: str = ""


MOVES = {
    "direction": Move(
        _direction,
        lambda path: path.on_sphere,
        'linear scores without an offset under a Gaussian prior; use "auto"',
    ),
    "ep": Move(
        _ep,
        lambda path: path.ep_problem is not None,
        "scores that are affine in Gaussian variables and a start from the prior",
    ),
    "gaussian": Move(_gaussian),
    "prior": Move(lambda s: s.base),
    "random_walk": Move(lambda s: RandomWalk(**vars(s.gaussian))),
}


def choose_move(move: str, path: Path, particles: int) -> str:
    """Return the name of the move, that of ``"auto"`` by the rule in the module docstring; refuse an unsuitable one."""
    if move != "auto":
        if not MOVES[move].suits(path):
            raise ValueError(f'move="{move}" needs {MOVES[move].needs}.')
        return move
    few = particles < coordinates.PARTICLES_PER_DIMENSION * path.dimension
    if MOVES["ep"].suits(path) and (few or path.dimension >= 20):  # from here on a fit by EP pays for itself
        return "ep"
    if few or path.dimension > 100:
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
    moved = path.refresh(population.where(accepted, proposed, new), temperature, rng)
    return moved, float(accepted.mean()), int(np.sum(~usable))


def adapt(step: float, acceptance: float) -> float:
    """Increase the step size if the acceptance rate is above 0.3, else reduce it; at most 1, an independent draw."""
    return min(1.0, step * float(np.exp(acceptance - 0.3)))
