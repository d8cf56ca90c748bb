"""Gaussian processes at scale, through PyMC: model, extraction, EP, prediction; seconds and peak memory.

    python -m benchmarks.processes [latent] [whole] [mvnormal] [rough] [hsgp] [lengthscales]

Everything by default, each size in a process of its own, on all cores: about fifteen minutes on two. ``whole`` is
``latent`` with nothing left out: the kernel matrix is not turned into few features. The classes are not
linearly separable in two covariates. Elapsed seconds are those of a machine that may have other work; CPU seconds are
summed over threads. The fit includes an extraction.

``lengthscales`` compares the evidence of lengthscales, by EP and exactly, with their AUC on held-out rows of Glass.
"""

import argparse
import resource
import subprocess
import sys
from dataclasses import replace
from time import perf_counter, process_time

import numpy as np
import pymc as pm

import pymc_pacauc as pac
from benchmarks.paired import splits
from pymc_pacauc import fitting
from pymc_pacauc.ep.importance import log_mean
from pymc_pacauc.ep.plan import choose_plan
from pymc_pacauc.model.compat import pareto_smooth
from pymc_pacauc.model.inference import approximate
from pymc_pacauc.model.read import problem_of
from pymc_pacauc.problem.problem import linear_gaussian_problem

COLUMNS = (
    *("model", "rows", "pairs", "extraction", "fit", "CPU of the fit", "coefficients", "sweeps", "log Z", "prediction"),
    *("peak", "AUC"),
)
NEW_ROWS = 5000


def simulated(n, positive=0.5, seed=0):
    """Two covariates; the share ``positive`` of largest noisy values of a curved score is the positive class."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 2))
    score = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.5 * rng.logistic(size=n)
    return X, (score > np.quantile(score, 1 - positive)).astype(int)


def latent(X):
    """pm.gp.Latent, squared exponential"""
    gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0))
    return gp, gp.prior("scores", X=X)


def whole(X):
    """the same, nothing left out"""
    return latent(X)


def mvnormal(X):
    """pm.MvNormal, Matern 5/2"""
    gp = pm.gp.Latent(cov_func=pm.gp.cov.Matern52(2, ls=1.0))
    return gp, gp.prior("scores", X=X, reparameterize=False)


def rough(X):
    """pm.gp.Latent, Matern 1/2"""
    gp = pm.gp.Latent(cov_func=pm.gp.cov.Matern12(2, ls=1.0))
    return gp, gp.prior("scores", X=X)


def hsgp(X):
    """pm.gp.HSGP, 15 x 15 features"""
    gp = pm.gp.HSGP(m=[15, 15], c=1.5, cov_func=pm.gp.cov.ExpQuad(2, ls=1.0))
    return gp, gp.prior("scores", X=X)


PARTS = {
    "latent": (latent, 3000, 0.5),
    "whole": (whole, 3000, 0.5),
    "mvnormal": (mvnormal, 3000, 0.5),
    "rough": (rough, 3000, 0.5),
    "hsgp": (hsgp, 50_000, 0.02),
}


def measure(build, n, positive):
    """One row of the table."""
    X, y = simulated(n, positive)
    new, labels = simulated(NEW_ROWS, positive, seed=1)
    pac.empirical_risk(X[:, 0], y)  # compiles
    with pm.Model() as model:
        gp, scores = build(X)
        pac.AUCPotential("auc", scores, y, gamma=float(n))
    began = perf_counter()
    source = problem_of(model)
    extraction = perf_counter() - began
    began, cpu = perf_counter(), process_time()
    plan = choose_plan(source.problem)
    if build is whole and plan.coordinates == "features":
        plan = replace(plan, coordinates="coefficients")
    approx = approximate(source, plan, progressbar=False)
    fit, cpu = perf_counter() - began, process_time() - cpu
    began = perf_counter()
    predicted = pac.predict_scores(approx, new, gp=gp, summary=True)
    prediction = perf_counter() - began
    auc = 1.0 - pac.empirical_risk(predicted["mean"].values, labels)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    sweeps = approx.sweeps if approx.converged else f"{approx.sweeps}, not converged"
    positives = int(y.sum())
    return (
        f"| {build.__doc__} | {n} | {positives} x {n - positives} | {extraction:.1f} s | {fit:.0f} s | {cpu:.1f} s "
        f"| {approx.fit.problem.scores.reduced.dimension} | {sweeps} | {approx.log_evidence:.4f} | {prediction:.1f} s "
        f"| {peak:.2f} GiB | {auc:.3f} |"
    )


def lengthscales():
    """Log evidence and held-out AUC for multiples of the median distance, on the third stratified split of Glass."""
    glass = pac.datasets.load_glass()
    train = list(splits(glass.y, 2 / 3, 3))[2]
    X = (glass.X - glass.X[train].mean(axis=0)) / glass.X[train].std(axis=0)
    square = np.sum((X[:, None] - X[None]) ** 2, axis=-1)
    median = np.median(square[np.ix_(train, train)][np.triu_indices(train.sum(), 1)])
    print("\n| lengthscale / median distance | log Z, EP | with importance weights | Pareto k | held-out AUC |")
    print("|---:|---:|---:|---:|---:|")
    for multiple in (1, 2, 4, 8, 16):
        K = np.exp(-0.5 * square / (multiple**2 * median))
        factor = np.linalg.cholesky(K[np.ix_(train, train)] + 1e-6 * np.eye(train.sum()))
        fit = fitting.fit(linear_gaussian_problem(factor, glass.y[train], float(train.sum())))
        log_weights, k = pareto_smooth(fit.importance(20_000, np.random.default_rng(1)).log_weights)
        estimate, error = log_mean(log_weights)
        mean = K[np.ix_(~train, train)] @ np.linalg.solve(factor.T, fit.posterior.mean)
        auc = 1.0 - pac.empirical_risk(mean, glass.y[~train])
        print(
            f"| {multiple} | {fit.log_evidence:.2f} | {estimate:.2f} ± {error:.2f} | {k:.2f} | {auc:.3f} |", flush=True
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}, lengthscales; default all")
    parser.add_argument("--inside", choices=PARTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        print(measure(*PARTS[arguments.inside]))
        return
    parts = arguments.parts or [*PARTS, "lengthscales"]
    print(f"| {' | '.join(COLUMNS)} |\n|---|{'---:|' * (len(COLUMNS) - 1)}", flush=True)
    for part in parts:
        if part != "lengthscales":
            command = [sys.executable, "-m", "benchmarks.processes", "--inside", part]
            print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="", flush=True)
    if "lengthscales" in parts:
        lengthscales()


if __name__ == "__main__":
    main()
