"""Comparisons of models and decisions with scores, of data nobody chose."""

import warnings

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr
from hypothesis import strategies as st
from scipy.special import softmax

import pymc_pacauc as pac
from pymc_pacauc.fitting import fit
from pymc_pacauc.model.results import as_result
from pymc_pacauc.problem.problem import linear_gaussian_problem
from tests.analysis.test_evaluate import finite
from tests.analysis.test_plots_fuzz import canvas
from tests.ep.test_fuzz import small
from tests.fuzzing import fuzz

mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")

seeds = st.integers(0, 2**20)


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


@fuzz(
    "compare",
    "plots.plot_compare",
    fast=5,
    data=small(columns=2),
    method=st.sampled_from(["ep", "vb"]),
    order=st.permutations([1.0, 0.1, 5.0]),
)
def test_models_side_by_side(data, method, order):
    """Evidence and odds are the fits'; the order they come in does not matter; another gamma is refused."""
    X, y, gamma, _ = data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pac.results.ConvergenceWarning)
        fits = {f"sd {sd}": fit(linear_gaussian_problem(X, y, gamma, prior_covariance=sd**2), method) for sd in order}
        table = pac.compare(fits, folds=2)
        again = pac.compare({name: fits[name] for name in reversed(fits)}, folds=2)
        other = fit(linear_gaussian_problem(X, y, 2 * gamma), method)
    logs = np.array([as_result(fits[name]).evidence.estimate for name in table.index])
    np.testing.assert_array_equal(table["log_evidence"], logs)
    np.testing.assert_array_equal(logs, np.sort(logs)[::-1])
    np.testing.assert_allclose(table["probability"], softmax(logs))
    columns = ["log_evidence", "probability", "auc", "auc_loss", "certified_auc"]
    np.testing.assert_allclose(again.loc[table.index, columns], table[columns], atol=1e-12)
    assert table["auc"].between(0, 1).all()
    assert table["auc_loss"].min() == 0
    for name in table.index:
        assert table.loc[name, "certified_auc"] == pac.certificate(fits[name], selected_from=3).auc
    with pytest.raises(ValueError, match="gamma"):
        pac.compare({"one": fits[table.index[0]], "two": other})
    [axes] = canvas(1)
    pac.plots.plot_compare(table, ax=axes)
    assert [text.get_text() for text in axes.get_yticklabels()] == list(table.index)
    np.testing.assert_array_equal(axes.lines[1].get_xdata(), logs)


@fuzz(
    "decision_curve",
    "plots.plot_decision_curve",
    fast=10,
    data=finite,
    elsewhere=st.booleans(),
    probabilities=st.lists(st.floats(0.01, 0.99), min_size=1, max_size=4),
    prevalence=st.one_of(st.none(), st.floats(0.01, 0.99)),
)
def test_net_benefits(data, elsewhere, probabilities, prevalence):
    """Sums over rows; on the rows it was chosen with no threshold is better; the figure is the curve."""
    score, y = data
    options = {"probabilities": probabilities, "prevalence": prevalence}
    if elsewhere:
        options["chosen_with"] = (score[::-1], y)
    curve = pac.decision_curve(score, y, **options)
    share = y.mean() if prevalence is None else prevalence
    for k, p in enumerate(probabilities):

        def worth(at, price=p / (1 - p)):
            return share * np.mean(score[y] > at) - (1 - share) * price * np.mean(score[~y] > at)

        row = curve.isel(probability=k)
        assert float(row["net_benefit"]) == pytest.approx(worth(float(row["threshold"])), abs=1e-12)
        assert float(row["treat_all"]) == pytest.approx(worth(-np.inf), abs=1e-12)
        if not elsewhere:
            best = max(worth(at) for at in [*score, -np.inf])
            assert float(row["net_benefit"]) == pytest.approx(best, rel=1e-9, abs=1e-9)
    assert (curve["lower"] <= curve["upper"]).all()
    [axes] = canvas(1)
    pac.plots.plot_decision_curve({"rule": curve}, ax=axes)
    np.testing.assert_array_equal(axes.lines[2].get_ydata(), curve["net_benefit"])
    low, high = axes.get_ylim()
    assert low < high


def in_top(scores, share):
    return pac.summary(xr.DataArray(scores, dims=("draw", "row")), top=share)["in_top"].to_numpy()


@fuzz(
    "summary",
    draws=st.integers(1, 5),
    rows=st.integers(1, 9),
    levels=st.integers(1, 6),
    share=st.floats(0.01, 0.99),
    seed=seeds,
)
def test_who_is_in_the_top(draws, rows, levels, share, seed):
    """As many as fit in it; the order of rows and the scale of scores do not matter; ties have equal chances."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, levels, size=(draws, rows)).astype(float)
    found = in_top(scores, share)
    assert ((found >= 0) & (found <= 1 + 1e-12)).all()
    number = max(1, round(share * rows))
    assert found.sum() == pytest.approx(number)
    order = rng.permutation(rows)
    np.testing.assert_allclose(in_top(np.exp(scores[:, order]), share), found[order])
    expected = np.zeros(rows)
    for one in scores:
        chances = np.array([np.clip(number - np.sum(one > s), 0, np.sum(one == s)) / np.sum(one == s) for s in one])
        expected += chances / draws
    np.testing.assert_allclose(found, expected)
