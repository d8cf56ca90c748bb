import pickle
import re
from html.parser import HTMLParser

import numpy as np
import pytest

import pymc_pacauc as pac


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
                "P(&gt;\N{NO-BREAK SPACE}0)",
                "a&lt;b",
            ],
        ),
        ({"prior": "spike_slab", "gamma": "default"}, ["P(included)", "There is no certificate"]),
        ({"gamma": "certificate", "method": "vb"}, ["GaussianVB converged"]),
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
    parser = Balanced()
    parser.feed(re.sub(r"<!doctype html>", "", page))
    assert parser.open == []
    assert parser.fetched == []


def test_the_page_of_censored_times():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 2))
    y = np.column_stack([rng.random(60) < 0.7, rng.exponential(np.exp(-X[:, 0]))])
    page = pac.ConcordanceEstimator(gamma="default").fit(X, y).report(title="Times & events")
    assert "<h1>Times &amp; events</h1>" in page
    for words in ("Censored times", "concordance of rows left out", "Kaplan-Meier", "an early event"):
        assert words in page
    assert "AUC" not in page
