"""Held-out AUC of AUC learners over repeated splits of the shipped data, with paired differences.

    python -m benchmarks.quality [data ...] [--splits 20] [--slow-splits 8]

One thread; learners take turns on the same rows. Peers that are not installed are left out.
"""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse
import logging
import warnings

import pymc_pacauc as pac
from benchmarks.learners import LEARNERS, SLOW
from benchmarks.paired import Table, compare

SHARE = {"pima": 2 / 3, "spect": 2 / 3, "glass": 2 / 3, "credit": 1 / 2, "dna": 1 / 8}  # of the rows, for training
SMALL = ("pima", "spect", "glass")  # where slow learners are run


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="*", default=list(SHARE), help=", ".join(SHARE))
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--slow-splits", type=int, default=8)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # convergence of searches at their extremes
    logging.disable(logging.WARNING)
    print(
        f"{arguments.splits} stratified splits, the same for all; {', '.join(SLOW)} run on the first "
        f"{arguments.slow_splits}, of the smaller data sets. The seconds of NUTS include its compilation.\n"
    )
    table = Table()
    for name in arguments.data:
        learners = LEARNERS | SLOW if name in SMALL else LEARNERS
        data = getattr(pac.datasets, f"load_{name}")()
        table.add(name, *compare(data, SHARE[name], arguments.splits, learners, SLOW, arguments.slow_splits))
    table.summarize("held-out AUC")


if __name__ == "__main__":
    main()
