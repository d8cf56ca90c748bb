"""Learners on the same splits, and differences between them: paired, with standard errors, in words."""

from time import process_time

import numpy as np
from scipy import stats

import pymc_pacauc as pac
from benchmarks.kept import kept

SEED = 7
OURS = ("EP-AUC", "EP-AUC, gamma by the mean score")
OWN = (*OURS, "EP-AUC, gamma = n", "SMC-AUC, gamma = n", "GPEP-AUC")  # these are not compared with as peers


def splits(y, share, repeats):
    """Masks of the training rows, stratified by class."""
    for rng in np.random.default_rng(SEED).spawn(repeats):
        train = np.zeros(y.size, dtype=bool)
        for label in np.unique(y):
            members = rng.permutation(np.flatnonzero(y == label))
            train[members[: round(share * members.size)]] = True
        yield train


def held_out_auc(scores, y):
    return 1.0 - float(pac.empirical_risk(scores, y))


def compare(data, share, repeats, learners, slow=(), slow_repeats=0):
    """AUC and CPU seconds of each learner on each split, taking turns; slow ones on the first splits only."""
    return compare_on(splits(data.y, share, repeats), data, learners, slow, slow_repeats)


def compare_on(masks, data, learners, slow=(), slow_repeats=0, judge=held_out_auc, path=None):
    """The same on any splits, given by masks of their training rows, and by any ``judge(scores, y)``.

    ``path`` is that of a file which keeps results, or None.
    """
    auc, seconds = {name: [] for name in learners}, {name: [] for name in learners}
    for number, train in enumerate(masks):
        center, scale = data.X[train].mean(axis=0), data.X[train].std(axis=0)
        X = (data.X - center) / np.where(scale > 0, scale, 1.0)
        for name, learner in learners.items():
            if name in slow and number >= slow_repeats:
                continue

            def one(learner=learner, X=X, train=train, number=number):
                began = process_time()
                scores = learner(X[train], data.y[train], X[~train], number)
                taken = process_time() - began
                return [judge(scores, data.y[~train]), taken]

            value, taken = kept(path, f"{name}, split {number}", one)
            auc[name].append(value)
            seconds[name].append(taken)
    return auc, seconds


def paired(difference):
    """Mean ± standard error, bold where a paired t test rejects at 5 %, and then its sign, else 0."""
    difference = np.asarray(difference)
    mean, error = difference.mean(), difference.std(ddof=1) / np.sqrt(difference.size)
    text = f"{mean:+.4f} ± {error:.4f}"
    counts = abs(mean) > stats.t.ppf(0.975, difference.size - 1) * error
    return (f"**{text}**", int(np.sign(mean))) if counts else (text, 0)


class Table:
    """Prints a row per learner and data set, and at the end what the top of the page says about the peers."""

    def __init__(
        self,
        ours=OURS,
        own=OWN,
        measure="AUC",
        headings=("EP-AUC minus it", "by the mean score"),
        differences="EP-AUC minus the learner, paired by split, ± standard error, once with gamma by the expected AUC "
        "of a drawn score and once by the AUC of the mean score",
    ):
        self.own = own
        self.signs = {each: {} for each in ours}  # [ours][peer][data]: 1 where ours is ahead, -1 where behind
        print(
            f"Differences: {differences}; **bold** where a paired t test rejects at 5 % (splits of one data set "
            "overlap, so this is generous). CPU seconds: medians, with the choice of hyper-parameters.\n"
        )
        print(f"| data | learner | {measure} | {' | '.join(headings)} | CPU s |")
        print("|---|---|---:|---:|---:|---:|", flush=True)

    def add(self, data, auc, seconds):
        for learner, values in auc.items():
            cells = []
            for ours in self.signs:
                text, sign = ("", 0) if learner == ours else paired(np.array(auc[ours][: len(values)]) - values)
                cells.append(text)
                if learner not in self.own:
                    self.signs[ours].setdefault(learner, {})[data] = sign
            cells = [data, learner, f"{np.mean(values):.4f}", *cells, f"{np.median(seconds[learner]):.2f}"]
            print(f"| {' | '.join(cells)} |", flush=True)

    def summarize(self, what):
        for ours, signs in self.signs.items():
            for verdict, wanted, words in (("Won", 1, "ahead of"), ("Lost", -1, "behind")):
                where = {
                    peer: [data for data, sign in found.items() if sign == wanted] for peer, found in signs.items()
                }
                text = [f"{peer} ({', '.join(names)})" for peer, names in where.items() if names]
                if text:
                    print(f"\n{verdict}: {what}: {ours} is {words} {'; '.join(text)}.")
            even = [peer for peer, found in signs.items() if not any(found.values())]
            if even:
                print(f"\nEven: {what}: {ours} does not differ significantly from {'; '.join(even)}.")
