"""EP with a spike-and-slab prior (the paper's sections 2.4 and 3.4): d prior sites beside the n+ n- pair sites.

A sweep sums the pair sites given q, as for a Gaussian prior, and matches one mixture site per coefficient to its cavity
(:mod:`~pymc_pacauc.ep.mixture_site`); q is their product (:mod:`~pymc_pacauc.ep.sparse_gaussian`).

Where to start matters. The risk ignores the length of theta, so a posterior whose coefficients are *all* in the spike
ranks as well as the same one in the slab, at another scale: with v0 > 0 both are modes, and the exact inclusion
probabilities add them up, whereas EP describes the one it finds. It is meant to find the slab's: the start is the fit
with every coefficient in the slab, from which the spikes collect the coefficients the data do not need. A Dirac spike,
for which there is no second mode, is reached through a very narrow one. Prior sites are strong and of either sign,
and a coefficient between spike and slab answers a small change by a large one: plain steps are short until q is near
its fixed point, where Anderson mixing takes over.

Interventions are counted: steps halved because the precision would be indefinite or a cavity improper, restarts of the
mixing, prior sites that keep their value for a sweep because their cavity is improper, and sites whose negative
precision is limited.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.ep.gaussian import ConvergenceWarning, Coordinates, EPFit, coordinates, fit_ep
from pymc_pacauc.ep.mixing import AndersonMixing
from pymc_pacauc.ep.mixture_site import MixtureSite, mixture_site
from pymc_pacauc.ep.sites import SiteTable, site_table
from pymc_pacauc.ep.sparse_gaussian import SparseGaussian, sparse_gaussian
from pymc_pacauc.ep.sweep import ScoreMoments, sum_sites, tile_map
from pymc_pacauc.problem import SpikeSlabProblem

__all__ = ["SpikeSlabFit", "SpikeSlabInterventions", "SpikeSlabPosterior", "fit_spike_slab"]

FloatArray = NDArray[np.float64]

DAMPING = 0.25
MEMORY = 8
NEAR = 0.05  # change of a sweep below which steps are mixed
GROWTH = 1.5  # a change that grows by more than this discards the mixing's history
PLAIN_AFTER_RESTART = 5
NARROW = 1e-6  # v0 / v1 of the spike that leads to narrower ones
DIVERGED = 1e6  # give up
ROUGHLY = 0.01  # tolerance of the fits on the way


@dataclass(frozen=True)
class SpikeSlabInterventions:
    """How often each safeguard acted; ``limited_sites`` are those of the last sweep, whose moments do not match."""

    halved_steps: int = 0
    restarts: int = 0
    skipped_sites: int = 0
    limited_sites: int = 0


@dataclass(frozen=True, eq=False)
class SpikeSlabPosterior:
    """The approximate posterior: a Gaussian over theta and a Bernoulli for each coefficient's slab."""

    problem: SpikeSlabProblem
    gaussian: SparseGaussian
    sites: MixtureSite

    @cached_property
    def mean(self) -> FloatArray:
        return self.problem.slab_problem.prior_mean + self.gaussian.mean * self._unit

    @cached_property
    def covariance(self) -> FloatArray:
        return self.gaussian.covariance() * np.outer(self._unit, self._unit)

    @cached_property
    def variance(self) -> FloatArray:
        return self.gaussian.variance * self._unit**2

    @property
    def inclusion_probability(self) -> FloatArray:
        """Probability that each coefficient comes from the slab."""
        return self.sites.inclusion

    def draw(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Independent draws of theta from the Gaussian, shape (draws, d)."""
        return self.problem.slab_problem.prior_mean + self.gaussian.draw(draws, rng) * self._unit

    @property
    def _unit(self) -> FloatArray:
        return np.sqrt(self.problem.v1)

    def __repr__(self) -> str:
        return f"SpikeSlabPosterior(d={self.problem.d}, expected model size {self.sites.inclusion.sum():.2f})"


@dataclass(frozen=True, eq=False)
class SpikeSlabFit:
    """Result of :func:`fit_spike_slab`.

    Attributes
    ----------
    posterior
        Mean, covariance and draws of theta, and inclusion probabilities.
    log_evidence
        EP's approximation of log Z, prior sites included.
    expected_risk
        E_q[risk], in closed form.
    converged, sweeps, history
        Whether the last sweep changed q by less than the tolerance (root mean square over coefficients, in q's
        own standard deviations), and what each sweep found.
    interventions
        How often each safeguard acted.
    """

    problem: SpikeSlabProblem
    posterior: SpikeSlabPosterior
    log_evidence: float
    expected_risk: float
    converged: bool
    history: tuple[dict[str, float], ...]
    interventions: SpikeSlabInterventions
    tied_pairs: int

    @property
    def sweeps(self) -> int:
        return len(self.history)

    @property
    def inclusion_probability(self) -> FloatArray:
        return self.posterior.inclusion_probability

    @property
    def expected_model_size(self) -> float:
        """Expected number of coefficients from the slab."""
        return float(self.inclusion_probability.sum())

    def __repr__(self) -> str:
        state = "converged" if self.converged else "NOT converged"
        return (
            f"SpikeSlabFit(d={self.problem.d}, gamma={self.problem.gamma:g}, expected_model_size="
            f"{self.expected_model_size:.2f}, log_evidence={self.log_evidence:.3f}, {state} in {self.sweeps} sweeps)"
        )


@dataclass(frozen=True, eq=False)
class _Sweep:
    """New parameters given q, as steps from the old ones, and what is known of q."""

    steps: tuple[FloatArray, ...]  # of P, r, u, h
    weighted: FloatArray  # the same in units of q
    sites: MixtureSite
    log_evidence: float
    expected_risk: float
    skipped: int
    tied: int

    @property
    def change(self) -> float:
        return float(np.sqrt(np.mean(self.weighted**2) * self.weighted.size / self.steps[2].size))


def fit_spike_slab(
    problem: SpikeSlabProblem,
    *,
    start: SpikeSlabFit | None = None,
    tolerance: float = 1e-5,
    max_sweeps: int = 300,
    threads: int | None = None,
    callback: Callable[[dict[str, float]], None] | None = None,
) -> SpikeSlabFit:
    """Approximate the AUC Gibbs posterior under a spike-and-slab prior.

    Parameters
    ----------
    problem
        The target.
    start
        An earlier fit of the same design and slab to begin from, for example at another v0, p or gamma; by default
        the fit with every coefficient in the slab.
    tolerance
        Change at which to stop; see :class:`SpikeSlabFit`.
    max_sweeps
        Sweeps after which to give up, with a :class:`~pymc_pacauc.ep.ConvergenceWarning`.
    threads, callback
        As for :func:`~pymc_pacauc.ep.fit_ep`.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_pacauc.problem import spike_slab_problem
    >>> X = np.random.default_rng(1).normal(size=(80, 4))
    >>> problem = spike_slab_problem(X, X[:, 0] > 0.2, gamma=80.0, inclusion_probability=0.2, v0=0.0)
    >>> fit_spike_slab(problem).inclusion_probability.round(1)
    array([1., 0., 0., 0.])
    """
    table = site_table(problem.gamma / problem.pairs.n_pairs)
    if start is None:
        dense = fit_ep(
            problem.slab_problem, tolerance=ROUGHLY, max_sweeps=max_sweeps, threads=threads, callback=callback
        )
    spikes = [problem.spike]
    if start is None and problem.spike.min() < 0.1 * NARROW:
        spikes.insert(0, np.maximum(problem.spike, NARROW))
    history: list[dict[str, float]] = []
    counts = {"halved_steps": 0, "restarts": 0, "skipped_sites": 0}
    with tile_map(problem.pairs.n_pairs, min(problem.n, problem.d), threads) as map_tiles:
        space = coordinates(problem.slab_problem)
        q = _from_dense(dense, space) if start is None else _from_earlier(start, problem)
        for spike in spikes:

            def sweep(q: SparseGaussian, spike: FloatArray = spike) -> _Sweep:
                return _sweep(problem, space, table, q, spike, map_tiles)

            goal = tolerance if spike is problem.spike else max(ROUGHLY, tolerance)
            q, last, converged = _solve(sweep, q, space.rotation, goal, max_sweeps, history, counts, callback)
    if not converged:
        warnings.warn(
            f"EP did not converge in {len(history)} sweeps (last change {last.change:.2g}, tolerance {tolerance:g}). "
            "Raise max_sweeps or v0, lower gamma, or check the result against tempering SMC.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return SpikeSlabFit(
        problem=problem,
        posterior=SpikeSlabPosterior(problem, q, last.sites),
        log_evidence=last.log_evidence,
        expected_risk=last.expected_risk,
        converged=converged,
        history=tuple(history),
        interventions=SpikeSlabInterventions(**counts, limited_sites=int(last.sites.limited.sum())),
        tied_pairs=last.tied,
    )


def _from_dense(dense: EPFit, space: Coordinates) -> SparseGaussian:
    """The fit with every coefficient in the slab: site precisions 1."""
    natural = dense.posterior.natural
    d = space.problem.d
    q = sparse_gaussian(
        natural.precision - np.eye(space.dimension), natural.shift, np.ones(d), np.zeros(d), space.rotation
    )
    assert q is not None  # it is the dense fit itself
    return q


def _from_earlier(start: SpikeSlabFit, problem: SpikeSlabProblem) -> SparseGaussian:
    old = start.problem
    if not (np.array_equal(old.X, problem.X) and np.array_equal(old.v1, problem.v1)):
        raise ValueError("start must be a fit with the same X and v1.")
    return start.posterior.gaussian


def _sweep(
    problem: SpikeSlabProblem,
    space: Coordinates,
    table: SiteTable,
    q: SparseGaussian,
    spike: FloatArray,
    map_tiles: Callable[..., Any],
) -> _Sweep:
    root = space.design @ q.reduced_root
    moments = ScoreMoments(space.design @ q.reduced_mean + space.offset, root, np.einsum("ij,ij->i", root, root))
    tie_cost = 0.5 if problem.ties == "half" else 0.0
    pairs = sum_sites(space.design, space.offset, moments, problem.pairs, table, tie_cost=tie_cost, map_tiles=map_tiles)
    proper = q.proper
    tau = np.where(proper, q.cavity_precision, 0.0)
    sites = mixture_site(tau, q.cavity_shift, problem.log_odds, spike, np.ones_like(spike))
    steps = (
        pairs.precision - q.precision,
        pairs.shift - q.shift,
        np.where(proper, sites.precision - q.site_precision, 0.0),
        np.where(proper, sites.shift - q.site_shift, 0.0),
    )
    weighted = _in_units_of(q, steps)
    # The integral of the new sites' product, to first order from q's: at the fixed point they agree.
    integral = (
        q.log_partition()
        + steps[1] @ q.reduced_mean
        + steps[3] @ q.mean
        - 0.5 * np.sum(q.reduced_root * (steps[0] @ q.reduced_root))
        - 0.5 * q.reduced_mean @ steps[0] @ q.reduced_mean
        - 0.5 * steps[2] @ (q.variance + q.mean**2)
    )
    log_sites = np.where(proper, sites.log_constant, 0.0).sum()
    return _Sweep(
        steps=steps,
        weighted=weighted,
        sites=sites,
        log_evidence=float(pairs.log_constant + log_sites + integral),
        expected_risk=float(pairs.wrong / problem.pairs.n_pairs),
        skipped=int(np.sum(~proper)),
        tied=pairs.tied,
    )


def _in_units_of(q: SparseGaussian, steps: tuple[FloatArray, ...]) -> FloatArray:
    """Steps of P, r, u, h as changes of q's log-density seen from q itself."""
    root, sd = q.reduced_root, np.sqrt(q.variance)
    precision, shift, u, h = steps
    seen = root.T @ precision @ root / np.sqrt(2.0)
    return np.concatenate([seen.ravel(), root.T @ shift, u * sd**2 / np.sqrt(2.0), h * sd])


def _solve(
    sweep: Callable[[SparseGaussian], _Sweep],
    q: SparseGaussian,
    rotation: FloatArray | None,
    tolerance: float,
    max_sweeps: int,
    history: list[dict[str, float]],
    counts: dict[str, int],
    callback: Callable[[dict[str, float]], None] | None,
) -> tuple[SparseGaussian, _Sweep, bool]:
    """Damped, then mixed steps until a sweep changes q by less than ``tolerance``."""
    mixing: AndersonMixing | None = None
    metric, previous, plain_until = q, np.inf, 0
    k, d = len(q.shift), q.mean.size
    for count in range(max_sweeps):
        new = sweep(q)
        record = {
            "sweep": len(history) + 1,
            "change": new.change,
            "log_evidence": new.log_evidence,
            "expected_risk": new.expected_risk,
            "expected_model_size": float(new.sites.inclusion.sum()),
        }
        history.append(record)
        counts["skipped_sites"] += new.skipped
        if callback is not None:
            callback(record)
        if new.change < tolerance and not new.skipped:
            return q, new, True
        if new.change > DIVERGED:
            break
        if mixing is not None and new.change > GROWTH * previous:
            mixing, plain_until = None, count + PLAIN_AFTER_RESTART
            counts["restarts"] += 1
        previous = new.change
        direction = DAMPING * np.concatenate([step.ravel() for step in new.steps])
        if count >= plain_until and new.change < NEAR:
            if mixing is None:
                mixing, metric = AndersonMixing(MEMORY), q
            point = np.concatenate([q.precision.ravel(), q.shift, q.site_precision, q.site_shift])
            direction = mixing.step(point, direction, DAMPING * _in_units_of(metric, new.steps))
        matrix, *vectors = np.split(direction, np.cumsum([k * k, k, d]))
        moved, halved = _step(q, (0.5 * (matrix.reshape(k, k) + matrix.reshape(k, k).T), *vectors), rotation)
        counts["halved_steps"] += halved
        if moved is q and mixing is None:  # not even a tiny plain step is possible
            break
        if moved is q:
            mixing, plain_until = None, count + PLAIN_AFTER_RESTART
        q = moved
    return q, new, False


def _step(q: SparseGaussian, steps: tuple[FloatArray, ...], rotation: FloatArray | None) -> tuple[SparseGaussian, int]:
    """q moved by ``steps``, halved until it is a Gaussian and its cavities are proper; and how often they were."""
    old = (q.precision, q.shift, q.site_precision, q.site_shift)
    size, halved = 1.0, 0
    while halved < 40:
        precision, shift, u, h = (a + size * b for a, b in zip(old, steps, strict=True))
        moved = sparse_gaussian(precision, shift, u, h, rotation)
        if moved is not None and (moved.proper.all() or not q.proper.all()):
            return moved, halved
        size, halved = size / 2.0, halved + 1
    return q, halved
