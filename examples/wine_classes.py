"""
Which of three?
===============

178 wines of three cultivars, thirteen measurements each. The classes have no order, so each gets a score of its own,
which is judged by the AUC between its class and each of the others: the mean of these is Hand and Till's M.

``python examples/wine_classes.py [--out out]`` writes the figure to a file.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from sklearn.datasets import load_wine

import pymc_pacauc as pac


def main(out: Path | None) -> None:
    wine = load_wine(as_frame=True)
    rng = np.random.default_rng(4)
    train = rng.random(len(wine.target)) < 0.5
    X = ((wine.data - wine.data[train].mean()) / wine.data[train].std()).to_numpy()
    y = wine.target.to_numpy()

    # One potential for all classes: gamma multiplies 1 - M. The coefficients of each class are its own, so that EP fits
    # three problems of two classes.
    with pm.Model(coords={"measurement": wine.feature_names, "cultivar": wine.target_names}):
        weights = pm.Normal("weights", dims=("measurement", "cultivar"))
        pac.AUCPotential("m", X[train] @ weights, y[train], gamma="default", multi_class="ovo")
        approx = pm.fit(method=pac.EP(), progressbar=False)
    print(approx.plan)

    scores = pac.predict_scores(approx, X[~train], summary=True)
    m = 1 - pac.empirical_risk(scores["mean"], y[~train], multi_class="ovo")
    print(f"M on the other wines: {m:.3f}")

    figure, axes = plt.subplots(1, 3, figsize=(10, 3.6), sharex=True, layout="constrained")
    for k, ax in enumerate(axes):
        for other in range(3):
            mine = y[~train] == other
            ax.errorbar(
                scores["mean"][mine, k],
                other + rng.uniform(-0.3, 0.3, mine.sum()),
                xerr=scores["sd"][mine, k],
                fmt="o",
                color=["#0072B2", "#D55E00", "#009E73"][other],
                alpha=0.5,
                markersize=4,
                elinewidth=0.7,
            )
        apart = [
            1 - pac.empirical_risk(scores["mean"][np.isin(y[~train], (k, other)), k], y[~train][pair] == k)
            for other in range(3)
            if other != k
            for pair in [np.isin(y[~train], (k, other))]
        ]
        ax.set(
            title=f"score of {wine.target_names[k]}: AUC {apart[0]:.3f} and {apart[1]:.3f}",
            xlabel="score of a new wine ± sd",
            yticks=range(3),
            yticklabels=wine.target_names if k == 0 else [],
        )
        ax.title.set_fontsize(10)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        figure.savefig(out / "wine_classes.png", dpi=110)
    plt.show()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, help="directory for the figure")
    main(parser.parse_known_args()[0].out)  # notebooks have arguments of their own
