"""Carry out a plan (:mod:`pymc_pacauc.ep.plan`): choose the engine for its prior and its pairs, and call it.

Every fit of EP in the package is made by :func:`fit`. It computes the start that the plan asks for, calls the engine,
falls back to all pairs where no subsample is accurate enough, and warns of a large sampling error.

To add an engine, write a function ``solve(problem, plan, *, n_jobs, callback)`` that returns a
:class:`~pymc_pacauc.ep.results.Fit`, and enter it in ``ENGINES`` under the name of its prior (``Problem.sites.name``)
and of its pairs ("all" or "subsample").
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pymc_pacauc.ep import gaussian, spike_slab, subsample
from pymc_pacauc.ep.gaussian import Callback
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.ep.plan import ACCURACIES, METHODS, Plan, Subsample, choose_plan
from pymc_pacauc.ep.posterior import ByCovariance
from pymc_pacauc.ep.results import TRUSTED_ERROR, warn_of_subsample
from pymc_pacauc.ep.subsample import NeedsAllPairs
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.problem import Problem

ENGINES: dict[tuple[str, str], Any] = {
    ("gaussian", "all"): gaussian.solve,
    ("gaussian", "subsample"): subsample.solve,
    ("spike and slab", "all"): spike_slab.solve,
    ("independent", "all"): spike_slab.solve,
}

SAID = ("fit", "estimator")  # accuracies of fits that are returned to users: only these warn of their subsample
TOO_FEW = f"leave an error of the mean of more than {TRUSTED_ERROR:g} posterior standard deviations"


def fit(
    problem: Problem, plan: Plan | None = None, *, n_jobs: int | None = None, callback: Callback | None = None
) -> Any:
    """Fit a problem by EP or variational Bayes, as a plan says (default: :func:`~pymc_pacauc.ep.plan.choose_plan`).

    Parameters
    ----------
    problem : Problem
        The target, with a Gaussian prior or independent priors of single coefficients.
    plan : Plan, optional
        How to fit it.
    n_jobs : int, optional
        Threads, by default one per core; the result does not depend on their number.
    callback : callable, optional
        Called after every sweep with its record.

    Returns
    -------
    Fit
        The approximation, in the plan's coordinates; its ``plan`` says in a sentence how it was fitted.

    Raises
    ------
    UnsupportedError
        If the prior has no such method, or its pairs cannot be subsampled.

    Warns
    -----
    ConvergenceWarning
        If the iteration did not converge, has several fixed points, or the error from using a subset of pairs is large.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_pacauc.problem.problem import linear_gaussian_problem, spike_slab_problem
    >>> X = np.random.default_rng(1).normal(size=(80, 4))
    >>> found = fit(linear_gaussian_problem(X, X[:, 0] > 0.2, gamma=80.0))
    >>> found.converged, str(found.plan).split(":")[0]
    (True, 'all 1 479 pairs, coefficients, from the prior')
    >>> sparse = spike_slab_problem(X, X[:, 0] > 0.2, gamma=80.0, inclusion_probability=0.2, v0=0.0)
    >>> fit(sparse).inclusion_probability.round(1)
    array([1., 0., 0., 0.])
    """
    plan = choose_plan(problem) if plan is None else plan
    plan.check(problem)
    options: dict[str, Any] = {"n_jobs": n_jobs, "callback": callback}
    if plan.start == "slab":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # it is where to start, not what is returned
            dense = replace(problem, sites=None)
            rough = choose_plan(dense, pairs="all", accuracy="path", max_sweeps=plan.max_sweeps - 1)
            rough = replace(rough, coordinates="coefficients", start="prior")
            options["rough"] = fit(dense, rough, **options)
    if plan.start == "parts":
        plan = replace(plan, start=_fitted_parts(problem, plan, n_jobs))
    engine = ENGINES[plan.prior, plan.pairs if isinstance(plan.pairs, str) else "subsample"]
    try:
        found: Any = engine(problem.in_coordinates(plan.coordinates), plan, **options)
    except NeedsAllPairs as reason:
        _say_all_pairs(reason, plan)
        return fit(problem, _all_pairs(problem, plan), **options)
    if isinstance(plan.start, _Start):
        found = replace(found, plan=replace(found.plan, start="parts"))
    if isinstance(plan.pairs, Subsample) and plan.accuracy in SAID:
        _warn_of_error(found, plan.pairs)
    return found


@dataclass(frozen=True, eq=False)
class _Start(ByCovariance):
    """A Gaussian to start from, with the attributes that ``start_of`` asks of an earlier fit."""

    problem: Problem
    mean: FloatArray
    covariance: FloatArray

    @property
    def posterior(self) -> _Start:
        return self


def _fitted_parts(problem: Problem, plan: Plan, n_jobs: int | None) -> Any:
    """Fit each independent part of the problem; return the product of these posteriors as a start for the whole.

    That product is the fixed point already, up to rounding. From another start the whole takes as many sweeps as its
    slowest part, and a sweep of the whole costs more than one of each part together: all coefficients enter each matrix
    product.
    """
    mean, covariance = np.zeros(problem.d), np.zeros((problem.d, problem.d))
    for part in problem.parts:
        method = "ep" if plan.power else "vb"
        how = choose_plan(part.problem, method=method, power=plan.power or 1.0, pairs="all", accuracy=plan.accuracy)
        found = fit(part.problem, replace(how, tolerance=plan.tolerance, max_sweeps=plan.max_sweeps), n_jobs=n_jobs)
        mean[part.columns] = found.posterior.mean
        covariance[np.ix_(part.columns, part.columns)] = found.posterior.covariance
    return _Start(problem, mean, covariance)


def _all_pairs(problem: Problem, plan: Plan) -> Plan:
    """Return the plan for all pairs, by the same method. Its start is not that of the subsample, which failed."""
    tolerance = None if plan.tolerance == ACCURACIES[plan.accuracy].tolerance else plan.tolerance
    whole = choose_plan(problem, pairs="all", accuracy=plan.accuracy, tolerance=tolerance, max_sweeps=plan.max_sweeps)
    return replace(whole, power=plan.power)


def _say_all_pairs(reason: NeedsAllPairs, plan: Plan) -> None:
    """Warn that all pairs are used, where the caller asked for a number of rows, or a subsample did not converge."""
    asked, said = plan.pairs, ""
    assert isinstance(asked, Subsample)
    if not reason.converged:
        method = METHODS["vb" if plan.power == 0.0 else "ep"]
        said = f"{method} did not converge on a subsample of {reason.pairs_used} of {plan.n_pairs} pairs"
    elif asked.rows_asked is not None:
        said = f"pairs={asked.rows_asked} rows per group {TOO_FEW}"
    if said and plan.accuracy in SAID:
        warnings.warn(f'{said}: all pairs were used instead, as with pairs="all".', ConvergenceWarning, stacklevel=4)


def _warn_of_error(found: Any, asked: Subsample) -> None:
    """Warn of a subsample that is larger than asked for, or whose error is large."""
    n_pairs, said = found.problem.pairs.n_pairs, ""
    if asked.rows_asked is not None and found.subsample.groups < asked.groups:
        said = (
            f"pairs={asked.rows_asked} rows per group {TOO_FEW}: {found.pairs_used} of {n_pairs} pairs were used "
            "instead, as with "
            f'pairs={round(found.problem.n / found.subsample.groups)}. Ask for so many, or for pairs="auto".'
        )
    warn_of_subsample(found.sampling_error, found.pairs_used, n_pairs, said, 'Use pairs="all".', stacklevel=4)
