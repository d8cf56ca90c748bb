"""What each strategy of a fit buys: the same work with it and without it, CPU seconds and error.

    python -m benchmarks.ablation [--only leading band ...] [--turns 3] [--largest 100000] [--write]

Each strategy is switched off where it is chosen, and nothing else changes. *Ratio*: CPU seconds without it over CPU
seconds with it, one thread, the two taking turns, the median over turns (one turn where a run takes
more than ``LONG`` seconds), after a turn that is not counted.
*Error*: against the plain engine (all pairs, coefficients, from the prior, tolerance 1e-9), of the mean score of a
row, in its posterior standard deviations (root mean square over rows), and of log Z in nats; where the plain engine
would take minutes, the difference between the two runs instead, in brackets. ``--write`` puts the table into
docs/what_each_part_buys.md.
"""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse
import math
import sys
import warnings
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from time import process_time
from unittest import mock

import numpy as np
from scipy import special

import pymc_pacauc as pac
from pymc_pacauc.certify import matchings
from pymc_pacauc.comparison import subsample as core_sample
from pymc_pacauc.comparison.censored import concordance
from pymc_pacauc.comparison.kinds import stratified
from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.comparison.risk import DistinctRows
from pymc_pacauc.ep import gaussian
from pymc_pacauc.ep import leave_out as fold_paths
from pymc_pacauc.ep import loop as fixed_point
from pymc_pacauc.ep import loop as gaussian_iteration
from pymc_pacauc.ep import loop as mixing
from pymc_pacauc.ep import start as mean_first
from pymc_pacauc.ep import subsample as dealt
from pymc_pacauc.ep import subsample_sums as sampled_sums
from pymc_pacauc.ep import sweep as work
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.estimator import calibration
from pymc_pacauc.estimator import gamma as estimator_gamma
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem import scores as core_scores
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.tune import gamma as search_gamma

PAGE = Path(__file__).parents[1] / "docs" / "what_each_part_buys.md"
LONG = 2.0  # CPU seconds of both runs beyond which one turn is counted
ROWS_JUDGED = 500

# -- work ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What one run found: score means and standard deviations of some rows, log Z, or other numbers by name."""

    mean: np.ndarray | None = None
    sd: np.ndarray | None = None
    log_evidence: float = math.nan
    converged: bool = True
    others: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Work:
    """Something a user asks for. ``run()`` does it from the arrays on; ``plain()`` by the plain engine, or is None."""

    name: str
    rows: int
    run: object
    plain: object = None


def outcome(found):
    rows = found.problem.scores.whitened_design[:: max(1, found.problem.n // ROWS_JUDGED)]
    mean, variance = found.posterior.moments_of(rows, variances=True)
    return Outcome(mean, np.sqrt(variance), found.log_evidence, found.converged)


@cache
def linear_data(n, d, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    slope = rng.standard_normal(d) / np.sqrt(d)
    return X, X @ slope + 0.5 * rng.logistic(size=n) > 0.3


@cache
def process_data(n, d, seed=1):
    """The Cholesky factor of a squared exponential kernel: of few directions for d = 2, of n for d = 10."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.5 * rng.logistic(size=n) > 0.8
    square = np.sum(X**2, axis=1)
    kernel = np.exp(-0.5 * np.maximum(square[:, None] + square - 2 * X @ X.T, 0.0) / (1.0 if d == 2 else d))
    return X, np.linalg.cholesky(kernel + 1e-6 * np.eye(n)), y


def fitted(design, pairs_of, plain=False, pairs="auto", tolerance=1e-6, gamma=None):
    """One fit, beginning with the arrays."""
    problem = linear_gaussian_problem(design, pairs_of(), float(len(design) if gamma is None else gamma))
    if plain:
        pairs, tolerance = "all", 1e-9
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return outcome(fit(problem, pairs=pairs, tolerance=tolerance, n_jobs=1))


def fit_work(name, design, pairs_of, plain=True, **options):
    return Work(
        name,
        len(design),
        partial(fitted, design, pairs_of, **options),
        partial(fitted, design, pairs_of, plain=True, gamma=options.get("gamma")) if plain else None,
    )


def linear(n, d, plain=True, times=1):
    X, y = linear_data(n, d)
    name = f"linear, {n} rows, d = {d}" + (f", gamma = {times} n" if times > 1 else "")
    return fit_work(name, X, partial(bipartite, y), plain, gamma=times * n)


def process(n, d, plain=True, times=1):
    _, factor, y = process_data(n, d)
    name = f"process, {n} rows, {d} covariates" + (f", gamma = {times} n" if times > 1 else "")
    return fit_work(name, factor, partial(bipartite, y), plain, gamma=times * n)


def strata(n, d, size):
    X, y = linear_data(n, d)
    codes = np.random.default_rng(2).integers(n // size, size=n)
    return fit_work(f"strata of {size}, {n} rows, d = {d}", X, lambda: stratified(bipartite(y), codes))


def survival(n, d):
    X, _ = linear_data(n, d)
    rng = np.random.default_rng(3)
    time = rng.exponential(np.exp(-X[:, 0] - 0.5 * X[:, 1]))
    limit = rng.exponential(2.0, size=n)
    return fit_work(f"survival, {n} rows, d = {d}", X, lambda: concordance(np.minimum(time, limit), time < limit))


def weighted(n, d, counts):
    X, y = linear_data(n, d)
    rng = np.random.default_rng(4)
    weights = rng.integers(1, 4, size=n) if counts else rng.uniform(0.5, 2.0, size=n)
    name = "counts as weights" if counts else "weights"
    return fit_work(f"{name}, {n} rows, d = {d}", X, lambda: bipartite(y).times(weights.astype(float)))


def repeated_rows(n, d):
    X, y = linear_data(n, d)
    return fit_work(f"{d} binary columns, {n} rows", (X > 0.0).astype(float), partial(bipartite, y))


def choosing(n, d):
    """Choosing gamma by folds."""
    X, y = linear_data(n, d)

    def run():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            choice = search_gamma.choose_gamma(
                linear_gaussian_problem(X, y, 1.0), rng=np.random.default_rng(1), n_jobs=1
            )
        auc = choice.candidates[choice.chosen].auc.mean()
        return Outcome(others={"gamma": choice.gamma, "AUC of folds": auc})

    return Work(f"choosing gamma, {n} rows, d = {d}", n, run)


def estimator(n, d):
    """AUCClassifier as it comes."""
    X, y = linear_data(n, d)
    rng = np.random.default_rng(1)
    rng.standard_normal((n, d))
    slope = rng.standard_normal(d) / np.sqrt(d)
    other = np.random.default_rng(9)
    X_new = other.standard_normal((20_000, d))
    y_new = X_new @ slope + 0.5 * other.logistic(size=20_000) > 0.3

    def run():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = pac.AUCClassifier(n_jobs=1, random_state=1).fit(X, y)
        score, probability = found.decision_function(X_new), found.predict_proba(X_new)[:, 1]
        brier = float(np.mean((probability - y_new) ** 2))
        return Outcome(others={"AUC of new rows": 1 - float(pac.empirical_risk(score, y_new)), "Brier score": brier})

    return Work(f"AUCClassifier, {n} rows, d = {d}", n, run)


def matching_certificate(n, d):
    X, y = linear_data(n, d)

    def run():
        deal = matchings.deal_matchings(np.asarray(y))
        score, rng = X @ np.ones(d), np.random.default_rng(0)
        moments = [deal.of(score + rng.standard_normal(n)).log_moment(0.5) for _ in range(100)]
        return Outcome(others={"log moment": float(np.mean(moments))})

    return Work(f"100 draws of a matching bound, {n} rows", n, run)


# -- strategies, and how they are switched off -------------------------------------------------------------------------


@dataclass(frozen=True)
class Strategy:
    """A part of the engine: what it is ("" where ``without`` is another way), how to do without it, and for what."""

    key: str
    name: str
    without: object  # patches: (owner, attribute, value)
    works: object  # a function that lists them


def off(*patches):
    @contextmanager
    def switched():
        with ExitStack() as stack:
            for owner, attribute, value in patches:
                stack.enter_context(mock.patch.object(owner, attribute, value))
            yield

    return switched


def everything_close(space, with_offset, q, deal, index, weights, side=sampled_sums._side):
    found = side(space, with_offset, q, deal, index, weights)
    return found._replace(width=np.full_like(found.width, 1e30))


def all_different(rows):
    every = np.arange(len(rows), dtype=np.intp)
    return DistinctRows(every, every)


def double_precision(self, *arguments, single=True, init=mean_first.MeanFirst.__init__, **options):
    init(self, *arguments, single=False, **options)


def no_mixing(history, point, plain, weighed, memory):
    return plain, history


def whole_fit(problem, method, start, n_jobs):
    return fit(problem, method, start=start, n_jobs=n_jobs)


PLAIN = off(
    (gaussian, "leading_problem", lambda problem, tolerance: problem),
    (gaussian, "mean_first_start", lambda problem, power: None),
    (core_scores, "WORTH_FEATURES", 0.0),
)

SMALL = lambda: [linear(1000, 10), linear(1000, 100), linear(1000, 10, times=10)]  # noqa: E731
LARGE = lambda: [linear(10_000, 10), linear(100_000, 10, False), linear(100_000, 100, False)]  # noqa: E731
SMOOTH = lambda: [process(500, 2), process(500, 2, times=5), process(1000, 2), process(3000, 2, False)]  # noqa: E731
ROUGH = lambda: [process(500, 10), process(500, 10, times=5), process(1000, 10), process(2000, 10, False)]  # noqa: E731

STRATEGIES = (
    Strategy("mixing", "Anderson mixing", off((fixed_point, "mixed_step", no_mixing)), SMALL),
    Strategy(
        "rescaling", "the known length of q", off((gaussian_iteration, "_scale_target", lambda q, seen: 0.0)), SMALL
    ),
    Strategy(
        "normal_equations",
        "mixing by normal equations, beyond 4096 numbers",
        off((mixing, "LONG", 10**9)),
        lambda: [linear(1000, 100), linear(1000, 150), *ROUGH()[:1]],
    ),
    Strategy(
        "features",
        "few directions of a smooth process (pivoted Cholesky)",
        off((core_scores, "WORTH_FEATURES", 0.0)),
        SMOOTH,
    ),
    Strategy(
        "leading",
        "leading directions first",
        off((gaussian, "leading_problem", lambda problem, tolerance: problem)),
        SMOOTH,
    ),
    Strategy(
        "score_space",
        "EP in the scores, for processes of full rank",
        off((gaussian, "as_many_directions", lambda problem: False)),
        ROUGH,
    ),
    Strategy(
        "mean_first",
        "a start that finds the mean first, of processes",
        off((gaussian, "mean_first_start", lambda problem, power: None)),
        lambda: [*SMOOTH(), *ROUGH()],
    ),
    Strategy(
        "single",
        "single precision where the mean is found first",
        off((mean_first.MeanFirst, "__init__", double_precision)),
        lambda: [*SMOOTH()[1:], linear(100_000, 10, False), choosing(1000, 10)],
    ),
    Strategy(
        "subsample",
        "a subsample of pairs",
        off((dealt, "WORTH_DEALING", 10**18)),
        lambda: [linear(5000, 10), linear(10_000, 10)],
    ),
    Strategy(
        "band", "only near pairs of the subsample are looked at", off((sampled_sums, "_side", everything_close)), LARGE
    ),
    Strategy("thinned", "one far pair in up to 32", off((core_sample, "_far_share", lambda rows: 1)), LARGE),
    Strategy(
        "grow",
        "growing shares of rows",
        off((dealt._Run, "grow", lambda self, q, share, groups, rng: (q, 1.0))),
        lambda: [*LARGE(), linear(1_000_000, 10, False)],
    ),
    Strategy(
        "near",
        "Newton's steps, rows dealt anew before each (_Run.near)",
        off((dealt._Run, "near", lambda self, q, off, groups, rng, pairs=None: (q, off, 1.0))),
        lambda: [*LARGE(), linear(1_000_000, 10, False)],
    ),
    Strategy(
        "fine",
        "a table of their own for pairs of one weight (band)",
        off((sampled_sums, "_fine", lambda block, table, weighted: (0.0, np.empty((0, 4, 3))))),
        LARGE,
    ),
    Strategy(
        "constant",
        "a kernel and a table of their own for pairs of one weight (tiles)",
        off((work, "MOST_TABLES", -1)),
        lambda: [*SMALL(), linear(3000, 20), process(1000, 2)],
    ),
    Strategy(
        "by_weight",
        "blocks split by weight where weights are few",
        off((work, "_by_weight", lambda block: [block])),
        lambda: [weighted(2000, 10, True)],
    ),
    Strategy(
        "small_blocks",
        "one compiled loop for small blocks",
        off((work, "FEW", 10**9)),
        lambda: [strata(2000, 10, 5), strata(2000, 10, 20), survival(1000, 10), survival(3000, 10)],
    ),
    Strategy(
        "distinct",
        "equal rows found once",
        off((core_scores, "distinct_rows", all_different)),
        lambda: [repeated_rows(2000, 5), linear(1000, 10)],
    ),
    Strategy(
        "fold_paths",
        "folds along paths of their own",
        off((search_gamma, "suit_fold_paths", lambda problem: False)),
        lambda: [choosing(500, 10), choosing(1000, 10), choosing(2000, 100), estimator(1000, 10), estimator(3000, 30)],
    ),
    Strategy(
        "fold_pairs",
        "a subsample of the pairs of folds",
        off((fold_paths, "PAIRS_PER_ROW", 10**9)),
        lambda: [choosing(2000, 10), estimator(3000, 30)],
    ),
    Strategy(
        "few_rows",
        "gamma on 1000 of more than 2500 rows",
        off((search_gamma, "MANY_ROWS", 10**9)),
        lambda: [choosing(4000, 10), choosing(8000, 10)],
    ),
    Strategy(
        "fold_means",
        "folds of the calibration by their means alone",
        off((calibration, "suits_fold_means", lambda found: False)),
        lambda: [estimator(300, 10), estimator(1000, 10), estimator(3000, 30), estimator(10_000, 10)],
    ),
    Strategy(
        "fit_quickly",
        "a smaller subsample for the estimator's fit",
        off((estimator_gamma, "_fit_quickly", whole_fit)),
        lambda: [estimator(1000, 10), estimator(3000, 30), estimator(10_000, 10)],
    ),
    Strategy(
        "log_sum",
        "a sum of exponentials without SciPy (matching bound)",
        off((matchings, "_log_sum", lambda logs: float(special.logsumexp(logs)))),
        lambda: [matching_certificate(400, 5), matching_certificate(1000, 5)],
    ),
)


# -- measuring -------------------------------------------------------------------------------------------------------

_plain = {}


def plain_outcome(each):
    if each.plain is None:
        return None
    if each.name not in _plain:
        with PLAIN():
            _plain[each.name] = each.plain()
    return _plain[each.name]


def timed(function):
    began = process_time()
    found = function()
    return process_time() - began, found


def compared(each, without, turns):
    """Seconds with the strategy, the ratio, and the outcomes with and without; the first turn compiles kernels."""
    seconds = []
    for _ in range(1 + turns):
        with_it, found = timed(each.run)
        with without():
            without_it, other = timed(each.run)
        seconds.append((with_it, without_it))
        if min(seconds[-1]) > LONG and len(seconds) > 1:
            break
    with_it, without_it = np.array(seconds[1:]).T
    return float(np.median(with_it)), float(np.median(without_it / with_it)), found, other


def difference(found, expected):
    """Of score means, in standard deviations; of log Z; or of other numbers."""
    if found.others:
        return ", ".join(f"{name} {value:.4g}" for name, value in found.others.items())
    mean = np.sqrt(np.mean(((found.mean - expected.mean) / expected.sd) ** 2))
    missed = "" if found.converged else ", not converged"
    return f"{mean:.0e} sd, {abs(found.log_evidence - expected.log_evidence):.0e} nats{missed}"


def rows_of(strategy, turns, largest):
    for each in strategy.works():
        if each.rows > largest:
            continue
        seconds, ratio, found, other = compared(each, strategy.without, turns)
        plain = plain_outcome(each)
        if plain is None and not found.others:
            errors = (f"({difference(found, other)})", "")
        else:
            errors = (difference(found, plain), difference(other, plain))
        yield [strategy.name, each.name, f"{seconds:.2f}", f"{ratio:.2f}", *errors]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=[each.key for each in STRATEGIES])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--largest", type=int, default=1_000_000, help="rows of the largest work")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    options = parser.parse_args()
    lines = [
        "| strategy | work | CPU s with it | without / with | error with it | error without |",
        "|---|---|--:|--:|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for strategy in STRATEGIES:
        if options.only is None or strategy.key in options.only:
            for row in rows_of(strategy, options.turns, options.largest):
                lines.append(f"| {' | '.join(row)} |")
                print(lines[-1], flush=True)
    if options.write:
        text = PAGE.read_text()
        head = text[: text.index("| strategy |")]
        PAGE.write_text(head + "\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
