"""Gaussian processes of low numerical rank: particles move among the few coefficients that reach the scores.

Where the scores of n observations are r features (:mod:`pymc_pacauc.core.scores`), their coefficients u ~ N(0, I_r) are
all a risk sees. So tempering takes place there, on the path that r features have (``inner``), at the cost of r
dimensions instead of n. The other directions keep their prior, and are drawn from it when theta is asked for.

Use: :func:`~pymc_pacauc.smc.prior_path` returns a :class:`FeaturePath` for such a problem.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.core.problem import Problem
from pymc_pacauc.core.scores import GaussianPrior, LinearScores
from pymc_pacauc.smc.gaussian_fit import standard_fit
from pymc_pacauc.smc.paths import Path, Population

__all__ = ["FeaturePath", "feature_problem"]

FloatArray = NDArray[np.float64]


def feature_problem(problem: Problem) -> Problem:
    """The same posterior, of the reduced coefficients u ~ N(0, I_r)."""
    space = problem.scores.reduced
    r = space.dimension
    scores = LinearScores(space.design, space.offset, GaussianPrior(np.zeros(r), np.ones(r)))
    return replace(problem, scores=scores)


@dataclass(frozen=True, eq=False)
class FeaturePath:
    """``inner``, a path of the features' coefficients, as a path to the posterior of all coefficients."""

    problem: Problem
    inner: Path

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "inner":  # while it is being copied or unpickled
            raise AttributeError(name)
        return getattr(self.inner, name)

    @property
    def coefficients(self) -> int:
        return self.problem.d

    def finish(self, population: Population, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        u, risk = self.inner.finish(population, rng)
        return self.problem.scores.complete(u, rng), risk

    def log_density(self, theta: FloatArray, risk: FloatArray) -> tuple[FloatArray, FloatArray]:
        prior = self.problem.prior
        log_prior = standard_fit(self.problem.d).logp(prior.whiten(theta)) - prior.log_volume
        return log_prior - self.inner.gamma * risk, -risk

    def bridge(self, mean: FloatArray, covariance: FloatArray) -> Path:
        scores = self.problem.scores
        assert scores.reduced.rotation is not None
        to_u = scores.prior.unwhiten_rows(scores.reduced.rotation)
        inner = self.inner.bridge(to_u @ (mean - scores.prior.mean), to_u @ covariance @ to_u.T)
        return cast("Path", FeaturePath(self.problem, inner))
