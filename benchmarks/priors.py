"""Three priors by EP: held-out AUC, exact inclusion probabilities, the regularisation path.

    python -m benchmarks.priors [table] [exact] [path] [--colon PATH]

Everything by default. ``table``: linear Gaussian, spike and slab, Gaussian process on the same stratified halves;
covariates standardised with the training half; gamma its size. Spike and slab: Dirac spike, p = 0.5 below ten
covariates, else 0.1. Gaussian process: squared exponential, lengthscale sqrt(d) in standardised units, at most 1000
training rows. Colon is not shipped; its covariates are taken in logarithms. ``exact``: inclusion probabilities for two
coefficients against finite sums. ``path``: the paper's Figure 3, and fits to all rows of DNA.
"""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import argparse
import warnings
from dataclasses import replace
from time import perf_counter, process_time

import numpy as np
from scipy.spatial.distance import cdist

import pymc_pacauc as pac
from benchmarks.paired import splits
from pymc_pacauc import fitting
from pymc_pacauc.problem.problem import linear_gaussian_problem, spike_slab_problem

SHIPPED = ("pima", "spect", "glass", "credit", "dna")
SPLITS = 5
LARGEST_PROCESS = 1000


def linear(X, y, new):
    fit = fitting.fit(linear_gaussian_problem(X, y, float(y.size)))
    return new @ fit.posterior.mean, fit.converged


def spike_slab(X, y, new):
    p = 0.5 if X.shape[1] < 10 else 0.1
    fit = fitting.fit(spike_slab_problem(X, y, float(y.size), inclusion_probability=p, v0=0.0), tolerance=1e-4)
    return new @ fit.posterior.mean, fit.converged


def process(X, y, new):
    if y.size > LARGEST_PROCESS:
        keep = np.random.default_rng(0).permutation(y.size)[:LARGEST_PROCESS]
        X, y = X[keep], y[keep]

    def kernel(a, b):
        return np.exp(-0.5 * cdist(a, b, "sqeuclidean") / X.shape[1])

    K = kernel(X, X) + 1e-6 * np.eye(y.size)
    fit = fitting.fit(linear_gaussian_problem(np.eye(y.size), y, float(y.size), prior_covariance=K))
    return kernel(new, X) @ np.linalg.solve(K, fit.posterior.mean), fit.converged


def table(colon):
    print(f"\n### Held-out AUC\n\nMean (sd) over {SPLITS} stratified halves, CPU seconds a fit.\n")
    print("| data | rows | covariates | linear | spike and slab | Gaussian process |")
    print("|---|---:|---:|---:|---:|---:|")
    unconverged = 0
    for name in [*SHIPPED, "colon"] if colon else SHIPPED:
        data = pac.datasets.load_colon(colon) if name == "colon" else getattr(pac.datasets, f"load_{name}")()
        if name == "colon":
            data = replace(data, X=np.log(data.X))
        cells = []
        for method in (linear, spike_slab, process):
            found, seconds, failed = [], [], 0
            for train in splits(data.y, 0.5, SPLITS):
                X = replace(data, train=train).standardized().X
                began = process_time()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", pac.results.ConvergenceWarning)  # counted below
                    scores, converged = method(X[train], data.y[train], X[~train])
                seconds.append(process_time() - began)
                found.append(1.0 - pac.empirical_risk(scores, data.y[~train]))
                failed += not converged
            unconverged += failed
            mark = f", {failed} not converged" if failed else ""
            cells.append(f"{np.mean(found):.3f} ({np.std(found):.3f}), {np.median(seconds):.1f} s{mark}")
        print(f"| {name} | {data.n} | {data.d} | " + " | ".join(cells) + " |", flush=True)
    print(f"\nFits that did not converge: {unconverged}.")


def exact():
    from tests.oracles import plane_data
    from tests.quadrature import exact_spike_slab_plane

    print("\n### Inclusion probabilities of two coefficients\n")
    print(
        "EP's own: read off the Gaussian. `inclusion_probability`: averaged over models, from EP's pair sites. Largest"
    )
    print("error over three data sets and gamma = 20, 60, 200.\n")
    print("| p | v0 | EP's own | inclusion_probability | log Z of EP | log Z averaged over models | not converged |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for p, v0 in ((0.5, 0.0), (0.1, 0.0), (0.5, 0.2), (0.1, 0.2), (0.5, 0.01), (0.1, 0.001)):
        errors, failed = [], 0
        for slope in ((1.0, -0.6), (1.0, 0.0), (0.6, 0.2)):
            X, y = plane_data(slope=slope)
            for gamma in (20.0, 60.0, 200.0):
                truth = exact_spike_slab_plane(X, y, gamma, p, v0, 1.0)
                fit = fitting.fit(spike_slab_problem(X, y, gamma, inclusion_probability=p, v0=v0))
                errors.append(
                    [
                        np.abs(fit.posterior.inclusion_probability - truth.inclusion).max(),
                        np.abs(fit.inclusion_probability - truth.inclusion).max(),
                        abs(fit.log_evidence - truth.log_evidence),
                        abs(fit.model_average.log_evidence - truth.log_evidence),
                    ]
                )
                failed += not fit.converged
        print(f"| {p} | {v0} | " + " | ".join(f"{error:.3f}" for error in np.max(errors, axis=0)) + f" | {failed} |")


def path():
    dna = pac.datasets.load_dna()
    first = replace(dna, train=np.arange(dna.n) < 400).standardized()
    began = perf_counter()
    found = pac.regularization_path((first.X[:400], first.y[:400]), gamma=400.0, p=0.1)
    seconds = perf_counter() - began
    print("\n### DNA, 180 covariates\n")
    print(f"The path of the paper's Figure 3, 400 rows, gamma = 400, p = 0.1, 13 values of v0: {seconds:.1f} s.\n")
    print("| v0 | sweeps | model size | included (probability >= 0.5) | expected AUC | converged |")
    print("|---:|---:|---:|---:|---:|---|")
    for row in range(found.sizes["v0"]):
        at = found.isel(v0=row)
        included = int((at["inclusion_probability"] >= 0.5).sum())
        cells = [f"{float(at.v0):.1e}", int(at.sweeps), f"{float(at.expected_model_size):.1f}", included]
        print("| " + " | ".join(map(str, [*cells, f"{1 - float(at.expected_risk):.4f}", bool(at.converged)])) + " |")
    print(f"\nAll {dna.n} rows, gamma = {dna.n}, p = 0.1:\n")
    print("| v0 | seconds | sweeps | model size | expected AUC | converged |")
    print("|---:|---:|---:|---:|---:|---|")
    for v0 in (0.1, 0.01, 0.001):
        began = perf_counter()
        fit = fitting.fit(
            spike_slab_problem(dna.X, dna.y, float(dna.n), inclusion_probability=0.1, v0=v0), tolerance=1e-4
        )
        cells = [v0, f"{perf_counter() - began:.1f}", fit.sweeps, f"{fit.expected_model_size:.1f}"]
        print("| " + " | ".join(map(str, [*cells, f"{1 - fit.expected_risk:.4f}", fit.converged])) + " |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", help="table, exact, path; all by default")
    parser.add_argument("--colon", help="file of the Colon data")
    arguments = parser.parse_args()
    parts = arguments.parts or ["table", "exact", "path"]
    if "table" in parts:
        table(arguments.colon)
    if "exact" in parts:
        exact()
    if "path" in parts:
        path()
