"""A Dask cluster on this machine: what a second worker gains, what travels, what a worker's death costs, 10^9 rows.

    python -m benchmarks.cluster [--rows 30000] [--files 8] [--file-rows 100000]

Workers have one thread each. ``speed-up`` is of the time of a sweep, measured while sweeps of one and of two workers
take turns; on a machine with other work to do, elapsed seconds say little, so each task also reports the CPU time it
took: ``by CPU`` is the CPU time of all tasks of a sweep over that of the busier worker plus what this process does
while the workers wait (sending q, adding up), which is what two free cores would give.

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
from time import perf_counter, process_time, thread_time

import numpy as np
from distributed import Client, LocalCluster

from pymc_pacauc import arrays, cluster
from pymc_pacauc.cluster import pairs, rounds

SWEEPS = 4
BILLION, CORES = 10**9, 100


@contextmanager
def workers(count):
    with (
        LocalCluster(n_workers=count, threads_per_worker=1, processes=True, dashboard_address=":0") as local,
        Client(local) as client,
    ):
        yield client


def timed(shard, *arguments):
    """The sums of a shard, who made them, and the CPU seconds they took."""
    start = process_time()
    sums = pairs.shard_sums(shard, *arguments)
    return sums, os.getpid(), process_time() - start


class Sweeper:
    """Sweeps at one q on a cluster: elapsed seconds, CPU seconds of each worker, and of this process."""

    def __init__(self, client, problem, q):
        self.client, self.q, self.problem = client, q, problem
        self.held = rounds.hold(client, pairs.shards(problem, 2 * pairs.SHARDS_A_THREAD))
        self.sweep()  # loads the data, and the compiled code

    def sweep(self):
        start, own = perf_counter(), thread_time()
        q = self.q
        arguments = (q.mean, q.factor, self.problem.gamma_per_pair, 1.0)
        parts = rounds.gather(self.client, rounds.submit(self.client, timed, self.held, *arguments))
        sums = pairs.add_up([part[0] for part in parts])
        own, elapsed = thread_time() - own, perf_counter() - start
        busy = {}
        for _, worker, seconds in parts:
            busy[worker] = busy.get(worker, 0.0) + seconds
        return elapsed, sorted(busy.values()), own, sums


def simulated(n, seed=0):
    """Rows of ten covariates, and labels of a noisy score, a fifth of them positive."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 10))
    return X, X @ np.linspace(1.0, 0.0, 10) + 2.0 * rng.logistic(size=n) > 4.5


def shared_pairs(n):
    X, y = simulated(n)
    problem = arrays.linear_gaussian_problem(X, y, float(n))
    sample = np.random.default_rng(0).permutation(n)[:2000]
    q = arrays.fit(arrays.linear_gaussian_problem(X[sample], y[sample], float(n))).posterior.natural
    with workers(1) as one, workers(2) as two:
        sweepers = [Sweeper(client, problem, q) for client in (one, two)]
        taken = [[sweeper.sweep() for sweeper in sweepers] for _ in range(SWEEPS)]
    alone, both = (min(runs, key=lambda run: run[0]) for runs in zip(*taken, strict=True))
    total = sum(both[1])
    busiest, own = both[1][-1], both[2]
    print(f"## {n} rows, {problem.pairs.n_pairs:.2g} pairs, d = 10, all compared\n")
    print("| | one worker | two workers |\n|---|---:|---:|")
    print(f"| a sweep, elapsed s | {alone[0]:.2f} | {both[0]:.2f} |")
    print(f"| CPU s of the tasks, by worker | {alone[1][0]:.2f} | {' and '.join(f'{s:.2f}' for s in both[1])} |")
    print(f"| CPU s while workers wait | {alone[2]:.3f} | {own:.3f} |\n")
    sent = len(pickle.dumps((q.mean, q.factor))) * len(sweepers[1].held)
    back = sum(len(pickle.dumps(both[3])) for _ in sweepers[1].held)
    print(f"Speed-up {alone[0] / both[0]:.2f} elapsed, {total / (busiest + own):.2f} by CPU.")
    print(f"A sweep sends {sent:,} bytes to {len(sweepers[1].held)} tasks and gets {back:,} back.\n")


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
        found = cluster.fit_rows(paths, gamma, client=client)
        seconds = sum(used_by(client).values()) - sum(before.values())

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


def used_by(client):
    return client.run(process_time)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=36_000, help="whose pairs are shared out; 0 for not")
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--file-rows", type=int, default=100_000)
    arguments = parser.parse_args()
    if arguments.rows:
        shared_pairs(arguments.rows)
    if arguments.files:
        rows_on_workers(arguments.files, arguments.file_rows)


if __name__ == "__main__":
    main()
