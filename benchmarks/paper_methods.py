"""The four methods of the paper's tables, with their hyper-parameters chosen on the training rows.

Each takes training rows, labels, test rows and a generator, and gives the test rows' scores, the CPU seconds of the fit
at the chosen hyper-parameters, and what was chosen; the two by EP do so for each of two ways to choose.
"""

from dataclasses import dataclass
from time import process_time

import numpy as np
from scipy.spatial.distance import cdist, pdist

import pymc_pacauc as pac
from benchmarks.baselines import fit_bayesian_logit, fit_rankboost
from benchmarks.gamma_choice import FOLDS, cross_validate, fit, gamma_grid
from pymc_pacauc.comparison.folds import comparison_folds
from pymc_pacauc.comparison.pairs import bipartite

LENGTHSCALES = 2.0 ** np.arange(5)  # times the median distance between training rows
MOST_ROUNDS = 300


@dataclass(frozen=True)
class Fitted:
    """Scores of the test rows, CPU seconds of the fit at the chosen hyper-parameters, and what was chosen."""

    scores: np.ndarray
    seconds: float
    chosen: dict[str, float]


def ep_auc(X, y, X_test, rng, repeats=2, every=1, criteria=("expected", "of_mean")):
    """Linear scores, prior N(0, I): its scale changes no ranking, so it is not chosen. One result per criterion."""
    held_out = cross_validate(X, y, gamma_grid(y, every), rng, repeats)
    results = []
    for criterion in criteria:
        gamma = held_out.best(criterion)
        began = process_time()
        scores = X_test @ fit(X, y, gamma).posterior.mean
        results.append(Fitted(scores, process_time() - began, {"gamma": gamma}))
    return results


def gpep_auc(X, y, X_test, rng):
    """Gaussian-process scores, squared exponential kernel: at the lengthscale of largest evidence, and averaged.

    Lengthscales are compared by EP evidence at gamma = n, where EP converges; gamma is chosen by cross-validation at
    the best of them. The average of scores has weights proportional to the evidence. The kernel's amplitude is a common
    scale of the prior and changes no ranking.
    """
    distance = float(np.median(pdist(X)))
    features, evidence = {}, {}
    for length in distance * LENGTHSCALES:
        design = kernel_features(X, X_test, length)[0]
        found = fit(design, y, float(len(y)), tolerance=1e-3)
        if found.converged:
            features[length], evidence[length] = design, found.log_evidence
    best = max(evidence, key=evidence.get)
    gamma = cross_validate(features[best], y, gamma_grid(y, every=2), rng).best("expected")
    scores, seconds = {}, {}
    for length in evidence:
        began = process_time()
        design, test_design = kernel_features(X, X_test, length)
        scores[length] = test_design @ fit(design, y, gamma).posterior.mean
        seconds[length] = process_time() - began
    weight = {length: np.exp(value - evidence[best]) for length, value in evidence.items()}
    total = sum(weight.values())
    average = sum(weight[length] * scores[length] for length in scores) / total
    chosen = {"gamma": gamma, "lengthscale / median distance": best / distance}
    return [
        Fitted(scores[best], seconds[best], chosen),
        Fitted(average, sum(seconds.values()), {"gamma": gamma, "weight of the best": 1 / total}),
    ]


def kernel_features(X, X_new, lengthscale):
    """Features F with F F' = K (centred, as constants rank nothing), and their values at new rows: scores are F w."""
    kernel, new = squared_exponential(X, X, lengthscale), squared_exponential(X_new, X, lengthscale)
    column = kernel.mean(axis=0)
    kernel = kernel - column - kernel.mean(axis=1)[:, None] + kernel.mean()
    new = new - column - new.mean(axis=1)[:, None] + column.mean()
    values, vectors = np.linalg.eigh(kernel)
    kept = values > 1e-6 * values[-1]
    scale = np.sqrt(values[kept])
    return vectors[:, kept] * scale, new @ vectors[:, kept] / scale


def squared_exponential(A, B, lengthscale):
    return np.exp(-0.5 * cdist(A, B, "sqeuclidean") / lengthscale**2)


def logit(X, y, X_test, rng):
    began = process_time()
    posterior = fit_bayesian_logit(X, y)
    scores = posterior.scores(X_test)
    return Fitted(scores, process_time() - began, {"prior scale": posterior.prior_scale})


def rankboost(X, y, X_test, rng):
    """The number of rounds by cross-validation."""
    fold = comparison_folds(bipartite(y > 0), min(FOLDS, int(y.sum())), rng)
    held_out = np.zeros(MOST_ROUNDS)
    for k in range(fold.max() + 1):
        inside, out = fold != k, fold == k
        staged = fit_rankboost(X[inside], y[inside], MOST_ROUNDS).staged_scores(X[out])
        auc = 1.0 - pac.empirical_risk(staged, y[out])
        held_out += np.append(auc, np.full(MOST_ROUNDS - auc.size, auc[-1]))  # it may stop early
    rounds = int(held_out.argmax()) + 1
    began = process_time()
    scores = fit_rankboost(X, y, rounds).scores(X_test)
    return Fitted(scores, process_time() - began, {"rounds": rounds})
