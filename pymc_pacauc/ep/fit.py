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
from pymc_pacauc.ep.plan import Plan, Subsample, choose_plan
from pymc_pacauc.ep.results import TRUSTED_ERROR, warn_of_subsample
from pymc_pacauc.problem.problem import Problem

ENGINES: dict[tuple[str, str], Any] = {
    ("gaussian", "all"): gaussian.solve,
    ("gaussian", "subsample"): subsample.solve,
    ("spike and slab", "all"): spike_slab.solve,
    ("independent", "all"): spike_slab.solve,
}


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
    found: Any = engine(problem.in_coordinates(plan.coordinates), plan, **options)
    if isinstance(plan.pairs, Subsample) and plan.accuracy in ("fit", "estimator"):
        _warn_of_error(found, plan.pairs)
    return found


def _warn_of_error(found: Any, asked: Subsample) -> None:
    """Of a subsample larger than asked for, or whose error is large."""
    n_pairs, said = found.problem.pairs.n_pairs, ""
    if asked.rows_asked is not None and found.subsample.groups < asked.groups:
        said = (
            f"pairs={asked.rows_asked} rows per group leave an error of the mean of more than {TRUSTED_ERROR:g} "
            f"posterior standard deviations: {found.pairs_used} of {n_pairs} pairs were used instead, as with "
            f'pairs={round(found.problem.n / found.subsample.groups)}. Ask for so many, or for pairs="auto".'
        )
    warn_of_subsample(found.sampling_error, found.pairs_used, n_pairs, said, 'Use pairs="all".', stacklevel=4)
