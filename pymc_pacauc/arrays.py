"""The engines on NumPy arrays, for people without PyMC: build a problem, fit it, sample it.

>>> import numpy as np
>>> from pymc_pacauc import arrays
>>> X = np.random.default_rng(1).normal(size=(50, 2))
>>> problem = arrays.linear_gaussian_problem(X, X[:, 0] > 0.2, gamma=50.0)
>>> arrays.fit(problem).converged
True
"""

import lazy_loader

from pymc_pacauc import fitting
from pymc_pacauc.interrupt import returns_early

# The names are those of `arrays.pyi`, imported when they are first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub("pymc_pacauc", __file__)
fit = returns_early(fitting.fit)
