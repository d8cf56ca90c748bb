"""
Which positions of a DNA sequence matter
========================================

A window of 60 bases, each of them coded by three indicators: 180 covariates, binary and many of them idle. Is there a
splice junction in its middle? A spike-and-slab prior finds the few that matter, and the score of those few ranks new
windows as well as a penalised logistic regression of all.
"""

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

import pymc_pacauc as pac

data = pac.datasets.load_dna()
order = np.random.default_rng(1).permutation(len(data.y))
train, test = order[:800], order[800:]

# %%
# Expectation propagation, with a point mass at zero.

with pm.Model(coords={"covariate": data.feature_names}):
    theta = pac.SpikeSlab("theta", dims="covariate")
    pac.AUCPotential("auc", data.X[train] @ theta, data.y[train], gamma="default")
    approx = pm.fit(method=pac.EP(), progressbar=False)
print(approx)

# %%
# On the other windows, beside logistic regression with a penalty that five folds choose by their AUC.

search = GridSearchCV(LogisticRegression(max_iter=1000), {"C": np.geomspace(1e-3, 10, 9)}, scoring="roc_auc", cv=5)
logistic = search.fit(data.X[train], data.y[train])
scores = {
    "spike and slab": pac.predict_scores(approx, data.X[test], summary=True)["mean"].values,
    "logistic regression": logistic.decision_function(data.X[test]),
}
for name, score in scores.items():
    print(f"{name:20s} {pac.auc_interval(score, data.y[test])}")
print(f"covariates expected from the slab: {approx.expected_model_size:.1f} of {len(data.feature_names)}")

# %%
# Three indicators for each position, numbered from the junction in the middle of the window: -1 is the last base before
# it, +1 the first one after it.

probability = approx.inclusion_probability.values.reshape(60, 3)
figure, axis = plt.subplots(figsize=(8, 3), layout="constrained")
bottom, position = np.zeros(60), np.r_[-30:0, 1:31]
for base, color in zip(range(3), ("#0072B2", "#E69F00", "#009E73"), strict=True):
    axis.bar(position, probability[:, base], bottom=bottom, color=color, label=f"indicator {base + 1}")
    bottom += probability[:, base]
axis.axvline(0, color="black", linestyle=":")
axis.set(xlabel="position relative to the junction", ylabel="covariates expected to matter", xlim=(-31, 31))
axis.legend(frameon=False)
plt.show()

strongest = np.argsort(-probability.max(axis=1))[:6]
print("positions that matter most:", ", ".join(f"{position[at]:+d}" for at in strongest))
