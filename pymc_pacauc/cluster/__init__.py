"""Fits on a Dask cluster: a sweep of EP is a map over parts of the pairs and a sum, and nothing is kept between sweeps.

    from dask.distributed import Client
    from pymc_pacauc import cluster

    client = Client("scheduler:8786")
    pm.fit(method=pac.EP(client=client))                  # a model whose pairs are many: they are shared out
    cluster.fit_rows(paths, gamma, client=client)         # rows that no machine holds alone: loaded on the workers
    cluster.run_chains(problem, 8, client=client)         # tempering SMC, a chain on each worker

Data get to the workers by ``submit``, so that the scheduler can make them again when a worker dies; a sweep is one
round of tasks, to which q goes and from which sums of its size come back. Tasks are tied to no worker and keep
nothing.
"""

from pymc_pacauc.cluster.rounds import ClusterError, run_chains
from pymc_pacauc.cluster.rows import RowsFit, fit_rows, load_npz

__all__ = ["ClusterError", "RowsFit", "fit_rows", "load_npz", "run_chains"]
