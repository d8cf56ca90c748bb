"""AUC learners side by side: held-out AUC, time, memory, growth with n and d, and rare positives.

    python benchmarks/peers.py [quality] [growth] [memory] [imbalance] [--figures docs/figures]

Everything by default. Prints Markdown. One thread; learners take turns on the same rows; times are medians of CPU
seconds. Peers that are not installed are left out (they are in ``requirements-peers.txt``
beside this file; LibAUC, which needs torch, is not).
"""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse
import logging
import resource
import subprocess
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from time import process_time

import numpy as np
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import reproduce_paper
from baselines import fit_bayesian_logit, fit_rankboost
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import LinearSVC

import pymc_pacauc as pac

SEED = 7
OURS = "EP-AUC"
PENALTIES = np.geomspace(1e-4, 1e2, 7)

# -- learners: (X, y, X_new, seed) -> scores of the new rows, hyper-parameters chosen on (X, y) ----------------------


def ep(X, y, X_new, seed):
    """Gamma by cross-validation of the expected AUC."""
    return reproduce_paper.ep_auc(X, y, X_new, np.random.default_rng(seed), repeats=1, every=2)[0].scores


def ep_by_mean(X, y, X_new, seed):
    """Gamma by cross-validation of the mean score's AUC."""
    return reproduce_paper.ep_auc(X, y, X_new, np.random.default_rng(seed), repeats=1, every=2)[1].scores


def ep_at_n(X, y, X_new, seed):
    """Gamma = n: nothing is chosen."""
    return X_new @ reproduce_paper.fit(X, y, float(len(y))).posterior.mean


def gp_ep(X, y, X_new, seed):
    return reproduce_paper.gpep_auc(X, y, X_new, np.random.default_rng(seed)).scores


def bayesian_logit(X, y, X_new, seed):
    return fit_bayesian_logit(X, y).scores(X_new)


def rankboost(X, y, X_new, seed):
    return reproduce_paper.rankboost(X, y, X_new, np.random.default_rng(seed)).scores


def by_penalty(estimator, X, y, X_new, seed):
    folds = StratifiedKFold(min(5, int(y.sum())), shuffle=True, random_state=seed)
    search = GridSearchCV(estimator, {"C": PENALTIES}, scoring="roc_auc", cv=folds)
    return search.fit(X, y).decision_function(X_new)


def logistic(X, y, X_new, seed):
    return by_penalty(LogisticRegression(max_iter=2000), X, y, X_new, seed)


def linear_svm(X, y, X_new, seed):
    return by_penalty(LinearSVC(max_iter=5000, random_state=seed), X, y, X_new, seed)


def xgboost_pairwise(X, y, X_new, seed, rounds=None):
    """Trees of depth 3 at rate 0.1; the number of rounds by cross-validation."""
    from xgboost import XGBRanker

    def fitted(X, y, rounds):
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
        return model.fit(X, y, qid=np.zeros(len(y), dtype=int))

    choices = (25, 50, 100, 200, 300)
    if rounds is None:
        held_out = np.zeros(len(choices))
        for inside, out in StratifiedKFold(min(5, int(y.sum())), shuffle=True, random_state=seed).split(X, y):
            model = fitted(X[inside], y[inside], max(choices))
            scores = [model.predict(X[out], iteration_range=(0, count)) for count in choices]
            held_out -= pac.empirical_risk(np.array(scores, dtype=float), y[out])
        rounds = choices[int(held_out.argmax())]
    return fitted(X, y, rounds).predict(X_new).astype(float)


def libauc_linear(X, y, X_new, seed):
    """LibAUC's AUC-margin loss and optimiser at their defaults on a linear score, 500 batches of 32 + 32 rows."""
    import torch
    from libauc.losses import AUCMLoss
    from libauc.optimizers import PESG

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    rng = np.random.default_rng(seed)
    positive, negative = np.flatnonzero(y > 0), np.flatnonzero(y == 0)
    inputs, labels = torch.tensor(X, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)[:, None]
    model, loss = torch.nn.Linear(X.shape[1], 1), AUCMLoss(device="cpu")
    optimizer = PESG(model.parameters(), loss_fn=loss, lr=0.1, verbose=False, device="cpu")
    for _ in range(500):
        rows = np.concatenate([rng.choice(positive, 32), rng.choice(negative, 32)])  # both classes, as LibAUC advises
        optimizer.zero_grad()
        loss(torch.sigmoid(model(inputs[rows])), labels[rows]).backward()
        optimizer.step()
    with torch.no_grad():
        return model(torch.tensor(X_new, dtype=torch.float32))[:, 0].numpy().astype(float)


def gp_classifier(X, y, X_new, seed):
    kernel = ConstantKernel(1.0) * RBF(np.sqrt(X.shape[1]))
    return GaussianProcessClassifier(kernel, random_state=seed).fit(X, y).predict_proba(X_new)[:, 1]


def nuts(X, y, X_new, seed, sampler="pymc"):
    """NUTS for the logistic pair loss in place of the AUC risk, gamma = n, prior N(0, I); compilation included."""
    import pymc as pm

    with pm.Model():
        theta = pm.Normal("theta", size=X.shape[1])
        pac.AUCPotential("auc", X @ theta, y, gamma=float(len(y)), loss="logistic", track_risk=False)
        options = {"draws": 500, "tune": 500, "chains": 1, "cores": 1, "random_seed": seed, "progressbar": False}
        idata = pm.sample(nuts_sampler=sampler, **options)
    return X_new @ idata.posterior["theta"].values.reshape(-1, X.shape[1]).mean(axis=0)


LINEAR = {
    OURS: ep,
    "EP-AUC, gamma by the mean score": ep_by_mean,
    "EP-AUC, gamma = n": ep_at_n,
    "LogisticRegression": logistic,
    "Bayesian logit (Laplace)": bayesian_logit,
    "LinearSVC": linear_svm,
}
TREES = {"RankBoost": rankboost}
if find_spec("xgboost"):
    TREES["XGBoost rank:pairwise"] = xgboost_pairwise
if find_spec("libauc"):
    LINEAR["LibAUC, linear"] = libauc_linear
SLOW = {"GPEP-AUC": gp_ep, "GaussianProcessClassifier": gp_classifier, "NUTS, logistic pairs": nuts}
LEARNERS = LINEAR | TREES | SLOW
SLOW_SPLITS = 3

# -- quality ---------------------------------------------------------------------------------------------------------


def splits(y, share, repeats):
    for rng in np.random.default_rng(SEED).spawn(repeats):
        train = np.zeros(y.size, dtype=bool)
        for label in (0, 1):
            members = rng.permutation(np.flatnonzero(y == label))
            train[members[: round(share * members.size)]] = True
        yield train


def compare(data, share, repeats, learners):
    """AUC and CPU seconds of each learner on each split, taking turns; NaN where a learner is run on fewer splits."""
    auc, seconds = {name: [] for name in learners}, {name: [] for name in learners}
    for number, train in enumerate(splits(data.y, share, repeats)):
        center, scale = data.X[train].mean(axis=0), data.X[train].std(axis=0)
        X = (data.X - center) / np.where(scale > 0, scale, 1.0)
        for name, learner in learners.items():
            if name in SLOW and number >= SLOW_SPLITS:
                continue
            began = process_time()
            scores = learner(X[train], data.y[train], X[~train], number)
            seconds[name].append(process_time() - began)
            auc[name].append(1.0 - float(pac.empirical_risk(scores, data.y[~train])))
    return auc, seconds


def quality():
    print("\n## Held-out AUC\n")
    print(
        f"Stratified splits, the same for all; slow learners run on the first {SLOW_SPLITS}. Difference: {OURS} minus "
        "the learner, paired by split, ± standard error; **bold** where a paired t test rejects at 5 % (splits "
        "overlap, so this is generous). Times include the choice of hyper-parameters.\n"
    )
    plan = (("pima", 2 / 3, 8), ("spect", 2 / 3, 8), ("glass", 2 / 3, 8), ("credit", 1 / 2, 4), ("dna", 1 / 8, 3))
    print("| data | learner | AUC | difference | CPU s |\n|---|---|---:|---:|---:|")
    verdicts = {}
    for name, share, repeats in plan:
        data = getattr(pac, f"load_{name}")()
        small = name in ("pima", "spect", "glass")
        auc, seconds = compare(data, share, repeats, LEARNERS if small else LINEAR | TREES)
        for learner, values in auc.items():
            values = np.array(values)
            difference = np.array(auc[OURS][: values.size]) - values
            cell, sign = ("", 0) if learner == OURS else paired(difference)
            verdicts.setdefault(learner, {})[name] = sign
            print(
                f"| {name} | {learner} | {values.mean():.4f} | {cell} | {np.median(seconds[learner]):.2f} |", flush=True
            )
    print("\n### Won and lost\n")
    for learner in LEARNERS:
        if learner == OURS:
            continue
        print(f"- {OURS} against {learner}: {verdict(verdicts[learner])}")


def paired(difference):
    """Mean ± standard error, bold where a paired t test rejects at 5 %, and then its sign, else 0."""
    mean, error = difference.mean(), difference.std(ddof=1) / np.sqrt(difference.size)
    said = f"{mean:+.4f} ± {error:.4f}"
    counts = abs(mean) > stats.t.ppf(0.975, difference.size - 1) * error
    return (f"**{said}**", int(np.sign(mean))) if counts else (said, 0)


def verdict(signs):
    """Where the difference counts, in words."""
    won = [name for name, sign in signs.items() if sign > 0]
    lost = [name for name, sign in signs.items() if sign < 0]
    said = [f"{word} {', '.join(names)}" for word, names in (("ahead on", won), ("behind on", lost)) if names]
    return "; ".join(said) if said else "no difference"


# -- growth and memory -----------------------------------------------------------------------------------------------


def simulated(n, d, positive=0.3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    score = X @ rng.standard_normal(d) / np.sqrt(d) + rng.logistic(size=n)
    return X, (score > np.quantile(score, 1 - positive)).astype(int)


def gp_ep_once(X, y):
    design, _ = reproduce_paper.kernel_features(X, X[:1], 2.0 * np.sqrt(X.shape[1]))
    return reproduce_paper.fit(design, y, float(len(y)))


def one_fit():
    """One fit at fixed hyper-parameters, as tuning grows otherwise, and the largest n and d it is run at."""
    fits = {
        "EP-AUC": (lambda X, y: ep_at_n(X, y, X[:1], 0), 8000, 320),
        "LogisticRegression": (lambda X, y: LogisticRegression(max_iter=2000).fit(X, y), 32000, 320),
        "LinearSVC": (lambda X, y: LinearSVC(max_iter=5000).fit(X, y), 32000, 320),
        "RankBoost, 100 rounds": (lambda X, y: fit_rankboost(X, y, 100), 16000, 320),
        "GPEP-AUC": (gp_ep_once, 1000, 80),
        "GaussianProcessClassifier": (lambda X, y: gp_classifier(X, y, X[:1], 0), 1000, 80),
        "NUTS, logistic pairs": (lambda X, y: nuts(X, y, X[:1], 0), 1000, 20),
    }
    if find_spec("nutpie"):
        fits["NUTS by nutpie, logistic pairs"] = (lambda X, y: nuts(X, y, X[:1], 0, "nutpie"), 500, 10)
    if find_spec("xgboost"):
        fits["XGBoost, 100 rounds"] = (lambda X, y: xgboost_pairwise(X, y, X[:1], 0, rounds=100), 16000, 320)
    if find_spec("libauc"):
        fits["LibAUC, linear"] = (lambda X, y: libauc_linear(X, y, X[:1], 0), 32000, 320)
    return fits


def growth(figures):
    print("\n## Growth of the time of one fit\n")
    print("CPU seconds at fixed hyper-parameters; the exponent is the slope of log time over the larger sizes.\n")
    curves = {}
    for title, sizes in (
        ("n at d = 10", [(n, 10) for n in (250, 500, 1000, 2000, 4000, 8000, 16000, 32000)]),
        ("d at n = 500", [(500, d) for d in (5, 10, 20, 40, 80, 160, 320)]),
    ):
        varied = [n if title.startswith("n") else d for n, d in sizes]
        print(f"| {title} | {' | '.join(map(str, varied))} | exponent |\n|---|{'---:|' * (len(sizes) + 1)}")
        for name, (function, largest_n, largest_d) in one_fit().items():
            function(*simulated(100, 5))  # compiles, imports
            found = []
            for n, d in sizes:
                if n > largest_n or d > largest_d:
                    break
                X, y = simulated(n, d)
                repeats = []
                while len(repeats) < 3 and sum(repeats) < 1.0:
                    began = process_time()
                    function(X, y)
                    repeats.append(process_time() - began)
                found.append(float(np.median(repeats)))
            cells = [f"{value:.3f}" for value in found] + [""] * (len(sizes) - len(found))
            print(f"| {name} | {' | '.join(cells)} | {slope(varied, found):.1f} |", flush=True)
            curves[title, name] = (varied[: len(found)], found)
        print(f"\n{ratios(title, curves)}\n")
    if figures is not None:
        draw_growth(curves, figures)
        print("![Time against n and against d](figures/growth.png)\n")


def ratios(title, curves):
    """EP's time over each peer's at the largest size both were run at."""
    sizes, ours = curves[title, "EP-AUC"]
    said = []
    for (other, name), (_, theirs) in curves.items():
        if other == title and name != "EP-AUC":
            last = min(len(ours), len(theirs)) - 1
            said.append(f"{name} {ours[last] / theirs[last]:.2g} (at {sizes[last]})")
    return f"Time of EP-AUC over that of the peer, at the largest size run by both: {', '.join(said)}."


def slope(sizes, seconds):
    """Over the larger half of the sizes, and at least three of them where there are."""
    first = max(0, min(len(seconds) // 2, len(seconds) - 3))
    if len(seconds) - first < 2:
        return float("nan")
    return float(np.polyfit(np.log(sizes[first : len(seconds)]), np.log(seconds[first:]), 1)[0])


def draw_growth(curves, figures):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from pymc_pacauc.plots.canvas import COLORS

    figures.mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained", sharey=True)
    names = list(dict.fromkeys(name for _, name in curves))
    for ax, title in zip(axes, dict.fromkeys(title for title, _ in curves), strict=True):
        for k, name in enumerate(names):
            sizes, seconds = curves[title, name]
            style = "-" if "EP-AUC" in name else ("--" if k < len(COLORS) else ":")
            ax.loglog(sizes, seconds, style, marker="o", markersize=3, color=COLORS[k % len(COLORS)], label=name)
        ax.set(xlabel=title, title=f"time against {title}")
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("CPU seconds of one fit")
    axes[1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    figure.savefig(figures / "growth.png", dpi=90)
    plt.close(figure)


def memory():
    print("\n## Memory of one fit\n")
    print("Growth of the peak resident memory during a fit, in a process of its own, after a small fit; d = 10.\n")
    print("| learner | n | MB |\n|---|---:|---:|", flush=True)
    for name, (_, largest, _) in one_fit().items():
        n = min(largest, 4000)
        subprocess.run([sys.executable, __file__, "one-memory", "--learner", name, "--rows", str(n)], check=True)


def one_memory(name, n):
    function = one_fit()[name][0]
    function(*simulated(100, 10))
    X, y = simulated(n, 10)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    function(X, y)
    print(f"| {name} | {n} | {(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024:.0f} |", flush=True)


# -- rare positives --------------------------------------------------------------------------------------------------


def shells(n, rng):
    """Eight strongly correlated, skewed measurements, like the sizes and weights of abalone."""
    size = rng.standard_normal((n, 1))
    return np.exp(0.35 * (size + 0.45 * rng.standard_normal((n, 8))))


WEIGHTS = np.array([1.0, -0.8, 0.6, 0.0, 0.5, -0.4, 0.0, 0.3])


def rare(kind, n, rng):
    """About 1 % positive. What differs is how the chance of a positive depends on the linear score."""
    X = shells(n, rng)
    score = X @ WEIGHTS
    score = (score - score.mean()) / score.std()
    if kind == "logistic":
        chance = 1 / (1 + np.exp(5.6 - 1.5 * score))
    elif kind == "step":
        chance = np.where(score > 0.5, 0.03, 0.0015)  # monotone, but no logistic curve
    else:  # the logistic model, but 1 % of the negatives are recorded ten times too large
        chance = 1 / (1 + np.exp(5.6 - 1.5 * score))
    y = (rng.random(n) < chance).astype(int)
    if kind == "gross errors":
        X = np.where(((rng.random(n) < 0.01) & (y == 0))[:, None], 10 * X, X)
    return X, y


def imbalance(replicates=20):
    print("\n## Rare positives: AUC risk against log-loss\n")
    print(
        "All scores are linear. glass: 4 % positive, 20 splits. Simulated: eight skewed, correlated measurements, "
        f"about 1 % positive, 2000 training rows, {replicates} data sets, tested on 20 000 other rows. *logistic*: "
        "a logistic model is true. *step*: the chance of a positive jumps at a threshold of the score. *gross errors*: "
        "logistic, but 1 % of the negative training rows are recorded ten times too large. Difference: EP-AUC minus "
        "the learner, paired, ± standard error; **bold** where a paired t test rejects at 5 %.\n"
    )
    header = ["data", "EP-AUC"]
    for name in ("EP-AUC, gamma = n", "LogisticRegression", "Bayesian logit"):
        header += [name, "difference"]
    print(f"| {' | '.join(header)} |\n|---|{'---:|' * (len(header) - 1)}")
    learners = {"ep": ep, "ep_at_n": ep_at_n, "logistic": logistic, "bayesian": bayesian_logit}
    glass = pac.load_glass()
    auc, _ = compare(glass, 2 / 3, 20, learners)
    verdicts = {"glass": rare_row("glass", auc)}
    for kind in ("logistic", "step", "gross errors"):
        auc = {name: [] for name in learners}
        for rng in np.random.default_rng(SEED).spawn(replicates):
            X, y = rare(kind, 2000, rng)
            X_new, y_new = rare("logistic" if kind == "gross errors" else kind, 20_000, rng)
            center, scale = X.mean(axis=0), X.std(axis=0)
            for name, learner in learners.items():
                scores = learner((X - center) / scale, y, (X_new - center) / scale, 0)
                auc[name].append(1.0 - float(pac.empirical_risk(scores, y_new)))
        verdicts[kind] = rare_row(f"simulated, {kind}", auc)
    print()
    for k, learner in enumerate(("EP-AUC, gamma = n", "LogisticRegression", "Bayesian logit")):
        print(f"- {OURS} against {learner}: {verdict({name: signs[k] for name, signs in verdicts.items()})}")


def rare_row(title, auc):
    ours, *others = (np.array(values) for values in auc.values())
    cells, signs = [f"{ours.mean():.4f}"], []
    for values in others:
        said, sign = paired(ours - values)
        signs.append(sign)
        cells += [f"{values.mean():.4f}", said]
    print(f"| {title} | {' | '.join(cells)} |", flush=True)
    return signs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ("quality", "imbalance", "growth", "memory")
    parser.add_argument("parts", nargs="*", help=", ".join(parts))
    parser.add_argument("--figures", type=Path)
    parser.add_argument("--learner")
    parser.add_argument("--rows", type=int)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # convergence of searches at their extremes
    logging.getLogger("pymc").setLevel(logging.ERROR)
    if arguments.parts == ["one-memory"]:
        one_memory(arguments.learner, arguments.rows)
        return
    for part in arguments.parts or parts:
        if part == "growth":
            growth(arguments.figures)
        else:
            {"quality": quality, "memory": memory, "imbalance": imbalance}[part]()


if __name__ == "__main__":
    main()
