"""docs/architecture.md tells the truth: every hop exists, no life has more than ten, the graph is the source's."""

import importlib
import re

import pytest

from docs.import_graph import PAGE, renewed

HOPS = re.findall(r"`(pymc_pacauc/[\w/]+\.py)`: `([\w.]+)`", PAGE.read_text())


@pytest.mark.parametrize(("file", "name"), HOPS)
def test_hops_exist(file, name):
    found = importlib.import_module(file.removesuffix(".py").replace("/", "."))
    for part in name.split("."):
        found = getattr(found, part)
    module = getattr(found, "__module__", None)
    assert module == file.removesuffix(".py").replace("/", "."), f"{name} is defined in {module}"


def test_no_life_is_longer_than_ten_hops():
    section = PAGE.read_text().split("## The life of a call")[1].split("\n## ")[0]
    calls = re.split(r"^`.*`:$", section, flags=re.MULTILINE)
    lives = [re.findall(r"^\d+\.", call, flags=re.MULTILINE) for call in calls]
    assert len(lives) == 5
    assert all(1 < len(life) <= 10 for life in lives[1:])


def test_the_import_graph_is_drawn_from_the_source():
    assert PAGE.read_text() == renewed(PAGE.read_text()), "run python docs/import_graph.py --write"
