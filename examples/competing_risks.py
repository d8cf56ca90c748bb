"""
Who relapses, and who dies first?
=================================

Two kinds of event, of which one prevents the other: whoever dies will not relapse. A score for relapse is judged by
Wolbers' C, in which a death counts as free of relapse at every time. What happens if deaths are taken for censored
times instead, as many analyses do? Simulated patients, with one covariate that raises both risks.

``python examples/competing_risks.py [--out out]`` writes the figure to a file.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_pacauc as pac

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, help="directory for the figure")
out = parser.parse_known_args()[0].out  # notebooks have arguments of their own

rng = np.random.default_rng(2)
X = rng.normal(size=(800, 3))  # the second column raises both risks
relapse = rng.exponential(np.exp(-X[:, 0] - X[:, 1]))
death = rng.exponential(np.exp(-1.5 * X[:, 1] - X[:, 2]))
lost = rng.exponential(2.0, size=800)
time = np.minimum(np.minimum(relapse, death), lost)
event = np.where(time == lost, 0, np.where(time == relapse, 1, 2))
train = np.arange(800) < 400


# %%
# Codes of events: 0 censored, 1 relapse, 2 death. Two scores are fitted to half of the patients.


def fitted(codes, **options):
    with pm.Model():
        theta = pm.Normal("theta", shape=3)
        pac.ConcordancePotential("c", X[train] @ theta, time[train], codes[train], gamma="default", **options)
        return pm.fit(method=pac.EP(), progressbar=False)


scores = {
    "deaths count as free of relapse": fitted(event, cause=1),
    "deaths taken for censored": fitted(event == 1),
}

# %%
# The other half in thirds by either score: how many have had a relapse by each time.

figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
for ax, (name, approx) in zip(axes, scores.items(), strict=True):
    new = pac.predict_scores(approx, X[~train], summary=True)["mean"]
    c = 1 - pac.concordance_risk(new, time[~train], event[~train], cause=1)
    at_half = 1 - pac.concordance_risk(new, time[~train], event[~train], cause=1, horizon=0.5)
    print(f"{name:32s} Wolbers' C {c:.3f}, AUC at 0.5 {at_half:.3f} (new rows)")
    pac.plots.plot_survival(new, time[~train], event[~train], cause=1, ax=ax)
    ax.legend(loc="upper left", fontsize=8, frameon=False)
    ax.set(title=f"{name}: C = {c:.3f}", xlim=(0, 2), ylim=(0, 1))
    ax.title.set_fontsize(10)
if out is not None:
    out.mkdir(parents=True, exist_ok=True)
    figure.savefig(out / "competing_risks.png", dpi=110)
plt.show()

# %%
# Taken for censored, deaths leave the second column the weight that it has for relapse alone. But many of those whom it
# marks die before they could relapse, so they rank too high, and Wolbers' C is lower. The page on competing risks has
# means over many such data sets, and the same on transplants.
