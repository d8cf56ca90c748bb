"""From the arguments of a potential to the inputs of its Op: arrays as they are given, or ``pm.Data`` of them.

Whatever has a value already is checked here, before any work; ``pm.Data`` are checked again when they are read.

Risks of comparisons in a PyMC model: the expressions, and the potentials exp(-gamma * risk).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.distribution import SymbolicRandomVariable
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_pacauc.comparison.censored import concordance
from pymc_pacauc.comparison.kinds import Comparison, check_max_fpr, label_comparison
from pymc_pacauc.comparison.pairs import Pairs, distinct_labels, encode_labels
from pymc_pacauc.comparison.risk import check_ties
from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.comparison.surrogate import LOSSES
from pymc_pacauc.model.auc_term import RANDOM_GAMMA, names_of
from pymc_pacauc.model.op import (
    TWO_CLASSES,
    AUCRisk,
    ComparisonKind,
    ComparisonRisk,
    ComparisonSurrogate,
    SurrogateRisk,
)
from pymc_pacauc.numerics import ranked
from pymc_pacauc.problem.problem import check_gamma
from pymc_pacauc.theorems import TheoremDefaults, default_gamma, theorem_defaults

RANDOM = (RandomVariable, SymbolicRandomVariable)


@dataclass(frozen=True, eq=False)
class Compared:
    """What scores are compared by: the kind, its arrays as tensors, and the pairs where all have a value."""

    kind: ComparisonKind
    tensors: tuple[TensorVariable, ...]
    comparison: Comparison | None

    def risk(self, scores: TensorVariable, ties: str) -> TensorVariable:
        """The exact risk of ``scores[..., n]``."""
        check_ties(ties)
        if self.kind.max_fpr is not None and ties != "half":
            raise ValueError('A partial AUC is an area: ties="half" is the only convention it has.')
        self._check_lengths(scores)
        random = [v for v in ancestors([scores]) if isinstance(getattr(v.owner, "op", None), RANDOM)]
        for variable in random:  # PyMC asks step methods about one variable at a time: let them know of all
            variable.tag.feed_auc_risk = random
        op = AUCRisk(ties) if self.kind == TWO_CLASSES else ComparisonRisk(self.kind, ties)
        return Blockwise(op)(scores, *self.tensors)

    def surrogate(self, scores: TensorVariable, loss: str) -> TensorVariable:
        """A mean convex loss, never below the risk."""
        if loss not in LOSSES:
            raise ValueError(f"loss must be {' or '.join(map(repr, LOSSES))}; got {loss!r}.")
        if self.kind.max_fpr is not None:
            raise ValueError(
                'max_fpr has no surrogate: a partial AUC averages over no fixed set of pairs. Use loss="exact".'
            )
        self._check_lengths(scores)
        op = SurrogateRisk(loss) if self.kind == TWO_CLASSES else ComparisonSurrogate(self.kind, loss)
        return Blockwise(op)(scores, *self.tensors)[0]

    def _check_lengths(self, scores: TensorVariable) -> None:
        n = scores.type.shape[-1]
        for name, tensor in zip(self.kind.arrays, self.tensors, strict=True):
            if None not in (n, tensor.type.shape[-1]) and n != tensor.type.shape[-1]:
                raise ValueError(
                    f"scores has {n} observations along its last axis but {name} has {tensor.type.shape[-1]}."
                )


def compared_labels(
    y: Any,
    *,
    positive: Any = None,
    strata: Any = None,
    weights: Any = None,
    ordered: bool | Mapping[tuple[float, float], float] = False,
    max_fpr: float | None = None,
) -> Compared:
    """Labels, with the options of :func:`~pymc_pacauc.empirical_risk`."""
    if max_fpr is not None:
        check_max_fpr(max_fpr)
    values = {"y": _value(y), "strata": _value(strata), "weights": _value(weights)}
    given = {"y": y, "strata": strata, "weights": weights}
    options: dict[str, Any] = {"positive": positive, "ordered": ordered, "max_fpr": max_fpr}
    comparison = None
    if all(values[name] is not None for name in given if given[name] is not None):
        comparison = label_comparison(values["y"], strata=values["strata"], weights=values["weights"], **options)
    kind = ComparisonKind(
        tuple(name for name in given if given[name] is not None),
        ordered=ordered is not False,
        class_weights=tuple(ordered.items()) if isinstance(ordered, Mapping) else None,
        max_fpr=max_fpr,
    )
    labels = _numbers("y", y) if kind.ordered else _mask(y, positive)
    return Compared(kind, (labels, *_further(given)), comparison)


def compared_times(
    time: Any,
    event: Any,
    *,
    strata: Any = None,
    weights: Any = None,
    tau: float | None = None,
    cause: int = 1,
    horizon: Any = None,
) -> Compared:
    """Censored times, with the options of :func:`~pymc_pacauc.concordance_risk`."""
    ipcw = isinstance(weights, str)
    given = {"time": time, "event": event, "strata": strata, "weights": None if ipcw else weights}
    values = {name: _value(each) for name, each in given.items()}
    comparison = None
    if all(values[name] is not None for name in given if given[name] is not None):
        comparison = concordance(
            values["time"],
            values["event"],
            strata=values["strata"],
            weights=weights if ipcw else values["weights"],
            tau=tau,
            cause=cause,
            horizon=horizon,
        )
    horizons = None if horizon is None else tuple(np.atleast_1d(horizon).tolist())
    arrays = tuple(name for name in given if given[name] is not None)
    kind = ComparisonKind(arrays, ipcw=ipcw, tau=tau, cause=cause, horizon=horizons)
    return Compared(kind, (_numbers("time", time), _numbers("event", event), *_further(given)), comparison)


def score_tensor(scores: Any) -> TensorVariable:
    """Scores as a tensor of float64 with at least one dimension."""
    try:
        tensor = pt.as_tensor(scores)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise TypeError(
            f"scores must be a numeric PyTensor expression or array; got {type(scores).__name__}."
        ) from error
    if tensor.type.ndim == 0:
        raise ValueError("scores is a single number; it needs one score per observation along its last axis.")
    if tensor.type.dtype.startswith("complex"):
        raise TypeError(f"scores must be real numbers; their dtype is {tensor.type.dtype}.")
    return pt.cast(tensor, "float64")


def _value(given: Any) -> Any:
    """What is known of an argument now; None for expressions without a value, and for what was not given."""
    if isinstance(given, SharedVariable):
        return given.get_value()
    return None if isinstance(given, Variable) else given


def _mask(y: Any, positive: Any) -> TensorVariable:
    """The positive class, as int8."""
    if not isinstance(y, Variable):
        return pt.as_tensor(encode_labels(y, positive).astype(np.int8))
    _check_vector("y", y)
    return pt.cast(y > 0 if positive is None else pt.eq(y, positive), "int8")


def _numbers(name: str, given: Any) -> TensorVariable:
    if isinstance(given, Variable):
        _check_vector(name, given)
        return given
    array: NDArray[Any] = np.asarray(ranked(given))
    return pt.as_tensor(array if array.dtype.kind == "b" else array.astype(np.float64))


def _further(given: Mapping[str, Any]) -> list[TensorVariable]:
    found = []
    if given["strata"] is not None:
        strata = given["strata"]
        known = isinstance(strata, Variable)
        found.append(_numbers("strata", strata) if known else pt.as_tensor(distinct_labels("strata", strata)[1]))
    if given["weights"] is not None:
        found.append(_numbers("weights", given["weights"]))
    return found


def _check_vector(name: str, given: Variable) -> None:
    if given.type.ndim != 1:
        what = "label" if name == "y" else "value"
        raise ValueError(
            f"{name} must be one-dimensional, one {what} per observation; it has {given.type.ndim} dimensions."
        )


def auc_risk(
    scores: Any,
    y: Any,
    *,
    ties: str = "half",
    positive: Any = None,
    strata: Any = None,
    weights: Any = None,
    ordered: bool | Mapping[tuple[float, float], float] = False,
    max_fpr: float | None = None,
) -> TensorVariable:
    """Build the pair risk of ``scores`` as a PyTensor expression; ``1 - auc_risk`` is the AUC.

    Parameters
    ----------
    scores : TensorVariable, shape (..., n)
        Any expression of shape ``(..., n)``.
    y : array_like or pm.Data, shape (n,)
        Labels of length n: an array (bool, {0, 1}, {-1, 1}, or any two values with ``positive``) or ``pm.Data``.
    ties : {"half", "strict"}, default "half"
        ``"half"``: a tied pair costs one half, as in the AUC; ``"strict"``: it costs nothing.
    positive : label, optional
        Which of the two labels is the positive class.
    strata, weights : array_like or pm.Data, shape (n,), optional
        As in :func:`~pymc_pacauc.empirical_risk`, arrays or ``pm.Data``.
    ordered : bool or mapping of (label, label) to float, default False
        As in :func:`~pymc_pacauc.empirical_risk`.
    max_fpr : float, optional
        As in :func:`~pymc_pacauc.empirical_risk`.

    Returns
    -------
    TensorVariable, shape (...)
        Share of wrongly ordered pairs of each score vector, in [0, 1].

    Raises
    ------
    ValueError
        If y does not have the classes asked for, lengths differ, or options exclude each other.

    See Also
    --------
    AUCPotential : Add the risk to a model.
    empirical_risk : The same for NumPy arrays.

    Notes
    -----
    The risk is piecewise constant, so its gradient is undefined and gradient-based samplers refuse it: sample with
    :class:`~pymc_pacauc.TemperingSMC` or approximate with :class:`~pymc_pacauc.EP`.

    Examples
    --------
    >>> float(auc_risk([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]).eval())
    0.25
    """
    tensor = score_tensor(scores)
    compared = compared_labels(y, positive=positive, strata=strata, weights=weights, ordered=ordered, max_fpr=max_fpr)
    return compared.risk(tensor, ties)


def surrogate_risk(scores: Any, y: Any, loss: str, *, positive: Any = None) -> TensorVariable:
    """Mean convex pair loss, ``"logistic"`` or ``"hinge"``: differentiable, and never below :func:`auc_risk`."""
    return compared_labels(y, positive=positive).surrogate(score_tensor(scores), loss)


def AUCPotential(
    name: str,
    scores: Any,
    y: Any,
    gamma: Any,
    *,
    loss: str = "exact",
    ties: str = "half",
    positive: Any = None,
    strata: Any = None,
    weights: Any = None,
    ordered: bool | Mapping[tuple[float, float], float] = False,
    max_fpr: float | None = None,
    track_risk: bool = True,
    model: pm.Model | None = None,
) -> TensorVariable:
    """Add the AUC Gibbs factor ``exp(-gamma * risk)`` to the model.

    Parameters
    ----------
    name : str
        Name of the potential.
    scores : TensorVariable, shape (n,)
        Expression of length n: the score of each observation, the higher the more positive. A DataFrame cannot multiply
        a PyMC variable: write ``frame.to_numpy() @ theta``, or hold it in ``pm.Data("X", frame)``.
    y : array_like or pm.Data, shape (n,)
        Labels, as in :func:`auc_risk`.
    gamma : float, str, pm.Data or TheoremDefaults
        Inverse temperature, in units of the pair risk: a number, ``pm.Data``, a
        :class:`~pymc_pacauc.theorems.TheoremDefaults`, or a name: ``"default"`` for 4 n+ n- / n, about what
        cross-validation chooses (:func:`~pymc_pacauc.theorems.default_gamma`; for other comparisons than two
        classes what takes its place, see :mod:`pymc_pacauc.comparison.sizes`); ``"MA1"`` or ``"MAinf"``, a margin
        assumption, for what its theorem suggests (:func:`~pymc_pacauc.theorems.theorem_defaults`).
    loss : {"exact", "logistic", "hinge"}, default "exact"
        ``"exact"``, or a smooth surrogate (``"logistic"``, ``"hinge"``) with which NUTS can be used.
    ties : {"half", "strict"}, default "half"
        As in :func:`auc_risk`.
    positive : label, optional
        As in :func:`auc_risk`.
    strata : array_like or pm.Data, shape (n,), optional
        Compare within these groups only (patients of one hospital, documents of one query): labels or ``pm.Data``.
        Strata with one class are skipped.
    weights : array_like or pm.Data, shape (n,), optional
        A positive number per observation, an array or ``pm.Data``; a pair weighs the product of its two.
    ordered : bool or mapping of (label, label) to float, default False
        True for y with more than two values, of which the larger should score higher; or a mapping
        ``{(higher, lower): weight}`` of what a pair of these classes weighs.
    max_fpr : float, optional
        The partial AUC up to this false positive rate; sampled by :class:`~pymc_pacauc.TemperingSMC` only.
    track_risk : bool, default True
        Also register the exact risk of the training data as the Deterministic ``f"{name}_risk"``.
    model : pymc.Model, optional
        The model; by default the one on the context stack.

    Returns
    -------
    TensorVariable
        The potential, ``-gamma * risk``.

    Raises
    ------
    ValueError
        If y does not have the classes asked for, lengths differ, gamma is not positive or not finite, or options
        exclude each other.

    See Also
    --------
    ConcordancePotential : The same for censored times.
    EP : Approximate the posterior, for ``pm.fit``.
    TemperingSMC : Sample the posterior, for ``pm.sample``.
    select_gamma : Choose gamma.

    References
    ----------
    J. Ridgway, P. Alquier, N. Chopin, F. Liang (2014), PAC-Bayesian AUC classification and scoring, NeurIPS 27.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> X, y = np.array([[0.0], [1.0], [2.0]]), [0, 0, 1]
    >>> with pm.Model() as model:
    ...     theta = pm.Normal("theta", size=1)
    ...     auc = AUCPotential("auc", X @ theta, y, gamma=3.0)
    >>> [v.name for v in model.potentials], [v.name for v in model.deterministics]
    (['auc'], ['auc_risk'])
    """
    compared = compared_labels(y, positive=positive, strata=strata, weights=weights, ordered=ordered, max_fpr=max_fpr)
    return _add_potential(name, scores, compared, gamma, loss, ties, track_risk, model)


def ConcordancePotential(
    name: str,
    scores: Any,
    time: Any,
    event: Any,
    gamma: Any,
    *,
    strata: Any = None,
    weights: Any = None,
    tau: float | None = None,
    cause: int = 1,
    horizon: Any = None,
    loss: str = "exact",
    ties: str = "half",
    track_risk: bool = True,
    model: pm.Model | None = None,
) -> TensorVariable:
    """Add the factor ``exp(-gamma * (1 - C))`` to the model, C the concordance of scores with censored times.

    **A high score means an early event.**

    Parameters
    ----------
    name : str
        Name of the potential.
    scores : TensorVariable, shape (n,)
        Expression of length n: the score of each observation, the higher the earlier its event.
    time, event : array_like or pm.Data, shape (n,)
        When each observation had its event or was last seen, and whether it was an event, or its cause (0 where it was
        censored): arrays or ``pm.Data``.
    gamma : float, str or pm.Data
        Inverse temperature, multiplying 1 - C: a number, ``pm.Data``, or ``"default"``, as in :func:`AUCPotential`.
    strata : array_like or pm.Data, shape (n,), optional
        Compare within these groups only: labels or ``pm.Data``.
    weights : "ipcw", array_like or pm.Data, shape (n,), optional
        None for Harrell's C; ``"ipcw"`` for Uno's; or a positive number per observation, an array or ``pm.Data``.
    tau : float, optional
        Compare events before this time only.
    cause : int, default 1
        The code in ``event`` of the events of interest; those of other causes count as never having it (Wolbers' C).
    horizon : float or sequence of float, optional
        Judge by the cumulative/dynamic AUC at this time, or by the mean of it over several, instead of C: events until
        then against those free of it then, with inverse probabilities of censoring as weights.
    loss : {"exact", "logistic", "hinge"}, default "exact"
        As in :func:`AUCPotential`.
    ties : {"half", "strict"}, default "half"
        As in :func:`AUCPotential`.
    track_risk : bool, default True
        As in :func:`AUCPotential`.
    model : pymc.Model, optional
        As in :func:`AUCPotential`.

    Returns
    -------
    TensorVariable
        The potential, ``-gamma * (1 - C)``.

    Raises
    ------
    ValueError
        If no pair of times can be compared, lengths differ, or options exclude each other.

    See Also
    --------
    AUCPotential : The same for classes.
    concordance_risk : The risk of NumPy arrays.
    ConcordanceEstimator : A linear risk score without PyMC.

    References
    ----------
    F. E. Harrell et al. (1982), Evaluating the yield of medical tests, JAMA 247(18),
    doi:10.1001/jama.1982.03320430047030.

    H. Uno et al. (2011), On the C-statistics for evaluating overall adequacy of risk prediction procedures with
    censored survival data, Statistics in Medicine 30(10), doi:10.1002/sim.4154.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> X, time, event = np.array([[0.0], [1.0], [2.0]]), [3.0, 2.0, 1.0], [False, True, True]
    >>> with pm.Model() as model:
    ...     theta = pm.Normal("theta", size=1)
    ...     c = ConcordancePotential("c", X @ theta, time, event, gamma=3.0)
    >>> [v.name for v in model.potentials], [v.name for v in model.deterministics]
    (['c'], ['c_risk'])
    """
    compared = compared_times(time, event, strata=strata, weights=weights, tau=tau, cause=cause, horizon=horizon)
    return _add_potential(name, scores, compared, gamma, loss, ties, track_risk, model)


def _add_potential(
    name: str,
    scores: Any,
    compared: Compared,
    gamma: Any,
    loss: str,
    ties: str,
    track_risk: bool,
    model: pm.Model | None,
) -> TensorVariable:
    if loss not in ("exact", *LOSSES):
        raise ValueError(f'loss must be "exact", {", ".join(map(repr, LOSSES))}; got {loss!r}.')
    model = pm.modelcontext(model)
    scores = score_tensor(scores)
    if scores.type.ndim != 1:
        raise ValueError(
            f"scores must be one vector, a score per observation; this expression has {scores.type.ndim} dimensions."
        )
    temperature = _gamma_tensor(name, gamma, scores, compared, model)
    with model:
        risk = compared.risk(scores, ties) if loss == "exact" else compared.surrogate(scores, loss)
        potential = pm.Potential(name, -temperature * risk)
        if track_risk:
            pm.Deterministic(f"{name}_risk", risk if loss == "exact" else compared.risk(scores, ties))
    return potential


def _gamma_tensor(name: str, gamma: Any, scores: TensorVariable, compared: Compared, model: pm.Model) -> Any:
    if isinstance(gamma, SharedVariable):
        check_gamma(gamma.get_value())
    if isinstance(gamma, Variable):
        if gamma.type.ndim:
            raise ValueError(f"gamma must be a scalar; it has {gamma.type.ndim} dimensions.")
        if random := set(model.free_RVs) & set(ancestors([gamma])):
            raise ValueError(RANDOM_GAMMA.format(potential=name, names=names_of(random)))
        return gamma
    if isinstance(gamma, TheoremDefaults):
        return gamma.gamma
    if isinstance(gamma, str):
        if compared.comparison is None:
            raise ValueError(f"gamma={gamma!r} needs the class sizes, and y has no value yet: pass a number instead.")
        if compared.kind != TWO_CLASSES:
            if gamma == "default":
                return 4.0 * row_shares(compared.comparison).size
            raise ValueError(
                f'gamma={gamma!r} is for two classes, all pairs weighing the same: pass a number or "default" instead.'
            )
        assert isinstance(compared.comparison, Pairs)
        [block] = compared.comparison.blocks
        sizes = block.positive.size, block.negative.size
        if gamma == "default":
            return default_gamma(*sizes)
        if gamma not in ("MA1", "MAinf"):
            raise ValueError(f'gamma must be a number, "default", "MA1" or "MAinf"; got {gamma!r}.')
        feeding = set(ancestors([scores]))
        d = sum(int(np.prod(rv.shape.eval())) for rv in model.free_RVs if rv in feeding)
        return theorem_defaults(*sizes, max(d, 1), assumption=gamma).gamma
    return check_gamma(gamma)
