"""Data sets against another reader of their files, and files nobody chose."""

import csv
import gzip
import io
import tempfile
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

import pymc_pacauc as pac
from tests.fuzzing import fuzz

LOADERS = {
    "pima": pac.datasets.load_pima,
    "spect": pac.datasets.load_spect,
    "glass": pac.datasets.load_glass,
    "credit": pac.datasets.load_credit,
    "dna": pac.datasets.load_dna,
}


@cache
def loaded(name):
    file = resources.files("pymc_pacauc.datasets") / "data" / f"{name}.csv.gz"
    rows = list(csv.DictReader(io.StringIO(gzip.decompress(file.read_bytes()).decode("ascii"))))
    return LOADERS[name](), rows


@fuzz(
    "datasets.load_pima",
    "datasets.load_spect",
    "datasets.load_glass",
    "datasets.load_credit",
    "datasets.load_dna",
    "datasets.Dataset",
    row=st.integers(0),
    column=st.integers(0),
)
def test_every_cell_is_that_of_the_file(row, column):
    """And standardising has nothing to do with the rows that are not for training."""
    for name in LOADERS:
        data, rows = loaded(name)
        i, j = row % data.n, column % data.d
        assert data.X[i, j] == float(rows[i][data.feature_names[j]])
        assert data.y[i] == int(float(rows[i]["y"]))
        assert data.train is None or data.train[i] == bool(int(float(rows[i]["train"])))
        reference = np.array([float(each[data.feature_names[j]]) for each in rows])
        reference = reference if data.train is None else reference[data.train]
        scaled = (data.X[i, j] - reference.mean()) / (reference.std() or 1.0)
        if name in ("pima", "glass"):
            assert data.standardized().X[i, j] == pytest.approx(scaled)
            assert data.frame.iloc[i][data.feature_names[j]] == data.X[i, j]


text = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zs", "Zl", "Zp"]), min_size=1, max_size=5)
ENCODINGS = ["utf-8", "utf-8-sig"]


@fuzz(
    "datasets.load_colon",
    names=st.lists(text, min_size=1, max_size=4, unique=True),
    labels=st.lists(text, min_size=2, max_size=2, unique=True),
    seed=st.integers(0, 2**20),
    encoding=st.sampled_from(ENCODINGS),
    end=st.sampled_from(["\n", "\r\n"]),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
)
def test_what_was_written_is_read(names, labels, seed, encoding, end, quoting):
    """Any names and labels, quoted or not, in any Unicode encoding; y is 1 for the rarer label."""
    missing = {"", "na", "n/a", "nan", "null", "none", "?"}
    assume("y" not in names and not any(label.lower() in missing for label in labels))
    assume(encoding != "utf-8" or not names[0].startswith("\ufeff"))
    rng = np.random.default_rng(seed)
    X, rare = rng.normal(size=(5, len(names))) * 10.0 ** rng.integers(-300, 300), rng.permutation(5) < 2
    file = io.StringIO(newline="")
    writer = csv.writer(file, quoting=quoting, lineterminator=end)
    writer.writerow([*names, "y"])
    writer.writerows([*map(repr, row.tolist()), labels[int(flag)]] for row, flag in zip(X, rare, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "colon.csv"
        path.write_bytes(file.getvalue().encode(encoding))
        data = pac.datasets.load_colon(path)
    assert data.feature_names == tuple(names)
    np.testing.assert_array_equal(data.X, X)
    np.testing.assert_array_equal(data.y, rare)
