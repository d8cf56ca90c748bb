"""What badly scaled covariates do: EP beside SMC, and the AUC, over the ratio of the largest to the smallest scale.

The standardised covariates are multiplied by scales from 1 to a ratio, geometrically spaced, the largest going to those
that rank worst by themselves (weak), or best (strong); the prior stays N(0, 1) and gamma the default. EP's log Z minus
that of SMC (1000 particles from the prior; a star where SMC itself warns that its particles hardly moved, so that the
difference is not EP's), whether EP converged, and the AUC of EP's mean score on the training rows.

python -m benchmarks.scales [--ratios 1 10 100 1000 10000 1000000]
"""

import argparse
import warnings

import numpy as np

import pymc_pacauc as pac
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.smc.paths import prior_path
from pymc_pacauc.smc.tempering import Settings, run_tempering
from pymc_pacauc.theorems import default_gamma


def data():
    pima = pac.datasets.load_pima().standardized()
    yield "pima", pima.X[pima.train], pima.y[pima.train] > 0
    X = np.random.default_rng(1).normal(size=(200, 5))
    noise = np.random.default_rng(2).normal(size=200)
    yield "simulated", X, X[:, 0] + X[:, 1] + X[:, 4] + noise > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ratios", nargs="*", type=float, default=[1, 10, 100, 1e3, 1e4, 1e6])
    arguments = parser.parse_args()
    print("| data | ratio | large covariates | EP - SMC | EP converged | AUC |\n|---|---:|---|---:|---|---:|")
    for name, X, y in data():
        alone = np.abs(pac.empirical_risk(X.T, y) - 0.5)
        for ratio in arguments.ratios:
            for large, order in (("weak", -alone), ("strong", alone)):
                scaled = X * np.geomspace(1, ratio, X.shape[1])[np.argsort(np.argsort(order))]
                problem = linear_gaussian_problem(scaled, y, default_gamma(int(y.sum()), int((~y).sum())))
                with warnings.catch_warnings(record=True):
                    warnings.simplefilter("always")
                    found = fit(problem)
                with warnings.catch_warnings(record=True) as told:
                    warnings.simplefilter("always")
                    state = run_tempering(prior_path(problem), Settings(particles=1000), np.random.default_rng(0))
                difference = found.log_evidence - state.stages[-1].log_evidence
                auc = 1 - pac.empirical_risk(scaled @ found.posterior.mean, y)
                print(
                    f"| {name} | {ratio:g} | {large} | {difference:+.2f}{'*' * bool(told)} | "
                    f"{'yes' if found.converged else 'no'} | {auc:.3f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
