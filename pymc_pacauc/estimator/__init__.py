"""scikit-learn estimators: ``fit``, ``decision_function``, ``predict_proba``, with the posterior as attributes.

They use the array layer and do not import PyMC; they need the ``sklearn`` extra.
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import Any

import numpy as np

from pymc_pacauc.interrupt import raises_interrupts
from pymc_pacauc.numerics import NUMBERS_AT_ONCE, single_threaded_blas

try:
    import sklearn  # noqa: F401
except ImportError:
    raise ImportError(
        "AUCClassifier and ConcordanceEstimator need scikit-learn 1.5 or later: pip install 'pymc-pacauc[sklearn]'."
    ) from None


def all_or_nothing(fit: Callable[..., None]) -> Callable[..., Any]:
    """Make ``fit`` start without attributes of an earlier fit, restore these if it fails, and return the estimator.

    BLAS has one thread unless X is large: threads that wait for each other in many small products cost time.
    """

    @raises_interrupts
    @wraps(fit)
    def fit_or_restore(self: Any, X: Any, *args: Any, **options: Any) -> Any:
        before = dict(vars(self))
        for name in [name for name in before if name.endswith("_")]:
            del vars(self)[name]
        try:
            with single_threaded_blas() if np.prod(getattr(X, "shape", ())) <= NUMBERS_AT_ONCE else nullcontext():
                fit(self, X, *args, **options)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise
        return self

    return fit_or_restore
