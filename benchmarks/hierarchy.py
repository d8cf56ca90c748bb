"""Coefficients by stratum: no pooling, full pooling, and a scale between them that is learned.

    python -m benchmarks.hierarchy [--replicates 20] [--smc 5] [--keep FOLDER]

Patients are compared within their hospital only. The scores are X (mu + delta_g) in hospital g, mu ~ N(0, 1) and
delta_g ~ N(0, s^2) independent. Three ways to choose s:

full pooling      s = 0: one score for all hospitals
no pooling        every hospital a posterior of its own, theta_g ~ N(0, 1)
partial pooling   s ~ Exponential(3), integrated over by EP or sampled by tempering SMC

The prior of s is largest at full pooling, and has 5 % of its mass above 1, where hospitals would differ as much as the
common coefficients do a priori (a penalised-complexity prior, doi:10.1214/16-STS576). HalfNormal(1), as vague as the
prior of mu, loses three times as much where hospitals do not differ: the ranking hardly says that s is small.

The data are simulated: 12 hospitals of 25 rows each, three covariates, the log odds of hospital g are
X (beta + tau u_g) + a_g with u_g ~ N(0, I). AUC within hospitals on 400 new rows of each; gamma = n. SMC, which takes
much longer, is run on the first data sets only and compared on these.
"""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse
import warnings
from pathlib import Path
from time import process_time

import numpy as np
import pymc as pm
from scipy import stats

import pymc_pacauc as pac
from benchmarks.kept import add_option, kept

SEED = 20_240_601
HOSPITALS, ROWS, NEW_ROWS, D = 12, 25, 400, 3
BETA = np.array([1.2, -0.8, 0.0])


def simulate(tau, rng):
    """Training and new rows, as (X, y, hospital) each."""
    coefficients = BETA + tau * rng.standard_normal((HOSPITALS, D))
    level = rng.standard_normal(HOSPITALS)
    found = []
    for rows in (ROWS, NEW_ROWS):
        hospital = np.repeat(np.arange(HOSPITALS), rows)
        X = rng.standard_normal((hospital.size, D))
        log_odds = np.einsum("ij,ij->i", X, coefficients[hospital]) + level[hospital]
        found.append((X, (rng.random(hospital.size) < 1 / (1 + np.exp(-log_odds))).astype(int), hospital))
    return found


def hospital_auc(theta, new):
    """AUC within hospitals of the scores X theta_g, ``theta[HOSPITALS, D]``."""
    X, y, hospital = new
    return 1.0 - float(pac.empirical_risk(np.einsum("ij,ij->i", X, theta[hospital]), y, strata=hospital))


def full_pooling(X, y, hospital):
    with pm.Model():
        mu = pm.Normal("mu", size=D)
        pac.AUCPotential("auc", X @ mu, y, float(len(y)), strata=hospital)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    return np.tile(approx.posterior.mean, (HOSPITALS, 1))


def no_pooling(X, y, hospital):
    with pm.Model():
        theta = pm.Normal("theta", shape=(HOSPITALS, D))
        pac.AUCPotential("auc", (X * theta[hospital]).sum(axis=1), y, float(len(y)), strata=hospital)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    return approx.posterior.mean.reshape(HOSPITALS, D)


def partial_pooling_ep(X, y, hospital):
    with pm.Model():
        s = pm.Exponential("s", 3.0)
        mu = pm.Normal("mu", size=D)
        theta = pm.Normal("theta", mu, s, shape=(HOSPITALS, D))
        pac.AUCPotential("auc", (X * theta[hospital]).sum(axis=1), y, float(len(y)), strata=hospital)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    return approx.posterior.mean[approx.source.parts["theta"]].reshape(HOSPITALS, D)


def partial_pooling_smc(X, y, hospital):
    with pm.Model():
        s = pm.Exponential("s", 3.0)
        mu = pm.Normal("mu", size=D)
        z = pm.Normal("z", shape=(HOSPITALS, D))
        theta = pm.Deterministic("theta", mu + s * z)
        pac.AUCPotential("auc", (X * theta[hospital]).sum(axis=1), y, float(len(y)), strata=hospital)
        idata = pm.sample(step=pac.TemperingSMC(), chains=1, cores=1, random_seed=1, progressbar=False, quiet=True)
    return idata["posterior"]["theta"].values.reshape(-1, HOSPITALS, D).mean(axis=0)


METHODS = {
    "full pooling": full_pooling,
    "no pooling": no_pooling,
    "partial pooling, EP": partial_pooling_ep,
    "partial pooling, SMC": partial_pooling_smc,
}


def compare(tau, replicates, with_smc, folder=None):
    """AUC (NaN where a method was not run) and CPU seconds of each method on each data set."""
    auc = {name: np.full(replicates, np.nan) for name in METHODS}
    seconds = {name: np.full(replicates, np.nan) for name in METHODS}
    for k, rng in enumerate(np.random.default_rng(SEED).spawn(replicates)):
        training, new = simulate(tau, rng)
        for name, method in METHODS.items():
            if name.endswith("SMC") and k >= with_smc:
                continue

            def one(method=method, training=training, new=new):
                began = process_time()
                theta = method(*training)
                taken = process_time() - began
                return [hospital_auc(theta, new), taken]

            path = folder and Path(folder) / f"hierarchy-{tau:g}.json"
            auc[name][k], seconds[name][k] = kept(path, f"{name}, data {k}", one)
    return auc, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicates", type=int, default=20)
    parser.add_argument("--smc", type=int, default=5, help="of them, data sets on which SMC is run too")
    parser.add_argument("--tau", type=float, nargs="+", default=[0.0, 0.4, 0.8])
    add_option(parser)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", pac.results.ConvergenceWarning)
    print(f"{HOSPITALS} hospitals of {ROWS} rows, {D} covariates; {arguments.replicates} data sets.\n")
    print(
        "| spread | method | data sets | AUC within hospitals (s.e.) | minus full pooling | minus no pooling | CPU s |"
    )
    print("|---|---|---:|---:|---:|---:|---:|", flush=True)
    verdicts = []
    for tau in arguments.tau:
        auc, seconds = compare(tau, arguments.replicates, arguments.smc, arguments.keep)
        for name, values in auc.items():
            run = ~np.isnan(values)
            if run.sum() < 2:
                continue
            cells = [f"{tau:g}", name, f"{run.sum()}", "{:.4f} ({:.4f})".format(*mean_and_error(values[run]))]
            for peer in ("full pooling", "no pooling"):
                gain, error = mean_and_error((values - auc[peer])[run])
                cells.append("" if name == peer else f"{gain:+.4f} ({error:.4f})")
                if name.startswith("partial"):
                    bar = stats.t.ppf(0.975, run.sum() - 1) * error
                    word = "Won" if gain > bar else "Lost" if gain < -bar else "Even"
                    verdicts.append(
                        f"{word}: {HOSPITALS} hospitals whose coefficients spread by {tau:g}: {name} against {peer}, "
                        f"AUC {gain:+.4f} (s.e. {error:.4f}, {run.sum()} data sets)."
                    )
            print(f"| {' | '.join(cells)} | {np.nanmean(seconds[name]):.1f} |", flush=True)
    print("\n" + "\n".join(verdicts))


def mean_and_error(values):
    return values.mean(), values.std(ddof=1) / np.sqrt(values.size)


if __name__ == "__main__":
    main()
