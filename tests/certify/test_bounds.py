import inspect
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from pymc_pacauc.certify import bounds, certificate, held_out, matchings


@given(st.floats(0, 1), st.floats(0, 5))
def test_kl_inversion_is_the_largest_solution(q, bound):
    p = bounds.kl_upper(q, bound)
    assert q <= p <= 1
    if p < 1:
        assert bounds.binary_kl(q, p) >= bound * (1 - 1e-9) - 1e-12
        assert bounds.binary_kl(q, max(q, p - 1e-6)) <= bound + 1e-12


def test_kl_at_the_edges():
    assert bounds.binary_kl(0.0, 0.0) == 0
    assert bounds.binary_kl(1.0, 1.0) == 0
    assert bounds.binary_kl(0.3, 0.0) == math.inf
    assert bounds.kl_upper(0.0, 0.1) == pytest.approx(1 - math.exp(-0.1))
    assert bounds.kl_upper(0.2, 0.0) == pytest.approx(0.2)
    assert bounds.kl_upper(0.2, math.inf) == bounds.kl_upper(1.0, 0.1) == 1


@pytest.mark.parametrize("m", [1, 2, 7, 8, 50, 1000])
def test_moment_by_direct_summation(m):
    direct = sum(binom.pmf(k, m, k / m) for k in range(m + 1))
    assert bounds.log_moment(m) == pytest.approx(math.log(direct), rel=1e-10)
    assert bounds.log_moment(m) <= math.log(2 * math.sqrt(m)) + 1e-12


def test_moment_is_the_expectation_it_bounds():
    """E exp(m kl(mean, p)) of m Bernoulli(p) terms equals xi(m) whatever p is."""
    m, p = 40, 0.3
    k = np.arange(m + 1)
    kl = np.array([bounds.binary_kl(i / m, p) for i in k])
    assert np.log(np.sum(binom.pmf(k, m, p) * np.exp(m * kl))) == pytest.approx(bounds.log_moment(m))


def test_bounds_move_the_right_way():
    def at(**changes):
        return bounds.pac_bayes_kl(**{"risk": 0.2, "divergence": 5.0, "m": 100, "epsilon": 0.05, **changes})

    assert at(risk=0.1) < at() < at(risk=0.3)
    assert at(divergence=1.0) < at() < at(divergence=10.0)
    assert at(m=1000) < at() < at(m=50)
    assert at(epsilon=0.5) < at() < at(epsilon=0.001) < 1


def test_the_kl_bound_is_below_pinsker():
    risk, divergence, m = 0.15, 6.0, 177
    excess = math.sqrt((divergence + bounds.log_moment(m) + math.log(20)) / (2 * m))
    assert risk < bounds.pac_bayes_kl(risk, divergence, m) < risk + excess


@given(st.floats(0, 1), st.floats(0, 50), st.integers(1, 5000), st.floats(0.1, 5))
def test_catoni_is_never_worse_than_the_linear_bound(risk, divergence, m, beta):
    linear = min(1.0, risk + (divergence + math.log(20)) / (beta * m) + beta / 8.0)
    assert risk - 1e-12 <= bounds.catoni_bound(risk, divergence, m, rate=beta * m) <= linear + 1e-12


def test_catoni_at_its_best_rate_is_kl_without_the_moment():
    risk, divergence, m = 0.15, 6.0, 177
    best = min(bounds.catoni_bound(risk, divergence, m, rate=m * beta) for beta in np.linspace(0.2, 2, 2001))
    assert best == pytest.approx(bounds.kl_upper(risk, (divergence + math.log(20)) / m), abs=1e-6)
    assert bounds.catoni_bound(risk, divergence, m, rate=bounds.catoni_rate(m, 7)) < best + 0.002


def test_a_mean_size_that_is_not_whole_has_the_upper_bound_of_the_moment():
    assert bounds.log_moment(100.5) == math.log(2 * math.sqrt(100.5))


def test_huge_samples_and_tiny_rates():
    near = bounds.pac_bayes_kl(0.1, 5.0, 10**12)
    assert near - 0.1 == pytest.approx(math.sqrt(2 * 0.09 * (5 + math.log(2e6) + math.log(20)) / 1e12), rel=1e-5)
    assert bounds.pac_bayes_kl(0.1, 5.0, np.int32(2**31 - 1)) == bounds.pac_bayes_kl(0.1, 5.0, 2**31 - 1)
    assert bounds.catoni_bound(0.1, 5.0, 10, rate=5e-324) == bounds.catoni_bound(0.1, math.inf, 10, rate=1.0) == 1
    assert bounds.pac_bayes_kl(0.1, math.inf, 10) == 1


# -- what holds for every bound --------------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [1e-9, 0.2, 0.5, 0.97])
@pytest.mark.parametrize("step", [1e-4, 1e-7])
def test_a_divergence_of_nearly_equal_means_keeps_its_digits(q, step):
    """kl(q || q + s) is s^2 / (2 q (1 - q)) (1 - s (2/3) (1 - 2 q) / (q (1 - q)) + O(s^2)) for s much less than q."""
    step *= min(q, 1.0 - q)
    for s in (step, -step):
        expected = s * s / (2.0 * q * (1.0 - q)) * (1.0 - s * (2.0 / 3.0) * (1.0 - 2.0 * q) / (q * (1.0 - q)))
        assert bounds.binary_kl(q, q + s) == pytest.approx(expected, rel=1e-6, abs=0.0)


def test_divergences_by_their_definition():
    for q in (0.0, 0.1, 0.5, 0.9, 1.0):
        for p in (0.01, 0.3, 0.45, 0.55, 0.99):
            terms = [a * math.log(a / b) for a, b in ((q, p), (1.0 - q, 1.0 - p)) if a > 0.0]
            assert bounds.binary_kl(q, p) == pytest.approx(sum(terms), rel=1e-12)
    assert bounds.binary_kl(0.3, 1.0) == bounds.binary_kl(0.0, 1.0) == bounds.binary_kl(1.0, 0.0) == math.inf


def test_an_inverse_is_never_below_the_exact_one():
    """Nor above it by more than 1e-13 in the mean."""
    rng = np.random.default_rng(1)
    for q, bound in zip(rng.random(500), 10.0 ** rng.uniform(-6, 1, size=500), strict=True):
        p = bounds.kl_upper(q, bound)
        if p < 1.0:
            rounding = 1e-15 / min(p, 1.0 - p)
            assert bounds.binary_kl(q, p) >= bound - rounding
            assert bounds.binary_kl(q, max(q, p - 1e-13)) <= bound + rounding


def test_options_have_one_default():
    """Whatever bound, rate or certificate: what is certified by one may be compared with another."""
    expected = {"epsilon": 0.05, "selected_from": 1, "auc": 0.85, "equal_matchings": True, "compared": 1}
    seen = set()
    for module in (bounds, matchings, certificate, held_out):
        for _, function in inspect.getmembers(module, inspect.isfunction):
            for name, parameter in inspect.signature(function).parameters.items():
                if name in expected and parameter.default is not inspect.Parameter.empty:
                    assert parameter.default == expected[name], (function, name)
                    seen.add(name)
    assert seen == set(expected)


def test_the_bound_of_a_mean_is_that_of_maurer_and_pontil():
    log_term = math.log(2.0 / 0.01)
    expected = 0.3 + 0.02 * math.sqrt(2.0 * log_term) + 7.0 * log_term / (3.0 * 499)
    assert bounds.mean_bound(0.3, 0.02, 500, 0.01) == pytest.approx(expected, rel=1e-14)
    assert math.isfinite(bounds.mean_bound(0.3, 0.02, 2, 0.01))


def test_the_bound_of_a_mean_fails_as_rarely_as_it_says():
    """Of 30 coins, exactly, whatever their probability."""
    n, k = 30, np.arange(31)
    errors = np.sqrt(k / n * (1.0 - k / n) / (n - 1))
    highest = np.array([bounds.mean_bound(a / n, b, n, 0.5) for a, b in zip(k, errors, strict=True)])
    failures = [binom.pmf(k, n, p)[highest < p].sum() for p in np.linspace(0.01, 0.99, 99)]
    assert max(failures) <= 0.5


def test_rates_are_near_the_best_for_the_divergence_they_are_for():
    """Catoni's, where the AUC is the one assumed; doubled or halved, the bound is worse."""
    for m, d, auc in ((100, 2, 0.85), (2000, 10, 0.85), (2000, 10, 0.95)):
        options = {} if auc == 0.85 else {"auc": auc}
        rate = bounds.catoni_rate(m, d, **options)
        at, twice, half = (bounds.catoni_bound(1.0 - auc, d, m, rate=f * rate) for f in (1.0, 2.0, 0.5))
        best = bounds.kl_upper(1.0 - auc, (d + math.log(20.0)) / m)
        assert best - 1e-12 <= at < min(twice, half)
        assert at - best < 0.15 * (best - (1.0 - auc))
