import pickle
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.special import ndtr
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    LeaveOneOut,
    ShuffleSplit,
    StratifiedKFold,
    TunedThresholdClassifierCV,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.fixes import parse_version

import pymc_pacauc as pac
from pymc_pacauc import fitting
from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.estimator import gamma
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.tune.gamma import pairs_of_few

SCIKIT_1_5 = parse_version(sklearn.__version__) < parse_version("1.6")

# EP approximates a pair of weight four by one Gaussian factor and four pairs by four, which are not the same, and
# probabilities count the rows behind them. That variational Bayes, which has no such factors, obeys is tested below.
EXPECTED = {"check_sample_weight_equivalence_on_dense_data": "EP's factor of a weighted pair is not that of several"}
# Classes by Youden's index are those that tell positives from negatives best, not the most probable ones.
YOUDEN = {"check_classifiers_train": "predict need not be the class of highest probability"}


def expected(estimator):
    return EXPECTED | (YOUDEN if getattr(estimator, "threshold", None) == "youden" else {})


def checked(estimators):
    options = {} if SCIKIT_1_5 else {"expected_failed_checks": expected}
    return parametrize_with_checks(estimators, **options)


@pytest.mark.filterwarnings("ignore")  # scikit-learn's checks fit whatever they please: two rows of a class, constants
@checked([pac.AUCClassifier(gamma="default")])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@checked(
    [
        pac.AUCClassifier(),
        pac.AUCClassifier(threshold="youden", gamma="default", method="vb"),
        pac.AUCClassifier("spike_slab", gamma="default"),
        pac.AUCClassifier(gamma="default", method="smc", particles=100),
    ]
)
def test_scikit_learns_checks_with_other_parameters(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(150, 3)) * [1.0, 10.0, 0.1] + [0.0, 5.0, 1.0]
    y = np.where(X[:, 0] + X[:, 1] / 10 + rng.normal(size=150) > 0.8, "sick", "well")
    return X, y


@pytest.fixture(scope="module")
def fitted(rows):
    return pac.AUCClassifier().fit(*rows)


def test_it_is_the_fit_on_standardised_arrays(rows):
    X, y = rows
    found = pac.AUCClassifier(gamma=50.0, shrinkage=1.0).fit(X, y)
    problem = linear_gaussian_problem(StandardScaler().fit_transform(X), y == "well", gamma=50.0)
    expected = fit(problem)
    scale = X.std(axis=0)
    np.testing.assert_allclose(found.coef_[0], expected.posterior.mean / scale)
    np.testing.assert_allclose(found.coef_sd_[0], np.sqrt(expected.posterior.variance) / scale)
    assert found.log_evidence_ == expected.log_evidence
    mean, sd = found.decision_function(X, return_std=True)
    np.testing.assert_allclose(sd, np.sqrt(expected.posterior.moments_of(problem.X, variances=True)[1]))
    np.testing.assert_allclose(mean, X @ found.coef_[0] + found.intercept_[0])
    low, high = found.predict_interval(X, 0.5).T
    np.testing.assert_allclose(high - low, 2 * 0.6744897501960817 * sd)
    np.testing.assert_allclose((high + low) / 2, mean)


def test_labels_are_sorted_as_in_scikit_learn(rows, fitted):
    X, y = rows
    assert list(fitted.classes_) == ["sick", "well"]
    assert fitted.score(X, y) == pytest.approx(roc_auc_score(y, fitted.decision_function(X)))
    assert fitted.score(X, y) > 0.8
    assert set(fitted.predict(X)) == {"sick", "well"}


def test_gamma(rows):
    X, y = rows
    n_pos, n_neg = int((y == "well").sum()), int((y == "sick").sum())
    assert pac.AUCClassifier(gamma="default").fit(X, y).gamma_ == pytest.approx(4 * n_pos * n_neg / 150)
    theorem = pac.theorems.theorem_defaults(n_pos, n_neg, 3).gamma
    assert pac.AUCClassifier(gamma="MA1").fit(X, y).gamma_ == pytest.approx(theorem)
    by_certificate = pac.AUCClassifier(gamma="certificate").fit(X, y)
    assert by_certificate.certificate_.auc >= pac.AUCClassifier(gamma="default").fit(X, y).certificate_.auc


def test_methods_agree(rows):
    X, y = rows
    ep, smc = (pac.AUCClassifier(gamma=60.0, method=method).fit(X, y) for method in ("ep", "smc"))
    directions = [each.coef_[0] * X.std(axis=0) for each in (ep, smc)]  # the length of theta is not identified
    assert np.dot(*(theta / np.linalg.norm(theta) for theta in directions)) > 0.995
    assert smc.log_evidence_ == pytest.approx(ep.log_evidence_, abs=0.5)
    assert smc.certificate_.method == "TemperingSMC"
    sparse = pac.AUCClassifier("spike_slab", gamma=60.0).fit(X, y)
    assert sparse.inclusion_probability_.shape == (1, 3)
    assert sparse.inclusion_probability_[0, 2] < 0.5 < sparse.inclusion_probability_[0, 0]
    with pytest.raises(AttributeError, match="no closed form"):
        sparse.certificate_  # noqa: B018


def test_weights_count_rows(rows):
    """With variational Bayes, to which one pair of weight four is four pairs; EP's sites are not additive."""
    X, y = rows
    repeats = np.random.default_rng(2).integers(0, 3, size=len(y))
    options = {"gamma": 40.0, "method": "vb", "shrinkage": 0.3}
    weighted = pac.AUCClassifier(**options).fit(X, y, sample_weight=repeats)
    repeated = pac.AUCClassifier(**options).fit(np.repeat(X, repeats, axis=0), np.repeat(y, repeats))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-4)
    assert weighted.score(X, y, sample_weight=repeats) == pytest.approx(
        repeated.score(np.repeat(X, repeats, axis=0), np.repeat(y, repeats)), abs=1e-9
    )


def test_strata_are_compared_within(rows):
    X, y = rows
    strata = np.arange(len(y)) % 3
    X = StandardScaler().fit_transform(X)
    shifted = X + 20.0 * strata[:, None]  # which no comparison within strata sees
    options = {"gamma": 40.0, "standardize": False, "shrinkage": 1.0}
    plain, moved = (pac.AUCClassifier(**options).fit(rows, y, strata=strata) for rows in (X, shifted))
    np.testing.assert_allclose(moved.coef_, plain.coef_, rtol=1e-4)


@pytest.mark.parametrize("threshold", [0.5, 0.2, "youden", "prior"])
def test_thresholds(rows, threshold):
    X, y = rows
    found = pac.AUCClassifier(gamma="default", threshold=threshold).fit(X, y)
    positive = found.predict(X) == "well"
    np.testing.assert_array_equal(positive, found.decision_function(X) > 0)
    if not isinstance(threshold, str):
        np.testing.assert_array_equal(positive, found.predict_proba(X)[:, 1] > threshold)
    elif threshold == "prior":
        assert abs(positive.mean() - (y == "well").mean()) < 0.06
    else:
        assert positive[y == "well"].mean() - positive[y == "sick"].mean() > 0.4


def test_probabilities_rank_as_scores_do_and_are_calibrated():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(4000, 2))
    chance = 1 / (1 + np.exp(2 - 1.5 * X[:, 0]))
    y = rng.random(4000) < chance
    found = pac.AUCClassifier(gamma="default").fit(X[:1000], y[:1000])
    probability = found.predict_proba(X)[:, 1]
    np.testing.assert_array_equal(np.argsort(probability), np.argsort(found.decision_function(X)))
    assert 0.0 < probability.min() < probability.max() < 1.0
    for low, high in [(0.0, 0.1), (0.1, 0.3), (0.3, 1.0)]:
        inside = (probability >= low) & (probability < high)
        assert abs(probability[inside].mean() - chance[inside].mean()) < 0.04


@pytest.fixture(scope="module")
def noise():
    """Noise that a fit takes for signal, with integer weights and folds, and options of a classifier of it."""
    rng = np.random.default_rng(11)
    X, y, fold = rng.normal(size=(90, 20)), rng.permutation(np.arange(90) % 2), np.arange(90) // 2 % 3
    splits = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(3)]
    return X, y, rng.integers(1, 6, size=90), splits, {"gamma": 60.0, "shrinkage": 1.0, "standardize": False}


def test_probabilities_are_of_rows_that_were_left_out(noise):
    """Scores of each fold are those of a fit to the others, and a row of weight 3 counts as three."""
    X, y, weights, splits, options = noise
    found = pac.AUCClassifier(cv=splits, **options).fit(X, y, sample_weight=weights)
    [score] = found.scores_
    for train, test in splits:
        without = pac.AUCClassifier(**options).fit(X[train], y[train], sample_weight=weights[train])
        refitted, fitted = without.decision_function(X[test]), found.decision_function(X[test])
        assert np.corrcoef(score.held_out[test], refitted)[0, 1] > 0.99
        assert np.corrcoef(fitted, refitted)[0, 1] < 0.9
    units = (score.held_out - score.center) / score.spread
    steps = IsotonicRegression(out_of_bounds="clip").fit(np.repeat(units, weights), np.repeat(y, weights))
    at = (score.posterior.score(X) - score.center) / score.spread
    np.testing.assert_allclose(found.predict_proba(X)[:, 1], (90 * steps.predict(at) + ndtr(at)) / 91, atol=1e-12)


@pytest.mark.parametrize("threshold", ["youden", "prior"])
def test_thresholds_count_a_row_by_its_weight(noise, threshold):
    X, y, weights, splits, options = noise
    [score] = pac.AUCClassifier(cv=splits, threshold=threshold, **options).fit(X, y, sample_weight=weights).scores_

    def behind(cut):
        called, positive = score.held_out > cut, y == 1
        true, false = (weights[called & rows].sum() / weights[rows].sum() for rows in (positive, ~positive))
        return false - true if threshold == "youden" else abs(weights[called].sum() - weights[positive].sum())

    best = min(behind(cut) for cut in [-np.inf, *score.held_out])
    assert behind(score.cuts[0]) == pytest.approx(best, abs=1e-12)


def test_the_certificate_pays_for_four_priors(rows):
    X, y = rows
    times = np.column_stack([y == "well", np.random.default_rng(3).exponential(size=len(y))])
    for found in (pac.AUCClassifier(gamma=40.0).fit(X, y), pac.ConcordanceEstimator(gamma=40.0).fit(X, times)):
        paid, free = (
            pac.certificate(found.approximation_, epsilon, tuned_prior="accept").auc for epsilon in (0.05 / 4, 0.05)
        )
        assert found.certificate_.selected_from == 4
        assert found.certificate_.auc == pytest.approx(paid, abs=1e-12)
        assert paid < free


def test_gamma_chosen_on_some_rows_grows_with_all():
    """One coefficient ranks alike at every gamma, so that the choice is not noisy: in n+ n- / n it is one number."""
    rng = np.random.default_rng(12)
    X = rng.normal(size=(2000, 1))
    y = X[:, 0] + rng.logistic(size=2000) > 0

    def in_units(n):
        found = pac.AUCClassifier(shrinkage=1.0, tuning_rows=200).fit(X[:n], y[:n])
        return found.gamma_ * n / (y[:n].sum() * (~y[:n]).sum())

    assert in_units(2000) == pytest.approx(in_units(200), rel=1e-6)


def test_more_than_two_classes():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(210, 2))
    y = np.digitize(X[:, 0] + 0.5 * rng.normal(size=210), [-0.7, 0.7])
    ovr = pac.AUCClassifier(gamma="default").fit(X, y)
    assert ovr.coef_.shape == (3, 2)
    assert len(ovr.gamma_) == 3
    assert ovr.decision_function(X).shape == (210, 3)
    assert ovr.score(X, y) == pytest.approx(
        np.mean([roc_auc_score(y == k, ovr.decision_function(X)[:, k]) for k in range(3)])
    )
    ordered = pac.AUCClassifier(gamma="default", multi_class="ordered").fit(X, y)
    assert ordered.coef_.shape == (1, 2)
    assert ordered.score(X, y) == 1 - pac.empirical_risk(ordered.decision_function(X), y, ordered=True) > 0.9
    probability = ordered.predict_proba(X)
    assert probability.shape == (210, 3)
    assert probability.min() >= 0
    np.testing.assert_allclose(probability.sum(axis=1), 1.0)
    assert np.mean(ordered.predict(X) == y) > 0.7
    with pytest.raises(ValueError, match="one score"):
        ovr.predict_interval(X)


def test_it_lives_in_scikit_learn(rows):
    X, y = rows
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(place=np.tile(["x", "y"], 75))
    pick = ColumnTransformer([("onehot", OneHotEncoder(), ["place"])], remainder="passthrough").set_output(
        transform="default"
    )
    pipeline = make_pipeline(pick, pac.AUCClassifier(gamma="default"))
    assert cross_val_score(pipeline, frame, y, scoring="roc_auc", cv=3).mean() > 0.75
    search = GridSearchCV(pac.AUCClassifier(), {"gamma": [20.0, 80.0]}, cv=3).fit(frame[["a", "b", "c"]], y)
    assert list(search.best_estimator_.feature_names_in_) == ["a", "b", "c"]
    tuned = TunedThresholdClassifierCV(pac.AUCClassifier(gamma="default"), cv=3).fit(X, y)
    assert np.isfinite(tuned.best_threshold_)
    calibrated = CalibratedClassifierCV(pac.AUCClassifier(gamma="default"), cv=3).fit(X, y)
    assert calibrated.predict_proba(X).shape == (150, 2)
    assert "AUCClassifier" in pac.AUCClassifier()._repr_html_()


def test_metadata_are_routed(rows):
    X, y = rows
    groups = np.arange(150) // 5
    with sklearn.config_context(enable_metadata_routing=True):
        classifier = pac.AUCClassifier(gamma="default").set_fit_request(groups=True, strata=True, sample_weight=True)
        classifier.set_score_request(sample_weight=True)
        scores = cross_val_score(
            classifier,
            X,
            y,
            cv=GroupKFold(3),
            params={"groups": groups, "strata": np.arange(150) % 2, "sample_weight": np.ones(150)},
        )
    assert scores.min() > 0.6


def test_copies(rows, fitted):
    X, _ = rows
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(fitted)).predict_proba(X),
        fitted.predict_proba(X),
    )
    assert clone(fitted).get_params() == fitted.get_params()
    assert not hasattr(clone(fitted), "coef_")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.ones(150)}, "only one class"),
        ({"y": np.arange(150) == 0}, "only 1 member"),
        ({"X": np.full((150, 3), np.nan)}, "contains NaN"),
        ({"X": np.array([["a"]] * 150)}, "could not convert string"),
        ({"sample_weight": -np.ones(150)}, "Negative values"),
        ({"strata": [1, 2]}, "strata must have shape"),
        ({"gamma": "best"}, "gamma must be one of"),
        ({"gamma": -1.0}, "gamma must be"),
        ({"prior": "laplace"}, "prior must be one of"),
        ({"method": "nuts"}, "method must be one of 'ep', 'vb', 'smc'; got 'nuts'"),
        ({"threshold": 2.0}, "threshold must be one of"),
        ({"multi_class": "ovo"}, "multi_class must be one of"),
        ({"cv": 1}, "Expected cv as an integer of at least 2"),
        ({"cv": "five"}, "Expected cv as an integer of at least 2"),
        ({"cv": ShuffleSplit(2, random_state=0)}, "cv must leave out every sample once"),
        ({"cv": LeaveOneOut()}, "has nothing to compare"),
        ({"shrinkage": 0.0}, "shrinkage must be"),
        ({"shrinkage": None}, "shrinkage must be"),
        ({"tuning_rows": 10}, "tuning_rows must be"),
        ({"threshold": None}, "threshold must be one of"),
        ({"standardize": "robust"}, "standardize must be True or False; got 'robust'"),
        ({"epsilon": 2.0}, "epsilon must lie strictly between 0 and 1"),
        ({"particles": 1}, "particles must be at least 2"),
        (
            {"gamma": "coverage", "sample_weight": np.arange(150.0)},
            "gamma can be calibrated to coverage for two classes",
        ),
        ({"gamma": "coverage", "X": np.ones((150, 2))}, "All rows have the same score"),
        ({"prior": "gp", "X": np.ones((150, 2))}, "All rows of X are equal"),
    ],
)
def test_bad_input_leaves_nothing_half_fitted(rows, change, message):
    X, y = rows
    names = ("X", "y", "sample_weight", "strata")
    data = {"X": X, "y": y, **{name: change[name] for name in names if name in change}}
    estimator = pac.AUCClassifier(**{name: value for name, value in change.items() if name not in names})
    before = dict(vars(estimator))
    with pytest.raises(ValueError, match=message):
        estimator.fit(**data)
    assert vars(estimator) == before
    with pytest.raises(NotFittedError):
        estimator.predict(X)


@pytest.mark.parametrize("options", [{}, {"gamma": "cv"}, {"method": "vb"}, {"multi_class": "ordered"}])
def test_rows_that_are_all_equal(rows, options):
    """There is nothing to rank by: probabilities are the shares of the classes, or nearly."""
    y = rows[1] if "multi_class" not in options else np.arange(150) % 3
    found = pac.AUCClassifier(**{"gamma": "default", **options}).fit(np.ones((150, 2)), y)
    assert not found.coef_.any()
    assert found.score(np.ones((150, 2)), y) == 0.5
    shares = [np.mean(y == each) for each in found.classes_]
    np.testing.assert_allclose(found.predict_proba(np.ones((1, 2)))[0], shares, atol=0.01)


@pytest.mark.parametrize("unit", [1e-300, 1e300])
def test_units_of_any_size(rows, fitted, unit):
    X, y = rows
    X = X - X.mean(axis=0)
    plain, found = (pac.AUCClassifier(gamma="default").fit(each, y) for each in (X, X * unit))
    np.testing.assert_allclose(found.coef_ * unit, plain.coef_, rtol=1e-6)
    np.testing.assert_allclose(found.predict_proba(X * unit), plain.predict_proba(X), rtol=1e-6)


def test_labels_of_a_score(rows, fitted):
    X, y = rows
    expected = fitted.score(X, y)
    for same in (y[:, None], pd.DataFrame({"y": y}), pd.Series(y, dtype="category"), pd.Series(y, dtype="string")):
        assert fitted.score(X, same) == expected
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        fitted.score(X, y[:-1])
    with pytest.raises(ValueError, match="not seen in fit"):
        fitted.score(X, np.arange(150) % 2)


def test_a_failed_fit_keeps_the_last_one(rows, fitted):
    X, y = rows
    before = dict(vars(fitted))
    with pytest.raises(ValueError, match="NaN"):
        fitted.fit(np.full((10, 2), np.nan), y[:10])
    assert vars(fitted) == before
    with pytest.raises(ValueError, match="expecting 3 features"):
        fitted.predict(X[:, :2])


def test_folds_may_be_given(rows):
    X, y = rows
    splitter = StratifiedKFold(3)
    fold = np.empty(len(y), dtype=int)
    for k, (_, out) in enumerate(splitter.split(X, y)):
        fold[out] = k
    first = pac.AUCClassifier(cv=splitter).fit(X, y)
    other = pac.AUCClassifier(cv=list(splitter.split(X, y)), random_state=1).fit(X, y)
    assert first.gamma_ == other.gamma_  # there are no subsamples, so that there is nothing random
    np.testing.assert_array_equal(first.predict_proba(X), other.predict_proba(X))
    [score] = first.scores_
    np.testing.assert_array_equal(score.posterior.choice.folds, [fold])
    weights = np.where(np.arange(len(y)) < 10, 0.0, 1.0)  # rows of weight zero leave, and their folds with them
    without = pac.AUCClassifier(cv=[(np.flatnonzero(fold[10:] != k), np.flatnonzero(fold[10:] == k)) for k in range(3)])
    np.testing.assert_allclose(
        pac.AUCClassifier(cv=splitter).fit(X, y, sample_weight=weights).coef_, without.fit(X[10:], y[10:]).coef_
    )
    one_by_one = pac.AUCClassifier(gamma="default", cv=LeaveOneOut()).fit(X[::3], y[::3])  # for probabilities
    assert one_by_one.predict_proba(X).shape == (150, 2)


@pytest.mark.parametrize(("positives", "rows"), [(300, (50, 50)), (20, (20, 125)), (2, (2, 400))])
def test_gamma_is_chosen_by_some_rows(positives, rows):
    rng = np.random.default_rng(6)
    y = np.arange(2000) < positives
    found = pairs_of_few(bipartite(y), 100, rng.permutation(2000))
    assert [(block.positive.size, block.negative.size) for block in found.blocks] == [rows]
    assert y[found.blocks[0].positive].all()
    assert not y[found.blocks[0].negative].any()


def test_a_choice_by_some_rows_is_that_of_these_rows_alone():
    """Rows that are in no pair take no part, but for the covariance of all."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(60, 2))
    y = X[:, 0] + rng.normal(size=60) > 0
    chosen = np.arange(60) % 2 == 0
    part = linear_gaussian_problem(X, bipartite(y).among(chosen), gamma=20.0)
    assert part.of_compared_rows().n == 30
    alone = fit(linear_gaussian_problem(X[chosen], y[chosen], gamma=20.0))
    for problem in (part, part.of_compared_rows()):
        np.testing.assert_allclose(fit(problem).posterior.mean, alone.posterior.mean, rtol=1e-6)
    whole = linear_gaussian_problem(X, y, gamma=20.0)
    assert whole.of_compared_rows() is whole


def test_dependent_columns():
    """Of these rows, in which categories have a column each, LAPACK's gesdd finds no singular values."""
    data = pac.datasets.load_credit()
    train, new = list(StratifiedKFold(5, shuffle=True, random_state=1).split(data.X, data.y))[3]
    found = pac.AUCClassifier().fit(data.X[train], data.y[train])
    assert found.score(data.X[new], data.y[new]) > 0.7


def test_spikes_on_many_rows():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(700, 3))  # more rows than tuning_rows: the final fit is to other pairs than those tuned by
    y = X[:, 0] + rng.normal(size=700) > 0
    found = pac.AUCClassifier("spike_slab").fit(X, y)
    assert found.inclusion_probability_[0, 0] > 0.9


def test_few_positives_have_few_folds():
    X = np.random.default_rng(5).normal(size=(40, 2))
    y = np.arange(40) < 3
    with pytest.warns(UserWarning, match="less than cv=5: there will be 3 folds"):
        assert pac.AUCClassifier().fit(X, y).coef_.shape == (1, 2)


def test_it_does_not_import_pymc():
    code = """
import sys
import pymc_pacauc as pac
data = pac.datasets.load_pima()
found = pac.AUCClassifier().fit(data.X, data.y)
found.predict_proba(data.X), found.certificate_
print(*{name.split(".")[0] for name in sys.modules})
"""
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "sklearn" in loaded
    assert not {"pymc", "pytensor", "arviz", "arviz_base", "xarray", "matplotlib"} & set(loaded)


def test_draws_are_arviz_data(rows, fitted):
    pytest.importorskip("pymc")
    idata = fitted.idata_
    draws = idata["posterior"]["coef"]
    assert draws.shape == (1, 1000, 3)
    np.testing.assert_allclose(draws.mean(("chain", "draw")), fitted.coef_[0], atol=4 * fitted.coef_sd_[0].max() / 30)
    with pytest.raises(ValueError, match="tuned"):  # among four, for which certificate_ pays
        pac.certificate(idata)
    fixed = [pac.AUCClassifier(gamma=40.0, shrinkage=1.0, method=method).fit(*rows) for method in ("ep", "smc")]
    for each in fixed:
        assert pac.certificate(each.idata_).auc == pytest.approx(each.certificate_.auc)


def test_pairs_of_many_rows_are_subsampled():
    """Of 3000 rows one pair in ten, without changing what it learns: against the fit to all pairs, on arrays."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(3000, 5))
    y = X[:, 0] - 0.5 * X[:, 1] + 2.0 * rng.logistic(size=3000) > 0.5
    found = pac.AUCClassifier(gamma=2000.0, shrinkage=1.0).fit(X, y)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    every = fit(linear_gaussian_problem(Z, y, 2000.0), pairs="all")
    assert found.approximation_.pairs_used < 0.15 * every.problem.pairs.n_pairs
    off = (found.coef_[0] * X.std(axis=0) - every.posterior.mean) / np.sqrt(every.posterior.variance)
    assert 0.0 < np.sqrt(np.mean(off**2)) < 0.1


def test_a_large_error_of_a_subsample_is_told_by_options_of_the_estimator(monkeypatch):
    rng = np.random.default_rng(7)
    X = rng.normal(size=(1600, 2))
    monkeypatch.setattr("pymc_pacauc.ep.results.LARGE_EVIDENCE_ERROR", 1e-6)
    message = r'subsample of .* of 640000 pairs .* nats in log Z: .* Lower gamma, or use method="smc".$'
    with pytest.warns(ConvergenceWarning, match=message):
        pac.AUCClassifier(gamma=100.0, shrinkage=1.0).fit(X, np.arange(1600) % 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inclusion_probability": 0.5}, r'inclusion_probability=0.5 .* prior="spike_slab"'),
        ({"inclusion_probability": 1.5, "prior": "gp"}, "inclusion_probability=1.5"),
        ({"shrinkage": 0.5, "prior": "gp"}, "shrinkage=0.5 is of a Gaussian prior"),
        ({"shrinkage": 0.5, "prior": "spike_slab"}, "shrinkage=0.5 is of a Gaussian prior"),
        ({"shrinkage": 0.5, "relevance": "evidence"}, "relevance='evidence'"),
    ],
)
def test_options_of_another_prior_are_refused(options, message):
    X = np.random.default_rng(1).normal(size=(40, 2))
    with pytest.raises(ValueError, match=message):
        pac.AUCClassifier(**options).fit(X, X[:, 0] > 0.0)


@pytest.mark.parametrize("prior", ["gaussian", "spike_slab"])
def test_warnings_name_options_that_there_are(prior, monkeypatch):
    """A fit that does not converge is warned of by options of the estimator: it has no max_sweeps, p or v0."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 3))
    monkeypatch.setattr(gamma, "fit", lambda *args, **options: fitting.fit(*args, **{**options, "max_sweeps": 2}))
    with pytest.warns(ConvergenceWarning, match="did not converge") as caught:
        pac.AUCClassifier(prior, gamma=60.0).fit(X, X[:, 0] + rng.normal(size=60) > 0.0)
    for each in caught:
        if "did not converge in" in str(each.message):
            named = re.findall(r"(?:Lower|raise|use) (\w+)", str(each.message))
            assert named
            assert set(named) <= set(pac.AUCClassifier().get_params())
