"""Gaussian processes at scale, through PyMC: model, extraction, EP, prediction; seconds and peak memory.

    python benchmarks/processes.py [latent] [mvnormal] [rough] [hsgp]

Everything by default, each part in a process of its own, on all cores: about ten minutes on two. The classes are not
linearly separable in two covariates. Elapsed seconds are those of a machine that may have other work; CPU seconds are
summed over threads. The fit includes an extraction.
"""

import argparse
import resource
import subprocess
import sys
from time import perf_counter, process_time

import numpy as np
import pymc as pm

import pymc_pacauc as pac
from pymc_pacauc.model.extract import extract

COLUMNS = ("model", "rows", "pairs", "extraction", "fit", "CPU of the fit", "sweeps", "prediction", "peak", "AUC")
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
    extract(model)
    extraction = perf_counter() - began
    began, cpu = perf_counter(), process_time()
    with model:
        approx = pm.fit(method=pac.EP(), progressbar=False)
    fit, cpu = perf_counter() - began, process_time() - cpu
    began = perf_counter()
    predicted = pac.predict_gp(approx, gp, new)
    prediction = perf_counter() - began
    auc = 1.0 - pac.empirical_risk(predicted["mean"].values, labels)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    sweeps = approx.sweeps if approx.converged else f"{approx.sweeps}, not converged"
    positives = int(y.sum())
    return (
        f"| {build.__doc__} | {n} | {positives} x {n - positives} | {extraction:.1f} s | {fit:.0f} s | {cpu:.0f} s "
        f"| {sweeps} | {prediction:.1f} s | {peak:.2f} GiB | {auc:.3f} |"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default all")
    parser.add_argument("--inside", choices=PARTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        print(measure(*PARTS[arguments.inside]))
        return
    print(f"| {' | '.join(COLUMNS)} |\n|---|{'---:|' * (len(COLUMNS) - 1)}", flush=True)
    for part in arguments.parts or PARTS:
        command = [sys.executable, __file__, "--inside", part]
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="", flush=True)


if __name__ == "__main__":
    main()
