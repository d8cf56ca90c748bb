"""Subsampled pairs: how far from all pairs, how much memory, what SMC at a million rows takes.

    python -m benchmarks.large accuracy [--rows 16000 100000] [--seeds 4]
    python -m benchmarks.large memory [--rows 1000000]
    python -m benchmarks.large smc [--rows 1000000] [--particles 100]

``accuracy`` compares fits on subsamples, gamma = n, d = 10, with one on all pairs up to 16 000 rows, and beyond with
one on sixteen times as many, sampled otherwise. The error of the mean is in posterior standard deviations: of the
coefficients, and of the posterior in the direction of the error (root mean squares); claimed is ``sampling_error``.
``memory`` and ``smc`` are for 20 covariates and one row in a hundred positive.
"""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse
import resource
from functools import partial
from time import process_time

import numpy as np

from benchmarks.fits import simulated
from pymc_pacauc import fitting
from pymc_pacauc.comparison.risk import LinearRisk, empirical_risk
from pymc_pacauc.ep.plan import Subsample, choose_plan
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.smc.paths import bridge_path, prior_path
from pymc_pacauc.smc.tempering import Settings, run_tempering

MOST_COMPARED_WITH_ALL = 16_000
TIMES_AS_MANY = 16


def timed(function):
    began = process_time()
    found = function()
    return found, process_time() - began


def rms(values):
    return float(np.sqrt(np.mean(np.square(values))))


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def accuracy(rows, seeds):
    print(
        "| n | pairs | used | rms error, of coefficients | in its direction | claimed | log Z | claimed | AUC held out "
        "| CPU s | reference |\n|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|"
    )
    for n in rows:
        X, y = simulated(2 * n, 10)
        problem = linear_gaussian_problem(X[:n], y[:n], float(n))
        used = choose_plan(problem).pairs
        groups = used.groups if isinstance(used, Subsample) else 1.0
        if n <= MOST_COMPARED_WITH_ALL:
            exact, taken = timed(partial(fitting.fit, problem, pairs="all", n_jobs=1))
            reference = f"all pairs, {taken:.1f} s"
        else:
            more = Subsample(groups / TIMES_AS_MANY, random_seed=1000)
            exact, taken = timed(partial(fitting.fit, problem, pairs=more, n_jobs=1))
            reference = f"{exact.pairs_used:.2g} pairs, ± {exact.sampling_error.mean:.3f}, {taken:.1f} s"
        q, deviation = exact.posterior.natural, np.sqrt(exact.posterior.variance)
        by_coefficient, by_direction, evidence, auc, seconds, claimed = [], [], [], [], [], []
        for seed in range(seeds):
            found, taken = timed(partial(fitting.fit, problem, pairs=Subsample(groups, random_seed=seed), n_jobs=1))
            by_coefficient.append((found.posterior.mean - exact.posterior.mean) / deviation)
            by_direction.append(q.factor.T @ (found.posterior.natural.mean - q.mean))
            evidence.append(found.log_evidence - exact.log_evidence)
            means = np.stack([exact.posterior.mean, found.posterior.mean])
            auc.append(np.diff(1.0 - empirical_risk(means @ X[n:].T, y[n:]))[0])
            seconds.append(taken)
            claimed.append((found.sampling_error.mean, found.sampling_error.log_evidence))
        of_mean, of_evidence = (rms(column) for column in zip(*claimed, strict=True))
        print(
            f"| {n} | {problem.pairs.n_pairs:.2g} | {found.pairs_used:.2g} | {rms(by_coefficient):.3f} | "
            f"{rms(by_direction):.3f} | {of_mean:.3f} | {rms(evidence):.2f} | {of_evidence:.2f} | "
            f"{max(auc, key=abs):+.5f} | {np.median(seconds):.1f} | {reference} |",
            flush=True,
        )


def small():
    """Compiles."""
    problem = linear_gaussian_problem(*simulated(2000, 20), 2000.0)
    return fitting.fit(problem, pairs=Subsample(4), n_jobs=1)


def memory(rows):
    small()
    X, y = simulated(rows, 20, 0.01)
    before = peak()
    problem = linear_gaussian_problem(X, y, float(rows))
    found, taken = timed(lambda: fitting.fit(problem, n_jobs=1))
    print("| rows | MiB before the fit | MiB after it | pairs | used | sweeps | CPU s | mean, sd | log Z, nats |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    print(
        f"| {rows} | {before:.0f} | {peak():.0f} | {problem.pairs.n_pairs:.2g} | {found.pairs_used:.2g} | "
        f"{found.sweeps} | {taken:.0f} | ± {found.sampling_error.mean:.3f} | "
        f"± {found.sampling_error.log_evidence:.2f} |\n",
        flush=True,
    )
    return problem, found


def smc(rows, particles):
    problem, found = memory(rows)
    path = bridge_path(prior_path(problem), found.posterior.mean, found.posterior.covariance)
    spent = []
    evaluate = LinearRisk.__call__

    def risks(self, theta):
        values, taken = timed(lambda: evaluate(self, theta))
        spent.append((len(theta), taken))
        return values

    LinearRisk.__call__ = risks
    state, taken = timed(lambda: run_tempering(path, Settings(particles=particles), np.random.default_rng(0)))
    draws, seconds = np.sum(spent, axis=0)
    print("| particles | stages | moves | CPU s | in exact risks | risks | s each | log Z | by EP | peak MiB |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    print(
        f"| {particles} | {len(state.stages) - 1} | {sum(stage.moves for stage in state.stages)} | {taken:.0f} | "
        f"{seconds:.0f} | {draws:.0f} | {seconds / draws:.3f} | {state.log_evidence:.2f} | {found.log_evidence:.2f} | "
        f"{peak():.0f} |"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("accuracy", "memory", "smc"))
    parser.add_argument("--rows", type=int, nargs="+")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--particles", type=int, default=100)
    arguments = parser.parse_args()
    if arguments.what == "accuracy":
        accuracy(arguments.rows or [16_000, 100_000], arguments.seeds)
    else:
        rows = (arguments.rows or [1_000_000])[0]
        memory(rows) if arguments.what == "memory" else smc(rows, arguments.particles)


if __name__ == "__main__":
    main()
