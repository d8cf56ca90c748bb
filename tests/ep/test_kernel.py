"""The evidence's gradient in the scores against differences of fits."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from pymc_pacauc import fitting
from pymc_pacauc.comparison.pairs import Block, Pairs, bipartite
from pymc_pacauc.ep.gaussian import carried_over
from pymc_pacauc.ep.kernel import design_gradient
from pymc_pacauc.problem.problem import linear_gaussian_problem

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((60, 4)), RNG.random(60) < 0.4
X[7], X[9] = X[3], X[5] + 1e-7  # equal rows, and nearly equal ones, in different classes or not
DIRECTION = RNG.standard_normal((60, 4))
DIRECTION[7] = DIRECTION[3]
DIRECTION[9] = DIRECTION[5]


def weighted():
    block = bipartite(Y).blocks[0]
    weights = RNG.uniform(0.5, 2.0, 60)
    few = Block(np.array([0, 1]), np.array([2, 3, 4]), weight=300.0)  # beyond the tables
    return Pairs(60, (block.times(weights), few))


@pytest.mark.parametrize("engine", [fitting.fit, partial(fitting.fit, method="vb")])
@pytest.mark.parametrize("pairs", [bipartite(Y), weighted()], ids=["plain", "weighted"])
def test_gradient_against_differences(engine, pairs):
    offset = 0.1 * np.random.default_rng(1).standard_normal(60)

    def fit(step):
        return engine(linear_gaussian_problem(X + step * DIRECTION, pairs, 40.0, offset=offset), tolerance=1e-11)

    step = 1e-4
    slope = (fit(step).log_evidence - fit(-step).log_evidence) / (2 * step)
    assert np.sum(design_gradient(fit(0.0)) * DIRECTION) == pytest.approx(slope, abs=2e-5)


def test_sites_are_carried_over_to_other_scores():
    problem = linear_gaussian_problem(X, Y, 40.0)
    fit = fitting.fit(problem, tolerance=1e-10)
    turned = linear_gaussian_problem(X @ np.linalg.qr(RNG.standard_normal((4, 4)))[0], Y, 40.0)
    start = carried_over(fit, turned)
    assert start is not None
    assert fitting.fit(turned, start=start, tolerance=1e-8).sweeps == 1
    assert carried_over(replace(fit), problem).posterior.natural.precision == pytest.approx(
        fit.posterior.natural.precision, rel=1e-7, abs=1e-7
    )
