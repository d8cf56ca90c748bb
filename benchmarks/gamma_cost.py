"""What choosing gamma costs, beside LogisticRegressionCV of scikit-learn (Cs=10, cv=5, scoring="roc_auc").

Both on the same data, in turns, with the same number of threads for everything (matrix algebra included); medians over
rounds of the seconds of each and of their ratios. CPU time adds up all threads, and is the one to look at on a machine
that does other work as well. `gammas` were looked at; rows were assigned to folds `assignments` times. Data: Credit's
first 24 covariates and all 60 of them; simulated for n = 5000, d = 216 (3 in 10 positive, ten covariates that matter),
with independent covariates, the easiest case for the peer, and with correlated ones, as tables have them: 30 common
factors and noise of half their size.

python -m benchmarks.gamma_cost [--rounds 5] [--threads 2] [--sizes 1000x24 1000x60 5000x216 5000x216-correlated]
"""

import argparse
import os
import sys
import time

import numpy as np

SIZES = ("1000x24", "1000x60", "5000x216", "5000x216-correlated")
FACTORS, NOISE = 30, 0.5


def data(n, d, correlated=False):
    import pymc_pacauc as pac

    if (n, d) in ((1000, 24), (1000, 60)):
        credit = pac.datasets.load_credit().standardized()
        return np.ascontiguousarray(credit.X[:, :d]), credit.y > 0
    rng = np.random.default_rng([n, d])
    X = rng.normal(size=(n, d))
    if correlated:
        X = rng.normal(size=(n, FACTORS)) @ rng.normal(size=(FACTORS, d)) / np.sqrt(FACTORS) + NOISE * X
        X = (X - X.mean(axis=0)) / X.std(axis=0)
    signal = X[:, :10] @ rng.normal(size=10) + rng.logistic(scale=2.0, size=n)
    return X, signal > np.quantile(signal, 0.7)


def timed(function, *arguments, **options):
    wall, cpu = time.perf_counter(), time.process_time()
    value = function(*arguments, **options)
    return value, time.perf_counter() - wall, time.process_time() - cpu


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sizes", nargs="*", default=SIZES)
    arguments = parser.parse_args()
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(arguments.threads))
    if any(os.environ.get(name) != value for name, value in threads.items()):  # read when libraries are loaded
        command = [sys.executable, "-m", "benchmarks.gamma_cost", *sys.argv[1:]]
        os.execve(sys.executable, command, os.environ | threads)
    from sklearn.linear_model import LogisticRegressionCV

    from pymc_pacauc.problem.problem import linear_gaussian_problem
    from pymc_pacauc.tune.gamma import choose_gamma

    print("| n | d | covariates | choose_gamma | LogisticRegressionCV | ratio | of CPU time | gammas | assignments |")
    print("|---:|---:|---|---:|---:|---:|---:|---:|---:|")
    for size in arguments.sizes:
        shape, _, design = size.partition("-")
        n, d = map(int, shape.split("x"))
        X, y = data(n, d, design == "correlated")
        design = design or ("Credit" if n == 1000 else "independent")
        rows = []
        for _ in range(arguments.rounds + 1):  # the first one compiles
            problem = linear_gaussian_problem(X, y, 1.0)
            choice, *ours = timed(choose_gamma, problem, n_jobs=arguments.threads)
            peer = LogisticRegressionCV(Cs=10, cv=5, scoring="roc_auc", l1_ratios=(0,), use_legacy_attributes=False)
            _, *theirs = timed(peer.fit, X, y)
            rows.append((*ours, *theirs))
        wall, cpu, peer_wall, peer_cpu = np.array(rows[1:]).T
        print(
            f"| {n} | {d} | {design} | {np.median(wall):.2f} s | {np.median(peer_wall):.2f} s | "
            f"{np.median(wall / peer_wall):.2f} | {np.median(cpu / peer_cpu):.2f} | "
            f"{len(choice.candidates)} | {len(choice.folds)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
