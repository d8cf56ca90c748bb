import io
import pickle
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    StratifiedKFold,
    TunedThresholdClassifierCV,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.fixes import parse_version

import pymc_pacauc as pac
from pymc_pacauc import fitting
from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.comparison.sizes import effective_size
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.estimator import posterior
from pymc_pacauc.estimator.calibration import LEAST_SLOPE, fit_sigmoid
from pymc_pacauc.estimator.posterior import cross_fit
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.smc.tempering import TemperingWarning
from pymc_pacauc.tune.coverage import calibrated_posterior
from pymc_pacauc.tune.gamma import assign_folds, content_order, pairs_of_few

SCIKIT_1_5 = parse_version(sklearn.__version__) < parse_version("1.6")

# In these checks a class has one row of weight four, which cannot be left out for probabilities; four rows can. Without
# probabilities EP differs still: it approximates a pair of weight four by one Gaussian factor and four pairs by four.
# That variational Bayes, which has no such factors, obeys is tested below.
EXPECTED = {
    f"check_sample_weight_equivalence_on_{kind}_data": "one row of a class cannot be left out, whatever its weight"
    for kind in ("dense", "sparse")
}


def expected(estimator):
    return EXPECTED


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
        pac.AUCClassifier(calibration="isotonic", gamma="default", method="vb"),
        pac.AUCClassifier("spike_slab", gamma="default"),
        pac.AUCClassifier(gamma="default", method="smc"),
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
    found = pac.AUCClassifier(gamma=50.0, prior="ridge").fit(X, y)
    problem = linear_gaussian_problem(StandardScaler().fit_transform(X), y == "well", gamma=50.0)
    expected = fit(problem)
    scale = X.std(axis=0)
    np.testing.assert_allclose(found.coef_[0], expected.posterior.mean / scale)
    wide = calibrated_posterior(expected)
    np.testing.assert_allclose(found.coef_sd_[0], np.sqrt(wide.variance) / scale)
    assert found.log_evidence_ == expected.log_evidence
    mean, sd = found.decision_function(X, return_std=True)
    np.testing.assert_allclose(sd, np.sqrt(wide.moments_of(problem.X, variances=True)[1]))
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


@pytest.mark.parametrize("options", [{}, {"multi_class": "ordered"}])
def test_weights_count_rows_of_many_classes(options):
    """Without probabilities, one row of a class is enough; scores of classes are in units of the weighted rows."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(25, 3)), np.append(rng.integers(0, 2, size=24), 2)
    repeats = np.append(rng.integers(0, 4, size=24), 3)
    classifier = pac.AUCClassifier("ridge", method="vb", gamma=20.0, standardize=False, calibration=None, **options)
    weighted = clone(classifier).fit(csr_array(X), y, sample_weight=repeats)
    repeated = clone(classifier).fit(np.repeat(X, repeats, axis=0), np.repeat(y, repeats))
    scale = np.abs(repeated.decision_function(X)).max()
    np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), atol=1e-3 * scale)
    with pytest.raises(ValueError, match="only 1 member"):
        clone(classifier).set_params(calibration="auto").fit(X, y, sample_weight=repeats)


def test_weights_count_rows(rows):
    """With variational Bayes, to which one pair of weight four is four pairs; EP's sites are not additive."""
    X, y = rows
    repeats = np.random.default_rng(2).integers(0, 3, size=len(y))
    options = {"gamma": 40.0, "method": "vb", "prior": "ridge"}
    weighted = pac.AUCClassifier(**options).fit(X, y, sample_weight=repeats)
    repeated = pac.AUCClassifier(**options).fit(np.repeat(X, repeats, axis=0), np.repeat(y, repeats))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-4)
    assert weighted.score(X, y, sample_weight=repeats) == pytest.approx(
        repeated.score(np.repeat(X, repeats, axis=0), np.repeat(y, repeats)), abs=1e-9
    )


@pytest.mark.parametrize(
    "options", [{}, {"calibration": "isotonic"}, {"multi_class": "ordered"}, {"multi_class": "ovo"}]
)
def test_weights_of_classes_change_probabilities_alone(options):
    """They are the regression of weighted rows left out; balanced, more rows are called rare."""
    rng = np.random.default_rng(14)
    X = rng.normal(size=(300, 2))
    y = np.digitize(X[:, 0] + rng.logistic(size=300), [1.5, 2.5] if "multi_class" in options else [1.5])
    plain, found = (
        pac.AUCClassifier("ridge", gamma="default", class_weight=w, **options).fit(X, y) for w in (None, "balanced")
    )
    np.testing.assert_array_equal(found.coef_, plain.coef_)
    assert found.certificate_ == plain.certificate_
    assert np.mean(found.predict(X) > 0) > np.mean(plain.predict(X) > 0) + 0.1
    if "multi_class" not in options:
        odds = [np.mean(each.predict_proba(X)[:, 1]) for each in (plain, found)]
        assert odds[0] == pytest.approx(np.mean(y), abs=0.02)
        assert odds[1] == pytest.approx(0.5, abs=0.08)
    if not options:
        held_out, weight = cross_fit(plain.scores_[0].posterior, 5), compute_sample_weight("balanced", y)
        by_hand = fit_sigmoid(held_out.ravel(), *(np.tile(each, len(held_out)) for each in (y, weight / len(held_out))))
        np.testing.assert_allclose(found.predict_proba(X)[:, 1], by_hand(plain.scores_[0].standard(X)), atol=1e-9)
    assert pickle.loads(pickle.dumps(found)).report() == found.report()


def test_strata_are_compared_within(rows):
    X, y = rows
    strata = np.arange(len(y)) % 3
    X = StandardScaler().fit_transform(X)
    shifted = X + 20.0 * strata[:, None]  # which no comparison within strata sees
    options = {"gamma": 40.0, "standardize": False, "prior": "ridge"}
    plain, moved = (pac.AUCClassifier(**options).fit(rows, y, strata=strata) for rows in (X, shifted))
    np.testing.assert_allclose(moved.coef_, plain.coef_, rtol=1e-4)


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


def test_probabilities_are_of_rows_that_were_left_out():
    """Scores of each fold are those of a fit to the others, and the sigmoid is that of these scores."""
    rng = np.random.default_rng(11)  # noise that a fit takes for signal
    X, y, weights = rng.normal(size=(90, 20)), rng.permutation(np.arange(90) % 2), rng.integers(1, 6, size=90)
    options = {"gamma": 60.0, "prior": "ridge", "standardize": False}
    found = pac.AUCClassifier(**options).fit(X, y, sample_weight=weights)
    [score] = found.scores_
    pairs = bipartite(y).times(weights / weights.mean())
    assigned = assign_folds(pairs, 5, None, content_order(X - np.average(X, axis=0, weights=weights)))
    held_out = cross_fit(score.posterior, 5)
    for each, fold in zip(held_out, assigned, strict=True):
        for k in range(2):
            train, test = fold != k, fold == k
            without = pac.AUCClassifier(calibration=None, **options).fit(X[train], y[train], weights[train])
            refitted, fitted = without.decision_function(X[test]), found.decision_function(X[test])
            assert np.corrcoef(each[test], refitted)[0, 1] > 0.99
            assert np.corrcoef(fitted, refitted)[0, 1] < 0.9
    sigmoid = fit_sigmoid(held_out.ravel(), np.tile(y, len(held_out)), np.tile(weights / weights.mean(), 4) / 4)
    np.testing.assert_allclose(found.predict_proba(X)[:, 1], sigmoid(score.standard(X)), atol=1e-12)
    assert sigmoid.slope == pytest.approx(LEAST_SLOPE)  # rows left out of noise are ranked by chance, or worse


def test_calibration(rows):
    X, y = rows
    smooth, steps, plain = (
        pac.AUCClassifier(gamma="default", calibration=each).fit(X, y) for each in ("auto", "isotonic", None)
    )
    for found in (smooth, steps):
        positive = found.predict(X) == "well"
        np.testing.assert_array_equal(positive, found.predict_proba(X)[:, 1] > 0.5)
        np.testing.assert_array_equal(positive, found.decision_function(X) > 0)
        np.testing.assert_array_equal(found.predict_log_proba(X), np.log(found.predict_proba(X)))
        ranks = np.argsort(found.decision_function(X))
        np.testing.assert_array_equal(np.argsort(found.predict_proba(X)[:, 1]), ranks)
    assert np.unique(smooth.predict_proba(X)).size > 250
    assert not hasattr(plain, "predict_proba")
    assert 0.3 < np.mean(plain.predict(X) == "well") < 0.7


def test_neither_seed_nor_order_changes_anything(rows):
    X, y = rows
    order = np.random.default_rng(4).permutation(len(y))
    first, other = (
        pac.AUCClassifier(random_state=seed).fit(X[rows], y[rows]) for seed, rows in ((0, slice(None)), (7, order))
    )
    np.testing.assert_allclose(other.predict_proba(X), first.predict_proba(X), atol=1e-6)
    np.testing.assert_allclose(other.coef_sd_, first.coef_sd_, rtol=1e-5)


def test_score_within_strata():
    """A search with strata selects by what the fit compares."""
    rng = np.random.default_rng(5)
    strata = np.arange(240) % 4
    X = rng.normal(size=(240, 2))
    y = X[:, 0] + rng.normal(size=240) > 0
    X[:, 0] += 3.0 * strata
    found = pac.AUCClassifier(gamma="default").fit(X, y, strata=strata)
    within = found.score(X, y, strata=strata)
    assert within == 1 - pac.empirical_risk(found.decision_function(X), y, strata=strata)
    assert within > found.score(X, y) + 0.1
    with sklearn.config_context(enable_metadata_routing=True):
        asked = pac.AUCClassifier().set_fit_request(strata=True).set_score_request(strata=True)
        search = GridSearchCV(asked, {"gamma": [20.0, 80.0]}, cv=3).fit(X, y, strata=strata)
    assert search.best_score_ > found.score(X, y) + 0.1


class Shapes(pickle.Pickler):
    """Notes the shapes of the arrays that it pickles."""

    def __init__(self, found):
        super().__init__(io.BytesIO())
        self.found = []
        self.dump(found)

    def reducer_override(self, obj):
        if isinstance(obj, np.ndarray):
            self.found.append(obj.shape)
        return NotImplemented


@pytest.mark.parametrize("options", [{}, {"method": "smc"}, {"prior": "spike_slab"}, {"multi_class": "ordered"}])
def test_pickles_hold_no_rows(options):
    rng = np.random.default_rng(6)
    X = rng.normal(size=(600, 20))
    y = np.digitize(X[:, 0] + rng.normal(size=600), [-0.5, 0.5] if "multi_class" in options else [0.0])
    found = pac.AUCClassifier(gamma="default", **options).fit(X, y)
    kept = pickle.dumps(found)
    assert len(kept) < 100_000
    assert not any(600 in shape for shape in Shapes(found).found)
    values = {each.tobytes() for each in X[:, :1]}
    assert not any(value in kept for value in values)
    loaded = pickle.loads(kept)
    np.testing.assert_array_equal(loaded.predict_proba(X), found.predict_proba(X))
    np.testing.assert_allclose(loaded.predict_interval(X[:5]), found.predict_interval(X[:5]))
    np.testing.assert_allclose(loaded.coef_sd_, found.coef_sd_)
    np.testing.assert_array_equal(loaded.inclusion_probability_, found.inclusion_probability_)
    if "prior" not in options:
        np.testing.assert_equal(vars(loaded.certificate_), vars(found.certificate_))  # NaN of ordered classes too
    assert "ROC" in loaded.report()
    with pytest.raises(AttributeError, match="keep_data=True"):
        loaded.approximation_  # noqa: B018
    assert len(pickle.dumps(loaded)) <= len(kept) + 100


def test_data_are_kept_where_asked_for(rows):
    found = pickle.loads(pickle.dumps(pac.AUCClassifier(gamma="default", keep_data=True).fit(*rows)))
    assert found.approximation_.problem.n == 150


def test_results_of_an_estimator(rows):
    pytest.importorskip("pymc")
    found = pac.AUCClassifier(gamma="default").fit(*rows)
    assert pac.certificate(found) == found.certificate_
    assert pac.certificate(found, 0.01).auc < found.certificate_.auc
    assert pac.certificate(found.idata_).auc == pytest.approx(found.certificate_.auc)
    table = pac.summary(found)
    np.testing.assert_allclose(table["sd"], found.coef_sd_[0], atol=5e-4)
    assert table.attrs["certificate"] == found.certificate_
    left = pac.leave_out(found, np.arange(150) % 5)
    assert left.auc == pytest.approx(found.approximation_.leave_out(np.arange(150) % 5).auc)
    with pytest.raises(TypeError, match="keep_data=True"):
        pac.leave_out(pickle.loads(pickle.dumps(found)))


def test_sparse_rows(rows):
    X, y = rows
    found, same = (pac.AUCClassifier(gamma="default").fit(each, y) for each in (csr_array(X), X))
    np.testing.assert_array_equal(found.predict_proba(csr_array(X)), same.predict_proba(X))


def test_groups_are_the_independent_units():
    """Six rows of each of 40 patients, all of noise: more rows of the same patients certify nothing."""
    rng = np.random.default_rng(3)
    patient = np.repeat(np.arange(40), 6)
    X = rng.normal(size=(40, 3))[patient] + 0.3 * rng.normal(size=(240, 3))
    y = (rng.permutation(40) < 20)[patient]
    rows, groups = (pac.AUCClassifier(gamma="default").fit(X, y, groups=each) for each in (None, patient))
    assert rows.certificate_.m == 120
    assert groups.certificate_.m == 20
    assert groups.certificate_.auc < 0.5 < groups.certificate_.empirical_auc
    assert pac.certificate(rows, groups=patient).auc < 0.5
    assert np.median(groups.coef_sd_ / rows.coef_sd_) > 1.5
    times = np.column_stack([y, rng.exponential(size=240)])
    assert pac.ConcordanceEstimator(gamma="default").fit(X, times, groups=patient).certificate_.groups == 40


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
        found = pac.AUCClassifier("ridge", calibration=None).fit(X[:n], y[:n])
        return found.gamma_ * n / (y[:n].sum() * (~y[:n]).sum())

    assert in_units(2000) == pytest.approx(in_units(500), rel=1e-6)


def test_more_than_two_classes():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(210, 2))
    y = np.digitize(X[:, 0] + 0.5 * rng.normal(size=210), [-0.7, 0.7])
    ovo = pac.AUCClassifier(gamma="default").fit(X, y)
    assert ovo.coef_.shape == (3, 2)
    assert len(ovo.gamma_) == 3
    assert ovo.decision_function(X).shape == (210, 3)
    assert ovo.score(X, y) == pytest.approx(
        np.mean(
            [
                roc_auc_score(y[np.isin(y, (k, other))] == k, ovo.decision_function(X)[np.isin(y, (k, other)), k])
                for k in range(3)
                for other in range(3)
                if other != k
            ]
        )
    )
    strata = np.arange(210) % 2
    within = [ovo.score(X[strata == k], y[strata == k]) for k in (0, 1)]
    assert ovo.score(X, y, strata=strata) == pytest.approx(np.mean(within), abs=0.02)
    assert ovo.score(X, y, strata=np.zeros(210)) == pytest.approx(ovo.score(X, y), abs=1e-12)
    ordered = pac.AUCClassifier(gamma="default", multi_class="ordered").fit(X, y)
    assert ordered.coef_.shape == (1, 2)
    assert ordered.score(X, y) == 1 - pac.empirical_risk(ordered.decision_function(X), y, ordered=True) > 0.9
    probability = ordered.predict_proba(X)
    assert probability.shape == (210, 3)
    assert probability.min() >= 0
    np.testing.assert_allclose(probability.sum(axis=1), 1.0)
    assert np.mean(ordered.predict(X) == y) > 0.7
    with pytest.raises(ValueError, match="one score"):
        ovo.predict_interval(X)


def test_every_class_weighs_the_same_and_m_is_certified():
    """However rare: M is a mean over pairs of classes. Each of K certificates may fail with probability 0.05 / K."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(200, 2))
    y = np.digitize(X[:, 0] + 0.5 * rng.normal(size=200), [0.5, 1.5])
    fitted = pac.AUCClassifier("ridge", gamma="default").fit(X, y)
    for k, (approximation, certified) in enumerate(zip(fitted.approximation_, fitted.certificate_, strict=True)):
        weight = np.bincount(y, approximation.problem.pairs.observation_weight)
        np.testing.assert_allclose(weight / weight[k], np.where(np.arange(3) == k, 1.0, 0.5))
        smallest = np.bincount(y)[np.arange(3) != k].min()
        assert effective_size(approximation.problem.pairs) == pytest.approx(min(np.sum(y == k), 2 * smallest))
        assert certified.epsilon == pytest.approx(0.05 / 3)
    whole = pac.certificate(fitted)
    assert whole.auc == pytest.approx(np.mean([each.auc for each in fitted.certificate_]), abs=1e-12)
    assert (whole.epsilon, whole.comparison, whole.gamma) == (0.05, "unordered classes", sum(fitted.gamma_))
    assert "200 observations" in repr(whole)
    assert "Each of the 3 scores is certified at epsilon / 3" in repr(whole)
    patient = np.arange(200) // 2
    grouped = [pac.certificate(each, 0.1 / 3, groups=patient) for each in fitted.approximation_]
    found = pac.certificate(fitted, 0.1, groups=patient)
    assert found.auc == pytest.approx(np.mean([each.auc for each in grouped]), abs=1e-12)
    assert found.groups == 100
    with pytest.raises(TypeError, match=r"result averages posteriors \(prior=.auto.\): pass"):
        pac.certificate(pac.AUCClassifier("auto", gamma="default").fit(X[::4], y[::4]))


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
        classifier.set_score_request(sample_weight=True, strata=True)
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
        ({"calibration": "beta"}, "calibration must be one of"),
        ({"keep_data": "yes"}, "keep_data must be True or False"),
        ({"class_weight": "balanced", "calibration": None}, "class_weight= is for probabilities"),
        ({"class_weight": "even"}, "class_weight"),
        ({"multi_class": "ovr"}, "multi_class must be one of"),
        ({"standardize": "robust"}, "standardize must be True or False; got 'robust'"),
        (
            {"gamma": "coverage", "sample_weight": np.arange(150.0)},
            "gamma can be calibrated to coverage for two classes",
        ),
        ({"gamma": "coverage", "X": np.ones((150, 2))}, "X gives all rows the same score"),
        ({"prior": "gp", "X": np.ones((150, 2))}, "X has equal rows only"),
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


@pytest.mark.slow
def test_dependent_columns():
    """Of these rows, in which categories have a column each, LAPACK's gesdd finds no singular values."""
    data = pac.datasets.load_credit()
    train, new = list(StratifiedKFold(5, shuffle=True, random_state=1).split(data.X, data.y))[3]
    found = pac.AUCClassifier().fit(data.X[train], data.y[train])
    assert found.score(data.X[new], data.y[new]) > 0.7


@pytest.mark.slow
def test_spikes_on_many_rows():
    rng = np.random.default_rng(8)
    X = rng.normal(
        size=(700, 3)
    )  # more rows than prior and gamma are chosen by: the final fit is to other pairs than those tuned by
    y = X[:, 0] + rng.normal(size=700) > 0
    found = pac.AUCClassifier("spike_slab").fit(X, y)
    assert found.inclusion_probability_[0, 0] > 0.9


def test_few_positives_have_few_folds():
    X = np.random.default_rng(5).normal(size=(40, 2))
    y = np.arange(40) < 3
    with pytest.warns(UserWarning, match="rows for 3 folds only"):
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
    assert pac.certificate(idata).selected_from == 4
    centred = rows[0] - fitted.scores_[0].posterior.columns.center
    np.testing.assert_allclose(pac.predict_scores(idata, rows[0])[0], draws[0].values @ centred.T, atol=1e-9)
    fixed = [pac.AUCClassifier(gamma=40.0, prior="ridge", method=method).fit(*rows) for method in ("ep", "smc")]
    for each in fixed:
        assert pac.certificate(each.idata_).auc == pytest.approx(each.certificate_.auc)


def test_pairs_of_many_rows_are_subsampled():
    """Of 3000 rows one pair in ten, without changing what it learns: against the fit to all pairs, on arrays."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(3000, 5))
    y = X[:, 0] - 0.5 * X[:, 1] + 2.0 * rng.logistic(size=3000) > 0.5
    found = pac.AUCClassifier(gamma=2000.0, prior="ridge").fit(X, y)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    every = fit(linear_gaussian_problem(Z, y, 2000.0), pairs="all")
    assert found.approximation_.pairs_used < 0.15 * every.problem.pairs.n_pairs
    off = (found.coef_[0] * X.std(axis=0) - every.posterior.mean) / np.sqrt(every.posterior.variance)
    claimed = found.approximation_.sampling_error.mean
    assert claimed < 0.1
    assert 0.0 < np.sqrt(np.mean(off**2)) < 2.0 * claimed  # chi-squared of 5: beyond in one data set in 800


def test_a_large_error_of_a_subsample_is_told_by_options_of_the_estimator(monkeypatch):
    rng = np.random.default_rng(7)
    X = rng.normal(size=(1600, 2))
    monkeypatch.setattr("pymc_pacauc.ep.results.LARGE_EVIDENCE_ERROR", 1e-6)
    message = r'subsample of .* of 640000 pairs .* nats in log Z: .* Lower gamma, or use method="smc".$'
    with pytest.warns(ConvergenceWarning, match=message):
        pac.AUCClassifier("ridge", gamma=100.0).fit(X, np.arange(1600) % 2)


@pytest.mark.parametrize(
    ("prior", "method"), [("gaussian", "ep"), ("spike_slab", "ep"), ("ridge", "smc"), ("ridge", "vb"), ("auto", "ep")]
)
def test_warnings_name_options_that_there_are(prior, method, monkeypatch):
    """A fit that does not converge is warned of by options of the estimator: it has no max_sweeps, p or v0.

    Nor is there another method for spikes and averages, or where it is SMC already.
    """
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 3))
    monkeypatch.setattr(posterior, "fit", lambda *args, **options: fitting.fit(*args, **{**options, "max_sweeps": 2}))
    with pytest.warns(ConvergenceWarning, match="did not converge") as caught:
        pac.AUCClassifier(prior, method=method, gamma=60.0).fit(X, X[:, 0] + rng.normal(size=60) > 0.0)
    for each in caught:
        if "did not converge in" in str(each.message):
            named = re.findall(r"(?:Lower|raise|use) (\w+)", str(each.message))
            assert named == (["gamma", "method"] if prior in ("gaussian", "ridge") and method != "smc" else ["gamma"])


def test_what_is_wrong_with_draws_is_told_by_options_of_the_estimator(monkeypatch):
    """It has no particles, moves or starts to choose."""
    X = np.random.default_rng(1).normal(size=(40, 2))
    monkeypatch.setattr("pymc_pacauc.smc.tempering.COLLAPSED_ACCEPTANCE", 1.1)  # every move is rejected too often
    with pytest.warns(TemperingWarning) as caught:
        pac.AUCClassifier("ridge", method="smc", gamma=10.0, calibration=None).fit(X, X[:, 0] > 0.0)
    [told] = [str(each.message) for each in caught if each.category is TemperingWarning]
    assert re.fullmatch(r"Draws of 1000 particles may .* Lower gamma, or write the model in PyMC .*", told)


def test_scores_that_hardly_rank_leave_the_base_rate():
    """Where the score tells nothing, 60 rows have the log-loss of their base rate, or nearly; not where it tells."""
    rng, at = np.random.default_rng(15), np.linspace(-2.5, 2.5, 101)
    above = {0.0: [], 2.0: []}
    for slope, found in above.items():
        truth = 1 / (1 + np.exp(-slope * at))
        for _ in range(40):
            scores = rng.normal(size=60)
            y = (rng.random(60) < 1 / (1 + np.exp(-slope * scores))).astype(float)
            p = [fit_sigmoid(scores, y, np.ones(60))(at), np.full(101, y.mean())]
            losses = [
                np.average(-truth * np.log(q) - (1 - truth) * np.log1p(-q), weights=np.exp(-(at**2) / 2)) for q in p
            ]
            found.append(losses[0] - losses[1])
    assert np.median(above[0.0]) < 1e-4
    assert np.mean(above[0.0]) < 0.005  # 0.008 by maximum likelihood: half a degree of freedom in 60 rows
    assert np.max(above[2.0]) < -0.1


def test_additive_scores_of_two_valued_columns_are_linear_ones():
    rng = np.random.default_rng(5)
    X = rng.integers(0, 2, size=(120, 4)).astype(float)
    y = X @ [2.0, -1.0, 0.5, 0.0] + rng.normal(size=120) > 0.5
    linear, additive = (pac.AUCClassifier(prior).fit(X, y) for prior in ("gaussian", "additive"))
    assert additive.gamma_ == pytest.approx(linear.gamma_)
    np.testing.assert_allclose(additive.decision_function(X), linear.decision_function(X), atol=1e-9)
    assert not hasattr(additive, "coef_")
    assert additive.certificate_.auc == pytest.approx(linear.certificate_.auc)


def test_functions_of_columns_add_up():
    rng = np.random.default_rng(6)
    X = np.column_stack([np.exp(rng.normal(size=150)), rng.integers(0, 4, size=150)])
    y = np.log(X[:, 0]) ** 2 + (X[:, 1] == 2) + 0.5 * rng.normal(size=150) > 1.0
    classifier = pac.AUCClassifier("additive").fit(X, y)
    assert classifier.score(X, y) > pac.AUCClassifier().fit(X, y).score(X, y) + 0.1
    parts = [np.interp(x, *shape[:2]) for x, shape in zip(X.T, classifier.scores_[0].posterior.shapes(), strict=True)]
    np.testing.assert_allclose(np.ptp(classifier.decision_function(X) - sum(parts)), 0.0, atol=1e-9)
    copy = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_allclose(copy.decision_function(X), classifier.decision_function(X))
    np.testing.assert_allclose(copy.scores_[0].posterior.shapes()[0], classifier.scores_[0].posterior.shapes()[0])
    assert "Functions of the columns" in copy.report()
    with pytest.raises(ValueError, match='prior="additive" has a function'):
        pac.plots.plot_shapes(pac.AUCClassifier(gamma=9.0).fit(X, y))
    with pytest.raises(ValueError, match="columns has 'age'"):
        pac.plots.plot_shapes(classifier, columns=["age"])


@pytest.mark.parametrize("gamma", ["default", 20.0])
def test_one_row_of_a_class_is_enough_where_none_is_left_out(gamma):
    X = np.random.default_rng(1).normal(size=(20, 2))
    y = np.arange(20) == X[:, 0].argmax()
    found = pac.AUCClassifier("ridge", gamma=gamma, calibration=None).fit(X, y)
    assert found.decision_function(X).argmax() == X[:, 0].argmax()
    for options in ({"gamma": gamma}, {"calibration": None}):
        with pytest.raises(ValueError, match="only 1 member"):
            pac.AUCClassifier("ridge", **options).fit(X, y)


def test_what_is_asked_of_a_fitted_classifier_in_vain():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(60, 2)), np.arange(60) % 3
    options = {"prior": "ridge", "gamma": 20.0, "calibration": None}
    several, one = pac.AUCClassifier(**options).fit(X, y), pac.AUCClassifier(**options).fit(X, y > 0)
    curved = pac.AUCClassifier("additive", gamma=20.0, calibration=None).fit(X, y > 0)
    named = pac.AUCClassifier(multi_class="ordered")
    for call, message in {
        lambda: several.decision_function(X, return_std=True): "return_std=True is for one score",
        lambda: several.score(X, y, strata=y): "strata leaves no pair to compare",
        lambda: named.fit(X, np.array(["low", "mid", "high"])[y]): "not high < low < mid of the alphabet",
        lambda: several.export(): "there is one for each of 3 classes",
        lambda: several.predict_interval(X): "is for one score; use scores_",
        lambda: one.score(X, np.ones(60, dtype=bool)): "Only one class is present",
        lambda: one.predict_interval(X, 1.0): "ci_prob must lie strictly between 0 and 1; got 1.0",
        lambda: one.fit(X, y > 0, np.zeros(60)): "zero",  # scikit-learn may say it first
        lambda: pac.AUCClassifier("ridge").fit(X, y > 0, groups=y > 0): "two observations .or groups. of each class",
        lambda: pac.AUCClassifier("spike_slab", method="vb").fit(X, y > 0): 'prior="spike_slab" needs method="ep"',
    }.items():
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(AttributeError, match="coef_sd_ is for scores that are linear in X"):
        curved.coef_sd_  # noqa: B018
