"""One score averaged over posteriors: weights, what it hands out, what it refuses."""

import pickle

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import pymc_pacauc as pac
from pymc_pacauc.comparison.folds import comparison_folds
from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.estimator.posterior import (
    HALF_WEIGHT,
    _is_behind,
    calibration_folds,
    cross_fit,
    stacked_scores,
    stacked_weights,
)
from pymc_pacauc.fitting import fit
from pymc_pacauc.tune.gamma import Candidate, GammaChoice


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(100, 2))
    return X, X[:, 0] ** 2 + X[:, 1] + 0.3 * rng.normal(size=100) > 0.8


@pytest.fixture(scope="module")
def fitted(rows):
    return pac.AUCClassifier("auto").fit(*rows)


def test_weights():
    rng = np.random.default_rng(2)
    y = np.arange(120) % 2
    good, noise = rng.normal(size=120) + 1.5 * y, rng.normal(size=120)
    pairs = bipartite(y)
    np.testing.assert_array_equal(stacked_weights(good[:, None], pairs), [1.0])
    for columns in ([good, noise], [noise, good], [good, -good], [-good, good]):
        found = stacked_weights(np.column_stack(columns), pairs)
        assert found.min() >= 0.0
        assert found.sum() == pytest.approx(1.0)
        assert columns[found.argmax()] is good


def test_weights_do_not_see_the_fold_that_they_average():
    """Scores that are noise, 100 times: the AUC within folds is one half within three standard errors."""
    rng, found = np.random.default_rng(3), []
    for _ in range(100):
        y = rng.permutation(np.arange(60) % 2)
        pairs = bipartite(y)
        fold = comparison_folds(pairs, 3, rng)
        averaged = stacked_scores(rng.normal(size=(3, 1, 60)), fold[None], pairs)[0]
        found.append(np.mean([roc_auc_score(y[fold == k], averaged[fold == k]) for k in range(3)]))
    assert abs(np.mean(found) - 0.5) < 3.0 * np.std(found) / 10.0


def test_each_fold_is_averaged_by_the_weights_of_the_others():
    """Of two assignments to folds, each with scores of its own, whose mean makes the weights."""
    rng = np.random.default_rng(5)
    pairs = bipartite(np.arange(60) % 2)
    folds = np.stack([comparison_folds(pairs, 3, rng) for _ in range(2)])
    held = rng.normal(size=(2, 2, 60)) + [[[0.0]], [[1.0]]] * (np.arange(60) % 2)  # the first part is noise
    found = stacked_scores(held, folds, pairs)
    for repeat, fold in enumerate(folds):
        for k in range(3):
            weights = stacked_weights(held.mean(axis=1).T, pairs.among(fold != k))
            assert weights[1] > 0.4  # 0.13 a priori
            np.testing.assert_allclose(found[repeat, fold == k], weights @ held[:, repeat, fold == k])


def choice(*auc):
    candidate = Candidate(1.0, np.array([auc]), np.array([auc]), 0.0)
    return GammaChoice((candidate,), 0, np.zeros((1, 1), dtype=int), "AUC")


def test_what_is_behind():
    best = choice(0.8, 0.82, 0.84)
    assert _is_behind(choice(0.7, 0.73, 0.74), best)
    assert not _is_behind(choice(0.7, 0.9, 0.8), best)
    assert not _is_behind(best, choice(0.7, 0.73, 0.74))


def test_parts_that_stay_behind_are_not_fitted(monkeypatch, rows):
    """Where every choice of gamma is behind the first one, only the linear part is."""
    whole = pac.AUCClassifier("gaussian").fit(*rows)
    fits, module = [], "pymc_pacauc.estimator.posterior."
    monkeypatch.setattr(module + "fit", lambda *given, **options: fits.append(given) or fit(*given, **options))
    monkeypatch.setattr(module + "_is_behind", lambda *_: True)
    found = pac.AUCClassifier("auto", calibration=None).fit(*rows)
    assert found.scores_[0].posterior.names == ("gaussian",)
    assert len(fits) == 1
    np.testing.assert_allclose(found.coef_, whole.coef_)


@pytest.mark.parametrize("n", [240, 2400])
def test_weights_of_few_rows_are_nearer_the_linear_part(n):
    """Of equal columns weights are those of the prior: 1, and size / (size + 60) for each other.

    The data say that their sum is positive. A priori it is 2.3 standard deviations above zero: a change below 2 %.
    """
    y = np.arange(n) % 2
    good = np.random.default_rng(7).normal(size=n) + 1.5 * y
    found = stacked_weights(np.repeat(good[:, None], 3, axis=1), bipartite(y))
    share = 0.25 * n / (0.25 * n + HALF_WEIGHT)
    np.testing.assert_allclose(found, np.array([1.0, share, share]) / (1.0 + 2.0 * share), rtol=0.03)


def test_an_average_of_one_part_is_that_part():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(30, 40))  # more columns than rows: the linear part alone
    y = X[:, 0] + rng.normal(size=30) > 0
    one, linear = (pac.AUCClassifier(prior).fit(X, y) for prior in ("auto", "gaussian"))
    np.testing.assert_array_equal(one.scores_[0].posterior.weights, [1.0])
    np.testing.assert_allclose(one.predict_proba(X), linear.predict_proba(X), atol=1e-9)
    unit = linear.scores_[0].spread
    np.testing.assert_allclose(unit * one.predict_interval(X), linear.predict_interval(X), atol=1e-9)


def test_what_an_average_hands_out(rows, fitted):
    X, y = rows
    posterior = fitted.scores_[0].posterior
    assert posterior.names == ("gaussian", "robust", "additive", "gp")
    assert posterior.weights.sum() == pytest.approx(1.0)
    standard = [(score := part.score(X)) - score.mean() for part in posterior.parts]
    expected = sum(w * each / each.std() for w, each in zip(posterior.weights, standard, strict=True))
    np.testing.assert_allclose(np.ptp(fitted.decision_function(X) - expected), 0.0, atol=1e-9)
    linear = pac.AUCClassifier().fit(X, y)
    np.testing.assert_allclose(fitted.coef_, linear.coef_)
    np.testing.assert_allclose(fitted.coef_sd_, linear.coef_sd_)
    assert not hasattr(fitted, "intercept_")
    scores, sd = fitted.decision_function(X, return_std=True)
    assert (sd > 0.0).all()
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_allclose(copy.decision_function(X), scores)
    np.testing.assert_allclose(copy.predict_interval(X), fitted.predict_interval(X))
    np.testing.assert_allclose(copy.predict_proba(X), fitted.predict_proba(X))
    assert not any(part.has_data for part in copy.scores_[0].posterior.parts)
    assert "prior of the part" in copy.report()
    assert len(pac.plots.plot_shapes(copy)) == 2


def test_parts_choose_gamma_by_the_same_folds_of_some_rows(monkeypatch):
    monkeypatch.setattr("pymc_pacauc.estimator.posterior.TUNING_ROWS", 60)
    rng = np.random.default_rng(6)
    X = np.exp(rng.normal(size=(90, 2)))
    parts = (
        pac.AUCClassifier("auto", calibration=None).fit(X, X[:, 0] + rng.normal(size=90) > 1).scores_[0].posterior.parts
    )
    folds = [part.choice.folds for part in parts]
    assert (folds[0][0] < 0).sum() == 30
    assert all(np.array_equal(folds[0], each) for each in folds)


def test_what_an_average_refuses(fitted):
    with pytest.raises(AttributeError, match="averages parts by weights that were chosen on the rows"):
        _ = fitted.certificate_
    for function in (pac.certificate, pac.summary, pac.leave_out):
        with pytest.raises(TypeError, match="result averages posteriors"):
            function(fitted)
    assert pac.certificate(fitted.scores_[0].posterior.parts[0].result).auc > 0.4
    with pytest.raises(ValueError, match='score of prior="auto" is not linear in X'):
        fitted.export()
    with pytest.raises(pac.results.UnsupportedError, match='prior="auto" needs method="ep"'):
        pac.AUCClassifier("auto", method="smc").fit([[0.0], [1.0]], [0, 1])


@pytest.mark.slow
def test_censored_times():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(80, 2))
    time = rng.exponential(np.exp(-(X[:, 0] ** 2)))
    y = np.column_stack([time < 1.0, np.minimum(time, 1.0)])
    linear, averaged = (pac.ConcordanceEstimator(prior).fit(X, y) for prior in ("gaussian", "auto"))
    assert averaged.score(X, y) > linear.score(X, y) + 0.05
    assert "Kaplan-Meier" in averaged.report()


def test_scores_left_out_are_in_the_unit_of_the_score(fitted):
    """Averages of standardised scores of parts, divided by what the average of those of training rows varies."""
    [score] = fitted.scores_
    averaged = score.posterior
    assigned = calibration_folds(averaged.parts[0], 5)
    held = np.array([cross_fit(part, 5, assigned) for part in averaged.parts])
    expected = stacked_scores(held, assigned, averaged.fit.problem.pairs)
    np.testing.assert_allclose(averaged.held * averaged.training_scores.std(), expected, atol=1e-6)


def test_columns_that_do_not_vary_have_one_score():
    X, y = np.ones((40, 2)), np.arange(40) % 2
    found = pac.AUCClassifier("auto", gamma=20.0).fit(X, y)
    np.testing.assert_allclose(found.decision_function(X), 0.0, atol=1e-9)
    np.testing.assert_allclose(found.predict_proba(X), 0.5, atol=1e-3)
