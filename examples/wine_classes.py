"""
Which of three?
===============

178 wines of three cultivars, thirteen measurements each. The classes have no order, so each gets a score of its own,
which is judged by the AUC between its class and each of the others: the mean of these is Hand and Till's M. Which
cultivars are hard to tell apart, and by which measurements?

``python examples/wine_classes.py [--out out]`` writes the figure to a file.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
from sklearn.datasets import load_wine

import pymc_pacauc as pac

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, help="directory for the figure")
out = parser.parse_known_args()[0].out  # notebooks have arguments of their own

wine = load_wine(as_frame=True)
rng = np.random.default_rng(4)
train = rng.random(len(wine.target)) < 0.5
X = ((wine.data - wine.data[train].mean()) / wine.data[train].std()).to_numpy()
y = wine.target.to_numpy()
cultivars = [f"cultivar {k + 1}" for k in range(3)]

# %%
# One potential for all classes: gamma multiplies 1 - M. The coefficients of each class are its own, so that EP fits
# three problems of two classes.

with pm.Model(coords={"measurement": wine.feature_names, "cultivar": cultivars}):
    weights = pm.Normal("weights", dims=("measurement", "cultivar"))
    pac.AUCPotential("m", X[train] @ weights, y[train], gamma="default", multi_class="ovo")
    approx = pm.fit(method=pac.EP(), progressbar=False)
scores = pac.predict_scores(approx, X[~train], summary=True)
m = 1 - pac.empirical_risk(scores["mean"], y[~train], multi_class="ovo")
print(f"M on the other wines: {m:.3f}")

# %%
# The score of each cultivar, of wines that were not fitted, with its standard deviation; above, its AUC against each of
# the two other cultivars.

figure, axes = plt.subplots(1, 3, figsize=(10, 3.6), sharex=True, layout="constrained")
for k, ax in enumerate(axes):
    apart = []
    for other, color in enumerate(("#0072B2", "#D55E00", "#009E73")):
        mine = y[~train] == other
        height = other + rng.uniform(-0.3, 0.3, mine.sum())
        mean, sd = scores["mean"][mine, k], scores["sd"][mine, k]
        ax.errorbar(mean, height, xerr=sd, fmt="o", color=color, alpha=0.5, markersize=4, elinewidth=0.7)
        if other != k:
            pair = np.isin(y[~train], (k, other))
            apart.append(1 - pac.empirical_risk(scores["mean"][pair, k], y[~train][pair] == k))
    ax.set(xlabel="score of a new wine ± sd", yticks=range(3), yticklabels=cultivars if k == 0 else [])
    ax.set_title(f"score of {cultivars[k]}: AUC {apart[0]:.3f} and {apart[1]:.3f}", fontsize=10)
if out is not None:
    out.mkdir(parents=True, exist_ok=True)
    figure.savefig(out / "wine_classes.png", dpi=110)
plt.show()

mean = pd.DataFrame(approx.posterior.mean.reshape(13, 3), index=wine.feature_names, columns=cultivars)
print(mean.loc[mean.abs().max(axis=1).nlargest(5).index].round(2))

# %%
# The score of the third cultivar puts every one of its wines above all others; the few pairs in the wrong order are of
# the other two scores. The second cultivar is known by less alcohol, colour and proline than both others, the first by
# proline and alcohol, the third by its colour and by diluted wines of low optical density (od280/od315). A wine whose
# bar reaches into those of another cultivar is one to look at again.
