"""What weights of pairs cost: a sweep of EP with weights of several kinds, by pair, against one without.

python -m benchmarks.weights_cost [--repeats 10]
"""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse
from functools import partial
from time import process_time

import numpy as np


def labelled(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, X[:, 0] + rng.logistic(size=n) > 0.4


def sweep(X, pairs):
    """One sweep of EP over the pairs, at gamma = n and some q: a function to be timed."""
    from pymc_pacauc.ep.posterior import natural_gaussian
    from pymc_pacauc.ep.sites import SiteTable
    from pymc_pacauc.ep.sweep import score_moments, sum_sites
    from pymc_pacauc.problem.problem import linear_gaussian_problem

    problem = linear_gaussian_problem(X, pairs, gamma=float(len(X)))
    design, offset = problem.scores.reduced.design, problem.scores.reduced.offset
    d = design.shape[1]
    moments = score_moments(design, offset, natural_gaussian(30.0 * np.eye(d), np.linspace(-15.0, 15.0, d)))
    total = getattr(problem.pairs, "total_weight", problem.pairs.n_pairs)
    return partial(sum_sites, design, offset, moments, problem.pairs, SiteTable(problem.gamma / total))


def seconds(function, repeats):
    began = process_time()
    for _ in range(repeats):
        function()
    return (process_time() - began) / repeats


def with_weights(repeats, n=3000, d=10):
    from pymc_pacauc.comparison.censored import concordance
    from pymc_pacauc.comparison.kinds import label_comparison

    print(f"\n## With weights: a sweep, n = {n}, d = {d}, gamma = n\n")
    rng = np.random.default_rng(3)
    X, y = labelled(n, d)
    weights = rng.gamma(2.0, size=n) + 0.05
    time, censored = rng.exponential(np.exp(-X[:, 0])), rng.exponential(2.0, size=n)
    event, time = time <= censored, np.minimum(time, censored)
    tau = float(np.quantile(time, 0.9))
    kinds = {
        "two classes": label_comparison(y),
        "two classes, five different weights": label_comparison(y, weights=rng.integers(1, 6, n)),
        "two classes, all weights different": label_comparison(y, weights=weights),
        "ordered classes, four": label_comparison(np.digitize(X[:, 0], [-1.0, 0.0, 1.0]), ordered=True),
        "censored times (Harrell)": concordance(time, event),
        "censored times (Uno)": concordance(time, event, weights="ipcw", tau=tau),
    }
    timed = {name: [] for name in kinds}
    sweeps = {name: sweep(X, pairs) for name, pairs in kinds.items()}
    for turn in range(repeats + 1):
        for name, function in sweeps.items():
            taken = seconds(function, 1)
            if turn:  # the first compiles and tabulates
                timed[name].append(taken / kinds[name].n_pairs)
    print("| comparison | pairs | ns a pair | against two classes |")
    print("|---|---:|---:|---:|")
    base = np.array(timed["two classes"])
    for name, values in timed.items():
        cells = [name, f"{kinds[name].n_pairs}", f"{1e9 * np.median(values):.1f}"]
        print(f"| {' | '.join(cells)} | {np.median(np.array(values) / base):.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10)
    with_weights(parser.parse_args().repeats)


if __name__ == "__main__":
    main()
