"""The rule that chooses gamma, on data that had no part in its making.

`benchmarks/gamma_stability.py` shows the four data sets on which the rule was found. Here are others: DNA, the colon
data (where a path to them is given), breast cancer, wine and digits of scikit-learn, and simulated classes of 40 among
2000 rows. Half of the rows, 600 at most, are for training, standardised by themselves; the others are held out.

For each: over seeds of the folds on one split, the smallest and largest gamma (in units of Theorem 2.3's, the prior's
end of the grid being 2) and how many are within a factor 2 of each other; and over splits, the mean held-out AUC of the
mean score that is lost against the best gamma in hindsight, by cross-validation and by `gamma="default"` (16 units),
with the standard error of its mean; and the AUC of a draw at both.

python -m benchmarks.gamma_unseen [--seeds 20] [--splits 5] [--colon PATH] [--data dna cancer ...]
"""

import argparse
from dataclasses import replace

import numpy as np

import pymc_pacauc as pac
from benchmarks.gamma_stability import most_within_a_factor
from pymc_pacauc.comparison.folds import stratified_folds
from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.tune.gamma import choose_gamma

MOST_ROWS = 600
HINDSIGHT = 2.0 ** np.arange(-1, 10)  # units of Theorem 2.3's gamma


def load(name, colon=None):
    if name == "dna":
        data = pac.datasets.load_dna()
        return data.X, data.y > 0
    if name == "colon":
        data = pac.datasets.load_colon(colon)
        return data.X, data.y > 0
    if name == "rare":
        rng = np.random.default_rng(40)
        X, y = rng.normal(size=(2000, 20)), np.arange(2000) < 40
        X[y, :5] += 0.5
        return X, y
    from sklearn import datasets

    loader, positive = {"cancer": ("breast_cancer", 0), "wine": ("wine", 1), "digits": ("digits", 8)}[name]
    X, y = getattr(datasets, f"load_{loader}")(return_X_y=True)
    return X[:, X.std(axis=0) > 0], y == positive


def split(X, y, seed):
    """Training rows and the others, by the former's means and standard deviations; both classes in their shares."""
    rng = np.random.default_rng([7, seed])
    fold = stratified_folds(y, max(2, -(-len(y) // MOST_ROWS)), rng)
    train = fold == 0
    X = X[:, X[train].std(axis=0) > 0]
    X = (X - X[train].mean(axis=0)) / X[train].std(axis=0)
    return X[train], y[train], X[~train], y[~train]


def at(problem, gamma, X, y, start=None):
    """Held-out AUC of the mean score, and of a draw; and the fit."""
    found = fit(replace(problem, gamma=float(gamma)), start=start, tolerance=1e-3)
    draws = found.posterior.draw(200, np.random.default_rng(1)) @ X.T
    risk = pac.empirical_risk(np.vstack([X @ found.posterior.mean, draws]), y)
    return 1 - risk[0], 1 - risk[1:].mean(), found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--colon", help="path to the colon data")
    parser.add_argument("--data", nargs="*", default=["dna", "colon", "cancer", "wine", "digits", "rare"])
    arguments = parser.parse_args()
    print(
        "| data | n+ / n- / d | gamma | within a factor 2 | best AUC in hindsight | lost by select_gamma | lost by "
        "default | a draw: select_gamma | default |"
    )
    print("|---|---|---|---:|---:|---:|---:|---:|---:|")
    for name in arguments.data:
        if name == "colon" and arguments.colon is None:
            continue
        X, y = load(name, arguments.colon)
        gammas, rows = [], []
        for k in range(arguments.splits):
            train, labels, rest, held_out = split(X, y, k)
            problem = linear_gaussian_problem(train, labels, 1.0)
            unit = 0.25 * row_shares(problem.pairs).size
            for seed in range(arguments.seeds if k == 0 else 1):
                choice = choose_gamma(problem, rng=np.random.default_rng([2014, seed]))
                gammas += [choice.gamma / unit] * (k == 0)
                if seed == 0:
                    chosen = at(problem, choice.gamma, rest, held_out, choice.fit)
            hindsight, before = [], None
            for gamma in HINDSIGHT * unit:
                *found, before = at(problem, gamma, rest, held_out, before)
                hindsight.append(found[0])
            default = at(problem, 16 * unit, rest, held_out)
            best = max(*hindsight, chosen[0], default[0])
            rows.append((best, best - chosen[0], best - default[0], chosen[1], default[1]))
        mean, error = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1) / np.sqrt(len(rows))
        print(
            f"| {name} | {labels.sum()} / {(~labels).sum()} / {train.shape[1]} | "
            f"{min(gammas):.3g} to {max(gammas):.3g} | {most_within_a_factor(gammas)} of {len(gammas)} | "
            f"{mean[0]:.4f} | {mean[1]:.4f} ± {error[1]:.4f} | {mean[2]:.4f} ± {error[2]:.4f} | {mean[3]:.4f} | "
            f"{mean[4]:.4f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
