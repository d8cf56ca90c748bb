"""Comparison of models: evidence is the fits' own, and what cannot be compared is refused with a reason."""

import numpy as np
import pymc as pm
import pytest

import pymc_pacauc as pac
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem.problem import linear_gaussian_problem


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(120, 3))
    return X, X[:, 0] + 0.7 * rng.normal(size=120) > 0


def of(X, y, columns, gamma=100.0, method="ep"):
    return fit(linear_gaussian_problem(X[:, :columns], y, gamma), method)


def test_the_table(data):
    X, y = data
    fits = {"one": of(X, y, 1), "all": of(X, y, 3)}
    table = pac.compare(fits)
    logs = table["log_evidence"]
    assert table.index[0] == logs.idxmax()
    risk = pac.empirical_risk(X[:, 0], y)  # one coefficient: its sign is all that matters
    assert logs["one"] == pytest.approx(np.log(0.5) + np.logaddexp(-100.0 * risk, -100.0 * (1.0 - risk)), abs=0.01)
    assert abs(logs["all"] - fits["all"].log_evidence) < 1.0  # EP's own is off by a few tenths
    odds = np.exp(logs["one"] - logs["all"])
    assert table.loc["one", "probability"] / table.loc["all", "probability"] == pytest.approx(odds)
    assert table["auc_loss"].min() == 0
    assert (table["auc"] > 0.7).all()
    assert table.loc["all", "certified_auc"] == pac.certificate(fits["all"], selected_from=2).auc


def test_a_model_and_arrays_know_the_same_pairs(data):
    X, y = data
    with pm.Model():
        theta = pm.Normal("theta", size=3)
        pac.AUCPotential("auc", X @ theta, y, gamma=100.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    draws = approx.sample(10)
    table = pac.compare({"model": approx, "arrays": of(X, y, 3), "draws": draws})
    np.testing.assert_allclose(table["delta"], 0.0, atol=1e-6)
    assert np.isnan(table.loc["draws", "auc"])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda X, y: of(X, y, 3, gamma=50.0), "gamma"),
        (lambda X, y: of(X, ~y, 3), "number of positive rows|labels"),
        (lambda X, y: of(X, np.roll(y, 1), 3), "labels of the rows"),
        (lambda X, y: of(X[:100], y[:100], 3), "number of positive rows"),
        (lambda X, y: of(X, y, 3, method="vb"), "lower bound"),
    ],
)
def test_what_means_nothing_is_refused(data, change, reason):
    X, y = data
    with pytest.raises(ValueError, match=reason):
        pac.compare({"a": of(X, y, 2), "b": change(X, y)})


def test_figure(data):
    X, y = data
    axes = pac.plots.plot_compare(pac.compare({"one": of(X, y, 1), "all": of(X, y, 3)}, folds=0))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["one", "all"]
    assert "gamma = 100" in axes.get_xlabel()
