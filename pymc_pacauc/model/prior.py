"""The Gaussian prior of a model's variables: read off where it is written down, else found from its log-density.

The parameters of a Normal or an MvNormal that depend on no other variable are evaluated as they stand, so that no
covariance is inverted (a kernel matrix is often too close to singular for it) and each is factorised once. For all
others the gradient of the log-density is evaluated at zero and at the unit vectors, which gives mean and precision, and
at random probes, which verify that the prior is Gaussian.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import MvNormalRV, NormalRV

from pymc_pacauc.model.auc_term import refuse
from pymc_pacauc.model.flat import FlatVariables
from pymc_pacauc.model.interpret import evaluate, is_known
from pymc_pacauc.model.probes import Evaluate, affine_map, first_departure

__all__ = ["GaussianPriorReader"]

FloatArray = NDArray[np.float64]


class GaussianPriorReader:
    """Mean and Cholesky factor (or standard deviations) of some variables of a model, one after the other.

    Each call reads the model's ``pm.Data`` anew. ``compiled`` says whether a function had to be compiled, into which
    constants are folded.
    """

    def __init__(self, model: pm.Model, layout: FlatVariables):
        rvs = [model.values_to_rvs[value] for value in layout.values]
        self._layout = layout
        self._written = [_written_moments(model, rv, shape) for rv, shape in zip(rvs, layout.shapes, strict=True)]
        rest = [i for i, moments in enumerate(self._written) if moments is None]
        self._rest = layout.part(rest)
        self._places = layout.places(rest)
        self.compiled = bool(rest)
        if rest:
            self._names = [rvs[i].name for i in rest]
            self._others = [rvs[i].name for i in rest if not isinstance(rvs[i].owner.op, NormalRV | MvNormalRV)]
            self._gradient = _gradient(model, [rvs[i] for i in rest], self._rest)

    def __call__(self) -> tuple[FloatArray, FloatArray]:
        d, parts = self._layout.dimension, self._layout.slices
        found = [
            (np.arange(d)[part], *moments())
            for moments, part in zip(self._written, parts, strict=True)
            if moments is not None
        ]
        if self.compiled:
            found.append((self._places, *_gaussian_prior(self._names, self._others, self._rest, self._gradient)))
        mean = np.zeros(d)
        independent = all(factor.ndim == 1 for _, _, factor in found)
        factors = np.zeros(d if independent else (d, d))
        for places, centre, factor in found:
            mean[places] = centre
            if independent:
                factors[places] = factor
            else:
                factors[np.ix_(places, places)] = np.diag(factor) if factor.ndim == 1 else factor
        return mean, factors


def _gradient(model: pm.Model, rvs: list[Variable], layout: FlatVariables) -> Evaluate:
    """The gradient of the log-density, compiled."""
    logp = pt.sum([pt.sum(term) for term in model.logp(rvs, sum=False)])
    gradients = pytensor.grad(logp, list(layout.values), disconnected_inputs="ignore")
    return layout.function([pt.concatenate([g.ravel() for g in gradients])])


def _written_moments(
    model: pm.Model, rv: Variable, shape: tuple[int, ...]
) -> Callable[[], tuple[FloatArray, FloatArray]] | None:
    """Mean, and factor or standard deviations, of a variable that shares no parameter with others; None for others."""
    op = rv.owner.op
    normal, joint = isinstance(op, NormalRV), isinstance(op, MvNormalRV) and rv.type.ndim == 1
    if not (normal or joint) or model.rvs_to_transforms[rv] is not None:
        return None
    parameters = op.dist_params(rv.owner)
    children = [other for other in model.free_RVs if other is not rv]
    if rv in set(ancestors(children)) or not is_known(parameters):
        return None
    if joint:

        def moments() -> tuple[FloatArray, FloatArray]:
            centre, matrix = evaluate(parameters)
            return centre, _stabilised_factor(rv.name, np.asarray(matrix, dtype=np.float64))

        return moments

    def independent() -> tuple[FloatArray, FloatArray]:
        centre, sd = (np.broadcast_to(value, shape).astype(np.float64).ravel() for value in evaluate(parameters))
        if not (np.isfinite(centre).all() and np.isfinite(sd).all() and (sd > 0.0).all()):
            raise refuse(f"the prior of {rv.name} has a mean or a standard deviation that is not possible")
        return centre, sd

    return independent


def _stabilised_factor(name: str, covariance: FloatArray) -> FloatArray:
    """The Cholesky factor, with the smallest jitter that makes it exist; a jitter is reported."""
    scale = float(np.diagonal(covariance).mean())
    for relative in (0.0, *np.logspace(-14, -6, 9)):
        try:
            factor = np.linalg.cholesky(covariance + relative * scale * np.eye(len(covariance)))
        except np.linalg.LinAlgError:
            continue
        if relative:
            warnings.warn(
                f"The prior covariance of {name} is not positive definite in floating point: {relative * scale:.1e} "
                "was added to its diagonal. Add a jitter of your own to be rid of this message.",
                stacklevel=4,
            )
        return np.asarray(factor, dtype=np.float64)
    smallest = np.linalg.eigvalsh(covariance)[0]
    raise ValueError(f"The prior covariance of {name} is not positive definite (smallest eigenvalue {smallest:.2g}).")


def _gaussian_prior(
    names: list[str], others: list[str], layout: FlatVariables, gradient: Evaluate
) -> tuple[FloatArray, FloatArray]:
    """Mean and factor (or standard deviations), from the gradient of the prior's log-density.

    ``others`` are those that were not written as normal variables.
    """
    d = layout.dimension
    slope, change = affine_map(gradient, d)
    precision = -0.5 * (change + change.T)

    def departs(theta: FloatArray) -> bool:
        value, expected = gradient(theta)[0], slope - theta @ precision
        return not np.allclose(value, expected, rtol=1e-5, atol=1e-7 * (1 + np.abs(expected).max()))

    name = first_departure(names, layout, departs, others)
    if name is not None:
        raise refuse(f"the prior of {name} is not Gaussian (in its unconstrained value)")
    diagonal = np.diagonal(precision)
    if not np.any(precision - np.diag(diagonal)):
        if (diagonal <= 0).any():
            raise refuse("its prior is improper: some precisions are not positive")
        return slope / diagonal + 0.0, diagonal**-0.5  # + 0.0: no negative zeros
    try:
        factor = np.linalg.cholesky(precision)
    except np.linalg.LinAlgError:
        raise refuse("its prior precision is not positive definite") from None
    root = np.linalg.solve(factor, np.eye(d))  # precision^-1 = root' root
    return root.T @ (root @ slope), np.linalg.cholesky(root.T @ root)
