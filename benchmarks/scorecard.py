"""Points scorecards of five variables: ``pac.scorecard``, a rounded logit, and FasterRisk where it is installed.

Every split learns on two thirds of the rows and is judged on the rest. Columns are cut at their medians where they have
more than two values, since FasterRisk and rounded logits work on such indicators; at most 5 points up or down.

    python -m benchmarks.scorecard [--splits 10]

(FasterRisk 0.1.10 calls ``ndarray.tostring``, which NumPy 2.3 removed: with later versions replace it by ``tobytes``.)
"""

import argparse

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedShuffleSplit

import pymc_pacauc as pac

POINTS, TERMS = 5, 5


def indicators(X):
    binary = np.array([np.unique(column).size <= 2 for column in X.T])
    low, high = X.min(axis=0), np.median(X, axis=0)
    return np.where(binary, low < X, high < X).astype(float)


def ours(X, y, X_test):
    fitted = pac.AUCClassifier(random_state=0).fit(X, y)
    card = pac.scorecard(fitted, X, y, points=POINTS, max_terms=TERMS)
    places = [int(str(name).removeprefix("x")) for name in card.columns]
    return card.score(X_test[:, places]), fitted.decision_function(X_test)


def rounded_logit(X, y, X_test):
    """The five columns of an L1 logit, refitted and rounded so that the largest has all points."""
    for C in np.geomspace(1e-3, 10.0, 60):
        coefficients = LogisticRegression(C=C, l1_ratio=1.0, solver="liblinear").fit(X, y).coef_[0]
        if np.sum(coefficients != 0.0) >= TERMS:
            break
    chosen = np.argsort(-np.abs(coefficients))[:TERMS]
    refitted = LogisticRegression(C=1e6).fit(X[:, chosen], y).coef_[0]
    return X_test[:, chosen] @ np.rint(POINTS * refitted / np.abs(refitted).max())


def faster_risk(X, y, X_test):
    from fasterrisk.fasterrisk import RiskScoreOptimizer

    optimizer = RiskScoreOptimizer(X=X, y=np.where(y, 1.0, -1.0), k=TERMS, lb=-POINTS, ub=POINTS)
    optimizer.optimize()
    _, _, coefficients = optimizer.get_models()
    return X_test @ coefficients[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=10)
    splits = parser.parse_args().splits
    try:
        import fasterrisk  # noqa: F401

        peers = {"rounded logit": rounded_logit, "FasterRisk": faster_risk}
    except ImportError:
        peers = {"rounded logit": rounded_logit}
    print("| data | mean score | card | " + " | ".join(peers) + " |")
    print("|---|---|---|" + "---|" * len(peers))
    for name, load in (
        ("Pima", pac.datasets.load_pima),
        ("SPECT", pac.datasets.load_spect),
        ("Credit", pac.datasets.load_credit),
    ):
        data = load()
        X, y = indicators(data.X), data.y.astype(bool)
        found = []
        for train, test in StratifiedShuffleSplit(splits, test_size=1 / 3, random_state=0).split(X, y):
            card, full = ours(X[train], y[train], X[test])
            others = [peer(X[train], y[train], X[test]) for peer in peers.values()]
            found.append([roc_auc_score(y[test], score) for score in (full, card, *others)])
        mean = np.mean(found, axis=0)
        print(f"| {name} | " + " | ".join(f"{value:.4f}" for value in mean) + " |", flush=True)


if __name__ == "__main__":
    main()
