"""EP sites of priors of single coefficients: matching one site, the Gaussian they make, and EP's fixed point.

*One site* (:func:`match`). The prior of a coefficient w is a mixture of components N(a_j, v_j) with weights p_j, in
units of the Gaussian prior: spike and slab, or, with v_j = 0, the nodes of a quadrature of any density. The cavity is
exp(-tau w^2 / 2 + nu w). Component j of cavity times prior has mean and variance

    (a_j + v_j nu) / (1 + v_j tau),    v_j / (1 + v_j tau),

and mass p_j (1 + v_j tau)^(-1/2) exp((v_j nu^2 + 2 a_j nu - tau a_j^2) / (2 (1 + v_j tau))). With M, W the mean and
variance of this mixture, the site exp(-u w^2 / 2 + h w) has u = 1 / W - tau and h = M / W - nu. Cavities need not be
densities, as long as their product with the prior is. u is negative where components are likely and far apart, and is
not clipped: clipping would be more stable, but converge to another fixed point, whose evidence is wrong. The share of
the slab in the mixture is the inclusion probability; it needs no site of its own.

*The Gaussian* (:func:`sparse_gaussian`) of d coefficients,

    Q = diag(u) + A' P A,     Q m = h + A' r,

with the prior sites (u, h), (d,), and the sums (P, r), (k, k) and (k,), of the pair sites in the k <= n combinations
A w that reach the scores (A has orthonormal rows, (k, d); None: the identity, when d <= n). Precisions u range from
slightly negative to huge (at a Dirac spike), so no formula divides by a number that may vanish, or subtracts two huge
ones. Precisions below ``FLOOR`` are split, u = 1 + (u - 1): the second part joins P, and its coefficient the rows of A.
What remains, S = diag(1 / base), is positive; with S^(1/2) A' = E F' (QR),

    B = I + F' P F = L L',      Q^-1 = S^(1/2) (I + E (B^-1 - I) E') S^(1/2),

in O(k^2 d + k^3). The cavity of a coefficient has precision tau = H / (1 - H / base), H the diagonal entry of
A' (P^-1 + A S A')^-1 A, and shift nu = e + tau m with the residual e = A'(r - P A m): accurate when u is much larger.

*The fixed point* (:func:`solve_sites`). A sweep sums the pair sites given q, in O(n+ n- k + n k^2), and matches the d
prior sites; all move together, by damped and then mixed steps (:mod:`~pymc_pacauc.ep.loop`). A step to where there is
no Gaussian, or where a cavity times its prior cannot be normalised, is halved. What does not converge is tried once
more from the start, with mixing from larger changes on.

*Scale.* Where the risk does not depend on the length of the coefficients, P and r are known up to factors exp(2 l) and
exp(l). The pair sites satisfy r'm = tr P (V + mm') given q, hence at EP's fixed point

    sum_k u_k E[w_k^2] - h_k E[w_k] = d,

and each sweep moves l towards that; else all coefficients may slide into their spikes.

Used by plans whose ``prior`` is not "gaussian". A new prior is a :class:`~pymc_pacauc.problem.problem.PriorSites`.

References: Ridgway, Alquier, Chopin & Liang (2014), arXiv:1410.1771, section 3.4 and appendix; Hernández-Lobato,
Hernández-Lobato & Suárez (2015), doi:10.1007/s10994-014-5475-7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp, log
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from pymc_pacauc.ep.loop import Iteration, Pace, Policy, Solution, possible, solve_fixed_point
from pymc_pacauc.ep.sites import SiteTable
from pymc_pacauc.ep.sweep import ScoreMoments, SiteSums, sum_sites
from pymc_pacauc.numerics import FloatArray, kernel
from pymc_pacauc.problem.problem import PriorSites, Problem, Spikes

NOTHING = 30.0  # nats below the largest mass at which the mass at the ends of a table is negligible
NARROWEST = 1e-10  # variance of a coefficient that is certainly at a Dirac spike


@dataclass(frozen=True, eq=False)
class MatchedSites:
    """Sites given their cavities, each attribute of shape (d,).

    Attributes
    ----------
    precision, shift
        u and h.
    log_constant
        log C, such that C exp(-u w^2 / 2 + h w) has the prior's integral under the cavity, up to (2 pi)^(1/2).
    narrowest
        Where W is limited to ``NARROWEST``: the coefficient is certainly at a Dirac spike.
    inclusion
        Share of the last component: the probability of the slab; one for priors that have no spike.
    """

    precision: FloatArray
    shift: FloatArray
    log_constant: FloatArray
    narrowest: NDArray[np.bool_]
    inclusion: FloatArray

    @property
    def proper(self) -> bool:
        """Whether every cavity times its prior can be normalised."""
        return bool(np.isfinite(self.log_constant).all())

    def rescaling(self, q: SparseGaussian) -> float:
        """Compute the step of l; see the module docstring: the excess over d per coefficient that is not at a spike."""
        precision = q.cavity_precision + self.precision
        mean = (q.cavity_shift + self.shift) / precision
        second = 1.0 / precision + mean**2
        excess = np.sum(self.precision * second - self.shift * mean - 1.0)
        free = 1e-3 + np.sum(np.minimum(1.0, second))
        return float(np.clip(0.5 * excess / free, -LARGEST_RESCALING, LARGEST_RESCALING))


@np.errstate(under="ignore")
def matched_sites(tau: FloatArray, nu: FloatArray, prior: PriorSites) -> MatchedSites:
    """Match the site of each coefficient to the moments of its cavity times prior; ``tau`` and ``nu`` are (d,)."""
    components = prior.log_weight, prior.centre, prior.variance, prior.first, prior.last
    log_z, mean, precision, share = _match(tau, nu, prior.floor, prior.opened, *components)
    return MatchedSites(
        precision=precision - tau,
        shift=mean * precision - nu,
        log_constant=log_z + 0.5 * np.log(precision) - 0.5 * mean**2 * precision,
        narrowest=precision >= 1.0 / NARROWEST,
        inclusion=share if isinstance(prior, Spikes) else np.ones(tau.size),
    )


@kernel
def _log_mass(tau, nu, log_weight, centre, variance):
    """Compute the log mass of a component under the cavity; see the module docstring."""
    if variance == 0.0:
        return log_weight + centre * (nu - 0.5 * tau * centre)
    width = 1.0 + variance * tau
    exponent = (variance * nu * nu + 2.0 * centre * nu - tau * centre * centre) / width
    return log_weight + 0.5 * (exponent - log(width))


@kernel
def relevant(tau, nu, log_weight, centre, variance, first, last):
    """Return the range of components to use: all, except under a cavity of negative precision.

    Such a cavity is least at nu / tau and grows without bound on both sides: nodes of a density on the other side of
    nu / tau than its mass are left out.
    """
    if tau >= 0.0 or variance[first] > 0.0 or variance[last - 1] > 0.0:
        return first, last
    turn, heaviest = nu / tau, first + np.argmax(log_weight[first:last])
    if centre[heaviest] < turn:
        while centre[last - 1] > turn:
            last -= 1
    else:
        while centre[first] < turn:
            first += 1
    return first, last


@kernel
def _match(tau, nu, floor, opened, log_weight, centre, variance, first, last):
    """Compute log Z, M, 1 / W and the share of the last component, each (d,); see the module docstring.

    NaN where cavity times prior cannot be normalised: where the cavity is too wide for a normal component, or a table
    is not negligible at an unbounded end.
    """
    found = np.full((4, tau.size), np.nan)
    for k in range(tau.size):
        start, end = relevant(tau[k], nu[k], log_weight, centre, variance, first[k], last[k])
        normal = variance[start] > 0.0 or variance[end - 1] > 0.0
        if tau[k] <= floor[k] and normal:
            continue
        log_mass = np.empty(end - start)
        for j in range(start, end):
            log_mass[j - start] = _log_mass(tau[k], nu[k], log_weight[j], centre[j], variance[j])
        top = log_mass.max()
        low_open, high_open = opened[k, 0] or start > first[k], opened[k, 1] or end < last[k]
        low, high = low_open and log_mass[0] > top - NOTHING, high_open and log_mass[-1] > top - NOTHING
        if tau[k] <= floor[k] and (low or high):
            continue
        total, mean, square, mass = 0.0, 0.0, 0.0, 0.0
        for j in range(start, end):
            mass = exp(log_mass[j - start] - top)
            width = 1.0 + variance[j] * tau[k]
            if mass > 0.0:  # Welford's update, without cancellation where the mean is far from zero
                apart = (centre[j] + variance[j] * nu[k]) / width - mean
                square += mass * variance[j] / width + apart * apart * mass * total / (total + mass)
                total += mass
                mean += apart * mass / total
        found[:, k] = top + log(total), mean, 1.0 / max(square / total, NARROWEST), mass / total
    return found


FLOOR = 0.1  # site precisions below this join the pair sites; the slab's is 1


@dataclass(frozen=True, eq=False)
class SparseGaussian:
    """The Gaussian of the module docstring, in coefficients whose slab has variance one.

    Attributes
    ----------
    precision, shift
        P and r.
    site_precision, site_shift
        u and h.
    mean
        m, shape (d,).
    reduced_mean, reduced_root
        Mean of A w, and a root of its covariance.
    cavity_precision, cavity_shift
        tau and nu of every coefficient.
    scale, basis, factor
        S^(1/2), E and L.
    """

    precision: FloatArray
    shift: FloatArray
    site_precision: FloatArray
    site_shift: FloatArray
    mean: FloatArray
    reduced_mean: FloatArray
    reduced_root: FloatArray
    cavity_precision: FloatArray
    cavity_shift: FloatArray
    scale: FloatArray
    basis: FloatArray
    factor: FloatArray

    @property
    def variance(self) -> FloatArray:
        """Marginal variances."""
        return 1.0 / (self.cavity_precision + self.site_precision)

    def matched(self, prior: PriorSites) -> MatchedSites:
        """Match the sites of a prior to the cavities of this Gaussian."""
        return matched_sites(self.cavity_precision, self.cavity_shift, prior)

    def moved(self, step: FloatArray, rotation: FloatArray | None) -> SparseGaussian | None:
        """Return the Gaussian after a step of P, r, u and h; None where that is not a Gaussian."""
        matrix, shift, u, h = self._parts(step)
        precision = self.precision + 0.5 * (matrix + matrix.T)
        return sparse_gaussian(precision, self.shift + shift, self.site_precision + u, self.site_shift + h, rotation)

    def in_units(self, step: FloatArray) -> FloatArray:
        """Return a step in units of q: the square of its norm is that of the metric of :mod:`pymc_pacauc.ep.loop`."""
        matrix, shift, u, h = self._parts(step)
        root, sd = self.reduced_root, np.sqrt(self.variance)
        along = (root.T @ matrix @ root).ravel() / np.sqrt(2.0)
        return np.concatenate([along, root.T @ shift, u * self.variance / np.sqrt(2.0), h * sd])

    def _parts(self, step: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Split a step into those of P (k, k), r (k,), u and h (d,)."""
        k = self.shift.size
        matrix, shift, u, h = np.split(step, np.cumsum([k * k, k, self.mean.size]))
        return matrix.reshape(k, k), shift, u, h

    def covariance(self) -> FloatArray:
        inner = linalg.cho_solve((self.factor, True), np.eye(len(self.factor)))
        inner = np.eye(self.mean.size) + self.basis @ (inner - np.eye(len(inner))) @ self.basis.T
        return inner * np.outer(self.scale, self.scale)

    def spread_of(self, rows: FloatArray, *, variances: bool = False) -> FloatArray:
        """Compute the covariance (or variances) of ``rows @ w``, rows of shape (m, d), without that of w."""
        scaled = rows * self.scale
        inside = scaled @ self.basis
        root = linalg.solve_triangular(self.factor, inside.T, lower=True, check_finite=False).T

        def square(a: FloatArray) -> FloatArray:
            return np.asarray(np.einsum("ij,ij->i", a, a) if variances else a @ a.T)

        return square(root) + (square(scaled) - square(inside))

    def draw(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Independent draws, shape (draws, d)."""
        noise = rng.standard_normal((len(self.factor), draws))
        inside = linalg.solve_triangular(self.factor, noise, lower=True, trans="T").T
        free = rng.standard_normal((draws, self.mean.size))
        return self.mean + (free + (inside - free @ self.basis) @ self.basis.T) * self.scale

    def log_partition(self) -> float:
        """Compute the log of the integral of exp(-w'Qw/2 + (h + A'r)'w), without log (2 pi)^(d/2)."""
        half_log_det = np.log(np.diagonal(self.factor)).sum() - np.log(self.scale).sum()
        return float(0.5 * (self.site_shift @ self.mean + self.shift @ self.reduced_mean) - half_log_det)


def sparse_gaussian(
    precision: FloatArray,
    shift: FloatArray,
    site_precision: FloatArray,
    site_shift: FloatArray,
    rotation: FloatArray | None,
) -> SparseGaussian | None:
    """Factorise the Gaussian; None when the precision is not positive definite, or marginal variances are not positive.

    ``rotation`` is A, None standing for the identity.
    """
    u, h = site_precision, site_shift
    low = u < FLOOR
    base = np.where(low, 1.0, u)
    scale = base**-0.5
    deficit = np.where(low, u - 1.0, 0.0)
    identity = np.eye(u.size)
    rows = np.vstack([identity if rotation is None else rotation, identity[low]])
    weights, r = linalg.block_diag(precision, np.diag(deficit[low])), np.append(shift, np.zeros(low.sum()))
    basis, upper = linalg.qr(scale[:, None] * rows.T, mode="economic", check_finite=False)
    left = upper @ weights
    inner = np.eye(len(upper)) + left @ upper.T
    try:
        factor = np.linalg.cholesky(0.5 * (inner + inner.T))
    except np.linalg.LinAlgError:
        return None
    whitened = linalg.solve_triangular(factor, left, lower=True, check_finite=False)
    solved = linalg.cho_solve((factor, True), basis.T @ (scale * h) + upper @ r, check_finite=False)
    root = linalg.solve_triangular(factor, np.eye(len(factor)), lower=True, check_finite=False).T
    reduced_mean = upper.T @ solved
    seen = np.einsum("ij,ij->j", rows, (weights - whitened.T @ whitened) @ rows)
    residual = rows.T @ (r - weights @ reduced_mean)
    mean = (h + residual) / base
    with np.errstate(divide="ignore", invalid="ignore"):
        cavity_precision = seen / (1.0 - seen / base) - deficit
    if not (np.isfinite(mean).all() and np.isfinite(cavity_precision).all() and (cavity_precision + u > 0.0).all()):
        return None
    k = len(shift)
    return SparseGaussian(
        precision=precision,
        shift=shift,
        site_precision=u,
        site_shift=h,
        mean=mean,
        reduced_mean=reduced_mean[:k],
        reduced_root=np.ascontiguousarray(upper.T[:k] @ root),
        cavity_precision=cavity_precision,
        cavity_shift=residual + deficit * mean + cavity_precision * mean,
        scale=scale,
        basis=basis,
        factor=np.asarray(factor, dtype=np.float64),
    )


# All sites together. Chosen among some 25 variants on 59 hard fits (Pima, SPECT, correlated columns, few positives), of
# which 4 do not converge; with least_damping=0.1 and damping_factor=0.7, 9; without the rescaling, 10. Not confirmed on
# other data.
POLICY = Policy(damping=0.5, least_damping=0.02, damping_factor=0.5, mixed_below=0.03, halvings=10)
# Where that has not converged in half of the sweeps: where classes are separated and spikes are Dirac's, the scale of q
# may oscillate for ever, and mixing from larger changes on ends that.
POLICIES = (POLICY, replace(POLICY, mixed_below=0.3))
LARGEST_RESCALING = 0.25  # of l in one sweep; 0.1: fits of 12 per thousand included do not converge


@dataclass(frozen=True, eq=False)
class SparseSweep:
    """Steps of all sites from a point q, and quantities of q.

    ``step`` is the concatenation of the steps of P (k, k), r (k,), u and h (d,); ``change`` its norm in q's own
    standard deviations, root mean square over coefficients.
    """

    step: FloatArray
    change: float
    log_evidence: float
    expected_risk: float
    tied: int
    model_size: float

    bound, final = 0.0, True  # no bound is known for these priors

    @property
    def record(self) -> dict[str, float]:
        return {
            "log_evidence": possible(self.log_evidence),
            "expected_risk": self.expected_risk,
            "expected_model_size": self.model_size,
        }


def solve_sites(
    problem: Problem,
    start: SparseGaussian,
    map_tiles: Callable[..., Any],
    *,
    tolerance: float,
    max_sweeps: int,
    callback: Callable[[dict[str, float]], None] | None = None,
    counted: int = 0,
) -> Solution[SparseGaussian, SparseSweep]:
    """Iterate all sites together to EP's fixed point.

    ``counted`` is the number of sweeps made before, from which records are numbered on.
    """
    assert problem.sites is not None
    prior, table = problem.sites, SiteTable(problem.gamma_per_pair)

    def sweep(q: SparseGaussian, pace: Pace) -> SparseSweep:
        pairs, sites = pair_sums(problem, q, table, map_tiles), q.matched(prior)
        precision, shift = pairs.precision - q.precision, pairs.shift - q.shift
        u, h = sites.precision - q.site_precision, sites.shift - q.site_shift
        # Log integral of the product of the new sites, to first order about q; exact at the fixed point.
        integral = (
            q.log_partition()
            + shift @ q.reduced_mean
            - 0.5 * np.sum(q.reduced_root * (precision @ q.reduced_root))
            - 0.5 * q.reduced_mean @ precision @ q.reduced_mean
            + np.sum(h * q.mean - 0.5 * u * (q.variance + q.mean**2))
        )
        scale = np.exp(sites.rescaling(q)) if problem.scale_free else 1.0
        scaled = (scale**2 * pairs.precision - q.precision).ravel(), scale * pairs.shift - q.shift
        step = np.concatenate([*scaled, u, h])
        return SparseSweep(
            step=step,
            change=float(np.linalg.norm(q.in_units(step)) / np.sqrt(problem.d)),
            log_evidence=float(pairs.log_constant + sites.log_constant.sum() + integral),
            expected_risk=float(pairs.wrong / problem.pairs.total_weight),
            tied=pairs.tied,
            model_size=float(sites.inclusion.sum()),
        )

    def move(q: SparseGaussian, seen: SparseSweep, step: FloatArray) -> SparseGaussian | None:
        moved = q.moved(step, problem.scores.reduced.rotation)
        return moved if moved is not None and moved.matched(prior).proper else None

    iteration = Iteration(
        sweep,
        plain=lambda q, seen, damping: (damping * seen.step, 0),
        flat=lambda q: np.concatenate([q.precision.ravel(), q.shift, q.site_precision, q.site_shift]),
        metric=lambda q, seen: q.in_units,
        move=move,
    )
    history: tuple[dict[str, float], ...] = ()
    limits = (min(max_sweeps, max(50, max_sweeps // 2)), max_sweeps)
    for policy, limit in zip(POLICIES, limits, strict=True):
        options = {"tolerance": tolerance, "max_sweeps": limit - len(history), "counted": counted + len(history)}
        found = solve_fixed_point(iteration, start, policy, callback=callback, **options)
        history += found.history
        if found.converged or found.interrupted or len(history) >= max_sweeps:
            break
    return replace(found, history=history)


def pair_sums(problem: Problem, q: SparseGaussian, table: SiteTable, map_tiles: Callable[..., Any]) -> SiteSums:
    """Sum the sites of the problem's pairs under q."""
    space = problem.scores.reduced
    root = space.design @ q.reduced_root  # (n, k)
    moments = ScoreMoments(space.design @ q.reduced_mean + space.offset, root, np.einsum("ij,ij->i", root, root))
    return sum_sites(
        space.design, space.offset, moments, problem.pairs, table, tie_cost=problem.tie_cost, map_tiles=map_tiles
    )
