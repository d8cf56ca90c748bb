"""The sandwich against its definition by simulation, and gamma against the equation it solves."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from scipy.special import ndtr

import pymc_pacauc as pac
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.tune.coverage import _row_gradients, coverage_gamma, sandwich


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
