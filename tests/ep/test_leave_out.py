"""Leaving rows out, against refits; the expected AUC of pairs."""

import math
import warnings

import numpy as np
import pytest

import pymc_pacauc as pac
from pymc_pacauc import fitting
from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.ep.leave_out import SINGLE_SWEEPS, expected_pair_auc
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.ep.sites import site_functions
from pymc_pacauc.problem.problem import linear_gaussian_problem

TIGHT = {"tolerance": 1e-12, "max_sweeps": 1000}


def data(n=30, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, (X[:, 0] - 0.5 * X[:, 1] + rng.standard_normal(n) > 0.2).astype(int)


def prior(d, seed=1):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((d, d))
    return rng.standard_normal(d), A @ A.T / d + 0.3 * np.eye(d)


class TestExpectedPairAUC:
    def test_against_draws(self):
        X, y = data()
        posterior = fitting.fit(linear_gaussian_problem(X, y, 30.0)).posterior
        mean, covariance = posterior.moments_of(X)
        root = X @ np.linalg.cholesky(posterior.covariance)
        np.testing.assert_allclose(root @ root.T, covariance, atol=1e-12)
        drawn = posterior.draw(20_000, np.random.default_rng(1)) @ X.T
        expected = 1 - pac.empirical_risk(drawn, y).mean()
        assert expected_pair_auc(mean, root, bipartite(y)) == pytest.approx(expected, abs=3e-3)

    def test_rows_that_always_tie_and_rows_that_nearly_do(self):
        root = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 1e-9]])
        pairs = bipartite([1, 0, 0])
        near = 0.5 * (1 + math.erf(1.5 / math.sqrt(2)))  # the difference of the third row has mean 1.5 sd
        for second, tie in ((1.0, 0.5), (2.0, 0.0)):
            mean = np.array([1.0, second, 1.0 - 1.5e-9])
            assert expected_pair_auc(mean, root, pairs) == pytest.approx(0.5 * (tie + near), abs=1e-6)


def refit(X, y, gamma, out):
    kept = bipartite(y[~out])
    part = linear_gaussian_problem(X[~out], y[~out], gamma * kept.n_pairs / bipartite(y).n_pairs)
    scores = (X - X.mean(axis=0)) @ fitting.fit(part, **TIGHT).posterior.mean
    return ((scores - scores.mean()) / scores.std())[out]


@pytest.fixture(scope="module")
def fit():
    data = pac.datasets.load_pima()
    X = ((data.X - data.X.mean(axis=0)) / data.X.std(axis=0))[data.train]
    return fitting.fit(linear_gaussian_problem(X, data.y[data.train], 200.0), **TIGHT)


class TestLeaveOut:
    def brute_force(self, fit, groups):
        X, y = fit.problem.X, np.zeros(fit.problem.n, dtype=int)
        y[fit.problem.pairs.blocks[0].positive] = 1
        scores = np.empty(len(y))
        for g in np.unique(groups):
            scores[groups == g] = refit(X, y, 200.0, groups == g)
        return scores, 1 - pac.empirical_risk(scores, y)

    def test_single_rows_are_swept_ten_times_and_folds_three_times(self, fit):
        for groups, default, other in ((None, SINGLE_SWEEPS, 3), (np.arange(fit.problem.n) % 20, 3, SINGLE_SWEEPS)):
            found, same, not_same = (
                fit.leave_out(groups, refine=sweeps, tolerance=1e-12, of_draws=False).scores
                for sweeps in (None, default, other)
            )
            np.testing.assert_allclose(found, same, rtol=1e-12)
            assert np.abs(found - not_same).max() > 1e-9

    def test_folds_converge_to_the_refit(self, fit):
        groups = np.arange(fit.problem.n) % 5
        scores, auc = self.brute_force(fit, groups)
        errors = [np.abs(fit.leave_out(groups, refine=r).scores - scores).max() for r in (0, 1, 3)]
        assert errors[0] < 0.5
        assert errors[1] < 0.7 * errors[0]
        assert errors[2] < 0.05
        exact = fit.leave_out(groups, refine=50, tolerance=1e-10)
        np.testing.assert_allclose(exact.scores, scores, atol=1e-7)
        assert exact.auc == pytest.approx(auc, abs=1e-12)
        assert exact.change.max() < 1e-9
        assert fit.leave_out(groups).auc == pytest.approx(auc, abs=0.01)

    def test_leave_one_out_without_refinement_is_close(self, fit):
        few = np.flatnonzero(np.arange(fit.problem.n) % 25 == 0)
        X, y = fit.problem.X, np.zeros(fit.problem.n, dtype=int)
        y[fit.problem.pairs.blocks[0].positive] = 1
        result = fit.leave_out(refine=0)
        expected = [refit(X, y, 200.0, np.arange(len(y)) == i)[0] for i in few]
        np.testing.assert_allclose(result.scores[few], expected, atol=0.1)
        assert result.auc < 1 - pac.empirical_risk(X @ fit.posterior.mean, y)

    def test_removal_subtracts_the_sites_of_every_pair_that_goes(self):
        """Without any sweep: by hand, pair by pair, positives and negatives that are left out."""
        X, y = data(n=24, d=3)
        problem = linear_gaussian_problem(X, y, 24.0)
        fit = fitting.fit(problem, **TIGHT)
        q = fit.posterior.natural
        groups = np.arange(24) % 3
        left = fit.leave_out(groups, refine=0)
        Z = X - X.mean(axis=0)
        for g in range(3):
            out = groups == g
            precision, shift = q.precision.copy(), q.shift.copy()
            for i in np.flatnonzero(y == 1):
                for j in np.flatnonzero(y == 0):
                    if out[i] or out[j]:
                        z = Z[i] - Z[j]
                        sd = np.sqrt(z @ q.covariance @ z)
                        site = site_functions(np.array([z @ q.mean / sd]), problem.gamma_per_pair)
                        precision -= site.precision[0] / sd**2 * np.outer(z, z)
                        shift -= site.shift[0] / sd * z
            covariance = np.linalg.inv(precision)
            scores = Z @ covariance @ shift
            np.testing.assert_allclose(left.scores[out], (scores / scores.std())[out], atol=1e-8)
            variance = np.einsum("ij,jk,ik->i", Z, covariance, Z) / scores.var()
            np.testing.assert_allclose(left.variance[out], variance[out], rtol=1e-8)
            both = np.flatnonzero(out)
            assert left.group_auc[g] == 1 - pac.empirical_risk(left.scores[both], y[both])
        assert left.auc == 1 - pac.empirical_risk(left.scores, y)
        assert left.restarted == 0

    def test_sites_that_make_no_gaussian_are_matched_anew(self):
        """Leaving out nearly all: what stays are negative precisions, and the sweeps start from the full q."""
        rng = np.random.default_rng(1)
        X = rng.standard_normal((30, 2))
        y = (X[:, 0] + 0.3 * rng.standard_normal(30) > 0).astype(int)
        y[[0, 1]] = 1 - y[[0, 1]]
        fit = fitting.fit(linear_gaussian_problem(X, y, 400.0), **TIGHT)
        worst = np.argsort(X[:, 0] * (2 * y - 1))
        groups = np.ones(30)
        groups[worst[:4]] = 0  # without the rest there are misranked pairs alone
        assert fit.leave_out(groups, refine=0).restarted >= 1
        left = fit.leave_out(groups, refine=300, tolerance=1e-9)  # from the prior
        assert left.restarted == 0
        assert left.change.max() < 1e-9

    def test_a_group_that_does_not_converge_at_its_gamma_is_said(self, fit):
        halves = np.arange(fit.problem.n) % 2
        with pytest.warns(ConvergenceWarning, match="2 of 2 groups left out did not converge in refine=200 iterations"):
            fit.leave_out(halves, gamma=100.0, tolerance=0.0)
        assert fit.leave_out(halves, gamma=100.0, refine=2).change.max() > 1e-6  # as asked for

    def test_bad_groups(self, fit):
        with pytest.raises(ValueError, match="shape"):
            fit.leave_out(np.arange(3))
        with pytest.raises(ValueError, match="groups must have two values"):
            fit.leave_out(np.zeros(fit.problem.n))
        whole_class = np.zeros(fit.problem.n)
        whole_class[fit.problem.pairs.blocks[0].positive] = 1
        with pytest.raises(ValueError, match="whole class"):
            fit.leave_out(whole_class)


@pytest.mark.slow
@pytest.mark.parametrize("folds", [5, None], ids=["folds", "single rows"])
def test_nothing_of_what_is_left_out_is_left_at_a_large_gamma(folds):
    """Labels are noise, so the AUC of rows left out is one half on average, whatever gamma: there is nothing to learn.

    At a large gamma a ranking is fitted to the noise, in one of many ways; that the fit to all rows found this one is
    knowledge of the rows left out.
    """
    n, d, found = 60, 20, []
    for seed in range(12 if folds else 6):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(n, d)), rng.permutation(np.arange(n) % 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fit = fitting.fit(linear_gaussian_problem(X, y, gamma=64 * n / 4), tolerance=1e-3)
        groups = None if folds is None else np.arange(n) % folds
        found.append(fit.leave_out(groups, tolerance=0.05).auc)
    error = np.std(found, ddof=1) / np.sqrt(len(found))
    assert abs(np.mean(found) - 0.5) < 3 * error
