"""From data to decision
=====================

Which of the Pima women have diabetes? Data, choice of gamma, expectation propagation and SMC, summary, certificate,
held-out ROC with a threshold, figures.

``python examples/quickstart.py [--out out]`` (``make demo``) writes the figures to files.
"""

import argparse
import time
import warnings
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
warnings.filterwarnings("ignore", message="PyTensor could not link to a BLAS")  # nothing here runs in compiled PyTensor

import arviz as az
import numpy as np
import pymc as pm

import pymc_pacauc as pac

SEED = 2014


def main(out: Path | None) -> None:
    started = time.perf_counter()

    step("1. Data")
    data = pac.datasets.load_pima()
    reference = data.X[~data.train]  # standardise with rows that are not fitted, so that the certificate holds
    X = (data.X - reference.mean(axis=0)) / reference.std(axis=0)
    X_train, y_train, X_test, y_test = X[data.train], data.y[data.train], X[~data.train], data.y[~data.train]
    print(data)

    step("2. The model, and gamma by cross-validation")
    with pm.Model(coords={"covariate": data.feature_names}) as model:
        gamma = pm.Data("gamma", 1.0)
        rows = pm.Data("X", X_train, dims=("row", "covariate"))
        theta = pm.Normal("theta", dims="covariate")
        scores = pm.Deterministic("scores", rows @ theta, dims="row")
        pac.AUCPotential("auc", scores, y_train, gamma=gamma)
    selection = pac.select_gamma(model, set_data=True)
    print(selection)
    figure(out, "gamma.png", selection.plot())

    step("3. Fit: expectation propagation, and exact sampling by SMC")
    with model:
        approx = pm.fit(method=pac.EP())
        idata = pm.sample(
            1000, step=pac.TemperingSMC(), chains=4, cores=1, random_seed=SEED, progressbar=False, quiet=True
        )
    print(approx)
    print(f"log evidence by SMC: {pac.log_evidence(idata)}")
    figure(out, "marginals.png", pac.plots.plot_marginals(approx, idata))
    figure(out, "tempering.png", pac.plots.plot_tempering(idata))

    step("4. Summary and certificate")
    table = pac.summary(approx)
    print(table.attrs["report"], table, sep="\n\n")
    print("\nArviZ's own summary of the SMC draws:")
    print(az.summary(idata, var_names=["theta", "auc_risk"]))
    print()
    print(pac.certificate(approx, bound="catoni"))
    certified = pac.select_gamma(model, method="vb", criterion="certificate")
    print(f"gamma chosen for its certificate: {certified}")

    step("5. Held-out rows: half of them choose a threshold, the others are the next patients")
    choosing = np.arange(len(y_test)) % 2 == 0
    predicted = {
        "EP": pac.predict_scores(approx, X_test, random_seed=SEED),
        "SMC": pac.predict_scores(idata, X_test, model=model),
    }
    curves = {name: pac.roc(scores, y_test) for name, scores in predicted.items()}
    for name, curve in curves.items():
        attrs = curve.attrs
        print(
            f"{name}: AUC {attrs['auc']:.3f} ({attrs['auc_lower']:.3f} to {attrs['auc_upper']:.3f} over rows); "
            f"of a draw, a randomised score, {attrs['auc_of_draw']:.3f}"
        )
    best = np.argmax(1.0 - pac.empirical_risk(X_test.T, y_test))
    alone = pac.auc_interval(X_test[:, best], y_test, ci_prob=0.9)
    print(f"best single covariate, {data.feature_names[best]}: AUC {alone.auc:.3f}")
    figure(out, "roc.png", pac.plots.plot_roc(curves, randomised=True))
    scores = predicted["EP"]
    threshold = pac.choose_threshold(scores[..., choosing], y_test[choosing], fpr=0.1)
    print(threshold)
    called = threshold.apply(scores[..., ~choosing])
    rates = (called.values[y_test[~choosing] == k].mean() for k in (0, 1))
    print("on the next patients: FPR {:.3f}, TPR {:.3f}".format(*rates))
    figure(out, "scores.png", pac.plots.plot_scores(scores, y_test, threshold=threshold))
    patient = pac.predict_scores(approx, X_test[1], random_seed=SEED)
    print(
        f"test row 1 is called {'positive' if threshold.apply(patient).item() else 'negative'}; "
        f"{threshold.probability(patient).item():.0%} of the draws are above the threshold"
    )
    above = pac.predict_scores(approx, X_test[0], versus=X_test[1], summary=True)["probability_above"].item()
    print(f"P(test row 0 scores above test row 1) = {above:.3f}")

    print(f"\n{f'Figures are in {out}/. ' if out else ''}{time.perf_counter() - started:.0f} seconds.")


def step(title: str) -> None:
    print(f"\n{title}\n{'-' * len(title)}", flush=True)


def figure(out: Path | None, name: str, axes) -> None:
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        np.atleast_1d(axes).ravel()[0].figure.savefig(out / name, dpi=150)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="directory for the figures; without it none are written")
    main(parser.parse_known_args()[0].out)  # notebooks have arguments of their own
