"""AUCClassifier as it comes against the usual linear ones, each with its penalty chosen on the training rows.

    python -m benchmarks.defaults [data ...] [--splits 20] [--variants]

The shipped data sets; breast cancer; digits, 3 and 8 each against the rest; simulated rows with 0.1, 1, 10 and 50 %
positives, with 5 and 10 % of the labels wrong, with outliers, and with heavy tails. Simulated rows are tested on 20 000
others, without wrong labels or outliers; where ten or twenty rows are positive there are twice as many splits. One
thread. ``--variants`` compares the defaults with what else they might have been, on the training rows alone: in three
folds of those of each of three splits.
"""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse
import warnings
from time import process_time

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer, RobustScaler, StandardScaler
from sklearn.svm import LinearSVC

import pymc_pacauc as pac
from benchmarks.baselines import fit_bayesian_logit
from benchmarks.paired import SEED, held_out_auc, paired, splits

SHARE = {"pima": 2 / 3, "spect": 2 / 3, "glass": 2 / 3, "credit": 1 / 2, "dna": 1 / 8}  # of the rows, for training
SIMULATED = {  # rows, share of positives, share of wrong labels, what happens to the training rows
    "0.1 % positive": (10_000, 0.001, 0.0, None),
    "1 % positive": (2000, 0.01, 0.0, None),
    "10 % positive": (500, 0.1, 0.0, None),
    "50 % positive": (500, 0.5, 0.0, None),
    "5 % wrong": (500, 0.3, 0.05, None),
    "10 % wrong": (500, 0.3, 0.1, None),
    "outliers": (500, 0.3, 0.0, "outliers"),
    "heavy tails": (500, 0.3, 0.0, "tails"),
}
RARE = ("0.1 % positive", "1 % positive")
OURS = "AUCClassifier"
PEERS = ("LogisticRegressionCV", "LinearSVC", "Bayesian logit (Laplace)")


def rows_of(name, repeats):
    """(X, y, X_new, y_new) for each split."""
    if name in SIMULATED:
        for seed in range(repeats):
            yield simulated(*SIMULATED[name], seed)
        return
    if name in SHARE:
        data = getattr(pac.datasets, f"load_{name}")()
        X, y, share = data.X, data.y, SHARE[name]
    elif name == "breast cancer":
        X, y, share = *load_breast_cancer(return_X_y=True), 1 / 2
    else:
        X, digit = load_digits(return_X_y=True)
        y, share = (digit == int(name.removeprefix("digits "))).astype(int), 1 / 4
    for train in splits(y, share, repeats):
        yield X[train], y[train], X[~train], y[~train]


NAMES = (*SHARE, "breast cancer", "digits 3", "digits 8", *SIMULATED)


def simulated(n, share, wrong, harm, seed):
    total = n + 20_000
    X, y = make_classification(
        total, 20, n_informative=6, n_redundant=4, weights=[1 - share], flip_y=0.0, class_sep=0.6, random_state=seed
    )
    rng = np.random.default_rng([SEED, seed])
    if harm == "tails":
        X = np.sinh(1.2 * X)
    train = next(splits(y, n / total, 1))
    X, X_new, y, y_new = X[train], X[~train], y[train].copy(), y[~train]
    flipped = rng.random(len(y)) < wrong
    y[flipped] = 1 - y[flipped]
    if harm == "outliers":
        rows = rng.random(len(y)) < 0.02
        X[rows] *= 10 * rng.standard_normal((int(rows.sum()), 1))
    return X, y, X_new, y_new


def folds(y, seed):
    return StratifiedKFold(min(5, int(np.bincount(y).min())), shuffle=True, random_state=seed)


def logistic(X, y, X_new, seed):
    options = {
        "scoring": "roc_auc",
        "cv": folds(y, seed),
        "max_iter": 2000,
        "l1_ratios": (0.0,),
        "use_legacy_attributes": False,
    }
    return make_pipeline(StandardScaler(), LogisticRegressionCV(**options)).fit(X, y).decision_function(X_new)


def linear_svm(X, y, X_new, seed):
    machine = LinearSVC(max_iter=5000, random_state=seed)
    search = GridSearchCV(machine, {"C": np.geomspace(1e-4, 1e2, 7)}, scoring="roc_auc", cv=folds(y, seed))
    return make_pipeline(StandardScaler(), search).fit(X, y).decision_function(X_new)


def bayesian_logit(X, y, X_new, seed):
    scaler = StandardScaler().fit(X)
    return fit_bayesian_logit(scaler.transform(X), y).scores(scaler.transform(X_new))


def ours(X, y, X_new, seed):
    return pac.AUCClassifier(random_state=seed).fit(X, y).decision_function(X_new)


LEARNERS = {OURS: ours, **dict(zip(PEERS, (logistic, linear_svm, bayesian_logit), strict=True))}


def classifier(scaler=None, **options):
    """What makes the default estimator with these options, after a transformation of the columns if there is one."""

    def make(seed):
        estimator = pac.AUCClassifier(random_state=seed, **options)
        return estimator if scaler is None else make_pipeline(scaler(), estimator)

    return make


VARIANTS = {
    "independent coefficients": classifier(prior="ridge"),
    "gamma without folds": classifier(gamma="default"),
    "gamma by certificate": classifier(gamma="certificate"),
    "robust scales": classifier(RobustScaler, standardize=False),
    "ranks": classifier(lambda: QuantileTransformer(n_quantiles=100, output_distribution="normal")),
}
INNER_SPLITS, INNER_FOLDS = 3, 3


def against_variants(names):
    """AUC of the defaults minus that of each variant in folds of the training rows, paired by split."""
    print(f"\nThe defaults minus variants of them, on training rows alone:\n\n| data | {' | '.join(VARIANTS)} |")
    print("|---|" + "---:|" * len(VARIANTS), flush=True)
    makers = {OURS: classifier(), **VARIANTS}
    for name in names:
        found = {variant: np.empty((INNER_SPLITS, INNER_FOLDS)) for variant in makers}
        for number, (X, y, _, _) in enumerate(rows_of(name, INNER_SPLITS)):
            inner = StratifiedKFold(INNER_FOLDS, shuffle=True, random_state=number)
            for k, (seen, left) in enumerate(inner.split(X, y)):
                for variant, make in makers.items():
                    scores = make(number).fit(X[seen], y[seen]).decision_function(X[left])
                    found[variant][number, k] = held_out_auc(scores, y[left])
        lost = [paired((found[OURS] - found[variant]).mean(axis=1))[0] for variant in VARIANTS]
        print(f"| {name} | {' | '.join(lost)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="*", default=list(NAMES), help=", ".join(NAMES))
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--variants", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # convergence of searches at their extremes
    print(f"| data | {' | '.join(LEARNERS)} | minus the best peer | CPU s | of LogisticRegressionCV |")
    print("|---|" + "---:|" * (len(LEARNERS) + 3), flush=True)
    behind, ahead = [], 0
    for name in arguments.data:
        auc, seconds = ({learner: [] for learner in LEARNERS} for _ in range(2))
        for number, (X, y, X_new, y_new) in enumerate(rows_of(name, arguments.splits * (2 if name in RARE else 1))):
            for learner, fit in LEARNERS.items():
                began = process_time()
                scores = fit(X, y, X_new, number)
                seconds[learner].append(process_time() - began)
                auc[learner].append(held_out_auc(scores, y_new))
        best = max(PEERS, key=lambda peer: np.mean(auc[peer]))
        difference = np.array(auc[OURS]) - auc[best]
        ahead += difference.mean() > 0
        behind += [name] if difference.mean() < -0.002 else []
        means = " | ".join(f"{np.mean(values):.4f}" for values in auc.values())
        times = " | ".join(f"{np.median(seconds[learner]):.2f}" for learner in (OURS, PEERS[0]))
        print(f"| {name} | {means} | {paired(difference)[0]} ({best}) | {times} |", flush=True)
    print(
        f"\nAhead of the best peer on {ahead} of {len(arguments.data)}; more than 0.002 behind it on: "
        f"{', '.join(behind) or 'none'}."
    )
    if arguments.variants:
        against_variants(arguments.data)


if __name__ == "__main__":
    main()
