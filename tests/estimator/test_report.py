import pickle
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.stats import norm
from sklearn.metrics import precision_score, recall_score, roc_auc_score

import pymc_pacauc as pac
from pymc_pacauc.estimator import report
from pymc_pacauc.estimator.report import with_figures


class Balanced(HTMLParser):
    """Counts what is open, and collects what is fetched from elsewhere."""

    VOID = ("meta", "br", "path", "use", "rect", "circle", "line")

    def __init__(self):
        super().__init__()
        self.open, self.fetched = [], []

    def handle_starttag(self, tag, attrs):
        self.open += [tag] if tag not in self.VOID else []
        self.fetched += [value for name, value in attrs if name in ("src", "href") and not value.startswith("#")]

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {},
            [
                "AUC of rows left out",
                "positive: True",
                "sensitivity",
                "Calibration",
                "certified",
                "P(&gt; 0)",
                "a&lt;b",
                "Intervals are calibrated",
            ],
        ),
        ({"prior": "spike_slab", "gamma": "default"}, ["inclusion", "There is no certificate", "not calibrated"]),
        ({"gamma": "certificate", "method": "vb"}, ["GaussianVB converged"]),
        ({"gamma": "default", "method": "smc"}, ["EP converged", "certified"]),
        ({"multi_class": "ovo", "gamma": "default"}, ["2 against the rest", "Hand and Till"]),
    ],
)
def test_the_page_stands_alone(tmp_path, options, words):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(1)
    X = pd.DataFrame(rng.normal(size=(120, 2)), columns=["a<b", "c"])
    score = X["c"] + 0.7 * rng.normal(size=120)
    y = np.digitize(score, [-0.5, 0.5]) if "multi_class" in options else score > 0
    found = pac.AUCClassifier(**options).fit(X, y)
    assert found.report(tmp_path / "page.html") == tmp_path / "page.html"
    page = (tmp_path / "page.html").read_text()
    assert page == found.report()
    assert pickle.loads(pickle.dumps(found)).report() == page
    assert page.count("<svg") == page.count('<svg role="img" aria-label=')
    for word in words:
        assert word in page
    assert ("Draws by tempering SMC, log evidence" in page) == (options.get("method") == "smc")
    parser = Balanced()
    parser.feed(re.sub(r"<!doctype html>", "", page))
    assert parser.open == []
    assert parser.fetched == []


@pytest.fixture(scope="module")
def censored():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 2))
    event, time = rng.random(60) < 0.7, rng.exponential(np.exp(-X[:, 0]))
    return pac.ConcordanceEstimator(gamma="default").fit(X, np.column_stack([event, time])), event, time


def test_the_page_of_censored_times(censored):
    page = censored[0].report(title="Times & events")
    assert "<h1>Times &amp; events</h1>" in page
    for words in ("Censored times", "concordance of rows left out", "Kaplan-Meier", "an early event"):
        assert words in page
    assert "AUC" not in page


def test_figures_of_censored_times(censored, monkeypatch):
    """Kaplan-Meier curves of thirds, and the concordance of rows left out, by their definitions."""
    found, event, time = censored
    score = with_figures(found, found.scores_[0])
    figures, risk = score.figures, score.held_out
    first, later = np.nonzero((time[:, None] < time) & event[:, None])
    assert figures.pairs == first.size
    assert figures.held_out == pytest.approx(np.mean(risk[first] > risk[later]))
    assert (figures.rows, figures.events) == (60, event.sum())
    cuts = np.quantile(risk, [1 / 3, 2 / 3])
    axes = drawn(monkeypatch, report._kaplan_meier, figures)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["low", "middle", "high"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("time", "share without the event")
    assert axes.get_ylim() == (0.0, 1.02)
    for k, curve in enumerate(figures.survival):
        third = np.digitize(risk, cuts) == k
        at = np.unique(time[third])
        deaths = [np.sum(event[third] & (time[third] == t)) / np.sum(time[third] >= t) for t in at]
        expected = np.cumprod(1.0 - np.array(deaths))
        np.testing.assert_allclose(np.interp(at, *curve), expected, atol=1e-12)
        np.testing.assert_array_equal(axes.lines[k].get_xydata().T, curve)
    share = f"{event.mean():.0%}"
    assert report._facts(figures, 0) == [
        ("concordance of rows left out", f"{figures.held_out:.3f}"),
        (f"events among 60 rows ({share})", str(event.sum())),
    ]


@pytest.fixture(scope="module")
def reported():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(90, 3)) * [1.0, 5.0, 0.2]
    y = X[:, 0] + 0.3 * X[:, 1] + rng.normal(size=90) > 0.5
    found = pac.AUCClassifier().fit(X, y)
    weighted = replace(found.scores_[0], weights=rng.gamma(4.0, size=90), figures=None)  # a fit by weights takes longer
    return found, y, with_figures(found, weighted)


def drawn(monkeypatch, draw, *arguments):
    """The axes that a figure is drawn on."""
    axes = Figure().subplots()
    monkeypatch.setattr(report, "_figure", lambda draws, caption: draws(axes))
    draw(*arguments)
    return axes


def test_figures_of_rows_left_out(reported):
    """Against scikit-learn, and against sums by hand."""
    _, y, score = reported
    [found], held_out = score.figures.boundaries, score.held_out
    assert found.name == "True"
    auc = found.measures["auc"]
    assert (found.share, auc) == pytest.approx((y.mean(), roc_auc_score(y, held_out)), abs=1e-12)
    assert found.weighted
    probability = score.maps[0](held_out)
    for rate, (at, sensitivity, specificity, ppv, npv) in zip((0.05, 0.1, 0.2, 0.5), found.cuts, strict=True):
        assert at == pytest.approx(np.quantile(probability[~y], 1.0 - rate))
        called = probability > at
        assert sensitivity == pytest.approx(recall_score(y, called))
        assert specificity == pytest.approx(recall_score(~y, ~called))
        assert ppv == pytest.approx(precision_score(y, called, zero_division=np.nan), nan_ok=True)
        assert npv == pytest.approx(precision_score(~y, ~called))
    order, start = np.argsort(probability, kind="stable"), 0
    for mean, share, number in found.bins.T:
        rows = order[start : (start := start + int(number))]
        weight = score.weights[rows] / score.weights[rows].sum()
        assert (mean, share) == pytest.approx((weight @ probability[rows], weight @ y[rows]))
    assert start == 90
    assert score.figures.pairs == y.sum() * (~y).sum()
    assert score.figures.by == "by folds"


def test_a_threshold_that_no_row_exceeds_has_no_precision():
    found = pac.AUCClassifier("ridge", gamma=10.0).fit(np.ones((60, 2)), np.arange(60) % 3 == 0)
    [boundary] = report.figures_of(found, found.scores_[0]).boundaries
    np.testing.assert_array_equal(boundary.cuts[:, 1:4], [[0.0, 1.0, np.nan]] * 4)


def test_what_is_drawn(reported, monkeypatch):
    _, _, score = reported
    [boundary] = score.figures.boundaries
    chance, curve = drawn(monkeypatch, report._roc, boundary).lines
    np.testing.assert_array_equal(curve.get_xydata().T, boundary.roc[:2])
    np.testing.assert_array_equal(chance.get_xydata(), [[0, 0], [1, 1]])
    axes = drawn(monkeypatch, report._calibration, boundary)
    [(points, _, [bars])] = axes.containers
    np.testing.assert_array_equal(points.get_xydata().T, boundary.bins[:2])
    _, share, rows = boundary.bins
    ends = np.array([segment[:, 1] for segment in bars.get_segments()])
    sd = np.sqrt(np.maximum(share * (1 - share), 0.25 / rows) / rows)
    np.testing.assert_allclose((ends[:, 1] - ends[:, 0]) / 2.0, norm.ppf(0.5 + report.CI_PROB / 2.0) * sd)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("probability", f"share of {boundary.name}")
    assert axes.get_xlim() == axes.get_ylim() == (0.0, 1.0)


def test_the_headline_and_thresholds(reported):
    _, _, score = reported
    [found] = score.figures.boundaries
    auc, low, high = (found.measures[each] for each in ("auc", "auc_lower", "auc_upper"))
    assert 0.0 < low < auc < high < 1.0
    plain = pac.auc_interval(score.held_out, score.outcome > 0, ci_prob=report.CI_PROB)  # given the fits of five folds
    assert (high - low) / (plain.upper - plain.lower) == pytest.approx(np.sqrt(1.0 + 1.0 / 4.0), rel=0.05)
    assert [value for _, value in report._facts(score.figures, 0)] == [
        f"{auc:.3f}",
        f"{low:.3f} to {high:.3f}",
        f"{found.share:.1%}",
    ]
    assert "interval over groups" in report._facts(score.figures, 7)[1][0]
    cells = cells_of(report._thresholds(found))
    expected = [[f"{at:.3f}", *(f"{share:.1%}" for share in shares)] for at, *shares in found.cuts]
    assert cells == [[cell.replace("nan%", "-") for cell in row] for row in expected]


def cells_of(page):
    """The cells of the rows of the first table on the page, without its header."""
    body = page[page.index("<tbody>") : page.index("</tbody>")]
    return [re.findall(r"<t[hd]>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)]


def test_coefficients(reported, monkeypatch):
    """In units of the columns' standard deviation, the largest first, as a table and drawn."""
    found, _, score = reported
    mean, sd = (each * score.posterior.columns.scale for each in (score.posterior.coef, score.posterior.coef_sd))
    order = np.argsort(-np.abs(mean))
    half = norm.ppf(0.5 + report.CI_PROB / 2.0) * sd
    for cells, k in zip(cells_of(report._coefficients(found, score.posterior)), order, strict=True):
        numbers = [mean[k], sd[k], mean[k] - half[k], mean[k] + half[k], norm.cdf(mean[k] / sd[k])]
        assert cells == [f"x{k}", *(f"{number:.3f}" for number in numbers)]
    monkeypatch.setattr(report, "_side_by_side", lambda drawings: "")
    axes = Figure().subplots()
    monkeypatch.setattr(report, "_figure", lambda draw, caption, height: draw(axes))
    report._coefficients(found, score.posterior)
    [(points, _, [bars])] = axes.containers
    np.testing.assert_allclose(points.get_xydata()[:, 0], mean[order], atol=1e-6)
    ends = np.array([segment[:, 0] for segment in bars.get_segments()])
    np.testing.assert_allclose(ends, np.column_stack([mean - half, mean + half])[order], atol=2e-6)
