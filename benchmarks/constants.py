"""What doubling and halving a constant does: CPU seconds and error of a fit that depends on it, as ratios.

    python -m benchmarks.constants [--only SMALL_BLOCK ...]

Each value is put into its module, in turns, ``--rounds`` times; medians of CPU seconds are compared. The error is that
which the fit states of its subsample, in posterior standard deviations; or the distance of its mean from that with the
value as it is; or, of draws, the standard deviation of log Z over runs.
"""

import argparse
import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import time
import warnings
from importlib import import_module

import numpy as np

from pymc_pacauc.arrays import fit, linear_gaussian_problem, spike_slab_problem
from pymc_pacauc.comparison.kinds import label_comparison
from pymc_pacauc.datasets import load_dna
from pymc_pacauc.smc.paths import bridge_path, prior_path
from pymc_pacauc.smc.tempering import Settings, run_tempering


def rows(n, d, share=0.5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    score = X @ np.linspace(1.0, -0.5, d) + 1.5 * rng.logistic(size=n)
    return X, score > np.quantile(score, 1.0 - share)


def subsampled(n, share=0.5, strata=None, **options):
    X, y = rows(n, 10, share)
    pairs = label_comparison(y, strata=None if strata is None else strata(np.arange(n)))
    found = fit(linear_gaussian_problem(X, pairs, gamma=n / 2), **options)
    return found.posterior.mean, found.sampling_error.mean


def one_large_of_many(at):
    """One stratum of 40 000 rows, and a hundred of two hundred."""
    return np.where(at < 40_000, 0, 1 + at % 100)


def strata(n, many, d):
    X, y = rows(n, d)
    pairs = label_comparison(y, strata=np.arange(n) % many)
    return fit(linear_gaussian_problem(X, pairs, gamma=n / 2), pairs="all").posterior.mean, 0.0


def spikes():
    """The DNA data, where the scale of the coefficients is far from where the iteration starts."""
    data = load_dna()
    return fit(
        spike_slab_problem(data.X[:800], data.y[:800], 600.0, inclusion_probability=0.1, v0=0.0)
    ).posterior.mean, 0.0


def bridged():
    X, y = rows(500, 7)
    problem = linear_gaussian_problem(X, y, gamma=500.0)
    q = fit(problem).posterior
    path = bridge_path(prior_path(problem), q.mean, q.covariance)
    found = [
        run_tempering(path, Settings(particles=1000), np.random.default_rng(seed)).log_evidence for seed in range(20)
    ]
    return np.array([np.mean(found)]), float(np.std(found, ddof=1))


CASES = {
    "FEW_ROWS": ("ep.subsample", lambda: subsampled(60_000)),
    "MANY_ROWS": ("ep.subsample", lambda: subsampled(60_000)),
    "PILOT_SIDE": ("ep.subsample", lambda: subsampled(60_000, share=0.02)),
    "LEAST_ROWS": ("comparison.subsample", lambda: subsampled(60_000, share=0.005)),
    "WHOLE": ("comparison.subsample", lambda: subsampled(60_000, strata=one_large_of_many)),
    "SMALL_BLOCK": ("ep.sweep", lambda: strata(12_000, 80, 10)),
    "FEW": ("ep.sweep", lambda: strata(1200, 12, 10)),
    "LARGEST_RESCALING": ("ep.prior_sites", spikes),
    "DEFENSIVE_SHARE": ("smc.paths", bridged),
}


def put(module, name, value):
    setattr(module, name, value)
    if name == "SMALL_BLOCK":  # which is the default of an argument
        module.cut_work.__kwdefaults__["small_block"] = value


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| constant | value | times | CPU s | error | mean moves by |\n|---|---:|---:|---:|---:|---:|")
    for name in arguments.only:
        place, case = CASES[name]
        module = import_module(f"pymc_pacauc.{place}")
        usual = getattr(module, name)
        case()  # compiles
        seconds = {factor: [] for factor in (1.0, 2.0, 0.5)}
        found = {}
        for _ in range(arguments.rounds):
            for factor, taken in seconds.items():
                put(module, name, type(usual)(factor * usual))
                began = time.process_time()
                found[factor] = case()
                taken.append(time.process_time() - began)
        put(module, name, usual)
        for factor, taken in seconds.items():
            (mean, error), (reference, _) = found[factor], found[1.0]
            apart = np.linalg.norm(mean - reference) / np.linalg.norm(reference)
            print(
                f"| {name} | {type(usual)(factor * usual):g} | {factor:g} | {np.median(taken):.2f} | {error:.3f} "
                f"| {apart:.0e} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
