"""Integrate over hyper-parameters: EP given each of their values, quadrature or weighted points over the values.

Many models are Gaussian *given* a few hyper-parameters phi: scales, lengthscales, mixture weights. EP computes Z(phi)
in milliseconds, so that p(phi | data) is known up to a constant at some points, and the posterior of the coefficients
is a mixture of the fits at these points:

    p(phi | data) ~ prior(phi) Z(phi),    p(theta | data) = sum_k weight_k q(theta | phi_k).

These are integrated nested Laplace approximations (INLA) with EP in place of Laplace's method.

1. :func:`find_mode` maximises prior x Z by L-BFGS with EP's gradient, in coordinates that are unconstrained and scaled
   by the prior. Without the prior's density this is the maximum of the evidence.
2. With one or two hyper-parameters, a lattice around the mode, along the axes of the Hessian, is extended outwards
   until the density has fallen far enough, so that skewness and long tails (a scale near zero) are included.
3. With three to six, quasi-random points of a multivariate t have weights density / proposal; a second round is drawn
   around the moments found by the first. The effective number of points measures the quality.

Every fit starts from the sites of one nearby. Points where EP does not converge are left out, and counted. One
hyper-parameter takes some tens of fits, six take five hundred. Used for every model whose hyper-parameters have priors
(:mod:`pymc_pacauc.model.nested`); ``maximize_evidence`` and ``choose_lengthscale`` take the mode under a flat prior. To
integrate over other parameters, describe them by a :class:`Conditional`.

*Gradient* (:meth:`Density.gradient`). With whitened scores A(phi) w, w ~ N(0, I), log Z is stationary in the sites, and
where dA = A D for some D, as with scales and kernels, d log Z = sum(D * (V + m m' - I)), V and m those of q. The
gradient for spike-and-slab priors is known too. Elsewhere (offsets that depend on phi, tabulated densities) it is a
difference quotient of evidences.

Reference: Rue, Martino & Chopin (2009), doi:10.1111/j.1467-9868.2008.00700.x.
"""

from __future__ import annotations

import heapq
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product
from operator import attrgetter
from typing import Any

import numpy as np
import scipy  # scipy.stats, a second to import, at its first use
from numpy.typing import NDArray
from scipy import linalg, optimize, special

from pymc_pacauc.ep.gaussian import EPFit, carried_over
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.ep.plan import ACCURACIES, FEWEST_ROWS
from pymc_pacauc.ep.results import Fit
from pymc_pacauc.fitting import fit
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.problem import Problem

MOST_HYPER = 6  # beyond that points are too few for the dimension; doubled, effective points fall below a tenth
TOLERANCE = ACCURACIES["path"].tolerance  # of the fits: log Z to 1e-3 nats, means to 0.01 sd
STEP = 1e-4  # of difference quotients, in prior standard deviations; doubled or halved, means move by 1e-8
# Distance of a mode from where its search begins, at most, in prior standard deviations, or logarithms without a prior;
# doubled or halved, no effect where the mode is nearer
FARTHEST = 8.0
# Lattice, by dimension: step in posterior standard deviations, and nats below the mode where it ends. Means of two
# scales are off by 0.01 sd, sds by 1.5 %, log Z by 0.02 nats (benchmarks/nested.py); half the step: four times as many.
LATTICE = {1: (1.0, 6.0), 2: (1.4, 4.5)}
# Steps grow as cosh(STRETCH t), t in steps from the mode: long tails take half the points. Doubled, moments move 0.002
STRETCH = 0.4
# Of a lattice: a density that has not fallen by then has no end worth following. Doubled, it is in twice the time
MOST_POINTS = 300
# Quasi-random points per hyper-parameter and round: twice as many halve the error, at twice the time. And values in a
# certificate: twice as many cost at most 0.7 nats more.
POINTS = 32
# Total weight of the points that are dropped from a mixture; ten times more, and tails are 0.1 % lighter.
NEGLIGIBLE = 1e-4

NOWHERE = (
    "EP did not converge at any value of the hyper-parameters that was tried: use a smaller gamma, or "
    "pm.sample(step=pac.TemperingSMC())."
)


@dataclass(frozen=True, eq=False)
class Conditional:
    """A problem that is Gaussian (or has another prior that EP knows) given hyper-parameters phi.

    Attributes
    ----------
    problem_at : callable
        ``phi[k] -> Problem``, phi in unconstrained coordinates.
    log_prior : callable
        ``phi[N, k] -> [N]``: the log density of phi, in the same coordinates, normalised.
    centre, scale : ndarray, shape (k,)
        About the middle and the standard deviation of the prior.
    values : ndarray, shape (K, k), optional
        All values that phi can have; ``log_prior`` are then the logarithms of their masses.
    gradient : callable, optional
        ``Point -> d log Z / d phi``, shape (k,), where there is a formula of its own.
    """

    problem_at: Callable[[FloatArray], Problem]
    log_prior: Callable[[FloatArray], FloatArray]
    centre: FloatArray
    scale: FloatArray
    values: FloatArray | None = None
    gradient: Callable[[Point], FloatArray] | None = None

    @property
    def dimension(self) -> int:
        return self.centre.size


@dataclass(frozen=True, eq=False)
class Point:
    """A value of phi, EP's fit given it, and log prior(phi) Z(phi): minus infinity where EP did not converge."""

    phi: FloatArray
    fit: Fit
    log_density: float


DENSITY = attrgetter("log_density")


@dataclass(frozen=True, eq=False)
class Lattice:
    """Points ``mode + axes @ z``, z = sinh(STRETCH t) / STRETCH, with ``t``, (K, k), on a lattice of given ``step``.

    ``rises``, (K, k), are by how much the log density of t rises along each axis, in a step.
    """

    mode: FloatArray
    axes: FloatArray
    t: FloatArray
    step: float
    rises: FloatArray

    @staticmethod
    def stretched(t: FloatArray) -> FloatArray:
        return np.asarray(np.sinh(STRETCH * t) / STRETCH)

    @property
    def phi(self) -> FloatArray:
        return self.mode + self.stretched(self.t) @ self.axes.T

    @property
    def log_volume(self) -> FloatArray:
        """Log volume of the cell of each point, shape (K,)."""
        whole = np.linalg.slogdet(self.axes)[1] + self.mode.size * np.log(self.step)
        volume: FloatArray = whole + np.log(np.cosh(STRETCH * self.t)).sum(axis=1)
        return volume

    def draw(self, index: NDArray[np.intp], rng: np.random.Generator) -> FloatArray:
        """Draw points within the cells at ``index``, (N, k), with an exponential density along each axis.

        Its slope is half that of the density: then means of smooth functions are those of the weighted points to second
        order in the step, because a weight is the density at the point, not its integral over the cell.
        """
        rise = 0.5 * self.rises[index]
        fall = np.clip(np.abs(rise), 1e-6, 50.0)  # nats across the cell; zero has no truncated exponential
        away = scipy.stats.truncexpon.rvs(fall, random_state=rng) / fall  # from the side where the density is higher
        within = self.t[index] + self.step * np.copysign(1.0, rise) * (0.5 - away)
        return self.mode + self.stretched(within) @ self.axes.T


@dataclass(frozen=True, eq=False)
class NestedFit:
    """A posterior as a mixture over hyper-parameters; the result of :func:`integrate`.

    Attributes
    ----------
    phi, weights : ndarray, shapes (K, k) and (K,)
        Values of the hyper-parameters, and their posterior probabilities.
    fits : tuple of Fit
        EP's fit given each.
    lattice : Lattice or None
        Where the points are on a lattice, their cells.
    mode : Point
        The mode of prior x Z, or the maximum of Z if that was asked for.
    log_evidence : float
        Log of the integral of prior x Z, in nats.
    effective : float
        1 / sum(weights^2), the effective number of points.
    failed : int
        Number of fits that did not converge, which are left out.
    truncated : bool
        Whether the lattice ended before the density had fallen.
    """

    phi: FloatArray
    weights: FloatArray
    fits: tuple[Fit, ...]
    mode: Point
    log_evidence: float
    failed: int
    lattice: Lattice | None = None
    truncated: bool = False

    @property
    def effective(self) -> float:
        return float(1.0 / np.sum(self.weights**2))

    @property
    def central(self) -> Fit:
        """The fit with the largest weight."""
        return self.fits[int(np.argmax(self.weights))]

    def mean(self, quantity: Callable[[Fit], Any]) -> Any:
        """Average a quantity of the fits, its posterior mean given phi, over phi."""
        return sum(weight * quantity(each) for weight, each in zip(self.weights, self.fits, strict=True))


@dataclass(eq=False)
class Density:
    """The unnormalised density prior(phi) Z(phi); each fit starts from one nearby, and all points are kept."""

    conditional: Conditional
    method: str = "ep"
    options: dict[str, Any] = field(default_factory=dict)
    tolerance: float | None = TOLERANCE
    callback: Callable[[Point], None] | None = None
    points: list[Point] = field(default_factory=list)

    @property
    def failed(self) -> int:
        return sum(point.log_density == -np.inf for point in self.points)

    def at(self, phi: FloatArray, *, anew: bool = False) -> Point:
        """Evaluate the density at phi; the fit starts from that of the nearest point so far.

        Where pairs are subsampled, it has the pairs of its start, or is to draw them ``anew``.
        """
        usable = [point for point in self.points if point.fit.converged] or self.points
        scale = self.conditional.scale
        near = min(usable, key=lambda point: float(np.sum(((point.phi - phi) / scale) ** 2)), default=None)
        problem = self.conditional.problem_at(phi)
        options = {"tolerance": self.tolerance, **self.options}
        start = None if near is None else _start(near.fit, problem)
        if anew and isinstance(start, EPFit):
            start = replace(start, subsample=None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # counted, and warned of once
            found = fit(problem, self.method, start=start, **options)
            if not found.converged and near is not None:
                found = fit(problem, self.method, **options)
        log_density = -np.inf
        if found.converged and np.isfinite(found.log_evidence):
            log_density = found.log_evidence + problem.absorbed + float(self.conditional.log_prior(phi[None])[0])
        point = Point(phi, found, log_density)
        self.points.append(point)
        if self.callback is not None:
            self.callback(point)
        return point

    def gradient(self, point: Point) -> FloatArray:
        """Compute d log density / d phi, shape (k,)."""
        conditional, k = self.conditional, self.conditional.dimension
        moves = STEP * np.diag(conditional.scale)
        ends = conditional.log_prior(np.concatenate([point.phi + moves, point.phi - moves]))
        found = (ends[:k] - ends[k:]) / (2.0 * STEP * conditional.scale)
        if conditional.gradient is not None:
            return found + conditional.gradient(point)
        for j, move in enumerate(moves):
            slope = _slope(point.fit, conditional.problem_at(point.phi + move), move[j])
            if slope is None:  # a difference of evidences, which are known to TOLERANCE: 0.05 standard deviations apart
                wide = 250.0 * move
                fits = (self.at(point.phi + sign * wide).fit for sign in (1.0, -1.0))
                up, down = (each.log_evidence + each.problem.absorbed for each in fits)
                slope = (up - down) / (2.0 * wide[j])
            found[j] += slope
        return found


def _start(near: Fit, problem: Problem) -> Fit | None:
    """Make a start for another prior from the sites of a fit; None where the plan's own start is better."""
    if isinstance(near, EPFit) and problem.spikes is None:
        # A process has other features at every lengthscale: the mean-first start is better
        return None if problem.d >= problem.n >= FEWEST_ROWS else carried_over(near, problem)
    same = near.converged and np.array_equal(near.problem.X, problem.X)
    return near if same and np.array_equal(near.problem.prior.factor, problem.prior.factor) else None


def _slope(here: Fit, moved: Problem, step: float) -> float | None:
    """Compute d log Z along a move of the prior by ``step``, by EP's gradient; None where there is no formula."""
    scores, others = here.problem.scores, moved.scores
    if here.problem.spikes is not None and moved.spikes is not None and np.array_equal(scores.X, others.X):
        gradient, now, then = here.evidence_gradient(), here.problem.spikes, moved.spikes
        v1, wider = scores.prior.factor**2, others.prior.factor**2
        change = gradient.inclusion_probability @ (then.inclusion_probability - now.inclusion_probability)
        change += gradient.v0 @ (then.ratio * wider - now.ratio * v1) + gradient.v1 @ (wider - v1)
        return float(change) / step
    if not isinstance(here, EPFit) or not np.array_equal(scores.whitened_offset, others.whitened_offset):
        return None
    space, q = scores.reduced, here.posterior.natural
    change = (others.whitened_design - scores.whitened_design) / step
    size = float(np.linalg.norm(change))
    if size > 0.0 and space.rotation is not None:
        change = change @ space.rotation.T
    D = linalg.lstsq(space.design, change, check_finite=False)[0] if size > 0.0 else np.zeros((q.mean.size,) * 2)
    if np.linalg.norm(space.design @ D - change) > 1e-3 * size:  # outside the span of A
        return None
    half = q.covariance + np.outer(q.mean, q.mean) - np.eye(q.mean.size)
    return float(np.sum(D * half)) + (moved.absorbed - here.problem.absorbed) / step


@dataclass(frozen=True, eq=False)
class Search:
    """Result of :func:`find_mode`: the best point, all points with gradients, and how the search ended."""

    best: Point
    trace: list[tuple[Point, FloatArray]]
    converged: bool
    message: str


def find_mode(
    density: Density,
    *,
    slope: float = 0.1,
    max_evaluations: int = 60,
    free: FloatArray | None = None,
    farthest: float = FARTHEST,
    gain: float = 1e-10,
) -> Search:
    """Maximise prior x Z by L-BFGS, from the centre of the prior.

    Coordinates are ``(phi - centre) / scale`` along the orthonormal columns of ``free``; they move at most FARTHEST
    down and ``farthest`` up. The search ends where no entry of the gradient is above ``slope``, in nats per prior
    standard deviation, or a step gains less than the share ``gain``. A lattice only has to begin near the mode.
    """
    conditional = density.conditional
    free = np.eye(conditional.dimension) if free is None else free
    origin = np.zeros(free.shape[1])
    trace: list[tuple[Point, FloatArray]] = []

    def objective(t: FloatArray) -> tuple[float, FloatArray]:
        point = density.at(conditional.centre + conditional.scale * (free @ t))
        if point.log_density == -np.inf:
            return -1e10, np.zeros(t.size)
        trace.append((point, free.T @ (density.gradient(point) * conditional.scale)))
        return point.log_density, trace[-1][1]

    first = objective(origin)
    unit = max(1.0, 1.5 * float(np.abs(first[1]).max(initial=0.0)))  # the first step, the gradient, is not too long

    def descend(t: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = objective(t) if t.any() else first
        return -value / unit, -gradient / unit

    converged, message = True, "every direction is flat"
    if origin.size:
        bounds = [(-FARTHEST, farthest)] * origin.size
        ends = {"maxfun": max_evaluations, "gtol": slope / unit, "ftol": gain}
        found = optimize.minimize(descend, origin, jac=True, method="L-BFGS-B", bounds=bounds, options=ends)
        converged, message = bool(found.success), str(found.message)
    if not trace:
        raise ValueError(NOWHERE)
    return Search(max((point for point, _ in trace), key=DENSITY), trace, converged, message)


def integrate(density: Density) -> NestedFit:
    """Compute the posterior as a mixture over hyper-parameters."""
    if density.conditional.values is not None:
        return _listed(density)
    mode = find_mode(density).best
    axes = _axes(density, mode)
    if density.conditional.dimension in LATTICE:
        return _lattice(density, mode, axes)
    return _weighted(density, mode, axes)


def maximum(density: Density) -> NestedFit:
    """Find the mode of prior x Z, as a mixture of one point; the evidence is that given the mode."""
    mode = find_mode(density, slope=0.01).best
    log_evidence = mode.fit.log_evidence + mode.fit.problem.absorbed
    return NestedFit(mode.phi[None], np.ones(1), (mode.fit,), mode, log_evidence, density.failed)


def _axes(density: Density, mode: Point) -> FloatArray:
    """Compute axes, (k, k): columns are about one posterior standard deviation along eigenvectors of the Hessian."""
    scale = density.conditional.scale
    k, step = scale.size, 0.3
    curvature = np.empty((k, k))
    for j in range(k):
        ends = []
        for sign in (1.0, -1.0):
            point = density.at(mode.phi + sign * step * scale * np.eye(k)[j])
            ends.append(density.gradient(point) * scale if point.log_density > -np.inf else np.full(k, np.nan))
        curvature[j] = -(ends[0] - ends[1]) / (2.0 * step)
    if not np.isfinite(curvature).all():
        curvature = np.eye(k)
    values, vectors = np.linalg.eigh(0.5 * (curvature + curvature.T))
    return scale[:, None] * vectors / np.sqrt(np.maximum(values, 0.25))  # no wider than twice the prior


def _listed(density: Density) -> NestedFit:
    """Evaluate all values that phi can have."""
    assert density.conditional.values is not None
    points = [density.at(phi) for phi in density.conditional.values]
    best = max(points, key=DENSITY)
    if best.log_density == -np.inf:
        raise ValueError(NOWHERE)
    return _mixture(density, best, points, np.array([point.log_density for point in points]))


def _lattice(density: Density, mode: Point, axes: FloatArray) -> NestedFit:
    """Evaluate a lattice around the mode, from the largest density outwards, until the rest is negligible."""
    k = axes.shape[0]
    step, drop = LATTICE[k]
    found = {(0,) * k: mode}
    queue = [(-mode.log_density, (0,) * k)]
    moves = [move for move in product((-1, 0, 1), repeat=k) if sum(map(abs, move)) == 1]
    best = mode.log_density

    def lattice(*places: tuple[int, ...]) -> Lattice:
        return Lattice(mode.phi, axes, step * np.array(places, dtype=float), step, np.zeros((len(places), k)))

    while queue and len(found) < MOST_POINTS:
        _, place = heapq.heappop(queue)
        for move in moves:
            beside, behind = (tuple(a + side * b for a, b in zip(place, move, strict=True)) for side in (1, -1))
            expected = np.inf if behind not in found else 2.0 * found[place].log_density - found[behind].log_density
            if beside in found or expected < best - drop:  # where log-concave, it is lower still
                continue
            point = found[beside] = density.at(lattice(beside).phi[0])
            best = max(best, point.log_density)
            if point.log_density > best - drop:
                heapq.heappush(queue, (-point.log_density, beside))
    points, whole = list(found.values()), lattice(*found)
    logs = np.array([point.log_density for point in points]) + whole.log_volume
    whole = replace(whole, rises=_rises(list(found), logs))
    return _mixture(density, mode, points, logs, whole, truncated=bool(queue))


def _rises(places: list[tuple[int, ...]], logs: FloatArray) -> FloatArray:
    """Return by how much ``logs`` rise in a step along each axis, (K, k): means over the neighbours that are known."""
    known = dict(zip(places, np.where(np.isfinite(logs), logs, np.nan), strict=True))
    heights = [
        [
            [known.get((*place[:j], place[j] + side, *place[j + 1 :]), np.nan) for side in (-1, 0, 1)]
            for j in range(len(place))
        ]
        for place in places
    ]
    return np.asarray(np.ma.masked_invalid(np.diff(heights)).mean(axis=-1).filled(0.0))


def _weighted(density: Density, mode: Point, axes: FloatArray) -> NestedFit:
    """Evaluate quasi-random points of a t around the mode, then around the moments of these.

    Weights are relative to the mixture of both proposals.
    """
    k = axes.shape[0]
    count = 2 ** int(np.ceil(np.log2(POINTS * k)))  # a Sobol sequence is balanced at powers of two
    degrees = 8.0  # of freedom: tails heavier than those of log-scales
    proposals: list[tuple[FloatArray, FloatArray]] = [(mode.phi, axes)]
    points: list[Point] = []
    for seed in range(2):
        centre, factor = proposals[-1]
        u = scipy.stats.qmc.Sobol(k + 1, seed=seed).random(count)
        z = special.ndtri(u[:, :k]) / np.sqrt(special.gammaincinv(degrees / 2, u[:, k:]) * 2.0 / degrees)
        points += [density.at(phi) for phi in centre + z @ factor.T]
        phi = np.array([point.phi for point in points])
        each = [scipy.stats.multivariate_t(at, root @ root.T, degrees).logpdf(phi) for at, root in proposals]
        proposed = special.logsumexp(each, axis=0) - np.log(len(proposals))
        logs = np.array([point.log_density for point in points]) - proposed
        if seed == 0:
            weights = special.softmax(logs)
            mean = weights @ phi
            spread = (phi - mean).T @ ((phi - mean) * weights[:, None])
            if 1.0 / np.sum(weights**2) > 2.0 * k:
                proposals.append((mean, np.linalg.cholesky(spread)))
            else:
                proposals.append((mode.phi, 1.5 * axes))
    return _mixture(density, mode, points, logs - np.log(len(points)), sampled=True)


def _mixture(
    density: Density,
    mode: Point,
    points: list[Point],
    logs: FloatArray,
    lattice: Lattice | None = None,
    *,
    truncated: bool = False,
    sampled: bool = False,
) -> NestedFit:
    """Make the mixture of points whose parts of the evidence are exp(``logs``); warn where it is not accurate.

    Points of negligible weight are dropped.
    """
    weights = special.softmax(logs)
    order = np.argsort(-weights)
    kept = order[: int(np.searchsorted(np.cumsum(weights[order]), 1.0 - NEGLIGIBLE)) + 1]
    found = NestedFit(
        np.array([points[i].phi for i in kept]),
        weights[kept] / weights[kept].sum(),
        tuple(points[i].fit for i in kept),
        mode,
        float(special.logsumexp(logs)),
        density.failed,
        None if lattice is None else replace(lattice, t=lattice.t[kept], rises=lattice.rises[kept]),
        truncated,
    )
    said = []
    scale = density.conditional.scale
    beside = [
        int(np.argmin(np.sum(((found.phi - point.phi) / scale) ** 2, axis=1)))
        for point in density.points
        if point.log_density == -np.inf
    ]
    if beside and found.weights[np.unique(beside)].sum() > 0.02:  # an error of 0.05 sd
        said.append(
            f"EP did not converge at {found.failed} of {len(density.points)} values of the hyper-parameters, which are "
            "left out although their neighbours have weight."
        )
    if truncated:
        said.append(
            "The posterior of the hyper-parameters was not covered: it is very wide, perhaps because their prior is "
            "improper or too wide."
        )
    if sampled and found.effective < 20.0:  # an error of 0.2 sd
        said.append(f"The integral over the hyper-parameters has {found.effective:.1f} effective points only.")
    if said:
        advice = "Compare with pm.sample(step=pac.TemperingSMC(start=approx))."
        warnings.warn(" ".join([*said, advice]), ConvergenceWarning, stacklevel=5)
    return found


def flat_directions(problem_at: Callable[[FloatArray], Problem], x: FloatArray) -> tuple[list[FloatArray], FloatArray]:
    """Find directions of hyper-parameters without effect on any ranking, and an orthonormal basis of the others.

    The risk does not depend on the length of whitened theta: the evidence is constant where the prior covariance of the
    scores does not change, or is multiplied by a number.
    """
    here = problem_at(x)
    rows = np.random.default_rng(0).permutation(here.n)[:FEWEST_ROWS]

    def scaled(problem: Problem) -> FloatArray:
        """Return the prior covariance of some scores, which a common scale of the prior multiplies."""
        part = problem.scores.whitened_design[rows]
        return (part @ part.T).ravel()

    def unscaled(problem: Problem) -> FloatArray:
        """Return quantities that a common scale of the prior must not change."""
        if problem.spikes is not None:
            return np.concatenate([problem.spikes.inclusion_probability, problem.spikes.ratio])
        return np.append(problem.scores.whitened_offset[rows], problem.absorbed)

    covariance, fixed = scaled(here), unscaled(here)
    size = float(np.linalg.norm(covariance)) or 1.0
    columns = []
    for e in np.eye(x.size):
        up, down = problem_at(x + STEP * e), problem_at(x - STEP * e)
        moved = np.concatenate([(scaled(up) - scaled(down)) / size, unscaled(up) - unscaled(down)])
        columns.append(moved / (2 * STEP))
    change, negligible = np.stack(columns, axis=1), 1e-6
    scale = np.concatenate([covariance / size, np.zeros(fixed.size)])
    _, singular, right = linalg.svd(change, full_matrices=False)
    flat = [direction for value, direction in zip(singular, right, strict=True) if value < negligible]
    if here.scale_free:  # a common factor of the covariance has no effect either
        common = linalg.lstsq(change, scale, cond=negligible)[0]
        if np.linalg.norm(change @ common - scale) < 100 * negligible:
            flat.append(common / np.linalg.norm(common))
    return flat, linalg.null_space(np.stack(flat), rcond=negligible) if flat else np.eye(x.size)
