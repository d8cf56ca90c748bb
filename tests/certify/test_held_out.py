"""Certificates on rows kept for them: divergence by the textbook, failures counted, and the user's face of it."""

import numpy as np
import pymc as pm
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import ndtr
from scipy.stats import multivariate_normal

import pymc_pacauc as pac
from pymc_pacauc.certify import held_out
from pymc_pacauc.certify.bounds import pac_bayes_kl
from pymc_pacauc.certify.held_out import MARGIN, SHRINK, divergence_between
from pymc_pacauc.certify.matchings import bound_of_draws, scores_under
from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.comparison.sizes import effective_size
from pymc_pacauc.ep.posterior import natural_gaussian
from pymc_pacauc.model.results import mark_tuned
from pymc_pacauc.problem.problem import linear_gaussian_problem, spike_slab_problem
from tests.certify.test_certificate import simulate


def test_divergence_between_two_gaussians():
    rng = np.random.default_rng(1)
    roots = rng.normal(size=(2, 3, 5))
    q, p = (natural_gaussian(root @ root.T, rng.normal(size=3)) for root in roots)
    draws = rng.multivariate_normal(q.mean, q.covariance, size=200_000)
    logs = [multivariate_normal(g.mean, g.covariance).logpdf(draws) for g in (q, p)]
    error = np.std(logs[0] - logs[1]) / np.sqrt(len(draws))
    assert divergence_between(q, p) == pytest.approx(np.mean(logs[0] - logs[1]), abs=4 * error)
    assert divergence_between(q, q) == pytest.approx(0.0, abs=1e-12)


def test_a_part_that_says_nothing():
    """Covariates whose classes balance leave the posterior where the prior is."""
    X = np.array([0.0, 0.0, 2.0, 3.0, -3.0, -2.0, 2.0, 3.0, -2.0, -1.0])[:, None]
    y = np.array([1, 0, 1, 0, 1, 0, 0, 1, 0, 1])
    found = pac.certify.split(linear_gaussian_problem(X, y, 1.0))
    assert found.whole.posterior.mean == 0.0
    assert 0.0 <= found.mean_score_auc <= 0.5


def test_the_divergence_of_the_shrunk_posterior(monkeypatch):
    """That of N(c m, s^2 V), the best multiple c of the mean, from N(m_A, s^2 V), whose draws are certified."""
    seen = []

    def spy(scores, divergence, *args, **options):
        seen.append((scores, divergence))
        return bound_of_draws(scores, divergence, *args, **options)

    monkeypatch.setattr(held_out, "bound_of_draws", spy)
    X, y, _ = simulate(60, 90, 3, 0.85, np.random.default_rng(3))
    found = pac.certify.split(linear_gaussian_problem(X, y, 60.0))
    _, (near, divergence) = seen
    mean, p = found.whole.posterior.natural.mean, found.part.posterior.natural
    precision = p.precision / SHRINK**2
    prior = natural_gaussian(precision, precision @ p.mean)

    def shrunk(c):
        return divergence_between(natural_gaussian(precision, precision @ (c * mean)), prior)

    assert divergence == pytest.approx(minimize_scalar(shrunk).fun, rel=1e-8)
    assert divergence > 0.01
    rest = ~found.in_part
    design = scores_under(found.part.problem, p, rest)
    np.testing.assert_allclose(near.root, SHRINK * design.root)
    c = minimize_scalar(shrunk).x
    away = X[rest] - X[found.in_part].mean(
        axis=0
    )  # margins are those of the differences to the average row of the part
    sd = SHRINK * np.sqrt(np.einsum("ij,jk,ik->i", away, found.part.posterior.covariance, away))
    expected = c * (X - X.mean(axis=0))[rest] @ found.whole.posterior.natural.mean - MARGIN * np.where(
        y[rest] == 1, sd, -sd
    )
    np.testing.assert_allclose(near.mean, expected, rtol=1e-4, atol=1e-6)


def test_bounds_hold_and_are_tight():
    """12 data sets: none of the bounds fails more often than epsilon allows, and all say something."""
    rng, failures, certified = np.random.default_rng(5), np.zeros(3), []
    for _ in range(12):
        X, y, delta = simulate(100, 200, 4, 0.88, rng)
        found = pac.certify.split(linear_gaussian_problem(X, y, 100.0), n_jobs=1)
        part, mean, draws = (
            found.part.posterior.mean,
            found.whole.posterior.mean,
            found.whole.posterior.draw(500, rng),
        )
        truth = [
            np.mean(ndtr(theta @ delta / (np.sqrt(2) * np.linalg.norm(theta, axis=-1))))
            for theta in (part, draws, mean)
        ]
        certified.append([found.auc, found.draw_auc, found.mean_score_auc])
        failures += np.array(certified[-1]) > truth
    assert (failures <= 2).all()
    assert (np.mean(certified, axis=0) > [0.78, 0.74, 0.55]).all()


def test_of_a_model():
    X, y, _ = simulate(80, 120, 3, 0.85, np.random.default_rng(1))
    with pm.Model() as model:
        theta = pm.Normal("theta", size=3)
        pac.AUCPotential("auc", X @ theta, y, gamma=100.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    found = pac.certify.split(model)
    assert found.auc == pac.certify.split(linear_gaussian_problem(X, y, 100.0)).auc
    assert np.allclose(found.whole.posterior.mean, approx.posterior.mean, atol=1e-4)
    rest = ~found.in_part
    scores = pac.predict_scores(found.part, X[rest], summary=True)
    assert pac.certify.holdout(scores, y[rest]).auc == pytest.approx(found.auc, abs=1e-12)
    assert pac.certify.split(model, selected_from=3).auc < found.auc
    assert (found.part.fitted_to.n_pos, found.part.fitted_to.n_neg) == (40, 60)
    assert pac.certificate(found.part).m == 40
    matched = pac.certificate(approx, bound="matchings")
    assert pac.certificate(approx, bound="catoni").auc < matched.auc < matched.empirical_auc
    assert "Mean over matchings" in repr(matched)
    shared = pac.certificate(approx, 0.1, bound="matchings", selected_from=5)
    assert shared.auc == pytest.approx(pac.certificate(approx, 0.02, bound="matchings").auc, abs=1e-12)
    assert shared.auc < pac.certificate(approx, 0.1, bound="matchings").auc
    with pytest.raises(ValueError, match="part of the rows"):
        pac.certificate(found.part, bound="matchings")
    with pytest.raises(ValueError, match="draws alone"):
        pac.certificate(approx.sample(10), bound="matchings")


def test_what_was_chosen_with_all_rows():
    X, y, _ = simulate(40, 60, 3, 0.85, np.random.default_rng(2))
    assert "CAUTION" not in repr(pac.certify.split(linear_gaussian_problem(X, y, 50.0)))
    assert "CAUTION" in repr(pac.certify.split(linear_gaussian_problem((X - X.mean(0)) / X.std(0), y, 50.0)))
    with pm.Model() as model:
        scale = pm.Data("scale", 1.0)
        theta = pm.Normal("theta", 0.0, scale, size=3)
        pac.AUCPotential("auc", X @ theta, y, gamma=50.0)
        mark_tuned(scale)
        with pytest.raises(ValueError, match="tuned on these data"):
            pac.certify.split(model)


def test_refusals():
    X = np.random.default_rng(1).normal(size=(20, 2))
    y = X[:, 0] > 0
    with pytest.raises(ValueError, match="spike and slab"):
        pac.certify.split(spike_slab_problem(X, y, 10.0, inclusion_probability=0.5, v0=0.0))
    with pytest.raises(ValueError, match="both classes: it has 1 positive and 19 negative rows"):
        pac.certify.split(linear_gaussian_problem(X, np.arange(20) == 3, 10.0))
    for epsilon in (1.0, 1.5):
        with pytest.raises(ValueError, match=f"epsilon must .* got {epsilon}"):
            pac.certify.split(linear_gaussian_problem(X, y, 10.0), epsilon)
        with pytest.raises(ValueError, match=f"epsilon must .* got {epsilon}"):
            pac.certify.holdout(X[:, 0], y, epsilon)
    assert 0.5 < pac.certify.holdout(X[:, 0], y).auc < 1.0
    fitted = pac.arrays.fit(linear_gaussian_problem(X, y, 10.0))
    for options in ({"epsilon": 1.5}, {"epsilon": 0.0}, {"selected_from": 0}, {"selected_from": 1.5}):
        with pytest.raises(ValueError, match=next(iter(options))):
            pac.certificate(fitted, bound="matchings", **options)


# -- parts -----------------------------------------------------------------------------------------------------------


def test_a_part_has_half_of_both_classes():
    """Which rows is left to chance, and does not depend on the covariates."""
    positive, X = np.arange(50) % 5 < 2, np.random.default_rng(1).normal(size=(2, 50, 2))
    problems = [linear_gaussian_problem(x, positive, 10.0) for x in X]
    parts = [pac.certify.split(problems[k], random_seed=seed, n_jobs=1).in_part for k, seed in ((0, 0), (1, 0), (0, 1))]
    for part in parts:
        assert (part[positive].sum(), part[~positive].sum()) == (10, 15)
    np.testing.assert_array_equal(parts[0], parts[1])
    assert (parts[0] != parts[2]).any()
    few = linear_gaussian_problem(X[0, :4], positive[:4], 10.0)
    assert pac.certify.split(few, n_jobs=1).in_part.sum() == 2


def test_groups_of_unequal_sizes_make_a_part_of_about_half():
    """Not farther from it, in either class, than a group adds; all of a group or nothing of it."""
    rng = np.random.default_rng(3)
    codes = np.repeat(np.arange(40), rng.integers(1, 9, size=40))
    positive = rng.random(codes.size) < 0.4
    problem = linear_gaussian_problem(rng.normal(size=(codes.size, 2)), positive, 10.0)
    chosen, again, other = (
        pac.certify.split(problem, groups=codes, random_seed=seed, n_jobs=1).in_part for seed in (1, 1, 2)
    )
    assert all(np.unique(chosen[codes == k]).size == 1 for k in range(40))
    shares = [np.array([np.sum(rows & (codes == k)) for k in range(40)]) / rows.sum() for rows in (positive, ~positive)]
    largest = np.max(np.sum(shares, axis=0))
    for rows in (positive, ~positive):
        assert abs(chosen[rows].mean() - 0.5) < largest
    np.testing.assert_array_equal(chosen, again)
    assert (chosen != other).any()
    with pytest.raises(ValueError, match=r"negative rows in 2 groups"):
        pac.certify.split(problem, groups=positive)


def test_bounds_by_groups_are_those_of_independent_groups():
    """Of a draw and of the mean: PAC-Bayes-kl of the exact risk, with m counted in groups."""
    X, y, _ = simulate(60, 90, 2, 0.85, np.random.default_rng(4))
    patient = np.repeat(np.arange(75), 2)[np.random.default_rng(5).permutation(150)]
    found = pac.certify.split(linear_gaussian_problem(X, y, 60.0), 0.1, groups=patient, selected_from=2)
    rest = ~found.in_part
    pairs, q = bipartite(y[rest]), found.whole.posterior.natural
    m = effective_size(pairs, np.unique(patient[rest], return_inverse=True)[1])
    x = X[rest][y[rest] == 1][:, None] - X[rest][y[rest] == 0]
    sd = np.sqrt(np.einsum("ijk,kl,ijl->ij", x, q.covariance, x))
    risk = ndtr(-(x @ q.mean) / sd).mean()
    expected = 1.0 - pac_bayes_kl(risk, found.divergence, m, 0.05, equal_matchings=False)
    assert found.draw_auc == pytest.approx(expected, abs=1e-6)
    assert found.divergence == pytest.approx(divergence_between(q, found.part.posterior.natural))
    assert 0.0 <= found.mean_score_auc < found.draw_auc
    assert (found.groups, found.epsilon, found.selected_from) == (75, 0.1, 2)


def test_what_a_split_says():
    X, y, _ = simulate(40, 60, 2, 0.85, np.random.default_rng(2))
    problem = linear_gaussian_problem(X, y, 50.0)
    found = pac.certify.split(problem)
    assert (found.groups, found.epsilon, found.selected_from) == (0, 0.05, 1)
    score, rest = X @ found.part.posterior.mean, ~found.in_part
    expected = np.mean(score[rest & (y == 1)][:, None] > score[rest & (y == 0)])
    assert found.empirical_auc == pytest.approx(expected)
    for words in (
        "probability 0.95",
        "posterior of 50 rows",
        "the other 50)",
        "within each class rows are independent",
    ):
        assert words in repr(found)
    assert f">= {found.auc:.4f}" in repr(found)
    assert f"a draw >= {found.draw_auc:.4f}, the mean score >= {found.mean_score_auc:.4f}" in repr(found)
    assert f"KL {found.divergence:.2f}" in repr(found)
    other = pac.certify.split(problem, random_seed=7)
    assert (other.in_part != found.in_part).any()
    grouped = pac.certify.split(problem, groups=np.arange(100) // 2 % 25)
    assert "the 25 groups are independent" in repr(grouped)


def test_what_a_hold_out_says():
    y = np.arange(60) < 20
    scores = np.random.default_rng(3).normal(size=60) + 2.0 * y
    found = pac.certify.holdout(scores, y, 0.1)
    assert (found.n_pos, found.n_neg, found.groups, found.epsilon, found.selected_from) == (20, 40, 0, 0.1, 1)
    assert found.empirical_auc == pytest.approx(np.mean(scores[y][:, None] > scores[~y]))
    assert f"Certified AUC >= {found.auc:.4f} with probability 0.9 ({found.empirical_auc:.4f} on 20 + 40" in repr(found)
    assert "within each class rows are independent" in repr(found)
    assert ", the best of 3 scores (" in repr(pac.certify.holdout(scores, y, 0.1, selected_from=3))
    reverse = pac.certify.holdout(-scores, ~y, 0.1)
    assert (reverse.n_pos, reverse.n_neg) == (40, 20)
    assert reverse.auc == pytest.approx(found.auc, abs=1e-12)


def test_the_record_of_a_part_is_its_own():
    """Of fewer rows: other pairs and other data."""
    X, y, _ = simulate(40, 60, 2, 0.85, np.random.default_rng(2))
    with pm.Model() as model:
        theta = pm.Normal("theta", size=2)
        pac.AUCPotential("auc", X @ theta, y, gamma=50.0)
    found = pac.certify.split(model)
    part, whole = found.part.fitted_to, found.whole.fitted_to
    assert (whole.n_pos, whole.n_neg, whole.m_eff) == (40, 60, 40)
    assert (part.n_pos, part.n_neg, part.m_eff) == (20, 30, 20)
    assert part.data != whole.data
    assert part.pairs != whole.pairs
    other = pac.certify.split(model, random_seed=7).part.fitted_to
    assert other.data != part.data
    assert other.pairs != part.pairs
