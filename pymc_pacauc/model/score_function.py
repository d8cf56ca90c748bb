"""Read the score function off the graph of a PyMC model: its input arrays, and the map from a row to a score.

:func:`read_scores` finds the leaves of the scores' graph with a row per observation (``pm.Data`` or constant arrays),
and rebuilds the graph with free arrays in their place, everything else fixed at its present value. It is verified
that the score is a function of a row: some rows, and one row alone, must score as they did among all. Whether it is
linear in the columns and affine in the variables is found by evaluating it. The variables are the free ones, or, if the
score is not affine in these, the named ones nearest to it (the coefficients of a spike-and-slab prior,
``pm.Deterministic("theta", tau * z)``).

Nodes are evaluated one by one without compilation (:mod:`pymc_pacauc.model.graph`); only scores that are not linear are
compiled, at their first prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.model.fgraph import ModelNamed, ModelPotential, fgraph_from_model, model_from_fgraph
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor import subtensor
from pytensor.tensor.type import TensorType
from scipy import sparse

from pymc_pacauc.model.auc_term import compared, has_classes, is_auc_risk
from pymc_pacauc.model.graph import FlatVariables, evaluate, flat_variables, leaf_value, read_affine, shape_now
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.score_function import Input, NewRows, ScoreFunction

VECTOR_INDEX = getattr(subtensor, "AdvancedSubtensor1", subtensor.AdvancedSubtensor)  # not in PyTensor 3
INDEXING = (subtensor.AdvancedSubtensor, subtensor.Subtensor, VECTOR_INDEX)
CLOSE = 1e-10  # of the largest score: rounding of sums in another order stays below, another score does not
FAILURES = (ValueError, IndexError, TypeError, AssertionError, NotImplementedError)

NOT_BY_ROWS = (
    "The model's scores are not a function of one row at a time, so new rows have no score by replacing the data alone "
    "({why}). Compute means, scales and the like outside the model, from the training rows. A Gaussian process needs "
    "its conditional distribution: say gp=. Trees of PyMC-BART keep a reference to their data: use pm.set_data and "
    "pm.draw in their own model."
)
NO_POTENTIAL = (
    "The model has no AUC or concordance potential, so its scores are not known: name a pm.Deterministic by var_name=."
)
AMBIGUOUS = (
    "The model has several constant arrays of {n} rows ({what}), so it is not known which of them X_new replaces: put "
    'the covariates into a pm.Data, X = pm.Data("X", X).'
)
SEVERAL = (
    "The model's potentials rank by different scores: name the ones to predict, a pm.Deterministic, with var_name=."
)


@dataclass(frozen=True, eq=False)
class GraphScores(ScoreFunction):
    """A score function with the graph of its model, which computes scores that are not linear.

    Attributes
    ----------
    graph : TensorVariable
        The scores, a function of the variables of ``layout`` and of ``arrays``; everything else is constant.
    layout : FlatVariables
        The coefficients.
    arrays : tuple of TensorVariable
        The values of ``inputs``.
    """

    graph: Variable = field(default_factory=lambda: pt.zeros(0))
    layout: FlatVariables = field(default_factory=lambda: FlatVariables((), ()))
    arrays: tuple[Variable, ...] = ()

    def _of_rows(self, values: Sequence[NDArray[Any]]) -> Variable:
        """Return the scores of rows, a function of the coefficients alone."""
        known = {v: pt.constant(value, dtype=v.type.dtype) for v, value in zip(self.arrays, values, strict=True)}
        return clone_replace(self.graph, known)

    def scores(self, theta: FloatArray, rows: NewRows) -> FloatArray:
        """Compute scores (draws, rows) at flat variables (draws, coefficients)."""
        if self.linear:
            return super().scores(theta, rows)
        try:
            [found] = self.layout.function([self._of_rows(rows.values)])(theta)
            if found.shape[1:] != rows.labels.shape:
                raise ValueError(f"{rows.labels.size} rows gave {found.shape[1:]} scores")
        except FAILURES as error:
            raise ValueError(NOT_BY_ROWS.format(why=_first_line(error))) from error
        return np.asarray(found)

    def design(self, rows: NewRows) -> tuple[FloatArray, FloatArray] | None:
        """Write scores of rows as ``design @ theta + offset``; None where they are not affine in theta."""
        if self.linear:
            return super().design(rows)
        try:
            offset, slopes = self.affine(rows.values)
        except FAILURES:
            return None
        return (slopes.T, offset) if offset.shape == rows.labels.shape else None

    def affine(self, values: Sequence[NDArray[Any]]) -> tuple[FloatArray, FloatArray]:
        """Compute scores of rows at theta = 0, and slopes, a row for each coefficient; Unreadable if not affine."""
        with np.errstate(all="ignore"):
            return read_affine(self._of_rows(values), self.layout.values, self.layout.shapes)

    def at(self, theta: FloatArray, values: Sequence[NDArray[Any]]) -> FloatArray:
        """Compute scores of rows at one theta, without compiling."""
        layout = self.layout
        parts = zip(layout.values, layout.slices, layout.shapes, strict=True)
        given = {v: theta[part].reshape(shape).astype(v.type.dtype) for v, part, shape in parts}
        given |= {v: np.asarray(value, dtype=v.type.dtype) for v, value in zip(self.arrays, values, strict=True)}
        with np.errstate(all="ignore"):
            return np.asarray(evaluate([self.graph], given)[0], dtype=np.float64)


def read_scores(
    model: pm.Model, scores: Variable | None = None, variables: Sequence[Variable] | None = None
) -> GraphScores:
    """Read the score function of a model, with the data it holds now.

    Parameters
    ----------
    model : pm.Model
        The model.
    scores : TensorVariable, optional
        The scores; by default what its AUC or concordance potential compares.
    variables : sequence, optional
        Variables of the score function, by default the free variables.

    Returns
    -------
    GraphScores
        Scores that are no function of a row are read too: ``refusal`` says why they cannot be predicted.
    """
    if scores is None:
        graphs = dict.fromkeys(risk.owner.inputs[0] for _, risk in compared(model))  # those of surrogates too
        found = [read_scores(model, each, variables) for each in graphs]
        if len(found) > 1 and has_classes(model):
            return _by_class(found)
        if len({each.digest for each in found}) != 1:
            return GraphScores(refusal=SEVERAL if found else NO_POTENTIAL)
        return found[0]
    if scores.type.ndim == 2:
        return _by_class([read_scores(model, scores[:, k], variables) for k in range(shape_now(scores)[1])])
    try:
        return _read(model, scores, variables)
    except FAILURES as error:  # whatever a model is made of, it can be fitted
        return GraphScores(refusal=NOT_BY_ROWS.format(why=_first_line(error)))


def _by_class(found: list[GraphScores]) -> GraphScores:
    """Join the score functions of several classes, in their order."""
    refusal = next((each.refusal for each in found if each.refusal), "")
    return GraphScores(found[0].inputs, name=found[0].name, refusal=refusal, classes=() if refusal else tuple(found))


def _read(model: pm.Model, scores: Variable, variables: Sequence[Variable] | None) -> GraphScores:
    named = {v: v.name for v in model.deterministics}
    name = named.get(scores) or next((named[v] for v in getattr(scores.owner, "inputs", ()) if v in named), "")
    among = model.free_RVs if variables is None else variables
    met = set(ancestors([scores], blockers=among))  # not the variables that only priors of others depend on
    free = [v for v in among if v in met]
    rows, function = _by_rows(model, scores, free)
    if function.refusal:
        return replace(function, name=name)
    inputs = tuple(
        replace(_input(model, leaf), levels=_levels(model, scores, leaf) if leaf.index else None) for leaf in rows
    )
    function = replace(function, inputs=inputs, name=name)
    if any(leaf.index for leaf in rows):
        return function
    nearest = _nearest(model, scores, rows)
    for chosen in [free] + [nearest] * (variables is None and set(nearest) != set(free)):
        tried = function if chosen is free else replace(_built(scores, chosen, rows), inputs=inputs, name=name)
        weights = _weights(tried, rows, _points(model, chosen))
        if weights is not None:
            linear = replace(tried, matrix=weights[0], constant=weights[1])
            return replace(linear, inputs=_labelled(model, linear))
    return function


def _by_rows(model: pm.Model, scores: Variable, free: Sequence[Variable]) -> tuple[list[_Leaf], GraphScores]:
    """Return the arrays whose rows are scored one by one, and the scores as a function of them, or their refusal."""
    points = _points(model, free)[:2]
    whole = [evaluate([scores], dict(zip(free, at, strict=True)))[0] for at in points]
    if whole[0].ndim != 1:
        raise ValueError(f"the scores have {whole[0].ndim} dimensions")
    n = whole[0].size
    order = {each: k for k, each in enumerate(model.named_vars)}  # of the pm.Data, after arrays written into the model
    leaves = sorted(_leaves(scores, free, n), key=lambda leaf: order.get(leaf.name(model), -1))
    written = [leaf for leaf in leaves if not leaf.name(model)]

    def tried(rows: list[_Leaf]) -> GraphScores | None:
        found = _built(scores, free, rows)
        return found if rows and _is_by_rows(found, rows, points, whole) else None

    for rows in (leaves, [leaf for leaf in leaves if leaf not in written]):
        if (found := tried(rows)) is not None:
            return rows, found
    if any(tried([leaf for leaf in leaves if leaf is not left]) for left in written):
        shapes = ", ".join(f"shape {leaf.value.shape}" for leaf in written)
        return [], GraphScores(refusal=AMBIGUOUS.format(n=n, what=shapes))
    raise ValueError("a row alone scores differently" if leaves else "no array with a row per observation feeds them")


@dataclass(frozen=True, eq=False)
class _Leaf:
    """An array with a row per observation, and the variables of the graph that hold it."""

    variables: tuple[Variable, ...]
    value: NDArray[Any]
    index: bool  # whether it picks entries of something else

    def name(self, model: pm.Model) -> str:
        return next((v.name for v in self.variables if v in model.data_vars), "")


def _leaves(scores: Variable, given: Sequence[Variable], n: int) -> list[_Leaf]:
    """Find the arrays with n rows that the scores are made of, given the variables; equal arrays count once."""
    used = list(ancestors([scores], blockers=given))
    picked = [v.owner.inputs[1:] for v in used if v.owner is not None and isinstance(v.owner.op, INDEXING)]
    indices = set(ancestors([i for each in picked for i in each], blockers=given))
    found: dict[Any, _Leaf] = {}
    for v in used:
        if v in given or not isinstance(v, Constant | SharedVariable) or not isinstance(v.type, TensorType):
            continue
        value = np.asarray(leaf_value(v))
        if value.ndim and len(value) == n:
            index = v in indices and value.dtype.kind in "iu"
            key = (index, value.shape, value.astype(np.float64).tobytes()) if isinstance(v, Constant) else v
            found[key] = _Leaf((*found[key].variables, v) if key in found else (v,), value, index)
    return list(found.values())


def _points(model: pm.Model, variables: Sequence[Variable]) -> list[list[NDArray[Any]]]:
    """Draw four random values of the variables, within their support."""
    rng = np.random.default_rng(0)
    if any(model.rvs_to_transforms.get(v) is not None for v in variables):
        flat = flat_variables(model)
        values = flat.function(model.replace_rvs_by_values(list(variables)))(rng.standard_normal((4, flat.dimension)))
        drawn = list(zip(*values, strict=True))
    else:
        drawn = [tuple(rng.standard_normal(shape_now(v)) for v in variables) for _ in range(4)]

    def typed(v: Variable, value: NDArray[Any]) -> NDArray[Any]:
        return (value if v.type.dtype.startswith("float") else np.abs(np.round(value))).astype(v.type.dtype)

    return [[typed(v, value) for v, value in zip(variables, each, strict=True)] for each in drawn]


def _built(scores: Variable, variables: Sequence[Variable], rows: Sequence[_Leaf]) -> GraphScores:
    """Build the scores as a function of the variables and the rows, everything else as it is now."""
    shapes = tuple(shape_now(v) for v in variables)
    inner = tuple(v.type.clone(shape=(None,) * v.type.ndim)(v.name) for v in variables)
    arrays = tuple(pt.tensor(dtype="int64" if r.index else "float64", shape=(None,) * r.value.ndim) for r in rows)
    swap: dict[Variable, Variable] = dict(zip(variables, inner, strict=True))
    swap |= {v: new for leaf, new in zip(rows, arrays, strict=True) for v in leaf.variables}
    for v in ancestors([scores], blockers=swap):
        if isinstance(v, SharedVariable) and v not in swap and isinstance(v.type, TensorType):
            swap[v] = pt.constant(v.get_value(), dtype=v.type.dtype)
    graph = clone_replace(scores, swap, rebuild_strict=False)
    named = tuple((v.name, shape) for v, shape in zip(variables, shapes, strict=True))
    return GraphScores((), named, graph=graph, layout=FlatVariables(inner, shapes), arrays=arrays)


def _is_by_rows(
    found: GraphScores, rows: Sequence[_Leaf], points: Sequence[Sequence[NDArray[Any]]], whole: Sequence[FloatArray]
) -> bool:
    """Return whether some rows, and one row alone, score as they do among all."""
    rng = np.random.default_rng(1)
    for at, expected in zip(points, whole, strict=True):
        close = CLOSE * np.abs(expected[np.isfinite(expected)]).max(initial=1e-300)
        for some in (rng.choice(expected.size, min(3, expected.size - 1), replace=False), rng.choice(expected.size, 1)):
            try:
                scored = found.at(_flat(at), [leaf.value[some] for leaf in rows])
            except FAILURES:
                return False
            if scored.shape != some.shape or not np.allclose(scored, expected[some], CLOSE, close, equal_nan=True):
                return False
    return True


def _flat(values: Sequence[NDArray[Any]]) -> FloatArray:
    return np.concatenate([np.zeros(0), *(np.ravel(value) for value in values)])


# -- linear scores ---------------------------------------------------------------------------------------------------


def _weights(
    found: GraphScores, rows: Sequence[_Leaf], points: Sequence[Sequence[NDArray[Any]]]
) -> tuple[Any, FloatArray] | None:
    """Return ``matrix`` and ``constant`` of a score linear in the columns and affine in theta; None if it is not."""
    shapes = [leaf.value.shape[1:] for leaf in rows]
    cuts = np.cumsum([int(np.prod(shape)) for shape in shapes])
    columns = int(cuts[-1])

    def split(flat: FloatArray) -> list[FloatArray]:
        parts = np.split(flat, cuts[:-1], axis=1)
        return [part.reshape(len(flat), *shape) for part, shape in zip(parts, shapes, strict=True)]

    random = np.random.default_rng(2).standard_normal((3, columns)) * np.array([[0.1], [1.0], [7.0]])
    training = np.concatenate([leaf.value[:8].reshape(len(leaf.value[:8]), -1) for leaf in rows], axis=1)
    probe = np.vstack([training.astype(np.float64), random])

    def follows(theta: FloatArray, weights: FloatArray) -> bool:
        """Return whether the weights give the scores of the rows."""
        departure = np.abs(probe @ weights[:-1] + weights[-1] - found.at(theta, split(probe)))
        close = CLOSE * (np.abs(probe) @ np.abs(weights[:-1]) + np.abs(weights[-1]))
        return bool((np.isfinite(departure) & (departure <= close)).all())

    thetas = [_flat(each) for each in points]
    thetas.append(30.0 * thetas[0])
    try:
        offset, slopes = found.affine(split(np.eye(columns + 1, columns, k=-1)))  # of a row of zeros, and unit rows
        constant = np.append(offset[1:] - offset[0], offset[0])
        matrix = sparse.csr_array(np.concatenate([slopes[:, 1:] - slopes[:, :1], slopes[:, :1]], axis=1).T)
        return (matrix, constant) if all(follows(theta, matrix @ theta + constant) for theta in thetas) else None
    except FAILURES:
        return None


def _nearest(model: pm.Model, scores: Variable, rows: Sequence[_Leaf]) -> list[Variable]:
    """Find the named variables nearest to the scores that do not depend on the rows."""
    leaves = {v for leaf in rows for v in leaf.variables}
    named = {v for v in (*model.free_RVs, *model.deterministics) if not leaves & set(ancestors([v]))}
    met = set(ancestors([scores], blockers=named)) & named
    return [v for v in model.named_vars.values() if v in met]


# -- names -----------------------------------------------------------------------------------------------------------


def _input(model: pm.Model, leaf: _Leaf) -> Input:
    """Make an input with the labels and dims that the model has for it."""
    name, shape = leaf.name(model), leaf.value.shape[1:]
    dims = tuple(map(str, model.named_vars_to_dims.get(name) or ())) if name else ()
    labels = _coords(model, dims[-1], shape[-1]) if dims and len(shape) == 1 else None
    same = not name and not leaf.index and not np.ptp(leaf.value.reshape(len(leaf.value), -1), axis=0).any()
    return Input(name, shape, labels, dims, same=tuple(leaf.value[0].ravel().tolist()) if same else None)


def input_of(model: pm.Model | None, points: Any, dimension: int) -> Input:
    """Make an input of the points of a Gaussian process, with the labels of the ``pm.Data`` that holds them, if any."""
    if model is None or not isinstance(points, SharedVariable):
        return Input("", (dimension,))
    known = _input(model, _Leaf((points,), points.get_value(borrow=True), False))
    return replace(known, name="", shape=(dimension,))


def _coords(model: pm.Model, dim: str, size: int) -> tuple[Any, ...] | None:
    values = model.coords.get(dim)
    return None if values is None or len(values) != size else tuple(np.asarray(values).tolist())


def _labelled(model: pm.Model, function: GraphScores) -> tuple[Input, ...]:
    """Return the inputs; columns without labels get those of the coefficients that multiply them."""
    entries: list[Any] = []
    for name, shape in function.variables:
        dims = model.named_vars_to_dims.get(name)
        known = _coords(model, dims[0], shape[0]) if dims and len(shape) == 1 else None
        entries += [None] * int(np.prod(shape)) if known is None else known
    loads = np.split(function.matrix.indices, function.matrix.indptr[1:-1])
    of_columns = iter([entries[load[0]] if load.size == 1 else None for load in loads])
    found = []
    for each in function.inputs:
        labels = tuple(next(of_columns) for _ in range(each.size))
        usable = each.labels is None and len(each.shape) == 1 and None not in labels and len(set(labels)) == len(labels)
        found.append(replace(each, labels=labels) if usable else each)
    return tuple(found)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


# -- groups ----------------------------------------------------------------------------------------------------------


def _levels(model: pm.Model, scores: Variable, leaf: _Leaf) -> tuple[Any, ...]:
    """Return the labels of the groups whose coefficients the scores index by these codes, ``theta[group]``, or numbers.

    They are those of the first axis of what is indexed, or of a free variable below it of the same length, so that
    ``theta[group]`` and ``(mu + tau * z)[group]`` are both understood.
    """
    codes = set(leaf.variables)
    indexed = [
        v.owner.inputs[0]
        for v in ancestors([scores])
        if v.owner is not None and _indexes_first_axis(v.owner) and codes & set(ancestors([v.owner.inputs[1]]))
    ]
    sizes = {shape_now(source)[0] for source in indexed}
    if len(sizes) != 1:
        return tuple(range(int(leaf.value.max()) + 1))
    [size] = sizes
    used = set(ancestors(indexed))
    dims = [model.named_vars_to_dims.get(v.name) for v in (*(rv for rv in model.free_RVs if rv in used), *indexed)]
    labels = (_coords(model, each[0], size) for each in dims if each)
    return next((found for found in labels if found is not None), tuple(range(size)))


def _indexes_first_axis(node: Any) -> bool:
    if not isinstance(node.op, (VECTOR_INDEX, subtensor.AdvancedSubtensor)):
        return False
    pattern = getattr(node.op, "idx_list", None)  # of newer versions; older ones have slices among the inputs
    return not pattern or isinstance(pattern[0], int)


def predictive_model(model: pm.Model) -> pm.Model:
    """Copy a model without its AUC term, for ``pm.sample_posterior_predictive``.

    PyMC warns, rightly, that posterior prediction ignores potentials. Draws of the posterior have taken the AUC term
    into account already, so prediction does not need it; nor does it need the labels, which may have another length
    than the new rows. The copy has neither. Setting its data leaves the original model alone.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> X_train = np.random.default_rng(1).normal(size=(40, 2))
    >>> with pm.Model(coords={"row": range(40)}) as model:
    ...     X = pm.Data("X", X_train, dims=("row", "covariate"))
    ...     y = pm.Data("y", X_train[:, 0] > 0.3, dims="row")
    ...     theta = pm.Normal("theta", size=2)
    ...     scores = pm.Deterministic("scores", X @ theta, dims="row")
    ...     auc = pac.AUCPotential("auc", scores, y, gamma=40)
    ...     idata = pm.fit(method=pac.EP(), progressbar=False).sample(100)
    >>> with predictive_model(model):
    ...     pm.set_data({"X": [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]}, coords={"row": range(3)})
    ...     predicted = pm.sample_posterior_predictive(idata, var_names=["scores"], progressbar=False)
    >>> predicted["posterior_predictive"]["scores"].shape
    (1, 100, 3)
    """
    trees = [rv.name for rv in model.free_RVs if hasattr(rv.owner.op, "all_trees")]
    if trees:
        raise ValueError(
            f"Trees of PyMC-BART ({', '.join(trees)}) keep a reference to their data, so a copy of the model would use "
            "the old ones: use pm.set_data and pm.draw(f) in the model itself."
        )
    graph, _ = fgraph_from_model(model)
    outputs = list(graph.outputs)
    dropped = {o for o in outputs if isinstance(o.owner.op, ModelPotential) or any(map(is_auc_risk, ancestors([o])))}
    used = set(ancestors([o for o in outputs if o not in dropped and not isinstance(o.owner.op, ModelNamed)]))
    dropped |= {o for o in outputs if not {o, o.owner.inputs[0]} & used}  # data that fed the AUC term only
    for index in reversed(range(len(outputs))):
        if outputs[index] in dropped:
            graph.remove_output(index)
    return model_from_fgraph(graph, mutate_fgraph=True)
