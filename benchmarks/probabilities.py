"""Are the estimators' probabilities as good as those of logistic regression?

Logistic data with 3, 8 and 15 columns, balanced or with one in five positive. Log-loss of 4000 new rows under their
true probabilities, minus that of LogisticRegression (standardised columns, its defaults), and minus the base rate:
means over data sets, and the worst.

    python -m benchmarks.probabilities [--datasets 40]
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import warnings

import numpy as np
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pymc_pacauc as pac
from pymc_pacauc.estimator.calibration import calibrate

SIZES = {100: 1.0, 300: 0.6, 1000: 0.2, 2500: 0.08}  # rows, and the share of the data sets


def one(n, k, rng):
    """Log-loss of the base rate, of logistic regression, and of the classifier with either calibration."""
    d, weak = (3, 8, 15)[k % 3], k % 2 == 0
    coefficients = rng.normal(size=d) * (0.85 if weak else 1.7) / np.sqrt(d)
    X = rng.normal(size=(n + 4000, d))
    chance = expit(X @ coefficients - (0.0 if weak else 1.5))
    y = rng.random(len(X)) < chance
    truth = chance[n:]

    def loss(probability):
        return float(-np.mean(truth * np.log(probability) + (1.0 - truth) * np.log1p(-probability)))

    peer = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[:n], y[:n])
    [score] = pac.AUCClassifier(calibration="sigmoid").fit(X[:n], y[:n]).scores_
    steps = calibrate(score.posterior, score.outcome, sample_weight=None, calibration="isotonic", folds=5)
    base = np.full(4000, y[:n].mean())
    found = [peer.predict_proba(X[n:])[:, 1], *(each.probability(X[n:])[:, 1] for each in (score, steps))]
    return [loss(each) for each in (base, *found)]


def table(datasets):
    print(
        "| rows | data sets | logistic regression | sigmoid - it | worst | isotonic - it | sigmoid - base rate, worst |"
    )
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for n, share in SIZES.items():
        rng, repeats = np.random.default_rng(n), max(2, round(datasets * share))
        base, peer, sigmoid, steps = np.array([one(n, k, rng) for k in range(repeats)]).T
        cells = [sigmoid - peer, steps - peer, sigmoid - base]
        print(
            f"| {n} | {repeats} | {peer.mean():.4f} | {cells[0].mean():+.4f} | {cells[0].max():+.4f} | "
            f"{cells[1].mean():+.4f} | {cells[2].max():+.4f} |",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", type=int, default=40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table(**vars(parser.parse_args()))
