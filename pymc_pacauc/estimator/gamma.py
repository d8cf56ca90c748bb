"""What an estimator's ``gamma=`` stands for: a number, a theorem's, or a choice along gamma."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pymc_pacauc.analysis.certify import Certificate, certificate
from pymc_pacauc.core.fitted_to import sides
from pymc_pacauc.core.problem import Problem, check_gamma
from pymc_pacauc.core.row_shares import row_shares
from pymc_pacauc.core.theorems import theorem_defaults
from pymc_pacauc.fitting import ConvergenceWarning, Fit, fit
from pymc_pacauc.gamma_search import GammaChoice, choose_gamma
from pymc_pacauc.results import ArrayResult

__all__ = ["GAMMAS", "CertifiedGamma", "fit_at_gamma"]

GAMMAS = ("cv", "certificate", "default", "MA1", "MAinf")


@dataclass(frozen=True, eq=False)
class CertifiedGamma:
    """Fits along gamma with their certificates; ``fit`` has the highest."""

    fits: tuple[Fit, ...]
    certificates: tuple[Certificate, ...]

    @property
    def chosen(self) -> int:
        return int(np.argmax([each.auc for each in self.certificates]))

    @property
    def fit(self) -> Fit:
        return self.fits[self.chosen]


def fit_at_gamma(
    problem: Problem,
    gamma: Any,
    *,
    method: str,
    folds: int,
    groups: ArrayLike | None,
    epsilon: float,
    n_jobs: int | None,
    rng: np.random.Generator,
) -> tuple[Fit, GammaChoice | CertifiedGamma | None]:
    """The fit at the gamma asked for, and how it was chosen where it was."""
    if isinstance(gamma, str) and gamma == "cv":
        choice = choose_gamma(problem, folds=folds, method=method, groups=groups, n_jobs=n_jobs, rng=rng)
        return choice.fit, choice
    if isinstance(gamma, str) and gamma == "certificate":
        certified = _by_certificate(problem, method, epsilon, n_jobs)
        return certified.fit, certified
    return fit(replace(problem, gamma=_number(gamma, problem)), method, n_jobs=n_jobs), None


def _number(gamma: Any, problem: Problem) -> float:
    if not isinstance(gamma, str):
        return check_gamma(gamma)
    if gamma not in GAMMAS:
        names = ", ".join(map(repr, GAMMAS))
        raise ValueError(f"gamma must be one of {names}, or one finite number > 0; got {gamma!r}.")
    if gamma == "default":
        return 4.0 * row_shares(problem.pairs).size
    if problem.pairs.kind != "two classes":
        raise ValueError(f'gamma={gamma!r} is for two classes; for {problem.pairs.kind} use "default" or "cv".')
    n_pos, n_neg = sides(problem.pairs)
    return theorem_defaults(n_pos, n_neg, problem.d, assumption=gamma).gamma


def _by_certificate(problem: Problem, method: str, epsilon: float, n_jobs: int | None) -> CertifiedGamma:
    """From a quarter of Theorem 2.3's gamma to 32 times it; choosing gamma alone costs a certificate nothing."""
    fits: list[Fit] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of which `converged` tells
        for value in 0.25 * row_shares(problem.pairs).size * 2.0 ** np.linspace(-2, 5, 15):
            start = next((each for each in reversed(fits) if each.converged), None)
            fits.append(fit(replace(problem, gamma=float(value)), method, start=start, n_jobs=n_jobs))
    fits = [each for each in fits if each.converged] or fits
    return CertifiedGamma(tuple(fits), tuple(certificate(ArrayResult(each), epsilon) for each in fits))
