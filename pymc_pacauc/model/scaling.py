"""Covariates of very different scale, which the prior turns into very different importance.

`benchmarks/scales.py` spreads the scales of the covariates over a ratio. Where the large ones rank best, nothing
happens, up to a ratio of a million. Where they rank worst, the posterior itself loses: on Pima the mean score's AUC is
0.85 up to a ratio of ten, 0.76 at a hundred, 0.69 at a million; from a hundred on EP may stop before its fixed point or
be a nat or two off, and SMC from the prior moves badly, which it says. So the warning is about the prior first, and
starts at a hundred.
"""

from __future__ import annotations

import warnings

import numpy as np
import pymc as pm
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors

from pymc_pacauc.model.auc_term import auc_terms
from pymc_pacauc.model.extract import ModelProblem

__all__ = ["MOST", "ScaleWarning", "warn_of_scales"]

MOST = 100.0  # ratio of standard deviations


class ScaleWarning(UserWarning):
    """Covariates whose scales differ so much that the prior excludes some of them."""


def warn_of_scales(source: ModelProblem) -> None:
    """Warn where scores are X @ theta and its columns, and the terms of the scores under the prior, differ too much.

    Then the scores are those of the largest covariates, whatever the labels say, unless theta is far out in the tails
    of its prior.
    """
    problem = source.problem
    if not problem.prior.independent:
        return
    for variable, part in zip(source.variables, source.layout.slices, strict=True):
        X = problem.X[:, part]
        if variable.type.ndim != 1 or not any(np.array_equal(X, matrix) for matrix in _matrices(source.model)):
            continue
        raw = X.std(axis=0)
        scale, moving = raw * problem.prior.factor[part], np.flatnonzero(raw > 0)
        if moving.size and all(sd[moving].max() > MOST * sd[moving].min() for sd in (raw, scale)):
            low, high = moving[scale[moving].argmin()], moving[scale[moving].argmax()]
            warnings.warn(
                f"The covariates of {variable.name} have very different scales: column {high} varies "
                f"{scale[high] / scale[low]:.2g} times as much as column {low}, in units of the prior. Then the prior "
                "decides which of them count: unless the large ones rank best, the AUC suffers, and "
                "Expectation-Propagation may be off or not converge. Standardise the covariates.",
                ScaleWarning,
                stacklevel=4,
            )


def _matrices(model: pm.Model) -> list[np.ndarray]:
    """The data matrices that feed the scores."""
    found = []
    for v in ancestors([term.scores for term in auc_terms(model)]):
        if getattr(v.type, "ndim", 0) == 2 and isinstance(v, SharedVariable):
            found.append(v.get_value(borrow=True))
        elif getattr(v.type, "ndim", 0) == 2 and isinstance(v, Constant):
            found.append(np.asarray(v.data))
    return found
