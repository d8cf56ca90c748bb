"""How often does the interval of :func:`pymc_pacauc.compare_auc` contain the true difference of two AUCs?

Two scores of the same rows, whose noise is correlated: s_k = signal_k * y + noise_k. The AUC of each is known. Shapes:
normal noise; noise with Student's t(2); noise nearly the same in both; and classes nearly separated. Beside it DeLong's
own interval, difference +- z * standard error.

Last, of draws, over rows and posterior: how often does a new draw's AUC in the population minus that of a fixed score
lie in the interval?

python -m benchmarks.coverage_difference [--datasets 1000] [--ci-prob 0.95]
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse

import numpy as np
from scipy.special import ndtr, ndtri

import pymc_pacauc as pac
from benchmarks.coverage_auc import student_shift
from pymc_pacauc.analysis.evaluate import placements
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.theorems import default_gamma

SIZES = ((10, 15), (20, 100), (50, 50), (200, 10), (200, 1000))
SHAPES = {  # AUC of each score, correlation of their noise, its distribution
    "normal": (0.8, 0.75, 0.5, "normal"),
    "equal": (0.85, 0.85, 0.7, "normal"),
    "heavy tails": (0.8, 0.7, 0.5, "t"),
    "nearly the same": (0.85, 0.84, 0.98, "normal"),
    "nearly separated": (0.99, 0.97, 0.5, "normal"),
}


def two_scores(shape, n_pos, n_neg, rng):
    first, second, correlation, kind = SHAPES[shape]
    y = np.arange(n_pos + n_neg) < n_pos
    noise = rng.multivariate_normal([0, 0], [[1, correlation], [correlation, 1]], size=y.size)
    if kind == "t":
        noise /= np.sqrt(rng.chisquare(2, size=(y.size, 1)) / 2)
        shifts = [student_shift(first), student_shift(second)]
    else:
        shifts = [np.sqrt(2.0) * ndtri(first), np.sqrt(2.0) * ndtri(second)]
    return noise + np.outer(y, shifts), y, first - second


def delong_limits(scores, y, ci_prob):
    (above_a, below_a), (above_b, below_b) = (placements(score, y) for score in scores.T)
    variance = np.var(above_a - above_b, ddof=1) / y.sum() + np.var(below_a - below_b, ddof=1) / (~y).sum()
    half = ndtri(0.5 + 0.5 * ci_prob) * np.sqrt(variance)
    difference = above_a.mean() - above_b.mean()
    return difference - half, difference + half


def measure(shape, n_pos, n_neg, datasets, ci_prob, seed=2014):
    rng = np.random.default_rng([seed, n_pos, n_neg, list(SHAPES).index(shape)])
    limits = []
    for _ in range(datasets):
        scores, y, truth = two_scores(shape, n_pos, n_neg, rng)
        said = pac.compare_auc(*scores.T, y, ci_prob=ci_prob)
        limits.append([(said.lower, said.upper), delong_limits(scores, y, ci_prob)])
    found = np.array(limits)  # datasets, kind, end
    covered = (found[..., 0] <= truth) & (truth <= found[..., 1])
    return covered.mean(axis=0), np.ptp(found, axis=2).mean(axis=0)


def measure_draws(fits, ci_prob, n_train=150, n_test=150, d=5, seed=2014):
    """Over rows and posterior: the population AUC of a new draw minus that of the best score."""
    covered, width = [], []
    shift = 0.6 / np.arange(1, d + 1)
    best = float(ndtr(np.linalg.norm(shift) / np.sqrt(2.0)))
    for k in range(fits):
        rng = np.random.default_rng([seed, k])
        y = rng.permutation(np.arange(n_train + n_test) % 3 == 0)
        X = rng.normal(size=(y.size, d)) + np.outer(y, shift)
        gamma = default_gamma(int(y[:n_train].sum()), int((~y[:n_train]).sum()))
        posterior = fit(linear_gaussian_problem(X[:n_train], y[:n_train], gamma), n_jobs=1).posterior
        rows = X[n_train:]
        said = pac.compare_auc(posterior.draw(500, rng) @ rows.T, rows @ shift, y[n_train:], ci_prob=ci_prob)
        theta = posterior.draw(50, rng)
        truth = ndtr(theta @ shift / (np.sqrt(2.0) * np.linalg.norm(theta, axis=1))) - best
        covered.append(np.mean((said.lower <= truth) & (truth <= said.upper)))
        width.append(said.upper - said.lower)
    return float(np.mean(covered)), float(np.std(covered) / np.sqrt(fits)), float(np.mean(width))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", type=int, default=1000)
    parser.add_argument("--ci-prob", type=float, default=0.95)
    arguments = parser.parse_args()
    print(f"Coverage of a nominal {arguments.ci_prob:g} and mean width, {arguments.datasets} data sets a cell.\n")
    print("| n+ | n- | scores | compare_auc | DeLong ± z s.e. |")
    print("|---:|---:|---|---:|---:|")
    lowest = 1.0
    for n_pos, n_neg in SIZES:
        for shape in SHAPES:
            coverage, width = measure(shape, n_pos, n_neg, arguments.datasets, arguments.ci_prob)
            lowest = min(lowest, coverage[0])
            cells = " | ".join(f"{c:.3f} ({w:.3f})" for c, w in zip(coverage, width, strict=True))
            print(f"| {n_pos} | {n_neg} | {shape} | {cells} |", flush=True)
    coverage, error, width = measure_draws(max(50, arguments.datasets // 5), arguments.ci_prob)
    print(f"\nDraws, over rows and posterior: {coverage:.3f} ± {error:.3f}, mean width {width:.3f}.")
    print(f"Lowest coverage over rows: {lowest:.3f}.")
    if lowest < arguments.ci_prob - 0.02:
        raise SystemExit("The interval does not cover.")


if __name__ == "__main__":
    main()
