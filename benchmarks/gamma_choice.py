"""Choosing gamma as the paper does, by the highest cross-validated AUC over a fine grid that holds every useful gamma.

The grid begins where the posterior is all but the prior and ends where a single wrong pair costs about one nat (gamma =
n+ n-); beyond that, posteriors differ only in how strictly the best orders are kept. Only a gamma that converged, with
all rows and in every fold, can be chosen. (`pac.select_gamma` has a smaller grid and another rule.)
"""

from dataclasses import dataclass, replace

import numpy as np

from pymc_pacauc import fitting
from pymc_pacauc.comparison.folds import comparison_folds
from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.ep.leave_out import split_groups
from pymc_pacauc.fitting import fits_along
from pymc_pacauc.problem.problem import linear_gaussian_problem

FOLDS = 5
SMALLEST = 0.25  # times n+ n- / n
MOST_SWEEPS = 100
FOLD_TOLERANCE = 1e-3


def gamma_grid(y, every=1):
    """Steps of a factor sqrt(2) from 0.25 n+ n- / n up to n+ n-; ``every`` second, third, ... of them."""
    pairs, n = bipartite(y).n_pairs, len(y)
    steps = np.arange(np.floor(2 * np.log2(n / SMALLEST)) + 1)[::every]
    return SMALLEST * pairs / n * 2.0 ** (steps / 2)


def fit(design, y, gamma, **options):
    """EP for scores ``design @ w``, w ~ N(0, I)."""
    return fitting.fit(linear_gaussian_problem(design, y, gamma), max_sweeps=MOST_SWEEPS, n_jobs=1, **options)


@dataclass(frozen=True)
class HeldOut:
    """Mean held-out AUC at each gamma that converged in every fold: of the posterior's mean, and of a draw from it."""

    gammas: np.ndarray
    of_mean: np.ndarray
    expected: np.ndarray

    def best(self, criterion):
        return float(self.gammas[getattr(self, criterion).argmax()])


def cross_validate(design, y, gammas, rng, repeats=1):
    """Held-out AUC over stratified folds, assigned ``repeats`` times."""
    problem = linear_gaussian_problem(design, y, gammas[0])
    number = min(FOLDS, int(np.sum(y > 0)))
    folds = [split_groups(problem.pairs, comparison_folds(problem.pairs, number, rng)) for _ in range(repeats)]
    options = {"refine": MOST_SWEEPS, "tolerance": FOLD_TOLERANCE, "n_jobs": 1}
    good = []
    along = [replace(problem, gamma=float(gamma)) for gamma in gammas]
    for at in fits_along(along, accuracy="path", n_jobs=1):
        left = [at.leave_out(each, gamma=at.problem.gamma, **options) for each in folds]
        if at.converged and max(each.change.max() for each in left) < FOLD_TOLERANCE:
            aucs = [[each.group_auc.mean(), each.group_expected_auc.mean()] for each in left]
            good.append((at.problem.gamma, *np.mean(aucs, axis=0)))
    return HeldOut(*np.array(good).reshape(-1, 3).T)
