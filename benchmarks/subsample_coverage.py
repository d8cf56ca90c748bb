"""Subsampled pairs: how often the claimed error of the posterior mean covers the error made, over odd designs.

    python -m benchmarks.subsample_coverage [--problems 112] [--first 0] [--gammas 0.1 1 4 50] [--rows 1000] [--auto]

Gamma (0.1, 1, 4 and 50 n) and the number of columns (1, 5, 20, 60) take turns; the rest is drawn: covariates (normal,
Student's t with 2 degrees of freedom, indicators, half indicators), positives (half, one in twenty, 60, 20), weights of
the rows (none, gamma, lognormal), 1000 to 2000 rows (``--rows`` to twice as many; three times with 60 or 20 positives)
and 50 to 200 rows per group. The reference is EP on all pairs, from its own start and from the subsampled fit; of two
fixed points, that with more evidence. Errors are in posterior standard deviations of the reference, in the direction of
the error, root mean square over directions. A claim covers if the error is at most twice as large.
"""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from time import process_time

import numpy as np

from pymc_pacauc.comparison.kinds import label_comparison
from pymc_pacauc.ep.plan import choose_plan
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem.problem import linear_gaussian_problem

COVARIATES = ("normal", "heavy tails", "indicators", "mixed")
POSITIVES = ("half", "one in 20", "60", "20")
WEIGHTS = ("none", "gamma", "lognormal")
COLUMNS = (1, 5, 20, 60)
GAMMAS = (0.1, 1.0, 4.0, 50.0)  # times n
PAIRS = (50, 100, 200)
MOST_SWEEPS = 60  # of a fit; problems whose reference takes more are counted apart


@dataclass(frozen=True)
class Found:
    """One problem, and what its fits were."""

    number: int
    words: str
    gamma: float
    d: int
    converged: bool
    reference: bool
    several: bool
    error: float
    claimed: float
    error_log_evidence: float
    claimed_log_evidence: float
    used: float
    raised: bool
    seconds: float
    seconds_all: float

    @property
    def ratio(self):
        """Of error to claim; errors below a thousandth are those of the tolerance."""
        return self.error / max(self.claimed, 1e-3)

    def __str__(self):
        notes = {
            "more than asked for": self.raised,
            "several fixed points": self.several,
            "not converged": not self.converged,
            "no reference": not self.reference,
        }
        return (
            f"{self.number:4d} error {self.error:.3f} claimed {self.claimed:.3f} ({self.ratio:.1f}x), log Z "
            f"{self.error_log_evidence:+.2f} claimed {self.claimed_log_evidence:.2f}, used {self.used:.3f}, "
            f"{self.seconds:.1f} s, all {self.seconds_all:.1f} s | {self.words} | "
            f"{', '.join(note for note, true in notes.items() if true)}"
        )


def design(number, rows=1000):
    """The problem of this number, the rows per group to ask for, and its description."""
    rng = np.random.default_rng([24, number])
    covariates, positives, weights = (rng.choice(each) for each in (COVARIATES, POSITIVES, WEIGHTS))
    gamma, d = GAMMAS[number % len(GAMMAS)], COLUMNS[number // len(GAMMAS) % len(COLUMNS)]
    pairs, n = int(rng.choice(PAIRS)), int(rng.integers(rows, 2 * rows)) * (3 if positives in ("60", "20") else 1)
    X = rng.standard_t(2, size=(n, d)) if covariates == "heavy tails" else rng.normal(size=(n, d))
    some = slice(None, d if covariates == "indicators" else -(-d // 2) if covariates == "mixed" else 0)
    X[:, some] = X[:, some] > rng.normal(size=X[:, some].shape[1])
    signal = X @ (rng.normal(size=d) * rng.random(d)) / np.sqrt(d)
    score = signal / max(signal.std(), 1e-9) * rng.uniform(0.3, 2.0) + rng.logistic(size=n)
    if covariates == "heavy tails":
        score = np.clip(signal, *np.quantile(signal, [0.01, 0.99])) + rng.logistic(size=n)
    count = {"half": n // 2, "one in 20": n // 20, "60": 60, "20": 20}[positives]
    y = np.zeros(n, dtype=bool)
    y[np.argsort(score)[-count:]] = True
    row_weights = {"none": np.ones(n), "gamma": rng.gamma(2.0, size=n), "lognormal": np.exp(rng.normal(size=n))}[
        weights
    ]
    problem = linear_gaussian_problem(X, label_comparison(y, weights=row_weights), gamma=gamma * n)
    words = f"n={n} {covariates}, {positives} positive, weights {weights}, d={d}, {gamma:g}n, pairs={pairs}"
    return problem, pairs, gamma, words


def by_auto(problem):
    """What ``"auto"`` uses in an estimator, which subsamples soonest and most: "all", or a subsample."""
    return choose_plan(problem, accuracy="estimator").pairs


def study(number, auto=False, rows=1000):
    """Fit the problem of this number; None where it is refused."""
    problem, asked, gamma, words = design(number, rows)
    options = {"n_jobs": 1, "tolerance": 1e-4, "max_sweeps": MOST_SWEEPS}
    if auto:
        asked = by_auto(problem)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        began = process_time()
        try:
            found = fit(problem, pairs=asked, **options)
        except ValueError:  # gamma' is too large
            return None
        seconds = process_time() - began
    raised = any("were used instead" in str(each.message) for each in caught)
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        began = process_time()
        exact = fit(problem, pairs="all", **options)
        seconds_all = process_time() - began
        other = fit(problem, pairs="all", start=found, **options)
    best = max((exact, other), key=lambda each: (each.converged, each.log_evidence))
    several = exact.converged and other.converged and abs(exact.log_evidence - other.log_evidence) > 0.05
    q = best.posterior.natural
    moved = q.factor.T @ (found.posterior.natural.mean - q.mean)
    return Found(
        number,
        words,
        gamma,
        problem.d,
        found.converged,
        best.converged,
        several,
        float(np.sqrt(np.mean(moved**2))),
        found.sampling_error.mean,
        found.log_evidence - best.log_evidence,
        found.sampling_error.log_evidence,
        found.pairs_used / problem.pairs.n_pairs,
        raised,
        seconds,
        seconds_all,
    )


def table(found):
    """Markdown: how often claims cover, by gamma, and of fits that needed no more pairs than were asked for."""
    print(
        "| problems | number | within 2x | worst ratio | claimed, median | more pairs than asked for | all pairs |\n"
        "|---|---:|---:|---:|---:|---:|---:|"
    )
    sampled = [each for each in found if each.used < 1.0]
    parts = {
        **{f"gamma = {gamma:g} n": [each for each in found if each.gamma == gamma] for gamma in GAMMAS},
        "all": found,
        "subsampled to the end": sampled,
        "of these, 1 column": [each for each in sampled if each.d == 1],
    }
    for name, some in parts.items():
        if some:
            ratios = np.array([each.ratio for each in some])
            print(
                f"| {name} | {len(some)} | {np.mean(ratios <= 2.0):.0%} | {ratios.max():.1f} | "
                f"{np.median([each.claimed for each in some]):.3f} | {np.mean([each.raised for each in some]):.0%} | "
                f"{np.mean([each.used == 1.0 for each in some]):.0%} |"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=112)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--auto", action="store_true", help='pairs="auto" of estimators, where it subsamples')
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--gammas", type=float, nargs="+", default=GAMMAS, help="of these only, times n")
    arguments = parser.parse_args()
    numbers = range(arguments.first, arguments.first + arguments.problems)
    numbers = [number for number in numbers if GAMMAS[number % len(GAMMAS)] in arguments.gammas]
    if arguments.auto:
        numbers = [number for number in numbers if by_auto(design(number, arguments.rows)[0]) != "all"]
    found, refused, unknown = [], 0, 0
    with ProcessPoolExecutor(arguments.workers) as pool:
        for each in pool.map(partial(study, auto=arguments.auto, rows=arguments.rows), numbers):
            print(each, flush=True)
            refused += each is None
            unknown += each is not None and not (each.converged and each.reference)
            if each is not None and each.converged and each.reference:
                found.append(each)
    print(f"\n{refused} refused (gamma' beyond 50), {unknown} that did not converge and said so, or the reference.\n")
    table(found)


if __name__ == "__main__":
    main()
