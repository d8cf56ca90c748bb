"""Processes: EP in their features, beside EP in all coefficients."""

import signal
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from pymc_pacauc.comparison.kinds import ordered_classes
from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.ep import posterior as natural
from pymc_pacauc.ep.fit import fit
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.ep.plan import choose_plan
from pymc_pacauc.ep.sweep import sweep_sums
from pymc_pacauc.interrupt import returns_early
from pymc_pacauc.problem.problem import linear_gaussian_problem

N = 170


def process(n=N, d=6, jitter=1e-6, copies=0, seed=0, levels=2):
    """A Cholesky factor of a squared exponential kernel of so many covariates that it has full rank, and labels."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    if copies:
        X[-copies:] = X[:copies]
    score = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.5 * rng.logistic(size=n)
    y = np.searchsorted(np.quantile(score, np.arange(1, levels) / levels), score)
    square = np.sum((X[:, None] - X) ** 2, axis=-1)
    return np.linalg.cholesky(np.exp(-0.5 * square / d) + jitter * np.eye(n)), y


smooth = partial(process, d=2)


def fitted(problem, coordinates="features", **options):
    plan = choose_plan(problem, **options)
    assert plan.coordinates == "features"
    return fit(problem, replace(plan, coordinates=coordinates))


def weighted(y):
    return bipartite(y).times(np.random.default_rng(3).uniform(0.5, 2.0, size=len(y)))


PAIRS = {
    "two classes": process,
    "three classes": lambda: (process()[0], ordered_classes(process(levels=3)[1])),
    "weights": lambda: (process()[0], weighted(process()[1])),
    "copies": lambda: process(copies=20, jitter=1e-3),
}


def assert_same(found, expected):
    sd = np.sqrt(expected.posterior.variance)
    assert found.converged
    assert expected.converged
    assert found.log_evidence == pytest.approx(expected.log_evidence, abs=1e-6)
    assert found.expected_risk == pytest.approx(expected.expected_risk, abs=1e-6)
    assert found.divergence == pytest.approx(expected.divergence, rel=1e-5)
    assert found.tied_pairs == expected.tied_pairs
    np.testing.assert_allclose(found.posterior.mean, expected.posterior.mean, atol=1e-6 * sd.max())
    np.testing.assert_allclose(np.sqrt(found.posterior.variance), sd, rtol=1e-6)


@pytest.mark.parametrize("case", PAIRS)
def test_the_same_as_in_coefficients(case):
    design, y = PAIRS[case]()
    problem = linear_gaussian_problem(design, y, float(N))
    found = fitted(problem, tolerance=1e-7)
    expected = fitted(problem, "coefficients", tolerance=1e-9)
    assert_same(found, expected)


@pytest.mark.parametrize("kind", ["fractional", "variational", "offset", "variational, offset", "more coefficients"])
def test_other_problems(kind):
    design, y = process()
    rng = np.random.default_rng(2)
    offset = rng.standard_normal(N) if "offset" in kind else 0.0
    if kind == "more coefficients":
        design = np.column_stack([design, 0.1 * rng.standard_normal((N, 40))])
    problem = linear_gaussian_problem(design, y, float(N), offset=offset)
    options = {"method": "vb"} if "variational" in kind else {"power": 0.5 if kind == "fractional" else 1.0}
    assert_same(fitted(problem, tolerance=1e-7, **options), fitted(problem, "coefficients", tolerance=1e-9, **options))


SMOOTH = {
    "two classes": lambda: (smooth()[0], bipartite(smooth()[1])),
    "weights": lambda: (smooth()[0], weighted(smooth()[1])),
    "three classes": lambda: (smooth()[0], ordered_classes(smooth(levels=3)[1])),
}


@pytest.mark.parametrize("case", SMOOTH)
@pytest.mark.parametrize("method", ["ep", "vb"])
def test_few_directions_of_a_smooth_process(method, case):
    """As far from the fit in all coefficients as the features and their tolerance may be."""
    design, pairs = SMOOTH[case]()
    offset = np.random.default_rng(1).standard_normal(N) if case == "weights" else 0.0
    problem = linear_gaussian_problem(design, pairs, float(N), offset=offset)
    found = fit(problem, choose_plan(problem, method=method))
    assert found.problem.scores.reduced.dimension < 0.6 * N
    expected = fitted(problem, "coefficients", method=method, tolerance=1e-8)
    assert found.converged
    assert found.log_evidence == pytest.approx(expected.log_evidence, abs=2e-3)
    assert found.expected_risk == pytest.approx(expected.expected_risk, abs=1e-5)
    assert found.tied_pairs == expected.tied_pairs
    rows = problem.scores.whitened_design
    mean, variance = found.posterior.moments_of(rows, variances=True)
    full_mean, full_variance = expected.posterior.moments_of(rows, variances=True)
    assert (np.abs(mean - full_mean) / np.sqrt(full_variance)).max() < 3e-3
    np.testing.assert_allclose(variance, full_variance, rtol=2e-3)


@pytest.mark.parametrize("method", ["ep", "vb"])
def test_risk_and_bound_are_those_of_the_posterior(method):
    """A certificate relies on it."""
    problem = linear_gaussian_problem(*smooth(), float(N))
    found = fit(problem, choose_plan(problem, method=method))
    sums = sweep_sums(found.problem, found.posterior.natural, problem.pairs, found.table)
    assert found.expected_risk == pytest.approx(sums.wrong / problem.pairs.total_weight, abs=1e-12)
    if method == "vb":
        bound = -problem.gamma * found.expected_risk - found.divergence
        assert found.log_evidence == pytest.approx(bound, abs=1e-9)


@pytest.mark.slow
def test_starts_and_ends():
    design, y = process()
    problem = linear_gaussian_problem(design, y, float(N))
    found = fitted(problem)
    assert fitted(problem, start=found).sweeps <= 2
    nearby = linear_gaussian_problem(process(jitter=2e-6)[0], y, 1.1 * N)
    assert_same(fitted(nearby, start=found, tolerance=1e-7), fitted(nearby, tolerance=1e-8))
    with pytest.warns(ConvergenceWarning, match="did not converge in 3 sweeps"):
        unfinished = fitted(problem, max_sweeps=3)
    assert unfinished.sweeps == 3

    def stop(row):
        if row["sweep"] == 4:
            signal.raise_signal(signal.SIGINT)

    with pytest.warns(ConvergenceWarning, match="interrupted after 4 sweeps"):
        interrupted = returns_early(fit)(problem, callback=stop)
    risk = problem.risk(interrupted.posterior.draw(20_000, np.random.default_rng(1)))
    assert abs(risk.mean() - interrupted.expected_risk) < 4 * risk.std() / np.sqrt(risk.size)
    expected = fitted(problem, "coefficients", tolerance=1e-8)
    assert_same(fitted(problem, "coefficients", start=interrupted, tolerance=1e-7), expected)


@pytest.mark.parametrize("k", [1, 127, 128, 301])
def test_the_inverse_of_a_triangle(k):
    rng = np.random.default_rng(k)
    A = rng.standard_normal((k, k))
    q = natural.natural_gaussian(A @ A.T + np.eye(k), rng.standard_normal(k))
    np.testing.assert_allclose(q.root @ q.factor.T, np.eye(k), atol=1e-10)
    assert not np.tril(q.root, -1).any()
