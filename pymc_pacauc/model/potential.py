"""The AUC risk in a PyMC model: the expression, and the potential exp(-gamma * risk)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.distribution import SymbolicRandomVariable
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_pacauc.core.pairs import encode_labels
from pymc_pacauc.core.problem import check_gamma
from pymc_pacauc.core.risk import check_ties
from pymc_pacauc.core.surrogate import LOSSES
from pymc_pacauc.core.theorems import TheoremDefaults, effective_size, theorem_defaults
from pymc_pacauc.model.auc_term import RANDOM_GAMMA, names_of
from pymc_pacauc.model.op import AUCRisk, SurrogateRisk

__all__ = ["AUCPotential", "auc_risk", "surrogate_risk"]


def auc_risk(scores: Any, y: Any, *, ties: str = "half", positive: Any = None) -> TensorVariable:
    """Pair risk of ``scores`` as a PyTensor expression; ``1 - auc_risk`` is the AUC.

    Parameters
    ----------
    scores
        Any expression of shape ``(..., n)``.
    y
        Labels of length n: an array (bool, {0, 1}, {-1, 1}, or any two values with ``positive``) or ``pm.Data``.
    ties
        ``"half"``: a tied pair costs one half, as in the AUC; ``"strict"``: it costs nothing.
    positive
        Which of the two labels is the positive class.

    Notes
    -----
    The risk is piecewise constant, so its gradient is undefined and gradient-based samplers refuse it: sample with
    :class:`~pymc_pacauc.TemperingSMC` or approximate with :class:`~pymc_pacauc.EP`.

    Examples
    --------
    >>> float(auc_risk([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]).eval())
    0.25
    """
    check_ties(ties)
    scores, labels = _score_tensor(scores), _label_tensor(y, positive)
    _check_lengths(scores, labels)
    for variable in ancestors([scores]):  # PyMC asks step methods about one variable at a time: let them know
        if variable.owner is not None and isinstance(variable.owner.op, RandomVariable | SymbolicRandomVariable):
            variable.tag.feeds_auc_risk = True
    return Blockwise(AUCRisk(ties))(scores, labels)


def surrogate_risk(scores: Any, y: Any, loss: str, *, positive: Any = None) -> TensorVariable:
    """Mean convex pair loss, ``"logistic"`` or ``"hinge"``: differentiable, and never below :func:`auc_risk`."""
    scores, labels = _score_tensor(scores), _label_tensor(y, positive)
    _check_lengths(scores, labels)
    return Blockwise(SurrogateRisk(loss))(scores, labels)[0]


def AUCPotential(
    name: str,
    scores: Any,
    y: Any,
    gamma: Any,
    *,
    loss: str = "exact",
    ties: str = "half",
    positive: Any = None,
    track_risk: bool = True,
    model: pm.Model | None = None,
) -> TensorVariable:
    """Multiply the model's density by ``exp(-gamma * risk)``: the AUC Gibbs posterior.

    Parameters
    ----------
    name
        Name of the potential.
    scores
        Expression of length n: the score of each observation, the higher the more positive. (A DataFrame does not know
        how to multiply a PyMC variable: write ``frame.to_numpy() @ theta``, or hold it in ``pm.Data("X", frame)``.)
    y
        Labels, as in :func:`auc_risk`.
    gamma
        Inverse temperature, in units of the pair risk: a number, ``pm.Data``, a
        :class:`~pymc_pacauc.core.theorems.TheoremDefaults`, or a name: ``"effective_size"`` for 4 n+ n- / n, about what
        cross-validation chooses (:func:`~pymc_pacauc.core.theorems.effective_size`); ``"MA1"`` or ``"MAinf"``, a margin
        assumption, for what its theorem suggests (:func:`~pymc_pacauc.theorem_defaults`).
    loss
        ``"exact"``, or a smooth surrogate (``"logistic"``, ``"hinge"``) with which NUTS can be used.
    ties, positive
        As in :func:`auc_risk`.
    track_risk
        Also register the exact risk of the training data as the Deterministic ``f"{name}_risk"``.
    model
        The model; by default the one on the context stack.

    Returns
    -------
    The potential, ``-gamma * risk``.

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
    if loss not in ("exact", *LOSSES):
        raise ValueError(f'loss must be "exact", {", ".join(map(repr, LOSSES))}; got {loss!r}.')
    model = pm.modelcontext(model)
    scores = _score_tensor(scores)
    if scores.type.ndim != 1:
        raise ValueError(
            f"scores must be one vector, a score per observation; this expression has {scores.type.ndim} dimensions."
        )
    temperature = _gamma_tensor(name, gamma, scores, y, positive, model)
    with model:
        if loss == "exact":
            risk = auc_risk(scores, y, ties=ties, positive=positive)
        else:
            risk = surrogate_risk(scores, y, loss, positive=positive)
        potential = pm.Potential(name, -temperature * risk)
        if track_risk:
            tracked = risk if loss == "exact" else auc_risk(scores, y, ties=ties, positive=positive)
            pm.Deterministic(f"{name}_risk", tracked)
    return potential


def _score_tensor(scores: Any) -> TensorVariable:
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


def _label_values(y: Any, positive: Any) -> np.ndarray | None:
    """The mask of positives, or None where labels are symbolic and have no value yet."""
    if isinstance(y, SharedVariable):
        return encode_labels(y.get_value(), positive)
    return None if isinstance(y, Variable) else encode_labels(y, positive)


def _label_tensor(y: Any, positive: Any) -> TensorVariable:
    mask = _label_values(y, positive)
    if mask is not None and not isinstance(y, Variable):
        return pt.as_tensor(mask.astype(np.int8))
    if y.type.ndim != 1:
        raise ValueError(f"y must be one-dimensional, one label per observation; it has {y.type.ndim} dimensions.")
    return pt.cast(y > 0 if positive is None else pt.eq(y, positive), "int8")


def _check_lengths(scores: TensorVariable, labels: TensorVariable) -> None:
    n_scores, n_labels = scores.type.shape[-1], labels.type.shape[-1]
    if None not in (n_scores, n_labels) and n_scores != n_labels:
        raise ValueError(f"scores has {n_scores} observations along its last axis but y has {n_labels}.")


def _gamma_tensor(name: str, gamma: Any, scores: TensorVariable, y: Any, positive: Any, model: pm.Model) -> Any:
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
        mask = _label_values(y, positive)
        if mask is None:
            raise ValueError(f"gamma={gamma!r} needs the class sizes, and y has no value yet: pass a number instead.")
        sizes = int(mask.sum()), int((~mask).sum())
        if gamma == "effective_size":
            return effective_size(*sizes)
        if gamma not in ("MA1", "MAinf"):
            raise ValueError(f'gamma must be a number, "effective_size", "MA1" or "MAinf"; got {gamma!r}.')
        feeding = set(ancestors([scores]))
        d = sum(int(np.prod(rv.shape.eval())) for rv in model.free_RVs if rv in feeding)
        return theorem_defaults(*sizes, max(d, 1), assumption=gamma).gamma
    return check_gamma(gamma)
