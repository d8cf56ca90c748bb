"""Are the folds that gamma is chosen by, along paths of their own, those of refits?

Held-out AUC of the mean score and of a draw, averaged over five folds assigned twice, at gammas in units of the
comparison's size (n+ n- / n): from refits to convergence, and how far those that `choose_gamma` looks at are from them;
what one costs, in CPU milliseconds; and the gamma that is chosen, as a ratio, over seeds of the folds. Where EP has
many fixed points (the largest gammas) a refit is one of them. Data: those of `gamma_stability`, and simulated ones of
which ten covariates matter.

python -m benchmarks.gamma_folds [--seeds 3] [--data pima credit spect glass 1000x100 1000x216]
"""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse
import warnings
from dataclasses import replace
from functools import partial
from time import process_time

import numpy as np

from benchmarks.gamma_stability import DATA, load
from pymc_pacauc.comparison.folds import comparison_folds
from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.ep.leave_out import FoldPaths, split_groups
from pymc_pacauc.ep.plan import choose_plan
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.tune import gamma as search

SIMULATED = ("1000x100", "1000x216")
SIZES = (0.5, 2.0, 8.0, 32.0)
REFIT = {"refine": 200, "tolerance": 1e-3}


def problem_of(name):
    if name in DATA:
        X, y, _, _ = load(name)
        return linear_gaussian_problem(X, y > 0, 1.0)
    n, d = map(int, name.split("x"))
    rng = np.random.default_rng([n, d])
    X = rng.normal(size=(n, d))
    signal = X[:, :10] @ rng.normal(size=10) + rng.logistic(scale=2.0, size=n)
    return linear_gaussian_problem(X, signal > np.median(signal), 1.0)


def aucs(left):
    return np.array([[each.group_auc.mean(), each.group_expected_auc.mean()] for each in left]).mean(axis=0)


def chosen(problem):
    """The gamma chosen, over that chosen with folds that are refitted."""
    found = search.choose_gamma(problem, n_jobs=1)
    whole = fit(problem, accuracy="path", n_jobs=1)
    folds = search.leave_out_folds(problem, found.folds, replace(choose_plan(problem), folds="removed sites"), whole)
    evaluate = partial(search.held_out, folds, sweeps=100, tolerance=1e-2, n_jobs=1)
    candidates, best = search.choose_among(lambda gamma: evaluate(gamma=gamma), None, problem.pairs)
    return found.gamma / candidates[best].gamma


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="*", default=("pima", "credit", "spect", "glass", *SIMULATED))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| data | gamma / size | AUC, refitted | a draw | mean score, difference | a draw | refit, ms | path, ms |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|", flush=True)
    ratios = {}
    for name in arguments.data:
        problem = problem_of(name)
        size = row_shares(problem.pairs).size
        rng = np.random.default_rng(1)
        folds = [comparison_folds(problem.pairs, 5, rng) for _ in range(2)]
        splits = [split_groups(problem.pairs, fold) for fold in folds]
        start = fit(replace(problem, gamma=size), n_jobs=1)
        FoldPaths(problem, folds[0]).leave_out(size)  # compiles
        paths = [FoldPaths(problem, fold) for fold in folds]
        for gamma in (each * size for each in SIZES if each * size <= problem.pairs.n_pairs):
            clock = [process_time()]
            exact = aucs([start.leave_out(each, gamma=gamma, n_jobs=1, **REFIT) for each in splits])
            clock.append(process_time())
            more, of_draw = aucs([each.leave_out(gamma, tolerance=search.FOLD_TOLERANCE) for each in paths]) - exact
            clock.append(process_time())
            refit, path = 1000.0 * np.diff(clock) / (len(folds) * 5)
            print(
                f"| {name} | {gamma / size:g} | {exact[0]:.4f} | {exact[1]:.4f} | {more:+.4f} | {of_draw:+.4f} | "
                f"{refit:.1f} | {path:.1f} |",
                flush=True,
            )
        ratios[name] = chosen(problem)
    print("\n| data | gamma chosen, over that by refitted folds |")
    print("|---|---|")
    for name, found in ratios.items():
        print(f"| {name} | {found:.2f} |")


if __name__ == "__main__":
    main()
