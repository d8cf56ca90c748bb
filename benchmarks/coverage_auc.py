"""How often does the interval of :func:`pymc_pacauc.delong` contain the true AUC, and how wide is it?

Scores of the two classes are drawn from four shapes whose AUC is known:

- binormal: two normal distributions of equal variance;
- wide positives: normal, the positives with three times the standard deviation of the negatives;
- heavy tails: two Student distributions with two degrees of freedom, one shifted;
- two kinds of positives: some drawn as the negatives are, the others above every negative. This is the worst case for
  an effective number of comparisons: almost all of the variance comes from the positives.

Next to it, for comparison, DeLong's interval on the logit scale, which has no width when the classes are separated.

python -m benchmarks.coverage_auc [--datasets 2000] [--ci-prob 0.95]
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit, ndtri
from scipy.stats import t as student

import pymc_pacauc as pac

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
        pac.delong(np.concatenate(SHAPES[shape](auc, n_pos, n_neg, rng)), labels, ci_prob=ci_prob)
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", type=int, default=2000)
    parser.add_argument("--ci-prob", type=float, default=0.95)
    arguments = parser.parse_args()
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
