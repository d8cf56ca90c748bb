"""Gaussian-process scores in PyMC: EP's prediction at new points, and the evidence's gradient in the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from pymc.pytensorf import compile as compile_function
from pytensor.compile.sharedvalue import SharedVariable

from pymc_pacauc.core.risk import numeric_array
from pymc_pacauc.ep.gaussian import EPFit
from pymc_pacauc.ep.kernel import TrainingScores, kernel_gradient, moments, predict_scores_at
from pymc_pacauc.model.approximation import EPApproximation
from pymc_pacauc.model.extract import affine_map
from pymc_pacauc.model.flat import MODE

__all__ = ["KernelDerivative", "gp_evidence_gradient", "predict_gp"]

FloatArray = NDArray[np.float64]

JITTER = 1e-6  # what gp.prior adds by default
ROWS = 50  # of the kernel that are compared with the prior covariance of the scores


def predict_gp(
    approx: EPApproximation, gp: Any, X_new: ArrayLike, *, covariance: bool = False, jitter: float = JITTER
) -> xr.Dataset:
    """Scores at new points under EP's posterior of a Gaussian process, in closed form.

    Parameters
    ----------
    approx
        What ``pm.fit(method=pac.EP())`` returned.
    gp
        The ``pm.gp.Latent`` or ``pm.gp.HSGP`` of the model, after ``gp.prior(...)``.
    X_new
        New points, one a row.
    covariance
        Also return the covariance of the new scores.
    jitter
        What ``gp.prior`` of a Latent added to the diagonal of the kernel matrix (its argument ``jitter``).

    Returns
    -------
    Dataset with ``mean`` and ``sd`` over row, and ``covariance`` if asked for.

    Notes
    -----
    For draws of SMC, use ``gp.conditional`` and ``pm.sample_posterior_predictive``, as in any PyMC model.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> X = np.linspace(-2, 2, 30)[:, None]
    >>> with pm.Model():
    ...     gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    ...     scores = gp.prior("scores", X=X)
    ...     auc = pac.AUCPotential("auc", scores, np.abs(X[:, 0]) < 1, gamma=30)
    ...     approx = pm.fit(method=pac.EP(), progressbar=False)
    >>> predicted = pac.predict_gp(approx, gp, [[0.0], [2.5]])
    >>> bool(predicted["mean"][0] > predicted["mean"][1])
    True
    """
    points = np.atleast_2d(numeric_array("X_new", X_new))
    if not hasattr(gp, "f"):
        raise ValueError("gp has no prior yet: call gp.prior(name, X=...) in the model.")
    if points.shape[1] != gp.cov_func.input_dim:
        raise ValueError(f"X_new has {points.shape[1]} columns, the kernel {gp.cov_func.input_dim} dimensions.")
    predict = _predict_features if isinstance(gp, pm.gp.HSGP) else _predict_latent
    with approx.as_fitted():
        mean, spread = predict(approx, gp, points, covariance, jitter)
    variance = np.diagonal(spread) if covariance else spread
    data: dict[str, Any] = {"mean": ("row", mean), "sd": ("row", np.sqrt(variance))}
    if covariance:
        data["covariance"] = (("row", "other_row"), spread)
    return xr.Dataset(data, coords={"row": np.arange(len(points))})


def gp_evidence_gradient(
    approx: EPApproximation, gp: Any, over: Sequence[str] | str, *, jitter: float = JITTER
) -> dict[str, NDArray[np.float64]]:
    """Derivatives of EP's log evidence with respect to parameters of a kernel, by PyTensor's derivative of the kernel.

    Parameters
    ----------
    approx, gp, jitter
        As in :func:`predict_gp`.
    over
        Names of the ``pm.Data`` that hold the parameters (lengthscales, amplitude).

    Notes
    -----
    Evidence does not depend on the amplitude of a kernel: the risk ignores the scale of the scores. The derivative with
    respect to it is zero, up to the jitter and the tolerance of the fit.
    """
    names = [over] if isinstance(over, str) else list(over)
    derivative = KernelDerivative(approx.model, gp, names, jitter)
    with approx.as_fitted():
        return dict(zip(names, derivative(_training_scores(approx, gp, jitter)), strict=True))


class KernelDerivative:
    """d log Z / d parameters of a kernel, held by ``pm.Data`` of the model; compiled once, read when called."""

    def __init__(self, model: pm.Model, gp: Any, names: Sequence[str], jitter: float = JITTER):
        if not hasattr(gp, "f"):
            raise ValueError("gp has no prior yet: call gp.prior(name, X=...) in the model.")
        parameters = [model[name] for name in names]
        for name, parameter in zip(names, parameters, strict=True):
            if not isinstance(parameter, SharedVariable) or not parameter.dtype.startswith("float"):
                raise ValueError(f"{name} must be a pm.Data of floats.")
        kernel, slope = gp.cov_func(gp.X), pt.matrix("slope")
        gradients = pytensor.grad(pt.sum(slope * kernel), parameters, disconnected_inputs="ignore")
        self._gradients = compile_function([slope], gradients, mode=MODE)
        self._kernel = compile_function([], [kernel, gp.mean_func(gp.X)], mode=MODE)
        self._jitter = jitter

    def __call__(self, scores: TrainingScores) -> list[FloatArray]:
        return [np.asarray(value) for value in self._gradients(kernel_gradient(scores))]

    def of_fit(self, fit: EPFit) -> list[FloatArray]:
        """The same for a fit to scores that are those of the process."""
        problem = fit.problem
        kernel, centre = self._kernel()
        kernel = kernel + self._jitter * np.eye(len(kernel))
        part = problem.prior.whiten_rows(problem.X[:ROWS])
        if len(kernel) != problem.n or not np.allclose(part @ part.T, kernel[:ROWS, :ROWS], rtol=1e-5):
            raise ValueError("The scores of the AUC potential are not those of gp.prior, or its jitter is another one.")
        return self(TrainingScores(np.linalg.cholesky(kernel), problem.X, problem.offset - centre, fit.posterior))


def _predict_latent(
    approx: EPApproximation, gp: Any, points: FloatArray, covariance: bool, jitter: float
) -> tuple[FloatArray, FloatArray]:
    outputs = [gp.cov_func(gp.X, points), gp.cov_func(points, diag=not covariance), gp.mean_func(points)]
    cross, new, centre = compile_function([], outputs, mode=MODE)()
    mean, spread = predict_scores_at(_training_scores(approx, gp, jitter), cross, new)
    return mean + centre, spread


def _predict_features(
    approx: EPApproximation, gp: Any, points: FloatArray, covariance: bool, jitter: float
) -> tuple[FloatArray, FloatArray]:
    """Of an HSGP: new scores are affine in the coefficients of its features."""
    offset, change = affine_map(approx.function(gp._build_conditional(points)), approx.posterior.mean.size)
    mean, spread = moments(approx.posterior, change.T, variances=not covariance)
    return mean + offset, spread


def _training_scores(approx: EPApproximation, gp: Any, jitter: float) -> TrainingScores:
    """EP's posterior of the training scores, and the kernel's factor."""
    kernel, centre = compile_function([], [gp.cov_func(gp.X), gp.mean_func(gp.X)], mode=MODE)()
    factor = np.linalg.cholesky(kernel + jitter * np.eye(len(kernel)))
    offset, change = affine_map(approx.function(gp.f), approx.posterior.mean.size)
    return TrainingScores(factor, change.T, offset - centre, approx.posterior)
