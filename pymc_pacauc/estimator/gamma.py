"""What an estimator's ``gamma=`` stands for: a number, a theorem's, or a choice along gamma."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pymc_pacauc.array_result import ArrayResult
from pymc_pacauc.certify.certificate import Certificate, certificate
from pymc_pacauc.comparison.pairs import Pairs
from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.ep.results import Fit
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem.problem import Problem, check_gamma
from pymc_pacauc.problem.provenance import sides
from pymc_pacauc.theorems import theorem_defaults
from pymc_pacauc.tune.coverage import CoverageChoice, coverage_gamma
from pymc_pacauc.tune.gamma import GammaChoice, certificate_gammas, choose_gamma, fits_along_gamma

GAMMAS = ("cv", "certificate", "coverage", "default", "MA1", "MAinf")


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


Choice = GammaChoice | CertifiedGamma | CoverageChoice


def check_gamma_choice(gamma: Any) -> None:
    """One of the names, or a number."""
    if not isinstance(gamma, str):
        check_gamma(gamma)
    elif gamma not in GAMMAS:
        names = ", ".join(map(repr, GAMMAS))
        raise ValueError(f"gamma must be one of {names}, or one finite number > 0; got {gamma!r}.")


def fit_at_gamma(
    problem: Problem,
    tuning: Pairs,
    gamma: Any,
    *,
    method: str,
    folds: Any,
    groups: ArrayLike | None,
    priors: int,
    pilot: Fit | None,
    n_jobs: int | None,
    tell: Callable[[str], None],
) -> tuple[Fit, Choice | None]:
    """The fit at the gamma asked for, and how it was chosen where it was.

    Folds choose gamma by the pairs ``tuning``. A ``pilot``, a fit to these at any gamma, saves a fit.
    """
    if isinstance(gamma, str) and gamma == "cv":
        options: dict[str, Any] = {"method": method, "groups": groups, "n_jobs": n_jobs}
        number_of_folds = folds if isinstance(folds, int) else int(folds.max()) + 1
        options["callback"] = lambda number: tell(f"choosing gamma by {number_of_folds} folds: {number} looked at")
        choice = choose_gamma(problem, folds=folds, tuning=tuning, start=pilot, **options)
        start = pilot if tuning is problem.pairs else None
        tell(f"fitting at gamma = {choice.gamma:.4g}")
        at = replace(problem, gamma=choice.gamma)
        return fit(at, method, accuracy="estimator", start=start, n_jobs=n_jobs), choice
    if isinstance(gamma, str) and gamma == "certificate":
        certified = _by_certificate(problem, method, priors, groups, n_jobs)
        return certified.fit, certified
    if isinstance(gamma, str) and gamma == "coverage":
        covering = coverage_gamma(problem, n_jobs=n_jobs)
        return covering.fit, covering
    at = replace(problem, gamma=_number(gamma, problem))
    return fit(at, method, accuracy="estimator", n_jobs=n_jobs), None


def _number(gamma: Any, problem: Problem) -> float:
    if not isinstance(gamma, str):
        return check_gamma(gamma)
    if gamma == "default":
        return 4.0 * row_shares(problem.pairs).size
    if problem.pairs.kind != "two classes":
        raise ValueError(f'gamma={gamma!r} is for two classes; for {problem.pairs.kind} use "default" or "cv".')
    n_pos, n_neg = sides(problem.pairs)
    return theorem_defaults(n_pos, n_neg, problem.d, assumption=gamma).gamma


def _by_certificate(
    problem: Problem, method: str, priors: int, groups: ArrayLike | None, n_jobs: int | None
) -> CertifiedGamma:
    """From a quarter of Theorem 2.3's gamma to 32 times it; choosing gamma alone costs a certificate nothing."""
    grid = certificate_gammas(row_shares(problem.pairs))
    fits = list(fits_along_gamma(problem, grid, method, n_jobs=n_jobs))
    fits = [each for each in fits if each.converged] or fits
    # where the prior was tuned it is no certificate, but a criterion still
    options: dict[str, Any] = {"selected_from": priors, "tuned_prior": "accept", "groups": groups}
    return CertifiedGamma(tuple(fits), tuple(certificate(ArrayResult(each), **options) for each in fits))
