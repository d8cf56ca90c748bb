"""From a PyMC model to the arrays of a Problem.

Next to nothing is recognised by its type. The scores and the gradient of the prior's log-density are *evaluated*, at
zero and at the unit vectors of the free variables, which gives the affine map, the prior mean and its precision; then
random probes verify that the model really is affine and Gaussian. So any parametrisation works (scalar or vector sigma,
``pm.Data``, MvNormal, intercepts, Deterministics, non-centred hierarchies with fixed scales, gp.Latent, HSGP), and a
model that is not of this form is refused with the name of the variable that breaks it. The exception is an MvNormal,
whose covariance is read off: a kernel matrix is often too close to singular to be recovered from its inverse.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.pytensorf import compile as compile_function
from pymc.vartypes import discrete_types
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.random.basic import MvNormalRV

from pymc_pacauc.core.pairs import bipartite
from pymc_pacauc.core.problem import Problem, linear_gaussian_problem
from pymc_pacauc.model.flat import MODE, FlatVariables, flat_variables
from pymc_pacauc.model.op import AUCRisk

__all__ = [
    "AUCTerm",
    "ExtractedProblem",
    "NotLinearGaussian",
    "affine_map",
    "affine_scores",
    "auc_term",
    "extract",
    "extractor",
    "gaussian_prior",
    "refuse",
]

FloatArray = NDArray[np.float64]

PROBES = (0.1, 1.0, 7.0)


class NotLinearGaussian(ValueError):
    """The model's scores are not affine in Gaussian variables; the message says where, and what to do."""


@dataclass(frozen=True, eq=False)
class AUCTerm:
    """The AUC potential of a model: ``potential = -gamma * risk``."""

    risk: Variable
    scores: Variable
    labels: NDArray[np.int8]
    gamma: float
    ties: str


@dataclass(frozen=True, eq=False)
class ExtractedProblem:
    """A problem whose theta is the concatenation of the model's value variables, in the model's order."""

    problem: Problem
    variables: FlatVariables


def extract(model: pm.Model) -> ExtractedProblem:
    """The :class:`~pymc_pacauc.core.problem.Problem` of a model, or :class:`NotLinearGaussian`."""
    return extractor(model)()


def extractor(model: pm.Model) -> Callable[[], ExtractedProblem]:
    """:func:`extract` compiled once: each call reads the values of the model's ``pm.Data`` (but the labels) anew."""
    term = auc_term(model)
    if model.observed_RVs:
        raise refuse(f"it has a likelihood besides the AUC term ({_names(model.observed_RVs)})")
    others = [v for v in model.potentials if term.risk not in set(ancestors([v]))]
    if others:
        raise refuse(f"it has other potentials ({_names(others)})")
    discrete = [v for v in model.value_vars if v.dtype in discrete_types]
    if discrete:
        raise refuse(f"the variable(s) {_names(model.values_to_rvs[v] for v in discrete)} are discrete")
    variables = flat_variables(model)
    scores = variables.function(model.replace_rvs_by_values([term.scores]))
    prior = _prior(model, variables)
    pairs = bipartite(term.labels)

    def evaluate() -> ExtractedProblem:
        design, offset = affine_scores(model, variables, scores)
        mean, covariance = prior()
        problem = linear_gaussian_problem(
            design,
            pairs,
            term.gamma,
            prior_mean=mean,
            prior_covariance=covariance,
            offset=offset,
            ties=term.ties,
        )
        return ExtractedProblem(problem, variables)

    return evaluate


def auc_term(model: pm.Model) -> AUCTerm:
    """Find the one AUC risk among a model's potentials, with its labels and gamma."""
    found = {
        variable: potential
        for potential in model.potentials
        for variable in ancestors([potential])
        if is_auc_risk(variable)
    }
    if len(found) != 1:
        raise refuse(f"it has {len(found)} exact AUC terms where one is expected; add one with pac.AUCPotential")
    [(risk, potential)] = found.items()
    scores, labels = risk.owner.inputs
    if risk.type.ndim:
        raise refuse(f"the scores of {potential.name} have batch dimensions")
    gamma = _gamma(model, potential, risk)
    values = compile_function([], labels, mode=MODE)()
    op = risk.owner.op
    return AUCTerm(risk, scores, values, gamma, (op.core_op if isinstance(op, Blockwise) else op).ties)


def is_auc_risk(variable: Variable) -> bool:
    op = getattr(variable.owner, "op", None)
    return isinstance(op.core_op if isinstance(op, Blockwise) else op, AUCRisk)


def _gamma(model: pm.Model, potential: Variable, risk: Variable) -> float:
    """The slope of the potential in the risk, which must be constant and negative."""
    argument = risk.type("risk")
    of_risk = graph_replace([potential], {risk: argument})[0]
    random = set(model.free_RVs) & set(ancestors([of_risk]))
    if random:
        raise refuse(f"the potential {potential.name} depends on {_names(random)} other than through the risk")
    at = compile_function([argument], of_risk.sum(), mode=MODE)
    zero, one, two = (float(at(value)) for value in (0.0, 1.0, 2.0))
    gamma = zero - one
    if not (zero == 0 and np.isclose(two, 2 * one)):
        raise refuse(f"the potential {potential.name} is not of the form -gamma * risk")
    if not gamma > 0:
        raise ValueError(f"gamma must be > 0; the potential {potential.name} has gamma = {gamma:g}.")
    return gamma


def affine_scores(
    model: pm.Model, variables: FlatVariables, evaluate: Callable[[FloatArray], list[FloatArray]]
) -> tuple[FloatArray, FloatArray]:
    offset, design = affine_map(evaluate, variables.dimension)

    def departs(theta: FloatArray) -> bool:
        values = evaluate(theta)[0]
        return not np.allclose(values, theta @ design + offset, rtol=1e-6, atol=1e-8 * (1 + np.abs(values).max()))

    name = _first_departure(model, variables, departs)
    if name is not None:
        raise refuse(f"the scores are not affine in {name}")
    return design.T, offset


def _prior(model: pm.Model, variables: FlatVariables) -> Callable[[], tuple[FloatArray, FloatArray]]:
    """Mean and covariance of the free variables; of an MvNormal as it is written, so that no covariance is inverted."""
    written = [_written_moments(model, value) for value in variables.values]
    rest = [i for i, moments in enumerate(written) if moments is None]
    if not rest:
        others = None
    else:
        others = FlatVariables(tuple(variables.values[i] for i in rest), tuple(variables.shapes[i] for i in rest))
        rvs = [model.values_to_rvs[value] for value in others.values]
        logp = pt.sum([pt.sum(term) for term in model.logp(rvs, sum=False)])
        gradients = pytensor.grad(logp, list(others.values), disconnected_inputs="ignore")
        slope = others.function([pt.concatenate([g.ravel() for g in gradients])])
        if len(rest) == len(written):
            return lambda: gaussian_prior(model, variables, slope)

    def evaluate() -> tuple[FloatArray, FloatArray]:
        d = variables.dimension
        mean, covariance = np.zeros(d), np.zeros((d, d))
        for moments, part in zip(written, variables.slices, strict=True):
            if moments is not None:
                mean[part], covariance[part, part] = moments()
        if others is not None:
            places = np.concatenate([np.arange(d)[variables.slices[i]] for i in rest])
            mean[places], found = gaussian_prior(model, others, slope)
            covariance[np.ix_(places, places)] = np.diag(found) if found.ndim == 1 else found
        return mean, covariance

    return evaluate


def _written_moments(model: pm.Model, value: Variable) -> Callable[[], tuple[FloatArray, FloatArray]] | None:
    """Mean and covariance of an MvNormal vector whose parameters are not random; None for any other variable."""
    rv = model.values_to_rvs[value]
    if not isinstance(rv.owner.op, MvNormalRV) or rv.type.ndim != 1 or model.rvs_to_transforms[rv] is not None:
        return None
    mean, covariance = rv.owner.op.dist_params(rv.owner)
    if set(model.free_RVs) & set(ancestors([mean, covariance])):
        return None
    evaluate = compile_function([], [mean, covariance], mode=MODE)

    def moments() -> tuple[FloatArray, FloatArray]:
        centre, matrix = evaluate()
        return centre, _stabilised(rv.name, np.asarray(matrix, dtype=np.float64))

    return moments


def _stabilised(name: str, covariance: FloatArray) -> FloatArray:
    """The covariance, with the smallest jitter that makes its Cholesky factor exist; a jitter is reported."""
    scale = float(np.diagonal(covariance).mean())
    for relative in (0.0, *np.logspace(-14, -6, 9)):
        jittered = covariance + relative * scale * np.eye(len(covariance))
        try:
            np.linalg.cholesky(jittered)
        except np.linalg.LinAlgError:
            continue
        if relative:
            warnings.warn(
                f"The prior covariance of {name} is not positive definite in floating point: {relative * scale:.1e} "
                "was added to its diagonal. Add a jitter of your own to be rid of this message.",
                stacklevel=4,
            )
        return jittered
    smallest = np.linalg.eigvalsh(covariance)[0]
    raise ValueError(f"The prior covariance of {name} is not positive definite (smallest eigenvalue {smallest:.2g}).")


def gaussian_prior(
    model: pm.Model, variables: FlatVariables, evaluate: Callable[[FloatArray], list[FloatArray]]
) -> tuple[FloatArray, FloatArray]:
    """Mean and covariance (or variances), from ``evaluate``, the gradient of the prior's log-density."""
    d = variables.dimension
    slope, change = affine_map(evaluate, d)
    precision = -0.5 * (change + change.T)

    def departs(theta: FloatArray) -> bool:
        value, expected = evaluate(theta)[0], slope - theta @ precision
        return not np.allclose(value, expected, rtol=1e-5, atol=1e-7 * (1 + np.abs(expected).max()))

    name = _first_departure(model, variables, departs)
    if name is not None:
        raise refuse(f"the prior of {name} is not Gaussian (in its unconstrained value)")
    diagonal = np.diagonal(precision)
    if not np.any(precision - np.diag(diagonal)):
        if (diagonal <= 0).any():
            raise refuse("its prior is improper: some precisions are not positive")
        return slope / diagonal + 0.0, 1.0 / diagonal  # + 0.0: no negative zeros
    try:
        factor = np.linalg.cholesky(precision)
    except np.linalg.LinAlgError:
        raise refuse("its prior precision is not positive definite") from None
    root = np.linalg.solve(factor, np.eye(d))  # precision^-1 = root' root
    return root.T @ (root @ slope), root.T @ root


def affine_map(evaluate: Callable[[FloatArray], list[FloatArray]], d: int) -> tuple[FloatArray, FloatArray]:
    """The value at zero, and its change towards each unit vector, a row each."""
    values = evaluate(np.eye(d + 1, d, k=-1))[0]
    return values[0], values[1:] - values[0]


def _first_departure(model: pm.Model, variables: FlatVariables, departs: Callable[[FloatArray], bool]) -> str | None:
    """Probe all variables together; if the form fails, find the first variable, or the combination, it fails in."""
    probes = np.random.default_rng(0).standard_normal((len(PROBES), variables.dimension)) * np.array(PROBES)[:, None]
    if not departs(probes):
        return None
    names = [model.values_to_rvs.get(value, value).name for value in variables.values]
    for name, part in zip(names, variables.slices, strict=True):
        alone = np.zeros_like(probes)
        alone[:, part] = probes[:, part]
        if departs(alone):
            return name
    return "the combination of " + ", ".join(names)


def _names(variables) -> str:
    return ", ".join(sorted(v.name for v in variables))


def refuse(reason: str) -> NotLinearGaussian:
    return NotLinearGaussian(
        f"The model is not linear-Gaussian: {reason}. Expectation-Propagation needs scores that are affine in Gaussian "
        "variables and one pac.AUCPotential; any other model can be sampled with pm.sample(step=pac.TemperingSMC())."
    )
