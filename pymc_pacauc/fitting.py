"""Fit a problem by options: :func:`fit` makes a plan of them (:mod:`pymc_pacauc.ep.plan`) and carries it out.

>>> import numpy as np
>>> from pymc_pacauc.problem.problem import linear_gaussian_problem
>>> X = np.random.default_rng(1).normal(size=(50, 2))
>>> result = fit(linear_gaussian_problem(X, X[:, 0] > 0.2, gamma=50.0))
>>> result.converged, result.method
(True, 'EP')
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from pymc_pacauc.ep.fit import fit as fit_by_plan
from pymc_pacauc.ep.gaussian import Callback
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.ep.plan import Plan, choose_plan
from pymc_pacauc.ep.results import Fit
from pymc_pacauc.problem.problem import Problem


def fit(
    problem: Problem,
    method: str = "ep",
    *,
    n_jobs: int | None = None,
    callback: Callback | None = None,
    client: Any = None,
    **options: Any,
) -> Fit:
    """Approximate the AUC Gibbs posterior of ``problem`` by a Gaussian (or a spike-and-slab) distribution.

    Parameters
    ----------
    problem : Problem
        The target, with a Gaussian or a spike-and-slab prior.
    method : {"ep", "vb"}, default "ep"
        Expectation propagation, or Gaussian variational Bayes (Gaussian priors only).
    n_jobs : int, optional
        Threads, by default one per core; the result does not depend on their number.
    callback : callable, optional
        Called after every sweep over the pairs with its record.
    client : dask.distributed.Client, optional
        Client of a cluster whose workers divide all pairs (Gaussian priors, from ten million pairs on), in place of the
        threads of this machine; see :mod:`pymc_pacauc.cluster`.
    **options : dict
        ``power``, ``pairs``, ``start``, ``tolerance``, ``max_sweeps``, ``random_seed`` and ``accuracy``; see Notes.

    Returns
    -------
    Fit
        ``print(result.plan)`` says how it was fitted. Ctrl-C during ``arrays.fit`` or ``pm.fit`` ends the fit after the
        present sweep, with a :class:`ConvergenceWarning`, and returns it marked ``interrupted``; a second Ctrl-C raises
        KeyboardInterrupt at once. Inside anything that makes several fits the first one does.

    Raises
    ------
    ValueError
        If an option is unknown or out of its range.
    UnsupportedError
        If the prior has no such method.
    ImportError
        If ``client`` is given and Dask is not installed.

    Warns
    -----
    ConvergenceWarning
        If the fit does not converge, two starts lead to different fixed points, or a subsample of pairs is too small.

    See Also
    --------
    pymc_pacauc.EP : The same for a PyMC model.
    pymc_pacauc.arrays.choose_gamma : Choose gamma by cross-validation.

    Notes
    -----
    power : float, default 1
        Power of EP: 1, or in (0, 1) for fractional EP (Gaussian priors only).
    pairs : "auto", "all" or int, default "auto"
        ``"all"``; a number of rows per group, of groups sampled along the score (:mod:`~pymc_pacauc.ep.subsample`)
        within which rows are compared; or ``"auto"``: all where that is cheap, up to 250 000 (with up to three columns,
        5 million) or four times as many as would be used, else groups that leave an error of some hundredths of a
        posterior standard deviation. (Gaussian priors only; others use all.) Groups too small for an error below 0.3
        posterior standard deviations are replaced by larger ones, with a :class:`ConvergenceWarning`; where they would
        save less than three quarters of the pairs, and where they do not converge and pairs are at most 5 million, all
        are used.
    start : Fit, optional
        An earlier fit to begin from, for example at another gamma or another prior. At a gamma beyond 11 times the
        comparison's size (n+ n- / n for two classes) there may be several fixed points. Without a start two are sought
        there, the one with the higher log evidence is kept, and a :class:`ConvergenceWarning` says if they differ; with
        a start, the one that it leads to is found.
    tolerance : float, default 1e-6
        Change of q in a sweep at which to stop: relative, of the natural parameters; for a spike-and-slab prior root
        mean square over coefficients in q's own standard deviations.
    max_sweeps : int, default 200
        Sweeps after which to give up, with a :class:`ConvergenceWarning`.
    random_seed : int, Generator or None, default 0
        Seed of the subsample.
    accuracy : {"fit", "estimator", "path", "proposal"}, default "fit"
        Purpose of the fit: sets the tolerance, and from how many pairs on, and to how many, they are subsampled.

    Examples
    --------
    >>> from pymc_pacauc import arrays
    >>> fit = arrays.fit(arrays.linear_gaussian_problem([[0.0], [1.0], [2.0]], [0, 1, 1], gamma=2.0))
    >>> fit.converged, fit.plan.pairs
    (True, 'all')
    """
    plan = plan_of(problem, method, client=client, **options)
    found: Fit = fit_by_plan(problem, plan, n_jobs=n_jobs, callback=callback)
    return found


def fits_along(problems: Iterable[Problem], method: str = "ep", **options: Any) -> Iterator[Fit]:
    """Yield a fit of each problem, from the last that converged; without warnings, see their ``converged``.

    ``options`` are those of :func:`fit`.
    """
    start = None
    for each in problems:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = fit(each, method, start=start, **options)
        start = found if found.converged else start
        yield found


def plan_of(problem: Problem, method: str = "ep", *, client: Any = None, **options: Any) -> Plan:
    """Make the plan for the options of :func:`fit`."""
    where = "threads" if client is None else _sums_on(client)
    return choose_plan(problem, method=method, where=where, **options)


def _sums_on(client: Any) -> Any:
    try:
        from pymc_pacauc.cluster.shards import sums_on
    except ImportError as error:
        raise ImportError(f"client= needs Dask: pip install 'pymc-pacauc[dask]' ({error}).") from None
    return partial(sums_on, client)
