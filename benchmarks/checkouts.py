"""Two checkouts of this project on the same work, taking turns: CPU seconds, their ratio, and what both found.

    python -m benchmarks.checkouts ../before . [--turns 5] [--only linear folds ...]

Each checkout has a process of its own, with one thread, that does a piece of work whenever it is told to; the first
turn is not counted. The ratio is the median over turns of the second checkout's seconds over the first one's.
"""

import argparse
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from time import process_time

import numpy as np

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def data(n, d):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, d))
    return X, X @ rng.standard_normal(d) / np.sqrt(d) + 0.5 * rng.logistic(size=n) > 0.3


def numbers(fit):
    return [fit.log_evidence, *fit.posterior.mean[:3]]


def linear(n, d):
    from pymc_pacauc import arrays

    X, y = data(n, d)
    return numbers(arrays.fit(arrays.linear_gaussian_problem(X, y, gamma=float(n)), n_jobs=1))


def process(n):
    from pymc_pacauc import arrays

    X, y = data(n, 3)
    kernel = np.exp(-0.5 * np.sum((X[:, None] - X) ** 2, axis=2)) + 1e-6 * np.eye(n)
    problem = arrays.linear_gaussian_problem(np.linalg.cholesky(kernel), y, gamma=float(n))
    return numbers(arrays.fit(problem, n_jobs=1))


def strata(n):
    from pymc_pacauc import arrays
    from pymc_pacauc.comparison.kinds import stratified
    from pymc_pacauc.comparison.pairs import bipartite

    X, y = data(n, 10)
    pairs = stratified(bipartite(y), np.random.default_rng(2).integers(n // 5, size=n))
    return numbers(arrays.fit(arrays.linear_gaussian_problem(X, pairs, gamma=float(n)), n_jobs=1))


def survival(n):
    from pymc_pacauc import arrays
    from pymc_pacauc.comparison.censored import concordance

    X, _ = data(n, 10)
    rng = np.random.default_rng(3)
    time, limit = rng.exponential(np.exp(-X[:, 0])), rng.exponential(2.0, size=n)
    pairs = concordance(np.minimum(time, limit), time < limit)
    return numbers(arrays.fit(arrays.linear_gaussian_problem(X, pairs, gamma=float(n)), n_jobs=1))


def folds(n):
    from pymc_pacauc import arrays
    from pymc_pacauc.tune.gamma import choose_gamma

    return [choose_gamma(arrays.linear_gaussian_problem(*data(n, 10), gamma=float(n)), n_jobs=1).gamma]


def spikes(n):
    from pymc_pacauc import arrays

    X, y = data(n, 20)
    problem = arrays.spike_slab_problem(X, y, float(n), inclusion_probability=0.3, v0=0.0)
    return numbers(arrays.fit(problem, n_jobs=1))


def pima():
    import pymc as pm

    import pymc_pacauc as pac

    rows = pac.datasets.load_pima().standardized()
    with pm.Model():
        theta = pm.Normal("theta", size=rows.X.shape[1])
        pac.AUCPotential("auc", rows.X @ theta, rows.y, gamma=float(len(rows.y)))
        step = pac.TemperingSMC()
        found = pm.sample(1000, step=step, chains=2, cores=1, random_seed=1, progressbar=False)
    estimate = pac.log_evidence(found).estimate
    return [estimate, *np.asarray(found["posterior"]["theta"]).mean(axis=(0, 1))[:3]]


WORK = {
    "linear 1000 x 10": lambda: linear(1000, 10),
    "linear 100 000 x 20": lambda: linear(100_000, 20),
    "process of 500 rows": lambda: process(500),
    "strata of 5, 2000 rows": lambda: strata(2000),
    "survival, 1000 rows": lambda: survival(1000),
    "gamma by folds, 1000 rows": lambda: folds(1000),
    "spikes, 500 x 20": lambda: spikes(500),
    "SMC, Pima": pima,
}


def work():
    """Do what is asked for, line by line."""
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        began = process_time()
        found = WORK[line.strip()]()
        print(json.dumps([process_time() - began, np.asarray(found, dtype=float).tolist()]), flush=True)


def ask(worker, name):
    worker.stdin.write(name + "\n")
    worker.stdin.flush()
    return json.loads(next(line for line in worker.stdout if line.startswith("[")))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[""])
    options = parser.parse_args()
    script, environment = Path(__file__).resolve(), {**os.environ, **dict.fromkeys(THREADS, "1")}
    workers = []
    for checkout in (options.before, options.after):
        environment["PYTHONPATH"] = str(checkout.resolve())
        command = [sys.executable, str(script), "--work"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        workers.append(subprocess.Popen(command, cwd=checkout, env=dict(environment), text=True, **pipes))
    ratios = []
    for name in WORK:
        if not any(word in name for word in options.only):
            continue
        turns = [[ask(worker, name) for worker in workers] for _ in range(options.turns + 1)][1:]
        seconds = np.array([[found[0] for found in turn] for turn in turns])
        ratios.append(float(np.median(seconds[:, 1] / seconds[:, 0])))
        found = [np.array(each[1]) for each in turns[-1]]
        apart = np.abs(found[1] - found[0]).max()
        print(f"{name:28} {np.median(seconds[:, 0]):7.3f} s  ratio {ratios[-1]:5.2f}  largest difference {apart:.1e}")
    print(f"geometric mean of the ratios {np.exp(np.mean(np.log(ratios))):.3f}")
    for worker in workers:
        worker.stdin.close()
        worker.wait()


if __name__ == "__main__":
    work() if sys.argv[1:] == ["--work"] else main()
