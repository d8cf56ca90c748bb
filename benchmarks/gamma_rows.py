"""Does gamma chosen on about 1000 rows, and taken to all of them, agree with gamma chosen on all?

`choose_gamma` on 6000 simulated rows, 3 in 10 positive, on 1000 of them, and on all: the ratio of the two gammas, over
draws of the rows, as it is and had the choice been taken to all rows by the power 0.6 of the comparison's size; and the
AUC of the mean score on 20 000 others.

python -m benchmarks.gamma_rows [--seeds 6]
"""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse
import warnings
from dataclasses import replace

import numpy as np
from sklearn.datasets import make_classification

import pymc_pacauc as pac
from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.tune.gamma import choose_gamma, pairs_of_few

ROWS, OTHERS = 6000, 20_000


def logistic(d, noise):
    """Normal covariates, of which five matter, and logistic noise."""
    rng = np.random.default_rng([d, int(noise)])
    X = rng.normal(size=(ROWS + OTHERS, d))
    signal = X[:, :5] @ rng.normal(size=5) + rng.logistic(scale=noise, size=len(X))
    return X, signal > np.quantile(signal, 0.7)


def clusters(d):
    X, y = make_classification(
        ROWS + OTHERS, d, n_informative=5, weights=[0.7], class_sep=0.6, shuffle=True, random_state=1
    )
    return (X - X.mean(axis=0)) / X.std(axis=0), y > 0


DESIGNS = {
    "logistic, d = 5": lambda: logistic(5, 1.0),
    "logistic, d = 20": lambda: logistic(20, 1.0),
    "logistic, d = 20, noisy": lambda: logistic(20, 4.0),
    "logistic, d = 60": lambda: logistic(60, 2.0),
    "clusters, d = 10": lambda: clusters(10),
    "clusters, d = 40": lambda: clusters(40),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=6)
    seeds = parser.parse_args().seeds
    warnings.simplefilter("ignore")
    print("| design | gamma on all rows | on some, as a ratio | by the power 0.6 | AUC, all | AUC, some |")
    print("|---|---:|---|---|---:|---:|", flush=True)
    for name, make in DESIGNS.items():
        X, y = make()
        problem = linear_gaussian_problem(X[:ROWS], y[:ROWS], gamma=1.0)
        every = choose_gamma(problem, tuning=problem.pairs).gamma
        some = []
        for seed in range(seeds):
            tuning = pairs_of_few(problem.pairs, 1000, np.random.default_rng(seed).permutation(ROWS))
            some.append(choose_gamma(problem, tuning=tuning).gamma)
        slower = (row_shares(problem.pairs).size / row_shares(tuning).size) ** (0.6 - 1.0)
        ratios = np.sort(some) / every
        scores = [X[ROWS:] @ fit(replace(problem, gamma=gamma)).posterior.mean for gamma in (every, *some)]
        auc = 1.0 - pac.empirical_risk(np.array(scores), y[ROWS:])
        words = (", ".join(f"{each:.2f}" for each in values) for values in (ratios, slower * ratios))
        print(f"| {name} | {every:.0f} | {' | '.join(words)} | {auc[0]:.4f} | {auc[1:].mean():.4f} |", flush=True)


if __name__ == "__main__":
    main()
