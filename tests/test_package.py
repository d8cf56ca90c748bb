import ast
import pkgutil
import re
import subprocess
import sys
import textwrap
import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

import pymc_pacauc

SOURCE = Path(pymc_pacauc.__file__)
ROOT = Path(__file__).parents[1]

# Folders show the layers: imports point from right to left.
ARRAYS = {
    "numerics",
    "interrupt",
    "theorems",
    "comparison",
    "problem",
    "ep",
    "smc",
    "cluster",
    "fitting",
    "tune",
    "array_result",
    "arrays",
    "datasets",
}
PYMC, PEOPLE = {"model"}, {"analysis", "certify", "estimator", "results", "self_check", "__main__"}

ARRAY_LAYER = [
    module.name
    for module in pkgutil.walk_packages(pymc_pacauc.__path__, "pymc_pacauc.")
    if module.name.split(".")[1] in ARRAYS
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
    assert value.__name__.rpartition(".")[2] == name
    assert value.__doc__
    assert name in dir(pymc_pacauc)


@cache
def trees():
    """Parsed files of the package, by file."""
    files = [file for file in sorted(SOURCE.parent.rglob("*.py*")) if file.suffix in (".py", ".pyi")]
    return {file: ast.parse(file.read_text()) for file in files}


def package_imports():
    """(importing module, imported module) for every import of the package's own modules, lazy ones included."""
    for file, tree in trees().items():
        if file.name == "__init__.pyi":
            continue
        module = ".".join(file.relative_to(SOURCE.parent.parent).with_suffix("").parts)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level == 1:  # of a namespace's names, in its .pyi
                yield module, f"pymc_pacauc.{node.module}"
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pymc_pacauc."):
                yield module, node.module
            elif isinstance(node, ast.Import):
                yield from ((module, alias.name) for alias in node.names if alias.name.startswith("pymc_pacauc."))


def test_every_folder_belongs_to_a_layer():
    modules = {module.name for module in pkgutil.iter_modules(pymc_pacauc.__path__)}
    assert modules == ARRAYS | PYMC | PEOPLE


def test_layers_point_one_way():
    rank = {name: k for k, layer in enumerate((ARRAYS, PYMC, PEOPLE)) for name in layer}
    wrong = [
        (importing, imported)
        for importing, imported in package_imports()
        if rank[importing.split(".")[1]] < rank[imported.split(".")[1]]
    ]
    assert not wrong


def test_packages_do_not_import_each_other_in_a_circle():
    depends = {}
    for importing, imported in package_imports():
        a, b = importing.split(".")[1], imported.split(".")[1]
        if a != b:
            depends.setdefault(a, set()).add(b)
    for package in depends:
        reached, waiting = set(), list(depends[package])
        while waiting:
            if (name := waiting.pop()) not in reached:
                reached.add(name)
                waiting += depends.get(name, ())
        assert package not in reached


def test_unknown_name():
    with pytest.raises(AttributeError, match="No pymc_pacauc attribute nonsense"):
        pymc_pacauc.nonsense  # noqa: B018


def test_version_has_one_source():
    try:
        installed = version("pymc-pacauc")
    except PackageNotFoundError:
        pytest.skip("the package is not installed")
    assert pymc_pacauc.__version__ == installed


def test_recipe_citation_and_changelog_are_of_this_version():
    ours = re.escape(pymc_pacauc.__version__)
    assert re.search(rf"^version: {ours}$", (ROOT / "CITATION.cff").read_text(), flags=re.MULTILINE)
    assert re.search(rf"^## {ours} - \d{{4}}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    recipe = (ROOT / "conda" / "meta.yaml").read_text()
    assert re.search(rf'^  version: "{ours}"$', recipe, flags=re.MULTILINE)
    for needed in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]:
        name, bounds = re.fullmatch(r"([\w-]+)(.*)", needed).groups()
        assert re.search(rf"^    - {name}(-base)? {re.escape(bounds)}$", recipe, flags=re.MULTILINE), needed


def test_importing_the_package_imports_nothing_else():
    loaded = run("import sys; import pymc_pacauc; print(*{name.split('.')[0] for name in sys.modules})").split()
    assert not {"numpy", "scipy", "numba", "pandas", "pymc", "pytensor", "arviz"} & set(loaded)


def test_namespaces_are_there_before_anything_else_is_imported():
    code = """
        import sys
        for name in ["arrays", "certify", "datasets", "plots", "results", "theorems"]:
            for each in [each for each in sys.modules if each.split(".")[0] == "pymc_pacauc"]:
                del sys.modules[each]
            import pymc_pacauc as pac
            assert [each for each in sys.modules if each.startswith("pymc_pacauc.")] == [], name
            assert getattr(pac, name).__name__.split(".")[-1] == name
    """
    run(textwrap.dedent(code))


def test_array_layer_is_not_empty():
    assert {"pymc_pacauc.comparison.pairs", "pymc_pacauc.comparison.risk", "pymc_pacauc.datasets.loaders"} <= set(
        ARRAY_LAYER
    )


def test_array_layer_imports_without_pymc():
    imports = "\n".join(f"import {name}" for name in ARRAY_LAYER)
    run(BLOCK.format(blocked={"pymc", "pytensor", "arviz", "xarray", "sklearn", "pandas", "matplotlib"}) + imports)


def test_only_estimators_need_scikit_learn():
    """It is an extra: the demo installs without it, and draws its figures."""
    modules = [module.name for module in pkgutil.walk_packages(pymc_pacauc.__path__, "pymc_pacauc.")]
    imports = "\n".join(f"import {name}" for name in modules if ".estimator" not in name and "jax" not in name)
    run(BLOCK.format(blocked={"sklearn"}) + imports.replace("import pymc_pacauc.__main__\n", ""))


# Tests of several modules of a folder, and of the whole.
OF_A_FOLDER = {"contract", "fuzz"}
OF_THE_WHOLE = {
    "architecture",
    "baselines",
    "benchmarks",
    "docstrings",
    "examples",
    "faults",
    "fuzzing",
    "message_words",
    "messages",
    "mutants",
    "no_leak",
    "measured",
    "package",
    "readme",
    "recipes",
    "reproduction",
    "versions",
}


def test_tests_mirror_the_package():
    """``tests/<folder>/test_<module>.py`` or ``test_<module>_<aspect>.py`` tests ``<module>.py`` of the same folder."""
    orphans = []
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        folder = SOURCE.parent / file.relative_to(ROOT / "tests").parent
        modules = {module.name for module in pkgutil.iter_modules([str(folder)])}
        name = file.stem.removeprefix("test_")
        if name not in (OF_THE_WHOLE if folder == SOURCE.parent else OF_A_FOLDER) and not any(
            f"{name}_".startswith(f"{module}_") for module in modules
        ):
            orphans.append(str(file.relative_to(ROOT)))
    assert not orphans


# Whose tests are those of what is made of them: estimators.
TESTED_TOGETHER = {"estimator/base", "estimator/calibration"}


def test_every_module_has_its_tests():
    """Figures are tested together, by ``tests/analysis/test_plots.py``."""
    files = [file.relative_to(SOURCE.parent) for file in SOURCE.parent.rglob("*.py") if file.name[:2] != "__"]
    modules = {file.parent if file.parent.name == "plots" else file.with_suffix("") for file in files}
    without = {
        str(module) for module in modules if not (ROOT / "tests" / module.parent / f"test_{module.name}.py").exists()
    }
    assert without <= TESTED_TOGETHER


# Public signatures whose options are their documentation: models are written with them, PyMC passes five to a step.
LONG = {
    "AUCClassifier.__init__",
    "AUCPotential",
    "ConcordanceEstimator.__init__",
    "ConcordancePotential",
}
# Still to be divided
COMPLEX = {"_read", "prior_from", "density_variables", "scorecard"}
BRANCHES = (ast.If, ast.IfExp, ast.For, ast.While, ast.ExceptHandler, ast.Assert, ast.match_case)


def functions():
    """(file, qualified name, node) of every function, but for those that numba compiles."""
    for file, tree in trees().items():
        for outer in ast.walk(tree):
            prefix = f"{outer.name}." if isinstance(outer, ast.ClassDef) else ""
            for node in outer.body if isinstance(outer, ast.Module | ast.ClassDef) else ():
                if isinstance(node, ast.FunctionDef) and not any(
                    "kernel" in ast.unparse(d) for d in node.decorator_list
                ):
                    yield file.relative_to(SOURCE.parent), prefix + node.name, node


def complexity(function):
    """Independent paths through a function: one, and one for each branch, loop, and clause of a condition."""
    parts = list(ast.walk(function))
    clauses = sum(len(part.values) - 1 for part in parts if isinstance(part, ast.BoolOp))
    loops = sum(1 + len(part.ifs) for part in parts if isinstance(part, ast.comprehension))
    return 1 + clauses + loops + sum(isinstance(part, BRANCHES) for part in parts)


def test_no_function_is_too_complex():
    found = {f"{file}: {name}": complexity(node) for file, name, node in functions() if name not in COMPLEX}
    assert not {name: number for name, number in found.items() if number > 20}


def test_no_function_has_too_many_arguments():
    found = {}
    for file, name, node in functions():
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
        number = sum(each is not None and each.arg not in ("self", "cls") for each in arguments)
        if number > 10 and name not in LONG:
            found[f"{file}: {name}"] = number
    assert not found


# Of arrays and of PyMC (score_function, kernel_features), of pairs and of EP on them (subsample), posteriors of engines
# and of estimators, fits, results in models and the namespace of all.
PARALLEL = {"nested", "score_function", "kernel_features", "subsample", "posterior", "results"}


def test_every_basename_is_used_once():
    names = [file.stem for file in SOURCE.parent.rglob("*.py") if not file.stem.startswith("__")]
    assert {name for name in names if names.count(name) > 1} <= PARALLEL
