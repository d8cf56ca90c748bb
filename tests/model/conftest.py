"""Fixtures for tests of models."""

import pytensor
import pytest


@pytest.fixture(scope="module")
def quick_compilation():
    """PyMC compiles a function that records draws; here it runs so seldom that compiling it well does not pay."""
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        yield
