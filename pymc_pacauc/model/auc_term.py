"""Find the AUC terms in the graph of a PyMC model: potentials of the form ``-gamma * risk(scores, labels)``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pytensor import scalar
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.type import TensorType

from pymc_pacauc.comparison.pairs import Pairs, encode_labels
from pymc_pacauc.model.graph import Unreadable, evaluate
from pymc_pacauc.model.op import AUCRisk, PairOp, SurrogateRisk, core_op

RANDOM_GAMMA = (
    "gamma of {potential} is random ({names}). exp(-gamma * risk) is not a density of the data, because it is not "
    "normalised in gamma, whose posterior would collapse to zero. Fix gamma, and choose it with pac.select_gamma."
)


class NotLinearGaussianError(ValueError):
    """Raised where the model's scores are not affine in Gaussian variables; the message says where, and what to do.

    See Also
    --------
    pymc_pacauc.EP : Needs such scores.
    pymc_pacauc.TemperingSMC : Samples any scores.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> with pm.Model():
    ...     theta = pm.Normal("theta", size=1)
    ...     auc = pac.AUCPotential("auc", np.array([[0.0], [1.0]]) @ theta**2, [0, 1], gamma=1.0)
    ...     try:
    ...         pm.fit(method=pac.EP())
    ...     except pac.results.NotLinearGaussianError:
    ...         print("use TemperingSMC")
    use TemperingSMC
    """


SAMPLE_INSTEAD = (
    "pac.EP needs scores that are affine in Gaussian variables and at least one pac.AUCPotential or "
    "pac.ConcordancePotential; any other model can be sampled with pm.sample(step=pac.TemperingSMC())."
)


def refuse(reason: str, instead: str = SAMPLE_INSTEAD) -> NotLinearGaussianError:
    return NotLinearGaussianError(f"The model is not linear-Gaussian: {reason}. {instead}")


@dataclass(frozen=True, eq=False)
class AUCTerm:
    """A term ``potential = -gamma * risk``; labels and gamma are read from the model at each access."""

    potential: Variable
    risk: Variable
    op: AUCRisk
    read: Callable[[], tuple[tuple[NDArray[Any], ...], float]]

    @property
    def scores(self) -> Variable:
        return self.risk.owner.inputs[0]

    @property
    def ties(self) -> str:
        return self.op.ties

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The labels by name: ``"y"``, or ``"time"`` and ``"event"``, and strata and weights if any."""
        return dict(zip(self.op.kind.arrays, self.read()[0], strict=True))

    @property
    def gamma(self) -> float:
        return self.read()[1]

    @property
    def comparison(self) -> Pairs:
        return self.op.kind.comparison(*self.read()[0])

    @property
    def pairs(self) -> Pairs:
        """The pairs, where the comparison is a fixed set of them; refused where they depend on the scores."""
        if not (comparison := self.comparison).partial:
            return comparison
        raise refuse(
            f"the partial AUC of {self.potential.name} (max_fpr) is not an average over fixed pairs, because which "
            "negatives count depends on the scores (sampling can start from EP's fit of the same model without "
            "max_fpr: step=pac.TemperingSMC(start=approx))"
        )


def found_terms(model: pm.Model) -> list[AUCTerm]:
    """Find the AUC terms of a model, at least one, each of the form ``-gamma * risk``."""
    found = compared(model, AUCRisk)
    if found:  # a potential of several classes has a term for each of them
        return [_term(model, p, risk, [other for q, other in found if q is p]) for p, risk in found]
    if compared(model, SurrogateRisk):
        raise refuse(
            'its AUC term is a smooth surrogate (loss="logistic")',
            'pac.EP is for the exact risk, loss="exact"; sample the surrogate with pm.sample(), by '
            "NUTS, or with pm.sample(step=pac.TemperingSMC()).",
        )
    raise refuse("it has no AUC term; add one with pac.AUCPotential")


def auc_terms(model: pm.Model) -> list[AUCTerm]:
    """Find all exact AUC terms, in the order of the potentials; none if one is not of the form ``-gamma * risk``."""
    try:
        terms = found_terms(model)
        for term in terms:
            term.read()
    except NotLinearGaussianError:
        return []
    return terms


def compared(model: pm.Model, ops: type[PairOp] = PairOp) -> list[tuple[Variable, Variable]]:
    """Return (potential, risk or surrogate loss), in the order of potentials, and of classes within one."""
    found = [(p, v) for p in model.potentials for v in ancestors([p]) if isinstance(_core_op(v), ops)]
    return sorted(found, key=lambda each: (model.potentials.index(each[0]), _class_of(each[1]) or (0, 0)))


def has_classes(model: pm.Model) -> bool:
    """Return whether the only term is one potential of unordered classes, exact or a surrogate."""
    found = compared(model)
    return len({p for p, _ in found}) == 1 and all(_class_of(v) for _, v in found)


def _class_of(risk: Variable) -> tuple[int, int] | None:
    return _core_op(risk).kind.of_class


def is_auc_risk(variable: Variable) -> bool:
    return isinstance(_core_op(variable), AUCRisk)


def names_of(variables: Iterable[Variable]) -> str:
    return ", ".join(sorted(v.name for v in variables))


def _core_op(variable: Variable) -> Any:
    return core_op(getattr(variable.owner, "op", None))


def _term(model: pm.Model, potential: Variable, risk: Variable, risks: list[Variable]) -> AUCTerm:
    """Read the term of a risk among the ``risks`` of its potential."""
    if risk.type.ndim:
        raise refuse(f"the scores of {potential.name} have batch dimensions")
    random = set(model.free_RVs) & set(ancestors([potential], blockers=risks))
    nothing = dict.fromkeys(risks, np.zeros(()))
    if random:
        without = graph_replace([potential.sum()], nothing, strict=False)[0]
        if not np.any(pm.draw(without, draws=3, random_seed=0)):
            raise ValueError(RANDOM_GAMMA.format(potential=potential.name, names=names_of(random)))
        raise refuse(f"the potential {potential.name} depends on {names_of(random)} other than through the risk")
    others = risk.owner.inputs[1:]

    def read() -> tuple[tuple[NDArray[Any], ...], float]:
        values = (evaluate([potential], nothing | {risk: np.asarray(at)})[0].sum() for at in (0.0, 1.0, 2.0))
        zero, one, two = map(float, values)
        gamma = zero - one
        if not (zero == 0 and np.isclose(two, 2 * one)):
            raise refuse(f"the potential {potential.name} is not of the form -gamma * risk")
        if not gamma > 0:
            raise ValueError(f"gamma must be > 0; the potential {potential.name} has gamma = {gamma:g}.")
        try:
            _check_labels(others[0])
            return tuple(evaluate(others)), gamma
        except Unreadable as error:
            raise refuse(f"the labels of {potential.name} are not data with known values ({error})") from None

    return AUCTerm(potential, risk, _core_op(risk), read)


def arrays_of(terms: list[AUCTerm]) -> list[NDArray[Any]]:
    """Return every array that the scores are made from: covariates, offsets, parameters of priors."""
    found = []
    for variable in ancestors([term.scores for term in terms]):
        if not isinstance(variable.type, TensorType):
            continue
        if isinstance(variable, SharedVariable):
            found.append(np.asarray(variable.get_value(borrow=True)))
        elif isinstance(variable, Constant):
            found.append(np.asarray(variable.data))
    return [array for array in found if array.dtype.kind == "f" or array.size > 1]


def _check_labels(mask: Variable) -> None:
    """Refuse labels that ``pm.set_data`` changed to other than two classes, which the mask of positives would hide."""
    comparison = mask.owner.inputs[0].owner if mask.owner is not None and len(mask.owner.inputs) == 1 else None
    if comparison is not None and getattr(comparison.op, "scalar_op", None) in (scalar.gt, scalar.eq):
        labels, value = evaluate(comparison.inputs)
        encode_labels(labels, positive=None if comparison.op.scalar_op == scalar.gt else value.item())
