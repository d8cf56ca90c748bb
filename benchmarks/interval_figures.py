"""Numbers and the figure of ``concepts/intervals.md`` on Pima: intervals, and a comparison of models.

python -m benchmarks.interval_figures
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import matplotlib
import numpy as np

matplotlib.use("Agg")

import pymc_pacauc as pac
from benchmarks.measured import DOCS
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem.problem import linear_gaussian_problem

HERE = DOCS / "figures"


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
    pac.plots.plot_compare(table).figure.savefig(HERE / "compare.png", dpi=110)
    scores = {
        name: results[name].posterior.draw(500, np.random.default_rng(1)) @ X[test][:, c].T for name, c in fits.items()
    }
    best = scores["all covariates"]
    print("```text")
    for over in ("rows", "posterior", "both"):
        print(f"over {over:9s}", pac.auc_interval(best, y[test], over=over, ci_prob=0.9))
    for other in ("without glucose", "glucose alone"):
        print(f"all against {other}:", pac.compare_auc(best, scores[other], y[test], ci_prob=0.9))
    print("```\n\n```text")
    shown = ["log_evidence", "se", "probability", "auc", "auc_loss", "auc_loss_se", "certified_auc"]
    print(table[shown].rename_axis(None).round(3).to_string())
    print("```")


if __name__ == "__main__":
    main()
