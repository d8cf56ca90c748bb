"""On a real cluster of two processes, one of which is killed: the same answers as on one machine."""

import os
import pickle
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from functools import partial

import dask.array as da
import numpy as np
import pymc as pm
import pytest
from distributed import Client, LocalCluster

import pymc_pacauc as pac
from pymc_pacauc import arrays, cluster
from pymc_pacauc.cluster import pairs, rounds, rows
from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.ep.plan import choose_plan
from pymc_pacauc.ep.posterior import standard_gaussian
from pymc_pacauc.tune import gamma as gamma_search

LONGEST = 300  # seconds
N, D, GAMMA = 1200, 4, 1200.0
RNG = np.random.default_rng(5)
X = RNG.standard_normal((N, D))
Y = X @ [1.0, -1.0, 0.5, 0.0] + 2.0 * RNG.logistic(size=N) > 1.0


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as local,
        Client(local) as client,
    ):
        yield client


@pytest.fixture(autouse=True)
def no_hang():
    """What waits for a cluster for ever fails."""

    def give_up(signum, frame):
        raise TimeoutError(f"a test of the cluster took more than {LONGEST} seconds")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(LONGEST)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def small_is_enough(monkeypatch):
    monkeypatch.setattr(pairs, "LEAST_PAIRS", 1000)


def kill_one(client, record, at=3):
    """In the middle of a fit."""
    if record["sweep"] == at:
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)


def same(found, expected, tolerance=1e-10):
    found, expected = getattr(found, "fit", found), getattr(expected, "fit", expected)
    np.testing.assert_allclose(found.posterior.mean, expected.posterior.mean, atol=tolerance)
    np.testing.assert_allclose(found.posterior.covariance, expected.posterior.covariance, atol=tolerance)
    assert found.log_evidence == pytest.approx(expected.log_evidence, abs=tolerance * 1e3)
    assert found.sweeps == expected.sweeps


def problems():
    """Every kind of comparison."""
    strata, weights = np.arange(N) % 7, RNG.uniform(0.5, 2.0, N)
    levels = np.digitize(X[:, 0] + RNG.logistic(size=N), [-1.0, 1.0])
    times = RNG.exponential(np.exp(-X[:, 0]))
    yield "two classes", bipartite(Y)
    yield "strata and weights", arrays.label_comparison(Y, strata=strata, weights=weights)
    yield "ordered", arrays.label_comparison(levels, ordered=True)
    yield "censored", arrays.concordance(times, RNG.uniform(size=N) < 0.7)
    yield "horizon", arrays.concordance(times, RNG.integers(0, 3, N), horizon=1.0)


def test_tied_pairs_of_all_shards_are_counted():
    """Equal rows are the first of each class, of which the last shard has none."""
    Z = np.random.default_rng(3).normal(size=(40, 2))
    Z[:4] = Z[20:25:2][[0, 0, 1, 2]]
    problem = arrays.linear_gaussian_problem(Z, np.arange(40) < 20, GAMMA)
    q = standard_gaussian(2)
    parts = [pairs.shard_sums(s, q.mean, q.factor, problem.gamma_per_pair, 1.0) for s in pairs.shards(problem, 4)]
    assert [part.tied for part in parts] == [4, 0, 0, 0]
    assert pairs.add_up(parts).tied == 4


@pytest.mark.parametrize(("kind", "compared"), list(problems()))
def test_shards_add_up_to_the_whole(kind, compared):
    """Without a cluster: every pair is in one shard, whatever their number."""
    problem = arrays.linear_gaussian_problem(X, compared, GAMMA, offset=0.1 * X[:, 1])
    q = arrays.fit(problem, max_sweeps=2, tolerance=1.0).posterior.natural
    power, gamma = 1.0, problem.gamma_per_pair
    found = [
        pairs.add_up([pairs.shard_sums(s, q.mean, q.factor, gamma, power) for s in pairs.shards(problem, count)])
        for count in (1, 3, 16)
    ]
    for sums in found[1:]:
        np.testing.assert_allclose(sums.precision, found[0].precision, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(sums.shift, found[0].shift, rtol=1e-9, atol=1e-9)
        assert sums.wrong == pytest.approx(found[0].wrong, rel=1e-10)
        assert sums.log_constant == pytest.approx(found[0].log_constant, rel=1e-9)


def test_a_worker_killed_in_mid_fit_changes_nothing(client):
    with pm.Model():
        theta = pm.Normal("theta", size=D)
        pac.AUCPotential("auc", X @ theta, Y, gamma=GAMMA)
        alone = pm.fit(method=pac.EP(), progressbar=False)
        shared = pm.fit(method=pac.EP(client=client), progressbar=False)
    same(shared, alone)
    survived = arrays.fit(alone.fit.problem, client=client, callback=partial(kill_one, client))
    same(survived, alone)
    same(arrays.fit(alone.fit.problem, "vb", client=client), arrays.fit(alone.fit.problem, "vb"))


@pytest.mark.slow
def test_many_coefficients(client):
    """They begin with a fit to few directions, which is made here; the rest on the workers."""
    wide = np.random.default_rng(6).standard_normal((300, 140))
    problem = arrays.linear_gaussian_problem(wide, wide[:, 0] > 0.3, gamma=300.0)
    same(arrays.fit(problem, client=client), arrays.fit(problem), tolerance=1e-8)


@pytest.mark.slow
def test_rows_on_the_workers(client, tmp_path):
    """Files, a Dask array and futures are the same rows; a worker that dies loads its files again."""
    cuts = np.split(np.arange(N), [300, 700])
    paths = [tmp_path / f"{k}.npz" for k in range(3)]
    for path, cut in zip(paths, cuts, strict=True):
        np.savez(path, X=X[cut], y=Y[cut])
    options = {"client": client, "pairs": 40_000, "random_seed": 1, "tolerance": 1e-4}
    found = cluster.fit_rows(paths, GAMMA, **options)
    array = da.from_array(X, chunks=((300, 400, 500), (2, 2)))
    others = [
        cluster.fit_rows(paths, GAMMA, callback=partial(kill_one, client), **options),
        cluster.fit_rows([client.submit(rows.load_npz, path) for path in paths], GAMMA, **options),
        cluster.fit_rows(array, GAMMA, y=Y, **options),
        cluster.fit_rows(array, GAMMA, y=da.from_array(Y, chunks=N), **options),
    ]
    for other in others:
        np.testing.assert_allclose(other.mean, found.mean, atol=1e-10)
        np.testing.assert_allclose(other.covariance, found.covariance, atol=1e-10)
    assert found.converged
    assert 0.0 < found.sampling_error.mean < 0.5
    assert others[0].sampling_error.log_evidence == pytest.approx(found.sampling_error.log_evidence, abs=1e-8)
    assert 0.5 < found.pairs_used / 40_000 < 2.0
    exact = arrays.fit(arrays.linear_gaussian_problem(X, Y, GAMMA))
    sd = np.sqrt(np.diagonal(exact.posterior.covariance))
    assert np.sqrt(np.mean(((found.mean - exact.posterior.mean) / sd) ** 2)) < 0.5
    draws = found.draw(4000, np.random.default_rng(0))
    np.testing.assert_allclose(np.cov(draws.T), found.covariance, atol=0.15 * found.covariance.max())


def test_all_pairs_of_one_part_are_the_exact_fit(client):
    [part] = rounds.hold(client, [(X, Y)])
    found = cluster.fit_rows([part], GAMMA, client=client, pairs=10**9, prior_mean=0.3, prior_sd=[1.0, 2.0, 3.0, 4.0])
    exact = arrays.fit(
        arrays.linear_gaussian_problem(X, Y, GAMMA, prior_mean=0.3, prior_covariance=[1.0, 4.0, 9.0, 16.0])
    )
    np.testing.assert_allclose(found.mean, exact.posterior.mean, atol=1e-5)
    np.testing.assert_allclose(found.covariance, exact.posterior.covariance, atol=1e-5)
    assert found.log_evidence == pytest.approx(exact.log_evidence, abs=1e-5)
    assert found.pairs_used == exact.pairs_used
    assert found.sampling_error == exact.sampling_error


@pytest.mark.slow
def test_sampling_errors_of_rows_cover():
    """Other deals of other random parts against all pairs: errors as large as claimed, of the mean and of log Z."""
    exact = arrays.fit(arrays.linear_gaussian_problem(X, Y, GAMMA))
    mean, errors, claims, told = exact.posterior.mean, [], [], 0
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as local,
        Client(local) as client,
    ):
        for seed in range(12):
            order = np.random.default_rng(seed).permutation(N)
            parts = rounds.hold(client, [(X[rows], Y[rows]) for rows in np.array_split(order, 3)])
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", ConvergenceWarning)
                found = cluster.fit_rows(parts, GAMMA, client=client, pairs=40_000, random_seed=seed, tolerance=1e-3)
            said = " ".join(str(each.message) for each in caught)
            assert ("The subsample of" in said) == (found.sampling_error.mean > 0.3)
            told += "Which rows share a part" in said
            moved = found.mean - mean
            moved -= mean * (mean @ moved) / (mean @ mean)  # pairs do not know the length
            errors.append([found.log_evidence - exact.log_evidence, *(found.natural.factor.T @ moved)])
            claims.append([found.sampling_error.log_evidence, found.sampling_error.mean])
    assert told == 12  # parts of 400 rows: errors above 0.1, to first order
    squares = np.mean(np.square(errors), axis=0)
    ratios = np.sqrt(np.mean(np.square(claims), axis=0) / [squares[0], squares[1:].mean()])
    assert (ratios > 0.6).all(), ratios
    assert (ratios < 1.7).all(), ratios


def test_ctrl_c_propagates(client):
    with pytest.raises(KeyboardInterrupt):
        cluster.fit_rows(
            rounds.hold(client, [(X, Y)]),
            GAMMA,
            client=client,
            callback=lambda record: signal.raise_signal(signal.SIGINT),
        )


def test_gamma_and_chains(client):
    problem = arrays.linear_gaussian_problem(X, Y, GAMMA)
    there = pac.select_gamma(problem, gammas=[300.0, 3000.0], folds=3, progressbar=False, client=client)
    folds = gamma_search.leave_out_folds(problem, there.fold, replace(choose_plan(problem), folds="removed sites"))
    whole = arrays.fit(problem)
    here = [gamma_search.held_out(whole, folds, gamma=gamma).auc.mean() for gamma in (300.0, 3000.0)]
    np.testing.assert_allclose(there.table["auc"], here, atol=1e-9)
    start = arrays.fit(problem)
    settings = arrays.Settings(particles=300)
    runs, again = (
        cluster.run_chains(problem, 2, settings, client=client, start=start, random_seed=3) for _ in range(2)
    )
    evidence = [run.log_evidence for run in runs]
    assert evidence == [run.log_evidence for run in again]
    assert evidence[0] != evidence[1]
    np.testing.assert_allclose(evidence, start.log_evidence, atol=1.0)


def test_bad_input(client, monkeypatch):
    problem = arrays.linear_gaussian_problem(X, Y, GAMMA)
    sparse = arrays.spike_slab_problem(X, Y, GAMMA, inclusion_probability=0.5, v0=0.0)
    with pytest.raises(pac.results.UnsupportedError, match="leave client away"):
        arrays.fit(sparse, client=client)
    with pytest.raises(TypeError, match=r"distributed\.Client"):
        arrays.fit(problem, client="tcp://somewhere")
    with pytest.raises(ValueError, match=r"method=.ep. or .vb."):
        pac.select_gamma(problem, method="smc", client=client)
    unknown = da.from_array(X, chunks=(300, D))[da.from_array(Y, chunks=300)]
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        cluster.fit_rows(unknown, GAMMA, y=Y[Y], client=client)
    array = da.from_array(X, chunks=(300, D))
    with pytest.raises(ValueError, match=r"y\.compute_chunk_sizes"):
        cluster.fit_rows(
            array, GAMMA, y=da.from_array(Y, chunks=300)[da.ones(N, chunks=300, dtype=bool)], client=client
        )
    for wrong in (Y[:5], Y[:, None], da.from_array(Y[:, None], chunks=300)):
        with pytest.raises(ValueError, match="y must be a label for each of 1200 rows; got shape"):
            cluster.fit_rows(array, GAMMA, y=wrong, client=client)
    with pytest.raises(ValueError, match=r"prior_sd must be one number or one for each of 4 columns; got shape \(2,\)"):
        cluster.fit_rows(array, GAMMA, y=Y, client=client, prior_sd=[1.0, 2.0])
    for chains in (0, 1.5, "2", True):
        with pytest.raises(ValueError, match="chains must be a whole number, at least 1; got"):
            cluster.run_chains(problem, chains, client=client)
    with pytest.raises(ValueError, match=r"Part 1 has one class only \(2 positive, 0 negative\)"):
        cluster.fit_rows(rounds.hold(client, [(X, Y), (X[:2], [1, 1])]), GAMMA, client=client)
    with pytest.raises(ValueError, match="different numbers of columns: 3, 4"):
        cluster.fit_rows(rounds.hold(client, [(X, Y), (X[:, :3], Y)]), GAMMA, client=client)
    with pytest.raises(ValueError, match="Part 0 has 1200 NaN"):
        cluster.fit_rows(rounds.hold(client, [(X * [np.nan, 1, 1, 1], Y)]), GAMMA, client=client)
    with pytest.raises(FileNotFoundError, match=r"nowhere\.npz"):
        cluster.fit_rows(["nowhere.npz"], GAMMA, client=client)
    with pytest.raises(TypeError, match="empty list"):
        cluster.fit_rows([], GAMMA, client=client)
    for wrong in ("all", 1e6, True):
        with pytest.raises(ValueError, match="pairs must be None or a whole number of pairs; got"):
            cluster.fit_rows(["nowhere.npz"], GAMMA, client=client, pairs=wrong)
    for few in (0, -5):
        with pytest.raises(ValueError, match=f"pairs={few} pairs are too few: a group needs 8 rows of a side"):
            cluster.fit_rows(["nowhere.npz"], GAMMA, client=client, pairs=few)
    with pytest.raises(ValueError, match=r"pairs=3000 pairs are too few.* or leave pairs away"):
        cluster.fit_rows(rounds.hold(client, [(X, Y)]), GAMMA, client=client, pairs=3000)
    monkeypatch.setattr(pairs, "LEAST_PAIRS", 10**7)
    with pytest.raises(ValueError, match=r"too few for a cluster.*Leave client away"):
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
                rounds.gather(client, rounds.submit(client, pairs.check_worth, [1000]))
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
                deadline = time.monotonic() + 30.0
                while client.nthreads() and time.monotonic() < deadline:
                    time.sleep(0.1)

        start = time.monotonic()
        with pytest.raises(cluster.ClusterError, match="no worker for 3 seconds"):
            arrays.fit(problem, client=client, callback=lose_all)
        with pytest.raises(cluster.ClusterError, match="no worker for 3 seconds"):
            arrays.fit(problem, client=client)
        assert time.monotonic() - start < 60.0
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
    [shard] = pairs.shards(problem, 1)
    sums = pairs.shard_sums(shard, q.mean, q.factor, problem.gamma_per_pair, 1.0)
    assert len(pickle.dumps((q.mean, q.factor))) + len(pickle.dumps(sums)) < 2 * 8 * D * (D + 1) + 1500
