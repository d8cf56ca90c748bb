"""The regularisation path of a spike-and-slab prior over the spike's variance (the paper's Figure 3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike

from pymc_pacauc.core.pairs import bipartite
from pymc_pacauc.core.problem import Problem, Spikes, default_inclusion_probability, spike_slab_problem
from pymc_pacauc.core.theorems import theorem_defaults
from pymc_pacauc.fitting import MAX_SWEEPS, Fit, fit
from pymc_pacauc.model.extract import problem_of

__all__ = ["regularization_path"]


def regularization_path(
    model_or_data: Any = None,
    v0: ArrayLike | None = None,
    *,
    gamma: float | None = None,
    p: ArrayLike | None = None,
    v1: ArrayLike = 1.0,
    tolerance: float = 1e-4,
    max_sweeps: int = MAX_SWEEPS,
    n_jobs: int | None = None,
) -> xr.Dataset:
    """Fit a spike-and-slab prior by EP for a range of spike variances, each fit starting from the last.

    Parameters
    ----------
    model_or_data
        A model with one :func:`~pymc_pacauc.SpikeSlab` variable (its own v0 is ignored), a pair (X, y), or a data set
        of this package; by default the model on the context stack.
    v0
        Spike variances; by default 13 of them from 1e-6 to 0.1 times the slab's, as in the paper.
    gamma, p, v1
        For data: the inverse temperature (by default Theorem 2.5's), probability and variance of the slab.
    tolerance, max_sweeps, n_jobs
        As for :func:`~pymc_pacauc.fitting.fit`. A fit that does not converge is a NaN in the path's values; it
        is marked in ``converged``, with a warning, and the path goes on from the last one that did.

    Returns
    -------
    Dataset over (v0, feature): ``coefficient`` (posterior mean), ``sd``, ``inclusion_probability``; over v0:
    ``log_evidence``, ``expected_risk``, ``expected_model_size``, ``sweeps``, ``converged``. Draw it
    with :func:`~pymc_pacauc.plot_regularization_path`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(1).normal(size=(80, 4))
    >>> path = regularization_path((X, X[:, 0] > 0.2), v0=[0.01, 0.1], gamma=80, p=0.2)
    >>> path["inclusion_probability"].sel(v0=0.01).values.round(0)
    array([1., 0., 0., 0.])
    """
    problem, dim, labels = _problem(model_or_data, gamma, p, v1)
    assert problem.spikes is not None
    v1 = problem.prior.factor**2
    grid = np.geomspace(1e-6, 0.1, 13) * v1.max() if v0 is None else np.unique(np.asarray(v0, dtype=float))
    rows: list[dict[str, Any]] = []
    start: Fit | None = None
    for value in grid[::-1]:  # from wide to narrow
        spikes = Spikes(problem.spikes.inclusion_probability, np.minimum(value / v1, 1.0))
        target = replace(problem, spikes=spikes)
        found = fit(target, start=start, tolerance=tolerance, max_sweeps=max_sweeps, n_jobs=n_jobs)
        start = found if found.converged else start
        rows.append(_row(found))
    rows.reverse()
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return xr.Dataset(
        {name: (("v0", dim)[: values.ndim], values) for name, values in columns.items()},
        coords={"v0": grid, dim: labels},
        attrs={"gamma": problem.gamma, "n": problem.n},
    )


def _row(fit: Fit) -> dict[str, Any]:
    usable = 1.0 if fit.converged else np.nan
    return {
        "coefficient": usable * fit.posterior.mean,
        "sd": usable * np.sqrt(fit.posterior.variance),
        "inclusion_probability": usable * fit.inclusion_probability,
        "log_evidence": usable * fit.log_evidence,
        "expected_risk": usable * fit.expected_risk,
        "expected_model_size": usable * fit.inclusion_probability.sum(),
        "sweeps": fit.sweeps,
        "converged": fit.converged,
    }


def _problem(model_or_data: Any, gamma: Any, p: Any, v1: Any) -> tuple[Problem, str, Any]:
    if model_or_data is None or isinstance(model_or_data, pm.Model):
        model = pm.modelcontext(model_or_data)
        source = problem_of(model)
        if len(source.sparse) != 1 or len(source.variables) > 1:
            raise ValueError("The model needs one pac.SpikeSlab variable, and no other free variable.")
        [dim] = model.named_vars_to_dims.get(source.names[0]) or ["feature"]
        labels = model.coords.get(dim)
        return source.problem, dim, np.arange(source.problem.d) if labels is None else list(labels)
    names = getattr(model_or_data, "feature_names", None)
    X, y = (model_or_data.X, model_or_data.y) if hasattr(model_or_data, "X") else model_or_data
    if hasattr(X, "columns"):
        names = list(X.columns)
    design = np.asarray(X, dtype=np.float64)
    pairs = bipartite(y)
    [block] = pairs.blocks
    defaults = theorem_defaults(block.positive.size, block.negative.size, design.shape[1])
    problem = spike_slab_problem(
        design,
        pairs,
        defaults.gamma if gamma is None else gamma,
        inclusion_probability=default_inclusion_probability(design.shape[1]) if p is None else p,
        v0=0.0,
        v1=v1,
    )
    return problem, "feature", np.arange(problem.d) if names is None else list(names)
