"""Pairs shared out to the workers of a cluster, one of which is killed: the same answers as on one machine."""

from functools import partial

import numpy as np
import pymc as pm
import pytest

import pymc_pacauc as pac
from pymc_pacauc import arrays
from pymc_pacauc.cluster import shards
from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.ep.posterior import standard_gaussian
from pymc_pacauc.model.read import problem_of
from tests.cluster.test_rounds import GAMMA, RNG, D, N, X, Y
from tests.cluster.test_rows import kill_one


def same(found, expected, tolerance=1e-10):
    found, expected = getattr(found, "fit", found), getattr(expected, "fit", expected)
    np.testing.assert_allclose(found.posterior.mean, expected.posterior.mean, atol=tolerance)
    np.testing.assert_allclose(found.posterior.covariance, expected.posterior.covariance, atol=tolerance)
    assert found.log_evidence == pytest.approx(expected.log_evidence, abs=tolerance * 1e3)
    assert found.sweeps == expected.sweeps


def problems():
    """Every kind of comparison."""
    strata, weights = np.arange(N) % 7, RNG.uniform(0.5, 2.0, N)
    levels = np.digitize(X[:, 0] + RNG.logistic(size=N), [-1.0, 1.0])
    times = RNG.exponential(np.exp(-X[:, 0]))
    yield "two classes", bipartite(Y)
    yield "strata and weights", arrays.label_comparison(Y, strata=strata, weights=weights)
    yield "ordered", arrays.label_comparison(levels, ordered=True)
    yield "censored", arrays.concordance(times, RNG.uniform(size=N) < 0.7)
    yield "competing", arrays.concordance(times, RNG.integers(0, 3, N), cause=2)
    yield "horizon", arrays.concordance(times, RNG.integers(0, 3, N), horizon=1.0)
    yield "entry times", arrays.concordance(times, RNG.uniform(size=N) < 0.7, entry=times * RNG.uniform(size=N))


def problem_of_classes():
    """Unordered classes in a PyMC model, a score each."""
    with pm.Model() as model:
        scores = X @ pm.Normal("W", shape=(D, 3))
        pac.AUCPotential("m", scores, np.arange(N) % 3, gamma=GAMMA, multi_class="ovo")
    return problem_of(model).problem


def sums_of(shard, q, whole):
    """Those of the shard's pairs, at the gamma per pair of all."""
    return shards.sums(shard, precision=q.precision, shift=q.shift, gamma=whole.gamma_per_pair)


def test_tied_pairs_of_all_shards_are_counted():
    """Equal rows are the first of each class, of which the last shard has none."""
    Z = np.random.default_rng(3).normal(size=(40, 2))
    Z[:4] = Z[20:25:2][[0, 0, 1, 2]]
    problem = arrays.linear_gaussian_problem(Z, np.arange(40) < 20, GAMMA)
    q = standard_gaussian(2)
    parts = [sums_of(shard, q, problem) for shard in shards.shards(problem, 4)]
    assert [part.tied for part in parts] == [4, 0, 0, 0]
    assert shards.add_up(parts).tied == 4


@pytest.mark.parametrize(("kind", "compared"), [*problems(), ("classes", None)])
def test_shards_add_up_to_the_whole(kind, compared):
    """Without a cluster: every pair is in one shard, whatever their number."""
    if kind == "classes":
        problem = problem_of_classes()
    else:
        problem = arrays.linear_gaussian_problem(X, compared, GAMMA, offset=0.1 * X[:, 1])
    q = arrays.fit(problem, max_sweeps=2, tolerance=1.0).posterior.natural
    found = [shards.add_up([sums_of(s, q, problem) for s in shards.shards(problem, count)]) for count in (1, 3, 16)]
    for sums in found[1:]:
        np.testing.assert_allclose(sums.precision, found[0].precision, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(sums.shift, found[0].shift, rtol=1e-9, atol=1e-9)
        assert sums.wrong == pytest.approx(found[0].wrong, rel=1e-10)
        assert sums.log_constant == pytest.approx(found[0].log_constant, rel=1e-9)


def test_a_worker_killed_in_mid_fit_changes_nothing(client):
    with pm.Model():
        theta = pm.Normal("theta", size=D)
        pac.AUCPotential("auc", X @ theta, Y, gamma=GAMMA)
        alone = pm.fit(method=pac.EP(pairs="all"), progressbar=False)
        shared = pm.fit(method=pac.EP(client=client), progressbar=False)
    same(shared, alone)
    survived = arrays.fit(alone.fit.problem, client=client, callback=partial(kill_one, client))
    same(survived, alone)
    same(arrays.fit(alone.fit.problem, "vb", client=client), arrays.fit(alone.fit.problem, "vb", pairs="all"))


@pytest.mark.slow
def test_many_coefficients(client):
    """They begin with a fit to few directions, which is made here; the rest on the workers."""
    wide = np.random.default_rng(6).standard_normal((300, 140))
    problem = arrays.linear_gaussian_problem(wide, wide[:, 0] > 0.3, gamma=300.0)
    same(arrays.fit(problem, client=client), arrays.fit(problem), tolerance=1e-8)
