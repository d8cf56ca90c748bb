"""The paper's competitors, as the benchmarks run them."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit

from benchmarks.baselines import fit_bayesian_logit, fit_rankboost
from pymc_pacauc import empirical_risk


@pytest.fixture
def data():
    rng = np.random.default_rng(3)
    X = np.round(rng.normal(size=(60, 4)), 1)  # rounded, so that there are ties
    return X, (X @ [1.0, -0.5, 0.0, 0.3] + rng.normal(size=60) > 0.3).astype(int)


def pair_loss(scores, y):
    return float(np.exp(scores[y == 0][None] - scores[y == 1][:, None]).mean())


def test_rankboost_loss_decreases_and_is_that_of_its_scores(data):
    X, y = data
    boost = fit_rankboost(X, y, rounds=50)
    assert (np.diff(boost.loss) < 0).all()
    staged = boost.staged_scores(X)
    np.testing.assert_allclose([pair_loss(scores, y) for scores in staged], boost.loss[1:], rtol=1e-10)
    np.testing.assert_allclose(boost.scores(X), staged[-1])
    np.testing.assert_allclose(boost.scores(X, rounds=7), staged[6])


def test_rankboost_finds_the_stump_that_brute_force_over_pairs_finds(data):
    X, y = data
    boost = fit_rankboost(X, y, rounds=10)
    scores = np.zeros(len(y))
    for t in range(10):
        weight = np.exp(scores[y == 0][None] - scores[y == 1][:, None])
        weight /= weight.sum()
        edges = {}
        for feature in range(X.shape[1]):
            values = np.unique(X[:, feature])
            for threshold in 0.5 * (values[1:] + values[:-1]):
                h = (X[:, feature] > threshold).astype(float)
                edges[feature, threshold] = np.sum(weight * (h[y == 1][:, None] - h[y == 0][None]))
        best = max(abs(edge) for edge in edges.values())
        edge = edges[boost.feature[t], boost.threshold[t]]
        assert abs(edge) == pytest.approx(best, rel=1e-9)
        assert boost.alpha[t] == pytest.approx(0.5 * np.log((1 + edge) / (1 - edge)), rel=1e-9)
        scores = boost.staged_scores(X)[t]


def test_rankboost_reaches_the_optimum_of_one_binary_covariate():
    x, y = np.repeat([1.0, 0.0, 1.0, 0.0], [6, 2, 3, 9]), np.repeat([1, 1, 0, 0], [6, 2, 3, 9])
    correct, wrong = (6 * 9) / (8 * 12), (2 * 3) / (8 * 12)
    boost = fit_rankboost(x[:, None], y, rounds=100)
    assert boost.alpha.sum() == pytest.approx(0.5 * np.log(correct / wrong), rel=1e-6)
    assert boost.loss[-1] == pytest.approx(1 - (np.sqrt(correct) - np.sqrt(wrong)) ** 2, rel=1e-9)


def test_rankboost_stops_where_nothing_is_left_to_learn():
    x = np.arange(8.0)[:, None]
    boost = fit_rankboost(x, x[:, 0] > 4, rounds=10)
    assert boost.alpha.size == 1
    assert 1 - empirical_risk(boost.scores(x), x[:, 0] > 4) == 1
    assert fit_rankboost(np.ones((8, 2)), x[:, 0] > 4).alpha.size == 0


def test_logit_mode_is_that_of_scikit_learn(data):
    linear_model = pytest.importorskip("sklearn.linear_model")
    X, y = data
    ours = fit_bayesian_logit(X, y, prior_scale=0.7)
    theirs = linear_model.LogisticRegression(C=0.7**2, tol=1e-10, max_iter=1000).fit(X, y)
    np.testing.assert_allclose(ours.mean, [*theirs.coef_[0], theirs.intercept_[0]], atol=1e-5)


def test_logit_evidence_against_quadrature():
    y = np.repeat([1, 0], 200)
    x = np.random.default_rng(0).normal(size=400) + 0.5 * y
    values = []
    for scale in (0.3, 1.0):
        fit = fit_bayesian_logit(x[:, None], y, prior_scale=scale)

        def density(slope, scale=scale, fit=fit):
            def joint(intercept):
                eta = slope * x + intercept
                return np.exp(y @ eta - np.logaddexp(0, eta).sum() - 0.5 * (slope / scale) ** 2 + 270.0)

            centre = fit.mean[1]
            return quad(joint, centre - 1, centre + 1)[0] / scale

        exact = np.log(quad(density, fit.mean[0] - 0.8, fit.mean[0] + 0.8)[0]) - 270.0
        values.append((fit.log_evidence, exact))
    (laplace_narrow, exact_narrow), (laplace_wide, exact_wide) = values
    assert laplace_wide - laplace_narrow == pytest.approx(exact_wide - exact_narrow, abs=5e-3)


def test_logit_chooses_the_scale_of_largest_evidence(data):
    X, y = data
    best = fit_bayesian_logit(X, y)
    for factor in (0.8, 1.25):
        assert fit_bayesian_logit(X, y, prior_scale=factor * best.prior_scale).log_evidence < best.log_evidence


def test_logit_in_more_dimensions_than_rows():
    rng = np.random.default_rng(5)
    X, new = rng.normal(size=(20, 30)), rng.normal(size=(7, 30))
    y = (X[:, 0] > 0).astype(int)
    short = fit_bayesian_logit(X, y, prior_scale=0.5)
    assert short.rotation is not None
    mean, variance = short.moments(new)
    # the full Hessian in theta, inverted as it is
    full = np.append(short.rotation @ short.mean[:-1], short.mean[-1])
    Z = np.column_stack([X, np.ones(20)])
    p = expit(Z @ full)
    np.testing.assert_allclose(Z.T @ (p - y) + np.append(full[:-1] / 0.25, 0.0), 0, atol=1e-4)
    covariance = np.linalg.inv((Z.T * (p * (1 - p))) @ Z + np.diag([*np.full(30, 4.0), 0.0]))
    Z_new = np.column_stack([new, np.ones(7)])
    np.testing.assert_allclose(mean, Z_new @ full, atol=1e-10)
    np.testing.assert_allclose(variance, np.einsum("ij,jk,ik->i", Z_new, covariance, Z_new), rtol=1e-8)
