"""EP with independent priors that are not Gaussian (spike and slab, Laplace, Student-t, signed): fit and posterior.

Each of the d coefficients has a prior site beside the n+ n- pair sites. All priors are mixtures
(:class:`~pymc_pacauc.problem.problem.PriorSites`), so one engine, :func:`solve`, serves all;
:mod:`~pymc_pacauc.ep.prior_sites` finds the fixed point. A sweep over the pairs costs O(n+ n- k + n k^2), a pass over
the prior sites O(d k^2). It is the engine of plans whose ``prior`` is not "gaussian".

*Posterior* (:class:`SitesPosterior`). A Gaussian of theta and, for each coefficient, the marginal given by its site:
prior times cavity. Draws join them by a Gaussian copula. Where scores have no offset, :class:`LengthOfSites` uses the
exact density of the length given the direction e, r^(d-1) prior(r e), by quadrature over log r, and importance weights
of the directions.

*Start.* The risk does not depend on the length of theta, so a posterior with *all* coefficients in the spike ranks as
well as the same one in the slab: with v0 > 0 both are modes, and EP describes the one it finds. To find that of the
slab, the start is the fit with every coefficient in the slab.

*Gradient* (:func:`spike_slab_gradient`). At a fixed point a parameter of the prior of coefficient k acts through log
Z_k alone, Z_k the integral of that prior under its cavity exp(-T theta^2 / 2 + N theta). With r the probability of the
slab

    d log Z / d p  = r / p - (1 - r) / (1 - p),    d log Z / d v1 = r / 2 (N^2 / (1 + v1 T)^2 - T / (1 + v1 T)),

and for v0 the same with v0 in place of v1 and 1 - r in place of r; all hold at v0 = 0.

To add a prior, tabulate its density (:func:`pymc_pacauc.problem.problem.tabulate`); no code here changes.

References: Ridgway, Alquier, Chopin & Liang (2014), arXiv:1410.1771, sections 2.4 and 3.4; Hernández-Lobato,
Hernández-Lobato & Suárez (2015), doi:10.1007/s10994-014-5475-7, for regression.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg
from scipy.special import logsumexp, ndtr, ndtri, ndtri_exp, poch

from pymc_pacauc.ep.gaussian import Callback, dropped
from pymc_pacauc.ep.importance import MOST_SCORES, WeightedDraws, accepted, trustworthy, weighted_moments
from pymc_pacauc.ep.leave_out import Groups, LeaveOut, Split, leave_out_pairs, starts_anew
from pymc_pacauc.ep.loop import Interventions, UnsupportedError, possible
from pymc_pacauc.ep.plan import Plan
from pymc_pacauc.ep.posterior import ByCovariance, NaturalGaussian
from pymc_pacauc.ep.prior_sites import (
    MatchedSites,
    SparseGaussian,
    relevant,
    settle,
    solve_sparse,
    sparse_gaussian,
)
from pymc_pacauc.ep.results import Fit, warn_of
from pymc_pacauc.ep.sites import SiteTable
from pymc_pacauc.ep.spike_models import (
    DIRECTIONS,
    MOST_SPARSE,
    ModelAverage,
    ModelProposal,
    average_models,
    models_can_be_listed,
)
from pymc_pacauc.ep.start import SWEEPS, Reached, continued_start
from pymc_pacauc.ep.sweep import check_offset, sweep_sums, tile_map
from pymc_pacauc.interrupt import raises_interrupts
from pymc_pacauc.numerics import FloatArray, slices
from pymc_pacauc.problem.problem import Problem, Tabulated
from pymc_pacauc.problem.scores import LARGEST_SPECTRUM


@dataclass(frozen=True, eq=False)
class SitesPosterior:
    """A Gaussian of theta and, for each coefficient, the marginal given by its site: prior times cavity.

    Draws have these marginals and the Gaussian's dependence (a Gaussian copula): a coefficient drawn from the Gaussian
    is mapped to the same quantile of the marginal. So draws are exactly zero where the spike is a point mass, and have
    the signs that the prior allows.
    """

    problem: Problem
    gaussian: SparseGaussian
    sites: MatchedSites

    @cached_property
    def mean(self) -> FloatArray:
        return self.problem.prior.color(self.gaussian.mean)

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
    def score_mean(self) -> FloatArray:
        """Coefficients of the mean score: the mean."""
        return self.mean

    @property
    def inclusion_probability(self) -> FloatArray:
        """EP's probability that each coefficient comes from the slab, (d,)."""
        return self.sites.inclusion

    def draw(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw theta independently, shape (draws, d); see the class docstring."""
        w = self.gaussian.draw(draws, rng)  # (draws, d), in units of the Gaussian prior
        dirac = self._dirac
        if dirac.any():
            w[:, dirac] = self._with_zeros(w[:, dirac], dirac)
        for k, (nodes, normal) in self.marginals.items():
            w[:, k] = np.interp(w[:, k], normal, nodes)
        return self.problem.prior.color(w)

    @cached_property
    def marginals(self) -> dict[int, tuple[FloatArray, FloatArray]]:
        """For each coefficient with a tabulated prior: nodes, and the same quantiles of the Gaussian marginal.

        Intervals that are empty after rounding are left out, so that the map between the two is one to one.
        """
        prior, q = self.problem.sites, self.gaussian
        found: dict[int, tuple[FloatArray, FloatArray]] = {}
        if not isinstance(prior, Tabulated):
            return found
        for k in np.flatnonzero(prior.which >= 0):
            tau, nu = q.cavity_precision[k], q.cavity_shift[k]
            which = prior.log_weight, prior.centre, prior.variance, prior.first[k], prior.last[k]
            part = slice(*relevant(tau, nu, *which))
            nodes = prior.centre[part]
            log_mass = prior.log_weight[part] + nodes * (nu - 0.5 * tau * nodes)
            log_mass -= logsumexp(log_mass)
            below, above = np.logaddexp.accumulate(log_mass), np.logaddexp.accumulate(log_mass[::-1])[::-1]
            lower = below + np.log1p(-0.5 * np.exp(log_mass - below))
            upper = above + np.log1p(-0.5 * np.exp(log_mass - above))
            normal = np.where(lower < upper, ndtri_exp(lower), -ndtri_exp(upper))
            apart = np.isfinite(normal) & (np.abs(normal) < 30.0)  # farther out, steps are smaller than rounding
            nodes, normal = nodes[apart], q.mean[k] + np.sqrt(q.variance[k]) * normal[apart]
            apart = np.append(True, np.diff(normal) > 1e-12 * np.abs(normal[:-1]) + 1e-300)
            found[int(k)] = nodes[apart], normal[apart]
        return found

    def _with_zeros(self, w: FloatArray, among: NDArray[np.bool_]) -> FloatArray:
        """Map draws of the Gaussian's marginals to the same quantiles of mixtures of a point mass and a Gaussian."""
        q, r = self.gaussian, self.sites.inclusion[among]
        variance = 1.0 / (1.0 + q.cavity_precision[among])
        mean, sd = q.cavity_shift[among] * variance, np.sqrt(variance)
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
        spikes = self.problem.spikes
        return np.zeros(self.problem.d, dtype=bool) if spikes is None else spikes.sparse & (spikes.ratio == 0.0)

    def __repr__(self) -> str:
        return f"SitesPosterior(d={self.problem.d}, expected model size {self.sites.inclusion.sum():.2f})"


LENGTHS = 121  # nodes of the quadrature over log r; with half as many, errors of 1e-3 in 100 coefficients
# Distance in log r of the last node to the end of a bounded support; doubled, no effect, at 1e-3 evidences are 0.01 off
CLOSEST = 1e-6


@dataclass(frozen=True, eq=False)
class LengthOfSites(ByCovariance):
    """Directions of a :class:`SitesPosterior`, weighted by the exact posterior, with the exact distribution of lengths.

    Moments are sums over fixed draws; ``monte_carlo_error`` is that of the mean, the largest of all coefficients, in
    posterior standard deviations. ``log_weights`` is None where weights degenerate: then directions are not corrected.
    """

    q: SitesPosterior

    @property
    def score_mean(self) -> FloatArray:
        return self.q.score_mean

    @cached_property
    def _fixed(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Directions times E[r] and times E[r^2]^(1/2) given each, (draws, d), and log weights."""
        e, end, log_law, log_weights = self.propose(DIRECTIONS, np.random.default_rng(0))
        log_lengths = self._log_lengths(end[:, None], np.arange(float(LENGTHS)))[0]
        first, second = (np.exp(log_law + power * log_lengths).sum(axis=1) for power in (1.0, 2.0))
        return e * first[:, None], e * np.sqrt(second)[:, None], log_weights

    @cached_property
    def log_weights(self) -> FloatArray | None:
        """Log weights of the fixed directions; None if their effective number is too small."""
        log_weights = self._fixed[2]
        return log_weights if trustworthy(log_weights) else None

    @cached_property
    def _moments(self) -> tuple[FloatArray, FloatArray, float]:
        return weighted_moments(*self._fixed, self.log_weights is not None)

    @property
    def monte_carlo_error(self) -> float:
        return self._moments[2]

    @property
    def mean(self) -> FloatArray:
        return self.q.problem.prior.color(self._moments[0])

    @property
    def covariance(self) -> FloatArray:
        unit = self.q.problem.prior.factor
        return self._moments[1] * np.outer(unit, unit)

    def draw(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw theta independently, shape (draws, d)."""
        w = accepted(lambda count: self.with_lengths(count, rng), draws, self.log_weights, rng)
        return self.q.problem.prior.color(w)

    def with_lengths(self, draws: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Draws of w and their log weights."""
        w, end, log_law, log_weights = self.propose(draws, rng)
        places = (np.cumsum(np.exp(log_law), axis=1) < rng.random((draws, 1))).sum(axis=1)
        between = np.minimum(places, LENGTHS - 1) + rng.uniform(-0.5, 0.5, size=draws)
        return w * np.exp(self._log_lengths(end, between)[0])[:, None], log_weights

    def _log_lengths(self, end: FloatArray, places: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the logs of length factors at ``places`` among the nodes, and of the distance to the next node.

        Nodes are equidistant where the support is unbounded; where it ends, they accumulate at the end, because the
        copula's density is steep there.
        """
        # Half the interval of log r about a draw's own over which its law is integrated
        width = 6.0 * min(1.0, 5.0 / np.sqrt(self.q.problem.d))
        even = 2.0 * width / (LENGTHS - 1)
        closer = np.log(2.0 * width / CLOSEST) / (LENGTHS - 1)
        from_end = CLOSEST * np.exp(closer * (LENGTHS - 1 - places))
        bounded = np.isfinite(end)
        log_lengths = np.where(bounded, np.where(bounded, end, 0.0) - from_end, even * places - width)
        return log_lengths, np.where(bounded, np.log(closer * from_end), np.log(even))

    def _farthest(self, w: FloatArray) -> FloatArray:
        """Return the log of the factor that takes each draw to the end of the prior's support; inf where unbounded."""
        prior = self.q.problem.sites
        assert prior is not None
        ends = np.column_stack([prior.centre[prior.first], prior.centre[prior.last - 1]])
        ends = np.where(prior.opened, [-np.inf, np.inf], ends)
        with np.errstate(divide="ignore", invalid="ignore"):
            most = np.nanmin(np.where(w > 0.0, ends[:, 1], ends[:, 0]) / w, axis=1)
        return np.asarray(np.log(np.where(most > 0.0, most, np.inf)))

    def propose(self, draws: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Draw from the copula: draws (draws, d), logs of the ends of their support, and log weights, (draws,).

        The third value, (draws, LENGTHS), holds log probabilities of the factors by which a draw's length is scaled.
        """
        q, problem = self.q, self.q.problem
        prior, gaussian = problem.sites, q.gaussian
        assert isinstance(prior, Tabulated)
        w = problem.prior.whiten(q.draw(draws, rng))
        factor = np.linalg.cholesky(gaussian.covariance())
        log_prior, log_q = (np.empty((draws, LENGTHS)) for _ in range(2))
        end = self._farthest(w)
        log_lengths, log_step = self._log_lengths(end[:, None], np.arange(float(LENGTHS)))
        times = np.exp(log_lengths)
        for rows in slices(draws, LENGTHS * problem.d):
            x = w[rows][:, None] * times[rows, :, None]  # (rows, LENGTHS, d)
            with np.errstate(invalid="ignore"):
                log_prior[rows] = prior.log_density(x).sum(axis=2)
            slope = np.zeros(x.shape[:2])
            for k, (nodes, normal) in q.marginals.items():
                place = np.clip(np.searchsorted(nodes, x[..., k]) - 1, 0, nodes.size - 2)
                rate = np.diff(normal) / np.diff(nodes)
                x[..., k] = normal[place] + rate[place] * (x[..., k] - nodes[place])
                slope += np.log(rate[place])
            apart = linalg.solve_triangular(factor, (x - gaussian.mean).reshape(-1, problem.d).T, lower=True)
            log_q[rows] = slope - 0.5 * np.sum(apart**2, axis=0).reshape(slope.shape)
        log_q -= np.log(np.diagonal(factor)).sum()
        power = problem.d * log_lengths + log_step
        log_law = log_prior + power
        total = logsumexp(log_law, axis=1)
        log_proposal = logsumexp(log_q + power, axis=1)
        log_constant = prior.log_scale - 0.5 * np.log(2.0 * np.pi) * (np.sum(prior.which < 0) - problem.d)
        theta = problem.prior.color(w)
        log_weights = -problem.gamma * problem.risk(theta) + total - log_proposal + log_constant
        return w, end, log_law - total[:, None], log_weights


@dataclass(frozen=True, eq=False)
class LengthOfSpikes(LengthOfSites):
    """Directions and lengths with Dirac spikes: given which coefficients are zero, the length is chi-distributed.

    Models and directions have importance weights where models can be listed.
    """

    @cached_property
    def _proposal(self) -> tuple[ModelProposal, FloatArray] | None:
        """Proposal of models and directions, and the probabilities of models; None where these cannot be listed."""
        if not models_can_be_listed(self.q.problem):
            return None
        found = ModelProposal(self.q.problem, self.q.gaussian)
        return found, found.improved(np.random.default_rng(0))

    def _directions(self, draws: int, rng: np.random.Generator) -> tuple[FloatArray, NDArray[np.intp], FloatArray]:
        """Draw directions (draws, d); return also the degrees of freedom of their lengths, and log weights."""
        problem = self.q.problem
        if self._proposal is None:
            w = problem.prior.whiten(self.q.draw(draws, rng))
            length = np.linalg.norm(w, axis=1, keepdims=True)
            return w / np.where(length > 0.0, length, 1.0), np.count_nonzero(w, axis=1), np.zeros(draws)
        proposal, probability = self._proposal
        _, w, log_weights = proposal.draw(probability, draws, rng)
        return w, np.full(draws, problem.d), log_weights

    @cached_property
    def _fixed(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        w, size, log_weights = self._directions(DIRECTIONS, np.random.default_rng(0))
        first, second = np.sqrt(2.0) * poch(0.5 * size, 0.5), np.sqrt(size)
        return w * first[:, None], w * second[:, None], log_weights

    @cached_property
    def log_weights(self) -> FloatArray | None:
        """Log weights of the fixed directions; None if there are none, or their effective number is too small."""
        return None if self._proposal is None else super().log_weights

    def with_lengths(self, draws: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Draws of w and their log weights."""
        w, size, log_weights = self._directions(draws, rng)
        return w * np.sqrt(rng.chisquare(np.maximum(size, 1)))[:, None], log_weights


@dataclass(frozen=True, eq=False)
class SpikeSlabGradient:
    """Derivatives of log Z with respect to p, v0 and v1 of every coefficient, each of shape (d,).

    For a coefficient without a spike those of p and v0 are zero, and v1 is its prior variance.
    """

    inclusion_probability: FloatArray
    v0: FloatArray
    v1: FloatArray


def spike_slab_gradient(problem: Problem, q: SparseGaussian, sites: MatchedSites) -> SpikeSlabGradient:
    """Compute the gradient at a fixed point of EP; see the module docstring."""
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


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SitesFit(Fit):
    """Result of :func:`~pymc_pacauc.ep.fit.fit` for priors that are not Gaussian.

    Attributes
    ----------
    posterior : SitesPosterior
        Mean, covariance and draws of theta, and inclusion probabilities.
    log_evidence : float
        EP's approximation of log Z, prior sites included.
    expected_risk : float
        E_q[risk], in closed form.
    converged, sweeps, history : bool, int, tuple of dict
        Whether the last sweep changed q by less than the tolerance (root mean square over coefficients, in q's
        own standard deviations), the number of sweeps, and a record of each.
    interventions : Interventions
        How often each safeguard acted.
    plan : Plan
        How it was fitted.
    """

    posterior: SitesPosterior

    method = "EP"
    power = 1.0
    log_evidence_error = float("nan")

    @cached_property
    def divergence(self) -> float:
        """KL(q, prior), by one-dimensional integrals; NaN for spikes, infinite if the prior's support is bounded."""
        prior, q = self.problem.sites, self.posterior.gaussian
        if not isinstance(prior, Tabulated):
            return float("nan")
        if not prior.opened.all():
            return float("inf")
        z = np.linspace(-10.0, 10.0, 4001)[:, None]
        weight = np.exp(-0.5 * z**2)
        log_prior = weight.T @ prior.log_density(q.mean + np.sqrt(q.variance) * z) / weight.sum()
        constant = prior.log_scale - 0.5 * np.log(2.0 * np.pi) * np.sum(prior.which < 0)
        entropy = 0.5 * (np.linalg.slogdet(q.covariance())[1] + self.problem.d * (1.0 + np.log(2.0 * np.pi)))
        return float(-entropy - log_prior.sum() - constant)

    @cached_property
    def corrected(self) -> SitesPosterior | LengthOfSites:
        """The posterior with the exact distribution of the length where scores have no offset and v0 = 0; else q."""
        problem, spikes = self.problem, self.problem.spikes
        if not problem.scale_free or problem.d > LARGEST_SPECTRUM or problem.n * DIRECTIONS > MOST_SCORES:
            return self.posterior
        if spikes is None:
            return LengthOfSites(self.posterior)
        return self.posterior if spikes.ratio[spikes.sparse].any() else LengthOfSpikes(self.posterior)

    @cached_property
    def model_average(self) -> ModelAverage | None:
        """Exact model probabilities by importance sampling, where there are few enough models to list."""
        if self.problem.spikes is None:
            return None
        return average_models(self.problem, self.posterior.gaussian, np.random.default_rng(0))

    @property
    def inclusion_probability(self) -> FloatArray:
        """Probability of the slab for each coefficient: that of ``model_average`` where there is one, else EP's."""
        return self.posterior.inclusion_probability if self.model_average is None else self.model_average.inclusion

    def evidence_gradient(self) -> SpikeSlabGradient:
        """Differentiate ``log_evidence`` in p, v0 and v1; valid at a converged fit."""
        if self.problem.spikes is None:
            raise UnsupportedError("evidence_gradient() is for Gaussian and spike-and-slab priors; this is neither.")
        return spike_slab_gradient(self.problem, self.posterior.gaussian, self.posterior.sites)

    def importance(self, draws: int, rng: np.random.Generator) -> WeightedDraws:
        """Draw theta and weight by exact posterior / proposal; see :mod:`pymc_pacauc.ep.spike_models`."""
        spiked = self.problem.spikes is not None
        law = LengthOfSpikes(self.posterior) if spiked else self.corrected
        if not isinstance(law, LengthOfSites) or (spiked and not models_can_be_listed(self.problem)):
            raise UnsupportedError(
                "Importance weights under a prior that is not Gaussian are for scores without an offset, up to "
                f"{LARGEST_SPECTRUM} coefficients, {MOST_SPARSE} with a spike: draw from the exact posterior with "
                "pm.sample(step=pac.TemperingSMC())."
            )
        w, log_weights = law.with_lengths(draws, rng)
        theta = self.problem.prior.color(w)
        return WeightedDraws(theta, self.problem.risk(theta), log_weights)

    @raises_interrupts
    def leave_out(
        self, groups: ArrayLike | Groups | None = None, *, n_jobs: int | None = None, **options: Any
    ) -> LeaveOut:
        """Score every observation under the posterior without its group; see :mod:`pymc_pacauc.ep.leave_out`.

        The pair sites of the group are removed, and the prior sites iterated to their fixed point. ``options`` are
        those of :func:`~pymc_pacauc.ep.leave_out.leave_out_pairs`.
        """
        q, problem = self.posterior.gaussian, self.problem
        table = SiteTable(problem.gamma_per_pair)

        def without(split: Split) -> SparseGaussian | None:
            removed = sweep_sums(problem, q.reduced, split.touched, table, map_tiles)
            precision, shift = q.precision - removed.precision, q.shift - removed.shift
            return sparse_gaussian(precision, shift, q.site_precision, q.site_shift, q.rotation)

        def refit(split: Split, left: Problem, sweeps: int, tolerance: float) -> Reached:
            start: SparseGaussian | None
            if starts_anew(split, left, sweeps):
                start = unsettled = _in_slab(continued_start(left, 1.0), left)
                sweeps = max(sweeps, 2 * SWEEPS)  # from the slab to the spikes takes more sweeps than a refinement
            else:
                start, unsettled = without(split), q
            settled = None if start is None else settle(left, start, tolerance)
            if settled is None:
                sweeps = max(sweeps, 3)
            begin = unsettled if settled is None else settled.q
            found = solve_sparse(left, begin, map_tiles, tolerance=tolerance, max_sweeps=max(sweeps, 1))
            end = (found.point if found.converged or not sweeps else found.following).q
            return Reached(end.reduced, found.seen.change, found.converged, restarted=settled is None)

        with tile_map(problem.pairs.n_pairs, min(problem.n, problem.d), n_jobs) as map_tiles:
            return leave_out_pairs(problem, refit, groups, **options)


def solve(
    problem: Problem,
    plan: Plan,
    *,
    rough: Fit | None = None,
    n_jobs: int | None = None,
    callback: Callback | None = None,
) -> SitesFit:
    """Approximate the AUC Gibbs posterior under priors of single coefficients that are not Gaussian, as the plan says.

    The start is a fit of the same design and slab: the plan's, at another v0, p or gamma; or a ``rough`` one with the
    Gaussian prior (every coefficient in the slab), whose sweeps count.
    """
    check_offset(problem)
    start = plan.start if rough is None else rough
    assert not isinstance(start, str)
    before = () if rough is None else rough.history
    before = tuple({**row, "expected_model_size": float(problem.d)} for row in before)
    history, q = before, _start(start, problem)
    with tile_map(problem.pairs.n_pairs, min(problem.n, problem.d), n_jobs) as map_tiles:
        while True:
            found = solve_sparse(
                problem,
                q,
                map_tiles,
                tolerance=plan.tolerance,
                max_sweeps=max(1, plan.max_sweeps - len(history)),
                callback=callback,
                counted=len(history),
            )
            history, q = history + found.history, found.point.q
            finer = with_finer_tables(problem, q) if found.converged else None
            if finer is None:
                break
            problem = finer
    seen = found.seen
    log_evidence = possible(seen.log_evidence) if found.converged else np.nan
    sparse = ", the inclusion probability or v0" if problem.spikes is not None else ""
    advice = f"Lower gamma{sparse}, or check the result against tempering SMC."
    warn_of("EP", found, len(history), plan.tolerance, log_evidence, advice, stacklevel=4)
    narrowest = Interventions(narrowest_sites=int(seen.sites.narrowest.sum()))
    return SitesFit(
        problem=problem,
        posterior=SitesPosterior(problem, found.point.q, seen.sites),
        log_evidence=log_evidence,
        expected_risk=seen.expected_risk,
        converged=found.converged,
        history=history,
        interventions=found.interventions + narrowest + dropped(problem),
        tied_pairs=seen.tied,
        plan=plan.done(len(history)),
        interrupted=found.interrupted,
    )


def with_finer_tables(problem: Problem, q: SparseGaussian) -> Problem | None:
    """Return the problem with more nodes where a marginal is narrower than their distance; None if none is."""
    prior = problem.sites
    if not isinstance(prior, Tabulated):
        return None
    parts = np.ones(len(prior.tables), dtype=int)
    for k in np.flatnonzero(prior.which >= 0):
        nodes = prior.centre[prior.first[k] : prior.last[k]]
        place = int(np.clip(np.searchsorted(nodes, q.mean[k]), 1, nodes.size - 1))
        wanted = 2.0 * (nodes[place] - nodes[place - 1]) / np.sqrt(q.variance[k])
        table = prior.which[k]
        parts[table] = max(parts[table], int(np.ceil(wanted)) if wanted > 1.0 else 1)
    # Tables of so many nodes reach coefficients 3000 posterior standard deviations from zero: not refined further.
    if parts.max() == 1 or max(table.nodes.size for table in prior.tables) > 200_000:
        return None
    tables = tuple(table.refined(int(times)) for table, times in zip(prior.tables, parts, strict=True))
    return replace(problem, sites=replace(prior, tables=tables))


def _start(start: Fit, problem: Problem) -> SparseGaussian:
    """Return the Gaussian of an earlier fit; X and v1 must be the same, so that its pair sites are valid."""
    old = start.problem
    if not (np.array_equal(old.X, problem.X) and np.array_equal(old.prior.factor, problem.prior.factor)):
        raise ValueError("start has another X or v1 (the variance of the slab): leave start out, or fit with the same.")
    if isinstance(start, SitesFit):
        return start.posterior.gaussian
    return _in_slab(start.posterior.natural, problem)


def _in_slab(natural: NaturalGaussian, problem: Problem) -> SparseGaussian:
    """Write a Gaussian of the reduced coefficients as one with every coefficient in the slab: site precisions 1."""
    space, d = problem.scores.reduced, problem.d
    k = space.dimension
    q = sparse_gaussian(natural.precision - np.eye(k), natural.shift, np.ones(d), np.zeros(d), space.rotation)
    assert q is not None  # it is the dense fit itself
    return q
