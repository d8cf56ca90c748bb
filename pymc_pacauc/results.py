"""Types of results, errors and warnings, for ``isinstance``, ``except`` and annotations; draws without their data.

Functions of the package return or raise them; users do not make them by hand.

>>> import pymc_pacauc as pac
>>> isinstance(pac.auc_interval([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]), pac.results.AUCInterval)
True
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub("pymc_pacauc", __file__)
