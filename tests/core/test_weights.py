import numpy as np
import pytest

from pymc_pacauc.numerics import effective_sample_size, log_mean_exp, normalise, systematic
from pymc_pacauc.smc.evidence import combine, stage_variance
from pymc_pacauc.smc.tempering import incremental_log_weights, next_temperature


def test_weights_survive_extreme_logs():
    log_weights = np.array([-1e5, -1e5 + np.log(3.0)])
    assert log_mean_exp(log_weights) == pytest.approx(-1e5 + np.log(2.0))
    assert normalise(log_weights) == pytest.approx([0.25, 0.75])
    assert effective_sample_size(log_weights) == pytest.approx(1 / (0.25**2 + 0.75**2))


def test_systematic_resampling_rounds_expected_counts_up_or_down():
    rng = np.random.default_rng(1)
    weights = normalise(rng.standard_normal(50))
    for _ in range(100):
        counts = np.bincount(systematic(weights, 200, rng), minlength=50)
        assert counts.sum() == 200
        assert (np.abs(counts - 200 * weights) < 1 + 1e-9).all()


def test_systematic_resampling_is_unbiased():
    rng = np.random.default_rng(2)
    weights = normalise(rng.standard_normal(8))
    counts = sum(np.bincount(systematic(weights, 5, rng), minlength=8) for _ in range(20_000)) / 20_000
    assert np.abs(counts - 5 * weights).max() < 3 * np.sqrt(0.25 / 20_000)


def test_dead_particles_are_never_resampled():
    weights = np.array([0.0, 0.5, 0.0, 0.5, 0.0])
    drawn = systematic(weights, 1000, np.random.default_rng(0))
    assert set(drawn) == {1, 3}


class Always:
    """A generator whose uniform is always the same."""

    def __init__(self, uniform):
        self.uniform = uniform

    def random(self):
        return self.uniform


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-53])
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_pointers_at_the_ends_find_living_particles(uniform, size):
    drawn = systematic(np.array([0.0, 0.4, 0.6, 0.0]), size, Always(uniform))
    assert set(drawn.tolist()) <= {1, 2}


def test_a_dead_particle_stays_dead():
    tilt = np.array([-np.inf, -1.0, 0.0])
    np.testing.assert_array_equal(incremental_log_weights(tilt, 0.0), [-np.inf, 0.0, 0.0])
    np.testing.assert_array_equal(incremental_log_weights(tilt, 3.0), [-np.inf, -3.0, 0.0])


def test_next_temperature_meets_the_threshold_or_the_end():
    tilt = -np.random.default_rng(3).random(500)
    found = next_temperature(tilt, 2.0, 500.0, 0.5)
    assert effective_sample_size((found - 2.0) * tilt) == pytest.approx(250, rel=1e-5)
    assert next_temperature(tilt, 2.0, 2.5, 0.5) == 2.5
    assert next_temperature(np.full(10, -0.3), 0.0, 1e6, 0.9) == 1e6  # a constant risk


def test_next_temperature_counts_living_particles():
    tilt = -np.random.default_rng(4).random(500)
    tilt[:400] = -np.inf
    found = next_temperature(tilt, 0.0, 1e4, 0.5)
    assert effective_sample_size(incremental_log_weights(tilt, found)) == pytest.approx(50, rel=1e-5)


def test_next_temperature_always_advances():
    tilt = np.array([0.0, -1e30, -1e30])
    assert 0.0 < next_temperature(tilt, 0.0, 1.0, 0.9) <= 1.0


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
