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

import sys
import time
import warnings
from dataclasses import fields, replace
from importlib import import_module
from unittest import mock

import numpy as np

from pymc_pacauc.arrays import choose_gamma, choose_lengthscale, fit, linear_gaussian_problem, spike_slab_problem
from pymc_pacauc.comparison.kinds import label_comparison
from pymc_pacauc.datasets import load_dna
from pymc_pacauc.ep import gaussian, loop
from pymc_pacauc.ep.fit import fit as carry_out
from pymc_pacauc.ep.plan import choose_plan
from pymc_pacauc.problem.problem import Tabulated, tabulate
from pymc_pacauc.smc.paths import bridge_path, prior_path
from pymc_pacauc.smc.tempering import Settings, run_tempering
from pymc_pacauc.tune.coverage import coverage_gamma
from pymc_pacauc.tune.nested import Conditional, Density, integrate


def rows(n, d, share=0.5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    score = X @ np.linspace(1.0, -0.5, d) + 1.5 * rng.logistic(size=n)
    return X, score > np.quantile(score, 1.0 - share)


def subsampled(n, share=0.5, strata=None, d=10, **options):
    X, y = rows(n, d, share)
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


def laplace():
    """Independent priors with heavy tails, of which two have their mode at the end of their support."""
    X, y = rows(300, 6)
    table = tabulate(lambda x: -np.abs(x) - np.log(2.0), centres=[0.0])
    half = tabulate(lambda x: np.where(x >= 0.0, -x, -np.inf), centres=[0.0])
    which = np.array([0, 0, 0, 0, 1, 1])
    scale = np.where(which == 0, table.spread, half.spread)
    problem = linear_gaussian_problem(X, y, 300.0, prior_covariance=scale**2)
    return fit(replace(problem, sites=Tabulated((table, half), which, scale))).corrected.mean, 0.0


def continued():
    """Gammas far beyond the comparison's size, labels that are noise: fixed points are several."""
    evidences = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(60, 20)), np.arange(60) < 30
        evidences.append(fit(linear_gaussian_problem(X, y, gamma=16 * 15.0), pairs="all").log_evidence)
    return np.array(evidences), 0.0


def integrated():
    """Two scales of coefficients with log-normal priors: evidence, and moments of their logarithms."""
    X, y = rows(200, 8)

    def problem_at(phi):
        return linear_gaussian_problem(X, y, 200.0, prior_covariance=np.repeat(np.exp(2.0 * phi), 4))

    def log_prior(phi):
        return -0.5 * np.sum(phi**2, axis=1) - np.log(2.0 * np.pi)

    found = integrate(Density(Conditional(problem_at, log_prior, np.zeros(2), np.ones(2))))
    mean = found.weights @ found.phi
    return np.concatenate([[found.log_evidence], mean, np.sqrt(found.weights @ (found.phi - mean) ** 2)]), 0.0


def chosen():
    X, y = rows(300, 8)
    return np.log([choose_gamma(linear_gaussian_problem(X, y, gamma=1.0)).gamma]), 0.0


def covered():
    X, y = rows(300, 5)
    return np.log([coverage_gamma(linear_gaussian_problem(X, y, gamma=1.0), 0.9).gamma]), 0.0


def few_particles():
    X, y = rows(200, 8)
    path = prior_path(linear_gaussian_problem(X, y, gamma=200.0, offset=0.1 * X[:, 0]))
    settings = Settings(particles=100, move="auto")
    found = [run_tempering(path, settings, np.random.default_rng(seed)).log_evidence for seed in range(20)]
    return np.array([np.mean(found)]), float(np.std(found, ddof=1))


def longest():
    X, y = rows(400, 3)
    return choose_lengthscale(X, y, 1600.0).lengthscale, 0.0


def policies():
    """Print the sweeps of 24 fits, some of them hard, with each constant of the loop doubled and halved."""
    problems = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(120, 8)) @ np.diag(np.geomspace(1.0, 0.1, 8))
        y = X[:, 0] + 0.5 * rng.normal(size=120) > 0
        problems += [linear_gaussian_problem(X, y, gamma) for gamma in (30.0, 480.0)]
        problems += [linear_gaussian_problem(X, y, 240.0, prior_mean=-1.0), linear_gaussian_problem(X, ~y, 2000.0)]
    usual = loop.POLICY
    print("| constant | value | sweeps of 24 fits | converged |\n|---|---:|---:|---:|")
    for field in fields(usual):
        value = getattr(usual, field.name)
        if value is None or isinstance(value, bool) or not np.isfinite(value):
            continue
        for factor in (1.0, 2.0, 0.5):
            tried = min(1.0, factor * value) if "damping" in field.name else type(value)(factor * value)
            found = []
            for each in problems:
                plan = choose_plan(each, pairs="all")
                policy = replace(usual, **{field.name: tried})
                with mock.patch.object(gaussian, "policy_for", lambda dimension, *_, policy=policy: policy):
                    found.append(carry_out(each, plan))
            sweeps = sum(each.sweeps for each in found)
            print(f"| {field.name} | {tried:g} | {sweeps} | {sum(each.converged for each in found)} |", flush=True)


CASES = {
    "LENGTH_MATTERS": ("ep.plan", lambda: subsampled(20_000, d=4)),
    "ROUGH": ("ep.subsample", lambda: subsampled(60_000)),
    "LAST_TOLERANCE": ("ep.subsample", lambda: subsampled(60_000)),
    "CHANGE": ("ep.start", continued),
    "SWEEPS": ("ep.start", continued),
    "CLOSEST": ("ep.spike_slab", laplace),
    "FLOOR": ("ep.prior_sites", spikes),
    "PASSES_PER_SWEEP": ("ep.prior_sites", spikes),
    "FOLD_TOLERANCE": ("tune.gamma", chosen),
    "MOST_FITS": ("tune.coverage", covered),
    "STEP": ("tune.nested", integrated),
    "STRETCH": ("tune.nested", integrated),
    "FARTHEST": ("tune.nested", integrated),
    "MOST_POINTS": ("tune.nested", integrated),
    "ROUNDING": ("ep.loop", continued),
    "LONGEST": ("tune.evidence", longest),
    "PARTICLES_PER_DIMENSION": ("smc.coordinates", few_particles),
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

# Constants that are the default of an argument
DEFAULTS = {
    "SMALL_BLOCK": ("ep.sweep", "cut_work", "small_block"),
    "FOLD_TOLERANCE": ("tune.gamma", "held_out", "tolerance"),
}


def put(name, usual, value):
    """Set a constant wherever it was imported."""
    for each in [each for key, each in sys.modules.items() if key.startswith("pymc_pacauc.")]:
        if name in vars(each) and vars(each)[name] == usual:
            setattr(each, name, value)
    if name in DEFAULTS:
        place, function, argument = DEFAULTS[name]
        getattr(import_module(f"pymc_pacauc.{place}"), function).__kwdefaults__[argument] = value


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--policies", action="store_true", help="the constants of the loop of EP")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.policies:
        policies()
        return
    print("| constant | value | times | CPU s | error | mean moves by |\n|---|---:|---:|---:|---:|---:|")
    for name in arguments.only:
        place, case = CASES[name]
        module = import_module(f"pymc_pacauc.{place}")
        usual = getattr(module, name)
        case()  # compiles
        seconds = {factor: [] for factor in (1.0, 2.0, 0.5)}
        found = {}
        present = usual
        for _ in range(arguments.rounds):
            for factor, taken in seconds.items():
                put(name, present, present := type(usual)(factor * usual))
                began = time.process_time()
                found[factor] = case()
                taken.append(time.process_time() - began)
        put(name, present, usual)
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
