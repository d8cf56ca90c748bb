"""Intervals of AUCs and of their differences, against pairs counted one by one."""

import numpy as np
import pytest
from scipy.stats import norm

import pymc_pacauc as pac
from pymc_pacauc.comparison.risk import empirical_risk


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(1)
    y = np.arange(150) < 50
    a = rng.normal(size=150) + 1.4 * y
    return y, a, np.round(a + 0.8 * rng.normal(size=150), 1), rng.normal(size=(300, 150)) * 0.4 + a


def test_the_variance_is_that_of_all_pairs(rows):
    y, a, b, _ = rows
    success = [0.5 + 0.5 * np.sign(s[y][:, None] - s[~y]) for s in (a, b)]
    pair = success[0] - success[1]
    variance = pair.mean(axis=1).var(ddof=1) / 50 + pair.mean(axis=0).var(ddof=1) / 100
    said = pac.compare_auc(a, b, y, ci_prob=0.9)
    assert said.difference == pytest.approx(pair.mean())
    pull = 0.25 / 50
    k = ((pair**2).mean() - pair.mean() ** 2 + pull) / (variance + pull / 50)
    centre = k * pair.mean() / (k + 2)
    sd = np.sqrt(((k * (pair**2).mean() + 1) / (k + 2) - centre**2) / (k + 2))
    assert (said.lower, said.upper) == pytest.approx((centre - norm.ppf(0.95) * sd, centre + norm.ppf(0.95) * sd))
    other = pac.compare_auc(b, a, y, ci_prob=0.9)
    assert (other.lower, other.upper, other.probability) == pytest.approx(
        (-said.upper, -said.lower, 1 - said.probability)
    )


def test_separated_classes_have_an_interval_of_some_width():
    y = np.arange(40) < 20
    said = pac.compare_auc(y + 0.0, 2.0 * y, y)
    assert said.difference == 0
    assert said.lower < -0.05
    assert said.probability == 0.5


def test_draws(rows):
    y, _a, b, draws = rows
    aucs = 1 - empirical_risk(draws, y)
    said = pac.auc_interval(draws, y, over="posterior", ci_prob=0.8)
    assert (said.lower, said.upper) == pytest.approx(tuple(np.quantile(aucs, [0.1, 0.9])))
    both, fixed = pac.compare_auc(draws, b, y), pac.compare_auc(draws, b, y, over="rows")
    assert both.over == "both"
    assert both.auc_a == pytest.approx(aucs.mean())
    assert both.upper - both.lower > pac.compare_auc(draws, b, y, over="posterior").upper - both.difference
    assert fixed == pac.compare_auc(draws.mean(axis=0), b, y)
    curves = pac.roc(draws, y)
    inside = curves["tpr_of_draw_upper"] - curves["tpr_of_draw_lower"]
    assert (curves["tpr_posterior_upper"] - curves["tpr_posterior_lower"]).mean() < inside.mean()
    again = pac.compare_auc(draws, draws, y)
    assert again.probability == pytest.approx(0.5, abs=0.06)


def test_noise_of_the_rows_is_not_taken_for_differences_of_draws():
    """Draws that add noise to every row have one AUC in the population; draws of different signals have many."""
    rng = np.random.default_rng(3)
    y = np.arange(400) < 150
    score = rng.normal(size=400) + 1.2 * y
    noisy = score + rng.normal(size=(600, 400))
    real = score + 0.2 * rng.normal(size=(600, 1)) * y
    width = {}
    for name, draws in {"noisy": noisy, "real": real}.items():
        rows = pac.auc_interval(score, y)
        both = pac.auc_interval(draws, y, over="both", mean=score)
        width[name] = (both.upper - both.lower) / (rows.upper - rows.lower)
    assert width["noisy"] == pytest.approx(1.0, abs=0.1)
    aucs = 1 - empirical_risk(real, y)
    rows = pac.auc_interval(score, y)
    expected = np.hypot(aucs.std(), rows.se) / rows.se
    assert width["real"] == pytest.approx(expected, rel=0.1)


def test_refusals(rows):
    y, a, b, _ = rows
    with pytest.raises(ValueError, match="scores must have draws"):
        pac.compare_auc(a, b, y, over="both")
    with pytest.raises(ValueError, match="over must be"):
        pac.auc_interval(a, y, over="everything")


def test_a_predictive_interval_covers_the_auc_of_another_sample():
    """Of normal scores, 150 rows and then 60: 0.9 within three standard errors, or a little above."""
    rng, covered = np.random.default_rng(1), []
    for _ in range(400):
        y, new = rng.random(150) < 0.4, np.arange(60) < 24
        score, other = (rng.normal(size=each.size) + 1.2 * each for each in (y, new))
        found = pac.auc_interval(score, y, new_rows=60)
        covered.append(found.lower <= 1.0 - pac.empirical_risk(other, new) <= found.upper)
    assert 0.9 - 3 * np.sqrt(0.09 / 400) < np.mean(covered) < 0.96
    many = pac.auc_interval(score, y, new_rows=10**9)
    np.testing.assert_allclose(
        [many.lower, many.upper, many.se],
        [*(vars(pac.auc_interval(score, y))[k] for k in ("lower", "upper", "se"))],
        rtol=1e-6,
    )
    assert "over new rows" in repr(found)
    with pytest.raises(ValueError, match="new_rows must be a whole number"):
        pac.auc_interval(score, y, new_rows=0)
    with pytest.raises(ValueError, match="new_rows= is for the mean score"):
        pac.auc_interval(score + np.zeros((5, 1)), y, over="posterior", new_rows=10)
