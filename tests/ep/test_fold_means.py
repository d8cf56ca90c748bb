"""Means without a fold, at the standard deviations of the fit with it."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from pymc_pacauc.comparison.kinds import label_comparison
from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.ep.fold_means import fold_means, suits_fold_means
from pymc_pacauc.ep.gaussian import fit_ep, fit_vb
from pymc_pacauc.ep.posterior import standard_gaussian
from pymc_pacauc.ep.start import MeanFirst
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem.problem import linear_gaussian_problem, spike_slab_problem


def data(n, d, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X[:, :5].sum(axis=1) + rng.logistic(scale=2.0, size=n) > 1.0, rng.permutation(n) % 5


@pytest.mark.parametrize("noise", [False, True])
@pytest.mark.parametrize("d", [5, 50])
def test_scores_and_auc_are_those_of_refits(d, noise):
    """Where labels are noise, little of the fold's own must be left in its scores: half a standard error of an AUC."""
    X, y, fold = data(600, d)
    y = np.random.default_rng(2).permutation(y) if noise else y
    problem = linear_gaussian_problem(X, y, gamma=4.0 * y.sum() * (~y).sum() / 600)
    fitted = fit_ep(problem)
    exact, found = fitted.leave_out(fold, gamma=problem.gamma).scores, fold_means(fitted, fold)
    assert roc_auc_score(y, found) == pytest.approx(roc_auc_score(y, exact), abs=0.012 if noise else 0.002)
    assert np.sqrt(np.mean((found - exact) ** 2)) < (0.1 if noise else 0.03)


@pytest.mark.parametrize("kind", ["ordered", "weights", "offset", "vb"])
def test_other_comparisons(kind):
    X, y, fold = data(400, 6)
    rng = np.random.default_rng(3)
    pairs, offset = y, 0.0
    if kind == "ordered":
        pairs = label_comparison(np.digitize(X[:, 0] + rng.logistic(size=400), [-1.0, 1.0]), ordered=True)
    elif kind == "weights":
        pairs = label_comparison(y, weights=rng.gamma(4.0, size=400))
    elif kind == "offset":
        offset = X[:, 1] + rng.normal(size=400)
    problem = linear_gaussian_problem(X, pairs, gamma=200.0, offset=offset)
    fitted = (fit_vb if kind == "vb" else fit_ep)(problem)
    exact = fitted.leave_out(fold, gamma=200.0).scores
    np.testing.assert_allclose(fold_means(fitted, fold), exact, atol=0.1)


def test_a_dealt_fit():
    X, y, fold = data(3000, 8)
    fitted = fit(linear_gaussian_problem(X, y, gamma=3000.0), pairs=200)
    exact = fitted.leave_out(fold, gamma=3000.0, refine=50, tolerance=1e-3).scores
    found = fold_means(fitted, fold)
    assert np.sqrt(np.mean((found - exact) ** 2)) < 0.03
    assert roc_auc_score(y, found) == pytest.approx(roc_auc_score(y, exact), abs=1e-3)


def test_what_it_is_for():
    X, y, _ = data(200, 3)
    problem = linear_gaussian_problem(X, y, gamma=100.0)
    assert suits_fold_means(fit_ep(problem))
    assert not suits_fold_means(fit_ep(replace(problem, gamma=12.0 * row_shares(problem.pairs).size)))
    spikes = spike_slab_problem(X, y, gamma=50.0, inclusion_probability=0.5, v0=0.0)
    assert not suits_fold_means(fit(spikes))


def test_a_mean_of_zero():
    """Rows that are all equal leave the prior as it is; its mean has no length to keep."""
    fitted = fit_ep(linear_gaussian_problem(np.ones((40, 2)), np.arange(40) % 2, gamma=20.0))
    np.testing.assert_array_equal(fold_means(fitted, np.arange(40) % 5), 0.0)


def test_kernels_never_see_what_is_not_finite():
    """They look up sites by the scores, and would read memory that is not theirs."""
    problem = linear_gaussian_problem(*data(40, 2)[:2], gamma=20.0)
    blocks = [(block, 1.0) for block in problem.pairs.blocks]
    space = problem.scores.reduced
    sweeps = MeanFirst(space.design, space.offset, blocks, power=1.0, scale_free=True)
    inverse_sd = sweeps.inverse_sd(standard_gaussian(space.dimension))
    with pytest.raises(FloatingPointError, match="overflow"):
        sweeps.force(np.full(space.dimension, np.nan), inverse_sd, 0.1)
