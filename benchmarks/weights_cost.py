"""What weights of pairs cost: those who have none, before and after there were any; and those who have.

    python -m benchmarks.weights_cost [--restarts 3] [--repeats 10] [--before REVISION]

*Before and after*: the same work by the package as it was at ``--before``, the last revision without weights, and as
it is here, each in a process of its own, taking turns; CPU time, medians, and the median of the ratios. One process
differs from another by up to a tenth whatever it runs (where its memory lies), so they are started several times. It
needs the repository's history. *Weights*: a sweep with weights of several kinds, by pair, against one without.
"""

import os

from pymc_pacauc import fitting

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from time import process_time

import numpy as np

BEFORE = "3d46f07"  # the parent of the first revision with weights
HERE = Path(__file__).resolve().parents[1]
SHORTEST = 0.02  # CPU seconds of one turn


def labelled(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, X[:, 0] + rng.logistic(size=n) > 0.4


def sweep(X, pairs):
    """One sweep of EP over the pairs, at gamma = n and some q: a function to be timed."""
    from pymc_pacauc.ep.sites import site_table
    from pymc_pacauc.ep.sweep import score_moments, sum_sites
    from pymc_pacauc.problem.problem import linear_gaussian_problem

    problem = linear_gaussian_problem(X, pairs, gamma=float(len(X)))
    design, offset = problem.scores.reduced.design, problem.scores.reduced.offset
    d = design.shape[1]
    moments = score_moments(design, offset, np.linspace(-0.5, 0.5, d), np.sqrt(30.0) * np.eye(d))
    total = getattr(problem.pairs, "total_weight", problem.pairs.n_pairs)
    return partial(sum_sites, design, offset, moments, problem.pairs, site_table(problem.gamma / total))


def tasks():
    """Work that needs no weights, in names that both revisions have."""
    from pymc_pacauc.comparison.pairs import bipartite
    from pymc_pacauc.comparison.risk import LinearRisk, empirical_risk, pair_risk
    from pymc_pacauc.problem.problem import linear_gaussian_problem

    found = {}
    for n, d in ((200, 5), (1000, 10), (3000, 20)):
        X, y = labelled(n, d)
        found[f"EP, a sweep, n = {n}, d = {d}"] = sweep(X, bipartite(y))
    for n, d in ((200, 7), (800, 10)):
        X, y = labelled(n, d)
        found[f"EP, a fit, n = {n}, d = {d}"] = partial(fitting.fit, linear_gaussian_problem(X, y, gamma=float(n)))
    X, y = labelled(3000, 20)
    scores, theta = np.random.default_rng(1).standard_normal((200, 3000)), np.random.default_rng(2).standard_normal
    found["risk, 200 score vectors, n = 3000"] = partial(pair_risk, scores, bipartite(y))
    found["risk, 1 score vector, n = 3000, with its labels"] = partial(empirical_risk, scores[0], y)
    found["risk of 200 linear scores, n = 3000"] = partial(LinearRisk(X, bipartite(y)), theta((200, 20)))
    X, y = labelled(300, 5)
    found["risk of 1000 linear scores, n = 300"] = partial(LinearRisk(X, bipartite(y)), theta((1000, 5)))
    return found


def seconds(function, repeats):
    began = process_time()
    for _ in range(repeats):
        function()
    return (process_time() - began) / repeats


def serve():
    """Time one task for every name read from standard input."""
    known = tasks()
    turns = {}
    for name, function in known.items():
        seconds(function, 2)  # compiles
        turns[name] = max(1, int(SHORTEST / max(seconds(function, 1), 1e-6)))
    print("\n".join([*known, "ready"]), flush=True)
    for line in sys.stdin:
        name = line.strip()
        print(seconds(known[name], turns[name]), flush=True)


class Server:
    """A process that times tasks with the package found in ``root``."""

    def __init__(self, root):
        command = [sys.executable, "-W", "ignore", str(Path(__file__).resolve()), "--serve"]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(root)},
        )
        self.names = list(iter(lambda: self.process.stdout.readline().strip(), "ready"))

    def seconds(self, name):
        self.process.stdin.write(f"{name}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def before_and_after(revision, restarts, repeats):
    print(f"## Without weights, before ({revision}) and after (target: ratio ≤ 1.05)\n")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "before"
        git = ["git", "-C", str(HERE), "worktree"]
        subprocess.run([*git, "add", "--detach", "--quiet", str(root), revision], check=True)
        try:
            taken = {}
            for _ in range(restarts):
                servers = {"before": Server(root), "after": Server(HERE)}
                for name in servers["before"].names:
                    rows = taken.setdefault(name, [])
                    for turn in range(repeats):
                        which = sorted(servers, reverse=turn % 2 == 0)
                        found = {each: servers[each].seconds(name) for each in which}
                        rows.append((found["before"], found["after"]))
                for server in servers.values():
                    server.close()
        finally:
            subprocess.run([*git, "remove", "--force", str(root)], check=True)
    print("| work | before, ms | after, ms | ratio |")
    print("|---|---:|---:|---:|")
    for name, rows in taken.items():
        before, after = np.array(rows).T
        cells = [name, f"{1e3 * np.median(before):.3f}", f"{1e3 * np.median(after):.3f}"]
        print(f"| {' | '.join(cells)} | {np.median(after / before):.2f} |")


def with_weights(repeats, n=3000, d=10):
    from pymc_pacauc.comparison.censored import concordance
    from pymc_pacauc.comparison.kinds import label_comparison

    print(f"\n## With weights: a sweep, n = {n}, d = {d}, gamma = n\n")
    rng = np.random.default_rng(3)
    X, y = labelled(n, d)
    weights = rng.gamma(2.0, size=n) + 0.05
    time, censored = rng.exponential(np.exp(-X[:, 0])), rng.exponential(2.0, size=n)
    event, time = time <= censored, np.minimum(time, censored)
    tau = float(np.quantile(time, 0.9))
    kinds = {
        "two classes": label_comparison(y),
        "two classes, five different weights": label_comparison(y, weights=rng.integers(1, 6, n)),
        "two classes, all weights different": label_comparison(y, weights=weights),
        "ordered classes, four": label_comparison(np.digitize(X[:, 0], [-1.0, 0.0, 1.0]), ordered=True),
        "censored times (Harrell)": concordance(time, event),
        "censored times (Uno)": concordance(time, event, weights="ipcw", tau=tau),
    }
    timed = {name: [] for name in kinds}
    sweeps = {name: sweep(X, pairs) for name, pairs in kinds.items()}
    for turn in range(repeats + 1):
        for name, function in sweeps.items():
            taken = seconds(function, 1)
            if turn:  # the first compiles and tabulates
                timed[name].append(taken / kinds[name].n_pairs)
    print("| comparison | pairs | ns a pair | against two classes |")
    print("|---|---:|---:|---:|")
    base = np.array(timed["two classes"])
    for name, values in timed.items():
        cells = [name, f"{kinds[name].n_pairs}", f"{1e9 * np.median(values):.1f}"]
        print(f"| {' | '.join(cells)} | {np.median(np.array(values) / base):.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--before", default=BEFORE)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve()
        return
    before_and_after(arguments.before, arguments.restarts, arguments.repeats)
    with_weights(arguments.repeats)


if __name__ == "__main__":
    main()
