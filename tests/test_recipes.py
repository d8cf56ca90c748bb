"""The recipes of docs/how_to/recipes.md, each where its package is installed."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import pymc_pacauc as pac
from pymc_pacauc.model.score_function import predictive_model

PAGE = (Path(__file__).parents[1] / "docs" / "how_to" / "recipes.md").read_text()
SETUP = re.search(r"^```python\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)[1]
BLOCKS = re.findall(r"^```py\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
PACKAGES = ["pymc_bart", "nutpie", "numpyro", "formulae"]


def run(package):
    pytest.importorskip(package)
    [block] = [block for block in BLOCKS if re.search(rf"^(import|from) {package}\b", block, flags=re.MULTILINE)]
    names = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other packages, about themselves
        exec(compile(SETUP + block, "recipes.md", "exec"), names)
    return names


def test_there_is_a_recipe_for_each():
    assert len(BLOCKS) == len(PACKAGES)


def test_trees():
    found = run("pymc_bart")
    linear = max(1 - pac.empirical_risk(found["X"].T, found["y"]))
    assert 1 - pac.empirical_risk(found["f_mean"], found["y"]) > linear + 0.1
    assert found["idata"]["posterior"]["auc_risk"].mean() < 0.2
    assert found["new"].shape == (200, 5)
    assert np.corrcoef(found["new"].mean(axis=0), found["f_mean"][:5])[0, 1] > 0.5
    with found["trees"]:
        found["pm"].set_data({"rows": found["X"]})
    for call in (
        lambda: predictive_model(found["trees"]),
        lambda: pac.predict_scores(found["idata"], found["X"][:5], model=found["trees"]),
    ):
        with pytest.raises(ValueError, match="keep a reference to their data"):
            call()


@pytest.mark.filterwarnings("ignore:Numba will use object mode to run BART:UserWarning")  # PyTensor 3, of PyMC-BART
def test_the_example_with_trees(tmp_path):
    pytest.importorskip("pymc_bart")
    from examples.bart_scores import main

    linear, trees = main(tmp_path, draws=30)
    assert trees > linear + 0.05
    assert (tmp_path / "bart_scores.png").stat().st_size > 10_000


@pytest.mark.parametrize("package", ["nutpie", "numpyro"])
def test_samplers_of_the_surrogate(package):
    found = run(package)
    theta = found["idata"]["posterior"]["theta"]
    with found["surrogate"]:
        expected = found["pm"].sample(
            300,
            tune=300,
            chains=2,
            cores=1,
            progressbar=False,
            quiet=True,
            random_seed=2,
            compute_convergence_checks=False,
        )["posterior"]["theta"]
    error = expected.std(("chain", "draw")) / np.sqrt(100)
    assert (
        np.abs(theta.mean(("chain", "draw")).values - expected.mean(("chain", "draw")).values) < 5 * error.values
    ).all()
    risk = found["idata"]["posterior"]["auc_risk"].values
    np.testing.assert_allclose(risk, pac.empirical_risk(theta.values @ found["X"].T, found["y"]), atol=1e-6)


def test_formulas():
    found = run("formulae")
    assert found["approx"].converged
    assert "theta[I(b ** 2)]" in pac.summary(found["approx"]).index
    means = pac.summary(found["approx"])["mean"].abs()
    assert means["theta[I(b ** 2)]"] > means["theta[site[u]]"]
