"""Peak memory of one fit of each learner.

    python -m benchmarks.memory [--rows 4000]

Growth of the peak resident memory during a fit, in a process of its own, after a fit of 100 rows; ten covariates.
"""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse
import logging
import resource
import subprocess
import sys
import warnings

from benchmarks.fits import FITS, simulated

COVARIATES = 10
ALIKE = (("EP-AUC", "LogisticRegression"), ("GPEP-AUC", "GaussianProcessClassifier"))


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(name, rows):
    """Megabytes, in this process."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    prepare = FITS[name].prepare
    prepare(*simulated(100, COVARIATES))()
    run = prepare(*simulated(rows, COVARIATES))
    before = peak()
    run()
    return peak() - before


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--learner", help="measure this one in the process itself")
    arguments = parser.parse_args()
    if arguments.learner:
        print(f"{measure(arguments.learner, arguments.rows):.0f}")
        return
    print(
        "Growth of the peak resident memory during a fit, in a process of its own, after a small fit; "
        f"d = {COVARIATES}, n = {arguments.rows} or the largest size the learner is run at.\n"
    )
    print("| learner | n | MB |\n|---|---:|---:|", flush=True)
    found = {}
    for name, fit in FITS.items():
        rows = min(fit.rows, arguments.rows)
        command = [sys.executable, "-m", "benchmarks.memory", "--learner", name, "--rows", str(rows)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found[name] = (rows, int(done.stdout.split()[-1]))
        print(f"| {name} | {rows} | {found[name][1]} |", flush=True)
    for ours, peer in ALIKE:
        (rows, megabytes), (_, peer_megabytes) = found[ours], found[peer]
        verdict = "Won" if megabytes < peer_megabytes else "Lost"
        print(f"\n{verdict}: memory of one fit at n = {rows}: {ours} {megabytes} MB, {peer} {peer_megabytes} MB.")


if __name__ == "__main__":
    main()
