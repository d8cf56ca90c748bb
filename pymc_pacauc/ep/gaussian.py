"""Parallel EP with a Gaussian prior (the paper's section 3.3 and appendix Algorithm 3), without stored sites.

The work is done in whitened coefficients w ~ N(0, I), rotated and cut to the at most n directions that reach the
scores when there are more coefficients than observations (the *dual*: the other directions keep their prior). A
Gaussian-process prior is the same problem with the Cholesky factor of its kernel matrix as design.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from pymc_pacauc.core.pairs import Pairs
from pymc_pacauc.core.problem import LinearGaussianProblem
from pymc_pacauc.ep.fixed_point import Interventions, NaturalGaussian, Sweep, natural_gaussian, solve_fixed_point
from pymc_pacauc.ep.sites import SiteTable, site_table
from pymc_pacauc.ep.sweep import SiteSums, score_moments, sum_sites, tile_map

__all__ = ["ConvergenceWarning", "Coordinates", "EPFit", "GaussianPosterior", "coordinates", "fit_ep", "fit_vb"]

FloatArray = NDArray[np.float64]

LARGEST_RANKED = 512
RANK_TOLERANCE = 1e-12


class ConvergenceWarning(UserWarning):
    """EP stopped before its fixed point."""


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Scores = ``design @ u + offset`` with u ~ N(0, I_k); u = ``rotation @ w``, w the whitened coefficients.

    ``rotation`` has orthonormal rows; None stands for the identity.
    """

    problem: LinearGaussianProblem
    design: FloatArray
    offset: FloatArray
    rotation: FloatArray | None

    @property
    def dimension(self) -> int:
        return self.design.shape[1]

    def moments_of(
        self, theta_map: FloatArray, q: NaturalGaussian, *, variances: bool = False
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and covariance of ``theta_map @ theta`` when u ~ q and the other directions keep their prior.

        ``variances`` asks for the diagonal of the covariance only.
        """
        factor = self.problem.prior_factor
        whitened = theta_map * factor if factor.ndim == 1 else theta_map @ factor
        reduced = whitened if self.rotation is None else whitened @ self.rotation.T
        mean = theta_map @ self.problem.prior_mean + reduced @ q.mean
        root = linalg.solve_triangular(q.factor, reduced.T, lower=True, check_finite=False).T
        square = _row_squares if variances else _gram
        spread = square(root)
        return mean, spread if self.rotation is None else spread + (square(whitened) - square(reduced))


def coordinates(problem: LinearGaussianProblem) -> Coordinates:
    """Whitened coefficients, cut to the directions that reach the scores where there are fewer of these.

    That is so with more coefficients than observations, and with intercepts or linearly dependent columns. (In more
    than ``LARGEST_RANKED`` dimensions dependence is not looked for: those directions just stay at their prior.)
    """
    design, offset = problem.whitened_design, problem.whitened_offset
    if problem.d > problem.n:
        q, r = linalg.qr(design.T, mode="economic", check_finite=False)
        return Coordinates(problem, np.ascontiguousarray(r.T), offset, q.T)
    if problem.d <= LARGEST_RANKED:
        diagonal = np.abs(np.diagonal(linalg.qr(design, mode="r", pivoting=True, check_finite=False)[0]))
        if diagonal.min() <= RANK_TOLERANCE * diagonal.max():
            _, singular, rotation = linalg.svd(design, full_matrices=False, check_finite=False)
            rank = max(1, int(np.sum(singular > RANK_TOLERANCE * singular[0])))
            return Coordinates(problem, design @ rotation[:rank].T, offset, rotation[:rank])
    return Coordinates(problem, design, offset, None)


def _gram(root: FloatArray) -> FloatArray:
    return root @ root.T


def _row_squares(root: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("ij,ij->i", root, root))


@dataclass(frozen=True, eq=False)
class GaussianPosterior:
    """A Gaussian over theta, kept in the reduced coordinates of the fit."""

    coordinates: Coordinates
    natural: NaturalGaussian

    @cached_property
    def mean(self) -> FloatArray:
        u = self.natural.mean
        w = u if self.coordinates.rotation is None else u @ self.coordinates.rotation
        return self.coordinates.problem.color(w)

    @cached_property
    def covariance(self) -> FloatArray:
        covariance = self.coordinates.moments_of(np.eye(self.coordinates.problem.d), self.natural)[1]
        return 0.5 * (covariance + covariance.T)

    def moments_of(self, theta_map: FloatArray, *, variances: bool = False) -> tuple[FloatArray, FloatArray]:
        """Mean and covariance (or variances) of ``theta_map @ theta``."""
        return self.coordinates.moments_of(theta_map, self.natural, variances=variances)

    @property
    def divergence_from_prior(self) -> float:
        """KL(posterior, prior)."""
        return self.natural.divergence

    def draw(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Independent draws of theta, shape (draws, d)."""
        return self.complete(draw_natural(self.natural, draws, rng), rng)

    def complete(self, u: FloatArray, rng: np.random.Generator) -> FloatArray:
        """theta for reduced coefficients ``u[draws, k]``; other directions come from the prior."""
        problem, rotation = self.coordinates.problem, self.coordinates.rotation
        if rotation is None:
            return problem.color(u)
        w = rng.standard_normal((len(u), problem.d))
        return problem.color(w + (u - w @ rotation.T) @ rotation)

    def __repr__(self) -> str:
        return f"GaussianPosterior(d={self.coordinates.problem.d})"


@dataclass(frozen=True, eq=False)
class EPFit:
    """Result of :func:`fit_ep` or :func:`fit_vb`.

    Attributes
    ----------
    posterior
        The Gaussian approximation q of the posterior of theta.
    log_evidence
        EP's approximation of log Z; for variational Bayes the lower bound ``-gamma E_q[risk] - KL(q, prior)``.
    expected_risk
        E_q[risk], in closed form.
    converged, sweeps, history
        Whether the natural parameters changed by less than the tolerance in the last sweep, the number of sweeps, and
        per sweep its change, log evidence and expected risk.
    interventions
        How often a step was halved to keep the precision positive definite, the acceleration restarted, a step taken
        back.
    tied_pairs
        Number of pairs with equal rows, which are constant factors.
    power
        1 for EP, in (0, 1) for fractional EP, 0 for variational Bayes.
    """

    problem: LinearGaussianProblem
    posterior: GaussianPosterior
    table: SiteTable
    log_evidence: float
    expected_risk: float
    converged: bool
    history: tuple[dict[str, float], ...]
    interventions: Interventions
    tied_pairs: int

    @property
    def sweeps(self) -> int:
        return len(self.history)

    @property
    def power(self) -> float:
        return self.table.power

    def __repr__(self) -> str:
        state = "converged" if self.converged else "NOT converged"
        return (
            f"EPFit(d={self.problem.d}, gamma={self.problem.gamma:g}, log_evidence={self.log_evidence:.3f}, "
            f"expected_risk={self.expected_risk:.4f}, {state} in {self.sweeps} sweeps)"
        )


def fit_ep(
    problem: LinearGaussianProblem,
    *,
    power: float = 1.0,
    start: EPFit | None = None,
    tolerance: float = 1e-6,
    max_sweeps: int = 200,
    threads: int | None = None,
    callback: Callable[[dict[str, float]], None] | None = None,
) -> EPFit:
    """Approximate the AUC Gibbs posterior by a Gaussian.

    Parameters
    ----------
    problem
        The target.
    power
        1 for EP; in (0, 1) for fractional EP, whose sites see that power of their factor.
    start
        An earlier fit to begin from, for example at another gamma or another prior; by default the prior.
    tolerance
        Relative change of the natural parameters at which to stop.
    max_sweeps
        Sweeps after which to give up, with a :class:`ConvergenceWarning`.
    threads
        Threads, by default one per core; the result does not depend on their number.
    callback
        Called after every sweep with its record.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_pacauc.core.problem import linear_gaussian_problem
    >>> X = np.random.default_rng(1).normal(size=(50, 2))
    >>> fit = fit_ep(linear_gaussian_problem(X, X[:, 0] > 0.2, gamma=50.0))
    >>> fit.converged, bool(fit.posterior.mean[0] > 3 * abs(fit.posterior.mean[1]))
    (True, True)
    """
    if not 0.0 < power <= 1.0:
        raise ValueError(f"power must be in (0, 1]; got {power!r}.")
    return _fit(problem, power, start, tolerance, max_sweeps, threads, callback)


def fit_vb(
    problem: LinearGaussianProblem,
    *,
    start: EPFit | None = None,
    tolerance: float = 1e-6,
    max_sweeps: int = 200,
    threads: int | None = None,
    callback: Callable[[dict[str, float]], None] | None = None,
) -> EPFit:
    """The Gaussian q that maximises ``-gamma E_q[risk] - KL(q, prior)``: the limit of power zero of :func:`fit_ep`."""
    return _fit(problem, 0.0, start, tolerance, max_sweeps, threads, callback)


def sweep_sums(
    space: Coordinates, q: NaturalGaussian, pairs: Pairs, table: SiteTable, map_tiles: Callable[..., Any] = map
) -> SiteSums:
    """Sums of the sites of ``pairs`` under q."""
    moments = score_moments(space.design, space.offset, q.mean, q.factor, map_tiles)
    tie_cost = 0.5 if space.problem.ties == "half" else 0.0
    return sum_sites(space.design, space.offset, moments, pairs, table, tie_cost=tie_cost, map_tiles=map_tiles)


def draw_natural(q: NaturalGaussian, draws: int, rng: np.random.Generator) -> FloatArray:
    noise = rng.standard_normal((q.mean.size, draws))
    return q.mean + linalg.solve_triangular(q.factor, noise, lower=True, trans="T").T


def _fit(
    problem: LinearGaussianProblem,
    power: float,
    start: EPFit | None,
    tolerance: float,
    max_sweeps: int,
    threads: int | None,
    callback: Callable[[dict[str, float]], None] | None,
) -> EPFit:
    table = site_table(problem.gamma / problem.pairs.n_pairs, power)
    tied = 0

    def sweep(q: NaturalGaussian) -> Sweep:
        nonlocal tied
        sums = sweep_sums(space, q, problem.pairs, table, map_tiles)
        tied = sums.tied
        precision = sums.precision
        precision[np.diag_indices(q.mean.size)] += 1.0
        new = natural_gaussian(precision, sums.shift)
        risk = float(sums.wrong / problem.pairs.n_pairs)
        log_evidence = np.nan if new is None else float(sums.log_constant + new.log_partition())
        record = {"log_evidence": log_evidence, "expected_risk": risk}
        return Sweep(precision, sums.shift, -problem.gamma * risk - q.divergence, record)

    with tile_map(problem.pairs.n_pairs, min(problem.n, problem.d), threads) as map_tiles:
        space = coordinates(problem)
        solution = solve_fixed_point(
            sweep,
            _start(space, start),
            scale_free=problem.scale_free,
            tolerance=tolerance,
            max_sweeps=max_sweeps,
            callback=callback,
        )
    last = solution.history[-1]
    if not solution.converged:
        warnings.warn(
            f"EP did not converge in {len(solution.history)} sweeps (last relative change {last['change']:.2g}, "
            f"tolerance {tolerance:g}). Raise max_sweeps, lower gamma, or check the result against tempering SMC.",
            ConvergenceWarning,
            stacklevel=3,
        )
    return EPFit(
        problem=problem,
        posterior=GaussianPosterior(space, solution.q),
        table=table,
        log_evidence=last["log_evidence"],
        expected_risk=last["expected_risk"],
        converged=solution.converged,
        history=solution.history,
        interventions=solution.interventions,
        tied_pairs=tied,
    )


def _start(space: Coordinates, start: EPFit | None) -> NaturalGaussian:
    """The prior, or an earlier fit in the present coordinates."""
    k = space.dimension
    prior = NaturalGaussian(np.eye(k), np.zeros(k), np.eye(k), np.zeros(k))
    if start is None:
        return prior
    if start.problem.d != space.problem.d:
        raise ValueError(f"start has {start.problem.d} coefficients, the problem has {space.problem.d}.")
    old = start.posterior.coordinates
    same = old.problem.X is space.problem.X and old.problem.prior_factor is space.problem.prior_factor
    if same and old.problem.prior_mean is space.problem.prior_mean:
        return start.posterior.natural
    to_u = np.eye(space.problem.d) if space.rotation is None else space.rotation
    factor = space.problem.prior_factor
    to_u = to_u / factor if factor.ndim == 1 else linalg.solve_triangular(factor, to_u.T, lower=True, trans="T").T
    mean, covariance = old.moments_of(to_u, start.posterior.natural)
    precision = linalg.inv(0.5 * (covariance + covariance.T))
    shift = precision @ (mean - to_u @ space.problem.prior_mean)
    return natural_gaussian(0.5 * (precision + precision.T), shift) or prior
