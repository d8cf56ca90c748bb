"""Held-out concordance of ordered classes, and within queries or hospitals: EP's linear score against peers.

    python -m benchmarks.ordered [--splits 20] [--keep FOLDER]

*Ordered classes*: all pairs of two different classes are compared. diabetes: progression in five equal classes
(scikit-learn); ANES 96: party identification, seven classes; Fair: rating of a marriage, five classes, a tenth of the
rows for training (statsmodels). Peers: proportional odds (statsmodels' OrderedModel), XGBRanker's rank:pairwise.

*Strata*: only rows of one query are compared, and whole queries are held out. Mode choice: 210 travellers, the mode
each chose among four (statsmodels; without waiting time, which is imputed where a mode was not chosen and so gives the
answer away). Hospitals: simulated, 40 hospitals of 20 rows; covariates and the share of positives
differ between hospitals for reasons that have nothing to do with each other, so that comparisons across hospitals
mislead. Peers: conditional logit (statsmodels), XGBRanker with qid.

Ours: coefficients N(0, 1), posterior mean, gamma by cross-validation within the training rows or gamma = n, the number
of rows. Columns are standardised on the training rows.
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
from sklearn.model_selection import GroupKFold, StratifiedKFold

from benchmarks.kept import add_option
from benchmarks.paired import SEED, Table, compare_on, splits
from benchmarks.survival import OURS, against_best_linear
from pymc_pacauc import arrays

ROUNDS = (10, 25, 50, 100, 200)
SHARE = {"diabetes": 0.5, "ANES 96": 0.5, "Fair": 0.1}


# -- data ------------------------------------------------------------------------------------------------------------


def diabetes():
    from sklearn.datasets import load_diabetes

    X, progression = load_diabetes(return_X_y=True)
    return X, np.digitize(progression, np.quantile(progression, [0.2, 0.4, 0.6, 0.8]))


def anes():
    from statsmodels.datasets import anes96

    data = anes96.load_pandas().data
    return data[["logpopul", "TVnews", "selfLR", "age", "educ", "income"]].to_numpy(), data["PID"].to_numpy(dtype=int)


def fair():
    from statsmodels.datasets import fair as source

    data = source.load_pandas().data
    columns = ["age", "yrs_married", "children", "religious", "educ", "occupation", "occupation_husb", "affairs"]
    return data[columns].to_numpy(), data["rate_marriage"].to_numpy(dtype=int)


def mode_choice():
    """Travelling time, cost, generalised cost; a constant of each mode but one, also times income.

    Waiting time is left out: in these data it takes one of two values wherever a mode was *not* chosen, so trees can
    read the answer off it.
    """
    from statsmodels.datasets import modechoice

    data = modechoice.load_pandas().data
    modes = (data[["mode"]].to_numpy() == [1, 2, 3]).astype(float)
    X = np.column_stack([data[["invc", "invt", "gc"]], modes, modes * data[["hinc"]].to_numpy()])
    return X, data["choice"].to_numpy(dtype=int), data["individual"].to_numpy(dtype=int)


def hospitals():
    rng = np.random.default_rng(SEED)
    hospital = np.repeat(np.arange(40), 20)
    X = rng.standard_normal((40, 6))[hospital] + rng.standard_normal((hospital.size, 6))
    log_odds = X @ [1.0, -0.7, 0.5, 0.3, 0.0, 0.0] + 3.0 * rng.standard_normal(40)[hospital]
    return X, (rng.random(hospital.size) < 1 / (1 + np.exp(-log_odds))).astype(int), hospital


def in_queries(X, label, query):
    """Labels and queries as one array, which is split, sliced and judged as a whole."""
    y = np.empty(len(X), dtype=[("label", int), ("query", int)])
    y["label"], y["query"] = label, query
    return SimpleNamespace(X=X, y=y)


def query_splits(query, repeats):
    """Masks of the training rows: half of the queries."""
    found = np.unique(query)
    for rng in np.random.default_rng(SEED).spawn(repeats):
        yield np.isin(query, rng.permutation(found)[: found.size // 2])


# -- what is measured, and by whom -----------------------------------------------------------------------------------


def pairs_of(y):
    """Of ordered classes, or of labels within queries."""
    if y.dtype.names is None:
        return arrays.ordered_classes(y)
    return arrays.stratified(arrays.bipartite(y["label"]), y["query"])


def concordance(scores, y):
    return 1.0 - float(arrays.pair_risk(np.asarray(scores, dtype=float)[None], pairs_of(y))[0])


def ep_by_folds(X, y, X_new, seed):
    """Queries are never split between folds."""
    problem = arrays.linear_gaussian_problem(X, pairs_of(y), gamma=1.0)
    groups = None if y.dtype.names is None else y["query"]
    gamma = arrays.choose_gamma(problem, groups=groups, n_jobs=1).gamma
    return X_new @ arrays.fit(replace(problem, gamma=gamma), n_jobs=1).posterior.mean


def ep_at_n(X, y, X_new, seed):
    return X_new @ arrays.fit(arrays.linear_gaussian_problem(X, pairs_of(y), gamma=float(len(y)))).posterior.mean


def proportional_odds(X, y, X_new, seed):
    from statsmodels.miscmodels.ordinal_model import OrderedModel

    fitted = OrderedModel(y, X, distr="logit").fit(method="bfgs", maxiter=1000, disp=False)
    return X_new @ fitted.params[: X.shape[1]]


def conditional_logit(X, y, X_new, seed):
    from statsmodels.discrete.conditional_models import ConditionalLogit

    return X_new @ ConditionalLogit(y["label"], X, groups=y["query"]).fit(disp=False).params


def xgboost_pairwise(X, y, X_new, seed):
    """Trees of depth 3 at rate 0.1; the number of rounds by the concordance of five folds."""
    in_strata = y.dtype.names is not None
    folds = GroupKFold(5) if in_strata else StratifiedKFold(5, shuffle=True, random_state=seed)
    cut = folds.split(X, groups=y["query"]) if in_strata else folds.split(X, y)
    held_out = []
    for inside, out in cut:
        model = fit_ranker(X[inside], y[inside], max(ROUNDS), seed)
        held_out.append([concordance(model.predict(X[out], iteration_range=(0, r)), y[out]) for r in ROUNDS])
    rounds = ROUNDS[int(np.mean(held_out, axis=0).argmax())]
    return fit_ranker(X, y, rounds, seed).predict(X_new).astype(float)


def fit_ranker(X, y, rounds, seed):
    from xgboost import XGBRanker

    label, query = (y, np.zeros(len(y), dtype=int)) if y.dtype.names is None else (y["label"], y["query"])
    order = np.argsort(query, kind="stable")  # it wants queries one after the other
    model = XGBRanker(
        objective="rank:pairwise",
        lambdarank_pair_method="mean",  # pairs from the whole ranking; the default looks at its top
        lambdarank_num_pair_per_sample=8,
        n_estimators=rounds,
        max_depth=3,
        learning_rate=0.1,
        n_jobs=1,
        random_state=seed,
    )
    return model.fit(X[order], label[order] - label.min(), qid=query[order])


ENGINES = {"EP, gamma by cross-validation": ep_by_folds, "EP, gamma = n": ep_at_n}
ORDERED = {**ENGINES, "proportional odds": proportional_odds, "XGBRanker rank:pairwise": xgboost_pairwise}
STRATA = {**ENGINES, "conditional logit": conditional_logit, "XGBRanker(qid)": xgboost_pairwise}


def table_of(title, learners, linear, sets, what, folder):
    print(f"\n## {title}\n")
    headings = ("ours minus it", "with gamma = n")
    table = Table(OURS, OURS, "concordance", headings, "ours minus the learner, paired by split, ± standard error")
    found = {}
    for name, (data, masks) in sets.items():
        path = folder and Path(folder) / f"ordered-{name}.json"
        found[name], seconds = compare_on(masks, data, learners, judge=concordance, path=path)
        table.add(name, found[name], seconds)
    print(f"\n{against_best_linear(OURS[0], [linear], found)}")
    table.summarize(what)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=20)
    add_option(parser)
    arguments = parser.parse_args()
    repeats = arguments.splits
    warnings.simplefilter("ignore")  # convergence of searches at their extremes
    print(
        f"{repeats} random splits, the same for all. Scores of EP and of the logits are linear, XGBRanker's are trees."
    )
    ordered = {}
    for name, load in (("diabetes", diabetes), ("ANES 96", anes), ("Fair", fair)):
        X, y = load()
        ordered[name] = SimpleNamespace(X=X, y=y), splits(y, SHARE[name], repeats)
    what = "held-out concordance of ordered classes"
    table_of("Ordered classes", ORDERED, "proportional odds", ordered, what, arguments.keep)
    strata = {}
    for name, load in (("mode choice", mode_choice), ("hospitals (simulated)", hospitals)):
        data = in_queries(*load())
        strata[name] = data, query_splits(data.y["query"], repeats)
    table_of("Strata", STRATA, "conditional logit", strata, "held-out concordance within strata", arguments.keep)


if __name__ == "__main__":
    main()
