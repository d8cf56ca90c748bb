"""The m of a certificate: its value, and the moment inequality it stands for, by simulation."""

import math

import numpy as np
import pytest

from pymc_pacauc.certify.bounds import binary_kl, log_moment, pac_bayes_kl
from pymc_pacauc.comparison.censored import concordance
from pymc_pacauc.comparison.kinds import label_comparison, ordered_classes, stratified
from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.comparison.risk import pair_risk
from pymc_pacauc.comparison.sizes import effective_size
from tests.pair_lists import censored_pairs, label_pairs

RNG = np.random.default_rng(0)
N = 30
Y, STRATA, WEIGHTS = RNG.integers(0, 3, N), RNG.integers(0, 4, N), RNG.gamma(1.0, size=N)
TIME, EVENT = RNG.integers(1, 15, N).astype(float), RNG.random(N) < 0.6


def largest_share(i, j, w):
    return (np.bincount(i, w, minlength=N) + np.bincount(j, w, minlength=N)).max() / w.sum()


def test_two_classes_are_the_smaller_class():
    for n_pos in (1, 7, 15, 29):
        assert effective_size(bipartite(np.arange(N) < n_pos)) == min(n_pos, N - n_pos)


def test_by_the_definition():
    two = Y > 1
    for options in ({"weights": WEIGHTS}, {"strata": STRATA}, {"weights": WEIGHTS, "strata": STRATA}):
        share = largest_share(*label_pairs(two, **options))
        assert effective_size(label_comparison(two, **options)) == pytest.approx(1 / share)
        share = largest_share(*label_pairs(Y, **options))
        assert effective_size(label_comparison(Y, ordered=True, **options)) == pytest.approx(2 / (3 * share))
    assert effective_size(concordance(TIME, EVENT)) == pytest.approx(
        2 / 3 / largest_share(*censored_pairs(TIME, EVENT))
    )


def test_censored_times_may_be_bipartite():
    """All events before all that are censored, at one time: nobody is on both sides."""
    event = np.arange(10) < 4
    assert effective_size(concordance(np.where(event, 1.0, 2.0), event)) == 4.0


def test_weights_that_do_not_differ_change_nothing():
    assert effective_size(bipartite(Y > 1).times(np.full(N, 2.0))) == min(np.sum(Y > 1), np.sum(Y <= 1))


def test_one_heavy_observation_is_worth_one_comparison():
    weights = np.ones(N)
    weights[0] = 1e9
    assert effective_size(bipartite(np.arange(N) < 10).times(weights)) == pytest.approx(1.0, abs=1e-6)


def test_what_has_no_bound():
    assert effective_size(label_comparison(Y > 1, max_fpr=0.2)) == 0.0
    assert effective_size(concordance(TIME, EVENT, weights="ipcw", tau=10.0)) == 0.0


@pytest.mark.parametrize(
    "pairs",
    [
        bipartite(Y > 1),
        bipartite(Y > 1).times(WEIGHTS),
        stratified(bipartite(Y > 1), STRATA),
        ordered_classes(Y),
        concordance(TIME, EVENT),
    ],
    ids=["two", "weights", "strata", "ordered", "censored"],
)
def test_moment_inequality(pairs):
    """E exp(m kl(R_n, R)) <= 2 sqrt(m), for scores that know nothing (R = 1/2) and for scores that know a little."""
    m = effective_size(pairs)
    rng = np.random.default_rng(1)
    rank = np.zeros(N)
    for block in pairs.blocks:
        rank[block.positive] += 1.0
    for signal in (0.0, 0.3):
        risks = pair_risk(signal * rank + rng.standard_normal((20_000, N)), pairs)
        centre = risks.mean()
        moment = np.array([math.exp(m * binary_kl(float(r), float(centre))) for r in risks])
        assert moment.mean() + 4 * moment.std() / math.sqrt(moment.size) < 2 * math.sqrt(m) + 0.05


def test_bound_with_a_mean_size():
    assert pac_bayes_kl(0.1, 2.0, 20.0, equal_matchings=False) > pac_bayes_kl(0.1, 2.0, 20)
    assert log_moment(20.5, False) == pytest.approx(math.log(2 * math.sqrt(20.5)))
