"""Processes of full rank: EP in the scores, beside EP in coefficients."""

import signal
from dataclasses import replace

import numpy as np
import pytest

from pymc_pacauc.comparison.kinds import ordered_classes
from pymc_pacauc.comparison.pairs import Block, Pairs, bipartite
from pymc_pacauc.ep import gaussian
from pymc_pacauc.ep import posterior as natural
from pymc_pacauc.ep import process as score_space
from pymc_pacauc.ep.fit import fit
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.ep.plan import choose_plan
from pymc_pacauc.ep.sites import site_table
from pymc_pacauc.ep.sweep import ScoreMoments, sum_sites
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


def fitted(problem, coordinates="scores", **options):
    plan = choose_plan(problem, **options)
    assert plan.coordinates == "scores"
    return fit(problem, replace(plan, coordinates=coordinates))


def weighted(y):
    return bipartite(y).times(np.random.default_rng(3).uniform(0.5, 2.0, size=len(y)))


PAIRS = {
    "two classes": process,
    "three classes": lambda: (process()[0], ordered_classes(process(levels=3)[1])),
    "weights": lambda: (process()[0], weighted(process()[1])),
    "copies": lambda: process(copies=20, jitter=5e-7),
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
    assert found.history[-1]["change"] != fitted(problem, "coefficients", tolerance=1e-7).history[-1]["change"]
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


@pytest.mark.parametrize("ties", ["half", "strict"])
def test_the_sums_of_all_sites(ties):
    """Near pairs and equal ones among them, and a block whose columns come after its rows."""
    rng = np.random.default_rng(5)
    n, k = 90, 4
    first, second, third = np.split(rng.permutation(n), 3)
    pairs = Pairs(n, (Block(first, second), Block(second, third, weight=0.5)))
    offset = 0.1 * rng.standard_normal(n)
    offset -= offset.mean()
    problem = linear_gaussian_problem(np.eye(n), pairs, 60.0, offset=offset, ties=ties)
    root = rng.standard_normal((n, k))
    root[second[:5]] = root[first[:5]] + 1e-7 * rng.standard_normal((5, k))
    root[third[:3]] = root[second[10:13]]
    moments = ScoreMoments(rng.standard_normal(n), root, np.einsum("ij,ij->i", root, root))
    table = site_table(problem.gamma_per_pair)
    order = score_space._order(problem)
    sums_of = score_space._sums(problem, table, np.argsort(order), offset[order], map)
    found = sums_of(moments.mean[order], root[order], moments.square[order], None)
    expected = sum_sites(np.eye(n), offset, moments, pairs, table, tie_cost=problem.tie_cost)
    scale = np.abs(expected.precision).max()
    np.testing.assert_allclose(found.precision, np.tril(expected.precision[np.ix_(order, order)]), atol=1e-12 * scale)
    np.testing.assert_allclose(found.shift, expected.shift[order], atol=1e-12 * np.abs(expected.shift).max())
    assert found.log_constant == pytest.approx(expected.log_constant, rel=1e-9)
    assert found.wrong == pytest.approx(expected.wrong)
    assert found.tied == expected.tied
    low = np.tril((root @ root.T)[np.ix_(order, order)])
    again = sums_of(moments.mean[order], root[order], moments.square[order], low)
    np.testing.assert_allclose(again.precision, found.precision, atol=1e-9 * scale)


@pytest.mark.parametrize(("d", "jitter"), [(2, 1e-11), (3, 1e-12)])
def test_a_matrix_without_an_inverse(d, jitter):
    design, y = process(d=d, jitter=jitter)
    problem = linear_gaussian_problem(design, y, float(N))
    plan = replace(choose_plan(problem), leading=0)
    assert plan.coordinates == "features"
    found = fit(problem, replace(plan, coordinates="scores", tolerance=1e-7))
    expected = fit(problem, replace(plan, coordinates="coefficients", tolerance=1e-9))
    assert found.history[-1]["change"] != expected.history[-1]["change"]
    assert found.log_evidence == pytest.approx(expected.log_evidence, abs=1e-8)
    np.testing.assert_allclose(found.posterior.mean, expected.posterior.mean, atol=1e-5)


def test_what_cannot_be_inverted_is_left_to_coefficients(monkeypatch):
    problem = linear_gaussian_problem(*process(), float(N))
    monkeypatch.setattr(gaussian, "score_fixed_point", lambda *arguments: None)
    found, expected = fitted(problem), fitted(problem, "coefficients")
    assert found.log_evidence == pytest.approx(expected.log_evidence, abs=1e-9)
    assert found.sweeps == expected.sweeps


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


def test_a_loop_that_ends_too_early_goes_on_in_coefficients(monkeypatch):
    problem = linear_gaussian_problem(*process(), float(N))
    score_fixed_point = gaussian.score_fixed_point

    def three_sweeps(problem, table, moments, tolerance, max_sweeps, *rest):
        return score_fixed_point(problem, table, moments, tolerance, 3, *rest)

    monkeypatch.setattr(gaussian, "score_fixed_point", three_sweeps)
    found = fitted(problem, tolerance=1e-7)
    assert [row["sweep"] for row in found.history] == list(range(1, found.sweeps + 1))
    assert found.sweeps > 3
    assert_same(found, fitted(problem, "coefficients", tolerance=1e-8))


@pytest.mark.parametrize("k", [1, 127, 128, 301])
def test_the_inverse_of_a_triangle(k):
    rng = np.random.default_rng(k)
    A = rng.standard_normal((k, k))
    q = natural.natural_gaussian(A @ A.T + np.eye(k), rng.standard_normal(k))
    np.testing.assert_allclose(q.root @ q.factor.T, np.eye(k), atol=1e-10)
    assert not np.tril(q.root, -1).any()
