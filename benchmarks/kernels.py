"""Kernel features against scikit-learn's GaussianProcessClassifier at equal n; AUC on rows that neither saw.

    python -m benchmarks.kernels [fixed] [optimised] [peers]

Everything by default; about four minutes on one core. CPU seconds, all on one thread: with ``fixed`` medians of runs
that take turns, with ``optimised`` the smaller of two; prediction of 2000 new rows is not timed. The classes are not
linearly separable: with standard normal covariates, the score is sin(2 x_1) + x_2^2 plus noise, the other covariates do
not matter.

``fixed``: squared exponential at half the median distance, gamma = n. Features: at most 100, at most 300. Process:
pm.gp.Latent's problem, K with a jitter of 1e-6, which becomes features where its numerical rank is low; *looking* is
what it costs to find out, within that. Times with the number of coefficients in brackets.
``optimised``: one lengthscale by evidence, at most 300 features, at most ten evaluations of evidence and gradient on
both sides.
``peers``: held-out AUC of linear scores, kernel features by evidence, and boosted trees.
"""

import argparse
import warnings
from time import process_time

import numpy as np
from scipy import linalg

from pymc_pacauc import fitting
from pymc_pacauc.comparison.risk import empirical_risk
from pymc_pacauc.numerics import single_threaded_blas
from pymc_pacauc.problem.kernel_features import COVARIANCES, kernel_features, median_distance
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.tune.evidence import choose_lengthscale

SIZES = (
    *((200, 2), (500, 2), (1000, 2), (2000, 2), (200, 3), (500, 3), (1000, 3), (2000, 3)),
    *((200, 10), (500, 10), (1000, 10), (200, 30), (500, 30), (1000, 30)),
)
TURNS = 5  # and of 2000 rows, three
OPTIMISED = ((500, 2), (1000, 2), (500, 10))
RANKS = (100, 300)
RANK = 300
EVALUATIONS = 10


def simulated(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, (np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.5 * rng.logistic(size=n) > 1.0).astype(int)


def timed(function):
    """Its result and its CPU seconds."""
    began = process_time()
    result = function()
    seconds = process_time() - began
    if seconds < 5.0:
        began = process_time()
        function()
        seconds = min(seconds, process_time() - began)
    return result, seconds


def classifier(X, y, lengthscale, evaluations=0):
    """Laplace's approximation by scikit-learn; with as many evaluations of evidence and gradient as we allow."""
    from scipy.optimize import minimize
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF

    def optimizer(objective, start, bounds):
        options = {"maxfun": evaluations}
        found = minimize(objective, start, method="L-BFGS-B", jac=True, bounds=bounds, options=options)
        return found.x, found.fun

    return GaussianProcessClassifier(RBF(lengthscale), optimizer=optimizer if evaluations else None).fit(X, y)


def features_fit(X, y, lengthscale, rank):
    features = kernel_features(X, lengthscale=lengthscale, rank=rank)
    return features, fitting.fit(linear_gaussian_problem(features.transform(X), y, float(len(y))), n_jobs=1)


def process(X, y, lengthscale):
    K = COVARIANCES["squared_exponential"](X / lengthscale, X / lengthscale)
    factor = linalg.cholesky(K + 1e-6 * np.eye(len(X)), lower=True, check_finite=False)
    return factor, linear_gaussian_problem(factor, y, float(len(y)))


def process_fit(X, y, lengthscale):
    factor, problem = process(X, y, lengthscale)
    return factor, fitting.fit(problem, n_jobs=1)


def looking(X, y, lengthscale):
    """Seconds to find out whether a process has few directions, and which."""
    _, problem = process(X, y, lengthscale)
    began = process_time()
    problem.scores.reduced  # noqa: B018
    return process_time() - began


def auc(scores, labels):
    return 1.0 - empirical_risk(np.asarray(scores), labels)


def in_turns(functions, turns):
    """Results by name, and median CPU seconds after a first turn."""
    results, seconds = {}, {name: [] for name in functions}
    for turn in range(turns + 1):
        for name, function in functions.items():
            began = process_time()
            results[name] = function()
            if turn:
                seconds[name].append(process_time() - began)
    return results, {name: float(np.median(values)) for name, values in seconds.items()}


def fixed():
    few = [f"at most {rank} features" for rank in RANKS]
    names = ["GaussianProcessClassifier", *few, "process"]
    print(f"| n | d | {' | '.join(names)} | looking | ratios | {' | '.join(f'AUC: {name}' for name in names)} |")
    print("|---:" * (4 + 2 * len(names)) + "|", flush=True)
    for n, d in SIZES:
        X, y = simulated(n, d)
        new, labels = simulated(2000, d, seed=1)
        ls = 0.5 * median_distance(X)
        functions = {names[0]: lambda X=X, y=y, ls=ls: classifier(X, y, ls)}
        for name, rank in zip(few, RANKS, strict=True):
            functions[name] = lambda X=X, y=y, ls=ls, rank=rank: features_fit(X, y, ls, rank)
        functions["process"] = lambda X=X, y=y, ls=ls: process_fit(X, y, ls)
        found, seconds = in_turns(functions, TURNS if n < 2000 else 3)
        factor, whole = found["process"]
        sizes = {name: f" ({found[name][0].rank})" for name in few}
        sizes["process"] = f" ({whole.problem.scores.reduced.dimension})"
        aucs = [auc(found[names[0]].predict_proba(new)[:, 1], labels)]
        for name in few:
            features, fit = found[name]
            aucs.append(auc(features.transform(new) @ fit.posterior.mean, labels))
        cross = COVARIANCES["squared_exponential"](X / ls, new / ls)
        aucs.append(auc(cross.T @ linalg.solve_triangular(factor, whole.posterior.mean, lower=True, trans="T"), labels))
        times = " | ".join(f"{seconds[name]:.3f} s{sizes.get(name, '')}" for name in names)
        search = np.median([looking(X, y, ls) for _ in range(TURNS)])
        ratios = ", ".join(f"{seconds[name] / seconds[names[0]]:.1f}" for name in names[1:])
        print(
            f"| {n} | {d} | {times} | {search:.3f} s | {ratios} | {' | '.join(f'{a:.3f}' for a in aucs)} |", flush=True
        )


def optimised():
    print("\n| n | d | GaussianProcessClassifier | features | ratio | lengthscales | AUC: GPC | features |")
    print("|---:" * 8 + "|", flush=True)
    for n, d in OPTIMISED:
        X, y = simulated(n, d)
        new, labels = simulated(2000, d, seed=1)
        ls = 0.5 * median_distance(X)
        peer, peer_seconds = timed(lambda X=X, y=y, ls=ls: classifier(X, y, ls, EVALUATIONS))
        options = {"rank": RANK, "grid": [0.5], "max_evaluations": EVALUATIONS, "n_jobs": 1}
        found, seconds = timed(lambda X=X, y=y, o=options: choose_lengthscale(X, y, float(len(y)), **o))
        ours = auc(found.features.transform(new) @ found.fit.posterior.mean, labels)
        print(
            f"| {n} | {d} | {peer_seconds:.2f} s | {seconds:.2f} s | {seconds / peer_seconds:.1f} "
            f"| {peer.kernel_.length_scale:.2f}, {found.lengthscale[0]:.2f} "
            f"| {auc(peer.predict_proba(new)[:, 1], labels):.3f} | {ours:.3f} |",
            flush=True,
        )


def peers():
    from sklearn.ensemble import HistGradientBoostingClassifier

    print("\n| n | d | linear | features, one lengthscale | features, one for each covariate | boosted trees |")
    print("|---:" * 6 + "|", flush=True)
    for n, d in ((300, 2), (1000, 2), (1000, 10)):
        X, y = simulated(n, d)
        new, labels = simulated(5000, d, seed=1)
        linear = fitting.fit(linear_gaussian_problem(X, y, float(n)), n_jobs=1)
        cells = [f"{auc(new @ linear.posterior.mean, labels):.3f}"]
        for each in (False, True):
            began = process_time()
            found = choose_lengthscale(X, y, float(n), each=each, rank=RANK, n_jobs=1)
            seconds = process_time() - began
            scores = found.features.transform(new) @ found.fit.posterior.mean
            cells.append(f"{auc(scores, labels):.3f} ({seconds:.0f} s)")
        began = process_time()
        trees = HistGradientBoostingClassifier(random_state=0).fit(X, y)
        cells.append(f"{auc(trees.predict_proba(new)[:, 1], labels):.3f} ({process_time() - began:.0f} s)")
        print(f"| {n} | {d} | " + " | ".join(cells) + " |", flush=True)


PARTS = {"fixed": fixed, "optimised": optimised, "peers": peers}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; default all")
    with single_threaded_blas(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for part in parser.parse_args().parts or PARTS:
            PARTS[part]()


if __name__ == "__main__":
    main()
