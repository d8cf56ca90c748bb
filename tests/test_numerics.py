import numpy as np
import pytest

from pymc_pacauc.numerics import effective_sample_size, log_mean_exp, normalise, systematic


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
