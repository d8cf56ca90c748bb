"""Evidence of runs and its error, against formulas for independent particles."""

import numpy as np
import pytest

from pymc_pacauc.numerics import effective_sample_size, normalise
from pymc_pacauc.smc.log_evidence import combine, stage_variance


def test_stage_variance_of_independent_particles_is_the_ess_formula():
    weights = normalise(np.random.default_rng(5).standard_normal(300))
    expected = (1 / effective_sample_size(np.log(weights)) - 1 / 300) * 300 / 299
    assert stage_variance(weights, np.arange(300)) == pytest.approx(expected)


def test_stage_variance_counts_identical_siblings_as_one():
    weights = normalise(np.random.default_rng(6).standard_normal(100))
    twice = np.repeat(weights, 2) / 2
    assert stage_variance(twice, np.repeat(np.arange(100), 2)) == pytest.approx(stage_variance(weights, np.arange(100)))


def test_combine_averages_evidences():
    result = combine([-10.0, -10.2], [0.04, 0.04])
    assert result.estimate == pytest.approx(np.log((np.exp(-10.0) + np.exp(-10.2)) / 2))
    assert result.standard_error == pytest.approx(0.2 / np.sqrt(2))
    assert result.agree


def test_combine_reports_disagreement_and_widens_the_error():
    result = combine([-500.0, -503.0, -498.0], [0.01, 0.01, 0.01])
    assert not result.agree
    assert result.standard_error == pytest.approx(np.std([-500, -503, -498], ddof=1) / np.sqrt(3))


def test_one_run_has_its_own_error():
    result = combine(-3.0, 0.09)
    assert (result.estimate, result.standard_error, result.agree) == (-3.0, pytest.approx(0.3), True)
