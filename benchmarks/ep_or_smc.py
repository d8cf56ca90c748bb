"""Errors of EP against long runs of tempering SMC: exact length, and coefficients with other priors than the Gaussian.

    python -m benchmarks.ep_or_smc [length] [priors] [--particles 20000]

One thread. Differences of means are in standard deviations of SMC; what is printed after ± is the Monte Carlo error of
SMC itself, from two halves of independent runs. ``length``: shipped data, standardised, prior N(0, I).
"""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse
from time import process_time

import numpy as np

import pymc_pacauc as pac
from pymc_pacauc.ep.importance import log_mean
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.smc import Settings, combine, prior_path, run_tempering

RUNS = 4


def tempered(problem, particles, runs=RUNS):
    """Means and standard deviations of each run (runs, d), pooled evidence, CPU seconds of one run."""
    begin, moments, last = process_time(), [], []
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        path = prior_path(problem)
        state = run_tempering(path, Settings(particles=particles), rng)
        theta, _ = path.finish(state.population, rng)
        moments.append((theta.mean(axis=0), theta.std(axis=0)))
        last.append(state.stages[-1])
    mean, sd = (np.array(each) for each in zip(*moments, strict=True))
    evidence = combine([s.log_evidence for s in last], [s.log_evidence_variance for s in last])
    return mean, sd, evidence, (process_time() - begin) / runs


def compared(label, posterior, mean, sd):
    """A line: largest difference of means, range of the ratios of standard deviations, and SMC's own error."""
    off = np.abs(posterior.mean - mean.mean(axis=0)) / sd.mean(axis=0)
    ratio = np.sqrt(posterior.variance) / sd.mean(axis=0)
    error = mean.std(axis=0, ddof=1).max() / np.sqrt(len(mean)) / sd.mean()
    sd_error = (sd.std(axis=0, ddof=1) / sd.mean(axis=0)).max() / np.sqrt(len(sd))
    print(
        f"| {label} | {off.max():.3f} ± {error:.3f} | {ratio.min():.3f} to {ratio.max():.3f} ± {sd_error:.3f} ", end=""
    )


def length(particles):
    print("| data, gamma | mean off, sd | sd ratio | the same of q: | | log Z, SMC | EP | corrected | s, SMC | s, EP |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in ("pima", "spect", "credit"):
        data = getattr(pac.datasets, f"load_{name}")().standardized()
        for share in (1.0 / 3.0, 1.0):
            problem = linear_gaussian_problem(data.X, data.y, share * data.n)
            mean, sd, evidence, seconds = tempered(problem, particles)
            begin = process_time()
            found = fit(problem)
            corrected = found.corrected
            assert corrected.variance.all()
            own = process_time() - begin
            compared(f"{name}, {share:.2g} n", corrected, mean, sd)
            compared("", found.posterior, mean, sd)
            estimate, error = log_mean(corrected.weights.log_weights)
            print(f"| {evidence} | {found.log_evidence:.3f} | {estimate:.3f} ± {error:.3f} ", end="")
            print(f"| {seconds:.1f} | {own:.3f} |", flush=True)


PARTS = {"length": length}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=", ".join(PARTS))
    parser.add_argument("--particles", type=int, default=20000)
    arguments = parser.parse_args()
    for part in arguments.parts:
        PARTS[part](arguments.particles)


if __name__ == "__main__":
    main()
