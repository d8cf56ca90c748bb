"""Averages over matchings against all permutations, one by one, and bounds against exact binomial sums."""

from itertools import permutations, product
from math import comb, exp, log

import numpy as np
import pytest
from scipy.stats import binom

from pymc_pacauc.core import matchings as module
from pymc_pacauc.core.bounds import catoni_bound
from pymc_pacauc.core.matchings import deal_matchings, holdout_bound, matching_bound, matching_rate


def mean_by_enumeration(pos, neg, beta):
    rows, columns = (pos, neg) if len(pos) <= len(neg) else (neg, pos)
    sign = 1 if len(pos) <= len(neg) else -1
    values = [
        exp(-beta * sum(sign * (r - c) < 0 for r, c in zip(rows, chosen, strict=True)))
        for chosen in permutations(columns, len(rows))
    ]
    return np.mean(values)


@pytest.mark.parametrize(("n_pos", "n_neg"), [(1, 4), (4, 1), (3, 3), (3, 6), (6, 3)])
def test_the_mean_over_all_matchings(n_pos, n_neg):
    rng = np.random.default_rng(n_pos + 10 * n_neg)
    positive = np.arange(n_pos + n_neg) < n_pos
    scores = rng.normal(size=positive.size) + 0.5 * positive
    found = deal_matchings(positive).of(scores)
    for beta in (0.1, 1.0, 6.0):
        expected = mean_by_enumeration(scores[positive], scores[~positive], beta)
        assert found.log_moment(beta) == pytest.approx(log(expected), rel=1e-10)


def test_the_moment_has_the_expectation_of_a_binomial():
    """Three values of a score, so that data sets can be enumerated; ties included, where the order is random."""
    beta, deal = 0.7, deal_matchings(np.array([True, True, False, False, False]))
    p_pos, p_neg = [0.2, 0.3, 0.5], [0.5, 0.3, 0.2]
    risk = sum(p_pos[a] * p_neg[b] * (1.0 if a < b else 0.5 * (a == b)) for a in range(3) for b in range(3))
    orders = [np.random.default_rng(k).random((1, 5)) for k in range(40)]
    means = []
    for jitter in orders:  # each order is a valid bound by itself
        one = module.MatchingDeal(deal.positive, deal.groups, jitter)
        total = 0.0
        for data in product(range(3), repeat=5):
            probability = np.prod([p_pos[v] for v in data[:2]]) * np.prod([p_neg[v] for v in data[2:]])
            total += probability * exp(one.of(np.array(data, dtype=float)).log_moment(beta))
        means.append(total)
    expected = (1 - (1 - exp(-beta)) * risk) ** 2
    assert np.mean(means) == pytest.approx(expected, abs=3 * np.std(means) / np.sqrt(len(means)))


def test_never_worse_than_hoeffdings_decomposition_and_groups_lose_little(monkeypatch):
    rng = np.random.default_rng(1)
    positive = np.arange(900) < 300
    scores = rng.normal(size=900) + 1.5 * positive
    risk = np.mean(scores[positive][:, None] < scores[~positive])
    rate = matching_rate(300, 600, 5.0)
    whole = matching_bound(deal_matchings(positive).of(scores).log_moment(rate / 300), 5.0, 300, rate=rate)
    assert whole < catoni_bound(risk, 5.0, 300, rate=rate) - 0.02
    monkeypatch.setattr(module, "LARGEST_GROUP", 100)
    grouped = deal_matchings(positive)
    assert len(grouped.groups) == 3
    assert sum(min(positive[g].sum(), (~positive[g]).sum()) for g in grouped.groups) == 300
    assert matching_bound(grouped.of(scores).log_moment(rate / 300), 5.0, 300, rate=rate) == pytest.approx(
        whole, abs=0.01
    )


def test_coefficients_of_separated_classes_are_binomial():
    positive = np.arange(3000) < 1000
    [[c]] = deal_matchings(positive).of(positive.astype(float)).log_coefficients
    assert np.isfinite(c).all()
    assert c[[1, 500, 1000]] == pytest.approx([log(1000), log(comb(1000, 500)), 0.0], rel=1e-10, abs=1e-9)


@pytest.mark.parametrize("auc", [0.6, 0.9, 0.99])
def test_one_pair_a_matching_is_a_binomial_bound(auc):
    """With separable cells: positives compared with one negative value each, the exact probability of failure."""
    n, epsilon = 25, 0.05
    positive = np.arange(2 * n) < n
    deal = deal_matchings(positive)
    failed = 0.0
    for wrong in range(n + 1):  # the positives are below or above all negatives: W is the same in every matching
        scores = np.where(positive, np.where(np.arange(2 * n) < wrong, -1.0, 1.0), 0.0)
        bound = holdout_bound(deal.of(scores), n, n, epsilon)
        failed += binom.pmf(wrong, n, 1 - auc) * (bound > auc)
    assert failed <= epsilon
