"""Gaussian-process scores in PyMC: predictions at new points, and the gradient of the evidence in the kernel.

:class:`CompiledCovariance` makes a ``pm.gp.cov`` function callable on NumPy arrays; the algebra is in
:mod:`pymc_pacauc.ep.kernel`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import xarray as xr
from numpy.typing import NDArray
from pymc.pytensorf import compile as compile_function
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors
from scipy import linalg

from pymc_pacauc.ep.gaussian import EPFit
from pymc_pacauc.ep.kernel import TrainingScores, kernel_gradient, moments, pivoted_gradient, predict_scores_at
from pymc_pacauc.ep.plan import FEWEST_ROWS
from pymc_pacauc.model.auc_term import auc_terms
from pymc_pacauc.model.graph import MODE, affine_map, evaluate_at_draws
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.kernel_features import kernel_features

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
    """
    with approx.as_fitted():
        if isinstance(gp, pm.gp.HSGP):  # scores are affine in the coefficients of its features
            centre, change = affine_map(approx.source.function(gp._build_conditional(points)), approx.fit.problem.d)
            mean, variance = moments(approx.posterior, change.T, variances=True)
        else:
            rows = _telling_rows(gp)
            outputs = [gp.cov_func(_rows_of(gp, rows), points), gp.cov_func(points, diag=True), gp.mean_func(points)]
            cross, new, centre = compile_function([], outputs, mode=MODE)()
            known = _training_scores(approx, gp, approx.posterior, rows, jitter)
            mean, variance = predict_scores_at(known, cross, new)
    return mean + centre, variance


def conditional_draws(
    model: pm.Model,
    gp: Any,
    posterior: xr.Dataset,
    points: FloatArray,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """Draw scores at new points from the GP's conditional given every draw, shape (chain, draw, points).

    Returns also their means given the draw, without the conditional noise.
    """
    if isinstance(gp, pm.gp.HSGP):
        found = evaluate_at_draws(model, gp._build_conditional(points), posterior)
        return found, found
    random = [rv for rv in model.free_RVs if rv in set(ancestors([gp.cov_func(points), gp.mean_func(points)]))]
    rows = None if random else _telling_rows(gp)
    X = _rows_of(gp, rows)
    outputs = [gp.cov_func(X), gp.mean_func(X), gp.cov_func(X, points), gp.cov_func(points), gp.mean_func(points)]
    kernel_at = compile_function(random, outputs, mode=MODE, on_unused_input="ignore")
    scores = evaluate_at_draws(model, gp.f, posterior)
    scores = scores if rows is None else scores[..., rows]
    flat = scores.reshape(-1, scores.shape[-1])
    held = [posterior[rv.name].transpose("chain", "draw", ...).values for rv in random]
    held = [value.reshape(len(flat), -1) for value in held]
    values, which = np.unique(np.column_stack([np.zeros(len(flat)), *held]), axis=0, return_inverse=True)
    stops = np.cumsum([1, *(value.shape[1] for value in held)])
    mean, noise = np.empty((2, len(flat), len(points)))
    for k, value in enumerate(values):  # draws that share the parameters of the kernel
        parts = np.split(value, stops)[1:-1]
        given = [part.reshape(posterior[rv.name].shape[2:]) for part, rv in zip(parts, random, strict=True)]
        kernel, centre, cross, new, new_centre = kernel_at(*given)
        factor = np.linalg.cholesky(kernel + JITTER * np.eye(len(kernel)))
        c, some = linalg.solve_triangular(factor, cross, lower=True), which.ravel() == k
        whitened = linalg.solve_triangular(factor, (flat[some] - centre).T, lower=True)
        mean[some] = new_centre + (c.T @ whitened).T
        spread = new - c.T @ c
        noise[some] = rng.multivariate_normal(np.zeros(len(points)), spread, size=int(some.sum()), method="eigh")
    shape = (*scores.shape[:2], len(points))
    return (mean + noise).reshape(shape), mean.reshape(shape)


def check_gp(gp: Any) -> int:
    """Return the number of columns of a process's points; refuse a process without a prior."""
    if not hasattr(gp, "f"):
        raise ValueError("gp has no prior yet: call gp.prior(name, X=...) in the model.")
    return int(gp.cov_func.input_dim)


def gp_evidence_gradient(approx: EPApproximation, gp: Any, over: Sequence[str] | str) -> dict[str, NDArray[np.float64]]:
    """Differentiate EP's log evidence in parameters of a kernel, by PyTensor's derivative of the kernel.

    Parameters
    ----------
    approx : EPApproximation
        As in :func:`predict_gp`.
    gp : pymc.gp.Latent
        As in :func:`predict_gp`.
    over : str or sequence of str
        Names of the ``pm.Data`` that hold the parameters (lengthscales, amplitude).

    Notes
    -----
    Evidence does not depend on the amplitude of a kernel: the risk ignores the scale of the scores. The derivative with
    respect to it is zero, up to the jitter and the tolerance of the fit.
    """
    check_gp(gp)
    names = [over] if isinstance(over, str) else list(over)
    parameters = [approx.model[name] for name in names]
    for name, parameter in zip(names, parameters, strict=True):
        if not isinstance(parameter, SharedVariable) or not parameter.dtype.startswith("float"):
            raise ValueError(f"{name} must be a pm.Data of floating-point numbers; it is {parameter!r}.")
    slope = pt.matrix("slope")
    gradients = pytensor.grad(pt.sum(slope * gp.cov_func(gp.X)), parameters, disconnected_inputs="ignore")
    chain = compile_function([slope], gradients, mode=MODE)
    with approx.as_fitted():
        fit = approx.fit
        pivots = fit.problem.scores.reduced.pivots
        if isinstance(fit, EPFit) and pivots is not None and _scores_are(gp, approx.model):
            found = chain(pivoted_gradient(fit))
        else:
            found = chain(kernel_gradient(_training_scores(approx, gp, fit.posterior)))
    return dict(zip(names, map(np.asarray, found), strict=True))


def _training_scores(
    approx: EPApproximation, gp: Any, posterior: Any, rows: NDArray[np.intp] | None = None, jitter: float = JITTER
) -> TrainingScores:
    """Return the training scores, or some of them, under the approximation, with the kernel's factor."""
    X = _rows_of(gp, rows)
    kernel, centre = compile_function([], [gp.cov_func(X), gp.mean_func(X)], mode=MODE)()
    factor = np.linalg.cholesky(kernel + jitter * np.eye(len(kernel)))
    if _scores_are(gp, approx.model):
        problem, some = approx.fit.problem, slice(None) if rows is None else rows
        return TrainingScores(factor, problem.X[some], problem.offset[some] - centre, posterior)
    graph = gp.f if rows is None else gp.f[rows]
    offset, change = affine_map(approx.source.function(graph), approx.fit.problem.d)
    return TrainingScores(factor, change.T, offset - centre, posterior)


def _telling_rows(gp: Any) -> NDArray[np.intp] | None:
    """Find few training points whose scores determine all others; None for all points.

    A prediction given the scores at these points equals one given all scores.
    """
    X = np.asarray(pt.as_tensor_variable(gp.X).eval(), dtype=np.float64)
    if len(X) < FEWEST_ROWS:
        return None
    most = len(X) // 4  # more would save little
    features = kernel_features(X, CompiledCovariance(gp.cov_func), rank=most, tolerance=1e-7)
    return features.pivots if features.rank < most else None


def _rows_of(gp: Any, rows: NDArray[np.intp] | None) -> Any:
    return gp.X if rows is None else pt.as_tensor_variable(gp.X)[rows]


def _scores_are(gp: Any, model: pm.Model) -> bool:
    """Return whether the model's scores are those of the process, without other terms."""
    terms = auc_terms(model)
    return len(terms) == 1 and terms[0].scores is gp.f
