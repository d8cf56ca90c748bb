"""Competing risks, held out: Wolbers' C and AUC at a horizon, against cause-specific Cox models and survival forests.

    python -m benchmarks.competing [--splits 20]

Peers see events of other causes as censored, which is how cause-specific models are fitted. Data: scikit-survival's
small set of bone marrow transplants (``cgvhd``), and a simulated design of 1000 rows in which some columns raise the
cause of interest, some the other, and one raises both.
"""

import argparse

import numpy as np
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sksurv.datasets import load_cgvhd
from sksurv.ensemble import RandomSurvivalForest
from sksurv.linear_model import CoxPHSurvivalAnalysis

import pymc_pacauc as pac


def simulated(seed=0, n=1000):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 10))
    mine = rng.exponential(np.exp(-(0.8 * X[:, 0] - 0.5 * X[:, 1] + 0.5 * X[:, 4])))
    other = rng.exponential(np.exp(-(0.8 * X[:, 2] + 0.8 * X[:, 4])))
    censored = rng.exponential(2.0, size=n)
    time = np.minimum(np.minimum(mine, other), censored)
    return X, np.where(time == censored, 0, np.where(time == mine, 1, 2)), time


def transplants():
    covariates, outcome = load_cgvhd()
    X = covariates.apply(
        lambda column: column.astype("category").cat.codes if column.dtype.kind not in "fiu" else column
    )
    return X.to_numpy(dtype=float), outcome["status"].astype(int), outcome["ftime"].astype(float)


def structured(codes, time):
    return np.array(list(zip(codes == 1, time, strict=True)), dtype=[("event", bool), ("time", float)])


def scores(X, codes, time, X_test, horizon):
    y = np.column_stack([codes, time])
    yield "Wolbers' C, by EP", pac.ConcordanceEstimator().fit(X, y).predict(X_test)
    yield "AUC at the horizon, by EP", pac.ConcordanceEstimator(horizon=horizon).fit(X, y).predict(X_test)
    cox = make_pipeline(StandardScaler(), CoxPHSurvivalAnalysis(alpha=1.0))
    yield "cause-specific Cox", cox.fit(X, structured(codes, time)).predict(X_test)
    forest = RandomSurvivalForest(n_estimators=200, min_samples_leaf=15, random_state=0)
    yield "survival forest", forest.fit(X, structured(codes, time)).predict(X_test)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=20)
    splits = parser.parse_args().splits
    for name, (X, codes, time) in {"simulated": simulated(), "transplants": transplants()}.items():
        horizon = float(np.median(time[codes == 1]))
        found = {}
        for train, test in StratifiedShuffleSplit(splits, test_size=1 / 3, random_state=0).split(X, codes):
            for method, score in scores(X[train], codes[train], time[train], X[test], horizon):
                late = {"tau": float(np.quantile(time[test], 0.9)), "weights": "ipcw"}
                c = 1 - pac.concordance_risk(score, time[test], codes[test], **late)
                auc = 1 - pac.concordance_risk(score, time[test], codes[test], horizon=horizon)
                found.setdefault(method, []).append((c, auc))
        print(f"\n| {name}, {len(X)} rows, {splits} splits | Wolbers' C | AUC at {horizon:.3g} |\n|---|---|---|")
        reference = np.array(found["cause-specific Cox"])
        for method, values in found.items():
            values = np.array(values)
            apart = (values - reference).std(axis=0, ddof=1) / np.sqrt(splits)
            cells = [
                f"{m:.4f} ({m - r:+.4f} ± {s:.4f})"
                for m, r, s in zip(values.mean(axis=0), reference.mean(axis=0), apart, strict=True)
            ]
            print(f"| {method} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
