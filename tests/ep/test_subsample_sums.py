"""Sums of sites over subsampled pairs, against sums over all of them."""

from dataclasses import replace

import numpy as np
import pytest

from pymc_pacauc.comparison.kinds import label_comparison
from pymc_pacauc.comparison.subsample import sample_pairs
from pymc_pacauc.ep.posterior import natural_gaussian
from pymc_pacauc.ep.sites import SiteTable
from pymc_pacauc.ep.subsample import _spread, newton_step
from pymc_pacauc.ep.subsample_sums import _list_columns, sampled_sums
from pymc_pacauc.ep.sweep import sweep_sums
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem.problem import linear_gaussian_problem
from tests.ep.test_subsample import N, comparisons, data, some_q


@pytest.mark.parametrize("kind", comparisons())
@pytest.mark.parametrize(("offset", "d"), [(False, 3), (True, 3), (True, 40)])
def test_one_group_is_every_pair(kind, offset, d):
    X, _ = data(d=d)
    given = np.random.default_rng(3).normal(size=N) if offset else 0.0
    problem = linear_gaussian_problem(X, comparisons()[kind], gamma=300.0, offset=given)
    q, table = some_q(problem), SiteTable(problem.gamma_per_pair, 1.0)
    one = sample_pairs(problem.pairs, X[:, 0], 1, np.random.default_rng(0))
    assert one.n_pairs == problem.pairs.n_pairs
    assert kind == "rare positives" or one.sampled, "nothing went through the band"
    found, exact = sampled_sums(problem, q, one, table), sweep_sums(problem, q, problem.pairs, table)
    scale = np.abs(exact.precision).max()
    np.testing.assert_allclose(found.precision, exact.precision, atol=1e-6 * scale)
    np.testing.assert_allclose(found.shift, exact.shift, atol=1e-6 * np.abs(exact.shift).max())
    assert found.wrong == pytest.approx(exact.wrong, rel=1e-6)
    assert found.log_constant == pytest.approx(exact.log_constant, rel=1e-6)


@pytest.mark.parametrize(("d", "ties"), [(3, "half"), (40, "half"), (3, "strict")])
def test_broad_rows_and_equal_rows_are_all_found(d, ties):
    X, y = data(d=d)
    X[::50] *= 200.0  # scores of which q knows little
    X[1::10] = X[0]  # rows that tie, of both classes
    problem = linear_gaussian_problem(X, y, gamma=300.0, ties=ties)
    q, table = some_q(problem, 0.02), SiteTable(problem.gamma_per_pair, 1.0)
    one = sample_pairs(problem.pairs, X[:, 0], 1, np.random.default_rng(0))
    found, exact = sampled_sums(problem, q, one, table), sweep_sums(problem, q, problem.pairs, table)
    np.testing.assert_allclose(found.precision, exact.precision, atol=1e-6 * np.abs(exact.precision).max())
    assert found.log_constant == pytest.approx(exact.log_constant, rel=1e-6)
    assert found.tied == exact.tied > 0


@pytest.mark.parametrize("weighted", [False, True])
def test_sites_beyond_the_table_are_those_of_their_own_rows(weighted):
    """With gamma' = 2 every pair is listed, and taken one by one: i and j are found in every run of rows."""
    X, y = data()
    weights = np.random.default_rng(5).uniform(0.9, 1.1, N) if weighted else None
    pairs = label_comparison(y, weights=weights)
    problem = linear_gaussian_problem(X, pairs, gamma=2.0 * pairs.total_weight)
    q, table = some_q(problem), SiteTable(problem.gamma_per_pair, 1.0)
    one = sample_pairs(problem.pairs, X[:, 0], 1, np.random.default_rng(0))
    assert one.sampled
    found, exact = sampled_sums(problem, q, one, table), sweep_sums(problem, q, problem.pairs, table)
    np.testing.assert_allclose(found.precision, exact.precision, atol=1e-6 * np.abs(exact.precision).max())
    np.testing.assert_allclose(found.shift, exact.shift, atol=1e-6 * np.abs(exact.shift).max())


def test_far_pairs_are_stood_for_by_some_of_them():
    """With one far pair in eight looked at, sums are those of every pair on average, and nearly as good each time."""
    X, y = data(4000, seed=5)
    problem = linear_gaussian_problem(X, y, gamma=4000.0)
    q, table = fit(problem).posterior.natural, SiteTable(problem.gamma_per_pair, 1.0)
    exact = sweep_sums(problem, q, problem.pairs, table)
    score, rng = X @ q.mean, np.random.default_rng(3)
    spread = np.full(
        4000, np.median(np.linalg.norm(X @ q.root - np.outer(score, score @ X @ q.root) / (score @ score), axis=1))
    )

    def summary(sums):
        step = newton_step(q, replace(sums, precision=sums.precision + np.eye(3)), True)
        return np.array([*(q.factor.T @ step), sums.wrong])

    found = {}
    for known in (None, spread):
        subsamples = [sample_pairs(problem.pairs, score, 5, rng, known) for _ in range(60)]
        assert {block.every for each in subsamples for block in each.sampled} == {1 if known is None else 8}
        found[known is None] = np.array([summary(sampled_sums(problem, q, each, table)) for each in subsamples])
    expected = summary(exact)
    assert (np.abs(found[False].mean(axis=0) - expected) < 4.0 * found[False].std(axis=0) / np.sqrt(60)).all()
    assert (found[False].std(axis=0) < 2.0 * found[True].std(axis=0)).all()


@pytest.mark.parametrize("case", ["few positives", "forbidden pairs", "large sites", "weights"])
def test_sums_at_a_fixed_q_are_unbiased_whatever_the_sites(case):
    """Sites beyond the table, wrong pairs that are all but forbidden, and uneven weights, among far pairs too."""
    rng = np.random.default_rng(4)
    n, groups = (8000, 2) if case in ("few positives", "forbidden pairs") else (3000, 8)
    X = rng.normal(size=(n, 4))
    score = X[:, 0] + 0.5 * X[:, 1] + rng.logistic(size=n)
    y = score > (np.sort(score)[-21] if groups == 2 else 0.0)
    largest = {"few positives": 2.5, "forbidden pairs": 45.0, "large sites": 1.0, "weights": 20.0}[case]
    weights = np.exp(rng.normal(size=n)) if case == "weights" else np.ones(n)
    pairs = label_comparison(y, weights=weights)
    gamma = largest / (weights[y].max() * weights[~y].max()) * pairs.total_weight
    problem = linear_gaussian_problem(X, pairs, gamma=gamma)
    space, width = problem.scores.reduced, 0.02
    q = natural_gaussian(np.eye(4) / width**2, np.array([1.0, 0.5, 0.0, 0.1]) / width**2)
    score = space.design @ q.mean
    table = SiteTable(problem.gamma_per_pair)

    def summary(sums):
        return np.array([sums.log_constant, sums.wrong, sums.shift @ q.mean, np.trace(sums.precision)])

    subsamples = [sample_pairs(problem.pairs, score, groups, rng, _spread(space.design, score, q)) for _ in range(25)]
    assert min(block.every for each in subsamples for block in each.sampled) > 1
    found = np.array([summary(sampled_sums(problem, q, each, table)) for each in subsamples])
    bias = found.mean(axis=0) - summary(sweep_sums(problem, q, problem.pairs, table))
    assert (np.abs(bias) < 3.0 * found.std(axis=0, ddof=1) / 5.0).all()


def test_rows_that_almost_coincide_do_not_cancel():
    """Differences of 1e-6 of the rows: of their variances, squares subtracted leave two or three digits."""
    X, y = data()
    X[1::10] = 1e4 * X[0] + 1e-2 * X[1::10]
    problem = linear_gaussian_problem(X, y, gamma=300.0)
    q, table = some_q(problem), SiteTable(problem.gamma_per_pair, 1.0)
    one = sample_pairs(problem.pairs, X[:, 0], 1, np.random.default_rng(0))
    found, exact = sampled_sums(problem, q, one, table), sweep_sums(problem, q, problem.pairs, table)
    np.testing.assert_allclose(found.precision, exact.precision, atol=1e-6 * np.abs(exact.precision).max())
    assert found.wrong == pytest.approx(exact.wrong, rel=1e-6)


@pytest.mark.parametrize(("place", "near"), [(0.0, True), (1.0, True), (1.1, False)])
def test_runs_that_touch_are_near(place, near):
    """So that each pair is counted once, whatever the share of far pairs that is listed."""
    one, other = np.array([[0.0, 1.0, -1.0, 1.0]]), np.array([[place, 2.0, -1.0, 1.0]])
    columns, begin, weight = np.empty(2, dtype=np.intp), np.zeros(3, dtype=np.intp), np.ones(1)
    wrong = _list_columns(one, weight, other, weight, 4, 0, 1, columns, begin)
    assert begin.tolist() == ([0, 1, 1] if near else [0, 0, 1])
    assert wrong == (0.0 if near else 1.0 - 4)
