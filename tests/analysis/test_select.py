import numpy as np
import pymc as pm
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pymc_pacauc as pac
from pymc_pacauc.analysis import select as selection
from pymc_pacauc.analysis.select import default_gammas
from pymc_pacauc.core.folds import stratified_folds
from pymc_pacauc.core.problem import linear_gaussian_problem
from pymc_pacauc.ep.gaussian import ConvergenceWarning, fit_ep
from pymc_pacauc.model.extract import problem_of

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
    found = pac.select_gamma(model, gammas, folds=4, method=method, particles=8000, random_seed=3, progressbar=False)
    assert found.table["gamma"].tolist() == gammas
    np.testing.assert_array_equal(np.unique(found.fold), np.arange(4))
    for i, gamma in enumerate(gammas):
        for k in range(4):
            out = found.fold == k
            refit = fit_ep(linear_gaussian_problem(X[~out], y[~out], gamma))
            auc = 1 - pac.empirical_risk(X[out] @ refit.posterior.mean, y[out])
            assert found.fold_auc[i, k] == pytest.approx(auc, abs=0.02)
    np.testing.assert_allclose(found.table["auc"], found.fold_auc.mean(axis=1))
    assert found.best == gammas[int(np.argmax(found.table["auc"]))]
    assert f"best={found.best:g} of 2" in repr(found)


def test_the_refit_is_at_the_best_gamma(model):
    found = pac.select_gamma(model, [5.0, 40.0], folds=3, random_seed=3)
    assert found.refit.fit.problem.gamma == found.best
    assert found.refit.converged
    assert found.refit.fitted_to.gamma == found.best
    assert pac.certificate(found).auc == pac.certificate(found.refit.sample(5)).auc
    drawn = pac.select_gamma(model, [5.0, 40.0], folds=3, method="smc", particles=300, random_seed=3).refit
    assert drawn["posterior"]["theta"].shape == (1, 300, 4)
    certified = pac.certificate(drawn)
    assert certified.gamma == found.best
    assert certified.auc == pytest.approx(pac.certificate(found).auc, abs=0.05)


def test_smc_agrees_with_ep_along_gamma(model):
    gammas = np.geomspace(2, 50, 4)
    ep = pac.select_gamma(model, gammas, folds=3, random_seed=1).table
    smc = pac.select_gamma(model, gammas, folds=3, method="smc", particles=4000, random_seed=1).table
    np.testing.assert_allclose(smc["log_evidence"], ep["log_evidence"], atol=0.4)
    np.testing.assert_allclose(smc["expected_auc"], ep["expected_auc"], atol=0.02)
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
    options = {"folds": 2, "method": "smc", "random_seed": 1, "particles": 500}
    found = pac.select_gamma(nonlinear, [5.0, 20.0], **options)
    with pm.Model() as linear:
        theta = pm.Normal("theta", size=4)
        pac.AUCPotential("auc", X @ theta, y, gamma=1.0)
    expected = pac.select_gamma(linear, [5.0, 20.0], **options)
    np.testing.assert_array_equal(found.fold, expected.fold)
    np.testing.assert_allclose(found.table["auc"], expected.table["auc"], atol=0.03)
    np.testing.assert_allclose(found.table["log_evidence"], expected.table["log_evidence"], atol=0.5)
    assert found.refit["posterior"]["scale"].shape == (1, 500)


def test_by_certificate(model):
    found = pac.select_gamma(model, criterion="certificate")
    pairs = problem_of(model).problem.pairs
    gammas = default_gammas(pairs)
    assert found.table["gamma"].to_numpy() == pytest.approx(gammas)
    assert found.best == gammas[np.argmax(found.table["certified_auc"])]
    paid = pac.certificate(found.refit, selected_from=len(gammas))
    assert found.table["certified_auc"].max() == pytest.approx(paid.auc)
    free = pac.select_gamma(model, criterion="certificate", selected_from=1)
    assert free.table["certified_auc"].max() > paid.auc
    assert np.isnan(found.table["auc"]).all()
    assert found.fold.size == 0


def test_one_standard_error_rule_takes_the_smallest(model):
    gammas = [2.0, 8.0, 30.0, 100.0]
    best, cautious = (pac.select_gamma(model, gammas, folds=4, random_seed=2, rule=rule) for rule in ("best", "one_se"))
    row = best.table.loc[best.table["auc"].idxmax()]
    allowed = best.table["gamma"][best.table["auc"] >= row["auc"] - row["se"]]
    assert cautious.best == allowed.min() <= best.best


def test_reproducible_and_parallel(model):
    options = {"gammas": [5.0, 40.0], "folds": 3, "random_seed": 3}
    one, two = pac.select_gamma(model, **options), pac.select_gamma(model, **options)
    np.testing.assert_array_equal(one.fold_auc, two.fold_auc)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ep", "smc"])
def test_processes_do_not_change_the_answer(model, method):
    options = {"gammas": [5.0, 40.0], "folds": 3, "random_seed": 3, "method": method}
    one, two = (pac.select_gamma(model, n_jobs=n, **options) for n in (1, 2))
    np.testing.assert_allclose(one.fold_auc, two.fold_auc)


def test_what_did_not_converge_is_told(model, monkeypatch):
    def hasty(problem, method, start=None):
        return fit_ep(problem, max_sweeps=3 if problem.gamma > 10 else 100)

    monkeypatch.setattr(selection, "fit", hasty)
    with pytest.warns(ConvergenceWarning, match="did not converge at gamma = 50"):
        found = pac.select_gamma(model, [5.0, 50.0], criterion="certificate")
    assert found.table["converged"].tolist() == [True, False]


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
    ],
)
def test_refusals(model, options, message):
    with pytest.raises(ValueError, match=message):
        pac.select_gamma(model, **options)
