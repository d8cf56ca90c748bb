"""Paths of growing gamma end at the fixed points of EP, for every kind of comparison."""

import numpy as np
import pytest

from pymc_pacauc import fitting
from pymc_pacauc.comparison.kinds import label_comparison
from pymc_pacauc.ep.sites import MOST_TABLES
from pymc_pacauc.ep.start import GammaPath
from pymc_pacauc.problem.problem import linear_gaussian_problem

RNG = np.random.default_rng(4)
X = RNG.normal(size=(240, 5)) * [1.0, 1.0, 2.0, 0.5, 1.0]
SCORE = X @ [1.0, -0.5, 0.2, 0.0, 0.0] + RNG.logistic(size=240)
TIED = np.where(np.arange(240)[:, None] % 8 == 0, X[0], X)
WEIGHTS = np.random.default_rng(1).gamma(3.0, size=240)
COMPARISONS = {
    "two classes": (X, label_comparison(SCORE > 0.5), 0.0),
    "ordered": (X, label_comparison(np.digitize(SCORE, [-1.0, 1.0]), ordered=True), 0.0),
    "strata": (X, label_comparison(SCORE > 0.5, strata=np.arange(240) % 3), 0.0),
    "offset": (X, label_comparison(SCORE > 0.5), X[:, 0]),
    "equal rows": (TIED, label_comparison(SCORE > 0.5), 0.0),
    "weights": (X, label_comparison(SCORE > 0.5, weights=WEIGHTS), 0.0),
    "many weights": (X, label_comparison(SCORE > 0.5, strata=np.arange(240) // 3, weights=WEIGHTS), 0.0),
}


@pytest.mark.parametrize("kind", COMPARISONS)
@pytest.mark.parametrize("power", [1.0, 0.0])
def test_the_fixed_points_are_those_of_ep(kind, power):
    X, pairs, offset = COMPARISONS[kind]
    problem = linear_gaussian_problem(X, pairs, gamma=40.0, offset=offset)
    exact = fitting.fit(problem, "ep" if power else "vb").posterior.natural
    found = GammaPath(problem, power, pairs_per_row=np.inf).at(40.0, 60, 1e-4)
    assert found.converged
    assert np.abs(exact.factor.T @ (found.q.mean - exact.mean)).max() < 1e-3
    np.testing.assert_allclose(found.q.covariance, exact.covariance, atol=1e-3 * np.abs(exact.covariance).max())


def test_there_are_more_weights_than_tables():
    assert len(COMPARISONS["many weights"][1].blocks) > MOST_TABLES
