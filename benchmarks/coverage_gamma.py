"""Do credible sets cover? gamma calibrated to coverage, beside gamma by cross-validation, gamma = n, and the default.

Data sets of n = 300 rows and d = 4 covariates, y = 1 where x' theta* + noise exceeds a threshold: the direction theta*
has the largest AUC of all linear scores. Four designs:

- logistic: normal covariates, logistic noise;
- step: y is random with probability 0.85 or 0.15 on the two sides of a hyperplane, as far from smooth as can be;
- heavy tails: covariates with Student's t(3), logistic noise;
- correlated: normal covariates with pairwise correlation 0.7, logistic noise.

Asked of each posterior, at level 0.9: does the credible set of directions (the highest-density one, its size by draws)
contain theta*; do the credible intervals of the score differences of new pairs (of unit-length theta, in the prior's
metric) contain those of theta*; and, of the calibrated posterior, does the interval of the AUC of a draw over rows and
posterior, on as many new rows, contain the AUC that draws have in the population (20 draws, 20 000 rows), and that of
theta*, which is larger? A column says how often directions are covered in the half of the data sets with the lower
gamma, and the fifth with the highest.

python -m benchmarks.coverage_gamma [--datasets 300] [--plot docs/figures/coverage_gamma.png]
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import warnings
from dataclasses import replace

import numpy as np

import pymc_pacauc as pac
from pymc_pacauc.comparison.risk import empirical_risk
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.tune.coverage import coverage_gamma
from pymc_pacauc.tune.gamma import choose_gamma

N, D, LEVEL, DRAWS, PAIRS, JUDGED = 300, 4, 0.9, 1000, 40, 20
DESIGNS = ("logistic", "step", "heavy tails", "correlated")
DIRECTION = np.array([1.0, -0.5, 0.25, 0.0])


def simulate(design, n, rng):
    """Rows and labels of which ``DIRECTION`` is the best linear score."""
    X = rng.standard_t(3, size=(n, D)) if design == "heavy tails" else rng.normal(size=(n, D))
    if design == "correlated":
        X = np.sqrt(0.3) * X + np.sqrt(0.7) * rng.normal(size=(n, 1))
    score = X @ DIRECTION
    if design == "step":
        return X, rng.random(n) < np.where(score > 0.3, 0.85, 0.15)
    return X, 1.5 * score + rng.logistic(size=n) > 0.5


def direction_statistic(theta, posterior):
    """T: squared distance of the nearest multiple of theta from the mean, in the posterior's metric."""
    precision = np.linalg.inv(posterior.covariance)
    toward = theta @ precision
    along = toward @ posterior.mean
    size = np.einsum("...i,...i->...", toward, theta)
    return posterior.mean @ precision @ posterior.mean - np.maximum(along, 0.0) ** 2 / size


def covers(posterior, X_new, rng):
    """Whether the set of directions contains what it should, and the share of score differences that do."""
    draws = posterior.draw(DRAWS, rng)
    in_set = direction_statistic(DIRECTION, posterior) <= np.quantile(direction_statistic(draws, posterior), LEVEL)
    unit, truth = draws / np.linalg.norm(draws, axis=1, keepdims=True), DIRECTION / np.linalg.norm(DIRECTION)
    pairs = X_new[:PAIRS] - X_new[PAIRS : 2 * PAIRS]
    tails = [0.5 * (1 - LEVEL), 0.5 * (1 + LEVEL)]
    low, high = np.quantile(unit @ pairs.T, tails, axis=0)
    inside = (low <= pairs @ truth) & (pairs @ truth <= high)
    return float(in_set), float(inside.mean())


def covers_auc(posterior, X_new, y_new, population, rng):
    """Whether the interval over rows and posterior contains the AUC of draws in the population, and that of theta*."""
    said = pac.auc_interval(posterior.draw(300, rng) @ X_new.T, y_new, over="both", ci_prob=LEVEL)
    X, y, best = population
    aucs = 1.0 - empirical_risk(posterior.draw(JUDGED, rng) @ X.T, y)
    return float(np.mean((said.lower <= aucs) & (aucs <= said.upper))), float(said.lower <= best <= said.upper)


def posteriors_of(problem):
    """The posteriors compared, by how their gamma was chosen."""
    return {
        "coverage": coverage_gamma(problem, LEVEL, n_jobs=1).fit,
        "cross-validation": fit(replace(problem, gamma=choose_gamma(problem, n_jobs=1).gamma), n_jobs=1),
        "n": fit(replace(problem, gamma=float(problem.n)), n_jobs=1),
    }


def measure(design, datasets, seed=2014):
    rng = np.random.default_rng([seed, DESIGNS.index(design)])
    X, y = simulate(design, 200_000, rng)
    population = X[:20_000], y[:20_000], 1.0 - float(empirical_risk(X @ DIRECTION, y))
    found = {}
    for k in range(datasets):
        rng = np.random.default_rng([seed, DESIGNS.index(design), k])
        X, y = simulate(design, N, rng)
        X_new, y_new = simulate(design, N, rng)
        problem = linear_gaussian_problem(X, y, 1.0)
        for name, fitted in posteriors_of(problem).items():
            said = covers(fitted.posterior, X_new, rng)
            calibrated = name == "coverage"
            of_auc = covers_auc(fitted.posterior, X_new, y_new, population, rng) if calibrated else (np.nan, np.nan)
            found.setdefault(name, []).append((fitted.problem.gamma, *said, *of_auc))
    return {name: np.array(values) for name, values in found.items()}


def plot(results, path):
    import matplotlib

    matplotlib.use("Agg")
    from pymc_pacauc.analysis.plots.canvas import COLORS, GREY, new_axes

    axes = new_axes(columns=2, figsize=(10.0, 3.8))
    for panel, column, title in zip(
        axes, (1, 2), ("direction of theta", "score differences of new pairs"), strict=True
    ):
        panel.axhspan(LEVEL - 0.03, LEVEL + 0.03, color=GREY, alpha=0.2, linewidth=0)
        panel.axhline(LEVEL, color=GREY, linewidth=0.8)
        for k, name in enumerate(next(iter(results.values()))):
            values = np.array([results[design][name][:, column] for design in results])
            error = 1.96 * values.std(axis=1) / np.sqrt(values.shape[1])
            at = np.arange(len(results)) + 0.16 * (k - 1)
            panel.errorbar(at, values.mean(axis=1), yerr=error, fmt="o", color=COLORS[k], label=name)
        panel.set_xticks(range(len(results)), list(results))
        panel.set(title=title, ylabel="coverage of 90% sets", ylim=(0.8, 1.01))
        panel.spines[["top", "right"]].set_visible(False)
    axes[1].legend(frameon=False, fontsize="small", title="gamma by", loc="lower right")
    axes[0].figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", type=int, default=300)
    parser.add_argument("--designs", nargs="+", default=DESIGNS, choices=DESIGNS)
    parser.add_argument("--plot", default=None, help="file of the figure")
    parser.add_argument("--save", default=None, help="file of what was measured")
    parser.add_argument("--load", nargs="+", default=(), help="such files, instead of measuring again")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    print(f"n = {N}, d = {D}, level {LEVEL}: coverage over {arguments.datasets} data sets (± s.e.).\n")
    print(
        "| design | gamma by | gamma, 5% to 95% | direction | where gamma is low, high | score differences "
        "| AUC of a draw | AUC of theta* |"
    )
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    results, furthest = {}, np.zeros(3)
    saved = [dict(np.load(name)) for name in arguments.load]
    for design in arguments.designs:
        loaded = {k.split("/")[1]: v for each in saved for k, v in each.items() if k.startswith(f"{design}/")}
        results[design] = loaded or measure(design, arguments.datasets)
        for name, values in results[design].items():
            cells = [f"{v.mean():.3f} ± {v.std() / np.sqrt(v.size):.3f}" for v in values[:, 1:].T]
            gamma, inside = values[:, 0], values[:, 1]
            low, middle, high, highest = np.quantile(gamma, [0.05, 0.5, 0.8, 0.95])
            varies = f"{inside[gamma <= middle].mean():.2f}, {inside[gamma > high].mean():.2f}" if highest > low else ""
            cells = [f"{low:.0f} to {highest:.0f}", cells[0], varies, *cells[1:]]
            shown = " | ".join("" if "nan" in cell else cell for cell in cells)
            print(f"| {design} | {name} | {shown} |", flush=True)
        furthest = np.maximum(furthest, np.abs(results[design]["coverage"][:, 1:4].mean(axis=0) - LEVEL))
    shown = ", ".join(f"{each:.3f}" for each in furthest)
    print(f"\nFurthest from {LEVEL} of calibrated sets of directions, score differences, AUCs of draws: {shown}.")
    if arguments.save:
        np.savez(arguments.save, **{f"{d}/{n}": v for d, named in results.items() for n, v in named.items()})
    if arguments.plot:
        plot(results, arguments.plot)


if __name__ == "__main__":
    main()
