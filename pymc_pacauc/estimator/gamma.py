"""What an estimator's ``gamma=`` stands for: a number, a theorem's, or a choice along gamma."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_pacauc.array_result import ArrayResult
from pymc_pacauc.certify.certificate import Certificate, certificate
from pymc_pacauc.comparison.pairs import Pairs
from pymc_pacauc.comparison.sizes import row_shares
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.ep.results import Fit
from pymc_pacauc.ep.subsample import fit_dealt, pairs_for
from pymc_pacauc.estimator.folds import Folds, check_pairs_in_folds
from pymc_pacauc.fitting import TOLERANCE, fit
from pymc_pacauc.problem.problem import Problem, check_gamma
from pymc_pacauc.problem.provenance import sides
from pymc_pacauc.theorems import theorem_defaults
from pymc_pacauc.tune.coverage import CoverageChoice, coverage_gamma
from pymc_pacauc.tune.gamma import (
    Candidate,
    GammaChoice,
    deal_folds,
    held_out,
    leave_out_folds,
    paired_errors,
)

STEP = 4.0  # ratio of neighbouring gammas
SIZE_DEALT, MOST_DEALS = 120, 4  # size of the comparison times the number of deals of the folds: more changes nothing
PILOT, PATH_TOLERANCE = 2.0, 1e-2  # gamma of the fit to begin with, in units of the comparison's size; its tolerance

PAIRS_PER_ROW, LEAST_SAVED = 64, 4  # of the last fit; and of how many more so many are used
FEWEST_ROWS = 100  # of a group
DEALT_TOLERANCE = 1e-3  # moves the mean by less than dealing does

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
    pairs: Pairs,
    gamma: Any,
    *,
    method: str,
    folds: Folds,
    groups: ArrayLike | None,
    epsilon: float,
    priors: int,
    pilot: Fit | None,
    n_jobs: int | None,
    rng: np.random.Generator,
) -> tuple[Fit, Choice | None]:
    """The fit to ``pairs`` at the gamma asked for, and how it was chosen where it was.

    The pairs of ``problem`` may be fewer: those that folds choose gamma by, in units of the comparison's size. A
    ``pilot``, a fit to its compared rows at any gamma, saves a fit.
    """
    whole = replace(problem, pairs=pairs)
    if isinstance(gamma, str) and gamma == "cv":
        size = row_shares(problem.pairs).size
        if pilot is None:
            pilot = _quietly(
                replace(problem.of_compared_rows(), gamma=PILOT * size), method, None, PATH_TOLERANCE, n_jobs
            )
        candidates, value, dealt = _by_folds(pilot, method, problem.compared_rows, folds, groups, n_jobs, rng)
        nearest = min(range(len(candidates)), key=lambda k: abs(np.log(candidates[k].gamma / value)))
        at = replace(whole, gamma=row_shares(pairs).size / size * value)
        final = _fit_quickly(at, method, pilot if pairs is problem.pairs else None, n_jobs)
        return final, GammaChoice(tuple(candidates), nearest, final, dealt)
    problem = whole
    if isinstance(gamma, str) and gamma == "certificate":
        certified = _by_certificate(problem, method, epsilon, priors, n_jobs)
        return certified.fit, certified
    if isinstance(gamma, str) and gamma == "coverage":
        covering = coverage_gamma(problem, n_jobs=n_jobs)
        return covering.fit, covering
    return _fit_quickly(replace(problem, gamma=_number(gamma, problem)), method, None, n_jobs), None


def _fit_quickly(problem: Problem, method: str, start: Fit | None, n_jobs: int | None) -> Fit:
    """A fit to all pairs, or to few of many: pairs are dealt much sooner than where all would take long."""
    wanted = max(PAIRS_PER_ROW * problem.n, pairs_for(problem))
    if problem.spikes is not None or problem.pairs.n_pairs < LEAST_SAVED * wanted:
        return fit(problem, method, start=start, n_jobs=n_jobs)
    groups = min(problem.pairs.n_pairs / wanted, problem.n / FEWEST_ROWS)
    power = 1.0 if method == "ep" else 0.0
    return fit_dealt(problem, groups, power=power, start=start, tolerance=DEALT_TOLERANCE, n_jobs=n_jobs)


def _number(gamma: Any, problem: Problem) -> float:
    if not isinstance(gamma, str):
        return check_gamma(gamma)
    if gamma == "default":
        return 4.0 * row_shares(problem.pairs).size
    if problem.pairs.kind != "two classes":
        raise ValueError(f'gamma={gamma!r} is for two classes; for {problem.pairs.kind} use "default" or "cv".')
    n_pos, n_neg = sides(problem.pairs)
    return theorem_defaults(n_pos, n_neg, problem.d, assumption=gamma).gamma


def _by_folds(
    pilot: Fit,
    method: str,
    rows: NDArray[np.intp],
    folds: Folds,
    groups: ArrayLike | None,
    n_jobs: int | None,
    rng: np.random.Generator,
) -> tuple[list[Candidate], float, NDArray[np.intp]]:
    """A gamma at which the mean score, the one that is deployed, ranks held-out rows well.

    Its AUC is measured in steps of four, from twice Theorem 2.3's gamma up, and further while the last is best and the
    first more than a standard error behind. Between neighbours it hardly differs, and which of them is highest is often
    the folds' noise. So no one is picked: gamma is the geometric mean of all, each weighing exp(-2 z), z standard
    errors of the paired difference behind the best.

    ``rows`` are those that the pilot was fitted to. Folds without paths of their own begin at its sites, scaled.
    """
    pairs = pilot.problem.pairs
    groups = None if groups is None else np.asarray(groups)[rows]
    shares = row_shares(pairs)
    if isinstance(folds, int):
        deals = int(np.clip(SIZE_DEALT / shares.size, 1, MOST_DEALS))
        dealt = deal_folds(pairs, folds, deals, rng, groups)
    else:
        check_pairs_in_folds(pairs, folds[rows])
        dealt = folds[None, rows]
    left_out = leave_out_folds(pilot.problem, dealt, method)
    values = [float(value) for value in 0.5 * shares.size * STEP ** np.arange(4) if value <= shares.pairs]
    values = values or [float(shares.pairs)]
    candidates: list[Candidate] = []
    while values:
        candidates += [held_out(pilot, left_out, gamma=value, n_jobs=n_jobs) for value in values]
        last = candidates[-1]
        errors = paired_errors(np.array([each.auc for each in candidates]))
        rising = errors.best == len(candidates) - 1 and not errors.within[0]
        further = rising and last.reliable and STEP * last.gamma <= shares.pairs
        values = [STEP * last.gamma] if further else []
    return candidates, _mean_gamma(candidates), dealt


def _mean_gamma(candidates: Sequence[Candidate]) -> float:
    """The geometric mean, by how far each candidate that can be relied on stays behind the best."""
    usable = [each for each in candidates if each.reliable] or list(candidates)
    errors = paired_errors(np.array([each.auc for each in usable]))
    behind = np.divide(errors.loss, errors.se, out=np.where(errors.loss > 0.0, np.inf, 0.0), where=errors.se > 0.0)
    return float(np.exp(np.average(np.log([each.gamma for each in usable]), weights=np.exp(-2.0 * behind))))


def _quietly(problem: Problem, method: str, start: Fit | None, tolerance: float, n_jobs: int | None) -> Fit:
    """A fit among others, of which ``converged`` tells enough."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fit(problem, method, start=start, tolerance=tolerance, n_jobs=n_jobs)


def _by_certificate(problem: Problem, method: str, epsilon: float, priors: int, n_jobs: int | None) -> CertifiedGamma:
    """From a quarter of Theorem 2.3's gamma to 32 times it; choosing gamma alone costs a certificate nothing."""
    fits: list[Fit] = []
    for value in 0.25 * row_shares(problem.pairs).size * 2.0 ** np.linspace(-2, 5, 15):
        start = next((each for each in reversed(fits) if each.converged), None)
        fits.append(_quietly(replace(problem, gamma=float(value)), method, start, TOLERANCE, n_jobs))
    fits = [each for each in fits if each.converged] or fits
    tuned_prior = "charge" if priors > 1 else "accept"  # without a certificate it is a criterion still
    options: dict[str, Any] = {"selected_from": priors, "tuned_prior": tuned_prior}
    return CertifiedGamma(tuple(fits), tuple(certificate(ArrayResult(each), epsilon, **options) for each in fits))
