"""What pyproject.toml promises about versions is what `make test-lowest` installs."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
LOWEST = ROOT / ".ci" / "lowest.txt"
TOOLS = {"mypy", "numpydoc", "pre-commit", "ruff"}  # of `make lint`, which runs on the newest


def versions(requirements, operator):
    """Name and version of each requirement that has this operator."""
    return {
        canonicalize_name(requirement.name): Version(specifier.version)
        for requirement in map(Requirement, requirements)
        for specifier in requirement.specifier
        if specifier.operator == operator
    }


@pytest.mark.skipif(not LOWEST.exists(), reason="not a checkout")
def test_every_lowest_version_is_stated_and_tested():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    required = project["dependencies"] + [
        requirement for extra in ("plots", "sklearn", "netcdf", "jax", "dev") for requirement in extras[extra]
    ]
    names = {canonicalize_name(Requirement(requirement).name) for requirement in required} - {"pymc-pacauc"}
    stated = versions(required, ">=")
    pinned = versions((line for line in LOWEST.read_text().splitlines() if line and line[0] != "#"), "==")
    assert set(stated) == names
    assert pinned == {name: version for name, version in stated.items() if name not in TOOLS}


@pytest.mark.skipif(not (ROOT / "conda").exists(), reason="not a checkout")
def test_the_conda_recipe_requires_the_same():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    run = (ROOT / "conda" / "meta.yaml").read_text().partition("  run:\n")[2].partition("\n\n")[0]
    conda = {line.strip(" -").replace("-base", "").replace(" ", "") for line in run.splitlines()[1:]}
    assert conda == set(project["dependencies"])
