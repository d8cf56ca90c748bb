"""The engines on arrays alone."""

from tests.test_package import BLOCK, run


def test_array_layer_works_without_pymc():
    code = """
import pymc_pacauc as pac
data = pac.datasets.load_pima().standardized()
print(round(float(pac.arrays.linear_risk([0, 1, 0, 0, 0, 0, 0], data.X, data.y)), 3))
"""
    assert 0 < float(run(BLOCK.format(blocked={"pymc", "pytensor", "arviz"}) + code)) < 0.5
