"""From data to decision
=====================

Which of the Pima women have diabetes? A score is learned from 200 of them; half of the 332 others choose a threshold,
the other half are the next patients, and say what the score is worth.

``python examples/quickstart.py [--out out]`` (``make demo``) writes the figures to files.
"""

import argparse
import time
import warnings
from pathlib import Path

warnings.filterwarnings("ignore", message="PyTensor could not link to a BLAS")  # nothing here runs in compiled PyTensor

import numpy as np
import pymc as pm

import pymc_pacauc as pac

SEED = 2014


def main(out: Path | None) -> None:
    started = time.perf_counter()

    step("1. Data: 200 women to learn from, 166 to choose a threshold, 166 to judge by")
    data = pac.datasets.load_pima()
    old, others = data.train, np.flatnonzero(~data.train)
    choosing, next_patients = others[::2], others[1::2]
    X, y = (data.X - data.X[choosing].mean(axis=0)) / data.X[choosing].std(axis=0), data.y
    print(data)

    step("2. The model, and how much the data shall count: gamma by cross-validation")
    with pm.Model(coords={"covariate": data.feature_names}) as model:
        gamma = pm.Data("gamma", 1.0)
        theta = pm.Normal("theta", dims="covariate")
        pac.AUCPotential("auc", X[old] @ theta, y[old], gamma=gamma)
    selection = pac.select_gamma(model, gammas=np.geomspace(2, 2000, 10), set_data=True)
    print(selection)
    figure(out, "gamma.png", selection.plot())

    step("3. The posterior of the score: an approximation in milliseconds, and exact draws that start from it")
    with model:
        approx = pm.fit(method=pac.EP())
        idata = pm.sample(
            1000,
            step=pac.TemperingSMC(start=approx),
            chains=4,
            cores=1,
            random_seed=SEED,
            progressbar=False,
            quiet=True,
        )
    print(pac.summary(approx))
    print(f"log evidence: {approx.log_evidence:.2f} by EP, {pac.log_evidence(idata)}")
    figure(out, "marginals.png", pac.plots.plot_marginals(approx, idata))

    step("4. A threshold that calls at most one healthy woman in ten positive, and what it does for the next patients")
    threshold = pac.choose_threshold(pac.predict_scores(approx, X[choosing], random_seed=SEED), y[choosing], fpr=0.1)
    print(threshold)
    scores = pac.predict_scores(approx, X[next_patients], random_seed=SEED)
    called, sick = threshold.apply(scores).values, y[next_patients] == 1
    print(f"next patients: {called[sick].mean():.0%} of the sick are called, {called[~sick].mean():.0%} of the healthy")
    print(f"the first of them is above the threshold in {threshold.probability(scores).values[0]:.0%} of the draws")
    figure(out, "roc.png", pac.plots.plot_roc(pac.roc(scores, y[next_patients])))
    figure(out, "scores.png", pac.plots.plot_scores(scores, y[next_patients], threshold=threshold))

    step("5. What the score is worth: an estimate, and a promise")
    deployed = pac.predict_scores(approx, X[next_patients], summary=True)["mean"]
    print(pac.auc_interval(deployed, y[next_patients]))
    print(pac.certify.holdout(deployed, y[next_patients]))

    print(f"\n{f'Figures are in {out}/. ' if out else ''}{time.perf_counter() - started:.0f} seconds.")


def step(title: str) -> None:
    print(f"\n{title}\n{'-' * len(title)}", flush=True)


def figure(out: Path | None, name: str, axes) -> None:
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        np.atleast_1d(axes).ravel()[0].figure.savefig(out / name, dpi=150)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, help="directory for the figures; without it none are written")
    main(parser.parse_known_args()[0].out)  # notebooks have arguments of their own
