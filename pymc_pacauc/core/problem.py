"""The arrays an engine needs: an AUC Gibbs posterior whose scores are affine in Gaussian variables.

    scores(theta) = X theta + offset,   theta ~ N(prior_mean, prior_covariance),   target = prior * exp(-gamma * risk)

Linear scores, Gaussian-process scores (X = I, covariance K), HSGP features and any PyMC model that is affine in
Gaussian variables all have this form. The risk sees score *differences* only, so the columns of X and the offset may
be centred, and it sees their signs only, so without an offset it ignores the length of (whitened) theta.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from pymc_pacauc.core.pairs import Pairs, bipartite
from pymc_pacauc.core.risk import check_ties, numeric_array

__all__ = [
    "LinearGaussianProblem",
    "SpikeSlabProblem",
    "check_gamma",
    "linear_gaussian_problem",
    "spike_slab_problem",
]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LinearGaussianProblem:
    """Scores ``X @ theta + offset`` under ``theta ~ N(prior_mean, L @ L.T)``.

    Build one with :func:`linear_gaussian_problem`.

    Attributes
    ----------
    X
        Design, shape (n, d).
    pairs
        The pairs compared.
    gamma
        Inverse temperature, multiplying the pair risk.
    prior_mean
        Shape (d,).
    prior_factor
        Shape (d,) for a diagonal prior (standard deviations), else the lower Cholesky factor, shape (d, d).
    offset
        Shape (n,).
    ties
        Cost convention of tied pairs, ``"half"`` or ``"strict"``.
    """

    X: FloatArray
    pairs: Pairs
    gamma: float
    prior_mean: FloatArray
    prior_factor: FloatArray
    offset: FloatArray
    ties: str = "half"

    @property
    def n(self) -> int:
        return self.X.shape[0]

    @property
    def d(self) -> int:
        return self.X.shape[1]

    @cached_property
    def prior_covariance(self) -> FloatArray:
        if self.prior_factor.ndim == 1:
            return np.diag(self.prior_factor**2)
        return self.prior_factor @ self.prior_factor.T

    @cached_property
    def whitened_design(self) -> FloatArray:
        """Z with scores = Z w + whitened_offset (up to a common constant), w ~ N(0, I); columns are centred."""
        centred = self.X - self.X.mean(axis=0)
        return centred * self.prior_factor if self.prior_factor.ndim == 1 else centred @ self.prior_factor

    @cached_property
    def whitened_offset(self) -> FloatArray:
        """Scores at the prior mean, centred; exactly zero where only rounding would be left."""
        scores = self.X @ self.prior_mean + self.offset
        centred = scores - scores.mean()
        return np.where(np.abs(centred).max() > 1e-12 * (1.0 + np.abs(scores).max()), centred, 0.0)

    @property
    def scale_free(self) -> bool:
        """True when the risk depends on the direction of whitened theta alone, so its radius stays chi-distributed."""
        return not self.whitened_offset.any()

    def color(self, w: FloatArray) -> FloatArray:
        """Map whitened coefficients ``w[..., d]`` to theta."""
        return self.prior_mean + (w * self.prior_factor if self.prior_factor.ndim == 1 else w @ self.prior_factor.T)

    def whiten(self, theta: FloatArray) -> FloatArray:
        """Inverse of :meth:`color`."""
        centred = theta - self.prior_mean
        if self.prior_factor.ndim == 1:
            return centred / self.prior_factor
        return linalg.solve_triangular(self.prior_factor, centred.T, lower=True).T

    def __repr__(self) -> str:
        return f"LinearGaussianProblem(n={self.n}, d={self.d}, pairs={self.pairs.n_pairs}, gamma={self.gamma:g})"


def linear_gaussian_problem(
    X: ArrayLike,
    y: ArrayLike | Pairs,
    gamma: float,
    *,
    prior_mean: ArrayLike = 0.0,
    prior_covariance: ArrayLike = 1.0,
    offset: ArrayLike = 0.0,
    ties: str = "half",
    positive: Any = None,
) -> LinearGaussianProblem:
    """Validate arrays into a :class:`LinearGaussianProblem`.

    ``prior_covariance`` is a scalar or vector of variances, or a full matrix; ``y`` labels, or a ready
    :class:`~pymc_pacauc.core.pairs.Pairs`.
    """
    design = numeric_array("X", X).copy()
    if design.ndim != 2 or 0 in design.shape:
        raise ValueError(f"X must be a matrix of shape (n, d) with n, d >= 1; got shape {design.shape}.")
    pairs = y if isinstance(y, Pairs) else bipartite(y, positive)
    n, d = design.shape
    if n != pairs.n:
        raise ValueError(f"X has {n} rows but y has {pairs.n} labels.")
    bad = int(design.size - np.isfinite(design).sum())
    if bad:
        columns = np.flatnonzero(~np.isfinite(design).all(axis=0))[:5].tolist()
        raise ValueError(f"X has {bad} NaN or infinite value(s), in columns {columns}; impute or drop them first.")
    check_ties(ties)
    return LinearGaussianProblem(
        X=design,
        pairs=pairs,
        gamma=check_gamma(gamma),
        prior_mean=_finite("prior_mean", prior_mean, (d,)),
        prior_factor=_factor(prior_covariance, d),
        offset=_finite("offset", offset, (n,)),
        ties=ties,
    )


@dataclass(frozen=True, eq=False)
class SpikeSlabProblem:
    """Scores ``X @ theta + offset`` under independent ``theta_k ~ p N(0, v1) + (1 - p) N(0, v0)``.

    Build one with :func:`spike_slab_problem`. The spike is a point mass at zero where v0 = 0; a coefficient with p = 1
    has the Gaussian prior N(0, v1).

    Attributes
    ----------
    slab_problem
        The same target with every coefficient in the slab.
    inclusion_probability, v0, v1
        p, and the variances of spike and slab, shape (d,).
    """

    slab_problem: LinearGaussianProblem
    inclusion_probability: FloatArray
    v0: FloatArray

    @property
    def v1(self) -> FloatArray:
        return self.slab_problem.prior_factor**2

    @property
    def X(self) -> FloatArray:
        return self.slab_problem.X

    @property
    def n(self) -> int:
        return self.slab_problem.n

    @property
    def d(self) -> int:
        return self.slab_problem.d

    @property
    def pairs(self) -> Pairs:
        return self.slab_problem.pairs

    @property
    def gamma(self) -> float:
        return self.slab_problem.gamma

    @property
    def ties(self) -> str:
        return self.slab_problem.ties

    @cached_property
    def spike(self) -> FloatArray:
        """v0 / v1."""
        return self.v0 / self.v1

    @cached_property
    def log_odds(self) -> FloatArray:
        """log(p / (1 - p)), infinite where p = 1."""
        with np.errstate(divide="ignore"):
            return np.log(self.inclusion_probability) - np.log1p(-self.inclusion_probability)

    def __repr__(self) -> str:
        return f"SpikeSlabProblem(n={self.n}, d={self.d}, pairs={self.pairs.n_pairs}, gamma={self.gamma:g})"


def spike_slab_problem(
    X: ArrayLike,
    y: ArrayLike | Pairs,
    gamma: float,
    *,
    inclusion_probability: ArrayLike,
    v0: ArrayLike,
    v1: ArrayLike = 1.0,
    prior_mean: ArrayLike = 0.0,
    offset: ArrayLike = 0.0,
    ties: str = "half",
    positive: Any = None,
) -> SpikeSlabProblem:
    """Validate arrays into a :class:`SpikeSlabProblem`; ``inclusion_probability``, v0 and v1 are scalars or vectors.

    ``prior_mean`` is for Gaussian coefficients, those with inclusion probability 1; spike and slab are centred at zero.
    """
    if numeric_array("v1", v1).ndim > 1:
        raise ValueError("v1 must be a scalar or a vector: the slabs are independent.")
    slab = linear_gaussian_problem(
        X,
        y,
        gamma,
        prior_mean=prior_mean,
        prior_covariance=v1,
        offset=offset,
        ties=ties,
        positive=positive,
    )
    p = _finite("inclusion_probability", inclusion_probability, (slab.d,))
    if not ((p > 0.0) & (p <= 1.0)).all():
        raise ValueError("inclusion_probability must be in (0, 1]: drop a coefficient that is never included.")
    spike = _finite("v0", v0, (slab.d,))
    if not ((spike >= 0.0) & (spike <= slab.prior_factor**2)).all():
        raise ValueError("v0, the variance of the spike, must be at least 0 and at most v1, that of the slab.")
    if (slab.prior_mean[p < 1.0] != 0.0).any():
        raise ValueError("prior_mean must be 0 where inclusion_probability < 1.")
    return SpikeSlabProblem(slab, p, spike)


def check_gamma(gamma: Any) -> float:
    """A finite, positive float, or a ValueError that says so."""
    try:
        value = float(gamma) if np.ndim(gamma) == 0 else np.nan
    except (TypeError, ValueError):
        value = np.nan
    if not 0.0 < value < np.inf:
        raise ValueError(f"gamma must be one finite number > 0 (it multiplies the pair risk); got {gamma!r}.")
    return value


def _finite(name: str, value: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    array = numeric_array(name, value)
    if array.ndim and array.shape != shape:
        raise ValueError(f"{name} must be a scalar or have shape {shape}; got {array.shape}.")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite.")
    return np.broadcast_to(array, shape).copy()


def _factor(covariance: ArrayLike, d: int) -> FloatArray:
    matrix = numeric_array("prior_covariance", covariance)
    if matrix.ndim < 2:
        variances = _finite("prior_covariance", matrix, (d,))
        if (variances <= 0).any():
            raise ValueError(
                f"prior_covariance has {int((variances <= 0).sum())} variance(s) <= 0: the prior is singular. "
                "Drop those coefficients or give them a positive variance."
            )
        return np.sqrt(variances)
    _finite("prior_covariance", matrix, (d, d))
    if not np.allclose(matrix, matrix.T, rtol=1e-8, atol=1e-12 * np.abs(matrix).max()):
        raise ValueError("prior_covariance must be symmetric.")
    try:
        return np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)
    except np.linalg.LinAlgError:
        smallest = np.linalg.eigvalsh(matrix)[0]
        raise ValueError(
            f"prior_covariance is singular (smallest eigenvalue {smallest:.3g}); add a small multiple of the identity."
        ) from None
