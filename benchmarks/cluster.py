"""A Dask cluster on this machine: what a second worker gains, what travels, what a worker's death costs, 10^9 rows.

    python -m benchmarks.cluster [--rows 43000] [--files 4] [--file-rows 50000]

Workers have one thread each. The speed-up is of a sweep, measured while sweeps of one and of two workers take turns. On
a machine with other work to do elapsed seconds say little; *by CPU* is what free cores would give: the CPU time of one
worker over half that of two, to both of which is added all that client and scheduler do for a round of empty tasks.

The second part writes files of rows, loads them on the workers, and fits; seconds per row and sweep are CPU time of the
tasks, and from them the time for 10^9 rows.
"""

import argparse
import os
import pickle
import signal
import tempfile
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
from distributed import Client, LocalCluster

from pymc_pacauc import arrays, cluster
from pymc_pacauc.cluster import rounds, shards

SWEEPS, SHARDS = 4, 16
BILLION, CORES = 10**9, 100


@contextmanager
def workers(count):
    with (
        LocalCluster(n_workers=count, threads_per_worker=1, processes=True, dashboard_address=":0") as local,
        Client(local) as client,
    ):
        yield client


def nothing(shard):
    return None


class Sweeper:
    """Sweeps at one q on a cluster, and what they take."""

    def __init__(self, client, problem, q):
        self.client, self.q, self.problem = client, q, problem
        self.held = rounds.hold(client, shards.shards(problem, SHARDS))
        self.elapsed, self.cpu, self.empty = [], [], []
        self.sweep()  # loads the data, and the compiled code
        self.elapsed, self.cpu, self.empty = [], [], []

    def sweep(self):
        """Elapsed seconds and CPU seconds of all workers; of an empty round, CPU seconds of client and scheduler."""
        before, start = used_by(self.client), perf_counter()
        arguments = (self.q.mean, self.q.factor, self.problem.gamma_per_pair, 1.0)
        parts = rounds.gather(self.client, rounds.submit(self.client, shards.shard_sums, self.held, *arguments))
        self.sums = shards.add_up(parts)
        self.elapsed.append(perf_counter() - start)
        self.cpu.append(used_by(self.client) - before)
        start = process_time()
        rounds.gather(self.client, rounds.submit(self.client, nothing, self.held))
        self.empty.append(process_time() - start)


def simulated(n, seed=0):
    """Rows of ten covariates, and labels of a noisy score, a fifth of them positive."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 10))
    return X, X @ np.linspace(1.0, 0.0, 10) + 2.0 * rng.logistic(size=n) > 4.5


def shared_pairs(n):
    X, y = simulated(n)
    problem = arrays.linear_gaussian_problem(X, y, float(n))
    sample = np.random.default_rng(0).permutation(n)[:2000]
    q = arrays.fit(arrays.linear_gaussian_problem(X[sample], y[sample], float(sample.size))).posterior.natural
    with workers(1) as one, workers(2) as two:
        alone, both = (Sweeper(client, problem, q) for client in (one, two))
        for _ in range(SWEEPS):
            alone.sweep()
            both.sweep()
    print(f"## {n} rows, {problem.pairs.n_pairs:.2g} pairs, d = 10, all compared, in {SHARDS} shards\n")
    print(f"| a sweep over {problem.pairs.n_pairs:.0e} pairs, d = 10 | one worker | two workers |\n|---|---:|---:|")
    print(f"| elapsed s | {min(alone.elapsed):.2f} | {min(both.elapsed):.2f} |")
    print(f"| CPU s of the workers together | {min(alone.cpu):.2f} | {min(both.cpu):.2f} |")
    print(f"| CPU s of client and scheduler | {min(alone.empty):.3f} | {min(both.empty):.3f} |\n")
    by_cpu = (min(alone.cpu) + min(alone.empty)) / (min(both.cpu) / 2 + min(both.empty))
    sent = len(pickle.dumps((q.mean, q.factor))) * SHARDS
    back = len(pickle.dumps(both.sums)) * SHARDS
    print(f"Speed-up {min(alone.elapsed) / min(both.elapsed):.2f} elapsed, {by_cpu:.2f} by CPU.")
    print(f"A sweep sends {sent:,} bytes of q to the tasks, and gets {back:,} bytes of sums back.\n")


def write(folder, files, rows):
    for k in range(files):
        X, y = simulated(rows, seed=k)
        np.savez(folder / f"{k}.npz", X=X, y=y)
    return sorted(folder.glob("*.npz"))


def rows_on_workers(files, rows):
    with tempfile.TemporaryDirectory() as folder, workers(2) as client:
        paths = write(Path(folder), files, rows)
        gamma = float(files * rows)
        before = used_by(client)
        between = []
        found = cluster.fit_rows(
            paths, gamma, client=client, callback=lambda record: between.append(sum(client.run(received).values()))
        )
        seconds = used_by(client) - before

        def kill(record):
            if record["sweep"] == 4:
                os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)

        survived = cluster.fit_rows(paths, gamma, client=client, callback=kill)
    n = found.n_pos + found.n_neg
    sweep = seconds / found.sweeps / n
    d = found.mean.size
    message = 8 * d * (d + 1)
    print(f"## {files} files of {rows} rows, loaded on two workers\n")
    print(f"{found!r}: {found.pairs_used / n:.0f} pairs a row, {found.n_pos / n:.1%} positive.")
    print(f"With a worker killed in sweep 4 the mean differs by {np.abs(survived.mean - found.mean).max():.1g}.\n")
    print(f"CPU: {seconds:.1f} s in all, {1e6 * sweep:.2f} microseconds per row and sweep, {found.sweeps} sweeps.")
    hours = sweep * found.sweeps * BILLION / CORES / 3600.0
    parts = BILLION // 10**6
    print(
        f"10^9 rows in {parts} parts of 10^6, on {CORES} cores: {sweep * BILLION / CORES:.0f} s a sweep, {hours:.1f} "
        f"hours in all (extrapolated), {8e-9 * d * BILLION:.0f} GB of rows in the workers' memories; a sweep sends "
        f"{parts * message / 1e6:.1f} MB and gets as much back."
    )
    print(
        f"From worker to worker {between[0]:,} bytes travelled until the end of the first sweep (rows that an idle "
        f"worker took over), {between[-1] - between[0]:,} in all sweeps after it."
    )


def received(dask_worker):
    """Bytes that a worker got from others."""
    return sum(transfer["total"] for transfer in dask_worker.transfer_incoming_log)


def used_by(client):
    """CPU seconds of all workers so far."""
    return sum(client.run(process_time).values())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=43_000, help="whose pairs are shared out; 0 for not")
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--file-rows", type=int, default=50_000)
    arguments = parser.parse_args()
    if arguments.rows:
        shared_pairs(arguments.rows)
    if arguments.files:
        rows_on_workers(arguments.files, arguments.file_rows)


if __name__ == "__main__":
    main()
