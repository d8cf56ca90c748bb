"""Does the gamma that cross-validation chooses depend on anything but the data?

`pac.AUCClassifier` on the rows in several orders, each with another `random_state`: the smallest and the largest gamma
chosen, in units of the comparison's size (n+ n- / n), and their ratio. The same over orders of the columns, which
changes the folds (rows are assigned along a fixed direction of the covariates) and nothing else that matters: what is
left of the noise of the folds.

python -m benchmarks.gamma_stability [--orders 6] [--data simulated pima spect credit dna]
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse

import numpy as np

import pymc_pacauc as pac
from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.comparison.sizes import row_shares

DATA = ("simulated", "pima", "spect", "credit", "dna")


def load(name):
    """Training rows and, where the data come with a split, the others; standardised."""
    if name == "simulated":
        rng = np.random.default_rng(100)
        X = rng.normal(size=(300, 4))
        return X, (rng.random(300) < 1 / (1 + np.exp(0.5 - X @ [1.0, 0.5, 0.0, 0.0]))).astype(int), None, None
    data = getattr(pac.datasets, f"load_{name}")().standardized()
    if data.train is None:
        return data.X, data.y, None, None
    return data.X[data.train], data.y[data.train], data.X[~data.train], data.y[~data.train]


def chosen(X, y, orders, axis):
    """Gammas over orders of the rows (axis 0) or columns (axis 1), over the comparison's size."""
    gammas = []
    for seed in range(orders):
        order = np.random.default_rng(seed).permutation(X.shape[axis])
        labels = y if axis else y[order]
        gammas.append(pac.AUCClassifier(random_state=seed).fit(np.take(X, order, axis=axis), labels).gamma_)
    return np.array(gammas) / row_shares(bipartite(y)).size


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--orders", type=int, default=6)
    parser.add_argument("--data", nargs="*", default=DATA, choices=(*DATA, "glass"))
    arguments = parser.parse_args()
    print("| data | rows in other orders | ratio | other folds | ratio |")
    print("|---|---|---:|---|---:|")
    for name in arguments.data:
        X, y, _, _ = load(name)
        found = (chosen(X, y, arguments.orders, axis) for axis in (0, 1))
        cells = (f"{each.min():.3g} to {each.max():.3g} | {each.max() / each.min():.2f}" for each in found)
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
