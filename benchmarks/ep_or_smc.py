"""Errors of EP against long runs of tempering SMC: exact length, and coefficients with other priors than the Gaussian.

    python -m benchmarks.ep_or_smc [length] [priors] [batches] [--particles 20000]

One thread. Differences of means are in standard deviations of SMC; what is printed after ± is the Monte Carlo error of
SMC itself, from independent runs. ``length``: shipped data, standardised, prior N(0, I). ``priors``: 300 rows of d
covariates, four of which matter, gamma = n; priors of PyMC, each of scale 1. ``batches``: rows that come in batches,
each with the last one's posterior as its prior (pac.prior_from), against all at once.
"""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse
import logging
import warnings
from time import process_time

import numpy as np
import pymc as pm

import pymc_pacauc as pac
from pymc_pacauc.ep.importance import log_mean
from pymc_pacauc.fitting import fit
from pymc_pacauc.model.compat import pareto_smooth
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.smc.log_evidence import combine
from pymc_pacauc.smc.paths import prior_path
from pymc_pacauc.smc.tempering import Settings, run_tempering
from tests.oracles import sparse_data

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


def length(particles, *_):
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
            estimate, error = log_mean(corrected.log_weights)
            print(f"| {evidence} | {found.log_evidence:.3f} | {estimate:.3f} ± {error:.3f} ", end="")
            print(f"| {seconds:.1f} | {own:.3f} |", flush=True)


PRIORS = {
    "Laplace": lambda d: pm.Laplace("theta", 0.0, 1.0, shape=d),
    "Student-t, 3": lambda d: pm.StudentT("theta", nu=3.0, mu=0.0, sigma=1.0, shape=d),
    "Cauchy": lambda d: pm.Cauchy("theta", 0.0, 1.0, shape=d),
    "half-normal": lambda d: pm.HalfNormal("theta", 1.0, shape=d),
    "truncated normal": lambda d: pm.TruncatedNormal("theta", 0.0, 1.0, lower=-0.5, shape=d),
    "exponential": lambda d: pm.Exponential("theta", 1.0, shape=d),
    "uniform": lambda d: pm.Uniform("theta", -1.0, 1.0, shape=d),
    "mixture": lambda d: pm.NormalMixture("theta", w=[0.6, 0.2, 0.2], mu=[0.0, -1.0, 1.0], sigma=0.4, shape=d),
    "horseshoe": lambda d: pm.Normal("theta", 0.0, 0.3 * pm.HalfCauchy("local", 1.0, shape=d), shape=d),
    "half-Cauchy, wrong signs": lambda d: -pm.HalfCauchy("theta", 1.0, shape=d),
}


def drawn(model, particles, chains):
    """The same as :func:`tempered`, of a PyMC model."""
    begin = process_time()
    with model, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # moves that decorrelate badly, of which the spread of the runs tells
        step = pac.TemperingSMC(particles=particles)
        sampled = {"draws": particles, "chains": chains, "cores": 1, "random_seed": 1, "progressbar": False}
        idata = pm.sample(step=step, compute_convergence_checks=False, **sampled)
    theta = idata["posterior"]["theta"].values
    return theta.mean(axis=1), theta.std(axis=1), pac.log_evidence(idata), (process_time() - begin) / chains


def priors(particles, sizes, chosen):
    print("| prior, d | mean off, sd | sd ratio | log Z, SMC | EP | corrected | Pareto k | s, SMC | s, EP |")
    print("|---|---|---|---|---|---|---|---|---|")
    for d in sizes:
        X, y, _ = sparse_data(300, d, active=(1.5, 1.0, 0.7, -0.5))
        for name, prior in PRIORS.items():
            if chosen and name not in chosen:
                continue
            with pm.Model() as model:
                pac.AUCPotential("auc", X @ prior(d), y, gamma=300.0)
            mean, sd, evidence, seconds = drawn(model, particles, 2)
            begin = process_time()
            with model:
                found = pm.fit(method=pac.EP(), progressbar=False)
            assert found.posterior.variance.all()
            own = process_time() - begin
            log_weights = found.posterior.log_weights
            shape = np.nan if log_weights is None else pareto_smooth(log_weights)[1]
            compared(f"{name}, {d}", found.posterior, mean, sd)
            print(f"| {evidence} | {found.log_evidence:.3f} | {found.evidence} | {shape:.2f} ", end="")
            print(f"| {seconds:.1f} | {own:.2f} |", flush=True)


def batches(*_):
    """Held-out AUC of rows that come in batches, each with the posterior of the last as its prior."""
    print("| data, batches | all rows at once | batch by batch | difference | last batch alone |")
    print("|---|---|---|---|---|")
    for name in ("pima", "credit"):
        data = getattr(pac.datasets, f"load_{name}")().standardized()
        for parts in (2, 4, 8):
            found = np.array([one_split(data, parts, seed) for seed in range(20)])
            together, one_by_one, last = found.mean(axis=0)
            difference = found[:, 1] - found[:, 0]
            print(f"| {name}, {parts} | {together:.4f} | {one_by_one:.4f} | {difference.mean():+.4f} ± ", end="")
            print(f"{difference.std(ddof=1) / np.sqrt(len(found)):.4f} | {last:.4f} |", flush=True)


def one_split(data, parts, seed):
    """AUC on a third of the rows: fitted to the others at once, batch by batch, or to the last batch."""
    order = np.random.default_rng(seed).permutation(data.n)
    test, train = order[: data.n // 3], order[data.n // 3 :]

    def auc(mean):
        return 1.0 - pac.empirical_risk(data.X[test] @ mean, data.y[test])

    def fitted(rows, **prior):
        return fit(linear_gaussian_problem(data.X[rows], data.y[rows], float(rows.size), **prior)).posterior

    posterior, prior = None, {}
    for rows in np.array_split(train, parts):
        posterior = fitted(rows, **prior)
        prior = {"prior_mean": posterior.mean, "prior_covariance": posterior.covariance}
    return auc(fitted(train).mean), auc(posterior.mean), auc(fitted(rows).mean)


PARTS = {"length": length, "priors": priors, "batches": batches}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=", ".join(PARTS))
    parser.add_argument("--particles", type=int, default=10000)
    parser.add_argument("--sizes", type=int, nargs="*", default=[4, 20, 100], help="coefficients, for priors")
    parser.add_argument("--priors", nargs="*", default=[], help=f"by default all: {', '.join(PRIORS)}")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    for part in arguments.parts:
        PARTS[part](arguments.particles, arguments.sizes, arguments.priors)


if __name__ == "__main__":
    main()
