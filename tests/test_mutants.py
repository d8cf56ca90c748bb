"""Slips that no other test would see: each of these fails when the one line that it is about is left out."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import pymc_pacauc as pac
from pymc_pacauc.ep.plan import choose_plan
from pymc_pacauc.ep.subsample import own_error
from pymc_pacauc.estimator.posterior import cross_fit
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.tune.coverage import _next
from pymc_pacauc.tune.evidence import shrunk_prior
from pymc_pacauc.tune.gamma import leave_out_folds, weighted_gamma


def test_a_holdout_bound_pays_for_the_scores_compared():
    rng = np.random.default_rng(1)
    y = np.arange(200) < 80
    scores = rng.normal(size=200) + y
    shared = pac.certify.holdout(scores, y, 0.1, selected_from=5)
    assert shared.auc == pytest.approx(pac.certify.holdout(scores, y, 0.02).auc, abs=1e-12)
    assert shared.auc < pac.certify.holdout(scores, y, 0.1).auc


def test_the_mean_gamma_goes_by_how_far_candidates_stay_behind():
    noise = 0.001 * np.random.default_rng(1).normal(size=(5, 10))
    best, worse = (
        SimpleNamespace(gamma=gamma, auc=auc, reliable=True)
        for gamma, auc in ((10.0, 0.9 + noise), (1000.0, 0.6 - noise))
    )
    assert weighted_gamma([best, worse], 5.0) == pytest.approx(10.0, rel=1e-6)


def test_a_subsample_that_is_worse_than_others_says_so():
    """Two others agree, three units from it: its own error is 3, not 3 / sqrt(2)."""
    assert own_error(np.array([[3.0], [3.0]])) == pytest.approx(3.0)


@pytest.mark.parametrize("method", ["ep", "vb"])
def test_folds_choose_gamma_by_the_method_asked_for(method):
    """Against a fit to the rows that stay: EP's scores are not those of variational Bayes."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 2))
    problem = linear_gaussian_problem(X, X[:, 0] + rng.normal(size=40) > 0.0, gamma=40.0)
    fold = np.arange(40) % 2
    [paths] = leave_out_folds(problem, fold[None], choose_plan(problem, method=method))
    scores = paths(40.0, refine=200, tolerance=1e-8, of_draws=False).scores

    def off(method):
        stay = replace(problem, pairs=problem.pairs.among(fold == 1))
        refitted = X @ fit(stay, method, tolerance=1e-8, n_jobs=1).posterior.mean
        unit = (refitted - refitted.mean()) / refitted.std()
        return np.abs(scores - unit)[fold == 0].max()

    assert off(method) < 1e-4 < off("vb" if method == "ep" else "ep")


def test_the_shrunk_prior_has_the_covariance_that_it_says():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 3)) @ [[1.0, 0.8, 0.0], [0.0, 1.0, -0.7], [0.0, 0.0, 2.0]]
    weights = rng.gamma(2.0, size=60)
    problem = linear_gaussian_problem(X, X[:, 0] > 0.0, gamma=10.0)
    S = np.cov(X.T, bias=True, aweights=weights)
    prior = shrunk_prior(problem, 0.3, S).prior
    expected = np.linalg.inv(0.7 * S + 0.3 * np.eye(3))
    np.testing.assert_allclose(prior.covariance, expected, rtol=1e-10)
    np.testing.assert_allclose(prior.whiten(prior.color(X)), X, atol=1e-10)


def test_a_secant_through_one_gamma_is_no_secant():
    path = [SimpleNamespace(gamma=10.0, ratio=ratio) for ratio in (1.5, 1.25)]
    assert _next(path) == pytest.approx(8.0)


@pytest.mark.parametrize("method", ["ep", "vb"])
def test_probabilities_are_of_folds_by_the_method_asked_for(method, monkeypatch):
    monkeypatch.setattr("pymc_pacauc.estimator.posterior.SWEEPS", 200)
    monkeypatch.setattr("pymc_pacauc.tune.gamma.FOLD_TOLERANCE", 1e-8)
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 2))
    y = X[:, 0] + rng.normal(size=40) > 0.0
    [score] = pac.AUCClassifier("ridge", method=method, gamma=40.0).fit(X, y).scores_
    problem, fold = score.posterior.fit.problem, np.arange(40) % 2
    assert score.posterior.fit.plan.folds == "paths"
    [scores] = cross_fit(score.posterior, 2, fold[None])

    def off(method):
        stay = replace(problem, pairs=problem.pairs.among(fold == 1))
        refitted = problem.X @ fit(stay, method, tolerance=1e-8, n_jobs=1).posterior.mean
        unit = (refitted - refitted.mean()) / refitted.std()
        return np.abs(scores - unit)[fold == 0].max()

    assert off(method) < 1e-4 < off("vb" if method == "ep" else "ep")


def test_a_gamma_far_from_the_usual_is_weighed_without_underflow():
    only = SimpleNamespace(gamma=10.0, auc=np.full((5, 2), 0.9), reliable=True)
    assert weighted_gamma([only], 1e-30) == pytest.approx(10.0)
