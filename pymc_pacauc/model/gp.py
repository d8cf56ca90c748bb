"""Gaussian-process scores in PyMC: predictions at new points.

:class:`CompiledCovariance` makes a ``pm.gp.cov`` function callable on NumPy arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from pymc.pytensorf import compile as compile_function
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors
from scipy import linalg

from pymc_pacauc.model.graph import MODE, evaluate_at_draws, read_affine
from pymc_pacauc.numerics import FloatArray

if TYPE_CHECKING:
    from pymc_pacauc.model.approximation import EPApproximation


class CompiledCovariance:
    """``kernel(X, others)`` and ``kernel.diag(X)`` of a ``pm.gp.cov`` function.

    The parameters of the kernel are read when it is called, and must not be random.
    """

    def __init__(self, covariance: Any):
        X, others = pt.matrix("X"), pt.matrix("others")
        self.input_dim = int(covariance.input_dim)
        self._cross = compile_function([X, others], covariance(X, others), mode=MODE)
        self._diagonal = compile_function([X], covariance(X, diag=True), mode=MODE)

    def __call__(self, X: FloatArray, others: FloatArray) -> FloatArray:
        return np.asarray(self._cross(X, others), dtype=np.float64)

    def diag(self, X: FloatArray) -> FloatArray:
        values = np.asarray(self._diagonal(X), dtype=np.float64)
        return np.broadcast_to(values, (len(X),)).copy()


JITTER = 1e-6  # what gp.prior adds by default


def predict_gp(
    approx: EPApproximation, gp: Any, points: FloatArray, *, jitter: float = JITTER
) -> tuple[FloatArray, FloatArray]:
    """Compute mean and variances of the scores at new points under EP's posterior, in closed form.

    ``gp`` is the ``pm.gp.Latent`` or ``pm.gp.HSGP`` of the model, after ``gp.prior(...)``; ``jitter`` is the number
    that ``gp.prior`` of a Latent added to the diagonal of the kernel matrix.

    Scores s of a Latent at the training points, with kernel matrix K, are affine in theta. At a new point, with kernel
    c, the conditional score is c' K^-1 s plus noise of variance k** - c' K^-1 c.
    """
    noise, hsgp = np.zeros(len(points)), isinstance(gp, pm.gp.HSGP)
    with approx.as_fitted():  # of an HSGP scores are affine in the coefficients of its features
        scores = gp._build_conditional(points) if hsgp else gp.f
        offset, slopes = read_affine(scores, approx.source.variables, approx.source.layout.shapes)
        if not hsgp:
            outputs = [gp.cov_func(gp.X), gp.cov_func(gp.X, points), gp.cov_func(points, diag=True)]
            outputs += [gp.mean_func(gp.X), gp.mean_func(points)]
            kernel, cross, new, centre, new_centre = compile_function([], outputs, mode=MODE)()
            weights = linalg.solve(kernel + jitter * np.eye(len(kernel)), cross, assume_a="pos")
            offset, slopes = new_centre + (offset - centre) @ weights, slopes @ weights
            noise = new - np.einsum("ij,ij->j", cross, weights)
    posterior = approx.posterior
    return offset + posterior.score_mean @ slopes, noise + posterior.moments_of(slopes.T, variances=True)[1]


def conditional_draws(
    model: pm.Model, gp: Any, posterior: xr.Dataset, points: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Draw scores at new points from the GP's conditional given every draw, shape (chain, draw, points).

    Returns also their means given the draw, without the conditional noise.
    """
    if isinstance(gp, pm.gp.HSGP):
        found = evaluate_at_draws(model, gp._build_conditional(points), posterior)
        return found, found
    random = [rv for rv in model.free_RVs if rv in set(ancestors([gp.cov_func(points), gp.mean_func(points)]))]
    f = pt.vector("f")
    conditional = gp._build_conditional(points, gp.X, f, gp.cov_func, gp.mean_func, JITTER)
    values_of = pt.matrix("values")
    moments_at = compile_function([values_of, *random], vectorize_graph(conditional, {f: values_of}), mode=MODE)
    scores = evaluate_at_draws(model, gp.f, posterior)
    flat = scores.reshape(-1, scores.shape[-1])
    held = [posterior[rv.name].transpose("chain", "draw", ...).values for rv in random]
    held = [value.reshape(len(flat), -1) for value in held]
    values, which = np.unique(np.column_stack([np.zeros(len(flat)), *held]), axis=0, return_inverse=True)
    stops = np.cumsum([1, *(value.shape[1] for value in held)])
    mean, noise = np.empty((2, len(flat), len(points)))
    for k, value in enumerate(values):  # draws that share the parameters of the kernel
        parts = np.split(value, stops)[1:-1]
        given = [part.reshape(posterior[rv.name].shape[2:]) for part, rv in zip(parts, random, strict=True)]
        some = which.ravel() == k
        mean[some], spread = moments_at(flat[some], *given)
        noise[some] = rng.multivariate_normal(np.zeros(len(points)), spread, size=int(some.sum()), method="eigh")
    shape = (*scores.shape[:2], len(points))
    return (mean + noise).reshape(shape), mean.reshape(shape)


def check_gp(gp: Any) -> int:
    """Return the number of columns of a process's points; refuse a process without a prior."""
    if not hasattr(gp, "f"):
        raise ValueError("gp has no prior yet: call gp.prior(name, X=...) in the model.")
    return int(gp.cov_func.input_dim)
