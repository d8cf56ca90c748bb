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

with the prior sites (u, h), (d,), and the sums (P, r), (k, k) and (k,), of the pair sites in the k <= n combinations A
w that reach the scores (A has orthonormal rows, (k, d); the identity where all coefficients do). Precisions u range
from slightly negative to huge (at a Dirac spike), so no formula divides by a number that may vanish, or subtracts two
huge ones. Precisions below ``FLOOR`` are split, u = 1 + (u - 1): the second part joins P, and its coefficient the rows
of A. What remains, S = diag(1 / base), is positive; with S^(1/2) A' = E F' (QR),

    B = I + F' P F = L L',      Q^-1 = S^(1/2) (I + E (B^-1 - I) E') S^(1/2),

in O(k^2 d + k^3). The cavity of a coefficient has precision tau = H / (1 - H / base), H the diagonal entry of
A' (P^-1 + A S A')^-1 A, and shift nu = e + tau m with the residual e = A'(r - P A m): accurate when u is much larger.

*Their fixed point* (:func:`settle`) given the pair sites, by sequential EP, without a pass over pairs.
Sites are matched one coefficient after the other, because two correlated coefficients with negative u that widen at the
same time can leave no Gaussian. With S = diag(1 / u) and a the column of A of a coefficient, in

    H = (P^-1 + A S A')^-1,     c = A S (A'r + h)

without this coefficient, its cavity has tau = a'Ha and nu = a'(r - Hc); changing its site is a rank-one update of H.
P, which is singular along constant scores, is not inverted. A pass costs O(d k^2), plus O(d k) for each site that
changes by more than ``NEGLIGIBLE`` or ``DEFERRED``.

*Scale.* Where the risk does not depend on the length of the coefficients, P and r are known up to factors exp(2 l) and
exp(l). The pair sites satisfy r'm = tr P (V + mm') given q, hence at EP's fixed point

    sum_k u_k E[w_k^2] - h_k E[w_k] = d,

and each pass moves l towards that.

*EP's fixed point* (:func:`solve_sparse`). An outer iteration sums the pair sites given q, (k, k) and (k,), in
O(n+ n- k + n k^2), with damped and then mixed steps (:mod:`~pymc_pacauc.ep.loop`); after each step the prior sites are
brought to their own fixed point. If that fails, the step is halved. If the outer iteration does not converge, short
steps of all sites together are tried (of 60 fits, some of them hard, 36 converge by the first way and 14 more by the
second). The limit on sweeps and passes is for both.

Used by plans whose ``prior`` is not "gaussian". A new prior is a :class:`~pymc_pacauc.problem.problem.PriorSites`.

References: Ridgway, Alquier, Chopin & Liang (2014), arXiv:1410.1771, section 3.4 and appendix; Hernández-Lobato,
Hernández-Lobato & Suárez (2015), doi:10.1007/s10994-014-5475-7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from math import exp, log
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from pymc_pacauc.ep.loop import Interventions, Iteration, Pace, Policy, Solution, gain, possible, solve_fixed_point
from pymc_pacauc.ep.plan import ACCURACIES, MAX_SWEEPS
from pymc_pacauc.ep.posterior import Moments
from pymc_pacauc.ep.sites import SiteTable
from pymc_pacauc.ep.sweep import sweep_sums
from pymc_pacauc.numerics import FloatArray, kernel
from pymc_pacauc.problem.problem import PriorSites, Problem, Spikes

NOTHING = 30.0  # nats below the largest mass at which mass at the ends of a table is negligible; doubled, no effect
NARROWEST = 1e-10  # variance of a coefficient that is certainly at a Dirac spike; doubled, no effect (DNA)


@dataclass(frozen=True, eq=False)
class MatchedSites:
    """Sites given their cavities, each attribute of shape (d,).

    Attributes
    ----------
    precision, shift : ndarray
        u and h.
    log_constant : ndarray
        log C, such that C exp(-u w^2 / 2 + h w) has the prior's integral under the cavity, up to (2 pi)^(1/2).
    narrowest : ndarray of bool
        Where W is limited to ``NARROWEST``: the coefficient is certainly at a Dirac spike.
    inclusion : ndarray
        Share of the last component: the probability of the slab; one for priors that have no spike.
    """

    precision: FloatArray
    shift: FloatArray
    log_constant: FloatArray
    narrowest: NDArray[np.bool_]
    inclusion: FloatArray


@np.errstate(under="ignore")
def matched_sites(tau: FloatArray, nu: FloatArray, prior: PriorSites) -> MatchedSites:
    """Match the site of each coefficient to the moments of its cavity times prior; ``tau`` and ``nu`` are (d,)."""
    log_z, mean, precision, share = _match_all(tau, nu, *components(prior))
    return MatchedSites(
        precision=precision - tau,
        shift=mean * precision - nu,
        log_constant=log_z + 0.5 * np.log(precision) - 0.5 * mean**2 * precision,
        narrowest=precision >= 1.0 / NARROWEST,
        inclusion=share if isinstance(prior, Spikes) else np.ones(tau.size),
    )


def components(prior: PriorSites) -> tuple[Any, ...]:
    """Return the attributes of priors in the order that kernels take them."""
    return prior.floor, prior.opened, prior.log_weight, prior.centre, prior.variance, prior.first, prior.last


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
def match(tau, nu, floor, opened, log_weight, centre, variance, first, last):
    """Compute log Z, M, 1 / W and the share of the last component for one coefficient; see the module docstring.

    NaN where cavity times prior cannot be normalised: where the cavity is too wide for a normal component, or a table
    is not negligible at an unbounded end.
    """
    nothing = np.nan, np.nan, np.nan, np.nan
    if tau <= floor and (variance[first] > 0.0 or variance[last - 1] > 0.0):
        return nothing
    start, end = relevant(tau, nu, log_weight, centre, variance, first, last)
    log_mass = np.empty(end - start)
    for j in range(start, end):
        log_mass[j - start] = _log_mass(tau, nu, log_weight[j], centre[j], variance[j])
    top = log_mass.max()
    if tau <= floor:
        low, high = opened[0] or start > first, opened[1] or end < last
        if (low and log_mass[0] >= top - NOTHING) or (high and log_mass[-1] >= top - NOTHING):
            return nothing
    total, mean, square, mass = 0.0, 0.0, 0.0, 0.0
    for j in range(start, end):
        mass = exp(log_mass[j - start] - top)
        width = 1.0 + variance[j] * tau
        at, within = (centre[j] + variance[j] * nu) / width, variance[j] / width
        new = total + mass
        if new > 0.0:  # Welford's update, without cancellation where the mean is far from zero
            apart = at - mean
            mean += apart * mass / new
            square += mass * within + apart * apart * mass * total / new
            total = new
    return top + log(total), mean, 1.0 / max(square / total, NARROWEST), mass / total


@kernel
def _match_all(tau, nu, floor, opened, log_weight, centre, variance, first, last):
    found = np.empty((4, tau.size))
    for k in range(tau.size):
        found[:, k] = match(tau[k], nu[k], floor[k], opened[k], log_weight, centre, variance, first[k], last[k])
    return found


FLOOR = 0.1  # site precisions below this join the pair sites; the slab's is 1; doubled or halved, no effect (DNA)


@dataclass(frozen=True, eq=False)
class SparseGaussian:
    """The Gaussian of the module docstring, in coefficients whose slab has variance one.

    Attributes
    ----------
    precision, shift : ndarray
        P and r.
    site_precision, site_shift : ndarray
        u and h.
    rotation : ndarray or None
        A.
    mean : ndarray
        m, shape (d,).
    reduced : Moments
        Mean and covariance of A w.
    cavity_precision, cavity_shift : ndarray
        tau and nu of every coefficient.
    scale, basis, factor : ndarray
        S^(1/2), E and L.
    """

    precision: FloatArray
    shift: FloatArray
    site_precision: FloatArray
    site_shift: FloatArray
    rotation: FloatArray
    mean: FloatArray
    reduced: Moments
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

    def proper(self, prior: PriorSites) -> bool:
        """Whether every cavity times its prior can be normalised."""
        wide = (self.cavity_precision <= prior.floor).any()
        return not wide or bool(np.isfinite(self.matched(prior).log_constant).all())

    def moved(self, step: FloatArray) -> SparseGaussian | None:
        """Return the Gaussian after a step of P and r, or of P, r, u and h; None where that is not a Gaussian."""
        matrix, shift, u, h = self._parts(step)
        precision = self.precision + 0.5 * (matrix + matrix.T)
        sites = self.site_precision + u, self.site_shift + h
        return sparse_gaussian(precision, self.shift + shift, *sites, self.rotation)

    def in_units(self, step: FloatArray) -> FloatArray:
        """Return a step in units of q: the square of its norm is that of the metric of :mod:`pymc_pacauc.ep.loop`."""
        matrix, shift, u, h = self._parts(step)
        root, sd = self.reduced.root, np.sqrt(self.variance)
        along = (root.T @ matrix @ root).ravel() / np.sqrt(2.0)
        return np.concatenate([along, root.T @ shift, u * self.variance / np.sqrt(2.0), h * sd])

    def _parts(self, step: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Split a step into those of P (k, k), r (k,), u and h (d,); the last two are zero where there are none."""
        k, d = self.shift.size, self.mean.size
        matrix, shift, u, h = np.split(step, np.cumsum([k * k, k, d]))
        zero = np.zeros(d)
        return matrix.reshape(k, k), shift, u if u.size else zero, h if h.size else zero

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
        """Draw independently, shape (draws, d)."""
        noise = rng.standard_normal((len(self.factor), draws))
        w = linalg.solve_triangular(self.factor, noise, lower=True, trans="T").T @ self.basis.T
        if self.basis.shape[1] < self.mean.size:
            free = rng.standard_normal((draws, self.mean.size))
            w += free - (free @ self.basis) @ self.basis.T
        return self.mean + w * self.scale

    def log_partition(self) -> float:
        """Compute the log of the integral of exp(-w'Qw/2 + (h + A'r)'w), without log (2 pi)^(d/2)."""
        half_log_det = np.log(np.diagonal(self.factor)).sum() - np.log(self.scale).sum()
        return float(0.5 * (self.site_shift @ self.mean + self.shift @ self.reduced.mean) - half_log_det)


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
    u, h, k = site_precision, site_shift, len(shift)
    low = u < FLOOR
    base = np.where(low, 1.0, u)
    scale = base**-0.5
    deficit = np.where(low, u - 1.0, 0.0)
    identity = np.eye(u.size)
    rotation = identity if rotation is None else rotation
    rows = np.vstack([rotation, identity[low]])
    weights, r = linalg.block_diag(precision, np.diag(deficit[low])), np.append(shift, np.zeros(low.sum()))
    basis, upper = linalg.qr(scale[:, None] * rows.T, mode="economic", check_finite=False)
    left = upper @ weights  # F' P
    inner = np.eye(len(upper)) + left @ upper.T
    try:
        factor = np.linalg.cholesky(0.5 * (inner + inner.T))
    except np.linalg.LinAlgError:
        return None
    whitened = linalg.solve_triangular(factor, left, lower=True, check_finite=False)
    solved = linalg.cho_solve((factor, True), basis.T @ (scale * h) + upper @ r, check_finite=False)
    root = linalg.solve_triangular(factor, np.eye(len(factor)), lower=True, check_finite=False).T
    mean_of_rows = upper.T @ solved
    seen = np.einsum("ij,ij->j", rows, (weights - whitened.T @ whitened) @ rows)
    residual = rows.T @ (r - weights @ mean_of_rows)
    mean = (h + residual) / base
    with np.errstate(divide="ignore", invalid="ignore"):
        cavity_precision = seen / (1.0 - seen / base) - deficit
    if not (np.isfinite(mean).all() and np.isfinite(cavity_precision).all() and (cavity_precision + u > 0.0).all()):
        return None
    return SparseGaussian(
        precision=precision,
        shift=shift,
        site_precision=u,
        site_shift=h,
        rotation=rotation,
        mean=mean,
        reduced=Moments(mean_of_rows[:k], np.ascontiguousarray(upper.T[:k] @ root)),
        cavity_precision=cavity_precision,
        cavity_shift=residual + deficit * mean + cavity_precision * mean,
        scale=scale,
        basis=basis,
        factor=np.asarray(factor, dtype=np.float64),
    )


PASSES = Policy(  # over the prior sites
    damping=0.5,
    least_damping=0.1,
    damping_factor=0.8,
    plain_after_restart=5,
    mixed_below=0.05,
    patience=50,
    halvings=3,
    restarts_when_halved=True,
)
# Largest step of l, the log of the scale, in a pass. Doubled, spikes on DNA take 0.94 of the time; it guards others
LARGEST_RESCALING = 0.25
# Precisions of sites nearer to zero, either sign, are replaced by this one in divisions; doubled, no effect (DNA)
SMALLEST_PRECISION = 1e-8
# Relative changes of H by a site below which H is updated in the next pass: of rounding (doubled, no effect), and with
# more coefficients than rows (500 x 2000: as many passes, each quicker; doubled, the same).
NEGLIGIBLE, DEFERRED = 1e-13, 1e-3
MOVES_AT_ONCE = 64  # changes that are added to H at once; twice or half as many take about as long (spikes on DNA)


@dataclass(frozen=True, eq=False)
class SparsePoint:
    """q, the tolerance to which its prior sites have converged, the passes this took, and counted interventions."""

    q: SparseGaussian
    settled: float
    passes: int = 0
    acted: Interventions = field(default_factory=Interventions)


@dataclass(frozen=True, eq=False)
class _Pass:
    """A pass over the prior sites from a point (u, h, l): the point after it, and cavity precisions, shape (d,)."""

    led_to: FloatArray
    cavity_precision: FloatArray
    change: float
    reset: int
    clipped: bool

    bound = 0.0

    @property
    def final(self) -> bool:
        return not self.reset

    @property
    def record(self) -> dict[str, float]:
        return {"reset": self.reset, "clipped": self.clipped}


def settle(problem: Problem, q: SparseGaussian, tolerance: float) -> SparsePoint | None:
    """Bring the prior sites of q, and its scale where that is free, to their fixed point given the pair sites.

    None where they do not converge.
    """
    prior, d = problem.sites, q.mean.size
    assert prior is not None
    rotation, of_prior = problem.scores.reduced.rotation, components(prior)
    columns, deferred = np.ascontiguousarray(q.rotation.T), NEGLIGIBLE if rotation is None else DEFERRED

    def sweep(point: FloatArray, pace: Pace) -> _Pass:
        u, h, scale, tau = point[:d].copy(), point[d:-1].copy(), np.exp(point[-1]), np.empty(d)
        shift = q.shift * scale
        H, c = _others(q.precision * scale**2, shift, u, h, rotation)
        order = np.random.default_rng(pace.turn).permutation(d)  # in which coefficients are visited
        visited = columns[order]
        HA = H[order] if rotation is None else visited @ H  # rows a'H
        squared, reset, rescaling = _pass(HA, c, shift, visited, u, h, tau, of_prior, order, pace.damping, deferred)
        rescaling = rescaling if problem.scale_free else 0.0
        clipped = float(np.clip(rescaling, -LARGEST_RESCALING, LARGEST_RESCALING))
        led_to = np.concatenate([u, h, [point[-1] + pace.damping * clipped]])
        squared += clipped**2  # negative where q is not a density along a coefficient: the change is then undefined
        change = float(np.sqrt(squared / d)) if squared >= 0.0 else np.nan
        return _Pass(led_to, tau, change, reset, clipped != rescaling)

    def metric(point: FloatArray, seen: _Pass) -> Callable[[FloatArray], FloatArray]:
        variance = 1.0 / (seen.cavity_precision + point[:d])
        return partial(np.multiply, np.concatenate([variance, np.sqrt(variance), [1.0]]))

    def move(point: FloatArray, seen: _Pass, step: FloatArray) -> FloatArray | None:
        tau = seen.cavity_precision
        wide = (tau + point[:d] + step[:d] > 0.1 * (tau + seen.led_to[:d])).all()
        return point + step if wide and abs(step[-1]) < LARGEST_RESCALING else None

    found = solve_fixed_point(
        Iteration(sweep, lambda point, seen, damping: (seen.led_to - point, 0), lambda point: point, metric, move),
        np.concatenate([q.site_precision, q.site_shift, [0.0]]),
        PASSES,
        tolerance=tolerance,
        max_sweeps=MAX_SWEEPS,
    )
    u, h, scale = found.point[:d], found.point[d:-1], np.exp(found.point[-1])
    settled = sparse_gaussian(q.precision * scale**2, q.shift * scale, u, h, q.rotation) if found.converged else None
    if settled is None or not settled.proper(prior):
        return None
    reset, clipped = (sum(int(row[name]) for row in found.history) for name in ("reset", "clipped"))
    acted = Interventions(reset_sites=reset, clipped_rescalings=clipped)
    return SparsePoint(settled, tolerance, len(found.history), acted)


def _others(
    precision: FloatArray, shift: FloatArray, u: FloatArray, h: FloatArray, rotation: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """Compute H, (k, k), and c, (k,), of all coefficients; ``rotation`` is A, None standing for the identity."""
    u[np.abs(u) < SMALLEST_PRECISION] = SMALLEST_PRECISION
    if rotation is None:
        spread, c = precision / u, (shift + h) / u
    else:
        spread, c = precision @ ((rotation / u) @ rotation.T), rotation @ ((shift @ rotation + h) / u)
    H = np.linalg.solve(np.eye(len(precision)) + spread, precision)
    return np.ascontiguousarray(0.5 * (H + H.T)), c


@kernel
def _pass(HA, c, r, columns, u, h, tau, of_prior, order, damping, deferred):
    """Match each site in turn, in place (u, h, c, tau); ``columns`` is A', ``HA`` A'H, both (d, k), in this ``order``.

    Returns the squared change without damping, in units of q; the number of sites that could not be matched and were
    put back to the Gaussian prior; and the step of l: the excess of the sum over d, divided by the number of
    coefficients that are not at a spike.
    """
    floor, opened, log_weight, centre, variance, first, last = of_prior
    change, reset, excess, held = 0.0, 0, 0.0, 1e-3
    moved = 0  # number of rank-one updates of H that are not yet in HA
    moves, along_moves = np.empty(MOVES_AT_ONCE), np.empty((MOVES_AT_ONCE, c.size))
    for place in range(order.size):
        k, a = order[place], columns[place]
        Ha = HA[place] + (moves[:moved] * (along_moves[:moved] @ a)) @ along_moves[:moved]
        seen, along = a @ Ha, a @ r
        without = 1.0 / (u[k] - seen)  # H without k is H + without Ha Ha'
        gain = 1.0 + without * seen
        weight = (along + h[k]) / u[k]  # and c without k is c - weight a
        tau[k] = gain * seen
        nu = along - gain * (Ha @ c - seen * weight)
        _, mean, precision, _ = match(tau[k], nu, floor[k], opened[k], log_weight, centre, variance, first[k], last[k])
        matched = not np.isnan(mean)
        if matched:
            target_u, target_h = precision - tau[k], mean * precision - nu
            new_u, new_h = u[k] + damping * (target_u - u[k]), h[k] + damping * (target_h - h[k])
            excess += target_u * (1.0 / precision + mean * mean) - target_h * mean - 1.0
            held += min(1.0, 1.0 / precision + mean * mean)
        if not matched or new_u + tau[k] <= 0.0:  # the cavity is too wide for a proper marginal
            reset += 1
            new_u, new_h = 1.0 + abs(tau[k]), 0.0
        if abs(new_u) < SMALLEST_PRECISION:
            new_u = SMALLEST_PRECISION
        now = 1.0 / (tau[k] + u[k])
        change += (0.5 * ((new_u - u[k]) * now) ** 2 + (new_h - h[k]) ** 2 * now) / damping**2
        rank_one = without - gain * gain / (new_u + tau[k])
        if abs(rank_one * seen) > deferred:
            moves[moved], along_moves[moved] = rank_one, Ha
            moved += 1
            if moved == MOVES_AT_ONCE:
                HA[place + 1 :] += ((columns[place + 1 :] @ along_moves.T) * moves) @ along_moves
                moved = 0
        c += ((along + new_h) / new_u - weight) * a
        u[k], h[k] = new_u, new_h
    return change, reset, 0.5 * excess / held


SETTLING = Policy(  # steps of the pair sites, after which the prior sites settle
    damping=0.5,
    least_damping=0.05,
    plain_steps=3,
    patience=60,
    halvings=4,
    all_halvings=12,
    restarts_when_halved=True,
)
TOGETHER = Policy(  # short steps of all sites at once
    damping=0.25,
    least_damping=0.25,
    mixed_below=0.05,
    halvings=4,
)
ROUGHLY = ACCURACIES["path"].tolerance  # change at which prior sites have settled at the start, which need not be exact
PASSES_PER_SWEEP = 10  # over the prior sites, on average, at most; doubled or halved, no effect where a fit converges


@dataclass(frozen=True, eq=False)
class SparseSweep:
    """Result of a sweep at q: the step to the sums of the pair sites, with that to the matched prior sites where all
    move together; and quantities of q.

    ``change`` is the root mean square over coefficients, in q's own standard deviations.
    """

    step: FloatArray
    sites: MatchedSites
    change: float
    final: bool
    log_evidence: float
    expected_risk: float
    tied: int

    bound = 0.0  # no bound is known for these priors

    @property
    def record(self) -> dict[str, float]:
        return {
            "log_evidence": possible(self.log_evidence),
            "expected_risk": self.expected_risk,
            "expected_model_size": float(self.sites.inclusion.sum()),
        }


SparseSolution = Solution[SparsePoint, SparseSweep]


def solve_sparse(
    problem: Problem,
    start: SparseGaussian,
    map_tiles: Callable[..., Any],
    *,
    tolerance: float,
    max_sweeps: int,
    callback: Callable[[dict[str, float]], None] | None = None,
    counted: int = 0,
) -> SparseSolution:
    """Solve by the first of two policies that converges; else return the solution with the smaller change.

    ``counted`` is the number of sweeps made before, from which records are numbered on.
    """

    def solved(policy: Policy, point: SparsePoint, done: int) -> SparseSolution:
        together = policy is TOGETHER
        return solve_fixed_point(
            _iteration(problem, map_tiles, tolerance, PASSES_PER_SWEEP * max_sweeps, together=together),
            point,
            policy,
            tolerance=tolerance,
            max_sweeps=max_sweeps - done,
            callback=callback,
            counted=counted + done,
        )

    settled = settle(problem, start, ROUGHLY) or SparsePoint(start, ROUGHLY)
    found = solved(SETTLING, settled, 0)
    history, acted = found.history, found.interventions + found.following.acted
    if not (found.converged or found.interrupted) and len(history) < max_sweeps:
        other = solved(TOGETHER, SparsePoint(start, 0.0), len(history))
        history, acted = history + other.history, acted + other.interventions
        if other.converged or other.interrupted or other.seen.change < found.seen.change:
            found = other
    return replace(found, history=history, interventions=acted)


def _iteration(
    problem: Problem, map_tiles: Callable[..., Any], tolerance: float, most_passes: int, *, together: bool
) -> Iteration[SparsePoint, SparseSweep]:
    """Return EP's map of the pair sites, with prior sites at their fixed point, or of all sites ``together``."""
    assert problem.sites is not None
    prior, table = problem.sites, SiteTable(problem.gamma_per_pair)

    def flat(point: SparsePoint) -> FloatArray:
        q = point.q
        return np.concatenate([q.precision.ravel(), q.shift, *([q.site_precision, q.site_shift] if together else [])])

    def sweep(point: SparsePoint, pace: Pace) -> SparseSweep:
        q = point.q
        pairs, sites = sweep_sums(problem, q.reduced, problem.pairs, table, map_tiles), q.matched(prior)
        sums = [pairs.precision.ravel(), pairs.shift, *([sites.precision, sites.shift] if together else [])]
        step = np.concatenate(sums) - flat(point)
        # Log integral of the product of the new sites, to first order about q; exact at the fixed point.
        integral = q.log_partition() + gain(q.reduced, pairs.precision - q.precision, pairs.shift - q.shift)
        return SparseSweep(
            step=step,
            sites=sites,
            change=float(np.linalg.norm(q.in_units(step)) / np.sqrt(problem.d)),
            final=point.settled <= tolerance,
            log_evidence=float(pairs.log_constant + sites.log_constant.sum() + integral),
            expected_risk=float(pairs.wrong / problem.pairs.total_weight),
            tied=pairs.tied,
        )

    def move(point: SparsePoint, seen: SparseSweep, step: FloatArray) -> SparsePoint | None:
        moved = point.q.moved(step)
        if moved is None or point.passes > most_passes:
            return None
        if together:
            return replace(point, q=moved) if moved.proper(prior) else None
        # To 1/200 of the change of the pair sites: what is left is noise to the mixing
        settled = settle(problem, moved, 0.005 * max(min(seen.change, 0.1), tolerance))
        if settled is None:
            return None
        return replace(settled, passes=point.passes + settled.passes, acted=point.acted + settled.acted)

    return Iteration(
        sweep=sweep,
        plain=lambda point, seen, damping: (damping * seen.step, 0),
        flat=flat,
        metric=lambda point, seen: point.q.in_units,
        move=move,
    )
