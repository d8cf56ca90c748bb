"""Net benefit and expected cost against sums over rows; the top against rankings one by one."""

import numpy as np
import pytest
import xarray as xr

import pymc_pacauc as pac


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(1)
    y = np.arange(300) < 90
    score = rng.normal(size=300) + 1.3 * y
    return y, score, score + 0.5 * rng.normal(size=(200, 300))


def test_net_benefit_is_what_the_rows_say(rows):
    y, score, draws = rows
    curve = pac.decision_curve(draws, y, mean=score, probabilities=[0.2, 0.6])
    for p, at, value, of_draw in zip(
        [0.2, 0.6], curve["threshold"].values, curve["net_benefit"].values, curve["net_benefit_of_draw"], strict=True
    ):
        worth = np.where(y, 1.0, -p / (1 - p))
        assert value == pytest.approx(np.mean(worth * (score > at)))
        assert all(np.mean(worth * (score > other)) <= value + 1e-12 for other in score)
        assert of_draw == pytest.approx(np.mean(worth * (draws > at)))
    assert (curve["lower"] < curve["net_benefit"]).all()
    assert (curve["net_benefit"] < curve["upper"]).all()
    other = pac.decision_curve(score[::2], y[::2], chosen_with=(score[1::2], y[1::2]), probabilities=[0.2])
    assert other["net_benefit"][0] <= pac.decision_curve(score[::2], y[::2], probabilities=[0.2])["net_benefit"][0]


def test_costs_at_a_prevalence(rows):
    y, score, draws = rows
    plain, rare = (pac.choose_threshold(score, y, cost=(1, 4), prevalence=p) for p in (None, 0.02))
    assert rare.value > plain.value
    assert "at prevalence 0.02" in rare.rule
    costs = [np.where(y, 4 * (score <= at), score > at).mean() for at in [plain.value, *score]]
    assert costs[0] == min(costs)
    assert pac.choose_threshold(draws, y, mean=score, cost=(1, 4)).value == plain.value
    assert pac.results.Threshold.from_dict(rare.to_dict()) == rare
    with pytest.raises(ValueError, match="is for cost="):
        pac.choose_threshold(score, y, fpr=0.1, prevalence=0.2)
    with pytest.raises(ValueError, match="prevalence must lie"):
        pac.choose_threshold(score, y, cost=(1, 1), prevalence=1.0)


def test_probability_in_top(rows):
    _, _, draws = rows
    scores = xr.DataArray(draws[None, :, :40], dims=("chain", "draw", "row"), coords={"row": np.arange(40) + 100})
    found = pac.summary(scores, top=0.1)["in_top"]
    expected = np.mean([np.isin(np.arange(40), np.argsort(-row)[:4]) for row in draws[:, :40]], axis=0)
    np.testing.assert_allclose(found, expected)
    assert found.index[0] == 100
    assert float(found.sum()) == pytest.approx(4)
    tied = pac.summary(xr.zeros_like(scores[..., :10]), top=0.3)["in_top"]
    np.testing.assert_allclose(tied, 0.3)
    with pytest.raises(TypeError, match="needs draws of scores"):
        pac.summary(scores[0, 0], top=0.1)


def test_figure(rows):
    y, score, _ = rows
    curve = pac.decision_curve(score, y, probabilities=[0.2, 0.4])
    axes = pac.plots.plot_decision_curve({"a": curve, "b": curve})
    assert [line.get_label() for line in axes.lines] == ["nobody", "everybody", "a", "b"]
    np.testing.assert_allclose(axes.lines[2].get_ydata(), curve["net_benefit"])
