"""Figures show the numbers they were given, whatever these are."""

import warnings

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import assume
from hypothesis import strategies as st

import pymc_pacauc as pac
from tests.analysis.test_evaluate import finite
from tests.analysis.test_fuzz import DRAWS, fitted, selected
from tests.fuzzing import fuzz

mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")

seeds = st.integers(0, 2**20)
shares = st.lists(st.floats(0, 1), min_size=1, max_size=12)


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def canvas(*shape):
    """Axes of one figure, cleaned: a new one for every example would be slow."""
    figure = plt.figure(num=1)
    if len(figure.axes) != int(np.prod(shape)):
        figure.clear()
        figure.subplots(*shape)
    for axes in figure.axes:
        axes.clear()
    return np.array(figure.axes)


@fuzz("plots.plot_precision_recall", fast=5, data=finite)
def test_precision_recall_curves_are_drawn_as_they_are(data):
    score, y = data
    curve = pac.precision_recall(score, y)
    [axes] = canvas(1)
    pac.plots.plot_precision_recall({"one": curve, "two": curve}, ax=axes)
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), curve["precision"])
    assert len(axes.collections) == 2
    assert f"{curve.attrs['average_precision']:.3f}" in axes.get_legend().get_texts()[0].get_text()


@fuzz("plots.plot_roc", fast=10, data=finite)
def test_roc_curves_are_drawn_as_they_are(data):
    score, y = data
    assume(min(y.sum(), (~y).sum()) > 1)
    curve = pac.roc(score, y)
    [axes] = canvas(1)
    pac.plots.plot_roc({"one": curve, "two": curve}, ax=axes)
    np.testing.assert_array_equal(axes.lines[1].get_ydata(), curve["tpr"])
    assert len(axes.collections) == 2
    assert f"{curve.attrs['auc']:.3f}" in axes.get_legend().get_texts()[0].get_text()


@fuzz("plots.plot_scores", fast=10, data=finite, threshold=st.floats(-10, 10))
def test_scores_are_drawn_where_they_are(data, threshold):
    """Of any scores, constant ones too; or of any size that a density can have."""
    score, y = data
    score = np.arctan(score)
    [axes] = canvas(1)
    pac.plots.plot_scores(score, y, threshold=threshold, ax=axes)
    marks = [line for line in axes.lines if line.get_marker() == "|"]
    np.testing.assert_array_equal(np.sort(marks[0].get_xdata()), np.sort(score[~y]))
    np.testing.assert_array_equal(np.sort(marks[1].get_xdata()), np.sort(score[y]))
    assert axes.lines[-1].get_xdata()[0] == threshold
    assert all(np.isfinite(line.get_ydata()).all() for line in axes.lines)


@fuzz("plots.plot_shapes", fast=2, digits=st.integers(0, 2), ci_prob=st.floats(0.1, 0.99), seed=st.integers(0, 10**6))
def test_shapes_are_those_of_the_posterior(digits, ci_prob, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(30, 2)).round(digits)
    fitted = pac.AUCClassifier("additive", gamma=20.0, calibration=None).fit(X, np.arange(30) % 2)
    axes = pac.plots.plot_shapes(fitted, columns=["x1", "x0"], ci_prob=ci_prob, ax=canvas(2))
    for ax, (x, mean, _) in zip(axes, fitted.scores_[0].posterior.shapes()[::-1], strict=True):
        np.testing.assert_array_equal(ax.lines[-1].get_xydata(), np.column_stack([x, mean]))
        assert len(ax.collections) == 1


@fuzz("plots.plot_inclusion", fast=10, probabilities=shares)
def test_inclusion_is_drawn_largest_first(probabilities):
    values = np.array(probabilities)
    [axes] = canvas(1)
    pac.plots.plot_inclusion(values, ax=axes)
    drawn = axes.collections[-1].get_offsets()[:, 0]
    np.testing.assert_array_equal(drawn, np.sort(values)[::-1][:40])
    names = [text.get_text() for text in axes.get_yticklabels()]
    np.testing.assert_array_equal(values[np.array(names, dtype=int)], drawn)
    with pytest.raises(ValueError, match=r"numbers in \[0, 1\]"):
        pac.plots.plot_inclusion(values + 1.5, ax=axes)


@fuzz(
    "plots.plot_regularization_path",
    fast=15,
    values=st.integers(1, 5),
    columns=st.integers(1, 9),
    seed=seeds,
    gap=st.booleans(),
)
def test_paths_are_drawn_as_they_are(values, columns, seed, gap):
    """Values that are missing, of fits that did not converge, leave gaps."""
    rng = np.random.default_rng(seed)
    coefficient, inclusion = rng.normal(size=(values, columns)), rng.random((values, columns))
    if gap:
        coefficient[0], inclusion[0] = np.nan, np.nan
    path = xr.Dataset(
        {"coefficient": (("v0", "feature"), coefficient), "inclusion_probability": (("v0", "feature"), inclusion)},
        coords={"v0": np.geomspace(1e-4, 0.1, values)},
    )
    [axes] = canvas(1)
    if gap and values == 1:
        with pytest.raises(ValueError, match="path has no fit that converged"):
            pac.plots.plot_regularization_path(path, ax=axes)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pac.plots.plot_regularization_path(path, ax=axes)
    for k in range(columns):
        np.testing.assert_array_equal(axes.lines[k].get_ydata(), coefficient[:, k])
    circled = sum(len(each.get_offsets()) for each in axes.collections)
    assert circled == np.sum(inclusion >= 0.5)


@fuzz("plots.plot_marginals", fast=3, draws=st.booleans())
def test_marginals_are_the_densities(draws):
    _, approx, idata = fitted()
    drawn = pac.plots.plot_marginals(approx, idata if draws else None, ax=canvas(1, 3))
    mean, sd = approx.posterior.mean, np.sqrt(np.diagonal(approx.posterior.covariance))
    for k, (axes, name) in enumerate(zip(drawn, "abc", strict=True)):
        line = axes.lines[0]
        density = line.get_ydata() * np.gradient(line.get_xdata())  # of 4000 draws, smoothed: the law is no Gaussian
        found = density @ line.get_xdata()
        assert density.sum() == pytest.approx(1.0, abs=0.01)
        assert found == pytest.approx(mean[k], abs=0.1 * sd[k])
        assert np.sqrt(density @ (line.get_xdata() - found) ** 2) == pytest.approx(sd[k], rel=0.1)
        assert axes.get_title() == f"theta[{name}]"


@fuzz("plots.plot_gamma_path", fast=10, size=st.integers(1, 6), seed=seeds, folds=st.booleans())
def test_choices_of_gamma_are_drawn_as_they_are(size, seed, folds):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "gamma": np.sort(10 ** rng.uniform(-1, 3, size)),
            **{name: rng.random(size) if folds else np.nan for name in ("auc", "expected_auc", "loss_se")},
            **{name: rng.random(size) for name in ("training_auc", "certified_auc", "log_evidence")},
            "within": rng.random(size) < 0.5,
        }
    )
    best = float(table["gamma"][seed % size])
    _, approx, _ = fitted()
    fold = np.empty((0, 0), dtype=int)
    result = pac.results.GammaSelection(table, best, approx, "auc", "EP", fold, np.empty((size, 0, 0)))
    top, bottom = pac.plots.plot_gamma_path(result, ax=canvas(2, 1))
    np.testing.assert_array_equal(bottom.lines[-1].get_ydata(), table["log_evidence"])
    shown = {line.get_label(): line.get_ydata() for line in top.lines}
    np.testing.assert_array_equal(shown["certified"], table["certified_auc"])
    assert ("a draw, held out" in shown) == folds


@fuzz(
    "plots.plot_tempering",
    "plots.plot_gamma_path",
    fast=10,
    draws=st.lists(st.integers(0, DRAWS - 1), min_size=1, max_size=40),
    chains=st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True),
)
def test_stages_are_drawn_as_they_are(draws, chains):
    _, _, idata = fitted()
    part = selected(idata, draws, chains)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pac.results.TemperingWarning)  # stages that no draw carries are left out
        path = pac.tempering_path(part)
        axes = pac.plots.plot_tempering(part, ax=canvas(1, 3))
        for k in range(len(chains)):
            np.testing.assert_array_equal(axes[1].lines[k].get_ydata(), path["ess"].values[k])
        top, _ = pac.plots.plot_gamma_path(part, ax=canvas(2, 1))
    assert len(top.lines) == len(chains)


@fuzz("plots.plot_survival", fast=10, n=st.integers(6, 30), groups=st.integers(2, 4), seed=seeds)
def test_survival_is_that_of_each_group(n, groups, seed):
    """Curves from one down to the product of the shares that stay, in groups of rows by score."""
    rng = np.random.default_rng(seed)
    scores, time, event = rng.normal(size=n), rng.integers(1, 6, n).astype(float), rng.random(n) < 0.7
    assume(event[time < time.max()].any())
    [axes] = canvas(1)
    pac.plots.plot_survival(scores, time, event, groups=groups, ax=axes)
    group = np.searchsorted(np.quantile(scores, np.arange(1, groups) / groups), scores)
    curves = [line for line in axes.lines if line.get_drawstyle() == "steps-post"]
    assert len(curves) == groups
    for k, line in enumerate(curves):
        at, dead = time[group == k], event[group == k]
        left = np.prod([1 - np.sum(dead & (at == t)) / np.sum(at >= t) for t in np.unique(at)])
        share = line.get_ydata()
        assert share[0] == 1.0
        assert (np.diff(share) <= 1e-12).all()
        assert share[-1] == pytest.approx(left, abs=1e-12)
