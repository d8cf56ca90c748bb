"""Lengthscales by evidence."""

import numpy as np
import pytest

from pymc_pacauc.core.covariances import COVARIANCES
from pymc_pacauc.core.kernel_features import kernel_features
from pymc_pacauc.core.problem import linear_gaussian_problem
from pymc_pacauc.ep import fit_ep
from pymc_pacauc.search.lengthscale import choose_lengthscale, lengthscale_gradient

RNG = np.random.default_rng(1)
X = RNG.standard_normal((120, 3))
Y = X[:, 0] ** 2 + np.sin(2 * X[:, 1]) + 0.3 * RNG.standard_normal(120) > 0.7


def evidence(log_scales, kernel, rank):
    features = kernel_features(X, kernel, lengthscale=np.exp(log_scales), rank=rank)
    return features, fit_ep(linear_gaussian_problem(features.transform(X), Y, 120.0), tolerance=1e-10)


@pytest.mark.parametrize("kernel", COVARIANCES)
@pytest.mark.parametrize("rank", [300, 30])
def test_gradient_against_differences(kernel, rank):
    at, step = np.log([1.0, 1.3, 2.0]), 1e-4
    features, fit = evidence(at, kernel, rank)
    slopes = []
    for direction in np.eye(3):
        ends = [evidence(at + sign * step * direction, kernel, rank)[1].log_evidence for sign in (1.0, -1.0)]
        slopes.append((ends[0] - ends[1]) / (2 * step))
    np.testing.assert_allclose(lengthscale_gradient(features, fit, X), slopes, atol=2e-5)


def test_the_maximum_is_one():
    one = choose_lengthscale(X, Y, 120.0)
    assert one.converged
    assert np.unique(one.lengthscale).size == 1
    for step in (-0.2, 0.2):
        beside = evidence(np.log(one.lengthscale) + step, "squared_exponential", 300)[1]
        assert one.log_evidence > beside.log_evidence
    each = choose_lengthscale(X, Y, 120.0, each=True, max_evaluations=40)
    assert each.log_evidence > one.log_evidence + 2.0
    assert each.lengthscale[2] > 5 * each.lengthscale[:2].max()  # the covariate that does not matter
    grid = choose_lengthscale(X, Y, 120.0, grid=[0.5, 1.0], max_evaluations=0)
    assert len(grid.trace) == 3
    assert grid.log_evidence <= one.log_evidence + 1e-6


def test_a_constant_column_has_no_say():
    wide = np.column_stack([X, np.ones(120)])
    found = choose_lengthscale(wide, Y, 120.0, each=True, max_evaluations=5)
    assert np.isfinite(found.lengthscale).all()


def test_bad_input_is_refused_in_words():
    with pytest.raises(ValueError, match="grid must hold positive"):
        choose_lengthscale(X, Y, 120.0, grid=[0.0])
    with pytest.raises(ValueError, match="kernel must be one of"):
        choose_lengthscale(X, Y, 120.0, "rbf")
    with pytest.raises(ValueError, match="gamma must be"):
        choose_lengthscale(X, Y, -1.0)
    with pytest.raises(ValueError, match="rows"):
        choose_lengthscale(X, Y[:5], 120.0)
