import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pymc_pacauc as pac

counts = st.integers(1, 5000)


@given(n_pos=counts, n_neg=counts, d=st.integers(1, 500), C=st.floats(1, 100))
def test_theorem_2_3_and_2_5(n_pos, n_neg, d, C):
    n = n_pos + n_neg
    defaults = pac.theorems.theorem_defaults(n_pos, n_neg, d, C=C)
    assert defaults.gamma == pytest.approx(n_pos * n_neg / (4 * C * n))
    assert defaults.gamma_u == pytest.approx((n - 1) / (8 * C))
    assert defaults.prior_variance == pytest.approx(2 / d * (1 + 1 / (n**2 * d)))
    assert defaults.inclusion_probability == pytest.approx(1 - math.exp(-1 / d))
    assert defaults.within_lemma
    if d > 1:
        assert defaults.v0 == pytest.approx(1 / (2 * n * d * math.log(d)))
        assert defaults.v0_proof == pytest.approx(defaults.v0 / n)


def test_theorem_2_5_bounds_nothing_for_one_covariate():
    defaults = pac.theorems.theorem_defaults(10, 20, 1)
    assert defaults.v0 == defaults.v0_proof == math.inf


def test_theorem_2_4():
    defaults = pac.theorems.theorem_defaults(68, 132, 7, assumption="MAinf", C=2)
    gamma_u = 2 * math.sqrt(7 * 200 * math.log(200))
    assert defaults.gamma_u == pytest.approx(gamma_u)
    assert defaults.gamma == pytest.approx(gamma_u * 2 * 68 * 132 / (200 * 199))
    assert defaults.gamma_u_limit == 199 / 8
    assert not defaults.within_lemma
    assert "Theorem 2.4" in repr(defaults)
    assert "times the largest value Lemma 2.2 covers" in repr(defaults)
    large = pac.theorems.theorem_defaults(50_000, 50_000, 2, assumption="MAinf", C=1)
    assert large.within_lemma
    assert "Lemma" not in repr(large)


def test_default_constants():
    assert pac.theorems.theorem_defaults(5, 6, 2).C == 1.0
    assert pac.theorems.theorem_defaults(5, 6, 2, assumption="MAinf").C == 4.0


@pytest.mark.parametrize("words", ["MA(1, 1)", "Theorem 2.3", "Theorem 2.5, as stated", "Theorem 2.5, as proved"])
def test_repr_names_the_theorems(words):
    assert words in repr(pac.theorems.theorem_defaults(5, 6, 2))


def test_record_is_frozen():
    with pytest.raises(FrozenInstanceError):
        pac.theorems.theorem_defaults(5, 6, 2).gamma = 1.0


@given(gamma=st.floats(1e-6, 1e6), n_pos=counts, n_neg=counts)
def test_conversion_keeps_the_posterior(gamma, n_pos, n_neg):
    """gamma_U times the n(n-1)-normalised risk equals gamma times the pair risk, whatever the number of wrong pairs."""
    n, wrong = n_pos + n_neg, 3
    u_statistic = 2 * wrong / (n * (n - 1))  # each unordered pair is counted in both orders
    pair_gamma = pac.theorems.pair_gamma(gamma, n_pos, n_neg)
    assert gamma * u_statistic == pytest.approx(pair_gamma * wrong / (n_pos * n_neg))
    assert pac.theorems.u_statistic_gamma(pair_gamma, n_pos, n_neg) == pytest.approx(gamma)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((0, 5, 2), {}, ValueError, "n_pos must be at least 1; got 0"),
        ((5, -1, 2), {}, ValueError, "n_neg must be at least 1; got -1"),
        ((5, 5, 0), {}, ValueError, "d must be at least 1; got 0"),
        ((5.5, 5, 2), {}, TypeError, "n_pos must be an integer; got 5.5"),
        ((5, "6", 2), {}, TypeError, "n_neg must be an integer; got '6'"),
        ((10**400, 5, 2), {}, ValueError, r"n_pos is above 2\*\*63 - 1"),
        ((5, 5, 2), {"assumption": "MA2"}, ValueError, 'assumption must be "MA1" or "MAinf"; got \'MA2\''),
        ((5, 5, 2), {"C": 0.5}, ValueError, "C must be a finite number >= 1.*got 0.5"),
        ((5, 5, 2), {"C": math.nan}, ValueError, "C must be a finite number >= 1"),
    ],
)
def test_bad_theorem_arguments(arguments, options, error, message):
    with pytest.raises(error, match=message):
        pac.theorems.theorem_defaults(*arguments, **options)


@pytest.mark.parametrize("gamma", [0.0, -1.0, math.nan, math.inf])
def test_bad_gamma(gamma):
    with pytest.raises(ValueError, match="gamma_u must be a finite number > 0"):
        pac.theorems.pair_gamma(gamma, 5, 5)
    with pytest.raises(ValueError, match="gamma must be a finite number > 0"):
        pac.theorems.u_statistic_gamma(gamma, 5, 5)


def test_numpy_counts_are_counts():
    y = np.array([0, 1, 1])
    assert pac.theorems.theorem_defaults(y.sum(), (1 - y).sum(), np.int32(2)).gamma == pytest.approx(2 / 12)


@pytest.mark.parametrize("kind", [int, np.int32, np.uint32, np.int64])
def test_huge_counts_do_not_wrap_around(kind):
    n = kind(2**31 - 1)
    assert pac.theorems.theorem_defaults(n, n, kind(7)).gamma == pytest.approx((2**31 - 1) / 8, rel=1e-15)
    assert pac.theorems.pair_gamma(1.0, n, n) == pytest.approx(0.5 * (1 + 1 / (2**32 - 3)), rel=1e-15)


def test_the_largest_counts():
    n = 2**63 - 1
    for assumption in ("MA1", "MAinf"):
        defaults = pac.theorems.theorem_defaults(n, n, n, assumption=assumption)
        assert all(np.isfinite([defaults.gamma, defaults.prior_variance, defaults.v0, defaults.v0_proof]))
    assert pac.theorems.theorem_defaults(10**12, 10**12, 7).gamma == 10**12 / 8
    with pytest.raises(ValueError, match="gamma_u would be too large"):
        pac.theorems.u_statistic_gamma(1e308, 1, 10**12)
