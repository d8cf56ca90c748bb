"""The mean over draws of the moment over matchings, where it is known: one coefficient has two rankings only."""

from math import log

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom

from pymc_pacauc.certify import matchings
from pymc_pacauc.certify import matchings as matching_bound
from pymc_pacauc.certify.held_out import MARGIN, with_margin
from pymc_pacauc.certify.matchings import (
    GaussianScores,
    bound_of_draws,
    matching_groups,
    matching_rate,
    mean_log_moment,
    scores_under,
)
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem.problem import linear_gaussian_problem


@pytest.fixture(params=["distinct", "tied", "grouped"])
def one_coefficient(request, monkeypatch):
    """Scores x * theta, theta ~ N(1, 1): their matchings, and E[L] as a function of beta."""
    if request.param == "grouped":
        monkeypatch.setattr(matchings, "LARGEST_GROUP", 8)
    rng = np.random.default_rng(1)
    positive = np.arange(50) % 5 < 2
    x = rng.normal(size=50) + positive
    if request.param == "tied":
        x = np.round(x)
    grouping, sure = matching_groups(positive), ndtr(1.0)
    ways = [grouping.of(sign * x) for sign in (1.0, -1.0)]
    values, kind = np.unique(x, return_inverse=True)
    scores = GaussianScores(x.copy(), values[:, None], kind)
    return scores, grouping, lambda beta: sure * ways[0].log_moment(beta) + (1 - sure) * ways[1].log_moment(beta)


@pytest.mark.parametrize("limit", [20.0, 1.0])
def test_the_lower_bound_fails_as_often_as_it_may(one_coefficient, limit, monkeypatch):
    monkeypatch.setattr(matching_bound, "MOST_DRAWS", 200)
    scores, grouping, exact = one_coefficient
    beta, delta, runs = 3.0, 0.2, 20
    found = [
        mean_log_moment(scores, grouping, beta, limit=limit, delta=delta, rng=np.random.default_rng(k))
        for k in range(runs)
    ]
    estimates, safe, draws = (np.array(each) for each in zip(*found, strict=True))
    assert (draws == 200).all()
    assert estimates.mean() == pytest.approx(exact(beta), abs=4 * estimates.std() / np.sqrt(runs))
    assert (safe < estimates).all()
    assert (safe > exact(beta)).sum() <= binom.ppf(0.999, runs, delta)
    if limit == 20.0:
        assert safe.mean() > exact(beta) - 1.5
        tight = mean_log_moment(scores, grouping, beta, limit=limit, delta=1e-9, rng=np.random.default_rng(0))
        assert tight[1] < safe[0]


def test_of_a_fit(monkeypatch):
    """The same mean from draws of theta, and more draws bring the bound closer to what they estimate."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(90, 3))
    X[60:] = X[:30]  # equal rows of either class
    y = X[:, 0] + rng.normal(size=90) > 0.4
    fitted = fit(linear_gaussian_problem(X, y, 60.0))
    grouping, everybody = matching_groups(y), np.ones(90, dtype=bool)
    scores = scores_under(fitted.problem, fitted.posterior.natural, everybody)
    drawn = np.array([grouping.of(one).log_moment(0.5) for one in fitted.posterior.draw(2000, rng) @ X.T])
    estimate, _, _ = mean_log_moment(scores, grouping, 0.5, limit=40.0, delta=0.005, rng=rng)
    assert estimate == pytest.approx(drawn.mean(), abs=4 * drawn.std() / np.sqrt(2000))
    bounds = [bound_of_draws(scores, fitted.divergence, grouping, 3.0, rng=rng)]
    monkeypatch.setattr(matching_bound, "MOST_DRAWS", 200)
    bounds.append(bound_of_draws(scores, fitted.divergence, grouping, 3.0, rng=rng))
    assert (bounds[0].draws, bounds[1].draws) == (1000, 200)
    assert bounds[0].margin < bounds[1].margin
    assert fitted.expected_risk < bounds[0].risk < bounds[1].risk < 0.6


def test_risk_of_the_mean_from_that_at_a_margin():
    """R(mean) Phi(kappa) <= rho(R at the margin), whatever the Gaussian and the centre; nearly equal for one pair."""
    rng = np.random.default_rng(3)
    closest = np.inf
    for _ in range(300):
        n, k = rng.integers(2, 12), rng.integers(1, 5)
        positive = np.arange(n) < rng.integers(1, n)
        X, centre = rng.normal(size=(n, k)), 2.0 * rng.normal(size=k)
        root = rng.normal(size=(k, k)) * rng.choice([0.01, 0.3, 1.0])
        mean = X @ rng.normal(size=k)
        sd = np.linalg.norm((X - centre) @ root, axis=1)
        shifted = with_margin(GaussianScores(mean, X @ root, np.arange(n)), sd, positive)
        i, j = np.flatnonzero(positive)[:, None], np.flatnonzero(~positive)
        spread = np.linalg.norm((X[i] - X[j]) @ root, axis=2)
        wrong_at_margin = ndtr((shifted.mean[j] - shifted.mean[i]) / spread).mean()
        of_mean = np.mean(mean[i] < mean[j])
        assert of_mean * ndtr(MARGIN) <= wrong_at_margin + 1e-12
        closest = min(closest, wrong_at_margin - of_mean * ndtr(MARGIN))
    assert closest < 0.05


def test_what_a_bound_of_draws_is_made_of(monkeypatch):
    """A tenth of epsilon pays for the draws, shared by the posteriors compared, and the rest for the bound."""
    seen = {}

    def spy(scores, grouping, beta, **options):
        seen.update(options, beta=beta)
        return -3.0, -3.5, 200

    monkeypatch.setattr(matchings, "mean_log_moment", spy)
    grouping, rng = matching_groups(np.arange(60) < 20), np.random.default_rng(0)
    scores = GaussianScores(np.zeros(60), np.zeros((60, 1)), np.arange(60))
    found = bound_of_draws(scores, 2.0, grouping, 4.0, 0.2, rng=rng, compared=5)
    rate = matching_rate(20, 40, 4.0, 0.2)
    assert (found.rate, found.draws) == (rate, 200)
    assert found.margin == pytest.approx(0.5)
    assert seen["beta"] == pytest.approx(rate / 20)
    assert seen["delta"] == pytest.approx(0.1 * 0.2 / 5)
    assert seen["limit"] == pytest.approx(4.0 * (4.0 + log(5.0)))
    assert seen["rng"] is rng
    budget = -3.5 - 2.0 + log(0.18)
    assert found.risk == pytest.approx(min(1.0, np.expm1(budget / 20) / np.expm1(-rate / 20)))


@pytest.mark.parametrize(("m", "draws"), [(2000, 1000), (4000, 500), (20_000, 200)])
def test_large_classes_have_fewer_draws(m, draws, monkeypatch):
    """Two million scores of the smaller class; at least 200 and at most 1000 draws."""
    grouping = matching_groups(np.arange(2 * m) < m)
    made = []

    def draw(self, number, rng):
        made.append(number)
        return np.broadcast_to(self.mean, (number, self.mean.size))

    constant = type("Constant", (), {"log_moment": lambda self, beta: -4.0 * beta, "mean_wrong": 5.0})()
    monkeypatch.setattr(GaussianScores, "draw", draw)
    monkeypatch.setattr(matchings.MatchingGroups, "of", lambda self, scores: constant)
    monkeypatch.setattr(matchings, "expected_pair_auc", lambda mean, root, pairs: 0.75)
    monkeypatch.setattr(matchings, "_matched_pairs", lambda grouping: None)
    scores = GaussianScores(np.zeros(2 * m), np.zeros((1, 1)), np.zeros(2 * m, dtype=np.intp))
    estimate, safe, number = mean_log_moment(scores, grouping, 0.5, limit=10.0, delta=0.1, rng=np.random.default_rng(0))
    assert number == sum(made) == draws
    assert estimate == pytest.approx(0.5 * (5.0 - 4.0) - 0.5 * 0.25 * m)  # the excess, and the mean that is known
    assert safe <= estimate
