"""The same on both versions of ArviZ, and progress bars."""

import numpy as np
import pytest
from scipy import stats

from pymc_pacauc.model.compat import LateBar, dataset, inference_data, pareto_smooth, track
from pymc_pacauc.model.results import dataset_of


def test_datasets_and_their_groups():
    values = np.arange(12.0).reshape(1, 4, 3)
    made = dataset({"theta": values, "lp": values[..., 0]}, coords={"column": list("abc")}, dims={"theta": ["column"]})
    assert made["theta"].dims == ("chain", "draw", "column")
    assert made["lp"].dims == ("chain", "draw")
    idata = inference_data({"posterior": made, "sample_stats": made[["lp"]]})
    np.testing.assert_array_equal(dataset_of(idata, "sample_stats")["lp"], values[..., 0])
    np.testing.assert_array_equal(dataset_of(idata, "posterior")["theta"], values)


@pytest.mark.parametrize("shape", [0.2, 0.6])
def test_the_tail_of_weights_is_smoothed_and_its_shape_found(shape):
    weights = stats.genpareto(shape).rvs(20_000, random_state=1) + 1.0
    smoothed, found = pareto_smooth(np.log(weights))
    assert found == pytest.approx(shape, abs=0.1)
    body = weights < np.quantile(weights, 0.9)
    np.testing.assert_allclose(np.exp(smoothed[body]), weights[body], rtol=1e-9)


def test_constant_weights_have_no_tail():
    smoothed, shape = pareto_smooth(np.full(100, -3.0))
    assert shape == -np.inf
    np.testing.assert_array_equal(smoothed, np.full(100, -3.0))


def test_a_bar_is_shown_when_work_takes_a_while(capsys, monkeypatch):
    assert list(track(range(3), "quick work", 3)) == [0, 1, 2]
    assert capsys.readouterr().out == ""
    monkeypatch.setattr("pymc_pacauc.model.compat.BAR_AFTER", 0.0)
    with LateBar("hidden work", show=False) as bar:
        bar.update(1, 2)
    assert list(track(range(3), "long work", 3)) == [0, 1, 2]
    assert "long work" in capsys.readouterr().out
