"""EP with a spike-and-slab prior (the paper's sections 2.4 and 3.4): d prior sites beside the n+ n- pair sites.

How the fixed point is found is the matter of :mod:`~pymc_pacauc.ep.sparse.search`; where to start matters here. The
risk ignores the length of theta, so a posterior whose coefficients are *all* in the spike
ranks as well as the same one in the slab, at another scale: with v0 > 0 both are modes, and the exact inclusion
probabilities add them up, whereas EP describes the one it finds. It is meant to find the slab's: the start is the fit
with every coefficient in the slab, from which the spikes collect the coefficients the data do not need.

The method is that of Hernandez-Lobato et al. (2015, doi:10.1007/s10994-014-5475-7) for regression, with pair sites for
the likelihood. To give single coefficients another prior, replace :mod:`~pymc_pacauc.ep.sparse.mixture_site`: the
moments of cavity times prior are all that the rest asks for.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_pacauc.core.problem import Problem
from pymc_pacauc.ep.fixed_point import Interventions
from pymc_pacauc.ep.gaussian import dropped, fit_ep
from pymc_pacauc.ep.importance import WeightedDraws
from pymc_pacauc.ep.leave_out import Groups, LeaveOut, Split, WithoutGroup, forgetting, leave_out_pairs
from pymc_pacauc.ep.results import EXACT, ConvergenceWarning, Fit, UnsupportedError, possible, warn_of
from pymc_pacauc.ep.sites import site_table
from pymc_pacauc.ep.sparse.gaussian import SparseGaussian, sparse_gaussian
from pymc_pacauc.ep.sparse.gradient import SpikeSlabGradient, spike_slab_gradient
from pymc_pacauc.ep.sparse.model_average import (
    MOST_SPARSE,
    ModelAverage,
    average_models,
    draw_models,
    models_can_be_listed,
)
from pymc_pacauc.ep.sparse.posterior import SpikeSlabPosterior
from pymc_pacauc.ep.sparse.search import pair_sums, settle, solve_sparse
from pymc_pacauc.ep.sweep import check_offset
from pymc_pacauc.ep.work import tile_map

__all__ = ["SpikeSlabFit", "fit_spike_slab"]

FloatArray = NDArray[np.float64]

ROUGHLY = 0.01  # tolerance of the fit with every coefficient in the slab


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
    interventions: Interventions
    tied_pairs: int
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
        """Draws weighted by exact posterior / proposal; see :mod:`pymc_pacauc.ep.sparse.model_average`."""
        if not models_can_be_listed(self.problem):
            raise UnsupportedError(
                f"Weighted draws under a spike-and-slab prior are for at most {MOST_SPARSE} coefficients with a spike, "
                "and scores without an offset: draw from the exact posterior with pm.sample(step=pac.TemperingSMC())."
            )
        return draw_models(self.problem, self.posterior.gaussian, draws, rng)

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
            return with_pair_sites(q, q.precision - removed.precision, q.shift - removed.shift)

        def with_pair_sites(q: SparseGaussian, precision: FloatArray, shift: FloatArray) -> SparseGaussian | None:
            rotation = problem.scores.reduced.rotation
            return sparse_gaussian(precision, shift, q.site_precision, q.site_shift, rotation)

        def refit(split: Split, left: Problem, sweeps: int, tolerance: float, own: WithoutGroup | None) -> WithoutGroup:
            if own is None:
                start = without(split)
            else:
                ratio = left.gamma / own.gamma  # to which pair sites are about proportional
                start = with_pair_sites(own.state, ratio * own.state.precision, ratio * own.state.shift)
            settled = None if start is None else settle(left, start, tolerance)
            if settled is None:
                sweeps = max(sweeps, 3)
            found = solve_sparse(
                left,
                (q if own is None else own.state) if settled is None else settled.q,
                map_tiles,
                tolerance=tolerance,
                max_sweeps=max(sweeps, 1),
            )
            end = (found.point if found.converged or not sweeps else found.following).q
            return WithoutGroup(
                end.reduced_mean,
                end.reduced_root,
                state=end,
                gamma=left.gamma,
                change=found.seen.change,
                converged=found.converged,
                rematched=settled is None,
            )

        with tile_map(problem.pairs.n_pairs, min(problem.n, problem.d), n_jobs) as map_tiles:
            return leave_out_pairs(
                problem,
                forgetting(refit),
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


def fit_spike_slab(
    problem: Problem,
    *,
    start: Fit | None = None,
    tolerance: float = 1e-6,
    max_sweeps: int = 200,
    n_jobs: int | None = None,
    callback: Callable[[dict[str, float]], None] | None = None,
) -> SpikeSlabFit:
    """Approximate the AUC Gibbs posterior under a spike-and-slab prior.

    Parameters
    ----------
    problem
        The target.
    start
        An earlier fit of the same design and slab to begin from, for example at another v0, p or gamma, or with every
        coefficient in the slab (a Gaussian prior), which is the default.
    tolerance
        Change at which to stop; see :class:`SpikeSlabFit`.
    max_sweeps
        Sweeps after which to give up, with a :class:`~pymc_pacauc.ep.ConvergenceWarning`.
    n_jobs, callback
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
    check_offset(problem)
    before: tuple[dict[str, float], ...] = ()
    interrupted = False  # on the way to the start
    if start is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # it is where to start, not what is returned
            start = fit_ep(
                replace(problem, spikes=None),
                tolerance=ROUGHLY,
                max_sweeps=max_sweeps - 1,
                n_jobs=n_jobs,
                callback=callback,
            )
        interrupted = start.interrupted
        before = tuple({**row, "expected_model_size": float(problem.d)} for row in start.history)
    with tile_map(problem.pairs.n_pairs, min(problem.n, problem.d), n_jobs) as map_tiles:
        found = solve_sparse(
            problem,
            _start(start, problem),
            map_tiles,
            tolerance=tolerance,
            max_sweeps=1 if interrupted else max_sweeps - len(before),
            callback=callback,
            counted=len(before),
        )
    if interrupted:
        found = replace(found, interrupted=True, converged=False)
    seen, history = found.seen, before + found.history
    log_evidence = possible(seen.log_evidence) if found.converged else np.nan
    advice = "Raise max_sweeps, p or v0, lower gamma, or check the result against tempering SMC."
    warn_of("EP", found, len(history), tolerance, log_evidence, advice, stacklevel=3)
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
        interrupted=found.interrupted,
    )


def _start(start: Fit, problem: Problem) -> SparseGaussian:
    """An earlier fit in the coefficients of this one, whose pair sites are then those of the same scores."""
    old = start.problem
    if not (np.array_equal(old.X, problem.X) and np.array_equal(old.prior.factor, problem.prior.factor)):
        raise ValueError("start must be a fit with the same X and v1.")
    if isinstance(start, SpikeSlabFit):
        return start.posterior.gaussian
    natural, space = start.posterior.natural, problem.scores.reduced
    k, d = space.dimension, problem.d
    # Every coefficient in the slab: site precisions 1.
    q = sparse_gaussian(natural.precision - np.eye(k), natural.shift, np.ones(d), np.zeros(d), space.rotation)
    assert q is not None  # it is the dense fit itself
    return q
