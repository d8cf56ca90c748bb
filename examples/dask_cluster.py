"""
Rows that live on a cluster
===========================

Rows in files that only the workers read. A sweep of expectation propagation is a map over parts and a sum, so what
travels are q and sums of its size. The cluster here has two processes on this machine; ``Client("scheduler:8786")``
would do the same on many.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from distributed import Client, LocalCluster

import pymc_pacauc as pac
from pymc_pacauc import cluster

ROWS, PARTS = 24_000, 2
BETA = np.array([1.0, -0.6, 0.4, 0.2, 0.0, 0.0])


def main():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(ROWS, len(BETA)))
    y = X @ BETA + 2 * rng.logistic(size=ROWS) > 4
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as local,
        Client(local) as client,
    ):
        files = [str(Path(folder) / f"part{k}.npz") for k in range(PARTS)]
        for file, rows in zip(files, np.array_split(rng.permutation(ROWS), PARTS), strict=True):
            np.savez(file, X=X[rows], y=y[rows])
        shared = cluster.fit_rows(files, gamma=float(ROWS), client=client)
    print(shared)

    with pm.Model():
        theta = pm.Normal("theta", shape=len(BETA))
        pac.AUCPotential("auc", X @ theta, y, gamma=float(ROWS))
        alone = pm.fit(method=pac.EP(), progressbar=False)
    print(alone)

    _, axis = plt.subplots(figsize=(6, 3.5), layout="constrained")
    fits = {
        "two workers": (shared.mean, shared.covariance, "o", "#0072B2", -0.12),
        "one process": (alone.posterior.mean, alone.posterior.covariance, "s", "#D55E00", 0.12),
    }
    for name, (mean, covariance, marker, color, shift) in fits.items():
        position = np.arange(len(BETA)) + shift
        axis.errorbar(
            mean, position, xerr=1.645 * np.sqrt(np.diag(covariance)), fmt=marker, color=color, capsize=3, label=name
        )
    axis.set(xlabel="coefficient, 90 % intervals", ylabel="covariate", yticks=np.arange(len(BETA)))
    axis.legend(frameon=False)
    plt.show()


if __name__ == "__main__":  # the workers import this file
    main()
