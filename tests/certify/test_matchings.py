"""Averages over matchings against all permutations, one by one, and bounds against exact probabilities of data sets."""

from itertools import permutations, product
from math import comb, exp, log, sqrt

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.stats import binom, norm

from pymc_pacauc.certify import matchings as module
from pymc_pacauc.certify.bounds import catoni_bound, matching_bound
from pymc_pacauc.certify.matchings import holdout_bound, matching_groups, matching_rate


def mean_by_enumeration(pos, neg, beta):
    """Over all matchings, a tie being wrong with probability one half."""

    def factor(difference):
        return exp(-beta) if difference < 0 else 0.5 + 0.5 * exp(-beta) if difference == 0 else 1.0

    rows, columns = (pos, neg) if len(pos) <= len(neg) else (-neg, -pos)
    return np.mean(
        [
            np.prod([factor(r - c) for r, c in zip(rows, chosen, strict=True)])
            for chosen in permutations(columns, len(rows))
        ]
    )


@pytest.mark.parametrize(("n_pos", "n_neg"), [(1, 4), (4, 1), (3, 3), (3, 6), (6, 3), (5, 5)])
@pytest.mark.parametrize("values", [1, 2, 4, 1000])
def test_the_mean_over_all_matchings(n_pos, n_neg, values):
    rng = np.random.default_rng([n_pos, n_neg, values])
    positive = rng.permutation(np.arange(n_pos + n_neg) < n_pos)
    scores = rng.integers(0, values, size=positive.size).astype(float)
    found = matching_groups(positive).of(scores)
    pos, neg = scores[positive], scores[~positive]
    for beta in (0.1, 1.0, 6.0):
        assert found.log_moment(beta) == pytest.approx(log(mean_by_enumeration(pos, neg, beta)), rel=1e-10, abs=1e-12)
    risk = np.mean(0.5 - 0.5 * np.sign(pos[:, None] - neg))
    assert found.mean_wrong == pytest.approx(min(n_pos, n_neg) * risk, abs=1e-12)


class AllDataSets:
    """Every data set of a score with few values, and its probability where classes have those given."""

    def __init__(self, n_pos, n_neg, values):
        self.positive = np.arange(n_pos + n_neg) < n_pos
        self.data = np.array(list(product(range(values), repeat=n_pos + n_neg)), dtype=float)
        self.counts = [
            np.stack([(self.data[:, rows] == v).sum(axis=1) for v in range(values)], axis=1)
            for rows in (self.positive, ~self.positive)
        ]
        grouping = matching_groups(self.positive)
        self.matchings = [grouping.of(one) for one in self.data]

    def probabilities(self, p, q):
        return np.prod(p ** self.counts[0], axis=1) * np.prod(q ** self.counts[1], axis=1)


def auc_of(p, q):
    return sum(a * b * (0.5 + 0.5 * np.sign(i - j)) for i, a in enumerate(p) for j, b in enumerate(q))


@pytest.mark.parametrize("largest_group", [1000, 2])
@pytest.mark.parametrize(("n_pos", "n_neg"), [(2, 3), (4, 3)])
def test_the_moment_has_the_expectation_of_a_binomial(n_pos, n_neg, largest_group, monkeypatch):
    monkeypatch.setattr(module, "LARGEST_GROUP", largest_group)
    every, m, beta = AllDataSets(n_pos, n_neg, 3), min(n_pos, n_neg), 0.7
    moments = np.exp([each.log_moment(beta) for each in every.matchings])
    for p, q in np.random.default_rng(1).dirichlet([0.7] * 3, size=(20, 2)):
        expected = (1 - (1 - exp(-beta)) * (1 - auc_of(p, q))) ** m
        assert every.probabilities(p, q) @ moments == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("n_pos", "n_neg", "values"), [(3, 4, 3), (5, 6, 2), (2, 4, 3)])
def test_a_fixed_score_fails_with_probability_epsilon_at_most(n_pos, n_neg, values):
    """Exactly, over all data sets, whatever the distributions of the two classes."""
    every = AllDataSets(n_pos, n_neg, values)
    for epsilon in (0.05, 0.3, 0.7):
        bounds = np.array([holdout_bound(each, n_pos, n_neg, epsilon) for each in every.matchings])
        failures = []
        for p, q in np.random.default_rng(2).dirichlet([0.5] * values, size=(200, 2)):
            failures.append(every.probabilities(p, q)[bounds > auc_of(p, q)].sum())
        assert max(failures) <= epsilon
        assert max(failures) > 0.1 * epsilon  # a bound and not a platitude


def test_a_posterior_fails_with_probability_epsilon_at_most():
    """Of all posteriors over a score and its reverse, prior one half each, the worst one on every data set."""
    every, m, rate = AllDataSets(4, 3, 2), 3, 8.0
    share = np.linspace(0.0, 1.0, 41)
    divergence = log(2) + sum(t * np.log(np.where(t > 0, t, 1.0)) for t in (share, 1 - share))
    ways = [every.matchings, [matching_groups(every.positive).of(-one) for one in every.data]]
    moments = np.array([[each.log_moment(rate / m) for each in way] for way in ways])
    means = np.outer(moments[0], share) + np.outer(moments[1], 1 - share)

    def failures(paid, epsilon):
        bound = np.vectorize(lambda mean, kl: matching_bound(mean, kl, m, epsilon, rate=rate))(means, paid)
        for p, q in np.random.default_rng(3).dirichlet([0.3] * 2, size=(100, 2)):
            risk = share * (1 - auc_of(p, q)) + (1 - share) * auc_of(p, q)
            yield every.probabilities(p, q)[(bound < risk - 1e-12).any(axis=1)].sum()

    for epsilon in (0.1, 0.5, 0.9):
        assert 0.1 * epsilon < max(failures(divergence, epsilon)) <= epsilon
    assert max(failures(0.0 * divergence, 0.9)) > 0.9  # what not paying for the choice would do


def test_a_constant_score_is_not_better_than_chance():
    for n_pos, n_neg in product((1, 2, 5, 12, 25), (1, 3, 8, 25)):
        grouping = matching_groups(np.arange(n_pos + n_neg) < n_pos)
        for epsilon in (0.05, 0.2, 0.9):
            assert holdout_bound(grouping.of(np.zeros(n_pos + n_neg)), n_pos, n_neg, epsilon) <= 0.5


def test_never_worse_than_hoeffdings_decomposition_and_groups_lose_little(monkeypatch):
    rng = np.random.default_rng(1)
    positive = np.arange(900) < 300
    scores = rng.normal(size=900) + 1.5 * positive
    risk = np.mean(scores[positive][:, None] < scores[~positive])
    rate = matching_rate(300, 600, 5.0)
    whole = matching_bound(matching_groups(positive).of(scores).log_moment(rate / 300), 5.0, 300, rate=rate)
    assert whole < catoni_bound(risk, 5.0, 300, rate=rate) - 0.02
    monkeypatch.setattr(module, "LARGEST_GROUP", 100)
    grouped = matching_groups(positive)
    assert len(grouped.groups) == 3
    assert sum(min(positive[g].sum(), (~positive[g]).sum()) for g in grouped.groups) == 300
    assert matching_bound(grouped.of(scores).log_moment(rate / 300), 5.0, 300, rate=rate) == pytest.approx(
        whole, abs=0.01
    )


@pytest.mark.parametrize("n_neg", [1000, 1001, 2999])
@pytest.mark.parametrize("n_pos", [999, 1000, 1001, 2000, 2001])
def test_every_row_of_the_smaller_class_is_matched(n_pos, n_neg):
    grouping = matching_groups(np.arange(n_pos + n_neg) < n_pos)
    assert np.array_equal(np.sort(np.concatenate(grouping.groups)), np.arange(n_pos + n_neg))
    smaller = grouping.positive if n_pos <= n_neg else ~grouping.positive
    assert all(smaller[g].sum() <= (~smaller[g]).sum() for g in grouping.groups)
    assert max(smaller[g].sum() for g in grouping.groups) <= 1000


def test_coefficients_of_separated_and_of_tied_classes():
    positive = np.arange(3000) < 1000
    grouping = matching_groups(positive)
    [c] = grouping.of(positive.astype(float)).log_coefficients
    assert np.isfinite(c).all()
    assert c[[1, 500, 1000]] == pytest.approx([log(1000), log(comb(1000, 500)), 0.0], rel=1e-10, abs=1e-9)
    [tied] = grouping.of(np.zeros(3000)).log_coefficients  # coins alone decide: H is binomial(1000, 1/2)
    assert tied == pytest.approx(c - np.arange(1001) * log(2), abs=1e-9)


@pytest.mark.parametrize("auc", [0.6, 0.9, 0.99])
def test_one_pair_a_matching_is_a_binomial_bound(auc):
    """With separable cells: positives compared with one negative value each, the exact probability of failure."""
    n, epsilon = 25, 0.05
    positive = np.arange(2 * n) < n
    grouping = matching_groups(positive)
    failed = 0.0
    for wrong in range(n + 1):  # the positives are below or above all negatives: W is the same in every matching
        scores = np.where(positive, np.where(np.arange(2 * n) < wrong, -1.0, 1.0), 0.0)
        bound = holdout_bound(grouping.of(scores), n, n, epsilon)
        failed += binom.pmf(wrong, n, 1 - auc) * (bound > auc)
    assert failed <= epsilon


# -- rates -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("auc", [0.5, 0.7, 0.85, 0.99])
def test_the_variance_of_a_rows_share_of_right_pairs(auc):
    """By quadrature: a row of a normal class is right with a share Phi(x) of the other one."""
    distance = sqrt(2.0) * norm.ppf(auc)
    square, _ = quad(lambda x: norm.cdf(x) ** 2 * norm.pdf(x - distance), -12.0, 12.0, epsabs=1e-12)
    assert float(module._row_variance(np.array(auc))) == pytest.approx(square - auc**2, abs=1e-10)


@pytest.mark.parametrize(("n_pos", "n_neg"), [(100, 300), (300, 100), (400, 400)])
@pytest.mark.parametrize(("divergence", "auc"), [(0.0, 0.7), (5.0, 0.7), (3.0, 0.85)])
def test_the_rate_is_the_best_of_a_normal_variable_but_for_its_skew(n_pos, n_neg, divergence, auc):
    """The number of wrong pairs about its mean has the variance of the AUC times m^2: the bound is least there."""
    m, larger = min(n_pos, n_neg), max(n_pos, n_neg)
    distance = sqrt(2.0) * norm.ppf(auc)
    zeta = quad(lambda x: norm.cdf(x) ** 2 * norm.pdf(x - distance), -12.0, 12.0)[0] - auc**2
    budget, variance = divergence + log(20.0), m * zeta * (1.0 + m / larger)

    def excess(beta):
        """Of the bound on the mean of W, from its log moment to second order."""
        return budget / beta + 0.5 * beta * variance

    best = minimize_scalar(excess, bounds=(1e-3, 50.0), method="bounded", options={"xatol": 1e-10}).x
    found = matching_rate(n_pos, n_neg, divergence, auc=auc) / m
    assert found == pytest.approx(min(8.0, 1.2 * best), rel=1e-6)
    assert matching_rate(n_pos, n_neg, divergence, 0.01, auc=auc) / m == pytest.approx(
        min(8.0, 1.2 * sqrt(2.0 * (divergence + log(100.0)) / variance)), rel=1e-6
    )


def test_a_rate_of_certain_rankings_is_bounded():
    """Of 10 rows of each class, with an AUC near one."""
    assert matching_rate(10, 10, 20.0, auc=0.9999) == 80.0


def test_the_bound_of_a_fixed_score_takes_the_first_cell_that_is_not_excluded():
    """Cells from below, each with the rate for its middle, at least that of chance."""
    rng = np.random.default_rng(4)
    positive = np.arange(60) < 25
    for shift in (0.0, 0.7, 1.5, 4.0):
        scores = rng.normal(size=60) + shift * positive
        matchings = matching_groups(positive).of(scores)
        found, expected = holdout_bound(matchings, 25, 35, 0.1), 1.0
        for lower, upper in reversed(list(zip(module.CELLS[:-1], module.CELLS[1:], strict=True))):
            rate = matching_rate(25, 35, 0.0, 0.1, auc=max(0.5, (lower + upper) / 2))
            bound = 1.0 - matching_bound(matchings.log_moment(rate / 25), 0.0, 25, 0.1, rate=rate)
            if bound < upper:
                expected = max(lower, bound)
        assert found == expected
    assert module.CELLS[0] == 0.0
    assert module.CELLS[-1] == 1.0
    assert (np.diff(module.CELLS) > 0.0).all()
    assert (np.diff(module.CELLS[1:]) < 0.06).all()
