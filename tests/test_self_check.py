import os
import subprocess
import sys

import numpy as np
import pytest

from pymc_pacauc import self_check
from tests.comparison.test_risk import brute_force
from tests.oracles import exact_plane


def test_exact_answers_are_those_of_the_oracle():
    X, y = self_check.rows()
    oracle = exact_plane(X, y, gamma=self_check.GAMMA)
    assert self_check.EXACT["log_evidence"] == pytest.approx(oracle.log_evidence, rel=1e-10)
    assert self_check.EXACT["expected_risk"] == pytest.approx(oracle.expected_risk, rel=1e-10)
    tied = np.round(X[:, 0], 1)
    assert self_check.EXACT["risk"] == pytest.approx(brute_force(tied, y)[0], rel=1e-14)
    assert len(set(tied)) < tied.size


def test_report_names_versions_and_passes():
    text, passed = self_check.report()
    assert passed
    assert f"numpy          {np.__version__}" in text
    assert text.count("\nok ") == 4


@pytest.mark.parametrize("broken", ["empirical_risk", "smc_evidence"])
def test_a_broken_engine_is_told(broken, monkeypatch):
    right = getattr(self_check, broken)
    monkeypatch.setattr(self_check, broken, lambda *arguments: right(*arguments) + 0.2)
    text, passed = self_check.report()
    assert not passed
    assert text.count("WRONG") == 1


@pytest.mark.slow
def test_warm_fills_the_caches(tmp_path):
    environment = {
        **os.environ,
        "NUMBA_CACHE_DIR": str(tmp_path / "numba"),
        "PYTENSOR_FLAGS": f"base_compiledir={tmp_path}/tensor",
    }
    command = [sys.executable, "-m", "pymc_pacauc", "--warm"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"kept in {tmp_path}/numba and {tmp_path}/tensor" in done.stdout
    kept = [path.name for path in (tmp_path / "numba").rglob("*.nbc")]
    for kernel in ("_add_part", "_bucket_rows"):
        assert any(kernel in name for name in kept)
