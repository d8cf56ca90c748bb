from dataclasses import replace
from functools import partial

import numpy as np
import pymc as pm
import pytest

import pymc_pacauc as pac
from pymc_pacauc import fitting
from pymc_pacauc.analysis import select_gamma as selection
from pymc_pacauc.analysis.select_gamma import choose_tempered
from pymc_pacauc.comparison.censored import concordance
from pymc_pacauc.comparison.kinds import label_comparison
from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.ep.plan import choose_plan
from pymc_pacauc.model.read import problem_of
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.tune import gamma as gamma_search
from pymc_pacauc.tune.gamma import (
    certificate_gammas,
    choose_gamma,
    content_order,
    pairs_of_few,
)

rng = np.random.default_rng(8)
X = rng.normal(size=(120, 4))
y = X @ [1.0, 0.7, 0.0, 0.0] + rng.normal(size=120) > 0.5


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        theta = pm.Normal("theta", size=4)
        pac.AUCPotential("auc", X @ theta, y, gamma=1.0)
    return model


def expected_aucs(fold, gammas):
    """Held-out AUC of the mean score and of a draw, by refits to convergence, of (gamma, assignment, fold)."""
    mean, drawn = np.empty((2, len(gammas), len(fold), fold.max() + 1))
    for i, r, k in np.ndindex(mean.shape):
        out = fold[r] == k
        q = fitting.fit(linear_gaussian_problem(X[~out], y[~out], gammas[i])).posterior
        mean[i, r, k] = 1 - pac.empirical_risk(X[out] @ q.mean, y[out])
        drawn[i, r, k] = 1 - pac.empirical_risk(q.draw(4000, np.random.default_rng(1)) @ X[out].T, y[out]).mean()
    return mean, drawn


@pytest.mark.parametrize("method", ["ep", "vb"])
def test_cross_validation_is_that_of_refits(model, method):
    gammas = [5.0, 40.0]
    found = pac.select_gamma(model, gammas, 4, method=method, progressbar=False)
    assert found.table["gamma"].tolist() == gammas
    assert found.fold.shape[1:] == (120,)
    assert found.fold_auc.shape == (2, len(found.fold), 4)
    mean, drawn = expected_aucs(found.fold, gammas)
    np.testing.assert_allclose(found.fold_auc, mean, atol=0.02)
    np.testing.assert_allclose(found.table["auc"], found.fold_auc.mean(axis=(1, 2)))
    np.testing.assert_allclose(found.table["expected_auc"], drawn.mean(axis=(1, 2)), atol=0.01)
    best = int(np.argmax(found.table["auc"]))
    difference = found.fold_auc[best] - found.fold_auc[1 - best]
    row = found.table.iloc[1 - best]
    assert row["loss"] == pytest.approx(difference.mean())
    assert row["loss_se"] == pytest.approx(np.sqrt(difference.var(axis=1, ddof=1).mean() / 4))
    assert row["within"] == (row["loss"] <= row["loss_se"])
    assert found.table["within"][best]


def test_the_refit_is_at_the_best_gamma(model):
    found = pac.select_gamma(model, [5.0, 40.0], 3)
    assert found.refit.fit.problem.gamma == found.best
    assert found.refit.converged
    assert found.refit.fitted_to.gamma == found.best
    assert pac.certificate(found).auc == pac.certificate(found.refit.sample(5)).auc
    drawn = pac.select_gamma(model, [found.best], 3, method="smc", random_seed=3).refit
    assert drawn["posterior"]["theta"].shape == (1, 1000, 4)
    certified = pac.certificate(drawn)
    assert certified.gamma == found.best
    assert certified.auc == pytest.approx(pac.certificate(found).auc, abs=0.05)


def test_smc_agrees_with_ep_along_gamma(model):
    gammas = np.geomspace(2, 50, 4)
    ep = pac.select_gamma(model, gammas, 3).table
    smc = pac.select_gamma(model, gammas, 3, method="smc", random_seed=1).table
    np.testing.assert_allclose(smc["log_evidence"], ep["log_evidence"], atol=0.4)
    np.testing.assert_allclose(smc["training_auc"], ep["training_auc"], atol=0.02)
    np.testing.assert_allclose(smc["expected_auc"], ep["expected_auc"], atol=0.03)
    np.testing.assert_allclose(smc["divergence"], ep["divergence"], atol=0.5)


def test_by_certificate(model):
    found = pac.select_gamma(model, criterion="certificate")
    pairs = problem_of(model).problem.pairs
    gammas = certificate_gammas(row_shares(pairs))
    assert found.table["gamma"].to_numpy() == pytest.approx(gammas)
    assert found.best == gammas[np.argmax(found.table["certified_auc"])]
    assert found.table["certified_auc"].max() == pytest.approx(pac.certificate(found.refit).auc)
    assert np.isnan(found.table["auc"]).all()
    assert found.fold.size == 0


def test_of_given_gammas_the_nearest_is_chosen(model):
    free = pac.select_gamma(model, progressbar=False)
    assert free.table["gamma"].is_monotonic_increasing
    assert free.best in free.table["gamma"].to_numpy()
    grid = free.table["gamma"].to_numpy()[free.table["gamma"] != free.best]
    given = pac.select_gamma(model, grid, progressbar=False)
    assert given.best == min(grid, key=lambda value: abs(np.log(value / free.best)))
    assert f"best={given.best:.4g} of {grid.size}" in repr(given)
    low, high = given.range
    assert f"from {low:.4g} to {high:.4g}" in repr(given)


@pytest.mark.parametrize(
    "kind", ["two classes", "rows that are alike", "strata", pytest.param("weights", marks=pytest.mark.slow), "groups"]
)
def test_the_order_of_rows_and_the_unit_of_the_covariates_do_not_matter(kind):
    rng = np.random.default_rng(4)
    rows = (X > 0).astype(float) if kind == "rows that are alike" else X
    labels, strata, weights = y, rng.integers(0, 3, size=120), rng.uniform(0.5, 2.0, size=120)
    groups = np.arange(120) // 2 if kind == "groups" else None

    def build(index, unit):
        options = {"strata": strata[index]} if kind == "strata" else {}
        options |= {"weights": weights[index]} if kind == "weights" else {}
        problem = linear_gaussian_problem(unit * rows[index], label_comparison(labels[index], **options), 1.0)
        return choose_gamma(problem, groups=None if groups is None else groups[index])

    first = build(np.arange(120), 1.0)
    for _ in range(1 if kind == "weights" else 3):  # weights are left out by sweeps, at ten times the cost
        index = rng.permutation(120)
        again = build(index, 4.0)
        if kind != "rows that are alike":  # which are interchangeable
            np.testing.assert_array_equal(again.folds, first.folds[:, index])
        assert again.gamma == pytest.approx(first.gamma, rel=0.02)


def test_an_estimator_chooses_by_the_same_rule():
    classifier = pac.AUCClassifier(prior="ridge").fit(X, y)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    found = pac.select_gamma(linear_gaussian_problem(Z, y, 1.0), progressbar=False)
    assert classifier.gamma_ == pytest.approx(found.best, rel=1e-6)
    other = pac.AUCClassifier(prior="ridge", random_state=7).fit(X[::-1], y[::-1])
    assert other.gamma_ == pytest.approx(found.best, rel=0.02)


def test_some_of_many_rows_are_enough():
    """Of 3000 rows about 1000 choose; all of them would choose about the same gamma, and the last fit is to all."""
    rng = np.random.default_rng(8)
    rows = rng.normal(size=(3000, 4))
    labels = rows[:, 0] + rng.logistic(size=3000) > 1.0
    problem = linear_gaussian_problem(rows, labels, 1.0)
    some = pac.select_gamma(problem)
    every = choose_gamma(problem, tuning=problem.pairs)
    assert 0.5 < some.best / every.gamma < 2.0
    used = some.fold >= 0
    assert used.sum(axis=1).tolist() == [1000] * len(some.fold)
    assert labels[used[0]].sum() == 500
    assert "on 1000 of 3000 rows" in repr(some)
    assert some.refit.problem.n == 3000
    assert some.refit.problem.gamma == some.best
    known = some.table["log_evidence"].notna()
    assert some.table["gamma"][known].tolist() == [some.best]
    assert some.table["log_evidence"][known].item() == some.refit.log_evidence
    assert (pac.select_gamma(problem, [100.0, 400.0], 2).fold >= 0).all()


def test_the_gamma_of_some_rows_is_taken_to_all_in_units_of_the_size():
    rng = np.random.default_rng(8)
    rows = rng.normal(size=(3000, 4))
    problem = linear_gaussian_problem(rows, rows[:, 0] + rng.logistic(size=3000) > 1.0, 1.0)
    tuning = pairs_of_few(problem.pairs, 300, content_order(rows))
    few = choose_gamma(problem, tuning=tuning)
    alone = replace(problem, pairs=tuning).of_compared_rows()
    ratio = row_shares(problem.pairs).size / row_shares(tuning).size
    assert few.rows == alone.n == 300
    assert few.gamma == pytest.approx(ratio * choose_gamma(alone).gamma, rel=1e-6)


def test_groups_and_folds_of_some_rows():
    rng = np.random.default_rng(9)
    rows = rng.normal(size=(600, 3))
    labels, groups = rows[:, 0] + rng.logistic(size=600) > 0.0, np.arange(600) // 2
    problem = linear_gaussian_problem(rows, labels, 1.0)
    choice = choose_gamma(problem, groups=groups, tuning=pairs_of_few(problem.pairs, 200, content_order(rows)))
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
    found = pac.select_gamma(held, [5.0, 20.0], folds=2, set_data=True)
    assert held["gamma"].get_value() == found.best
    with held:
        assert pm.fit(method=pac.EP(), progressbar=False).fitted_to.gamma == found.best
    for gamma in (lambda: 1.0, lambda: 2.0 * pm.Data("gamma", 1.0)):
        with pytest.raises(ValueError, match=r'gamma = pm.Data\("gamma", 1.0\)'):
            pac.select_gamma(build(gamma), [5.0, 20.0], set_data=True)


def test_arrays_are_enough(model):
    problem = linear_gaussian_problem(X, y, 1.0)
    found = pac.select_gamma(problem, [5.0, 40.0], folds=3)
    expected = pac.select_gamma(model, [5.0, 40.0], folds=3)
    np.testing.assert_array_equal(found.fold, expected.fold)
    np.testing.assert_allclose(found.table["auc"], expected.table["auc"], atol=1e-3)
    assert found.refit.problem.gamma == expected.best
    with pytest.raises(ValueError, match="takes a PyMC model"):
        pac.select_gamma(problem, method="smc")


def test_every_model(model):
    options = {"gammas": [5.0, 40.0], "folds": 2, "random_seed": 1, "progressbar": False}
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
    drawn = pac.select_gamma(hierarchy, method="smc", **options)
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


SAMPLED = pytest.param("partial AUC", marks=pytest.mark.slow)


@pytest.mark.parametrize("name", [SAMPLED if name == "partial AUC" else name for name in COMPARISONS])
def test_every_comparison_is_cross_validated_as_refits_would_be(name, monkeypatch):
    """By hand: fit without the rows of a fold, and judge its rows by the same comparison."""
    potential, risk, arrays, options = COMPARISONS[name]

    def build(rows, gamma):
        with pm.Model() as model:
            theta = pm.Normal("theta", size=4)
            potential("c", X[rows] @ theta, **{k: v[rows] for k, v in arrays.items()}, gamma=gamma, **options)
        return model

    everything = np.ones(120, dtype=bool)
    search = {"folds": 3, "random_seed": 3, "progressbar": False}
    if name == "partial AUC":
        with pytest.raises(ValueError, match=r"partial AUC.*method=.smc"):
            pac.select_gamma(build(everything, 1.0), [20.0], **search)
        search |= {"method": "smc"}
        monkeypatch.setattr(selection, "choose_tempered", partial(choose_tempered, particles=8000))
    found = pac.select_gamma(build(everything, 1.0), [20.0], **search)
    if name == "small strata":
        compared = [q for q in range(30) if np.unique(y[q == QUERY]).size == 2]
        assert all(np.unique(found.fold[0][q == QUERY]).size == 1 for q in compared)
    for k in range(3):
        out = found.fold[0] == k
        if name == "partial AUC":
            with build(~out, 20.0):
                run = pm.sample(8000, step=pac.TemperingSMC(particles=8000), chains=1, random_seed=1, progressbar=False)
            mean = run["posterior"]["theta"].mean(("chain", "draw")).to_numpy()
        else:
            mean = fitting.fit(problem_of(build(~out, 20.0)).problem).posterior.mean
        by_hand = 1 - risk(X[out] @ mean, **{k: v[out] for k, v in arrays.items()}, **options)
        assert found.fold_auc[0, 0, k] == pytest.approx(by_hand, abs=0.02)
    assert 0.6 < found.table["auc"][0] < 1.0
    called = {"partial AUC": "partial AUC", "ordered classes": "concordance", "censored times": "concordance"}
    assert f"held-out {called.get(name, 'AUC')} " in repr(found)


def test_draws_are_judged_by_the_weights_too():
    """The expected AUC of a draw in closed form, against draws."""
    problem = linear_gaussian_problem(X, label_comparison(LEVEL, ordered=True, strata=WARD, weights=WEIGHT), 20.0)
    folds = gamma_search.assign_folds(problem.pairs, 3)
    left_out = gamma_search.leave_out_folds(problem, folds, choose_plan(problem), fitting.fit(problem))
    at = gamma_search.held_out(left_out, 20.0, sweeps=50, tolerance=1e-6)
    fold = folds[0]
    for k in range(3):
        out = fold == k
        refit = fitting.fit(replace(problem, pairs=problem.pairs.among(~out)))
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
    options = {"folds": 3, "progressbar": False}
    found = pac.select_gamma(model, [20.0], set_data=True, **options)
    np.testing.assert_array_equal(found.fold[0][:120], found.fold[0][120:])
    assert (model["first"].get_value(), model["second"].get_value()) == (5.0, 15.0)
    assert np.isnan(found.table["certified_auc"]).all()
    with pytest.raises(ValueError, match="AUC terms, and a certificate is for one"):
        pac.select_gamma(model, criterion="certificate")
    for k in range(3):
        out = found.fold[0][:120] == k
        with pm.Model() as left:
            theta = pm.Normal("theta", size=4)
            pac.AUCPotential("a", X[~out] @ theta, y[~out], gamma=5.0)
            pac.AUCPotential("b", X[~out] @ theta, other[~out], gamma=15.0)
        mean = fitting.fit(problem_of(left).problem).posterior.mean
        risk = [pac.empirical_risk(X[out] @ mean, labels[out]) for labels in (y, other)]
        assert found.fold_auc[0, 0, k] == pytest.approx(1 - 0.25 * risk[0] - 0.75 * risk[1], abs=0.03)
    groups = np.arange(120) // 5
    kept = pac.select_gamma(model, [20.0], groups=groups, **options).fold[0]
    assert all(np.unique(kept[np.tile(groups, 2) == g]).size == 1 for g in range(24))
    with model:
        pm.Potential("more", -(theta**2).sum())
    with pytest.raises(ValueError, match=r"nothing but AUC terms and a prior.* it has more"):
        pac.select_gamma(model, [20.0], method="smc", **options)


def test_the_grid_and_the_certificate_of_censored_times():
    problem = linear_gaussian_problem(X, concordance(TIME, EVENT), 1.0)
    found = pac.select_gamma(problem, [5.0, 20.0, 80.0], criterion="certificate")
    paid = pac.certificate(found.refit)
    assert found.table["certified_auc"].max() == pytest.approx(paid.auc)
    assert paid.comparison == "censored times"
    with pytest.raises(ValueError, match="estimated weights"):
        pac.select_gamma(
            linear_gaussian_problem(X, concordance(TIME, EVENT, weights="ipcw"), 1.0), criterion="certificate"
        )
    found = pac.select_gamma(problem)
    assert 3 * found.refit.problem.d < found.best < problem.pairs.n_pairs


def test_standard_errors_are_over_the_folds_of_an_assignment(model):
    found = pac.select_gamma(model, [5.0, 40.0], folds=3, progressbar=False)
    assert found.fold_auc.shape == (2, 4, 3)
    by_hand = [np.sqrt(np.mean([np.var(each, ddof=1) for each in at]) / 3) for at in found.fold_auc]
    np.testing.assert_allclose(found.table["se"], by_hand)


def test_the_seed_is_for_smc_alone(model):
    options = {"gammas": [5.0, 40.0], "folds": 3, "method": "smc", "progressbar": False}
    one, two, other = (pac.select_gamma(model, random_seed=seed, **options) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one.fold_auc, two.fold_auc)
    np.testing.assert_array_equal(one.fold, other.fold)
    assert (one.fold_auc != other.fold_auc).any()


def test_what_did_not_converge_is_told(model, monkeypatch):
    patient = fitting.fit

    def hasty(problem, method, **options):
        return patient(problem, max_sweeps=3 if problem.gamma > 10 else 100)

    monkeypatch.setattr(selection, "fit", hasty)  # the last one
    monkeypatch.setattr(fitting, "fit", hasty)
    for criterion in ("certificate", "auc"):
        with pytest.warns(ConvergenceWarning, match="did not converge at gamma = 50"):
            found = pac.select_gamma(model, [5.0, 50.0], criterion=criterion, folds=2)
        assert found.table["converged"].tolist() == [True, False]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "nuts"}, "method must be"),
        ({"criterion": "accuracy"}, "criterion must be"),
        ({"gammas": []}, "gammas is empty"),
        ({"gammas": [0.0, 1.0]}, "gamma must be"),
        ({"method": "smc", "criterion": "certificate"}, "closed form"),
        ({"folds": 100}, "a fold has no pair to compare"),
        ({"criterion": "certificate", "client": "any"}, "leave client out"),
    ],
)
def test_refusals(model, options, message):
    with pytest.raises(ValueError, match=message):
        pac.select_gamma(model, **options)
