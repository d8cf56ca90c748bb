"""Dealt pairs: unbiased sums, fits within their sampling error, and what is refused."""

from dataclasses import replace

import arviz as az
import numpy as np
import pymc as pm
import pytest

import pymc_pacauc as pac
from pymc_pacauc.analysis.certify import certificate
from pymc_pacauc.core.bounds import mean_bound, pac_bayes_kl
from pymc_pacauc.core.comparisons import label_comparison
from pymc_pacauc.core.concordance import concordance
from pymc_pacauc.core.deal import Deal, deal, number_of_groups
from pymc_pacauc.core.pairs import bipartite
from pymc_pacauc.core.problem import linear_gaussian_problem
from pymc_pacauc.ep.dealt import fit_dealt, pairs_to_use
from pymc_pacauc.ep.dealt_sums import dealt_sums
from pymc_pacauc.ep.expected_risk import sampled_expected_risk
from pymc_pacauc.ep.gaussian import fit_ep, fit_vb, sweep_sums
from pymc_pacauc.ep.leave_out import expected_pair_auc
from pymc_pacauc.ep.natural import natural_gaussian
from pymc_pacauc.ep.sites import site_table
from pymc_pacauc.fitting import UnsupportedError, fit
from pymc_pacauc.model.extract import problem_of
from pymc_pacauc.model.results import as_result
from pymc_pacauc.results import ArrayResult

N = 600


def data(n=N, d=3, seed=0, shift=0.3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X[:, 0] + 0.5 * X[:, 1] + rng.logistic(size=n) > shift


def comparisons():
    rng = np.random.default_rng(5)
    X, y = data()
    classes = np.digitize(X[:, 0] + rng.normal(size=N), [-0.5, 0.8])
    weights = rng.gamma(2.0, size=N)
    strata = rng.integers(0, 2, size=N) + 100 * (np.arange(N) < 20)  # large ones, and a few rows in small ones
    time, event = rng.exponential(size=N), rng.random(N) < 0.6
    return {
        "two classes": bipartite(y),
        "rare positives": bipartite(np.arange(N) < 30),
        "ordered": label_comparison(classes, ordered=True),
        "strata": label_comparison(y, strata=strata),
        "weights": label_comparison(y, weights=weights),
        "survival": concordance(time, event, weights="ipcw"),
    }


def some_q(problem, spread=0.1):
    rng = np.random.default_rng(2)
    k = problem.scores.reduced.dimension
    root = rng.normal(size=(k, k))
    precision = (root @ root.T + k * np.eye(k)) / spread**2
    return natural_gaussian(precision, precision @ rng.normal(size=k))


@pytest.mark.parametrize("kind", comparisons())
@pytest.mark.parametrize("offset", [False, True])
def test_one_group_is_every_pair(kind, offset):
    X, _ = data()
    given = np.random.default_rng(3).normal(size=N) if offset else 0.0
    problem = linear_gaussian_problem(X, comparisons()[kind], gamma=300.0, offset=given)
    q, table = some_q(problem), site_table(problem.gamma_per_pair, 1.0)
    one = deal(problem.pairs, X[:, 0], 1, np.random.default_rng(0))
    assert one.n_pairs == problem.pairs.n_pairs
    assert kind == "rare positives" or one.dealt, "nothing went through the band"
    found, exact = dealt_sums(problem, q, one, table), sweep_sums(problem, q, problem.pairs, table)
    scale = np.abs(exact.precision).max()
    np.testing.assert_allclose(found.precision, exact.precision, atol=1e-6 * scale)
    np.testing.assert_allclose(found.shift, exact.shift, atol=1e-6 * np.abs(exact.shift).max())
    assert found.wrong == pytest.approx(exact.wrong, rel=1e-6)
    assert found.log_constant == pytest.approx(exact.log_constant, rel=1e-6)


def test_broad_rows_and_equal_rows_are_all_found():
    X, y = data()
    X[::50] *= 200.0  # scores of which q knows little
    X[1::10] = X[0]  # rows that tie, of both classes
    problem = linear_gaussian_problem(X, y, gamma=300.0)
    q, table = some_q(problem, 0.02), site_table(problem.gamma_per_pair, 1.0)
    one = deal(problem.pairs, X[:, 0], 1, np.random.default_rng(0))
    found, exact = dealt_sums(problem, q, one, table), sweep_sums(problem, q, problem.pairs, table)
    np.testing.assert_allclose(found.precision, exact.precision, atol=1e-6 * np.abs(exact.precision).max())
    assert found.log_constant == pytest.approx(exact.log_constant, rel=1e-6)
    assert found.tied == exact.tied > 0


@pytest.mark.parametrize("kind", comparisons())
def test_every_pair_has_its_chance(kind):
    """The estimate of a sum over all pairs, of anything, is unbiased: compared within four standard errors."""
    pairs = comparisons()[kind]
    rng = np.random.default_rng(1)
    a, b, score = rng.gamma(1.0, size=N), rng.gamma(1.0, size=N), rng.normal(size=N)

    def total(blocks):
        return sum(
            times * (b_.row_weights * a[b_.positive]).sum() * (b_.column_weights * b[b_.negative]).sum()
            for times, b_ in blocks
        )

    def estimate(dealt: Deal):
        groups = [(each.stands_for, each.group(g)) for each in dealt.dealt for g in range(each.groups)]
        return total([(1.0, block) for block in dealt.whole.blocks] + groups)

    found = np.array([estimate(deal(pairs, score, 7, rng)) for _ in range(400)])
    exact = total([(1.0, block) for block in pairs.blocks])
    assert abs(found.mean() - exact) <= 4.0 * found.std() / 20.0 + 1e-9 * exact


def test_deals_are_systematic_samples_along_the_score():
    X, y = data(4000)
    dealt = deal(bipartite(y), X[:, 0], 20, np.random.default_rng(0)).dealt[0]
    spread = [X[dealt.group(g).positive, 0].mean() for g in range(20)]
    random = X[y, 0].std() / np.sqrt(y.sum() / 20)
    assert np.std(spread) < 0.2 * random


@pytest.mark.parametrize("kind", ["two classes", "ordered", "weights"])
@pytest.mark.parametrize("method", ["ep", "vb"])
def test_fit_is_within_its_sampling_error(kind, method):
    X, y = data(3000, 4, seed=3)
    rng = np.random.default_rng(4)
    pairs = {
        "two classes": bipartite(y),
        "ordered": label_comparison(np.digitize(X[:, 0] + rng.logistic(size=3000), [-1.0, 1.0]), ordered=True),
        "weights": label_comparison(y, weights=rng.gamma(4.0, size=3000)),
    }[kind]
    problem = linear_gaussian_problem(X, pairs, gamma=3000.0)
    exact = (fit_ep if method == "ep" else fit_vb)(problem)
    found = fit(problem, method, pairs=250_000)
    error = found.sampling_error
    assert found.converged
    assert found.method == exact.method
    assert found.pairs_used == pytest.approx(250_000, rel=0.1)
    moved = (found.posterior.mean - exact.posterior.mean) / np.sqrt(exact.posterior.variance)
    assert 0.0 < np.sqrt(np.mean(moved**2)) < 3.0 * error.mean < 0.6
    assert abs(found.log_evidence - exact.log_evidence) < 4.0 * error.log_evidence + 0.05
    assert found.expected_risk == pytest.approx(exact.expected_risk, abs=1e-3)
    np.testing.assert_allclose(found.posterior.variance, exact.posterior.variance, rtol=0.2)


def test_same_seed_same_fit_whatever_the_threads():
    problem = linear_gaussian_problem(*data(3000), gamma=3000.0)
    one, again, other = (
        fit_dealt(problem, 200_000, n_jobs=jobs, random_seed=seed) for jobs, seed in ((1, 0), (2, 0), (1, 1))
    )
    np.testing.assert_array_equal(one.posterior.mean, again.posterior.mean)
    assert one.log_evidence == again.log_evidence != other.log_evidence


def test_fits_that_differ_in_the_prior_share_their_deal():
    X, y = data(3000)
    problem = linear_gaussian_problem(X, y, gamma=3000.0)
    first = fit_dealt(problem, 200_000)
    wider = linear_gaussian_problem(X, problem.pairs, gamma=3000.0, prior_covariance=4.0)
    assert fit_dealt(wider, 200_000, start=first).deal is first.deal
    assert fit_dealt(replace(problem, gamma=2000.0), 200_000, start=first).deal is not first.deal


def test_leaving_out_dealt_pairs():
    problem = linear_gaussian_problem(*data(3000), gamma=3000.0)
    groups = np.arange(3000) % 3
    exact, found = fit_ep(problem).leave_out(groups), fit_dealt(problem, 300_000).leave_out(groups)
    assert found.auc == pytest.approx(exact.auc, abs=2e-3)
    np.testing.assert_allclose(found.group_auc, exact.group_auc, atol=3e-3)


def test_auto_uses_all_pairs_where_that_is_cheap():
    X, y = data(3000)
    problem = linear_gaussian_problem(X, y, gamma=3000.0)
    assert pairs_to_use(problem, "auto") is None
    assert pairs_to_use(problem, "all") is None
    assert pairs_to_use(problem, problem.pairs.n_pairs) is None
    large = linear_gaussian_problem(np.ones((30_000, 1)), np.arange(30_000) % 2, gamma=30_000.0)
    assert pairs_to_use(large, "all") is None
    assert 1e6 < pairs_to_use(large, "auto") < 1e7
    assert number_of_groups(large.pairs, pairs_to_use(large, "auto")) > 20


@pytest.mark.parametrize(
    ("pairs", "message"),
    [("some", "auto"), (10, "less than the number of observations"), (1e6, "whole number"), (True, "whole number")],
)
def test_bad_pairs(pairs, message):
    problem = linear_gaussian_problem(*data(), gamma=600.0)
    with pytest.raises(ValueError, match=message):
        fit(problem, pairs=pairs)


def test_small_blocks_are_kept_whole():
    strata = np.arange(3000) // 30
    X, y = data(3000)
    problem = linear_gaussian_problem(X, label_comparison(y, strata=strata), gamma=3000.0)
    dealt = deal(problem.pairs, X[:, 0], 50, np.random.default_rng(0))
    assert dealt.dealt == ()
    assert dealt.n_pairs == problem.pairs.n_pairs


def test_spikes_use_all_pairs():
    from pymc_pacauc.core.problem import spike_slab_problem

    problem = spike_slab_problem(*data(), gamma=100.0, inclusion_probability=0.5, v0=0.0)
    with pytest.raises(UnsupportedError, match="dealt for Gaussian priors"):
        fit(problem, pairs=2000)
    assert fit(problem).pairs_used == problem.pairs.n_pairs


@pytest.mark.parametrize("kind", comparisons())
def test_expected_risk_of_all_pairs(kind):
    """Estimated from some pairs, against the closed form over all of them."""
    X, _ = data()
    X[1::7] = X[0]
    offset = np.round(np.random.default_rng(3).normal(size=N))
    problem = linear_gaussian_problem(X, comparisons()[kind], gamma=300.0, offset=offset)
    q = some_q(problem, 0.3)
    space = problem.scores.reduced
    exact = 1.0 - expected_pair_auc(space.design @ q.mean + space.offset, space.design @ q.root, problem.pairs)
    found, error = sampled_expected_risk(problem, q, 20_000, np.random.default_rng(1))
    assert 0.0 < error < 0.005
    assert abs(found - exact) < 4.0 * error


def test_certificate_of_dealt_pairs_is_below_that_of_all():
    X, y = data(3000)
    problem = linear_gaussian_problem(X, y, gamma=500.0)
    exact, found = fit_ep(problem), fit(problem, pairs=250_000)
    assert certificate(exact).auc - 0.003 < certificate(found).auc < certificate(exact).auc
    assert any("over all" in sentence for sentence in certificate(found).assumptions)


def test_the_certificate_of_dealt_pairs_pays_for_the_risk_out_of_epsilon():
    X, y = data(3000)
    found = fit(linear_gaussian_problem(X, y, gamma=500.0), pairs=250_000)
    risk = ArrayResult(found).mean_risk
    for priors in (1, 4):  # of four priors each has its own draws of pairs, which must all be right
        highest = mean_bound(risk.value, risk.error, risk.terms, 0.005 / priors)
        known = found.divergence, min(y.sum(), (~y).sum()), 0.045
        expected = 1.0 - pac_bayes_kl(highest, *known, selected_from=priors)
        assert certificate(found, epsilon=0.05, selected_from=priors).auc == pytest.approx(expected, abs=1e-12)
    assert (
        certificate(found, epsilon=0.05).auc < certificate(found, epsilon=0.05, bound="matchings").auc < 1 - risk.value
    )


def test_the_record_survives_a_file(tmp_path):
    X, y = data(2000)
    with pm.Model():
        theta = pm.Normal("theta", size=3)
        pac.AUCPotential("auc", X @ theta, y, gamma=500.0)
        approx = pm.fit(method=pac.EP(pairs=150_000), progressbar=False)
    assert f"pairs used     {approx.pairs_used}" in repr(approx)
    idata = approx.sample(20)
    idata.to_netcdf(tmp_path / "draws.nc")
    read = as_result(az.from_netcdf(tmp_path / "draws.nc"))
    assert read.fitted_to == approx.fitted_to
    assert read.fitted_to.pairs_used == approx.pairs_used < problem_of(approx.model).problem.pairs.n_pairs
    assert read.fitted_to.mean_error == approx.sampling_error.mean
    assert read.mean_risk == approx.mean_risk
    assert certificate(read).auc == certificate(approx).auc
    assert f"{approx.pairs_used}, dealt" in pac.summary(approx).attrs["report"]
