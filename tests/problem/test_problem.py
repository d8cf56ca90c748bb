import dataclasses
import pickle

import numpy as np
import pytest

import pymc_pacauc as pac
from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.comparison.risk import LinearRisk
from pymc_pacauc.problem.problem import check_gamma, linear_gaussian_problem

RNG = np.random.default_rng(5)
X, Y = RNG.standard_normal((30, 3)), np.arange(30) % 3 == 0
FULL = np.array([[2.0, 0.3, 0.0], [0.3, 1.0, -0.2], [0.0, -0.2, 0.5]])
COVARIANCES = pytest.mark.parametrize("covariance", [2.0, [1.0, 4.0, 9.0], FULL], ids=["scalar", "vector", "matrix"])


@COVARIANCES
def test_scale_free_without_an_offset(covariance):
    problem = linear_gaussian_problem(X, Y, 10.0, prior_covariance=covariance)
    assert problem.scale_free
    w = RNG.standard_normal((5, 3))
    np.testing.assert_array_equal(
        pac.arrays.linear_risk(problem.prior.color(w), X, Y), pac.arrays.linear_risk(problem.prior.color(7.0 * w), X, Y)
    )


def whitened_risk(problem):
    """The map from whitened coefficients to the risk."""
    scores = problem.scores
    return LinearRisk(
        scores.whitened_design,
        problem.pairs,
        offset=scores.whitened_offset,
        ties=problem.ties,
        distinct=scores.distinct,
    )


def test_constant_offset_is_none():
    assert linear_gaussian_problem(X, Y, 1.0, offset=0.1).scale_free
    shifted = linear_gaussian_problem(X, Y, 1.0, offset=1e8)
    assert shifted.scale_free


def test_accepts_pairs_and_copies_arrays():
    design = X.copy()
    problem = linear_gaussian_problem(design, bipartite(Y), 1.0)
    design[:] = 0.0
    np.testing.assert_array_equal(problem.X, X)
    assert repr(problem) == "Problem(n=30, d=3, pairs=200, gamma=1, Gaussian prior)"
    assert pickle.loads(pickle.dumps(problem)).pairs.n_pairs == 200


def test_nearly_symmetric_covariance_is_symmetric():
    noisy = np.eye(3)
    noisy[0, 1] = 1e-17
    np.testing.assert_array_equal(linear_gaussian_problem(X, Y, 1.0, prior_covariance=noisy).prior.factor, np.eye(3))
    noisy[0, 1] = 1e-6
    with pytest.raises(ValueError, match="must be symmetric"):
        linear_gaussian_problem(X, Y, 1.0, prior_covariance=noisy)


def changed(value):
    design = X.copy()
    design[0, 1] = design[4, 2] = value
    return design


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((changed(np.nan), Y, 1.0), {}, r"X has 2 NaN or infinite value.*in columns \[1, 2\]; impute or drop"),
        ((changed(-np.inf), Y, 1.0), {}, "X has 2 NaN or infinite value"),
        ((X[0], Y, 1.0), {}, r"X must be a matrix of shape \(n, d\).*got shape \(3,\)"),
        ((X[:, :0], Y, 1.0), {}, "n, d >= 1"),
        ((X[:-1], Y, 1.0), {}, "X has 29 rows but there are 30 labels"),
        (([["a"], ["b"]], [0, 1], 1.0), {}, "X must be a rectangular array of numbers"),
        (([[1.0], [1.0, 2.0]], [0, 1], 1.0), {}, "X must be a rectangular array of numbers"),
        ((X, Y, 1.0), {"prior_mean": [1.0]}, r"prior_mean must be a scalar or have shape \(3,\); got \(1,\)"),
        ((X, Y, 1.0), {"prior_mean": np.nan}, "prior_mean must be finite"),
        ((X, Y, 1.0), {"offset": [1.0, 2.0]}, r"offset must be a scalar or have shape \(30,\)"),
        ((X, Y, 1.0), {"prior_covariance": [1.0, 0.0, -1.0]}, r"prior_covariance has 2 variance\(s\) <= 0"),
        ((X, Y, 1.0), {"prior_covariance": np.eye(2)}, r"prior_covariance must be a scalar or have shape \(3, 3\)"),
        ((X, Y, 1.0), {"prior_covariance": np.triu(np.ones((3, 3)))}, "prior_covariance must be symmetric"),
        ((X, Y, 1.0), {"prior_covariance": np.ones((3, 3))}, "prior_covariance is singular.*add a small multiple"),
        ((X, Y, 1.0), {"prior_covariance": np.inf}, "prior_covariance must be finite"),
        ((X, Y, 1.0), {"ties": "none"}, "ties must be"),
    ],
)
def test_bad_input(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        linear_gaussian_problem(*arguments, **options)


@pytest.mark.parametrize("gamma", [0.0, -1.0, np.nan, np.inf, None, "ten", [1.0, 2.0], np.array([1.0])])
def test_bad_gamma(gamma):
    with pytest.raises(ValueError, match="gamma must be one finite number > 0"):
        check_gamma(gamma)
    with pytest.raises(ValueError, match="gamma must be one finite number > 0"):
        linear_gaussian_problem(X, Y, gamma)


@pytest.mark.parametrize("scale", [1e-13, 1e-6, 1.0, 1e9])
def test_a_prior_mean_ranks_whatever_the_scale_of_the_scores(scale):
    tiny = linear_gaussian_problem(scale * X, Y, 1.0, prior_mean=[0.8, -0.5, 0.0])
    one = linear_gaussian_problem(X, Y, 1.0, prior_mean=[0.8, -0.5, 0.0])
    assert not tiny.scale_free
    w = np.random.default_rng(1).standard_normal((50, 3))
    np.testing.assert_allclose(whitened_risk(tiny)(w), whitened_risk(one)(w), atol=1e-12)


def test_an_offset_that_the_prior_drowns_is_none():
    assert linear_gaussian_problem(X, Y, 1.0, offset=1e-14 * X[:, 0]).scale_free
    assert not linear_gaussian_problem(X, Y, 1.0, offset=1e-9 * X[:, 0]).scale_free


def test_varying_gamma_keeps_what_was_worked_out():
    problem = linear_gaussian_problem(X, Y, 1.0, prior_covariance=np.eye(3) + 0.1)
    design = problem.scores.whitened_design
    assert dataclasses.replace(problem, gamma=2.0).scores.whitened_design is design
