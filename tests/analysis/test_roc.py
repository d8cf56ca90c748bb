import numpy as np
import pytest
import xarray as xr
from sklearn.metrics import roc_auc_score, roc_curve

import pymc_pacauc as pac


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    y = rng.random(120) < 0.35
    draws = rng.normal(size=(2, 30, 120)) * 0.5 + 1.2 * y + rng.normal(size=120)
    return draws, y


def test_auc_and_curve_of_one_score(rows):
    score, y = rows[0][0, 0], rows[1]
    curves = pac.roc(score, y)
    assert curves["auc"].item() == pytest.approx(roc_auc_score(y, score))
    fpr, tpr, _ = roc_curve(y, score, drop_intermediate=False)
    at = curves["fpr"].values
    staircase = np.array([tpr[fpr <= f + 1e-12].max() for f in at])
    np.testing.assert_allclose(curves["tpr"], staircase, atol=1e-12)
    np.testing.assert_allclose(curves["tpr_of_mean_score"], staircase, atol=1e-12)


def test_ties_are_diagonal_segments():
    curves = pac.roc([1.0, 1.0, 1.0, 1.0], [0, 1, 0, 1])
    np.testing.assert_allclose(curves["tpr"], curves["fpr"])
    assert curves["auc"].item() == 0.5


def test_band_and_attributes(rows):
    draws, y = rows
    curves = pac.roc(xr.DataArray(draws, dims=("chain", "draw", "row")), y, probability=0.8)
    assert (curves["tpr_lower"] <= curves["tpr"] + 1e-12).all()
    assert (curves["tpr"] <= curves["tpr_upper"] + 1e-12).all()
    assert curves["auc"].size == 60
    auc = [roc_auc_score(y, s) for s in draws.reshape(-1, 120)]
    np.testing.assert_allclose(curves["auc"], auc)
    assert curves.attrs["auc_mean"] == pytest.approx(np.mean(auc))
    assert curves.attrs["auc_lower"] == pytest.approx(np.quantile(auc, 0.1))
    assert curves.attrs["delong_lower"] < curves.attrs["auc_of_mean_score"] < curves.attrs["delong_upper"]
    assert (curves.attrs["n_pos"], curves.attrs["n_neg"]) == (y.sum(), (~y).sum())


def test_the_scale_of_a_draw_does_not_matter(rows):
    draws, y = rows
    scaled = draws * np.random.default_rng(0).uniform(0.1, 10, size=(2, 30, 1))
    xr.testing.assert_allclose(pac.roc(draws, y), pac.roc(scaled, y))


def test_delong_against_its_definition(rows):
    score, y = rows[0][0, 0].round(1), rows[1]
    kernel = (score[y][:, None] > score[~y]) + 0.5 * (score[y][:, None] == score[~y])
    variance = kernel.mean(axis=1).var(ddof=1) / y.sum() + kernel.mean(axis=0).var(ddof=1) / (~y).sum()
    result = pac.delong(score, y)
    assert result.auc == pytest.approx(kernel.mean())
    assert result.se == pytest.approx(np.sqrt(variance))
    assert 0 < result.lower < result.auc < result.upper < 1


def test_delong_covers():
    from scipy.special import ndtr

    rng = np.random.default_rng(5)
    y = np.arange(150) < 60
    truth = ndtr(1.2 / np.sqrt(2))
    results = [pac.delong(rng.normal(size=150) + 1.2 * y, y, probability=0.9) for _ in range(400)]
    covered = np.mean([r.lower <= truth <= r.upper for r in results])
    assert abs(covered - 0.9) < 4 * np.sqrt(0.9 * 0.1 / 400)


def test_delong_of_a_perfect_score():
    result = pac.delong([1.0, 2.0, 3.0, 4.0], [0, 0, 1, 1])
    assert (result.auc, result.lower, result.upper) == (1, 1, 1)


@pytest.mark.parametrize("target", [0.0, 0.05, 0.3, 1.0])
def test_threshold_at_a_false_positive_rate(rows, target):
    score, y = rows[0][0, 0], rows[1]
    chosen = pac.choose_threshold(score, y, fpr=target)
    called = score > chosen.value
    assert called[~y].mean() == pytest.approx(chosen.fpr)
    assert called[y].mean() == pytest.approx(chosen.tpr)
    assert chosen.fpr <= target
    lower = np.sort(score)[np.searchsorted(np.sort(score), chosen.value) - 1] - 1e-9 if target < 1 else -np.inf
    assert target == 1 or (score > lower)[~y].mean() > target or (score > lower)[y].mean() > chosen.tpr


@pytest.mark.parametrize("target", [0.0, 0.5, 0.95, 1.0])
def test_threshold_at_a_true_positive_rate(rows, target):
    score, y = rows[0][0, 0], rows[1]
    chosen = pac.choose_threshold(score, y, tpr=target)
    called = score > chosen.value
    assert chosen.tpr == pytest.approx(called[y].mean())
    assert chosen.tpr >= target
    assert chosen.fpr == pytest.approx(called[~y].mean())


def test_threshold_minimises_the_cost(rows):
    score, y = rows[0][0, 0], rows[1]
    chosen = pac.choose_threshold(score, y, cost=(1.0, 5.0))

    def cost(t):
        called = score > t
        return called[~y].sum() + 5.0 * (~called[y]).sum()

    assert cost(chosen.value) == min(cost(t) for t in [-np.inf, *score])


def test_threshold_has_uncertainty(rows):
    draws, y = rows
    chosen = pac.choose_threshold(draws, y, fpr=0.1)
    assert chosen.draws["threshold"].size == 60
    assert (chosen.draws["fpr"] <= 0.1).all()
    low, high = chosen.interval("tpr")
    assert 0 < low < high < 1
    assert "FPR at most 0.1" in repr(chosen)


def test_bad_input_is_refused(rows):
    draws, y = rows
    with pytest.raises(ValueError, match="one column per label"):
        pac.roc(draws[..., 1:], y)
    with pytest.raises(ValueError, match="NaN or infinite"):
        pac.roc(np.where(draws > 0, draws, np.nan), y)
    with pytest.raises(ValueError, match="probability"):
        pac.roc(draws, y, probability=1.0)
    with pytest.raises(ValueError, match="one class only"):
        pac.roc(draws, np.ones(120, dtype=int))
    with pytest.raises(ValueError, match="one score vector"):
        pac.delong(draws, y)
    with pytest.raises(ValueError, match="two rows of each class"):
        pac.delong([1.0, 2.0, 3.0], [0, 1, 1])
    for wrong in ({}, {"fpr": 0.1, "tpr": 0.9}):
        with pytest.raises(ValueError, match="exactly one"):
            pac.choose_threshold(draws, y, **wrong)
    with pytest.raises(ValueError, match="must lie in"):
        pac.choose_threshold(draws, y, fpr=1.2)
    with pytest.raises(ValueError, match="cost must be"):
        pac.choose_threshold(draws, y, cost=(-1.0, 1.0))
