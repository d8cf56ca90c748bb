"""PAC-Bayesian AUC scoring in PyMC.

The Gibbs posterior ``prior(theta) * exp(-gamma * risk(theta))``, where ``risk`` is one minus the AUC, by tempering SMC
and by expectation propagation (Ridgway, Alquier, Chopin and Liang, 2014).

The public names are those of ``__init__.pyi``, imported when they are first used (SPEC 1), so importing the package
costs nothing and its array layer, :mod:`pymc_pacauc.arrays`, works without PyMC.
"""

import lazy_loader

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
