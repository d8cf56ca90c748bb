"""Features of covariates inside a PyMC model: kernel features of a Gaussian process, or additive ones.

The features are computed in the model's graph, so that ``pac.predict_scores`` maps new rows by the same pivots (or
tables) when they replace the ``pm.Data`` with the covariates.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import register_funcify_and_cache_key

from pymc_pacauc.model.gp import CompiledCovariance
from pymc_pacauc.model.op import call_perform
from pymc_pacauc.problem import additive_features as additive
from pymc_pacauc.problem import kernel_features as arrays
from pymc_pacauc.problem.additive_features import AdditiveFeatures
from pymc_pacauc.problem.kernel_features import Kernel, KernelFeatures


class _CalledOnRows:
    def __call__(self, X: Any) -> Any:
        """Return the features of the rows of X: of an array an array, of a variable (``pm.Data``) a variable."""
        return TransformRows(self)(X) if isinstance(X, Variable) else self.transform(X)  # type: ignore[attr-defined]


class ModelFeatures(_CalledOnRows, KernelFeatures):
    """:class:`~pymc_pacauc.problem.kernel_features.KernelFeatures` that can be called on a variable of a model."""


class ModelAdditiveFeatures(_CalledOnRows, AdditiveFeatures):
    """:class:`~pymc_pacauc.problem.additive_features.AdditiveFeatures` that can be called on a variable of a model."""


def kernel_features(
    X: ArrayLike,
    kernel: str | Kernel | pm.gp.cov.Covariance = "squared_exponential",
    *,
    lengthscale: ArrayLike | None = None,
    rank: int = 300,
    tolerance: float = 1e-8,
) -> ModelFeatures:
    """Make features whose linear scores are those of a Gaussian process, as nearly as ``rank`` of them can be.

    Parameters
    ----------
    X : array_like, shape (n, d)
        Covariates, shape (n, d); on comparable scales, unless each has a lengthscale.
    kernel : str or callable, default "squared_exponential"
        ``"squared_exponential"``, ``"matern52"``, ``"matern32"``; a covariance function of ``pm.gp.cov`` without
        random parameters; or any function of two matrices that returns the kernel between their rows.
    lengthscale : float or array_like, shape (d,), optional
        One, or one for each covariate: the kernel is of X divided by it. By default the median distance of rows, or 1
        for a function. :func:`~pymc_pacauc.choose_lengthscale` chooses it by the evidence.
    rank : int, default 300
        Largest number of features.
    tolerance : float, default 1e-08
        Fewer are taken where no row has more than this share of the largest prior variance left.

    Returns
    -------
    ModelFeatures
        To be called on the covariates; ``rank``, ``pivots``, ``left_out`` (the share of the prior variance that the
        features leave out) and ``transform`` are those of the array version.

    Raises
    ------
    ValueError
        If ``kernel`` is unknown or has random parameters, X or ``lengthscale`` has other shapes or values, or ``rank``
        is below 1.

    See Also
    --------
    additive_features : A sum of smooth functions of single columns.
    choose_lengthscale : Choose the lengthscale by the evidence.
    predict_scores : Scores of new rows, whose features are computed automatically.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(200, 2))
    >>> y = (X**2).sum(axis=1) + 0.3 * rng.normal(size=200) > 1.5  # a ring: no line ranks it
    >>> features = pac.kernel_features(X, lengthscale=1.0, rank=50)
    >>> with pm.Model() as model:
    ...     rows = pm.Data("X", X)
    ...     theta = pm.Normal("theta", shape=features.rank)
    ...     auc = pac.AUCPotential("auc", features(rows) @ theta, y, gamma=200)
    ...     approx = pm.fit(method=pac.EP(), progressbar=False)
    >>> predicted = pac.predict_scores(approx, [[0.0, 0.0], [2.0, 0.0]], summary=True)["mean"]
    >>> bool(predicted[1] > predicted[0])
    True
    """
    function = CompiledCovariance(kernel) if isinstance(kernel, pm.gp.cov.BaseCovariance) else kernel
    found = arrays.kernel_features(X, function, lengthscale=lengthscale, rank=rank, tolerance=tolerance)
    return ModelFeatures(**{field.name: getattr(found, field.name) for field in fields(found)})


def additive_features(X: ArrayLike, weights: ArrayLike | None = None) -> ModelAdditiveFeatures:
    """Make features whose linear scores are sums of smooth functions, one for each column.

    Each column has a straight line in its robust score (the mean of its normal score, by ranks, and its standard score,
    truncated at 3), and a few nonlinear functions; a column of at most eight distinct values has a free value at each.

    Parameters
    ----------
    X : array_like, shape (n, d)
        Covariates in any units.
    weights : array_like, shape (n,), optional
        A weight > 0 per row: a row of weight 2 counts as two.

    Returns
    -------
    ModelAdditiveFeatures
        To be called on the covariates; ``rank``, ``column`` (which each feature is of), ``prior_scale`` (1 for lines,
        ``bend`` for bends) and ``transform`` are those of the array version.

    Raises
    ------
    ValueError
        If X is no matrix of finite numbers.

    See Also
    --------
    kernel_features : Features of a Gaussian process of all columns together.
    predict_scores : Scores of new rows, whose features are computed automatically.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(200, 2))
    >>> y = X[:, 0] ** 2 + X[:, 1] + 0.3 * rng.normal(size=200) > 1
    >>> features = pac.additive_features(X)
    >>> with pm.Model() as model:
    ...     rows = pm.Data("X", X)
    ...     theta = pm.Normal("theta", sigma=features.prior_scale(bend=3.0), shape=features.rank)
    ...     auc = pac.AUCPotential("auc", features(rows) @ theta, y, gamma=200)
    ...     approx = pm.fit(method=pac.EP(), progressbar=False)
    >>> predicted = pac.predict_scores(approx, [[0.0, 0.0], [2.0, 0.0]], summary=True)["mean"]
    >>> bool(predicted[1] > predicted[0])
    True
    """
    found = additive.additive_features(X, weights)
    return ModelAdditiveFeatures(found.points, found.tables)


class TransformRows(Op):
    """The features of a matrix of rows, outside the graph: covariates are data, so no gradient goes through."""

    __props__ = ("features",)

    def __init__(self, features: Any):
        self.features = features

    def make_node(self, X: Any) -> Apply:
        rows = pt.as_tensor_variable(X).astype("float64")
        if rows.type.ndim != 2:
            raise ValueError(f"X must be a matrix, one row per observation; got {rows.type.ndim} dimension(s).")
        return Apply(self, [rows], [pt.matrix(dtype="float64", shape=(rows.type.shape[0], self.features.rank))])

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        output_storage[0][0] = np.ascontiguousarray(self.features.transform(inputs[0]))


@register_funcify_and_cache_key(TransformRows)
def numba_funcify_transform_rows(op, node=None, **kwargs):
    return call_perform(op, node)[0], None  # no key: features of the same name may differ
