"""
Do eighteen hospitals differ?
=============================

Advanced lung cancer in the hospitals of the North Central Cancer Treatment Group: 223 patients of eighteen hospitals, 2
to 36 in each. Who dies first is asked within hospitals, so that what hospitals have in common drops out. Does the same
score serve all of them? One score for all says yes; a score for each has a dozen patients to learn from. A hierarchy
lies between, and the data say where.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
from lifelines.datasets import load_lung

import pymc_pacauc as pac

COLUMNS = ["age", "sex", "ph.ecog", "pat.karno"]  # two are how fit a physician, and the patient, says he is
SPLITS = 3
frame = load_lung()[["inst", "time", "status", *COLUMNS]].dropna()
X, days, died = frame[COLUMNS].to_numpy(float), frame["time"].to_numpy(float), frame["status"].to_numpy() == 1
hospital = pd.factorize(frame["inst"], sort=True)[0]
N_HOSPITALS = hospital.max() + 1
print(f"{len(frame)} patients, {died.sum()} deaths")


# %%
# Each hospital has coefficients of its own, around common ones. The spread between hospitals has a prior, and is
# integrated over; held at nearly nothing it makes one score for all, far too large one for each.


def fit(rows, spread=None):
    """Fit some rows, with the spread integrated over or held."""
    scaled = (X[rows] - X[rows].mean(axis=0)) / X[rows].std(axis=0)
    with pm.Model() as model:
        between = pm.HalfNormal("spread", 1.0)
        common = pm.Normal("common", shape=len(COLUMNS))
        own = pm.Normal("own", common, between, shape=(N_HOSPITALS, len(COLUMNS)))
        scores = (scaled * own[hospital[rows]]).sum(axis=1)
        pac.ConcordancePotential("c", scores, days[rows], died[rows], gamma="default", strata=hospital[rows])
    with model if spread is None else pm.do(model, {"spread": spread}):
        return pm.fit(method=pac.EP(), progressbar=False)


def held_out(rows, approx):
    """Concordance within hospitals of the other rows."""
    own = approx.posterior.mean[approx.source.parts["own"]].reshape(N_HOSPITALS, len(COLUMNS))
    score = ((X - X[rows].mean(axis=0)) / X[rows].std(axis=0) * own[hospital]).sum(axis=1)[~rows]
    return 1 - pac.concordance_risk(score, days[~rows], died[~rows], strata=hospital[~rows])


MODELS = {"one score for all": 1e-3, "hierarchy": None, "one score each": 1e2}
rng = np.random.default_rng(1)
found = []
for _ in range(SPLITS):  # half of each hospital's patients learn, the others judge; then the other way round
    place = pd.Series(rng.random(len(hospital))).groupby(hospital).rank()
    half = place.to_numpy() % 2 == 0
    found += [{name: held_out(rows, fit(rows, spread)) for name, spread in MODELS.items()} for rows in (half, ~half)]
table = pd.DataFrame(found)
less = table.sub(table["one score for all"], axis=0)
print(pd.DataFrame({"C on other patients": table.mean(), "less that of one score for all": less.mean()}).round(3))

# %%
# Left: what all patients say of the spread between hospitals, in units of the common coefficients' prior. Right: the
# concordance on the other half of the patients, a dot for each split, and the mean.

draws = fit(np.ones(len(days), dtype=bool)).sample(4000, random_seed=1)["posterior"]["spread"].values.ravel()
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
grid = np.linspace(0, 2, 200)
left.hist(draws, np.linspace(0, 2, 41), density=True, color="#0072B2", alpha=0.5, label="posterior")
left.plot(grid, np.exp(pm.logp(pm.HalfNormal.dist(1.0), grid).eval()), "--", color="black", label="prior")
left.set(xlabel="spread between hospitals", ylabel="density", xlim=(0, 2), ylim=(0, None))
left.legend(frameon=False)
for row, (name, color) in enumerate(zip(MODELS, ("#E69F00", "#0072B2", "#D55E00"), strict=True)):
    right.plot(table[name], np.full(len(table), row), "o", color=color, alpha=0.4)
    right.plot(table[name].mean(), row, "|", color="black", markersize=18, markeredgewidth=2)
right.set(yticks=range(3), yticklabels=list(MODELS), ylim=(2.5, -0.5), xlabel="concordance, other patients")
plt.show()

# %%
# A score for each hospital has too few patients to learn from, and ranks worse. That hospitals differ does not show: a
# spread of nothing is as probable as any, and one score for all ranks as well as the hierarchy or a little better. The
# hierarchy is what one would fit without knowing that, and what it costs is little.
