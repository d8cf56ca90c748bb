"""Scores that no line gives
=========================

Linear scores, a Gaussian process by its kernel features, and boosted trees, on the same rows.
Two covariates, 600 rows to learn from and 5000 to judge by. The lengthscale of the kernel is chosen by the evidence.

``python examples/gp_nonlinear.py [--out out]`` writes the figure to a file.
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from sklearn.ensemble import HistGradientBoostingClassifier

import pymc_pacauc as pac

ROWS, NEW_ROWS, CELLS = 600, 5000, 80


def simulated(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.5, 2.5, size=(n, 2))
    score = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 / 2 + 0.5 * rng.logistic(size=n)
    return X, (score > 1.2).astype(int)


def fitted(X: np.ndarray, y: np.ndarray, features=None):
    """EP's fit of linear scores of the covariates, or of their kernel features."""
    with pm.Model():
        rows = pm.Data("X", X)
        design = rows if features is None else features(rows)
        theta = pm.Normal("theta", shape=X.shape[1] if features is None else features.rank)
        pac.AUCPotential("auc", design @ theta, y, gamma=len(y))
        return pm.fit(method=pac.EP(), progressbar=False)


def main(out: Path | None) -> None:
    X, y = simulated(ROWS, 1)
    new, labels = simulated(NEW_ROWS, 2)

    choice = pac.choose_lengthscale(X, y, gamma=ROWS, each=True)
    features = pac.kernel_features(X, lengthscale=choice.lengthscale)
    print(choice)
    linear, process = fitted(X, y), fitted(X, y, features)
    trees = HistGradientBoostingClassifier(random_state=0).fit(X, y)
    scores = {
        "linear": lambda rows: pac.predict_scores(linear, rows, summary=True)["mean"].values,
        f"{features.rank} kernel features": lambda rows: pac.predict_scores(process, rows, summary=True)["mean"].values,
        "boosted trees": lambda rows: trees.predict_proba(rows)[:, 1],
    }

    line = np.linspace(-2.5, 2.5, CELLS)
    grid = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.9), sharey=True, layout="constrained")
    for axis, (name, score) in zip(axes, scores.items(), strict=True):
        auc = 1.0 - pac.empirical_risk(score(new), labels)
        print(f"{name:20} AUC {auc:.3f} on {NEW_ROWS} new rows")
        values = score(grid)
        share = np.searchsorted(np.sort(values), values) / values.size  # a ranking has no other unit
        shown = axis.pcolormesh(line, line, share.reshape(CELLS, CELLS), cmap="RdBu_r", vmin=0, vmax=1, alpha=0.8)
        for label, marker in ((0, "_"), (1, "+")):
            axis.plot(*X[y == label].T, marker, color="black", markersize=4, alpha=0.6, linestyle="none")
        axis.set(title=f"{name}: AUC {auc:.3f}", xlabel="first covariate", aspect="equal")
    axes[0].set_ylabel("second covariate")
    figure.colorbar(shown, ax=axes, label="share of the square that scores lower", shrink=0.85)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        figure.savefig(out / "kernel_features.png", dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="directory for the figure")
    main(parser.parse_args().out)
