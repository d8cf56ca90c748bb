"""The AUC terms of a PyMC model, found in its graph: potentials of the form ``-gamma * risk(scores, labels)``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pymc.pytensorf import compile as compile_function
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.blockwise import Blockwise

from pymc_pacauc.core.pairs import Pairs, bipartite
from pymc_pacauc.model.flat import MODE
from pymc_pacauc.model.op import AUCRisk, SurrogateRisk

__all__ = ["AUCTerm", "NotLinearGaussianError", "auc_term", "auc_terms", "is_auc_risk", "names_of", "refuse"]


RANDOM_GAMMA = (
    "The gamma of {potential} is random ({names}). exp(-gamma * risk) is no density of the data: it is not normalised "
    "in gamma, whose posterior would only collapse towards zero. Hold gamma fixed and choose it with pac.select_gamma."
)


class NotLinearGaussianError(ValueError):
    """The model's scores are not affine in Gaussian variables; the message says where, and what to do."""


SAMPLE_INSTEAD = (
    "Expectation-Propagation needs scores that are affine in Gaussian variables and one pac.AUCPotential; any other "
    "model can be sampled with pm.sample(step=pac.TemperingSMC())."
)


def refuse(reason: str, instead: str = SAMPLE_INSTEAD) -> NotLinearGaussianError:
    return NotLinearGaussianError(f"The model is not linear-Gaussian: {reason}. {instead}")


@dataclass(frozen=True, eq=False)
class AUCTerm:
    """``potential = -gamma * risk``; labels and gamma are read from the model when they are asked for."""

    potential: Variable
    risk: Variable
    ties: str
    read: Callable[[], tuple[NDArray[np.int8], float]]

    @property
    def scores(self) -> Variable:
        return self.risk.owner.inputs[0]

    @property
    def labels(self) -> NDArray[np.int8]:
        return self.read()[0]

    @property
    def gamma(self) -> float:
        return self.read()[1]

    @property
    def pairs(self) -> Pairs:
        return bipartite(self.labels)


def auc_term(model: pm.Model) -> AUCTerm:
    """The one AUC term of a model."""
    found = _risks(model)
    smooth = {
        _core_op(v).loss for p in model.potentials for v in ancestors([p]) if isinstance(_core_op(v), SurrogateRisk)
    }
    if smooth and not found:
        loss = ", ".join(sorted(smooth))
        raise refuse(
            f'its AUC term is a smooth surrogate (loss="{loss}")',
            'Expectation-Propagation is for the exact risk, loss="exact"; sample the surrogate with pm.sample(), by '
            "NUTS, or with pm.sample(step=pac.TemperingSMC()).",
        )
    if len(found) != 1:
        raise refuse(f"it has {len(found)} exact AUC terms where one is expected; add one with pac.AUCPotential")
    return _term(model, *found[0])


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


def is_auc_risk(variable: Variable) -> bool:
    return isinstance(_core_op(variable), AUCRisk)


def names_of(variables: Iterable[Variable]) -> str:
    return ", ".join(sorted(v.name for v in variables))


def _core_op(variable: Variable) -> Any:
    op = getattr(variable.owner, "op", None)
    return op.core_op if isinstance(op, Blockwise) else op


def _term(model: pm.Model, potential: Variable, risk: Variable) -> AUCTerm:
    if risk.type.ndim:
        raise refuse(f"the scores of {potential.name} have batch dimensions")
    argument = risk.type("risk")
    of_risk = graph_replace([potential], {risk: argument})[0]
    random = set(model.free_RVs) & set(ancestors([of_risk]))
    if random:
        without = graph_replace([of_risk.sum()], {argument: np.zeros(())}, strict=False)[0]
        if not np.any(pm.draw(without, draws=3, random_seed=0)):
            raise ValueError(RANDOM_GAMMA.format(potential=potential.name, names=names_of(random)))
        raise refuse(f"the potential {potential.name} depends on {names_of(random)} other than through the risk")
    at = compile_function([argument], [risk.owner.inputs[1], of_risk.sum()], mode=MODE)

    def read() -> tuple[NDArray[np.int8], float]:
        (labels, zero), (_, one), (_, two) = (at(value) for value in (0.0, 1.0, 2.0))
        gamma = float(zero - one)
        if not (zero == 0 and np.isclose(two, 2 * one)):
            raise refuse(f"the potential {potential.name} is not of the form -gamma * risk")
        if not gamma > 0:
            raise ValueError(f"gamma must be > 0; the potential {potential.name} has gamma = {gamma:g}.")
        return labels, gamma

    return AUCTerm(potential, risk, _core_op(risk).ties, read)
