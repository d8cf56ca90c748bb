"""Held-out concordance with censored times: EP's linear score against linear and boosted survival models.

    python -m benchmarks.survival [data ...] [--splits 20] [--keep FOLDER]

GBSG2, WHAS500 and Veterans come from scikit-survival. Categories are dummies (the first one left out), columns are
standardised on the training rows. Half of the rows are for training, the splits stratified by event. Harrell's C of the
other half. Ours: coefficients N(0, 1), the pairs of the training rows, posterior mean; gamma by cross-validation within
the training rows (``choose_gamma``, what ``pac.select_gamma`` does), or gamma = n without any choice. The peers choose
their penalty or their number of trees by the concordance of five folds of the training rows. A high score is an early
event.
"""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
from sklearn.model_selection import StratifiedKFold

import pymc_pacauc as pac
from benchmarks.kept import add_option
from benchmarks.paired import Table, compare_on, paired, splits
from pymc_pacauc import arrays

PENALTIES = np.geomspace(1e-2, 1e3, 6)
SVM_PENALTIES = np.geomspace(1e-4, 1e2, 7)
ROUNDS = (10, 25, 50, 100, 200)
LOADERS = {"GBSG2": "load_gbsg2", "WHAS500": "load_whas500", "Veterans": "load_veterans_lung_cancer"}
OURS = ("EP, gamma by cross-validation", "EP, gamma = n")
LINEAR = ("Cox, ridge", "FastSurvivalSVM")


def load(name):
    from sksurv import datasets

    X, outcome = getattr(datasets, LOADERS[name])()
    event, time = outcome.dtype.names
    y = np.empty(len(X), dtype=[("event", bool), ("time", float)])
    y["event"], y["time"] = outcome[event], outcome[time]
    return SimpleNamespace(X=pd.get_dummies(X, drop_first=True).to_numpy(dtype=float), y=y)


def concordance(scores, y):
    """Harrell's C."""
    return 1.0 - float(pac.concordance_risk(scores, y["time"], y["event"]))


def ep_by_folds(X, y, X_new, seed):
    problem = arrays.linear_gaussian_problem(X, arrays.concordance(y["time"], y["event"]), gamma=1.0)
    gamma = arrays.choose_gamma(problem, n_jobs=1).gamma
    return X_new @ arrays.fit(replace(problem, gamma=gamma), n_jobs=1).posterior.mean


def ep_at_n(X, y, X_new, seed):
    problem = arrays.linear_gaussian_problem(X, arrays.concordance(y["time"], y["event"]), gamma=float(len(y)))
    return X_new @ arrays.fit(problem).posterior.mean


def best_by_folds(candidates, X, y, X_new, seed):
    """``candidates(X, y, X_new)`` are the scores of the new rows for each value of a hyper-parameter, in order."""
    held_out = []
    for inside, out in StratifiedKFold(5, shuffle=True, random_state=seed).split(X, y["event"]):
        held_out.append([concordance(row, y[out]) for row in candidates(X[inside], y[inside], X[out])])
    return candidates(X, y, X_new)[int(np.mean(held_out, axis=0).argmax())]


def cox(X, y, X_new, seed):
    from sksurv.linear_model import CoxPHSurvivalAnalysis

    def candidates(X, y, X_new):
        return np.array([CoxPHSurvivalAnalysis(alpha=a).fit(X, y).predict(X_new) for a in PENALTIES])

    return best_by_folds(candidates, X, y, X_new, seed)


def survival_svm(X, y, X_new, seed):
    from sksurv.svm import FastSurvivalSVM

    def candidates(X, y, X_new):
        return np.array([FastSurvivalSVM(alpha=a, random_state=seed).fit(X, y).predict(X_new) for a in SVM_PENALTIES])

    return best_by_folds(candidates, X, y, X_new, seed)


def boosted_cox(X, y, X_new, seed):
    from sksurv.ensemble import GradientBoostingSurvivalAnalysis

    def candidates(X, y, X_new):
        model = GradientBoostingSurvivalAnalysis(n_estimators=max(ROUNDS), random_state=seed).fit(X, y)
        return np.array(list(model.staged_predict(X_new)))[np.array(ROUNDS) - 1]

    return best_by_folds(candidates, X, y, X_new, seed)


def xgboost(objective, X, y, X_new, seed):
    """Trees of depth 3 at rate 0.1. Cox: the label is minus the time where censored; AFT: an interval of times."""
    from xgboost import DMatrix, train

    options = {"objective": objective, "max_depth": 3, "eta": 0.1, "nthread": 1, "seed": seed}

    def candidates(X, y, X_new):
        if objective == "survival:cox":
            rows, sign = DMatrix(X, label=np.where(y["event"], y["time"], -y["time"])), 1.0
        else:
            later = np.where(y["event"], y["time"], np.inf)
            rows, sign = DMatrix(X, label_lower_bound=y["time"], label_upper_bound=later), -1.0
        model = train(options, rows, max(ROUNDS))
        new = DMatrix(X_new)
        return np.array(
            [sign * model.predict(new, iteration_range=(0, r), output_margin=True).astype(float) for r in ROUNDS]
        )

    return best_by_folds(candidates, X, y, X_new, seed)


LEARNERS = {
    "EP, gamma by cross-validation": ep_by_folds,
    "EP, gamma = n": ep_at_n,
    "Cox, ridge": cox,
    "FastSurvivalSVM": survival_svm,
    "GradientBoostingSurvivalAnalysis": boosted_cox,
    "XGBoost survival:cox": lambda *given: xgboost("survival:cox", *given),
    "XGBoost survival:aft": lambda *given: xgboost("survival:aft", *given),
}


def against_best_linear(ours, linear, found):
    """A sentence: how ours compares with the best of the linear peers on each data set."""
    parts = []
    for data, values in found.items():
        best = max(linear, key=lambda name: np.mean(values[name]))
        text, _ = paired(np.array(values[ours]) - values[best])
        parts.append(f"{data} {text} ({best})")
    return f"{ours} minus the best linear peer: {'; '.join(parts)}."


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", default=list(LOADERS), help=", ".join(LOADERS))
    parser.add_argument("--splits", type=int, default=20)
    add_option(parser)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # convergence of searches at their extremes
    print(
        f"GBSG2, WHAS500 and Veterans of scikit-survival; {arguments.splits} random halves, stratified by event, the "
        "same for all; Harrell's C of the other half. Linear: ours, Cox and FastSurvivalSVM; the others are trees.\n"
    )
    headings = ("ours minus it", "with gamma = n")
    table = Table(OURS, OURS, "C", headings, "ours minus the learner, paired by split, ± standard error")
    found = {}
    for name in arguments.data:
        data = load(name)
        path = arguments.keep and Path(arguments.keep) / f"survival-{name}.json"
        masks = splits(data.y["event"], 0.5, arguments.splits)
        found[name], seconds = compare_on(masks, data, LEARNERS, judge=concordance, path=path)
        table.add(name, found[name], seconds)
    print(f"\n{against_best_linear(OURS[0], LINEAR, found)}")
    table.summarize("held-out concordance of censored times")


if __name__ == "__main__":
    main()
