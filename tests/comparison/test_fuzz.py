"""Every public function of the array layer against an oracle, on inputs nobody chose."""

import datetime
import enum
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume
from hypothesis import strategies as st
from scipy.special import logsumexp
from sklearn.metrics import roc_auc_score

import pymc_pacauc as pac
from pymc_pacauc import arrays
from pymc_pacauc.certify import bounds
from pymc_pacauc.comparison.pairs import bipartite, encode_labels
from pymc_pacauc.numerics import effective_sample_size, log_mean_exp, normalise, systematic
from pymc_pacauc.smc.tempering import next_temperature
from pymc_pacauc.theorems import default_gamma, u_statistic_gamma
from tests import pair_lists
from tests.comparison.test_folds import stratified_folds
from tests.comparison.test_risk import brute_force, scored
from tests.fuzzing import fuzz
from tests.problem.test_problem import whitened_risk

masks = st.lists(st.booleans(), min_size=2, max_size=40).filter(lambda y: 0 < sum(y) < len(y)).map(np.array)
ties = st.sampled_from(["half", "strict"])
counts = st.integers(1, 10**12)
shares = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 5e-324, 1e-300, 1e-9, 0.5, 1 - 2**-53, 1.0]))
divergences = st.one_of(st.floats(0, 1e3), st.sampled_from([0.0, 1e-12, 1e6]))
sizes = st.one_of(st.integers(1, 2000), st.sampled_from([10**6, 10**12, 2**63 - 1]))
epsilons = st.floats(1e-12, 1 - 1e-9)


# --- risk -------------------------------------------------------------------------------------------------------------


@fuzz("empirical_risk", data=scored(), ties=ties)
def test_empirical_risk(data, ties):
    scores, y = data
    risk = pac.empirical_risk(scores, y, ties=ties)
    assert risk == pytest.approx(brute_force(scores, y, ties)[0], abs=1e-15)
    if ties == "half" and np.isfinite(scores).all():
        assert 1 - risk == pytest.approx(roc_auc_score(y, scores), abs=1e-12)


@fuzz(
    "arrays.linear_risk",
    y=masks,
    d=st.integers(0, 4),
    seed=st.integers(0, 10**6),
    ties=ties,
    exponent=st.integers(-60, 1020),
)
def test_linear_risk(y, d, seed, ties, exponent):
    """Against scores in exact arithmetic, at any scale that does not overflow; where it does, an error."""
    rng = np.random.default_rng(seed)
    X, theta = rng.integers(-3, 4, (y.size, d)), rng.integers(-3, 4, (3, d))
    exact = brute_force(theta @ X.T, y, ties)
    scaled = np.ldexp(theta.astype(float), exponent)
    if exponent < 1000:
        np.testing.assert_array_equal(pac.arrays.linear_risk(scaled, X, y, ties=ties), exact)
    else:
        huge = np.ldexp(theta.astype(float), 1020)
        with np.errstate(over="ignore", invalid="ignore"):
            overflows = ~np.isfinite(huge @ (1024.0 * X).T).all(axis=1)
        if overflows.any():
            with pytest.raises(ValueError, match=f"overflow for {overflows.sum()} of 3"):
                pac.arrays.linear_risk(huge, 1024.0 * X, y, ties=ties)
        else:
            np.testing.assert_array_equal(pac.arrays.linear_risk(huge, 1024.0 * X, y, ties=ties), exact)


# --- labels -----------------------------------------------------------------------------------------------------------


class Answer(enum.Enum):
    YES = 1
    NO = 0


text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
KINDS = {
    "integers": st.integers(-(2**63), 2**63 - 1),
    "neighbours": st.integers(2**53, 2**53 + 3),
    "floats": st.floats(allow_nan=False),
    "text": text,
    "booleans": st.booleans(),
    "dates": st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1)),
    "huge integers": st.integers(2**63, 2**80),
    "members": st.sampled_from(Answer),
    "mixed": st.one_of(st.integers(), text, st.booleans(), st.floats(allow_nan=False), st.sampled_from(Answer)),
}
OBJECTS = {"list": list, "tuple": tuple, "objects": lambda y: np.array(y, dtype=object)}
TYPED = {
    "array": np.array,
    "series": pd.Series,
    "categories": pd.Categorical,
    "masked": lambda y: np.ma.array(np.array(y), mask=False),
}


@fuzz(
    "arrays.bipartite",
    y=masks,
    data=st.data(),
    kind=st.sampled_from(sorted(KINDS)),
    make=st.sampled_from(sorted({**OBJECTS, **TYPED})),
)
def test_encode_labels_and_bipartite(y, data, kind, make):
    assume(make in OBJECTS or kind not in ("huge integers", "mixed"))
    yes, no = data.draw(st.tuples(KINDS[kind], KINDS[kind]).filter(lambda v: v[0] != v[1]))
    labels = {**OBJECTS, **TYPED}[make]([yes if flag else no for flag in y])
    np.testing.assert_array_equal(encode_labels(labels, positive=yes), y)
    np.testing.assert_array_equal(encode_labels(labels, positive=no), ~y)
    pairs = bipartite(labels, positive=yes)
    assert pairs.n_pairs == y.sum() * (~y).sum()
    np.testing.assert_array_equal(pairs.blocks[0].positive, np.flatnonzero(y))
    other = data.draw(KINDS[kind])
    if other not in (yes, no):
        with pytest.raises(ValueError, match="does not occur in y"):
            encode_labels(labels, positive=other)
        with pytest.raises(ValueError, match="3 distinct values"):
            encode_labels([*list(labels), other], positive=yes)


# --- comparisons ------------------------------------------------------------------------------------------------------


@st.composite
def compared(draw, classes=2):
    """Labels, scores with ties, strata and weights."""
    n = draw(st.integers(3, 14))
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    y = rng.integers(0, classes, n)
    assume(np.unique(y).size > 1)
    strata = rng.integers(0, draw(st.integers(1, 3)), n)
    assume(any(np.unique(y[strata == s]).size > 1 for s in np.unique(strata)))
    scale = 10.0 ** draw(st.integers(-100, 100))
    return y, rng.integers(-2, 3, (2, n)) * scale, strata, rng.uniform(0.1, 3.0, n)


def sorted_pairs(listed):
    order = np.lexsort(listed[1::-1])
    return tuple(column[order] for column in listed)


@fuzz("arrays.label_comparison", "arrays.stratified", "arrays.pair_risk", "arrays.Pairs", data=compared(), ties=ties)
def test_strata_and_weights(data, ties):
    """Against a list of the pairs; a common factor of the weights and the order of the rows change nothing."""
    y, scores, strata, weights = data
    expected = [pair_lists.listed_risk(row, pair_lists.label_pairs(y, strata, weights), ties) for row in scores]
    pairs = arrays.label_comparison(y, strata=strata, weights=weights)
    np.testing.assert_allclose(arrays.pair_risk(scores, pairs, ties=ties), expected, atol=1e-12)
    np.testing.assert_allclose(
        pac.empirical_risk(scores, y, strata=strata, weights=7 * weights, ties=ties), expected, atol=1e-12
    )
    order = np.random.default_rng(len(y)).permutation(len(y))
    turned = arrays.label_comparison(y[order], strata=strata[order], weights=weights[order])
    np.testing.assert_allclose(arrays.pair_risk(scores[:, order], turned, ties=ties), expected, atol=1e-12)
    plain = arrays.stratified(arrays.bipartite(y), strata)
    everyone = pair_lists.label_pairs(y, strata)
    assert plain.n_pairs == everyone[0].size
    for found, wanted in zip(pair_lists.listed(plain), sorted_pairs(everyone), strict=True):
        np.testing.assert_array_equal(found, wanted)


@fuzz("arrays.ordered_classes", data=compared(classes=4), ties=ties)
def test_ordered_classes(data, ties):
    """Against a list of the pairs; any increasing change of y changes nothing."""
    y, scores, strata, _ = data
    expected = [pair_lists.listed_risk(row, pair_lists.label_pairs(y), ties) for row in scores]
    np.testing.assert_allclose(arrays.pair_risk(scores, arrays.ordered_classes(y), ties=ties), expected, atol=1e-12)
    cubes = pac.empirical_risk(scores, 3.0 * y**3 - 1.0, ordered=True, strata=strata, ties=ties)
    expected = [pair_lists.listed_risk(row, pair_lists.label_pairs(y, strata), ties) for row in scores]
    np.testing.assert_allclose(cubes, expected, atol=1e-12)


@fuzz(
    "concordance_risk",
    "arrays.concordance",
    n=st.integers(2, 14),
    times=st.integers(1, 9),
    seed=st.integers(0, 2**20),
    ties=ties,
    power=st.sampled_from([1.0, 0.5, 3.0]),
)
def test_concordance(n, times, seed, ties, power):
    """Against a list of the pairs, or an error where there is none; any increasing change of the times is the same."""
    rng = np.random.default_rng(seed)
    time, event, scores = rng.integers(0, times, n), rng.random(n) < 0.6, rng.integers(-2, 3, n).astype(float)
    strata, weights, tau = rng.integers(0, 2, n), rng.uniform(0.1, 3.0, n), float(rng.integers(1, times + 2))
    options = {"strata": strata, "weights": weights, "tau": tau}
    listed = pair_lists.censored_pairs(time, event, strata, weights, tau)
    if not listed:
        with pytest.raises(ValueError, match=r"event has no event|leaves no event|no pair to compare"):
            pac.concordance_risk(scores, time, event, **options)
        return
    expected = pair_lists.listed_risk(scores, listed, ties)
    assert pac.concordance_risk(scores, time, event, **options, ties=ties) == pytest.approx(expected, abs=1e-12)
    assert arrays.concordance(time, event, **options).n_pairs == listed[0].size
    changed = pac.concordance_risk(
        np.arctan(scores), time**power, event.astype(int), **{**options, "tau": tau**power}, ties=ties
    )
    assert changed == pytest.approx(expected, abs=1e-12)
    if ties == "half":
        backwards = pac.concordance_risk(-scores, time, event, **options)
        assert backwards == pytest.approx(1 - expected, abs=1e-12)


# --- problems ---------------------------------------------------------------------------------------------------------


@fuzz(
    "arrays.linear_gaussian_problem",
    "arrays.spike_slab_problem",
    "arrays.Problem",
    "arrays.LinearRisk",
    y=masks,
    d=st.integers(1, 4),
    seed=st.integers(0, 2**20),
    ties=ties,
)
def test_problems(y, d, seed, ties):
    """The risk of a problem is that of its scores, given by theta or whitened; equal rows tie under any prior."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(3, d))
    place, known = rng.integers(0, 3, y.size), (seed % 2) * rng.normal(size=3)
    X, offset = rows[place], known[place]
    root = rng.normal(size=(d, d)) + 2 * np.eye(d)
    mean = rng.normal(size=d)
    problem = arrays.linear_gaussian_problem(
        X, y, 3.0, prior_mean=mean, prior_covariance=root @ root.T, offset=offset, ties=ties
    )
    assert (problem.n, problem.d, problem.pairs.n_pairs) == (y.size, d, y.sum() * (~y).sum())
    w = rng.standard_normal((4, d))
    theta = problem.prior.color(w)
    expected = brute_force((theta @ rows.T + known)[:, place], y, ties)
    np.testing.assert_allclose(whitened_risk(problem)(w), expected, atol=1e-12)
    np.testing.assert_allclose(problem.risk(theta), expected, atol=1e-12)
    assert problem.tied_pairs == sum(np.sum(y & (place == k)) * np.sum(~y & (place == k)) for k in range(3))
    sparse = arrays.spike_slab_problem(X, y, 3.0, inclusion_probability=0.3, v0=0.01, v1=2.0, offset=offset, ties=ties)
    np.testing.assert_allclose(sparse.risk(theta), expected, atol=1e-12)
    np.testing.assert_allclose(sparse.spikes.ratio, 0.005)
    direct = arrays.LinearRisk(X, problem.pairs, offset=offset if offset.any() else None, ties=ties)
    np.testing.assert_allclose(direct(theta), expected, atol=1e-12)


@fuzz(
    "arrays.kernel_features",
    "arrays.KernelFeatures",
    n=st.integers(2, 12),
    d=st.integers(1, 3),
    rank=st.integers(1, 12),
    lengthscale=st.floats(0.3, 5.0),
    seed=st.integers(0, 2**20),
)
def test_kernel_features(n, d, rank, lengthscale, seed):
    """Their products are the kernel, short of what is left out; the unit of X does not matter with its lengthscale."""
    X = np.random.default_rng(seed).normal(size=(n, d))
    K = np.exp(-0.5 * np.sum((X[:, None] - X) ** 2, axis=-1) / lengthscale**2)
    features = arrays.kernel_features(X, lengthscale=lengthscale, rank=rank)
    F = features.transform(X)
    assert F.shape == (n, features.rank)
    assert features.rank <= min(rank, n)
    missing = K - F @ F.T
    assert np.linalg.eigvalsh(missing).min() > -1e-6  # what is left out is a covariance
    assert features.left_out == pytest.approx(np.trace(missing) / n, abs=1e-6)
    assert -1e-9 <= features.left_out <= 1
    other = arrays.kernel_features(4.0 * X, lengthscale=4.0 * lengthscale, rank=rank)
    np.testing.assert_allclose(other.transform(4.0 * X), F, atol=1e-9)
    np.testing.assert_allclose(features.transform(X[:1]), F[:1], atol=1e-9)


# --- theorems ---------------------------------------------------------------------------------------------------------


@fuzz(
    "theorems.theorem_defaults",
    "theorems.TheoremDefaults",
    "theorems.default_gamma",
    n_pos=counts,
    n_neg=counts,
    d=st.integers(1, 10**6),
    C=st.floats(1, 1e6),
)
def test_theorem_defaults(n_pos, n_neg, d, C):
    n = n_pos + n_neg
    defaults = pac.theorems.theorem_defaults(np.int64(n_pos), n_neg, d, C=C)
    assert defaults.gamma == pytest.approx(float(Fraction(n_pos * n_neg, 4 * n) / Fraction(C)), rel=1e-14)
    assert defaults.prior_variance == pytest.approx(float(Fraction(2, d) * (1 + Fraction(1, n * n * d))), rel=1e-14)
    assert pac.theorems.theorem_defaults(n_neg, n_pos, d, C=C) == defaults
    assert default_gamma(n_pos, n_neg) == pytest.approx(float(Fraction(4 * n_pos * n_neg, n)), rel=1e-15)
    if d > 1:
        assert defaults.v0_proof * n == pytest.approx(defaults.v0, rel=1e-14)
        assert defaults.v0 * 2 * n * d * math.log(d) == pytest.approx(1, rel=1e-14)
    other = pac.theorems.theorem_defaults(n_pos, n_neg, d, assumption="MAinf", C=C)
    assert other.gamma_u == pytest.approx(C * math.sqrt(d * n * math.log(n)))
    assert other.within_lemma == (other.gamma_u <= (n - 1) / 8)


@fuzz("theorems.pair_gamma", "theorems.u_statistic_gamma", gamma=st.floats(1e-300, 1e280), n_pos=counts, n_neg=counts)
def test_pair_gamma(gamma, n_pos, n_neg):
    pair = pac.theorems.pair_gamma(gamma, n_pos, n_neg)
    n = n_pos + n_neg
    assert Fraction(pair) == pytest.approx(Fraction(gamma) * Fraction(2 * n_pos * n_neg, n * (n - 1)), rel=1e-15)
    assert u_statistic_gamma(pair, n_pos, n_neg) == pytest.approx(gamma, rel=1e-15)


# --- bounds -----------------------------------------------------------------------------------------------------------


def exact_kl(q, p):
    """kl(q || p) to 450 digits, of the numbers that the floats are."""
    with localcontext() as context:
        context.prec = 450
        q, p = Decimal(q), Decimal(p)
        parts = [a * (a / b).ln() if a else Decimal(0) for a, b in ((q, p), (1 - q, 1 - p)) if a or b]
        return sum(parts, Decimal(0))


@fuzz(q=shares, p=shares)
def test_binary_kl(q, p):
    if p in (0.0, 1.0):
        assert bounds.binary_kl(q, p) == (0 if q == p else math.inf)
    else:
        exact = float(exact_kl(q, p))
        assert bounds.binary_kl(q, p) == pytest.approx(exact, rel=1e-9, abs=1e-15 * abs(p - q))


@fuzz(q=shares, bound=st.one_of(st.floats(0, 5), st.floats(-60, 0).map(lambda e: 2.0**e)))
def test_kl_upper(q, bound):
    """An upper bound that is one: never below the exact value, and above it by rounding only."""
    p = bounds.kl_upper(q, bound)
    assert q <= p <= 1
    if p < 1:
        assert exact_kl(q, p) >= Decimal(bound) * (1 - Decimal("1e-12"))
    slack = 1e-12 + 1e-7 * (p - q)
    if q < p - slack:
        assert exact_kl(q, p - slack) <= Decimal(bound)


@fuzz(risk=shares, divergence=divergences, m=sizes, epsilon=epsilons, more=st.floats(0, 1))
def test_pac_bayes_kl(risk, divergence, m, epsilon, more):
    bound = bounds.pac_bayes_kl(risk, divergence, m, epsilon)
    assert bound == bounds.kl_upper(risk, (divergence + bounds.log_moment(m) - math.log(epsilon)) / m)
    assert risk <= bound <= 1
    assert bound <= bounds.pac_bayes_kl(risk, divergence + more, m, epsilon) + 1e-13
    assert bound <= bounds.pac_bayes_kl(risk + more * (1 - risk), divergence, m, epsilon) + 1e-13
    assert bound <= bounds.pac_bayes_kl(risk, divergence, m, epsilon * more or epsilon) + 1e-13
    assert 0 <= bounds.log_moment(m) <= math.log(2 * math.sqrt(m)) + 1e-9


@fuzz(
    risk=shares,
    divergence=divergences,
    m=sizes,
    epsilon=epsilons,
    beta=st.floats(1e-12, 1e3),
)
def test_catoni_bound(risk, divergence, m, epsilon, beta):
    rate = beta * m
    catoni = bounds.catoni_bound(risk, divergence, m, epsilon, rate=rate)
    cost = divergence - math.log(epsilon)
    assert catoni == pytest.approx(min(1.0, math.expm1(-beta * risk - cost / m) / math.expm1(-beta)), rel=1e-9)
    assert risk - 1e-9 <= catoni <= min(1.0, risk + cost / rate + beta / 8) + 1e-9  # Hoeffding's lemma
    assert bounds.kl_upper(risk, cost / m) <= catoni + 1e-9  # Catoni's bound is this one at its best rate
    assert bounds.catoni_bound(risk, divergence + 1.0, m, epsilon, rate=rate) >= catoni
    assert bounds.catoni_bound(risk, divergence, m, 0.5 * epsilon, rate=rate) >= catoni


# --- folds and weights ------------------------------------------------------------------------------------------------


@fuzz(y=masks, folds=st.integers(2, 6), seed=st.integers(0, 10**6))
def test_stratified_folds(y, folds, seed):
    if min(y.sum(), (~y).sum()) < folds:
        with pytest.raises(ValueError, match="Use fewer folds"):
            stratified_folds(y, folds, np.random.default_rng(seed))
        return
    fold = stratified_folds(y, folds, np.random.default_rng(seed))
    np.testing.assert_array_equal(fold, stratified_folds(y, folds, np.random.default_rng(seed)))
    for members in (y, ~y, np.ones_like(y)):
        assert np.ptp(np.bincount(fold[members], minlength=folds)) <= 1


@fuzz(y=masks, folds=st.integers(2, 4), seed=st.integers(0, 10**6), groups=st.integers(1, 12))
def test_stratified_folds_of_groups(y, folds, seed, groups):
    rng = np.random.default_rng(seed)
    group = rng.integers(0, groups, y.size)
    try:
        fold = stratified_folds(y, folds, rng, group)
    except ValueError as error:
        said = str(error)
        few = np.unique(group).size < folds
        assert ("fewer than folds" in said) if few else ("Use fewer folds" in said)
        return
    assert all(np.unique(fold[group == g]).size == 1 for g in np.unique(group))
    assert all(y[fold == k].any() and (~y[fold == k]).any() for k in range(folds))


log_weights = st.lists(st.one_of(st.floats(-800, 800), st.just(-math.inf)), min_size=1, max_size=40).map(np.array)


@fuzz(logs=log_weights, size=st.integers(1, 100), seed=st.integers(0, 10**6))
def test_weights_and_resampling(logs, size, seed):
    assume(np.isfinite(logs).any())
    assert log_mean_exp(logs) == pytest.approx(logsumexp(logs) - math.log(logs.size))
    normal = normalise(logs)
    np.testing.assert_allclose(normal, np.exp(logs - logsumexp(logs)), rtol=1e-12, atol=1e-300)
    ess = effective_sample_size(logs)
    assert ess == pytest.approx(1 / np.sum(normal**2))
    assert 1 - 1e-12 <= ess <= np.isfinite(logs).sum() + 1e-9
    chosen = np.bincount(systematic(normal, size, np.random.default_rng(seed)), minlength=logs.size)
    assert chosen.sum() == size
    assert (np.abs(chosen - size * normal) < 1 + 1e-6).all()
    assert (chosen[normal == 0] == 0).all()


@fuzz(logs=log_weights, threshold=st.floats(0.05, 0.95), end=st.floats(1e-3, 1e3))
def test_next_temperature(logs, threshold, end):
    assume(np.isfinite(logs).any())
    found = next_temperature(logs, 0.0, end, threshold)
    goal = threshold * np.isfinite(logs).sum()
    assert 0 < found <= end

    def ess(temperature):
        return effective_sample_size(temperature * logs)

    if found == end:
        assert ess(end) >= goal or ess(end * (1 - 1e-6)) >= goal * (1 - 1e-6)
    elif found > 2e-9 * end:  # above the resolution of the bisection
        assert ess(found) >= goal
        assert ess(found + 2e-9 * end) < goal
