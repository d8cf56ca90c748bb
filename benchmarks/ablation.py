"""What each strategy of a fit buys: the same work with it and without it, CPU seconds and error.

    python -m benchmarks.ablation [--only features band ...] [--turns 3] [--largest 100000] [--write]

A strategy that the plan chooses is left out by another plan; one inside an engine by replacing its function.
*Ratio*: CPU seconds without it over CPU
seconds with it, one thread, the two taking turns, the median over turns (one turn where a run takes
more than ``LONG`` seconds), after a turn that is not counted.
*Error*: against the plain engine (all pairs, coefficients, from the prior, tolerance 1e-9), of the mean score of a
row, in its posterior standard deviations (root mean square over rows), and of log Z in nats; where the plain engine
would take minutes, the difference between the two runs instead, in brackets. ``--write`` puts the table into
docs/develop/what_each_part_buys.md.
"""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse
import math
import sys
import warnings
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from time import process_time
from unittest import mock

import numpy as np
from scipy import special

import pymc_pacauc as pac
from pymc_pacauc.certify import matchings
from pymc_pacauc.comparison.censored import concordance
from pymc_pacauc.comparison.kinds import stratified, unordered_classes
from pymc_pacauc.comparison.pairs import Pairs, bipartite
from pymc_pacauc.comparison.risk import DistinctRows
from pymc_pacauc.ep import leave_out, loop, subsample, subsample_sums, sweep
from pymc_pacauc.ep.fit import fit
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.ep.plan import choose_plan
from pymc_pacauc.ep.start import GammaPath
from pymc_pacauc.estimator import posterior as estimator_posterior
from pymc_pacauc.fitting import fit as fit_by_options
from pymc_pacauc.problem import scores as core_scores
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.tune import gamma as search_gamma

PAGE = Path(__file__).parents[1] / "docs" / "develop" / "what_each_part_buys.md"
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
    """Something a user asks for. ``run()`` does it from the arrays on, ``run(change)`` by another plan; ``plain()`` by
    the plain engine, or is None.
    """

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


def same(plan):
    return plan


def plain(plan):
    """All pairs, coefficients, from the prior, to many digits."""
    return replace(plan, coordinates="coefficients", pairs="all", start="prior", continuation=False, tolerance=1e-9)


def fitted(design, pairs_of, change=same, gamma=None):
    """One fit, beginning with the arrays."""
    problem = linear_gaussian_problem(design, pairs_of(), float(len(design) if gamma is None else gamma))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return outcome(fit(problem, change(choose_plan(problem)), n_jobs=1))


def fit_work(name, design, pairs_of, compare=True, gamma=None):
    run = partial(fitted, design, pairs_of, gamma=gamma)
    return Work(name, len(design), run, partial(run, plain) if compare else None)


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


def classes(n, d, count):
    """Unordered classes, each with a score of its own coefficients: the independent parts of one problem."""
    X, _ = linear_data(n, d)
    rng = np.random.default_rng(5)
    y = np.argmax(X @ rng.standard_normal((d, count)) / np.sqrt(d) + rng.gumbel(size=(n, count)), axis=1)

    def pairs():
        of_class = [each.map(k * n + np.arange(n), count * n) for k, each in enumerate(unordered_classes(y))]
        return Pairs(count * n, tuple(block for each in of_class for block in each.blocks))

    return fit_work(f"{count} classes, {n} rows, d = {d}", np.kron(np.eye(count), X), pairs, False, gamma=n)


def choosing(n, d):
    """Choosing gamma by folds."""
    X, y = linear_data(n, d)

    def run(change=same):
        problem = linear_gaussian_problem(X, y, float(n))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            if change is same:
                choice = search_gamma.choose_gamma(problem, n_jobs=1)
                best = choice.candidates[choice.chosen]
            else:
                assigned = search_gamma.assign_folds(problem.pairs, 5)
                whole = fit_by_options(problem, accuracy="path", n_jobs=1)
                folds = search_gamma.leave_out_folds(problem, assigned, change(choose_plan(problem)), whole)
                found, chosen = search_gamma.choose_among(
                    lambda gamma: search_gamma.held_out(folds, gamma, n_jobs=1), None, problem.pairs
                )
                best = found[chosen]
        return Outcome(others={"gamma": best.gamma, "AUC of folds": best.auc.mean()})

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
        grouping = matchings.matching_groups(np.asarray(y))
        score, rng = X @ np.ones(d), np.random.default_rng(0)
        moments = [grouping.of(score + rng.standard_normal(n)).log_moment(0.5) for _ in range(100)]
        return Outcome(others={"log moment": float(np.mean(moments))})

    return Work(f"100 draws of a matching bound, {n} rows", n, run)


# -- strategies, and how they are switched off -------------------------------------------------------------------------


@dataclass(frozen=True)
class Strategy:
    """A part of the engine: what it is ("" where ``without`` is another way), how to do without it, and for what."""

    key: str
    name: str
    without: object  # a function from plan to plan, or a list of (owner, attribute, value to put in its place)
    works: object  # a function that lists them


def off(patches):
    stack = ExitStack()
    for owner, attribute, value in patches:
        stack.enter_context(mock.patch.object(owner, attribute, value))
    return stack


def everything_close(place_i, width_i, *more, listed=subsample_sums.near_and_far):
    return listed(place_i, np.full_like(width_i, 1e30), *more)


def all_different(rows):
    every = np.arange(len(rows), dtype=np.intp)
    return DistinctRows(every, every)


def no_mixing(history, point, plain, weighed, memory):
    return plain, history


def whole_fit(problem, method="ep", *, accuracy="fit", **options):
    return fit_by_options(problem, method, **options)


def not_thinned(plan):
    return replace(plan, pairs=replace(plan.pairs, thin=False))


SMALL = lambda: [linear(1000, 10), linear(1000, 100), linear(1000, 10, times=10)]  # noqa: E731
LARGE = lambda: [linear(10_000, 10), linear(100_000, 10, False), linear(100_000, 100, False)]  # noqa: E731
SMOOTH = lambda: [process(500, 2), process(500, 2, times=5), process(1000, 2), process(3000, 2, False)]  # noqa: E731
ROUGH = lambda: [process(500, 10), process(500, 10, times=5), process(1000, 10), process(2000, 10, False)]  # noqa: E731

STRATEGIES = (
    Strategy(
        "mixing",
        "Anderson mixing",
        [(loop, "mixed_step", no_mixing)],
        lambda: [*SMALL(), linear(1000, 2, times=20), linear(1000, 10, times=50)],
    ),
    Strategy("rescaling", "the known length of q", [(loop, "_scale_target", lambda q, seen: 0.0)], SMALL),
    Strategy(
        "features",
        "the directions of a process that matter (pivoted Cholesky)",
        partial(replace, coordinates="coefficients"),
        lambda: [*SMOOTH(), *ROUGH()],
    ),
    Strategy(
        "few_features",
        "a start at a rough fit of the leading features, of processes",
        partial(replace, start="prior"),
        lambda: [*SMOOTH(), *ROUGH()],
    ),
    Strategy(
        "subsample",
        "a subsample of pairs",
        partial(replace, pairs="all"),
        lambda: [linear(5000, 10), linear(10_000, 10)],
    ),
    Strategy(
        "band",
        "only near pairs of the subsample are looked at",
        [(subsample_sums, "near_and_far", everything_close)],
        LARGE,
    ),
    Strategy("thinned", "one far pair in up to 32", not_thinned, LARGE),
    Strategy(
        "near",
        "Newton's steps before a stage, pairs sampled anew for each",
        [(subsample._Run, "near", lambda self, q, off: (q, 1.0))],
        lambda: [*LARGE(), linear(1_000_000, 10, False)],
    ),
    Strategy(
        "by_weight",
        "blocks split by weight where weights are few",
        [(sweep, "_by_weight", lambda block, most: [block])],
        lambda: [weighted(2000, 10, True)],
    ),
    Strategy(
        "small_blocks",
        "one compiled loop for small blocks",
        [(sweep, "cut_work", partial(sweep.cut_work, small_block=0))],
        lambda: [strata(2000, 10, 5), strata(2000, 10, 20), survival(1000, 10), survival(3000, 10)],
    ),
    Strategy(
        "distinct",
        "equal rows found once",
        [(core_scores, "distinct_rows", all_different)],
        lambda: [repeated_rows(2000, 5), linear(1000, 10)],
    ),
    Strategy(
        "fold_paths",
        "a path of its own for each fold",
        partial(replace, folds="removed sites"),
        lambda: [choosing(500, 10), choosing(1000, 10), choosing(2000, 100)],
    ),
    Strategy(
        "fold_pairs",
        "a subsample of the pairs of folds",
        [(leave_out, "GammaPath", partial(GammaPath, pairs_per_row=np.inf))],
        lambda: [choosing(2000, 10), estimator(3000, 30)],
    ),
    Strategy(
        "few_rows",
        "gamma on 1000 of more than 2500 rows",
        [(search_gamma, "MANY_ROWS", 10**9)],
        lambda: [choosing(4000, 10), choosing(8000, 10)],
    ),
    Strategy(
        "parts",
        "a start at fits of the independent parts",
        partial(replace, start="prior"),
        lambda: [classes(300, 10, 6), classes(300, 30, 10)],
    ),
    Strategy(
        "estimator",
        "an estimator's accuracy, which subsamples sooner",
        [(estimator_posterior, "fit", whole_fit)],
        lambda: [estimator(1000, 10), estimator(3000, 30), estimator(4400, 10), estimator(10_000, 10)],
    ),
    Strategy(
        "log_sum",
        "a sum of exponentials without SciPy (matching bound)",
        [(matchings, "_log_sum", lambda logs: float(special.logsumexp(logs)))],
        lambda: [matching_certificate(400, 5), matching_certificate(1000, 5)],
    ),
)


# -- measuring -------------------------------------------------------------------------------------------------------

_plain = {}


def plain_outcome(each):
    if each.plain is None:
        return None
    if each.name not in _plain:
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
        if isinstance(without, list):
            with off(without):
                without_it, other = timed(each.run)
        else:
            without_it, other = timed(partial(each.run, without))
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
