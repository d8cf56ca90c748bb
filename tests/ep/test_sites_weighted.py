"""EP and variational Bayes with weighted pairs and many small blocks, against the paper's EP written plainly."""

from dataclasses import replace

import numpy as np
import pytest

from pymc_pacauc import fitting
from pymc_pacauc.comparison.censored import concordance
from pymc_pacauc.comparison.kinds import ordered_classes, stratified
from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.comparison.risk import pair_risk
from pymc_pacauc.ep.sites import SiteTable, lowest_rho, site_functions
from pymc_pacauc.ep.sweep import cut_work
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem.problem import linear_gaussian_problem, spike_slab_problem
from tests.pair_lists import listed
from tests.reference_ep import reference_ep


def data(seed=0, n=26, d=3):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    score = X[:, 0] - 0.5 * X[:, 1] + rng.logistic(size=n)
    return X, score, rng


def kinds():
    _, score, rng = data()
    n = score.size
    weights = rng.gamma(1.0, size=n)
    strata = rng.integers(0, 2, n)
    time, event = np.ceil(8 * np.exp(-score)), rng.random(n) < 0.7
    y = score > 0.2
    return {
        "observation weights": bipartite(y).times(weights),
        "one side": replace(
            bipartite(y), blocks=(replace(bipartite(y).blocks[0], positive_weights=weights[np.flatnonzero(y)]),)
        ),
        "ordered": ordered_classes(np.digitize(score, [-1.0, 0.5])),
        "strata": stratified(bipartite(y), strata).times(weights),
        "censored": concordance(time, event),
        "uno": concordance(time, event, weights="ipcw", tau=float(np.quantile(time, 0.8))),
        "competing": concordance(time, event * (1 + strata), weights="ipcw", tau=float(np.quantile(time, 0.8))),
        "horizons": concordance(time, event * (1 + strata), horizon=np.quantile(time, [0.4, 0.7])),
    }


KINDS = kinds()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("power", [1.0, 0.5])
@pytest.mark.parametrize("offset", [False, True])
def test_fixed_point_is_the_papers(kind, power, offset):
    X, _, rng = data()
    shift = rng.standard_normal(len(X)) if offset else np.zeros(len(X))
    pairs = KINDS[kind]
    mean, covariance, log_evidence = reference_ep(
        X, None, 20.0, offset=shift, power=power, weighted_pairs=listed(pairs)
    )
    found = fitting.fit(linear_gaussian_problem(X, pairs, 20.0, offset=shift), power=power, tolerance=1e-11)
    np.testing.assert_allclose(found.posterior.mean, mean, rtol=0, atol=2e-9)
    np.testing.assert_allclose(found.posterior.covariance, covariance, rtol=0, atol=2e-9)
    assert found.log_evidence == pytest.approx(log_evidence, abs=2e-9)


def test_pairs_beyond_the_table_are_computed_one_by_one():
    """gamma' from 0.002 to 12: beyond 1/2 there is no table."""
    X, score, _ = data(3, n=14)
    pairs = bipartite(score > 0.2).times(np.geomspace(0.01, 1.0, 14))
    i, j, w = listed(pairs)
    assert (40.0 * w / w.sum()).max() > 5.0
    mean, covariance, log_evidence = reference_ep(
        X, None, 40.0, weighted_pairs=(i, j, w), damping=0.1, iterations=20_000
    )
    found = fitting.fit(linear_gaussian_problem(X, pairs, 40.0), tolerance=1e-10)
    np.testing.assert_allclose(found.posterior.mean, mean, atol=1e-8)
    np.testing.assert_allclose(found.posterior.covariance, covariance, atol=1e-8)
    assert found.log_evidence == pytest.approx(log_evidence, abs=1e-8)
    with pytest.raises(ValueError, match="or the largest weights"):
        fitting.fit(linear_gaussian_problem(X, pairs, 400.0))


@pytest.mark.parametrize(("smallest", "largest"), [(1e-6, 0.003), (1e-4, 0.05), (1e-3, 0.5), (1e-3, 4.0), (0.2, 0.2)])
@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_table_in_both_variables(smallest, largest, power):
    table = SiteTable(1.0, power).between(smallest, largest)
    rng = np.random.default_rng(0)
    rho, gamma = rng.uniform(table.lower, 9.4, 5000), rng.uniform(smallest, min(largest, table.largest), 5000)
    exact = site_functions(rho, gamma, power)
    expected = np.stack([exact.precision, exact.shift, exact.log_constant]) / gamma
    position = (rho - table.lower) * table.per_unit
    interval = position.astype(int)
    t = (position - interval - 0.5)[:, None] ** np.arange(4)
    u = ((gamma - table.middle) * table.scale)[:, None] ** np.arange(table.coefficients.shape[1])
    found = np.einsum("ikfp,ik,ip->fi", table.coefficients[interval][:, :, [0, 1, 3]], u, t)
    scale = np.abs(expected).max(axis=1, keepdims=True)
    np.testing.assert_allclose(found / scale, expected / scale, rtol=0, atol=3e-10)
    wrong = np.einsum("ip,ip->i", table.coefficients[interval, 0, 2], t)
    np.testing.assert_allclose(wrong, exact.wrong, rtol=0, atol=3e-11)


@pytest.mark.parametrize("gamma", [1e-6, 0.1, 0.9, 1.1, 5.0, 49.0])
def test_sites_of_many_gammas_are_those_of_one(gamma):
    rho = np.linspace(lowest_rho(gamma, 1.0), 9.4, 400)
    one, many = site_functions(rho, gamma), site_functions(rho, np.full(400, gamma))
    for name in ("precision", "shift", "log_constant"):
        scale = np.abs(getattr(one, name)).max()
        np.testing.assert_allclose(getattr(many, name) / scale, getattr(one, name) / scale, rtol=0, atol=1e-11)


def test_variational_bayes_takes_integer_weights_for_repeated_rows():
    X, score, rng = data(1)
    y, weights = score > 0.2, rng.integers(1, 4, score.size)
    repeated = np.repeat(np.arange(y.size), weights)
    once = fitting.fit(
        linear_gaussian_problem(X, bipartite(y).times(weights.astype(float)), 25.0), "vb", tolerance=1e-10
    )
    many = fitting.fit(linear_gaussian_problem(X[repeated], y[repeated], 25.0), "vb", tolerance=1e-10)
    np.testing.assert_allclose(once.posterior.mean, many.posterior.mean, atol=1e-8)
    np.testing.assert_allclose(once.posterior.covariance, many.posterior.covariance, atol=1e-8)
    assert once.log_evidence == pytest.approx(many.log_evidence, abs=1e-8)
    assert once.expected_risk == pytest.approx(many.expected_risk, abs=1e-10)


def test_the_scale_of_weights_does_not_matter():
    X, score, rng = data(2)
    weights = rng.gamma(1.0, size=score.size)
    fits = [
        fitting.fit(linear_gaussian_problem(X, bipartite(score > 0.2).times(scale * weights), 25.0), tolerance=1e-10)
        for scale in (1.0, 1e-6, 1e6)
    ]
    for other in fits[1:]:
        np.testing.assert_allclose(other.posterior.mean, fits[0].posterior.mean, atol=1e-9)
        assert other.log_evidence == pytest.approx(fits[0].log_evidence, abs=1e-9)


def test_few_different_weights_have_a_table_each():
    X, score, rng = data(7, n=150)
    pairs = bipartite(score > 0.2).times(rng.integers(1, 5, 150).astype(float))
    tables = {weights for _, weights in cut_work(pairs, 3)}
    assert len(tables) == 9  # products of two numbers up to four
    assert all(least == largest for least, largest in tables)
    problem = linear_gaussian_problem(X, pairs, 150.0)
    apart = fitting.fit(problem, tolerance=1e-10)
    again = replace(problem, pairs=replace(pairs))
    assert {weights for _, weights in cut_work(again.pairs, 3, most_tables=0)} == {(1.0, 16.0)}
    together = fitting.fit(again, tolerance=1e-10)
    np.testing.assert_allclose(apart.posterior.covariance, together.posterior.covariance, rtol=0, atol=1e-9)
    assert apart.log_evidence == pytest.approx(together.log_evidence, abs=1e-9)
    assert apart.expected_risk == pytest.approx(together.expected_risk, abs=1e-10)


def test_many_blocks_of_different_weights_share_a_table():
    X, score, rng = data(8, n=60)
    strata = np.arange(60) // 10
    pairs = stratified(bipartite(score > 0.2), strata).times(rng.gamma(2.0, size=6)[strata])
    assert all(block.constant for block in pairs.blocks)
    assert len({weights for _, weights in cut_work(pairs, 3)}) == len(pairs.blocks)
    problem = linear_gaussian_problem(X, pairs, 40.0)
    apart = fitting.fit(problem, tolerance=1e-10)
    again = replace(problem, pairs=replace(pairs))
    assert len({weights for _, weights in cut_work(again.pairs, 3, most_tables=3)}) == 1
    assert fitting.fit(again, tolerance=1e-10).log_evidence == pytest.approx(apart.log_evidence, abs=1e-9)


def test_equal_rows_cost_their_weight():
    rng = np.random.default_rng(6)
    X, score, _ = data(6)
    X[:4] = X[0]
    y, weights = np.arange(score.size) % 2 == 0, rng.gamma(1.0, size=score.size)
    for ties, cost in (("half", 0.5), ("strict", 0.0)):
        problem = linear_gaussian_problem(X, bipartite(y).times(weights), 15.0, ties=ties)
        i, j, w = listed(problem.pairs)
        tied = (X[i] == X[j]).all(axis=1)
        fitted = fitting.fit(problem, tolerance=1e-10)
        assert fitted.tied_pairs == problem.tied_pairs == tied.sum()
        assert problem.tied_share == pytest.approx(w[tied].sum() / w.sum())
        _, _, log_evidence = reference_ep(
            X, None, 15.0 * w[~tied].sum() / w.sum(), weighted_pairs=(i[~tied], j[~tied], w[~tied])
        )
        expected = log_evidence - 15.0 * cost * problem.tied_share
        assert fitted.log_evidence == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("kind", ["observation weights", "censored", "strata"])
def test_leaving_out_a_group_is_a_refit_without_it(kind):
    X, _, rng = data()
    pairs = KINDS[kind]
    problem = linear_gaussian_problem(X, pairs, 20.0)
    groups = rng.integers(0, 3, len(X))
    left = fitting.fit(problem, tolerance=1e-10).leave_out(groups, refine=100, tolerance=1e-10)
    for g in range(3):
        kept = pairs.among(groups != g)
        at = 20.0 * kept.total_weight / pairs.total_weight
        scores = X @ fitting.fit(replace(problem, pairs=kept, gamma=at), tolerance=1e-10).posterior.mean
        expected = (scores - scores.mean()) / scores.std()
        np.testing.assert_allclose(left.scores[groups == g], expected[groups == g], atol=1e-7)
        inside = pairs.among(groups == g)
        auc = 1.0 - pair_risk(left.scores[None], inside)[0] if inside.n_pairs else np.nan
        assert left.group_auc[g] == pytest.approx(auc, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("kind", KINDS)
def test_importance_sampling_knows_the_evidence(kind):
    """The exact evidence is that of draws from the prior."""
    X, _, rng = data()
    problem = linear_gaussian_problem(X, KINDS[kind], 20.0)
    weighted = fitting.fit(problem).importance(40_000, rng)
    exact = np.exp(-20.0 * problem.risk(rng.standard_normal((400_000, 3))))
    ratio = np.exp(weighted.log_weights)
    error = np.hypot(ratio.std() / 200.0, exact.std() / 632.0)
    assert abs(ratio.mean() - exact.mean()) < 4 * error
    assert error < 0.02 * exact.mean()


def test_evidence_gradient_by_differences():
    X, _, _ = data()

    def evidence(variance):
        return fitting.fit(
            linear_gaussian_problem(X, KINDS["uno"], 20.0, prior_covariance=np.array([variance, 1.0, 0.5])),
            tolerance=1e-11,
        )

    slope = (evidence(1.501).log_evidence - evidence(1.499).log_evidence) / 0.002
    assert evidence(1.5).evidence_gradient().covariance[0, 0] == pytest.approx(slope, abs=1e-6)


def test_spike_and_slab():
    """Every coefficient in the slab is the Gaussian fit."""
    X, _, _ = data()
    pairs = KINDS["observation weights"]
    sparse = fit(spike_slab_problem(X, pairs, 20.0, inclusion_probability=0.999999, v0=0.5), tolerance=1e-9)
    dense = fit(linear_gaussian_problem(X, pairs, 20.0), tolerance=1e-9)
    np.testing.assert_allclose(sparse.posterior.mean, dense.posterior.mean, atol=1e-5)
    assert sparse.expected_risk == pytest.approx(dense.expected_risk, abs=1e-5)
