"""Priors and lengthscales by evidence."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import pymc_pacauc as pac
from pymc_pacauc import fitting
from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.ep.gaussian import carried_over
from pymc_pacauc.ep.plan import Subsample
from pymc_pacauc.problem.kernel_features import COVARIANCES, kernel_features, median_distance
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.tune.evidence import (
    choose_lengthscale,
    choose_prior,
    lengthscale_gradient,
    shrunk_prior,
)

RNG = np.random.default_rng(1)
X = RNG.standard_normal((120, 3))
Y = X[:, 0] ** 2 + np.sin(2 * X[:, 1]) + 0.3 * RNG.standard_normal(120) > 0.7


def evidence(log_scales, kernel, rank):
    features = kernel_features(X, kernel, lengthscale=np.exp(log_scales), rank=rank)
    return features, fitting.fit(linear_gaussian_problem(features.transform(X), Y, 120.0), tolerance=1e-10)


@pytest.mark.parametrize("kernel", COVARIANCES)
@pytest.mark.parametrize("rank", [300, 30])
def test_gradient_against_differences(kernel, rank):
    at, step = np.log([1.0, 1.3, 2.0]), 1e-4
    features, fit = evidence(at, kernel, rank)
    slopes = []
    for direction in np.eye(3):
        ends = [evidence(at + sign * step * direction, kernel, rank)[1].log_evidence for sign in (1.0, -1.0)]
        slopes.append((ends[0] - ends[1]) / (2 * step))
    np.testing.assert_allclose(lengthscale_gradient(features, fit, X), slopes, atol=2e-5)


def test_gradient_of_a_subsample_against_differences():
    """On one subsample, all of whose pairs are looked at."""
    rows = RNG.standard_normal((400, 3))
    compared = bipartite(rows[:, 0] ** 2 + 0.5 * RNG.standard_normal(400) > 0.5)
    at, step, direction = np.log([1.0, 1.3, 2.0]), 1e-4, np.array([0.6, 0.8, -0.3])

    def fitted(log_scales, last=None):
        features = kernel_features(rows, lengthscale=np.exp(log_scales), rank=20)
        problem = linear_gaussian_problem(features.transform(rows), compared, 400.0)
        start = None if last is None else carried_over(last, problem)
        return features, fitting.fit(problem, pairs=Subsample(4), start=start, tolerance=1e-10)

    features, fit = fitted(at, fitted(at)[1])  # to the last digit on the subsample of the start
    assert fit.pairs_used < 0.3 * compared.n_pairs
    ends = [fitted(at + sign * step * direction, fit)[1].log_evidence for sign in (1.0, -1.0)]
    slope = lengthscale_gradient(features, fit, rows) @ direction
    assert slope == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-4)


@pytest.mark.slow
def test_many_pairs_are_subsampled_and_the_choice_is_that_of_all():
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((1500, 3))
    y = rows[:, 0] ** 2 + np.sin(2 * rows[:, 1]) + rng.logistic(size=1500) > 1.0
    options = {"rank": 15, "grid": [0.8, 1.0, 2.0], "max_evaluations": 3}  # at half, EP with all pairs oscillates
    some = choose_lengthscale(rows, y, 1500.0, pairs=Subsample(9.0), **options)
    exact = choose_lengthscale(rows, y, 1500.0, **options)
    assert some.fit.pairs_used < 0.25 * exact.fit.pairs_used
    np.testing.assert_allclose(some.lengthscale, exact.lengthscale, rtol=0.05)
    for found, reference in zip((*some.trace[:3], some.trace[-1]), (*exact.trace[:3], exact.trace[-1]), strict=True):
        assert found["log_evidence"] == pytest.approx(reference["log_evidence"], abs=3.0 * found["sampling_error"])
        assert 0.0 < found["sampling_error"] < 1.0  # the lengthscales of the grid differ by ten and more
        assert reference["sampling_error"] == 0.0


def test_the_maximum_is_one():
    one = choose_lengthscale(X, Y, 120.0)
    assert one.converged
    assert np.unique(one.lengthscale).size == 1
    for step in (-0.2, 0.2):
        beside = evidence(np.log(one.lengthscale) + step, "squared_exponential", 300)[1]
        assert one.log_evidence > beside.log_evidence
    each = choose_lengthscale(X, Y, 120.0, each=True, max_evaluations=40)
    assert each.log_evidence > one.log_evidence + 2.0
    assert each.lengthscale[2] > 5 * each.lengthscale[:2].max()  # the covariate that does not matter
    grid = choose_lengthscale(X, Y, 120.0, grid=[0.5, 1.0], max_evaluations=0)
    assert len(grid.trace) == 3
    assert grid.log_evidence <= one.log_evidence + 1e-6


def test_a_constant_column_has_no_say():
    wide = np.column_stack([X, np.ones(120)])
    found = choose_lengthscale(wide, Y, 120.0, each=True, max_evaluations=5)
    assert np.isfinite(found.lengthscale).all()


def test_bad_input_is_refused_in_words():
    for grid in ([0.0], [1.0, -1.0], [np.nan], [np.inf], [], [[1.0, 2.0]]):
        with pytest.raises(ValueError, match="grid must hold positive"):
            choose_lengthscale(X, Y, 120.0, grid=grid)
    with pytest.raises(ValueError, match="kernel must be one of"):
        choose_lengthscale(X, Y, 120.0, "rbf")
    with pytest.raises(ValueError, match="gamma must be"):
        choose_lengthscale(X, Y, -1.0)
    with pytest.raises(ValueError, match="rows"):
        choose_lengthscale(X, Y[:5], 120.0)


# -- shrinkage -------------------------------------------------------------------------------------------------------


def correlated(n=80):
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(n, 3)) @ np.array([[1.0, 0.9, 0.0], [0.0, 0.3, 0.0], [0.0, 0.0, 2.0]])
    return linear_gaussian_problem(rows, rows[:, 0] - rows[:, 1] + 0.3 * rng.normal(size=n) > 0.0, gamma=1.0)


def test_the_shrinkage_of_highest_evidence_is_chosen():
    """That of a fit with the prior that it is of, at twice the comparison's size."""
    problem, weights = correlated(), np.random.default_rng(5).gamma(2.0, size=80)
    found = choose_prior(problem, weights=weights, n_jobs=1)
    gamma = 2.0 * row_shares(problem.pairs).size
    S = np.cov(problem.X, rowvar=False, bias=True, aweights=weights)
    evidences = {}
    for shrinkage in (0.03, 0.1, 0.3, 1.0):
        covariance = np.linalg.inv((1.0 - shrinkage) * S + shrinkage * np.eye(3))
        at = linear_gaussian_problem(problem.X, problem.pairs, gamma, prior_covariance=covariance)
        evidences[shrinkage] = fitting.fit(at, n_jobs=1).log_evidence
    assert found.number == 4
    assert found.shrinkage == max(evidences, key=evidences.get) < 1.0
    assert np.ptp(list(evidences.values())) > 1.0
    expected = shrunk_prior(problem, found.shrinkage, S).prior.covariance
    np.testing.assert_allclose(found.problem.prior.covariance, expected)
    assert found.problem.tuned_prior
    assert found.problem.gamma == problem.gamma
    assert found.fit.log_evidence == pytest.approx(evidences[found.shrinkage], abs=0.02)
    assert found.fit.problem.gamma == pytest.approx(gamma)


def test_a_shrinkage_whose_fit_does_not_converge_is_not_chosen(monkeypatch):
    """And no fit starts from one; where none converges, coefficients are independent."""
    starts, evidences = [], {0.03: 5.0, 0.1: 1.0, 0.3: 2.0, 1.0: 0.0}
    problem = correlated()
    S = np.cov(problem.X, rowvar=False, bias=True)
    shrinkages = {float(shrunk_prior(problem, each, S).prior.covariance[0, 0]): each for each in evidences}

    def choose(failing):
        def fake(at, method, *, start, **options):
            starts.append(start)
            shrinkage = shrinkages[float(at.prior.covariance[0, 0])]
            return SimpleNamespace(log_evidence=evidences[shrinkage], converged=shrinkage not in failing)

        monkeypatch.setattr(fitting, "fit", fake)
        starts.clear()
        return choose_prior(problem, n_jobs=1)

    found = choose(failing=(0.03,))
    assert found.shrinkage == 0.3
    assert found.fit.log_evidence == 2.0
    assert starts[:2] == [None, None]
    assert starts[2].log_evidence == 1.0
    assert starts[3].log_evidence == 2.0
    none = choose(failing=tuple(evidences))
    assert none.shrinkage == 1.0
    assert none.fit is None


def test_more_columns_than_rows_leave_no_choice():
    rng = np.random.default_rng(6)
    for d, choices in ((20, 4), (21, 1)):
        rows = rng.normal(size=(20, d))
        found = choose_prior(linear_gaussian_problem(rows, np.arange(20) % 2, gamma=1.0), n_jobs=1)
        assert found.number == choices
        assert (found.fit is None) == (choices == 1)
    assert found.shrinkage == 1.0
    assert not found.problem.tuned_prior
    np.testing.assert_array_equal(found.problem.prior.covariance, np.eye(21))


@pytest.mark.parametrize("shrinkage", [0.0, -0.1, 1.1, np.nan, [0.5]])
def test_a_shrinkage_that_is_none(shrinkage):
    with pytest.raises(ValueError, match="shrinkage must be a number in"):
        shrunk_prior(correlated(), shrinkage, np.eye(3))


# -- the search for lengthscales -------------------------------------------------------------------------------------


def test_the_grid_is_of_multiples_of_the_median_distance():
    """First those of the grid, in units of each column where each has its own; then the best of them again."""
    rows = X * [1.0, 10.0, 0.1]
    found = choose_lengthscale(rows, Y, 120.0, grid=[0.5, 2.0], max_evaluations=0, each=True, rank=40)
    units = rows.std(axis=0)
    base = units * median_distance(rows / units)
    scales = [each["lengthscale"] for each in found.trace]
    np.testing.assert_allclose(scales[:2], [0.5 * base, 2.0 * base])
    values = [each["log_evidence"] for each in found.trace]
    np.testing.assert_allclose(scales[2], scales[int(np.argmax(values[:2]))])
    assert found.message == "the best of the grid"
    assert found.converged
    assert found.fit.problem.tuned_prior
    assert found.features.rank <= 40
    assert "3 evaluations)" in repr(found)
    assert f"log_evidence={found.log_evidence:.3f}, {found.features.rank} features" in repr(found)
    assert f"lengthscale {scales[2].min():.3g} to {scales[2].max():.3g}" in repr(found)


def test_the_search_ends_where_the_evidence_is_flat_or_after_so_many():
    ended = choose_lengthscale(X, Y, 120.0, rank=40)
    assert np.abs(lengthscale_gradient(ended.features, ended.fit, X).sum()) < 0.05
    assert len(ended.trace) <= 4 + 30 + 3
    cut = choose_lengthscale(X, Y, 120.0, rank=40, each=True, max_evaluations=2)
    assert not cut.converged
    assert "NOT converged" in repr(cut)
    assert len(cut.trace) < len(ended.trace) + 10


@pytest.mark.parametrize("lines", [None, 1])
def test_a_prior_chosen_on_the_rows_says_so(lines):
    """A certificate of it would be void."""
    X = np.random.default_rng(1).normal(size=(60, 3))
    choice = choose_prior(linear_gaussian_problem(X, X[:, 0] ** 2 + X[:, 1] > 0.5, gamma=1.0), lines)
    assert choice.number > 1
    with pytest.raises(ValueError, match="tuned"):
        pac.certificate(fitting.fit(replace(choice.problem, gamma=20.0)))
