"""The sandwich against its definition by simulation, and gamma against the equation it solves."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from scipy.special import ndtr

import pymc_pacauc as pac
from pymc_pacauc.comparison.kinds import ordered_classes, stratified
from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.tune.coverage import _row_gradients, calibrated_posterior, coverage_gamma, sandwich


def simulated(seed, n=150):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return linear_gaussian_problem(X, X @ [1.0, -0.5, 0.0] + rng.logistic(size=n) > 0.3, 150.0)


def test_gradients_are_those_of_the_smoothed_risk():
    """Without the leverage, their mean over the rows of a class is that of mean Phi(-mu / sd), by differences."""
    problem = simulated(1, n=40)
    tiny = replace(problem, gamma=1e-9)  # no leverage
    q = fit(problem).posterior.natural
    positive = np.zeros(40, dtype=bool)
    positive[problem.pairs.blocks[0].positive] = True
    rows = _row_gradients(tiny, positive, q.mean, q.root)

    def smoothed(mean):
        design = problem.scores.reduced.design
        x = design[positive][:, None, :] - design[~positive]
        return ndtr(-(x @ mean) / np.linalg.norm(x @ q.root, axis=-1)).mean()

    step = 1e-6 * np.eye(3)
    gradient = [(smoothed(q.mean + h) - smoothed(q.mean - h)) / 2e-6 for h in step]
    for rows_of_class in (rows[positive], rows[~positive]):
        np.testing.assert_allclose(-rows_of_class.mean(axis=0), gradient, rtol=1e-5, atol=1e-8)


def test_gradients_grow_by_half_the_leverage():
    """HC2: the leverage of a row is the trace of V times the Hessian of gamma times its pairs' share of the risk."""
    problem = simulated(1, n=20)
    q = fit(problem).posterior.natural
    positive = np.zeros(20, dtype=bool)
    positive[problem.pairs.blocks[0].positive] = True
    design, step = problem.scores.reduced.design, 1e-3
    plain = _row_gradients(replace(problem, gamma=1e-9), positive, q.mean, q.root)
    found = _row_gradients(problem, positive, q.mean, q.root)
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
    assert sandwich(fit(replace(choice.fit.problem, gamma=4 * choice.gamma))).ratio > 2


def test_both_classes_vary():
    """Each adds the variance of its own mean gradient, with 25 positives among 150 rows."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(150, 3)) * np.where(np.arange(150) < 25, 0.5, 2.0)[:, None]
    fitted = fit(linear_gaussian_problem(X, np.arange(150) < 25, 60.0), n_jobs=1)
    q, positive = fitted.posterior.natural, np.arange(150) < 25
    rows = _row_gradients(fitted.problem, positive, q.mean, q.root)
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
    assert found.best == pytest.approx(expected.gamma, rel=1e-6)
    assert found.best == pytest.approx(float(gamma.get_value()))
    assert found.refit.fitted_to.gamma == found.best
    assert "coverage_ratio" in found.table
    assert "too small" in repr(found)
    with pytest.raises(ValueError, match="sums of EP"):
        pac.select_gamma(model, criterion="coverage", method="vb")


def test_refusals():
    X = np.random.default_rng(1).normal(size=(30, 2))
    y = X[:, 0] > 0
    with pytest.raises(ValueError, match="centred at zero"):
        coverage_gamma(linear_gaussian_problem(X, y, 1.0, prior_mean=1.0))
    with pytest.raises(ValueError, match="its sign"):
        coverage_gamma(linear_gaussian_problem(X[:, :1], y, 1.0))
    with pytest.raises(ValueError, match="level"):
        coverage_gamma(linear_gaussian_problem(X, y, 1.0), level=1.0)


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
    with pytest.raises(ValueError, match="no sites"):
        wide.leave_out()


def test_a_spread_under_another_prior_is_refused():
    rng = np.random.default_rng(5)
    X, pairs, _ = directions(rng, 60, 2)
    y = np.isin(np.arange(60), pairs.blocks[0].positive)
    with pm.Model():
        theta = pm.Laplace("theta", 0.0, 1.0, size=2)
        pac.AUCPotential("auc", X @ theta, y, gamma=20.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    with pytest.raises(ValueError, match="calibrated under Gaussian priors"):
        approx.calibrated()
