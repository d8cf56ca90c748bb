"""Spike-and-slab priors on arrays: the mixture site, the Gaussian, EP against exact answers, what fails and how."""

import numpy as np
import pytest
from scipy import integrate, special, stats

import pymc_pacauc as pac
from pymc_pacauc import fitting
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.ep.prior_sites import matched_sites, sparse_gaussian
from pymc_pacauc.problem.problem import (
    Spikes,
    default_inclusion_probability,
    linear_gaussian_problem,
    spike_slab_problem,
)
from tests.oracles import plane_data, sparse_data
from tests.quadrature import exact_spike_slab_plane


def mixture_site(tau, nu, log_odds, v0):
    """The site of a spike and slab with these log odds of the slab."""
    return matched_sites(tau, nu, Spikes(special.expit(log_odds), v0))


# -- the site ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tau", "nu"), [(0.7, 0.4), (2.0, -3.0), (-0.3, 0.5), (30.0, 12.0)])
def test_the_mixture_site_matches_moments_by_quadrature(tau, nu):
    p, v0 = 0.3, 0.05

    def moment(k):
        def tilted(w):
            prior = p * stats.norm.pdf(w) + (1 - p) * stats.norm.pdf(w, 0, np.sqrt(v0))
            return w**k * prior * np.exp(-0.5 * tau * w**2 + nu * w)

        return integrate.quad(tilted, -12, 12, points=[0.0, nu / (1 + abs(tau))], epsabs=1e-13, limit=400)[0]

    z, mean, second = (moment(k) for k in range(3))
    mean, second = mean / z, second / z
    site = mixture_site(*(np.array([value]) for value in (tau, nu, np.log(p / (1 - p)), v0)))
    precision = tau + site.precision[0]
    assert (nu + site.shift[0]) / precision == pytest.approx(mean, rel=1e-8)
    assert 1 / precision == pytest.approx(second - mean**2, rel=1e-7)
    gaussian = 0.5 * (nu + site.shift[0]) ** 2 / precision - 0.5 * np.log(precision)
    assert site.log_constant[0] + gaussian == pytest.approx(np.log(z), abs=1e-8)


def test_a_dirac_spike_is_the_limit_of_narrow_ones():
    arguments = [np.array([value]) for value in (5.0, 3.0, -1.0)]
    narrow = mixture_site(*arguments, np.array([1e-10]))
    dirac = mixture_site(*arguments, np.array([0.0]))
    for name in ("precision", "shift", "log_constant", "inclusion"):
        assert getattr(dirac, name)[0] == pytest.approx(getattr(narrow, name)[0], rel=1e-6)


def test_negative_site_precisions_are_kept():
    one = np.ones(2)
    site = mixture_site(9.0 * one, np.array([9.0, 11.0]), -3.7 * one, 1e-4 * one)
    assert (site.precision < 0).all()
    assert (site.precision > -9.0).all()


def test_the_narrowest_sites_are_marked():
    one = np.ones(2)
    site = mixture_site(5.0 * one, np.array([0.0, 3.0]), np.array([-40.0, 2.0]), 0.0 * one)
    assert site.narrowest.tolist() == [True, False]
    assert site.precision[0] == pytest.approx(1e10, rel=1e-6)


# -- the Gaussian ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dual", [False, True])
def test_the_sparse_gaussian_against_dense_algebra(dual):
    rng = np.random.default_rng(3)
    d, k = 7, 4
    rotation = np.linalg.qr(rng.standard_normal((d, k)))[0].T if dual else None
    k = k if dual else d
    root = rng.standard_normal((k, k))
    P, r = root @ root.T + 2 * np.eye(k), rng.standard_normal(k)
    u, h = np.array([1.0, 40.0, -0.2, 0.05, 1e7, 3.0, 0.5]), rng.standard_normal(d)
    u[2] = 0.02 if dual else u[2]  # a direction the data may not reach needs its prior
    q = sparse_gaussian(P, r, u, h, rotation)
    A = np.eye(d) if rotation is None else rotation
    covariance = np.linalg.inv(np.diag(u) + A.T @ P @ A)
    mean = covariance @ (h + A.T @ r)
    np.testing.assert_allclose(q.mean, mean, atol=1e-10)
    np.testing.assert_allclose(q.covariance(), covariance, atol=1e-10)
    np.testing.assert_allclose(q.variance, np.diagonal(covariance), rtol=1e-8)
    np.testing.assert_allclose(q.reduced.root @ q.reduced.root.T, A @ covariance @ A.T, atol=1e-10)
    np.testing.assert_allclose(q.reduced.mean, A @ mean, atol=1e-10)
    np.testing.assert_allclose(q.cavity_shift, mean / np.diagonal(covariance) - h, rtol=1e-5, atol=1e-6)
    half_log_det = -0.5 * np.linalg.slogdet(covariance)[1]
    assert q.log_partition() == pytest.approx(0.5 * mean @ (h + A.T @ r) - half_log_det, rel=1e-10)
    draws = q.draw(100_000, rng)
    np.testing.assert_allclose(np.cov(draws.T)[:4, :4], covariance[:4, :4], atol=0.02 * np.diagonal(covariance).max())


def test_an_indefinite_precision_is_not_a_gaussian():
    assert sparse_gaussian(np.eye(2), np.zeros(2), np.array([-2.0, 1.0]), np.zeros(2), None) is None


# -- EP ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(80, 5), (30, 50)], ids=["primal", "dual"])
def test_equal_variances_recover_the_gaussian_prior(shape):
    X, y, _ = sparse_data(*shape)
    sparse = fitting.fit(spike_slab_problem(X, y, 40.0, inclusion_probability=0.3, v0=0.7, v1=0.7), tolerance=1e-8)
    dense = fitting.fit(linear_gaussian_problem(X, y, 40.0, prior_covariance=0.7), tolerance=1e-9)
    assert sparse.log_evidence == pytest.approx(dense.log_evidence, abs=1e-6)
    np.testing.assert_allclose(sparse.posterior.mean, dense.posterior.mean, atol=1e-5)
    np.testing.assert_allclose(sparse.posterior.covariance, dense.posterior.covariance, atol=1e-5)
    average = sparse.model_average  # of 2^5 models; there are too many of 50 coefficients, where EP's own are exact
    error = 0.0 if average is None else 4.0 * average.standard_error
    assert (abs(sparse.inclusion_probability - 0.3) <= error + 1e-7).all()


def test_gaussian_coefficients_beside_sparse_ones():
    X, y, _ = sparse_data(60, 3, active=(1.0,))
    problem = spike_slab_problem(
        X, y, 30.0, inclusion_probability=1.0, v0=[0.5, 1.0, 2.0], v1=[0.5, 1.0, 2.0], prior_mean=[0.0, 1.0, -0.5]
    )
    same = linear_gaussian_problem(X, y, 30.0, prior_mean=[0.0, 1.0, -0.5], prior_covariance=[0.5, 1.0, 2.0])
    sparse, dense = fitting.fit(problem, tolerance=1e-8), fitting.fit(same, tolerance=1e-9)
    np.testing.assert_allclose(sparse.posterior.mean, dense.posterior.mean, atol=1e-5)
    assert sparse.log_evidence == pytest.approx(dense.log_evidence, abs=1e-6)


@pytest.mark.parametrize("v0", [0.05, 1e-3])  # the second with sites of negative precision
def test_the_dual_agrees_with_the_primal(v0):
    X, y, _ = sparse_data(40, 40)
    more = np.column_stack([X, np.zeros((40, 3))])  # three coefficients that reach no score: d > n
    primal = fitting.fit(spike_slab_problem(X, y, 40.0, inclusion_probability=0.1, v0=v0), tolerance=1e-8)
    dual = fitting.fit(spike_slab_problem(more, y, 40.0, inclusion_probability=0.1, v0=v0), tolerance=1e-8)
    np.testing.assert_allclose(dual.posterior.mean[:40], primal.posterior.mean, atol=1e-5)
    np.testing.assert_allclose(dual.inclusion_probability[:40], primal.inclusion_probability, atol=1e-5)
    np.testing.assert_allclose(dual.inclusion_probability[40:], 0.1, atol=1e-6)
    assert dual.log_evidence == pytest.approx(primal.log_evidence, abs=1e-5)


@pytest.mark.parametrize("slope", [(1.0, -0.6), (1.0, 0.0), (0.6, 0.2)])
@pytest.mark.parametrize("gamma", [20.0, 200.0])
@pytest.mark.parametrize(("p", "v0"), [(0.5, 0.0), (0.1, 0.0), (0.5, 0.2), (0.1, 0.2), (0.5, 0.01), (0.1, 0.001)])
def test_inclusion_against_the_exact_plane(slope, gamma, p, v0):
    X, y = plane_data(slope=slope)
    exact = exact_spike_slab_plane(X, y, gamma, p, v0, 1.0)
    fit = fitting.fit(spike_slab_problem(X, y, gamma, inclusion_probability=p, v0=v0))
    assert fit.converged
    np.testing.assert_allclose(fit.inclusion_probability, exact.inclusion, atol=0.05)
    average = fit.model_average
    assert (np.abs(average.inclusion - exact.inclusion) < 4 * average.standard_error + 1e-3).all()
    assert abs(average.log_evidence - exact.log_evidence) < 4 * average.log_evidence_se


@pytest.mark.parametrize(
    ("slope", "gamma", "p", "v0"),
    [((1.0, -0.6), 20.0, 0.5, 0.2), ((0.6, 0.2), 60.0, 0.5, 0.2), ((1.0, -0.6), 60.0, 0.5, 0.0)],
)
def test_evidence_and_risk_of_ep_itself_against_the_exact_plane(slope, gamma, p, v0):
    X, y = plane_data(slope=slope)
    exact = exact_spike_slab_plane(X, y, gamma, p, v0, 1.0)
    fit = fitting.fit(spike_slab_problem(X, y, gamma, inclusion_probability=p, v0=v0))
    np.testing.assert_allclose(fit.posterior.inclusion_probability, exact.inclusion, atol=0.05)
    assert fit.log_evidence == pytest.approx(exact.log_evidence, abs=0.5)
    assert fit.expected_risk == pytest.approx(exact.expected_risk, abs=0.03)


def test_sequential_prior_sites_are_matched():
    """At the fixed point every prior site is the match of its own cavity, and the scale obeys its identity."""
    X, y, _ = sparse_data(100, 6, active=(1.5, -1.0))
    problem = spike_slab_problem(X, y, 80.0, inclusion_probability=0.2, v0=0.01)
    q = fitting.fit(problem, tolerance=1e-8).posterior.gaussian
    matched = matched_sites(q.cavity_precision, q.cavity_shift, problem.spikes)
    np.testing.assert_allclose(q.site_precision, matched.precision, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(q.site_shift, matched.shift, rtol=1e-5, atol=1e-6)
    assert np.sum(q.site_precision * (q.variance + q.mean**2) - q.site_shift * q.mean) == pytest.approx(6.0, abs=1e-5)


def test_the_evidence_is_that_of_the_last_history_row_and_flat_under_a_common_scale():
    X, y, _ = sparse_data(100, 4, active=(1.5,))
    one = fitting.fit(spike_slab_problem(X, y, 50.0, inclusion_probability=0.3, v0=0.02, v1=1.0), tolerance=1e-8)
    other = fitting.fit(spike_slab_problem(X, y, 50.0, inclusion_probability=0.3, v0=0.2, v1=10.0), tolerance=1e-8)
    assert one.log_evidence == one.history[-1]["log_evidence"]
    assert other.log_evidence == pytest.approx(one.log_evidence, abs=1e-6)
    np.testing.assert_allclose(other.posterior.mean, one.posterior.mean * np.sqrt(10.0), rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_sparse_truth_is_found_and_ranks_better():
    X, y, theta = sparse_data(400, 200)
    fit = fitting.fit(spike_slab_problem(X, y, 400.0, inclusion_probability=5 / 200, v0=0.0))
    assert fit.converged
    assert set(np.argsort(-fit.inclusion_probability)[:5]) == set(range(5))
    assert fit.inclusion_probability[:5].min() > 0.9
    assert fit.inclusion_probability[5:].max() < 0.1
    rng = np.random.default_rng(1)
    fresh = rng.standard_normal((4000, 200))
    labels = fresh @ theta + rng.logistic(size=4000) > 0
    dense = fitting.fit(linear_gaussian_problem(X, y, 400.0))
    sparse_auc, dense_auc = (
        1 - pac.empirical_risk(fresh @ mean, labels) for mean in (fit.posterior.mean, dense.posterior.mean)
    )
    assert sparse_auc > dense_auc + 0.03


def test_what_is_not_converged_says_so():
    X, y, _ = sparse_data(60, 5)
    problem = spike_slab_problem(X, y, 60.0, inclusion_probability=0.2, v0=0.01)
    with pytest.warns(ConvergenceWarning, match="did not converge in 3 sweeps"):
        fit = fitting.fit(problem, start=fitting.fit(problem), tolerance=1e-30, max_sweeps=3)
    assert not fit.converged


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inclusion_probability": 0.0}, r"\(0, 1\]"),
        ({"v0": -1.0}, "v0"),
        ({"v0": 2.0}, "at most v1"),
        ({"v1": np.eye(2)}, "v1 must be a number or one for each"),
        ({"prior_mean": 1.0}, "prior_mean must be 0"),
    ],
)
def test_bad_problems_are_refused(changes, message):
    options = {"inclusion_probability": 0.5, "v0": 0.1, **changes}
    with pytest.raises(ValueError, match=message):
        spike_slab_problem(np.zeros((2, 2)), [0, 1], 1.0, **options)


def test_a_start_from_another_design_is_refused():
    X, y, _ = sparse_data(30, 3, active=(1.0,))
    fit = fitting.fit(spike_slab_problem(X, y, 10.0, inclusion_probability=0.5, v0=0.1))
    with pytest.raises(ValueError, match="another X or v1"):
        fitting.fit(spike_slab_problem(2 * X, y, 10.0, inclusion_probability=0.5, v0=0.1), start=fit)


# -- what fails, and how -----------------------------------------------------------------------------------------------


def few_positives(kind, seed, n=600, d=81, positives=60):
    """Few active coefficients or none, and more covariates than positive observations."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    if kind == "binary":
        X = (X > 0.8).astype(float)
    theta = np.zeros(d)
    theta[:4] = 0.0 if kind == "noise" else (1.5, -1.0, 1.0, 0.5)
    scores = X @ theta + rng.logistic(size=n)
    return X, (scores >= np.sort(scores)[-positives]).astype(int)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["signal", "binary", "noise"])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_default_converges_with_few_positives(kind, seed):
    """At Theorem 2.5's p, 1.2 per cent, most of these have no fixed point that EP finds."""
    X, y = few_positives(kind, seed)
    p = default_inclusion_probability(81)
    assert p == 0.1
    for v0 in (0.0, 1e-4):
        fit = fitting.fit(spike_slab_problem(X, y, 600.0, inclusion_probability=p, v0=v0))
        assert fit.converged
        assert -200.0 < fit.log_evidence < -60.0
        assert fit.sweeps <= 200


@pytest.mark.parametrize(("kind", "seed"), [("noise", 0), ("binary", 0), ("noise", 2)])
def test_an_evidence_away_from_a_fixed_point_is_nan(kind, seed):
    """These gave log Z = +23.8, +55.8 and +1.4, and a comparison of evidences chose them."""
    X, y = few_positives(kind, seed)
    problem = spike_slab_problem(X, y, 600.0, inclusion_probability=-np.expm1(-1 / 81), v0=0.0)
    with pytest.warns(ConvergenceWarning, match=r"did not converge in \d+ sweeps.*(is|not defined).*NaN\. Lower gamma"):
        fit = fitting.fit(problem)
    assert not fit.converged
    assert np.isnan(fit.log_evidence)
    assert fit.sweeps <= 200
    assert not any(row["log_evidence"] > 0 for row in fit.history)
    assert [row["sweep"] for row in fit.history] == list(range(1, fit.sweeps + 1))


def test_the_cost_is_bounded():
    """Sweeps are counted over the start and all ways; passes over the prior sites by what sweeps are allowed."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((62, 500)) + rng.standard_normal((62, 1))
    y = (X[:, :3].sum(axis=1) + 2 * rng.logistic(size=62) > 1.0).astype(int)
    problem = spike_slab_problem(X, y, 62.0, inclusion_probability=1 / 500, v0=0.0)
    for most in (5, 40):
        with pytest.warns(ConvergenceWarning, match=f"did not converge in {most} sweeps"):
            assert fitting.fit(problem, max_sweeps=most).sweeps == most


def test_repairs_are_counted():
    X, y, _ = sparse_data(100, 4, active=(1.5, -1.0))
    idle = np.column_stack([X[:, :3], np.zeros(100)])  # the last column reaches no score
    dirac = fitting.fit(spike_slab_problem(idle, y, 50.0, inclusion_probability=[0.3, 0.3, 1.0, 1e-11], v0=0.0))
    assert dirac.interventions.narrowest_sites == dirac.interventions.dropped_directions == 1
    doubled = np.column_stack([X, X[:, 0] + X[:, 1]])
    for problem in (
        spike_slab_problem(doubled, y, 50.0, inclusion_probability=0.5, v0=0.1),
        linear_gaussian_problem(doubled, y, 50.0),
    ):
        fit = fitting.fit(problem)
        assert fit.interventions.dropped_directions == 1


def test_an_offset_that_double_precision_cannot_hold_is_refused_from_any_start():
    """An earlier fit at a smaller gamma, whose rounding error was small, does not hide that of this one."""
    rng = np.random.default_rng(0)
    X, group = rng.standard_normal((40, 2)), rng.integers(0, 5, 40)
    options = {"offset": 2e5 * group, "inclusion_probability": 0.5, "v0": 0.01}
    start = fitting.fit(spike_slab_problem(X, X[:, 0] > 0.0, 0.5, **options), n_jobs=1)
    with pytest.raises(ValueError, match="double precision"):
        fitting.fit(spike_slab_problem(X, X[:, 0] > 0.0, 500.0, **options), start=start, n_jobs=1)
