"""Rows sampled into groups along a score."""

import numpy as np
import pytest

from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.comparison.subsample import SampledPairs, sample_pairs
from tests.ep.test_subsample import N, comparisons, data


@pytest.mark.parametrize("kind", comparisons())
def test_every_pair_has_its_chance(kind):
    """The estimate of a sum over all pairs, of anything, is unbiased: compared within four standard errors."""
    pairs = comparisons()[kind]
    rng = np.random.default_rng(1)
    a, b, score = rng.gamma(1.0, size=N), rng.gamma(1.0, size=N), rng.normal(size=N)

    def total(blocks):
        return sum(
            times * (b_.row_weights * a[b_.positive]).sum() * (b_.column_weights * b[b_.negative]).sum()
            for times, b_ in blocks
        )

    def estimate(sampled: SampledPairs):
        groups = [(len(each.groups), group) for each in sampled.sampled for group in each.groups]
        return total([(1.0, block) for block in sampled.whole.blocks] + groups)

    found = np.array([estimate(sample_pairs(pairs, score, 7, rng)) for _ in range(400)])
    exact = total([(1.0, block) for block in pairs.blocks])
    assert abs(found.mean() - exact) <= 4.0 * found.std() / 20.0 + 1e-9 * exact


def test_groups_are_systematic_samples_along_the_score():
    X, y = data(4000)
    sampled = sample_pairs(bipartite(y), X[:, 0], 20, np.random.default_rng(0)).sampled[0]
    spread = [X[group.positive, 0].mean() for group in sampled.groups]
    random = X[y, 0].std() / np.sqrt(y.sum() / 20)
    assert np.std(spread) < 0.2 * random
