"""Kernel features against the kernel matrix itself."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from pymc_pacauc import fitting
from pymc_pacauc.problem.kernel_features import kernel_features
from pymc_pacauc.problem.problem import linear_gaussian_problem

X = np.random.default_rng(0).standard_normal((80, 2))
NEW = np.random.default_rng(1).standard_normal((7, 2))
SCALES = np.array([0.7, 1.9])


def matern(nu):
    """By the modified Bessel function, for any smoothness."""
    from scipy.special import gamma, kv

    def value(r):
        a = np.sqrt(2 * nu) * np.where(r == 0, 1e-12, r)
        return 2 ** (1 - nu) / gamma(nu) * a**nu * kv(nu, a)

    return value


FORMULAS = {"squared_exponential": lambda r: np.exp(-0.5 * r**2), "matern32": matern(1.5), "matern52": matern(2.5)}


@pytest.mark.parametrize("kernel", FORMULAS)
def test_features_of_full_rank_reproduce_the_kernel(kernel):
    features = kernel_features(X, kernel, lengthscale=SCALES, rank=500, tolerance=0.0)
    F, new = features.transform(X), features.transform(NEW)
    K = FORMULAS[kernel](cdist(X / SCALES, X / SCALES))
    np.testing.assert_allclose(F @ F.T, K, atol=1e-10)
    np.testing.assert_allclose(F @ new.T, FORMULAS[kernel](cdist(X / SCALES, NEW / SCALES)), atol=1e-6)
    assert features.left_out < 1e-12


def test_a_cap_leaves_out_what_is_reported():
    features = kernel_features(X, "matern32", lengthscale=1.0, rank=20)
    F = features.transform(X)
    assert F.shape == (80, 20)
    assert features.left_out == pytest.approx(1.0 - np.sum(F**2) / 80, abs=1e-12)
    K = FORMULAS["matern32"](cdist(X, X))
    P = features.pivots
    np.testing.assert_allclose(F @ F.T, K[:, P] @ np.linalg.solve(K[np.ix_(P, P)], K[P]), atol=1e-10)
    chosen = [int(np.argmax(np.diagonal(K)))]
    for _ in range(5):  # the greedy rule, by conditional variances
        within = np.linalg.solve(K[np.ix_(chosen, chosen)], K[chosen])
        left = np.diagonal(K) - np.einsum("ij,ji->i", K[:, chosen], within)
        chosen.append(int(np.argmax(left)))
    assert list(P[:6]) == chosen


def test_equal_rows_constant_columns_and_one_pivot():
    doubled = np.vstack([X, X[:10], NEW[:1], NEW[:1]])
    features = kernel_features(doubled, lengthscale=1.0, tolerance=0.0)
    F = features.transform(doubled)
    assert np.array_equal(F[:10], F[80:90])
    assert np.array_equal(F[-1], F[-2])
    constant = np.column_stack([X, np.full(80, 3.0)])
    with_it, without = (kernel_features(each, lengthscale=1.0).transform(each) for each in (constant, X))
    np.testing.assert_allclose(with_it, without, atol=1e-12)
    alone = kernel_features(X[:1], lengthscale=1.0)
    assert (alone.rank, alone.left_out) == (1, 0.0)
    same = kernel_features(np.ones((5, 2)), lengthscale=1.0)
    assert same.rank == 1
    assert np.array_equal(same.transform(np.ones((3, 2))), np.ones((3, 1)))


def test_kernels_given_as_functions():
    by_name = kernel_features(X, lengthscale=0.8)
    by_function = kernel_features(X, lambda a, b: 4.0 * np.exp(-0.5 * cdist(a, b, "sqeuclidean")), lengthscale=0.8)
    np.testing.assert_allclose(by_function.transform(NEW), 2.0 * by_name.transform(NEW), atol=1e-6)
    kernels = pytest.importorskip("sklearn.gaussian_process.kernels")
    of_sklearn = kernel_features(X, kernels.RBF(0.8))
    np.testing.assert_allclose(of_sklearn.transform(NEW), by_name.transform(NEW), atol=1e-6)


def test_evidence_is_that_of_the_process():
    some = X[:60]  # so few that nothing is left out of the process
    y = (some[:, 0] ** 2 + some[:, 1] > 0.5).astype(int)
    K = np.exp(-0.5 * cdist(some, some, "sqeuclidean"))
    features = kernel_features(some, lengthscale=1.0, tolerance=1e-10)
    by_features = fitting.fit(linear_gaussian_problem(features.transform(some), y, 60.0), tolerance=1e-9)
    eigenvalues, vectors = np.linalg.eigh(K)
    root = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))
    by_process = fitting.fit(linear_gaussian_problem(root, y, 60.0), tolerance=1e-9)
    assert features.rank < 60
    assert by_features.log_evidence == pytest.approx(by_process.log_evidence, abs=1e-6)


def test_bad_input_is_refused_in_words():
    with_nan = X.copy()
    with_nan[3, 1] = np.nan
    for values, message in ((with_nan, r"columns \[1\]"), (X[:, 0], "matrix"), (X[:0], "matrix"), ([["a"]], "numbers")):
        with pytest.raises(ValueError, match=message):
            kernel_features(values)
    for lengthscale in (0.0, -1.0, np.nan, np.inf, [1.0, 0.0]):
        with pytest.raises(ValueError, match=r"lengthscale must be (finite|> 0)"):
            kernel_features(X, lengthscale=lengthscale)
    with pytest.raises(ValueError, match=r"lengthscale must be a scalar or have shape \(2,\)"):
        kernel_features(X, lengthscale=[1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match="X has equal rows only"):
        kernel_features(np.ones((4, 2)))
    with pytest.raises(ValueError, match="rank must be"):
        kernel_features(X, rank=0)
    with pytest.raises(ValueError, match="tolerance must be"):
        kernel_features(X, tolerance=-1.0)
    with pytest.raises(ValueError, match="kernel must be one of"):
        kernel_features(X, "rbf")
    with pytest.raises(ValueError, match="kernel must return shape"):
        kernel_features(X, lambda a, b: np.ones(3))
    with pytest.raises(ValueError, match="X must have 2 columns"):
        kernel_features(X).transform(X[:, :1])
