"""Fits on a Dask cluster: a sweep of EP is a map over parts of the pairs and a sum, without state between sweeps.

    from dask.distributed import Client
    from pymc_pacauc import cluster

    client = Client("scheduler:8786")
    pm.fit(method=pac.EP(client=client))                  # a model with many pairs, which the workers divide
    cluster.fit_rows(paths, gamma, client=client)         # rows that do not fit on one machine: loaded by workers

Data are sent by ``submit``, so that the scheduler can send them again when a worker dies. A sweep is one round of
tasks: only the approximation and d x d sums cross the network. Tasks may run on any worker.
"""

from pymc_pacauc.cluster.rounds import ClusterError
from pymc_pacauc.cluster.rows import RowsFit, fit_rows, load_npz

__all__ = ["ClusterError", "RowsFit", "fit_rows", "load_npz"]
