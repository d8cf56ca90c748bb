"""EP in the leading directions of a smooth process, beside EP in all of them."""

import signal
from dataclasses import replace

import numpy as np
import pytest

from pymc_pacauc import fitting
from pymc_pacauc.comparison.kinds import ordered_classes
from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.ep import gaussian
from pymc_pacauc.ep import process as leading
from pymc_pacauc.ep.fit import fit
from pymc_pacauc.ep.loop import ConvergenceWarning, sweep_sums
from pymc_pacauc.ep.plan import choose_plan
from pymc_pacauc.ep.process import leading_problem
from pymc_pacauc.interrupt import returns_early
from pymc_pacauc.problem.problem import linear_gaussian_problem

N = 260


def process(d=2, n=N, levels=2, seed=0):
    """A Cholesky factor of a smooth kernel, and labels."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    score = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.5 * rng.logistic(size=n)
    y = np.searchsorted(np.quantile(score, np.arange(1, levels) / levels), score)
    square = np.sum((X[:, None] - X) ** 2, axis=-1)
    return np.linalg.cholesky(np.exp(-0.5 * square / 1.4) + 1e-6 * np.eye(n)), y


def with_offset():
    design, y = process()
    return linear_gaussian_problem(design, y, float(N), offset=np.random.default_rng(1).standard_normal(N))


def weighted():
    design, y = process()
    pairs = bipartite(y).times(np.random.default_rng(3).uniform(0.5, 2.0, size=N))
    return linear_gaussian_problem(design, pairs, float(N))


PROBLEMS = {
    "two covariates": lambda: linear_gaussian_problem(*process(), float(N)),
    "three covariates": lambda: linear_gaussian_problem(*process(d=3, n=500), 500.0),
    "offset": with_offset,
    "weights": weighted,
    "three classes": lambda: linear_gaussian_problem(
        process()[0], ordered_classes(process(levels=3)[1]), float(N), ties="strict"
    ),
}


def in_all(problem, **options):
    """A fit in all directions at once."""
    return fit(problem, replace(choose_plan(problem, **options), leading=0))


@pytest.mark.parametrize("case", PROBLEMS)
@pytest.mark.parametrize("method", ["ep", "vb"])
def test_the_same_as_in_all_directions(method, case):
    problem = PROBLEMS[case]()
    plan = choose_plan(problem, method=method)
    found = fit(problem, plan)
    assert 0 < plan.leading < 0.8 * found.problem.scores.reduced.dimension
    of_leading = found.history[-1]["log_evidence"]
    expected = in_all(problem, method=method, tolerance=1e-8)
    assert found.converged
    assert expected.converged
    # What the other directions do to log Z is seen, and accounted for but for a twentieth or 1e-5.
    gain = abs(expected.log_evidence - of_leading)
    assert gain > 2e-5
    assert abs(found.log_evidence - expected.log_evidence) < max(0.05 * gain, 1e-5)
    assert found.expected_risk == pytest.approx(expected.expected_risk, abs=1e-5)
    assert found.tied_pairs == expected.tied_pairs
    rows = problem.scores.whitened_design
    mean, variance = found.posterior.moments_of(rows, variances=True)
    full_mean, full_variance = expected.posterior.moments_of(rows, variances=True)
    assert (np.abs(mean - full_mean) / np.sqrt(full_variance)).max() < 2e-3
    np.testing.assert_allclose(variance, full_variance, rtol=1e-3)


@pytest.mark.parametrize("method", ["ep", "vb"])
def test_risk_and_bound_are_those_of_the_posterior(method):
    """A certificate relies on it."""
    problem = PROBLEMS["two covariates"]()
    found = fit(problem, choose_plan(problem, method=method))
    sums = sweep_sums(found.problem, found.posterior.natural, problem.pairs, found.table)
    assert found.expected_risk == pytest.approx(sums.wrong / problem.pairs.total_weight, abs=1e-12)
    if method == "vb":
        bound = -problem.gamma * found.expected_risk - found.divergence
        assert found.log_evidence == pytest.approx(bound, abs=1e-9)


def test_more_digits_take_more_directions():
    problem = PROBLEMS["two covariates"]()
    sizes = [choose_plan(problem, tolerance=tolerance).leading for tolerance in (1e-3, 1e-6, 1e-7)]
    assert 0 < sizes[0] == sizes[1] < sizes[2]
    assert choose_plan(problem, tolerance=1e-10).leading == 0
    linear = linear_gaussian_problem(np.random.default_rng(0).standard_normal((80, 3)), np.arange(80) % 2, 80.0)
    assert choose_plan(linear).leading == 0
    problem, k = problem.in_coordinates("features"), sizes[1]
    cut = leading_problem(problem, k).scores
    np.testing.assert_array_equal(cut.reduced.design, problem.scores.reduced.design[:, :k])
    np.testing.assert_array_equal(cut.reduced.pivots, problem.scores.reduced.pivots[:k])
    assert cut.distinct is problem.scores.distinct


@pytest.mark.slow
def test_starts_and_ends():
    problem = PROBLEMS["two covariates"]()
    found = fit(problem)
    assert found.posterior.natural.mean.size == found.problem.scores.reduced.dimension
    again = fitting.fit(problem, start=found)
    assert again.sweeps <= 2
    assert again.log_evidence == pytest.approx(found.log_evidence, abs=2e-6)
    with pytest.warns(ConvergenceWarning, match="did not converge in 3 sweeps"):
        assert fitting.fit(problem, max_sweeps=3).sweeps == 3

    def stop(row):
        if row["sweep"] == 4:
            signal.raise_signal(signal.SIGINT)

    with pytest.warns(ConvergenceWarning, match="interrupted after 4 sweeps"):
        interrupted = returns_early(fit)(problem, callback=stop)
    assert fitting.fit(problem, start=interrupted).log_evidence == pytest.approx(found.log_evidence, abs=2e-6)
    assert fit(problem, n_jobs=2).log_evidence == found.log_evidence


def test_sites_that_are_no_density_in_all_directions(monkeypatch):
    problem = PROBLEMS["two covariates"]()
    with monkeypatch.context() as during:
        during.setattr(gaussian, "all_directions", lambda *arguments: None)
        found = fit(problem)
    assert found.history == in_all(problem).history

    def no_density(*arguments):
        with monkeypatch.context() as during:
            during.setattr(leading, "natural_gaussian", lambda precision, shift: None)
            return leading.all_directions(*arguments)

    monkeypatch.setattr(gaussian, "all_directions", no_density)
    assert fit(problem).log_evidence == found.log_evidence
