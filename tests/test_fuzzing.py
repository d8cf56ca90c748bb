"""Nobody adds a public name without a property that holds for every input."""

import inspect

import pytest

import pymc_pacauc as pac
from tests.fuzzing import fuzzed

NAMESPACES = {"": pac} | {
    f"{name}.": getattr(pac, name) for name in ("arrays", "certify", "datasets", "plots", "results", "theorems")
}


def public():
    """Names of functions and classes; of a namespace those that the package does not have itself."""
    for prefix, namespace in NAMESPACES.items():
        for name in namespace.__all__:
            if not inspect.ismodule(getattr(namespace, name)) and (not prefix or name not in pac.__all__):
                yield prefix + name


PROPERTIES = fuzzed()


@pytest.mark.parametrize("name", sorted(public()))
def test_every_public_name_has_a_property(name):
    about = [test for test, (names, _) in PROPERTIES.items() if name in names]
    assert about, f'no property names it: add @fuzz("{name}", ...) to one, see tests/fuzzing.py'


@pytest.mark.parametrize("test", PROPERTIES)
def test_a_property_uses_the_functions_it_names(test):
    names, used = PROPERTIES[test]
    for name in names:
        *namespace, last = name.split(".")
        value = getattr(getattr(pac, namespace[0]) if namespace else pac, last)
        assert last in used or inspect.isclass(value), f"{name} is named but not used"
