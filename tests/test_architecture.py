"""docs/develop/architecture.md tells the truth: lives are those recorded, hops exist, the graph is the source's."""

import importlib
import re
import sys

import numpy as np
import pymc as pm
import pytest

import pymc_pacauc as pac
from docs.import_graph import PAGE, ROOT, renewed

HOPS = re.findall(r"`(pymc_pacauc/[\w/]+\.py)`: `([\w.]+)`", PAGE.read_text())


@pytest.mark.parametrize(("file", "name"), HOPS)
def test_hops_exist(file, name):
    expected = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    found = importlib.import_module(expected)
    for part in name.split("."):
        found = getattr(found, part)
    module = getattr(found, "__module__", None)
    assert module == expected, f"{name} is defined in {module}"


PACKAGE = f"{ROOT / 'pymc_pacauc'}/"
# What every part uses: descriptions of pairs, scores and models, and the plumbing. They lead nowhere.
LEAVES = ("comparison/", "problem/", "numerics.py", "interrupt.py", "model/auc_term.py")


def frames_of(frame):
    """The frames of the package's own code from one outwards."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(PACKAGE):
            yield frame.f_code.co_filename.removeprefix(PACKAGE), frame.f_code.co_qualname
        frame = frame.f_back


def walk(call):
    """Files that lead to others, in the order they are first entered, and the calls of functions between them."""
    entered, calls = {}, set()

    def profile(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            (file, name), *outer = frames_of(frame)
            outer = [each for each, _ in outer if not each.startswith(LEAVES)]
            entered.setdefault(file, outer[0] if outer else None)
            if outer and "." not in name:  # methods belong to what is handed on
                calls.add((outer[0], file))

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return [file for file in entered if file in entered.values() and not file.startswith(LEAVES)], calls


@pytest.fixture(scope="module")
def lives():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 3))
    y = X[:, 0] + rng.normal(size=60) > 0
    with pm.Model() as model:
        pac.AUCPotential("auc", X @ pm.Normal("theta", size=3), y, gamma=40.0)

    def fit():
        with model:
            return pm.fit(method=pac.EP(n_jobs=1), progressbar=False)

    def sample():
        with model:
            step = pac.TemperingSMC(particles=100)
            pm.sample(20, tune=15, step=step, chains=1, cores=1, random_seed=1, progressbar=False, quiet=True)

    approx = fit()
    return {
        "pm.fit(method=pac.EP())": fit,
        "pm.sample(step=pac.TemperingSMC())": sample,
        "pac.select_gamma(model)": lambda: pac.select_gamma(model, [20.0, 40.0], 2, progressbar=False),
        "pac.AUCClassifier().fit(X, y)": lambda: pac.AUCClassifier().fit(X, y),
        "pac.certificate(result)": lambda: pac.certificate(approx),
    }


def told():
    """The files of each life that the page lists, by the call."""
    section = PAGE.read_text().split("## The life of a call")[1].split("\n## ")[0]
    _, *parts = re.split(r"^`(.*)`:$", section, flags=re.MULTILINE)
    listed = r"^\d+\. `pymc_pacauc/([\w/]+\.py)`"
    return {
        call: re.findall(listed, text, flags=re.MULTILINE) for call, text in zip(parts[::2], parts[1::2], strict=True)
    }


@pytest.mark.parametrize("name", told())
def test_lives_are_those_of_the_page(lives, name):
    lives[name]()  # once before, so that nothing is imported or compiled on the way
    hops, calls = walk(lives[name])
    assert hops == told()[name]
    assert len(hops) <= 12
    place = {file: k for k, file in enumerate(hops)}
    back = [each for each in calls if set(each) <= set(hops) and place[each[0]] > place[each[1]]]
    assert not back


def test_the_import_graph_is_drawn_from_the_source():
    assert PAGE.read_text() == renewed(PAGE.read_text()), "run python docs/import_graph.py --write"
