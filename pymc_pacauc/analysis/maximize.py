"""Hyper-parameters of the prior by maximal evidence (the paper's section 3.1), on EP's gradient.

The hyper-parameters live in ``pm.Data`` of the model: scales of groups or of single covariates (ARD), lengthscales, p,
v0 and v1 of a spike-and-slab prior. They are optimised by L-BFGS in their logarithms (probabilities in their logits).
The model is compiled once; for other values its prior and its scores are evaluated anew, and EP starts from its last
fit.

The gradient. Where a hyper-parameter moves the prior covariance alone, EP's evidence gradient is chained with the
derivative of the covariance; for a Gaussian process, with PyTensor's derivative of its kernel. Where it moves the
scores in other ways (non-centred models) or a spike-and-slab prior, the evidence itself is differenced; it is
stationary in the sites, so warm-started fits differ smoothly.

Flat directions. The risk ignores the length of whitened theta, so multiplying all prior scales by one number changes
nothing: evidence is constant along a common scale, and an optimiser would follow rounding errors. Such directions are
found before the search, as the combinations of hyper-parameters that leave the prior covariance of the scores alone or
multiply it by a number. They are reported and left alone: the search takes place in what is orthogonal to them.

The regularisation path of a spike-and-slab prior over the spike's variance (the paper's Figure 3).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike
from pytensor.graph.traversal import ancestors
from rich.progress import TextColumn
from scipy import linalg, optimize
from scipy.special import expit, logit

from pymc_pacauc.array_result import HTMLReport
from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.ep.plan import MAX_SWEEPS
from pymc_pacauc.ep.results import Fit
from pymc_pacauc.fitting import fit
from pymc_pacauc.interrupt import raises_interrupts
from pymc_pacauc.model.approximation import EPApproximation
from pymc_pacauc.model.auc_term import auc_terms
from pymc_pacauc.model.compat import LateBar
from pymc_pacauc.model.gp import KernelDerivative
from pymc_pacauc.model.inference import approximate
from pymc_pacauc.model.read import problem_of, problem_reader
from pymc_pacauc.model.results import mark_tuned
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.problem import Problem, Spikes, default_inclusion_probability, spike_slab_problem
from pymc_pacauc.theorems import theorem_defaults

STEP = 1e-4  # of central differences, in log-parameters
EVIDENCE_STEP = 1e-2  # the same where the evidence is differenced
FLAT = 1e-6  # relative residual below which a direction counts as flat
ROWS = 80  # rows whose score covariance is looked at for flat directions
TOLERANCE = 1e-8  # of the fits: their evidence is differenced
FARTHEST = 12.0  # log-parameters move at most so far


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
        lines += [f"  flat, left alone: {description}" for description in self.flat]
        lines += [f"  at the limit of the search: {name}" for name in self.at_limit]
        return "\n".join(lines)


@raises_interrupts
def maximize_evidence(
    model: pm.Model | None = None,
    over: Sequence[str] | Mapping[str, str] | str = (),
    *,
    gp: Any = None,
    max_evaluations: int = 100,
    tolerance: float = 1e-3,
    progressbar: bool = True,
) -> EvidenceMaximum:
    """Choose hyper-parameters of the prior by maximising EP's log evidence.

    Parameters
    ----------
    model : pymc.Model, optional
        A model whose scores are affine in Gaussian variables; by default the one on the context stack.
    over : str, sequence of str or mapping of str to str, default ()
        Names of the ``pm.Data`` that hold the hyper-parameters: positive numbers, or arrays of them. A mapping from
        names to ``"log"`` or ``"logit"`` says how to transform them; probabilities, such as p of a
        :func:`~pymc_pacauc.SpikeSlab`, need ``"logit"``.
    gp : pymc.gp.Latent, optional
        The ``pm.gp.Latent`` whose prior the scores are, if ``over`` are parameters of its kernel: the gradient is then
        analytic, by PyTensor, instead of by differences of fits.
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
        If ``over`` names what is no ``pm.Data`` of positive numbers in the prior, or the model cannot be fitted by EP.

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
    names = [over] if isinstance(over, str) else over
    _refuse_gamma(model, list(names))
    space = _Parameters(model, dict(names) if isinstance(names, Mapping) else dict.fromkeys(names, "log"))
    original = space.read()
    try:
        return _maximize(model, space, original, gp, max_evaluations, tolerance, progressbar)
    except BaseException:
        space.write(original)
        raise


def _maximize(
    model: pm.Model,
    space: _Parameters,
    start: FloatArray,
    gp: Any,
    max_evaluations: int,
    tolerance: float,
    progressbar: bool,
) -> EvidenceMaximum:
    read = problem_reader(model)

    def problem_at(x: FloatArray) -> Problem:
        space.write(x)
        return read().problem

    flat, free = _flat_directions(problem_at, start)
    descriptions = tuple(space.describe(direction) for direction in flat)
    evidence = _Evidence(problem_at, space, None if gp is None else KernelDerivative(model, gp, space.names))
    column = TextColumn("log Z {task.fields[log_evidence]:.3f}", markup=False)
    with LateBar("Evaluations of the evidence", column, show=progressbar) as bar, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)

        def objective(t: FloatArray) -> tuple[float, FloatArray]:
            value, gradient = evidence(start + free @ t, free)
            bar.update(len(evidence.trace), max_evaluations, log_evidence=value)
            return -value, -gradient

        if free.shape[1] == 0:
            objective(np.zeros(0))
            message, converged, t = "every direction is flat", True, np.zeros(0)
        else:
            found = optimize.minimize(
                objective,
                np.zeros(free.shape[1]),
                jac=True,
                method="L-BFGS-B",
                bounds=[(-FARTHEST, FARTHEST)] * free.shape[1],
                options={"maxfun": max_evaluations, "gtol": tolerance, "ftol": 1e-10},
            )
            message, converged, t = str(found.message), bool(found.success), found.x
    best = start + free @ t
    limit = tuple(space.labels[k] for k in np.flatnonzero(np.abs(best - start) > 0.99 * FARTHEST))
    space.write(best)
    if free.shape[1]:
        space.mark_tuned()
    approx = approximate(read(), progressbar=False)
    if not free.shape[1]:
        warnings.warn(
            f"Evidence does not depend on {', '.join(space.names)}: "
            + "; ".join(descriptions)
            + ". Nothing was changed.",
            stacklevel=4,
        )
    return EvidenceMaximum(
        values=space.values(best),
        approx=approx,
        log_evidence=approx.log_evidence,
        start_log_evidence=float(evidence.trace["log_evidence"].iloc[0]),
        flat=descriptions,
        trace=evidence.trace,
        converged=converged and approx.converged,
        message=message,
        at_limit=limit,
    )


def _refuse_gamma(model: pm.Model, names: list[str]) -> None:
    """Evidence at different gammas is of different targets: log Z falls with gamma whatever the data say."""
    for term in auc_terms(model):
        outside = set(ancestors([term.potential], blockers=[term.risk]))
        for name in names:
            if model.named_vars.get(name) in outside:
                raise ValueError(
                    f"{name} is the gamma of {term.potential.name}, which evidence cannot choose: log Z falls with "
                    "gamma whatever the data. Choose gamma with pac.select_gamma."
                )


class _Parameters:
    """The logarithms (or logits) of some ``pm.Data`` as one vector."""

    def __init__(self, model: pm.Model, transforms: dict[str, str]):
        names = list(transforms)
        held = {variable.name: variable for variable in model.data_vars}
        if not names:
            raise ValueError(f"over is empty; the model's pm.Data are {', '.join(held) or 'none'}.")
        unknown = [name for name in names if name not in held]
        if unknown:
            raise ValueError(
                f"{', '.join(unknown)} is not a pm.Data of the model ({', '.join(held) or 'it has none'}). Hold a "
                "hyper-parameter in pm.Data to have it chosen."
            )
        self.names, self._transforms = names, transforms
        self._variables = [held[name] for name in names]
        self._shapes = [np.shape(v.get_value()) for v in self._variables]
        for (name, transform), variable in zip(transforms.items(), self._variables, strict=True):
            if transform not in ("log", "logit"):
                raise ValueError(f'The transform of {name} must be "log" or "logit"; got {transform!r}.')
            value = np.asarray(variable.get_value())
            inside = (value > 0) & (value < (1.0 if transform == "logit" else np.inf))
            if value.dtype.kind != "f" or not inside.all():
                kind = "numbers between 0 and 1" if transform == "logit" else "positive numbers"
                raise ValueError(f"{name} must hold {kind}, in floating point; it holds {value!r}.")
        self.labels = [
            f"{name}[{', '.join(map(str, at))}]" if at else name
            for name, shape in zip(names, self._shapes, strict=True)
            for at in np.ndindex(*shape)
        ]

    def read(self) -> FloatArray:
        forward = {"log": np.log, "logit": logit}
        parts = zip(self._variables, self._transforms.values(), strict=True)
        return np.concatenate([forward[kind](np.ravel(v.get_value()).astype(float)) for v, kind in parts])

    def write(self, x: FloatArray) -> None:
        for variable, value in zip(self._variables, self.values(x).values(), strict=True):
            variable.set_value(np.asarray(value, dtype=variable.type.dtype))

    def mark_tuned(self) -> None:
        """Remember that what they hold now was chosen on these data."""
        for variable in self._variables:
            mark_tuned(variable)

    def values(self, x: FloatArray) -> dict[str, Any]:
        stops = np.cumsum([int(np.prod(shape)) for shape in self._shapes])
        backward = {"log": np.exp, "logit": expit}
        found: dict[str, Any] = {}
        for (name, kind), part, shape in zip(
            self._transforms.items(), np.split(x, stops[:-1]), self._shapes, strict=True
        ):
            value = backward[kind](part)
            found[name] = value.reshape(shape) if shape else float(value[0])
        return found

    def flat_values(self, x: FloatArray) -> FloatArray:
        return np.concatenate([np.ravel(value) for value in self.values(x).values()])

    def derivative(self, x: FloatArray) -> FloatArray:
        """Of the values in x."""
        logits = np.repeat(
            [kind == "logit" for kind in self._transforms.values()], [int(np.prod(shape)) for shape in self._shapes]
        )
        value = self.flat_values(x)
        return np.where(logits, value * (1.0 - value), value)

    def describe(self, direction: FloatArray) -> str:
        """``a * b^0.5 * c^-1``: the product of powers that can change without effect."""
        powers = direction / direction[np.argmax(np.abs(direction))]
        terms = [
            label if abs(power - 1.0) < 1e-3 else f"{label}^{power:.3g}"
            for label, power in zip(self.labels, powers, strict=True)
            if abs(power) > 1e-3
        ]
        return f"a common scale of {' * '.join(terms)}" if len(terms) > 1 else f"the scale of {terms[0]}"


class _Evidence:
    """Log evidence and its gradient along ``free`` directions, each fit started from the last."""

    def __init__(
        self,
        problem_at: Callable[[FloatArray], Problem],
        space: _Parameters,
        kernel: KernelDerivative | None,
    ):
        self._problem_at, self._space, self._kernel = problem_at, space, kernel
        self.last: Any = None
        self._rows: list[dict[str, float]] = []

    def __call__(self, x: FloatArray, free: FloatArray) -> tuple[float, FloatArray]:
        fit = _refit(self._problem_at(x), self.last)
        if self._kernel is not None:
            parts = [np.ravel(part) for part in self._kernel.of_fit(fit)]
            gradient = free.T @ (np.concatenate(parts) * self._space.derivative(x))
        else:
            gradient = np.array([self._slope(fit, x, direction) for direction in free.T])
        self.last = fit
        self._rows.append(
            {
                "log_evidence": fit.log_evidence,
                "gradient": float(np.linalg.norm(gradient)),
                "sweeps": fit.sweeps,
                **dict(zip(self._space.labels, self._space.flat_values(x), strict=True)),
            }
        )
        return fit.log_evidence, gradient

    @property
    def trace(self) -> pd.DataFrame:
        return pd.DataFrame(self._rows)

    def _slope(self, fit: Any, x: FloatArray, direction: FloatArray) -> float:
        if fit.problem.sites is None:
            up, down = (self._problem_at(x + sign * STEP * direction) for sign in (1.0, -1.0))
            if np.array_equal(up.X, down.X) and np.array_equal(up.offset, down.offset):
                gradient = fit.evidence_gradient()
                moved = (up.prior.covariance - down.prior.covariance) / (2.0 * STEP)
                shifted = (up.prior.mean - down.prior.mean) / (2.0 * STEP)
                return gradient.along(moved) + float(gradient.mean @ shifted)
        ends = [_refit(self._problem_at(x + sign * EVIDENCE_STEP * direction), fit) for sign in (1.0, -1.0)]
        return (ends[0].log_evidence - ends[1].log_evidence) / (2.0 * EVIDENCE_STEP)


def _refit(problem: Problem, start: Fit | None) -> Fit:
    """A fit from the last one, where that is of the same scores, or of the same subsample, whose noise cancels."""
    same = (
        start is not None
        and start.converged
        and (start.pairs_used < start.problem.pairs.n_pairs or np.array_equal(start.problem.X, problem.X))
        and (problem.sites is None or np.array_equal(start.problem.prior.factor, problem.prior.factor))
    )
    return fit(problem, start=start if same else None, tolerance=TOLERANCE)


def _flat_directions(problem_at: Callable[[FloatArray], Problem], x: FloatArray) -> tuple[list[FloatArray], FloatArray]:
    """Directions of log-parameters without effect on any ranking, and an orthonormal basis of the others."""
    here = problem_at(x)
    rows = np.random.default_rng(0).permutation(here.n)[:ROWS]

    def scaled(problem: Problem) -> FloatArray:
        """What a common scale of the prior multiplies: the prior covariance of some scores."""
        part = problem.scores.whitened_design[rows]
        return (part @ part.T).ravel()

    def unscaled(problem: Problem) -> FloatArray:
        """And what it must leave alone."""
        if problem.spikes is not None:
            return np.concatenate([problem.spikes.inclusion_probability, problem.spikes.ratio])
        return problem.scores.whitened_offset[rows]

    covariance, fixed = scaled(here), unscaled(here)
    size = float(np.linalg.norm(covariance)) or 1.0
    columns = []
    for e in np.eye(x.size):
        up, down = problem_at(x + STEP * e), problem_at(x - STEP * e)
        moved = np.concatenate([(scaled(up) - scaled(down)) / size, unscaled(up) - unscaled(down)])
        columns.append(moved / (2 * STEP))
    change = np.stack(columns, axis=1)
    scale = np.concatenate([covariance / size, np.zeros(fixed.size)])
    flat: list[FloatArray] = []
    _, singular, right = linalg.svd(change, full_matrices=True)
    padded = np.append(singular, np.zeros(x.size - singular.size))
    flat += [direction for value, direction in zip(padded, right, strict=True) if value < FLAT]
    if here.scale_free:  # a common factor of the covariance has no effect either
        common = linalg.lstsq(change, scale, cond=FLAT)[0]
        if np.linalg.norm(change @ common - scale) < 100 * FLAT:
            flat.append(common / np.linalg.norm(common))
    if not flat:
        return [], np.eye(x.size)
    return flat, linalg.null_space(np.stack(flat), rcond=1e-6)


@raises_interrupts
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
    tolerance : float, default 0.0001
        Change of the approximation in an iteration at which a fit stops, as in :func:`pymc_pacauc.arrays.fit`.
    max_sweeps : int, default 200
        Most iterations of a fit.
    n_jobs : int, optional
        Threads, by default one per core.

    Returns
    -------
    xarray.Dataset
        Over (v0, feature): ``coefficient`` (posterior mean), ``sd``, ``inclusion_probability``; over v0:
        ``log_evidence``, ``expected_risk``, ``expected_model_size``, ``sweeps``, ``converged``. Values of a fit that
        did not converge are NaN.

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
    rows: list[dict[str, Any]] = []
    start: Fit | None = None
    for value in grid[::-1]:  # from wide to narrow
        spikes = Spikes(problem.spikes.inclusion_probability, np.minimum(value / v1, 1.0))
        target = replace(problem, sites=spikes)
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
