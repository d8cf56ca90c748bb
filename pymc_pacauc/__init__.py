"""PAC-Bayesian AUC scoring in PyMC.

The Gibbs posterior ``prior(theta) * exp(-gamma * risk(theta))``, where ``risk`` is one minus the AUC, by tempering SMC
and by expectation propagation (Ridgway, Alquier, Chopin and Liang, 2014).

The public names are those of ``__init__.pyi``, imported when they are first used (SPEC 1), so importing the package
costs nothing and its array layer, :mod:`pymc_pacauc.arrays`, works without PyMC.
"""

from typing import Any

import lazy_loader

__version__ = "0.2.0"

_attach, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

_MOVED = ("load_colon", "load_credit", "load_dna", "load_glass", "load_pima", "load_spect")  # until 0.3


def __getattr__(name: str) -> Any:
    if name in _MOVED:
        from warnings import warn

        warn(f"pac.{name} is now pac.datasets.{name}.", DeprecationWarning, stacklevel=2)
        return getattr(_attach("datasets"), name)
    return _attach(name)
