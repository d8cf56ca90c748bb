"""Tempering sequential Monte Carlo: the paper's Algorithm 1, keeping all states, and what to doubt of a run.

N particles start from a distribution that can be drawn (the prior, gamma = 0) and follow a path of distributions to
the target (gamma_T). A stage

(a) raises the temperature until the weights ``exp((t' - t) * log_tilt)`` have lost a given share of their effective
    sample size, found by bisection, and no further than the target;
(b) resamples particles in proportion to their weights;
(c) moves every particle by Markov moves that leave the new distribution invariant;
(d) multiplies the evidence by the mean weight.

Moves go on until the particles have forgotten where the stage started them (their correlation with the start falls
below ``decorrelation``) or ``max_moves`` is reached, which is reported: too few, and the evidence is silently wrong by
tens of nats in fifty dimensions. Stopping as soon as the particles look decorrelated favours states that look so by
chance; therefore a quarter as many moves follow. A stage costs N moves times the cost of a risk, O(n log n + n d).

Every state that a move leads to has the stage's distribution, so all are kept (``state.visited``, waste-free SMC): the
next stage weights and resamples from all of them, and averages over them have a third of the variance of those over the
last states, which are ``state.population``.

Use: ``state = run_tempering(path, Settings(particles=1000), rng)``; ``state.log_evidence``,
``path.finish(state.population, rng)`` for draws of theta with their risks, ``state.stages`` for the record. Stages are
pure functions of a frozen state, ``state = advance(path, settings, state, rng)``. To add a target or a move see
:mod:`pymc_pacauc.smc.paths` and :mod:`pymc_pacauc.smc.moves`. To add a symptom of a wrong run, enter it
in :func:`diagnose`, and test it both ways: silent on a run that is right, loud on one that is wrong.

References: Ridgway, Alquier, Chopin and Liang (2014), arXiv:1410.1771, Algorithm 1; Del Moral, Doucet and Jasra (2006),
doi:10.1111/j.1467-9868.2006.00553.x; waste-free SMC, Dau and Chopin (2022), doi:10.1111/rssb.12475.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np

from pymc_pacauc.ep.gaussian import EPFit
from pymc_pacauc.interrupt import raises_interrupts
from pymc_pacauc.numerics import (
    FloatArray,
    check_choice,
    check_probability,
    check_whole,
    effective_sample_size,
    log_mean_exp,
    normalise,
    systematic,
)
from pymc_pacauc.smc.coordinates import PARTICLES_PER_DIMENSION, Fit
from pymc_pacauc.smc.log_evidence import stage_variance
from pymc_pacauc.smc.moves import MOVES, Proposal, Situation, adapt, choose_move, fit_stage, metropolis
from pymc_pacauc.smc.paths import Energies, Path, Population

# Share of accepted moves below which a stage is warned of: a particle then moves once in fifty. Doubled, once in 25
COLLAPSED_ACCEPTANCE = 0.02
# Draws from the base for each particle, which the first stage weights. Doubled, a run from a fit takes a third longer,
# for half the variance of its log evidence.
AT_START = 4
MOST_KEPT = 16  # states of a particle in a stage, evenly spread; doubled, twice the memory and no less variance


class TemperingWarning(UserWarning):
    """A run of tempering SMC may be wrong; the message says why and what to do.

    See Also
    --------
    pymc_pacauc.TemperingSMC : The sampler that warns.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> with pm.Model():
    ...     theta = pm.Normal("theta", size=1)
    ...     auc = pac.AUCPotential("auc", np.array([[0.0], [1.0], [2.0]]) @ theta, [0, 0, 1], gamma=4.0)
    ...     step = pac.TemperingSMC(particles=200)
    ...     idata = pm.sample(200, step=step, chains=1, cores=1, random_seed=1, progressbar=False)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", pac.results.TemperingWarning)  # stop instead of warning
    ...     pac.tempering_path(idata.isel(draw=[0]))
    Traceback (most recent call last):
        ...
    pymc_pacauc.smc.tempering.TemperingWarning: idata has no record of ... stage(s)...
    """


def diagnose(path: Path, settings: Settings, state: State) -> tuple[str, ...]:
    """Return messages about a finished run, most serious first; none if no symptom is found.

    The correlation of C independent pairs has a standard error of about C^(-1/2): moves are blamed for one that exceeds
    what was asked for by three of these.
    """
    start, *stages = state.stages
    advice = ", start from a fit (start=)" if path.from_prior else ""
    found = []
    if start.failed:
        found.append(
            f"The log-density was NaN or infinite at {start.failed} of the {AT_START * settings.particles} starting "
            "points; they were given weight zero, as if the prior excluded them."
        )
    if failed := sum(stage.failed for stage in stages):
        found.append(
            f"The log-density was NaN or infinite at {failed} proposed points, which were rejected. "
            "If the model does not exclude such points on purpose, look for overflow or invalid operations in it."
        )
    tolerated = settings.decorrelation + 3.0 / float(np.sqrt(settings.particles))
    if stuck := [stage for stage in stages if stage.correlation > tolerated]:
        consequences = []
        if stuck[0] is not stages[-1]:
            consequences.append("the log evidence can be wrong by many times its standard error")
        if stuck[-1] is stages[-1]:
            consequences.append("the draws depend on each other")
        found.append(
            f"In {len(stuck)} of {len(stages)} stages the moves (max_moves={settings.max_moves}) left particles "
            f"correlated with where they started (up to {max(stage.correlation for stage in stuck):.2f}; independent "
            f"ones stay below {tolerated:.2f}): {' and '.join(consequences)}. Allow more moves (max_moves=), use more "
            f"particles{advice}, or reparametrise (a hierarchical prior: non-centred)."
        )
    if collapsed := sum(stage.acceptance_rate < COLLAPSED_ACCEPTANCE for stage in stages):
        found.append(
            f"In {collapsed} of {len(stages)} stages fewer than {COLLAPSED_ACCEPTANCE:.0%} of the proposed moves "
            f"were accepted (move={state.move!r}): use more particles or another move{advice}."
        )
    enough = PARTICLES_PER_DIMENSION * path.dimension
    if state.move not in ("ep", "prior") and settings.particles < enough:
        found.append(
            f"{settings.particles} particles are too few to fit the {state.move!r} move in {path.dimension} "
            f"dimensions: the log evidence is biased. Use at least {enough}, or move='auto'."
        )
    return tuple(found)


@dataclass(frozen=True)
class Settings:
    """Settings of a run of tempering SMC.

    Parameters
    ----------
    particles : int, default 1000
        Number of particles, N: chains of Markov moves, all states of which are kept.
    ess_threshold : float, default 0.5
        Share of the effective sample size that a stage keeps (the paper's tau), in (0, 1).
    move : str, default "auto"
        ``"auto"``, or the name of one of :data:`~pymc_pacauc.smc.moves.MOVES`.
    decorrelation : float, default 0.05
        Moves of a stage stop once the correlation of particles with their places at its start is below this.
    max_moves : int, default 200
        Largest number of moves of a stage.
    states : int, default 16
        Least number of moves of the last stage: states of each particle that averages over ``state.visited`` are over.
        For draws alone 1 will do.

    Raises
    ------
    ValueError
        If a setting is out of its range, or ``move`` is unknown.

    See Also
    --------
    run_tempering : Run the sampler.
    pymc_pacauc.TemperingSMC : The same settings in PyMC.

    References
    ----------
    H.-D. Dau, N. Chopin (2022), Waste-free sequential Monte Carlo, JRSS B 84(1), doi:10.1111/rssb.12475.

    Examples
    --------
    >>> from pymc_pacauc import arrays
    >>> arrays.Settings(particles=500).ess_threshold
    0.5
    """

    particles: int = 1000
    ess_threshold: float = 0.5
    move: str = "auto"
    decorrelation: float = 0.05
    max_moves: int = 200
    states: int = 16

    def __post_init__(self) -> None:
        check_whole("particles", self.particles, 2, "a whole number, better hundreds")
        check_whole("max_moves", self.max_moves)
        check_whole("states", self.states)
        check_probability("ess_threshold", self.ess_threshold)
        check_probability("decorrelation", self.decorrelation)
        check_choice("move", self.move, ("auto", *MOVES))


@dataclass(frozen=True)
class Stage:
    """Record of one stage; stage 0 is the start.

    Attributes
    ----------
    temperature, gamma : float
        Temperature of the path, and gamma where the stage is a posterior (NaN on the way from a fit).
    log_evidence, log_evidence_variance : float
        Log evidence of the stage's distribution, in nats, and the variance of the estimate.
    ess : float
        Effective sample size of the weights, as a share of all states times the number of particles.
    acceptance_rate, moves, correlation : float, int
        Share of accepted moves, number of moves, and correlation left with the particles at the stage's start.
    expected_risk : float
        Mean risk of all states kept.
    failed : int
        Points at which the log-density was NaN or infinite.
    jitter : float
        Added to the diagonal of a fitted covariance to make it positive definite, as a share of its mean variance.
    """

    temperature: float
    gamma: float
    log_evidence: float
    log_evidence_variance: float
    ess: float
    expected_risk: float
    failed: int
    jitter: float
    acceptance_rate: float = float("nan")
    moves: int = 0
    correlation: float = 0.0


@dataclass(frozen=True, eq=False)
class State:
    """Particles at a temperature, and the record of the stages that led there.

    ``visited`` are all states kept of the last stage, those the particles are in (``population``) first.
    """

    visited: Population
    particles: int
    temperature: float
    move: str
    step: float
    base: Fit
    ep: EPFit | None
    stages: tuple[Stage, ...]

    @property
    def population(self) -> Population:
        return self.visited[: self.particles]

    @property
    def log_evidence(self) -> float:
        return self.stages[-1].log_evidence


def start(path: Path, settings: Settings, rng: np.random.Generator) -> State:
    """Draw from the base of the path, a few points for each particle (Algorithm 1, Init.)."""
    x = path.draw(AT_START * settings.particles, rng)
    energies = path.evaluate(x)
    usable = energies.finite
    if not usable.any():
        raise FloatingPointError(
            f"the log-density is NaN or infinite at all {len(x)} points that the {settings.particles} particles may "
            f"start from; the first is {x[0]}."
        )
    dead = np.where(usable, energies.log_tilt, -np.inf)
    risk = np.where(usable, energies.risk, np.nan)
    population = Population(x, Energies(energies.log_base, dead, risk), np.arange(len(x)))
    base = path.base_move(x[usable])
    first = Stage(
        temperature=0.0,
        gamma=0.0 if path.from_prior else float("nan"),
        log_evidence=path.absorbed,
        log_evidence_variance=0.0,
        ess=float(usable.mean()) * settings.particles,
        expected_risk=float(np.nanmean(risk)),
        failed=int(np.sum(~usable)),
        jitter=base.jitter,
    )
    move = choose_move(settings.move, path, settings.particles)
    return State(population, settings.particles, 0.0, move, 1.0, base, None, (first,))


def advance(path: Path, settings: Settings, state: State, rng: np.random.Generator) -> State:
    """Run one stage, (a) to (d) of Algorithm 1."""
    visited, previous, particles = state.visited, state.stages[-1], settings.particles
    tilt = visited.energies.log_tilt
    temperature = next_temperature(tilt, state.temperature, path.end, settings.ess_threshold)  # (a)
    log_weights = (temperature - state.temperature) * tilt
    weights = normalise(log_weights)
    index = systematic(weights, particles, rng)  # (b)
    ep = None
    if state.move == "ep" and path.ep_problem is not None:
        ep = fit_stage(path.ep_problem, temperature, state.ep)
    proposal = MOVES[state.move].fit(Situation(path, visited.x, weights, state.base, ep))
    resampled = replace(visited[index], parent=index % particles)
    state, reached = replace(state, temperature=temperature), temperature >= path.end
    least = settings.states if reached else 1
    moved, step, record = _move(path, settings, state, proposal, resampled, rng, least)  # (c)
    stage = Stage(
        temperature=temperature,
        gamma=temperature if path.from_prior else (path.gamma if reached else float("nan")),
        log_evidence=previous.log_evidence + log_mean_exp(log_weights),  # (d)
        log_evidence_variance=previous.log_evidence_variance + stage_variance(weights, visited.parent),
        ess=effective_sample_size(log_weights) * particles / visited.size,
        expected_risk=float(moved.energies.risk.mean()),
        jitter=proposal.jitter,
        **record,
    )
    stages = (*state.stages, stage)
    return replace(state, visited=moved, step=step, ep=ep, stages=stages)


def move_on(path: Path, settings: Settings, state: State, rng: np.random.Generator) -> State:
    """Make more moves at the present temperature, for more draws than there are particles."""
    visited = state.visited
    uniform = np.full(visited.size, 1.0 / visited.size)
    proposal = MOVES[state.move].fit(Situation(path, visited.x, uniform, state.base, state.ep))
    moved, step, _ = _move(path, settings, state, proposal, state.population, rng)
    return replace(state, visited=moved, step=step)


@raises_interrupts
def run_tempering(
    path: Path, settings: Settings, rng: np.random.Generator, on_stage: Callable[[State], Any] = lambda state: None
) -> State:
    """Sample the target of a path by tempering SMC (the paper's Algorithm 1).

    Parameters
    ----------
    path : Path
        From a distribution that can be drawn from to the target: what :func:`~pymc_pacauc.arrays.prior_path` or
        :func:`~pymc_pacauc.arrays.bridge_path` returned.
    settings : Settings
        Number of particles, threshold, moves.
    rng : numpy.random.Generator
        Source of randomness.
    on_stage : callable, optional
        Called with the state after every stage.

    Returns
    -------
    State
        The final particles (``population.x``, shape (N, d), in the path's coordinates), all states of the last stage
        (``visited``, for averages), ``log_evidence`` and the record of the ``stages``.

    Raises
    ------
    FloatingPointError
        If the log-density is NaN or infinite at all starting particles.
    ValueError
        If the path lacks what ``settings.move`` needs.

    Warns
    -----
    TemperingWarning
        Where the run may be wrong: few distinct particles, moves that are not accepted or do not decorrelate.

    See Also
    --------
    pymc_pacauc.TemperingSMC : The same as a step of ``pm.sample``.

    References
    ----------
    P. Del Moral, A. Doucet, A. Jasra (2006), Sequential Monte Carlo samplers, JRSS B 68(3),
    doi:10.1111/j.1467-9868.2006.00553.x.

    Examples
    --------
    >>> from pymc_pacauc.problem.problem import linear_gaussian_problem
    >>> from pymc_pacauc.smc.paths import prior_path
    >>> from pymc_pacauc.smc.tempering import Settings, run_tempering
    >>> problem = linear_gaussian_problem([[0.0], [1.0], [2.0]], [0, 1, 1], gamma=2.0)
    >>> state = run_tempering(prior_path(problem), Settings(particles=500), np.random.default_rng(1))
    >>> bool(abs(state.log_evidence - np.log((1 + np.exp(-2)) / 2)) < 0.1)
    True
    """
    state = start(path, settings, rng)
    on_stage(state)
    while state.temperature < path.end:
        state = advance(path, settings, state, rng)
        on_stage(state)
    if messages := diagnose(path, settings, state):
        warnings.warn(" ".join(messages), TemperingWarning, stacklevel=3)
    return state


def next_temperature(log_tilt: FloatArray, current: float, end: float, threshold: float) -> float:
    """Find the temperature at which the ESS is ``threshold`` times the usable particles, or ``end`` (Algorithm 1(a)).

    The ESS falls as the temperature rises, so the root is bracketed by [current, end] and found by bisection.
    """
    goal = threshold * float(np.sum(~np.isneginf(log_tilt)))
    if effective_sample_size((end - current) * log_tilt) >= goal:
        return end
    low, high = 0.0, end - current
    while high - low > 1e-9 * (end - current) and (middle := 0.5 * (low + high)) not in (low, high):
        if effective_sample_size(middle * log_tilt) >= goal:
            low = middle
        else:
            high = middle
    return current + (low if low > 0.0 else high)


def _move(
    path: Path,
    settings: Settings,
    state: State,
    proposal: Proposal,
    population: Population,
    rng: np.random.Generator,
    least: int = 1,
) -> tuple[Population, float, dict[str, Any]]:
    """Move at the temperature of the state until decorrelated, and at least so often; return all states kept, the last
    ones first, the size of the steps, and a record for the stage.

    A quarter as many moves follow, because a time chosen by looking at the particles favours some of their states.
    """
    begin, current = _features(path, population), population
    visited: list[Population] = []
    acceptances: list[float] = []
    failed, correlation, stride, limit, step = 0, 1.0, 1, settings.max_moves, state.step
    while len(acceptances) < limit:
        current, acceptance, bad = metropolis(path, proposal, current, state.temperature, step, rng)
        step = adapt(step, acceptance)
        acceptances.append(acceptance)
        failed += bad
        if len(acceptances) % stride == 0:
            visited.append(current)
        if len(visited) > MOST_KEPT:
            visited, stride = visited[1::2], 2 * stride
        if correlation > settings.decorrelation:
            correlation = correlation_of(begin, _features(path, current))
            if correlation <= settings.decorrelation:
                limit = min(limit, max(least, ceil(1.25 * len(acceptances))))
    if not visited or visited[-1] is not current:
        visited.append(current)
    rate = float(np.mean(acceptances))
    record = {"acceptance_rate": rate, "moves": len(acceptances), "correlation": correlation, "failed": failed}
    return concatenate(visited[::-1]), step, record


def _features(path: Path, population: Population) -> list[FloatArray]:
    """Return columns of length one whose correlation with their values at the start shows how far particles moved.

    They are the coordinates, their squares (which show particles stuck in the tails) and the tilt; NaN if constant.
    """
    x = path.embed(population.x)  # (N, D)
    coordinates = x - x.mean(axis=0)
    squared = coordinates * coordinates
    tilt = population.energies.log_tilt[:, None]
    columns = (coordinates, squared - squared.mean(axis=0), tilt - tilt.mean())
    with np.errstate(invalid="ignore"):
        return [each / np.sqrt(np.einsum("ij,ij->j", each, each)) for each in columns]


def correlation_of(begin: list[FloatArray], now: list[FloatArray]) -> float:
    """Return the largest of the mean correlations of each kind of columns; 0 when nothing can move."""
    kinds = [np.einsum("ij,ij->j", a, b) for a, b in zip(begin, now, strict=True)]
    varying = [each[np.isfinite(each)] for each in kinds]
    return max((float(each.mean()) for each in varying if each.size), default=0.0)


def concatenate(populations: list[Population]) -> Population:
    """Join the states that the same particles visited."""
    energies = Energies(*map(np.concatenate, zip(*(p.energies for p in populations), strict=True)))
    parent = np.concatenate([p.parent for p in populations])
    return Population(np.concatenate([p.x for p in populations]), energies, parent)
