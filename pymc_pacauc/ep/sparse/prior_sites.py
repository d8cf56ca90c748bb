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

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.core.kernels import kernel
from pymc_pacauc.ep.mixing import AndersonMixing
from pymc_pacauc.ep.sparse.gaussian import SparseGaussian, sparse_gaussian
from pymc_pacauc.ep.sparse.mixture_site import match_mixture

__all__ = ["settle_prior_sites"]

FloatArray = NDArray[np.float64]

DAMPING = 0.5
SMALLEST_DAMPING = 0.1
MOST_PASSES = 200
PATIENCE = 50  # passes in which the change must halve
LARGEST_RESCALING = 0.25
MEMORY = 6
NEAR = 0.05  # change of a pass below which passes are mixed
GROWTH = 1.5  # a change that grows by more than this discards the mixing's history
PLAIN_AFTER_RESTART = 5
SMALLEST_PRECISION = 1e-8  # sites in between act as this one
NEGLIGIBLE = 1e-13  # relative change of H


def settle_prior_sites(
    q: SparseGaussian,
    log_odds: FloatArray,
    spike: FloatArray,
    rotation: FloatArray | None,
    tolerance: float,
    *,
    limited: bool,
    scaled: bool,
) -> SparseGaussian | None:
    """q with its prior sites, and if ``scaled`` its scale, at their fixed point; None where they do not get there.

    ``rotation`` is A, None standing for the identity; ``limited`` is that of :func:`mixture_site`.
    """
    d = q.mean.size
    columns = np.empty((0, d)) if rotation is None else np.ascontiguousarray(rotation.T)
    rng = np.random.default_rng(0)  # the order in which coefficients are visited
    order = rng.permutation(d)
    point = np.concatenate([q.site_precision, q.site_shift, [0.0]])
    mixing: AndersonMixing | None = None
    metric = np.empty(0)
    damping, plain_until = DAMPING, 0
    changes: list[float] = []
    for count in range(MOST_PASSES):
        u, h, scale, tau = point[:d].copy(), point[d:-1].copy(), np.exp(point[-1]), np.empty(d)
        precision, shift = q.precision * scale**2, q.shift * scale
        if mixing is None:
            order = rng.permutation(d)
        H, c = _others(precision, shift, u, h, columns)
        squared, reset, rescaling = _pass(H, c, shift, columns, u, h, tau, log_odds, spike, order, damping, limited)
        if not 0.0 <= squared < np.inf:  # the mixing led out of what is a Gaussian
            return None
        rescaling = float(np.clip(rescaling, -LARGEST_RESCALING, LARGEST_RESCALING)) if scaled else 0.0
        change = float(np.sqrt((squared + rescaling**2) / d))
        if change < tolerance and not reset:
            settled = sparse_gaussian(precision, shift, point[:d], point[d:-1], rotation)
            return settled if settled is not None and settled.proper.all() else None
        previous = changes[-1] if changes else np.inf
        changes.append(change)
        stalled = count % PATIENCE == 0 and min(changes[-PATIENCE:]) > 0.5 * min(changes[:-PATIENCE], default=np.inf)
        if stalled:
            return None
        if mixing is not None and change > GROWTH * previous:
            mixing, plain_until = None, count + PLAIN_AFTER_RESTART
        elif count > 10 and change > previous:
            damping = max(0.8 * damping, SMALLEST_DAMPING)
        step = np.concatenate([u, h, [point[-1] + damping * rescaling]]) - point
        if change < NEAR and count >= plain_until:
            variance = 1.0 / (tau + point[:d])
            if mixing is None:
                mixing, metric = AndersonMixing(MEMORY), np.concatenate([variance, np.sqrt(variance), [1.0]])
            mixed = mixing.step(point, step, step * metric)
            if (tau + point[:d] + mixed[:d] > 0.1 * (tau + u)).all() and abs(mixed[-1]) < LARGEST_RESCALING:
                step = mixed
            else:
                mixing, plain_until = None, count + PLAIN_AFTER_RESTART
        point = point + step
    return None


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
def _pass(H, c, r, columns, u, h, tau, log_odds, spike, order, damping, limited):
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
            slab, mean, precision = match_mixture(tau[k], nu, log_odds[k], spike[k], limited)
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
