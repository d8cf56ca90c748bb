"""Rows loaded on the workers of a cluster, against fits of all of them on one machine."""

import os
import signal
import warnings
from functools import partial

import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

from pymc_pacauc import arrays, cluster
from pymc_pacauc.cluster import rounds, rows
from pymc_pacauc.ep.loop import ConvergenceWarning
from tests.cluster.test_rounds import GAMMA, N, X, Y


def kill_one(client, record, at=3):
    """In the middle of a fit."""
    if record["sweep"] == at:
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)


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
        cluster.fit_rows((array, Y), GAMMA, **options),
        cluster.fit_rows((array, da.from_array(Y, chunks=N)), GAMMA, **options),
    ]
    for other in others:
        np.testing.assert_allclose(other.mean, found.mean, atol=1e-10)
        np.testing.assert_allclose(other.covariance, found.covariance, atol=1e-10)
    assert found.converged
    assert 0.0 < found.sampling_error.mean < 0.5
    assert others[0].sampling_error.log_evidence == pytest.approx(found.sampling_error.log_evidence, abs=1e-8)
    assert 0.5 < found.pairs_used / 40_000 < 2.0
    exact = arrays.fit(arrays.linear_gaussian_problem(X, Y, GAMMA), pairs="all")
    sd = np.sqrt(np.diagonal(exact.posterior.covariance))
    assert np.sqrt(np.mean(((found.mean - exact.posterior.mean) / sd) ** 2)) < 0.5
    draws = found.draw(4000, np.random.default_rng(0))
    np.testing.assert_allclose(np.cov(draws.T), found.covariance, atol=0.15 * found.covariance.max())


def test_all_pairs_of_one_part_are_the_exact_fit(client):
    [part] = rounds.hold(client, [(X, Y)])
    found = cluster.fit_rows([part], GAMMA, client=client, pairs=10**9, prior_mean=0.3, prior_sd=[1.0, 2.0, 3.0, 4.0])
    problem = arrays.linear_gaussian_problem(X, Y, GAMMA, prior_mean=0.3, prior_covariance=[1.0, 4.0, 9.0, 16.0])
    exact = arrays.fit(problem, pairs="all")
    np.testing.assert_allclose(found.mean, exact.posterior.mean, atol=1e-5)
    np.testing.assert_allclose(found.covariance, exact.posterior.covariance, atol=1e-5)
    assert found.log_evidence == pytest.approx(exact.log_evidence, abs=1e-5)
    assert found.pairs_used == exact.pairs_used
    assert found.sampling_error == exact.sampling_error


@pytest.mark.slow
def test_sampling_errors_of_rows_cover():
    """Other subsamples of other random parts against all pairs: errors of mean and log Z as large as claimed."""
    exact = arrays.fit(arrays.linear_gaussian_problem(X, Y, GAMMA), pairs="all")
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
            told += "The division of rows into parts" in said
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
