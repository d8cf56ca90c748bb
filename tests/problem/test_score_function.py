"""Score functions of many columns, in pieces and put together again."""

import numpy as np
import pymc as pm
import xarray as xr

import pymc_pacauc as pac
from pymc_pacauc.model.score_function import read_scores
from pymc_pacauc.problem.score_function import PIECE, ScoreFunction
from tests.model.test_score_function import N, rng, y


def test_many_columns_cost_little():
    wide = rng.normal(size=(N, 3000))
    with pm.Model() as model:
        b = pm.Normal("b", shape=3000)
        pac.AUCPotential("auc", -(wide @ b[::-1]), y, gamma=20.0)
    function = read_scores(model)
    assert function.matrix.nnz == 3000
    theta = rng.normal(size=(2, 3000))
    found = function.scores(theta, function.rows(wide[:4]))
    np.testing.assert_allclose(found, -theta[:, ::-1] @ wide[:4].T)
    pieces = function.pieces()
    assert len(pieces) > 1
    assert max(each["score_function"].size for each in pieces) <= PIECE
    stats = xr.Dataset(
        {k: (("draw", "score_function_dim_0")[: np.ndim(v) + 1], [p[k] for p in pieces]) for k, v in pieces[0].items()}
    )
    again = ScoreFunction.from_stats(stats.isel(draw=slice(None, None, -1)))
    assert again.digest == function.digest
    assert ScoreFunction.from_stats(stats.isel(draw=slice(1))) is None
