"""Convert a PyMC model to the arrays of a :class:`~pymc_pacauc.problem.problem.Problem`: :func:`problem_of`.

Scores made of the usual operations (:mod:`pymc_pacauc.model.graph`) and Gaussian priors
(:mod:`pymc_pacauc.model.prior`) are read off the graph without compilation. Everything else is *evaluated*, at zero and
at the unit vectors of the free variables, which gives the affine map, the prior mean and its precision; random probes
then verify that the model is affine and Gaussian. So any parametrisation works (scalar or vector sigma, ``pm.Data``,
MvNormal, intercepts, Deterministics, non-centred hierarchies with fixed scales, gp.Latent, HSGP), and another model is
refused with the name of the variable that is not affine or Gaussian. Spike-and-slab variables and other independent
priors (:mod:`pymc_pacauc.model.prior`) are recognised.

Values are not cached: every reading is of the data that the model has then.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pymc.vartypes import discrete_types
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import MvNormalRV, NormalRV

from pymc_pacauc.comparison.pairs import Block, Pairs
from pymc_pacauc.model.auc_term import AUCTerm, found_terms, names_of, refuse
from pymc_pacauc.model.graph import (
    Evaluate,
    FlatVariables,
    HeldData,
    Unreadable,
    affine_map,
    evaluate,
    first_departure,
    flat_variables,
    read_affine,
)
from pymc_pacauc.model.prior import (
    DensityVariable,
    GaussianPriorReader,
    SparseVariable,
    conditioned,
    density_variables,
    sparse_variables,
)
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.problem import Problem, Spikes, Table, Tabulated, linear_gaussian_problem


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
        Values of the model's ``pm.Data`` at that time.
    densities
        The variables among them whose priors are known by their densities.
    """

    model: pm.Model
    problem: Problem
    variables: tuple[Variable, ...]
    layout: FlatVariables
    sparse: tuple[SparseVariable, ...]
    free: FlatVariables
    data: HeldData
    densities: tuple[DensityVariable, ...] = ()

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
        if not (self.sparse or self.densities):
            return theta
        flat = np.empty((len(theta), self.free.dimension))
        place = dict(zip(self.free.names, self.free.slices, strict=True))
        split = {sparse.variable: sparse for sparse in self.sparse if sparse.dirac}
        for variable, part in zip(self.variables, self.layout.slices, strict=True):
            if variable not in split:
                known = next((each for each in self.densities if each.variable is variable), None)
                value = theta[:, part] if known is None else known.unconstrained(theta[:, part])
                flat[:, place[self.model.rvs_to_values[variable].name]] = value
                if known is not None and known.local_values is not None:
                    local = self.model.rvs_to_values[known.local].name
                    flat[:, place[local]] = known.local_values(theta[:, part], rng)
                continue
            sparse = split[variable]
            slab, latent = sparse.free_values(theta[:, part], rng)
            flat[:, place[self.model.rvs_to_values[sparse.slab].name]] = slab
            flat[:, place[self.model.rvs_to_values[sparse.latent].name]] = latent
        return flat


def problem_of(model: pm.Model) -> ModelProblem:
    """The :class:`~pymc_pacauc.problem.problem.Problem` of a model, or :class:`NotLinearGaussianError`."""
    return problem_reader(model)()


def problem_reader(model: pm.Model) -> Callable[[], ModelProblem]:
    """Return a function that does :func:`problem_of` for one model, reading its ``pm.Data`` at each call.

    Compilation happens once per model, and again when its variables, their shapes or a constant change.
    """
    return partial(reader_of(model).read, model)


def reader_of(model: pm.Model) -> ProblemReader:
    """Return the reader of a model, a new one if the model has changed."""
    reader = _readers.get(model)
    if reader is None or not reader.is_of(model):
        reader = _readers[model] = ProblemReader(model)
    return reader


class ProblemReader:
    """Reads the problem off a model; reusable as long as the model's variables and constants are the same.

    It is cached for the lifetime of the model, so it must not hold a reference to the model.
    """

    def __init__(self, model: pm.Model):
        self._terms = checked_terms(model)
        self._free = flat_variables(model)
        self._sparse = sparse_variables(model)
        taken = {v for each in self._sparse for v in (each.variable, each.slab, each.latent)}
        self._densities = density_variables(model, taken, [term.scores for term in self._terms])
        if self._sparse and self._densities:
            names = names_of(each.variable for each in self._densities)
            raise refuse(f"beside a spike-and-slab prior, that of {names} must be Gaussian")
        self._variables, self._layout = coefficients(model, self._free, self._sparse, self._densities)
        spiked = {each.variable for each in self._sparse} | {each.variable for each in self._densities}
        self._gaussian = [i for i, v in enumerate(self._variables) if v not in spiked]
        self._prior = GaussianPriorReader(model, self._layout.part(self._gaussian)) if self._gaussian else None
        scores = [term.scores for term in self._terms]
        known = {each.variable for each in self._densities}
        self._scores = _AffineGraph(self._variables, self._layout, scores, "scores", known)
        self._observed = [_GaussianObservation(model, rv, self._variables, self._layout) for rv in model.observed_RVs]
        self._made_of = _made_of(model)
        compiled = bool(self._densities) or (self._prior is not None and self._prior.compiled)
        self._folded = _digest(self._made_of) if compiled else None
        self._lock = Lock()  # a compiled function is not for two threads at once

    def is_of(self, model: pm.Model) -> bool:
        made_of = _made_of(model)
        same = len(made_of) == len(self._made_of) and all(map(operator.is_, made_of, self._made_of))
        same = same and flat_variables(model).shapes == self._free.shapes
        return same and (self._folded is None or self._folded == _digest(made_of))

    def read(
        self, model: pm.Model, like: Problem | None = None, components: dict[str, int] | None = None
    ) -> ModelProblem:
        """The problem; where its scores as functions of theta, pairs and gamma are known to be those of ``like``, with
        these as they are; given ``components`` of the variables whose priors are mixtures.
        """
        with self._lock:
            return self._read(model, like, components or {})

    def depends_on(self, variables: Iterable[Variable]) -> bool:
        """Whether what ``like`` holds depends on some variables."""
        return bool(set(variables) & set(ancestors([term.potential for term in self._terms], blockers=self._variables)))

    def _read(self, model: pm.Model, like: Problem | None, components: dict[str, int]) -> ModelProblem:
        layout, terms = self._layout, self._terms
        compiled = self._scores.compiled
        offset, slope = self._scores.read(model) if like is None else (like.offset, like.X.T)
        observed = [each.read(model) for each in self._observed]
        if self._scores.compiled and not compiled:
            self._folded = _digest(self._made_of)
        pairs, gamma = joined_pairs(terms) if like is None else (like.pairs, like.gamma)
        d = layout.dimension
        mean, factor = np.zeros(d), np.ones(d)
        if self._prior is not None:
            places = layout.places(self._gaussian)
            mean[places], found = self._prior(components)
            if found.ndim == 1:
                factor[places] = found
            elif self._sparse or self._densities:
                raise refuse("beside priors that are not Gaussian, the other variables are not independent")
            else:
                factor = found
        p, ratio = np.ones(d), np.ones(d)
        for each in self._sparse:
            part = layout.slices[self._variables.index(each.variable)]
            p[part], v0, v1 = each.hyperparameters()
            factor[part], ratio[part] = np.sqrt(v1), v0 / v1
        tables: list[Table] = []
        which = np.full(d, -1)
        for density in self._densities:
            part = layout.slices[self._variables.index(density.variable)]
            made, places = density.tables()
            which[part] = places + len(tables)
            factor[part] = np.array([table.spread for table in made])[places]
            tables += made
        absorbed = 0.0
        if observed and (self._sparse or self._densities):
            raise refuse("beside priors that are not Gaussian, it has a likelihood")
        for residual, map_, spread in observed:
            mean, factor, log_density = conditioned(mean, factor, residual, map_.T, spread)
            absorbed += log_density
        problem = linear_gaussian_problem(
            slope.T, pairs, gamma, prior_mean=mean, prior_factor=factor, offset=offset, ties=terms[0].ties
        )
        if self._sparse:
            problem = replace(problem, sites=Spikes(p, ratio))
        if self._densities:
            problem = replace(problem, sites=Tabulated(tuple(tables), which, factor))
        problem = replace(problem, absorbed=absorbed)
        return ModelProblem(
            model, problem, self._variables, layout, self._sparse, self._free, HeldData.of(model), self._densities
        )


class _AffineGraph:
    """Graphs of a model, joined, as an affine function of its coefficients: read off, or probed and verified."""

    def __init__(
        self,
        variables: tuple[Variable, ...],
        layout: FlatVariables,
        graphs: list[Variable],
        what: str,
        known: Iterable[Variable] = (),
    ):
        self._variables, self._layout, self._graphs, self._what = variables, layout, graphs, what
        self._known = set(known)  # variables that stand as they are though PyMC transforms them
        self._compiled: Evaluate | None = None

    @property
    def compiled(self) -> bool:
        return self._compiled is not None

    def read(self, model: pm.Model) -> tuple[FloatArray, FloatArray]:
        """The values at zero, and their slopes, a row for each coefficient."""
        if self._compiled is None:
            try:
                offset, slope = self._read_off(model)
                if np.isfinite(offset).all() and np.isfinite(slope).all():
                    return offset, slope
            except Unreadable:
                pass
            joined = pt.concatenate(self._graphs) if len(self._graphs) > 1 else self._graphs[0]
            self._compiled = _of_theta(model, self._variables, self._layout, joined)
        offset, slope = affine_map(self._compiled, self._layout.dimension)
        _check_affine(self._variables, self._layout, self._compiled, slope, offset, self._what)
        return offset, slope

    def _read_off(self, model: pm.Model) -> tuple[FloatArray, FloatArray]:
        if any(model.rvs_to_transforms.get(v) is not None and v not in self._known for v in self._variables):
            raise Unreadable("a variable is transformed")
        found = [read_affine(graph, self._variables, self._layout.shapes) for graph in self._graphs]
        offsets, slopes = zip(*found, strict=True)
        return np.concatenate(offsets), np.concatenate(slopes, axis=1)


class _GaussianObservation:
    """An observed Normal or MvNormal whose mean is affine in the coefficients."""

    def __init__(self, model: pm.Model, rv: Variable, variables: tuple[Variable, ...], layout: FlatVariables):
        mean, self._spread = rv.owner.op.dist_params(rv.owner)
        self._rv = rv
        whole = (mean + pt.zeros_like(model.rvs_to_values[rv], dtype="float64")).ravel()
        self.mean = _AffineGraph(variables, layout, [whole], f"mean of {rv.name}")

    def read(self, model: pm.Model) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the observations minus their mean at zero, the slopes of the mean, and its sd's or covariance."""
        if random := set(model.free_RVs) & set(ancestors([self._spread])):
            raise refuse(f"the spread of the likelihood {self._rv.name} depends on {names_of(random)}")
        offset, slope = self.mean.read(model)
        value, spread = evaluate([model.rvs_to_values[self._rv], self._spread])
        joint = isinstance(self._rv.owner.op, MvNormalRV)
        if joint and np.ndim(value) > 1:
            raise refuse(f"the likelihood {self._rv.name} is a batch of multivariate normals")
        value = np.asarray(value, dtype=np.float64)
        return value.ravel() - offset, slope, spread if joint else np.broadcast_to(spread, value.shape).ravel()


_readers: WeakKeyDictionary[pm.Model, ProblemReader] = WeakKeyDictionary()


def _made_of(model: pm.Model) -> list[Any]:
    """Return all objects that the functions of a model depend on: if these are the same, so are the functions."""
    named = [*model.free_RVs, *model.observed_RVs, *model.potentials, *model.deterministics]
    transforms = [model.rvs_to_transforms[rv] for rv in model.free_RVs]
    return [*named, *model.value_vars, *transforms, *ancestors(named)]


def _digest(made_of: list[Any]) -> bytes:
    """Compute a hash of all constants of compiled functions, whose arrays may have been changed in place."""
    digest = hashlib.blake2b()
    for each in made_of:
        if isinstance(each, Constant) and isinstance(each.data, np.ndarray):
            digest.update(repr((each.data.dtype.str, each.data.shape)).encode())
            digest.update(each.data.tobytes())
    return digest.digest()


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
    model: pm.Model,
    free: FlatVariables,
    sparse: tuple[SparseVariable, ...],
    densities: tuple[DensityVariable, ...] = (),
) -> tuple[tuple[Variable, ...], FlatVariables]:
    """Return the variables that make up theta, and their layout; a point-mass coefficient takes the place of its slab.

    A variable that PyMC transforms enters untransformed.
    """
    in_place_of: dict[Variable, Any] = {each.slab: each for each in sparse if each.dirac}
    in_place_of |= {each.variable: each for each in densities if each.transformed}
    hidden = {each.latent for each in sparse if each.dirac} | {each.local for each in densities}
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
        if model.rvs_to_values.get(variable) is not value
    }
    outputs = model.replace_rvs_by_values(graph_replace([graph], replaced, strict=False))
    unknown = set(model.value_vars) & set(ancestors(outputs)) - set(layout.values)
    if unknown:
        names = names_of(model.values_to_rvs[value] for value in unknown)
        raise ValueError(f"The expression depends on {names}, which the model did not have when it was fitted: refit.")
    return layout.function(outputs)


def _check_affine(
    variables: tuple[Variable, ...],
    layout: FlatVariables,
    evaluate: Evaluate,
    slope: FloatArray,
    offset: FloatArray,
    what: str,
) -> None:
    if not (np.isfinite(slope).all() and np.isfinite(offset).all()):
        probes = evaluate(np.random.default_rng(0).standard_normal((4, layout.dimension)))[0]
        bad = np.flatnonzero(~np.isfinite(probes).any(axis=0))  # whatever theta: it is the data
        if 0 < bad.size < offset.size:
            raise ValueError(
                f"The {what} of {bad.size} observation(s) are NaN or infinite (rows {_some(bad)}): look for NaN, "
                "infinities or overflow in the covariates; impute or drop them first."
            )
        raise refuse(f"its {what} are not finite everywhere")

    def departs(theta: FloatArray) -> bool:
        values = evaluate(theta)[0]
        return not np.allclose(values, theta @ slope + offset, rtol=1e-6, atol=1e-8 * (1 + np.abs(values).max()))

    name = first_departure([v.name for v in variables], layout, departs)
    if name is not None:
        raise refuse(f"the {what} {'are' if what == 'scores' else 'is'} not affine in {name}")


def _some(numbers: NDArray[np.intp]) -> str:
    return ", ".join(map(str, numbers[:5])) + (", ..." if numbers.size > 5 else "")
