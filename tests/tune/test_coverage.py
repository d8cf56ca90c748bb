"""The sandwich against its definition by simulation, and gamma against the equation it solves."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest
from scipy import linalg
from scipy.optimize import minimize_scalar
from scipy.special import ndtr
from scipy.stats import norm

import pymc_pacauc as pac
from pymc_pacauc import numerics
from pymc_pacauc.comparison.kinds import ordered_classes, stratified
from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.ep.posterior import natural_gaussian
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.theorems import default_gamma
from pymc_pacauc.tune import coverage
from pymc_pacauc.tune.coverage import (
    Sandwich,
    _next,
    _of_draws,
    _row_shares,
    _smoothed,
    _unit_shares,
    calibrated_posterior,
    coverage_gamma,
    sandwich,
)


def simulated(seed, n=150):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return linear_gaussian_problem(X, X @ [1.0, -0.5, 0.0] + rng.logistic(size=n) > 0.3, 150.0)


def test_gradients_are_those_of_the_smoothed_risk():
    """Without the leverage, their sum over the rows of a class is that of mean Phi(-mu / sd), by differences."""
    problem = simulated(1, n=40)
    tiny = replace(problem, gamma=1e-9)  # no leverage
    q = fit(problem).posterior.natural
    positive = np.zeros(40, dtype=bool)
    positive[problem.pairs.blocks[0].positive] = True
    rows = _row_shares(tiny, q.mean, q.root)

    def smoothed(mean):
        design = problem.scores.reduced.design
        x = design[positive][:, None, :] - design[~positive]
        return ndtr(-(x @ mean) / np.linalg.norm(x @ q.root, axis=-1)).mean()

    step = 1e-6 * np.eye(3)
    gradient = [(smoothed(q.mean + h) - smoothed(q.mean - h)) / 2e-6 for h in step]
    for rows_of_class in (rows[positive], rows[~positive]):
        np.testing.assert_allclose(-rows_of_class.sum(axis=0), gradient, rtol=1e-5, atol=1e-8)


def test_gradients_grow_by_half_the_leverage():
    """HC2: the leverage of a row is the trace of V times the Hessian of gamma times its pairs' share of the risk."""
    problem = simulated(1, n=20)
    q = fit(problem).posterior.natural
    positive = np.zeros(20, dtype=bool)
    positive[problem.pairs.blocks[0].positive] = True
    design, step = problem.scores.reduced.design, 1e-3
    plain = _row_shares(replace(problem, gamma=1e-9), q.mean, q.root)
    found = _row_shares(problem, q.mean, q.root)
    for row in range(20):
        x = (design[row] - design[positive != positive[row]]) * (1.0 if positive[row] else -1.0)
        sd = np.linalg.norm(x @ q.root, axis=1)

        def weight(mean, x=x, sd=sd):
            return problem.gamma / problem.pairs.n_pairs * ndtr(-(x @ mean) / sd).sum()

        leverage = sum(
            (weight(q.mean + step * v) - 2.0 * weight(q.mean) + weight(q.mean - step * v)) / step**2 for v in q.root.T
        )
        assert abs(leverage) > 1e-4
        np.testing.assert_allclose(found[row], (1.0 + 0.5 * leverage) * plain[row], rtol=1e-6)


def test_gamma_solves_its_equation():
    choice = coverage_gamma(simulated(2), n_jobs=1)
    assert choice.settled
    assert choice.fit.converged
    assert sandwich(choice.fit).ratio == pytest.approx(1.0, abs=0.03)
    assert sandwich(fit(replace(choice.fit.problem, gamma=4 * choice.fit.problem.gamma))).ratio > 2


def test_the_ratio_is_of_quantiles_of_the_distance_of_directions():
    """Of T, by its definition: the least over c of the squared distance of c theta from the mean."""
    fitted, rng = fit(simulated(2)), np.random.default_rng(7)
    found, q = sandwich(fitted, 0.8), fitted.posterior.natural
    theta = rng.multivariate_normal(q.mean, q.covariance, size=100_000)
    c = np.maximum(theta @ q.precision @ q.mean, 0.0) / np.einsum("ij,jk,ik->i", theta, q.precision, theta)
    away = c[:, None] * theta - q.mean
    of_draws = np.einsum("ij,jk,ik->i", away, q.precision, away)
    of_best = rng.chisquare(1, size=(100_000, found.eigenvalues.size)) @ found.eigenvalues
    assert found.ratio == pytest.approx(
        np.quantile(of_best, 0.8) / np.quantile(of_draws, 0.8), rel=0.06
    )  # 3 standard errors of 4000 draws


def test_the_spread_of_the_mean_grows_like_gamma_squared_where_gamma_is_small():
    """The mean is then gamma times the mean gradient, however small that is."""
    small, twice = (
        sandwich(fit(replace(simulated(2), gamma=gamma), tolerance=1e-9, n_jobs=1)) for gamma in (0.01, 0.02)
    )
    assert small.eigenvalues.max() < 1e-5
    np.testing.assert_allclose(twice.eigenvalues, 4.0 * small.eigenvalues, rtol=0.02)


def test_both_classes_vary():
    """Each adds the variance of its own mean gradient, with 25 positives among 150 rows."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(150, 3)) * np.where(np.arange(150) < 25, 0.5, 2.0)[:, None]
    fitted = fit(linear_gaussian_problem(X, np.arange(150) < 25, 60.0), n_jobs=1)
    q, positive = fitted.posterior.natural, np.arange(150) < 25
    shares = _row_shares(fitted.problem, q.mean, q.root)
    rows = shares * np.where(positive, 25, 125)[:, None]  # mean gradients of the pairs of each row
    spread = np.cov(rows[positive].T) / 25 + np.cov(rows[~positive].T) / 125
    moved = 60.0**2 * q.covariance @ spread @ q.covariance
    form = q.precision - np.outer(q.shift, q.shift) / (q.mean @ q.shift)
    assert sandwich(fitted).eigenvalues.sum() == pytest.approx(np.trace(form @ moved), rel=1e-6)


def test_the_covariance_of_the_mean():
    """Over 60 data sets the mean of T(theta*) is what the sandwich says, within its standard error."""
    best, found, said = np.array([1.0, -0.5, 0.0]), [], []
    for seed in range(60):
        fitted = fit(replace(simulated(seed + 10), gamma=120.0), n_jobs=1)
        precision = np.linalg.inv(fitted.posterior.covariance)
        mean = fitted.posterior.mean
        found.append(mean @ precision @ mean - (best @ precision @ mean) ** 2 / (best @ precision @ best))
        said.append(sandwich(fitted).eigenvalues.sum())
    error = np.std(found) / np.sqrt(len(found))
    assert np.mean(found) == pytest.approx(np.mean(said), abs=4 * error)


def test_through_select_gamma():
    X = np.random.default_rng(3).normal(size=(120, 2))
    with pm.Model() as model:
        gamma = pm.Data("gamma", 1.0)
        theta = pm.Normal("theta", size=2)
        y = X[:, 0] + np.random.default_rng(4).logistic(size=120) > 0
        pac.AUCPotential("auc", X @ theta, y, gamma=gamma)
    found = pac.select_gamma(model, criterion="coverage", set_data=True, progressbar=False)
    expected = coverage_gamma(linear_gaussian_problem(X, y, 1.0))
    assert found.best == pytest.approx(expected.fit.problem.gamma, rel=1e-6)
    assert found.best == pytest.approx(float(gamma.get_value()))
    assert found.refit.fitted_to.gamma == found.best
    assert "coverage_ratio" in found.table
    assert "too small" in repr(found)
    with pytest.raises(ValueError, match='coverage" is for method="ep"'):
        pac.select_gamma(model, criterion="coverage", method="vb")


def test_refusals():
    X = np.random.default_rng(1).normal(size=(30, 2))
    y = X[:, 0] > 0
    with pytest.raises(ValueError, match="centred at zero"):
        coverage_gamma(linear_gaussian_problem(X, y, 1.0, prior_mean=1.0))
    with pytest.raises(ValueError, match="its sign"):
        coverage_gamma(linear_gaussian_problem(X[:, :1], y, 1.0))
    for level in (0.0, 1.0, np.nan):
        with pytest.raises(ValueError, match="level must lie strictly between 0 and 1"):
            coverage_gamma(linear_gaussian_problem(X, y, 1.0), level=level)


def directions(rng, n, d, kind="two classes"):
    """Rows, pairs, and the coefficients of the best score, half of them zero."""
    X, best = rng.normal(size=(n, d)), np.where(np.arange(d) < d // 2, 1.0 / (1 + np.arange(d)), 0.0)
    latent = X @ best + rng.logistic(size=n)
    if kind == "ordered":
        return X, ordered_classes(np.digitize(latent, [-0.7, 0.7])), best
    pairs = bipartite(latent > 0.0)
    if kind == "strata":
        return X, stratified(pairs, np.arange(n) % 5), best
    return X, pairs.times(rng.uniform(0.5, 2.0, size=n)) if kind == "weights" else pairs, best


@pytest.mark.parametrize("kind", ["two classes", "strata", "weights", "ordered"])
def test_calibrated_spread_covers(kind):
    """Null coefficients of 40 data sets, two each, at gamma and at 5 times it: 9 in 10, within 3 binomial errors."""
    rng, inside = np.random.default_rng(1), []
    for _ in range(40):
        X, pairs, _ = directions(rng, 200, 4, kind)
        size, start = row_shares(pairs).size, None
        for gamma in (1.0 * size, 5.0 * size):
            start = fit(linear_gaussian_problem(X, pairs, gamma=gamma), start=start, tolerance=1e-2)
            found = calibrated_posterior(start)
            inside.append(np.abs(found.mean[2:]) < 1.645 * np.sqrt(found.variance[2:]))
    for each in (inside[::2], inside[1::2]):
        assert abs(np.mean(each) - 0.9) < 3 * np.sqrt(0.09 / 80)


def test_calibrated_spread_counts_groups():
    """Rows that are repeated four times say nothing new: with groups the spread is that of the rows once."""
    rng = np.random.default_rng(2)
    X, pairs, _ = directions(rng, 150, 3)
    positive = np.zeros(150, dtype=bool)
    positive[pairs.blocks[0].positive] = True
    once = fit(linear_gaussian_problem(X, positive, gamma=300.0))
    four = fit(linear_gaussian_problem(np.repeat(X, 4, axis=0), np.repeat(positive, 4), gamma=300.0))
    sd = [
        np.sqrt(each.variance)
        for each in (
            calibrated_posterior(once),
            calibrated_posterior(four, np.repeat(np.arange(150), 4)),
            calibrated_posterior(four),
        )
    ]
    np.testing.assert_allclose(sd[1], sd[0], rtol=0.02)
    assert (sd[2] < 0.7 * sd[0]).all()


def test_what_cannot_be_calibrated():
    X = np.random.default_rng(3).normal(size=(20, 12))
    with pytest.raises(ValueError, match="there are 20 for 12"):
        calibrated_posterior(fit(linear_gaussian_problem(X, X[:, 0] > 0.0, gamma=5.0)))


def test_an_approximation_is_calibrated():
    rng = np.random.default_rng(4)
    X, pairs, _ = directions(rng, 200, 3)
    y = np.isin(np.arange(200), pairs.blocks[0].positive)
    with pm.Model():
        theta = pm.Normal("theta", size=3)
        pac.AUCPotential("auc", X @ theta, y, gamma=2000.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    wide = approx.calibrated()
    np.testing.assert_array_equal(wide.posterior.mean, calibrated_posterior(approx.fit).mean)
    assert wide.posterior.variance[2] > 2.0 * approx.posterior.variance[2]
    drawn = wide.sample(4000, random_seed=1)["posterior"]["theta"].values[0]
    np.testing.assert_allclose(np.cov(drawn.T), wide.posterior.covariance, atol=0.1 * wide.posterior.variance.max())
    assert wide.mean_risk.value == pytest.approx(float(np.mean(approx.fit.problem.risk(drawn))), abs=0.002)
    assert pac.certificate(wide).divergence == pytest.approx(wide.posterior.divergence_from_prior)
    with pytest.raises(ValueError, match="not defined after calibrated"):
        wide.leave_out()


def test_a_spread_under_another_prior_is_refused():
    rng = np.random.default_rng(5)
    X, pairs, _ = directions(rng, 60, 2)
    y = np.isin(np.arange(60), pairs.blocks[0].positive)
    with pm.Model():
        theta = pm.Laplace("theta", 0.0, 1.0, size=2)
        pac.AUCPotential("auc", X @ theta, y, gamma=20.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    with pytest.raises(ValueError, match="is for Gaussian priors"):
        approx.calibrated()


# -- pieces ----------------------------------------------------------------------------------------------------------


def test_draws_of_the_distance_between_directions():
    """T(theta) = min over c >= 0 of (c theta - m)' V^-1 (c theta - m), by a search over c."""
    root = np.random.default_rng(1).normal(size=(3, 3))
    q = natural_gaussian(root @ root.T + np.eye(3), np.array([2.0, -1.0, 0.5]))
    found = _of_draws(q, np.random.default_rng(2))
    assert found.shape == (4000,)
    white, mean = np.random.default_rng(2).standard_normal((4000, 3)), q.factor.T @ q.mean
    for k in range(5):
        draw = mean + white[k]
        best = minimize_scalar(
            lambda c, draw=draw: np.sum((c * draw - mean) ** 2), bounds=(0.0, 50.0), options={"xatol": 1e-9}
        )
        assert found[k] == pytest.approx(best.fun, abs=1e-5)


def paths(*steps):
    return [SimpleNamespace(gamma=gamma, ratio=ratio) for gamma, ratio in steps]


def test_the_next_gamma():
    assert _next(paths((10.0, 2.0))) == pytest.approx(5.0)
    assert _next(paths((10.0, 20.0))) == pytest.approx(10.0 / 4.0)  # a step is a factor of 4 at most,
    assert _next(paths((10.0, 0.01))) == pytest.approx(40.0)  # either way
    # ratio = gamma^2 / 25: the secant ends at 5
    assert _next(paths((20.0, 16.0), (10.0, 4.0))) == pytest.approx(5.0)
    assert _next(paths((10.0, 3.0), (10.0 * np.e, 3.0 * np.exp(0.19)))) == pytest.approx(
        10.0 * np.e / (3.0 * np.exp(0.19))
    )  # too flat,
    assert _next(paths((10.0, 1.5), (10.0 * np.exp(0.1), 1.5 * np.exp(0.51)))) == pytest.approx(
        10.0 * np.exp(0.1) / (1.5 * np.exp(0.51))
    )  # or too steep for a secant


def test_a_search_that_does_not_settle_says_so(monkeypatch):
    """It ends after twelve fits, each from the one before, and no gamma is beyond the number of pairs."""
    problem, seen = simulated(3, n=30), []
    monkeypatch.setattr(coverage, "sandwich", lambda fitted, level: Sandwich(fitted.problem.gamma, 0.5, np.ones(2)))
    monkeypatch.setattr(coverage, "MOST_FITS", 6)
    with pytest.warns(ConvergenceWarning, match=r"did not converge in 6 fits: .* should be 0.50 times as large"):
        found = coverage_gamma(problem, n_jobs=1, callback=seen.append)
    assert seen == [1, 2, 3, 4, 5, 6]
    assert not found.settled
    gammas = [each.gamma for each in found.path]
    positives = problem.pairs.blocks[0].positive.size
    assert gammas[0] == pytest.approx(default_gamma(positives, 30 - positives))
    np.testing.assert_allclose(gammas[1:], np.minimum(problem.pairs.n_pairs, 2.0 * np.array(gammas[:-1])))
    assert gammas[-1] == problem.pairs.n_pairs
    assert gammas[-1] == found.fit.problem.gamma
    assert [each.problem.gamma for each in found.fits] == gammas
    assert found.fits[-1] is found.fit


def test_rows_that_all_score_alike_have_no_direction():
    problem = simulated(3, n=30)
    flat = linear_gaussian_problem(np.zeros((30, 3)) + 1.0, problem.pairs, gamma=10.0)
    with pytest.raises(ValueError, match="no direction to calibrate"):
        sandwich(fit(flat, n_jobs=1))


@pytest.mark.parametrize("kind", ["two classes", "strata", "weights", "ordered"])
def test_the_smoothed_risk_by_differences(kind, monkeypatch):
    """The gradient of a pair is in the shares of both of its rows; for every kind of pairs, in blocks however small."""
    rng = np.random.default_rng(3)
    X, pairs, _ = directions(rng, 30, 3, kind)
    root = rng.normal(size=(3, 3))
    covariance, at = 0.1 * (root @ root.T + np.eye(3)), rng.normal(size=3)

    def smoothed(theta, row=None):
        """The risk; or what pairs of a ``row`` add to it."""
        total = 0.0
        for block in pairs.blocks:
            x = X[block.positive][:, None] - X[block.negative]
            sd = np.sqrt(np.einsum("ijk,kl,ijl->ij", x, covariance, x))
            weight = block.row_weights[:, None] * block.column_weights
            if row is not None:
                weight = weight * ((block.positive == row)[:, None] | (block.negative == row))
            total += np.sum(weight * ndtr(-(x @ theta) / sd))
        return total / pairs.total_weight

    share, _, hessian, squares = _smoothed(X, X @ at, pairs, covariance)
    step = 1e-4
    for row in (0, 7, 29):
        slope = [(smoothed(at + h, row) - smoothed(at - h, row)) / (2.0 * step) for h in step * np.eye(3)]
        np.testing.assert_allclose(-share[row], slope, rtol=1e-5, atol=1e-10)
    monkeypatch.setattr(numerics, "NUMBERS_AT_ONCE", 1)
    again = _smoothed(X, X @ at, pairs, covariance)
    np.testing.assert_allclose(again.share, share, atol=1e-14)
    np.testing.assert_allclose(again.hessian, hessian, atol=1e-14)
    np.testing.assert_allclose(again.squares, squares, atol=1e-14)
    np.testing.assert_allclose(squares, squares_of(X, X @ at, pairs, covariance), atol=1e-12)
    seconds = [
        [
            (smoothed(at + a + b) - smoothed(at + a - b) - smoothed(at - a + b) + smoothed(at - a - b))
            / (4.0 * step**2)
            for a in step * np.eye(3)
        ]
        for b in step * np.eye(3)
    ]
    np.testing.assert_allclose(hessian, seconds, atol=1e-5 * np.abs(hessian).max() + 1e-6)


def test_shares_of_rows_less_those_of_their_kind():
    """What a row has beyond its part, by weight, of what its kind has; with n / (n - 1), or summed within groups."""
    y = np.array([1, 1, 1, 0, 0, 0, 0], dtype=bool)
    weights = np.array([1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 3.0])
    pairs = bipartite(y).times(weights)
    share = np.random.default_rng(1).normal(size=(7, 2))
    expected = np.empty((7, 2))
    for kind in (y, ~y):
        part = pairs.observation_weight[kind] / pairs.observation_weight[kind].sum()
        expected[kind] = share[kind] - part[:, None] * share[kind].sum(axis=0)
    found = _unit_shares(share, pairs, None)
    np.testing.assert_allclose(found, expected * np.sqrt(np.where(y, 3.0 / 2.0, 4.0 / 3.0))[:, None])
    codes = np.array([0, 0, 1, 1, 2, 2, 2])
    summed = np.array([expected[codes == k].sum(axis=0) for k in range(3)])
    np.testing.assert_allclose(_unit_shares(share, pairs, codes), np.sqrt(1.5) * summed)
    alone = np.array([1, 0, 0], dtype=bool)  # one of its kind: there is nothing to compare it with
    np.testing.assert_allclose(_unit_shares(share[:3], bipartite(alone), None)[0], share[0])


def squares_of(X, score, pairs, covariance):
    """Sum over pairs of the outer products of the gradients of weight Phi(-mu / sd), one by one."""
    found = 0.0
    for block in pairs.blocks:
        for i, a in zip(block.positive, block.row_weights, strict=True):
            for j, b in zip(block.negative, block.column_weights, strict=True):
                x = X[i] - X[j]
                sd = np.sqrt(x @ covariance @ x)
                gradient = a * b / pairs.total_weight * norm.pdf((score[i] - score[j]) / sd) / sd * x
                found = found + np.outer(gradient, gradient)
    return found


def sandwich_of(problem, q, gamma):
    """The calibrated covariance by its definition, across the mean: the sandwich, pairs one by one, and the bias."""
    basis = linalg.null_space(q.mean[None])
    rows, score = problem.X @ basis, problem.X @ q.mean
    own = basis.T @ q.covariance @ basis
    smoothing = own
    for _ in range(5):
        last = smoothing
        share, _, hessian, _ = _smoothed(rows, score, problem.pairs, last)
        inverse = np.linalg.inv(hessian + np.eye(2) / gamma)
        moved = _unit_shares(share, problem.pairs, None) @ inverse
        spread = moved.T @ moved
        smoothing = own + spread
    gradient = [_smoothed(rows, score, problem.pairs, each).share.sum(axis=0) / 2.0 for each in (spread, own)]
    bias = inverse @ (gradient[0] - gradient[1])
    noise = [squares_of(rows, score, problem.pairs, each) for each in (own, last)]
    spread = spread + inverse @ (noise[0] - noise[1]) @ inverse + np.outer(bias, bias)
    return basis @ spread @ basis.T


def test_the_calibrated_covariance_is_the_sandwich():
    """Across the mean; along it the length hardly varies."""
    problem = replace(simulated(4, n=200), gamma=100.0)
    fitted = fit(problem, n_jobs=1)
    found, q = calibrated_posterior(fitted), fitted.posterior.natural
    np.testing.assert_allclose(found.mean, fitted.posterior.mean, rtol=1e-9)
    across = np.eye(3) - np.outer(q.mean, q.mean) / (q.mean @ q.mean)
    np.testing.assert_allclose(
        across @ found.covariance @ across, sandwich_of(problem, q, 100.0), rtol=1e-6, atol=1e-12
    )
    along = q.mean @ found.covariance @ q.mean / (q.mean @ q.mean)
    assert along == pytest.approx(np.linalg.eigvalsh(sandwich_of(problem, q, 100.0))[1], rel=1e-6)


def test_some_rows_tell_the_spread_of_all(monkeypatch):
    """In proportion to what they are worth; of half of the rows the logarithm of the variance has an error of 0.3."""
    ratios = []
    for seed in range(10):
        fitted = fit(replace(simulated(seed, n=200), gamma=100.0), n_jobs=1)
        monkeypatch.setattr(coverage, "MANY_ROWS", 200)
        every = calibrated_posterior(fitted).variance
        monkeypatch.setattr(coverage, "MANY_ROWS", 100)
        ratios.append(np.log(calibrated_posterior(fitted).variance / every))
    ratios = np.array(ratios)
    assert np.std(ratios) > 0.01
    assert (np.abs(ratios.mean(axis=0)) < 3.0 * ratios.std(axis=0, ddof=1) / np.sqrt(10)).all()
    assert (ratios.std(axis=0) < 0.6).all()


def test_one_coefficient_keeps_its_posterior():
    fitted = fit(linear_gaussian_problem(np.arange(20.0)[:, None], np.arange(20) % 3 > 0, gamma=5.0), n_jobs=1)
    assert calibrated_posterior(fitted) is fitted.posterior


def test_two_units_for_each_coefficient():
    """Rows, or groups; with as many as that it works."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(24, 4))
    fitted = fit(linear_gaussian_problem(X, np.arange(24) % 2, gamma=5.0), n_jobs=1)
    assert np.isfinite(calibrated_posterior(fitted, np.arange(24) % 8).variance).all()
    with pytest.raises(ValueError, match="there are 7 for 4"):
        calibrated_posterior(fitted, np.arange(24) % 7)


def test_some_of_many_rows_calibrate_like_all_of_them(monkeypatch):
    """Four data sets of 2000 rows, by all rows and by 200 of them: standard deviations are alike on average."""
    logs = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(2000, 3))
        fitted = fit(linear_gaussian_problem(X, X[:, 0] + rng.logistic(size=2000) > 0, 2000.0), accuracy="path")
        for rows, sign in ((2000, -1.0), (200, 1.0)):
            monkeypatch.setattr(coverage, "MANY_ROWS", rows)
            logs.append(sign * np.log(calibrated_posterior(fitted).variance).mean() / 2.0)
    assert abs(np.sum(logs) / 4.0) < 0.3
