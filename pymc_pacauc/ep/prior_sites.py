"""EP sites of priors of single coefficients: matching one site, the Gaussian they make, and their fixed point.

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

*Their fixed point* (:func:`settle_prior_sites`) given the pair sites, by sequential EP, without a pass over pairs.
Sites are matched one coefficient after the other, because two correlated coefficients with negative u that widen at the
same time can leave no Gaussian. With S = diag(1 / u) and a the column of A of a coefficient, in

    H = (P^-1 + A S A')^-1,     c = A S (A'r + h)

without this coefficient, its cavity has tau = a'Ha and nu = a'(r - Hc); changing its site is a rank-one update of H.
P, which is singular along constant scores, is not inverted. A pass costs O(d k^2), plus O(d k) for each site that
changes by more than ``DEFERRED``.

*Scale.* Where the risk does not depend on the length of the coefficients, P and r are known up to factors exp(2 l) and
exp(l). The pair sites satisfy r'm = tr P (V + mm') given q, hence at EP's fixed point

    sum_k u_k E[w_k^2] - h_k E[w_k] = d,

and each pass moves l towards that.

Used by plans whose ``prior`` is not "gaussian". A new prior is a :class:`~pymc_pacauc.problem.problem.PriorSites`.

References: Ridgway, Alquier, Chopin & Liang (2014), arXiv:1410.1771, section 3.4 and appendix; Hernández-Lobato,
Hernández-Lobato & Suárez (2015), doi:10.1007/s10994-014-5475-7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import exp, log
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from pymc_pacauc.ep.loop import Iteration, Pace, Policy, solve_fixed_point
from pymc_pacauc.ep.plan import MAX_SWEEPS
from pymc_pacauc.numerics import FloatArray, kernel
from pymc_pacauc.problem.problem import PriorSites, Spikes

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


@np.errstate(under="ignore")
def matched_sites(tau: FloatArray, nu: FloatArray, prior: PriorSites) -> MatchedSites:
    """Match the site of each coefficient to the moments of its cavity times prior; ``tau`` and ``nu`` are (d,)."""
    log_z, mean, precision, share = _match_all(tau, nu, *_components(prior))
    return MatchedSites(
        precision=precision - tau,
        shift=mean * precision - nu,
        log_constant=log_z + 0.5 * np.log(precision) - 0.5 * mean**2 * precision,
        narrowest=precision >= 1.0 / NARROWEST,
        inclusion=share if isinstance(prior, Spikes) else np.ones(tau.size),
    )


def _components(prior: PriorSites) -> tuple[Any, ...]:
    return prior.log_weight, prior.centre, prior.variance, prior.first, prior.last


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
    turn, heaviest = nu / tau, first
    for j in range(first, last):
        if log_weight[j] > log_weight[heaviest]:
            heaviest = j
    if centre[heaviest] < turn:
        while centre[last - 1] > turn:
            last -= 1
    else:
        while centre[first] < turn:
            first += 1
    return first, last


@kernel
def _is_proper(tau, nu, floor, opened, log_weight, centre, variance, first, last):
    """Return whether cavity times prior can be normalised: for a table, whether it is negligible at unbounded ends."""
    if tau > floor:
        return True
    if variance[first] > 0.0 or variance[last - 1] > 0.0:
        return False
    start, end = relevant(tau, nu, log_weight, centre, variance, first, last)
    top = -np.inf
    for j in range(start, end):
        top = max(top, _log_mass(tau, nu, log_weight[j], centre[j], 0.0))
    low = _log_mass(tau, nu, log_weight[start], centre[start], 0.0)
    high = _log_mass(tau, nu, log_weight[end - 1], centre[end - 1], 0.0)
    low_ends = low < top - NOTHING or not (opened[0] or start > first)
    return low_ends and (high < top - NOTHING or not (opened[1] or end < last))


@kernel
def _all_proper(tau, nu, floor, opened, log_weight, centre, variance, first, last):
    for k in range(tau.size):
        if not _is_proper(tau[k], nu[k], floor[k], opened[k], log_weight, centre, variance, first[k], last[k]):
            return False
    return True


@kernel
def match(tau, nu, log_weight, centre, variance, first, last):
    """Compute log Z, M, 1 / W and the share of the last component for one coefficient; see the module docstring."""
    first, last = relevant(tau, nu, log_weight, centre, variance, first, last)
    top = -np.inf
    for j in range(first, last):
        top = max(top, _log_mass(tau, nu, log_weight[j], centre[j], variance[j]))
    total, mean, square, mass = 0.0, 0.0, 0.0, 0.0
    for j in range(first, last):
        mass = exp(_log_mass(tau, nu, log_weight[j], centre[j], variance[j]) - top)
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
def _match_all(tau, nu, log_weight, centre, variance, first, last):
    log_z, mean, precision, share = np.empty_like(tau), np.empty_like(tau), np.empty_like(tau), np.empty_like(tau)
    for k in range(tau.size):
        log_z[k], mean[k], precision[k], share[k] = match(
            tau[k], nu[k], log_weight, centre, variance, first[k], last[k]
        )
    return log_z, mean, precision, share


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
        S^(1/2), E (None for the identity) and L.
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
    basis: FloatArray | None
    factor: FloatArray

    @property
    def variance(self) -> FloatArray:
        """Marginal variances."""
        return 1.0 / (self.cavity_precision + self.site_precision)

    def proper(self, prior: PriorSites) -> bool:
        """Whether every cavity times its prior can be normalised."""
        tau, nu = self.cavity_precision, self.cavity_shift
        return bool(_all_proper(tau, nu, prior.floor, prior.opened, *_components(prior)))

    def covariance(self) -> FloatArray:
        inner = linalg.cho_solve((self.factor, True), np.eye(len(self.factor)))
        if self.basis is not None:
            inner = np.eye(self.mean.size) + self.basis @ (inner - np.eye(len(inner))) @ self.basis.T
        return inner * np.outer(self.scale, self.scale)

    def spread_of(self, rows: FloatArray, *, variances: bool = False) -> FloatArray:
        """Compute the covariance (or variances) of ``rows @ w``, rows of shape (m, d), without that of w."""
        scaled = rows * self.scale
        inside = scaled if self.basis is None else scaled @ self.basis
        root = linalg.solve_triangular(self.factor, inside.T, lower=True, check_finite=False).T

        def square(a: FloatArray) -> FloatArray:
            return np.asarray(np.einsum("ij,ij->i", a, a) if variances else a @ a.T)

        return square(root) if self.basis is None else square(root) + (square(scaled) - square(inside))

    def draw(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Independent draws, shape (draws, d)."""
        noise = rng.standard_normal((len(self.factor), draws))
        inside = linalg.solve_triangular(self.factor, noise, lower=True, trans="T").T
        if self.basis is not None:
            free = rng.standard_normal((draws, self.mean.size))
            inside = free + (inside - free @ self.basis) @ self.basis.T
        return self.mean + inside * self.scale

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
    if rotation is None:
        rows, basis = None, None
        weights, r = precision + np.diag(deficit), shift
        left = scale[:, None] * weights  # F' P
        inner = np.eye(u.size) + left * scale
        into_factor = scale * (h + r)
    else:
        rows = np.vstack([rotation, np.eye(u.size)[low]])
        weights, r = linalg.block_diag(precision, np.diag(deficit[low])), np.append(shift, np.zeros(low.sum()))
        basis, upper = linalg.qr(scale[:, None] * rows.T, mode="economic", check_finite=False)
        left = upper @ weights
        inner = np.eye(len(upper)) + left @ upper.T
        into_factor = basis.T @ (scale * h) + upper @ r
    try:
        factor = np.linalg.cholesky(0.5 * (inner + inner.T))
    except np.linalg.LinAlgError:
        return None
    whitened = linalg.solve_triangular(factor, left, lower=True, check_finite=False)
    solved = linalg.cho_solve((factor, True), into_factor, check_finite=False)
    root = linalg.solve_triangular(factor, np.eye(len(factor)), lower=True, check_finite=False).T
    if rows is None:
        reduced_mean = scale * solved
        seen = np.diagonal(weights) - np.einsum("ij,ij->j", whitened, whitened)
        residual = r - weights @ reduced_mean
        root = scale[:, None] * root
    else:
        reduced_mean = upper.T @ solved
        seen = np.einsum("ij,ij->j", rows, (weights - whitened.T @ whitened) @ rows)
        residual = rows.T @ (r - weights @ reduced_mean)
        root = upper.T @ root
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
        reduced_root=np.ascontiguousarray(root[:k]),
        cavity_precision=cavity_precision,
        cavity_shift=residual + deficit * mean + cavity_precision * mean,
        scale=scale,
        basis=basis,
        factor=np.asarray(factor, dtype=np.float64),
    )


POLICY = Policy(
    damping=0.5,
    least_damping=0.1,
    damping_factor=0.8,
    plain_after_restart=5,
    mixed_below=0.05,
    patience=50,
    halvings=3,
    restarts_when_halved=True,
)
LARGEST_RESCALING = 0.25
SMALLEST_PRECISION = 1e-8  # sites in between act as this one
NEGLIGIBLE = 1e-13  # relative change of H
# With more coefficients than rows: relative change of H below which a site's own waits for the next pass (500 x 2000:
# as many passes, each quicker; doubled, the same), and changes that are added to H at once.
DEFERRED, MOVES_AT_ONCE = 1e-3, 64


@dataclass(frozen=True, eq=False)
class SettledSites:
    """q with its prior sites at their fixed point, None where they did not converge; and counts of the iteration."""

    q: SparseGaussian | None
    passes: int
    reset_sites: int
    clipped_rescalings: int


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


def settle_prior_sites(
    q: SparseGaussian, prior: PriorSites, rotation: FloatArray | None, tolerance: float, *, scaled: bool
) -> SettledSites:
    """Bring the prior sites of q, and if ``scaled`` its scale, to their fixed point given the pair sites.

    ``rotation`` is A, None standing for the identity.
    """
    d = q.mean.size
    components = _components(prior)
    columns = np.empty((0, d)) if rotation is None else np.ascontiguousarray(rotation.T)

    def sweep(point: FloatArray, pace: Pace) -> _Pass:
        u, h, scale, tau = point[:d].copy(), point[d:-1].copy(), np.exp(point[-1]), np.empty(d)
        precision, shift = q.precision * scale**2, q.shift * scale
        H, c = _others(precision, shift, u, h, columns)
        order = np.random.default_rng(pace.turn).permutation(d)  # in which coefficients are visited
        limits = prior.floor, prior.opened
        squared, reset, rescaling = _pass(H, c, shift, columns, u, h, tau, components, limits, order, pace.damping)
        rescaling = rescaling if scaled else 0.0
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
        POLICY,
        tolerance=tolerance,
        max_sweeps=MAX_SWEEPS,
    )
    settled = None
    if found.converged:
        u, h, scale = found.point[:d], found.point[d:-1], np.exp(found.point[-1])
        settled = sparse_gaussian(q.precision * scale**2, q.shift * scale, u, h, rotation)
    reset, clipped = (sum(int(row[name]) for row in found.history) for name in ("reset", "clipped"))
    proper = settled is not None and settled.proper(prior)
    return SettledSites(settled if proper else None, len(found.history), reset, clipped)


def _others(
    precision: FloatArray, shift: FloatArray, u: FloatArray, h: FloatArray, columns: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Compute H, (k, k), and c, (k,), of all coefficients."""
    u[np.abs(u) < SMALLEST_PRECISION] = SMALLEST_PRECISION
    if len(columns):
        spread = precision @ (columns.T @ (columns / u[:, None]))
        c = columns.T @ ((columns @ shift + h) / u)
    else:
        spread = precision / u
        c = (shift + h) / u
    H = np.linalg.solve(np.eye(len(precision)) + spread, precision)
    return np.ascontiguousarray(0.5 * (H + H.T)), c


@kernel
def _pass(H, c, r, columns, u, h, tau, components, limits, order, damping):
    """Match each site in turn, in place (u, h, c, H, tau); ``columns``, (d, k), is A', empty for the identity.

    Returns the squared change without damping, in units of q; the number of sites that could not be matched and were
    put back to the Gaussian prior; and the step of l: the excess of the sum over d, divided by the number of
    coefficients that are not at a spike.
    """
    (log_weight, centre, variance, first, last), (floor, opened) = components, limits
    change, reset, excess, held = 0.0, 0, 0.0, 1e-3
    HA, moved = columns @ H, 0  # rows a'H, (d, k), up to the rank-one updates stored since
    moves, along_moves = np.empty(MOVES_AT_ONCE), np.empty((MOVES_AT_ONCE, len(H)))
    for k in order:
        if len(columns):
            Ha = HA[k] + (moves[:moved] * (along_moves[:moved] @ columns[k])) @ along_moves[:moved]
            seen, along = columns[k] @ Ha, columns[k] @ r
        else:
            Ha = H[k].copy()
            seen, along = Ha[k], r[k]
        without = 1.0 / (u[k] - seen)  # H without k is H + without Ha Ha'
        gain = 1.0 + without * seen
        weight = (along + h[k]) / u[k]  # and c without k is c - weight a
        tau[k] = gain * seen
        nu = along - gain * (Ha @ c - seen * weight)
        matched = _is_proper(tau[k], nu, floor[k], opened[k], log_weight, centre, variance, first[k], last[k])
        if matched:
            _, mean, precision, _ = match(tau[k], nu, log_weight, centre, variance, first[k], last[k])
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
        if len(columns) and abs(rank_one * seen) > DEFERRED:
            moves[moved], along_moves[moved] = rank_one, Ha
            moved += 1
            if moved == MOVES_AT_ONCE:
                HA += ((columns @ along_moves.T) * moves) @ along_moves
                moved = 0
        elif not len(columns) and abs(rank_one * seen) > NEGLIGIBLE:  # skipped for coefficients that stay in a spike
            for i in range(Ha.size):
                scaled = rank_one * Ha[i]
                for j in range(Ha.size):
                    H[i, j] += scaled * Ha[j]
        heavier = (along + new_h) / new_u - weight
        if len(columns):
            c += heavier * columns[k]
        else:
            c[k] += heavier
        u[k], h[k] = new_u, new_h
    return change, reset, 0.5 * excess / held
