"""Sweeps that find the mean first lead to the fixed points of EP."""

from functools import partial

import numpy as np
import pytest

from pymc_pacauc import fitting
from pymc_pacauc.comparison.kinds import label_comparison
from pymc_pacauc.ep.posterior import standard_gaussian
from pymc_pacauc.ep.sites import MOST_TABLES
from pymc_pacauc.ep.start import MeanFirst, _mean_table
from pymc_pacauc.problem.problem import linear_gaussian_problem

RNG = np.random.default_rng(4)
X = RNG.normal(size=(240, 5)) * [1.0, 1.0, 2.0, 0.5, 1.0]
SCORE = X @ [1.0, -0.5, 0.2, 0.0, 0.0] + RNG.logistic(size=240)
TIED = np.where(np.arange(240)[:, None] % 8 == 0, X[0], X)
COMPARISONS = {
    "two classes": (X, label_comparison(SCORE > 0.5), 0.0),
    "ordered": (X, label_comparison(np.digitize(SCORE, [-1.0, 1.0]), ordered=True), 0.0),
    "strata": (X, label_comparison(SCORE > 0.5, strata=np.arange(240) % 3), 0.0),
    "offset": (X, label_comparison(SCORE > 0.5), X[:, 0]),
    "equal rows": (TIED, label_comparison(SCORE > 0.5), 0.0),
}


def settled(problem, power=1.0):
    space = problem.scores.reduced
    blocks = [(block, 1.0) for block in problem.pairs.blocks]
    sweeps = MeanFirst(space.design, space.offset, blocks, power=power, scale_free=problem.scale_free)
    q = standard_gaussian(space.dimension)
    for _ in range(60):
        q, change = sweeps.sweep(q, problem.gamma_per_pair, 1e-4)
    return q, change


@pytest.mark.parametrize("kind", COMPARISONS)
@pytest.mark.parametrize("power", [1.0, 0.0])
def test_the_fixed_points_are_those_of_ep(kind, power):
    X, pairs, offset = COMPARISONS[kind]
    problem = linear_gaussian_problem(X, pairs, gamma=100.0, offset=offset)
    exact = (fitting.fit if power else partial(fitting.fit, method="vb"))(problem).posterior.natural
    q, change = settled(problem, power)
    assert change < 1e-3
    assert np.abs(exact.factor.T @ (q.mean - exact.mean)).max() < 5e-3
    np.testing.assert_allclose(q.covariance, exact.covariance, atol=5e-3 * np.abs(exact.covariance).max())


def test_pairs_of_different_weight_have_about_their_own_sites():
    weights = np.random.default_rng(1).gamma(3.0, size=240)
    problem = linear_gaussian_problem(X, label_comparison(SCORE > 0.5, weights=weights), gamma=100.0)
    exact = fitting.fit(problem).posterior.natural
    q, _ = settled(problem)
    assert np.abs(exact.factor.T @ (q.mean - exact.mean)).max() < 0.05


def test_a_pair_that_stands_for_several_counts_as_often():
    problem = linear_gaussian_problem(X, label_comparison(SCORE > 0.5), gamma=100.0)
    (block,), space = problem.pairs.blocks, problem.scores.reduced
    twice, once = (
        MeanFirst(space.design, space.offset, blocks, power=1.0, scale_free=True)
        for blocks in ([(block, 2.0)], [(block, 1.0), (block, 1.0)])
    )
    q, _ = twice.sweep(standard_gaussian(5), problem.gamma_per_pair, 1e-3)
    other, _ = once.sweep(standard_gaussian(5), problem.gamma_per_pair, 1e-3)
    np.testing.assert_allclose(q.mean, other.mean, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(q.precision, other.precision, rtol=1e-3, atol=1e-3)


def test_many_weights_share_few_tables():
    """Strata with weights are blocks that all weigh differently: their sites are nearly those of their neighbours."""
    weights = np.random.default_rng(1).gamma(3.0, size=240)
    pairs = label_comparison(SCORE > 0.5, strata=np.arange(240) // 3, weights=weights)
    assert len(pairs.blocks) > MOST_TABLES
    problem = linear_gaussian_problem(X, pairs, gamma=40.0)
    exact = fitting.fit(problem).posterior.natural
    made = _mean_table.cache_info().misses
    q, change = settled(problem)
    assert _mean_table.cache_info().misses - made <= MOST_TABLES
    assert change < 1e-3
    assert np.abs(exact.factor.T @ (q.mean - exact.mean)).max() < 0.1


def test_kernels_never_see_what_is_not_finite():
    """They look up sites by the scores, and would read memory that is not theirs."""
    problem = linear_gaussian_problem(X, COMPARISONS["two classes"][1], gamma=20.0)
    blocks = [(block, 1.0) for block in problem.pairs.blocks]
    space = problem.scores.reduced
    sweeps = MeanFirst(space.design, space.offset, blocks, power=1.0, scale_free=True)
    inverse_sd = sweeps.inverse_sd(standard_gaussian(space.dimension))
    with pytest.raises(FloatingPointError, match="overflow"):
        sweeps.force(np.full(space.dimension, np.nan), inverse_sd, 0.1)
