"""Choose hyper-parameters of the prior by maximal evidence, and compute regularisation paths of spike and slab.

*Maximal evidence* (:func:`maximize_evidence`). The hyper-parameters are ``pm.Data`` of the model: scales of groups or
of single covariates (ARD), lengthscales, v0 and v1 of a spike-and-slab prior. Their logarithms are optimised by L-BFGS
with EP's gradient. The model is compiled once; for other values its prior and
scores are evaluated again, and EP starts from its last fit. The search is that of :mod:`pymc_pacauc.tune.nested` with a
flat prior; to integrate over hyper-parameters instead, give them priors and use ``pm.fit(method=pac.EP())``.

*Flat directions.* The risk does not depend on the length of whitened theta, so the evidence does not depend on a common
factor of all prior scales, and an optimiser would follow rounding errors. Before the search, directions of the
hyper-parameters that do not change the prior covariance of the scores, or multiply it by a number, are found; they are
reported, and the search is restricted to the orthogonal complement.

*Regularisation path* (:func:`regularization_path`): posterior means and inclusion probabilities over the spike's
variance v0, from wide to narrow.

Reference: Ridgway, Alquier, Chopin & Liang (2014), arXiv:1410.1771, section 3.1 and Figure 3.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike
from pytensor.graph.traversal import ancestors
from rich.progress import TextColumn

from pymc_pacauc.array_result import HTMLReport
from pymc_pacauc.ep.plan import ACCURACIES
from pymc_pacauc.ep.results import Fit
from pymc_pacauc.fitting import fit
from pymc_pacauc.interrupt import raises_interrupts
from pymc_pacauc.model.approximation import EPApproximation
from pymc_pacauc.model.auc_term import auc_terms
from pymc_pacauc.model.compat import LateBar
from pymc_pacauc.model.graph import entry_labels
from pymc_pacauc.model.inference import approximate
from pymc_pacauc.model.read import ProblemReader, problem_of
from pymc_pacauc.model.results import mark_tuned
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.problem import Problem, Spikes, check_gamma, default_inclusion_probability, spike_slab_problem
from pymc_pacauc.problem.provenance import sides
from pymc_pacauc.theorems import theorem_defaults
from pymc_pacauc.tune.nested import FARTHEST, Conditional, Density, Point, find_mode, flat_directions


@dataclass(frozen=True, eq=False)
class EvidenceMaximum(HTMLReport):
    """Hyper-parameters that :func:`maximize_evidence` found, with the approximation there.

    Attributes
    ----------
    values : dict of str to float or ndarray
        The hyper-parameters chosen, by name. The model holds them too.
    approx : EPApproximation
        The EP approximation there.
    log_evidence, start_log_evidence : float
        At the chosen values and at the values the model had, in nats.
    flat : tuple of str
        Directions along which the evidence is constant, in words; the search left them alone.
    trace : DataFrame
        A row per evaluation: log evidence, norm of the (projected) gradient, and the values.
    converged : bool
        Whether the gradient fell below the tolerance.
    message : str
        How the search ended.
    at_limit : tuple of str
        Hyper-parameters that ran into the limit of the search: the evidence still grows as they do (or shrink).

    See Also
    --------
    maximize_evidence : Make the search.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> X = np.random.default_rng(1).normal(size=(40, 2))
    >>> with pm.Model() as model:
    ...     shift = pm.Data("scale", [1.0, 1.0])
    ...     theta = pm.Normal("theta", 0.0, shift, shape=2)
    ...     auc = pac.AUCPotential("auc", X @ theta, X[:, 0] > 0.3, gamma=20)
    >>> found = pac.maximize_evidence(model, over=["scale"], max_evaluations=5, progressbar=False)
    >>> found.log_evidence >= found.start_log_evidence
    True
    """

    values: dict[str, Any]
    approx: EPApproximation
    log_evidence: float
    start_log_evidence: float
    flat: tuple[str, ...]
    trace: pd.DataFrame
    converged: bool
    message: str
    at_limit: tuple[str, ...]

    def __repr__(self) -> str:
        lines = [
            f"Evidence maximum: log Z {self.start_log_evidence:.3f} -> {self.log_evidence:.3f} "
            f"in {len(self.trace)} evaluations" + ("" if self.converged else f" (NOT converged: {self.message})")
        ]
        lines += [
            f"  {name} = {np.array2string(np.asarray(value), precision=4)}" for name, value in self.values.items()
        ]
        lines += [f"  flat, not changed: {description}" for description in self.flat]
        lines += [f"  at the limit of the search: {name}" for name in self.at_limit]
        return "\n".join(lines)


@raises_interrupts
def maximize_evidence(
    model: pm.Model | None = None,
    over: Sequence[str] | str = (),
    *,
    max_evaluations: int = 100,
    tolerance: float = 1e-3,
    progressbar: bool = True,
) -> EvidenceMaximum:
    """Choose hyper-parameters of the prior by maximising EP's log evidence.

    Parameters
    ----------
    model : pymc.Model, optional
        A model whose scores are affine in Gaussian variables; by default the one on the context stack.
    over : str or sequence of str, default ()
        Names of the ``pm.Data`` that hold the hyper-parameters: positive numbers, or arrays of them. For a probability,
        such as p of a :func:`~pymc_pacauc.SpikeSlab`, put the odds into ``pm.Data`` and ``odds / (1 + odds)`` into the
        model.
    max_evaluations : int, default 100
        Evaluations of evidence and gradient after which to stop.
    tolerance : float, default 0.001
        Largest entry of the gradient, in nats per unit of a log-parameter, at which to stop.
    progressbar : bool, default True
        Whether to show one when it takes more than a second.

    Returns
    -------
    EvidenceMaximum
        The model keeps the chosen values, so that ``pm.fit`` and ``pm.sample`` use them.

    Raises
    ------
    ValueError
        If ``over`` is a mapping, or names what is no ``pm.Data`` of positive numbers in the prior, or the model cannot
        be fitted by EP.

    Warns
    -----
    ConvergenceWarning
        If the search stops before the gradient is below ``tolerance``.

    See Also
    --------
    regularization_path : Fit a range of spike variances.
    choose_lengthscale : Choose the lengthscale of kernel features.
    compare : Compare given models by their evidence.

    Notes
    -----
    Evidence compares priors on the data at hand: a certificate for the fit no longer holds, because its prior was not
    fixed beforehand, and :func:`~pymc_pacauc.certificate` refuses it.

    Examples
    --------
    Which of two groups of covariates matters?

    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(200, 6))
    >>> y = X[:, :3].sum(axis=1) + rng.normal(size=200) > 0
    >>> with pm.Model() as model:
    ...     scale = pm.Data("scale", [1.0, 1.0])
    ...     theta = pm.Normal("theta", 0.0, scale[[0, 0, 0, 1, 1, 1]], shape=6)
    ...     auc = pac.AUCPotential("auc", X @ theta, y, gamma=100)
    >>> found = pac.maximize_evidence(model, over=["scale"], progressbar=False)
    >>> bool(found.values["scale"][0] > 3 * found.values["scale"][1]), len(found.flat)
    (True, 1)
    """
    model = pm.modelcontext(model)
    if isinstance(over, Mapping):
        raise ValueError(f"over must be a name or a list of names, without transforms; got {dict(over)!r}.")
    names = list(dict.fromkeys([over] if isinstance(over, str) else over))
    _refuse_gamma(model, names)
    space, read = _Parameters(model, names), ProblemReader(model).read
    start = space.read()

    def problem_at(x: FloatArray) -> Problem:
        space.write(x)
        return read().problem

    def shown(point: Point) -> None:
        bar.update(len(density.points), max_evaluations, log_evidence=point.fit.log_evidence)

    conditional = Conditional(problem_at, lambda x: np.zeros(len(x)), start, np.ones(start.size))
    density = Density(conditional, tolerance=ACCURACIES["fit"].tolerance, callback=shown)
    column = TextColumn("log Z {task.fields[log_evidence]:.3f}", markup=False)
    try:
        flat, free = flat_directions(problem_at, start)
        with LateBar("Evaluations of the evidence", column, show=progressbar) as bar:
            found = find_mode(density, slope=tolerance, max_evaluations=max_evaluations, free=free)
        best = found.best.phi
        space.write(best)
        for variable in space.variables if free.shape[1] else ():
            mark_tuned(variable)
        approx = approximate(read(), progressbar=False)
    except BaseException:
        space.write(start)
        raise
    descriptions = tuple(space.describe(direction) for direction in flat)
    if not free.shape[1]:
        warnings.warn(
            f"The evidence does not depend on {', '.join(names)}: {'; '.join(descriptions)}. Nothing was changed.",
            stacklevel=3,
        )
    fits = [(at.fit.log_evidence, float(np.linalg.norm(gradient)), at.fit.sweeps) for at, gradient in found.trace]
    values = [np.exp(at.phi) for at, _ in found.trace]
    trace = pd.DataFrame(fits, columns=["log_evidence", "gradient", "sweeps"])
    return EvidenceMaximum(
        values=space.values(best),
        approx=approx,
        log_evidence=approx.log_evidence,
        start_log_evidence=found.trace[0][0].log_density,
        flat=descriptions,
        trace=trace.join(pd.DataFrame(values, columns=space.labels)),
        converged=found.converged and approx.converged,
        message=found.message,
        at_limit=tuple(space.labels[k] for k in np.flatnonzero(np.abs(best - start) > 0.99 * FARTHEST)),
    )


def _refuse_gamma(model: pm.Model, names: Iterable[str]) -> None:
    """Refuse to choose gamma by evidence: log Z decreases with gamma whatever the data."""
    terms = auc_terms(model)
    for term in terms:
        outside = set(ancestors([term.potential], blockers=[each.risk for each in terms]))
        for name in names:
            if model.named_vars.get(name) in outside:
                raise ValueError(
                    f"{name} is the gamma of {term.potential.name}, which evidence cannot choose: log Z falls with "
                    "gamma whatever the data. Choose gamma with pac.select_gamma."
                )


class _Parameters:
    """The logarithms of some ``pm.Data`` as one vector."""

    def __init__(self, model: pm.Model, names: list[str]):
        held = {variable.name: variable for variable in model.data_vars}
        if not names:
            raise ValueError(f"over is empty; the model's pm.Data are {', '.join(held) or 'none'}.")
        unknown = [name for name in names if name not in held]
        if unknown:
            raise ValueError(
                f"over has {', '.join(unknown)}, no pm.Data of the model ({', '.join(held) or 'it has none'}). Put a "
                "hyper-parameter into pm.Data to have it chosen."
            )
        self.variables = [held[name] for name in names]
        self._shapes = [np.shape(v.get_value()) for v in self.variables]
        for variable in self.variables:
            value = np.asarray(variable.get_value())
            if value.dtype.kind != "f" or not ((value > 0) & (value < np.inf)).all():
                raise ValueError(f"{variable.name} must have floating-point values that are positive; got {value!r}.")
        self.labels = entry_labels(names, self._shapes)

    def read(self) -> FloatArray:
        """Return the logarithms of the values that the model has, (k,)."""
        return np.log(np.concatenate([np.ravel(v.get_value()).astype(float) for v in self.variables]))

    def write(self, x: FloatArray) -> None:
        """Set the values of the model from their logarithms."""
        for variable, value in zip(self.variables, self.values(x).values(), strict=True):
            variable.set_value(np.asarray(value, dtype=variable.type.dtype))

    def values(self, x: FloatArray) -> dict[str, Any]:
        """Return the values at these logarithms, by name and in their shapes."""
        stops = np.cumsum([int(np.prod(shape)) for shape in self._shapes])
        parts = zip(self.variables, np.split(np.exp(x), stops[:-1]), self._shapes, strict=True)
        found = {str(variable.name): part.reshape(shape) for variable, part, shape in parts}
        return {name: value if value.ndim else float(value) for name, value in found.items()}

    def describe(self, direction: FloatArray) -> str:
        """Describe a flat direction as a product of powers, such as ``a * b^0.5 * c^-1``."""
        powers = direction / direction[np.argmax(np.abs(direction))]
        terms = [
            label if abs(power - 1.0) < 1e-3 else f"{label}^{power:.3g}"
            for label, power in zip(self.labels, powers, strict=True)
            if abs(power) > 1e-3
        ]
        return f"a common scale of {' * '.join(terms)}" if len(terms) > 1 else f"the scale of {terms[0]}"


@raises_interrupts
def regularization_path(
    model_or_data: Any = None,
    v0: ArrayLike | None = None,
    *,
    gamma: float | None = None,
    p: ArrayLike | None = None,
    v1: ArrayLike = 1.0,
    n_jobs: int | None = None,
) -> xr.Dataset:
    """Fit a spike-and-slab prior by EP for a range of spike variances, each fit starting from the last.

    Parameters
    ----------
    model_or_data : pymc.Model, (X, y) or data set, optional
        A model with one :func:`~pymc_pacauc.SpikeSlab` variable (its own v0 is ignored), a pair (X, y), or a data set
        of this package; by default the model on the context stack.
    v0 : array_like, optional
        Spike variances; by default 13 of them from 1e-6 to 0.1 times the slab's, as in the paper.
    gamma : float, optional
        For data: the inverse temperature, by default Theorem 2.5's.
    p : float or array_like, shape (d,), optional
        For data: the probability of the slab.
    v1 : float or array_like, shape (d,), default 1.0
        For data: the variance of the slab.
    n_jobs : int, optional
        Threads, by default one per core.

    Returns
    -------
    xarray.Dataset
        Over (v0, feature): ``coefficient`` (posterior mean), ``sd``, ``inclusion_probability``; over v0:
        ``log_evidence``, ``expected_risk``, ``expected_model_size``, ``sweeps``, ``converged``. Values of a fit that
        did not converge are NaN.

    Raises
    ------
    ValueError
        If a value of v0, p, v1 or gamma is out of its range, or the model has no one spike-and-slab variable.

    Warns
    -----
    ConvergenceWarning
        If a fit does not converge; the path goes on from the last one that did.

    See Also
    --------
    SpikeSlab : The prior.
    pymc_pacauc.plots.plot_regularization_path : Draw the path.

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
    fits: list[Fit] = []
    start: Fit | None = None
    for value in grid[::-1]:  # from wide to narrow
        spikes = Spikes(problem.spikes.inclusion_probability, np.minimum(value / v1, 1.0))
        target = replace(problem, sites=spikes)
        fits.insert(0, fit(target, start=start, tolerance=1e-4, n_jobs=n_jobs))
        start = fits[0] if fits[0].converged else start

    def along(dims: tuple[str, ...], quantity: Callable[[Fit], Any]) -> tuple[Any, FloatArray]:
        return dims, np.array([(1.0 if each.converged else np.nan) * quantity(each) for each in fits])

    return xr.Dataset(
        {
            "coefficient": along(("v0", dim), lambda each: each.posterior.mean),
            "sd": along(("v0", dim), lambda each: np.sqrt(each.posterior.variance)),
            "inclusion_probability": along(("v0", dim), lambda each: each.inclusion_probability),
            "log_evidence": along(("v0",), lambda each: each.log_evidence),
            "expected_risk": along(("v0",), lambda each: each.expected_risk),
            "expected_model_size": along(("v0",), lambda each: each.inclusion_probability.sum()),
            "sweeps": ("v0", [each.sweeps for each in fits]),
            "converged": ("v0", [each.converged for each in fits]),
        },
        coords={"v0": grid, dim: labels},
        attrs={"gamma": problem.gamma, "n": problem.n},
    )


def _problem(model_or_data: Any, gamma: Any, p: Any, v1: Any) -> tuple[Problem, str, Any]:
    """Read a model, or data, as a spike-and-slab problem; return it with the name and labels of its dimension."""
    if model_or_data is None or isinstance(model_or_data, pm.Model):
        model = pm.modelcontext(model_or_data)
        source = problem_of(model)
        if len(source.sparse) != 1 or len(source.variables) > 1:
            free = ", ".join(variable.name for variable in model.free_RVs)
            raise ValueError(f"model must have one pac.SpikeSlab variable, and no other free variable; it has {free}.")
        [dim] = model.named_vars_to_dims.get(source.names[0]) or ["feature"]
        labels = model.coords.get(dim)
        return source.problem, dim, np.arange(source.problem.d) if labels is None else list(labels)
    X, y = (model_or_data.X, model_or_data.y) if hasattr(model_or_data, "X") else model_or_data
    names = getattr(X, "columns", getattr(model_or_data, "feature_names", None))
    design = np.asarray(X, dtype=np.float64)
    p = default_inclusion_probability(design.shape[1]) if p is None else p
    problem = spike_slab_problem(design, y, 1.0, inclusion_probability=p, v0=0.0, v1=v1)
    gamma = theorem_defaults(*sides(problem.pairs), problem.d).gamma if gamma is None else gamma
    return replace(problem, gamma=check_gamma(gamma)), "feature", np.arange(problem.d) if names is None else list(names)
