"""How often does the interval of :func:`pymc_pacauc.delong` contain the true AUC, and how wide is it?

Scores of the two classes are drawn from four shapes whose AUC is known:

- binormal: two normal distributions of equal variance;
- wide positives: normal, the positives with three times the standard deviation of the negatives;
- heavy tails: two Student distributions with two degrees of freedom, one shifted;
- two kinds of positives: some drawn as the negatives are, the others above every negative. This is the worst case for
  an effective number of comparisons: almost all of the variance comes from the positives.

Next to it, for comparison, DeLong's interval on the logit scale, which has no width when the classes are separated.

`--deployed` asks the same of a fitted posterior: how often does the interval that :func:`pymc_pacauc.roc` states for
the mean score, given rows that were not fitted, contain that score's AUC in the population? Two Gaussian classes, for
which the AUC of any linear score is known; beside it the quantiles of the AUCs of draws, which some state instead.

`--bands` asks it of the pointwise bands of the ROC curve, binormal scores of AUC 0.86.

`--report` asks it of the interval in the report of an estimator, from its training rows alone: by scores of rows left
out, as they are and with the variance of another sample of four times as many rows added.

python -m benchmarks.coverage_auc [--datasets 2000] [--ci-prob 0.95] [--deployed] [--bands] [--precision] [--report]
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit, ndtr, ndtri
from scipy.stats import t as student

import pymc_pacauc as pac
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.theorems import default_gamma

SIZES = ((5, 10), (5, 1000), (10, 15), (20, 100), (50, 50), (50, 1000), (200, 10), (200, 1000))
AUCS = (0.5, 0.8, 0.9, 0.95, 0.983, 0.995)
LOWEST = 0.93  # coverage demanded of a nominal 0.95


@dataclass(frozen=True)
class Cell:
    """What was measured for one shape, two class sizes and one AUC."""

    shape: str
    n_pos: int
    n_neg: int
    auc: float
    coverage: float
    width: float
    logit_coverage: float
    logit_width: float


def binormal(auc, n_pos, n_neg, rng):
    return rng.normal(np.sqrt(2.0) * ndtri(auc), 1.0, n_pos), rng.normal(size=n_neg)


def wide_positives(auc, n_pos, n_neg, rng):
    return rng.normal(np.sqrt(10.0) * ndtri(auc), 3.0, n_pos), rng.normal(size=n_neg)


def heavy_tails(auc, n_pos, n_neg, rng):
    return rng.standard_t(2, n_pos) + student_shift(auc), rng.standard_t(2, n_neg)


def two_kinds(auc, n_pos, n_neg, rng):
    useless = rng.random(n_pos) < 2.0 * (1.0 - auc)
    return rng.normal(size=n_pos) + np.where(useless, 0.0, 100.0), rng.normal(size=n_neg)


SHAPES = {
    "binormal": binormal,
    "wide positives": wide_positives,
    "heavy tails": heavy_tails,
    "two kinds of positives": two_kinds,
}
_SHIFTS: dict[float, float] = {}


def student_shift(auc):
    """The shift at which a t(2) variable exceeds another one with probability ``auc``."""
    if auc not in _SHIFTS:
        levels = (np.arange(20_000) + 0.5) / 20_000
        at = student.ppf(levels, 2)
        _SHIFTS[auc] = brentq(lambda shift: np.mean(student.cdf(at + shift, 2)) - auc, 0.0, 100.0)
    return _SHIFTS[auc]


def logit_interval(result):
    """DeLong's interval on the logit scale; a point when the estimated variance is zero."""
    if result.se == 0.0:
        return result.auc, result.auc
    half = ndtri(0.5 + 0.5 * result.ci_prob) * result.se / (result.auc * (1.0 - result.auc))
    return expit(logit(result.auc) - half), expit(logit(result.auc) + half)


def measure(shape, n_pos, n_neg, auc, datasets, ci_prob=0.95, seed=2014):
    """Coverage and mean width over simulated data sets."""
    rng = np.random.default_rng([seed, n_pos, n_neg, round(1000 * auc), list(SHAPES).index(shape)])
    labels = np.arange(n_pos + n_neg) < n_pos
    results = [
        pac.auc_interval(np.concatenate(SHAPES[shape](auc, n_pos, n_neg, rng)), labels, ci_prob=ci_prob)
        for _ in range(datasets)
    ]
    figures: list[float] = []
    for intervals in ([(r.lower, r.upper) for r in results], [logit_interval(r) for r in results]):
        lower, upper = np.array(intervals).T
        figures += [float(np.mean((lower <= auc) & (auc <= upper))), float(np.mean(upper - lower))]
    return Cell(shape, n_pos, n_neg, auc, *figures)


def measure_all(datasets, ci_prob=0.95, sizes=SIZES, aucs=AUCS, shapes=tuple(SHAPES)):
    for n_pos, n_neg in sizes:
        for auc in aucs:
            yield [measure(shape, n_pos, n_neg, auc, datasets, ci_prob) for shape in shapes]


@dataclass(frozen=True)
class Deployed:
    """Coverage of the mean score's AUC in the population, by its interval and by the quantiles of draws."""

    fits: int
    coverage: float
    width: float
    coverage_by_draws: float


def measure_deployed(fits, n_train=100, n_test=120, d=6, shift=0.4, ci_prob=0.9, draws=200, seed=2014):
    """Fit, predict new rows, and compare the interval of the AUC with what the score's AUC is."""
    covered, by_draws, width = [], [], []
    for k in range(fits):
        rng = np.random.default_rng([seed, k])
        labels = rng.permutation(np.arange(n_train + n_test) % 3 == 0)
        X = rng.normal(size=(labels.size, d)) + shift * labels[:, None] / np.arange(1, d + 1)
        n_pos, n_neg = int(labels[:n_train].sum()), int((~labels[:n_train]).sum())
        gamma = default_gamma(n_pos, n_neg)
        posterior = fit(linear_gaussian_problem(X[:n_train], labels[:n_train], gamma)).posterior
        truth = float(ndtr(posterior.mean @ (shift / np.arange(1, d + 1)) / np.sqrt(2 * np.sum(posterior.mean**2))))
        rows, y = X[n_train:], labels[n_train:]
        said = pac.roc(posterior.draw(draws, rng) @ rows.T, y, mean=rows @ posterior.mean, ci_prob=ci_prob)
        low, high = np.quantile(said["auc_of_draw"], [0.5 * (1 - ci_prob), 0.5 * (1 + ci_prob)])
        covered.append(said.attrs["auc_lower"] <= truth <= said.attrs["auc_upper"])
        by_draws.append(low <= truth <= high)
        width.append(said.attrs["auc_upper"] - said.attrs["auc_lower"])
    return Deployed(fits, float(np.mean(covered)), float(np.mean(width)), float(np.mean(by_draws)))


def measure_report(fits, n, d, share=1 / 3, shift=0.6, ci_prob=0.9):
    """Coverage and width of two intervals for the deployed score's AUC, from scores of rows left out; their bias."""
    rng, v, found = np.random.default_rng([n, d]), shift / np.arange(1, d + 1), []
    for _ in range(fits):
        y = rng.permutation(np.arange(n) < round(share * n))
        score = pac.AUCClassifier().fit(rng.normal(size=(n, d)) + v * y[:, None], y).scores_[0]
        weights = score.posterior.coef
        truth = ndtr(v @ weights / np.sqrt(2.0 * weights @ weights))
        for new_rows in (None, (score.folds - 1) * n):
            said = pac.auc_interval(score.held_out, y, ci_prob=ci_prob, new_rows=new_rows)
            found.append([said.lower <= truth <= said.upper, said.upper - said.lower, said.auc - truth])
    return np.mean(np.reshape(found, (fits, 2, 3)), axis=0)


def measure_bands(datasets, n_pos, n_neg, ci_prob, rates=(0.02, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9), shift=1.5):
    """How often the band of the ROC curve contains the true positive rate, at some false positive rates."""
    rng, y = np.random.default_rng([n_pos, n_neg]), np.arange(n_pos + n_neg) < n_pos
    truth = ndtr(shift + ndtri(np.array(rates)))
    covered = []
    for _ in range(datasets):
        said = pac.roc(rng.normal(size=y.size) + shift * y, y, ci_prob=ci_prob).sel(fpr=list(rates), method="nearest")
        covered.append((said["tpr_lower"].values <= truth) & (truth <= said["tpr_upper"].values))
    return dict(zip(rates, np.mean(covered, axis=0).round(3).tolist(), strict=True))


def measure_precision(datasets, n_pos, n_neg, ci_prob, recalls=(0.2, 0.5, 0.8), shift=2.0):
    """How often the interval of the average precision holds that of the population, and the band the precision."""
    y, share = np.arange(n_pos + n_neg) < n_pos, n_pos / (n_pos + n_neg)

    def precision(recall):
        wrong = ndtr(-(shift - ndtri(recall)))  # false positive rate where the recall is this
        return share * recall / (share * recall + (1.0 - share) * wrong)

    grid = (np.arange(100_000) + 0.5) / 100_000
    average, truth, rng, covered = precision(grid).mean(), precision(np.array(recalls)), np.random.default_rng(0), []
    for _ in range(datasets):
        said = pac.precision_recall(rng.normal(size=y.size) + shift * y, y, ci_prob=ci_prob)
        band = said.sel(recall=list(recalls), method="nearest")
        inside = said.attrs["average_precision_lower"] <= average <= said.attrs["average_precision_upper"]
        covered.append([inside, *((band["precision_lower"] <= truth) & (truth <= band["precision_upper"])).values])
    return dict(zip(("average", *recalls), np.mean(covered, axis=0).round(3).tolist(), strict=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", type=int, default=2000)
    parser.add_argument("--ci-prob", type=float, default=0.95)
    parser.add_argument("--deployed", action="store_true", help="of the mean score of a fitted posterior, in 200 fits")
    parser.add_argument("--bands", action="store_true", help="of ROC curves, in 50 data sets at 0.9")
    parser.add_argument("--precision", action="store_true", help="of precision-recall curves, in 150 data sets at 0.9")
    parser.add_argument("--report", action="store_true", help="of reports of estimators, in 120 fits at 0.9")
    arguments = parser.parse_args()
    if arguments.report:
        print("| rows | columns | coverage, folds as they are | of the report | widths | bias |")
        print("|---:|---:|---:|---:|---:|---:|")
        for n, d in ((100, 3), (100, 10)):
            (plain, width, bias), (wide, wider, _) = measure_report(120, n, d)
            print(f"| {n} | {d} | {plain:.3f} | {wide:.3f} | {width:.3f}, {wider:.3f} | {bias:+.3f} |", flush=True)
        return
    if arguments.precision:
        recalls = (0.2, 0.5, 0.8)
        print(f"| n+ | n- | shift | average precision | {' | '.join(f'at recall {recall:g}' for recall in recalls)} |")
        print("|---:|---:|---:|---:|---:|---:|---:|")
        for sizes in ((18, 42), (20, 180), (80, 720)):
            for shift in (1.0, 2.0):
                covered = measure_precision(150, *sizes, 0.9, recalls, shift).values()
                print(f"| {sizes[0]} | {sizes[1]} | {shift:g} | {' | '.join(f'{share:.2f}' for share in covered)} |")
        return
    if arguments.bands:
        rates = (0.02, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9)
        print(f"| n+ | n- | {' | '.join(f'at FPR {rate:g}' for rate in rates)} |\n|{'---:|' * (2 + len(rates))}")
        for sizes in ((50, 50), (100, 200)):
            covered = measure_bands(50, *sizes, 0.9, rates).values()
            print(f"| {sizes[0]} | {sizes[1]} | {' | '.join(f'{share:.2f}' for share in covered)} |")
        return
    if arguments.deployed:
        for n_test in (60, 120, 400):
            print(n_test, measure_deployed(200, n_test=n_test, ci_prob=arguments.ci_prob))
        return
    print(f"\n## Coverage of a nominal {arguments.ci_prob:g}, and mean width: {arguments.datasets} data sets a cell\n")
    print(f"| n+ | n- | AUC | {' | '.join(SHAPES)} | logit DeLong: lowest | its width, binormal |")
    print(f"|---:|---:|---:|{'---:|' * (len(SHAPES) + 2)}")
    cells = []
    for row in measure_all(arguments.datasets, arguments.ci_prob):
        cells += row
        first = row[0]
        shown = " | ".join(f"{cell.coverage:.3f} ({cell.width:.3f})" for cell in row)
        print(
            f"| {first.n_pos} | {first.n_neg} | {first.auc:g} | {shown} | "
            f"{min(cell.logit_coverage for cell in row):.3f} | {first.logit_width:.3f} |",
            flush=True,
        )
    coverage, width, logit_coverage, logit_width = np.array(
        [(cell.coverage, cell.width, cell.logit_coverage, cell.logit_width) for cell in cells]
    ).T
    print(
        f"\nOver {len(cells)} cells: lowest coverage {coverage.min():.3f}, mean {coverage.mean():.3f}, mean width "
        f"{width.mean():.3f}; on the logit scale {logit_coverage.min():.3f}, {logit_coverage.mean():.3f} and "
        f"{logit_width.mean():.3f}."
    )
    if coverage.min() < arguments.ci_prob - (0.95 - LOWEST):
        raise SystemExit("The interval does not cover.")


if __name__ == "__main__":
    main()
