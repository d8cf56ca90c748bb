"""Independent runs of tempering SMC on the workers of a Dask cluster, a chain each."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from distributed import Client

from pymc_pacauc.cluster.rounds import check_client, map_with
from pymc_pacauc.core.problem import Problem
from pymc_pacauc.ep.results import Fit
from pymc_pacauc.smc import Settings, State, bridge_path, prior_path, run_tempering

__all__ = ["run_chains"]


def run_chains(
    problem: Problem,
    chains: int,
    settings: Settings | None = None,
    *,
    client: Client,
    start: Fit | None = None,
    random_seed: Any = None,
) -> list[State]:
    """Run tempering SMC ``chains`` times, independently, on the workers of a cluster.

    Parameters
    ----------
    problem
        The target; the workers hold it whole.
    chains
        How many runs.
    settings
        Of each, by default those of :class:`~pymc_pacauc.smc.Settings`.
    client
        The cluster.
    start
        A fit of ``problem`` to start from, by default the prior.
    random_seed
        A seed gives the same runs whatever the cluster, and however many of its workers die.

    Returns
    -------
    The final states, with particles and evidence, as of :func:`~pymc_pacauc.smc.run_tempering`.
    """
    if isinstance(chains, bool) or not isinstance(chains, int | np.integer) or chains < 1:
        raise ValueError(f"chains must be a whole number, at least 1; got {chains!r}.")
    check_client(client)
    path = prior_path(problem)
    if start is not None:
        path = bridge_path(path, start.posterior.mean, start.posterior.covariance)
    run = partial(_run, settings=Settings() if settings is None else settings)
    return map_with(client, run, path, np.random.SeedSequence(random_seed).spawn(chains))


def _run(path: Any, seed: np.random.SeedSequence, settings: Settings) -> State:
    return run_tempering(path, settings, np.random.default_rng(seed))
