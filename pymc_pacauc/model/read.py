"""Convert a PyMC model to the arrays of a :class:`~pymc_pacauc.problem.problem.Problem`: :func:`problem_of`.

Scores, made of operations that :mod:`pymc_pacauc.model.graph` knows to be linear, and priors
(:mod:`pymc_pacauc.model.prior`) are read off the graph, in any parametrisation: scalar or vector sigma, ``pm.Data``,
MvNormal, intercepts, Deterministics, hierarchies with fixed scales, centred or not, gp.Latent, HSGP, spike and slab,
other independent priors. Another model is refused with the name of the variable that is not affine or Gaussian.

Nothing is cached: every reading is of the data that the model has then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pymc.vartypes import discrete_types
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import MvNormalRV, NormalRV

from pymc_pacauc.comparison.pairs import Block, Pairs
from pymc_pacauc.model.auc_term import AUCTerm, found_terms, names_of, refuse
from pymc_pacauc.model.graph import FlatVariables, HeldData, Unreadable, evaluate, flat_variables, read_affine
from pymc_pacauc.model.prior import GaussianPriorReader, IndependentPrior, conditioned, independent_priors
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.problem import PriorSites, Problem, Spikes, Table, Tabulated, linear_gaussian_problem
from pymc_pacauc.problem.scores import GaussianPrior


@dataclass(frozen=True, eq=False)
class ModelProblem:
    """The problem of a model, and where the model's variables are in its theta.

    Attributes
    ----------
    model : pm.Model
        The model that was read.
    problem : Problem
        Its arrays; theta is the concatenation of ``variables``.
    variables : tuple of Variable
        The coefficients: free variables in the model's order, a spike-and-slab variable with a point mass in the place
        of its free parts.
    layout : FlatVariables
        Positions and shapes of the variables in theta.
    independent : tuple of IndependentPrior
        The priors of those variables that are not Gaussian.
    free : FlatVariables
        Layout of the model's own free variables.
    data : HeldData
        Values of the model's ``pm.Data`` at that time.
    """

    model: pm.Model
    problem: Problem
    variables: tuple[Variable, ...]
    layout: FlatVariables
    independent: tuple[IndependentPrior, ...]
    free: FlatVariables
    data: HeldData

    @property
    def sparse(self) -> tuple[IndependentPrior, ...]:
        """The spike-and-slab priors."""
        return tuple(each for each in self.independent if each.spiked)

    @property
    def moved(self) -> dict[str, IndependentPrior]:
        """By name, the variables of theta that are not free variables themselves."""
        return {each.name: each for each in self.independent if each.free_values is not None}

    @property
    def transformed(self) -> tuple[str, ...]:
        """Names of the Gaussian variables of which theta has other coordinates, such as zero-sum ones."""
        known = {each.name for each in self.independent}
        kinds = self.model.rvs_to_transforms
        return tuple(v.name for v in self.variables if v.name not in known and kinds.get(v) is not None)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(variable.name for variable in self.variables)

    @property
    def parts(self) -> dict[str, slice]:
        """Where each variable is in theta."""
        return dict(zip(self.names, self.layout.slices, strict=True))

    def function(self, graph: Variable) -> Callable[[FloatArray], list[NDArray[Any]]]:
        """Return f(theta[N, d]) -> [graph[N, ...]] for an expression of the model.

        The function reads the model's ``pm.Data`` when it is called; ``with self.data.held_by(self.model)`` has them as
        they were.
        """
        return self.layout.function(_in_values(self.model, self.variables, self.layout, [graph]))

    def free_values(self, theta: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Compute the model's free variables ``[N, D]`` at ``theta[N, d]``.

        The two parts of a point-mass coefficient, and local scales, are not functions of it: they are drawn from their
        prior given it.
        """
        if not (moved := self.moved):
            return theta
        flat = np.empty((len(theta), self.free.dimension))
        place = {self.model.values_to_rvs[v].name: k for v, k in zip(self.free.values, self.free.slices, strict=True)}
        for name, part in self.parts.items():
            if name in moved:
                values = moved[name].free_values(theta[:, part], rng)
                for free, value in zip(moved[name].free, values, strict=True):
                    flat[:, place[free]] = value
            else:
                flat[:, place[name]] = theta[:, part]
        return flat


def problem_of(model: pm.Model) -> ModelProblem:
    """Read the :class:`~pymc_pacauc.problem.problem.Problem` of a model, or raise :class:`NotLinearGaussianError`."""
    return ProblemReader(model).read()


class ProblemReader:
    """Reads the problem off a model, again at each call, as long as its variables and their shapes are the same."""

    def __init__(self, model: pm.Model):
        self._model, self._terms, self._free = model, checked_terms(model), flat_variables(model)
        scores = [term.scores for term in self._terms]
        self._independent = independent_priors(model, scores)
        self._variables, layout = coefficients(model, self._free, self._independent)
        self._layout = layout
        known = {each.name for each in self._independent}
        self._gaussian = [i for i, v in enumerate(self._variables) if v.name not in known]
        self._prior = GaussianPriorReader(model, layout.part(self._gaussian))
        graphs = [*scores, *(_mean_of(model, rv) for rv in model.observed_RVs)]
        self._inputs: tuple[Variable, ...] = self._variables
        if any(model.rvs_to_transforms[self._variables[i]] is not None for i in self._gaussian):  # such as zero-sum
            graphs, self._inputs = _in_values(model, self._variables, layout, graphs), layout.values
        self._scores, means = graphs[: len(scores)], graphs[len(scores) :]
        self._observed = list(zip(model.observed_RVs, means, strict=True))

    def depends_on(self, variables: Iterable[Variable]) -> bool:
        """Whether what ``like`` holds depends on some variables."""
        return bool(set(variables) & set(ancestors([term.potential for term in self._terms], blockers=self._variables)))

    def read(self, like: Problem | None = None) -> ModelProblem:
        """Read the problem; scores, pairs and gamma are those of ``like`` where they are known to be the same."""
        model, layout, terms = self._model, self._layout, self._terms
        offset, slope = self._affine(self._scores, "scores") if like is None else (like.offset, like.X.T)
        observed = [self._observation(rv, mean) for rv, mean in self._observed]
        pairs, gamma = joined_pairs(terms) if like is None else (like.pairs, like.gamma)
        prior, sites = self._read_prior()
        if observed and sites is not None:
            raise refuse("beside priors that are not Gaussian, it has a likelihood")
        absorbed = 0.0
        for noise, map_, values in observed:
            prior, log_density = conditioned(prior, noise, map_, values)
            absorbed += log_density
        problem = linear_gaussian_problem(
            slope.T, pairs, gamma, prior_mean=prior.mean, prior_factor=prior.factor, offset=offset, ties=terms[0].ties
        )
        problem = replace(problem, sites=sites, absorbed=absorbed)
        return ModelProblem(model, problem, self._variables, layout, self._independent, self._free, HeldData.of(model))

    def _read_prior(self) -> tuple[GaussianPrior, PriorSites | None]:
        """Read the Gaussian prior of theta, and the priors of coefficients relative to it that are not Gaussian."""
        layout, d = self._layout, self._layout.dimension
        mean, factor = np.zeros(d), np.ones(d)
        places = layout.places(self._gaussian)
        mean[places], found = self._prior()
        if not self._independent:
            return GaussianPrior(mean, found), None
        if found.ndim > 1:
            raise refuse("beside priors that are not Gaussian, the other variables are not independent")
        factor[places] = found
        p, ratio, which = np.ones(d), np.ones(d), np.full(d, -1)
        tables: list[Table] = []
        for each in self._independent:
            part = layout.slices[[v.name for v in self._variables].index(each.name)]
            if each.spiked:
                p[part], v0, v1 = each.read()
                factor[part], ratio[part] = np.sqrt(v1), v0 / v1
            else:
                made, place = each.read()
                which[part] = place + len(tables)
                factor[part] = np.array([table.spread for table in made])[place]
                tables += made
        sites = Tabulated(tuple(tables), which, factor) if tables else Spikes(p, ratio)
        return GaussianPrior(mean, factor), sites

    def _affine(self, graphs: list[Variable], what: str) -> tuple[FloatArray, FloatArray]:
        """Compute the values of joined graphs at zero, and their slopes, a row for each coefficient."""
        try:
            found = [read_affine(graph, self._inputs, self._layout.shapes) for graph in graphs]
        except Unreadable as error:
            if not error.inputs:
                raise refuse(f"its {what} cannot be read ({error})") from None
            names = [self._variables[i].name for i in error.inputs]
            several = "the combination of " if len(names) > 1 else ""
            are = "are" if what == "scores" else "is"
            raise refuse(f"the {what} {are} not affine in {several}{', '.join(names)} ({error})") from None
        offsets, slopes = zip(*found, strict=True)
        offset, slope = np.concatenate(offsets), np.concatenate(slopes, axis=1) if len(slopes) > 1 else slopes[0]
        bad = np.flatnonzero(~(np.isfinite(offset) & np.isfinite(slope).all(axis=0)))
        if 0 < bad.size < offset.size:
            rows = ", ".join(map(str, bad[:5])) + (", ..." if bad.size > 5 else "")
            raise ValueError(
                f"The {what} of {bad.size} observation(s) are NaN or infinite (rows {rows}): look for NaN, "
                "infinities or overflow in the covariates; impute or drop them first."
            )
        if bad.size:
            raise refuse(f"its {what} are not finite everywhere")
        return offset, slope

    def _observation(self, rv: Variable, mean: Variable) -> tuple[GaussianPrior, FloatArray, FloatArray]:
        """Return noise, slopes and values of an observed variable minus its mean at zero: slopes @ theta + noise."""
        _, spread = rv.owner.op.dist_params(rv.owner)
        if random := set(self._model.free_RVs) & set(ancestors([spread])):
            raise refuse(f"the spread of the likelihood {rv.name} depends on {names_of(random)}")
        offset, slope = self._affine([mean], f"mean of {rv.name}")
        value, sd = evaluate([self._model.rvs_to_values[rv], spread])
        joint = isinstance(rv.owner.op, MvNormalRV)
        if joint and np.ndim(value) > 1:
            raise refuse(f"the likelihood {rv.name} is a batch of multivariate normals")
        factor = np.linalg.cholesky(sd) if joint else np.broadcast_to(sd, value.shape).ravel()
        residual = np.asarray(value, dtype=np.float64).ravel() - offset
        return GaussianPrior(np.zeros(residual.size), factor), slope.T, residual


def _mean_of(model: pm.Model, rv: Variable) -> Variable:
    """Return the mean of an observed normal variable, one number for each observation."""
    mean, _ = rv.owner.op.dist_params(rv.owner)
    return (mean + pt.zeros_like(model.rvs_to_values[rv], dtype="float64")).ravel()


def checked_terms(model: pm.Model) -> list[AUCTerm]:
    """Return the terms of a model; refuse what can be refused without evaluating anything."""
    terms = linear_terms(model)
    others = [rv for rv in model.observed_RVs if not isinstance(rv.owner.op, NormalRV | MvNormalRV)]
    if others:
        raise refuse(f"it has a likelihood besides the AUC term that is not Gaussian ({names_of(others)})")
    risks = {term.risk for term in terms}
    others = [v for v in model.potentials if not risks & set(ancestors([v]))]
    if others:
        raise refuse(f"it has other potentials ({names_of(others)})")
    discrete = [v for v in model.value_vars if v.dtype in discrete_types]
    if discrete:
        raise refuse(
            f"the variable(s) {names_of(model.values_to_rvs[v] for v in discrete)} are discrete",
            "Neither pac.EP nor pac.TemperingSMC moves discrete variables: marginalise them, or use a "
            "continuous prior such as pac.SpikeSlab.",
        )
    improper = [rv for rv in model.free_RVs if isinstance(rv.owner.op, FlatRV | HalfFlatRV)]
    if improper:
        raise refuse(
            f"the prior of {names_of(improper)} is improper",
            "Neither pac.EP nor pac.TemperingSMC can start from it: replace pm.Flat and pm.HalfFlat by a "
            "proper prior, for example pm.Normal.",
        )
    return terms


def linear_terms(model: pm.Model) -> list[AUCTerm]:
    """Return the terms of a model, at least one; their ties must have one cost."""
    terms = found_terms(model)
    if len({term.ties for term in terms}) > 1:
        raise refuse("its potentials have different ties=: use the same for all")
    return terms


def joined_pairs(terms: list[AUCTerm]) -> tuple[Pairs, float]:
    """Join the pairs of all terms, of their concatenated scores; return also the sum of their gammas.

    sum_k gamma_k risk_k is one risk at that gamma, in which a pair of term k has the weight gamma_k divided by the
    weight of all pairs of the term.
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


def coefficients(
    model: pm.Model, free: FlatVariables, independent: tuple[IndependentPrior, ...]
) -> tuple[tuple[Variable, ...], FlatVariables]:
    """Return the variables that make up theta, and their layout; a point-mass coefficient takes the place of its slab.

    A variable that PyMC transforms enters untransformed; local scales do not enter.
    """
    moved = {each.free[0]: model[each.name] for each in independent if each.free_values is not None}
    hidden = {name for each in independent for name in each.free[1:]}
    variables, inputs, shapes = [], [], []
    for value, shape in zip(free.values, free.shapes, strict=True):
        rv = model.values_to_rvs[value]
        if rv.name in hidden:
            continue
        variable = moved.get(rv.name, rv)
        variables.append(variable)
        inputs.append(variable.type(variable.name) if rv.name in moved else value)
        shapes.append(shape)
    return tuple(variables), FlatVariables(tuple(inputs), tuple(shapes))


def _in_values(
    model: pm.Model, variables: tuple[Variable, ...], layout: FlatVariables, graphs: list[Variable]
) -> list[Variable]:
    """Write graphs of a model as functions of the values of its coefficients."""
    replaced = {
        variable: value
        for variable, value in zip(variables, layout.values, strict=True)
        if model.rvs_to_values.get(variable) is not value
    }
    outputs = model.replace_rvs_by_values(graph_replace(graphs, replaced, strict=False))
    unknown = set(model.value_vars) & set(ancestors(outputs)) - set(layout.values)
    if unknown:
        names = names_of(model.values_to_rvs[value] for value in unknown)
        raise ValueError(f"The expression depends on {names}, which the model did not have when it was fitted: refit.")
    return outputs
