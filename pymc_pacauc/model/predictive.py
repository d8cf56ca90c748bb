"""A model's scores at new data: as a PyMC model for posterior prediction, and as functions of its variables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pymc.model.fgraph import ModelNamed, ModelPotential, fgraph_from_model, model_from_fgraph
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors

from pymc_pacauc.model.extract import auc_term, is_auc_risk

__all__ = ["HeldData", "data_of_scores", "predictive_model", "temporarily"]


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
    >>> with pac.predictive_model(model):
    ...     pm.set_data({"X": [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]}, coords={"row": range(3)})
    ...     predicted = pm.sample_posterior_predictive(idata, var_names=["scores"], progressbar=False)
    >>> predicted["posterior_predictive"]["scores"].shape
    (1, 100, 3)
    """
    graph, _ = fgraph_from_model(model)
    outputs = list(graph.outputs)
    dropped = {o for o in outputs if isinstance(o.owner.op, ModelPotential) or any(map(is_auc_risk, ancestors([o])))}
    used = set(ancestors([o for o in outputs if o not in dropped and not isinstance(o.owner.op, ModelNamed)]))
    dropped |= {o for o in outputs if not {o, o.owner.inputs[0]} & used}  # data that fed the AUC term only
    for index in reversed(range(len(outputs))):
        if outputs[index] in dropped:
            graph.remove_output(index)
    return model_from_fgraph(graph, mutate_fgraph=True)


def data_of_scores(model: pm.Model, X_new: np.ndarray, data: str | None = None) -> Any:
    """The ``pm.Data`` that feeds the scores and that ``X_new`` can take the place of; None when no data feed them.

    ``data`` names it; by default it is the one of as many columns as ``X_new``.
    """
    feeding = set(ancestors([auc_term(model).scores]))
    candidates = [v for v in model.data_vars if v in feeding and v.type.ndim == X_new.ndim]
    if data is not None:
        candidates = [v for v in candidates if v.name == data]
        if not candidates:
            raise ValueError(f"No pm.Data named {data!r} with {X_new.ndim} dimensions feeds the scores.")
    elif not candidates:
        return None
    fitting = [v for v in candidates if v.get_value(borrow=True).shape[1:] == X_new.shape[1:]]
    if len(fitting) != 1:
        shapes = ", ".join(f"{v.name} {v.get_value(borrow=True).shape}" for v in candidates)
        found = "no" if not fitting else "more than one"
        raise ValueError(
            f"X_new has shape {X_new.shape}; {found} pm.Data that feeds the scores has as many columns ({shapes}). "
            "Name it with data=."
        )
    return fitting[0]


@contextmanager
def temporarily(variable: Any, value: np.ndarray) -> Iterator[None]:
    """Set a ``pm.Data`` for the duration of the block: compiled functions read it when they are called."""
    before = variable.get_value()
    variable.set_value(value.astype(variable.type.dtype))
    try:
        yield
    finally:
        variable.set_value(before)


@dataclass(frozen=True, eq=False)
class HeldData:
    """What a model's ``pm.Data``, mutable dimensions and coords held at some time."""

    values: dict[SharedVariable, NDArray[Any]]
    coords: dict[str, Any]

    @classmethod
    def of(cls, model: pm.Model) -> HeldData:
        lengths = [length for length in model.dim_lengths.values() if isinstance(length, SharedVariable)]
        return cls({v: v.get_value(borrow=True) for v in (*model.data_vars, *lengths)}, dict(model.coords))

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
