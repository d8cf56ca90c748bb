"""The spike-and-slab prior in a PyMC model (the paper's section 2.4), and how EP finds it there.

With v0 > 0 the variable is the marginal normal mixture, one continuous variable with a density. With v0 = 0 the spike
is a point mass, which no density over theta describes; theta = z * b with a slab b ~ N(0, v1) and an indicator z, and
z itself is cut from a Gaussian, z = 1{latent < quantile of p}. So every free variable of the model is continuous, prior
draws are exact, and any sampler of continuous variables, TemperingSMC among them, flips z by moving its latent.

A :class:`SpikeSlabPrior` travels on the variable's tag: :func:`extract_spike_slab` builds the problem for EP from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import xarray as xr
from numpy.typing import NDArray
from pymc.pytensorf import compile as compile_function
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from scipy.special import expit, ndtri

from pymc_pacauc.core.pairs import bipartite
from pymc_pacauc.core.problem import Problem, default_inclusion_probability, spike_slab_problem
from pymc_pacauc.core.theorems import theorem_defaults
from pymc_pacauc.model.extract import affine_scores, auc_term, gaussian_prior, refuse
from pymc_pacauc.model.flat import MODE, FlatVariables

__all__ = ["ExtractedSpikeSlab", "SpikeSlab", "SpikeSlabPrior", "extract_spike_slab", "inclusion_probability"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SpikeSlabPrior:
    """Hyper-parameters of a :func:`SpikeSlab` variable; ``slab`` and ``latent`` are its parts when v0 = 0."""

    p: Any
    v0: Any
    v1: Any
    slab: Variable | None = None
    latent: Variable | None = None

    @property
    def dirac(self) -> bool:
        return self.slab is not None


@dataclass(frozen=True, eq=False)
class ExtractedSpikeSlab:
    """A problem whose theta is made of the ``sparse`` variables first, then the ``gaussian`` ones, each flattened."""

    model: pm.Model
    problem: Problem
    sparse: tuple[Variable, ...]
    gaussian: tuple[Variable, ...]
    variables: FlatVariables

    @property
    def parts(self) -> list[tuple[Variable, slice]]:
        """The model's variables, and where they are in theta."""
        return list(zip((*self.sparse, *self.gaussian), self.variables.slices, strict=True))

    def function(self, graph: Variable) -> Callable[[FloatArray], list[NDArray[Any]]]:
        """f(theta[N, d]) -> [graph[N, ...]], for an expression of the model's variables."""
        return _of_theta(self.model, self.sparse, self.variables, graph)


def SpikeSlab(
    name: str,
    p: Any = None,
    v0: Any = None,
    v1: Any = 1.0,
    *,
    n: int | None = None,
    shape: Any = None,
    dims: Any = None,
    model: pm.Model | None = None,
) -> Variable:
    """Independent coefficients from ``p N(0, v1) + (1 - p) N(0, v0)``: sparse scores, with inclusion probabilities.

    Parameters
    ----------
    name
        Name of the variable.
    p
        Probability of the slab; by default Theorem 2.5's 1 - exp(-1 / d), d the number of coefficients, but at least
        0.1 (see :func:`~pymc_pacauc.core.problem.default_inclusion_probability`).
    v0
        Variance of the spike, 0 for a point mass at zero; by default Theorem 2.5's 1 / (2 n d log d) when ``n`` is
        given, else 0, which the theorem covers whatever n.
    v1
        Variance of the slab. For a linear score without offset only v0 / v1 matters.
    n
        Number of observations, for the default of v0.
    shape, dims
        As for any PyMC variable; one of them is needed.
    model
        The model; by default the one on the context stack.

    Returns
    -------
    The variable; with v0 = 0 a Deterministic, and the model also holds ``{name}_slab`` and ``{name}_latent``, its free
    parts, and ``{name}_included``, the indicators.

    Notes
    -----
    With v0 > 0 and linear scores, spike and slab differ by scale only and the risk does not see the scale: the exact
    posterior also has a mode with every coefficient in the spike. Where inclusion probabilities are the question,
    prefer v0 = 0.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> X = np.random.default_rng(1).normal(size=(80, 4))
    >>> with pm.Model(coords={"feature": list("abcd")}):
    ...     theta = pac.SpikeSlab("theta", p=0.2, dims="feature")
    ...     auc = pac.AUCPotential("auc", X @ theta, X[:, 0] > 0.2, gamma=80)
    ...     approx = pm.fit(method=pac.EP(), progressbar=False)
    >>> approx.inclusion_probability.round(1).values
    array([1., 0., 0., 0.])
    """
    model = pm.modelcontext(model)
    shape = _shape(shape, dims, model)
    d = int(np.prod(shape))
    defaults = None if n is None else theorem_defaults(max(1, n // 2), n - max(1, n // 2), d)
    if p is None:
        p = default_inclusion_probability(d)
    if v0 is None:
        v0 = 0.0 if defaults is None else min(defaults.v0, float(np.max(v1)))
    _check(p, v0, v1)
    place = {"dims": dims} if dims is not None else {"shape": shape}
    with model:
        if not isinstance(v0, Variable) and not np.any(np.asarray(v0)):
            slab = pm.Normal(f"{name}_slab", 0.0, np.sqrt(v1), **place)
            latent = pm.Normal(f"{name}_latent", **place)
            included = pm.Deterministic(f"{name}_included", pt.lt(latent, _quantile(p)), dims=dims)
            theta = pm.Deterministic(name, pt.switch(included, slab, 0.0), dims=dims)
            theta.tag.spike_slab = SpikeSlabPrior(p, v0, v1, slab, latent)
            return theta
        weights = pt.stack(pt.broadcast_arrays(1.0 - pt.as_tensor(p), pt.as_tensor(p)), axis=-1)
        scales = pt.stack(pt.broadcast_arrays(pt.sqrt(v0), pt.sqrt(v1)), axis=-1)
        theta = pm.NormalMixture(name, w=weights, mu=0.0, sigma=scales, **place)
    theta.tag.spike_slab = SpikeSlabPrior(p, v0, v1)
    return theta


def extract_spike_slab(model: pm.Model) -> ExtractedSpikeSlab | None:
    """The :class:`~pymc_pacauc.core.problem.Problem` of a model; None without :func:`SpikeSlab` variables.

    Other free variables must have independent Gaussian priors.
    """
    sparse = tuple(v for v in [*model.free_RVs, *model.deterministics] if hasattr(v.tag, "spike_slab"))
    if not sparse:
        return None
    term = auc_term(model)
    priors = [v.tag.spike_slab for v in sparse]
    parts = {v for prior in priors if prior.dirac for v in (prior.slab, prior.latent)}
    gaussian = tuple(v for v in model.free_RVs if v not in parts and v not in sparse)
    if len(model.potentials) > 1 or model.observed_RVs:
        raise refuse("it has other terms than the AUC potential")
    start = model.initial_point()
    values = [model.rvs_to_values[v] for v in gaussian]
    inputs = [v.type(v.name) for v in sparse]
    shapes = [_static_shape(v) for v in sparse] + [start[value.name].shape for value in values]
    variables = FlatVariables((*inputs, *values), tuple(shapes))
    design, offset = affine_scores(model, variables, _of_theta(model, sparse, variables, term.scores))
    hyper = [_hyperparameters(prior, shape) for prior, shape in zip(priors, shapes, strict=False)]
    p, v0, v1 = (np.concatenate(columns) for columns in zip(*hyper, strict=True))
    prior_mean = np.zeros(variables.dimension)
    if gaussian:
        others = FlatVariables(tuple(values), tuple(shapes[len(sparse) :]))
        logp = pt.sum([pt.sum(term) for term in model.logp(vars=list(gaussian), sum=False)])
        gradients = pytensor.grad(logp, values, disconnected_inputs="ignore")
        mean, variance = gaussian_prior(
            model, others, others.function([pt.concatenate([g.ravel() for g in gradients])])
        )
        if variance.ndim == 2:
            raise refuse("beside a SpikeSlab prior, the other variables must be independent")
        prior_mean[-mean.size :] = mean
        p, v0, v1 = np.append(p, np.ones(mean.size)), np.append(v0, variance), np.append(v1, variance)
    problem = spike_slab_problem(
        design,
        bipartite(term.labels),
        term.gamma,
        inclusion_probability=p,
        v0=v0,
        v1=v1,
        prior_mean=prior_mean,
        offset=offset,
        ties=term.ties,
    )
    return ExtractedSpikeSlab(model, problem, sparse, gaussian, variables)


def inclusion_probability(idata: Any, *, var_name: str | None = None, model: pm.Model | None = None) -> xr.DataArray:
    """Inclusion probabilities of a :func:`SpikeSlab` variable from posterior draws, with the indicators averaged out.

    Given everything else, the indicator of a coefficient is a Bernoulli variable whose probability is known: for v0 > 0
    from the coefficient alone, for v0 = 0 from the risks with and without the coefficient. Averaging these
    probabilities (Rao-Blackwell) has less variance than counting indicators.

    Parameters
    ----------
    idata
        What ``pm.sample(step=pac.TemperingSMC())`` returned.
    var_name
        Name of the variable, when the model has more than one.
    model
        The model; by default the one on the context stack.
    """
    model = pm.modelcontext(model)
    extracted = extract_spike_slab(model)
    if extracted is None:
        raise ValueError("The model has no pac.SpikeSlab variable.")
    names = [v.name for v in extracted.sparse]
    if var_name is None and len(names) > 1:
        raise ValueError(f"The model has several SpikeSlab variables; choose one of {names} with var_name=.")
    index = 0 if var_name is None else names.index(var_name)
    prior, shape = extracted.sparse[index].tag.spike_slab, extracted.variables.shapes[index]
    draws = idata["posterior"]
    p, v0, v1 = _hyperparameters(prior, shape)
    log_odds = np.log(p) - np.log1p(-p)
    if not prior.dirac:
        theta = draws[names[index]].values.reshape(-1, p.size)
        log_odds = log_odds + 0.5 * (np.log(v0 / v1) + theta**2 * (1.0 / v0 - 1.0 / v1))
        values = expit(log_odds).mean(axis=0)
    else:
        values = _flip(extracted, draws, index, log_odds)
    return labelled(model, extracted.sparse[index], values)


def labelled(model: pm.Model, variable: Variable, values: FloatArray) -> xr.DataArray:
    """Values of a variable's entries, with the model's dims and coords."""
    shape = _static_shape(variable)
    dims = model.named_vars_to_dims.get(variable.name) or [f"{variable.name}_dim_{i}" for i in range(len(shape))]
    known = {dim: model.coords.get(dim) for dim in dims}
    coords = {
        dim: list(range(size)) if known[dim] is None else list(known[dim])
        for dim, size in zip(dims, shape, strict=True)
    }
    return xr.DataArray(values.reshape(shape), dims=list(dims), coords=coords, name=f"{variable.name}_inclusion")


def _flip(extracted: ExtractedSpikeSlab, draws: Any, index: int, log_odds: FloatArray) -> FloatArray:
    """Mean over draws of P(z_k = 1 | slabs and other indicators), by the risks at z_k = 1 and 0."""
    problem = extracted.problem
    names = [variable.name for variable, _ in extracted.parts]
    rows = draws.sizes["chain"] * draws.sizes["draw"]
    theta = np.concatenate([draws[name].values.reshape(rows, -1) for name in names], axis=1)
    first = extracted.variables.slices[index].start
    slab = draws[f"{names[index]}_slab"].values.reshape(rows, -1)
    risk = problem.risk
    at = risk(theta)
    probabilities = np.empty(slab.shape[1])
    for k in range(slab.shape[1]):
        flipped = theta.copy()
        included = theta[:, first + k] != 0.0
        flipped[:, first + k] = np.where(included, 0.0, slab[:, k])
        other = risk(flipped)
        gain = np.where(included, other - at, at - other)  # risk without minus risk with
        probabilities[k] = expit(log_odds[k] + problem.gamma * gain).mean()
    return probabilities


def _of_theta(
    model: pm.Model, sparse: tuple[Variable, ...], variables: FlatVariables, graph: Variable
) -> Callable[[FloatArray], list[NDArray[Any]]]:
    replaced = dict(zip(sparse, variables.values, strict=False))
    return variables.function(model.replace_rvs_by_values(graph_replace([graph], replaced, strict=False)))


def _shape(shape: Any, dims: Any, model: pm.Model) -> tuple[int, ...]:
    if (shape is None) == (dims is None):
        raise ValueError("SpikeSlab needs its number of coefficients: give either shape= or dims=.")
    if shape is not None:
        return (shape,) if np.ndim(shape) == 0 else tuple(shape)
    names = (dims,) if isinstance(dims, str) else tuple(dims)
    unknown = [dim for dim in names if dim not in model.dim_lengths]
    if unknown:
        raise ValueError(f"The model has no dim {', '.join(map(repr, unknown))}; declare it in coords=.")
    return tuple(int(model.dim_lengths[dim].eval()) for dim in names)


def _static_shape(variable: Variable) -> tuple[int, ...]:
    return tuple(int(n) for n in compile_function([], variable.shape, mode=MODE, on_unused_input="ignore")())


def _hyperparameters(prior: SpikeSlabPrior, shape: tuple[int, ...]) -> list[FloatArray]:
    values = compile_function([], [pt.as_tensor(v) * 1.0 for v in (prior.p, prior.v0, prior.v1)], mode=MODE)()
    return [np.broadcast_to(value, shape).astype(np.float64).ravel() for value in values]


def _quantile(p: Any) -> Any:
    """Standard normal quantile of p."""
    if isinstance(p, Variable):
        return -np.sqrt(2.0) * pt.erfcinv(2.0 * p)
    return ndtri(np.asarray(p, dtype=np.float64))


def _check(p: Any, v0: Any, v1: Any) -> None:
    if not isinstance(p, Variable) and not np.all((np.asarray(p) > 0.0) & (np.asarray(p) < 1.0)):
        raise ValueError(f"p, the probability of the slab, must be in (0, 1); got {p!r}.")
    if any(isinstance(v, Variable) for v in (v0, v1)):
        return
    v0, v1 = np.asarray(v0, dtype=float), np.asarray(v1, dtype=float)
    if not (np.isfinite(v1).all() and (v1 > 0.0).all()):
        raise ValueError("v1, the variance of the slab, must be finite and > 0.")
    if not ((v0 >= 0.0).all() and (v0 <= v1).all()):
        raise ValueError("v0, the variance of the spike, must be at least 0 and at most v1, that of the slab.")
    if (v0 == 0.0).any() and not (v0 == 0.0).all():
        raise ValueError("v0 must be 0 for all coefficients of a SpikeSlab or for none: use two variables.")
