"""Do certificates hold, and how tight are they?

Two Gaussian classes, N(+delta/2, I) and N(-delta/2, I): the AUC of any linear score is known, Phi(<theta, delta> /
(sqrt(2) |theta|)), so the AUC that a certificate bounds from below (of a score drawn from the posterior) is known up to
negligible Monte Carlo error. Three questions:

1. over many data sets, how often does the certified AUC exceed the true one? At most epsilon of the time;
2. how does it compare with a certificate for one gamma when gamma is chosen to maximise it (PAC-Bayes-kl holds for
   all posteriors at once, so this is allowed)?
3. how far is it from the truth as n grows?

python -m benchmarks.certificates [--datasets 500] [--largest 50000]
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import time
import warnings
from dataclasses import replace

import numpy as np
from scipy.special import ndtr, ndtri

from pymc_pacauc.analysis.certify import class_sizes, expected_risk
from pymc_pacauc.core.bounds import catoni_bound, catoni_rate, linear_bound, linear_rate, pac_bayes_kl
from pymc_pacauc.core.problem import linear_gaussian_problem
from pymc_pacauc.ep.gaussian import ConvergenceWarning, EPFit, fit_ep, fit_vb

GRID = (0.5, 1.0, 2.0, 4.0)  # times the default rate
CONFIGURATIONS = ((20, 20, 2, 0.80), (50, 150, 5, 0.80), (177, 355, 7, 0.87))


def simulate(n_pos, n_neg, d, auc, rng):
    """Rows, labels, and the difference of the class means, whose length sets the best AUC."""
    delta = rng.normal(size=d)
    delta *= np.sqrt(2.0) * ndtri(auc) / np.linalg.norm(delta)
    y = np.repeat([1, 0], [n_pos, n_neg])
    return rng.normal(size=(n_pos + n_neg, d)) + np.outer(y - 0.5, delta), y, delta


def true_auc(fit: EPFit, delta, rng, draws=4000):
    """AUC of a score drawn from the posterior."""
    theta = fit.posterior.draw(draws, rng)
    return float(ndtr(theta @ delta / (np.sqrt(2.0) * np.linalg.norm(theta, axis=1))).mean())


def certified(fit: EPFit, bound, epsilon):
    m = min(class_sizes(fit.problem.pairs))
    known = (expected_risk(fit), fit.posterior.divergence_from_prior, m, epsilon)
    if bound == "kl":
        return 1.0 - pac_bayes_kl(*known)
    if bound == "Catoni":
        return 1.0 - catoni_bound(*known, rate=catoni_rate(m, fit.problem.d, epsilon))
    return 1.0 - linear_bound(*known, rate=linear_rate(m, fit.problem.d, epsilon))


def coverage(datasets, epsilon, seed):
    print(f"\n## Coverage: {datasets} data sets each, epsilon = {epsilon}\n")
    print("| n+ | n- | d | posterior | bound | certified AUC | true AUC | violations | allowed |")
    print("|---:|---:|---:|---|---|---:|---:|---:|---:|")
    worst = 0.0
    for n_pos, n_neg, d, auc in CONFIGURATIONS:
        rng = np.random.default_rng(seed)
        rows: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for _ in range(datasets):
            X, y, delta = simulate(n_pos, n_neg, d, auc, rng)
            rate = linear_rate(min(n_pos, n_neg), d, epsilon)
            problem = linear_gaussian_problem(X, y, rate)
            fits = {"EP": fit_ep(problem), "VB": fit_vb(problem)}
            for name, fit in fits.items():
                truth = true_auc(fit, delta, rng)
                for bound in ("kl", "Catoni", "linear"):
                    rows.setdefault((name, bound), []).append((certified(fit, bound, epsilon), truth))
            best = best_of_grid(problem, rate, epsilon)
            rows.setdefault(("EP, best gamma", "kl"), []).append(
                (certified(best, "kl", epsilon), true_auc(best, delta, rng))
            )
        for (name, bound), values in rows.items():
            lower, truth = np.array(values).T
            violations = int(np.sum(lower > truth))
            worst = max(worst, violations / datasets)
            print(
                f"| {n_pos} | {n_neg} | {d} | {name} | {bound} | {lower.mean():.3f} | {truth.mean():.3f} | "
                f"{violations} | {int(epsilon * datasets)} |",
                flush=True,
            )
    return worst


def best_of_grid(problem, rate, epsilon, **options):
    fits, fit = [], None
    for factor in GRID:
        fit = fit_ep(replace(problem, gamma=factor * rate), start=fit, **options)
        fits.append(fit)
    return max(fits, key=lambda fit: certified(fit, "kl", epsilon))


def tightness(largest, epsilon, seed):
    print(f"\n## Tightness: one data set each, gamma the best of {len(GRID)}, epsilon = {epsilon}\n")
    print("| n | d | m | gamma | KL | empirical AUC | certified: kl | Catoni | linear | kl, VB | true AUC | s |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for n, d, share in ((532, 7, 1 / 3), (532, 7, 1 / 2), (5000, 10, 1 / 2), (50_000, 10, 1 / 2)):
        if n > largest:
            continue
        rng = np.random.default_rng(seed)
        m = round(n * share)
        X, y, delta = simulate(m, n - m, d, 0.875, rng)
        started = time.perf_counter()
        rate = linear_rate(m, d, epsilon)
        problem = linear_gaussian_problem(X, y, rate)
        if n <= 5000:
            fit = best_of_grid(problem, rate, epsilon)
            vb = fit_vb(fit.problem, start=fit)
        else:  # begin at the answer of a tenth of the rows; a bound holds for any q, so a rough fit will do
            part = rng.random(n) < 0.1
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                start = best_of_grid(linear_gaussian_problem(X[part], y[part], rate), 2.0 * rate, epsilon)
                large = replace(problem, gamma=2.0 * rate)
                fit = fit_ep(large, start=start, tolerance=1e-2, max_sweeps=8)
                vb = fit_vb(large, start=fit, tolerance=1e-2, max_sweeps=2)
        seconds = time.perf_counter() - started
        lower = " | ".join(f"{certified(fit, bound, epsilon):.3f}" for bound in ("kl", "Catoni", "linear"))
        print(
            f"| {n} | {d} | {m} | {fit.problem.gamma:.0f} | {fit.posterior.divergence_from_prior:.2f} | "
            f"{1 - expected_risk(fit):.3f} | {lower} | {certified(vb, 'kl', epsilon):.3f} | "
            f"{true_auc(fit, delta, rng):.3f} | {seconds:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", type=int, default=500)
    parser.add_argument("--epsilon", type=float, default=0.05)
    parser.add_argument("--largest", type=int, default=50_000, help="largest n of the second table")
    parser.add_argument("--seed", type=int, default=2014)
    arguments = parser.parse_args()
    tightness(arguments.largest, arguments.epsilon, arguments.seed)
    if coverage(arguments.datasets, arguments.epsilon, arguments.seed) > arguments.epsilon:
        raise SystemExit("Certificates were violated more often than epsilon allows.")
