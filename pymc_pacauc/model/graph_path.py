"""A PyMC model evaluated at many points at once: the path of tempering SMC for models that are not linear-Gaussian.

The model's graphs are vectorised over a matrix of particles (one row per particle, the free variables in their
unconstrained space one after the other), so that a move of the whole population is one call. The scores come out of
the graph, and the risk is counted outside it by the batched kernel.

What is tempered is everything PyMC counts as data: the AUC term, and any observed variable or further potential, all
raised to the power ``gamma / gamma_T``. In a model with one AUC term this is the paper's path. With several, gamma is
the sum of theirs and the risk their mean weighted by gamma, so that the terms still multiply to exp(-gamma * risk).
"""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.initial_point import make_initial_point_expression
from pymc.pytensorf import compile as compile_function
from pymc.pytensorf import reseed_rngs
from pytensor.compile.mode import Mode
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import RandomGeneratorType

from pymc_pacauc.comparison.kinds import Comparison
from pymc_pacauc.comparison.risk import comparison_risk
from pymc_pacauc.model.auc_term import auc_terms
from pymc_pacauc.model.graph import flat_variables
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.smc.paths import Energies, FromPrior

NUMBERS_AT_ONCE = 2**22  # scores in one batch of evaluations


class PyMCPath(FromPrior):
    """The path from the prior to the posterior of any model with continuous free variables.

    Without an exact AUC term there is no gamma to speak of: the data terms are tempered from 0 to 1, ``gamma`` is that
    fraction and ``risk`` minus their sum. ``compared`` takes the place of what the AUC terms compare, as one comparison
    of the scores of all of them, one after the other; ``gamma`` that of the sum of theirs.
    """

    def __init__(self, model: pm.Model, *, compared: Comparison | None = None, gamma: float | None = None):
        self.variables = flat_variables(model)
        self.dimension = self.variables.dimension
        terms = auc_terms(model)
        gammas = np.array([term.gamma for term in terms])
        self.gamma = (float(gammas.sum()) if terms else 1.0) if gamma is None else gamma
        self._shares = gammas / gammas.sum() if terms else gammas
        self._compared: list[Comparison] = [term.comparison for term in terms]
        self._ties = [term.ties for term in terms]
        self._joined = compared
        outputs = [model.varlogp, model.datalogp]
        if terms:
            of_terms = {term.risk for term in terms}
            others = [v for v in model.potentials if not of_terms & set(ancestors([v]))]
            graphs = model.replace_rvs_by_values([*(term.scores for term in terms), *others])
            scores, others = graphs[: len(terms)], graphs[len(terms) :]
            outputs = [model.varlogp, model.observedlogp + sum(pt.sum(other) for other in others), *scores]
        theta, batched = self.variables.vectorize(outputs)
        self._evaluate = compile_function([theta], batched, mode=_mode(), on_unused_input="ignore")
        prior = make_initial_point_expression(
            free_rvs=[model.values_to_rvs[value] for value in model.value_vars],
            rvs_to_transforms=model.rvs_to_transforms,
            initval_strategies={},  # a user's initval is a place to start, not the prior
            default_strategy="prior",
            return_transformed=True,
        )
        self._draw = compile_function([], prior, mode=_mode())

    def draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        shared = [v for v in self._draw.get_shared() if isinstance(v.type, RandomGeneratorType)]
        reseed_rngs(shared, int(rng.integers(2**30)))
        rows = [np.concatenate([np.ravel(value) for value in self._draw()]) for _ in range(size)]
        return np.asarray(rows, dtype=np.float64)

    def scores(self, x: FloatArray) -> FloatArray:
        """Scores of all observations at each point, of one term after the other."""
        return np.concatenate(self._evaluate(x)[2:], axis=1)

    def evaluate(self, x: FloatArray) -> Energies:
        width = max([self.dimension, *(compared.n for compared in self._compared)])
        step = max(1, NUMBERS_AT_ONCE // width)
        parts = [self._evaluate_batch(x[i : i + step]) for i in range(0, len(x), step)]
        return Energies(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def _evaluate_batch(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        with np.errstate(all="ignore"):  # what is not finite is counted by the engine
            log_prior, other, *scores = self._evaluate(x)
        if not scores:
            return log_prior, other, -other
        if self._joined is not None:
            risk = comparison_risk(np.concatenate(scores, axis=1), self._joined, ties=self._ties[0])
            return log_prior, other / self.gamma - risk, risk
        risk = np.zeros(len(x))
        for share, values, compared, ties in zip(self._shares, scores, self._compared, self._ties, strict=True):
            risk += share * comparison_risk(np.ascontiguousarray(values), compared, ties=ties)
        return log_prior, other / self.gamma - risk, risk


def _mode() -> Mode:
    """Quick to build, and as fast as compiled code where the work is in a few large array operations."""
    return Mode(linker="py", optimizer="fast_run").excluding("fusion")
