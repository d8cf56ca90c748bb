"""The rule that chooses gamma, piece by piece, against what its docstrings say."""

from dataclasses import replace

import numpy as np
import pytest

from pymc_pacauc.comparison.kinds import label_comparison
from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.comparison.sizes import RowShares, row_shares
from pymc_pacauc.ep.plan import choose_plan
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.tune import gamma as tuned
from pymc_pacauc.tune.gamma import (
    Candidate,
    assign_folds,
    certificate_gammas,
    choose_among,
    choose_gamma,
    content_order,
    gamma_grid,
    held_out,
    leave_out_folds,
    paired_errors,
    pairs_of_few,
    weighted_gamma,
)


def some_problem(n=60, d=2, seed=1, weights=None):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = X[:, 0] + rng.normal(size=n) > 0.0
    return linear_gaussian_problem(X, label_comparison(y, weights=weights), gamma=1.0)


def candidate(gamma, auc, change=0.0):
    auc = np.atleast_2d(np.asarray(auc, dtype=float))
    return Candidate(gamma, auc, auc, change)


# -- rows ------------------------------------------------------------------------------------------------------------


def test_the_order_of_rows_is_their_own():
    rows = np.random.default_rng(1).normal(size=(30, 4))
    shuffled = np.random.default_rng(2).permutation(30)
    np.testing.assert_array_equal(rows[content_order(rows)], rows[shuffled][content_order(rows[shuffled])])


def sides_of(pairs):
    [block] = pairs.blocks
    return block.positive.size, block.negative.size


@pytest.mark.parametrize(
    ("positives", "negatives", "rows", "expected"),
    [
        (1000, 3000, 200, (100, 100)),  # half of each side
        (50, 3000, 200, (50, 200)),  # all of a small side, and so many of the other that pairs are as many
        (100, 3000, 200, (100, 100)),
        (2, 3000, 200, (2, 800)),  # but four times the rows at most
        (3000, 50, 200, (200, 50)),
        (100, 100, 200, (100, 100)),  # no more rows than asked for: all
    ],
)
def test_pairs_of_few_rows(positives, negatives, rows, expected):
    y = np.arange(positives + negatives) < positives
    order = np.arange(y.size)
    found = pairs_of_few(bipartite(y), rows, order)
    assert sides_of(found) == expected
    [block] = found.blocks
    assert y[block.positive].all()
    assert not y[block.negative].any()
    again = pairs_of_few(bipartite(y), rows, order)
    np.testing.assert_array_equal(block.positive, again.blocks[0].positive)


def test_no_more_rows_than_asked_for_are_left_as_they_are():
    pairs = bipartite(np.arange(10) < 4)
    assert pairs_of_few(pairs, 10, np.arange(10)) is pairs
    assert pairs_of_few(pairs, 9, np.arange(10)) is not pairs


def test_which_rows_are_few_depends_on_their_order_alone():
    y = np.arange(400) < 150
    order = np.random.default_rng(3).permutation(400)
    plain = pairs_of_few(bipartite(y), 60, order).blocks[0]
    moved = pairs_of_few(bipartite(y[order]), 60, np.arange(400)).blocks[0]  # row i is row order[i]
    np.testing.assert_array_equal(np.sort(order[moved.positive]), np.sort(plain.positive))
    np.testing.assert_array_equal(np.sort(order[moved.negative]), np.sort(plain.negative))


@pytest.mark.parametrize(
    ("n", "repeats"),
    [(40, 4), (240, 3), (244, 3), (360, 2), (4000, 2)],  # 180 over n / 4, upwards, from 2 to 4
)
def test_so_many_assignments(n, repeats):
    assigned = assign_folds(bipartite(np.arange(n) % 2), 3)
    assert assigned.shape == (repeats, n)
    assert set(assigned[0]) == {0, 1, 2}
    assert (assigned[0] != assigned[1]).any()
    np.testing.assert_array_equal(assigned, assign_folds(bipartite(np.arange(n) % 2), 3))


# -- what is measured ------------------------------------------------------------------------------------------------


def test_a_candidate_whose_folds_still_move_is_not_relied_on():
    assert candidate(1.0, [0.5, 0.6], change=0.49).reliable
    assert not candidate(1.0, [0.5, 0.6], change=0.5).reliable


@pytest.mark.parametrize("weights", [None, np.random.default_rng(2).gamma(4.0, size=60)])
def test_held_out_aucs_are_those_of_refits(weights):
    """Each fold's own posterior, in every assignment, whatever the threads; the change is that of the worst fold."""
    problem = some_problem(weights=weights)
    assigned = np.array([np.arange(60) % 3, np.arange(60) // 20])
    plan = choose_plan(problem)
    assert (plan.folds == "paths") == (weights is None)
    start = fit(replace(problem, gamma=10.0), n_jobs=1)
    folds = leave_out_folds(problem, assigned, plan, start)
    options = {"gamma": 20.0, "sweeps": 200, "tolerance": 1e-7}
    found = held_out(folds, n_jobs=1, **options)
    assert found.gamma == 20.0
    assert 0.0 <= found.change <= 1e-7
    for repeat, fold in enumerate(assigned):
        for k in range(3):
            stay = replace(problem, pairs=problem.pairs.among(fold != k), gamma=20.0)
            out = replace(problem, pairs=problem.pairs.among(fold == k))
            mean = fit(stay, n_jobs=1, tolerance=1e-8).posterior.mean
            assert found.auc[repeat, k] == pytest.approx(1.0 - out.risk(mean[None])[0], abs=1e-9)
    two = held_out(folds, n_jobs=2, **options)
    np.testing.assert_array_equal(two.auc, found.auc)
    np.testing.assert_array_equal(two.expected_auc, found.expected_auc)
    assert (found.expected_auc != found.auc).any()
    folds = leave_out_folds(problem, assigned, plan, start)  # paths remember where they were
    assert held_out(folds, n_jobs=1, gamma=20.0, sweeps=1, tolerance=1e-7).change > 1e-7


def test_paired_errors_by_hand():
    """Standard errors of differences: over the folds of an assignment, averaged over assignments."""
    values = np.random.default_rng(1).random((3, 2, 5))
    values[2] = values[1]  # of two that tie the last one counts
    values[1:] += 1.0
    errors = paired_errors(values)
    assert errors.best == 2
    difference = values[2] - values[0]
    assert errors.loss[0] == pytest.approx(difference.mean())
    variance = np.mean([np.var(each, ddof=1) / 5 for each in difference])
    assert errors.se[0] == pytest.approx(np.sqrt(variance))
    np.testing.assert_array_equal(errors.loss[1:], 0.0)
    np.testing.assert_array_equal(errors.se[1:], 0.0)
    np.testing.assert_array_equal(errors.within, [False, True, True])


# -- the rule --------------------------------------------------------------------------------------------------------


def test_the_grid():
    """A quarter of the size, the size, 4 and 16 times it, as far as there are pairs."""
    np.testing.assert_allclose(gamma_grid(RowShares(0.1, 0.1, 1e-3)), [1.25, 5.0, 20.0, 80.0])
    np.testing.assert_allclose(gamma_grid(RowShares(0.125, 0.125, 1.0 / 64.0)), [1.0, 4.0, 16.0, 64.0])
    np.testing.assert_allclose(gamma_grid(RowShares(0.125, 0.125, 1.0 / 63.0)), [1.0, 4.0, 16.0])
    np.testing.assert_array_equal(gamma_grid(RowShares(0.5, 0.5, 0.25), [5.0, 2.0, 5.0]), [2.0, 5.0])
    np.testing.assert_array_equal(gamma_grid(RowShares(0.5, 0.5, 0.25), 7.0), [7.0])
    with pytest.raises(ValueError, match="gammas is empty"):
        gamma_grid(RowShares(0.5, 0.5, 0.25), [])
    with pytest.raises(ValueError, match="gamma must be"):
        gamma_grid(RowShares(0.5, 0.5, 0.25), [1.0, 0.0])


def test_the_mean_gamma_by_hand():
    """exp(-z^2) times a log-normal prior about twice the size with standard deviation 2."""
    rng = np.random.default_rng(1)
    aucs = 0.7 + 0.02 * rng.normal(size=(3, 2, 5))
    gammas = np.array([2.0, 10.0, 90.0])
    errors = paired_errors(aucs)
    assert (errors.loss[np.arange(3) != errors.best] > 0.0).all()
    z = np.array([0.0 if k == errors.best else errors.loss[k] / errors.se[k] for k in range(3)])
    weights = np.exp(-(z**2) - np.log(gammas / 8.0) ** 2 / 8.0)
    expected = np.exp(weights @ np.log(gammas) / weights.sum())
    found = [Candidate(gamma, auc, auc, 0.0) for gamma, auc in zip(gammas, aucs, strict=True)]
    assert weighted_gamma(found, 4.0) == pytest.approx(expected, rel=1e-12)
    moving = Candidate(1000.0, aucs[0] + 0.1, aucs[0], 1.0)
    assert weighted_gamma([*found, moving], 4.0) == pytest.approx(expected, rel=1e-12)  # it is not relied on,
    assert weighted_gamma([moving], 4.0) == pytest.approx(1000.0)  # unless there is no other


def test_aucs_without_noise_decide_alone():
    """Standard errors of zero: behind by anything is behind for certain; alike is alike, and the prior decides."""
    behind = [candidate(1.0, [0.5, 0.5]), candidate(100.0, [0.75, 0.75])]
    assert weighted_gamma(behind, 4.0) == pytest.approx(100.0)
    alike = [candidate(2.0, [0.5, 0.5]), candidate(32.0, [0.5, 0.5])]
    assert weighted_gamma(alike, 4.0) == pytest.approx(8.0)  # as far from twice the size on both sides


def looked_at(best, gammas=None, change=lambda gamma: 0.0, n=40):
    """What the search looks at, of folds that prefer gammas near ``best``; two classes of 20: size 10, 400 pairs."""
    seen = []
    noise = 0.001 * np.random.default_rng(1).normal(size=(4, 2, 5))

    def evaluate(gamma):
        seen.append(gamma)
        auc = 0.8 - 0.1 * abs(np.log(gamma / best)) + noise[len(seen) % 4]
        return Candidate(gamma, auc, auc, change(gamma))

    candidates, chosen = choose_among(evaluate, gammas, bipartite(np.arange(n) % 2))
    return seen, candidates, chosen


def test_the_grid_goes_on_while_its_last_gamma_is_best():
    seen, candidates, chosen = looked_at(best=10.0)
    assert seen[:-1] == pytest.approx([2.5, 10.0, 40.0, 160.0])
    assert candidates[chosen].gamma == seen[-1] == pytest.approx(10.0, rel=0.01)
    assert [each.gamma for each in candidates] == sorted(seen)
    seen, candidates, _ = looked_at(best=1e6, n=400)  # size 100, 40 000 pairs
    assert seen[:-1] == pytest.approx([25.0, 100.0, 400.0, 1600.0, 6400.0, 25600.0])
    seen, *_ = looked_at(best=1e6)  # 640 would be beyond 400 pairs
    assert seen[:-1] == pytest.approx([2.5, 10.0, 40.0, 160.0])
    seen, *_ = looked_at(best=1e6, n=400, change=lambda gamma: float(gamma > 1000.0))
    assert seen[:-1] == pytest.approx([25.0, 100.0, 400.0, 1600.0])  # whose folds cannot be relied on


def test_the_grid_goes_on_up_to_the_number_of_pairs():
    """Two classes of 128: size 64, 16 384 pairs, which are 4 times 4096."""
    seen, *_ = looked_at(best=1e6, n=256)
    assert seen[:-1] == pytest.approx([16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0])


def test_of_given_gammas_the_nearest_is_chosen():
    seen, candidates, chosen = looked_at(best=10.0, gammas=[100.0, 8.0, 3.0])
    assert seen == [3.0, 8.0, 100.0]
    assert [each.gamma for each in candidates] == seen
    assert chosen == 1


def test_choosing_on_some_rows():
    """By the pairs given, in folds of these rows; gamma grows with the size, and rows that did not choose have -1."""
    problem, seen = some_problem(n=80), []
    some = problem.pairs.among(np.arange(80) < 40)
    choice = choose_gamma(problem, folds=3, tuning=some, n_jobs=1, callback=seen.append)
    alone = replace(problem, pairs=some).of_compared_rows()
    expected = choose_gamma(alone, folds=3, n_jobs=1)
    grown = row_shares(problem.pairs).size / row_shares(some).size
    assert [each.gamma for each in choice.candidates] == pytest.approx(
        [grown * each.gamma for each in expected.candidates]
    )
    assert choice.chosen == expected.chosen
    assert seen == list(range(1, len(choice.candidates) + 1))
    assert choice.rows == 40
    assert choice.measure == "AUC"
    assert (choice.folds[:, 40:] == -1).all()
    np.testing.assert_array_equal(choice.folds[:, :40], expected.folds)
    assert f"gamma={choice.gamma:.4g}, cross-validated AUC {choice.candidates[choice.chosen].auc.mean():.4f}" in repr(
        choice
    )


def test_many_rows_choose_by_some(monkeypatch):
    """From ``MANY_ROWS`` compared rows on; gammas that are given are compared on all."""
    problem = some_problem(n=60)
    for many, rows in ((60, 60), (59, 20)):
        monkeypatch.setattr(tuned, "MANY_ROWS", many)
        monkeypatch.setattr(tuned, "FEW_ROWS", 20)
        assert choose_gamma(problem, folds=2, n_jobs=1).rows == rows
    assert choose_gamma(problem, [5.0, 50.0], folds=2, n_jobs=1).rows == 60


def test_folds_that_are_given_and_groups():
    problem = some_problem(n=60)
    fold = np.arange(60) // 2 % 4
    np.testing.assert_array_equal(choose_gamma(problem, [5.0, 50.0], fold, n_jobs=1).folds, [fold])
    group = np.arange(60) // 3
    for assigned in choose_gamma(problem, [5.0, 50.0], 3, groups=group, n_jobs=1).folds:
        assert all(np.unique(assigned[group == each]).size == 1 for each in range(20))


def test_gammas_of_certificates():
    found = certificate_gammas(RowShares(0.05, 0.05, 1e-3))  # size 10
    assert found.size == 15
    np.testing.assert_allclose(found[[0, 4, -1]], [0.625, 2.5, 80.0])
    np.testing.assert_allclose(np.diff(np.log2(found)), 0.5)
