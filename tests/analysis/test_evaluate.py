import numpy as np
import pytest
import xarray as xr
from hypothesis import assume
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri
from scipy.stats import binomtest, rankdata
from sklearn.metrics import roc_auc_score, roc_curve

import pymc_pacauc as pac
from benchmarks.coverage_auc import LOWEST, measure, measure_all, measure_deployed
from tests.comparison.test_risk import scored
from tests.fuzzing import fuzz


def test_a_band_is_no_narrower_than_a_binomial_interval():
    """Separated classes: every reweighting has the same curve, and yet 30 positives do not show a rate of one."""
    y = np.arange(50) < 30
    curves = pac.roc(y + np.linspace(0.0, 0.5, 50), y, ci_prob=0.9)
    exact = binomtest(30, 30).proportion_ci(0.9)
    np.testing.assert_allclose(curves["tpr_lower"], exact.low, rtol=1e-9)
    np.testing.assert_allclose(curves["tpr_of_draw_lower"], exact.low, rtol=1e-9)
    np.testing.assert_allclose(curves["tpr_upper"], 1.0)


def test_auc_and_curve_of_one_score(rows):
    score, y = rows[0][0, 0], rows[1]
    curves = pac.roc(score, y)
    assert curves.attrs["auc"] == curves["auc_of_draw"].item() == pytest.approx(roc_auc_score(y, score))
    fpr, tpr, _ = roc_curve(y, score, drop_intermediate=False)
    at = curves["fpr"].values
    staircase = np.array([tpr[fpr <= f + 1e-12].max() for f in at])
    np.testing.assert_allclose(curves["tpr"], staircase, atol=1e-12)
    np.testing.assert_allclose(curves["tpr_of_draw"], staircase, atol=1e-12)


def test_ties_are_diagonal_segments():
    curves = pac.roc([1.0, 1.0, 1.0, 1.0], [0, 1, 0, 1])
    np.testing.assert_allclose(curves["tpr"], curves["fpr"])
    assert curves.attrs["auc"] == 0.5


def test_band_and_attributes(rows):
    draws, y = rows
    curves = pac.roc(xr.DataArray(draws, dims=("chain", "draw", "row")), y, ci_prob=0.8)
    mean = draws.mean(axis=(0, 1))
    fixed = pac.auc_interval(mean, y, ci_prob=0.8)
    said = curves.attrs
    assert (said["auc"], said["auc_lower"], said["auc_upper"]) == (fixed.auc, fixed.lower, fixed.upper)
    np.testing.assert_allclose(curves["tpr"], pac.roc(mean, y)["tpr"])
    auc = [roc_auc_score(y, s) for s in draws.reshape(-1, 120)]
    np.testing.assert_allclose(curves["auc_of_draw"], auc)
    assert said["auc_of_draw"] == pytest.approx(np.mean(auc))
    assert said["auc_of_draw"] < said["auc"]
    for part in ("tpr", "tpr_of_draw"):
        inside = (curves[f"{part}_lower"] <= curves[part] + 0.02) & (curves[part] <= curves[f"{part}_upper"] + 0.02)
        assert inside.all()
    # rows and draws: wider than the draws alone
    low, high = np.quantile(auc, [0.1, 0.9])
    assert said["auc_of_draw_upper"] - said["auc_of_draw_lower"] > 1.5 * (high - low)
    assert (said["n_pos"], said["n_neg"], said["draws"]) == (y.sum(), (~y).sum(), 60)
    xr.testing.assert_identical(curves, pac.roc(draws, y, ci_prob=0.8))


def test_the_exact_mean_where_it_is_known():
    """A posterior close to its prior: the mean of a few draws is mostly noise, and the mean score is not."""
    rng = np.random.default_rng(1)
    X, theta = rng.normal(size=(200, 10)), np.full(10, 0.1)
    y = X @ theta + 0.1 * rng.normal(size=200) > 0
    draws = (theta + rng.normal(size=(1, 100, 10))) @ X.T
    exact = pac.roc(X @ theta, y).attrs["auc"]
    assert pac.roc(draws, y).attrs["auc"] < exact - 0.05
    carried = xr.DataArray(draws, dims=("chain", "draw", "row"), coords={"mean_score": ("row", X @ theta)})
    summary = xr.Dataset({"mean": ("row", X @ theta), "sd": ("row", np.ones(200))})
    for curves in (pac.roc(draws, y, mean=X @ theta), pac.roc(carried, y), pac.roc(summary, y)):
        assert curves.attrs["auc"] == exact
    assert pac.roc(carried, y).attrs["auc_of_draw"] == pac.roc(draws, y).attrs["auc_of_draw"]
    with pytest.raises(ValueError, match="one finite score per row"):
        pac.roc(draws, y, mean=theta)


@pytest.mark.slow
def test_the_bootstrap_of_a_curve_covers():
    """Binormal scores, whose curve is known: pointwise coverage of the band, and of the AUC."""
    rng = np.random.default_rng(6)
    y = np.arange(200) < 80
    inside, at = np.zeros(3), np.array([0.1, 0.3, 0.6])
    true = ndtr(1.0 + ndtri(at))
    for _ in range(150):
        curves = pac.roc(rng.normal(size=200) + y, y, ci_prob=0.9).interp(fpr=at)
        inside += (curves["tpr_lower"].values <= true) & (true <= curves["tpr_upper"].values)
    assert (inside / 150 > 0.82).all()


def test_delong_against_its_definition(rows):
    score, y = rows[0][0, 0].round(1), rows[1]
    kernel = (score[y][:, None] > score[~y]) + 0.5 * (score[y][:, None] == score[~y])
    variance = kernel.mean(axis=1).var(ddof=1) / y.sum() + kernel.mean(axis=0).var(ddof=1) / (~y).sum()
    result = pac.auc_interval(score, y)
    assert result.auc == pytest.approx(kernel.mean())
    assert result.se == pytest.approx(np.sqrt(variance))
    assert 0 < result.lower < result.auc < result.upper < 1


def test_delong_in_large_samples_is_symmetric_about_the_auc():
    rng = np.random.default_rng(5)
    y = np.arange(40_000) < 20_000
    result = pac.auc_interval(rng.normal(size=y.size) + y, y, ci_prob=0.9)
    assert result.upper - result.auc == pytest.approx(1.645 * result.se, rel=0.02)
    assert result.auc - result.lower == pytest.approx(1.645 * result.se, rel=0.02)


@pytest.mark.parametrize(("n_pos", "n_neg"), [(2, 2), (10, 15), (40, 7)])
def test_separated_classes_have_the_exact_binomial_interval(n_pos, n_neg):
    y = np.arange(n_pos + n_neg) < n_pos
    exact = binomtest(min(n_pos, n_neg), min(n_pos, n_neg)).proportion_ci(0.9, method="exact")
    above, below = pac.auc_interval(y.astype(float), y), pac.auc_interval(-y.astype(float), y)
    assert (above.auc, above.se, above.upper) == (1, 0, 1)
    assert above.lower == pytest.approx(exact.low)
    assert (below.auc, below.lower, below.upper) == (0, 0, pytest.approx(1 - exact.low))


def test_delong_does_not_care_which_class_is_called_positive(rows):
    score, y = rows[0][0, 0], rows[1]
    one, other = pac.auc_interval(score, y), pac.auc_interval(score, ~y)
    assert (other.auc, other.lower, other.upper) == pytest.approx((1 - one.auc, 1 - one.upper, 1 - one.lower))


def test_the_effective_number_of_comparisons_is_at_least_the_smaller_class():
    """Positives that are above or below everything: the AUC is a share of 40 coin tosses."""
    y = np.arange(3040) < 40
    score = np.where(y, np.where(np.arange(3040) < 10, -1.0, 1.0), 0.0)
    result = pac.auc_interval(score, y)
    exact = binomtest(30, 40).proportion_ci(0.9, method="exact")
    assert (result.auc, result.lower, result.upper) == pytest.approx((0.75, exact.low, exact.high))


@pytest.mark.parametrize(
    ("shape", "n_pos", "n_neg", "auc"),
    [
        ("binormal", 10, 15, 0.983),
        ("binormal", 50, 50, 0.9),
        ("wide positives", 5, 1000, 0.5),
        ("heavy tails", 20, 100, 0.95),
        ("two kinds of positives", 200, 10, 0.995),
    ],
)
def test_the_interval_covers(shape, n_pos, n_neg, auc):
    cell = measure(shape, n_pos, n_neg, auc, datasets=600)
    assert cell.coverage >= LOWEST
    if auc == 0.983:
        assert cell.logit_coverage < 0.7  # an interval without width when the classes are separated
    if n_pos == n_neg == 50:
        assert cell.width < 1.12 * cell.logit_width


@pytest.mark.slow
def test_the_interval_of_a_fitted_score_covers_its_auc_in_the_population():
    found = measure_deployed(80, ci_prob=0.9)
    assert found.coverage > 0.9 - 2.5 * np.sqrt(0.09 / 80)
    assert found.coverage_by_draws < found.coverage - 0.1


@pytest.mark.slow
def test_the_interval_covers_over_the_whole_grid():
    cells = [cell for row in measure_all(datasets=2000) for cell in row]
    assert {cell.auc for cell in cells} >= {0.5, 0.983, 0.995}
    assert [cell for cell in cells if cell.coverage < LOWEST] == []
    large = [
        cell.width / cell.logit_width for cell in cells if cell.n_pos == 200 and cell.n_neg == 1000 and cell.auc < 0.9
    ]
    assert max(large) < 1.15


# --- what is ranked is what was given ---------------------------------------------------------------------------------


def hard_to_average():
    """Scores of many magnitudes: centring them merges the small ones."""
    rng = np.random.default_rng(194)
    y = np.arange(60) < 20
    return np.exp(20 * (rng.normal(size=60) + 0.7 * y)), y


@pytest.mark.parametrize("change", [lambda s: s, lambda s: 1e-290 * s, lambda s: -np.log(s), lambda s: s[None, None]])
def test_one_score_vector_is_ranked_as_it_is(change):
    score, y = hard_to_average()
    score = change(score)
    curves = pac.roc(score, y)
    exact = roc_auc_score(y, score.ravel())
    assert curves["auc_of_draw"].item() == pytest.approx(exact, abs=1e-15)
    assert curves.attrs["auc"] == pytest.approx(exact, abs=1e-15)
    np.testing.assert_array_equal(curves["tpr"], curves["tpr_of_draw"])


def test_bad_input_is_refused(rows):
    draws, y = rows
    with pytest.raises(ValueError, match="one column per label"):
        pac.roc(draws[..., 1:], y)
    with pytest.raises(ValueError, match="NaN or infinite"):
        pac.roc(np.where(draws > 0, draws, np.nan), y)
    with pytest.raises(ValueError, match="ci_prob"):
        pac.roc(draws, y, ci_prob=1.0)
    for shape in ((0, 120), (2, 0, 120)):
        for function in (pac.roc, pac.auc_interval, lambda s, y: pac.choose_threshold(s, y, fpr=0.1)):
            with pytest.raises(ValueError, match="at least one draw"):
                function(np.empty(shape), y)
    with pytest.raises(ValueError, match="one class only"):
        pac.roc(draws, np.ones(120, dtype=int))
    with pytest.raises(ValueError, match="two rows of each class"):
        pac.auc_interval([1.0, 2.0, 3.0], [0, 1, 1])


# --- on inputs nobody chose -------------------------------------------------------------------------------------------

finite = scored(st.one_of(st.integers(-3, 3).map(float), st.floats(-1e300, 1e300)))


@fuzz("roc", fast=10, data=finite)
def test_roc_of_any_score(data):
    score, y = data
    assume(min(y.sum(), (~y).sum()) > 1)
    curves = pac.roc(score, y)
    exact = roc_auc_score(y, rankdata(score))
    assert curves["auc_of_draw"].item() == pytest.approx(exact, abs=1e-12)
    assert curves.attrs["auc"] == curves["auc_of_draw"].item() == curves.attrs["auc_of_draw"]
    fpr, tpr, _ = roc_curve(y, rankdata(score), drop_intermediate=False)
    np.testing.assert_allclose(curves["tpr"], np.interp(curves["fpr"], fpr, tpr), atol=1e-12)
    assert (np.diff(curves["tpr"]) >= 0).all()
    assert curves["tpr"].values[-1] == 1


@fuzz("roc", fast=10, data=finite, seed=st.integers(0, 10**6), ci_prob=st.floats(0.05, 0.99))
def test_roc_of_any_draws(data, seed, ci_prob):
    score, y = data
    assume(min(y.sum(), (~y).sum()) > 1)
    rng = np.random.default_rng(seed)
    draws = np.stack([score, rng.normal(size=y.size), rng.integers(0, 3, y.size) * 1e200])
    curves = pac.roc(draws, y, ci_prob=ci_prob)
    each = [roc_auc_score(y, rankdata(row)) for row in draws]
    np.testing.assert_allclose(curves["auc_of_draw"], each, atol=1e-12)
    mean = pac.auc_interval((draws / 3).sum(axis=0), y, ci_prob=ci_prob)
    assert (curves.attrs["auc"], curves.attrs["auc_lower"]) == pytest.approx((mean.auc, mean.lower), abs=1e-12)
    assert 0 <= curves.attrs["auc_of_draw_lower"] <= curves.attrs["auc_of_draw_upper"] <= 1 + 1e-12
    assert curves.attrs["ci_prob"] == ci_prob


@fuzz("auc_interval", data=finite, ci_prob=st.floats(0.05, 0.95))
def test_delong_of_any_score(data, ci_prob):
    score, y = data
    assume(min(y.sum(), (~y).sum()) > 1)
    result = pac.auc_interval(score, y, ci_prob=ci_prob)
    kernel = (score[y][:, None] > score[~y]) + 0.5 * (score[y][:, None] == score[~y])
    variance = kernel.mean(axis=1).var(ddof=1) / y.sum() + kernel.mean(axis=0).var(ddof=1) / (~y).sum()
    assert result.auc == pytest.approx(kernel.mean(), abs=1e-12)
    assert result.se == pytest.approx(np.sqrt(variance), abs=1e-9)
    assert 0 <= result.lower <= result.auc <= result.upper <= 1
    assert result.lower < result.upper
    assert pac.auc_interval(rankdata(score), y, ci_prob=ci_prob) == result
    mirrored = pac.auc_interval(-score, y, ci_prob=ci_prob)
    assert (mirrored.lower, mirrored.upper) == pytest.approx((1 - result.upper, 1 - result.lower), abs=1e-9)
    wider = pac.auc_interval(score, y, ci_prob=ci_prob + 0.04)
    assert wider.lower <= result.lower <= result.upper <= wider.upper
