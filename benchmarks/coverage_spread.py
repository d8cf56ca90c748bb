"""Does the calibrated spread cover, whatever gamma is?

Well specified logistic data, heavy tails (Student's t with three degrees of freedom), one positive in twelve, rows with
random weights, thirty strata with intercepts of their own, three ordered classes; 4 and 30 columns, of which at most a
fifth (of four, two) matter; gamma 1, 10 and 100 times the comparison's size. How often 90 % intervals hold

- the coefficients that are zero,
- differences of scores of new rows, of the best score in the length of the mean,
- the ratio of the first two coefficients,

for the calibrated spread, and (in brackets) for the posterior's own, across the mean's direction.

    python -m benchmarks.coverage_spread [--datasets 60] [--only strata ...]
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import warnings

import numpy as np
from scipy.special import ndtri

from pymc_pacauc.comparison.kinds import label_comparison
from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.tune.coverage import calibrated_posterior

KINDS = {"logistic": 300, "heavy tails": 300, "one in twelve": 600, "weights": 300, "strata": 600, "three classes": 300}
TIMES = (1.0, 10.0, 100.0)
Z = ndtri(0.95)


def simulate(kind, d, rng):
    """Standardised rows, which of them are compared, and the best coefficients."""
    n = KINDS[kind]
    X = rng.standard_t(3, size=(n, d)) if kind == "heavy tails" else rng.normal(size=(n, d))
    best = np.zeros(d)
    best[:2] = 1.0, 0.5
    best[2 : d // 5] = 0.4
    signal, options = X @ best - 2.6 * (kind == "one in twelve"), {}
    if kind == "weights":
        options["weights"] = rng.gamma(2.0, size=n)
    if kind == "strata":
        options["strata"] = np.arange(n) % 30
        signal += rng.normal(size=30)[options["strata"]]
    y = signal + rng.logistic(size=n) > 0.0
    if kind == "three classes":
        y, options["ordered"] = np.digitize(signal + rng.logistic(size=n), [-1.0, 1.0]), True
    scale = X.std(axis=0)
    return (X - X.mean(axis=0)) / scale, label_comparison(y, **options), best * scale


def held(mean, covariance, best, rows):
    """Shares of zeros, differences and the ratio that lie in their intervals."""
    zero = np.flatnonzero(best == 0.0)
    off = mean - best * (best @ mean) / (best @ best)
    sd = np.sqrt(np.einsum("ij,jk,ik->i", rows, covariance, rows))
    contrast = np.zeros(best.size)
    contrast[:2] = -best[1] / best[0], 1.0
    return [
        np.mean(np.abs(mean[zero]) < Z * np.sqrt(np.diagonal(covariance)[zero])),
        np.mean(np.abs(rows @ off) < Z * sd),
        float(abs(contrast @ mean) < Z * np.sqrt(contrast @ covariance @ contrast)),
    ]


def table(datasets, only):
    print("| data | columns | gamma / size | zeros | differences | ratio |")
    print("|---|---:|---:|---:|---:|---:|")
    for kind in only:
        for d in (4, 30):
            rng, found = np.random.default_rng([d, len(kind)]), {times: [] for times in TIMES}
            for _ in range(datasets):
                X, pairs, best = simulate(kind, d, rng)
                rows, size, start = (
                    rng.normal(size=(20, d)) - rng.normal(size=(20, d)),
                    row_shares(pairs).size,
                    None,
                )
                for times in TIMES:
                    start = fit(linear_gaussian_problem(X, pairs, gamma=times * size), start=start, tolerance=1e-3)
                    mean = start.posterior.mean
                    across = np.eye(d) - np.outer(mean, mean) / (mean @ mean)
                    own = across @ start.posterior.covariance @ across
                    both = [held(mean, each, best, rows) for each in (calibrated_posterior(start).covariance, own)]
                    found[times].append(both)
            for times in TIMES:
                shares = np.mean(found[times], axis=0)
                cells = " | ".join(f"{a:.2f} ({b:.2f})" for a, b in shares.T)
                print(f"| {kind} | {d} | {times:g} | {cells} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", type=int, default=60)
    parser.add_argument("--only", nargs="*", default=list(KINDS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table(**vars(parser.parse_args()))
