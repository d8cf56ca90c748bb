"""Kaplan and Meier's estimate: against its definition, scikit-survival and lifelines."""

import numpy as np
import pytest

from pymc_pacauc.comparison.censored import survival_curve
from tests.comparison.test_censored import survival_data


@pytest.mark.parametrize("seed", range(3))
def test_definition(seed):
    _, time, event = survival_data(seed)
    curve = survival_curve(time, event)
    np.testing.assert_array_equal(curve.time, np.unique(time))
    value = 1.0
    for k, t in enumerate(curve.time):
        value *= 1 - np.sum((time == t) & event) / np.sum(time >= t)
        assert curve.survival[k] == pytest.approx(value, abs=1e-14)


def test_without_censoring_it_is_the_share_and_greenwood_the_binomial_variance():
    time = np.arange(1.0, 11.0)
    curve = survival_curve(time, np.ones(10, dtype=bool))
    share = 1 - time / 10
    np.testing.assert_allclose(curve.survival, share, atol=1e-14)
    np.testing.assert_allclose(curve.log_variance[:-1], (1 - share[:-1]) / share[:-1] / 10)
    lower, upper = curve.interval(0.9)
    assert np.isnan([lower[-1], upper[-1]]).all()
    assert ((lower[:-1] > 0) & (lower[:-1] < share[:-1]) & (share[:-1] < upper[:-1]) & (upper[:-1] < 1)).all()


@pytest.mark.parametrize("seed", range(3))
def test_against_lifelines(seed):
    lifelines = pytest.importorskip("lifelines")
    _, time, event = survival_data(seed)
    fitted = lifelines.KaplanMeierFitter(alpha=0.1).fit(time, event)
    curve = survival_curve(time, event)
    np.testing.assert_allclose(curve.survival, fitted.survival_function_["KM_estimate"].loc[curve.time], atol=1e-12)
    inside = (curve.survival > 0) & (curve.survival < 1)
    expected = fitted.confidence_interval_.loc[curve.time].to_numpy()
    np.testing.assert_allclose(np.column_stack(curve.interval(0.9))[inside], expected[inside], atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_against_scikit_survival(seed):
    sksurv = pytest.importorskip("sksurv.nonparametric")
    _, time, event = survival_data(seed)
    at, expected, bounds = sksurv.kaplan_meier_estimator(event, time, conf_level=0.9, conf_type="log-log")
    curve = survival_curve(time, event)
    np.testing.assert_array_equal(curve.time, at)
    np.testing.assert_allclose(curve.survival, expected, atol=1e-12)
    inside = (curve.survival > 0) & (curve.survival < 1)
    np.testing.assert_allclose(np.stack(curve.interval(0.9))[:, inside], bounds[:, inside], atol=1e-9)
