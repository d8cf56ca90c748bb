"""Scales of columns: standard deviations, but not of gross errors, and no column lets one row decide."""

import numpy as np
import pytest

from pymc_pacauc.estimator.posterior import FARTHEST, learn_columns


@pytest.fixture(scope="module")
def normal():
    return np.random.default_rng(1).normal([0.0, 5.0, -1e9], [1.0, 1e-3, 1e7], size=(300, 3))


def test_clean_columns_have_their_standard_deviation(normal):
    columns = learn_columns(normal, None, True)
    np.testing.assert_allclose(columns.center, normal.mean(axis=0))
    np.testing.assert_allclose(columns.scale, normal.std(axis=0))


def test_gross_errors_do_not_stretch_a_scale(normal):
    wrong = normal - normal.mean(axis=0)
    wrong[:3] *= 1000.0
    np.testing.assert_allclose(learn_columns(wrong, None, True).scale, normal.std(axis=0), rtol=0.15)


def test_no_value_of_a_nearly_constant_column_is_far_from_its_mean():
    rare = np.zeros((900, 2))
    rare[7, 0], rare[8:30, 1] = 3.0, 1.0
    columns = learn_columns(rare, None, True)
    np.testing.assert_allclose(np.abs(columns.apply(rare)).max(axis=0)[0], FARTHEST)
    assert columns.scale[0] > 5 * rare[:, 0].std()


def test_a_row_of_weight_two_counts_as_two(normal):
    wrong = normal - normal.mean(axis=0)
    wrong[0] *= 100.0
    weights = np.random.default_rng(2).integers(0, 4, size=len(wrong))
    given = learn_columns(wrong, weights.astype(float), True)
    repeated = learn_columns(np.repeat(wrong, weights, axis=0), None, True)
    np.testing.assert_allclose(given.scale, repeated.scale)
    np.testing.assert_allclose(given.center, repeated.center, rtol=1e-7)


def test_columns_that_are_not_scaled_are_centred(normal):
    columns = learn_columns(normal, None, False)
    assert (columns.scale == 1.0).all()
    np.testing.assert_allclose(columns.apply(normal).mean(axis=0) / normal.std(axis=0), 0.0, atol=1e-6)


def test_a_constant_column_has_its_size_as_scale():
    np.testing.assert_array_equal(learn_columns(np.full((5, 1), 8.0), None, True).apply(np.full((5, 1), 8.0)), 0.0)
