"""Types of results, errors and warnings."""

import pytest

import pymc_pacauc as pac

FUNCTIONS = {"without_data"}


@pytest.mark.parametrize("name", sorted(set(pac.results.__all__) - FUNCTIONS))
def test_types_are_where_they_are_said_to_be(name):
    found = getattr(pac.results, name)
    assert isinstance(found, type)
    assert found.__name__ == name
    assert found.__doc__
    assert issubclass(found, Exception) == name.endswith(("Error", "Warning"))
