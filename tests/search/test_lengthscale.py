"""Lengthscales by evidence."""

import numpy as np
import pytest

from pymc_pacauc import fitting
from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.ep.gaussian import carried_over
from pymc_pacauc.ep.plan import Subsample
from pymc_pacauc.problem.kernel_features import COVARIANCES, kernel_features
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.tune.evidence import choose_lengthscale, lengthscale_gradient

RNG = np.random.default_rng(1)
X = RNG.standard_normal((120, 3))
Y = X[:, 0] ** 2 + np.sin(2 * X[:, 1]) + 0.3 * RNG.standard_normal(120) > 0.7


def evidence(log_scales, kernel, rank):
    features = kernel_features(X, kernel, lengthscale=np.exp(log_scales), rank=rank)
    return features, fitting.fit(linear_gaussian_problem(features.transform(X), Y, 120.0), tolerance=1e-10)


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


def test_gradient_of_a_subsample_against_differences():
    """On one subsample, all of whose pairs are looked at."""
    rows = RNG.standard_normal((400, 3))
    compared = bipartite(rows[:, 0] ** 2 + 0.5 * RNG.standard_normal(400) > 0.5)
    at, step, direction = np.log([1.0, 1.3, 2.0]), 1e-4, np.array([0.6, 0.8, -0.3])

    def fitted(log_scales, last=None):
        features = kernel_features(rows, lengthscale=np.exp(log_scales), rank=20)
        problem = linear_gaussian_problem(features.transform(rows), compared, 400.0)
        start = None if last is None else carried_over(last, problem)
        return features, fitting.fit(problem, pairs=Subsample(4), start=start, tolerance=1e-10)

    features, fit = fitted(at, fitted(at)[1])  # to the last digit on the subsample of the start
    assert fit.pairs_used < 0.3 * compared.n_pairs
    ends = [fitted(at + sign * step * direction, fit)[1].log_evidence for sign in (1.0, -1.0)]
    slope = lengthscale_gradient(features, fit, rows) @ direction
    assert slope == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-4)


@pytest.mark.slow
def test_many_pairs_are_subsampled_and_the_choice_is_that_of_all():
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((1500, 3))
    y = rows[:, 0] ** 2 + np.sin(2 * rows[:, 1]) + rng.logistic(size=1500) > 1.0
    options = {"rank": 15, "grid": [0.8, 1.0, 2.0], "max_evaluations": 3}  # at half, EP with all pairs oscillates
    some = choose_lengthscale(rows, y, 1500.0, pairs=Subsample(9.0), **options)
    exact = choose_lengthscale(rows, y, 1500.0, **options)
    assert some.fit.pairs_used < 0.25 * exact.fit.pairs_used
    np.testing.assert_allclose(some.lengthscale, exact.lengthscale, rtol=0.05)
    for found, reference in zip((*some.trace[:3], some.trace[-1]), (*exact.trace[:3], exact.trace[-1]), strict=True):
        assert found["log_evidence"] == pytest.approx(reference["log_evidence"], abs=3.0 * found["sampling_error"])
        assert 0.0 < found["sampling_error"] < 1.0  # the lengthscales of the grid differ by ten and more
        assert reference["sampling_error"] == 0.0


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
