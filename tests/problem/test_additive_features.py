"""Additive features: a line in the robust score and bends for each column."""

import numpy as np
import pytest
from scipy.special import ndtri

from pymc_pacauc.problem.additive_features import FUNCTIONS, POINTS, additive_features


def test_each_level_has_a_value_of_its_own():
    """The bends of few levels are a white process less its weighted regression on the line, exactly."""
    rng = np.random.default_rng(1)
    x = rng.choice([0.0, 1.0, 3.0, 7.0, 8.0], size=200, p=[0.1, 0.4, 0.2, 0.25, 0.05])
    features = additive_features(x[:, None])
    levels, counts = np.unique(x, return_counts=True)
    z = ndtri((np.cumsum(counts) - 0.5 * counts) / 200)
    robust = z + (levels - x.mean()) / x.std()
    line = (robust - counts @ robust / 200) / np.sqrt(counts @ (robust - counts @ robust / 200) ** 2 / 200)
    found = features.transform(levels[:, None])
    np.testing.assert_allclose(found[:, 0], line, rtol=1e-12)
    straight = np.column_stack([np.ones(5), line])
    residual = np.eye(5) - straight @ np.linalg.solve(straight.T * counts @ straight, straight.T * counts)
    np.testing.assert_allclose(found[:, 1:] @ found[:, 1:].T, residual @ residual.T, atol=1e-12)


def test_a_bend_is_nearly_the_whole_process():
    """Of as many rows as a table has points: what is left out is what all eigenfunctions but the first leave."""
    x = np.random.default_rng(2).normal(size=POINTS)
    features = additive_features(x[:, None])
    F = features.transform(x[:, None])
    assert features.rank == 1 + FUNCTIONS
    np.testing.assert_allclose(F.mean(axis=0), 0.0, atol=1e-12)
    z = ndtri((np.argsort(np.argsort(x)) + 0.5) / POINTS)
    robust = z + (x - x.mean()) / x.std()
    straight = np.column_stack([np.ones(POINTS), robust])
    residual = np.eye(POINTS) - straight @ np.linalg.solve(straight.T @ straight, straight.T)
    expected = residual @ np.exp(-0.5 * (z[:, None] - z) ** 2) @ residual
    left = np.linalg.eigvalsh(expected)[:-FUNCTIONS].sum()
    assert np.trace(expected - F[:, 1:] @ F[:, 1:].T) == pytest.approx(left, rel=1e-6)
    assert 0.0 < left < 0.02 * np.trace(expected)


def test_units_do_not_matter_and_outliers_little():
    X = np.random.default_rng(3).normal(size=(60, 2))
    F = additive_features(X).transform(X)
    np.testing.assert_allclose(additive_features(3.0 * X - 7.0).transform(3.0 * X - 7.0), F, atol=1e-9)
    found = []
    for factor in (1e6, 1e9):  # of the largest values, which stay the largest
        wild = X.copy()
        wild[X.argmax(axis=0), [0, 1]] *= factor
        found.append(additive_features(wild).transform(wild))
    np.testing.assert_allclose(*found, atol=0.01)
    assert np.abs(found[0][:, :2]).max() < (3.0 + ndtri(59.5 / 60)) / 0.97  # cut at 3, beside normal scores


def test_weights_are_repetitions():
    rng = np.random.default_rng(4)
    X, weights = rng.normal(size=(40, 2)), rng.integers(1, 4, size=40)
    by_weight = additive_features(X, weights)
    repeated = additive_features(np.repeat(X, weights, axis=0))
    squares = [(F := each.transform(X)) @ F.T for each in (by_weight, repeated)]
    np.testing.assert_allclose(*squares, atol=1e-9)


def test_two_values_are_a_line_and_one_is_nothing():
    X = np.column_stack([np.arange(10) % 2, np.full(10, 5.0)])
    features = additive_features(X)
    np.testing.assert_allclose(features.transform(X), np.column_stack([2.0 * X[:, 0] - 1.0, np.zeros(10)]), atol=1e-12)
    np.testing.assert_allclose(features.transform([[0.5, 7.0], [9.0, 5.0]]), [[0.0, 0.0], [1.0, 0.0]], atol=1e-12)
    assert features.made_from(X)
    assert not features.made_from(X[:, :1])
    with pytest.raises(ValueError, match=r"X must have 2 columns.* got 1"):
        features.transform(X[:, :1])


@pytest.mark.parametrize(("weights", "message"), [(-np.ones(10), "10 value"), (np.ones(3), r"shape \(10,\)")])
def test_weights_that_are_none(weights, message):
    with pytest.raises(ValueError, match=message):
        additive_features(np.arange(10.0)[:, None], weights=weights)
