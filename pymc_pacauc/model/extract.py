"""From a PyMC model to the arrays of a :class:`~pymc_pacauc.core.problem.Problem`: the only way from PyMC to arrays.

Next to nothing is recognised by its type. The scores and the gradient of the prior's log-density are *evaluated*, at
zero and at the unit vectors of the free variables, which gives the affine map, the prior mean and its precision; then
random probes verify that the model really is affine and Gaussian. So any parametrisation works (scalar or vector sigma,
``pm.Data``, MvNormal, intercepts, Deterministics, non-centred hierarchies with fixed scales, gp.Latent, HSGP), and a
model that is not of this form is refused with the name of the variable that breaks it. Two kinds of variables are read
off instead: an MvNormal's covariance, because a kernel matrix is often too close to singular to be recovered from its
inverse, and spike-and-slab variables (:mod:`pymc_pacauc.model.spike_slab`), whose prior is no Gaussian.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pymc.pytensorf import compile as compile_function
from pymc.vartypes import discrete_types
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import MvNormalRV

from pymc_pacauc.core.pairs import Block, Pairs
from pymc_pacauc.core.problem import Problem, Spikes, linear_gaussian_problem
from pymc_pacauc.model.auc_term import AUCTerm, NotLinearGaussianError, found_terms, names_of, refuse
from pymc_pacauc.model.flat import MODE, FlatVariables, flat_variables
from pymc_pacauc.model.held_data import HeldData
from pymc_pacauc.model.spike_slab import SparseVariable, sparse_variables

__all__ = [
    "ModelProblem",
    "NotLinearGaussianError",
    "affine_map",
    "joined_pairs",
    "linear_terms",
    "problem_of",
    "problem_reader",
]

FloatArray = NDArray[np.float64]

PROBES = (0.1, 1.0, 7.0)


@dataclass(frozen=True, eq=False)
class ModelProblem:
    """The problem of a model, and where the model's variables are in its theta.

    Attributes
    ----------
    model
        Where it came from.
    problem
        Arrays only. theta is the concatenation of ``variables``.
    variables
        The coefficients: free variables in the model's order, a spike-and-slab variable with a point mass in the place
        of its free parts.
    layout
        theta, as inputs of functions.
    sparse
        The spike-and-slab variables among them.
    free
        Layout of the model's own free variables.
    data
        What the model's ``pm.Data`` held.
    """

    model: pm.Model
    problem: Problem
    variables: tuple[Variable, ...]
    layout: FlatVariables
    sparse: tuple[SparseVariable, ...]
    free: FlatVariables
    data: HeldData

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(variable.name for variable in self.variables)

    @property
    def parts(self) -> dict[str, slice]:
        """Where each variable is in theta."""
        return dict(zip(self.names, self.layout.slices, strict=True))

    def function(self, graph: Variable) -> Callable[[FloatArray], list[NDArray[Any]]]:
        """f(theta[N, d]) -> [graph[N, ...]] for an expression of the model.

        The function reads the model's ``pm.Data`` when it is called; ``with self.data.held_by(self.model)`` has them as
        they were.
        """
        return _of_theta(self.model, self.variables, self.layout, graph)

    def free_values(self, theta: FloatArray, rng: np.random.Generator) -> FloatArray:
        """The model's free variables ``[N, D]`` at ``theta[N, d]``.

        The two parts of a point-mass coefficient are not functions of it: they are drawn from their prior given it.
        """
        if not self.sparse:
            return theta
        flat = np.empty((len(theta), self.free.dimension))
        place = dict(zip(self.free.names, self.free.slices, strict=True))
        split = {sparse.variable: sparse for sparse in self.sparse if sparse.dirac}
        for variable, part in zip(self.variables, self.layout.slices, strict=True):
            if variable not in split:
                flat[:, place[self.model.rvs_to_values[variable].name]] = theta[:, part]
                continue
            sparse = split[variable]
            slab, latent = sparse.free_values(theta[:, part], rng)
            flat[:, place[self.model.rvs_to_values[sparse.slab].name]] = slab
            flat[:, place[self.model.rvs_to_values[sparse.latent].name]] = latent
        return flat


def problem_of(model: pm.Model) -> ModelProblem:
    """The :class:`~pymc_pacauc.core.problem.Problem` of a model, or :class:`NotLinearGaussianError`."""
    return problem_reader(model)()


def problem_reader(model: pm.Model) -> Callable[[], ModelProblem]:
    """:func:`problem_of` compiled once: each call reads the values of the model's ``pm.Data`` anew."""
    terms = linear_terms(model)
    if model.observed_RVs:
        raise refuse(f"it has a likelihood besides the AUC term ({names_of(model.observed_RVs)})")
    risks = {term.risk for term in terms}
    others = [v for v in model.potentials if not risks & set(ancestors([v]))]
    if others:
        raise refuse(f"it has other potentials ({names_of(others)})")
    discrete = [v for v in model.value_vars if v.dtype in discrete_types]
    if discrete:
        raise refuse(
            f"the variable(s) {names_of(model.values_to_rvs[v] for v in discrete)} are discrete",
            "Neither Expectation-Propagation nor TemperingSMC moves discrete variables: marginalise them, or use a "
            "continuous prior such as pac.SpikeSlab.",
        )
    improper = [rv for rv in model.free_RVs if isinstance(rv.owner.op, FlatRV | HalfFlatRV)]
    if improper:
        raise refuse(
            f"the prior of {names_of(improper)} is improper",
            "Neither Expectation-Propagation nor TemperingSMC can start from it: replace pm.Flat and pm.HalfFlat by a "
            "proper prior, for example pm.Normal.",
        )
    free = flat_variables(model)
    sparse = sparse_variables(model)
    variables, layout = _coefficients(model, free, sparse)
    scores = _of_theta(model, variables, layout, terms[0].scores if len(terms) == 1 else _joined(terms))
    gaussian = [i for i, v in enumerate(variables) if v not in {s.variable for s in sparse}]
    prior = _prior(model, layout, gaussian)
    places = np.concatenate([np.arange(layout.dimension)[layout.slices[i]] for i in gaussian]) if gaussian else None

    def read() -> ModelProblem:
        offset, slope = affine_map(scores, layout.dimension)
        _check_scores(model, variables, layout, scores, slope, offset)
        pairs, gamma = joined_pairs(terms)
        options: dict[str, Any] = {"offset": offset, "ties": terms[0].ties}
        if not sparse:
            mean, factor = prior()
            problem = linear_gaussian_problem(slope.T, pairs, gamma, prior_mean=mean, prior_factor=factor, **options)
        else:
            d = layout.dimension
            mean, sd, p, ratio = np.zeros(d), np.ones(d), np.ones(d), np.ones(d)
            if places is not None:
                mean[places], factor = prior()
                if factor.ndim == 2:
                    raise refuse("beside a spike-and-slab prior, the other variables must be independent")
                sd[places] = factor
            for each in sparse:
                part = layout.slices[variables.index(each.variable)]
                p[part], v0, v1 = each.hyperparameters()
                sd[part], ratio[part] = np.sqrt(v1), v0 / v1
            problem = linear_gaussian_problem(slope.T, pairs, gamma, prior_mean=mean, prior_factor=sd, **options)
            problem = replace(problem, spikes=Spikes(p, ratio))
        return ModelProblem(model, problem, variables, layout, sparse, free, HeldData.of(model))

    return read


def linear_terms(model: pm.Model) -> list[AUCTerm]:
    """The terms of a model, at least one; their ties must have one cost."""
    terms = found_terms(model)
    if len({term.ties for term in terms}) > 1:
        raise refuse("its potentials differ in what a tie costs")
    return terms


def _joined(terms: list[AUCTerm]) -> Variable:
    """The scores of all terms, one after the other."""
    return pt.concatenate([term.scores for term in terms])


def joined_pairs(terms: list[AUCTerm]) -> tuple[Pairs, float]:
    """The pairs of all terms among their joined scores, and the sum of their gammas.

    sum_k gamma_k risk_k is one risk at that gamma, in which a pair of term k weighs gamma_k over the weight of all its
    pairs.
    """
    if len(terms) == 1:
        return terms[0].pairs, terms[0].gamma
    blocks: list[Block] = []
    gammas, start = [term.gamma for term in terms], 0
    total = sum(gammas)
    for term, gamma in zip(terms, gammas, strict=True):
        pairs = term.pairs
        share = gamma / total / pairs.total_weight
        for block in pairs.blocks:
            moved = replace(block, positive=block.positive + start, negative=block.negative + start)
            blocks.append(replace(moved, weight=block.weight * share))
        start += pairs.n
    return Pairs(start, tuple(blocks)), total


def _coefficients(
    model: pm.Model, free: FlatVariables, sparse: tuple[SparseVariable, ...]
) -> tuple[tuple[Variable, ...], FlatVariables]:
    """The variables that make up theta, and their layout: a point-mass coefficient stands where its slab stands."""
    in_place_of = {each.slab: each for each in sparse if each.dirac}
    hidden = {each.latent for each in sparse if each.dirac}
    variables, inputs, shapes = [], [], []
    for value, shape in zip(free.values, free.shapes, strict=True):
        rv = model.values_to_rvs[value]
        if rv in hidden:
            continue
        variable = in_place_of[rv].variable if rv in in_place_of else rv
        variables.append(variable)
        inputs.append(variable.type(variable.name) if rv in in_place_of else value)
        shapes.append(shape)
    return tuple(variables), FlatVariables(tuple(inputs), tuple(shapes))


def _of_theta(
    model: pm.Model, variables: tuple[Variable, ...], layout: FlatVariables, graph: Variable
) -> Callable[[FloatArray], list[NDArray[Any]]]:
    replaced = {
        variable: value
        for variable, value in zip(variables, layout.values, strict=True)
        if variable not in model.rvs_to_values
    }
    outputs = model.replace_rvs_by_values(graph_replace([graph], replaced, strict=False))
    unknown = set(model.value_vars) & set(ancestors(outputs)) - set(layout.values)
    if unknown:
        names = names_of(model.values_to_rvs[value] for value in unknown)
        raise ValueError(f"The expression depends on {names}, which the model did not have when it was fitted.")
    return layout.function(outputs)


def affine_map(evaluate: Callable[[FloatArray], list[FloatArray]], d: int) -> tuple[FloatArray, FloatArray]:
    """The value at zero, and its change towards each unit vector, a row each."""
    values = evaluate(np.eye(d + 1, d, k=-1))[0]
    return values[0], values[1:] - values[0]


def _check_scores(
    model: pm.Model,
    variables: tuple[Variable, ...],
    layout: FlatVariables,
    evaluate: Callable[[FloatArray], list[FloatArray]],
    slope: FloatArray,
    offset: FloatArray,
) -> None:
    if not (np.isfinite(slope).all() and np.isfinite(offset).all()):
        probes = evaluate(np.random.default_rng(0).standard_normal((4, layout.dimension)))[0]
        bad = np.flatnonzero(~np.isfinite(probes).any(axis=0))  # whatever theta: it is the data
        if 0 < bad.size < offset.size:
            raise ValueError(
                f"The scores of {bad.size} observation(s) are NaN or infinite (rows {_some(bad)}): look for NaN, "
                "infinities or overflow in the covariates; impute or drop them first."
            )
        raise refuse("its scores are not finite everywhere")

    def departs(theta: FloatArray) -> bool:
        values = evaluate(theta)[0]
        return not np.allclose(values, theta @ slope + offset, rtol=1e-6, atol=1e-8 * (1 + np.abs(values).max()))

    name = _first_departure(variables, layout, departs)
    if name is not None:
        raise refuse(f"the scores are not affine in {name}")


def _prior(model: pm.Model, layout: FlatVariables, chosen: list[int]) -> Callable[[], tuple[FloatArray, FloatArray]]:
    """Mean and Cholesky factor (or standard deviations) of the chosen variables, one after the other.

    Of an MvNormal as it is written, so that no covariance is inverted, and each is factorised once.
    """
    values = [layout.values[i] for i in chosen]
    shapes = [layout.shapes[i] for i in chosen]
    written = [_written_moments(model, value) for value in values]
    rest = [i for i, moments in enumerate(written) if moments is None]
    if rest:
        others = FlatVariables(tuple(values[i] for i in rest), tuple(shapes[i] for i in rest))
        rvs = [model.values_to_rvs[value] for value in others.values]
        logp = pt.sum([pt.sum(term) for term in model.logp(rvs, sum=False)])
        gradients = pytensor.grad(logp, list(others.values), disconnected_inputs="ignore")
        slope = others.function([pt.concatenate([g.ravel() for g in gradients])])
        if len(rest) == len(written):
            return lambda: _gaussian_prior(rvs, others, slope)
    everything = FlatVariables(tuple(values), tuple(shapes)) if values else None

    def evaluate() -> tuple[FloatArray, FloatArray]:
        assert everything is not None
        d = everything.dimension
        mean, factor = np.zeros(d), np.zeros((d, d))
        for moments, part in zip(written, everything.slices, strict=True):
            if moments is not None:
                mean[part], factor[part, part] = moments()
        if rest:
            places = np.concatenate([np.arange(d)[everything.slices[i]] for i in rest])
            mean[places], found = _gaussian_prior(rvs, others, slope)
            factor[np.ix_(places, places)] = np.diag(found) if found.ndim == 1 else found
        return mean, factor

    return evaluate


def _written_moments(model: pm.Model, value: Variable) -> Callable[[], tuple[FloatArray, FloatArray]] | None:
    """Mean and factor of an MvNormal vector whose parameters are not random; None for any other variable."""
    rv = model.values_to_rvs[value]
    if not isinstance(rv.owner.op, MvNormalRV) or rv.type.ndim != 1 or model.rvs_to_transforms[rv] is not None:
        return None
    mean, covariance = rv.owner.op.dist_params(rv.owner)
    if set(model.free_RVs) & set(ancestors([mean, covariance])):
        return None
    evaluate = compile_function([], [mean, covariance], mode=MODE)

    def moments() -> tuple[FloatArray, FloatArray]:
        centre, matrix = evaluate()
        return centre, _stabilised_factor(rv.name, np.asarray(matrix, dtype=np.float64))

    return moments


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
    variables: list[Variable], layout: FlatVariables, evaluate: Callable[[FloatArray], list[FloatArray]]
) -> tuple[FloatArray, FloatArray]:
    """Mean and factor (or standard deviations), from ``evaluate``, the gradient of the prior's log-density."""
    d = layout.dimension
    slope, change = affine_map(evaluate, d)
    precision = -0.5 * (change + change.T)

    def departs(theta: FloatArray) -> bool:
        value, expected = evaluate(theta)[0], slope - theta @ precision
        return not np.allclose(value, expected, rtol=1e-5, atol=1e-7 * (1 + np.abs(expected).max()))

    name = _first_departure(tuple(variables), layout, departs)
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


def _some(numbers: NDArray[np.intp]) -> str:
    return ", ".join(map(str, numbers[:5])) + (", ..." if numbers.size > 5 else "")


def _first_departure(
    variables: tuple[Variable, ...], layout: FlatVariables, departs: Callable[[FloatArray], bool]
) -> str | None:
    """Probe all variables together; if the form fails, find the first variable, or the combination, it fails in."""
    probes = np.random.default_rng(0).standard_normal((len(PROBES), layout.dimension)) * np.array(PROBES)[:, None]
    if not departs(probes):
        return None
    names = [variable.name for variable in variables]
    for name, part in zip(names, layout.slices, strict=True):
        alone = np.zeros_like(probes)
        alone[:, part] = probes[:, part]
        if departs(alone):
            return name
    return "the combination of " + ", ".join(names)
