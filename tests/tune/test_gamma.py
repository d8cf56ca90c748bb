"""The rule that chooses gamma, on candidates made by hand."""

import numpy as np
import pytest

from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.tune.gamma import (
    Candidate,
    choose_among,
    gamma_grid,
    weighted_gamma,
)


def candidate(gamma, losses, change=0.0):
    """Of two folds, which lose these compared with 0.8."""
    return Candidate(gamma, 0.8 - np.array([losses]), np.full((1, 2), 0.7), change)


def test_the_rule_is_a_mean_weighted_by_how_far_each_is_behind():
    size = 10.0
    alike = [candidate(g, (0.0, 0.0)) for g in (5.0, 20.0, 80.0)]  # symmetric about twice the size
    assert weighted_gamma(alike, size) == pytest.approx(20.0)
    [far] = [weighted_gamma([*alike[:2], candidate(80.0, (0.1, 0.1))], size)]  # never within any error
    prior = np.exp(-0.5 * (np.log(4.0) / 2.0) ** 2)
    assert np.log(far) == pytest.approx((prior * np.log(5.0) + np.log(20.0)) / (1.0 + prior))
    behind = [candidate(5.0, (0.0, 0.02)), alike[1]]  # by 0.01, of which the standard error is 0.01: z = 1
    weight = prior * np.exp(-1.0)
    expected = (weight * np.log(5.0) + np.log(20.0)) / (1.0 + weight)
    assert np.log(weighted_gamma(behind, size)) == pytest.approx(expected)
    unreliable = [*alike[:2], candidate(80.0, (-0.1, -0.1), change=2.0)]
    assert weighted_gamma(unreliable, size) == pytest.approx(weighted_gamma(alike[:2], size))
    assert weighted_gamma(unreliable[2:], size) == pytest.approx(80.0)


def test_the_grid_stops_where_a_wrong_pair_costs_a_nat():
    wide, narrow = (row_shares(bipartite(np.arange(n) < n // 2)) for n in (400, 40))
    assert gamma_grid(wide) == pytest.approx(100.0 * np.array([0.25, 1.0, 4.0, 16.0]))
    assert gamma_grid(narrow) == pytest.approx([2.5, 10.0, 40.0, 160.0])
    assert gamma_grid(narrow, [3, 1, 3]).tolist() == [1.0, 3.0]


@pytest.mark.parametrize(("best", "last"), [(0.0, 1600.0), (400.0, 1600.0), (1600.0, 6400.0), (1e9, 25600.0)])
def test_larger_gammas_are_looked_at_while_the_largest_is_best(best, last):
    """Size 100, so the grid ends at 1600; 40 000 pairs, so the next but one is the last."""

    def evaluate(gamma):
        behind = 0.01 * abs(np.log(gamma / max(best, 1.0)))
        return candidate(gamma, (behind, behind))

    found, _ = choose_among(evaluate, None, bipartite(np.arange(400) < 200))
    assert max(each.gamma for each in found) == pytest.approx(last)
