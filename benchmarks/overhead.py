"""What PyMC's interface costs on top of the arrays, on Pima (532 x 7): CPU milliseconds, and ratios.

    python -m benchmarks.overhead

Each row compares a call through PyMC with the same work on arrays, both the fastest of a few interleaved runs. *First*
includes building the model. Of ``pm.sample`` the row above the last is the step alone: its construction, the run and
all of its draws; the last row is the whole of ``pm.sample``, most of which is PyMC's own work (initial points, the
function that evaluates Deterministics, ArviZ data), which no step method can change.
"""

import logging
import warnings
from time import process_time

import numpy as np
import pymc as pm

import pymc_pacauc as pac
from pymc_pacauc import arrays

RUNS = 7
DRAWS = 1000


def fastest(*calls, runs=RUNS):
    """The least CPU time of each call, run in turn."""
    best = np.full(len(calls), np.inf)
    for _ in range(runs):
        for k, call in enumerate(calls):
            start = process_time()
            call()
            best[k] = min(best[k], process_time() - start)
    return best


def pima_model():
    data = pac.datasets.load_pima()
    with pm.Model() as model:
        theta = pm.Normal("theta", size=data.X.shape[1])
        pac.AUCPotential("auc", data.X @ theta, data.y, gamma=float(len(data.y)))
    return model


def fit(model):
    with model:
        return pm.fit(method=pac.EP(n_jobs=1), progressbar=False)


def steps(model, approx):
    """Everything that a step method does for ``pm.sample``."""
    with model:
        step = pac.TemperingSMC(start=approx)
    step.set_rng(np.random.default_rng(1))
    point = {v.name: np.zeros(v.type.shape) for v in model.value_vars}
    while not step._finished:
        point, _ = step.step(point)
    step.tune = False
    for _ in range(DRAWS):
        point, _ = step.step(point)


def sample(model, approx):
    with model:
        pm.sample(
            DRAWS, tune=10, step=pac.TemperingSMC(start=approx), chains=1, cores=1, random_seed=1, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip


def measured():
    """(what, CPU seconds on arrays, CPU seconds through PyMC)."""
    data = pac.datasets.load_pima()
    model, gamma = pima_model(), float(len(data.y))
    problem = arrays.linear_gaussian_problem(data.X, data.y, gamma)
    approx = fit(model)
    mean, covariance = approx.posterior.mean, approx.posterior.covariance

    def on_arrays():
        arrays.fit(arrays.linear_gaussian_problem(data.X, data.y, gamma), n_jobs=1)

    def run():
        path = arrays.bridge_path(arrays.prior_path(problem), mean, covariance)
        arrays.run_tempering(path, arrays.Settings(particles=DRAWS), np.random.default_rng(1))

    on_arrays(), run(), steps(model, approx), sample(model, approx)
    base, repeated, first = fastest(on_arrays, lambda: fit(model), lambda: fit(pima_model()))
    chosen, selected = fastest(
        lambda: pac.select_gamma(problem, progressbar=False),
        lambda: pac.select_gamma(model, progressbar=False),
        runs=2,
    )
    smc, stepped, sampled = fastest(run, lambda: steps(model, approx), lambda: sample(model, approx))
    return [
        ("pm.fit, repeated", base, repeated),
        ("pm.fit, first, model included", base, first),
        ("select_gamma", chosen, selected),
        ("TemperingSMC(start=approx), the step", smc, stepped),
        ("pm.sample(step=TemperingSMC(start=approx))", smc, sampled),
    ]


def main():
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.simplefilter("ignore", pac.results.ConvergenceWarning)
    print("| | arrays, ms | through PyMC, ms | ratio |\n|---|---:|---:|---:|")
    for what, base, through in measured():
        print(f"| {what} | {1e3 * base:.0f} | {1e3 * through:.0f} | {through / base:.2f} |")


if __name__ == "__main__":
    main()
