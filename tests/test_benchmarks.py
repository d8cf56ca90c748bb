import ast
import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import overhead
from benchmarks.paired import Table, paired, splits
from benchmarks.paper_ep import fit_paper_ep
from benchmarks.report import SCRIPTS, printed_before, section, summary
from pymc_pacauc import fitting
from pymc_pacauc.problem.problem import linear_gaussian_problem
from tests.reference_ep import reference_ep

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def data():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(30, 3))
    return X, (X[:, 0] + rng.normal(size=30) > 0.3).astype(int)


def test_the_papers_ep_reaches_the_fixed_point_of_the_package(data):
    X, y = data
    mean, covariance, sweeps = fit_paper_ep(X, y, 30.0, tolerance=1e-10)
    for other in (
        fitting.fit(linear_gaussian_problem(X, y, 30.0), tolerance=1e-10).posterior.mean,
        reference_ep(X, y, 30.0)[0],
    ):
        np.testing.assert_allclose(mean, other, rtol=1e-6)
    assert sweeps > 10
    np.testing.assert_allclose(covariance, covariance.T, rtol=1e-10)


def test_splits_are_stratified():
    y = np.repeat([1, 0], [9, 90])
    for train in splits(y, 2 / 3, 3):
        assert (train[y == 1].sum(), train[y == 0].sum()) == (6, 60)


def test_paired_differences():
    assert paired([0.01, 0.02, 0.03]) == ("+0.0200 ± 0.0058", 0)
    assert paired([0.019, 0.020, 0.021]) == ("**+0.0200 ± 0.0006**", 1)
    assert paired([-0.019, -0.020, -0.021])[1] == -1


def test_verdicts_go_to_the_top_of_the_page(capsys):
    table = Table()
    auc = {"EP-AUC": [0.8, 0.8, 0.8], "EP-AUC, gamma by the mean score": [0.8, 0.7, 0.9], "peer": [0.71, 0.7, 0.72]}
    table.add("pima", auc, {name: [1.0] for name in auc})
    table.summarize("AUC")
    printed = capsys.readouterr().out + "\n## Part\n"
    assert "| pima | peer | 0.7100 | **+0.0900 ± 0.0058** | +0.0900 ± 0.0520 | 1.00 |" in printed
    top, body = summary([printed]), section("Title", "command", printed)
    assert "### What we win\n\n- AUC: EP-AUC is ahead of peer (pima).\n" in top
    assert "- AUC: EP-AUC, gamma by the mean score does not differ significantly from peer.\n" in top
    assert "\n<!-- Won: AUC: EP-AUC is ahead of peer (pima). -->\n" in body
    assert "### Part" in body
    assert printed_before(f"# Page\n\n## In short\n\n{body}\n{section('Next', 'command', 'More.')}") == {
        "In short": "",
        "Title": printed.strip(),
        "Next": "More.",
    }


def test_every_script_of_the_report_exists():
    assert all((BENCHMARKS / f"{name}.py").exists() for name in SCRIPTS)


@pytest.mark.parametrize("script", sorted(BENCHMARKS.glob("*.py")), ids=lambda path: path.stem)
def test_scripts_import_what_the_package_has(script):
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "pymc_pacauc":
            module = importlib.import_module(node.module)
            for each in node.names:
                if not hasattr(module, each.name):
                    importlib.import_module(f"{node.module}.{each.name}")


@pytest.mark.slow
def test_risk_keeps_its_speed():
    command = [sys.executable, "-m", "benchmarks.risk", "--repeats", "7"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in printed.splitlines() if "|" in line]
    (risk,) = [row for row in rows if row[0] == "`empirical_risk(scores, y)`"]
    faster_than_the_loop, times_the_product = float(risk[2]), float(risk[3])
    assert faster_than_the_loop >= 100
    assert times_the_product <= 5
    assert all(
        float(row[3]) < 1e-12 for row in rows[rows.index(risk) :] if row[0] in ("lognormal", "cauchy", "clusters")
    )


@pytest.mark.slow
def test_certificates_hold():
    command = [sys.executable, "-m", "benchmarks.certificates", "--datasets", "50", "--largest", "600"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # fails above epsilon
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in printed.splitlines() if "|" in line]
    (pima,) = [row for row in rows if row[:2] == ["532", "0.867"]]
    value = {name: float(cell.split()[0]) for name, cell in zip(rows[0][6:], pima[6:], strict=True)}
    assert value["draw: matchings"] > 0.75 > value["draw: Catoni"]
    assert value["part: matchings"] > 0.78
    assert value["mean: split"] > 0.58


@pytest.mark.slow
def test_pymc_costs_less_than_the_work():
    """A repeated fit, a choice of gamma and a step at most twice the arrays, the first fit five times."""
    repeated, first, selected, step, _ = (through / base for _, base, through in overhead.measured())
    assert max(repeated, selected, step) < 2.0
    assert first < 5.0
