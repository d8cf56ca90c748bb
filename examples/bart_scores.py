"""A sum of trees as score: PyMC-BART samples the exact AUC posterior by its own step, where a linear score is blind.

The second covariate matters through its square, the first through a sine: no linear score can rank by them. Gamma is
not chosen but the default. New rows are scored by the trees that were sampled, and judged by ROC curves of both mean
scores. Needs pymc-bart.

python examples/bart_scores.py [--out out]
"""

import argparse
import logging
import warnings
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
warnings.filterwarnings("ignore", message="PyTensor could not link to a BLAS")

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pymc_bart as pmb

import pymc_pacauc as pac

SEED = 2014


def simulate(rng, n):
    X = rng.uniform(-2, 2, size=(n, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] ** 2 / 2 + 0.4 * rng.normal(size=n) > 0.8


def main(out: Path, draws: int = 100) -> tuple[float, float]:
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(SEED)
    (X, y), (X_new, y_new) = simulate(rng, 200), simulate(rng, 500)
    with pm.Model():
        theta = pm.Normal("theta", size=3)
        pac.AUCPotential("auc", X @ theta, y, gamma="default")
        approx = pm.fit(method=pac.EP(), progressbar=False)
    with pm.Model():
        rows = pm.Data("rows", X)
        f = pmb.BART("f", rows, np.where(y, 1.0, -1.0), m=10, shape=rows.shape[0])
        pac.AUCPotential("auc", f, y, gamma="default")
        pm.sample(draws, tune=draws, chains=2, cores=1, random_seed=SEED, progressbar=False)
        pm.set_data({"rows": X_new})
        of_trees = pm.draw(f, draws=200, random_seed=SEED).mean(axis=0)  # out of the trees sampled, at the new rows
    scores = {"linear, by EP": X_new @ approx.posterior.mean, "trees, by PGBART": of_trees}
    aucs = tuple(float(1 - pac.empirical_risk(score, y_new)) for score in scores.values())

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    for (label, score), auc in zip(scores.items(), aucs, strict=True):
        curve = pac.roc(score, y_new)
        left.plot(curve["fpr"], curve["tpr"], label=f"{label}: {auc:.3f}")
    left.plot([0, 1], [0, 1], color="0.8", zorder=0)
    left.set(xlabel="false positive rate", ylabel="true positive rate", title="held-out rows, AUC of the mean score")
    left.legend(loc="lower right")
    points = right.scatter(X_new[:, 0], X_new[:, 1], c=of_trees - of_trees.mean(), s=14)
    right.set(xlabel="first covariate", ylabel="second covariate", title="score of the trees, centred")
    figure.colorbar(points, ax=right)
    figure.savefig(out / "bart_scores.png", dpi=120)
    plt.close(figure)
    print(f"held-out AUC: {aucs[0]:.3f} linear, {aucs[1]:.3f} trees; figure in {out / 'bart_scores.png'}")
    return aucs


if __name__ == "__main__":
    logging.getLogger("pymc").setLevel(logging.ERROR)
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("out"))
    main(parser.parse_known_args()[0].out)  # notebooks have arguments of their own
