"""Certificates: with stated probability, a number below which the population AUC does not fall.

``pac.certificate(result)`` certifies what was fitted; :func:`split` fits a part of the rows and certifies on the
others; :func:`holdout` certifies any score on rows that had no part in making it.

>>> import numpy as np, pymc_pacauc as pac
>>> y = np.arange(300) < 100
>>> certified = pac.certify.holdout(np.random.default_rng(1).normal(size=300) + 1.5 * y, y)
>>> certified.auc < certified.empirical_auc
True
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submod_attrs={"held_out": ["holdout", "split"]})
