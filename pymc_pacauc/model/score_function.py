"""Read the score function off the graph of a PyMC model: its input arrays, and how a row becomes a score.

:func:`read_scores` finds the leaves of the scores' graph with a row per observation (``pm.Data`` or constant arrays),
and rebuilds the graph with free matrices in their place, everything else fixed at its present value. It is verified
that the score is a function of a row: some rows, and one row alone, must score as they did among all. Whether it is
linear in the columns and affine in the variables is found by evaluating it. The variables are the free ones, or, if the
score is not affine in these, the named ones nearest to it (the coefficients of a spike-and-slab prior,
``pm.Deterministic("theta", tau * z)``).

Nodes are evaluated one by one without compilation (:mod:`pymc_pacauc.model.graph`); only scores that are not linear are
compiled, at their first prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import xarray as xr
from numpy.typing import NDArray
from pymc.model.fgraph import ModelNamed, ModelPotential, fgraph_from_model, model_from_fgraph
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor import subtensor
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.tensor.type import TensorType
from scipy import sparse

from pymc_pacauc.model.auc_term import has_classes, is_auc_risk, score_graphs
from pymc_pacauc.model.graph import (
    FlatVariables,
    Unreadable,
    evaluate,
    flat_variables,
    leaf_value,
    read_affine,
    shape_now,
)
from pymc_pacauc.numerics import NUMBERS_AT_ONCE, FloatArray, slices
from pymc_pacauc.problem.score_function import Input, NewRows, ScoreFunction

VECTOR_INDEX = getattr(subtensor, "AdvancedSubtensor1", ())  # PyTensor before 3: indexing the first axis by a vector
INDEXING = (AdvancedSubtensor, subtensor.Subtensor) + ((VECTOR_INDEX,) if VECTOR_INDEX else ())
CLOSE = 1e-10  # of the largest score: rounding of sums in another order stays below, another score does not
FAILURES = (ValueError, IndexError, TypeError, AssertionError, NotImplementedError, Unreadable, np.linalg.LinAlgError)

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


@dataclass(frozen=True, eq=False)
class Groups:
    """Coefficients by group, ``theta[codes]``: free variables whose first axis is that of ``size`` groups."""

    names: tuple[str, ...]
    size: int
    labels: tuple[Any, ...] | None


class ModelScores:
    """The scores of a model as they were when they were read.

    Attributes
    ----------
    function : ScoreFunction
        The score function that results contain.
    groups : dict
        The :class:`Groups` that codes index, by position of the input with the codes.
    classes : list
        The same for each class, where each has a score of its own.
    """

    def __init__(self, function: ScoreFunction, graph: Variable, layout: FlatVariables, shared: Sequence[Any]):
        self.function = function
        self.groups: dict[int, Groups] = {}
        self.classes: list[ModelScores] = []
        self.graph, self.layout = graph, layout
        self._shared, self._lock = list(shared), Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_lock", "_compiled")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock = Lock()

    @cached_property
    def _compiled(self) -> Any:
        return self.layout.function([self.graph])

    def scores(self, theta: FloatArray, rows: NewRows) -> FloatArray:
        """Scores (draws, rows) at flat variables (draws, coefficients)."""
        if self.function.linear:
            return self.function.scores(theta, rows)
        with self._lock:
            self.put(rows.values)
            try:
                found = self._compiled(theta)[0]
            except FAILURES as error:
                raise ValueError(NOT_BY_ROWS.format(why=_first_line(error))) from error
        if found.shape[1:] != (len(rows.labels),):
            raise ValueError(NOT_BY_ROWS.format(why=f"{len(rows.labels)} rows gave {found.shape[1:]} scores"))
        return np.asarray(found)

    def design(self, rows: NewRows) -> tuple[FloatArray, FloatArray]:
        """Scores of rows as ``design @ theta + offset``, where they are affine in theta."""
        if self.function.linear:
            return self.function.design(rows)
        values = self.scores(np.eye(self.layout.dimension + 1, self.layout.dimension, k=-1), rows)
        return (values[1:] - values[0]).T, values[0]

    def put(self, values: Sequence[NDArray[Any]]) -> None:
        for variable, value in zip(self._shared, values, strict=True):
            variable.set_value(np.asarray(value, dtype=variable.type.dtype))

    def at(self, theta: FloatArray, values: Sequence[NDArray[Any]]) -> FloatArray:
        """Scores of rows at one theta, without compiling."""
        self.put(values)
        layout = self.layout
        parts = zip(layout.values, layout.slices, layout.shapes, strict=True)
        given = {v: theta[part].reshape(shape).astype(v.type.dtype) for v, part, shape in parts}
        with np.errstate(all="ignore"):
            return np.asarray(evaluate([self.graph], given)[0], dtype=np.float64)


def read_scores(
    model: pm.Model, scores: Variable | None = None, variables: Sequence[Variable] | None = None
) -> ModelScores:
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
    ModelScores
        Scores that are no function of a row are read too: ``function.refusal`` says why they cannot be predicted.
    """
    if scores is None:
        graphs = score_graphs(model)
        if not graphs:
            return _refused("", NO_POTENTIAL)
        found = [read_scores(model, each, variables) for each in dict.fromkeys(graphs)]
        if len(found) > 1 and has_classes(model):
            return _by_class(found)
        if len({each.function.digest for each in found}) > 1:
            refusal = (
                "The model's potentials rank by different scores: name the ones to predict, a pm.Deterministic, with "
                "var_name=."
            )
            found[0].function = replace(found[0].function, matrix=None, constant=None, refusal=refusal)
        return found[0]
    if scores.type.ndim == 2:
        return _by_class([read_scores(model, scores[:, k], variables) for k in range(shape_now(scores)[1])])
    try:
        return _read(model, scores, variables)
    except FAILURES as error:  # whatever a model is made of, it can be fitted
        return _refused("", NOT_BY_ROWS.format(why=_first_line(error)))


def _by_class(found: list[ModelScores]) -> ModelScores:
    """Scores of several classes, in their order."""
    functions = [each.function for each in found]
    refusal = next((each.refusal for each in functions if each.refusal), "")
    joined = _refused(functions[0].name, refusal)
    joined.function = replace(joined.function, inputs=functions[0].inputs, classes=() if refusal else tuple(functions))
    joined.classes = [] if refusal else found
    return joined


def _read(model: pm.Model, scores: Variable, variables: Sequence[Variable] | None) -> ModelScores:
    named = {v: v.name for v in model.deterministics}
    name = named.get(scores) or next((named[v] for v in getattr(scores.owner, "inputs", ()) if v in named), "")
    used = set(ancestors([scores]))
    free = [v for v in (model.free_RVs if variables is None else variables) if v in used]
    found = _by_rows(model, scores, free)
    if isinstance(found, str):
        return _refused(name, found)
    rows, function = found
    inputs = [_input(model, leaf) for leaf in rows]
    function.groups = {k: _groups(model, scores, leaf) for k, leaf in enumerate(rows) if leaf.index}
    for k, groups in function.groups.items():
        inputs[k] = replace(inputs[k], levels=groups.labels or tuple(range(groups.size)))
    function.function = replace(function.function, inputs=tuple(inputs), name=name)
    if function.groups:
        return function
    nearest = _nearest(model, scores, rows)
    for chosen in [free] + [nearest] * (variables is None and set(nearest) != set(free)):
        tried = function if chosen is free else _built(scores, chosen, rows)
        weights = _weights(tried, rows, _points(model, chosen))
        if weights is not None:
            linear = replace(tried.function, name=name, matrix=weights[0], constant=weights[1])
            tried.function = replace(linear, inputs=_labelled(model, tuple(inputs), linear))
            return tried
    return function


def _by_rows(model: pm.Model, scores: Variable, free: Sequence[Variable]) -> tuple[list[_Leaf], ModelScores] | str:
    """Return the arrays whose rows are scored one by one, and the scores as a function of them; or why not."""
    points = _points(model, free)
    whole = [evaluate([scores], dict(zip(free, at, strict=True)))[0] for at in points[:2]]
    if whole[0].ndim != 1:
        return NOT_BY_ROWS.format(why=f"they have {whole[0].ndim} dimensions")
    n = whole[0].size
    order = {each: k for k, each in enumerate(model.named_vars)}  # of the pm.Data, after arrays written into the model
    leaves = sorted(_leaves(scores, free, n), key=lambda leaf: order.get(leaf.name(model), -1))
    written = [leaf for leaf in leaves if not leaf.name(model)]

    def tried(rows: list[_Leaf]) -> ModelScores | None:
        found = _built(scores, free, rows)
        return found if rows and _is_by_rows(found, rows, points, whole) else None

    for rows in (leaves, [leaf for leaf in leaves if leaf not in written]):
        if (found := tried(rows)) is not None:
            return rows, found
    if any(tried([leaf for leaf in leaves if leaf is not left]) for left in written):
        return AMBIGUOUS.format(n=n, what=", ".join(f"shape {leaf.value.shape}" for leaf in written))
    why = "a row alone scores differently" if leaves else "no array with a row per observation feeds them"
    return NOT_BY_ROWS.format(why=why)


@dataclass(frozen=True, eq=False)
class _Leaf:
    """An array with a row per observation, and the variables of the graph that hold it."""

    variables: tuple[Variable, ...]
    value: NDArray[Any]
    index: bool  # whether it picks entries of something else

    def name(self, model: pm.Model) -> str:
        return next((v.name for v in self.variables if v in model.data_vars), "")


def _leaves(scores: Variable, given: Sequence[Variable], n: int) -> list[_Leaf]:
    """Arrays with n rows that the scores are made of, given the variables; equal ones written twice count once."""
    used = list(ancestors([scores], blockers=given))
    picked = [v.owner.inputs[1:] for v in used if v.owner is not None and isinstance(v.owner.op, INDEXING)]
    indices = set(ancestors([i for each in picked for i in each], blockers=given))
    found: list[_Leaf] = []
    for v in used:
        if v in given or not isinstance(v, Constant | SharedVariable) or not isinstance(v.type, TensorType):
            continue
        value = np.asarray(leaf_value(v))
        if value.ndim == 0 or len(value) != n:
            continue
        leaf = _Leaf((v,), value, v in indices and value.dtype.kind in "iu")
        same = [k for k, other in enumerate(found) if _same_constant(other, leaf)]
        if same:
            found[same[0]] = replace(found[same[0]], variables=(*found[same[0]].variables, v))
        else:
            found.append(leaf)
    return found


def _same_constant(one: _Leaf, other: _Leaf) -> bool:
    written = all(isinstance(v, Constant) for v in (*one.variables, *other.variables))
    return written and one.index == other.index and np.array_equal(one.value, other.value)


def _points(model: pm.Model, variables: Sequence[Variable]) -> list[list[NDArray[Any]]]:
    """Four random values of the variables, within their support."""
    rng = np.random.default_rng(0)
    if not any(model.rvs_to_transforms.get(v) is not None for v in variables):
        shapes = [shape_now(v) for v in variables]
        drawn = [[rng.standard_normal(shape) for shape in shapes] for _ in range(4)]
    else:
        flat = flat_variables(model)
        values = flat.function(model.replace_rvs_by_values(list(variables)))(rng.standard_normal((4, flat.dimension)))
        drawn = [[value[k] for value in values] for k in range(4)]
    return [
        [
            a.astype(v.type.dtype) if v.type.dtype.startswith("float") else np.abs(np.round(a)).astype(v.type.dtype)
            for v, a in zip(variables, each, strict=True)
        ]
        for each in drawn
    ]


def _built(scores: Variable, variables: Sequence[Variable], rows: Sequence[_Leaf]) -> ModelScores:
    """The scores as a function of the variables and the rows, everything else as it is now."""
    shapes = tuple(shape_now(v) for v in variables)
    inner = tuple(v.type.clone(shape=(None,) * v.type.ndim)(v.name) for v in variables)
    shared = [
        pytensor.shared(leaf.value.astype("int64" if leaf.index else "float64"), shape=(None,) * leaf.value.ndim)
        for leaf in rows
    ]
    swap: dict[Variable, Variable] = dict(zip(variables, inner, strict=True))
    swap |= {v: new for leaf, new in zip(rows, shared, strict=True) for v in leaf.variables}
    for v in ancestors([scores], blockers=swap):
        if isinstance(v, SharedVariable) and v not in swap and isinstance(v.type, TensorType):
            swap[v] = pt.constant(v.get_value(), dtype=v.type.dtype)
    graph = clone_replace(scores, swap, rebuild_strict=False)
    inputs = tuple(Input("", leaf.value.shape[1:]) for leaf in rows)
    named = tuple((v.name, shape) for v, shape in zip(variables, shapes, strict=True))
    return ModelScores(ScoreFunction(inputs, named), graph, FlatVariables(inner, shapes), shared)


def _is_by_rows(
    found: ModelScores, rows: Sequence[_Leaf], points: Sequence[Sequence[NDArray[Any]]], whole: Sequence[FloatArray]
) -> bool:
    """Return whether some rows, and one row alone, score as they do among all."""
    rng = np.random.default_rng(1)
    n = whole[0].size
    for at, expected in zip(points, whole, strict=False):
        theta = _flat(at)
        for some in (rng.choice(n, size=min(3, n - 1), replace=False), rng.choice(n, size=1)):
            try:
                scored = found.at(theta, [leaf.value[some] for leaf in rows])
            except FAILURES:
                return False
            if scored.shape != some.shape or not _close(scored, expected[some], expected):
                return False
    return True


def _close(found: FloatArray, expected: FloatArray, among: FloatArray) -> bool:
    finite = among[np.isfinite(among)]
    return bool(
        np.allclose(found, expected, rtol=CLOSE, atol=CLOSE * np.abs(finite).max(initial=1e-300), equal_nan=True)
    )


def _flat(values: Sequence[NDArray[Any]]) -> FloatArray:
    return np.concatenate([np.zeros(0), *(np.ravel(value) for value in values)])


# -- linear scores ---------------------------------------------------------------------------------------------------


def _weights(
    found: ModelScores, rows: Sequence[_Leaf], points: Sequence[Sequence[NDArray[Any]]]
) -> tuple[Any, FloatArray] | None:
    """``matrix`` and ``constant`` of a score that is linear in the columns and affine in theta; None of any other."""
    sizes = [int(np.prod(leaf.value.shape[1:])) for leaf in rows]
    columns = sum(sizes)

    def split(flat: FloatArray) -> list[FloatArray]:
        parts = np.split(flat, np.cumsum(sizes)[:-1], axis=1)
        return [part.reshape(len(flat), *leaf.value.shape[1:]) for part, leaf in zip(parts, rows, strict=True)]

    def at(theta: FloatArray) -> FloatArray:
        zero = found.at(theta, split(np.zeros((1, columns))))
        pieces = [found.at(theta, split(np.eye(columns)[rows])) - zero for rows in slices(columns, columns)]
        return np.concatenate([*pieces, zero])

    rng = np.random.default_rng(2)
    probes = [leaf.value[:8].reshape(len(leaf.value[:8]), -1) for leaf in rows]
    training = np.concatenate(probes, axis=1).astype(np.float64)
    probe = np.vstack([training, rng.standard_normal((3, columns)) * np.array([[0.1], [1.0], [7.0]])])

    def follows(theta: FloatArray, weights: FloatArray) -> bool:
        expected = found.at(theta, split(probe))
        scale = np.abs(probe) @ np.abs(weights[:-1]) + np.abs(weights[-1])
        return bool(
            np.isfinite(expected).all()
            and (np.abs(probe @ weights[:-1] + weights[-1] - expected) <= CLOSE * scale).all()
        )

    thetas = [_flat(each) for each in points]
    try:
        seen = [at(theta) for theta in thetas[:2]]
        if not all(map(follows, thetas, seen)):
            return None
        constant = at(np.zeros_like(thetas[0]))
        if not np.isfinite(constant).all():
            return None
        matrix = _selection([each - constant for each in seen], thetas)
        if matrix is None or not _all_follow(matrix, constant, thetas, follows):
            if thetas[0].size * (columns + 1) > NUMBERS_AT_ONCE:
                return None
            matrix = _dense(found, split(np.eye(columns + 1, columns, k=-1)), at, constant, thetas[0].size)
        return (matrix, constant) if _all_follow(matrix, constant, thetas, follows) else None
    except FAILURES:
        return None


def _all_follow(matrix: Any, constant: FloatArray, thetas: Sequence[FloatArray], follows: Any) -> bool:
    return all(follows(theta, matrix @ theta + constant) for theta in (*thetas, 30.0 * thetas[0]))


def _selection(seen: Sequence[FloatArray], thetas: Sequence[FloatArray]) -> Any:
    """Return the matrix if each weight is a multiple of one coefficient, found by ratios at two points."""
    one, two = seen
    if not thetas[0].size:
        return sparse.csr_array((one.size, 0))
    used = np.flatnonzero(np.abs(one) + np.abs(two) > 0)
    with np.errstate(all="ignore"):  # coefficients that a spike holds at zero
        ratios, wanted = thetas[0] / thetas[1], one[used] / two[used]
    order = np.argsort(ratios)
    right = np.clip(np.searchsorted(ratios[order], wanted), 1, max(1, order.size - 1))
    near = np.stack([order[np.minimum(right, order.size - 1)], order[right - 1]])
    with np.errstate(all="ignore"):
        chosen = near[np.abs(ratios[near] - wanted).argmin(axis=0), np.arange(used.size)]
        value = one[used] / thetas[0][chosen]
    whole = np.abs(value - np.round(value)) < 1e-12 * np.abs(value)
    value = np.where(whole, np.round(value), value)
    return sparse.csr_array((value, (used, chosen)), shape=(one.size, thetas[0].size))


def _dense(found: ModelScores, unit_rows: Sequence[FloatArray], at: Any, constant: FloatArray, d: int) -> Any:
    """The matrix by reading the graph at the unit rows, or by evaluating it at each unit vector of theta."""
    found.put(unit_rows)
    try:
        _, slope = read_affine(found.graph, found.layout.values, found.layout.shapes)  # (d, columns + 1)
        slope = np.concatenate([slope[:, 1:] - slope[:, :1], slope[:, :1]], axis=1)
    except Unreadable:
        slope = np.array([at(unit) - constant for unit in np.eye(d)])
    return sparse.csr_array(slope.T)


def _nearest(model: pm.Model, scores: Variable, rows: Sequence[_Leaf]) -> list[Variable]:
    """The named variables nearest to the scores that do not depend on the rows."""
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


def input_of(model: pm.Model, points: Any, dimension: int) -> Input:
    """The points of a Gaussian process as an input, with the labels of the ``pm.Data`` that holds them, if one does."""
    if not isinstance(points, SharedVariable):
        return Input("", (dimension,))
    return replace(_input(model, _Leaf((points,), points.get_value(borrow=True), False)), shape=(dimension,))


def _coords(model: pm.Model, dim: str, size: int) -> tuple[Any, ...] | None:
    values = model.coords.get(dim)
    return None if values is None or len(values) != size else tuple(np.asarray(values).tolist())


def _labelled(model: pm.Model, inputs: Sequence[Input], function: ScoreFunction) -> tuple[Input, ...]:
    """The inputs; columns without labels get those of the coefficients that they are multiplied by."""
    entries: list[Any] = []
    for name, shape in function.variables:
        dims = model.named_vars_to_dims.get(name)
        known = _coords(model, dims[0], shape[0]) if dims and len(shape) == 1 else None
        entries += [None] * int(np.prod(shape)) if known is None else known
    matrix, found, start = function.matrix, [], 0
    for each in inputs:
        part = range(start, start + each.size)
        start += each.size
        loads = [matrix.indices[matrix.indptr[j] : matrix.indptr[j + 1]] for j in part]
        labels = tuple(entries[load[0]] if load.size == 1 else None for load in loads)
        usable = each.labels is None and len(each.shape) == 1 and None not in labels and len(set(labels)) == len(labels)
        found.append(replace(each, labels=labels) if usable else each)
    return tuple(found)


def _refused(name: str, refusal: str) -> ModelScores:
    return ModelScores(ScoreFunction((), name=name, refusal=refusal), pt.zeros(0), FlatVariables((), ()), ())


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


# -- groups ----------------------------------------------------------------------------------------------------------


def _groups(model: pm.Model, scores: Variable, leaf: _Leaf) -> Groups:
    """The coefficients whose first axis the scores index by these codes, ``theta[group]``.

    They are the free variables below the indexing whose first axis is as long as what is indexed, so that
    ``theta[group]`` and ``(mu + tau * z)[group]`` are both understood.
    """
    codes = set(leaf.variables)
    indexed = [
        v.owner.inputs[0]
        for v in ancestors([scores])
        if v.owner is not None and _indexes_first_axis(v.owner) and codes & set(ancestors([v.owner.inputs[1]]))
    ]
    sizes = {int(source.shape[0].eval()) for source in indexed}
    if len(sizes) != 1:
        return Groups((), int(leaf.value.max()) + 1, None)
    [size] = sizes
    used = set(ancestors(indexed))
    members = [rv for rv in model.free_RVs if rv in used and rv.type.ndim and shape_now(rv)[0] == size]
    dims = [model.named_vars_to_dims[v.name][0] for v in (*members, *indexed) if v.name in model.named_vars_to_dims]
    labels = next((found for dim in dims if (found := _coords(model, dim, size)) is not None), None)
    return Groups(tuple(rv.name for rv in members), size, labels)


def _indexes_first_axis(node: Any) -> bool:
    if isinstance(node.op, VECTOR_INDEX):
        return True
    if not isinstance(node.op, AdvancedSubtensor):
        return False
    pattern = getattr(node.op, "idx_list", None)  # of newer versions; older ones have slices among the inputs
    return not pattern or isinstance(pattern[0], int)


def draw_groups(model: pm.Model, groups: Groups, posterior: xr.Dataset, rng: np.random.Generator) -> xr.Dataset:
    """Replace the known groups of the posterior by as many new ones, drawn from the population.

    A new group is exchangeable with the known ones given the parameters of their prior. PyMC draws variables that are
    missing from a posterior from their prior given the others: so the known groups are removed first.
    """
    with predictive_model(model):
        drawn = pm.sample_posterior_predictive(
            posterior.drop_vars(list(groups.names)),
            var_names=list(groups.names),
            random_seed=int(rng.integers(2**31)),
            progressbar=False,
        )
    found = drawn["posterior_predictive"]
    return posterior.assign({name: posterior[name].copy(data=found[name].values) for name in groups.names})


def predictive_model(model: pm.Model) -> pm.Model:
    """A copy of a model without its AUC term, for ``pm.sample_posterior_predictive``.

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
