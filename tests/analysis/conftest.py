import numpy as np
import pytest


@pytest.fixture(scope="module")
def rows():
    """Draws of the scores of labelled rows."""
    rng = np.random.default_rng(3)
    y = rng.random(120) < 0.35
    draws = rng.normal(size=(2, 30, 120)) * 0.5 + 1.2 * y + rng.normal(size=120)
    return draws, y


@pytest.fixture(scope="module", autouse=True)
def compile_quickly(quick_compilation):
    """Every module here: what is analysed matters, not how PyMC computed it."""
