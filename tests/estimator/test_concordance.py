import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pymc_pacauc as pac
from pymc_pacauc.comparison.censored import concordance
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem.problem import linear_gaussian_problem
from tests.estimator.test_auc_classifier import checked
from tests.pair_lists import listed, listed_risk


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(120, 3))
    time, censored = rng.exponential(np.exp(-1.2 * X[:, 0])), rng.exponential(2.0, size=120)
    return X, time <= censored, np.minimum(time, censored)


class Uncensored(pac.ConcordanceEstimator):
    """Any numbers are times, and all are events: for checks that know nothing of censoring."""

    def fit(self, X, y, sample_weight=None):
        if y is None:
            return super().fit(X, y)
        y = np.asarray(y)
        if y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]
        if y.dtype == object:
            y = y.astype(float)
        ranks = np.unique(y, return_inverse=True)[1]
        return super().fit(X, np.column_stack([np.ones(len(y)), ranks]), sample_weight)

    def score(self, X, y):
        return super().score(X, np.column_stack([np.ones(len(y)), np.unique(y, return_inverse=True)[1]]))


@pytest.mark.filterwarnings("ignore")
@checked([Uncensored(gamma="default")])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def test_it_is_the_fit_on_arrays(rows):
    X, event, time = rows
    found = pac.ConcordanceEstimator(gamma=30.0, prior="ridge").fit(X, np.column_stack([event, time]))
    expected = fit(linear_gaussian_problem((X - X.mean(axis=0)) / X.std(axis=0), concordance(time, event), 30.0))
    np.testing.assert_allclose(found.coef_ * X.std(axis=0), expected.posterior.mean)
    assert found.score(X, np.column_stack([event, time])) == 1 - pac.concordance_risk(found.predict(X), time, event)
    mean, sd = found.predict(X, return_std=True)
    np.testing.assert_allclose(found.predict_interval(X, 0.5).mean(axis=1), mean)
    assert (sd > 0).all()


def test_shapes_of_what_is_found(rows):
    X, event, time = rows
    found = pac.ConcordanceEstimator("spike_slab", gamma=30.0).fit(X, np.column_stack([event, time]))
    assert found.coef_.shape == found.coef_sd_.shape == found.inclusion_probability_.shape == (3,)


def test_forms_of_y(rows):
    X, event, time = rows
    structured = np.array(list(zip(event, time, strict=True)), dtype=[("cens", bool), ("time", float)])
    frame = pd.DataFrame({"event": event, "time": time})
    found = [pac.ConcordanceEstimator(gamma=30.0).fit(X, y).coef_ for y in (structured, frame, frame.to_numpy(float))]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_gamma_by_cross_validation_in_a_pipeline(rows):
    X, event, time = rows
    y = np.column_stack([event, time])
    found = cross_val_score(make_pipeline(StandardScaler(), pac.ConcordanceEstimator()), X[:80], y[:80], cv=2)
    assert found.mean() > 0.6
    uno = pac.ConcordanceEstimator(gamma="default", weights="ipcw", tau=2.0).fit(X, y)
    assert uno.score(X, y) == 1 - pac.concordance_risk(uno.predict(X), time, event, weights="ipcw", tau=2.0)


def test_weights_and_strata_of_scores(rows):
    """Whole weights are repeated rows; beside the weights of observations there are still those of Uno's C."""
    X, event, time = rows
    y, count = np.column_stack([event, time]), np.arange(len(X)) % 3
    found, strata = pac.ConcordanceEstimator(gamma=30.0).fit(X, y), np.arange(len(X)) // 40
    again = np.repeat(np.arange(len(X)), count)
    for options in ({}, {"strata": strata}):
        repeated = {name: each[again] for name, each in options.items()}
        assert found.score(X, y, count, **options) == pytest.approx(found.score(X[again], y[again], **repeated))
        risk = pac.concordance_risk(found.predict(X), time, event, **options)
        assert found.score(X, y, **options) == pytest.approx(1 - risk)
    uno = pac.ConcordanceEstimator(gamma=30.0, weights="ipcw", tau=1.0).fit(X, y)
    assert uno.score(X, y, np.full(len(X), 2.0)) == pytest.approx(uno.score(X, y))
    weights = 1.0 + count
    pairs = concordance(time, event, weights="ipcw", tau=1.0).times(weights)
    assert uno.score(X, y, weights) == pytest.approx(1 - listed_risk(uno.predict(X), listed(pairs)))
    with pytest.raises(ValueError, match=r"strata must have shape \(120,\)"):
        found.score(X, y, strata=strata[1:])


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (lambda event, time: time, "event and the time of each sample"),
        (lambda event, time: None, "requires y to be passed"),
        (lambda event, time: np.column_stack([time, event]), "exchange them"),
        (lambda event, time: np.column_stack([np.ceil(9 * time), 2 * event]), "codes of events, 0 to 2: exchange them"),
        (lambda event, time: np.column_stack([event, time])[:-1], "inconsistent numbers of samples"),
        (lambda event, time: np.column_stack([event * 0, time]), "event has no event"),
        (lambda event, time: np.column_stack([event, -time]), "negative value"),
        (lambda event, time: np.column_stack([event, time * np.nan]), "time"),
        (lambda event, time: pd.DataFrame({"event": event, "time": pd.to_timedelta(time, "D")}), "time must be"),
        (
            lambda event, time: pd.DataFrame({"event": pd.array([None, *event[1:]], "boolean"), "time": time}),
            "event must",
        ),
    ],
)
def test_bad_times(rows, y, message):
    X, event, time = rows
    estimator = pac.ConcordanceEstimator()
    with pytest.raises(ValueError, match=message):
        estimator.fit(X, y(event, time))
    assert not hasattr(estimator, "n_features_in_")


def test_few_events_have_few_folds(rows):
    X, _, time = rows
    few = np.arange(len(X)) < 3
    with pytest.warns(UserWarning, match="rows for . folds only"):
        pac.ConcordanceEstimator().fit(X, np.column_stack([few, time]))
