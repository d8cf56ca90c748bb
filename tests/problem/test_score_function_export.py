"""Scores leave the house: JSON and ten lines of NumPy score rows as predict_scores and the estimators do."""

import json
import re
import subprocess
import sys
from pathlib import Path

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pymc_pacauc as pac
from pymc_pacauc.model.results import dataset_of
from pymc_pacauc.problem.score_function import HOW_TO_SCORE
from tests.model.test_score_function import FORMS, FRAME, HELD, NAMES, NEW, QUIET, X, build, fit, y
from tests.test_package import BLOCK

PAGE = Path(__file__).parents[2] / "docs" / "how_to" / "export.md"
CLOSE = {"rtol": 1e-12, "atol": 1e-12}
THREE = np.argsort(np.argsort(X[:, 0])) // 10
LINEAR = [name for name in FORMS if name != "squares"]


def scored(path, rows=NEW):
    """Mean and sd by the lines in the file."""
    names, held = {}, json.loads(path.read_text())
    exec("\n".join(held["how_to_score"]), names)
    return names["score"](held, rows)


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("name", LINEAR)
def test_every_linear_form(name, held, tmp_path):
    pytest.importorskip("h5py")
    path, approx = tmp_path / "score.json", fit(build(FORMS[name], held))
    draws = approx.sample(20, random_seed=1)
    draws.to_netcdf(tmp_path / "draws.nc")
    read = az.from_netcdf(tmp_path / "draws.nc")
    for result in (approx, draws, read, dataset_of(read, "posterior")):
        held_back = pac.export(result, path)
        assert held_back == json.loads(path.read_text())
        expected = pac.predict_scores(result, NEW, summary=True)
        mean, sd = scored(path)
        np.testing.assert_allclose(mean, expected["mean"], **CLOSE)
        np.testing.assert_allclose(sd, expected["sd"], rtol=1e-9)
    pac.export(approx, path, covariance=False)
    mean, sd = scored(path)
    np.testing.assert_allclose(mean, pac.predict_scores(approx, NEW, summary=True)["mean"], **CLOSE)
    assert sd is None


def test_names_and_provenance(tmp_path):
    path = tmp_path / "score.json"
    approx = fit(build(FORMS["negative"], "named pm.Data"))
    held = pac.export(approx, path)
    assert held["columns"] == NAMES
    assert held["inputs"] == [{"name": "X", "columns": NAMES}]
    assert held["gamma"] == 20.0
    expected = {"method": "EP", "n": 30, "n_pos": int(y.sum()), "n_neg": int((~y).sum()), "comparison": "two classes"}
    assert expected.items() <= held["provenance"].items()
    assert held["provenance"]["package"] == f"pymc_pacauc {pac.__version__}"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", held["provenance"]["date"])
    by_name = scored(path, FRAME[["bmi", "age", "glu"]])[0]
    np.testing.assert_allclose(by_name, pac.predict_scores(approx, FRAME, summary=True)["mean"], **CLOSE)
    with pytest.raises(KeyError):
        scored(path, FRAME.rename(columns={"age": "years"}))


def test_several_inputs_and_what_is_the_same_in_every_row(tmp_path):
    path = tmp_path / "score.json"
    with pm.Model(coords={"covariate": NAMES}):
        first = pm.Data("first", X, dims=("row", "covariate"))
        second = pm.Data("second", 2 * X, dims=("row", "covariate"))
        shift = pm.Data("shift", X[:, 0])
        b, c = pm.Normal("b", shape=3), pm.Normal("c")
        pac.AUCPotential("auc", first @ b - second @ b[::-1] + shift + c * np.full(30, 2.0), y, gamma=20.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    held = pac.export(approx, path)
    assert held["columns"] == [f"{name}[{each}]" for name in ("first", "second") for each in NAMES] + ["shift[shift]"]
    rows = {"first": NEW, "second": NEW[::-1], "shift": NEW[:, 1]}
    expected = pac.predict_scores(approx, rows, summary=True)
    mean, sd = scored(path, np.column_stack(list(rows.values())))
    np.testing.assert_allclose(mean, expected["mean"], **CLOSE)
    np.testing.assert_allclose(sd, expected["sd"], rtol=1e-9)


def test_columns_in_the_order_of_the_data(tmp_path):
    """Whatever the order of the coefficients; several arrays written into the model have none, and are refused."""
    for held in (False, True):
        with pm.Model():
            rows = pm.Data("X", X) if held else X
            b, c = pm.Normal("b", shape=2), pm.Normal("c")
            pac.AUCPotential("auc", rows[:, 2] * c - rows[:, :2] @ b, y, gamma=20.0)
            approx = pm.fit(method=pac.EP(), progressbar=False)
        if not held:
            with pytest.raises(ValueError, match=r"for which X_new has no values: put .* into pm\.Data"):
                pac.export(approx)
    pac.export(approx, tmp_path / "score.json")
    expected = pac.predict_scores(approx, NEW, summary=True)
    np.testing.assert_allclose(scored(tmp_path / "score.json")[0], expected["mean"], **CLOSE)


def test_draws_of_samplers_and_selections(tmp_path):
    path, model = tmp_path / "score.json", build(FORMS["not centred"], "pm.Data")
    with model:
        idata = pm.sample(20, step=pac.TemperingSMC(particles=100), **QUIET)
    options = {"folds": 2, "random_seed": 1, "progressbar": False}
    by_ep, by_smc = (pac.select_gamma(model, [5.0, 20.0], method=method, **options) for method in ("ep", "smc"))
    for result, method in ((idata, "TemperingSMC"), (by_ep, "EP"), (by_smc, "TemperingSMC")):
        assert pac.export(result, path)["provenance"]["method"] == method
        expected = pac.predict_scores(result, NEW, summary=True)
        np.testing.assert_allclose(scored(path)[0], expected["mean"], **CLOSE)
    alone = pac.export({"posterior": dataset_of(idata, "posterior")[["b"]]}, model=model)  # as NUTS would leave them
    np.testing.assert_allclose(alone["weights"], pac.export(idata)["weights"], **CLOSE)
    assert alone["gamma"] is None


ESTIMATORS = {
    "classifier": lambda: pac.AUCClassifier(gamma=20.0, random_state=1).fit(pd.DataFrame(X * 9 + 4, columns=NAMES), y),
    "draws": lambda: pac.AUCClassifier(gamma=20.0, method="smc", random_state=1).fit(X, y),
    "not standardised": lambda: pac.AUCClassifier(gamma=20.0, standardize=False, random_state=1).fit(X, y),
    "spikes": lambda: pac.AUCClassifier(gamma=20.0, prior="spike_slab", random_state=1).fit(X, y),
    "ordered": lambda: pac.AUCClassifier(gamma=20.0, multi_class="ordered", random_state=1).fit(X, THREE),
    "survival": lambda: pac.ConcordanceEstimator(gamma=20.0, random_state=1).fit(
        X, np.column_stack([y, np.exp(X[:, 0])])
    ),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators(name, tmp_path):
    path, model = tmp_path / "score.json", ESTIMATORS[name]()
    assert pac.export(model, path) == model.export()
    rows = FRAME if hasattr(model, "feature_names_in_") else NEW
    expected, sd = getattr(model, "decision_function", model.predict)(rows, return_std=True)
    found = scored(path, rows)
    np.testing.assert_allclose(found[0], expected, **CLOSE)
    np.testing.assert_allclose(found[1], sd, rtol=1e-9)


def test_nothing_of_ours_is_needed(tmp_path):
    """The lines in the file, in a process that has NumPy and json only; and estimators export without PyMC."""
    path = tmp_path / "score.json"
    fitting = f"""
import numpy as np, pymc_pacauc as pac
X, y = np.array({X.tolist()}), np.array({y.tolist()})
model = pac.AUCClassifier(gamma=20.0, random_state=1).fit(X, y)
model.export(r"{path}")
print(model.decision_function({NEW.tolist()}).tolist())
"""
    scoring = f"""
import json
with open(r"{path}") as file:
    held = json.load(file)
exec("\\n".join(held["how_to_score"]))
print(score(held, {NEW.tolist()})[0].tolist())
"""
    no_pymc = {"pymc", "pytensor", "arviz", "xarray", "pandas"}
    by_estimator = run(BLOCK.format(blocked=no_pymc) + fitting)
    by_file = run(BLOCK.format(blocked=no_pymc | {"pymc_pacauc", "scipy", "sklearn", "numba"}) + scoring)
    np.testing.assert_allclose(json.loads(by_file), json.loads(by_estimator), **CLOSE)


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_not_linear_is_refused():
    model = build(FORMS["squares"], "pm.Data")
    with pm.Model() as groups:
        theta, code = pm.Normal("theta", shape=(3, 3)), pm.Data("code", np.arange(30) % 3)
        pac.AUCPotential("auc", (pm.Data("X", X) * theta[code]).sum(axis=1), y, gamma=20.0)
    with pm.Model() as process:
        gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(3, ls=1.0))
        pac.AUCPotential("auc", gp.prior("f", X=X), y, gamma=20.0)
    refused = {
        r"not linear in the columns.*predict_scores": [fit(model), fit(model).sample(3), fit(groups)],
        "gp=": [fit(process)],
        r"3 classes.*AUCClassifier\(\)\.fit\(X, y == label\)": [pac.AUCClassifier(gamma=9.0).fit(X, THREE)],
        r"features of it.*decision_function": [pac.AUCClassifier(gamma=9.0, prior="gp").fit(X, y)],
    }
    for words, results in refused.items():
        for result in results:
            with pytest.raises(ValueError, match=words):
                pac.export(result)
    with pytest.raises(TypeError, match=r"pac\.export\(pipeline\[-1\], path\)"):
        pac.export(make_pipeline(StandardScaler(), pac.AUCClassifier()))
    with pytest.raises(TypeError, match="result must be"):
        pac.export(3.0)


def test_the_page_shows_the_lines():
    assert HOW_TO_SCORE.strip() in PAGE.read_text()


@pytest.mark.parametrize("name", ["classifier", "survival"])
def test_by_onnx(name):
    """The page's recipe."""
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("skl2onnx")
    [recipe] = re.findall(r"^```\{code-block\} python\n(.*?)^```", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    names = {"pac": pac, "np": np, "result": ESTIMATORS[name]()}
    exec(recipe, names)
    session = onnxruntime.InferenceSession(names["onnx"].SerializeToString())
    [found] = session.run(None, {"X": NEW})
    rows = FRAME if name == "classifier" else NEW
    expected = getattr(names["result"], "decision_function", names["result"].predict)(rows)
    np.testing.assert_allclose(found[:, 0], expected, **CLOSE)
