"""Hyper-parameters integrated over by EP, against tempering SMC of the same model.

    python -m benchmarks.nested [--models hospitals two_levels process spikes] [--particles 2000] [--runs 4]

Rows for each model: CPU seconds and log Z of each, that of EP also corrected by importance weights
(``approx.evidence``), the largest difference of means in SMC's posterior standard deviations and the range of ratios of
standard deviations, with the largest Monte Carlo error of such a ratio, SMC's, from ``--runs`` runs with
``--particles`` each. The time is that of two runs. First fits that are not counted load what is compiled once per
machine.

The Gaussian process is compared with SMC given each of 15 lengthscales, as many runs at each, integrated over these by
the trapezoidal rule: SMC of the whole model factorises a covariance for every particle and move, which takes minutes.
"""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse
from time import process_time

import numpy as np
import pymc as pm
import xarray as xr
from scipy import special

import pymc_pacauc as pac
from pymc_pacauc.smc.paths import prior_path
from pymc_pacauc.smc.tempering import Settings, run_tempering


def hospitals():
    """Twelve hospitals whose coefficients spread by s around common ones."""
    rng = np.random.default_rng(3)
    g = np.repeat(np.arange(12), 25)
    X = rng.normal(size=(g.size, 3))
    B = np.array([1.0, 0.5, -0.5]) + 0.6 * rng.normal(size=(12, 3))
    y = (X * B[g]).sum(axis=1) + rng.logistic(size=g.size) > 0.3
    with pm.Model() as model:
        s = pm.HalfNormal("s", 1.0)
        mu = pm.Normal("mu", size=3)
        theta = pm.Normal("theta", mu, s, shape=(12, 3))
        pac.AUCPotential("auc", (X * theta[g]).sum(axis=1), y, 150.0)
    return model


def two_levels():
    """Levels and slopes of ten groups, each with a scale of its own."""
    rng = np.random.default_rng(5)
    g = np.repeat(np.arange(10), 25)
    X = rng.normal(size=(g.size, 2))
    level, slope = 0.8 * rng.normal(size=10), np.array([1.0, -0.5]) + 0.5 * rng.normal(size=(10, 2))
    y = (X * slope[g]).sum(axis=1) + level[g] + rng.logistic(size=g.size) > 0
    with pm.Model() as model:
        s_level, s_slope = pm.HalfNormal("s_level", 1.0), pm.HalfNormal("s_slope", 1.0)
        a = pm.Normal("a", 0.0, s_level, shape=10)
        b = pm.Normal("b", pm.Normal("mu", size=2), s_slope, shape=(10, 2))
        pac.AUCPotential("auc", (X * b[g]).sum(axis=1) + a[g], y, 125.0)
    return model


def process(n=300):
    """A Gaussian process on a line, its lengthscale learned."""
    rng = np.random.default_rng(7)
    x = np.sort(rng.uniform(0.0, 10.0, n))[:, None]
    y = np.sin(1.5 * x[:, 0]) + 0.7 * rng.normal(size=n) > 0
    with pm.Model() as model:
        gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, pm.InverseGamma("lengthscale", 3.0, 3.0)))
        pac.AUCPotential("auc", gp.prior("f", X=x), y, n / 2.0)
    return model


def spikes():
    """Eight coefficients, three of which matter, with a learned probability of the slab."""
    rng = np.random.default_rng(9)
    X = rng.normal(size=(200, 8))
    y = X[:, 0] - 0.8 * X[:, 1] + 0.5 * X[:, 2] + rng.logistic(size=200) > 0
    with pm.Model() as model:
        theta = pac.SpikeSlab("theta", p=pm.Beta("p", 1.0, 3.0), v0=0.0, shape=8)
        pac.AUCPotential("auc", X @ theta, y, 200.0)
    return model


MODELS = {"hospitals": hospitals, "two_levels": two_levels, "process": process, "spikes": spikes}


def compare(model, particles, runs):
    """EP's result and CPU seconds, and SMC's, for two runs."""
    with model:
        began = process_time()
        approx = pm.fit(method=pac.EP(), progressbar=False)
        ep = process_time() - began
        began = process_time()
        idata = pm.sample(
            particles,
            step=pac.TemperingSMC(particles=particles),
            chains=runs,
            cores=1,
            random_seed=1,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
        )
        smc = process_time() - began
    return approx, ep, idata, smc * 2 / runs


def by_lengthscale(particles, runs):
    """CPU seconds of EP and of SMC given each of 15 lengthscales, EP's result, and log Z and draws of the latter."""
    model = process()
    with model:
        began = process_time()
        approx = pm.fit(method=pac.EP(), progressbar=False)
        ep = process_time() - began
    began = process_time()
    phi, weights = approx.nested.phi[:, 0], approx.nested.weights
    centre = weights @ phi
    width = 3.5 * np.sqrt(weights @ (phi - centre) ** 2)
    values = np.linspace(centre - width, centre + width, 15)[:, None]
    conditional, log_density, drawn = approx.hyper.conditional, [], []
    for value in values:
        problem, found = conditional.problem_at(value), []
        for seed in range(runs):
            rng, path = np.random.default_rng(seed), prior_path(problem)
            state = run_tempering(path, Settings(particles=particles), rng)
            found.append(state.stages[-1].log_evidence)
            drawn.append(path.finish(state.population, rng)[0] @ problem.X.T)
        log_density.append(found + conditional.log_prior(value[None])[0])
    log_density = np.array(log_density)
    step = values[1, 0] - values[0, 0]
    estimates = special.logsumexp(log_density, axis=0) + np.log(step)
    share = special.softmax(special.logsumexp(log_density, axis=1))
    rng = np.random.default_rng(0)
    chosen = rng.choice(values.size, size=(runs, particles), p=share)
    scores = np.array(drawn).reshape(values.size, runs, particles, -1)
    rows = rng.integers(particles, size=chosen.shape)
    exact = xr.Dataset(
        {
            "lengthscale": (("chain", "draw"), np.exp(values[chosen, 0])),
            "f": (("chain", "draw", "row"), scores[chosen, np.arange(runs)[:, None], rows]),
        }
    )
    log_z = special.logsumexp(estimates) - np.log(runs), estimates.std(ddof=1) / np.sqrt(runs)
    return approx, ep, exact, log_z, (process_time() - began) * 2 / runs


def distances(name, drawn, exact):
    """Largest difference of means in standard deviations; smallest and largest ratio of standard deviations, and the
    largest standard error of SMC's, relative to it.
    """
    ours, theirs = (each[name].transpose("chain", "draw", ...).values.astype(float) for each in (drawn, exact))
    sd, runs = theirs.std(axis=(0, 1)), len(theirs)
    moving = sd > 1e-3 * sd.max()
    off = np.abs(ours.mean(axis=(0, 1)) - theirs.mean(axis=(0, 1)))[moving] / sd[moving]
    ratio = ours.std(axis=(0, 1))[moving] / sd[moving]
    error = theirs.std(axis=1).std(axis=0, ddof=1)[moving] / sd[moving] / np.sqrt(runs)
    return off.max(), ratio.min(), ratio.max(), error.max()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--particles", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=4)
    arguments = parser.parse_args()
    for first in (hospitals, spikes):
        with first():
            pm.fit(method=pac.EP(), progressbar=False)
    print("| model | variable | means off (sd) | sd / SMC's | log Z EP | corrected | SMC | EP s | SMC s | times |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|", flush=True)
    for name in arguments.models:
        if name == "process":
            approx, ep, exact, (log_z, error), smc = by_lengthscale(arguments.particles, arguments.runs)
        else:
            approx, ep, idata, smc = compare(MODELS[name](), arguments.particles, arguments.runs)
            exact, evidence = idata["posterior"], pac.log_evidence(idata)
            log_z, error = evidence.estimate, evidence.standard_error
        drawn = approx.sample(20_000, random_seed=1)["posterior"]
        shown = [v for v in exact.data_vars if not str(v).endswith(("_risk", "_slab", "_latent"))]
        for k, variable in enumerate(shown):
            off, low, high, own = distances(variable, drawn, exact)
            cells = [name, str(variable), f"{off:.3f}", f"{low:.2f} to {high:.2f} ± {own:.2f}"]
            if k == 0:
                cells += [f"{approx.log_evidence:.2f}", str(approx.evidence), f"{log_z:.2f} ± {error:.2f}"]
                cells += [f"{ep:.2f}", f"{smc:.1f}", f"{smc / ep:.0f}"]
            print(f"| {' | '.join(cells)} |" + " |" * (10 - len(cells)), flush=True)


if __name__ == "__main__":
    main()
