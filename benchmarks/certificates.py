"""How tight are certificates, and how often do they fail?

Two Gaussian classes, N(+delta/2, I) and N(-delta/2, I) in d = 7, a third of the rows positive: the AUC of any linear
score is known, Phi(<theta, delta> / (sqrt(2) |theta|)). A row of the table is one n and one best possible AUC. Its
columns, all at epsilon = 0.05, each with the true AUC of the very score it certifies:

- *a draw*, from the posterior of all rows: PAC-Bayes-kl and Catoni's bound, which count min(n+, n-) comparisons; the
  mean over matchings; and the same with the posterior of half of the rows as prior, on the other half;
- *the mean score* of the posterior of all rows: twice the risk of PAC-Bayes-kl, of the mean over matchings, and the
  margin bound of a split;
- *the part's mean score*, that of half of the rows, on the other half: Chernoff's bound, and the mean over matchings.

Beyond 5000 rows the posterior is that of 5000 of them (gamma multiplies a mean risk, so it is nearly the same), and the
bounds, which hold for any posterior, are computed with all rows.

python -m benchmarks.certificates [--datasets 50] [--smallest 200] [--largest 50000] [--aucs 0.7 ...] [--plot a.png]
python -m benchmarks.certificates --holdout --datasets 500  # failures of the bound for a fixed score, four shapes
python -m benchmarks.certificates --groups --datasets 500  # of PAC-Bayes-kl with groups=, and of counting rows
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import math
import warnings
from dataclasses import replace

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import binom

import pymc_pacauc as pac
from benchmarks.coverage_auc import SHAPES
from pymc_pacauc.certify.bounds import catoni_bound, catoni_rate, kl_upper, pac_bayes_kl
from pymc_pacauc.certify.certificate import COMPARED
from pymc_pacauc.certify.matchings import bound_of_draws, holdout_bound, matching_groups, scores_under
from pymc_pacauc.comparison.risk import empirical_risk
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.theorems import default_gamma

D = 7
SHARE = {200: 1.0, 532: 1.0, 2000: 0.1, 5000: 0.04, 50_000: 0.02}  # of the data sets, for each n
SIZES = tuple(SHARE)
AUCS = (0.7, 0.8, 0.867, 0.95, 0.99)
LARGEST_FIT = 5000
NAMES = (
    "draw: kl",
    "draw: Catoni",
    "draw: matchings",
    "draw: split",
    "mean: kl",
    "mean: matchings",
    "mean: split",
    "part: Chernoff",
    "part: matchings",
)
TRUTHS = (0, 0, 0, 0, 1, 1, 1, 2, 2)  # a draw, the mean score, the part's mean score


def simulate(n_pos, n_neg, d, auc, rng):
    """Rows, labels, and the difference of the class means, whose length sets the best AUC."""
    delta = rng.normal(size=d)
    delta *= np.sqrt(2.0) * ndtri(auc) / np.linalg.norm(delta)
    y = np.repeat([1, 0], [n_pos, n_neg])
    return rng.normal(size=(n_pos + n_neg, d)) + np.outer(y - 0.5, delta), y, delta


def true_auc(theta, delta):
    return float(np.mean(ndtr(theta @ delta / (np.sqrt(2.0) * np.linalg.norm(theta, axis=-1)))))


def certified(n, auc, rng, epsilon=0.05, gamma_share=0.5):
    """All certified AUCs of one data set, and the three true ones."""
    n_pos, n_neg = round(n / 3), n - round(n / 3)
    X, y, delta = simulate(n_pos, n_neg, D, auc, rng)
    gamma = gamma_share * default_gamma(min(n_pos, LARGEST_FIT // 3), min(n_neg, 2 * LARGEST_FIT // 3))
    problem = linear_gaussian_problem(X, y, gamma)
    if n > LARGEST_FIT:
        return large(problem, y, delta, rng, epsilon)
    split = pac.certify.split(problem, epsilon=epsilon, n_jobs=1)
    risk = split.whole.expected_risk
    rest = ~split.in_part
    chernoff = math.log(1 / epsilon) / min(y[rest].sum(), (1 - y[rest]).sum())
    found = bounds_of_draws(split.whole, y, risk, epsilon, rng)
    found[3], found[6] = split.draw_auc, split.mean_score_auc
    found[7], found[8] = 1 - kl_upper(1 - split.empirical_auc, chernoff), split.auc
    return found, truths(split.whole.posterior, split.part.posterior.mean, delta, rng)


def bounds_of_draws(whole, y, risk, epsilon, rng):
    """The bounds that need no split, in the order of ``NAMES``; zeros elsewhere."""
    n_pos, n_neg = int(y.sum()), int((1 - y).sum())
    m = min(n_pos, n_neg)
    known = (risk, whole.divergence, m, epsilon)
    scores = scores_under(whole.problem, whole.posterior.natural, np.ones(y.size, dtype=bool))
    matched = bound_of_draws(
        scores, whole.divergence, matching_groups(y == 1), D, epsilon, rng=rng, compared=COMPARED
    ).risk
    kl = pac_bayes_kl(*known)
    catoni = catoni_bound(*known, rate=catoni_rate(m, D, epsilon))
    found = 1.0 - np.array([kl, catoni, matched, 1.0, min(1, 2 * kl), min(1, 2 * matched), 1.0, 1.0, 1.0])
    return found


def large(problem, y, delta, rng, epsilon):
    """As :func:`certified`, of a posterior of some of the rows; without what needs the posterior of all."""
    order = rng.permutation(problem.n)
    chosen = np.zeros(problem.n, dtype=bool)
    chosen[order[:LARGEST_FIT]] = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        part = fit(replace(problem, pairs=problem.pairs.among(chosen)), tolerance=1e-3, n_jobs=1)
    X = problem.X
    risk = float(np.mean(empirical_risk(part.posterior.draw(100, rng) @ X.T, y)))
    found = bounds_of_draws(part, y, risk, epsilon, rng)
    fixed = pac.certify.holdout(X[~chosen] @ part.posterior.mean, y[~chosen], epsilon)
    found[7] = 1 - kl_upper(1 - fixed.empirical_auc, math.log(1 / epsilon) / min(fixed.n_pos, fixed.n_neg))
    found[8] = fixed.auc
    return found, truths(part.posterior, part.posterior.mean, delta, rng)


def truths(posterior, part_mean, delta, rng):
    return np.array(
        [true_auc(posterior.draw(2000, rng), delta), true_auc(posterior.mean, delta), true_auc(part_mean, delta)]
    )


def table(datasets, smallest, largest, epsilon, seed, aucs=AUCS, figure=None):
    print(f"epsilon = {epsilon}, d = {D}; mean over data sets of the certified AUC, and (failures).\n")
    print(f"| n | best AUC | data sets | true: draw | mean | part | {' | '.join(NAMES)} |")
    print(f"|---:|---:|---:|---:|---:|---:|{'---:|' * len(NAMES)}")
    failed, total, curves = np.zeros(len(NAMES), dtype=int), 0, {}
    for n in SIZES:
        if not smallest <= n <= largest:
            continue
        repeats = max(1, round(datasets * SHARE[n]))
        for auc in aucs:
            rng = np.random.default_rng([seed, n, round(1000 * auc)])
            results = [certified(n, auc, rng, epsilon) for _ in range(repeats)]
            bounds, truth = (np.array(values) for values in zip(*results, strict=True))
            failures = (bounds > truth[:, TRUTHS]).sum(axis=0)
            failed, total = failed + failures, total + repeats
            curves.setdefault(auc, []).append((n, truth[:, 2].mean(), bounds.mean(axis=0)))
            cells = " | ".join(
                f"{b:.3f} ({f})" if b > 0 else "-" for b, f in zip(bounds.mean(0), failures, strict=True)
            )
            print(
                f"| {n} | {auc} | {repeats} | {' | '.join(f'{t:.3f}' for t in truth.mean(0))} | {cells} |", flush=True
            )
    shown = ", ".join(f"{name} {count}" for name, count in zip(NAMES, failed, strict=True))
    print(f"\nFailures in all {total} data sets, of which {epsilon * total:g} were allowed: {shown}.")
    if figure:
        plot(curves, figure)
    return too_many(failed.max(), total, epsilon)


def too_many(failures, total, epsilon):
    """Whether so many failures have a probability below 1/1000 where each has one of epsilon."""
    return binom.sf(failures - 1, total, epsilon) < 1e-3


def holdout_failures(datasets, epsilon, seed, sizes=((20, 20), (40, 120), (300, 60)), aucs=(0.6, 0.8, 0.95, 0.99)):
    """How often the bound of a fixed score exceeds its AUC, for scores of four shapes."""
    print(f"Failures of the hold-out bound in {datasets} data sets, {epsilon * datasets:g} allowed; mean bound.\n")
    print(f"| n+ | n- | AUC | {' | '.join(SHAPES)} |")
    print(f"|---:|---:|---:|{'---:|' * len(SHAPES)}")
    worst = 0
    for n_pos, n_neg in sizes:
        grouping = matching_groups(np.arange(n_pos + n_neg) < n_pos)
        for auc in aucs:
            cells = []
            for k, draw in enumerate(SHAPES.values()):
                rng = np.random.default_rng([seed, n_pos, round(1000 * auc), k])
                scores = (np.concatenate(draw(auc, n_pos, n_neg, rng)) for _ in range(datasets))
                bounds = np.array([holdout_bound(grouping.of(score), n_pos, n_neg, epsilon) for score in scores])
                worst = max(worst, int(np.sum(bounds > auc)))
                cells.append(f"{np.sum(bounds > auc)} ({bounds.mean():.3f})")
            print(f"| {n_pos} | {n_neg} | {auc} | {' | '.join(cells)} |", flush=True)
    return too_many(worst, datasets, epsilon)


def group_failures(datasets, epsilon, seed, patients=60, rows=6, d=3):
    """How often PAC-Bayes-kl exceeds the AUC it certifies on clustered rows, counting groups and counting rows.

    A row is its patient's effect, N(0, I), plus N(0, I / 4), plus the class's mean. Classes are of patients (pure
    groups) or of rows. The AUC certified is that of new covariates: between patients and within them.
    """
    print(f"Failures in {datasets} data sets of {patients} patients x {rows} rows, {epsilon * datasets:g} allowed.\n")
    print("| class of | best AUC | true | groups: failures | mean bound | rows: failures | mean bound |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    patient, worst = np.repeat(np.arange(patients), rows), 0
    for pure in (True, False):
        for best in (0.5, 0.85):
            rng, found = np.random.default_rng([seed, pure, round(100 * best)]), []
            for _ in range(datasets):
                y = rng.permutation(patients)[patient] < patients // 2 if pure else rng.random(patient.size) < 0.5
                delta = np.full(d, ndtri(best) * np.sqrt(2.0 * 1.25 / d))
                X = rng.normal(size=(patients, d))[patient] + 0.5 * rng.normal(size=(patient.size, d))
                fitted = fit(linear_gaussian_problem(X + np.outer(y, delta), y, gamma=60.0), tolerance=1e-3, n_jobs=1)
                theta = fitted.posterior.draw(500, rng)
                z = theta @ delta / np.linalg.norm(theta, axis=1)
                within = sum(np.sum(y[patient == k]) * np.sum(~y[patient == k]) for k in range(patients))
                share = within / (y.sum() * (~y).sum())
                truth = np.mean((1.0 - share) * ndtr(z / np.sqrt(2.5)) + share * ndtr(z / np.sqrt(0.5)))
                bounds = [pac.certificate(fitted, epsilon, groups=each).auc for each in (patient, None)]
                found.append([truth, *bounds])
            truth, by_group, by_row = np.array(found).T
            failed = [int(np.sum(each > truth)) for each in (by_group, by_row)]
            worst = max(worst, failed[0])
            cells = f"{failed[0]} | {by_group.mean():.3f} | {failed[1]} | {by_row.mean():.3f}"
            print(f"| {'patients' if pure else 'rows'} | {best} | {truth.mean():.3f} | {cells} |", flush=True)
    return too_many(worst, datasets, epsilon)


def plot(curves, path, aucs=(0.8, 0.867, 0.95), names=tuple(NAMES[k] for k in (1, 2, 3, 6, 7, 8))):
    """Certified and true AUCs against n."""
    import matplotlib

    matplotlib.use("Agg")
    from pymc_pacauc.analysis.plots.canvas import BLACK, COLORS, LINES, new_axes

    shown = [auc for auc in aucs if auc in curves]
    panels = np.atleast_1d(new_axes(columns=len(shown), figsize=(11.0, 4.2), sharey=True))
    for panel, auc in zip(panels, shown, strict=True):
        n, truth, bounds = (np.array(column) for column in zip(*curves[auc], strict=True))
        panel.plot(n, truth, color=BLACK, linewidth=1.5, label="true (part)")
        for k, name in enumerate(names):
            found = bounds[:, NAMES.index(name)]
            there = found > 0.0
            panel.plot(n[there], found[there], marker=".", color=COLORS[k], linestyle=LINES[k % 4], label=name)
        panel.set(xscale="log", xlabel="n", title=f"best AUC {auc}", ylim=(0.3, 1.0))
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("AUC, certified at 95%")
    panels[-1].legend(frameon=False, fontsize="small", loc="lower right")
    panels[0].figure.savefig(path, dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", type=int, default=50)
    parser.add_argument("--epsilon", type=float, default=0.05)
    parser.add_argument("--smallest", type=int, default=200)
    parser.add_argument("--largest", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=2014)
    parser.add_argument("--holdout", action="store_true", help="failures of the bound for a fixed score, by themselves")
    parser.add_argument("--groups", action="store_true", help="failures on clustered rows")
    parser.add_argument("--aucs", nargs="+", type=float, default=AUCS)
    parser.add_argument("--plot", dest="figure", default=None, help="file of the figure")
    arguments = vars(parser.parse_args())
    holdout, groups = arguments.pop("holdout"), arguments.pop("groups")
    if holdout or groups:
        chosen = {name: arguments[name] for name in ("datasets", "epsilon", "seed")}
        if (holdout_failures if holdout else group_failures)(**chosen):
            raise SystemExit("The bound failed more often than epsilon allows.")
    elif table(**arguments):
        raise SystemExit("Certificates failed more often than epsilon allows.")
