"""Exact AUC risk: how fast, and is it still exact on awkward scores?

    python -m benchmarks.risk [--rows 1000] [--observations 3186] [--repeats 9]

One thread. The competitors take turns and each time is a median over the repeats, so ratios hold on a noisy machine.
"""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import argparse
from time import perf_counter

import numpy as np
from sklearn.metrics import roc_auc_score

import pymc_pacauc as pac
from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.comparison.risk import LinearRisk

SCORES = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "lognormal": lambda rng, shape: np.exp(2.0 * rng.standard_normal(shape)),
    "cauchy": lambda rng, shape: rng.standard_cauchy(shape),
    "one outlier": lambda rng, shape: np.where(np.arange(shape[1]) == 0, 1e6, rng.standard_normal(shape)),
    "discrete (20 values)": lambda rng, shape: rng.integers(0, 20, shape).astype(float),
    "clusters": lambda rng, shape: rng.choice([0.0, 1.0, 100.0], shape) + 1e-6 * rng.standard_normal(shape),
}


def interleaved(functions, repeats):
    """Median seconds of each function, taking turns."""
    times = {name: [] for name in functions}
    for repeat in range(repeats + 1):
        for name, function in functions.items():
            start = perf_counter()
            function()
            if repeat:  # the first round compiles and warms up
                times[name].append(perf_counter() - start)
    return {name: float(np.median(values)) for name, values in times.items()}


def merged(scores, y):
    """The textbook exact answer, one row at a time: wrong pairs by binary search in the sorted positives."""
    risks = []
    for row in scores:
        positive, negative = np.sort(row[y]), row[~y]
        below, at_most = (np.searchsorted(positive, negative, side=side).sum() for side in ("left", "right"))
        risks.append(0.5 * (below + at_most) / (y.sum() * (~y).sum()))
    return np.array(risks)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1000, help="score vectors")
    parser.add_argument("--observations", type=int, default=3186)
    parser.add_argument("--covariates", type=int, default=7)
    parser.add_argument("--positive", type=float, default=0.24, help="share of positives")
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()

    rng = np.random.default_rng(0)
    N, n, d = options.rows, options.observations, options.covariates
    X, theta = rng.standard_normal((n, d)), rng.standard_normal((N, d))
    y = rng.permutation(n) < round(options.positive * n)
    design, scores = np.ascontiguousarray(X.T), theta @ X.T

    prepared = LinearRisk(X, bipartite(y))

    few = max(1, N // 20)  # the loop is slow: time a part of it and scale
    seconds = interleaved(
        {
            "loop of `sklearn.metrics.roc_auc_score`": lambda: [roc_auc_score(y, row) for row in scores[:few]],
            f"matrix product that makes the scores (d = {d})": lambda: theta @ design,
            "`empirical_risk(scores, y)`": lambda: pac.empirical_risk(scores, y),
            "`linear_risk(theta, X, y)`, scores included": lambda: pac.arrays.linear_risk(theta, X, y),
            "the same with X prepared once (`LinearRisk`)": lambda: prepared(theta),
        },
        options.repeats,
    )
    loop, product, ours, *_ = seconds
    seconds[loop] *= N / few
    faster = seconds[loop] / seconds[ours]
    print(f"n = {n} observations, {y.sum()} positive, N = {N} score vectors, one thread\n")
    print("| | ms | x faster than the loop | x the matrix product |\n|---|---:|---:|---:|")
    for name, time in seconds.items():
        print(f"| {name} | {1e3 * time:.1f} | {seconds[loop] / time:.1f} | {time / seconds[product]:.1f} |")

    print(
        "\n| scores | ms | x the time of normal scores | largest error against sort and search |\n|---|---:|---:|---:|"
    )
    inputs = {name: make(rng, (N, n)) for name, make in SCORES.items()}
    seconds = interleaved(
        {name: lambda values=values: pac.empirical_risk(values, y) for name, values in inputs.items()}, options.repeats
    )
    for name, values in inputs.items():
        error = np.abs(pac.empirical_risk(values[:50], y) - merged(values[:50], y)).max()
        print(f"| {name} | {1e3 * seconds[name]:.1f} | {seconds[name] / seconds['normal']:.1f} | {error:.1g} |")
    print(f"\nWon: exact risk of {N} score vectors: {faster:.0f} times faster than a loop of scikit-learn's.")


if __name__ == "__main__":
    main()
