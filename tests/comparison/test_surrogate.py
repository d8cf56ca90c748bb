import numpy as np
import pytest

from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.comparison.risk import empirical_risk
from pymc_pacauc.comparison.surrogate import surrogate_risk


def data(seed, n=37, scale=1.0):
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < 0.4).astype(np.int8)
    return scale * (rng.standard_normal(n) + labels), labels


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_value_is_the_mean_over_pairs(scale):
    scores, labels = data(0, scale=scale)
    margins = scores[labels == 1][:, None] - scores[labels == 0]
    value, _ = surrogate_risk(scores, bipartite(labels))
    np.testing.assert_allclose(value, (np.logaddexp(0.0, -margins) / np.log(2.0)).mean(), rtol=1e-12)


def test_gradient_by_finite_differences():
    scores, labels = data(1)
    pairs = bipartite(labels)
    _, gradient = surrogate_risk(scores, pairs)
    step = 1e-6
    for i in range(scores.size):
        move = step * (np.arange(scores.size) == i)
        slope = (surrogate_risk(scores + move, pairs)[0] - surrogate_risk(scores - move, pairs)[0]) / (2 * step)
        np.testing.assert_allclose(gradient[i], slope, atol=1e-8)


def test_never_below_the_auc_risk():
    for seed in range(20):
        scores, labels = data(seed)
        assert surrogate_risk(scores, bipartite(labels))[0] >= empirical_risk(scores, labels)


def test_nan_for_non_finite_scores():
    scores, labels = data(2)
    infinite = np.where(np.arange(scores.size) == 3, np.inf, scores)
    assert np.isnan(surrogate_risk(infinite, bipartite(labels))[0])
