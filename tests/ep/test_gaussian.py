"""EP and variational Bayes against a plain reference, exact answers, and their own identities."""

import dataclasses
from functools import partial

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import ndtr

import pymc_pacauc as pac
from pymc_pacauc import fitting
from pymc_pacauc.comparison.pairs import Block, Pairs, bipartite
from pymc_pacauc.ep import loop as gaussian_iteration
from pymc_pacauc.ep.fit import fit as fit_by_plan
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.ep.plan import choose_plan
from pymc_pacauc.ep.posterior import natural_gaussian
from pymc_pacauc.ep.sites import site_functions
from pymc_pacauc.ep.sweep import ROWS_AT_ONCE
from pymc_pacauc.problem.problem import linear_gaussian_problem
from tests.oracles import exact_line, exact_plane, line_data, plane_data
from tests.reference_ep import reference_ep

TIGHT = {"tolerance": 1e-12, "max_sweeps": 1000}


def small_data(n=24, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, (X[:, 0] - 0.5 * X[:, 1] + rng.standard_normal(n) > 0.2).astype(int)


def spd(d, seed=1):
    A = np.random.default_rng(seed).standard_normal((d, d))
    return A @ A.T / d + 0.3 * np.eye(d)


@pytest.mark.parametrize("power", [1.0, 0.4])
@pytest.mark.parametrize("gamma", [2.0, 24.0])
@pytest.mark.parametrize(
    "prior",
    [
        {},
        {"prior_covariance": spd(3)},
        {"prior_covariance": spd(3), "prior_mean": np.array([0.3, -0.2, 0.5]), "offset": 0.1 * np.arange(24)},
    ],
    ids=["standard", "correlated", "offset"],
)
def test_equals_the_papers_algorithm(gamma, prior, power):
    X, y = small_data()
    fit = fitting.fit(linear_gaussian_problem(X, y, gamma, **prior), power=power, **TIGHT)
    mean, covariance, log_evidence = reference_ep(X, y, gamma, power=power, **prior)
    np.testing.assert_allclose(fit.posterior.mean, mean, atol=1e-9)
    np.testing.assert_allclose(fit.posterior.covariance, covariance, atol=1e-9)
    assert fit.log_evidence == pytest.approx(log_evidence, abs=1e-9)


def test_sequential_and_parallel_share_the_fixed_point():
    X, y = small_data(12, 2, seed=3)
    fit = fitting.fit(linear_gaussian_problem(X, y, 8.0), **TIGHT)
    mean, covariance, log_evidence = reference_ep(X, y, 8.0, sequential=True, iterations=200)
    np.testing.assert_allclose(fit.posterior.mean, mean, atol=1e-9)
    np.testing.assert_allclose(fit.posterior.covariance, covariance, atol=1e-9)
    assert fit.log_evidence == pytest.approx(log_evidence, abs=1e-9)


@pytest.mark.parametrize("fit", [fitting.fit, partial(fitting.fit, method="vb")])
@pytest.mark.parametrize("gamma_over_n", [0.125, 1.0, 2.0])
def test_exact_plane(fit, gamma_over_n):
    X, y = plane_data(300)
    exact = exact_plane(X, y, 300 * gamma_over_n)
    found = fit(linear_gaussian_problem(X, y, 300 * gamma_over_n))
    direction = found.posterior.mean / np.linalg.norm(found.posterior.mean)
    expected = exact.mean_direction / np.linalg.norm(exact.mean_direction)
    assert np.arccos(direction @ expected) < 0.01
    assert found.expected_risk == pytest.approx(exact.expected_risk, abs=0.005)
    # A Gaussian cannot hold the exact radius: its evidence is low, by less than half a nat in the plane.
    assert -0.5 < found.log_evidence - exact.log_evidence < 0.0


@pytest.mark.parametrize("gamma", [5.0, 40.0, 100.0])
def test_exact_line_with_an_offset(gamma):
    x, offset, y = line_data()
    exact = exact_line(x, y, gamma, offset=offset)
    fit = fitting.fit(linear_gaussian_problem(x[:, None], y, gamma, offset=offset))
    assert fit.posterior.mean[0] == pytest.approx(exact.mean, abs=0.05)
    assert fit.log_evidence == pytest.approx(exact.log_evidence, abs=0.1)


def test_vb_bound_is_optimal_and_closed_form():
    X, y = small_data()
    gamma = 24.0
    fit = fitting.fit(linear_gaussian_problem(X, y, gamma), "vb", **TIGHT)
    bound = -gamma * fit.expected_risk - fit.posterior.divergence_from_prior
    assert fit.log_evidence == pytest.approx(bound, abs=1e-9)
    D = (X[y == 1][:, None] - X[y == 0][None]).reshape(-1, 3)
    lower = np.tril_indices(3)

    def minus_bound(parameters):  # written out independently, in the Cholesky factor of the covariance
        m, L = parameters[:3], np.zeros((3, 3))
        L[lower] = parameters[3:]
        risk = ndtr(-D @ m / np.linalg.norm(D @ L, axis=1)).mean()
        kl = 0.5 * (np.sum(L**2) + m @ m - 3) - np.log(np.abs(np.diagonal(L))).sum()
        return gamma * risk + kl

    start = np.concatenate([fit.posterior.mean, np.linalg.cholesky(fit.posterior.covariance)[lower]])
    best = minimize(minus_bound, start + 0.05, tol=1e-12)
    assert -best.fun == pytest.approx(bound, abs=1e-8)
    np.testing.assert_allclose(best.x[:3], fit.posterior.mean, atol=1e-4)


def test_ep_with_tiny_sites_is_close_to_vb():
    X, y = plane_data(300)
    problem = linear_gaussian_problem(X, y, 30.0)
    ep, vb = fitting.fit(problem, **TIGHT), fitting.fit(problem, "vb", **TIGHT)
    np.testing.assert_allclose(ep.posterior.mean, vb.posterior.mean, rtol=2e-3)
    np.testing.assert_allclose(ep.posterior.covariance, vb.posterior.covariance, atol=2e-3)
    closer = fitting.fit(problem, power=0.1, **TIGHT)
    assert abs(closer.log_evidence - vb.log_evidence) < 0.2 * abs(ep.log_evidence - vb.log_evidence)


def test_gamma_to_zero_gives_the_prior():
    X, y = small_data()
    problem = linear_gaussian_problem(X, y, 1e-7, prior_mean=[1.0, 2.0, 3.0], prior_covariance=spd(3))
    fit = fitting.fit(problem)
    np.testing.assert_allclose(fit.posterior.mean, problem.prior.mean, atol=1e-6)
    np.testing.assert_allclose(fit.posterior.covariance, problem.prior.covariance, atol=1e-6)
    assert fit.log_evidence == pytest.approx(-1e-7 * fit.expected_risk, abs=1e-12)


def test_derivative_of_the_evidence_in_gamma_is_minus_the_expected_risk_for_vb():
    X, y = small_data()
    problem = linear_gaussian_problem(X, y, 10.0)
    up, down = (fitting.fit(dataclasses.replace(problem, gamma=g), "vb", **TIGHT).log_evidence for g in (10.001, 9.999))
    assert (up - down) / 0.002 == pytest.approx(-fitting.fit(problem, "vb", **TIGHT).expected_risk, abs=1e-6)


def test_invariant_to_column_scaling_with_matched_prior():
    X, y = small_data()
    scale = np.array([1e-3, 1.0, 1e4])
    plain = fitting.fit(linear_gaussian_problem(X, y, 24.0), **TIGHT)
    scaled = fitting.fit(linear_gaussian_problem(X * scale + 7.0, y, 24.0, prior_covariance=scale**-2.0), **TIGHT)
    np.testing.assert_allclose(scaled.posterior.mean * scale, plain.posterior.mean, rtol=1e-7)
    assert scaled.log_evidence == pytest.approx(plain.log_evidence, abs=1e-8)


def test_common_prior_scale_is_flat():
    X, y = small_data()
    one, nine = (fitting.fit(linear_gaussian_problem(X, y, 24.0, prior_covariance=v), **TIGHT) for v in (1.0, 9.0))
    assert one.log_evidence == pytest.approx(nine.log_evidence, abs=1e-10)
    np.testing.assert_allclose(3 * one.posterior.mean, nine.posterior.mean, rtol=1e-9)


def test_equal_rows_are_constant_factors():
    X, y = small_data()
    X[np.flatnonzero(y)[:3]] = X[np.flatnonzero(1 - y)[0]]
    for ties, cost in (("half", 0.5), ("strict", 0.0)):
        fit = fitting.fit(linear_gaussian_problem(X, y, 24.0, ties=ties), **TIGHT)
        assert fit.tied_pairs == 3
        # the same pairs, the tied ones taken out: each of them is worth exp(-gamma' cost), and nothing else
        positive, negative = np.flatnonzero(y), np.flatnonzero(1 - y)
        without = Pairs(24, (Block(positive[3:], negative), Block(positive[:3], negative[1:])))
        gamma = 24.0 * without.n_pairs / bipartite(y).n_pairs
        rest = fitting.fit(linear_gaussian_problem(X, without, gamma), **TIGHT)
        np.testing.assert_allclose(fit.posterior.mean, rest.posterior.mean, atol=1e-9)
        constant = -3 * cost * 24.0 / bipartite(y).n_pairs
        assert fit.log_evidence == pytest.approx(rest.log_evidence + constant, abs=1e-9)


def test_blocks_add_up():
    X, y = small_data()
    positive, negative = np.flatnonzero(y), np.flatnonzero(1 - y)
    blocks = Pairs(
        24, (Block(positive[:4], negative), Block(positive[4:], negative[:5]), Block(positive[4:], negative[5:]))
    )
    whole, parts = (fitting.fit(linear_gaussian_problem(X, pairs, 24.0), **TIGHT) for pairs in (y, blocks))
    np.testing.assert_allclose(whole.posterior.mean, parts.posterior.mean, atol=1e-10)
    assert whole.log_evidence == pytest.approx(parts.log_evidence, abs=1e-10)


@pytest.mark.parametrize("n", [20, 60])
def test_more_coefficients_than_observations(n):
    """The dual against the primal: the same fit with the design padded by columns of zeros, or computed in both."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((n, 40))
    y = (X[:, 0] + 0.5 * rng.standard_normal(n) > 0).astype(int)
    covariance, offset = spd(40), 0.3 * rng.standard_normal(n)
    problem = linear_gaussian_problem(X, y, float(n), prior_covariance=covariance, offset=offset)
    fit = fitting.fit(problem, **TIGHT)
    assert (fit.problem.scores.reduced.rotation is not None) == (n < 40)
    mean, V, log_evidence = reference_ep(X, y, float(n), prior_covariance=covariance, offset=offset)
    np.testing.assert_allclose(fit.posterior.mean, mean, atol=1e-8)
    np.testing.assert_allclose(fit.posterior.covariance, V, atol=1e-8)
    assert fit.log_evidence == pytest.approx(log_evidence, abs=1e-8)


def test_threads_do_not_change_the_result():
    X, y = plane_data(1200)
    problem = linear_gaussian_problem(X, y, 1000.0)
    assert problem.pairs.n_pairs > ROWS_AT_ONCE**2
    one, three = (fitting.fit(problem, n_jobs=threads) for threads in (1, 3))
    assert one.log_evidence == three.log_evidence
    np.testing.assert_array_equal(one.posterior.mean, three.posterior.mean)


@pytest.mark.parametrize("change", [{"gamma": 40.0}, {"prior": np.array([1.0, 3.0, 0.5])}, {"prior": spd(3)}])
@pytest.mark.parametrize("d", [3, 30])
def test_warm_start(change, d):
    X, y = small_data(24, d)
    variances = np.ones(d)
    first = fitting.fit(linear_gaussian_problem(X, y, 24.0, prior_covariance=variances), **TIGHT)
    prior = change.get("prior", variances)
    if d == 30:
        prior = np.linspace(0.5, 2.0, 30) if prior.ndim == 1 else spd(30)
    target = linear_gaussian_problem(X, y, change.get("gamma", 24.0), prior_covariance=prior)
    cold, warm = fitting.fit(target, **TIGHT), fitting.fit(target, start=first, **TIGHT)
    np.testing.assert_allclose(warm.posterior.mean, cold.posterior.mean, atol=1e-8)
    again = fitting.fit(target, start=cold)
    assert again.sweeps <= 2


LIMITS = {0.125: 30, 1.0: 30, 2.0: 60}


@pytest.mark.parametrize("name", ["pima", "spect", "glass", "credit", "dna"])
@pytest.mark.parametrize("gamma_over_n", LIMITS)
def test_few_sweeps_on_shipped_data(name, gamma_over_n):
    data = getattr(pac.datasets, f"load_{name}")()
    X = (data.X - data.X.mean(axis=0)) / np.where(data.X.std(axis=0) > 0, data.X.std(axis=0), 1.0)
    fit = fitting.fit(linear_gaussian_problem(X, data.y, gamma_over_n * len(X)))
    assert fit.converged
    assert fit.sweeps <= LIMITS[gamma_over_n]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_bound_guards_against_steps_that_lead_away(seed, monkeypatch):
    """At twenty times n, from the prior; without taking steps back none of these converges."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40, 8))
    problem = linear_gaussian_problem(X, (X[:, 0] + rng.standard_normal(40) > 0.5).astype(int), 800.0)
    from_prior = dataclasses.replace(choose_plan(problem), continuation=False, max_sweeps=150)
    fit = fit_by_plan(problem, from_prior)
    assert fit.converged
    assert fit.sweeps <= 90
    assert fit.interventions.rejected_steps > 0
    monkeypatch.setattr(gaussian_iteration, "POLICY", dataclasses.replace(gaussian_iteration.POLICY, loss=np.inf))
    with pytest.warns(ConvergenceWarning):
        fit_by_plan(problem, from_prior)


def test_the_metric_of_the_mixing_is_that_of_the_divergence():
    """Half tr(V P V P) + h'V h, for a step (P, h) of the natural parameters, V the diagonal of the covariance."""
    rng = np.random.default_rng(4)
    q = natural_gaussian(spd(4), rng.standard_normal(4))
    P, h = spd(4, seed=5) - 2.0 * np.eye(4), rng.standard_normal(4)
    step = np.concatenate([P[np.triu_indices(4)], h])
    found = gaussian_iteration._metric(q, None)(step)
    V = np.diag(np.diagonal(q.covariance))
    assert found @ found == pytest.approx(0.5 * np.trace(V @ P @ V @ P) + h @ V @ h)


@pytest.mark.parametrize("binary", [False, True])
def test_one_coefficient_at_a_large_gamma(binary):
    """Its rho is the same for all pairs, up to the sign: the fixed point solves two equations in two numbers.

    Damped steps that lead to and fro must become smaller, however often they come back.
    """
    rng = np.random.default_rng(500)
    x = rng.normal(size=500)
    y = x + rng.logistic(size=500) > 1.0
    x = (x > 0.0).astype(float) if binary else x
    fit = fitting.fit(linear_gaussian_problem(x[:, None], y, gamma=50.0 * y.sum() * (~y).sum() / 500), **TIGHT)
    assert fit.converged
    ordered = np.sign(x[y][:, None] - x[~y])
    m, variance = fit.posterior.mean[0], fit.posterior.variance[0]
    rho = np.array([1.0, -1.0]) * m / np.sqrt(variance)
    site = site_functions(rho, fit.problem.gamma_per_pair)
    pairs = np.array([(ordered > 0).sum(), (ordered < 0).sum()])
    assert 1.0 / variance == pytest.approx(1.0 + pairs @ site.precision / variance, rel=1e-7)
    assert m / variance == pytest.approx(pairs * [1.0, -1.0] @ site.shift / np.sqrt(variance), rel=1e-7)


def test_equal_rows_are_ranked_by_their_offsets_or_tie_to_rounding():
    X, y = small_data()
    X[[3, 4, 5, 6]] = X[2]
    pairs = {}
    for gap in (0.0, 1e-15, 1e-9):
        offset = np.zeros(24)
        offset[2:7] = 0.3 + gap * np.arange(5)
        problem = linear_gaussian_problem(X, y, 24.0, offset=offset)
        pairs[gap] = fitting.fit(problem, **TIGHT)
    among = bipartite(y[2:7])
    assert among.n_pairs > 0
    assert [pairs[gap].tied_pairs for gap in pairs] == [among.n_pairs, among.n_pairs, 0]
    ranked = pac.empirical_risk(np.arange(5.0), y[2:7]) * among.n_pairs
    gained = (0.5 * among.n_pairs - ranked) * 24.0 / bipartite(y).n_pairs
    assert pairs[1e-9].log_evidence - pairs[0.0].log_evidence == pytest.approx(gained, abs=1e-6)
    assert pairs[1e-15].log_evidence == pytest.approx(pairs[0.0].log_evidence, abs=1e-12)


@pytest.mark.parametrize(
    ("approximate", "name"), [(fitting.fit, "EP"), (partial(fitting.fit, method="vb"), "GaussianVB")]
)
def test_non_convergence_is_said(approximate, name):
    X, y = small_data()
    with pytest.warns(ConvergenceWarning, match=f"^{name} did not converge in 3 sweeps"):
        fit = approximate(linear_gaussian_problem(X, y, 24.0), max_sweeps=3)
    assert not fit.converged
    assert "NOT converged" in repr(fit)


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.arange(6.0)[:, None], [0, 0, 1, 0, 1, 1]),  # d = 1
        (np.random.default_rng(0).standard_normal((9, 2)), np.arange(9) == 4),  # one positive
        (np.column_stack([np.arange(6.0), np.zeros(6)]), [0, 0, 1, 0, 1, 1]),  # a zero column
        (np.zeros((6, 2)), [0, 0, 1, 0, 1, 1]),  # nothing but ties
        (1e9 * np.arange(6.0)[:, None], [0, 0, 1, 0, 1, 1]),  # huge
        (np.array([[0.0], [1.0]]), [0, 1]),  # a single pair
    ],
    ids=["line", "one positive", "zero column", "all tied", "huge", "one pair"],
)
def test_edge_cases_converge(X, y):
    fit = fitting.fit(linear_gaussian_problem(X, y, 5.0))
    assert fit.converged
    assert np.isfinite(fit.log_evidence)
    assert np.isfinite(fit.posterior.covariance).all()


def test_gamma_beyond_what_sites_can_represent():
    X = np.random.default_rng(0).standard_normal((12, 2))
    y = X[:, 0] > 0
    n_pairs = bipartite(y).n_pairs
    assert fitting.fit(linear_gaussian_problem(X, y, 30.0 * n_pairs)).converged
    with pytest.raises(ValueError, match="per pair"):
        fitting.fit(linear_gaussian_problem(X, y, 60.0 * n_pairs))


def test_overflow_is_an_error():
    X, y = small_data()
    with pytest.raises(FloatingPointError, match="rescale"):
        fitting.fit(linear_gaussian_problem(1e200 * X, y, 24.0))


@pytest.mark.parametrize("gamma", [5.0, 60.0])
def test_an_offset_that_double_precision_cannot_hold_is_refused(gamma):
    """EP was converged, with log Z wrong by 50 or 40000: the error is that of rounding, and known beforehand."""
    rng = np.random.default_rng(0)
    x, group = rng.standard_normal(60), rng.integers(0, 5, 60)
    y = (x + rng.logistic(size=60) > 0).astype(int)
    exact = exact_line(x, y, gamma, offset=1e3 * group + 0.1 * x**2).log_evidence
    bias = (
        fitting.fit(linear_gaussian_problem(x[:, None], y, gamma, offset=1e3 * group + 0.1 * x**2)).log_evidence - exact
    )
    for scale in 10.0 ** np.arange(4, 10):
        problem = linear_gaussian_problem(x[:, None], y, gamma, offset=scale * group + 0.1 * x**2)
        if scale >= 1e7:
            with pytest.raises(ValueError, match=r"times the prior standard deviation of a score.*TemperingSMC"):
                fitting.fit(problem)
        elif scale <= 1e5:
            assert fitting.fit(problem).log_evidence - exact == pytest.approx(bias, abs=1e-3)
    with pytest.raises(ValueError, match="double precision"):
        fitting.fit(linear_gaussian_problem(x[:, None], y, gamma, offset=1e8 * rng.standard_normal(60)))
    with pytest.raises(ValueError, match="double precision"):
        fitting.fit(
            linear_gaussian_problem(np.column_stack([x, group]), y, gamma, prior_mean=[0, 1e9], prior_covariance=1.0)
        )


def test_power_is_checked():
    X, y = small_data()
    with pytest.raises(ValueError, match="power"):
        fitting.fit(linear_gaussian_problem(X, y, 1.0), power=0.0)


def test_start_must_fit():
    X, y = small_data()
    first = fitting.fit(linear_gaussian_problem(X[:, :2], y, 1.0))
    with pytest.raises(ValueError, match="start has 2 coefficients"):
        fitting.fit(linear_gaussian_problem(X, y, 1.0), start=first)


def test_rows_that_nearly_coincide():
    """Their sites are huge: in the sums over all pairs rounding would leave nothing of them."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 4))
    y = (X[:, 0] + rng.standard_normal(60) > 0).astype(int)
    i, j = np.flatnonzero(y == 1)[:5], np.flatnonzero(y == 0)[:5]
    direction = rng.standard_normal((5, 4))
    fits = {}
    for distance in (1e-4, 1e-6, 1e-8, 1e-10):
        close = X.copy()
        close[j] = close[i] + distance * direction
        fits[distance] = fitting.fit(linear_gaussian_problem(close, y, 60.0))
        assert fits[distance].converged
        assert fits[distance].tied_pairs == 0
        assert fits[distance].log_evidence == pytest.approx(fits[1e-4].log_evidence, abs=1e-3)
        np.testing.assert_allclose(fits[distance].posterior.mean, fits[1e-4].posterior.mean, atol=1e-3)
    close[j] = close[i]
    assert fitting.fit(linear_gaussian_problem(close, y, 60.0)).tied_pairs == 5
