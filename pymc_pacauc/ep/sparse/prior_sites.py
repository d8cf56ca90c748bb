"""The sites of a spike-and-slab prior given those of the pairs: sequential EP, which costs no pair.

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

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.core.kernels import kernel
from pymc_pacauc.ep.fixed_point import Iteration, Pace, Policy, solve_fixed_point
from pymc_pacauc.ep.sparse.gaussian import SparseGaussian, sparse_gaussian
from pymc_pacauc.ep.sparse.mixture_site import match_mixture

__all__ = ["SettledSites", "settle_prior_sites"]

FloatArray = NDArray[np.float64]

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
