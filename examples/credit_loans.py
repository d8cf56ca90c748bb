"""Whom to lend to
===============

1000 loans of a German bank, 300 of them bad; 60 columns of the applicants. Which applications should somebody look at
again? A score in a scikit-learn pipeline ranks them, beside logistic regression; a threshold weighs a bad loan that is
granted five times a good one that is refused, as the bank did.

``python examples/credit_loans.py [--out out]`` writes the figure and a report to files.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import RocCurveDisplay
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pymc_pacauc as pac

MISSED, REFUSED = 5.0, 1.0  # cost of a bad loan that is granted, of a good one that is refused
SHOWN = 8  # largest coefficients
parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, help="directory for the figure and the report")
out = parser.parse_known_args()[0].out  # notebooks have arguments of their own

# %%
# A half of the loans is learned from, a quarter chooses the threshold, a quarter judges.

data = pac.datasets.load_credit()
X = pd.DataFrame(data.X, columns=list(data.feature_names))
X, later, y, outcome = train_test_split(X, data.y, train_size=500, stratify=data.y, random_state=1)
choosing, new, y_choosing, y_new = train_test_split(later, outcome, test_size=0.5, stratify=outcome, random_state=1)

# %%
# The classifier chooses gamma and its prior itself; logistic regression chooses its penalty by AUC.

ours = pac.AUCClassifier().fit(X, y)
logistic = make_pipeline(
    StandardScaler(), LogisticRegressionCV(scoring="roc_auc", l1_ratios=(0.0,), use_legacy_attributes=False)
).fit(X, y)
print(f"{len(y_new)} other loans, {y_new.sum()} of them bad")
print("ours:    ", pac.auc_interval(ours.decision_function(new), y_new))
print("logistic:", pac.auc_interval(logistic.decision_function(new), y_new))
print(pac.compare_auc(ours.decision_function(new), logistic.decision_function(new), y_new))

# %%
# The threshold weighs the two errors. Its cost on the last quarter is compared with those of granting all loans, and
# of refusing all.

threshold = pac.choose_threshold(ours.decision_function(choosing), y_choosing, cost=(REFUSED, MISSED))
print(threshold)
looked_at = threshold.apply(ours.decision_function(new))
bad = y_new == 1
cost = (MISSED * (bad & ~looked_at).sum() + REFUSED * (~bad & looked_at).sum()) / len(y_new)
everybody, nobody = MISSED * bad.mean(), REFUSED * (~bad).mean()
print(f"cost of a loan: {cost:.2f}; granting all {everybody:.2f}, refusing all {nobody:.2f}")

# %%
# The two scores rank alike. The posterior adds intervals of the coefficients and of the difference of the AUCs.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
for name, model in (("AUCClassifier", ours), ("logistic regression", logistic)):
    RocCurveDisplay.from_estimator(model, new, y_new, name=name, ax=left)
left.set(title="Other loans", xlabel="false positive rate", ylabel="true positive rate")
left.legend(frameon=False, loc="lower right")
scale = X.std().to_numpy()
mean, half = ours.coef_[0] * scale, 1.645 * ours.coef_sd_[0] * scale
order = np.argsort(np.abs(mean))[-SHOWN:]
right.errorbar(mean[order], np.arange(SHOWN), xerr=half[order], fmt="o", color="#0072B2")
right.set_yticks(np.arange(SHOWN), np.array(ours.feature_names_in_)[order])
right.axvline(0, color="grey", linewidth=0.8)
right.set(title=f"{SHOWN} largest coefficients, 90 % intervals", xlabel="per standard deviation of the column")
if out is not None:
    out.mkdir(parents=True, exist_ok=True)
    figure.savefig(out / "credit_loans.png", dpi=110)
    ours.report(out / "credit_loans.html", title="Loans")
