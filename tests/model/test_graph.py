"""Graphs evaluated without compiling."""

import numpy as np
import pytensor
import pytensor.tensor as pt

from pymc_pacauc.model.graph import MODE


def test_everything_elementwise_runs_in_numpy():
    arrays = [pt.vector(str(k)) for k in range(4)]
    outputs = [pt.add(*arrays), pt.mul(*arrays), pt.clip(arrays[0], 1.0, 1.5)]
    function = pytensor.function(arrays, outputs, mode=MODE)
    assert all(len(node.inputs) <= 2 for node in function.maker.fgraph.apply_nodes)
    expected = [[16.0, 20.0], [105.0, 384.0], [1.0, 1.5]]
    np.testing.assert_allclose(function(*np.arange(1.0, 9.0).reshape(4, 2)), expected)
