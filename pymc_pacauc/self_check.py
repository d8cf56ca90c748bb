"""Print versions and check the engines against exact results in a few seconds: ``python -m pymc_pacauc``.

For bug reports and new installations. With two coefficients, an isotropic prior and no offset the risk depends on the
angle of theta alone, and changes only where the scores of a pair change their order; so the evidence and the expected
risk are finite sums over angles. Their values, and the risk of tied scores by two nested loops, are computed by the
tests of this module.
"""

from __future__ import annotations

import os
import platform
import time
from importlib import metadata
from importlib.util import find_spec

import numpy as np

from pymc_pacauc.comparison.risk import empirical_risk
from pymc_pacauc.datasets import load_pima
from pymc_pacauc.fitting import fit
from pymc_pacauc.numerics import FloatArray, Mask
from pymc_pacauc.problem.problem import Problem, linear_gaussian_problem
from pymc_pacauc.smc.paths import prior_path
from pymc_pacauc.smc.tempering import Settings, run_tempering

PACKAGES = ("pymc", "pytensor", "arviz", "numpy", "scipy", "numba", "xarray", "pandas", "scikit-learn", "dask")
GAMMA = 25.0
# Exact answers for :func:`rows`: the risk of rounded glucose, the log evidence and the expected risk at GAMMA
EXACT = {"risk": 143.5 / 731, "log_evidence": -5.666364479193112, "expected_risk": 0.16901763696043626}


def versions() -> dict[str, str]:
    """List the versions of Python, of this package and of those it works with."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for name in ("pymc-pacauc", *PACKAGES):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def rows() -> tuple[FloatArray, Mask]:
    """Return glucose and body mass index, standardised, of 60 women of the Pima data, and who is diabetic."""
    pima = load_pima().standardized()
    return pima.X[:60, [1, 4]], pima.y[:60] == 1


def report() -> tuple[str, bool]:
    """Return what ``python -m pymc_pacauc`` prints, and whether risk, EP and SMC are near the exact answers."""
    X, y = rows()
    problem = linear_gaussian_problem(X, y, gamma=GAMMA)
    by_ep, risk = fit(problem), float(empirical_risk(np.round(X[:, 0], 1), y))
    checks = (  # name, number found, entry of EXACT, and how far apart they may be
        ("risk of tied scores", risk, "risk", 1e-15),
        ("log evidence by EP", by_ep.log_evidence, "log_evidence", 0.3),
        ("expected risk by EP", by_ep.expected_risk, "expected_risk", 0.01),
        ("log evidence by SMC", smc_evidence(problem), "log_evidence", 0.15),
    )
    lines, passed = [f"{name:14s} {version}" for name, version in versions().items()] + [""], True
    for name, found, key, allowed in checks:
        right = abs(found - EXACT[key]) <= allowed
        lines.append(f"{'ok' if right else 'WRONG':5s} {name}: {found:.6f}, exactly {EXACT[key]:.6f}")
        passed = passed and right
    return "\n".join(lines), passed


def warm() -> str:
    """Fit and sample a few rows once, so that numba and PyTensor keep what they compile; return what was done."""
    import pymc as pm
    import pytensor

    import pymc_pacauc as pac

    started = time.process_time()
    rng = np.random.default_rng(2014)
    X = rng.normal(size=(60, 3))
    y = X[:, 0] + rng.normal(size=60) > 0.5
    for rows in (False, True):
        for strata in (None, np.arange(60) % 2):
            with pm.Model():
                theta = pm.Normal("theta", size=3)
                pac.AUCPotential("auc", (pm.Data("X", X) if rows else X) @ theta, y, gamma=GAMMA, strata=strata)
                approx = pm.fit(method=pac.EP(n_jobs=1), progressbar=False)
                for start in (None, approx):
                    step = pac.TemperingSMC(start=start, particles=200)
                    pm.sample(2, step=step, chains=1, cores=1, progressbar=False, compute_convergence_checks=False)
    done = ["pm.fit", "pm.sample"]
    if find_spec("sklearn"):
        pac.AUCClassifier().fit(X, y)
        done.append("AUCClassifier")
    numba = os.environ.get("NUMBA_CACHE_DIR", "__pycache__ beside the package's modules")
    return (
        f"Compiled what {', '.join(done)} need in {time.process_time() - started:.0f} CPU seconds; kept in {numba} and "
        f"{pytensor.config.compiledir}."
    )


def smc_evidence(problem: Problem) -> float:
    state = run_tempering(prior_path(problem), Settings(particles=2000), np.random.default_rng(1))
    return float(state.log_evidence)
