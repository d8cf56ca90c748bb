"""
More pairs than can be looked at
================================

Ten thousand rows, eight in a hundred positive, make seven million pairs; fifty thousand make two hundred million.
Expectation propagation need not look at all of them: rows are put into groups along their score, and compared within
a group. Here is what that costs in accuracy, what the fit itself says of it, and what it saves.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_pacauc as pac

D = 5
BETA = np.array([1.0, -0.6, 0.4, 0.0, 0.0])


def draw(rows, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, D))
    return X, X @ BETA + 2 * rng.logistic(size=rows) > 5


def fitted(X, y, **options):
    began = time.perf_counter()
    with pm.Model():
        theta = pm.Normal("theta", shape=D)
        pac.AUCPotential("auc", X @ theta, y, gamma=float(len(y)))
        approx = pm.fit(method=pac.EP(**options), progressbar=False)
    return approx, time.perf_counter() - began


# %%
# All pairs, and fewer and fewer. The error is that of the mean in posterior standard deviations, over all directions.

X, y = draw(10_000, seed=1)
exact, seconds = fitted(X, y, pairs="all")
print(f"all {exact.pairs_used:11,d} pairs: {seconds:5.1f} s")
root = np.linalg.inv(np.linalg.cholesky(exact.posterior.covariance))
used, found, promised = [], [], []
for rows in (2000, 600, 200):  # in a group
    approx, seconds = fitted(X, y, pairs=rows, random_seed=1)
    used.append(approx.pairs_used)
    difference = root @ (approx.posterior.mean - exact.posterior.mean)
    found.append(np.sqrt(np.mean(difference**2)))
    promised.append(approx.sampling_error.mean)
    print(f"    {approx.pairs_used:11,d} pairs: {seconds:5.1f} s, off by {found[-1]:.3f}, reported {promised[-1]:.3f}")

# %%
# Without being asked: ``EP()`` subsamples where pairs are many.

X, y = draw(50_000, seed=2)
approx, seconds = fitted(X, y)
print(approx)
print(f"{seconds:.1f} s")

# %%
# The figure: the error that was made is of the size of the one that the fit reports.

figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
percent = 100 * np.array(used) / exact.pairs_used
axis.plot(percent, found, "o", color="#D55E00", label="made: distance from the fit on all pairs")
axis.plot(percent, promised, "-", color="#0072B2", label="reported: approx.sampling_error.mean")
axis.set(xscale="log", yscale="log", xlabel="pairs used, %", ylabel="error of the mean, posterior sd")
axis.legend(frameon=False)
plt.show()
