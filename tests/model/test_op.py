"""The Ops on every linker, batched or not, against the array functions."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.gradient import NullTypeGradError
from pytensor.tensor.blockwise import Blockwise

import pymc_pacauc as pac
from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.comparison.surrogate import surrogate_risk
from pymc_pacauc.model.op import AUCRisk
from pymc_pacauc.model.potential import compared_labels

MODES = ["FAST_COMPILE", "FAST_RUN", "NUMBA"]


@pytest.fixture(scope="module")
def batch():
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((6, 50)).round(1)  # ties
    scores[3] = 0.0
    scores[4, 5] = np.nan
    scores[5, :3] = np.inf, -np.inf, 1e300
    return scores, rng.random(50) < 0.3


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("ties", ["half", "strict"])
def test_auc_risk_equals_empirical_risk(batch, mode, ties):
    scores, y = batch
    expected = pac.empirical_risk(scores, y, ties=ties)
    vector, matrix = pt.dvector(), pt.dmatrix()
    one = pytensor.function([vector], pac.auc_risk(vector, y, ties=ties), mode=mode)
    many = pytensor.function([matrix], pac.auc_risk(matrix, y, ties=ties), mode=mode)
    np.testing.assert_allclose([float(one(s)) for s in scores], expected, rtol=1e-14)
    np.testing.assert_allclose(many(scores), expected, rtol=1e-14)


@pytest.mark.parametrize("mode", MODES)
def test_the_surrogate_and_its_gradient(batch, mode):
    scores, y = batch[0][:3], batch[1]
    matrix = pt.dmatrix()
    value = compared_labels(y).surrogate(matrix)
    function = pytensor.function([matrix], [value, pytensor.grad(value.sum(), matrix)], mode=mode)
    for row, found, gradient in zip(scores, *function(scores), strict=True):
        expected = surrogate_risk(row, bipartite(y))
        np.testing.assert_allclose(found, expected[0], rtol=1e-14)
        np.testing.assert_allclose(gradient, expected[1], rtol=1e-14)


def test_gradient_is_undefined_not_zero(batch):
    vector = pt.dvector()
    with pytest.raises(NullTypeGradError):
        pytensor.grad(pac.auc_risk(vector, batch[1]), vector)


def test_labels_can_be_replaced(batch):
    scores, y = batch
    labels = pytensor.shared(y.astype(int))
    vector = pt.dvector()
    function = pytensor.function([vector], pac.auc_risk(vector, labels), mode="FAST_COMPILE")
    np.testing.assert_allclose(function(scores[0]), pac.empirical_risk(scores[0], y))
    labels.set_value(1 - y.astype(int))
    np.testing.assert_allclose(function(scores[0]), 1 - pac.empirical_risk(scores[0], y))


def test_labels_may_differ_along_the_batch(batch):
    scores, y = batch
    labels = np.stack([y, ~y, y, ~y, y, np.zeros_like(y)]).astype(int)
    matrix, label_matrix = pt.dmatrix(), pt.lmatrix()
    found = pytensor.function(
        [matrix, label_matrix], Blockwise(AUCRisk("half"))(matrix, label_matrix), mode="FAST_COMPILE"
    )(scores, labels)
    expected = [pac.empirical_risk(s, row) for s, row in zip(scores[:5], labels, strict=False)]
    np.testing.assert_allclose(found, [*expected, np.nan])


@pytest.mark.parametrize("loss", ["exact", "logistic"])
def test_runtime_lengths_must_agree_and_classes_be_there(batch, loss):
    vector, labels = pt.dvector(), pt.lvector()
    compared = compared_labels(labels)
    risk = compared.risk(vector, "half") if loss == "exact" else compared.surrogate(vector)
    function = pytensor.function([vector, labels], risk, mode="FAST_COMPILE")
    with pytest.raises(ValueError, match="different lengths"):
        function(batch[0][0][:-1], batch[1].astype(int))
    assert np.isnan(function(batch[0][0], np.zeros(50, dtype=int)))


@pytest.mark.filterwarnings("ignore:np.dot:numba.NumbaPerformanceWarning")  # of PyTensor 2's X @ theta, when compiled
@pytest.mark.parametrize("loss", ["exact", "logistic"])
def test_numba_mode_takes_scores_that_are_not_contiguous(loss):
    with pm.Model() as model:
        theta = pm.Normal("theta", size=3)
        X = np.random.default_rng(0).standard_normal((40, 3))
        options = {} if loss == "exact" else {"loss": loss}
        pac.AUCPotential("auc", X @ theta, X[:, 0] > 0, gamma=10.0, **options)
    point = {"theta": np.array([0.3, 0.2, -1.0])}
    found, expected = (model.compile_logp(mode=mode)(point) for mode in ("NUMBA", "FAST_COMPILE"))
    assert found == pytest.approx(expected)


RISKS_IN_NUMBA = """
    import sys
    import numpy as np, pymc as pm, pytensor
    import pymc_pacauc as pac
    from numba.core import event

    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3)).round(1)
    y, strata, theta = X[:, 0] + rng.standard_normal(60) > 0, np.arange(60) % 4, np.array([0.3, 0.2, -1.0])
    found = []
    with event.install_recorder("numba:compile") as recorder:
        for ties, held, options in (("half", False, {}), ("half", True, {}), ("strict", True, {"strata": strata})):
            with pm.Model() as model:
                b = pm.Normal("b", size=3)
                pac.AUCPotential("auc", (pm.Data("X", X) if held else X) @ b, y, 10.0, ties=ties, **options)
            [risk] = model.replace_rvs_by_values(model.deterministics)
            function = model.compile_fn(risk, inputs=model.value_vars, mode="NUMBA")
            products = [node for node in function.f.maker.fgraph.apply_nodes if "Dot" in str(node.op)]
            assert not products, products
            expected = pac.empirical_risk(X @ theta, y, ties=ties, **options)
            assert float(function({"b": theta})) == expected
    compiled = {e.data["dispatcher"].py_func.__name__ for _, e in recorder.buffer if e.is_start}
    if "again" in sys.argv:  # parts in object mode are not kept, all else is
        assert compiled == {"perform_in_python"}, compiled
"""


def test_risks_in_numba_code_are_compiled_once_and_kept(tmp_path):
    for run in ("first", "again"):
        environment = {
            **os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTENSOR_FLAGS": f"base_compiledir={tmp_path}",
        }  # fmt: skip
        command = [sys.executable, "-c", textwrap.dedent(RISKS_IN_NUMBA), run]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
