"""Does the gamma that cross-validation chooses depend on how the folds were dealt?

`pac.select_gamma` with its defaults over seeds of the folds, beside what it would choose by the highest held-out AUC of
the mean score (`rule="best"`) and with one deal of the folds. For each: the smallest and largest gamma chosen, how many
choices lie within a factor 2 of each other, the median, in units of Theorem 2.3's gamma, the prior's end of the grid
being 2, and the mean loss of held-out AUC, from the best gamma of the table: on rows that were never fitted, where the
data come with a split, else over the folds.

python -m benchmarks.gamma_stability [--seeds 20] [--data pima spect credit glass]
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse

import numpy as np

import pymc_pacauc as pac
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.tune.gamma import choose_gamma

DATA = ("pima", "spect", "credit", "glass")
VARIANTS = {
    "default": {},
    "best": {"rule": "best"},
    "best, folds dealt once": {"rule": "best", "repeats": 1},
}


def load(name):
    """Training rows and, where the data come with a split, the others; standardised."""
    data = getattr(pac.datasets, f"load_{name}")().standardized()
    if data.train is None:
        return data.X, data.y, None, None
    return data.X[data.train], data.y[data.train], data.X[~data.train], data.y[~data.train]


def most_within_a_factor(gammas, factor=2.0):
    """How many of the values differ from each other by less than a factor."""
    values = np.sort(gammas)
    return int(max(np.sum((values >= low) & (values < factor * low * (1 - 1e-9))) for low in values))


def losses(choice, rest, labels):
    """AUC lost at each candidate, compared with the best of them."""
    if rest is None:
        auc = np.array([each.auc.mean() for each in choice.candidates])
    else:
        scores = np.array([rest @ each.posterior.posterior.mean for each in choice.candidates])
        auc = 1.0 - pac.empirical_risk(scores, labels)
    return auc.max() - auc


def measure(name, seeds, **options):
    """Chosen gammas over the seeds, in units of Theorem 2.3's, and what each loses."""
    X, y, rest, labels = load(name)
    problem = linear_gaussian_problem(X, y, 1.0)
    unit = pac.theorems.theorem_defaults(int(np.sum(y)), int(np.sum(1 - y)), X.shape[1]).gamma
    gammas, lost = [], []
    for seed in range(seeds):
        choice = choose_gamma(problem, rng=np.random.default_rng([2014, seed]), **options)
        gammas.append(choice.gamma / unit)
        lost.append(losses(choice, rest, labels)[choice.chosen])
    return np.array(gammas), float(np.mean(lost))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--data", nargs="*", default=DATA, choices=DATA)
    arguments = parser.parse_args()
    print("| data | rule | smallest to largest | within a factor 2 | median | held-out loss |")
    print("|---|---|---|---:|---:|---:|")
    for name in arguments.data:
        for label, options in VARIANTS.items():
            gammas, lost = measure(name, arguments.seeds, **options)
            print(
                f"| {name} | {label} | {gammas.min():.3g} to {gammas.max():.3g} | "
                f"{most_within_a_factor(gammas)} of {gammas.size} | {np.median(gammas):.3g} | {lost:.4f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
