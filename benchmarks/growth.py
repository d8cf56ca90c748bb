"""How the time of one fit grows with the rows and with the covariates.

    python -m benchmarks.growth [--figures docs/figures] [--smallest 250] [--largest 1000000] [--only EP-AUC ...]
        [--others docs/theory/benchmark_tables.md]

CPU seconds at fixed hyper-parameters, one thread, compilation not counted. At each size the learners take turns, three
times or until one has used its share of time; medians. Who took longer than a limit is not run at larger sizes. With
``--others`` learners that are not run have the times that a page shows; LogisticRegression, run again, tells how
alike the two runs were.
"""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse
import logging
import warnings
from pathlib import Path
from time import process_time

import numpy as np

from benchmarks.fits import FITS as ALL
from benchmarks.fits import simulated
from benchmarks.measured import tables_of
from pymc_pacauc.fitting import fit as arrays_fit
from pymc_pacauc.problem.problem import linear_gaussian_problem

FITS = {name: fit for name, fit in ALL.items() if fit.timed}
OURS = "EP-AUC"
OWN = (OURS, "SMC-AUC, from EP", "GPEP-AUC", "EP-AUC, all pairs")
ALIKE = {"GaussianProcessClassifier": "GPEP-AUC", "pm.sample_smc": "SMC-AUC, from EP"}  # the others: with EP-AUC
CLEAR = 1.2  # ratios nearer to one than this are called even
REPEATS = 3
SHARE = 3.0  # seconds of one learner at one size, after which it is not repeated
LIMIT = 60.0  # seconds of one fit, after which it is not run at larger sizes
SIZES = {
    "n at d = 10": [(n, 10) for n in (250, 500, 1000, 2000, 4000, 10_000, 16_000, 32_000, 100_000, 320_000, 1_000_000)],
    "d at n = 500": [(500, d) for d in (5, 10, 20, 40, 80, 160, 320)],
}


def times(n, d, names):
    """Median seconds of every learner that is run at this size."""
    X, y = simulated(n, d)
    taken = {name: [] for name in names if n <= FITS[name].rows and d <= FITS[name].covariates}
    runs = {name: FITS[name].prepare(X, y) for name in taken}
    for _ in range(REPEATS):
        for name, values in taken.items():
            if sum(values) < SHARE:
                began = process_time()
                runs[name]()
                values.append(process_time() - began)
    return {name: float(np.median(values)) for name, values in taken.items()}


def slope(sizes, seconds):
    """Of log time in log size over the larger half of the sizes, and at least three of them where there are."""
    first = max(0, min(len(seconds) // 2, len(seconds) - 3))
    if len(seconds) - first < 2:
        return float("nan")
    return float(np.polyfit(np.log(sizes[first : len(seconds)]), np.log(seconds[first:]), 1)[0])


def compared(curves):
    """For each peer: its time over that of ours which does the same, at the largest size both were run at; in words."""
    for name, (sizes, theirs) in curves.items():
        if name not in OWN:
            ours = ALIKE.get(name, OURS)
            last = min(len(theirs), len(curves[ours][1])) - 1
            ratio = theirs[last] / curves[ours][1][last]
            verdict = "Won" if ratio > CLEAR else "Lost" if ratio < 1 / CLEAR else "Even"
            factor = max(ratio, 1 / ratio)
            against = "" if ours == OURS else f"against {ours}, "
            yield verdict, f"{name} {factor:.{0 if factor >= 10 else 1}f} times ({against}at {sizes[last]})"


def shown(page, title):
    """Times of every learner in the table of a page whose first cell is ``title``: {name: (sizes, seconds)}."""
    head, _, *rows = next(table for table in tables_of(page) if table[0].startswith(f"| {title} |"))
    sizes = [int(cell) for cell in head.strip("|").split("|")[1:-1]]
    found = {}
    for row in rows:
        name, *cells = [cell.strip() for cell in row.strip("|").split("|")[:-1]]
        seconds = [float(cell) for cell in cells if cell]
        found[name] = (sizes[: len(seconds)], seconds)
    return found


def draw(curves, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from pymc_pacauc.analysis.plots.canvas import COLORS

    path.parent.mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(1, 2, figsize=(11.5, 5.0), layout="constrained", sharey=True)
    colors = [color for color in COLORS if color not in ("black", "#000000")]
    peers = list(dict.fromkeys(name for found in curves.values() for name in found if name not in OWN))
    for ax, title in zip(axes, curves, strict=True):
        for name, (sizes, seconds) in curves[title].items():
            if name in OWN:
                style = {"color": "black", "linestyle": ("-", "--", ":", "-.")[OWN.index(name)], "linewidth": 2}
            else:
                k = peers.index(name)
                style = {"color": colors[k % len(colors)], "linestyle": "-" if k < len(colors) else "--"}
            ax.loglog(sizes, seconds, marker="o", markersize=3, label=name, **style)
        ax.set(xlabel=title)
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("CPU seconds of one fit")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False)
    figure.savefig(path, dpi=90)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figures", type=Path)
    parser.add_argument("--smallest", type=int, default=250, help="number of rows")
    parser.add_argument("--largest", type=int, default=1_000_000, help="number of rows")
    parser.add_argument("--only", nargs="+", choices=FITS, default=list(FITS), help="learners")
    parser.add_argument("--others", type=Path, help="page with the times of learners that are not run")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # iterations at their limit
    logging.disable(logging.WARNING)
    print(
        "CPU seconds at fixed hyper-parameters, one thread, compilation not counted; learners take turns, medians. Who "
        f"takes more than {LIMIT:g} s is not run at larger sizes. The exponent is the slope of log time over the "
        "larger sizes."
    )
    page = arguments.others.read_text(encoding="utf-8") if arguments.others else None
    if page:
        told = ", ".join(
            f"{before[-1]:.3f} s at {sizes[-1]}"
            for sizes, before in (shown(page, title)["LogisticRegression"] for title in SIZES)
        )
        print(
            f"\n{', '.join(arguments.only)} were run again; the others' times are of an earlier run, in which "
            f"LogisticRegression took {told}."
        )
    for name in arguments.only:
        FITS[name].prepare(*simulated(100, 5))()  # compiles, imports
    if OURS in arguments.only:
        problem = linear_gaussian_problem(*simulated(2000, 5), 2000.0)
        arrays_fit(problem, pairs=400, n_jobs=1)
    curves = {}
    for title, sizes in SIZES.items():
        names = list(arguments.only)
        sizes = [(n, d) for n, d in sizes if arguments.smallest <= n <= arguments.largest]
        if not sizes:
            continue
        varied = [n if title.startswith("n") else d for n, d in sizes]
        found = []
        for n, d in sizes:
            found.append(times(n, d, names))
            names = [name for name in names if found[-1].get(name, 0.0) <= LIMIT]
        print(f"\n| {title} | {' | '.join(map(str, varied))} | exponent |\n|---|{'---:|' * (len(sizes) + 1)}")
        measured = {name: [values[name] for values in found if name in values] for name in arguments.only}
        measured = {name: (varied[: len(seconds)], seconds) for name, seconds in measured.items() if seconds}
        before = shown(page, title) if page else {}
        curves[title] = {name: measured.get(name, before.get(name)) for name in {**before, **measured}}
        for name, (own, seconds) in curves[title].items():
            cells = [f"{value:.3f}" for value in seconds] + [""] * (len(sizes) - len(seconds))
            print(f"| {name} | {' | '.join(cells)} | {slope(own, seconds):.1f} |")
    if arguments.figures is not None:
        draw(curves, arguments.figures / "growth.png")
        print("\n![Time against n and against d](../figures/growth.png)")
    for title in curves:
        found = list(compared(curves[title]))
        for verdict, words in (("Won", "slower than"), ("Lost", "faster than"), ("Even", "about the same as")):
            said = [peer for sign, peer in found if sign == verdict]
            if said:
                print(f"\n{verdict}: time of one fit against {title}; {words} {OURS}: {'; '.join(said)}.")


if __name__ == "__main__":
    main()
