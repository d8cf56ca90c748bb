"""Certificates: with stated probability, a number below which the population AUC does not fall.

``pac.certificate(result)`` certifies what was fitted; :func:`split` fits a part of the rows and certifies on the
others; :func:`holdout` certifies any score on rows that had no part in making it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submod_attrs={"held_out": ["holdout", "split"]})
