"""The site of a spike-and-slab prior, one per coefficient (the paper's section 3.4 and its appendix).

In units of the slab the prior of a coefficient is t(w) = p N(w; 0, 1) + (1 - p) N(w; 0, v0); the indicator z of the
slab appears nowhere else, so a product of a Bernoulli site for z and a Gaussian site for w is a Gaussian site for w
alone, and the Bernoulli's parameter is read off at the end. The cavity is exp(-tau w^2 / 2 + nu w). With c_j = v_j /
(1 + v_j tau) the component j of cavity times prior has mean nu c_j, variance c_j and mass

    Z_j = (1 + v_j tau)^(-1/2) exp(nu^2 c_j / 2)     times p or 1 - p,

so that r = p Z_1 / (p Z_1 + (1 - p) Z_0) is the probability of the slab, and the moments to match are

    M = nu (r c_1 + (1 - r) c_0),     W = r c_1 + (1 - r) c_0 + r (1 - r) nu^2 (c_1 - c_0)^2.

The site exp(-u w^2 / 2 + h w) has u = 1 / W - tau and h = M / W - nu. Written in tau and nu all this holds for a Dirac
spike, v0 = 0, and for cavities that are not densities, as long as 1 + tau > 0. u is negative where spike and slab are
both likely and far apart (the mixture is wider than the cavity), and stays so: cutting it at zero would be stabler,
but another fixed point, with an evidence that means nothing.

A Gaussian over d coefficients whose precision is a diagonal, of either sign, plus what k directions carry.

    Q = diag(u) + A' P A,     Q m = h + A' r

The diagonal holds the sites of the coefficients' priors, (P, r) the sums of the pair sites in the k <= n combinations
A w that reach the scores (A has orthonormal rows; None stands for the identity, when d <= n). Site precisions u range
from slightly negative to huge (a Dirac spike's grows without bound), so nothing here divides by what may vanish, or
subtracts two huge numbers. Precisions below a floor are split, u = 1 + (u - 1), the second part joining P, its
coefficients joining the rows of A. What is left, S = diag(1 / base), is positive; with S^(1/2) A' = E F' (QR),

    B = I + F' P F = L L',      Q^-1 = S^(1/2) (I + E (B^-1 - I) E') S^(1/2),

in O(k^2 d + k^3). The cavity of a site is q without it: its precision tau follows from H = (P^-1 + A S A')^-1, seen by
one coefficient, as tau = H / (1 - H / base), and its shift from the residual e = A'(r - P A m) as nu = e + tau m. Both
keep their digits when u dwarfs them.

The sites of a spike-and-slab prior given those of the pairs: sequential EP, which costs no pair.

Given the sums P, r of the pair sites, q has precision diag(u) + A'PA and shift h + A'r (rows of A: the directions that
reach the scores), and the prior sites u, h are those of a regression with a Gaussian likelihood. They are matched one
coefficient after the other, because sites between spike and slab have negative precisions, and two correlated
coefficients that widen at once can leave no Gaussian at all. With S = diag(1 / u) and a the k-th column of A,

    H = (P^-1 + A S A')^-1,     c = A S (A'r + h)

hold all that the coefficients do to each other: the cavity of coefficient k has tau = a'Ha and nu = a'(r - Hc), H and c
taken without k, and each is one rank away from the next. A spike takes its coefficient out of H as it narrows; no
inverse of P, which is singular along constant scores, is needed.

The scale comes with them. The risk ignores the length of the coefficients, so P and r are known up to a factor,
exp(2 l) and exp(l). The pair sites obey r'm = tr P (V + mm') given q, hence at EP's fixed point

    sum_k u_k E[w_k^2] - h_k E[w_k] = d,

and each pass moves l towards that. Near the fixed point Anderson mixing takes over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import exp, log1p

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.special import log_expit

from pymc_pacauc.ep.loop import Iteration, Pace, Policy, solve_fixed_point
from pymc_pacauc.numerics import FloatArray, kernel

NARROWEST = 1e-10  # variance of a coefficient that is certainly at a Dirac spike


@dataclass(frozen=True, eq=False)
class MixtureSite:
    """Sites given their cavities.

    Attributes
    ----------
    precision, shift
        u and h.
    log_constant
        log C, such that C exp(-u w^2 / 2 + h w) has the prior's integral under the cavity, up to (2 pi)^(1/2).
    narrowest
        Where W is held at ``NARROWEST``: the coefficient is certainly at a Dirac spike.
    inclusion
        r, the probability of the slab.
    slab_mean, slab_variance
        Moments of the slab's component.
    """

    precision: FloatArray
    shift: FloatArray
    log_constant: FloatArray
    narrowest: NDArray[np.bool_]
    inclusion: FloatArray
    slab_mean: FloatArray
    slab_variance: FloatArray


@np.errstate(under="ignore")
def mixture_site(tau: FloatArray, nu: FloatArray, log_odds: FloatArray, spike: FloatArray) -> MixtureSite:
    """Match the moments of cavity times prior; ``log_odds`` is log(p / (1 - p)), infinite for a Gaussian N(0, 1)."""
    inclusion, mean, precision = _match_all(tau, nu, log_odds, spike)
    slab_variance, spike_variance = 1.0 / (1.0 + tau), spike / (1.0 + spike * tau)
    log_z = np.logaddexp(
        log_expit(log_odds) + 0.5 * (nu**2 * slab_variance - np.log1p(tau)),
        log_expit(-log_odds) + 0.5 * (nu**2 * spike_variance - np.log1p(spike * tau)),
    )
    return MixtureSite(
        precision=precision - tau,
        shift=mean * precision - nu,
        log_constant=log_z + 0.5 * np.log(precision) - 0.5 * mean**2 * precision,
        narrowest=precision >= 1.0 / NARROWEST,
        inclusion=inclusion,
        slab_mean=nu * slab_variance,
        slab_variance=slab_variance,
    )


@kernel
def match_mixture(tau, nu, log_odds, spike):
    """r, M and 1 / W of one coefficient; see the module docstring."""
    slab_variance, spike_variance = 1.0 / (1.0 + tau), spike / (1.0 + spike * tau)
    apart = slab_variance - spike_variance
    log_ratio = log_odds + 0.5 * (nu * nu * apart - log1p(tau) + log1p(spike * tau))
    slab = 1.0 / (1.0 + exp(-log_ratio))
    within = slab * slab_variance + (1.0 - slab) * spike_variance
    variance = within + slab * (1.0 - slab) * (nu * apart) ** 2
    precision = 1.0 / max(variance, NARROWEST)
    return slab, nu * within, precision


@kernel
def _match_all(tau, nu, log_odds, spike):
    inclusion, mean, precision = np.empty_like(tau), np.empty_like(tau), np.empty_like(tau)
    for k in range(tau.size):
        inclusion[k], mean[k], precision[k] = match_mixture(tau[k], nu[k], log_odds[k], spike[k])
    return inclusion, mean, precision


FLOOR = 0.1  # site precisions below this join the pair sites; the slab's is 1


@dataclass(frozen=True, eq=False)
class SparseGaussian:
    """The Gaussian, in coefficients whose slab has variance one.

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

    @property
    def proper(self) -> NDArray[np.bool_]:
        """Where cavity times slab, of precision one, can be normalised."""
        return 1.0 + self.cavity_precision > 0.0

    def covariance(self) -> FloatArray:
        inner = linalg.cho_solve((self.factor, True), np.eye(len(self.factor)))
        if self.basis is not None:
            inner = np.eye(self.mean.size) + self.basis @ (inner - np.eye(len(inner))) @ self.basis.T
        return inner * np.outer(self.scale, self.scale)

    def spread_of(self, rows: FloatArray, *, variances: bool = False) -> FloatArray:
        """Covariance (or variances) of ``rows @ w``, rows[m, d], without the covariance of w."""
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
        """log of the integral of exp(-w'Qw/2 + (h + A'r)'w), up to (2 pi)^(d/2)."""
        half_log_det = np.log(np.diagonal(self.factor)).sum() - np.log(self.scale).sum()
        return float(0.5 * (self.site_shift @ self.mean + self.shift @ self.reduced_mean) - half_log_det)


def sparse_gaussian(
    precision: FloatArray,
    shift: FloatArray,
    site_precision: FloatArray,
    site_shift: FloatArray,
    rotation: FloatArray | None,
) -> SparseGaussian | None:
    """Factorise; None when the precision is not positive definite, or too nearly so to have marginal variances."""
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
MOST_PASSES = 200
LARGEST_RESCALING = 0.25
SMALLEST_PRECISION = 1e-8  # sites in between act as this one
NEGLIGIBLE = 1e-13  # relative change of H


@dataclass(frozen=True, eq=False)
class SettledSites:
    """q with its prior sites at their fixed point, None where they did not get there, and what that took."""

    q: SparseGaussian | None
    passes: int
    reset_sites: int
    clipped_rescalings: int


@dataclass(frozen=True, eq=False)
class _Pass:
    """A pass over the prior sites of a point (u, h, l): where it led, and the cavities' precisions, shape (d,)."""

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
    q: SparseGaussian,
    log_odds: FloatArray,
    spike: FloatArray,
    rotation: FloatArray | None,
    tolerance: float,
    *,
    scaled: bool,
) -> SettledSites:
    """q with its prior sites, and if ``scaled`` its scale, at their fixed point.

    ``rotation`` is A, None standing for the identity.
    """
    d = q.mean.size
    columns = np.empty((0, d)) if rotation is None else np.ascontiguousarray(rotation.T)

    def sweep(point: FloatArray, pace: Pace) -> _Pass:
        u, h, scale, tau = point[:d].copy(), point[d:-1].copy(), np.exp(point[-1]), np.empty(d)
        precision, shift = q.precision * scale**2, q.shift * scale
        H, c = _others(precision, shift, u, h, columns)
        order = np.random.default_rng(pace.turn).permutation(d)  # in which coefficients are visited
        squared, reset, rescaling = _pass(H, c, shift, columns, u, h, tau, log_odds, spike, order, pace.damping)
        rescaling = rescaling if scaled else 0.0
        clipped = float(np.clip(rescaling, -LARGEST_RESCALING, LARGEST_RESCALING))
        led_to = np.concatenate([u, h, [point[-1] + pace.damping * clipped]])
        squared += clipped**2  # below zero where q is no density along a coefficient: then there is no unit
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
        max_sweeps=MOST_PASSES,
    )
    settled = None
    if found.converged:
        u, h, scale = found.point[:d], found.point[d:-1], np.exp(found.point[-1])
        settled = sparse_gaussian(q.precision * scale**2, q.shift * scale, u, h, rotation)
    reset, clipped = (sum(int(row[name]) for row in found.history) for name in ("reset", "clipped"))
    proper = settled is not None and settled.proper.all()
    return SettledSites(settled if proper else None, len(found.history), reset, clipped)


def _others(
    precision: FloatArray, shift: FloatArray, u: FloatArray, h: FloatArray, columns: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """H and c, with every coefficient."""
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
def _pass(H, c, r, columns, u, h, tau, log_odds, spike, order, damping):
    """Match each site in turn, in place; fill tau. No columns: they are the identity's.

    Returns the squared change, were there no damping, in units of q; how many sites could not be matched, and were put
    back into the slab; and the step of l, the excess over the identity by the number of coefficients the data hold.
    """
    change, reset, excess, held = 0.0, 0, 0.0, 1e-3
    for k in order:
        if len(columns):
            Ha = H @ columns[k]
            seen, along = columns[k] @ Ha, columns[k] @ r
        else:
            Ha = H[k].copy()
            seen, along = Ha[k], r[k]
        without = 1.0 / (u[k] - seen)  # H without k is H + without Ha Ha'
        gain = 1.0 + without * seen
        weight = (along + h[k]) / u[k]  # and c without k is c - weight a
        tau[k] = gain * seen
        nu = along - gain * (Ha @ c - seen * weight)
        matched = tau[k] > -1.0
        if matched:
            slab, mean, precision = match_mixture(tau[k], nu, log_odds[k], spike[k])
            target_u, target_h = precision - tau[k], mean * precision - nu
            new_u, new_h = u[k] + damping * (target_u - u[k]), h[k] + damping * (target_h - h[k])
            excess += target_u * (1.0 / precision + mean * mean) - target_h * mean - 1.0
            held += slab + (1.0 - slab) * abs(1.0 - 1.0 / (1.0 + spike[k] * tau[k]))
        if not matched or new_u + tau[k] <= 0.0:  # its neighbours are too wide
            reset += 1
            new_u, new_h = 1.0 + abs(tau[k]), 0.0
        if abs(new_u) < SMALLEST_PRECISION:
            new_u = SMALLEST_PRECISION
        now = 1.0 / (tau[k] + u[k])
        change += (0.5 * ((new_u - u[k]) * now) ** 2 + (new_h - h[k]) ** 2 * now) / damping**2
        rank_one = without - gain * gain / (new_u + tau[k])
        if abs(rank_one * seen) > NEGLIGIBLE:  # not so for what stays in a spike
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
