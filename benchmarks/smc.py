"""Tempering SMC against its peers: the same targets, the same gamma, one run.

Work-normalised variance (WNV): variance over seeds of the posterior-mean estimate, averaged over coefficients, times
the CPU seconds of a run; of posterior variances, the same of their relative errors. A method with half the WNV reaches
the same accuracy in half the time, whatever its settings.

Targets: Pima (n = 532, d = 7, gamma = n, prior N(0, I)) and a simulated n = 3000, d = 50, gamma = n; then, ours alone,
the log evidence over seeds on DNA (d = 180) and for a Gaussian process (500 latent scores). Reference values come from
ten times more particles started from EP; an exact oracle checks the engine in the tests.

Peers are given every advantage that is easy to give (``smc_peers.py``); those not installed are left out.

    python -m benchmarks.smc [pima] [simulated] [dna] [process] [--seeds 10] [--peer-seeds 5]
"""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_ENABLE_X64", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import argparse
import warnings
from importlib.util import find_spec
from time import process_time

import numpy as np

import pymc_pacauc as pac
from benchmarks.smc_peers import PARTICLES, blackjax_smc, moments, particles_smc, pymc_smc
from pymc_pacauc import fitting
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.smc.paths import bridge_path, prior_path
from pymc_pacauc.smc.tempering import Settings, run_tempering

PAPER = "the paper's: one random-walk move"

# -- targets ---------------------------------------------------------------------------------------------------------


def shipped(name):
    data = getattr(pac.datasets, f"load_{name}")()
    X = data.X[:, data.X.std(axis=0) > 0]
    return (X - X.mean(axis=0)) / X.std(axis=0), data.y, float(data.n)


def simulated(n=3000, d=50):
    rng = np.random.default_rng(50)
    X, theta = rng.standard_normal((n, d)), 0.3 * rng.standard_normal(d)
    y = rng.random(n) < 1 / (1 + np.exp(1.1 - X @ theta))
    return X, y.astype(int), float(n)


def gaussian_process(n=500):
    """Latent scores with a squared-exponential covariance, as in the paper's section 4."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((n, 4))
    f = 2 * np.sin(2 * X[:, 0]) + X[:, 1] ** 2 - 1 + X[:, 2]
    y = rng.random(n) < 1 / (1 + np.exp(1 - 1.5 * f))
    K = np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(axis=-1)) + 1e-6 * np.eye(n)
    return linear_gaussian_problem(np.eye(n), y, float(n), prior_covariance=K)


# -- ours ------------------------------------------------------------------------------------------------------------


def from_prior(problem, particles=PARTICLES, **settings):
    def run(seed):
        path, rng = prior_path(problem), np.random.default_rng(seed)
        state = run_tempering(path, Settings(particles=particles, **settings), rng)
        return *moments(path.finish(state.visited, rng)[0]), state.log_evidence

    return run


def from_ep(problem, particles=PARTICLES, **settings):
    """The time of the fit is part of the run's."""

    def run(seed):
        rng = np.random.default_rng(seed)
        fit = fitting.fit(problem, n_jobs=1)
        path = bridge_path(prior_path(problem), fit.posterior.mean, fit.posterior.covariance)
        state = run_tempering(path, Settings(particles=particles, **settings), rng)
        return *moments(path.finish(state.visited, rng)[0]), state.log_evidence

    return run


# -- measuring -------------------------------------------------------------------------------------------------------


def measure(methods):
    """Mean, log evidence and CPU seconds of each run; every method runs a seed before any runs the next."""
    record = {name: [] for name in methods}
    for seed in range(max(count for _, count in methods.values())):
        for name, (run, count) in methods.items():
            if seed < count:
                began = process_time()
                record[name].append((*run(seed), process_time() - began))
    return record


def report(record, ours):
    """A row for each method; returns how many times lower WNV is for each of ours than for the best peer."""
    rows = {}
    for name, results in record.items():
        means, spreads, log_evidence, seconds = (np.array(column) for column in zip(*results, strict=True))
        variance, of_spread = (x.var(axis=0, ddof=1).mean() for x in (means, spreads / spreads.mean(axis=0)))
        value = log_evidence.mean(), log_evidence.std(ddof=1)
        rows[name] = (len(results), np.median(seconds), *value, of_spread, variance)
    wnv = {name: row[1] * row[-1] for name, row in rows.items()}
    best = min((name for name in rows if name not in ours and name != PAPER), key=wnv.get)
    print("| | seeds | CPU s | log Z (sd) | variance of the mean | WNV | WNV of variances | best peer / this |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, (count, seconds, value, spread, of_spread, variance) in rows.items():
        ratio = f"{wnv[best] / wnv[name]:.1f}" if name in ours else ""
        cells = f"{seconds:.2f} | {value:.2f} ({spread:.3f}) | {variance:.1e} | {wnv[name]:.1e}"
        cells += f" | {seconds * of_spread:.1e} | {ratio}"
        print(f"| {name} | {count} | {cells} |")
    return best, {name: wnv[best] / wnv[name] for name in ours}


def compare(title, X, y, gamma, seeds, peer_seeds):
    problem = linear_gaussian_problem(X, y, gamma)
    prior_path(problem).risk(np.zeros((2, X.shape[1])))  # compiles
    reference = from_ep(problem, particles=10 * PARTICLES)(12345)[-1]
    print(f"\n## {title}: n = {len(y)}, d = {X.shape[1]}, gamma = n\n")
    print(
        "Median CPU seconds of a run, EP's fit included, compilation not; WNV: variance times seconds. Reference log Z "
        f"(from EP, {10 * PARTICLES} particles): {reference:.3f}. {PARTICLES} particles where not said otherwise.\n"
    )
    ours = {
        "from the prior": (from_prior(problem), seeds),
        "from EP": (from_ep(problem), seeds),
        "from EP, 10 000": (from_ep(problem, 10_000), seeds),
    }
    few = max(peer_seeds // 2, 2)
    methods = {**ours, PAPER: (from_prior(problem, move="random_walk", max_moves=1), peer_seeds)}
    methods["pm.sample_smc, IMH"] = (pymc_smc(X, y, gamma, "IMH"), peer_seeds)
    methods["pm.sample_smc, MH"] = (pymc_smc(X, y, gamma, "MH"), few)
    if find_spec("particles"):
        methods["particles, 10 moves"] = (particles_smc(X, y, gamma, False, 11), peer_seeds)
        for length in (10, 50):
            methods[f"particles, waste-free, P = {length}"] = (particles_smc(X, y, gamma, True, length), peer_seeds)
    if find_spec("blackjax"):
        for scheme, name in (("tempered", "10 moves"), ("waste-free", "waste-free, P = 10")):
            methods[f"blackjax, {name}"] = (blackjax_smc(X, y, gamma, scheme, 10), peer_seeds)
        methods["blackjax, persistent, 10 moves"] = (blackjax_smc(X, y, gamma, "persistent", 10), few)
    best, ratios = report(measure(methods), ours)
    for verdict, said in (
        (
            "Won",
            [f"{name} {ratio:.{0 if ratio >= 10 else 1}f} times lower" for name, ratio in ratios.items() if ratio > 1],
        ),
        ("Lost", [f"{name} {1 / ratio:.1f} times higher" for name, ratio in ratios.items() if ratio <= 1]),
    ):
        if said:
            print(
                f"\n{verdict}: SMC, {title}, work-normalised variance against the best peer, {best}: {'; '.join(said)}."
            )


def reproducibility(title, problem, seeds):
    fit = fitting.fit(problem, n_jobs=1)
    print(f"\n## {title}: n = {problem.n}, d = {problem.d}, gamma = n; {PARTICLES} particles\n")
    print(f"EP's log Z: {fit.log_evidence:.2f}. Its fit is not part of the seconds.\n")
    print("| | seed | log Z ± its own standard error | stages | moves | lowest acceptance | CPU s |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    bridge = bridge_path(prior_path(problem), fit.posterior.mean, fit.posterior.covariance)
    for label, path in (("from the prior", prior_path(problem)), ("from EP", bridge)):
        for seed in range(seeds):
            began = process_time()
            state = run_tempering(path, Settings(particles=PARTICLES), np.random.default_rng(seed))
            seconds, last = process_time() - began, state.stages[-1]
            moves, lowest = sum(s.moves for s in state.stages), min(s.acceptance_rate for s in state.stages[1:])
            print(
                f"| {label} | {seed} | {last.log_evidence:.2f} ± {last.log_evidence_variance**0.5:.2f} | "
                f"{len(state.stages) - 1} | {moves} | {lowest:.2f} | {seconds:.1f} |",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", default=["pima", "simulated", "dna", "process"])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--peer-seeds", type=int, default=8)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # of peers, and of runs that reach the largest number of moves
    seeds, peer_seeds = arguments.seeds, arguments.peer_seeds
    if "pima" in arguments.targets:
        compare("Pima", *shipped("pima"), seeds, peer_seeds)
    if "simulated" in arguments.targets:
        compare("Simulated", *simulated(), max(seeds // 4, 2), max(peer_seeds // 2, 2))
    if "dna" in arguments.targets:
        reproducibility("DNA", linear_gaussian_problem(*shipped("dna")), 3)
    if "process" in arguments.targets:
        reproducibility("Gaussian process", gaussian_process(), 3)


if __name__ == "__main__":
    main()
