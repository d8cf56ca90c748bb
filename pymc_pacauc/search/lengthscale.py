"""Lengthscales of kernel features by maximal evidence.

The evidence of a few multiples of the median distance is compared, and its maximum approached from the best of them by
L-BFGS in the logarithms, one lengthscale for all covariates or one for each (automatic relevance determination). The
gradient is exact for given pivots (:func:`~pymc_pacauc.ep.kernel.feature_slopes`), and costs about a sweep, however
many lengthscales there are. Each fit starts from the sites of the one before, seen by the new features.

Where pairs are many they are dealt (:mod:`pymc_pacauc.ep.dealt`): anew for each lengthscale of the grid and for the one
chosen, and once for the search between them, so that the evidence it climbs is as smooth as that of all pairs.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize
from scipy.spatial.distance import cdist

from pymc_pacauc.core.covariances import COVARIANCES, Covariance, median_distance
from pymc_pacauc.core.kernel_features import KernelFeatures, checked_rows, kernel_features
from pymc_pacauc.core.pairs import Pairs, bipartite
from pymc_pacauc.core.problem import linear_gaussian_problem
from pymc_pacauc.ep.dealt import fit_dealt, groups_to_deal
from pymc_pacauc.ep.gaussian import EPFit, carried_over, fit_ep
from pymc_pacauc.ep.kernel import feature_slopes
from pymc_pacauc.ep.results import ConvergenceWarning

__all__ = ["LengthscaleChoice", "choose_lengthscale", "lengthscale_gradient"]

FloatArray = NDArray[np.float64]

GRID = (0.25, 0.5, 1.0, 2.0)  # times the median distance
FARTHEST = 4.0  # the logarithms move at most so far from the grid's best
GRID_TOLERANCE, TOLERANCE = 1e-3, 1e-6  # of the fits
SLOPE = 1e-2  # nats per unit of a logarithm at which the search ends


@dataclass(frozen=True, eq=False)
class LengthscaleChoice:
    """What :func:`choose_lengthscale` found.

    Attributes
    ----------
    features
        The :class:`~pymc_pacauc.core.kernel_features.KernelFeatures` with the lengthscales chosen.
    fit
        EP's fit to them.
    trace
        A record per evaluation: ``lengthscale``, ``log_evidence``, its ``sampling_error`` (0 unless pairs are dealt),
        ``left_out``.
    converged, message
        How the search ended.
    """

    features: KernelFeatures
    fit: EPFit
    trace: tuple[dict[str, Any], ...]
    converged: bool
    message: str

    @property
    def lengthscale(self) -> FloatArray:
        """One for each covariate, shape (d,)."""
        return self.features.lengthscale

    @property
    def log_evidence(self) -> float:
        return self.fit.log_evidence

    def __repr__(self) -> str:
        scales = np.unique(self.lengthscale)
        shown = f"{scales[0]:.3g}" if scales.size == 1 else f"{scales[0]:.3g} to {scales[-1]:.3g}"
        return (
            f"LengthscaleChoice(lengthscale {shown}, log_evidence={self.log_evidence:.3f}, {self.features.rank} "
            f"features, {len(self.trace)} evaluations{'' if self.converged else ', NOT converged'})"
        )


def choose_lengthscale(
    X: ArrayLike,
    y: ArrayLike | Pairs,
    gamma: float,
    kernel: str = "squared_exponential",
    *,
    each: bool = False,
    rank: int = 300,
    grid: Sequence[float] = GRID,
    max_evaluations: int = 30,
    n_jobs: int | None = None,
) -> LengthscaleChoice:
    """Choose the lengthscale of kernel features by EP's log evidence.

    Parameters
    ----------
    X
        Covariates, shape (n, d), on comparable scales unless ``each``.
    y
        Labels, or a ready :class:`~pymc_pacauc.core.pairs.Pairs`.
    gamma
        Inverse temperature of the fits, all at the same: evidence cannot choose it.
    kernel
        ``"squared_exponential"``, ``"matern52"`` or ``"matern32"``.
    each
        One lengthscale for each covariate instead of one for all; a covariate that does not matter gets a long one.
    rank
        Of the features, at most.
    grid
        Multiples of the median distance to begin with; the search goes on from the best.
    max_evaluations
        Of the evidence and its gradient after the grid; 0 for the grid alone.
    n_jobs
        Threads, by default one per core.

    Notes
    -----
    A prior chosen on the data leaves no certificate: :func:`~pymc_pacauc.certificate` refuses ``fit``. It holds for
    features with lengthscales chosen on other rows.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(200, 2))
    >>> y = X[:, 0] ** 2 + 0.3 * rng.normal(size=200) > 0.5
    >>> found = choose_lengthscale(X, y, gamma=200, each=True)
    >>> bool(found.lengthscale[1] > 3 * found.lengthscale[0])  # the second covariate does not matter
    True
    """
    rows = checked_rows(X)
    if kernel not in COVARIANCES:
        raise ValueError(f"kernel must be one of {', '.join(COVARIANCES)}; got {kernel!r}.")
    multiples = np.atleast_1d(np.asarray(grid, dtype=np.float64))
    if multiples.ndim != 1 or not multiples.size or not (np.isfinite(multiples) & (multiples > 0.0)).all():
        raise ValueError(f"grid must hold positive multiples of the median distance; got {grid!r}.")
    pairs = y if isinstance(y, Pairs) else bipartite(y)
    units = np.where(rows.std(axis=0) > 0.0, rows.std(axis=0), 1.0) if each else np.ones(rows.shape[1])
    base = np.log(units * median_distance(rows / units))
    evidence = _Evidence(rows, pairs, gamma, kernel, rank, n_jobs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        values = [
            evidence.fit(base + np.log(multiple), GRID_TOLERANCE, anew=True)[1].log_evidence for multiple in multiples
        ]
        start = base + np.log(multiples[int(np.nanargmax(values))])
        free = np.eye(base.size) if each else np.ones((base.size, 1))

        t, converged, message = np.zeros(free.shape[1]), True, "the best of the grid"
        if max_evaluations > 0:
            # The first step of L-BFGS is as long as the gradient: in these units a factor of two at most.
            unit = max(1.0, 1.5 * float(np.abs(evidence(start, anew=True)[1] @ free).max()))

            def objective(t: FloatArray) -> tuple[float, FloatArray]:
                value, gradient = evidence(start + free @ t)
                return -value / unit, -(gradient @ free) / unit

            found = optimize.minimize(
                objective,
                t,
                jac=True,
                method="L-BFGS-B",
                bounds=[(-FARTHEST, FARTHEST)] * t.size,
                options={"maxfun": max_evaluations, "gtol": SLOPE / unit, "ftol": 1e-7},
            )
            t, converged, message = found.x, bool(found.success), str(found.message)
    features, best = evidence.fit(start + free @ t, TOLERANCE, anew=True)
    return LengthscaleChoice(features, best, tuple(evidence.trace), converged and best.converged, message)


class _Evidence:
    """Log evidence and its gradient in the logarithms of the lengthscales, each fit from the sites of the last."""

    def __init__(self, rows: FloatArray, pairs: Pairs, gamma: float, kernel: str, rank: int, n_jobs: int | None):
        self._rows, self._pairs, self._gamma, self._n_jobs = rows, pairs, gamma, n_jobs
        self._kernel, self._rank = kernel, rank
        self._last: EPFit | None = None
        self._groups: float | None = None  # the same for all lengthscales
        self.trace: list[dict[str, Any]] = []

    def fit(self, log_scales: FloatArray, tolerance: float, *, anew: bool = False) -> tuple[KernelFeatures, EPFit]:
        """EP's fit; of dealt pairs, to the deal of the last one unless dealt anew."""
        features = kernel_features(self._rows, self._kernel, lengthscale=np.exp(log_scales), rank=self._rank)
        problem = linear_gaussian_problem(features.transform(self._rows), self._pairs, self._gamma)
        problem = replace(problem, tuned_prior=True)
        start = None if self._last is None else carried_over(self._last, problem)
        if self._last is None:
            self._groups = groups_to_deal(problem, "auto")
        if self._groups is None:
            self._last = fit_ep(problem, start=start, tolerance=tolerance, n_jobs=self._n_jobs)
        else:
            start = replace(start, deal=None) if start is not None and anew else start
            self._last = fit_dealt(problem, self._groups, start=start, tolerance=tolerance, n_jobs=self._n_jobs)
        self.trace.append(
            {
                "lengthscale": features.lengthscale,
                "log_evidence": self._last.log_evidence,
                "sampling_error": self._last.sampling_error.log_evidence,
                "left_out": features.left_out,
            }
        )
        return features, self._last

    def __call__(self, log_scales: FloatArray, *, anew: bool = False) -> tuple[float, FloatArray]:
        features, fit = self.fit(log_scales, TOLERANCE, anew=anew)
        return fit.log_evidence, lengthscale_gradient(features, fit, self._rows)


def lengthscale_gradient(features: KernelFeatures, fit: EPFit, X: FloatArray) -> FloatArray:
    """d log Z / d log lengthscale of each covariate, for EP's fit to ``features.transform(X)`` with prior N(0, I)."""
    kernel, rows, points = features.kernel, X / features.lengthscale, features.points
    assert isinstance(kernel, Covariance)
    in_cross, in_pivots = feature_slopes(fit, features.factor, fit.problem.scores.reduced.rotation)
    return _chained(kernel, in_cross, rows, points) + _chained(kernel, in_pivots, points, points)


def _chained(kernel: Covariance, slope: FloatArray, rows: FloatArray, points: FloatArray) -> FloatArray:
    """sum(slope * dK / d log lengthscale), K the kernel between rows and points: K depends on the squared differences
    of their coordinates, and each falls by twice itself.
    """
    weights = slope * kernel.slope(cdist(rows, points, "sqeuclidean"))
    squares = weights.sum(axis=1) @ rows**2 + weights.sum(axis=0) @ points**2
    return -2.0 * (squares - 2.0 * np.einsum("ij,ij->j", rows, weights @ points))
