"""The score to deploy, of draws in whatever form they come."""

import numpy as np
import pytest
import xarray as xr

from pymc_pacauc.model.deployed import MEAN, deployed_score, draws_first, labelled_draws, mean_score

DRAWS = np.random.default_rng(4).normal(size=(2, 30, 5)) + np.arange(5.0)
Y = [0, 1, 0, 1, 1]


def named(**coords):
    return xr.DataArray(DRAWS, dims=("chain", "draw", "row"), coords=coords)


def test_the_mean_is_over_draws_wherever_they_stand():
    expected = DRAWS.mean(axis=(0, 1))
    for scores in (DRAWS, named(), named().transpose("row", "draw", "chain"), named().stack(sample=("chain", "draw"))):
        np.testing.assert_allclose(mean_score(scores), expected)
    np.testing.assert_allclose(draws_first(named().transpose("row", "draw", "chain")).mean(("chain", "draw")), expected)
    assert mean_score(0.3) == 0.3
    np.testing.assert_array_equal(mean_score(DRAWS[0, 0]), DRAWS[0, 0])
    with pytest.raises(ValueError, match="scores has the dimensions"):
        mean_score(xr.DataArray(DRAWS[0], dims=("a", "b")))


def test_the_mean_that_draws_carry_is_the_one_unless_it_is_not_theirs():
    carried = DRAWS.mean(axis=(0, 1)) + 0.01
    scores = named(**{MEAN: ("row", carried)})
    np.testing.assert_array_equal(mean_score(scores), carried)
    with pytest.raises(ValueError, match="is not the mean of its draws"):
        mean_score(-10.0 * scores)


def test_one_score_for_each_label():
    draws, mask = labelled_draws(named(), Y, None)
    assert draws.shape == (60, 5)
    assert mask.tolist() == [False, True, False, True, True]
    np.testing.assert_allclose(deployed_score(named(), draws, None), DRAWS.mean(axis=(0, 1)))
    np.testing.assert_array_equal(deployed_score(named(), draws, np.arange(5.0)), np.arange(5.0))
    with pytest.raises(ValueError, match="one finite score per row, 5"):
        deployed_score(named(), draws, [1.0, 2.0])
    with pytest.raises(ValueError, match="one column per label, 4"):
        labelled_draws(named(), Y[:4], None)
