"""Rare positives: where ranking by the AUC risk beats log-loss, and where it does not.

    python -m benchmarks.imbalance [--replicates 20]

All scores are linear. Glass has 4 % positives; the simulated data have about 1 %, in eight skewed, correlated
measurements like the sizes and weights of abalone. What differs is how the chance of a positive depends on the score:

logistic      the logistic model is true
step          the chance jumps at a threshold of the score: monotone, but no logistic curve
gross errors  logistic, but 1 % of the negative training rows are recorded ten times too large
"""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse
import warnings
from time import process_time

import numpy as np

import pymc_pacauc as pac
from benchmarks.learners import LEARNERS
from benchmarks.paired import OURS, SEED, Table, compare

CHOSEN = (*OURS, "EP-AUC, gamma = n", "LogisticRegression", "Bayesian logit (Laplace)")
WEIGHTS = np.array([1.0, -0.8, 0.6, 0.0, 0.5, -0.4, 0.0, 0.3])


def shells(n, rng):
    size = rng.standard_normal((n, 1))
    return np.exp(0.35 * (size + 0.45 * rng.standard_normal((n, 8))))


def rare(kind, n, rng):
    X = shells(n, rng)
    score = X @ WEIGHTS
    score = (score - score.mean()) / score.std()
    if kind == "step":
        chance = np.where(score > 0.5, 0.03, 0.0015)
    else:
        chance = 1 / (1 + np.exp(5.6 - 1.5 * score))
    y = (rng.random(n) < chance).astype(int)
    if kind == "gross errors":
        X = np.where(((rng.random(n) < 0.01) & (y == 0))[:, None], 10 * X, X)
    return X, y


def compare_simulated(kind, learners, replicates):
    """AUC and CPU seconds of each learner on each data set, on 20 000 new rows without gross errors."""
    auc, seconds = {name: [] for name in learners}, {name: [] for name in learners}
    for rng in np.random.default_rng(SEED).spawn(replicates):
        X, y = rare(kind, 2000, rng)
        X_new, y_new = rare("logistic" if kind == "gross errors" else kind, 20_000, rng)
        center, scale = X.mean(axis=0), X.std(axis=0)
        for name, learner in learners.items():
            began = process_time()
            scores = learner((X - center) / scale, y, (X_new - center) / scale, 0)
            seconds[name].append(process_time() - began)
            auc[name].append(1.0 - float(pac.empirical_risk(scores, y_new)))
    return auc, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=20)
    replicates = parser.parse_args().replicates
    warnings.simplefilter("ignore")  # convergence of searches at their extremes
    learners = {name: LEARNERS[name] for name in CHOSEN}
    print(
        f"All scores are linear. glass: 4 % positive, {replicates} splits. The others are simulated: eight skewed, "
        f"correlated measurements, about 1 % positive, 2000 training rows, {replicates} data sets, tested on 20 000 "
        "other rows. *logistic*: a logistic model is true. *step*: the chance of a positive jumps at a threshold of "
        "the score. *gross errors*: logistic, but 1 % of the negative training rows are recorded ten times too large.\n"
    )
    table = Table()
    table.add("glass", *compare(pac.datasets.load_glass(), 2 / 3, replicates, learners))
    for kind in ("logistic", "step", "gross errors"):
        table.add(kind, *compare_simulated(kind, learners, replicates))
    table.summarize("rare positives, AUC risk against log-loss")


if __name__ == "__main__":
    main()
