import gzip
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

import pymc_pacauc as pac
from benchmarks import pack_dataset

SHIPPED = {  # n, d, positives, training rows, positives among them
    "pima": (532, 7, 177, 200, 68),
    "spect": (267, 22, 55, 80, 40),
    "glass": (214, 9, 9, None, None),
    "credit": (1000, 60, 300, None, None),
    "dna": (3186, 180, 765, 400, 90),
}


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped(name):
    n, d, positives, training, training_positives = SHIPPED[name]
    data = getattr(pac.datasets, f"load_{name}")()
    assert (data.name, data.n, data.d, data.y.sum()) == (name, n, d, positives)
    assert data.X.shape == (n, d)
    assert data.X.dtype == np.float64
    assert data.y.shape == (n,)
    assert data.y.dtype == np.int64
    assert np.isfinite(data.X).all()
    assert (data.X.std(axis=0) > 0).all()
    assert len(set(data.feature_names)) == d
    assert "Examples" not in data.description
    assert len(data.description) > 100
    if training is None:
        assert data.train is None
    else:
        assert (data.train.sum(), data.y[data.train].sum()) == (training, training_positives)


def test_known_rows():
    first = dict(zip(pac.datasets.load_pima().feature_names, pac.datasets.load_pima().X[0], strict=True))
    assert first == {"npreg": 5, "glu": 86, "bp": 68, "skin": 28, "bmi": 30.2, "ped": 0.364, "age": 24}
    assert pac.datasets.load_glass().X[0, :3].tolist() == [1.52101, 13.64, 4.49]
    assert set(np.unique(pac.datasets.load_dna().X)) == set(np.unique(pac.datasets.load_spect().X)) == {0.0, 1.0}
    assert (pac.datasets.load_dna().train.nonzero()[0] == np.arange(400)).all()


def test_loading_twice_gives_independent_arrays():
    first = pac.datasets.load_pima()
    first.X[:] = 0.0
    assert pac.datasets.load_pima().X.any()


def test_frame():
    frame = pac.datasets.load_pima().frame
    assert list(frame.columns) == ["npreg", "glu", "bp", "skin", "bmi", "ped", "age", "y"]
    assert frame.shape == (532, 8)
    assert frame["y"].sum() == 177


def test_standardized_uses_training_rows_only():
    data = pac.datasets.load_pima().standardized()
    np.testing.assert_allclose(data.X[data.train].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(data.X[data.train].std(axis=0), 1)
    assert abs(data.X.mean(axis=0)).max() > 0.01
    whole = pac.datasets.load_glass().standardized()
    np.testing.assert_allclose(whole.X.std(axis=0), 1)


def test_standardized_centres_constant_columns():
    X = np.array([[0.1, 1.0], [0.1, 2.0], [0.1, 4.0]])
    data = pac.datasets.Dataset("toy", X, np.array([0, 1, 0]), ("a", "b"), None, "")
    np.testing.assert_allclose(data.standardized().X[:, 0], 0, atol=1e-15)
    assert np.isfinite(data.standardized().X).all()


# --- colon -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("yes", "no"), [("1", "0"), ("normal", "tumour"), ('"n"', '"t"'), ("-1", "1")])
def test_colon_from_a_file(tmp_path, yes, no):
    path = tmp_path / "colon.csv"
    path.write_text(f"g1,y,g2\n1.5,{no},2\n3,{yes},4e2\n5,{no},6\n")
    data = pac.datasets.load_colon(path)
    assert data.feature_names == ("g1", "g2")
    assert data.X.tolist() == [[1.5, 2], [3, 400], [5, 6]]
    assert data.y.tolist() == [0, 1, 0]
    assert "take logs" in data.description
    assert pac.datasets.load_colon(str(path)).n == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("g1,g2\n1,2\n", "one of which is 'y'"),
        ("g1,y\n1,0\n2,1,3\n", "not a table.*Expected 2 fields in line 3, saw 3"),
        ("g1,y\na,0\nb,1\n", "column 'g1': 'a' is not a finite number"),
        ("g1,g2,y\n1,0\n2,1\n", "2 rows without a label"),
        ("g1,y\n1,0\n2,0\n", "y must hold two labels; it has 1"),
        ("g1,y\n1,0\n2,1\n3,2\n", "y must hold two labels; it has 3"),
        ("g1,y\nnan,0\n2,1\n", "column 'g1': 'nan' is not a finite number"),
        ("g1,y\n1,0\n\nNA,1\n", "column 'g1': 'NA' is not a finite number"),
        ("g1,y\n,0\n2,1\n", "column 'g1': '' is not a finite number"),
        ("g1,y\n1e999,0\n2,1\n", "'1e999' is not a finite number"),
        ("g1,y\n1_0,0\n2,1\n", "'1_0' is not a finite number"),
        ('g1,y\n"1,5",0\n2,1\n', "'1,5' is not a finite number"),
        ("g1,y\n1,\n2,1\n3,1\n", "1 rows without a label in column 'y'"),
        ("g1,y\n1,NaN\n2,1\n3,1\n", "1 rows without a label in column 'y'"),
        ("# a comment\ng1,y\n1,0\n2,1\n", "not a table.*Expected 1 fields in line 2, saw 2"),
        ("g1,y\n1,0\n#2,1\n3,0\n", "column 'g1': '#2' is not a finite number"),
        ("g1;y\n1;0\n2;1\n", r"one of which is 'y'.*\['g1;y'\]"),
        ("g,g,y\n1,2,0\n2,3,1\n", r"distinct names.*\['g', 'g', 'y'\]"),
        ("g1,y,\n1,0,\n2,1,\n", r"distinct names.*\['g1', 'y', ''\]"),
        ("", "not a table.*No columns to parse"),
        ("g1,y\n", "it has 0 rows"),
        ("y\n0\n1\n", r"distinct names.*\['y'\]"),
        ('g1,y\n"1"x,0\n2,1\n', "'1x' is not a finite number"),
    ],
)
def test_bad_colon_file(tmp_path, text, message):
    path = tmp_path / "colon.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        pac.datasets.load_colon(path)


TABLE = "géne,y,g2\n1.5,t,2\n3,n,4e2\n5,t,6\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("text", [TABLE, "y,géne,g2\nt,1.5,2\nn,3,4e2\nt,5,6\n"], ids=["gene first", "y first"])
def test_colon_file_in_unicode(tmp_path, encoding, text):
    path = tmp_path / "colon.csv"
    path.write_bytes(text.encode(encoding))
    data = pac.datasets.load_colon(path)
    assert data.feature_names == ("géne", "g2")
    assert data.X.tolist() == [[1.5, 2], [3, 400], [5, 6]]
    assert data.y.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (TABLE.encode("latin-1"), "not a table of comma-separated values in UTF-8.*0xe9"),
        (TABLE.encode("utf-16"), "not a table of comma-separated values in UTF-8"),
        (gzip.compress(TABLE.encode()), "not a table of comma-separated values in UTF-8"),
    ],
    ids=["latin-1", "utf-16", "gzip"],
)
def test_colon_file_in_another_encoding(tmp_path, raw, message):
    path = tmp_path / "colon.csv"
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=message):
        pac.datasets.load_colon(path)


@pytest.mark.parametrize(
    "text",
    [
        '"g#1","y"\n"1","a#1"\n"2","a#2"\n"3","a#1"\n',
        "g#1, y\r\n1, a#1\r\n2, a#2\r\n3, a#1\r\n",
        "g#1,y\n\n1,a#1\n\n2,a#2\n3,a#1",
        'g#1,y\n1,"a, #1"\n2,"a, #2"\n3,"a, #1"\n',
    ],
    ids=["quotes", "spaces and carriage returns", "empty lines", "commas in labels"],
)
def test_colon_file_written_otherwise(tmp_path, text):
    path = tmp_path / "colon.csv"
    path.write_bytes(text.encode())
    data = pac.datasets.load_colon(path)
    assert (data.feature_names, data.X.tolist(), data.y.tolist()) == (("g#1",), [[1], [2], [3]], [0, 1, 0])


def test_of_two_equally_frequent_labels_the_first_is_positive(tmp_path):
    path = tmp_path / "colon.csv"
    path.write_text("g1,y\n1,t\n2,n\n")
    assert pac.datasets.load_colon(path).y.tolist() == [0, 1]


def test_missing_colon_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        pac.datasets.load_colon(tmp_path / "nowhere.csv")


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("identifier", ["colon-cancer", 7])
def test_colon_from_openml(monkeypatch, as_sparse, identifier):
    rng = np.random.default_rng(0)
    X = rng.lognormal(size=(62, 2000))
    labels = np.where(np.arange(62) < 22, "n", "t")
    asked = {}

    def fetch(**options):
        asked.update(options)
        names = [f"gene{i}" for i in range(2000)]
        return SimpleNamespace(data=sparse.csr_matrix(X) if as_sparse else X, target=labels, feature_names=names)

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch)
    data = pac.datasets.load_colon(openml=identifier)
    assert asked.get("data_id", asked.get("name")) == identifier
    np.testing.assert_array_equal(data.X, X)
    assert data.y.sum() == 22
    assert data.y[:22].all()
    assert data.train is None
    assert data.feature_names[-1] == "gene1999"


def test_colon_refuses_another_data_set(monkeypatch):
    wrong = SimpleNamespace(data=np.ones((3, 2)), target=np.array([0, 1, 0]), feature_names=["a", "b"])
    monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda **_: wrong)
    with pytest.raises(ValueError, match=r"has shape \(3, 2\), but the colon data are \(62, 2000\)"):
        pac.datasets.load_colon()


def test_colon_without_sklearn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r"needs scikit-learn.*load_colon\(path\)"):
        pac.datasets.load_colon()


# --- packing ---------------------------------------------------------------------------------------------------------


def test_pack_is_deterministic(tmp_path):
    source, split = tmp_path / "a.csv", tmp_path / "split.csv"
    source.write_text("x,y\n1.0,0\n2.5,1\n")
    split.write_text("split\ntrain\ntest\n")
    packed = pack_dataset.pack(source, split)
    assert packed == pack_dataset.pack(source, split) == pack_dataset.pack(source, first=1)
    assert gzip.decompress(packed) == b"x,y,train\n1,0,1\n2.5,1,0\n"
    assert gzip.decompress(pack_dataset.pack(source)) == b"x,y\n1,0\n2.5,1\n"
    split.write_text("split\ntrain\n")
    with pytest.raises(ValueError, match="the split has 1 rows but the data have 2"):
        pack_dataset.pack(source, split)
