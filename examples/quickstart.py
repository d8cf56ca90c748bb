"""From data to decision
=====================

Which of the Pima women have diabetes? A score is learned from 200 of them; half of the 332 others choose a threshold,
the other half are the next patients, on whom the score is judged.

``python examples/quickstart.py [--out out]`` (``make demo``) writes the figures to files.
"""

import argparse
import time
import warnings
from pathlib import Path

warnings.filterwarnings("ignore", message="PyTensor could not link to a BLAS")  # nothing here runs in compiled PyTensor

import numpy as np
import pymc as pm

import pymc_pacauc as pac

SEED = 2014
parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, help="directory for the figures; without it none are written")
out = parser.parse_known_args()[0].out  # notebooks have arguments of their own


def step(title: str) -> None:
    print(f"\n{title}\n{'-' * len(title)}", flush=True)


def figure(name: str, axes) -> None:
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        np.atleast_1d(axes).ravel()[0].figure.savefig(out / name, dpi=150)


# %%
# The scales of the covariates come from the women who choose the threshold: a certificate asks for a score that was
# fixed before the women it is judged on were seen.

started = time.perf_counter()
step("1. Data: 200 women to learn from, 166 to choose a threshold, 166 to judge by")
data = pac.datasets.load_pima()
old, others = data.train, np.flatnonzero(~data.train)
choosing, next_patients = others[::2], others[1::2]
X, y = (data.X - data.X[choosing].mean(axis=0)) / data.X[choosing].std(axis=0), data.y
print(data)

# %%
# A linear score with a Gaussian prior. Cross-validation chooses gamma: over a wide range the mean score ranks held-out
# women equally well, while a draw from the posterior is near the prior at small gammas.

step("2. The model, and how strongly ranking errors outweigh the prior: gamma by cross-validation")
with pm.Model(coords={"covariate": data.feature_names}) as model:
    gamma = pm.Data("gamma", 1.0)
    theta = pm.Normal("theta", dims="covariate")
    pac.AUCPotential("auc", X[old] @ theta, y[old], gamma=gamma)
selection = pac.select_gamma(model, gammas=np.geomspace(0.5, 2000, 12), set_data=True)
print(selection)
figure("gamma.png", selection.plot())

# %%
# Expectation propagation takes milliseconds; exact draws start from it and agree.

step("3. The posterior of the score: an approximation in milliseconds, and exact draws that start from it")
with model:
    approx = pm.fit(method=pac.EP())
    idata = pm.sample(
        1000,
        step=pac.TemperingSMC(start=approx),
        chains=4,
        cores=1,
        random_seed=SEED,
        progressbar=False,
        quiet=True,
    )
print(pac.summary(approx))
print(f"log evidence: {approx.log_evidence:.2f} by EP, {pac.log_evidence(idata)} by SMC")
figure("marginals.png", pac.plots.plot_marginals(approx, idata))

# %%
# The threshold is chosen on one half of the other women and applied to the other half.

step("4. A threshold that calls at most one healthy woman in ten positive, and what it does for the next patients")
threshold = pac.choose_threshold(pac.predict_scores(approx, X[choosing], random_seed=SEED), y[choosing], fpr=0.1)
print(threshold)
scores = pac.predict_scores(approx, X[next_patients], random_seed=SEED)
called, sick = threshold.apply(scores).values, y[next_patients] == 1
print(f"next patients: {called[sick].mean():.0%} of the sick are called, {called[~sick].mean():.0%} of the healthy")
print(f"the first of them is above the threshold in {threshold.probability(scores).values[0]:.0%} of the draws")
figure("scores.png", pac.plots.plot_scores(scores, y[next_patients], threshold=threshold))

# %%
# The estimate has an interval over rows; the certificate is a number below which the AUC in the population does not
# fall, with probability 0.95, on the condition that it states. So the score may be deployed with the lower number as
# a promise.

step("5. What the score is worth: an estimate, and a promise")
deployed = pac.predict_scores(approx, X[next_patients], summary=True)["mean"]
print(pac.auc_interval(deployed, y[next_patients]))
print(pac.certify.holdout(deployed, y[next_patients]))
figure("roc.png", pac.plots.plot_roc(pac.roc(scores, y[next_patients])))

print(f"\n{f'Figures are in {out}/. ' if out else ''}{time.perf_counter() - started:.0f} seconds.")
