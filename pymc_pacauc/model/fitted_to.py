"""What a model is fitted to, as it is now: the record that travels in every result.

See :class:`~pymc_pacauc.core.fitted_to.FittedTo` for what is recorded and why.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.type import TensorType

from pymc_pacauc.core.effective_size import compared_share, effective_size
from pymc_pacauc.core.fitted_to import FittedTo, fingerprint, looks_standardized, pair_fingerprint, sides
from pymc_pacauc.core.problem import Problem
from pymc_pacauc.model.auc_term import AUCTerm, auc_terms
from pymc_pacauc.model.flat import flat_variables
from pymc_pacauc.model.kernel_features import TransformRows

__all__ = ["check_model", "fitted_to", "mark_tuned"]


def fitted_to(
    model: pm.Model, method: str, problem: Problem | None = None, terms: list[AUCTerm] | None = None
) -> FittedTo:
    """The record of a model as it is now; ``problem`` is that of the model, where it is known to have one."""
    terms = auc_terms(model) if terms is None else terms
    if not terms:
        return FittedTo(
            method, 1.0, 0, 0, "other pairs", 0.0, 0.0, _dimension(model), "half", 0, False, "other", False, False, 0
        )
    comparison = terms[0].comparison
    n_pos, n_neg = sides(comparison)
    arrays = _arrays(terms)
    scores = "other"
    if problem is not None:
        scores = "affine" if problem.offset.any() else "linear"
        gamma = problem.gamma
    else:
        gamma = float(sum(term.gamma for term in terms))
    of_terms = {term.risk for term in terms}
    alone = not model.observed_RVs and all(of_terms & set(ancestors([v])) for v in model.potentials)
    matrices = [a for a in arrays if a.ndim == 2 and len(a) == comparison.n]
    return FittedTo(
        method=method,
        gamma=gamma,
        n_pos=n_pos,
        n_neg=n_neg,
        comparison=comparison.kind,
        m_eff=effective_size(comparison),
        compared=compared_share(comparison),
        coefficients=_dimension(model),
        ties=terms[0].ties,
        terms=len(terms),
        only_auc=alone,
        scores=scores,
        standardized=any(map(looks_standardized, matrices or ([problem.X] if problem is not None else []))),
        tuned_prior=any(_is_tuned(v) for v in model.data_vars),
        data=fingerprint([*(array for term in terms for array in term.read()[0]), *arrays]),
        pairs=pair_fingerprint([term.comparison for term in terms]),
        sample_features=_features_of_sample(terms, arrays),
    )


def check_model(fitted: FittedTo, model: pm.Model) -> None:
    """Raise an error that says what differs, unless ``model`` is what a result was fitted to."""
    if different := fitted.differences(fitted_to(model, fitted.method)):
        raise ValueError(
            "The model is not what this result was fitted to; these differ: " + "; ".join(different) + ". Leave model= "
            "away: the result knows what it was fitted to. Or set the model's data back."
        )


def mark_tuned(variable: SharedVariable) -> None:
    """Remember that the value a ``pm.Data`` holds now was chosen on the data at hand."""
    variable.tag.pacauc_tuned = np.array(variable.get_value())


def _is_tuned(variable: Variable) -> bool:
    tuned = getattr(variable.tag, "pacauc_tuned", None)
    return tuned is not None and np.array_equal(tuned, variable.get_value())


def _dimension(model: pm.Model) -> int:
    return flat_variables(model).dimension


def _features_of_sample(terms: list[AUCTerm], arrays: list[NDArray[Any]]) -> bool:
    """Whether kernel features in the scores have pivots that are rows of what they are applied to."""
    made = [v.owner.op.features for v in ancestors([term.scores for term in terms]) if _is_transform(v)]
    tables = [array for array in arrays if array.ndim == 2]
    return any(each.made_from(table) for each in made for table in tables)


def _is_transform(variable: Variable) -> bool:
    return variable.owner is not None and isinstance(variable.owner.op, TransformRows)


def _arrays(terms: list[AUCTerm]) -> list[NDArray[Any]]:
    """Every array that the scores are made from: covariates, offsets, parameters of priors."""
    found = []
    for variable in ancestors([term.scores for term in terms]):
        if not isinstance(variable.type, TensorType):
            continue
        if isinstance(variable, SharedVariable):
            found.append(np.asarray(variable.get_value(borrow=True)))
        elif isinstance(variable, Constant):
            found.append(np.asarray(variable.data))
    return [array for array in found if array.dtype.kind == "f" or array.size > 1]
