"""A model without its AUC term, for posterior prediction the PyMC way."""

from __future__ import annotations

import pymc as pm
from pymc.model.fgraph import ModelNamed, ModelPotential, fgraph_from_model, model_from_fgraph
from pytensor.graph.traversal import ancestors

from pymc_pacauc.model.auc_term import is_auc_risk


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
            f"Trees of PyMC-BART ({', '.join(trees)}) keep their data to themselves, and a copy of the model would go "
            "on with the old ones: use pm.set_data and pm.draw(f) in the model itself."
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
