"""Figures: each function draws on ``ax`` or on a new figure and returns the axes. They need the ``plots`` extra.

>>> import pymc_pacauc as pac
>>> from matplotlib.figure import Figure
>>> ax = pac.plots.plot_roc(pac.roc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]), ax=Figure().subplots())
>>> ax.get_xlabel()
'false positive rate'
"""

import lazy_loader

# Names are those of `__init__.pyi`, imported when they are first used: figures of scores alone do not import PyMC.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
