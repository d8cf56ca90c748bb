"""Expectation propagation: cost of a sweep, of a fit, memory, and how far the answers are from exact ones.

    python -m benchmarks.ep [sweep] [fit] [memory] [sweeps] [accuracy] [leave-out]

Everything by default. One thread; competitors take turns, times are medians of CPU time. The paper's own formulation
(every site stored, O(n+ n- d^2) a sweep, damping) is the reference, in ``paper_ep.py``.
"""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import argparse
import dataclasses
import resource
import subprocess
import sys
from time import process_time

import numpy as np

import pymc_pacauc as pac
from benchmarks.paper_ep import paper_sweep
from pymc_pacauc import fitting
from pymc_pacauc.ep.importance import log_mean
from pymc_pacauc.ep.posterior import natural_gaussian
from pymc_pacauc.ep.sites import SiteTable
from pymc_pacauc.ep.sweep import sweep_sums
from pymc_pacauc.model.compat import pareto_smooth
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.smc.paths import prior_path
from pymc_pacauc.smc.tempering import Settings, run_tempering
from tests.oracles import exact_plane, plane_data

SHIPPED = ("pima", "spect", "glass", "credit", "dna")


def simulated(n, d, positive=0.5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    score = X @ rng.standard_normal(d) / np.sqrt(d) + rng.logistic(size=n)
    return X, score > np.quantile(score, 1 - positive)


def shipped(name):
    data = getattr(pac.datasets, f"load_{name}")()
    return (data.X - data.X.mean(axis=0)) / np.where(data.X.std(axis=0) > 0, data.X.std(axis=0), 1.0), data.y


def interleaved(functions, repeats=7):
    times = {name: [] for name in functions}
    for repeat in range(repeats + 1):
        for name, function in functions.items():
            start = process_time()
            function()
            if repeat:  # the first round compiles
                times[name].append(process_time() - start)
    return {name: float(np.median(values)) for name, values in times.items()}


def table(title, header, rows):
    print(f"\n## {title}\n\n| {' | '.join(header)} |\n|{'---|' * len(header)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |", flush=True)


def sweep():
    rows = []
    for n, d, positive in ((3186, 180, 0.24), (10_000, 50, 0.3)):
        X, y = simulated(n, d, positive)
        problem = linear_gaussian_problem(X, y, float(n))
        space = problem.scores.reduced
        sites = SiteTable(problem.gamma / problem.pairs.n_pairs)
        q = natural_gaussian(np.eye(d) * 3.0, np.ones(d))
        [block] = problem.pairs.blocks
        positives, negatives = space.design[block.positive], space.design[block.negative]
        pairs = np.empty((block.positive.size, block.negative.size))

        def products(positives=positives, negatives=negatives, pairs=pairs):
            np.matmul(positives, negatives.T, out=pairs)
            return pairs @ negatives

        seconds = interleaved(
            {
                "sweep": lambda q=q, problem=problem, sites=sites: sweep_sums(problem, q, problem.pairs, sites),
                "products": products,
                "exp": lambda pairs=pairs: np.exp(pairs, out=pairs),
            }
        )
        floor = seconds["products"] + seconds["exp"]
        rows.append(
            [
                n,
                d,
                problem.pairs.n_pairs,
                *(f"{1e3 * seconds[k]:.0f} ms" for k in seconds),
                f"{seconds['sweep'] / floor:.2f}",
            ]
        )
    table(
        "One sweep against its floor, two matrix products and one exponential per pair",
        ["n", "d", "pairs", "sweep", "two GEMMs", "np.exp", "ratio"],
        rows,
    )


def damped_sweeps(problem, damping=0.5, tolerance=1e-6, limit=500):
    """How many damped parallel sweeps reach the tolerance, without acceleration or rescaling."""
    space, sites = problem.scores.reduced, SiteTable(problem.gamma / problem.pairs.n_pairs)
    identity = np.eye(space.dimension)
    q = natural_gaussian(identity, np.zeros(space.dimension))
    for count in range(1, limit + 1):
        sums = sweep_sums(problem, q, problem.pairs, sites)
        precision, shift = identity + sums.precision - q.precision, sums.shift - q.shift
        change = np.sqrt(np.sum(precision**2) + np.sum(shift**2)) / np.sqrt(np.sum(q.precision**2) + np.sum(q.shift**2))
        if change < tolerance:
            return count
        q = natural_gaussian(q.precision + damping * precision, q.shift + damping * shift)
    return limit


def fit():
    X, y = shipped("dna")
    y = y > 0
    problem = linear_gaussian_problem(X, y, float(len(y)))
    K, h = np.zeros((y.sum(), (~y).sum())), np.zeros((y.sum(), (~y).sum()))
    paper_times = []
    for _ in range(3):
        start = process_time()
        paper_sweep(X, y, problem.gamma, K, h)
        paper_times.append(process_time() - start)
    count = damped_sweeps(problem)
    ours = interleaved({"fit": lambda: fitting.fit(problem, n_jobs=1)}, repeats=3)["fit"]
    sweeps, per_sweep = fitting.fit(problem, n_jobs=1).sweeps, float(np.median(paper_times))
    paper = [
        "the paper's (stored sites, O(n₊n₋d²), damping 0.5)",
        count,
        f"{per_sweep:.2f}",
        f"{per_sweep * count:.0f}",
    ]
    table(
        "A whole fit on DNA (n = 3186, d = 180, gamma = n, relative change 1e-6)",
        ["algorithm", "sweeps", "seconds per sweep", "seconds", "ratio"],
        [
            [*paper, f"{per_sweep * count / ours:.0f}"],
            ["this package", sweeps, f"{ours / sweeps:.3f}", f"{ours:.2f}", "1"],
        ],
    )
    faster = per_sweep * count / ours
    print(f"\nWon: EP, a fit on DNA: {faster:.0f} times faster than the paper's algorithm, written plainly.")
    rng = np.random.default_rng(0)
    wide = rng.standard_normal((62, 2000))
    wide_problem = linear_gaussian_problem(wide, wide[:, 0] + rng.standard_normal(62) > 0.3, 62.0)
    pima = linear_gaussian_problem(*shipped("pima"), 532.0)
    seconds = interleaved(
        {
            "62 by 2000": lambda: fitting.fit(wide_problem, n_jobs=1),
            "Pima, 532 by 7": lambda: fitting.fit(pima, n_jobs=1),
        }
    )
    table("Small fits", ["data", "milliseconds"], [[name, f"{1e3 * value:.1f}"] for name, value in seconds.items()])


def memory(inside=False):
    if not inside:
        subprocess.run([sys.executable, "-m", "benchmarks.ep", "memory-child"], check=True)
        return
    rng = np.random.default_rng(0)
    n_pos, n_neg, d = 10_000, 1_000_000, 20
    X = rng.standard_normal((n_pos + n_neg, d))
    y = np.arange(n_pos + n_neg) < n_pos
    X[y, 0] += 1.0
    problem = linear_gaussian_problem(X, y, float(len(y)))
    del X
    sites = SiteTable(problem.gamma_per_pair)
    start = process_time()
    sweep_sums(problem, natural_gaussian(np.eye(d), np.ones(d)), problem.pairs, sites)
    seconds = process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    table(
        "10¹⁰ pairs (n₊ = 10⁴, n₋ = 10⁶, d = 20): one sweep on one thread",
        ["seconds", "ns per pair", "peak GiB, data and interpreter included"],
        [[f"{seconds:.0f}", f"{1e9 * seconds / problem.pairs.n_pairs:.1f}", f"{peak:.2f}"]],
    )


def sweeps():
    rows = []
    for name in SHIPPED:
        X, y = shipped(name)
        for factor in (0.125, 1.0, 2.0):
            problem = linear_gaussian_problem(X, y, factor * len(y))
            found = fitting.fit(problem)
            warm = fitting.fit(problem, start=fitting.fit(dataclasses.replace(problem, gamma=problem.gamma / 2)))
            acted = ", ".join(f"{k} {v}" for k, v in vars(found.interventions).items() if v) or "none"
            rows.append([name, f"{factor:g} n", found.sweeps, warm.sweeps, fitting.fit(problem, "vb").sweeps, acted])
    table(
        "Sweeps to a relative change of 1e-6",
        ["data", "gamma", "EP", "EP started at gamma/2", "VB", "interventions"],
        rows,
    )


def accuracy():
    rows = []
    X, y = plane_data(300)
    for factor in (0.125, 1.0, 2.0):
        gamma = 300 * factor
        problem, exact = linear_gaussian_problem(X, y, gamma), exact_plane(X, y, gamma)
        ep, vb = fitting.fit(problem), fitting.fit(problem, "vb")
        estimate, error = log_mean(pareto_smooth(ep.importance(10_000, np.random.default_rng(1)).log_weights)[0])
        direction = ep.posterior.mean / np.linalg.norm(ep.posterior.mean)
        angle = np.degrees(np.arccos(direction @ exact.mean_direction / np.linalg.norm(exact.mean_direction)))
        rows.append(
            [f"{factor:g} n", f"{exact.log_evidence:.3f}", f"{ep.log_evidence - exact.log_evidence:+.3f}",
             f"{vb.log_evidence - exact.log_evidence:+.3f}", f"{estimate - exact.log_evidence:+.4f} ± {error:.4f}",
             f"{angle:.2f}°", f"{np.linalg.norm(ep.posterior.mean) / np.linalg.norm(exact.mean):.3f}"]
        )  # fmt: skip
    table(
        "Against the exact answer in the plane (n = 300, d = 2): error of log Z, angle of the mean, its length",
        ["gamma", "exact log Z", "EP", "VB", "EP + importance weights", "angle", "length ratio"],
        rows,
    )
    X, y = shipped("pima")
    problem = linear_gaussian_problem(X, y, 532.0)
    ep = fitting.fit(problem)
    draws = ep.importance(20_000, np.random.default_rng(1))
    log_weights, k = pareto_smooth(draws.log_weights)
    estimate, error = log_mean(log_weights)
    path, generators = prior_path(problem), [np.random.default_rng(seed) for seed in range(4)]
    runs = [run_tempering(path, Settings(particles=10_000), rng) for rng in generators]
    theta = np.concatenate([path.finish(run.population, rng)[0] for run, rng in zip(runs, generators, strict=True)])
    evidence = [run.log_evidence for run in runs]
    sd = theta.std(axis=0)
    gap = np.abs((ep.posterior.mean - theta.mean(axis=0)) / sd).max()
    ratios = np.sqrt(np.diagonal(ep.posterior.covariance)) / sd
    table(
        "Pima, gamma = n, against tempering SMC (4 runs of 10⁴ particles)",
        ["quantity", "value"],
        [
            ["log Z: EP", f"{ep.log_evidence:.3f}"],
            ["log Z: EP + importance weights", f"{estimate:.3f} ± {error:.3f} (Pareto k {k:.2f})"],
            ["log Z: SMC", f"{np.mean(evidence):.3f} ± {np.std(evidence, ddof=1) / 2:.3f}"],
            ["largest difference of means / posterior sd", f"{gap:.3f}"],
            ["the same, EP's mean at SMC's length", f"{_direction_gap(ep.posterior.mean, theta.mean(axis=0), sd):.3f}"],
            ["sd ratio EP / SMC, per coefficient", ", ".join(f"{ratio:.2f}" for ratio in ratios)],
        ],
    )


def _direction_gap(ep_mean, smc_mean, sd):
    length = np.linalg.norm(smc_mean)
    return np.abs((ep_mean / np.linalg.norm(ep_mean) * length - smc_mean) / sd).max()


def leave_out():
    rows = []
    for name in ("pima", "credit"):
        X, y = shipped(name)
        problem = linear_gaussian_problem(X, y, float(len(y)))
        found = fitting.fit(problem, tolerance=1e-8)
        groups = np.random.default_rng(0).permutation(len(y)) % 5
        start = process_time()
        exact = found.leave_out(groups, refine=100, tolerance=1e-8)
        seconds = process_time() - start
        for refine in (0, 1, 3):
            start = process_time()
            result = found.leave_out(groups, refine=refine)
            taken = process_time() - start
            error = np.abs(result.scores - exact.scores).max()
            rows.append(
                [name, refine, f"{result.auc:.4f}", f"{exact.auc:.4f}", f"{error:.3f}", f"{seconds / taken:.1f}"]
            )
    table(
        "Five folds by removing sites, against refits from the removed state (error in sd of the scores)",
        ["data", "refining sweeps", "CV-AUC", "of the refit", "largest score error", "times faster than refitting"],
        rows,
    )


PARTS = {"sweep": sweep, "fit": fit, "memory": memory, "sweeps": sweeps, "accuracy": accuracy, "leave-out": leave_out}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; default all")
    parts = parser.parse_args().parts or list(PARTS)
    if parts == ["memory-child"]:
        memory(inside=True)
        return
    for part in parts:
        PARTS[part]()


if __name__ == "__main__":
    main()
