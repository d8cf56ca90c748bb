"""The one way from a problem to a fit, whatever the prior and the method.

>>> import numpy as np
>>> from pymc_pacauc.problem.problem import linear_gaussian_problem
>>> X = np.random.default_rng(1).normal(size=(50, 2))
>>> result = fit(linear_gaussian_problem(X, X[:, 0] > 0.2, gamma=50.0))
>>> result.converged, result.method
(True, 'EP')

Every result follows the protocol :class:`Fit`. To add a prior, describe it in
:class:`~pymc_pacauc.problem.problem.Problem`, write its engine (a function of the problem and the options of
:func:`fit`, which returns a :class:`Fit`), and choose it in :func:`fit`; to add a method, add it to ``METHODS`` and do
the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pymc_pacauc.ep.gaussian import check_power, fit_ep, fit_vb
from pymc_pacauc.ep.loop import UnsupportedError
from pymc_pacauc.ep.results import TRUSTED_ERROR, Fit, warn_of_subsample
from pymc_pacauc.ep.spike_slab import fit_sites
from pymc_pacauc.ep.subsample import fit_dealt, groups_to_deal
from pymc_pacauc.problem.problem import Problem

METHODS = {"ep": "EP", "vb": "GaussianVB"}  # by what the results call them

TOLERANCE = 1e-6
MAX_SWEEPS = 200


def fit(
    problem: Problem,
    method: str = "ep",
    *,
    power: float = 1.0,
    pairs: str | int = "auto",
    start: Fit | None = None,
    tolerance: float = TOLERANCE,
    max_sweeps: int = MAX_SWEEPS,
    n_jobs: int | None = None,
    callback: Callable[[dict[str, float]], None] | None = None,
    random_seed: Any = 0,
    client: Any = None,
) -> Fit:
    """Approximate the AUC Gibbs posterior of ``problem``.

    Parameters
    ----------
    problem
        The target, with a Gaussian or a spike-and-slab prior.
    method
        ``"ep"`` for expectation propagation, or ``"vb"`` for Gaussian variational Bayes (Gaussian priors only).
    power
        Of EP: 1, or in (0, 1) for fractional EP (Gaussian priors only).
    pairs
        ``"all"``; a number of rows per group, of groups sampled along the score (:mod:`~pymc_pacauc.ep.subsample`)
        within which rows are compared; or ``"auto"``: all where that is cheap, up to 5 million or four times as many as
        would be used, else groups that leave an error of some hundredths of a posterior standard deviation. (Gaussian
        priors only; others use all.) Groups too small for an error below 0.3 posterior standard deviations are replaced
        by larger ones, with a :class:`ConvergenceWarning`; where they would save less than three quarters of the pairs,
        all are used.
    start
        An earlier fit to begin from, for example at another gamma or another prior.
    tolerance
        Change of q in a sweep at which to stop: relative, of the natural parameters; for a spike-and-slab prior root
        mean square over coefficients in q's own standard deviations.
    max_sweeps
        Sweeps after which to give up, with a :class:`ConvergenceWarning`.
    n_jobs
        Threads, by default one per core; the result does not depend on their number.
    callback
        Called after every sweep with its record.
    random_seed
        Of the deal: the same each time, unless another is given.
    client
        A ``dask.distributed.Client``, whose workers share all pairs (Gaussian priors, from ten million pairs on), in
        place of the threads of this machine; see :mod:`pymc_pacauc.cluster`.

    Returns
    -------
    Fit
        Ctrl-C during ``arrays.fit`` or ``pm.fit`` ends the fit after the present sweep, with a
        :class:`ConvergenceWarning`, and returns it marked ``interrupted``; a second Ctrl-C raises KeyboardInterrupt at
        once. Inside anything that makes several fits the first one does.
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}; got {method!r}.")
    if method == "vb" and power != 1.0:
        raise UnsupportedError(
            f'power={power!r} is of method="ep"; "vb" is its limit of power zero: leave power away, or use method="ep".'
        )
    options: dict[str, Any] = {"start": start, "tolerance": tolerance, "max_sweeps": max_sweeps}
    groups = groups_to_deal(problem, pairs)
    if problem.sites is None:
        if client is not None:
            if groups is not None and not isinstance(pairs, str):
                raise UnsupportedError(
                    "A cluster compares all pairs of a problem; dealt pairs are quick on one machine: leave client or "
                    "pairs away. For rows that no machine holds alone there is pymc_pacauc.cluster.fit_rows."
                )
            options["sums_by"] = _sums_on(client)
        elif groups is not None:
            found = fit_dealt(
                problem,
                groups,
                power=check_power(power) if method == "ep" else 0.0,
                **options,
                n_jobs=n_jobs,
                callback=callback,
                random_seed=random_seed,
            )
            said = ""
            if not isinstance(pairs, str) and found.deal is not None and found.deal.groups < groups:
                said = (
                    f"pairs={pairs} rows per group leave an error of the mean of more than {TRUSTED_ERROR:g} posterior "
                    f"standard deviations: {found.pairs_used} of {problem.pairs.n_pairs} pairs were used instead, as "
                    f'with pairs={round(problem.n / found.deal.groups)}. Ask for so many, or for pairs="auto".'
                )
            advice = 'use pairs="all"'
            warn_of_subsample(found.sampling_error, found.pairs_used, problem.pairs.n_pairs, said, advice, stacklevel=3)
            return found
        if method == "vb":
            return fit_vb(problem, **options, n_jobs=n_jobs, callback=callback)
        return fit_ep(problem, power=power, **options, n_jobs=n_jobs, callback=callback)
    prior = problem.sites.name
    if client is not None:
        raise UnsupportedError(f"A prior that is {prior} is fitted on one machine: leave client away.")
    if method == "vb":
        raise UnsupportedError(
            f'Variational Bayes is for Gaussian priors; this problem has a prior that is {prior}: use method="ep".'
        )
    if power != 1.0:
        raise UnsupportedError(
            f"Fractional EP is for Gaussian priors; this problem has a prior that is {prior}: use power=1, "
            f"not {power:g}."
        )
    if not isinstance(pairs, str) and groups is not None:
        raise UnsupportedError(
            f"Pairs are dealt for Gaussian priors; this problem has a prior that is {prior}: leave pairs away."
        )
    return fit_sites(problem, **options, n_jobs=n_jobs, callback=callback)


def _sums_on(client: Any) -> Any:
    try:
        from pymc_pacauc.cluster.pairs import sums_on
    except ImportError as error:
        raise ImportError(f"client= needs Dask: pip install 'pymc-pacauc[dask]' ({error}).") from None
    return partial(sums_on, client)
