"""Unordered classes: Hand and Till's M on other rows, against logistic regression tuned for it and boosted trees.

    python -m benchmarks.multi_class [--splits 20] [--only wine ...]

Half of the rows learn. Peers: ``LogisticRegressionCV(scoring="roc_auc_ovo")`` on standardised columns, and LightGBM as
it comes, where it is installed. In brackets the difference from the logistic regression, with its standard error.
"""

import argparse
import time
import warnings

import numpy as np
from sklearn.datasets import load_digits, load_wine
from sklearn.linear_model import LogisticRegressionCV
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


DATA = {
    "wine": lambda: load_wine(return_X_y=True),
    "digits": lambda: load_digits(return_X_y=True),
    "rare classes": rare_classes,
}


def ours(X, y, X_test):
    return pac.AUCClassifier().fit(X, y).decision_function(X_test)


def logistic(X, y, X_test):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of convergence and of changes to come
        model = LogisticRegressionCV(Cs=np.geomspace(1e-3, 1e2, 6), scoring="roc_auc_ovo", max_iter=500, cv=5)
        return make_pipeline(StandardScaler(), model).fit(X, y).predict_proba(X_test)


def lightgbm(X, y, X_test):
    from lightgbm import LGBMClassifier

    return LGBMClassifier(verbose=-1, n_jobs=1, random_state=0).fit(X, y).predict_proba(X_test)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--only", nargs="*", default=list(DATA))
    given = parser.parse_args()
    methods = {"AUCClassifier": ours, "logistic": logistic}
    try:
        import lightgbm as _  # noqa: F401

        methods["LightGBM"] = lightgbm
    except ImportError:
        pass
    print("| data | " + " | ".join(methods) + " | CPU seconds |\n|---|" + "---|" * (len(methods) + 1))
    for name in given.only:
        X, y = DATA[name]()
        found, seconds = [], np.zeros(len(methods))
        for train, test in StratifiedShuffleSplit(given.splits, test_size=0.5, random_state=0).split(X, y):
            row = []
            for k, method in enumerate(methods.values()):
                begun = time.process_time()
                row.append(1 - pac.empirical_risk(method(X[train], y[train], X[test]), y[test], multi_class="ovo"))
                seconds[k] += (time.process_time() - begun) / given.splits
            found.append(row)
        values = np.array(found)
        apart = values - values[:, [1]]
        error = apart.std(axis=0, ddof=1) / np.sqrt(given.splits)
        cells = [f"{m:.4f} ({a:+.4f} ± {s:.4f})" for m, a, s in zip(values.mean(0), apart.mean(0), error, strict=True)]
        print(f"| {name} | " + " | ".join(cells) + f" | {', '.join(f'{s:.1f}' for s in seconds)} |", flush=True)


if __name__ == "__main__":
    main()
