"""Rounds of tasks on a Dask cluster.

:func:`submit` and :func:`gather` run one round; tasks of a worker that dies are repeated on another, and
:class:`ClusterError` is raised if no worker is left for ``PATIENCE`` seconds.
"""

from __future__ import annotations

import time
from asyncio import CancelledError
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any

import dask
from distributed import Client, Future, wait
from distributed.comm import CommClosedError
from distributed.scheduler import KilledWorker

from pymc_pacauc.numerics import single_threaded_blas

PATIENCE = 30.0  # seconds without any worker after which a cluster counts as lost; doubled, the error comes later


class ClusterError(RuntimeError):
    """Raised where a Dask cluster is closed, has lost its workers, or they cannot do the work.

    See Also
    --------
    fit_rows : Fit rows that are loaded on the workers.

    Examples
    --------
    >>> from pymc_pacauc import cluster
    >>> issubclass(cluster.ClusterError, RuntimeError)
    True
    """


def check_client(client: Client) -> None:
    """Refuse a client that is closed or asynchronous, or whose workers lack this package."""
    if not isinstance(client, Client):
        raise TypeError(f"client must be a synchronous distributed.Client; got {type(client).__name__}.")
    if getattr(client, "asynchronous", False):
        raise TypeError("client is asynchronous: make one with Client(address), without asynchronous=True.")
    if client.status != "running":
        raise ClusterError(f"client is {client.status}: connect a new one, Client(address).")
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except TimeoutError:
        raise _lost(client) from None
    found = client.run(find_spec, "pymc_pacauc", on_error="return")
    without = sorted(worker for worker, spec in found.items() if spec is None or isinstance(spec, BaseException))
    if without:
        raise ClusterError(
            f"{len(without)} of {len(found)} Dask workers do not have pymc_pacauc ({', '.join(without[:3])}): install "
            "it in their environment, the same version as here."
        )


def hold(client: Client, data: Sequence[Any]) -> list[Future]:
    """Send data to the cluster; return futures, which the scheduler can compute again if their worker dies.

    (Scattered data would be lost with their worker.) The data are part of the graph, whose size Dask warns of: the
    warning is switched off.
    """
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
        return [client.submit(_identity, each, pure=False) for each in data]


def submit(client: Client, function: Callable[..., Any], futures: Sequence[Any], *arguments: Any) -> list[Future]:
    """Start ``function(each, *arguments)`` for each future, or tuple of futures: one round, on any worker."""
    with _while_connected(client):
        return [
            client.submit(_alone, function, *(each if isinstance(each, tuple) else (each,)), *arguments, pure=False)
            for each in futures
        ]


def gather(client: Client, futures: list[Future]) -> list[Any]:
    """Return the results of a round, in order; :class:`ClusterError` when the workers are gone."""
    with _while_connected(client), client.as_current():
        seen = time.monotonic()
        while True:
            with suppress(TimeoutError):
                wait(futures, timeout=2.0)
                break
            with suppress(OSError):  # the scheduler does not answer
                seen = time.monotonic() if client.status == "running" and client.nthreads() else seen
            if time.monotonic() - seen > PATIENCE:
                raise _lost(client)
        return list(client.gather(futures))  # Dask computes again what is lost with a worker


@contextmanager
def _while_connected(client: Client) -> Iterator[None]:
    """Turn exceptions caused by a lost connection, or by what workers lack, into :class:`ClusterError`."""
    try:
        yield
    except ClusterError:
        raise
    except KilledWorker as error:
        raise ClusterError(
            "Every worker that tried a part of the work died. Most often it ran out of memory (give workers more, or "
            "divide the data into smaller parts), or started later, without pymc_pacauc."
        ) from error
    except ModuleNotFoundError as error:
        raise ClusterError(f"A Dask worker lacks a package: {error}. Install it in the environment of all.") from error
    except (Exception, CancelledError) as error:
        if client.status == "running" and not isinstance(error, CommClosedError | CancelledError):
            raise
        raise _lost(client) from error


def _identity(data: Any) -> Any:
    return data


def _alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function with single-threaded BLAS, because there is a worker for each core."""
    with single_threaded_blas():
        return function(*arguments)


def _lost(client: Client) -> ClusterError:
    if client.status != "running":
        return ClusterError(f"client is {client.status}: the connection to the scheduler is lost.")
    return ClusterError(
        f"client has had no worker for {PATIENCE:.0f} seconds: start workers and call again; data are loaded again. If "
        "workers died, their logs say why: memory, or pymc_pacauc missing."
    )
