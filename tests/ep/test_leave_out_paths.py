"""Folds along paths of their own: their fixed points are EP's, what is cheap about them costs next to nothing, and
nothing of the rows left out goes in.
"""

import warnings
from dataclasses import replace

import numpy as np
import pytest

import pymc_pacauc as pac
from benchmarks.gamma_stability import load
from pymc_pacauc import fitting
from pymc_pacauc.comparison.censored import concordance
from pymc_pacauc.comparison.folds import comparison_folds
from pymc_pacauc.comparison.kinds import ordered_classes, stratified
from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.ep.leave_out import FoldPaths
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.ep.plan import choose_plan
from pymc_pacauc.ep.start import Reached
from pymc_pacauc.problem.problem import linear_gaussian_problem, spike_slab_problem
from pymc_pacauc.tune import gamma as search

TIGHT = {"refine": 300, "tolerance": 1e-7}


def data(n=90, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X[:, 0] - 0.5 * X[:, 1] + rng.logistic(size=n), np.arange(n) % 3


def two_classes(X, score, **options):
    return linear_gaussian_problem(X, score > 0.3, 40.0, **options)


def tied(X, score):
    X = X.round()
    X[5:9], X[50:53] = X[0], X[1]
    return two_classes(X, score)


COMPARED = {
    "two classes": two_classes,
    "prior": lambda X, score: two_classes(X, score, prior_covariance=1e6 * np.diag([1.0, 2.0, 3.0, 4.0]) + 1e5),
    "offset": lambda X, score: two_classes(X, score, offset=X[:, 2] + np.sin(score)),
    "ties": tied,
    "ordered": lambda X, score: linear_gaussian_problem(X, ordered_classes(np.digitize(score, [-1, 0, 1.5])), 40.0),
    "strata": lambda X, score: linear_gaussian_problem(
        X, stratified(bipartite(score > 0.3), np.arange(90) // 45), 40.0
    ),
    "dual": lambda X, score: two_classes(np.random.default_rng(3).normal(size=(90, 120)), score),
}


@pytest.mark.parametrize("kind", COMPARED)
@pytest.mark.parametrize("power", [1.0, 0.0], ids=["ep", "vb"])
def test_the_fixed_points_are_those_of_a_refit(kind, power):
    X, score, fold = data()
    problem = COMPARED[kind](X, score)
    assert choose_plan(problem).folds == "paths"
    paths = FoldPaths(problem, fold, power)
    fitted = fitting.fit(problem) if power else fitting.fit(problem, "vb")
    for gamma in (10.0, 60.0):
        found, exact = paths.leave_out(gamma, **TIGHT), fitted.leave_out(fold, gamma=gamma, **TIGHT)
        assert found.change.max() < 1e-7
        np.testing.assert_allclose(found.scores, exact.scores, atol=2e-4)
        np.testing.assert_allclose(found.variance, exact.variance, rtol=2e-4)
        np.testing.assert_allclose(found.group_expected_auc, exact.group_expected_auc, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pima", "simulated"])
def test_held_out_auc_is_that_of_refits(name):
    """Along gamma up to 32 times the comparison's size, beyond the usual choices, at their tolerance."""
    if name == "pima":
        X, y, _, _ = load("pima")
    else:
        rng = np.random.default_rng(1)
        X = rng.normal(size=(700, 60))
        y = X[:, :10].sum(axis=1) + rng.logistic(scale=3.0, size=700) > 0
    problem = linear_gaussian_problem(X, y, 1.0)
    size, fitted = row_shares(problem.pairs).size, fitting.fit(replace(problem, gamma=row_shares(problem.pairs).size))
    rng = np.random.default_rng(1)
    folds = [comparison_folds(problem.pairs, 5, rng) for _ in range(2)]
    paths = [FoldPaths(problem, fold) for fold in folds]
    for gamma in size * np.array([0.5, 2.0, 8.0, 32.0]):
        near = [each.leave_out(gamma, tolerance=search.FOLD_TOLERANCE) for each in paths]
        refit = [fitted.leave_out(fold, gamma=gamma, refine=200, tolerance=1e-3) for fold in folds]
        for name, most in (("group_auc", 0.002), ("group_expected_auc", 0.003)):
            error = np.mean([getattr(a, name) - getattr(b, name) for a, b in zip(near, refit, strict=True)])
            assert abs(error) < most


@pytest.mark.parametrize("name", ["pima", "spect"])
def test_the_gamma_chosen_is_that_of_refits(name):
    X, y, _, _ = load(name)
    problem = linear_gaussian_problem(X, y, 1.0)
    found = search.choose_gamma(problem)
    plan = choose_plan(problem)
    assert plan.folds == "paths"
    whole = fitting.fit(problem)
    folds = search.leave_out_folds(problem, found.folds, replace(plan, folds="removed sites"), whole)
    candidates, chosen = search.choose_among(
        lambda gamma: search.held_out(folds, gamma, sweeps=100, tolerance=1e-2), None, problem.pairs
    )
    assert 1 / 1.35 < found.gamma / candidates[chosen].gamma < 1.35


def noise(seed, n=60, d=20):
    rng = np.random.default_rng(seed)
    return linear_gaussian_problem(rng.normal(size=(n, d)), rng.permutation(np.arange(n) % 2), gamma=1.0)


@pytest.mark.parametrize("times", [16.0, 128.0])
def test_nothing_of_a_fold_is_known_to_it_however_large_gamma(times):
    """Labels are noise, so the AUC of rows left out is one half on average. On a path that went through the posterior
    of all rows, at the larger gamma, where there are many fixed points, it is not: the same test then fails.
    """
    fold, clean, leaking = np.arange(60) % 5, [], []
    for seed in range(16):
        problem = noise(seed)
        gamma = times * row_shares(problem.pairs).size
        paths = FoldPaths(problem, fold)
        paths.leave_out(0.5 * gamma, tolerance=0.3)
        clean.append(paths.leave_out(gamma, tolerance=0.3).group_auc.mean())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            q = fitting.fit(replace(problem, gamma=gamma), tolerance=1e-3).posterior.natural
        known = Reached(q, change=0.0, converged=True)
        paths = FoldPaths(problem, fold)
        for path in paths.paths.values():
            path.known[gamma] = known
        leaking.append(paths.leave_out(1.01 * gamma, tolerance=0.3).group_auc.mean())

    def z(aucs):
        return (np.mean(aucs) - 0.5) / (np.std(aucs, ddof=1) / np.sqrt(len(aucs)))

    assert abs(z(clean)) < 3
    if times > 100:
        assert z(leaking) > 4


def test_some_of_many_pairs_stand_for_all():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(1000, 20))
    problem = linear_gaussian_problem(X, X[:, :5].sum(axis=1) + rng.logistic(scale=3.0, size=1000) > 0, 1.0)
    fold, gamma = comparison_folds(problem.pairs, 5, rng), 8.0 * row_shares(problem.pairs).size
    paths = FoldPaths(problem, fold)
    for split, path in zip(paths.groups.splits, paths.paths.values(), strict=True):
        assert path.used.n_pairs < 0.6 * split.kept.n_pairs
        assert sum(times * block.total_weight for block, times in path.used.parts()) == pytest.approx(
            split.kept.total_weight, rel=1e-3
        )
    some, again = paths.leave_out(gamma), FoldPaths(problem, fold).leave_out(gamma)
    np.testing.assert_array_equal(some.scores, again.scores)
    every = FoldPaths(problem, fold, pairs_per_row=np.inf).leave_out(gamma)
    assert some.group_auc.mean() == pytest.approx(every.group_auc.mean(), abs=0.002)
    assert some.group_expected_auc.mean() == pytest.approx(every.group_expected_auc.mean(), abs=0.002)
    assert np.abs(some.scores - every.scores).max() > 1e-3


def test_the_way_along_gamma_does_not_matter_where_there_is_one_fixed_point():
    X, score, fold = data()
    problem = two_classes(X, score)
    direct, up, down = (FoldPaths(problem, fold) for _ in range(3))
    for gamma in (5.0, 20.0, 50.0):
        up.leave_out(gamma, **TIGHT)
    down.leave_out(500.0, **TIGHT)
    one, *others = (paths.leave_out(60.0, **TIGHT) for paths in (direct, up, down))
    for other in others:
        np.testing.assert_allclose(one.scores, other.scores, atol=1e-5)
    assert one.scores is not direct.leave_out(60.0, refine=1, tolerance=1e-9).scores
    np.testing.assert_array_equal(one.scores, direct.leave_out(60.0).scores)  # known


def test_what_is_left_to_others():
    X, score, fold = data()
    weighted = linear_gaussian_problem(X, bipartite(score > 0).times(np.linspace(1.0, 2.0, 90)), 40.0)
    censored = linear_gaussian_problem(X, concordance(np.exp(-score), np.arange(90) % 4 > 0), 40.0)
    spikes = spike_slab_problem(X, score > 0, 40.0, inclusion_probability=0.5, v0=0.0)
    for problem in (weighted, censored, spikes):
        assert choose_plan(problem).folds == "removed sites"
        choice = search.choose_gamma(problem, [20.0, 60.0], 3)
        assert np.isfinite([each.auc for each in choice.candidates]).all()
    with pytest.raises(ValueError, match="per pair"):
        FoldPaths(two_classes(X, score), fold).leave_out(1e6)
    assert pac.select_gamma(two_classes(X, score), [20.0], method="vb").best == 20.0
