"""The parts of ``examples/reproduce_paper.py``: data and splits, results, figures, page."""
