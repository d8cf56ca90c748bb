"""From a posterior to a decision: choosing gamma, certifying, predicting, ranking, figures."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submodules=["plots"])
