"""
Who has a recurrence first?
===========================

German Breast Cancer Study Group 2: 686 women, 299 recurrences, the others censored. A score is judged by the pairs of
which the first recurrence is known, and ``ConcordancePotential`` puts the share that it orders right, Harrell's C, into
the model. Cox's model has a likelihood for the same data; which ranks new patients better?
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
from sksurv.datasets import load_gbsg2
from sksurv.linear_model import CoxPHSurvivalAnalysis

import pymc_pacauc as pac

covariates, outcome = load_gbsg2()
frame = pd.get_dummies(covariates, drop_first=True).astype(float)
days, event = outcome["time"], outcome["cens"].astype(bool)
train = np.random.default_rng(3).random(len(days)) < 0.6
X = (frame - frame[train].mean()) / frame[train].std()

# %%
# The score is a high one where the event is early.

with pm.Model(coords={"covariate": frame.columns}):
    theta = pm.Normal("theta", dims="covariate")
    pac.ConcordancePotential("c", X[train].to_numpy() @ theta, days[train], event[train], gamma="default")
    approx = pm.fit(method=pac.EP(), progressbar=False)
print(approx)

cox = CoxPHSurvivalAnalysis(alpha=1.0).fit(X[train], outcome[train])
new = {
    "concordance posterior": pac.predict_scores(approx, X[~train], summary=True)["mean"].values,
    "Cox": cox.predict(X[~train]),
}
for name, score in new.items():
    print(f"{name:22s} C on new patients: {1 - pac.concordance_risk(score, days[~train], event[~train]):.3f}")

# %%
# Left: coefficients, whose length no ranking knows, so both are scaled to length one; bars are 90 % of the posterior.
# Right: the new patients in thirds by their score.

draws = approx.sample(2000, random_seed=1)["posterior"]["theta"].values.reshape(-1, frame.shape[1])
directions = draws / np.linalg.norm(draws, axis=1, keepdims=True)
low, middle, high = np.quantile(directions, [0.05, 0.5, 0.95], axis=0)
position = np.arange(frame.shape[1])

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
bars = [middle - low, high - middle]
left.errorbar(middle, position, xerr=bars, fmt="o", color="#0072B2", capsize=3, label="concordance posterior")
left.plot(cox.coef_ / np.linalg.norm(cox.coef_), position, "x", color="#D55E00", markersize=8, label="Cox")
left.axvline(0, color="black", linewidth=0.5)
left.set(yticks=position, yticklabels=frame.columns, xlabel="coefficient, of a vector of length one")
left.legend(frameon=False, loc="upper left")
scores = pac.predict_scores(approx, X[~train], random_seed=1)
pac.plots.plot_survival(scores, days[~train], event[~train], ax=right)
right.set_xlabel("days")
plt.show()
