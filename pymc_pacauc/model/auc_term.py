"""The risks in a PyMC model, found in its graph: potentials of the form ``-gamma * risk(scores, labels)``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pytensor import scalar
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors

from pymc_pacauc.comparison.kinds import Comparison
from pymc_pacauc.comparison.pairs import Pairs, encode_labels
from pymc_pacauc.model.graph import Unreadable, evaluate
from pymc_pacauc.model.op import AUCRisk, ComparisonRisk, SurrogateOp, core_op

RANDOM_GAMMA = (
    "The gamma of {potential} is random ({names}). exp(-gamma * risk) is no density of the data: it is not normalised "
    "in gamma, whose posterior would only collapse towards zero. Hold gamma fixed and choose it with pac.select_gamma."
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
    "Expectation-Propagation needs scores that are affine in Gaussian variables and at least one pac.AUCPotential or "
    "pac.ConcordancePotential; any other model can be sampled with pm.sample(step=pac.TemperingSMC())."
)


def refuse(reason: str, instead: str = SAMPLE_INSTEAD) -> NotLinearGaussianError:
    return NotLinearGaussianError(f"The model is not linear-Gaussian: {reason}. {instead}")


@dataclass(frozen=True, eq=False)
class AUCTerm:
    """``potential = -gamma * risk``; labels and gamma are read from the model when they are asked for."""

    potential: Variable
    risk: Variable
    op: AUCRisk | ComparisonRisk
    read: Callable[[], tuple[tuple[NDArray[Any], ...], float]]

    @property
    def scores(self) -> Variable:
        return self.risk.owner.inputs[0]

    @property
    def ties(self) -> str:
        return self.op.ties

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """What the scores are compared by: ``"y"``, or ``"time"`` and ``"event"``, and strata and weights if any."""
        return dict(zip(self.op.kind.arrays, self.read()[0], strict=True))

    @property
    def labels(self) -> NDArray[Any]:
        """The first of these arrays: labels or times."""
        return self.read()[0][0]

    @property
    def gamma(self) -> float:
        return self.read()[1]

    @property
    def comparison(self) -> Comparison:
        return self.op.kind.comparison(*self.read()[0])

    @property
    def pairs(self) -> Pairs:
        """The pairs, where the comparison is a fixed set of them."""
        return fixed_pairs(self.potential.name, self.comparison)


def fixed_pairs(potential: str, comparison: Comparison) -> Pairs:
    """The pairs of a comparison; a refusal where they depend on the scores."""
    if isinstance(comparison, Pairs):
        return comparison
    raise refuse(
        f"the partial AUC of {potential} (max_fpr) is an average over no fixed set of pairs: which negatives count "
        "depends on the scores. (EP's fit of the same model without max_fpr can be the start of exact sampling: "
        "step=pac.TemperingSMC(start=approx))"
    )


def found_terms(model: pm.Model) -> list[AUCTerm]:
    """The AUC terms of a model, at least one, each of the form ``-gamma * risk``."""
    found = _risks(model)
    if found:
        return [_term(model, *each) for each in found]
    losses = {
        _core_op(v).loss for p in model.potentials for v in ancestors([p]) if isinstance(_core_op(v), SurrogateOp)
    }
    if losses:
        raise refuse(
            f'its AUC term is a smooth surrogate (loss="{", ".join(sorted(losses))}")',
            'Expectation-Propagation is for the exact risk, loss="exact"; sample the surrogate with pm.sample(), by '
            "NUTS, or with pm.sample(step=pac.TemperingSMC()).",
        )
    raise refuse("it has 0 exact AUC terms where one is expected; add one with pac.AUCPotential")


def auc_terms(model: pm.Model) -> list[AUCTerm]:
    """Every exact AUC term, in the order of the potentials; none where one is not of the form ``-gamma * risk``."""
    try:
        terms = [_term(model, potential, risk) for potential, risk in _risks(model)]
        for term in terms:
            term.read()
    except NotLinearGaussianError:
        return []
    return terms


def _risks(model: pm.Model) -> list[tuple[Variable, Variable]]:
    """(potential, risk) for each exact AUC risk among the potentials."""
    return [(potential, v) for potential in model.potentials for v in ancestors([potential]) if is_auc_risk(v)]


def score_graphs(model: pm.Model) -> list[Variable]:
    """What the potentials compare, exactly or by a smooth surrogate, in their order."""
    kinds = AUCRisk | ComparisonRisk | SurrogateOp
    return [v.owner.inputs[0] for p in model.potentials for v in ancestors([p]) if isinstance(_core_op(v), kinds)]


def is_auc_risk(variable: Variable) -> bool:
    return isinstance(_core_op(variable), AUCRisk | ComparisonRisk)


def names_of(variables: Iterable[Variable]) -> str:
    return ", ".join(sorted(v.name for v in variables))


def _core_op(variable: Variable) -> Any:
    return core_op(getattr(variable.owner, "op", None))


def _term(model: pm.Model, potential: Variable, risk: Variable) -> AUCTerm:
    if risk.type.ndim:
        raise refuse(f"the scores of {potential.name} have batch dimensions")
    random = set(model.free_RVs) & set(ancestors([potential], blockers=[risk]))
    if random:
        without = graph_replace([potential.sum()], {risk: np.zeros(())}, strict=False)[0]
        if not np.any(pm.draw(without, draws=3, random_seed=0)):
            raise ValueError(RANDOM_GAMMA.format(potential=potential.name, names=names_of(random)))
        raise refuse(f"the potential {potential.name} depends on {names_of(random)} other than through the risk")
    others = risk.owner.inputs[1:]

    def read() -> tuple[tuple[NDArray[Any], ...], float]:
        zero, one, two = (float(evaluate([potential], {risk: np.asarray(at)})[0].sum()) for at in (0.0, 1.0, 2.0))
        gamma = zero - one
        if not (zero == 0 and np.isclose(two, 2 * one)):
            raise refuse(f"the potential {potential.name} is not of the form -gamma * risk")
        if not gamma > 0:
            raise ValueError(f"gamma must be > 0; the potential {potential.name} has gamma = {gamma:g}.")
        try:
            _check_labels(others[0])
            return tuple(evaluate(others)), gamma
        except Unreadable as error:
            raise refuse(f"what {potential.name} compares the scores by is not known data ({error})") from None

    return AUCTerm(potential, risk, _core_op(risk), read)


def _check_labels(mask: Variable) -> None:
    """Refuse labels that ``pm.set_data`` made other than two classes; the mask of the positive one does not show it."""
    comparison = mask.owner.inputs[0].owner if mask.owner is not None and len(mask.owner.inputs) == 1 else None
    if comparison is not None and getattr(comparison.op, "scalar_op", None) in (scalar.gt, scalar.eq):
        labels, value = evaluate(comparison.inputs)
        encode_labels(labels, positive=None if comparison.op.scalar_op == scalar.gt else value.item())
