"""The approximate posterior under a spike-and-slab prior: a Gaussian over theta, and a Bernoulli for each slab.

Derivatives of EP's log evidence with respect to a spike-and-slab prior.

At a fixed point log Z is stationary in all sites, so a parameter of the prior of coefficient k acts through log Z_k
alone, the integral of that prior under its cavity. In units of theta the cavity is exp(-T theta^2 / 2 + N theta), and
with r the probability of the slab

    d log Z / d p  = r / p - (1 - r) / (1 - p),
    d log Z / d v1 = r / 2 (N^2 / (1 + v1 T)^2 - T / (1 + v1 T)),

and for v0 the same with 1 - r. All three hold at v0 = 0.

EP with a spike-and-slab prior (the paper's sections 2.4 and 3.4): d prior sites beside the n+ n- pair sites.

How the fixed point is found is the matter of :mod:`~pymc_pacauc.ep.spike_search`; where to start matters here. The
risk ignores the length of theta, so a posterior whose coefficients are *all* in the spike
ranks as well as the same one in the slab, at another scale: with v0 > 0 both are modes, and the exact inclusion
probabilities add them up, whereas EP describes the one it finds. It is meant to find the slab's: the start is the fit
with every coefficient in the slab, from which the spikes collect the coefficients the data do not need.

The method is that of Hernandez-Lobato et al. (2015, doi:10.1007/s10994-014-5475-7) for regression, with pair sites for
the likelihood. To give single coefficients another prior, replace :mod:`~pymc_pacauc.ep.prior_sites`: the
moments of cavity times prior are all that the rest asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from pymc_pacauc.ep.gaussian import Callback, dropped
from pymc_pacauc.ep.importance import WeightedDraws
from pymc_pacauc.ep.leave_out import Groups, LeaveOut, Split, WithoutGroup, leave_out_pairs, starts_anew
from pymc_pacauc.ep.loop import Interventions, UnsupportedError, possible
from pymc_pacauc.ep.plan import Plan
from pymc_pacauc.ep.posterior import NaturalGaussian
from pymc_pacauc.ep.prior_sites import MixtureSite, SparseGaussian, sparse_gaussian
from pymc_pacauc.ep.results import EXACT, Fit, warn_of
from pymc_pacauc.ep.sites import site_table
from pymc_pacauc.ep.spike_search import (
    MOST_SPARSE,
    ModelAverage,
    average_models,
    draw_models,
    models_can_be_listed,
    pair_sums,
    settle,
    solve_sparse,
)
from pymc_pacauc.ep.start import SWEEPS, continued_start
from pymc_pacauc.ep.sweep import check_offset, tile_map
from pymc_pacauc.interrupt import raises_interrupts
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.problem import Problem


@dataclass(frozen=True, eq=False)
class SpikeSlabPosterior:
    """A Gaussian over theta and, per coefficient, what its prior's site says of spike and slab.

    Draws have EP's marginals and the Gaussian's dependence: where the spike is a point mass, the marginal is a mixture
    of that point and a Gaussian, and a draw of the Gaussian is sent through its distribution function (a Gaussian
    copula), so that draws contain exact zeros.
    """

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

    def moments_of(self, theta_map: FloatArray, *, variances: bool = False) -> tuple[FloatArray, FloatArray]:
        """Mean and covariance of ``theta_map @ theta``; ``variances`` asks for the diagonal of the covariance only."""
        return theta_map @ self.mean, self.gaussian.spread_of(theta_map * self._unit, variances=variances)

    @property
    def inclusion_probability(self) -> FloatArray:
        """EP's probability that each coefficient comes from the slab."""
        return self.sites.inclusion

    def draw(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Independent draws of theta, shape (draws, d); see the class docstring."""
        w = self.gaussian.draw(draws, rng)  # (draws, d), in units of the slab
        dirac = self._dirac
        if dirac.any():
            w[:, dirac] = self._with_zeros(w[:, dirac], dirac)
        return self.problem.prior.mean + w * self._unit

    def slab_and_latent(self, theta: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Slab coefficients b and standard normal latents l with ``theta = b * 1{l < quantile of p}``, for draws.

        What a draw leaves free comes from the prior: b where theta is zero, and the rest of l.
        """
        assert self.problem.spikes is not None
        p, included = self.problem.spikes.inclusion_probability, theta != 0.0
        slab = np.where(included, theta, self._unit * rng.standard_normal(theta.shape))
        share = rng.uniform(size=theta.shape)
        return slab, ndtri(np.where(included, p * share, p + (1.0 - p) * share))

    def _with_zeros(self, w: FloatArray, among: NDArray[np.bool_]) -> FloatArray:
        """Send draws of the Gaussian's marginals to the mixtures of a point mass and a Gaussian."""
        q, sites = self.gaussian, self.sites
        r, mean, sd = sites.inclusion[among], sites.slab_mean[among], np.sqrt(sites.slab_variance[among])
        uniform = ndtr((w - q.mean[among]) / np.sqrt(q.variance[among]))
        below = r * ndtr(-mean / sd)  # mass of the slab below zero, where the point mass sits
        included = (uniform < below) | (uniform >= below + 1.0 - r)
        level = np.where(uniform < below, uniform, uniform - (1.0 - r)) / np.maximum(r, 1e-300)
        slab = mean + sd * ndtri(np.clip(level, 1e-16, 1.0 - 1e-16))
        return np.where(included, slab, 0.0)

    @property
    def _unit(self) -> FloatArray:
        return self.problem.prior.factor

    @property
    def _dirac(self) -> NDArray[np.bool_]:
        assert self.problem.spikes is not None
        return self.problem.spikes.sparse & (self.problem.spikes.ratio == 0.0)

    def __repr__(self) -> str:
        return f"SpikeSlabPosterior(d={self.problem.d}, expected model size {self.sites.inclusion.sum():.2f})"


@dataclass(frozen=True, eq=False)
class SpikeSlabGradient:
    """Derivatives of log Z with respect to p, v0 and v1 of every coefficient, each of shape (d,).

    Those of a coefficient without a spike are zero but for ``v1``, its prior variance.
    """

    inclusion_probability: FloatArray
    v0: FloatArray
    v1: FloatArray


def spike_slab_gradient(problem: Problem, q: SparseGaussian, sites: MixtureSite) -> SpikeSlabGradient:
    """The gradient at a fixed point of EP."""
    assert problem.spikes is not None
    p, sparse, slab_variance = problem.spikes.inclusion_probability, problem.spikes.sparse, problem.prior.factor**2
    r, tau, nu = sites.inclusion, q.cavity_precision, q.cavity_shift

    def in_variance(ratio: FloatArray) -> FloatArray:  # of log Z_k, in units of the slab
        width = 1.0 + ratio * tau
        return 0.5 * ((nu / width) ** 2 - tau / width)

    absent = np.where(sparse, 1.0 - p, 1.0)
    return SpikeSlabGradient(
        inclusion_probability=np.where(sparse, r / p - (1.0 - r) / absent, 0.0),
        v0=np.where(sparse, (1.0 - r) * in_variance(problem.spikes.ratio), 0.0) / slab_variance,
        v1=np.where(sparse, r, 1.0) * in_variance(np.ones_like(p)) / slab_variance,
    )


@dataclass(frozen=True, eq=False)
class SpikeSlabFit:
    """Result of :func:`~pymc_pacauc.ep.fit.fit` for a spike-and-slab prior.

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
    plan
        How it was fitted.
    """

    problem: Problem
    posterior: SpikeSlabPosterior
    log_evidence: float
    expected_risk: float
    converged: bool
    history: tuple[dict[str, float], ...]
    interventions: Interventions
    tied_pairs: int
    plan: Plan
    interrupted: bool = False

    method = "EP"
    power = 1.0
    log_evidence_error = float("nan")
    sampling_error = EXACT  # all pairs are used
    divergence = float("nan")  # from a mixture to a Gaussian: no closed form

    @property
    def pairs_used(self) -> int:
        return self.problem.pairs.n_pairs

    @property
    def sweeps(self) -> int:
        return len(self.history)

    @cached_property
    def model_average(self) -> ModelAverage | None:
        """Exact model probabilities by importance sampling, where there are few enough models to list."""
        return average_models(self.problem, self.posterior.gaussian, np.random.default_rng(0))

    @property
    def inclusion_probability(self) -> FloatArray:
        """Probability of the slab for each coefficient: that of ``model_average`` where there is one, else EP's."""
        return self.posterior.inclusion_probability if self.model_average is None else self.model_average.inclusion

    @property
    def expected_model_size(self) -> float:
        """Expected number of coefficients from the slab."""
        return float(self.inclusion_probability.sum())

    def evidence_gradient(self) -> SpikeSlabGradient:
        """Derivatives of ``log_evidence`` with respect to p, v0 and v1; valid at a converged fit."""
        return spike_slab_gradient(self.problem, self.posterior.gaussian, self.posterior.sites)

    def importance(self, draws: int, rng: np.random.Generator) -> WeightedDraws:
        """Draws weighted by exact posterior / proposal; see :mod:`pymc_pacauc.ep.spike_search`."""
        if not models_can_be_listed(self.problem):
            raise UnsupportedError(
                f"Weighted draws under a spike-and-slab prior are for at most {MOST_SPARSE} coefficients with a spike, "
                "and scores without an offset: draw from the exact posterior with pm.sample(step=pac.TemperingSMC())."
            )
        return draw_models(self.problem, self.posterior.gaussian, draws, rng)

    @raises_interrupts
    def leave_out(
        self,
        groups: ArrayLike | Groups | None = None,
        *,
        gamma: float | None = None,
        refine: int | None = None,
        tolerance: float = 1e-6,
        of_draws: bool = True,
        n_jobs: int | None = None,
        callback: Callable[[int, int], None] | None = None,
    ) -> LeaveOut:
        """Scores of every observation under the posterior without its group; see :mod:`pymc_pacauc.ep.leave_out`.

        The pair sites of the group are removed, and those of the prior settle anew.
        """
        q, problem = self.posterior.gaussian, self.problem
        table = site_table(problem.gamma_per_pair)

        def without(split: Split) -> SparseGaussian | None:
            removed = pair_sums(replace(problem, pairs=split.touched), q, table, map_tiles)
            precision, shift = q.precision - removed.precision, q.shift - removed.shift
            return sparse_gaussian(precision, shift, q.site_precision, q.site_shift, problem.scores.reduced.rotation)

        def refit(split: Split, left: Problem, sweeps: int, tolerance: float) -> WithoutGroup:
            start: SparseGaussian | None
            if starts_anew(split, left, sweeps):
                start = unsettled = _in_slab(continued_start(left, 1.0), left)
                sweeps = max(sweeps, 2 * SWEEPS)  # which it takes spikes to collect what the data do not need
            else:
                start, unsettled = without(split), q
            settled = None if start is None else settle(left, start, tolerance)
            if settled is None:
                sweeps = max(sweeps, 3)
            found = solve_sparse(
                left,
                unsettled if settled is None else settled.q,
                map_tiles,
                tolerance=tolerance,
                max_sweeps=max(sweeps, 1),
            )
            end = (found.point if found.converged or not sweeps else found.following).q
            return WithoutGroup(
                end.reduced_mean,
                end.reduced_root,
                change=found.seen.change,
                converged=found.converged,
                restarted=settled is None,
            )

        with tile_map(problem.pairs.n_pairs, min(problem.n, problem.d), n_jobs) as map_tiles:
            return leave_out_pairs(
                problem,
                refit,
                groups,
                gamma=gamma,
                refine=refine,
                tolerance=tolerance,
                callback=callback,
                of_draws=of_draws,
            )

    def __repr__(self) -> str:
        state = "converged" if self.converged else "NOT converged"
        return (
            f"SpikeSlabFit(d={self.problem.d}, gamma={self.problem.gamma:g}, expected_model_size="
            f"{self.expected_model_size:.2f}, log_evidence={self.log_evidence:.3f}, {state} in {self.sweeps} sweeps)"
        )


def solve(
    problem: Problem,
    plan: Plan,
    *,
    rough: Fit | None = None,
    n_jobs: int | None = None,
    callback: Callback | None = None,
) -> SpikeSlabFit:
    """Approximate the AUC Gibbs posterior under a spike-and-slab prior, as the plan says.

    The start is a fit of the same design and slab: the plan's, at another v0, p or gamma; or a ``rough`` one with every
    coefficient in the slab (a Gaussian prior), whose sweeps count.
    """
    check_offset(problem)
    start = plan.start if rough is None else rough
    assert not isinstance(start, str)
    before = () if rough is None else rough.history
    before = tuple({**row, "expected_model_size": float(problem.d)} for row in before)
    with tile_map(problem.pairs.n_pairs, min(problem.n, problem.d), n_jobs) as map_tiles:
        found = solve_sparse(
            problem,
            _start(start, problem),
            map_tiles,
            tolerance=plan.tolerance,
            max_sweeps=plan.max_sweeps - len(before),
            callback=callback,
            counted=len(before),
        )
    seen, history = found.seen, before + found.history
    log_evidence = possible(seen.log_evidence) if found.converged else np.nan
    advice = (
        "Raise max_sweeps, the inclusion probability or v0, lower gamma, or check the result against tempering SMC."
    )
    warn_of("EP", found, len(history), plan.tolerance, log_evidence, advice, stacklevel=4)
    narrowest = Interventions(narrowest_sites=int(seen.sites.narrowest.sum()))
    return SpikeSlabFit(
        problem=problem,
        posterior=SpikeSlabPosterior(problem, found.point.q, seen.sites),
        log_evidence=log_evidence,
        expected_risk=seen.expected_risk,
        converged=found.converged,
        history=history,
        interventions=found.interventions + narrowest + dropped(problem),
        tied_pairs=seen.tied,
        plan=plan.done(len(history)),
        interrupted=found.interrupted,
    )


def _start(start: Fit, problem: Problem) -> SparseGaussian:
    """An earlier fit in the coefficients of this one, whose pair sites are then those of the same scores."""
    old = start.problem
    if not (np.array_equal(old.X, problem.X) and np.array_equal(old.prior.factor, problem.prior.factor)):
        raise ValueError("start must be a fit with the same X and v1.")
    if isinstance(start, SpikeSlabFit):
        return start.posterior.gaussian
    return _in_slab(start.posterior.natural, problem)


def _in_slab(natural: NaturalGaussian, problem: Problem) -> SparseGaussian:
    """A Gaussian of the reduced coefficients with every coefficient in the slab: site precisions 1."""
    space, d = problem.scores.reduced, problem.d
    k = space.dimension
    q = sparse_gaussian(natural.precision - np.eye(k), natural.shift, np.ones(d), np.zeros(d), space.rotation)
    assert q is not None  # it is the dense fit itself
    return q
