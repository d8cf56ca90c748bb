"""What notebooks show says what ``print`` says."""

import copy
import pickle
import re
from html import unescape

import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pymc_pacauc as pac


@pytest.fixture(scope="module")
def results():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 2))
    y = X[:, 0] + rng.normal(size=60) > 0.3
    with pm.Model(coords={"covariate": ["<a>", "b"]}) as model:
        scale = pm.Data("scale", [1.0, 1.0])
        theta = pm.Normal("theta", 0.0, scale, dims="covariate")
        pac.AUCPotential("auc", X @ theta, y, gamma=30.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    scores = pac.predict_scores(approx, X, random_seed=1)
    return {
        "approximation": approx,
        "selection": pac.select_gamma(model, [10.0, 30.0], folds=3, progressbar=False),
        "certificate": pac.certificate(approx),
        "matchings": pac.certificate(approx, bound="matchings"),
        "hold-out": pac.certify.holdout(scores, y),
        "split": pac.certify.split(model),
        "threshold": pac.choose_threshold(scores, y, fpr=0.2),
        "summary": pac.summary(approx),
        "evidence": pac.maximize_evidence(model, over=["scale"], progressbar=False),
    }


def words(html):
    """The text of a report, without tags and tables of pandas."""
    report = re.sub(r'(<div>\s*<style scoped>.*|<table border="1".*)', "", html, flags=re.DOTALL)
    assert report.count('<table class="dataframe">') == report.count("</table>") <= 1
    return unescape(re.sub(r"<[^>]+>", " ", report)).split()


@pytest.mark.parametrize(
    "name", ["approximation", "certificate", "matchings", "hold-out", "split", "threshold", "evidence"]
)
def test_reports_are_shown_word_for_word(results, name):
    printed = re.sub(r"^  - ", "", repr(results[name]), flags=re.MULTILINE)
    assert words(results[name]._repr_html_()) == printed.split()


def test_selection_shows_its_choice_and_its_table(results):
    html = results["selection"]._repr_html_()
    assert words(html) == repr(results["selection"]).removeprefix("GammaSelection(").removesuffix(")").split()
    assert html.count("<tr>\n      <td>") == len(results["selection"].table)


def test_summary_shows_its_report_above_its_table(results):
    table = results["summary"]
    html = table._repr_html_()
    assert words(html) == table.attrs["report"].split()
    assert "&lt;a&gt;" in html
    assert isinstance(table, pd.DataFrame)
    with pd.option_context("display.notebook_repr_html", False):
        assert table._repr_html_() is None


def test_summary_is_a_frame_like_any_other(results):
    table = results["summary"]
    assert type(table.head(1)) is type(table.T) is type(table[["mean"]]) is pd.DataFrame
    for twin in (copy.copy(table), copy.deepcopy(table), pickle.loads(pickle.dumps(table))):
        pd.testing.assert_frame_equal(twin, table, check_frame_type=False)
        assert twin.attrs["report"] == table.attrs["report"]


def test_marginals_are_drawn_onto_figures_of_arviz_plots(results):
    azp = pytest.importorskip("arviz_plots")  # of ArviZ 1
    plt = pytest.importorskip("matplotlib.pyplot")
    approx = results["approximation"]
    drawn = azp.plot_dist(approx.sample(100, random_seed=1), var_names=["theta"], backend="matplotlib")
    axes = drawn.viz["plot"]["theta"].values
    before = [len(axis.lines) for axis in axes]
    assert list(pac.plots.plot_marginals(approx, ax=axes)) == list(axes)
    assert [len(axis.lines) for axis in axes] == [lines + 2 for lines in before]  # the density of EP, and zero
    plt.close("all")
