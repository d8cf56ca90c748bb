"""Certificates on rows kept for them: divergence by the textbook, failures counted, and the user's face of it."""

import numpy as np
import pymc as pm
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import ndtr
from scipy.stats import multivariate_normal

import pymc_pacauc as pac
from pymc_pacauc.certify import held_out
from pymc_pacauc.certify.held_out import SHRINK, divergence_between
from pymc_pacauc.certify.matchings import bound_of_draws, scores_under
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
    design = scores_under(found.part.problem, p, ~found.in_part)
    np.testing.assert_allclose(near.root, SHRINK * design.root)


def test_bounds_hold_and_are_tight():
    """20 data sets: none of the bounds fails more often than epsilon allows, and all say something."""
    rng, failures, certified = np.random.default_rng(5), np.zeros(3), []
    for _ in range(20):
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
    with pytest.raises(ValueError, match="share"):
        pac.certify.split(linear_gaussian_problem(X, y, 10.0), share=1.0)
    with pytest.raises(ValueError, match="two rows"):
        pac.certify.split(linear_gaussian_problem(X, np.arange(20) == 3, 10.0))
    with pytest.raises(ValueError, match="epsilon"):
        pac.certify.holdout(X[:, 0], y, epsilon=1.5)
    assert 0.5 < pac.certify.holdout(X[:, 0], y).auc < 1.0
    fitted = pac.arrays.fit(linear_gaussian_problem(X, y, 10.0))
    for options in ({"epsilon": 1.5}, {"epsilon": 0.0}, {"selected_from": 0}, {"selected_from": 1.5}, {"rate": -1.0}):
        with pytest.raises(ValueError, match=next(iter(options))):
            pac.certificate(fitted, bound="matchings", **options)
