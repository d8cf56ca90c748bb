"""A PyMC model evaluated at many points at once: the path of tempering SMC for models that are not linear-Gaussian.

The model's graphs are vectorised over a matrix of particles (one row per particle, the free variables in their
unconstrained space one after the other), so that a move of the whole population is one call. The scores come out of
the graph, and the risk is counted outside it by the batched kernel.

Gaussian variables are moved in whitened coordinates, however the model was written: of ``b ~ Normal(mu, tau)`` it is
``w = (b - mu) / tau`` that a particle holds, a standard normal variable a priori whatever mu and tau are. So a centred
hierarchy costs as much as a non-centred one, and a scale near zero (a funnel) is no obstacle.

All terms that PyMC counts as data are tempered: the AUC term, and any observed variable or further potential, raised to
the power ``gamma / gamma_T``. In a model with one AUC term this is the paper's path. With several, gamma is the sum of
theirs and the risk their mean weighted by gamma, so that the terms still multiply to exp(-gamma * risk).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.pytensorf import compile as compile_function
from pymc.pytensorf import reseed_rngs
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import MvNormalRV
from pytensor.tensor.random.type import RandomGeneratorType

from pymc_pacauc.comparison.pairs import Pairs
from pymc_pacauc.comparison.risk import pair_risk
from pymc_pacauc.model.auc_term import auc_terms
from pymc_pacauc.model.graph import FlatVariables, draws_from_prior, flat_variables
from pymc_pacauc.model.prior import is_normal, noncentred
from pymc_pacauc.numerics import FloatArray, slices
from pymc_pacauc.smc.coordinates import fit_gaussian
from pymc_pacauc.smc.paths import Bridge, Energies, Path, Population

FITTED = 50  # draws per dimension that a start is fitted to: more make it no better a start


Function = Callable[[FloatArray], list[FloatArray]]


class PyMCPath(Path):
    """The path from the prior to the posterior of any model with continuous free variables.

    Without an exact AUC term the data terms are tempered from 0 to 1: ``gamma`` is that fraction and ``risk`` minus
    their sum. ``compared`` replaces the comparison of the AUC terms, as one comparison of their concatenated scores;
    ``gamma`` replaces the sum of theirs.
    """

    def __init__(self, model: pm.Model, *, compared: Pairs | None = None, gamma: float | None = None):
        self.variables = flat_variables(model)
        terms = auc_terms(model)
        total = sum(term.gamma for term in terms)
        super().__init__(self.variables.dimension, (total or 1.0) if gamma is None else gamma)
        self._compared = [(term.gamma / total, term.comparison, term.ties) for term in terms]
        self._joined = compared is not None
        if compared is not None:
            self._compared = [(1.0, compared, terms[0].ties)]
        self._width = max([self.dimension, *(each.n for _, each, _ in self._compared)])
        others = [v for v in model.potentials if not {term.risk for term in terms} & set(ancestors([v]))]
        graphs = model.replace_rvs_by_values([*(term.scores for term in terms), *others])
        self._outputs = [model.observedlogp + sum(pt.sum(v) for v in graphs[len(terms) :]), *graphs[: len(terms)]]
        self._density = [model.varlogp, *self._outputs]
        self._whiten(model)
        self._draw = compile_function([], draws_from_prior(model, self._left), mode=_mode()) if self._left else None

    def _whiten(self, model: pm.Model) -> None:
        """Set the coordinates of a particle: whitened Gaussian variables, and the values of all others."""
        rvs = [model.values_to_rvs[value] for value in model.value_vars]
        before = set(ancestors([rv for rv in rvs if not is_normal(model, rv)]))
        written, inputs = noncentred(model, [rv for rv in rvs if rv not in before])
        standard = dict(zip(written, inputs, strict=True))
        self._left = [rv for rv in rvs if rv not in written]
        values = dict(zip(written, model.replace_rvs_by_values(list(written.values())), strict=True))
        replaced = {model.rvs_to_values[rv]: values[rv].astype(rv.dtype) for rv in written}
        log_left = sum((pt.sum(term) for term in model.logp(self._left, sum=False)), start=pt.zeros(()))
        log_standard = sum((-0.5 * pt.sum(w**2 + np.log(2.0 * np.pi)) for w in inputs), start=pt.zeros(()))
        self.coordinates = FlatVariables(
            tuple(standard.get(rv, value) for rv, value in zip(rvs, model.value_vars, strict=True)),
            self.variables.shapes,
        )
        self._gaussian = np.zeros(self.dimension, dtype=bool)
        for rv, part in zip(rvs, self.variables.slices, strict=True):
            self._gaussian[part] = rv in written
        outputs = graph_replace([log_left + log_standard, *self._outputs], replaced, strict=False)
        self._evaluate = self.coordinates.function(outputs, _mode())
        self._theta = [replaced.get(value, value) for value in model.value_vars]
        self._x = [_whitened(model, rv) if rv in written else model.rvs_to_values[rv] for rv in rvs]

    @cached_property
    def _to_theta(self) -> Function:
        return self.coordinates.function([pt.as_tensor(value).ravel() for value in self._theta], _mode())

    @cached_property
    def _to_x(self) -> Function:
        return self.variables.function([pt.as_tensor(value).ravel() for value in self._x], _mode())

    @cached_property
    def _of_theta(self) -> Function:
        return self.variables.function(self._density, _mode())

    def draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        found = np.empty((size, self.dimension))
        found[:, self._gaussian] = rng.standard_normal((size, int(self._gaussian.sum())))
        if self._draw is not None:
            shared = [v for v in self._draw.get_shared() if isinstance(v.type, RandomGeneratorType)]
            reseed_rngs(shared, int(rng.integers(2**30)))
            rows = [np.concatenate([np.ravel(value) for value in self._draw()]) for _ in range(size)]
            found[:, ~self._gaussian] = np.asarray(rows, dtype=np.float64)
        return found

    def finish(self, population: Population, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        x = population.x
        theta = np.concatenate(self._to_theta(x), axis=1) if self._gaussian.any() else x
        return theta, population.energies.risk

    def x_of(self, theta: FloatArray) -> FloatArray:
        """Return the particles at values of the free variables: the inverse of :meth:`finish`."""
        return np.concatenate(self._to_x(theta), axis=1) if self._gaussian.any() else theta

    def log_density(self, theta: FloatArray, risk: FloatArray) -> tuple[FloatArray, FloatArray]:
        energies = self._energies(self._of_theta, theta)
        return energies.log_base + self.end * energies.log_tilt, energies.log_tilt

    def bridge(self, mean: FloatArray, covariance: FloatArray) -> Path:
        """Return the path from N(mean, covariance) of the free variables, by its moments in whitened coordinates."""
        rng = np.random.default_rng(0)
        return self.bridge_from(
            rng.multivariate_normal(mean, covariance, size=FITTED * self.dimension, method="cholesky")
        )

    def bridge_from(self, theta: FloatArray) -> Path:
        """Return the path from the Gaussian with the moments, in whitened coordinates, of draws ``theta[N, D]``."""
        x = self.x_of(theta)
        x = x[np.isfinite(x).all(axis=1)]
        return Bridge(self, fit_gaussian(x, np.full(len(x), 1.0 / len(x))))

    def scores(self, theta: FloatArray) -> FloatArray:
        """Compute the scores of all observations at each point of the free variables, one term after the other."""
        return np.concatenate(self._of_theta(theta)[2:], axis=1)

    def evaluate(self, x: FloatArray) -> Energies:
        return self._energies(self._evaluate, x)

    def _energies(self, function: Function, x: FloatArray) -> Energies:
        """Compute energies of points, in pieces whose scores fit in memory."""
        with np.errstate(all="ignore"):  # what is not finite is counted by the engine
            pieces = [self._of_values(*function(x[rows])) for rows in slices(len(x), self._width)]
        return Energies(*(np.concatenate(values) for values in zip(*pieces, strict=True)))

    def _of_values(self, log_prior: FloatArray, other: FloatArray, *scores: FloatArray) -> list[FloatArray]:
        if not scores:
            return [log_prior, other, -other]
        parts = [np.concatenate(scores, axis=1)] if self._joined else map(np.ascontiguousarray, scores)
        risk = np.zeros(len(log_prior))
        for each, (share, compared, ties) in zip(parts, self._compared, strict=True):
            risk += share * pair_risk(each, compared, ties=ties)
        return [log_prior, other / self.gamma - risk, risk]


def _whitened(model: pm.Model, rv: Variable) -> Variable:
    """Standardise a Gaussian variable by its mean and standard deviation or covariance given the others."""
    mean, spread = model.replace_rvs_by_values(list(rv.owner.op.dist_params(rv.owner)))
    centred = model.rvs_to_values[rv] - mean
    if not isinstance(rv.owner.op, MvNormalRV):
        return centred / spread
    factor = pt.linalg.cholesky(spread)
    if rv.type.ndim == 1:
        return pt.linalg.solve_triangular(factor, centred, lower=True)
    return pt.linalg.solve_triangular(factor, centred[..., None], lower=True)[..., 0]


def _mode() -> Mode:
    """Return a mode that builds quickly, and is as fast as compiled code for a few large array operations."""
    return Mode(linker="py", optimizer="fast_run").excluding("fusion")
