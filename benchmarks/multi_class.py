"""Unordered classes: Hand and Till's M on other rows, against logistic regression tuned for it and boosted trees.

    python -m benchmarks.multi_class [--splits 20] [--only wine ...] [--data FOLDER] [--balanced]

Half of the rows learn. Peers: ``LogisticRegressionCV(scoring="roc_auc_ovo")`` on standardised columns, as it comes and
with ``class_weight="balanced"``, and LightGBM as it comes, where it is installed, else scikit-learn's
HistGradientBoosting. M is that of ``predict_proba``, as scikit-learn scores it, and of ``decision_function``; in
brackets the difference from the probabilities of the logistic regression, with its standard error. Log-loss and CPU
seconds are of AUCClassifier and its peers. Glass (six classes) and dna (three) come from OpenML, or from ``glass.csv``
and ``dna.csv`` in a folder, the class in the last column. ``--balanced`` compares the two linear methods with
``class_weight="balanced"`` both.
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import fetch_openml, load_digits, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pymc_pacauc as pac


def rare_classes(seed=0, n=800):
    """Four classes of 18 columns, as silhouettes of vehicles have them, two of which are rare."""
    rng = np.random.default_rng(seed)
    y = rng.choice(4, size=n, p=[0.55, 0.35, 0.06, 0.04])
    centres = rng.normal(size=(4, 18))
    mixing = rng.normal(size=(18, 18)) / np.sqrt(18)
    return (0.8 * centres[y] + 1.5 * rng.normal(size=(n, 18))) @ mixing, y


def held(name, folder):
    if folder is None:
        found = fetch_openml(name, version=1, as_frame=False)
        return found.data.astype(float), np.unique(found.target, return_inverse=True)[1]
    table = np.loadtxt(folder / f"{name}.csv", delimiter=",", skiprows=1)
    return table[:, :-1], np.unique(table[:, -1], return_inverse=True)[1]


DATA = {
    "wine": lambda folder: load_wine(return_X_y=True),
    "glass": lambda folder: held("glass", folder),
    "rare classes": lambda folder: rare_classes(),
    "dna": lambda folder: held("dna", folder),
    "digits": lambda folder: load_digits(return_X_y=True),
}


def ours(X, y, X_test, class_weight=None):
    found = pac.AUCClassifier(class_weight=class_weight).fit(X, y)
    return found.predict_proba(X_test), found.decision_function(X_test)


def logistic(X, y, X_test, class_weight=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of convergence and of changes to come
        model = LogisticRegressionCV(
            Cs=np.geomspace(1e-3, 1e2, 6), scoring="roc_auc_ovo", max_iter=500, cv=5, class_weight=class_weight
        )
        found = make_pipeline(StandardScaler(), model).fit(X, y)
        return found.predict_proba(X_test), found.decision_function(X_test)


def balanced(X, y, X_test):
    return logistic(X, y, X_test, "balanced")[:1]


def ours_balanced(X, y, X_test):
    return ours(X, y, X_test, "balanced")


def trees(X, y, X_test):
    try:
        from lightgbm import LGBMClassifier
    except ImportError:
        return (HistGradientBoostingClassifier(random_state=0).fit(X, y).predict_proba(X_test),)
    return (LGBMClassifier(verbose=-1, n_jobs=1, random_state=0).fit(X, y).predict_proba(X_test),)


METHODS = {"AUCClassifier": ours, "logistic": logistic, "balanced": balanced, "boosted trees": trees}
COLUMNS = ("AUCClassifier", ".. decisions", "logistic", ".. decisions", ".. balanced", "boosted trees")
BALANCED = {"AUCClassifier, balanced": ours_balanced, "logistic, balanced": balanced}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--only", nargs="*", default=list(DATA))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--balanced", action="store_true")
    given = parser.parse_args()
    methods, columns = METHODS, COLUMNS
    if given.balanced:
        methods, columns = BALANCED, ("AUCClassifier, balanced", ".. decisions", "logistic, balanced")
    print("| data | " + " | ".join(columns) + " |\n|---|" + "---|" * len(columns))
    besides = [f"| data | log-loss: {', '.join(methods)} | CPU seconds |", "|---|---|---|"]
    for name in given.only:
        X, y = DATA[name](given.data)
        found, losses, seconds = [], np.zeros(len(methods)), np.zeros(len(methods))
        for train, test in StratifiedShuffleSplit(given.splits, test_size=0.5, random_state=0).split(X, y):
            row = []
            for k, method in enumerate(methods.values()):
                begun = time.process_time()
                scored = method(X[train], y[train], X[test])
                seconds[k] += (time.process_time() - begun) / given.splits
                losses[k] += log_loss(y[test], scored[0]) / given.splits
                row += [1 - pac.empirical_risk(each, y[test], multi_class="ovo") for each in scored]
            found.append(row)
        values = np.array(found)
        apart = values - values[:, [2]]
        error = apart.std(axis=0, ddof=1) / np.sqrt(given.splits)
        cells = [f"{m:.4f} ({a:+.4f} ± {s:.4f})" for m, a, s in zip(values.mean(0), apart.mean(0), error, strict=True)]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
        shown = [", ".join(f"{x:.{digits}f}" for x in values) for values, digits in ((losses, 3), (seconds, 1))]
        besides.append(f"| {name} | {' | '.join(shown)} |")
    print("", *besides, sep="\n")


if __name__ == "__main__":
    main()
