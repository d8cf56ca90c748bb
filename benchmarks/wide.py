"""Ten times more columns than rows: AUC on other rows where few or all columns matter, against logistic regression.

    python -m benchmarks.wide [--datasets 2] [--rows 500] [--columns 5000]

Simulated: independent Gaussian columns, of which the first few have coefficients, with log-odds of standard deviation
two. Peers: logistic regression with an L1 and with an L2 penalty, chosen by five folds. The spike-and-slab prior is at
``gamma="default"``. In brackets, CPU seconds.
"""

import argparse
import time

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV

import pymc_pacauc as pac

MATTER = (10, 100, None)  # columns; None: all
LASSO = LogisticRegression(l1_ratio=1.0, solver="liblinear", intercept_scaling=10.0)
METHODS = {
    "gaussian": pac.AUCClassifier(calibration=None),
    "spike_slab": pac.AUCClassifier("spike_slab", gamma="default", calibration=None),
    "L1 logit": GridSearchCV(LASSO, {"C": np.geomspace(0.02, 1.0, 8)}, scoring="roc_auc"),
    "L2 logit": GridSearchCV(LogisticRegression(max_iter=500), {"C": np.geomspace(1e-5, 0.1, 5)}, scoring="roc_auc"),
}


def simulated(rows, columns, matter, rng):
    X = rng.normal(size=(rows + 3000, columns))
    coefficients = np.zeros(columns)
    coefficients[:matter] = rng.normal(size=matter)
    log_odds = 2.0 * X @ coefficients / np.linalg.norm(coefficients)
    return X, log_odds + rng.logistic(size=len(X)) > 0.0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", type=int, default=2)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--columns", type=int, default=5000)
    given = parser.parse_args()
    print(f"| columns that matter | {' | '.join(METHODS)} |\n|---:|{'---|' * len(METHODS)}")
    for each in MATTER:
        matter = each or given.columns
        auc, seconds = np.zeros((2, len(METHODS)))
        for k in range(given.datasets):
            X, y = simulated(given.rows, given.columns, matter, np.random.default_rng([matter, k]))
            for m, method in enumerate(METHODS.values()):
                begun = time.process_time()
                found = method.fit(X[: given.rows], y[: given.rows])
                seconds[m] += (time.process_time() - begun) / given.datasets
                auc[m] += roc_auc_score(y[given.rows :], found.decision_function(X[given.rows :])) / given.datasets
        cells = [f"{a:.3f} ({s:.0f})" for a, s in zip(auc, seconds, strict=True)]
        print(f"| {matter} of {given.columns} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
