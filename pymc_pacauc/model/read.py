"""An affine graph read off: its value at zero and its slopes, node by node, without compiling or probing.

Each value on the way is a constant, or :class:`Affine` in some of the inputs. The rules below are exact, and cover what
linear scores are written with: products with matrices and numbers, sums, indexing, reshaping, stacking. Any other node
that an input reaches makes the graph :class:`~pymc_pacauc.model.graph.Unreadable`, which says nothing about it: it
may be affine all the same.

From a PyMC model to the arrays of a :class:`~pymc_pacauc.problem.problem.Problem`: the only way from PyMC to arrays.

The scores are read off the graph where they are written with what linear scores are usually written with
(:mod:`pymc_pacauc.model.read`), and so are Gaussian priors (:mod:`pymc_pacauc.model.prior`), without compiling
anything. Everything else is *evaluated*, at zero and at the unit vectors of the free variables, which gives the affine
map, the prior mean and its precision; then random probes verify that the model really is affine and Gaussian. So any
parametrisation works (scalar or vector sigma, ``pm.Data``, MvNormal, intercepts, Deterministics, non-centred
hierarchies with fixed scales, gp.Latent, HSGP), and a model that is not of this form is refused with the name of the
variable that breaks it. Spike-and-slab variables (:mod:`pymc_pacauc.model.prior`) are recognised.

Values are never kept: every reading is of the data that the model holds then.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
from pytensor.compile.ops import ViewOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors, toposort
from pytensor.scalar import basic as scalar
from pytensor.tensor.basic import Join, MakeVector
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_pacauc.comparison.pairs import Block, Pairs
from pymc_pacauc.model.auc_term import AUCTerm, found_terms, names_of, refuse
from pymc_pacauc.model.graph import (
    Evaluate,
    FlatVariables,
    Unreadable,
    affine_map,
    first_departure,
    flat_variables,
    leaf_value,
    perform,
)
from pymc_pacauc.model.prior import (
    DensityVariable,
    GaussianPriorReader,
    SparseVariable,
    density_variables,
    sparse_variables,
)
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.problem import Problem, Spikes, Table, Tabulated, linear_gaussian_problem

# Linear in their first input, the others being indices and shapes
STRUCTURAL = (Subtensor, AdvancedSubtensor, Reshape, SpecifyShape, Sum)
JOINING = (Join, MakeVector)


@dataclass(frozen=True, eq=False)
class HeldData:
    """What a model's ``pm.Data``, mutable dimensions and coords held at some time; frozen data need no holding."""

    values: dict[SharedVariable, NDArray[Any]]
    coords: dict[str, Any]

    @classmethod
    def of(cls, model: pm.Model) -> HeldData:
        held = [v for v in (*model.data_vars, *model.dim_lengths.values()) if isinstance(v, SharedVariable)]
        return cls({v: v.get_value(borrow=True) for v in held}, dict(model.coords))

    def write(self, model: pm.Model) -> None:
        for variable, value in self.values.items():
            variable.set_value(value, borrow=True)
        model._coords.update({name: self.coords[name] for name in self.coords if name in model.coords})

    @contextmanager
    def held_by(self, model: pm.Model) -> Iterator[None]:
        """The model as it was, for the duration of the block."""
        now = HeldData.of(model)
        self.write(model)
        try:
            yield
        finally:
            now.write(model)


@dataclass(frozen=True, eq=False)
class Affine:
    """``offset + sum_i u_i . slopes[i]`` with u_i the flattened i-th input: slopes ``[size of u_i, *shape]``.

    ``unit`` says that the value is an input itself, but for its shape: slopes are then the identity.
    """

    offset: FloatArray
    slopes: dict[int, FloatArray]
    unit: bool = False


def read_affine(
    graph: Variable, inputs: Sequence[Variable], shapes: Sequence[tuple[int, ...]]
) -> tuple[FloatArray, FloatArray]:
    """The value at zero, and its change towards each unit vector of the flat inputs, a row each."""
    sizes = [int(np.prod(shape)) for shape in shapes]
    values: dict[Variable, Any] = {
        variable: Affine(np.zeros(shape), {i: np.eye(size).reshape(size, *shape)}, unit=True)
        for i, (variable, shape, size) in enumerate(zip(inputs, shapes, sizes, strict=True))
    }
    if any(v.type.dtype != "float64" for v in inputs):
        raise Unreadable("the inputs are not float64")
    for node in toposort([graph], blockers=values):
        operands = [values[v] if v in values else leaf_value(v) for v in node.inputs]
        if any(isinstance(each, Affine) for each in operands):
            values[_only_output(node)] = _apply(node, operands)
        else:
            values.update(zip(node.outputs, perform(node, operands), strict=True))
    found = values[graph] if graph in values else leaf_value(graph)
    if not isinstance(found, Affine):
        found = Affine(np.asarray(found), {})
    shape = found.offset.shape
    slopes = [np.broadcast_to(found.slopes.get(i, 0.0), (size, *shape)) for i, size in enumerate(sizes)]
    return np.array(found.offset), np.concatenate(slopes)


def _only_output(node: Apply) -> Variable:
    if len(node.outputs) != 1:
        raise Unreadable(f"{node} has {len(node.outputs)} outputs")
    return node.outputs[0]


def _apply(node: Apply, operands: list[Any]) -> Any:
    op, affine = node.op, [isinstance(each, Affine) for each in operands]
    if isinstance(op, Shape | Shape_i):
        return perform(node, [operands[0].offset])[0]
    if node.outputs[0].type.dtype != "float64":
        raise Unreadable(f"{node} is not float64")
    if isinstance(op, Elemwise):
        return _elemwise(node, operands, affine)
    if isinstance(op, ViewOp):
        return operands[0]
    if isinstance(op, DimShuffle):
        return _dimshuffle(node, operands[0])
    if isinstance(op.core_op if isinstance(op, Blockwise) else op, Dot) and sum(affine) == 1:
        return _dot(operands, affine)
    if isinstance(op, JOINING) or (isinstance(op, STRUCTURAL) and affine == [True] + [False] * (len(affine) - 1)):
        return _one_by_one(node, operands, keep=isinstance(op, STRUCTURAL))
    raise Unreadable(f"no rule for {node}")


def _elemwise(node: Apply, operands: list[Any], affine: list[bool]) -> Affine:
    op = node.op.scalar_op
    linear = isinstance(op, scalar.Add | scalar.Sub | scalar.Neg | scalar.Identity | scalar.Cast)
    product = isinstance(op, scalar.Mul) and sum(affine) == 1
    quotient = isinstance(op, scalar.TrueDiv) and affine == [True, False]
    if not (linear or product or quotient):
        raise Unreadable(f"no rule for {node}")
    [offset] = perform(node, [each.offset if isinstance(each, Affine) else each for each in operands])
    shape = np.shape(offset)
    slopes: dict[int, FloatArray] = {}
    for position, each in enumerate(operands):
        if not isinstance(each, Affine):
            continue
        for i, slope in each.slopes.items():
            if product:
                for factor in operands[:position] + operands[position + 1 :]:
                    slope = slope * factor
            elif quotient:
                slope = slope / operands[1]
            elif isinstance(op, scalar.Neg) or (isinstance(op, scalar.Sub) and position == 1):
                slope = -slope
            slope = np.broadcast_to(slope, (len(slope), *shape))
            slopes[i] = slopes[i] + slope if i in slopes else slope
    return Affine(offset, slopes, unit=False)


def _dimshuffle(node: Apply, operand: Affine) -> Affine:
    [offset] = perform(node, [operand.offset])
    kept = [axis + 1 for axis in node.op.new_order if axis != "x"]

    def shuffled(slope: FloatArray) -> FloatArray:
        dropped = tuple(axis for axis in range(1, slope.ndim) if axis not in kept)
        return slope.transpose(0, *kept, *dropped).reshape(len(slope), *offset.shape)

    same_order = kept == sorted(kept)
    return Affine(offset, {i: shuffled(slope) for i, slope in operand.slopes.items()}, unit=operand.unit and same_order)


def _dot(operands: list[Any], affine: list[bool]) -> Affine:
    """One product of a constant matrix or vector and an affine one."""
    left = affine[0]
    value, matrix = (operands[0], operands[1]) if left else (operands[1], operands[0])
    matrix = np.asarray(matrix)
    if max(matrix.ndim, value.offset.ndim) > 2:
        raise Unreadable("a batch of products")

    def product(array: FloatArray) -> FloatArray:
        return array @ matrix if left else matrix @ array

    def slope_of(slope: FloatArray) -> FloatArray:
        rows = len(slope)
        if value.unit and not left and slope.shape == (rows, rows, 1) and matrix.ndim == 2:
            return matrix.T[:, :, None]
        axis = value.offset.ndim if left else 1  # of the slope: what is summed over
        along = np.tensordot(slope, matrix, axes=(axis, 0 if left else matrix.ndim - 1))
        if not left and slope.ndim == 3 and matrix.ndim == 2:
            along = along.transpose(0, 2, 1)
        return along

    return Affine(product(value.offset), {i: slope_of(slope) for i, slope in value.slopes.items()})


def _one_by_one(node: Apply, operands: list[Any], *, keep: bool) -> Affine:
    """A node that is linear in its affine inputs; constants among them count for the offset alone, unless ``keep``."""
    [offset] = perform(node, [each.offset if isinstance(each, Affine) else each for each in operands])

    def part(each: Any, position: int, i: int, k: int) -> Any:
        if isinstance(each, Affine):
            return np.asarray(each.slopes[i][k]) if i in each.slopes else np.zeros_like(each.offset)
        is_axis = isinstance(node.op, Join) and position == 0 and np.ndim(each) == 0  # before PyTensor 3
        return each if keep or is_axis else np.zeros_like(each)

    sizes = {i: len(slope) for each in operands if isinstance(each, Affine) for i, slope in each.slopes.items()}
    slopes = {}
    for i, size in sizes.items():
        rows = [perform(node, [part(each, p, i, k) for p, each in enumerate(operands)])[0] for k in range(size)]
        slopes[i] = np.array(rows)
    return Affine(offset, slopes)


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
    """:func:`problem_of` of a model whose variables stay the same: each call reads its ``pm.Data`` anew.

    What has to be compiled is compiled once per model, and again when its variables, their shapes or a constant change.
    """
    reader = _readers.get(model)
    if reader is None or not reader.is_of(model):
        reader = _readers[model] = ProblemReader(model)
    return partial(reader.read, model)


class ProblemReader:
    """How to read the problem off a model: reusable as long as the model's variables and constants are the same.

    It is kept for as long as the model lives, so it must not refer to the model.
    """

    def __init__(self, model: pm.Model):
        self._terms = _checked_terms(model)
        self._free = flat_variables(model)
        self._sparse = sparse_variables(model)
        taken = {v for each in self._sparse for v in (each.variable, each.slab, each.latent)}
        self._densities = density_variables(model, taken, [term.scores for term in self._terms])
        if self._sparse and self._densities:
            names = names_of(each.variable for each in self._densities)
            raise refuse(f"beside a spike-and-slab prior, that of {names} must be Gaussian")
        self._variables, self._layout = _coefficients(model, self._free, self._sparse, self._densities)
        spiked = {each.variable for each in self._sparse} | {each.variable for each in self._densities}
        self._gaussian = [i for i, v in enumerate(self._variables) if v not in spiked]
        self._prior = GaussianPriorReader(model, self._layout.part(self._gaussian)) if self._gaussian else None
        self._scores: Evaluate | None = None
        self._made_of = _made_of(model)
        compiled = bool(self._densities) or (self._prior is not None and self._prior.compiled)
        self._folded = _digest(self._made_of) if compiled else None
        self._lock = Lock()  # a compiled function is not for two threads at once

    def is_of(self, model: pm.Model) -> bool:
        made_of = _made_of(model)
        same = len(made_of) == len(self._made_of) and all(map(operator.is_, made_of, self._made_of))
        same = same and flat_variables(model).shapes == self._free.shapes
        return same and (self._folded is None or self._folded == _digest(made_of))

    def read(self, model: pm.Model) -> ModelProblem:
        with self._lock:
            return self._read(model)

    def _read(self, model: pm.Model) -> ModelProblem:
        layout, terms = self._layout, self._terms
        offset, slope = self._affine_scores(model)
        pairs, gamma = joined_pairs(terms)
        d = layout.dimension
        mean, factor = np.zeros(d), np.ones(d)
        if self._prior is not None:
            places = layout.places(self._gaussian)
            mean[places], found = self._prior()
            if found.ndim == 1:
                factor[places] = found
            elif self._sparse or self._densities:
                raise refuse("beside priors that are not Gaussian, the other variables must be independent")
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
        problem = linear_gaussian_problem(
            slope.T, pairs, gamma, prior_mean=mean, prior_factor=factor, offset=offset, ties=terms[0].ties
        )
        if self._sparse:
            problem = replace(problem, sites=Spikes(p, ratio))
        if self._densities:
            problem = replace(problem, sites=Tabulated(tuple(tables), which, factor))
        return ModelProblem(
            model, problem, self._variables, layout, self._sparse, self._free, HeldData.of(model), self._densities
        )

    def _affine_scores(self, model: pm.Model) -> tuple[FloatArray, FloatArray]:
        """The scores at zero, and their slopes, a row for each coefficient: read off, or probed and verified."""
        if self._scores is None:
            try:
                offset, slope = self._read_off(model)
                if np.isfinite(offset).all() and np.isfinite(slope).all():
                    return offset, slope
            except Unreadable:
                pass
            joined = (
                pt.concatenate([term.scores for term in self._terms]) if len(self._terms) > 1 else self._terms[0].scores
            )
            self._scores = _of_theta(model, self._variables, self._layout, joined)
            self._folded = _digest(self._made_of)
        offset, slope = affine_map(self._scores, self._layout.dimension)
        _check_scores(self._variables, self._layout, self._scores, slope, offset)
        return offset, slope

    def _read_off(self, model: pm.Model) -> tuple[FloatArray, FloatArray]:
        known = {each.variable for each in self._densities}
        if any(model.rvs_to_transforms.get(v) is not None and v not in known for v in self._variables):
            raise Unreadable("a variable is transformed")
        found = [read_affine(term.scores, self._variables, self._layout.shapes) for term in self._terms]
        offsets, slopes = zip(*found, strict=True)
        return np.concatenate(offsets), np.concatenate(slopes, axis=1)


_readers: WeakKeyDictionary[pm.Model, ProblemReader] = WeakKeyDictionary()


def _made_of(model: pm.Model) -> list[Any]:
    """Everything that the functions of a model are made of: the same objects, the same functions."""
    named = [*model.free_RVs, *model.observed_RVs, *model.potentials, *model.deterministics]
    transforms = [model.rvs_to_transforms[rv] for rv in model.free_RVs]
    return [*named, *model.value_vars, *transforms, *ancestors(named)]


def _digest(made_of: list[Any]) -> bytes:
    """Of all constants, which compiled functions hold: an array that they were made of may be written to."""
    digest = hashlib.blake2b()
    for each in made_of:
        if isinstance(each, Constant) and isinstance(each.data, np.ndarray):
            digest.update(repr((each.data.dtype.str, each.data.shape)).encode())
            digest.update(each.data.tobytes())
    return digest.digest()


def _checked_terms(model: pm.Model) -> list[AUCTerm]:
    """The terms of a model, after the refusals that need no evaluation."""
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
    return terms


def linear_terms(model: pm.Model) -> list[AUCTerm]:
    """The terms of a model, at least one; their ties must have one cost."""
    terms = found_terms(model)
    if len({term.ties for term in terms}) > 1:
        raise refuse("its potentials differ in ties=, what a tie costs")
    return terms


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
    model: pm.Model,
    free: FlatVariables,
    sparse: tuple[SparseVariable, ...],
    densities: tuple[DensityVariable, ...] = (),
) -> tuple[tuple[Variable, ...], FlatVariables]:
    """The variables that make up theta, and their layout: a point-mass coefficient stands where its slab stands.

    A variable that PyMC transforms stands as it is, not as its unconstrained value.
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
        raise ValueError(f"The expression depends on {names}, which the model did not have when it was fitted.")
    return layout.function(outputs)


def _check_scores(
    variables: tuple[Variable, ...],
    layout: FlatVariables,
    evaluate: Evaluate,
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

    name = first_departure([v.name for v in variables], layout, departs)
    if name is not None:
        raise refuse(f"the scores are not affine in {name}")


def _some(numbers: NDArray[np.intp]) -> str:
    return ", ".join(map(str, numbers[:5])) + (", ..." if numbers.size > 5 else "")
