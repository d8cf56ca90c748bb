import ast
import pkgutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

import pymc_pacauc

SOURCE = Path(pymc_pacauc.__file__)

# Everything else is the array layer, which knows nothing of PyMC.
PYMC_LAYER = {"model", "compat"}
PEOPLE_LAYER = {
    "certify",
    "cluster",
    "estimator",
    "hyperparameters",
    "plots",
    "predict",
    "progress",
    "regularization",
    "roc_curve",
    "selection",
    "summarize",
    "tempered_folds",
}

ARRAY_LAYER = [
    module.name
    for module in pkgutil.walk_packages(pymc_pacauc.__path__, "pymc_pacauc.")
    if module.name.split(".")[1] not in PYMC_LAYER | PEOPLE_LAYER
]

BLOCK = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ImportError(f"{{name}} is blocked")
sys.meta_path.insert(0, Blocked())
"""


def run(code):
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("name", pymc_pacauc.__all__)
def test_every_public_name_resolves(name):
    value = getattr(pymc_pacauc, name)
    assert value.__name__ == name
    assert value.__doc__
    assert name in dir(pymc_pacauc)


def test_names_for_type_checkers_agree_with_the_lazy_table():
    tree = ast.parse(SOURCE.read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    typed = {}
    for statement in block.body:
        assert isinstance(statement, ast.ImportFrom)
        for alias in statement.names:
            assert alias.asname == alias.name, f"import {alias.name} as {alias.name}, so that it is re-exported"
            typed[alias.name] = statement.module.removeprefix("pymc_pacauc.")
    assert typed == pymc_pacauc._MODULE_OF
    assert pymc_pacauc.__all__ == sorted(typed)


def test_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        pymc_pacauc.nonsense  # noqa: B018


def test_version_has_one_source():
    try:
        installed = version("pymc-pacauc")
    except PackageNotFoundError:
        pytest.skip("the package is not installed")
    assert pymc_pacauc.__version__ == installed


def test_importing_the_package_imports_nothing_else():
    loaded = run("import sys; import pymc_pacauc; print(*{name.split('.')[0] for name in sys.modules})").split()
    assert not {"numpy", "scipy", "numba", "pandas", "pymc", "pytensor", "arviz"} & set(loaded)


def test_array_layer_is_not_empty():
    assert {"pymc_pacauc.pairs", "pymc_pacauc.risk", "pymc_pacauc.datasets.loaders"} <= set(ARRAY_LAYER)


def test_array_layer_imports_without_pymc():
    imports = "\n".join(f"import {name}" for name in ARRAY_LAYER)
    run(BLOCK.format(blocked={"pymc", "pytensor", "arviz", "xarray", "sklearn", "pandas", "matplotlib"}) + imports)


def test_array_layer_works_without_pymc():
    code = """
import pymc_pacauc as pac
data = pac.load_pima().standardized()
print(round(float(pac.linear_risk([0, 1, 0, 0, 0, 0, 0], data.X, data.y)), 3))
"""
    assert 0 < float(run(BLOCK.format(blocked={"pymc", "pytensor", "arviz"}) + code)) < 0.5
