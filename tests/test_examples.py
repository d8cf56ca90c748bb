"""Every example runs, without a warning, and ends in a figure."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

NAMES = [
    "quickstart",
    "sparse_dna",
    "imbalanced_noisy",
    "survival_gbsg2",
    "competing_risks",
    "wine_classes",
    "hierarchical_hospitals",
    "credit_loans",
]
NEEDS = {"survival_gbsg2": "sksurv", "hierarchical_hospitals": "lifelines"}  # of the extra "docs"
FOLDER = Path(__file__).parents[1] / "examples"


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_examples_end_in_a_figure(name, tmp_path, monkeypatch):
    plt = pytest.importorskip("matplotlib.pyplot")
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    plt.close("all")
    plt.switch_backend("Agg")
    monkeypatch.setattr(plt, "show", lambda: None)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--out", str(tmp_path)])  # where an example writes files
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    assert plt.get_fignums()
    figure = plt.figure(plt.get_fignums()[-1])
    figure.canvas.draw()
    assert np.ptp(np.asarray(figure.canvas.buffer_rgba())) > 0  # something is drawn
    plt.close("all")


def test_every_example_of_the_gallery_is_tested():
    others = {"__init__", "bart_scores", "reproduce_paper"}  # run by other tests; not part of the gallery
    assert {path.stem for path in FOLDER.glob("*.py")} - others == set(NAMES)
