"""AUC on held-out rows for three priors: linear Gaussian, spike and slab, Gaussian process; all fitted by EP.

    python benchmarks/priors.py [data ...] [--splits 5] [--colon PATH] [--path]

Splits: random halves, stratified by class, seeds 0 to splits - 1, the same for every prior. Covariates are standardised
with the training half. gamma is the number of training rows. Spike and slab: Dirac spike, p = 0.5 below ten
covariates, else Theorem 2.5's. Gaussian process: squared exponential, lengthscale sqrt(d) in standardised
units. DNA's training half is cut to 1000 rows for the Gaussian process. ``--path`` also times the regularisation path
on DNA; ``--exact`` compares inclusion probabilities with exact ones for two coefficients.
"""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import argparse
import sys
import warnings
from pathlib import Path
from time import perf_counter

import numpy as np
from scipy.spatial.distance import cdist

import pymc_pacauc as pac
from pymc_pacauc.ep import fit_ep
from pymc_pacauc.ep.gp import predict_scores_at, whiten_scores
from pymc_pacauc.ep.spike_slab import fit_spike_slab
from pymc_pacauc.problem import linear_gaussian_problem, spike_slab_problem

SHIPPED = ("pima", "spect", "glass", "credit", "dna")
LARGEST_PROCESS = 1000


def halves(y, seed):
    """Indices of a training and a test half, stratified."""
    rng = np.random.default_rng(seed)
    train = np.zeros(y.size, dtype=bool)
    for label in (0, 1):
        rows = rng.permutation(np.flatnonzero(y == label))
        train[rows[: (rows.size + 1) // 2]] = True
    return np.flatnonzero(train), np.flatnonzero(~train)


def linear(X, y, new):
    fit = fit_ep(linear_gaussian_problem(X, y, float(y.size)))
    return new @ fit.posterior.mean, fit.converged


def spike_slab(X, y, new):
    d = X.shape[1]
    p = 0.5 if d < 10 else -np.expm1(-1.0 / d)
    fit = fit_spike_slab(spike_slab_problem(X, y, float(y.size), inclusion_probability=p, v0=0.0), tolerance=1e-4)
    return new @ fit.posterior.mean, fit.converged


def process(X, y, new):
    if y.size > LARGEST_PROCESS:
        keep = np.random.default_rng(0).permutation(y.size)[:LARGEST_PROCESS]
        X, y = X[keep], y[keep]

    def kernel(a, b):
        return np.exp(-0.5 * cdist(a, b, "sqeuclidean") / X.shape[1])

    K = kernel(X, X) + 1e-6 * np.eye(y.size)
    fit = fit_ep(linear_gaussian_problem(np.eye(y.size), y, float(y.size), prior_covariance=K))
    scores = whiten_scores(K, fit.posterior.mean, np.linalg.cholesky(fit.posterior.covariance))
    return predict_scores_at(scores, kernel(X, new), np.ones(len(new)))[0], fit.converged


def table(names, splits, colon):
    print(
        f"AUC on the other half, mean (sd) of {splits} stratified halves; seconds per fit; * some fits not converged\n"
    )
    print("| data | rows | covariates | linear | spike and slab | Gaussian process |")
    print("|---|---|---|---|---|---|")
    for name in names:
        data = pac.load_colon(colon) if name == "colon" else getattr(pac, f"load_{name}")()
        cells = []
        for method in (linear, spike_slab, process):
            found, seconds, converged = [], [], True
            for seed in range(splits):
                train, test = halves(data.y, seed)
                centre, scale = data.X[train].mean(axis=0), data.X[train].std(axis=0)
                X = (data.X - centre) / np.where(scale > 0, scale, 1.0)
                started = perf_counter()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # what does not converge is marked
                    scores, fine = method(X[train], data.y[train], X[test])
                seconds.append(perf_counter() - started)
                found.append(1.0 - pac.empirical_risk(scores, data.y[test]))
                converged &= fine
            mark = "" if converged else "*"
            cells.append(f"{np.mean(found):.3f} ({np.std(found):.3f}){mark} {np.median(seconds):.1f} s")
        print(f"| {name} | {data.n} | {data.d} | " + " | ".join(cells) + " |", flush=True)


def exact():
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from oracles import plane_data
    from quadrature import exact_spike_slab_plane

    print("\nInclusion probabilities for two coefficients, exact and by EP\n")
    print("| slope | gamma | p | v0 | exact | EP | largest error | log Z error |")
    print("|---|---|---|---|---|---|---|---|")
    for slope in ((1.0, -0.6), (1.0, 0.0), (0.6, 0.2)):
        X, y = plane_data(slope=slope)
        for gamma in (20.0, 60.0):
            for p, v0 in ((0.5, 0.0), (0.1, 0.0), (0.5, 0.2), (0.1, 0.2), (0.5, 0.01)):
                truth = exact_spike_slab_plane(X, y, gamma, p, v0, 1.0)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    fit = fit_spike_slab(spike_slab_problem(X, y, gamma, inclusion_probability=p, v0=v0))
                found, error = fit.inclusion_probability, fit.log_evidence - truth.log_evidence
                largest = np.abs(found - truth.inclusion).max()
                cells = [
                    slope,
                    gamma,
                    p,
                    v0,
                    truth.inclusion.round(3),
                    found.round(3),
                    f"{largest:.3f}",
                    f"{error:.2f}",
                ]
                print("| " + " | ".join(map(str, cells)) + ("" if fit.converged else " not converged") + " |")


def path():
    data = pac.load_dna()
    started = perf_counter()
    found = pac.regularization_path(data, gamma=float(data.n), threads=1)
    seconds = perf_counter() - started
    print(
        f"\nRegularisation path, DNA ({data.n} x {data.d}), gamma = {data.n}, {found.sizes['v0']} values of v0: "
        f"{seconds:.0f} s\n"
    )
    print("| v0 | converged | sweeps | model size | included (probability >= 0.5) | expected AUC |")
    print("|---|---|---|---|---|---|")
    for row in range(found.sizes["v0"]):
        at = found.isel(v0=row)
        names = at["feature"].values[at["inclusion_probability"].values >= 0.5]
        cells = [f"{float(at.v0):.1e}", bool(at.converged), int(at.sweeps), f"{float(at.expected_model_size):.2f}"]
        print(
            "| "
            + " | ".join(map(str, [*cells, ", ".join(map(str, names)), f"{1 - float(at.expected_risk):.4f}"]))
            + " |"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", default=SHIPPED)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--colon", help="file of the Colon data")
    parser.add_argument("--path", action="store_true")
    parser.add_argument("--exact", action="store_true")
    arguments = parser.parse_args()
    table([*arguments.data, "colon"] if arguments.colon else arguments.data, arguments.splits, arguments.colon)
    if arguments.exact:
        exact()
    if arguments.path:
        path()
