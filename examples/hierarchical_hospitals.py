"""
Twenty hospitals, one hierarchy
===============================

Patients are compared within their hospital, and hospitals differ: what tells cases apart in one of them tells less in
another. One score for all ignores that; a score for each has twenty patients to learn from. A hierarchy lies between,
and the evidence says where.
"""

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_pacauc as pac

HOSPITALS, ROWS, NEW_ROWS, D = 20, 20, 500, 4
rng = np.random.default_rng(4)
TRUTH = np.array([1.2, -0.8, 0.4, 0.0]) + 0.5 * rng.normal(size=(HOSPITALS, D))


def draw(rows):
    hospital = np.repeat(np.arange(HOSPITALS), rows)
    X = rng.normal(size=(hospital.size, D))
    log_odds = (X * TRUTH[hospital]).sum(axis=1) - 0.5
    return X, rng.random(hospital.size) < 1 / (1 + np.exp(-log_odds)), hospital


X, y, hospital = draw(ROWS)
X_new, y_new, hospital_new = draw(NEW_ROWS)

# %%
# The spread between hospitals has a prior, and is integrated over.

with pm.Model() as model:
    spread = pm.HalfNormal("spread", 1.0)
    common = pm.Normal("common", shape=D)
    own = pm.Normal("own", common, spread, shape=(HOSPITALS, D))
    pac.AUCPotential("auc", (X * own[hospital]).sum(axis=1), y, gamma=float(len(y)), strata=hospital)


def coefficients(model):
    with model:
        approx = pm.fit(method=pac.EP(), progressbar=False)
    print(approx)
    return approx.posterior.mean[approx.source.parts["own"]].reshape(HOSPITALS, D)


held = {"for all": pm.do(model, {"spread": 1e-3}), "hierarchy": model, "each": pm.do(model, {"spread": 1e2})}
fits = {name: coefficients(each) for name, each in held.items()}

# %%
# AUC within hospitals on new patients: of each hospital a dot, of all of them together in the title.


def within(theta, *chosen_hospital):
    rows = np.isin(hospital_new, chosen_hospital) if chosen_hospital else np.ones(len(y_new), dtype=bool)
    score = (X_new * theta[hospital_new]).sum(axis=1)
    return 1 - float(pac.empirical_risk(score[rows], y_new[rows], strata=hospital_new[rows]))


auc = {name: np.array([within(theta, each) for each in range(HOSPITALS)]) for name, theta in fits.items()}
best = np.array([within(TRUTH, each) for each in range(HOSPITALS)])
for name, theta in {**fits, "the truth": TRUTH}.items():
    print(f"{name:10s} AUC within hospitals, new patients: {within(theta):.3f}")

order = np.argsort(best)
figure, axis = plt.subplots(figsize=(7, 5), layout="constrained")
axis.plot(best[order], np.arange(HOSPITALS), "k|", markersize=14, label=f"the true scores ({within(TRUTH):.3f})")
for (name, values), marker, color in zip(auc.items(), "sov", ("#E69F00", "#0072B2", "#D55E00"), strict=True):
    label = f"{'one score ' * (name != 'hierarchy')}{name} ({within(fits[name]):.3f})"
    axis.plot(values[order], np.arange(HOSPITALS), marker, color=color, label=label)
axis.set(xlabel="AUC on new patients", ylabel="hospital", yticks=np.arange(HOSPITALS), yticklabels=order + 1)
axis.legend(title="all hospitals", frameon=False)
plt.show()
