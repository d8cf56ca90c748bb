"""The figures of ``concepts/intervals.md``: a decision curve and a comparison of models, on Pima.

python docs/interval_figures.py
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from pathlib import Path

import matplotlib
import numpy as np
import xarray as xr

matplotlib.use("Agg")

import pymc_pacauc as pac
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem.problem import linear_gaussian_problem

HERE = Path(__file__).parent / "figures"


def main():
    data = pac.datasets.load_pima()
    X, y = np.asarray(data.X, dtype=float), np.asarray(data.y)
    order = np.random.default_rng(1).permutation(len(y))
    train, test = order[: len(y) // 2], order[len(y) // 2 :]
    X = (X - X[train].mean(axis=0)) / X[train].std(axis=0)
    names = list(data.feature_names)
    fits = {
        "all covariates": np.arange(X.shape[1]),
        "without glucose": np.array([k for k, name in enumerate(names) if "gl" not in name.lower()]),
        "glucose alone": np.array([k for k, name in enumerate(names) if "gl" in name.lower()]),
    }
    results = {name: fit(linear_gaussian_problem(X[train][:, c], y[train], 150.0)) for name, c in fits.items()}
    table = pac.compare(results)
    print(table.drop(columns=["method", "warning"]).round(3).to_string())
    pac.plots.plot_compare(table).figure.savefig(HERE / "compare.png", dpi=110)
    scores = {
        name: results[name].posterior.draw(500, np.random.default_rng(1)) @ X[test][:, c].T for name, c in fits.items()
    }
    shown = {name: scores[name] for name in ("all covariates", "without glucose")}
    curves = {name: pac.decision_curve(draws, y[test]) for name, draws in shown.items()}
    pac.plots.plot_decision_curve(curves).figure.savefig(HERE / "decision.png", dpi=110)
    best = scores["all covariates"]
    for over in ("rows", "posterior", "both"):
        print(pac.auc_interval(best, y[test], over=over, ci_prob=0.9))
    for other in ("without glucose", "glucose alone"):
        print(other, pac.compare_auc(best, scores[other], y[test], ci_prob=0.9))
    print(pac.choose_threshold(best, y[test], cost=(1, 4), prevalence=0.1))
    print(pac.certify.holdout(best.mean(axis=0), y[test]))
    table = pac.summary(xr.DataArray(best, dims=("draw", "row")), top=0.1)
    print("rows certainly (> 0.95) among the top tenth:", int((table["in_top"] > 0.95).sum()))


if __name__ == "__main__":
    main()
