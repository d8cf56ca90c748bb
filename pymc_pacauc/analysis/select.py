"""Choosing gamma: by cross-validated AUC, or by the certificate itself (the paper's section 3.1).

With expectation propagation a value of gamma costs one fit, warm-started from the last, and its folds are made by
removing sites from it. With tempering SMC one run per fold passes through all values of gamma on its way.

gamma multiplies the risk of the pairs a posterior has seen, in a fold as in the whole sample: every fold is trained at
the gamma in the table, whatever the sizes of the folds.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
from numpy.typing import ArrayLike, NDArray
from pymc.util import get_random_generator

from pymc_pacauc.analysis.tempered_folds import Tempered, TemperedModel, held_out_auc, temper, tempered_model
from pymc_pacauc.core.bounds import pac_bayes_kl
from pymc_pacauc.core.folds import stratified_folds
from pymc_pacauc.core.pairs import Pairs
from pymc_pacauc.core.problem import Problem, check_gamma
from pymc_pacauc.ep import ConvergenceWarning
from pymc_pacauc.fitting import Fit, fit
from pymc_pacauc.model.approximation import EPApproximation
from pymc_pacauc.model.extract import problem_of
from pymc_pacauc.model.progress import track
from pymc_pacauc.model.results import ArrayResult
from pymc_pacauc.smc import Settings

__all__ = ["GammaSelection", "default_gammas", "select_gamma"]

FloatArray = NDArray[np.float64]

FOLD_TOLERANCE = 1e-3  # of the natural parameters: far below what a ranking notices
METHODS = {"ep": "EP", "vb": "GaussianVB"}


@dataclass(frozen=True, eq=False)
class GammaSelection:
    """What :func:`select_gamma` found.

    Attributes
    table
        A row for each gamma: ``auc`` and ``se`` (cross-validated; NaN for the certificate criterion), ``expected_auc``
        (training, of the randomised score), ``log_evidence``, ``divergence`` from the prior, ``certified_auc`` (paying
        for the grid), ``converged``, ``fold_change`` (EP: relative change by one more sweep in the worst fold).
    best
        The gamma chosen.
    refit
        The posterior at ``best`` from all observations: an approximation (EP, VB) or draws (SMC).
    criterion, rule, method
        How it was chosen.
    fold
        Fold of each observation; empty for the certificate criterion.
    fold_auc
        AUC of each (gamma, fold).
    """

    table: pd.DataFrame
    best: float
    refit: Any
    criterion: str
    rule: str
    method: str
    fold: NDArray[np.intp]
    fold_auc: FloatArray

    def plot(self, ax: Any = None) -> Any:
        """AUCs, certificate and log evidence against gamma; see :func:`~pymc_pacauc.plot_gamma_path`."""
        from pymc_pacauc.analysis.plots import plot_gamma_path

        return plot_gamma_path(self, ax=ax)

    def __repr__(self) -> str:
        row = self.table.loc[self.table["gamma"] == self.best].iloc[0]
        if self.criterion == "certificate":
            found = f"certified AUC {row['certified_auc']:.4f}"
        else:
            found = f"cross-validated AUC {row['auc']:.4f} ± {row['se']:.4f} ({self.fold.max() + 1} folds)"
        rule = ", smallest within one standard error" if self.rule == "one_se" else ""
        return f"GammaSelection(best={self.best:g} of {len(self.table)}{rule}: {found}, {self.method})"


def select_gamma(
    model: pm.Model | None = None,
    gammas: ArrayLike | None = None,
    folds: int = 5,
    *,
    method: str = "ep",
    criterion: str = "auc",
    rule: str = "best",
    groups: ArrayLike | None = None,
    epsilon: float = 0.05,
    selected_from: int | None = None,
    refine: int = 20,
    particles: int = 1000,
    n_jobs: int = 1,
    random_seed: Any = None,
    progressbar: bool = True,
) -> GammaSelection:
    """Choose gamma by cross-validation or by certificate.

    Parameters
    model
        The model; by default the one on the context stack. Its own gamma is not used. EP and VB need scores that are
        affine in Gaussian variables, SMC takes any.
    gammas
        Values to compare; by default :func:`default_gammas`.
    folds
        Number of folds, each with both classes.
    method
        ``"ep"``, ``"vb"`` or ``"smc"``.
    criterion
        ``"auc"``: cross-validated AUC of the mean score. ``"certificate"``: the certified AUC (PAC-Bayes-kl).
    rule
        ``"best"``, or ``"one_se"``: the smallest gamma whose AUC is within one standard error of the best.
    groups
        Group label of each observation; a group is never split between folds.
    epsilon
        Of the certificates.
    selected_from
        What certificates pay for, by default the size of the grid. PAC-Bayes-kl holds for all posteriors at once, so
        with a prior fixed beforehand 1 is enough.
    refine
        At most so many sweeps over the remaining pairs after a fold's sites are removed; a few are usually enough, and
        the column ``fold_change`` of the table says how far one more would have moved the worst fold.
    particles
        Of each SMC run.
    n_jobs
        Processes, by joblib, for the folds (SMC, for scores affine in Gaussian variables) or the values of gamma (EP).
    random_seed
        For the folds and for SMC.
    progressbar
        Whether to show one when it takes more than a second.

    Returns
    GammaSelection

    Examples
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(150, 3))
    >>> with pm.Model() as model:
    ...     theta = pm.Normal("theta", size=3)
    ...     auc = pac.AUCPotential("auc", X @ theta, X[:, 0] + rng.normal(size=150) > 0, gamma=1)
    >>> selection = pac.select_gamma(model, gammas=[1, 10, 100], random_seed=1)
    >>> selection.best in (1, 10, 100), selection.table["auc"].shape
    (True, (3,))
    """
    _check_choice("method", method, (*METHODS, "smc"))
    _check_choice("criterion", criterion, ("auc", "certificate"))
    _check_choice("rule", rule, ("best", "one_se"))
    if criterion == "certificate" and method == "smc":
        raise ValueError('criterion="certificate" needs a divergence in closed form: method="ep" or "vb".')
    model = pm.modelcontext(model)
    if method == "smc":
        target = tempered_model(model)
        pairs = target.pairs
        if target.problem is None and n_jobs != 1:
            raise ValueError("Processes need scores that are affine in Gaussian variables; other models stay in one.")
    else:
        source = problem_of(model)
        pairs = source.problem.pairs
    class_sizes(pairs)
    grid = default_gammas(pairs) if gammas is None else _grid(gammas)
    rng = get_random_generator(random_seed)
    fold = np.empty(0, dtype=np.intp)
    if criterion == "auc":
        fold = stratified_folds(_positive(pairs), folds, rng, groups)
    pays = grid.size if selected_from is None else selected_from
    if method == "smc":
        table, fold_auc, whole = _by_smc(target, grid, fold, particles, n_jobs, rng, progressbar)
        best = _choose(table, criterion, rule)
        refit = whole[best].draws(model, target.fitted_to, rng)
    else:
        table, fold_auc, fits = _by_ep(source.problem, grid, fold, method, epsilon, pays, refine, n_jobs, progressbar)
        best = _choose(table, criterion, rule)
        refit = EPApproximation(fits[best], replace(source, problem=fits[best].problem))
    return GammaSelection(table, float(grid[best]), refit, criterion, rule, method.upper(), fold, fold_auc)


def default_gammas(pairs: Pairs) -> FloatArray:
    """Fifteen values around that of Theorem 2.3, n+ n- / (4n) in pair units: from a quarter of it to 32 times it."""
    n_pos, n_neg = class_sizes(pairs)
    return n_pos * n_neg / (4.0 * (n_pos + n_neg)) * 2.0 ** np.linspace(-2, 5, 15)


# -- expectation propagation -----------------------------------------------------------------------------------------


def _by_ep(
    problem: Problem,
    grid: FloatArray,
    fold: NDArray[np.intp],
    method: str,
    epsilon: float,
    selected_from: int,
    refine: int,
    n_jobs: int,
    progressbar: bool,
) -> tuple[pd.DataFrame, FloatArray, list[Fit]]:
    fits = _path(problem, method, track(grid, f"{METHODS[method]} along gamma", grid.size, progressbar))
    m = min(class_sizes(problem.pairs))
    rows = []
    for each in fits:
        risk, divergence = ArrayResult(each).mean_risk.value, each.divergence
        highest = pac_bayes_kl(risk, divergence, m, epsilon, selected_from=selected_from) if divergence >= 0 else np.nan
        rows.append(
            {
                "gamma": each.problem.gamma,
                "auc": np.nan,
                "se": np.nan,
                "expected_auc": 1.0 - risk,
                "log_evidence": each.log_evidence,
                "divergence": divergence,
                "certified_auc": 1.0 - highest,
                "converged": each.converged,
            }
        )
    table, fold_auc = pd.DataFrame(rows), np.empty((grid.size, 0))
    if fold.size:

        def cross_validate(each: Fit) -> tuple[FloatArray, float]:
            threads = 1 if n_jobs != 1 else None
            left = each.leave_out(
                fold, gamma=each.problem.gamma, refine=refine, tolerance=FOLD_TOLERANCE, threads=threads
            )
            return left.group_auc, float(left.change.max())

        results = _map(cross_validate, fits, n_jobs, "Folds", progressbar)
        fold_auc = np.array([auc for auc, _ in results])
        table["fold_change"] = [change for _, change in results]
        _fill(table, fold_auc)
    if not table["converged"].all():
        bad = ", ".join(f"{gamma:.4g}" for gamma in table["gamma"][~table["converged"]])
        warnings.warn(
            f"{METHODS[method]} did not converge at gamma = {bad}; see the column `converged`.",
            ConvergenceWarning,
            stacklevel=3,
        )
    return table, fold_auc, fits


def _path(problem: Problem, method: str, gammas: Iterable[float]) -> list[Fit]:
    """Fits along gamma, each from the one before; failures are told from `converged`."""
    fits: list[Fit] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for gamma in gammas:
            start = fits[-1] if fits and fits[-1].converged else None
            fits.append(fit(replace(problem, gamma=float(gamma)), method, start=start))
    return fits


# -- tempering SMC ---------------------------------------------------------------------------------------------------


def _by_smc(
    target: TemperedModel,
    grid: FloatArray,
    fold: NDArray[np.intp],
    particles: int,
    n_jobs: int,
    rng: np.random.Generator,
    progressbar: bool,
) -> tuple[pd.DataFrame, FloatArray, list[Tempered]]:
    settings = Settings(particles=particles)

    def one_fold(task: tuple[int, np.random.Generator]) -> FloatArray:
        k, child = task
        training, held_out = target.pairs.among(fold != k), target.pairs.among(fold == k)
        return held_out_auc(held_out, temper(target, training, grid, settings, child))

    tasks = list(enumerate(rng.spawn(int(fold.max()) + 1)))
    fold_auc = np.array(_map(one_fold, tasks, n_jobs, "SMC runs", progressbar)).T
    whole = temper(target, target.pairs, grid, settings, rng)
    table = pd.DataFrame(
        {
            "gamma": grid,
            "auc": np.nan,
            "se": np.nan,
            "expected_auc": [1.0 - at.expected_risk for at in whole],
            "log_evidence": [at.log_evidence for at in whole],
            "divergence": [-at.gamma * at.expected_risk - at.log_evidence for at in whole],
            "certified_auc": np.nan,
            "converged": True,
        }
    )
    _fill(table, fold_auc)
    return table, fold_auc, whole


# -- both ------------------------------------------------------------------------------------------------------------


def _fill(table: pd.DataFrame, fold_auc: FloatArray) -> None:
    table["auc"] = fold_auc.mean(axis=1)
    table["se"] = fold_auc.std(axis=1, ddof=1) / np.sqrt(fold_auc.shape[1])


def _choose(table: pd.DataFrame, criterion: str, rule: str) -> int:
    values = (table["auc"] if criterion == "auc" else table["certified_auc"]).to_numpy()
    best = int(np.nanargmax(values))
    if rule == "one_se" and criterion == "auc":
        return int(np.flatnonzero(values >= values[best] - table["se"].iloc[best])[0])
    return best


def _positive(pairs: Pairs) -> NDArray[np.bool_]:
    mask = np.zeros(pairs.n, dtype=bool)
    mask[pairs.blocks[0].positive] = True
    return mask


def class_sizes(pairs: Pairs) -> tuple[int, int]:
    """n+ and n- of two classes."""
    if len(pairs.blocks) != 1:
        raise ValueError(
            f"Choosing gamma is for two classes compared pair by pair; these pairs come in {len(pairs.blocks)} blocks."
        )
    return pairs.blocks[0].positive.size, pairs.blocks[0].negative.size


def _grid(gammas: ArrayLike) -> FloatArray:
    values = np.unique(np.atleast_1d(np.asarray(gammas, dtype=np.float64)))
    if values.size == 0:
        raise ValueError("gammas is empty.")
    return np.array([check_gamma(value) for value in values])


def _map(function: Any, items: Sequence[Any], n_jobs: int, description: str, show: bool) -> list[Any]:
    if n_jobs == 1:
        return [function(item) for item in track(items, description, len(items), show)]
    try:
        from joblib import Parallel, delayed
    except ImportError:
        raise ImportError("n_jobs other than 1 needs joblib: pip install joblib.") from None
    results = Parallel(n_jobs=n_jobs, return_as="generator")(delayed(function)(item) for item in items)
    return list(track(results, description, len(items), show))


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}.")
