"""Diabetes among the Pima: how well does a linear score rank patients?

python examples/quickstart.py [--out out]
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

import pymc_pacauc as pac


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    data = pac.load_pima().standardized()
    train, test = data.train, ~data.train
    print(data)

    defaults = pac.theorem_defaults(n_pos=data.y[train].sum(), n_neg=(1 - data.y[train]).sum(), d=data.d)
    print(defaults)

    print("\nAUC of each covariate alone, on the test rows:")
    auc = 1.0 - pac.empirical_risk(data.X[test].T, data.y[test])
    for name, value in sorted(zip(data.feature_names, auc, strict=True), key=lambda item: -item[1]):
        print(f"  {name:<6} {value:.3f}")

    rng = np.random.default_rng(2014)
    theta = rng.normal(0.0, np.sqrt(defaults.prior_variance), size=(10_000, data.d))
    prior_auc = 1.0 - pac.linear_risk(theta, data.X[test], data.y[test])
    print(f"\nMean AUC of {len(theta)} linear scores drawn from the prior, on the test rows: {prior_auc.mean():.3f}")

    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    axes.hist(prior_auc, bins=60, density=True, color="0.7", label="linear scores from the prior")
    axes.axvline(auc.max(), color="C3", label=f"best covariate alone ({data.feature_names[auc.argmax()]})")
    axes.set(xlabel="AUC on the test rows", ylabel="density", title="Pima")
    axes.legend(loc="lower center")
    figure.savefig(out / "pima_prior_auc.png", dpi=150)
    print(f"Figures are in {out}/")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="directory for the figures")
    main(parser.parse_args().out)
