"""How a problem is fitted: what is chosen when, what is refused, and that the fit says it."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from pymc_pacauc.comparison.kinds import label_comparison
from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.ep.fit import fit
from pymc_pacauc.ep.plan import ACCURACIES, choose_plan
from pymc_pacauc.problem.problem import linear_gaussian_problem, spike_slab_problem


def linear(n, d=2, gamma=None, **options):
    """Rows without a meaning, in little time: plans look at sizes. Subsamples of such rows need a small gamma."""
    X = np.random.default_rng(0).standard_normal((n, d))
    return linear_gaussian_problem(X, np.arange(n) % 2, float(gamma or n), **options)


def process(n, lengthscale, strata=None):
    x = np.random.default_rng(1).standard_normal(n)
    kernel = np.exp(-0.5 * ((x[:, None] - x) / lengthscale) ** 2)
    factor = np.linalg.cholesky(kernel + 1e-6 * np.eye(n))
    return linear_gaussian_problem(factor, label_comparison(np.arange(n) % 2, strata=strata), float(n))


SMALL_STRATA = np.arange(200) // 10
TABLE = {
    "few pairs": (linear(400), "coefficients", None, "prior"),
    "4 900 000 pairs, the length matters": (linear(4428), "coefficients", None, "prior"),
    "5 020 000 pairs": (linear(4482), "coefficients", 160, "prior"),
    "249 000 pairs": (linear(998, 4), "coefficients", None, "prior"),
    "251 000 pairs": (linear(1002, 4), "coefficients", "a quarter", "prior"),
    "more rows than that": (linear(2600, 4), "coefficients", 160, "prior"),
    "a large gamma needs more": (linear(6000, gamma=20_000), "coefficients", "gamma", "prior"),
    "a larger one all": (linear(6000, gamma=30_000), "coefficients", None, "prior"),
    "smooth process": (process(260, 0.1), "features", None, "few features"),
    "rough process": (process(200, 1e-4), "features", None, "few features"),
    "rough process in small strata": (process(200, 1e-4, SMALL_STRATA), "features", None, "few features"),
    "few rows of a process": (process(60, 1.0), "coefficients", None, "prior"),
}


@pytest.mark.parametrize("case", TABLE)
def test_what_is_chosen_when(case):
    problem, coordinates, per_row, start = TABLE[case]
    plan = choose_plan(problem)
    assert (plan.coordinates, plan.start, plan.prior) == (coordinates, start, "gaussian")
    tolerance = 3e-4 if coordinates == "features" else 1e-6
    assert (plan.tolerance, plan.max_sweeps, plan.power) == (tolerance, 200, 1.0)
    if per_row is None:
        assert plan.pairs == "all"
    else:  # the numbers measured in docs/theory/subsampled_pairs.md: 0.05 standard deviations with two columns
        wanted = {
            "a quarter": problem.pairs.n_pairs // 4,
            160: 160 * problem.n,
            "gamma": 1.9e-3 / 0.05**2 * problem.gamma**1.5,
        }[per_row]
        assert problem.pairs.n_pairs / plan.pairs.groups == pytest.approx(wanted, rel=1e-6)
    assert plan.continuation == (problem.gamma > 11.0 * problem.n / 4.0 and plan.pairs == "all")


def test_far_pairs_are_left_out_where_the_radius_is_known_or_matters():
    assert not choose_plan(linear(5000, 3)).pairs.thin
    assert choose_plan(linear(5000, 4)).pairs.thin
    assert choose_plan(linear(5000, 2, offset=np.arange(5000) % 7)).pairs.thin


@pytest.mark.parametrize(("name", "n"), [*product(ACCURACIES, [3000, 5000])])
def test_accuracies(name, n):
    plan, accuracy = choose_plan(linear(n, 4), accuracy=name), ACCURACIES[name]
    assert plan.pairs != "all"
    assert plan.tolerance == accuracy.tolerance
    if plan.pairs != "all":
        assert plan.n_pairs / plan.pairs.groups == pytest.approx(accuracy.pairs_per_row * n)
    assert choose_plan(linear(300), accuracy="estimator").tolerance == ACCURACIES["fit"].tolerance  # of all pairs


def test_a_start_and_its_subsample():
    problem = linear(3000, 4, 300.0)
    first = fit(problem, choose_plan(problem, pairs=300))
    assert first.plan.pairs.along == "pilot"

    def along(target, **options):
        plan = choose_plan(target, start=first, **{"pairs": 300, **options})
        assert plan.start is first
        return plan.pairs.along, plan.pairs.drawn

    wider = replace(problem, scores=replace(problem.scores, prior=linear(3000, 4, 300.0, prior_covariance=4.0).prior))
    assert along(problem) == along(wider) == ("start", first.subsample)
    assert along(problem, pairs=600) == ("start", None)  # more pairs than it has
    assert along(replace(problem, gamma=1000.0)) == ("start", None)
    far = choose_plan(replace(problem, gamma=1500.0), start=first, pairs=300)
    assert (far.start, far.pairs.along) == ("prior", "pilot")
    other = choose_plan(linear(3000, 4, 300.0), start=first, pairs=300)  # the same numbers, other pairs
    assert (other.start, other.pairs.along) == ("prior", "pilot")


def test_folds():
    weights, strata = np.linspace(1.0, 2.0, 200), np.arange(200) // 10
    y = np.arange(200) % 2
    for pairs, way in (
        (bipartite(y), "paths"),
        (label_comparison(y, strata=strata // 4), "paths"),
        (label_comparison(y, strata=strata), "removed sites"),
        (label_comparison(y, weights=weights), "removed sites"),
    ):
        problem = linear_gaussian_problem(np.eye(200)[:, :3], pairs, 20.0)
        assert choose_plan(problem).folds == way
    assert choose_plan(linear(200), where=lambda problem, table: None).folds == "removed sites"


def test_a_fit_says_how_it_was_made():
    problem = linear(60)
    found = fit(problem)
    assert str(found.plan) == f"all 900 pairs, coefficients, from the prior: {found.sweeps} sweeps"
    again = fit(problem, choose_plan(problem, start=found))
    assert str(again.plan) == f"all 900 pairs, coefficients, from an earlier fit: {again.sweeps} sweep" + "s" * (
        again.sweeps > 1
    )
    some = fit(linear(3000, 4, 300.0), choose_plan(linear(3000, 4, 300.0), pairs=300))
    assert str(some.plan).startswith("225 000 of 2 250 000 pairs, coefficients, from a fit to some rows: ")
    sparse = fit(spike_slab_problem(problem.X, problem.pairs, 10.0, inclusion_probability=0.5, v0=0.1))
    started = "from a fit with the Gaussian prior"
    assert str(sparse.plan) == f"all 900 pairs, coefficients, {started}: {sparse.sweeps} sweeps"
    assert "features, from its leading features" in str(choose_plan(process(260, 0.1)))
    large = str(choose_plan(replace(problem, gamma=600.0)))
    assert large == "all 900 pairs, coefficients, from the prior and along growing gammas"


def test_a_plan_that_was_carried_out_keeps_nothing_large():
    problem = linear(60)
    plan = fit(problem, choose_plan(problem, start=fit(problem))).plan
    assert plan.start == "an earlier fit"
    assert plan.where == "threads"


def sparse():
    X = np.random.default_rng(0).standard_normal((30, 2))
    return spike_slab_problem(X, np.arange(30) % 2, 10.0, inclusion_probability=0.5, v0=0.1)
