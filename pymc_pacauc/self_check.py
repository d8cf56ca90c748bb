"""Print versions and check the engines against exact results in a few seconds: ``python -m pymc_pacauc``.

For bug reports and new installations. With two coefficients, an isotropic prior and no offset the risk depends on the
angle of theta alone, and changes only where the scores of a pair change their order; so the evidence and the expected
risk are finite sums over angles. The risk kernel is compared with two nested loops.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from pymc_pacauc.comparison.risk import empirical_risk
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem.problem import Problem, linear_gaussian_problem
from pymc_pacauc.smc.paths import prior_path
from pymc_pacauc.smc.tempering import Settings, run_tempering

PACKAGES = ("pymc", "pytensor", "arviz", "numpy", "scipy", "numba", "xarray", "pandas", "scikit-learn", "dask")
GAMMA = 25.0


@dataclass(frozen=True)
class Check:
    """One comparison: what was found, what is exact, how far apart they may be."""

    name: str
    found: float
    exact: float
    allowed: float
    seconds: float

    @property
    def passed(self) -> bool:
        return bool(abs(self.found - self.exact) <= self.allowed)

    def __str__(self) -> str:
        verdict = "ok" if self.passed else "WRONG"
        return f"{verdict:5s} {self.name}: {self.found:.6f}, exactly {self.exact:.6f} ({self.seconds:.1f} s)"


def versions() -> dict[str, str]:
    """Versions of Python, of this package and of those it works with."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for name in ("pymc-pacauc", *PACKAGES):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def self_check() -> list[Check]:
    """Compare the kernel with brute force, and EP and SMC with the exact plane."""
    rng = np.random.default_rng(2014)
    X = rng.normal(size=(40, 2))
    y = X @ [1.0, 0.5] + rng.normal(size=40) > 0.5
    problem = linear_gaussian_problem(X, y, gamma=GAMMA)
    log_evidence, expected_risk = exact_plane(X, y)
    tied = np.round(X[:, 0], 1)
    return [
        timed("risk of tied scores", lambda: float(empirical_risk(tied, y)), brute_force(tied, y), 1e-15),
        timed("log evidence by EP", lambda: fit(problem).log_evidence, log_evidence, 0.3),
        timed("expected risk by EP", lambda: fit(problem).expected_risk, expected_risk, 0.01),
        timed("log evidence by SMC", lambda: smc_evidence(problem), log_evidence, 0.15),
    ]


def report() -> tuple[str, bool]:
    """Return the text that ``python -m pymc_pacauc`` prints, and whether every check passed."""
    checks = self_check()
    lines = [f"{name:14s} {version}" for name, version in versions().items()]
    return "\n".join([*lines, "", *map(str, checks)]), all(check.passed for check in checks)


def warm() -> str:
    """Fit, sample and select once on a few rows, so that numba and PyTensor keep what they compile; what was done."""
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


def timed(name: str, compute: Callable[[], float], exact: float, allowed: float) -> Check:
    started = time.perf_counter()
    found = compute()
    return Check(name, found, exact, allowed, time.perf_counter() - started)


def brute_force(scores: NDArray[np.float64], y: NDArray[np.bool_]) -> float:
    differences = np.subtract.outer(scores[y], scores[~y])
    return float(np.mean((differences < 0) + 0.5 * (differences == 0)))


def exact_plane(X: NDArray[np.float64], y: NDArray[np.bool_]) -> tuple[float, float]:
    """Log evidence and expected risk under a N(0, c I) prior: sums over the angles between two changes of order."""
    differences = (X[y][:, None, :] - X[~y][None, :, :]).reshape(-1, 2)
    normal = np.arctan2(differences[:, 1], differences[:, 0])
    edges = np.sort(np.concatenate([normal + np.pi / 2, normal - np.pi / 2]) % (2 * np.pi))
    edges = np.append(edges, edges[0] + 2 * np.pi)
    middle = (edges[:-1] + edges[1:]) / 2
    risk = np.mean(np.column_stack([np.cos(middle), np.sin(middle)]) @ differences.T < 0, axis=1)
    weight = np.diff(edges) / (2 * np.pi) * np.exp(-GAMMA * risk)
    return float(np.log(weight.sum())), float(weight @ risk / weight.sum())


def smc_evidence(problem: Problem) -> float:
    state = run_tempering(prior_path(problem), Settings(particles=2000), np.random.default_rng(1))
    return float(state.log_evidence)
