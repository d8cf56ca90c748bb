"""EP with a spike-and-slab prior (the paper's sections 2.4 and 3.4): d prior sites beside the n+ n- pair sites.

How the fixed point is found is the matter of :mod:`~pymc_pacauc.ep.sparse.search`; where to start matters here. The
risk ignores the length of theta, so a posterior whose coefficients are *all* in the spike
ranks as well as the same one in the slab, at another scale: with v0 > 0 both are modes, and the exact inclusion
probabilities add them up, whereas EP describes the one it finds. It is meant to find the slab's: the start is the fit
with every coefficient in the slab, from which the spikes collect the coefficients the data do not need.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.core.problem import Problem
from pymc_pacauc.core.scores import ReducedScores
from pymc_pacauc.ep.gaussian import ConvergenceWarning, EPFit, fit_ep
from pymc_pacauc.ep.sparse.gaussian import SparseGaussian, sparse_gaussian
from pymc_pacauc.ep.sparse.mixture_site import MixtureSite
from pymc_pacauc.ep.sparse.model_average import ModelAverage, average_models
from pymc_pacauc.ep.sparse.search import SparseSearch
from pymc_pacauc.ep.sweep import tile_map

__all__ = ["SpikeSlabFit", "SpikeSlabInterventions", "SpikeSlabPosterior", "fit_spike_slab"]

FloatArray = NDArray[np.float64]

ROUGHLY = 0.01  # tolerance of the fit with every coefficient in the slab


@dataclass(frozen=True)
class SpikeSlabInterventions:
    """Steps halved, restarts of the mixing, and how many prior sites' negative precisions were cut at zero."""

    halved_steps: int = 0
    restarts: int = 0
    limited_sites: int = 0


@dataclass(frozen=True, eq=False)
class SpikeSlabPosterior:
    """The approximate posterior: a Gaussian over theta and a Bernoulli for each coefficient's slab."""

    problem: Problem
    gaussian: SparseGaussian
    sites: MixtureSite

    @cached_property
    def mean(self) -> FloatArray:
        return self.problem.prior.mean + self.gaussian.mean * self._unit

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
        return self.problem.prior.mean + self.gaussian.draw(draws, rng) * self._unit

    @property
    def _unit(self) -> FloatArray:
        return self.problem.prior.factor

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

    problem: Problem
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

    @cached_property
    def average(self) -> ModelAverage | None:
        """Exact model probabilities by importance sampling, where there are few enough models to list."""
        return average_models(self.problem, self.posterior.gaussian, np.random.default_rng(0))

    @property
    def inclusion_probability(self) -> FloatArray:
        """Probability of the slab for each coefficient: that of ``average`` where there is one, else EP's."""
        return self.posterior.inclusion_probability if self.average is None else self.average.inclusion

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


def fit_spike_slab(
    problem: Problem,
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
    >>> from pymc_pacauc.core.problem import spike_slab_problem
    >>> X = np.random.default_rng(1).normal(size=(80, 4))
    >>> problem = spike_slab_problem(X, X[:, 0] > 0.2, gamma=80.0, inclusion_probability=0.2, v0=0.0)
    >>> fit_spike_slab(problem).inclusion_probability.round(1)
    array([1., 0., 0., 0.])
    """
    if start is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # it is where to start, not what is returned
            dense = fit_ep(
                replace(problem, spikes=None),
                tolerance=ROUGHLY,
                max_sweeps=max_sweeps,
                threads=threads,
                callback=callback,
            )
    with tile_map(problem.pairs.n_pairs, min(problem.n, problem.d), threads) as map_tiles:
        space = problem.scores.reduced
        q = _from_dense(dense, space) if start is None else _from_earlier(start, problem)
        search = SparseSearch(problem, space, map_tiles, max_sweeps, callback)
        found, last, converged = search.run(q, tolerance)
        for way in (search.run_together, partial(search.run, limited=True)):
            if not converged and len(search.history) < max_sweeps:
                other, end, converged = way(q, tolerance)
                if converged or end.change < last.change:
                    found, last = other, end
    if not converged:
        warnings.warn(
            f"EP did not converge in {len(search.history)} sweeps (last change {last.change:.2g}, tolerance "
            f"{tolerance:g}). Raise max_sweeps, p or v0, lower gamma, or check the result against tempering SMC.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return SpikeSlabFit(
        problem=problem,
        posterior=SpikeSlabPosterior(problem, found, last.sites),
        log_evidence=last.log_evidence,
        expected_risk=last.expected_risk,
        converged=converged,
        history=tuple(search.history),
        interventions=SpikeSlabInterventions(search.halved_steps, search.restarts, int(last.sites.limited.sum())),
        tied_pairs=last.tied,
    )


def _from_dense(dense: EPFit, space: ReducedScores) -> SparseGaussian:
    """The fit with every coefficient in the slab: site precisions 1."""
    natural = dense.posterior.natural
    d = dense.problem.d
    q = sparse_gaussian(
        natural.precision - np.eye(space.dimension), natural.shift, np.ones(d), np.zeros(d), space.rotation
    )
    assert q is not None  # it is the dense fit itself
    return q


def _from_earlier(start: SpikeSlabFit, problem: Problem) -> SparseGaussian:
    old = start.problem
    if not (np.array_equal(old.X, problem.X) and np.array_equal(old.prior.factor, problem.prior.factor)):
        raise ValueError("start must be a fit with the same X and v1.")
    return start.posterior.gaussian
