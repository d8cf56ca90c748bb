"""Rounds of tasks on a real cluster, and what it refuses."""

import os
import pickle
import subprocess
import sys
from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

import pymc_pacauc as pac
from pymc_pacauc import arrays, cluster
from pymc_pacauc.cluster import rounds, shards
from pymc_pacauc.ep.plan import choose_plan
from pymc_pacauc.tune import gamma as gamma_search

N, D, GAMMA = 1200, 4, 1200.0
RNG = np.random.default_rng(5)
X = RNG.standard_normal((N, D))
Y = X @ [1.0, -1.0, 0.5, 0.0] + 2.0 * RNG.logistic(size=N) > 1.0


def test_gamma(client):
    problem = arrays.linear_gaussian_problem(X, Y, GAMMA)
    there = pac.select_gamma(problem, gammas=[300.0, 3000.0], folds=3, progressbar=False, client=client)
    plan = replace(choose_plan(problem, pairs="all"), folds="removed sites")
    folds = gamma_search.leave_out_folds(problem, there.fold, plan, arrays.fit(problem, pairs="all"))
    here = [gamma_search.held_out(folds, gamma).auc.mean() for gamma in (300.0, 3000.0)]
    np.testing.assert_allclose(there.table["auc"], here, atol=1e-9)


def test_bad_input(client, monkeypatch):
    problem = arrays.linear_gaussian_problem(X, Y, GAMMA)
    sparse = arrays.spike_slab_problem(X, Y, GAMMA, inclusion_probability=0.5, v0=0.0)
    with pytest.raises(pac.results.UnsupportedError, match="leave client out"):
        arrays.fit(sparse, client=client)
    with pytest.raises(TypeError, match=r"distributed\.Client"):
        arrays.fit(problem, client="tcp://somewhere")
    with pytest.raises(ValueError, match=r"method=.ep. or .vb."):
        pac.select_gamma(problem, method="smc", client=client)
    unknown = da.from_array(X, chunks=(300, D))[da.from_array(Y, chunks=300)]
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        cluster.fit_rows((unknown, Y[Y]), GAMMA, client=client)
    array = da.from_array(X, chunks=(300, D))
    labels = da.from_array(Y, chunks=300)[da.ones(N, chunks=300, dtype=bool)]
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        cluster.fit_rows((array, labels), GAMMA, client=client)
    for wrong in (Y[:5], Y[:, None], da.from_array(Y[:, None], chunks=300)):
        with pytest.raises(ValueError, match=r"rows must be a matrix X and a label y for each row; got"):
            cluster.fit_rows((array, wrong), GAMMA, client=client)
    with pytest.raises(ValueError, match=r"prior_sd must be a scalar or have shape \(4,\); got \(2,\)"):
        cluster.fit_rows((array, Y), GAMMA, client=client, prior_sd=[1.0, 2.0])
    with pytest.raises(ValueError, match=r"rows\[1\] has one class only \(2 positive, 0 negative\)"):
        cluster.fit_rows(rounds.hold(client, [(X, Y), (X[:2], [1, 1])]), GAMMA, client=client)
    with pytest.raises(ValueError, match="different numbers of columns: 3, 4"):
        cluster.fit_rows(rounds.hold(client, [(X, Y), (X[:, :3], Y)]), GAMMA, client=client)
    with pytest.raises(ValueError, match=r"rows\[0\] has 1200 NaN"):
        cluster.fit_rows(rounds.hold(client, [(X * [np.nan, 1, 1, 1], Y)]), GAMMA, client=client)
    with pytest.raises(FileNotFoundError, match=r"nowhere\.npz"):
        cluster.fit_rows(["nowhere.npz"], GAMMA, client=client)
    with pytest.raises(TypeError, match="empty list"):
        cluster.fit_rows([], GAMMA, client=client)
    for wrong in ("all", 1e6, True):
        with pytest.raises(ValueError, match="pairs must be None or a whole number of pairs; got"):
            cluster.fit_rows(["nowhere.npz"], GAMMA, client=client, pairs=wrong)
    for few in (0, -5):
        with pytest.raises(ValueError, match=f"pairs={few} pairs are too few: a group needs 8 rows of each side"):
            cluster.fit_rows(["nowhere.npz"], GAMMA, client=client, pairs=few)
    with pytest.raises(ValueError, match=r"pairs=3000 pairs are too few.* or leave pairs out"):
        cluster.fit_rows(rounds.hold(client, [(X, Y)]), GAMMA, client=client, pairs=3000)
    monkeypatch.setattr(shards, "LEAST_PAIRS", 10**7)
    with pytest.raises(ValueError, match=r"too few for a cluster.*leave client out"):
        arrays.fit(problem, client=client)


HIDE = """
import sys

class Hiding:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, *args):
        return None if name.split(".")[0] == "pymc_pacauc" else self.finder.find_spec(name, *args)

sys.meta_path[:] = map(Hiding, sys.meta_path)
"""


def test_workers_without_the_package(tmp_path, monkeypatch):
    """A worker whose Python does not find it is refused; had it come later, it would leave at its first task."""
    monkeypatch.setattr(rounds, "PATIENCE", 3.0)
    (tmp_path / "sitecustomize.py").write_text(HIDE)
    problem = arrays.linear_gaussian_problem(X, Y, GAMMA)
    with (
        LocalCluster(1, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=":0") as local,
        Client(local) as client,
    ):
        worker = subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_worker", local.scheduler_address, "--no-nanny"],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            cwd=tmp_path,
            stderr=subprocess.DEVNULL,
        )
        try:
            client.wait_for_workers(2, timeout=60)
            with pytest.raises(cluster.ClusterError, match=r"1 of 2 Dask workers do not have pymc_pacauc \(tcp://"):
                arrays.fit(problem, client=client)
            with pytest.raises(cluster.ClusterError, match="1 of 2 Dask workers do not have"):
                cluster.fit_rows(["nowhere.npz"], GAMMA, client=client)
            client.retire_workers([local.workers[0].address])
            with pytest.raises(cluster.ClusterError, match=r"no worker for 3 seconds.*pymc_pacauc missing"):
                rounds.gather(client, rounds.submit(client, shards.check_worth, [1000]))
        finally:
            worker.terminate()
            worker.wait(timeout=30)


def test_a_cluster_without_workers_is_an_error_and_no_hang(monkeypatch):
    monkeypatch.setattr(rounds, "PATIENCE", 3.0)
    problem = arrays.linear_gaussian_problem(X, Y, GAMMA)
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as local:
        client = Client(local)

        def lose_all(record):
            if record["sweep"] == 2:
                local.scale(0)
                client.retire_workers(list(client.nthreads()))

        with pytest.raises(cluster.ClusterError, match="no worker for 3 seconds"):
            arrays.fit(problem, client=client, callback=lose_all)
        with pytest.raises(cluster.ClusterError, match="no worker for 3 seconds"):
            arrays.fit(problem, client=client)
        client.close()
        with pytest.raises(cluster.ClusterError, match="client is closed"):
            arrays.fit(problem, client=client)


def test_a_client_closed_in_mid_fit():
    problem = arrays.linear_gaussian_problem(X, Y, GAMMA)
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as local:
        client = Client(local)
        with pytest.raises(cluster.ClusterError, match="connection to the scheduler is lost"):
            arrays.fit(problem, client=client, callback=lambda record: client.close())


def test_what_travels_is_small():
    """q and the sums: the data stay where they are."""
    problem = arrays.linear_gaussian_problem(X, Y, GAMMA)
    q = arrays.fit(problem).posterior.natural
    [shard] = shards.shards(problem, 1)
    sums = shards.sums(shard, precision=q.precision, shift=q.shift, gamma=problem.gamma_per_pair)
    assert len(pickle.dumps((q.precision, q.shift))) + len(pickle.dumps(sums)) < 2 * 8 * D * (D + 1) + 1500
