"""Time of AUCClassifier's default fit, gamma by cross-validation, against LogisticRegressionCV(scoring="roc_auc").

    python -m benchmarks.estimator_time [--largest 10000]

CPU seconds, one thread, compilation not counted; the least of three runs, which take turns. Then the import, and the
first fit with an empty cache of compiled code, in processes of their own.
"""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse
import subprocess
import sys
import tempfile
import warnings
from time import process_time

from sklearn.datasets import make_classification

import pymc_pacauc as pac
from benchmarks.defaults import logistic
from pymc_pacauc.estimator import auc_classifier, posterior
from pymc_pacauc.tune import gamma

SIZES = ((300, 10), (1000, 10), (1000, 100), (3000, 30), (3000, 100), (10_000, 10), (10_000, 100))

FIRST = """
import time
began, cpu = time.perf_counter(), time.process_time()
import pymc_pacauc as pac
pac.AUCClassifier
print(f"import {time.process_time() - cpu:.1f} CPU s, {time.perf_counter() - began:.1f} s")
data = pac.datasets.load_pima()
for name in ("first fit", "second fit"):
    began, cpu = time.perf_counter(), time.process_time()
    pac.AUCClassifier().fit(data.X, data.y)
    print(f"{name} {time.process_time() - cpu:.1f} CPU s, {time.perf_counter() - began:.1f} s")
"""


def timed(function):
    began = process_time()
    function()
    return process_time() - began


def by_part(X, y):
    """CPU seconds of one fit, and of its parts, by wrapping the functions that do them."""
    spent = {}
    wrapped = {(posterior, "choose_prior"): "prior", (gamma, "held_out"): "folds", (posterior, "fit"): "fits"}
    originals = {key: getattr(*key) for key in wrapped}

    def wrap(function, name):
        def run(*arguments, **options):
            began = process_time()
            try:
                return function(*arguments, **options)
            finally:
                spent[name] = spent.get(name, 0.0) + process_time() - began

        return run

    for (module, function), name in wrapped.items():
        setattr(module, function, wrap(originals[module, function], name))
    original = auc_classifier.calibrate
    auc_classifier.calibrate = wrap(original, "calibration")
    try:
        whole = timed(lambda: pac.AUCClassifier().fit(X, y))
    finally:
        auc_classifier.calibrate = original
        for (module, function), value in originals.items():
            setattr(module, function, value)
    return whole, spent


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--largest", type=int, default=10_000)
    largest = parser.parse_args().largest
    warnings.simplefilter("ignore")
    data = pac.datasets.load_pima()
    pac.AUCClassifier().fit(data.X, data.y)  # compiles, or loads what was compiled
    print("| n | d | AUCClassifier | LogisticRegressionCV | ratio | prior | fits | folds | calibration |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|", flush=True)
    for n, d in SIZES:
        if n > largest:
            continue
        X, y = make_classification(n, d, n_informative=5, weights=[0.7], class_sep=0.6, random_state=1)
        runs = [(by_part(X, y), timed(lambda X=X, y=y: logistic(X, y, X, 0))) for _ in range(3)]
        (whole, spent), peer = min((run for run, _ in runs), key=lambda run: run[0]), min(peer for _, peer in runs)
        parts = " | ".join(f"{spent.get(name, 0.0):.2f}" for name in ("prior", "fits", "folds", "calibration"))
        print(f"| {n} | {d} | {whole:.2f} | {peer:.2f} | {whole / peer:.1f} | {parts} |", flush=True)
    with tempfile.TemporaryDirectory() as empty:
        for name, options in (("empty cache", {"NUMBA_CACHE_DIR": empty}), ("as installed", {})):
            done = subprocess.run(
                [sys.executable, "-c", FIRST], env={**os.environ, **options}, capture_output=True, text=True, check=True
            )
            print(f"\n{name}: " + "; ".join(done.stdout.splitlines()))


if __name__ == "__main__":
    main()
