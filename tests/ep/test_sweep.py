"""Sums of sites over all pairs, by blocks and by tiles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pymc_pacauc import fitting
from pymc_pacauc.comparison.censored import concordance
from pymc_pacauc.comparison.kinds import label_comparison
from pymc_pacauc.comparison.pairs import Block, Pairs
from pymc_pacauc.ep.posterior import natural_gaussian
from pymc_pacauc.ep.sites import SiteTable, site_functions
from pymc_pacauc.ep.sweep import cut_work, sweep_sums, tile_map
from pymc_pacauc.problem.problem import linear_gaussian_problem
from tests.ep.test_sites_weighted import data
from tests.model.test_gp import ring_data
from tests.pair_lists import listed


@pytest.mark.parametrize("weighted", [False, True])
def test_small_blocks_are_the_same_pairs(weighted):
    """Thirty blocks of a few pairs in one compiled loop, and as tiles of their own."""
    rng = np.random.default_rng(4)
    n = 150
    X = rng.standard_normal((n, 3))
    X[1] = X[0]  # a tie
    X[3] = X[2] + 1e-8  # and a near one
    y, strata = np.arange(n) % 2 == 0, np.arange(n) // 5
    pairs = label_comparison(y, strata=strata, weights=rng.gamma(1.0, size=n) if weighted else None)
    assert len(cut_work(pairs, 3)) == 1
    problem = linear_gaussian_problem(X, pairs, 60.0, offset=0.1 * rng.standard_normal(n).round(1))
    single = replace(problem, pairs=replace(pairs, blocks=pairs.blocks[:8]))
    assert len(cut_work(single.pairs, 3)) == 8
    i, j, w = listed(pairs)
    one = Pairs(n, tuple(Block(i[[k]], j[[k]], weight=float(w[k])) for k in range(i.size)))
    together, alone = fitting.fit(problem, tolerance=1e-10), fitting.fit(replace(problem, pairs=one), tolerance=1e-10)
    np.testing.assert_allclose(together.posterior.mean, alone.posterior.mean, atol=1e-9)
    np.testing.assert_allclose(together.posterior.covariance, alone.posterior.covariance, atol=1e-9)
    assert together.log_evidence == pytest.approx(alone.log_evidence, abs=1e-9)


def test_small_and_large_blocks_agree_with_tiles():
    X, score, rng = data(5, n=60)
    pairs = concordance(np.exp(-score), rng.random(60) < 0.7)
    problem = linear_gaussian_problem(X, pairs, 60.0)
    fitted = fitting.fit(problem, tolerance=1e-10)
    again = replace(pairs)
    cut_work(again, 3, small_block=0)
    again = fitting.fit(replace(problem, pairs=again), tolerance=1e-10)
    np.testing.assert_allclose(fitted.posterior.covariance, again.posterior.covariance, atol=1e-10)
    assert fitted.log_evidence == pytest.approx(again.log_evidence, abs=1e-10)
    assert fitted.expected_risk == pytest.approx(again.expected_risk, abs=1e-12)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_sweep_in_many_dimensions_is_the_sum_over_pairs(threads):
    """More rows and dimensions than a block holds; the fixed point's matrix algebra beside NumPy's."""
    X, y = ring_data(700)
    K = np.exp(-np.sqrt(np.sum((X[:, None] - X[None]) ** 2, axis=-1)))  # so rough that it has full rank
    problem = linear_gaussian_problem(np.linalg.cholesky(K), y, 700.0)
    space = problem.scores.reduced
    root = np.random.default_rng(0).standard_normal((700, 700)) / 30
    q = natural_gaussian(np.eye(700) + root @ root.T, root[0])
    covariance = np.linalg.inv(q.precision)
    np.testing.assert_allclose(q.covariance, covariance, atol=1e-10)
    np.testing.assert_allclose(q.mean, covariance @ root[0], atol=1e-10)
    table = SiteTable(700.0 / problem.pairs.n_pairs)
    with tile_map(problem.pairs.n_pairs, 700, threads) as map_tiles:
        sums = sweep_sums(problem, q, problem.pairs, table, map_tiles)
    Z, (positive, negative) = space.design, (np.flatnonzero(y == 1), np.flatnonzero(y == 0))
    C, mean = Z @ covariance @ Z.T, Z @ q.mean
    square = np.diagonal(C)
    v = square[positive, None] + square[negative] - 2 * C[np.ix_(positive, negative)]
    site = site_functions(((mean[positive, None] - mean[negative]) / np.sqrt(v)).ravel(), table.gamma)
    weights, shifts = site.precision.reshape(v.shape) / v, site.shift.reshape(v.shape) / np.sqrt(v)
    P, h = np.zeros((700, 700)), np.zeros(700)
    P[np.ix_(positive, negative)] = -weights
    P += P.T
    P[np.diag_indices(700)] = -P.sum(axis=1)
    h[positive], h[negative] = shifts.sum(axis=1), -shifts.sum(axis=0)
    np.testing.assert_allclose(sums.precision, Z.T @ P @ Z, atol=1e-8 * np.abs(Z.T @ P @ Z).max())
    np.testing.assert_allclose(sums.shift, Z.T @ h, atol=1e-8 * np.abs(Z.T @ h).max())
    assert sums.wrong == pytest.approx(site.wrong.sum())
    assert sums.log_constant == pytest.approx(site.log_constant.sum())
