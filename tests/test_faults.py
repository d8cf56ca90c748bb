"""Faults of the machine: folders nobody can write, full disks, damaged files, threads in each other's way."""

import math
import os
import re
import shutil
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import pymc_pacauc as pac
from pymc_pacauc.ep.sweep import tile_map

PACKAGE = Path(pac.__file__).parent

ONE_PAIR_WRONG = """
    import warnings
    import numpy as np
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        import pymc_pacauc as pac
        from pymc_pacauc.comparison.pairs import bipartite
        from pymc_pacauc.comparison.surrogate import surrogate_risk
        scores, labels = np.array([0.0, 2.0, 1.0]), np.array([0, 0, 1])
        print(pac.empirical_risk(scores, labels), round(surrogate_risk(scores, bipartite(labels))[0], 6))
    print(*(str(w.message) for w in caught), sep="\\n")
"""


# The logistic loss in bits of margins 1 and -1.
EXPECTED = f"0.5 {math.log2((1 + math.exp(-1)) * (1 + math.e)) / 2:.6f}"


def run(folder, code, **environment):
    """What ``code`` prints, without the current folder's or the user's own settings."""
    inherited = {name: value for name, value in os.environ.items() if name not in {"NUMBA_CACHE_DIR", "XDG_CACHE_HOME"}}
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=folder,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@pytest.fixture
def read_only(tmp_path):
    """The package where no ``__pycache__`` can be made, whoever the user is."""
    shutil.copytree(PACKAGE, tmp_path / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [path for path in tmp_path.rglob("*") if path.is_dir()]:
        (folder / "__pycache__").touch()
    return tmp_path


NO_HOME = {"HOME": os.devnull, "LOCALAPPDATA": os.devnull}


@pytest.mark.parametrize("environment", [{}, {"NUMBA_CACHE_DIR": os.devnull}], ids=["no home", "no cache folder"])
def test_no_folder_can_be_written(read_only, environment):
    risks, *messages = run(read_only, ONE_PAIR_WRONG, **NO_HOME, **environment)
    assert risks == EXPECTED
    assert len(messages) == 1
    assert "NUMBA_CACHE_DIR" in messages[0]


@pytest.mark.slow
def test_the_advice_can_be_followed(read_only, tmp_path_factory):
    writable = tmp_path_factory.mktemp("cache")
    assert run(read_only, ONE_PAIR_WRONG, **NO_HOME, NUMBA_CACHE_DIR=str(writable)) == ["0.5 1.0", ""]
    assert list(writable.rglob("*.nbi"))


# A file can have this many bytes: none, or enough for the index of a kernel and not for its code.
LIMITED = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, ({0}, {0}))\n"


@pytest.mark.skipif(sys.platform == "win32", reason="sizes of files cannot be limited")
@pytest.mark.parametrize("size", [0, 3000])
def test_the_disk_of_the_cache_is_full(tmp_path, size):
    code = LIMITED.format(size) + textwrap.dedent(ONE_PAIR_WRONG)
    risks, *messages = run(PACKAGE.parent, code, NUMBA_CACHE_DIR=str(tmp_path))
    assert risks == EXPECTED
    assert len(messages) == 1
    assert "NUMBA_CACHE_DIR" in messages[0]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


KERNEL = """
from pymc_pacauc.numerics import kernel

@kernel
def answer():
    return {}
"""
ASK = """
    from answers import answer
    print(answer(), sum(answer.stats.cache_hits.values()))
"""


@pytest.fixture
def answers(tmp_path):
    """A module of one kernel, and how to run it: its answer, and how often that came from the cache."""
    (tmp_path / "answers.py").write_text(KERNEL.format(1))
    environment = {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(PACKAGE.parent)}

    def ask(before=""):
        return run(tmp_path, before + textwrap.dedent(ASK), **environment, PYTHONDONTWRITEBYTECODE="1")[0]

    assert [ask(), ask()] == ["1 0", "1 1"]
    return tmp_path, ask


def test_files_of_the_cache_that_were_cut_short_are_written_again(answers):
    folder, ask = answers
    for suffix, size in ("nbi", 0), ("nbc", 60):  # the index, and the code
        (file,) = folder.rglob(f"*.{suffix}")
        file.write_bytes(file.read_bytes()[:size])
        assert [ask(), ask()] == ["1 0", "1 1"]
    if sys.platform == "win32":  # sizes of files cannot be limited
        return
    # Code that could not be written is not taken for the older code that is there.
    (folder / "answers.py").write_text(KERNEL.format(20))
    (index,) = folder.rglob("*.nbi")
    enough_for_the_index = index.stat().st_size + 500
    assert ask(LIMITED.format(enough_for_the_index)) == "20 0"
    assert [ask(), ask()] == ["20 0", "20 1"]


def test_every_kernel_has_this_cache():
    users = [file.name for file in PACKAGE.rglob("*.py") if re.search(r"\bnjit\b", file.read_text())]
    assert users == ["numerics.py"]


def blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def set_blas_threads(number):
    """From a thread that ends: threadpoolctl takes no orders from others while the thread that gave one lives."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(threadpool_limits, limits=number, user_api="blas").result()


@pytest.fixture
def two_blas_threads():
    before = blas_threads()
    set_blas_threads(2)
    if set(blas_threads()) != {2}:
        pytest.skip("BLAS has no threads here")
    yield
    set_blas_threads(max(before))


@pytest.mark.parametrize("first_to_leave", [0, 1])
def test_overlapping_maps_leave_the_threads_of_blas_alone(two_blas_threads, first_to_leave):
    threads = [ThreadPoolExecutor(1), ThreadPoolExecutor(1)]  # one worker each: a thread that does as it is told
    maps = [tile_map(10, 2), tile_map(10, 2)]
    for thread, context in zip(threads, maps, strict=True):
        thread.submit(context.__enter__).result()
        assert set(blas_threads()) == {1}
    for leaving, expected in (first_to_leave, 1), (1 - first_to_leave, 2):
        threads[leaving].submit(maps[leaving].__exit__, None, None, None).result()
        assert set(blas_threads()) == {expected}
    for thread in threads:
        thread.shutdown()


def test_fits_in_several_threads_leave_the_threads_of_blas_alone(two_blas_threads):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 3))
    y = X[:, 0] + rng.standard_normal(400) > 0

    def fit(gamma):
        return pac.arrays.fit(pac.arrays.linear_gaussian_problem(X, y, gamma=gamma)).log_evidence

    gammas = np.geomspace(1.0, 50.0, 12)
    one_by_one = [fit(gamma) for gamma in gammas]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(fit, gammas))
    np.testing.assert_array_equal(together, one_by_one)
    assert set(blas_threads()) == {2}


def test_threads_of_blas_return_after_an_error(two_blas_threads):
    with pytest.raises(ZeroDivisionError), tile_map(10, 2):
        1 / 0  # noqa: B018
    assert set(blas_threads()) == {2}
