import dataclasses
import re
from pathlib import Path

import pytest

import pymc_pacauc as pac
from benchmarks import readme

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
ALL = [path for path in sorted((ROOT / "docs").glob("**/*.md")) if not {"_build", "gallery"} & set(path.parts)]
NOTEBOOKS = [path for path in ALL if "file_format: mystnb" in path.read_text()]
PAGES = [*(path for path in ALL if path not in NOTEBOOKS), ROOT / "CONTRIBUTING.md"]
API = (ROOT / "docs" / "reference" / "api.md").read_text()
STATS = (ROOT / "docs" / "reference" / "sample_stats.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE):
        exec(compile(block, page.name, "exec"), names)


def test_readme_shows_what_its_code_prints():
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.close("all")
    assert readme.run(README.read_text()) == README.read_text(), "python -m benchmarks.readme renews it"
    assert len(plt.get_fignums()) == 1  # the figure, which that command writes
    plt.close("all")
    assert readme.FIGURE.exists()


def test_readme_has_the_tables_of_the_benchmarks():
    page = (ROOT / "docs" / "theory" / "benchmark_tables.md").read_text()
    assert readme.with_tables(README.read_text(), page) == README.read_text(), "python -m benchmarks.readme renews it"


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("page", NOTEBOOKS, ids=lambda page: str(page.relative_to(ROOT)))
def test_notebooks_run(page):
    plt = pytest.importorskip("matplotlib.pyplot")
    names = {}
    for block in re.findall(
        r"^```\{code-cell\}[^\n]*\n(?::[^\n]*\n)*(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE
    ):
        try:
            exec(compile(block, page.name, "exec"), names)
        except ModuleNotFoundError as error:
            pytest.skip(str(error))
    plt.close("all")


@pytest.mark.parametrize("name", pac.__all__)
def test_every_public_name_is_in_the_reference(name):
    assert re.search(rf"^   {name}$", API, flags=re.MULTILINE)


@pytest.mark.parametrize("name", pac.TemperingSMC.stats_dtypes_shapes)
def test_every_sample_stat_is_explained(name):
    assert f"`{name}`" in STATS


def test_every_field_of_a_record_is_named_and_no_other():
    named = set(re.findall(r"`fitted_(\w+)`", STATS))
    assert named == {field.name for field in dataclasses.fields(pac.results.Provenance)}


@pytest.mark.parametrize("page", [README, *PAGES, *NOTEBOOKS], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_paths_and_what_is_said_to_be_in_them_exist(page):
    text = page.read_text()
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (page.parent / link).exists(), link
    for path in re.findall(r"`((?:pymc_pacauc|benchmarks|examples|tests|docs)/[\w/.]+)`", text):
        assert (ROOT / path).exists(), path
    for path, names in re.findall(r"`(pymc_pacauc/[\w/]+\.py)`((?:: (?:`[\w.]+`(?:, | and )?)+)?)", text):
        source = (ROOT / path).read_text()
        for name in re.findall(r"`(?:\w+\.)*(\w+)`", names):
            assert re.search(rf"\b{name}\b", source), (path, name)
    for script in re.findall(r"python -m benchmarks\.(\w+)", text):
        assert (ROOT / "benchmarks" / f"{script}.py").exists(), script
