"""The one way to a fit: carry out a plan (:mod:`pymc_pacauc.ep.plan`), by the engine for its prior and its pairs.

To add a prior, describe it in :class:`~pymc_pacauc.problem.problem.Problem`, write its engine (a function of problem
and plan that returns a :class:`~pymc_pacauc.ep.results.Fit`), and add it to ``ENGINES``.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

from pymc_pacauc.ep import gaussian, spike_slab, subsample
from pymc_pacauc.ep.gaussian import Callback
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.ep.plan import ACCURACIES, METHODS, Plan, Subsample, choose_plan
from pymc_pacauc.ep.results import TRUSTED_ERROR, warn_of_subsample
from pymc_pacauc.ep.subsample import NeedsAllPairs
from pymc_pacauc.problem.problem import Problem

ENGINES: dict[tuple[str, str], Any] = {
    ("gaussian", "all"): gaussian.solve,
    ("gaussian", "subsample"): subsample.solve,
    ("spike and slab", "all"): spike_slab.solve,
    ("independent", "all"): spike_slab.solve,
}

SAID = ("fit", "estimator")  # accuracies of results that users see, and are told of subsamples
TOO_FEW = f"leave an error of the mean of more than {TRUSTED_ERROR:g} posterior standard deviations"


def fit(
    problem: Problem, plan: Plan | None = None, *, n_jobs: int | None = None, callback: Callback | None = None
) -> Any:
    """Fit a problem as the plan says, by default that of :func:`~pymc_pacauc.ep.plan.choose_plan`.

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
        Of the problem in the plan's coordinates; its ``plan`` says in a sentence how it was fitted.

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
    engine = ENGINES[plan.prior, plan.pairs if isinstance(plan.pairs, str) else "subsample"]
    try:
        found: Any = engine(problem.in_coordinates(plan.coordinates), plan, **options)
    except NeedsAllPairs as reason:
        _say_all_pairs(reason, plan)
        return fit(problem, _all_pairs(problem, plan), **options)
    if isinstance(plan.pairs, Subsample) and plan.accuracy in SAID:
        _warn_of_error(found, plan.pairs)
    return found


def _all_pairs(problem: Problem, plan: Plan) -> Plan:
    """The plan for all pairs, by the same method; from the prior, as starts are what a subsample came from."""
    tolerance = None if plan.tolerance == ACCURACIES[plan.accuracy].tolerance else plan.tolerance
    whole = choose_plan(problem, pairs="all", accuracy=plan.accuracy, tolerance=tolerance, max_sweeps=plan.max_sweeps)
    return replace(whole, power=plan.power)


def _say_all_pairs(reason: NeedsAllPairs, plan: Plan) -> None:
    asked, said = plan.pairs, ""
    assert isinstance(asked, Subsample)
    if not reason.converged:
        method = METHODS["vb" if plan.power == 0.0 else "ep"]
        said = f"{method} did not converge on a subsample of {reason.pairs_used} of {plan.n_pairs} pairs"
    elif asked.rows_asked is not None:
        said = f"pairs={asked.rows_asked} rows per group {TOO_FEW}"
    if said and plan.accuracy in SAID:
        warnings.warn(f"{said}: all pairs were used instead.", ConvergenceWarning, stacklevel=4)


def _warn_of_error(found: Any, asked: Subsample) -> None:
    """Of a subsample larger than asked for, or whose error is large."""
    n_pairs, said = found.problem.pairs.n_pairs, ""
    if asked.rows_asked is not None and found.subsample.groups < asked.groups:
        said = (
            f"pairs={asked.rows_asked} rows per group {TOO_FEW}: {found.pairs_used} of {n_pairs} pairs were used "
            "instead, as with "
            f'pairs={round(found.problem.n / found.subsample.groups)}. Ask for so many, or for pairs="auto".'
        )
    warn_of_subsample(found.sampling_error, found.pairs_used, n_pairs, said, 'Use pairs="all".', stacklevel=4)
