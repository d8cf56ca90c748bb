import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pymc_pacauc as pac


def by_the_curve(scores, y, max_fpr, weights=None):
    """The curve point by point, one for each distinct score, and its area up to max_fpr."""
    weights = np.ones(len(y)) if weights is None else weights
    thresholds = np.concatenate([[np.inf], np.unique(scores)[::-1]])
    above = scores[None] >= thresholds[:, None]
    tpr = (above * weights)[:, y == 1].sum(axis=1) / weights[y == 1].sum()
    fpr = (above * weights)[:, y == 0].sum(axis=1) / weights[y == 0].sum()
    area = 0.0
    for k in range(1, fpr.size):
        left, right = fpr[k - 1], min(fpr[k], max_fpr)
        if right > left:
            height = tpr[k - 1] + (tpr[k] - tpr[k - 1]) * (right - left) / (fpr[k] - left)
            area += (right - left) * (tpr[k - 1] + height) / 2
    return 1 - area / max_fpr


@given(seed=st.integers(0, 10**6), n=st.integers(2, 40), max_fpr=st.floats(0.01, 1.0))
def test_area_under_the_curve(seed, n, max_fpr):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    y[:2] = 0, 1
    scores, weights = rng.integers(-4, 5, (3, n)).astype(float), rng.gamma(1.0, size=n)
    for options in ({}, {"weights": weights}):
        expected = [by_the_curve(row, y, max_fpr, **options) for row in scores]
        found = pac.empirical_risk(scores, y, max_fpr=max_fpr, **options)
        np.testing.assert_allclose(found, expected, atol=1e-12)
    whole = pac.empirical_risk(scores, y, max_fpr=1.0)
    np.testing.assert_allclose(whole, pac.empirical_risk(scores, y), atol=1e-13)


@pytest.mark.parametrize("max_fpr", [0.03, 0.1, 0.37, 0.9])
def test_scikit_learn_is_an_affine_map_of_it(max_fpr):
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(1)
    y = rng.random(90) < 0.4
    for decimals in (0, 1, 8):
        scores = np.round(rng.standard_normal(90) + y, decimals)
        risk = pac.empirical_risk(scores, y, max_fpr=max_fpr)
        least, most = max_fpr**2 / 2, max_fpr
        theirs = metrics.roc_auc_score(y, scores, max_fpr=max_fpr)
        assert 0.5 * (1 + (max_fpr * (1 - risk) - least) / (most - least)) == pytest.approx(theirs, abs=1e-12)


def test_nan_spoils_its_row():
    risk = pac.empirical_risk([[1.0, 2.0, 3.0], [1.0, np.nan, 3.0]], [0, 0, 1], max_fpr=0.5)
    assert risk[0] == 0.0
    assert np.isnan(risk[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_fpr": 0.0}, "max_fpr, the largest false positive rate"),
        ({"max_fpr": 1.5}, "max_fpr, the largest false positive rate"),
        ({"max_fpr": np.nan}, "max_fpr, the largest false positive rate"),
        ({"max_fpr": "0.1"}, "max_fpr, the largest false positive rate"),
        ({"max_fpr": 0.1, "strata": [0, 0, 1, 1]}, "two classes without strata"),
        ({"max_fpr": 0.1, "ordered": True}, "two classes without strata"),
        ({"max_fpr": 0.1, "ties": "strict"}, "not defined for a partial AUC"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        pac.empirical_risk([1.0, 2.0, 3.0, 4.0], [0, 1, 0, 1], **options)
