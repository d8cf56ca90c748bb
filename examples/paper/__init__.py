"""The parts of ``examples/reproduce_paper.py``: data and splits, results, figures, page."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))  # the methods, which the benchmarks share
