"""Risks of comparisons in a PyMC model: the expressions ``auc_risk`` and the potentials exp(-gamma * risk).

A potential adds to the model's log density, of scores s of shape (n,),

    -gamma * risk(s) = -gamma * sum w_ij 1{s_i < s_j} / sum w_ij,    a tie counting one half,

over the pairs (i, j) that are compared (:mod:`pymc_pacauc.comparison.pairs`). The risk is an Op of scores and labels
(:mod:`pymc_pacauc.model.op`), O(n log n) an evaluation, which engines find again in the graph
(:mod:`pymc_pacauc.model.auc_term`). With ``multi_class="ovo"`` scores are (n, K), and there is an Op for each column.

Arguments that have a value are checked when the potential is added; ``pm.Data`` are checked again when they are read.
To add an option, see ``docs/how_to/extend.md``.

References: Ridgway, Alquier, Chopin & Liang (2014), arXiv:1410.1771, section 2.1; Hand & Till (2001),
doi:10.1023/A:1010920819831, for unordered classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypedDict, Unpack

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.variable import TensorVariable

from pymc_pacauc.comparison.censored import concordance
from pymc_pacauc.comparison.kinds import check_max_fpr, label_comparison, sorted_classes
from pymc_pacauc.comparison.pairs import Pairs, distinct_labels, encode_labels
from pymc_pacauc.comparison.risk import check_ties
from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.model.auc_term import RANDOM_GAMMA, names_of
from pymc_pacauc.model.graph import is_random, shape_now
from pymc_pacauc.model.op import AUCRisk, ComparisonKind, SurrogateRisk
from pymc_pacauc.numerics import check_choice, ranked
from pymc_pacauc.problem.problem import check_gamma


@dataclass(frozen=True, eq=False)
class Compared:
    """A comparison in a model: its kind, its arrays as tensors, and the pairs if all arrays have a value."""

    kind: ComparisonKind
    tensors: tuple[TensorVariable, ...]
    comparison: Pairs | None

    @property
    def is_partial(self) -> bool:
        """True for a partial AUC, which is not an average over fixed pairs."""
        return "max_fpr" in dict(self.kind.options)

    def risk(self, scores: TensorVariable, ties: str) -> TensorVariable:
        """Return the exact risk of ``scores[..., n]``."""
        check_ties(ties)
        if self.is_partial and ties != "half":
            raise ValueError(f'ties={ties!r} is not defined for a partial AUC (max_fpr=), an area: use ties="half".')
        self._check_lengths(scores)
        random = [v for v in ancestors([scores]) if is_random(v.owner)]
        for variable in random:  # PyMC asks step methods about one variable at a time: tell them about all
            variable.tag.feed_auc_risk = random
        return Blockwise(AUCRisk(ties, self.kind))(scores, *self.tensors)

    def surrogate(self, scores: TensorVariable) -> TensorVariable:
        """Return a mean convex loss, at least the risk."""
        if self.is_partial:
            raise ValueError(
                'max_fpr has no surrogate, because a partial AUC is not an average over fixed pairs: use loss="exact".'
            )
        self._check_lengths(scores)
        return Blockwise(SurrogateRisk(self.kind))(scores, *self.tensors)[0]

    def _check_lengths(self, scores: TensorVariable) -> None:
        n = scores.type.shape[-1]
        for name, tensor in zip(self.kind.arrays, self.tensors, strict=True):
            if None not in (n, tensor.type.shape[-1]) and n != tensor.type.shape[-1]:
                raise ValueError(
                    f"scores has {n} observations along its last axis but {name} has {tensor.type.shape[-1]}."
                )


def compared_labels(
    y: Any, *, positive: Any = None, ordered: Any = False, max_fpr: Any = None, **arrays: Any
) -> Compared:
    """Compare labels, with the options of :func:`~pymc_pacauc.empirical_risk`."""
    options: dict[str, Any] = {}
    if max_fpr is not None:
        check_max_fpr(max_fpr)
        options["max_fpr"] = max_fpr
    if ordered is not False:
        options["ordered"] = ordered
    build = partial(label_comparison, positive=positive, ordered=ordered, max_fpr=max_fpr)
    mask = None if ordered is not False else partial(_mask, positive=positive)
    return _compared({"y": y, **arrays}, build, options, mask)


def compared_classes(y: Any, number: int, *, weights: Any = None, strata: Any = None, **others: Any) -> list[Compared]:
    """Compare unordered classes: return a comparison for the score of each, in the order of sorted labels."""
    if any(value is not None and value is not False for value in others.values()):
        raise ValueError(f'multi_class="ovo" goes with weights and strata, not with {", ".join(others)}.')
    given = {"y": y if isinstance(y, Variable) else sorted_classes(y), "weights": weights, "strata": strata}
    return [_compared(given, of_class=(k, number)) for k in range(number)]


def compared_times(
    time: Any, event: Any, *, weights: Any = None, tau: Any = None, cause: int = 1, horizon: Any = None, **arrays: Any
) -> Compared:
    """Compare censored times, with the options of :func:`~pymc_pacauc.concordance_risk`."""
    options = {
        "tau": tau,
        "cause": cause,
        "horizon": None if horizon is None else tuple(np.atleast_1d(horizon).tolist()),
    }
    if isinstance(weights, str):
        options["weights"], weights = weights, None
    given = {"time": time, "event": event, "weights": weights, **arrays}
    return _compared(given, partial(concordance, **options), options)


def _compared(
    given: Mapping[str, Any],
    build: Callable[..., Pairs] | None = None,
    options: Mapping[str, Any] | None = None,
    mask: Callable[[Any], TensorVariable] | None = None,
    of_class: tuple[int, int] | None = None,
) -> Compared:
    """Return what is compared, the pairs built of the arrays where all have a value; ``mask`` is that of labels."""
    given = {name: each for name, each in given.items() if each is not None}
    kind = ComparisonKind(tuple(given), tuple((options or {}).items()), of_class)
    comparison = None
    if all(isinstance(each, SharedVariable) or not isinstance(each, Variable) for each in given.values()):
        values = {k: each.get_value() if isinstance(each, SharedVariable) else each for k, each in given.items()}
        comparison = kind.comparison(*map(np.asarray, values.values())) if build is None else build(**values)
    tensors = [_tensor(name, each) if mask is None or name != "y" else mask(each) for name, each in given.items()]
    return Compared(kind, tuple(tensors), comparison)


def score_tensor(scores: Any) -> TensorVariable:
    """Convert scores to a tensor of float64 with at least one dimension."""
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


def _mask(y: Any, positive: Any) -> TensorVariable:
    """Return the mask of the positive class, as int8."""
    if not isinstance(y, Variable):
        return pt.as_tensor(encode_labels(y, positive).astype(np.int8))
    _check_vector("y", y)
    return pt.cast(y > 0 if positive is None else pt.eq(y, positive), "int8")


def _tensor(name: str, given: Any) -> TensorVariable:
    """Convert an array to a tensor: strata to their numbers, all else to booleans or numbers."""
    if isinstance(given, Variable):
        _check_vector(name, given)
        return given
    array: NDArray[Any] = distinct_labels(name, given)[1] if name == "strata" else np.asarray(ranked(given))
    return pt.as_tensor(array if name == "strata" or array.dtype.kind == "b" else array.astype(np.float64))


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
    ordered: bool = False,
    max_fpr: float | None = None,
    multi_class: str | None = None,
) -> TensorVariable:
    """Build the pair risk of ``scores`` as a PyTensor expression; ``1 - auc_risk`` is the AUC.

    Parameters
    ----------
    scores : TensorVariable or array-like
        Any expression of shape ``(..., n)``; of shape ``(..., n, K)`` with ``multi_class="ovo"``.
    y : array-like or pm.Data
        Labels of length n: an array (bool, {0, 1}, {-1, 1}, or any two values with ``positive``) or ``pm.Data``.
    ties : {"half", "strict"}, default "half"
        ``"half"``: a tied pair costs one half, as in the AUC; ``"strict"``: it costs nothing.
    positive : label, optional
        Which of the two labels is the positive class.
    strata, weights : array_like or pm.Data, shape (n,), optional
        As in :func:`~pymc_pacauc.empirical_risk`, arrays or ``pm.Data``.
    ordered : bool, default False
        As in :func:`~pymc_pacauc.empirical_risk`.
    max_fpr : float, optional
        As in :func:`~pymc_pacauc.empirical_risk`.
    multi_class : {"ovo"}, optional
        As in :func:`~pymc_pacauc.empirical_risk`.

    Returns
    -------
    TensorVariable, shape (...)
        Share of wrongly ordered pairs of each score vector, in [0, 1].

    Raises
    ------
    ValueError
        If y does not have the classes asked for, lengths differ, or options exclude each other.
    TypeError
        If ``scores`` are no numeric expression or array.

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
    kinds = {"positive": positive, "strata": strata, "weights": weights, "ordered": ordered, "max_fpr": max_fpr}
    columns, compared = _scores_and_classes(scores, y, multi_class, kinds)
    risks = [each.risk(column, ties) for each, column in zip(compared, columns, strict=True)]
    return risks[0] if multi_class is None else sum(risks) / len(risks)


def _scores_and_classes(
    scores: Any, y: Any, multi_class: str | None, kinds: dict[str, Any]
) -> tuple[list[TensorVariable], list[Compared]]:
    """Return the scores, and what they are compared by; of unordered classes, those of each, ``scores[..., k]``."""
    tensor = score_tensor(scores)
    if multi_class is None:
        return [tensor], [compared_labels(y, **kinds)]
    if multi_class != "ovo":
        raise ValueError(f'multi_class must be "ovo" or None; got {multi_class!r}.')
    if tensor.type.ndim < 2:
        raise ValueError(
            'scores must have shape (n, K) with multi_class="ovo", a score of each row for each class, such as X @ W '
            'with W = pm.Normal("W", size=(d, K)); got one dimension.'
        )
    number = tensor.type.shape[-1] or shape_now(tensor)[-1]
    return [tensor[..., k] for k in range(number)], compared_classes(y, number, **kinds)


class _Options(TypedDict, total=False):
    """Options that all potentials share."""

    loss: str
    ties: str
    track_risk: bool
    model: pm.Model | None


def AUCPotential(
    name: str,
    scores: Any,
    y: Any,
    gamma: Any,
    *,
    positive: Any = None,
    strata: Any = None,
    weights: Any = None,
    ordered: bool = False,
    max_fpr: float | None = None,
    multi_class: str | None = None,
    **options: Unpack[_Options],
) -> TensorVariable:
    """Add the AUC Gibbs factor ``exp(-gamma * risk)`` to the model.

    Parameters
    ----------
    name : str
        Name of the potential.
    scores : TensorVariable, shape (n,) or (n, K)
        Expression of length n: the score of each observation, the higher the more positive. A DataFrame cannot multiply
        a PyMC variable: write ``frame.to_numpy() @ theta``, or put it into ``pm.Data("X", frame)``.
        With ``multi_class="ovo"`` of shape (n, K), a score for each class in the order of sorted labels.
    y : array_like or pm.Data, shape (n,)
        Labels, as in :func:`auc_risk`.
    gamma : float, pm.Data or "default"
        Inverse temperature, in units of the pair risk: a number, ``pm.Data``, or ``"default"`` for 4 n+ n- / n, about
        what cross-validation chooses (:func:`~pymc_pacauc.theorems.default_gamma`; for other comparisons than two
        classes four times their size, see :mod:`pymc_pacauc.comparison.sizes`). With ``multi_class="ovo"`` it
        multiplies 1 - M, so that the risk of each class's own score is multiplied by gamma / K; K numbers multiply
        each class's own risk.
    positive : label, optional
        Which of the two labels is the positive class.
    strata : array-like or pm.Data, optional
        Compare within these groups only (patients of one hospital, documents of one query). Strata with one class are
        skipped.
    weights : array-like or pm.Data, optional
        A positive number per observation; a pair weighs the product of its two.
    ordered : bool, default False
        True for y with more than two values, of which the larger should score higher.
    max_fpr : float, optional
        The partial AUC up to this false positive rate; sampled by :class:`~pymc_pacauc.TemperingSMC` only.
    multi_class : {"ovo"}, optional
        K unordered classes, with a score each: Hand and Till's M, the mean over pairs of classes (k, l) of the AUC of
        score k between their rows. Where each class has coefficients of its own, independent a priori, EP fits K
        problems of two classes.
    **options : Any
        ``loss="exact"``, or a smooth surrogate, ``"logistic"``, with which NUTS can be used;
        ``ties="half"`` or ``"strict"``, as in :func:`auc_risk`; ``track_risk=False`` not to register the exact risk of
        the training data as the Deterministic ``f"{name}_risk"``; ``model=``, by default the one on the context stack.

    Returns
    -------
    TensorVariable
        The potential, ``-gamma * risk``.

    Raises
    ------
    ValueError
        If y does not have such classes, lengths differ, gamma is not positive or not finite, or options
        exclude each other.
    TypeError
        If ``scores`` are no numeric expression or array.

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
    kinds = {"positive": positive, "strata": strata, "weights": weights, "ordered": ordered, "max_fpr": max_fpr}
    return _add_potential(name, *_scores_and_classes(scores, y, multi_class, kinds), gamma, **options)


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
    entry: Any = None,
    **options: Unpack[_Options],
) -> TensorVariable:
    """Add the factor ``exp(-gamma * (1 - C))`` to the model, C the concordance of scores with censored times.

    **A high score means an early event.**

    Parameters
    ----------
    name : str
        Name of the potential.
    scores : TensorVariable
        Expression of length n: the score of each observation, the higher the earlier its event.
    time, event : array-like or pm.Data
        When each observation had its event or was last seen, and whether it was an event, or its cause (0 where it was
        censored).
    gamma : float, pm.Data or "default"
        Inverse temperature, multiplying 1 - C, as in :func:`AUCPotential`.
    strata : array-like or pm.Data, optional
        Compare within these groups only.
    weights : "ipcw", array-like or pm.Data, optional
        None for Harrell's C; ``"ipcw"`` for Uno's; or a positive number per observation.
    tau : float, optional
        Compare events before this time only.
    cause : int, default 1
        The code in ``event`` of the events of interest; those of other causes count as never having it (Wolbers' C).
    horizon : float or sequence of float, optional
        Use the cumulative/dynamic AUC at this time, or its mean over several, instead of C: events until
        then against those free of it then, with inverse probabilities of censoring as weights.
    entry : array-like or pm.Data, optional
        When each came under observation, if later than time 0; it is compared with later events only (Harrell's and
        Wolbers' C).
    **options : Any
        Those of :func:`AUCPotential`.

    Returns
    -------
    TensorVariable
        The potential, ``-gamma * (1 - C)``.

    Raises
    ------
    ValueError
        If no pair of times can be compared, lengths differ, or options exclude each other.
    TypeError
        If ``scores`` are no numeric expression or array.

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
    kinds: dict[str, Any] = {"strata": strata, "weights": weights, "tau": tau, "cause": cause, "horizon": horizon}
    compared = compared_times(time, event, entry=entry, **kinds)
    return _add_potential(name, [score_tensor(scores)], [compared], gamma, **options)


def _add_potential(
    name: str,
    scores: list[TensorVariable],
    compared: list[Compared],
    gamma: Any,
    *,
    loss: str = "exact",
    ties: str = "half",
    track_risk: bool = True,
    model: pm.Model | None = None,
) -> TensorVariable:
    """Add the potential of one score, or of one for each class."""
    check_choice("loss", loss, ("exact", "logistic"))
    model = pm.modelcontext(model)
    if scores[0].type.ndim != 1:
        dimensions = scores[0].type.ndim + (len(scores) > 1)
        raise ValueError(
            f"scores must be one vector, a score per observation; got {dimensions} dimensions. (For a score for each "
            'of K unordered classes, shape (n, K), use multi_class="ovo".)'
        )
    temperatures = _gammas(name, gamma, compared, model)
    with model:
        risks = [each.risk(score, ties) for each, score in zip(compared, scores, strict=True)]
        losses = risks
        if loss != "exact":
            losses = [each.surrogate(score) for each, score in zip(compared, scores, strict=True)]
        potential = pm.Potential(name, -sum(t * each for t, each in zip(temperatures, losses, strict=True)))
        if track_risk:
            pm.Deterministic(f"{name}_risk", sum(risks) / len(risks))
    return potential


def _gammas(name: str, gamma: Any, compared: list[Compared], model: pm.Model) -> list[Any]:
    """Return the factor of each risk: gamma divided by their number, or a gamma for each.

    By default it is four times the size of its pairs.
    """
    number, of_classes = len(compared), len(compared) > 1 and not isinstance(gamma, str)
    if of_classes and (gamma.type.ndim if isinstance(gamma, Variable) else np.ndim(gamma)) == 1:
        length = gamma.type.shape[0] if isinstance(gamma, Variable) else len(gamma)
        if length not in (None, number):
            raise ValueError(f"gamma must be one number, or one for each of the {number} classes; got {length}.")
        return [_gammas(name, gamma[k], compared[k : k + 1], model)[0] for k in range(number)]
    if isinstance(gamma, str):
        if gamma != "default":
            raise ValueError(f'gamma must be a number, pm.Data or "default"; got {gamma!r}.')
        if any(each.comparison is None for each in compared):
            raise ValueError('gamma="default" needs the class sizes, and y has no value yet: pass a number instead.')
        return [4.0 * row_shares(each.comparison).size for each in compared if each.comparison is not None]
    if isinstance(gamma, Variable):
        if gamma.type.ndim:
            raise ValueError(f"gamma must be a scalar; got {gamma.type.ndim} dimensions.")
        if random := set(model.free_RVs) & set(ancestors([gamma])):
            raise ValueError(RANDOM_GAMMA.format(potential=name, names=names_of(random)))
        if isinstance(gamma, SharedVariable):
            check_gamma(gamma.get_value())
    else:
        gamma = check_gamma(gamma)
    return [gamma / number if number > 1 else gamma] * number
