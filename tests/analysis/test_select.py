from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pymc_pacauc as pac
from benchmarks.gamma_stability import DATA, measure, most_within_a_factor
from pymc_pacauc.analysis import select_gamma as selection
from pymc_pacauc.analysis.select_gamma import default_gammas
from pymc_pacauc.comparison.censored import concordance
from pymc_pacauc.comparison.folds import stratified_folds
from pymc_pacauc.comparison.kinds import label_comparison
from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.comparison.sizes import auc_error, row_shares
from pymc_pacauc.ep.gaussian import fit_ep
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.model.read import problem_of
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.tune import gamma as gamma_search
from pymc_pacauc.tune.gamma import Candidate, choose, choose_gamma, search_gammas

rng = np.random.default_rng(8)
X = rng.normal(size=(120, 4))
y = X @ [1.0, 0.7, 0.0, 0.0] + rng.normal(size=120) > 0.5


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        theta = pm.Normal("theta", size=4)
        pac.AUCPotential("auc", X @ theta, y, gamma=1.0)
    return model


@given(st.integers(2, 6), st.integers(6, 40), st.integers(6, 40), st.integers(0, 1000))
def test_folds_are_even_in_both_classes(folds, n_pos, n_neg, seed):
    rng = np.random.default_rng(seed)
    positive = rng.permutation(np.arange(n_pos + n_neg) < n_pos)
    fold = stratified_folds(positive, folds, rng)
    for mask in (positive, ~positive, np.ones_like(positive)):
        sizes = np.bincount(fold[mask], minlength=folds)
        assert np.ptp(sizes) <= 1


def test_groups_stay_together():
    rng = np.random.default_rng(1)
    groups = rng.integers(0, 30, size=200)
    positive = rng.random(200) < 0.4
    fold = stratified_folds(positive, 5, rng, groups)
    assert all(np.unique(fold[groups == g]).size == 1 for g in np.unique(groups))
    shares = np.array([[positive[fold == k].sum(), (~positive[fold == k]).sum()] for k in range(5)])
    assert (np.ptp(shares, axis=0) < 0.5 * shares.mean(axis=0)).all()


def test_impossible_folds_are_refused():
    rng = np.random.default_rng(1)
    with pytest.raises(ValueError, match="at least 2"):
        stratified_folds(y, 1, rng)
    with pytest.raises(ValueError, match="no observation of one class"):
        stratified_folds(np.arange(10) < 2, 5, rng)
    with pytest.raises(ValueError, match="2 groups for 5 folds"):
        stratified_folds(y, 5, rng, np.arange(120) % 2)
    with pytest.raises(ValueError, match="groups must have shape"):
        stratified_folds(y, 5, rng, np.arange(3))


@pytest.mark.parametrize("method", ["ep", "vb", "smc"])
def test_cross_validation_is_that_of_refits(model, method):
    gammas = [5.0, 40.0]
    options = {"folds": 4, "repeats": 2 if method != "smc" else 1, "random_seed": 3, "progressbar": False}
    found = pac.select_gamma(model, gammas, method=method, particles=8000, **options)
    assert found.table["gamma"].tolist() == gammas
    assert found.fold.shape == (options["repeats"], 120)
    assert found.fold_auc.shape == (2, options["repeats"], 4)
    expected = np.empty(found.fold_auc.shape)
    for (i, r, k), auc in np.ndenumerate(found.fold_auc):
        out = found.fold[r] == k
        refit = fit_ep(linear_gaussian_problem(X[~out], y[~out], gammas[i]))
        assert auc == pytest.approx(1 - pac.empirical_risk(X[out] @ refit.posterior.mean, y[out]), abs=0.02)
        expected[i, r, k] = (
            1 - pac.empirical_risk(refit.posterior.draw(4000, np.random.default_rng(1)) @ X[out].T, y[out]).mean()
        )
    np.testing.assert_allclose(found.table["auc"], found.fold_auc.mean(axis=(1, 2)))
    np.testing.assert_allclose(found.table["expected_auc"], expected.mean(axis=(1, 2)), atol=0.01)
    best = int(np.argmax(found.table["auc"]))
    difference = found.fold_auc[best] - found.fold_auc[1 - best]
    row = found.table.iloc[1 - best]
    assert row["loss"] == pytest.approx(difference.mean())
    assert row["loss_se"] == pytest.approx(np.sqrt(difference.var(axis=1, ddof=1).mean() / 4))
    assert row["within"] == (row["loss"] <= row["loss_se"])
    assert found.table["within"][best]


def test_the_refit_is_at_the_best_gamma(model):
    found = pac.select_gamma(model, [5.0, 40.0], folds=3, random_seed=3, rule="best")
    assert found.refit.fit.problem.gamma == found.best
    assert found.refit.converged
    assert found.refit.fitted_to.gamma == found.best
    assert pac.certificate(found).auc == pac.certificate(found.refit.sample(5)).auc
    drawn = pac.select_gamma(model, [found.best], folds=3, method="smc", particles=300, random_seed=3).refit
    assert drawn["posterior"]["theta"].shape == (1, 300, 4)
    certified = pac.certificate(drawn)
    assert certified.gamma == found.best
    assert certified.auc == pytest.approx(pac.certificate(found).auc, abs=0.05)


def test_smc_agrees_with_ep_along_gamma(model):
    gammas = np.geomspace(2, 50, 4)
    ep = pac.select_gamma(model, gammas, folds=3, repeats=1, random_seed=1).table
    smc = pac.select_gamma(model, gammas, folds=3, method="smc", particles=4000, random_seed=1).table
    np.testing.assert_allclose(smc["log_evidence"], ep["log_evidence"], atol=0.4)
    np.testing.assert_allclose(smc["training_auc"], ep["training_auc"], atol=0.02)
    np.testing.assert_allclose(smc["expected_auc"], ep["expected_auc"], atol=0.03)
    np.testing.assert_allclose(smc["divergence"], ep["divergence"], atol=0.5)


def test_smc_takes_any_model():
    """The same scores, written so that they are not affine in Gaussian variables."""
    with pm.Model() as nonlinear:
        scale = pm.HalfNormal("scale")
        theta = pm.Normal("theta", size=4)
        pac.AUCPotential("auc", pm.math.tanh(0.1 * scale * (X @ theta)), y, gamma=1.0)
    with pytest.raises(ValueError, match="not linear-Gaussian"):
        pac.select_gamma(nonlinear, [5.0, 20.0])
    with pytest.raises(ValueError, match="stay in one"):
        pac.select_gamma(nonlinear, [5.0, 20.0], method="smc", n_jobs=2)
    options = {"folds": 2, "method": "smc", "random_seed": 1, "particles": 4000}
    found = pac.select_gamma(nonlinear, [5.0, 20.0], **options)
    with pm.Model() as linear:
        theta = pm.Normal("theta", size=4)
        pac.AUCPotential("auc", X @ theta, y, gamma=1.0)
    expected = pac.select_gamma(linear, [5.0, 20.0], **options)
    np.testing.assert_array_equal(found.fold, expected.fold)
    np.testing.assert_allclose(found.table["auc"], expected.table["auc"], atol=0.03)
    np.testing.assert_allclose(found.table["log_evidence"], expected.table["log_evidence"], atol=0.5)
    assert found.refit["posterior"]["scale"].shape == (1, 4000)


def test_by_certificate(model):
    found = pac.select_gamma(model, criterion="certificate")
    pairs = problem_of(model).problem.pairs
    gammas = default_gammas(row_shares(pairs))
    assert found.table["gamma"].to_numpy() == pytest.approx(gammas)
    assert found.best == gammas[np.argmax(found.table["certified_auc"])]
    paid = pac.certificate(found.refit, selected_from=len(gammas))
    assert found.table["certified_auc"].max() == pytest.approx(paid.auc)
    free = pac.select_gamma(model, criterion="certificate", selected_from=1)
    assert free.table["certified_auc"].max() > paid.auc
    assert np.isnan(found.table["auc"]).all()
    assert found.fold.size == 0


def sizes(n_pos, n_neg):
    return row_shares(bipartite(np.arange(n_pos + n_neg) < n_pos))


def candidate(gamma, auc, expected, change=0.0):
    """With two folds whose AUCs differ by 0.02 from each other, and by half of that between any two gammas."""
    spread = np.array([[-0.01, 0.01]])
    return Candidate(gamma, None, auc + (1 + 0.5 * gamma / 100) * spread, expected + spread, change)


def test_the_stable_rule_waits_for_the_draws_and_for_the_mean_score():
    flat = [candidate(g, 0.80, e) for g, e in ((1, 0.55), (2, 0.66), (4, 0.74), (8, 0.77), (16, 0.79))]
    assert 0.03 < auc_error(0.80, sizes(60, 60)) < 0.06
    assert choose(flat, "auc", "stable", sizes(60, 60)) == 3
    assert choose(flat, "auc", "best", sizes(60, 60)) == 4  # of ties the last one
    assert choose(flat, "auc", "stable", sizes(20, 20)) == 2  # fewer rows tell less
    assert choose(flat, "auc", "stable", sizes(600, 600)) == 4
    rising = [candidate(g, a, a - 0.01) for g, a in ((1, 0.70), (2, 0.75), (4, 0.80))]
    assert choose(rising, "auc", "stable", sizes(60, 60)) == 2
    overfitted = [candidate(g, a, e) for g, a, e in ((1, 0.80, 0.55), (2, 0.80, 0.66), (4, 0.66, 0.65))]
    assert choose(overfitted, "auc", "stable", sizes(60, 60)) == 1
    assert choose(overfitted, "expected_auc", "best", sizes(60, 60)) == 1
    assert choose([*flat[:2], candidate(4, 0.80, 0.79, change=2.0)], "auc", "stable", sizes(60, 60)) == 1


def test_one_standard_error_rule_takes_the_largest(model):
    gammas = [2.0, 8.0, 30.0, 100.0]
    found = pac.select_gamma(model, gammas, folds=4, random_seed=2, rule="one_se")
    assert found.best == found.table["gamma"][found.table["within"]].max() == found.range[1]
    assert found.range[0] == found.table["gamma"][found.table["within"]].min()
    assert f"from {found.range[0]:.4g} to {found.range[1]:.4g}" in repr(found)
    assert f"best={found.best:.4g} of 4" in repr(found)


def search(auc, expected, rule):
    """Over 100 positives and 400 negatives: the grid begins at 40, 160 and 640 and ends at 40,000 at the latest."""
    looked_at = []

    def evaluate(values):
        looked_at.extend(values)
        return [candidate(g, auc(g), expected(g)) for g in values]

    pairs = linear_gaussian_problem(np.zeros((500, 1)), np.arange(500) < 100, 1.0).pairs
    found = search_gammas(evaluate, "auc", rule, row_shares(pairs))
    assert sorted(looked_at) == [each.gamma for each in found]
    return found[choose(found, "auc", rule, sizes(100, 400))].gamma, looked_at


@pytest.mark.parametrize("best", [50.0, 300.0, 5000.0])
def test_the_grid_is_finer_at_the_choice(best):
    gamma, looked_at = search(lambda g: 0.8 - 0.01 * np.log(g / best) ** 2, lambda g: 0.7, "best")
    assert gamma == pytest.approx(best, rel=2**0.25 - 1)
    assert len(looked_at) < 13


def test_the_stable_choice_is_the_first_gamma_at_which_draws_have_arrived():
    error = auc_error(0.8, sizes(100, 400))
    gamma, looked_at = search(lambda g: 0.8 - 1e-9 * g, lambda g: 0.8 - error * 200.0 / g, "stable")
    assert 200.0 <= gamma < 250.0
    assert len(looked_at) == 4


def test_the_grid_goes_on_where_its_end_is_best_and_stops_where_a_wrong_pair_costs_a_nat():
    gamma, looked_at = search(lambda g: 1 - 10 / g, lambda g: 1 - 20 / g, "best")
    assert gamma == max(looked_at) == pytest.approx(640 * 4**2, rel=1e-12)  # four times that are more than the pairs
    gamma, looked_at = search(lambda g: 0.8 - 1e-9 * g, lambda g: 0.5 + 1e-6 * g, "stable")
    assert gamma == max(looked_at) == pytest.approx(640 * 4**2, rel=1e-12)


def test_the_choice_stays_put_when_folds_are_dealt_anew():
    """On the data on which the highest AUC of the mean score wandered over the whole grid."""
    gammas, _ = measure("pima", 6)
    assert most_within_a_factor(gammas) == 6
    assert gammas.min() > 2  # the end of the grid towards the prior
    wandering, _ = measure("pima", 6, rule="best", repeats=1)
    assert most_within_a_factor(wandering) < 6


@pytest.mark.slow
@pytest.mark.parametrize("name", DATA)
def test_the_choice_stays_put_on_every_data_set(name):
    gammas, loss = measure(name, 20)
    assert most_within_a_factor(gammas) >= 18
    assert gammas.min() > 2
    assert loss < 0.02


def test_no_choice_at_the_prior_although_its_mean_ranks_as_well():
    """Two Gaussian classes: the difference of the class means is the best direction there is, whatever gamma."""
    rng = np.random.default_rng(5)
    labels = np.arange(100) < 50
    problem = linear_gaussian_problem(rng.normal(size=(100, 8)) + 0.5 * labels[:, None], labels, 1.0)
    choice = choose_gamma(problem, rng=rng)
    mean, draws = (np.array([getattr(c, name).mean() for c in choice.candidates]) for name in ("auc", "expected_auc"))
    assert mean[0] > mean.max() - 0.01
    assert draws[0] < mean[0] - 2 * auc_error(mean[0], sizes(50, 50))
    assert draws[choice.chosen] > mean[choice.chosen] - auc_error(mean[choice.chosen], sizes(50, 50))


def test_some_of_many_rows_are_enough():
    """Of 3000 rows about 1000 choose; all of them would choose about the same gamma, and the last fit is to all."""
    rng = np.random.default_rng(8)
    rows = rng.normal(size=(3000, 4))
    labels = rows[:, 0] + rng.logistic(size=3000) > 1.0
    problem = linear_gaussian_problem(rows, labels, 1.0)
    some = pac.select_gamma(problem, random_seed=1)
    every = pac.select_gamma(problem, rows=3000, random_seed=1)
    assert 0.5 < some.best / every.best < 2.0
    used = some.fold >= 0
    assert used.sum(axis=1).tolist() == [1000] * len(some.fold)
    assert labels[used[0]].sum() == 500
    assert "on 1000 of 3000 rows" in repr(some)
    assert "rows" not in repr(every)
    assert some.refit.problem.n == 3000
    assert some.refit.problem.gamma == some.best
    known = some.table["log_evidence"].notna()
    assert some.table["gamma"][known].tolist() == [some.best]
    assert some.table["log_evidence"][known].item() == some.refit.log_evidence
    given = pac.select_gamma(problem, [100.0, 400.0], folds=2, repeats=1, random_seed=1)
    assert (given.fold >= 0).all()


def test_the_gamma_of_some_rows_is_taken_to_all():
    """On a tenth of the rows it is far from that of all, which a power of the comparison's size bridges."""
    rng = np.random.default_rng(8)
    rows = rng.normal(size=(3000, 4))
    problem = linear_gaussian_problem(rows, rows[:, 0] + rng.logistic(size=3000) > 1.0, 1.0)
    every = choose_gamma(problem, rows=3000, rng=np.random.default_rng(1))
    few = choose_gamma(problem, rows=300, rng=np.random.default_rng(1))
    fitted = few.candidates[few.chosen].posterior.problem
    ratio = row_shares(problem.pairs).size / row_shares(fitted.pairs).size
    assert few.gamma == pytest.approx(ratio**0.6 * fitted.gamma)
    assert few.fit.problem.gamma == few.gamma
    assert 0.6 < few.gamma / every.gamma < 1.7
    assert not 0.6 < fitted.gamma / every.gamma < 1.7


def test_groups_and_folds_of_some_rows():
    rng = np.random.default_rng(9)
    rows = rng.normal(size=(600, 3))
    labels, groups = rows[:, 0] + rng.logistic(size=600) > 0.0, np.arange(600) // 2
    choice = choose_gamma(linear_gaussian_problem(rows, labels, 1.0), rows=200, groups=groups, rng=rng)
    for fold in choice.folds:
        for group in np.unique(groups):
            assert len({each for each in fold[groups == group] if each >= 0}) <= 1


def test_the_models_own_gamma_is_set():
    def build(gamma):
        with pm.Model() as model:
            value = gamma()
            theta = pm.Normal("theta", size=4)
            pac.AUCPotential("auc", X @ theta, y, gamma=value)
        return model

    held = build(lambda: pm.Data("gamma", 1.0))
    found = pac.select_gamma(held, [5.0, 20.0], folds=2, set_data=True, random_seed=1)
    assert held["gamma"].get_value() == found.best
    with held:
        assert pm.fit(method=pac.EP(), progressbar=False).fitted_to.gamma == found.best
    for gamma in (lambda: 1.0, lambda: 2.0 * pm.Data("gamma", 1.0)):
        with pytest.raises(ValueError, match=r'gamma = pm.Data\("gamma", 1.0\)'):
            pac.select_gamma(build(gamma), [5.0, 20.0], set_data=True)


def test_arrays_are_enough(model):
    problem = linear_gaussian_problem(X, y, 1.0)
    found = pac.select_gamma(problem, [5.0, 40.0], folds=3, random_seed=3)
    expected = pac.select_gamma(model, [5.0, 40.0], folds=3, random_seed=3)
    np.testing.assert_array_equal(found.fold, expected.fold)
    np.testing.assert_allclose(found.table["auc"], expected.table["auc"], atol=1e-3)
    assert found.refit.problem.gamma == expected.best
    with pytest.raises(ValueError, match="takes a PyMC model"):
        pac.select_gamma(problem, method="smc")


def test_every_model(model):
    options = {"gammas": [5.0, 40.0], "folds": 2, "repeats": 1, "random_seed": 1, "progressbar": False}
    with pm.Model() as sparse:
        theta = pac.SpikeSlab("theta", p=0.5, v0=0.0, shape=4)
        pac.AUCPotential("auc", X @ theta, y, gamma=1.0)
    assert pac.select_gamma(sparse, **options).refit.inclusion_probability.shape == (4,)
    with pm.Model() as process:
        f = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(4, ls=2.0)).prior("f", X)
        pac.AUCPotential("auc", f, y, gamma=1.0)
    assert pac.select_gamma(process, **options).table["auc"].between(0.6, 1.0).all()
    with pm.Model() as hierarchy:
        scale = pm.HalfNormal("scale")
        theta = scale * pm.Normal("theta", size=4)
        pac.AUCPotential("auc", X @ theta, y, gamma=1.0)
    with pytest.raises(ValueError, match=r'scale.*select_gamma\(model, method="smc"\)'):
        pac.select_gamma(hierarchy, **options)
    drawn = pac.select_gamma(hierarchy, method="smc", particles=1000, **options)
    assert drawn.refit["posterior"]["scale"].shape == (1, 1000)


EVENT = rng.random(120) < 0.6
TIME = rng.exponential(np.exp(-X[:, 0]))
LEVEL = np.digitize(X @ [1.0, 0.7, 0.0, 0.0] + rng.normal(size=120), [-0.5, 0.3, 1.2])
WARD, WEIGHT = rng.integers(0, 3, size=120), rng.uniform(0.5, 2.0, size=120)
QUERY = np.arange(120) // 4
COMPARISONS = {
    "ordered classes": (pac.AUCPotential, pac.empirical_risk, {"y": LEVEL}, {"ordered": True}),
    "strata": (pac.AUCPotential, pac.empirical_risk, {"y": y, "strata": WARD}, {}),
    "small strata": (pac.AUCPotential, pac.empirical_risk, {"y": y, "strata": QUERY}, {}),
    "weights": (pac.AUCPotential, pac.empirical_risk, {"y": y, "weights": WEIGHT}, {}),
    "censored times": (pac.ConcordancePotential, pac.concordance_risk, {"time": TIME, "event": EVENT}, {}),
    "partial AUC": (pac.AUCPotential, pac.empirical_risk, {"y": y}, {"max_fpr": 0.3}),
}


@pytest.mark.parametrize("name", COMPARISONS)
def test_every_comparison_is_cross_validated_as_refits_would_be(name):
    """By hand: fit without the rows of a fold, and judge its rows by the same comparison."""
    potential, risk, arrays, options = COMPARISONS[name]

    def build(rows, gamma):
        with pm.Model() as model:
            theta = pm.Normal("theta", size=4)
            potential("c", X[rows] @ theta, **{k: v[rows] for k, v in arrays.items()}, gamma=gamma, **options)
        return model

    everything = np.ones(120, dtype=bool)
    search = {"folds": 3, "repeats": 1, "random_seed": 3, "progressbar": False}
    if name == "partial AUC":
        with pytest.raises(ValueError, match=r"partial AUC.*method=.smc"):
            pac.select_gamma(build(everything, 1.0), [20.0], **search)
        search |= {"method": "smc", "particles": 2000}
    found = pac.select_gamma(build(everything, 1.0), [20.0], **search)
    if name == "small strata":
        compared = [q for q in range(30) if np.unique(y[q == QUERY]).size == 2]
        assert all(np.unique(found.fold[0][q == QUERY]).size == 1 for q in compared)
    for k in range(3):
        out = found.fold[0] == k
        if name == "partial AUC":
            with build(~out, 20.0):
                run = pm.sample(1000, step=pac.TemperingSMC(particles=2000), chains=1, random_seed=1, progressbar=False)
            mean = run["posterior"]["theta"].mean(("chain", "draw")).to_numpy()
        else:
            mean = fit_ep(problem_of(build(~out, 20.0)).problem).posterior.mean
        by_hand = 1 - risk(X[out] @ mean, **{k: v[out] for k, v in arrays.items()}, **options)
        assert found.fold_auc[0, 0, k] == pytest.approx(by_hand, abs=0.02)
    assert 0.6 < found.table["auc"][0] < 1.0
    called = {"partial AUC": "partial AUC", "ordered classes": "concordance", "censored times": "concordance"}
    assert f"held-out {called.get(name, 'AUC')} " in repr(found)


def test_draws_are_judged_by_the_weights_too():
    """The expected AUC of a draw in closed form, against draws."""
    problem = linear_gaussian_problem(X, label_comparison(LEVEL, ordered=True, strata=WARD, weights=WEIGHT), 20.0)
    found = choose_gamma(problem, [20.0], 3, repeats=1, rng=np.random.default_rng(1), fold_tolerance=1e-6, refine=50)
    [at], [fold] = found.candidates, found.folds
    for k in range(3):
        out = fold == k
        refit = fit_ep(replace(problem, pairs=problem.pairs.among(~out)))
        draws = refit.posterior.draw(4000, np.random.default_rng(1)) @ X[out].T
        risk = pac.empirical_risk(draws, LEVEL[out], ordered=True, strata=WARD[out], weights=WEIGHT[out])
        assert at.expected_auc[0, k] == pytest.approx(1 - risk.mean(), abs=5 * risk.std() / 4000**0.5)


def test_several_potentials_leave_out_the_same_rows_and_keep_their_shares():
    other = X[:, 1] + rng.normal(size=120) > 0
    with pm.Model() as model:
        theta = pm.Normal("theta", size=4)
        gammas = pm.Data("first", 10.0), pm.Data("second", 30.0)
        pac.AUCPotential("a", X @ theta, y, gamma=gammas[0])
        pac.AUCPotential("b", X @ theta, other, gamma=gammas[1])
    options = {"folds": 3, "repeats": 1, "random_seed": 1, "progressbar": False}
    found = pac.select_gamma(model, [20.0], set_data=True, **options)
    np.testing.assert_array_equal(found.fold[0][:120], found.fold[0][120:])
    assert (model["first"].get_value(), model["second"].get_value()) == (5.0, 15.0)
    assert np.isnan(found.table["certified_auc"]).all()
    with pytest.raises(ValueError, match="one AUC term"):
        pac.select_gamma(model, criterion="certificate")
    for k in range(3):
        out = found.fold[0][:120] == k
        with pm.Model() as left:
            theta = pm.Normal("theta", size=4)
            pac.AUCPotential("a", X[~out] @ theta, y[~out], gamma=5.0)
            pac.AUCPotential("b", X[~out] @ theta, other[~out], gamma=15.0)
        mean = fit_ep(problem_of(left).problem).posterior.mean
        risk = [pac.empirical_risk(X[out] @ mean, labels[out]) for labels in (y, other)]
        assert found.fold_auc[0, 0, k] == pytest.approx(1 - 0.25 * risk[0] - 0.75 * risk[1], abs=0.03)
    groups = np.arange(120) // 5
    kept = pac.select_gamma(model, [20.0], groups=groups, **options).fold[0]
    assert all(np.unique(kept[np.tile(groups, 2) == g]).size == 1 for g in range(24))
    with model:
        pm.Potential("more", -(theta**2).sum())
    with pytest.raises(ValueError, match="nothing but AUC terms besides the prior; this one has more"):
        pac.select_gamma(model, [20.0], method="smc", **options)


def test_the_grid_and_the_certificate_of_censored_times():
    problem = linear_gaussian_problem(X, concordance(TIME, EVENT), 1.0)
    found = pac.select_gamma(problem, [5.0, 20.0, 80.0], criterion="certificate", selected_from=1)
    paid = pac.certificate(found.refit)
    assert found.table["certified_auc"].max() == pytest.approx(paid.auc)
    assert paid.comparison == "censored times"
    with pytest.raises(ValueError, match="estimated weights"):
        pac.select_gamma(
            linear_gaussian_problem(X, concordance(TIME, EVENT, weights="ipcw"), 1.0), criterion="certificate"
        )
    found = pac.select_gamma(problem, random_seed=1)
    assert 3 * found.refit.problem.d < found.best < problem.pairs.n_pairs


def test_standard_errors_are_over_the_folds_of_a_deal(model):
    found = pac.select_gamma(model, [5.0, 40.0], folds=3, repeats=4, random_seed=3, progressbar=False)
    assert found.fold_auc.shape == (2, 4, 3)
    by_hand = [np.sqrt(np.mean([np.var(deal, ddof=1) for deal in at]) / 3) for at in found.fold_auc]
    np.testing.assert_allclose(found.table["se"], by_hand)


def test_reproducible(model):
    options = {"gammas": [5.0, 40.0], "folds": 3, "random_seed": 3}
    one, two = pac.select_gamma(model, **options), pac.select_gamma(model, **options)
    np.testing.assert_array_equal(one.fold_auc, two.fold_auc)
    other = pac.select_gamma(model, **{**options, "random_seed": 4})
    assert (one.fold != other.fold).any()
    assert (one.fold_auc != other.fold_auc).any()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ep", "smc"])
def test_processes_do_not_change_the_answer(model, method):
    options = {"gammas": [5.0, 40.0], "folds": 3, "random_seed": 3, "method": method}
    one, two = (pac.select_gamma(model, n_jobs=n, **options) for n in (1, 2))
    np.testing.assert_allclose(one.fold_auc, two.fold_auc)


def test_what_did_not_converge_is_told(model, monkeypatch):
    def hasty(problem, method, **options):
        return fit_ep(problem, max_sweeps=3 if problem.gamma > 10 else 100)

    monkeypatch.setattr(selection, "fit", hasty)
    monkeypatch.setattr(gamma_search, "fit", hasty)
    for criterion in ("certificate", "auc"):
        with pytest.warns(ConvergenceWarning, match="did not converge at gamma = 50"):
            found = pac.select_gamma(model, [5.0, 50.0], criterion=criterion, folds=2, repeats=1)
        assert found.table["converged"].tolist() == [True, False]
    assert found.best == 5.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "nuts"}, "method must be"),
        ({"criterion": "accuracy"}, "criterion must be"),
        ({"rule": "median"}, "rule must be"),
        ({"gammas": []}, "gammas is empty"),
        ({"gammas": [0.0, 1.0]}, "gamma must be"),
        ({"method": "smc", "criterion": "certificate"}, "closed form"),
        ({"folds": 100}, "no observation of one class"),
        ({"repeats": 0}, "repeats must be"),
        ({"rows": 50}, "rows must be"),
        ({"rows": 200, "gammas": [1.0]}, "compared on all rows"),
        ({"rows": 200, "criterion": "certificate"}, "leave it away"),
        ({"rows": 200, "method": "smc"}, "leave it away"),
    ],
)
def test_refusals(model, options, message):
    with pytest.raises(ValueError, match=message):
        pac.select_gamma(model, **options)
