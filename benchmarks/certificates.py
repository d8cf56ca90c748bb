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

python -m benchmarks.certificates [--datasets 100] [--largest 50000]
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import math
import warnings
from dataclasses import replace

import numpy as np
from scipy.special import ndtr, ndtri

from pymc_pacauc.core.bounds import catoni_bound, catoni_rate, kl_upper, pac_bayes_kl
from pymc_pacauc.core.matchings import deal_matchings, matching_bound, matching_rate
from pymc_pacauc.core.problem import linear_gaussian_problem
from pymc_pacauc.core.risk import empirical_risk
from pymc_pacauc.core.theorems import default_gamma
from pymc_pacauc.fitting import ConvergenceWarning, fit
from pymc_pacauc.split_bounds import mean_log_moment, split_bounds

D = 7
SIZES = (200, 532, 2000, 5000, 50_000)
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
    split = split_bounds(problem, epsilon=epsilon, n_jobs=1)
    risk = split.whole.expected_risk
    rest = ~split.in_part
    chernoff = math.log(1 / epsilon) / min(y[rest].sum(), (1 - y[rest]).sum())
    found = bounds_of_draws(split.whole, X, y, risk, epsilon, rng)
    found[3], found[6] = split.draw_auc, split.mean_auc
    found[7], found[8] = 1 - kl_upper(1 - split.part_empirical_auc, chernoff), split.part_auc
    return found, truths(split.whole.posterior, split.part.posterior.mean, delta, rng)


def bounds_of_draws(whole, X, y, risk, epsilon, rng):
    """The bounds that need no split, in the order of ``NAMES``; zeros elsewhere."""
    n_pos, n_neg = int(y.sum()), int((1 - y).sum())
    m = min(n_pos, n_neg)
    known = (risk, whole.divergence, m, epsilon)
    rate = matching_rate(n_pos, n_neg, D, epsilon)
    moment = mean_log_moment(whole.posterior.draw(100, rng) @ X.T, deal_matchings(y == 1), rate / m)
    kl = pac_bayes_kl(*known)
    matched = matching_bound(moment.safe, whole.divergence, m, epsilon, rate=rate)
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
    found = bounds_of_draws(part, X, y, risk, epsilon, rng)
    from pymc_pacauc import holdout_certificate

    fixed = holdout_certificate(X[~chosen] @ part.posterior.mean, y[~chosen], epsilon)
    found[7] = 1 - kl_upper(1 - fixed.empirical_auc, math.log(1 / epsilon) / min(fixed.n_pos, fixed.n_neg))
    found[8] = fixed.auc
    return found, truths(part.posterior, part.posterior.mean, delta, rng)


def truths(posterior, part_mean, delta, rng):
    return np.array(
        [true_auc(posterior.draw(2000, rng), delta), true_auc(posterior.mean, delta), true_auc(part_mean, delta)]
    )


def table(datasets, largest, epsilon, seed):
    print(f"epsilon = {epsilon}, d = {D}; mean over data sets of the certified AUC, and (failures).\n")
    print(f"| n | best AUC | data sets | true: draw | mean | part | {' | '.join(NAMES)} |")
    print(f"|---:|---:|---:|---:|---:|---:|{'---:|' * len(NAMES)}")
    worst = 0.0
    for n in SIZES:
        if n > largest:
            continue
        repeats = datasets if n <= 1000 else max(3, datasets // 5) if n <= 2000 else max(3, datasets // 30)
        for auc in AUCS:
            rng = np.random.default_rng([seed, n, round(1000 * auc)])
            results = [certified(n, auc, rng, epsilon) for _ in range(repeats)]
            bounds, truth = (np.array(values) for values in zip(*results, strict=True))
            failures = (bounds > truth[:, TRUTHS]).sum(axis=0)
            if repeats >= 50:
                worst = max(worst, failures.max() / repeats)
            cells = " | ".join(
                f"{b:.3f} ({f})" if b > 0 else "-" for b, f in zip(bounds.mean(0), failures, strict=True)
            )
            print(
                f"| {n} | {auc} | {repeats} | {' | '.join(f'{t:.3f}' for t in truth.mean(0))} | {cells} |", flush=True
            )
    return worst


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", type=int, default=100)
    parser.add_argument("--epsilon", type=float, default=0.05)
    parser.add_argument("--largest", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=2014)
    arguments = parser.parse_args()
    if table(arguments.datasets, arguments.largest, arguments.epsilon, arguments.seed) > arguments.epsilon:
        raise SystemExit("Certificates failed more often than epsilon allows.")
