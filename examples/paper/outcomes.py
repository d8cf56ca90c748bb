"""Every method on every split of a data set."""

import warnings
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

import pymc_pacauc as pac
from benchmarks.paper_methods import Fitted, ep_auc, gpep_auc, logit, rankboost
from pymc_pacauc.ep.loop import ConvergenceWarning

from .cases import SEED, Case

BY_MEAN = "EP-AUC, gamma by the mean score"
AVERAGED = "GPEP-AUC, averaged over lengthscales"


@dataclass(frozen=True)
class Outcome:
    """One data set: for each split, its test labels and each method's result."""

    case: Case
    labels: list[np.ndarray]
    results: dict[str, list[Fitted]]
    unconverged: int

    def auc(self, method):
        pairs = zip(self.results[method], self.labels, strict=True)
        return np.array([1.0 - pac.empirical_risk(fitted.scores, y) for fitted, y in pairs])

    def error(self, method):
        """Standard error: over splits, or DeLong's over the rows of the one test set."""
        if self.case.repeats > 1:
            return self.auc(method).std(ddof=1) / np.sqrt(self.case.repeats)
        return pac.auc_interval(self.results[method][0].scores, self.labels[0]).se

    def seconds(self, method):
        return float(np.median([fitted.seconds for fitted in self.results[method]]))

    def chosen(self, method):
        names = self.results[method][0].chosen
        return {name: float(np.median([fitted.chosen[name] for fitted in self.results[method]])) for name in names}


def run(case: Case) -> Outcome:
    labels, results, unconverged = [], {}, 0
    for number, train in enumerate(case.splits()):
        data = replace(case.data, train=train).standardized()
        X, y, X_test = data.X[train], data.y[train], data.X[~train]
        labels.append(data.y[~train])
        rng = partial(np.random.default_rng, [SEED, number])  # the same folds for every method
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            found = dict(zip(("EP-AUC", BY_MEAN), ep_auc(X, y, X_test, rng()), strict=True))
            found |= zip(("GPEP-AUC", AVERAGED), gpep_auc(X, y, X_test, rng()), strict=True)
        found["Logit"] = logit(X, y, X_test, rng())
        found["RankBoost"] = rankboost(X, y, X_test, rng())
        unconverged += sum(issubclass(warning.category, ConvergenceWarning) for warning in caught)
        for name, fitted in found.items():
            results.setdefault(name, []).append(fitted)
    return Outcome(case, labels, results, unconverged)
