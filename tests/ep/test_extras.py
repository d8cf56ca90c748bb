"""What EP gives beyond the fit: evidence gradient, importance weights, leave-out."""

import math
import warnings

import numpy as np
import pytest
from scipy import integrate

import pymc_pacauc as pac
from pymc_pacauc import fitting
from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.ep.importance import _log_radial_integral, log_mean
from pymc_pacauc.ep.leave_out import expected_pair_auc
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.ep.sites import site_functions
from pymc_pacauc.model.compat import pareto_smooth
from pymc_pacauc.problem.problem import linear_gaussian_problem
from tests.oracles import exact_line, exact_plane, line_data, plane_data

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


class TestEvidenceGradient:
    @pytest.mark.parametrize("d", [4, 40], ids=["primal", "dual"])
    def test_finite_differences(self, d):
        X, y = data(d=d)
        mean, covariance = prior(d)
        rng = np.random.default_rng(2)
        move = rng.standard_normal((d, d))
        move, shift = move + move.T, rng.standard_normal(d)

        def fit(step, shift_step):
            return fitting.fit(
                linear_gaussian_problem(
                    X, y, 30.0, prior_mean=mean + shift_step * shift, prior_covariance=covariance + step * move
                ),
                **TIGHT,
            )

        gradient = fit(0.0, 0.0).evidence_gradient()
        h = 1e-5
        along = (fit(h, 0.0).log_evidence - fit(-h, 0.0).log_evidence) / (2 * h)
        assert gradient.along(move) == pytest.approx(along, rel=1e-5, abs=1e-6)
        along = (fit(0.0, h).log_evidence - fit(0.0, -h).log_evidence) / (2 * h)
        assert gradient.mean @ shift == pytest.approx(along, rel=1e-5, abs=1e-6)

    def test_variances(self):
        X, y = data()
        variances = np.array([1.0, 0.5, 2.0, 0.1])
        gradient = fitting.fit(
            linear_gaussian_problem(X, y, 30.0, prior_covariance=variances), **TIGHT
        ).evidence_gradient()
        h = 1e-5 * np.eye(4)[3]
        up, down = (
            fitting.fit(linear_gaussian_problem(X, y, 30.0, prior_covariance=v), **TIGHT).log_evidence
            for v in (variances + h, variances - h)
        )
        assert gradient.variances[3] == pytest.approx((up - down) / 2e-5, rel=1e-5)

    def test_common_scale_is_flat(self):
        X, y = data()
        problem = linear_gaussian_problem(X, y, 30.0, prior_covariance=prior(4)[1])
        assert fitting.fit(problem, **TIGHT).evidence_gradient().along(problem.prior.covariance) == pytest.approx(
            0, abs=1e-9
        )


class TestImportance:
    @pytest.mark.parametrize("power", [0, 1, 6, 100])
    def test_radial_integral(self, power):
        for slope in (-30.0, -3.0, 0.0, 2.0, 40.0):
            mode = 0.5 * (slope + np.sqrt(slope**2 + 4 * max(power, 1)))
            top = power * np.log(mode) - 0.5 * mode**2 + slope * mode

            def integrand(t, slope=slope, top=top):
                return (
                    np.exp(power * np.log(t) - 0.5 * t * t + slope * t - top)
                    if t > 0
                    else float(power == 0) / np.exp(top)
                )

            total = (
                integrate.quad(integrand, 0, mode, limit=500)[0]
                + integrate.quad(integrand, mode, mode + 30, limit=500)[0]
            )
            assert _log_radial_integral(np.array([slope]), power)[0] == pytest.approx(top + np.log(total), abs=1e-7)

    @pytest.mark.parametrize("gamma", [40.0, 300.0, 600.0])
    def test_exact_evidence_in_the_plane(self, gamma):
        X, y = plane_data(300)
        fit = fitting.fit(linear_gaussian_problem(X, y, gamma, prior_covariance=2.0))
        draws = fit.importance(4000, np.random.default_rng(1))
        log_weights, k = pareto_smooth(draws.log_weights)
        estimate, error = log_mean(log_weights)
        exact = exact_plane(X, y, gamma)
        assert k < 0.5
        assert error < 0.01
        assert abs(estimate - exact.log_evidence) < 3 * error
        weights = np.exp(log_weights - np.logaddexp.reduce(log_weights))
        mean = weights @ draws.theta / np.sqrt(2.0)
        spread = np.sqrt(np.sum(weights[:, None] ** 2 * (draws.theta / np.sqrt(2.0) - mean) ** 2, axis=0))
        assert (np.abs(mean - exact.mean) < 4 * spread).all()

    def test_exact_evidence_with_an_offset(self):
        x, offset, y = line_data()
        fit = fitting.fit(
            linear_gaussian_problem(x[:, None], y, 100.0, offset=offset, prior_mean=0.3, prior_covariance=0.8)
        )
        draws = fit.importance(20_000, np.random.default_rng(2))
        estimate, error = log_mean(draws.log_weights)
        exact = exact_line(x, y, 100.0, offset=offset, prior_mean=0.3, prior_sd=np.sqrt(0.8))
        assert abs(estimate - exact.log_evidence) < 3 * error < 0.1

    def test_more_coefficients_than_observations(self):
        """Only the directions that reach the scores are weighted: 40 coefficients are no harder than 10."""
        X, y = data(n=10, d=40)
        fit = fitting.fit(linear_gaussian_problem(X, y, 10.0))
        log_weights, k = pareto_smooth(fit.importance(4000, np.random.default_rng(3)).log_weights)
        estimate, error = log_mean(log_weights)
        assert k < 0.7
        prior_draws = np.random.default_rng(4).standard_normal((200_000, 40))
        plain, plain_error = log_mean(-10.0 * pac.arrays.linear_risk(prior_draws, X, y))
        assert abs(estimate - plain) < 3 * np.hypot(error, plain_error)

    def test_constant_weights(self):
        smoothed, k = pareto_smooth(np.full(100, -3.0))
        assert k == -np.inf
        assert log_mean(smoothed) == (pytest.approx(-3.0), pytest.approx(0.0))


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
        with pytest.warns(ConvergenceWarning, match="2 of 2 groups left out did not converge in 200 sweeps"):
            fit.leave_out(halves, gamma=100.0, tolerance=0.0)
        assert fit.leave_out(halves, gamma=100.0, refine=2).change.max() > 1e-6  # as asked for

    def test_bad_groups(self, fit):
        with pytest.raises(ValueError, match="shape"):
            fit.leave_out(np.arange(3))
        with pytest.raises(ValueError, match="one value only"):
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
