"""The first minute: CPU seconds of first calls in fresh processes with empty caches, on Pima (532 x 7).

    python -m benchmarks.first_minute [--python other/bin/python ...] [--warm]

Compilers that PyTensor starts count too. The package is imported with the names that the other rows use; PyMC 6 brings
ArviZ with its first ``pm.sample``, PyMC 5 with its own import, which is not the package's. *Warm* is after
``python -m pymc_pacauc --warm`` filled the caches. Models of another structure follow the first in one process.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROWS = (
    "import of PyMC alone",
    "import of the package after it",
    "first pm.fit",
    "first pm.sample(step=TemperingSMC(start=approx))",
    "pm.fit and pm.sample, other columns",
    "pm.fit and pm.sample, pm.Data",
    "pm.fit and pm.sample, strata",
    "first AUCClassifier.fit",
)
CLOCK = """
import logging, os, warnings


warnings.simplefilter("ignore")
before = sum(os.times()[:4])

def clock(name):
    global before
    print(f"{name}|{sum(os.times()[:4]) - before}")
    before = sum(os.times()[:4])
"""
MODELS = """
import pymc as pm
clock("import of PyMC alone")
import pymc_pacauc as pac
pac.EP, pac.TemperingSMC, pac.AUCPotential
clock("import of the package after it")
logging.getLogger("pymc").setLevel(logging.ERROR)
data = pac.datasets.load_pima()

def fit(X, y, **options):
    with pm.Model() as model:
        rows, labels = (pm.Data("X", X), pm.Data("y", y)) if options.pop("held", False) else (X, y)
        theta = pm.Normal("theta", size=X.shape[1])
        pac.AUCPotential("auc", rows @ theta, labels, gamma=float(len(y)), **options)
        return model, pm.fit(method=pac.EP(n_jobs=1), progressbar=False)

def sample(model, approx):
    with model:
        pm.sample(1000, step=pac.TemperingSMC(start=approx), chains=1, cores=1, random_seed=1, progressbar=False)

first = fit(data.X, data.y)
clock("first pm.fit")
sample(*first)
clock("first pm.sample(step=TemperingSMC(start=approx))")
sample(*fit(data.X[:, :5], data.y))
clock("pm.fit and pm.sample, other columns")
sample(*fit(data.X, data.y, held=True))
clock("pm.fit and pm.sample, pm.Data")
sample(*fit(data.X, data.y, strata=data.X[:, 0] > 3))
clock("pm.fit and pm.sample, strata")
"""
ESTIMATOR = """
import pymc_pacauc as pac
data, model = pac.datasets.load_pima(), pac.AUCClassifier()
clock("import of the estimator")
model.fit(data.X, data.y)
clock("first AUCClassifier.fit")
"""


def measured(python, warm=False):
    """CPU seconds of each row, each script in a process of its own with caches of its own."""
    found = {}
    for script in (MODELS, ESTIMATOR):
        with tempfile.TemporaryDirectory() as folder:
            environment = {
                **os.environ,
                **dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
                "NUMBA_CACHE_DIR": folder,
                "PYTENSOR_FLAGS": f"base_compiledir={folder}",
            }
            if warm:
                subprocess.run(
                    [python, "-m", "pymc_pacauc", "--warm"], env=environment, check=True, capture_output=True
                )
            done = subprocess.run([python, "-c", CLOCK + script], env=environment, check=True, capture_output=True)
        lines = [line.rpartition("|") for line in done.stdout.decode().splitlines() if "|" in line]
        found |= {name: float(seconds) for name, _, seconds in lines}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", nargs="+", default=[sys.executable], help="interpreters to measure")
    parser.add_argument("--warm", action="store_true", help="also after python -m pymc_pacauc --warm")
    arguments = parser.parse_args()
    columns = {}
    for python in map(str, map(Path.absolute, map(Path, arguments.python))):
        command = [python, "-c", "import pymc; print(pymc.__version__)"]
        version = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        columns[f"PyMC {version}"] = measured(python)
        if arguments.warm:
            columns[f"PyMC {version}, warm"] = measured(python, warm=True)
    print(f"| CPU seconds | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}")
    for row in ROWS:
        seconds = [f"{column[row]:.1f}" for column in columns.values()]
        print(f"| {row} | {' | '.join(seconds)} |")


if __name__ == "__main__":
    main()
