"""Choosing gamma by cross-validation: the grid, the path of EP fits along it, and what is measured on held-out rows.

The grid begins where the posterior is all but the prior and ends where a single wrong pair costs about one nat (gamma =
n+ n-); beyond that, posteriors differ only in how strictly the best orders are kept. A path ends where EP does not
converge any more, and only a gamma that converged in every fold can be chosen.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr

import pymc_pacauc as pac
from pymc_pacauc.core.folds import stratified_folds
from pymc_pacauc.core.problem import linear_gaussian_problem
from pymc_pacauc.ep import fit_ep

FOLDS = 5
SMALLEST = 0.25  # times n+ n- / n
MOST_SWEEPS = 100


def gamma_grid(y, every=1):
    """Steps of a factor sqrt(2) from 0.25 n+ n- / n up to n+ n-; ``every`` second, third, ... of them."""
    pairs, n = np.sum(y > 0) * np.sum(y == 0), len(y)
    steps = np.arange(np.floor(2 * np.log2(n / SMALLEST)) + 1)[::every]
    return SMALLEST * pairs / n * 2.0 ** (steps / 2)


def fit(design, y, gamma, **options):
    """EP for scores ``design @ w``, w ~ N(0, I)."""
    return fit_ep(linear_gaussian_problem(design, y, gamma), max_sweeps=MOST_SWEEPS, threads=1, **options)


def path(design, y, gammas):
    """Posteriors along gamma, each fit starting from the one before, for as long as they converge."""
    problem, last = linear_gaussian_problem(design, y, gammas[0]), None
    for gamma in gammas:
        last = fit_ep(replace(problem, gamma=gamma), start=last, tolerance=1e-3, max_sweeps=MOST_SWEEPS, threads=1)
        if not last.converged:
            return
        yield last.posterior


@dataclass(frozen=True)
class HeldOut:
    """Mean held-out AUC at each gamma that converged in every fold: of the posterior's mean, and of a draw from it."""

    gammas: np.ndarray
    of_mean: np.ndarray
    expected: np.ndarray

    def best(self, criterion):
        return float(self.gammas[getattr(self, criterion).argmax()])


def cross_validate(design, y, gammas, rng, repeats=1):
    """Held-out AUC over stratified folds, dealt ``repeats`` times."""
    found = []
    for _ in range(repeats):
        fold = stratified_folds(y > 0, min(FOLDS, int(y.sum())), rng)
        for k in range(fold.max() + 1):
            inside, labels, out = fold != k, y[fold == k], design[fold == k]
            posteriors = path(design[inside], y[inside], gammas)
            found.append([(auc_of_mean(q, out, labels), expected_auc(q, out, labels)) for q in posteriors])
    reached = min(len(values) for values in found)
    of_mean, expected = np.array([values[:reached] for values in found]).mean(axis=0).T
    return HeldOut(gammas[:reached], of_mean, expected)


def auc_of_mean(posterior, design, y):
    return float(1.0 - pac.empirical_risk(design @ posterior.mean, y))


def expected_auc(posterior, design, y):
    """AUC of a score drawn from the Gaussian posterior, averaged over draws in closed form; the theorems bound this."""
    mean, covariance = posterior.moments_of(design)
    i, j = np.flatnonzero(y > 0)[:, None], np.flatnonzero(y == 0)[None]
    variance = np.diagonal(covariance)[i] + np.diagonal(covariance)[j] - 2 * covariance[i, j]
    tied = variance <= 1e-12 * np.diagonal(covariance).max()
    return float(np.where(tied, 0.5, ndtr((mean[i] - mean[j]) / np.sqrt(np.where(tied, 1.0, variance)))).mean())
