"""
Rare cases, and severe ones that nobody recorded
================================================

Two cases in a hundred, and among the others some of the most severe, not recorded as cases. A log-likelihood tries to
explain every label, and one far on the wrong side costs most; the AUC asks for the order only, where a wrong pair is a
wrong pair. How much does that matter, as such errors become more frequent?
"""

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from sklearn.linear_model import LogisticRegression

import pymc_pacauc as pac

ROWS, NEW_ROWS, CASES, DATA_SETS = 3000, 20_000, 0.02, 6
SHARES = (0.0, 0.0025, 0.005, 0.01, 0.02, 0.04)
BETA = np.array([1.0, -0.7, 0.5, 0.0, 0.0, 0.0])


def draw(rng, rows, share=0.0):
    """Cases are likely where ``X @ BETA`` is large; a share of those called healthy are severe cases in truth."""
    X, severe = rng.normal(size=(2, rows, len(BETA)))
    score = X @ BETA + rng.logistic(size=rows)
    y = score > np.quantile(score, 1 - CASES)
    wrong = ~y & (rng.random(rows) < share)
    X[wrong] = 5 * BETA + severe[wrong]
    return X, y


def held_out(rng, share):
    X, y = draw(rng, ROWS, share)
    new, labels = draw(rng, NEW_ROWS)
    with pm.Model():
        theta = pm.Normal("theta", shape=len(BETA))
        pac.AUCPotential("auc", X @ theta, y, gamma="default")
        approx = pm.fit(method=pac.EP(), progressbar=False)
    scores = {
        "AUC posterior": pac.predict_scores(approx, new, summary=True)["mean"].values,
        "logistic regression": LogisticRegression().fit(X, y).decision_function(new),
        "logistic regression, balanced": LogisticRegression(class_weight="balanced").fit(X, y).decision_function(new),
    }
    return {name: 1 - float(pac.empirical_risk(score, labels)) for name, score in scores.items()}


# %%
# Each share of errors on the same seeds, so that the lines differ by the errors alone.

found = {share: [held_out(np.random.default_rng(seed), share) for seed in range(DATA_SETS)] for share in SHARES}

figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
for name, color, line in zip(found[0.0][0], ("#0072B2", "#D55E00", "#E69F00"), ("-", "--", ":"), strict=True):
    auc = np.array([[each[name] for each in found[share]] for share in SHARES])
    error = auc.std(axis=1, ddof=1) / np.sqrt(DATA_SETS)
    axis.errorbar(100 * np.array(SHARES), auc.mean(axis=1), error, color=color, linestyle=line, capsize=3, label=name)
    print(f"{name:30s}", *(f"{value:.3f}" for value in auc.mean(axis=1)))
axis.set(xlabel="severe cases among the healthy, %", ylabel=f"AUC on {NEW_ROWS} clean new rows")
axis.legend(frameon=False)
plt.show()

# %%
# Without errors there is nothing to gain, and logistic regression takes a thousandth of the time. With them, weights
# that balance the classes are most of the cure: they make the healthy rows, and the wrong ones among them, count less.
